//! Memory, and the time from nothing to the first answer.

use std::time::{Duration, Instant};

use crate::Effort;
use crate::client::{Call, Client, Shape};
use crate::scene::{self, File, Size, Way};
use crate::system::{self, Memory};
use crate::table::{self, Target, median, millis};

/// Resident memory and cold start.
pub(crate) fn measure(effort: Effort) {
    memory();
    cold_start(effort);
}

fn memory() {
    // One is opened first: what opening needs once for all is not counted to each.
    const ALL: Size = Size(51, 1, 20);
    let file = File::new(ALL);
    let mut client = Client::start(scene::gateway(&file, "dynamic"));
    client.initialize();
    // What a start needs is given back two seconds after it.
    std::thread::sleep(Duration::from_secs(3));
    let idle = system::memory(client.pid());
    client.request("tools/call", &scene::open(0));
    client.settle();
    let first = system::memory(client.pid());
    client.requests("tools/call", &(1..ALL.0).map(scene::open).collect::<Vec<_>>());
    client.settle();
    let opened = system::memory(client.pid());
    let shims: Vec<Memory> = system::children(client.pid()).into_iter().map(system::memory).collect();
    let shim = Memory {
        rss: median(shims.iter().map(|shim| shim.rss)),
        pss: median(shims.iter().map(|shim| shim.pss)),
        ..Memory::default()
    };
    for (shape, calls) in [(Shape::Echo(100), 50_000), (Shape::Echo(1_000_000), 100)] {
        client.calls(&Call::new(scene::call(Way::Registered, ALL), shape), calls, 64);
    }
    client.settle();
    // Buffers of long messages are given back once a stream has been silent for a second.
    std::thread::sleep(Duration::from_secs(2));
    let loaded = system::memory(client.pid());
    let each = (opened.rss - first.rss) / 50.0;
    let row = |name: &str, memory: Memory| {
        vec![name.to_owned(), format!("{:.0}", memory.rss), format!("{:.0}", memory.pss)]
    };
    let rows = [
        row("gateway, idle", idle),
        row("gateway, 1 upstream with 20 tools", first),
        row("gateway, 50 more", opened),
        row("gateway, two seconds after load (50,000 small calls, 100 of 1 MB, 64 in flight)", loaded),
        vec!["gateway, each of these".into(), format!("{each:.1}"), "–".into()],
        row("one shim", shim),
    ];
    table::print("Memory", "", &["", "RSS KB", "PSS KB"], &rows);
    table::targets(
        "memory",
        [
            Target::at_most("idle ≤ 8 MB", idle.rss * 1024.0 / 1e6, 8.0, " MB"),
            Target::at_most("50 upstreams < 10 MB", opened.rss * 1024.0 / 1e6, 10.0, " MB"),
            Target::at_most("each idle upstream ≤ 50 KB", each, 50.0, " KB"),
            Target::at_most("each shim ≤ 1 MB (PSS)", shim.pss * 1024.0 / 1e6, 1.0, " MB"),
        ],
    );
}

fn cold_start(effort: Effort) {
    let file = File::new(Size(10, 5, 20));
    let path = file.0.to_str().expect("a plain path").to_owned();
    let round = |_| {
        let hello = first_answer(|| scene::role(&["hello", &path]));
        let ours = first_answer(|| scene::gateway(&file, "dynamic"));
        (millis(hello), millis(ours))
    };
    let rounds: Vec<_> = (0..effort.rounds * 4).map(round).collect();
    let (hello, ours) =
        (median(rounds.iter().map(|round| round.0)), median(rounds.iter().map(|round| round.1)));
    let ratio = median(rounds.iter().map(|round| round.1 / round.0));
    let rows = [vec![format!("{hello:.2}"), format!("{ours:.2}"), format!("{ratio:.2}")]];
    let note = "From spawning to the answer to `initialize`, with a file of 10 toolboxes × 5 servers; the other program reads the same file into a tree and answers one line.";
    table::print("Cold start", note, &["hello-world ms", "ours ms", "ratio"], &rows);
    table::targets(
        "cold start",
        [
            Target::at_most("`initialize` answered within 20 ms", ours, 20.0, " ms"),
            Target::at_most("≤ 2× a hello-world that parses the same file", ratio, 2.0, "×"),
        ],
    );
}

fn first_answer(command: impl Fn() -> std::process::Command) -> Duration {
    let command = command();
    let began = Instant::now();
    let mut client = Client::start(command);
    client.initialize();
    began.elapsed()
}
