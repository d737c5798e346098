//! A client: what it said of itself, what it waits for, what it sees.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::catalog::Kind;
use super::connection::Link;
use super::upstream::Upstream;
use super::view::View;
use crate::wire::era::{ClientHello, Version};
use crate::wire::json::Node;
use crate::wire::message::{Id, code, error_object, write_raw_error, write_result};
use crate::wire::outbox::Outbox;
use crate::wire::peer::{Lost, Peer};

/// One client over stdio.
pub struct Session {
    /// Our requests to the client: questions of upstreams.
    pub peer: Arc<Peer<Question>>,
    /// What the client sees.
    pub view: Mutex<View>,
    hello: OnceLock<ClientHello>,
    waiting: Mutex<HashMap<Arc<str>, Waiting>>,
    all_answered: Notify,
    ending: AtomicBool,
    /// The last `logging/setLevel`, its raw parameters.
    log_level: Mutex<Option<String>>,
    /// URIs that results mentioned in a `resource_link`, and who sent them.
    links: Mutex<HashMap<String, Weak<Upstream>>>,
    /// Exposed URIs that the client subscribed to.
    pub subscriptions: Mutex<HashSet<String>>,
}

/// A question of an upstream that waits for the client.
pub struct Question {
    /// Who asked.
    pub link: Weak<Link>,
    /// The upstream's own progress token, raw.
    pub progress: Option<Box<str>>,
}

/// A request of the client that has no answer yet.
struct Waiting {
    id: Id,
    batch: Option<Arc<Batch>>,
    /// Where it was sent.
    target: Option<(Arc<Link>, u64)>,
}

/// URIs of links remembered at most.
const MOST_LINKS: usize = 10_000;

impl Session {
    /// A client whose messages leave through `out`.
    pub fn new(out: Arc<Outbox>) -> Arc<Self> {
        Arc::new(Self {
            peer: Peer::new(out),
            view: Mutex::default(),
            hello: OnceLock::new(),
            waiting: Mutex::default(),
            all_answered: Notify::new(),
            ending: AtomicBool::new(false),
            log_level: Mutex::default(),
            links: Mutex::default(),
            subscriptions: Mutex::default(),
        })
    }

    /// Where messages to the client leave.
    pub fn out(&self) -> &Arc<Outbox> {
        self.peer.out()
    }

    /// What the client said in `initialize`.
    pub fn hello(&self) -> Option<&ClientHello> {
        self.hello.get()
    }

    /// Notes what the client said; `false` if it had said so before.
    pub fn greet(&self, hello: ClientHello) -> bool {
        self.hello.set(hello).is_ok()
    }

    /// The version that the client speaks.
    pub fn version(&self) -> Version {
        self.hello().map_or(Version::LATEST, |hello| hello.version)
    }

    /// Takes a request on. `None`: its id is in use, or the session is ending; the refusal has been sent.
    pub fn accept(self: &Arc<Self>, id: Id, batch: Option<Arc<Batch>>) -> Option<Reply> {
        let refuse = |id: Option<&Id>, code, message: &str| {
            let error = error_object(code, message, None);
            self.send(batch.as_ref(), |out| {
                write_raw_error(out, id, |out| out.extend_from_slice(error.as_bytes()))
            });
            None
        };
        if self.ending.load(Ordering::Relaxed) {
            return refuse(Some(&id), code::UPSTREAM_LOST, "the gateway is shutting down");
        }
        let key = id.key();
        let mut waiting = self.waiting.lock();
        let Entry::Vacant(entry) = waiting.entry(key.clone()) else {
            drop(waiting);
            let message = format!(
                "Invalid request: the id {} is in use by a request that is not answered yet",
                id.raw()
            );
            return refuse(None, code::INVALID_REQUEST, &message);
        };
        entry.insert(Waiting { id, batch, target: None });
        Some(Reply { session: self.clone(), key: Some(key) })
    }

    /// Notes to which upstream a request went, so that it can be cancelled there.
    pub fn sent(&self, key: &str, link: &Arc<Link>, id: u64) {
        if let Some(waiting) = self.waiting.lock().get_mut(key) {
            waiting.target = Some((link.clone(), id));
        }
    }

    /// Forgets a request that the client cancelled: no answer will be sent. Returns where it went.
    pub fn cancel(&self, id: &Id) -> Option<(Arc<Link>, u64)> {
        let waiting = self.forget(&id.key())?;
        if let Some(batch) = &waiting.batch {
            batch.add(self, None);
        }
        waiting.target
    }

    /// Accepts no further request.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Waits until every request is answered.
    pub async fn answered(&self) {
        loop {
            let notified = self.all_answered.notified();
            if self.waiting.lock().is_empty() {
                return;
            }
            notified.await;
        }
    }

    /// Cancels every request that is not answered yet, upstream too, and answers with an error.
    pub fn abandon(&self, reason: &str) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let error = error_object(code::UPSTREAM_LOST, reason, None);
        for waiting in waiting.into_values() {
            self.send(waiting.batch.as_ref(), |out| {
                write_raw_error(out, Some(&waiting.id), |out| out.extend_from_slice(error.as_bytes()));
            });
            if let Some((link, id)) = waiting.target {
                link.peer.cancel(id, reason, &Lost::new(reason));
            }
        }
        self.all_answered.notify_waiters();
    }

    /// Tells the client that lists have changed.
    pub fn lists_changed(&self, kinds: &[Kind]) {
        let mut told = Vec::new();
        for kind in kinds {
            let method = kind.changed_method();
            if !told.contains(&method) {
                told.push(method);
                self.peer.notify(method, |_| ());
            }
        }
    }

    /// The level of log messages that the client asked for, as raw parameters.
    pub fn log_level(&self) -> Option<String> {
        self.log_level.lock().clone()
    }

    /// Remembers the level of log messages.
    pub fn set_log_level(&self, params: &str) {
        *self.log_level.lock() = Some(params.to_owned());
    }

    /// Remembers who sent a link to this URI.
    pub fn remember_link(&self, uri: &str, upstream: &Arc<Upstream>) {
        let mut links = self.links.lock();
        if links.len() >= MOST_LINKS && !links.contains_key(uri) {
            links.clear();
        }
        links.insert(uri.to_owned(), Arc::downgrade(upstream));
    }

    /// Who sent a link to this URI.
    pub fn link_sender(&self, uri: &str) -> Option<Arc<Upstream>> {
        self.links.lock().get(uri).and_then(Weak::upgrade)
    }

    fn forget(&self, key: &str) -> Option<Waiting> {
        let mut waiting = self.waiting.lock();
        let found = waiting.remove(key);
        if waiting.is_empty() {
            self.all_answered.notify_waiters();
        }
        found
    }

    /// Sends a message, or lets it wait for the rest of its batch.
    pub fn send(&self, batch: Option<&Arc<Batch>>, write: impl FnOnce(&mut Vec<u8>)) {
        match batch {
            None => {
                self.out().push(write);
            }
            Some(batch) => {
                let mut answer = Vec::new();
                write(&mut answer);
                batch.add(self, Some(answer));
            }
        }
    }
}

/// The answers to a batch, which leave together.
pub struct Batch(Mutex<(usize, Vec<Vec<u8>>)>);

impl Batch {
    /// A batch that expects so many answers.
    pub fn new(expected: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new((expected, Vec::new()))))
    }

    /// Adds an answer, or `None` for a request that gets none, and sends all of them after the last.
    pub fn add(&self, session: &Session, answer: Option<Vec<u8>>) {
        let answers = {
            let mut state = self.0.lock();
            state.1.extend(answer);
            state.0 -= 1;
            if state.0 > 0 || state.1.is_empty() {
                return;
            }
            std::mem::take(&mut state.1)
        };
        session.out().push(|out| {
            out.push(b'[');
            out.extend_from_slice(&answers.join(&b','));
            out.push(b']');
        });
    }
}

/// The right to answer one request, once. Dropped without an answer it sends an error, so that whatever goes wrong
/// no client waits for ever.
pub struct Reply {
    session: Arc<Session>,
    key: Option<Arc<str>>,
}

impl Reply {
    /// Whose request it is.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The request's id, as [`Session::sent`] wants it.
    pub fn key(&self) -> &Arc<str> {
        self.key.as_ref().expect("taken only by an answer, which consumes the reply")
    }

    /// Whether the client still wants the answer.
    pub fn is_wanted(&self) -> bool {
        self.session.waiting.lock().contains_key(&**self.key())
    }

    /// Answers with a result that `write` writes as raw JSON.
    pub fn result_with(mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.send(|out, id| write_result(out, id, write));
    }

    /// Answers with a raw result.
    pub fn result(self, result: &str) {
        self.result_with(|out| out.extend_from_slice(result.as_bytes()));
    }

    /// Answers with an upstream's raw error object.
    pub fn raw_error(mut self, error: Node<'_>) {
        self.send(|out, id| write_raw_error(out, Some(id), |out| error.write(out)));
    }

    /// Answers with an error of our own; `data` is raw JSON.
    pub fn error(mut self, code: i64, message: &str, data: Option<&str>) {
        self.send_error(code, message, data);
    }

    fn send_error(&mut self, code: i64, message: &str, data: Option<&str>) {
        let error = error_object(code, message, data);
        self.send(|out, id| write_raw_error(out, Some(id), |out| out.extend_from_slice(error.as_bytes())));
    }

    fn send(&mut self, write: impl FnOnce(&mut Vec<u8>, &Id)) {
        let Some(key) = self.key.take() else { return };
        let (found, last) = {
            let mut waiting = self.session.waiting.lock();
            (waiting.remove(&key), waiting.is_empty())
        };
        if let Some(waiting) = found {
            self.session.send(waiting.batch.as_ref(), |out| write(out, &waiting.id));
            if last {
                self.session.all_answered.notify_waiters();
            }
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.key.is_some() {
            self.send_error(
                code::INTERNAL,
                "Internal error: the request was dropped without an answer",
                None,
            );
        }
    }
}
