//! Limits what all streams together keep for returning readers, and decides which streams give way when it is
//! too much.

use std::collections::BTreeMap;
use std::sync::Weak;

use parking_lot::Mutex;

use super::stream::Stream;

/// The budget of all streams of a process.
pub(super) struct Budget {
    most: usize,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    kept: usize,
    next: u64,
    /// The streams that keep something. The first one gives way first.
    order: BTreeMap<Rank, Weak<Stream>>,
}

type Rank = (Claim, u64);

/// How much a stream needs what it keeps; the least comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// No more messages come.
    Finished,
    /// A reader is attached and has received what is kept.
    Read,
    /// Nobody has received all of it.
    Waiting,
}

/// The account of one stream.
#[derive(Default)]
pub(super) struct Account {
    kept: usize,
    rank: Option<Rank>,
}

impl Budget {
    /// A budget of at most `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ledger: Mutex::default() }
    }

    /// Records what a stream keeps now. Streams with the same claim are in the order in which they came to
    /// it.
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

    /// Makes streams drop what they keep until the budget is met. The caller must not hold the lock of any
    /// stream.
    pub(super) fn enforce(&self) {
        while let Some(stream) = self.first_to_give_way() {
            // A stream that is just being dropped gives its share back by itself.
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

    /// The number of bytes that are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        let ledger = self.ledger.lock();
        assert!(ledger.kept > 0 || ledger.order.is_empty(), "who keeps nothing has no place");
        ledger.kept
    }
}
