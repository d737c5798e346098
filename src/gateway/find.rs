//! Searching for tools: every searched face has an index, which each search first brings up to date, server
//! by server. Faces ask for a search by [`Step::Find`](crate::face::Step::Find); the shell's `search` uses a
//! [`Finder`] directly.
//!
//! Invariant: searches run beside the messages, so that no call waits for one.

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
use crate::face::{Declared, Face, FoundThing, SearchResult, Searched, ServerPlace, Viewer};
use crate::json::{Node, Raw};
use crate::lock::Guard;
use crate::memory::definitions::{self, Stamp};
use crate::search::{Index, ServerDoc};

/// A server as the search sees it.
pub struct Source {
    /// A key that no other server has.
    pub key: String,
    /// All names that people have for the server.
    pub title: String,
    /// What is said about the server, whatever it offers.
    pub description: String,
    /// What the server offers.
    pub offers: Offers,
}

/// What a server offers, as far as it is known.
#[derive(Clone)]
pub enum Offers {
    /// The tools that the server says it has.
    Tools(Arc<Items>, ToolFilter),
    /// The tools that the server had when it was last asked, if this file holds any, as far as they were
    /// approved.
    Remembered(definitions::DefinitionsFile, ToolFilter, Option<Guard>),
    /// Tools and resources, limited to those that are exposed.
    Exposed(Arc<Items>, Arc<Exposed>),
    /// Nothing is known of what the server offers.
    Unknown,
}

/// One result of a search.
pub struct Found {
    /// The index of its server among the sources.
    pub source: usize,
    /// Its kind.
    pub kind: Kind,
    /// Its definition, as the server sent it.
    pub item: Item,
    /// How well it matches, compared with the other results.
    pub score: f32,
    /// The words of the query that it contains.
    pub matched: Vec<String>,
}

/// The results of a search, best first.
#[derive(Default)]
pub struct Findings {
    /// The items that match.
    pub things: Vec<Found>,
    /// The indexes of sources that match but whose offers are not known.
    pub unknown: Vec<usize>,
    /// If nothing matches: the index of the source that the query is about, although it has no such item.
    pub near: Option<usize>,
}

/// The tools of a server.
pub(super) struct OfferedTools<'a> {
    /// The index of the server among the sources.
    pub(super) source: usize,
    /// All that the server offers, which stays the same until that changes.
    pub(super) items: Arc<Items>,
    /// The tools that can be found.
    pub(super) tools: Vec<&'a Item>,
}

/// An index that follows what servers offer.
#[derive(Default)]
pub struct Finder {
    index: Index,
    known: HashMap<String, IndexedSource>,
}

/// What the index holds about a server.
struct IndexedSource {
    about: (u32, String, String),
    version: Version,
    items: Arc<Items>,
    /// The kinds and the indexes in `items`, in the order of the index; `None` if nothing is known.
    things: Option<Vec<(Kind, usize)>>,
}

/// Two versions differ when the server's offers may have changed.
enum Version {
    Tools(Arc<Items>, ToolFilter),
    Remembered(definitions::DefinitionsFile, Option<Stamp>, ToolFilter, Option<Guard>),
    Exposed(Arc<Exposed>),
    Unknown,
}

impl Finder {
    /// The items of these servers that match a query best, except those that `hides` keeps from the caller.
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
        let near = outcome.near.map(|server| places[server.as_str()]);
        let found = outcome.hits.into_iter().filter_map(thing).filter(|found| !hides(&found.item));
        Findings { things: found.take(query.limit).collect(), unknown, near }
    }

    /// Where the words of a query stand in a text.
    pub fn marks(&self, query: &str, text: &str) -> Vec<std::ops::Range<usize>> {
        self.index.marks(query, text)
    }

    /// The tools of these servers, in their order. A server of which nothing is known is left out.
    pub(super) fn catalog(&mut self, sources: &[Source]) -> Vec<OfferedTools<'_>> {
        self.follow(sources);
        let offered = sources.iter().enumerate().filter_map(|(source, Source { key, .. })| {
            let IndexedSource { items, things, .. } = self.known.get(key)?;
            let tools = things.as_ref()?.iter().filter(|(kind, _)| *kind == Kind::Tool);
            let tools = tools.map(|(kind, at)| &items.of(*kind)[*at]).collect();
            Some(OfferedTools { source, items: items.clone(), tools })
        });
        offered.collect()
    }

    /// Takes over what has changed since the last search.
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
            Self::Remembered(place, filter, guard) => {
                Version::Remembered(place.clone(), place.stamp(), filter.clone(), guard.clone())
            }
            Self::Exposed(_, exposed) => Version::Exposed(exposed.clone()),
            Self::Unknown => Version::Unknown,
        }
    }

    /// The server's items, and which of them can be found.
    fn things(&self) -> (Arc<Items>, Option<Vec<(Kind, usize)>>) {
        let (items, kinds): (Arc<Items>, &[Kind]) = match self {
            Self::Tools(items, _) => (items.clone(), &[Kind::Tool]),
            Self::Remembered(place, _, guard) => match place.load() {
                Some(sent) => (Arc::new(sent.shown(guard.as_ref()).0), &[Kind::Tool]),
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
                    Self::Tools(_, filter) | Self::Remembered(_, filter, _) => filter.allows(&item.key),
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
            (
                Self::Remembered(place, stamp, filter, guard),
                Self::Remembered(other_place, other_stamp, other, other_guard),
            ) => place == other_place && stamp == other_stamp && filter == other && guard == other_guard,
            (Self::Exposed(exposed), Self::Exposed(other)) => Arc::ptr_eq(exposed, other),
            (Self::Unknown, Self::Unknown) => true,
            _ => false,
        }
    }
}

/// The finders of all faces that were searched, by the faces' places.
#[derive(Default)]
pub(super) struct Finders(Mutex<HashMap<usize, Arc<Mutex<Finder>>>>);

impl Finders {
    fn of(&self, face: usize) -> Arc<Mutex<Finder>> {
        self.0.lock().entry(face).or_default().clone()
    }

    /// Frees everything that was held for searching.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Searches in the background and answers in the words of the face. A search starts no server.
    pub(super) fn find(
        &self,
        gateway: &Gateway,
        face: &Arc<dyn Face>,
        query: Query,
        params: Node<'_>,
        reply: Reply,
    ) {
        let (face, session) = (face.clone(), reply.session().clone());
        let workspace = session.workspace.clone();
        let Viewer { modern, renders_apps, settled, .. } = gateway.viewer(&reply, params);
        let params = Raw::from(params);
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
                let search = SearchResult {
                    query: &query.text,
                    things: things.collect(),
                    unknown: findings.unknown.iter().map(|source| &places[*source]).collect(),
                    near: findings.near.map(|source| &places[source]),
                };
                let (client, params, known) = (session.hello(), params.root(), None);
                let viewer = Viewer { client, params, modern, renders_apps, settled, known };
                workspace.read(|view| face.found(view, &viewer, &search))
            });
            if let Ok(answer) = searching.await {
                reply.result(&answer);
            }
        });
    }

    /// Builds the index of a workspace's face before anybody waits for it, if search is on.
    pub(super) fn prepare(&self, gateway: &Gateway, workspace: &Workspace) {
        let face = gateway.faces.of(workspace);
        if face.searches().is_some() {
            let (sources, _) = sources(&gateway.engine, &*face, workspace);
            let finder = self.of(workspace.face());
            tokio::task::spawn_blocking(move || finder.lock().follow(&sources));
        }
    }
}

/// The servers that a face searches, in order, and the place of each.
fn sources(engine: &Engine, face: &dyn Face, workspace: &Workspace) -> (Vec<Source>, Vec<ServerPlace>) {
    match face.searches() {
        Some(Searched::File) => file_sources(engine, face, workspace),
        Some(Searched::View) => view_sources(workspace),
        None => Default::default(),
    }
}

/// Every server of the file.
pub(super) fn file_sources(
    engine: &Engine,
    face: &dyn Face,
    workspace: &Workspace,
) -> (Vec<Source>, Vec<ServerPlace>) {
    let source = |server: Declared<'_>| {
        let running = engine.registry.known(workspace, server.group, server.key, &server.spec);
        let items = running.map(|upstream| (upstream.is_up(), upstream.items()));
        let filter = server.spec.filter.clone();
        let offers = match (items, engine.known.definitions()) {
            (Some((true, items)), _) => Offers::Tools(items, filter),
            (_, Some(definitions)) => {
                let place = definitions.place(&server.spec.transport);
                Offers::Remembered(place, filter, server.spec.guard.clone())
            }
            (Some((false, items)), None) if !items.is_empty() => Offers::Tools(items, filter),
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

/// A key that no other server has. No name can contain a line break.
fn key(group: &str, server: &str) -> String {
    format!("{group}\n{server}")
}
