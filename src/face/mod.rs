//! Product surfaces: what clients are shown, what their requests mean, and every word that a model reads.
//!
//! A face decides and the gateway acts: the gateway asks the client's face what to do with a request and
//! carries out the [`Step`] that the face returns. The engine asks the face for names ([`Exposure`]).
//!
//! Invariant: faces are pure. They get a view and return steps and texts; nothing here waits, sends, changes
//! anything or touches the disk. All that a face reads of upstreams is what the view holds, whether they run,
//! and who must log in.

mod arguments;
mod brief;
pub mod find;
pub mod fit;
pub mod glob;
pub mod own_tool;
pub mod plain;
pub mod reach;
pub mod reading;
mod signature;
pub mod toolman;
pub mod uri_template;
pub mod workbench;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use self::find::Query;
use self::own_tool::error_result;
use self::reading::READ;
use self::toolman::SwitchChange;
use self::workbench::Meta;
use crate::catalog::{Item, Items, Kind, NameLimits, Sent};
use crate::config::{Common, Transport};
use crate::core::known::Known;
use crate::core::start_error::StartError;
use crate::core::upstream::{Spec, Upstream};
use crate::core::view::{Exposure, Look, Target, View};
use crate::json::Node;
use crate::known_clients::Behaviour;
use crate::lock::Guard;
use crate::protocol::era::{ClientHello, OUR_NAME, modern_name};
use crate::protocol::message::{Refusal, code};
use crate::results::read::ReadRequest;
use crate::transport::peer::Lost;

/// The limits on tool names for a client with this `clientInfo.name`. The length is the one that the file
/// sets; otherwise it is the room that the client's own prefix leaves. The client makes that prefix from the
/// name that its configuration gives us: `entry`, unless the command line says otherwise.
fn name_limits(common: &Common, entry: &str, client: &str) -> NameLimits {
    let entry = common.naming.entry.as_deref().unwrap_or(entry);
    let room = || Behaviour::of(client).tool_names.room(entry);
    let length = common.naming.max_length.unwrap_or_else(room);
    NameLimits { rule: common.naming.rule, length, reserved: None }
}

/// A product surface over the engine.
pub trait Face: Exposure + Send + Sync {
    /// The name that we give ourselves towards clients.
    fn name(&self) -> &'static str {
        OUR_NAME
    }

    /// The file's top-level settings.
    fn common(&self) -> &Common;

    /// Every server of the file, in the file's order.
    fn servers(&self) -> Vec<Declared<'_>>;

    /// The groups of servers, in the file's order; a group may have no servers.
    fn groups(&self) -> Vec<&str>;

    /// The file's description of a group.
    fn about(&self, _group: &str) -> &str {
        ""
    }

    /// Whether clients are told of a group by the names of its tools, since nothing else describes it.
    fn is_introduced_by_tools(&self, _group: &str) -> bool {
        false
    }

    /// The same face for clients that may see only a part of the file; `None` if the file has no such part.
    fn part(&self, part: &Part) -> Option<Arc<dyn Face>>;

    /// The same face without servers, for clients that still look at something the file no longer has; `None`
    /// if the face stays as it is.
    fn emptied(&self) -> Option<Arc<dyn Face>> {
        None
    }

    /// This face, read from a new file, as the successor of an older one.
    fn succeed(self: Arc<Self>, _old: &dyn Face) -> Arc<dyn Face>;

    /// How long lists wait for servers, for a face that has all of them open from the start. Those servers
    /// start with the gateway, unless they are at rest.
    fn starts_all(&self) -> Option<Duration> {
        None
    }

    /// The group that must be open before a client can ask for anything.
    fn opens_first(&self) -> Option<&str> {
        None
    }

    /// What a search covers; `None` where search is off.
    fn searches(&self) -> Option<Searched> {
        None
    }

    /// The `instructions` of the handshake.
    fn instructions(&self, viewer: &Viewer<'_>) -> Option<String>;

    /// The definitions of the face's own tools, separated by commas: first those listed before the servers'
    /// tools, then those listed after them.
    fn own_tools(&self, view: &View, viewer: &Viewer<'_>) -> [Arc<String>; 2];

    /// Whether the face has a tool of its own by this name.
    fn has_own_tool(&self, name: &str) -> bool;

    /// What a tool call means. `remembered` holds what servers are known to offer; a face that needs it and
    /// was given `None` returns [`Step::Recall`].
    fn call<'a>(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        call: &ToolCall<'a>,
        remembered: Option<&Remembered>,
    ) -> Step<'a>;

    /// How a call continues once the group that it opened has opened or failed.
    fn opened(&self, view: &View, viewer: &Viewer<'_>, opening: &Opening<'_>) -> Step<'static>;

    /// The answer to a call that closed a group.
    fn closed(&self, _group: &str, _tools: usize, _servers: usize) -> String {
        String::new()
    }

    /// The answer to a call that switched things on or off.
    fn switched(&self, _view: &View, _viewer: &Viewer<'_>, _change: &SwitchChange) -> String {
        String::new()
    }

    /// The answer to a search.
    fn found(&self, _view: &View, _viewer: &Viewer<'_>, _search: &SearchResult<'_>) -> String {
        String::new()
    }

    /// The tool with which a model reads a result that was too long for it.
    fn reader(&self) -> &'static str {
        READ
    }

    /// The answer to a call of [`Self::reader`] that cannot be answered.
    fn unreadable(&self, why: &[String]) -> String {
        error_result(why)
    }

    /// Where a URI leads.
    fn resource(&self, view: &View, viewer: &Viewer<'_>, wanted: &WantedUri<'_>) -> Found;

    /// The error for a request that was not a tool call.
    fn refusal(&self, code: i64, message: &str) -> Refusal {
        Refusal::new(code, message)
    }

    /// What a client is told about a tool call that the server refused or never answered.
    fn failed_call(&self, target: &Target, failure: &CallFailure<'_>) -> Wording;

    /// What a client is told about any other request, for something of this name, that a server refused or
    /// never answered.
    fn failed(&self, name: &str, failure: &CallFailure<'_>) -> Wording {
        match failure {
            CallFailure::Refused(_) => Wording::AsItCame,
            CallFailure::Lost(lost) => Wording::Error(self.refusal(lost.code, &format!("{name}: {lost}"))),
        }
    }

    /// What a client is told about a call whose server did not come up in time; `error` says what the call
    /// waited for.
    fn failed_wait(&self, call: &ToolCall<'_>, upstream: &Upstream, error: &StartError) -> Wording {
        let message = format!("{upstream}: {}: {error}", call.name);
        Wording::Error(self.refusal(code::UPSTREAM_LOST, &message))
    }

    /// What a client is told about a call that arrives while the gateway is shutting down.
    fn too_late(&self, _view: &View, call: &ToolCall<'_>, reason: &str) -> Wording {
        Wording::Error(self.refusal(code::UPSTREAM_LOST, &format!("{}: {reason}", call.name)))
    }
}

/// Who is looking at a view, and how far startup has got.
#[derive(Clone, Copy)]
pub struct Viewer<'a> {
    /// What a legacy client said about itself.
    pub client: Option<&'a ClientHello>,
    /// The parameters of the request, in which a modern client says who it is.
    pub params: Node<'a>,
    /// Whether the client speaks the modern era.
    pub modern: bool,
    /// Whether the client renders apps.
    pub renders_apps: bool,
    /// Whether every server that starts with the gateway is up, failed or late.
    pub settled: bool,
    /// What is known of servers that do not run; `None` where that makes no difference.
    pub known: Option<&'a Known>,
}

impl<'a> Viewer<'a> {
    /// A client of which nothing else is known.
    fn new(client: Option<&'a ClientHello>, modern: bool) -> Self {
        let (params, renders_apps, settled) = (Node::empty(), false, true);
        Self { client, params, modern, renders_apps, settled, known: None }
    }

    /// What the client calls itself; empty where that is not known.
    pub fn name(&self) -> Cow<'_, str> {
        match (self.modern, self.client) {
            (true, _) => modern_name(self.params),
            (false, Some(client)) => client.name.as_str().into(),
            (false, None) => "".into(),
        }
    }

    /// How many bytes of a result the client is known to take, if anything is known.
    pub fn takes(&self) -> Option<usize> {
        Behaviour::of(&self.name()).longest_result(self.modern)
    }

    /// How this viewer looks at lists.
    pub fn look(&self) -> Look {
        Look::of(&self.name(), self.modern, self.renders_apps)
    }
}

/// A tool call.
#[derive(Clone, Copy)]
pub struct ToolCall<'a> {
    /// The name that was called.
    pub name: &'a str,
    /// The arguments as they came.
    pub arguments: Option<Node<'a>>,
}

/// What the gateway is to do about a request.
pub enum Step<'a> {
    /// Answer the client.
    Say(Wording),
    /// Send the call to the tool's server, with these arguments in place of the call's own if any are given.
    Forward(Target, Option<Option<Node<'a>>>),
    /// Open a group, then continue as [`Then`] says.
    Open(String, Then),
    /// Close a group.
    Close(String),
    /// Switch things on and off.
    Switch(SwitchChange),
    /// Search.
    Find(Query),
    /// Read a result that was kept.
    Read(ReadRequest),
    /// Handle the request again when more servers are up.
    Wait,
    /// Handle the call again when this server, which may have the tool, is up.
    WaitFor(Arc<Upstream>),
    /// Handle the call again with what servers are known to offer.
    Recall,
    /// Handle the request again.
    Again,
}

impl Step<'_> {
    /// An answer with a result, whether it reports success or failure.
    fn result(result: String) -> Self {
        Self::Say(Wording::Result(result))
    }
}

/// How a request continues after it has opened a group.
#[derive(Debug, Clone)]
pub enum Then {
    /// With a meta-tool's answer.
    Answer {
        /// The meta-tool.
        meta: Meta,
        /// Whether it was called with the arguments of our ancestor, which knew only proxy mode.
        as_ancestor: bool,
    },
    /// The request is a tool call, for a tool of one of these servers, and is handled again.
    Call {
        /// The tool, as the call spells it.
        wanted: String,
        /// The servers that may have the tool.
        servers: Vec<String>,
    },
    /// The request, whatever it is, is handled again.
    Request,
}

/// The outcome of opening a group.
pub struct Opening<'a> {
    /// The group.
    pub group: &'a str,
    /// How the request continues.
    pub then: &'a Then,
    /// The servers that failed, and why; `None` if the group was closed, or had gone, before it was open.
    pub failed: Option<&'a [(Arc<str>, Arc<str>)]>,
}

/// The answer to a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Wording {
    /// A raw result.
    Result(String),
    /// An error.
    Error(Refusal),
    /// The server's own error, unchanged.
    AsItCame,
}

/// Why a request has no result.
pub enum CallFailure<'a> {
    /// The server answered with this error.
    Refused(Node<'a>),
    /// The server did not answer.
    Lost(&'a Lost),
}

/// A URI that a client asks for.
pub struct WantedUri<'a> {
    /// The URI as the client knows it.
    pub uri: &'a str,
    /// The upstream that sent a link to it.
    pub sender: Option<Arc<Upstream>>,
    /// Whether the client only unsubscribes from it; the resource's state does not matter then.
    pub leaves: bool,
    /// Whether the client reads it.
    pub reads: bool,
}

/// Where a name or a URI leads.
pub enum Found {
    /// To an upstream, with the upstream's own name for it as raw JSON.
    At(Arc<Upstream>, String),
    /// To something of the face's own, with the raw result.
    Own(String),
    /// Nowhere.
    Refused(Refusal),
    /// Perhaps to a server that is not up yet.
    Wait,
}

/// A server as the file declares it.
pub struct Declared<'a> {
    /// The server's group.
    pub group: &'a str,
    /// The key of the server in its group, which stays the same when the file changes around the server.
    pub key: &'a str,
    /// The server's name in the group; empty if it has none.
    pub name: &'a str,
    /// The server's name for people.
    pub label: String,
    /// How the server runs.
    pub spec: Spec,
}

/// A part of what the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// The groups in this part; `None` means all groups.
    pub names: Option<Vec<String>>,
    /// The one toolbox that is served as a plain server.
    pub toolbox: Option<String>,
}

impl Part {
    /// Whether a group is in this part.
    pub fn admits(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|other| other == name))
    }
}

/// What a search covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Searched {
    /// Every server of the file, with what each is known to offer.
    File,
    /// What the view holds.
    View,
}

/// A group, and the key of a server in it.
pub type ServerPlace = (String, String);

/// What a search found.
pub struct SearchResult<'a> {
    /// What was searched for.
    pub query: &'a str,
    /// What matches, best first.
    pub things: Vec<FoundThing<'a>>,
    /// The servers that match and whose offers are not known.
    pub unknown: Vec<&'a ServerPlace>,
    /// If nothing matches: the server that the query is about, although it offers no such thing.
    pub near: Option<&'a ServerPlace>,
}

/// One result of a search.
pub struct FoundThing<'a> {
    /// The server that it belongs to.
    pub place: &'a ServerPlace,
    /// Its kind.
    pub kind: Kind,
    /// Its definition, as the server sent it.
    pub item: &'a Item,
}

/// What servers were known to offer, each under the transport that reaches it.
pub struct Remembered(pub Vec<(Transport, Sent)>);

impl Remembered {
    /// What the server behind this transport was known to offer, as far as clients may see it.
    pub fn of(&self, transport: &Transport, guard: Option<&Guard>) -> Option<Items> {
        self.0.iter().find(|(other, _)| other == transport).map(|(_, sent)| sent.shown(guard).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_admits_whole_names() {
        let part = Part { names: Some(vec!["dev".to_owned()]), toolbox: None };
        for (name, expected) in
            [("dev", true), ("develop", false), ("de", false), ("Dev", false), ("", false)]
        {
            assert_eq!(part.admits(name), expected, "{name}");
        }
        assert!(Part::default().admits("dev"));
        assert!(!Part { names: Some(Vec::new()), toolbox: None }.admits("dev"));
    }

    #[test]
    fn a_toolbox_is_served_alone_only_to_those_who_may_see_it() {
        let file = br#"{"toolboxes":{"dev":{"mcpServers":{}},"ops":{"mcpServers":{}}}}"#;
        let (config, _) =
            crate::config::load(std::path::Path::new("x"), file, &crate::config::Inputs::of(&|_| None))
                .expect("it is valid");
        let whole = workbench::Workbench { config };
        for (names, toolbox, expected) in [
            (None, "dev", Some(vec!["dev"])),
            (Some("dev"), "dev", Some(vec!["dev"])),
            (Some("dev"), "ops", None),
            (None, "other", None),
        ] {
            let names = names.map(|name: &str| vec![name.to_owned()]);
            let part = Part { names, toolbox: Some(toolbox.to_owned()) };
            let face = whole.part(&part);
            assert_eq!(face.as_ref().map(|face| face.groups()), expected, "{part:?}");
        }
    }
}
