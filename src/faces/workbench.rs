//! The workbench: toolboxes that a model opens.

use std::borrow::Cow;
use std::sync::Arc;

use super::find;
use super::fit::{Listing, one_line};
use crate::config::{self, MetaTools, ToolMode, Toolbox};
use crate::core::catalog::{Item, Items, Kind, NameLimits, has_schema, nearest};
use crate::core::upstream::Upstream;
use crate::core::view::{Entry, Exposure, View};
use crate::wire::era::ClientHello;
use crate::wire::json::{Node, Scanner, quote};

/// The face, as configured.
pub struct Workbench {
    /// The file.
    pub config: config::Workbench,
}

/// A tool of the gateway's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// `open_toolbox`
    Open,
    /// `use_tool`
    Use,
    /// `find_tools`, where search is on
    Find,
    /// `workbench_list_toolboxes`
    ClassicList,
    /// `workbench_open_toolbox`
    ClassicOpen,
    /// `workbench_close_toolbox`
    ClassicClose,
    /// `workbench_use_tool`
    ClassicUse,
}

/// How opened tools reach one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Registered under names of their own.
    Dynamic,
    /// Called through `use_tool`.
    Proxy,
}

/// The address of a tool, as `use_tool` gives it.
#[derive(Debug, PartialEq, Eq)]
pub struct Address<'a> {
    /// Toolbox.
    pub toolbox: Cow<'a, str>,
    /// Server in it.
    pub server: Cow<'a, str>,
    /// The server's own name for the tool.
    pub tool: Cow<'a, str>,
}

/// A tool that a search found.
pub struct FoundTool<'a> {
    /// The toolbox it is in.
    pub toolbox: &'a str,
    /// Its server there.
    pub server: &'a str,
    /// As its server defined it.
    pub item: &'a Item,
}

/// Clients that take up lists that changed, by the beginning or the whole of their name, in lower case.
const DYNAMIC_CLIENTS: [&str; 4] = ["claude-code", "gemini-cli-mcp-client", "cline", "zed"];
const DYNAMIC_PREFIX: &str = "goose";

/// Where the definition of a tool says whose it is.
const ORIGIN: &str = "mcp-workbench/origin";

impl Meta {
    /// All of them: each can be called at any time, listed or not, [`Self::Find`] where search is on.
    const ALL: [Self; 7] = [
        Self::Open,
        Self::Use,
        Self::Find,
        Self::ClassicList,
        Self::ClassicOpen,
        Self::ClassicClose,
        Self::ClassicUse,
    ];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open_toolbox",
            Self::Use => "use_tool",
            Self::Find => "find_tools",
            Self::ClassicList => "workbench_list_toolboxes",
            Self::ClassicOpen => "workbench_open_toolbox",
            Self::ClassicClose => "workbench_close_toolbox",
            Self::ClassicUse => "workbench_use_tool",
        }
    }

    /// Whether it belongs to the classic contract.
    pub fn is_classic(self) -> bool {
        !matches!(self, Self::Open | Self::Use | Self::Find)
    }
}

impl Workbench {
    /// The mode for a client.
    pub fn mode(&self, client: Option<&ClientHello>) -> Mode {
        match self.config.tool_mode {
            ToolMode::Dynamic => Mode::Dynamic,
            ToolMode::Proxy => Mode::Proxy,
            ToolMode::Auto => {
                let name = client.map(|client| client.name.to_lowercase()).unwrap_or_default();
                let dynamic = DYNAMIC_CLIENTS.contains(&&*name) || name.starts_with(DYNAMIC_PREFIX);
                if dynamic { Mode::Dynamic } else { Mode::Proxy }
            }
        }
    }

    /// The toolbox with this name.
    pub fn toolbox(&self, name: &str) -> Option<&Toolbox> {
        self.config.toolboxes.iter().find(|toolbox| toolbox.name.as_str() == name)
    }

    /// The meta-tools that can be called, listed or not.
    fn callable(&self) -> impl Iterator<Item = Meta> {
        Meta::ALL.into_iter().filter(|meta| *meta != Meta::Find || self.config.search)
    }

    /// The meta-tool with this name.
    pub fn meta(&self, name: &str) -> Option<Meta> {
        self.callable().find(|meta| meta.name() == name)
    }

    /// The meta-tools that a client sees, in order.
    fn listed(&self, mode: Mode) -> impl Iterator<Item = Meta> {
        let listed: &[Meta] = match (self.config.meta_tools, mode) {
            (MetaTools::Current, Mode::Dynamic) => &[Meta::Open],
            (MetaTools::Current, Mode::Proxy) => &[Meta::Open, Meta::Use],
            (MetaTools::Classic, Mode::Dynamic) => {
                &[Meta::ClassicList, Meta::ClassicOpen, Meta::ClassicClose]
            }
            (MetaTools::Classic, Mode::Proxy) => {
                &[Meta::ClassicList, Meta::ClassicOpen, Meta::ClassicClose, Meta::ClassicUse]
            }
        };
        listed.iter().copied().chain(self.config.search.then_some(Meta::Find))
    }

    /// The text of the handshake: which toolboxes there are and how to use them.
    pub fn instructions(&self, mode: Mode) -> String {
        let (open, example) = (self.open_tool().name(), self.example());
        if self.config.toolboxes.is_empty() {
            return "No toolboxes are configured, so there is nothing to open. Ask the user to add MCP servers under \
                    \"toolboxes\" in workbench-config.json."
                .to_owned();
        }
        let how = match (self.config.meta_tools, mode) {
            (_, Mode::Dynamic) => format!(
                "Call {open} {{\"toolbox_name\": {example}}} to open a toolbox. Its tools then appear in your tool list, \
                 named toolbox__server__tool.",
            ),
            (MetaTools::Current, Mode::Proxy) => format!(
                "Call {open} {{\"toolbox_name\": {example}}} to open a toolbox and see its tools, then call one with \
                 use_tool {{\"tool\": {{\"toolbox\": {example}, \"server\": \"…\", \"tool\": \"…\"}}, \"arguments\": {{…}}}}.",
            ),
            (MetaTools::Classic, Mode::Proxy) => format!(
                "Call {open} {{\"toolbox_name\": {example}}} to open a toolbox and see its tools, then call one with \
                 workbench_use_tool {{\"toolbox_name\": {example}, \"tool_name\": \"…\", \"arguments\": {{…}}}}.",
            ),
        };
        let closing = match self.config.meta_tools {
            MetaTools::Current => "Toolboxes stay open.",
            MetaTools::Classic => {
                "workbench_list_toolboxes shows what is open, workbench_close_toolbox closes a toolbox."
            }
        };
        let find = match self.config.search {
            true => {
                " find_tools searches the tools of all toolboxes, open or not: name a platform and what it is to do."
            }
            false => "",
        };
        self.listing("Tools of many MCP servers, grouped in toolboxes that you open when you need them.\n\nToolboxes:\n",
            &format!("\n{how} {closing}{find}"))
    }

    /// The definitions of the meta-tools that a client sees, separated by commas.
    pub fn meta_tools(&self, mode: Mode) -> String {
        self.listed(mode).map(|meta| self.definition(meta, mode)).collect::<Vec<_>>().join(",")
    }

    fn definition(&self, meta: Meta, mode: Mode) -> String {
        let example = self.example();
        let name = "{\"type\":\"string\",\"minLength\":1,\"description\":\"Name of the toolbox to open\"}";
        let (open, of_open) = match self.config.search {
            true => ("a toolbox, which opens by itself", "Name of the toolbox"),
            false => ("an open toolbox", "Name of an open toolbox"),
        };
        let (description, schema) = match meta {
            Meta::Open | Meta::ClassicOpen => {
                let then = match mode {
                    Mode::Dynamic => "Its tools are then added to your tool list.",
                    Mode::Proxy => "The answer lists its tools with their schemas.",
                };
                let head = format!(
                    "Open a toolbox: a group of MCP servers. {then} Opening twice does no harm. \
                     Example: {{\"toolbox_name\": {example}}}\n\nToolboxes:\n"
                );
                (self.listing(&head, ""), object(&[("toolbox_name", name)], &["toolbox_name"]))
            }
            Meta::Use => {
                let part = |what: &str| {
                    format!("{{\"type\":\"string\",\"minLength\":1,\"description\":{}}}", quote(what))
                };
                let (toolbox, server, tool) =
                    (part(of_open), part("Its server, source_server in the answer of open_toolbox"), part("The tool's name there"));
                let address = object(&[("toolbox", &toolbox), ("server", &server), ("tool", &tool)], &["toolbox", "server", "tool"]);
                let arguments = "{\"type\":\"object\",\"description\":\"What the tool's inputSchema asks for\"}";
                (
                    format!(
                        "Call a tool of {open}. Example: {{\"tool\": {{\"toolbox\": {example}, \"server\": \
                         \"filesystem\", \"tool\": \"read_file\"}}, \"arguments\": {{\"path\": \"README.md\"}}}}"
                    ),
                    object(&[("tool", &address), ("arguments", arguments)], &["tool"]),
                )
            }
            Meta::Find => (self.find_description(mode), find::schema("Most tools to answer with")),
            Meta::ClassicList => (
                "List the toolboxes: name, description, servers, whether it is open, number of tools. Example: {}".to_owned(),
                object(&[], &[]),
            ),
            Meta::ClassicClose => {
                let name = "{\"type\":\"string\",\"minLength\":1,\"description\":\"Name of the toolbox to close\"}";
                (
                    format!("Close an open toolbox: its tools go, its servers end. Example: {{\"toolbox_name\": {example}}}"),
                    object(&[("toolbox_name", name)], &["toolbox_name"]),
                )
            }
            Meta::ClassicUse => {
                let toolbox = format!("{{\"type\":\"string\",\"minLength\":1,\"description\":\"{of_open}\"}}");
                let tool = "{\"type\":\"string\",\"minLength\":1,\"description\":\"Name of the tool as opening listed it: toolbox__server__tool\"}";
                let arguments = "{\"type\":\"object\",\"description\":\"What the tool's inputSchema asks for\"}";
                (
                    format!(
                        "Call a tool of {open}. Example: {{\"toolbox_name\": {example}, \"tool_name\": \
                         \"{}__filesystem__read_file\", \"arguments\": {{\"path\": \"README.md\"}}}}",
                        example.trim_matches('"'),
                    ),
                    object(
                        &[("toolbox_name", &toolbox), ("tool_name", tool), ("arguments", arguments)],
                        &["toolbox_name", "tool_name"],
                    ),
                )
            }
        };
        format!(
            "{{\"name\":{},\"description\":{},\"inputSchema\":{schema}}}",
            quote(meta.name()),
            quote(&description)
        )
    }

    /// Says what is behind the search, since a model that does not know will not search.
    fn find_description(&self, mode: Mode) -> String {
        let open = self.open_tool().name();
        let then = match (self.config.meta_tools, mode) {
            (_, Mode::Dynamic) => format!("open the toolbox of one with {open}, then call it"),
            (MetaTools::Current, Mode::Proxy) => {
                "call one with use_tool; its toolbox opens by itself".to_owned()
            }
            (MetaTools::Classic, Mode::Proxy) => {
                "call one with workbench_use_tool as toolbox__server__tool; its toolbox opens by itself"
                    .to_owned()
            }
        };
        let head = format!(
            "Find tools by what they do, in all toolboxes, open or not. Ask for platform + capability in a few words. The \
             answer holds the best tools with their schemas: {then}. Nothing found means that nothing fits; other words \
             for the same will not help. Example: {{\"query\": \"github create issue\"}}\n\nToolboxes and their servers:\n"
        );
        let rows: Vec<_> = self
            .config
            .toolboxes
            .iter()
            .map(|toolbox| {
                let servers: Vec<&str> = toolbox.servers.iter().map(|server| server.name.as_str()).collect();
                let about = match toolbox.description.is_empty() {
                    true => servers.join(", "),
                    false => format!("{} ({})", servers.join(", "), toolbox.description),
                };
                (format!("- {}", toolbox.name), one_line(&about))
            })
            .collect();
        let omitted = |count| format!("- … and {count} more");
        Listing { head: &head, rows: &rows, omitted: &omitted, tail: "" }.fit(self.config.instructions_limit)
    }

    /// The answer to `find_tools`: tools that fit, and toolboxes that fit and whose tools are not known yet. Where
    /// nothing fits, it says what there is.
    pub fn found(&self, query: &str, tools: &[FoundTool<'_>], toolboxes: &[&str]) -> String {
        let entries: Vec<_> = tools
            .iter()
            .map(|found| {
                let name = ("name", found.item.raw_key().to_owned());
                proxied(found.item.raw(), vec![name], found.toolbox, found.server)
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

    /// The closed toolbox whose tool would be registered under this name, and the server there. `remembered` tells
    /// what a server is known to offer.
    pub fn closed_toolbox_of(
        &self,
        view: &View,
        name: &str,
        remembered: impl Fn(&config::Server) -> Option<Items>,
    ) -> Option<(&Toolbox, &str)> {
        let closed = || {
            let closed = self.config.toolboxes.iter().filter(|toolbox| !view.is_open(toolbox.name.as_str()));
            closed.flat_map(|toolbox| toolbox.servers.iter().map(move |server| (toolbox, server)))
        };
        let prefix =
            |toolbox: &Toolbox, server: &config::Server| format!("{}__{}__", toolbox.name, server.name);
        let plain = closed().find(|(toolbox, server)| name.starts_with(&prefix(toolbox, server)));
        let altered = |(toolbox, server): &(&Toolbox, &Arc<config::Server>)| {
            remembered(server).is_some_and(|items| {
                items.of(Kind::Tool).iter().any(|item| {
                    let full = format!("{}{}", prefix(toolbox, server), item.key);
                    let origin = [toolbox.name.as_str(), server.name.as_str(), &item.key];
                    !self.limits().fits(&full) && self.limits().marked(&full, &origin, 0) == name
                })
            })
        };
        plain.or_else(|| closed().find(altered)).map(|(toolbox, server)| (toolbox, server.name.as_str()))
    }

    /// A toolbox that was to open by itself for a call did not, or not the server that was meant.
    pub fn did_not_open(&self, toolbox: &str, wanted: &str, failed: &[(Arc<str>, Arc<str>)]) -> String {
        error_result(&[&format!("{wanted} cannot be called: {}", failures(toolbox, failed).join("\n"))])
    }

    /// A toolbox was closed before it had opened.
    pub fn closed_meanwhile(&self, toolbox: &str, wanted: Option<&str>) -> String {
        let wanted = wanted.map(|wanted| format!("{wanted} cannot be called: ")).unwrap_or_default();
        error_result(&[&format!("{wanted}Toolbox '{toolbox}' was closed while it was being opened")])
    }

    fn listing(&self, head: &str, tail: &str) -> String {
        let rows: Vec<_> = self
            .config
            .toolboxes
            .iter()
            .map(|toolbox| {
                let servers = match toolbox.servers.len() {
                    1 => "1 server".to_owned(),
                    count => format!("{count} servers"),
                };
                (format!("- {} ({servers})", toolbox.name), one_line(&toolbox.description))
            })
            .collect();
        let all = match self.config.meta_tools {
            MetaTools::Current => "open_toolbox with any other name lists all of them",
            MetaTools::Classic => "workbench_list_toolboxes lists all of them",
        };
        let omitted = |count| format!("- … and {count} more: {all}");
        Listing { head, rows: &rows, omitted: &omitted, tail }.fit(self.config.instructions_limit)
    }

    fn open_tool(&self) -> Meta {
        match self.config.meta_tools {
            MetaTools::Current => Meta::Open,
            MetaTools::Classic => Meta::ClassicOpen,
        }
    }

    /// The first toolbox's name as JSON, for examples.
    fn example(&self) -> String {
        quote(self.config.toolboxes.first().map_or("dev", |toolbox| toolbox.name.as_str()))
    }

    /// The answer to opening: what the client can use now, and which servers failed and why.
    pub fn opened(
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
    pub fn toolboxes(&self, view: &View) -> String {
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
    pub fn closed(&self, toolbox: &str, tools: usize, servers: usize) -> String {
        value_result(&format!(
            "{{\"toolbox\":{},\"tools_unregistered\":{tools},\"servers_disconnected\":{servers}}}",
            quote(toolbox),
        ))
    }

    /// No such toolbox.
    pub fn not_configured(&self, name: &str, wanted: Option<&Address<'_>>) -> String {
        let names: Vec<_> = self.config.toolboxes.iter().map(|toolbox| toolbox.name.as_str()).collect();
        let there = match names.is_empty() {
            true => "No toolboxes are configured.".to_owned(),
            false => format!("Configured toolboxes: {}", names.join(", ")),
        };
        let wanted = wanted.map(|address| format!(", so {address} cannot be called")).unwrap_or_default();
        error_result(&[&format!("Toolbox '{name}' not found in configuration{wanted}"), &there])
    }

    /// The toolbox would have to be open for this.
    pub fn not_open(&self, toolbox: &str, wanted: Option<&Address<'_>>) -> String {
        let wanted = wanted.map(|address| format!(", so {address} cannot be called")).unwrap_or_default();
        let open = self.open_tool().name();
        error_result(&[&format!(
            "Toolbox '{toolbox}' is not open{wanted}. Open it first: {open} {{\"toolbox_name\": {}}}",
            quote(toolbox)
        )])
    }

    /// An open toolbox has no such server or tool, or its filters leave the tool out.
    pub fn no_such_tool(&self, view: &View, wanted: &Address<'_>) -> String {
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
            (false, _) => format!("Nearest names: {}", near.join(", ")),
            (true, false) => {
                let more = tools.len().saturating_sub(10);
                let shown = tools[..tools.len().min(10)].join(", ");
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

    /// No tool of that name at all.
    pub fn unknown_tool(&self, view: &View, name: &str) -> String {
        let own = self.callable().map(|meta| -> &str { meta.name() });
        let names = own.chain(view.items(Kind::Tool).map(|(_, item)| &*item.name));
        let near = nearest(name, names, 5);
        let open = self.open_tool().name();
        let hint = match near.is_empty() {
            true => format!("A toolbox must be open before its tools can be called: see {open}"),
            false => format!("Nearest names: {}", near.join(", ")),
        };
        error_result(&[&format!("Tool '{name}' not found. {hint}")])
    }
}

impl std::fmt::Display for Address<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}/{}", self.toolbox, self.server, self.tool)
    }
}

impl Exposure for Workbench {
    fn full_name(&self, upstream: &Upstream, kind: Kind, key: &str) -> String {
        match kind {
            Kind::Tool | Kind::Prompt => [&*upstream.group, "__", &upstream.server, "__", key].concat(),
            Kind::Resource | Kind::Template => {
                format!(
                    "workbench://{}/{}/{key}",
                    percent_encoded(&upstream.group),
                    percent_encoded(&upstream.server)
                )
            }
        }
    }

    fn render(&self, upstream: &Upstream, kind: Kind, name: &str, definition: Node<'_>, out: &mut Vec<u8>) {
        let (name, own_name) = (quote(name), definition.get(kind.key()).map_or("null", Node::raw));
        match kind {
            Kind::Tool => {
                let (toolbox, server) = (quote(&upstream.group), quote(&upstream.server));
                let prefix = quote(&["[", &upstream.group, "/", &upstream.server, "]"].concat());
                let description = match definition.get("description").filter(|node| node.is_string()) {
                    Some(own) if own.raw() != "\"\"" => {
                        [&prefix[..prefix.len() - 1], " ", &own.raw()[1..]].concat()
                    }
                    _ => prefix,
                };
                let origin =
                    ["{\"toolbox\":", &toolbox, ",\"server\":", &server, ",\"tool\":", own_name, "}"]
                        .concat();
                let meta = match definition.get("_meta") {
                    Some(own) => {
                        let mut meta = Vec::new();
                        own.write_with(&mut meta, &[(ORIGIN, Some(&*origin))]);
                        String::from_utf8(meta).expect("written from UTF-8 texts")
                    }
                    None => ["{\"", ORIGIN, "\":", &origin, "}"].concat(),
                };
                let schema = schema_change(definition);
                let own =
                    [("name", Some(&*name)), ("description", Some(&*description)), ("_meta", Some(&*meta))];
                definition.write_with(out, &[&own[..], &schema[..]].concat());
            }
            Kind::Prompt | Kind::Resource | Kind::Template => {
                definition.write_with(out, &[(kind.key(), Some(&*name))])
            }
        }
    }

    fn limits(&self) -> NameLimits {
        NameLimits { rule: self.config.common.names, length: self.config.common.max_name_length }
    }

    fn lists(&self, client: Option<&ClientHello>, kind: Kind) -> bool {
        kind != Kind::Tool || self.mode(client) == Mode::Dynamic
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

/// The name of a toolbox, from the arguments of a meta-tool; the error is a result for the model.
pub fn toolbox_name<'a>(arguments: Option<Node<'a>>) -> Result<Cow<'a, str>, String> {
    Arguments::read(arguments, ["toolbox_name"])?.text(0)
}

/// The address and the arguments for the tool, from the arguments of `use_tool`.
pub fn use_tool<'a>(arguments: Option<Node<'a>>) -> Result<(Address<'a>, Option<Node<'a>>), String> {
    let outer = Arguments::read(arguments, ["tool", "arguments"])?;
    let tool = match outer.value(0)? {
        Some(tool) if tool.is_object() => tool,
        _ => return Err(invalid("tool must be an object with toolbox, server and tool")),
    };
    let parts = Arguments::read(Some(tool), ["toolbox", "server", "tool"])?;
    let address = Address { toolbox: parts.text(0)?, server: parts.text(1)?, tool: parts.text(2)? };
    Ok((address, outer.object(1)?))
}

/// Toolbox, concatenated name and arguments of a call.
pub type ClassicCall<'a> = (Cow<'a, str>, Cow<'a, str>, Option<Node<'a>>);

/// The parts of a call, from the arguments of `workbench_use_tool`.
pub fn classic_use_tool<'a>(arguments: Option<Node<'a>>) -> Result<ClassicCall<'a>, String> {
    let outer = Arguments::read(arguments, ["toolbox_name", "tool_name", "arguments"])?;
    Ok((outer.text(0)?, outer.text(1)?, outer.object(2)?))
}

/// Checks that a meta-tool that takes nothing was given nothing.
pub fn no_arguments(arguments: Option<Node<'_>>) -> Result<(), String> {
    arguments.map_or(Ok(()), |arguments| Arguments::read(Some(arguments), []).map(drop))
}

/// The arguments of a meta-tool, by their place among the keys that it knows.
struct Arguments<'a, const N: usize> {
    keys: [&'static str; N],
    found: [Option<Node<'a>>; N],
    twice: [bool; N],
}

impl<'a, const N: usize> Arguments<'a, N> {
    /// Looks at every member once; keys that are not known are an error.
    fn read(arguments: Option<Node<'a>>, keys: [&'static str; N]) -> Result<Self, String> {
        let object = match arguments {
            Some(arguments) if arguments.is_object() => arguments,
            Some(_) => return Err(invalid("arguments must be an object")),
            None => return Err(invalid(&format!("{} is required", keys.first().unwrap_or(&"")))),
        };
        let mut read = Self { keys, found: [None; N], twice: [false; N] };
        let mut unknown = Vec::new();
        for (key, node) in object.members() {
            match keys.iter().position(|known| *known == key) {
                Some(at) => read.twice[at] |= read.found[at].replace(node).is_some(),
                None => unknown.push(format!("'{key}'")),
            }
        }
        match &*unknown {
            [] => Ok(read),
            [one] => Err(invalid(&format!("Unrecognized key: {one}"))),
            several => Err(invalid(&format!("Unrecognized keys: {}", several.join(", ")))),
        }
    }

    fn value(&self, at: usize) -> Result<Option<Node<'a>>, String> {
        match self.twice[at] {
            true => Err(invalid(&format!("{} stands twice", self.keys[at]))),
            false => Ok(self.found[at]),
        }
    }

    fn text(&self, at: usize) -> Result<Cow<'a, str>, String> {
        let key = self.keys[at];
        match self.value(at)?.map(Node::as_str) {
            None => Err(invalid(&format!("{key} is required and must be a string"))),
            Some(None) => Err(invalid(&format!("{key} must be a string"))),
            Some(Some(text)) if text.trim().is_empty() => Err(invalid(&format!("{key} cannot be empty"))),
            Some(Some(text)) => Ok(text),
        }
    }

    fn object(&self, at: usize) -> Result<Option<Node<'a>>, String> {
        match self.value(at)? {
            Some(value) if !value.is_object() => {
                Err(invalid(&format!("{} must be an object", self.keys[at])))
            }
            value => Ok(value),
        }
    }
}

fn invalid(what: &str) -> String {
    error_result(&[&format!("Invalid parameters: {what}")])
}

/// Strict clients reject a whole list over one tool whose `inputSchema` is no schema.
pub(super) fn schema_change(tool: Node<'_>) -> Vec<(&'static str, Option<&'static str>)> {
    if has_schema(tool) { Vec::new() } else { vec![("inputSchema", Some("{\"type\":\"object\"}"))] }
}

fn object(properties: &[(&str, &str)], required: &[&str]) -> String {
    let properties: Vec<_> =
        properties.iter().map(|(key, schema)| format!("{}:{schema}", quote(key))).collect();
    let required: Vec<_> = required.iter().map(|key| quote(key)).collect();
    let required =
        if required.is_empty() { String::new() } else { format!(",\"required\":[{}]", required.join(",")) };
    format!(
        "{{\"type\":\"object\",\"properties\":{{{}}}{required},\"additionalProperties\":false}}",
        properties.join(",")
    )
}

/// A result that holds one JSON value, for models as text and for programs as it is.
pub fn value_result(value: &str) -> String {
    format!("{{\"content\":[{{\"type\":\"text\",\"text\":{}}}],\"structuredContent\":{value}}}", quote(value))
}

/// A result that tells the model what went wrong, a block a text.
pub fn error_result(texts: &[&str]) -> String {
    let blocks: Vec<_> =
        texts.iter().map(|text| format!("{{\"type\":\"text\",\"text\":{}}}", quote(text))).collect();
    format!("{{\"content\":[{}],\"isError\":true}}", blocks.join(","))
}

/// A result for a call that its upstream answered with an error, or not at all; `error` is the raw error object.
pub fn failed_call(address: &str, message: &str, error: &str) -> String {
    format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{}}}],\"isError\":true,\"_meta\":{{\"mcp-workbench/error\":{error}}}}}",
        quote(&format!("[{address}] {message}")),
    )
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
