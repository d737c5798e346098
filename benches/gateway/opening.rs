//! Opening toolboxes and listing tools.

use std::time::{Duration, Instant};

use crate::Effort;
use crate::client::{Call, Client, Shape};
use crate::contest::Caller;
use crate::scene::{self, Face, File, Size, Way};
use crate::table::{self, Target, median, millis};

/// With 100, 1,000 and 10,000 tools, and with ten toolboxes at once.
pub(crate) fn measure(effort: Effort) {
    let mut rows = Vec::new();
    for tools in [100, 1_000, 10_000] {
        let file = File::new(Size(1, 1, tools));
        let rounds: Vec<Round> = (0..effort.rounds).map(|_| Round::measure(&file, tools)).collect();
        let of = |of: fn(&Round) -> f64| median(rounds.iter().map(of));
        rows.push(vec![
            tools.to_string(),
            format!("{:.2}", of(|round| millis(round.direct))),
            format!("{:.2}", of(|round| millis(round.open))),
            format!("{:.2}", of(Round::overhead)),
            format!("{:.3}", of(|round| millis(round.again))),
            format!("{:.3}", of(|round| millis(round.list_direct))),
            format!("{:.3}", of(|round| millis(round.list))),
            format!("{:.2}", of(Round::list_ratio)),
        ]);
        let text = format!("{tools} tools ≤ the server alone + 20 ms");
        table::targets("opening", [Target::at_most(text, of(Round::overhead), 20.0, " ms more")]);
        if tools == 10_000 {
            let again = of(|round| millis(round.again));
            table::targets(
                "opening",
                [
                    Target::at_most("again < 1 ms", again, 1.0, " ms"),
                    Target::at_most(
                        "10000 tools ≤ 1.2× the server alone",
                        of(|round| millis(round.open) / millis(round.direct)),
                        1.2,
                        "×",
                    ),
                    Target::at_most(
                        "tools/list of 10,000 ≤ 2× writing those bytes to a pipe",
                        of(Round::list_ratio),
                        2.0,
                        "×",
                    ),
                ],
            );
        }
    }
    let head = [
        "tools",
        "the server alone ms",
        "open ms",
        "overhead ms",
        "open again ms",
        "list, server alone ms",
        "list ms",
        "ratio",
    ];
    let note = "Alone: started, greeted and listed by the client itself, which is what opening must wait for; its list is written from prepared bytes, as ours should be.";
    table::print("Opening and listing", note, &head, &rows);
    toolman(effort);
    together(effort);
}

/// How long toolman takes until its first list, which waits for its servers.
fn toolman(effort: Effort) {
    const TOOLS: usize = 10_000;
    let file = File::toolman(Size(1, 1, TOOLS));
    let first_list = |command: std::process::Command| {
        let began = Instant::now();
        let mut client = Client::start(command);
        client.initialize();
        client.request("tools/list", "{}");
        millis(began.elapsed())
    };
    let round = |_| (first_list(scene::upstream(TOOLS)), first_list(scene::face(Face::Toolman, &file)));
    let rounds: Vec<_> = (0..effort.rounds.min(5)).map(round).collect();
    let (alone, ours) =
        (median(rounds.iter().map(|round| round.0)), median(rounds.iter().map(|round| round.1)));
    let rows = [vec![format!("{alone:.1}"), format!("{ours:.1}"), format!("{:.1}", ours - 1.2 * alone)]];
    let head = ["the server alone ms", "toolman ms", "more than 1.2× ms"];
    let note = "From starting to the first list, with one server of 10,000 tools.";
    table::print("Toolman until its first list", note, &head, &rows);
    let over = median(rounds.iter().map(|(alone, ours)| ours - 1.2 * alone));
    let text = "toolman's first list ≤ 1.2× the server alone + 20 ms";
    table::targets("opening", [Target::at_most(text, over, 20.0, " ms more")]);
}

struct Round {
    direct: Duration,
    open: Duration,
    again: Duration,
    list_direct: Duration,
    list: Duration,
}

impl Round {
    fn measure(file: &File, tools: usize) -> Self {
        let began = Instant::now();
        let mut direct = Client::start(scene::upstream(tools));
        direct.initialize();
        direct.request("tools/list", "{}");
        let alone = began.elapsed();

        let mut ours = Client::start(scene::gateway(file, "dynamic"));
        ours.initialize();
        let open = timed(&mut ours, "tools/call", &scene::open(0));
        let again = timed(&mut ours, "tools/call", &scene::open(0));
        // Best of a few on each side: one list is short, and the first touches fresh memory.
        let best =
            |client: &mut Client| (0..7).map(|_| timed(client, "tools/list", "{}")).min().expect("seven");
        Self { direct: alone, open, again, list_direct: best(&mut direct), list: best(&mut ours) }
    }

    fn overhead(&self) -> f64 {
        millis(self.open) - millis(self.direct)
    }

    fn list_ratio(&self) -> f64 {
        self.list.as_secs_f64() / self.list_direct.as_secs_f64()
    }
}

fn timed(client: &mut Client, method: &str, params: &str) -> Duration {
    let began = Instant::now();
    client.request(method, params);
    began.elapsed()
}

/// Ten toolboxes of five servers, opened in one breath, then one call to each server.
fn together(effort: Effort) {
    const TEN: Size = Size(10, 5, 20);
    let file = File::new(TEN);
    let round = |_| {
        let began = Instant::now();
        let mut all: Vec<_> = (0..50).map(|_| Client::start(scene::upstream(20))).collect();
        for server in &mut all {
            server.initialize();
            server.request("tools/list", "{}");
        }
        let alone = began.elapsed();
        drop(all);
        let mut client = Client::start(scene::gateway(&file, "dynamic"));
        client.initialize();
        let began = Instant::now();
        client.requests("tools/call", &(0..TEN.0).map(scene::open).collect::<Vec<_>>());
        let open = began.elapsed();
        client.settle();
        for toolbox in 1..=TEN.0 {
            for server in 1..=TEN.1 {
                let call =
                    Call::new(scene::call(Way::Registered, Size(toolbox, server, TEN.2)), Shape::Echo(100));
                client.check(&call, Shape::Echo(100));
            }
        }
        (millis(alone), millis(open))
    };
    let rounds: Vec<_> = (0..effort.rounds.min(5)).map(round).collect();
    let (alone, open) =
        (median(rounds.iter().map(|round| round.0)), median(rounds.iter().map(|round| round.1)));
    let rows = [vec![format!("{alone:.1}"), format!("{open:.1}"), format!("{:.1}", open - alone)]];
    let head = ["50 servers alone ms", "ten opens at once ms", "overhead ms"];
    table::print(
        "10 toolboxes × 5 servers × 20 tools, opened together",
        "Every server is called once afterwards, and its answer checked.",
        &head,
        &rows,
    );
}
