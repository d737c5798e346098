//! Protocol versions, the legacy handshake, and the metadata of the modern era.
//!
//! Invariant: [`ModernMeta::read`] is the only rule that decides the era of a client's request.

use serde::{Deserialize, Serialize};

use std::borrow::Cow;

use crate::json::{Node, Raw, Scanner, Sorted, quote};
use crate::protocol::message::{Refusal, code};

/// A protocol version. Versions are ordered by date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 2024-11-05
    V2024,
    /// 2025-03-26, the only version with batches
    V2025March,
    /// 2025-06-18
    V2025June,
    /// 2025-11-25
    V2025November,
    /// 2026-07-28, the modern era, without sessions and handshake
    V2026July,
}

/// A family of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Era {
    /// The versions that begin with `initialize`.
    Legacy,
    /// The versions with `server/discover`.
    Modern,
}

/// The keys of `_meta` in the modern era.
pub mod meta {
    #![allow(missing_docs)]
    pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
    pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
}

/// The name of the extension for tasks in the modern era.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The name of the extension by which clients and servers declare support for apps.
pub const APPS: &str = "io.modelcontextprotocol/ui";

/// The levels of log messages, from the least severe on.
pub const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// The index in [`LOG_LEVELS`] of the level that raw parameters of `logging/setLevel` name.
pub fn log_level(params: &str) -> Option<usize> {
    let mut scanner = Scanner::default();
    let level = scanner.scan_str(params).ok()?.root().get("level")?.as_str()?;
    LOG_LEVELS.iter().position(|known| *known == level)
}

/// The capabilities of a client that accepts every kind of question and renders apps.
pub const ALL_CAPABILITIES: &str = "{\"roots\":{},\"sampling\":{},\"elicitation\":{},\"extensions\":{\"io.modelcontextprotocol/ui\":\
     {\"mimeTypes\":[\"text/html;profile=mcp-app\"]}}}";

impl Version {
    /// All versions by date.
    pub const ALL: [Self; 5] =
        [Self::V2024, Self::V2025March, Self::V2025June, Self::V2025November, Self::V2026July];
    /// The versions of the legacy era by date.
    pub const LEGACY: [Self; 4] = [Self::V2024, Self::V2025March, Self::V2025June, Self::V2025November];
    /// The version that we offer in a handshake unless something else decides.
    pub const LATEST_LEGACY: Self = Self::V2025November;
    /// The version of the modern era.
    pub const MODERN: Self = Self::V2026July;

    /// The legacy version that a peer names, if it is one.
    pub fn legacy(text: &str) -> Option<Self> {
        Self::LEGACY.into_iter().find(|version| version.as_str() == text)
    }

    /// The version as it is written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024 => "2024-11-05",
            Self::V2025March => "2025-03-26",
            Self::V2025June => "2025-06-18",
            Self::V2025November => "2025-11-25",
            Self::V2026July => "2026-07-28",
        }
    }

    /// Whether the version belongs to the modern era.
    pub fn is_modern(self) -> bool {
        self == Self::MODERN
    }

    /// The era that the version belongs to.
    pub fn era(self) -> Era {
        if self.is_modern() { Era::Modern } else { Era::Legacy }
    }
}

/// The refusal of a version that we do not speak. A modern client is told the versions that `server/discover`
/// names, any other client all versions.
pub fn unsupported(requested: &str, is_modern: bool) -> Refusal {
    let others: &[Version] = if is_modern { &[] } else { &Version::LEGACY };
    let all = std::iter::once(&Version::MODERN).chain(others.iter().rev());
    let supported: Vec<_> = all.map(|version| quote(version.as_str())).collect();
    let data = format!("{{\"supported\":[{}],\"requested\":{}}}", supported.join(","), quote(requested));
    let message = format!("Unsupported protocol version: {requested}");
    Refusal { code: code::UNSUPPORTED_VERSION, message, data: Some(data) }
}

/// The `_meta` of a request of the modern era.
#[derive(Clone, Copy)]
pub struct ModernMeta<'a> {
    whole: Node<'a>,
    /// The version and the capabilities.
    members: Sorted<'a, 2>,
}

/// The places of the members that make a request modern.
const VERSION: usize = 0;
const CAPABILITIES: usize = 1;

impl<'a> ModernMeta<'a> {
    /// The one rule for the era of a request: it is modern if its `_meta` names a version or capabilities.
    /// `None` means legacy.
    pub fn read(params: Option<Node<'a>>) -> Result<Option<Self>, Refusal> {
        let Some(params) = params else { return Ok(None) };
        let whole = params.unique("_meta").map_err(|_| Refusal::twice("params"))?;
        let Some(whole) = whole.filter(|whole| whole.is_object()) else { return Ok(None) };
        let members = whole.all_unique([meta::VERSION, meta::CAPABILITIES]);
        let members = members.map_err(|_| Refusal::twice("_meta"))?;
        let is_modern = members.has(VERSION) || members.has(CAPABILITIES);
        Ok(is_modern.then_some(Self { whole, members }))
    }

    /// The refusal of a request whose `_meta` lacks this required key or has a value of the wrong type.
    pub fn lacks(key: &str) -> Refusal {
        Refusal::invalid_params(format_args!("`_meta` has no \"{key}\""))
    }

    /// The version that the request names, whether or not we speak it.
    pub fn version(&self) -> Result<Cow<'a, str>, Refusal> {
        self.members.get(VERSION).and_then(Node::as_str).ok_or_else(|| Self::lacks(meta::VERSION))
    }

    /// The whole object, as it was written.
    pub fn raw(&self) -> &'a str {
        self.whole.raw()
    }

    /// Whether the request asks for progress.
    pub fn wants_progress(&self) -> bool {
        self.whole.has_any(&["progressToken"])
    }

    /// `clientInfo.name`; empty if it is missing
    pub fn client_name(&self) -> Cow<'a, str> {
        client_info(self.whole, "name")
    }

    /// `clientInfo.version`; empty if it is missing
    pub fn client_version(&self) -> Cow<'a, str> {
        client_info(self.whole, "version")
    }

    /// The client's capabilities and the lowest severity of log messages that it wants, if we speak the
    /// version.
    pub fn checked(&self) -> Result<(Node<'a>, Option<usize>), Refusal> {
        let version = self.version()?;
        if version != Version::MODERN.as_str() {
            return Err(unsupported(&version, true));
        }
        let capabilities = self.members.get(CAPABILITIES).filter(|node| node.is_object());
        let capabilities = capabilities.ok_or_else(|| Self::lacks(meta::CAPABILITIES))?;
        let Some(level) = self.whole.get(meta::LOG_LEVEL) else { return Ok((capabilities, None)) };
        let known = level.as_str().and_then(|level| LOG_LEVELS.iter().position(|known| *known == level));
        let words = || format!("{} must be one of {}", meta::LOG_LEVEL, LOG_LEVELS.join(", "));
        Ok((capabilities, Some(known.ok_or_else(|| Refusal::invalid_params(words()))?)))
    }
}

/// What a client said about itself in `initialize`.
#[derive(Debug, Clone)]
pub struct ClientHello {
    /// The negotiated version: the client's if we know it, else our latest.
    pub version: Version,
    /// `clientInfo.name`; empty if it is missing
    pub name: String,
    /// `clientInfo.version`; empty if it is missing
    pub client_version: String,
    /// The raw capabilities object.
    pub capabilities: String,
    /// Whether the client accepts any kind of question.
    pub can_be_asked: bool,
    /// Whether the client renders apps.
    pub renders_apps: bool,
    /// What a modern upstream is told about the client: the `_meta` of a request.
    pub modern_meta: String,
}

impl ClientHello {
    /// Reads the parameters of `initialize`. The error says what is missing.
    pub fn read(params: Node<'_>) -> Result<Self, &'static str> {
        let requested = params
            .get("protocolVersion")
            .and_then(Node::as_str)
            .ok_or("initialize needs a \"protocolVersion\"")?;
        let capabilities = params.get("capabilities").filter(|node| node.is_object());
        let info = |key: &str| params.get("clientInfo").and_then(|info| info.get(key)).and_then(Node::as_str);
        let hello = Self::new(
            Version::legacy(&requested).unwrap_or(Version::LATEST_LEGACY),
            &info("name").unwrap_or_default(),
            capabilities.map_or("{}", Node::raw),
        );
        Ok(Self { client_version: info("version").unwrap_or_default().into_owned(), ..hello })
    }

    /// What a client with this version, name and raw capabilities says.
    pub fn new(version: Version, name: &str, capabilities: &str) -> Self {
        Self {
            version,
            name: name.to_owned(),
            client_version: String::new(),
            can_be_asked: can_be_asked(capabilities),
            renders_apps: renders_apps(capabilities),
            modern_meta: format!("{{{}}}", modern_meta(&without_tasks(capabilities))),
            capabilities: capabilities.to_owned(),
        }
    }
}

/// The capabilities of a legacy client for a modern upstream. The tasks extension is removed, because a
/// legacy client cannot know its modern meaning.
fn without_tasks(capabilities: &str) -> String {
    let capabilities = Raw::own(capabilities);
    let root = capabilities.root();
    match root.get("extensions").filter(|extensions| extensions.get(TASKS).is_some()) {
        Some(extensions) => root.with(&[("extensions", Some(&extensions.with(&[(TASKS, None)])))]),
        None => root.raw().to_owned(),
    }
}

/// `clientInfo.name` of a modern client, from the parameters of any of its requests; empty if it is missing
pub fn modern_name(params: Node<'_>) -> Cow<'_, str> {
    params.get("_meta").map_or_else(Cow::default, |meta| client_info(meta, "name"))
}

fn client_info<'a>(meta: Node<'a>, key: &str) -> Cow<'a, str> {
    let info = meta.get(meta::CLIENT_INFO);
    info.and_then(|info| info.get(key)).and_then(Node::as_str).unwrap_or_default()
}

/// What an upstream said about itself in its answer to `initialize` or `server/discover`.
#[derive(Debug, Clone)]
pub struct ServerHello {
    /// The version that the upstream chose.
    pub version: Version,
    /// The raw capabilities object.
    pub capabilities: String,
}

impl ServerHello {
    /// Reads the result of `initialize`.
    pub fn read(result: &str) -> Result<Self, String> {
        let mut scanner = Scanner::default();
        let root = scanner.scan_str(result).expect("a result was validated when it was read").root();
        let version = root
            .get("protocolVersion")
            .and_then(Node::as_str)
            .ok_or("answered `initialize` without a protocol version; is it an MCP server?")?;
        let version = Version::legacy(&version)
            .ok_or_else(|| format!("speaks protocol version {}, which is not supported", quote(&version)))?;
        Ok(Self { version, capabilities: capabilities(root) })
    }

    /// Reads the result of `server/discover`; `None` if it is not one, or names no version that we speak.
    pub fn discovered(result: &str) -> Option<Self> {
        let mut scanner = Scanner::default();
        let root = scanner.scan_str(result).expect("a result was validated when it was read").root();
        let versions: Vec<String> = serde_json::from_str(root.get("supportedVersions")?.raw()).ok()?;
        let modern = versions.iter().any(|version| version == Version::MODERN.as_str());
        modern.then(|| Self { version: Version::MODERN, capabilities: capabilities(root) })
    }

    /// Whether the upstream declared this capability.
    pub fn can(&self, capability: &str) -> bool {
        declares(&self.capabilities, capability)
    }

    /// The upstream's support for tasks, as its era declares it.
    pub fn tasks(&self) -> TaskSupport {
        let has = |path: &[&str]| declares_at(&self.capabilities, path);
        match self.version.is_modern() {
            true if has(&["extensions", TASKS]) => TaskSupport::WithCancel,
            false if has(&["tasks", "requests", "tools", "call"]) && has(&["tasks", "cancel"]) => {
                TaskSupport::WithCancel
            }
            false if has(&["tasks", "requests", "tools", "call"]) => TaskSupport::Plain,
            _ => TaskSupport::None,
        }
    }
}

/// Whether a call can become a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum TaskSupport {
    /// Calls cannot become tasks.
    #[default]
    None,
    /// Calls can become tasks.
    Plain,
    /// Calls can become tasks, and tasks can be cancelled.
    WithCancel,
}

fn capabilities(root: Node<'_>) -> String {
    root.get("capabilities").filter(|node| node.is_object()).map_or("{}", Node::raw).to_owned()
}

/// Whether a client with these raw capabilities accepts any kind of question.
pub fn can_be_asked(capabilities: &str) -> bool {
    ["elicitation", "sampling", "roots"].iter().any(|capability| declares(capabilities, capability))
}

/// Whether a client with these raw capabilities renders apps.
pub fn renders_apps(capabilities: &str) -> bool {
    // Most clients declare no extensions, and searching for the word is faster than scanning.
    capabilities.contains("extensions") && declares_at(capabilities, &["extensions", APPS])
}

/// Whether a raw capabilities object has this member.
pub fn declares(capabilities: &str, capability: &str) -> bool {
    declares_at(capabilities, &[capability])
}

/// Whether a raw capabilities object has a value at this path.
pub fn declares_at(capabilities: &str, path: &[&str]) -> bool {
    let found = |doc: crate::json::Doc<'_>| {
        let node = path.iter().try_fold(doc.root(), |node, key| node.get(key));
        node.is_some_and(|node| node.raw() != "null")
    };
    Scanner::default().scan_str(capabilities).is_ok_and(found)
}

/// Our name in places that do not depend on the face.
pub const OUR_NAME: &str = "mcp-workbench";

/// The object by which a client or server introduces itself, with this name and our version.
pub fn our_info(name: &str) -> String {
    format!("{{\"name\":{},\"version\":\"{}\"}}", quote(name), env!("CARGO_PKG_VERSION"))
}

/// The parameters of the `initialize` that we send.
pub fn initialize_params(version: Version, capabilities: &str) -> String {
    format!(
        "{{\"protocolVersion\":\"{}\",\"capabilities\":{capabilities},\"clientInfo\":{}}}",
        version.as_str(),
        our_info(OUR_NAME),
    )
}

/// The members of `_meta` that every modern request needs, without the braces.
pub fn modern_meta(capabilities: &str) -> String {
    format!(
        "\"{}\":\"{}\",\"{}\":{},\"{}\":{capabilities}",
        meta::VERSION,
        Version::MODERN.as_str(),
        meta::CLIENT_INFO,
        our_info(OUR_NAME),
        meta::CAPABILITIES,
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Parameters of a request, each with its era or the error code that refuses it. Both transports are
    /// tested with these.
    pub(crate) const ERA_CASES: [(&str, Result<Era, i64>); 11] = [
        ("{}", Ok(Era::Legacy)),
        (r#"{"_meta":{"progressToken":1}}"#, Ok(Era::Legacy)),
        (r#"{"_meta":7}"#, Ok(Era::Legacy)),
        (
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#,
            Ok(Era::Modern),
        ),
        (r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#, Err(code::INVALID_PARAMS)),
        (r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#, Err(code::INVALID_PARAMS)),
        (
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":7,"io.modelcontextprotocol/clientCapabilities":{}}}"#,
            Err(code::INVALID_PARAMS),
        ),
        (
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"loud"}}"#,
            Err(code::INVALID_PARAMS),
        ),
        (
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01","io.modelcontextprotocol/clientCapabilities":{}}}"#,
            Err(code::UNSUPPORTED_VERSION),
        ),
        (
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
            Err(code::INVALID_REQUEST),
        ),
        (r#"{"_meta":{},"_META":{}}"#, Err(code::INVALID_REQUEST)),
    ];

    #[test]
    fn who_renders_apps_says_so() {
        for (capabilities, expected) in [
            (ALL_CAPABILITIES, true),
            (r#"{"extensions":{"io.modelcontextprotocol/ui":{}}}"#, true),
            (r#"{"extensions":{"io.modelcontextprotocol\/ui":{}}}"#, true),
            (r#"{"extensions":{"io.modelcontextprotocol/ui":null}}"#, false),
            (r#"{"experimental":{"io.modelcontextprotocol/ui":{}}}"#, false),
            ("{}", false),
        ] {
            assert_eq!(renders_apps(capabilities), expected, "{capabilities}");
        }
    }

    #[test]
    fn a_legacy_client_has_no_tasks_of_the_modern_era() {
        for (capabilities, expected) in [
            ("{}", "{}"),
            (r#"{"extensions":{"x":{}}}"#, r#"{"extensions":{"x":{}}}"#),
            (
                r#"{"roots":{},"extensions":{"x":{},"io.modelcontextprotocol/tasks":{}}}"#,
                r#"{"roots":{},"extensions":{"x":{}}}"#,
            ),
        ] {
            assert_eq!(without_tasks(capabilities), expected);
        }
    }

    #[test]
    fn versions_stand_in_their_order() {
        for (place, version) in Version::ALL.into_iter().enumerate() {
            assert_eq!(version as usize, place);
        }
        assert_eq!(Version::ALL[..4], Version::LEGACY);
    }
}
