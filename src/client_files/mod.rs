//! The clients that our users have: where their files are, what stands in them, and how we stand in them.
//!
//! One row of [`CLIENTS`] describes a client; what is special about one is a field, not a branch elsewhere.
//! Nothing here reads the environment or writes a file by itself.

mod entry;
mod fields;
mod ours;
mod places;
mod plan;
mod read;
mod secrets;
mod template;
mod variables;

pub use entry::{Ourselves, Past, connect, disconnect, entry_path};
pub use ours::{Group, read_config, toolman_value, workbench_value};
pub use places::{Scope, places};
pub use plan::{Addition, Origins, Plan, Value as Found, held, plan, values};
pub use read::{Imported, ImportedServer, Launch, Note, Origin, read};
pub use secrets::{Vault, shown};
pub use template::{Piece, Template};
pub use variables::{Meaning, Syntax, translate};

use crate::config::ToolMode;
use crate::edit::{Format, Value};

/// One client.
#[derive(Debug)]
pub struct Client {
    /// What the command line calls it.
    pub id: &'static str,
    /// What its makers call it.
    pub title: &'static str,
    /// How its files are written.
    pub format: Format,
    /// Its user-wide files, most important first. Of a group the first that can be told is meant; see
    /// [`places`] for the spelling.
    user: &'static [&'static [&'static str]],
    /// User-wide files of another product that it reads as well; we do not put ourselves there.
    borrowed: &'static [&'static str],
    /// Its files in a project.
    project: &'static [&'static str],
    /// Where servers stand in a file; the first is where we put ourselves.
    roots: &'static [&'static str],
    /// How it writes variables.
    syntax: Syntax,
    /// Whether it expands variables in URLs and headers only.
    only_remote: bool,
    /// Its keys for timeouts.
    timeouts: &'static [(&'static str, Deadline, Unit)],
    /// What a URL without a type means.
    bare_url_is_sse: bool,
    /// Whether it honours `list_changed`, so that tools may appear while it runs.
    pub lists_change: bool,
    /// How its entries are written.
    style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deadline {
    Connect,
    Call,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Seconds,
    Milliseconds,
}

/// How an entry of a client looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// `command` and `args`.
    Plain,
    /// The same after `"type": "stdio"`.
    Typed,
    /// The command is a list, and entries are switched on.
    Opencode,
    /// `cmd`, `name` and more.
    Goose,
}

const PLAIN: Client = Client {
    id: "",
    title: "",
    format: Format::Json,
    user: &[],
    borrowed: &[],
    project: &[],
    roots: &["mcpServers"],
    syntax: Syntax::None,
    only_remote: false,
    timeouts: &[],
    bare_url_is_sse: false,
    lists_change: false,
    style: Style::Plain,
};

/// All clients, in the order in which they are looked for.
pub static CLIENTS: [Client; 12] = [
    Client {
        id: "claude-desktop",
        title: "Claude Desktop",
        user: &[
            &["{config}/Claude/claude_desktop_config.json"],
            &["linux:~/.config/Claude/claude_desktop_config.json"],
        ],
        ..PLAIN
    },
    Client {
        id: "claude-code",
        title: "Claude Code",
        user: &[&["$CLAUDE_CONFIG_DIR/.claude.json", "~/.claude.json"]],
        project: &[".mcp.json"],
        syntax: Syntax::Braced,
        timeouts: &[
            ("timeout", Deadline::Call, Unit::Milliseconds),
            ("request_timeout_ms", Deadline::Call, Unit::Milliseconds),
        ],
        lists_change: true,
        style: Style::Typed,
        ..PLAIN
    },
    Client {
        id: "cursor",
        title: "Cursor",
        user: &[&["~/.cursor/mcp.json"]],
        project: &[".cursor/mcp.json"],
        syntax: Syntax::Editor,
        timeouts: &[("timeout", Deadline::Connect, Unit::Milliseconds)],
        ..PLAIN
    },
    Client {
        id: "vscode",
        title: "VS Code",
        user: &[&["{config}/Code/User/mcp.json"], &["linux:~/.config/Code/User/mcp.json"]],
        borrowed: &["~/.copilot/mcp-config.json"],
        project: &[".vscode/mcp.json", ".mcp.json"],
        roots: &["servers", "mcpServers"],
        syntax: Syntax::Editor,
        style: Style::Typed,
        ..PLAIN
    },
    Client {
        id: "windsurf",
        title: "Windsurf",
        user: &[&["~/.codeium/windsurf/mcp_config.json"], &["~/.codeium/mcp_config.json"]],
        syntax: Syntax::Editor,
        ..PLAIN
    },
    Client {
        id: "zed",
        title: "Zed",
        user: &[
            &["windows:{config}/Zed/settings.json", "{xdg}/zed/settings.json"],
            &["~/.config/zed/settings.json"],
        ],
        project: &[".zed/settings.json"],
        roots: &["context_servers"],
        timeouts: &[("timeout", Deadline::Call, Unit::Seconds)],
        lists_change: true,
        ..PLAIN
    },
    Client {
        id: "codex",
        title: "Codex",
        format: Format::Toml,
        user: &[&["$CODEX_HOME/config.toml", "~/.codex/config.toml"]],
        project: &[".codex/config.toml"],
        roots: &["mcp_servers"],
        timeouts: &[
            ("startup_timeout_sec", Deadline::Connect, Unit::Seconds),
            ("startup_timeout_ms", Deadline::Connect, Unit::Milliseconds),
            ("tool_timeout_sec", Deadline::Call, Unit::Seconds),
        ],
        ..PLAIN
    },
    Client {
        id: "gemini",
        title: "Gemini CLI",
        user: &[&["~/.gemini/settings.json"]],
        project: &[".gemini/settings.json"],
        syntax: Syntax::Dollar,
        timeouts: &[("timeout", Deadline::Call, Unit::Milliseconds)],
        lists_change: true,
        ..PLAIN
    },
    Client {
        id: "goose",
        title: "Goose",
        format: Format::Yaml,
        user: &[
            &["windows:{config}/Block/goose/config/config.yaml", "{xdg}/goose/config.yaml"],
            &["~/.config/goose/config.yaml"],
        ],
        roots: &["extensions"],
        syntax: Syntax::Dollar,
        only_remote: true,
        timeouts: &[("timeout", Deadline::Call, Unit::Seconds)],
        lists_change: true,
        style: Style::Goose,
        ..PLAIN
    },
    Client {
        id: "cline",
        title: "Cline",
        user: &[
            &[
                "$CLINE_MCP_SETTINGS_PATH",
                "$CLINE_DATA_DIR/settings/cline_mcp_settings.json",
                "~/.cline/data/settings/cline_mcp_settings.json",
            ],
            &["{config}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"],
            &[
                "linux:~/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ],
        ],
        timeouts: &[("timeout", Deadline::Call, Unit::Seconds)],
        bare_url_is_sse: true,
        lists_change: true,
        style: Style::Typed,
        ..PLAIN
    },
    Client {
        id: "lmstudio",
        title: "LM Studio",
        user: &[&["~/.lmstudio/mcp.json"], &["~/.cache/lm-studio/mcp.json"]],
        syntax: Syntax::Editor,
        timeouts: &[("timeout", Deadline::Connect, Unit::Milliseconds)],
        ..PLAIN
    },
    Client {
        id: "opencode",
        title: "opencode",
        user: &[
            &["{xdg}/opencode/opencode.json"],
            &["{xdg}/opencode/opencode.jsonc"],
            &["~/.config/opencode/opencode.json"],
            &["~/.config/opencode/opencode.jsonc"],
        ],
        project: &["opencode.json", "opencode.jsonc"],
        roots: &["mcp", "mcp.servers"],
        syntax: Syntax::OpenCode,
        timeouts: &[
            ("timeout", Deadline::Call, Unit::Milliseconds),
            ("timeout.startup", Deadline::Connect, Unit::Milliseconds),
            ("timeout.request", Deadline::Call, Unit::Milliseconds),
        ],
        style: Style::Opencode,
        ..PLAIN
    },
];

impl Client {
    /// The one with this name.
    pub fn named(id: &str) -> Option<&'static Client> {
        CLIENTS.iter().find(|client| client.id == id)
    }

    /// The tool mode that it can use.
    pub fn tool_mode(&self) -> ToolMode {
        if self.lists_change { ToolMode::Dynamic } else { ToolMode::Proxy }
    }

    /// Whether it takes a value of `env` for what it is, with no variable in it.
    pub fn takes_literally(&self, value: &str) -> bool {
        let meaning = Meaning { home: "", workspace: None };
        let mut lost = Vec::new();
        let read = translate(self.syntax, value, &meaning, &mut lost);
        self.only_remote || lost.is_empty() && read.text() == Some(value)
    }

    /// The client that a file is most likely of, by its name, its place and what stands in it.
    pub fn of_file(path: &std::path::Path, value: &Value) -> Option<&'static Client> {
        let path = path.to_string_lossy().replace('\\', "/");
        let by_place = CLIENTS.iter().find(|client| {
            let known = client.user.iter().copied().flatten().chain(client.borrowed).chain(client.project);
            let mut tails = known.filter_map(|place| tail(place)).filter(|tail| *tail != "mcp.json");
            tails.any(|tail| path == tail || path.ends_with(&format!("/{tail}")))
        });
        let by_content = || match value.at(&["mcpServers"]) {
            // What stands in many places is read as the best known of them does.
            Some(_) => Client::named("claude-code"),
            None => CLIENTS.iter().find(|client| client.root(value).is_some()),
        };
        by_place.filter(|client| client.root(value).is_some()).or_else(by_content)
    }

    /// The path to the servers of a file.
    pub(crate) fn root(&self, value: &Value) -> Option<Vec<String>> {
        let path = |root: &str| root.split('.').map(str::to_owned).collect::<Vec<_>>();
        if self.style == Style::Opencode {
            let nested = value.at(&["mcp", "servers"]);
            let second = nested.is_some_and(|servers| {
                let keys = ["type", "command", "url"];
                matches!(servers, Value::Object(_)) && !keys.iter().any(|key| servers.get(key).is_some())
            });
            let root = if second { "mcp.servers" } else { "mcp" };
            return value.at(&path(root)).is_some().then(|| path(root));
        }
        self.roots.iter().map(|root| path(root)).find(|root| value.at(root).is_some())
    }

    /// The path to where servers go in a file that may have none yet.
    pub(crate) fn root_or_first(&self, value: &Value) -> Vec<String> {
        self.root(value).unwrap_or_else(|| self.roots[..1].iter().map(|root| (*root).to_owned()).collect())
    }
}

/// What a file is recognised by: its name, and the directory before it where that says more.
fn tail(place: &str) -> Option<&str> {
    let path = place.rsplit(':').next()?;
    let parts: Vec<&str> = path.split('/').collect();
    let known = [
        "claude_desktop_config.json",
        ".claude.json",
        ".mcp.json",
        "cline_mcp_settings.json",
        "mcp_config.json",
        "mcp-config.json",
    ];
    match parts.as_slice() {
        [.., last] if known.contains(last) || parts.len() == 1 && !last.starts_with('$') => Some(last),
        [.., directory, last] => {
            let start = path.len() - directory.len() - last.len() - 1;
            (!directory.starts_with(['~', '{', '$'])).then(|| &path[start..])
        }
        _ => None,
    }
}
