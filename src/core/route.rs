//! Which way messages to a client go.

use std::sync::Arc;

use crate::wire::outbox::{Out, Outbox};

/// Where messages to a client over HTTP go: one for each POST, one for a session's messages that belong to no request.
pub trait Sink: Send + Sync {
    /// Takes one whole JSON-RPC message. `last`: the answer that this stream waits for is complete. `false`: nobody
    /// reads it. A sink that is dropped before its last message ends its stream without an answer.
    fn send(&self, message: &[u8], last: bool) -> bool;
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
    /// Sends what `write` writes, one message or nothing; `last` says that no other will follow on this way.
    pub fn push(&self, last: bool, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        match self {
            Self::Pipe(out) => out.push(write),
            Self::Stream(sink) => {
                let mut message = Vec::new();
                write(&mut message);
                message.is_empty() || sink.send(&message, last)
            }
            Self::Nowhere => false,
        }
    }
}

impl Out for Route {
    fn send(&self, write: &mut dyn FnMut(&mut Vec<u8>)) -> bool {
        self.push(false, write)
    }
}

/// Keeps what it is sent, for tests.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Heard(pub(crate) parking_lot::Mutex<Vec<String>>);

#[cfg(test)]
impl Sink for Heard {
    fn send(&self, message: &[u8], _last: bool) -> bool {
        self.0.lock().push(String::from_utf8_lossy(message).into_owned());
        true
    }
}
