//! The writing half of a connection: messages are appended at once and leave together.
//!
//! Whoever has a message appends it to one buffer, and one task writes what has gathered. So many small
//! messages cost one system call, and no message is copied more than once.
//!
//! Invariant: the buffer itself has no limit. Tasks that fill it from a stream wait for [`Outbox::room`]
//! before they read on, which carries back-pressure through the gateway; those that cannot wait check
//! [`Outbox::held`].

use std::io;
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

/// The buffer of outgoing messages.
pub struct Outbox {
    state: Mutex<OutboxState>,
    filled: Notify,
    drained: Notify,
}

#[derive(Default)]
struct OutboxState {
    buffer: Vec<u8>,
    /// The number of bytes taken out of the buffer and not written yet.
    writing: usize,
    closed: bool,
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
        {
            let mut state = self.state.lock();
            if state.closed {
                return false;
            }
            let mut message = Unsent::begin(&mut state.buffer);
            write(message.buffer);
            if message.buffer.len() == message.start {
                return true;
            }
            message.buffer.push(b'\n');
            message.whole = true;
            // The first message in the buffer has woken the writer already.
            if message.start > 0 {
                return true;
            }
        }
        self.filled.notify_one();
        true
    }

    /// The number of bytes that wait to be written.
    pub fn held(&self) -> usize {
        let state = self.state.lock();
        state.buffer.len() + state.writing
    }

    /// Waits until fewer than [`HIGH_WATER`] bytes wait, or nothing will ever be written again.
    pub async fn room(&self) {
        loop {
            let drained = self.drained.notified();
            {
                let state = self.state.lock();
                if state.closed || state.buffer.len() + state.writing < HIGH_WATER {
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

    /// Passes the messages on one by one, until the outbox is closed or the receiver is gone.
    pub async fn hand_on(&self, taker: mpsc::Sender<Vec<u8>>) {
        loop {
            let chunk = {
                let mut state = self.state.lock();
                if state.buffer.is_empty() && state.closed {
                    break;
                }
                std::mem::take(&mut state.buffer)
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
    pub async fn run(&self, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
        let mut chunk = Vec::new();
        let outcome = loop {
            {
                let mut state = self.state.lock();
                if state.buffer.is_empty() && state.closed {
                    break Ok(());
                }
                std::mem::swap(&mut state.buffer, &mut chunk);
                state.writing = chunk.len();
            }
            if chunk.is_empty() {
                self.wait(&mut chunk).await;
                continue;
            }
            if let Err(error) = self.write(&mut writer, &chunk).await {
                break Err(error);
            }
            chunk.clear();
        };
        {
            let mut state = self.state.lock();
            state.closed = true;
            state.writing = 0;
            state.buffer = Vec::new();
        }
        self.drained.notify_waiters();
        outcome
    }

    /// Waits for a message, and frees the memory of longer ones if that takes a while.
    async fn wait(&self, chunk: &mut Vec<u8>) {
        let spare = chunk.capacity().max(self.state.lock().buffer.capacity());
        if spare > KEPT {
            if timeout(PAUSE, self.filled.notified()).await.is_ok() {
                return;
            }
            chunk.shrink_to(KEPT);
            self.state.lock().buffer.shrink_to(KEPT);
        }
        self.filled.notified().await;
    }

    /// Writes the whole chunk, and wakes those who wait for room as it goes.
    async fn write(&self, writer: &mut (impl AsyncWrite + Unpin), mut chunk: &[u8]) -> io::Result<()> {
        while !chunk.is_empty() {
            match writer.write(chunk).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => chunk = &chunk[count..],
            }
            self.state.lock().writing = chunk.len();
            self.drained.notify_waiters();
        }
        writer.flush().await
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
