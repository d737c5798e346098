//! Which way messages to a client go, and as what.
//!
//! Invariant: whoever writes a message says what it is; nobody finds that out from its bytes.

use std::sync::Arc;

use crate::transport::outbox::{Out, Outbox};

/// Where messages to a client over HTTP go: one for each POST, one for a session's messages that belong to no request.
pub trait Sink: Send + Sync {
    /// Takes one message. `false`: nobody reads it. A sink that is dropped before an answer ends its stream without one.
    fn send(&self, message: Outgoing<'_>) -> bool;
    /// Whether somebody reads it now.
    fn is_read(&self) -> bool {
        true
    }
}

/// One whole JSON-RPC message to a client.
pub struct Outgoing<'a> {
    /// What it is.
    pub kind: OutgoingKind<'a>,
    /// As it is sent.
    pub bytes: Vec<u8>,
}

/// What a message to a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutgoingKind<'a> {
    /// The answer to a request: its result.
    Result,
    /// The answer to a request, or to what is none: an error with this code.
    Error(i64),
    /// The answers to a batch.
    Batch,
    /// A notification with this method.
    Notice(&'a str),
    /// A question to the client, or its withdrawal.
    Question,
}

impl OutgoingKind<'_> {
    /// Whether no other message follows about the same request.
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Result | Self::Error(_) | Self::Batch)
    }
}

/// Which way messages to a client go.
#[derive(Clone)]
pub enum Route {
    /// Our stdout.
    Pipe(Arc<Outbox>),
    /// A stream of the client's.
    Stream(Arc<dyn Sink>),
    /// Nobody listens.
    Nowhere,
}

impl Route {
    /// Sends what `write` writes, one message of this kind, or nothing.
    pub fn push(&self, kind: OutgoingKind<'_>, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        match self {
            Self::Pipe(out) => out.push(write),
            Self::Stream(sink) => {
                let mut bytes = Vec::new();
                write(&mut bytes);
                bytes.is_empty() || sink.send(Outgoing { kind, bytes })
            }
            Self::Nowhere => false,
        }
    }

    /// Whether somebody reads now what goes this way.
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

/// Keeps what it is sent, for tests.
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
