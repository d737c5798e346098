//! An upstream behind a URL as a transport of JSON-RPC messages: Streamable HTTP of both eras, and the old HTTP+SSE.
//!
//! Messages go in through a channel and come out through [`Receive`]. Every request of ours is answered: by the
//! server, or by an error of our own where it could not be delivered or the answer is none; whoever takes the messages
//! sees to it that only the first answer to a request counts. What was
//! sent is never sent again, except where the server's answer proves that it was not executed. Handshakes are the
//! caller's; this layer remembers them, to open a lost legacy session again, and tells the caller when it did.

pub(super) mod body;
pub(super) mod connect;
mod exchange;
mod old;
mod outgoing;
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

/// Notifications that may wait for their turn; more are dropped, and logged.
const MOST_NOTIFICATIONS: usize = 1024;

/// Where an upstream is, and how it wants to be asked. Holds secrets.
pub struct Endpoint {
    /// `http` or `https`; may hold credentials, which are sent as `Authorization`.
    pub url: String,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
    /// The deprecated HTTP+SSE transport is asked for.
    pub sse: bool,
}

/// One message from the server.
pub struct Incoming<'a> {
    /// One JSON-RPC message; line breaks may stand between its tokens.
    pub message: &'a [u8],
    /// Our request on whose answer or stream it came; `None` if it came on no request's.
    pub on: Option<u64>,
    /// Why the server has not answered that request, where the message is an error of our own in its place.
    pub lost: Option<&'a str>,
}

/// Takes what the server sends. A closure will do where nothing holds it up.
pub trait Receive: Send + Sync + 'static {
    /// Takes one message; must be brief.
    fn take(&self, incoming: Incoming<'_>);

    /// A legacy session was lost and begun anew, perhaps with another server: `hello` is what that one answered to
    /// `initialize`. An error ends the connection.
    fn renewed(&self, _hello: &str) -> Result<(), String> {
        Ok(())
    }

    /// A connection broke, which may be all that shows that another server is there by now: that of a call, or the
    /// stream for what belongs to no request, which has been opened again.
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

/// How long the transport waits for what.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Before a broken stream is opened again, where the server does not say; doubled by every failure.
    retry: Duration,
    /// For the answer to a call of a session that was lost meanwhile.
    lost: Duration,
    /// For each of the two last things: notifications that still wait, and the end of the session.
    farewell: Duration,
    /// For a new session, the `endpoint` of the old transport, and the rest of an answer of which enough is known.
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

/// A client of one HTTP upstream. Nothing is set up or contacted before [`HttpClient::run`].
pub struct HttpClient {
    url: Uri,
    headers: HeaderMap,
    sse: bool,
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
            let header = HeaderName::try_from(&name).map_err(|_| format!("{name:?} is no header name"))?;
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
            limit: Arc::new(AtomicUsize::new(max_message_bytes)),
            tool_headers: Arc::default(),
            authorizer: None,
            patience: Patience::default(),
        })
    }

    /// Lets somebody else decide, while it runs, how large a message may be.
    pub fn limited_by(mut self, max_message_bytes: Arc<AtomicUsize>) -> Self {
        self.limit = max_message_bytes;
        self
    }

    /// Has requests carry tokens.
    pub fn authorized_by(mut self, authorizer: Option<Arc<Authorizer>>) -> Self {
        self.authorizer = authorizer;
        self
    }

    /// The parameters of tools that modern calls mirror into headers; to be filled when the tools are listed.
    pub fn tool_headers(&self) -> Arc<ToolHeaders> {
        self.tool_headers.clone()
    }

    /// Moves messages until `outgoing` closes, then ends the legacy session, or until the server is out of reach.
    /// The error says why, for a user; requests that it leaves unanswered will have no answer. Dropping the future
    /// ends everything at once.
    pub async fn run(self, outgoing: mpsc::Receiver<Vec<u8>>, incoming: impl Receive) -> Result<(), Failure> {
        let http = Http::new(&self.url, self.headers.clone(), Gate::configured()).await;
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
                    // Which call it cost is not known, so none may go on waiting.
                    Err(error) if error.is_panic() => return Err(Failure::new("an internal error of the gateway; please report it")),
                    Err(_) => {}
                },
            }
        }
        tasks.finish().await;
        Ok(())
    }
}

/// How a task ended, as far as the others are concerned.
enum TaskOutcome {
    Done,
    /// No connection can be made any more.
    Down(Failure),
    /// Nothing further makes sense.
    Fatal(Failure),
    /// The server speaks the old transport: the message is to be sent there.
    Old(Box<OldStream>, Outgoing),
}

/// The tasks of one client and what is known about each.
struct Tasks<R> {
    shared: Arc<Shared<R>>,
    set: JoinSet<(Option<u64>, TaskOutcome)>,
    calls: HashMap<u64, RunningCall>,
    notifications: mpsc::Sender<(Outgoing, Option<AbortHandle>)>,
    listener: AbortHandle,
    /// The version of the last request, if it was a modern one: notifications do not say theirs.
    modern: Option<HeaderValue>,
    down: Option<Failure>,
}

struct RunningCall {
    abort: AbortHandle,
    modern: bool,
    /// A subscription, which has no end of its own.
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
                    // Over HTTP the end of the stream is the message.
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

    /// Takes note of a task's end. `Some`: all is over, and why.
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
        // A server that drains takes no connections, but still answers.
        if self.calls.values().all(|call| call.endless) { self.down.take() } else { None }
    }

    fn read_old(&mut self, stream: OldStream) {
        self.listener.abort();
        let shared = self.shared.clone();
        let read = async move { (None, shared.read_old(stream).await) };
        self.listener = self.set.spawn(read.in_current_span());
    }

    /// Lets notifications and answers leave, drops everything else, and ends the session.
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
