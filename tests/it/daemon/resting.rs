//! Servers of the daemon that run only while they are needed: by `"start": "call"` and by `idleTimeout`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Den, dev, leave_all, open, servers};
use crate::harness::{PROMPTS_CHANGED, Peer, RESOURCES_CHANGED, TOOLS_CHANGED, fake, server};

const FLAGS: &str = "--with report --resources 1 --templates 1 --prompts 1 --count @dir/a --delay 50";

/// All lists, with toolman's catalog. How the workbench introduces a toolbox depends on what was on disk when a session began.
fn lists(peer: &mut Peer) -> [Value; 4] {
    ["tools/list", "resources/list", "resources/templates/list", "prompts/list"].map(|method| {
        let mut list = peer.request(method, "{}").result();
        if list["tools"][0]["name"] == "open_toolbox" {
            list["tools"][0]["description"].take();
        }
        list
    })
}

/// How many `list_changed` have come since the last look.
fn changes(peer: &mut Peer) -> usize {
    [TOOLS_CHANGED, RESOURCES_CHANGED, PROMPTS_CHANGED].map(|method| peer.count(method)).iter().sum()
}

/// Waits until no server runs, nor anything that one has started.
fn wait_until_none_runs(den: &Den) {
    let end = Instant::now() + Duration::from_secs(5);
    while den.servers_of() > 0 {
        assert!(Instant::now() < end, "what it started ends with it: {:?}", den.lab.processes());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Makes a call of each at the same time, which must have started the server once.
fn call_together(den: &Den, peers: &mut [Peer], tool: &str) {
    let before = den.lab.starts("a");
    let calls: Vec<_> = peers.iter_mut().map(|peer| peer.post_call(tool, "{}")).collect();
    let answers = peers.iter_mut().zip(calls).map(|(peer, call)| peer.answer(&call).json()["pid"].clone());
    let mut pids: Vec<_> = answers.collect();
    pids.dedup();
    assert_eq!((pids.len(), den.lab.starts("a")), (1, before + 1), "one process for all");
}

/// Begins a session, with the toolbox open in the workbench face, and says what that was answered with.
type Begin = fn(&Den) -> (Peer, Value);

fn workbench(den: &Den) -> (Peer, Value) {
    let mut peer = den.session();
    let opened = open(&mut peer, "dev");
    (peer, opened)
}

fn toolman(den: &Den) -> (Peer, Value) {
    (den.toolman_session(), Value::Null)
}

#[test]
fn nothing_starts_before_the_first_call_and_two_sessions_start_it_once() {
    let mut config = dev(json!({"a": fake(FLAGS)}));
    config["start"] = json!("call");
    let file = "start = \"call\"\nstartup_wait = 600\n".to_owned() + &server("a", FLAGS, "");
    let faces: [(Den, Begin, &str); 2] =
        [(Den::new(&config), workbench, "dev__a__report"), (Den::toolman(&file), toolman, "a_report")];
    for (den, begin, tool) in faces {
        let (mut first, opened) = begin(&den);
        let shown = lists(&mut first);
        assert_eq!(den.lab.starts("a"), 1, "nothing was remembered");
        leave_all(vec![first]);
        for daemon in ["the same daemon", "the next daemon"] {
            den.until("its end", |now| servers(now) == 0);
            if daemon == "the next daemon" {
                den.run(&["stop"]);
            }
            let before = den.lab.starts("a");
            let mut peers: Vec<_> = (0..2)
                .map(|_| {
                    let (mut peer, now) = begin(&den);
                    assert_eq!((now, lists(&mut peer)), (opened.clone(), shown.clone()), "{daemon}");
                    changes(&mut peer);
                    peer
                })
                .collect();
            let server = den.status()["servers"][0].take();
            assert_eq!((&server["state"], &server["sessions"]), (&json!("stopped"), &json!(2)), "{daemon}");
            assert_eq!((den.servers_of(), den.lab.starts("a")), (0, before), "{daemon}");
            call_together(&den, &mut peers, tool);
            for peer in &mut peers {
                assert_eq!(lists(peer), shown, "{daemon}");
                assert_eq!(changes(peer), 0, "what it offers is what was shown");
            }
            leave_all(peers);
        }
    }
}

#[test]
fn an_idle_server_is_stopped_for_all_sessions_and_a_call_of_any_starts_it_again() {
    let flags = format!("{FLAGS} --stubborn 1");
    let mut config = dev(json!({"a": fake(&flags)}));
    config["idleTimeout"] = json!(0.3);
    let file = "idle_timeout = 0.3\n".to_owned() + &server("a", &flags, "");
    let faces: [(Den, Begin, &str); 2] =
        [(Den::new(&config), workbench, "dev__a__report"), (Den::toolman(&file), toolman, "a_report")];
    for (den, begin, tool) in faces {
        let mut peers: Vec<_> = (0..2).map(|_| begin(&den).0).collect();
        let shown: Vec<_> = peers.iter_mut().map(lists).collect();
        let stays_as_it_was = |peers: &mut Vec<Peer>| {
            let now: Vec<_> = peers.iter_mut().map(lists).collect();
            assert_eq!(now, shown);
            assert_eq!(peers.iter_mut().map(changes).sum::<usize>(), 0, "nobody is told");
        };
        for peer in &mut peers {
            changes(peer);
        }
        for asks in [0, 1] {
            let status = den.until("its rest", |now| now["servers"][0]["state"] == "stopped");
            assert_eq!(status["servers"][0]["sessions"], 2, "{status:#}");
            wait_until_none_runs(&den);
            stays_as_it_was(&mut peers);
            let before = den.lab.starts("a");
            assert!(peers[asks].call(tool, "{}").json()["pid"].is_u64());
            assert_eq!(den.lab.starts("a"), before + 1);
            stays_as_it_was(&mut peers);
        }
        den.until("its rest", |now| now["servers"][0]["state"] == "stopped");
        // Whoever opens it now sees what it offers, and does not start it.
        let before = den.lab.starts("a");
        let (mut third, opened) = begin(&den);
        assert_eq!((lists(&mut third), den.lab.starts("a")), (shown[0].clone(), before), "{opened}");
        leave_all(vec![third]);
        call_together(&den, &mut peers, tool);
        leave_all(peers);
    }
}
