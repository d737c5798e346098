//! The verb `tokens`: what a model reads of all servers at once, of the gateway with nothing open, and of the
//! gateway with each toolbox open.

use super::catalog::Catalog;
use super::{Run, Said};
use crate::catalog::Kind;
use crate::config::locate::FaceKind;
use crate::gateway::shell::Shell;
use crate::json::quote;
use crate::tokens::{TOKENIZER, count, of_definition};

/// What everything costs, in tokens.
struct Costs<'a> {
    /// The servers that are known: the index in the catalog, the number of tools, their definitions.
    servers: Vec<(usize, usize, usize)>,
    /// The toolboxes or namespaces: the definitions of their servers, and the gateway with them open.
    groups: Vec<(&'a str, usize, usize)>,
    total: usize,
    /// The gateway's own tools and its instructions.
    gateway: usize,
}

impl Run {
    pub(super) fn tokens(&self, shell: &Shell, catalog: &Catalog) -> Said {
        let costs = self.costs(shell, catalog);
        let text =
            if self.output.json { self.as_json(catalog, &costs) } else { self.as_table(catalog, &costs) };
        Said { text, status: catalog.status() }
    }

    fn costs(&self, shell: &Shell, catalog: &Catalog) -> Costs<'_> {
        let known =
            catalog.servers.iter().enumerate().filter(|(_, known)| matches!(known.items, Some(Ok(_))));
        let servers: Vec<(usize, usize, usize)> = known
            .map(|(n, _)| {
                let tools: Vec<_> = catalog.of(Kind::Tool).filter(|row| row.server == n).collect();
                (n, tools.len(), tools.iter().map(|row| of_definition(&row.definition)).sum())
            })
            .collect();
        let surface = |opened: Option<&str>| {
            let (tools, instructions) = shell.surface(&catalog.view, opened);
            tools.iter().map(|tool| of_definition(tool)).sum::<usize>() + count(&instructions)
        };
        let of_group = |name: &str| {
            let own = servers.iter().filter(|(n, ..)| *catalog.servers[*n].upstream.group == *name);
            own.map(|(.., tokens)| tokens).sum()
        };
        let groups =
            self.groups.iter().map(|(name, ..)| (&**name, of_group(name), surface(Some(name)))).collect();
        let total = servers.iter().map(|(.., tokens)| tokens).sum();
        Costs { groups, total, gateway: surface(None), servers }
    }

    fn as_json(&self, catalog: &Catalog, costs: &Costs<'_>) -> String {
        let servers: Vec<_> = costs
            .servers
            .iter()
            .map(|(n, tools, tokens)| {
                format!("{{{},\"tools\":{tools},\"tokens\":{tokens}}}", self.origin(catalog, *n))
            })
            .collect();
        let word = self.group_word();
        let groups: Vec<_> = costs
            .groups
            .iter()
            .map(|(name, tokens, open)| {
                format!("{{\"{word}\":{},\"tokens\":{tokens},\"open\":{open}}}", quote(name))
            })
            .collect();
        format!(
            "{{\"tokenizer\":{},\"servers\":[{}],\"toolboxes\":[{}],\"total\":{},\"gateway\":{},\"saving\":{}}}\n",
            quote(TOKENIZER),
            servers.join(","),
            groups.join(","),
            costs.total,
            costs.gateway,
            costs.saving(),
        )
    }

    fn as_table(&self, catalog: &Catalog, costs: &Costs<'_>) -> String {
        let wide = self.face == FaceKind::Workbench;
        let row = |group: &str, server: &str, numbers: [String; 3]| {
            let mut row =
                if wide { vec![group.to_owned(), server.to_owned()] } else { vec![group.to_owned()] };
            row.extend(numbers);
            row
        };
        let mut rows = Vec::new();
        for (name, sum, open) in &costs.groups {
            let of_group = |n: usize| &*catalog.servers[n].upstream.group == *name;
            let own: Vec<_> = costs.servers.iter().filter(|(n, ..)| of_group(*n)).collect();
            for (n, tools, tokens) in &own {
                let open = if own.len() == 1 { open.to_string() } else { String::new() };
                let server = &catalog.servers[*n].upstream.server;
                rows.push(row(name, server, [tools.to_string(), tokens.to_string(), open]));
            }
            if own.len() > 1 {
                rows.push(row(name, "all", [String::new(), sum.to_string(), open.to_string()]));
            }
        }
        let heading: &[&str] = match wide {
            true => &["TOOLBOX", "SERVER", "TOOLS", "TOKENS", "OPEN"],
            false => &["NAMESPACE", "TOOLS", "TOKENS", "OPEN"],
        };
        let saving = costs.saving();
        let outcome = match saving {
            0.. if costs.total > 0 => {
                let percent = saving as f64 * 100.0 / costs.total as f64;
                format!("{:<25}  {saving:>7}  ({percent:.0} %)", "saving")
            }
            _ => format!(
                "{:<25}  {:>7}  (the gateway pays off with more tools)",
                "more than without it", -saving
            ),
        };
        format!(
            "{}\n{:<25}  {:>7}\n{:<25}  {:>7}\n{}\n\nOPEN: the gateway with that {} open\ntokenizer: {TOKENIZER}\n",
            self.screen.table(heading, &rows),
            "all definitions at once",
            costs.total,
            "the gateway, nothing open",
            costs.gateway,
            self.screen.bold(&outcome),
            self.group_word(),
        )
    }
}

impl Costs<'_> {
    fn saving(&self) -> i64 {
        self.total as i64 - self.gateway as i64
    }
}
