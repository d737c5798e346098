//! A server that follows a script and records its requests.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::Log;

/// A received request.
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    /// The method of the message in the body, or empty.
    pub(super) rpc: String,
    /// The id of the message in the body, or 0.
    pub(super) id: u64,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("-", |value| value.to_str().unwrap())
    }
}

/// A scripted answer.
pub(super) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    steps: VecDeque<BodyStep>,
    /// The answer is held back until this is true.
    when: Option<watch::Receiver<bool>>,
    /// Closed when the client stops reading the answer.
    dropped: Option<oneshot::Sender<()>>,
}

/// A step in sending a body.
pub(super) enum BodyStep {
    Chunk(String),
    /// Sends whatever comes through the channel.
    From(mpsc::Receiver<String>),
    /// Breaks the connection once everything before has been sent.
    Break,
    Broken,
    /// Sends nothing more, and keeps the connection open.
    Hold,
}

impl Reply {
    pub(super) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), steps: VecDeque::new(), when: None, dropped: None }
    }

    pub(super) fn json(text: impl Into<String>) -> Self {
        Self::status(200).kind("application/json").text(text)
    }

    pub(super) fn events(text: impl Into<String>) -> Self {
        Self::status(200).kind("text/event-stream").text(text)
    }

    pub(super) fn kind(self, kind: &str) -> Self {
        self.with("content-type", kind)
    }

    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn text(self, text: impl Into<String>) -> Self {
        self.then(BodyStep::Chunk(text.into()))
    }

    pub(super) fn then(mut self, step: BodyStep) -> Self {
        self.steps.push_back(step);
        self
    }

    pub(super) fn when(mut self, when: watch::Receiver<bool>) -> Self {
        self.when = Some(when);
        self
    }

    pub(super) fn dropped(mut self, dropped: oneshot::Sender<()>) -> Self {
        self.dropped = Some(dropped);
        self
    }
}

/// A running server, which ends when it is dropped.
pub(super) struct Server {
    pub(super) url: String,
    pub(super) log: Log,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Starts a server that answers as `script` says. Requests are logged as `METHOD rpc-method session=…
    /// version=… last=…` without the absent parts.
    pub(super) async fn start(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let log = Log::default();
        let script = Arc::new(script);
        let mut tasks = JoinSet::new();
        let written = log.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, log) = (script.clone(), written.clone());
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(script.clone(), log.clone(), request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { url, log, _tasks: tasks }
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}

async fn answer(
    script: Arc<impl Fn(&Asked) -> Reply>,
    log: Log,
    request: Request<Incoming>,
) -> Result<Response<Steps>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let message: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let rpc = message["method"].as_str().unwrap_or(if body.is_empty() { "" } else { "answer" }).to_owned();
    let id = message["id"].as_u64().unwrap_or_default();
    let path = parts.uri.path_and_query().unwrap().to_string();
    let asked = Asked { method: parts.method, path, headers: parts.headers, body, rpc, id };
    let mut line = format!("{} {}", asked.method, asked.rpc).trim().to_owned();
    for (short, name) in
        [("session", "mcp-session-id"), ("version", "mcp-protocol-version"), ("last", "last-event-id")]
    {
        if asked.headers.contains_key(name) {
            line += &format!(" {short}={}", asked.header(name));
        }
    }
    log.lock().push(line);
    let reply = script(&asked);
    if let Some(mut when) = reply.when {
        let _ = when.wait_for(|now| *now).await;
    }
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    Ok(response.body(Steps { steps: reply.steps, _dropped: reply.dropped }).unwrap())
}

struct Steps {
    steps: VecDeque<BodyStep>,
    _dropped: Option<oneshot::Sender<()>>,
}

impl Body for Steps {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            match self.steps.front_mut() {
                None => return Poll::Ready(None),
                Some(BodyStep::Hold) => return Poll::Pending,
                Some(step @ BodyStep::Break) => {
                    *step = BodyStep::Broken;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(BodyStep::Broken) => return Poll::Ready(Some(Err(io::Error::other("broken as asked")))),
                Some(BodyStep::From(channel)) => match channel.poll_recv(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(text)) => return Poll::Ready(Some(Ok(Frame::data(text.into())))),
                    Poll::Ready(None) => self.steps.pop_front(),
                },
                Some(BodyStep::Chunk(text)) => {
                    let text = std::mem::take(text);
                    self.steps.pop_front();
                    return Poll::Ready(Some(Ok(Frame::data(text.into()))));
                }
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }
}
