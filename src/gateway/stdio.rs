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

use super::{Gateway, SHUTTING_DOWN};
use crate::catalog::Kind;
use crate::core::aside::{FromDaemon, FromRelay, is_aside};
use crate::core::record::Record;
use crate::core::route::Route;
use crate::core::session::ClientSession;
use crate::core::workspace::Workspace;
use crate::face::Then;
use crate::json::{Node, Raw, Scanner, quote};
use crate::protocol::cut_off::raw_id;
use crate::protocol::era::Version;
use crate::protocol::message::{Id, Malformed, Message, batch_parts};
use crate::transport::lines::{Line, Lines, TooLong};
use crate::transport::outbox::Outbox;

/// How long calls in flight may take to finish when the gateway ends.
const DRAIN: Duration = Duration::from_secs(1);
/// How long a client may take to read the last answers.
const LAST_WRITE: Duration = Duration::from_millis(500);
/// How long the subscriptions of a session that goes on elsewhere may take.
const LONGEST_RESTORE: Duration = Duration::from_secs(5);

/// Where a session goes on that stood somewhere before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resumed {
    /// How it stood.
    pub record: Record,
    /// No question has an id below this one.
    pub first_question: u64,
}

/// Serves one client until it closes its end or `shutdown` resolves. By the time this returns, every call is
/// answered and every upstream is gone.
pub async fn run(
    gateway: Arc<Gateway>,
    resumed: Option<Resumed>,
    stdin: impl AsyncRead + Unpin,
    stdout: impl AsyncWrite + Unpin + Send + 'static,
    shutdown: impl Future<Output = ()>,
) {
    let end = gateway.engine.clone();
    let client = StdioClient::new(gateway, resumed, None).await;
    client.serve(stdin, stdout, shutdown, async { end.stop().await }).await;
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
        session.tell_end(&FromDaemon::Bye.line());
    };
    let workspace = session.workspace.clone();
    client.serve(stdin, stdout, goodbye, async { engine.discard(&workspace) }).await;
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
            // Nobody looks at the workspace yet, so nobody is told of each change.
            reopen(&gateway, &workspace, &resumed.record).await;
        }
        let session = ClientSession::new(workspace, Route::Pipe(out.clone()));
        if on_reload.is_none() {
            // The runtime has one thread, so no task that `begin` spawned gets a turn before the session is
            // attached.
            gateway.engine.audience.attach_stdio(&session);
        }
        if let Some(resumed) = &resumed {
            session.peer.skip_to(resumed.first_question);
            restore(&gateway, &session, &resumed.record).await;
        }
        Self { gateway, session, out, end: Notify::new(), on_reload }
    }

    /// Serves the client; `ended` releases or ends its upstreams.
    async fn serve(
        self,
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
        let reading = self.read(stdin);
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

    async fn read(&self, mut stdin: impl AsyncRead + Unpin) {
        let limit = self.gateway.engine.in_force.limit();
        let mut lines = Lines::new(limit.load(Ordering::Relaxed));
        let mut scanner = Scanner::default();
        loop {
            lines.set_limit(limit.load(Ordering::Relaxed));
            match lines.read(&mut stdin).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            while let Some(line) = lines.next_line() {
                self.take(&mut scanner, line);
                lines.pause().await;
            }
            // We read nothing from a client that does not read its answers.
            self.session.room().await;
        }
        if let Some(rest) = lines.rest() {
            self.take(&mut scanner, Line::Whole(rest));
        }
    }

    fn take(&self, scanner: &mut Scanner, line: Line<'_>) {
        let text = match line {
            Line::Whole(text) => text,
            Line::TooLong(TooLong { start, .. }) if is_aside(start) && self.on_reload.is_some() => {
                return self.take_aside(scanner, start);
            }
            Line::TooLong(TooLong { start, length, .. }) => {
                let id = raw_id(scanner, start).and_then(Id::from_raw);
                let limit = self.gateway.engine.settings().max_message_bytes;
                let message = format!("{length} bytes are more than the {limit} of maxMessageBytes");
                return self.take_message(Err(Malformed::new(id, &message)));
            }
        };
        match scanner.scan(text) {
            Err(_) if is_aside(text) && self.on_reload.is_some() => self.take_aside(scanner, text),
            Err(invalid) => self.take_message(Err(Malformed::no_json(invalid))),
            Ok(doc) if doc.root().is_array() => self.take_batch(doc.root()),
            Ok(doc) => self.take_message(Message::read(doc.root())),
        }
    }

    fn take_aside(&self, scanner: &mut Scanner, line: &[u8]) {
        match (FromRelay::read(line), &self.on_reload) {
            (Some(FromRelay::End), _) => self.end.notify_one(),
            (Some(FromRelay::Reload), Some(reload)) => reload(),
            (Some(FromRelay::LongLine(long)), _) => self.take(scanner, Line::TooLong(long)),
            _ => tracing::debug!("the other end of the session said something that we do not know"),
        }
    }

    fn take_message(&self, message: Result<Message<'_>, Malformed>) {
        self.gateway.take(&self.session, message, None, None);
    }

    /// Only version 2025-03-26 has batches.
    fn take_batch(&self, array: Node<'_>) {
        if self.session.hello().is_none_or(|hello| hello.version != Version::V2025March) {
            return self.take_message(Err(Malformed::new(None, "batches are part of 2025-03-26 only")));
        }
        let parts = batch_parts(array);
        match parts.is_empty() {
            true => self.take_message(Err(Malformed::new(None, "the batch is empty"))),
            false => self.gateway.take_batch(&self.session, Message::read_parts(&parts), None),
        }
    }
}

/// Opens and switches what a session had open and switched.
async fn reopen(gateway: &Arc<Gateway>, workspace: &Arc<Workspace>, record: &Record) {
    let switched = |wanted: bool| {
        record.switched.each_ref().map(|names| {
            let names = names.iter().filter(|(_, on)| **on == wanted);
            names.map(|(name, _)| name.as_str().into()).collect::<Vec<Arc<str>>>()
        })
    };
    workspace.change(|view| view.switch(&switched(true), &switched(false)));
    let face = gateway.faces.of(workspace);
    let groups = face.groups();
    let closed = workspace.read(|view| {
        let closed = |group: &&String| groups.contains(&group.as_str()) && !view.is_open(group);
        record.open.iter().filter(closed).collect::<Vec<_>>()
    });
    // All start at the same time, and are opened in their order.
    for server in face.servers().iter().filter(|server| closed.iter().any(|group| *group == server.group)) {
        let upstream = gateway.upstream(workspace, server);
        if !upstream.is_at_rest() {
            let _ = upstream.start();
        }
    }
    for group in closed {
        let _ = gateway.open_group(workspace, group, &Then::Request).await;
    }
}

/// Repeats the requests by which a session came to stand as it did. Nobody hears the answers; the client is
/// told once that its lists may have changed.
async fn restore(gateway: &Arc<Gateway>, session: &Arc<ClientSession>, record: &Record) {
    let mut requests = Vec::new();
    requests.extend(record.hello.as_ref().map(|hello| ("initialize", hello.clone())));
    requests.extend(record.level.as_ref().map(|level| ("logging/setLevel", level.clone())));
    let subscribe = |uri: &String| ("resources/subscribe", format!("{{\"uri\":{}}}", quote(uri)));
    requests.extend(record.subscriptions.iter().map(subscribe));
    for (number, (method, params)) in requests.into_iter().enumerate() {
        let id = format!("\"mcp-workbench/restored/{number}\"");
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        gateway.take(session, Message::read(Raw::own(text).root()), Some(Route::Nowhere), None);
    }
    let _ = timeout(LONGEST_RESTORE, session.answered()).await;
    let face = gateway.face(session);
    if session.hello().is_none() || (record.open.is_empty() && face.starts_all().is_none()) {
        return;
    }
    let mut told = Vec::new();
    for kind in Kind::ALL {
        let method = kind.changed_method();
        if face.lists(session.hello(), kind) && !told.contains(&method) {
            told.push(method);
            session.notify(None, method, |_| ());
        }
    }
}
