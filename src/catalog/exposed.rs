//! What one upstream offers under the names that clients see: the things themselves, their definitions as clients read
//! them, and fingerprints that tell whether a list has changed. Views keep it; `core::names` makes it.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, OnceLock};

use super::{Definition, Item, Kind};
use crate::hash::{HashMap, Seeded};
use crate::json::{Node, Scanner, unbreak};

/// What one upstream offers, as clients see it.
#[derive(Debug, Default)]
pub struct Exposed {
    kinds: [KindItems; 4],
    /// The pages of apps that the upstream names or lists: its own URI for each, and the one that hosts see.
    pages: HashMap<Arc<str>, Arc<str>>,
}

/// The things of one kind under their exposed names. What is made at the first use is boxed, since most kinds of most
/// upstreams are never used.
#[derive(Debug, Default)]
pub struct KindItems {
    items: Vec<ExposedItem>,
    /// Indexes into `items`, by the upstream's own name.
    by_key: HashMap<Arc<str>, usize>,
    /// The number of things that start inactive.
    inactive: usize,
    /// The definitions as clients see them, made at the first use.
    pub rendered: OnceLock<Box<Rendered>>,
    /// The definitions as hosts of apps see them, made at the first use.
    pub for_hosts: OnceLock<Box<Rendered>>,
    /// The same two without any output schema, and without those that legacy clients do not accept, if there is a
    /// difference.
    pub adapted: [[OnceLock<Option<Box<Rendered>>>; 2]; 2],
    /// The fingerprints, made at the first use.
    pub prints: OnceLock<Box<Prints>>,
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
    pub at: u32,
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
    pub fn is_same(&self, other: &Self) -> bool {
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
    pub fn new(exposed: &Exposed, kind: Kind, tells: impl Fn(Definition<'_>) -> Option<String>) -> Self {
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
    pub fn new(
        things: &KindItems,
        kind: Kind,
        render: impl Fn(&ExposedItem, Definition<'_>, &mut Vec<u8>),
    ) -> Self {
        Self::written(things, |item, out| render(item, Definition { kind, item: &item.own }, out))
    }

    /// Renders every thing of one kind, in order, from an earlier rendering.
    pub fn again(
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
