//! The verb `show`.

use super::catalog::{Catalog, Row};
use super::{Run, Said};
use crate::catalog::Kind;
use crate::cli::screen::laid_out;
use crate::config::locate::FaceKind;
use crate::json::{Scanner, quote};
use crate::tokens;

impl Run {
    pub(super) fn show(&self, catalog: &Catalog, row: &Row) -> Said {
        let tokens = match row.kind {
            Kind::Tool => tokens::of_definition(&row.definition),
            _ => tokens::count(&row.definition),
        };
        let word = match row.kind {
            Kind::Tool => "tool",
            Kind::Prompt => "prompt",
            Kind::Resource | Kind::Template => "uri",
        };
        if self.output.json {
            return Said::done(format!(
                "{{{},\"{word}\":{},\"registered\":{},\"tokens\":{tokens},\"definition\":{}}}\n",
                self.origin(catalog, row.server),
                quote(&row.key),
                quote(&row.registered),
                row.definition,
            ));
        }
        let upstream = catalog.server(row);
        let about = |name: &str, value: &str| {
            let name = self.screen.bold(&format!("{name:<10}"));
            format!("{name}  {}", self.screen.text(value))
        };
        let mut lines = vec![about(word, &row.key)];
        match self.face {
            FaceKind::Workbench => {
                lines.push(about("toolbox", &upstream.group));
                lines.push(about("server", &upstream.server));
            }
            FaceKind::Toolman => lines.push(about("namespace", &upstream.group)),
        }
        lines.push(about("registered", &row.registered));
        lines.push(about("tokens", &format!("about {tokens}")));
        let description = row.description();
        if !description.is_empty() {
            lines.extend([String::new(), self.screen.text(&description)]);
        }
        let mut scanner = Scanner::default();
        let definition = scanner.scan_str(&row.definition).ok();
        for key in ["inputSchema", "outputSchema", "annotations", "arguments", "mimeType"] {
            if let Some(part) = definition.as_ref().and_then(|definition| definition.root().get(key)) {
                let part = self.screen.text(&laid_out(part.raw(), 0));
                lines.extend([String::new(), self.screen.bold(key), part]);
            }
        }
        Said::done(format!("{}\n", lines.join("\n")))
    }
}
