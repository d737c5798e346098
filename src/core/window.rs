//! What clients look through: a view, and who is told when it changes.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::modern::Listener;
use super::opening::{Hush, Hushes};
use super::session::Session;
use super::tasks::Tasks;
use super::upstream::Upstream;
use super::view::{Exposure, View};
use crate::catalog::Kind;
use crate::wire::message::Id;

/// A view, and the sessions that look through it: one over stdio and in the legacy era, all callers with the same
/// credentials in the modern one.
pub struct Window {
    /// Tells windows apart.
    pub id: u64,
    /// Tells clients apart that have upstreams for themselves: windows of the same client share it.
    pub client: u64,
    /// Who looks through it, as the configuration names them.
    pub principal: String,
    /// Which of the gateway's faces is seen through it, and how things are named there.
    face: RwLock<(usize, Arc<dyn Exposure + Send + Sync>)>,
    view: Mutex<View>,
    /// What was begun through it and goes on upstream.
    pub tasks: Tasks,
    /// URIs that results mentioned in a `resource_link`, and the group and server that sent them.
    links: Mutex<HashMap<String, Origin>>,
    pub(super) sessions: Mutex<Vec<Weak<Session>>>,
    pub(super) listeners: Mutex<Vec<Listener>>,
    hushes: Hushes,
}

/// A group and a server in it. They stay when the file puts another upstream there.
pub(super) type Origin = (Arc<str>, Arc<str>);

/// URIs of links remembered at most.
const MOST_LINKS: usize = 10_000;

impl Window {
    /// A window on nothing yet, of a client that has others, or of a new one.
    pub fn new(
        principal: &str,
        face: usize,
        exposure: Arc<dyn Exposure + Send + Sync>,
        client: Option<u64>,
    ) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            id,
            client: client.unwrap_or(id),
            principal: principal.to_owned(),
            face: RwLock::new((face, exposure)),
            view: Mutex::default(),
            tasks: Tasks::default(),
            links: Mutex::default(),
            sessions: Mutex::default(),
            listeners: Mutex::default(),
            hushes: Hushes::default(),
        })
    }

    /// Which of the gateway's faces is seen through it.
    pub fn face(&self) -> usize {
        self.face.read().0
    }

    /// How things are named in it.
    pub fn exposure(&self) -> Arc<dyn Exposure + Send + Sync> {
        self.face.read().1.clone()
    }

    /// Shows another face from now on. The view must be renewed by it.
    pub fn set_face(&self, face: usize, exposure: Arc<dyn Exposure + Send + Sync>) {
        *self.face.write() = (face, exposure);
    }

    /// Whether a modern client wants to hear of changes.
    pub fn has_listeners(&self) -> bool {
        !self.listeners.lock().is_empty()
    }

    /// Ends the subscriptions of modern clients properly.
    pub fn end_listeners(&self) {
        let listeners = std::mem::take(&mut *self.listeners.lock());
        for listener in listeners {
            listener.finish();
        }
    }

    /// The URIs that modern clients want to hear of.
    pub fn listened(&self) -> HashSet<String> {
        self.listeners.lock().iter().flat_map(Listener::resources).collect()
    }

    /// Hands over every subscription to this URI.
    pub fn each_listener_of(&self, uri: &str, mut take: impl FnMut(&mut Listener)) {
        let mut listeners = self.listeners.lock();
        listeners.iter_mut().filter(|listener| listener.wants(uri)).for_each(&mut take);
    }

    /// Tells modern clients of lists that changed, those that asked for it.
    pub fn tell_listeners(&self, changed: &[Kind]) {
        for listener in self.listeners.lock().iter() {
            listener.lists_changed(changed);
        }
    }

    /// What is seen through it.
    pub fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock()
    }

    /// Remembers who sent a link to this URI.
    pub fn remember_link(&self, uri: &str, upstream: &Arc<Upstream>) {
        let mut links = self.links.lock();
        if links.len() >= MOST_LINKS && !links.contains_key(uri) {
            links.clear();
        }
        links.insert(uri.to_owned(), (upstream.group.clone(), upstream.server.clone()));
    }

    /// Who sent a link to this URI, or stands in for it, as long as it stands in `view`, which is this window's.
    pub fn link_sender(&self, view: &View, uri: &str) -> Option<Arc<Upstream>> {
        let (group, server) = self.links.lock().get(uri).cloned()?;
        view.server(&group, &server).map(|entry| entry.upstream.clone())
    }

    /// Tells of nothing that lists gain or lose by these upstreams while what is returned lives.
    pub fn hush(&self, upstreams: Vec<Arc<Upstream>>) -> Arc<Hush> {
        self.hushes.begin(upstreams)
    }

    /// Whether it is not the time yet to tell of lists that changed by what an upstream does.
    pub(super) fn holds_back(&self, upstream: &Arc<Upstream>, changed: &[Kind]) -> bool {
        self.hushes.note(upstream, changed)
    }

    /// Takes a subscription out, if the request with this id is one.
    pub fn take_listener(&self, session: &Session, id: &Id) -> Option<Listener> {
        let mut listeners = self.listeners.lock();
        let at = listeners.iter().position(|listener| listener.belongs_to(session, id))?;
        Some(listeners.swap_remove(at))
    }

    /// The sessions that look through it.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        let mut sessions = self.sessions.lock();
        sessions.retain(|session| session.strong_count() > 0);
        sessions.iter().filter_map(Weak::upgrade).collect()
    }
}
