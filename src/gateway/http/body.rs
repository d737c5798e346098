//! Reads request bodies within limits of size and time.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Instant, timeout_at};

/// The longest time for a whole body.
const LONGEST: Duration = Duration::from_secs(300);

/// Reads the whole body, or returns the status that refuses it. A body longer than `limit` is never held in
/// memory, and `silence` is the longest pause inside a body.
pub(in crate::gateway) async fn read<B>(body: B, limit: usize, silence: Duration) -> Result<Bytes, StatusCode>
where
    B: Body<Data = Bytes>,
{
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let mut body = pin!(body);
    // The end of the time for all of it, once there was something to wait for.
    let mut end = None;
    let mut first = Bytes::new();
    let mut whole = Vec::new();
    loop {
        let frame = match next_frame(body.as_mut(), &mut end, silence).await? {
            Some(frame) => frame,
            None if whole.is_empty() => return Ok(first),
            None => return Ok(whole.into()),
        };
        let Ok(data) = frame.into_data() else { continue };
        if first.len().max(whole.len()) + data.len() > limit {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if first.is_empty() && whole.is_empty() {
            first = data;
        } else {
            if whole.is_empty() {
                whole.reserve_exact((announced as usize).max(first.len() + data.len()));
                whole.extend_from_slice(&std::mem::take(&mut first));
            }
            whole.extend_from_slice(&data);
        }
    }
}

/// The next part of a body. The clock is read only where a part has to be waited for.
async fn next_frame<B: Body<Data = Bytes>>(
    mut body: Pin<&mut B>,
    end: &mut Option<Instant>,
    silence: Duration,
) -> Result<Option<Frame<Bytes>>, StatusCode> {
    let mut next = std::future::poll_fn(|context| body.as_mut().poll_frame(context));
    let frame = match std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut next).poll(context))).await {
        Poll::Ready(frame) => frame,
        Poll::Pending => {
            let now = Instant::now();
            let deadline = (*end.get_or_insert(now + LONGEST)).min(now + silence);
            timeout_at(deadline, next).await.map_err(|_| StatusCode::REQUEST_TIMEOUT)?
        }
    };
    frame.transpose().map_err(|_| StatusCode::BAD_REQUEST)
}

/// The number of bytes of a refused body that are read and discarded.
const MOST_DISCARDED: usize = 64 * 1024 * 1024;
/// The longest time for discarding.
const DISCARDING: Duration = Duration::from_secs(60);

/// Reads on after the response for as long as data comes. A connection that is closed with unread bytes is
/// reset, and a client that is still sending would never see why it was refused.
pub(super) async fn discard<B: Body<Data = Bytes> + Unpin>(mut body: B, silence: Duration) {
    let mut left = MOST_DISCARDED;
    let end = Instant::now() + DISCARDING;
    loop {
        let deadline = end.min(Instant::now() + silence);
        let next = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let Ok(Some(Ok(frame))) = timeout_at(deadline, next).await else { return };
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
