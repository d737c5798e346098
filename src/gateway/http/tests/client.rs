//! A client that speaks raw HTTP.

use std::collections::HashMap;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PATIENCE;

pub(super) struct Client(pub(super) BufReader<TcpStream>);

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: HashMap<String, String>,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The code of the JSON-RPC error in the body.
    pub(super) fn code(&self) -> Option<i64> {
        let body: serde_json::Value = serde_json::from_str(&self.body).ok()?;
        body["error"]["code"].as_i64()
    }

    pub(super) fn is_event_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }
}

impl Client {
    pub(super) async fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    pub(super) async fn ask(&mut self, request: &str) -> Reply {
        self.send(request).await;
        self.reply().await
    }

    /// Reads a whole response.
    pub(super) async fn reply(&mut self) -> Reply {
        let mut reply = self.head().await;
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk().await {
                reply.body.push_str(&chunk);
            }
        } else if let Some(length) = reply.header("content-length") {
            let mut body = vec![0; length.parse().unwrap()];
            timeout(PATIENCE, self.0.read_exact(&mut body)).await.unwrap().unwrap();
            reply.body = String::from_utf8(body).unwrap();
        }
        reply
    }

    pub(super) async fn head(&mut self) -> Reply {
        let status = self.line().await;
        let status =
            status.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {status:?}")).parse().unwrap();
        let mut headers = HashMap::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        Reply { status, headers, body: String::new() }
    }

    pub(super) async fn line(&mut self) -> String {
        let mut line = String::new();
        timeout(PATIENCE, self.0.read_line(&mut line)).await.expect("a line comes").unwrap();
        line.trim_end().to_owned()
    }

    /// One chunk of a stream; `None` at its proper end.
    pub(super) async fn chunk(&mut self) -> Option<String> {
        let length = self.line().await;
        let length =
            usize::from_str_radix(&length, 16).unwrap_or_else(|_| panic!("the stream broke: {length:?}"));
        let mut chunk = vec![0; length + 2];
        timeout(PATIENCE, self.0.read_exact(&mut chunk)).await.expect("the chunk comes").unwrap();
        chunk.truncate(length);
        (length > 0).then(|| String::from_utf8(chunk).unwrap())
    }

    /// The data of at least `count` further events.
    pub(super) async fn events(&mut self, count: usize) -> Vec<String> {
        let mut text = String::new();
        while events_in(&text).len() < count {
            text.push_str(&self.chunk().await.expect("more events come"));
        }
        events_in(&text)
    }

    /// Whether the server closed the connection.
    pub(super) async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        matches!(timeout(PATIENCE, self.0.read_to_end(&mut rest)).await, Ok(Ok(_) | Err(_)))
    }
}

/// Each whole event as `id data`.
pub(super) fn events_in(text: &str) -> Vec<String> {
    let event = |block: &str| {
        let field = |name| block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        block.contains("data: ").then(|| format!("{} {}", field("id: "), field("data: ")))
    };
    text.split_inclusive("\n\n").filter(|block| block.ends_with("\n\n")).filter_map(event).collect()
}
