//! An HTTP upstream as a transport of JSON-RPC messages: Streamable HTTP of both eras, and the old HTTP+SSE.
//!
//! The core's carrier runs an [`HttpClient`]. Messages go in through a channel and come out through
//! [`Receive`]. Handshakes are the caller's business; this layer only remembers them, reopens a lost legacy
//! session with them, and tells the caller when it did.
//!
//! Invariant: every request of ours is answered, by the server or by an error of our own if it could not be
//! delivered or the answer is unusable. The receiver makes sure that only the first answer to a request
//! counts.
//!
//! Invariant: a message is never sent twice, unless the server's answer proves that it was not executed.

mod authorities;
pub(super) mod body;
pub(super) mod connect;
mod exchange;
mod old;
mod outgoing;
pub mod post;
pub(super) mod reach;
mod session;
mod sort;
#[cfg(test)]
mod tests;
pub(super) mod uri;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tracing::Instrument;

pub use self::authorities::{AUTHORITY_VARIABLES, Authorities};
pub use self::connect::Failure;
use self::connect::Http;
use self::exchange::Shared;
use self::old::OldStream;
use self::outgoing::{Outgoing, OutgoingKind};
use self::reach::Gate;
use crate::protocol::message::code;
use crate::protocol::tool_headers::{ToolHeaders, base64};
use crate::text::percent;
use crate::transport::oauth::Authorizer;

/// The number of notifications that may wait for their turn. Any more are dropped and logged.
const MOST_NOTIFICATIONS: usize = 1024;

/// The address of an upstream and its headers. It holds secrets.
pub struct Endpoint {
    /// An `http` or `https` URL. Credentials in it are sent as `Authorization`.
    pub url: String,
    /// The headers of every request.
    pub headers: Vec<(String, String)>,
    /// Whether the deprecated HTTP+SSE transport is configured.
    pub sse: bool,
}

/// One message from the server.
pub struct Incoming<'a> {
    /// One JSON-RPC message, possibly with line breaks between its tokens.
    pub message: &'a [u8],
    /// Our request on whose answer or stream the message came; `None` if it came on the stream of no request.
    pub on: Option<u64>,
    /// The reason why the server has not answered that request, if the message is an error of ours in its
    /// place.
    pub lost: Option<&'a Failure>,
}

/// Receives what the server sends. A closure suffices where nothing holds it up.
pub trait Receive: Send + Sync + 'static {
    /// Takes one message. It must be brief.
    fn take(&self, incoming: Incoming<'_>);

    /// A legacy session was lost and opened again, perhaps with another server. `hello` is the answer to the
    /// new `initialize`. An error ends the connection.
    fn renewed(&self, _hello: &str) -> Result<(), String> {
        Ok(())
    }

    /// A connection broke, which may be the only sign that another server has taken over. It was the
    /// connection of a call, or the stream for messages that belong to no request, which has been opened
    /// again.
    fn missed(&self) {}

    /// Waits until more should be read.
    fn room(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

impl<F: Fn(Incoming<'_>) + Send + Sync + 'static> Receive for F {
    fn take(&self, incoming: Incoming<'_>) {
        self(incoming);
    }
}

/// How long the transport waits in each case.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// The pause before a broken stream is opened again, unless the server names one. Each failure doubles
    /// it.
    retry: Duration,
    /// The wait for the answer to a call whose session has been lost.
    lost: Duration,
    /// The wait for each of the two last steps: sending queued notifications, and ending the session.
    farewell: Duration,
    /// The wait for a new session, for the `endpoint` event of the old transport, and for the rest of an
    /// answer of which enough is known.
    answer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            retry: Duration::from_secs(1),
            lost: Duration::from_secs(2),
            farewell: Duration::from_secs(1),
            answer: Duration::from_secs(10),
        }
    }
}

/// A client of one HTTP upstream. It sets up and contacts nothing before [`HttpClient::run`].
pub struct HttpClient {
    url: Uri,
    headers: HeaderMap,
    sse: bool,
    authorities: Authorities,
    limit: Arc<AtomicUsize>,
    tool_headers: Arc<ToolHeaders>,
    authorizer: Option<Arc<Authorizer>>,
    patience: Patience,
}

impl HttpClient {
    /// Checks the endpoint. The error quotes neither header values nor credentials.
    pub fn new(endpoint: Endpoint, max_message_bytes: usize) -> Result<Self, String> {
        let (url, credentials) = uri::split_credentials(&endpoint.url)?;
        let mut headers = HeaderMap::new();
        if let Some(credentials) = credentials {
            let value = format!("Basic {}", base64(&percent::decode(&credentials)));
            headers.insert(AUTHORIZATION, value.parse().expect("Base64 is visible ASCII"));
        }
        let mut own = HeaderMap::new();
        for (name, value) in endpoint.headers {
            let header = HeaderName::try_from(&name).map_err(|_| format!("{name:?} is not a header name"))?;
            let value = HeaderValue::try_from(value)
                .map_err(|_| format!("the value of the header {name} cannot be sent"))?;
            if [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(&header) {
                tracing::warn!("the header {name} belongs to the connection and is left out");
                continue;
            }
            own.append(header, value);
        }
        headers.extend(own);
        for value in headers.values_mut() {
            value.set_sensitive(true);
        }
        Ok(Self {
            url,
            headers,
            sse: endpoint.sse,
            authorities: Authorities::default(),
            limit: Arc::new(AtomicUsize::new(max_message_bytes)),
            tool_headers: Arc::default(),
            authorizer: None,
            patience: Patience::default(),
        })
    }

    /// Takes the size limit of messages from a shared value, which may change while the client runs.
    pub fn limited_by(mut self, max_message_bytes: Arc<AtomicUsize>) -> Self {
        self.limit = max_message_bytes;
        self
    }

    /// Accepts certificates of these authorities.
    pub fn trusting(mut self, authorities: Authorities) -> Self {
        self.authorities = authorities;
        self
    }

    /// Adds tokens to the requests.
    pub fn authorized_by(mut self, authorizer: Option<Arc<Authorizer>>) -> Self {
        self.authorizer = authorizer;
        self
    }

    /// The tool parameters that modern calls mirror into headers. The caller fills them in when it lists the
    /// tools.
    pub fn tool_headers(&self) -> Arc<ToolHeaders> {
        self.tool_headers.clone()
    }

    /// Moves messages until `outgoing` closes and then ends the legacy session, or until the server is out of
    /// reach. The error gives a user the reason; requests that are still open then get no answer. Dropping
    /// the future ends everything at once.
    pub async fn run(self, outgoing: mpsc::Receiver<Vec<u8>>, incoming: impl Receive) -> Result<(), Failure> {
        let http =
            Http::new(&self.url, self.headers.clone(), Gate::configured(self.authorities.clone())).await;
        let http = http.map_err(Failure::new)?;
        self.run_with(http, outgoing, incoming).await
    }

    async fn run_with(
        self,
        http: Http,
        mut outgoing: mpsc::Receiver<Vec<u8>>,
        incoming: impl Receive,
    ) -> Result<(), Failure> {
        let shared =
            Arc::new(Shared::new(http, self.authorizer, self.url, self.limit, self.patience, incoming));
        let mut tasks = Tasks::new(shared.clone());
        if self.sse {
            let mut early = Vec::new();
            let mut opening = std::pin::pin!(shared.open_old());
            let stream = loop {
                tokio::select! {
                    stream = &mut opening => break stream?,
                    message = outgoing.recv(), if early.len() < MOST_NOTIFICATIONS => match message {
                        None => return Ok(()),
                        Some(message) => early.extend(Outgoing::read(message, &self.tool_headers)),
                    },
                }
            };
            tasks.read_old(stream);
            early.into_iter().for_each(|message| tasks.send(message));
        }
        loop {
            tokio::select! {
                message = outgoing.recv() => match message {
                    None => break,
                    Some(message) => match Outgoing::read(message, &self.tool_headers) {
                        Some(message) => tasks.send(message),
                        None => tracing::error!("a message of our own cannot be sent over HTTP; please report it"),
                    },
                },
                Some(ended) = tasks.set.join_next() => match ended {
                    Ok((id, outcome)) => if let Some(reason) = tasks.ended(id, outcome) {
                        return Err(reason);
                    },
                    // It is not known which call the panic cost, so no call may go on waiting.
                    Err(error) if error.is_panic() => return Err(Failure::new("an internal error of the gateway; please report it")),
                    Err(_) => {}
                },
            }
        }
        tasks.finish().await;
        Ok(())
    }
}

/// The end of a task, as far as the other tasks are concerned.
enum TaskOutcome {
    Done,
    /// No more connections can be made.
    Down(Failure),
    /// The client cannot go on.
    Fatal(Failure),
    /// The server speaks the old transport, and the message must be sent there.
    Old(Box<OldStream>, Outgoing),
}

/// The tasks of one client, and the state of each.
struct Tasks<R> {
    shared: Arc<Shared<R>>,
    set: JoinSet<(Option<u64>, TaskOutcome)>,
    calls: HashMap<u64, RunningCall>,
    notifications: mpsc::Sender<(Outgoing, Option<AbortHandle>)>,
    listener: AbortHandle,
    /// The version of the last request if that was modern, because notifications do not name theirs.
    modern: Option<HeaderValue>,
    down: Option<Failure>,
}

struct RunningCall {
    abort: AbortHandle,
    modern: bool,
    /// Whether the call is a subscription, which does not end by itself.
    endless: bool,
}

impl<R: Receive> Tasks<R> {
    fn new(shared: Arc<Shared<R>>) -> Self {
        let mut set = JoinSet::new();
        let (notifications, queue) = mpsc::channel(MOST_NOTIFICATIONS);
        let listener = set.spawn({
            let shared = shared.clone();
            async move { (None, shared.listen().await) }.in_current_span()
        });
        set.spawn({
            let shared = shared.clone();
            async move {
                shared.notify_in_order(queue).await;
                (None, TaskOutcome::Done)
            }
            .in_current_span()
        });
        Self { shared, set, calls: HashMap::new(), notifications, listener, modern: None, down: None }
    }

    /// Starts to send one message.
    fn send(&mut self, mut message: Outgoing) {
        match message.kind {
            OutgoingKind::Request(id) if message.modern && self.shared.is_old() => {
                self.shared.hand_error(
                    id,
                    code::METHOD_NOT_FOUND,
                    &Failure::new("the HTTP+SSE transport has no modern era"),
                );
            }
            OutgoingKind::Request(id) => {
                self.modern = message.headers.get(outgoing::PROTOCOL_VERSION).cloned();
                let (modern, endless) = (message.modern, message.method == "subscriptions/listen");
                let shared = self.shared.clone();
                let call = async move { (Some(id), shared.call(id, message).await) };
                let abort = self.set.spawn(call.in_current_span());
                self.calls.insert(id, RunningCall { abort, modern, endless });
            }
            OutgoingKind::Response => {
                let shared = self.shared.clone();
                let tell = async move {
                    shared.tell(&message).await;
                    (None, TaskOutcome::Done)
                };
                self.set.spawn(tell.in_current_span());
            }
            OutgoingKind::Notification { cancels } => {
                let call = cancels.and_then(|id| self.calls.remove(&id));
                if let Some(call) = &call
                    && call.modern
                {
                    // Over HTTP, closing the stream cancels a modern call.
                    call.abort.abort();
                    return;
                }
                let greeting = message.method == "notifications/initialized";
                if greeting {
                    self.shared.greeting(&message);
                }
                if let (false, Some(version)) = (message.modern, &self.modern) {
                    message.headers.insert(outgoing::PROTOCOL_VERSION, version.clone());
                }
                if self.notifications.try_send((message, call.map(|call| call.abort))).is_err() {
                    tracing::warn!("the server takes no notifications; one was dropped");
                    if greeting {
                        self.shared.sessions.greeting_done(false);
                    }
                }
            }
        }
    }

    /// Records the end of a task. `Some` gives the reason why the whole client ends.
    fn ended(&mut self, id: Option<u64>, outcome: TaskOutcome) -> Option<Failure> {
        if let Some(id) = id {
            self.calls.remove(&id);
        }
        match outcome {
            TaskOutcome::Done => {}
            TaskOutcome::Down(reason) => self.down = Some(reason),
            TaskOutcome::Fatal(reason) => return Some(reason),
            TaskOutcome::Old(stream, message) => {
                self.read_old(*stream);
                self.send(message);
            }
        }
        // A draining server accepts no connections but still answers open calls.
        if self.calls.values().all(|call| call.endless) { self.down.take() } else { None }
    }

    fn read_old(&mut self, stream: OldStream) {
        self.listener.abort();
        let shared = self.shared.clone();
        let read = async move { (None, shared.read_old(stream).await) };
        self.listener = self.set.spawn(read.in_current_span());
    }

    /// Sends the queued notifications and answers, aborts everything else, and ends the session.
    async fn finish(mut self) {
        let patience = self.shared.patience().farewell;
        for call in self.calls.values() {
            call.abort.abort();
        }
        self.listener.abort();
        drop(self.notifications);
        let _ = timeout(patience, async { while self.set.join_next().await.is_some() {} }).await;
        let _ = timeout(patience, self.shared.end_session()).await;
    }
}
