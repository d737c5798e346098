//! The verb `list`.

use std::fmt::Write;

use super::catalog::{Catalog, Row};
use super::{Run, Said, What};
use crate::catalog::Kind;
use crate::cli::login::{as_json, as_text};
use crate::config::locate::FaceKind;
use crate::json::quote;

impl Run {
    /// Lists the toolboxes. No server is started.
    pub(super) fn list_toolboxes(&self) -> Said {
        let word = self.group_word();
        if self.output.json {
            let rows = self.groups.iter().map(|(name, description, servers)| {
                let (name, description) = (quote(name), quote(description));
                format!("{{\"{word}\":{name},\"description\":{description},\"servers\":{servers}}}")
            });
            return Said::done(array(rows));
        }
        let rows: Vec<_> = self
            .groups
            .iter()
            .map(|(name, description, servers)| vec![name.clone(), servers.to_string(), description.clone()])
            .collect();
        let heading = [word.to_uppercase(), "SERVERS".to_owned(), "DESCRIPTION".to_owned()];
        let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
        Said::done(self.screen.table(&heading, &rows))
    }

    pub(super) fn list(&self, what: What, catalog: &Catalog) -> Said {
        let text = match what {
            What::Servers | What::Toolboxes => self.servers(catalog),
            What::Tools => self.things(catalog, &[Kind::Tool], "tool"),
            What::Resources => self.things(catalog, &[Kind::Resource, Kind::Template], "uri"),
            What::Prompts => self.things(catalog, &[Kind::Prompt], "prompt"),
        };
        Said { text, status: catalog.status() }
    }

    fn servers(&self, catalog: &Catalog) -> String {
        let mut objects = Vec::new();
        let mut rows = Vec::new();
        for (n, known) in catalog.servers.iter().enumerate() {
            let (tools, error) = match &known.items {
                Some(Ok(_)) => (Some(catalog.of(Kind::Tool).filter(|row| row.server == n).count()), None),
                Some(Err(error)) => (None, Some(error.to_string())),
                None => (None, None),
            };
            let login = known.upstream.known_login();
            if self.output.json {
                let tools = tools.map_or_else(|| "null".to_owned(), |tools| tools.to_string());
                objects.push(format!(
                    "{{{},\"transport\":\"{}\",\"tools\":{tools},\"error\":{},\"login\":{}}}",
                    self.origin(catalog, n),
                    known.transport(),
                    error.map_or_else(|| "null".to_owned(), |error| quote(&error)),
                    as_json(login.as_ref()),
                ));
                continue;
            }
            let state = match (tools, error) {
                (Some(1), _) => "1 tool".to_owned(),
                (Some(tools), _) => format!("{tools} tools"),
                (None, Some(_)) => "failed".to_owned(),
                (None, None) => String::new(),
            };
            let mut row = vec![known.upstream.group.to_string()];
            if self.face == FaceKind::Workbench {
                row.push(known.upstream.server.to_string());
            }
            row.extend([known.transport().to_owned(), state]);
            row.push(login.as_ref().map(as_text).unwrap_or_default());
            rows.push(row);
        }
        if self.output.json {
            return array(objects.into_iter());
        }
        let mut heading = match self.face {
            FaceKind::Workbench => vec!["TOOLBOX", "SERVER", "TRANSPORT", "TOOLS", "LOGIN"],
            FaceKind::Toolman => vec!["NAMESPACE", "TRANSPORT", "TOOLS", "LOGIN"],
        };
        if rows.iter().all(|row| row.last().is_some_and(String::is_empty)) {
            heading.pop();
            rows.iter_mut().for_each(|row| drop(row.pop()));
        }
        self.screen.table(&heading, &rows)
    }

    fn things(&self, catalog: &Catalog, kinds: &[Kind], word: &str) -> String {
        let rows = || catalog.rows.iter().filter(|row| kinds.contains(&row.kind));
        if self.output.json {
            return array(rows().map(|row| {
                let mut object = format!(
                    "{{{},\"{word}\":{},\"registered\":{},\"description\":{}",
                    self.origin(catalog, row.server),
                    quote(&row.key),
                    quote(&row.registered),
                    quote(&row.description()),
                );
                if row.kind == Kind::Template {
                    object.push_str(",\"template\":true");
                }
                object.push('}');
                object
            }));
        }
        let address = |row: &Row| match (self.face, row.kind) {
            (FaceKind::Toolman, _) => row.registered.clone(),
            (FaceKind::Workbench, Kind::Resource | Kind::Template) => row.registered.clone(),
            (FaceKind::Workbench, _) => catalog.address(row),
        };
        // Clients know a tool by another name if they would not accept its full name.
        let changed = |row: &Row| self.face == FaceKind::Workbench && row.registered != row.full;
        let mut heading = vec![word.to_uppercase(), "DESCRIPTION".to_owned()];
        let mut table: Vec<_> = rows().map(|row| vec![address(row), row.description()]).collect();
        if rows().any(changed) {
            heading.insert(1, "REGISTERED AS".to_owned());
            for (cells, row) in table.iter_mut().zip(rows()) {
                cells.insert(1, if changed(row) { row.registered.clone() } else { String::new() });
            }
        }
        let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
        self.screen.table(&heading, &table)
    }

    /// The JSON members that say which server something is from.
    pub(super) fn origin(&self, catalog: &Catalog, server: usize) -> String {
        let upstream = &catalog.servers[server].upstream;
        match self.face {
            FaceKind::Workbench => {
                format!("\"toolbox\":{},\"server\":{}", quote(&upstream.group), quote(&upstream.server))
            }
            FaceKind::Toolman => format!("\"namespace\":{}", quote(&upstream.group)),
        }
    }
}

/// One JSON array on one line.
pub(super) fn array(elements: impl Iterator<Item = String>) -> String {
    let mut text = String::from("[");
    for (n, element) in elements.enumerate() {
        let comma = if n > 0 { "," } else { "" };
        let _ = write!(text, "{comma}{element}");
    }
    text.push_str("]\n");
    text
}
