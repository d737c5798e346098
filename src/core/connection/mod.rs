//! A live connection to an upstream. The lifecycle creates and stops it, calls leave through
//! [`Connection::peer`], and the carrier passes incoming messages to [`Connection::take`].
//!
//! Invariant: each part that changes has its own lock, private to its type; no lock is held while another is
//! taken.

mod changes;
mod intake;
mod noise;
mod profile;
mod questions;
mod subscription;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

pub(super) use self::changes::Changes;
use self::noise::Noise;
use self::profile::Profile;
pub(super) use self::questions::Asking;
use self::questions::Questions;
use self::subscription::Subscription;
use super::bridge::Call;
use super::engine::send_quietly;
use super::gate::CallGate;
use super::modern::ModernCall;
use super::observed::{self, OwnRequest};
use super::session::{ClientSession, Ticket};
use super::start_error::{Cause, StartError};
use super::upstream::Upstream;
use crate::config::{Redactor, Transport};
use crate::json::{Node, Scanner};
use crate::protocol::era::{LOG_LEVELS, Version, modern_meta};
use crate::transport::outbox::Outbox;
use crate::transport::peer::{CallError, Deadline, Lost, Peer};

/// The number of bytes that may wait for an upstream that does not read, before its calls are refused.
const MOST_UNREAD: usize = 64 * 1024 * 1024;

/// A live connection to an upstream.
pub struct Connection {
    /// The upstream at the other end.
    pub upstream: Arc<Upstream>,
    /// Our requests to the upstream.
    pub peer: Arc<Peer<Caller>>,
    pub(super) out: Arc<Outbox>,
    /// The upstream's description of itself.
    pub profile: Profile,
    pub(super) questions: Questions,
    pub(super) gate: Arc<CallGate>,
    pub(super) changes: Changes,
    pub(super) noise: Noise,
    subscription: Subscription,
    /// The log level that the upstream was told, as an index into the list of levels.
    level: AtomicU8,
    pub(super) redactor: Redactor,
    /// The capabilities that our own requests declare.
    capabilities: OnceLock<String>,
}

/// The client behind a request, and the token under which it wants progress.
#[derive(Default)]
pub struct Caller {
    /// The client; `None` for our own requests.
    pub session: Option<Arc<ClientSession>>,
    /// The client's request.
    pub key: Option<Ticket>,
    /// The metadata of a modern client's request; `None` for a legacy client.
    pub modern: Option<Arc<ModernCall>>,
    /// The state of a call that the upstream may interrupt.
    pub call: Option<Arc<Call>>,
    /// The client's own progress token, raw.
    pub progress: Option<Box<str>>,
}

impl Connection {
    pub(super) fn new(upstream: Arc<Upstream>, redactor: Redactor) -> Arc<Self> {
        let out = Outbox::new();
        Arc::new(Self {
            upstream,
            peer: Peer::new(out.clone()),
            out,
            profile: Profile::default(),
            questions: Questions::default(),
            gate: Arc::default(),
            changes: Changes::default(),
            noise: Noise::default(),
            subscription: Subscription::default(),
            level: AtomicU8::new(u8::MAX),
            redactor,
            capabilities: OnceLock::new(),
        })
    }

    /// Notes what the upstream is told that clients can do.
    pub(super) fn tell_capabilities(&self, capabilities: String) {
        let _ = self.capabilities.set(capabilities);
    }

    /// What the upstream is told that clients can do, a raw object.
    pub(super) fn capabilities(&self) -> &str {
        self.capabilities.get().map_or("{}", String::as_str)
    }

    /// Whether the upstream declared this capability.
    pub fn can(&self, capability: &str) -> bool {
        self.profile.can(capability)
    }

    /// The version that the upstream speaks.
    pub fn version(&self) -> Version {
        self.profile.version()
    }

    /// Whether the upstream's questions do not show the call that they belong to.
    pub(super) fn asks_at_large(&self) -> bool {
        matches!(self.upstream.spec().transport, Transport::Stdio(_)) && !self.version().is_modern()
    }

    /// The deadline of a call from this client.
    pub fn deadline(&self, session: &ClientSession) -> Option<Deadline> {
        let timeouts = self.upstream.spec().timeouts;
        let pause = (&self.questions.asked, session.workspace.client);
        Deadline::new(timeouts.call, timeouts.max_call, Some(pause))
    }

    /// The deadline of a request of our own.
    pub(super) fn own_deadline(&self) -> Option<Deadline> {
        let timeouts = self.upstream.spec().timeouts;
        Deadline::new(timeouts.call, timeouts.max_call, None)
    }

    /// Whether the upstream still reads what it is sent.
    pub fn takes_calls(&self) -> bool {
        self.out.held() < MOST_UNREAD
    }

    /// The number of requests so far, without our subscriptions.
    pub(super) fn requests(&self) -> u64 {
        self.peer.reserved() - self.subscription.begun()
    }

    /// Whether any request besides our subscriptions is open.
    pub(super) fn has_open_requests(&self) -> bool {
        self.subscription.with_ids(|ids| self.peer.any_open_besides(ids))
    }

    /// Fails the calls in flight, cancels the upstream's questions and closes its stdin.
    pub fn stop(&self, reason: &str) {
        self.peer.close(&Lost::new(reason));
        self.out.close();
        self.questions.cancel();
    }

    /// Answers one of the upstream's questions.
    pub(super) fn answer(&self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(write);
    }

    /// Asks the upstream for log messages of this level and above, if it sends any.
    pub(super) fn want_level(self: &Arc<Self>, level: usize) {
        let level = level as u8;
        // The level is never raised: we filter for clients that want fewer messages.
        if self.can("logging") && self.level.fetch_min(level, Ordering::Relaxed) > level {
            let params = format!("{{\"level\":\"{}\"}}", LOG_LEVELS[usize::from(level)]);
            send_quietly(self, "logging/setLevel", &params);
        }
    }

    /// Tells a new session of the upstream the log level of the previous one.
    pub(super) fn tell_level_again(self: &Arc<Self>) {
        let told = self.level.swap(u8::MAX, Ordering::Relaxed);
        if told != u8::MAX {
            self.want_level(usize::from(told));
        }
    }

    /// Notes that another server may have taken the upstream's place. Its lists are read again, and a modern
    /// upstream is asked again for its capabilities.
    pub(super) fn doubt(&self) {
        let hello = if self.version().is_modern() { Changes::HELLO } else { 0 };
        self.changes.note(Changes::LISTS | hello);
    }

    /// Sends a request of our own and returns its raw result.
    pub async fn ask(self: &Arc<Self>, method: &str, params: &str) -> Result<String, StartError> {
        self.ask_for(method, params, None, |result| result.raw().to_owned()).await
    }

    /// Logs that the upstream is sent a request.
    pub(super) fn log_request(&self, method: &str) {
        tracing::debug!("[{}] is sent {method}", self.upstream);
    }

    /// Sends a request of our own and returns what `read` makes of its result.
    pub(super) async fn ask_for<R: Send + 'static>(
        self: &Arc<Self>,
        method: &str,
        params: &str,
        deadline: Option<Deadline>,
        read: impl FnOnce(Node<'_>) -> R + Send + 'static,
    ) -> Result<R, StartError> {
        let modern = self.version().is_modern();
        let params = match params {
            params if !modern => params.to_owned(),
            "{}" => format!("{{\"_meta\":{{{}}}}}", modern_meta(self.capabilities())),
            params => format!("{{\"_meta\":{{{}}},{}", modern_meta(self.capabilities()), &params[1..]),
        };
        self.request(method, params, deadline, read).await.map_err(|error| match error {
            CallError::Lost(lost) => lost.into(),
            CallError::Refused(error) => refusal(method, &error),
        })
    }

    /// Sends a request of our own with these parameters, and returns what `read` makes of its result.
    pub(super) async fn request<R: Send + 'static>(
        self: &Arc<Self>,
        method: &str,
        mut params: String,
        deadline: Option<Deadline>,
        read: impl FnOnce(Node<'_>) -> R + Send + 'static,
    ) -> Result<R, CallError> {
        self.log_request(method);
        let id = self.peer.reserve();
        let request = OwnRequest::begin(self, method, &mut params);
        let answer = self.peer.call(id, method, &params, Caller::default(), deadline, read).await;
        request.end(id, answer.as_ref().err().map(observed::of_call_error));
        answer
    }
}

/// The error for a refused request of our own.
fn refusal(method: &str, error: &str) -> StartError {
    let mut scanner = Scanner::default();
    let root = scanner.scan_str(error).expect("an answer was validated when it was read").root();
    let message = root.get("message").and_then(Node::as_str).unwrap_or_else(|| error.into());
    let status = root.get("data").and_then(|data| data.get("httpStatus"));
    let status = status.and_then(|status| status.raw().parse().ok());
    let cause = status.map_or(Cause::Other, Cause::of_status);
    StartError::new(cause, format!("answered `{method}` with an error: {message}"))
}
