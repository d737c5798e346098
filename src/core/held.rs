//! Answers that wait until the client has the tools that they speak of.
//!
//! Clients that read a changed list again send their next request before they have done so: the model cannot call what it
//! has just opened. So the gateway lets the answer to what changed a client's tools wait in [`Reply::caught_up`], after
//! the client was told and before the answer is sent.
//!
//! ```text
//! told ── `tools/list` is answered ──> settling ── the time that the client needs ──> sent
//!   └──────────── LONGEST ─────────────────┴──> sent, and no later answer of the session waits
//!   └──────────── the session ends ────────┴──> sent
//! ```
//!
//! Invariant: nothing but the answer itself waits, and only where the client is known to need it and can be told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::reply::Reply;
use super::session::ClientSession;
use crate::known_clients::{Behaviour, ChangedLists};

/// What a client may take to have its new tools.
const LONGEST: Duration = Duration::from_secs(2);

/// Whether answers of a session are held, and what those that are wait for.
#[derive(Default)]
pub(super) struct Holding {
    /// The client took too long once.
    given_up: AtomicBool,
    /// The list of tools was answered, or the session ends.
    news: Notify,
}

impl Holding {
    /// Lets those who wait look again.
    pub(super) fn look_again(&self) {
        self.news.notify_waiters();
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let news = self.news.notified();
            if holds() {
                return;
            }
            news.await;
        }
    }
}

impl Reply {
    /// Waits until the client has the tools that it was told of since it had been told `before` times, if it was and
    /// needs that. The lists of modern clients do not change by what they ask for.
    pub async fn caught_up(&self, before: u64) {
        if self.modern().is_none() {
            self.session().has_caught_up(before).await;
        }
    }
}

impl ClientSession {
    async fn has_caught_up(&self, before: u64) {
        let told = self.told_of_tools();
        let Some(settling) = self.settling_time().filter(|_| told > before) else { return };
        let has_settled = async {
            self.holding.until(|| self.has_list_of_tools(told)).await;
            sleep(settling).await;
        };
        tokio::select! {
            () = has_settled => {}
            () = self.holding.until(|| self.is_ending()) => {}
            () = sleep(LONGEST) => {
                tracing::debug!("the client has not read its new tools in time; no answer waits for that any more");
                self.holding.given_up.store(true, Ordering::Relaxed);
            }
        }
    }

    /// What the client needs after it has read a list; `None` where its answers are not held.
    fn settling_time(&self) -> Option<Duration> {
        let is_held = !self.holding.given_up.load(Ordering::Relaxed) && self.can_be_told();
        match Behaviour::of(&self.hello()?.name).changed_lists {
            ChangedLists::TakenUp { settling } if is_held => Some(settling),
            _ => None,
        }
    }
}
