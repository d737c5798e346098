//! Every client's real format: imported, connected, disconnected.

mod accounts;
mod connected;
mod imported;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Finished, Lab};

/// A path where the platform keeps settings.
#[cfg(target_os = "macos")]
macro_rules! settings {
    ($path:literal) => {
        concat!("Library/Application Support/", $path)
    };
}

/// A path where the platform keeps settings.
#[cfg(not(target_os = "macos"))]
macro_rules! settings {
    ($path:literal) => {
        concat!("xdg-config/", $path)
    };
}

/// Clients with their fixture and their user-wide file below the home directory.
pub(crate) const CLIENTS: [(&str, &str, &str); 12] = [
    ("claude-desktop", "claude-desktop.json", settings!("Claude/claude_desktop_config.json")),
    ("claude-code", "claude-code.json", ".claude.json"),
    ("cursor", "cursor.json", ".cursor/mcp.json"),
    ("vscode", "vscode.json", settings!("Code/User/mcp.json")),
    ("windsurf", "windsurf.json", ".codeium/windsurf/mcp_config.json"),
    ("zed", "zed.json", "xdg-config/zed/settings.json"),
    ("codex", "codex.toml", ".codex/config.toml"),
    ("gemini", "gemini.json", ".gemini/settings.json"),
    ("goose", "goose.yaml", "xdg-config/goose/config.yaml"),
    ("cline", "cline.json", ".cline/data/settings/cline_mcp_settings.json"),
    ("lmstudio", "lmstudio.json", ".lmstudio/mcp.json"),
    ("opencode", "opencode.json", "xdg-config/opencode/opencode.json"),
];

/// What stands in fixtures and must stand in no output.
const SECRETS: [&str; 14] = [
    "ghp_fixture",
    "sntrys_fixture",
    "fixturePassword",
    "fixture-zed-key",
    "ctx7sk-fixture",
    "fixture-goose-token",
    "fixture-cline-key",
    "fixture-nested-token",
    "hf_fixture",
    "memory.jsonl",
    "2025-09-03",
    "fixture-edited",
    ":-en",
    "RETRIES\": 3",
];

/// A home with the files of clients in it, and a project in which verbs are run.
pub(crate) struct Home {
    pub(crate) lab: Lab,
}

impl Home {
    pub(crate) fn new() -> Self {
        let lab = Lab::new();
        std::fs::create_dir(lab.dir.join("project")).expect("the directory is ours");
        Self { lab }
    }

    /// With the fixtures of these clients.
    pub(crate) fn with(clients: &[&str]) -> Self {
        let home = Self::new();
        for (client, fixture, _) in CLIENTS.iter().filter(|(client, ..)| clients.contains(client)) {
            home.put(client, &read(&fixtures().join(fixture)));
        }
        home
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.lab.dir.join(name)
    }

    pub(crate) fn file_of(&self, client: &str) -> PathBuf {
        let (.., path) = CLIENTS.iter().find(|(id, ..)| *id == client).expect("a known client");
        self.path(path)
    }

    pub(crate) fn put(&self, client: &str, bytes: &[u8]) {
        self.write(&self.file_of(client), bytes);
    }

    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) {
        std::fs::create_dir_all(path.parent().expect("below the home")).expect("the directory is ours");
        std::fs::write(path, bytes).expect("the directory is ours");
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path("xdg-config/mcp-workbench/workbench-config.json")
    }

    /// What the configuration holds, comments left out.
    pub(crate) fn config_value(&self) -> Value {
        let text = text(&self.config());
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        serde_json::from_str(&lines.collect::<String>()).expect("JSON")
    }

    /// What `secrets.env` beside the configuration holds.
    pub(crate) fn secrets(&self) -> String {
        text(&self.config().with_file_name("secrets.env"))
    }

    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let own = self.lab.command();
        let path = Path::new(own.get_program()).with_file_name(program);
        #[allow(clippy::disallowed_methods, reason = "tests start the programs they test")]
        let mut command = Command::new(path.with_extension(std::env::consts::EXE_EXTENSION));
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        for name in
            ["CLAUDE_CONFIG_DIR", "CODEX_HOME", "CLINE_MCP_SETTINGS_PATH", "CLINE_DATA_DIR", "NO_COLOR"]
        {
            command.env_remove(name);
        }
        command.current_dir(self.path("project")).args(args);
        command
    }

    /// Runs a verb; nothing that it says may hold a secret.
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        self.run_with("mcp-workbench", args)
    }

    pub(crate) fn run_with(&self, program: &str, args: &[&str]) -> Finished {
        let finished = self.lab.run(&mut self.command(program, args));
        for secret in SECRETS {
            for said in [&finished.stdout, &finished.stderr] {
                assert!(!said.contains(secret), "{args:?} shows {secret}:\n{said}");
            }
        }
        finished
    }

    /// Waits until nothing runs any more.
    pub(crate) fn wait_until_gone(&self, within: std::time::Duration) {
        self.lab.wait_until_gone(within);
    }

    /// Runs a verb that must work, and answers its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let finished = self.run(&[args, &["--json"]].concat());
        assert_eq!(finished.code, Some(0), "{args:?}: {}{}", finished.stdout, finished.stderr);
        serde_json::from_str(&finished.stdout).expect("one JSON value")
    }
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/clients")
}

pub(crate) fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn text(path: &Path) -> String {
    String::from_utf8(read(path)).expect("UTF-8")
}

/// All servers of a configuration, whichever toolbox they are in.
pub(crate) fn servers(config: &Value) -> Value {
    let toolboxes = config["toolboxes"].as_object().into_iter().flatten();
    let servers = toolboxes.flat_map(|(_, toolbox)| toolbox["mcpServers"].as_object().into_iter().flatten());
    servers.map(|(name, entry)| (name.clone(), entry.clone())).collect::<serde_json::Map<_, _>>().into()
}

const EMPTY: &[u8] = b"{\"toolboxes\": {}}";
const SKIPPING: &[u8] = b"{\"onMissingVariable\": \"skip\", \"toolboxes\": {}}";
