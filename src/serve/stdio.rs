//! One client on our own stdin and stdout.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::{Gateway, SHUTTING_DOWN};
use crate::core::reply::Batch;
use crate::core::route::Route;
use crate::core::session::Session;
use crate::wire::cut_off::raw_id;
use crate::wire::era::Version;
use crate::wire::json::Scanner;
use crate::wire::lines::{Line, Lines, TooLong};
use crate::wire::message::{Id, Malformed, Message, code, error_object};
use crate::wire::outbox::Outbox;

/// What calls in flight may take to finish when the gateway ends.
const DRAIN: Duration = Duration::from_secs(1);
/// What a client may take to read the last answers.
const LAST_WRITE: Duration = Duration::from_millis(500);

/// Serves one client until it closes its end or `shutdown` resolves; then every call is answered and every upstream
/// gone.
pub async fn run(
    gateway: Arc<Gateway>,
    stdin: impl AsyncRead + Unpin,
    stdout: impl AsyncWrite + Unpin + Send + 'static,
    shutdown: impl Future<Output = ()>,
) {
    let out = Outbox::new();
    let window = gateway.window(0, "stdio", None);
    let session = Session::new(window.clone(), Route::Pipe(out.clone()));
    gateway.engine.audience.attach_stdio(&session);
    gateway.begin(&window);
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
        // What waits for an upstream to come up hears of its end.
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
    session: Arc<Session>,
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
            // A client that does not read its answers is not read from.
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
                let message =
                    format!("Invalid request: {length} bytes are more than the {limit} of maxMessageBytes");
                return self.refuse(id.as_ref(), code::INVALID_REQUEST, &message);
            }
        };
        match scanner.scan(text) {
            Err(invalid) => {
                let message = format!("Parse error: this is no JSON from byte {} on", invalid.offset);
                self.refuse(None, code::PARSE, &message);
            }
            Ok(doc) if doc.root().raw().starts_with('[') => self.take_batch(doc.root().raw()),
            Ok(doc) => self.gateway.take(&self.session, Message::read(doc.root()), None, None),
        }
    }

    /// Only 2025-03-26 has batches. Their answers leave together.
    fn take_batch(&self, text: &str) {
        if self.session.hello().is_none_or(|hello| hello.version != Version::V2025March) {
            return self.refuse(
                None,
                code::INVALID_REQUEST,
                "Invalid request: batches are part of 2025-03-26 only",
            );
        }
        let parts: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
        if parts.is_empty() {
            return self.refuse(None, code::INVALID_REQUEST, "Invalid request: the batch is empty");
        }
        let mut scanners: Vec<_> = parts.iter().map(|_| Scanner::default()).collect();
        let messages: Vec<_> = parts
            .iter()
            .zip(&mut scanners)
            .map(|(part, scanner)| {
                Message::read(scanner.scan_str(part.get()).expect("a part of valid JSON").root())
            })
            .collect();
        let answered =
            messages.iter().filter(|message| matches!(message, Ok(Message::Request { .. }) | Err(_))).count();
        let batch = Batch::new(answered);
        let mut ids = HashSet::new();
        for message in messages {
            let message = match message {
                Ok(Message::Request { id, .. }) if !ids.insert(id.key()) => Err(Malformed::ID_TWICE),
                message => message,
            };
            self.gateway.take(&self.session, message, None, Some(&batch));
        }
    }

    fn refuse(&self, id: Option<&Id>, code: i64, message: &str) {
        self.session.refuse(id, &error_object(code, message, None), None, None);
    }
}
