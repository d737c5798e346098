//! Secrets in the files of clients: each stays with its account and leaves the files.

use super::*;

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
