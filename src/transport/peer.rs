//! Our requests over one connection, until each is answered exactly once.
//!
//! A request is opened before it is sent: [`Peer::reserve`] gives its id, [`Peer::open`] makes it known here,
//! the caller records it wherever it must be found, and only then [`Opened::send`] writes it.
//!
//! ```text
//! reserve ──▶ open ──▶ send ──▶ resolve (answer) | fail, cancel, close (loss) | forget (no answer)
//! ```
//!
//! Invariant: whoever can learn of a request, by its answer or by its cancellation, finds it. Nothing is
//! written of a request that was cancelled between opening and sending, on however many threads these steps
//! run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use crate::hash::HashMap;
use crate::json::{Node, write_string};
use crate::protocol::message::{Outcome, code, write_notification, write_request};
use crate::transport::outbox::Out;

/// How a request of ours ended.
pub enum Answer<'a> {
    /// The result.
    Result(Node<'a>),
    /// The error object.
    Error(Node<'a>),
    /// No answer will come, for this reason.
    Lost(&'a Lost),
}

/// The reason why no answer will come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// A JSON-RPC error code.
    pub code: i64,
    /// The reason for a person.
    pub message: Arc<str>,
    /// Whether a person has to log in to the server first.
    pub needs_login: bool,
    /// What kind of loss it is.
    pub loss: Loss,
}

/// The kinds of losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The connection ended, or a request was given up on it.
    Connection,
    /// The deadline of the request has passed.
    Timeout,
    /// The other side was never there, or takes no requests.
    Unavailable,
    /// An answer came that cannot be read.
    Malformed,
}

impl Lost {
    /// A loss with a reason.
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self {
            code: code::UPSTREAM_LOST,
            message: message.into(),
            needs_login: false,
            loss: Loss::Connection,
        }
    }

    /// The loss of a request to somebody who is not there.
    pub fn unavailable(message: impl Into<Arc<str>>) -> Self {
        Self { loss: Loss::Unavailable, ..Self::new(message) }
    }

    /// The loss of an answer that came but cannot be read; `what` is wrong with it.
    pub fn malformed(what: &str) -> Self {
        let message = format!("the server's answer is malformed: {what}").into();
        Self { code: code::INTERNAL, message, needs_login: false, loss: Loss::Malformed }
    }

    /// Whether an answer came that cannot be read.
    pub fn is_malformed(&self) -> bool {
        self.loss == Loss::Malformed
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

/// Handles the answer. It runs on the task that reads the connection, so it must be brief.
pub enum OnAnswer {
    /// Runs this.
    Run(Box<dyn FnOnce(Answer<'_>) + Send>),
    /// Tells this, which others hold as well.
    Tell(Arc<dyn Awaits>),
}

/// Something that awaits answers.
pub trait Awaits: Send + Sync {
    /// Takes an answer.
    fn answered(self: Arc<Self>, answer: Answer<'_>);
}

impl OnAnswer {
    /// Runs this once.
    pub fn run(on_answer: impl FnOnce(Answer<'_>) + Send + 'static) -> Self {
        Self::Run(Box::new(on_answer))
    }

    fn take(self, answer: Answer<'_>) {
        match self {
            Self::Run(run) => run(answer),
            Self::Tell(whom) => whom.answered(answer),
        }
    }
}

/// Our requests on one connection. `T` is what the owner wants to know about each while it is open.
pub struct Peer<T> {
    out: Arc<dyn Out>,
    next: AtomicU64,
    calls: Mutex<OpenRequests<T>>,
    /// Notified whenever a request is no longer open, while somebody waits for that.
    less_open: Notify,
}

struct OpenRequests<T> {
    /// The open requests by id.
    open: HashMap<u64, OpenRequest<T>>,
    closed: Option<Lost>,
    /// How many wait for requests to be no longer open.
    waiting: usize,
}

struct OpenRequest<T> {
    on_answer: OnAnswer,
    tag: T,
    /// Most requests have none, and are moved several times.
    deadline: Option<Box<Watched>>,
}

/// A deadline, and who watches it once the request is sent.
struct Watched {
    deadline: Deadline,
    expiry: Option<Expiry>,
}

/// The task that watches a deadline. It ends with its call, however far away the deadline is.
struct Expiry(AbortHandle);

impl Drop for Expiry {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The time at which a request without an answer is cancelled.
#[derive(Debug, Clone)]
pub struct Deadline {
    idle: Option<Duration>,
    touched: Instant,
    end: Option<Instant>,
    /// The idle time stands still while this number is among the paused ones.
    pause: Option<(Arc<Paused>, u64)>,
}

/// The clients whose requests wait for something slow, such as a person. A number is listed once for each
/// reason.
#[derive(Debug, Default)]
pub struct Paused(Mutex<Vec<u64>>);

impl Paused {
    /// Adds a reason to pause this client's requests.
    pub fn add(&self, who: u64) {
        self.0.lock().push(who);
    }

    /// Removes one reason.
    pub fn remove(&self, who: u64) {
        let mut paused = self.0.lock();
        if let Some(at) = paused.iter().position(|other| *other == who) {
            paused.swap_remove(at);
        }
    }

    /// Whether any client's requests are paused.
    pub fn any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    fn contains(&self, who: u64) -> bool {
        self.0.lock().contains(&who)
    }
}

impl Deadline {
    /// A deadline after `idle` without a sign of life, or after `max` in all; `None` if neither is set. The
    /// idle time may be paused.
    pub fn new(
        idle: Option<Duration>,
        max: Option<Duration>,
        pause: Option<(&Arc<Paused>, u64)>,
    ) -> Option<Self> {
        (idle.is_some() || max.is_some()).then(|| {
            let now = Instant::now();
            Self {
                idle,
                touched: now,
                end: max.and_then(|max| now.checked_add(max)),
                pause: pause.map(|(paused, who)| (paused.clone(), who)),
            }
        })
    }

    fn due(&self) -> Option<Instant> {
        let idle = self.idle.and_then(|idle| {
            let is_paused = self.pause.as_ref().is_some_and(|(paused, who)| paused.contains(*who));
            let from = if is_paused { Instant::now() } else { self.touched };
            from.checked_add(idle)
        });
        [idle, self.end].into_iter().flatten().min()
    }
}

impl<T: Send + 'static> Peer<T> {
    /// A peer whose messages leave through `out`.
    pub fn new(out: Arc<dyn Out>) -> Arc<Self> {
        let calls = Mutex::new(OpenRequests { open: HashMap::default(), closed: None, waiting: 0 });
        Arc::new(Self { out, next: AtomicU64::new(1), calls, less_open: Notify::new() })
    }

    /// Reserves the id of a request that is about to be opened.
    pub fn reserve(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives no id below this one from now on.
    pub fn skip_to(&self, id: u64) {
        self.next.fetch_max(id, Ordering::Relaxed);
    }

    /// Opens a request under a reserved id, to be recorded and then sent. `on_answer` runs exactly once,
    /// unless the request is forgotten. If the connection is closed, it runs at once and the result is
    /// `None`.
    pub fn open(
        self: &Arc<Self>,
        id: u64,
        tag: T,
        deadline: Option<Deadline>,
        on_answer: OnAnswer,
    ) -> Option<Opened<'_, T>> {
        let has_deadline = deadline.is_some();
        let deadline = deadline.map(|deadline| Box::new(Watched { deadline, expiry: None }));
        let mut calls = self.calls.lock();
        if let Some(lost) = calls.closed.clone() {
            drop(calls);
            on_answer.take(Answer::Lost(&lost));
            return None;
        }
        calls.open.insert(id, OpenRequest { on_answer, tag, deadline });
        Some(Opened { peer: self, id, has_deadline, is_sent: false })
    }

    /// Opens a request under a reserved id and sends it at once, for requests that nobody else has to find by id.
    /// Returns whether it was sent.
    pub fn request(
        self: &Arc<Self>,
        id: u64,
        method: &str,
        params: &str,
        tag: T,
        deadline: Option<Deadline>,
        on_answer: OnAnswer,
    ) -> bool {
        let opened = self.open(id, tag, deadline, on_answer);
        opened.is_some_and(|opened| opened.send(method, |out, _| out.extend_from_slice(params.as_bytes())))
    }

    /// Sends a request under a reserved id and waits for its result. Returns what `read` makes of the result on the
    /// task that reads the connection. Dropping the future cancels the request.
    pub async fn call<R: Send + 'static>(
        self: &Arc<Self>,
        id: u64,
        method: &str,
        params: &str,
        tag: T,
        deadline: Option<Deadline>,
        read: impl FnOnce(Node<'_>) -> R + Send + 'static,
    ) -> Result<R, CallError> {
        let (send, receive) = oneshot::channel();
        let on_answer = OnAnswer::run(move |answer| {
            let _ = send.send(match answer {
                Answer::Result(result) => Ok(read(result)),
                Answer::Error(error) => Err(CallError::Refused(error.raw().to_owned())),
                Answer::Lost(lost) => Err(CallError::Lost(lost.clone())),
            });
        });
        let is_sent = self.request(id, method, params, tag, deadline, on_answer);
        let guard = CancelOnDrop { peer: self, id: is_sent.then_some(id) };
        let outcome =
            receive.await.unwrap_or_else(|_| Err(CallError::Lost(Lost::new("the request was dropped"))));
        std::mem::forget(guard);
        outcome
    }

    /// Passes the answer to whoever waits for it. Returns `false` if nobody does.
    pub fn resolve(&self, id: u64, outcome: Outcome<'_>) -> bool {
        let Some(call) = self.take(id) else { return false };
        match outcome {
            Outcome::Result(result) => call.on_answer.take(Answer::Result(result)),
            Outcome::Error(error) => call.on_answer.take(Answer::Error(error)),
            Outcome::Malformed(what) => call.on_answer.take(Answer::Lost(&Lost::malformed(what))),
        }
        true
    }

    /// Fails one request. Returns `false` if it was not open.
    pub fn fail(&self, id: u64, lost: &Lost) -> bool {
        let Some(call) = self.take(id) else { return false };
        call.on_answer.take(Answer::Lost(lost));
        true
    }

    /// Whether requests can still be sent.
    pub fn is_open(&self) -> bool {
        self.calls.lock().closed.is_none()
    }

    /// Fails a request and tells the other side why. Returns `false` if it was not open.
    pub fn cancel(&self, id: u64, reason: &str, lost: &Lost) -> bool {
        let was_open = self.fail(id, lost);
        if was_open {
            self.send_cancelled(id, reason);
        }
        was_open
    }

    /// Drops a request without an answer, and returns its tag.
    pub fn forget(&self, id: u64) -> Option<T> {
        // Dropping the call may send the next request, so the calls must not be locked then.
        let call = self.take(id);
        call.map(|call| call.tag)
    }

    fn take(&self, id: u64) -> Option<OpenRequest<T>> {
        let mut calls = self.calls.lock();
        let call = calls.open.remove(&id)?;
        if calls.waiting > 0 {
            self.less_open.notify_waiters();
        }
        Some(call)
    }

    /// Tells the other side that a request is cancelled.
    pub fn send_cancelled(&self, id: u64, reason: &str) {
        self.notify("notifications/cancelled", |out| {
            out.extend_from_slice(format!("{{\"requestId\":{id},\"reason\":").as_bytes());
            write_string(out, reason);
            out.push(b'}');
        });
    }

    /// Sends a notification.
    pub fn notify(&self, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
        let mut params = Some(params);
        self.out.send(&mut |out| {
            if let Some(params) = params.take() {
                write_notification(out, method, params);
            }
        });
    }

    /// Looks at an open request and restarts its idle time.
    pub fn touch<R>(&self, id: u64, look: impl FnOnce(&T) -> R) -> Option<R> {
        let mut calls = self.calls.lock();
        let call = calls.open.get_mut(&id)?;
        if let Some(watched) = &mut call.deadline {
            watched.deadline.touched = Instant::now();
        }
        Some(look(&call.tag))
    }

    /// Looks at every open request, in no order.
    pub fn each(&self, mut look: impl FnMut(u64, &T)) {
        for (id, call) in &self.calls.lock().open {
            look(*id, &call.tag);
        }
    }

    /// Whether any open request is wanted.
    pub fn any(&self, wanted: impl Fn(&T) -> bool) -> bool {
        self.calls.lock().open.values().any(|call| wanted(&call.tag))
    }

    /// How many ids have been reserved so far.
    pub fn reserved(&self) -> u64 {
        self.next.load(Ordering::Relaxed) - 1
    }

    /// Whether any request besides these is open.
    pub fn any_open_besides(&self, others: &[u64]) -> bool {
        self.calls.lock().open.keys().any(|id| !others.contains(id))
    }

    /// Waits until no open request is wanted.
    pub async fn none_open(&self, wanted: impl Fn(&T) -> bool) {
        let _waiting = WaitsForLess::new(self);
        loop {
            let less = self.less_open.notified();
            if !self.any(&wanted) {
                return;
            }
            less.await;
        }
    }

    /// Replaces the tag of an open request.
    pub fn replace(&self, id: u64, mut tag: T) {
        if let Some(call) = self.calls.lock().open.get_mut(&id) {
            std::mem::swap(&mut call.tag, &mut tag);
        }
        // Dropping the old tag may look at the calls, so they must not be locked then.
        drop(tag);
    }

    /// Restarts the idle time of the open requests that `which` chooses.
    pub fn touch_where(&self, which: impl Fn(&T) -> bool) {
        for call in self.calls.lock().open.values_mut() {
            if let Some(watched) = &mut call.deadline
                && which(&call.tag)
            {
                watched.deadline.touched = Instant::now();
            }
        }
    }

    /// The id of the open request, if there is exactly one besides these.
    pub fn only_open_besides(&self, others: &[u64]) -> Option<u64> {
        let calls = self.calls.lock();
        let mut ids = calls.open.keys().filter(|id| !others.contains(id));
        ids.next().copied().filter(|_| ids.next().is_none())
    }

    /// The number of open requests.
    #[cfg(test)]
    pub fn open_count(&self) -> usize {
        self.calls.lock().open.len()
    }

    /// Refuses further requests and fails the open ones, in the order in which they were made.
    pub fn close(&self, lost: &Lost) {
        let mut open: Vec<_> = {
            let mut calls = self.calls.lock();
            calls.closed.get_or_insert_with(|| lost.clone());
            std::mem::take(&mut calls.open).into_iter().collect()
        };
        self.less_open.notify_waiters();
        open.sort_unstable_by_key(|(id, _)| *id);
        for (_, call) in open {
            call.on_answer.take(Answer::Lost(lost));
        }
    }

    async fn expire(self: Arc<Self>, id: u64) {
        loop {
            let (due, deadline) = {
                let calls = self.calls.lock();
                let Some(watched) = calls.open.get(&id).and_then(|call| call.deadline.as_ref()) else {
                    return;
                };
                let deadline = watched.deadline.clone();
                let Some(due) = deadline.due() else { return };
                (due, deadline)
            };
            if due > Instant::now() {
                tokio::time::sleep_until(due.into()).await;
                continue;
            }
            let reason = match (deadline.end, deadline.idle) {
                (Some(end), _) if end <= due => "timeout: the longest time for a call is over".to_owned(),
                (_, Some(idle)) => format!("timeout: no answer and no progress for {} s", idle.as_secs_f64()),
                _ => "timeout".to_owned(),
            };
            self.cancel(id, &reason, &Lost { loss: Loss::Timeout, ..Lost::new(reason.as_str()) });
            return;
        }
    }
}

/// Counts somebody who waits for requests to be no longer open.
struct WaitsForLess<'a, T>(&'a Peer<T>);

impl<'a, T> WaitsForLess<'a, T> {
    fn new(peer: &'a Peer<T>) -> Self {
        peer.calls.lock().waiting += 1;
        Self(peer)
    }
}

impl<T> Drop for WaitsForLess<'_, T> {
    fn drop(&mut self) {
        self.0.calls.lock().waiting -= 1;
    }
}

/// A request that is open and not sent yet. Dropping it forgets the request.
pub struct Opened<'a, T: Send + 'static> {
    peer: &'a Arc<Peer<T>>,
    id: u64,
    has_deadline: bool,
    is_sent: bool,
}

impl<T: Send + 'static> Opened<'_, T> {
    /// Sends the request, unless it is no longer open. `params` gets the id, which also serves as the
    /// progress token. Returns `false` if the request is over; it has then been answered, unless it was
    /// cancelled.
    pub fn send(self, method: &str, params: impl FnOnce(&mut Vec<u8>, u64)) -> bool {
        let peer = self.peer;
        self.send_via(&*peer.out, method, params)
    }

    /// Like [`Opened::send`], through another destination.
    pub fn send_via(mut self, out: &dyn Out, method: &str, params: impl FnOnce(&mut Vec<u8>, u64)) -> bool {
        self.is_sent = true;
        let (peer, id) = (self.peer, self.id);
        let mut params = Some(params);
        let sent = out.send(&mut |out| {
            if let Some(params) = params.take().filter(|_| peer.calls.lock().open.contains_key(&id)) {
                write_request(out, id, method, |out| params(out, id));
            }
        });
        if !sent {
            peer.fail(id, &Lost::new("the connection is closed"));
            return false;
        }
        if self.has_deadline {
            let task = tokio::spawn(peer.clone().expire(id));
            let expiry = Some(Expiry(task.abort_handle()));
            let mut calls = peer.calls.lock();
            if let Some(watched) = calls.open.get_mut(&id).and_then(|call| call.deadline.as_mut()) {
                watched.expiry = expiry;
            }
        }
        true
    }
}

impl<T: Send + 'static> Drop for Opened<'_, T> {
    fn drop(&mut self) {
        if !self.is_sent {
            self.peer.forget(self.id);
        }
    }
}

/// The reason why [`Peer::call`] has no result.
#[derive(Debug)]
pub enum CallError {
    /// The other side answered with this error object.
    Refused(String),
    /// The other side did not answer.
    Lost(Lost),
}

struct CancelOnDrop<'a, T: Send + 'static> {
    peer: &'a Arc<Peer<T>>,
    id: Option<u64>,
}

impl<T: Send + 'static> Drop for CancelOnDrop<'_, T> {
    fn drop(&mut self) {
        if let Some(id) = self.id
            && self.peer.forget(id).is_some()
        {
            self.peer.send_cancelled(id, "no longer wanted");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::mpsc;

    use super::*;

    /// A destination that accepts everything.
    struct Sent;

    impl Out for Sent {
        fn send(&self, _write: &mut dyn FnMut(&mut Vec<u8>)) -> bool {
            true
        }
    }

    /// A tag that looks at the calls when it is dropped, like a client whose questions end with it.
    struct Looks(Weak<Peer<Looks>>);

    impl Drop for Looks {
        fn drop(&mut self) {
            if let Some(peer) = self.0.upgrade() {
                peer.touch_where(|_| true);
            }
        }
    }

    #[test]
    fn what_was_known_of_a_request_may_look_at_the_calls_when_it_ends() {
        let (done, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let peer = Peer::new(Arc::new(Sent));
            let tag = || Looks(Arc::downgrade(&peer));
            let id = peer.reserve();
            assert!(peer.request(id, "m", "{}", tag(), None, OnAnswer::run(|_| ())), "it is open");
            peer.replace(id, tag());
            peer.replace(id + 1, tag());
            assert_eq!(peer.open_count(), 1);
            let _ = done.send(());
        });
        receiver
            .recv_timeout(Duration::from_secs(30))
            .expect("nobody waits for a lock that he holds himself");
    }
}
