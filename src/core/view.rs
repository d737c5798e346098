//! What one client sees of the catalog: upstreams in their order, every exposed name, and what is switched on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::level;
use super::upstream::Upstream;
use crate::catalog::{Exposed, ExposedItem, Items, Kind, NameLimits, Rendered};
use crate::wire::era::ClientHello;
use crate::wire::json::Node;

/// How a face names and renders what it exposes.
pub trait Exposure {
    /// The name in full, before it is made fit for clients.
    fn full_name(&self, upstream: &Upstream, kind: Kind, key: &str) -> String;
    /// Another name for a thing whose name is taken, where the face has such.
    fn second_name(&self, _upstream: &Upstream, _key: &str) -> Option<String> {
        None
    }
    /// Appends the definition as clients see it.
    fn render(&self, upstream: &Upstream, kind: Kind, name: &str, definition: Node<'_>, out: &mut Vec<u8>);
    /// Whether this thing exists for clients at all.
    fn allows(&self, upstream: &Upstream, kind: Kind, key: &str) -> bool {
        kind != Kind::Tool || upstream.spec().filter.allows(key)
    }
    /// Whether it is active until it is switched by hand.
    fn starts_active(&self, _kind: Kind, _full: &str, _name: &str) -> bool {
        true
    }
    /// What becomes of two tools that would share a name.
    fn clash(&self) -> Clash {
        Clash::Rename
    }
    /// How tool names must look.
    fn limits(&self) -> NameLimits;
    /// Whether things of this kind stand in the lists of this client at all.
    fn lists(&self, client: Option<&ClientHello>, kind: Kind) -> bool;
    /// Whether the lists of modern clients follow the catalog; else they never change.
    fn lists_to_modern(&self) -> bool {
        false
    }
    /// What the list of tools tells of a thing with this definition, active or not: where it changes, the list does.
    fn tells(&self, _kind: Kind, _definition: &str) -> Option<String> {
        None
    }
}

/// What becomes of two tools that would share a name, and of the names of an upstream that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// The later one gets another name; a name once given stays, also while its upstream is down.
    Rename,
    /// The first in the file has the name while it is up; the other is left out.
    FirstInFile,
}

/// The part of the catalog that one client sees.
#[derive(Default)]
pub struct View {
    /// In the order of listing.
    entries: BTreeMap<u64, Entry>,
    next: u64,
    /// Groups in the order of opening.
    open: Vec<Arc<str>>,
    /// The groups that are being opened, by the number of the opening.
    openings: BTreeMap<u64, Arc<str>>,
    /// Nobody looks through it any more.
    shut: bool,
    names: [HashMap<Arc<str>, Slot>; 4],
    /// Places in `entries`, by group and server.
    origins: HashMap<Arc<str>, HashMap<Arc<str>, u64>>,
    /// What was switched by hand: tools, and resources with templates, by full name.
    pub switched: [HashMap<Arc<str>, bool>; 2],
    /// What was switched by hand before the view began: it is so from the start.
    pub remembered: [HashMap<Arc<str>, bool>; 2],
}

/// One upstream in a view.
pub struct Entry {
    /// Which.
    pub upstream: Arc<Upstream>,
    /// As it was when last up.
    pub exposed: Arc<Exposed>,
    /// What `exposed` was made of.
    items: Arc<Items>,
    /// Whether it is connected.
    pub up: bool,
    /// Whether it stands in lists yet: not before its whole group has settled.
    pub settled: bool,
    /// Names that others have and that it would like.
    missed: Vec<(Kind, Arc<str>)>,
}

impl Entry {
    fn new(upstream: &Arc<Upstream>) -> Self {
        Self {
            upstream: upstream.clone(),
            exposed: Arc::default(),
            items: Arc::default(),
            up: false,
            settled: false,
            missed: Vec::new(),
        }
    }

    /// The definitions of a kind as clients see them.
    pub fn rendered(&self, face: &dyn Exposure, kind: Kind) -> &Rendered {
        let shelf = self.exposed.of(kind);
        shelf.rendered.get_or_init(|| {
            Rendered::new(shelf, |item, definition, out| {
                face.render(&self.upstream, kind, &item.name, definition, out);
            })
        })
    }

    /// Whether its things stand in lists.
    pub fn is_listed(&self) -> bool {
        self.up && self.settled
    }
}

/// What entries add to each list, and what the list of tools tells of their things.
#[derive(Default)]
struct Listing {
    lists: [Vec<u8>; 4],
    /// Kind, group, name, text.
    told: Vec<(Kind, Arc<str>, Arc<str>, String)>,
}

impl Listing {
    /// The kinds whose lists are not the same.
    fn differing(&self, other: &Self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| {
            let told = *kind == Kind::Tool && self.told != other.told;
            told || self.lists[*kind as usize] != other.lists[*kind as usize]
        })
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
    /// Whether it is switched on.
    pub active: bool,
    exposed: Arc<Exposed>,
    kind: Kind,
    item: usize,
}

impl Entry {
    fn target(&self, kind: Kind, item: usize, active: bool) -> Target {
        Target { upstream: self.upstream.clone(), active, exposed: self.exposed.clone(), kind, item }
    }
}

impl Target {
    /// The upstream's own name for it, as JSON.
    pub fn raw_key(&self) -> &str {
        self.item().own.raw_key()
    }

    /// The same as text.
    pub fn own_name(&self) -> &str {
        &self.item().own.key
    }

    /// The name that stands in lists.
    pub fn name(&self) -> &Arc<str> {
        &self.item().name
    }

    /// As its upstream defined it.
    pub fn definition(&self) -> &str {
        self.item().own.raw()
    }

    fn item(&self) -> &ExposedItem {
        &self.exposed.of(self.kind).items()[self.item]
    }
}

impl View {
    /// The entries of a group, in the order of listing.
    pub fn group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.values().filter(move |entry| &*entry.upstream.group == group)
    }

    /// The entry of one server of a group.
    pub fn server(&self, group: &str, server: &str) -> Option<&Entry> {
        self.entries.get(self.origins.get(group)?.get(server)?)
    }

    /// Every entry, in the order of listing.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Adds upstreams that are not there yet, at the end, unsettled.
    pub fn add(&mut self, face: &dyn Exposure, upstreams: &[Arc<Upstream>]) {
        for upstream in upstreams {
            if self.server(&upstream.group, &upstream.server).is_some() {
                continue;
            }
            self.entries.insert(self.next, Entry::new(upstream));
            let group = self.origins.entry(upstream.group.clone()).or_default();
            group.insert(upstream.server.clone(), self.next);
            self.next += 1;
            if upstream.is_up() {
                self.refresh(face, upstream);
            }
        }
    }

    /// Begins to open a group: adds its upstreams. `None`: nobody looks through this view any more.
    pub fn begin_opening(
        &mut self,
        face: &dyn Exposure,
        group: &str,
        upstreams: &[Arc<Upstream>],
    ) -> Option<u64> {
        if self.shut {
            return None;
        }
        self.add(face, upstreams);
        let number = self.openings.last_key_value().map_or(0, |(last, _)| last + 1);
        self.openings.insert(number, group.into());
        Some(number)
    }

    /// Whether the group of an opening is still to be opened: nobody has closed it meanwhile, and the file has it.
    pub fn end_opening(&mut self, number: u64) -> bool {
        self.openings.remove(&number).is_some()
    }

    /// Whether a group is being opened.
    pub fn is_opening(&self, group: &str) -> bool {
        self.openings.values().any(|opening| &**opening == group)
    }

    /// Opens nothing from now on. Returns the upstreams in it.
    pub fn shut(&mut self) -> Vec<Arc<Upstream>> {
        self.shut = true;
        self.openings.clear();
        self.entries.values().map(|entry| entry.upstream.clone()).collect()
    }

    /// The groups in it: those that are open in the order of opening, then those that are about to be.
    pub fn groups(&self) -> Vec<Arc<str>> {
        let mut groups = self.open.clone();
        let begun = self.entries.values().map(|entry| &entry.upstream.group);
        for group in begun.chain(self.openings.values()) {
            if !groups.contains(group) {
                groups.push(group.clone());
            }
        }
        groups
    }

    /// Whether the group is open.
    pub fn is_open(&self, group: &str) -> bool {
        self.open.iter().any(|open| &**open == group)
    }

    /// Opens a group: its upstreams stand in lists from now on, behind those of groups that were opened before. Returns
    /// the kinds whose lists changed by it.
    pub fn open(&mut self, group: &str) -> Vec<Kind> {
        if !self.is_open(group) {
            self.move_to_end(group);
        }
        self.open_in_place(group)
    }

    /// Opens a group whose upstreams stand in the order of the file.
    pub fn open_in_place(&mut self, group: &str) -> Vec<Kind> {
        if !self.is_open(group) {
            self.open.push(group.into());
        }
        let mut changed = BTreeSet::new();
        for entry in
            self.entries.values_mut().filter(|entry| &*entry.upstream.group == group && !entry.settled)
        {
            entry.settled = true;
            if entry.up {
                changed.extend(kinds_in(&entry.exposed));
            }
        }
        changed.into_iter().collect()
    }

    fn move_to_end(&mut self, group: &str) {
        let own: Vec<u64> = self.places_of(|entry| *entry.upstream.group == *group);
        let Some(first) = own.first() else { return };
        if self.entries.range(first..).count() == own.len() {
            return;
        }
        for seq in own {
            let entry = self.entries.remove(&seq).expect("found above");
            let to = self.next;
            self.next += 1;
            for kind in Kind::ALL {
                for item in entry.exposed.of(kind).items() {
                    for name in [Some(&item.name), item.full.as_ref()].into_iter().flatten() {
                        if let Some(slot) = self.names[kind as usize].get_mut(name)
                            && slot.entry == seq
                        {
                            slot.entry = to;
                        }
                    }
                }
            }
            let group = self.origins.entry(entry.upstream.group.clone()).or_default();
            group.insert(entry.upstream.server.clone(), to);
            self.entries.insert(to, entry);
        }
    }

    fn places_of(&self, which: impl Fn(&Entry) -> bool) -> Vec<u64> {
        self.entries.iter().filter(|(_, entry)| which(entry)).map(|(seq, _)| *seq).collect()
    }

    /// Takes a group out. Returns the kinds whose lists changed by it.
    pub fn remove(&mut self, face: &dyn Exposure, group: &str) -> Vec<Kind> {
        self.open.retain(|open| &**open != group);
        self.openings.retain(|_, opening| &**opening != group);
        self.origins.remove(group);
        let mut changed = BTreeSet::new();
        for seq in self.places_of(|entry| *entry.upstream.group == *group) {
            self.forget_names(seq);
            let entry = self.entries.remove(&seq).expect("found above");
            if entry.is_listed() {
                changed.extend(kinds_in(&entry.exposed));
            }
        }
        let heirs = self.places_of(|entry| !entry.missed.is_empty()).into_iter().collect();
        let before = self.listing(face, &heirs);
        self.hand_on_names(face);
        changed.extend(before.differing(&self.listing(face, &heirs)));
        changed.into_iter().collect()
    }

    /// Takes over what the upstream offers now, or that it is down. Returns the kinds whose lists changed by it.
    pub fn refresh(&mut self, face: &dyn Exposure, upstream: &Arc<Upstream>) -> Vec<Kind> {
        self.take_over(face, upstream, upstream.link().is_some(), upstream.items())
    }

    /// Shows what the upstream is known to offer as if it were up.
    pub fn recall(&mut self, face: &dyn Exposure, upstream: &Arc<Upstream>, items: Arc<Items>) {
        self.take_over(face, upstream, true, items);
    }

    fn take_over(
        &mut self,
        face: &dyn Exposure,
        upstream: &Arc<Upstream>,
        up: bool,
        items: Arc<Items>,
    ) -> Vec<Kind> {
        let seq = self.origins.get(&upstream.group).and_then(|group| group.get(&upstream.server).copied());
        // One that another stands in for since the file changed has no say any more.
        let own = |entry: &&Entry| Arc::ptr_eq(&entry.upstream, upstream);
        let Some((seq, entry)) = seq.and_then(|seq| Some((seq, self.entries.get(&seq).filter(own)?))) else {
            return Vec::new();
        };
        if entry.up == up && Arc::ptr_eq(&entry.items, &items) {
            return Vec::new();
        }
        let unsettled = |other: &Entry| !other.settled && other.upstream.group == upstream.group;
        let gives_way = |at: &u64| *at > seq && unsettled(&self.entries[at]);
        let has_names = |other: &Entry| other.up || !other.exposed.is_empty();
        let may_give_way =
            || self.entries.range(seq + 1..).any(|(_, other)| unsettled(other) && has_names(other));
        let renewed: BTreeSet<u64> = match (face.clash(), entry.settled) {
            // Within a group that has not settled no name is fixed yet, and the first in the file keeps the plain one.
            (Clash::Rename, false)
                if may_give_way() && self.rivals(face, seq, &items).iter().any(gives_way) =>
            {
                self.entries
                    .iter()
                    .filter(|(at, other)| **at == seq || (unsettled(other) && other.up))
                    .map(|(at, _)| *at)
                    .collect()
            }
            (Clash::Rename, _) => [seq].into(),
            // Whatever this one takes or leaves, those that wanted it get another chance.
            (Clash::FirstInFile, _) => self.rivals(face, seq, &items),
        };
        // A name that goes from one entry to another may leave the whole as it was.
        let stay = renewed.len() == 1 && self.entries.values().all(|entry| entry.missed.is_empty());
        let watched = if stay { renewed.clone() } else { self.entries.keys().copied().collect() };
        let before = self.listing(face, &watched);
        let entry = self.entries.get_mut(&seq).expect("found above");
        entry.up = up;
        if up {
            entry.items = items;
        }
        let kept = !up && face.clash() == Clash::Rename;
        for seq in renewed.iter().filter(|_| !kept) {
            self.forget_names(*seq);
        }
        for seq in renewed.iter().filter(|_| !kept) {
            self.expose(face, *seq);
        }
        self.hand_on_names(face);
        before.differing(&self.listing(face, &watched)).collect()
    }

    /// Names those anew that miss a name which nobody has any more. Names once listed stay.
    fn hand_on_names(&mut self, face: &dyn Exposure) {
        let free = |(kind, name): &(Kind, Arc<str>)| !self.names[*kind as usize].contains_key(name);
        for seq in self.places_of(|entry| entry.missed.iter().any(free)) {
            self.forget_names(seq);
            self.expose(face, seq);
        }
    }

    /// Makes the view anew after the file has changed: with these upstreams in this order, and these groups at most.
    /// One that stands in for another of the same group and server takes over its place and, until it is up or failed,
    /// what it offered. Names once listed stay, unless `rename`.
    pub fn renew(&mut self, face: &dyn Exposure, wanted: &[Arc<Upstream>], groups: &[&str], rename: bool) {
        self.open.retain(|open| groups.contains(&&**open));
        self.openings.retain(|_, opening| groups.contains(&&**opening));
        let mut before: Vec<Entry> = std::mem::take(&mut self.entries).into_values().collect();
        self.names = Default::default();
        self.origins = HashMap::new();
        self.next = wanted.len() as u64;
        for (seq, upstream) in (0..).zip(wanted) {
            let same = |entry: &Entry| {
                entry.upstream.group == upstream.group && entry.upstream.server == upstream.server
            };
            let mut entry = match before.iter().position(same) {
                Some(at) => before.swap_remove(at),
                None => Entry { settled: self.is_open(&upstream.group), ..Entry::new(upstream) },
            };
            entry.upstream = upstream.clone();
            if upstream.link().is_some() {
                (entry.up, entry.items) = (true, upstream.items());
            }
            if face.clash() == Clash::Rename && entry.settled && !rename {
                self.reserve(seq, &entry);
            }
            self.entries.insert(seq, entry);
            self.origins.entry(upstream.group.clone()).or_default().insert(upstream.server.clone(), seq);
        }
        if rename {
            self.entries.values_mut().for_each(|entry| entry.exposed = Arc::default());
        }
        for seq in 0..self.next {
            self.expose(face, seq);
        }
        self.release_unused();
        self.hand_on_names(face);
    }

    /// Keeps the names that an entry has had from being given to others.
    fn reserve(&mut self, seq: u64, entry: &Entry) {
        for kind in Kind::ALL {
            for (index, item) in entry.exposed.of(kind).items().iter().enumerate() {
                let slot = Slot { entry: seq, item: index, alias: false };
                self.names[kind as usize].insert(item.name.clone(), slot);
            }
        }
    }

    /// Gives back names that were kept for things that are no more.
    fn release_unused(&mut self) {
        for kind in Kind::ALL {
            let entries = &self.entries;
            self.names[kind as usize].retain(|name, slot| {
                let item = entries[&slot.entry].exposed.of(kind).items().get(slot.item);
                item.is_some_and(|item| item.name == *name || item.full.as_ref() == Some(name))
            });
        }
    }

    /// Switches tools, and resources with templates, by full name. Returns the kinds of which something changed.
    pub fn switch(&mut self, on: &[Vec<Arc<str>>; 2], off: &[Vec<Arc<str>>; 2]) -> Vec<Kind> {
        let before = Kind::ALL.map(|kind| self.states(kind));
        for (classes, active) in [(on, true), (off, false)] {
            for (switched, names) in self.switched.iter_mut().zip(classes) {
                switched.extend(names.iter().map(|name| (name.clone(), active)));
            }
        }
        Kind::ALL.into_iter().filter(|kind| before[*kind as usize] != self.states(*kind)).collect()
    }

    fn states(&self, kind: Kind) -> Vec<bool> {
        self.items(kind).map(|(_, item)| self.is_active(kind, item)).collect()
    }

    /// Where the name of a thing leads.
    pub fn find(&self, kind: Kind, name: &str) -> Option<Target> {
        let slot = self.names[kind as usize].get(name)?;
        let entry = &self.entries[&slot.entry];
        let active = self.is_active(kind, &entry.exposed.of(kind).items()[slot.item]);
        Some(entry.target(kind, slot.item, active))
    }

    /// Where the upstream's own name for a tool leads, listed or not.
    pub fn find_own(&self, group: &str, server: &str, tool: &str) -> Option<Target> {
        let entry = self.server(group, server).filter(|entry| entry.up || self.is_open(group))?;
        let item = entry.exposed.of(Kind::Tool).by_key(tool)?;
        Some(entry.target(Kind::Tool, item.at as usize, true))
    }

    /// Whether a thing is switched on.
    pub fn is_active(&self, kind: Kind, item: &ExposedItem) -> bool {
        match kind {
            Kind::Prompt => true,
            _ => {
                let switched = &self.switched[class(kind)];
                let by_hand = if switched.is_empty() { None } else { switched.get(item.full_name()) };
                by_hand.copied().unwrap_or(item.starts_active)
            }
        }
    }

    /// Every thing of a kind whose upstream stands in lists, active or not.
    pub fn items(&self, kind: Kind) -> impl Iterator<Item = (&Entry, &ExposedItem)> {
        let listed = self.entries.values().filter(|entry| entry.is_listed());
        listed.flat_map(move |entry| entry.exposed.of(kind).items().iter().map(move |item| (entry, item)))
    }

    /// Appends the definitions of a kind that stand in lists, separated by commas; `first` tells whether nothing
    /// stands before them. With `from_start`, those that are active from the start, whatever was switched since.
    pub fn write_list(
        &self,
        face: &dyn Exposure,
        kind: Kind,
        out: &mut Vec<u8>,
        mut first: bool,
        from_start: bool,
    ) {
        for entry in self.entries.values().filter(|entry| entry.is_listed()) {
            let start = out.len();
            self.write_entry(face, entry, kind, out, &mut first, from_start);
            // Only legacy clients see what was switched since the start.
            let is_newer = || entry.upstream.link().is_some_and(|link| link.version().is_modern());
            if kind == Kind::Tool && !from_start && is_newer() {
                level::tools(out, start);
            }
        }
    }

    fn write_entry(
        &self,
        face: &dyn Exposure,
        entry: &Entry,
        kind: Kind,
        out: &mut Vec<u8>,
        first: &mut bool,
        from_start: bool,
    ) {
        let mut write = |text: &str| {
            if !text.is_empty() {
                if !std::mem::take(first) {
                    out.push(b',');
                }
                out.extend_from_slice(text.as_bytes());
            }
        };
        let (shelf, rendered) = (entry.exposed.of(kind), entry.rendered(face, kind));
        if shelf.all_active() && (from_start || self.switched.iter().all(HashMap::is_empty)) {
            return write(rendered.text());
        }
        let active =
            |item: &ExposedItem| if from_start { item.starts_active } else { self.is_active(kind, item) };
        for item in shelf.items().iter().filter(|item| active(item)) {
            write(rendered.definition(item));
        }
    }

    fn listing(&self, face: &dyn Exposure, watched: &BTreeSet<u64>) -> Listing {
        let Listing { mut lists, mut told } = Listing::default();
        let entries = watched.iter().map(|seq| &self.entries[seq]).filter(|entry| entry.is_listed());
        for entry in entries {
            for kind in Kind::ALL {
                let list = &mut lists[kind as usize];
                self.write_entry(face, entry, kind, list, &mut list.is_empty(), false);
                let rendered = entry.rendered(face, kind);
                told.extend(entry.exposed.of(kind).items().iter().filter_map(|item| {
                    let text = face.tells(kind, rendered.definition(item))?;
                    Some((kind, entry.upstream.group.clone(), item.name.clone(), text))
                }));
            }
        }
        Listing { lists, told }
    }

    /// The entry, and those that hold or miss a name that it has now or is about to have.
    fn rivals(&self, face: &dyn Exposure, seq: u64, items: &Items) -> BTreeSet<u64> {
        let mut rivals: BTreeSet<u64> =
            self.places_of(|entry| !entry.missed.is_empty() && entry.up).into_iter().collect();
        let entry = &self.entries[&seq];
        for kind in Kind::ALL {
            for item in items.of(kind).iter() {
                let full = face.full_name(&entry.upstream, kind, &item.key);
                rivals.extend(self.names[kind as usize].get(&*full).map(|slot| slot.entry));
            }
        }
        rivals.insert(seq);
        rivals
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
        let entry = self.entries.get_mut(&seq).expect("the caller has it from there");
        let known = std::mem::take(&mut entry.missed);
        if !entry.up && face.clash() == Clash::FirstInFile {
            entry.exposed = Arc::default();
            return;
        }
        let (upstream, items, before) = (entry.upstream.clone(), entry.items.clone(), entry.exposed.clone());
        let kept: HashMap<(Kind, &str), Arc<str>> = match (face.clash(), entry.settled) {
            (Clash::Rename, true) => {
                let named = |kind| {
                    let items = before.of(kind).items().iter();
                    items.map(move |item| ((kind, &*item.own.key), item.name.clone()))
                };
                Kind::ALL.into_iter().flat_map(named).collect()
            }
            _ => HashMap::new(),
        };
        let mut exposed = Exposed::default();
        let mut missed = Vec::new();
        for kind in Kind::ALL {
            let mut seen = HashSet::with_capacity(items.of(kind).len());
            exposed.reserve(kind, items.of(kind).len());
            self.names[kind as usize].reserve(items.of(kind).len());
            for item in items.of(kind).iter().filter(|item| face.allows(&upstream, kind, &item.key)) {
                if !seen.insert(&*item.key) {
                    tracing::warn!("[{upstream}] offers {} twice; the first one counts", item.key);
                    continue;
                }
                let full = face.full_name(&upstream, kind, &item.key);
                let old = kept.get(&(kind, &*item.key)).cloned();
                let Some(name) = old.or_else(|| choose(&self.names, face, &upstream, kind, &full, &item.key))
                else {
                    let lost = (kind, full.into());
                    if !known.contains(&lost) {
                        tracing::warn!(
                            "[{upstream}] {} is taken by an earlier server; this one is left out",
                            lost.1
                        );
                    }
                    missed.push(lost);
                    continue;
                };
                let index = exposed.of(kind).items().len();
                let names = &mut self.names[kind as usize];
                let slot = Slot { entry: seq, item: index, alias: false };
                // Whose alias it was calls it its own again once this one is gone.
                if let Some(before) = names.insert(name.clone(), slot).filter(|before| before.entry != seq)
                    && let Some(before) = self.entries.get_mut(&before.entry)
                {
                    before.missed.push((kind, name.clone()));
                }
                let remembered = self.remembered[class(kind)].get(&*full).copied();
                let active = kind == Kind::Prompt
                    || remembered.unwrap_or_else(|| face.starts_active(kind, &full, &name));
                let full = (*full != *name).then(|| Arc::<str>::from(full));
                if let Some(full) = &full {
                    let holder = *names.entry(full.clone()).or_insert(Slot { alias: true, ..slot });
                    if (holder.entry, holder.item) != (seq, index) {
                        missed.push((kind, full.clone()));
                    }
                }
                exposed.push(kind, item, name, full, active);
            }
        }
        let entry = self.entries.get_mut(&seq).expect("as above");
        entry.exposed = Arc::new(exposed);
        entry.missed = missed;
    }
}

/// Which of the two classes of switches a kind belongs to.
fn class(kind: Kind) -> usize {
    usize::from(kind != Kind::Tool)
}

/// A name that clients take and nobody has.
fn choose(
    names: &[HashMap<Arc<str>, Slot>; 4],
    face: &dyn Exposure,
    upstream: &Upstream,
    kind: Kind,
    full: &str,
    key: &str,
) -> Option<Arc<str>> {
    let names = &names[kind as usize];
    let free = |name: &str| names.get(name).is_none_or(|slot| slot.alias);
    if !free(full)
        && let Some(second) = face.second_name(upstream, key)
    {
        return free(&second).then(|| second.into());
    }
    if kind != Kind::Tool {
        return free(full).then(|| full.into());
    }
    let limits = face.limits();
    let fits = limits.fits(full);
    if fits && free(full) {
        return Some(full.into());
    }
    if face.clash() == Clash::FirstInFile && names.contains_key(full) {
        return None;
    }
    // Where names are unique in full, its place in the file is not part of an origin: the file may change around it.
    let server = if face.clash() == Clash::FirstInFile { "" } else { &*upstream.server };
    let origin = [&*upstream.group, server, key];
    (0..u32::MAX).map(|attempt| limits.marked(full, &origin, attempt)).find(|name| free(name)).map(Arc::from)
}

fn kinds_in(exposed: &Exposed) -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| !exposed.of(*kind).items().is_empty()).collect()
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
