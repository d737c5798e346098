//! HTTP responses: bodies, headers, and refusals.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

use super::annex::AnnexBody;
use super::stream::{CutOff, Reader};
use crate::protocol::era::OUR_NAME;
use crate::protocol::message::{Id, Malformed, Refusal, code, is_modern_code};

pub(super) type HttpAnswer = Response<Payload>;

/// The reason why a message is refused, and the HTTP status.
pub(super) struct Denied {
    pub(super) status: StatusCode,
    /// The id of the request, if it could be read.
    pub(super) id: Option<Id>,
    pub(super) why: Refusal,
}

impl Denied {
    /// A refusal with this message.
    pub(super) fn new(status: StatusCode, words: impl Into<String>) -> Self {
        Self { status, id: None, why: Refusal::new(code::INVALID_REQUEST, words) }
    }

    /// The refusal of the request with this id.
    pub(super) fn to(self, id: Id) -> Self {
        Self { id: Some(id), ..self }
    }

    pub(super) fn answer(&self) -> HttpAnswer {
        let mut message = Vec::new();
        self.why.write(&mut message, self.id.as_ref());
        json(self.status, message)
    }
}

impl From<Refusal> for Denied {
    fn from(why: Refusal) -> Self {
        Self { status: StatusCode::BAD_REQUEST, id: None, why }
    }
}

impl From<Malformed> for Denied {
    fn from(Malformed { id, why }: Malformed) -> Self {
        Self { status: StatusCode::BAD_REQUEST, id, why }
    }
}

/// The body of a response.
pub(super) enum Payload {
    /// A body that is complete.
    Whole(Bytes),
    /// Events as they come.
    Events(Box<Events>),
    /// What an annex answers.
    Annex(AnnexBody),
    /// Events that another replica sends.
    Carried(mpsc::Receiver<Bytes>),
}

/// The reading of a stream by one connection.
pub(super) struct Events {
    pub(super) reader: Reader,
    start: Option<Bytes>,
    silence: Duration,
    alarm: Pin<Box<Sleep>>,
    /// Dropped when the client is gone or has received everything.
    _held: Box<dyn Send>,
}

impl Body for Payload {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let events = match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Self::Whole(bytes) => return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Events(events) => events,
            Self::Annex(body) => {
                let frame = ready!(body.as_mut().poll_frame(context));
                return Poll::Ready(frame.map(|frame| frame.map_err(|never| match never {})));
            }
            Self::Carried(pieces) => {
                let piece = ready!(pieces.poll_recv(context));
                return Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))));
            }
        };
        let bytes = match events.start.take() {
            Some(start) => start,
            None => match events.reader.poll_events(context) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(bytes))) => bytes,
                Poll::Pending => {
                    ready!(events.alarm.as_mut().poll(context));
                    Bytes::from_static(b":\n\n")
                }
            },
        };
        events.alarm.as_mut().reset(Instant::now() + events.silence);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Events(_) | Self::Carried(_) => false,
            Self::Annex(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Events(_) | Self::Carried(_) => SizeHint::default(),
            Self::Annex(body) => body.size_hint(),
        }
    }
}

impl std::fmt::Display for CutOff {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("the client does not read its stream")
    }
}

impl std::error::Error for CutOff {}

pub(super) fn empty(status: StatusCode) -> HttpAnswer {
    let mut answer = Response::new(Payload::Whole(Bytes::new()));
    *answer.status_mut() = status;
    answer
}

pub(super) fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> HttpAnswer {
    let mut answer = Response::new(Payload::Whole(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// The HTTP status of a modern request's only answer.
pub(super) fn modern_status(error: Option<i64>) -> StatusCode {
    match error {
        Some(code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(code::STORE_AWAY) => StatusCode::SERVICE_UNAVAILABLE,
        Some(code) if is_modern_code(code) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> HttpAnswer {
    whole(status, "application/json", body)
}

/// Sends events as they come, and a sign of life after each such `silence`. `held` is dropped when the client
/// is gone or has received everything.
pub(super) fn event_stream(
    reader: Reader,
    start: Option<Bytes>,
    silence: Duration,
    held: Box<dyn Send>,
) -> HttpAnswer {
    let stream = Events { reader, start, silence, alarm: Box::pin(sleep(silence)), _held: held };
    events(Payload::Events(Box::new(stream)))
}

pub(super) fn events(body: Payload) -> HttpAnswer {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    answer
}

pub(super) fn text(status: StatusCode, words: impl Into<String>) -> HttpAnswer {
    whole(status, "text/plain; charset=utf-8", words.into() + "\n")
}

/// Refuses a request before its message is read.
pub(super) fn refuse(status: StatusCode, words: impl Into<String>) -> HttpAnswer {
    Denied::new(status, words).answer()
}

pub(super) fn nothing_here() -> HttpAnswer {
    refuse(StatusCode::NOT_FOUND, "nothing is served at this path; try /mcp")
}

/// What a person sees who opens our address in a browser, whoever that is: it names nothing of the configuration.
pub(super) fn page() -> HttpAnswer {
    let body = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{OUR_NAME}</title>\n\
         <h1>{OUR_NAME}</h1>\n\
         <p>A gateway to MCP servers, for programs that speak the Model Context Protocol.</p>\n\
         <p>Its address for them is this one with <code>/mcp</code> at the end.</p>\n</html>\n"
    );
    whole(StatusCode::OK, "text/html; charset=utf-8", body)
}

pub(super) fn closing(mut answer: HttpAnswer) -> HttpAnswer {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

pub(super) fn draining() -> HttpAnswer {
    closing(refuse(StatusCode::SERVICE_UNAVAILABLE, "the gateway is shutting down"))
}

/// Refuses what nobody can do without the store.
pub(super) fn store_away() -> HttpAnswer {
    try_again(refuse(StatusCode::SERVICE_UNAVAILABLE, "the store that the replicas share is away; try again"))
}

/// Lets a client try again after a second.
pub(super) fn try_again(mut answer: HttpAnswer) -> HttpAnswer {
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

pub(super) fn wrong_method(allowed: &'static str) -> HttpAnswer {
    let mut answer = refuse(StatusCode::METHOD_NOT_ALLOWED, format!("allowed here: {allowed}"));
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    answer
}

pub(super) fn unauthorized() -> HttpAnswer {
    let mut answer = refuse(StatusCode::UNAUTHORIZED, "a bearer token is needed");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

pub(super) fn answer_preflight(headers: &HeaderMap) -> HttpAnswer {
    let mut answer = empty(StatusCode::NO_CONTENT);
    let out = answer.headers_mut();
    out.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    // The `Mcp-Param-…` headers cannot be listed, and `*` would exclude `Authorization`.
    if let Some(wanted) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        out.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    out.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    out.append(header::VARY, HeaderValue::from_static("Access-Control-Request-Headers"));
    answer
}
