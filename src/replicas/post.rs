//! Letters between replicas, and requests that one hands to another.
//!
//! ```text
//! asks ──Ask──▶ the other serves it ──Part, Part, …, last Part──▶ asks
//!   └──Gone──▶ (nobody waits any more)      ├──Bounced──▶ (not mine: look again who is)
//!                                           └──Lost──▶ (given up: nobody knows what was done)
//! ```
//!
//! Invariant: a letter is served once, though it may be sent twice: each has a number of its sender's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};

/// The most parts of an answer that may wait for whoever asked. If more come, he is cut off.
const MOST_PARTS: usize = 256;
/// The number of letters that are remembered, to serve none of them twice.
const REMEMBERED: usize = 4096;
/// The length of a replica's id.
pub const ID_LENGTH: usize = 16;

/// What letters are about. Each subject has one place in the program that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Requests of legacy sessions.
    Session,
    /// What callers with the same credentials have open.
    View,
    /// Tasks, parked calls and servers of the modern era that have a home.
    Modern,
}

/// What a letter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LetterKind {
    Ask,
    Part { last: bool },
    Bounced,
    Gone,
    Lost,
}

/// A letter to a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Letter {
    pub(super) kind: LetterKind,
    pub(super) subject: Subject,
    /// The replica that sent it.
    pub(super) from: String,
    /// Tells the letters of a sender apart.
    pub(super) serial: u64,
    /// The number of the request that it belongs to, by whoever asked.
    pub(super) number: u64,
    pub(super) body: Vec<u8>,
}

const SUBJECTS: [Subject; 3] = [Subject::Session, Subject::View, Subject::Modern];
const KINDS: [LetterKind; 6] = [
    LetterKind::Ask,
    LetterKind::Part { last: false },
    LetterKind::Part { last: true },
    LetterKind::Bounced,
    LetterKind::Gone,
    LetterKind::Lost,
];

impl Letter {
    pub(super) fn write(&self) -> Vec<u8> {
        let place =
            |at: Option<usize>| at.and_then(|at| u8::try_from(at).ok()).expect("every value is in the list");
        let mut out = vec![
            place(KINDS.iter().position(|kind| *kind == self.kind)),
            place(SUBJECTS.iter().position(|subject| *subject == self.subject)),
        ];
        out.extend_from_slice(&self.serial.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(self.from.as_bytes());
        out.extend_from_slice(&self.body);
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let ([kind, subject], rest) = bytes.split_first_chunk::<2>()?;
        let (serial, rest) = rest.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (from, body) = rest.split_at_checked(ID_LENGTH)?;
        Some(Self {
            kind: *KINDS.get(usize::from(*kind))?,
            subject: *SUBJECTS.get(usize::from(*subject))?,
            serial: u64::from_le_bytes(*serial),
            number: u64::from_le_bytes(*number),
            from: str::from_utf8(from).ok()?.to_owned(),
            body: body.to_vec(),
        })
    }
}

/// What comes of a request that was handed to another replica.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A part of the answer, and whether it is the last one.
    Answer(Vec<u8>, bool),
    /// The other replica is not the right one, or never received the request.
    Bounced,
    /// The other replica is gone. Nobody knows what it has done.
    Lost,
    /// Whoever asked has not taken what came.
    CutOff,
}

/// What is on its way between this replica and others.
#[derive(Default)]
pub(super) struct PostOffice {
    state: Mutex<PostState>,
    /// Tells that a request of another replica was served.
    served: Notify,
}

#[derive(Default)]
struct PostState {
    last: u64,
    /// Our requests to others, by number.
    asked: HashMap<u64, PendingAsk>,
    /// Others' requests to us: senders that say when nobody waits any more.
    handed: HashMap<(String, u64), Arc<watch::Sender<bool>>>,
    known: HashSet<(String, u64)>,
    order: VecDeque<(String, u64)>,
}

struct PendingAsk {
    to: String,
    /// Whether its letter is in the store.
    sent: bool,
    parts: mpsc::Sender<Arrival>,
}

impl PostOffice {
    /// A number that no letter has had.
    pub(super) fn next(&self) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        state.last
    }

    /// Notes a letter; `false` if it came before.
    pub(super) fn is_new(&self, from: &str, serial: u64) -> bool {
        let mut state = self.state.lock();
        if !state.known.insert((from.to_owned(), serial)) {
            return false;
        }
        state.order.push_back((from.to_owned(), serial));
        if state.order.len() > REMEMBERED
            && let Some(oldest) = state.order.pop_front()
        {
            state.known.remove(&oldest);
        }
        true
    }

    /// Notes a request to another replica. The receiver gets what comes of it.
    pub(super) fn ask(&self, number: u64, to: &str) -> mpsc::Receiver<Arrival> {
        let (parts, receiver) = mpsc::channel(MOST_PARTS);
        self.state.lock().asked.insert(number, PendingAsk { to: to.to_owned(), sent: false, parts });
        receiver
    }

    /// Notes that the letter of a request is in the store.
    pub(super) fn sent(&self, number: u64) {
        if let Some(waiting) = self.state.lock().asked.get_mut(&number) {
            waiting.sent = true;
        }
    }

    /// The numbers of the requests whose letters a replica may have received.
    pub(super) fn sent_to(&self, to: &str) -> Vec<u64> {
        let state = self.state.lock();
        let sent = state.asked.iter().filter(|(_, waiting)| waiting.sent && waiting.to == to);
        sent.map(|(number, _)| *number).collect()
    }

    /// Forgets a request; returns whom it was sent to, if it has not ended.
    pub(super) fn forget(&self, number: u64) -> Option<String> {
        self.state.lock().asked.remove(&number).map(|waiting| waiting.to)
    }

    /// Takes what comes of a request, if `from` is whom it was sent to. Returns `false` if nobody waits for it, or not any
    /// more from now on.
    pub(super) fn part(&self, number: u64, from: Option<&str>, part: Arrival) -> bool {
        let mut state = self.state.lock();
        let Some(waiting) = state.asked.get(&number) else { return false };
        if from.is_some_and(|from| from != waiting.to) {
            return true;
        }
        let ends = !matches!(part, Arrival::Answer(_, false));
        let taken = waiting.parts.try_send(part).is_ok();
        if ends || !taken {
            state.asked.remove(&number);
        }
        taken
    }

    /// The numbers of all requests to others.
    pub(super) fn asked(&self) -> Vec<u64> {
        self.state.lock().asked.keys().copied().collect()
    }

    /// Notes a request of another replica. The receiver says when nobody waits for its answer any more.
    pub(super) fn hand(&self, from: &str, number: u64) -> watch::Receiver<bool> {
        let gone = Arc::new(watch::Sender::new(false));
        let receiver = gone.subscribe();
        self.state.lock().handed.insert((from.to_owned(), number), gone);
        receiver
    }

    /// Forgets a request of another replica.
    pub(super) fn served(&self, from: &str, number: u64) {
        self.state.lock().handed.remove(&(from.to_owned(), number));
        self.served.notify_waiters();
    }

    /// Waits until no request of another replica is being served.
    pub(super) async fn all_served(&self) {
        loop {
            let served = self.served.notified();
            if self.state.lock().handed.is_empty() {
                return;
            }
            served.await;
        }
    }

    /// Nobody waits any more for the answer to a request of another replica.
    pub(super) fn gone(&self, from: &str, number: u64) {
        if let Some(gone) = self.state.lock().handed.remove(&(from.to_owned(), number)) {
            gone.send_replace(true);
        }
    }

    /// Nobody waits any more for what a replica has handed us, or any. Returns who handed it, and its numbers.
    pub(super) fn all_gone(&self, from: Option<&str>) -> Vec<(String, u64)> {
        let gone: Vec<_> = {
            let mut state = self.state.lock();
            state.handed.extract_if(|(sender, _), _| from.is_none_or(|from| from == sender)).collect()
        };
        let given_up = gone.into_iter().map(|(whose, gone)| {
            gone.send_replace(true);
            whose
        });
        given_up.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_as_they_were_written() {
        for kind in KINDS {
            for subject in SUBJECTS {
                let from = "0123456789abcdef".to_owned();
                let letter =
                    Letter { kind, subject, from, serial: 7, number: u64::MAX, body: b"x\0".to_vec() };
                let written = letter.write();
                assert_eq!(Letter::read(&written), Some(letter));
                assert!((0..written.len() - 2).all(|cut| Letter::read(&written[..cut]).is_none()));
            }
        }
        assert_eq!(Letter::read(&[9; 64]), None);
    }

    #[test]
    fn a_letter_counts_once_and_an_answer_only_from_whom_was_asked() {
        let desk = PostOffice::default();
        assert!(desk.is_new("a", 1) && !desk.is_new("a", 1) && desk.is_new("b", 1));
        (2..=REMEMBERED as u64).for_each(|serial| assert!(desk.is_new("a", serial)));
        assert!(!desk.is_new("b", 1) && desk.is_new("a", 1), "the oldest is forgotten");
        let mut parts = desk.ask(5, "a");
        assert!(desk.part(5, Some("b"), Arrival::Bounced), "it goes on waiting");
        assert!(desk.part(5, Some("a"), Arrival::Answer(vec![1], false)));
        assert_eq!((desk.asked(), desk.sent_to("a")), (vec![5], vec![]));
        desk.sent(5);
        assert_eq!((desk.sent_to("a"), desk.sent_to("b")), (vec![5], vec![]));
        assert!(desk.part(5, Some("a"), Arrival::Answer(vec![2], true)));
        assert!(!desk.part(5, Some("a"), Arrival::Answer(vec![3], false)), "it has ended");
        assert_eq!(parts.try_recv(), Ok(Arrival::Answer(vec![1], false)));
        assert_eq!(parts.try_recv(), Ok(Arrival::Answer(vec![2], true)));
        assert!(parts.try_recv().is_err());
        // Whoever does not read is cut off.
        let _parts = desk.ask(6, "a");
        let taken = (0..=MOST_PARTS).filter(|_| desk.part(6, None, Arrival::Answer(vec![], false))).count();
        assert_eq!((taken, desk.forget(6)), (MOST_PARTS, None));
    }

    #[test]
    fn who_serves_a_request_learns_that_nobody_waits() {
        let desk = PostOffice::default();
        let [mut one, mut two, three] = [("a", 1), ("a", 2), ("b", 1)].map(|(from, n)| desk.hand(from, n));
        desk.gone("a", 1);
        assert!(*one.borrow_and_update() && !*two.borrow_and_update());
        assert_eq!(desk.all_gone(Some("a")), [("a".to_owned(), 2)]);
        assert!(*two.borrow_and_update() && !*three.borrow());
        desk.served("b", 1);
        assert!(three.has_changed().is_err(), "it is forgotten");
    }
}
