//! What of an upstream has to be read again: lists that have changed, and what it says of itself.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

use crate::catalog::Kind;

/// A bit for each list that has changed, and for what the upstream says of itself. Many may note them, the lifecycle alone
/// waits for them.
#[derive(Default)]
pub(in crate::core) struct Changes {
    bits: AtomicU8,
    news: Notify,
}

impl Changes {
    /// What the upstream says of itself may have changed.
    pub(in crate::core) const HELLO: u8 = 1 << 7;
    /// Every list may have changed.
    pub(in crate::core) const LISTS: u8 = (1 << Kind::ALL.len()) - 1;

    /// The bit of one list.
    pub(in crate::core) fn list(kind: Kind) -> u8 {
        1 << kind as u8
    }

    /// Has these read again.
    pub(in crate::core) fn note(&self, bits: u8) {
        self.bits.fetch_or(bits, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// Waits until something was noted.
    pub(in crate::core) async fn noted(&self) {
        self.news.notified().await;
    }

    /// What was noted since this was last asked.
    pub(in crate::core) fn take(&self) -> u8 {
        self.bits.swap(0, Ordering::Relaxed)
    }
}
