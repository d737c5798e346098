//! The verb `search`.

use std::io::{self, Write};

use super::catalog::{Catalog, Row};
use super::list::array;
use super::{Run, Said};
use crate::catalog::Kind;
use crate::config::locate::FaceKind;
use crate::face::find::Query;
use crate::gateway::find::{Finder, Found, Offers, Source};
use crate::json::quote;

impl Run {
    pub(super) fn search(&self, catalog: &Catalog, query: &str, limit: usize) -> Said {
        let sources = self.sources(catalog);
        let mut finder = Finder::default();
        let wanted = Query { text: query.to_owned(), limit };
        let findings = finder.search(&sources, &wanted, |_| false);
        let row = |found: &Found| {
            let same = |row: &&Row| row.server == found.source && row.key == *found.item.key;
            catalog.of(Kind::Tool).find(same)
        };
        let found: Vec<_> = findings.things.iter().filter_map(|found| Some((found, row(found)?))).collect();
        let status = catalog.status();
        if self.output.json {
            let objects = found.iter().map(|(found, row)| {
                format!(
                    "{{{},\"tool\":{},\"registered\":{},\"description\":{},\"score\":{:.4},\"matched\":{}}}",
                    self.origin(catalog, row.server),
                    quote(&row.key),
                    quote(&row.registered),
                    quote(&row.description()),
                    found.score,
                    serde_json::json!(found.matched),
                )
            });
            return Said { text: array(objects), status };
        }
        if found.is_empty() {
            if status == 0 && !self.output.quiet {
                let nothing = self.screen.text(&self.nothing(catalog, query, findings.near));
                let _ = writeln!(io::stderr(), "{}", self.output.message(&nothing));
            }
            return Said { text: String::new(), status };
        }
        let rows: Vec<_> = found
            .iter()
            .map(|(found, row)| {
                let address = match self.face {
                    FaceKind::Workbench => catalog.address(row),
                    FaceKind::Toolman => row.registered.clone(),
                };
                vec![address, found.matched.join(" "), row.description()]
            })
            .collect();
        let marks = |row: &str| finder.marks(query, row);
        let text = self.screen.marked_table(&["TOOL", "MATCHED", "DESCRIPTION"], &rows, &marks);
        Said { text, status }
    }

    fn sources(&self, catalog: &Catalog) -> Vec<Source> {
        let descriptions = |group: &str| {
            let known = self.groups.iter().find(|(name, ..)| name == group);
            known.map(|(_, description, _)| description.clone()).unwrap_or_default()
        };
        let servers = catalog.servers.iter().enumerate();
        servers
            .map(|(n, known)| {
                let upstream = &known.upstream;
                Source {
                    key: n.to_string(),
                    title: match self.face {
                        FaceKind::Workbench => format!("{} {}", upstream.group, upstream.server),
                        FaceKind::Toolman => upstream.group.to_string(),
                    },
                    description: descriptions(&upstream.group),
                    offers: match &known.items {
                        Some(Ok(items)) => Offers::Tools(items.clone(), upstream.spec().filter.clone()),
                        _ => Offers::Unknown,
                    },
                }
            })
            .collect()
    }

    /// The text when nothing fits: it says what there is, and which server comes near.
    fn nothing(&self, catalog: &Catalog, query: &str, near: Option<usize>) -> String {
        let servers: Vec<_> = catalog.servers.iter().map(|known| known.upstream.to_string()).collect();
        match (&servers[..], near) {
            ([], _) => format!("nothing fits `{query}`; there are no servers"),
            (servers, None) => format!("nothing fits `{query}`; the servers are {}", servers.join(", ")),
            (servers, Some(near)) => {
                let near = &servers[near];
                format!("nothing fits `{query}`; the server {near} comes nearest, but it has no such tool")
            }
        }
    }
}
