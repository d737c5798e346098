//! Everybody who looks: the workspaces that hear of changes in upstreams, and the client on stdin.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::session::ClientSession;
use super::workspace::Workspace;

/// The workspaces of a gateway, and the client on its stdin.
#[derive(Default)]
pub struct Audience {
    workspaces: Mutex<Vec<Weak<Workspace>>>,
    /// The client on our stdin, if there is one.
    stdio: Mutex<Weak<ClientSession>>,
    /// Until when upstreams wait for that client to declare its capabilities.
    patience: OnceLock<Instant>,
    /// Notified when some client has said who it is.
    introduced: Notify,
    /// Called with each workspace in which an upstream has come up or is new.
    on_arrival: OnceLock<OnArrival>,
}

/// How long upstreams that start with us wait for the first message of the client on stdin.
const FIRST_MESSAGE: Duration = Duration::from_millis(500);

type OnArrival = Box<dyn Fn(&Arc<Workspace>) + Send + Sync>;

impl Audience {
    /// Adds a workspace, which hears of changes from now on.
    pub(super) fn add(&self, workspace: &Arc<Workspace>) {
        let mut workspaces = self.workspaces.lock();
        workspaces.retain(|workspace| workspace.strong_count() > 0);
        workspaces.push(Arc::downgrade(workspace));
    }

    /// Removes a workspace; its clients are told of nothing any more.
    pub(super) fn remove(&self, workspace: &Arc<Workspace>) {
        let is_other = |other: &Weak<Workspace>| !std::ptr::eq(other.as_ptr(), &**workspace);
        self.workspaces.lock().retain(|other| other.strong_count() > 0 && is_other(other));
    }

    /// Every workspace that is still in use.
    pub fn workspaces(&self) -> Vec<Arc<Workspace>> {
        self.workspaces.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes the client on our stdin known; messages that belong to no call go to it.
    pub fn attach_stdio(&self, session: &Arc<ClientSession>) {
        *self.stdio.lock() = Arc::downgrade(session);
        let _ = self.patience.set(Instant::now() + FIRST_MESSAGE);
    }

    /// Notes that a client has said who it is.
    pub fn introduce(&self) {
        self.introduced.notify_waiters();
    }

    /// Waits a moment for the client on our stdin, if there is one, to declare what upstreams are to be told
    /// about it.
    pub(super) async fn introduced(&self) {
        let (Some(session), Some(patience)) = (self.stdio(), self.patience.get()) else { return };
        let declared = async {
            loop {
                let introduced = self.introduced.notified();
                if session.declared().is_some() {
                    return;
                }
                introduced.await;
            }
        };
        let _ = timeout_at(*patience, declared).await;
    }

    /// The client on our stdin, as long as there is one.
    pub fn stdio(&self) -> Option<Arc<ClientSession>> {
        self.stdio.lock().upgrade()
    }

    /// Registers `tell`, which is called with every workspace in which an upstream has come up or is new.
    pub fn on_arrival(&self, tell: impl Fn(&Arc<Workspace>) + Send + Sync + 'static) {
        let _ = self.on_arrival.set(Box::new(tell));
    }

    pub(super) fn arrived(&self, workspace: &Arc<Workspace>) {
        if let Some(tell) = self.on_arrival.get().filter(|_| workspace.has_listeners()) {
            tell(workspace);
        }
    }
}
