//! Legacy sessions: who they belong to, their streams, and when they end.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::stream::{Pushed, Reader, Stream};
use super::{Scope, Sink};
use crate::wire::digest::hex;
use crate::wire::era::Version;
use crate::wire::json::{Node, Scanner};

/// Sessions at most.
const MOST_SESSIONS: usize = 10_000;
/// Streams of one session that are kept for readers that come back, at most.
const MOST_STREAMS: usize = 256;
/// Bytes that all finished streams of one session keep, at most.
const MOST_KEPT: usize = 8 * super::stream::KEPT;

/// Kinds of `list_changed` that wait for a stream, at most.
const MOST_KINDS: usize = 16;

/// A client that said `initialize`.
pub(super) struct Session<S> {
    pub(super) id: Box<str>,
    pub(super) scope: Scope,
    /// Negotiated.
    pub(super) version: Version,
    pub(super) backend: Arc<S>,
    pub(super) inbox: Arc<Inbox>,
    /// Answers that can be read again.
    streams: Mutex<BTreeMap<u64, Arc<Stream>>>,
    activity: Arc<Mutex<Activity>>,
}

struct Activity {
    /// Requests in progress and streams that are read.
    count: usize,
    since: Instant,
}

/// As long as it lives, its session is not idle.
pub(super) struct Busy(Arc<Mutex<Activity>>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut activity = self.0.lock();
        activity.count -= 1;
        activity.since = Instant::now();
    }
}

impl<S> Session<S> {
    /// A session with an id that nobody can guess; `open` makes the backend's part of it.
    pub(super) fn new(
        scope: Scope,
        version: Version,
        open: impl FnOnce(Arc<dyn Sink>) -> Arc<S>,
    ) -> Result<Arc<Self>, getrandom::Error> {
        let mut random = [0; 24];
        getrandom::fill(&mut random)?;
        let id = hex(random);
        let inbox = Arc::<Inbox>::default();
        Ok(Arc::new(Self {
            id: id.into(),
            scope,
            version,
            backend: open(inbox.clone()),
            inbox,
            streams: Mutex::default(),
            activity: Arc::new(Mutex::new(Activity { count: 0, since: Instant::now() })),
        }))
    }

    /// Keeps the session from being idle.
    pub(super) fn busy(&self) -> Busy {
        let mut activity = self.activity.lock();
        activity.count += 1;
        activity.since = Instant::now();
        drop(activity);
        Busy(self.activity.clone())
    }

    /// A number for a new stream.
    pub(super) fn next_stream(&self) -> u64 {
        self.inbox.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps a stream of events for a reader that comes back; the oldest finished ones give way.
    pub(super) fn keep(&self, stream: &Arc<Stream>) {
        let mut streams = self.streams.lock();
        streams.insert(stream.number, stream.clone());
        let mut held: usize = streams.values().map(|stream| stream.held()).sum();
        let finished: Vec<_> =
            streams.values().filter(|stream| stream.is_finished()).map(|stream| stream.number).collect();
        for number in finished {
            if streams.len() <= MOST_STREAMS && held <= MOST_KEPT {
                break;
            }
            held -= streams.remove(&number).map_or(0, |stream| stream.held());
        }
    }

    /// The stream that a `Last-Event-ID` names, read on from there.
    pub(super) fn resume(&self, event_id: &str, kept_for: Duration) -> Option<Reader> {
        let (number, position) = event_id.split_once('-')?;
        let (number, position) = (number.parse().ok()?, position.parse().ok()?);
        let answer = self.streams.lock().get(&number).cloned();
        match answer {
            Some(stream) if stream.is_stale(kept_for) => None,
            Some(stream) => stream.read_after(position),
            None => self.inbox.resume(number, position, kept_for),
        }
    }

    fn is_idle(&self, timeout: Duration) -> bool {
        let activity = self.activity.lock();
        activity.count == 0 && activity.since.elapsed() >= timeout
    }

    fn forget_stale(&self, kept_for: Duration) {
        self.streams.lock().retain(|_, stream| !stream.is_stale(kept_for));
        self.inbox.forget_stale(kept_for);
    }

    /// Ends every stream.
    fn end(&self) {
        self.inbox.end();
        for stream in std::mem::take(&mut *self.streams.lock()).into_values() {
            stream.finish();
        }
    }
}

/// Messages that belong to no request, and the stream that carries them.
#[derive(Default)]
pub(super) struct Inbox {
    numbers: AtomicU64,
    state: Mutex<InboxState>,
}

#[derive(Default)]
struct InboxState {
    stream: Option<Arc<Stream>>,
    /// By method, the `list_changed` that found no reader.
    missed: Vec<(String, Vec<u8>)>,
    ended: bool,
}

impl Sink for Inbox {
    fn send(&self, message: &[u8], _last: bool) -> bool {
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        let pushed = state.stream.as_ref().map_or(Pushed::Nowhere, |stream| stream.push(message, false));
        if pushed != Pushed::Read
            && let Some(method) = list_changed(message)
            && state.missed.len() < MOST_KINDS
            && !state.missed.iter().any(|(missed, _)| *missed == method)
        {
            state.missed.push((method, message.to_vec()));
            return true;
        }
        pushed != Pushed::Nowhere
    }
}

impl Inbox {
    /// A new stream in the place of the one before.
    pub(super) fn open(&self) -> Reader {
        let stream = Stream::events(self.numbers.fetch_add(1, Ordering::Relaxed));
        let reader = stream.read_after(0).expect("there is always a place before the first event");
        let mut state = self.state.lock();
        for (_, message) in std::mem::take(&mut state.missed) {
            stream.push(&message, false);
        }
        if state.ended {
            stream.finish();
        }
        if let Some(old) = state.stream.replace(stream) {
            old.finish();
        }
        reader
    }

    fn resume(&self, number: u64, position: u64, kept_for: Duration) -> Option<Reader> {
        let mut state = self.state.lock();
        let stream =
            state.stream.as_ref().filter(|stream| stream.number == number && !stream.is_stale(kept_for))?;
        let reader = stream.read_after(position)?;
        // What was missed stands among the events that are read again.
        state.missed.clear();
        Some(reader)
    }

    fn forget_stale(&self, kept_for: Duration) {
        let mut state = self.state.lock();
        if state.stream.as_ref().is_some_and(|stream| stream.is_stale(kept_for)) {
            state.stream = None;
        }
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        if let Some(stream) = &state.stream {
            stream.finish();
        }
    }
}

/// The method of a `list_changed` notification.
fn list_changed(message: &[u8]) -> Option<String> {
    let mut scanner = Scanner::default();
    let method = scanner.scan(message).ok()?.root().get("method").and_then(Node::as_str)?;
    method.ends_with("/list_changed").then(|| method.into_owned())
}

/// All sessions.
pub(super) struct Sessions<S>(Mutex<HashMap<Box<str>, Arc<Session<S>>>>);

impl<S> Sessions<S> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Takes a session in; `false` if there are too many.
    pub(super) fn insert(&self, session: &Arc<Session<S>>) -> bool {
        let mut sessions = self.0.lock();
        if sessions.len() >= MOST_SESSIONS {
            return false;
        }
        sessions.insert(session.id.clone(), session.clone());
        true
    }

    /// The session with this id, if it belongs to the caller and to this path.
    pub(super) fn get(&self, id: &str, scope: &Scope) -> Option<Arc<Session<S>>> {
        self.0.lock().get(id).filter(|session| session.scope.is_same(scope)).cloned()
    }

    /// Ends a session; `false` if it had ended before.
    pub(super) fn remove(&self, session: &Session<S>) -> bool {
        let removed = self.0.lock().remove(&session.id).is_some();
        session.end();
        removed
    }

    /// Takes out what is idle, or no longer `allowed`, and forgets streams that nobody came back to.
    pub(super) fn sweep(
        &self,
        idle: Duration,
        kept_for: Duration,
        allowed: impl Fn(&Scope) -> bool,
    ) -> Vec<Arc<Session<S>>> {
        let all: Vec<_> = self.0.lock().values().cloned().collect();
        all.into_iter()
            .filter(|session| {
                session.forget_stale(kept_for);
                (session.is_idle(idle) || !allowed(&session.scope)) && self.remove(session)
            })
            .collect()
    }

    /// Takes out all of them.
    pub(super) fn drain(&self) -> Vec<Arc<Session<S>>> {
        let all: Vec<_> = self.0.lock().drain().map(|(_, session)| session).collect();
        all.iter().for_each(|session| session.end());
        all
    }
}
