//! The oracle: what a client has asked, and whether each answer is the one that it was promised.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::fault::Fault;

/// A call as it was sent.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// A text that no other call has; its own answer is this and nothing else.
    pub(crate) mark: String,
    /// Toolbox, server and tool, as every error names them.
    pub(crate) label: String,
    /// What its server was told to do wrong.
    pub(crate) fault: Option<Fault>,
}

/// All clients together.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) calls: AtomicU64,
    pub(crate) faults: Mutex<BTreeMap<Fault, u64>>,
    pub(crate) own_answers: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) misrouted: AtomicU64,
    pub(crate) duplicated: AtomicU64,
    pub(crate) after_cancellation: AtomicU64,
    told: AtomicU64,
}

impl Totals {
    /// Notes a call that is about to be sent.
    pub(crate) fn sent(&self, asked: &Asked) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(fault) = asked.fault {
            *self.faults.lock().expect("no panic").entry(fault).or_default() += 1;
        }
    }

    /// Judges what came for a call: an own answer, an error of its own, or somebody else's. `true`: an error.
    pub(crate) fn judge(&self, asked: &Asked, message: &Message<'_>) -> bool {
        let expected = match asked.fault {
            Some(Fault::Large) => asked.mark.len() + 60_000,
            _ => asked.mark.len(),
        };
        let result = message.result.and_then(|result| serde_json::from_str::<Outcome>(result.get()).ok());
        let text = result.as_ref().and_then(|result| result.content.first()).map(|block| &*block.text);
        match (&result, text) {
            (Some(result), Some(text)) if !result.is_error => {
                if text.len() == expected && text.starts_with(&asked.mark) {
                    self.own_answers.fetch_add(1, Ordering::Relaxed);
                } else {
                    self.count(&self.misrouted, &format!("{asked:?} got {text:.200}"));
                }
                false
            }
            (Some(_), Some(text)) => {
                let own = text.contains(&asked.label) && !names_another(text, &asked.mark);
                if own {
                    self.errors.fetch_add(1, Ordering::Relaxed);
                } else {
                    self.count(&self.misrouted, &format!("{asked:?} got the error {text:.400}"));
                }
                true
            }
            _ if message.error.is_some() => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                true
            }
            _ => {
                self.count(&self.misrouted, &format!("{asked:?} got something else"));
                false
            }
        }
    }

    /// Counts a broken promise; the first few are shown.
    pub(crate) fn count(&self, counter: &AtomicU64, what: &str) {
        counter.fetch_add(1, Ordering::Relaxed);
        if self.told.fetch_add(1, Ordering::Relaxed) < 20 {
            eprintln!("chaos: {what}");
        }
    }

    /// How many promises were broken.
    pub(crate) fn broken(&self) -> u64 {
        [&self.lost, &self.misrouted, &self.duplicated, &self.after_cancellation]
            .iter()
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum()
    }
}

/// Whether a text holds the mark of another call. What crashed tells of the call that it crashed over.
fn names_another(text: &str, mark: &str) -> bool {
    let told = text.split("last lines of its stderr").next().unwrap_or_default();
    told.match_indices("mark-").any(|(at, _)| !told[at..].starts_with(mark))
}

/// One client over stdio: its open calls by id.
pub(crate) struct Ledger<'a> {
    totals: &'a Totals,
    state: Mutex<State>,
    answered: Condvar,
    /// Whether the gateway has closed its end.
    pub(crate) ended: AtomicBool,
}

#[derive(Default)]
struct State {
    open: HashMap<String, Asked>,
    /// Cancelled calls by the number of the ping that was sent behind the cancellation. Until that one is answered
    /// their answers may have been on their way.
    crossing: BTreeMap<u64, String>,
    cancelled: HashSet<String>,
}

/// What matters of a message.
#[derive(Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) method: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Outcome {
    #[serde(default)]
    content: Vec<Block>,
    #[serde(default, rename = "isError")]
    is_error: bool,
}

#[derive(Deserialize)]
struct Block {
    #[serde(default)]
    text: String,
}

/// The ids of pings begin so.
const FENCE: &str = "\"fence-";

impl<'a> Ledger<'a> {
    pub(crate) fn new(totals: &'a Totals) -> Self {
        Self { totals, state: Mutex::default(), answered: Condvar::new(), ended: AtomicBool::new(false) }
    }

    /// Notes a call that is about to be sent; waits until less than `most` are open.
    pub(crate) fn open(&self, id: &str, asked: Asked, most: usize) {
        let state = self.state.lock().expect("no panic");
        let full = |state: &mut State| state.open.len() >= most && !self.ended.load(Ordering::Relaxed);
        let waited = self.answered.wait_timeout_while(state, Duration::from_secs(60), full);
        let mut state = waited.expect("no panic").0;
        self.totals.sent(&asked);
        state.open.insert(id.to_owned(), asked);
    }

    /// Notes that a call is cancelled, behind which this ping is sent; `false`: it has been answered.
    pub(crate) fn cancel(&self, id: &str, fence: u64) -> bool {
        let mut state = self.state.lock().expect("no panic");
        let open = state.open.contains_key(id);
        if open {
            state.crossing.insert(fence, id.to_owned());
        }
        open
    }

    /// The id of a ping.
    pub(crate) fn fence(number: u64) -> String {
        format!("{FENCE}{number}\"")
    }

    /// Takes a message of the gateway. Returns the call that it answered with an error.
    pub(crate) fn take(&self, line: &[u8]) -> Option<Asked> {
        let Ok(message) = serde_json::from_slice::<Message>(line) else {
            let line = String::from_utf8_lossy(line);
            self.totals.count(&self.totals.misrouted, &format!("no message: {line:.200}"));
            return None;
        };
        let id = message.id.filter(|_| message.method.is_none())?.get();
        if let Some(number) = id.strip_prefix(FENCE).and_then(|rest| rest.strip_suffix('"')) {
            self.passed(number.parse().expect("a number of ours"));
            return None;
        }
        let (asked, was_cancelled) = {
            let mut state = self.state.lock().expect("no panic");
            (state.open.remove(id), state.cancelled.contains(id))
        };
        self.answered.notify_all();
        match asked {
            Some(asked) => self.totals.judge(&asked, &message).then_some(asked),
            None => {
                let counter =
                    if was_cancelled { &self.totals.after_cancellation } else { &self.totals.duplicated };
                let line = String::from_utf8_lossy(line);
                self.totals.count(counter, &format!("an answer too many: {line:.200}"));
                None
            }
        }
    }

    /// A ping was answered: what was cancelled before it may not be answered any more.
    fn passed(&self, fence: u64) {
        let mut state = self.state.lock().expect("no panic");
        let later = state.crossing.split_off(&(fence + 1));
        for id in std::mem::replace(&mut state.crossing, later).into_values() {
            if state.open.remove(&id).is_some() {
                self.totals.cancelled.fetch_add(1, Ordering::Relaxed);
                state.cancelled.insert(id);
            }
        }
        drop(state);
        self.answered.notify_all();
    }

    /// Waits until everything is answered; what is not within `patience` is lost.
    pub(crate) fn settle(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let state = self.state.lock().expect("no panic");
        let waits = |state: &mut State| !state.open.is_empty() && !self.ended.load(Ordering::Relaxed);
        let left = end.saturating_duration_since(Instant::now());
        let state = self.answered.wait_timeout_while(state, left, waits).expect("no panic").0;
        for asked in state.open.values() {
            self.totals.count(&self.totals.lost, &format!("never answered: {asked:?}"));
        }
    }
}
