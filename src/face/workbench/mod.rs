//! The workbench face: toolboxes that a model opens. The gateway calls it through [`Face`](super::Face);
//! `decide` interprets requests, `answers` words the results, and `offer` tells clients what there is.

mod answers;
mod arguments;
pub(super) mod decide;
mod offer;

pub use self::answers::failed_result;

use std::borrow::Cow;
use std::fmt::Display;

use crate::catalog::{Kind, NameLimits};
use crate::config::{self, ByteLimit, MetaTools, ToolMode, Toolbox};
use crate::core::upstream::{Listing, Upstream};
use crate::core::view::{Exposure, Renderer};
use crate::face::reading::{self, READ, is_on};
use crate::face::{Viewer, name_limits};
use crate::json::{Raw, escaped};
use crate::known_clients::Behaviour;
use crate::protocol::era::ClientHello;
use crate::text::percent::encode;

/// The face, as configured.
pub struct Workbench {
    /// The configuration file.
    pub config: config::Workbench,
}

/// One of the workbench's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// `open_toolbox`
    Open,
    /// `use_tool`
    Use,
    /// `find_tools`, where search is on
    Find,
    /// `describe_tools`
    Describe,
    /// `read_result`
    Read,
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
    /// Registered from the start: every toolbox is open.
    Flat,
}

/// The address of a tool, as `use_tool` gives it.
#[derive(Debug, PartialEq, Eq)]
pub struct Address<'a> {
    /// The toolbox.
    pub toolbox: Cow<'a, str>,
    /// The server in the toolbox.
    pub server: Cow<'a, str>,
    /// The server's own name for the tool.
    pub tool: Cow<'a, str>,
}

impl Address<'_> {
    fn into_owned(self) -> Address<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Address { toolbox: own(self.toolbox), server: own(self.server), tool: own(self.tool) }
    }
}

/// How much of an answer with definitions a client takes.
struct Takes {
    /// The most bytes of text; `None` if there is no limit.
    bytes: Option<usize>,
    /// Whether the client wants the value as structured content next to the text.
    structured_content: bool,
}

/// The `_meta` key under which a tool's definition says whose tool it is.
const ORIGIN: &str = "mcp-workbench/origin";

impl Meta {
    /// All meta-tools. Each can be called at any time, listed or not; [`Self::Find`] only where search is on.
    const ALL: [Self; 9] = [
        Self::Open,
        Self::Use,
        Self::Find,
        Self::Describe,
        Self::Read,
        Self::ClassicList,
        Self::ClassicOpen,
        Self::ClassicClose,
        Self::ClassicUse,
    ];

    /// The tool's name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open_toolbox",
            Self::Use => "use_tool",
            Self::Find => "find_tools",
            Self::Describe => "describe_tools",
            Self::Read => READ,
            Self::ClassicList => "workbench_list_toolboxes",
            Self::ClassicOpen => "workbench_open_toolbox",
            Self::ClassicClose => "workbench_close_toolbox",
            Self::ClassicUse => "workbench_use_tool",
        }
    }

    /// The tool with this name.
    fn named(name: &str) -> Option<Self> {
        match name {
            "open_toolbox" => Some(Self::Open),
            "use_tool" => Some(Self::Use),
            "find_tools" => Some(Self::Find),
            "describe_tools" => Some(Self::Describe),
            READ => Some(Self::Read),
            "workbench_list_toolboxes" => Some(Self::ClassicList),
            "workbench_open_toolbox" => Some(Self::ClassicOpen),
            "workbench_close_toolbox" => Some(Self::ClassicClose),
            "workbench_use_tool" => Some(Self::ClassicUse),
            _ => None,
        }
    }

    /// Whether the tool belongs to the classic contract.
    pub fn is_classic(self) -> bool {
        !matches!(self, Self::Open | Self::Use | Self::Find | Self::Describe | Self::Read)
    }
}

impl Workbench {
    /// The mode for a client.
    pub fn mode(&self, client: Option<&ClientHello>) -> Mode {
        match self.config.tool_mode {
            ToolMode::Dynamic => Mode::Dynamic,
            ToolMode::Proxy => Mode::Proxy,
            ToolMode::Flat => Mode::Flat,
            ToolMode::Auto => {
                let behaviour = client.map(|client| Behaviour::of(&client.name));
                if behaviour.is_some_and(Behaviour::takes_up_changes) { Mode::Dynamic } else { Mode::Proxy }
            }
        }
    }

    /// Whether every toolbox is open from the start.
    fn is_flat(&self) -> bool {
        self.config.tool_mode == ToolMode::Flat
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
        Meta::named(name).filter(|meta| *meta != Meta::Find || self.config.search)
    }

    /// How long results of each server may be before we keep them.
    fn offloading(&self) -> impl Iterator<Item = ByteLimit> + Clone {
        let servers = self.config.toolboxes.iter().flat_map(|toolbox| &toolbox.servers);
        servers.map(|server| server.offload_over)
    }

    /// How long results of the server at this place may be before we keep them.
    fn offload_over(&self, [toolbox, server]: [&str; 2]) -> ByteLimit {
        let mut servers = self.toolbox(toolbox).into_iter().flat_map(|toolbox| &toolbox.servers);
        let found = servers.find(|other| other.name.as_str() == server);
        found.map_or(self.config.common.offload_over, |server| server.offload_over)
    }

    /// How much of an answer with definitions this viewer takes.
    fn takes(&self, viewer: &Viewer<'_>) -> Takes {
        let known = Behaviour::of(&viewer.name()).open_limit;
        let bytes = self.config.open_limit.bytes(known.bytes(viewer.modern));
        Takes { bytes, structured_content: known.structured_content }
    }

    /// Whether an opening may show tools to this viewer in brief.
    fn is_brief_to(&self, viewer: &Viewer<'_>) -> bool {
        self.mode_for(viewer) == Mode::Proxy && self.takes(viewer).bytes.is_some()
    }

    /// The meta-tools that a client sees, in order.
    fn listed(&self, viewer: &Viewer<'_>) -> impl Iterator<Item = Meta> {
        let listed: &[Meta] = match (self.config.meta_tools, self.mode_for(viewer)) {
            (_, Mode::Flat) => &[],
            (MetaTools::Current, Mode::Dynamic) => &[Meta::Open],
            (MetaTools::Current, Mode::Proxy) => &[Meta::Open, Meta::Use],
            (MetaTools::Classic, Mode::Dynamic) => {
                &[Meta::ClassicList, Meta::ClassicOpen, Meta::ClassicClose]
            }
            (MetaTools::Classic, Mode::Proxy) => {
                &[Meta::ClassicList, Meta::ClassicOpen, Meta::ClassicClose, Meta::ClassicUse]
            }
        };
        let find = self.config.search.then_some(Meta::Find);
        let describes = self.config.search || self.is_brief_to(viewer);
        let read = is_on(self.offloading(), viewer.takes()).then_some(Meta::Read);
        listed.iter().copied().chain(find).chain(describes.then_some(Meta::Describe)).chain(read)
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

    fn renderer<'a>(&'a self, upstream: &'a Upstream, kind: Kind) -> Renderer<'a> {
        if kind != Kind::Tool {
            return Box::new(|name, definition, out| {
                definition.write_named(out, &["\"", &escaped(name), "\""])
            });
        }
        let (in_box, at) = (escaped(&upstream.group), escaped(&upstream.server));
        let place = format!("\"[{in_box}/{at}]");
        let origin = format!("{{\"toolbox\":\"{in_box}\",\"server\":\"{at}\",\"tool\":");
        let new_meta = format!("{{\"{ORIGIN}\":{origin}");
        Box::new(move |name, definition, out| {
            let own_name = definition.raw_key();
            let description = match definition.description().and_then(|own| own.strip_prefix('"')) {
                None | Some("\"") => [&*place, "\"", ""],
                Some(own) => [&*place, " ", own],
            };
            let changed = definition.meta().map(|own| {
                let origin = [&*origin, own_name, "}"].concat();
                Raw::own(own).root().with(&[(ORIGIN, Some(&*origin))])
            });
            let meta = match &changed {
                Some(changed) => [&**changed, "", ""],
                None => [&*new_meta, own_name, "}}"],
            };
            definition.write_tool(out, &["\"", &escaped(name), "\""], &description, &meta);
        })
    }

    fn page_place<'a>(&self, upstream: &'a Upstream) -> Vec<&'a str> {
        vec![&upstream.group, &upstream.server]
    }

    fn short_name(&self, upstream: &Upstream, key: &str) -> Option<String> {
        short_name(&upstream.group, &upstream.server, key)
    }

    fn limits(&self, client: &str) -> NameLimits {
        name_limits(&self.config.common, "workbench", client)
    }

    fn lists(&self, client: Option<&ClientHello>, kind: Kind) -> bool {
        kind != Kind::Tool || self.mode(client) != Mode::Proxy
    }

    fn listing(&self) -> Listing {
        if self.is_flat() { Listing::Always } else { Listing::WhileUp }
    }

    fn lists_to_modern(&self) -> bool {
        self.is_flat()
    }

    fn adds(&self, client: Option<&ClientHello>, modern: bool) -> String {
        let viewer = Viewer::new(client, modern);
        self.meta_tools(&viewer) + &reading::adds(self.offloading(), modern, viewer.takes())
    }
}

/// The short name of a tool whose toolbox and server have the same name: that name appears only once.
fn short_name(toolbox: &str, server: &str, tool: &str) -> Option<String> {
    (toolbox == server).then(|| [server, "__", tool].concat())
}
