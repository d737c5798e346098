//! The daemon: what a session over it costs beside one without it, what sharing saves, and whether it keeps its word
//! when many come at once or it is killed.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Effort;
use crate::client::{Call, Client, Shape};
use crate::contest::Caller;
use crate::scene::{self, File, Size, Way};
use crate::system;
use crate::table::{self, Target, median, micros, millis};

const ONE: Size = Size(1, 1, 1);
/// By then every process has given back what it needed to start, and what a relay used for calls.
const GIVEN_BACK: Duration = Duration::from_secs(3);

/// All figures of the daemon.
pub(crate) fn measure(effort: Effort) {
    let full = effort.rounds > 3;
    starters(if full { 100 } else { 5 });
    first_answer(effort);
    relays();
    calls(effort);
    sharing();
    ids(if full { 100_000 } else { 10_000 });
    idle(if full { 1_000 } else { 100 });
    death();
}

/// A user of whose daemon nobody else knows. Dropping it ends the daemon.
struct Den {
    directory: PathBuf,
    file: File,
}

impl Den {
    fn new(size: Size) -> Self {
        Self::of(File::new(size))
    }

    fn of(file: File) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("workbench-den-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a temporary directory");
        Self { directory, file: file.with("daemon", json!(true)) }
    }

    /// The gateway, as a session of this user.
    fn command(&self) -> Command {
        self.at_home(scene::gateway(&self.file, "dynamic"))
    }

    fn at_home(&self, mut command: Command) -> Command {
        command.env("HOME", &self.directory).env("XDG_RUNTIME_DIR", &self.directory);
        command.env("TMPDIR", &self.directory).env("XDG_STATE_HOME", self.directory.join("state"));
        command
    }

    fn session(&self) -> Client {
        let mut client = Client::start(self.command());
        client.initialize();
        client
    }

    /// A session with every toolbox open.
    fn open(&self, size: Size) -> Client {
        let mut client = self.session();
        for toolbox in 0..size.0 {
            client.request("tools/call", &scene::open(toolbox));
        }
        client.settle();
        client
    }

    fn run(&self, verb: &[&str]) -> String {
        let mut command = self.at_home(scene::program(Path::new(env!("CARGO_BIN_EXE_mcp-workbench"))));
        let output = command.args(verb).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.run(&["status", "--json"])).expect("one JSON value")
    }

    fn pid(&self) -> u32 {
        self.status()["daemon"]["pid"].as_u64().expect("a daemon runs") as u32
    }
}

impl Drop for Den {
    fn drop(&mut self) {
        self.run(&["stop"]);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Many processes that start at once.
fn starters(rounds: usize) {
    const MANY: usize = 50;
    let (mut not_one, mut failed, mut slowest) = (0, 0, Duration::ZERO);
    for _ in 0..rounds {
        let den = Den::of(File::new(ONE).with("daemonLinger", json!(0)));
        let began = Instant::now();
        let mut clients: Vec<_> = (0..MANY).map(|_| Client::start(den.command())).collect();
        clients.iter_mut().for_each(Client::initialize);
        slowest = slowest.max(began.elapsed());
        let status = den.status();
        let served = status["sessions"].as_array().map_or(0, Vec::len);
        failed += MANY - served;
        not_one += usize::from(system::daemons_in(&den.directory) != 1);
    }
    let rows = [vec![
        rounds.to_string(),
        not_one.to_string(),
        failed.to_string(),
        format!("{:.0}", millis(slowest)),
    ]];
    let head = ["rounds", "with more or less than one daemon", "sessions without it", "slowest round ms"];
    table::print(&format!("{MANY} processes that start at once"), "", &head, &rows);
    table::targets(
        "starting together",
        [Target::at_most(
            format!("{MANY} at once, {rounds} times: one daemon, none fails"),
            (not_one + failed) as f64,
            0.0,
            " exceptions",
        )],
    );
}

/// The time to the answer to `initialize`, over a daemon that runs.
fn first_answer(effort: Effort) {
    let den = Den::new(Size(10, 5, 20));
    let _keeps_it_running = den.session();
    let round = |_| {
        let mut version = den.at_home(scene::program(Path::new(env!("CARGO_BIN_EXE_mcp-workbench"))));
        let began = Instant::now();
        assert!(version.arg("--version").output().expect("it runs").status.success());
        let version = began.elapsed();
        let command = den.command();
        let began = Instant::now();
        let mut client = Client::start(command);
        client.initialize();
        (millis(version), millis(began.elapsed()))
    };
    // Rounds are short, and many of them let chance even out.
    let rounds: Vec<_> = (0..effort.rounds * 20).map(round).collect();
    let of = |of: fn(&(f64, f64)) -> f64| median(rounds.iter().map(of));
    let ratio = of(|(version, first)| first / version);
    let rows = [vec![
        format!("{:.2}", of(|round| round.0)),
        format!("{:.2}", of(|round| round.1)),
        format!("{ratio:.2}"),
    ]];
    let note = "With a file of 10 toolboxes × 5 servers.";
    table::print("First answer over a daemon", note, &["`--version` ms", "`initialize` ms", "ratio"], &rows);
    table::targets("daemon", [Target::at_most("`initialize` ≤ 2× `--version`", ratio, 2.0, "×")]);
}

/// What relays take.
fn relays() {
    const MANY: usize = 100;
    let den = Den::new(ONE);
    let mut clients: Vec<_> = (0..MANY).map(|_| den.open(ONE)).collect();
    let call = Call::new(scene::call(Way::Registered, ONE), Shape::Echo(100));
    clients.iter_mut().for_each(|client| drop(client.calls(&call, 100, 10)));
    std::thread::sleep(GIVEN_BACK);
    let each: Vec<_> = clients.iter().map(|client| system::memory(client.pid())).collect();
    let anonymous = each.iter().map(|memory| memory.anonymous).fold(0.0, f64::max) * 1024.0 / 1e6;
    let pss = each.iter().map(|memory| memory.pss).sum::<f64>() * 1024.0 / 1e6;
    let rows = [vec![format!("{anonymous:.2}"), format!("{pss:.1}")]];
    table::print("Relays", "", &["anonymous memory of the largest MB", "PSS of 100 MB"], &rows);
    table::targets(
        "relays",
        [
            Target::at_most("anonymous memory ≤ 1 MB", anonymous, 1.0, " MB"),
            Target::at_most("PSS of 100 ≤ 40 MB", pss, 40.0, " MB"),
        ],
    );
}

/// Of each contestant the median latency in microseconds, and the calls a second.
type Round = [(f64, f64); 3];

/// The same call without a daemon, without one behind a byte relay, and over one.
fn calls(effort: Effort) {
    let den = Den::new(ONE);
    let alone = File::new(ONE);
    let opened = |command: Command| {
        let mut client = Client::start(command);
        client.initialize();
        client.request("tools/call", &scene::open(0));
        client
    };
    let mut gateway = scene::gateway(&alone, "dynamic");
    system::own_session(&mut gateway);
    let relay = scene::role(&["before", alone.0.to_str().expect("a plain path")]);
    let mut clients = [opened(gateway), opened(relay), den.open(ONE)];
    let call = Call::new(scene::call(Way::Registered, ONE), Shape::Echo(100));
    for client in &mut clients {
        client.settle();
        client.check(&call, Shape::Echo(100));
        client.calls(&call, 500, 64);
    }
    let rounds: Vec<Round> = (0..effort.rounds * 6)
        .map(|_| {
            clients.each_mut().map(|client| {
                let count = (effort.slice.as_micros() / 40).max(200) as usize;
                let (_, latencies) = client.calls(&call, count, 1);
                let (elapsed, _) = client.calls(&call, 8 * count, 64);
                (median(latencies.into_iter().map(micros)), 8.0 * count as f64 / elapsed.as_secs_f64())
            })
        })
        .collect();
    let of = |of: &dyn Fn(&Round) -> f64| median(rounds.iter().map(of));
    let rows: Vec<_> = ["without a daemon", "the same behind a byte relay", "over the daemon"]
        .into_iter()
        .enumerate()
        .map(|(at, name)| {
            vec![
                name.to_owned(),
                format!("{:.1}", of(&|round| round[at].0)),
                format!("{:.1}", of(&|round| round[at].0 - round[0].0)),
                format!("{:.0}", of(&|round| round[at].1)),
            ]
        })
        .collect();
    table::print("Calls over a daemon", "", &["", "p50 µs", "added p50 µs", "calls/s, 64 in flight"], &rows);
    table::targets(
        "calls over a daemon",
        [
            Target::at_most(
                "added p50 ≤ 2× a byte relay's",
                of(&|round| (round[2].0 - round[0].0) / (round[1].0 - round[0].0)),
                2.0,
                "×",
            ),
            Target::at_least(
                "throughput, 64 in flight ≥ 0.8×",
                of(&|round| round[2].1 / round[0].1),
                0.8,
                "×",
            ),
        ],
    );
}

/// What twenty sessions with ten servers take, with and without a daemon.
fn sharing() {
    const SESSIONS: usize = 20;
    const TEN: Size = Size(1, 10, 20);
    /// What this executable takes as a server says nothing: it is smaller than any real one.
    const HELD: usize = 1024;
    let without = {
        let file = File::holding(HELD, TEN);
        let clients: Vec<_> = (0..SESSIONS).map(|_| scene::open_gateway(&file, "dynamic", TEN)).collect();
        std::thread::sleep(GIVEN_BACK);
        clients.iter().map(|client| system::memory_of_tree(client.pid())).sum::<f64>()
    };
    let den = Den::of(File::holding(HELD, TEN));
    let clients: Vec<_> = (0..SESSIONS).map(|_| den.open(TEN)).collect();
    std::thread::sleep(GIVEN_BACK);
    let relays: f64 = clients.iter().map(|client| system::memory(client.pid()).pss).sum();
    let status = den.status();
    let servers = status["servers"].as_array().expect("a list");
    // What does not run is no tree and takes no memory, so it would make the figures better than they are.
    let runs = |server: &Value| server["state"] == "running" && server["sessions"] == SESSIONS;
    assert!(servers.iter().all(runs), "all servers run for all sessions: {status:#}");
    let trees = servers.iter().filter_map(|server| server["pid"].as_u64()).collect::<HashSet<_>>().len();
    let with = relays + system::memory_of_tree(den.pid());
    let ratio = with / without;
    let mb = |kilobytes: f64| format!("{:.1}", kilobytes * 1024.0 / 1e6);
    let rows = [vec![trees.to_string(), mb(without), mb(with), format!("{ratio:.3}")]];
    let head = ["trees with it", "without it MB (PSS)", "with it MB (PSS)", "ratio"];
    let note = "Each server holds 1 MB. Real ones take much more, which makes the ratio smaller.";
    table::print("20 sessions × 10 servers", note, &head, &rows);
    table::targets(
        "20 sessions × 10 servers",
        [
            Target::exactly("10 trees", trees, 10),
            Target::at_most("memory ≤ 15 % of that without the daemon", 100.0 * ratio, 15.0, " %"),
        ],
    );
}

/// Sessions that all use the same ids.
fn ids(calls: usize) {
    const SESSIONS: usize = 64;
    let den = Den::new(ONE);
    let mut clients: Vec<_> = (0..SESSIONS).map(|_| den.open(ONE)).collect();
    let (head, tail) = scene::call(Way::Registered, ONE);
    let mut misrouted = 0;
    let rounds = calls.div_ceil(2 * SESSIONS);
    for round in 0..rounds {
        for (number, client) in clients.iter_mut().enumerate() {
            for id in ["1", "\"1\""] {
                let kind = id.len();
                client.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{head}{{\"text\":\"{number}/{kind}/{round}\"}}{tail}}}\n").as_bytes());
            }
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let lines = [client.line(), client.line()];
            for id in ["1", "\"1\""] {
                let kind = id.len();
                let own = |line: &String| {
                    line.contains(&format!("\"id\":{id},"))
                        && line.contains(&format!("\"{number}/{kind}/{round}\""))
                };
                misrouted += usize::from(lines.iter().filter(|line| own(line)).count() != 1);
            }
        }
    }
    let rows = [vec![SESSIONS.to_string(), (rounds * 2 * SESSIONS).to_string(), misrouted.to_string()]];
    table::print("The ids 1 and \"1\" everywhere", "", &["sessions", "calls", "misrouted"], &rows);
    table::targets("same ids", [Target::at_most("0 misrouted", misrouted as f64, 0.0, "")]);
}

/// Servers that are stopped for being idle just when they are called.
fn idle(stops: usize) {
    const FOUR: Size = Size(1, 4, 1);
    let count = std::env::temp_dir().join(format!("workbench-starts-{}", std::process::id()));
    let den = Den::of(File::counted(&count, FOUR).with("idleTimeout", json!(0.01)));
    let mut client = den.open(FOUR);
    let starts = || fs::read_to_string(&count).map_or(0, |text| text.lines().count());
    let (mut calls, mut pause) = (0, 0);
    let began = Instant::now();
    while starts() < stops + FOUR.1 && began.elapsed() < Duration::from_secs(300) {
        for server in 1..=FOUR.1 {
            let call = Call::new(scene::call(Way::Registered, Size(1, server, 1)), Shape::Echo(100));
            // An answer that is missing or an error ends the benchmark.
            client.check(&call, Shape::Echo(100));
            calls += 1;
        }
        // Between before and after the moment at which they are stopped.
        pause = (pause + 7) % 60;
        std::thread::sleep(Duration::from_micros(8_000 + 100 * pause));
    }
    let starts = starts();
    let _ = fs::remove_file(&count);
    let rows = [vec![(starts - FOUR.1).to_string(), calls.to_string(), "0".to_owned()]];
    table::print("Idle stops racing with calls", "", &["stops", "calls", "lost"], &rows);
    table::targets(
        "idle stops",
        [Target::at_least(
            format!("{stops} stops, no call lost"),
            (starts - FOUR.1) as f64,
            stops as f64,
            " stops",
        )],
    );
}

/// A daemon that is killed with calls in flight.
fn death() {
    const SESSIONS: usize = 20;
    const CALLS: usize = 5;
    let den = Den::new(ONE);
    let mut clients: Vec<_> = (0..SESSIONS).map(|_| den.open(ONE)).collect();
    let (head, tail) = scene::call(Way::Registered, ONE);
    for client in &mut clients {
        for id in 0..CALLS {
            client.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"method\":\"tools/call\",\"params\":{head}{{\"never\":true}}{tail}}}\n").as_bytes());
        }
        client.settle();
    }
    let pid = den.pid();
    let tree = system::tree(pid);
    let killed = Instant::now();
    system::kill(pid);
    let mut errors = 0;
    for client in &mut clients {
        for _ in 0..CALLS {
            errors += usize::from(client.line().contains("The daemon ended before it answered"));
        }
    }
    let answered = killed.elapsed();
    for client in &mut clients {
        let call = Call::new(scene::call(Way::Registered, ONE), Shape::Echo(100));
        client.check(&call, Shape::Echo(100));
    }
    let working = killed.elapsed();
    let left = tree.into_iter().filter(|pid| system::lives(*pid)).count();
    let rows = [vec![
        errors.to_string(),
        format!("{:.0}", millis(answered)),
        format!("{:.0}", millis(working)),
        left.to_string(),
    ]];
    let head = ["errors", "all after ms", "all sessions work after ms", "processes left"];
    table::print("`kill -9` of the daemon, 100 calls in flight over 20 sessions", "", &head, &rows);
    table::targets(
        "kill -9",
        [
            Target::at_least("100 errors", errors as f64, 100.0, ""),
            Target::at_most("within 1 s", answered.as_secs_f64(), 1.0, " s"),
            Target::at_most("all sessions work within 2 s", working.as_secs_f64(), 2.0, " s"),
            Target::at_most("0 processes left", left as f64, 0.0, ""),
        ],
    );
}
