//! What a call through the gateway costs, beside what it must cost. `cargo bench`, or with `-- --quick` in less than
//! half a minute. Everything is measured in one run, in interleaved rounds, and judged by ratios: machines differ.
//!
//! The parts that the gateway is compared with are this very executable, started again in a [role](roles).
#![allow(clippy::print_stdout, reason = "the tables are the output")]

mod bridges;
mod calls;
mod cells;
mod client;
mod contest;
mod daemon;
mod events;
mod footprint;
mod http;
mod limits;
mod lists;
mod load;
mod model;
mod opening;
mod peers;
mod roles;
mod scene;
mod system;
mod table;
mod web;

use std::time::Instant;

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Rounds, each with every contestant.
    pub(crate) rounds: usize,
    /// What one measurement may take, roughly.
    pub(crate) slice: std::time::Duration,
    /// The pause after a contestant, for whatever it leaves to do.
    pub(crate) pause: std::time::Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, rest @ ..] = &*arguments
        && role == roles::ARGUMENT
    {
        return roles::play(rest);
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let millis = std::time::Duration::from_millis;
    let effort = match quick {
        true => Effort { rounds: 3, slice: millis(25), pause: millis(0) },
        false => Effort { rounds: 9, slice: millis(80), pause: millis(0) },
    };
    let chosen: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let began = Instant::now();
    for (name, group) in [
        ("calls", calls::measure as fn(Effort)),
        ("cells", cells::measure),
        ("flatness", calls::flatness),
        ("opening", opening::measure),
        ("lists", lists::measure),
        ("model", model::measure),
        ("http", http::measure),
        ("peers", peers::measure),
        ("footprint", footprint::measure),
        ("daemon", daemon::measure),
        ("events", events::measure),
    ] {
        if chosen.is_empty() || chosen.iter().any(|chosen| *chosen == name) {
            group(effort);
        }
    }
    table::finish();
    println!("\nMeasured in {:.0} s on {}.", began.elapsed().as_secs_f64(), system::machine());
}
