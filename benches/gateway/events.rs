//! What it costs that somebody sees what happens: the journal, metrics, traces, and a tab of the console.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use memchr::memmem;

use crate::Effort;
use crate::client::{Call, Client, Shape};
use crate::contest::{Contestant, Sample, rounds};
use crate::roles::Era;
use crate::scene::{self, File, Size, Way};
use crate::system;
use crate::table::{self, Target, median, micros, quantile};
use crate::web::{Server, Session};

const ONE: Size = Size(1, 1, 1);
const IN_FLIGHT: [usize; 2] = [1, 64];
/// How long calls are measured, and what a gateway has for the spans that wait then: four documents, 25 ms apart.
const SLICE: Duration = Duration::from_millis(80);
const PAUSE: Duration = Duration::from_millis(120);
/// Calls a second while a tab looks.
const RATE: f64 = 5000.0;

/// Calls with everything off beside calls that are followed, and calls that a tab looks at.
pub(crate) fn measure(effort: Effort) {
    calls(effort);
    console(effort);
}

fn calls(effort: Effort) {
    let state = State::new();
    let (plain, journalled) = (File::new(ONE), File::new(ONE).with("journal", true.into()));
    let collector = collector();
    let start = |name: &str, file: &File, signal: Option<&str>| {
        let mut command = scene::gateway(file, "dynamic");
        command.env("XDG_STATE_HOME", &state.0);
        if let Some(signal) = signal {
            command.env(format!("OTEL_EXPORTER_OTLP_{signal}ENDPOINT"), &collector);
        }
        let mut client = Client::start(command);
        client.initialize();
        client.request("tools/call", &scene::open(0));
        Contestant::new(name, client, Way::Registered, ONE)
    };
    let mut contestants = [
        start("everything off", &plain, None),
        start("journal", &journalled, None),
        start("journal and metrics", &journalled, Some("METRICS_")),
        start("traces", &plain, Some("TRACES_")),
    ];
    // The difference is small, so more rounds. Spans leave at their pace: a short measurement would see nothing but the
    // first calls, for which there is room at once, and what they leave would meet the next contestant.
    let effort = Effort { rounds: 4 * effort.rounds, slice: SLICE, pause: PAUSE };
    let rounds = rounds(&mut contestants, Shape::Echo(100), &IN_FLIGHT, effort);
    let of = |at: usize, of: &dyn Fn(&Sample) -> f64| rounds.of(at, of);
    let ratio = |at: usize, of: &dyn Fn(&Sample) -> f64| rounds.ratio(at, 0, of);
    let row = |(at, contestant): (usize, &Contestant)| {
        vec![
            contestant.name.clone(),
            format!("{:.0}", of(at, &|sample| sample.throughput[0])),
            format!("{:.0}", of(at, &|sample| sample.throughput[1])),
            format!("{:.2}", ratio(at, &|sample| sample.throughput[0])),
            format!("{:.2}", ratio(at, &|sample| sample.throughput[1])),
            format!("{:.2}", of(at, &|sample| sample.cpu[0])),
            format!("{:.2}", of(at, &|sample| sample.cpu[1])),
        ]
    };
    let rows: Vec<_> = contestants.iter().enumerate().map(row).collect();
    let head =
        ["", "calls/s, 1 in flight", "64", "ratio, 1 in flight", "64", "CPU µs/call, 1 in flight", "64"];
    let note = "All threads of the gateway count. The collector answers at once.";
    table::print("Calls that are followed, 100 B there and back", note, &head, &rows);
    let names = ["throughput, 1 in flight, ≥ 0.95× that without", "throughput, 64 in flight, ≥ 0.95×"];
    let targets =
        [0, 1].map(|at| Target::at_least(names[at], ratio(3, &|sample| sample.throughput[at]), 0.95, "×"));
    table::targets("traces", targets);
}

/// A gateway with a console, whose calls are made with and without a tab that reads nothing.
fn console(effort: Effort) {
    let state = State::new();
    let file = File::new(ONE);
    let mut command = scene::http_gateway(&file, "dynamic");
    command.arg("--console").env("XDG_STATE_HOME", &state.0);
    let server = Server::start(command);
    let key = std::fs::read_to_string(state.0.join("mcp-workbench/console.key")).expect("it was made");
    let mut session = Session::open(server.address, Era::Legacy, 1);
    let call = Call::new(scene::call(Way::Registered, ONE), Shape::Echo(100));
    // Whatever is made once is made before.
    drop(server.open_tab(key.trim()));
    session.calls(&call, 2000, 8);
    let before = system::memory(server.pid()).rss;
    let tab = server.open_tab(key.trim());
    let grown = system::memory(server.pid()).rss - before;
    drop(tab);
    // Half a second or more for each: enough for many of the tab's own moments.
    let calls = (effort.slice.as_secs_f64() * 20.0 * RATE) as usize;
    let between = Duration::from_secs_f64(1.0 / RATE);
    let p99 = |session: &mut Session| {
        let begun = Instant::now();
        let latencies = session.paced(&call, calls, between);
        let rate = calls as f64 / begun.elapsed().as_secs_f64();
        let mut latencies: Vec<_> = latencies.into_iter().map(micros).collect();
        [0.5, 0.99].map(|part| quantile(&mut latencies, part)).into_iter().chain([rate]).collect::<Vec<_>>()
    };
    let rounds: Vec<_> = (0..4 * effort.rounds)
        .map(|round| {
            let watched = |session: &mut Session| {
                let tab = server.open_tab(key.trim());
                let watched = p99(session);
                drop(tab);
                watched
            };
            // Whoever comes second has another machine under it, so they take turns at that.
            match round % 2 {
                0 => (p99(&mut session), watched(&mut session)),
                _ => {
                    let watched = watched(&mut session);
                    (p99(&mut session), watched)
                }
            }
        })
        .collect();
    let ratio = |at: usize| median(rounds.iter().map(|(alone, watched)| watched[at] / alone[at]));
    let of = |at: usize| {
        let alone = median(rounds.iter().map(|(alone, _)| alone[at]));
        [alone, median(rounds.iter().map(|(_, watched)| watched[at]))].map(|number| format!("{number:.1}"))
    };
    let row = |name: &str, at: usize| {
        let [alone, watched] = of(at);
        vec![name.to_owned(), alone, watched, format!("{:.3}", ratio(at))]
    };
    let rows = [row("p50 µs", 0), row("p99 µs", 1), row("calls/s", 2)];
    let note = "Calls come at a steady rate, however long answers take. The median of the rounds.";
    let head = ["", "without a tab", "with a tab that reads nothing", "ratio"];
    table::print("A tab of the console that reads nothing", note, &head, &rows);
    table::targets(
        "console",
        [
            Target::at_most("p99 with a tab that reads nothing ≤ 1.01×", ratio(1), 1.01, "×"),
            Target::at_most("memory of a tab ≤ 2 MB", grown * 1024.0 / 1e6, 2.0, " MB"),
        ],
    );
}

/// A directory for state, gone when it is dropped.
struct State(PathBuf);

impl State {
    fn new() -> Self {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("workbench-bench-{}-state-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts a collector in this process that reads whatever comes and thanks for it. Returns its address.
pub(crate) fn collector() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || collect(stream));
        }
    });
    url
}

fn collect(mut stream: std::net::TcpStream) {
    const THANKS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let (mut head, mut buffer) = (Vec::new(), vec![0; 256 * 1024]);
    // How much of a document is still to come, which nobody looks at.
    let mut left = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        if left == 0 {
            head.extend_from_slice(&buffer[..read]);
            let Some(end) = memmem::find(&head, b"\r\n\r\n") else { continue };
            let lines = String::from_utf8_lossy(&head[..end]).to_ascii_lowercase();
            let length = lines.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            left = end + 4 + length.unwrap_or(0) - head.len();
            head.clear();
        } else {
            left -= read;
        }
        if left == 0 && stream.write_all(THANKS).is_err() {
            return;
        }
    }
}
