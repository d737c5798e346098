//! A new file is put in force while clients are there. What changes does so at once and in one piece; what has to start
//! or end does that afterwards. Every workspace is held meanwhile, so that each client hears of the lists that are not what
//! they were once, where nothing is slow.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Configured, Gateway};
use crate::core::opening::start_and_settle;
use crate::core::upstream::Upstream;
use crate::core::view::View;
use crate::core::workspace::{Hold, Workspace};
use crate::face::{Declared, Face};

/// What starts within this time is told of together with what has changed at once. Who is later is announced by itself.
const TOGETHER: Duration = Duration::from_secs(1);

/// What has to start and end after a new file was put in force.
#[derive(Default)]
struct Moves {
    /// Servers that are new in a toolbox that is open.
    added: Vec<Arc<Upstream>>,
    /// Servers that end, and those that take their place.
    replaced: Vec<(Arc<Upstream>, Vec<Arc<Upstream>>)>,
}

/// Puts a new file in force. What has to start and end because of it does that beside everything else.
pub(super) fn reload(gateway: &Arc<Gateway>, configured: Configured) {
    let holds = gateway.engine.audience.workspaces().iter().map(Workspace::hold).collect();
    *gateway.switch_file.write() = configured.switch_file;
    Moves::put_in_force(gateway, configured.face).make(gateway, holds);
}

impl Moves {
    /// Everything that takes effect at once; what is returned is left to do.
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
        // What is still searched is indexed anew when it is asked for.
        gateway.finders.clear();
        for workspace in gateway.engine.audience.workspaces() {
            moves.renew_workspace(gateway, &workspace, &*face);
        }
        moves
    }

    /// Shows what the new file holds in a workspace.
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

    /// Starts what is new and ends what is not wanted any more. Clients hear of what has changed together with what
    /// starts in no time, and of what starts later as it comes.
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

/// Nothing is to be seen in a workspace any more: its toolbox is gone, or not for this client.
fn shut(gateway: &Gateway, workspace: &Arc<Workspace>, whole: &dyn Face, toolbox: Option<&str>) {
    gateway.guests.lock().workspaces.retain(|_, other| !Arc::ptr_eq(other, workspace));
    workspace.end_listeners();
    match toolbox.is_some_and(|toolbox| whole.groups().contains(&toolbox)) {
        true => gateway.engine.discard(workspace),
        // What the file has no longer ends by itself, after its calls in flight.
        false => drop(gateway.engine.forget(workspace)),
    }
}

/// The upstreams that stand in a workspace from now on, in their order: those of what is open, or all.
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
