//! Counts calls by server and by tool. `stats` and the console add happenings, of files or of now, and read rows.

use std::collections::HashMap;

use super::happening::{AnsweredCall, Fact, Happening, ServerPath, Subject};

/// The calls of a time.
#[derive(Debug, Default)]
pub struct Tally {
    servers: HashMap<ServerPath, Counted>,
    tools: HashMap<(ServerPath, Box<str>), Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    errors: u64,
    bytes_out: u64,
    times: Vec<f64>,
}

/// The calls of one server, or of one of its tools.
#[derive(Debug, Clone, PartialEq)]
pub struct TallyRow {
    /// The server.
    pub server: ServerPath,
    /// The tool; `None` for all of the server.
    pub tool: Option<Box<str>>,
    /// How many calls there were.
    pub calls: u64,
    /// How many of them failed.
    pub errors: u64,
    /// The time that half of them took at most, in milliseconds.
    pub p50: f64,
    /// The time that 95 % of them took at most.
    pub p95: f64,
    /// The time that 99 % of them took at most.
    pub p99: f64,
    /// The bytes of all their answers.
    pub bytes_out: u64,
}

impl Tally {
    /// Counts it, if it is a call. Resource reads and prompt gets count for their server.
    pub fn add(&mut self, happening: &Happening) {
        let Fact::Call(call) = &happening.fact else { return };
        self.servers.entry(call.server.clone()).or_default().add(call);
        if let Subject::Tool(tool) = &call.subject {
            self.tools.entry((call.server.clone(), tool.clone())).or_default().add(call);
        }
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.servers.values().map(|counted| counted.times.len() as u64).sum()
    }

    /// How many calls failed.
    pub fn errors(&self) -> u64 {
        self.servers.values().map(|counted| counted.errors).sum()
    }

    /// A row for each server, busiest first.
    pub fn servers(&self) -> Vec<TallyRow> {
        sorted(self.servers.iter().map(|(server, counted)| counted.row(server.clone(), None)).collect())
    }

    /// A row for each tool, busiest first.
    pub fn tools(&self) -> Vec<TallyRow> {
        let rows = self
            .tools
            .iter()
            .map(|((server, tool), counted)| counted.row(server.clone(), Some(tool.clone())));
        sorted(rows.collect())
    }
}

impl Counted {
    fn add(&mut self, call: &AnsweredCall) {
        self.errors += u64::from(call.outcome.is_failure());
        self.bytes_out += call.bytes_out;
        self.times.push(call.ms);
    }

    fn row(&self, server: ServerPath, tool: Option<Box<str>>) -> TallyRow {
        let mut times = self.times.clone();
        times.sort_unstable_by(f64::total_cmp);
        let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| percentile(&times, share));
        let (calls, errors) = (times.len() as u64, self.errors);
        TallyRow { server, tool, calls, errors, p50, p95, p99, bytes_out: self.bytes_out }
    }
}

/// Busiest first; those that are equally busy by name.
fn sorted(mut rows: Vec<TallyRow>) -> Vec<TallyRow> {
    rows.sort_by(|one, other| {
        let name = |row: &TallyRow| (row.server.clone(), row.tool.clone());
        other.calls.cmp(&one.calls).then_with(|| name(one).cmp(&name(other)))
    });
    rows
}

/// The smallest of the sorted values that this share of them does not exceed; 0 if there are none.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::locate::FaceKind;
    use crate::events::happening::{CallOutcome, Who};

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        for (values, share, expected) in [
            (&hundred[..], 0.5, 50.0),
            (&hundred, 0.95, 95.0),
            (&hundred, 0.99, 99.0),
            (&hundred, 1.0, 100.0),
            (&hundred[..1], 0.5, 1.0),
            (&hundred[..2], 0.5, 1.0),
            (&hundred[..3], 0.99, 3.0),
            (&[], 0.5, 0.0),
        ] {
            assert_eq!(percentile(values, share), expected, "{} {share}", values.len());
        }
    }

    #[test]
    fn calls_are_counted_by_server_and_by_tool() {
        let who = Arc::new(Who { client: "c".into(), session: "s".into(), token: None });
        let call = |server: &str, subject, ms, outcome| {
            let fact = Fact::Call(AnsweredCall {
                who: who.clone(),
                server: ServerPath { group: "dev".into(), server: server.into() },
                subject,
                ms,
                outcome,
                error: None,
                bytes_in: 1,
                bytes_out: 10,
                arguments: None,
                result: None,
            });
            Happening { time: 0, face: FaceKind::Workbench, pid: 1, fact }
        };
        let tool = |name: &str| Subject::Tool(name.into());
        let mut tally = Tally::default();
        for happening in [
            call("a", tool("x"), 5.0, CallOutcome::Ok),
            call("a", Subject::Resource("u".into()), 1.0, CallOutcome::Cancelled),
            call("b", tool("x"), 2.0, CallOutcome::ToolError),
            call("b", tool("x"), 4.0, CallOutcome::Lost),
            call("b", tool("y"), 3.0, CallOutcome::Error),
        ] {
            tally.add(&happening);
        }
        assert_eq!((tally.calls(), tally.errors()), (5, 3));
        let short = |rows: Vec<TallyRow>| -> Vec<_> {
            let row = |row: TallyRow| {
                (
                    row.server.server.to_string(),
                    row.tool.map(String::from),
                    row.calls,
                    row.errors,
                    row.p50,
                    row.bytes_out,
                )
            };
            rows.into_iter().map(row).collect()
        };
        let server = |name: &str| name.to_owned();
        assert_eq!(
            short(tally.servers()),
            [(server("b"), None, 3, 3, 3.0, 30), (server("a"), None, 2, 0, 1.0, 20)]
        );
        let tool = |name: &str| Some(name.to_owned());
        assert_eq!(
            short(tally.tools()),
            [
                (server("b"), tool("x"), 2, 2, 2.0, 20),
                (server("a"), tool("x"), 1, 0, 5.0, 10),
                (server("b"), tool("y"), 1, 1, 3.0, 10)
            ]
        );
    }
}
