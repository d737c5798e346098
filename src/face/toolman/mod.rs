//! The Toolman face: one catalog of everything, and one tool that switches its parts on and off. The gateway
//! calls it through [`Face`](super::Face); `decide` interprets requests.

mod decide;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::arguments::{Arguments, Blocks, invalid};
use super::brief::{DefinitionsAnswer, ToolEntry, brief_resource};
use super::fit::{About, Listing, ListingRow};
use super::glob::Glob;
use super::own_tool::{Effect, OwnTool};
use super::{SearchResult, Viewer, find, name_limits, reading};
use crate::catalog::{Definition, ExposedItem, Kind, NameLimits, nearest};
use crate::config::{self, ByteLimit};
use crate::core::upstream::Upstream;
use crate::core::view::{Clash, Entry, Exposure, Look, Renderer, View};
use crate::json::{Node, Scanner, escaped, quote};
use crate::known_clients::Behaviour;
use crate::protocol::era::ClientHello;
use crate::protocol::message::Refusal;
use crate::text::{listed, one_line};

/// The tool that switches things on and off.
pub const ACTIVATE: &str = "toolman_activate";
/// The tool that calls another tool by its name.
pub const CALL: &str = "toolman_call";
/// The search tool, offered where search is on.
pub const FIND: &str = "toolman_find";
/// The tool that gives the definitions of what a search showed in brief, offered where search is on.
pub const DESCRIBE: &str = "toolman_describe";
/// The tool that reads results that were too long.
pub const READ: &str = "toolman_read_result";
/// The resource that holds the catalog.
pub const CATALOG: &str = "toolman://catalog";

/// Stands between the namespace and the URI of a resource unless the file says otherwise. No URI scheme may
/// contain it, but other programs that read such files use it too, and most clients do not mind.
const SEPARATOR: &str = "_";
/// Stands in the same place in the spelling that every client accepts.
const STRICT_SEPARATOR: &str = "+";
/// The most characters of a description in the catalog.
const DESCRIPTION: usize = 132;
/// The most bytes of a description that clients show.
const DESCRIPTION_LIMIT: usize = 2048;
/// The most names that one call of `toolman_describe` may give.
const MOST_DESCRIBED: usize = 20;
/// How many similar names are shown for an unknown one.
const SIMILAR: usize = 3;

/// The face, as configured.
pub struct Toolman {
    /// The configuration file.
    pub config: config::Toolman,
    active: Vec<Glob>,
    /// The key of each server of the file, which stays the same when the file changes around the server.
    /// Namespaces cannot serve as keys, since they need not be unique.
    keys: Vec<Arc<str>>,
}

/// The arguments of `toolman_activate`: its four lists.
#[derive(Debug, PartialEq, Eq)]
pub struct Switches {
    tools_on: Vec<String>,
    tools_off: Vec<String>,
    resources_on: Vec<String>,
    resources_off: Vec<String>,
}

/// What a valid call of `toolman_activate` changes, by full names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SwitchChange {
    /// Switched on: tools, resources.
    pub on: [Vec<Arc<str>>; 2],
    /// Switched off: tools, resources.
    pub off: [Vec<Arc<str>>; 2],
}

impl Toolman {
    /// Compiles the file's patterns.
    pub fn new(config: config::Toolman) -> Self {
        let keys = config.servers.iter().map(|_| new_key()).collect();
        Self::with_keys(config, keys)
    }

    fn with_keys(config: config::Toolman, keys: Vec<Arc<str>>) -> Self {
        let active = config.active_toolsets.iter().map(|pattern| Glob::new(pattern)).collect();
        Self { config, active, keys }
    }

    fn separator(&self) -> &str {
        self.config.resource_separator.as_deref().unwrap_or(SEPARATOR)
    }

    /// How long results of each server may be before we keep them.
    fn offloading(&self) -> impl Iterator<Item = ByteLimit> + Clone {
        self.config.servers.iter().map(|server| server.offload_over)
    }

    /// The `instructions` of the handshake.
    fn introduction(&self) -> String {
        let find = match self.config.search {
            true => format!(" {FIND} searches it: name a platform and what it is to do."),
            false => String::new(),
        };
        format!(
            "Many MCP servers behind one. Tools and resources can be used once they are active: {ACTIVATE} switches them \
             on and off, and its description lists all there are, active ones marked *. Called with four empty lists it \
             shows the whole catalog.{find}"
        )
    }

    /// The definition of `toolman_find`. It says what a search can find, since a model that does not know
    /// will not search.
    fn find_tool(&self) -> String {
        let head = format!(
            "Find tools and resources by what they do, active or not. Ask for platform + capability in a few words. The answer \
             holds the best, the first three tools with their schemas, the others in brief ({DESCRIBE} gives their schemas); \
             what is not active is switched on with {ACTIVATE} first. Nothing found means \
             that nothing fits; other words for the same will not help. Example: {{\"query\": \"github create issue\"}}\n\n\
             Servers:\n"
        );
        let mut rows: Vec<ListingRow> = Vec::new();
        for server in self.config.servers.iter().filter(|server| !server.namespace.is_empty()) {
            let head = format!("- {}", one_line(&server.namespace));
            if !rows.iter().any(|row| row.head == head) {
                rows.push(ListingRow { head, about: About::Text(String::new()) });
            }
        }
        let omitted = |count| format!("- … and {count} more");
        let description =
            Listing { head: &head, rows: &rows, omitted: &omitted, tail: "" }.fit(DESCRIPTION_LIMIT);
        let (title, effect) = ("Find tools", Effect::Describes);
        let input_schema = find::schema("Most tools and resources to answer with");
        OwnTool { name: FIND, title, effect, description: &description, input_schema: &input_schema }
            .definition()
    }

    /// The definitions of the tools that are offered where search is on.
    fn search_tools(&self) -> String {
        format!("{},{}", self.find_tool(), self.describe_tool())
    }

    /// The definition of `toolman_describe`.
    fn describe_tool(&self) -> String {
        let description = format!(
            "Show the whole definitions of tools and resources, active or not, where {FIND} showed them in brief. Example: \
             {{\"names\": [\"github_create_issue\"]}}"
        );
        let input_schema = format!(
            "{{\"type\":\"object\",\"properties\":{{\"names\":{{\"type\":\"array\",\"items\":{{\"type\":\"string\",\"minLength\":1}},\
             \"minItems\":1,\"maxItems\":{MOST_DESCRIBED},\"description\":\"The names or URIs of what to describe\"}}}},\
             \"required\":[\"names\"],\"additionalProperties\":false}}"
        );
        let (title, effect) = ("Describe tools", Effect::Describes);
        OwnTool { name: DESCRIBE, title, effect, description: &description, input_schema: &input_schema }
            .definition()
    }

    /// The answer to `toolman_describe`: the whole definitions of what these names mean, and for names without
    /// one the reason. The error is for a call that names nothing that there is.
    fn described(&self, view: &View, look: Look, names: &[String]) -> Result<String, String> {
        let mut lists: [Vec<Cow<'_, str>>; 3] = Default::default();
        let mut errors = Vec::new();
        for name in names {
            match self.find_described(view, look, name) {
                Some((kind, entry, item)) => lists[kind as usize].push(entry.shown(self, kind, item, look)),
                None if name.contains("://") => errors.push(self.unknown_resource(view, look, name)),
                None => errors.push(self.unknown_tool(view, look, name)),
            }
        }
        if lists.iter().all(Vec::is_empty) {
            return Err(errors.join("\n"));
        }
        let told = match &errors[..] {
            [] => String::new(),
            errors => {
                let errors: Vec<_> = errors.iter().map(|error| quote(error)).collect();
                format!(",\"_errors\":[{}]", errors.join(","))
            }
        };
        Ok(format!(
            "{{\"tools\":[{}],\"resources\":[{}],\"resourceTemplates\":[{}]{told}}}",
            lists[Kind::Tool as usize].join(","),
            lists[Kind::Resource as usize].join(","),
            lists[Kind::Template as usize].join(","),
        ))
    }

    /// The tool, resource or template of the catalog that a name means.
    fn find_described<'v>(
        &self,
        view: &'v View,
        look: Look,
        name: &str,
    ) -> Option<(Kind, &'v Entry, &'v ExposedItem)> {
        let full = view.find_tool(self, name).map(|target| target.full_name().clone());
        [Kind::Tool, Kind::Resource, Kind::Template].into_iter().find_map(|kind| {
            let is_meant = |(entry, item): &(&Entry, &ExposedItem)| {
                Nameable::new(self, kind, entry, item).is_called(|other| other == name)
                    || (kind == Kind::Tool && full.as_ref() == Some(item.full_name()))
            };
            catalogued(view, look, kind).find(is_meant).map(|(entry, item)| (kind, entry, item))
        })
    }

    /// The result of `toolman_find`: what matches, best first. If nothing matches, the result says which
    /// servers there are, and which comes near.
    fn found_things(&self, view: &View, viewer: &Viewer<'_>, search: &SearchResult<'_>) -> String {
        let mut tools: Vec<ToolEntry<'_>> = Vec::new();
        let mut resources: [Vec<String>; 2] = Default::default();
        let mut inactive: [Vec<&str>; 2] = Default::default();
        for thing in &search.things {
            let (group, server) = thing.place;
            let entry = view.server(group, server).filter(|entry| entry.is_listed());
            let found =
                entry.and_then(|entry| Some((entry, entry.exposed.of(thing.kind).by_key(&thing.item.key)?)));
            let Some((entry, item)) = found else { continue };
            let definition = entry.shown(self, thing.kind, item, viewer.look());
            match thing.kind {
                Kind::Tool => {
                    let names = vec![("name", quote(&item.name))];
                    tools.push(ToolEntry { names, also: Vec::new(), definition });
                }
                kind => {
                    resources[usize::from(kind == Kind::Template)].push(brief_resource(kind, &definition))
                }
            }
            if !view.is_active(thing.kind, item) {
                inactive[usize::from(thing.kind != Kind::Tool)].push(&item.name);
            }
        }
        let nothing = tools.is_empty() && resources.iter().all(Vec::is_empty);
        let near = search.near.map(|(namespace, _)| &**namespace).filter(|namespace| !namespace.is_empty());
        let message = match (nothing, inactive.iter().all(Vec::is_empty)) {
            (true, _) => match near {
                Some(near) => format!(
                    "Nothing fits. Server '{near}' comes nearest, but it has no such tool; `servers` lists the servers there are."
                ),
                None => "Nothing fits; `servers` lists the servers there are.".to_owned(),
            },
            (false, true) => "All of it is active.".to_owned(),
            (false, false) => format!(
                "Not active yet: {}. Switch on what you need: {ACTIVATE} {}",
                listed(&inactive.concat()),
                activation(&inactive[0], &inactive[1]),
            ),
        };
        let mut rest = format!(
            ",\"resources\":[{}],\"resourceTemplates\":[{}]",
            resources[0].join(","),
            resources[1].join(",")
        );
        if nothing {
            let mut names: Vec<String> = Vec::new();
            for server in &self.config.servers {
                let name = quote(&server.namespace);
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            rest.push_str(&format!(",\"servers\":[{}]", names.join(",")));
        }
        let head = format!("{{\"query\":{},\"message\":{}", quote(search.query), quote(&message));
        let limit = Behaviour::of(&viewer.name()).open_limit.bytes(viewer.modern);
        let limit = limit.map(|limit| limit.saturating_sub(answer(Ok("")).len()));
        DefinitionsAnswer { head, tools, rest, describer: DESCRIBE }.fit_found(limit)
    }

    /// The definitions of the tools that are listed before those of the servers.
    fn first_tools(&self, view: &View, look: Look) -> String {
        let mut tools = self.activate_tool(view, look);
        if self.config.search {
            tools.extend([",", &self.search_tools()]);
        }
        tools
    }

    /// The definition of `toolman_activate`, with the catalog as the view shows it.
    fn activate_tool(&self, view: &View, look: Look) -> String {
        let list = |what: &str| {
            format!(
                "{{\"type\":\"array\",\"items\":{{\"type\":\"string\"}},\"description\":{}}}",
                quote(what)
            )
        };
        let mut description = format!(
            "Switches tools and resources on and off; only active ones (marked * below) can be used. If the catalog below \
             is cut off, call this with four empty lists to see all of it.\n{}\n\n",
            self.example(view, look),
        );
        self.write_catalog(view, look, &mut description);
        let input_schema = format!(
            "{{\"type\":\"object\",\"properties\":{{\
             \"tools_on\":{},\"tools_off\":{},\"resources_on\":{},\"resources_off\":{}}},\
             \"required\":[\"tools_on\",\"tools_off\",\"resources_on\",\"resources_off\"],\"additionalProperties\":false}}",
            list("Tools to switch on"),
            list("Tools to switch off"),
            list("Resources and templates to switch on"),
            list("Resources and templates to switch off"),
        );
        let (title, effect) = ("Switch tools and resources on and off", Effect::Opens);
        OwnTool { name: ACTIVATE, title, effect, description: &description, input_schema: &input_schema }
            .definition()
    }

    /// The definition of `toolman_call`.
    fn call_tool(&self) -> String {
        let description = format!(
            "Calls an active tool that is not in your list, by its name in the catalog of {ACTIVATE}. Example: \
             {{\"name\": \"files_read\", \"arguments\": {{\"path\": \"README.md\"}}}}"
        );
        let input_schema = "{\"type\":\"object\",\"properties\":{\
             \"name\":{\"type\":\"string\",\"minLength\":1,\"description\":\"The tool's name in the catalog\"},\
             \"arguments\":{\"type\":\"object\",\"description\":\"What its inputSchema asks for\"}},\
             \"required\":[\"name\"],\"additionalProperties\":false}";
        let (title, effect) = ("Call a tool", Effect::Uses);
        OwnTool { name: CALL, title, effect, description: &description, input_schema }.definition()
    }

    /// The answer for a client that keeps its list: the message, and the whole definitions of what was
    /// switched on.
    fn activated(&self, view: &View, look: Look, message: &str, change: &SwitchChange) -> String {
        let definitions = |kind: Kind| {
            let names = &change.on[usize::from(kind != Kind::Tool)];
            let items = view.items(kind).filter(|(_, item)| names.contains(item.full_name()));
            let texts: Vec<_> = items.map(|(entry, item)| entry.shown(self, kind, item, look)).collect();
            texts.join(",")
        };
        format!(
            "{{\"message\":{},\"tools\":[{}],\"resources\":[{}],\"resourceTemplates\":[{}]}}",
            quote(message),
            definitions(Kind::Tool),
            definitions(Kind::Resource),
            definitions(Kind::Template),
        )
    }

    /// An example of a call that works with this catalog.
    fn example(&self, view: &View, look: Look) -> String {
        let first = catalogued(view, look, Kind::Tool).next();
        let name = first.map_or("files_read", |(_, item)| &*item.name);
        let call = activation(&[name], &[]);
        let namespace = first.map_or("files", |(entry, _)| &*entry.upstream.group);
        match namespace {
            "" => format!("A name may be a pattern (*, ?, [ab]). Example: {call}"),
            _ => format!("A name may be a pattern: \"{namespace}_*\" is all of {namespace}. Example: {call}"),
        }
    }

    fn catalog(&self, view: &View, look: Look) -> String {
        let mut text = String::new();
        self.write_catalog(view, look, &mut text);
        text
    }

    /// Appends the catalog: a line for the servers, then one for each tool and resource, tools first.
    fn write_catalog(&self, view: &View, look: Look, text: &mut String) {
        let mut servers: BTreeMap<usize, (&str, [usize; 2])> = BTreeMap::new();
        let mut order: Vec<&str> = Vec::new();
        for kind in [Kind::Tool, Kind::Resource, Kind::Template] {
            for (entry, _) in catalogued(view, look, kind) {
                let namespace = &*entry.upstream.group;
                let at = order.iter().position(|known| *known == namespace).unwrap_or_else(|| {
                    order.push(namespace);
                    order.len() - 1
                });
                servers.entry(at).or_insert((namespace, [0, 0])).1[usize::from(kind != Kind::Tool)] += 1;
            }
        }
        let withheld = match view.tools_withheld(self, None) {
            0 => String::new(),
            1 => "\n\n1 tool is withheld, since its definition was not approved.".to_owned(),
            count => format!("\n\n{count} tools are withheld, since their definitions were not approved."),
        };
        if servers.is_empty() {
            return text
                .extend(["The catalog is empty: no running server offers tools or resources.", &withheld]);
        }
        let mut parts = Vec::new();
        for (namespace, [tools, resources]) in servers.values() {
            let pattern = |separator: &str| match *namespace {
                "" => "without prefix".to_owned(),
                namespace => format!("{namespace}{separator}*"),
            };
            let (tools, resources) = (counted(*tools, "tool"), counted(*resources, "resource"));
            let separator = self.separator();
            match (tools, resources) {
                (Some(tools), Some(resources)) if separator == "_" || namespace.is_empty() => {
                    parts.push(format!("{} ({tools}, {resources})", pattern("_")));
                }
                (tools, resources) => {
                    parts.extend(tools.map(|tools| format!("{} ({tools})", pattern("_"))));
                    parts.extend(resources.map(|resources| format!("{} ({resources})", pattern(separator))));
                }
            }
        }
        text.extend(["Servers: ", &parts.join(", "), "\n"]);
        for (title, kinds) in [("Tools", &[Kind::Tool][..]), ("Resources", &[Kind::Resource, Kind::Template])]
        {
            let mut first = true;
            for kind in kinds {
                for (entry, item) in catalogued(view, look, *kind) {
                    if std::mem::take(&mut first) {
                        text.extend(["\n", title, ":\n"]);
                    }
                    let active = match look.from_start {
                        true => item.starts_active,
                        false => view.is_active(*kind, item),
                    };
                    write_row(text, active, &item.name, entry.told(self, *kind, item));
                }
            }
        }
        text.truncate(text.trim_end().len());
        text.push_str(&withheld);
    }

    /// The change that a call's lists ask for in this catalog, or the reason why nothing changes. For modern
    /// clients, the catalog marks what is active from the start.
    fn resolve(&self, view: &View, switches: &Switches, look: Look) -> Result<SwitchChange, String> {
        let lists = [
            (&switches.tools_on, true, 0),
            (&switches.tools_off, false, 0),
            (&switches.resources_on, true, 1),
            (&switches.resources_off, false, 1),
        ];
        if lists.iter().all(|(names, ..)| names.is_empty()) {
            return Err(format!(
                "Name at least one tool or resource to switch. This is all there is, active ones marked *:\n\n{}",
                self.catalog(view, look)
            ));
        }
        let known = [&[Kind::Tool][..], &[Kind::Resource, Kind::Template]].map(|kinds| {
            let items =
                kinds.iter().flat_map(|kind| catalogued(view, look, *kind).map(|found| (*kind, found)));
            items.map(|(kind, (entry, item))| Nameable::new(self, kind, entry, item)).collect::<Vec<_>>()
        });
        let (mut change, mut unknown, mut seen) = (SwitchChange::default(), Vec::new(), HashSet::new());
        for (names, on, class) in lists {
            let side = if on { &mut change.on } else { &mut change.off };
            for name in names {
                let mut found = matching(&known[class], name);
                if found.is_empty() && class == 0 {
                    let full = view.find_tool(self, name).map(|target| target.full_name().clone());
                    found.extend(
                        full.filter(|full| known[0].iter().any(|known| known.item.full_name() == full)),
                    );
                }
                if found.is_empty() {
                    let side = if on { "on" } else { "off" };
                    let near = nearest(name, known[class].iter().map(|known| &*known.item.name), SIMILAR);
                    let hint = match (class, matching(&known[1 - class], name).is_empty()) {
                        (0, false) => format!(" (a resource: name it in resources_{side})"),
                        (_, false) => format!(" (a tool: name it in tools_{side})"),
                        (..) if near.is_empty() => String::new(),
                        (..) => format!(" (did you mean {}?)", listed(&near)),
                    };
                    let what = if class == 0 { "tool" } else { "resource" };
                    unknown.push(format!("unknown {what} '{name}'{hint}"));
                }
                side[class].extend(found.into_iter().filter(|full| seen.insert((class, on, full.clone()))));
            }
        }
        if !unknown.is_empty() {
            return Err(format!(
                "{}. Nothing was changed; {ACTIVATE} with four empty lists shows all names.",
                unknown.join("; ")
            ));
        }
        let both: Vec<_> = (0..2)
            .flat_map(|class| {
                let off: HashSet<_> = change.off[class].iter().collect();
                change.on[class]
                    .iter()
                    .filter(move |name| off.contains(name))
                    .map(|name| format!("'{}'", one_line(name)))
            })
            .collect();
        if !both.is_empty() {
            return Err(format!(
                "{} would be switched both on and off. Nothing was changed; name each once.",
                both.join(", ")
            ));
        }
        Ok(change)
    }

    /// The confirmation of a change.
    fn confirmation(&self, view: &View, look: Look, change: &SwitchChange) -> String {
        let count = |kinds: &[Kind]| {
            let items =
                || kinds.iter().flat_map(|kind| catalogued(view, look, *kind).map(|(_, item)| (*kind, item)));
            (items().filter(|(kind, item)| view.is_active(*kind, item)).count(), items().count())
        };
        let shown = |class: usize, full: &Arc<str>| {
            let kinds = if class == 0 { &[Kind::Tool][..] } else { &[Kind::Resource, Kind::Template] };
            let found = kinds.iter().find_map(|kind| view.find(*kind, full));
            found.map_or_else(|| full.clone(), |target| target.name().clone())
        };
        let named = |what: &str, names: &[Vec<Arc<str>>; 2]| {
            let names = names.iter().enumerate();
            let all: Vec<_> =
                names.flat_map(|(class, names)| names.iter().map(move |full| shown(class, full))).collect();
            match all.len() {
                0 => None,
                1..=10 => Some(format!("{what}: {}.", listed(&all))),
                count => Some(format!("{what}: {} and {} more.", listed(&all[..10]), count - 10)),
            }
        };
        let (tools, all_tools) = count(&[Kind::Tool]);
        let (resources, all_resources) = count(&[Kind::Resource, Kind::Template]);
        let parts = [
            named("Switched on", &change.on),
            named("Switched off", &change.off),
            Some(format!(
                "Active now: {tools} of {all_tools} tools, {resources} of {all_resources} resources."
            )),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// The error when no tool has that name.
    fn unknown_tool(&self, view: &View, look: Look, name: &str) -> String {
        let searches = [FIND, DESCRIBE].into_iter().filter(|_| self.config.search);
        let own = [ACTIVATE, CALL].into_iter().chain(searches);
        if own.clone().chain([READ]).any(|own| own == name) {
            return format!("'{name}' is a tool of toolman itself: call it directly, not by way of {CALL}.");
        }
        if let Some(why) = view.why_withheld(self, None, Kind::Tool, name) {
            return why;
        }
        let names = own.chain(catalogued(view, look, Kind::Tool).map(|(_, item)| &*item.name));
        unknown("tool", name, &nearest(name, names, SIMILAR))
    }

    /// The error when no resource has that URI.
    fn unknown_resource(&self, view: &View, look: Look, uri: &str) -> String {
        let kinds = [Kind::Resource, Kind::Template];
        let names =
            kinds.into_iter().flat_map(|kind| catalogued(view, look, kind).map(|(_, item)| &*item.name));
        unknown("resource", uri, &nearest(uri, names, SIMILAR))
    }

    /// The error when a tool or resource is not switched on.
    fn inactive(&self, kind: Kind, name: &str) -> String {
        let (what, call) = match kind {
            Kind::Tool => ("tool", activation(&[name], &[])),
            _ => ("resource", activation(&[], &[name])),
        };
        format!("The {what} '{}' is not active. Switch it on first: {ACTIVATE} {call}", one_line(name))
    }
}

/// Arguments for `toolman_activate` that switch these tools and resources on.
fn activation(tools: &[&str], resources: &[&str]) -> String {
    let list = |names: &[&str]| names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ");
    format!(
        "{{\"tools_on\": [{}], \"tools_off\": [], \"resources_on\": [{}], \"resources_off\": []}}",
        list(tools),
        list(resources)
    )
}

fn unknown(what: &str, name: &str, near: &[&str]) -> String {
    let near = if near.is_empty() { String::new() } else { format!(" Did you mean {}?", listed(near)) };
    format!("There is no {what} '{name}'.{near} {ACTIVATE} with four empty lists shows the whole catalog.")
}

/// A count with its noun, such as `3 tools`; `None` for zero.
fn counted(count: usize, what: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        count => Some(format!("{count} {what}s")),
    }
}

/// Appends one line of the catalog. No name or description can forge another line: a name that looks like a mark or a
/// title stands in quotes.
fn write_row(text: &mut String, active: bool, name: &str, about: &str) {
    let name = one_line(name);
    let name = match name.starts_with(['*', '"']) || name.ends_with(':') {
        true => quote(&name),
        false => name,
    };
    let (mark, colon) = (if active { "* " } else { "" }, if about.is_empty() { "" } else { ": " });
    text.extend([mark, &*name, colon, about, "\n"]);
}

/// The catalog's text about an item: its description or, for a resource without one, the resource's name.
fn about(kind: Kind, definition: Definition<'_>) -> String {
    let line = |text: Cow<'_, str>| Some(one_line(&text)).filter(|text| !text.is_empty());
    let read = |raw, key: Option<&str>| {
        let mut scanner = Scanner::default();
        let node = scanner.scan_str(raw).expect("definitions are valid JSON").root();
        key.map_or(Some(node), |key| node.get(key)).and_then(Node::as_str).and_then(line)
    };
    let named = |key| if kind == Kind::Tool { None } else { read(definition.raw(), Some(key)) };
    let text = definition.description().and_then(|own| read(own, None));
    let text = text.or_else(|| named("title")).or_else(|| named("name")).unwrap_or_default();
    text.chars().take(DESCRIPTION).collect()
}

/// The items of a kind that the catalog shows: all but those that hosts of apps handle themselves.
fn catalogued(view: &View, look: Look, kind: Kind) -> impl Iterator<Item = (&Entry, &ExposedItem)> {
    view.items(kind).filter(move |(_, item)| !(look.as_host && item.own.is_for_hosts()))
}

/// An item that a list of `toolman_activate` can name, and its names.
struct Nameable<'a> {
    item: &'a ExposedItem,
    other_spelling: Option<String>,
}

impl<'a> Nameable<'a> {
    fn new(face: &Toolman, kind: Kind, entry: &Entry, item: &'a ExposedItem) -> Self {
        let other_spelling = match kind {
            Kind::Tool | Kind::Prompt => None,
            Kind::Resource | Kind::Template => face.other_spelling(&entry.upstream, &item.own.key),
        };
        Self { item, other_spelling }
    }

    fn is_called(&self, fits: impl Fn(&str) -> bool) -> bool {
        fits(&self.item.name)
            || fits(self.item.full_name())
            || self.other_spelling.as_ref().is_some_and(|other| fits(other))
    }
}

/// The full names that an entry of a list stands for: the one name that it spells, or all names that match
/// its pattern.
fn matching(known: &[Nameable<'_>], entry: &str) -> Vec<Arc<str>> {
    let all = |fits: &dyn Fn(&str) -> bool| -> Vec<_> {
        let called = known.iter().filter(|known| known.is_called(fits));
        called.map(|known| known.item.full_name().clone()).collect()
    };
    let exact = all(&|name| name == entry);
    if !exact.is_empty() || !Glob::is_pattern(entry) {
        return exact;
    }
    let glob = Glob::new(entry);
    all(&|name| glob.matches(name))
}

impl Switches {
    /// Reads the arguments of `toolman_activate`; the error says what was expected.
    pub fn read(arguments: Option<Node<'_>>) -> Result<Self, String> {
        const KEYS: [&str; 4] = ["tools_on", "tools_off", "resources_on", "resources_off"];
        let expected = "all four of tools_on, tools_off, resources_on and resources_off are required, each a list of names";
        let Some(arguments) = arguments.filter(|arguments| arguments.is_object()) else {
            return Err(format!("Invalid parameters: {expected}"));
        };
        let extra: Vec<_> = arguments
            .members()
            .filter(|(key, _)| !KEYS.contains(&&**key))
            .map(|(key, _)| format!("'{key}'"))
            .collect();
        if !extra.is_empty() {
            return Err(format!("Invalid parameters: unknown key {}; {expected}", extra.join(", ")));
        }
        let [tools_on, tools_off, resources_on, resources_off] = KEYS.map(|key| {
            let list =
                arguments.unique(key).map_err(|_| format!("Invalid parameters: {key} appears twice"))?;
            let Some(list) = list else {
                return Err(format!("Invalid parameters: {key} is missing; {expected}"));
            };
            serde_json::from_str::<Vec<String>>(list.raw())
                .map_err(|_| format!("Invalid parameters: {key} must be a list of strings; {expected}"))
        });
        Ok(Self {
            tools_on: tools_on?,
            tools_off: tools_off?,
            resources_on: resources_on?,
            resources_off: resources_off?,
        })
    }
}

/// Reads the arguments of `toolman_describe`: names.
fn described_names(arguments: Option<Node<'_>>) -> Result<Vec<String>, Blocks> {
    let expected = || invalid(&format!("names must be a list of 1 to {MOST_DESCRIBED} strings"));
    let names = Arguments::read(arguments, ["names"])?.value(0).ok_or_else(expected)?;
    let names = serde_json::from_str::<Vec<String>>(names.raw()).ok();
    names.filter(|names| (1..=MOST_DESCRIBED).contains(&names.len())).ok_or_else(expected)
}

/// Reads the arguments of `toolman_call`: the tool's name, and the tool's own arguments.
fn called(arguments: Option<Node<'_>>) -> Result<(Cow<'_, str>, Option<Node<'_>>), String> {
    let expected = "name must be a string, arguments an object if there are any";
    let arguments = arguments.filter(|arguments| arguments.is_object());
    let members = arguments.iter().flat_map(|arguments| arguments.members());
    let extra: Vec<_> = members
        .filter(|(key, _)| !["name", "arguments"].contains(&&**key))
        .map(|(key, _)| format!("'{key}'"))
        .collect();
    if !extra.is_empty() {
        return Err(format!("Invalid parameters: unknown key {}; {expected}", extra.join(", ")));
    }
    let (name, given) = match arguments.map(|arguments| arguments.all_unique(["name", "arguments"])) {
        Some(Ok(found)) => (found.get(0), found.get(1)),
        Some(Err(_)) => return Err(format!("Invalid parameters: a key appears twice; {expected}")),
        None => (None, None),
    };
    match name.and_then(Node::as_str) {
        Some(name) if given.is_none_or(Node::is_object) => Ok((name, given)),
        _ => Err(format!("Invalid parameters: {expected}")),
    }
}

impl Exposure for Toolman {
    fn full_name(&self, upstream: &Upstream, kind: Kind, key: &str) -> String {
        let separator = match kind {
            Kind::Tool | Kind::Prompt => "_",
            Kind::Resource | Kind::Template => self.separator(),
        };
        if upstream.group.is_empty() { key.to_owned() } else { [&*upstream.group, separator, key].concat() }
    }

    fn renderer<'a>(&'a self, _: &'a Upstream, _: Kind) -> Renderer<'a> {
        Box::new(|name, definition, out| definition.write_named(out, &["\"", &escaped(name), "\""]))
    }

    fn page_place<'a>(&self, upstream: &'a Upstream) -> Vec<&'a str> {
        Some(&*upstream.group).filter(|namespace| !namespace.is_empty()).into_iter().collect()
    }

    fn allows(&self, upstream: &Upstream, kind: Kind, key: &str) -> bool {
        let own = match kind {
            Kind::Tool if self.config.search => &[ACTIVATE, CALL, READ, FIND, DESCRIBE][..],
            Kind::Tool => &[ACTIVATE, CALL, READ],
            Kind::Resource | Kind::Template => &[CATALOG],
            Kind::Prompt => &[],
        };
        let own = own.contains(&&*self.full_name(upstream, kind, key));
        if own {
            tracing::warn!("[{upstream}] {key} would hide what is toolman's own and is left out");
        }
        !own
    }

    fn other_spelling(&self, upstream: &Upstream, key: &str) -> Option<String> {
        let is_default = self.config.resource_separator.is_none();
        (is_default && !upstream.group.is_empty()).then(|| [&*upstream.group, STRICT_SEPARATOR, key].concat())
    }

    fn starts_active(&self, names: &[&str], is_shortened: &dyn Fn(&str) -> bool) -> bool {
        let is_meant =
            |pattern: &Glob| names.iter().any(|name| pattern.matches(name)) || is_shortened(pattern.text());
        self.active.iter().any(is_meant)
    }

    fn clash(&self) -> Clash {
        Clash::FirstInFile
    }

    fn limits(&self, client: &str) -> NameLimits {
        name_limits(&self.config.common, "toolman", client)
    }

    fn lists(&self, _client: Option<&ClientHello>, _kind: Kind) -> bool {
        true
    }

    fn lists_to_modern(&self) -> bool {
        true
    }

    fn adds(&self, client: Option<&ClientHello>, modern: bool) -> String {
        let find = if self.config.search { self.search_tools() } else { String::new() };
        let viewer = Viewer::new(client, modern);
        [&find, self.separator(), &reading::adds(self.offloading(), modern, viewer.takes())].concat()
    }

    fn tells_withheld(&self) -> bool {
        true
    }

    fn tells(&self, kind: Kind, definition: Definition<'_>) -> Option<String> {
        (kind != Kind::Prompt).then(|| about(kind, definition))
    }
}

/// A key for a server that is new in the file.
fn new_key() -> Arc<str> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string().into()
}

/// The text about servers that wait for somebody to log in, each with its URL. It follows the catalog, and
/// errors about something that is not in the catalog.
fn waiting(logins: &[(String, String)]) -> String {
    let lines: String = logins.iter().map(|(server, url)| format!("\n{server}: {url}")).collect();
    match logins {
        [] => String::new(),
        _ => format!("\n\nMore is there once the user has logged in with a browser to:{lines}"),
    }
}

/// An answer in Toolman's own shape, as raw JSON; `result` is raw JSON too.
fn answer(outcome: Result<&str, &str>) -> String {
    match outcome {
        Ok(result) => format!("{{\"success\":true,\"result\":{result},\"error\":null}}"),
        Err(error) => format!("{{\"success\":false,\"result\":null,\"error\":{}}}", quote(error)),
    }
}

/// The result of a tool call that failed.
pub fn failed_result(message: &str) -> String {
    tool_result(Err(message))
}

/// The refusal of a request.
pub fn refusal(code: i64, message: &str) -> Refusal {
    Refusal { code, message: message.to_owned(), data: Some(answer(Err(message))) }
}

/// An answer in Toolman's own shape, as a tool's result.
fn tool_result(outcome: Result<&str, &str>) -> String {
    let value = answer(outcome);
    let failed = if outcome.is_err() { ",\"isError\":true" } else { "" };
    format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{}}}],\"structuredContent\":{value}{failed}}}",
        quote(&value)
    )
}

#[cfg(test)]
mod tests;
