//! Around the oracle: its journals, its clock, and what all clients found together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::oracle::{Call, End, Event, Finding, Oracle, Promise, Why};

/// All clients together.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) calls: AtomicU64,
    pub(crate) own_answers: AtomicU64,
    /// Errors, by what explains them: a fault of the answer, the end of the server, its being down.
    pub(crate) errors: [AtomicU64; 3],
    pub(crate) cancelled: AtomicU64,
    pub(crate) broken: Mutex<BTreeMap<Promise, u64>>,
}

/// Broken promises that are shown.
const SHOWN: u64 = 20;

impl Totals {
    fn count(&self, promise: Promise, what: &str) {
        let mut broken = self.broken.lock().expect("no panic");
        if broken.values().sum::<u64>() < SHOWN {
            eprintln!("chaos: {promise:?}: {what}");
        }
        *broken.entry(promise).or_default() += 1;
    }

    /// How many promises were broken.
    pub(crate) fn is_kept(&self) -> bool {
        self.broken.lock().expect("no panic").is_empty()
    }
}

/// One client and its oracle.
pub(crate) struct Ledger<'a> {
    totals: &'a Totals,
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    oracle: Oracle,
    journals: Vec<Journal>,
    /// The tools that no open call uses.
    free: Vec<String>,
    /// Whether the gateway has closed its end.
    ended: bool,
}

/// What a server writes about itself.
struct Journal {
    file: File,
    rest: String,
}

impl<'a> Ledger<'a> {
    /// A client that may use these tools, each for one call at a time, of the servers with these journals.
    pub(crate) fn new(totals: &'a Totals, journals: &[impl AsRef<Path>], tools: Vec<String>) -> Self {
        let open = |path: &Path| {
            let file = File::options().read(true).append(true).create(true).open(path);
            Journal { file: file.expect("the directory is ours"), rest: String::new() }
        };
        let journals: Vec<Journal> = journals.iter().map(|path| open(path.as_ref())).collect();
        let oracle = Oracle::new(journals.len());
        let state = State { oracle, journals, free: tools, ended: false };
        Self { totals, began: Instant::now(), state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A tool for the next call, if one is free by then.
    pub(crate) fn tool(&self, by: Instant) -> Option<String> {
        let state = self.state.lock().expect("no panic");
        let left = by.saturating_duration_since(Instant::now());
        let none = |state: &mut State| state.free.is_empty();
        let mut state = self.changed.wait_timeout_while(state, left, none).expect("no panic").0;
        state.free.pop()
    }

    /// Notes a call that is about to be sent.
    pub(crate) fn sent(&self, id: &str, call: Call) {
        self.totals.calls.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock().expect("no panic");
        let mut findings = Vec::new();
        let server = call.server;
        state.read_journal(server, self.began.elapsed(), &mut findings);
        findings.extend(state.oracle.take(self.began.elapsed(), Event::Sent(id, call)));
        self.count(state, findings);
    }

    /// Notes that a call is cancelled, behind which this ping is sent; `false`: it has been answered.
    pub(crate) fn cancel(&self, id: &str, fence: u64) -> bool {
        let mut state = self.state.lock().expect("no panic");
        state.oracle.take(self.began.elapsed(), Event::Cancelled(id, fence));
        state.oracle.is_open(id)
    }

    /// How errors name an open call.
    pub(crate) fn label(&self, id: &str) -> Option<String> {
        self.state.lock().expect("no panic").oracle.label(id)
    }

    /// Takes a message of the gateway. Returns the calls that it ended because their server is down.
    pub(crate) fn take(&self, message: &[u8]) -> Vec<Call> {
        let mut state = self.state.lock().expect("no panic");
        let mut findings = Vec::new();
        // Only errors need the journals. A server writes to its own before it does anything wrong.
        if memchr::memmem::find(message, b"rror\"").is_some() {
            for server in 0..state.journals.len() {
                state.read_journal(server, self.began.elapsed(), &mut findings);
            }
        }
        findings.extend(state.oracle.take(self.began.elapsed(), Event::Message(message)));
        self.count(state, findings)
    }

    /// Nothing more can come for this call.
    pub(crate) fn over(&self, id: &str) {
        let mut state = self.state.lock().expect("no panic");
        let findings = state.oracle.take(self.began.elapsed(), Event::Over(id));
        self.count(state, findings);
    }

    /// Nothing more can come at all.
    pub(crate) fn ended(&self) {
        self.state.lock().expect("no panic").ended = true;
        self.changed.notify_all();
    }

    /// Waits until everything is answered; what is not within `patience` is lost.
    pub(crate) fn settle(&self, patience: Duration) {
        let state = self.state.lock().expect("no panic");
        let waits = |state: &mut State| !state.oracle.waiting().is_empty() && !state.ended;
        let mut state = self.changed.wait_timeout_while(state, patience, waits).expect("no panic").0;
        let mut findings = Vec::new();
        for id in state.oracle.waiting() {
            findings.extend(state.oracle.take(self.began.elapsed(), Event::Over(&id)));
        }
        self.count(state, findings);
    }

    /// Counts what was found and returns the calls that ended because their server is down.
    fn count(&self, mut state: MutexGuard<'_, State>, findings: Vec<Finding>) -> Vec<Call> {
        let mut down = Vec::new();
        for finding in findings {
            let (call, end) = match finding {
                Finding::Broken(promise, what) => {
                    self.totals.count(promise, &what);
                    continue;
                }
                Finding::Ended(call, end) => (*call, end),
            };
            state.free.push(call.tool.clone());
            let counter = match end {
                End::Answer => &self.totals.own_answers,
                End::Error(why) => &self.totals.errors[why as usize],
                End::Cancelled => &self.totals.cancelled,
                End::Broken => continue,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            if matches!(end, End::Error(Why::Ended | Why::Down)) {
                down.push(call);
            }
        }
        drop(state);
        self.changed.notify_all();
        down
    }
}

impl State {
    /// Tells the oracle what a server has written since.
    fn read_journal(&mut self, server: usize, at: Duration, findings: &mut Vec<Finding>) {
        let Self { oracle, journals, .. } = self;
        let Journal { file, rest } = &mut journals[server];
        file.read_to_string(rest).expect("journals are text");
        let whole = rest.rfind('\n').map_or(0, |end| end + 1);
        for line in rest[..whole].lines() {
            findings.extend(oracle.take(at, Event::Journal(server, line)));
        }
        rest.drain(..whole);
    }
}
