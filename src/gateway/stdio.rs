//! Serves one client on our own stdin and stdout.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::{Gateway, SHUTTING_DOWN};
use crate::core::route::Route;
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

/// Serves one client until it closes its end or `shutdown` resolves. By the time this returns, every call is
/// answered and every upstream is gone.
pub async fn run(
    gateway: Arc<Gateway>,
    stdin: impl AsyncRead + Unpin,
    stdout: impl AsyncWrite + Unpin + Send + 'static,
    shutdown: impl Future<Output = ()>,
) {
    let out = Outbox::new();
    let session = ClientSession::new(gateway.begin("stdio"), Route::Pipe(out.clone()));
    // The runtime has one thread, so no task that `begin` spawned gets a turn before the session is attached.
    gateway.engine.audience.attach_stdio(&session);
    let writer = tokio::spawn({
        let out = out.clone();
        async move { out.run(stdout).await }
    });
    let client = StdioClient { gateway: gateway.clone(), session: session.clone() };
    let reading = client.read(stdin);
    tokio::pin!(reading);
    let mut open = true;
    tokio::select! {
        () = &mut reading => open = false,
        () = shutdown => {}
    }
    session.end();
    let ending = async {
        let _ = timeout(DRAIN, session.answered()).await;
        session.cut_off(SHUTTING_DOWN);
        // Requests that wait for an upstream to start learn here that it has ended.
        gateway.engine.stop().await;
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

struct StdioClient {
    gateway: Arc<Gateway>,
    session: Arc<ClientSession>,
}

impl StdioClient {
    async fn read(&self, mut stdin: impl AsyncRead + Unpin) {
        let limit = self.gateway.engine.limit();
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
            Line::TooLong(TooLong { start, length, .. }) => {
                let id = raw_id(scanner, start).and_then(Id::from_raw);
                let limit = self.gateway.engine.settings().max_message_bytes;
                let message = format!("{length} bytes are more than the {limit} of maxMessageBytes");
                return self.take_message(Err(Malformed::new(id, &message)));
            }
        };
        match scanner.scan(text) {
            Err(invalid) => self.take_message(Err(Malformed::no_json(invalid))),
            Ok(doc) if doc.root().is_array() => self.take_batch(doc.root()),
            Ok(doc) => self.take_message(Message::read(doc.root())),
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
