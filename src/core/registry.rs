//! Which upstreams there are, and what is left of those that are gone.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::reload::stays;
use super::upstream::{FailureHistory, Spec, Upstream};
use super::workspace::Workspace;
use crate::config::{Isolation, Transport};

/// The upstreams of a gateway.
#[derive(Default)]
pub struct Registry(Mutex<Upstreams>);

#[derive(Default)]
struct Upstreams {
    upstreams: HashMap<RegistryKey, Arc<Upstream>>,
    /// What is known of those that were closed, so that opening them again does not make them fail more often.
    histories: HashMap<RegistryKey, FailureHistory>,
    /// Upstreams that a new file has no place for and that may still have calls in flight.
    draining: Vec<Weak<Upstream>>,
}

/// Group, server, and the client that has it for itself.
type RegistryKey = (Arc<str>, Arc<str>, Option<u64>);

/// What a new file changes.
pub(super) struct Renewed {
    /// Those that it reaches in another way, or not at all: they are registered no longer.
    pub(super) gone: Vec<Arc<Upstream>>,
    /// Those that failed and that it wants to run from now on.
    pub(super) wanted_again: Vec<Arc<Upstream>>,
}

impl Registry {
    /// The upstream for a server of a group, as this workspace reaches it; the same one each time. `make` makes it, with what
    /// is left of one that was there before.
    pub(super) fn get(
        &self,
        workspace: &Workspace,
        (group, server): (&str, &str),
        spec: impl FnOnce() -> Spec,
        make: impl FnOnce(Spec, Option<FailureHistory>) -> Arc<Upstream>,
    ) -> Arc<Upstream> {
        let mut state = self.0.lock();
        let places = places(workspace, group, server);
        if let Some(upstream) = places.iter().find_map(|place| state.upstreams.get(place)) {
            return upstream.clone();
        }
        let ([shared, own], spec) = (places, spec());
        let place = if spec.isolation == Isolation::Session { own } else { shared };
        let history = state.histories.remove(&place).filter(|history| history.transport == spec.transport);
        let upstream = make(spec, history);
        state.upstreams.insert(place, upstream.clone());
        upstream
    }

    /// The upstream for a server of a group as this workspace reaches it, if it has ever been needed.
    pub fn known(&self, workspace: &Workspace, group: &str, server: &str) -> Option<Arc<Upstream>> {
        let state = self.0.lock();
        places(workspace, group, server).iter().find_map(|place| state.upstreams.get(place).cloned())
    }

    /// Every upstream.
    pub fn all(&self) -> Vec<Arc<Upstream>> {
        self.0.lock().upstreams.values().cloned().collect()
    }

    /// Every upstream that may still run, those included that a new file has no place for.
    pub(super) fn all_and_draining(&self) -> Vec<Arc<Upstream>> {
        let state = self.0.lock();
        state.upstreams.values().cloned().chain(state.draining.iter().filter_map(Weak::upgrade)).collect()
    }

    /// Puts a new file in force: for each upstream what `spec` says of it by group and server.
    pub(super) fn renew(&self, spec: impl Fn(&str, &str) -> Option<Spec>) -> Renewed {
        let mut renewed = Renewed { gone: Vec::new(), wanted_again: Vec::new() };
        self.0.lock().upstreams.retain(|(group, server, _), upstream| {
            let old = upstream.spec();
            let Some(new) = spec(group, server).filter(|new| stays(&old, new)) else {
                renewed.gone.push(upstream.clone());
                return false;
            };
            if new.restart && !old.restart && upstream.has_failed() {
                renewed.wanted_again.push(upstream.clone());
            }
            upstream.set_spec(new);
            true
        });
        renewed
    }

    /// Notes one that a new file has no place for and that may still have calls in flight.
    pub(super) fn note_draining(&self, upstream: &Arc<Upstream>) {
        let draining = &mut self.0.lock().draining;
        draining.retain(|upstream| upstream.strong_count() > 0);
        draining.push(Arc::downgrade(upstream));
    }

    /// Those that were in this place before and that may still have calls in flight.
    pub(super) fn draining(&self, group: &str, server: &str) -> Vec<Arc<Upstream>> {
        let all: Vec<_> = self.0.lock().draining.iter().filter_map(Weak::upgrade).collect();
        all.into_iter().filter(|before| *before.group == *group && *before.server == *server).collect()
    }

    /// Takes one out that was closed, and keeps what must be known of it for a while.
    pub(super) fn remove(&self, upstream: &Arc<Upstream>, history: FailureHistory) {
        let (mut state, now) = (self.0.lock(), Instant::now());
        state.histories.retain(|_, history| history.matters(now));
        let place = state.upstreams.extract_if(|_, other| Arc::ptr_eq(other, upstream)).next();
        if let Some((place, _)) = place {
            state.histories.insert(place, history);
        }
    }

    /// Forgets the failures of those that were closed and are reached so.
    pub(super) fn forgive(&self, is_meant: impl Fn(&Transport) -> bool) {
        self.0.lock().histories.retain(|_, history| !is_meant(&history.transport));
    }
}

/// Where a server of a group is, for all clients and for the workspace's own.
fn places(workspace: &Workspace, group: &str, server: &str) -> [RegistryKey; 2] {
    [None, Some(workspace.client)].map(|client| (group.into(), server.into(), client))
}
