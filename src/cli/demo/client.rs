//! A client small enough to be read: it starts a gateway and speaks MCP with it, one request at a time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::core::process::{Control, Launch, Launcher, Stdin, Stdout};

/// The longest that any request may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest that a gateway may take to end by itself.
pub(super) const FAREWELL: Duration = Duration::from_secs(5);

/// A connection to a gateway of its own, which ends with the connection.
pub(super) struct Client {
    stdin: Stdin,
    stdout: Lines<BufReader<Stdout>>,
    stderr: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
    control: Control,
    last_id: u64,
}

/// A message as it was written.
pub(super) enum ShownMessage {
    /// From the client to the gateway.
    Sent(String),
    /// From the gateway to the client.
    Received(String),
}

/// What came back after a request.
pub(super) struct DemoAnswer {
    /// The result.
    pub(super) result: Value,
    /// The request, the notifications that came before the answer, and the answer.
    pub(super) lines: Vec<ShownMessage>,
}

#[derive(Deserialize)]
struct Message {
    id: Option<u64>,
    method: Option<String>,
    result: Option<Value>,
}

impl Client {
    /// Starts the gateway. It is gone once `alive` is dropped.
    pub(super) fn start(launcher: &Launcher, launch: &Launch, alive: mpsc::Sender<()>) -> io::Result<Self> {
        let child = launcher.spawn(launch)?;
        let stderr = Arc::new(Mutex::new(String::new()));
        let (kept, mut pipe) = (stderr.clone(), child.stderr);
        let reader = tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
                kept.lock().push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
            drop(alive);
        });
        let stdout = BufReader::new(child.stdout).lines();
        Ok(Self { stdin: child.stdin, stdout, stderr, reader, control: child.control, last_id: 0 })
    }

    /// Sends a request and waits for its answer; `params` are JSON.
    pub(super) async fn request(&mut self, method: &str, params: &str) -> io::Result<DemoAnswer> {
        self.last_id += 1;
        let id = self.last_id;
        let sent = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        self.send(&sent).await?;
        let mut lines = vec![ShownMessage::Sent(sent)];
        loop {
            let line = match timeout(PATIENCE, self.stdout.next_line()).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => return Err(self.broken(&format!("ended before it answered {method}"))),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(self.broken(&format!("did not answer {method} in time"))),
            };
            let message: Message =
                serde_json::from_str(&line).map_err(|_| self.broken(&format!("sent this: {line}")))?;
            match message {
                Message { method: Some(_), id: None, .. } => lines.push(ShownMessage::Received(line)),
                Message { id: Some(answered), method: None, result: Some(result) } if answered == id => {
                    lines.push(ShownMessage::Received(line));
                    return Ok(DemoAnswer { result, lines });
                }
                _ => return Err(self.broken(&format!("answered {method} with this: {line}"))),
            }
        }
    }

    /// Sends a notification.
    pub(super) async fn notify(&mut self, method: &str) -> io::Result<()> {
        self.send(&format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)).await
    }

    /// Closes the gateway's stdin, as a departing client does, and waits until nothing of the gateway is
    /// left.
    pub(super) async fn end(mut self) {
        drop(self.stdin);
        let _ = timeout(FAREWELL, self.control.exited()).await;
        self.control.stop(Duration::ZERO).await;
        self.reader.abort();
    }

    async fn send(&mut self, line: &str) -> io::Result<()> {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await
    }

    fn broken(&self, what: &str) -> io::Error {
        let stderr = self.stderr.lock();
        io::Error::other(format!("the gateway {what}\n{stderr}").trim_end().to_owned())
    }
}
