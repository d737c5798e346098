//! A server on the loopback interface that receives the browser's redirect at the end of one login.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::flow::{CALLBACK, CallbackAnswer, Flow};

/// The time that a browser has to read the last page.
const LAST_PAGE: Duration = Duration::from_secs(2);
/// The number of concurrent connections. Browsers open some that they never use.
const MOST_CONNECTIONS: usize = 16;

/// Receives the answer to one login, once, passes it to `finish` and shows the browser the outcome. It ends
/// then, or after `patience`.
pub(super) async fn receive<F>(
    listener: TcpListener,
    flow: Flow,
    patience: Duration,
    finish: impl Fn(Flow, Result<String, String>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let (over, mut ended) = watch::channel(false);
    let server = Arc::new(CallbackServer { flow: Mutex::new(Some(flow)), finish, over });
    let mut connections = JoinSet::new();
    let serving = async {
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((stream, _)) = accepted else { continue };
                    if connections.len() >= MOST_CONNECTIONS {
                        connections.abort_all();
                    }
                    while connections.try_join_next().is_some() {}
                    let server = server.clone();
                    let service = service_fn(move |request| server.clone().answer(request));
                    connections.spawn(async move {
                        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                    });
                }
                _ = ended.wait_for(|over| *over) => return,
            }
        }
    };
    let _ = timeout(patience, serving).await;
    drop(listener);
    let _ = timeout(LAST_PAGE, async { while connections.join_next().await.is_some() {} }).await;
}

struct CallbackServer<C> {
    /// `None` once the login has been answered.
    flow: Mutex<Option<Flow>>,
    finish: C,
    over: watch::Sender<bool>,
}

impl<C> CallbackServer<C> {
    async fn answer<F>(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible>
    where
        C: Fn(Flow, Result<String, String>) -> F,
        F: Future<Output = Result<(), String>>,
    {
        if request.uri().path() != CALLBACK || request.method() != http::Method::GET {
            return Ok(page(StatusCode::NOT_FOUND, "There is nothing here."));
        }
        let taken = {
            let mut waiting = self.flow.lock();
            match waiting.as_ref().map(|flow| flow.read(request.uri().query().unwrap_or_default())) {
                None | Some(CallbackAnswer::Foreign) => None,
                Some(CallbackAnswer::Code(code)) => waiting.take().map(|flow| (flow, Ok(code))),
                Some(CallbackAnswer::Refused(reason)) => waiting.take().map(|flow| (flow, Err(reason))),
            }
        };
        let Some((flow, code)) = taken else {
            return Ok(page(
                StatusCode::BAD_REQUEST,
                "This answers no login that is under way. Begin it again.",
            ));
        };
        let outcome = (self.finish)(flow, code).await;
        self.over.send_replace(true);
        Ok(match outcome {
            Ok(()) => page(StatusCode::OK, "You are logged in and can close this window."),
            Err(reason) => page(StatusCode::BAD_REQUEST, &format!("The login has failed: {reason}.")),
        })
    }
}

/// A page with one sentence.
fn page(status: StatusCode, sentence: &str) -> Response<Full<Bytes>> {
    let sentence = sentence.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let html = format!("<!doctype html><meta charset=utf-8><title>MCP Workbench</title><p>{sentence}</p>\n");
    let mut response = Response::new(Full::new(Bytes::from(html)));
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (CONNECTION, "close"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
