//! Protocol versions and the legacy handshake. The modern era (2026-07-28) will stand beside it.

use super::json::{Node, Scanner, quote};

/// A protocol version of the legacy era, in the order of their dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 2024-11-05
    V2024,
    /// 2025-03-26: the only one with batches.
    V2025March,
    /// 2025-06-18
    V2025June,
    /// 2025-11-25
    V2025November,
}

impl Version {
    /// All of them, newest last.
    pub const ALL: [Self; 4] = [Self::V2024, Self::V2025March, Self::V2025June, Self::V2025November];
    /// What we offer where nothing else decides.
    pub const LATEST: Self = Self::V2025November;

    /// The version that a peer names.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024 => "2024-11-05",
            Self::V2025March => "2025-03-26",
            Self::V2025June => "2025-06-18",
            Self::V2025November => "2025-11-25",
        }
    }

    /// What we answer to a client that asks for a version: the same if we know it, else our latest.
    pub fn negotiate(requested: &str) -> Self {
        Self::from_text(requested).unwrap_or(Self::LATEST)
    }
}

/// What a client said of itself in `initialize`.
#[derive(Debug, Clone)]
pub struct ClientHello {
    /// Negotiated.
    pub version: Version,
    /// `clientInfo.name`, or empty.
    pub name: String,
    /// Raw object.
    pub capabilities: String,
}

impl ClientHello {
    /// Reads the parameters of `initialize`; the error says what is missing.
    pub fn read(params: Option<Node<'_>>) -> Result<Self, &'static str> {
        let requested = params
            .and_then(|params| params.get("protocolVersion"))
            .and_then(Node::as_str)
            .ok_or("initialize needs a \"protocolVersion\"")?;
        let capabilities =
            params.and_then(|params| params.get("capabilities")).filter(|node| node.is_object());
        let name = params.and_then(|params| params.get("clientInfo")).and_then(|info| info.get("name"));
        Ok(Self {
            version: Version::negotiate(&requested),
            name: name.and_then(Node::as_str).unwrap_or_default().into_owned(),
            capabilities: capabilities.map_or("{}", Node::raw).to_owned(),
        })
    }

    /// Whether the client declared this capability.
    pub fn can(&self, capability: &str) -> bool {
        has_member(&self.capabilities, capability)
    }
}

/// What an upstream said of itself in its answer to `initialize`.
#[derive(Debug, Clone)]
pub struct ServerHello {
    /// Chosen by the upstream.
    pub version: Version,
    /// Raw object.
    pub capabilities: String,
}

impl ServerHello {
    /// Reads the result of `initialize`.
    pub fn read(result: &str) -> Result<Self, String> {
        let mut scanner = Scanner::default();
        let root =
            scanner.scan_str(result).map_err(|_| "answered `initialize` with no JSON".to_owned())?.root();
        let version = root
            .get("protocolVersion")
            .and_then(Node::as_str)
            .ok_or("answered `initialize` without a protocol version; is it an MCP server?")?;
        let version = Version::from_text(&version)
            .ok_or_else(|| format!("speaks protocol version {}, which is not supported", quote(&version)))?;
        let capabilities = root.get("capabilities").filter(|node| node.is_object()).map_or("{}", Node::raw);
        Ok(Self { version, capabilities: capabilities.to_owned() })
    }

    /// Whether the upstream declared this capability.
    pub fn can(&self, capability: &str) -> bool {
        has_member(&self.capabilities, capability)
    }
}

fn has_member(object: &str, key: &str) -> bool {
    Scanner::default()
        .scan_str(object)
        .is_ok_and(|doc| doc.root().get(key).is_some_and(|node| node.raw() != "null"))
}

/// The parameters of our own `initialize`.
pub fn initialize_params(version: Version, capabilities: &str) -> String {
    format!(
        "{{\"protocolVersion\":\"{}\",\"capabilities\":{capabilities},\"clientInfo\":{{\"name\":\"mcp-workbench\",\"version\":\"{}\"}}}}",
        version.as_str(),
        env!("CARGO_PKG_VERSION"),
    )
}
