//! What a session takes along when it goes on without a daemon, or in the next one.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use serde_json::{Value, json};

use super::{Den, dev, ended, leave, open};
use crate::harness::{Peer, VERSION, fake};

/// The longest line of these sessions.
const LIMIT: usize = 6000;

fn limited() -> Value {
    let mut config = dev(json!({"a": fake("--with echo,never")}));
    config["maxMessageBytes"] = json!(LIMIT);
    config
}

/// A session whose relay knows that the daemon is dead, and that finds no other one.
fn orphan(den: &Den) -> Peer {
    let mut peer = den.session();
    open(&mut peer, "dev");
    let call = peer.post_call("dev__a__never", "{}");
    peer.fence();
    den.kill_daemon();
    assert!(ended(&peer.answer(&call)));
    set_mode(den, 0o755);
    peer
}

fn set_mode(den: &Den, mode: u32) {
    fs::set_permissions(den.directory(), fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// A call with an argument that makes it too long.
fn long_call() -> String {
    let text = "y".repeat(2 * LIMIT);
    format!(
        r#"{{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{{"name":"dev__a__echo","arguments":{{"text":"{text}"}}}}}}"#
    )
}

/// How a session without a daemon refuses the call that is too long.
fn refused_without_daemon() -> Value {
    let mut config = limited();
    config["daemon"] = json!(false);
    let den = Den::new(&config);
    let mut peer = den.session();
    peer.send(long_call());
    let refused = peer.answer("\"long\"");
    leave(peer);
    refused.value()
}

#[test]
fn a_line_that_is_too_long_is_refused_as_without_a_daemon() {
    let den = Den::new(&limited());
    let mut peer = orphan(&den);
    peer.send(long_call());
    assert_eq!(peer.answer("\"long\"").value(), refused_without_daemon());
    leave(peer);
    set_mode(&den, 0o700);
}

#[test]
fn a_line_that_is_too_long_and_has_only_begun_is_refused_whole() {
    let den = Den::new(&limited());
    let mut peer = orphan(&den);
    let call = long_call();
    let (read, rest) = call.split_at(LIMIT + 1000);
    // Both parts fit into one read, so the relay has the beginning of the long line when it goes on alone.
    let ping = r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#;
    peer.send_bytes(format!("{ping}\n{read}").as_bytes());
    peer.answer("\"ping\"").result();
    peer.send(rest);
    assert_eq!(peer.answer("\"long\"").value(), refused_without_daemon());
    leave(peer);
    set_mode(&den, 0o700);
}

#[test]
fn the_last_call_of_a_client_that_closes_without_a_line_break_is_made_once() {
    let den = Den::new(&limited());
    let mut peer = orphan(&den);
    let call = r#"{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{"name":"dev__a__echo","arguments":{}}}"#;
    peer.send_bytes(call.as_bytes());
    peer.close();
    assert!(peer.wait().success(), "{}", peer.stderr());
    let mut told = Vec::new();
    while let Some(message) = peer.rest() {
        told.extend(Some(message).filter(|message| message.method().is_empty()));
    }
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].id(), "\"last\"");
    set_mode(&den, 0o700);
}

#[test]
fn a_file_that_is_no_longer_valid_leaves_a_session_with_the_file_as_it_was() {
    let den = Den::new(&limited());
    let mut peer = orphan(&den);
    set_mode(&den, 0o700);
    den.configure(&json!({"daemon": true, "toolboxes": {"dev": {}}}));
    assert!(!peer.call("dev__a__echo", "{}").is_error());
    let told = peer.stderr_with("no daemon: ");
    let reason = "workbench-config.json is no longer valid; the session goes on with the file as it was";
    assert!(told.contains(reason), "{told}");
    leave(peer);
    den.configure(&limited());
}

/// A daemon may die when it has told how the session stands, and before it has answered `initialize`.
#[test]
fn an_initialize_that_is_sent_again_does_not_count_twice() {
    let den = Den::new(&limited());
    leave(den.session());
    let socket = den.socket();
    den.run(&["stop"]);
    let squatter = UnixListener::bind(&socket).expect("it is free");
    let dies = std::thread::spawn(move || {
        let (mut stream, _) = squatter.accept().expect("a relay comes");
        stream.write_all(b"mcp-workbench-daemon 0123456789abcdef 1\n").expect("it reads");
        read_wish(&mut stream);
        stream.write_all(b"ok\n").expect("it reads");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).expect("it is sent");
        assert!(line.contains("initialize"), "{line}");
        let hello = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "t"}});
        let record = json!({"hello": hello.to_string()});
        stream.write_all(format!("\u{1}{record}\n").as_bytes()).expect("it reads");
        fs::remove_file(&socket).expect("it is ours");
    });
    let mut peer = den.spawn();
    let answer = peer.initialize(VERSION);
    assert_eq!(answer.result()["protocolVersion"], VERSION, "{answer:?}");
    dies.join().expect("no panic");
    assert_eq!(open(&mut peer, "dev")["tools_registered"], 2);
    leave(peer);
}

fn read_wish(stream: &mut UnixStream) {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("it is sent");
    let mut wish = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut wish).expect("it is sent");
}
