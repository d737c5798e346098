//! How sessions, servers and the daemon end.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Den, dev, leave, leave_all, open, pid_of, servers, sessions, wait_until_dead};
use crate::harness::{VERSION, fake, signal};

#[test]
fn servers_end_when_nobody_has_them_open_and_not_before() {
    const LINGER: Duration = Duration::from_secs(2);
    let mut config = dev(json!({"a": fake("--with report")}));
    config["linger"] = json!(LINGER.as_secs());
    let mut own = fake("--tools 1");
    own["isolation"] = json!("session");
    config["toolboxes"]["own"] = json!({"mcpServers": {"s": own}});
    let den = Den::new(&config);
    let (mut one, mut other) = (den.session(), den.session());
    open(&mut one, "dev");
    open(&mut one, "own");
    open(&mut other, "dev");
    let pid = pid_of(&mut one, "a");
    leave(one);
    let status = den.until("its own server to be gone", |now| servers(now) == 1);
    assert_eq!(status["servers"][0]["state"], "running");
    assert_eq!(pid_of(&mut other, "a"), pid, "somebody has it open");
    leave(other);
    let left = Instant::now();
    // Whoever comes before its time is over finds it running.
    let mut third = den.session();
    open(&mut third, "dev");
    while left.elapsed() < LINGER / 2 {
        assert_eq!(pid_of(&mut third, "a"), pid);
    }
    // Then its time begins anew.
    let left = Instant::now();
    leave(third);
    den.until("its end", |now| servers(now) == 0);
    assert!(left.elapsed() >= LINGER, "not before its time: {:?}", left.elapsed());
    assert_eq!(den.servers_of(), 0);
}

/// How long a call that does not finish may go on after the end of its session: the second that it has, and what a busy machine
/// adds to it.
const GRACE: Range<Duration> = Duration::from_secs(1)..Duration::from_secs(4);

#[test]
fn calls_of_a_session_that_ends_have_a_second_and_are_then_cancelled() {
    let mut config = dev(json!({"a": fake("--with slow,cancelled,echo,started,release")}));
    config["linger"] = json!(60);
    let mut own = fake("--tools 1");
    own["isolation"] = json!("session");
    config["toolboxes"]["own"] = json!({"mcpServers": {"s": own}});
    let den = Den::new(&config);
    let mut watcher = den.session();
    open(&mut watcher, "dev");
    for how in ["close", "kill"] {
        let mut peer = den.session();
        open(&mut peer, "dev");
        open(&mut peer, "own");
        let quick = peer.post_call("dev__a__slow", r#"{"ms":100}"#);
        peer.post_call("dev__a__slow", format!(r#"{{"key":"{how}"}}"#));
        watcher.call("dev__a__started", format!(r#"{{"key":"{how}"}}"#)).text();
        let left = Instant::now();
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
        assert!(GRACE.contains(&left.elapsed()), "{how}: {:?}", left.elapsed());
        den.until("one session, and none of the other's servers", |now| {
            (sessions(now), servers(now)) == (1, 1)
        });
    }
    leave(watcher);
}

/// A client that is killed closes both of its ends, with calls in flight and answers that nobody reads.
#[test]
fn the_session_of_a_client_that_is_gone_ends_and_its_calls_are_cancelled() {
    let den = Den::new(&dev(json!({"a": fake("--with never,large,cancelled")})));
    let mut stays = den.session();
    open(&mut stays, "dev");
    let mut relay = den.command();
    let mut relay = relay.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it is built");
    let mut stdin = relay.stdin.take().expect("piped");
    let mut lines = BufReader::new(relay.stdout.take().expect("piped")).lines();
    let hello =
        json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let mut say = |id: u32, method: &str, params: &Value| {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(stdin, "{request}").expect("it is read");
    };
    say(1, "initialize", &hello);
    say(2, "tools/call", &json!({"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}));
    while !lines.next().expect("it answers").expect("text").contains("\"id\":2,") {}
    say(3, "tools/call", &json!({"name": "dev__a__never", "arguments": {}}));
    say(4, "tools/call", &json!({"name": "dev__a__large", "arguments": {"bytes": 3_000_000}}));
    den.until("its calls", |now| now["servers"][0]["calls"] == 2);
    drop((stdin, lines));
    den.until("its end", |now| sessions(now) == 1);
    relay.wait().expect("it ends by itself");
    stays.call("dev__a__cancelled", r#"{"count":1}"#).text();
    leave(stays);
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
        (Some(0), "The daemon and its servers have ended.\n")
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
fn a_relay_ends_as_the_gateway_does() {
    let den = Den::new(&dev(json!({"a": fake("--with slow,echo,started")})));
    for name in ["TERM", "INT"] {
        let mut peer = den.session();
        open(&mut peer, "dev");
        let quick = peer.post_call("dev__a__slow", r#"{"ms":500}"#);
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

/// Clients that say hello when the daemon has begun to end, before their relays know of it.
#[test]
fn a_handshake_that_meets_the_end_of_the_daemon_is_answered() {
    let den = Den::new(&dev(json!({"a": fake("--with echo")})));
    let hello =
        json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    for _ in 0..3 {
        let mut peers: Vec<_> = (0..16).map(|_| den.spawn()).collect();
        den.until("all sessions", |now| sessions(now) == peers.len());
        let pid = den.daemon_pid();
        signal(pid, "STOP");
        let hellos: Vec<_> = peers.iter_mut().map(|peer| peer.post("initialize", &hello)).collect();
        signal(pid, "TERM");
        signal(pid, "CONT");
        for (peer, hello) in peers.iter_mut().zip(hellos) {
            assert_eq!(peer.answer(&hello).result()["protocolVersion"], VERSION);
        }
        wait_until_dead(pid);
        for peer in &mut peers {
            assert_eq!(open(peer, "dev")["tools_registered"], 1);
        }
        leave_all(peers);
    }
}

/// At once is within 2 seconds, or 5 if a process resists.
#[test]
fn what_ends_at_once_takes_two_seconds_or_five_if_it_resists() {
    let resists = "--tools 1 --ignore-term --ignore-eof --stubborn 1";
    for (flags, most) in [("--tools 1", 2), (resists, 5)] {
        for what in ["a server of its session's own", "a server without linger", "the daemon"] {
            let mut config = dev(json!({"a": fake(flags)}));
            match what {
                "a server of its session's own" => {
                    config["linger"] = json!(60);
                    config["toolboxes"]["dev"]["mcpServers"]["a"]["isolation"] = json!("session");
                }
                "a server without linger" => {}
                _ => (config["linger"], config["daemonLinger"]) = (json!(60), json!(0)),
            }
            let den = Den::new(&config);
            let mut peer = den.session();
            open(&mut peer, "dev");
            let stays = (what != "the daemon").then(|| den.session());
            let left = Instant::now();
            leave(peer);
            let is_gone = || match &stays {
                Some(_) => den.servers_of() == 0,
                None => den.lab.processes().is_empty(),
            };
            while !is_gone() {
                let late = left.elapsed() >= Duration::from_secs(most);
                assert!(!late, "{what}, {flags}: {:?}", den.lab.processes());
                std::thread::sleep(Duration::from_millis(5));
            }
            if let Some(stays) = stays {
                leave(stays);
            }
        }
    }
}

#[test]
fn the_file_of_the_last_session_says_when_the_daemon_ends() {
    let den = Den::new(&dev(json!({})));
    let mut hasty = dev(json!({}));
    hasty["daemonLinger"] = json!(0);
    let hasty = den.lab.write("hasty.json", &hasty.to_string());
    let session = || {
        den.session_with(|command| {
            command.arg("--config").arg(&hasty);
        })
    };
    let (patient, first) = (den.session(), session());
    let pid = den.daemon_pid();
    leave(first);
    den.until("one session", |now| sessions(now) == 1);
    leave(patient);
    den.until("no session", |now| sessions(now) == 0);
    assert_eq!(den.daemon_pid(), pid);
    leave(session());
    wait_until_dead(pid);
}

#[test]
fn an_orderly_end_lets_calls_finish_and_is_no_death() {
    let den = Den::new(&dev(json!({"a": fake("--with slow,started,report")})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    for round in 0..4 {
        let quick = peer.post_call("dev__a__slow", r#"{"ms":200}"#);
        let slow = peer.post_call("dev__a__slow", r#"{"key":"k"}"#);
        peer.call("dev__a__started", r#"{"key":"k"}"#).text();
        let asked = Instant::now();
        if round % 2 == 0 {
            assert_eq!(den.run(&["stop"]).code, Some(0));
        } else {
            let pid = den.daemon_pid();
            signal(pid, "TERM");
            wait_until_dead(pid);
        }
        assert_eq!(peer.answer(&quick).text(), "slow", "round {round}");
        assert!(peer.answer(&slow).failure().contains("shutting down"), "round {round}");
        assert!(GRACE.contains(&asked.elapsed()), "round {round}: {:?}", asked.elapsed());
        assert!(pid_of(&mut peer, "a") > 0, "it goes on by itself");
        assert_eq!(sessions(&den.status()), 1, "in a daemon, round {round}");
    }
    assert_eq!(peer.stderr(), "");
    leave(peer);
}
