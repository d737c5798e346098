//! What callers with the same credentials have open or switched, the same at every replica.
//!
//! The store has an entry for each of them. Whoever changes something changes the entry first and then asks all others to
//! look at it; an opening is answered when each of them has what it opened. A replica that a caller comes to for the first
//! time looks by itself.
//!
//! Invariant: only the entry says how a view stands. Nobody is told what to do, so that no order of letters matters.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::super::Gateway;
use super::handing::caller;
use super::{CallerKey, Shared};
use crate::core::workspace::Workspace;
use crate::face::Then;
use crate::face::toolman::SwitchChange;
use crate::replicas::all::AskingAll;
use crate::replicas::post::Subject;
use crate::replicas::store::{Away, LONGEST_LIFE};
use crate::replicas::{Handed, Replicas};

/// How long an answer waits for the other replicas, which may have servers to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a view stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Standing {
    /// The open groups, in the order of opening.
    open: Vec<String>,
    /// What was switched by hand: tools, and resources with templates, by full name.
    switched: [BTreeMap<String, bool>; 2],
}

/// What a caller changes in its view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gateway) enum ViewChange {
    Open(String),
    Close(String),
    Switch(SwitchChange),
}

impl ViewChange {
    fn apply(&self, standing: &mut Standing) {
        match self {
            Self::Open(group) if standing.open.contains(group) => {}
            Self::Open(group) => standing.open.push(group.clone()),
            Self::Close(group) => standing.open.retain(|open| open != group),
            Self::Switch(change) => {
                for (names, on) in [(&change.on, true), (&change.off, false)] {
                    for (switched, names) in standing.switched.iter_mut().zip(names) {
                        switched.extend(names.iter().map(|name| (name.to_string(), on)));
                    }
                }
            }
        }
    }
}

/// The view of one caller, as this replica has it.
pub(in crate::gateway) struct SharedView {
    key: CallerKey,
    /// The name of the entry.
    entry: String,
    pub(super) workspace: Arc<Workspace>,
    /// Whether the view stands as the entry says, as far as anybody has told us.
    is_current: AtomicBool,
    /// Whether the entry was there when this replica last looked at it or changed it. Held while somebody looks, so that
    /// nobody acts on an older one.
    stood: tokio::sync::Mutex<bool>,
    /// What was changed while the store was away.
    unsaid: Mutex<Vec<ViewChange>>,
}

/// The views of callers that have come to this replica.
#[derive(Default)]
pub(super) struct Views(Mutex<Vec<Arc<SharedView>>>);

impl Views {
    pub(super) fn of(&self, workspace: &Arc<Workspace>) -> Option<Arc<SharedView>> {
        self.0.lock().iter().find(|view| Arc::ptr_eq(&view.workspace, workspace)).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<SharedView>> {
        self.0.lock().clone()
    }

    pub(super) fn retain(&self, stays: impl Fn(&SharedView) -> bool) {
        self.0.lock().retain(|view| stays(view));
    }

    fn by_key(&self, key: &CallerKey) -> Option<Arc<SharedView>> {
        self.0.lock().iter().find(|view| view.key == *key).cloned()
    }

    /// The view of a caller. It is known before anybody looks at its entry: who changes that later tells us.
    fn of_caller(&self, key: &CallerKey, workspace: &Arc<Workspace>) -> Arc<SharedView> {
        let mut views = self.0.lock();
        if let Some(known) = views.iter().find(|view| Arc::ptr_eq(&view.workspace, workspace)) {
            return known.clone();
        }
        views.retain(|view| view.key != *key);
        let view = Arc::new(SharedView {
            key: key.clone(),
            entry: format!("view:{}", Replicas::digest(&[&key.0, key.1.as_deref().unwrap_or("/")])),
            workspace: workspace.clone(),
            is_current: AtomicBool::new(false),
            stood: tokio::sync::Mutex::new(false),
            unsaid: Mutex::default(),
        });
        views.push(view.clone());
        view
    }
}

impl Shared {
    /// Whether a caller's view stands here as it does elsewhere.
    pub(super) fn is_current(&self, key: &CallerKey) -> bool {
        self.views.by_key(key).is_some_and(|view| view.is_current.load(Ordering::Relaxed))
    }

    /// Lets a caller's view stand as it does elsewhere. While the store is away it stays as it is.
    pub(super) async fn bring_up_to_date(
        &self,
        gateway: &Arc<Gateway>,
        key: &CallerKey,
        workspace: &Arc<Workspace>,
    ) {
        let view = self.views.of_caller(key, workspace);
        if !view.is_current.load(Ordering::Relaxed) {
            let _ = sync(gateway, &view).await;
        }
    }

    /// The epoch of a view's entry, and how it stands; `None` if there is none, or nobody can read it.
    async fn standing(&self, view: &SharedView) -> Result<(u64, Option<Standing>), Away> {
        let (epoch, entry) = self.replicas.look(&view.entry).await?;
        Ok((epoch, entry.and_then(|entry| serde_json::from_slice(&entry.value).ok())))
    }

    /// Seals what the entry of a view says with the key that is in force now.
    pub(super) async fn seal_view_anew(&self, view: &SharedView) -> Result<(), Away> {
        if let (seen, Some(standing)) = self.standing(view).await? {
            // If that fails, somebody else has just sealed it.
            self.write(view, seen, &standing).await?;
        }
        Ok(())
    }

    async fn write(&self, view: &SharedView, seen: u64, standing: &Standing) -> Result<Option<u64>, Away> {
        let value = serde_json::to_vec(standing).expect("plain data");
        self.replicas.swap(&view.entry, seen, "", &value, LONGEST_LIFE).await
    }

    /// Changes the entry of a view.
    async fn change(&self, view: &SharedView, change: &ViewChange) -> Result<(), Away> {
        loop {
            let (seen, standing) = self.standing(view).await?;
            let before = standing.unwrap_or_default();
            let mut standing = before.clone();
            change.apply(&mut standing);
            if standing == before || self.write(view, seen, &standing).await?.is_some() {
                *view.stood.lock().await = true;
                return Ok(());
            }
        }
    }

    async fn announce(&self, view: &SharedView, change: &ViewChange) -> Result<AskingAll, Away> {
        self.change(view, change).await?;
        let key = serde_json::to_vec(&view.key).expect("plain data");
        self.replicas.ask_all(Subject::View, &key).await
    }
}

impl SharedView {
    /// Lets all replicas know of a change. While the store is away, they hear of it when it is back.
    pub(in crate::gateway) async fn announce(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        change: ViewChange,
    ) -> Announced {
        let Some(shared) = gateway.shared.get() else { return Announced(None) };
        match shared.announce(self, &change).await {
            Ok(asking) => Announced(Some(asking)),
            Err(_) => {
                self.say_later(gateway, change);
                Announced(None)
            }
        }
    }

    /// As [`Self::announce`], and looks whether somebody else has changed the entry meanwhile.
    pub(in crate::gateway) async fn announce_and_look(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        change: ViewChange,
    ) {
        let announced = self.announce(gateway, change).await;
        let _ = sync(gateway, self).await;
        announced.holds_everywhere().await;
    }

    fn say_later(self: &Arc<Self>, gateway: &Arc<Gateway>, change: ViewChange) {
        let mut unsaid = self.unsaid.lock();
        let somebody_waits = !unsaid.is_empty();
        note(&mut unsaid, change);
        if somebody_waits {
            return;
        }
        let (view, gateway) = (self.clone(), Arc::downgrade(gateway));
        tokio::spawn(async move {
            loop {
                let Some(gateway) = gateway.upgrade() else { return };
                let Some(shared) = gateway.shared.get() else { return };
                shared.replicas.back().await;
                let Some(change) = view.unsaid.lock().first().cloned() else { return };
                if shared.announce(&view, &change).await.is_ok() {
                    let mut unsaid = view.unsaid.lock();
                    // Another change may have taken its place meanwhile.
                    if unsaid.first() == Some(&change) {
                        unsaid.remove(0);
                    }
                    if unsaid.is_empty() {
                        return;
                    }
                }
            }
        });
    }
}

/// Adds a change to those that are to be said later. What it makes pointless is left out, so that the list is no longer than
/// what can be changed.
fn note(unsaid: &mut Vec<ViewChange>, change: ViewChange) {
    match &change {
        // A group that is closed and opened again stands behind the others, so both are said.
        ViewChange::Open(_) => unsaid.retain(|earlier| *earlier != change),
        ViewChange::Close(group) => unsaid.retain(
            |earlier| !matches!(earlier, ViewChange::Open(other) | ViewChange::Close(other) if other == group),
        ),
        ViewChange::Switch(new) => {
            let names = |class: usize| new.on[class].iter().chain(&new.off[class]).cloned().collect();
            let again: [HashSet<Arc<str>>; 2] = [names(0), names(1)];
            unsaid.retain_mut(|earlier| {
                let ViewChange::Switch(earlier) = earlier else { return true };
                for list in [&mut earlier.on, &mut earlier.off] {
                    list.iter_mut().zip(&again).for_each(|(names, again)| names.retain(|name| !again.contains(name)));
                }
                earlier.on.iter().chain(&earlier.off).any(|names| !names.is_empty())
            });
        }
    }
    unsaid.push(change);
}

/// A change that the others are hearing of.
pub(in crate::gateway) struct Announced(Option<AskingAll>);

impl Announced {
    /// Waits until it holds at every replica that is there.
    pub(in crate::gateway) async fn holds_everywhere(self) {
        if let Some(asking) = self.0 {
            asking.answered(PATIENCE).await;
        }
    }
}

/// Another replica says that the entry of a view has changed.
pub(super) fn told(gateway: Arc<Gateway>, handed: Handed) {
    tokio::spawn(async move {
        let key = serde_json::from_slice::<CallerKey>(&handed.body).ok();
        if let Some(view) = key.and_then(|key| view_of(&gateway, &key)) {
            let _ = sync(&gateway, &view).await;
        }
        handed.part(&[], true).await;
    });
}

/// The view of a caller, who may not have come here yet, unless its own servers run elsewhere.
fn view_of(gateway: &Arc<Gateway>, key: &CallerKey) -> Option<Arc<SharedView>> {
    let shared = gateway.shared.get()?;
    if let Some(known) = shared.views.by_key(key) {
        return Some(known);
    }
    let caller = caller(gateway, key).filter(|caller| !shared.has_own_servers(gateway, caller, key))?;
    Some(shared.views.of_caller(key, &gateway.shared_workspace(&caller)?))
}

/// Lets a view stand as its entry says.
pub(super) async fn sync(gateway: &Arc<Gateway>, view: &Arc<SharedView>) -> Result<(), Away> {
    let Some(shared) = gateway.shared.get() else { return Ok(()) };
    let missing = {
        let mut stood = view.stood.lock().await;
        let (epoch, mut standing) = shared.standing(view).await?;
        if standing.is_none() && *stood {
            // The store has forgotten it, and we have not; another replica may write it first.
            shared.write(view, epoch, &now(view)).await?;
            standing = shared.standing(view).await?.1;
        }
        if !view.unsaid.lock().is_empty() {
            return Ok(());
        }
        *stood |= standing.is_some();
        settle(gateway, view, &standing.unwrap_or_default())
    };
    let mut opening = JoinSet::new();
    for group in missing {
        let (gateway, workspace) = (gateway.clone(), view.workspace.clone());
        opening.spawn(async move { gateway.open_group(&workspace, &group, &Then::Request).await });
    }
    while opening.join_next().await.is_some() {}
    view.is_current.store(true, Ordering::Relaxed);
    Ok(())
}

/// How a view stands here.
fn now(view: &SharedView) -> Standing {
    view.workspace.read(|view| Standing {
        open: view.opened().iter().map(|group| group.to_string()).collect(),
        switched: view
            .switched
            .each_ref()
            .map(|names| names.iter().map(|(name, on)| (name.to_string(), *on)).collect()),
    })
}

/// Closes and switches what the entry says. Returns the groups that are to be opened.
fn settle(gateway: &Gateway, view: &SharedView, standing: &Standing) -> Vec<String> {
    let workspace = &view.workspace;
    let face = gateway.faces.of(workspace);
    let here = now(view);
    if here.switched != standing.switched {
        let differs = |class: usize, on: bool| {
            let wanted = standing.switched[class]
                .iter()
                .filter(|(name, now)| **now == on && here.switched[class].get(*name) != Some(now));
            wanted.map(|(name, _)| Arc::from(name.as_str())).collect()
        };
        let [on, off] = [true, false].map(|on| [differs(0, on), differs(1, on)]);
        workspace.change(|view| view.switch(&on, &off));
        workspace.tell();
    }
    if face.starts_all().is_some() || face.opens_first().is_some() {
        return Vec::new();
    }
    for group in here.open.iter().filter(|group| !standing.open.contains(group)) {
        gateway.engine.close(workspace, group);
    }
    standing.open.iter().filter(|group| !here.open.contains(group)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_later_is_no_longer_than_what_can_be_changed() {
        let switch = |on: &str, off: &str| {
            let names = |text: &str| text.split_whitespace().map(Arc::from).collect::<Vec<Arc<str>>>();
            ViewChange::Switch(SwitchChange { on: [names(on), Vec::new()], off: [names(off), Vec::new()] })
        };
        let (open, close) = (
            |group: &str| ViewChange::Open(group.to_owned()),
            |group: &str| ViewChange::Close(group.to_owned()),
        );
        let mut unsaid = Vec::new();
        for round in 0..100 {
            for change in [open("a"), open("b"), close("a"), switch("x y", ""), switch("", "y z"), open("a")]
            {
                note(&mut unsaid, change);
            }
            let expected = [open("b"), close("a"), switch("x", ""), switch("", "y z"), open("a")];
            assert_eq!(unsaid, expected, "round {round}");
        }
        // It comes to the same as all of it.
        let mut standing = Standing { open: vec!["a".to_owned()], ..Standing::default() };
        unsaid.iter().for_each(|change| change.apply(&mut standing));
        assert_eq!(standing.open, ["b", "a"]);
        let switched: Vec<_> = standing.switched[0].iter().map(|(name, on)| (name.as_str(), *on)).collect();
        assert_eq!(switched, [("x", true), ("y", false), ("z", false)]);
    }
}
