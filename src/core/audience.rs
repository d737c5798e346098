//! Everybody who looks, and who is told when what they see changes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::session::Session;
use super::window::Window;
use crate::catalog::Kind;

/// The windows of a gateway, and the client on its stdin.
#[derive(Default)]
pub struct Audience {
    windows: Mutex<Vec<Weak<Window>>>,
    /// The client on our stdin, where there is one.
    stdio: Mutex<Weak<Session>>,
    /// While the first lists wait for upstreams nobody is told that lists change.
    quiet: AtomicUsize,
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

    /// Tells everybody who looks through a window of changed lists.
    pub(super) fn announce(&self, window: &Window, changed: &[Kind]) {
        self.tell(window, changed);
        if !changed.is_empty() && !self.is_quiet() && window.exposure().lists_to_modern() {
            window.tell_listeners(changed);
        }
    }

    /// Tells a window's legacy clients of changed lists, those that each sees.
    pub fn tell(&self, window: &Window, changed: &[Kind]) {
        if changed.is_empty() || self.is_quiet() {
            return;
        }
        let exposure = window.exposure();
        for session in window.sessions() {
            let seen: Vec<_> =
                changed.iter().copied().filter(|kind| exposure.lists(session.hello(), *kind)).collect();
            session.lists_changed(&seen);
        }
    }

    /// Tells nobody of changed lists until [`Self::speak_up`]; may be nested.
    pub(super) fn keep_quiet(&self) {
        self.quiet.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells of changed lists again.
    pub(super) fn speak_up(&self) {
        self.quiet.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether nobody is told of changed lists just now.
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed) > 0
    }
}
