//! How the files of clients are described.

use crate::config::node::Format;

/// The files in which a client keeps its servers. `client_files::places` has the spelling of paths.
#[derive(Debug)]
pub struct ClientFiles {
    /// Its user-wide files, most important first. Of a group the first that can be told is meant.
    pub user: &'static [&'static [&'static str]],
    /// User-wide files of another product that it reads as well; we do not put ourselves there.
    pub borrowed: &'static [&'static str],
    /// Its files in a project.
    pub project: &'static [&'static str],
    /// Where servers stand in a file; the first is where we put ourselves.
    pub roots: &'static [&'static str],
    /// How they are written.
    pub dialect: Dialect,
}

/// How a client writes down a server.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// The syntax of the whole file.
    pub format: Format,
    /// The shape of an entry.
    pub style: EntryStyle,
    /// How it writes variables.
    pub variables: VariableSyntax,
    /// Whether it expands variables in URLs and headers only.
    pub only_remote: bool,
    /// Its keys for timeouts.
    pub timeouts: &'static [(&'static str, Deadline, TimeUnit)],
    /// Whether a URL without a type means the deprecated transport.
    pub bare_url_is_sse: bool,
}

impl Dialect {
    /// What most clients have in common.
    pub const PLAIN: Self = Self {
        format: Format::Json,
        style: EntryStyle::Plain,
        variables: VariableSyntax::None,
        only_remote: false,
        timeouts: &[],
        bare_url_is_sse: false,
    };
}

/// What a timeout limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// Starting the server.
    Connect,
    /// One call.
    Call,
}

/// What a timeout is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Fractions may be allowed.
    Seconds,
    /// A thousandth.
    Milliseconds,
}

/// How an entry looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryStyle {
    /// `command` and `args`.
    Plain,
    /// The same after `"type": "stdio"`.
    Typed,
    /// The command is a list, and entries are switched on.
    Opencode,
    /// `cmd`, `name` and more.
    Goose,
}

/// A way to write variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableSyntax {
    /// None: what looks like a variable is text.
    None,
    /// Our own files: `${V}`, `${V:-default}`, and `$${` for text.
    Config,
    /// `${V}` and `${V:-default}`.
    Braced,
    /// `${env:V}`, `${userHome}`, `${workspaceFolder}`, `${input:id}`.
    Editor,
    /// `$V`, `${V}` and `${V:-default}`.
    Dollar,
    /// `{env:V}`.
    OpenCode,
}
