//! From a file to a valid [`Workbench`] or [`Toolman`], or every problem in it at once.
//!
//! Past this module a name is a checked name, a timeout is a [`Duration`] greater than zero and every
//! variable is expanded; nothing downstream validates again. Nothing here touches the terminal or reads
//! the environment by itself: both come in as parameters.
//!
//! Invariant: a configuration is valid. Whoever holds one need not check names, variables or timeouts again.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

mod access;
pub(crate) mod command_line;
mod comments;
pub(crate) mod detect;
mod diagnostic;
mod downloads;
pub(crate) mod entry;
pub mod env_file;
pub(crate) mod expand;
pub(crate) mod json;
pub mod locate;
pub mod names;
pub(crate) mod node;
mod oauth;
pub(crate) mod read;
mod report;
pub mod schema;
mod secrets;
mod server;
mod settings;
mod source;
pub(crate) mod toml;
mod toolman;
mod workbench;

pub use access::{Access, mend};
pub use diagnostic::Problem;
pub use env_file::{EnvFile, ReadEnvFile};
pub use expand::Environment;
pub use names::{ServerName, ToolboxName};
pub use secrets::{Redactor, Secret};
pub use toolman::load_toolman;
pub use workbench::load;

/// What a configuration is read with, besides its own text.
pub struct Inputs<'a> {
    /// The variables that are set.
    pub environment: &'a Environment<'a>,
    /// Reads a file that the configuration names.
    pub read: &'a ReadEnvFile<'a>,
    /// Whether servers whose variables are not set are skipped, whatever the file says.
    pub skip_missing: bool,
}

impl<'a> Inputs<'a> {
    /// Variables alone, as if there were no other files.
    pub fn of(environment: &'a Environment<'a>) -> Self {
        Self { environment, read: &|_| Err(io::ErrorKind::NotFound.into()), skip_missing: false }
    }
}

/// A valid `workbench-config.json`.
#[derive(Debug, Clone)]
pub struct Workbench {
    /// How opened tools reach the client.
    pub tool_mode: ToolMode,
    /// Which generation of meta-tools is listed.
    pub meta_tools: MetaTools,
    /// Most bytes of `instructions`; 0 is no limit.
    pub instructions_limit: usize,
    /// How long answers with many definitions may be.
    pub open_limit: OpenLimit,
    /// Whether the search tool is listed.
    pub search: bool,
    /// What both faces share.
    pub common: Common,
    /// In the order of the file.
    pub toolboxes: Vec<Toolbox>,
}

/// A valid `tools.toml`.
#[derive(Debug, Clone)]
pub struct Toolman {
    /// Patterns over exposed names; what matches starts active.
    pub active_toolsets: Vec<String>,
    /// Stands between namespace and URI of a resource, if the file says what.
    pub resource_separator: Option<String>,
    /// Whether what was switched by hand is kept across restarts.
    pub remember: bool,
    /// How long the first lists wait for servers; may be zero.
    pub startup_wait: Duration,
    /// Whether the search tool is listed.
    pub search: bool,
    /// What both faces share.
    pub common: Common,
    /// In the order of the file.
    pub servers: Vec<Arc<NamespacedServer>>,
}

/// One upstream of `tools.toml`.
#[derive(Debug, PartialEq)]
pub struct NamespacedServer {
    /// Stands before its names; may be empty, and may repeat.
    pub namespace: String,
    /// How to reach it.
    pub transport: Transport,
    /// Whether it is started again when it dies.
    pub restart: bool,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Who shares a connection to it.
    pub isolation: Isolation,
    /// When it runs.
    pub running: Running,
}

/// Top-level settings that both faces have.
#[derive(Debug, Clone)]
pub struct Common {
    /// Whether characters that clients reject are replaced in registered names.
    pub names: NameRule,
    /// Longest registered tool name, in characters, at least 10; `None` is what the client takes.
    pub max_name_length: Option<usize>,
    /// What the client's file calls us, where it is not what we call ourselves. The command line says it, no file does.
    pub entry: Option<String>,
    /// Largest message accepted from an upstream or a stdio client.
    pub max_message_bytes: usize,
    /// How long a question of an upstream waits for the client's answer.
    pub question_timeout: Duration,
    /// When servers run whose entries do not say so.
    pub running: Running,
    /// How we serve over HTTP.
    pub serving: Serving,
    /// Replaces every secret of the file in foreign text.
    pub secrets: Redactor,
}

/// Settings of serving over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// How long a session without stream and request lives.
    pub session_idle_timeout: Duration,
    /// Largest request body.
    pub max_body_bytes: usize,
    /// Seals what clients carry for us between requests; `None` is a key of this process.
    pub state_key: Option<Secret>,
    /// Who may come in; empty where the file names nobody.
    pub tokens: Vec<Token>,
}

/// A bearer token and what it opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// For logs; unique in the file.
    pub name: String,
    /// Never empty, unique in the file.
    pub token: Secret,
    /// Names of toolboxes (toolman: namespaces) of this file; `None` is all.
    pub scope: Option<Vec<String>>,
}

/// A named group of servers.
#[derive(Debug, Clone)]
pub struct Toolbox {
    /// Unique in the file.
    pub name: ToolboxName,
    /// Empty where the file has none.
    pub description: String,
    /// Enabled servers, in the order of the file.
    pub servers: Vec<Arc<Server>>,
}

/// One upstream as configured.
#[derive(Debug, PartialEq)]
pub struct Server {
    /// Unique in its toolbox.
    pub name: ServerName,
    /// How to reach it.
    pub transport: Transport,
    /// Which of its tools exist for clients.
    pub filter: ToolFilter,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Who shares a connection to it.
    pub isolation: Isolation,
    /// When it runs.
    pub running: Running,
}

/// How an upstream is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A child process that speaks over its pipes.
    Stdio(Command),
    /// A server behind a URL.
    Http(Http),
    /// One that cannot be reached, since its entry needs variables that are not set.
    Unset(Unset),
}

/// What a server lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unset {
    /// The variables that are not set, in the order of the file; at least one.
    pub variables: Vec<String>,
    /// How the server would be reached: `stdio`, `http` or `sse`.
    pub transport: &'static str,
}

impl fmt::Display for Unset {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variables.as_slice() {
            [one] => write!(out, "the environment variable {one} is not set"),
            many => {
                let (last, others) = many.split_last().expect("there is at least one");
                write!(out, "the environment variables {} and {last} are not set", others.join(", "))
            }
        }
    }
}

/// What to start, before the program is looked up in `PATH`. Its `Debug` form shows neither arguments nor
/// values, which may come from the environment.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    /// A bare name or a path.
    pub program: String,
    /// Arguments, expanded.
    pub args: Vec<String>,
    /// Declared variables, in the order of the file.
    pub env: Vec<(String, Secret)>,
    /// Absolute; `None` is the gateway's own working directory.
    pub cwd: Option<PathBuf>,
    /// Further variables handed on from the gateway's environment; `*` is all.
    pub inherit_env: Vec<String>,
}

impl fmt::Debug for Command {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Command({} with {} arguments)", self.program, self.args.len())
    }
}

/// An upstream behind a URL. Its `Debug` form shows no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Http {
    /// `http` or `https`, with a host.
    pub url: String,
    /// In the order of the file; names and values are fit to be sent.
    pub headers: Vec<(String, Secret)>,
    /// Whether it speaks the deprecated HTTP+SSE transport.
    pub sse: bool,
    /// How to log in where it wants that; `None`: not at all.
    pub oauth: Option<OAuth>,
}

/// How to log in to a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OAuth {
    /// A client that is registered with the authorization server.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<Secret>,
    /// The document that describes us to authorization servers which read such.
    pub client_metadata_url: Option<String>,
    /// The scopes to ask for, with spaces between them.
    pub scope: Option<String>,
    /// The port that the browser comes back to.
    pub callback_port: Option<u16>,
}

impl Http {
    /// Whether the file itself says who we are, so that no login is wanted.
    pub fn has_credentials(&self) -> bool {
        let authority = self.url.split("://").nth(1).and_then(|rest| rest.split(['/', '?', '#']).next());
        self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
            || authority.is_some_and(|authority| authority.contains('@'))
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Http({})", source::presentable(&self.url))
    }
}

/// Who shares a connection to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// All clients.
    Shared,
    /// Nobody: each session, or token, has its own.
    Session,
}

/// When a server runs, as far as the file says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Running {
    /// When it starts.
    pub start: Option<Start>,
}

impl Running {
    /// What is said here, else what is said there.
    pub fn or(self, other: Self) -> Self {
        Self { start: self.start.or(other.start) }
    }
}

/// When a server starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// When its toolbox is opened; under toolman, at once.
    Open,
    /// When something of it is used; until then it is shown as it was when it last ran.
    Call,
}

/// Which tools of a server pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolFilter {
    /// Every tool.
    All,
    /// These names exactly; none when empty.
    Only(Vec<String>),
}

impl ToolFilter {
    /// Whether the tool with this original name passes.
    pub fn allows(&self, tool: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| name == tool),
        }
    }
}

/// Deadlines of one upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// How long an opening or a call waits for spawn, handshake and all lists.
    pub connect: Duration,
    /// When a process that is not ready by then is ended.
    pub start: Duration,
    /// Longest silence of a call; progress extends it.
    pub call: Option<Duration>,
    /// Longest time of a call in all.
    pub max_call: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        let connect = Duration::from_secs(30);
        Self { connect, start: connect, call: None, max_call: None }
    }
}

/// How opened tools reach the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolMode {
    /// Registered under names of their own.
    Dynamic,
    /// Called through `use_tool`.
    Proxy,
    /// Dynamic for clients known to honour `list_changed`, proxy for the others.
    Auto,
    /// Registered from the start: every toolbox is open.
    Flat,
}

/// How long the text of an answer with many definitions may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenLimit {
    /// As the client is known to take it.
    Auto,
    /// So many bytes.
    Bytes(usize),
    /// As it comes.
    None,
}

/// A generation of meta-tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaTools {
    /// `open_toolbox`, `use_tool`.
    Current,
    /// `workbench_…`.
    Classic,
}

/// What happens to characters outside `[A-Za-z0-9_-]` in registered names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// They are replaced, and a hash keeps the name unique.
    Safe,
    /// They stay.
    Exact,
}

#[cfg(test)]
mod variable_tests;
