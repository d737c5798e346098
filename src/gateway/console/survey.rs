//! Which tools there are: of servers that run as they say, of others as they are remembered, with what their
//! definitions cost a model. The page of tools, its search, and the two bars of the overview come from it.
//!
//! Invariant: a survey runs beside the messages, reads the disk where it must, and starts no server.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::Gateway;
use super::super::find::{Finder, OfferedTools, file_sources};
use super::super::shell::{surface, view_of};
use crate::catalog::{Item, Items};
use crate::config::Redactor;
use crate::core::workspace::Workspace;
use crate::face::find::Query;
use crate::face::{Face, ServerPlace};
use crate::json::{Node, Scanner};
use crate::tokens::{count, of_definition};

/// The longest description in a table.
const LONGEST: usize = 300;
/// How many tools a search finds.
const MOST_FOUND: usize = 100;

/// The part of a file that is surveyed.
pub(super) struct SurveyedFile {
    pub(super) gateway: Arc<Gateway>,
    pub(super) face: Arc<dyn Face>,
    pub(super) workspace: Arc<Workspace>,
}

/// The tools of such a part, as they were when last looked at.
#[derive(Default)]
pub(super) struct Survey {
    finder: Finder,
    counted: HashMap<String, (Arc<Items>, Arc<[ToolEntry]>)>,
    /// The tools of each server, in the order of the file.
    servers: Vec<(ServerPlace, Arc<[ToolEntry]>)>,
    outcome: Outlook,
}

/// What a survey tells at a glance.
#[derive(Default, Clone)]
pub(super) struct Outlook {
    /// Changes with the tools.
    pub(super) version: u64,
    /// How many tools each server has; a server of which nothing is known is not among them.
    pub(super) tools: HashMap<ServerPlace, usize>,
    /// The tokens of all definitions, and of what clients see.
    pub(super) all: usize,
    pub(super) seen: usize,
}

/// One tool.
pub(super) struct ToolEntry {
    pub(super) item: Item,
    tokens: usize,
    description: String,
}

impl Survey {
    /// Looks again at what servers offer.
    pub(super) fn look(&mut self, file: &SurveyedFile) -> Outlook {
        let (sources, places) = file_sources(&file.gateway.engine, &*file.face, &file.workspace);
        let catalog = self.finder.catalog(&sources);
        let secrets = file.gateway.engine.settings().secrets.clone();
        let before = std::mem::take(&mut self.counted);
        let mut changed = before.len() != catalog.len();
        let mut known = Vec::new();
        self.servers.clear();
        for OfferedTools { source, items, tools } in catalog {
            let key = &sources[source].key;
            let entries = match before.get(key) {
                Some((counted, entries)) if Arc::ptr_eq(counted, &items) => entries.clone(),
                _ => {
                    changed = true;
                    tools.iter().map(|item| ToolEntry::new(item, &secrets)).collect()
                }
            };
            self.counted.insert(key.clone(), (items.clone(), entries.clone()));
            self.servers.push((places[source].clone(), entries));
            known.push((source, items));
        }
        if changed {
            self.outcome = Outlook {
                version: self.outcome.version + 1,
                tools: self.servers.iter().map(|(place, tools)| (place.clone(), tools.len())).collect(),
                all: self.servers.iter().flat_map(|(_, tools)| tools.iter()).map(|tool| tool.tokens).sum(),
                seen: seen(file, &known),
            };
        }
        self.outcome.clone()
    }

    /// Changes with the tools.
    pub(super) fn version(&self) -> u64 {
        self.outcome.version
    }

    /// All tools in the order of the file, from this one on, or those that fit the words, best first. `id` makes
    /// the name by which the page asks for a tool.
    pub(super) fn rows(
        &mut self,
        file: &SurveyedFile,
        words: &str,
        (from, most): (usize, usize),
        id: impl Fn(&ServerPlace, &str) -> String,
        shows_server: bool,
    ) -> Value {
        self.look(file);
        let row = |(place, tool): (&ServerPlace, &ToolEntry)| {
            json!({
                "id": id(place, &tool.item.key),
                "tool": &*tool.item.key,
                "group": place.0,
                "server": if shows_server { &place.1 } else { "" },
                "tokens": tool.tokens,
                "description": tool.description,
            })
        };
        if words.is_empty() {
            let all =
                self.servers.iter().flat_map(|(place, tools)| tools.iter().map(move |tool| (place, tool)));
            let total: usize = self.servers.iter().map(|(_, tools)| tools.len()).sum();
            return json!({"total": total, "tools": all.skip(from).take(most).map(row).collect::<Vec<_>>()});
        }
        let (sources, places) = file_sources(&file.gateway.engine, &*file.face, &file.workspace);
        let query = Query { text: words.to_owned(), limit: MOST_FOUND };
        let found = self.finder.search(&sources, &query, |_| false).things;
        let entries = found.iter().filter_map(|found| {
            let place = &places[found.source];
            Some((place, self.tool(place, &found.item.key)?))
        });
        let rows: Vec<_> = entries.map(row).collect();
        json!({"total": rows.len(), "tools": rows})
    }

    /// A tool of a server.
    pub(super) fn tool(&self, place: &ServerPlace, name: &str) -> Option<&ToolEntry> {
        let (_, tools) = self.servers.iter().find(|(other, _)| other == place)?;
        tools.iter().find(|tool| *tool.item.key == *name)
    }
}

/// The tokens of what a client sees before it has called anything.
fn seen(file: &SurveyedFile, known: &[(usize, Arc<Items>)]) -> usize {
    let servers = file.face.servers();
    let upstream = |source: usize| file.gateway.upstream(&file.workspace, &servers[source]);
    let known: Vec<_> = known.iter().map(|(source, items)| (upstream(*source), items.clone())).collect();
    let view = view_of(&*file.workspace.exposure(), "", &known);
    let (tools, instructions) = surface(&file.gateway, &*file.face, &view, None);
    tools.iter().map(|tool| of_definition(tool)).sum::<usize>() + count(&instructions)
}

impl ToolEntry {
    fn new(item: &Item, secrets: &Redactor) -> Self {
        let mut scanner = Scanner::default();
        let text = |definition: Node<'_>| {
            let text = definition.get("description").and_then(Node::as_str).unwrap_or_default();
            secrets.redact(&text).chars().take(LONGEST).collect()
        };
        let description = scanner.scan_str(item.raw()).map(|doc| text(doc.root())).unwrap_or_default();
        Self { item: item.clone(), tokens: of_definition(item.raw()), description }
    }
}
