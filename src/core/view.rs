//! What one client sees of the catalog: upstreams in their order, and every exposed name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::catalog::{Exposed, Item, Items, Kind, NameLimits};
use super::upstream::Upstream;
use crate::wire::era::ClientHello;

/// How a face names and renders what it exposes.
pub trait Exposure {
    /// The name in full, before it is made fit for clients.
    fn full_name(&self, upstream: &Upstream, kind: Kind, key: &str) -> String;
    /// The definition as clients see it.
    fn render(&self, upstream: &Upstream, kind: Kind, name: &str, item: &Item) -> String;
    /// Whether this thing exists for clients at all.
    fn allows(&self, upstream: &Upstream, kind: Kind, key: &str) -> bool;
    /// What becomes of the later of two tools that would share a name.
    fn renames_tools(&self) -> bool;
    /// How tool names must look.
    fn limits(&self) -> NameLimits;
    /// Whether things of this kind stand in the lists of this client at all.
    fn lists(&self, client: Option<&ClientHello>, kind: Kind) -> bool;
}

/// The part of the catalog that one client sees.
#[derive(Default)]
pub struct View {
    /// In the order of listing.
    entries: BTreeMap<u64, Entry>,
    next: u64,
    /// In the order of opening.
    open: Vec<Arc<str>>,
    names: [HashMap<Arc<str>, Slot>; 4],
}

/// One upstream in a view.
pub struct Entry {
    /// Which.
    pub upstream: Arc<Upstream>,
    /// As it was when last up; it can still be called by these names.
    pub exposed: Arc<Exposed>,
    /// What `exposed` was made of.
    items: Arc<Items>,
    /// Whether it is connected.
    pub up: bool,
    /// Whether it stands in lists yet: not before its whole group has settled.
    pub settled: bool,
}

impl Entry {
    /// Whether its things stand in lists.
    pub fn is_listed(&self) -> bool {
        self.up && self.settled
    }
}

#[derive(Clone, Copy)]
struct Slot {
    entry: u64,
    item: usize,
    /// The full form of a name that had to be altered: it can be called, but gives way to a listed name.
    alias: bool,
}

/// Where a name leads.
#[derive(Clone)]
pub struct Target {
    /// To whom.
    pub upstream: Arc<Upstream>,
    /// The upstream's own name for it, as JSON.
    pub raw_key: Arc<str>,
    /// Whether the upstream is connected.
    pub up: bool,
}

impl View {
    /// The entries of a group, in the order of listing.
    pub fn group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.values().filter(move |entry| &*entry.upstream.group == group)
    }

    /// Every entry, in the order of listing.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Adds upstreams that are not there yet, at the end, unsettled.
    pub fn add(&mut self, face: &dyn Exposure, upstreams: &[Arc<Upstream>]) {
        for upstream in upstreams {
            if self.entries.values().any(|entry| Arc::ptr_eq(&entry.upstream, upstream)) {
                continue;
            }
            let seq = self.next;
            self.next += 1;
            self.entries.insert(
                seq,
                Entry {
                    upstream: upstream.clone(),
                    exposed: Arc::default(),
                    items: Arc::default(),
                    up: false,
                    settled: false,
                },
            );
            if upstream.is_up() {
                self.refresh(face, upstream);
            }
        }
    }

    /// Whether the group is open.
    pub fn is_open(&self, group: &str) -> bool {
        self.open.iter().any(|open| &**open == group)
    }

    /// Opens a group: its upstreams stand in lists from now on. Returns the kinds whose lists changed by it.
    pub fn open(&mut self, group: &str) -> Vec<Kind> {
        if !self.is_open(group) {
            self.open.push(group.into());
        }
        let mut changed = Vec::new();
        for entry in
            self.entries.values_mut().filter(|entry| &*entry.upstream.group == group && !entry.settled)
        {
            entry.settled = true;
            if entry.up {
                changed.extend(kinds_in(&entry.exposed));
            }
        }
        distinct(changed)
    }

    /// Takes a group out. Returns the kinds whose lists changed by it.
    pub fn remove(&mut self, group: &str) -> Vec<Kind> {
        self.open.retain(|open| &**open != group);
        let gone: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| &*entry.upstream.group == group)
            .map(|(seq, _)| *seq)
            .collect();
        let mut changed = Vec::new();
        for seq in gone {
            self.forget_names(seq);
            let entry = self.entries.remove(&seq).expect("found above");
            if entry.is_listed() {
                changed.extend(kinds_in(&entry.exposed));
            }
        }
        distinct(changed)
    }

    /// Takes over what the upstream offers now. Returns the kinds whose lists changed by it.
    pub fn refresh(&mut self, face: &dyn Exposure, upstream: &Arc<Upstream>) -> Vec<Kind> {
        let Some((&seq, entry)) =
            self.entries.iter_mut().find(|(_, entry)| Arc::ptr_eq(&entry.upstream, upstream))
        else {
            return Vec::new();
        };
        let before = entry.is_listed();
        let (was, old, items) = (entry.items.clone(), entry.exposed.clone(), upstream.items());
        let up = upstream.link().is_some();
        entry.up = up;
        let mut changed = Vec::new();
        if before != entry.is_listed() {
            changed.extend(kinds_in(&entry.exposed));
        }
        if up && !Arc::ptr_eq(&was, &items) {
            entry.items = items;
            let settled = entry.settled;
            // Within a group that has not settled no name is fixed yet, and the first in the file keeps the plain one.
            let renewed: Vec<u64> = if settled {
                vec![seq]
            } else {
                let unsettled = self.entries.iter().filter(|(_, other)| {
                    !other.settled && other.upstream.group == upstream.group && other.up
                });
                unsettled.map(|(seq, _)| *seq).collect()
            };
            for seq in &renewed {
                self.forget_names(*seq);
            }
            for seq in renewed {
                self.expose(face, seq);
            }
            let entry = &self.entries[&seq];
            if entry.is_listed() {
                let differs = |kind: &Kind| old.of(*kind).text() != entry.exposed.of(*kind).text();
                changed.extend(Kind::ALL.into_iter().filter(differs));
            }
        }
        distinct(changed)
    }

    /// Where the name of a thing leads.
    pub fn find(&self, kind: Kind, name: &str) -> Option<Target> {
        let slot = self.names[kind as usize].get(name)?;
        let entry = &self.entries[&slot.entry];
        let item = &entry.exposed.of(kind).items()[slot.item];
        Some(Target { upstream: entry.upstream.clone(), raw_key: item.raw_key.clone(), up: entry.up })
    }

    /// Every name of a kind that stands in lists.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let listed = self.entries.values().filter(|entry| entry.is_listed());
        listed.flat_map(move |entry| entry.exposed.of(kind).items().iter().map(|item| &*item.name))
    }

    /// Appends the definitions of a kind that stand in lists, separated by commas; `first` tells whether nothing
    /// stands before them.
    pub fn write_list(&self, kind: Kind, out: &mut Vec<u8>, mut first: bool) {
        for entry in self.entries.values().filter(|entry| entry.is_listed()) {
            let text = entry.exposed.of(kind).text();
            if !text.is_empty() {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    fn forget_names(&mut self, seq: u64) {
        let exposed = &self.entries[&seq].exposed;
        for kind in Kind::ALL {
            let names = &mut self.names[kind as usize];
            for item in exposed.of(kind).items() {
                for name in [Some(&item.name), item.full.as_ref()].into_iter().flatten() {
                    if names.get(name).is_some_and(|slot| slot.entry == seq) {
                        names.remove(name);
                    }
                }
            }
        }
    }

    /// Names and renders everything that the entry's upstream offers. A name once listed stays with its origin.
    fn expose(&mut self, face: &dyn Exposure, seq: u64) {
        let entry = self.entries.get(&seq).expect("the caller has it from there");
        let (upstream, items) = (entry.upstream.clone(), entry.items.clone());
        let kept: HashMap<(Kind, Box<str>), Arc<str>> = if entry.settled {
            let old = &entry.exposed;
            let named = |kind| {
                old.of(kind).items().iter().map(move |item| ((kind, item.key.clone()), item.name.clone()))
            };
            Kind::ALL.into_iter().flat_map(named).collect()
        } else {
            HashMap::new()
        };
        let mut exposed = Exposed::default();
        for kind in Kind::ALL {
            let mut seen = std::collections::HashSet::new();
            for item in items.of(kind).iter().filter(|item| face.allows(&upstream, kind, &item.key)) {
                if !seen.insert(&*item.key) {
                    log::warn!("[{upstream}] offers {} twice; the first one counts", item.key);
                    continue;
                }
                let full = face.full_name(&upstream, kind, &item.key);
                let old = kept.get(&(kind, item.key.clone())).cloned();
                let Some(name) = old.or_else(|| self.choose(face, &upstream, kind, &full, &item.key)) else {
                    log::warn!("[{upstream}] {full} is taken by an earlier server; this one is left out");
                    continue;
                };
                let index = exposed.of(kind).items().len();
                let names = &mut self.names[kind as usize];
                names.insert(name.clone(), Slot { entry: seq, item: index, alias: false });
                let full = (*full != *name).then(|| Arc::<str>::from(full));
                if let Some(full) = &full {
                    names.entry(full.clone()).or_insert(Slot { entry: seq, item: index, alias: true });
                }
                let definition = face.render(&upstream, kind, &name, item);
                exposed.push(kind, item, name, full, &definition);
            }
        }
        self.entries.get_mut(&seq).expect("as above").exposed = Arc::new(exposed);
    }

    /// A name that clients take and nobody has.
    fn choose(
        &self,
        face: &dyn Exposure,
        upstream: &Upstream,
        kind: Kind,
        full: &str,
        key: &str,
    ) -> Option<Arc<str>> {
        let names = &self.names[kind as usize];
        let free = |name: &str| names.get(name).is_none_or(|slot| slot.alias);
        if kind != Kind::Tool {
            return free(full).then(|| full.into());
        }
        let limits = face.limits();
        let fits = limits.fits(full);
        if fits && free(full) {
            return Some(full.into());
        }
        if fits && !face.renames_tools() {
            return None;
        }
        let origin = [&*upstream.group, &*upstream.server, key];
        (0..u32::MAX)
            .map(|attempt| limits.marked(full, &origin, attempt))
            .find(|name| free(name))
            .map(Arc::from)
    }
}

fn kinds_in(exposed: &Exposed) -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| !exposed.of(*kind).items().is_empty()).collect()
}

fn distinct(mut kinds: Vec<Kind>) -> Vec<Kind> {
    kinds.sort_unstable_by_key(|kind| *kind as usize);
    kinds.dedup();
    kinds
}
