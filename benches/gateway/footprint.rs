//! Memory, and the time from nothing to the first answer.

use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::Effort;
use crate::client::{Call, Client, Shape};
use crate::contest::Caller;
use crate::roles::Era;
use crate::scene::{self, File, Size, Way};
use crate::system::{self, Memory};
use crate::table::{self, Target, median, millis};
use crate::web::{Server, Session, Visit};

/// Resident memory and cold start.
pub(crate) fn measure(effort: Effort) {
    memory();
    after_load();
    cold_start(effort);
}

fn memory() {
    // One is opened first: what opening needs once for all is not counted to each.
    const ALL: Size = Size(51, 1, 20);
    /// How many servers share what their shims have in common when these are judged.
    const SHIMS: usize = 20;
    let file = File::new(ALL);
    let mut client = Client::start(scene::gateway(&file, "dynamic"));
    client.initialize();
    // What a start needs, also that of a server, is given back two seconds after it.
    let rest = || std::thread::sleep(Duration::from_secs(3));
    rest();
    let idle = system::memory(client.pid());
    client.request("tools/call", &scene::open(0));
    client.settle();
    rest();
    let first = system::memory(client.pid());
    let mut open = |boxes: Range<usize>| {
        client.requests("tools/call", &boxes.map(scene::open).collect::<Vec<_>>());
        client.settle();
        rest();
        client.pid()
    };
    let pid = open(1..SHIMS);
    let shims: Vec<Memory> = system::children(pid).into_iter().map(system::memory).collect();
    let opened = system::memory(open(SHIMS..ALL.0));
    let shim = Memory {
        rss: median(shims.iter().map(|shim| shim.rss)),
        pss: median(shims.iter().map(|shim| shim.pss)),
        private: median(shims.iter().map(|shim| shim.private)),
        ..Memory::default()
    };
    let each = (opened.rss - first.rss) / 50.0;
    let row = |name: &str, memory: Memory| {
        vec![name.to_owned(), format!("{:.0}", memory.rss), format!("{:.0}", memory.pss)]
    };
    let rows = [
        row("gateway, idle", idle),
        row("gateway, 1 upstream with 20 tools", first),
        row("gateway, 50 more", opened),
        vec!["gateway, each of these".into(), format!("{each:.1}"), "–".into()],
        row("one of 20 shims", shim),
    ];
    table::print("Memory", "", &["", "RSS KB", "PSS KB"], &rows);
    table::targets(
        "memory",
        [
            Target::at_most("idle ≤ 6 MB (PSS)", idle.pss * 1024.0 / 1e6, 6.0, " MB"),
            Target::at_most("50 upstreams < 10 MB", opened.rss * 1024.0 / 1e6, 10.0, " MB"),
            Target::at_most("each idle upstream ≤ 30 KB", each, 30.0, " KB"),
            Target::at_most("each of 20 shims ≤ 1.2 MB (PSS)", shim.pss * 1024.0 / 1e6, 1.2, " MB"),
            Target::at_most("each of 20 shims ≤ 0.5 MB of its own", shim.private * 1024.0 / 1e6, 0.5, " MB"),
        ],
    );
}

/// How much of what a load took is given back.
fn after_load() {
    const ONE: Size = Size(1, 1, 20);
    let file = File::new(ONE);
    let stdio = loaded(scene::open_gateway(&file, "dynamic", ONE));
    let server = Rc::new(Server::start(scene::http_gateway(&file, "dynamic")));
    let session = Session::open(server.address, Era::Legacy, ONE.0);
    let http = loaded(Visit { server, session });
    let mut rows = Vec::new();
    for (over, [before, after]) in [("stdio", stdio), ("HTTP", http)] {
        let ratio = after.pss / before.pss;
        rows.push(vec![
            over.to_owned(),
            format!("{:.0}", before.pss),
            format!("{:.0}", after.pss),
            format!("{ratio:.2}"),
        ]);
        let text = format!("over {over}, 10 s after a load of 1 MB calls ≤ 1.1× before");
        table::targets("memory", [Target::at_most(text, ratio, 1.1, "×")]);
    }
    let note =
        "10,000 short calls and 200 of 1 MB there and back, 64 in flight; before: after 1,000 short ones.";
    table::print("Memory after a load", note, &["", "before, PSS KB", "10 s after", "×"], &rows);
}

fn loaded(mut caller: impl Caller) -> [Memory; 2] {
    let call = |shape| Call::new(scene::call(Way::Registered, Size(1, 1, 20)), shape);
    caller.calls(&call(Shape::Echo(100)), 1000, 64);
    let before = system::memory(caller.pid());
    caller.calls(&call(Shape::Echo(100)), 10_000, 64);
    caller.calls(&call(Shape::Echo(1_000_000)), 200, 64);
    std::thread::sleep(Duration::from_secs(10));
    [before, system::memory(caller.pid())]
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
            Target::at_most("≤ 1.5× a hello-world that parses the same file", ratio, 1.5, "×"),
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
