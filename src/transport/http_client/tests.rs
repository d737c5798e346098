//! Tests of the client against scripted servers in the same process.

mod answers;
mod faults;
mod reach;
mod server;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::server::Server;
use super::{Endpoint, Failure, HttpClient, Incoming, Patience, Receive};
use crate::protocol::tool_headers::ToolHeaders;

/// A test that takes this long hangs.
const HANGING: Duration = Duration::from_secs(10);
const LIMIT: usize = 4096;

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const RENEWED: &str = r#"[renewed {"protocolVersion":"2025-11-25"}]"#;
const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}"#;

/// A client under test.
struct Client {
    out: Option<mpsc::Sender<Vec<u8>>>,
    received: mpsc::Receiver<String>,
    run: JoinHandle<Result<(), Failure>>,
    tools: Arc<ToolHeaders>,
}

impl Client {
    fn of(server: &Server) -> Self {
        Self::at(Endpoint { url: server.url.clone(), headers: Vec::new(), sse: false })
    }

    fn at(endpoint: Endpoint) -> Self {
        let mut client = HttpClient::new(endpoint, LIMIT).unwrap();
        client.patience = Patience {
            retry: Duration::from_millis(20),
            lost: Duration::from_millis(50),
            farewell: Duration::from_secs(5),
            answer: Duration::from_secs(5),
        };
        let tools = client.tool_headers();
        let (out, outgoing) = mpsc::channel(64);
        let (send, received) = mpsc::channel(4096);
        let run = tokio::spawn(client.run(outgoing, Taker(send)));
        Self { out: Some(out), received, run, tools }
    }

    async fn send(&self, message: &str) {
        self.out.as_ref().unwrap().send(message.as_bytes().to_vec()).await.unwrap();
    }

    /// Sends a legacy request.
    async fn call(&self, id: u64, method: &str) {
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)).await;
    }

    /// Sends a modern request.
    async fn ask(&self, id: u64, method: &str, params: &str) {
        self.send(&modern(id, method, params)).await;
    }

    /// The next message, as `{on} {message}`.
    async fn next(&mut self) -> String {
        timeout(HANGING, self.received.recv()).await.expect("a message in time").expect("a message")
    }

    async fn expect(&mut self, expected: &str) {
        assert_eq!(self.next().await, expected);
    }

    /// Opens a legacy session.
    async fn greet(&mut self) {
        self.send(INITIALIZE).await;
        self.expect(&format!("1 {HELLO}")).await;
        self.send(INITIALIZED).await;
    }

    /// Closes the client and waits for its end.
    async fn close(mut self) -> (Result<(), String>, Vec<String>) {
        self.out = None;
        self.end().await
    }

    /// Waits for the client's end, and returns the remaining messages.
    async fn end(mut self) -> (Result<(), String>, Vec<String>) {
        let result = timeout(HANGING, self.run).await.expect("an end in time").unwrap();
        let mut rest = Vec::new();
        while let Some(message) = self.received.recv().await {
            rest.push(message);
        }
        (result.map_err(|failure| failure.message), rest)
    }
}

/// Passes everything on as text; events that are not messages are in brackets.
struct Taker(mpsc::Sender<String>);

impl Receive for Taker {
    fn take(&self, incoming: Incoming<'_>) {
        let on = incoming.on.map_or("-".to_owned(), |id| id.to_string());
        self.0.try_send(format!("{on} {}", String::from_utf8_lossy(incoming.message))).unwrap();
    }

    fn renewed(&self, hello: &str) -> Result<(), String> {
        self.0.try_send(format!("[renewed {hello}]")).unwrap();
        if hello.contains("1999") { Err("too old".to_owned()) } else { Ok(()) }
    }

    fn missed(&self) {
        self.0.try_send("[missed]".to_owned()).unwrap();
    }
}

fn modern(id: u64, method: &str, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
    )
}

/// A result for this request, with a text in it.
fn result(id: u64, text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"text":"{text}"}}}}"#)
}

/// An error of our own.
fn error(id: u64, message: &str, status: Option<u16>) -> String {
    let data = status.map(|status| format!(r#","data":{{"httpStatus":{status}}}"#)).unwrap_or_default();
    format!(r#"{id} {{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"{message}"{data}}}}}"#)
}

type Log = Arc<Mutex<Vec<String>>>;
