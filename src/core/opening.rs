//! Opening and closing: upstreams start because a client looks at them, and end when none does any more. The
//! gateway calls this when a face opens or closes a group, and after a new file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::engine::Engine;
use super::modern::Watched;
use super::observed;
use super::session::ClientSession;
use super::start_error::StartError;
use super::upstream::{Listing, Phase, Upstream};
use super::view::View;
use super::workspace::Workspace;
use crate::config::Isolation;

/// How long an upstream that a new file no longer has may take to finish its calls in flight.
const LONGEST_DRAIN: Duration = Duration::from_secs(30);
/// How long an upstream may take to end before its replacement is started.
const BEFORE_NEXT: Duration = Duration::from_millis(700);

/// The servers of a group that failed to open or are late, and why.
pub type Failures = Vec<(Arc<str>, Arc<str>)>;

/// An upstream that was to start, and the outcome.
type Attempt = (Arc<Upstream>, Result<(), StartError>);

/// The groups that a view is opening, by the number of each opening.
#[derive(Default)]
pub(super) struct Openings {
    groups: BTreeMap<u64, Arc<str>>,
    /// Whether nobody has the view any more.
    is_shut: bool,
}

impl Openings {
    /// Begins to open a group. `None`: nobody has the view any more.
    pub(super) fn begin(&mut self, group: &str) -> Option<u64> {
        if self.is_shut {
            return None;
        }
        let number = self.groups.last_key_value().map_or(0, |(last, _)| last + 1);
        self.groups.insert(number, group.into());
        Some(number)
    }

    /// Whether the group of an opening may still be opened: nobody has closed it meanwhile, and the file has
    /// it.
    fn end(&mut self, number: u64) -> bool {
        self.groups.remove(&number).is_some()
    }

    /// Whether a group is being opened.
    fn has(&self, group: &str) -> bool {
        self.groups().any(|opening| &**opening == group)
    }

    /// The groups that are being opened, those first that began first.
    pub(super) fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.groups.values()
    }

    /// Keeps the openings of these groups only.
    pub(super) fn retain(&mut self, which: impl Fn(&str) -> bool) {
        self.groups.retain(|_, group| which(group));
    }

    /// Opens nothing from now on.
    pub(super) fn shut(&mut self) {
        self.is_shut = true;
        self.groups.clear();
    }
}

impl Engine {
    /// Connects to all upstreams of a group at once and waits until each is up, failed or late; those that
    /// run or are at rest are left alone. If a new file replaces some of them meanwhile, it waits for the
    /// replacements. Afterwards the group's items stand in the workspace's lists, unless every server failed,
    /// and the clients are told; late servers join when they are up. Returns the servers that failed or are
    /// late; `None` if the group was closed meanwhile, or the file no longer has it.
    pub async fn open(
        self: &Arc<Self>,
        workspace: &Arc<Workspace>,
        group: &str,
        upstreams: &[Arc<Upstream>],
    ) -> Option<Failures> {
        let begun = workspace.change(|view| view.begin_opening(&*workspace.exposure(), group, upstreams));
        let Some(number) = begun else {
            // The workspace's client is gone already, and nobody else would end the upstreams that were made
            // for it.
            self.release(workspace, upstreams.to_vec());
            return None;
        };
        // In a group that is open already, each server appears in lists as soon as it is up, so the notices
        // are held.
        let hold = workspace.read(|view| view.is_open(group)).then(|| workspace.hold());
        let attempts = settle(workspace, Some(group), || ()).await;
        let (failed, given_up) = workspace.change(|view| {
            if !view.openings.end(number) {
                return None;
            }
            let members: Vec<_> = view.group(group).map(|entry| entry.upstream.clone()).collect();
            let failed: Failures = members
                .iter()
                .filter_map(|upstream| {
                    Some((
                        upstream.server.clone(),
                        failure(upstream, workspace.listing(), &attempts)?.to_string().into(),
                    ))
                })
                .collect();
            let late = members.iter().any(|upstream| upstream.is_starting());
            if late || failed.is_empty() || failed.len() < members.len() || view.is_open(group) {
                view.open(group);
            // If the group is being opened once more, that attempt may succeed, so the group stays.
            } else if !view.openings.has(group) {
                view.remove(&*workspace.exposure(), group);
                return Some((failed, members));
            }
            Some((failed, Vec::new()))
        })?;
        self.release(workspace, given_up);
        self.audience.arrived(workspace);
        workspace.begin();
        workspace.tell();
        drop(hold);
        Some(failed)
    }

    /// Takes a group out of the workspace and ends those of its servers that no other workspace has. Returns
    /// how many servers were on offer.
    pub fn close(&self, workspace: &Arc<Workspace>, group: &str) -> usize {
        let upstreams: Vec<_> = workspace.change(|view| {
            let upstreams = view.group(group).map(|entry| entry.upstream.clone()).collect();
            view.remove(&*workspace.exposure(), group);
            upstreams
        });
        let running = upstreams.iter().filter(|upstream| upstream.is_on_offer(workspace.listing())).count();
        self.release(workspace, upstreams);
        workspace.tell();
        running
    }

    /// Ends all upstreams of a workspace that no other workspace has.
    pub fn discard(&self, workspace: &Arc<Workspace>) {
        let upstreams = self.forget(workspace);
        self.release(workspace, upstreams);
    }

    /// Stops telling a workspace's clients of changes, and opens nothing for them any more. Returns the
    /// upstreams in it.
    pub fn forget(&self, workspace: &Arc<Workspace>) -> Vec<Arc<Upstream>> {
        self.audience.remove(workspace);
        workspace.change(View::shut)
    }

    /// Lets go of upstreams that are no longer in a workspace: the workspace's subscriptions to them end, and
    /// so do the upstreams that nobody else has open, in the daemon perhaps a while later.
    fn release(&self, workspace: &Workspace, upstreams: Vec<Arc<Upstream>>) {
        for session in workspace.sessions() {
            self.unsubscribe(&session, &upstreams);
        }
        let workspaces = self.audience.workspaces();
        for upstream in upstreams {
            if workspaces.iter().any(|workspace| workspace.shows(&upstream)) {
                continue;
            }
            match self.daemon {
                false if upstream.spec().lives_on => {}
                true => self.end_later(upstream),
                false => self.end_unused(&workspaces, &upstream),
            }
        }
    }

    /// Ends an upstream of the daemon that nobody has open, unless somebody opens it before its time is over.
    fn end_later(&self, upstream: Arc<Upstream>) {
        let linger = match upstream.spec().isolation_in_daemon() {
            Isolation::Session => Duration::ZERO,
            Isolation::Directory | Isolation::Shared => self.settings().daemon.linger,
        };
        let (release, Some(engine)) = (upstream.usage.release(), upstream.engine.upgrade()) else { return };
        if linger.is_zero() {
            return engine.end_unused(&engine.audience.workspaces(), &upstream);
        }
        let (engine, upstream) = (Arc::downgrade(&engine), Arc::downgrade(&upstream));
        tokio::spawn(async move {
            sleep(linger).await;
            let (Some(engine), Some(upstream)) = (engine.upgrade(), upstream.upgrade()) else { return };
            let workspaces = engine.audience.workspaces();
            let is_open = workspaces.iter().any(|workspace| workspace.shows(&upstream));
            if upstream.usage.is_released(release) && !is_open {
                engine.end_unused(&workspaces, &upstream);
            }
        });
    }

    /// Ends an upstream that nobody has open.
    fn end_unused(&self, workspaces: &[Arc<Workspace>], upstream: &Arc<Upstream>) {
        self.stop_draining(workspaces, upstream);
        self.registry.remove(upstream, upstream.stop_for_good());
    }

    /// Ends the predecessors of this upstream, replaced by a new file, that are still finishing calls, unless
    /// those calls may belong to other workspaces.
    fn stop_draining(&self, workspaces: &[Arc<Workspace>], upstream: &Upstream) {
        let (group, server) = (&upstream.group, &upstream.server);
        if workspaces.iter().any(|workspace| workspace.read(|view| view.server(group, server).is_some())) {
            return;
        }
        for before in self.registry.draining(group, server) {
            before.stop();
        }
    }

    fn unsubscribe(&self, session: &ClientSession, upstreams: &[Arc<Upstream>]) {
        for upstream in upstreams {
            for own in session.subscriptions.end_at(&upstream.group, &upstream.server) {
                self.watch(upstream, &Watched::Resource(own), false);
            }
        }
    }

    /// Lets an upstream finish its calls in flight, for 30 s at most, then ends it, and starts its
    /// replacements: at once if the upstream is busy, otherwise when it has ended, so that two instances do
    /// not fight over something that only one can have. The receiver resolves when each replacement is up or
    /// has failed.
    pub fn replace(
        self: &Arc<Self>,
        upstream: Arc<Upstream>,
        next: Vec<Arc<Upstream>>,
    ) -> oneshot::Receiver<()> {
        let (settled, receiver) = oneshot::channel();
        self.registry.note_draining(&upstream);
        let engine = self.clone();
        self.spawn(async move {
            let head_start = if upstream.is_busy() { Duration::ZERO } else { BEFORE_NEXT };
            let ending = upstream.drain(LONGEST_DRAIN);
            tokio::pin!(ending);
            let ended = timeout(head_start, &mut ending).await.is_ok();
            let starting = async {
                engine.start_and_settle(&next).await;
                let _ = settled.send(());
            };
            match ended {
                true => starting.await,
                false => drop(tokio::join!(starting, ending)),
            }
        });
        receiver
    }

    /// Starts those upstreams that are not at rest for everybody who has them, and waits until each is up or has
    /// failed.
    pub async fn start_and_settle(&self, upstreams: &[Arc<Upstream>]) {
        let workspaces = self.audience.workspaces();
        let wanted = upstreams.iter().filter(|upstream| {
            let mut shown = workspaces.iter().filter(|workspace| workspace.shows(upstream));
            shown.any(|workspace| !upstream.is_at_rest(workspace.listing()))
        });
        let starts: Vec<_> = wanted.map(|upstream| (upstream, upstream.start())).collect();
        for (upstream, start) in starts {
            if let Ok(phase) = start {
                let _ = upstream.settled(phase).await;
            }
        }
    }
}

/// Starts the upstreams in a workspace, of one group or all, and waits until each is up, failed or late.
/// Whenever one is, it looks at the workspace again: it also starts upstreams that a new file has put there
/// meanwhile, and does not wait for any that have gone. Each upstream is tried once, unless it is at rest.
pub async fn settle(workspace: &Workspace, group: Option<&str>, mut on_each: impl FnMut()) -> Vec<Attempt> {
    let mut tried: Vec<Arc<Upstream>> = Vec::new();
    let (mut attempts, mut outcomes) = (JoinSet::new(), Vec::new());
    loop {
        let members: Vec<_> = workspace.read(|view| {
            let wanted =
                view.entries().filter(|entry| group.is_none_or(|group| *entry.upstream.group == *group));
            wanted.map(|entry| entry.upstream.clone()).collect()
        });
        for upstream in members {
            if tried.iter().any(|other| Arc::ptr_eq(other, &upstream)) {
                continue;
            }
            if upstream.is_at_rest(workspace.listing()) {
                tried.push(upstream);
                continue;
            }
            upstream.take_surroundings_of(workspace);
            let same =
                |other: &&Arc<Upstream>| other.group == upstream.group && other.server == upstream.server;
            match tried.iter().rfind(same).cloned() {
                None => attempts.spawn(attempt(upstream.clone(), upstream.start())),
                // This upstream replaces one that may still hold something that only one of them can have.
                Some(before) => attempts.spawn(observed::on_behalf_of(observed::behalf(), {
                    let upstream = upstream.clone();
                    async move {
                        let _ = timeout(BEFORE_NEXT, before.gone()).await;
                        let start = upstream.start();
                        attempt(upstream, start).await
                    }
                })),
            };
            tried.push(upstream);
        }
        match attempts.join_next().await {
            Some(attempt) => outcomes.extend(attempt),
            None => return outcomes,
        }
        on_each();
    }
}

async fn attempt(upstream: Arc<Upstream>, start: Result<watch::Receiver<Phase>, StartError>) -> Attempt {
    let outcome = match start {
        Ok(phase) => upstream.settled_in_time(phase).await.map(drop),
        Err(refused) => Err(refused),
    };
    (upstream, outcome)
}

/// Why an upstream is neither up nor at rest: it failed to start, or it has ended since.
fn failure(upstream: &Arc<Upstream>, listing: Listing, attempts: &[Attempt]) -> Option<StartError> {
    if upstream.is_up() || upstream.is_at_rest(listing) {
        return None;
    }
    let attempt = attempts.iter().find(|(other, _)| Arc::ptr_eq(other, upstream));
    attempt.and_then(|(_, outcome)| outcome.clone().err()).or_else(|| Some(upstream.last_error()))
}
