//! One daemon for all sessions: who shares what ([`sharing`]), how sessions, servers and the daemon end ([`ending`]),
//! what becomes of a session when the daemon dies ([`death`]), where the daemon is and whom it trusts ([`place`]),
//! what reaches the model through it ([`reaching`]), what people see of it ([`verbs`]), and
//! what it takes ([`cost`]).

mod cost;
mod death;
mod ending;
mod place;
mod reaching;
mod sharing;
mod verbs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{DEADLINE, Finished, Lab, Message, Peer, VERSION, gateway_path, signal};

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
        // `stop` also looks where daemons of other environments are, and must find none but this user's.
        command.env("XDG_RUNTIME_DIR", &self.lab.dir).env("TMPDIR", &self.lab.dir);
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
