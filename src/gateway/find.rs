//! Searching for tools: an index for each face that is searched, brought up to date server by server when it is asked.
//!
//! All of it runs beside the messages, so that no call waits for it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Gateway;
use crate::catalog::{Exposed, Item, Items, Kind};
use crate::config::ToolFilter;
use crate::core::engine::Engine;
use crate::core::reply::Reply;
use crate::core::view::Entry;
use crate::core::workspace::Workspace;
use crate::face::find::{Query, document};
use crate::face::{Declared, Face, FoundThing, Searched, ServerPlace, Viewer};
use crate::memory::definitions::{self, Stamp};
use crate::search::{Index, ServerDoc};

/// A server as the search sees it.
pub struct Source {
    /// Tells it apart from all others.
    pub key: String,
    /// All that people call it by.
    pub title: String,
    /// What is said of it, whatever it offers.
    pub description: String,
    /// What it offers.
    pub offers: Offers,
}

/// What a server offers, as far as it is known.
#[derive(Clone)]
pub enum Offers {
    /// Tools that it said it has.
    Tools(Arc<Items>, ToolFilter),
    /// Tools that it had when it was last asked, if there is something in this place.
    Remembered(definitions::DefinitionsFile, ToolFilter),
    /// Tools and resources, those of them that are exposed.
    Exposed(Arc<Items>, Arc<Exposed>),
    /// Not known.
    Unknown,
}

/// A thing that fits.
pub struct Found {
    /// The place of its server among the sources.
    pub source: usize,
    /// What it is.
    pub kind: Kind,
    /// As its server defined it.
    pub item: Item,
    /// How well it fits, compared with the others.
    pub score: f32,
    /// The words of the query that it has.
    pub matched: Vec<String>,
}

/// What a search gave, best first.
#[derive(Default)]
pub struct Findings {
    /// The things that fit.
    pub things: Vec<Found>,
    /// The places of sources that fit and of which nothing is known.
    pub unknown: Vec<usize>,
}

/// An index that follows what servers offer.
#[derive(Default)]
pub struct Finder {
    index: Index,
    known: HashMap<String, IndexedSource>,
}

/// What the index was told of a server.
struct IndexedSource {
    about: (u32, String, String),
    version: Version,
    items: Arc<Items>,
    /// Kinds and places in `items`, in the order of the index; `None` where nothing is known.
    things: Option<Vec<(Kind, usize)>>,
}

/// Differs when what a server offers may be another thing.
enum Version {
    Tools(Arc<Items>, ToolFilter),
    Remembered(definitions::DefinitionsFile, Option<Stamp>, ToolFilter),
    Exposed(Arc<Exposed>),
    Unknown,
}

impl Finder {
    /// The things of these servers that fit a query best, without those that `hides` keeps from who asks.
    pub fn search(&mut self, sources: &[Source], query: &Query, hides: fn(&Item) -> bool) -> Findings {
        self.follow(sources);
        let places: HashMap<&str, usize> =
            sources.iter().enumerate().map(|(place, source)| (source.key.as_str(), place)).collect();
        let things = self.known.values().flat_map(|known| known.all());
        let hidden = things.filter(|item| hides(item)).count();
        let outcome = self.index.search(&query.text, query.limit + hidden);
        let thing = |hit: crate::search::Hit| {
            let known = &self.known[&hit.server];
            let (kind, at) = known.things.as_ref()?[hit.position];
            let item = known.items.of(kind)[at].clone();
            Some(Found { source: places[&*hit.server], kind, item, score: hit.score, matched: hit.matched })
        };
        let fits = outcome.servers.iter().filter(|server| self.known[*server].things.is_none());
        let unknown = fits.map(|server| places[server.as_str()]).collect();
        let found = outcome.hits.into_iter().filter_map(thing).filter(|found| !hides(&found.item));
        Findings { things: found.take(query.limit).collect(), unknown }
    }

    /// Where words of a query stand in a text.
    pub fn marks(&self, query: &str, text: &str) -> Vec<std::ops::Range<usize>> {
        self.index.marks(query, text)
    }

    /// Takes over what has changed since it was last asked.
    fn follow(&mut self, sources: &[Source]) {
        let wanted: HashSet<&str> = sources.iter().map(|source| source.key.as_str()).collect();
        let index = &mut self.index;
        self.known.retain(|key, _| {
            let stays = wanted.contains(&**key);
            if !stays {
                index.remove_server(key);
            }
            stays
        });
        for (order, source) in (0..).zip(sources) {
            let about = (order, source.title.clone(), source.description.clone());
            let version = source.offers.version();
            let known = self.known.get(&source.key);
            if known.is_some_and(|known| known.about == about && known.version.is(&version)) {
                continue;
            }
            let (items, things) = source.offers.things();
            let tools =
                things.iter().flatten().map(|(kind, at)| document(*kind, &items.of(*kind)[*at])).collect();
            let (title, description) = (source.title.clone(), source.description.clone());
            index.set_server(&source.key, &ServerDoc { order, title, description, tools });
            self.known.insert(source.key.clone(), IndexedSource { about, version, items, things });
        }
    }
}

impl IndexedSource {
    fn all(&self) -> impl Iterator<Item = &Item> {
        self.things.iter().flatten().map(|(kind, at)| &self.items.of(*kind)[*at])
    }
}

impl Offers {
    fn version(&self) -> Version {
        match self {
            Self::Tools(items, filter) => Version::Tools(items.clone(), filter.clone()),
            Self::Remembered(place, filter) => {
                Version::Remembered(place.clone(), place.stamp(), filter.clone())
            }
            Self::Exposed(_, exposed) => Version::Exposed(exposed.clone()),
            Self::Unknown => Version::Unknown,
        }
    }

    /// What there is of it, and which things of that can be found.
    fn things(&self) -> (Arc<Items>, Option<Vec<(Kind, usize)>>) {
        let (items, kinds): (Arc<Items>, &[Kind]) = match self {
            Self::Tools(items, _) => (items.clone(), &[Kind::Tool]),
            Self::Remembered(place, _) => match place.load() {
                Some(items) => (Arc::new(items), &[Kind::Tool]),
                None => return (Arc::default(), None),
            },
            Self::Exposed(items, _) => (items.clone(), &[Kind::Tool, Kind::Resource, Kind::Template]),
            Self::Unknown => return (Arc::default(), None),
        };
        let mut things = Vec::new();
        for &kind in kinds {
            let mut seen = HashSet::new();
            for (at, item) in items.of(kind).iter().enumerate() {
                let there = match self {
                    Self::Tools(_, filter) | Self::Remembered(_, filter) => filter.allows(&item.key),
                    Self::Exposed(_, exposed) => exposed.of(kind).by_key(&item.key).is_some(),
                    Self::Unknown => false,
                };
                if there && seen.insert(&*item.key) {
                    things.push((kind, at));
                }
            }
        }
        (items, Some(things))
    }
}

impl Version {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tools(items, filter), Self::Tools(others, other)) => {
                Arc::ptr_eq(items, others) && filter == other
            }
            (Self::Remembered(place, stamp, filter), Self::Remembered(other_place, other_stamp, other)) => {
                place == other_place && stamp == other_stamp && filter == other
            }
            (Self::Exposed(exposed), Self::Exposed(other)) => Arc::ptr_eq(exposed, other),
            (Self::Unknown, Self::Unknown) => true,
            _ => false,
        }
    }
}

/// The finders of all faces that were searched, by their places.
#[derive(Default)]
pub(super) struct Finders(Mutex<HashMap<usize, Arc<Mutex<Finder>>>>);

impl Finders {
    fn of(&self, face: usize) -> Arc<Mutex<Finder>> {
        self.0.lock().entry(face).or_default().clone()
    }

    /// Gives everything back that was held for searching.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Searches beside everything else and answers in the words of the face. Nothing is started.
    pub(super) fn find(&self, gateway: &Gateway, face: &Arc<dyn Face>, query: Query, reply: Reply) {
        let (face, session) = (face.clone(), reply.session().clone());
        let workspace = session.workspace.clone();
        let Viewer { modern, renders_apps, settled, .. } = gateway.viewer(&reply);
        let (sources, places) = sources(&gateway.engine, &*face, &workspace);
        let finder = self.of(workspace.face());
        tokio::spawn(async move {
            let searching = tokio::task::spawn_blocking(move || {
                let hides = if renders_apps { Item::is_for_hosts } else { |_: &Item| false };
                let findings = finder.lock().search(&sources, &query, hides);
                let things = findings.things.iter().map(|found| {
                    let Found { source, kind, item, .. } = found;
                    FoundThing { place: &places[*source], kind: *kind, item }
                });
                let found: Vec<_> = things.collect();
                let unknown: Vec<_> = findings.unknown.iter().map(|source| places[*source].clone()).collect();
                let viewer =
                    Viewer { client: session.hello(), modern_name: "", modern, renders_apps, settled };
                workspace.read(|view| face.found(view, &viewer, &query.text, &found, &unknown))
            });
            if let Ok(answer) = searching.await {
                reply.result(&answer);
            }
        });
    }

    /// Makes the index of a workspace's face before somebody waits for it, where search is on.
    pub(super) fn prepare(&self, gateway: &Gateway, workspace: &Workspace) {
        let face = gateway.faces.of(workspace);
        if face.searches().is_some() {
            let (sources, _) = sources(&gateway.engine, &*face, workspace);
            let finder = self.of(workspace.face());
            tokio::task::spawn_blocking(move || finder.lock().follow(&sources));
        }
    }
}

/// The servers that a face searches, in their order, and where each of them is.
fn sources(engine: &Engine, face: &dyn Face, workspace: &Workspace) -> (Vec<Source>, Vec<ServerPlace>) {
    match face.searches() {
        Some(Searched::File) => file_sources(engine, face, workspace),
        Some(Searched::View) => view_sources(workspace),
        None => Default::default(),
    }
}

/// Every server of the file.
fn file_sources(engine: &Engine, face: &dyn Face, workspace: &Workspace) -> (Vec<Source>, Vec<ServerPlace>) {
    let source = |server: Declared<'_>| {
        let running = engine.registry.known(workspace, server.group, server.key);
        let items = running.map(|upstream| (upstream.is_up(), upstream.items()));
        let filter = server.spec.filter.clone();
        let offers = match (items, engine.known.definitions()) {
            (Some((true, items)), _) => Offers::Tools(items, filter),
            (_, Some(definitions)) => Offers::Remembered(definitions.place(&server.spec.transport), filter),
            (Some((false, items)), None) if *items != Items::default() => Offers::Tools(items, filter),
            _ => Offers::Unknown,
        };
        let source = Source {
            key: key(server.group, server.key),
            title: format!("{} {}", server.group, server.name),
            description: face.about(server.group).to_owned(),
            offers,
        };
        (source, (server.group.to_owned(), server.key.to_owned()))
    };
    face.servers().into_iter().map(source).unzip()
}

/// Every server that stands in the lists of a workspace.
fn view_sources(workspace: &Workspace) -> (Vec<Source>, Vec<ServerPlace>) {
    let source = |entry: &Entry| {
        let (group, server) = (&*entry.upstream.group, &*entry.upstream.server);
        let source = Source {
            key: key(group, server),
            title: group.to_owned(),
            description: String::new(),
            offers: Offers::Exposed(entry.upstream.items(), entry.exposed.clone()),
        };
        (source, (group.to_owned(), server.to_owned()))
    };
    workspace.read(|view| view.entries().filter(|entry| entry.is_listed()).map(source).unzip())
}

/// What tells a server apart from all others. No name can hold a line break.
fn key(group: &str, server: &str) -> String {
    format!("{group}\n{server}")
}
