//! The gateway over HTTP: calls, what many sessions cost, and clients that never finish a request.

use std::rc::Rc;
use std::time::Duration;

use crate::Effort;
use crate::client::{Call, Shape};
use crate::contest::{Contestant, Sample, rounds};
use crate::roles::Era;
use crate::scene::{self, File, Size, Way};
use crate::system;
use crate::table::{self, Target, micros, quantile};
use crate::web::{Server, Session, Visit};

const ONE: Size = Size(1, 1, 1);
const IN_FLIGHT: [usize; 3] = [1, 32, 64];

// Their places in the list of contestants.
const CONSTANT: usize = 0;
const BRIDGE: usize = 1;
const PROXY: usize = 2;
const DYNAMIC: usize = 3;

/// Everything over HTTP.
pub(crate) fn measure(effort: Effort) {
    calls(effort);
    fronts(effort);
    flatness(effort);
    sessions();
    half_open();
}

fn calls(effort: Effort) {
    let file = File::new(ONE);
    let role = |name: &str, role: &[&str]| {
        let server = Rc::new(Server::start(scene::role(role)));
        let session = Session::stateless(server.address, Era::Legacy);
        Contestant::new(name, Visit { server, session }, Way::Plain, ONE)
    };
    let ours = |name: &str, mode, way| {
        let server = Rc::new(Server::start(scene::http_gateway(&file, mode)));
        let session = Session::open(server.address, Era::Legacy, ONE.0);
        Contestant::new(name, Visit { server, session }, way, ONE)
    };
    let mut contestants = vec![
        role("bare handler", &["constant", "100"]),
        role("bridge to a pipe", &["bridge", Era::Legacy.name()]),
        ours("**ours**, proxy", "proxy", Way::Used),
        ours("**ours**, dynamic", "dynamic", Way::Registered),
    ];
    let rounds = rounds(&mut contestants, Shape::Echo(100), &IN_FLIGHT, effort);
    let rows: Vec<_> = contestants
        .iter()
        .enumerate()
        .map(|(at, contestant)| {
            let of = |of: &dyn Fn(&Sample) -> f64| rounds.of(at, of);
            vec![
                contestant.name.clone(),
                format!("{:.1}", of(&|sample| sample.p50)),
                format!("{:.0}", of(&|sample| sample.throughput[0])),
                format!("{:.0}", of(&|sample| sample.throughput[1])),
                format!("{:.0}", of(&|sample| sample.throughput[2])),
                format!("{:.2}", of(&|sample| sample.cpu[0])),
                format!("{:.2}", of(&|sample| sample.cpu[2])),
            ]
        })
        .collect();
    let head = ["", "p50 µs", "calls/s, 1 in flight", "32", "64", "CPU µs/call, 1 in flight", "64"];
    let note = "Connections are kept alive, one call in flight on each. The bare handler answers at once, all else waits for an upstream.";
    table::print("Calls over HTTP, 100 B there and back", note, &head, &rows);
    let added = |at: usize| rounds.added_ratio(at, BRIDGE, CONSTANT);
    let through = |at: usize| rounds.ratio(at, BRIDGE, |sample| sample.throughput[2]);
    for (name, at) in [("proxy", PROXY), ("dynamic", DYNAMIC)] {
        table::targets(
            "over HTTP",
            [
                Target::at_least(
                    format!("{name}: throughput, 64 in flight ≥ 0.7× a minimal bridge"),
                    through(at),
                    0.7,
                    "×",
                ),
                Target::at_most(format!("{name}: added p50 ≤ 2× the bridge's"), added(at), 2.0, "×"),
            ],
        );
    }
}

/// What more threads that speak HTTP bring to a minimal bridge: as much as they could bring to any.
fn fronts(effort: Effort) {
    const FRONTS: [&str; 3] = ["1", "2", "4"];
    let mut contestants: Vec<_> = FRONTS
        .into_iter()
        .map(|fronts| {
            let server = Rc::new(Server::start(scene::role(&["bridge", Era::Legacy.name(), fronts])));
            let session = Session::stateless(server.address, Era::Legacy);
            Contestant::new(fronts, Visit { server, session }, Way::Plain, ONE)
        })
        .collect();
    let rounds = rounds(&mut contestants, Shape::Echo(100), &IN_FLIGHT, effort);
    let row = |(at, contestant): (usize, &Contestant)| {
        vec![
            contestant.name.clone(),
            format!("{:.0}", rounds.of(at, |sample| sample.throughput[2])),
            format!("{:.2}", rounds.ratio(at, 0, |sample| sample.throughput[2])),
            format!("{:.2}", rounds.of(at, |sample| sample.cpu[2])),
            format!("{:.2}", rounds.ratio(at, 0, |sample| sample.cpu[2])),
        ]
    };
    let rows: Vec<_> = contestants.iter().enumerate().map(row).collect();
    let head = ["front threads", "calls/s, 64 in flight", "×", "CPU µs/call", "×"];
    let note = "Each accepts, reads and answers on a listener of its own; one thread speaks to the server. The client and the server need their share of the same cores.";
    table::print("More threads for HTTP, tried with the bridge", note, &head, &rows);
}

/// One call among many tools, upstreams and clients, beside one among one of each.
fn flatness(effort: Effort) {
    const MANY: Size = Size(1, 20, 50);
    const CLIENTS: usize = 100;
    let contestant = |name: &str, size: Size, clients: usize| {
        let server = Rc::new(Server::start(scene::http_gateway(&File::new(size), "dynamic")));
        let open = |_| Session::open(server.address, Era::Legacy, size.0);
        let others: Vec<_> = (1..clients).map(open).collect();
        let visit = Visit { session: open(0), server: server.clone() };
        (Contestant::new(name, visit, Way::Registered, size), others)
    };
    let (one, _) = contestant("1 client, 1 tool of 1 upstream", ONE, 1);
    let (many, _others) = contestant("100 clients, 1,000 tools of 20 upstreams", MANY, CLIENTS);
    let mut contestants = vec![one, many];
    let effort = Effort { rounds: 4 * effort.rounds, slice: effort.slice / 2, ..effort };
    let rounds = rounds(&mut contestants, Shape::Echo(100), &IN_FLIGHT, effort);
    let rows: Vec<_> = contestants
        .iter()
        .enumerate()
        .map(|(at, contestant)| {
            let of = |of: fn(&Sample) -> f64| rounds.of(at, of);
            vec![
                contestant.name.clone(),
                format!("{:.1}", of(|sample| sample.p50)),
                format!("{:.2}", of(|sample| sample.cpu[2])),
            ]
        })
        .collect();
    table::print("Flatness over HTTP", "", &["", "p50 µs", "CPU µs/call, 64 in flight"], &rows);
    let ratio = |of: fn(&Sample) -> f64| rounds.ratio(1, 0, of);
    table::targets(
        "flatness over HTTP",
        [
            Target::at_most("p50 among many ≤ 1.1×", ratio(|sample| sample.p50), 1.1, "×"),
            Target::at_most("CPU among many, 64 in flight ≤ 1.1×", ratio(|sample| sample.cpu[2]), 1.1, "×"),
        ],
    );
}

/// A thousand legacy sessions that rest, each with an event stream that is open.
fn sessions() {
    const SESSIONS: usize = 1000;
    let server = Server::start(scene::http_gateway(&File::new(ONE), "dynamic"));
    let mut first = Session::open(server.address, Era::Legacy, 1);
    first.listen();
    // What calls needed is given back three seconds after the last.
    let at_rest = || {
        std::thread::sleep(Duration::from_secs(4));
        system::memory(server.pid())
    };
    let before = at_rest();
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let mut session = Session::begin(server.address);
            session.listen();
            session.rest();
            session
        })
        .collect();
    let after = at_rest();
    let each = (after.rss - before.rss) / SESSIONS as f64;
    drop(sessions);
    let rows = [vec![format!("{:.0}", before.rss), format!("{:.0}", after.rss), format!("{each:.1}")]];
    let head = ["1 session, RSS KB", "1,000 more, each with an event stream", "each KB"];
    table::print("Sessions over HTTP", "", &head, &rows);
    table::targets(
        "sessions over HTTP",
        [
            Target::at_most("1,000 with an event stream each < 60 MB", after.rss * 1024.0 / 1e6, 60.0, " MB"),
            Target::at_most("each idle session ≤ 20 KB", each, 20.0, " KB"),
        ],
    );
}

/// Connections that have sent half a request, and what they mean to others.
fn half_open() {
    let wanted = system::raise_file_limit(11_000).saturating_sub(1000).min(10_000);
    let server = Server::start(scene::http_gateway(&File::new(ONE), "dynamic"));
    let mut session = Session::open(server.address, Era::Legacy, 1);
    let call = Call::new(scene::call(Way::Registered, ONE), Shape::Echo(100));
    let p99 = |session: &mut Session| {
        let mut latencies: Vec<_> = session.calls(&call, 1000, 1).1.into_iter().map(micros).collect();
        quantile(&mut latencies, 0.99) / 1000.0
    };
    let before = p99(&mut session);
    let half: Vec<_> = (0..wanted).map(|_| Session::half_open(server.address)).collect();
    let during = p99(&mut session);
    let memory = system::memory(server.pid());
    drop(half);
    let rows = [vec![
        wanted.to_string(),
        format!("{before:.2}"),
        format!("{during:.2}"),
        format!("{:.0}", memory.rss),
    ]];
    let head = ["half-open connections", "p99 ms without", "p99 ms with", "RSS KB with"];
    table::print("Clients that never finish a request", "", &head, &rows);
    let text = format!("{wanted} half-open connections: p99 of others < 50 ms");
    table::targets("over HTTP", [Target::at_most(text, during, 50.0, " ms")]);
}
