//! What it costs to keep long results from a model, and to hold definitions to those that were approved.

use std::time::{Duration, Instant};

use serde::de::IgnoredAny;
use serde_json::json;

use crate::Effort;
use crate::client::{Call, Client, Shape};
use crate::contest::Caller;
use crate::scene::{self, File, Size, Way};
use crate::system;
use crate::table::{self, Target, median, micros, millis};

/// Results of 1 MB, and 10,000 definitions.
pub(crate) fn measure(effort: Effort) {
    results(effort);
    definitions(effort);
}

/// Results that are kept and read in parts, beside those that are passed on.
fn results(effort: Effort) {
    const ONE: Size = Size(1, 1, 1);
    const SHAPE: Shape = Shape::Answer(1_000_000);
    let call = Call::new(scene::call(Way::Registered, ONE), SHAPE);
    let (plain, offloading) = (File::new(ONE), File::new(ONE).with("offloadOver", json!(20_000)));
    let mut clients = [&plain, &offloading].map(|file| {
        let mut client = scene::open_gateway(file, "dynamic", ONE);
        client.settle();
        client
    });
    clients[0].check(&call, SHAPE);
    let notice = clients[1].request("tools/call", call.params());
    assert!(notice.contains("read_result") && notice.len() < 20_000, "the result is kept");
    let calls = effort.rounds * 4;
    let text = vec![b'x'; SHAPE.size()];
    let cost = |pid: u32, work: &mut dyn FnMut()| {
        let before = system::cpu(pid);
        work();
        micros(system::cpu(pid) - before) / calls as f64
    };
    let round = |_| {
        let [passed_on, kept] = clients.each_mut().map(|client: &mut Client| {
            cost(client.pid(), &mut || {
                client.calls(&call, calls, 1);
            })
        });
        (passed_on, kept, cost(std::process::id(), &mut || copies(&text, calls)))
    };
    let rounds: Vec<(f64, f64, f64)> = (0..effort.rounds).map(round).collect();
    let of = |of: &dyn Fn(&(f64, f64, f64)) -> f64| median(rounds.iter().map(of));
    let more = of(&|(passed_on, kept, copy)| (kept - passed_on) / copy);
    let rows = [vec![
        format!("{:.0}", of(&|round| round.0)),
        format!("{:.0}", of(&|round| round.1)),
        format!("{:.0}", of(&|round| round.2)),
        format!("{more:.2}"),
    ]];
    let note = "Processor time of the gateway for a call, and what it takes to copy 1 MB, check that it is UTF-8, and keep it.";
    let head = ["passed on µs", "kept µs", "one copy µs", "kept more than passed on, in copies"];
    table::print("Results of 1 MB", note, &head, &rows);
    let text = "1 MB that is kept ≤ one copy more than 1 MB that is passed on";
    table::targets("long results", [Target::at_most(text, more, 1.0, " copies")]);
}

/// Copies a text so many times, and keeps the copies until the end.
fn copies(text: &[u8], count: usize) {
    let copy = |_| String::from_utf8(text.to_vec()).expect("UTF-8");
    std::hint::black_box((0..count).map(copy).collect::<Vec<_>>());
}

/// Opening a server whose definitions are compared with those in the lock file, beside opening it without one.
fn definitions(effort: Effort) {
    const MANY: Size = Size(1, 1, 10_000);
    let (plain, approved) = (File::new(MANY), File::new(MANY).approved());
    let round = |_| {
        let open = |file: &File| {
            let mut client = Client::start(scene::gateway(file, "dynamic"));
            client.initialize();
            let began = Instant::now();
            client.request("tools/call", &scene::open(0));
            (began.elapsed(), client.request("tools/list", "{}"))
        };
        let ((alone, list), (compared, same)) = (open(&plain), open(&approved));
        assert_eq!(list.len(), same.len(), "everything is approved");
        (alone, compared, reading(&list))
    };
    let rounds: Vec<(Duration, Duration, Duration)> = (0..effort.rounds).map(round).collect();
    let more = |(alone, compared, _): &(Duration, Duration, Duration)| millis(*compared) - millis(*alone);
    let ratio = median(rounds.iter().map(|round| more(round) / millis(round.2)));
    let of = |of: &dyn Fn(&(Duration, Duration, Duration)) -> f64| median(rounds.iter().map(of));
    let rows = [vec![
        format!("{:.2}", of(&|round| millis(round.0))),
        format!("{:.2}", of(&|round| millis(round.1))),
        format!("{:.2}", of(&|round| millis(round.2))),
        format!("{ratio:.2}"),
    ]];
    let head = ["open ms", "with a lock file ms", "reading the list once ms", "more, in readings"];
    let note = "The list is read by `serde_json`, which checks it and keeps nothing.";
    table::print("10,000 definitions, all approved", note, &head, &rows);
    let text = "comparing 10,000 definitions ≤ 10× reading them once";
    table::targets("the lock", [Target::at_most(text, ratio, 10.0, "×")]);
}

/// What reading JSON once takes at least, the best of some.
fn reading(text: &str) -> Duration {
    let once = |_| {
        let began = Instant::now();
        serde_json::from_str::<IgnoredAny>(text).expect("JSON");
        began.elapsed()
    };
    (0..5).map(once).min().expect("there are some")
}
