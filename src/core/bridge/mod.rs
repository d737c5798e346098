//! Calls between the eras: questions become `input_required` results, and the other way round.
//!
//! The engine [launches](launch) a call here if its client or its upstream is modern. A call between a
//! legacy client and a legacy upstream never comes here, because it has no state beyond its answer. Nor has
//! any other until it is interrupted, so only where an upstream may ask before it answers is there a [`Call`]
//! from the start; elsewhere it is made when an answer asks for more. The machine in `call.rs`, which also draws the states, decides what happens to a call; this module carries its
//! decisions out. A client that was told to come back brings a state that only we can open (`seal.rs`).
//!
//! Invariant: effects are carried out with nothing locked, because an answer may let the next call through
//! the gate.
//!
//! Invariant: a call is parked before its client is told to come back, and its upstream id is recorded before
//! it is sent.

mod call;
mod params;
mod questions;
pub mod seal;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use self::call::{CallMachine, Effects, Event, Next, interrupts};
use self::params::{Params, Speaker};
pub(super) use self::questions::Needed;
use self::questions::{input_required, missing, refuse_missing, request, visits};
use self::seal::{Seal, Sealed, State, params_digest};
use super::adapt;
use super::connection::{Asking, Caller, Connection};
use super::engine::Engine;
use super::gate::{Turn, TurnOf};
use super::modern::ModernCall;
use super::reply::Reply;
use super::session::{ClientSession, Question, Ticket};
use crate::config::Secret;
use crate::events::{Errand, Exchange};
use crate::json::{MemberChange, Node, Raw, Scanner, quote};
use crate::protocol::era::{ALL_CAPABILITIES, modern_meta};
use crate::protocol::message::{Id, code, error_object, write_raw_error, write_result};
use crate::protocol::progress::Progress;
use crate::transport::peer::{Answer, Awaits, Deadline, Lost, OnAnswer};

/// Turns the answer into the reply.
pub(super) type Finish = Box<dyn FnOnce(Answer<'_>, Reply) + Send>;

/// A call that may be interrupted by questions.
pub struct Call {
    connection: Arc<Connection>,
    method: &'static str,
    /// The parameters of a legacy client's call, apart from `_meta`, to be sent again with what the upstream
    /// asks for. A modern client calls again itself.
    params: Option<Vec<u8>>,
    /// The metadata of a modern client's call; `None` for a legacy client.
    modern: Option<Arc<ModernCall>>,
    stage: Mutex<Stage>,
}

/// The progress of a call.
struct Stage {
    machine: CallMachine<Right>,
    finish: Option<Finish>,
    upstream_id: Option<u64>,
    /// Present while the upstream waits for a modern client.
    asking: Option<Asking>,
    /// What is noted of the request to the upstream, while no request of the client is open for it.
    errand: Option<Errand>,
}

/// The right to answer the client, and the call's turn at the upstream, which ends with the answer.
struct Right {
    reply: Reply,
    _turn: Turn,
}

/// Sends a call to an upstream, with these changes to its parameters.
pub(super) fn launch(
    connection: &Arc<Connection>,
    method: &'static str,
    given: Node<'_>,
    changes: &[MemberChange<'_>],
    reply: Reply,
    finish: impl FnOnce(Answer<'_>, Reply) + Send + 'static,
) {
    let params = Params { given, changes };
    let modern = reply.modern().cloned();
    // A modern upstream asks by its answer, and a client that accepts no question is never asked.
    if connection.version().is_modern() || !modern.as_ref().is_some_and(|modern| modern.client.can_be_asked) {
        return send_plainly(connection, method, params, modern, reply, finish);
    }
    let finish = Box::new(finish);
    let turn = if connection.asks_at_large() {
        connection.gate.turn(TurnOf::ModernCall)
    } else {
        Some(Turn::free())
    };
    if let Some(turn) = turn {
        return Call::begin(connection, method, params, Right { reply, _turn: turn }, finish);
    }
    let (way, given) = (connection.clone(), Raw::own(given.with(changes)));
    connection.gate.wait(TurnOf::ModernCall, move |turn| {
        let params = Params { given: given.root(), changes: &[] };
        Call::begin(&way, method, params, Right { reply, _turn: turn }, finish);
    });
}

/// Sends a call that is interrupted by nothing but its answer.
fn send_plainly(
    connection: &Arc<Connection>,
    method: &'static str,
    params: Params<'_>,
    modern: Option<Arc<ModernCall>>,
    reply: Reply,
    finish: impl FnOnce(Answer<'_>, Reply) + Send + 'static,
) {
    let (session, key, way) = (reply.session().clone(), reply.key(), connection.clone());
    let own = modern.is_none().then(|| params.to_vec());
    let on_answer = OnAnswer::run(move |answer| match interrupts(&answer) {
        false => adapt::deliver(&way, method, None, answer, reply, finish),
        true => {
            let right = Right { reply, _turn: Turn::free() };
            Call::new(way, method, own, right, Box::new(finish)).take(Event::Answered(answer));
        }
    });
    let caller = Caller { session: Some(session), key: Some(key), modern, ..Caller::default() };
    send(connection, connection.peer.reserve(), method, params, caller, on_answer);
}

/// Sends a call under a reserved id, if its client still wants the answer.
fn send(
    connection: &Arc<Connection>,
    id: u64,
    method: &'static str,
    params: Params<'_>,
    caller: Caller,
    on_answer: OnAnswer,
) {
    let (Some(session), Some(key)) = (caller.session.clone(), caller.key) else { return };
    let version = connection.version();
    let speaker = match (&caller.modern, session.hello()) {
        (Some(modern), _) => Speaker { meta: None, level: modern.log_level },
        (None, hello) => {
            let unknown = || format!("{{{}}}", modern_meta(ALL_CAPABILITIES)).into();
            let meta = hello.map_or_else(unknown, |hello| hello.modern_meta.as_str().into());
            Speaker { meta: Some(meta), level: session.severity() }
        }
    };
    if !version.is_modern()
        && let Some(level) = speaker.level
    {
        connection.want_level(level);
    }
    // What a modern client says of itself goes to a modern upstream as it is.
    let stays = version.is_modern() && caller.modern.as_ref().is_some_and(|modern| !modern.wants_progress);
    let own_meta = if stays { None } else { params.given.get("_meta").filter(|own| own.is_object()) };
    let progress = own_meta.and_then(|own| own.get("progressToken"));
    let caller = Caller { progress: progress.map(|token| token.raw().into()), ..caller };
    if let Some(opened) = connection.peer.open(id, caller, connection.deadline(&session), on_answer)
        && session.goes_to(key, connection, id)
    {
        connection.log_request(method);
        opened.send(method, |out, id| {
            params::write(out, params, own_meta, version, &speaker, progress.map(|_| id));
        });
    }
}

impl Call {
    fn new(
        connection: Arc<Connection>,
        method: &'static str,
        params: Option<Vec<u8>>,
        right: Right,
        finish: Finish,
    ) -> Arc<Self> {
        let modern = right.reply.modern().cloned();
        let machine = CallMachine::new(modern.is_some(), right);
        let stage = Stage { machine, finish: Some(finish), upstream_id: None, asking: None, errand: None };
        Arc::new(Self { connection, method, params, modern, stage: Mutex::new(stage) })
    }

    /// Sends the call for the first time.
    fn begin(
        connection: &Arc<Connection>,
        method: &'static str,
        params: Params<'_>,
        right: Right,
        finish: Finish,
    ) {
        let (session, key) = (right.reply.session().clone(), right.reply.key());
        Self::new(connection.clone(), method, None, right, finish).send(session, key, params);
    }

    /// Sends the call, or sends it again with what the upstream asked for, if the client still wants the
    /// answer.
    fn send(self: &Arc<Self>, session: Arc<ClientSession>, key: Ticket, params: Params<'_>) {
        let id = self.connection.peer.reserve();
        self.stage.lock().upstream_id = Some(id);
        let (modern, call) = (self.modern.clone(), Some(self.clone()));
        let caller = Caller { session: Some(session), key: Some(key), modern, call, progress: None };
        send(&self.connection, id, self.method, params, caller, OnAnswer::Tell(self.clone()));
    }

    /// The client and the key of its request, as long as the client wants the answer.
    fn client(&self) -> Option<(Arc<ClientSession>, Ticket)> {
        let stage = self.stage.lock();
        let reply = &stage.machine.right()?.reply;
        reply.is_wanted().then(|| (reply.session().clone(), reply.key()))
    }

    /// Takes an event and carries out its effects.
    fn take(self: &Arc<Self>, event: Event<'_, Right>) {
        let (Effects { answers, next }, _asking) = {
            let mut stage = self.stage.lock();
            let effects = stage.machine.on(event);
            let awaits_client = stage.machine.awaits_client();
            (effects, stage.asking.take_if(|_| !awaits_client))
        };
        for (id, answer) in answers {
            self.connection.answer(|out| match answer {
                Ok(answer) => write_result(out, &id, |out| answer.write(out)),
                Err(reason) => {
                    let error = error_object(code::UPSTREAM_LOST, reason, None);
                    write_raw_error(out, Some(&id), |out| out.extend_from_slice(error.as_bytes()));
                }
            });
        }
        match next {
            Next::Nothing => {}
            Next::Deliver(right, answer) => self.deliver(right, answer),
            Next::Fail(right, lost) => self.deliver(right, Answer::Lost(&lost)),
            Next::HandOn(right, result) => self.hand_on(right, result),
            Next::VisitFirst(right, error) => self.visit_first(right, error),
            Next::TellClient(right, requests) => self.tell_client(right, &requests),
            Next::AskClient(result) => {
                let (call, result) = (self.clone(), result.raw().to_owned());
                tokio::spawn(async move { call.ask_client(&result).await });
            }
            Next::SendAgain(params) => {
                if let Some((session, key)) = self.client() {
                    let params = Raw::own(params);
                    self.send(session, key, Params { given: params.root(), changes: &[] });
                }
            }
            Next::Replay(early) => early.replay(|answer| self.take(Event::Answered(answer))),
            Next::Cancel(reason) => {
                if let Some(id) = self.upstream_id() {
                    self.connection.peer.cancel(id, reason, &Lost::new(reason));
                }
            }
        }
    }

    /// Answers the client.
    fn deliver(&self, right: Right, answer: Answer<'_>) {
        let Some(finish) = self.stage.lock().finish.take() else { return };
        let Right { reply, _turn } = right;
        adapt::deliver(&self.connection, self.method, None, answer, reply, finish);
    }

    /// Passes a modern upstream's question on to a modern client, with the upstream's state sealed in ours.
    fn hand_on(&self, right: Right, result: Node<'_>) {
        let Right { reply, _turn } = right;
        let mut scanner = Scanner::default();
        // The result is scanned on its own, because the questions are nested too deep in the whole answer.
        let result = scanner.scan_str(result.raw()).expect("validated when it was read").root();
        let missing = missing(result, reply.modern().map_or("{}", |modern| &modern.client.capabilities));
        if !missing.is_empty() {
            return refuse_missing(reply, &missing);
        }
        let own = result.get("requestState").map(|state| state.raw().to_owned());
        let sealed = self.seal(&reply, State::Upstream(own));
        reply.relay(result, &[("requestState", Some(&quote(&sealed)))]);
    }

    /// Asks a modern client to send its user to the pages that a legacy upstream requires, and to call again.
    fn visit_first(&self, right: Right, error: Node<'_>) {
        let Right { reply, _turn } = right;
        if !reply.modern().is_some_and(|modern| Needed::PAGE.is_in(&modern.client.capabilities)) {
            return refuse_missing(reply, &[Needed::PAGE].into());
        }
        let sealed = self.seal(&reply, State::Refused(error.raw().to_owned()));
        reply.result(&input_required(&visits(error), &sealed));
    }

    /// Handles a legacy upstream's question to a modern client: the call waits here, and the client is told
    /// what to bring. `crowded` means that several calls were in flight.
    pub(super) fn park(self: &Arc<Self>, id: Id, method: &str, params: Option<Node<'_>>, crowded: bool) {
        self.take(Event::Asked { id, request: request(method, params), crowded });
    }

    fn tell_client(self: &Arc<Self>, right: Right, requests: &str) {
        let Right { mut reply, _turn } = right;
        self.stage.lock().errand = reply.exchange().and_then(Exchange::hand_over);
        let Some(engine) = self.engine() else { return };
        let token = engine.bridge.park(self.clone());
        let home = engine.bridge.home.read().as_deref().unwrap_or_default().to_owned();
        let sealed = self.seal(&reply, State::Parked { home, call: token });
        let asking = Asking::new(&self.connection, reply.session());
        let unneeded = {
            let mut stage = self.stage.lock();
            match stage.machine.awaits_client() {
                true => stage.asking.replace(asking),
                // The upstream has answered in the meantime.
                false => Some(asking),
            }
        };
        drop(unneeded);
        reply.result(&input_required(requests, &sealed));
        let (engine, patience) = (Arc::downgrade(&engine), engine.settings().question_timeout);
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            if let Some(call) = engine.upgrade().and_then(|engine| engine.bridge.unpark(token)) {
                call.take(Event::Expired);
            }
        });
    }

    fn engine(&self) -> Option<Arc<Engine>> {
        self.connection.upstream.engine.upgrade()
    }

    /// Whether one of the call's questions waits for the client.
    pub(super) fn is_parked(&self) -> bool {
        self.stage.lock().machine.is_parked()
    }

    fn upstream_id(&self) -> Option<u64> {
        self.stage.lock().upstream_id
    }

    /// Continues the call when its client is back with the answers. Progress belongs to the retry from now
    /// on.
    fn resume(self: Arc<Self>, params: Node<'_>, mut reply: Reply) {
        if let Some(exchange) = reply.exchange()
            && let Some(errand) = self.stage.lock().errand.take()
        {
            exchange.take_over(errand);
        }
        if let Some(id) = self.upstream_id() {
            reply.session().goes_to(reply.key(), &self.connection, id);
        }
        let responses = params.get("inputResponses").map_or("{}", Node::raw).to_owned();
        let token: Option<Box<str>> = Progress::asked(params).map(|progress| progress.token.raw().into());
        let crowded = self.stage.lock().machine.is_crowded();
        let connection = self.connection.clone();
        let takes_turns = connection.asks_at_large()
            && self.modern.as_ref().is_some_and(|modern| modern.client.can_be_asked);
        let go = move |turn| {
            if let Some(id) = self.upstream_id() {
                let (session, key) = (reply.session().clone(), reply.key());
                let call = Some(self.clone());
                let modern = self.modern.clone();
                let caller = Caller { session: Some(session), key: Some(key), modern, call, progress: token };
                self.connection.peer.replace(id, caller);
            }
            let mut scanner = Scanner::default();
            let responses = scanner.scan_str(&responses).expect("a part of valid JSON").root();
            self.take(Event::Returned { responses, right: Right { reply, _turn: turn } });
        };
        match takes_turns {
            false => go(Turn::free()),
            // The question may belong to the call that has the turn.
            true if crowded => go(connection.gate.at_once()),
            true => connection.gate.wait(TurnOf::ModernCall, go),
        }
    }

    /// Asks a legacy client what a modern upstream wants to know, and sends the call again with the answers.
    async fn ask_client(self: Arc<Self>, result: &str) {
        let mut scanner = Scanner::default();
        let result = scanner.scan_str(result).expect("validated when it was read").root();
        let Some((session, key)) = self.client() else { return };
        let mut responses = Vec::new();
        for (name, request) in result.get("inputRequests").into_iter().flat_map(Node::members) {
            let method = request.get("method").and_then(Node::as_str).unwrap_or_default();
            let outcome = self.ask(&session, key, &method, request.get("params")).await;
            if self.client().is_none() {
                return;
            }
            match outcome {
                Ok(response) => responses.push(format!("{}:{response}", quote(&name))),
                Err(_) if method == "elicitation/create" => {
                    responses.push(format!("{}:{{\"action\":\"decline\"}}", quote(&name)));
                }
                Err(reason) => {
                    let reason =
                        format!("the server asked for {method}, and the client did not answer: {reason}");
                    return self.take(Event::Refused(Lost::new(reason)));
                }
            }
        }
        let responses = format!("{{{}}}", responses.join(","));
        let state = result.get("requestState").map(Node::raw);
        let params = self.params.as_deref().unwrap_or(b"{}");
        self.take(Event::Brought(params::again(params, &responses, state)));
    }

    /// Asks a legacy client a question on behalf of its request with this key, and waits for the raw result.
    async fn ask(
        &self,
        session: &Arc<ClientSession>,
        key: Ticket,
        method: &str,
        params: Option<Node<'_>>,
    ) -> Result<String, String> {
        let needed = Needed::of(method, params);
        if let Some(needed) = needed
            && !session.hello().is_some_and(|hello| needed.is_in(&hello.capabilities))
        {
            return Err(format!("it does not support {needed}"));
        }
        let Some(engine) = self.engine() else { return Err("the gateway is gone".to_owned()) };
        // A page to visit has an id in the legacy era and none in the modern one.
        let new_id = quote(&format!("{:016x}", engine.bridge.seal.number()));
        let without_id = |params: &Node<'_>| params.get("elicitationId").is_none();
        let id = params.filter(without_id).filter(|_| needed == Some(Needed::PAGE)).map(|_| &*new_id);
        let write = |out: &mut Vec<u8>, _| match (params, id) {
            (None, _) => out.extend_from_slice(b"{}"),
            (Some(params), None) => params.write(out),
            (Some(params), id) => params.write_with(out, &[("elicitationId", id)]),
        };
        let (send, receive) = oneshot::channel();
        let on_answer = OnAnswer::run(move |answer| {
            let _ = send.send(match answer {
                Answer::Result(result) => Ok(result.raw().to_owned()),
                Answer::Error(error) => Err(error.raw().to_owned()),
                Answer::Lost(lost) => Err(lost.to_string()),
            });
        });
        let question =
            Question { connection: Arc::downgrade(&self.connection), progress: None, call: Some(key) };
        let deadline = Deadline::new(None, Some(engine.settings().question_timeout), None);
        drop(engine);
        let _asking = Asking::new(&self.connection, session);
        let opened = session.peer().open(session.peer().reserve(), question, deadline, on_answer);
        // Whoever cancels the call after this point finds the question.
        if let Some(opened) = opened
            && self.client().is_some()
        {
            opened.send_via(&session.route(Some(key)), method, write);
        }
        receive.await.unwrap_or_else(|_| Err("it is gone".to_owned()))
    }

    /// Seals the state that a modern client brings back with the same parameters.
    fn seal(&self, reply: &Reply, state: State) -> String {
        let Some(engine) = self.engine() else { return String::new() };
        engine.bridge.seal.seal(&Sealed {
            principal: reply.session().workspace.owner.principal.clone(),
            method: self.method.to_owned(),
            digest: params_digest(reply.params()),
            expires: now() + engine.settings().question_timeout.as_secs().max(1),
            state,
        })
    }
}

impl Awaits for Call {
    fn answered(self: Arc<Self>, answer: Answer<'_>) {
        self.take(Event::Answered(answer));
    }
}

/// What returning clients need: the key for sealed states, the states that were used, and the parked calls.
pub struct Bridge {
    pub(super) seal: Seal,
    /// The sealed states that were used, until they expire.
    used: Mutex<HashMap<String, u64>>,
    /// The calls whose clients have questions to answer, by numbers that nobody can guess.
    parked: Mutex<HashMap<u64, Arc<Call>>>,
    /// Which of several replicas we are; `None` where there is one.
    home: RwLock<Option<Arc<str>>>,
}

/// A state that a retry brings, opened and fit for the request.
pub struct Unsealed {
    /// The text that the client brought.
    pub text: String,
    /// For how many seconds the state is good.
    pub lasts: u64,
    /// What the retry continues with.
    pub state: State,
}

impl Bridge {
    /// A bridge with the configured keys, if there are any.
    pub(super) fn new(keys: &[Secret]) -> Self {
        Self {
            seal: Seal::new(keys),
            used: Mutex::default(),
            parked: Mutex::default(),
            home: RwLock::default(),
        }
    }

    /// Is this one of several replicas from now on, which have these keys in common.
    pub fn join(&self, id: &Arc<str>, keys: &[Secret]) {
        *self.home.write() = Some(id.clone());
        self.seal.renew(keys);
    }

    /// The replica at which the call is parked that this state leads to, if it leads to one.
    pub fn parked_at(&self, state: &str) -> Option<String> {
        match self.seal.open(&state.to_lowercase(), now())?.state {
            State::Parked { home, .. } => Some(home).filter(|home| !home.is_empty()),
            State::Upstream(_) | State::Refused(_) => None,
        }
    }

    /// What a retry with `requestState` continues, if the state is ours and fits the request.
    pub fn unseal(
        &self,
        method: &str,
        params: Node<'_>,
        session: &ClientSession,
    ) -> Result<Unsealed, &'static str> {
        let text = params.get("requestState").and_then(Node::as_str).unwrap_or_default().to_lowercase();
        let sealed = self.seal.open(&text, now());
        let sealed =
            sealed.ok_or("requestState is not one of ours, or has expired; call again without it")?;
        let fits = sealed.principal == session.workspace.owner.principal
            && sealed.method == method
            && sealed.digest == params_digest(params.raw());
        if !fits {
            return Err("requestState belongs to another request; call again without it");
        }
        Ok(Unsealed { text, lasts: sealed.expires.saturating_sub(now()), state: sealed.state })
    }

    /// Takes note that a state is used, in this process; `false` if it was used before.
    pub fn use_up(&self, unsealed: &Unsealed) -> bool {
        let mut used = self.used.lock();
        used.retain(|_, expires| *expires > now());
        used.insert(unsealed.text.clone(), now() + unsealed.lasts).is_none()
    }

    /// Continues a parked call. Returns the reply if the call is no longer parked.
    pub fn resume(&self, token: u64, params: Node<'_>, reply: Reply) -> Result<(), Reply> {
        match self.unpark(token) {
            Some(call) => {
                call.resume(params, reply);
                Ok(())
            }
            None => Err(reply),
        }
    }

    fn park(&self, call: Arc<Call>) -> u64 {
        let token = self.seal.number();
        self.parked.lock().insert(token, call);
        token
    }

    fn unpark(&self, token: u64) -> Option<Arc<Call>> {
        self.parked.lock().remove(&token)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
