//! Lists of 10,000 tools, in every face, era and transport, beside what it costs to write their bytes.

use std::rc::Rc;

use crate::Effort;
use crate::client::Client;
use crate::contest::Caller;
use crate::roles::Era;
use crate::scene::{self, Face, File, Size};
use crate::system;
use crate::table::{self, Target, median, micros};
use crate::web::{Server, Session, Visit};

const TOOLS: usize = 10_000;
const MANY: Size = Size(1, 1, TOOLS);
const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];
/// How often a list is read again.
const AGAIN: u32 = 10;

/// What lists cost a process, in microseconds of processor time for each megabyte.
struct Cost {
    first: f64,
    again: f64,
}

/// Everything about lists.
pub(crate) fn measure(effort: Effort) {
    let rounds = effort.rounds.min(5);
    let mut rows = Vec::new();
    for over in ["stdio", "HTTP"] {
        for face in [Face::Workbench, Face::Toolman] {
            for client in ERAS {
                for server in ERAS {
                    let file = File::for_face(face, server, MANY);
                    let round = |_| (ours(over, face, client, &file), written(over));
                    let rounds: Vec<_> = (0..rounds).map(round).collect();
                    let ratio = |of: fn(&Cost) -> f64| {
                        median(rounds.iter().map(|(ours, written)| of(ours) / written.again))
                    };
                    let (first, again) = (ratio(|cost| cost.first), ratio(|cost| cost.again));
                    let name = format!("{}, {} to {}", face.name(), client.name(), server.name());
                    rows.push(vec![
                        format!("{name}, over {over}"),
                        format!("{:.0}", median(rounds.iter().map(|(_, written)| written.again))),
                        format!("{:.0}", median(rounds.iter().map(|(ours, _)| ours.again))),
                        format!("{again:.2}"),
                        format!("{:.0}", median(rounds.iter().map(|(ours, _)| ours.first))),
                        format!("{first:.2}"),
                    ]);
                    table::targets(
                        &format!("lists of 10,000 over {over}"),
                        [
                            Target::at_most(format!("{name}: again ≤ 2× writing the bytes"), again, 2.0, "×"),
                            Target::at_most(format!("{name}: the first ≤ 3×"), first, 3.0, "×"),
                        ],
                    );
                }
            }
        }
    }
    let head = ["", "writing the bytes, CPU µs/MB", "again", "×", "the first", "×"];
    let note = "Processor time of the process that answers `tools/list`, for each megabyte that it writes. The bytes alone: over stdio by the server itself, over HTTP by a handler, both from memory.";
    table::print("Lists of 10,000 tools", note, &head, &rows);
}

/// The gateway, which has read its server's tools and not yet shown them to anybody. Modern clients are shown tools that
/// were not opened one by one, so theirs is the mode that opens everything.
fn ours(over: &str, face: Face, client: Era, file: &File) -> Cost {
    let open = scene::open(0);
    let opens = face == Face::Workbench && client == Era::Legacy;
    let mode: &[&str] = match (face, client) {
        (Face::Workbench, Era::Modern) => &["--tool-mode", "flat"],
        _ => &[],
    };
    if over == "stdio" {
        let mut command = scene::face(face, file);
        command.args(mode);
        let mut client = Client::start(command).speaking(client);
        client.initialize();
        if opens {
            client.request("tools/call", &open);
        } else {
            client.request("resources/list", "{}");
        }
        client.settle();
        return cost(client.pid(), || client.request("tools/list", "{}").len());
    }
    let mut command = scene::http_face(face, file);
    command.args(mode);
    let server = Rc::new(Server::start(command));
    let session = Session::open(server.address, client, usize::from(opens));
    let mut visit = Visit { server, session };
    if !opens {
        visit.session.request("resources/list", "{}");
    }
    cost(visit.pid(), || visit.session.request("tools/list", "{}").len())
}

/// As many bytes from memory.
fn written(over: &str) -> Cost {
    if over == "stdio" {
        let mut server = Client::start(scene::upstream(TOOLS));
        server.initialize();
        return cost(server.pid(), || server.request("tools/list", "{}").len());
    }
    let server = Rc::new(Server::start(scene::role(&["constant", "4000000"])));
    let session = Session::stateless(server.address, Era::Legacy);
    let mut visit = Visit { server, session };
    cost(visit.pid(), || visit.session.request("tools/list", "{}").len())
}

fn cost(pid: u32, mut list: impl FnMut() -> usize) -> Cost {
    let mut measure = |times: u32| {
        let before = system::cpu(pid);
        let bytes: usize = (0..times).map(|_| list()).sum();
        micros(system::cpu(pid) - before) / (bytes as f64 / 1e6)
    };
    Cost { first: measure(1), again: measure(AGAIN) }
}
