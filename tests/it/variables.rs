//! Variables that are not set, and files that set them.

use serde_json::{Value, json};

use crate::harness::{Gateway, Lab, TOOLS_CHANGED, VERSION, dev, fake, server, toolman_path};
use crate::shell::Place;

/// A toolbox with a server that needs `API_KEY` and one that needs nothing.
fn keyed(settings: &Value) -> Value {
    let mut api = fake("--with report --count @dir/api");
    api["env"] = json!({"KEY": "${API_KEY}"});
    let mut config = dev("dynamic", json!({"api": api, "other": fake("--with report --count @dir/other")}));
    for (key, value) in settings.as_object().expect("settings") {
        config[key] = value.clone();
    }
    config
}

const PROBLEM: &str = "the environment variable API_KEY is not set";

/// The value that the server got, by its own account.
fn key_of(gateway: &mut Gateway) -> Value {
    gateway.use_tool("api", "report", "{}").json()["env"]["KEY"].take()
}

/// Writes a file that nobody else may use, in one go.
fn write_secrets(lab: &Lab, text: &str) {
    let path = lab.write("beside", text);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    }
    std::fs::rename(path, lab.dir.join("secrets.env")).expect("the directory is ours");
}

#[test]
fn a_missing_variable_is_one_servers_problem() {
    let mut gateway = Gateway::spawn(keyed(&json!({"onMissingVariable": "skip"})));
    let hello = gateway.initialize(VERSION);
    let instructions = hello.result()["instructions"].to_string();
    assert!(instructions.contains("2 servers"), "{instructions}");
    let error = format!("Failed to connect to server 'api' in toolbox 'dev': {PROBLEM}");
    // However often it is tried.
    for _ in 0..4 {
        let opened = gateway.open("dev");
        assert_eq!((&opened["servers_connected"], &opened["_errors"]), (&json!(1), &json!([error])));
    }
    assert_eq!(gateway.tools(), ["open_toolbox", "dev__other__report"]);
    let failure = gateway.use_tool("api", "report", "{}").failure();
    assert!(failure.contains("api"), "{failure}");
    gateway.use_tool("other", "report", "{}").json();
}

#[test]
fn toolman_serves_the_rest() {
    let config = format!(
        "on_missing_variable = \"skip\"\nactive_toolsets = [\"*\"]\n{}{}",
        server("api", "--with report", "env = { KEY = \"${API_KEY}\" }"),
        server("other", "--with report", ""),
    );
    let mut gateway = Gateway::toolman(config);
    assert_eq!(gateway.tools(), ["toolman_activate", "other_report"]);
}

#[test]
fn check_warns_where_a_server_is_skipped_and_fails_where_not() {
    for (settings, status, list) in
        [(json!({"onMissingVariable": "skip"}), 0, "warnings"), (json!({}), 2, "problems")]
    {
        let place = Place::workbench(keyed(&settings));
        let told = place.json(&["check"], status);
        let [problem] = told[list].as_array().expect("a list").as_slice() else { panic!("{told}") };
        assert_eq!((&problem["message"], &told["ok"]), (&json!(PROBLEM), &json!(status == 0)));
        assert_eq!(problem["path"], "toolboxes.dev.mcpServers.api.env.KEY");
    }
}

#[test]
fn verbs_ask_the_others_whatever_the_file_says() {
    for settings in [json!({"onMissingVariable": "skip"}), json!({})] {
        let place = Place::workbench(keyed(&settings));
        let told = place.json(&["doctor"], 4);
        let [api, other] = told["servers"].as_array().expect("a list").as_slice() else { panic!("{told}") };
        assert_eq!((&api["ok"], &api["problem"]), (&json!(false), &json!(PROBLEM)), "{told}");
        assert!(api["hint"].as_str().is_some_and(|hint| hint.contains("envFile")), "{told}");
        assert_eq!((&other["ok"], &other["tools"]), (&json!(true), &json!(1)), "{told}");
        let told = place.json(&["list", "servers"], 0);
        assert_eq!(
            told,
            json!([
                {"toolbox": "dev", "server": "api", "transport": "stdio", "tools": null, "error": PROBLEM, "login": null},
                {"toolbox": "dev", "server": "other", "transport": "stdio", "tools": 1, "error": null, "login": null},
            ])
        );
        place.check(
            &["list", "tools"],
            0,
            "TOOL              DESCRIPTION\ndev/other/report  Does report\n",
            &format!("warning: dev/api: {PROBLEM}\n`mcp-workbench doctor` says more about it\n"),
        );
        for args in [&["tokens"][..], &["search", "report"], &["show", "report"], &["call", "report"]] {
            assert_eq!(place.run(args).code, Some(0), "{args:?}");
        }
        assert_eq!(place.run(&["call", "api/report"]).code, Some(4));
        assert_eq!(place.lab.starts("api"), 0);
    }
    let namespaced = server("api", "--with echo", "env = { KEY = \"${API_KEY}\" }");
    let place = Place::toolman(&format!("{namespaced}{}", server("b", "--with echo", "")));
    let told = place.json(&["doctor"], 4);
    assert_eq!(told["servers"][0]["problem"], PROBLEM);
    assert_eq!(told["servers"][1]["tools"], 1);
}

#[test]
fn a_file_has_what_the_environment_has_not() {
    let config = keyed(&json!({"envFile": "secrets.env"}));
    for (set, expected) in [(None, "from the file"), (Some("from outside"), "from outside")] {
        let lab = Lab::new();
        write_secrets(&lab, "API_KEY='from the file'\nKEY=x\nUNUSED=y\n");
        let mut gateway = Gateway::spawn_with(lab, &config, |command| {
            command.envs(set.map(|value| ("API_KEY", value)));
        });
        gateway.initialize(VERSION);
        gateway.open("dev");
        let seen = gateway.use_tool("api", "report", "{}").json();
        assert_eq!(seen["env"]["KEY"], expected);
        assert_eq!((&seen["env"]["UNUSED"], &seen["env"]["API_KEY"]), (&Value::Null, &Value::Null));
        assert_eq!(gateway.stderr(), "");
    }
}

#[test]
fn files_are_watched_like_the_configuration() {
    let lab = Lab::new();
    write_secrets(&lab, "OTHER=1\n");
    let config = keyed(&json!({"envFile": "secrets.env", "onMissingVariable": "skip"}));
    let mut gateway = Gateway::spawn_with(lab, config, |_| ());
    gateway.initialize(VERSION);
    assert_eq!(gateway.open("dev")["servers_connected"], 1);
    assert_eq!(gateway.count(TOOLS_CHANGED), 1);
    // A value that comes makes a skipped server startable.
    write_secrets(&gateway.lab, "API_KEY=first\n");
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["open_toolbox", "dev__api__report", "dev__other__report"]);
    assert_eq!(key_of(&mut gateway), "first");
    // One that changes restarts the servers that use it.
    write_secrets(&gateway.lab, "API_KEY=second\n");
    gateway.until("it has the new value", |gateway| key_of(gateway) == "second");
    // A file that is wrong leaves the old values in force.
    write_secrets(&gateway.lab, "API_KEY=third\nnonsense of API_KEY\n");
    let told = gateway.stderr_with("the old configuration stays in force");
    assert!(told.contains("line 2 is not `NAME=value`") && !told.contains("nonsense"), "{told}");
    assert_eq!(key_of(&mut gateway), "second");
    write_secrets(&gateway.lab, "API_KEY=fourth\n");
    gateway.until("it has the new value", |gateway| key_of(gateway) == "fourth");
    assert_eq!((gateway.lab.starts("api"), gateway.lab.starts("other")), (3, 1));
    // One that goes ends the server.
    write_secrets(&gateway.lab, "\n");
    gateway.until("it is gone", |gateway| gateway.tools() == ["open_toolbox", "dev__other__report"]);
}

#[cfg(unix)]
#[test]
fn others_may_not_change_a_file_of_secrets() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::workbench(keyed(&json!({"envFile": "secrets.env"})));
    for (mode, status, word) in [(0o600, 0, ""), (0o640, 0, "read"), (0o604, 0, "read"), (0o620, 2, "change")]
    {
        write_secrets(&place.lab, "API_KEY=x\n");
        let path = place.lab.dir.join("secrets.env");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        let finished = place.run(&["check"]);
        assert_eq!(finished.code, Some(status), "{mode:o}: {finished:?}");
        let told = format!("other users can {word} ~/secrets.env");
        let mended = "chmod 600 ~/secrets.env";
        let expected = !word.is_empty();
        assert_eq!(finished.stderr.contains(&told) && finished.stderr.contains(mended), expected, "{mode:o}");
    }
}

#[test]
fn toolman_reads_such_files_too() {
    let lab = Lab::new();
    write_secrets(&lab, "API_KEY=secret\n");
    let config = server("api", "--with report", "env = { KEY = \"${API_KEY}\" }");
    lab.write("tools.toml", &lab.fill(&format!("env_file = [\"none.env?\", \"secrets.env\"]\n{config}")));
    let told = lab.run(lab.program(&toolman_path()).args(["call", "report"]));
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(
        told.stdout.contains("\"KEY\":\"secret\"") || told.stdout.contains("\"KEY\": \"secret\""),
        "{told:?}"
    );
}
