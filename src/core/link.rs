//! A live connection to an upstream: requests, answers, and what comes unasked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::bridge::Call;
use super::engine::{Engine, send_quietly};
use super::modern::Cache;
use super::session::Session;
use super::trouble::{Cause, Trouble};
use super::turns::Turns;
use super::upstream::Upstream;
use crate::catalog::{Item, Kind};
use crate::config::{Redactor, Transport};
use crate::wire::cut_off::{id_of_broken_response, id_of_response};
use crate::wire::era::{LOG_LEVELS, ServerHello, TaskSupport, Version, modern_meta};
use crate::wire::json::{Node, Scanner, quote};
use crate::wire::lines::{Line, TooLong};
use crate::wire::message::{AnswerTo, Message, NoMessage, Outcome, Request, code};
use crate::wire::outbox::Outbox;
use crate::wire::peer::{Answer, CallError, Deadline, Lost, OnAnswer, Paused, Peer};
use crate::wire::text::plain;
use crate::wire::tool_headers::{self, ToolHeaders};

/// Bytes that may wait for an upstream that does not read, before its calls are refused.
const MOST_UNREAD: usize = 64 * 1024 * 1024;
/// Between the end of our subscription by the upstream's will and the next; and how long one outlasts its successor's
/// beginning.
const BETWEEN_LISTENS: Duration = Duration::from_secs(1);
/// How often the pause before the next subscription is doubled while none is acknowledged.
const MOST_DOUBLINGS: u32 = 5;

/// Among the bits of lists that have changed: what the upstream says of itself may have changed as well.
pub(super) const HELLO: u8 = 1 << 7;

/// What a client declares that wants to hear of tasks.
const WITH_TASKS: &str = "{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}";

/// A live connection to an upstream.
pub struct Link {
    /// Whose it is.
    pub upstream: Arc<Upstream>,
    /// Our requests to it.
    pub peer: Arc<Peer<Caller>>,
    pub(super) out: Arc<Outbox>,
    /// The level of log messages that it was told, as a place in the list of levels.
    level: AtomicU8,
    /// What it said of itself when last asked.
    hello: Mutex<Option<ServerHello>>,
    /// The version in it, as a place in the list of versions: every call asks for it.
    version: AtomicU8,
    /// Its questions that wait for a client: its id, ours towards the client, and the client.
    pub(super) questions: Mutex<HashMap<Arc<str>, Asked>>,
    /// The clients that it asks something just now.
    asked: Arc<Paused>,
    pub(super) turns: Arc<Turns>,
    mute: AtomicBool,
    /// Where the HTTP client looks up which parameters it mirrors into headers.
    mirrored: OnceLock<Arc<ToolHeaders>>,
    /// Our subscriptions at a modern upstream: the last one counts, those before it end when it is acknowledged.
    listening: Mutex<Vec<u64>>,
    /// How many of them have ended by no will of ours since one was acknowledged.
    broken: AtomicU32,
    changed_kinds: AtomicU8,
    changed: Notify,
    /// How long its lists may be kept, by kind; a legacy upstream's may not.
    hints: Mutex<[Cache; 4]>,
    noise: AtomicU64,
    /// Whether an answer has left out or misspelled its version, which is logged once.
    odd_version: AtomicBool,
    pub(super) redactor: Redactor,
    /// What requests of our own say that the client can do.
    pub(super) capabilities: String,
}

/// A question's id towards the client, and the client.
pub(super) type Asked = (u64, Arc<Session>);

/// An open question of an upstream. No call to it of the client that is asked runs out of time meanwhile, and each has
/// all of its time afterwards.
pub(super) struct Asking {
    link: Arc<Link>,
    client: u64,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.link.asked.remove(self.client);
        let is_asked = |session: &Arc<Session>| session.window.client == self.client;
        self.link.peer.touch_where(|caller| caller.session.as_ref().is_some_and(is_asked));
    }
}

/// Whose request it was, and under which token it wants progress.
#[derive(Default)]
pub struct Caller {
    /// `None` for our own requests.
    pub session: Option<Arc<Session>>,
    /// The request's key in the session.
    pub key: Option<Arc<str>>,
    /// The state of a call between the eras.
    pub call: Option<Arc<Call>>,
    /// The client's own token, raw.
    pub progress: Option<Box<str>>,
}

impl Link {
    pub(super) fn new(upstream: Arc<Upstream>, redactor: Redactor, capabilities: String) -> Arc<Self> {
        let out = Outbox::new();
        Arc::new(Self {
            upstream,
            peer: Peer::new(out.clone()),
            out,
            level: AtomicU8::new(u8::MAX),
            hello: Mutex::default(),
            version: AtomicU8::new(Version::LATEST_LEGACY as u8),
            questions: Mutex::default(),
            asked: Arc::default(),
            turns: Arc::default(),
            mute: AtomicBool::new(false),
            mirrored: OnceLock::new(),
            listening: Mutex::default(),
            broken: AtomicU32::new(0),
            changed_kinds: AtomicU8::new(0),
            changed: Notify::new(),
            hints: Mutex::default(),
            noise: AtomicU64::new(0),
            odd_version: AtomicBool::new(false),
            redactor,
            capabilities,
        })
    }

    /// Notes what the upstream said of itself.
    pub(super) fn set_hello(&self, hello: ServerHello) {
        self.version.store(hello.version as u8, Ordering::Relaxed);
        *self.hello.lock() = Some(hello);
    }

    /// Whether the upstream has said what it speaks.
    pub(super) fn is_greeted(&self) -> bool {
        self.hello.lock().is_some()
    }

    /// Lets the HTTP client know which parameters are mirrored into headers, once tools are listed.
    pub(super) fn mirror_parameters(&self, headers: Arc<ToolHeaders>) {
        let _ = self.mirrored.set(headers);
    }

    /// Takes note of the parameters that tools want in headers; those that want the impossible are left out.
    pub(super) fn note_mirrored(&self, tools: Vec<Item>) -> Vec<Item> {
        let Some(mirrored) = self.mirrored.get().filter(|_| self.version().is_modern()) else { return tools };
        let mut known = HashMap::new();
        let mut scanner = Scanner::default();
        let mut kept = Vec::with_capacity(tools.len());
        for tool in tools {
            let root = scanner.scan_str(tool.raw()).expect("definitions are valid JSON").root();
            match tool_headers::read_schema(root.get("inputSchema").map_or("{}", |schema| schema.raw())) {
                Ok(headers) => {
                    known.insert(tool.key.to_string(), headers);
                    kept.push(tool);
                }
                Err(reason) => tracing::warn!("[{}] tool {} is left out: {reason}", self.upstream, tool.key),
            }
        }
        mirrored.set(known);
        kept
    }

    /// Whether the upstream was asked for its era and has not answered anything yet.
    pub(super) fn is_mute(&self) -> bool {
        self.mute.load(Ordering::Relaxed)
    }

    pub(super) fn set_mute(&self, mute: bool) {
        self.mute.store(mute, Ordering::Relaxed);
    }

    /// Waits until lists have changed.
    pub(super) async fn lists_to_change(&self) {
        self.changed.notified().await;
    }

    /// Which lists have changed since this was last asked, a bit for each kind, and [`HELLO`].
    pub(super) fn changed_lists(&self) -> u8 {
        self.changed_kinds.swap(0, Ordering::Relaxed)
    }

    /// Whether the upstream declared this capability.
    pub fn can(&self, capability: &str) -> bool {
        self.hello.lock().as_ref().is_some_and(|hello| hello.can(capability))
    }

    /// The version that the upstream speaks.
    pub fn version(&self) -> Version {
        Version::ALL[usize::from(self.version.load(Ordering::Relaxed))]
    }

    /// Whether its questions come without a hint at the call that they belong to.
    pub(super) fn asks_at_large(&self) -> bool {
        matches!(self.upstream.spec().transport, Transport::Stdio(_)) && !self.version().is_modern()
    }

    /// How long its list of this kind may be kept.
    pub fn hint(&self, kind: Kind) -> Cache {
        self.hints.lock()[kind as usize]
    }

    /// Notes how long its list of this kind may be kept.
    pub(super) fn set_hint(&self, kind: Kind, hint: Cache) {
        self.hints.lock()[kind as usize] = hint;
    }

    /// What of tasks the upstream can.
    pub fn tasks(&self) -> TaskSupport {
        self.hello.lock().as_ref().map_or(TaskSupport::None, ServerHello::tasks)
    }

    /// When a call of this client to the upstream is given up.
    pub fn deadline(&self, session: &Session) -> Option<Deadline> {
        let timeouts = self.upstream.spec().timeouts;
        Deadline::new(timeouts.call, timeouts.max_call, Some((&self.asked, session.window.client)))
    }

    /// Notes that the upstream asks this client something, for as long as what is returned lasts.
    pub(super) fn asks(self: &Arc<Self>, session: &Session) -> Asking {
        let client = session.window.client;
        self.asked.add(client);
        Asking { link: self.clone(), client }
    }

    /// When a request of our own is given up.
    pub(super) fn own_deadline(&self) -> Option<Deadline> {
        let timeouts = self.upstream.spec().timeouts;
        Deadline::new(timeouts.call, timeouts.max_call, None)
    }

    /// Whether the upstream still reads what it is sent.
    pub fn takes_calls(&self) -> bool {
        self.out.held() < MOST_UNREAD
    }

    /// Fails what is in flight, withdraws its questions and closes the upstream's stdin.
    pub fn close(&self, reason: &str) {
        self.peer.close(&Lost::new(reason));
        self.out.close();
        self.withdraw_questions();
    }

    /// Tells clients that what it asked them needs no answer any more.
    pub(super) fn withdraw_questions(&self) {
        let questions = std::mem::take(&mut *self.questions.lock());
        for (ours, session) in questions.into_values() {
            if session.peer.forget(ours).is_some() {
                session.peer.send_cancelled(ours, "the server that asked is gone");
            }
        }
    }

    /// Answers one of the upstream's questions.
    pub(super) fn answer(&self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(write);
    }

    /// Lets the upstream send log messages of this level and above, if it has any.
    pub(super) fn want_level(self: &Arc<Self>, level: usize) {
        let level = level as u8;
        // Who wants less is sent less by us.
        if self.can("logging") && self.level.fetch_min(level, Ordering::Relaxed) > level {
            let params = format!("{{\"level\":\"{}\"}}", LOG_LEVELS[usize::from(level)]);
            send_quietly(self, "logging/setLevel", &params);
        }
    }

    /// Tells a new session of the upstream which log messages the last one was to send.
    pub(super) fn tell_level_again(self: &Arc<Self>) {
        let told = self.level.swap(u8::MAX, Ordering::Relaxed);
        if told != u8::MAX {
            self.want_level(usize::from(told));
        }
    }

    /// Notes that any of the upstream's lists may have changed.
    pub(super) fn lists_changed(&self) {
        Kind::ALL.into_iter().for_each(|kind| self.list_changed(kind));
    }

    /// Notes that the upstream may be another one by now: its lists are read again, and one without sessions is asked
    /// again what it can do.
    pub(super) fn doubt(&self) {
        if self.version().is_modern() {
            self.changed_kinds.fetch_or(HELLO, Ordering::Relaxed);
        }
        self.lists_changed();
    }

    /// Notes that the upstream's list of this kind has changed.
    pub(super) fn list_changed(&self, kind: Kind) {
        self.look_again(1 << kind as u8);
    }

    /// Has these lists, a bit for each kind, and perhaps its capabilities asked for.
    pub(super) fn look_again(&self, bits: u8) {
        self.changed_kinds.fetch_or(bits, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Subscribes to everything that a modern upstream may tell of its own accord, anew if what is wanted has changed.
    /// The subscription before outlasts the beginning of this one, so that no change falls between the two.
    pub(super) fn listen(self: &Arc<Self>) {
        let (uris, tasks) = self.upstream.watched();
        let quoted = |texts: Vec<String>| texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(",");
        let (capabilities, tasks) = match tasks.is_empty() {
            true => (self.capabilities.as_str(), String::new()),
            false => (WITH_TASKS, format!(",\"taskIds\":[{}]", quoted(tasks))),
        };
        let params = format!(
            "{{\"_meta\":{{{}}},\"notifications\":{{\"toolsListChanged\":true,\"promptsListChanged\":true,\
             \"resourcesListChanged\":true,\"resourceSubscriptions\":[{}]{tasks}}}}}",
            modern_meta(capabilities),
            quoted(uris),
        );
        let link = Arc::downgrade(self);
        let write = |out: &mut Vec<u8>, _| out.extend_from_slice(params.as_bytes());
        let own_id = Arc::new(AtomicU64::new(0));
        let ended = own_id.clone();
        let again: OnAnswer = Box::new(move |answer| {
            // Not if it is gone altogether.
            let Some(link) = link.upgrade().filter(|link| link.peer.is_open()) else { return };
            // Nor if another has taken its place: a server may allow one at a time.
            if link.listening.lock().last() != Some(&ended.load(Ordering::Relaxed)) {
                return;
            }
            match answer {
                Answer::Error(_) => return link.caught_up(),
                Answer::Lost(lost) if lost.is_malformed() => return link.caught_up(),
                Answer::Result(_) | Answer::Lost(_) => {}
            }
            // It ended it, or the stream broke.
            let before = link.broken.fetch_add(1, Ordering::Relaxed);
            if before > 0 {
                link.doubt();
            }
            tokio::spawn(async move {
                sleep(BETWEEN_LISTENS * (1 << before.min(MOST_DOUBLINGS))).await;
                link.listen();
                // One that never acknowledges it may have been replaced all the same.
                sleep(BETWEEN_LISTENS).await;
                if before == 0 && link.broken.load(Ordering::Relaxed) > 0 {
                    link.doubt();
                }
            });
        });
        if let Some(id) = self.peer.request("subscriptions/listen", write, Caller::default(), None, again) {
            own_id.store(id, Ordering::Relaxed);
            self.listening.lock().push(id);
        }
    }

    /// The upstream listens again, or refuses to: nobody knows what has changed meanwhile.
    fn caught_up(&self) {
        if self.broken.swap(0, Ordering::Relaxed) > 0 {
            self.doubt();
        }
    }

    /// The upstream has acknowledged one of our subscriptions: those before it end, a little later, since a server may
    /// say that it listens before it does. Who watches a resource may hear of it twice meanwhile.
    pub(super) fn listens(self: &Arc<Self>, id: u64) {
        self.caught_up();
        let before: Vec<u64> = {
            let mut listening = self.listening.lock();
            match listening.iter().position(|known| *known == id) {
                Some(at) if at > 0 => listening.drain(..at).collect(),
                _ => return,
            }
        };
        let link = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(BETWEEN_LISTENS).await;
            let Some(link) = link.upgrade() else { return };
            for id in before {
                if link.peer.forget(id).is_some() {
                    link.peer.send_cancelled(id, "subscribed anew");
                }
            }
        });
    }

    /// A request of our own.
    pub async fn ask(self: &Arc<Self>, method: &str, params: &str) -> Result<String, Trouble> {
        self.ask_for(method, params, None, |result| result.raw().to_owned()).await
    }

    /// A request of our own, and what `read` makes of its result.
    pub(super) async fn ask_for<R: Send + 'static>(
        self: &Arc<Self>,
        method: &str,
        params: &str,
        deadline: Option<Deadline>,
        read: impl FnOnce(Node<'_>) -> R + Send + 'static,
    ) -> Result<R, Trouble> {
        let modern = self.version().is_modern();
        let params = match params {
            params if !modern => params.to_owned(),
            "{}" => format!("{{\"_meta\":{{{}}}}}", modern_meta(&self.capabilities)),
            params => format!("{{\"_meta\":{{{}}},{}", modern_meta(&self.capabilities), &params[1..]),
        };
        let answer = self.peer.call_for(method, &params, Caller::default(), deadline, read).await;
        answer.map_err(|error| match error {
            CallError::Lost(lost) => lost.to_string().into(),
            CallError::Refused(error) => refusal(method, &error),
        })
    }

    pub(super) fn take(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        scanner: &mut Scanner,
        line: Line<'_>,
        on: Option<u64>,
    ) {
        let text = match line {
            Line::Whole(text) => text,
            Line::TooLong(line) => return self.take_too_long(engine, scanner, &line),
        };
        let Ok(doc) = scanner.scan(text) else { return self.take_broken(scanner, text) };
        if doc.root().raw().starts_with('[') {
            let parts: Vec<&serde_json::value::RawValue> =
                serde_json::from_str(doc.root().raw()).unwrap_or_default();
            let mut scanner = Scanner::default();
            for part in parts {
                match part.get().starts_with('[') {
                    true => self.take_noise(part.get().as_bytes()),
                    false => self.take(engine, &mut scanner, Line::Whole(part.get().as_bytes()), on),
                }
            }
            return;
        }
        match Message::from_server(doc.root()) {
            Ok(Message::Response { to, outcome, says_version }) => {
                if !says_version && !self.odd_version.swap(true, Ordering::Relaxed) {
                    tracing::warn!("[{}] answers without a plain \"jsonrpc\": \"2.0\"", self.upstream);
                }
                if !self.take_answer(to, outcome, on) {
                    tracing::debug!("[{}] an answer that nobody waits for: {to:?}", self.upstream);
                    self.noise.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(Message::Notification { method, params }) => {
                engine.upstream_notification(self, on, &method, params)
            }
            Ok(Message::Request(Request { id, method, params, .. })) => {
                engine.upstream_request(self, on, id, &method, params)
            }
            Err(NoMessage::Twice(ids)) => {
                for id in ids {
                    self.peer.resolve(id, Outcome::Malformed(NoMessage::TWICE));
                }
            }
            Err(NoMessage::Noise) => self.take_noise(text),
        }
    }

    /// Ends the request that the answer names. An error that names none ends the one whose answer it can only be: that on
    /// whose stream it came, else the only one that is open. `false`: nobody waits for it.
    fn take_answer(&self, to: AnswerTo, outcome: Outcome<'_>, on: Option<u64>) -> bool {
        let id = match (to, &outcome) {
            (AnswerTo::Ours(id), _) => Some(id),
            (AnswerTo::Nobody, Outcome::Error(_)) => on.or_else(|| self.only_open()),
            (AnswerTo::Foreign, Outcome::Error(_)) => on,
            _ => None,
        };
        id.is_some_and(|id| self.peer.resolve(id, outcome))
    }

    /// The request that waits for an answer, if there is exactly one; a subscription waits for none.
    fn only_open(&self) -> Option<u64> {
        self.peer.only_open_besides(&self.listening.lock())
    }

    /// A message over the limit fails the call that it answers, and only that.
    fn take_too_long(&self, engine: &Engine, scanner: &mut Scanner, line: &TooLong<'_>) {
        let (length, limit) = (line.length, engine.settings().max_message_bytes);
        let reason = format!("the answer has {length} bytes, more than the {limit} of maxMessageBytes");
        // Where a response does not show whose it is, it can only be that of the one call in flight.
        let response = id_of_response(scanner, line.start, line.end);
        let id = response.and_then(|id| id.or_else(|| self.only_open()));
        if !id.is_some_and(|id| self.peer.fail(id, &Lost::new(reason.as_str()))) {
            self.take_noise(&line.start[..line.start.len().min(80)]);
        }
    }

    /// An answer that is no JSON fails its call, which would wait for ever. All else that is none is noise.
    fn take_broken(&self, scanner: &mut Scanner, text: &[u8]) {
        let id = id_of_broken_response(scanner, text);
        if !id.is_some_and(|id| self.peer.resolve(id, Outcome::Malformed("it is not JSON"))) {
            self.take_noise(text);
        }
    }

    /// What is no message is counted; the first is shown.
    fn take_noise(&self, text: &[u8]) {
        if self.noise.fetch_add(1, Ordering::Relaxed) == 0 {
            let text = String::from_utf8_lossy(&text[..text.len().min(200)]);
            let text = plain(&text);
            let shown = self.redactor.redact(&text);
            tracing::warn!("[{}] wrote what is no message to its stdout: {shown}", self.upstream);
        }
    }

    /// The reason why it did not come up, and whether what it wrote may have to do with that.
    pub(super) fn with_noise(&self, trouble: Trouble) -> Trouble {
        let noise = match self.noise.load(Ordering::Relaxed) {
            0 => return trouble,
            1 => "a line to stdout that is no MCP message".to_owned(),
            count => format!("{count} lines to stdout that are no MCP messages"),
        };
        let problem = format!("{}; it wrote {noise}", trouble.problem);
        Trouble { cause: Cause::Noise, ..trouble.reworded(problem) }
    }

    pub(super) fn report_noise(&self) {
        match self.noise.load(Ordering::Relaxed) {
            0 => {}
            count => {
                tracing::warn!(
                    "[{}] wrote {count} lines that were no message or answered nothing",
                    self.upstream
                )
            }
        }
    }
}

/// What an error says to a request of our own; one that the way to the upstream made for want of a login is no answer
/// of it.
fn refusal(method: &str, error: &str) -> Trouble {
    let mut scanner = Scanner::default();
    let root = scanner.scan_str(error).expect("an answer was validated when it was read").root();
    let message = root.get("message").and_then(Node::as_str).unwrap_or_else(|| error.into());
    let data = |key| root.get("data").and_then(|data| data.get(key));
    let ours = root.get("code").is_some_and(|code| code.raw().parse() == Ok(code::UPSTREAM_LOST));
    if ours && data("login").is_some() {
        return Trouble::new(Cause::Person, &*message);
    }
    let status = data("httpStatus").and_then(|status| status.raw().parse().ok());
    let cause = status.map_or(Cause::Other, Cause::of_status);
    Trouble::new(cause, format!("answered `{method}` with an error: {message}"))
}
