//! The types that describe clients' files; `table.rs` fills them.

use crate::config::node::Format;

/// The files in which a client keeps its servers. `client_files::places` defines the spelling of paths.
#[derive(Debug)]
pub struct ClientFiles {
    /// The user-wide files, most important first. In each group, the first path that can be resolved counts.
    pub user: &'static [&'static [&'static str]],
    /// User-wide files of another product that the client reads as well. We do not write there.
    pub borrowed: &'static [&'static str],
    /// The client's files in a project.
    pub project: &'static [&'static str],
    /// The places of servers in a file. We write to the first.
    pub roots: &'static [&'static str],
    /// The notation of the entries.
    pub dialect: Dialect,
}

/// The notation in which a client writes a server.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// The syntax of the whole file.
    pub format: Format,
    /// The shape of an entry.
    pub style: EntryStyle,
    /// The syntax of variables.
    pub variables: VariableSyntax,
    /// Whether the client expands variables in URLs and headers only.
    pub only_remote: bool,
    /// The client's keys for timeouts.
    pub timeouts: &'static [(&'static str, Deadline, TimeUnit)],
    /// Whether a URL without a type means the deprecated transport.
    pub bare_url_is_sse: bool,
}

impl Dialect {
    /// The notation that most clients share.
    pub const PLAIN: Self = Self {
        format: Format::Json,
        style: EntryStyle::Plain,
        variables: VariableSyntax::None,
        only_remote: false,
        timeouts: &[],
        bare_url_is_sse: false,
    };
}

/// The phase that a timeout limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// The start of the server.
    Connect,
    /// One call.
    Call,
}

/// The unit of a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds, possibly with fractions.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

/// The shape of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryStyle {
    /// An entry with `command` and `args`.
    Plain,
    /// Like [`Self::Plain`], with `"type": "stdio"` first.
    Typed,
    /// An entry with the command as a list, which has to be enabled.
    Opencode,
    /// An entry with `cmd`, `name` and more.
    Goose,
}

/// A syntax for variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableSyntax {
    /// No variables: what looks like one is text.
    None,
    /// The syntax of our own files: `${V}`, `${V:-default}`, and `$${` for text.
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
