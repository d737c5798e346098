//! A legacy session: its id and version, how it is reopened, and the stream for messages that belong to no
//! request.
//!
//! ```text
//!             initialize answered          initialized accepted
//! (no session) ────────────────► current ──────────────────────► ready (listening, calls)
//!                                   ▲                              │ 404, or 400 that names the session
//!                                   └────────── renew ◄────────────┘
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connect::Failure;
use super::exchange::Shared;
use super::outgoing::{Outgoing, OutgoingKind, PROTOCOL_VERSION};
use super::sort::Stream;
use super::{Receive, TaskOutcome};
use crate::json::{Node, Scanner};
use crate::protocol::message::{Message, Outcome};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// The longest pause between two attempts to open the stream.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The number of consecutive failures to connect after which the server counts as gone.
const MOST_FAILURES: u32 = 3;

/// One legacy session.
#[derive(Debug)]
pub(super) struct UpstreamSession {
    /// The number of this session among the client's sessions.
    number: u64,
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

impl UpstreamSession {
    pub(super) fn has_id(&self) -> bool {
        self.id.is_some()
    }

    /// Whether this answer says that the server no longer knows the session: 404, or 400 with an error about
    /// the session, which many servers send that follow an SDK's example.
    pub(super) fn was_lost(&self, status: StatusCode, message: Option<&[u8]>) -> bool {
        let blamed = || message.is_some_and(blames_session);
        self.has_id() && (status == StatusCode::NOT_FOUND || status == StatusCode::BAD_REQUEST && blamed())
    }

    pub(super) fn write_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in [(SESSION_ID, &self.id), (PROTOCOL_VERSION, &self.version)] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
    }
}

/// The sessions of one client, one of which is current, and the address of the old transport.
pub(super) struct Sessions {
    state: Mutex<SessionState>,
    /// The session that is open and has been sent `initialized`.
    ready: watch::Sender<Option<Arc<UpstreamSession>>>,
    /// Whether `initialized` is being sent. No other message may overtake it.
    greeting: watch::Sender<bool>,
    renewing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct SessionState {
    current: Option<Arc<UpstreamSession>>,
    begun: u64,
    /// The messages that opened the session.
    initialize: Option<Bytes>,
    initialized: Option<Bytes>,
    old_endpoint: Option<Uri>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            ready: watch::Sender::new(None),
            greeting: watch::Sender::new(false),
            renewing: tokio::sync::Mutex::default(),
        }
    }
}

impl Sessions {
    pub(super) fn current(&self) -> Option<Arc<UpstreamSession>> {
        self.state.lock().current.clone()
    }

    /// The address for messages of the old transport, if the server speaks it.
    pub(super) fn old_endpoint(&self) -> Option<Uri> {
        self.state.lock().old_endpoint.clone()
    }

    pub(super) fn set_old_endpoint(&self, endpoint: Uri) {
        self.state.lock().old_endpoint = Some(endpoint);
    }

    /// Records the session that this answer to `initialize` opens. An error opens none.
    pub(super) fn begin(&self, initialize: Bytes, headers: &HeaderMap, answer: &[u8]) -> bool {
        let mut scanner = Scanner::default();
        let Ok(doc) = scanner.scan(answer) else { return false };
        let Ok(Message::Response { outcome: Outcome::Result(result), .. }) = Message::from_server(doc.root())
        else {
            return false;
        };
        let version = result.get("protocolVersion").and_then(Node::as_str);
        let version = version.and_then(|version| HeaderValue::from_str(&version).ok());
        let mut id = headers.get(SESSION_ID).cloned();
        if let Some(id) = &mut id {
            id.set_sensitive(true);
        }
        let mut state = self.state.lock();
        state.begun += 1;
        state.initialize = Some(initialize);
        state.current = Some(Arc::new(UpstreamSession { number: state.begun, id, version }));
        true
    }

    /// Records that `initialized` is being sent.
    fn greet(&self, message: &Outgoing) {
        self.state.lock().initialized = Some(message.body.clone());
        self.greeting.send_replace(true);
    }

    /// Records that `initialized` has arrived, or never will.
    pub(super) fn greeting_done(&self, accepted: bool) {
        if accepted {
            self.ready.send_replace(self.current());
        }
        self.greeting.send_replace(false);
    }

    /// Waits while `initialized` is being sent.
    pub(super) async fn greeted(&self) {
        let _ = self.greeting.subscribe().wait_for(|greeting| !greeting).await;
    }

    /// Waits until this session has a successor, and then for `patience`.
    pub(super) async fn lost(&self, session: Option<&UpstreamSession>, patience: Duration) {
        let Some(session) = session else { return std::future::pending().await };
        let newer = |ready: &Option<Arc<UpstreamSession>>| {
            ready.as_ref().is_some_and(|ready| ready.number > session.number)
        };
        if self.ready.subscribe().wait_for(newer).await.is_err() {
            return std::future::pending().await;
        }
        sleep(patience).await;
    }
}

impl<R: Receive> Shared<R> {
    /// Records that `initialized` is being sent; later messages wait.
    pub(super) fn greeting(&self, message: &Outgoing) {
        self.sessions.greet(message);
    }

    /// Opens a new session in place of a lost one, with the messages that opened the lost one. Concurrent
    /// callers share one attempt.
    pub(super) async fn renew(&self, lost: &UpstreamSession) -> Result<(), Failure> {
        let _one = self.sessions.renewing.lock().await;
        if self.sessions.current().is_some_and(|current| current.number != lost.number) {
            return Ok(());
        }
        tracing::info!("the server does not know our session any more; a new one is opened");
        let late = |_| Err(Failure::new("no answer to `initialize`"));
        timeout(self.patience().answer * 3, self.open_again()).await.unwrap_or_else(late)
    }

    async fn open_again(&self) -> Result<(), Failure> {
        let (initialize, initialized) = {
            let state = self.sessions.state.lock();
            (state.initialize.clone(), state.initialized.clone())
        };
        let message = |kind, body| Outgoing {
            kind,
            method: String::new(),
            headers: HeaderMap::new(),
            modern: false,
            body,
        };
        let initialize = initialize.ok_or_else(|| Failure::new("it was never initialized"))?;
        let id = id_of(&initialize).ok_or_else(|| Failure::new("it was never initialized"))?;
        let response = self.post(&message(OutgoingKind::Request(id), initialize.clone()), None).await?;
        let headers = response.headers().clone();
        let answer = self.answer(id, None, response).await?;
        if !self.sessions.begin(initialize, &headers, &answer.message) {
            return Err(Failure::new("`initialize` was answered with an error"));
        }
        if let Some(initialized) = initialized {
            let session = self.sessions.current();
            let kind = OutgoingKind::Notification { cancels: None };
            let response = self.post(&message(kind, initialized), session.as_deref()).await?;
            if !response.status().is_success() {
                return Err(Failure::status(response.status()));
            }
            self.sessions.greeting_done(true);
        }
        let mut scanner = Scanner::default();
        let hello = scanner.scan(&answer.message).ok().and_then(|doc| doc.root().get("result"));
        self.receive.renewed(hello.map_or("{}", Node::raw)).map_err(Failure::new)
    }

    /// Keeps open the stream for messages that belong to no request, session after session.
    pub(super) async fn listen(&self) -> TaskOutcome {
        let mut ready = self.sessions.ready.subscribe();
        loop {
            let session = match ready.wait_for(Option::is_some).await {
                Ok(session) => session.clone().expect("waited for"),
                Err(_) => return TaskOutcome::Done,
            };
            ready.mark_unchanged();
            tokio::select! {
                failure = self.listen_on(&session) => return TaskOutcome::Down(failure),
                _ = ready.changed() => {}
            }
        }
    }

    /// Keeps the stream of one session open. It returns, with the reason, only when the server is out of
    /// reach.
    async fn listen_on(&self, session: &UpstreamSession) -> Failure {
        let mut parser = self.parser();
        let first = self.patience().retry;
        let (mut pause, mut failures, mut worked) = (first, 0, false);
        loop {
            match self.get_stream(Some(session), parser.last_id()).await {
                Ok(mut body) => {
                    if std::mem::replace(&mut worked, true) {
                        self.receive.missed();
                    }
                    failures = 0;
                    let opened = Instant::now();
                    let _ = self.read_stream(&mut parser, &mut body, Stream::Unrelated).await;
                    if opened.elapsed() > pause {
                        pause = first;
                    }
                    parser.reconnect();
                }
                Err(failure) if failure.unreachable => {
                    failures += 1;
                    if failures == MOST_FAILURES {
                        return failure;
                    }
                }
                // A 400 or 404 for a session that has worked means that the server no longer knows it.
                Err(failure) if worked && matches!(failure.status, Some(400 | 404)) && session.has_id() => {
                    if let Err(failure) = self.renew(session).await {
                        return failure;
                    }
                }
                Err(failure) if worked && failure.status.is_none_or(|status| status >= 500) => {}
                // The server offers no such stream.
                Err(failure) => {
                    tracing::debug!("no stream for messages that belong to no request: {}", failure.message);
                    std::future::pending::<()>().await;
                }
            }
            sleep(match parser.retry() {
                Some(retry) if failures == 0 => retry.max(first / 10),
                Some(retry) => retry.max(pause),
                None => pause,
            })
            .await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn id_of(request: &[u8]) -> Option<u64> {
    let mut scanner = Scanner::default();
    scanner.scan(request).ok()?.root().get("id")?.raw().parse().ok()
}

fn blames_session(answer: &[u8]) -> bool {
    let mut scanner = Scanner::default();
    let Ok(doc) = scanner.scan(answer) else { return false };
    let message = doc.root().get("error").and_then(|error| error.get("message")).and_then(Node::as_str);
    message.is_some_and(|message| message.to_ascii_lowercase().contains("session"))
}
