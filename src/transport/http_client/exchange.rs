//! One message and its answer: a POST, answered by a body or by a stream that may be resumed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming as HttpBody;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::body::{collect, is_event_stream, too_long};
use super::connect::{Failure, Http, peer};
use super::outgoing::{Outgoing, OutgoingKind};
use super::session::{Sessions, UpstreamSession};
use super::sort::{Sorted, Stream, error_code, sort};
use super::{Incoming, Patience, Receive, TaskOutcome};
use crate::json::Scanner;
use crate::protocol::cut_off::id_of_response;
use crate::protocol::message::{Id, code, error_object, is_modern_code, write_raw_error};
use crate::transport::oauth::{Authorizer, Unauthorized};
use crate::transport::sse::Parser;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The number of bytes of an error page in which a JSON-RPC error is looked for.
const MOST_ERROR: usize = 64 * 1024;
/// The number of consecutive failures after which a broken stream is given up.
const MOST_FAILURES: u32 = 5;
/// The number of tokens that are tried for one request.
const MOST_TOKENS: u32 = 3;

/// What the tasks of one client share.
pub(super) struct Shared<R> {
    http: Http,
    authorizer: Option<Arc<Authorizer>>,
    pub(super) url: Uri,
    limit: Arc<AtomicUsize>,
    patience: Patience,
    pub(super) receive: R,
    pub(super) sessions: Sessions,
}

/// The answer to a request, and the rest of the stream that it came on.
pub(super) struct ReadAnswer {
    pub(super) message: Bytes,
    pub(super) rest: Option<HttpBody>,
}

impl<R: Receive> Shared<R> {
    pub(super) fn new(
        http: Http,
        authorizer: Option<Arc<Authorizer>>,
        url: Uri,
        limit: Arc<AtomicUsize>,
        patience: Patience,
        receive: R,
    ) -> Self {
        Self { http, authorizer, url, limit, patience, receive, sessions: Sessions::default() }
    }

    fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// Sends a request and hands over its answer, or an error in its place.
    pub(super) async fn call(&self, id: u64, request: Outgoing) -> TaskOutcome {
        if request.is_initialize() && !self.is_old() {
            return self.initialize(id, request).await;
        }
        if !request.modern {
            self.sessions.greeted().await;
        }
        let mut again = false;
        loop {
            let session = if request.modern { None } else { self.sessions.current() };
            let sent = tokio::select! {
                sent = self.post(&request, session.as_deref()) => sent,
                () = self.sessions.lost(session.as_deref(), self.patience.lost) => {
                    return self.failed(id, &request, Failure::new("the server lost the session while the call was under way"));
                }
            };
            let response = match sent {
                Ok(response) => response,
                Err(failure) => return self.failed(id, &request, failure),
            };
            if self.is_old() {
                return match response.status().is_success() {
                    true => TaskOutcome::Done, // The answer arrives on the transport's one stream.
                    false => self.failed(id, &request, Failure::status(response.status())),
                };
            }
            let status = response.status();
            let answer = self.answer(id, session.as_deref(), response).await;
            if let Some(session) = &session
                && session.was_lost(status, answer.as_ref().ok().map(|answer| &answer.message[..]))
                && !std::mem::replace(&mut again, true)
            {
                // This answer proves that the call was not executed.
                match self.renew(session).await {
                    Ok(()) => continue,
                    Err(failure) => {
                        let message =
                            format!("the server lost the session and opened no new one: {}", failure.message);
                        let failure = Failure { message, ..failure };
                        self.hand_error(id, code::UPSTREAM_LOST, &failure);
                        return TaskOutcome::Fatal(failure);
                    }
                }
            }
            return match answer {
                Ok(answer) => self.answered(id, answer).await,
                Err(failure) => self.failed(id, &request, failure),
            };
        }
    }

    /// Sends the first message of a legacy session. A server that does not know Streamable HTTP may speak
    /// HTTP+SSE.
    async fn initialize(&self, id: u64, request: Outgoing) -> TaskOutcome {
        let response = match self.post(&request, None).await {
            Ok(response) => response,
            Err(failure) => return self.failed(id, &request, failure),
        };
        let (status, headers) = (response.status(), response.headers().clone());
        let answer = self.answer(id, None, response).await;
        let modern_error =
            answer.as_ref().is_ok_and(|answer| error_code(&answer.message).is_some_and(is_modern_code));
        if matches!(status.as_u16(), 400 | 404 | 405)
            && !modern_error
            && let Ok(stream) = self.open_old().await
        {
            return TaskOutcome::Old(Box::new(stream), request);
        }
        match answer {
            Ok(answer) => {
                self.sessions.begin(request.body, &headers, &answer.message);
                self.answered(id, answer).await
            }
            Err(failure) => self.failed(id, &request, failure),
        }
    }

    /// Sends notifications one after the other, and aborts the calls that they cancelled.
    pub(super) async fn notify_in_order(&self, mut queue: mpsc::Receiver<(Outgoing, Option<AbortHandle>)>) {
        while let Some((message, cancelled)) = queue.recv().await {
            let accepted = timeout(self.patience.answer, self.tell(&message)).await.unwrap_or(false);
            if message.method == "notifications/initialized" {
                self.sessions.greeting_done(accepted && !self.is_old());
            }
            if let Some(call) = cancelled {
                call.abort();
            }
        }
    }

    /// Sends a message that has no answer. Returns whether the server accepted it.
    pub(super) async fn tell(&self, message: &Outgoing) -> bool {
        let session = self.sessions.current();
        let refused = match self.post(message, session.as_deref()).await {
            Ok(response) if response.status().is_success() => return true,
            Ok(response) => Failure::status(response.status()),
            Err(failure) => failure,
        };
        let what = if message.kind == OutgoingKind::Response { "an answer" } else { &message.method };
        tracing::debug!("{what} was not accepted: {}", refused.message);
        false
    }

    /// Posts a message once.
    pub(super) async fn post(
        &self,
        message: &Outgoing,
        session: Option<&UpstreamSession>,
    ) -> Result<Response<HttpBody>, Failure> {
        let mut headers = message.headers.clone();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, BOTH);
        if let Some(session) = session
            && !message.modern
        {
            session.write_headers(&mut headers);
        }
        let target = self.sessions.old_endpoint();
        let target = target.as_ref().unwrap_or(&self.url);
        self.send(Method::POST, target, headers, &message.body).await
    }

    /// Sends one request with the current token. A request that was refused for lack of a better token was
    /// not executed, so it is sent again once there is one.
    async fn send(
        &self,
        method: Method,
        target: &Uri,
        mut headers: HeaderMap,
        body: &Bytes,
    ) -> Result<Response<HttpBody>, Failure> {
        let Some(authorizer) = &self.authorizer else {
            return self.http.send(method, target, &headers, body.clone()).await;
        };
        let mut tokens = 0;
        loop {
            let bearer = authorizer.bearer().await;
            if let Some(bearer) = &bearer {
                headers.insert(AUTHORIZATION, bearer.clone());
            }
            let response = self.http.send(method.clone(), target, &headers, body.clone()).await?;
            tokens += 1;
            let status = response.status();
            if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) || tokens == MOST_TOKENS {
                return Ok(response);
            }
            let refused = authorizer.refused(bearer.as_ref(), status, response.headers(), peer(&response));
            match refused.await {
                Ok(()) => {}
                Err(Unauthorized::Final) => return Ok(response),
                Err(Unauthorized::NoToken(reason)) => return Err(Failure::unauthorized(status, reason)),
            }
        }
    }

    /// Opens an event stream by GET, from its beginning or after the event with this id.
    pub(super) async fn get_stream(
        &self,
        session: Option<&UpstreamSession>,
        last_id: Option<&str>,
    ) -> Result<HttpBody, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, EVENT_STREAM);
        if let Some(session) = session {
            session.write_headers(&mut headers);
        }
        if let Some(id) = last_id.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        let response = self.send(Method::GET, &self.url, headers, &Bytes::new()).await?;
        match response.status() {
            StatusCode::OK if is_event_stream(&response) => Ok(response.into_body()),
            status => Err(Failure::status(status)),
        }
    }

    /// Ends the session on the server, if there is one.
    pub(super) async fn end_session(&self) {
        if let Some(session) = self.sessions.current().filter(|session| session.has_id()) {
            let mut headers = HeaderMap::new();
            session.write_headers(&mut headers);
            if let Some(authorizer) = &self.authorizer {
                headers.extend(authorizer.bearer().await.map(|bearer| (AUTHORIZATION, bearer)));
            }
            let _ = self.http.send(Method::DELETE, &self.url, &headers, Bytes::new()).await;
        }
    }

    /// Reads the answer to a request, and hands over all other messages before it.
    pub(super) async fn answer(
        &self,
        id: u64,
        session: Option<&UpstreamSession>,
        response: Response<HttpBody>,
    ) -> Result<ReadAnswer, Failure> {
        let status = response.status();
        if status.is_success() && is_event_stream(&response) {
            return self.stream(id, session, response.into_body()).await;
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.map_or("nothing", |kind| kind.split(';').next().unwrap_or_default()).to_owned();
        let body = response.into_body();
        let text = match status.is_success() {
            true => collect(body, self.limit()).await?,
            false => {
                let body = timeout(self.patience.answer, collect(body, self.limit().min(MOST_ERROR)));
                body.await.ok().and_then(Result::ok).unwrap_or_default()
            }
        };
        let mut found = None;
        sort(&mut Scanner::default(), Stream::Of(id), &text, &mut |sorted| match sorted {
            // The status says more than an answer that cannot be read.
            Sorted::Malformed(_) if !status.is_success() => {}
            // The first answer counts, as everywhere else.
            Sorted::Answer(message) | Sorted::Malformed(message) => {
                found.get_or_insert_with(|| text.slice_ref(message));
            }
            Sorted::Other(message) => self.hand(Some(id), message),
            Sorted::Noise => {}
        });
        match found {
            Some(message) => Ok(ReadAnswer { message, rest: None }),
            None if status.is_success() => {
                let message = format!(
                    "the server answered HTTP {} with {kind} instead of a JSON-RPC message; is the URL right?",
                    status.as_u16()
                );
                Err(Failure { message, ..Failure::status(status) })
            }
            None => Err(Failure::status(status)),
        }
    }

    /// Reads a request's stream up to its answer, over as many connections as that takes.
    async fn stream(
        &self,
        id: u64,
        session: Option<&UpstreamSession>,
        body: HttpBody,
    ) -> Result<ReadAnswer, Failure> {
        let mut parser = Parser::new(self.limit());
        let mut body = body;
        loop {
            if let Some(message) = self.read_stream(&mut parser, &mut body, Stream::Of(id)).await? {
                return Ok(ReadAnswer { message, rest: Some(body) });
            }
            let resumable = session.is_some() && parser.last_id().is_some();
            if !resumable {
                return Err(Failure::broken("the server ended the stream without an answer"));
            }
            body = self.resume(session, &mut parser).await?;
        }
    }

    async fn resume(
        &self,
        session: Option<&UpstreamSession>,
        parser: &mut Parser,
    ) -> Result<HttpBody, Failure> {
        parser.reconnect();
        let mut wait =
            parser.retry().map_or(self.patience.retry, |retry| retry.max(self.patience.retry / 10));
        let mut failures = 0;
        loop {
            sleep(wait).await;
            match self.get_stream(session, parser.last_id()).await {
                Ok(body) => return Ok(body),
                Err(failure) => {
                    failures += 1;
                    let refused = failure.status.is_some_and(|status| status < 500 && status != 429);
                    if refused || failures == MOST_FAILURES {
                        let message = format!("the stream broke and cannot be resumed: {}", failure.message);
                        return Err(Failure { message, ..failure });
                    }
                }
            }
            wait = wait.saturating_mul(2);
        }
    }

    /// Reads a stream until it ends, or until it answers the request that it belongs to (`Some`).
    pub(super) async fn read_stream(
        &self,
        parser: &mut Parser,
        body: &mut HttpBody,
        came: Stream,
    ) -> Result<Option<Bytes>, Failure> {
        let on = match came {
            Stream::Of(id) => Some(id),
            Stream::Unrelated | Stream::Only => None,
        };
        let mut scanner = Scanner::default();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(chunk) = frame.into_data() else { continue };
            let mut outcome = Ok(None);
            parser.feed(&chunk, |event| {
                if !matches!(outcome, Ok(None))
                    || event.data.is_empty()
                    || !matches!(event.name, "" | "message")
                {
                    return;
                }
                if let Some(length) = event.too_long {
                    let failure = too_long(length, self.limit());
                    match (id_of_response(&mut scanner, event.data, &[]), on) {
                        // An answer whose id is not visible can only belong to the stream's own request.
                        (Some(None), Some(_)) => outcome = Err(failure),
                        (Some(Some(id)), on) if on == Some(id) => outcome = Err(failure),
                        (Some(Some(id)), _) => self.hand_error(id, code::UPSTREAM_LOST, &failure),
                        _ => tracing::warn!("a message of the server was dropped: {}", failure.message),
                    }
                    return;
                }
                sort(&mut scanner, came, event.data, &mut |sorted| match sorted {
                    Sorted::Answer(message) | Sorted::Malformed(message) if matches!(outcome, Ok(None)) => {
                        outcome = Ok(Some(Bytes::copy_from_slice(message)));
                    }
                    Sorted::Answer(_) | Sorted::Malformed(_) => {}
                    Sorted::Other(message) => self.hand(on, message),
                    Sorted::Noise => {
                        tracing::debug!("an event that is not a message, or an answer to no request")
                    }
                });
            });
            if !matches!(outcome, Ok(None)) {
                return outcome;
            }
            self.receive.room().await;
        }
        Ok(None)
    }

    /// Hands the answer over and reads the stream to its end, so that its connection can be reused.
    async fn answered(&self, id: u64, answer: ReadAnswer) -> TaskOutcome {
        self.hand(Some(id), &answer.message);
        if let Some(mut rest) = answer.rest {
            let _ =
                timeout(self.patience.retry, async { while let Some(Ok(_)) = rest.frame().await {} }).await;
        }
        TaskOutcome::Done
    }

    fn failed(&self, id: u64, request: &Outgoing, failure: Failure) -> TaskOutcome {
        self.hand_error(id, code::UPSTREAM_LOST, &failure);
        if failure.broken && request.is_call() {
            self.receive.missed();
        }
        let handshake = matches!(request.method.as_str(), "initialize" | "server/discover");
        if failure.unreachable {
            TaskOutcome::Down(failure)
        } else if handshake && (failure.status == Some(401) || failure.unauthorized) {
            TaskOutcome::Fatal(failure)
        } else {
            TaskOutcome::Done
        }
    }

    /// Answers one of our requests with an error in the server's place.
    pub(super) fn hand_error(&self, id: u64, code: i64, failure: &Failure) {
        let data = failure.status.map(|status| format!("{{\"httpStatus\":{status}}}"));
        let error = error_object(code, &failure.message, data.as_deref());
        let mut out = Vec::new();
        write_raw_error(&mut out, Some(&Id::Number(id)), |out| out.extend_from_slice(error.as_bytes()));
        self.hand_over(Incoming { message: &out, on: Some(id), lost: Some(failure) });
    }

    /// Hands one message over.
    pub(super) fn hand(&self, on: Option<u64>, message: &[u8]) {
        self.hand_over(Incoming { message, on, lost: None });
    }

    /// Hands a message over. A panic there costs that message, not the task of its call.
    fn hand_over(&self, incoming: Incoming<'_>) {
        if catch_unwind(AssertUnwindSafe(|| self.receive.take(incoming))).is_err() {
            tracing::error!("a message of a server caused a panic; please report it");
        }
    }

    /// A parser with this client's limit.
    pub(super) fn parser(&self) -> Parser {
        Parser::new(self.limit())
    }
}
