//! Turns a file into a valid [`Workbench`] or [`Toolman`], or into every problem in it at once.
//!
//! Past this module a name is a checked name, a timeout is a [`Duration`] greater than zero and every
//! variable is expanded; no later code validates again. Nothing here touches the terminal or reads the
//! environment by itself: both come in as parameters.
//!
//! Invariant: a configuration is valid. Code that holds one need not check names, variables or timeouts
//! again.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::lock::{Guard, Lock};

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
mod lock;
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
mod stateful;
pub(crate) mod toml;
mod toolman;
mod workbench;

pub use access::{Access, mend};
pub use diagnostic::Problem;
pub use env_file::{EnvFile, ReadEnvFile};
pub use expand::Environment;
pub use lock::{approved, lock_file};
pub use names::{ServerName, ToolboxName};
pub use secrets::{Redactor, Secret};
pub use settings::LEAST_OFFLOADED;
pub use stateful::keeps_state;
pub use toolman::load_toolman;
pub use workbench::load;

/// What is needed to read a configuration, besides its text.
pub struct Inputs<'a> {
    /// The variables that are set.
    pub environment: &'a Environment<'a>,
    /// Reads a file that the configuration names.
    pub read: &'a ReadEnvFile<'a>,
    /// Whether servers whose variables are not set are skipped, whatever the file says.
    pub skip_missing: bool,
}

impl<'a> Inputs<'a> {
    /// Inputs with variables only, as if there were no other files.
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
    /// The most bytes of `instructions`; 0 means no limit.
    pub instructions_limit: usize,
    /// How long answers with many definitions may be.
    pub open_limit: ByteLimit,
    /// Whether the search tool is listed.
    pub search: bool,
    /// The settings that both faces share.
    pub common: Common,
    /// The toolboxes in the order of the file.
    pub toolboxes: Vec<Toolbox>,
}

/// A valid `tools.toml`.
#[derive(Debug, Clone)]
pub struct Toolman {
    /// Patterns over exposed names. Whatever matches starts active.
    pub active_toolsets: Vec<String>,
    /// The text between the namespace and the URI of a resource, if the file sets one.
    pub resource_separator: Option<String>,
    /// Whether switches made by hand are kept across restarts.
    pub remember: bool,
    /// How long the first lists wait for servers; may be zero.
    pub startup_wait: Duration,
    /// Whether the search tool is listed.
    pub search: bool,
    /// The settings that both faces share.
    pub common: Common,
    /// The servers in the order of the file.
    pub servers: Vec<Arc<NamespacedServer>>,
}

/// One upstream of `tools.toml`.
#[derive(Debug, PartialEq)]
pub struct NamespacedServer {
    /// The namespace before the server's names; may be empty, and several servers may share one.
    pub namespace: String,
    /// How to reach the server.
    pub transport: Transport,
    /// Whether the server is restarted when it dies.
    pub restart: bool,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Who shares the server, if the file says so.
    pub isolation: Option<Isolation>,
    /// When the server runs.
    pub running: Running,
    /// How long results of its tools may be before we keep them.
    pub offload_over: ByteLimit,
}

/// Top-level settings that both faces have.
#[derive(Debug, Clone)]
pub struct Common {
    /// Under which names things are registered.
    pub naming: Naming,
    /// The largest message that is accepted from an upstream or a stdio client.
    pub max_message_bytes: usize,
    /// How long a question of an upstream waits for the client's answer.
    pub question_timeout: Duration,
    /// When servers run whose entries do not say so.
    pub running: Running,
    /// Whether servers may show models only what was approved.
    pub lock: LockRule,
    /// What was approved, if a lock is in force. Another file holds it, which the command line reads.
    pub approved: Option<Arc<Lock>>,
    /// How long results may be before we keep them, of servers whose entries do not say so.
    pub offload_over: ByteLimit,
    /// How we serve over HTTP.
    pub serving: Serving,
    /// Whether sessions are handed to the daemon, and when it ends what nobody uses.
    pub daemon: Daemon,
    /// What is noted of what happens.
    pub journal: Journal,
    /// Replaces every secret of the file in foreign text.
    pub secrets: Redactor,
}

impl Common {
    /// What guards a server, if a lock is in force.
    pub fn guard(&self, group: &str, server: &str) -> Option<Guard> {
        let lock = self.approved.as_ref()?;
        Some(lock.guard(group, server, self.lock != LockRule::Warn))
    }
}

/// Under which names things are registered with clients.
#[derive(Debug, Clone)]
pub struct Naming {
    /// Whether characters that clients reject are replaced.
    pub rule: NameRule,
    /// The longest registered tool name in characters, at least 10; `None` means whatever the client accepts.
    pub max_length: Option<usize>,
    /// The client's name for us, if it is not our own. Only the command line sets it, never a file.
    pub entry: Option<String>,
}

/// What is noted of calls, starts and failures, on the user's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Journal {
    /// Whether anything is.
    pub on: bool,
    /// What is noted of the arguments and results of calls.
    pub arguments: KeptArguments,
    /// The most bytes of the journal.
    pub limit: u64,
}

impl Default for Journal {
    fn default() -> Self {
        Self { on: false, arguments: KeptArguments::Off, limit: 128_000_000 }
    }
}

/// What is kept of the arguments and results of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptArguments {
    /// Nothing.
    Off,
    /// The names of arguments.
    Keys,
    /// Arguments and results.
    Full,
}

impl KeptArguments {
    /// All of them, each at the place of its number.
    pub const ALL: [Self; 3] = [Self::Off, Self::Keys, Self::Full];
}

/// Settings of serving over HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Serving {
    /// How long a session without a stream or a request lives.
    pub session_idle_timeout: Duration,
    /// The largest request body.
    pub max_body_bytes: usize,
    /// The keys for what clients and the store carry for us: the first seals, all open. Empty means a key of this
    /// process, or one that the replicas agree on.
    pub state_keys: Vec<Secret>,
    /// What all replicas of the gateway share; `None` means that there is one process only.
    pub store: Option<StoreAddress>,
    /// The tokens that let clients in; empty if the file names none.
    pub tokens: Vec<Token>,
}

/// Where the store of the replicas is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreAddress {
    /// The URL, with user and password; the client of the store understands it.
    pub url: Secret,
    /// Host and port, or the path of a socket, for people.
    pub shown: String,
    /// Tells gateways apart that share a store.
    pub prefix: String,
}

/// How sessions share one process, the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Daemon {
    /// Whether a session is handed to the daemon.
    pub on: bool,
    /// How long a server runs on when no session has it open any more.
    pub linger: Duration,
    /// How long the daemon runs on after its last session.
    pub daemon_linger: Duration,
}

/// A bearer token and what it opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The name for logs, unique in the file.
    pub name: String,
    /// The token itself; never empty, and unique in the file.
    pub token: Secret,
    /// The toolboxes (toolman: namespaces) that the token opens; `None` means all.
    pub scope: Option<Vec<String>>,
}

/// A named group of servers.
#[derive(Debug, Clone)]
pub struct Toolbox {
    /// The name, unique in the file.
    pub name: ToolboxName,
    /// The description; empty if the file has none.
    pub description: String,
    /// The enabled servers, in the order of the file.
    pub servers: Vec<Arc<Server>>,
}

/// One upstream as configured.
#[derive(Debug, PartialEq)]
pub struct Server {
    /// The name, unique in its toolbox.
    pub name: ServerName,
    /// How to reach the server.
    pub transport: Transport,
    /// Which of its tools exist for clients.
    pub filter: ToolFilter,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Who shares the server, if the file says so.
    pub isolation: Option<Isolation>,
    /// When the server runs.
    pub running: Running,
    /// How long results of its tools may be before we keep them.
    pub offload_over: ByteLimit,
}

/// How an upstream is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A child process that speaks over its pipes.
    Stdio(Command),
    /// A server behind a URL.
    Http(Http),
    /// A server that cannot be reached, since its entry needs variables that are not set.
    Unset(Unset),
}

/// The variables that a server lacks.
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

/// What to start, before the program is looked up in `PATH`. The `Debug` form shows neither arguments nor
/// values, which may come from the environment.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    /// A bare name or a path.
    pub program: String,
    /// The arguments, expanded.
    pub args: Vec<String>,
    /// The declared variables, in the order of the file.
    pub env: Vec<(String, Secret)>,
    /// The absolute working directory; `None` means the gateway's own.
    pub cwd: Option<PathBuf>,
    /// Further variables that are passed on from the gateway's environment; `*` means all.
    pub inherit_env: Vec<String>,
}

impl fmt::Debug for Command {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Command({} with {} arguments)", self.program, self.args.len())
    }
}

/// An upstream behind a URL. The `Debug` form shows no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Http {
    /// The URL, `http` or `https`, with a host.
    pub url: String,
    /// The headers in the order of the file; names and values are fit to be sent.
    pub headers: Vec<(String, Secret)>,
    /// Whether the server speaks the deprecated HTTP+SSE transport.
    pub sse: bool,
    /// How to log in if the server requires it; `None` disables logins.
    pub oauth: Option<OAuth>,
}

/// How to log in to a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OAuth {
    /// The id of a client that is registered with the authorization server.
    pub client_id: Option<String>,
    /// The secret of that client.
    pub client_secret: Option<Secret>,
    /// The URL of the document that describes us, for authorization servers that read one.
    pub client_metadata_url: Option<String>,
    /// The scopes to ask for, separated by spaces.
    pub scope: Option<String>,
    /// The port that the browser returns to.
    pub callback_port: Option<u16>,
}

impl Http {
    /// Whether the file itself gives credentials, so that no login is wanted.
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
    /// All clients share one connection; in the daemon, all sessions for which the entry means the same.
    Shared,
    /// In the daemon, the sessions with the same working directory, umask and environment share one
    /// connection. Elsewhere this is the same as [`Isolation::Shared`].
    Directory,
    /// Nobody shares: each session, or token, has its own connection.
    Session,
}

impl Isolation {
    /// The values that a file may hold.
    pub(crate) const NAMES: [(&'static str, Self); 3] =
        [("shared", Self::Shared), ("directory", Self::Directory), ("session", Self::Session)];
}

/// When a server runs, as far as the file says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Running {
    /// When the server starts.
    pub start: Option<Start>,
    /// How long the server may be unused before it is stopped; zero: for ever.
    pub idle_timeout: Option<Duration>,
}

impl Running {
    /// The settings of `self`, completed by those of `other`.
    pub fn or(self, other: Self) -> Self {
        Self { start: self.start.or(other.start), idle_timeout: self.idle_timeout.or(other.idle_timeout) }
    }

    /// How long the server may be unused before it is stopped; `None`: for ever.
    pub fn longest_idle(self) -> Option<Duration> {
        self.idle_timeout.filter(|timeout| !timeout.is_zero())
    }
}

/// When a server starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The server starts when its toolbox is opened; under toolman, at once.
    Open,
    /// The server starts when something of it is used. Until then it is shown as it was when it last ran.
    Call,
}

/// What the lock file beside the configuration means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockRule {
    /// The lock is enforced if the file exists.
    IfThere,
    /// The lock is enforced, and the file must exist.
    Enforce,
    /// What differs from the file is logged and nothing else.
    Warn,
    /// The file does not count.
    Off,
}

/// Which tools of a server are let through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolFilter {
    /// Every tool is let through.
    All,
    /// Exactly these tools are let through; none if the list is empty.
    Only(Vec<String>),
}

impl ToolFilter {
    /// Whether the tool with this original name is let through.
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
    /// How long an opening or a call waits for the spawn, the handshake and all lists.
    pub connect: Duration,
    /// How long a process may take to be ready before it is ended.
    pub start: Duration,
    /// The longest silence during a call; progress extends it.
    pub call: Option<Duration>,
    /// The longest duration of a call in all.
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
    /// Tools are registered under names of their own.
    Dynamic,
    /// Tools are called through `use_tool`.
    Proxy,
    /// Dynamic for clients known to honour `list_changed`, proxy for the others.
    Auto,
    /// Tools are registered from the start, as if every toolbox were open.
    Flat,
}

/// How long a text for a model may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteLimit {
    /// As long as the client is known to accept.
    Auto,
    /// At most this many bytes.
    Bytes(usize),
    /// Without a limit.
    None,
}

impl ByteLimit {
    /// The most bytes, for a client that is known to accept this many; `None` if there is no limit.
    pub fn bytes(self, accepted: Option<usize>) -> Option<usize> {
        match self {
            Self::Auto => accepted,
            Self::Bytes(bytes) => Some(bytes),
            Self::None => None,
        }
    }
}

/// A generation of meta-tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaTools {
    /// The tools `open_toolbox` and `use_tool`.
    Current,
    /// The tools named `workbench_…`.
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
