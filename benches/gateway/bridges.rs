//! What the gateway over HTTP is compared with, on the same HTTP library and one thread, as it is: a handler that answers
//! at once, and the least that leads from HTTP to a pipe.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, oneshot};

use crate::roles::Era;
use crate::scene;

/// Answers every request with the same bytes, its body unread but for its end.
pub(crate) fn constant(size: usize) {
    let text = "x".repeat(size);
    let answer = Bytes::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}}}"
    ));
    serve(1, async move || {
        move |_: Bytes| {
            let answer = answer.clone();
            async move { answer }
        }
    });
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    id: u64,
    #[serde(borrow)]
    result: &'a RawValue,
}

type Waiting = Arc<Mutex<(u64, HashMap<u64, oneshot::Sender<Bytes>>)>>;

/// Reads a request, gives it an id of its own, writes it to an upstream's stdin, and answers with what comes back.
/// `fronts` is the number of threads that speak HTTP.
pub(crate) fn bridge(era: Era, fronts: usize) {
    serve(fronts, async move || {
        let mut command = tokio::process::Command::from(scene::upstream_of(era, 1));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this executable starts");
        let (mut to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (send, mut receive) = mpsc::channel::<Vec<u8>>(1024);
        let waiting: Waiting = Arc::default();
        tokio::spawn(async move {
            let _child = child;
            let mut lines = Vec::new();
            while receive.recv_many(&mut lines, 64).await > 0 {
                if to.write_all(&lines.concat()).await.is_err() {
                    return;
                }
                lines.clear();
            }
        });
        tokio::spawn(read(BufReader::new(from), waiting.clone()));
        move |body: Bytes| {
            let (waiting, send) = (waiting.clone(), send.clone());
            async move { exchange(&body, &waiting, &send).await }
        }
    });
}

async fn exchange(body: &[u8], waiting: &Waiting, send: &mpsc::Sender<Vec<u8>>) -> Bytes {
    let request: Envelope<'_> = serde_json::from_slice(body).expect("a request");
    let (tell, told) = oneshot::channel();
    let id = {
        let mut waiting = waiting.lock().expect("no panic");
        waiting.0 += 1;
        let id = waiting.0;
        waiting.1.insert(id, tell);
        id
    };
    let params = request.params.map_or("{}", RawValue::get);
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{}\",\"params\":{params}}}\n",
        request.method
    );
    send.send(line.into_bytes()).await.expect("the writer lives");
    let result = told.await.expect("an answer");
    let mut answer = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    answer.extend_from_slice(request.id.map_or("null", RawValue::get).as_bytes());
    answer.extend_from_slice(b",\"result\":");
    answer.extend_from_slice(&result);
    answer.push(b'}');
    answer.into()
}

async fn read(mut from: BufReader<tokio::process::ChildStdout>, waiting: Waiting) {
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        let answer: Answer<'_> = serde_json::from_slice(&line).expect("an answer");
        let tell = waiting.lock().expect("no panic").1.remove(&answer.id).expect("we asked");
        let _ = tell.send(Bytes::copy_from_slice(answer.result.get().as_bytes()));
        line.clear();
    }
}

/// Serves on a free port, says which, and ends with stdin. Each front thread accepts, reads and answers by itself; what
/// `prepare` spawns runs on the first.
fn serve<H, F>(fronts: usize, prepare: impl AsyncFnOnce() -> H)
where
    H: Fn(Bytes) -> F + Clone + Send + 'static,
    F: Future<Output = Bytes> + Send + 'static,
{
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime().block_on(async {
        let handler = prepare().await;
        let first = listen(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = first.local_addr().expect("it is bound");
        for _ in 1..fronts {
            let handler = handler.clone();
            std::thread::spawn(move || runtime().block_on(async { accept(listen(address), handler).await }));
        }
        println!("listening on http://{address}/mcp");
        std::io::stdout().flush().expect("somebody reads");
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::exit(0);
        });
        accept(first, handler).await;
    });
}

/// A listener beside others on the same port, among which the system shares connections out.
fn listen(address: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseport(true).expect("an option");
    socket.bind(address).expect("a port");
    socket.listen(1024).expect("it listens")
}

async fn accept<H, F>(listener: TcpListener, handler: H)
where
    H: Fn(Bytes) -> F + Clone + Send + 'static,
    F: Future<Output = Bytes> + Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let _ = stream.set_nodelay(true);
        let handler = handler.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let handler = handler.clone();
            async move {
                let body = request.into_body().collect().await.expect("a body").to_bytes();
                let mut response = Response::new(Full::new(handler(body).await));
                let kind = hyper::header::HeaderValue::from_static("application/json");
                response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
                Ok::<_, Infallible>(response)
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
