//! Configuration files: found, read, and everything wrong with them told in one run.

use serde_json::{Value, json};

use crate::harness::{Finished, Gateway, Lab, VERSION, dev, fake, gateway_path, toolman_path};

/// Runs the gateway over a file that is wrong and returns what it says; nothing may have started.
fn refused(text: &str) -> String {
    let lab = Lab::new();
    let path = lab.write("workbench-config.json", &lab.fill(text));
    let finished = lab.run(lab.command().arg("--config").arg(path));
    assert_eq!(finished.code, Some(2), "{text}\n{}", finished.stderr);
    assert_eq!(finished.stdout, "", "{text}");
    assert_eq!(lab.starts("starts"), 0, "nothing starts: {text}");
    finished.stderr
}

#[test]
fn the_files_that_we_hand_out_are_sound() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in
        ["docs/examples/workbench-config.json", "docs/examples/tools.toml", "workbench-config.test.json"]
    {
        let lab = Lab::new();
        let program = if file.ends_with(".toml") { toolman_path() } else { gateway_path() };
        let finished = lab.run(lab.program(&program).args(["check", "--config"]).arg(root.join(file)));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{file}: {finished:?}");
    }
}

fn server(entry: &str) -> String {
    format!(r#"{{"toolboxes":{{"dev":{{"mcpServers":{{"a":{entry}}}}}}}}}"#)
}

#[test]
fn everything_wrong_is_an_error_with_path_and_exit_2() {
    let cases: Vec<(String, Vec<&str>)> = vec![
        ("{}".into(), vec!["toolboxes"]),
        (r#"{"toolboxes":{"dev":{}}}"#.into(), vec!["toolboxes.dev", "mcpServers"]),
        (r#"{"toolboxes":{},"toolmode":"proxy"}"#.into(), vec!["toolmode", "toolMode"]),
        (r#"{"toolboxes":{},"toolMode":"prox"}"#.into(), vec!["toolMode", "proxy"]),
        (r#"{"toolboxes":{},"metaTools":"old"}"#.into(), vec!["metaTools", "classic"]),
        (
            r#"{"toolboxes":{"dev":{"mcpServers":{},"desc":""}}}"#.into(),
            vec!["toolboxes.dev.desc", "description"],
        ),
        (r#"{"toolboxes":{"a__b":{"mcpServers":{}}}}"#.into(), vec!["a__b", "__"]),
        (r#"{"toolboxes":{" ":{"mcpServers":{}}}}"#.into(), vec!["toolboxes"]),
        (
            r#"{"toolboxes":{"dev":{"mcpServers":{}},"dev":{"mcpServers":{}}}}"#.into(),
            vec!["dev", "uplicate"],
        ),
        (r#"{"toolboxes":{},"maxNameLength":9}"#.into(), vec!["maxNameLength", "10"]),
        (r#"{"toolboxes":{},"maxNameLength":20.5}"#.into(), vec!["maxNameLength"]),
        (r#"{"toolboxes":[]}"#.into(), vec!["toolboxes"]),
        ("[]".into(), vec!["object"]),
        (server("{}"), vec!["toolboxes.dev.mcpServers.a", "command", "url"]),
        (
            server(r#"{"command":"x","url":"http://127.0.0.1/mcp"}"#),
            vec!["toolboxes.dev.mcpServers.a", "command", "url"],
        ),
        (server(r#"{"command":""}"#), vec!["toolboxes.dev.mcpServers.a.command"]),
        (server(r#"{"command":5}"#), vec!["toolboxes.dev.mcpServers.a.command"]),
        (server(r#"{"command":"x","args":"y"}"#), vec!["toolboxes.dev.mcpServers.a.args"]),
        (server(r#"{"command":"x","args":["y",5]}"#), vec!["toolboxes.dev.mcpServers.a.args[1]"]),
        (
            server(r#"{"command":"x","transport":"stdio","type":"http"}"#),
            vec!["toolboxes.dev.mcpServers.a", "transport", "type"],
        ),
        (
            server(r#"{"command":"x","transport":"carrier-pigeon"}"#),
            vec!["toolboxes.dev.mcpServers.a.transport"],
        ),
        (server(r#"{"command":"x","connectTimeout":0}"#), vec!["toolboxes.dev.mcpServers.a.connectTimeout"]),
        (server(r#"{"command":"x","callTimeout":-1}"#), vec!["toolboxes.dev.mcpServers.a.callTimeout"]),
        (server(r#"{"command":"x","toolFilters":"*"}"#), vec!["toolboxes.dev.mcpServers.a.toolFilters"]),
        (server(r#"{"disabled":true}"#), vec!["toolboxes.dev.mcpServers.a", "command"]),
        (
            server(r#"{"command":"x","env":{"API_KEY":"${WB_TEST_NOT_SET}"}}"#),
            vec!["toolboxes.dev.mcpServers.a.env.API_KEY", "WB_TEST_NOT_SET"],
        ),
        (server(r#"{"command":"x","args":["${OPEN"]}"#), vec!["toolboxes.dev.mcpServers.a.args[0]"]),
        (
            r#"{"toolboxes":{"dev":{"mcpServers":{"My Server":{}}}}}"#.into(),
            vec![r#"toolboxes.dev.mcpServers["My Server"]"#],
        ),
        (
            server(r#"{"command":"x","env":{"A":"1"},"environment":{"A":"2"}}"#),
            vec!["toolboxes.dev.mcpServers.a", "environment"],
        ),
    ];
    for (text, parts) in cases {
        let said = refused(&text);
        for part in parts.iter().chain(&["workbench-config.json"]) {
            assert!(said.contains(part), "{part:?} is missing for {text}:\n{said}");
        }
    }
}

#[test]
fn all_problems_are_listed_in_one_run_with_line_and_column() {
    let text = format!(
        "{{\n  \"toolmode\": \"proxy\",\n  \"toolboxes\": {{\n    \"dev\": {{\"mcpServers\": {{\n      \"a\": {},\n      \"b\": {{\"command\": 5}},\n      \"c\": {{\"command\": \"x\", \"env\": {{\"K\": \"${{WB_TEST_NOT_SET}}\"}}}}\n    }}}}\n  }}\n}}\n",
        fake("--count @dir/starts")
    );
    let said = refused(&text);
    for part in [
        "workbench-config.json:2:3",
        "workbench-config.json:6:24",
        "workbench-config.json:7",
        "toolmode",
        "toolboxes.dev.mcpServers.b.command",
        "toolboxes.dev.mcpServers.c.env.K",
    ] {
        assert!(said.contains(part), "{part:?} is missing:\n{said}");
    }
}

#[test]
fn broken_syntax_is_the_one_problem() {
    let said = refused("{\n  \"toolmode\": 1,\n  \"toolboxes\": {\n");
    assert!(said.contains("workbench-config.json:"), "{said}");
    assert!(!said.contains("toolMode"), "{said}");
}

#[test]
fn comments_trailing_commas_and_a_byte_order_mark_are_accepted() {
    let config = "\u{feff}// comment\n{ /* x */ \"$schema\": \"x\", \"toolMode\": \"proxy\", \"toolboxes\": {\"dev\": {\"mcpServers\": {},},}, }\n";
    let mut gateway = Gateway::start(config);
    assert_eq!(gateway.tools(), ["open_toolbox", "use_tool"]);
}

#[test]
fn unknown_keys_of_a_server_are_warnings() {
    let mut entry = fake("--with echo");
    entry["autoApprove"] = json!(["x"]);
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
    gateway.stderr_with("autoApprove");
    assert_eq!(gateway.open("dev")["servers_connected"], 1);
}

#[test]
fn disabled_entries_are_left_out() {
    let mut entry = fake("--with echo --count @dir/starts");
    entry["disabled"] = json!(true);
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry, "b": fake("--with echo")})));
    assert_eq!(gateway.open("dev")["servers_connected"], 1);
    assert_eq!(gateway.lab.starts("starts"), 0);
}

#[test]
fn none_found_shows_a_minimal_file_and_names_init() {
    let lab = Lab::new();
    let finished = lab.run(&mut lab.command());
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert_eq!(finished.stdout, "");
    for part in ["toolboxes", "mcpServers", "command", "init", "workbench-config.json"] {
        assert!(finished.stderr.contains(part), "{part} is missing: {}", finished.stderr);
    }
}

#[cfg(unix)]
#[test]
fn none_found_on_a_terminal_is_a_short_help_and_not_a_hang() {
    let lab = Lab::new();
    let (_ours, terminal) = terminal();
    let mut command = lab.command();
    let mut peer = crate::harness::Peer::spawn_on(&mut command, terminal.into());
    assert_eq!(peer.wait().code(), Some(2));
    peer.stderr_with("init");
    peer.stderr_with("mcpServers");
}

/// Both ends of a new terminal.
#[cfg(unix)]
#[allow(unsafe_code, reason = "std cannot open terminals")]
pub(crate) fn terminal() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::ptr::null_mut;
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: two places for descriptors, and no name, settings or size.
    let opened = unsafe { libc::openpty(&mut ours, &mut theirs, null_mut(), null_mut(), null_mut()) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both were just opened and belong to nobody else.
    unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

#[test]
fn a_file_named_and_not_there_is_exit_2() {
    let lab = Lab::new();
    lab.write("workbench-config.json", r#"{"toolboxes":{}}"#);
    for finished in [
        lab.run(lab.command().args(["--config", "none.json"])),
        lab.run(lab.command().env("WORKBENCH_CONFIG", "none.json")),
    ] {
        assert_eq!(finished.code, Some(2), "{finished:?}");
        assert!(finished.stderr.contains("none.json"), "{finished:?}");
    }
}

#[test]
fn the_file_is_looked_for_in_this_order() {
    let file = |name: &str| format!(r#"{{"toolboxes":{{"{name}":{{"mcpServers":{{}}}}}}}}"#);
    let found = |prepare: &dyn Fn(&Lab, &mut std::process::Command)| {
        let lab = Lab::new();
        let mut command = lab.command();
        let user = lab.dir.join("xdg-config/mcp-workbench");
        std::fs::create_dir_all(&user).expect("it is ours");
        std::fs::write(user.join("workbench-config.json"), file("user")).expect("it is ours");
        prepare(&lab, &mut command);
        let mut peer = crate::harness::Peer::spawn(&mut command);
        let instructions = peer.initialize(VERSION).result()["instructions"].to_string();
        peer.close();
        assert_eq!(peer.wait().code(), Some(0));
        instructions
    };
    let here =
        |lab: &Lab, _: &mut std::process::Command| drop(lab.write("workbench-config.json", &file("here")));
    let variable = |lab: &Lab, command: &mut std::process::Command| {
        here(lab, command);
        command.env("WORKBENCH_CONFIG", lab.write("v.json", &file("variable")));
    };
    let option = |lab: &Lab, command: &mut std::process::Command| {
        variable(lab, command);
        command.arg("--config").arg(lab.write("o.json", &file("option")));
    };
    assert!(found(&|_, _| ()).contains("user"));
    assert!(found(&here).contains("here"));
    assert!(found(&variable).contains("variable"));
    assert!(found(&option).contains("option"));
}

fn check(text: &str, arguments: &[&str]) -> Finished {
    let lab = Lab::new();
    let path = lab.write("workbench-config.json", &lab.fill(text));
    lab.run(lab.command().arg("check").args(arguments).arg("--config").arg(path))
}

#[test]
fn check_reports_without_starting_anything() {
    let fine = dev("proxy", json!({"a": fake("--count @dir/starts")})).to_string();
    assert_eq!(check(&fine, &[]).code, Some(0));
    let finished = check("{}", &[]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("toolboxes"), "{finished:?}");
}

#[test]
fn check_json_prints_one_value() {
    let finished = check(r#"{"toolboxes":{"dev":{"mcpServers":{}}}}"#, &["--json"]);
    let value: Value = serde_json::from_str(&finished.stdout).expect("one JSON value");
    assert_eq!((finished.code, &value["ok"], &value["problems"]), (Some(0), &json!(true), &json!([])));
    assert!(value["warnings"].is_array());

    let finished = check("{\n  \"toolmode\": 1,\n  \"toolboxes\": {}\n}", &["--json"]);
    let value: Value = serde_json::from_str(&finished.stdout).expect("one JSON value");
    assert_eq!((finished.code, &value["ok"]), (Some(2), &json!(false)));
    let problem = &value["problems"][0];
    assert!(problem["file"].as_str().is_some_and(|file| file.ends_with("workbench-config.json")), "{value}");
    assert_eq!(
        (&problem["line"], &problem["column"], &problem["path"]),
        (&json!(2), &json!(3), &json!("toolmode"))
    );
    assert!(problem["message"].is_string() && problem["hint"].is_string(), "{value}");
}
