//! Calls between the eras: questions that become `input_required` results, and the reverse.
//!
//! A call between a legacy client and a legacy upstream never comes here; it has no state beyond its answer.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::oneshot;

use super::engine::Engine;
use super::level;
use super::link::{Asking, Caller, Link};
use super::modern::ModernCall;
use super::progress::Progress;
use super::reply::Reply;
use super::seal::{Sealed, State, params_digest};
use super::session::{Question, Session};
use super::turns::Turn;
use crate::wire::era::{ALL_CAPABILITIES, TASKS, declares, declares_at, meta, modern_meta};
use crate::wire::json::{Node, Scanner, quote};
use crate::wire::message::{Id, code, error_object, write_raw_error, write_result};
use crate::wire::peer::{Answer, Deadline, Lost, OnAnswer};

/// Turns the answer into the reply.
pub(super) type Finish = Box<dyn FnOnce(Answer<'_>, Reply) + Send>;

/// How often an upstream may ask for more before a call is given up.
const MOST_ROUNDS: u32 = 10;

/// A call that may be interrupted by questions.
pub struct Call {
    engine: Weak<Engine>,
    link: Arc<Link>,
    method: &'static str,
    /// As the upstream gets them, but for `_meta`.
    params: String,
    /// Digest of the client's own parameters.
    digest: String,
    modern: Option<Arc<ModernCall>>,
    state: Mutex<CallState>,
    rounds: AtomicU32,
}

struct CallState {
    /// `None` while the client is to answer questions.
    reply: Option<Reply>,
    finish: Option<Finish>,
    upstream_id: Option<u64>,
    /// Questions that wait for the client: our key, the upstream's id, and the request as raw JSON.
    questions: Vec<(String, Id, String)>,
    /// While they do.
    asking: Option<Asking>,
    /// How many there were so far.
    asked: usize,
    /// Whether one came while several calls were under way, so that it may be another's.
    crowded: bool,
    /// The call's turn, while the upstream is at it. Never dropped with the state locked: others wait for it.
    turn: Option<Turn>,
    /// An answer that came while the client had the turn.
    early: Option<Result<String, Result<String, Lost>>>,
}

impl Call {
    /// Sends a call to an upstream; `params` are as the upstream gets them, `digest` is of the client's own.
    pub(super) fn launch(
        engine: &Arc<Engine>,
        link: &Arc<Link>,
        method: &'static str,
        params: String,
        digest: String,
        reply: Reply,
        finish: Finish,
    ) {
        let call = Arc::new(Self {
            engine: Arc::downgrade(engine),
            link: link.clone(),
            method,
            params,
            digest,
            modern: reply.modern().cloned(),
            state: Mutex::new(CallState {
                reply: Some(reply),
                finish: Some(finish),
                upstream_id: None,
                questions: Vec::new(),
                asking: None,
                asked: 0,
                crowded: false,
                turn: None,
                early: None,
            }),
            rounds: AtomicU32::new(0),
        });
        call.in_turn(|call, turn| {
            call.state.lock().turn = Some(turn);
            call.send(&call.params);
        });
    }

    /// Goes on when it is this call's turn, at once where calls need not wait for each other.
    fn in_turn(self: Arc<Self>, go: impl FnOnce(&Arc<Self>, Turn) + Send + 'static) {
        let can_be_asked = self.modern.as_ref().is_some_and(|modern| modern.can_be_asked());
        if !(self.link.asks_at_large() && can_be_asked) {
            return go(&self, Turn::free());
        }
        if self.state.lock().crowded {
            let turn = self.link.turns.at_once();
            return go(&self, turn);
        }
        let turns = self.link.turns.clone();
        turns.wait(move |turn| go(&self, turn));
    }

    /// Sends it, or sends it again with what the upstream asked for, if the client still wants the answer.
    fn send(self: &Arc<Self>, params: &str) {
        let mut scanner = Scanner::default();
        let params = scanner.scan_str(params).expect("written as valid JSON").root();
        let (session, key, capabilities, level) = {
            let state = self.state.lock();
            let Some(reply) = state.reply.as_ref().filter(|reply| reply.is_wanted()) else { return };
            let session = reply.session().clone();
            let (capabilities, level) = match reply.modern() {
                Some(modern) => (None, modern.log_level),
                None => {
                    let hello = session.hello();
                    let level = session.log_level();
                    let level = level.as_deref().and_then(level_of);
                    let capabilities = hello.map_or(ALL_CAPABILITIES, |hello| &hello.capabilities);
                    (Some(without_tasks(capabilities)), level)
                }
            };
            (session, reply.key().clone(), capabilities, level)
        };
        let own_meta = params.get("_meta").filter(|own| own.is_object());
        let token = own_meta.and_then(|own| own.get("progressToken")).map(|token| token.raw());
        if !self.link.version().is_modern()
            && capabilities.is_none()
            && let Some(level) = level
        {
            self.link.want_level(level);
        }
        let caller = Caller {
            session: Some(session.clone()),
            key: Some(key.clone()),
            progress: token.map(Into::into),
            call: Some(self.clone()),
        };
        let write = |out: &mut Vec<u8>, id: u64| {
            let text = self.meta_for(own_meta, token.is_some().then_some(id), capabilities.as_deref(), level);
            let modern = self.link.version().is_modern();
            let gone = |key| (key, None);
            let changes = match (text.as_str(), modern) {
                ("{}", false) => vec![gone("_meta"), gone("inputResponses"), gone("requestState")],
                (text, false) => vec![("_meta", Some(text)), gone("inputResponses"), gone("requestState")],
                // A task of the legacy era is not one of the modern.
                (text, true) if capabilities.is_some() => vec![("_meta", Some(text)), gone("task")],
                (text, true) => vec![("_meta", Some(text))],
            };
            params.write_with(out, &changes);
        };
        let call = self.clone();
        let on_answer: OnAnswer = Box::new(move |answer| call.answered(answer));
        if let Some(id) =
            self.link.peer.request(self.method, write, caller, self.link.deadline(&session), on_answer)
        {
            self.state.lock().upstream_id = Some(id);
            session.sent(&key, &self.link, id);
        }
    }

    /// The `_meta` that the upstream's era wants.
    fn meta_for(
        &self,
        own: Option<Node<'_>>,
        token: Option<u64>,
        capabilities: Option<&str>,
        level: Option<usize>,
    ) -> String {
        let mut empty = Scanner::default();
        let own = own.unwrap_or_else(|| empty.scan_str("{}").expect("an empty object").root());
        let token = token.map(|token| token.to_string());
        let mut changes: Vec<(&str, Option<&str>)> = Vec::new();
        if let Some(token) = &token {
            changes.push(("progressToken", Some(token)));
        }
        if !self.link.version().is_modern() {
            changes.extend(
                [meta::VERSION, meta::CLIENT_INFO, meta::CAPABILITIES, meta::LOG_LEVEL]
                    .map(|key| (key, None)),
            );
        }
        let mut text = Vec::new();
        own.write_with(&mut text, &changes);
        let mut text = String::from_utf8(text).expect("written from UTF-8 texts");
        if let Some(capabilities) = capabilities.filter(|_| self.link.version().is_modern()) {
            let mut more = modern_meta(capabilities);
            if let Some(level) = level {
                more.push_str(&format!(
                    ",\"{}\":\"{}\"",
                    meta::LOG_LEVEL,
                    crate::wire::era::LOG_LEVELS[level]
                ));
            }
            let comma = if text == "{}" { "" } else { "," };
            text.insert_str(1, &format!("{more}{comma}"));
        }
        text
    }

    fn answered(self: &Arc<Self>, answer: Answer<'_>) {
        {
            let mut state = self.state.lock();
            if state.reply.is_none() {
                // The client has the turn: kept until it comes back.
                state.early = Some(match answer {
                    Answer::Result(result) => Ok(result.raw().to_owned()),
                    Answer::Error(error) => Err(Ok(error.raw().to_owned())),
                    Answer::Lost(lost) => Err(Err(lost.clone())),
                });
                // The upstream waits for the client no longer.
                let asking = state.asking.take();
                drop(state);
                return drop(asking);
            }
        }
        let modern_client = self.modern.is_some();
        match answer {
            Answer::Result(result)
                if result.get("resultType").is_some_and(|kind| kind.raw() == "\"input_required\"") =>
            {
                if modern_client {
                    self.hand_on_questions(result);
                } else {
                    let (call, result) = (self.clone(), result.raw().to_owned());
                    tokio::spawn(async move { call.ask_legacy_client(&result).await });
                }
            }
            Answer::Error(error)
                if modern_client
                    && error
                        .get("code")
                        .is_some_and(|node| node.raw().parse() == Ok(code::URL_ELICITATION)) =>
            {
                self.visit_first(error);
            }
            answer => self.deliver(answer),
        }
    }

    /// Answers the client.
    fn deliver(&self, answer: Answer<'_>) {
        let Some((reply, _turn)) = self.take_reply() else { return };
        let Some(finish) = self.state.lock().finish.take() else { return };
        level::deliver(&self.link, self.method, None, answer, reply, finish);
    }

    /// The right to answer, and the turn, which ends with the answer.
    fn take_reply(&self) -> Option<(Reply, Option<Turn>)> {
        let mut state = self.state.lock();
        let reply = state.reply.take()?;
        Some((reply, state.turn.take()))
    }

    /// A modern upstream asks a modern client: its question is passed on, its state sealed in ours.
    fn hand_on_questions(self: &Arc<Self>, result: Node<'_>) {
        let Some((reply, _turn)) = self.take_reply() else { return };
        let mut scanner = Scanner::default();
        // By itself, since the members of questions stand too deep in an answer.
        let result = scanner.scan_str(result.raw()).expect("validated when it was read").root();
        let asked = result.get("inputRequests").into_iter().flat_map(Node::members);
        let needed = asked
            .filter_map(|(_, request)| Needed::of(&request.get("method")?.as_str()?, request.get("params")));
        let can = |needed: &Needed| reply.modern().is_some_and(|modern| needed.is_in(&modern.capabilities));
        let missing: BTreeSet<_> = needed.filter(|needed| !can(needed)).collect();
        if !missing.is_empty() {
            return refuse_missing(reply, &missing);
        }
        let own = result.get("requestState").map(|state| state.raw().to_owned());
        let sealed = self.seal(&reply, State::Upstream(own));
        reply.relay(result, &[("requestState", Some(&quote(&sealed)))]);
    }

    /// A legacy upstream wants the user to visit a page first: the client is asked to lead there and call again.
    fn visit_first(self: &Arc<Self>, error: Node<'_>) {
        let Some((reply, _turn)) = self.take_reply() else { return };
        if !reply.modern().is_some_and(|modern| Needed::PAGE.is_in(&modern.capabilities)) {
            return refuse_missing(reply, &[Needed::PAGE].into());
        }
        let list = error.get("data").and_then(|data| data.get("elicitations")).map_or("[]", Node::raw);
        let list: Vec<&serde_json::value::RawValue> = serde_json::from_str(list).unwrap_or_default();
        let requests: Vec<_> = list
            .iter()
            .enumerate()
            .map(|(index, elicitation)| {
                let mut scanner = Scanner::default();
                let node = scanner.scan_str(elicitation.get()).expect("a part of valid JSON").root();
                let mut params = Vec::new();
                node.write_with(&mut params, &[("mode", Some("\"url\"")), ("elicitationId", None)]);
                let params = String::from_utf8(params).expect("written from UTF-8 texts");
                format!("\"visit-{}\":{{\"method\":\"elicitation/create\",\"params\":{params}}}", index + 1)
            })
            .collect();
        let sealed = self.seal(&reply, State::Refused(error.raw().to_owned()));
        reply.result(&input_required(&requests.join(","), &sealed));
    }

    /// A legacy upstream asks a modern client: the call waits here, the client is told what to bring.
    ///
    /// `crowded`: the question came while several calls were under way.
    pub(super) fn park(self: &Arc<Self>, id: Id, method: &str, params: Option<Node<'_>>, crowded: bool) {
        let Some(engine) = self.engine.upgrade() else { return };
        let mut request = format!("{{\"method\":{},\"params\":", quote(method)).into_bytes();
        match params {
            // The modern era has no such ids.
            Some(params) => params.write_with(&mut request, &[("elicitationId", None)]),
            None => request.extend_from_slice(b"{}"),
        }
        request.push(b'}');
        let request = String::from_utf8(request).expect("written from UTF-8 texts");
        {
            let mut state = self.state.lock();
            state.asked += 1;
            state.crowded |= crowded;
            let key = format!("question-{}", state.asked);
            state.questions.push((key, id, request));
        }
        // A second question while the client has the turn waits for the next round.
        if let Some((reply, _turn)) = self.take_reply() {
            self.ask_modern_client(&engine, reply);
        }
    }

    /// What a modern client said of itself with the call; `None` for a legacy one.
    pub(super) fn modern(&self) -> Option<Arc<ModernCall>> {
        self.modern.clone()
    }

    /// For a modern client, the least severity of log messages that it wants, if any.
    pub(super) fn log_level(&self) -> Option<Option<usize>> {
        self.modern.as_ref().map(|modern| modern.log_level)
    }

    /// Whether a question of it waits for the client.
    pub(super) fn is_parked(&self) -> bool {
        self.state.lock().reply.is_none()
    }

    fn ask_modern_client(self: &Arc<Self>, engine: &Arc<Engine>, reply: Reply) {
        let token = engine.parked.add(self.clone());
        let sealed = self.seal(&reply, State::Parked(token));
        let asking = self.link.asks(reply.session());
        let requests: Vec<_> = {
            let mut state = self.state.lock();
            state.asking = Some(asking);
            let questions = state.questions.iter();
            questions.map(|(key, _, request)| format!("{}:{request}", quote(key))).collect()
        };
        reply.result(&input_required(&requests.join(","), &sealed));
        let (engine, patience) = (Arc::downgrade(engine), engine.settings().question_timeout);
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            if let Some(call) = engine.upgrade().and_then(|engine| engine.parked.take(token)) {
                call.expire();
            }
        });
    }

    /// The client did not come back.
    fn expire(&self) {
        let (id, questions, _asking) = {
            let mut state = self.state.lock();
            (state.upstream_id, std::mem::take(&mut state.questions), state.asking.take())
        };
        for (_, question, _) in questions {
            self.refuse_question(&question, "the client did not answer in time");
        }
        if let Some(id) = id {
            self.link.peer.cancel(
                id,
                "the client did not answer in time",
                &Lost::new("the client did not answer in time"),
            );
        }
    }

    /// The client is back with what it was asked for.
    pub(super) fn resume(self: &Arc<Self>, params: Node<'_>, reply: Reply) {
        if let Some(id) = self.upstream_id() {
            reply.session().sent(reply.key(), &self.link, id);
        }
        let responses = params.get("inputResponses").map_or("{}", Node::raw).to_owned();
        let token = Progress::asked(params).map(|progress| progress.token.raw().into());
        self.clone().in_turn(move |call, turn| call.go_on(&responses, token, reply, turn));
    }

    /// Hands the client's answers to the upstream and waits on. Progress belongs to the retry from now on: `token` is
    /// its own, if it wants any.
    fn go_on(self: &Arc<Self>, responses: &str, token: Option<Box<str>>, reply: Reply, turn: Turn) {
        let Some(engine) = self.engine.upgrade() else { return };
        let mut scanner = Scanner::default();
        let responses = scanner.scan_str(responses).expect("a part of valid JSON").root();
        if let Some(id) = self.upstream_id() {
            let (session, key) = (reply.session().clone(), reply.key().clone());
            let caller =
                Caller { session: Some(session), key: Some(key), call: Some(self.clone()), progress: token };
            self.link.peer.replace(id, caller);
        }
        let _asking = self.state.lock().asking.take();
        let (answered, early, ask_again) = {
            let mut state = self.state.lock();
            let asked = std::mem::take(&mut state.questions);
            let (answered, open): (Vec<_>, Vec<_>) =
                asked.into_iter().partition(|(key, ..)| responses.get(key).is_some());
            let early = state.early.take();
            let mut unanswered = None;
            if !open.is_empty() && early.is_none() {
                state.questions = open;
                unanswered = Some((reply, turn));
            } else {
                state.reply = Some(reply);
                state.turn = Some(turn);
            }
            (answered, early, unanswered)
        };
        for (key, id, _) in answered {
            if let Some(response) = responses.get(&key) {
                self.link.answer(|out| write_result(out, &id, |out| response.write(out)));
            }
        }
        if let Some((reply, _turn)) = ask_again {
            return self.ask_modern_client(&engine, reply);
        }
        let mut scanner = Scanner::default();
        match &early {
            None => {}
            Some(Ok(result)) => {
                self.answered(Answer::Result(scanner.scan_str(result).expect("validated when read").root()));
            }
            Some(Err(Ok(error))) => {
                self.answered(Answer::Error(scanner.scan_str(error).expect("validated when read").root()));
            }
            Some(Err(Err(lost))) => self.answered(Answer::Lost(lost)),
        }
    }

    fn upstream_id(&self) -> Option<u64> {
        self.state.lock().upstream_id
    }

    /// A modern upstream asks a legacy client: it is asked for real, and the call goes out again with the answers.
    async fn ask_legacy_client(self: Arc<Self>, result: &str) {
        let mut scanner = Scanner::default();
        let result = scanner.scan_str(result).expect("validated when it was read").root();
        let Some((session, key)) = ({
            let state = self.state.lock();
            state.reply.as_ref().map(|reply| (reply.session().clone(), reply.key().clone()))
        }) else {
            return;
        };
        if self.rounds.fetch_add(1, Ordering::Relaxed) >= MOST_ROUNDS {
            let lost = Lost::new(format!("the server asked for more input {MOST_ROUNDS} times"));
            return self.deliver(Answer::Lost(&lost));
        }
        let mut responses = Vec::new();
        for (name, request) in result.get("inputRequests").into_iter().flat_map(Node::members) {
            let method = request.get("method").and_then(Node::as_str).unwrap_or_default();
            let outcome = self.ask(&session, &key, &method, request.get("params")).await;
            if !self.state.lock().reply.as_ref().is_some_and(Reply::is_wanted) {
                return;
            }
            match outcome {
                Ok(response) => responses.push(format!("{}:{response}", quote(&name))),
                Err(_) if method == "elicitation/create" => {
                    responses.push(format!("{}:{{\"action\":\"decline\"}}", quote(&name)));
                }
                Err(reason) => {
                    let lost = Lost::new(format!(
                        "the server asked for {method}, and the client did not answer: {reason}"
                    ));
                    return self.deliver(Answer::Lost(&lost));
                }
            }
        }
        let responses = format!("{{{}}}", responses.join(","));
        let mut scanner = Scanner::default();
        let params = scanner.scan_str(&self.params).expect("written as valid JSON").root();
        let mut text = Vec::new();
        params.write_with(
            &mut text,
            &[
                ("inputResponses", Some(&responses)),
                ("requestState", result.get("requestState").map(Node::raw)),
            ],
        );
        let text = String::from_utf8(text).expect("written from UTF-8 texts");
        self.send(&text);
    }

    /// Asks a legacy client for this call of it, its request with this key, and waits for the raw result.
    async fn ask(
        &self,
        session: &Arc<Session>,
        key: &Arc<str>,
        method: &str,
        params: Option<Node<'_>>,
    ) -> Result<String, String> {
        let needed = Needed::of(method, params);
        if let Some(needed) = needed
            && !session.hello().is_some_and(|hello| needed.is_in(&hello.capabilities))
        {
            return Err(format!("it does not support {needed}"));
        }
        let Some(engine) = self.engine.upgrade() else { return Err("the gateway is gone".to_owned()) };
        // A page to visit has an id in the legacy era, and none in the modern.
        let new_id = quote(&format!("{:016x}", engine.seal.number()));
        let without_id = |params: &Node<'_>| params.get("elicitationId").is_none();
        let id = params.filter(without_id).filter(|_| needed == Some(Needed::PAGE)).map(|_| &*new_id);
        let write = |out: &mut Vec<u8>, _| match (params, id) {
            (None, _) => out.extend_from_slice(b"{}"),
            (Some(params), None) => params.write(out),
            (Some(params), id) => params.write_with(out, &[("elicitationId", id)]),
        };
        let (send, receive) = oneshot::channel();
        let on_answer: OnAnswer = Box::new(move |answer| {
            let _ = send.send(match answer {
                Answer::Result(result) => Ok(result.raw().to_owned()),
                Answer::Error(error) => Err(error.raw().to_owned()),
                Answer::Lost(lost) => Err(lost.to_string()),
            });
        });
        let question = Question { link: Arc::downgrade(&self.link), progress: None, call: Some(key.clone()) };
        let deadline = Deadline::new(None, Some(engine.settings().question_timeout), None);
        drop(engine);
        let _asking = self.link.asks(session);
        session.peer.request_via(&session.route(Some(key)), method, write, question, deadline, on_answer);
        receive.await.unwrap_or_else(|_| Err("it is gone".to_owned()))
    }

    fn refuse_question(&self, id: &Id, why: &str) {
        let error = error_object(code::UPSTREAM_LOST, why, None);
        self.link.answer(|out| write_raw_error(out, Some(id), |out| out.extend_from_slice(error.as_bytes())));
    }

    fn seal(&self, reply: &Reply, state: State) -> String {
        let Some(engine) = self.engine.upgrade() else { return String::new() };
        engine.seal.seal(&Sealed {
            principal: reply.session().window.principal.clone(),
            method: self.method.to_owned(),
            digest: self.digest.clone(),
            expires: now() + engine.settings().question_timeout.as_secs().max(1),
            state,
        })
    }
}

impl Engine {
    /// What a retry with `requestState` goes on with, if the state is ours and fits the request.
    pub fn unseal(&self, method: &str, params: Node<'_>, session: &Session) -> Result<State, &'static str> {
        let text = params.get("requestState").and_then(Node::as_str).unwrap_or_default().to_lowercase();
        let sealed = self.seal.open(&text, now());
        let sealed =
            sealed.ok_or("requestState is not one of ours, or has expired; call again without it")?;
        let fits = sealed.principal == session.window.principal
            && sealed.method == method
            && sealed.digest == params_digest(params.raw());
        if !fits {
            return Err("requestState belongs to another request; call again without it");
        }
        let mut used = self.used.lock();
        used.retain(|_, expires| *expires > now());
        match used.insert(text, sealed.expires) {
            None => Ok(sealed.state),
            Some(_) => Err("requestState was used before; call again without it"),
        }
    }

    /// Goes on with a call that waits; `false` if it does not wait any more.
    pub fn resume(&self, token: u64, params: Node<'_>, reply: Reply) -> Result<(), Reply> {
        match self.parked.take(token) {
            Some(call) => {
                call.resume(params, reply);
                Ok(())
            }
            None => Err(reply),
        }
    }
}

/// Calls whose client is to answer questions.
#[derive(Default)]
pub(super) struct Parked(Mutex<std::collections::HashMap<u64, Arc<Call>>>);

impl Parked {
    fn add(&self, call: Arc<Call>) -> u64 {
        let mut calls = self.0.lock();
        let token = call.engine.upgrade().map_or(0, |engine| engine.seal.number());
        calls.insert(token, call);
        token
    }

    fn take(&self, token: u64) -> Option<Arc<Call>> {
        self.0.lock().remove(&token)
    }
}

/// What a client must have declared to be asked something: a capability, and where it matters which part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Needed {
    pub(super) capability: &'static str,
    part: Option<&'static str>,
}

impl Needed {
    /// A person to be led to a page.
    const PAGE: Self = Self { capability: "elicitation", part: Some("url") };

    /// What this question needs; `None` for questions that no rule names.
    pub(super) fn of(method: &str, params: Option<Node<'_>>) -> Option<Self> {
        let member = |key| params.and_then(|params| params.get(key));
        let part_of = |capability, part| Some(Self { capability, part });
        match method {
            "elicitation/create" if member("mode").is_some_and(|mode| mode.raw() == "\"url\"") => {
                Some(Self::PAGE)
            }
            "elicitation/create" => part_of("elicitation", Some("form")),
            "sampling/createMessage" if member("tools").or(member("toolChoice")).is_some() => {
                part_of("sampling", Some("tools"))
            }
            "sampling/createMessage" => part_of("sampling", None),
            "roots/list" => part_of("roots", None),
            _ => None,
        }
    }

    /// Whether these capabilities, a raw object, hold it. Who names no page among the ways of elicitation can do forms.
    pub(super) fn is_in(self, capabilities: &str) -> bool {
        let has = |part| declares_at(capabilities, &[self.capability, part]);
        declares(capabilities, self.capability)
            && match self.part {
                None => true,
                Some("form") => has("form") || !has("url"),
                Some(part) => has(part),
            }
    }
}

impl fmt::Display for Needed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Some(part) => write!(out, "{}.{part}", self.capability),
            None => out.write_str(self.capability),
        }
    }
}

/// Capabilities of a legacy client, for a modern upstream: what the extension for tasks is there, a legacy client
/// cannot know.
fn without_tasks(capabilities: &str) -> String {
    let mut scanner = Scanner::default();
    let extensions = match scanner.scan_str(capabilities) {
        Ok(doc) => doc.root().get("extensions").filter(|extensions| extensions.get(TASKS).is_some()),
        Err(_) => None,
    };
    let Some(extensions) = extensions else { return capabilities.to_owned() };
    let (mut others, mut text) = (Vec::new(), Vec::new());
    extensions.write_with(&mut others, &[(TASKS, None)]);
    let others = String::from_utf8(others).expect("written from UTF-8 texts");
    let mut scanner = Scanner::default();
    let root = scanner.scan_str(capabilities).expect("scanned just now").root();
    root.write_with(&mut text, &[("extensions", Some(&others))]);
    String::from_utf8(text).expect("written from UTF-8 texts")
}

/// Tells a modern client what it must be able to do for this call.
fn refuse_missing(reply: Reply, missing: &BTreeSet<Needed>) {
    let mut required = serde_json::Map::new();
    for needed in missing {
        let parts = required.entry(needed.capability).or_insert_with(|| json!({}));
        if let Some(part) = needed.part {
            parts[part] = json!({});
        }
    }
    let names: Vec<_> = missing.iter().map(Needed::to_string).collect();
    let message = format!("the server asks for what the client does not support: {}", names.join(", "));
    let data = json!({"requiredCapabilities": required}).to_string();
    reply.error(code::MISSING_CAPABILITY, &message, Some(&data));
}

fn input_required(requests: &str, sealed: &str) -> String {
    format!(
        "{{\"resultType\":\"input_required\",\"inputRequests\":{{{requests}}},\"requestState\":{}}}",
        quote(sealed)
    )
}

/// The level in raw parameters of `logging/setLevel`.
pub(super) fn level_of(params: &str) -> Option<usize> {
    let mut scanner = Scanner::default();
    let level = scanner.scan_str(params).ok()?.root().get("level")?.as_str()?.into_owned();
    crate::wire::era::LOG_LEVELS.iter().position(|known| *known == level)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
