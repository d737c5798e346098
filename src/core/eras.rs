//! The era of each server, so that a server is asked only once, however often it is started. `known.rs`
//! keeps it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::protocol::era::Era;

/// The eras that this process knows.
#[derive(Default)]
pub(super) struct Eras {
    known: Mutex<HashMap<String, Era>>,
    /// The servers that are being asked right now.
    asked: watch::Sender<HashSet<String>>,
}

impl Eras {
    /// The era that a server spoke when it was last asked.
    pub(super) fn get(&self, server: &str) -> Option<Era> {
        self.known.lock().get(server).copied()
    }

    /// Records the era of a server.
    pub(super) fn set(&self, server: &str, era: Era) {
        self.known.lock().insert(server.to_owned(), era);
    }

    /// Forgets the era of a server, so that it is asked again.
    pub(super) fn forget(&self, server: &str) {
        self.known.lock().remove(server);
    }

    /// Waits while another task asks the same server, but no longer than `patience`. While the returned guard
    /// exists, others wait in turn.
    pub(super) async fn ask(&self, server: &str, patience: Duration) -> Option<Asking<'_>> {
        let mut asked = self.asked.subscribe();
        let turn = async {
            while !self.asked.send_if_modified(|asked| asked.insert(server.to_owned())) {
                let _ = asked.changed().await;
            }
        };
        timeout(patience, turn).await.ok()?;
        Some(Asking { eras: self, server: server.to_owned() })
    }
}

/// The guard of a task that is asking a server for its era.
pub(super) struct Asking<'a> {
    eras: &'a Eras,
    server: String,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.eras.asked.send_modify(|asked| {
            asked.remove(&self.server);
        });
    }
}
