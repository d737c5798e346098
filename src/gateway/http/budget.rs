//! What all streams together keep for readers that come back, and which of them give way when it is too much.

use std::collections::BTreeMap;
use std::sync::Weak;

use parking_lot::Mutex;

use super::stream::Stream;

/// What all streams of a process keep.
pub(super) struct Budget {
    most: usize,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    kept: usize,
    next: u64,
    /// The streams that keep something; the first gives way first.
    order: BTreeMap<Rank, Weak<Stream>>,
}

type Rank = (Claim, u64);

/// How much a stream needs what it keeps, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// Nothing more comes.
    Finished,
    /// Somebody reads it and has had what is kept.
    Read,
    /// Nobody has had all of it.
    Waiting,
}

/// What one stream keeps.
#[derive(Default)]
pub(super) struct Account {
    kept: usize,
    rank: Option<Rank>,
}

impl Budget {
    /// An account of at most so many bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ledger: Mutex::default() }
    }

    /// Notes what a stream keeps now. Streams of the same claim stand in the order in which they came to it.
    pub(super) fn note(&self, account: &mut Account, kept: usize, claim: Claim, stream: &Weak<Stream>) {
        let rank = account.rank.filter(|rank| kept > 0 && rank.0 == claim);
        if kept == account.kept && rank == account.rank {
            return;
        }
        let mut ledger = self.ledger.lock();
        ledger.kept = ledger.kept - account.kept + kept;
        account.kept = kept;
        if rank.is_none() {
            if let Some(old) = account.rank.take() {
                ledger.order.remove(&old);
            }
            if kept > 0 {
                let rank = (claim, ledger.next);
                ledger.next += 1;
                ledger.order.insert(rank, stream.clone());
                account.rank = Some(rank);
            }
        }
    }

    /// Has streams let go of what they keep until it is no longer too much. The caller holds no stream's lock.
    pub(super) fn enforce(&self) {
        while let Some(stream) = self.first_to_give_way() {
            // One that is just being dropped gives its part back by itself.
            if let Some(stream) = stream.upgrade() {
                stream.let_go();
            }
        }
    }

    fn first_to_give_way(&self) -> Option<Weak<Stream>> {
        let mut ledger = self.ledger.lock();
        if ledger.kept <= self.most {
            return None;
        }
        ledger.order.pop_first().map(|(_, stream)| stream)
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        let ledger = self.ledger.lock();
        assert!(ledger.kept > 0 || ledger.order.is_empty(), "who keeps nothing has no place");
        ledger.kept
    }
}
