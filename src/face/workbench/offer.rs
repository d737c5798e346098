//! What a client is told before it calls anything: the `instructions` of the handshake, and the meta-tools'
//! definitions.

use super::arguments::MOST_DESCRIBED;
use super::{Meta, Mode, Workbench};
use crate::config::{MetaTools, Toolbox};
use crate::face::fit::{About, Listing, ListingRow};
use crate::face::own_tool::{Effect, OwnTool};
use crate::face::{Viewer, find, reading};
use crate::json::quote;
use crate::text::one_line;

impl Workbench {
    /// The `instructions` of the handshake: which toolboxes there are and how to use them.
    pub(super) fn introduction(&self, viewer: &Viewer<'_>) -> String {
        let mode = self.mode_for(viewer);
        if self.config.toolboxes.is_empty() {
            return "No toolboxes are configured, so there is nothing to open. Ask the user to add MCP servers under \
                    \"toolboxes\" in workbench-config.json."
                .to_owned();
        }
        let find = match (self.config.search, mode) {
            (false, _) => "",
            (true, Mode::Flat) => " find_tools searches them: name a platform and what it is to do.",
            (true, _) => {
                " find_tools searches the tools of all toolboxes, open or not: name a platform and what it is to do."
            }
        };
        let (open, example) = (self.open_tool().name(), self.example());
        let how = match (self.config.meta_tools, mode) {
            (_, Mode::Flat) => {
                let how = "All tools are in your tool list already, named toolbox__server__tool; there is nothing to open.";
                let head = "Tools of many MCP servers, grouped in toolboxes.\n\nToolboxes:\n";
                return self.listing(viewer, head, &format!("\n{how}{find}"));
            }
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
        let describe = match self.is_brief_to(viewer) {
            true => {
                " Of a toolbox with many tools you may see names alone: describe_tools gives their definitions."
            }
            false => "",
        };
        let head = "Tools of many MCP servers, grouped in toolboxes that you open when you need them.\n\nToolboxes:\n";
        self.listing(viewer, head, &format!("\n{how}{describe} {closing}{find}"))
    }

    /// The definitions of the meta-tools that a client sees, separated by commas.
    pub fn meta_tools(&self, viewer: &Viewer<'_>) -> String {
        let mode = self.mode_for(viewer);
        self.listed(viewer).map(|meta| self.definition(meta, mode, viewer)).collect::<Vec<_>>().join(",")
    }

    fn definition(&self, meta: Meta, mode: Mode, viewer: &Viewer<'_>) -> String {
        let (title, effect) = match meta {
            Meta::Open | Meta::ClassicOpen => ("Open toolbox", Effect::Opens),
            Meta::Use | Meta::ClassicUse => ("Use tool", Effect::Uses),
            Meta::Find => ("Find tools", Effect::Describes),
            Meta::Describe => ("Describe tools", Effect::Describes),
            Meta::Read => (reading::TITLE, Effect::Describes),
            Meta::ClassicList => ("List toolboxes", Effect::Lists),
            Meta::ClassicClose => ("Close toolbox", Effect::Closes),
        };
        let (description, input_schema) = (self.description(meta, mode, viewer), self.input_schema(meta));
        let name = meta.name();
        OwnTool { name, title, effect, description: &description, input_schema: &input_schema }.definition()
    }

    fn description(&self, meta: Meta, mode: Mode, viewer: &Viewer<'_>) -> String {
        let example = self.example();
        let open = match self.config.search {
            true => "a toolbox, which opens by itself",
            false => "an open toolbox",
        };
        match meta {
            Meta::Open | Meta::ClassicOpen => {
                let then = match mode {
                    Mode::Dynamic | Mode::Flat => "Its tools are then added to your tool list.",
                    Mode::Proxy => "The answer lists its tools with their schemas.",
                };
                let head = format!(
                    "Open a toolbox: a group of MCP servers. {then} Opening twice does no harm. \
                     Example: {{\"toolbox_name\": {example}}}\n\nToolboxes:\n"
                );
                self.listing(viewer, &head, "")
            }
            Meta::Use => format!(
                "Call a tool of {open}. Example: {{\"tool\": {{\"toolbox\": {example}, \"server\": \
                 \"filesystem\", \"tool\": \"read_file\"}}, \"arguments\": {{\"path\": \"README.md\"}}}}"
            ),
            Meta::Find => self.find_description(mode),
            Meta::Read => reading::DESCRIPTION.to_owned(),
            Meta::Describe => {
                let of_what = match (mode, self.config.search) {
                    (Mode::Flat, _) => ", where find_tools showed them in brief",
                    (_, true) => ", where find_tools or opening showed them in brief; their toolbox may be closed",
                    (_, false) => " of an open toolbox, where opening showed them in brief",
                };
                format!(
                "Show the whole definitions of tools{of_what}. Example: \
                 {{\"tools\": [{{\"toolbox\": {example}, \"server\": \"filesystem\", \"tool\": \"read_file\"}}]}}"
            )
            }
            Meta::ClassicList => {
                "List the toolboxes: name, description, servers, whether it is open, number of tools. Example: {}".to_owned()
            }
            Meta::ClassicClose => {
                format!("Close an open toolbox: its tools go, its servers end. Example: {{\"toolbox_name\": {example}}}")
            }
            Meta::ClassicUse => format!(
                "Call a tool of {open}. Example: {{\"toolbox_name\": {example}, \"tool_name\": \
                 \"{}__filesystem__read_file\", \"arguments\": {{\"path\": \"README.md\"}}}}",
                example.trim_matches('"'),
            ),
        }
    }

    fn input_schema(&self, meta: Meta) -> String {
        let text =
            |what: &str| format!("{{\"type\":\"string\",\"minLength\":1,\"description\":{}}}", quote(what));
        let of_open =
            text(if self.config.search { "Name of the toolbox" } else { "Name of an open toolbox" });
        let arguments = "{\"type\":\"object\",\"description\":\"What the tool's inputSchema asks for\"}";
        let address = || {
            let server = text("Its server, source_server in the answer of open_toolbox");
            let parts =
                [("toolbox", &*of_open), ("server", &server), ("tool", &text("The tool's name there"))];
            object(&parts, &["toolbox", "server", "tool"])
        };
        match meta {
            Meta::Open | Meta::ClassicOpen => {
                object(&[("toolbox_name", &text("Name of the toolbox to open"))], &["toolbox_name"])
            }
            Meta::Use => object(&[("tool", &address()), ("arguments", arguments)], &["tool"]),
            Meta::Find => find::schema("Most tools to answer with"),
            Meta::Read => reading::schema(),
            Meta::Describe => {
                let tools = format!(
                    "{{\"type\":\"array\",\"items\":{},\"minItems\":1,\"maxItems\":{MOST_DESCRIBED},\
                     \"description\":\"The tools to describe\"}}",
                    address()
                );
                object(&[("tools", &tools)], &["tools"])
            }
            Meta::ClassicList => object(&[], &[]),
            Meta::ClassicClose => {
                object(&[("toolbox_name", &text("Name of the toolbox to close"))], &["toolbox_name"])
            }
            Meta::ClassicUse => {
                let tool = text("Name of the tool as opening listed it: toolbox__server__tool");
                object(
                    &[("toolbox_name", &of_open), ("tool_name", &tool), ("arguments", arguments)],
                    &["toolbox_name", "tool_name"],
                )
            }
        }
    }

    /// The description of `find_tools`. It says what a search can find, since a model that does not know will
    /// not search.
    fn find_description(&self, mode: Mode) -> String {
        let open = self.open_tool().name();
        let then = match (self.config.meta_tools, mode) {
            (_, Mode::Flat) => "call one by its name".to_owned(),
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
             answer holds the best tools, the first three with their schemas, the others in brief (describe_tools gives \
             their schemas): {then}. Nothing found means that nothing fits; other words \
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
                ListingRow { head: format!("- {}", toolbox.name), about: About::Text(one_line(&about)) }
            })
            .collect();
        let omitted = |count| format!("- … and {count} more");
        Listing { head: &head, rows: &rows, omitted: &omitted, tail: "" }.fit(self.config.instructions_limit)
    }

    /// The toolboxes, each with its description or, where it has none, with its tools as far as they are known,
    /// else with its servers.
    fn listing(&self, viewer: &Viewer<'_>, head: &str, tail: &str) -> String {
        let rows: Vec<_> = self.config.toolboxes.iter().map(|toolbox| row(toolbox, viewer)).collect();
        let all = match self.config.meta_tools {
            _ if self.is_flat() => "",
            MetaTools::Current => ": open_toolbox with any other name lists all of them",
            MetaTools::Classic => ": workbench_list_toolboxes lists all of them",
        };
        let omitted = |count| format!("- … and {count} more{all}");
        Listing { head, rows: &rows, omitted: &omitted, tail }.fit(self.config.instructions_limit)
    }

    pub(super) fn open_tool(&self) -> Meta {
        match self.config.meta_tools {
            MetaTools::Current => Meta::Open,
            MetaTools::Classic => Meta::ClassicOpen,
        }
    }

    /// The first toolbox's name as JSON, for examples.
    fn example(&self) -> String {
        quote(self.config.toolboxes.first().map_or("dev", |toolbox| toolbox.name.as_str()))
    }
}

fn row(toolbox: &Toolbox, viewer: &Viewer<'_>) -> ListingRow {
    let counted = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let (name, servers) = (&toolbox.name, counted(toolbox.servers.len(), "server"));
    if !toolbox.description.is_empty() {
        let about = About::Text(one_line(&toolbox.description));
        return ListingRow { head: format!("- {name} ({servers})"), about };
    }
    match known_tools(toolbox, viewer) {
        Some(tools) if !tools.is_empty() => {
            let head = format!("- {name} ({servers}, {})", counted(tools.len(), "tool"));
            ListingRow { head, about: About::Names(one_line(&tools.join(", "))) }
        }
        _ => {
            let names: Vec<_> = toolbox.servers.iter().map(|server| server.name.as_str()).collect();
            let about = About::Names(one_line(&names.join(", ")));
            ListingRow { head: format!("- {name} ({servers})"), about }
        }
    }
}

/// The names of a toolbox's tools; `None` until those of all its servers are known.
fn known_tools(toolbox: &Toolbox, viewer: &Viewer<'_>) -> Option<Vec<String>> {
    let mut tools = Vec::new();
    for server in &toolbox.servers {
        let known = viewer.known?.introduction(toolbox.name.as_str(), server.name.as_str())?;
        tools.extend(known.iter().filter(|name| server.filter.allows(name)).map(|name| name.to_string()));
    }
    Some(tools)
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
