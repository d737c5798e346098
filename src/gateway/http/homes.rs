//! Sessions that live at one replica, their home, and are served at all of them.
//!
//! A request for a session that is not here is handed to its home as it came, and what the home answers is passed on. If the
//! home is gone, whoever is asked next takes its place: it opens what was open, loads the streams that can be
//! resumed, and fails what was in flight.
//!
//! Invariant: a request is begun once. One that a home received and did not answer before its death is failed, one
//! that it never received is handed to the next.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Bytes};
use hyper::header::HeaderMap;
use hyper::{Method, Response, StatusCode};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::answer::{HttpAnswer, Payload, draining, empty, store_away};
use super::errand::{AnswerHead, Errand, ErrandHead, framed, header_map, header_texts, unframed};
use super::guard::single;
use super::headers::SESSION_ID;
use super::home::{END, Home, SessionHooks, Standing, StreamNote, entry_key, life, token_digest};
use super::sessions::{Full, HttpSession};
use super::stream::{StoredEvents, Stream, Writer};
use super::{Backend, Caller, HttpServer, OpenCall, Rules, Sink};
use crate::core::route::{Outgoing, OutgoingKind};
use crate::json::Scanner;
use crate::protocol::era::Version;
use crate::protocol::message::{Message, Refusal, batch_parts, code};
use crate::replicas::post::{Arrival, Subject};
use crate::replicas::store::{Away, StoreEntry};
use crate::replicas::{Asking, Handed, Replicas};

/// Why a request failed whose home died.
pub(super) const DIED: &str = "The replica that had the request ended before it answered. The request may or may not have \
     taken effect, so find out before you repeat it";
/// How often somebody looks again where a session is, before it is given up.
const MOST_TRIES: usize = 100;
/// The pause before that.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the failure of a request waits for its session, whose view knows the names of its servers.
const PROMPT: Duration = Duration::from_millis(100);
/// How often a stream is read that another replica still writes.
const FOLLOW: Duration = Duration::from_millis(50);
/// The most homes that are remembered.
const MOST_KNOWN: usize = 100_000;
/// How many pieces of a body may wait for a client before the replica that sends them waits.
const MOST_PIECES: usize = 16;

/// Where sessions live.
pub(super) struct Homes {
    pub(super) replicas: Arc<Replicas>,
    /// The homes of sessions elsewhere, by entry. They may have moved.
    known: Mutex<HashMap<String, String>>,
    /// The sessions that are being adopted.
    adopting: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// Where a session is.
enum SessionAt {
    Here,
    There(String),
    Nowhere,
    /// Nobody can say without the store.
    Unknown,
}

impl Homes {
    pub(super) fn new(replicas: Arc<Replicas>) -> Self {
        Self { replicas, known: Mutex::default(), adopting: Mutex::default() }
    }

    fn known(&self, key: &str) -> Option<String> {
        self.known.lock().get(key).cloned()
    }

    fn remember(&self, key: &str, home: &str) {
        let mut known = self.known.lock();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(key.to_owned(), home.to_owned());
    }

    fn forget(&self, key: &str) {
        self.known.lock().remove(key);
    }

    /// Waits until nobody adopts the session any more. Returns whether somebody did.
    async fn adopted(&self, key: &str) -> bool {
        let Some(turn) = self.adopting.lock().get(key).cloned() else { return false };
        drop(turn.lock().await);
        true
    }
}

/// Finding sessions.
impl<B: Backend> HttpServer<B> {
    /// Where the session with this id is, if it is this caller's. Becomes its home if it has none.
    async fn find(&self, homes: &Homes, id: &str, caller: &Caller) -> SessionAt {
        homes.replicas.settled().await;
        if self.sessions.get(id, caller).is_some() {
            return SessionAt::Here;
        }
        let key = entry_key(id);
        if let Some(home) = homes.known(&key)
            && homes.replicas.is_there(&home).await == Ok(true)
            && !homes.replicas.is_away()
        {
            return SessionAt::There(home);
        }
        self.look_up(homes, id, &key, caller).await.unwrap_or(SessionAt::Unknown)
    }

    async fn look_up(&self, homes: &Homes, id: &str, key: &str, caller: &Caller) -> Result<SessionAt, Away> {
        for _ in 0..MOST_TRIES {
            if homes.adopted(key).await && self.sessions.get(id, caller).is_some() {
                return Ok(SessionAt::Here);
            }
            let Some(entry) = homes.replicas.read(key).await? else { return Ok(SessionAt::Nowhere) };
            let Some(standing) = Standing::read(&entry.value).filter(|standing| standing.is_of(caller))
            else {
                return Ok(SessionAt::Nowhere);
            };
            let is_elsewhere = !entry.owner.is_empty() && *entry.owner != *homes.replicas.id;
            if is_elsewhere && homes.replicas.is_there(&entry.owner).await? {
                homes.remember(key, &entry.owner);
                return Ok(SessionAt::There(entry.owner));
            }
            homes.forget(key);
            let Some(server) = self.own.upgrade() else { return Ok(SessionAt::Nowhere) };
            let (id, caller) = (id.to_owned(), caller.clone());
            // A client that hangs up leaves nothing half done.
            let adopted = tokio::spawn(async move { server.adopt(&id, &caller, entry, standing).await });
            if let Ok(adopted) = adopted.await
                && adopted?
            {
                return Ok(SessionAt::Here);
            }
            sleep(PAUSE).await;
        }
        Err(Away("the session is nowhere for long".to_owned()))
    }

    /// Becomes the home of a session; `false` if another replica was faster.
    async fn adopt(
        &self,
        id: &str,
        caller: &Caller,
        entry: StoreEntry,
        standing: Standing,
    ) -> Result<bool, Away> {
        let Some(homes) = &self.homes else { return Ok(false) };
        let key = entry_key(id);
        let turn = homes.adopting.lock().entry(key.clone()).or_default().clone();
        let _turn = turn.lock().await;
        let done = scopeguard(|| {
            homes.adopting.lock().remove(&key);
        });
        if self.sessions.get(id, caller).is_some() {
            return Ok(true);
        }
        let replicas = &homes.replicas;
        let Some(epoch) = replicas
            .swap(
                &key,
                entry.epoch,
                &replicas.id,
                &entry.value,
                life(self.settings.rules.get().session_idle_timeout),
            )
            .await?
        else {
            return Ok(false);
        };
        let version = Version::legacy(&standing.version).unwrap_or(Version::LATEST_LEGACY);
        let Some(home) = self.new_home(id, caller, version) else { return Ok(false) };
        home.inherit(epoch, standing.clone());
        let mut streams = Vec::new();
        for (number, note) in &standing.streams {
            let events = replicas.events(&home.log(*number), 0).await?;
            streams.push((*number, note.clone(), events));
        }
        let inbox = match standing.inbox {
            Some(number) => Some((number, replicas.events(&home.log(number), 0).await?)),
            None => None,
        };
        let open = |id: &str, unrelated: Arc<dyn Sink>| self.backend.open(caller.clone(), id, unrelated);
        let session = HttpSession::adopted(id, caller.clone(), version, &self.budget, home, inbox, open);
        self.bind(&session);
        for (number, note, events) in streams {
            self.adopt_stream(homes, &session, number, note, events);
        }
        match self.sessions.insert(&session) {
            Ok(None) => {}
            Ok(Some(unused)) => self.end_later(&unused),
            Err(Full) => {
                if let Some(home) = &session.home {
                    home.release().await;
                }
                self.backend.close(&session.backend);
                return Err(Away("too many sessions are open".to_owned()));
            }
        }
        drop(done);
        tracing::debug!("a session has moved here");
        let backend = self.backend.clone();
        tokio::spawn(async move {
            let _done = scopeguard(|| session.home.iter().for_each(|home| home.restored()));
            backend.restore(&session.backend, standing.record, epoch << 32).await;
        });
        Ok(true)
    }

    /// Waits until the session that a request names stands as it did at another replica; `false`: it has moved on. Servers
    /// may take their time to start, and what is `lost` fails before they have.
    pub(super) async fn stands(&self, headers: &HeaderMap, caller: &Caller, lost: bool) -> bool {
        let Ok(Some(id)) = single(headers, &SESSION_ID) else { return true };
        let Some(home) = self.sessions.get(id, caller).and_then(|session| session.home.clone()) else {
            return true;
        };
        match lost {
            true => drop(timeout(PROMPT, home.ready()).await),
            false => home.ready().await,
        }
        self.sessions.get(id, caller).is_some()
    }

    /// Goes on with the stream of an answer that another replica began: if that is gone, what it had not answered fails.
    fn adopt_stream(
        &self,
        homes: &Homes,
        session: &Arc<HttpSession<B::Legacy>>,
        number: u64,
        note: StreamNote,
        mut events: StoredEvents,
    ) {
        let Some(home) = session.home.clone() else { return };
        let has_ended = events.pop_if(|(position, _)| *position == END).is_some();
        let stream = Stream::adopted(number, self.budget.clone(), home.clone(), events);
        session.keep(&stream);
        if has_ended {
            home.note_end(number);
            return stream.finish();
        }
        let (replicas, server) = (homes.replicas.clone(), self.own.clone());
        let (client, id) = (session.backend.clone(), home.log(number));
        tokio::spawn(async move {
            // It may only be draining, and still write.
            while replicas.is_there(&note.writer).await == Ok(true) && !home.is_left() {
                let Ok(mut events) = replicas.events(&id, stream.end() - 1).await else { continue };
                let has_ended = events.pop_if(|(position, _)| *position == END).is_some();
                stream.adopt(events);
                if has_ended {
                    home.note_end(number);
                    return stream.finish();
                }
                sleep(FOLLOW).await;
            }
            if home.is_left() {
                return;
            }
            let _ = timeout(PROMPT, home.ready()).await;
            let Some(server) = server.upgrade() else { return };
            fail(&*server.backend, &client, note.requests.unwrap_or_default().as_bytes(), Writer(stream));
        });
    }

    /// The place of a session in the store; `None` if there are no other replicas.
    pub(super) fn new_home(&self, id: &str, caller: &Caller, version: Version) -> Option<Arc<Home>> {
        let homes = self.homes.as_ref()?;
        let times = (self.settings.rules.get().session_idle_timeout, self.settings.keeping.time);
        Some(Home::new(&homes.replicas, id, caller, version.as_str(), times))
    }

    /// Ties a session and its place together.
    pub(super) fn bind(&self, session: &Arc<HttpSession<B::Legacy>>) {
        let Some(home) = &session.home else { return };
        let (backend, client) = (self.backend.clone(), Arc::downgrade(&session.backend));
        let (server, lost) = (self.own.clone(), Arc::downgrade(session));
        home.bind(SessionHooks {
            record: Box::new(move || Some(backend.record(&client.upgrade()?))),
            lost: Box::new(move || {
                if let (Some(server), Some(session)) = (server.upgrade(), lost.upgrade()) {
                    server.give_up(&session);
                }
            }),
        });
    }

    /// Gives up a session that is another's.
    fn give_up(&self, session: &HttpSession<B::Legacy>) {
        if let Some(home) = &session.home {
            home.forget();
        }
        if self.sessions.remove(session) {
            tracing::debug!("a session has moved away");
            self.backend.close(&session.backend);
        }
    }

    /// Ends a session here, and in the store as soon as may be.
    pub(super) fn end_later(&self, session: &Arc<HttpSession<B::Legacy>>) {
        self.backend.close(&session.backend);
        if let Some(home) = session.home.clone().filter(|home| home.epoch() > 0) {
            let (backend, client) = (self.backend.clone(), session.backend.clone());
            tokio::spawn(async move {
                if home.end().await.is_ok() {
                    backend.forget(&client).await;
                }
            });
        }
    }

    /// Leaves every session to the other replicas; calls in flight finish here.
    pub(super) async fn release_all(&self) {
        let mut released = JoinSet::new();
        for session in self.sessions.all() {
            if let Some(home) = session.home.clone() {
                session.inbox.end();
                released.spawn(async move { home.release().await });
            }
        }
        released.join_all().await;
    }

    /// Gives up the sessions that are no longer ours, and stores what could not be stored before.
    async fn ask_again(&self, replicas: &Replicas) -> Result<(), Away> {
        let homes = |session: Arc<HttpSession<B::Legacy>>| session.home.clone().map(|home| (session, home));
        let ours: Vec<_> =
            self.sessions.all().into_iter().filter_map(homes).filter(|(_, home)| home.epoch() > 0).collect();
        let keys: Vec<_> = ours.iter().map(|(_, home)| home.key.clone()).collect();
        for ((session, home), epoch) in ours.iter().zip(replicas.epochs(&keys).await?) {
            match epoch == home.epoch() || home.is_left() {
                true => home.catch_up(),
                false => self.give_up(session),
            }
        }
        Ok(())
    }
}

/// Runs something when it is dropped.
fn scopeguard(run: impl FnMut()) -> impl Sized {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Guard(run)
}

/// Answers requests that a home had which died.
pub(super) fn fail<B: Backend>(backend: &B, client: &Arc<B::Legacy>, requests: &[u8], stream: Writer) {
    let mut scanner = Scanner::default();
    let Ok(doc) = scanner.scan(requests) else { return };
    if !doc.root().is_array() {
        if let Ok(message @ Message::Request(_)) = Message::read(doc.root()) {
            backend.fail(client, message, DIED, Arc::new(stream));
        }
        return;
    }
    let parts = batch_parts(doc.root());
    let why = Refusal::new(code::UPSTREAM_LOST, DIED);
    let answers: Vec<_> = Message::read_parts(&parts)
        .into_iter()
        .filter_map(|part| match part {
            Ok(Message::Request(request)) => {
                let mut answer = Vec::new();
                why.write(&mut answer, Some(&request.id));
                Some(answer)
            }
            _ => None,
        })
        .collect();
    let bytes = [&b"["[..], &answers.join(&b','), b"]"].concat();
    stream.send(Outgoing { kind: OutgoingKind::Batch, bytes });
}

/// Handing on, and what was handed to us.
impl<B: Backend> HttpServer<B> {
    /// Becomes one of the replicas.
    pub(super) fn join(self: &Arc<Self>) {
        let Some(homes) = &self.homes else { return };
        let own = self.own.clone();
        let serve = move |handed: Handed| {
            let Some(server) = own.upgrade() else { return Some(handed) };
            tokio::spawn(async move { server.serve_handed(handed).await });
            None
        };
        homes.replicas.serve(Subject::Session, Arc::new(serve));
        let own = self.own.clone();
        homes.replicas.on_doubt(Arc::new(move || {
            let server = own.upgrade();
            Box::pin(async move {
                match server.as_ref().and_then(|server| Some((server, server.homes.as_ref()?))) {
                    Some((server, homes)) => server.ask_again(&homes.replicas).await,
                    None => Ok(()),
                }
            })
        }));
    }

    /// Whether the session that a request names is elsewhere, or may be.
    pub(super) async fn is_elsewhere(
        &self,
        homes: &Homes,
        headers: &HeaderMap,
        caller: &Caller,
    ) -> Result<bool, HttpAnswer> {
        let Ok(Some(id)) = single(headers, &SESSION_ID) else { return Ok(false) };
        if self.is_draining() && self.sessions.get(id, caller).is_none() {
            return Err(draining());
        }
        match self.find(homes, id, caller).await {
            SessionAt::Here | SessionAt::Nowhere => Ok(false),
            SessionAt::There(_) => Ok(true),
            SessionAt::Unknown => Err(store_away()),
        }
    }

    /// Has a request answered where its session is.
    pub(super) async fn hand_on(&self, homes: &Homes, mut errand: Errand) -> HttpAnswer {
        let Some(id) = errand.session_id().map(str::to_owned) else { return empty(StatusCode::BAD_REQUEST) };
        let key = entry_key(&id);
        let call = (errand.method == Method::POST).then(|| self.calls.begin());
        for _ in 0..MOST_TRIES {
            if self.is_draining() {
                return draining();
            }
            let home = match self.find(homes, &id, &errand.caller).await {
                SessionAt::Here | SessionAt::Nowhere => match self.here(errand.clone()).await {
                    Some(answer) => return answer,
                    None => continue,
                },
                SessionAt::There(home) => home,
                SessionAt::Unknown => return store_away(),
            };
            let Ok(mut asking) = homes.replicas.ask(&home, Subject::Session, &errand.write()).await else {
                return store_away();
            };
            match asking.next().await {
                Arrival::Answer(answer, is_last) => {
                    let Some((head, body)) = unframed::<AnswerHead>(&answer) else { return store_away() };
                    return self.passed_on(head, body, (!is_last).then_some((asking, errand, call)));
                }
                Arrival::Bounced => {
                    homes.forget(&key);
                    sleep(PAUSE).await;
                }
                Arrival::Lost | Arrival::CutOff => {
                    homes.forget(&key);
                    // A GET or DELETE can be sent again; whatever else was received must not be.
                    errand.lost = errand.method == Method::POST;
                    if errand.lost && errand.is_one_way() {
                        return empty(StatusCode::ACCEPTED);
                    }
                }
            }
        }
        store_away()
    }

    /// An answer of another replica; `more` of it comes if it is a stream.
    fn passed_on(
        &self,
        head: AnswerHead,
        body: &[u8],
        more: Option<(Asking, Errand, Option<OpenCall>)>,
    ) -> HttpAnswer {
        let payload = match more {
            None => Payload::Whole(Bytes::copy_from_slice(body)),
            Some((asking, errand, call)) => {
                let (pieces, receiver) = mpsc::channel(MOST_PIECES);
                let (server, mut closing) = (self.own.clone(), self.closing.subscribe());
                let carry = Carry { last_event: None, pieces };
                let first = Bytes::copy_from_slice(body);
                let carried = async move {
                    let _call = call;
                    if let Some((errand, pieces)) = carry.run(first, asking, errand).await
                        && let Some(server) = server.upgrade()
                    {
                        server.carry_on(errand, pieces).await;
                    }
                };
                tokio::spawn(async move {
                    tokio::select! {
                        () = carried => {}
                        _ = closing.changed() => {}
                    }
                });
                Payload::Carried(receiver)
            }
        };
        let mut answer = Response::new(payload);
        *answer.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
        *answer.headers_mut() = header_map(&head.headers);
        answer
    }

    /// Goes on with a stream whose home is gone: the client notices nothing of it.
    async fn carry_on(&self, errand: Errand, pieces: mpsc::Sender<Bytes>) {
        let Some(homes) = &self.homes else { return };
        let answer = Box::pin(self.hand_on(homes, errand)).await;
        let mut body = answer.into_body();
        if matches!(body, Payload::Whole(_)) {
            return;
        }
        loop {
            let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            let frame = tokio::select! {
                frame = frame => frame,
                () = pieces.closed() => return,
            };
            let piece = frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok());
            let Some(piece) = piece else { return };
            if pieces.send(piece).await.is_err() {
                return;
            }
        }
    }

    /// Answers a request whose session is here; `None`: it has moved on.
    async fn here(&self, errand: Errand) -> Option<HttpAnswer> {
        let Errand { method, headers, caller, body, lost } = errand;
        match method {
            Method::GET => Some(self.get_here(&headers, &caller)),
            Method::DELETE => Some(self.delete_here(&headers, &caller).await),
            _ if !self.stands(&headers, &caller, lost).await => None,
            _ => Some(self.post_here(&headers, caller, body, lost).await),
        }
    }

    /// Serves a request that another replica handed us.
    async fn serve_handed(self: Arc<Self>, handed: Handed) {
        let Some(homes) = &self.homes else { return };
        let Some((head, body)) = unframed::<ErrandHead>(&handed.body) else { return };
        let headers = header_map(&head.headers);
        let Some(caller) = known_caller(&self.settings.rules, head.toolbox.as_deref(), head.token.as_deref())
        else {
            return handed.bounce().await;
        };
        let method = Method::from_bytes(head.method.as_bytes()).unwrap_or(Method::POST);
        let errand = Errand { method, headers, caller, body: Bytes::copy_from_slice(body), lost: head.lost };
        let Some(id) = errand.session_id().map(str::to_owned) else { return };
        homes.replicas.settled().await;
        homes.adopted(&entry_key(&id)).await;
        let session = self.sessions.get(&id, &errand.caller);
        let is_ours = match &session {
            Some(session) if session.home.as_ref().is_some_and(|home| home.is_left()) => errand.is_one_way(),
            Some(_) => !self.is_draining() || errand.is_one_way(),
            None => false,
        };
        if !is_ours {
            return handed.bounce().await;
        }
        let _call = self.calls.begin();
        let answer = tokio::select! {
            answer = self.here(errand) => answer,
            () = handed.gone() => return,
        };
        match answer {
            Some(answer) => pump(answer, &handed).await,
            None => handed.bounce().await,
        }
    }

    /// Sends what ends a question or a call to the replica that had the session before, and lets calls in flight finish.
    pub(super) fn tell_previous(
        &self,
        session: &HttpSession<B::Legacy>,
        headers: &HeaderMap,
        caller: &Caller,
        body: &[u8],
    ) {
        let (Some(homes), Some(home)) = (&self.homes, &session.home) else { return };
        let Some(previous) = home.previous() else { return };
        let errand = Errand {
            method: Method::POST,
            headers: headers.clone(),
            caller: caller.clone(),
            body: Bytes::copy_from_slice(body),
            lost: false,
        };
        let replicas = homes.replicas.clone();
        tokio::spawn(async move {
            if replicas.is_there(&previous).await == Ok(true)
                && let Ok(mut asking) = replicas.ask(&previous, Subject::Session, &errand.write()).await
            {
                asking.next().await;
            }
        });
    }

    /// Whether the store is away.
    pub(super) fn is_degraded(&self) -> bool {
        self.homes.as_ref().is_some_and(|homes| homes.replicas.is_away())
    }
}

/// The caller whom another replica has let in, as the rules here know it.
fn known_caller(rules: &Rules, toolbox: Option<&str>, token: Option<&str>) -> Option<Caller> {
    let toolbox = toolbox.map(Into::into);
    let Some(wanted) = token else { return Some(Caller { toolbox, token: None }) };
    let known =
        rules.tokens().into_iter().map(|token| Caller { toolbox: toolbox.clone(), token: Some(token) });
    known.into_iter().find(|caller| token_digest(caller).as_deref() == Some(wanted))
}

/// Sends an answer back to the replica that asked for it.
async fn pump(answer: HttpAnswer, handed: &Handed) {
    let (parts, mut body) = answer.into_parts();
    let head = AnswerHead { status: parts.status.as_u16(), headers: header_texts(&parts.headers, |_| true) };
    if let Payload::Whole(bytes) = &body {
        handed.part(&framed(&head, bytes), true).await;
        return;
    }
    let mut head = Some(head);
    loop {
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let frame = tokio::select! {
            frame = frame => frame,
            () = handed.gone() => return,
        };
        let piece = frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok());
        let is_last = piece.is_none();
        let piece = piece.unwrap_or_default();
        let sent = match head.take() {
            Some(head) => handed.part(&framed(&head, &piece), is_last).await,
            None => handed.part(&piece, is_last).await,
        };
        if is_last || !sent {
            return;
        }
    }
}

/// The carrying of a stream from its home to a client.
struct Carry {
    /// The id of the last event that the client was sent.
    last_event: Option<String>,
    pieces: mpsc::Sender<Bytes>,
}

impl Carry {
    /// Carries on until the stream ends, the client is gone, or the home is: then what to ask for next is returned.
    async fn run(
        mut self,
        first: Bytes,
        mut asking: Asking,
        errand: Errand,
    ) -> Option<(Errand, mpsc::Sender<Bytes>)> {
        let mut piece = first;
        loop {
            self.note(&piece);
            self.pieces.send(piece).await.ok()?;
            let part = tokio::select! {
                part = asking.next() => part,
                () = self.pieces.closed() => return None,
            };
            match part {
                Arrival::Answer(more, false) => piece = more.into(),
                Arrival::Answer(more, true) => {
                    let _ = self.pieces.send(more.into()).await;
                    return None;
                }
                Arrival::Lost => {
                    let next = match &self.last_event {
                        Some(last) => errand.resuming(last)?,
                        // Nothing has come yet, so what was asked for is asked for again.
                        None => Some(errand).filter(|errand| errand.method == Method::GET)?,
                    };
                    return Some((next, self.pieces));
                }
                Arrival::Bounced | Arrival::CutOff => return None,
            }
        }
    }

    fn note(&mut self, piece: &[u8]) {
        let text = String::from_utf8_lossy(piece);
        if let Some(id) = text.lines().rev().find_map(|line| line.strip_prefix("id: ")) {
            self.last_event = Some(id.to_owned());
        }
    }
}
