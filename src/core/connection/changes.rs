//! Which parts of an upstream have to be read again: its changed lists, and its description of itself.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

use crate::catalog::Kind;

/// One bit for each changed list, and one for the upstream's description of itself. Many tasks set them; only
/// the lifecycle waits for them.
#[derive(Default)]
pub(in crate::core) struct Changes {
    bits: AtomicU8,
    news: Notify,
}

impl Changes {
    /// The bit for the upstream's description of itself.
    pub(in crate::core) const HELLO: u8 = 1 << 7;
    /// The bits of all lists.
    pub(in crate::core) const LISTS: u8 = (1 << Kind::ALL.len()) - 1;

    /// The bit of one list.
    pub(in crate::core) fn list(kind: Kind) -> u8 {
        1 << kind as u8
    }

    /// Requests that these be read again.
    pub(in crate::core) fn note(&self, bits: u8) {
        self.bits.fetch_or(bits, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// Waits until a bit is set.
    pub(in crate::core) async fn noted(&self) {
        self.news.notified().await;
    }

    /// Takes the bits that were set since the last call.
    pub(in crate::core) fn take(&self) -> u8 {
        self.bits.swap(0, Ordering::Relaxed)
    }
}
