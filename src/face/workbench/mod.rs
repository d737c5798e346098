//! The workbench: toolboxes that a model opens.

mod answers;
mod arguments;
pub(super) mod decide;
mod offer;

use std::borrow::Cow;
use std::fmt::Display;

use crate::catalog::{Kind, NameLimits, has_schema};
use crate::config::{self, MetaTools, ToolMode, Toolbox};
use crate::core::upstream::Upstream;
use crate::core::view::Exposure;
use crate::face::name_limits;
use crate::json::{Node, quote};
use crate::known_clients::Behaviour;
use crate::protocol::era::ClientHello;
use crate::text::percent::encode;

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
                let behaviour = client.map(|client| Behaviour::of(&client.name));
                if behaviour.is_some_and(Behaviour::takes_up_changes) { Mode::Dynamic } else { Mode::Proxy }
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
}

impl Display for Address<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}/{}", self.toolbox, self.server, self.tool)
    }
}

impl Exposure for Workbench {
    fn full_name(&self, upstream: &Upstream, kind: Kind, key: &str) -> String {
        match kind {
            Kind::Tool | Kind::Prompt => [&*upstream.group, "__", &upstream.server, "__", key].concat(),
            Kind::Resource | Kind::Template => {
                format!("workbench://{}/{}/{key}", encode(&upstream.group), encode(&upstream.server))
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

    fn short_name(&self, upstream: &Upstream, key: &str) -> Option<String> {
        short_name(&upstream.group, &upstream.server, key)
    }

    fn limits(&self, client: &str) -> NameLimits {
        name_limits(&self.config.common, "workbench", client)
    }

    fn lists(&self, client: Option<&ClientHello>, kind: Kind) -> bool {
        kind != Kind::Tool || self.mode(client) == Mode::Dynamic
    }

    fn adds(&self, client: Option<&ClientHello>, modern: bool) -> String {
        self.meta_tools(if modern { Mode::Proxy } else { self.mode(client) })
    }
}

/// A toolbox and its server that are called the same need to be named but once.
fn short_name(toolbox: &str, server: &str, tool: &str) -> Option<String> {
    (toolbox == server).then(|| [server, "__", tool].concat())
}

/// Strict clients reject a whole list over one tool whose `inputSchema` is no schema.
pub(in crate::face) fn schema_change(tool: Node<'_>) -> Vec<(&'static str, Option<&'static str>)> {
    if has_schema(tool) { Vec::new() } else { vec![("inputSchema", Some("{\"type\":\"object\"}"))] }
}
