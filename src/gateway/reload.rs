//! Puts a new file in force while clients are connected. Everything visible changes at once and as a whole;
//! servers start and end afterwards. Every workspace is held meanwhile, so that each client hears of all
//! changed lists only once, unless a server is slow.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Configured, Gateway, workspaces};
use crate::config::Common;
use crate::core::engine::Engine;
use crate::core::reload::stays;
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

/// Puts a new file in force for gateways that share an engine; `others` share it too and stay as they are. The
/// servers that have to start or end because of it do so in the background.
pub(super) fn reload(gateways: Vec<(Arc<Gateway>, Configured)>, others: &[Arc<Gateway>]) {
    let Some(engine) = gateways.first().map(|(gateway, _)| gateway.engine.clone()) else { return };
    let holds = engine.audience.workspaces().iter().map(Workspace::hold).collect();
    let renewed = gateways.into_iter().map(|(gateway, configured)| {
        *gateway.switch_file.write() = configured.switch_file;
        let face = configured.face.succeed(&*gateway.faces.whole());
        (gateway, face)
    });
    let renewed: Vec<_> = renewed.collect();
    Moves::put_in_force(&engine, &renewed, others).make(&engine, holds);
    for (gateway, _) in &renewed {
        if let Some(shared) = gateway.shared.get() {
            shared.reloaded(gateway);
        }
    }
}

impl Moves {
    /// Makes every immediate change; returns the moves that are left to do.
    fn put_in_force(
        engine: &Arc<Engine>,
        gateways: &[(Arc<Gateway>, Arc<dyn Face>)],
        others: &[Arc<Gateway>],
    ) -> Self {
        let mut settings: Option<Common> = None;
        for (gateway, face) in gateways {
            gateway.dismiss(&gateway.faces.whole().common().serving, &face.common().serving);
            let common = face.common().clone();
            settings = Some(match settings.take() {
                Some(Common { secrets, .. }) => Common { secrets: common.secrets.and(&secrets), ..common },
                None => common,
            });
        }
        let unchanged: Vec<_> =
            others.iter().map(|gateway| (gateway.clone(), gateway.faces.whole())).collect();
        let gone = settings.map(|settings| {
            let claims = gateways.iter().chain(&unchanged);
            let claims: Vec<_> =
                claims.map(|(gateway, face)| (workspaces(gateway), gateway, face.servers())).collect();
            let all = engine.audience.workspaces();
            let in_daemon = gateways.iter().any(|(gateway, _)| gateway.daemon_session.is_some());
            engine.renew(settings, |upstream, share| {
                let is_it = |server: &&Declared<'_>| {
                    server.group == &*upstream.group && server.key == &*upstream.server
                };
                let mut is_declared = false;
                let claimed = claims.iter().find_map(|(workspaces, gateway, servers)| {
                    let new = &servers.iter().find(is_it)?.spec;
                    is_declared = true;
                    let stays = match &gateway.daemon_session {
                        None => stays(&upstream.spec(), new),
                        Some(daemon_session) => {
                            workspaces
                                .iter()
                                .any(|workspace| daemon_session.share(workspace.client, new) == *share)
                                && upstream.spec().transport == new.transport
                        }
                    };
                    stays.then(|| new.clone())
                });
                // What only sessions had that have ended lingers on.
                let lingers = || in_daemon && !all.iter().any(|workspace| workspace.shows(upstream));
                claimed.or_else(|| (is_declared && lingers()).then(|| (*upstream.spec()).clone()))
            })
        });
        let mut moves = Self {
            replaced: gone.into_iter().flatten().map(|upstream| (upstream, Vec::new())).collect(),
            added: Vec::new(),
        };
        for (gateway, face) in gateways {
            gateway.faces.replace(face);
            // A face that is still searched is indexed anew when somebody searches it.
            gateway.finders.clear();
            for workspace in workspaces(gateway) {
                moves.renew_workspace(gateway, &workspace, &**face);
            }
        }
        moves
    }

    /// Brings a workspace up to date with the new file.
    fn renew_workspace(&mut self, gateway: &Arc<Gateway>, workspace: &Arc<Workspace>, whole: &dyn Face) {
        let mut part = gateway.faces.part_of(workspace);
        let token =
            whole.common().serving.tokens.iter().find(|token| token.name == workspace.owner.principal);
        if let Some(token) = token.filter(|_| serves_http(gateway)) {
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
            workspace.read(|view| session.subscriptions.end_lost(view));
            session.record();
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
    fn make(self, engine: &Arc<Engine>, holds: Vec<Hold>) {
        let mut waits = Vec::new();
        for (old, next) in self.replaced {
            let is_waited_for = !next.is_empty();
            let settled = engine.replace(old, next);
            waits.extend(is_waited_for.then_some(settled));
        }
        let engine = engine.clone();
        tokio::spawn(async move {
            let settled = async {
                engine.start_and_settle(&self.added).await;
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

/// Whether clients come over HTTP, with tokens.
fn serves_http(gateway: &Gateway) -> bool {
    gateway.daemon_session.is_none() && gateway.engine.audience.stdio().is_none()
}

/// Empties a workspace whose toolbox is gone, or is no longer for this client.
fn shut(gateway: &Gateway, workspace: &Arc<Workspace>, whole: &dyn Face, toolbox: Option<&str>) {
    gateway.http_clients.take_out(|_, other| Arc::ptr_eq(other, workspace));
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
