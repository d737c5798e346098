//! The results of meta-tools, and the errors that a model reads.

use std::fmt::Display;
use std::sync::Arc;

use super::{Address, Meta, Mode, Workbench};
use crate::apps::{exposed, placed};
use crate::catalog::{ExposedItem, Item, Kind, nearest, without_output_schema};
use crate::config::{MetaTools, Toolbox};
use crate::core::adapt;
use crate::core::view::{Entry, View};
use crate::face::arguments::Blocks;
use crate::face::brief::{DefinitionsAnswer, ToolEntry};
use crate::face::own_tool::error_result;
use crate::face::{FoundThing, Remembered, SearchResult, Viewer};
use crate::json::{Node, Scanner, quote};
use crate::protocol::message::write_sound_error;
use crate::text::{listed, one_line};

impl Workbench {
    /// The answer to an opening: what the client can use now, and which servers failed and why. Calls in our
    /// ancestor's form are answered as in proxy mode.
    pub(super) fn opened_toolbox(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        (meta, as_ancestor): (Meta, bool),
        toolbox: &Toolbox,
        failed: &[(Arc<str>, Arc<str>)],
    ) -> String {
        let group = toolbox.name.as_str();
        let errors = failures(group, failed);
        let late = view.group(group).any(|entry| entry.upstream.is_starting());
        if !late && !errors.is_empty() && errors.len() == toolbox.servers.len() {
            return error_result(&[&errors.join("\n")]);
        }
        let entries = || view.group(group).filter(|entry| entry.up);
        let mut rest = match view.tools_withheld(self, Some(group)) {
            0 => String::new(),
            count => format!(",\"tools_withheld\":{count}"),
        };
        // The lists of modern clients do not grow, so the answer shows them the rest of the toolbox.
        for kind in [Kind::Resource, Kind::Template, Kind::Prompt].into_iter().filter(|_| viewer.modern) {
            let texts: Vec<_> = entries()
                .map(|entry| entry.rendered_for(self, kind, viewer.renders_apps).text())
                .filter(|text| !text.is_empty())
                .collect();
            if !texts.is_empty() {
                rest.push_str(&format!(",\"{}\":[{}]", kind.list_key(), texts.join(",")));
            }
        }
        rest.push_str(&errors_member(&errors));
        let head = format!(
            "{{\"toolbox\":{},\"description\":{},\"servers_connected\":{}",
            quote(group),
            quote(&toolbox.description),
            entries().count(),
        );
        let takes = self.takes(viewer);
        let value = match self.mode_for(viewer) {
            Mode::Dynamic | Mode::Flat if !as_ancestor => {
                let count: usize = entries().map(|entry| for_model(viewer, entry).count()).sum();
                format!("{head},\"tools_registered\":{count}{rest}}}")
            }
            _ => {
                let mut tools: Vec<_> =
                    entries().flat_map(|entry| self.proxied(viewer, meta.is_classic(), entry)).collect();
                for tool in tools.iter_mut().filter(|_| as_ancestor) {
                    tool.also = [("toolbox", "toolbox_name"), ("server", "source_server")]
                        .map(|(key, same)| (key, tool.name(same).to_owned()))
                        .to_vec();
                }
                DefinitionsAnswer { head, tools, rest, describer: Meta::Describe.name() }.fit(takes.bytes)
            }
        };
        value_result(&value, takes.structured_content)
    }

    /// The answer to `describe_tools`: the whole definitions of these tools, and for tools without one the
    /// reason. Tools of closed toolboxes are described as they are remembered.
    pub(super) fn described_tools(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        wanted: &[Address<'_>],
        remembered: Option<&Remembered>,
    ) -> String {
        let (mut tools, mut errors) = (Vec::new(), Vec::new());
        for address in wanted {
            let described = match self.opens_by_itself(view, &address.toolbox) {
                true => self.described_closed(viewer, address, remembered),
                false => self.described_open(view, viewer, address),
            };
            match described {
                Ok(definition) => tools.push(definition),
                Err(blocks) => errors.push(blocks.join("\n")),
            }
        }
        let value = format!("{{\"tools\":[{}]{}}}", tools.join(","), errors_member(&errors));
        let result = value_result(&value, self.takes(viewer).structured_content);
        match tools.is_empty() {
            true => format!("{},\"isError\":true}}", &result[..result.len() - 1]),
            false => result,
        }
    }

    /// The whole definition of a tool in an open toolbox.
    fn described_open(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        wanted: &Address<'_>,
    ) -> Result<String, Blocks> {
        let target = self.find(view, viewer, wanted)?;
        let item = view.server(&wanted.toolbox, &wanted.server).and_then(|entry| {
            let item = entry.exposed.of(Kind::Tool).by_key(target.own_name())?;
            (!(viewer.renders_apps && target.is_app_only())).then_some((entry, item))
        });
        let (entry, item) = item.ok_or_else(|| self.no_such_tool(view, viewer, wanted))?;
        let by_registered = self.config.meta_tools == MetaTools::Classic || self.is_flat();
        Ok(self.proxied_tool(viewer, by_registered, entry, item).whole())
    }

    /// The whole definition of a tool in a closed toolbox, as it is remembered.
    fn described_closed(
        &self,
        viewer: &Viewer<'_>,
        wanted: &Address<'_>,
        remembered: Option<&Remembered>,
    ) -> Result<String, Blocks> {
        let (toolbox, server) = (&*wanted.toolbox, &*wanted.server);
        let servers = self.toolbox(toolbox).map_or(&[][..], |toolbox| &toolbox.servers);
        let Some(declared) = servers.iter().find(|other| other.name.as_str() == server) else {
            let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
            return Err(no_such_server(wanted, &names));
        };
        let guard = self.config.common.guard(toolbox, server);
        let items = remembered.and_then(|remembered| remembered.of(&declared.transport, guard.as_ref()));
        let Some(items) = items else { return Err(self.not_open(toolbox, Some(wanted))) };
        let allowed = |name: &str| declared.filter.allows(name);
        if let Some(why) = items.why_withheld(Kind::Tool, &wanted.tool).filter(|_| allowed(&wanted.tool)) {
            return Err(vec![format!("{toolbox}/{server}/{} cannot be used: {why}", one_line(&wanted.tool))]);
        }
        let shown = |item: &&Item| allowed(&item.key) && !(viewer.renders_apps && item.is_app_only());
        let tools: Vec<&Item> = items.of(Kind::Tool).iter().filter(shown).collect();
        let Some(tool) = tools.iter().find(|tool| *tool.key == *wanted.tool) else {
            return Err(not_among(wanted, &tools.iter().map(|tool| &*tool.key).collect::<Vec<_>>()));
        };
        let own_name = tool.raw_key().to_owned();
        let names = match self.config.meta_tools {
            MetaTools::Current => vec![("name", own_name)],
            MetaTools::Classic => {
                let full = [toolbox, server, &tool.key].join("__");
                vec![("name", quote(&full)), ("original_name", own_name)]
            }
        };
        Ok(self.proxied_as(viewer, names, [toolbox, server], tool.raw()).whole())
    }

    /// An entry's tools, as proxy mode shows them.
    fn proxied<'v>(
        &'v self,
        viewer: &'v Viewer<'_>,
        classic: bool,
        entry: &'v Entry,
    ) -> impl Iterator<Item = ToolEntry<'v>> {
        for_model(viewer, entry).map(move |tool| self.proxied_tool(viewer, classic, entry, tool))
    }

    fn proxied_tool<'v>(
        &self,
        viewer: &Viewer<'_>,
        classic: bool,
        entry: &'v Entry,
        tool: &'v ExposedItem,
    ) -> ToolEntry<'v> {
        let (own_name, place) =
            (tool.own.raw_key().to_owned(), [&*entry.upstream.group, &*entry.upstream.server]);
        match classic {
            true => {
                let names = vec![("name", quote(&tool.name)), ("original_name", own_name)];
                self.proxied_as(viewer, names, place, entry.rendered(self, Kind::Tool).definition(tool))
            }
            false => self.proxied_as(viewer, vec![("name", own_name)], place, tool.own.raw()),
        }
    }

    /// A definition as proxy mode shows it: names and place first, then everything that the upstream sent. An output
    /// schema is a promise that we cannot keep where we keep long results from the client.
    fn proxied_as<'v>(
        &self,
        viewer: &Viewer<'_>,
        mut names: Vec<(&'static str, String)>,
        place: [&str; 2],
        definition: &'v str,
    ) -> ToolEntry<'v> {
        names.extend([("toolbox_name", quote(place[0])), ("source_server", quote(place[1]))]);
        let definition = match self.offload_over(place).bytes(viewer.takes()) {
            Some(_) => without_output_schema(definition),
            None if viewer.modern => definition.into(),
            None => adapt::tool(definition),
        };
        let definition = match viewer.renders_apps {
            true => exposed(definition, &mut |uri| placed(uri, &place).into()),
            false => definition,
        };
        ToolEntry { names, also: Vec::new(), definition }
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
        let open = self.config.toolboxes.iter().filter(|toolbox| view.is_open(toolbox.name.as_str())).count();
        let value = format!(
            "{{\"toolboxes\":[{}],\"total_count\":{},\"open_count\":{open}}}",
            rows.join(","),
            rows.len()
        );
        value_result(&value, true)
    }

    /// The answer to a call that closed a toolbox.
    pub(super) fn closed_toolbox_answer(&self, toolbox: &str, tools: usize, servers: usize) -> String {
        let value = format!(
            "{{\"toolbox\":{},\"tools_unregistered\":{tools},\"servers_disconnected\":{servers}}}",
            quote(toolbox),
        );
        value_result(&value, true)
    }

    /// The answer to `find_tools`: tools that match, and toolboxes that match and whose tools are not known
    /// yet. If nothing matches, the answer says which toolboxes and servers there are, and which server comes
    /// near.
    pub(super) fn found_tools(&self, view: &View, viewer: &Viewer<'_>, search: &SearchResult<'_>) -> String {
        let mut tools = Vec::new();
        for FoundThing { place: (toolbox, server), item, .. } in &search.things {
            // Where everything is listed, a tool is called by the name in the list.
            let entry = view.server(toolbox, server).filter(|_| self.is_flat());
            let listed =
                entry.and_then(|entry| Some((entry, entry.exposed.of(Kind::Tool).by_key(&item.key)?)));
            tools.push(match listed {
                Some((entry, item)) => self.proxied_tool(viewer, true, entry, item),
                None => {
                    let names = vec![("name", item.raw_key().to_owned())];
                    self.proxied_as(viewer, names, [toolbox, server], item.raw())
                }
            });
        }
        let mut toolboxes: Vec<&str> = Vec::new();
        for (toolbox, _) in &search.unknown {
            if !toolboxes.contains(&toolbox.as_str()) {
                toolboxes.push(toolbox);
            }
        }
        let fitting: Vec<_> = toolboxes
            .iter()
            .filter_map(|name| self.toolbox(name))
            .map(|toolbox| {
                let (name, description) = (quote(toolbox.name.as_str()), quote(&toolbox.description));
                format!("{{\"name\":{name},\"description\":{description}}}")
            })
            .collect();
        let mut rest = format!(",\"toolboxes\":[{}]", fitting.join(","));
        if tools.is_empty() && fitting.is_empty() {
            let there = self.config.toolboxes.iter().map(|toolbox| {
                let names: Vec<_> =
                    toolbox.servers.iter().map(|server| quote(server.name.as_str())).collect();
                let name = quote(toolbox.name.as_str());
                format!("{{\"toolbox_name\":{name},\"servers\":[{}]}}", names.join(","))
            });
            rest.push_str(&format!(",\"servers\":[{}]", there.collect::<Vec<_>>().join(",")));
            if let Some((toolbox, server)) = &search.near {
                let hint = format!(
                    "No tool does this. Server '{server}' in toolbox '{toolbox}' comes nearest, but it has no such tool."
                );
                rest.push_str(&format!(",\"hint\":{}", quote(&hint)));
            }
        }
        let (head, describer) = (format!("{{\"query\":{}", quote(search.query)), Meta::Describe.name());
        let takes = self.takes(viewer);
        let value = DefinitionsAnswer { head, tools, rest, describer }.fit_found(takes.bytes);
        value_result(&value, takes.structured_content)
    }

    /// The error when a call needed a closed toolbox, and the toolbox, or the server that the call meant, did
    /// not open.
    pub(super) fn did_not_open(
        &self,
        toolbox: &str,
        wanted: &str,
        failed: &[(Arc<str>, Arc<str>)],
    ) -> String {
        error_result(&[&format!("{wanted} cannot be called: {}", failures(toolbox, failed).join("\n"))])
    }

    /// The error when a toolbox was closed before it was open.
    pub(super) fn closed_meanwhile(&self, toolbox: &str, wanted: Option<&str>) -> String {
        let wanted = wanted.map(|wanted| format!("{wanted} cannot be called: ")).unwrap_or_default();
        error_result(&[&format!("{wanted}Toolbox '{toolbox}' was closed while it was being opened")])
    }

    /// The error when there is no such toolbox.
    pub(super) fn not_configured(&self, name: &str, wanted: Option<&dyn Display>) -> Blocks {
        let names: Vec<_> = self.config.toolboxes.iter().map(|toolbox| toolbox.name.as_str()).collect();
        let there = match names.is_empty() {
            true => "No toolboxes are configured.".to_owned(),
            false => format!("Configured toolboxes: {}", names.join(", ")),
        };
        let wanted = wanted.map(|tool| format!(", so {tool} cannot be called")).unwrap_or_default();
        vec![format!("Toolbox '{name}' not found in configuration{wanted}"), there]
    }

    /// The error when a toolbox is closed that would have to be open.
    pub(super) fn not_open(&self, toolbox: &str, wanted: Option<&dyn Display>) -> Blocks {
        let wanted = wanted.map(|tool| format!(", so {tool} cannot be called")).unwrap_or_default();
        vec![format!("Toolbox '{toolbox}' is not open{wanted}. {}", self.how_to_open(toolbox))]
    }

    /// Tells the model which call opens a toolbox.
    pub(super) fn how_to_open(&self, toolbox: &str) -> String {
        format!("Open it first: {} {{\"toolbox_name\": {}}}", self.open_tool().name(), quote(toolbox))
    }

    /// The error when an open toolbox has no such server or tool, or its filters leave the tool out.
    pub(super) fn no_such_tool(&self, view: &View, viewer: &Viewer<'_>, wanted: &Address<'_>) -> Blocks {
        let servers: Vec<&str> = view.group(&wanted.toolbox).map(|entry| &*entry.upstream.server).collect();
        if !servers.contains(&&*wanted.server) {
            return no_such_server(wanted, &servers);
        }
        let entries = || view.group(&wanted.toolbox).filter(|entry| *entry.upstream.server == *wanted.server);
        if let Some(why) = entries().find_map(|entry| entry.why_withheld(self, Kind::Tool, &wanted.tool)) {
            return vec![why];
        }
        let tools = entries().flat_map(|entry| for_model(viewer, entry).map(|item| &*item.own.key));
        not_among(wanted, &tools.collect::<Vec<_>>())
    }

    /// The error when no tool has that name, either in one toolbox or anywhere.
    pub(super) fn unknown_tool(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        toolbox: Option<&str>,
        name: &str,
    ) -> Blocks {
        if let Some(why) = view.why_withheld(self, toolbox, Kind::Tool, name) {
            return vec![why];
        }
        // In flat mode nothing has to be opened, so what opens is not suggested. Whoever needs `read_result` was told of it.
        let own: Vec<_> = match self.is_flat() {
            true => self.listed(viewer).collect(),
            false => self.callable().filter(|meta| *meta != Meta::Read).collect(),
        };
        let own = own.iter().filter(|_| toolbox.is_none()).map(|meta| -> &str { meta.name() });
        let fits = |entry: &&Entry| toolbox.is_none_or(|toolbox| *entry.upstream.group == *toolbox);
        let entries = view.entries().filter(|entry| entry.is_listed()).filter(fits);
        let items = entries.flat_map(|entry| for_model(viewer, entry));
        let near = nearest(name, own.chain(items.map(|item| &*item.name)), 5);
        let hint = match near.is_empty() {
            false => format!("Nearest names: {}", listed(&near)),
            true if self.is_flat() => "All tools are in your tool list".to_owned(),
            true => {
                let open = self.open_tool().name();
                format!("A toolbox must be open before its tools can be called: see {open}")
            }
        };
        let place = toolbox.map(|toolbox| format!(" in toolbox '{toolbox}'")).unwrap_or_default();
        vec![format!("Tool '{name}' not found{place}. {hint}")]
    }

    /// The error when several servers of a toolbox have a tool of this name.
    pub(super) fn ambiguous_tool(&self, toolbox: &str, name: &str, meant: &[&str]) -> Blocks {
        vec![format!(
            "Several tools in toolbox '{toolbox}' are called '{name}': {}. Name one of them",
            listed(meant)
        )]
    }
}

/// The entry's tools that the model may read about. A host tells its model nothing about tools that only apps
/// call.
fn for_model<'a>(viewer: &Viewer<'_>, entry: &'a Entry) -> impl Iterator<Item = &'a ExposedItem> {
    let renders_apps = viewer.renders_apps;
    entry.exposed.of(Kind::Tool).items().iter().filter(move |item| !(renders_apps && item.own.is_app_only()))
}

/// The error when a toolbox, which has these servers, has no such server.
fn no_such_server(wanted: &Address<'_>, servers: &[&str]) -> Blocks {
    vec![format!(
        "{wanted} does not exist: toolbox '{}' has no server '{}'. Its servers: {}",
        wanted.toolbox,
        wanted.server,
        servers.join(", "),
    )]
}

/// The error when a server, which has these tools, has no such tool.
fn not_among(wanted: &Address<'_>, tools: &[&str]) -> Blocks {
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
    vec![format!(
        "{wanted} does not exist: server '{}' in toolbox '{}' has no tool '{}'. {hint}",
        wanted.server, wanted.toolbox, wanted.tool,
    )]
}

/// The `errors` member, with a comma before it.
fn errors_member(errors: &[String]) -> String {
    match errors {
        [] => String::new(),
        errors => {
            let errors: Vec<_> = errors.iter().map(|error| quote(error)).collect();
            format!(",\"_errors\":[{}]", errors.join(","))
        }
    }
}

/// Which servers failed and why, one text for each.
fn failures(toolbox: &str, failed: &[(Arc<str>, Arc<str>)]) -> Vec<String> {
    let text = |(server, reason): &(Arc<str>, Arc<str>)| {
        format!("Failed to connect to server '{server}' in toolbox '{toolbox}': {reason}")
    };
    failed.iter().map(text).collect()
}

/// A result that holds one JSON value: as text for models, and as structured content for programs. Structured
/// content is left out for a client that counts it against what the model gets.
fn value_result(value: &str, structured_content: bool) -> String {
    let structured =
        if structured_content { format!(",\"structuredContent\":{value}") } else { String::new() };
    format!("{{\"content\":[{{\"type\":\"text\",\"text\":{}}}]{structured}}}", quote(value))
}

/// The result of a tool call that failed, with this text.
pub fn failed_result(text: &str) -> String {
    error_result(&[text])
}

/// A result for a call that the upstream answered with an error. If the error is malformed, the result keeps
/// what there is of it.
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
