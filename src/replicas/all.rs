//! What concerns all replicas at once: questions that each of them answers, and the return of the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::members::GONE;
use super::post::{Arrival, Subject};
use super::store::Away;
use super::{Asking, Replicas};

/// Questions to all others, each on its way.
pub struct AskingAll(Vec<Asking>);

impl Replicas {
    /// Asks all others who are there the same, also those that have come since our last beat.
    pub async fn ask_all(self: &Arc<Self>, subject: Subject, body: &[u8]) -> Result<AskingAll, Away> {
        self.reachable()?;
        let roll = self.noted(self.store.roll(&self.id).await)?;
        let there = roll.others.iter().filter(|(_, silence)| *silence < GONE);
        let mut asking = Vec::new();
        for (id, _) in there {
            asking.push(self.ask(id, subject, body).await?);
        }
        Ok(AskingAll(asking))
    }

    /// Waits until the store is there.
    pub async fn back(&self) {
        let _ = self.away.subscribe().wait_for(Option::is_none).await;
    }
}

impl AskingAll {
    /// Waits until each has answered or is gone, but no longer than this.
    pub async fn answered(self, patience: Duration) {
        let all = async {
            for mut asking in self.0 {
                while let Arrival::Answer(_, false) = asking.next().await {}
            }
        };
        let _ = timeout(patience, all).await;
    }
}
