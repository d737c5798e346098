//! What carries a connection: a process with its pipes, or an HTTP client. The lifecycle starts a carrier,
//! waits for its end and stops it.
//!
//! Invariant: no process, task or descendant outlives its carrier.
//! Invariant: a message that makes us panic costs that message and nothing else.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::Instrument;

use super::connection::Connection;
use super::engine::Engine;
use super::process::{Child, Control, Exit};
use super::start_error::{Cause, StartError};
use super::stderr::Tail;
use crate::config::{Command, Http, Transport};
use crate::json::Scanner;
use crate::protocol::era::ServerHello;
use crate::transport::http_client::{Endpoint, Failure, HttpClient, Incoming, Receive};
use crate::transport::lines::{Line, Lines};
use crate::transport::peer::Lost;

/// How long an upstream may take to end after its stdin was closed, before it gets a signal.
const POLITE: Duration = Duration::from_millis(300);
/// The time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_millis(300);
/// How long we wait for the exit status of an upstream whose output has ended, or for the output of one that
/// has exited.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// When an upstream has exited, its output counts as read to the end once nothing has come for this long. A
/// process that the upstream left behind may hold the pipe open.
const STILL: Duration = Duration::from_millis(2);

/// What carries a connection.
pub(super) enum Carrier {
    /// A process.
    Process(Box<Process>),
    /// An HTTP client.
    Http(Remote),
}

/// An HTTP client at work.
pub(super) struct Remote {
    client: JoinHandle<Result<(), Failure>>,
    _sender: Task,
    over: bool,
}

/// The most messages that may wait for the HTTP client.
const WAITING: usize = 64;
/// How long an HTTP server may take to accept the end of its session.
const FAREWELL: Duration = Duration::from_secs(2);

/// The parts of a running process.
pub(super) struct Process {
    control: Control,
    reader: OutputReader,
    stderr: OutputReader,
    _writer: Task,
    tail: Arc<Tail>,
    /// What to log once the process is known to run.
    birth: Option<String>,
    /// How the process ended, once that is known.
    exit: Option<Exit>,
    over: bool,
}

impl Carrier {
    /// Starts the carrier; its messages reach the connection from now on.
    pub(super) async fn begin(
        engine: &Arc<Engine>,
        connection: &Arc<Connection>,
    ) -> Result<Self, StartError> {
        match &connection.upstream.spec().transport {
            Transport::Stdio(command) => {
                Process::begin(engine, connection, command).await.map(Box::new).map(Self::Process)
            }
            Transport::Http(http) => Remote::begin(engine, connection, http).map(Self::Http),
            Transport::Unset(unset) => Err(StartError::new(Cause::Variable, unset.to_string())),
        }
    }

    /// Waits until the carrier is over, and returns why.
    pub(super) async fn over(&mut self) -> StartError {
        match self {
            Self::Process(process) => process.over().await,
            Self::Http(remote) => remote.over().await,
        }
    }

    /// Whether the carrier ended by itself.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Process(process) => process.over,
            Self::Http(remote) => remote.over,
        }
    }

    /// Adds to the reason what else is known, such as the last lines of stderr.
    pub(super) fn explain(&self, error: StartError) -> StartError {
        match self {
            Self::Process(process) => process.explain(error),
            Self::Http(_) => error,
        }
    }

    /// How the process ended, if there is one and that is known.
    pub(super) fn exit(&self) -> Option<Exit> {
        match self {
            Self::Process(process) => process.exit,
            Self::Http(_) => None,
        }
    }

    /// Stops the carrier and everything that belongs to it. If `polite`, the upstream may end by itself
    /// first. Returns how its process ended, if it did so by itself.
    pub(super) async fn stop(self, polite: bool) -> Option<Exit> {
        match self {
            Self::Process(mut process) => {
                if polite && let Ok(exit) = timeout(POLITE, process.control.exited()).await {
                    process.exit = Some(exit);
                }
                process.control.stop(GRACE).await;
                process.exit
            }
            Self::Http(mut remote) => {
                // The end of an HTTP client that is over has been awaited already.
                if !remote.over {
                    let _ = timeout(FAREWELL, &mut remote.client).await;
                    remote.client.abort();
                }
                None
            }
        }
    }
}

impl Remote {
    fn begin(engine: &Arc<Engine>, connection: &Arc<Connection>, http: &Http) -> Result<Self, StartError> {
        let headers =
            http.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
        let endpoint = Endpoint { url: http.url.clone(), headers, sse: http.sse };
        // The HTTP client does not know the server's name; the span puts it into the client's log lines.
        let span = tracing::error_span!("upstream", name = %connection.upstream);
        let url = http.url.parse::<hyper::Uri>().unwrap_or_default();
        let host = connection.redactor.redact(url.host().unwrap_or_default());
        tracing::info!("[{}] is reached at {host}", connection.upstream);
        let client = span.in_scope(|| HttpClient::new(endpoint, engine.settings().max_message_bytes))?;
        let client = client
            .limited_by(engine.in_force.limit())
            .authorized_by(engine.authorizer(&connection.upstream, http));
        let client = client.trusting(engine.authorities_of(&connection.upstream));
        connection.profile.mirror_parameters(client.tool_headers());
        let (send, receive) = mpsc::channel(WAITING);
        let out = connection.out.clone();
        let taker = Taker { engine: engine.clone(), connection: connection.clone() };
        Ok(Self {
            client: tokio::spawn(client.run(receive, taker).instrument(span)),
            _sender: Task::spawn(async move { out.hand_on(send).await }),
            over: false,
        })
    }

    async fn over(&mut self) -> StartError {
        let outcome = (&mut self.client).await;
        self.over = true;
        match outcome {
            Ok(Ok(())) => "the connection was closed".into(),
            Ok(Err(failure)) => failure.into(),
            Err(_) => "the connection failed".into(),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.client.abort();
    }
}

/// Hands to the connection what an HTTP server sends.
struct Taker {
    engine: Arc<Engine>,
    connection: Arc<Connection>,
}

impl Receive for Taker {
    fn take(&self, incoming: Incoming<'_>) {
        match (incoming.lost, incoming.on) {
            // The probe for the era needs to see every error.
            (Some(failure), Some(id)) if failure.unauthorized || self.connection.profile.is_greeted() => {
                let lost = Lost::new(self.connection.redactor.redact(&failure.message));
                self.connection.peer.fail(id, &Lost { needs_login: failure.unauthorized, ..lost });
            }
            (_, on) => {
                let line = Line::Whole(incoming.message);
                take(&self.engine, &self.connection, &mut Scanner::default(), line, on);
            }
        }
    }

    fn renewed(&self, hello: &str) -> Result<(), String> {
        self.engine.renewed(&self.connection, ServerHello::read(hello)?);
        Ok(())
    }

    fn missed(&self) {
        self.connection.doubt();
    }

    async fn room(&self) {
        self.engine.client_room(&self.connection.upstream).await;
    }
}

impl Process {
    async fn begin(
        engine: &Arc<Engine>,
        connection: &Arc<Connection>,
        command: &Command,
    ) -> Result<Self, StartError> {
        let launch = engine.programs.prepare(&connection.upstream, command).await;
        let launch = launch.inspect_err(|error| {
            if let Some(places) = error.places() {
                tracing::info!("[{}] {}", connection.upstream, connection.redactor.redact(&places));
            }
        })?;
        let child =
            engine.programs.spawn(&launch).map_err(|error| format!("could not be started: {error}"))?;
        let Child { stdin, stdout, stderr, control } = child;
        let (out, tail) = (connection.out.clone(), Arc::new(Tail::default()));
        connection.upstream.usage.runs_as(control.pid_cell(), tail.clone());
        let program = launch.program.to_string_lossy();
        let program = connection.redactor.redact(&program);
        Ok(Self {
            birth: Some(format!("[{}] runs {program}", connection.upstream)),
            control,
            reader: OutputReader::spawn(stdout, |stdout| read(engine.clone(), connection.clone(), stdout)),
            stderr: OutputReader::spawn(stderr, |stderr| {
                tail.clone().drain(stderr, connection.upstream.to_string(), connection.redactor.clone())
            }),
            _writer: Task::spawn(async move { drop(out.run(stdin).await) }),
            tail,
            exit: None,
            over: false,
        })
    }

    /// Waits until the process has ended or closed its output, and returns which.
    async fn over(&mut self) -> StartError {
        let exit = tokio::select! {
            biased;
            exit = exited(&mut self.control, &mut self.birth) => {
                // The last lines that the process wrote before it ended still count.
                let words = async { tokio::join!(self.reader.caught_up(), self.stderr.caught_up()) };
                let _ = timeout(LAST_WORDS, words).await;
                Some(exit)
            }
            () = self.reader.task.done() => {
                let exit = timeout(LAST_WORDS, self.control.exited()).await.ok();
                let _ = timeout(LAST_WORDS, self.stderr.caught_up()).await;
                exit
            }
        };
        (self.over, self.exit) = (true, exit);
        match exit {
            Some(exit @ Exit::NotStarted(_)) => exit.to_string().into(),
            Some(exit) => format!("the server {exit}").into(),
            None => "the server closed its output".into(),
        }
    }

    /// Adds the last lines of stderr to the reason.
    fn explain(&self, error: StartError) -> StartError {
        let (stderr, log) = (self.tail.last_lines().into(), self.tail.log().into());
        StartError { stderr, log, ..error }
    }
}

/// Waits until the process has ended; logs its number as soon as that is known.
async fn exited(control: &mut Control, birth: &mut Option<String>) -> Exit {
    if birth.is_some()
        && let Ok(pid) = control.started().await
        && let Some(birth) = birth.take()
    {
        tracing::info!("{birth} as process {pid}");
    }
    control.exited().await
}

/// A task that reads an output to its end, and how far it has read.
struct OutputReader {
    task: Task,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    reads: AtomicUsize,
    /// Whether the last read found nothing.
    waits: AtomicBool,
}

impl OutputReader {
    fn spawn<R, F>(stream: R, read: impl FnOnce(CountedStream<R>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let progress = Arc::<Progress>::default();
        let task = Task::spawn(read(CountedStream { stream, progress: progress.clone() }));
        Self { task, progress }
    }

    /// Waits until the task has read everything there is.
    async fn caught_up(&mut self) {
        loop {
            let before = self.progress.reads.load(Ordering::Relaxed);
            if timeout(STILL, self.task.done()).await.is_ok() {
                return;
            }
            // The task may be about to read what has come meanwhile.
            tokio::task::yield_now().await;
            if self.progress.waits.load(Ordering::Relaxed)
                && self.progress.reads.load(Ordering::Relaxed) == before
            {
                return;
            }
        }
    }
}

/// A stream that reports how far it was read.
struct CountedStream<R> {
    stream: R,
    progress: Arc<Progress>,
}

impl<R: AsyncRead + Unpin> AsyncRead for CountedStream<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.progress.waits.store(outcome.is_pending(), Ordering::Relaxed);
        if outcome.is_ready() {
            self.progress.reads.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }
}

/// A task that does not outlive its handle.
pub(super) struct Task(JoinHandle<()>);

impl Task {
    pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }

    /// Waits for the task's end.
    async fn done(&mut self) {
        if !self.0.is_finished() {
            let _ = (&mut self.0).await;
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads the upstream's messages until it closes its output. Before it reads on, it waits until the client
/// has taken what it was sent.
async fn read(engine: Arc<Engine>, connection: Arc<Connection>, mut stdout: impl AsyncRead + Unpin) {
    let limit = engine.in_force.limit();
    let mut lines = Lines::new(limit.load(Ordering::Relaxed));
    let mut scanner = Scanner::of_stream();
    loop {
        lines.set_limit(limit.load(Ordering::Relaxed));
        match lines.read(&mut stdout).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        while let Some(line) = lines.next_line() {
            take(&engine, &connection, &mut scanner, line, None);
            lines.pause().await;
        }
        engine.client_room(&connection.upstream).await;
    }
    if let Some(rest) = lines.rest() {
        take(&engine, &connection, &mut scanner, Line::Whole(rest), None);
    }
}

/// Hands a message to the connection. A panic costs the message that caused it, not the connection.
pub(super) fn take(
    engine: &Arc<Engine>,
    connection: &Arc<Connection>,
    scanner: &mut Scanner,
    line: Line<'_>,
    on: Option<u64>,
) {
    if catch_unwind(AssertUnwindSafe(|| connection.take(engine, scanner, line, on))).is_err() {
        tracing::error!(
            "[{}] a message of this server caused a panic; please report it",
            connection.upstream
        );
    }
}
