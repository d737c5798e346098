//! The HTTP+SSE transport of 2024-11-05: one stream carries everything that the server says, and its first
//! event names the address for POSTs.

use http_body_util::BodyExt;
use hyper::body::Incoming as HttpBody;
use tokio::time::timeout;

use super::connect::Failure;
use super::exchange::Shared;
use super::sort::Stream;
use super::uri::{resolve, same_origin};
use super::{Receive, TaskOutcome};
use crate::transport::sse::Parser;

/// An open stream whose first event has been read.
pub(super) struct OldStream {
    body: HttpBody,
    parser: Parser,
    /// Messages that arrived in one chunk with the first event.
    early: Vec<Vec<u8>>,
}

impl<R: Receive> Shared<R> {
    /// Whether the server speaks the old transport.
    pub(super) fn is_old(&self) -> bool {
        self.sessions.old_endpoint().is_some()
    }

    /// Opens the stream and waits for the address that it names. The address must have our own origin,
    /// because credentials go nowhere else.
    pub(super) async fn open_old(&self) -> Result<OldStream, Failure> {
        let opening = async {
            let mut body = self.get_stream(None, None).await?;
            let mut parser = self.parser();
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(chunk) = frame.into_data() else { continue };
                let mut endpoint = None;
                let mut early = Vec::new();
                parser.feed(&chunk, |event| match &endpoint {
                    None => {
                        endpoint =
                            Some((event.name == "endpoint", String::from_utf8_lossy(event.data).into_owned()))
                    }
                    Some(_) => early.push(event.data.to_vec()),
                });
                match endpoint {
                    None => {}
                    Some((true, endpoint)) => return Ok((OldStream { body, parser, early }, endpoint)),
                    Some((false, _)) => break,
                }
            }
            Err(Failure::new("the server's event stream names no `endpoint`; is it an HTTP+SSE server?"))
        };
        let late = |_| Err(Failure::new("the server's event stream names no `endpoint` in time"));
        let (stream, endpoint) = timeout(self.patience().answer, opening).await.unwrap_or_else(late)?;
        let endpoint = resolve(&self.url, &endpoint).filter(|endpoint| same_origin(&self.url, endpoint));
        let endpoint = endpoint.ok_or_else(|| {
            Failure::new("the server names an `endpoint` of another origin, where nothing is sent")
        })?;
        self.sessions.set_old_endpoint(endpoint);
        Ok(stream)
    }

    /// Reads the stream. Its end is the end of the session.
    pub(super) async fn read_old(&self, stream: OldStream) -> TaskOutcome {
        let OldStream { mut body, mut parser, early } = stream;
        for message in early {
            self.hand(None, &message);
        }
        let _ = self.read_stream(&mut parser, &mut body, Stream::Only).await;
        TaskOutcome::Fatal(Failure::new("the server ended the event stream"))
    }
}
