//! Ending: nothing survives, nothing hangs, nothing is cut that could have finished.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, Lab, VERSION, dev, fake, server, signal};

/// What the contract promises.
const PROMISE: Duration = Duration::from_secs(5);

const STUBBORN: &str = "--with echo,slow,started,never,spawn --ignore-term --ignore-eof --stubborn 2";

fn stubborn() -> Gateway {
    let servers: serde_json::Map<String, Value> = (0..4).map(|n| (format!("s{n}"), fake(STUBBORN))).collect();
    let mut gateway = Gateway::start(dev("proxy", servers.into()));
    assert_eq!(gateway.open("dev")["servers_connected"], 4);
    let descendants = gateway.lab.processes();
    let descendants = descendants.iter().filter(|(_, line)| line.contains("--stubborn-descendant")).count();
    assert_eq!(descendants, 16);
    gateway
}

#[test]
fn the_end_of_stdin_and_signals_end_everything_within_five_seconds() {
    for end in ["EOF", "TERM", "INT"] {
        let mut gateway = stubborn();
        let began = Instant::now();
        match end {
            "EOF" => gateway.close(),
            signal => gateway.signal(signal),
        }
        let status = gateway.wait();
        assert!(began.elapsed() < PROMISE, "{end}: {:?}", began.elapsed());
        assert_eq!(status.code(), Some(0), "{end}");
        let left = gateway.lab.processes();
        assert!(left.is_empty(), "{end}: {left:#?}");
    }
}

#[test]
fn after_kill_9_of_the_gateway_nothing_of_its_upstreams_is_left() {
    let mut gateway = stubborn();
    gateway.ends_by_hand();
    gateway.signal("KILL");
    gateway.wait();
    gateway.lab.wait_until_gone(PROMISE);
}

#[test]
fn kill_9_while_upstreams_start_leaves_nothing_either() {
    let mut gateway = Gateway::start(dev(
        "proxy",
        json!({"a": fake("--count @dir/a --ignore-term --ignore-eof --wait-for @dir/never")}),
    ));
    gateway.ends_by_hand();
    gateway.post_call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    gateway.until("it starts", |gateway| gateway.lab.starts("a") >= 1);
    gateway.signal("KILL");
    gateway.wait();
    gateway.lab.wait_until_gone(PROMISE);
}

#[test]
fn calls_that_came_before_the_end_of_stdin_are_answered() {
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake("--with echo,slow")})));
    gateway.open("dev");
    let slow = gateway.post_use_tool("a", "slow", json!({"ms": 200}));
    let quick: Vec<String> = (0..50).map(|_| gateway.post_use_tool("a", "echo", "{}")).collect();
    gateway.close();
    for id in quick {
        gateway.answer(&id).text();
    }
    assert_eq!(gateway.answer(&slow).text(), "slow", "what can finish within a second is not cut");
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn a_last_line_without_a_line_break_counts() {
    let mut gateway = Gateway::start(dev("proxy", json!({})));
    gateway.send_bytes(br#"{"jsonrpc":"2.0","id":"last","method":"ping"}"#);
    gateway.close();
    assert_eq!(gateway.answer(r#""last""#).at(&["result"]), "{}");
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn calls_that_do_not_finish_are_answered_with_an_error() {
    for end in ["EOF", "TERM"] {
        let mut gateway = stubborn();
        let ids: Vec<String> =
            (0..3).map(|n| gateway.post_use_tool(&format!("s{n}"), "never", "{}")).collect();
        gateway.fence();
        let began = Instant::now();
        match end {
            "EOF" => gateway.close(),
            signal => gateway.signal(signal),
        }
        for (n, id) in ids.iter().enumerate() {
            let text = gateway.answer(id).failure();
            assert_eq!(text, format!("[dev/s{n}/never] the gateway is shutting down"), "{end}");
        }
        assert_eq!(gateway.wait().code(), Some(0), "{end}");
        assert!(began.elapsed() < PROMISE, "{end}: {:?}", began.elapsed());
    }
}

#[test]
fn toolman_answers_what_it_cuts_off_in_its_own_shape() {
    let config = "active_toolsets = [\"*\"]\n".to_owned() + &server("a", "--with never", "");
    let mut gateway = Gateway::toolman(config);
    assert_eq!(gateway.tools(), ["toolman_activate", "a_never"]);
    let id = gateway.post_call("a_never", "{}");
    gateway.fence();
    gateway.close();
    let answer = gateway.answer(&id).value();
    let expected =
        json!({"success": false, "result": null, "error": "a_never: the gateway is shutting down"});
    assert_eq!(answer["result"]["structuredContent"], expected, "{answer}");
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn an_open_in_flight_at_the_end_is_answered_and_leaves_nothing() {
    let entry = fake("--with echo --count @dir/a --ignore-term --ignore-eof --stubborn 1 --hang initialize");
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
    let id = gateway.post_call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    gateway.until("it starts", |gateway| gateway.lab.starts("a") >= 1);
    let began = Instant::now();
    gateway.close();
    let answer = gateway.answer(&id).value();
    assert!(answer["error"].is_object() || answer["result"]["isError"] == true, "{answer}");
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(began.elapsed() < PROMISE, "{:?}", began.elapsed());
}

#[test]
fn what_comes_while_ending_is_answered_with_an_error_at_once() {
    let mut gateway = stubborn();
    let waiting = gateway.post_use_tool("s0", "never", "{}");
    gateway.fence();
    gateway.signal("TERM");
    // The signal and the requests race until the first request comes too late.
    let refused = (0..10_000).any(|_| {
        let id = gateway.post("tools/list", "{}");
        gateway.answer(&id).value()["error"]["message"] == "tools/list: the gateway is shutting down"
    });
    assert!(refused);
    let late = gateway.post_use_tool("s1", "echo", "{}");
    assert_eq!(gateway.answer(&late).failure(), "[dev/s1/echo] the gateway is shutting down");
    let late = gateway.post_call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    assert_eq!(gateway.answer(&late).failure(), "[dev] the gateway is shutting down");
    gateway.answer(&waiting);
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn an_idle_gateway_ends_at_once_even_before_initialize() {
    for initialized in [true, false] {
        let mut gateway = Gateway::spawn(dev("proxy", json!({"a": fake("")})));
        if initialized {
            gateway.initialize(VERSION);
        }
        gateway.close();
        assert_eq!(gateway.wait().code(), Some(0));
    }
}

#[test]
fn descendants_spawned_later_are_ended_too() {
    let mut gateway = stubborn();
    gateway.use_tool("s1", "spawn", json!({"n": 3})).text();
    gateway.close();
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(gateway.lab.processes().is_empty());
}

#[test]
fn a_client_that_stops_reading_does_not_keep_us_alive() {
    let lab = Lab::new();
    let config = dev("proxy", json!({"a": fake("--with large")})).to_string();
    let mut command = lab.command();
    command.arg("--config").arg(lab.write("workbench-config.json", &lab.fill(&config)));
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = pipes.spawn().expect("the gateway starts");
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    for (id, method, params) in [
        (1, "initialize", json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {}})),
        (2, "tools/call", json!({"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}})),
        (3, "tools/call", json!({"name": "dev__a__large", "arguments": {"bytes": 4_000_000}})),
    ] {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(stdin, "{request}").expect("stdin is open");
        if id < 3 {
            stdout.read_line(&mut String::new()).expect("an answer");
        }
    }
    stdout.read_exact(&mut [0; 10]).expect("the beginning of the large answer");
    signal(child.id(), "TERM");
    let began = Instant::now();
    lab.wait_until_gone(PROMISE);
    assert_eq!(child.wait().expect("it has ended").code(), Some(0), "{:?}", began.elapsed());
}

#[test]
fn what_waits_for_the_servers_of_toolman_is_answered_with_the_end_and_not_with_empty_lists() {
    let config = "startup_wait = 600\n".to_owned() + &server("a", "--with echo --wait-for @dir/never", "");
    let mut gateway = Gateway::toolman(config);
    let list = gateway.post("tools/list", "{}");
    let call = gateway.post_call("a_echo", "{}");
    let read = gateway.post("resources/read", json!({"uri": "a_x://y"}));
    gateway.fence();
    gateway.close();
    for (id, expected) in [(list, "tools/list"), (read, "a_x://y")] {
        let message = gateway.answer(&id).value()["error"]["message"].clone();
        assert_eq!(message, format!("{expected}: the gateway is shutting down"));
    }
    let text = gateway.answer(&call).failure();
    assert!(text.contains("a_echo: the gateway is shutting down"), "{text}");
}
