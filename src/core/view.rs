//! What one client sees of the catalog: upstreams in their order, what is switched on, and what its lists
//! hold.
//!
//! The engine changes a view as upstreams come, change and go, and as groups are opened and closed; faces
//! read it to decide what a request means. [`names`](super::names) makes the names in it, and
//! [`notices`](super::notices) compares its fingerprints to learn whose lists have changed.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::hash::Hasher;
use std::sync::Arc;

use super::adapt;
use super::names::{Claim, LeftOut, Names, Naming, Reason, assign, class, is_shortened};
use super::opening::Openings;
use super::recent::Recent;
use super::upstream::{Listing, Upstream};
use crate::apps::{exposed, placed};
use crate::catalog::{
    Definition, Exposed, ExposedItem, Items, Kind, NameLimits, Prints, Rendered, without_output_schema,
};
use crate::hash::HashMap;
use crate::json::quote;
use crate::known_clients::Behaviour;
use crate::protocol::era::ClientHello;
use crate::text::one_line;

/// How a face names and renders what it exposes.
pub trait Exposure {
    /// The full name, before it is made fit for clients.
    fn full_name(&self, upstream: &Upstream, kind: Kind, key: &str) -> String;
    /// Another name for a thing whose name is taken, if the face has one.
    fn second_name(&self, _upstream: &Upstream, _key: &str) -> Option<String> {
        None
    }
    /// A shorter name for a tool whose full name is too long, if the face has one.
    fn short_name(&self, _upstream: &Upstream, _key: &str) -> Option<String> {
        None
    }
    /// What writes the definitions of this kind as clients see them. What all of them share is prepared once.
    fn renderer<'a>(&'a self, upstream: &'a Upstream, kind: Kind) -> Renderer<'a>;
    /// Whether this thing exists for clients at all.
    fn allows(&self, upstream: &Upstream, kind: Kind, key: &str) -> bool {
        kind != Kind::Tool || upstream.spec().filter.allows(key)
    }
    /// Another spelling of a resource's full URI; clients may use either.
    fn other_spelling(&self, _upstream: &Upstream, _key: &str) -> Option<String> {
        None
    }
    /// Whether a thing that can be called by these names is active until it is switched by hand.
    /// `is_shortened` says whether some client knows the thing by a name.
    fn starts_active(&self, _names: &[&str], _is_shortened: &dyn Fn(&str) -> bool) -> bool {
        true
    }
    /// What happens to two tools that would share a name.
    fn clash(&self) -> Clash {
        Clash::Rename
    }
    /// How tool names must look for a client with this `clientInfo.name`.
    fn limits(&self, client: &str) -> NameLimits;
    /// Whether things of this kind stand in the lists of this client at all.
    fn lists(&self, client: Option<&ClientHello>, kind: Kind) -> bool;
    /// When what upstreams offer is listed.
    fn listing(&self) -> Listing {
        Listing::WhileUp
    }
    /// Whether the lists of modern clients follow the catalog; otherwise they never change.
    fn lists_to_modern(&self) -> bool {
        false
    }
    /// Whether every modern client is shown the same list of this kind. The names of tools, the URIs of
    /// resources and what apps need depend on the client.
    fn lists_alike(&self, kind: Kind) -> bool {
        kind == Kind::Prompt
    }
    /// The names that go into the URIs of an upstream's pages; empty where these URIs stay unchanged.
    fn page_place<'a>(&self, _upstream: &'a Upstream) -> Vec<&'a str> {
        Vec::new()
    }
    /// Whether pages keep their URIs nevertheless. Each URI then belongs to the first upstream that has it,
    /// for all clients alike.
    fn keeps_pages(&self) -> bool {
        false
    }
    /// What the face itself adds to such a client's list of tools, apart from what it [tells](Self::tells)
    /// about things. When this text changes, the list has changed.
    fn adds(&self, _client: Option<&ClientHello>, _modern: bool) -> String {
        String::new()
    }
    /// Whether the list of tools says how many tools the lock keeps from clients.
    fn tells_withheld(&self) -> bool {
        false
    }
    /// What the list of tools says about a thing with this definition, active or not. When this text changes,
    /// the list has changed.
    fn tells(&self, _kind: Kind, _definition: Definition<'_>) -> Option<String> {
        None
    }
}

/// Appends a definition under this name.
pub type Renderer<'a> = Box<dyn Fn(&str, Definition<'_>, &mut Vec<u8>) + 'a>;

/// What happens to two tools that would share a name, and to the names of an upstream that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// The later tool gets another name. A name once given stays, even while its upstream is down.
    Rename,
    /// The first in the file has the name while it is up; the other is left out.
    FirstInFile,
}

/// The part of the catalog that one client sees.
#[derive(Default)]
pub struct View {
    /// The upstreams in the order of listing.
    entries: BTreeMap<u64, Entry>,
    next: u64,
    /// The open groups in the order of opening.
    open: Vec<Arc<str>>,
    /// The groups that are being opened.
    pub(super) openings: Openings,
    /// What the client that the names are made for calls itself; empty where it may be any client.
    client: String,
    /// Whether URIs use the spelling that every client accepts.
    strict_uris: bool,
    names: Names,
    /// The places in `entries`, by group and server.
    origins: HashMap<Arc<str>, HashMap<Arc<str>, u64>>,
    /// What was switched by hand: tools, and resources with templates, by full name.
    pub switched: [HashMap<Arc<str>, bool>; 2],
    /// What was switched by hand before the view began, and so counts as switched from the start.
    pub remembered: [HashMap<Arc<str>, bool>; 2],
    /// The pages that results named, and the group and server of each result.
    named_pages: Recent<Vec<Origin>>,
    /// What a face made of the whole view, until the view changes.
    prepared: RefCell<Option<(Look, Arc<String>)>>,
}

/// A group and a server in it. The pair stays valid when the file puts another upstream there.
pub(super) type Origin = (Arc<str>, Arc<str>);

/// How a client looks at lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The client sees what is active from the start, whatever was switched since.
    pub from_start: bool,
    /// The client renders apps, and needs what they need, active or not.
    pub as_host: bool,
    /// How many bytes of a result the client is known to take, if anything is known.
    pub takes: Option<usize>,
}

impl Look {
    /// How the client with this `clientInfo.name` looks; `as_host`: it renders apps.
    pub fn of(client: &str, modern: bool, as_host: bool) -> Self {
        Self { from_start: modern, as_host, takes: Behaviour::of(client).longest_result(modern) }
    }
}

/// One upstream in a view.
pub struct Entry {
    pub upstream: Arc<Upstream>,
    /// What it exposed when it was last up.
    pub exposed: Arc<Exposed>,
    /// What `exposed` was made of.
    items: Arc<Items>,
    /// Whether the upstream is on offer: it is connected, or whoever uses it starts it.
    pub up: bool,
    /// Whether the upstream stands in lists yet: it does not before its whole group has settled.
    pub settled: bool,
}

impl Entry {
    fn new(upstream: &Arc<Upstream>) -> Self {
        Self {
            upstream: upstream.clone(),
            exposed: Arc::default(),
            items: Arc::default(),
            up: false,
            settled: false,
        }
    }

    /// The definitions of a kind as clients see them.
    pub fn rendered(&self, face: &dyn Exposure, kind: Kind) -> &Rendered {
        let things = self.exposed.of(kind);
        things.rendered.get_or_init(|| {
            let render = face.renderer(&self.upstream, kind);
            let write = |item: &ExposedItem, definition: Definition<'_>, out: &mut Vec<u8>| {
                render(&item.name, definition, out);
            };
            Box::new(Rendered::new(things, kind, write))
        })
    }

    /// The definitions as a client that renders apps sees them, if `to_host`: with the URIs of pages that the
    /// client knows.
    pub fn rendered_for(&self, face: &dyn Exposure, kind: Kind, to_host: bool) -> &Rendered {
        let (plain, pages) = (self.rendered(face, kind), self.exposed.pages());
        if !(to_host || face.keeps_pages()) || pages.is_empty() || kind == Kind::Prompt {
            return plain;
        }
        let things = self.exposed.of(kind);
        things.for_hosts.get_or_init(|| {
            let rendered = plain.again(things, |item, definition, out| match kind {
                Kind::Tool => {
                    let exposed = exposed(definition.raw().into(), &mut |uri| pages[uri].clone());
                    out.extend_from_slice(exposed.as_bytes());
                }
                _ => match pages.get(&item.own.key) {
                    Some(page) => definition.write_with(out, &[(kind.key(), Some(&quote(page)))]),
                    None => definition.write(out),
                },
            });
            Box::new(rendered)
        })
    }

    /// The definition of one thing as a client that looks at lists like this sees it.
    pub fn shown(&self, face: &dyn Exposure, kind: Kind, item: &ExposedItem, look: Look) -> Cow<'_, str> {
        let definition = self.rendered_for(face, kind, look.as_host).definition(item);
        match kind {
            Kind::Tool if self.offloads_over(look.takes).is_some() => without_output_schema(definition),
            // Only modern clients look at the lists of the start.
            Kind::Tool if !look.from_start => adapt::tool(definition),
            _ => definition.into(),
        }
    }

    /// The definitions as a client with this look sees them in a list.
    fn rendered_to(&self, face: &dyn Exposure, kind: Kind, look: Look) -> &Rendered {
        let rendered = self.rendered_for(face, kind, look.as_host);
        let (form, shown): (_, fn(&str) -> Cow<'_, str>) = match kind {
            Kind::Tool if self.offloads_over(look.takes).is_some() => (0, without_output_schema),
            // Only legacy clients see what was switched since the start.
            Kind::Tool if !look.from_start && self.is_newer() => (1, adapt::tool),
            _ => return rendered,
        };
        let things = self.exposed.of(kind);
        let adapted = &things.adapted[form][usize::from(look.as_host)];
        let adapt = || adapt::tools(things, rendered, shown).map(Box::new);
        adapted.get_or_init(adapt).as_deref().unwrap_or(rendered)
    }

    /// What the list of tools says about a thing.
    pub fn told(&self, face: &dyn Exposure, kind: Kind, item: &ExposedItem) -> &str {
        self.prints(face, kind).told(item)
    }

    fn prints(&self, face: &dyn Exposure, kind: Kind) -> &Prints {
        let tells = |definition: Definition<'_>| face.tells(kind, definition);
        self.exposed.of(kind).prints.get_or_init(|| Prints::new(&self.exposed, kind, tells).into())
    }

    /// Whether the upstream speaks a newer version than legacy clients do, who see its tools in another form.
    fn is_newer(&self) -> bool {
        self.upstream.is_modern()
    }

    /// The bytes over which we keep results of the upstream's tools from a client that is known to take so many; `None`
    /// if the client gets all of them.
    pub fn offloads_over(&self, takes: Option<usize>) -> Option<usize> {
        self.upstream.spec().offload_over.bytes(takes)
    }

    /// Whether the upstream's things stand in lists.
    pub fn is_listed(&self) -> bool {
        self.up && self.settled
    }

    /// The upstream's names for the things of a kind that the lock keeps from clients.
    pub fn withheld(&self, face: &dyn Exposure, kind: Kind) -> impl Iterator<Item = &Arc<str>> {
        self.items.withheld(kind).iter().filter(move |key| face.allows(&self.upstream, kind, key))
    }

    /// Why the thing with this name at the upstream cannot be used, if the lock keeps it from clients.
    pub fn why_withheld(&self, face: &dyn Exposure, kind: Kind, key: &str) -> Option<String> {
        self.withheld(face, kind).find(|withheld| ***withheld == *key)?;
        let reason = self.items.why_withheld(kind, key)?;
        Some(format!("{}/{} cannot be used: {reason}", self.upstream, one_line(key)))
    }
}

/// Where a name leads.
#[derive(Clone)]
pub struct Target {
    /// The upstream that the name leads to.
    pub upstream: Arc<Upstream>,
    /// Whether the thing is switched on.
    pub active: bool,
    exposed: Arc<Exposed>,
    kind: Kind,
    item: usize,
}

impl Entry {
    /// What the entry wants named. Names that clients have been shown stay, unless an upstream that is up has
    /// them.
    fn claim(&self, face: &dyn Exposure, place: u64, other_file: bool) -> Claim<'_> {
        let renames = face.clash() == Clash::Rename;
        Claim {
            place,
            upstream: &self.upstream,
            items: (self.up || renames).then_some(&self.items),
            known: (renames && self.settled).then_some(&self.exposed),
            before: match other_file {
                true => [None, None],
                false => [Some(self.exposed.clone()), self.upstream.shown_to_others()],
            },
        }
    }

    fn show(&mut self, exposed: Arc<Exposed>) {
        self.upstream.usage.show(&exposed);
        self.exposed = exposed;
    }

    fn target(&self, kind: Kind, item: usize, active: bool) -> Target {
        Target { upstream: self.upstream.clone(), active, exposed: self.exposed.clone(), kind, item }
    }
}

impl Target {
    /// The upstream's own name for the thing, as JSON.
    pub fn raw_key(&self) -> &str {
        self.item().own.raw_key()
    }

    /// The upstream's own name for the thing, as text.
    pub fn own_name(&self) -> &str {
        &self.item().own.key
    }

    /// The full name.
    pub fn full_name(&self) -> &Arc<str> {
        self.item().full_name()
    }

    /// The name that stands in lists.
    pub fn name(&self) -> &Arc<str> {
        &self.item().name
    }

    /// The definition as the upstream wrote it.
    pub fn definition(&self) -> &str {
        self.item().own.raw()
    }

    /// Whether parameters of the thing, a tool, may be mirrored into headers.
    pub fn mirrors(&self) -> bool {
        self.item().own.mirrors()
    }

    /// Whether the thing is a tool with an app.
    pub fn has_app(&self) -> bool {
        self.item().own.has_app()
    }

    /// Whether the thing is a tool for apps, and not for the model.
    pub fn is_app_only(&self) -> bool {
        self.item().own.is_app_only()
    }

    fn item(&self) -> &ExposedItem {
        &self.exposed.of(self.kind).items()[self.item]
    }
}

impl View {
    /// What `make` makes of the whole view for those who look like this; it is kept until the view changes, for those
    /// who looked last.
    pub fn prepared(&self, look: Look, make: impl FnOnce() -> String) -> Arc<String> {
        if let Some((for_whom, text)) = &*self.prepared.borrow()
            && *for_whom == look
        {
            return text.clone();
        }
        let text = Arc::new(make());
        *self.prepared.borrow_mut() = Some((look, text.clone()));
        text
    }

    /// Notes that the view is about to change.
    pub(super) fn changes(&mut self) -> &mut Self {
        self.prepared.take();
        self
    }

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

    /// Adds the upstreams that are not in the view yet, at the end and unsettled.
    pub fn add(&mut self, face: &dyn Exposure, upstreams: &[Arc<Upstream>]) {
        for upstream in upstreams {
            if self.server(&upstream.group, &upstream.server).is_some() {
                continue;
            }
            self.entries.insert(self.next, Entry::new(upstream));
            let group = self.origins.entry(upstream.group.clone()).or_default();
            group.insert(upstream.server.clone(), self.next);
            self.next += 1;
            if upstream.is_on_offer(face.listing()) {
                self.refresh(face, upstream);
            }
        }
    }

    /// What the client that the names are made for calls itself; empty where it may be any client.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// The open groups, in the order of opening.
    pub fn opened(&self) -> &[Arc<str>] {
        &self.open
    }

    /// Begins to open a group: adds its upstreams. `None`: nobody has this view any more.
    pub fn begin_opening(
        &mut self,
        face: &dyn Exposure,
        group: &str,
        upstreams: &[Arc<Upstream>],
    ) -> Option<u64> {
        let number = self.openings.begin(group)?;
        self.add(face, upstreams);
        Some(number)
    }

    /// Opens nothing from now on. Returns the upstreams in the view.
    pub fn shut(&mut self) -> Vec<Arc<Upstream>> {
        self.openings.shut();
        self.entries.values().map(|entry| entry.upstream.clone()).collect()
    }

    /// The groups in the view: first the open ones in the order of opening, then those that are being opened.
    pub fn groups(&self) -> Vec<Arc<str>> {
        let mut groups = self.open.clone();
        let begun = self.entries.values().map(|entry| &entry.upstream.group);
        for group in begun.chain(self.openings.groups()) {
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

    /// Opens a group: its upstreams stand in lists from now on, after those of groups opened earlier.
    pub fn open(&mut self, group: &str) {
        if !self.is_open(group) {
            self.move_to_end(group);
        }
        self.open_in_place(group);
    }

    /// Opens a group whose upstreams keep the order of the file.
    pub fn open_in_place(&mut self, group: &str) {
        if !self.is_open(group) {
            self.open.push(group.into());
        }
        let members = self.entries.values_mut().filter(|entry| &*entry.upstream.group == group);
        members.for_each(|entry| entry.settled = true);
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
            self.names.move_to(seq, to, &entry.exposed);
            let group = self.origins.entry(entry.upstream.group.clone()).or_default();
            group.insert(entry.upstream.server.clone(), to);
            self.entries.insert(to, entry);
        }
    }

    fn places_of(&self, which: impl Fn(&Entry) -> bool) -> Vec<u64> {
        self.entries.iter().filter(|(_, entry)| which(entry)).map(|(seq, _)| *seq).collect()
    }

    /// Removes a group.
    pub fn remove(&mut self, face: &dyn Exposure, group: &str) {
        self.open.retain(|open| &**open != group);
        self.openings.retain(|opening| opening != group);
        self.origins.remove(group);
        let mut others_stay = true;
        for seq in self.places_of(|entry| *entry.upstream.group == *group) {
            let entry = self.entries.remove(&seq).expect("found above");
            others_stay &= self.names.remove(seq, &entry.exposed);
        }
        if !others_stay {
            self.name_all(face, false);
        }
    }

    /// Takes over what the upstream offers now, or notes that it is no longer on offer. `false`: nothing is
    /// new.
    pub fn refresh(&mut self, face: &dyn Exposure, upstream: &Arc<Upstream>) -> bool {
        self.take_over(face, upstream, upstream.is_on_offer(face.listing()), upstream.items())
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
    ) -> bool {
        let seq = self.origins.get(&upstream.group).and_then(|group| group.get(&upstream.server).copied());
        // An upstream that was replaced when the file changed must not alter the entry any more.
        let own = |entry: &&mut Entry| Arc::ptr_eq(&entry.upstream, upstream);
        let Some((seq, entry)) = seq.and_then(|seq| Some((seq, self.entries.get_mut(&seq).filter(own)?)))
        else {
            return false;
        };
        if entry.up == up && Arc::ptr_eq(&entry.items, &items) {
            return false;
        }
        entry.up = up;
        if up {
            entry.items = items;
        }
        // An upstream that is down keeps its names, unless the face gives names to whoever is up.
        if up || face.clash() == Clash::FirstInFile {
            self.name(face, seq);
        }
        true
    }

    /// What the names of tools in this view must look like.
    pub fn limits(&self, face: &dyn Exposure) -> NameLimits {
        face.limits(&self.client)
    }

    /// Names everything for the client with this name; `strict_uris` says that it rejects odd URIs. `true`:
    /// names were made anew.
    pub fn name_for(&mut self, face: &dyn Exposure, client: &str, strict_uris: bool) -> bool {
        let before = (self.limits(face), self.strict_uris);
        client.clone_into(&mut self.client);
        self.strict_uris = strict_uris;
        let is_other = (self.limits(face), strict_uris) != before;
        if is_other {
            self.entries.values_mut().for_each(|entry| entry.exposed = Arc::default());
            self.name_all(face, false);
        }
        is_other
    }

    /// Whether the names suit this client as well as those that they were made for.
    pub fn suits(&self, face: &dyn Exposure, client: &str, strict_uris: bool) -> bool {
        !self.is_stricter(face, client) && (self.strict_uris || !strict_uris)
    }

    fn is_stricter(&self, face: &dyn Exposure, client: &str) -> bool {
        face.limits(client).length < self.limits(face).length
    }

    /// Lets another client share the view: names are made for the strictest of them. `true`: names were made
    /// anew.
    pub fn admit(&mut self, face: &dyn Exposure, client: &str, strict_uris: bool) -> bool {
        let client = if self.is_stricter(face, client) { client.to_owned() } else { self.client.clone() };
        self.name_for(face, &client, strict_uris || self.strict_uris)
    }

    /// Names what one entry offers now.
    fn name(&mut self, face: &dyn Exposure, seq: u64) {
        let known = self.names.left_out().clone();
        let others_stay = self.names.remove(seq, &self.entries[&seq].exposed);
        let entry = self.entries.get_mut(&seq).expect("the caller has it from there");
        let naming = Naming {
            face,
            limits: face.limits(&self.client),
            strict_uris: self.strict_uris,
            remembered: &self.remembered,
        };
        let claim = entry.claim(face, seq, false);
        let named = if others_stay { self.names.add(&naming, &claim) } else { None };
        match named {
            Some(exposed) => entry.show(exposed),
            None => self.name_all(face, false),
        }
        self.warn_of_left_out(&known);
    }

    /// Names everything anew. With another file, nothing made from the old one is reused.
    fn name_all(&mut self, face: &dyn Exposure, other_file: bool) {
        let naming = Naming {
            face,
            limits: face.limits(&self.client),
            strict_uris: self.strict_uris,
            remembered: &self.remembered,
        };
        let entries = self.entries.iter();
        let claims: Vec<_> = entries.map(|(seq, entry)| entry.claim(face, *seq, other_file)).collect();
        let (names, exposed) = assign(&naming, &claims);
        self.names = names;
        for (entry, exposed) in self.entries.values_mut().zip(exposed) {
            entry.show(exposed);
        }
    }

    fn warn_of_left_out(&self, known: &HashSet<LeftOut>) {
        for LeftOut { claim, name, reason, .. } in self.names.left_out().difference(known) {
            let upstream = &self.entries[claim].upstream;
            match reason {
                Reason::Twice => tracing::warn!("[{upstream}] offers {name} twice; the first one counts"),
                Reason::Taken => {
                    tracing::warn!("[{upstream}] {name} is taken by an earlier server; this one is left out");
                }
            }
        }
    }

    /// Rebuilds the view after the file has changed: with these upstreams in this order, and with no other
    /// groups than these. An upstream that replaces another of the same group and server takes over its place
    /// and, until it is up or has failed, what the old one offered. Names once listed stay, unless `rename`.
    pub fn renew(&mut self, face: &dyn Exposure, wanted: &[Arc<Upstream>], groups: &[&str], rename: bool) {
        self.open.retain(|open| groups.contains(&&**open));
        self.openings.retain(|opening| groups.contains(&opening));
        let mut before: Vec<Entry> = std::mem::take(&mut self.entries).into_values().collect();
        self.origins = HashMap::default();
        self.next = wanted.len() as u64;
        for (seq, upstream) in (0..).zip(wanted) {
            let same = |entry: &Entry| {
                entry.upstream.group == upstream.group && entry.upstream.server == upstream.server
            };
            let mut entry = match before.iter().position(same) {
                Some(at) => before.swap_remove(at),
                None => Entry { settled: self.is_open(&upstream.group), ..Entry::new(upstream) },
            };
            let before = std::mem::replace(&mut entry.upstream, upstream.clone());
            let guard = upstream.spec().guard.clone();
            if upstream.is_on_offer(face.listing()) {
                (entry.up, entry.items) = (true, upstream.items());
            } else if entry.items.guard() != guard.as_ref() {
                // The old lock judged the items that stand in for the upstream until it is up.
                entry.items = Arc::new(before.sent().shown(guard.as_ref()).0);
            }
            if rename {
                entry.exposed = Arc::default();
            }
            self.entries.insert(seq, entry);
            self.origins.entry(upstream.group.clone()).or_default().insert(upstream.server.clone(), seq);
        }
        self.name_all(face, true);
        self.warn_of_left_out(&HashSet::new());
    }

    /// Switches tools, and resources with their templates, by full name.
    pub fn switch(&mut self, on: &[Vec<Arc<str>>; 2], off: &[Vec<Arc<str>>; 2]) {
        for (classes, active) in [(on, true), (off, false)] {
            for (switched, names) in self.switched.iter_mut().zip(classes) {
                switched.extend(names.iter().map(|name| (name.clone(), active)));
            }
        }
    }

    /// Where the name of a thing leads.
    pub fn find(&self, kind: Kind, name: &str) -> Option<Target> {
        let place = self.names.find(kind, name)?;
        let entry = &self.entries[&place.claim];
        let active = self.is_active(kind, &entry.exposed.of(kind).items()[place.item]);
        Some(entry.target(kind, place.item, active))
    }

    /// Where the name of a tool leads. The name may be the tool's name here, its full name, or its name for
    /// some other client, unless several tools fit.
    pub fn find_tool(&self, face: &dyn Exposure, name: &str) -> Option<Target> {
        self.find(Kind::Tool, name).or_else(|| self.find_shortened(face, name))
    }

    fn find_shortened(&self, face: &dyn Exposure, name: &str) -> Option<Target> {
        let all = self
            .entries
            .values()
            .flat_map(|entry| entry.exposed.of(Kind::Tool).items().iter().map(move |item| (entry, item)));
        let mut meant = all.filter(|(entry, item)| {
            is_shortened(face, &entry.upstream, item.full_name(), &item.own.key, name)
        });
        let (entry, item) = meant.next()?;
        let target = entry.target(Kind::Tool, item.at as usize, self.is_active(Kind::Tool, item));
        meant.next().is_none().then_some(target)
    }

    /// Where the upstream's own name for a tool leads, whether it is listed or not.
    pub fn find_own(&self, group: &str, server: &str, tool: &str) -> Option<Target> {
        let entry = self.server(group, server).filter(|entry| entry.up || self.is_open(group))?;
        let item = entry.exposed.of(Kind::Tool).by_key(tool)?;
        Some(entry.target(Kind::Tool, item.at as usize, true))
    }

    /// Why the thing that is meant by this name, in any group or one, cannot be used, if the lock keeps it from
    /// clients. The name may be any that the thing would have, or that of its upstream.
    pub fn why_withheld(
        &self,
        face: &dyn Exposure,
        group: Option<&str>,
        kind: Kind,
        name: &str,
    ) -> Option<String> {
        let meant = |entry: &&Entry| group.is_none_or(|group| *entry.upstream.group == *group);
        self.entries.values().filter(meant).find_map(|entry| {
            let upstream = &entry.upstream;
            let key = entry.withheld(face, kind).find(|key| {
                let full = face.full_name(upstream, kind, key);
                full == name
                    || ***key == *name
                    || face.second_name(upstream, key).is_some_and(|second| second == name)
                    || is_shortened(face, upstream, &full, key, name)
            })?;
            entry.why_withheld(face, kind, key)
        })
    }

    /// The number of tools in lists, or in one group, that the lock keeps from clients.
    pub fn tools_withheld(&self, face: &dyn Exposure, group: Option<&str>) -> usize {
        let meant = |entry: &&Entry| match group {
            Some(group) => entry.up && &*entry.upstream.group == group,
            None => entry.is_listed(),
        };
        self.entries.values().filter(meant).map(|entry| entry.withheld(face, Kind::Tool).count()).sum()
    }

    /// Every tool that its upstream calls by this name, whether it is listed or not.
    pub fn find_called(&self, tool: &str) -> Vec<Target> {
        let there = self.entries.values().filter(|entry| entry.up || self.is_open(&entry.upstream.group));
        let found = there.filter_map(|entry| Some((entry, entry.exposed.of(Kind::Tool).by_key(tool)?)));
        found
            .map(|(entry, item)| entry.target(Kind::Tool, item.at as usize, self.is_active(Kind::Tool, item)))
            .collect()
    }

    /// The URI by which hosts know a page that a result of this upstream names. From now on the upstream's
    /// app can ask for the page.
    pub fn name_page(&mut self, face: &dyn Exposure, upstream: &Upstream, uri: &str) -> Arc<str> {
        let known = self.server(&upstream.group, &upstream.server);
        if let Some(page) = known.and_then(|entry| entry.exposed.pages().get(uri)) {
            return page.clone();
        }
        let owners = self.named_pages.entry(uri);
        let origin = (upstream.group.clone(), upstream.server.clone());
        if !owners.contains(&origin) {
            owners.push(origin.clone());
        }
        let is_first = owners.first() == Some(&origin);
        match face.keeps_pages() && is_first && !self.names.is_kept(uri) {
            true => uri.into(),
            false => placed(uri, &face.page_place(upstream)).into(),
        }
    }

    /// Whether a result of this upstream has named the page.
    pub fn has_named(&self, upstream: &Upstream, uri: &str) -> bool {
        let owners = self.named_pages.get(uri);
        owners.is_some_and(|owners| {
            owners.iter().any(|(group, server)| *group == upstream.group && *server == upstream.server)
        })
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

    /// Appends the listed definitions of a kind, separated by commas; `first` says whether nothing stands
    /// before them.
    pub fn write_list(
        &self,
        face: &dyn Exposure,
        kind: Kind,
        look: Look,
        mut first: bool,
        out: &mut Vec<u8>,
    ) {
        for entry in self.entries.values().filter(|entry| entry.is_listed()) {
            self.write_entry(face, entry, kind, look, &mut first, out);
        }
    }

    fn write_entry(
        &self,
        face: &dyn Exposure,
        entry: &Entry,
        kind: Kind,
        look: Look,
        first: &mut bool,
        out: &mut Vec<u8>,
    ) {
        let mut write = |text: &str| {
            if !text.is_empty() {
                if !std::mem::take(first) {
                    out.push(b',');
                }
                out.extend_from_slice(text.as_bytes());
            }
        };
        let (things, rendered) = (entry.exposed.of(kind), entry.rendered_to(face, kind, look));
        if things.all_active() && (look.from_start || self.switched.iter().all(HashMap::is_empty)) {
            return write(rendered.text());
        }
        for item in things.items().iter().filter(|item| self.is_shown(kind, item, look)) {
            write(rendered.definition(item));
        }
    }

    /// Whether a thing stands in the list of a client with this look.
    fn is_shown(&self, kind: Kind, item: &ExposedItem, look: Look) -> bool {
        self.is_marked(kind, item, look) || (look.as_host && item.own.is_for_hosts())
    }

    /// Whether a thing counts as active for a client with this look.
    fn is_marked(&self, kind: Kind, item: &ExposedItem, look: Look) -> bool {
        if look.from_start { item.starts_active } else { self.is_active(kind, item) }
    }

    /// Adds to a fingerprint what [`Self::write_list`] writes, and what the list of tools says about things.
    /// Once each thing has been looked at, this takes one step per thing. An empty list adds nothing.
    pub(super) fn fingerprint(&self, face: &dyn Exposure, kind: Kind, look: Look, hasher: &mut impl Hasher) {
        for entry in self.entries.values().filter(|entry| entry.is_listed()) {
            let other_form = match kind {
                Kind::Tool if entry.offloads_over(look.takes).is_some() => 2,
                Kind::Tool => u64::from(!look.from_start && entry.is_newer()),
                _ => 0,
            };
            let items = entry.exposed.of(kind).items().iter().zip(&entry.prints(face, kind).items);
            let shown = items.filter(|(item, _)| self.is_shown(kind, item, look));
            shown.for_each(|(_, print)| hasher.write_u64(print ^ other_form));
        }
        if kind == Kind::Tool && face.tells_withheld() {
            let withheld = self.tools_withheld(face, None);
            if withheld > 0 {
                hasher.write_usize(withheld);
            }
        }
        // The list of tools may say something about things of every kind.
        for told in Kind::ALL.into_iter().filter(|_| kind == Kind::Tool) {
            for entry in self.entries.values().filter(|entry| entry.is_listed()) {
                let Some(print) = entry.prints(face, told).catalog else { continue };
                hasher.write(entry.upstream.group.as_bytes());
                hasher.write_u64(print);
                let items = entry.exposed.of(told).items();
                items.iter().for_each(|item| hasher.write_u8(self.is_marked(told, item, look).into()));
            }
        }
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
