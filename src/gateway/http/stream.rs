//! One answer on its way to a client: a single JSON text, or events that can be read again.
//!
//! A stream has one writer (the backend, through a [`Sink`]) and at most one reader (a connection). Readers
//! come and go: a new reader replaces the old one and continues after the event that it names.
//!
//! Invariant: a stream's memory is bounded. A reader that does not keep up is cut off. Events that were read,
//! or that nobody reads, are kept up to [`KEPT`] bytes, newest last, as long as the [`Budget`] of all streams
//! has room.
//!
//! Invariant: nobody continues after a gap. An event whose successor is forgotten counts as unknown.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::body::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Sink;
use super::budget::{Account, Budget, Claim};
use super::headers::Accepted;
use crate::core::route::{Outgoing, OutgoingKind};
use crate::json::unbreak;

/// The number of bytes of events that a stream keeps for a returning reader.
pub(super) const KEPT: usize = 1024 * 1024;
/// The number of bytes that a reader may lag behind before it is cut off.
const LAG: usize = 4 * KEPT;
/// The number of bytes of events that are passed to a connection at once.
const CHUNK: usize = 64 * 1024;

/// The stream of one answer, or of a session's messages that belong to no request.
pub(super) struct Stream {
    /// The stream's number, unique in its session and part of its event ids.
    pub(super) number: u64,
    accepted: Accepted,
    /// The budget for what the stream keeps. Without one, events have no ids and are not kept.
    budget: Option<Arc<Budget>>,
    /// Who stores events before they are read, where other replicas are to read them as well.
    keeper: Option<Arc<dyn Keeper>>,
    own: Weak<Stream>,
    state: Mutex<StreamState>,
}

struct StreamState {
    /// The only message of a stream without events.
    answer: Option<LoneAnswer>,
    /// Whether the answer must wait until it is stored how the session stands.
    waits: bool,
    /// Whether the stream has events, or will only have events.
    started: bool,
    backlog: Backlog,
    reading: Reading,
    /// Whether a reader can come back, so that events are kept.
    keeps: bool,
    account: Account,
    finished: bool,
    /// The time when the last reader of events left, or the last message came without one.
    since: Option<Instant>,
    /// Dropped when the stream is finished.
    work: Option<Box<dyn Send>>,
}

/// The events that a stream holds.
struct Backlog {
    events: VecDeque<Bytes>,
    /// The position of the first of `events`. Positions begin at 1.
    first: u64,
    /// The position of the event that the reader gets next.
    next: u64,
    /// The position of the first event that is not stored yet, which nobody may read; none in a process that is alone.
    stored: u64,
    /// The size of all events in bytes.
    held: usize,
    /// The size of the events that the reader has yet to get.
    unread: usize,
}

/// Whoever stores the events of a stream. Told that there are new ones, it takes them by [`Stream::unstored`] and says by
/// [`Stream::stored`] that they can be read.
pub(super) trait Keeper: Send + Sync {
    /// There are events to store, or the stream has ended.
    fn wake(&self, stream: &Arc<Stream>);
}

/// Events of a stream as the store has them, by position.
pub(super) type StoredEvents = Vec<(u64, Vec<u8>)>;

/// What there is to store of a stream.
pub(super) struct Unstored {
    /// Events by position.
    pub(super) events: Vec<(u64, Bytes)>,
    /// The position of the oldest event that is kept.
    pub(super) first: u64,
    /// Whether no more events come.
    pub(super) finished: bool,
}

/// The reader of a stream.
#[derive(Default)]
struct Reading {
    /// The number of readers so far. Only the latest one reads.
    turn: u64,
    attached: bool,
    waker: Option<Waker>,
    /// Closes the connection of a reader that is cut off, because its writing is stuck.
    hang_up: Option<Arc<Notify>>,
}

/// The reading end. When it is dropped, the stream waits for the next reader.
pub(super) struct Reader {
    stream: Arc<Stream>,
    turn: u64,
}

/// The form of an answer.
pub(super) enum AnswerForm {
    /// One JSON text.
    Json(LoneAnswer),
    /// A stream of events.
    Events,
    /// The stream ended without a message.
    Nothing,
}

/// An answer that no other message preceded.
pub(super) struct LoneAnswer {
    pub(super) body: Bytes,
    /// The error code, if the answer is an error.
    pub(super) error: Option<i64>,
}

/// The error that the reader was too slow.
#[derive(Debug)]
pub(super) struct CutOff;

impl Stream {
    /// A stream for the answer to a request. `work` is dropped when the answer is complete.
    pub(super) fn answer(
        number: u64,
        accepted: Accepted,
        budget: Option<Arc<Budget>>,
        work: Box<dyn Send>,
    ) -> Arc<Self> {
        Self::new(number, accepted, budget, None, Some(work))
    }

    /// The same for a session of which other replicas are to know.
    pub(super) fn kept_answer(
        number: u64,
        accepted: Accepted,
        budget: Arc<Budget>,
        keeper: Arc<dyn Keeper>,
        work: Box<dyn Send>,
    ) -> Arc<Self> {
        Self::new(number, accepted, Some(budget), Some(keeper), Some(work))
    }

    /// A stream of events that only [`Stream::finish`] ends.
    pub(super) fn events(number: u64, budget: Arc<Budget>, keeper: Option<Arc<dyn Keeper>>) -> Arc<Self> {
        let accepted = Accepted { json: false, events: true };
        let stream = Self::new(number, accepted, Some(budget), keeper, None);
        stream.state.lock().started = true;
        stream
    }

    /// A stream that another replica has begun: these events of it were stored, by position.
    pub(super) fn adopted(
        number: u64,
        budget: Arc<Budget>,
        keeper: Arc<dyn Keeper>,
        events: StoredEvents,
    ) -> Arc<Self> {
        let stream = Self::events(number, budget, Some(keeper));
        stream.adopt(events);
        // Its reader has yet to come.
        stream.state.lock().since = Some(Instant::now());
        stream
    }

    /// Takes in events that another replica has stored, and that follow on those that are there.
    pub(super) fn adopt(&self, events: StoredEvents) {
        let mut state = self.state.lock();
        for (position, event) in events {
            let backlog = &mut state.backlog;
            if backlog.end() < position {
                // Nobody goes on behind a gap.
                while backlog.forget_first() {}
                (backlog.first, backlog.next) = (position, position);
            }
            if backlog.end() == position {
                backlog.push(event.into());
                backlog.stored = position + 1;
            }
        }
        state.wake();
        self.settle(state);
    }

    /// The position of the next event to come.
    pub(super) fn end(&self) -> u64 {
        self.state.lock().backlog.end()
    }

    /// What there is to store.
    pub(super) fn unstored(&self) -> Unstored {
        let state = self.state.lock();
        let Backlog { events, first, stored, .. } = &state.backlog;
        let from = (*stored).max(*first);
        let events = events.iter().skip((from - first) as usize).cloned();
        Unstored { events: (from..).zip(events).collect(), first: *first, finished: state.finished }
    }

    /// The events before this position are stored, or cannot be, and can be read.
    pub(super) fn stored(&self, before: u64) {
        let mut state = self.state.lock();
        state.backlog.stored = state.backlog.stored.max(before);
        state.wake();
    }

    fn new(
        number: u64,
        accepted: Accepted,
        budget: Option<Arc<Budget>>,
        keeper: Option<Arc<dyn Keeper>>,
        work: Option<Box<dyn Send>>,
    ) -> Arc<Self> {
        let stored = if keeper.is_some() { 1 } else { u64::MAX };
        let state = StreamState {
            answer: None,
            waits: false,
            started: false,
            backlog: Backlog { events: VecDeque::new(), first: 1, next: 1, stored, held: 0, unread: 0 },
            reading: Reading::default(),
            keeps: budget.is_some(),
            account: Account::default(),
            finished: false,
            since: None,
            work,
        };
        let state = Mutex::new(state);
        Arc::new_cyclic(|own| Self { number, accepted, budget, keeper, own: own.clone(), state })
    }

    /// A reader of everything after the event at `position`, in place of the current reader; `None` if there
    /// is no such event, or the event after it is forgotten.
    pub(super) fn read_after(self: &Arc<Self>, position: u64) -> Option<Reader> {
        let mut state = self.state.lock();
        if !state.backlog.read_on_after(position) {
            return None;
        }
        let turn = state.reading.turn + 1;
        state.wake();
        state.reading = Reading { turn, attached: true, waker: None, hang_up: None };
        // The events that the reader skips are kept from now on.
        self.settle(state);
        Some(Reader { stream: self.clone(), turn })
    }

    /// Appends a message. Returns what becomes of it.
    pub(super) fn push(&self, message: Outgoing<'_>) -> Pushed {
        let mut state = self.state.lock();
        if state.finished {
            return Pushed::Nowhere;
        }
        let is_answer = message.kind.is_answer();
        let pushed = self.take_in(&mut state, message);
        let work = if is_answer { state.finish() } else { None };
        state.wake();
        let started = state.started;
        self.settle(state);
        drop(work);
        if started {
            self.call_keeper();
        }
        pushed
    }

    fn call_keeper(&self) {
        if let (Some(keeper), Some(own)) = (&self.keeper, self.own.upgrade()) {
            keeper.wake(&own);
        }
    }

    fn take_in(&self, state: &mut StreamState, Outgoing { kind, mut bytes }: Outgoing<'_>) -> Pushed {
        let can_be_read = state.reading.attached || state.keeps && state.started;
        if !can_be_read {
            return Pushed::Nowhere;
        }
        if !state.started {
            if kind.is_answer() && self.accepted.json {
                let error = match kind {
                    OutgoingKind::Error(code) => Some(code),
                    _ => None,
                };
                unbreak(&mut bytes);
                state.answer = Some(LoneAnswer { body: bytes.into(), error });
                return Pushed::Read;
            }
            if !self.accepted.events {
                return Pushed::Nowhere;
            }
            state.started = true;
        }
        if state.reading.attached && state.backlog.unread >= LAG {
            tracing::debug!("a client does not read its stream; it is cut off");
            if let Some(hang_up) = state.reading.hang_up.take() {
                hang_up.notify_one();
            }
            state.detach();
            if !state.keeps {
                return Pushed::Nowhere;
            }
        }
        unbreak(&mut bytes);
        let event = self.event(state.backlog.end(), &bytes);
        state.backlog.push(event);
        state.trim();
        if state.reading.attached { Pushed::Read } else { Pushed::Kept }
    }

    fn event(&self, position: u64, message: &[u8]) -> Bytes {
        let id = match self.budget {
            Some(_) => format!("id: {}-{position}\n", self.number),
            None => String::new(),
        };
        let mut event = Vec::with_capacity(id.len() + message.len() + 8);
        event.extend_from_slice(id.as_bytes());
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(message);
        event.extend_from_slice(b"\n\n");
        event.into()
    }

    /// Ends the stream; no more messages come.
    pub(super) fn finish(&self) {
        let work = {
            let mut state = self.state.lock();
            if state.finished {
                return;
            }
            state.wake();
            let work = state.finish();
            self.account(&mut state);
            work
        };
        drop(work);
        self.call_keeper();
    }

    /// Gives up returning readers: nothing is kept, and messages without a reader are lost.
    pub(super) fn abandon(&self) {
        self.state.lock().keeps = false;
        self.let_go();
    }

    /// Forgets what is kept for returning readers. The current reader still gets everything.
    pub(super) fn let_go(&self) {
        let mut state = self.state.lock();
        while (!state.reading.attached || state.backlog.was_read()) && state.backlog.forget_first() {}
        self.account(&mut state);
    }

    /// Records how much is kept for returning readers, which excludes what the current reader has yet to get.
    fn account(&self, state: &mut StreamState) {
        let Some(budget) = &self.budget else { return };
        let Backlog { held, unread, .. } = state.backlog;
        let (kept, claim) = match (state.reading.attached, state.finished) {
            (true, false) => (held - unread, Claim::Read),
            (true, true) => (held - unread, Claim::Finished),
            (false, false) => (held, Claim::Waiting),
            (false, true) => (held, Claim::Finished),
        };
        budget.note(&mut state.account, kept, claim, &self.own);
    }

    /// Finishes a change of what is kept. If all streams together keep too much, some give way.
    fn settle(&self, mut state: MutexGuard<'_, StreamState>) {
        self.account(&mut state);
        drop(state);
        if let Some(budget) = &self.budget {
            budget.enforce();
        }
    }

    pub(super) fn is_read(&self) -> bool {
        self.state.lock().reading.attached
    }

    /// Whether the answer must wait until it is stored how the session stands.
    pub(super) fn waits(&self) -> bool {
        self.state.lock().waits
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state.lock().finished
    }

    /// The number of bytes that the stream holds.
    pub(super) fn held(&self) -> usize {
        self.state.lock().backlog.held
    }

    /// Whether nobody reads the stream and nothing has come for `kept_for`, so that it need not be kept.
    pub(super) fn is_stale(&self, kept_for: Duration) -> bool {
        let state = self.state.lock();
        !state.reading.attached && state.since.is_none_or(|since| since.elapsed() >= kept_for)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Some(budget) = &self.budget {
            budget.note(&mut state.account, 0, Claim::Finished, &self.own);
        }
    }
}

/// The outcome for a message.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Pushed {
    /// A reader will get it.
    Read,
    /// The message waits for a reader.
    Kept,
    /// Nobody will read it.
    Nowhere,
}

impl StreamState {
    fn wake(&mut self) {
        if let Some(waker) = self.reading.waker.take() {
            waker.wake();
        }
    }

    fn detach(&mut self) {
        self.reading.attached = false;
        self.reading.turn += 1;
        // Nobody comes back to a single answer.
        if self.started {
            self.since = Some(Instant::now());
        }
        self.wake();
    }

    fn finish(&mut self) -> Option<Box<dyn Send>> {
        self.finished = true;
        if self.started && !self.reading.attached {
            self.since = Some(Instant::now());
        }
        self.work.take()
    }

    /// Forgets events beyond the limit: those that were read or, without a reader, the oldest ones.
    fn trim(&mut self) {
        let Self { backlog, reading, .. } = self;
        let can_go = |backlog: &Backlog| backlog.was_read() || !reading.attached && backlog.events.len() > 1;
        while backlog.held > KEPT && can_go(backlog) {
            backlog.forget_first();
        }
    }
}

impl Backlog {
    /// The position of the next event to come.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Whether the reader has got the oldest event.
    fn was_read(&self) -> bool {
        self.next > self.first
    }

    /// Lets the reader continue after the event at `position`. Returns `false` if there is no such event, or
    /// the event after it is forgotten.
    fn read_on_after(&mut self, position: u64) -> bool {
        let is_known = (self.first - 1..self.end()).contains(&position);
        if is_known {
            self.next = position + 1;
            let read = (self.next - self.first) as usize;
            self.unread = self.events.iter().skip(read).map(Bytes::len).sum();
        }
        is_known
    }

    fn push(&mut self, event: Bytes) {
        self.held += event.len();
        self.unread += event.len();
        self.events.push_back(event);
    }

    /// The event that the reader gets next, and whether it is the last one.
    fn peek(&self) -> Option<(Bytes, bool)> {
        if self.next >= self.stored {
            return None;
        }
        let at = (self.next - self.first) as usize;
        self.events.get(at).map(|event| (event.clone(), at + 1 == self.events.len()))
    }

    /// Forgets the oldest event. Returns `false` if there is none.
    fn forget_first(&mut self) -> bool {
        let Some(event) = self.events.pop_front() else { return false };
        self.first += 1;
        self.held -= event.len();
        if self.next < self.first {
            self.next = self.first;
            self.unread -= event.len();
        }
        true
    }
}

impl Reader {
    /// The id that stands for the place before the first event.
    pub(super) fn start_id(&self) -> String {
        format!("{}-0", self.stream.number)
    }

    /// Sets what is notified when this reader is cut off.
    pub(super) fn on_cut_off(&self, hang_up: &Arc<Notify>) {
        let mut state = self.stream.state.lock();
        if state.reading.turn == self.turn {
            state.reading.hang_up = Some(hang_up.clone());
        }
    }

    /// Waits for the first message, which decides the form of the answer.
    pub(super) async fn kind(&mut self) -> AnswerForm {
        std::future::poll_fn(|context| {
            let mut state = self.stream.state.lock();
            if let Some(answer) = state.answer.take() {
                Poll::Ready(AnswerForm::Json(answer))
            } else if state.started {
                Poll::Ready(AnswerForm::Events)
            } else if state.finished {
                Poll::Ready(AnswerForm::Nothing)
            } else {
                state.reading.waker = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// The next events; `None` after the last one, and when another reader has come.
    pub(super) fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutOff>>> {
        let mut state = self.stream.state.lock();
        if state.reading.turn != self.turn {
            return Poll::Ready(if state.reading.attached { None } else { Some(Err(CutOff)) });
        }
        let mut chunk = Vec::new();
        while let Some((event, is_last)) = state.backlog.peek() {
            let alone = chunk.is_empty() && (event.len() >= CHUNK || is_last);
            if !chunk.is_empty() && chunk.len() + event.len() > CHUNK {
                break;
            }
            state.backlog.next += 1;
            state.backlog.unread -= event.len();
            if !state.keeps {
                state.backlog.forget_first();
            }
            if alone {
                state.trim();
                self.stream.settle(state);
                return Poll::Ready(Some(Ok(event)));
            }
            chunk.extend_from_slice(&event);
        }
        if !chunk.is_empty() {
            state.trim();
            self.stream.settle(state);
            Poll::Ready(Some(Ok(chunk.into())))
        } else if state.finished && state.backlog.next >= state.backlog.end() {
            Poll::Ready(None)
        } else {
            state.reading.waker = Some(context.waker().clone());
            Poll::Pending
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.stream.state.lock();
        if state.reading.turn == self.turn {
            state.detach();
            state.trim();
            if !state.started {
                state.answer = None;
            }
            while !state.keeps && state.backlog.forget_first() {}
            self.stream.settle(state);
        }
    }
}

/// The writing end of the answer to one request. Dropping it without an answer ends the stream.
pub(super) struct Writer(pub(super) Arc<Stream>);

impl Sink for Writer {
    fn send(&self, message: Outgoing<'_>) -> bool {
        self.0.push(message) != Pushed::Nowhere
    }

    fn changed(&self) {
        self.0.state.lock().waits = true;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.finish();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A result if `is_answer`, else a notification.
    pub(in crate::gateway::http) fn message(bytes: impl Into<Vec<u8>>, is_answer: bool) -> Outgoing<'static> {
        let kind = if is_answer { OutgoingKind::Result } else { OutgoingKind::Notice("n") };
        Outgoing { kind, bytes: bytes.into() }
    }

    const EVENTS: Accepted = Accepted { json: true, events: true };

    fn read(reader: &mut Reader) -> String {
        let mut text = String::new();
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match reader.poll_events(&mut context) {
                Poll::Ready(Some(Ok(bytes))) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
                Poll::Ready(Some(Err(CutOff))) => return text + "cut off",
                Poll::Ready(None) => return text + "end",
                Poll::Pending => return text,
            }
        }
    }

    fn stream(resumable: bool) -> (Arc<Stream>, Reader) {
        let budget = resumable.then(|| Arc::new(Budget::new(usize::MAX)));
        let stream = Stream::answer(7, EVENTS, budget, Box::new(()));
        let reader = stream.read_after(0).unwrap();
        (stream, reader)
    }

    #[test]
    fn a_reader_that_comes_back_goes_on_where_it_was() {
        let (stream, mut reader) = stream(true);
        stream.push(message(b"1", false));
        stream.push(message(b"2\n", false));
        assert_eq!(read(&mut reader), "id: 7-1\ndata: 1\n\nid: 7-2\ndata: 2 \n\n");
        drop(reader);
        assert_eq!(stream.push(message(b"3", true)), Pushed::Kept);
        assert_eq!(stream.push(message(b"4", true)), Pushed::Nowhere);
        for _ in 0..2 {
            let mut reader = stream.read_after(1).unwrap();
            assert_eq!(read(&mut reader), "id: 7-2\ndata: 2 \n\nid: 7-3\ndata: 3\n\nend");
        }
        assert!(stream.read_after(4).is_none());
    }

    #[test]
    fn a_new_reader_replaces_the_old_one() {
        let (stream, mut old) = stream(true);
        stream.push(message(b"1", false));
        let mut new = stream.read_after(0).unwrap();
        assert_eq!(read(&mut old), "end");
        drop(old);
        assert_eq!(read(&mut new), "id: 7-1\ndata: 1\n\n");
    }

    #[test]
    fn who_does_not_read_is_cut_off_and_memory_stays_bounded() {
        for resumable in [false, true] {
            let (stream, mut reader) = stream(resumable);
            let bytes = vec![b'1'; 100_000];
            let kept =
                (0..100).take_while(|_| stream.push(message(&*bytes, false)) != Pushed::Nowhere).count();
            assert_eq!(kept, if resumable { 100 } else { 42 });
            assert!(stream.held() <= if resumable { KEPT } else { LAG + 200_000 });
            assert_eq!(read(&mut reader), "cut off");
            assert_eq!(stream.read_after(100).is_some(), resumable);
        }
    }

    #[test]
    fn nobody_goes_on_behind_a_gap() {
        let (stream, mut reader) = stream(true);
        let bytes = vec![b'1'; 400_000];
        for _ in 0..3 {
            stream.push(message(&*bytes, false));
            read(&mut reader);
        }
        drop(reader);
        for (position, expected) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
            assert_eq!(stream.read_after(position).is_some(), expected, "{position}");
        }
        stream.let_go();
        assert!(stream.read_after(2).is_none() && stream.read_after(3).is_some());
    }

    #[test]
    fn who_reads_gets_all_of_it_however_little_may_be_kept() {
        let budget = Arc::new(Budget::new(10));
        let stream = Stream::answer(7, EVENTS, Some(budget.clone()), Box::new(()));
        let mut reader = stream.read_after(0).unwrap();
        stream.push(message(b"1", false));
        stream.push(message(b"2", true));
        assert_eq!(read(&mut reader), "id: 7-1\ndata: 1\n\nid: 7-2\ndata: 2\n\nend");
        assert_eq!((budget.kept(), stream.held()), (0, 0));
    }

    proptest! {
        /// Whatever happens to streams, the account is exact and never exceeds the budget.
        #[test]
        fn the_account_is_exact(steps in prop::collection::vec((0_usize..4, 0_usize..8, 1_usize..60), 1..80)) {
            let budget = Arc::new(Budget::new(200));
            let new = |number| Stream::answer(number, EVENTS, Some(budget.clone()), Box::new(()));
            let mut streams: Vec<_> = (0..4).map(|number| (new(number), None)).collect();
            for (which, what, bytes) in steps {
                let (stream, reader) = &mut streams[which];
                match what {
                    0 | 1 => drop(stream.push(message(vec![b'1'; bytes], what == 1 && bytes > 50))),
                    2 => *reader = stream.read_after(bytes as u64 % 4).or(reader.take()),
                    3 => *reader = None,
                    4 | 5 => drop(reader.as_mut().map(read)),
                    6 if bytes > 50 => stream.abandon(),
                    7 if bytes > 50 => (*stream, *reader) = (new(which as u64), None),
                    _ => stream.finish(),
                }
                let kept = streams.iter().map(|(stream, _)| {
                    let state = stream.state.lock();
                    let Backlog { events, first, next, held, .. } = &state.backlog;
                    let bytes = |events: &mut dyn Iterator<Item = &Bytes>| events.map(Bytes::len).sum::<usize>();
                    assert_eq!(*held, bytes(&mut events.iter()));
                    let read = (next - first) as usize;
                    if state.reading.attached { bytes(&mut events.iter().take(read)) } else { *held }
                });
                prop_assert_eq!(kept.sum::<usize>(), budget.kept());
                prop_assert!(budget.kept() <= 200);
            }
            drop(streams);
            prop_assert_eq!(budget.kept(), 0);
        }
    }

    #[test]
    fn what_a_new_reader_passes_over_counts_at_once() {
        let budget = Arc::new(Budget::new(100));
        let stream = Stream::answer(7, EVENTS, Some(budget.clone()), Box::new(()));
        let _reader = stream.read_after(0).unwrap();
        for _ in 0..3 {
            stream.push(message([b'1'; 50], false));
        }
        assert_eq!(budget.kept(), 0, "somebody is to read it");
        let _another = stream.read_after(3).unwrap();
        assert!(budget.kept() <= 100, "{}", budget.kept());
    }

    #[test]
    fn who_takes_no_events_reads_nothing_but_the_answer() {
        let budget = Some(Arc::new(Budget::new(usize::MAX)));
        let stream = Stream::answer(7, Accepted { json: true, events: false }, budget, Box::new(()));
        let _reader = stream.read_after(0).unwrap();
        assert_eq!(
            stream.push(message(b"a question", false)),
            Pushed::Nowhere,
            "whoever asks must not wait for an answer"
        );
        assert_eq!(stream.push(message(b"1", true)), Pushed::Read);
    }

    #[test]
    fn a_stream_of_one_message_is_json_and_cannot_be_read_later() {
        let (stream, reader) = stream(true);
        drop(reader);
        assert_eq!(stream.push(message(b"1", true)), Pushed::Nowhere);
        assert_eq!(stream.held(), 0);
    }
}
