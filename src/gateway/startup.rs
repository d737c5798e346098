//! Servers that start with the gateway, requests that wait for them, and what was switched before.
//!
//! ```text
//! starting ── each server is up or failed: those who wait are handled again ──> settled
//!    │     ── the file's patience is over ────────────────────────────────────>    ▲
//!    └─ a moment is over, and something is remembered ─> lists are there ──────────┘
//! ```
//!
//! What is remembered of a server that is late stays until it is up or has failed. Clients hear once, when all has settled,
//! of the lists that are not what they were shown.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use super::Gateway;
use crate::catalog::Kind;
use crate::config::Isolation;
use crate::core::opening::settle;
use crate::core::reply::Reply;
use crate::core::view::Entry;
use crate::core::workspace::{Hold, Workspace};
use crate::face::toolman::Change;
use crate::face::{Face, Remembered};
use crate::json::{Node, Raw};
use crate::memory::Switched;

/// How far the servers are that start with the gateway, and who waits for them.
#[derive(Default)]
pub(super) struct Startup {
    starting: AtomicBool,
    /// What stands in for servers that are still starting, once that is so.
    recalled: Mutex<Option<Remembered>>,
    /// Nobody is told of each server that comes up.
    holds: Mutex<Vec<Hold>>,
    waiting: Mutex<Vec<Waiting>>,
}

/// How long the first lists wait for servers of which something is remembered.
const MOMENT: Duration = Duration::from_millis(300);

/// A request that may be answered better when more servers are up.
struct Waiting {
    method: String,
    params: Raw,
    reply: Reply,
}

/// Where switches are remembered.
#[derive(Clone)]
pub struct SwitchFile {
    /// The directory for state.
    pub state: PathBuf,
    /// The file there that holds them.
    pub path: PathBuf,
    /// The `tools.toml` that they belong to.
    pub config: PathBuf,
}

impl Startup {
    /// One whose servers are still to start, if there are such.
    pub(super) fn new(starts_all: bool) -> Self {
        Self { starting: AtomicBool::new(starts_all), ..Self::default() }
    }

    /// Whether each server is up, failed or late.
    pub(super) fn is_settled(&self) -> bool {
        !self.starting.load(Ordering::Relaxed)
    }

    /// Whether lists are there to be asked for.
    pub(super) fn has_lists(&self) -> bool {
        self.is_settled() || self.recalled.lock().is_some()
    }

    /// Lets a request wait until more servers are up; it is given back where there is nothing to wait for any more.
    fn wait(&self, request: Waiting) -> Option<Waiting> {
        let mut waiting = self.waiting.lock();
        if self.is_settled() {
            return Some(request);
        }
        waiting.push(request);
        None
    }

    /// Those who wait; with `settled`, nobody will wait any more.
    fn take(&self, settled: bool) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock();
        if settled {
            self.starting.store(false, Ordering::Relaxed);
            *self.recalled.lock() = None;
        }
        std::mem::take(&mut *waiting)
    }
}

/// Puts every server into a workspace, and what was switched before.
pub(super) fn furnish(gateway: &Arc<Gateway>, face: &dyn Face, workspace: &Arc<Workspace>) {
    if let Some(file) = switch_file(gateway, workspace) {
        let Switched { tools, resources, .. } = Switched::load(&file.path);
        let known =
            |names: BTreeMap<String, bool>| names.into_iter().map(|(name, on)| (name.into(), on)).collect();
        workspace.change(|view| view.remembered = [known(tools), known(resources)]);
    }
    let upstreams: Vec<_> = face.servers().iter().map(|server| gateway.upstream(workspace, server)).collect();
    workspace.change(|view| {
        view.add(&*workspace.exposure(), &upstreams);
        for group in face.groups() {
            view.open_in_place(group);
        }
    });
    if !gateway.startup.is_settled() {
        gateway.startup.holds.lock().push(workspace.hold());
    }
    if let Some(recalled) = &*gateway.startup.recalled.lock() {
        stand_in(recalled, workspace);
    }
    let own = upstreams.iter().filter(|upstream| upstream.spec().isolation == Isolation::Session);
    for upstream in own.filter(|upstream| !upstream.is_at_rest()) {
        let _ = upstream.start();
    }
}

/// Starts every server at once; lists wait until each is up or failed, for a while.
pub(super) fn start_all(gateway: &Arc<Gateway>, face: &Arc<dyn Face>, workspace: &Arc<Workspace>) {
    let Some(patience) = face.starts_all() else { return };
    // Before any of them has run: what they offer now says nothing of those that are late.
    let recalled = gateway.recall_definitions(&**face);
    let (gateway, face, workspace) = (gateway.clone(), face.clone(), workspace.clone());
    tokio::spawn(async move {
        let on_each = || resume(&gateway, gateway.startup.take(false));
        // Whoever is late is announced, and nobody waits for it any more.
        let settled = timeout(patience, settle(&workspace, None, on_each));
        tokio::pin!(settled);
        match timeout(MOMENT, &mut settled).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => answer_from_memory(&gateway, recalled.await),
            Err(_) => {
                answer_from_memory(&gateway, recalled.await);
                let _ = settled.await;
            }
        }
        warn_of_schemes(&*face, &workspace);
        gateway.finders.prepare(&gateway, &workspace);
        begin_all(&gateway);
        let waiting = gateway.startup.take(true);
        drop(std::mem::take(&mut *gateway.startup.holds.lock()));
        resume(&gateway, waiting);
    });
}

/// Lets what is remembered of servers that are not up yet stand in for them, if anything is: whoever waits for lists need not
/// wait any longer.
fn answer_from_memory(gateway: &Arc<Gateway>, recalled: Remembered) {
    let workspaces = gateway.engine.audience.workspaces();
    if workspaces.iter().filter(|workspace| stand_in(&recalled, workspace)).count() == 0 {
        return;
    }
    *gateway.startup.recalled.lock() = Some(recalled);
    begin_all(gateway);
    resume(gateway, gateway.startup.take(false));
}

/// Shows what servers are remembered to offer that are neither up nor failed; `false`: there is no such thing.
fn stand_in(recalled: &Remembered, workspace: &Workspace) -> bool {
    let face = workspace.exposure();
    workspace.change(|view| {
        let all: Vec<_> = view.entries().map(|entry| entry.upstream.clone()).collect();
        let late = all.iter().filter(|upstream| !upstream.is_up() && !upstream.has_failed());
        let known = late.filter_map(|upstream| Some((upstream, recalled.of(&upstream.spec().transport)?)));
        let shown = known.map(|(upstream, items)| view.recall(&*face, upstream, Arc::new(items.clone())));
        shown.count() > 0
    })
}

/// Lists are there to be asked for from now on, in every workspace.
fn begin_all(gateway: &Gateway) {
    for workspace in gateway.engine.audience.workspaces() {
        workspace.begin();
    }
}

/// Handles the request again when another server is up, and at last when all have had their time.
pub(super) fn later(gateway: &Arc<Gateway>, method: &str, params: Node<'_>, reply: Reply) {
    let request = Waiting { method: method.to_owned(), params: params.into(), reply };
    if let Some(Waiting { reply, .. }) = gateway.startup.wait(request) {
        gateway.request(method, params, reply);
    }
}

/// Handles requests that waited, in their order; those that must wait on do so.
fn resume(gateway: &Arc<Gateway>, waiting: Vec<Waiting>) {
    for Waiting { method, params, reply } in waiting {
        if reply.is_wanted() {
            match gateway.engine.has_ended() {
                true => gateway.turn_away(&method, params.root(), reply),
                false => gateway.request(&method, params.root(), reply),
            }
        }
    }
}

/// Where what is switched in a workspace is remembered: not what those switch who see a part of the file.
fn switch_file(gateway: &Gateway, workspace: &Workspace) -> Option<SwitchFile> {
    gateway.switch_file.read().clone().filter(|_| workspace.face() == 0)
}

/// Remembers what was switched, as it is by the time that it can, and goes on. It may have to wait for another
/// process, which must not hold up anybody else.
pub(super) fn remember_switches(
    gateway: &Gateway,
    workspace: &Arc<Workspace>,
    change: Change,
    go_on: impl FnOnce() + Send + 'static,
) {
    let Some(file) = switch_file(gateway, workspace) else { return go_on() };
    let workspace = workspace.clone();
    tokio::task::spawn_blocking(move || {
        let saved = Switched::change(&file.state, &file.path, |all| {
            all.file = file.config.display().to_string();
            workspace.read(|view| {
                for (class, known) in [&mut all.tools, &mut all.resources].into_iter().enumerate() {
                    let names = change.on[class].iter().chain(&change.off[class]);
                    let switched = names.filter_map(|name| view.switched[class].get_key_value(name));
                    known.extend(switched.map(|(name, on)| (name.to_string(), *on)));
                }
            });
        });
        if let Err(error) = saved {
            tracing::warn!("what was switched cannot be remembered in {}: {error}", file.path.display());
        }
        go_on();
    });
}

/// Says so where a client may stumble over the names of resources.
fn warn_of_schemes(face: &dyn Face, workspace: &Workspace) {
    let is_prefixed_oddly = |entry: &Entry| {
        let prefix = face.full_name(&entry.upstream, Kind::Resource, "");
        prefix.strip_prefix(&*entry.upstream.group).is_some_and(|separator| separator.contains('_'))
    };
    let is_odd = workspace.read(|view| {
        let mut resources = [Kind::Resource, Kind::Template].into_iter().flat_map(|kind| view.items(kind));
        resources.any(|(entry, _)| is_prefixed_oddly(entry))
    });
    if is_odd {
        tracing::warn!(
            "clients with a strict URI parser reject the `_` in the schemes of resources; \
             if yours does, write resource_separator = \"+\""
        );
    }
}
