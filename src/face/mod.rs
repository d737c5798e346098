//! Product surfaces: what clients are shown, what their requests mean, and every word that a model reads.
//!
//! A face decides, the gateway acts: it asks the face of a client what to do with a request and carries out the [`Step`]
//! that it gets. The engine asks it for names ([`Exposure`]).
//!
//! Invariant: faces are pure. They get a view and return steps and texts; nothing here waits, sends, changes anything or
//! touches the disk. Of upstreams they read what the view holds, whether they run, and who must log in.

mod arguments;
mod brief;
pub mod find;
pub mod fit;
pub mod glob;
mod own_tool;
pub mod plain;
pub mod reach;
mod signature;
pub mod toolman;
pub mod uri_template;
pub mod workbench;

use std::sync::Arc;
use std::time::Duration;

use self::find::Query;
use self::toolman::Change;
use self::workbench::Meta;
use crate::catalog::{Item, Items, Kind, NameLimits};
use crate::config::{Common, Transport};
use crate::core::start_error::StartError;
use crate::core::upstream::{Spec, Upstream};
use crate::core::view::{Exposure, Look, Target, View};
use crate::json::Node;
use crate::known_clients::Behaviour;
use crate::protocol::era::{ClientHello, OUR_NAME};
use crate::protocol::message::{Refusal, code};
use crate::transport::peer::Lost;

/// How the names of tools must look for a client with this `clientInfo.name`: they fit with the prefix that it makes of
/// what its file calls us, `entry` unless the command line says otherwise, or are as long as the file says.
fn name_limits(common: &Common, entry: &str, client: &str) -> NameLimits {
    let entry = common.entry.as_deref().unwrap_or(entry);
    let room = || Behaviour::of(client).tool_names.room(entry);
    NameLimits { rule: common.names, length: common.max_name_length.unwrap_or_else(room) }
}

/// A product surface over the engine.
pub trait Face: Exposure + Send + Sync {
    /// What clients are told that they talk to.
    fn name(&self) -> &'static str {
        OUR_NAME
    }

    /// Top-level settings of the file.
    fn common(&self) -> &Common;

    /// Every server of the file, in its order.
    fn servers(&self) -> Vec<Declared<'_>>;

    /// The groups of servers, in the order of the file; one may have no servers.
    fn groups(&self) -> Vec<&str>;

    /// What the file says of a group.
    fn about(&self, _group: &str) -> &str {
        ""
    }

    /// The same face for those who may see only a part of the file; `None` if there is no such part.
    fn part(&self, part: &Part) -> Option<Arc<dyn Face>>;

    /// The same without servers, for those who still look at what the file has no longer; `None`: it stays as it is.
    fn emptied(&self) -> Option<Arc<dyn Face>> {
        None
    }

    /// This face, of a new file, in the place of an older one.
    fn succeed(self: Arc<Self>, _old: &dyn Face) -> Arc<dyn Face>;

    /// How long lists wait for servers, where all of them are open from the start: they start with the gateway, unless
    /// they are at rest.
    fn starts_all(&self) -> Option<Duration> {
        None
    }

    /// The group that must be open before anything can be asked for.
    fn opens_first(&self) -> Option<&str> {
        None
    }

    /// What is searched, where search is on.
    fn searches(&self) -> Option<Searched> {
        None
    }

    /// The text of the handshake.
    fn instructions(&self, viewer: &Viewer<'_>) -> Option<String>;

    /// The definitions of the face's own tools, separated by commas: those before the tools of servers, those behind.
    fn own_tools(&self, view: &View, viewer: &Viewer<'_>) -> [String; 2];

    /// What a call of a tool means. `remembered` tells what servers are known to offer; where a face needs it and has it
    /// not, it says [`Step::Recall`].
    fn call<'a>(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        call: &ToolCall<'a>,
        remembered: Option<&Remembered>,
    ) -> Step<'a>;

    /// How a call goes on that opened a group.
    fn opened(&self, view: &View, viewer: &Viewer<'_>, opening: &Opening<'_>) -> Step<'static>;

    /// The answer to a call that closed a group.
    fn closed(&self, _group: &str, _tools: usize, _servers: usize) -> String {
        String::new()
    }

    /// The answer to a call that switched something.
    fn switched(&self, _view: &View, _viewer: &Viewer<'_>, _change: &Change) -> String {
        String::new()
    }

    /// The answer to a search.
    fn found(
        &self,
        _view: &View,
        _viewer: &Viewer<'_>,
        _query: &str,
        _things: &[FoundThing<'_>],
        _unknown: &[ServerPlace],
    ) -> String {
        String::new()
    }

    /// Where a URI leads.
    fn resource(&self, view: &View, viewer: &Viewer<'_>, wanted: &WantedUri<'_>) -> Found;

    /// What an error says of a request that was no tool call.
    fn refusal(&self, code: i64, message: &str) -> Refusal {
        Refusal::new(code, message)
    }

    /// What a client is told of a call that the tool's server refused or never answered.
    fn failed_call(&self, target: &Target, failure: &CallFailure<'_>) -> Wording;

    /// What a client is told of another request, for something of this name, that a server refused or never answered.
    fn failed(&self, name: &str, failure: &CallFailure<'_>) -> Wording {
        match failure {
            CallFailure::Refused(_) => Wording::AsItCame,
            CallFailure::Lost(lost) => Wording::Error(self.refusal(lost.code, &format!("{name}: {lost}"))),
        }
    }

    /// What a client is told of a call of a server that did not come up in time, by what it waited for.
    fn failed_wait(&self, call: &ToolCall<'_>, upstream: &Upstream, error: &StartError) -> Wording {
        let message = format!("{upstream}: {}: {error}", call.name);
        Wording::Error(self.refusal(code::UPSTREAM_LOST, &message))
    }

    /// What a client is told of a call that comes when we end.
    fn too_late(&self, _view: &View, call: &ToolCall<'_>, reason: &str) -> Wording {
        Wording::Error(self.refusal(code::UPSTREAM_LOST, &format!("{}: {reason}", call.name)))
    }
}

/// Who looks, and how far things are.
#[derive(Clone, Copy)]
pub struct Viewer<'a> {
    /// What a legacy client said of itself.
    pub client: Option<&'a ClientHello>,
    /// `clientInfo.name` of a modern client; empty where it is not known.
    pub modern_name: &'a str,
    /// Whether it speaks the modern era.
    pub modern: bool,
    /// Whether it renders apps.
    pub renders_apps: bool,
    /// Whether every server that starts with the gateway is up, failed or late.
    pub settled: bool,
}

impl Viewer<'_> {
    /// How it looks at lists.
    pub fn look(&self) -> Look {
        Look { from_start: self.modern, as_host: self.renders_apps }
    }
}

/// A call of a tool.
#[derive(Clone, Copy)]
pub struct ToolCall<'a> {
    /// The name that was called.
    pub name: &'a str,
    /// As they came.
    pub arguments: Option<Node<'a>>,
}

/// What is to be done about a request.
pub enum Step<'a> {
    /// Answer.
    Say(Wording),
    /// Send the call to where the tool is, with these arguments where it has others.
    Forward(Target, Option<Option<Node<'a>>>),
    /// Open a group, then go on.
    Open(String, Then),
    /// Close a group.
    Close(String),
    /// Switch things on and off.
    Switch(Change),
    /// Search.
    Find(Query),
    /// Handle the request again when more servers are up.
    Wait,
    /// Handle the call again when this server is up, which may have the tool.
    WaitFor(Arc<Upstream>),
    /// Handle the call again with what servers are known to offer.
    Recall,
    /// Handle the request again.
    Again,
}

impl Step<'_> {
    /// A result, good or bad.
    fn result(result: String) -> Self {
        Self::Say(Wording::Result(result))
    }
}

/// How a request goes on that opened a group.
#[derive(Debug, Clone)]
pub enum Then {
    /// By the answer of a meta-tool.
    Answer {
        /// Which.
        meta: Meta,
        /// Whether it was called as our ancestor was, which knew proxy mode alone.
        as_ancestor: bool,
    },
    /// By being handled again: it calls a tool, of one of these servers.
    Call {
        /// The tool, in the words of the call.
        wanted: String,
        /// The servers that may have it.
        servers: Vec<String>,
    },
    /// By being handled again, whatever it is.
    Request,
}

/// What came of opening a group.
pub struct Opening<'a> {
    /// Which.
    pub group: &'a str,
    /// What for.
    pub then: &'a Then,
    /// The servers that failed and why; `None` if the group was closed, or is gone, before it had opened.
    pub failed: Option<&'a [(Arc<str>, Arc<str>)]>,
}

/// What a client is answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Wording {
    /// A raw result.
    Result(String),
    /// An error.
    Error(Refusal),
    /// The server's own error, as it came.
    AsItCame,
}

/// Why a request has no result.
pub enum CallFailure<'a> {
    /// The server answered with this error.
    Refused(Node<'a>),
    /// The server did not answer.
    Lost(&'a Lost),
}

/// A URI that somebody wants.
pub struct WantedUri<'a> {
    /// As the client knows it.
    pub uri: &'a str,
    /// Who sent a link to it.
    pub sender: Option<Arc<Upstream>>,
    /// Whether it is only to be left, for which its state does not matter.
    pub leaves: bool,
    /// Whether it is to be read.
    pub reads: bool,
}

/// Where a name or a URI leads.
pub enum Found {
    /// To an upstream, under this name there, as raw JSON.
    At(Arc<Upstream>, String),
    /// To something of the face's own: the raw result.
    Own(String),
    /// Nowhere.
    Refused(Refusal),
    /// Perhaps to a server that is not up yet.
    Wait,
}

/// A server as the file declares it.
pub struct Declared<'a> {
    /// Its group.
    pub group: &'a str,
    /// What it is known by in the group, also when the file changes around it.
    pub key: &'a str,
    /// Its name in the group, if it has one.
    pub name: &'a str,
    /// What people know it by.
    pub label: String,
    /// How it runs.
    pub spec: Spec,
}

/// A part of what the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// The groups that exist; `None` is all.
    pub names: Option<Vec<String>>,
    /// The one toolbox that is served as a plain server.
    pub toolbox: Option<String>,
}

impl Part {
    /// Whether a group is in it.
    pub fn admits(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|other| other == name))
    }
}

/// What a search looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Searched {
    /// Every server of the file, with what it is known to offer.
    File,
    /// What stands in the view.
    View,
}

/// A group and the key of a server in it.
pub type ServerPlace = (String, String);

/// A thing that a search found.
pub struct FoundThing<'a> {
    /// Where it is.
    pub place: &'a ServerPlace,
    /// What it is.
    pub kind: Kind,
    /// As its server defined it.
    pub item: &'a Item,
}

/// What servers were known to offer, by how they are reached.
pub struct Remembered(pub Vec<(Transport, Items)>);

impl Remembered {
    /// What the server that is reached so was known to offer.
    pub fn of(&self, transport: &Transport) -> Option<&Items> {
        self.0.iter().find(|(other, _)| other == transport).map(|(_, items)| items)
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
