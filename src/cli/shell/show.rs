//! `show`

use serde_json::Value;

use super::catalog::{Catalog, Row};
use super::tokens::estimate;
use super::{Run, Said};
use crate::config::locate::Face;
use crate::core::catalog::Kind;
use crate::wire::json::quote;

impl Run {
    pub(super) fn show(&self, catalog: &Catalog, row: &Row) -> Said {
        let tokens = estimate(&row.definition);
        let word = match row.kind {
            Kind::Tool => "tool",
            Kind::Prompt => "prompt",
            Kind::Resource | Kind::Template => "uri",
        };
        if self.manner.json {
            return Said::done(format!(
                "{{{},\"{word}\":{},\"registered\":{},\"tokens\":{tokens},\"definition\":{}}}\n",
                self.origin(catalog, row.server),
                quote(&row.key),
                quote(&row.registered),
                row.definition,
            ));
        }
        let upstream = catalog.server(row);
        let mut lines = vec![format!("{word}: {}", row.key)];
        match self.face {
            Face::Workbench => {
                lines.push(format!("toolbox: {}", upstream.group));
                lines.push(format!("server: {}", upstream.server));
            }
            Face::Toolman => lines.push(format!("namespace: {}", upstream.group)),
        }
        lines.push(format!("registered: {}", row.registered));
        lines.push(format!("tokens: about {tokens}"));
        let description = row.description();
        if !description.is_empty() {
            lines.extend([String::new(), description]);
        }
        let definition = serde_json::from_str::<Value>(&row.definition).unwrap_or_default();
        for key in ["inputSchema", "outputSchema", "annotations", "arguments", "mimeType"] {
            if let Some(part) = definition.get(key) {
                lines.extend([String::new(), format!("{key}: {part:#}")]);
            }
        }
        Said::done(format!("{}\n", self.screen.text(&lines.join("\n"))))
    }
}
