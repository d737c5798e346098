//! Our subscription at a modern upstream, which carries everything that the upstream sends unasked.
//!
//! The subscription can be changed only by a new `subscriptions/listen`, so there may be several for a while:
//!
//! ```text
//! listen ──▶ begun ──acknowledged──▶ the only one, a little later (those before it are cancelled)
//!              │
//!              └──ended or broken──▶ after a pause, doubled while none is acknowledged: listen
//! ```
//!
//! Invariant: this relies on one thread. If two subscriptions begin at once, the later one must include
//! everything that is watched.
//!
//! Invariant: a subscription is recorded before it is sent, so that its acknowledgement and its end find it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use super::{Caller, Connection};
use crate::json::quote;
use crate::protocol::era::modern_meta;
use crate::transport::peer::{Answer, OnAnswer};

/// The pause after the upstream ends our subscription, and how long an old subscription outlives the start of
/// its successor.
const BETWEEN_LISTENS: Duration = Duration::from_secs(1);
/// The number of times that this pause is doubled while no subscription is acknowledged.
const MOST_DOUBLINGS: u32 = 5;

/// The capabilities of a client that wants to hear about tasks.
const WITH_TASKS: &str = "{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}";

/// Our subscriptions at one upstream.
#[derive(Default)]
pub(super) struct Subscription(Mutex<Listening>);

#[derive(Default)]
struct Listening {
    /// The ids. The last one counts; those before it end when it is acknowledged.
    ids: Vec<u64>,
    /// The number of subscriptions that have begun.
    begun: u64,
    /// The number of subscriptions that the upstream has ended since one was acknowledged.
    broken: u32,
}

impl Subscription {
    fn begin(&self, id: u64) {
        let mut state = self.0.lock();
        state.ids.push(id);
        state.begun += 1;
    }

    /// Records that the upstream ended this subscription. Returns how many had ended before, or `None` if
    /// another has replaced this one.
    fn broke(&self, id: u64) -> Option<u32> {
        let mut state = self.0.lock();
        if state.ids.last() != Some(&id) {
            return None;
        }
        state.broken += 1;
        Some(state.broken - 1)
    }

    fn is_current(&self, id: u64) -> bool {
        self.0.lock().ids.last() == Some(&id)
    }

    fn is_broken(&self) -> bool {
        self.0.lock().broken > 0
    }

    /// Records that the upstream is listening again, or never will. Returns whether a change may have been
    /// missed.
    fn catch_up(&self) -> bool {
        std::mem::take(&mut self.0.lock().broken) > 0
    }

    /// Removes and returns the subscriptions before this one.
    fn take_before(&self, id: u64) -> Vec<u64> {
        let mut state = self.0.lock();
        let at = state.ids.iter().position(|known| *known == id).unwrap_or(0);
        state.ids.drain(..at).collect()
    }

    /// The number of subscriptions that have begun.
    pub(super) fn begun(&self) -> u64 {
        self.0.lock().begun
    }

    /// Calls `look` with the ids.
    pub(super) fn with_ids<R>(&self, look: impl FnOnce(&[u64]) -> R) -> R {
        look(&self.0.lock().ids)
    }
}

impl Connection {
    /// Subscribes to everything that a modern upstream may send unasked, again if that has changed. The
    /// previous subscription outlives the start of this one, so that no change is lost between them.
    pub(in crate::core) fn listen(self: &Arc<Self>) {
        let (uris, tasks) = self.upstream.watched();
        let quoted = |texts: Vec<String>| texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(",");
        let (capabilities, tasks) = match tasks.is_empty() {
            true => (self.capabilities(), String::new()),
            false => (WITH_TASKS, format!(",\"taskIds\":[{}]", quoted(tasks))),
        };
        let params = format!(
            "{{\"_meta\":{{{}}},\"notifications\":{{\"toolsListChanged\":true,\"promptsListChanged\":true,\
             \"resourcesListChanged\":true,\"resourceSubscriptions\":[{}]{tasks}}}}}",
            modern_meta(capabilities),
            quoted(uris),
        );
        let (id, connection) = (self.peer.reserve(), Arc::downgrade(self));
        let on_end = OnAnswer::run(move |answer| {
            if let Some(connection) = connection.upgrade() {
                connection.subscription_ended(id, &answer);
            }
        });
        if let Some(request) = self.peer.open(id, Caller::default(), None, on_end) {
            self.subscription.begin(id);
            request.send("subscriptions/listen", |out, _| out.extend_from_slice(params.as_bytes()));
        }
    }

    /// Handles the end of one of our subscriptions: the upstream refused or ended it, or the stream broke.
    fn subscription_ended(self: &Arc<Self>, id: u64, answer: &Answer<'_>) {
        // A connection that is gone needs no new subscription, and neither does a replaced one; a server may
        // allow only one at a time.
        if !self.peer.is_open() || !self.subscription.is_current(id) {
            return;
        }
        match answer {
            Answer::Error(_) => return self.caught_up(),
            Answer::Lost(lost) if lost.is_malformed() => return self.caught_up(),
            Answer::Result(_) | Answer::Lost(_) => {}
        }
        let Some(before) = self.subscription.broke(id) else { return };
        if before > 0 {
            self.doubt();
        }
        let connection = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(BETWEEN_LISTENS * (1 << before.min(MOST_DOUBLINGS))).await;
            let Some(connection) = connection.upgrade() else { return };
            connection.listen();
            // An upstream that never acknowledges may have been replaced all the same.
            sleep(BETWEEN_LISTENS).await;
            if before == 0 && connection.subscription.is_broken() {
                connection.doubt();
            }
        });
    }

    /// The upstream is listening again, or refuses to. Changes in between are unknown, so everything is read
    /// again.
    fn caught_up(&self) {
        if self.subscription.catch_up() {
            self.doubt();
        }
    }

    /// Handles an acknowledgement: the earlier subscriptions are cancelled a little later, because a server
    /// may say that it listens before it does. In between, a client that watches a resource may be told
    /// twice.
    pub(in crate::core) fn listens(self: &Arc<Self>, id: u64) {
        self.caught_up();
        let before = self.subscription.take_before(id);
        if before.is_empty() {
            return;
        }
        let connection = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(BETWEEN_LISTENS).await;
            let Some(connection) = connection.upgrade() else { return };
            for id in before {
                if connection.peer.forget(id).is_some() {
                    connection.peer.send_cancelled(id, "subscribed anew");
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_counts_and_those_before_it_end_when_it_is_acknowledged() {
        let subscription = Subscription::default();
        [3, 5, 8].into_iter().for_each(|id| subscription.begin(id));
        assert!(subscription.is_current(8) && !subscription.is_current(5));
        assert_eq!(subscription.broke(5), None, "another has taken its place");
        assert!(!subscription.catch_up(), "nothing was missed");
        assert_eq!((subscription.broke(8), subscription.broke(8)), (Some(0), Some(1)));
        assert!(subscription.is_broken() && subscription.catch_up() && !subscription.is_broken());
        for (acknowledged, ended, left) in
            [(9, &[][..], &[3, 5, 8][..]), (5, &[3], &[5, 8]), (5, &[], &[5, 8]), (8, &[5], &[8])]
        {
            assert_eq!(subscription.take_before(acknowledged), ended, "{acknowledged}");
            subscription.with_ids(|ids| assert_eq!(ids, left, "{acknowledged}"));
        }
    }
}
