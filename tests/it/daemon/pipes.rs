//! The client's own pipes in the daemon: no byte is lost or doubled by a death, whatever they are, and where the daemon
//! cannot have them, the relay passes lines along.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use super::{Den, confine, dev, ended, leave, open};
use crate::harness::{VERSION, fake, signal};

/// A client that sends without waiting for answers.
struct Client {
    relay: Child,
    to: Box<dyn Write + Send>,
    from: BufReader<Box<dyn Read + Send>>,
}

impl Client {
    /// One with pipes, as most programs start others.
    fn on_pipes(mut command: Command) -> Self {
        let mut relay = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it is built");
        let (to, from) = (relay.stdin.take().expect("piped"), relay.stdout.take().expect("piped"));
        Self::begin(relay, Box::new(to), Box::new(from))
    }

    /// One with sockets, as Node starts others.
    fn on_sockets(mut command: Command) -> Self {
        let (to, stdin) = UnixStream::pair().expect("a pair");
        let (from, stdout) = UnixStream::pair().expect("a pair");
        command.stdin(OwnedFd::from(stdin)).stdout(OwnedFd::from(stdout));
        let relay = command.spawn().expect("it is built");
        // The command has copies of the relay's ends.
        drop(command);
        Self::begin(relay, Box::new(to), Box::new(from))
    }

    fn begin(relay: Child, to: Box<dyn Write + Send>, from: Box<dyn Read + Send>) -> Self {
        let mut client = Self { relay, to, from: BufReader::new(from) };
        let hello = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        client.send(&request("hello", "initialize", &hello));
        client.answer();
        client.send(&call("open", "open_toolbox", &json!({"toolbox_name": "dev"})));
        client.answer();
        client
    }

    fn send(&mut self, lines: &str) {
        self.to.write_all(lines.as_bytes()).expect("somebody reads");
    }

    /// The next line, which is whole.
    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("text");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The next answer.
    fn answer(&mut self) -> Value {
        loop {
            let line = self.line();
            if line.get("id").is_some() {
                return line;
            }
        }
    }

    fn leave(mut self) {
        drop(self.to);
        assert!(self.relay.wait().expect("it is ours").success());
        let mut rest = String::new();
        self.from.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "", "nothing is left over");
    }
}

fn request(id: &str, method: &str, params: &Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

fn call(id: &str, tool: &str, arguments: &Value) -> String {
    request(id, "tools/call", &json!({"name": tool, "arguments": arguments}))
}

/// A session in which the daemon is killed after so many of many answers: each call has one all the same.
fn kill_after(den: &Den, mut client: Client, killed_after: usize, text: &str) {
    const CALLS: usize = 600;
    let calls: String = (0..CALLS)
        .map(|id| call(&format!("{id}"), "dev__a__echo", &json!({"id": id, "text": text})))
        .collect();
    let pid = den.daemon_pid();
    let mut to = client.to;
    let sending = thread::spawn(move || {
        to.write_all(calls.as_bytes()).expect("somebody reads");
        to
    });
    client.to = Box::new(std::io::sink());
    let mut answers: HashMap<String, Value> = HashMap::new();
    while answers.len() < CALLS {
        if answers.len() == killed_after {
            signal(pid, "KILL");
        }
        let answer = client.answer();
        let id = answer["id"].as_str().expect("a text").to_owned();
        let is_lost = answer.to_string().contains("The daemon ended before it answered");
        assert!(is_lost || answer.to_string().contains(&format!("\\\"id\\\":{id},")), "its own: {answer}");
        assert!(answers.insert(id, answer).is_none(), "one answer each");
    }
    client.to = sending.join().expect("no panic");
    // The next daemon does what was never begun, and no call is made twice: that would be a second answer.
    client.send(&request("last", "ping", &json!({})));
    assert_eq!(client.answer()["id"], "last");
    client.leave();
}

#[test]
fn a_death_at_any_moment_loses_and_doubles_nothing() {
    let den = Den::new(&dev(json!({"a": fake("--with echo")})));
    let long = "x".repeat(20_000);
    for killed_after in [0, 1, 7, 100, 333, 599] {
        kill_after(&den, Client::on_pipes(den.command()), killed_after, "short");
        kill_after(&den, Client::on_sockets(den.command()), killed_after, "short");
        kill_after(&den, Client::on_pipes(den.command()), killed_after, &long);
        kill_after(&den, Client::on_sockets(den.command()), killed_after, &long);
    }
}

#[test]
fn where_the_daemon_cannot_have_the_pipes_the_relay_passes_lines() {
    let mut den = Den::new(&dev(json!({"a": fake("--with echo,never")})));
    den.is_confined = true;
    let passing = |den: &Den| {
        let mut command = den.command();
        let no_such_call = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        confine(&mut command, Some((libc::SYS_splice, None)), no_such_call);
        command
    };
    let mut peer = den.session_with(|command| *command = passing(&den));
    open(&mut peer, "dev");
    let stdin = fs::read_link(format!("/proc/{}/fd/0", peer.pid())).expect("it is open");
    let daemon = fs::read_dir(format!("/proc/{}/fd", den.daemon_pid())).expect("ours").flatten();
    let mut had = daemon.filter_map(|entry| fs::read_link(entry.path()).ok());
    assert!(!had.any(|one| one == stdin), "the relay reads it");
    let lost = peer.post_call("dev__a__never", "{}");
    peer.fence();
    den.kill_daemon();
    assert!(ended(&peer.answer(&lost)));
    assert!(!peer.call("dev__a__echo", r#"{"x":1}"#).is_error());
    leave(peer);
    for killed_after in [0, 100, 599] {
        kill_after(&den, Client::on_pipes(passing(&den)), killed_after, "short");
    }
}

/// A client that stops reading in the middle of an answer gets the rest of it from the relay.
#[test]
fn an_answer_that_the_client_has_read_in_part_is_finished_after_the_death() {
    let den = Den::new(&dev(json!({"a": fake("--with echo")})));
    let mut client = Client::on_pipes(den.command());
    let text = "x".repeat(1_000_000);
    client.send(&call("long", "dev__a__echo", &json!({"text": text})));
    // The daemon has begun to write, so the pipe is full.
    assert!(!client.from.fill_buf().expect("it is open").is_empty());
    den.kill_daemon();
    let answer = client.answer();
    assert_eq!(answer["id"], "long");
    assert!(answer["result"]["content"][0]["text"].as_str().is_some_and(|echoed| echoed.contains(&text)));
    client.leave();
}
