//! The registry of upstreams, and what is remembered of closed ones.
//!
//! Invariant: a server of a group has one upstream for all clients that share it, and [`Registry::get`] always
//! returns the same one. [`sharing`](super::sharing) says who shares it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::sharing::{Share, share};
use super::upstream::{FailureHistory, Spec, Upstream};
use super::workspace::Workspace;
use crate::config::Transport;

/// The upstreams of a gateway.
#[derive(Default)]
pub struct Registry(Mutex<Upstreams>);

#[derive(Default)]
struct Upstreams {
    upstreams: HashMap<RegistryKey, Arc<Upstream>>,
    /// The failures of closed upstreams, so that reopening one does not reset its backoff.
    histories: HashMap<RegistryKey, FailureHistory>,
    /// Upstreams that a new file no longer has and that may still have calls in flight.
    draining: Vec<Weak<Upstream>>,
}

/// The group, the server, and for whom the upstream is.
type RegistryKey = (Arc<str>, Arc<str>, Share);

/// The changes that a new file makes.
pub(super) struct Renewed {
    /// The upstreams that the new file reaches differently, or not at all. They are no longer registered.
    pub(super) gone: Vec<Arc<Upstream>>,
    /// The failed upstreams that the new file wants to run.
    pub(super) wanted_again: Vec<Arc<Upstream>>,
}

impl Registry {
    /// The upstream for a server of a group, as this workspace reaches it; it is the same one each time.
    /// `make` creates it, with what is remembered of an earlier one.
    pub(super) fn get(
        &self,
        workspace: &Workspace,
        (group, server): (&str, &str),
        spec: Spec,
        make: impl FnOnce(Spec, Option<FailureHistory>) -> Arc<Upstream>,
    ) -> Arc<Upstream> {
        let mut state = self.0.lock();
        let place = place(workspace, group, server, &spec);
        if let Some(upstream) = state.upstreams.get(&place) {
            // Nobody has followed the file while no session of the daemon had the upstream.
            if workspace.daemon_session().is_some() && *upstream.spec() != spec {
                upstream.set_spec(spec);
            }
            return upstream.clone();
        }
        let history = state.histories.remove(&place).filter(|history| history.transport == spec.transport);
        let upstream = make(spec, history);
        state.upstreams.insert(place, upstream.clone());
        upstream
    }

    /// The upstream for a server of a group, as this workspace reaches it, if it was ever needed.
    pub fn known(
        &self,
        workspace: &Workspace,
        group: &str,
        server: &str,
        spec: &Spec,
    ) -> Option<Arc<Upstream>> {
        self.0.lock().upstreams.get(&place(workspace, group, server, spec)).cloned()
    }

    /// All registered upstreams.
    pub fn all(&self) -> Vec<Arc<Upstream>> {
        self.0.lock().upstreams.values().cloned().collect()
    }

    /// All upstreams that may still run, including those that a new file no longer has.
    pub(super) fn all_and_draining(&self) -> Vec<Arc<Upstream>> {
        let state = self.0.lock();
        state.upstreams.values().cloned().chain(state.draining.iter().filter_map(Weak::upgrade)).collect()
    }

    /// Applies a new file: `spec` returns the new specification of an upstream that stays.
    pub(super) fn renew(&self, spec: impl Fn(&Arc<Upstream>, &Share) -> Option<Spec>) -> Renewed {
        let mut renewed = Renewed { gone: Vec::new(), wanted_again: Vec::new() };
        self.0.lock().upstreams.retain(|(.., share), upstream| {
            let old = upstream.spec();
            let Some(new) = spec(upstream, share) else {
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

    /// Records an upstream that a new file no longer has and that may still have calls in flight.
    pub(super) fn note_draining(&self, upstream: &Arc<Upstream>) {
        let draining = &mut self.0.lock().draining;
        draining.retain(|upstream| upstream.strong_count() > 0);
        draining.push(Arc::downgrade(upstream));
    }

    /// The earlier upstreams of this server that may still have calls in flight.
    pub(super) fn draining(&self, group: &str, server: &str) -> Vec<Arc<Upstream>> {
        let all: Vec<_> = self.0.lock().draining.iter().filter_map(Weak::upgrade).collect();
        all.into_iter().filter(|before| *before.group == *group && *before.server == *server).collect()
    }

    /// Removes a closed upstream, and remembers its failures for a while.
    pub(super) fn remove(&self, upstream: &Arc<Upstream>, history: FailureHistory) {
        let (mut state, now) = (self.0.lock(), Instant::now());
        state.histories.retain(|_, history| history.matters(now));
        let place = state.upstreams.extract_if(|_, other| Arc::ptr_eq(other, upstream)).next();
        if let Some((place, _)) = place {
            state.histories.insert(place, history);
        }
    }

    /// Forgets the failures of closed upstreams with such a transport.
    pub(super) fn forgive(&self, is_meant: impl Fn(&Transport) -> bool) {
        self.0.lock().histories.retain(|_, history| !is_meant(&history.transport));
    }
}

/// The key of a server of a group, as this workspace reaches it.
fn place(workspace: &Workspace, group: &str, server: &str, spec: &Spec) -> RegistryKey {
    (group.into(), server.into(), share(workspace.daemon_session(), workspace.client, spec))
}
