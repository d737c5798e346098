//! Calls: how long one takes, how many there are in a second, and what they cost the process in the middle.

use crate::Effort;
use crate::client::{Client, Shape};
use crate::contest::{Contestant, Rounds, Sample, rounds};
use crate::roles::Era;
use crate::scene::{self, File, Size, Way};
use crate::table::{self, Target};

const ONE: Size = Size(1, 1, 1);
const IN_FLIGHT: [usize; 3] = [1, 16, 64];

// Their places in the list of contestants.
const DIRECT: usize = 0;
const ENVELOPE: usize = 2;
const PROXY: usize = 3;
const DYNAMIC: usize = 4;
const TOOLMAN: usize = 5;
const RMCP: usize = 6;

/// Everyone, with payloads of several sizes.
pub(crate) fn measure(effort: Effort) {
    let (file, toolman) = (File::new(ONE), File::toolman(ONE));
    let role = |name: &str, role: &[&str], way| {
        let mut client = Client::start(scene::role(role));
        client.initialize();
        Contestant::new(name, client, way, ONE)
    };
    let ours = |name, mode, way| Contestant::new(name, scene::open_gateway(&file, mode, ONE), way, ONE);
    let mut direct = Client::start(scene::upstream(1));
    direct.initialize();
    let mut contestants = vec![
        Contestant::new("direct", direct, Way::Plain, ONE),
        role("byte relay", &["bytes"], Way::Plain),
        role("envelope relay", &["envelope", Era::Legacy.name()], Way::Registered),
        ours("**ours**, proxy", "proxy", Way::Used),
        ours("**ours**, dynamic", "dynamic", Way::Registered),
        Contestant::new("**ours**, toolman", scene::toolman(&toolman), Way::Catalogued, ONE),
        role("rmcp relay", &["rmcp"], Way::Registered),
    ];
    const KB: usize = 1000;
    for (title, shape) in [
        ("100 B there and back", Shape::Echo(100)),
        ("10 KB there and back", Shape::Echo(10 * KB)),
        ("1 MB there and back", Shape::Echo(1000 * KB)),
        ("10 KB in the answer", Shape::Answer(10 * KB)),
        ("1 MB in the answer", Shape::Answer(1000 * KB)),
    ] {
        let rounds = rounds(&mut contestants, shape, &IN_FLIGHT, effort);
        show(title, &contestants, &rounds);
        match shape {
            Shape::Echo(100) => small_targets(&rounds),
            Shape::Echo(1_000_000) | Shape::Answer(1_000_000) => large_targets(title, &rounds),
            _ => {}
        }
    }
}

/// One call among many tools and upstreams, beside one among one of each.
pub(crate) fn flatness(effort: Effort) {
    const MANY: Size = Size(1, 200, 50);
    let mut rows = Vec::new();
    for (mode, way) in [("proxy", Way::Used), ("dynamic", Way::Registered)] {
        let mut contestants: Vec<_> =
            [("1 tool of 1 upstream", ONE), ("10,000 tools of 200 upstreams", MANY)]
                .into_iter()
                .map(|(name, size)| {
                    let client = scene::open_gateway(&File::new(size), mode, size);
                    Contestant::new(name, client, way, size)
                })
                .collect();
        // The difference is small, so more and shorter rounds.
        let effort = Effort { rounds: 4 * effort.rounds, slice: effort.slice / 2, ..effort };
        let rounds = rounds(&mut contestants, Shape::Echo(100), &IN_FLIGHT, effort);
        let ratio = |of: fn(&Sample) -> f64| rounds.ratio(1, 0, of);
        for (at, contestant) in contestants.iter().enumerate() {
            let of = |of: fn(&Sample) -> f64| rounds.of(at, of);
            rows.push(vec![
                format!("{mode}: {}", contestant.name),
                format!("{:.1}", of(|sample| sample.p50)),
                format!("{:.0}", of(|sample| sample.throughput[2])),
                format!("{:.2}", of(|sample| sample.cpu[2])),
            ]);
        }
        table::targets(
            "a call among 10,000 tools of 200 upstreams",
            [
                Target::at_most(
                    format!("{mode}: p50 ≤ 1.1× one of each"),
                    ratio(|sample| sample.p50),
                    1.1,
                    "×",
                ),
                Target::at_most(
                    format!("{mode}: CPU, 64 in flight ≤ 1.1×"),
                    ratio(|sample| sample.cpu[2]),
                    1.1,
                    "×",
                ),
            ],
        );
    }
    table::print(
        "Flatness",
        "",
        &["", "p50 µs", "calls/s, 64 in flight", "CPU µs/call, 64 in flight"],
        &rows,
    );
}

fn show(title: &str, contestants: &[Contestant], rounds: &Rounds) {
    let rows = contestants.iter().enumerate().map(|(at, contestant)| {
        let of = |of: &dyn Fn(&Sample) -> f64| rounds.of(at, of);
        let cpu = |flight: usize| match at {
            DIRECT => "–".to_owned(),
            _ => format!("{:.2}", of(&|sample| sample.cpu[flight])),
        };
        vec![
            contestant.name.clone(),
            format!("{:.1}", of(&|sample| sample.p50)),
            format!("{:.1}", of(&|sample| sample.p99)),
            format!("{:.1}", rounds.added(at, DIRECT)),
            format!("{:.0}", of(&|sample| sample.throughput[0])),
            format!("{:.0}", of(&|sample| sample.throughput[1])),
            format!("{:.0}", of(&|sample| sample.throughput[2])),
            cpu(0),
            cpu(2),
        ]
    });
    let head = [
        "",
        "p50 µs",
        "p99 µs",
        "added p50 µs",
        "calls/s, 1 in flight",
        "16",
        "64",
        "CPU µs/call, 1 in flight",
        "64",
    ];
    table::print(&format!("Calls, {title}"), "", &head, &rows.collect::<Vec<_>>());
}

const OURS: [(&str, usize); 3] = [("proxy", PROXY), ("dynamic", DYNAMIC), ("toolman", TOOLMAN)];

fn small_targets(rounds: &Rounds) {
    let through = |sample: &Sample| sample.throughput[2];
    for (name, at) in OURS {
        let relayed = |of: fn(&Sample) -> f64| rounds.ratio(at, ENVELOPE, of);
        table::targets(
            "small calls",
            [
                Target::at_most(
                    format!("{name}: added p50 ≤ 1.5× the envelope relay's"),
                    rounds.added_ratio(at, ENVELOPE, DIRECT),
                    1.5,
                    "×",
                ),
                Target::at_least(
                    format!("{name}: throughput, 64 in flight ≥ 0.7×"),
                    relayed(through),
                    0.7,
                    "×",
                ),
                Target::at_most(
                    format!("{name}: CPU, 1 in flight ≤ 2×"),
                    relayed(|sample| sample.cpu[0]),
                    2.0,
                    "×",
                ),
                Target::at_most(
                    format!("{name}: CPU, 64 in flight ≤ 2×"),
                    relayed(|sample| sample.cpu[2]),
                    2.0,
                    "×",
                ),
                Target::at_least(
                    format!("{name}: throughput, 64 in flight ≥ 5× the rmcp relay's"),
                    rounds.ratio(at, RMCP, through),
                    5.0,
                    "×",
                ),
            ],
        );
    }
}

fn large_targets(title: &str, rounds: &Rounds) {
    for (name, ours) in OURS {
        let by_flight = (0..3).map(|at| rounds.ratio(ours, ENVELOPE, |sample| sample.throughput[at]));
        let worst = by_flight.fold(f64::INFINITY, f64::min);
        let text =
            format!("{name}: throughput ≥ 0.85× the envelope relay's, the worst of 1, 16, 64 in flight");
        table::targets(title, [Target::at_least(text, worst, 0.85, "×")]);
    }
}
