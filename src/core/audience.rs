//! Everybody who looks: the workspaces that hear of changes in upstreams, and the client on stdin.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::session::ClientSession;
use super::upstream::Upstream;
use super::workspace::Workspace;

/// The workspaces of a gateway, and the client on its stdin.
#[derive(Default)]
pub struct Audience {
    /// The workspaces, oldest first, and what is called when an upstream has come up or is new there.
    workspaces: Mutex<Vec<(Weak<Workspace>, Option<OnArrival>)>>,
    /// The client on our stdin, if there is one.
    stdio: Mutex<Weak<ClientSession>>,
    /// Until when upstreams wait for that client to declare its capabilities.
    patience: OnceLock<Instant>,
    /// Notified when some client has said who it is.
    introduced: Notify,
}

/// How long upstreams that start with us wait for the first message of the client on stdin.
const FIRST_MESSAGE: Duration = Duration::from_millis(500);

type OnArrival = Arc<dyn Fn(&Arc<Workspace>) + Send + Sync>;

impl Audience {
    /// Adds a workspace, which hears of changes from now on.
    pub(super) fn add(&self, workspace: &Arc<Workspace>) {
        let mut workspaces = self.workspaces.lock();
        workspaces.retain(|(workspace, _)| workspace.strong_count() > 0);
        workspaces.push((Arc::downgrade(workspace), None));
    }

    /// Removes a workspace; its clients are told of nothing any more.
    pub(super) fn remove(&self, workspace: &Arc<Workspace>) {
        let is_other = |other: &Weak<Workspace>| !std::ptr::eq(other.as_ptr(), &**workspace);
        self.workspaces.lock().retain(|(other, _)| other.strong_count() > 0 && is_other(other));
    }

    /// Every workspace that is still in use.
    pub fn workspaces(&self) -> Vec<Arc<Workspace>> {
        self.workspaces.lock().iter().filter_map(|(workspace, _)| workspace.upgrade()).collect()
    }

    /// A session of each workspace that shows this upstream, oldest first.
    pub fn lookers(&self, upstream: &Arc<Upstream>) -> Vec<Arc<ClientSession>> {
        let looking = self.workspaces().into_iter().filter(|workspace| workspace.shows(upstream));
        looking.filter_map(|workspace| workspace.sessions().into_iter().next()).collect()
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

    /// Waits a moment for the only client of an upstream, if there is one, to declare what the upstream is to
    /// be told about it.
    pub(super) async fn introduced(&self, only: Option<Arc<ClientSession>>) {
        let Some(session) = only else { return };
        let patience = self.patience.get().copied().unwrap_or_else(|| Instant::now() + FIRST_MESSAGE);
        let declared = async {
            loop {
                let introduced = self.introduced.notified();
                if session.declared().is_some() {
                    return;
                }
                introduced.await;
            }
        };
        let _ = timeout_at(patience, declared).await;
    }

    /// The client on our stdin, as long as there is one.
    pub fn stdio(&self) -> Option<Arc<ClientSession>> {
        self.stdio.lock().upgrade()
    }

    /// Registers `tell`, which is called when an upstream has come up or is new in this workspace.
    pub fn on_arrival(
        &self,
        workspace: &Arc<Workspace>,
        tell: impl Fn(&Arc<Workspace>) + Send + Sync + 'static,
    ) {
        let mut workspaces = self.workspaces.lock();
        let is_this = |(other, _): &&mut (Weak<Workspace>, _)| std::ptr::eq(other.as_ptr(), &**workspace);
        if let Some((_, on_arrival)) = workspaces.iter_mut().find(is_this) {
            *on_arrival = Some(Arc::new(tell));
        }
    }

    pub(super) fn arrived(&self, workspace: &Arc<Workspace>) {
        if !workspace.has_listeners() {
            return;
        }
        let is_this = |(other, _): &&(Weak<Workspace>, _)| std::ptr::eq(other.as_ptr(), &**workspace);
        let tell = self.workspaces.lock().iter().find(is_this).and_then(|(_, tell)| tell.clone());
        if let Some(tell) = tell {
            tell(workspace);
        }
    }
}
