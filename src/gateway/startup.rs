//! Servers that start with the gateway, requests that wait for them, and switches that are remembered.
//!
//! ```text
//! starting ── each server is up or failed: those who wait are handled again ──> settled
//!    │     ── the file's patience is over ────────────────────────────────────>    ▲
//!    └─ a moment is over, and something is remembered ─> lists are there ──────────┘
//! ```
//!
//! What is remembered about a late server stays in the lists until the server is up or has failed. Once
//! everything has settled, clients hear, in one go, of the lists that differ from what they were shown.

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
use crate::core::upstream::Upstream;
use crate::core::view::Entry;
use crate::core::workspace::{Hold, Workspace};
use crate::face::toolman::SwitchChange;
use crate::face::{Face, Remembered};
use crate::json::{Node, Raw};
use crate::memory::Switched;

/// How far the servers that start with the gateway have got, and which requests wait for them.
#[derive(Default)]
pub(super) struct Startup {
    starting: AtomicBool,
    /// What stands in for servers that are still starting, once lists are answered from memory.
    recalled: Mutex<Option<Remembered>>,
    /// While these are held, clients are not told of each server that comes up.
    holds: Mutex<Vec<Hold>>,
    waiting: Mutex<Vec<WaitingRequest>>,
}

/// How long the first lists wait for servers about which something is remembered.
const MOMENT: Duration = Duration::from_millis(300);

/// A request that may be answered better when more servers are up.
struct WaitingRequest {
    method: String,
    params: Raw,
    reply: Reply,
}

/// Where switches are remembered.
#[derive(Clone)]
pub struct SwitchFile {
    /// The state directory.
    pub state: PathBuf,
    /// The file in it that holds the switches.
    pub path: PathBuf,
    /// The `tools.toml` that the switches belong to.
    pub config: PathBuf,
}

impl Startup {
    /// The state before startup; with `starts_all`, servers have yet to start.
    pub(super) fn new(starts_all: bool) -> Self {
        Self { starting: AtomicBool::new(starts_all), ..Self::default() }
    }

    /// Whether every server is up, failed or late.
    pub(super) fn is_settled(&self) -> bool {
        !self.starting.load(Ordering::Relaxed)
    }

    /// Whether clients can ask for lists.
    pub(super) fn has_lists(&self) -> bool {
        self.is_settled() || self.recalled.lock().is_some()
    }

    /// Lets a request wait until more servers are up; returns it if there is nothing left to wait for.
    fn wait(&self, request: WaitingRequest) -> Option<WaitingRequest> {
        let mut waiting = self.waiting.lock();
        if self.is_settled() {
            return Some(request);
        }
        waiting.push(request);
        None
    }

    /// Takes the requests that wait; with `settled`, no request waits from now on.
    fn take(&self, settled: bool) -> Vec<WaitingRequest> {
        let mut waiting = self.waiting.lock();
        if settled {
            self.starting.store(false, Ordering::Relaxed);
            *self.recalled.lock() = None;
        }
        std::mem::take(&mut *waiting)
    }
}

/// Puts every server, and the remembered switches, into a workspace.
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
    let own = upstreams.iter().filter(|upstream| upstream.spec().isolation == Some(Isolation::Session));
    for upstream in own.filter(|upstream| !upstream.is_at_rest(workspace.listing())) {
        let _ = upstream.start();
    }
}

/// Starts every server at once. For a while, lists wait until each is up or has failed.
pub(super) fn start_all(gateway: &Arc<Gateway>, face: &Arc<dyn Face>, workspace: &Arc<Workspace>) {
    let Some(patience) = face.starts_all() else { return };
    // This reads memory before any server has run: what servers offer now says nothing about the late ones.
    let recalled = gateway.recall_definitions(&**face);
    let (gateway, face, workspace) = (gateway.clone(), face.clone(), workspace.clone());
    tokio::spawn(async move {
        let on_each = || resume(&gateway, gateway.startup.take(false));
        // A server that is late is announced when it comes up, and nobody waits for it any longer.
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

/// Lets what is remembered stand in for servers that are not up yet, if anything is remembered. Requests for
/// lists then need not wait any longer.
fn answer_from_memory(gateway: &Arc<Gateway>, recalled: Remembered) {
    let workspaces = super::workspaces(gateway);
    if workspaces.iter().filter(|workspace| stand_in(&recalled, workspace)).count() == 0 {
        return;
    }
    *gateway.startup.recalled.lock() = Some(recalled);
    begin_all(gateway);
    resume(gateway, gateway.startup.take(false));
}

/// Shows what servers that are neither up nor failed are remembered to offer; returns whether there was
/// anything to show.
pub(super) fn stand_in(recalled: &Remembered, workspace: &Workspace) -> bool {
    let face = workspace.exposure();
    workspace.change(|view| {
        let all: Vec<_> = view.entries().map(|entry| entry.upstream.clone()).collect();
        let late = all.iter().filter(|upstream| !upstream.is_up() && !upstream.has_failed());
        let recalled = |upstream: &Upstream| {
            let spec = upstream.spec();
            recalled.of(&spec.transport, spec.guard.as_ref())
        };
        let known = late.filter_map(|upstream| Some((upstream, recalled(upstream)?)));
        let shown = known.map(|(upstream, items)| view.recall(&*face, upstream, Arc::new(items)));
        shown.count() > 0
    })
}

/// From now on, clients can ask for lists in every workspace.
fn begin_all(gateway: &Gateway) {
    for workspace in super::workspaces(gateway) {
        workspace.begin();
    }
}

/// Handles the request again whenever another server is up, and finally when all have had their time.
pub(super) fn later(gateway: &Arc<Gateway>, method: &str, params: Node<'_>, reply: Reply) {
    let request = WaitingRequest { method: method.to_owned(), params: params.into(), reply };
    if let Some(WaitingRequest { reply, .. }) = gateway.startup.wait(request) {
        gateway.request(method, params, reply);
    }
}

/// Handles requests that waited, in order; those that must wait longer do so.
fn resume(gateway: &Arc<Gateway>, waiting: Vec<WaitingRequest>) {
    for WaitingRequest { method, params, reply } in waiting {
        if reply.is_wanted() {
            match gateway.engine.has_ended() {
                true => super::turn_away(gateway, &method, params.root(), super::SHUTTING_DOWN, reply),
                false => gateway.request(&method, params.root(), reply),
            }
        }
    }
}

/// Answers all that waits for servers to start, because nobody will wait for them any longer.
pub(super) fn turn_away_waiting(gateway: &Arc<Gateway>) {
    for WaitingRequest { method, params, reply } in gateway.startup.take(true) {
        if reply.is_wanted() {
            super::turn_away(gateway, &method, params.root(), super::SHUTTING_DOWN, reply);
        }
    }
}

/// Where a workspace's switches are remembered; `None` for clients that see only a part of the file, whose
/// switches are not remembered.
fn switch_file(gateway: &Gateway, workspace: &Workspace) -> Option<SwitchFile> {
    gateway.switch_file.read().clone().filter(|_| workspace.face() == 0)
}

/// Remembers the switches in the background, in the state that they have when the file can be written. The
/// write may have to wait for another process, which must not hold up anybody else.
pub(super) fn remember_switches(
    gateway: &Gateway,
    workspace: &Arc<Workspace>,
    change: SwitchChange,
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
            tracing::warn!("the active tools cannot be saved in {}: {error}", file.path.display());
        }
        go_on();
    });
}

/// Warns if some clients may reject the names of resources.
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
