//! One daemon for all sessions: who shares what, how sessions and servers end, and what becomes of a session when
//! the daemon dies.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{
    DEADLINE, Finished, Lab, Message, PROMPTS_CHANGED, Peer, RESOURCES_CHANGED, TOOLS_CHANGED, VERSION, fake,
    gateway_path, server, signal, toolman_path,
};

/// A user with a file, whose sessions share a daemon.
struct Den {
    lab: Lab,
}

/// A file with these toolboxes, whose sessions share a daemon.
fn daemon(toolboxes: Value) -> Value {
    json!({"daemon": true, "linger": 0, "toolMode": "dynamic", "toolboxes": toolboxes})
}

/// A file with one toolbox, `dev`, of these servers.
fn dev(servers: Value) -> Value {
    daemon(json!({"dev": {"mcpServers": servers}}))
}

impl Den {
    fn new(config: &Value) -> Self {
        let den = Self { lab: Lab::new() };
        den.configure(config);
        den
    }

    fn configure(&self, config: &Value) {
        // Editors replace files as a whole.
        let next = self.lab.write("next", &self.lab.fill(&config.to_string()));
        fs::rename(next, self.lab.dir.join("workbench-config.json")).expect("the directory is ours");
    }

    fn command(&self) -> Command {
        self.program(&gateway_path())
    }

    fn program(&self, path: &Path) -> Command {
        let mut command = self.lab.program(path);
        command.env("XDG_RUNTIME_DIR", &self.lab.dir);
        command
    }

    /// A client that has not said anything yet.
    fn spawn(&self) -> Peer {
        Peer::spawn(&mut self.command())
    }

    /// A client that has shaken hands.
    fn session(&self) -> Peer {
        self.session_with(|_| ())
    }

    /// A client that has shaken hands, started by a changed command.
    fn session_with(&self, change: impl FnOnce(&mut Command)) -> Peer {
        let mut command = self.command();
        change(&mut command);
        let mut peer = Peer::spawn(&mut command);
        peer.initialize(VERSION);
        peer
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        self.lab.run(self.command().args(arguments))
    }

    fn status(&self) -> Value {
        let told = self.run(&["status", "--json"]);
        assert_eq!(told.code, Some(0), "{told:?}");
        serde_json::from_str(&told.stdout).expect("one JSON value")
    }

    fn daemon_pid(&self) -> u32 {
        let status = self.status();
        status["daemon"]["pid"].as_u64().unwrap_or_else(|| panic!("no daemon: {status}")) as u32
    }

    fn directory(&self) -> PathBuf {
        self.lab.dir.join("mcp-workbench")
    }

    /// Waits until the status is so.
    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + DEADLINE;
        loop {
            let status = self.status();
            if holds(&status) {
                return status;
            }
            assert!(Instant::now() < end, "not {what}: {status:#}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the daemon, which is gone when this returns, and returns its process id.
    fn kill_daemon(&self) -> u32 {
        let pid = self.daemon_pid();
        signal(pid, "KILL");
        wait_until_dead(pid);
        pid
    }

    fn servers_of(&self) -> usize {
        let fakes = self.lab.processes();
        fakes.iter().filter(|(_, line)| line.contains("fake-upstream")).count()
    }
}

impl Drop for Den {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let stopped = self.run(&["stop"]);
            assert_eq!(stopped.code, Some(0), "{stopped:?}");
            self.lab.wait_until_gone(Duration::from_secs(10));
        }
    }
}

/// Opens a toolbox and returns the answer.
fn open(peer: &mut Peer, toolbox: &str) -> Value {
    peer.call("open_toolbox", json!({ "toolbox_name": toolbox })).json()
}

/// What the fake upstream behind a tool knows of itself.
fn report(peer: &mut Peer, server: &str) -> Value {
    peer.call(&format!("dev__{server}__report"), "{}").json()
}

fn pid_of(peer: &mut Peer, server: &str) -> u64 {
    report(peer, server)["pid"].as_u64().expect("a process id")
}

fn ended(message: &Message) -> bool {
    message.raw.contains("The daemon ended before it answered")
}

/// Waits until a session is in the next daemon. Until its relay has noticed the death, requests are lost.
fn recover(peer: &mut Peer) {
    while peer.request("ping", "{}").at(&["result"]).is_empty() {}
}

/// Waits until a process is gone.
fn wait_until_dead(pid: u32) {
    let end = Instant::now() + DEADLINE;
    while Path::new("/proc").join(pid.to_string()).exists() {
        assert!(Instant::now() < end, "it does not die");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends a session as a client does that goes away.
fn leave(mut peer: Peer) {
    peer.close();
    assert!(peer.wait().success(), "{}", peer.stderr());
}

#[test]
fn sessions_of_one_directory_share_servers_and_nothing_else() {
    let den = Den::new(&dev(
        json!({"a": fake("--with report,echo,progress,slow,release,started"), "b": fake("--with report")}),
    ));
    let (mut one, mut other) = (den.session(), den.session());
    assert_eq!(open(&mut one, "dev")["servers_connected"], 2);
    assert_eq!(other.tools(), ["open_toolbox"], "what one opens is closed for the other");
    assert_eq!(open(&mut other, "dev")["tools_registered"], 7);
    assert_eq!(pid_of(&mut one, "a"), pid_of(&mut other, "a"));
    assert_eq!(den.servers_of(), 2);
    // The same ids and progress tokens are two things.
    for (peer, key) in [(&mut one, "one"), (&mut other, "other")] {
        let arguments = json!({"n": 2, "extra": format!(",\"message\":\"{key}\"")});
        let params =
            json!({"name": "dev__a__progress", "arguments": arguments, "_meta": {"progressToken": 1}});
        peer.send(
            json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params}).to_string(),
        );
    }
    for (peer, key) in [(&mut one, "one"), (&mut other, "other")] {
        for n in 1..=2 {
            let progress = peer.notification("notifications/progress").value();
            assert_eq!(
                (&progress["params"]["progress"], &progress["params"]["message"]),
                (&json!(n), &json!(key))
            );
        }
        assert_eq!(peer.answer("\"same\"").text(), "progress");
    }
    assert_eq!(one.count("notifications/progress") + other.count("notifications/progress"), 0);
    leave(one);
    assert_eq!(den.until("one session", |now| now["sessions"].as_array().is_some_and(|all| all.len() == 1))["servers"].as_array().map(Vec::len), Some(2));
    leave(other);
}

#[test]
fn isolation_decides_server_by_server() {
    let entry = |isolation: &str, variable: bool| {
        let mut entry = fake("--with report");
        if !isolation.is_empty() {
            entry["isolation"] = isolation.into();
        }
        if variable {
            entry["env"] = json!({"WHO": "${WHO:-nobody}"});
        }
        entry
    };
    let den = Den::new(&dev(json!({
        "session": entry("session", false),
        "default": entry("", false),
        "shared": entry("shared", false),
        "varied": entry("shared", true),
        "inherits": {"command": "@fake", "args": ["--with", "report", "--marker", "@marker"], "inheritEnv": ["WHO"]},
    })));
    fs::create_dir(den.lab.dir.join("elsewhere")).expect("the directory is ours");
    let file = den.lab.dir.join("workbench-config.json");
    type Change = Box<dyn Fn(&mut Command)>;
    let sessions: [(&str, Change, [bool; 5]); 4] = [
        // Whether each server is the first session's: session, default, shared, varied, inherits.
        ("the same", Box::new(|_| ()), [false, true, true, true, true]),
        (
            "another client and mode",
            Box::new(|command| {
                command.args(["--tool-mode", "auto"]);
            }),
            [false, true, true, true, true],
        ),
        (
            "another variable",
            Box::new(|command| {
                command.env("WHO", "me");
            }),
            [false, true, true, false, false],
        ),
        (
            "another directory",
            Box::new(|command| {
                let directory = command.get_current_dir().expect("it has one").join("elsewhere");
                command.current_dir(directory);
            }),
            [false, false, true, true, false],
        ),
    ];
    let names = ["session", "default", "shared", "varied", "inherits"];
    let mut first = den.session_with(|command| {
        command.arg("--config").arg(&file);
    });
    open(&mut first, "dev");
    let own = names.map(|name| pid_of(&mut first, name));
    for (what, change, expected) in sessions {
        let mut peer = den.session_with(|command| {
            command.arg("--config").arg(&file);
            change(command);
        });
        open(&mut peer, "dev");
        let same: Vec<_> = names.iter().zip(own).map(|(name, own)| pid_of(&mut peer, name) == own).collect();
        assert_eq!(same, expected, "{what}");
        leave(peer);
    }
    // A server gets the environment and the directory of the session that starts it.
    let mut elsewhere = den.session_with(|command| {
        command.arg("--config").arg(&file).current_dir(den.lab.dir.join("elsewhere")).env("WHO", "them");
    });
    open(&mut elsewhere, "dev");
    let here = den.lab.dir.to_string_lossy().into_owned();
    assert_eq!(report(&mut elsewhere, "default")["cwd"], format!("{here}/elsewhere"));
    assert_eq!(report(&mut elsewhere, "inherits")["env"]["WHO"], "them");
    assert_eq!(report(&mut elsewhere, "varied")["env"]["WHO"], "them");
    assert_eq!(report(&mut elsewhere, "shared")["cwd"], here, "it runs beside the file");
    leave(elsewhere);
    leave(first);
}

#[test]
fn the_umask_of_a_session_reaches_its_servers_and_keeps_them_apart() {
    let script = json!({"command": "/bin/sh", "args": ["-c", "umask > @dir/umask.$$; exec @fake --with report --marker @marker"]});
    let den = Den::new(&dev(json!({"a": script})));
    let session = |umask: &str| {
        let mut command = den.program(Path::new("/bin/sh"));
        let program = gateway_path();
        command.args(["-c", &format!("umask {umask}; exec {}", program.display())]);
        let mut peer = Peer::spawn(&mut command);
        peer.initialize(VERSION);
        open(&mut peer, "dev");
        peer
    };
    let (mut one, mut other, mut same) = (session("027"), session("077"), session("027"));
    let [first, second, third] = [&mut one, &mut other, &mut same].map(|peer| pid_of(peer, "a"));
    assert_eq!((first == second, first == third), (false, true));
    let told = |pid: u64| fs::read_to_string(den.lab.dir.join(format!("umask.{pid}"))).expect("it wrote it");
    assert_eq!((told(first).trim(), told(second).trim()), ("0027", "0077"));
    for peer in [one, other, same] {
        leave(peer);
    }
}

#[test]
fn files_faces_and_homes_share_nothing_and_one_daemon_serves_both_faces() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let other =
        den.lab.write("other.json", &den.lab.fill(&dev(json!({"a": fake("--with report")})).to_string()));
    den.lab.write(
        "tools.toml",
        &den.lab.fill(&format!(
            "daemon = true\nlinger = 0\nactive_toolsets = [\"*\"]\n{}",
            server("a", "--with report", "")
        )),
    );
    let mut one = den.session();
    open(&mut one, "dev");
    let mut second = den.session_with(|command| {
        command.arg("--config").arg(&other);
    });
    open(&mut second, "dev");
    let mut homeless = den.session_with(|command| {
        command.env("XDG_DATA_HOME", "/nowhere");
    });
    open(&mut homeless, "dev");
    let mut toolman = Peer::spawn(&mut den.program(&toolman_path()));
    toolman.initialize(VERSION);
    let names = toolman.tools();
    let tool = names.iter().find(|name| name.ends_with("report")).unwrap_or_else(|| panic!("{names:?}"));
    let last = toolman.call(tool, "{}").json()["pid"].as_u64().expect("a process id");
    let mut pids = vec![pid_of(&mut one, "a"), pid_of(&mut second, "a"), pid_of(&mut homeless, "a"), last];
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 4, "each has its own");
    let status = den.status();
    assert_eq!(status["sessions"].as_array().map(Vec::len), Some(4), "{status:#}");
    let namespaces =
        status["servers"].as_array().expect("a list").iter().filter(|server| server["namespace"] == "a");
    assert_eq!(namespaces.count(), 1, "{status:#}");
    for peer in [one, second, homeless, toolman] {
        leave(peer);
    }
}

#[test]
fn what_runs_can_be_seen() {
    let none = Den::new(&dev(json!({})));
    assert_eq!(none.status(), json!({"daemon": null, "others": [], "sessions": [], "servers": []}));
    let said = none.run(&["status"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "no daemon runs\n"));
    let said = none.run(&["stop"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "no daemon runs\n"));

    let den = Den::new(&dev(
        json!({"a": fake("--with echo,slow,release,started"), "b": fake("--exit 1"), "c": fake("--tools 1 --stubborn 1")}),
    ));
    let mut silent = den.spawn();
    let mut peer = den.session();
    open(&mut peer, "dev");
    peer.call("dev__a__echo", "{}").text();
    let slow = peer.post_call("dev__a__slow", r#"{"key":"k"}"#);
    peer.call("dev__a__started", r#"{"key":"k"}"#).text();
    let status =
        den.until("both sessions", |now| now["sessions"].as_array().is_some_and(|all| all.len() == 2));
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&status), ["daemon", "others", "servers", "sessions"]);
    assert_eq!(keys(&status["daemon"]), ["pid", "rss", "uptime", "version"]);
    assert!(status["daemon"]["rss"].as_u64().is_some_and(|rss| rss > 1_000_000), "{status:#}");
    let of = |pid: u32| {
        let sessions = status["sessions"].as_array().expect("a list");
        sessions
            .iter()
            .find(|session| session["pid"] == pid)
            .unwrap_or_else(|| panic!("no {pid}: {status:#}"))
    };
    assert_eq!(of(silent.pid())["client"], Value::Null);
    let own = of(peer.pid());
    assert_eq!(keys(own), ["calls", "client", "directory", "file", "pid", "since"]);
    assert_eq!((&own["client"], &own["calls"]), (&json!("test-client"), &json!(3)));
    assert_eq!(own["directory"], den.lab.dir.to_string_lossy().into_owned());
    assert!(own["file"].as_str().is_some_and(|file| file.ends_with("/workbench-config.json")));
    let since = own["since"].as_str().expect("a text");
    assert!(since.len() == 20 && since.ends_with('Z') && since.as_bytes()[10] == b'T', "{since}");
    let servers = status["servers"].as_array().expect("a list");
    let states: Vec<_> =
        servers.iter().map(|server| (server["server"].clone(), server["state"].clone())).collect();
    assert_eq!(
        states,
        [(json!("a"), json!("running")), (json!("b"), json!("failed")), (json!("c"), json!("running"))]
    );
    assert_eq!(keys(&servers[0]), ["calls", "idle", "pid", "rss", "server", "sessions", "state", "toolbox"]);
    assert_eq!(
        (&servers[0]["calls"], &servers[0]["sessions"], &servers[0]["idle"]),
        (&json!(3), &json!(1), &json!(0))
    );
    assert_eq!((&servers[1]["pid"], &servers[1]["rss"]), (&Value::Null, &json!(0)));
    // The tree of the last is a server, and a descendant with a child.
    assert!(servers[2]["rss"].as_u64() > servers[0]["rss"].as_u64(), "{status:#}");
    let text = den.run(&["status"]).stdout;
    assert!(text.contains("test-client") && text.contains("dev/a") && text.contains("SERVER"), "{text}");
    peer.call("dev__a__release", r#"{"key":"k"}"#);
    assert_eq!(peer.answer(&slow).text(), "slow");
    silent.close();
    silent.wait();
    leave(peer);
}

#[test]
fn servers_end_when_nobody_has_them_open_and_not_before() {
    let mut config = dev(json!({"a": fake("--with report")}));
    config["linger"] = json!(1);
    config["toolboxes"]["own"] = json!({"mcpServers": {"s": {"command": "@fake", "args": ["--tools", "1", "--marker", "@marker"], "isolation": "session"}}});
    let den = Den::new(&config);
    let (mut one, mut other) = (den.session(), den.session());
    open(&mut one, "dev");
    open(&mut one, "own");
    open(&mut other, "dev");
    let pid = pid_of(&mut one, "a");
    leave(one);
    let left = Instant::now();
    let status = den.until("its own server to be gone", |now| {
        now["servers"].as_array().is_some_and(|all| all.len() == 1)
    });
    assert!(left.elapsed() < Duration::from_secs(2), "at once");
    assert_eq!(status["servers"][0]["state"], "running");
    assert_eq!(pid_of(&mut other, "a"), pid, "somebody has it open");
    leave(other);
    // Whoever comes before its time is over finds it running.
    let mut third = den.session();
    open(&mut third, "dev");
    assert_eq!(pid_of(&mut third, "a"), pid);
    leave(third);
    let left = Instant::now();
    den.until("its end", |now| now["servers"].as_array().is_some_and(Vec::is_empty));
    assert!(left.elapsed() >= Duration::from_millis(900), "not before its time: {:?}", left.elapsed());
    assert_eq!(den.servers_of(), 0);
}

#[test]
fn calls_of_a_session_that_ends_have_a_second_and_are_then_cancelled() {
    let mut config = dev(json!({"a": fake("--with slow,cancelled,echo,started,release")}));
    config["linger"] = json!(60);
    let den = Den::new(&config);
    let mut watcher = den.session();
    open(&mut watcher, "dev");
    for how in ["close", "kill"] {
        let mut peer = den.session();
        open(&mut peer, "dev");
        let quick = peer.post_call("dev__a__slow", r#"{"ms":100}"#);
        peer.post_call("dev__a__slow", format!(r#"{{"key":"{how}"}}"#));
        watcher.call("dev__a__started", format!(r#"{{"key":"{how}"}}"#)).text();
        match how {
            "close" => {
                peer.close();
                assert_eq!(peer.answer(&quick).text(), "slow", "it had the time");
                assert!(peer.wait().success());
            }
            _ => peer.signal("KILL"),
        }
        let count = if how == "close" { 1 } else { 2 };
        watcher.call("dev__a__cancelled", json!({ "count": count })).text();
    }
    den.until("one session", |now| now["sessions"].as_array().is_some_and(|all| all.len() == 1));
    leave(watcher);
}

#[test]
fn the_daemon_ends_after_its_last_session_when_it_is_asked_and_when_it_is_stopped() {
    let mut config = dev(json!({"a": fake("--tools 1 --ignore-term --ignore-eof")}));
    config["daemonLinger"] = json!(0);
    let den = Den::new(&config);
    let mut peer = den.session();
    open(&mut peer, "dev");
    let pid = den.daemon_pid();
    leave(peer);
    den.lab.wait_until_gone(Duration::from_secs(5));
    assert!(!den.directory().join("x").exists() && den.status()["daemon"].is_null());
    let left = fs::read_dir(den.directory()).expect("it is there").flatten();
    let sockets: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| !name.to_string_lossy().ends_with(".lock"))
        .collect();
    assert!(sockets.is_empty(), "{sockets:?}");

    // SIGTERM ends it as well; the session goes on by itself, and its next request is not refused.
    let mut peer = den.session();
    open(&mut peer, "dev");
    let second = den.daemon_pid();
    assert_ne!(pid, second);
    signal(second, "TERM");
    wait_until_dead(second);
    assert!(!peer.call("dev__a__tool-1", "{}").is_error());
    let third = den.daemon_pid();
    assert_ne!(second, third);
    // `stop` returns when everything is gone.
    let stopped = den.run(&["stop"]);
    assert_eq!(
        (stopped.code, stopped.stdout.as_str()),
        (Some(0), "the daemon has ended, and its servers with it\n")
    );
    assert_eq!(den.servers_of(), 0);
    assert!(
        den.lab.processes().iter().all(|(_, line)| !line.contains("daemon-process")),
        "{:?}",
        den.lab.processes()
    );
    assert_eq!(peer.tools().len(), 2, "the session is in the next daemon as it was");
    leave(peer);
}

#[test]
fn a_killed_daemon_costs_the_calls_in_flight_and_nothing_else() {
    let den = Den::new(&daemon(json!({
        "dev": {"mcpServers": {"a": fake("--with echo,never,report,slow,started --resources 1")}},
        "more": {"mcpServers": {"b": fake("--tools 1 --stubborn 1")}},
    })));
    let mut peer = den.session();
    open(&mut peer, "dev");
    open(&mut peer, "more");
    let uri = "workbench://dev/a/fake://resource/1";
    peer.request("resources/subscribe", json!({ "uri": uri })).result();
    peer.request("logging/setLevel", r#"{"level":"error"}"#).result();
    let tools = peer.tools();
    peer.count(TOOLS_CHANGED);
    peer.count(RESOURCES_CHANGED);
    peer.count(PROMPTS_CHANGED);
    let call = peer.post_call("dev__a__never", "{}");
    let read = peer.post("resources/list", "{}");
    peer.answer(&read);
    let cancelled = peer.post_call("dev__a__never", "{}");
    peer.notify("notifications/cancelled", json!({"requestId": cancelled.parse::<u64>().expect("a number")}));
    peer.fence();
    let daemon = den.daemon_pid();
    let killed = Instant::now();
    signal(daemon, "KILL");
    let answer = peer.answer(&call);
    assert!(killed.elapsed() < Duration::from_secs(1) && ended(&answer) && answer.is_error(), "{answer:?}");
    assert!(answer.text_block(0).contains("may or may not have taken effect"), "{answer:?}");
    // The next request starts a new daemon, in which all is as it was.
    assert_eq!(peer.tools(), tools);
    assert_ne!(den.daemon_pid(), daemon);
    for method in [TOOLS_CHANGED, RESOURCES_CHANGED, PROMPTS_CHANGED] {
        assert!(peer.count(method) <= 1, "{method}");
    }
    assert!(!peer.has(|message| message.id() == cancelled), "nobody wants that answer");
    let told = report(&mut peer, "a");
    assert_eq!(
        (&told["subscriptions"], &told["level"]),
        (&json!(["fake://resource/1"]), &json!({"level": "error"})),
        "{told}"
    );
    assert!(!peer.call("more__b__tool-1", r#"{"x":1}"#).is_error());
    leave(peer);
}

#[test]
fn a_death_before_and_during_the_handshake_is_not_seen() {
    let den = Den::new(&dev(json!({"a": fake("--tools 1")})));
    let mut peer = den.spawn();
    den.until("its session", |now| now["sessions"].as_array().is_some_and(|all| all.len() == 1));
    den.kill_daemon();
    let hello = format!(
        r#"{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}"#
    );
    // The relay may not have noticed the death yet: then `initialize` is sent again.
    let answer = peer.request("initialize", &hello);
    assert_eq!(answer.result()["protocolVersion"], VERSION);
    // Half of a line is read, the daemon dies, and the other half follows.
    let half = r#"{"jsonrpc":"2.0","id":"whole","method":"tools/call","params":{"name":"open_toolbox",""#;
    peer.send_bytes(half.as_bytes());
    den.kill_daemon();
    peer.send_bytes(b"arguments\":{\"toolbox_name\":\"dev\"}}}\n");
    let answer = peer.answer("\"whole\"");
    assert!(ended(&answer) || answer.json()["tools_registered"] == 1, "{answer:?}");
    assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
    leave(peer);
}

#[test]
fn open_questions_are_withdrawn_and_their_ids_stay_unused() {
    let den = Den::new(&dev(json!({"a": fake("--with ask")})));
    let mut peer = Peer::spawn(&mut den.command());
    peer.initialize_with(VERSION, r#"{"roots":{}}"#);
    open(&mut peer, "dev");
    let call = peer.post_call("dev__a__ask", r#"{"method":"roots/list"}"#);
    let question = peer.question("roots/list");
    den.kill_daemon();
    let withdrawn = peer.notification("notifications/cancelled");
    assert_eq!(withdrawn.at(&["params", "requestId"]), question.id());
    assert!(ended(&peer.answer(&call)));
    // A late answer is for nobody; the next question has another id.
    peer.reply(&question, r#""result":{"roots":[]}"#);
    let call = peer.post_call("dev__a__ask", r#"{"method":"roots/list"}"#);
    let next = peer.question("roots/list");
    assert!(next.id().parse::<u64>().expect("a number") > question.id().parse().expect("a number"));
    peer.reply(&next, r#""result":{"roots":[]}"#);
    assert!(peer.answer(&call).text().contains("roots"));
    leave(peer);
}

#[test]
fn after_the_third_death_within_a_minute_a_session_goes_on_alone() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    for _ in 0..3 {
        assert!(report(&mut peer, "a")["pid"].is_u64());
        den.kill_daemon();
        recover(&mut peer);
    }
    assert!(report(&mut peer, "a")["pid"].is_u64(), "the toolbox is open as before");
    assert!(peer.stderr_with("no daemon: ").contains("3 times within a minute"));
    assert!(den.status()["daemon"].is_null(), "it needs none");
    leave(peer);
    assert_eq!(den.servers_of(), 0);
}

#[test]
fn toolman_goes_on_with_what_was_active() {
    let lab = Lab::new();
    let config =
        format!("daemon = true\nlinger = 0\n{}", server("a", "--with report,never,echo --resources 1", ""));
    lab.write("tools.toml", &lab.fill(&config));
    let den = Den { lab };
    let mut peer = Peer::spawn(&mut den.program(&toolman_path()));
    peer.initialize(VERSION);
    let switch = r#"{"tools_on":["a_report","a_never"],"tools_off":[],"resources_on":[],"resources_off":[]}"#;
    peer.call("toolman_activate", switch).text();
    let tools = peer.tools();
    assert!(
        tools.iter().any(|name| name == "a_report") && !tools.iter().any(|name| name == "a_echo"),
        "{tools:?}"
    );
    let call = peer.post_call("a_never", "{}");
    let list = peer.post("resources/read", r#"{"uri":"never"}"#);
    peer.answer(&list);
    den.kill_daemon();
    let answer = peer.answer(&call);
    let words = answer.result()["structuredContent"]["error"].clone();
    assert!(
        words.as_str().is_some_and(|words| words.starts_with("The daemon ended before it answered")),
        "{answer:?}"
    );
    assert_eq!(peer.tools(), tools);
    assert!(peer.call("a_report", "{}").json()["pid"].is_u64());
    leave(peer);
}

#[test]
fn questions_outside_of_calls_go_to_the_oldest_session_and_are_refused_if_shared() {
    for (isolation, answered) in [("directory", true), ("shared", false)] {
        let mut entry = fake("--with ask,report --ask-after-initialized roots/list --wait-for @dir/go");
        entry["isolation"] = isolation.into();
        let den = Den::new(&dev(json!({ "a": entry })));
        let connect = || {
            let mut peer = Peer::spawn(&mut den.command());
            peer.initialize_with(VERSION, r#"{"roots":{}}"#);
            peer
        };
        let (mut one, mut other) = (connect(), connect());
        let [opening, also] =
            [&mut one, &mut other].map(|peer| peer.post_call("open_toolbox", r#"{"toolbox_name":"dev"}"#));
        den.until("both wait for it", |now| now["servers"][0]["sessions"] == 2);
        den.lab.write("go", "");
        if answered {
            let question = one.question("roots/list");
            one.reply(&question, r#""result":{"roots":[]}"#);
        }
        one.answer(&opening);
        other.answer(&also);
        // A question of a call goes to the session whose call it is.
        let call = other.post_call("dev__a__ask", r#"{"method":"roots/list"}"#);
        let question = other.question("roots/list");
        other.reply(&question, r#""result":{"roots":[{"uri":"file:///other"}]}"#);
        assert!(other.answer(&call).text().contains("file:///other"));
        for peer in [&mut one, &mut other] {
            assert!(!peer.has(|message| message.method() == "roots/list"), "{isolation}");
        }
        leave(one);
        leave(other);
    }
}

#[test]
fn a_session_that_does_not_read_delays_no_other() {
    let den = Den::new(&dev(json!({"a": fake("--with echo,large")})));
    let mut lazy = Reluctant::start(den.command());
    lazy.say(&format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"lazy","version":"1"}}}}}}"#));
    lazy.say(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"open_toolbox","arguments":{"toolbox_name":"dev"}}}"#);
    let mut peer = den.session();
    open(&mut peer, "dev");
    den.until("both", |now| now["servers"][0]["sessions"] == 2);
    for id in 2..34 {
        lazy.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"dev__a__large","arguments":{{"bytes":1000000}}}}}}"#));
    }
    for _ in 0..50 {
        assert!(!peer.call("dev__a__echo", "{}").is_error());
    }
    drop(lazy);
    leave(peer);
}

/// A client that writes and never reads.
struct Reluctant(std::process::Child);

impl Reluctant {
    fn start(mut command: Command) -> Self {
        let piped = std::process::Stdio::piped;
        Self(command.stdin(piped()).stdout(piped()).spawn().expect("it is built"))
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().expect("piped"), "{line}").expect("it is read");
    }
}

impl Drop for Reluctant {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_invalid_file_starts_no_daemon_and_other_verbs_ignore_the_key() {
    let den = Den::new(&json!({"daemon": true, "toolboxes": {"dev": {}}}));
    let refused = den.run(&[]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(!den.directory().exists());
    den.configure(&dev(json!({"a": fake("--tools 1")})));
    let listed = den.run(&["list", "tools", "--json"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(!den.directory().exists());
    let served = den.lab.run(den.command().args(["serve"]));
    assert_eq!(served.code, Some(0), "`serve` without --http is the stdio server: {served:?}");
    assert!(den.directory().exists());
    for (key, problem) in [("daemon", json!("yes")), ("linger", json!(-1)), ("daemonLinger", json!("1"))] {
        let mut config = dev(json!({}));
        config[key] = problem;
        den.configure(&config);
        let checked = den.run(&["check"]);
        assert_eq!(checked.code, Some(2), "{key}: {checked:?}");
        assert!(checked.stderr.contains(key), "{checked:?}");
    }
    den.configure(&dev(json!({})));
}

#[test]
fn where_there_can_be_no_daemon_a_session_is_served_in_its_own_process() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let directory = den.directory();
    let fill = |kind: &str| match kind {
        "a link" => symlink("/tmp", &directory).expect("it is free"),
        "a file" => fs::write(&directory, "").expect("it is free"),
        "loose" => {
            fs::create_dir(&directory).expect("it is free");
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o750)).expect("it is ours");
        }
        _ => {
            fs::create_dir(&directory).expect("it is free");
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("it is ours");
        }
    };
    for (kind, reason) in
        [("a link", "is a symbolic link"), ("a file", "is no directory"), ("loose", "has the mode 0750")]
    {
        fill(kind);
        let before = fs::symlink_metadata(&directory).expect("it is there");
        let mut peer = den.session();
        assert_eq!(open(&mut peer, "dev")["tools_registered"], 1, "{kind}");
        let told = peer.stderr_with("no daemon: ");
        assert!(told.contains(reason), "{kind}: {told}");
        assert_eq!(told.lines().filter(|line| line.contains("no daemon: ")).count(), 1, "{told}");
        leave(peer);
        let doctor = den.run(&["doctor"]);
        assert!(doctor.stdout.contains("the daemon cannot be used: ~/mcp-workbench "), "{doctor:?}");
        let after = fs::symlink_metadata(&directory).expect("it is left as it is");
        assert_eq!((before.mode(), before.ino()), (after.mode(), after.ino()), "{kind}");
        match kind {
            "loose" => fs::remove_dir(&directory).expect("nothing was put there"),
            _ => fs::remove_file(&directory).expect("it is ours"),
        }
    }
    let long = den.lab.dir.join("x".repeat(90));
    fs::create_dir(&long).expect("the directory is ours");
    let mut peer = den.session_with(|command| {
        command.env("XDG_RUNTIME_DIR", &long);
    });
    assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
    assert!(peer.stderr_with("no daemon: ").contains("too long"));
    leave(peer);
    let doctor = den.run(&["doctor", "--json"]);
    let told: Value = serde_json::from_str(&doctor.stdout).expect("one JSON value");
    assert_eq!(told["daemon"], json!({"usable": true, "problem": null}), "{told}");
}

/// Whoever sits on the socket, silent or talking nonsense, is not told anything.
#[test]
fn a_squatter_on_the_socket_gets_nothing() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    leave(den.session());
    let socket = den.directory().join(
        fs::read_dir(den.directory())
            .expect("it is there")
            .flatten()
            .map(|entry| entry.file_name().into_string().expect("UTF-8"))
            .find(|name| name.ends_with(".sock"))
            .expect("it listens"),
    );
    assert_eq!(fs::metadata(&socket).expect("a socket").permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(den.directory()).expect("a directory").permissions().mode() & 0o777, 0o700);
    den.run(&["stop"]);
    assert!(!socket.exists());
    for (greeting, reason) in [("", "did not greet within 3 seconds"), ("hello there\n", "no daemon of ours")]
    {
        let squatter = UnixListener::bind(&socket).expect("it is free");
        let heard = std::thread::spawn(move || {
            let (mut stream, _) = squatter.accept().expect("somebody connects");
            stream.write_all(greeting.as_bytes()).expect("they listen");
            let mut heard = String::new();
            let _ = BufReader::new(stream).read_line(&mut heard);
            heard
        });
        let mut peer = den.session();
        assert!(peer.stderr_with("no daemon: ").contains(reason), "{}", peer.stderr());
        assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
        assert_eq!(heard.join().expect("no panic"), "");
        leave(peer);
        fs::remove_file(&socket).expect("it is ours");
    }
    // A stale socket is replaced.
    drop(UnixListener::bind(&socket).expect("it is free"));
    assert!(UnixStream::connect(&socket).is_err() && socket.exists());
    let peer = den.session();
    assert_eq!(den.status()["sessions"].as_array().map(Vec::len), Some(1));
    leave(peer);
}

#[test]
fn the_daemon_keeps_nothing_of_who_starts_it_and_logs_to_its_own_file() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let peer = den.session_with(|command| {
        command.env("SECRET_OF_THE_STARTER", "1").env("RUST_LOG", "debug");
    });
    let pid = den.daemon_pid();
    let process = Path::new("/proc").join(pid.to_string());
    assert_eq!(fs::read_link(process.join("cwd")).expect("ours"), Path::new("/"));
    assert_eq!(fs::read(process.join("environ")).expect("ours"), b"");
    let stat = fs::read_to_string(process.join("stat")).expect("ours");
    let fields: Vec<_> = stat.rsplit(')').next().expect("a stat").split_whitespace().collect();
    // After the name: state, parent, group, session. Its session's leader is gone.
    assert_ne!(fields[1], peer.pid().to_string(), "it is nobody's child");
    assert_eq!(fields[2], fields[3], "its group is its session's");
    assert_ne!(
        fields[3],
        fs::read_to_string(format!("/proc/{}/stat", peer.pid()))
            .expect("ours")
            .rsplit(')')
            .next()
            .expect("a stat")
            .split_whitespace()
            .nth(3)
            .expect("a session")
    );
    for fd in fs::read_dir(process.join("fd")).expect("ours").flatten() {
        let to = fs::read_link(fd.path()).unwrap_or_default().to_string_lossy().into_owned();
        let known = ["/dev/null", "socket:", "anon_inode:", "pipe:", "/mcp-workbench/"];
        assert!(known.iter().any(|part| to.contains(part)), "an inherited descriptor: {to}");
    }
    let limits = fs::read_to_string(process.join("limits")).expect("ours");
    let files: Vec<_> = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("a limit")
        .split_whitespace()
        .collect();
    assert_eq!(files[3], files[4], "it may open as many files as the system grants");
    let log = den.lab.dir.join("xdg-state/mcp-workbench/daemon.log");
    assert_eq!(fs::metadata(&log).expect("a log").permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&log).expect("ours").contains("the daemon begins"));
    assert!(!peer.stderr().contains("the daemon begins"));
    leave(peer);
    den.run(&["stop"]);
    // Where it cannot log, it works without.
    fs::remove_dir_all(den.lab.dir.join("xdg-state")).expect("ours");
    fs::write(den.lab.dir.join("xdg-state"), "").expect("ours");
    let mut peer = den.session();
    assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
    assert_eq!(den.status()["sessions"].as_array().map(Vec::len), Some(1));
    leave(peer);
}

#[test]
fn many_that_start_at_once_start_one_daemon() {
    for round in 0..4 {
        let den = Den::new(&dev(json!({"a": fake("--with report --count @dir/count")})));
        let mut peers: Vec<_> = (0..50).map(|_| den.spawn()).collect();
        for peer in &mut peers {
            peer.initialize(VERSION);
        }
        let status = den.status();
        assert_eq!(status["sessions"].as_array().map(Vec::len), Some(50), "round {round}");
        assert_eq!(status["others"], json!([]));
        let daemons =
            den.lab.processes().into_iter().filter(|(_, line)| line.contains("daemon-process")).count();
        assert_eq!(daemons, 1, "round {round}");
        for peer in peers.iter_mut().take(3) {
            open(peer, "dev");
        }
        assert_eq!(den.lab.starts("count"), 1);
        for peer in &mut peers {
            assert_eq!(peer.stderr(), "");
            peer.close();
        }
        for mut peer in peers {
            assert!(peer.wait().success());
        }
    }
}

#[test]
fn sessions_with_the_same_ids_get_their_own_answers() {
    let den = Den::new(&dev(json!({"a": fake("--with echo")})));
    let mut peers: Vec<_> = (0..64).map(|_| den.session()).collect();
    for peer in &mut peers {
        open(peer, "dev");
    }
    assert_eq!(den.servers_of(), 1);
    for round in 0..20 {
        for id in ["1", "\"1\""] {
            for (number, peer) in peers.iter_mut().enumerate() {
                peer.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"dev__a__echo","arguments":{{"who":"{number}/{round}"}}}}}}"#));
            }
        }
        for (number, peer) in peers.iter_mut().enumerate() {
            for id in ["1", "\"1\""] {
                let echoed =
                    peer.take("an answer", |message| message.id() == id && message.method().is_empty());
                assert!(echoed.text().contains(&format!("\"{number}/{round}\"")), "{echoed:?} for {number}");
            }
        }
    }
    for peer in &mut peers {
        peer.close();
    }
    for mut peer in peers {
        assert!(peer.wait().success());
    }
}

#[test]
fn a_killed_daemon_with_many_calls_in_flight_leaves_nothing_and_nobody_behind() {
    let den = Den::new(&dev(json!({"a": fake("--with never,echo --stubborn 1")})));
    let mut peers: Vec<_> = (0..20).map(|_| den.session()).collect();
    let mut posted = Vec::new();
    for peer in &mut peers {
        open(peer, "dev");
        posted.push((0..5).map(|_| peer.post_call("dev__a__never", "{}")).collect::<Vec<_>>());
        peer.fence();
    }
    let pid = den.kill_daemon();
    let killed = Instant::now();
    for (peer, calls) in peers.iter_mut().zip(&posted) {
        for call in calls {
            assert!(ended(&peer.answer(call)));
        }
    }
    let answered = killed.elapsed();
    for peer in &mut peers {
        assert!(!peer.call("dev__a__echo", "{}").is_error());
    }
    let worked = killed.elapsed();
    assert!(answered < Duration::from_secs(4) && worked < Duration::from_secs(15), "{answered:?} {worked:?}");
    assert_ne!(den.daemon_pid(), pid);
    let daemons = den.lab.processes().into_iter().filter(|(_, line)| line.contains("daemon-process")).count();
    assert_eq!(daemons, 1);
    for peer in &mut peers {
        peer.close();
    }
    for mut peer in peers {
        assert!(peer.wait().success());
    }
}

#[test]
fn a_changed_file_reaches_all_sessions_and_each_keeps_its_view() {
    let mut config = daemon(json!({
        "dev": {"mcpServers": {"a": fake("--with report"), "b": fake("--with report")}},
        "more": {"mcpServers": {"c": fake("--tools 1")}},
    }));
    let den = Den::new(&config);
    let (mut one, mut other) = (den.session(), den.session());
    open(&mut one, "dev");
    open(&mut other, "dev");
    open(&mut other, "more");
    let (a, b) = (pid_of(&mut one, "a"), pid_of(&mut one, "b"));
    assert_eq!(pid_of(&mut other, "a"), a);
    config["toolboxes"]["dev"]["mcpServers"]["a"]["env"] = json!({"NEW": "1"});
    den.configure(&config);
    for peer in [&mut one, &mut other] {
        let end = Instant::now() + DEADLINE;
        while report(peer, "a")["env"]["NEW"] != "1" {
            assert!(Instant::now() < end, "the new file is not in force");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let now = pid_of(&mut one, "a");
    assert_ne!(now, a, "its entry changed");
    assert_eq!((pid_of(&mut other, "a"), pid_of(&mut other, "b"), pid_of(&mut one, "b")), (now, b, b));
    assert_eq!((one.tools().len(), other.tools().len()), (3, 4));
    // SIGHUP to a relay has the file read again, and does not end it.
    one.signal("HUP");
    one.fence();
    assert_eq!(pid_of(&mut one, "a"), now);
    leave(one);
    leave(other);
}

#[test]
fn a_relay_ends_as_the_gateway_does() {
    let den = Den::new(&dev(json!({"a": fake("--with slow,echo,started")})));
    for name in ["TERM", "INT"] {
        let mut peer = den.session();
        open(&mut peer, "dev");
        let quick = peer.post_call("dev__a__slow", r#"{"ms":200}"#);
        let slow = peer.post_call("dev__a__slow", r#"{"key":"k"}"#);
        peer.call("dev__a__started", r#"{"key":"k"}"#).text();
        let asked = Instant::now();
        peer.signal(name);
        assert_eq!(peer.answer(&quick).text(), "slow");
        assert!(peer.answer(&slow).failure().contains("shutting down"));
        assert!(peer.wait().success());
        assert!(asked.elapsed() < Duration::from_secs(5));
    }
    // Messages that are too long and lines that are none are answered as ever.
    let mut config = dev(json!({}));
    config["maxMessageBytes"] = json!(1000);
    den.configure(&config);
    let mut peer = den.session();
    peer.send(format!(
        r#"{{"jsonrpc":"2.0","id":"long","method":"ping","params":{{"x":"{}"}}}}"#,
        "y".repeat(2000)
    ));
    assert!(peer.answer("\"long\"").raw.contains("more than the 1000 of maxMessageBytes"));
    peer.send("\u{1}end");
    assert_eq!(peer.take("a refusal", |message| message.id() == "null").error_code(), -32700);
    peer.fence();
    leave(peer);
}

#[test]
fn a_session_that_is_confined_differently_is_served_in_its_own_process() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let free = den.session();
    let mut command = den.command();
    // SAFETY: one system call between fork and exec that touches no memory.
    #[allow(unsafe_code, reason = "no_new_privs can be set only by the process itself")]
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut confined = Peer::spawn(&mut command);
    confined.initialize(VERSION);
    let told = confined.stderr_with("no daemon: ");
    assert!(told.contains("no_new_privs"), "{told}");
    assert_eq!(open(&mut confined, "dev")["tools_registered"], 1);
    assert_eq!(den.status()["sessions"].as_array().map(Vec::len), Some(1));
    leave(confined);
    leave(free);
}

#[test]
fn a_removed_program_still_finds_its_next_daemon() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let copy = den.lab.dir.join("mcp-workbench-copy");
    fs::copy(gateway_path(), &copy).expect("the directory is ours");
    let mut peer = Peer::spawn(&mut den.program(&copy));
    peer.initialize(VERSION);
    open(&mut peer, "dev");
    fs::remove_file(&copy).expect("it is ours");
    den.kill_daemon();
    recover(&mut peer);
    assert!(report(&mut peer, "a")["pid"].is_u64());
    assert_eq!(peer.stderr(), "");
    leave(peer);
}

#[test]
fn each_build_has_a_daemon_and_stop_ends_them_all() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let mut old = den.session();
    open(&mut old, "dev");
    let pid = den.daemon_pid();
    // As far as anybody can see, a daemon of another name is one of another build.
    let names = fs::read_dir(den.directory()).expect("it is there").flatten().map(|entry| entry.path());
    let socket = names
        .into_iter()
        .find(|path| path.extension().is_some_and(|ending| ending == "sock"))
        .expect("it listens");
    let lock = socket.with_extension("lock");
    fs::rename(&socket, den.directory().join("0123456789abcdef.sock")).expect("it is ours");
    fs::rename(&lock, den.directory().join("0123456789abcdef.lock")).expect("it is ours");
    let mut new = den.session();
    open(&mut new, "dev");
    assert_ne!(pid_of(&mut old, "a"), pid_of(&mut new, "a"));
    let status = den.status();
    assert_eq!((&status["others"], status["sessions"].as_array().map(Vec::len)), (&json!([pid]), Some(1)));
    let stopped = den.run(&["stop"]);
    assert_eq!(stopped.stdout, "2 daemons have ended, and their servers with them\n");
    assert_eq!(den.servers_of(), 0);
    leave(old);
    leave(new);
}

#[test]
fn a_daemon_of_an_older_build_ends_with_its_last_session() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let peer = den.session();
    let pid = den.daemon_pid();
    let newer = den.directory().join("0123456789abcdef.sock");
    let listener = UnixListener::bind(&newer).expect("it is free");
    leave(peer);
    wait_until_dead(pid);
    drop(listener);
    fs::remove_file(newer).expect("it is ours");
}

#[test]
fn a_session_that_starts_while_the_daemon_ends_gets_another_one() {
    let mut config = dev(json!({"a": fake("--with echo")}));
    config["daemonLinger"] = json!(0);
    let den = Den::new(&config);
    for _ in 0..10 {
        let mut first = den.session();
        open(&mut first, "dev");
        first.close();
        let mut second = den.session();
        open(&mut second, "dev");
        assert!(!second.call("dev__a__echo", "{}").is_error());
        assert_eq!(second.stderr(), "");
        assert!(first.wait().success());
        leave(second);
    }
}

#[test]
fn connect_writes_the_key_into_our_file() {
    let den = Den::new(&json!({"toolboxes": {}}));
    let file = den.lab.dir.join("xdg-config/mcp-workbench/workbench-config.json");
    fs::create_dir_all(file.parent().expect("a directory")).expect("ours");
    let before = "{\n  // mine\n  \"toolboxes\": {}\n}\n";
    fs::write(&file, before).expect("ours");
    let connect =
        |more: &[&str]| den.lab.run(den.command().args(["connect", "gemini", "--daemon"]).args(more));
    let shown = connect(&["--dry-run"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("+  \"daemon\": true"), "{shown:?}");
    assert!(shown.stdout.contains("settings.json"), "the client's file is shown as well: {shown:?}");
    assert_eq!(fs::read_to_string(&file).expect("ours"), before);
    let written = connect(&["--yes", "--json"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let told: Value = serde_json::from_str(&written.stdout).expect("one JSON value");
    assert_eq!((&told["written"], &told["config"]["written"]), (&json!(true), &json!(true)), "{told}");
    let after = fs::read_to_string(&file).expect("ours");
    assert!(after.contains("// mine") && after.contains("\"daemon\": true"), "{after}");
    let again = connect(&["--yes", "--json"]);
    let told: Value = serde_json::from_str(&again.stdout).expect("one JSON value");
    assert_eq!((&told["changed"], &told["config"]["changed"]), (&json!(false), &json!(false)), "{told}");
    // Without a terminal and without --yes nothing is written.
    fs::write(&file, before).expect("ours");
    assert_eq!(connect(&[]).code, Some(2));
    assert_eq!(fs::read_to_string(&file).expect("ours"), before);
}

#[test]
fn doctor_names_servers_that_keep_a_state_for_one_client() {
    let entry = json!({"command": "@fake", "args": ["--tools", "1", "--marker", "@marker", "--instructions", "@playwright/mcp"]});
    let mut own = entry.clone();
    own["isolation"] = json!("session");
    let den = Den::new(&dev(json!({"kept": entry, "own": own})));
    let told = den.run(&["doctor", "--json"]);
    let told: Value = serde_json::from_str(&told.stdout).expect("one JSON value");
    let hint = |name: &str| {
        let servers = told["servers"].as_array().expect("a list").iter();
        servers.clone().find(|server| server["server"] == name).expect("it is there")["hint"].to_string()
    };
    assert!(hint("kept").contains("isolation") && !hint("own").contains("isolation"), "{told}");
    // In the daemon such a server is each session's own.
    let (mut one, mut other) = (den.session(), den.session());
    open(&mut one, "dev");
    open(&mut other, "dev");
    assert_eq!(den.servers_of(), 4);
    leave(one);
    leave(other);
}
