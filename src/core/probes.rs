//! The servers that are being asked for their era, so that starts of the same server at the same time ask it once.
//! `known.rs` keeps them.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::config::Transport;

/// The servers that are being asked right now.
#[derive(Default)]
pub(super) struct Probes(watch::Sender<Vec<Transport>>);

impl Probes {
    /// Waits while another task asks the same server, but no longer than `patience`. While the returned guard
    /// exists, others wait in turn.
    pub(super) async fn begin(&self, server: &Transport, patience: Duration) -> Option<Probe<'_>> {
        let mut running = self.0.subscribe();
        let turn = async {
            let begin = |running: &mut Vec<Transport>| {
                let free = !running.contains(server);
                running.extend(free.then(|| server.clone()));
                free
            };
            while !self.0.send_if_modified(begin) {
                let _ = running.changed().await;
            }
        };
        timeout(patience, turn).await.ok()?;
        Some(Probe { probes: self, server: server.clone() })
    }
}

/// The guard of a task that is asking a server for its era.
pub(super) struct Probe<'a> {
    probes: &'a Probes,
    server: Transport,
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.probes.0.send_modify(|running| running.retain(|server| *server != self.server));
    }
}
