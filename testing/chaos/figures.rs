//! Figures of single faults: how fast, how much, how often.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::run::Options;
use crate::scene::{Gateway, Scene, signal};

/// Servers that are killed, each with so many calls in flight.
const VICTIMS: usize = 20;
const WAITING: usize = 20;
/// How long a server's end may disturb others.
const AFTERMATH: Duration = Duration::from_millis(150);
/// Bytes without a line break.
const FLOOD: u64 = 4 << 30;

/// Measures and prints. `true`: every figure is as it should be.
pub(crate) fn run(options: &Options) -> bool {
    let scene = Scene::new(options.programs());
    [crashes(&scene), flood(&scene), storm(&scene), spawns(&scene)].into_iter().all(|kept| kept)
}

/// Servers are killed with calls in flight, while another one is called all the time.
fn crashes(scene: &Scene) -> bool {
    let mut servers: Map<String, Value> =
        (0..VICTIMS).map(|n| (format!("v{n}"), scene.fake(&["--with", "never,report"]))).collect();
    servers.insert("other".to_owned(), scene.fake(&["--with", "echo"]));
    let mut client = Client::start(scene, servers);
    let (mut errors, mut calm, mut disturbed) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..VICTIMS {
        let report: Value =
            serde_json::from_str(&client.call(&format!("v{n}"), "report", json!({}))).expect("JSON");
        let waiting: Vec<u64> =
            (0..WAITING).map(|_| client.post(&format!("v{n}"), "never", json!({}))).collect();
        client.echo_for(AFTERMATH, &mut calm, &mut |_, _| ());
        let killed = Instant::now();
        signal(report["pid"].as_u64().expect("a number") as u32, libc::SIGKILL);
        client.echo_for(AFTERMATH, &mut disturbed, &mut |id, at| {
            if waiting.contains(&id) {
                errors.push(at - killed);
            }
        });
    }
    let (error, calm, disturbed) =
        (percentile(&mut errors), percentile(&mut calm), percentile(&mut disturbed));
    println!(
        "crash: {} of {} calls in flight failed, p99 {:.1} ms after the kill (10 ms wanted)",
        errors.len(),
        VICTIMS * WAITING,
        error.as_secs_f64() * 1e3,
    );
    println!(
        "other servers: p99 of a call {:.3} ms before and {:.3} ms after a crash ({:+.0} %, 10 % wanted)",
        calm.as_secs_f64() * 1e3,
        disturbed.as_secs_f64() * 1e3,
        (disturbed.as_secs_f64() / calm.as_secs_f64() - 1.0) * 100.0,
    );
    errors.len() == VICTIMS * WAITING && error < Duration::from_millis(10)
}

/// A line of 4 GiB.
fn flood(scene: &Scene) -> bool {
    let servers = [("a", "endless,echo"), ("other", "echo")]
        .map(|(name, tools)| (name.to_owned(), scene.fake(&["--with", tools])));
    let mut client = Client::start(scene, servers.into_iter().collect());
    for _ in 0..1000 {
        client.call("other", "echo", json!({}));
    }
    let (before, _) = client.gateway.footprint();
    let began = Instant::now();
    let flood = client.post("a", "endless", json!({"n": FLOOD}));
    let mut highest = before;
    let mut during = Vec::new();
    let mut answered = false;
    while !answered && began.elapsed() < Duration::from_secs(300) {
        client.echo_for(Duration::from_millis(100), &mut during, &mut |id, _| answered |= id == flood);
        highest = highest.max(client.gateway.footprint().0);
    }
    let took = began.elapsed();
    std::thread::sleep(Duration::from_secs(10));
    let (after, _) = client.gateway.footprint();
    let growth = (after as f64 / before as f64 - 1.0) * 100.0;
    println!(
        "flood: {} GiB without a line break in {:.1} s: memory {before} KiB before, {highest} KiB at most, {after} KiB 10 s later ({growth:+.1} %, 10 % wanted); p99 of a call elsewhere meanwhile {:.2} ms",
        FLOOD >> 30,
        took.as_secs_f64(),
        percentile(&mut during).as_secs_f64() * 1e3,
    );
    answered && growth <= 10.0
}

/// 10,000 `list_changed` in a burst.
fn storm(scene: &Scene) -> bool {
    let servers = [("a".to_owned(), scene.fake(&["--with", "change,requests,echo"]))];
    let mut client = Client::start(scene, servers.into_iter().collect());
    client.call(
        "a",
        "change",
        json!({"times": 10_000, "add": ["{\"name\":\"new\",\"inputSchema\":{\"type\":\"object\"}}"]}),
    );
    std::thread::sleep(Duration::from_secs(2));
    let requests = client.call("a", "requests", json!({"method": "tools/list"}));
    let requests: Value = serde_json::from_str(&requests).expect("JSON");
    let lists = requests.as_array().map_or(0, Vec::len) - 1;
    println!("storm: 10,000 list_changed made us read the list {lists} times (2 wanted)");
    lists <= 2
}

/// A server that dies at once, wanted all the time for a minute.
fn spawns(scene: &Scene) -> bool {
    let file = scene.directory.join("spawns");
    let flags = ["--exit", "1", "--count", file.to_str().expect("a path in UTF-8")];
    let servers =
        [("a".to_owned(), scene.fake(&flags)), ("other".to_owned(), scene.fake(&["--with", "echo"]))];
    let mut client = Client::start(scene, servers.into_iter().collect());
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(58) {
        client.request("tools/call", &json!({"name": "open_toolbox", "arguments": {"toolbox_name": "box"}}));
        std::thread::sleep(Duration::from_millis(20));
    }
    let spawns = std::fs::read_to_string(file).map_or(0, |text| text.lines().count());
    println!("spawns: a server that dies at once was started {spawns} times in a minute (8 wanted)");
    spawns <= 8
}

/// The value that 99 of 100 do not exceed.
fn percentile(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get((times.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
}

/// One client over stdio that notes when answers come.
struct Client {
    gateway: Gateway,
    stdout: BufReader<std::process::ChildStdout>,
    last: u64,
}

impl Client {
    /// Starts a gateway with these servers in its one toolbox, and opens it.
    fn start(scene: &Scene, servers: Map<String, Value>) -> Self {
        let config = json!({"toolMode": "proxy", "toolboxes": {"box": {"mcpServers": servers}}});
        let mut gateway = scene.gateway("figures", &config, &[]);
        let stdout = BufReader::new(gateway.child.stdout.take().expect("piped"));
        let mut client = Self { gateway, stdout, last: 0 };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "chaos", "version": "1"}});
        client.request("initialize", &hello);
        client.request("tools/call", &json!({"name": "open_toolbox", "arguments": {"toolbox_name": "box"}}));
        client
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        let stdin = self.gateway.child.stdin.as_mut().expect("piped");
        stdin.write_all(format!("{message}\n").as_bytes()).expect("the gateway reads");
        self.last
    }

    /// The next message and when it came.
    fn next(&mut self) -> (Value, Instant) {
        let mut line = String::new();
        assert!(self.stdout.read_line(&mut line).is_ok_and(|read| read > 0), "the gateway answers");
        let at = Instant::now();
        (serde_json::from_str(&line).expect("a message"), at)
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        loop {
            let (message, _) = self.next();
            if message["id"] == id {
                return message;
            }
        }
    }

    fn post(&mut self, server: &str, tool: &str, arguments: Value) -> u64 {
        self.send("tools/call", &json!({"name": format!("box__{server}__{tool}"), "arguments": arguments}))
    }

    /// The text of a tool's answer.
    fn call(&mut self, server: &str, tool: &str, arguments: Value) -> String {
        let id = self.post(server, tool, arguments);
        loop {
            let (message, _) = self.next();
            if message["id"] == id {
                return message["result"]["content"][0]["text"].as_str().expect("a text").to_owned();
            }
        }
    }

    /// Calls another server again and again and notes how long each call took; what else comes is handed on.
    fn echo_for(&mut self, time: Duration, times: &mut Vec<Duration>, other: &mut dyn FnMut(u64, Instant)) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let sent = Instant::now();
            let id = self.post("other", "echo", json!({}));
            loop {
                let (message, at) = self.next();
                match message["id"].as_u64() {
                    Some(answered) if answered == id => {
                        times.push(at - sent);
                        break;
                    }
                    Some(answered) => other(answered, at),
                    None => {}
                }
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.gateway.child.stdin.take());
        let _ = self.gateway.child.wait();
    }
}
