//! What modern callers find at every replica, whichever of them answers, and the long results of all callers. The gateway
//! comes here only if the file names a store; `Gateway::join` begins it.
//!
//! | file | what |
//! |---|---|
//! | `views.rs` | what callers with the same credentials have open or switched: the same everywhere |
//! | `handing.rs` | requests that only one replica can serve, and how they get there |
//! | `results.rs` | long results, kept where every replica can read them |
//!
//! Most requests are served where they arrive, without a question to the store. Three kinds have a home: retries of parked
//! calls and requests about tasks go to the replica that their state or id names; requests of a token that has servers of its
//! own (`"isolation": "session"`) go to the replica that runs them.
//!
//! Invariant: a state is used once, whatever fails. Where the store cannot say that nobody has used it, it is refused.

mod handing;
mod results;
mod views;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use self::handing::Homes;
pub(super) use self::handing::modern;
use self::results::Library;
pub(super) use self::views::ViewChange;
use self::views::{SharedView, Views};
use super::Gateway;
use super::http::{Caller, CallerKey};
use crate::config::Isolation;
use crate::core::bridge::Unsealed;
use crate::core::tasks::TaskHome;
use crate::core::workspace::Workspace;
use crate::replicas::Replicas;
use crate::replicas::post::Subject;
use crate::replicas::store::Away;
use crate::results::kept::OWNERS_ROOM;

/// What this gateway shares with its replicas.
pub(super) struct Shared {
    pub(super) replicas: Arc<Replicas>,
    views: Views,
    homes: Homes,
    /// Whether callers have servers of their own, as long as the file stays the same.
    own_servers: Mutex<HashMap<CallerKey, bool>>,
    /// How often the keys had changed when all was last sealed.
    sealed_after: AtomicU64,
}

impl Shared {
    /// Takes note that a state is used; `false` if somebody used it before.
    pub(super) async fn use_up(&self, unsealed: &Unsealed) -> Result<bool, Away> {
        let key = format!("used:{}", Replicas::digest(&[&unsealed.text]));
        // A little longer than the state is good for, since clocks differ.
        let life = Duration::from_secs(unsealed.lasts + 60);
        Ok(self.replicas.swap(&key, 0, &self.replicas.id, &[], life).await?.is_some())
    }

    /// A new file is in force.
    pub(super) fn reloaded(self: &Arc<Self>, gateway: &Gateway) {
        self.own_servers.lock().clear();
        if gateway.engine.settings().serving.state_keys.is_empty() {
            gateway.engine.bridge.join(&self.replicas.id, &self.replicas.keys());
        }
        self.views.retain(|view| gateway.http_clients.has(&view.workspace));
        let shared = self.clone();
        tokio::spawn(async move { shared.seal_anew().await });
    }

    /// Seals what has to outlive the key before, if there is another one by now.
    async fn seal_anew(&self) -> Result<(), Away> {
        let key_changes = self.replicas.key_changes();
        if self.sealed_after.load(Ordering::Relaxed) == key_changes {
            return Ok(());
        }
        self.seal_homes_anew().await?;
        for view in self.views.all() {
            self.seal_view_anew(&view).await?;
        }
        self.sealed_after.store(key_changes, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a caller has servers of its own, so that its requests have a home.
    fn has_own_servers(&self, gateway: &Gateway, caller: &Caller, key: &CallerKey) -> bool {
        if let Some(known) = self.own_servers.lock().get(key) {
            return *known;
        }
        let Some(face) = gateway.faces.place_of(&caller.part()) else { return false };
        let face = gateway.faces.at(face);
        let has = face.servers().iter().any(|server| server.spec.isolation == Some(Isolation::Session));
        self.own_servers.lock().insert(key.clone(), has);
        has
    }

    /// Prepares a workspace that callers may come to at any replica.
    pub(super) fn furnish(self: &Arc<Self>, key: &CallerKey, workspace: &Workspace) {
        let (shared, key) = (Arc::downgrade(self), key.clone());
        workspace.results.is_shared_as(&format!("token {}", key.0));
        workspace.tasks.live_at(TaskHome {
            replica: self.replicas.id.clone(),
            note: Box::new(move |note, life| {
                if let Some(shared) = shared.upgrade() {
                    shared.note_task(&key, note, life);
                }
            }),
        });
    }
}

impl Gateway {
    /// Is one of several replicas from now on.
    pub fn join(self: &Arc<Self>, replicas: &Arc<Replicas>) {
        let shared = Arc::new(Shared {
            replicas: replicas.clone(),
            views: Views::default(),
            homes: Homes::default(),
            own_servers: Mutex::default(),
            sealed_after: AtomicU64::new(replicas.key_changes()),
        });
        if self.shared.set(shared.clone()).is_err() {
            return;
        }
        self.engine.bridge.join(&replicas.id, &replicas.keys());
        self.engine.kept.lie_in(Arc::new(Library { replicas: replicas.clone(), room: OWNERS_ROOM }));
        let gateway = Arc::downgrade(self);
        let views = gateway.clone();
        replicas.serve(
            Subject::View,
            Arc::new(move |handed| {
                let Some(gateway) = views.upgrade() else { return Some(handed) };
                views::told(gateway, handed);
                None
            }),
        );
        let requests = gateway.clone();
        replicas.serve(
            Subject::Modern,
            Arc::new(move |handed| {
                let Some(gateway) = requests.upgrade() else { return Some(handed) };
                handing::serve(gateway, handed);
                None
            }),
        );
        replicas.on_doubt(Arc::new(move || {
            let gateway = gateway.clone();
            Box::pin(async move {
                let Some(gateway) = gateway.upgrade() else { return Ok(()) };
                look_again(&gateway).await
            })
        }));
    }
}

/// Others may have taken our place, or the store has forgotten everything: looks at what stands there now.
async fn look_again(gateway: &Arc<Gateway>) -> Result<(), Away> {
    let Some(shared) = gateway.shared.get() else { return Ok(()) };
    // The key may be another one; that of the file stays.
    if gateway.engine.settings().serving.state_keys.is_empty() {
        gateway.engine.bridge.join(&shared.replicas.id, &shared.replicas.keys());
    }
    handing::give_up_lost_homes(gateway, shared).await?;
    shared.seal_anew().await?;
    for view in shared.views.all() {
        let gateway = gateway.clone();
        tokio::spawn(async move { views::sync(&gateway, &view).await });
    }
    Ok(())
}

/// The view that a workspace shares with other replicas, if it shares one.
pub(super) fn view_of(gateway: &Gateway, workspace: &Arc<Workspace>) -> Option<Arc<SharedView>> {
    gateway.shared.get()?.views.of(workspace)
}
