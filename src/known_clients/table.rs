//! The table of known clients: first what rows have in common, then the rows.

use super::files::{ClientFiles, Deadline, Dialect, EntryStyle, TimeUnit, VariableSyntax};
use super::{Behaviour, ChangedLists, KnownClient, OpenLimit, ToolNames};
use crate::config::node::Format;
use std::time::Duration;

/// The behaviour of all other clients.
pub(super) static OTHERS: Behaviour = UNKNOWN;

/// The behaviour of version 1 of the Python SDK, under the name of programs that do not set their own.
pub(super) static PYTHON_SDK: Behaviour = Behaviour { names: &["mcp"], strict_uri_schemes: true, ..UNKNOWN };

/// The behaviour of a client about which nothing is known.
const UNKNOWN: Behaviour = Behaviour {
    names: &[],
    changed_lists: ChangedLists::Unknown,
    open_limit: OpenLimit { legacy: None, modern: None, structured_content: true },
    tool_names: ToolNames { longest: 64, prefix: "" },
    strict_uri_schemes: false,
    renders_apps: false,
};

/// The behaviour of a client that is known to keep its old list.
const KEEPS_ITS_LIST: Behaviour = Behaviour { changed_lists: ChangedLists::Unreliable, ..UNKNOWN };

const fn taken_up_after(milliseconds: u64) -> ChangedLists {
    ChangedLists::TakenUp { settling: Duration::from_millis(milliseconds) }
}

/// The same limit in both eras.
const fn at_most(bytes: usize) -> OpenLimit {
    OpenLimit { legacy: Some(bytes), modern: Some(bytes), structured_content: true }
}

const fn prefixed(prefix: &'static str) -> ToolNames {
    ToolNames { longest: 64, prefix }
}

const NO_FILES: ClientFiles =
    ClientFiles { user: &[], borrowed: &[], project: &[], roots: &["mcpServers"], dialect: Dialect::PLAIN };

/// All clients with files, in the order in which they are looked for.
pub static CLIENTS: [KnownClient; 12] = [
    KnownClient {
        id: "claude-desktop",
        title: "Claude Desktop",
        behaviour: Behaviour { names: &["claude-ai"], renders_apps: true, ..KEEPS_ITS_LIST },
        files: ClientFiles {
            user: &[
                &["{config}/Claude/claude_desktop_config.json"],
                &["linux:~/.config/Claude/claude_desktop_config.json"],
            ],
            ..NO_FILES
        },
    },
    KnownClient {
        id: "claude-code",
        title: "Claude Code",
        behaviour: Behaviour {
            names: &["claude-code"],
            changed_lists: taken_up_after(100),
            open_limit: OpenLimit { legacy: Some(60_000), modern: Some(180_000), structured_content: true },
            tool_names: prefixed("mcp__{entry}__"),
            ..UNKNOWN
        },
        files: ClientFiles {
            user: &[&["$CLAUDE_CONFIG_DIR/.claude.json", "~/.claude.json"]],
            project: &[".mcp.json"],
            dialect: Dialect {
                style: EntryStyle::Typed,
                variables: VariableSyntax::Braced,
                timeouts: &[
                    ("timeout", Deadline::Call, TimeUnit::Milliseconds),
                    ("request_timeout_ms", Deadline::Call, TimeUnit::Milliseconds),
                ],
                ..Dialect::PLAIN
            },
            ..NO_FILES
        },
    },
    KnownClient {
        id: "cursor",
        title: "Cursor",
        behaviour: Behaviour {
            names: &["cursor", "cursor-vscode"],
            tool_names: ToolNames { longest: 60, prefix: "{entry}_" },
            renders_apps: true,
            ..KEEPS_ITS_LIST
        },
        files: ClientFiles {
            user: &[&["~/.cursor/mcp.json"]],
            project: &[".cursor/mcp.json"],
            dialect: Dialect {
                variables: VariableSyntax::Editor,
                timeouts: &[("timeout", Deadline::Connect, TimeUnit::Milliseconds)],
                ..Dialect::PLAIN
            },
            ..NO_FILES
        },
    },
    KnownClient {
        id: "vscode",
        title: "VS Code",
        behaviour: Behaviour {
            names: &["Visual Studio Code", "Visual Studio Code - Insiders"],
            tool_names: prefixed("mcp_{entry}_"),
            renders_apps: true,
            ..KEEPS_ITS_LIST
        },
        files: ClientFiles {
            user: &[&["{config}/Code/User/mcp.json"], &["linux:~/.config/Code/User/mcp.json"]],
            borrowed: &["~/.copilot/mcp-config.json"],
            project: &[".vscode/mcp.json", ".mcp.json"],
            roots: &["servers", "mcpServers"],
            dialect: Dialect {
                style: EntryStyle::Typed,
                variables: VariableSyntax::Editor,
                ..Dialect::PLAIN
            },
        },
    },
    KnownClient {
        id: "windsurf",
        title: "Windsurf",
        behaviour: Behaviour { names: &["windsurf", "windsurf-client"], ..KEEPS_ITS_LIST },
        files: ClientFiles {
            user: &[&["~/.codeium/windsurf/mcp_config.json"], &["~/.codeium/mcp_config.json"]],
            dialect: Dialect { variables: VariableSyntax::Editor, ..Dialect::PLAIN },
            ..NO_FILES
        },
    },
    KnownClient {
        id: "zed",
        title: "Zed",
        behaviour: Behaviour { names: &["Zed"], changed_lists: taken_up_after(100), ..UNKNOWN },
        files: ClientFiles {
            user: &[
                &["windows:{config}/Zed/settings.json", "{xdg}/zed/settings.json"],
                &["~/.config/zed/settings.json"],
            ],
            project: &[".zed/settings.json"],
            roots: &["context_servers"],
            dialect: Dialect {
                timeouts: &[("timeout", Deadline::Call, TimeUnit::Seconds)],
                ..Dialect::PLAIN
            },
            ..NO_FILES
        },
    },
    KnownClient {
        id: "codex",
        title: "Codex",
        behaviour: Behaviour {
            names: &["codex-mcp-client"],
            open_limit: at_most(9_000),
            tool_names: prefixed("mcp__{entry}__"),
            ..KEEPS_ITS_LIST
        },
        files: ClientFiles {
            user: &[&["$CODEX_HOME/config.toml", "~/.codex/config.toml"]],
            project: &[".codex/config.toml"],
            roots: &["mcp_servers"],
            dialect: Dialect {
                format: Format::Toml,
                timeouts: &[
                    ("startup_timeout_sec", Deadline::Connect, TimeUnit::Seconds),
                    ("startup_timeout_ms", Deadline::Connect, TimeUnit::Milliseconds),
                    ("tool_timeout_sec", Deadline::Call, TimeUnit::Seconds),
                ],
                ..Dialect::PLAIN
            },
            ..NO_FILES
        },
    },
    KnownClient {
        id: "gemini",
        title: "Gemini CLI",
        behaviour: Behaviour {
            names: &["gemini-cli-mcp-client"],
            changed_lists: taken_up_after(500),
            open_limit: at_most(8_000),
            tool_names: ToolNames { longest: 63, prefix: "mcp_{entry}_" },
            ..UNKNOWN
        },
        files: ClientFiles {
            user: &[&["~/.gemini/settings.json"]],
            project: &[".gemini/settings.json"],
            dialect: Dialect {
                variables: VariableSyntax::Dollar,
                timeouts: &[("timeout", Deadline::Call, TimeUnit::Milliseconds)],
                ..Dialect::PLAIN
            },
            ..NO_FILES
        },
    },
    KnownClient {
        id: "goose",
        title: "Goose",
        behaviour: Behaviour {
            names: &["goose*"],
            changed_lists: taken_up_after(100),
            tool_names: prefixed("{entry}__"),
            renders_apps: true,
            ..UNKNOWN
        },
        files: ClientFiles {
            user: &[
                &["windows:{config}/Block/goose/config/config.yaml", "{xdg}/goose/config.yaml"],
                &["~/.config/goose/config.yaml"],
            ],
            roots: &["extensions"],
            dialect: Dialect {
                format: Format::Yaml,
                style: EntryStyle::Goose,
                variables: VariableSyntax::Dollar,
                only_remote: true,
                timeouts: &[("timeout", Deadline::Call, TimeUnit::Seconds)],
                ..Dialect::PLAIN
            },
            ..NO_FILES
        },
    },
    KnownClient {
        id: "cline",
        title: "Cline",
        behaviour: Behaviour {
            names: &["@cline/core", "Cline"],
            open_limit: OpenLimit { structured_content: false, ..at_most(7_000) },
            tool_names: prefixed("{entry}__"),
            ..KEEPS_ITS_LIST
        },
        files: ClientFiles {
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
            dialect: Dialect {
                style: EntryStyle::Typed,
                timeouts: &[("timeout", Deadline::Call, TimeUnit::Seconds)],
                bare_url_is_sse: true,
                ..Dialect::PLAIN
            },
            ..NO_FILES
        },
    },
    KnownClient {
        id: "lmstudio",
        title: "LM Studio",
        behaviour: UNKNOWN,
        files: ClientFiles {
            user: &[&["~/.lmstudio/mcp.json"], &["~/.cache/lm-studio/mcp.json"]],
            dialect: Dialect {
                variables: VariableSyntax::Editor,
                timeouts: &[("timeout", Deadline::Connect, TimeUnit::Milliseconds)],
                ..Dialect::PLAIN
            },
            ..NO_FILES
        },
    },
    KnownClient {
        id: "opencode",
        title: "opencode",
        behaviour: Behaviour {
            names: &["opencode"],
            changed_lists: taken_up_after(500),
            open_limit: at_most(40_000),
            tool_names: prefixed("{entry}_"),
            ..UNKNOWN
        },
        files: ClientFiles {
            user: &[
                &["{xdg}/opencode/opencode.json"],
                &["{xdg}/opencode/opencode.jsonc"],
                &["~/.config/opencode/opencode.json"],
                &["~/.config/opencode/opencode.jsonc"],
            ],
            project: &["opencode.json", "opencode.jsonc"],
            roots: &["mcp", "mcp.servers"],
            dialect: Dialect {
                style: EntryStyle::Opencode,
                variables: VariableSyntax::OpenCode,
                timeouts: &[
                    ("timeout", Deadline::Call, TimeUnit::Milliseconds),
                    ("timeout.startup", Deadline::Connect, TimeUnit::Milliseconds),
                    ("timeout.request", Deadline::Call, TimeUnit::Milliseconds),
                ],
                ..Dialect::PLAIN
            },
            ..NO_FILES
        },
    },
];
