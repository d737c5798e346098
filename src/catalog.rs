//! What upstreams offer (tools, resources, templates, prompts), and how it is shown to clients.
//!
//! `core` reads an upstream's lists into [`Sent`], once. Only [`Sent::shown`] makes [`Items`] of it, under the
//! lock; `core/names.rs` gives these names and makes an [`Exposed`], which views and faces render.

mod json_schema;
pub mod mend;
mod sent;

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use self::mend::{Conformance, MENDED, mend};
pub use self::sent::{Deviation, Differs, Sent};
use crate::apps::{Marks, is_page};
use crate::config::NameRule;
use crate::hash::{HashMap, Seeded};
use crate::json::{Duplicate, Node, Scanner, unbreak};
use crate::lock::Guard;
use crate::protocol::era::Era;
use crate::protocol::tool_headers::may_mark;
use crate::text::digest;

/// A kind of thing that a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `tools/list`
    Tool,
    /// `resources/list`
    Resource,
    /// `resources/templates/list`
    Template,
    /// `prompts/list`
    Prompt,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Resource, Self::Template, Self::Prompt];

    /// The method that lists this kind.
    pub fn list_method(self) -> &'static str {
        match self {
            Self::Tool => "tools/list",
            Self::Resource => "resources/list",
            Self::Template => "resources/templates/list",
            Self::Prompt => "prompts/list",
        }
    }

    /// The member of a list's result that holds the things.
    pub fn list_key(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Resource => "resources",
            Self::Template => "resourceTemplates",
            Self::Prompt => "prompts",
        }
    }

    /// The noun for one thing of this kind.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Template => "resource template",
            Self::Prompt => "prompt",
        }
    }

    /// The member by which a client addresses a thing.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt => "name",
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
        }
    }

    /// The capability that a server with such things declares.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Resource | Self::Template => "resources",
            Self::Prompt => "prompts",
        }
    }

    /// The notification that the list has changed.
    pub fn changed_method(self) -> &'static str {
        match self {
            Self::Tool => "notifications/tools/list_changed",
            Self::Resource | Self::Template => "notifications/resources/list_changed",
            Self::Prompt => "notifications/prompts/list_changed",
        }
    }
}

/// One thing as its upstream defined it, or its mended definition. It is a slice of the page that it came in,
/// which is kept once.
#[derive(Clone)]
pub struct Item {
    page: Arc<str>,
    raw: PageSpan,
    raw_key: PageSpan,
    /// The definition as the upstream sent it, before it was mended.
    sent: PageSpan,
    /// The raw values of `description` and `_meta`, empty where there is none.
    description: PageSpan,
    meta: PageSpan,
    /// Whether a member that faces change stands there twice, perhaps in another case.
    repeats: bool,
    /// Whether a tool's parameters may be mirrored into headers.
    mirrors: bool,
    /// The decoded name or URI.
    pub key: Arc<str>,
    /// What a tool's definition says about apps, if it says anything.
    marks: Option<Arc<Marks>>,
}

const DESCRIPTION: &str = "description";
const META: &str = "_meta";

/// A range of a page. Pages are messages, which are never longer than 32 bits can count.
type PageSpan = Range<u32>;

impl Item {
    /// A definition that can be shown, which is a part of `text`; `page` is a copy of `text`.
    fn new(kind: Kind, page: &Arc<str>, text: &str, definition: Node<'_>) -> Self {
        let place = |part: &str| {
            let start = part.as_ptr().addr() - text.as_ptr().addr();
            start as u32..(start + part.len()) as u32
        };
        let keys = [kind.key(), DESCRIPTION, META];
        let (members, repeats) = match definition.all_unique(keys) {
            Ok(members) => ([0, 1, 2].map(|place| members.get(place)), false),
            Err(Duplicate) => (keys.map(|key| definition.get(key)), true),
        };
        let [key, description, meta] = members;
        let [description, meta] =
            [description, meta].map(|member| member.map_or(0..0, |own| place(own.raw())));
        let key = key.expect("what has no key is withheld");
        let (raw, raw_key) = (place(definition.raw()), place(key.raw()));
        let key = key.as_str().expect("as is what has an odd one").into();
        let is_tool = kind == Kind::Tool;
        let marks = if is_tool { Marks::read(definition).map(Arc::new) } else { None };
        let mirrors = is_tool && may_mark(definition.raw());
        let (page, sent) = (page.clone(), raw.clone());
        Self { page, raw, raw_key, sent, description, meta, repeats, mirrors, key, marks }
    }

    /// What is shown of a definition, which is a part of `text`, and whether it had to be mended; `page` is a copy
    /// of `text`. `None`: it has no name or URI.
    fn shown(
        kind: Kind,
        era: Era,
        page: &Arc<str>,
        text: &str,
        definition: Node<'_>,
    ) -> Option<(Self, bool)> {
        match mend(kind, era, definition) {
            Conformance::Fits => Some((Self::new(kind, page, text, definition), false)),
            Conformance::Withheld => None,
            Conformance::Mended(mended, _) => Some((Self::changed(kind, &mended, definition.raw()), true)),
        }
    }

    /// A definition that is shown in another form than it was sent in.
    fn changed(kind: Kind, shown: &str, sent: &str) -> Self {
        let mut scanner = Scanner::default();
        let definition = scanner.scan_str(shown).expect("written as JSON").root();
        let page = [shown, sent].concat();
        let sent = shown.len() as u32..page.len() as u32;
        Self { sent, ..Self::new(kind, &page.into(), shown, definition) }
    }

    /// The names of the mended members.
    pub fn mended(&self) -> Vec<String> {
        let mut scanner = Scanner::default();
        let definition = scanner.scan_str(self.raw()).expect("definitions are valid JSON").root();
        let list = definition.get("_meta").and_then(|meta| meta.get(MENDED));
        list.and_then(|list| serde_json::from_str(list.raw()).ok()).unwrap_or_default()
    }

    /// The whole definition.
    pub fn raw(&self) -> &str {
        &self.page[self.raw.start as usize..self.raw.end as usize]
    }

    /// The whole definition as the upstream sent it, before it was mended.
    pub fn sent(&self) -> &str {
        &self.page[self.sent.start as usize..self.sent.end as usize]
    }

    /// The parts of the definition before and after its name or URI, which clients see replaced.
    fn around_key(&self) -> [&str; 2] {
        [self.raw.start..self.raw_key.start, self.raw_key.end..self.raw.end]
            .map(|part| &self.page[part.start as usize..part.end as usize])
    }

    /// Whether both are the same slice of the same page.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.page, &other.page) && self.raw == other.raw
    }

    /// The name or URI as the upstream spelled it in JSON.
    pub fn raw_key(&self) -> &str {
        &self.page[self.raw_key.start as usize..self.raw_key.end as usize]
    }

    /// Whether parameters of this tool may be mirrored into headers.
    pub fn mirrors(&self) -> bool {
        self.mirrors
    }

    /// Whether this is a tool with an app.
    pub fn has_app(&self) -> bool {
        self.marks.is_some()
    }

    /// Whether this is a tool for apps only, which models do not see.
    pub fn is_app_only(&self) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.is_app_only)
    }

    /// Whether hosts of apps need this item, active or not, while models do not.
    pub fn is_for_hosts(&self) -> bool {
        self.is_app_only() || is_page(&self.key)
    }

    /// The pages of apps that this item names, or the page that it is itself.
    pub fn pages(&self) -> impl Iterator<Item = &Arc<str>> {
        let named = self.marks.iter().flat_map(|marks| &marks.pages);
        named.chain(is_page(&self.key).then_some(&self.key))
    }
}

/// A definition that a face renders. The places of the members that faces change are known, so that it is not read again.
#[derive(Clone, Copy)]
pub struct Definition<'a> {
    kind: Kind,
    item: &'a Item,
}

impl<'a> Definition<'a> {
    /// The whole definition.
    pub fn raw(self) -> &'a str {
        self.item.raw()
    }

    /// The decoded name or URI.
    pub fn key(self) -> &'a str {
        &self.item.key
    }

    /// The raw name or URI.
    pub fn raw_key(self) -> &'a str {
        self.item.raw_key()
    }

    /// The raw description.
    pub fn description(self) -> Option<&'a str> {
        self.part(&self.item.description)
    }

    /// The raw `_meta`.
    pub fn meta(self) -> Option<&'a str> {
        self.part(&self.item.meta)
    }

    fn part(self, place: &PageSpan) -> Option<&'a str> {
        let part = &self.item.page[place.start as usize..place.end as usize];
        Some(part).filter(|part| !part.is_empty())
    }

    /// Appends the definition with another name or URI, a raw value that is the sum of its parts.
    pub fn write_named(self, out: &mut Vec<u8>, key: &[&str]) {
        self.write_with(out, &[(self.kind.key(), key)]);
    }

    /// Appends a tool's definition with another name, description and `_meta`. Each raw value is the sum of its parts.
    pub fn write_tool(self, out: &mut Vec<u8>, name: &[&str], description: &[&str], meta: &[&str]) {
        self.write_with(out, &[(self.kind.key(), name), (DESCRIPTION, description), (META, meta)]);
    }

    /// Appends the definition with members set, as [`Node::write_with`] does, but with its line breaks.
    fn write_with(self, out: &mut Vec<u8>, members: &[(&str, &[&str])]) {
        let Item { page, raw, raw_key, description, meta, repeats, .. } = self.item;
        if *repeats {
            let values: Vec<_> = members.iter().map(|(_, parts)| parts.concat()).collect();
            let changes: Vec<_> =
                members.iter().zip(&values).map(|((key, _), value)| (*key, Some(&**value))).collect();
            let mut scanner = Scanner::default();
            let definition = scanner.scan_str(self.item.raw()).expect("definitions are valid JSON").root();
            return definition.write_with(out, &changes);
        }
        let place = |key: &str| match key {
            DESCRIPTION => description,
            META => meta,
            _ => raw_key,
        };
        let mut replaced: [Option<(&PageSpan, &[&str])>; 3] = [None; 3];
        for (slot, (key, parts)) in replaced.iter_mut().zip(members) {
            *slot = Some((place(key), *parts)).filter(|(place, _)| !place.is_empty());
        }
        replaced.sort_unstable_by_key(|slot| slot.map(|(place, _)| place.start));
        let mut at = raw.start as usize;
        for (place, parts) in replaced.into_iter().flatten() {
            out.extend_from_slice(&page.as_bytes()[at..place.start as usize]);
            parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
            at = place.end as usize;
        }
        // Before the brace that ends it come the members that it did not have.
        out.extend_from_slice(&page.as_bytes()[at..raw.end as usize - 1]);
        for (key, parts) in members.iter().filter(|(key, _)| place(key).is_empty()) {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(b"\":");
            parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        }
        out.push(b'}');
    }
}

/// Items are equal if their definitions are.
impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        let as_sent = |item: &Self| item.sent == item.raw;
        self.raw() == other.raw() && (as_sent(self) && as_sent(other) || self.sent() == other.sent())
    }
}

impl Eq for Item {}

impl fmt::Debug for Item {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.raw())
    }
}

/// Everything of one upstream that clients may see, in its order.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub struct Items {
    lists: [Arc<Vec<Item>>; 4],
    nameless: [usize; 4],
    /// The names of the things that the lock keeps from clients.
    withheld: [Vec<Arc<str>>; 4],
    /// What decided which things clients may see.
    guard: Option<Guard>,
}

impl Items {
    /// The things of this kind.
    pub fn of(&self, kind: Kind) -> &Arc<Vec<Item>> {
        &self.lists[kind as usize]
    }

    /// Whether there is nothing that clients may see.
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(|list| list.is_empty())
    }

    /// The number of things that cannot be shown because they have no name or URI.
    pub fn nameless(&self, kind: Kind) -> usize {
        self.nameless[kind as usize]
    }

    /// The names of the things that the lock keeps from clients.
    pub fn withheld(&self, kind: Kind) -> &[Arc<str>] {
        &self.withheld[kind as usize]
    }

    /// What decided which things clients may see.
    pub fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// Why the lock keeps the thing of this name from clients, if it does.
    pub fn why_withheld(&self, kind: Kind, name: &str) -> Option<String> {
        let is_shown = self.of(kind).iter().any(|item| &*item.key == name);
        let is_withheld = !is_shown && self.withheld(kind).iter().any(|withheld| &**withheld == name);
        self.guard.as_ref().filter(|_| is_withheld).map(Guard::reason)
    }

    /// Minimal things with these names or URIs.
    #[cfg(test)]
    pub(crate) fn named(kind: Kind, names: &[&str]) -> Vec<Item> {
        let needed = match kind {
            Kind::Tool => ",\"inputSchema\":{\"type\":\"object\"}",
            Kind::Resource | Kind::Template => ",\"name\":\"\"",
            Kind::Prompt => "",
        };
        let item = |name: &&str| format!("{{\"{}\":{}{needed}}}", kind.key(), crate::json::quote(name));
        Self::defined(kind, &names.iter().map(item).collect::<Vec<_>>().join(","))
    }

    /// Things with these comma-separated definitions.
    #[cfg(test)]
    pub(crate) fn defined(kind: Kind, definitions: &str) -> Vec<Item> {
        let text = format!("{{\"{}\":[{definitions}]}}", kind.list_key());
        read_page(kind, Era::Legacy, Scanner::default().scan_str(&text).unwrap().root()).unwrap().items
    }

    /// A copy with the things of one kind replaced.
    pub fn with(&self, kind: Kind, items: Vec<Item>) -> Self {
        let mut next = self.clone();
        next.lists[kind as usize] = Arc::new(items);
        next.nameless[kind as usize] = 0;
        next
    }
}

/// One page of a list.
#[derive(Debug)]
pub struct Page {
    /// The things in order, each fit to be shown.
    pub items: Vec<Item>,
    /// The number of things that were left out because they have no name or URI.
    pub nameless: usize,
    /// The indexes in `items` of the mended ones.
    pub mended: Vec<usize>,
    /// The raw cursor of the next page.
    pub next: Option<String>,
}

/// Reads the result of a list request to a server of this era.
pub fn read_page(kind: Kind, era: Era, result: Node<'_>) -> Result<Page, String> {
    let list = result.get(kind.list_key()).filter(|list| list.is_array());
    let list = list
        .ok_or_else(|| format!("answered `{}` without a list of {}", kind.list_method(), kind.list_key()))?;
    let next = result.get("nextCursor").filter(|node| node.is_string()).map(|node| node.raw().to_owned());
    let text: Arc<str> = list.raw().into();
    let mut page = Page { items: Vec::new(), nameless: 0, mended: Vec::new(), next };
    Scanner::default().each_element(list, |definition| {
        match Item::shown(kind, era, &text, list.raw(), definition) {
            None => page.nameless += 1,
            Some((item, mended)) => {
                page.mended.extend(mended.then_some(page.items.len()));
                page.items.push(item);
            }
        }
    });
    page.items.shrink_to_fit();
    Ok(page)
}

/// What one upstream offers, as clients see it.
#[derive(Debug, Default)]
pub struct Exposed {
    kinds: [KindItems; 4],
    /// The pages of apps that the upstream names or lists: its own URI for each, and the one that hosts see.
    pages: HashMap<Arc<str>, Arc<str>>,
}

/// The things of one kind under their exposed names.
#[derive(Debug, Default)]
pub struct KindItems {
    items: Vec<ExposedItem>,
    /// Indexes into `items`, by the upstream's own name.
    by_key: HashMap<Arc<str>, usize>,
    /// The number of things that start inactive.
    inactive: usize,
    /// The definitions as clients see them, made at the first use.
    pub(super) rendered: OnceLock<Rendered>,
    /// The definitions as hosts of apps see them, made at the first use.
    pub(super) for_hosts: OnceLock<Rendered>,
    /// The same two without any output schema, and without those that legacy clients do not accept, if there is a
    /// difference.
    pub(super) adapted: [[OnceLock<Option<Rendered>>; 2]; 2],
    /// The fingerprints, made at the first use.
    pub(super) prints: OnceLock<Prints>,
}

/// Fingerprints of the things of one kind, which tell whether a list has changed.
#[derive(Debug)]
pub struct Prints {
    /// The fingerprint of each thing under its exposed name.
    pub items: Box<[u64]>,
    /// The fingerprint of what the list of tools says about these things; `None` if it says
    /// nothing.
    pub catalog: Option<u64>,
    /// What the list of tools says about the things, one text after the other.
    told: String,
    /// The end offset of each of these texts; empty if it says nothing.
    told_ends: Vec<u32>,
}

/// The definitions of one kind as clients see them.
#[derive(Debug, Default)]
pub struct Rendered {
    /// The definitions separated by commas, ready for a list.
    text: String,
    /// The end offset of each definition.
    ends: Vec<u32>,
}

/// One thing under its exposed name.
#[derive(Debug)]
pub struct ExposedItem {
    /// The exposed name, unique in a view among its kind.
    pub name: Arc<str>,
    /// The full name, if `name` had to be shortened or altered.
    pub full: Option<Arc<str>>,
    /// The upstream's definition.
    pub own: Item,
    /// Whether the thing is active until somebody switches it by hand.
    pub starts_active: bool,
    /// The index among the things of its kind.
    pub(super) at: u32,
}

impl Exposed {
    /// The things of this kind.
    pub fn of(&self, kind: Kind) -> &KindItems {
        &self.kinds[kind as usize]
    }

    /// The pages of apps that the upstream names or lists: its own URI for each, and the one that hosts see.
    pub fn pages(&self) -> &HashMap<Arc<str>, Arc<str>> {
        &self.pages
    }

    /// Adds a page under the URI that hosts see.
    pub fn add_page(&mut self, own: &Arc<str>, exposed: Arc<str>) {
        self.pages.insert(own.clone(), exposed);
    }

    /// Whether both have the same things under the same names.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&ExposedItem, &ExposedItem)| {
            one.name == other.name
                && one.full == other.full
                && one.starts_active == other.starts_active
                && one.own.is(&other.own)
        };
        let same_kind = |(one, other): (&KindItems, &KindItems)| {
            one.items.len() == other.items.len() && one.items.iter().zip(&other.items).all(is_same)
        };
        self.pages == other.pages && self.kinds.iter().zip(&other.kinds).all(same_kind)
    }

    /// Reserves memory for this many more things.
    pub fn reserve(&mut self, kind: Kind, count: usize) {
        let things = &mut self.kinds[kind as usize];
        things.items.reserve_exact(count);
        things.by_key.reserve(count);
    }

    /// Adds a thing.
    pub fn push(
        &mut self,
        kind: Kind,
        own: &Item,
        name: Arc<str>,
        full: Option<Arc<str>>,
        starts_active: bool,
    ) {
        let things = &mut self.kinds[kind as usize];
        things.inactive += usize::from(!starts_active);
        let at = things.items.len();
        things.by_key.insert(own.key.clone(), at);
        things.items.push(ExposedItem { name, full, own: own.clone(), starts_active, at: at as u32 });
    }
}

impl ExposedItem {
    /// The names that lead to the thing: the listed one, and the full one if that differs.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        [Some(&self.name), self.full.as_ref()].into_iter().flatten()
    }

    /// The full name.
    pub fn full_name(&self) -> &Arc<str> {
        self.full.as_ref().unwrap_or(&self.name)
    }
}

impl KindItems {
    /// Whether all things of the kind start active.
    pub fn all_active(&self) -> bool {
        self.inactive == 0
    }

    /// The things in the upstream's order.
    pub fn items(&self) -> &[ExposedItem] {
        &self.items
    }

    /// The thing with this name or URI at its upstream.
    pub fn by_key(&self, key: &str) -> Option<&ExposedItem> {
        self.by_key.get(key).map(|at| &self.items[*at])
    }
}

impl Prints {
    /// The fingerprints of the things of one kind. `tells` returns what the list of tools says about a thing with this
    /// definition, if it says anything; a face says something about every thing of a kind, or about none.
    pub(super) fn new(
        exposed: &Exposed,
        kind: Kind,
        tells: impl Fn(Definition<'_>) -> Option<String>,
    ) -> Self {
        let (things, pages) = (exposed.of(kind), &exposed.pages);
        let hasher = || Seeded::default().build_hasher();
        let (mut catalog, mut told, mut told_ends) = (hasher(), String::new(), Vec::new());
        let mut print = |item: &ExposedItem| {
            if let Some(text) = tells(Definition { kind, item: &item.own }) {
                catalog.write(item.name.as_bytes());
                catalog.write(text.as_bytes());
                told.push_str(&text);
                told_ends.push(told.len() as u32);
            }
            let mut hasher = hasher();
            hasher.write(item.name.as_bytes());
            item.own.around_key().into_iter().for_each(|part| hasher.write(part.as_bytes()));
            item.own.pages().for_each(|page| hasher.write(pages[page].as_bytes()));
            hasher.finish()
        };
        let items = things.items.iter().map(&mut print).collect();
        let catalog = (!told_ends.is_empty()).then(|| catalog.finish());
        told.shrink_to_fit();
        Self { items, catalog, told, told_ends }
    }

    /// What the list of tools says about one of these things.
    pub fn told(&self, item: &ExposedItem) -> &str {
        let at = item.at as usize;
        let Some(end) = self.told_ends.get(at) else { return "" };
        let start = at.checked_sub(1).map_or(0, |before| self.told_ends[before]);
        &self.told[start as usize..*end as usize]
    }
}

impl Rendered {
    /// Renders every thing of one kind, in order, from its definition.
    pub(super) fn new(
        things: &KindItems,
        kind: Kind,
        render: impl Fn(&ExposedItem, Definition<'_>, &mut Vec<u8>),
    ) -> Self {
        Self::written(things, |item, out| render(item, Definition { kind, item: &item.own }, out))
    }

    /// Renders every thing of one kind, in order, from an earlier rendering.
    pub(super) fn again(
        &self,
        things: &KindItems,
        mut render: impl FnMut(&ExposedItem, Node<'_>, &mut Vec<u8>),
    ) -> Self {
        let mut scanner = Scanner::default();
        Self::written(things, |item, out| {
            let definition = self.definition(item);
            render(item, scanner.scan_str(definition).expect("definitions are valid JSON").root(), out);
        })
    }

    fn written(things: &KindItems, mut write: impl FnMut(&ExposedItem, &mut Vec<u8>)) -> Self {
        let (mut text, mut ends) = (Vec::new(), Vec::with_capacity(things.items.len()));
        for item in &things.items {
            if item.at > 0 {
                text.push(b',');
            }
            write(item, &mut text);
            // As much as all of them take if they are like the first.
            if item.at == 0 {
                text.reserve_exact((text.len() + text.len() / 16) * (things.items.len() - 1));
            }
            ends.push(text.len() as u32);
        }
        unbreak(&mut text);
        text.shrink_to_fit();
        Self { text: String::from_utf8(text).expect("written from UTF-8 texts"), ends }
    }

    /// All definitions, separated by commas.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The definition of one of the things.
    pub fn definition(&self, item: &ExposedItem) -> &str {
        let at = item.at as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize + 1);
        &self.text[start..self.ends[at] as usize]
    }
}

/// A tool's definition without its output schema.
pub fn without_output_schema(definition: &str) -> Cow<'_, str> {
    if !definition.contains("outputSchema") {
        return definition.into();
    }
    let mut scanner = Scanner::default();
    let node = scanner.scan_str(definition).expect("definitions are valid JSON").root();
    node.with(&[("outputSchema", None)]).into()
}

/// The limits that a client sets on tool names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameLimits {
    /// The rule for characters.
    pub rule: NameRule,
    /// The longest name.
    pub length: usize,
    /// A tool of the gateway itself, whose name no other tool gets.
    pub reserved: Option<&'static str>,
}

/// The length of the mark: eight hash digits and the `_` before them.
const MARK: usize = 9;

impl NameLimits {
    /// Whether the name may stay as it is.
    pub fn fits(self, name: &str) -> bool {
        !self.is_too_long(name)
            && (self.rule == NameRule::Exact || name.bytes().map(char::from).all(accepted))
    }

    /// Whether the name has more characters than clients take.
    pub fn is_too_long(self, name: &str) -> bool {
        name.len() > self.length && name.chars().count() > self.length
    }

    /// The name, cut and marked with a hash of its origin.
    pub fn marked(self, name: &str, origin: &[&str], attempt: u32) -> String {
        let kept = name.chars().take(self.length.saturating_sub(MARK));
        let mut marked: String = match self.rule {
            NameRule::Safe => kept.map(|c| if accepted(c) { c } else { '_' }).collect(),
            NameRule::Exact => kept.collect(),
        };
        marked.push_str(&format!("_{:08x}", hash(origin, attempt)));
        marked
    }
}

/// Whether `name` is what some client knows the thing of this origin by, whose name in full does not fit there: as much
/// of it as that client takes, and the mark.
pub fn is_marked(name: &str, full: &str, origin: &[&str]) -> bool {
    let Some((kept, mark)) = name.len().checked_sub(MARK).and_then(|at| name.split_at_checked(at)) else {
        return false;
    };
    let mut whole = full.chars();
    let is_kept = |c: char| whole.next().is_some_and(|own| own == c || (c == '_' && !accepted(own)));
    kept.chars().all(is_kept) && mark == format!("_{:08x}", hash(origin, 0))
}

fn accepted(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// The number behind the mark's eight digits. It must never change, because names outlive a process in
/// prompts.
fn hash(origin: &[&str], attempt: u32) -> u32 {
    let parts = origin.iter().flat_map(|part| part.bytes().chain([0]));
    let attempt = (attempt > 0).then(|| attempt.to_le_bytes());
    let number = digest::number(parts.chain(attempt.into_iter().flatten()));
    (number ^ (number >> 32)) as u32
}

/// The names that differ least from `wanted`, nearest first.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let mut seen = HashMap::default();
    for name in names {
        let lower = name.to_lowercase();
        let contained = !wanted.is_empty() && (lower.contains(&wanted) || wanted.contains(&lower));
        let score = strsim::jaro_winkler(&wanted, &lower).max(if contained { 0.9 } else { 0.0 });
        if score >= 0.75 {
            seen.entry(name).or_insert(score);
        }
    }
    let mut near: Vec<_> = seen.into_iter().collect();
    near.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    near.into_iter().take(most).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_keep_definitions_as_they_came() {
        let read =
            |kind, text| read_page(kind, Era::Legacy, Scanner::default().scan_str(text).unwrap().root());
        let page = read(
            Kind::Tool,
            r#"{"tools":[ {"x":12345678901234567890.10,"name":"a\u0062","inputSchema":{"type":"object"}} , {"description":"no name"},{"name":7},8,
                {"new":1.10,"name":"odd"} ],"nextCursor":"c\"1"}"#,
        )
        .unwrap();
        assert_eq!(page.items.len(), 2);
        assert_eq!(&*page.items[0].key, "ab");
        let came = r#"{"x":12345678901234567890.10,"name":"a\u0062","inputSchema":{"type":"object"}}"#;
        assert_eq!(page.items[0].raw(), came);
        assert_eq!((page.nameless, page.next.as_deref()), (3, Some(r#""c\"1""#)));
        assert_eq!((page.mended, page.items[0].mended()), (vec![1], vec![]));
        let (odd, mended) = (&page.items[1], r#"{"mcp-workbench/mended":["inputSchema"]}"#);
        let shown =
            format!(r#"{{"new":1.10,"name":"odd","inputSchema":{{"type":"object"}},"_meta":{mended}}}"#);
        assert_eq!((odd.raw(), odd.raw_key(), &*odd.key), (&*shown, "\"odd\"", "odd"));
        assert_eq!(odd.mended(), ["inputSchema"]);
        assert_eq!((odd.sent(), page.items[0].sent()), (r#"{"new":1.10,"name":"odd"}"#, came));
        assert_eq!(page.items[0].raw_key(), r#""a\u0062""#);
        assert_eq!(read(Kind::Tool, r#"{"tools":[ ]}"#).unwrap().items, []);
        assert_eq!(
            read(Kind::Prompt, "{}").unwrap_err(),
            "answered `prompts/list` without a list of prompts"
        );
    }

    #[test]
    fn what_is_rendered_from_places_is_what_would_be_rendered_from_a_reading() {
        // White space inside the braces stays, where a reading would leave it out.
        let bare = |mut out: Vec<u8>| {
            unbreak(&mut out);
            String::from_utf8(out).unwrap().replace(' ', "")
        };
        for definition in [
            r#"{"name":"a","inputSchema":{}}"#,
            r#"{"_meta":{"x":1},"description":"d","name":"a"}"#,
            r#"{"description":"d","name":"a","_meta":{}}"#,
            r#"{ "inputSchema" : { "description" : "not this one" } , "name" : "a" }"#,
            "{\n  \"name\": \"a\",\r\n  \"description\": \"d\"\n}",
            r#"{"n\u0061me":"a","description":"d"}"#,
            r#"{"name":"a","x":1,"name":"b"}"#,
            r#"{"name":"a","Description":"c","description":"d"}"#,
            r#"{"name":"a","_meta":{},"_meta":{"x":1}}"#,
        ] {
            let mut scanner = Scanner::default();
            let node = scanner.scan_str(definition).unwrap().root();
            let item = Item::new(Kind::Tool, &definition.into(), definition, node);
            let place = Definition { kind: Kind::Tool, item: &item };
            let (mut out, mut expected) = (Vec::new(), Vec::new());
            place.write_tool(&mut out, &["\"", "n\""], &["\"e\""], &["{", "}"]);
            node.write_with(
                &mut expected,
                &[("name", Some("\"n\"")), ("description", Some("\"e\"")), ("_meta", Some("{}"))],
            );
            assert_eq!(bare(out), bare(expected), "{definition}");
            let raw = |key| node.get(key).map(Node::raw);
            assert_eq!((place.description(), place.meta()), (raw("description"), raw("_meta")));
            let (mut out, mut expected) = (Vec::new(), Vec::new());
            place.write_named(&mut out, &["\"n\""]);
            node.write_with(&mut expected, &[("name", Some("\"n\""))]);
            assert_eq!(bare(out), bare(expected), "{definition}");
        }
    }

    #[test]
    fn a_rendered_list_is_one_line() {
        let mut exposed = Exposed::default();
        for item in Items::defined(Kind::Prompt, "{\n\"name\":\"a\"},{\"name\":\"b\",\r\n\"title\":\"\"}") {
            exposed.push(Kind::Prompt, &item, "n".into(), None, true);
        }
        let things = exposed.of(Kind::Prompt);
        let rendered = Rendered::new(things, Kind::Prompt, |_, definition, out| {
            definition.write_named(out, &["\"n\""]);
        });
        assert_eq!(rendered.text(), r#"{ "name":"n"},{"name":"n",  "title":""}"#);
    }

    #[test]
    fn names_are_made_fit() {
        let limits = |rule, length| NameLimits { rule, length, reserved: None };
        for (limits, name, expected) in [
            (limits(NameRule::Safe, 64), "dev__fs__read", None),
            (limits(NameRule::Safe, 64), "dev__My Server__read", Some("dev__My_Server__read_")),
            (limits(NameRule::Safe, 20), "dev__filesystem__read", Some("dev__filesy_")),
            (limits(NameRule::Exact, 64), "dev__My Server__read", None),
            (limits(NameRule::Exact, 20), "dev__ä Server__read_file", Some("dev__ä Serv_")),
        ] {
            match expected {
                None => assert!(limits.fits(name), "{name}"),
                Some(prefix) => {
                    assert!(!limits.fits(name), "{name}");
                    let marked = limits.marked(name, &["o"], 0);
                    assert!(
                        marked.starts_with(prefix) && marked.chars().count() == prefix.chars().count() + 8,
                        "{marked}"
                    );
                    assert!(limits.fits(&marked));
                }
            }
        }
        let limits = limits(NameRule::Safe, 20);
        assert_eq!(limits.marked("a b", &["dev", "fs", "read"], 0), "a_b_2f95bb26");
        assert_eq!(limits.marked("a b", &["dev", "fs", "read"], 1), "a_b_88d7a1b6");
    }

    #[test]
    fn near_names() {
        let names = ["read_file", "write_file", "read_text_file", "list"];
        assert_eq!(nearest("read_fil", names, 2), ["read_file", "read_text_file"]);
        assert!(nearest("zzzz", names, 2).is_empty());
    }

    #[test]
    fn a_marked_name_is_known_whatever_it_was_cut_to() {
        let origin = ["dev", "fs", "read"];
        for (name, expected) in [
            ("a_b_2f95bb26", true),
            ("a b_2f95bb26", true),
            ("a_2f95bb26", true),
            ("_2f95bb26", true),
            ("2f95bb26", false),
            ("a_b_2f95bb27", false),
            ("a-b_2f95bb26", false),
            ("b_2f95bb26", false),
            ("a_b_c_2f95bb26", false),
            ("a_b\u{fc}2f95bb26", false),
        ] {
            assert_eq!(is_marked(name, "a b", &origin), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn marked_names_always_fit(name in ".{1,200}", length in 10usize..80, exact: bool) {
            let rule = if exact { NameRule::Exact } else { NameRule::Safe };
            let limits = NameLimits { rule, length, reserved: None };
            let marked = limits.marked(&name, &["a", &name], 0);
            prop_assert!(limits.fits(&marked) && is_marked(&marked, &name, &["a", &name]));
        }

        #[test]
        fn parts_of_an_origin_do_not_run_together(a in "[ab]{0,4}", b in "[ab]{0,4}", c in "[ab]{0,4}", d in "[ab]{0,4}") {
            prop_assert_eq!(hash(&[&a, &b], 0) == hash(&[&c, &d], 0), (a, b) == (c, d));
        }
    }
}
