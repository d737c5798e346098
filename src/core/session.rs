//! A client: what it said about itself, what it waits for and what it was told.
//!
//! Transports make a session and hand the client's messages to the gateway; [`reply`](super::reply) answers
//! its requests.
//!
//! Invariant: a session's locks stay inside, and nothing is sent while one is held.

use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

use hyper::header::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::connection::Connection;
use super::modern::ModernCall;
use super::notices::{Ledger, Lists};
use super::record::Record;
use super::reply::{Batch, Reply};
use super::route::{OutgoingKind, Route};
use super::subscriptions::Subscriptions;
use super::workspace::Workspace;
use crate::catalog::Kind;
use crate::hash::HashMap;
use crate::protocol::era::{ClientHello, Version, log_level};
use crate::protocol::message::{Id, Refusal, code, write_notification};
use crate::transport::peer::{Lost, Peer};

/// One client over stdio, one legacy session, or one modern request over HTTP.
pub struct ClientSession {
    /// What the client sees.
    pub workspace: Arc<Workspace>,
    /// Our requests to the client, which are questions of upstreams. Most requests over HTTP ask none.
    peer: OnceLock<Arc<Peer<Question>>>,
    main: Route,
    /// What the client said in `initialize`, and when.
    hello: OnceLock<(ClientHello, SystemTime)>,
    /// What the client's first modern request said about the client.
    first_modern: OnceLock<Arc<ModernCall>>,
    waiting: Mutex<Requests>,
    /// Notified when something that others wait for has happened: every request is answered, or a list is, or
    /// the session ends.
    news: Notify,
    ledger: Mutex<Ledger>,
    ending: AtomicBool,
    /// The raw parameters of the last `logging/setLevel`, and the level that they name.
    log_level: Mutex<Option<(String, Option<usize>)>>,
    /// The `Mcp-Param-…` headers of a modern request over HTTP. What they must say is known only once the
    /// tool is.
    pub mirrored: OnceLock<HeaderMap>,
    /// The resources that the client watches.
    pub subscriptions: Subscriptions,
}

/// A client as it introduced itself, for people who ask who is there.
pub struct Introduced {
    /// What stands for its session in events.
    pub session: Arc<str>,
    /// What it calls itself.
    pub name: String,
    /// The version that it says it has.
    pub client_version: String,
    /// The family of protocol versions that it speaks.
    pub era: &'static str,
    /// Since when it is there.
    pub since: SystemTime,
}

/// The clients behind a workspace that have said who they are. Modern clients that share it have no sessions that
/// last; the one that spoke last stands for them.
pub fn introduced(workspace: &Workspace) -> Vec<Introduced> {
    let legacy = |session: Arc<ClientSession>| {
        let (hello, since) = session.hello.get()?;
        let (name, client_version) = (hello.name.clone(), hello.client_version.clone());
        let session = workspace.owner.session().clone();
        Some(Introduced { session, name, client_version, era: "legacy", since: *since })
    };
    let modern = workspace.last_modern.last().map(|client| Introduced {
        session: workspace.owner.session().clone(),
        name: client.name.to_string(),
        client_version: client.client_version.to_string(),
        era: "modern",
        since: client.since,
    });
    workspace.sessions().into_iter().filter_map(legacy).chain(modern).collect()
}

/// A question of an upstream that waits for the client.
pub struct Question {
    /// The connection of the upstream that asked.
    pub connection: Weak<Connection>,
    /// The upstream's own progress token, as raw JSON.
    pub progress: Option<Box<str>>,
    /// The client's request that only we wait for while the client is asked. The question ends with it.
    pub call: Option<Ticket>,
}

/// One request of a client. Once the request is answered or cancelled, the ticket fits no other, not even one
/// with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    place: usize,
    number: u64,
}

/// The requests of a client that have no answer yet.
#[derive(Default)]
struct Requests {
    /// Each request at its place, with the number of its ticket.
    places: Vec<Option<(u64, Waiting)>>,
    free: Vec<usize>,
    by_id: HashMap<Id, usize>,
    accepted: u64,
}

impl Requests {
    /// Takes a request on. If another has the same id, the request comes back.
    fn add(&mut self, request: Waiting) -> Result<Ticket, Waiting> {
        let Entry::Vacant(entry) = self.by_id.entry(request.id.key()) else { return Err(request) };
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        entry.insert(place);
        self.accepted += 1;
        self.places[place] = Some((self.accepted, request));
        Ok(Ticket { place, number: self.accepted })
    }

    fn get(&mut self, Ticket { place, number }: Ticket) -> Option<&mut Waiting> {
        let (_, request) = self.places.get_mut(place)?.as_mut().filter(|(own, _)| *own == number)?;
        Some(request)
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        let place = self.places.get_mut(ticket.place)?;
        let (_, request) = place.take_if(|(number, _)| *number == ticket.number)?;
        self.by_id.remove(&request.id.key());
        match self.is_empty() {
            true => self.free_all(),
            false => self.free.push(ticket.place),
        }
        Some(request)
    }

    fn find(&self, id: &Id) -> Option<Ticket> {
        let place = *self.by_id.get(&id.key())?;
        self.places[place].as_ref().map(|(number, _)| Ticket { place, number: *number })
    }

    fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.places.iter().flatten().map(|(_, request)| request)
    }

    fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    fn take_all(&mut self) -> Vec<Waiting> {
        self.by_id.clear();
        let all = self.places.iter_mut().filter_map(Option::take).map(|(_, request)| request).collect();
        self.free_all();
        all
    }

    /// Where nothing waits, no place is needed.
    fn free_all(&mut self) {
        self.places.clear();
        self.free.clear();
    }
}

/// A request of the client that has no answer yet.
struct Waiting {
    id: Id,
    batch: Option<Arc<Batch>>,
    /// Where the request was sent.
    target: Option<(Arc<Connection>, u64)>,
    route: Route,
}

impl ClientSession {
    /// A client of `workspace`. Messages that belong to no request go by `main`.
    pub fn new(workspace: Arc<Workspace>, main: Route) -> Arc<Self> {
        let session = Arc::new(Self {
            workspace: workspace.clone(),
            peer: OnceLock::new(),
            main,
            hello: OnceLock::new(),
            first_modern: OnceLock::new(),
            waiting: Mutex::default(),
            news: Notify::new(),
            ledger: Mutex::default(),
            ending: AtomicBool::new(false),
            log_level: Mutex::default(),
            mirrored: OnceLock::new(),
            subscriptions: Subscriptions::default(),
        });
        // A modern request over HTTP hears of nothing but its own answer.
        if !matches!(session.main, Route::Nowhere) {
            workspace.join(&session);
        }
        session
    }

    /// Waits until the client has taken most of what it was sent.
    pub async fn room(&self) {
        if let Some(out) = self.main.outbox() {
            out.room().await;
        }
    }

    /// Our requests to the client, which are questions of upstreams.
    pub fn peer(&self) -> &Arc<Peer<Question>> {
        self.peer.get_or_init(|| Peer::new(Arc::new(self.main.clone())))
    }

    /// What the client said in `initialize`.
    pub fn hello(&self) -> Option<&ClientHello> {
        self.hello.get().map(|(hello, _)| hello)
    }

    /// Notes what the client said in `initialize`; `false` if it had already introduced itself.
    pub fn greet(&self, hello: ClientHello) -> bool {
        self.hello.set((hello, SystemTime::now())).is_ok()
    }

    /// Whether this is the one client on stdin and it has not introduced itself yet.
    pub fn is_new(&self) -> bool {
        self.main.outbox().is_some() && self.declared().is_none()
    }

    /// What the client declared, in whichever era: the version that it wants to speak and its capabilities.
    pub(super) fn declared(&self) -> Option<(Version, &str)> {
        let hello = self.hello().map(|hello| (hello.version, hello.capabilities.as_str()));
        hello.or_else(|| Some((Version::LATEST_LEGACY, &*self.first_modern.get()?.client.capabilities)))
    }

    /// What the client calls itself, in whichever era; `None` before its first message.
    pub fn client_name(&self) -> Option<String> {
        // Names in the view are made for the client that is met first.
        let modern = || self.first_modern.get().map(|_| self.workspace.read(|view| view.client().to_owned()));
        self.hello().map(|hello| hello.name.clone()).or_else(modern)
    }

    /// Accepts a request; its answer, and messages that belong to it, go by `route`. `None`: its id is in
    /// use, and the refusal has been sent.
    pub fn accept(
        self: &Arc<Self>,
        id: Id,
        route: Option<Route>,
        batch: Option<Arc<Batch>>,
        modern: Option<Arc<ModernCall>>,
    ) -> Option<Reply> {
        let route = route.unwrap_or_else(|| self.main.clone());
        let added = self.waiting.lock().add(Waiting { id, batch, target: None, route });
        let ticket = match added {
            Ok(ticket) => ticket,
            Err(Waiting { id, batch, route, .. }) => {
                let id = id.raw();
                let message =
                    format!("Invalid request: the id {id} is in use by a request that is not answered yet");
                let why = Refusal::new(code::INVALID_REQUEST, message);
                self.refuse(None, &why, Some(route), batch.as_ref());
                return None;
            }
        };
        if let Some(modern) = &modern {
            self.first_modern.get_or_init(|| modern.clone());
        }
        Some(Reply::new(self.clone(), ticket, modern))
    }

    /// Refuses a message. The refusal leaves out the id of a request in flight: the client would take it for
    /// that request's answer.
    pub fn refuse(&self, id: Option<&Id>, why: &Refusal, route: Option<Route>, batch: Option<&Arc<Batch>>) {
        let id = id.filter(|id| self.waiting.lock().find(id).is_none());
        let route = route.unwrap_or_else(|| self.main.clone());
        self.send(&route, batch, OutgoingKind::Error(why.code), |out| why.write(out, id));
    }

    /// Notes where a request is about to be sent, so that it can be cancelled there. `false`: nobody wants
    /// its answer any more, so it must not be sent.
    pub fn goes_to(&self, key: Ticket, connection: &Arc<Connection>, id: u64) -> bool {
        let before = match self.waiting.lock().get(key) {
            Some(waiting) => waiting.target.replace((connection.clone(), id)),
            None => return false,
        };
        // The requests must not be locked here: whoever drops the last reference to a connection drops all of
        // it.
        drop(before);
        true
    }

    /// The id of a request, while the client wants its answer.
    pub(super) fn id_of(&self, key: Ticket) -> Option<Id> {
        self.waiting.lock().get(key).map(|waiting| waiting.id.clone())
    }

    /// The id of our own request that carries the client's request on, while the client wants its answer.
    pub(super) fn sent_as(&self, key: Ticket) -> Option<u64> {
        self.waiting.lock().get(key)?.target.as_ref().map(|(_, id)| *id)
    }

    /// Whether the client wants the answer to a request.
    pub(super) fn waits_for(&self, key: Ticket) -> bool {
        self.waiting.lock().get(key).is_some()
    }

    /// Answers a request with what `write` writes; `false` if the client no longer wants an answer.
    pub(super) fn answer(
        &self,
        key: Ticket,
        kind: OutgoingKind<'_>,
        write: impl FnOnce(&mut Vec<u8>, &Id),
    ) -> bool {
        let (found, last) = {
            let mut waiting = self.waiting.lock();
            (waiting.remove(key), waiting.is_empty())
        };
        let Some(Waiting { id, batch, route, .. }) = found else { return false };
        let written = AssertUnwindSafe(|| self.send(&route, batch.as_ref(), kind, |out| write(out, &id)));
        if catch_unwind(written).is_err() {
            tracing::error!("writing an answer caused a panic; please report it");
            let why = Refusal::new(code::INTERNAL, "Internal error: the answer could not be written");
            let kind = OutgoingKind::Error(why.code);
            self.send(&route, batch.as_ref(), kind, |out| why.write(out, Some(&id)));
        }
        if last {
            self.news.notify_waiters();
        }
        true
    }

    /// The way for messages about a request: its own way while it waits, otherwise the session's.
    pub fn route(&self, key: Option<Ticket>) -> Route {
        let route = |key| self.waiting.lock().get(key).map(|waiting| waiting.route.clone());
        key.and_then(route).unwrap_or_else(|| self.main.clone())
    }

    /// Forgets a request that the client cancelled: no answer will be sent. Returns where the request went.
    pub fn cancel(&self, id: &Id) -> Option<(Arc<Connection>, u64)> {
        let (key, waiting) = {
            let mut waiting = self.waiting.lock();
            let key = waiting.find(id)?;
            let found = waiting.remove(key)?;
            if waiting.is_empty() {
                self.news.notify_waiters();
            }
            (key, found)
        };
        if let Some(batch) = &waiting.batch {
            batch.add(&waiting.route, None);
        }
        // Questions that the client was asked for the sake of this request are of no use any more.
        let mut questions = Vec::new();
        self.peer().each(|id, question| {
            questions.extend(question.call.filter(|call| *call == key).map(|_| id));
        });
        for id in questions {
            let reason = "the call that it belongs to was cancelled";
            self.peer().cancel(id, reason, &Lost::new(reason));
        }
        waiting.target
    }

    /// Whether every further request is to be refused.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Accepts no further request, and ends subscriptions properly.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.news.notify_waiters();
        self.workspace.end_listeners();
    }

    /// Waits until every request is answered.
    pub async fn answered(&self) {
        self.until(|| self.waiting.lock().is_empty()).await;
    }

    /// Waits until a condition holds that [`Self::news`] announces.
    pub(super) async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let news = self.news.notified();
            if holds() {
                return;
            }
            news.await;
        }
    }

    /// Cancels the requests that upstreams have not answered yet; each is answered as if its upstream had
    /// gone.
    pub fn cut_off(&self, reason: &str) {
        let lost = Lost::new(reason);
        loop {
            let targets: Vec<_> =
                self.waiting.lock().all().filter_map(|waiting| waiting.target.clone()).collect();
            let cancelled =
                targets.iter().filter(|(connection, id)| connection.peer.cancel(*id, reason, &lost)).count();
            // The end of one request may let another begin.
            if cancelled == 0 {
                return;
            }
        }
    }

    /// Cancels every unanswered request, upstream too, and answers it with an error.
    pub fn abandon(&self, reason: &str) {
        self.cut_off(reason);
        let waiting = self.waiting.lock().take_all();
        let lost = Refusal::new(code::UPSTREAM_LOST, reason);
        for Waiting { id, batch, route, .. } in waiting {
            self.send(&route, batch.as_ref(), OutgoingKind::Error(lost.code), |out| {
                lost.write(out, Some(&id))
            });
        }
        self.news.notify_waiters();
    }

    /// Sends a notification that belongs to the request with this key, or to no request.
    pub fn notify(&self, key: Option<Ticket>, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
        self.route(key).push(OutgoingKind::Notice(method), |out| write_notification(out, method, params));
    }

    /// Notes that there are lists to ask for from now on. A client that has not introduced itself asks for
    /// none.
    pub fn begin(&self) {
        if self.hello().is_some() {
            let now = self.lists();
            self.ledger.lock().begin(now);
        }
    }

    /// Shows the client one of its lists as it is now; `answer` sends the list.
    pub fn show(&self, kind: Kind, answer: impl FnOnce()) {
        // The ledger is noted before the list is written: the client must be told of changes in between.
        let has_begun = self.ledger.lock().has_begun();
        let told = has_begun.then(|| {
            let now = self.lists();
            self.ledger.lock().show(kind, &now)
        });
        answer();
        if let Some(told) = told {
            self.ledger.lock().has(kind, told);
            self.news.notify_waiters();
        }
    }

    /// How often the client was told of its tools.
    pub fn told_of_tools(&self) -> u64 {
        self.ledger.lock().told(Kind::Tool)
    }

    /// Whether the client has its list of tools as of the time when it had been told this often, or a later
    /// one.
    pub(super) fn has_list_of_tools(&self, told: u64) -> bool {
        self.ledger.lock().shown(Kind::Tool) >= told
    }

    /// Whether notifications reach the client now and, as far as is known, make it read its lists in time.
    pub(super) fn can_be_waited_for(&self) -> bool {
        self.main.is_read() && !self.ledger.lock().given_up
    }

    /// Notes that the client did not read its list of tools in time.
    pub(super) fn give_up(&self) {
        self.ledger.lock().given_up = true;
    }

    /// Tells the client of the lists that have changed.
    pub(super) fn tell(&self) {
        if !self.ledger.lock().has_begun() {
            return;
        }
        let now = self.lists();
        let kinds = {
            let mut ledger = self.ledger.lock();
            let behind = Kind::ALL.map(|kind| ledger.is_behind(kind));
            let kinds = ledger.tell(now);
            for kind in &kinds {
                let again =
                    if behind[*kind as usize] { ", who has not asked since it was last told" } else { "" };
                tracing::debug!("the client is told that {} has changed{again}", kind.list_method());
            }
            kinds
        };
        let mut told = Vec::new();
        for kind in &kinds {
            let method = kind.changed_method();
            if !told.contains(&method) {
                told.push(method);
                self.notify(None, method, |_| ());
            }
        }
    }

    /// The client's lists as they are now.
    fn lists(&self) -> Lists {
        self.workspace.read(|view| Lists::of_legacy(&*self.workspace.exposure(), view, self.hello()))
    }

    /// The level of log messages that the client asked for, as raw parameters.
    pub fn log_level(&self) -> Option<String> {
        self.log_level.lock().as_ref().map(|(params, _)| params.clone())
    }

    /// The same as an index into the list of levels, if it is one of them.
    pub(super) fn severity(&self) -> Option<usize> {
        self.log_level.lock().as_ref().and_then(|(_, severity)| *severity)
    }

    /// Remembers the level of log messages.
    pub fn set_log_level(&self, params: &str) {
        *self.log_level.lock() = Some((params.to_owned(), log_level(params)));
    }

    /// How the session stands.
    pub fn standing(&self) -> Record {
        Record::of(self)
    }

    /// Tells whoever keeps the session for others that it stands otherwise than before.
    pub(super) fn note_change(&self) {
        self.main.changed();
    }

    /// Sends a line that is not for the client, but for the client's end of a session of the daemon.
    pub fn tell_end(&self, line: &[u8]) {
        if let Some(out) = self.main.outbox() {
            out.push_aside(line);
        }
    }

    /// Sends an answer, or keeps it until the rest of its batch is ready.
    pub(super) fn send(
        &self,
        route: &Route,
        batch: Option<&Arc<Batch>>,
        kind: OutgoingKind<'_>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        match batch {
            None => {
                route.push(kind, write);
            }
            Some(batch) => {
                let mut answer = Vec::new();
                write(&mut answer);
                batch.add(route, Some(answer));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::route::Heard;
    use crate::core::routing_tests::Unseen;
    use crate::core::upstream::Upstream;
    use crate::transport::peer::OnAnswer;

    #[test]
    fn a_request_does_not_know_another_that_has_its_id() {
        let [main, first_way, second_way] = [(); 3].map(|()| Arc::new(Heard::default()));
        let workspace = Workspace::new("", 0, Arc::new(Unseen), None, &Arc::default());
        let session = ClientSession::new(workspace, Route::Stream(main.clone()));
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

    /// When a client cancels a request, either nothing was sent, or what was sent can be cancelled as well.
    #[test]
    fn a_request_is_never_sent_past_its_cancellation() {
        for cancelled_after in ["nothing", "opened", "noted", "sent"] {
            let upstream = Upstream::unreal("box", "a");
            upstream.pretend(Some(Default::default()));
            let connection = upstream.connection().expect("it is up");
            let workspace = Workspace::new("", 0, Arc::new(Unseen), None, &Arc::default());
            let session = ClientSession::new(workspace, Route::Nowhere);
            let id = || Id::from_raw("7").expect("an id");
            let reply = session.accept(id(), None, None, None).expect("the id is free");
            let (key, mut found) = (reply.key(), false);
            let mut cancel_after = |step| {
                if step == cancelled_after {
                    let target = session.cancel(&id());
                    found = target.is_some_and(|(connection, ours)| connection.peer.forget(ours).is_some());
                }
            };
            cancel_after("nothing");
            let ours = connection.peer.reserve();
            let request =
                connection.peer.open(ours, Default::default(), None, OnAnswer::run(move |_| drop(reply)));
            let request = request.expect("it is not closed");
            cancel_after("opened");
            if session.goes_to(key, &connection, ours) {
                cancel_after("noted");
                request.send("tools/call", |_, _| ());
                cancel_after("sent");
            } else {
                drop(request);
            }
            let is_written = connection.out.held() > 0;
            assert_eq!(is_written, cancelled_after == "sent", "after {cancelled_after}");
            assert_eq!(found, ["noted", "sent"].contains(&cancelled_after), "after {cancelled_after}");
            assert_eq!(connection.peer.open_count(), 0, "after {cancelled_after}");
        }
    }

    #[test]
    fn a_refusal_never_has_the_id_of_a_request_in_flight() {
        let heard = Arc::new(Heard::default());
        let workspace = Workspace::new("", 0, Arc::new(Unseen), None, &Arc::default());
        let session = ClientSession::new(workspace, Route::Stream(heard.clone()));
        let id = |raw| Id::from_raw(raw).expect("an id");
        let _waiting = session.accept(id("7"), None, None, None).expect("the id is free");
        for (refused, shown) in [("7", "null"), ("7.0", "null"), ("\"7\"", "\"7\""), ("8", "8")] {
            session.refuse(Some(&id(refused)), &Refusal::new(code::PARSE, ""), None, None);
            let answer = heard.0.lock().pop().expect("it is refused");
            assert!(answer.contains(&format!("\"id\":{shown},")), "{refused}: {answer}");
        }
    }
}
