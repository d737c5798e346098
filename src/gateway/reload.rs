//! Puts a new file in force while clients are connected. Everything visible changes at once and as a whole;
//! servers start and end afterwards. Every workspace is held meanwhile, so that each client hears of all
//! changed lists only once, unless a server is slow.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Configured, Gateway};
use crate::core::opening::start_and_settle;
use crate::core::upstream::Upstream;
use crate::core::view::View;
use crate::core::workspace::{Hold, Workspace};
use crate::face::{Declared, Face};

/// Servers that start within this time are announced together with the immediate changes. Later ones are
/// announced one by one.
const TOGETHER: Duration = Duration::from_secs(1);

/// The servers that have to start and end after a new file was put in force.
#[derive(Default)]
struct Moves {
    /// Servers that are new in an open toolbox.
    added: Vec<Arc<Upstream>>,
    /// Servers that end, each with those that take its place.
    replaced: Vec<(Arc<Upstream>, Vec<Arc<Upstream>>)>,
}

/// Puts a new file in force. The servers that have to start or end because of it do so in the background.
pub(super) fn reload(gateway: &Arc<Gateway>, configured: Configured) {
    let holds = gateway.engine.audience.workspaces().iter().map(Workspace::hold).collect();
    *gateway.switch_file.write() = configured.switch_file;
    Moves::put_in_force(gateway, configured.face).make(gateway, holds);
}

impl Moves {
    /// Makes every immediate change; returns the moves that are left to do.
    fn put_in_force(gateway: &Arc<Gateway>, face: Arc<dyn Face>) -> Self {
        let old = gateway.faces.whole();
        let face = face.succeed(&*old);
        gateway.dismiss(&old.common().serving, &face.common().serving);
        let servers = face.servers();
        let spec = |group: &str, key: &str| {
            let found = servers.iter().find(|server| server.group == group && server.key == key);
            found.map(|server| server.spec.clone())
        };
        let gone = gateway.engine.renew(face.common().clone(), spec);
        let mut moves = Self {
            replaced: gone.into_iter().map(|upstream| (upstream, Vec::new())).collect(),
            added: Vec::new(),
        };
        gateway.faces.replace(&face);
        // A face that is still searched is indexed anew when somebody searches it.
        gateway.finders.clear();
        for workspace in gateway.engine.audience.workspaces() {
            moves.renew_workspace(gateway, &workspace, &*face);
        }
        moves
    }

    /// Brings a workspace up to date with the new file.
    fn renew_workspace(&mut self, gateway: &Arc<Gateway>, workspace: &Arc<Workspace>, whole: &dyn Face) {
        let mut part = gateway.faces.part_of(workspace);
        let token = whole.common().serving.tokens.iter().find(|token| token.name == workspace.principal);
        if let Some(token) = token.filter(|_| gateway.engine.audience.stdio().is_none()) {
            part.names = token.scope.clone();
        }
        let Some(place) = gateway.faces.place_of(&part) else {
            return shut(gateway, workspace, whole, part.toolbox.as_deref());
        };
        let face = gateway.faces.at(place);
        let before = workspace.read(|view| view.limits(&*workspace.exposure()));
        workspace.set_face(place, face.clone());
        let wanted = wanted(gateway, workspace, &*face);
        workspace.change(|view| {
            for upstream in &wanted {
                match view.server(&upstream.group, &upstream.server) {
                    Some(entry) if Arc::ptr_eq(&entry.upstream, upstream) => {}
                    Some(entry) => self.replace(&entry.upstream, upstream),
                    None => self.added.push(upstream.clone()),
                }
            }
            let groups = face.groups();
            let rename = view.limits(&*face) != before;
            view.renew(&*face, &wanted, &groups, rename);
            if face.starts_all().is_some() {
                for group in groups {
                    view.open_in_place(group);
                }
            }
        });
        for session in workspace.sessions() {
            session.end_lost_subscriptions();
        }
    }

    fn replace(&mut self, old: &Arc<Upstream>, new: &Arc<Upstream>) {
        let found = self.replaced.iter_mut().find(|(other, _)| Arc::ptr_eq(other, old));
        let Some((_, next)) = found else { return self.added.push(new.clone()) };
        if !next.iter().any(|other| Arc::ptr_eq(other, new)) {
            new.inherit(old);
            next.push(new.clone());
        }
    }

    /// Starts new servers and ends those that are no longer wanted. Clients hear of the immediate changes
    /// together with the servers that start quickly, and of later ones as they come up.
    fn make(self, gateway: &Arc<Gateway>, holds: Vec<Hold>) {
        let mut waits = Vec::new();
        for (old, next) in self.replaced {
            let is_waited_for = !next.is_empty();
            let settled = gateway.engine.replace(old, next);
            waits.extend(is_waited_for.then_some(settled));
        }
        tokio::spawn(async move {
            let settled = async {
                start_and_settle(&self.added).await;
                for wait in waits {
                    let _ = wait.await;
                }
            };
            tokio::pin!(settled);
            let in_time = timeout(TOGETHER, &mut settled).await.is_ok();
            drop(holds);
            if !in_time {
                settled.await;
            }
        });
    }
}

/// Empties a workspace whose toolbox is gone, or is no longer for this client.
fn shut(gateway: &Gateway, workspace: &Arc<Workspace>, whole: &dyn Face, toolbox: Option<&str>) {
    gateway.guests.lock().workspaces.retain(|_, other| !Arc::ptr_eq(other, workspace));
    workspace.end_listeners();
    match toolbox.is_some_and(|toolbox| whole.groups().contains(&toolbox)) {
        true => gateway.engine.discard(workspace),
        // A server that the file no longer has ends by itself, after its calls in flight.
        false => drop(gateway.engine.forget(workspace)),
    }
}

/// The upstreams that a workspace has from now on, in order: those of open groups, or all.
fn wanted(gateway: &Arc<Gateway>, workspace: &Arc<Workspace>, face: &dyn Face) -> Vec<Arc<Upstream>> {
    let servers = face.servers();
    let upstream = |server: &Declared<'_>| gateway.upstream(workspace, server);
    if face.starts_all().is_some() {
        return servers.iter().map(upstream).collect();
    }
    let opened = workspace.read(View::groups);
    let wanted =
        opened.iter().flat_map(|group| servers.iter().filter(move |server| *server.group == **group));
    wanted.map(upstream).collect()
}
