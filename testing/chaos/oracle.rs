//! The oracle: from what was sent, what went wrong at the servers and what came back it tells which promises were
//! broken. It is pure: whoever drives it brings the time, the journals and the messages.
//!
//! An answer counts if it is the call's own, byte for byte. An error counts if it names the call's own tool, which no
//! other open call of that gateway uses, and says what the journal of its server shows: that this fault was injected
//! for this call, or that the server ended while the call was under way.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::fault::{Fault, Outcome};
use super::mark;

/// The `maxMessageBytes` and the `maxCallTime` that the gateways are told.
pub(crate) const LONGEST_MESSAGE: usize = 100_000;
pub(crate) const LONGEST_CALL: Duration = Duration::from_secs(10);
/// How long a server that keeps failing may be left alone.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The code of the gateway's errors where no answer came.
const LOST: i64 = -32000;
/// The code of its errors where it cannot use the answer.
const INTERNAL: i64 = -32603;

/// A call as it was sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    /// A text that no other call has.
    pub(crate) mark: String,
    /// The number of its server.
    pub(crate) server: usize,
    /// Its tool, which no other open call of the same gateway uses.
    pub(crate) tool: String,
    /// What its server is told to do wrong.
    pub(crate) fault: Option<Fault>,
    /// How often its server is told to report progress, and under which token (raw) it does.
    pub(crate) steps: u32,
    pub(crate) token: String,
    /// Whether its client is of the modern era.
    pub(crate) modern: bool,
}

impl Call {
    /// How errors name it.
    fn label(&self) -> String {
        format!("box/u{}/{}", self.server, self.tool)
    }
}

/// What happens, in this order, as seen by one client.
pub(crate) enum Event<'a> {
    /// A call is about to be sent under this id (raw).
    Sent(&'a str, Call),
    /// A server has written this line to its journal.
    Journal(usize, &'a str),
    /// The gateway has sent this.
    Message(&'a [u8]),
    /// A call is about to be cancelled, and the ping with this number is sent behind it. Until that is answered an
    /// answer of the call may be on its way.
    Cancelled(&'a str, u64),
    /// Nothing more can come for a call.
    Over(&'a str),
}

/// What follows from an event.
#[derive(Debug, Clone)]
pub(crate) enum Finding {
    /// A call has ended.
    Ended(Box<Call>, End),
    /// A promise was broken, and how.
    Broken(Promise, String),
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Answer,
    Error(Why),
    Cancelled,
    /// As none may.
    Broken,
}

/// What explains an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// What went wrong with the answer.
    Fault,
    /// The server ended while the call was under way.
    Ended,
    /// The server could not be started, or not yet.
    Down,
}

/// The promises, by how they are broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// No answer came.
    Lost,
    /// What came is not the call's own.
    Misrouted,
    /// An answer came again, or a call was sent to its server again.
    Duplicated,
    /// An answer came when the cancellation had long arrived.
    AfterCancellation,
    /// An error came where nothing had gone wrong, or something else.
    Unexplained,
    /// Progress came that is not the call's own or not the next, or did not come; or a message that nobody expects.
    Stray,
}

impl Promise {
    /// Every one, and how the report names it.
    pub(crate) const ALL: [(Self, &str); 6] = [
        (Self::Lost, "lost"),
        (Self::Misrouted, "misrouted"),
        (Self::Duplicated, "duplicated"),
        (Self::AfterCancellation, "answered after cancellation"),
        (Self::Unexplained, "unexplained errors"),
        (Self::Stray, "stray messages"),
    ];
}

/// What one client has asked, and what is known of its gateway's servers.
pub(crate) struct Oracle {
    open: HashMap<String, Open>,
    /// Cancelled calls, by the ping behind the cancellation.
    crossing: BTreeMap<u64, String>,
    cancelled: HashSet<String>,
    servers: Vec<History>,
    /// What the gateway says of itself in every modern result (raw), once known.
    info: Option<String>,
}

/// A call that waits for its answer.
struct Open {
    call: Call,
    sent: Duration,
    /// The number of the server's life that was the latest when it was sent.
    life: usize,
    /// Reports of progress so far.
    heard: u32,
    cancelled: bool,
}

/// What a server's journal says.
#[derive(Default)]
struct History {
    /// How its lives ended; the last ones may go on.
    lives: Vec<Option<Death>>,
    /// What it did wrong, by the mark of the call.
    injected: HashMap<String, Fault>,
}

/// The end of a server's process.
struct Death {
    at: Duration,
    status: i32,
    /// The last line on its stderr.
    words: String,
    /// The mark of the call that it ended over.
    culprit: String,
}

/// What matters of a message.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Progress<'a> {
    #[serde(borrow, rename = "progressToken")]
    token: &'a RawValue,
}

/// A result that is an error of the gateway.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failed {
    content: [Block; 1],
    #[serde(rename = "isError")]
    is_error: bool,
    #[serde(rename = "_meta")]
    meta: FailedMeta,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    r#type: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailedMeta {
    #[serde(rename = "mcp-workbench/error")]
    error: ErrorObject,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorObject {
    code: i64,
    message: String,
    data: Option<Value>,
}

/// The ids of pings begin so.
const FENCE: &str = "\"fence-";

/// The id of a ping.
pub(crate) fn fence(number: u64) -> String {
    format!("{FENCE}{number}\"")
}

impl Oracle {
    /// A client of a gateway with so many servers.
    pub(crate) fn new(servers: usize) -> Self {
        Self {
            open: HashMap::new(),
            crossing: BTreeMap::new(),
            cancelled: HashSet::new(),
            servers: (0..servers).map(|_| History::default()).collect(),
            info: None,
        }
    }

    /// Whether a call waits for its answer.
    pub(crate) fn is_open(&self, id: &str) -> bool {
        self.open.contains_key(id)
    }

    /// How errors name an open call.
    pub(crate) fn label(&self, id: &str) -> Option<String> {
        self.open.get(id).map(|open| open.call.label())
    }

    /// The ids of the calls that wait for an answer.
    pub(crate) fn waiting(&self) -> Vec<String> {
        self.open.keys().cloned().collect()
    }

    /// Takes what has happened by this time.
    pub(crate) fn take(&mut self, at: Duration, event: Event<'_>) -> Vec<Finding> {
        match event {
            Event::Sent(id, call) => {
                let life = self.servers[call.server].lives.len();
                let open = Open { call, sent: at, life, heard: 0, cancelled: false };
                self.open.insert(id.to_owned(), open);
                Vec::new()
            }
            Event::Journal(server, line) => self.servers[server].note(at, line),
            Event::Message(text) => self.message(at, text),
            Event::Cancelled(id, fence) => {
                if let Some(open) = self.open.get_mut(id) {
                    open.cancelled = true;
                    self.crossing.insert(fence, id.to_owned());
                }
                Vec::new()
            }
            Event::Over(id) => match self.open.remove(id) {
                None => Vec::new(),
                Some(open) if open.cancelled => vec![ended(open, End::Cancelled)],
                Some(open) => {
                    let what = format!("never answered: {:?}", open.call);
                    vec![Finding::Broken(Promise::Lost, what), ended(open, End::Broken)]
                }
            },
        }
    }

    fn message(&mut self, at: Duration, text: &[u8]) -> Vec<Finding> {
        let broken = |promise, what: &str| {
            let text = String::from_utf8_lossy(text);
            vec![Finding::Broken(promise, format!("{what}: {text:.400}"))]
        };
        let message = match serde_json::from_slice::<Message<'_>>(text) {
            Ok(message) if message.jsonrpc == "2.0" => message,
            _ => return broken(Promise::Misrouted, "no message"),
        };
        match message {
            Message { id: None, method: Some("notifications/progress"), params: Some(params), .. } => {
                match self.progress(params.get()) {
                    true => Vec::new(),
                    false => broken(Promise::Stray, "progress that is not the next of an open call"),
                }
            }
            Message { id: None, method: Some("notifications/tools/list_changed"), .. } => Vec::new(),
            Message { id: Some(id), method: None, params: None, .. } => {
                let id = id.get();
                let fence = id.strip_prefix(FENCE).and_then(|rest| rest.strip_suffix('"'));
                if let (Some(number), Some("{}")) = (fence, message.result.map(RawValue::get)) {
                    return self.passed(number.parse().unwrap_or(0));
                }
                match self.open.remove(id) {
                    Some(open) => self.judge(at, open, &message),
                    None if self.cancelled.contains(id) => {
                        broken(Promise::AfterCancellation, "an answer to a call that was cancelled")
                    }
                    None => broken(Promise::Duplicated, "an answer to no open call"),
                }
            }
            _ => broken(Promise::Stray, "nobody expects this"),
        }
    }

    /// Notes progress; `false` if it is not the next of an open call, byte for byte.
    fn progress(&mut self, params: &str) -> bool {
        let Ok(Progress { token }) = serde_json::from_str(params) else { return false };
        let Some(open) = self.open.values_mut().find(|open| open.call.token == token.get()) else {
            return false;
        };
        open.heard += 1;
        let Call { mark, steps, .. } = &open.call;
        open.heard <= *steps && params == mark::progress(token.get(), mark, open.heard, *steps)
    }

    /// A ping was answered: what was cancelled before it may not be answered any more.
    fn passed(&mut self, fence: u64) -> Vec<Finding> {
        let later = self.crossing.split_off(&(fence + 1));
        let passed = std::mem::replace(&mut self.crossing, later);
        let mut findings = Vec::new();
        for id in passed.into_values() {
            if let Some(open) = self.open.remove(&id) {
                self.cancelled.insert(id);
                findings.push(ended(open, End::Cancelled));
            }
        }
        findings
    }

    /// Judges what came for a call.
    fn judge(&mut self, at: Duration, open: Open, message: &Message<'_>) -> Vec<Finding> {
        let (promise, what) = match (message.result, message.error) {
            (Some(result), None) => match self.in_legacy_form(open.call.modern, result.get()) {
                Some(result) if *result == mark::result(&open.call.mark, open.call.fault) => {
                    match may_be_answered(&open.call) {
                        true if open.heard == open.call.steps => return vec![ended(open, End::Answer)],
                        true => (Promise::Stray, format!("{} reports of progress", open.heard)),
                        false => (Promise::Misrouted, "an answer that its server did not give".to_owned()),
                    }
                }
                Some(result) => match serde_json::from_str::<Failed>(&result) {
                    Ok(failed) => match self.explained(at, &open, &failed) {
                        Some(why) => return vec![ended(open, End::Error(why))],
                        None => (Promise::Unexplained, failed.content[0].text.clone()),
                    },
                    Err(_) => (Promise::Misrouted, format!("{result:.400}")),
                },
                None => (Promise::Misrouted, format!("no result of its era: {:.400}", result.get())),
            },
            (None, Some(error)) => (Promise::Unexplained, error.get().to_owned()),
            _ => (Promise::Misrouted, "neither a result nor an error".to_owned()),
        };
        let what = format!("{:?} got {what}", open.call);
        vec![Finding::Broken(promise, what), ended(open, End::Broken)]
    }

    /// A result without what the modern era adds to it, which stands in `_meta`, the last member, and behind it.
    fn in_legacy_form(&mut self, modern: bool, result: &str) -> Option<String> {
        if !modern {
            return Some(result.to_owned());
        }
        let (own, added) = result.rsplit_once(",\"io.modelcontextprotocol/serverInfo\":")?;
        let info = added.strip_suffix("},\"resultType\":\"complete\"}")?;
        let known = self.info.get_or_insert_with(|| info.to_owned());
        (known == info).then(|| format!("{own}}}}}"))
    }

    /// Why a call may have failed so, by what is known of its server.
    fn explained(&self, at: Duration, open: &Open, failed: &Failed) -> Option<Why> {
        let Failed { content: [Block { r#type, text }], is_error, meta: FailedMeta { error } } = failed;
        let call = &open.call;
        let prefix = format!("[{}] ", call.label());
        let is_own = text.strip_prefix(&prefix) == Some(&error.message) && r#type == "text" && *is_error;
        let history = &self.servers[call.server];
        let injected = call.fault.filter(|fault| history.injected.get(&call.mark) == Some(fault));
        let by_fault = injected.is_some_and(|fault| {
            let refused = is_refusal(error, &call.mark, fault);
            let unanswered = is(error, "timeout: the longest time for a call is over")
                && at.saturating_sub(open.sent) >= LONGEST_CALL;
            let told = match fault.outcome() {
                Outcome::Refusal => refused,
                Outcome::Silence => unanswered,
                Outcome::RefusalOrSilence => refused || unanswered,
                Outcome::TooLong => {
                    let length = mark::too_long(&call.mark);
                    let message = format!(
                        "the answer has {length} bytes, more than the {LONGEST_MESSAGE} of maxMessageBytes"
                    );
                    is(error, &message)
                }
                Outcome::Malformed(why) | Outcome::EndOrMalformed(why) => is_malformed(error, why),
                Outcome::Answer | Outcome::End => false,
            };
            told && open.heard == call.steps
        });
        let why = by_fault.then_some(Why::Fault).or_else(|| by_end(at, open, injected, history, error));
        why.filter(|_| is_own)
    }
}

impl History {
    fn note(&mut self, at: Duration, line: &str) -> Vec<Finding> {
        let (what, mark) = line.split_once(' ').unwrap_or((line, ""));
        if what == "start" {
            let words = mark::last_words(self.lives.len() + 1, mark::EXIT);
            let death = Death { at, status: mark::EXIT_STATUS, words, culprit: String::new() };
            self.lives.push((mark == "exit").then_some(death));
            return Vec::new();
        }
        let Ok(fault) = what.parse::<Fault>() else {
            return vec![Finding::Broken(Promise::Stray, format!("a journal says `{line}`"))];
        };
        if let Some(status) = fault.exit_status() {
            let words = mark::last_words(self.lives.len(), line);
            if let Some(last) = self.lives.last_mut() {
                *last = Some(Death { at, status, words, culprit: mark.to_owned() });
            }
        }
        match self.injected.insert(mark.to_owned(), fault) {
            None => Vec::new(),
            Some(_) => vec![Finding::Broken(
                Promise::Duplicated,
                format!("a call was sent to its server again: {line}"),
            )],
        }
    }
}

/// Why the call failed if the error says that the server has ended, and that did so while the call was under way: no
/// later life had begun when the call was sent.
fn by_end(
    at: Duration,
    open: &Open,
    injected: Option<Fault>,
    history: &History,
    error: &ErrorObject,
) -> Option<Why> {
    let call = &open.call;
    let mut lives = history.lives.iter().skip(open.life.saturating_sub(1)).flatten();
    // Its input may be seen to be closed before its end is, and nothing is known of that then.
    if is(error, "the connection is closed") {
        return lives.next().filter(|_| injected.is_none() && open.heard == 0).map(|_| Why::Ended);
    }
    let (problem, quoted) = error.message.split_once("\nlast lines of its stderr:\n")?;
    let (floods, words) = quoted.rsplit_once('\n').map_or(("", quoted), |(floods, words)| (floods, words));
    let death = lives.find(|death| words.strip_prefix("  ") == Some(&death.words))?;
    let prefix = format!("the server 'box/u{}' is not running and could not be started: ", call.server);
    let (problem, was_sent, in_time) = match problem.strip_prefix(&prefix) {
        None => (problem, true, true),
        // It may have failed to start, or too often to be started again just now.
        Some(rest) => match rest.rsplit_once(" (next attempt possible in ") {
            None => (rest, false, true),
            Some((rest, wait)) => {
                let wait =
                    wait.strip_suffix(" s)").and_then(|wait| wait.parse().ok()).map(Duration::from_secs);
                let in_time = wait? <= LONGEST_WAIT && at.saturating_sub(death.at) <= LONGEST_WAIT;
                (rest, false, in_time)
            }
        },
    };
    let is_whole = floods.lines().all(|line| line.strip_prefix("  ") == Some(mark::FLOOD));
    let ended = format!("the server exited with status {}", death.status);
    let is_so = problem == ended || problem == "the server closed its output";
    let is_plain = error.code == LOST && error.data.is_none();
    let fits = match injected {
        // What reached its server has failed there.
        Some(_) if !was_sent => false,
        // What was answered before the end was answered.
        Some(Fault::CrashAfter) => false,
        // Nobody else can have ended the server before it got to the fault.
        Some(fault) => fault.takes_time() || death.culprit == call.mark,
        None => was_sent || open.heard == 0,
    };
    let why = if was_sent { Why::Ended } else { Why::Down };
    (is_whole && is_so && is_plain && fits && in_time).then_some(why)
}

/// Whether its server can have answered a call so.
fn may_be_answered(call: &Call) -> bool {
    call.fault.is_none_or(|fault| fault.outcome() == Outcome::Answer)
}

/// Whether an error is the one that the server refuses a call with.
fn is_refusal(error: &ErrorObject, mark: &str, fault: Fault) -> bool {
    let expected: ErrorObject = serde_json::from_str(&mark::refusal(mark)).expect("an error of ours");
    // An error without a code gets that of an internal error.
    let code = if fault == Fault::ErrorWithoutCode { INTERNAL } else { expected.code };
    error.code == code && error.message == expected.message && error.data == expected.data
}

/// Whether an error says that the server's answer is malformed, and in this way.
fn is_malformed(error: &ErrorObject, why: &str) -> bool {
    let why_not = error.message.strip_prefix("the server's answer is malformed: ");
    why_not == Some(why) && error.code == INTERNAL && error.data.is_none()
}

/// Whether an error is one of the gateway's, with this message.
fn is(error: &ErrorObject, message: &str) -> bool {
    error.message == message && error.code == LOST && error.data.is_none()
}

fn ended(open: Open, end: End) -> Finding {
    Finding::Ended(Box::new(open.call), end)
}

#[cfg(test)]
#[path = "oracle_tests.rs"]
mod tests;
