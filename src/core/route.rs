//! The ways that messages to a client take, and the kinds of these messages.
//!
//! Invariant: whoever writes a message says what kind it is; nobody infers that from its bytes.

use std::sync::Arc;

use crate::transport::outbox::{Out, Outbox};

/// Where messages to a client over HTTP go. Each POST has a sink, and each session has one for messages that
/// belong to no request.
pub trait Sink: Send + Sync {
    /// Takes one message; returns `false` if nobody reads it. A sink that is dropped before an answer ends
    /// its stream without one.
    fn send(&self, message: Outgoing<'_>) -> bool;
    /// Whether somebody is reading from the sink now.
    fn is_read(&self) -> bool {
        true
    }
    /// Takes note that the session whose sink it is stands otherwise than before.
    fn changed(&self) {}
}

/// One whole JSON-RPC message to a client.
pub struct Outgoing<'a> {
    /// The message's kind.
    pub kind: OutgoingKind<'a>,
    /// The message's bytes, as they are sent.
    pub bytes: Vec<u8>,
}

/// The kind of a message to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutgoingKind<'a> {
    /// The answer to a request, with a result.
    Result,
    /// The answer to a request, or to something that is not a request, with an error of this code.
    Error(i64),
    /// The answers to a batch.
    Batch,
    /// A notification with this method.
    Notice(&'a str),
    /// A question to the client, or the withdrawal of one.
    Question,
}

impl OutgoingKind<'_> {
    /// Whether a client that is far behind can do without the message.
    fn is_passing(self) -> bool {
        matches!(self, Self::Notice("notifications/progress" | "notifications/message"))
    }

    /// Whether this is the last message about its request.
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Result | Self::Error(_) | Self::Batch)
    }
}

/// The number of bytes that may wait for a client on a pipe before it is told no more of progress and logs.
/// Only a session of the daemon gets there: over stdio, upstreams are not read while that much waits.
const MOST_UNREAD: usize = 16 * 1024 * 1024;

/// The way that messages to a client take.
#[derive(Clone)]
pub enum Route {
    /// To our stdout.
    Pipe(Arc<Outbox>),
    /// To a stream of the client.
    Stream(Arc<dyn Sink>),
    /// To nobody.
    Nowhere,
}

impl Route {
    /// Sends the one message of this kind that `write` writes, if it writes any.
    pub fn push(&self, kind: OutgoingKind<'_>, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        match self {
            Self::Pipe(out) if kind.is_passing() && out.held() > MOST_UNREAD => false,
            Self::Pipe(out) => out.push(write),
            Self::Stream(sink) => {
                let mut bytes = Vec::new();
                write(&mut bytes);
                bytes.is_empty() || sink.send(Outgoing { kind, bytes })
            }
            Self::Nowhere => false,
        }
    }

    /// Takes note that the session stands otherwise than before.
    pub(super) fn changed(&self) {
        if let Self::Stream(sink) = self {
            sink.changed();
        }
    }

    /// Whether somebody is reading now what goes this way.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Pipe(_) => true,
            Self::Stream(sink) => sink.is_read(),
            Self::Nowhere => false,
        }
    }
}

impl Out for Route {
    fn send(&self, write: &mut dyn FnMut(&mut Vec<u8>)) -> bool {
        self.push(OutgoingKind::Question, write)
    }
}

/// Keeps the messages that it is sent, for tests.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Heard(pub(crate) parking_lot::Mutex<Vec<String>>);

#[cfg(test)]
impl Sink for Heard {
    fn send(&self, message: Outgoing<'_>) -> bool {
        self.0.lock().push(String::from_utf8_lossy(&message.bytes).into_owned());
        true
    }
}
