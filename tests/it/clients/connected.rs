//! The files of clients, connected to us and disconnected again.

use super::*;

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
