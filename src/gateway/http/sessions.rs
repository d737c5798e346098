//! Legacy sessions: their owners, their streams, and when they end.
//!
//! ```text
//! initialize ──▶ unused ── any request ──▶ used ── DELETE, idle too long, token gone, shutdown ──▶ ended
//!                  └── idle too long, or gives way when there are too many ────────────────────────▶ ended
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::answer::Denied;
use super::budget::Budget;
use super::guard::single;
use super::headers::{SESSION_ID, legacy_version};
use super::home::Home;
use super::stream::{Keeper, Pushed, Reader, StoredEvents, Stream};
use super::{Caller, Sink};
use crate::core::route::{Outgoing, OutgoingKind};
use crate::hash::HashMap;
use crate::protocol::era::Version;
use crate::text::digest::hex;

/// The largest number of streams that one session keeps for returning readers.
const MOST_STREAMS: usize = 256;
/// The largest number of bytes that all finished streams of one session keep.
const MOST_KEPT: usize = 8 * super::stream::KEPT;

/// The largest number of kinds of `list_changed` that wait for a stream.
const MOST_KINDS: usize = 16;
/// The largest size of such a message in bytes. It only says that something changed.
const LONGEST_NEWS: usize = 1024;

/// A client that has sent `initialize`.
pub(super) struct HttpSession<S> {
    pub(super) id: Box<str>,
    pub(super) caller: Caller,
    /// The negotiated version.
    pub(super) version: Version,
    pub(super) backend: Arc<S>,
    pub(super) inbox: Arc<Inbox>,
    /// The session's place among replicas; `None` if there is one process only.
    pub(super) home: Option<Arc<Home>>,
    /// The answers that can be read again.
    streams: Mutex<BTreeMap<u64, Arc<Stream>>>,
    activity: Arc<Mutex<Activity>>,
}

struct Activity {
    /// The number of requests in progress and of streams with a reader.
    count: usize,
    /// When the last of them ended, or the session was opened.
    since: Instant,
    /// Whether anything came after `initialize`.
    used: bool,
}

/// A guard that keeps its session from being idle.
pub(super) struct Busy(Arc<Mutex<Activity>>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut activity = self.0.lock();
        activity.count -= 1;
        if activity.count == 0 {
            activity.since = Instant::now();
        }
    }
}

impl<S> HttpSession<S> {
    /// A session with an id that nobody can guess. `open` creates the backend's part of it, `place` its place among
    /// replicas.
    pub(super) fn new(
        caller: Caller,
        version: Version,
        budget: &Arc<Budget>,
        place: impl FnOnce(&str) -> Option<Arc<Home>>,
        open: impl FnOnce(&str, Arc<dyn Sink>) -> Arc<S>,
    ) -> Result<Arc<Self>, getrandom::Error> {
        let mut random = [0; 24];
        getrandom::fill(&mut random)?;
        let id = hex(random);
        let home = place(&id);
        let inbox = Arc::new(Inbox::new(0, budget, home.clone()));
        Ok(Self::with(&id, caller, version, inbox, home, open))
    }

    /// A session that another replica had. These events of its stream for messages that belong to no request were stored.
    pub(super) fn adopted(
        id: &str,
        caller: Caller,
        version: Version,
        budget: &Arc<Budget>,
        home: Arc<Home>,
        stored: Option<(u64, StoredEvents)>,
        open: impl FnOnce(&str, Arc<dyn Sink>) -> Arc<S>,
    ) -> Arc<Self> {
        // Numbers of another epoch are greater than all that were given out before.
        let inbox = Inbox::new(home.epoch() << 32, budget, Some(home.clone()));
        if let Some((number, events)) = stored {
            let stream = Stream::adopted(number, budget.clone(), home.clone(), events);
            inbox.state.lock().stream = Some(stream);
        }
        Self::with(id, caller, version, Arc::new(inbox), Some(home), open)
    }

    fn with(
        id: &str,
        caller: Caller,
        version: Version,
        inbox: Arc<Inbox>,
        home: Option<Arc<Home>>,
        open: impl FnOnce(&str, Arc<dyn Sink>) -> Arc<S>,
    ) -> Arc<Self> {
        Arc::new(Self {
            backend: open(id, inbox.clone()),
            id: id.into(),
            caller,
            version,
            inbox,
            home,
            streams: Mutex::default(),
            activity: Arc::new(Mutex::new(Activity { count: 0, since: Instant::now(), used: false })),
        })
    }

    /// Keeps the session from being idle until the guard is dropped.
    pub(super) fn busy(&self) -> Busy {
        self.activity.lock().count += 1;
        Busy(self.activity.clone())
    }

    /// A number for a new stream.
    pub(super) fn next_stream(&self) -> u64 {
        self.inbox.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps a stream of events for a returning reader. The oldest finished streams give way.
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
            if let Some(stream) = streams.remove(&number) {
                held -= stream.held();
                stream.abandon();
                self.home.iter().for_each(|home| home.let_go(number));
            }
        }
    }

    /// Resumes the stream that a `Last-Event-ID` names after that event.
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

    /// When the session was opened, if it has not been used since.
    fn unused_since(&self) -> Option<Instant> {
        let activity = self.activity.lock();
        (activity.count == 0 && !activity.used).then_some(activity.since)
    }

    fn forget_stale(&self, kept_for: Duration) {
        self.streams.lock().retain(|_, stream| {
            let stale = stream.is_stale(kept_for);
            if stale {
                stream.abandon();
            }
            !stale
        });
        self.inbox.forget_stale(kept_for);
    }

    /// Ends every stream.
    fn end(&self) {
        self.inbox.end();
        for stream in std::mem::take(&mut *self.streams.lock()).into_values() {
            stream.finish();
            stream.abandon();
        }
    }
}

/// The messages that belong to no request, and the stream that carries them.
pub(super) struct Inbox {
    numbers: AtomicU64,
    budget: Arc<Budget>,
    home: Option<Arc<Home>>,
    state: Mutex<InboxState>,
}

#[derive(Default)]
struct InboxState {
    stream: Option<Arc<Stream>>,
    /// The `list_changed` notifications without a reader, by method.
    missed: Vec<(String, Vec<u8>)>,
    ended: bool,
}

impl Sink for Inbox {
    fn send(&self, message: Outgoing<'_>) -> bool {
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        let news = match message.kind {
            OutgoingKind::Notice(method)
                if method.ends_with("/list_changed") && message.bytes.len() <= LONGEST_NEWS =>
            {
                Some((method.to_owned(), message.bytes.clone()))
            }
            _ => None,
        };
        let pushed = state.stream.as_ref().map_or(Pushed::Nowhere, |stream| stream.push(message));
        if pushed != Pushed::Read
            && let Some(news) = news
            && state.missed.len() < MOST_KINDS
            && !state.missed.iter().any(|(missed, _)| *missed == news.0)
        {
            state.missed.push(news);
            return true;
        }
        pushed != Pushed::Nowhere
    }

    fn is_read(&self) -> bool {
        self.state.lock().stream.as_ref().is_some_and(|stream| stream.is_read())
    }

    fn changed(&self) {
        if let Some(home) = &self.home {
            home.changed();
        }
    }
}

impl Inbox {
    /// An inbox whose streams have numbers from `first` on.
    fn new(first: u64, budget: &Arc<Budget>, home: Option<Arc<Home>>) -> Self {
        Self { numbers: AtomicU64::new(first), budget: budget.clone(), home, state: Mutex::default() }
    }

    /// Opens a new stream in place of the previous one.
    pub(super) fn open(&self) -> Reader {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let keeper = self.home.clone().map(|home| home as Arc<dyn Keeper>);
        let stream = Stream::events(number, self.budget.clone(), keeper);
        if let Some(home) = &self.home {
            home.set_inbox(number);
        }
        let reader = stream.read_after(0).expect("there is always a place before the first event");
        let mut state = self.state.lock();
        for (method, bytes) in std::mem::take(&mut state.missed) {
            stream.push(Outgoing { kind: OutgoingKind::Notice(&method), bytes });
        }
        if state.ended {
            stream.finish();
        }
        if let Some(old) = state.stream.replace(stream) {
            old.finish();
            old.abandon();
        }
        reader
    }

    fn resume(&self, number: u64, position: u64, kept_for: Duration) -> Option<Reader> {
        let mut state = self.state.lock();
        let stream =
            state.stream.as_ref().filter(|stream| stream.number == number && !stream.is_stale(kept_for))?;
        let reader = stream.read_after(position)?;
        // The missed messages are among the events that are read again.
        state.missed.clear();
        Some(reader)
    }

    fn forget_stale(&self, kept_for: Duration) {
        let mut state = self.state.lock();
        if let Some(stale) = state.stream.take_if(|stream| stream.is_stale(kept_for)) {
            stale.abandon();
        }
    }

    /// Ends the stream for good.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        if let Some(stream) = state.stream.take() {
            stream.finish();
            stream.abandon();
        }
    }
}

/// The error that there are too many sessions, all of them in use.
#[derive(Debug)]
pub(super) struct Full;

/// All sessions.
pub(super) struct Sessions<S> {
    most: usize,
    table: Mutex<HashMap<Box<str>, Arc<HttpSession<S>>>>,
}

impl<S> Sessions<S> {
    /// A table of at most `most` sessions.
    pub(super) fn new(most: usize) -> Self {
        Self { most, table: Mutex::default() }
    }

    /// The session that a request names. A request that names none is refused with 400, one that names
    /// another caller's with 404.
    pub(super) fn named(&self, headers: &HeaderMap, caller: &Caller) -> Result<Arc<HttpSession<S>>, Denied> {
        let (status, words) = match single(headers, &SESSION_ID) {
            Ok(Some(id)) => match self.get(id, caller) {
                Some(session) => return Ok(session),
                None => (StatusCode::NOT_FOUND, "there is no such session; `initialize` opens one"),
            },
            Ok(None) => (
                StatusCode::BAD_REQUEST,
                "Mcp-Session-Id is missing; `initialize` opens a session, modern requests carry `_meta`",
            ),
            Err(_) => (StatusCode::BAD_REQUEST, "Mcp-Session-Id must be sent once"),
        };
        Err(Denied::new(status, words))
    }

    /// The session of a legacy message, which must be the caller's, and the version header must be one that
    /// we speak.
    pub(super) fn live(&self, headers: &HeaderMap, caller: &Caller) -> Result<Arc<HttpSession<S>>, Denied> {
        match self.named(headers, caller) {
            Err(denied) if denied.status == StatusCode::NOT_FOUND => Err(denied),
            session => {
                legacy_version(headers)?;
                session
            }
        }
    }

    /// Adds a session. If there are too many, the oldest unused one is removed and returned; it is an error
    /// if all are in use.
    pub(super) fn insert(&self, session: &Arc<HttpSession<S>>) -> Result<Option<Arc<HttpSession<S>>>, Full> {
        let mut sessions = self.table.lock();
        let mut given_way = None;
        if sessions.len() >= self.most {
            let unused = sessions.values().filter_map(|session| Some((session.unused_since()?, &session.id)));
            let (_, oldest) = unused.min_by_key(|(since, _)| *since).ok_or(Full)?;
            let oldest = oldest.clone();
            given_way = sessions.remove(&oldest);
        }
        sessions.insert(session.id.clone(), session.clone());
        drop(sessions);
        if let Some(session) = &given_way {
            session.end();
        }
        Ok(given_way)
    }

    /// The session with this id, if it belongs to the caller and to this path. It counts as used from now on.
    pub(super) fn get(&self, id: &str, caller: &Caller) -> Option<Arc<HttpSession<S>>> {
        let session = self.table.lock().get(id).filter(|session| session.caller.is_same(caller)).cloned()?;
        session.activity.lock().used = true;
        Some(session)
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<HttpSession<S>>> {
        self.table.lock().values().cloned().collect()
    }

    /// How many sessions there are.
    pub(super) fn count(&self) -> usize {
        self.table.lock().len()
    }

    /// Ends a session. Returns `false` if it had already ended.
    pub(super) fn remove(&self, session: &HttpSession<S>) -> bool {
        let removed = self.table.lock().remove(&session.id).is_some();
        session.end();
        removed
    }

    /// Removes the sessions that are idle or no longer `allowed`, and forgets streams to which nobody
    /// returned.
    pub(super) fn sweep(
        &self,
        idle: Duration,
        kept_for: Duration,
        allowed: impl Fn(&Caller) -> bool,
    ) -> Vec<Arc<HttpSession<S>>> {
        self.all()
            .into_iter()
            .filter(|session| {
                session.forget_stale(kept_for);
                (session.is_idle(idle) || !allowed(&session.caller)) && self.remove(session)
            })
            .collect()
    }

    /// Removes all sessions.
    pub(super) fn drain(&self) -> Vec<Arc<HttpSession<S>>> {
        let all: Vec<_> = self.table.lock().drain().map(|(_, session)| session).collect();
        all.iter().for_each(|session| session.end());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::http::headers::Accepted;
    use crate::gateway::http::stream::tests::message;

    const MIB: usize = 1024 * 1024;
    const CALLER: Caller = Caller { toolbox: None, token: None };
    const LATER: Duration = Duration::from_secs(300);

    fn session(budget: &Arc<Budget>) -> Arc<HttpSession<()>> {
        HttpSession::new(CALLER, Version::V2025November, budget, |_| None, |_, _| Arc::new(())).unwrap()
    }

    /// The answer to a request of which this many bytes came after the client had gone.
    fn broken_off(
        session: &HttpSession<()>,
        budget: &Arc<Budget>,
        bytes: usize,
        finished: bool,
    ) -> Arc<Stream> {
        let accepted = Accepted { json: true, events: true };
        let stream =
            Stream::answer(session.next_stream(), accepted, Some(budget.clone()), Box::new(session.busy()));
        let reader = stream.read_after(0).unwrap();
        assert_eq!(stream.push(message("begun", false)), Pushed::Read);
        session.keep(&stream);
        drop(reader);
        stream.push(message(vec![b'1'; bytes], finished));
        stream
    }

    fn resumes(session: &HttpSession<()>, stream: &Stream, position: u64) -> bool {
        session.resume(&format!("{}-{position}", stream.number), LATER).is_some()
    }

    #[test]
    fn fifty_sessions_keep_no_more_than_one_budget_and_finished_streams_go_first() {
        let budget = Arc::new(Budget::new(64 * MIB));
        let sessions: Vec<_> = (0..50).map(|_| session(&budget)).collect();
        let begun = broken_off(&sessions[0], &budget, 900_000, false);
        let mut streams = vec![begun.clone()];
        for session in &sessions {
            streams.extend((0..9).map(|_| broken_off(session, &budget, 900_000, true)));
        }
        let held: usize = streams.iter().map(|stream| stream.held()).sum();
        assert_eq!(budget.kept(), held, "what is accounted for is what there is");
        assert!((63 * MIB..=64 * MIB).contains(&held), "{held}");
        let whole = |stream: &Arc<Stream>| stream.held() > 900_000;
        let kept: Vec<_> = streams.iter().map(whole).collect();
        assert!(kept[0], "it was the first, but is not finished");
        assert!(kept[1..].is_sorted(), "the oldest have given way: {kept:?}");
        assert!(resumes(&sessions[0], &begun, 1));
        assert!(!resumes(&sessions[0], &streams[1], 1), "nobody goes on behind a gap");
        assert!(resumes(&sessions[0], &streams[1], 2), "who has all of it misses nothing");
        assert!(resumes(&sessions[49], &streams[450], 1));
    }

    #[test]
    fn what_was_kept_is_given_back_however_it_ends() {
        let budget = Arc::new(Budget::new(64 * MIB));
        let table = Sessions::new(9);
        let begin = || {
            let session = session(&budget);
            assert!(table.insert(&session).unwrap().is_none());
            drop(session.inbox.open());
            assert!(session.inbox.send(message([b'1'; 1000], false)));
            // The backend goes on with the request, so its stream outlives the session.
            let stream = broken_off(&session, &budget, 1000, false);
            assert!(budget.kept() > 2000);
            (session, stream)
        };
        // The client sends DELETE.
        let (session, stream) = begin();
        assert!(table.remove(&session));
        assert_eq!((budget.kept(), stream.push(message("more", false))), (0, Pushed::Nowhere));
        // The server shuts down.
        let (_session, _stream) = begin();
        assert_eq!(table.drain().len(), 1);
        assert_eq!(budget.kept(), 0);
        // Nobody came back in time, but the session lives on.
        let (session, stream) = begin();
        assert!(table.sweep(LATER, Duration::ZERO, |_| true).is_empty());
        assert_eq!((budget.kept(), stream.push(message("more", false))), (0, Pushed::Nowhere));
        assert!(!session.inbox.send(message("more", false)));
        stream.finish();
        // The session is idle.
        assert_eq!(table.sweep(Duration::ZERO, LATER, |_| true).len(), 1);
        // Another stream replaces the one for messages that belong to no request.
        let (session, stream) = begin();
        let _reader = session.inbox.open();
        assert_eq!(budget.kept(), stream.held());
        // The session has too many answers.
        stream.finish();
        for _ in 0..MOST_STREAMS {
            broken_off(&session, &budget, 0, true);
        }
        assert_eq!(stream.held(), 0);
        table.remove(&session);
        assert_eq!(budget.kept(), 0);
    }
}
