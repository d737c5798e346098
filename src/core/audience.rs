//! Everybody who looks: the workspaces that changes of upstreams reach, and the client on stdin.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::session::ClientSession;
use super::workspace::Workspace;

/// The workspaces of a gateway, and the client on its stdin.
#[derive(Default)]
pub struct Audience {
    workspaces: Mutex<Vec<Weak<Workspace>>>,
    /// The client on our stdin, where there is one.
    stdio: Mutex<Weak<ClientSession>>,
    /// Told of a workspace in which an upstream has come up or is new.
    on_arrival: OnceLock<OnArrival>,
}

type OnArrival = Box<dyn Fn(&Arc<Workspace>) + Send + Sync>;

impl Audience {
    /// Lets a workspace be told of changes.
    pub(super) fn add(&self, workspace: &Arc<Workspace>) {
        let mut workspaces = self.workspaces.lock();
        workspaces.retain(|workspace| workspace.strong_count() > 0);
        workspaces.push(Arc::downgrade(workspace));
    }

    /// Tells those who share a workspace of nothing any more.
    pub(super) fn remove(&self, workspace: &Arc<Workspace>) {
        let is_other = |other: &Weak<Workspace>| !std::ptr::eq(other.as_ptr(), &**workspace);
        self.workspaces.lock().retain(|other| other.strong_count() > 0 && is_other(other));
    }

    /// Every workspace that somebody has.
    pub fn workspaces(&self) -> Vec<Arc<Workspace>> {
        self.workspaces.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes the client on our stdin known: what belongs to no call goes there.
    pub fn attach_stdio(&self, session: &Arc<ClientSession>) {
        *self.stdio.lock() = Arc::downgrade(session);
    }

    /// The client on our stdin, while there is one.
    pub fn stdio(&self) -> Option<Arc<ClientSession>> {
        self.stdio.lock().upgrade()
    }

    /// Has `tell` called with every workspace in which an upstream has come up or is new.
    pub fn on_arrival(&self, tell: impl Fn(&Arc<Workspace>) + Send + Sync + 'static) {
        let _ = self.on_arrival.set(Box::new(tell));
    }

    pub(super) fn arrived(&self, workspace: &Arc<Workspace>) {
        if let Some(tell) = self.on_arrival.get().filter(|_| workspace.has_listeners()) {
            tell(workspace);
        }
    }
}
