//! A session's place in the store: how it stands, and the events of its streams, so that it can go on at another replica.
//!
//! ```text
//! opened or adopted ──▶ ours, in one epoch ── DELETE, idle, token gone ──▶ ended: a marker for a minute
//!                            │        └────── the replica drains ──▶ released: calls in flight end here, all else elsewhere
//!                            └── another has taken it: lost, and given up here
//! ```
//!
//! Invariant: an event is stored before it is read, as long as the store is there. How the session stands is stored
//! before its events are.
//!
//! Invariant: what belongs to the session as a whole is written in its epoch only, so that a home that has lost its place
//! changes nothing.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::Caller;
use super::stream::{Keeper, Stream, Unstored};
use crate::core::record::Record;
use crate::json::{Node, Scanner};
use crate::protocol::message::batch_parts;
use crate::replicas::Replicas;
use crate::replicas::store::{Addition, Away, LONGEST_LIFE};

/// How long it is known of a session that it has ended.
const MARKER: Duration = Duration::from_secs(60);
/// What a session lives on for in the store when its home has not been heard of, beyond its idle time.
const GRACE: Duration = Duration::from_secs(60);
/// The position that ends a log.
pub(super) const END: u64 = u64::MAX;
/// The longest request that is kept word for word, to say that it failed.
const LONGEST_REQUEST: usize = 16 * 1024;

/// The most logs that are remembered until they are removed. Those beyond expire by themselves.
const MOST_OBSOLETE: usize = 64;

/// How often, and after which pause, somebody who leaves looks whether all is stored.
const MOST_LOOKS: usize = 500;
const LOOK: Duration = Duration::from_millis(2);

/// How a session stands, as other replicas read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Standing {
    /// The toolbox of its path.
    pub(super) toolbox: Option<String>,
    /// A digest of the token that opened it.
    pub(super) token: Option<String>,
    /// The negotiated version.
    pub(super) version: String,
    /// What it has open, and the like.
    pub(super) record: Record,
    /// The number of the stream for messages that belong to no request.
    pub(super) inbox: Option<u64>,
    /// The streams of answers, by number.
    pub(super) streams: BTreeMap<u64, StreamNote>,
    /// The replica that had it and lets calls in flight finish.
    pub(super) previous: Option<String>,
}

/// A stream that can be resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StreamNote {
    /// The replica that writes it.
    pub(super) writer: String,
    /// The requests that it answers, as they came, until it has.
    pub(super) requests: Option<String>,
}

impl Standing {
    /// Reads it; `None` for the marker of a session that has ended.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers can be written")
    }

    /// Whether this caller opened the session, on this path.
    pub(super) fn is_of(&self, caller: &Caller) -> bool {
        self.toolbox.as_deref() == caller.toolbox.as_deref() && self.token == token_digest(caller)
    }
}

/// What stands for a caller's token where the token itself must not.
pub(super) fn token_digest(caller: &Caller) -> Option<String> {
    caller.token.as_ref().map(|token| Replicas::digest(&["token", token.token.expose()]))
}

/// The entry of a session.
pub(super) fn entry_key(id: &str) -> String {
    format!("session:{}", Replicas::digest(&["session", id]))
}

/// What a home asks about its session.
pub(super) struct SessionHooks {
    /// How it stands; `None` if it is gone.
    pub(super) record: Box<dyn Fn() -> Option<Record> + Send + Sync>,
    /// Gives the session up: it is another's.
    pub(super) lost: Box<dyn Fn() + Send + Sync>,
}

/// A session's place in the store.
pub(super) struct Home {
    replicas: Arc<Replicas>,
    pub(super) key: String,
    about: Standing,
    epoch: AtomicU64,
    /// How often the keys had changed when the session was last sealed.
    sealed_after: AtomicU64,
    kept_for: Duration,
    owner: OnceLock<SessionHooks>,
    state: Mutex<HomeState>,
    /// Told when it was tried to store how the session stands, and when it stands as it did elsewhere.
    settled: Notify,
    own: Weak<Home>,
}

#[derive(Default)]
struct HomeState {
    life: Duration,
    record: RecordState,
    /// Streams with events that are not stored.
    waiting: Vec<Arc<Stream>>,
    /// Whether somebody is storing.
    running: bool,
    hold: Hold,
    inbox: Option<u64>,
    streams: BTreeMap<u64, StreamNote>,
    /// The streams whose end is stored, and since when.
    ended: HashMap<u64, Instant>,
    /// The requests of answers that are not complete, by stream.
    requests: HashMap<u64, Arc<str>>,
    /// Logs of which nobody needs to know any more.
    obsolete: Vec<String>,
    previous: Option<String>,
    touched: Option<Instant>,
}

impl HomeState {
    /// Notes a log of which nobody needs to know any more.
    fn let_go(&mut self, log: String) {
        if self.obsolete.len() < MOST_OBSOLETE {
            self.obsolete.push(log);
        }
    }
}

/// How far it is stored how a session stands.
#[derive(Default)]
struct RecordState {
    /// Whether it stands otherwise than the store says.
    changed: bool,
    /// Whether somebody is storing it.
    storing: bool,
    /// How it stood at another replica, until it stands so here.
    inherited: Option<Record>,
}

/// What a replica has of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Hold {
    #[default]
    Ours,
    /// The session is anybody's, but calls in flight are ours.
    Released,
    /// Nothing: it has ended, or another has it.
    Lost,
}

/// Forgets the requests of an answer when it is complete.
pub(super) struct InFlight(Arc<Home>, u64);

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests.remove(&self.1);
    }
}

impl Home {
    /// The place of a session that this caller opens.
    pub(super) fn new(
        replicas: &Arc<Replicas>,
        id: &str,
        caller: &Caller,
        version: &str,
        (idle, kept_for): (Duration, Duration),
    ) -> Arc<Self> {
        let about = Standing {
            toolbox: caller.toolbox.as_ref().map(|toolbox| toolbox.to_string()),
            token: token_digest(caller),
            version: version.to_owned(),
            record: Record::default(),
            inbox: None,
            streams: BTreeMap::new(),
            previous: None,
        };
        let state = HomeState { life: life(idle), ..HomeState::default() };
        Arc::new_cyclic(|own| Self {
            replicas: replicas.clone(),
            key: entry_key(id),
            about,
            epoch: AtomicU64::new(0),
            sealed_after: AtomicU64::new(replicas.key_changes()),
            kept_for,
            owner: OnceLock::new(),
            state: Mutex::new(state),
            settled: Notify::new(),
            own: own.clone(),
        })
    }

    /// Says whose place it is; called once.
    pub(super) fn bind(&self, owner: SessionHooks) {
        let _ = self.owner.set(owner);
    }

    /// Takes on what another replica has left.
    pub(super) fn inherit(&self, epoch: u64, standing: Standing) {
        self.epoch.store(epoch, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.record.inherited = Some(standing.record);
        state.inbox = standing.inbox;
        state.streams = standing.streams;
        state.previous = standing.previous;
    }

    /// The name of a stream's log.
    pub(super) fn log(&self, number: u64) -> String {
        format!("log:{}:{number}", self.key.trim_start_matches("session:"))
    }

    /// The epoch in which the session is ours; 0 before it is in the store.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// The replica that had the session and lets calls in flight finish.
    pub(super) fn previous(&self) -> Option<String> {
        self.state.lock().previous.clone()
    }

    /// Whether the session has another home by now, or none.
    pub(super) fn is_left(&self) -> bool {
        self.state.lock().hold != Hold::Ours
    }

    /// Notes requests whose answer goes to a stream, until the guard is dropped.
    pub(super) fn begin(&self, number: u64, requests: &[u8]) -> Option<InFlight> {
        let home = self.own.upgrade()?;
        self.state.lock().requests.insert(number, brief(requests).into());
        Some(InFlight(home, number))
    }

    /// Notes that the end of a stream is stored.
    pub(super) fn note_end(&self, number: u64) {
        self.state.lock().ended.insert(number, Instant::now());
    }

    /// Notes that the session stands otherwise than before.
    pub(super) fn changed(&self) {
        self.state.lock().record.changed = true;
        self.start();
    }

    /// Notes the stream for messages that belong to no request, in the place of another.
    pub(super) fn set_inbox(&self, number: u64) {
        let mut state = self.state.lock();
        if let Some(old) = state.inbox.replace(number).filter(|old| *old != number) {
            state.let_go(self.log(old));
        }
        state.record.changed = true;
        drop(state);
        self.start();
    }

    /// Forgets the stream of an answer that nobody can resume any more.
    pub(super) fn let_go(&self, number: u64) {
        let mut state = self.state.lock();
        if state.streams.remove(&number).is_none() {
            return;
        }
        state.ended.remove(&number);
        state.let_go(self.log(number));
        state.record.changed = true;
        drop(state);
        self.start();
    }

    /// How the session stands now.
    fn standing(&self) -> Option<Vec<u8>> {
        let record = (self.owner.get()?.record)()?;
        let mut state = self.state.lock();
        // Whoever comes next opens all of it, though we have not come to the end.
        let record = state.record.inherited.clone().unwrap_or(record);
        let kept_for = self.kept_for;
        let stale: Vec<_> = state.ended.extract_if(|_, since| since.elapsed() >= kept_for).collect();
        for (number, _) in stale {
            state.streams.remove(&number);
        }
        let mut streams = state.streams.clone();
        for (number, note) in &mut streams {
            if *note.writer == *self.replicas.id {
                note.requests = state.requests.get(number).map(|text| text.to_string());
            }
        }
        let standing = Standing {
            record,
            inbox: state.inbox,
            streams,
            previous: state.previous.clone(),
            ..self.about.clone()
        };
        drop(state);
        Some(standing.write())
    }

    fn life(&self) -> Duration {
        self.state.lock().life
    }

    /// Puts a new session into the store.
    pub(super) async fn enter(&self) -> Result<bool, Away> {
        let Some(standing) = self.standing() else { return Ok(false) };
        let entered = self.replicas.swap(&self.key, 0, &self.replicas.id, &standing, self.life()).await?;
        self.epoch.store(entered.unwrap_or(0), Ordering::Relaxed);
        self.start();
        Ok(entered.is_some())
    }

    /// Keeps the session from expiring in the store, if it is time for that.
    pub(super) fn care(&self, idle: Duration, inbox_is_read: bool) {
        let mut state = self.state.lock();
        state.life = life(idle);
        let key_changes = self.replicas.key_changes();
        if self.sealed_after.swap(key_changes, Ordering::Relaxed) != key_changes {
            state.record.changed = true;
            drop(state);
            return self.start();
        }
        let is_due = |last: Instant| last.elapsed() >= (idle / 4).min(self.kept_for / 4);
        if self.epoch() == 0 || state.hold != Hold::Ours || !state.touched.is_none_or(is_due) {
            return;
        }
        state.touched = Some(Instant::now());
        let (replicas, entry, life) = (self.replicas.clone(), vec![self.key.clone()], state.life);
        let logs: Vec<_> =
            state.inbox.filter(|_| inbox_is_read).map(|number| self.log(number)).into_iter().collect();
        let kept_for = self.kept_for;
        drop(state);
        tokio::spawn(async move {
            let _ = replicas.touch(&entry, life).await;
            let _ = replicas.touch(&logs, kept_for).await;
        });
    }

    /// Ends the session everywhere; what is left of it is a marker.
    pub(super) async fn end(&self) -> Result<(), Away> {
        let logs = {
            let mut state = self.state.lock();
            state.hold = Hold::Lost;
            let mut logs = std::mem::take(&mut state.obsolete);
            logs.extend(state.streams.keys().chain(&state.inbox).map(|number| self.log(*number)));
            logs
        };
        let ended = async {
            self.replicas.swap(&self.key, self.epoch(), "", &[], MARKER).await?;
            self.replicas.remove(&logs).await
        };
        let ended = ended.await;
        if ended.is_err() {
            self.state.lock().hold = Hold::Ours;
        }
        ended
    }

    /// Leaves the session to whoever is asked for it next. Calls in flight finish here.
    pub(super) async fn release(&self) {
        self.flushed().await;
        let Some(standing) = self.standing() else { return };
        let standing = {
            let mut state = self.state.lock();
            if state.hold != Hold::Ours || self.epoch() == 0 {
                return;
            }
            state.hold = Hold::Released;
            let busy = !state.requests.is_empty();
            let mut standing = Standing::read(&standing).expect("it was just written");
            standing.previous = busy.then(|| self.replicas.id.to_string());
            standing.write()
        };
        let _ = self.replicas.swap(&self.key, self.epoch(), "", &standing, self.life()).await;
    }

    /// Waits until it is stored how the session stands, or it cannot be.
    pub(super) async fn recorded(&self) {
        self.once(|state| {
            self.epoch() == 0 || !state.record.changed && !state.record.storing || self.replicas.is_away()
        })
        .await;
    }

    /// The session stands here as it did elsewhere.
    pub(super) fn restored(&self) {
        self.state.lock().record.inherited = None;
        self.settled.notify_waiters();
        self.changed();
    }

    /// Waits until the session stands here as it did elsewhere.
    pub(super) async fn ready(&self) {
        self.once(|state| state.record.inherited.is_none()).await;
    }

    /// Waits until something holds that [`Self::settled`] tells of, or the session is no longer ours.
    async fn once(&self, holds: impl Fn(&HomeState) -> bool) {
        loop {
            let mut settled = pin!(self.settled.notified());
            settled.as_mut().enable();
            {
                let state = self.state.lock();
                if holds(&state) || state.hold != Hold::Ours {
                    return;
                }
            }
            settled.await;
        }
    }

    /// Waits until all is stored that can be.
    async fn flushed(&self) {
        for _ in 0..MOST_LOOKS {
            {
                let state = self.state.lock();
                if !state.running {
                    return;
                }
            }
            sleep(LOOK).await;
        }
    }

    /// Stores what could not be stored while the store was away.
    pub(super) fn catch_up(&self) {
        self.start();
    }

    fn start(&self) {
        let Some(home) = self.own.upgrade() else { return };
        let mut state = self.state.lock();
        if self.epoch() == 0 || state.running || state.hold == Hold::Lost {
            return;
        }
        state.running = true;
        tokio::spawn(async move { home.store_all().await });
    }

    /// Stores everything that is not stored yet.
    async fn store_all(&self) {
        loop {
            let (changed, streams, obsolete) = {
                let mut state = self.state.lock();
                let changed = std::mem::take(&mut state.record.changed) && state.hold == Hold::Ours;
                state.record.storing = changed;
                let streams = std::mem::take(&mut state.waiting);
                let obsolete = std::mem::take(&mut state.obsolete);
                if state.hold == Hold::Lost || !changed && streams.is_empty() && obsolete.is_empty() {
                    state.running = false;
                    drop(state);
                    self.settled.notify_waiters();
                    streams.iter().for_each(|stream| stream.stored(END));
                    return;
                }
                (changed, streams, obsolete)
            };
            let stored = async {
                if changed && let Some(standing) = self.standing() {
                    let life = self.life();
                    if !self.replicas.write(&self.key, self.epoch(), &standing, life).await? {
                        self.lose();
                    }
                }
                if !obsolete.is_empty() {
                    self.replicas.remove(&obsolete).await?;
                }
                Ok::<_, Away>(())
            };
            let away = stored.await.is_err();
            {
                let mut state = self.state.lock();
                state.record.storing = false;
                // It is stored when the store is back.
                state.record.changed |= changed && away;
            }
            self.settled.notify_waiters();
            for stream in &streams {
                self.store(stream).await;
            }
            if away {
                let mut state = self.state.lock();
                obsolete.into_iter().for_each(|log| state.let_go(log));
                state.running = false;
                return;
            }
        }
    }

    async fn store(&self, stream: &Stream) {
        loop {
            let Unstored { events, first, finished } = stream.unstored();
            let is_inbox = {
                let state = self.state.lock();
                let is_inbox = state.inbox == Some(stream.number);
                let is_known = is_inbox || state.streams.contains_key(&stream.number);
                if state.hold == Hold::Lost || !is_known {
                    return stream.stored(END);
                }
                is_inbox
            };
            let next = events.last().map_or(0, |(position, _)| position + 1);
            let mut events: Vec<_> =
                events.into_iter().map(|(position, event)| (position, event.to_vec())).collect();
            let ends = finished && !is_inbox && !self.state.lock().ended.contains_key(&stream.number);
            if ends {
                events.push((END, Vec::new()));
            }
            if events.is_empty() {
                return;
            }
            let log = self.log(stream.number);
            let fence = is_inbox.then(|| (&*self.key, self.epoch()));
            let addition = Addition { log: &log, fence, first_kept: first, events, life: self.kept_for };
            let added = self.replicas.append(addition).await;
            if added == Ok(false) {
                self.lose();
            }
            if ends {
                let mut state = self.state.lock();
                state.ended.insert(stream.number, Instant::now());
                state.record.changed = true;
            }
            stream.stored(next);
            if added.is_err() {
                return;
            }
        }
    }

    /// Another replica is the home now.
    fn lose(&self) {
        {
            let mut state = self.state.lock();
            if state.hold != Hold::Ours {
                return;
            }
            state.hold = Hold::Lost;
        }
        if let Some(owner) = self.owner.get() {
            (owner.lost)();
        }
    }

    /// Gives the session up without a word to the store.
    pub(super) fn forget(&self) {
        self.state.lock().hold = Hold::Lost;
        self.settled.notify_waiters();
    }
}

impl Keeper for Home {
    fn wake(&self, stream: &Arc<Stream>) {
        let mut state = self.state.lock();
        if state.hold == Hold::Lost {
            drop(state);
            return stream.stored(END);
        }
        let number = stream.number;
        if state.inbox != Some(number) && !state.streams.contains_key(&number) {
            let requests = state.requests.get(&number).map(|text| text.to_string());
            let writer = self.replicas.id.to_string();
            state.streams.insert(number, StreamNote { writer, requests });
            state.record.changed = true;
        }
        if !state.waiting.iter().any(|waiting| waiting.number == number) {
            state.waiting.push(stream.clone());
        }
        drop(state);
        if self.replicas.is_away() {
            // Nobody waits for a store that is away.
            let next = stream.unstored().events.last().map_or(0, |(position, _)| position + 1);
            stream.stored(next);
        }
        self.start();
    }
}

/// Requests as they came, or what is needed to say that they failed.
fn brief(requests: &[u8]) -> String {
    if requests.len() <= LONGEST_REQUEST {
        return String::from_utf8_lossy(requests).into_owned();
    }
    let mut scanner = Scanner::default();
    let Ok(doc) = scanner.scan(requests) else { return String::new() };
    let brief = |request: Node<'_>| {
        let (id, method) = (request.get("id")?.raw(), request.get("method")?.raw());
        let name = request.get("params").and_then(|params| params.get("name"));
        let name = name.map(|name| format!("\"name\":{}", name.raw())).unwrap_or_default();
        Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{{{name}}}}}"#))
    };
    match doc.root().is_array() {
        false => brief(doc.root()).unwrap_or_default(),
        true => {
            let parts: Vec<_> =
                batch_parts(doc.root()).iter().map(|part| part.root()).filter_map(brief).collect();
            format!("[{}]", parts.join(","))
        }
    }
}

/// How long a session that is idle after this time lives in the store.
pub(super) fn life(idle: Duration) -> Duration {
    (idle.saturating_add(idle / 4)).saturating_add(GRACE).min(LONGEST_LIFE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;
    use crate::replicas::in_process::InProcess;

    #[tokio::test]
    async fn logs_that_cannot_be_removed_are_not_remembered_for_ever() {
        let store = Arc::new(InProcess::default());
        let replicas = Replicas::new(store.clone(), &[Secret::new("a key of thirty-two bytes, at least")]);
        let caller = Caller { toolbox: None, token: None };
        let times = (Duration::from_secs(60), Duration::from_secs(60));
        let home = Home::new(&replicas, "id", &caller, "2025-06-18", times);
        home.bind(SessionHooks { record: Box::new(|| Some(Record::default())), lost: Box::new(|| {}) });
        assert_eq!(home.enter().await, Ok(true));
        {
            let _writes = store.gate.write().await;
            for number in 0..1000 {
                home.set_inbox(number);
                tokio::task::yield_now().await;
            }
            assert_eq!(home.state.lock().obsolete.len(), MOST_OBSOLETE);
        }
        home.recorded().await;
        home.flushed().await;
        assert_eq!(home.state.lock().obsolete.len(), 0, "they are removed when that can be done");
    }
}
