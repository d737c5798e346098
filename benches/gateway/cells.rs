//! Every pair of eras over both transports, on one core. There the client, the one in the middle and the server work in
//! turn, so that no second core hides what a call costs: processor time is the headline.

use std::rc::Rc;

use crate::Effort;
use crate::client::{Client, Shape};
use crate::contest::{Caller, Contestant, Rounds, rounds};
use crate::roles::Era;
use crate::scene::{self, File, Size, Way};
use crate::system::OneCore;
use crate::table::{self, Target};
use crate::web::{Server, Session, Visit};

const ONE: Size = Size(1, 1, 1);
const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];
/// By what a tool is addressed.
const WAYS: [(Way, &str); 2] = [(Way::Registered, "name"), (Way::Used, "`use_tool`")];
const SMALL: Shape = Shape::Echo(100);
const LARGE: Shape = Shape::Echo(1_000_000);

/// One of ours: the eras of its client and its server.
#[derive(Clone, Copy)]
struct Cell(Era, Era);

/// Calls over stdio and over HTTP. The first two contestants are what ours are compared with, by the client's era.
pub(crate) fn measure(effort: Effort) {
    let _one_core = OneCore::pin();
    stdio(effort);
    http(effort);
}

fn stdio(effort: Effort) {
    let relay = |name: &str, era: Era, role: &[&str], way| {
        let mut client = Client::start(scene::role(role)).speaking(era);
        client.initialize();
        Contestant::new(name, client, way, ONE)
    };
    let envelope = |era: Era| {
        relay(&format!("envelope relay, {}", era.name()), era, &["envelope", era.name()], Way::Registered)
    };
    let mut contestants = vec![
        envelope(Era::Legacy),
        envelope(Era::Modern),
        relay("byte relay", Era::Legacy, &["bytes"], Way::Plain),
        relay("rmcp relay", Era::Legacy, &["rmcp"], Way::Registered),
    ];
    let files = ERAS.map(|era| File::of(era, ONE));
    let cells = cells(&mut contestants, |Cell(client, server)| {
        scene::open_gateway_for(client, &files[server as usize], "dynamic", ONE)
    });
    let small = rounds(&mut contestants, SMALL, &[1, 64], effort);
    let large = rounds(&mut contestants, LARGE, &[4], effort);
    show("stdio", "the envelope relay", &contestants, &small, &large);
    for (at, Cell(client, server)) in cells {
        let (name, same) = (&contestants[at].name, client == server);
        let least = if same { 0.8 } else { 0.6 };
        let through = small.ratio(at, client as usize, |sample| sample.throughput[1]);
        let text = format!("{name}: throughput, 64 in flight ≥ {least}× the envelope relay's");
        table::targets("one core, stdio", [Target::at_least(text, through, least, "×")]);
        if same {
            let cpu = small.ratio(at, client as usize, |sample| sample.cpu[1]);
            let text = format!("{name}: CPU, 64 in flight ≤ 1.4×");
            table::targets("one core, stdio", [Target::at_most(text, cpu, 1.4, "×")]);
        }
    }
}

fn http(effort: Effort) {
    let role = |name: &str, era: Era, role: &[&str]| {
        let server = Rc::new(Server::start(scene::role(role)));
        let session = Session::stateless(server.address, era);
        Contestant::new(name, Visit { server, session }, Way::Plain, ONE)
    };
    let bridge = |era: Era| role(&format!("bridge, {}", era.name()), era, &["bridge", era.name()]);
    let mut contestants = vec![bridge(Era::Legacy), bridge(Era::Modern)];
    let servers = ERAS.map(|era| Rc::new(Server::start(scene::http_gateway(&File::of(era, ONE), "dynamic"))));
    let cells = cells(&mut contestants, |Cell(client, server)| {
        let server = servers[server as usize].clone();
        let session = Session::open(server.address, client, ONE.0);
        Visit { server, session }
    });
    // It answers 100 B whatever is asked, so it takes part in short calls alone.
    contestants.push(role("bare handler", Era::Legacy, &["constant", "100"]));
    let bare = contestants.len() - 1;
    let small = rounds(&mut contestants, SMALL, &[1, 64], effort);
    let bare_handler = contestants.pop();
    let large = rounds(&mut contestants, LARGE, &[4], effort);
    contestants.extend(bare_handler);
    show("HTTP", "the bridge", &contestants, &small, &large);
    for (at, Cell(client, _)) in cells {
        let name = &contestants[at].name;
        let bridge = client as usize;
        table::targets(
            "one core, HTTP",
            [
                Target::at_least(
                    format!("{name}: throughput, 64 in flight ≥ 0.85× a minimal bridge"),
                    small.ratio(at, bridge, |sample| sample.throughput[1]),
                    0.85,
                    "×",
                ),
                Target::at_most(
                    format!("{name}: added p50 ≤ 1.5× the bridge's"),
                    small.added_ratio(at, bridge, bare),
                    1.5,
                    "×",
                ),
                Target::at_most(
                    format!("{name}: CPU, 1 MB there and back ≤ 1.5× the bridge's"),
                    large.ratio(at, bridge, |sample| sample.cpu[0]),
                    1.5,
                    "×",
                ),
            ],
        );
    }
}

/// Adds a contestant of ours for each cell and way, and says which is where.
fn cells<C: Caller + 'static>(
    contestants: &mut Vec<Contestant>,
    open: impl Fn(Cell) -> C,
) -> Vec<(usize, Cell)> {
    let mut all = Vec::new();
    for client in ERAS {
        for server in ERAS {
            for (way, by) in WAYS {
                all.push((contestants.len(), Cell(client, server)));
                let name = format!("**ours**, {} to {}, {by}", client.name(), server.name());
                contestants.push(Contestant::new(name, open(Cell(client, server)), way, ONE));
            }
        }
    }
    all
}

fn show(over: &str, than: &str, contestants: &[Contestant], small: &Rounds, large: &Rounds) {
    let rows: Vec<_> = contestants
        .iter()
        .enumerate()
        .map(|(at, contestant)| {
            let base = usize::from(contestant.name.contains(", modern"));
            // Some take part in short calls alone.
            let of_large =
                |text: &dyn Fn() -> String| if at < large.contestants() { text() } else { "–".into() };
            vec![
                contestant.name.clone(),
                format!("{:.2}", small.of(at, |sample| sample.cpu[1])),
                format!("{:.2}", small.ratio(at, base, |sample| sample.cpu[1])),
                format!("{:.0}", small.of(at, |sample| sample.throughput[1])),
                format!("{:.2}", small.ratio(at, base, |sample| sample.throughput[1])),
                format!("{:.1}", small.of(at, |sample| sample.p50)),
                of_large(&|| format!("{:.0}", large.of(at, |sample| sample.cpu[0]))),
                of_large(&|| format!("{:.2}", large.ratio(at, base, |sample| sample.cpu[0]))),
            ]
        })
        .collect();
    let times = format!("× {than}");
    let head = [
        "",
        "CPU µs/call, 64 in flight",
        &times,
        "calls/s",
        &times,
        "p50 µs, 1 in flight",
        "1 MB there and back, CPU µs/call",
        &times,
    ];
    let note = "Client, server and what is between them on one core; the processor time is that of the process in between. Each of ours is compared with what carries the same client's messages.";
    table::print(&format!("One core: calls over {over}, 100 B there and back"), note, &head, &rows);
}
