//! What has happened, as the pages show it: the last calls, ten minutes second by second, and counts by server,
//! tool and client. The gateway's events or the journal's lines feed it; every tab reads it.
//!
//! Invariant: everything is kept by group, so that whoever may see some groups is told of nothing else.
//! Invariant: what is kept has bounds, whatever clients and servers call themselves.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::door::Pass;
use crate::events::{AnsweredCall, Fact, Happening, Millis, ServerPath, Subject, write_ms};
use crate::json::write_string;
use crate::protocol::message::write_number;

/// How many calls are kept.
const CALLS: usize = 500;
/// How many seconds the plots show.
const SECONDS: u64 = 600;
/// How many seconds each point of a plot stands for.
const PER_SLOT: u64 = 5;
/// How many seconds the latest values are of.
const LATEST: u64 = 10;
/// How many tools, and how many clients, are counted in each group.
const COUNTED: usize = 2000;
/// How many of the busiest and of the slowest tools are shown.
const TOP: usize = 5;

/// A call with its number.
pub(super) type NumberedCall = (u64, Arc<Happening>);

/// What has happened.
#[derive(Default)]
pub(super) struct Chronicle {
    /// The last calls, each with its number.
    calls: VecDeque<NumberedCall>,
    /// The number of the next call.
    next: u64,
    groups: BTreeMap<Arc<str>, GroupRecord>,
}

#[derive(Default)]
struct GroupRecord {
    /// When the first call began.
    since: Option<Millis>,
    /// The seconds in which calls ended, oldest first.
    seconds: VecDeque<Second>,
    servers: HashMap<Arc<str>, ServerRecord>,
    tools: HashMap<(Arc<str>, Box<str>), ToolRecord>,
    /// By session and name, since modern clients with the same credentials share a session.
    visitors: HashMap<(Arc<str>, Box<str>), Visitor>,
}

/// What is known of a server from events.
#[derive(Default, Clone)]
pub(super) struct ServerRecord {
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) last: Option<LastChange>,
}

/// The last change in a server's life.
#[derive(Clone)]
pub(super) struct LastChange {
    pub(super) time: Millis,
    pub(super) state: &'static str,
    /// Why it failed; empty if it has not.
    pub(super) reason: Box<str>,
}

#[derive(Default)]
struct ToolRecord {
    calls: u64,
    errors: u64,
    spread: Spread,
}

/// A client that has called something.
#[derive(Clone)]
struct Visitor {
    since: Millis,
    calls: u64,
}

struct Second {
    at: u64,
    ok: u32,
    failed: u32,
    spread: Spread,
}

/// How long calls took: the steps of an eighth of an octave in which some ended, in order, and how many did.
#[derive(Default, Clone)]
struct Spread(Vec<(u8, u32)>);

impl Spread {
    fn add(&mut self, ms: f64) {
        let step = ((ms.max(1.0 / 16.0).log2() + 4.0) * 8.0).round();
        self.count(step as u8, 1);
    }

    fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(step, count)| self.count(*step, *count));
    }

    fn count(&mut self, step: u8, count: u32) {
        match self.0.binary_search_by_key(&step, |(step, _)| *step) {
            Ok(place) => self.0[place].1 += count,
            Err(place) => self.0.insert(place, (step, count)),
        }
    }

    /// The time that this part of all calls did not exceed.
    fn percentile(&self, part: f64) -> Option<f64> {
        let total: u64 = self.0.iter().map(|(_, count)| u64::from(*count)).sum();
        let wanted = (total as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        let step = self.0.iter().find_map(|(step, count)| {
            seen += u64::from(*count);
            (seen >= wanted).then_some(*step)
        })?;
        Some(rounded((f64::from(step) / 8.0 - 4.0).exp2()))
    }
}

fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

impl Chronicle {
    /// Takes in what has happened.
    pub(super) fn add(&mut self, happening: Arc<Happening>) {
        match &happening.fact {
            Fact::Call(call) => {
                self.group(&call.server).add(happening.time, call);
                self.calls.push_back((self.next, happening.clone()));
                self.next += 1;
                if self.calls.len() > CALLS {
                    self.calls.pop_front();
                }
            }
            Fact::Start(start) => self.changed(&start.server, happening.time, "running", ""),
            Fact::Fail(failure) => self.changed(&failure.server, happening.time, "failed", &failure.reason),
            Fact::Crash(end) => self.changed(&end.server, happening.time, "failed", &end.reason),
            Fact::End(end) => self.changed(&end.server, happening.time, "idle", ""),
            Fact::Open(_) | Fact::Reload(_) => {}
        }
    }

    fn changed(&mut self, server: &ServerPath, time: Millis, state: &'static str, reason: &str) {
        let known = self.group(server).servers.entry(server.server.clone()).or_default();
        known.last = Some(LastChange { time, state, reason: reason.into() });
    }

    fn group(&mut self, server: &ServerPath) -> &mut GroupRecord {
        self.groups.entry(server.group.clone()).or_default()
    }

    fn seen_by<'a>(&'a self, pass: &'a Pass) -> impl Iterator<Item = (&'a Arc<str>, &'a GroupRecord)> {
        self.groups.iter().filter(|(group, _)| pass.admits(group))
    }

    /// What is known of a server.
    pub(super) fn server(&self, group: &str, server: &str) -> ServerRecord {
        let known = self.groups.get(group).and_then(|group| group.servers.get(server));
        known.cloned().unwrap_or_default()
    }

    /// The number that the next call will have.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The calls from this number on that may be seen. `None`: some of them are no longer kept.
    pub(super) fn calls_from(&self, number: u64, pass: &Pass) -> Option<Vec<NumberedCall>> {
        let first = self.calls.front().map_or(self.next, |(number, _)| *number);
        (number >= first).then(|| self.calls_seen(number, pass))
    }

    /// The calls that are kept, from this number on.
    pub(super) fn calls_seen(&self, number: u64, pass: &Pass) -> Vec<NumberedCall> {
        let skipped = self.calls.partition_point(|(own, _)| *own < number);
        let may_see = |happening: &Happening| happening.server().is_some_and(|of| pass.admits(&of.group));
        self.calls.iter().skip(skipped).filter(|(_, happening)| may_see(happening)).cloned().collect()
    }

    /// The call with this number.
    pub(super) fn call(&self, number: u64, pass: &Pass) -> Option<Arc<Happening>> {
        let at = self.calls.binary_search_by_key(&number, |(own, _)| *own).ok()?;
        let (_, happening) = &self.calls[at];
        happening.server().is_some_and(|server| pass.admits(&server.group)).then(|| happening.clone())
    }

    /// How many calls a client has made in a session.
    pub(super) fn calls_of(&self, session: &Arc<str>, name: &str) -> u64 {
        let key = (session.clone(), name.into());
        self.groups.values().filter_map(|group| group.visitors.get(&key)).map(|visitor| visitor.calls).sum()
    }

    /// The clients that have called something.
    pub(super) fn visitors(&self, pass: &Pass) -> Vec<Value> {
        let mut all: BTreeMap<&(Arc<str>, Box<str>), Visitor> = BTreeMap::new();
        for (_, group) in self.seen_by(pass) {
            for (client, visitor) in &group.visitors {
                let known = all.entry(client).or_insert_with(|| Visitor { calls: 0, ..visitor.clone() });
                known.since = known.since.min(visitor.since);
                known.calls += visitor.calls;
            }
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|(_, visitor)| std::cmp::Reverse(visitor.since));
        let rows = all.into_iter().map(|((session, name), visitor)| {
            let Visitor { since, calls } = visitor;
            json!({"key": format!("{session} {name}"), "name": name, "since": since, "calls": calls})
        });
        rows.collect()
    }

    /// How much was called, and which tools are busiest and slowest.
    pub(super) fn totals(&self, pass: &Pass) -> Value {
        let servers = self.seen_by(pass).flat_map(|(_, group)| group.servers.values());
        let (calls, errors) =
            servers.fold((0, 0), |(calls, errors), server| (calls + server.calls, errors + server.errors));
        let tools = self.seen_by(pass).flat_map(|(group, record)| {
            record.tools.iter().filter_map(move |((server, tool), known)| {
                Some((known, known.spread.percentile(0.95)?, (group, server, tool)))
            })
        });
        type Counted<'a> = (&'a ToolRecord, f64, (&'a Arc<str>, &'a Arc<str>, &'a Box<str>));
        let mut tools: Vec<Counted<'_>> = tools.collect();
        let top = |tools: &[Counted<'_>]| -> Vec<Value> {
            let row = |(known, p95, (group, server, tool)): &Counted<'_>| {
                json!({
                    "group": &***group, "server": &***server, "tool": tool, "calls": known.calls,
                    "errors": known.errors, "p50": known.spread.percentile(0.5), "p95": p95,
                })
            };
            tools.iter().take(TOP).map(row).collect()
        };
        tools.sort_by(|one, other| other.0.calls.cmp(&one.0.calls).then_with(|| one.2.cmp(&other.2)));
        let busy = top(&tools);
        tools.sort_by(|one, other| other.1.total_cmp(&one.1).then_with(|| one.2.cmp(&other.2)));
        let since = self.seen_by(pass).filter_map(|(_, group)| group.since).min();
        json!({"calls": calls, "errors": errors, "since": since, "busy": busy, "slow": top(&tools)})
    }

    /// The last ten minutes.
    pub(super) fn plot(&self, pass: &Pass, now: Millis) -> Value {
        // The last slot is the one that is not over yet.
        let end = (now / 1000 / PER_SLOT + 1) * PER_SLOT;
        let (begin, slots) = (end.saturating_sub(SECONDS), (SECONDS / PER_SLOT) as usize);
        let (mut ok, mut failed) = (vec![0u32; slots], vec![0u32; slots]);
        let mut spreads = vec![Spread::default(); slots];
        let (mut latest_ok, mut latest_failed, mut latest) = (0, 0, Spread::default());
        for second in self.seen_by(pass).flat_map(|(_, group)| &group.seconds) {
            let Some(slot) = second.at.checked_sub(begin).map(|past| (past / PER_SLOT) as usize) else {
                continue;
            };
            let slot = slot.min(slots - 1);
            ok[slot] += second.ok;
            failed[slot] += second.failed;
            spreads[slot].merge(&second.spread);
            if second.at + LATEST >= now / 1000 {
                latest_ok += second.ok;
                latest_failed += second.failed;
                latest.merge(&second.spread);
            }
        }
        let each = |part: f64| spreads.iter().map(|spread| spread.percentile(part)).collect::<Vec<_>>();
        json!({
            "slots": slots, "seconds": PER_SLOT,
            "ok": ok, "failed": failed, "p50": each(0.5), "p95": each(0.95),
            "latest": {
                "seconds": LATEST, "ok": latest_ok, "failed": latest_failed,
                "p50": latest.percentile(0.5), "p95": latest.percentile(0.95),
            },
        })
    }
}

impl GroupRecord {
    fn add(&mut self, begun: Millis, call: &AnsweredCall) {
        let is_failure = call.outcome.is_failure();
        self.since = Some(self.since.map_or(begun, |since| since.min(begun)));
        let server = self.servers.entry(call.server.server.clone()).or_default();
        server.calls += 1;
        server.errors += u64::from(is_failure);
        let second = self.second((begun + call.ms as u64) / 1000);
        match is_failure {
            true => second.failed += 1,
            false => second.ok += 1,
        }
        second.spread.add(call.ms);
        if let Subject::Tool(tool) = &call.subject {
            let key = (call.server.server.clone(), tool.clone());
            if self.tools.len() < COUNTED || self.tools.contains_key(&key) {
                let tool = self.tools.entry(key).or_default();
                tool.calls += 1;
                tool.errors += u64::from(is_failure);
                tool.spread.add(call.ms);
            }
        }
        let client = (call.who.session.clone(), call.who.client.clone());
        if self.visitors.len() < COUNTED || self.visitors.contains_key(&client) {
            let visitor = self.visitors.entry(client).or_insert(Visitor { since: begun, calls: 0 });
            visitor.since = visitor.since.min(begun);
            visitor.calls += 1;
        }
    }

    /// The second, which is new unless something has ended in it already.
    fn second(&mut self, at: u64) -> &mut Second {
        let newest = self.seconds.back().map_or(at, |second| second.at.max(at));
        while self.seconds.front().is_some_and(|second| second.at + SECONDS + PER_SLOT < newest) {
            self.seconds.pop_front();
        }
        let place = self.seconds.partition_point(|second| second.at < at);
        if self.seconds.get(place).is_none_or(|second| second.at != at) {
            self.seconds.insert(place, Second { at, ok: 0, failed: 0, spread: Spread::default() });
        }
        &mut self.seconds[place]
    }
}

/// Calls as the table shows them, as JSON. They are written by hand, because a busy gateway has hundreds for each look
/// of each tab, and whoever makes them takes the processor from calls.
pub(super) fn write_calls(out: &mut Vec<u8>, calls: &[NumberedCall]) {
    out.push(b'[');
    for (place, (number, happening)) in calls.iter().enumerate() {
        let Fact::Call(call) = &happening.fact else { continue };
        out.extend_from_slice(if place > 0 { b",{\"n\":" } else { b"{\"n\":" });
        write_number(out, *number);
        out.extend_from_slice(b",\"time\":");
        write_number(out, happening.time);
        for (key, text) in [
            (&b",\"kind\":"[..], happening.kind()),
            (b",\"client\":", &call.who.client),
            (b",\"group\":", &call.server.group),
            (b",\"server\":", &call.server.server),
            (b",\"what\":", call.subject.name()),
            (b",\"outcome\":", call.outcome.as_str()),
        ] {
            out.extend_from_slice(key);
            write_string(out, text);
        }
        if let Some(error) = call.error {
            out.extend_from_slice(b",\"error\":");
            write_string(out, &error.to_string());
        }
        out.extend_from_slice(b",\"ms\":");
        // The page shows hundredths.
        write_ms(out, (call.ms * 100.0).round() as u64 * 10);
        out.extend_from_slice(b",\"sent\":");
        write_number(out, call.bytes_in);
        out.extend_from_slice(b",\"size\":");
        write_number(out, call.bytes_out);
        out.push(b'}');
    }
    out.push(b']');
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::locate::FaceKind;
    use crate::events::{CallOutcome, ErrorType, Who};

    const ALL: Pass = Pass { groups: None, principal: String::new() };

    fn only(group: &str) -> Pass {
        Pass { groups: Some(vec![group.to_owned()]), ..ALL }
    }

    /// A call of the tool `tool` in this group.
    pub(in super::super) fn call(time: Millis, group: &str, ms: f64, outcome: CallOutcome) -> Arc<Happening> {
        let who = Who { client: "client".into(), session: format!("session of {group}").into(), token: None };
        let call = AnsweredCall {
            who: Arc::new(who),
            server: ServerPath { group: group.into(), server: "server".into() },
            subject: Subject::Tool("tool".into()),
            ms,
            outcome,
            error: None,
            bytes_in: 1,
            bytes_out: 2,
            arguments: None,
            result: None,
        };
        Arc::new(Happening { time, face: FaceKind::Workbench, pid: 1, fact: Fact::Call(call) })
    }

    #[test]
    fn whoever_may_see_a_group_is_told_of_nothing_else() {
        let mut record = Chronicle::default();
        for n in 0..10 {
            let group = if n % 2 == 0 { "dev" } else { "ops" };
            record.add(call(1_000_000 + n, group, 100.0 + n as f64, CallOutcome::Error));
        }
        let pass = only("dev");
        assert_eq!(record.calls_seen(0, &pass).len(), 5);
        let is_dev = |call: &NumberedCall| call.1.server().is_some_and(|server| &*server.group == "dev");
        assert!(record.calls_seen(0, &pass).iter().all(is_dev));
        assert_eq!(record.totals(&pass)["calls"], 5);
        assert_eq!(record.visitors(&pass).len(), 1);
        assert!(record.call(0, &pass).is_some() && record.call(1, &pass).is_none());
        let plot = record.plot(&pass, 1_001_000);
        assert_eq!(
            plot["failed"].as_array().expect("a list").iter().filter_map(Value::as_u64).sum::<u64>(),
            5
        );
        assert_eq!(
            record.totals(&only("none")),
            json!({"calls": 0, "errors": 0, "since": null, "busy": [], "slow": []})
        );
        assert_eq!(record.totals(&ALL)["errors"], 10);
    }

    #[test]
    fn whoever_falls_behind_is_told() {
        let mut record = Chronicle::default();
        for n in 0..CALLS as u64 + 10 {
            record.add(call(n, "dev", 1.0, CallOutcome::Ok));
        }
        assert_eq!(record.calls_from(record.next(), &ALL), Some(Vec::new()));
        assert_eq!(record.calls_from(record.next() - 3, &ALL).map(|calls| calls.len()), Some(3));
        assert_eq!(record.calls_from(9, &ALL), None);
        assert_eq!(record.calls_seen(0, &ALL).len(), CALLS);
        assert_eq!(record.calls_seen(0, &ALL)[0].0, 10);
    }

    #[test]
    fn calls_are_written_as_json() {
        let mut hostile = (*call(7, "de\"v", 12.345, CallOutcome::Error)).clone();
        if let Fact::Call(call) = &mut hostile.fact {
            (call.error, call.subject) = (Some(ErrorType::Code(-1)), Subject::Resource("a\u{202e}\n".into()));
        }
        let calls = [(3, call(5, "dev", 0.5, CallOutcome::Ok)), (4, Arc::new(hostile))];
        let mut written = Vec::new();
        write_calls(&mut written, &calls);
        let row = |n, time, kind, group, what, outcome, error: Value, ms| {
            let mut row = json!({
                "n": n, "time": time, "kind": kind, "client": "client", "group": group, "server": "server",
                "what": what, "outcome": outcome, "error": error, "ms": ms, "sent": 1, "size": 2,
            });
            if error.is_null() {
                row.as_object_mut().expect("an object").remove("error");
            }
            row
        };
        let expected = json!([
            row(3, 5, "call", "dev", "tool", "ok", Value::Null, 0.5),
            row(4, 7, "read", "de\"v", "a\u{202e}\n", "error", "-1".into(), 12.35),
        ]);
        assert_eq!(serde_json::from_slice::<Value>(&written).expect("JSON"), expected);
        written.clear();
        write_calls(&mut written, &[]);
        assert_eq!(written, b"[]");
    }

    #[test]
    fn plots_are_of_the_last_ten_minutes() {
        let mut record = Chronicle::default();
        let now = 10_000_000;
        for (ago, ms, outcome) in [
            (700, 1.0, CallOutcome::Ok),
            (300, 1000.0, CallOutcome::Ok),
            (2, 10.0, CallOutcome::Ok),
            (2, 100.0, CallOutcome::Cancelled),
            (1, 100.0, CallOutcome::ToolError),
        ] {
            record.add(call(now - ago * 1000, "dev", ms, outcome));
        }
        let plot = record.plot(&ALL, now);
        let sum =
            |key: &str| plot[key].as_array().expect("a list").iter().filter_map(Value::as_u64).sum::<u64>();
        assert_eq!((sum("ok"), sum("failed")), (3, 1));
        let latest = &plot["latest"];
        assert_eq!((&latest["ok"], &latest["failed"]), (&json!(2), &json!(1)));
        let near = |key: &str, expected: f64| {
            (latest[key].as_f64().expect("a number") / expected - 1.0).abs() < 0.05
        };
        assert!(near("p50", 100.0) && near("p95", 100.0), "{latest}");
        let quiet = record.plot(&ALL, now + 60_000);
        assert_eq!(quiet["latest"]["p50"], Value::Null);
        let later = record.plot(&ALL, now + 3_600_000);
        assert_eq!(later["ok"].as_array().expect("a list").iter().filter_map(Value::as_u64).sum::<u64>(), 0);
    }

    #[test]
    fn what_is_kept_has_bounds() {
        let mut record = Chronicle::default();
        for n in 0..COUNTED as u64 + 100 {
            let mut happening = (*call(n * 2000, "dev", 1.0, CallOutcome::Ok)).clone();
            if let Fact::Call(call) = &mut happening.fact {
                call.subject = Subject::Tool(format!("tool {n}").into());
                let session = format!("{n}").into();
                call.who = Arc::new(Who { session, ..(*call.who).clone() });
            }
            record.add(Arc::new(happening));
        }
        let group = &record.groups["dev"];
        assert_eq!((group.tools.len(), group.visitors.len()), (COUNTED, COUNTED));
        assert!(group.seconds.len() <= SECONDS as usize);
        assert_eq!(record.totals(&ALL)["calls"], COUNTED + 100);
    }
}
