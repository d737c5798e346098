//! The verb `lock`: what it shows, asks, writes and refuses.

use super::*;

#[test]
fn a_file_that_cannot_be_used_ends_the_program_with_its_place() {
    let config = |rule: Option<&str>| {
        let mut config = dev("dynamic", json!({"files": files(PROMPT)}));
        if let Some(rule) = rule {
            config["lock"] = json!(rule);
        }
        Place::workbench(config)
    };
    let cases = [
        (Some("enforce"), None, "1:1", "the lock file does not exist"),
        (None, Some("{\"lockVersion\": 1,\n"), "2:1", "this is not valid JSON"),
        (None, Some("{\n<<<<<<< HEAD\n"), "2:1", "this mark is left over from a merge with conflicts"),
        (Some("warn"), Some("{\"lockVersion\": 9}"), "1:17", "this is version 9 of the format"),
        (None, Some("{\"lockVersion\": 1, \"namespaces\": {}}"), "1:20", "this is a lock file of toolman"),
        (None, Some("{\"lockVersion\": 1, \"lockVersion\": 1}"), "1:20", "duplicate key `lockVersion`"),
        (None, Some("{\"lockVersion\": 1}"), "1:1", "the file has no `toolboxes`"),
    ];
    for (rule, text, place, message) in cases {
        let lab = config(rule);
        if let Some(text) = text {
            lab.lab.write("workbench-config.lock", text);
        }
        for args in [&["serve"][..], &["check"], &["list", "tools"], &["doctor"]] {
            let Finished { code, stderr, .. } = lab.run(args);
            assert_eq!(code, Some(2), "{args:?} {message}: {stderr}");
            assert!(
                stderr.contains(message) && stderr.contains(&format!("workbench-config.lock:{place}")),
                "{stderr}"
            );
        }
        let problem = lab.json(&["check"], 2)["problems"][0].take();
        let file = problem["file"].as_str().is_some_and(|file| file.ends_with("workbench-config.lock"));
        assert!(file && problem["message"].as_str().is_some_and(|told| told.contains(message)), "{problem}");
        // Only the verb that writes the file can do without it; it does not overwrite one that it cannot read.
        let locked = lab.run(&["lock", "--dry-run"]);
        offer(&lab.lab, &GOOD);
        assert_eq!(locked.code == Some(2), text.is_some(), "{message}: {}", locked.stderr);
    }
    for rule in ["absent", "off", "warn"] {
        let lab = config(Some(rule).filter(|rule| *rule != "absent"));
        if rule == "off" {
            lab.lab.write("workbench-config.lock", "{");
        }
        assert_eq!(lab.run(&["check"]).code, Some(0), "{rule}");
    }
    for (rule, text, message) in [
        ("lock = \"enforce\"", None, "the lock file does not exist"),
        ("", Some("{\"lockVersion\": 1, \"toolboxes\": {}}"), "this is a lock file of mcp-workbench"),
    ] {
        let place = Place::toolman(&format!("{rule}\n{}", server("n", "--with echo", "")));
        if let Some(text) = text {
            place.lab.write("tools.lock", text);
        }
        for verb in [&[][..], &["check"]] {
            let Finished { code, stderr, .. } = place.run(verb);
            assert_eq!(code, Some(2), "{stderr}");
            for part in [message, "tools.lock:1:", "`mcp-workbench lock --face toolman`"] {
                assert!(stderr.contains(part), "{part}: {stderr}");
            }
        }
    }
    let other = Place::workbench(json!({"lock": "on", "toolboxes": {}}));
    let stderr = other.run(&["check"]).stderr;
    assert!(
        stderr.contains("`enforce`, `warn` or `off`") || stderr.contains("\"enforce\", \"warn\" or \"off\""),
        "{stderr}"
    );
}

#[test]
fn checking_dry_runs_and_writing() {
    let place = Place::workbench(dev("dynamic", json!({"files": files(PROMPT)})));
    offer(&place.lab, &GOOD);
    let path = place.lab.dir.join("workbench-config.lock");
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let none = place.run(&["lock", "--check"]);
    let missing = "workbench-config.lock does not exist, so nothing is approved yet; run `mcp-workbench lock` to approve";
    assert!(none.code == Some(1) && flat(&none.stderr).contains(missing), "{}", none.stderr);
    assert_eq!(place.run(&["lock", "--dry-run"]).code, Some(0));
    let unasked = place.run(&["lock"]);
    assert!(unasked.code == Some(2) && unasked.stderr.contains("--yes"), "{}", unasked.stderr);
    assert!(!path.exists());
    let written = place.run(&["lock", "--yes"]);
    assert_eq!(written.code, Some(0));
    assert!(
        written.stdout.contains("dev/files/read_file: new\n    {\n      \"name\": \"read_file\",\n"),
        "{}",
        written.stdout
    );
    assert!(written.stdout.contains("dev/files/ask (prompt): new\n"), "{}", written.stdout);
    let first = text_of(&place.lab, "workbench-config.lock");
    for args in [&["lock", "--check"][..], &["lock", "--yes"], &["lock"]] {
        let again = place.run(args);
        assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""), "{}", again.stderr);
        assert_eq!(text_of(&place.lab, "workbench-config.lock"), first, "{args:?}");
    }
    assert_eq!(place.json(&["lock", "--check"], 0), json!({"ok": true, "changes": [], "failed": []}));
    let hidden = r#"{"name":"read_file","description":"Read any\u200b file\t","inputSchema":{"type":"object","properties":{"path":{"type":"number"}}}}"#;
    offer(&place.lab, &[hidden, GOOD[1], GOOD[2], r#"{"name":"new"}"#]);
    let checked = place.run(&["lock", "--check"]);
    assert_eq!(checked.code, Some(1));
    let expected = "dev/files/new: new
    {
      \"name\": \"new\"
    }
dev/files/read_file: changed
    description: Read [-a-]{+any\\u200b+} file{+\\t+}
    inputSchema.properties.path.type: [-\"string\"-]{+\"number\"+}
dev/files/report: gone
";
    assert_eq!(checked.stdout, expected);
    let warning = "warning: dev/files/read_file has invisible characters: U+200B\n";
    assert!(checked.stderr.contains(warning), "{}", checked.stderr);
    let told = "workbench-config.lock; run `mcp-workbench lock` to approve what the servers offer";
    assert!(flat(&checked.stderr).contains(told), "{}", checked.stderr);
    let row = |kind: &str, name: &str, change: &str| json!({"toolbox": "dev", "server": "files", "kind": kind, "name": name, "change": change, "characters": []});
    let mut changed = row("tool", "read_file", "other");
    changed["paths"] = json!(["description", "inputSchema.properties.path.type"]);
    changed["characters"] = json!(["U+200B"]);
    let expected = json!({"ok": false, "changes": [row("tool", "new", "new"), changed, row("tool", "report", "gone")], "failed": []});
    assert_eq!(place.json(&["lock", "--check"], 1), expected);
    assert_eq!(place.json(&["lock", "--dry-run"], 0), expected);
    assert_eq!(text_of(&place.lab, "workbench-config.lock"), first);
    // One item alone, by any name that is unique.
    for (item, unknown) in
        [("read_fil", true), ("other/files", true), ("files/nothing", true), ("dev/files/new", false)]
    {
        let run = place.run(&["lock", "--yes", item]);
        assert_eq!(run.code, Some(if unknown { 2 } else { 0 }), "{item}: {}", run.stderr);
        assert_eq!(run.stderr.contains("there is no server or tool"), unknown, "{}", run.stderr);
        let near = item == "read_fil";
        assert_eq!(run.stderr.contains("did you mean read_file"), near, "{}", run.stderr);
    }
    let second = text_of(&place.lab, "workbench-config.lock");
    assert!(
        second.contains("\"new\": {") && second.contains("Read a file") && second.contains("\"report\""),
        "{second}"
    );
    for item in ["report", "files/read_file"] {
        assert_eq!(place.run(&["lock", "--yes", item]).code, Some(0), "{item}");
    }
    let third = text_of(&place.lab, "workbench-config.lock");
    assert!(third.contains("Read any\\u200b file\\t") && !third.contains("\"report\""), "{third}");
    assert_eq!(place.run(&["lock", "--check"]).code, Some(0));
}

#[test]
fn servers_that_cannot_be_asked_are_disabled_or_are_gone() {
    let tool =
        |name: &str| fake_with("--fail-while @dir/broken", &["--tool", &format!(r#"{{"name":"{name}"}}"#)]);
    let config = |servers: Value| json!({"toolboxes": {"dev": {"mcpServers": servers}, "ops": {"mcpServers": {"a": tool("x")}}}});
    let place = Place::workbench(config(json!({"a": tool("a"), "b": tool("b"), "c": tool("c")})));
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let first = text_of(&place.lab, "workbench-config.lock");
    let rewrite =
        |value: &Value| drop(place.lab.write("workbench-config.json", &place.lab.fill(&value.to_string())));
    // Ambiguous names are not guessed.
    let run = place.run(&["lock", "--check", "a"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    for name in ["dev/a", "dev/a/a", "ops/a"] {
        assert!(run.stderr.contains(&format!("  {name}\n")), "{}", run.stderr);
    }
    // A server that fails keeps what it has: 4, unless something differs.
    let mut failing = tool("b");
    failing["args"].as_array_mut().expect("a list").extend([json!("--exit"), json!("3")]);
    rewrite(&config(json!({"a": tool("a"), "b": failing, "c": tool("c")})));
    for args in [&["lock", "--check"][..], &["lock", "--yes"]] {
        let run = place.run(args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(4), ""), "{}", run.stderr);
        assert!(
            run.stderr
                .contains("warning: dev/b: the server exited with status 3; its part of the lock stays"),
            "{}",
            run.stderr
        );
    }
    let told = place.json(&["lock", "--check"], 4);
    let failed = json!([{"toolbox": "dev", "server": "b", "error": "the server exited with status 3"}]);
    assert_eq!((&told["ok"], &told["failed"]), (&json!(true), &failed));
    assert_eq!(text_of(&place.lab, "workbench-config.lock"), first);
    rewrite(&config(json!({"a": tool("other"), "b": failing, "c": tool("c")})));
    assert_eq!(place.run(&["lock", "--check"]).code, Some(1), "something differs");
    // A disabled server stays, one that is not configured leaves.
    let mut disabled = tool("b");
    disabled["disabled"] = json!(true);
    rewrite(&config(json!({"a": tool("a"), "b": disabled})));
    let told = place.json(&["lock", "--check"], 1);
    let gone = json!([{"toolbox": "dev", "server": "c", "kind": "tool", "name": "c", "change": "gone", "characters": []}]);
    assert_eq!((&told["changes"], &told["failed"]), (&gone, &json!([])));
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let now: Value = serde_json::from_str(&text_of(&place.lab, "workbench-config.lock")).expect("JSON");
    let servers: Vec<_> = now["toolboxes"]["dev"].as_object().expect("an object").keys().cloned().collect();
    assert_eq!(servers, ["a", "b"]);
}

#[test]
fn what_holds_a_secret_or_a_member_twice_is_not_written() {
    let mut entry = fake_with("--tools-of @dir/tools", &[]);
    entry["env"] = json!({"KEY": "fixture-secret\"x"});
    entry["toolFilters"] = json!(["a", "b", "c"]);
    let place = Place::workbench(dev("dynamic", json!({"a": entry})));
    offer(
        &place.lab,
        &[
            r#"{"name":"a","description":"fine"}"#,
            r#"{"name":"b","description":"it is fixture\u002dsecret\u0022x"}"#,
            r#"{"name":"c","x":{"y":1,"\u0079":2}}"#,
            r#"{"name":"d","description":"left out by the filter"}"#,
        ],
    );
    let run = place.run(&["lock", "--yes"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stderr
            .contains("dev/a/b holds a secret of the configuration; it is not written and stays withheld"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("dev/a/c has the member \"y\" twice; it is not written"), "{}", run.stderr);
    assert!(!format!("{}{}", run.stdout, run.stderr).contains("secret\"x"), "{}", run.stdout);
    let lock: Value = serde_json::from_str(&text_of(&place.lab, "workbench-config.lock")).expect("JSON");
    assert_eq!(lock["toolboxes"]["dev"]["a"]["tools"], json!({"a": {"name": "a", "description": "fine"}}));
    let told = place.json(&["lock", "--check"], 1);
    let failed: Vec<_> = told["failed"].as_array().expect("a list").iter().map(|one| &one["error"]).collect();
    assert_eq!(
        failed,
        ["the tool b holds a secret of the configuration", "the tool c has the member \"y\" twice"]
    );
    let doctor = place.json(&["doctor"], 0);
    assert_eq!(
        doctor["servers"][0]["withheld"],
        json!(["b", "c"]),
        "what the filter leaves out is not withheld"
    );
}

#[test]
fn doctor_names_prompts_that_are_withheld() {
    let config = |prompt: &str| dev("dynamic", json!({"files": files(prompt)}));
    let workbench = Place::workbench(config(PROMPT));
    let toolman = Place::toolman(&tools_toml(PROMPT, ""));
    for (place, file, hostile) in [
        (workbench, "workbench-config.json", config(HOSTILE_PROMPT).to_string()),
        (toolman, "tools.toml", tools_toml(HOSTILE_PROMPT, "")),
    ] {
        offer(&place.lab, &GOOD);
        assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
        let doctor = place.json(&["doctor"], 0);
        assert_eq!(doctor["servers"][0]["withheld"], json!([]), "{doctor}");
        place.lab.write(file, &place.lab.fill(&hostile));
        offer(&place.lab, &HOSTILE);
        let doctor = place.json(&["doctor"], 0);
        let withheld = json!(["write_file", "read_poison", "report", "list_poison", "ask"]);
        assert_eq!(doctor["servers"][0]["withheld"], withheld, "{doctor}");
        let doctor = place.run(&["doctor"]).stdout;
        let names = "withheld by the lock: write_file, read_poison, report, list_poison, ask\n";
        assert!(doctor.contains(names), "{doctor}");
    }
}

#[test]
fn servers_of_toolman_that_share_a_namespace_share_a_lock() {
    let tool =
        |name: &str, text: &str| format!("--tool '{{\"name\":\"{name}\",\"description\":\"{text}\"}}'");
    let first = server("n", &format!("{} {}", tool("a", "first"), tool("b", "b")), "");
    let second =
        server("n", &format!("{} {} --fail-while @dir/broken", tool("a", "second"), tool("c", "c")), "");
    let bare = server("", &tool("plain", "x"), "");
    let place = Place::toolman(&format!("active_toolsets = [\"*\"]\n{first}{second}{bare}"));
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let lock: Value = serde_json::from_str(&text_of(&place.lab, "tools.lock")).expect("JSON");
    let tools = &lock["namespaces"]["n"]["tools"];
    assert_eq!((&tools["a"]["description"], &tools["c"]["name"]), (&json!("first"), &json!("c")));
    assert_eq!(lock["namespaces"][""]["tools"]["plain"]["name"], "plain");
    place.lab.write("tools.lock", "{\"lockVersion\": 1, \"namespaces\": {}}");
    let told = place.json(&["lock", "--check"], 1);
    let row = json!({"namespace": "", "kind": "tool", "name": "plain", "change": "new", "characters": []});
    assert_eq!((&told["changes"][0], told["changes"].as_array().map(Vec::len)), (&row, Some(4)));
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    place.lab.write("broken", "");
    let told = place.json(&["lock", "--check"], 4);
    assert_eq!((&told["changes"], &told["failed"][0]["namespace"]), (&json!([]), &json!("n")));
    std::fs::remove_file(place.lab.dir.join("broken")).expect("it was written");
    for (item, code) in [("n", 0), ("n/a", 0), ("plain", 0), ("b", 0), ("x", 2)] {
        assert_eq!(place.run(&["lock", "--check", item]).code, Some(code), "{item}");
    }
    let mut gateway = Gateway::run_in(place.lab, &crate::harness::toolman_path(), |_| ());
    gateway.initialize(VERSION);
    let mut tools = gateway.tools();
    tools.sort();
    assert_eq!(tools, ["n_a", "n_b", "n_c", "plain", "toolman_activate"]);
}

#[test]
fn adding_servers_says_that_the_lock_needs_renewing() {
    let place = Place::workbench(dev("dynamic", json!({})));
    let needs = "workbench-config.lock needs renewing: `mcp-workbench lock`";
    let flat = |finished: Finished| finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!flat(place.run(&["add", "one", "--yes", "--", "one"])).contains(needs));
    place.lab.write("workbench-config.lock", "{\"lockVersion\": 1, \"toolboxes\": {}}");
    let said = flat(place.run(&["add", "two", "--yes", "--", "two"]));
    assert!(said.contains(needs), "{said}");
    place.lab.write("other.json", r#"{"mcpServers": {"three": {"command": "three"}}}"#);
    let said = flat(place.run(&["import", "other.json", "--yes"]));
    assert!(said.contains(needs), "{said}");
    let said = flat(place.run(&["import", "other.json", "--yes"]));
    assert!(!said.contains(needs), "nothing is new: {said}");
}

/// A person sees the difference and a warning of what nobody sees, and then decides.
#[cfg(target_os = "linux")]
#[test]
fn a_person_is_shown_what_differs_and_asked() {
    use crate::pty::{ALL, Terminal};
    let place = Place::workbench(dev("dynamic", json!({"files": files(PROMPT)})));
    offer(&place.lab, &GOOD);
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let first = text_of(&place.lab, "workbench-config.lock");
    let hidden = GOOD[0].replace("Read a file", "Read a\\u202e file");
    offer(&place.lab, &[&hidden, GOOD[1], GOOD[2], GOOD[3]]);
    for (keys, written) in [("n\n", false), ("y\n", true)] {
        let mut command = place.lab.command();
        command.arg("lock").env("TERM", "xterm").env("NO_COLOR", "1");
        let mut terminal = Terminal::start(command, ALL);
        terminal
            .wait_for("dev/files/read_file: texts changed\r\n    description: Read a{+\\u202e+} file\r\n");
        terminal.wait_for("has invisible characters: U+202E");
        terminal.wait_for("\nChange ~/workbench-config.lock? [y/N/d] ").press(keys);
        let ended = terminal.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(text_of(&place.lab, "workbench-config.lock") != first, written, "{ended:?}");
    }
    place.lab.wait_until_gone(crate::harness::DEADLINE);
}
