//! The ways that messages to a client take, and the kinds of these messages.
//!
//! Invariant: whoever writes a message says what kind it is; nobody infers that from its bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::transport::outbox::{Effect, Out, Outbox};

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
    /// Takes note that the session whose sink it is stands otherwise than before. The answer that a sink takes
    /// afterwards waits until whoever keeps the session for others has it.
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

/// The size of a message that needs no more memory than it begins with.
const SHORT: usize = 256;

/// The way that messages to a client take.
#[derive(Clone)]
pub enum Route {
    /// To our stdout.
    Pipe(Arc<Outbox>),
    /// To the relay of a session of the daemon.
    Relay(Arc<RelayedLine>),
    /// To a stream of the client.
    Stream(Arc<dyn Sink>),
    /// To nobody.
    Nowhere,
}

/// A line of a client whose session is in the daemon. The relay keeps it until it is told that the line is settled:
/// by the answer, or, where there is none, when nobody holds this any more.
pub struct RelayedLine {
    out: Arc<Outbox>,
    number: u64,
    settled: AtomicBool,
}

impl RelayedLine {
    /// The line with this number; 0 stands for messages that belong to no line.
    pub fn new(out: &Arc<Outbox>, number: u64) -> Arc<Self> {
        Arc::new(Self { out: out.clone(), number, settled: AtomicBool::new(number == 0) })
    }

    fn push(&self, kind: OutgoingKind<'_>, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if !kind.is_answer() || self.settled.load(Ordering::Relaxed) {
            return self.out.push_with((kind == OutgoingKind::Question).then_some(Effect::Asks), write);
        }
        self.out.push_with(Some(Effect::Settles(self.number)), |out| {
            let start = out.len();
            write(out);
            // A panic in `write` leaves the line to the next answer.
            self.settled.store(out.len() > start, Ordering::Relaxed);
        })
    }
}

impl Drop for RelayedLine {
    fn drop(&mut self) {
        if !*self.settled.get_mut() {
            self.out.settle(self.number);
        }
    }
}

impl Route {
    /// The buffer of a pipe, to the client itself or to its relay.
    pub(super) fn outbox(&self) -> Option<&Arc<Outbox>> {
        match self {
            Self::Pipe(out) => Some(out),
            Self::Relay(line) => Some(&line.out),
            Self::Stream(_) | Self::Nowhere => None,
        }
    }

    /// Sends the one message of this kind that `write` writes, if it writes any.
    pub fn push(&self, kind: OutgoingKind<'_>, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        match self {
            Self::Pipe(out) if kind.is_passing() && out.held() > MOST_UNREAD => false,
            Self::Pipe(out) => out.push(write),
            Self::Relay(line) if kind.is_passing() && line.out.held() > MOST_UNREAD => false,
            Self::Relay(line) => line.push(kind, write),
            Self::Stream(sink) => {
                let mut bytes = Vec::with_capacity(SHORT);
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
            Self::Pipe(_) | Self::Relay(_) => true,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::outbox::{Destination, Gathered, Mark};
    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Keeps what it is given, with the effect before each message that has one.
    #[derive(Default)]
    struct Kept(String);

    impl Destination for &mut Kept {
        async fn write_gathered(
            &mut self,
            Gathered { text, marks, .. }: &Gathered,
            _left: impl Fn(usize) + Send + Sync,
        ) -> io::Result<()> {
            let mut copied = 0;
            for Mark { place, effect } in marks {
                self.0.push_str(str::from_utf8(&text[copied..place.start]).expect("text"));
                let message = str::from_utf8(&text[place.clone()]).expect("text").trim_end();
                self.0.push_str(&format!("{effect:?}: {message}\n"));
                copied = place.end;
            }
            self.0.push_str(str::from_utf8(&text[copied..]).expect("text"));
            Ok(())
        }
    }

    async fn written(out: Arc<Outbox>) -> String {
        out.close();
        let mut kept = Kept::default();
        out.run(&mut kept).await.expect("memory is writable");
        kept.0
    }

    fn text(text: &str) -> impl FnOnce(&mut Vec<u8>) {
        move |out| out.extend_from_slice(text.as_bytes())
    }

    #[tokio::test]
    async fn every_line_of_a_relay_is_settled_once_with_its_answer_or_without_one() {
        let out = Outbox::new();
        let main = Route::Relay(RelayedLine::new(&out, 0));
        let [answered, cancelled, refused, broken] =
            [1, 2, 3, 4].map(|number| Route::Relay(RelayedLine::new(&out, number)));
        answered.push(OutgoingKind::Notice("notifications/progress"), text("progress"));
        answered.push(OutgoingKind::Question, text("question"));
        answered.push(OutgoingKind::Result, text("result"));
        drop((answered, cancelled.clone()));
        drop(cancelled);
        refused.push(OutgoingKind::Error(1), text("error"));
        let panics = AssertUnwindSafe(|| broken.push(OutgoingKind::Result, |_| panic!("injected")));
        assert!(catch_unwind(panics).is_err());
        broken.push(OutgoingKind::Error(1), text("sorry"));
        broken.push(OutgoingKind::Error(1), |_| ());
        main.push(OutgoingKind::Notice("notifications/message"), text("notice"));
        main.push(OutgoingKind::Question, text("who"));
        drop((refused, broken, main));
        let expected = "progress\nAsks: question\nSettles(1): result\nSettles(2): \nSettles(3): error\n\
             Settles(4): sorry\nnotice\nAsks: who\n";
        assert_eq!(written(out).await, expected);
    }
}
