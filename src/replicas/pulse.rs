//! Tells the other replicas that we live, on a thread of its own. The one that serves clients may have much to do, or wait for
//! its turn on a crowded machine; whoever only wakes up for a moment is let in soon, and nobody takes us for dead.
//!
//! Invariant: a replica that does not come to hear its beats stops beating, since it serves nobody either.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::members::BEAT;
use super::store::{Away, Roll, Store};

/// The most beats that may wait to be heard.
const MOST_UNHEARD: usize = 10;

/// Something that was said to the store: that we live.
pub(super) struct Beat {
    /// When we began to say it.
    pub(super) told: Instant,
    /// What the store said.
    pub(super) answer: Result<Roll, Away>,
}

/// Begins to beat. Whoever drops the sender ends it; whoever sends has us leave as well. Either is done when the receiver
/// ends.
pub(super) fn begin(
    store: Arc<dyn Store>,
    id: Arc<str>,
) -> std::io::Result<(oneshot::Sender<()>, mpsc::Receiver<Beat>)> {
    let (leave, leaving) = oneshot::channel();
    let (beats, heard) = mpsc::channel(MOST_UNHEARD);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("pulse".to_owned()).spawn(move || {
        runtime.block_on(async {
            let leaves = tokio::select! {
                () = keep_beating(&*store, &id, &beats) => false,
                told = leaving => told.is_ok(),
            };
            if leaves {
                // By the same connection, so that no beat comes after it.
                let _ = store.leave(&id).await;
            }
        });
        drop(beats);
        // A look-up of a name may still be under way, and must not hold us up.
        runtime.shutdown_background();
    })?;
    Ok((leave, heard))
}

/// Beats until nobody hears it any more.
async fn keep_beating(store: &dyn Store, id: &str, beats: &mpsc::Sender<Beat>) {
    loop {
        let told = Instant::now();
        let answer = store.beat(id).await;
        if beats.send(Beat { told, answer }).await.is_err() {
            return;
        }
        sleep_until(told + BEAT).await;
    }
}
