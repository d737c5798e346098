//! Drives real processes over real pipes.
//!
//! [`Gateway::start`] takes a configuration as text (or `json!`) in which three words are replaced: `@fake` by
//! the path of the fake upstream, `@dir` by the test's own directory and `@marker` by a text that no other test
//! has. Every wait has a deadline that only a hang can reach; nothing sleeps to let things settle. When a
//! gateway goes out of scope it must end by itself, with status 0, and leave no process behind.
//!
//! `cargo test` builds the fake upstream; before `cargo test --test it` alone run `cargo build --examples`.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// How long anything may take before it counts as a hang.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The version that tests speak where it does not matter.
pub(crate) const VERSION: &str = "2025-06-18";

/// `tools/list_changed`.
pub(crate) const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// `resources/list_changed`.
pub(crate) const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";

/// `prompts/list_changed`.
pub(crate) const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";

/// Set for a run of tests whose gateways serve their sessions over a daemon: `daemon::contract` is such a run.
pub(crate) const OVER_DAEMON: &str = "TEST_OVER_DAEMON";

/// Whether gateways of this run serve their sessions over a daemon.
fn over_daemon() -> bool {
    std::env::var_os(OVER_DAEMON).is_some()
}

/// A file as this run wants it, in either syntax. One that speaks of the daemon itself is left as it is.
pub(crate) fn as_served(config: String) -> String {
    match config.strip_prefix('{') {
        _ if !over_daemon() || config.contains("daemon") => config,
        Some(rest) if rest.starts_with('"') => format!(r#"{{"daemon":true,"linger":0,{rest}"#),
        Some(_) => config,
        None => format!("daemon = true\nlinger = 0\n{config}"),
    }
}

/// The gateway's executable.
pub(crate) fn gateway_path() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_mcp-workbench"))
}

/// The executable of the toolman face.
pub(crate) fn toolman_path() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_toolman"))
}

/// The fake upstream's executable, which cargo builds beside the gateway's.
pub(crate) fn fake_path() -> PathBuf {
    let name = format!("fake-upstream{}", std::env::consts::EXE_SUFFIX);
    gateway_path().with_file_name("examples").join(name)
}

/// The executable with rmcp's server, and with what else the conformance suite needs.
pub(crate) fn conformance_path() -> PathBuf {
    let name = format!("conformance{}", std::env::consts::EXE_SUFFIX);
    gateway_path().with_file_name("examples").join(name)
}

/// A server entry that runs the fake upstream with these flags, split at white space.
pub(crate) fn fake(flags: &str) -> Value {
    fake_with(flags, &[])
}

/// As [`fake`], with further flags that are not split.
pub(crate) fn fake_with(flags: &str, more: &[&str]) -> Value {
    let mut args: Vec<&str> = flags.split_whitespace().collect();
    args.extend(more);
    args.extend(["--marker", "@marker"]);
    json!({"command": "@fake", "args": args})
}

/// A configuration with one toolbox, `dev`, of these servers.
pub(crate) fn dev(mode: &str, servers: Value) -> Value {
    json!({
        "toolMode": mode,
        "toolboxes": {"dev": {"description": "Development toolbox", "mcpServers": servers}}
    })
}

/// As [`dev`], under the classic contract.
pub(crate) fn classic(mode: &str, servers: Value) -> Value {
    let mut config = dev(mode, servers);
    config["metaTools"] = json!("classic");
    config
}

/// An entry of `tools.toml` that runs the fake upstream with these flags, quoted as for a shell, and further lines.
pub(crate) fn server(namespace: &str, flags: &str, more: &str) -> String {
    command(namespace, &format!("@fake {flags} --marker @marker"), more)
}

/// An entry of `tools.toml` with this command, and further lines.
pub(crate) fn command(namespace: &str, command: &str, more: &str) -> String {
    // A string of JSON is one of TOML.
    format!("[[servers]]\nnamespace = {}\ncommand = {}\n{more}\n", json!(namespace), json!(command))
}

/// A directory that only this test has, and the marker that its processes carry.
#[derive(Debug)]
pub(crate) struct Lab {
    /// Empty at first; removed in the end.
    pub(crate) dir: PathBuf,
    /// Part of the directory's name, so that whoever is told of it carries the marker.
    pub(crate) marker: String,
}

impl Lab {
    /// A new one.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let marker = format!("wbtest-{}-{}-", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(&marker);
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        let dir = dir.canonicalize().expect("it exists");
        Self { dir, marker }
    }

    /// The text with `@fake`, `@dir` and `@marker` replaced, for use inside JSON strings.
    pub(crate) fn fill(&self, text: &str) -> String {
        let escaped = |path: &Path| {
            let text = Value::from(path.to_str().expect("a path in UTF-8")).to_string();
            text[1..text.len() - 1].to_owned()
        };
        text.replace("@fake", &escaped(&fake_path()))
            .replace("@dir", &escaped(&self.dir))
            .replace("@marker", &self.marker)
    }

    /// Writes a file into the directory.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, text).expect("the directory is ours");
        path
    }

    /// How many times a fake with `--count @dir/NAME` has been started.
    pub(crate) fn starts(&self, name: &str) -> usize {
        std::fs::read_to_string(self.dir.join(name)).map_or(0, |text| text.lines().count())
    }

    /// A command of the gateway that sees nothing of the user's own files and settings.
    pub(crate) fn command(&self) -> Command {
        self.program(&gateway_path())
    }

    /// A command of one of our executables that sees nothing of the user's own files and settings.
    pub(crate) fn program(&self, path: &Path) -> Command {
        let mut command = Command::new(path);
        command
            .current_dir(&self.dir)
            .env("XDG_CONFIG_HOME", self.dir.join("xdg-config"))
            .env("XDG_STATE_HOME", self.dir.join("xdg-state"))
            .env("XDG_CACHE_HOME", self.dir.join("xdg-cache"))
            .env("HOME", &self.dir)
            .env_remove("WORKBENCH_CONFIG")
            .env_remove("RUST_LOG");
        if over_daemon() {
            command.env("XDG_RUNTIME_DIR", &self.dir).env("TMPDIR", &self.dir);
        }
        command
    }

    /// Ends the daemon, where this run has one.
    fn stop_daemon(&self) {
        if over_daemon() {
            let stopped = self.run(self.command().arg("stop"));
            assert_eq!(stopped.code, Some(0), "{stopped:?}");
        }
    }

    /// Runs a command to its end, with an empty stdin.
    pub(crate) fn run(&self, command: &mut Command) -> Finished {
        self.run_within(command, DEADLINE)
    }

    /// As [`Self::run`], for what takes its time.
    pub(crate) fn run_within(&self, command: &mut Command, deadline: Duration) -> Finished {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program starts");
        let stdout = collect(child.stdout.take().expect("piped"));
        let stderr = collect(child.stderr.take().expect("piped"));
        let status = wait_within(&mut child, deadline).expect("the program ends by itself");
        Finished {
            code: status.code(),
            stdout: stdout.join().expect("no panic"),
            stderr: stderr.join().expect("no panic"),
        }
    }

    /// Ids and command lines of living processes that carry the marker.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        command_lines().into_iter().filter(|(_, line)| line.contains(&self.marker)).collect()
    }

    /// Waits until no process carries the marker.
    pub(crate) fn wait_until_gone(&self, within: Duration) {
        let end = Instant::now() + within;
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "processes are left: {left:#?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A test that fails leaves nothing behind either.
            for (pid, _) in self.processes() {
                signal_if_there(pid, "KILL");
            }
        }
        // What cannot be removed is the temporary directory's business.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// How a program has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// One line of a program's stdout.
#[derive(Clone)]
pub(crate) struct Message {
    /// As it came, without the line break.
    pub(crate) raw: String,
}

impl Message {
    /// Decoded; not exact and not for every number and text that JSON allows, see [`Self::at`].
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.raw).unwrap_or_else(|error| panic!("not JSON: {error}: {}", self.raw))
    }

    /// The bytes of the value at this path of keys and indices; `""` where there is none.
    pub(crate) fn at(&self, path: &[&str]) -> String {
        raw_at(&self.raw, path)
    }

    /// The bytes of the `id`.
    pub(crate) fn id(&self) -> String {
        self.at(&["id"])
    }

    /// The `method`; `""` where there is none.
    pub(crate) fn method(&self) -> String {
        serde_json::from_str(&self.at(&["method"])).unwrap_or_default()
    }

    /// The decoded `result`; there must be one.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        let mut value = self.value();
        assert!(value.get("result").is_some(), "no result: {}", self.raw);
        value["result"].take()
    }

    /// The code of the `error`; there must be one.
    #[track_caller]
    pub(crate) fn error_code(&self) -> i64 {
        self.value()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {}", self.raw))
    }

    /// The text of the n-th content block of a tool's result.
    #[track_caller]
    pub(crate) fn text_block(&self, n: usize) -> String {
        let text = self.at(&["result", "content", &n.to_string(), "text"]);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("no text block {n}: {self:?}"))
    }

    /// The text of the first content block of a tool's result that is no error.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        assert!(!self.is_error(), "an error: {self:?}");
        self.text_block(0)
    }

    /// The JSON that [`Self::text`] holds.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("not JSON: {error}: {text}"))
    }

    /// Whether a tool's result is marked as an error.
    #[track_caller]
    pub(crate) fn is_error(&self) -> bool {
        assert!(!self.at(&["result"]).is_empty(), "no result: {self:?}");
        self.at(&["result", "isError"]) == "true"
    }

    /// All texts of a tool's result, which must be an error.
    #[track_caller]
    pub(crate) fn failure(&self) -> String {
        assert!(self.is_error(), "no error: {}", self.raw);
        let blocks = self.result()["content"].as_array().cloned().unwrap_or_default();
        blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
    }

    /// The names of a list's items.
    #[track_caller]
    pub(crate) fn names(&self, list: &str) -> Vec<String> {
        let result = self.result();
        let items = result[list].as_array().unwrap_or_else(|| panic!("no {list}: {}", self.raw));
        items.iter().map(|item| item["name"].as_str().unwrap_or("?").to_owned()).collect()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(shortened(&self.raw))
    }
}

/// The bytes of the value at a path inside a text of JSON; `""` where there is none.
pub(crate) fn raw_at(json: &str, path: &[&str]) -> String {
    let mut here: &str = json;
    for step in path {
        let inner: Option<&RawValue> = match step.parse::<usize>() {
            Ok(index) => {
                serde_json::from_str::<Vec<&RawValue>>(here).ok().and_then(|items| items.get(index).copied())
            }
            Err(_) => serde_json::from_str::<BTreeMap<String, &RawValue>>(here)
                .ok()
                .and_then(|members| members.get(*step).copied()),
        };
        match inner {
            Some(inner) => here = inner.get(),
            None => return String::new(),
        }
    }
    here.to_owned()
}

/// A program that speaks JSON-RPC in lines.
pub(crate) struct Peer {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<Message>,
    /// Received and not yet taken.
    queue: VecDeque<Message>,
    stderr: Arc<Mutex<String>>,
    /// The log of the daemon that serves it.
    log: Option<PathBuf>,
    last_id: u64,
}

impl Peer {
    /// Starts the program.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self::spawn_on(command, Stdio::piped())
    }

    /// Starts the program with this as its stdin.
    pub(crate) fn spawn_on(command: &mut Command, stdin: Stdio) -> Self {
        let child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program starts");
        let (sender, stdout) = channel();
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let raw = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
                if sender.send(Message { raw }).is_err() {
                    break;
                }
                line.clear();
            }
        });
        let stderr = Arc::new(Mutex::new(String::new()));
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let kept = Arc::clone(&stderr);
        std::thread::spawn(move || {
            let mut line = Vec::new();
            while errors.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                kept.lock().expect("no panic").push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, stdout, queue: VecDeque::new(), stderr, log: None, last_id: 0 }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Memory of its own, in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn memory(&self) -> u64 {
        memory(self.pid())
    }

    /// Writes one line.
    #[track_caller]
    pub(crate) fn send(&mut self, line: impl AsRef<[u8]>) {
        let mut bytes = line.as_ref().to_vec();
        bytes.push(b'\n');
        self.send_bytes(&bytes);
    }

    /// Writes bytes as they are.
    #[track_caller]
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        if let Err(error) = stdin.write_all(bytes).and_then(|()| stdin.flush()) {
            panic!("stdin is closed: {error}\n{}", self.stderr());
        }
    }

    /// Sends a request with a new number as id, which is returned, and does not wait.
    #[track_caller]
    pub(crate) fn post(&mut self, method: &str, params: impl fmt::Display) -> String {
        self.last_id += 1;
        let id = self.last_id.to_string();
        self.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
        id
    }

    /// Sends a request and waits for its answer.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: impl fmt::Display) -> Message {
        let id = self.post(method, params);
        self.answer(&id)
    }

    /// Sends a notification.
    #[track_caller]
    pub(crate) fn notify(&mut self, method: &str, params: impl fmt::Display) {
        self.send(format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#));
    }

    /// Waits for the answer to the request with this id, given as JSON.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: &str) -> Message {
        self.take(&format!("an answer to {id}"), |message| message.id() == id && message.method().is_empty())
    }

    /// Waits for a notification.
    #[track_caller]
    pub(crate) fn notification(&mut self, method: &str) -> Message {
        self.take(method, |message| message.id().is_empty() && message.method() == method)
    }

    /// Waits for a question: a request of the other side.
    #[track_caller]
    pub(crate) fn question(&mut self, method: &str) -> Message {
        self.take(method, |message| !message.id().is_empty() && message.method() == method)
    }

    /// Answers a question; `answer` is `"result":…` or `"error":…`.
    #[track_caller]
    pub(crate) fn reply(&mut self, question: &Message, answer: &str) {
        self.send(format!(r#"{{"jsonrpc":"2.0","id":{},{answer}}}"#, question.id()));
    }

    /// Waits for a message and takes it out of the queue; all others stay there.
    #[track_caller]
    pub(crate) fn take(&mut self, what: &str, wanted: impl Fn(&Message) -> bool) -> Message {
        if let Some(at) = self.queue.iter().position(&wanted) {
            return self.queue.remove(at).expect("it was just found");
        }
        let end = Instant::now() + DEADLINE;
        loop {
            match self.stdout.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(message) if wanted(&message) => return message,
                Ok(message) => self.queue.push_back(message),
                Err(reason) => {
                    panic!("no {what}: {reason}; queue: {:#?}\nstderr:\n{}", self.queue, self.stderr())
                }
            }
        }
    }

    /// The next message, whatever it is.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Message {
        self.take("message", |_| true)
    }

    /// The next message of a program that has ended, if there is one.
    pub(crate) fn rest(&mut self) -> Option<Message> {
        self.queue.pop_front().or_else(|| self.stdout.recv_timeout(DEADLINE).ok())
    }

    /// The messages that have come and were not taken.
    pub(crate) fn left(&mut self) -> Vec<Message> {
        self.queue.extend(self.stdout.try_iter());
        self.queue.iter().cloned().collect()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Makes sure that all that was said before has been read: what it caused at once is in the queue now.
    #[track_caller]
    pub(crate) fn fence(&mut self) {
        let answer = self.request("ping", "{}");
        assert_eq!(answer.at(&["result"]), "{}");
    }

    /// How many notifications of this method are in the queue, after a [`Self::fence`]; they are taken out.
    #[track_caller]
    pub(crate) fn count(&mut self, method: &str) -> usize {
        self.fence();
        let before = self.queue.len();
        self.queue.retain(|message| message.method() != method);
        before - self.queue.len()
    }

    /// Whether such a message is in the queue, after a [`Self::fence`].
    #[track_caller]
    pub(crate) fn has(&mut self, wanted: impl Fn(&Message) -> bool) -> bool {
        self.fence();
        self.queue.iter().any(wanted)
    }

    /// Shakes hands in this version and returns the answer to `initialize`.
    #[track_caller]
    pub(crate) fn initialize(&mut self, version: &str) -> Message {
        self.initialize_with(version, "{}")
    }

    /// As [`Self::initialize`], as a client with these capabilities.
    #[track_caller]
    pub(crate) fn initialize_with(&mut self, version: &str, capabilities: &str) -> Message {
        self.initialize_as(version, capabilities, "test-client")
    }

    /// As [`Self::initialize_with`], under this name.
    #[track_caller]
    pub(crate) fn initialize_as(&mut self, version: &str, capabilities: &str, name: &str) -> Message {
        let answer = self.request(
            "initialize",
            format!(
                r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{"name":"{name}","version":"1"}}}}"#
            ),
        );
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer
    }

    /// Posts a `tools/call`.
    #[track_caller]
    pub(crate) fn post_call(&mut self, tool: &str, arguments: impl fmt::Display) -> String {
        self.post("tools/call", format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#))
    }

    /// Calls a tool.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: impl fmt::Display) -> Message {
        let id = self.post_call(tool, arguments);
        self.answer(&id)
    }

    /// The listed tools' names.
    #[track_caller]
    pub(crate) fn tools(&mut self) -> Vec<String> {
        self.request("tools/list", "{}").names("tools")
    }

    /// All that came on stderr so far, and in the log of the daemon.
    pub(crate) fn stderr(&self) -> String {
        let log = self.log.as_ref().and_then(|log| std::fs::read_to_string(log).ok());
        self.stderr.lock().expect("no panic").clone() + &log.unwrap_or_default()
    }

    /// Waits until stderr holds this text.
    #[track_caller]
    pub(crate) fn stderr_with(&self, text: &str) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            let stderr = self.stderr();
            if stderr.contains(text) {
                return stderr;
            }
            assert!(Instant::now() < end, "no {text:?} in stderr:\n{stderr}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Closes stdin, as a client does that goes away.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal by its name.
    #[track_caller]
    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child).unwrap_or_else(|| panic!("it does not end; stderr:\n{}", self.stderr()))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Only what has not ended as it should is killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that says on its first line where it serves over HTTP, until it is dropped.
pub(crate) struct Serving {
    child: Child,
    pub(crate) url: String,
}

impl Serving {
    /// Starts it and waits for the line.
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it is built");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it prints text");
        let url = line.trim_end().strip_prefix("listening on ").expect("it listens").to_owned();
        Self { child, url }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway with its own configuration and directory.
pub(crate) struct Gateway {
    peer: Peer,
    /// Where it works.
    pub(crate) lab: Lab,
    /// Cleared by tests that end it in another way than by closing stdin.
    orderly: bool,
}

impl Gateway {
    /// Starts a gateway with this configuration and shakes hands.
    #[track_caller]
    pub(crate) fn start(config: impl fmt::Display) -> Self {
        let mut gateway = Self::spawn(config);
        gateway.initialize(VERSION);
        gateway
    }

    /// Starts a gateway with this configuration.
    #[track_caller]
    pub(crate) fn spawn(config: impl fmt::Display) -> Self {
        Self::spawn_with(Lab::new(), config, |_| ())
    }

    /// Starts a gateway in a prepared place with a changed command.
    #[track_caller]
    pub(crate) fn spawn_with(lab: Lab, config: impl fmt::Display, change: impl FnOnce(&mut Command)) -> Self {
        let path = lab.write("workbench-config.json", &as_served(lab.fill(&config.to_string())));
        let mut command = lab.command();
        command.arg("--config").arg(path);
        change(&mut command);
        Self::of(Peer::spawn(&mut command), lab)
    }

    /// Starts toolman with this `tools.toml` and shakes hands.
    #[track_caller]
    pub(crate) fn toolman(config: impl fmt::Display) -> Self {
        let mut gateway = Self::spawn_toolman(Lab::new(), config, |_| ());
        gateway.initialize(VERSION);
        gateway
    }

    /// Starts toolman in a prepared place with a changed command; the file is that of the working directory.
    #[track_caller]
    pub(crate) fn spawn_toolman(
        lab: Lab,
        config: impl fmt::Display,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        lab.write("tools.toml", &as_served(lab.fill(&config.to_string())));
        Self::run_in(lab, &toolman_path(), change)
    }

    /// Starts one of our executables in a place that holds its file already.
    #[track_caller]
    pub(crate) fn run_in(lab: Lab, program: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = lab.program(program);
        change(&mut command);
        Self::of(Peer::spawn(&mut command), lab)
    }

    fn of(mut peer: Peer, lab: Lab) -> Self {
        peer.log = over_daemon().then(|| lab.dir.join("xdg-state/mcp-workbench/daemon.log"));
        Self { peer, lab, orderly: true }
    }

    /// Ends it as a client does that goes away, and gives its place back.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Lab {
        self.close();
        let status = self.wait();
        assert!(status.success(), "{status}; stderr:\n{}", self.stderr());
        let lab = std::mem::replace(&mut self.lab, Lab::new());
        lab.stop_daemon();
        lab.wait_until_gone(DEADLINE);
        lab
    }

    /// Calls `toolman_activate` with these four lists.
    #[track_caller]
    pub(crate) fn activate(&mut self, lists: [&[&str]; 4]) -> Message {
        let [tools_on, tools_off, resources_on, resources_off] = lists;
        let arguments = json!({
            "tools_on": tools_on, "tools_off": tools_off,
            "resources_on": resources_on, "resources_off": resources_off,
        });
        self.call("toolman_activate", arguments)
    }

    /// The description of `toolman_activate`, which must be the first tool.
    #[track_caller]
    pub(crate) fn catalog(&mut self) -> String {
        let tool = self.request("tools/list", "{}").result()["tools"][0].take();
        assert_eq!(tool["name"], "toolman_activate");
        tool["description"].as_str().expect("a text").to_owned()
    }

    /// One field of every item of a list.
    #[track_caller]
    pub(crate) fn field(&mut self, method: &str, list: &str, field: &str) -> Vec<String> {
        let result = self.request(method, "{}").result();
        let items = result[list].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item[field].as_str().unwrap_or("?").to_owned()).collect()
    }

    /// The URIs of the listed resources.
    #[track_caller]
    pub(crate) fn uris(&mut self) -> Vec<String> {
        self.field("resources/list", "resources", "uri")
    }

    /// The listed templates.
    #[track_caller]
    pub(crate) fn templates(&mut self) -> Vec<String> {
        self.field("resources/templates/list", "resourceTemplates", "uriTemplate")
    }

    /// The names of the listed prompts.
    #[track_caller]
    pub(crate) fn prompts(&mut self) -> Vec<String> {
        self.field("prompts/list", "prompts", "name")
    }

    /// How many `list_changed` of each kind are in the queue: tools, resources, prompts. They are taken out.
    #[track_caller]
    pub(crate) fn changes(&mut self) -> [usize; 3] {
        [TOOLS_CHANGED, RESOURCES_CHANGED, PROMPTS_CHANGED].map(|method| self.count(method))
    }

    /// Opens a toolbox of the current contract and returns what it says.
    #[track_caller]
    pub(crate) fn open(&mut self, toolbox: &str) -> Value {
        self.call("open_toolbox", json!({"toolbox_name": toolbox})).json()
    }

    /// Calls a tool of the toolbox `dev` by `use_tool`, in any mode.
    #[track_caller]
    pub(crate) fn use_tool(&mut self, server: &str, tool: &str, arguments: impl fmt::Display) -> Message {
        let id = self.post_use_tool(server, tool, arguments);
        self.answer(&id)
    }

    /// As [`Self::use_tool`], without waiting.
    #[track_caller]
    pub(crate) fn post_use_tool(&mut self, server: &str, tool: &str, arguments: impl fmt::Display) -> String {
        self.post_call(
            "use_tool",
            format!(
                r#"{{"tool":{{"toolbox":"dev","server":"{server}","tool":"{tool}"}},"arguments":{arguments}}}"#
            ),
        )
    }

    /// The process of a fake that offers `report`.
    #[track_caller]
    pub(crate) fn pid_of(&mut self, server: &str) -> u64 {
        self.use_tool(server, "report", "{}").json()["pid"].as_u64().expect("a number")
    }

    /// Tries until something holds, for conditions that no message announces.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !holds(self) {
            assert!(Instant::now() < end, "it never came true: {what}\n{}", self.stderr());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Says that the test itself ends the process.
    pub(crate) fn ends_by_hand(&mut self) {
        self.orderly = false;
    }
}

impl Deref for Gateway {
    type Target = Peer;
    fn deref(&self) -> &Peer {
        &self.peer
    }
}

impl DerefMut for Gateway {
    fn deref_mut(&mut self) -> &mut Peer {
        &mut self.peer
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("stderr of the gateway:\n{}", self.stderr());
            return;
        }
        if self.orderly {
            self.close();
            let status = self.wait();
            self.lab.stop_daemon();
            let left = self.lab.processes();
            assert!(status.success(), "{status}; stderr:\n{}", self.stderr());
            assert!(left.is_empty(), "processes are left: {left:#?}");
        } else {
            self.lab.stop_daemon();
            self.lab.wait_until_gone(DEADLINE);
        }
    }
}

/// Reads a pipe to its end.
fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for a child with a deadline; past it, it is killed.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    wait_within(child, DEADLINE)
}

fn wait_within(child: &mut Child, deadline: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return Some(status);
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Memory of a process in bytes that is its own. What it has mapped of its executable comes and goes with what else the
/// machine does.
#[cfg(target_os = "linux")]
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let resident = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = resident.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.expect("a number") * 1024
}

/// A gateway whose client writes and does not read until it is told to.
#[cfg(target_os = "linux")]
pub(crate) struct Silent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<std::process::ChildStdout>,
}

#[cfg(target_os = "linux")]
impl Silent {
    /// Starts it on the file of the lab and opens the toolbox `dev`.
    pub(crate) fn start(lab: &Lab) -> Self {
        let pipes = lab.command().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = pipes.expect("the gateway starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut silent = Self { stdin: child.stdin.take(), child, stdout };
        let hello = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let open = json!({"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}});
        for (id, method, params) in [(1, "initialize", hello), (2, "tools/call", open)] {
            silent.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
            silent.stdout.read_line(&mut String::new()).expect("an answer");
        }
        silent
    }

    /// Makes calls without reading an answer; returns how many.
    pub(crate) fn flood(&mut self, count: usize, params: &Value) -> usize {
        for id in 0..count {
            self.write(&json!({"jsonrpc": "2.0", "id": 100 + id, "method": "tools/call", "params": params}));
        }
        count
    }

    /// The most memory that it has during this time.
    pub(crate) fn watch(&self, time: Duration) -> u64 {
        let end = Instant::now() + time;
        let mut most = 0;
        while Instant::now() < end {
            most = most.max(memory(self.child.id()));
            std::thread::sleep(Duration::from_millis(5));
        }
        most
    }

    /// Reads so many lines, and ends the gateway.
    pub(crate) fn answers(mut self, count: usize) -> usize {
        let mut line = Vec::new();
        let read = (0..count)
            .take_while(|_| {
                line.clear();
                self.stdout.read_until(b'\n', &mut line).is_ok_and(|read| read > 0)
            })
            .count();
        self.stdin = None;
        assert!(wait(&mut self.child).is_some_and(|status| status.success()));
        read
    }

    fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(format!("{message}\n").as_bytes()).expect("it reads");
    }
}

/// Sends a signal, by its name, to a process.
#[track_caller]
pub(crate) fn signal(pid: u32, name: &str) {
    assert!(signal_if_there(pid, name), "the process is there");
}

/// Whether there was a process to send the signal to.
fn signal_if_there(pid: u32, name: &str) -> bool {
    let output = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).output();
    output.is_ok_and(|output| output.status.success())
}

/// The ids and command lines of all living processes.
#[cfg(target_os = "linux")]
fn command_lines() -> Vec<(u32, String)> {
    let processes = std::fs::read_dir("/proc").expect("Linux has it").flatten();
    let lines = processes.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
    });
    lines.collect()
}

/// The ids and command lines of all living processes.
#[cfg(not(target_os = "linux"))]
fn command_lines() -> Vec<(u32, String)> {
    let output = Command::new("ps").args(["-axww", "-o", "pid=,command="]).output().expect("there is a ps");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = lines.lines().filter_map(|line| line.trim_start().split_once(' '));
    lines.filter_map(|(pid, line)| Some((pid.parse().ok()?, line.to_owned()))).collect()
}

/// The beginning of a text, for messages.
fn shortened(text: &str) -> &str {
    text.char_indices().nth(400).map_or(text, |(at, _)| &text[..at])
}
