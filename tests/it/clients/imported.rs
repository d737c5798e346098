//! What is taken over from the files of clients, and what is left out.

use super::*;

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
