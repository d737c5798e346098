//! What the keys of an `mcpServers` entry mean, whichever client wrote it, and which values are sound.
//!
//! An entry is read for two purposes. `server.rs` makes a server from an entry of our own file, with
//! variables expanded and each problem shown at its place; `client_files` translates the entries of other
//! clients, with variables kept and a note for what gets lost. Both look up here what a key means; spellings
//! and rules stand nowhere else.

/// What a key is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// The program to start, with or without its arguments.
    Command,
    Args,
    /// Variables with their values.
    Env,
    /// Variables that the server gets unchanged, each through an entry of `env`.
    EnvNames,
    /// Variables that the server inherits.
    Inherited,
    /// A file of variables.
    EnvFile,
    Cwd,
    Url,
    Headers,
    /// Headers whose values are names of variables.
    HeaderVariables,
    /// The variable that holds a bearer token.
    BearerVariable,
    Login,
    Transport,
    Disabled,
    Enabled,
    /// The tools that are let through.
    Tools,
    /// The tools that are not let through.
    ExcludedTools,
    /// Tools that a client runs without asking.
    Approval,
    /// How long a process may take to be ready before it is ended.
    StartTimeout,
    /// Any other setting of our own files.
    Setting,
}

/// The kind of server that a key applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// A program that is started; the key means nothing for a URL.
    Local,
    /// A URL; the key means nothing for a program.
    Remote,
}

impl Field {
    pub(crate) fn side(self) -> Option<Side> {
        match self {
            Self::Args | Self::Env | Self::EnvNames | Self::Inherited | Self::Cwd | Self::StartTimeout => {
                Some(Side::Local)
            }
            Self::Headers | Self::HeaderVariables | Self::BearerVariable | Self::Login => Some(Side::Remote),
            _ => None,
        }
    }
}

/// The standing of a key in our own file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyStanding {
    /// The key is documented.
    Ours,
    /// The key is not documented, but understood.
    Synonym,
    /// The key is ignored; the text says what to write instead.
    Foreign(&'static str),
    /// The key is ignored, and nothing is known about it.
    Strange,
}

impl KeyStanding {
    fn is_understood(self) -> bool {
        matches!(self, Self::Ours | Self::Synonym)
    }
}

use KeyStanding::{Foreign, Ours, Strange, Synonym};

/// Every key that any client writes: its name, its field, and its standing in our own file. Where several
/// documented keys are equally close to a misspelt one, the first is suggested.
const KEYS: &[(&str, Field, KeyStanding)] = &[
    ("command", Field::Command, Ours),
    ("cmd", Field::Command, Foreign("use `command`")),
    ("args", Field::Args, Ours),
    ("env", Field::Env, Ours),
    ("envs", Field::Env, Synonym),
    ("environment", Field::Env, Synonym),
    ("env_keys", Field::EnvNames, Strange),
    ("envFile", Field::EnvFile, Foreign("write the variables into `env`, as `\"NAME\": \"${NAME}\"`")),
    ("cwd", Field::Cwd, Ours),
    ("toolFilters", Field::Tools, Ours),
    ("includeTools", Field::Tools, Foreign("use `toolFilters`")),
    ("enabled_tools", Field::Tools, Foreign("use `toolFilters`")),
    ("available_tools", Field::Tools, Foreign("use `toolFilters`")),
    ("excludeTools", Field::ExcludedTools, Foreign(NAMES_THAT_PASS)),
    ("disabledTools", Field::ExcludedTools, Foreign(NAMES_THAT_PASS)),
    ("disabled_tools", Field::ExcludedTools, Foreign(NAMES_THAT_PASS)),
    ("transport", Field::Transport, Ours),
    ("type", Field::Transport, Ours),
    ("transportType", Field::Transport, Strange),
    ("url", Field::Url, Ours),
    ("httpUrl", Field::Url, Synonym),
    ("serverUrl", Field::Url, Synonym),
    ("uri", Field::Url, Synonym),
    ("headers", Field::Headers, Ours),
    ("http_headers", Field::Headers, Foreign("use `headers`")),
    ("env_http_headers", Field::HeaderVariables, Strange),
    (
        "bearer_token_env_var",
        Field::BearerVariable,
        Foreign("use `\"headers\": { \"Authorization\": \"Bearer ${NAME}\" }`"),
    ),
    ("oauth", Field::Login, Ours),
    ("disabled", Field::Disabled, Ours),
    ("enabled", Field::Enabled, Foreign("to leave a server out, write `\"disabled\": true`")),
    ("connectTimeout", Field::Setting, Ours),
    ("startTimeout", Field::StartTimeout, Ours),
    ("callTimeout", Field::Setting, Ours),
    ("maxCallTime", Field::Setting, Ours),
    ("timeout", Field::Setting, Foreign("use `callTimeout` or `connectTimeout`, in seconds")),
    ("request_timeout_ms", Field::Setting, Foreign("use `callTimeout`, in seconds")),
    ("startup_timeout_sec", Field::Setting, Foreign("use `connectTimeout`, in seconds")),
    ("startup_timeout_ms", Field::Setting, Foreign("use `connectTimeout`, in seconds")),
    ("tool_timeout_sec", Field::Setting, Foreign("use `callTimeout`, in seconds")),
    ("inheritEnv", Field::Inherited, Ours),
    ("inherit_env", Field::Inherited, Strange),
    ("env_vars", Field::Inherited, Foreign("use `inheritEnv`")),
    ("isolation", Field::Setting, Ours),
    ("start", Field::Setting, Ours),
    ("idleTimeout", Field::Setting, Ours),
    ("offloadOver", Field::Setting, Ours),
    ("autoApprove", Field::Approval, Strange),
    ("autoapprove", Field::Approval, Strange),
    ("alwaysAllow", Field::Approval, Strange),
    ("alwaysAllowedTools", Field::Approval, Strange),
    ("trust", Field::Approval, Strange),
];

const NAMES_THAT_PASS: &str = "use `toolFilters`, with the names of the tools to offer";

/// What a key is about; `None` for an unknown key.
pub(crate) fn field(key: &str) -> Option<Field> {
    KEYS.iter().find(|(name, ..)| *name == key).map(|(_, field, _)| *field)
}

/// What to write in our own file instead of another client's key.
pub(super) fn instead_of(key: &str) -> Option<&'static str> {
    KEYS.iter().find_map(|(name, _, standing)| match standing {
        Foreign(hint) if *name == key => Some(*hint),
        _ => None,
    })
}

/// The keys that our own file documents.
pub(super) fn documented() -> Vec<&'static str> {
    KEYS.iter().filter(|(.., standing)| *standing == Ours).map(|(name, ..)| *name).collect()
}

/// All keys of this kind that mean something in our own file.
pub(super) fn understood(wanted: impl Fn(Field) -> bool) -> impl Iterator<Item = &'static str> {
    let ours = KEYS.iter().filter(move |(_, field, standing)| wanted(*field) && standing.is_understood());
    ours.map(|(name, ..)| *name)
}

/// Whether a key means something in our own file.
pub(super) fn is_understood(key: &str) -> bool {
    KEYS.iter().any(|(name, _, standing)| *name == key && standing.is_understood())
}

/// The transport that a server declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportName {
    Stdio,
    Http,
    Sse,
}

/// Our names of the transports.
pub(crate) const TRANSPORTS: [(&str, TransportName); 3] =
    [("stdio", TransportName::Stdio), ("http", TransportName::Http), ("sse", TransportName::Sse)];

/// Other clients' names for `http`.
pub(crate) const HTTP_ELSEWHERE: [(&str, TransportName); 4] = [
    ("streamable-http", TransportName::Http),
    ("streamableHttp", TransportName::Http),
    ("streamable_http", TransportName::Http),
    ("remote", TransportName::Http),
];

/// The keys of `oauth`.
pub(crate) const LOGIN_KEYS: [&str; 6] =
    ["clientId", "clientSecret", "clientMetadataUrl", "scope", "scopes", "callbackPort"];

/// A key in camelCase as `tools.toml` spells it.
pub(crate) fn snake(key: &str) -> String {
    key.chars().fold(String::new(), |mut snake, c| {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
        snake
    })
}

/// Whether a process can have a variable of this name.
pub(crate) fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Whether a request can have a header of this name.
pub(crate) fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Whether a header can have this value.
pub(crate) fn is_header_value(value: &str) -> bool {
    !value.chars().any(|c| c.is_control() && c != '\t')
}

/// Whether this is an `http` or `https` URL with a host.
pub(crate) fn is_url(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let rest = lower.strip_prefix("http://").or_else(|| lower.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()?.rsplit('@').next());
    host.is_some_and(|host| !host.is_empty() && !host.starts_with(':'))
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}
