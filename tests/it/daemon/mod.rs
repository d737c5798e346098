//! One daemon for all sessions: who shares what ([`sharing`]), how sessions, servers and the daemon end ([`ending`]),
//! what becomes of a session when the daemon dies ([`death`]) or somebody dies on the way into it ([`stages`]), what it
//! takes along when it goes on alone ([`alone`]), what the pipes of clients have to do with it ([`pipes`]), where the daemon is and whom it trusts ([`place`]), that it counts time
//! ([`clock`]), what a changed file means for its sessions ([`reload`]), which servers rest in it ([`resting`]), what
//! reaches the model through it ([`reaching`]), what people see of it ([`verbs`]) and of what is in its way ([`reasons`]),
//! and what it takes ([`cost`]).

mod alone;
mod clock;
mod contract;
mod cost;
mod death;
mod ending;
mod pipes;
mod place;
mod reaching;
mod reasons;
mod reload;
mod resting;
mod sharing;
mod stages;
mod verbs;

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{DEADLINE, Finished, Lab, Message, Peer, VERSION, gateway_path, signal, toolman_path};

/// A user with a file, whose sessions share a daemon.
struct Den {
    lab: Lab,
    /// Whether all programs of this user are confined, by a rule that forbids nothing.
    is_confined: bool,
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
        let den = Self { lab: Lab::new(), is_confined: false };
        den.configure(config);
        den
    }

    /// A user of toolman, of whose servers all is active.
    fn toolman(entries: &str) -> Self {
        let lab = Lab::new();
        let keys = "daemon = true\nlinger = 0\nactive_toolsets = [\"*\"]\n";
        lab.write("tools.toml", &lab.fill(&format!("{keys}{entries}")));
        Self { lab, is_confined: false }
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
        // `stop` also looks where daemons of other environments are, and must find none but this user's.
        command.env("XDG_RUNTIME_DIR", &self.lab.dir).env("TMPDIR", &self.lab.dir);
        if self.is_confined {
            confine(&mut command, None, libc::SECCOMP_RET_ALLOW);
        }
        command
    }

    /// Starts the daemon as a relay does, by a changed command. It is a child of the test's.
    fn start_daemon(&self, change: impl FnOnce(&mut Command)) -> Child {
        leave(self.session());
        let socket = self.socket();
        self.run(&["stop"]);
        let lock = File::options().append(true).open(socket.with_extension("lock")).expect("it is ours");
        lock.try_lock().expect("nobody has it");
        let listener = UnixListener::bind(&socket).expect("it is free");
        let mut command = self.command();
        command.arg("daemon-process").arg("--directory").arg(self.directory());
        command.env_clear().current_dir("/").stdin(OwnedFd::from(listener)).stdout(lock);
        change(&mut command);
        command.spawn().expect("it starts")
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

    /// A client of toolman that has shaken hands.
    fn toolman_session(&self) -> Peer {
        let mut peer = Peer::spawn(&mut self.program(&toolman_path()));
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

    /// Where the daemon listens.
    fn socket(&self) -> PathBuf {
        let entries =
            fs::read_dir(self.directory()).expect("it is there").flatten().map(|entry| entry.path());
        let mut sockets = entries.filter(|path| path.extension().is_some_and(|ending| ending == "sock"));
        sockets.next().expect("it listens")
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

/// A system call, and its third argument if only that one is meant.
type SystemCall = (libc::c_long, Option<u32>);

/// Lets the program, and all that it starts, meet with this action at a system call, or never.
fn confine(command: &mut Command, at: Option<SystemCall>, action: u32) {
    let load = |offset| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let end = |action| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: action };
    let (number, third) = at.map_or((u32::MAX, None), |(number, third)| (number as u32, third));
    let is_call = libc::sock_filter { code: 0x15, jt: 0, jf: 3, k: number };
    let is_argument = match third {
        Some(third) => libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: third },
        None => libc::sock_filter { code: 0x35, jt: 0, jf: 1, k: 0 },
    };
    let filter = [load(0), is_call, load(32), is_argument, end(action), end(libc::SECCOMP_RET_ALLOW)];
    // SAFETY: system calls between fork and exec; the filter lives in the closure.
    #[allow(unsafe_code, reason = "a process can confine only itself")]
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
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

/// How many sessions a status shows.
fn sessions(status: &Value) -> usize {
    status["sessions"].as_array().map_or(0, Vec::len)
}

/// How many servers a status shows.
fn servers(status: &Value) -> usize {
    status["servers"].as_array().map_or(0, Vec::len)
}

/// Ends sessions at the same time.
fn leave_all(mut peers: Vec<Peer>) {
    peers.iter_mut().for_each(Peer::close);
    for mut peer in peers {
        assert!(peer.wait().success(), "{}", peer.stderr());
    }
}

/// The parameters of a call by a modern client that can be asked everything.
fn modern_call(name: &str, more: &str) -> String {
    format!(
        r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"modern","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{"form":{{}}}},"extensions":{{"io.modelcontextprotocol/tasks":{{}}}}}}}},"name":"{name}",{more}}}"#
    )
}
