//! Every client's real format: imported, connected, disconnected.

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

/// What an import of each fixture yields stands beside it. `UPDATE_EXPECTED=1` writes it anew.
#[test]
fn import() {
    for (client, ..) in CLIENTS {
        let home = Home::with(&[client]);
        home.write(&home.config(), EMPTY);
        let said = home.json(&["import", client, "--yes"]);
        let config: Value = serde_json::from_slice(&read(&home.config())).expect("JSON");
        let notes = said["notes"].as_array().expect("a list").iter();
        let notes = notes.map(|note| {
            let part = |key: &str| note[key].as_str().expect("text").to_owned();
            format!("{} | {} | {}", part("server"), part("key"), part("message"))
        });
        let secrets = said["secrets"].as_array().expect("a list").iter();
        let secrets = secrets.map(|secret| {
            let part = |key: &str| secret[key].as_str().expect("text").to_owned();
            format!("{} | {} | {}", part("variable"), part("server"), part("key"))
        });
        let found = json!({
            "mcpServers": servers(&config),
            "secrets": secrets.collect::<Vec<_>>(),
            "notes": notes.collect::<Vec<_>>(),
        });
        let path = fixtures().join(format!("{client}.expected.json"));
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            let text = serde_json::to_string_pretty(&found).expect("JSON");
            std::fs::write(&path, format!("{text}\n")).expect("the fixtures are ours");
        }
        let expected: Value = serde_json::from_slice(&read(&path)).expect("JSON");
        assert_eq!(found, expected, "{client}");
        let again = home.json(&["import", client, "--yes"]);
        assert_eq!((&again["changed"], &again["added"]), (&json!(false), &json!([])), "{client}");
        // The file itself is recognised as well, wherever it lies.
        home.write(&home.config(), EMPTY);
        let file = home.file_of(client);
        home.json(&["import", file.to_str().expect("UTF-8"), "--yes"]);
        let by_file: Value = serde_json::from_slice(&read(&home.config())).expect("JSON");
        let names = |config: &Value| {
            let servers = servers(config).as_object().expect("servers").clone();
            servers.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(names(&by_file), names(&config), "{client}");
    }
}

/// Tools that a client leaves out stay out, in whichever order it says so.
#[test]
fn import_keeps_excluded_what_a_client_had_excluded() {
    for (client, text, filters, key) in [
        (
            "gemini",
            r#"{"mcpServers": {"a": {"command": "x", "includeTools": ["r", "w", "d"], "excludeTools": ["w", "z"]}}}"#,
            json!(["r", "d"]),
            "",
        ),
        (
            "gemini",
            r#"{"mcpServers": {"a": {"command": "x", "excludeTools": ["r"], "includeTools": ["r"]}}}"#,
            json!([]),
            "",
        ),
        (
            "codex",
            "[mcp_servers.a]\ncommand = \"x\"\ndisabled_tools = [\"w\"]\nenabled_tools = [\"r\", \"w\"]\n",
            json!(["r"]),
            "",
        ),
        // Without names that pass there is no filter of ours that says the same, which is told.
        (
            "gemini",
            r#"{"mcpServers": {"a": {"command": "x", "excludeTools": ["w"]}}}"#,
            Value::Null,
            "excludeTools",
        ),
        (
            "codex",
            "[mcp_servers.a]\ncommand = \"x\"\ndisabled_tools = [\"w\"]\n",
            Value::Null,
            "disabled_tools",
        ),
        (
            "gemini",
            r#"{"mcpServers": {"a": {"command": "x", "includeTools": ["r"], "excludeTools": []}}}"#,
            json!(["r"]),
            "",
        ),
    ] {
        let home = Home::new();
        home.write(&home.config(), EMPTY);
        home.put(client, text.as_bytes());
        let said = home.json(&["import", client, "--yes"]);
        let config: Value = serde_json::from_slice(&read(&home.config())).expect("JSON");
        assert_eq!(servers(&config)["a"]["toolFilters"], filters, "{text}");
        let keys: Vec<_> =
            said["notes"].as_array().expect("a list").iter().map(|note| &note["key"]).collect();
        assert_eq!(keys, if key.is_empty() { vec![] } else { vec![key] }, "{text}");
    }
    // toolman has no such filter: what passes there is told, with both lists.
    let home = Home::new();
    home.write(&home.path("xdg-config/toolman/tools.toml"), b"");
    home.put(
        "codex",
        b"[mcp_servers.a]\ncommand = \"x\"\nenabled_tools = [\"r\"]\ndisabled_tools = [\"w\"]\n",
    );
    let said = home.json(&["--face", "toolman", "import", "codex", "--yes"]);
    assert_eq!(said["notes"][0]["key"], "enabled_tools minus disabled_tools", "{said}");
}

/// Servers that are not taken over are named, with the project that they belong to.
#[test]
fn import_names_the_servers_that_it_leaves_out() {
    let home = Home::new();
    home.write(&home.config(), EMPTY);
    let here = home.path("project").to_str().expect("UTF-8").to_owned();
    let servers = json!({
        "mcpServers": {"mine": {"command": "x"}},
        "projects": {
            here: {"mcpServers": {"local": {"command": "y"}}},
            "/home/me/shop": {"mcpServers": {"db": {"command": "db"}, "queue": {"command": "q"}}},
            "/home/me/blog": {"mcpServers": {"cms": {"command": "cms"}}},
            "/home/me/none": {"mcpServers": {}},
        },
    });
    home.put("claude-code", servers.to_string().as_bytes());
    let finished = home.run(&["import", "claude-code", "--yes"]);
    let left_out = |name: &str, project: &str| {
        format!(
            "warning: Claude Code: {name} belongs to the project {project}; left out, `init --project` there takes it over\n"
        )
    };
    let expected = [("cms", "/home/me/blog"), ("db", "/home/me/shop"), ("queue", "/home/me/shop")];
    for (name, project) in expected {
        assert!(finished.stderr.contains(&left_out(name, project)), "{name}: {}", finished.stderr);
    }
    assert_eq!(finished.stderr.matches("left out").count(), expected.len(), "{}", finished.stderr);
    let config = text(&home.config());
    assert!(
        config.contains("\"local\"") && config.contains("\"mine\"") && !config.contains("\"db\""),
        "{config}"
    );
    // Two kinds of servers in one file: those that the client does not read are named one by one.
    home.write(&home.config(), EMPTY);
    let both = r#"{"servers": {"a": {"command": "x"}}, "mcpServers": {"b": {"command": "y"}, "c": {"command": "z"}}}"#;
    home.put("vscode", both.as_bytes());
    let said = home.json(&["import", "vscode", "--yes"]);
    let notes = said["notes"].as_array().expect("a list").iter();
    let notes: Vec<_> = notes.map(|note| (&note["server"], &note["key"], &note["message"])).collect();
    let (key, message) = (&json!("mcpServers"), &json!("is not read beside `servers`; left out"));
    assert_eq!(notes, [(&json!("b"), key, message), (&json!("c"), key, message)]);
}

#[test]
fn connect_twice_and_disconnect() {
    for (client, fixture, _) in CLIENTS {
        for face in ["mcp-workbench", "toolman"] {
            let home = Home::with(&[client]);
            let file = home.file_of(client);
            let config = home.path(if face == "toolman" {
                "xdg-config/toolman/tools.toml"
            } else {
                "xdg-config/mcp-workbench/workbench-config.json"
            });
            assert_eq!(home.run_with(face, &["init", "--yes"]).code, Some(0), "{client}");
            let before = read(&file);
            let first = home.run_with(face, &["connect", client, "--yes"]);
            assert_eq!(first.code, Some(0), "{client}: {}", first.stderr);
            let connected = text(&file);
            let config = config.to_str().expect("UTF-8").to_owned();
            assert!(connected.contains(&config), "{client}: {connected}");
            let program = format!("{face}{}", std::env::consts::EXE_SUFFIX);
            assert!(connected.contains(&program), "{client}: {connected}");
            assert_eq!(connected.contains("--tool-mode"), face == "mcp-workbench", "{client}: {connected}");
            assert_eq!(home.run_with(face, &["connect", client, "--yes"]).code, Some(0));
            assert_eq!(text(&file), connected, "{client}: twice is once");
            // Importing again must not bring us in as a server of our own.
            assert_eq!(home.run_with(face, &["import", client, "--yes"]).code, Some(0));
            assert_eq!(home.run_with(face, &["disconnect", client, "--yes"]).code, Some(0));
            assert!(read(&file) == before, "{client}: byte for byte");
            assert!(read(&file) == read(&fixtures().join(fixture)), "{client}: nothing else wrote it");
            assert_eq!(home.run_with(face, &["disconnect", client, "--yes"]).code, Some(0));
            assert!(read(&file) == before, "{client}");
        }
    }
}

/// Line endings, byte order mark, permissions and links of each format.
#[cfg(unix)]
#[test]
fn connect_keeps_how_a_file_is_written() {
    use std::os::unix::fs::PermissionsExt;
    for client in ["cursor", "codex", "goose"] {
        let home = Home::with(&[client]);
        let file = home.file_of(client);
        let real = home.path("dotfiles/real");
        let odd = format!("\u{feff}{}", text(&file).replace('\n', "\r\n"));
        home.write(&real, odd.as_bytes());
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o604)).expect("ours");
        std::fs::remove_file(&file).expect("ours");
        std::os::unix::fs::symlink(&real, &file).expect("ours");
        assert_eq!(home.run(&["init", "--yes"]).code, Some(0), "{client}");
        let finished = home.run(&["connect", client, "--keep", "--yes"]);
        assert_eq!(finished.code, Some(0), "{client}: {}", finished.stderr);
        let connected = text(&real);
        assert!(connected.starts_with('\u{feff}') && connected.contains("workbench"), "{client}");
        assert_eq!(connected.matches('\n').count(), connected.matches("\r\n").count(), "{client}");
        assert!(file.symlink_metadata().expect("there").is_symlink(), "{client}");
        assert_eq!(real.metadata().expect("there").permissions().mode() & 0o777, 0o604, "{client}");
        let kept = odd.lines().filter(|line| line.contains("command") || line.contains('#'));
        kept.for_each(|line| assert!(connected.contains(line), "{client}: {line}"));
        for path in all_files(&home.path("xdg-state")) {
            let mode = path.metadata().expect("there").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}", path.display());
        }
        assert_eq!(home.run(&["disconnect", client, "--yes"]).code, Some(0), "{client}");
        assert_eq!(text(&real), odd, "{client}");
    }
}

#[cfg(unix)]
fn all_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("there").map(|entry| entry.expect("readable").path());
    let found: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { all_files(&path) } else { vec![path] }).collect();
    assert!(!found.is_empty(), "{}", directory.display());
    found
}

/// What somebody else wrote in the meantime stays; we go, and what we took comes back.
#[test]
fn disconnect_after_an_edit() {
    for (client, old, new) in [
        ("claude-desktop", "Ctrl+Space", "Ctrl+K"),
        ("claude-code", "\"numStartups\": 42", "\"numStartups\": 43"),
        ("zed", "\"theme\": \"One Dark\"", "\"theme\": \"Ayu\""),
        ("codex", "model = \"gpt-5-codex\"", "model = \"gpt-6\""),
        ("gemini", "oauth-personal", "api"),
        ("goose", "GOOSE_MODE: smart_approve", "GOOSE_MODE: auto"),
        ("opencode", "\"theme\": \"system\"", "\"theme\": \"dark\""),
        ("cursor", "{\n", "{\n  \"edited\": true,\n"),
        ("vscode", "{\n", "{\n  \"edited\": true,\n"),
        ("windsurf", "{\n", "{\n  \"edited\": true,\n"),
        ("cline", "{\n", "{\n  \"edited\": true,\n"),
        ("lmstudio", "{\n", "{\n  \"edited\": true,\n"),
    ] {
        let home = Home::with(&[client]);
        let file = home.file_of(client);
        let before = text(&file);
        assert_eq!(home.run(&["init", "--yes"]).code, Some(0), "{client}");
        assert_eq!(home.run(&["connect", client, "--yes"]).code, Some(0), "{client}");
        let connected = text(&file);
        assert!(connected.contains(old) && connected != before, "{client}");
        home.put(client, connected.replacen(old, new, 1).as_bytes());
        let finished = home.run(&["disconnect", client, "--yes"]);
        assert_eq!(finished.code, Some(0), "{client}: {}", finished.stderr);
        let after = text(&file);
        assert_eq!(after, before.replacen(old, new, 1), "{client}");
    }
}

/// In TOML the table of servers goes with the last of them.
#[test]
fn the_only_server_of_a_client_that_writes_toml() {
    let home = Home::new();
    home.write(&home.config(), br#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "x"}}}}}"#);
    let more = "\n[projects.\"/p\"]\ntrust_level = \"trusted\"\n";
    for before in ["model = \"m\"\n", "model = \"m\"\n\n[mcp_servers.a]\ncommand = \"x\"\n"] {
        home.put("codex", before.as_bytes());
        home.json(&["connect", "codex", "--yes"]);
        home.put("codex", format!("{}{more}", text(&home.file_of("codex"))).as_bytes());
        home.json(&["connect", "codex", "--tool-mode", "dynamic", "--yes"]);
        assert!(text(&home.file_of("codex")).contains("\"dynamic\""));
        home.json(&["disconnect", "codex", "--yes"]);
        assert_eq!(text(&home.file_of("codex")), format!("{before}{more}"));
    }
    // Without a backup.
    home.put("codex", b"model = \"m\"\n\n[mcp_servers.workbench]\ncommand = \"mcp-workbench\"\n");
    home.json(&["disconnect", "codex", "--yes"]);
    assert_eq!(text(&home.file_of("codex")), "model = \"m\"\n");
}

/// We find out by ourselves which mode a client can use, unless somebody has decided.
#[test]
fn the_tool_mode_that_a_client_starts_us_with() {
    let undecided = r#"{"toolboxes": {}}"#;
    let decided = r#"{"toolMode": "dynamic", "toolboxes": {}}"#;
    for (config, named, expected) in [
        (undecided, &[][..], &["--tool-mode", "auto"][..]),
        (undecided, &["--tool-mode", "proxy"], &["--tool-mode", "proxy"]),
        (undecided, &["--tool-mode", "flat"], &["--tool-mode", "flat"]),
        (decided, &[], &[]),
        (decided, &["--tool-mode", "proxy"], &["--tool-mode", "proxy"]),
    ] {
        let home = Home::new();
        home.write(&home.config(), config.as_bytes());
        for (client, ..) in CLIENTS {
            let said = home.json(&[&["connect", client, "--dry-run"], named].concat());
            let args = said["args"].as_array().expect("a list");
            assert_eq!(args[2..], expected.iter().map(|arg| json!(arg)).collect::<Vec<_>>(), "{client}");
        }
    }
}

/// Another server may have the name that we have.
#[test]
fn a_server_that_is_not_ours_has_our_name() {
    let home = Home::new();
    home.write(&home.config(), EMPTY);
    let theirs = "{\n  \"mcpServers\": {\n    \"workbench\": {\"command\": \"/opt/bench\"},\n    \"b\": {\"command\": \"b\"}\n  }\n}\n";
    home.put("cursor", theirs.as_bytes());
    assert_eq!(home.json(&["disconnect", "cursor", "--yes"])["changed"], json!(false));
    assert_eq!(text(&home.file_of("cursor")), theirs);
    let said = home.json(&["connect", "cursor", "--dry-run"]);
    assert_eq!((&said["replaced"], &said["kept"]), (&json!(["workbench"]), &json!(["b"])));
    let finished = home.run(&["connect", "cursor", "--yes"]);
    assert!(
        finished.stderr.contains("the client already has a server called workbench"),
        "{}",
        finished.stderr
    );
    home.json(&["disconnect", "cursor", "--yes"]);
    assert_eq!(text(&home.file_of("cursor")), theirs);
    // One that starts us is ours, whoever wrote it.
    home.put(
        "cursor",
        br#"{"mcpServers": {"workbench": {"command": "npx", "args": ["-y", "mcp-workbench"]}}}"#,
    );
    assert_eq!(home.json(&["connect", "cursor", "--dry-run"])["replaced"], json!([]));
    assert_eq!(home.json(&["disconnect", "cursor", "--yes"])["changed"], json!(true));
}

/// A client's file may be gone; what we took out of it is not.
#[test]
fn what_was_taken_from_a_file_that_is_gone_comes_back() {
    let home = Home::new();
    home.write(&home.config(), br#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "x"}}}}}"#);
    let (before, file) = (r#"{"mcpServers": {"a": {"command": "x"}}}"#, home.file_of("cursor"));
    home.put("cursor", before.as_bytes());
    for again in [false, true] {
        assert_eq!(home.json(&["connect", "cursor", "--yes"])["removed"], json!(["a"]));
        std::fs::remove_file(&file).expect("ours");
        if again {
            assert_eq!(home.json(&["connect", "cursor", "--yes"])["removed"], json!(["a"]));
        }
        assert_eq!(home.json(&["disconnect", "cursor", "--yes"])["written"], json!(true), "{again}");
        assert_eq!(text(&file), before, "{again}");
    }
    // One that connecting made was empty.
    std::fs::remove_file(&file).expect("ours");
    home.json(&["connect", "cursor", "--yes"]);
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(home.json(&["disconnect", "cursor", "--yes"])["changed"], json!(false));
    assert!(!file.exists());
}

/// What comes back comes back to its place, with the comments that belong to it.
#[test]
fn what_comes_back_is_as_it_was() {
    let config = r#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}}}"#;
    for (client, before, edit) in [
        (
            "zed",
            "{\n  // first\n  \"theme\": 1,\n  \"context_servers\": {\n    // about a\n    \"a\": {\"command\": \"x\"}, // a\n    // about z\n    \"z\": {\"command\": \"z\"}, // z\n    // about b\n    \"b\": {\"command\": \"y\"} // b\n    // last\n  }\n}\n",
            ("\"theme\": 1", "\"theme\": 2"),
        ),
        (
            "codex",
            "model = 1\n\n# about a\n[mcp_servers.a] # a\ncommand = \"x\"\n\n# about z\n[mcp_servers.z]\ncommand = \"z\"\n\n# about b\n[mcp_servers.b]\ncommand = \"y\"\n\n[tui]\ndark = true\n",
            ("model = 1", "model = 2"),
        ),
        (
            "gemini",
            "{\n  \"theme\": 1,\n  \"mcp\": {\n    \"allowed\": [\"a\"],\n    \"excluded\": [\"workbench\", \"z\"]\n  },\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}\n  }\n}\n",
            ("\"theme\": 1", "\"theme\": 2"),
        ),
        // On one line there is nothing to go by but what it means.
        (
            "gemini",
            "{\"theme\": 1, \"mcp\": {\"excluded\": [\"workbench\", \"z\"]}, \"mcpServers\": {\"z\": {\"command\": \"z\"}}}",
            ("\"theme\": 1", "\"theme\": 2"),
        ),
    ] {
        let home = Home::new();
        home.write(&home.config(), config.as_bytes());
        home.put(client, before.as_bytes());
        home.json(&["connect", client, "--yes"]);
        let connected = text(&home.file_of(client));
        assert!(connected.contains(edit.0), "{connected}");
        home.put(client, connected.replacen(edit.0, edit.1, 1).as_bytes());
        home.json(&["disconnect", client, "--yes"]);
        let (after, expected) = (text(&home.file_of(client)), before.replacen(edit.0, edit.1, 1));
        match before.contains('\n') {
            true => assert_eq!(after, expected, "{client}"),
            false => {
                let [after, expected] =
                    [&after, &expected].map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
                assert_eq!(after, expected, "{client}");
            }
        }
    }
}

/// VS Code reads Copilot's file as well, which is not its own.
#[test]
fn a_borrowed_file_is_imported_and_not_written() {
    let home = Home::new();
    home.write(&home.config(), EMPTY);
    let borrowed = home.path(".copilot/mcp-config.json");
    home.write(&borrowed, br#"{"mcpServers": {"a": {"command": "x"}}}"#);
    assert_eq!(home.json(&["import", "vscode", "--yes"])["added"][0]["server"], "a");
    let said = home.json(&["connect", "vscode", "--yes"]);
    assert_eq!(said["file"], json!(home.file_of("vscode")));
    assert_eq!(text(&borrowed), r#"{"mcpServers": {"a": {"command": "x"}}}"#);
}

#[test]
fn a_file_that_connect_made_goes_again() {
    for (client, _, path) in CLIENTS {
        let home = Home::new();
        home.write(&home.config(), EMPTY);
        let finished = home.run(&["connect", client, "--yes"]);
        assert_eq!(finished.code, Some(0), "{client}: {}", finished.stderr);
        assert!(text(&home.file_of(client)).contains("workbench"), "{client}");
        assert_eq!(home.run(&["disconnect", client, "--yes"]).code, Some(0), "{client}");
        let own = home.config();
        let file = home.path(path);
        let made = file.ancestors().take_while(|directory| !own.starts_with(directory));
        assert!(!made.last().expect("the file itself").exists(), "{client}: nothing is left");
    }
}

/// Whoever made it, it goes with the last of the two.
#[test]
fn a_file_that_one_face_made_goes_with_the_other() {
    for faces in [["toolman", "mcp-workbench"], ["mcp-workbench", "toolman"]] {
        for order in [[0, 1], [1, 0]] {
            let home = Home::new();
            home.write(&home.config(), EMPTY);
            home.write(&home.path("xdg-config/toolman/tools.toml"), b"");
            for face in faces {
                assert_eq!(home.run_with(face, &["connect", "cursor", "--yes"]).code, Some(0));
            }
            for turn in order {
                assert!(home.file_of("cursor").exists(), "{faces:?} {order:?}");
                assert_eq!(home.run_with(faces[turn], &["disconnect", "cursor", "--yes"]).code, Some(0));
            }
            assert!(!home.path(".cursor").exists(), "{faces:?} {order:?}");
        }
    }
}

/// Files as they happen to be: empty, on one line, in older or newer ways to write them.
#[test]
fn odd_files() {
    let config = r#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "x", "args": ["1"]}}}}}"#;
    for (client, text_before) in [
        ("cursor", ""),
        ("cursor", "{}"),
        ("cursor", "{\"mcpServers\": null}"),
        ("cursor", r#"{"mcpServers":{"a":{"command":"x","args":["1"]},"b":{"command":"y"}}}"#),
        ("goose", "A: b\nextensions:\nB: c\n"),
        ("goose", "extensions: {} # none\n"),
        ("goose", "extensions:\n    a:\n        type: stdio\n        cmd: x\n        args: [\"1\"]"),
        ("codex", "# only a comment"),
        ("codex", "mcp_servers = { a = { command = \"x\", args = [\"1\"] } }\n"),
        ("codex", "mcp_servers.a.command = \"x\"\nmcp_servers.a.args = [\"1\"]\nz = 1\n"),
        ("opencode", r#"{"mcp": {"servers": {"a": {"type": "local", "command": ["x", "1"]}}}}"#),
        ("gemini", r#"{"mcp": {"excluded": ["workbench"]}}"#),
        (
            "zed",
            "// Zed\n{\"context_servers\": {\"a\": {\"command\": {\"path\": \"x\", \"args\": [\"1\"]}},}}",
        ),
        (
            "claude-code",
            r#"{"projects": {"@project": {"mcpServers": {"a": {"command": "x", "args": ["1"]}}}}}"#,
        ),
    ] {
        let home = Home::new();
        let before = text_before.replace("@project", home.path("project").to_str().expect("UTF-8"));
        home.write(&home.config(), config.as_bytes());
        home.put(client, before.as_bytes());
        let said = home.json(&["connect", client, "--yes"]);
        let taken = if before.contains("\"1\"") { json!(["a"]) } else { json!([]) };
        assert_eq!(said["removed"], taken, "{before}");
        let connected = text(&home.file_of(client));
        let again = home.json(&["connect", client, "--yes"]);
        assert_eq!(again["changed"], json!(false), "{connected}");
        assert!(!connected.contains("\"1\""), "{connected}");
        let comment = before.split_inclusive('\n').find(|line| line.contains("only a comment"));
        assert!(comment.is_none_or(|comment| connected.starts_with(comment)), "{connected}");
        home.json(&["disconnect", client, "--yes"]);
        assert_eq!(text(&home.file_of(client)), before);
    }
}

/// Both faces in one file, in any order.
#[test]
fn two_faces_in_one_client() {
    for [first, second] in [["mcp-workbench", "toolman"], ["toolman", "mcp-workbench"]] {
        let home = Home::with(&["cursor"]);
        for face in ["mcp-workbench", "toolman"] {
            assert_eq!(home.run_with(face, &["init", "--yes"]).code, Some(0));
            assert_eq!(home.run_with(face, &["connect", "cursor", "--yes"]).code, Some(0));
        }
        let connected = text(&home.file_of("cursor"));
        assert!(connected.contains("\"workbench\"") && connected.contains("\"toolman\""), "{connected}");
        for face in [first, second] {
            assert_eq!(home.run_with(face, &["disconnect", "cursor", "--yes"]).code, Some(0));
        }
        assert!(read(&home.file_of("cursor")) == read(&fixtures().join("cursor.json")), "{first} goes first");
    }
}

#[test]
fn servers_that_are_not_ours_stay() {
    let home = Home::with(&["cursor"]);
    let config = r#"{"toolboxes": {"dev": {"mcpServers": {
        "fs": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv/notes"]},
        "linear": {"command": "another"}}}}}"#;
    home.write(&home.config(), config.as_bytes());
    let said = home.json(&["connect", "cursor", "--yes"]);
    assert_eq!(said["removed"], json!(["fs"]));
    assert_eq!(said["kept"], json!(["github", "linear", "local"]));
    let servers: Value = serde_json::from_slice(&read(&home.file_of("cursor"))).expect("JSON");
    let names: Vec<_> = servers["mcpServers"].as_object().expect("servers").keys().cloned().collect();
    assert_eq!(names, ["github", "linear", "local", "workbench"]);
    // With other options, what was taken comes back.
    let said = home.json(&["connect", "cursor", "--keep", "--tool-mode", "proxy", "--yes"]);
    assert_eq!(said["removed"], json!([]));
    assert_eq!(said["args"].as_array().expect("a list").last(), Some(&json!("proxy")));
    let servers: Value = serde_json::from_slice(&read(&home.file_of("cursor"))).expect("JSON");
    assert_eq!(servers["mcpServers"].as_object().expect("servers").len(), 5);
    assert_eq!(home.run(&["disconnect", "cursor", "--yes"]).code, Some(0));
    assert!(read(&home.file_of("cursor")) == read(&fixtures().join("cursor.json")));
}

/// Servers that differ in a secret alone are two accounts, and both must stay reachable.
#[test]
fn two_accounts_stay_two() {
    let server = |token: &str| json!({"command": "gh-mcp", "env": {"GITHUB_TOKEN": token}});
    let config = |servers: Value| {
        json!({"onMissingVariable": "skip", "toolboxes": {"dev": {"mcpServers": servers}}}).to_string()
    };
    for (ours, theirs, variable, added, removed) in [
        // The values are known to differ.
        (
            json!({"github": server("${GITHUB_TOKEN}")}),
            json!({"github-work": server("ghp_fixture_work")}),
            Some("ghp_fixture_home"),
            json!(["github-work"]),
            json!(["github-work"]),
        ),
        // They are known to be the same.
        (
            json!({"github": server("${GITHUB_TOKEN}")}),
            json!({"github-work": server("ghp_fixture_work")}),
            Some("ghp_fixture_work"),
            json!([]),
            json!(["github-work"]),
        ),
        // Nobody knows: names decide.
        (
            json!({"github": server("${GITHUB_TOKEN}")}),
            json!({"github-work": server("ghp_fixture_work")}),
            None,
            json!(["github-work"]),
            json!(["github-work"]),
        ),
        (
            json!({"github": server("${GITHUB_TOKEN}")}),
            json!({"github": server("ghp_fixture_work")}),
            None,
            json!([]),
            // It would lack its variable behind the gateway.
            json!([]),
        ),
        // One of ours stands for one of theirs.
        (
            json!({"github": server("${GITHUB_TOKEN}")}),
            json!({"github": server("ghp_fixture_home"), "github-2": server("ghp_fixture_work")}),
            None,
            json!(["github-2"]),
            json!(["github-2"]),
        ),
        // In clear text on both sides.
        (
            json!({"github": server("ghp_fixture_home")}),
            json!({"github": server("ghp_fixture_work")}),
            None,
            json!(["github-2"]),
            json!(["github"]),
        ),
    ] {
        let home = Home::new();
        home.write(&home.config(), config(ours.clone()).as_bytes());
        home.put("cursor", json!({"mcpServers": theirs}).to_string().as_bytes());
        let run = |args: &[&str]| {
            let mut command = home.command("mcp-workbench", &[args, &["--yes", "--json"]].concat());
            command.envs(variable.map(|value| ("GITHUB_TOKEN", value)));
            let finished = home.lab.run(&mut command);
            serde_json::from_str::<Value>(&finished.stdout).expect("one JSON value")
        };
        // Before they are imported, those that differ stay where they are.
        let early = run(&["connect", "cursor"])["removed"].clone();
        run(&["disconnect", "cursor"]);
        let said = run(&["import", "cursor"]);
        let names = said["added"].as_array().expect("a list").iter().map(|one| one["server"].clone());
        assert_eq!(json!(names.collect::<Vec<_>>()), added, "{ours} {theirs} {said}");
        let added: Vec<_> = added.as_array().expect("a list").iter().map(|one| one.as_str()).collect();
        let known = removed.as_array().expect("a list").iter().filter(|one| !added.contains(&one.as_str()));
        let known =
            if ours["github"]["env"]["GITHUB_TOKEN"] == "ghp_fixture_home" { 0 } else { known.count() };
        assert_eq!(early.as_array().map(Vec::len), Some(known), "{ours} {theirs}");
        assert_eq!(run(&["import", "cursor"])["changed"], json!(false), "{ours} {theirs}");
        assert_eq!(run(&["connect", "cursor"])["removed"], removed, "{ours} {theirs}");
    }
}

/// A variable never gets the secret of another account, in whatever order they came.
#[test]
fn secrets_stay_with_their_account() {
    let account = |token: &str| {
        let server = json!({"command": "gh-mcp", "env": {"GH_TOKEN": token}});
        json!({"mcpServers": {"gh": server}}).to_string()
    };
    let (one, two) = ("ghp_fixture_one", "ghp_fixture_two");
    let home = Home::new();
    home.write(&home.config(), EMPTY);
    home.put("cursor", account(one).as_bytes());
    home.put("claude-code", account(two).as_bytes());
    home.json(&["import", "cursor", "--yes"]);
    assert_eq!(home.secrets(), format!("GH_TOKEN={one}\n"));
    assert_eq!(home.config_value()["envFile"], "secrets.env");
    assert_eq!(home.json(&["import", "cursor", "--yes"])["changed"], json!(false));
    home.json(&["connect", "cursor", "--yes"]);
    let said = home.json(&["import", "claude-code", "--yes"]);
    assert_eq!(said["added"][0]["server"], "gh-2", "{said}");
    let both = format!("GH_TOKEN={one}\nGH_TOKEN_2={two}\n");
    assert_eq!(home.secrets(), both);
    for client in ["cursor", "claude-code"] {
        assert_eq!(home.json(&["import", client, "--yes"])["changed"], json!(false), "{client}");
        home.json(&["connect", client, "--yes"]);
        let file = text(&home.file_of(client));
        assert!(!file.contains("fixture") && !file.contains("env"), "{client}: {file}");
    }
    assert_eq!(home.secrets(), both, "importing twice changes nothing");
    assert_eq!(home.run(&["check"]).code, Some(0));
}

/// What `secrets.env` has is kept, whoever wrote it, and so is what the configuration says of files.
#[test]
fn what_a_file_of_secrets_has_is_kept() {
    let theirs = json!({"mcpServers": {"a": {"command": "x", "env": {"API_KEY": "fixture-edited"}}}});
    for (before, files, name, secrets, named) in [
        (None, None, "API_KEY", "API_KEY=fixture-edited\n", json!("secrets.env")),
        (
            Some("# mine\r\nexport OTHER='x'"),
            Some(json!("secrets.env")),
            "API_KEY",
            "# mine\r\nexport OTHER='x'\r\nAPI_KEY=fixture-edited\r\n",
            json!("secrets.env"),
        ),
        (
            Some("API_KEY=another\n"),
            Some(json!(["secrets.env?"])),
            "API_KEY_2",
            "API_KEY=another\nAPI_KEY_2=fixture-edited\n",
            json!(["secrets.env?"]),
        ),
        (
            Some("API_KEY='fixture-edited'\n"),
            Some(json!("other.env?")),
            "API_KEY",
            "API_KEY='fixture-edited'\n",
            json!(["other.env?", "secrets.env"]),
        ),
        (
            None,
            Some(json!(["other.env?"])),
            "API_KEY",
            "API_KEY=fixture-edited\n",
            json!(["other.env?", "secrets.env"]),
        ),
    ] {
        let home = Home::new();
        let mut config = json!({"toolboxes": {}});
        if let Some(files) = files {
            config["envFile"] = files;
        }
        home.write(&home.config(), config.to_string().as_bytes());
        if let Some(before) = before {
            home.write(&home.config().with_file_name("secrets.env"), before.as_bytes());
        }
        home.put("cursor", theirs.to_string().as_bytes());
        let said = home.json(&["import", "cursor", "--yes"]);
        assert_eq!(said["secrets"][0]["variable"], name, "{said}");
        let config = home.config_value();
        let env = &servers(&config)["a"]["env"]["API_KEY"];
        assert_eq!((env, &config["envFile"]), (&json!(format!("${{{name}}}")), &named));
        assert_eq!(home.secrets(), secrets);
    }
    // One that cannot be read is not replaced.
    let home = Home::new();
    home.write(&home.config(), EMPTY);
    home.write(&home.config().with_file_name("secrets.env"), b"not a line\n");
    home.put("cursor", theirs.to_string().as_bytes());
    assert_eq!(home.run(&["import", "cursor", "--yes"]).code, Some(2));
    assert_eq!((home.secrets().as_str(), read(&home.config())), ("not a line\n", EMPTY.to_vec()));
}

/// What looks like servers at the wrong place is named; what only has such a name is not.
#[test]
fn servers_at_the_wrong_place() {
    for (client, file, key) in [
        ("cursor", r#"{"servers": {"a": {"command": "x"}}}"#, Some("servers")),
        ("cursor", r#"{"extensions": {"a": {"cmd": "x"}}}"#, Some("extensions")),
        ("cursor", r#"{"a": {"command": "x"}, "b": {"url": "https://h"}}"#, Some("a")),
        ("gemini", r#"{"extensions": {"disabled": ["x"]}, "mcp": {"allowed": ["a"]}}"#, None),
        ("zed", r#"{"extensions": {"x": true}, "lsp": {}}"#, None),
        ("zed", r#"{"terminal": {"command": "x"}, "theme": "One Dark"}"#, None),
        ("cursor", "{}", None),
    ] {
        let home = Home::new();
        home.write(&home.config(), EMPTY);
        home.put(client, file.as_bytes());
        let said = home.json(&["import", client, "--yes"]);
        let keys: Vec<_> =
            said["notes"].as_array().expect("a list").iter().map(|note| &note["key"]).collect();
        assert_eq!(keys, key.into_iter().collect::<Vec<_>>(), "{file}: {said}");
    }
}

/// Goose puts the variables of an entry into its headers.
#[test]
fn variables_of_an_entry_that_its_headers_use() {
    let home = Home::new();
    home.write(&home.config(), EMPTY);
    let file = "extensions:\n  g:\n    type: streamable_http\n    uri: https://g.example/mcp\n    envs: {GT: fixture-goose-token}\n    headers: {Authorization: 'Bearer $GT'}\n    enabled: true\n";
    home.put("goose", file.as_bytes());
    let said = home.json(&["import", "goose", "--yes"]);
    assert_eq!(said["notes"], json!([]), "{said}");
    let variable = said["secrets"][0]["variable"].as_str().expect("a name");
    assert!(
        text(&home.config()).contains(&format!("\"Bearer ${{{variable}}}\"")),
        "{}",
        text(&home.config())
    );
    let said = home.json(&["connect", "goose", "--yes"]);
    assert_eq!((&said["env"], &said["removed"]), (&json!([]), &json!(["g"])));
    assert_eq!(home.secrets(), format!("{variable}=fixture-goose-token\n"));
    // One that nothing uses is named.
    let home = Home::new();
    home.write(&home.config(), EMPTY);
    home.put("goose", file.replace("$GT", "x").as_bytes());
    assert_eq!(home.json(&["import", "goose", "--yes"])["notes"][0]["key"], "envs");
}

/// What is called the same and does something else is another server; what is off here is needed there.
#[test]
fn connect_takes_out_what_works_here_alone() {
    for (ours, theirs, taken) in [
        (json!({"command": "s"}), json!({"command": "s"}), true),
        (json!({"command": "s", "toolFilters": ["x"]}), json!({"command": "s", "timeout": 5000}), true),
        (
            json!({"command": "s", "env": {"DB": "prod"}}),
            json!({"command": "s", "env": {"DB": "test"}}),
            false,
        ),
        (json!({"command": "s", "cwd": "/x"}), json!({"command": "s", "cwd": "/y"}), false),
        (json!({"command": "s", "disabled": true}), json!({"command": "s"}), false),
        (json!({"command": "s", "disabled": true}), json!({"command": "s", "disabled": true}), true),
        (json!({"command": "s"}), json!({"command": "s", "disabled": true}), true),
        (
            json!({"url": "http://h", "headers": {"X-Tenant": "1"}}),
            json!({"url": "http://h", "headers": {"X-Tenant": "2"}}),
            false,
        ),
        (
            json!({"command": "s", "args": ["--token", "one11111"]}),
            json!({"command": "s", "args": ["--token", "two22222"]}),
            false,
        ),
    ] {
        let home = Home::new();
        home.write(
            &home.config(),
            json!({"toolboxes": {"dev": {"mcpServers": {"a": ours}}}}).to_string().as_bytes(),
        );
        home.put("cursor", json!({"mcpServers": {"a": theirs}}).to_string().as_bytes());
        let said = home.json(&["connect", "cursor", "--dry-run"]);
        assert_eq!(said["removed"], if taken { json!(["a"]) } else { json!([]) }, "{ours} {theirs}");
    }
}

/// What a server that is there already has elsewhere and not here is named.
#[test]
fn what_is_not_taken_over_is_named() {
    let home = Home::new();
    home.write(&home.config(), br#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "s"}}}}}"#);
    let codex = "[mcp_servers.a]\ncommand = \"s\"\nenabled_tools = [\"x\"]\ntool_timeout_sec = 90
startup_timeout_sec = 7\nenv_vars = [\"FOO\"]\nenabled = false\n";
    home.put("codex", codex.as_bytes());
    let finished = home.run(&["import", "codex", "--yes"]);
    let expected = "= a (Codex) is there already; its startup timeout was not taken over; its timeout was not taken \
                    over; its list of tools was not taken over; its list of inherited variables was not taken over; \
                    that it is off there was not taken over\n";
    assert!(finished.stderr.starts_with(expected), "{}", finished.stderr);
    let said = home.json(&["import", "codex", "--yes"]);
    assert_eq!(said["merged"][0]["notTaken"].as_array().map(Vec::len), Some(5), "{said}");
}

/// A default is clear text as well.
#[test]
fn secrets_as_defaults() {
    let home = Home::new();
    home.write(&home.config(), SKIPPING);
    let theirs = r#"{"mcpServers": {
        "x": {"command": "x", "args": ["--api-key", "${KEYX:-hf_fixture1}", "--token=${T:-hf_fixture2}", "${MODE:-fast}",
                                       "postgres://u:hf_fixture3@${HOST}/db"],
              "env": {"API_KEY": "${API_KEY:-hf_fixture4}", "PRE_KEY": "pre-${PRE}"}},
        "y": {"url": "https://u:${PW:-hf_fixture5}@h/", "headers": {"Authorization": "Bearer ${B:-hf_fixture6}"}}}}"#;
    home.put("claude-code", theirs.as_bytes());
    let said = home.json(&["import", "claude-code", "--yes"]);
    let config: Value = serde_json::from_slice(&read(&home.config())).expect("JSON");
    let servers = &servers(&config);
    assert_eq!(
        servers["x"]["args"],
        json!([
            "--api-key",
            "${KEYX}",
            "--token=${T}",
            "${MODE:-fast}",
            "postgres://u:${X_PASSWORD}@${HOST}/db"
        ])
    );
    assert_eq!(servers["x"]["env"], json!({"API_KEY": "${API_KEY}", "PRE_KEY": "pre-${PRE}"}));
    assert_eq!(
        servers["y"],
        json!({"url": "https://u:${PW}@h/", "headers": {"Authorization": "Bearer ${B}"}})
    );
    let secrets = said["secrets"].as_array().expect("a list").iter();
    let names: Vec<_> = secrets.map(|one| one["variable"].as_str().expect("text")).collect();
    assert_eq!(names, ["API_KEY", "KEYX", "T", "X_PASSWORD", "PW", "B"]);
    assert_eq!(home.json(&["import", "claude-code", "--yes"])["changed"], json!(false));
    let said = home.json(&["connect", "claude-code", "--yes"]);
    assert_eq!((&said["removed"], &said["unset"]), (&json!(["y"]), &json!(["HOST", "PRE"])), "{said}");
    let secrets = home.secrets();
    assert!(secrets.contains("KEYX=hf_fixture1\n") && secrets.contains("B=hf_fixture6\n"), "{secrets}");
}

/// Nothing that a file says is dropped in silence.
#[test]
fn what_is_left_out_is_named() {
    for (client, theirs, expected) in [
        (
            "cursor",
            r#"{"mcpServers": {"a": {"command": "x", "headers": {"A": "b"}, "oauth": {"clientId": "c"}}}}"#,
            &[
                "a | headers | is not used here beside a command; left out",
                "a | oauth | is not used here beside a command; left out",
            ][..],
        ),
        (
            "cursor",
            r#"{"mcpServers": {"a": {"url": "https://h", "args": ["x"], "env": {"A": "b"}, "cwd": "/q"}}}"#,
            &[
                "a | args | is not used here beside a URL; left out",
                "a | env | is not used here beside a URL; left out",
                "a | cwd | is not used here beside a URL; left out",
            ],
        ),
        (
            "cursor",
            r#"{"mcpServers": {"a": {"type": "http", "command": "x"}, "b": {"type": "stdio", "url": "https://h"}}}"#,
            &[
                "a | type | is for a URL, but the entry has a command, which was used",
                "b | type | is for a command, but the entry has a URL, which was used",
            ],
        ),
        (
            "gemini",
            r#"{"mcpServers": {"a": {"url": "https://a", "httpUrl": "https://b"}, "b": {"httpUrl": "https://b", "url": "https://a"}}}"#,
            &[
                "a | url | is ignored by the client, which uses the other URL",
                "b | url | is ignored by the client, which uses the other URL",
            ],
        ),
        ("cursor", r#"{"mcpServers": {"a": {"command": ["x", "y"], "args": ["z"]}}}"#, &[]),
        (
            "opencode",
            r#"{"mcp": {"timeout": {"startup": 1}, "old": {"type": "local", "command": ["x"]}, "servers": {}}}"#,
            &[
                " | mcp.timeout | is not read beside `mcp.servers`; left out",
                " | mcp.old | is not read beside `mcp.servers`; left out",
            ],
        ),
        (
            "vscode",
            r#"{"servers": {}, "mcpServers": {"b": {"command": "b"}}}"#,
            &["b | mcpServers | is not read beside `servers`; left out"],
        ),
        (
            "cursor",
            r#"{"mcp": {"servers": {"a": {"command": "x"}}}}"#,
            &[" | mcp.servers | looks like that of opencode; Cursor reads `mcpServers`"],
        ),
        (
            "gemini",
            r#"{"mcp": {"a": {"type": "local", "command": ["x"]}}}"#,
            &[" | mcp | looks like that of opencode; Gemini CLI reads `mcpServers`"],
        ),
        ("gemini", r#"{"mcp": {"allowed": ["a"]}}"#, &[]),
    ] {
        let home = Home::new();
        home.write(&home.config(), EMPTY);
        home.put(client, theirs.as_bytes());
        let said = home.json(&["import", client, "--yes"]);
        let notes = said["notes"].as_array().expect("a list").iter().map(|note| {
            let part = |key: &str| note[key].as_str().expect("text").to_owned();
            format!("{} | {} | {}", part("server"), part("key"), part("message"))
        });
        assert_eq!(notes.collect::<Vec<_>>(), expected, "{theirs}");
        if theirs.contains("\"z\"") {
            assert!(text(&home.config()).contains("[\"y\", \"z\"]"), "{}", text(&home.config()));
        }
        assert_eq!(home.run(&["check"]).code, Some(0), "{theirs}");
    }
}

/// Where a project's server runs does not depend on where our file lies.
#[test]
fn a_relative_directory_is_that_of_the_project() {
    let home = Home::new();
    let theirs = br#"{"mcpServers": {"a": {"command": "x", "cwd": "sub"}, "b": {"command": "y", "cwd": "${env:DIR}"}}}"#;
    home.write(&home.path("project/.cursor/mcp.json"), theirs);
    let ours = home.path("elsewhere/ours.json");
    home.write(&ours, EMPTY);
    let named = ours.to_str().expect("UTF-8");
    assert_eq!(home.run(&["import", "cursor", "--config", named, "--yes"]).code, Some(0));
    let config: Value = serde_json::from_slice(&read(&ours)).expect("JSON");
    let servers = &servers(&config);
    assert_eq!(servers["a"]["cwd"], json!(home.path("project").join("sub")));
    assert_eq!(servers["b"]["cwd"], json!("${DIR}"));
}

#[test]
fn a_broken_file_is_left_alone() {
    for (client, broken) in [
        ("cursor", "{\"mcpServers\": {"),
        ("codex", "a = \n"),
        ("goose", "a: [\n"),
        ("goose", "a: &x 1\nb: *x\n"),
    ] {
        let home = Home::new();
        home.write(&home.config(), EMPTY);
        home.put(client, broken.as_bytes());
        for verb in ["connect", "import"] {
            let finished = home.run(&[verb, client, "--yes"]);
            assert_eq!(finished.code, Some(2), "{verb} {client}");
            assert!(finished.stderr.contains("was left as it is: line "), "{}", finished.stderr);
        }
        assert_eq!(text(&home.file_of(client)), broken);
        let finished = home.run(&["init", "--yes"]);
        assert_eq!(finished.code, Some(0));
        assert!(finished.stderr.contains("warning: "), "{}", finished.stderr);
    }
}
