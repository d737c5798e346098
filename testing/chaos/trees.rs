//! What becomes of process trees that do not want to die.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::run::Options;
use crate::scene::{Gateway, Scene, signal};

/// Servers behind the gateway; each has a child that has one, and none of them listens to signals.
const TREES: usize = 20;
/// By then nothing is left of a gateway that was killed.
const GONE_AT: Duration = Duration::from_millis(250);
/// Calls in flight at a shutdown.
const CALLS: usize = 100;
/// What a shutdown may take.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// Kills gateways and shuts one down. `true`: nobody survived, everybody was answered.
pub(crate) fn run(options: &Options) -> bool {
    let scene = Scene::new(options.programs());
    let gone_at = GONE_AT * options.patience;
    let mut times = Vec::new();
    let mut survivors = 0;
    for _ in 0..options.rounds {
        let (mut gateway, _) = opened(&scene);
        signal(gateway.child.id(), libc::SIGKILL);
        let killed = Instant::now();
        let _ = gateway.child.wait();
        let gone = scene.until_gone(killed, gone_at);
        match gone {
            Ok(time) => times.push(time),
            Err(left) => survivors += left.len(),
        }
        if let Err(left) = scene.until_gone(Instant::now(), Duration::from_secs(10)) {
            eprintln!("chaos: {} processes were left for good", left.len());
            left.into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
        }
    }
    times.sort();
    let longest = times.last().copied().unwrap_or_default();
    println!(
        "kill -9: {} rounds with {TREES} stubborn trees of 3 processes: {survivors} survivors at {} ms; gone after {} ms at the median, {} ms at most",
        options.rounds,
        gone_at.as_millis(),
        times.get(times.len() / 2).map_or(0, Duration::as_millis),
        longest.as_millis(),
    );
    let (answered, took, left) = shut_down(&scene);
    println!(
        "shutdown with {CALLS} calls in flight and {TREES} stubborn trees: {answered} answered, {} ms, {left} processes left",
        took.as_millis(),
    );
    survivors == 0 && answered == CALLS && took < SHUTDOWN * options.patience && left == 0
}

/// A gateway whose stubborn servers all run, and the reading end of its stdout.
fn opened(scene: &Scene) -> (Gateway, BufReader<std::process::ChildStdout>) {
    let flags = ["--with", "never,echo", "--stubborn", "1", "--ignore-term", "--ignore-eof"];
    let servers: Map<String, Value> = (0..TREES).map(|n| (format!("s{n}"), scene.fake(&flags))).collect();
    let config = json!({"toolMode": "proxy", "toolboxes": {"box": {"mcpServers": servers}}});
    let mut gateway = scene.gateway("trees", &config, &[]);
    let mut stdout = BufReader::new(gateway.child.stdout.take().expect("piped"));
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "chaos", "version": "1"}});
    let open = json!({"name": "open_toolbox", "arguments": {"toolbox_name": "box"}});
    for (id, method, params) in [(1, "initialize", hello), (2, "tools/call", open)] {
        send(&mut gateway, id, method, &params);
        let answer = line(&mut stdout);
        assert!(id == 1 || answer.contains(&format!("\"servers_connected\":{TREES}")), "{answer:.500}");
    }
    (gateway, stdout)
}

/// Ends a gateway by SIGTERM: how many calls were answered, how long it took, how many processes are left.
fn shut_down(scene: &Scene) -> (usize, Duration, usize) {
    let (mut gateway, mut stdout) = opened(scene);
    for n in 0..CALLS {
        let name = format!("box__s{}__never", n % TREES);
        send(&mut gateway, 100 + n, "tools/call", &json!({"name": name, "arguments": {}}));
    }
    send(&mut gateway, 3, "ping", &json!({}));
    line(&mut stdout);
    let began = Instant::now();
    signal(gateway.child.id(), libc::SIGTERM);
    let mut ids = std::collections::HashSet::new();
    let mut text = String::new();
    while stdout.read_line(&mut text).is_ok_and(|read| read > 0) {
        let answer: Value = serde_json::from_str(&text).expect("a message");
        ids.extend(answer["id"].as_u64());
        text.clear();
    }
    let ended = gateway.child.wait().is_ok_and(|status| status.success());
    let took = began.elapsed();
    let left = scene.processes().len();
    (if ended { ids.len() } else { 0 }, took, left)
}

fn send(gateway: &mut Gateway, id: usize, method: &str, params: &Value) {
    let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let stdin = gateway.child.stdin.as_mut().expect("piped");
    stdin.write_all(format!("{message}\n").as_bytes()).expect("the gateway reads");
}

fn line(stdout: &mut impl BufRead) -> String {
    let mut line = String::new();
    assert!(stdout.read_line(&mut line).is_ok_and(|read| read > 0), "the gateway answers");
    line
}
