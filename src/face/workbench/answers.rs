//! What meta-tools answer, good or bad.

use std::fmt::Display;
use std::sync::Arc;

use super::{Address, Meta, Mode, Workbench, schema_change};
use crate::catalog::{Kind, nearest};
use crate::config::Toolbox;
use crate::core::view::{Entry, View};
use crate::face::FoundThing;
use crate::json::{Node, Scanner, quote};
use crate::protocol::message::write_sound_error;
use crate::text::listed;

impl Workbench {
    /// The answer to opening: what the client can use now, and which servers failed and why.
    pub(super) fn opened_toolbox(
        &self,
        meta: Meta,
        mode: Mode,
        modern: bool,
        toolbox: &Toolbox,
        view: &View,
        failed: &[(Arc<str>, Arc<str>)],
    ) -> String {
        let group = toolbox.name.as_str();
        let errors = failures(group, failed);
        if !errors.is_empty() && errors.len() == toolbox.servers.len() {
            return error_result(&[&errors.join("\n")]);
        }
        let entries = || view.group(group).filter(|entry| entry.up);
        let tools = match mode {
            Mode::Dynamic => {
                let count: usize = entries().map(|entry| entry.exposed.of(Kind::Tool).items().len()).sum();
                format!("\"tools_registered\":{count}")
            }
            Mode::Proxy => {
                let tools: Vec<_> = entries().flat_map(|entry| self.proxied(meta, entry)).collect();
                format!("\"tools\":[{}]", tools.join(","))
            }
        };
        // The lists of modern clients do not grow, so they find the rest of the toolbox here.
        let mut rest = String::new();
        for kind in [Kind::Resource, Kind::Template, Kind::Prompt].into_iter().filter(|_| modern) {
            let texts: Vec<_> = entries()
                .map(|entry| entry.rendered(self, kind).text())
                .filter(|text| !text.is_empty())
                .collect();
            if !texts.is_empty() {
                rest.push_str(&format!(",\"{}\":[{}]", kind.list_key(), texts.join(",")));
            }
        }
        let errors = match errors.is_empty() {
            true => String::new(),
            false => format!(
                ",\"_errors\":[{}]",
                errors.iter().map(|error| quote(error)).collect::<Vec<_>>().join(",")
            ),
        };
        value_result(&format!(
            "{{\"toolbox\":{},\"description\":{},\"servers_connected\":{},{tools}{rest}{errors}}}",
            quote(group),
            quote(&toolbox.description),
            entries().count(),
        ))
    }

    /// An entry's tools as proxy mode shows them.
    fn proxied(&self, meta: Meta, entry: &Entry) -> Vec<String> {
        let upstream = &entry.upstream;
        let exposed = entry.exposed.of(Kind::Tool).items().iter();
        exposed
            .map(|exposed| {
                let own_name = exposed.own.raw_key().to_owned();
                let (raw, names) = if meta.is_classic() {
                    let raw = entry.rendered(self, Kind::Tool).definition(exposed);
                    (raw, vec![("name", quote(&exposed.name)), ("original_name", own_name)])
                } else {
                    (exposed.own.raw(), vec![("name", own_name)])
                };
                proxied(raw, names, &upstream.group, &upstream.server)
            })
            .collect()
    }

    /// The answer to `workbench_list_toolboxes`.
    pub(super) fn toolboxes(&self, view: &View) -> String {
        let rows: Vec<_> = self
            .config
            .toolboxes
            .iter()
            .map(|toolbox| {
                let name = toolbox.name.as_str();
                let open = view.is_open(name);
                let count: usize = match open {
                    true => view.group(name).filter(|entry| entry.up).map(|entry| entry.exposed.of(Kind::Tool).items().len()).sum(),
                    false => 0,
                };
                let servers: Vec<_> = toolbox.servers.iter().map(|server| quote(server.name.as_str())).collect();
                format!(
                    "{{\"name\":{},\"description\":{},\"servers\":[{}],\"is_open\":{open},\"tool_count\":{count}}}",
                    quote(name),
                    quote(&toolbox.description),
                    servers.join(","),
                )
            })
            .collect();
        value_result(&format!("{{\"toolboxes\":[{}]}}", rows.join(",")))
    }

    /// The answer to closing.
    pub(super) fn closed_toolbox_answer(&self, toolbox: &str, tools: usize, servers: usize) -> String {
        value_result(&format!(
            "{{\"toolbox\":{},\"tools_unregistered\":{tools},\"servers_disconnected\":{servers}}}",
            quote(toolbox),
        ))
    }

    /// The answer to `find_tools`: tools that fit, and toolboxes that fit and whose tools are not known yet. Where
    /// nothing fits, it says what there is.
    pub(super) fn found_tools(&self, query: &str, tools: &[FoundThing<'_>], toolboxes: &[&str]) -> String {
        let entries: Vec<_> = tools
            .iter()
            .map(|found| {
                let name = ("name", found.item.raw_key().to_owned());
                proxied(found.item.raw(), vec![name], &found.place.0, &found.place.1)
            })
            .collect();
        let fitting: Vec<_> = toolboxes
            .iter()
            .filter_map(|name| self.toolbox(name))
            .map(|toolbox| {
                let (name, description) = (quote(toolbox.name.as_str()), quote(&toolbox.description));
                format!("{{\"name\":{name},\"description\":{description}}}")
            })
            .collect();
        let mut servers = String::new();
        if entries.is_empty() && fitting.is_empty() {
            let there = self.config.toolboxes.iter().map(|toolbox| {
                let names: Vec<_> =
                    toolbox.servers.iter().map(|server| quote(server.name.as_str())).collect();
                let name = quote(toolbox.name.as_str());
                format!("{{\"toolbox_name\":{name},\"servers\":[{}]}}", names.join(","))
            });
            servers = format!(",\"servers\":[{}]", there.collect::<Vec<_>>().join(","));
        }
        value_result(&format!(
            "{{\"query\":{},\"tools\":[{}],\"toolboxes\":[{}]{servers}}}",
            quote(query),
            entries.join(","),
            fitting.join(","),
        ))
    }

    /// A toolbox that was to open by itself for a call did not, or not the server that was meant.
    pub(super) fn did_not_open(
        &self,
        toolbox: &str,
        wanted: &str,
        failed: &[(Arc<str>, Arc<str>)],
    ) -> String {
        error_result(&[&format!("{wanted} cannot be called: {}", failures(toolbox, failed).join("\n"))])
    }

    /// A toolbox was closed before it had opened.
    pub(super) fn closed_meanwhile(&self, toolbox: &str, wanted: Option<&str>) -> String {
        let wanted = wanted.map(|wanted| format!("{wanted} cannot be called: ")).unwrap_or_default();
        error_result(&[&format!("{wanted}Toolbox '{toolbox}' was closed while it was being opened")])
    }

    /// No such toolbox.
    pub(super) fn not_configured(&self, name: &str, wanted: Option<&dyn Display>) -> String {
        let names: Vec<_> = self.config.toolboxes.iter().map(|toolbox| toolbox.name.as_str()).collect();
        let there = match names.is_empty() {
            true => "No toolboxes are configured.".to_owned(),
            false => format!("Configured toolboxes: {}", names.join(", ")),
        };
        let wanted = wanted.map(|tool| format!(", so {tool} cannot be called")).unwrap_or_default();
        error_result(&[&format!("Toolbox '{name}' not found in configuration{wanted}"), &there])
    }

    /// The toolbox would have to be open for this.
    pub(super) fn not_open(&self, toolbox: &str, wanted: Option<&dyn Display>) -> String {
        let wanted = wanted.map(|tool| format!(", so {tool} cannot be called")).unwrap_or_default();
        let open = self.open_tool().name();
        error_result(&[&format!(
            "Toolbox '{toolbox}' is not open{wanted}. Open it first: {open} {{\"toolbox_name\": {}}}",
            quote(toolbox)
        )])
    }

    /// An open toolbox has no such server or tool, or its filters leave the tool out.
    pub(super) fn no_such_tool(&self, view: &View, wanted: &Address<'_>) -> String {
        let servers: Vec<&str> = view.group(&wanted.toolbox).map(|entry| &*entry.upstream.server).collect();
        if !servers.contains(&&*wanted.server) {
            return error_result(&[&format!(
                "{wanted} does not exist: toolbox '{}' has no server '{}'. Its servers: {}",
                wanted.toolbox,
                wanted.server,
                servers.join(", "),
            )]);
        }
        let entries = view.group(&wanted.toolbox).filter(|entry| *entry.upstream.server == *wanted.server);
        let tools: Vec<&str> = entries
            .flat_map(|entry| entry.exposed.of(Kind::Tool).items().iter().map(|item| &*item.own.key))
            .collect();
        let near = nearest(&wanted.tool, tools.iter().copied(), 5);
        let hint = match (near.is_empty(), tools.is_empty()) {
            (false, _) => format!("Nearest names: {}", listed(&near)),
            (true, false) => {
                let more = tools.len().saturating_sub(10);
                let shown = listed(&tools[..tools.len().min(10)]);
                if more == 0 {
                    format!("Its tools: {shown}")
                } else {
                    format!("Its tools: {shown} and {more} more")
                }
            }
            (true, true) => "It has no tools that can be called".to_owned(),
        };
        error_result(&[&format!(
            "{wanted} does not exist: server '{}' in toolbox '{}' has no tool '{}'. {hint}",
            wanted.server, wanted.toolbox, wanted.tool,
        )])
    }

    /// No tool of that name: in the toolbox where it was looked for, or at all.
    pub(super) fn unknown_tool(&self, view: &View, toolbox: Option<&str>, name: &str) -> String {
        let own = self.callable().filter(|_| toolbox.is_none()).map(|meta| -> &str { meta.name() });
        let fits = |entry: &Entry| toolbox.is_none_or(|toolbox| *entry.upstream.group == *toolbox);
        let items = view.items(Kind::Tool).filter(|(entry, _)| fits(entry));
        let near = nearest(name, own.chain(items.map(|(_, item)| &*item.name)), 5);
        let open = self.open_tool().name();
        let hint = match near.is_empty() {
            true => format!("A toolbox must be open before its tools can be called: see {open}"),
            false => format!("Nearest names: {}", listed(&near)),
        };
        let place = toolbox.map(|toolbox| format!(" in toolbox '{toolbox}'")).unwrap_or_default();
        error_result(&[&format!("Tool '{name}' not found{place}. {hint}")])
    }
}

/// A definition as proxy mode shows it: names and place first, then all that the upstream sent.
fn proxied(raw: &str, mut first: Vec<(&str, String)>, toolbox: &str, server: &str) -> String {
    first.extend([("toolbox_name", quote(toolbox)), ("source_server", quote(server))]);
    let mut scanner = Scanner::default();
    let node = scanner.scan_str(raw).expect("definitions are valid JSON").root();
    let members: Vec<_> = first.iter().map(|(key, value)| format!("{}:{value}", quote(key))).collect();
    let gone: Vec<(&str, Option<&str>)> = first.iter().map(|(key, _)| (*key, None)).collect();
    let mut rest = Vec::new();
    node.write_with(&mut rest, &[&gone[..], &schema_change(node)[..]].concat());
    let rest = String::from_utf8(rest).expect("written from UTF-8 texts");
    match rest.as_str() {
        "{}" => format!("{{{}}}", members.join(",")),
        rest => format!("{{{},{}", members.join(","), &rest[1..]),
    }
}

/// Which servers failed and why, a text each.
fn failures(toolbox: &str, failed: &[(Arc<str>, Arc<str>)]) -> Vec<String> {
    let text = |(server, reason): &(Arc<str>, Arc<str>)| {
        format!("Failed to connect to server '{server}' in toolbox '{toolbox}': {reason}")
    };
    failed.iter().map(text).collect()
}

/// A result that holds one JSON value, for models as text and for programs as it is.
pub(super) fn value_result(value: &str) -> String {
    format!("{{\"content\":[{{\"type\":\"text\",\"text\":{}}}],\"structuredContent\":{value}}}", quote(value))
}

/// A result that tells the model what went wrong, a block a text.
pub(super) fn error_result(texts: &[&str]) -> String {
    let blocks: Vec<_> =
        texts.iter().map(|text| format!("{{\"type\":\"text\",\"text\":{}}}", quote(text))).collect();
    format!("{{\"content\":[{}],\"isError\":true}}", blocks.join(","))
}

/// A result for a call that its upstream answered with an error. Of one that is not as it should be we keep what there is.
pub(super) fn refused_call(address: &str, error: Node<'_>) -> String {
    let mut whole = Vec::new();
    write_sound_error(&mut whole, error);
    let whole = String::from_utf8(whole).expect("written from UTF-8 texts");
    let mut scanner = Scanner::default();
    let message = scanner.scan_str(&whole).expect("written as JSON").root().get("message");
    let message = message.and_then(Node::as_str).unwrap_or_default();
    failed_call(address, &message, &whole)
}

/// A result for a call that failed; `error` is the raw error object.
pub(super) fn failed_call(address: &str, message: &str, error: &str) -> String {
    format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{}}}],\"isError\":true,\"_meta\":{{\"mcp-workbench/error\":{error}}}}}",
        quote(&format!("[{address}] {message}")),
    )
}
