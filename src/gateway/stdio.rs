//! Serves one client on our own stdin and stdout, or one session of the daemon on a connection to its relay.
//!
//! A session of the daemon is a stdio session with another end: its servers may be those of others, so they
//! are released and not ended. Between its messages its two ends say things to each other
//! ([`aside`](crate::core::aside)).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::restore::{reopen, restore};
use super::{Gateway, SHUTTING_DOWN};
use crate::core::aside::{BYE, FromRelay};
use crate::core::record::Record;
use crate::core::route::{RelayedLine, Route};
use crate::core::session::ClientSession;
use crate::json::{Node, Scanner};
use crate::protocol::cut_off::raw_id;
use crate::protocol::era::Version;
use crate::protocol::message::{Id, Malformed, Message, batch_parts};
use crate::transport::lines::{Line, Lines, TooLong};
use crate::transport::outbox::Outbox;

/// How long calls in flight may take to finish when the gateway ends.
const DRAIN: Duration = Duration::from_secs(1);
/// How long a client may take to read the last answers.
const LAST_WRITE: Duration = Duration::from_millis(500);

/// Where a session goes on that stood somewhere before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resumed {
    /// How it stood.
    pub record: Record,
    /// No question has an id below this one.
    pub first_question: u64,
}

/// What a client sent to a relay, and no daemon took.
pub struct Unsent {
    /// Whole lines, as a daemon would have got them, and what the relay would have said between them.
    pub waiting: Vec<u8>,
    /// Reads the client's next lines, and may have the beginning of one.
    pub lines: Lines,
}

/// Serves one client until it closes its end or `shutdown` resolves. By the time this returns, every call is
/// answered and every upstream is gone.
pub async fn run(
    gateway: Arc<Gateway>,
    (resumed, unsent): (Option<Resumed>, Option<Unsent>),
    stdin: impl AsyncRead + Unpin,
    stdout: impl AsyncWrite + Unpin + Send + 'static,
    shutdown: impl Future<Output = ()>,
) {
    let end = gateway.engine.clone();
    let client = StdioClient::new(gateway, resumed, None).await;
    client.serve(unsent, stdin, stdout, shutdown, async { end.stop().await }).await;
}

/// Serves one session of the daemon until its relay closes the connection or `shutdown` resolves. By the time
/// this returns, every call is answered and everything that the session had open is released.
pub async fn run_in_daemon(
    gateway: Arc<Gateway>,
    resumed: Option<Resumed>,
    (stdin, stdout): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin + Send + 'static),
    on_reload: impl Fn() + Send + Sync + 'static,
    on_session: impl FnOnce(&Arc<ClientSession>),
    shutdown: impl Future<Output = ()>,
) {
    let engine = gateway.engine.clone();
    let client = StdioClient::new(gateway, resumed, Some(Box::new(on_reload))).await;
    on_session(&client.session);
    let session = client.session.clone();
    let goodbye = async {
        shutdown.await;
        session.tell_end(BYE);
    };
    let workspace = session.workspace.clone();
    client.serve(None, stdin, stdout, goodbye, async { engine.discard(&workspace) }).await;
}

struct StdioClient {
    gateway: Arc<Gateway>,
    session: Arc<ClientSession>,
    out: Arc<Outbox>,
    /// Notified when the relay says that the session ends.
    end: Notify,
    /// Called when the relay says that the file is to be read again; `None` outside the daemon.
    on_reload: Option<Box<dyn Fn() + Send + Sync>>,
}

impl StdioClient {
    /// A client that has not sent anything yet, or that goes on as it stood before.
    async fn new(
        gateway: Arc<Gateway>,
        resumed: Option<Resumed>,
        on_reload: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Self {
        let out = Outbox::new();
        let workspace = gateway.begin("stdio");
        if let Some(resumed) = &resumed {
            if let Some(daemon_session) = &gateway.daemon_session {
                daemon_session.note(&resumed.record);
            }
            // Nobody looks at the workspace yet, so nobody is told of each change.
            reopen(&gateway, &workspace, &resumed.record).await;
        }
        let main = match on_reload {
            Some(_) => Route::Relay(RelayedLine::new(&out, 0)),
            None => Route::Pipe(out.clone()),
        };
        let session = ClientSession::new(workspace, main);
        if on_reload.is_none() {
            // The runtime has one thread, so no task that `begin` spawned gets a turn before the session is
            // attached.
            gateway.engine.audience.attach_stdio(&session);
        }
        if let Some(resumed) = &resumed {
            session.peer().skip_to(resumed.first_question);
            restore(&gateway, &session, &resumed.record).await;
        }
        Self { gateway, session, out, end: Notify::new(), on_reload }
    }

    /// Serves the client; `ended` releases or ends its upstreams.
    async fn serve(
        self,
        unsent: Option<Unsent>,
        stdin: impl AsyncRead + Unpin,
        stdout: impl AsyncWrite + Unpin + Send + 'static,
        shutdown: impl Future<Output = ()>,
        ended: impl Future<Output = ()>,
    ) {
        let (session, out) = (self.session.clone(), self.out.clone());
        let writer = tokio::spawn({
            let out = out.clone();
            async move { out.run(stdout).await }
        });
        let reading = self.read(unsent, stdin);
        tokio::pin!(reading);
        let mut open = true;
        tokio::select! {
            () = &mut reading => open = false,
            () = self.end.notified() => {}
            () = shutdown => {}
        }
        session.end();
        let ending = async {
            let _ = timeout(DRAIN, session.answered()).await;
            session.cut_off(SHUTTING_DOWN);
            // Requests that wait for an upstream to start learn here that it has ended.
            ended.await;
            session.abandon(SHUTTING_DOWN);
        };
        tokio::pin!(ending);
        loop {
            tokio::select! {
                () = &mut ending => break,
                () = &mut reading, if open => open = false,
            }
        }
        out.close();
        let _ = timeout(LAST_WRITE, writer).await;
    }

    async fn read(&self, unsent: Option<Unsent>, mut stdin: impl AsyncRead + Unpin) {
        let limit = self.gateway.engine.in_force.limit();
        let mut scanner = Scanner::of_stream();
        let mut lines = match unsent {
            Some(Unsent { waiting, mut lines }) => {
                for line in waiting.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    self.take_unsent(&mut scanner, line);
                    lines.pause().await;
                }
                lines
            }
            None => Lines::new(limit.load(Ordering::Relaxed)),
        };
        let mut number = 0;
        let mut route = || {
            number += 1;
            self.on_reload.as_ref().map(|_| Route::Relay(RelayedLine::new(&self.out, number)))
        };
        loop {
            lines.set_limit(limit.load(Ordering::Relaxed));
            match lines.read(&mut stdin).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            while let Some(line) = lines.next_line() {
                self.take(&mut scanner, line, route());
                lines.pause().await;
            }
            // We read nothing from a client that does not read its answers.
            self.session.room().await;
        }
        if let Some(rest) = lines.rest() {
            self.take(&mut scanner, Line::Whole(rest), route());
        }
    }

    /// Takes a line that a relay had for the daemon.
    fn take_unsent(&self, scanner: &mut Scanner, line: &[u8]) {
        match FromRelay::read(line) {
            Some(FromRelay::Long(long)) => self.refuse_long(scanner, &long, None),
            // Stdin ends by itself, and whoever goes on alone looks at the file.
            Some(FromRelay::End | FromRelay::Reload) => {}
            None => self.take(scanner, Line::Whole(line), None),
        }
    }

    /// Takes a line of the client, or of its relay; `route` is the way of its answer, if that is not the session's.
    fn take(&self, scanner: &mut Scanner, line: Line<'_>, route: Option<Route>) {
        let text = match line {
            Line::Whole(text) => text,
            Line::TooLong(long) => match FromRelay::read(long.start).filter(|_| route.is_some()) {
                Some(aside) => return self.take_aside(scanner, aside, route),
                None => return self.refuse_long(scanner, &long, route),
            },
        };
        match scanner.scan(text) {
            Err(invalid) => match FromRelay::read(text).filter(|_| route.is_some()) {
                Some(aside) => self.take_aside(scanner, aside, route),
                None => self.take_message(Err(Malformed::no_json(invalid)), route),
            },
            Ok(doc) if doc.root().is_array() => self.take_batch(doc.root(), route),
            Ok(doc) => self.take_message(Message::read(doc.root()), route),
        }
    }

    fn take_aside(&self, scanner: &mut Scanner, aside: FromRelay<'_>, route: Option<Route>) {
        match (aside, &self.on_reload) {
            (FromRelay::End, _) => self.end.notify_one(),
            (FromRelay::Reload, Some(reload)) => reload(),
            (FromRelay::Reload, None) => {}
            (FromRelay::Long(long), _) => self.refuse_long(scanner, &long, route),
        }
    }

    fn refuse_long(&self, scanner: &mut Scanner, long: &TooLong<'_>, route: Option<Route>) {
        let id = raw_id(scanner, long.start).and_then(Id::from_raw);
        let limit = self.gateway.engine.settings().max_message_bytes;
        let message = format!("{} bytes are more than the {limit} of maxMessageBytes", long.length);
        self.take_message(Err(Malformed::new(id, &message)), route);
    }

    fn take_message(&self, message: Result<Message<'_>, Malformed>, route: Option<Route>) {
        self.gateway.take(&self.session, message, route, None);
    }

    /// Only version 2025-03-26 has batches.
    fn take_batch(&self, array: Node<'_>, route: Option<Route>) {
        if self.session.hello().is_none_or(|hello| hello.version != Version::V2025March) {
            let why = Malformed::new(None, "batches are part of 2025-03-26 only");
            return self.take_message(Err(why), route);
        }
        let parts = batch_parts(array);
        match parts.is_empty() {
            true => self.take_message(Err(Malformed::new(None, "the batch is empty")), route),
            false => self.gateway.take_batch(&self.session, Message::read_parts(&parts), route),
        }
    }
}
