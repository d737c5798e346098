//! HTTP connections: the pool, TLS, redirects, and errors in words for a user.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{HttpConnector, HttpInfo};
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use tower_service::Service;

use super::authorities;
use super::reach::{Gate, OutOfBounds, Reach};
use super::uri::{origin, resolve, same_origin};

/// The limit for name look-up, TCP and TLS together.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept. Common servers close theirs after five seconds; a request that meets
/// that close is lost, because it may not be sent again.
const IDLE: Duration = Duration::from_secs(4);
/// The number of idle connections that are kept.
const KEPT: usize = 32;
/// The interval of TCP keep-alive probes, which detect dead peers of silent streams.
const PROBE: Duration = Duration::from_secs(60);
/// The number of redirects that are followed for one request.
const MOST_REDIRECTS: usize = 5;

/// The reason for a missing or useless HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The reason for a user; it holds no secret.
    pub message: String,
    /// The status of the HTTP answer, if there was one.
    pub status: Option<u16>,
    /// Whether no connection could be made, so that nothing was sent.
    pub unreachable: bool,
    /// Whether an existing connection broke.
    pub broken: bool,
    /// Whether somebody has to log in first, or has done so in vain.
    pub unauthorized: bool,
}

impl Failure {
    pub(in crate::transport) fn new(message: impl Into<String>) -> Self {
        let message = message.into();
        Self { message, status: None, unreachable: false, broken: false, unauthorized: false }
    }

    /// The failure of a connection that broke before the answer was complete.
    pub(in crate::transport) fn broken(message: &str) -> Self {
        Self { broken: true, ..Self::new(message) }
    }

    /// The failure of a request that no token can make acceptable.
    pub(in crate::transport) fn unauthorized(status: StatusCode, reason: String) -> Self {
        let status = Some(status.as_u16());
        Self { status, unauthorized: true, ..Self::new(reason) }
    }

    /// The failure of an answer without a success status.
    pub(in crate::transport) fn status(status: StatusCode) -> Self {
        let hint = match status {
            StatusCode::UNAUTHORIZED => ": it needs credentials; set or correct `headers`",
            StatusCode::FORBIDDEN => ": it refuses these credentials or this address",
            _ => "",
        };
        let message = match status.canonical_reason() {
            Some(reason) => format!("the server answered HTTP {} {reason}{hint}", status.as_u16()),
            None => format!("the server answered HTTP {}", status.as_u16()),
        };
        Self { status: Some(status.as_u16()), ..Self::new(message) }
    }
}

/// The HTTP side of one upstream: its connections and the headers from the configuration.
pub(in crate::transport) struct Http {
    client: Client<Connector<HttpsConnector<HttpConnector<Gate>>>, Full<Bytes>>,
    headers: HeaderMap,
    reach: Reach,
}

impl Http {
    /// Sets up what `url` needs: certificates are read for an `https` URL. All connections go through the gate.
    pub(in crate::transport) async fn new(url: &Uri, headers: HeaderMap, gate: Gate) -> Result<Self, String> {
        let tls = match url.scheme_str() {
            Some("https") => {
                let authorities = gate.authorities.clone();
                let reading = tokio::task::spawn_blocking(move || authorities.tls());
                reading.await.map_err(|error| error.to_string())??
            }
            _ => authorities::none()?,
        };
        Ok(Self::with_tls(tls, headers, gate))
    }

    /// Like [`Http::new`], with a given TLS configuration.
    pub(in crate::transport) fn with_tls(tls: Arc<ClientConfig>, headers: HeaderMap, gate: Gate) -> Self {
        let reach = gate.reach;
        let mut tcp = HttpConnector::new_with_resolver(gate);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(PROBE));
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(ClientConfig::clone(&tls))
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(KEPT)
            .build(Connector { inner: tls, reach });
        Self { client, headers, reach }
    }

    /// Sends one request, and follows redirects within the origin.
    pub(in crate::transport) async fn send(
        &self,
        method: Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let mut uri = uri.clone();
        for _ in 0..=MOST_REDIRECTS {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = method.clone();
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = self.headers.clone();
            for (name, value) in headers {
                request.headers_mut().insert(name, value.clone());
            }
            let response = self.client.request(request).await.map_err(|error| {
                let unreachable = error.is_connect();
                Failure { unreachable, broken: !unreachable, ..Failure::new(words(&error, &uri)) }
            })?;
            if !matches!(response.status().as_u16(), 301 | 302 | 307 | 308) {
                return Ok(response);
            }
            let status = Some(response.status().as_u16());
            let failure = |message: String| Failure { status, ..Failure::new(message) };
            let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
            let Some(target) = location.and_then(|location| resolve(&uri, location)) else {
                return Err(failure("the server redirects to nowhere".into()));
            };
            if !same_origin(&uri, &target) {
                let hint = match self.reach {
                    Reach::Configured => "; if that is right, put the new URL into the configuration",
                    _ => "",
                };
                return Err(failure(format!(
                    "the server redirects to {}, which is another origin and is not followed{hint}",
                    origin(&target)
                )));
            }
            uri = target;
        }
        Err(Failure::new("the server redirects in a circle"))
    }
}

/// The address from which an answer came.
pub(in crate::transport) fn peer<T>(response: &Response<T>) -> Option<IpAddr> {
    response.extensions().get::<HttpInfo>().map(|info| info.remote_addr().ip())
}

/// A connector with a deadline over all of its steps, which refuses addresses out of reach. The [`Gate`]
/// inside it checks names but never sees literal addresses, so this connector checks those.
#[derive(Clone)]
struct Connector<S> {
    inner: S,
    reach: Reach,
}

type BoxError = Box<dyn Error + Send + Sync>;

impl<S> Service<Uri> for Connector<S>
where
    S: Service<Uri, Error = BoxError>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        if let Err(refused) = self.reach.check(&uri) {
            return Box::pin(std::future::ready(Err(refused.into())));
        }
        let connecting = self.inner.call(uri);
        Box::pin(async move {
            tokio::time::timeout(CONNECT, connecting)
                .await
                .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
        })
    }
}

/// The innermost error with a useful message.
pub(in crate::transport) fn words(error: &(dyn Error + 'static), uri: &Uri) -> String {
    let mut chain = std::iter::successors(Some(error), |error| Error::source(*error));
    if let Some(refused) = chain.find_map(|error| error.downcast_ref::<OutOfBounds>()) {
        return refused.to_string();
    }
    let mut next = Some(error);
    let mut last = String::new();
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return match error {
                rustls::Error::InvalidCertificate(reason) => {
                    format!("TLS: the certificate of {} is not accepted: {reason}", origin(uri))
                }
                rustls::Error::InvalidMessage(_) => {
                    format!("TLS: {} does not speak TLS; is its URL http://?", origin(uri))
                }
                error => format!("TLS: {error}"),
            };
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && error.is_incomplete_message()
        {
            return "the server closed the connection without an answer".into();
        }
        let text = error.to_string();
        if text == "dns error" {
            return format!("the host name {} cannot be resolved", uri.host().unwrap_or_default());
        }
        next = error.source();
        if let Some(error) = error.downcast_ref::<io::Error>() {
            match error.kind() {
                io::ErrorKind::ConnectionRefused => return format!("connection refused by {}", origin(uri)),
                io::ErrorKind::TimedOut => {
                    return format!("connection timeout: {} does not answer", origin(uri));
                }
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                    return "the server broke the connection".into();
                }
                io::ErrorKind::UnexpectedEof => return "the server closed the connection".into(),
                // `source` of an error that wraps another one skips the wrapped error.
                _ => {
                    if let Some(inner) = error.get_ref() {
                        next = Some(inner);
                    }
                }
            }
        }
        last = text;
    }
    format!("the connection failed: {last}")
}
