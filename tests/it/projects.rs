//! The user's own file, and those of projects beside it.

use serde_json::{Value, json};

use crate::clients::{Home, servers, text};

/// Servers of the user and of the project in the current directory, two of which Claude Code keeps in the user's file.
fn home() -> Home {
    let home = Home::new();
    let here = home.path("project").to_str().expect("UTF-8").to_owned();
    let claude = json!({
        "mcpServers": {"mine": {"command": "mine"}},
        "projects": {here: {"mcpServers": {"local": {"command": "local"}}}},
    });
    home.put("claude-code", claude.to_string().as_bytes());
    home.put("cursor", br#"{"mcpServers": {"notes": {"command": "notes"}}}"#);
    home.write(
        &home.path("project/.mcp.json"),
        br#"{"mcpServers": {"here": {"command": "here", "args": ["${ROOT:-.}"]}}}"#,
    );
    home.write(
        &home.path("project/.cursor/mcp.json"),
        br#"{"mcpServers": {"root": {"command": "x", "args": ["${workspaceFolder}"]}}}"#,
    );
    home
}

fn names(answer: &Value) -> Vec<&str> {
    let added = answer["added"].as_array().expect("a list").iter();
    added.map(|one| one["server"].as_str().or(one["namespace"].as_str()).expect("a name")).collect()
}

#[test]
fn init_takes_the_servers_of_the_user_or_of_the_project() {
    for program in ["mcp-workbench", "toolman"] {
        let home = home();
        let (file, folder) = match program {
            "toolman" => ("tools.toml", "toolman"),
            _ => ("workbench-config.json", "mcp-workbench"),
        };
        let init = |args: &[&str]| {
            let finished = home.run_with(program, &[&["init", "--yes"], args].concat());
            assert_eq!(finished.code, Some(0), "{args:?}: {}", finished.stderr);
            finished.stderr
        };
        let json = |args: &[&str]| -> Value {
            let finished = home.run_with(program, &[&["init", "--dry-run", "--json"], args].concat());
            serde_json::from_str(&finished.stdout).expect("one JSON value")
        };
        for user in [&[][..], &["--user"]] {
            let answer = json(user);
            assert_eq!(names(&answer), ["mine", "notes"], "{program}");
            assert_eq!(answer["file"], json!(home.path(&format!("xdg-config/{folder}/{file}"))));
            assert_eq!(answer["elsewhere"], 3);
        }
        let answer = json(&["--project"]);
        assert_eq!(names(&answer), ["local", "here", "root"], "{program}");
        assert_eq!(answer["file"], json!(home.path(&format!("project/{file}"))));
        let said = init(&[]);
        assert!(said.contains("\n3 servers belong to this project; run init --project\n"), "{said}");
        let said = init(&["--project"]);
        assert!(!said.contains("run init"), "the user's own are in their file: {said}");
        let said = init(&[]);
        assert!(!said.contains("run init"), "the project's are in their file: {said}");
    }
    let home = home();
    let said = home.run(&["init", "--project", "--yes"]).stderr;
    assert!(said.contains("\n2 servers belong to you in every project; run init\n"), "{said}");
    let config = text(&home.path("project/workbench-config.json"));
    let lines = config.lines().filter(|line| !line.trim_start().starts_with("//"));
    let servers = servers(&serde_json::from_str(&lines.collect::<String>()).expect("JSON"));
    assert_eq!(servers["root"]["args"], json!([home.path("project")]));
    assert_eq!(servers["here"]["args"], json!(["${ROOT:-.}"]));
    assert_eq!(home.run(&["init", "--user", "--project"]).code, Some(2));
}

#[test]
fn connect_registers_the_users_own_file() {
    let home = home();
    let refused = |args: &[&str]| {
        let finished = home.run(args);
        assert_eq!(finished.code, Some(2), "{args:?}: {}", finished.stderr);
        finished.stderr
    };
    let own = home.config();
    let said = refused(&["connect", "cursor", "--yes"]);
    assert!(
        said.contains("you have no workbench-config.json of your own")
            && said.contains("`mcp-workbench init`"),
        "{said}"
    );
    assert!(!said.contains("--project"), "{said}");
    // What lies in a directory is never registered for all of them.
    home.write(&home.path("project/workbench-config.json"), b"{\"toolboxes\": {}}");
    let said = refused(&["connect", "cursor", "--yes"]);
    assert!(said.contains("`mcp-workbench connect cursor --project`"), "{said}");
    home.write(&own, b"{\"toolboxes\": {}}");
    let mode = ["--tool-mode", "auto"];
    let answer = home.json(&["connect", "cursor", "--yes"]);
    assert_eq!(
        (&answer["entry"], &answer["args"]),
        (&json!("workbench"), &json!(["--config", own, mode[0], mode[1]]))
    );
    let here = home.path("project/workbench-config.json");
    let answer = home.json(&["connect", "cursor", "--yes", "--config", "workbench-config.json"]);
    assert_eq!(answer["args"], json!(["--config", here, mode[0], mode[1]]));
    let mut command = home.command("mcp-workbench", &["connect", "cursor", "--yes", "--json"]);
    command.env("WORKBENCH_CONFIG", "workbench-config.json");
    let answer: Value = serde_json::from_str(&home.lab.run(&mut command).stdout).expect("one JSON value");
    assert_eq!(answer["args"], json!(["--config", here, mode[0], mode[1]]));
}

#[test]
fn a_project_is_connected_beside_the_user() {
    const ABSOLUTE: &str = "The entry has absolute paths, so it works on this machine only";
    for (client, file, workspace) in [
        ("claude-code", ".mcp.json", false),
        ("cursor", ".cursor/mcp.json", true),
        ("vscode", ".vscode/mcp.json", true),
        ("gemini", ".gemini/settings.json", false),
        ("codex", ".codex/config.toml", false),
        ("zed", ".zed/settings.json", false),
        ("opencode", "opencode.json", false),
    ] {
        for (program, entry, name) in
            [("mcp-workbench", "workbench", "workbench-config.json"), ("toolman", "toolman", "tools.toml")]
        {
            let home = home();
            let run = |args: &[&str]| {
                let finished = home.run_with(program, args);
                assert_eq!(finished.code, Some(0), "{client} {args:?}: {}", finished.stderr);
                finished
            };
            for args in
                [&["init", "--yes"][..], &["init", "--project", "--yes"], &["connect", client, "--yes"]]
            {
                run(args);
            }
            let path = home.path("project").join(file);
            let before = std::fs::read(&path).ok();
            let answer = run(&["connect", client, "--project", "--dry-run", "--json"]).stdout;
            let answer: Value = serde_json::from_str(&answer).expect("one JSON value");
            let config = match workspace {
                true => json!(format!("${{workspaceFolder}}/{name}")),
                false => json!(home.path("project").join(name)),
            };
            let project = format!("{entry}-project");
            assert_eq!((&answer["file"], &answer["entry"]), (&json!(path), &json!(project)), "{client}");
            assert_eq!(
                answer["args"].as_array().expect("a list")[..4],
                [json!("--config"), config, json!("--entry"), json!(project)]
            );
            let said = run(&["connect", client, "--project", "--yes"]).stderr;
            assert_eq!(said.contains(ABSOLUTE), !workspace, "{client}: {said}");
            assert!(said.contains(&format!("{program} disconnect {client} --project")), "{said}");
            assert!(text(&path).contains(&project), "{client}");
            // Each is undone by itself.
            run(&["disconnect", client, "--yes"]);
            assert!(text(&path).contains(&project), "{client}");
            run(&["disconnect", client, "--project", "--yes"]);
            assert_eq!(std::fs::read(&path).ok(), before, "{client}: byte for byte");
        }
    }
    let home = home();
    home.write(&home.config(), b"{\"toolboxes\": {}}");
    for (args, part) in [
        (&["connect", "windsurf", "--project"][..], "Windsurf has no project file"),
        (&["disconnect", "goose", "--project"], "Goose has no project file"),
        (&["connect", "cursor", "--project"], "`mcp-workbench init --project` makes one"),
        (&["connect", "cursor", "--project", "--config", "x.json"], "leave out --config or --project"),
    ] {
        let finished = home.run(args);
        assert_eq!(finished.code, Some(2), "{args:?}: {}", finished.stderr);
        assert!(finished.stderr.contains(part), "{args:?}: {}", finished.stderr);
    }
}
