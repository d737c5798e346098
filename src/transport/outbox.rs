//! The writing half of a connection: messages are appended at once and leave together.
//!
//! Whoever has a message appends it to one buffer, and one task writes what has gathered. So many small
//! messages cost one system call, and no message is copied more than once.
//!
//! Invariant: the buffer itself has no limit. Tasks that fill it from a stream wait for [`Outbox::room`]
//! before they read on, which carries back-pressure through the gateway; those that cannot wait check
//! [`Outbox::held`].

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::transport::lines::PAUSE;

/// The number of waiting bytes at which readers pause.
pub const HIGH_WATER: usize = 1024 * 1024;
/// The capacity that a buffer keeps while there is nothing to write.
const KEPT: usize = 2 * 1024;

/// A destination for messages to one peer.
pub trait Out: Send + Sync {
    /// Sends what `write` appends: one message, or none if it appends nothing. Returns `false` if nobody will
    /// read it any more.
    fn send(&self, write: &mut dyn FnMut(&mut Vec<u8>)) -> bool;
}

impl Out for Outbox {
    fn send(&self, write: &mut dyn FnMut(&mut Vec<u8>)) -> bool {
        self.push(write)
    }
}

/// Messages that leave together.
#[derive(Default)]
pub struct Gathered {
    /// The messages, each with a line break.
    pub text: Vec<u8>,
    /// What is to be known of messages, in their order.
    pub marks: Vec<Mark>,
    /// Lines that are not for the peer, but for whoever stands before it. They are read before the messages.
    pub asides: Vec<u8>,
}

/// What is to be known of a message.
pub struct Mark {
    /// Where in the text it stands.
    pub place: Range<usize>,
    /// What it does.
    pub effect: Effect,
}

/// What a message does.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// It settles the line with this number. If it is empty, the line is settled without an answer.
    Settles(u64),
    /// It asks the peer something, or withdraws a question.
    Asks,
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.marks.is_empty() && self.asides.is_empty()
    }

    fn clear(&mut self) {
        self.text.clear();
        self.marks.clear();
        self.asides.clear();
    }

    fn capacity(&self) -> usize {
        self.text.capacity() + self.marks.capacity() * size_of::<Mark>() + self.asides.capacity()
    }

    fn shrink(&mut self) {
        self.text.shrink_to(KEPT);
        self.marks.shrink_to(0);
        self.asides.shrink_to(0);
    }
}

/// Where gathered messages go.
pub trait Destination {
    /// Writes everything. Until that is done, `left` may hear how many bytes of the text are not written yet.
    fn write_gathered(
        &mut self,
        gathered: &Gathered,
        left: impl Fn(usize) + Send + Sync,
    ) -> impl Future<Output = io::Result<()>> + Send;
}

/// A peer that nobody stands before, so marks and asides are for nobody.
impl<W: AsyncWrite + Unpin + Send> Destination for W {
    async fn write_gathered(
        &mut self,
        gathered: &Gathered,
        left: impl Fn(usize) + Send + Sync,
    ) -> io::Result<()> {
        let mut text = &*gathered.text;
        while !text.is_empty() {
            match self.write(text).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count if count == text.len() => break,
                count => text = &text[count..],
            }
            left(text.len());
        }
        self.flush().await
    }
}

/// The buffer of outgoing messages.
pub struct Outbox {
    state: Mutex<OutboxState>,
    filled: Notify,
    drained: Notify,
}

#[derive(Default)]
struct OutboxState {
    gathered: Gathered,
    /// The number of bytes taken out of the buffer and not written yet.
    writing: usize,
    closed: bool,
}

impl OutboxState {
    fn held(&self) -> usize {
        self.gathered.text.len() + self.writing
    }
}

/// A message that is being appended. If a panic interrupts it, the partial message is removed.
struct Unsent<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
    whole: bool,
}

impl<'a> Unsent<'a> {
    fn begin(buffer: &'a mut Vec<u8>) -> Self {
        Self { start: buffer.len(), buffer, whole: false }
    }
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if !self.whole {
            self.buffer.truncate(self.start);
        }
    }
}

impl Outbox {
    /// An empty outbox. [`Outbox::run`] writes its messages.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), filled: Notify::new(), drained: Notify::new() })
    }

    /// Appends one message and a line break, unless `write` appends nothing. Returns `false` if nobody will
    /// read it any more.
    pub fn push(&self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.push_with(None, write)
    }

    /// Does the same with a message of this effect.
    pub fn push_with(&self, effect: Option<Effect>, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        {
            let mut state = self.state.lock();
            if state.closed {
                return false;
            }
            let Gathered { text, marks, .. } = &mut state.gathered;
            let mut message = Unsent::begin(text);
            write(message.buffer);
            if message.buffer.len() == message.start {
                return true;
            }
            message.buffer.push(b'\n');
            message.whole = true;
            if let Some(effect) = effect {
                marks.push(Mark { place: message.start..message.buffer.len(), effect });
            }
            // The first message in the buffer has woken the writer already.
            if message.start > 0 {
                return true;
            }
        }
        self.filled.notify_one();
        true
    }

    /// Notes that a line is settled without an answer.
    pub fn settle(&self, number: u64) {
        self.add(|gathered| {
            let end = gathered.text.len();
            gathered.marks.push(Mark { place: end..end, effect: Effect::Settles(number) });
        });
    }

    /// Adds a line that is not for the peer, but for whoever stands before it.
    pub fn push_aside(&self, line: &[u8]) {
        self.add(|gathered| {
            gathered.asides.extend_from_slice(line);
            gathered.asides.push(b'\n');
        });
    }

    fn add(&self, add: impl FnOnce(&mut Gathered)) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        let is_first = state.gathered.is_empty();
        add(&mut state.gathered);
        drop(state);
        if is_first {
            self.filled.notify_one();
        }
    }

    /// The number of bytes that wait to be written.
    pub fn held(&self) -> usize {
        self.state.lock().held()
    }

    /// Waits until fewer than [`HIGH_WATER`] bytes wait, or nothing will ever be written again.
    pub async fn room(&self) {
        self.until(|state| state.held() < HIGH_WATER).await;
    }

    /// Waits until no aside waits, or nothing will ever be written again.
    pub async fn told(&self) {
        self.until(|state| state.gathered.asides.is_empty()).await;
    }

    async fn until(&self, reached: impl Fn(&OutboxState) -> bool) {
        loop {
            let drained = self.drained.notified();
            {
                let state = self.state.lock();
                if state.closed || reached(&state) {
                    return;
                }
            }
            drained.await;
        }
    }

    /// Refuses further messages. [`Outbox::run`] ends once the held ones have been written.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
        self.drained.notify_waiters();
    }

    /// Passes the messages on one by one, without marks and asides, until the outbox is closed or the receiver is gone.
    pub async fn hand_on(&self, taker: mpsc::Sender<Vec<u8>>) {
        loop {
            let chunk = {
                let mut state = self.state.lock();
                if state.gathered.text.is_empty() && state.closed {
                    break;
                }
                std::mem::take(&mut state.gathered.text)
            };
            if chunk.is_empty() {
                self.filled.notified().await;
            }
            for message in chunk.split(|byte| *byte == b'\n').filter(|message| !message.is_empty()) {
                if taker.send(message.to_vec()).await.is_err() {
                    self.close();
                    break;
                }
            }
            self.drained.notify_waiters();
        }
    }

    /// Writes the messages until the outbox is closed or the other side is gone.
    pub async fn run(&self, mut destination: impl Destination) -> io::Result<()> {
        let mut gathered = Gathered::default();
        let outcome = loop {
            {
                let mut state = self.state.lock();
                if state.gathered.is_empty() && state.closed {
                    break Ok(());
                }
                std::mem::swap(&mut state.gathered, &mut gathered);
                state.writing = gathered.text.len();
            }
            if gathered.is_empty() {
                self.wait(&mut gathered).await;
                continue;
            }
            let left = |count| {
                self.state.lock().writing = count;
                self.drained.notify_waiters();
            };
            if let Err(error) = destination.write_gathered(&gathered, left).await {
                break Err(error);
            }
            left(0);
            gathered.clear();
        };
        *self.state.lock() = OutboxState { closed: true, ..OutboxState::default() };
        self.drained.notify_waiters();
        outcome
    }

    /// Waits for a message, and frees the memory of longer ones if that takes a while.
    async fn wait(&self, spare: &mut Gathered) {
        let most = spare.capacity().max(self.state.lock().gathered.capacity());
        // There is room for a few marks.
        if most > 2 * KEPT {
            if timeout(PAUSE, self.filled.notified()).await.is_ok() {
                return;
            }
            spare.shrink();
            self.state.lock().gathered.shrink();
        }
        self.filled.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn messages_leave_in_order_and_all_before_the_end() {
        let outbox = Outbox::new();
        let (ours, mut theirs) = tokio::io::duplex(16);
        let run = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.run(ours).await }
        });
        for number in 0..100 {
            assert!(outbox.push(|out| out.extend_from_slice(number.to_string().as_bytes())));
        }
        outbox.close();
        assert!(!outbox.push(|_| ()));
        let mut text = String::new();
        theirs.read_to_string(&mut text).await.unwrap();
        assert_eq!(
            text.lines().map(|line| line.parse().unwrap()).collect::<Vec<u32>>(),
            (0..100).collect::<Vec<_>>()
        );
        run.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_aside_waits_behind_a_message_and_who_wants_it_gone_waits_with_it() {
        let outbox = Outbox::new();
        let (ours, mut theirs) = tokio::io::duplex(4);
        let run = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.run(ours).await }
        });
        outbox.told().await;
        outbox.push(|out| out.extend_from_slice(b"message"));
        // Now the message is being written, which nobody reads.
        while outbox.state.lock().writing == 0 {
            tokio::task::yield_now().await;
        }
        outbox.push_aside(b"aside");
        tokio::select! {
            biased;
            () = outbox.told() => panic!("it waits"),
            () = tokio::task::yield_now() => {}
        }
        theirs.read_exact(&mut [0; 8]).await.unwrap();
        outbox.told().await;
        outbox.close();
        run.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_message_that_a_panic_cuts_short_leaves_nothing_behind() {
        let outbox = Outbox::new();
        outbox.push(|out| out.extend_from_slice(b"before"));
        let push = AssertUnwindSafe(|| {
            outbox.push(|out| {
                out.extend_from_slice(b"half of");
                panic!("injected");
            })
        });
        assert!(catch_unwind(push).is_err());
        outbox.push(|out| out.extend_from_slice(b"after"));
        outbox.close();
        let mut written = Vec::new();
        outbox.run(&mut written).await.unwrap();
        assert_eq!(written, b"before\nafter\n");
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_holds_up_those_who_fill() {
        let outbox = Outbox::new();
        let (ours, mut theirs) = tokio::io::duplex(16);
        let run = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.run(ours).await }
        });
        outbox.push(|out| out.resize(2 * HIGH_WATER, b'x'));
        tokio::select! {
            biased;
            () = outbox.room() => panic!("there is no room"),
            () = tokio::task::yield_now() => {}
        }
        let mut sink = vec![0; 2 * HIGH_WATER + 1];
        theirs.read_exact(&mut sink).await.unwrap();
        outbox.room().await;
        drop(theirs);
        outbox.push(|out| out.push(b'x'));
        assert!(run.await.unwrap().is_err());
        outbox.room().await;
    }
}
