//! Bodies of HTTP answers.

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming as HttpBody};

use super::connect::Failure;

/// Whether the body is an event stream.
pub(in crate::transport) fn is_event_stream<B>(response: &Response<B>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
}

/// The failure for a message over the limit.
pub(in crate::transport) fn too_long(length: usize, limit: usize) -> Failure {
    Failure::new(format!("the answer has {length} bytes, more than the {limit} of maxMessageBytes"))
}

/// Reads the whole body, if it is within the limit.
pub(in crate::transport) async fn collect(mut body: HttpBody, limit: usize) -> Result<Bytes, Failure> {
    if let Some(length) = body.size_hint().exact().and_then(|length| usize::try_from(length).ok())
        && length > limit
    {
        return Err(too_long(length, limit));
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::broken("the connection broke in the middle of the answer"))?;
        let Ok(chunk) = frame.into_data() else { continue };
        let length = first.len() + all.len() + chunk.len();
        if length > limit {
            let message = format!("the answer has more than the {limit} bytes of maxMessageBytes");
            return Err(Failure::new(message));
        }
        if first.is_empty() && all.is_empty() {
            first = chunk;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&chunk);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}
