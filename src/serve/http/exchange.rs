//! One HTTP request and its response.
//!
//! The order of checks is part of the contract: 403, 401, 404/405, 415/406, 413, 400.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

use super::guard::{authenticate, single};
use super::headers::{
    Accepted, LAST_EVENT_ID, Refusal, SESSION_ID, agree, is_json, legacy_version, modern_meta, says_modern,
};
use super::sessions::Session;
use super::stream::{Batch, CutOff, Kind, Part, Reader, Stream, Writer};
use super::{Backend, Scope, Server, Sink, body};
use crate::wire::era::Version;
use crate::wire::json::{Doc, Node, Scanner};
use crate::wire::message::{Id, Malformed, Message, code, error_object, write_raw_error};

/// JSON nested deeper than this is refused.
const DEEPEST: usize = 512;

type Answer = Response<Payload>;

/// What a POST asks for, once its message is read and found good.
enum Plan<S> {
    /// Nothing but the response.
    Done(Answer),
    /// A modern request; the id of its refusals.
    Modern,
    /// A modern notification.
    ModernNotification,
    /// The first request of a session that speaks this version.
    Initialize(Version),
    /// A request in a session.
    Legacy(Arc<Session<S>>),
    /// A notification or response in a session.
    LegacyOneWay(Arc<Session<S>>),
    /// Several of these.
    Batch(Arc<Session<S>>),
}

impl<B: Backend> Server<B> {
    /// Answers one request of the connection that `hang_up` closes.
    pub(super) async fn respond(&self, request: Request<Incoming>, hang_up: &Arc<Notify>) -> Answer {
        let (head, mut body) = request.into_parts();
        let waits = head.headers.contains_key(header::EXPECT);
        let answer = self.admitted(Request::from_parts(head, &mut body)).await;
        // Who waits to be asked for the body has not sent it.
        if !body.is_end_stream() && !waits {
            tokio::spawn(body::discard(body, self.settings.head_timeout));
        }
        if let Payload::Events(events) = answer.body() {
            events.reader.on_cut_off(hang_up);
        }
        answer
    }

    async fn admitted(&self, request: Request<&mut Incoming>) -> Answer {
        let headers = request.headers();
        if let Err((status, words)) = self.guard.admit(request.uri(), headers) {
            return refuse(status, words);
        }
        let Some(origin) = headers.get(header::ORIGIN).cloned() else {
            return self.route(request).await;
        };
        let preflight = request.method() == Method::OPTIONS
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        let mut answer = if preflight { answer_preflight(headers) } else { self.route(request).await };
        let headers = answer.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate"),
        );
        answer
    }

    async fn route(&self, request: Request<&mut Incoming>) -> Answer {
        let method = request.method().clone();
        let path = request.uri().path();
        if path == "/healthz" || path == "/readyz" {
            return match (method, path) {
                (Method::GET | Method::HEAD, "/healthz") => text(StatusCode::OK, "ok"),
                (Method::GET | Method::HEAD, _) => self.readiness(),
                _ => wrong_method("GET, HEAD"),
            };
        }
        let rule = self.settings.rules.get();
        let token = if rule.tokens.is_empty() && !self.closed_to_strangers {
            None
        } else {
            match authenticate(&rule.tokens, request.headers()) {
                Ok(token) => Some(token),
                Err(()) => return unauthorized(),
            }
        };
        let toolbox = match path.strip_prefix("/mcp") {
            Some("") => None,
            Some(rest) => match rest.strip_prefix('/').and_then(percent_decoded) {
                Some(name) => Some(name.into()),
                None => return refuse(StatusCode::NOT_FOUND, "nothing is served at this path; try /mcp"),
            },
            None => return refuse(StatusCode::NOT_FOUND, "nothing is served at this path; try /mcp"),
        };
        let scope = Scope { toolbox, token };
        if scope.toolbox.is_some() && !self.backend.toolbox_exists(&scope) {
            return refuse(StatusCode::NOT_FOUND, "there is no such toolbox");
        }
        let modern = says_modern(request.headers());
        match method {
            Method::POST => self.post(request, scope, rule.max_body_bytes).await,
            Method::GET | Method::DELETE if modern => wrong_method("POST"),
            Method::GET => self.get(request.headers(), &scope),
            Method::DELETE => self.delete(request.headers(), &scope),
            _ => wrong_method("GET, POST, DELETE"),
        }
    }

    fn readiness(&self) -> Answer {
        let state = if self.is_draining() { Err("shutting down".to_owned()) } else { self.backend.ready() };
        match state {
            Ok(()) => text(StatusCode::OK, "ready"),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason),
        }
    }

    /// Opens the stream of messages that belong to no request, or resumes a stream.
    fn get(&self, headers: &HeaderMap, scope: &Scope) -> Answer {
        let session = self.session(headers, scope);
        if let Err(denied) = &session
            && denied.status == StatusCode::NOT_FOUND
        {
            return denied.answer(None);
        }
        if !Accepted::read(headers).events {
            return refuse(StatusCode::NOT_ACCEPTABLE, "a GET accepts text/event-stream");
        }
        let session = match self.live_session(headers, scope) {
            Ok(session) => session,
            Err(denied) => return denied.answer(None),
        };
        if self.is_draining() {
            return draining();
        }
        let event_id = single(headers, &LAST_EVENT_ID).ok().flatten();
        let resumed = event_id.and_then(|id| session.resume(id, self.settings.kept_for));
        let (reader, start) = match resumed {
            Some(reader) => (reader, None),
            None => {
                let reader = session.inbox.open();
                let start = format!("id: {}\n\n", reader.start_id());
                (reader, Some(start.into()))
            }
        };
        self.event_stream(reader, start, Box::new(session.busy()))
    }

    fn delete(&self, headers: &HeaderMap, scope: &Scope) -> Answer {
        match self.live_session(headers, scope) {
            Ok(session) => {
                self.end(&session);
                empty(StatusCode::NO_CONTENT)
            }
            Err(denied) => denied.answer(None),
        }
    }

    fn end(&self, session: &Session<B::Session>) {
        if self.sessions.remove(session) {
            self.backend.close(&session.backend);
        }
    }

    /// The session that the request names: none 400, not the caller's 404.
    fn session(&self, headers: &HeaderMap, scope: &Scope) -> Result<Arc<Session<B::Session>>, Denied> {
        let (status, words) = match single(headers, &SESSION_ID) {
            Ok(Some(id)) => match self.sessions.get(id, scope) {
                Some(session) => return Ok(session),
                None => (StatusCode::NOT_FOUND, "there is no such session; `initialize` opens one"),
            },
            Ok(None) => (
                StatusCode::BAD_REQUEST,
                "Mcp-Session-Id is missing; `initialize` opens a session, modern requests carry `_meta`",
            ),
            Err(_) => (StatusCode::BAD_REQUEST, "Mcp-Session-Id must stand once"),
        };
        Err(Denied { status, refusal: Refusal::new(code::INVALID_REQUEST, words) })
    }

    /// The session of a legacy message: the caller's, and a version that we speak.
    fn live_session(&self, headers: &HeaderMap, scope: &Scope) -> Result<Arc<Session<B::Session>>, Denied> {
        match self.session(headers, scope) {
            Err(denied) if denied.status == StatusCode::NOT_FOUND => Err(denied),
            session => match legacy_version(headers) {
                Ok(()) => session,
                Err(refusal) => Err(Denied { status: StatusCode::BAD_REQUEST, refusal }),
            },
        }
    }

    async fn post(&self, request: Request<&mut Incoming>, scope: Scope, limit: usize) -> Answer {
        // Whether a message is modern, and its session of no account, shows only in its body.
        let session = self.session(request.headers(), &scope).err();
        let stale = session
            .filter(|denied| denied.status == StatusCode::NOT_FOUND && !says_modern(request.headers()));
        // What belongs to a call in flight, the answer to a question above all, still comes in.
        if self.is_draining() && !request.headers().contains_key(SESSION_ID) {
            return draining();
        }
        let accepted = Accepted::read(request.headers());
        if let Some(denied) = &stale
            && !(is_json(request.headers()) && (accepted.json || accepted.events))
        {
            return denied.answer(None);
        }
        if !is_json(request.headers()) {
            return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json");
        }
        if !accepted.json && !accepted.events {
            let words = "application/json or text/event-stream must be acceptable";
            return refuse(StatusCode::NOT_ACCEPTABLE, words);
        }
        let (head, incoming) = request.into_parts();
        let message = match body::read(incoming, limit, self.settings.head_timeout).await {
            Ok(message) => message,
            Err(status) => {
                if let Some(denied) = &stale {
                    return closing(denied.answer(None));
                }
                let words = match status {
                    StatusCode::PAYLOAD_TOO_LARGE => {
                        format!("a body has at most {limit} bytes (maxBodyBytes)")
                    }
                    StatusCode::REQUEST_TIMEOUT => "the body did not come in time".to_owned(),
                    _ => "the body is broken".to_owned(),
                };
                return closing(refuse(status, words));
            }
        };
        if let Some(denied) = stale.filter(|_| !is_modern(&message)) {
            return denied.answer(None);
        }
        let plan = self.plan(&head.headers, &scope, &message);
        let is_new = !matches!(plan, Plan::Done(_) | Plan::LegacyOneWay(_) | Plan::ModernNotification);
        if self.is_draining() && is_new {
            return draining();
        }
        match plan {
            Plan::Done(answer) => answer,
            Plan::Modern => self.modern(scope, &message, accepted).await,
            Plan::ModernNotification => {
                drop(self.backend.modern(scope, &message, Arc::new(Nobody)));
                empty(StatusCode::ACCEPTED)
            }
            Plan::LegacyOneWay(session) => {
                let _busy = session.busy();
                self.backend.legacy(&session.backend, &message, Arc::new(Nobody));
                empty(StatusCode::ACCEPTED)
            }
            Plan::Initialize(version) => self.initialize(scope, version, &message, accepted).await,
            Plan::Legacy(session) => {
                let (stream, reader) = self.open_stream(&session, accepted);
                self.backend.legacy(&session.backend, &message, Arc::new(Writer(stream.clone())));
                self.legacy_answer(&session, &stream, reader).await
            }
            Plan::Batch(session) => {
                let (stream, reader) = self.open_stream(&session, accepted);
                if self.run_batch(&session, &message, Writer(stream.clone())) {
                    self.legacy_answer(&session, &stream, reader).await
                } else {
                    empty(StatusCode::ACCEPTED)
                }
            }
        }
    }

    /// Reads the message and decides what is to be done.
    fn plan(&self, headers: &HeaderMap, scope: &Scope, message: &[u8]) -> Plan<B::Session> {
        let mut scanner = Scanner::default();
        let refusal =
            |id: Option<&Id>, code, words: &str| Plan::Done(refused(id, &Refusal::new(code, words)));
        let doc = match scanner.scan(message) {
            Ok(doc) if doc.deepest() <= DEEPEST => doc,
            Ok(_) => return refusal(None, code::PARSE, "Parse error: nested more than 512 levels deep"),
            Err(invalid) => {
                let words = format!("Parse error: this is no JSON from byte {} on", invalid.offset);
                return refusal(None, code::PARSE, &words);
            }
        };
        if doc.root().raw().starts_with('[') {
            return self.plan_batch(headers, scope, doc);
        }
        let (id, method, params) = match Message::read(doc.root()) {
            Err(bad) => return refusal(bad.id.as_ref(), bad.code, bad.message),
            Ok(Message::Request { id, method, params }) => (Some(id), method, params),
            Ok(Message::Notification { method, params }) => (None, method, params),
            Ok(Message::Response { .. }) if says_modern(headers) => {
                let words = "Invalid request: in this version clients send no responses";
                return refusal(None, code::INVALID_REQUEST, words);
            }
            Ok(Message::Response { .. }) => {
                return match self.live_session(headers, scope) {
                    Ok(session) => Plan::LegacyOneWay(session),
                    Err(denied) => Plan::Done(denied.answer(None)),
                };
            }
        };
        let modern = match modern_meta(params) {
            Ok(meta) => meta.is_some() || says_modern(headers),
            Err(refusal) => return Plan::Done(refused(id.as_ref(), &refusal)),
        };
        match id {
            None if modern => Plan::ModernNotification,
            None => match self.live_session(headers, scope) {
                Ok(session) => Plan::LegacyOneWay(session),
                Err(denied) => Plan::Done(denied.answer(None)),
            },
            Some(id) if modern => {
                if !is_string_or_integer(&id) {
                    let words = "Invalid request: \"id\" must be a string or an integer";
                    return refusal(None, code::INVALID_REQUEST, words);
                }
                let demanded = |tool: &str| self.backend.param_headers(scope, tool);
                match agree(headers, &method, params, demanded) {
                    Ok(()) => Plan::Modern,
                    Err(refusal) => Plan::Done(refused(Some(&id), &refusal)),
                }
            }
            Some(id) if method == "initialize" && !headers.contains_key(SESSION_ID) => {
                if let Err(refusal) = legacy_version(headers) {
                    return Plan::Done(refused(Some(&id), &refusal));
                }
                let requested =
                    params.and_then(|params| params.get("protocolVersion")).and_then(Node::as_str);
                Plan::Initialize(
                    requested.and_then(|version| Version::legacy(&version)).unwrap_or(Version::LATEST_LEGACY),
                )
            }
            Some(id) => match self.live_session(headers, scope) {
                Ok(session) => Plan::Legacy(session),
                Err(denied) => Plan::Done(denied.answer(Some(&id))),
            },
        }
    }

    fn plan_batch(&self, headers: &HeaderMap, scope: &Scope, doc: Doc<'_>) -> Plan<B::Session> {
        let refusal = |words: &str| Plan::Done(refused(None, &Refusal::new(code::INVALID_REQUEST, words)));
        if says_modern(headers) {
            return refusal("Invalid request: this version has no batches");
        }
        let session = match self.live_session(headers, scope) {
            Ok(session) => session,
            Err(denied) => return Plan::Done(denied.answer(None)),
        };
        if session.version != Version::V2025March {
            return refusal("Invalid request: batches are part of 2025-03-26 only");
        }
        match serde_json::from_str::<Vec<&RawValue>>(doc.root().raw()) {
            Ok(parts) if parts.iter().any(|part| is_modern(part.get().as_bytes())) => {
                refusal("Invalid request: the version of a modern message has no batches")
            }
            Ok(parts) if !parts.is_empty() => Plan::Batch(session),
            _ => refusal("Invalid request: the batch is empty"),
        }
    }

    async fn modern(&self, scope: Scope, message: &[u8], accepted: Accepted) -> Answer {
        let stream = Stream::answer(0, accepted, false, Box::new(self.calls.begin()));
        let mut reader = stream.read_after(0).expect("there is always a place before the first event");
        let cancel = self.backend.modern(scope, message, Arc::new(Writer(stream)));
        match reader.kind().await {
            Kind::Json(answer) => {
                let status = match error_code(&answer) {
                    Some(code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
                    Some(-32022..=-32020) => StatusCode::BAD_REQUEST,
                    _ => StatusCode::OK,
                };
                json(status, answer)
            }
            Kind::Events => self.event_stream(reader, None, cancel),
            Kind::Nothing => empty(StatusCode::ACCEPTED),
        }
    }

    async fn initialize(&self, scope: Scope, version: Version, message: &[u8], accepted: Accepted) -> Answer {
        let open = |unrelated: Arc<dyn Sink>| self.backend.open(scope.clone(), unrelated);
        let Ok(session) = Session::new(scope.clone(), version, open) else {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "the system has no random numbers");
        };
        if !self.sessions.insert(&session) {
            self.backend.close(&session.backend);
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
        }
        // A client that goes away before the answer never learns the id.
        let mut opening = Opening { server: self, session: &session, opened: false };
        let (stream, reader) = self.open_stream(&session, accepted);
        self.backend.legacy(&session.backend, message, Arc::new(Writer(stream.clone())));
        let mut answer = self.legacy_answer(&session, &stream, reader).await;
        opening.opened = match answer.body() {
            Payload::Whole(body) => answer.status() == StatusCode::OK && error_code(body).is_none(),
            Payload::Events(_) => true,
        };
        if opening.opened {
            let id = HeaderValue::from_str(&session.id).expect("hexadecimal digits");
            answer.headers_mut().insert(SESSION_ID, id);
        }
        answer
    }

    fn open_stream(&self, session: &Session<B::Session>, accepted: Accepted) -> (Arc<Stream>, Reader) {
        let work = Box::new((session.busy(), self.calls.begin()));
        let stream = Stream::answer(session.next_stream(), accepted, true, work);
        let reader = stream.read_after(0).expect("there is always a place before the first event");
        (stream, reader)
    }

    async fn legacy_answer(
        &self,
        session: &Arc<Session<B::Session>>,
        stream: &Arc<Stream>,
        mut reader: Reader,
    ) -> Answer {
        match reader.kind().await {
            Kind::Json(answer) => json(StatusCode::OK, answer),
            Kind::Events => {
                session.keep(stream);
                self.event_stream(reader, None, Box::new(session.busy()))
            }
            Kind::Nothing => empty(StatusCode::ACCEPTED),
        }
    }

    /// Hands the parts of a batch on; `false` if none of them is answered.
    fn run_batch(&self, session: &Session<B::Session>, message: &[u8], stream: Writer) -> bool {
        let parts: Vec<&RawValue> = serde_json::from_slice(message).unwrap_or_default();
        let mut ids = HashSet::new();
        let read = |part: &&RawValue| {
            let mut scanner = Scanner::default();
            let doc = scanner.scan_str(part.get()).expect("a part of valid JSON");
            match Message::read(doc.root()) {
                Ok(Message::Request { id, .. }) if !ids.insert(id.key()) => Err(Malformed::ID_TWICE),
                Ok(Message::Request { .. }) => Ok(true),
                Ok(_) => Ok(false),
                Err(bad) => Err(bad),
            }
        };
        let kinds: Vec<_> = parts.iter().map(read).collect();
        let expected = kinds.iter().filter(|kind| !matches!(kind, Ok(false))).count();
        let batch = (expected > 0).then(|| Batch::new(stream, expected));
        for (part, kind) in parts.iter().zip(kinds) {
            match (kind, &batch) {
                (Ok(true), Some(batch)) => {
                    let sink = Arc::new(Part::new(batch));
                    self.backend.legacy(&session.backend, part.get().as_bytes(), sink);
                }
                (Err(bad), Some(batch)) => {
                    batch.add(Some(error_message(bad.id.as_ref(), &Refusal::new(bad.code, bad.message))));
                }
                _ => self.backend.legacy(&session.backend, part.get().as_bytes(), Arc::new(Nobody)),
            }
        }
        expected > 0
    }

    fn event_stream(&self, reader: Reader, start: Option<Bytes>, held: Box<dyn Send>) -> Answer {
        let silence = self.settings.keep_alive;
        let events = Events { reader, start, silence, alarm: Box::pin(sleep(silence)), _held: held };
        let mut answer = Response::new(Payload::Events(Box::new(events)));
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
        headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
        answer
    }
}

/// Why a message is not taken in, and the status that says so.
struct Denied {
    status: StatusCode,
    refusal: Refusal,
}

impl Denied {
    fn answer(&self, id: Option<&Id>) -> Answer {
        json(self.status, error_message(id, &self.refusal))
    }
}

/// Ends a session whose client has not heard of it.
struct Opening<'a, B: Backend> {
    server: &'a Server<B>,
    session: &'a Session<B::Session>,
    opened: bool,
}

impl<B: Backend> Drop for Opening<'_, B> {
    fn drop(&mut self) {
        if !self.opened {
            self.server.end(self.session);
        }
    }
}

/// Takes what nobody waits for.
struct Nobody;

impl Sink for Nobody {
    fn send(&self, _message: &[u8], _last: bool) -> bool {
        false
    }
}

/// The body of a response.
pub(super) enum Payload {
    /// Known as a whole.
    Whole(Bytes),
    /// Events as they come.
    Events(Box<Events>),
}

/// A connection's reading of a stream.
pub(super) struct Events {
    reader: Reader,
    start: Option<Bytes>,
    silence: Duration,
    alarm: Pin<Box<Sleep>>,
    /// Dropped when the client is gone or has all.
    _held: Box<dyn Send>,
}

impl Body for Payload {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let events = match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Self::Whole(bytes) => return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Events(events) => events,
        };
        let bytes = match events.start.take() {
            Some(start) => start,
            None => match events.reader.poll_events(context) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(bytes))) => bytes,
                Poll::Pending => {
                    ready!(events.alarm.as_mut().poll(context));
                    Bytes::from_static(b":\n\n")
                }
            },
        };
        events.alarm.as_mut().reset(Instant::now() + events.silence);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

impl std::fmt::Display for CutOff {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("the client does not read its stream")
    }
}

impl std::error::Error for CutOff {}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Payload::Whole(Bytes::new()));
    *answer.status_mut() = status;
    answer
}

fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Payload::Whole(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn json(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    whole(status, "application/json", body)
}

fn text(status: StatusCode, words: impl Into<String>) -> Answer {
    whole(status, "text/plain; charset=utf-8", words.into() + "\n")
}

fn error_message(id: Option<&Id>, refusal: &Refusal) -> Vec<u8> {
    let error = error_object(refusal.code, &refusal.message, refusal.data.as_deref());
    let mut message = Vec::new();
    write_raw_error(&mut message, id, |out| out.extend_from_slice(error.as_bytes()));
    message
}

/// Refuses a message.
fn refused(id: Option<&Id>, refusal: &Refusal) -> Answer {
    json(StatusCode::BAD_REQUEST, error_message(id, refusal))
}

/// Refuses a request before its message is looked at.
fn refuse(status: StatusCode, words: impl Into<String>) -> Answer {
    json(status, error_message(None, &Refusal::new(code::INVALID_REQUEST, words)))
}

fn closing(mut answer: Answer) -> Answer {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn draining() -> Answer {
    closing(refuse(StatusCode::SERVICE_UNAVAILABLE, "the gateway is shutting down"))
}

fn wrong_method(allowed: &'static str) -> Answer {
    let mut answer = refuse(StatusCode::METHOD_NOT_ALLOWED, format!("allowed here: {allowed}"));
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    answer
}

fn unauthorized() -> Answer {
    let mut answer = refuse(StatusCode::UNAUTHORIZED, "a bearer token is needed");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

fn answer_preflight(headers: &HeaderMap) -> Answer {
    let mut answer = empty(StatusCode::NO_CONTENT);
    let out = answer.headers_mut();
    out.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    // `Mcp-Param-…` headers have no list, and `*` would leave out `Authorization`.
    if let Some(wanted) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        out.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    out.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    out.append(header::VARY, HeaderValue::from_static("Access-Control-Request-Headers"));
    answer
}

/// The code of an answer that is an error. Our own messages begin with their version and id.
fn error_code(answer: &[u8]) -> Option<i64> {
    let rest = answer.strip_prefix(b"{\"jsonrpc\":\"2.0\",\"id\":")?;
    let end = match rest.first()? {
        b'"' => {
            let mut escaped = false;
            let close = rest.iter().skip(1).position(|byte| {
                let quote = *byte == b'"' && !escaped;
                escaped = *byte == b'\\' && !escaped;
                quote
            })?;
            close + 2
        }
        _ => rest.iter().position(|byte| *byte == b',')?,
    };
    rest[end..].strip_prefix(b",\"error\":")?;
    let mut scanner = Scanner::default();
    let code = scanner.scan(answer).ok()?.root().get("error")?.get("code")?.raw().parse().ok();
    Some(code.unwrap_or(code::INTERNAL))
}

/// Whether the message says by its `_meta` that it is modern.
fn is_modern(message: &[u8]) -> bool {
    let mut scanner = Scanner::default();
    match scanner.scan(message).map(|doc| Message::read(doc.root())) {
        Ok(Ok(Message::Request { params, .. } | Message::Notification { params, .. })) => {
            !matches!(modern_meta(params), Ok(None))
        }
        _ => false,
    }
}

fn is_string_or_integer(id: &Id) -> bool {
    let raw = id.raw();
    raw.starts_with('"') || raw.strip_prefix('-').unwrap_or(raw).bytes().all(|byte| byte.is_ascii_digit())
}

/// The text of one path segment.
fn percent_decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'/' => return None,
            b'%' => {
                let digits = tail.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = &tail[2..];
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok().filter(|name| !name.is_empty())
}
