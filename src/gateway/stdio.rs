//! Serves one client on our own stdin and stdout, or one session of the daemon on a connection to its relay.
//!
//! A session of the daemon is a stdio session with another end: its servers may be those of others, so they
//! are released and not ended. Between its messages its two ends say things to each other
//! ([`aside`](crate::core::aside)).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Empty, ReadBuf};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::restore::{reopen, restore};
use super::startup::turn_away_waiting;
use super::{Gateway, SHUTTING_DOWN};
use crate::core::aside::{BYE, FromRelay, InputPlace, collect_line};
use crate::core::record::Record;
use crate::core::route::{RelayedLine, Route};
use crate::core::session::ClientSession;
use crate::json::{Node, Scanner};
use crate::protocol::cut_off::raw_id;
use crate::protocol::era::Version;
use crate::protocol::message::{Id, Malformed, Message, batch_parts};
use crate::transport::lines::{Line, Lines, TooLong};
use crate::transport::outbox::{Destination, Outbox};

/// How long calls in flight may take to finish when the gateway ends.
const DRAIN: Duration = Duration::from_secs(1);
/// The relay is asked to look at what was taken from its client when it is this much.
const MOST_UNCOLLECTED: u64 = 128 * 1024;
/// This much is taken from a client, whether or not the relay has heard that it should look at it.
const MOST_UNTOLD: u64 = 1024 * 1024;
/// How long a client may take to read the last answers.
const LAST_WRITE: Duration = Duration::from_millis(500);

/// The ends of a session in the daemon.
pub struct DaemonEnds<A, O, C> {
    /// What the relay says: the client's lines and asides, or asides alone if the client is read itself.
    pub relay: A,
    /// What client and relay are told.
    pub out: O,
    /// The client itself, if the daemon has its pipes.
    pub client: Option<C>,
}

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
    let reading = client.read(unsent, stdin, None::<Empty>);
    client.serve(reading, stdout, shutdown, async { end.stop().await }).await;
}

/// Serves one session of the daemon until its relay closes the connection or `shutdown` resolves. By the time
/// this returns, every call is answered and everything that the session had open is released.
pub async fn run_in_daemon(
    gateway: Arc<Gateway>,
    resumed: Option<Resumed>,
    ends: DaemonEnds<impl AsyncRead + Unpin, impl Destination + Send + 'static, impl AsyncRead + Unpin>,
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
    let reading = client.read(None, ends.relay, ends.client);
    client.serve(reading, ends.out, goodbye, async { engine.discard(&workspace) }).await;
}

struct StdioClient {
    gateway: Arc<Gateway>,
    session: Arc<ClientSession>,
    out: Arc<Outbox>,
    /// Notified when the relay says that the session ends.
    end: Notify,
    /// Whether it has said so: then there will be no other daemon for what the client still sends.
    is_last: AtomicBool,
    /// The number of lines that the client of a relay has sent.
    count: AtomicU64,
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
        let (end, is_last) = (Notify::new(), AtomicBool::new(false));
        Self { gateway, session, out, end, is_last, count: AtomicU64::new(0), on_reload }
    }

    /// Serves the client; `ended` releases or ends its upstreams.
    async fn serve(
        &self,
        reading: impl Future<Output = ()>,
        stdout: impl Destination + Send + 'static,
        shutdown: impl Future<Output = ()>,
        ended: impl Future<Output = ()>,
    ) {
        let (session, out) = (self.session.clone(), self.out.clone());
        let mut writer = tokio::spawn({
            let out = out.clone();
            async move { out.run(stdout).await }
        });
        tokio::pin!(reading);
        let mut open = true;
        let (mut writes, in_daemon) = (true, self.on_reload.is_some());
        tokio::select! {
            () = &mut reading => open = false,
            () = self.end.notified() => {}
            () = shutdown => {}
            // The relay answers for a daemon that cannot write, and knows whether the client is gone.
            _ = &mut writer, if in_daemon => writes = false,
        }
        session.end();
        let ending = async {
            let _ = timeout(DRAIN, session.answered()).await;
            session.cut_off(SHUTTING_DOWN);
            // Requests that wait for an upstream to start learn here that it has ended.
            ended.await;
            turn_away_waiting(&self.gateway);
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
        if writes && timeout(LAST_WRITE, &mut writer).await.is_err() {
            writer.abort();
        }
    }

    /// Reads what the client sends until it ends: on `stdin`, or, with a relay there, from the client itself.
    async fn read(
        &self,
        unsent: Option<Unsent>,
        stdin: impl AsyncRead + Unpin,
        client: Option<impl AsyncRead + Unpin>,
    ) {
        let mut lines = Lines::new(self.limit());
        if let Some(unsent) = unsent {
            let mut scanner = Scanner::default();
            lines = unsent.lines;
            for line in unsent.waiting.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.take_unsent(&mut scanner, line);
                lines.pause().await;
            }
        }
        let relayed = self.read_lines(stdin, lines, self.on_reload.is_some(), |_, _| false);
        let Some(client) = client else { return relayed.await };
        let direct = async {
            let (mut read, mut collected, mut told) = (0, 0, 0);
            let taken = |bytes: usize, lines: &Lines| {
                read += bytes as u64;
                if read - collected >= MOST_UNCOLLECTED {
                    collected = read;
                    let place = lines.begun().map(|begun| InputPlace {
                        lines: self.count.load(Ordering::Relaxed),
                        offset: read - begun.len() as u64,
                    });
                    self.session.tell_end(&collect_line(place));
                }
                // The relay hears nothing while the client does not read its answers, and what the client sends is kept.
                let is_much = read - told >= MOST_UNTOLD;
                if is_much {
                    told = read;
                }
                is_much
            };
            let client = UntilEnd { stream: client, session: &self.session, is_last: &self.is_last };
            self.read_lines(client, Lines::new(self.limit()), false, taken).await;
            // The client has gone, which is no death.
            self.session.tell_end(BYE);
        };
        tokio::select! {
            () = relayed => {}
            () = direct => {}
        }
    }

    /// Reads lines until the stream ends. `has_asides`: a relay says things between them. `read` hears how much
    /// came once its lines are taken, and says whether the relay is to hear of it before more is read.
    async fn read_lines(
        &self,
        mut stream: impl AsyncRead + Unpin,
        mut lines: Lines,
        has_asides: bool,
        mut read: impl FnMut(usize, &Lines) -> bool,
    ) {
        let mut scanner = Scanner::of_stream();
        loop {
            lines.set_limit(self.limit());
            let Ok(count @ 1..) = lines.read(&mut stream).await else { break };
            while let Some(line) = lines.next_line() {
                match has_asides.then(|| aside_of(&line)).flatten() {
                    Some(aside) => self.take_aside(&mut scanner, aside),
                    None => self.take(&mut scanner, line),
                }
                lines.pause().await;
            }
            if read(count, &lines) {
                self.out.told().await;
            }
            // We read nothing from a client that does not read its answers.
            self.session.room().await;
        }
        if let Some(rest) = lines.rest() {
            self.take(&mut scanner, Line::Whole(rest));
        }
    }

    fn limit(&self) -> usize {
        self.gateway.engine.in_force.limit().load(Ordering::Relaxed)
    }

    /// The way of the answer to the next line, if that is not the session's.
    fn route(&self) -> Option<Route> {
        self.on_reload.as_ref()?;
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        Some(Route::Relay(RelayedLine::new(&self.out, number)))
    }

    /// Takes a line that a relay had for the daemon.
    fn take_unsent(&self, scanner: &mut Scanner, line: &[u8]) {
        match FromRelay::read(line) {
            Some(FromRelay::Long(long)) => self.refuse_long(scanner, &long),
            // Stdin ends by itself, and whoever goes on alone looks at the file.
            Some(FromRelay::End | FromRelay::Reload) => {}
            None => self.take(scanner, Line::Whole(line)),
        }
    }

    /// Takes a line of the client.
    fn take(&self, scanner: &mut Scanner, line: Line<'_>) {
        let text = match line {
            Line::Whole(text) => text,
            Line::TooLong(long) => return self.refuse_long(scanner, &long),
        };
        match scanner.scan(text) {
            Err(invalid) => self.take_message(Err(Malformed::no_json(invalid))),
            Ok(doc) if doc.root().is_array() => self.take_batch(doc.root()),
            Ok(doc) => self.take_message(Message::read(doc.root())),
        }
    }

    fn take_aside(&self, scanner: &mut Scanner, aside: FromRelay<'_>) {
        match (aside, &self.on_reload) {
            (FromRelay::End, _) => {
                self.is_last.store(true, Ordering::Relaxed);
                self.end.notify_one();
            }
            (FromRelay::Reload, Some(reload)) => reload(),
            (FromRelay::Reload, None) => {}
            (FromRelay::Long(long), _) => self.refuse_long(scanner, &long),
        }
    }

    fn refuse_long(&self, scanner: &mut Scanner, long: &TooLong<'_>) {
        let id = raw_id(scanner, long.start).and_then(Id::from_raw);
        let limit = self.gateway.engine.settings().max_message_bytes;
        let message = format!("{} bytes are more than the {limit} of maxMessageBytes", long.length);
        self.take_message(Err(Malformed::new(id, &message)));
    }

    fn take_message(&self, message: Result<Message<'_>, Malformed>) {
        self.gateway.take(&self.session, message, self.route(), None);
    }

    /// Only version 2025-03-26 has batches.
    fn take_batch(&self, array: Node<'_>) {
        if self.session.hello().is_none_or(|hello| hello.version != Version::V2025March) {
            let why = Malformed::new(None, "batches are part of 2025-03-26 only");
            return self.take_message(Err(why));
        }
        let parts = batch_parts(array);
        match parts.is_empty() {
            true => self.take_message(Err(Malformed::new(None, "the batch is empty"))),
            false => self.gateway.take_batch(&self.session, Message::read_parts(&parts), self.route()),
        }
    }
}

/// What a relay says by a line, if it is not the client that speaks.
fn aside_of<'a>(line: &Line<'a>) -> Option<FromRelay<'a>> {
    match line {
        Line::Whole(text) => FromRelay::read(text),
        Line::TooLong(long) => FromRelay::read(long.start),
    }
}

/// The client itself, until its session ends here: what it sends then is for the next daemon, if there will be one.
struct UntilEnd<'a, C> {
    stream: C,
    session: &'a ClientSession,
    is_last: &'a AtomicBool,
}

impl<C: AsyncRead + Unpin> AsyncRead for UntilEnd<'_, C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.session.is_ending() && !self.is_last.load(Ordering::Relaxed) {
            true => Poll::Pending,
            false => Pin::new(&mut self.stream).poll_read(context, buffer),
        }
    }
}
