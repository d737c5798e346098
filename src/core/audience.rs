//! Everybody who looks: the windows that changes of upstreams reach, and the client on stdin.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::session::Session;
use super::window::Window;

/// The windows of a gateway, and the client on its stdin.
#[derive(Default)]
pub struct Audience {
    windows: Mutex<Vec<Weak<Window>>>,
    /// The client on our stdin, where there is one.
    stdio: Mutex<Weak<Session>>,
    /// Told of a window in which an upstream has come up or is new.
    on_arrival: OnceLock<OnArrival>,
}

type OnArrival = Box<dyn Fn(&Arc<Window>) + Send + Sync>;

impl Audience {
    /// Lets a window be told of changes.
    pub(super) fn add(&self, window: &Arc<Window>) {
        let mut windows = self.windows.lock();
        windows.retain(|window| window.strong_count() > 0);
        windows.push(Arc::downgrade(window));
    }

    /// Tells those who look through a window of nothing any more.
    pub(super) fn remove(&self, window: &Arc<Window>) {
        let is_other = |other: &Weak<Window>| !std::ptr::eq(other.as_ptr(), &**window);
        self.windows.lock().retain(|other| other.strong_count() > 0 && is_other(other));
    }

    /// Every window that somebody looks through.
    pub fn windows(&self) -> Vec<Arc<Window>> {
        self.windows.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes the client on our stdin known: what belongs to no call goes there.
    pub fn attach_stdio(&self, session: &Arc<Session>) {
        *self.stdio.lock() = Arc::downgrade(session);
    }

    /// The client on our stdin, while there is one.
    pub fn stdio(&self) -> Option<Arc<Session>> {
        self.stdio.lock().upgrade()
    }

    /// Has `tell` called with every window in which an upstream has come up or is new.
    pub fn on_arrival(&self, tell: impl Fn(&Arc<Window>) + Send + Sync + 'static) {
        let _ = self.on_arrival.set(Box::new(tell));
    }

    pub(super) fn arrived(&self, window: &Arc<Window>) {
        if let Some(tell) = self.on_arrival.get().filter(|_| window.has_listeners()) {
            tell(window);
        }
    }
}
