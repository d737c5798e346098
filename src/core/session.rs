//! A client: what it said of itself, what it waits for, what it sees.

use std::collections::hash_map::{Entry, OccupiedEntry};
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use hyper::header::HeaderMap;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Notify;

use super::catalog::Kind;
use super::link::Link;
use super::modern::{Listener, ModernCall};
use super::opening::{Hush, Hushes};
use super::tasks::Tasks;
use super::upstream::Upstream;
use super::view::{Exposure, View};
use crate::wire::era::{ClientHello, Version};
use crate::wire::json::Node;
use crate::wire::message::{Id, code, error_object, write_notification, write_raw_error, write_result};
use crate::wire::outbox::{Out, Outbox};
use crate::wire::peer::{Lost, Peer};

/// Where messages to a client over HTTP go: one for each POST, one for a session's messages that belong to no request.
pub trait Sink: Send + Sync {
    /// Takes one whole JSON-RPC message. `last`: the answer that this stream waits for is complete. `false`: nobody
    /// reads it. A sink that is dropped before its last message ends its stream without an answer.
    fn send(&self, message: &[u8], last: bool) -> bool;
}

/// Which way messages to a client go.
#[derive(Clone)]
pub enum Route {
    /// Our stdout.
    Pipe(Arc<Outbox>),
    /// A stream of the client's.
    Stream(Arc<dyn Sink>),
    /// Nobody listens.
    Nowhere,
}

impl Route {
    /// Sends what `write` writes, one message; `last` says that no other will follow on this way.
    pub fn push(&self, last: bool, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        match self {
            Self::Pipe(out) => out.push(write),
            Self::Stream(sink) => {
                let mut message = Vec::new();
                write(&mut message);
                sink.send(&message, last)
            }
            Self::Nowhere => false,
        }
    }
}

impl Out for Route {
    fn send(&self, write: &mut dyn FnMut(&mut Vec<u8>)) -> bool {
        self.push(false, write)
    }
}

/// A view, and the sessions that look through it: one over stdio and in the legacy era, all callers with the same
/// credentials in the modern one.
pub struct Window {
    /// Tells windows apart.
    pub id: u64,
    /// Tells clients apart that have upstreams for themselves: windows of the same client share it.
    pub client: u64,
    /// Who looks through it, as the configuration names them.
    pub principal: String,
    /// Which of the gateway's faces is seen through it, and how things are named there.
    face: RwLock<(usize, Arc<dyn Exposure + Send + Sync>)>,
    view: Mutex<View>,
    /// What was begun through it and goes on upstream.
    pub tasks: Tasks,
    /// URIs that results mentioned in a `resource_link`, and the group and server that sent them.
    links: Mutex<HashMap<String, Origin>>,
    sessions: Mutex<Vec<Weak<Session>>>,
    pub(super) listeners: Mutex<Vec<Listener>>,
    hushes: Hushes,
}

/// A group and a server in it. They stay when the file puts another upstream there.
type Origin = (Arc<str>, Arc<str>);

impl Window {
    /// A window on nothing yet, of a client that has others, or of a new one.
    pub fn new(
        principal: &str,
        face: usize,
        exposure: Arc<dyn Exposure + Send + Sync>,
        client: Option<u64>,
    ) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            id,
            client: client.unwrap_or(id),
            principal: principal.to_owned(),
            face: RwLock::new((face, exposure)),
            view: Mutex::default(),
            tasks: Tasks::default(),
            links: Mutex::default(),
            sessions: Mutex::default(),
            listeners: Mutex::default(),
            hushes: Hushes::default(),
        })
    }

    /// Which of the gateway's faces is seen through it.
    pub fn face(&self) -> usize {
        self.face.read().0
    }

    /// How things are named in it.
    pub fn exposure(&self) -> Arc<dyn Exposure + Send + Sync> {
        self.face.read().1.clone()
    }

    /// Shows another face from now on. The view must be renewed by it.
    pub fn set_face(&self, face: usize, exposure: Arc<dyn Exposure + Send + Sync>) {
        *self.face.write() = (face, exposure);
    }

    /// Whether a modern client wants to hear of changes.
    pub fn has_listeners(&self) -> bool {
        !self.listeners.lock().is_empty()
    }

    /// Ends the subscriptions of modern clients properly.
    pub fn end_listeners(&self) {
        let listeners = std::mem::take(&mut *self.listeners.lock());
        for listener in listeners {
            listener.finish();
        }
    }

    /// The URIs that modern clients want to hear of.
    pub fn listened(&self) -> HashSet<String> {
        self.listeners.lock().iter().flat_map(Listener::resources).collect()
    }

    /// Hands over every subscription to this URI.
    pub fn each_listener_of(&self, uri: &str, mut take: impl FnMut(&mut Listener)) {
        let mut listeners = self.listeners.lock();
        listeners.iter_mut().filter(|listener| listener.wants(uri)).for_each(&mut take);
    }

    /// Tells modern clients of lists that changed, those that asked for it.
    pub fn tell_listeners(&self, changed: &[Kind]) {
        for listener in self.listeners.lock().iter() {
            listener.lists_changed(changed);
        }
    }

    /// What is seen through it.
    pub fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock()
    }

    /// Remembers who sent a link to this URI.
    pub fn remember_link(&self, uri: &str, upstream: &Arc<Upstream>) {
        let mut links = self.links.lock();
        if links.len() >= MOST_LINKS && !links.contains_key(uri) {
            links.clear();
        }
        links.insert(uri.to_owned(), (upstream.group.clone(), upstream.server.clone()));
    }

    /// Who sent a link to this URI, or stands in for it, as long as it stands in `view`, which is this window's.
    pub fn link_sender(&self, view: &View, uri: &str) -> Option<Arc<Upstream>> {
        let (group, server) = self.links.lock().get(uri).cloned()?;
        view.server(&group, &server).map(|entry| entry.upstream.clone())
    }

    /// Tells of nothing that lists gain or lose by these upstreams while what is returned lives.
    pub fn hush(&self, upstreams: Vec<Arc<Upstream>>) -> Arc<Hush> {
        self.hushes.begin(upstreams)
    }

    /// Whether it is not the time yet to tell of lists that changed by what an upstream does.
    pub(super) fn holds_back(&self, upstream: &Arc<Upstream>, changed: &[Kind]) -> bool {
        self.hushes.note(upstream, changed)
    }

    /// Takes a subscription out, if the request with this id is one.
    pub fn take_listener(&self, session: &Session, id: &Id) -> Option<Listener> {
        let mut listeners = self.listeners.lock();
        let at = listeners.iter().position(|listener| listener.belongs_to(session, id))?;
        Some(listeners.swap_remove(at))
    }

    /// The sessions that look through it.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        let mut sessions = self.sessions.lock();
        sessions.retain(|session| session.strong_count() > 0);
        sessions.iter().filter_map(Weak::upgrade).collect()
    }
}

/// One client over stdio, one legacy session, or one modern request over HTTP.
pub struct Session {
    /// What the client sees.
    pub window: Arc<Window>,
    /// Our requests to the client: questions of upstreams.
    pub peer: Arc<Peer<Question>>,
    main: Route,
    hello: OnceLock<ClientHello>,
    waiting: Mutex<Requests>,
    all_answered: Notify,
    ending: AtomicBool,
    /// The last `logging/setLevel`, its raw parameters.
    log_level: Mutex<Option<String>>,
    /// The `Mcp-Param-…` headers of a modern request over HTTP. Until its tool is known nobody can tell what they must say.
    pub mirrored: OnceLock<HeaderMap>,
    /// Exposed URIs that the client subscribed to, and where they lead: to whom, and to which URI there.
    subscriptions: Mutex<HashMap<String, (Origin, String)>>,
}

/// A question of an upstream that waits for the client.
pub struct Question {
    /// Who asked.
    pub link: Weak<Link>,
    /// The upstream's own progress token, raw.
    pub progress: Option<Box<str>>,
    /// The client's request that nobody but us waits for while the client is asked: the question ends with it.
    pub call: Option<Arc<str>>,
}

/// A client's requests by their ids.
type Requests = HashMap<Arc<str>, Waiting>;

/// A request of the client that has no answer yet.
struct Waiting {
    id: Id,
    batch: Option<Arc<Batch>>,
    /// Where it was sent.
    target: Option<(Arc<Link>, u64)>,
    route: Route,
}

/// URIs of links remembered at most.
const MOST_LINKS: usize = 10_000;

impl Session {
    /// A client that looks through `window`; messages that belong to no request go by `main`.
    pub fn new(window: Arc<Window>, main: Route) -> Arc<Self> {
        let session = Arc::new(Self {
            window: window.clone(),
            peer: Peer::new(Arc::new(main.clone())),
            main,
            hello: OnceLock::new(),
            waiting: Mutex::default(),
            all_answered: Notify::new(),
            ending: AtomicBool::new(false),
            log_level: Mutex::default(),
            mirrored: OnceLock::new(),
            subscriptions: Mutex::default(),
        });
        // A modern request over HTTP hears of nothing but its own answer.
        if !matches!(session.main, Route::Nowhere) {
            window.sessions.lock().push(Arc::downgrade(&session));
        }
        session
    }

    /// What the client sees.
    pub fn view(&self) -> MutexGuard<'_, View> {
        self.window.view()
    }

    /// Waits until the client has taken most of what it was sent.
    pub async fn room(&self) {
        if let Route::Pipe(out) = &self.main {
            out.room().await;
        }
    }

    /// What the client said in `initialize`.
    pub fn hello(&self) -> Option<&ClientHello> {
        self.hello.get()
    }

    /// Notes what the client said; `false` if it had said so before.
    pub fn greet(&self, hello: ClientHello) -> bool {
        self.hello.set(hello).is_ok()
    }

    /// Takes a request on; its answer, and what belongs to it, goes by `route`. `None`: its id is in use; the refusal
    /// has been sent.
    pub fn accept(
        self: &Arc<Self>,
        id: Id,
        route: Option<Route>,
        batch: Option<Arc<Batch>>,
        modern: Option<Arc<ModernCall>>,
    ) -> Option<Reply> {
        let key = id.key();
        let mut waiting = self.waiting.lock();
        let Entry::Vacant(entry) = waiting.entry(key.clone()) else {
            drop(waiting);
            let message = format!(
                "Invalid request: the id {} is in use by a request that is not answered yet",
                id.raw()
            );
            let error = error_object(code::INVALID_REQUEST, &message, None);
            self.refuse(None, &error, route, batch.as_ref());
            return None;
        };
        let route = route.unwrap_or_else(|| self.main.clone());
        entry.insert(Waiting { id, batch, target: None, route });
        Some(Reply { session: self.clone(), key: Some(key), modern })
    }

    /// Turns away what is not taken on, with a raw error. An id that a request in flight has is left out: the client
    /// would take the refusal for that one's answer.
    pub fn refuse(&self, id: Option<&Id>, error: &str, route: Option<Route>, batch: Option<&Arc<Batch>>) {
        let id = id.filter(|id| !self.waiting.lock().contains_key(&id.key()));
        let route = route.unwrap_or_else(|| self.main.clone());
        self.send(&route, batch, |out| {
            write_raw_error(out, id, |out| out.extend_from_slice(error.as_bytes()));
        });
    }

    /// Notes to which upstream a request went, so that it can be cancelled there.
    pub fn sent(&self, key: &Arc<str>, link: &Arc<Link>, id: u64) {
        if let Some(mut waiting) = own(&mut self.waiting.lock(), key) {
            waiting.get_mut().target = Some((link.clone(), id));
        }
    }

    /// Which way messages about a request go: its own while it waits, else the session's.
    pub fn route(&self, key: Option<&Arc<str>>) -> Route {
        let route = |key| own(&mut self.waiting.lock(), key).map(|waiting| waiting.get().route.clone());
        key.and_then(route).unwrap_or_else(|| self.main.clone())
    }

    /// Forgets a request that the client cancelled: no answer will be sent. Returns where it went.
    pub fn cancel(&self, id: &Id) -> Option<(Arc<Link>, u64)> {
        let (key, waiting) = {
            let mut waiting = self.waiting.lock();
            let found = waiting.remove_entry(&*id.key())?;
            if waiting.is_empty() {
                self.all_answered.notify_waiters();
            }
            found
        };
        if let Some(batch) = &waiting.batch {
            batch.add(&waiting.route, None);
        }
        // What the client was asked for its sake is of no use any more.
        let mut questions = Vec::new();
        self.peer.each(|id, question| {
            questions.extend(question.call.as_ref().filter(|call| Arc::ptr_eq(call, &key)).map(|_| id));
        });
        for id in questions {
            let reason = "the call that it belongs to was cancelled";
            self.peer.cancel(id, reason, &Lost::new(reason));
        }
        waiting.target
    }

    /// Whether every further request is to be turned away.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Accepts no further request; subscriptions end properly.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.window.end_listeners();
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

    /// Cancels what upstreams have not answered yet; each is answered as if its upstream had gone.
    pub fn cut_off(&self, reason: &str) {
        let lost = Lost::new(reason);
        loop {
            let targets: Vec<_> =
                self.waiting.lock().values().filter_map(|waiting| waiting.target.clone()).collect();
            let cancelled = targets.iter().filter(|(link, id)| link.peer.cancel(*id, reason, &lost)).count();
            // One that is over may let another begin.
            if cancelled == 0 {
                return;
            }
        }
    }

    /// Cancels every request that is not answered yet, upstream too, and answers with an error.
    pub fn abandon(&self, reason: &str) {
        self.cut_off(reason);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let error = error_object(code::UPSTREAM_LOST, reason, None);
        for waiting in waiting.into_values() {
            self.send(&waiting.route, waiting.batch.as_ref(), |out| {
                write_raw_error(out, Some(&waiting.id), |out| out.extend_from_slice(error.as_bytes()));
            });
        }
        self.all_answered.notify_waiters();
    }

    /// Sends a notification that belongs to the request with this key, or to none.
    pub fn notify(&self, key: Option<&Arc<str>>, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
        self.route(key).push(false, |out| write_notification(out, method, params));
    }

    /// Tells the client that lists have changed, if it is one that was told of them before.
    pub fn lists_changed(&self, kinds: &[Kind]) {
        if self.hello().is_none() {
            return;
        }
        let mut told = Vec::new();
        for kind in kinds {
            let method = kind.changed_method();
            if !told.contains(&method) {
                told.push(method);
                self.notify(None, method, |_| ());
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

    /// Whether the client is subscribed to an exposed URI.
    pub fn is_subscribed(&self, uri: &str) -> bool {
        self.subscriptions.lock().contains_key(uri)
    }

    /// Notes that the client is subscribed to an exposed URI, which is `own` at the upstream; `false`: it was.
    pub fn subscribe(&self, uri: &str, upstream: &Upstream, own: &str) -> bool {
        let origin = (upstream.group.clone(), upstream.server.clone());
        self.subscriptions.lock().insert(uri.to_owned(), (origin, own.to_owned())).is_none()
    }

    /// Notes that the client is not subscribed to an exposed URI any more; `false`: it was not.
    pub fn unsubscribe(&self, uri: &str) -> bool {
        self.subscriptions.lock().remove(uri).is_some()
    }

    /// Ends the subscriptions that lead to a server. Returns their URIs there.
    pub(super) fn end_subscriptions(&self, group: &str, server: &str) -> Vec<String> {
        let mut subscriptions = self.subscriptions.lock();
        let ended = subscriptions.extract_if(|_, ((to, at), _)| **to == *group && **at == *server);
        ended.map(|(_, (_, own))| own).collect()
    }

    /// Ends the subscriptions that lead to a server which no longer stands in the view.
    pub fn end_lost_subscriptions(&self) {
        let view = self.view();
        self.subscriptions.lock().retain(|_, ((group, server), _)| view.server(group, server).is_some());
    }

    /// Sends an answer, or lets it wait for the rest of its batch.
    pub fn send(&self, route: &Route, batch: Option<&Arc<Batch>>, write: impl FnOnce(&mut Vec<u8>)) {
        match batch {
            None => {
                route.push(true, write);
            }
            Some(batch) => {
                let mut answer = Vec::new();
                write(&mut answer);
                batch.add(route, Some(answer));
            }
        }
    }
}

/// The request that this very key belongs to. Once a request is cancelled another may have its id, in a key that reads
/// the same.
fn own<'a>(waiting: &'a mut Requests, key: &Arc<str>) -> Option<OccupiedEntry<'a, Arc<str>, Waiting>> {
    match waiting.entry(key.clone()) {
        Entry::Occupied(entry) if Arc::ptr_eq(entry.key(), key) => Some(entry),
        _ => None,
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
    pub fn add(&self, route: &Route, answer: Option<Vec<u8>>) {
        let answers = {
            let mut state = self.0.lock();
            state.1.extend(answer);
            state.0 -= 1;
            if state.0 > 0 || state.1.is_empty() {
                return;
            }
            std::mem::take(&mut state.1)
        };
        route.push(true, |out| {
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
    modern: Option<Arc<ModernCall>>,
}

impl Reply {
    /// Whose request it is.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// What a modern request said of itself; `None` in the legacy era.
    pub fn modern(&self) -> Option<&Arc<ModernCall>> {
        self.modern.as_ref()
    }

    /// The version that the client speaks.
    pub fn version(&self) -> Version {
        match (&self.modern, self.session.hello()) {
            (Some(_), _) => Version::V2026July,
            (None, hello) => hello.map_or(Version::LATEST_LEGACY, |hello| hello.version),
        }
    }

    /// What the session knows the request by, as long as the client wants the answer.
    pub fn key(&self) -> &Arc<str> {
        self.key.as_ref().expect("taken only by an answer, which consumes the reply")
    }

    /// The request's id, while the client wants the answer.
    pub fn id(&self) -> Option<Id> {
        own(&mut self.session.waiting.lock(), self.key()).map(|waiting| waiting.get().id.clone())
    }

    /// The request of ours that it went on as, while the client wants the answer.
    pub(super) fn sent_as(&self) -> Option<u64> {
        let mut waiting = self.session.waiting.lock();
        own(&mut waiting, self.key())?.get().target.as_ref().map(|(_, id)| *id)
    }

    /// Whether the client still wants the answer.
    pub fn is_wanted(&self) -> bool {
        own(&mut self.session.waiting.lock(), self.key()).is_some()
    }

    /// Answers with a result that `write` writes as raw JSON.
    pub fn result_with(mut self, write: impl FnOnce(&mut Vec<u8>)) {
        match self.modern.take() {
            None => self.send(|out, id| write_result(out, id, write)),
            Some(modern) => {
                let mut result = Vec::new();
                write(&mut result);
                self.send(|out, id| write_result(out, id, |out| modern.complete(out, &result)));
            }
        }
    }

    /// Answers with a raw result.
    pub fn result(self, result: &str) {
        self.result_with(|out| out.extend_from_slice(result.as_bytes()));
    }

    /// Answers with an upstream's raw error object.
    pub fn raw_error(mut self, error: Node<'_>) {
        let modern = self.modern.is_some();
        self.send(|out, id| {
            write_raw_error(out, Some(id), |out| match error.get("code").map(Node::raw) {
                // The code of the legacy era for a resource that is not there is gone.
                Some("-32002") if modern => error.write_with(out, &[("code", Some("-32602"))]),
                _ => error.write(out),
            });
        });
    }

    /// Answers with an error of our own; `data` is raw JSON.
    pub fn error(mut self, code: i64, message: &str, data: Option<&str>) {
        let code = match code {
            code::RESOURCE_NOT_FOUND if self.modern.is_some() => code::INVALID_PARAMS,
            code => code,
        };
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
            (own(&mut waiting, &key).map(OccupiedEntry::remove), waiting.is_empty())
        };
        if let Some(Waiting { id, batch, route, .. }) = found {
            let written =
                AssertUnwindSafe(|| self.session.send(&route, batch.as_ref(), |out| write(out, &id)));
            if catch_unwind(written).is_err() {
                log::error!("writing an answer made us panic; please report it");
                let error =
                    error_object(code::INTERNAL, "Internal error: the answer could not be written", None);
                self.session.send(&route, batch.as_ref(), |out| {
                    write_raw_error(out, Some(&id), |out| out.extend_from_slice(error.as_bytes()));
                });
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::routing_tests::Unseen;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Sink for Heard {
        fn send(&self, message: &[u8], _last: bool) -> bool {
            self.0.lock().push(String::from_utf8_lossy(message).into_owned());
            true
        }
    }

    #[test]
    fn a_request_does_not_know_another_that_has_its_id() {
        let [main, first_way, second_way] = [(); 3].map(|()| Arc::new(Heard::default()));
        let window = Window::new("", 0, Arc::new(Unseen), None);
        let session = Session::new(window, Route::Stream(main.clone()));
        for id in ["7", r#""a""#, r#""\u0061b""#, "7.0"] {
            let id = || Id::from_raw(id).expect("an id");
            let accept = |id: Id, way: &Arc<Heard>| {
                session.accept(id, Some(Route::Stream(way.clone())), None, None).expect("the id is free")
            };
            let first = accept(id(), &first_way);
            assert!(first.is_wanted());
            session.cancel(&id());
            let second = accept(id(), &second_way);
            assert!(!first.is_wanted() && first.id().is_none() && first.sent_as().is_none());
            session.notify(Some(first.key()), "late", |_| ());
            first.result("1");
            assert!(second.is_wanted());
            second.result("2");
            assert!(first_way.0.lock().is_empty());
            assert_eq!(
                main.0.lock().drain(..).count(),
                1,
                "what belongs to no request goes the session's way"
            );
            let heard: Vec<_> = second_way.0.lock().drain(..).collect();
            assert_eq!(heard.len(), 1, "{heard:?}");
            assert!(heard[0].ends_with(r#""result":2}"#), "{heard:?}");
        }
    }
}
