//! One HTTP request and its response.
//!
//! Invariant: the order of the checks is part of the contract: 403, 401, 404/405, 415/406, 413, 400.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use tokio::sync::Notify;

use super::answer::{
    Denied, HttpAnswer, Payload, answer_preflight, closing, draining, empty, event_stream, events, json,
    modern_status, nothing_here, page, refuse, store_away, text, try_again, unauthorized, whole,
    wrong_method,
};
use super::errand::Errand;
use super::guard::single;
use super::headers::{Accepted, LAST_EVENT_ID, SESSION_ID, is_json, names_html, says_modern};
use super::plan::{Begun, LegacyCall, Post, Whereabouts};
use super::sessions::HttpSession;
use super::stream::{AnswerForm, LoneAnswer, Reader};
use super::{Backend, Caller, HttpServer, body};
use crate::config::Token;
use crate::events::metrics::Exposition;
use crate::text::percent::decode_strictly;

impl<B: Backend> HttpServer<B> {
    /// Answers one request. `hang_up` closes its connection.
    pub(super) async fn respond(&self, request: Request<Incoming>, hang_up: &Arc<Notify>) -> HttpAnswer {
        let (head, mut body) = request.into_parts();
        let waits = head.headers.contains_key(header::EXPECT);
        let answer = self.admitted(Request::from_parts(head, &mut body)).await;
        // A client that waits for `100 Continue` has not sent the body.
        if !body.is_end_stream() && !waits {
            tokio::spawn(body::discard(body, self.settings.head_timeout));
        }
        if let Payload::Events(events) = answer.body() {
            events.reader.on_cut_off(hang_up);
        }
        answer
    }

    async fn admitted(&self, request: Request<&mut Incoming>) -> HttpAnswer {
        if let Some(annex) = self.settings.annex.as_ref().filter(|annex| annex.owns(request.uri().path())) {
            return annex.respond(request).await.map(Payload::Annex);
        }
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
        if path == "/" && matches!(method, Method::GET | Method::HEAD) {
            return match names_html(request.headers()) {
                true => page(),
                false => nothing_here(),
            };
        }
        let rule = self.settings.rules.get();
        let token = match self.guard.identify(&rule.tokens, request.headers()) {
            Ok(token) => token,
            Err(()) => return unauthorized(),
        };
        if path == "/metrics" && self.settings.metrics {
            return self.metrics(&method, request.headers(), token.as_deref()).await;
        }
        let toolbox = match path.strip_prefix("/mcp") {
            Some("" | "/") => None,
            Some(rest) => match rest.strip_prefix('/').and_then(segment) {
                Some(name) => Some(name.into()),
                None => return nothing_here(),
            },
            None => return nothing_here(),
        };
        let caller = Caller { toolbox, token };
        if caller.toolbox.is_some() && !self.backend.toolbox_exists(&caller) {
            return refuse(StatusCode::NOT_FOUND, "there is no such toolbox");
        }
        let modern = says_modern(request.headers());
        match method {
            Method::POST => self.post(request, caller, modern, rule.max_body_bytes).await,
            Method::GET | Method::DELETE if modern => wrong_method("POST"),
            Method::GET | Method::DELETE => self.of_session(request, caller).await,
            _ => wrong_method("GET, POST, DELETE"),
        }
    }

    fn readiness(&self) -> HttpAnswer {
        let state = if self.is_draining() { Err("shutting down".to_owned()) } else { self.backend.ready() };
        match state {
            Ok(()) if self.is_degraded() => text(StatusCode::OK, "ready, but degraded: the store is away"),
            Ok(()) => text(StatusCode::OK, "ready"),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason),
        }
    }

    /// What was counted, for those who may see all of it.
    async fn metrics(&self, method: &Method, headers: &HeaderMap, token: Option<&Token>) -> HttpAnswer {
        if token.is_some_and(|token| token.scope.is_some()) {
            let words = "this token opens certain toolboxes only, and metrics are of all of them";
            return refuse(StatusCode::FORBIDDEN, words);
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return wrong_method("GET, HEAD");
        }
        let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let as_text = match accepts.flat_map(|value| value.split(',')).any(names_open_metrics) {
            true => Exposition::OpenMetrics,
            false => Exposition::Prometheus,
        };
        // Many series take a while to write, and no call waits for them.
        let write = self.backend.metrics(self.sessions.count());
        match tokio::task::spawn_blocking(move || write(as_text)).await {
            Ok(page) => whole(StatusCode::OK, as_text.content_type(), page),
            Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written"),
        }
    }

    /// Answers a GET or DELETE, here or where the session is.
    async fn of_session(&self, request: Request<&mut Incoming>, caller: Caller) -> HttpAnswer {
        let (head, _) = request.into_parts();
        if let Some(homes) = &self.homes {
            match self.is_elsewhere(homes, &head.headers, &caller).await {
                Ok(false) => {}
                Ok(true) => {
                    let (method, headers, body) = (head.method, head.headers, Bytes::new());
                    let errand = Errand { method, headers, caller, body, lost: false };
                    return self.hand_on(homes, errand).await;
                }
                Err(away) => return away,
            }
        }
        match head.method {
            Method::GET => self.get_here(&head.headers, &caller),
            _ => self.delete_here(&head.headers, &caller).await,
        }
    }

    /// Opens the stream for messages that belong to no request, or resumes a stream.
    pub(super) fn get_here(&self, headers: &HeaderMap, caller: &Caller) -> HttpAnswer {
        let session = self.sessions.named(headers, caller);
        if let Err(denied) = &session
            && denied.status == StatusCode::NOT_FOUND
        {
            return denied.answer();
        }
        if !Accepted::read(headers).events {
            return refuse(StatusCode::NOT_ACCEPTABLE, "a GET must accept text/event-stream");
        }
        let session = match self.sessions.live(headers, caller) {
            Ok(session) => session,
            Err(denied) => return denied.answer(),
        };
        if self.is_draining() {
            return draining();
        }
        let event_id = single(headers, &LAST_EVENT_ID).ok().flatten();
        let resumed = event_id.and_then(|id| session.resume(id, self.settings.keeping.time));
        let (reader, start) = match resumed {
            Some(reader) => (reader, None),
            None => {
                let reader = session.inbox.open();
                let start = format!("id: {}\n\n", reader.start_id());
                (reader, Some(start.into()))
            }
        };
        event_stream(reader, start, self.settings.keep_alive, Box::new(session.busy()))
    }

    pub(super) async fn delete_here(&self, headers: &HeaderMap, caller: &Caller) -> HttpAnswer {
        let session = match self.sessions.live(headers, caller) {
            Ok(_) if self.is_draining() => return draining(),
            Ok(session) => session,
            Err(denied) => return denied.answer(),
        };
        if let Some(home) = &session.home {
            if home.end().await.is_err() {
                return store_away();
            }
            self.backend.forget(&session.backend).await;
        }
        if self.sessions.remove(&session) {
            self.backend.close(&session.backend);
        }
        empty(StatusCode::NO_CONTENT)
    }

    /// Answers a POST; `says_modern` is what its version header says.
    async fn post(
        &self,
        request: Request<&mut Incoming>,
        caller: Caller,
        says_modern: bool,
        limit: usize,
    ) -> HttpAnswer {
        let elsewhere = match &self.homes {
            Some(homes) if !says_modern => loop {
                match self.is_elsewhere(homes, request.headers(), &caller).await {
                    Ok(false) if !self.stands(request.headers(), &caller, false).await => {}
                    Ok(elsewhere) => break elsewhere,
                    Err(away) => return away,
                }
            },
            _ => false,
        };
        // Only the body shows whether a message is modern, so that its session does not matter.
        let stale = match elsewhere || says_modern {
            true => None,
            false => self.sessions.named(request.headers(), &caller).err(),
        };
        let stale = stale.filter(|denied| denied.status == StatusCode::NOT_FOUND);
        // Messages for a call in flight are still accepted, above all the answer to a question.
        if self.is_draining() && !request.headers().contains_key(SESSION_ID) {
            return draining();
        }
        let accepted = Accepted::read(request.headers());
        if let Some(denied) = &stale
            && !(is_json(request.headers()) && (accepted.json || accepted.events))
        {
            return denied.answer();
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
                    return closing(denied.answer());
                }
                let words = match status {
                    StatusCode::PAYLOAD_TOO_LARGE => {
                        format!("a body may have at most {limit} bytes (maxBodyBytes)")
                    }
                    StatusCode::REQUEST_TIMEOUT => "the body did not come in time".to_owned(),
                    _ => "the body is broken".to_owned(),
                };
                return closing(refuse(status, words));
            }
        };
        let place = match stale {
            Some(denied) => Whereabouts::Nowhere(denied),
            None if elsewhere => Whereabouts::Elsewhere,
            None => Whereabouts::Here,
        };
        let begun = Post { server: self, headers: &head.headers, accepted, caller: &caller, body: &message }
            .begin(place);
        match (begun, &self.homes) {
            (Ok(Begun::Elsewhere), Some(homes)) => {
                let (method, headers, body) = (Method::POST, head.headers, message);
                self.hand_on(homes, Errand { method, headers, caller, body, lost: false }).await
            }
            (begun, _) => {
                // A call may take a long time, and its text is not needed any more.
                drop(message);
                self.begun(begun, accepted).await
            }
        }
    }

    /// Answers a POST of a session that is here; `lost`: another replica had it and died.
    pub(super) async fn post_here(
        &self,
        headers: &HeaderMap,
        caller: Caller,
        body: Bytes,
        lost: bool,
    ) -> HttpAnswer {
        let place = if lost { Whereabouts::Died } else { Whereabouts::Here };
        let accepted = Accepted::read(headers);
        let begun = Post { server: self, headers, accepted, caller: &caller, body: &body }.begin(place);
        drop(body);
        self.begun(begun, accepted).await
    }

    async fn begun(&self, begun: Result<Begun<B::Legacy>, Denied>, accepted: Accepted) -> HttpAnswer {
        match begun {
            Err(denied) => denied.answer(),
            Ok(Begun::Done(answer)) => answer,
            Ok(Begun::Modern(reader, cancel)) => self.modern_answer(reader, cancel, accepted).await,
            Ok(Begun::Initialize(call)) => self.initialized(call).await,
            Ok(Begun::Legacy(call)) => self.legacy_answer(call).await.0,
            Ok(Begun::Elsewhere) => store_away(),
        }
    }

    async fn modern_answer(
        &self,
        mut reader: Reader,
        cancel: Box<dyn Send>,
        accepted: Accepted,
    ) -> HttpAnswer {
        match reader.kind().await {
            AnswerForm::Json(LoneAnswer { body, error }) => match modern_status(error) {
                StatusCode::OK if !accepted.json => {
                    events(Payload::Whole([b"data: ", &*body, b"\n\n"].concat().into()))
                }
                StatusCode::SERVICE_UNAVAILABLE => try_again(json(StatusCode::SERVICE_UNAVAILABLE, body)),
                status => json(status, body),
            },
            AnswerForm::Events => event_stream(reader, None, self.settings.keep_alive, cancel),
            AnswerForm::Nothing => empty(StatusCode::ACCEPTED),
        }
    }

    /// Answers the first request of a session. The session ends if the client never learns of it.
    async fn initialized(&self, call: LegacyCall<B::Legacy>) -> HttpAnswer {
        let session = call.session.clone();
        let mut opening = Opening { server: self, session: &session, opened: false };
        let (mut answer, succeeded) = self.legacy_answer(call).await;
        if succeeded {
            if let Some(home) = &session.home
                && home.enter().await != Ok(true)
            {
                return store_away();
            }
            opening.opened = true;
            let id = HeaderValue::from_str(&session.id).expect("hexadecimal digits");
            answer.headers_mut().insert(SESSION_ID, id);
        }
        answer
    }

    /// The answer to requests of a session, and whether it is more than nothing or a single error.
    async fn legacy_answer(&self, call: LegacyCall<B::Legacy>) -> (HttpAnswer, bool) {
        let LegacyCall { session, stream, mut reader } = call;
        let form = reader.kind().await;
        if let (Some(homes), Some(home)) = (&self.homes, &session.home) {
            // Only what changes the session waits for the store; a call does not.
            if stream.waits() {
                home.recorded().await;
            }
            if !homes.replicas.is_settled() {
                homes.replicas.settled().await;
                if home.is_left() && !self.is_draining() {
                    return (store_away(), false);
                }
            }
        }
        match form {
            AnswerForm::Json(LoneAnswer { body, error }) => (json(StatusCode::OK, body), error.is_none()),
            AnswerForm::Events => {
                session.keep(&stream);
                let held = Box::new(session.busy());
                (event_stream(reader, None, self.settings.keep_alive, held), true)
            }
            AnswerForm::Nothing => (empty(StatusCode::ACCEPTED), false),
        }
    }
}

/// Whether a media type that somebody accepts is OpenMetrics of the version that we write, or of any.
fn names_open_metrics(accepted: &str) -> bool {
    let mut parts = accepted.split(';').map(str::trim);
    let is_type = parts.next() == Some("application/openmetrics-text");
    is_type && parts.all(|part| part.strip_prefix("version=").is_none_or(|version| version == "1.0.0"))
}

/// Ends a session that its client has not learnt of.
struct Opening<'a, B: Backend> {
    server: &'a HttpServer<B>,
    session: &'a Arc<HttpSession<B::Legacy>>,
    opened: bool,
}

impl<B: Backend> Drop for Opening<'_, B> {
    fn drop(&mut self) {
        if !self.opened && self.server.sessions.remove(self.session) {
            self.server.end_later(self.session);
        }
    }
}

/// The decoded text of a single path segment, which may end with a `/`.
fn segment(path: &str) -> Option<Cow<'_, str>> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.contains('/') { None } else { decode_strictly(path).filter(|name| !name.is_empty()) }
}
