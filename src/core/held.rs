//! Answers that wait until the client has the tools that they speak of.
//!
//! Clients that read a changed list again send their next request before they have read it, so the model
//! cannot call what it has just opened. The gateway therefore holds the answer to a request that changed the
//! client's tools: it waits in [`Reply::caught_up`], after the client was told of the change and before the
//! answer is sent.
//!
//! ```text
//! told ── `tools/list` is answered ──> settling ── the time that the client needs ──> sent
//!   └──────────── LONGEST ─────────────────┴──> sent, and no later answer of the session waits
//!   └──────────── the session ends ────────┴──> sent
//! ```
//!
//! Invariant: nothing but the answer itself waits, and only where the client is known to need it and can be
//! told.

use std::time::Duration;

use tokio::time::sleep;

use super::reply::Reply;
use super::session::ClientSession;
use crate::known_clients::{Behaviour, ChangedLists};

/// How long a client may take to read its new tools.
const LONGEST: Duration = Duration::from_secs(2);

impl Reply {
    /// Waits until the client has the tools that it was told of after its first `before` notices, if there
    /// were later ones and the client needs the wait. A modern client never waits: its requests do not change
    /// its lists.
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
            self.until(|| self.has_list_of_tools(told)).await;
            sleep(settling).await;
        };
        tokio::select! {
            () = has_settled => {}
            () = self.until(|| self.is_ending()) => {}
            () = sleep(LONGEST) => {
                tracing::debug!("the client did not list its new tools in time; answers no longer wait for it");
                self.give_up();
            }
        }
    }

    /// How long the client needs after it has read a list; `None` where its answers are not held.
    fn settling_time(&self) -> Option<Duration> {
        match Behaviour::of(&self.hello()?.name).changed_lists {
            ChangedLists::TakenUp { settling } if self.can_be_waited_for() => Some(settling),
            _ => None,
        }
    }
}
