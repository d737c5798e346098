//! One HTTP request and its response.
//!
//! The order of checks is part of the contract: 403, 401, 404/405, 415/406, 413, 400.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::answer::{
    Denied, HttpAnswer, Payload, answer_preflight, closing, draining, empty, error_code, error_message,
    event_stream, events, json, refuse, text, unauthorized, wrong_method,
};
use super::guard::{authenticate, single};
use super::headers::{Accepted, LAST_EVENT_ID, SESSION_ID, is_json, legacy_version, mirrored, says_modern};
use super::plan::{Plan, is_modern};
use super::sessions::{Full, HttpSession};
use super::stream::{AnswerForm, Batch, BatchPart, Reader, Stream, Writer};
use super::{Backend, HttpServer, Scope, Sink, body};
use crate::wire::era::Version;
use crate::wire::json::Scanner;
use crate::wire::message::{Malformed, Message, Refusal, code, is_modern_code};
use crate::wire::percent::decode_strictly;

impl<B: Backend> HttpServer<B> {
    /// Answers one request of the connection that `hang_up` closes.
    pub(super) async fn respond(&self, request: Request<Incoming>, hang_up: &Arc<Notify>) -> HttpAnswer {
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

    async fn admitted(&self, request: Request<&mut Incoming>) -> HttpAnswer {
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

    async fn route(&self, request: Request<&mut Incoming>) -> HttpAnswer {
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
        let token = if self.needs_no_token(&rule) {
            None
        } else {
            match authenticate(&rule.tokens, request.headers()) {
                Ok(token) => Some(token),
                Err(()) => return unauthorized(),
            }
        };
        let toolbox = match path.strip_prefix("/mcp") {
            Some("") => None,
            Some(rest) => match rest.strip_prefix('/').and_then(segment) {
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

    fn readiness(&self) -> HttpAnswer {
        let state = if self.is_draining() { Err("shutting down".to_owned()) } else { self.backend.ready() };
        match state {
            Ok(()) => text(StatusCode::OK, "ready"),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason),
        }
    }

    /// Opens the stream of messages that belong to no request, or resumes a stream.
    fn get(&self, headers: &HeaderMap, scope: &Scope) -> HttpAnswer {
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

    fn delete(&self, headers: &HeaderMap, scope: &Scope) -> HttpAnswer {
        match self.live_session(headers, scope) {
            Ok(_) if self.is_draining() => draining(),
            Ok(session) => {
                self.end(&session);
                empty(StatusCode::NO_CONTENT)
            }
            Err(denied) => denied.answer(None),
        }
    }

    fn end(&self, session: &HttpSession<B::Session>) {
        if self.sessions.remove(session) {
            self.backend.close(&session.backend);
        }
    }

    /// The session that the request names: none 400, not the caller's 404.
    fn session(&self, headers: &HeaderMap, scope: &Scope) -> Result<Arc<HttpSession<B::Session>>, Denied> {
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
    pub(super) fn live_session(
        &self,
        headers: &HeaderMap,
        scope: &Scope,
    ) -> Result<Arc<HttpSession<B::Session>>, Denied> {
        match self.session(headers, scope) {
            Err(denied) if denied.status == StatusCode::NOT_FOUND => Err(denied),
            session => match legacy_version(headers) {
                Ok(()) => session,
                Err(refusal) => Err(Denied { status: StatusCode::BAD_REQUEST, refusal }),
            },
        }
    }

    async fn post(&self, request: Request<&mut Incoming>, scope: Scope, limit: usize) -> HttpAnswer {
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
            Plan::Modern => self.modern(scope, &message, mirrored(&head.headers), accepted).await,
            Plan::ModernNotification => {
                drop(self.backend.modern(scope, &message, HeaderMap::new(), Arc::new(Nobody)));
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

    async fn modern(
        &self,
        scope: Scope,
        message: &[u8],
        mirrored: HeaderMap,
        accepted: Accepted,
    ) -> HttpAnswer {
        // A lone answer is looked at before it becomes an event: it may have a status of its own.
        let looked_at = Accepted { json: true, ..accepted };
        let stream = Stream::answer(0, looked_at, None, Box::new(self.calls.begin()));
        let mut reader = stream.read_after(0).expect("there is always a place before the first event");
        let cancel = self.backend.modern(scope, message, mirrored, Arc::new(Writer(stream)));
        match reader.kind().await {
            AnswerForm::Json(answer) => match error_code(&answer) {
                Some(code::METHOD_NOT_FOUND) => json(StatusCode::NOT_FOUND, answer),
                Some(code) if is_modern_code(code) => json(StatusCode::BAD_REQUEST, answer),
                _ if accepted.json => json(StatusCode::OK, answer),
                _ => events(Payload::Whole([b"data: ", &*answer, b"\n\n"].concat().into())),
            },
            AnswerForm::Events => self.event_stream(reader, None, cancel),
            AnswerForm::Nothing => empty(StatusCode::ACCEPTED),
        }
    }

    async fn initialize(
        &self,
        scope: Scope,
        version: Version,
        message: &[u8],
        accepted: Accepted,
    ) -> HttpAnswer {
        let open = |unrelated: Arc<dyn Sink>| self.backend.open(scope.clone(), unrelated);
        let Ok(session) = HttpSession::new(scope.clone(), version, &self.budget, open) else {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "the system has no random numbers");
        };
        match self.sessions.insert(&session) {
            Ok(None) => {}
            Ok(Some(unused)) => self.backend.close(&unused.backend),
            Err(Full) => {
                self.backend.close(&session.backend);
                return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
            }
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

    fn open_stream(&self, session: &HttpSession<B::Session>, accepted: Accepted) -> (Arc<Stream>, Reader) {
        let work = Box::new((session.busy(), self.calls.begin()));
        let stream = Stream::answer(session.next_stream(), accepted, Some(self.budget.clone()), work);
        let reader = stream.read_after(0).expect("there is always a place before the first event");
        (stream, reader)
    }

    async fn legacy_answer(
        &self,
        session: &Arc<HttpSession<B::Session>>,
        stream: &Arc<Stream>,
        mut reader: Reader,
    ) -> HttpAnswer {
        match reader.kind().await {
            AnswerForm::Json(answer) => json(StatusCode::OK, answer),
            AnswerForm::Events => {
                session.keep(stream);
                self.event_stream(reader, None, Box::new(session.busy()))
            }
            AnswerForm::Nothing => empty(StatusCode::ACCEPTED),
        }
    }

    /// Hands the parts of a batch on; `false` if none of them is answered.
    fn run_batch(&self, session: &HttpSession<B::Session>, message: &[u8], stream: Writer) -> bool {
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
                    let sink = Arc::new(BatchPart::new(batch));
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

    fn event_stream(&self, reader: Reader, start: Option<Bytes>, held: Box<dyn Send>) -> HttpAnswer {
        event_stream(reader, start, self.settings.keep_alive, held)
    }
}

/// Ends a session whose client has not heard of it.
struct Opening<'a, B: Backend> {
    server: &'a HttpServer<B>,
    session: &'a HttpSession<B::Session>,
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

/// The text of one path segment.
fn segment(path: &str) -> Option<Cow<'_, str>> {
    if path.contains('/') { None } else { decode_strictly(path).filter(|name| !name.is_empty()) }
}
