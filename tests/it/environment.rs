//! What upstreams get to see: variables, arguments, working directory; and what nobody gets to see.

use serde_json::{Value, json};

use crate::harness::{Gateway, Lab, VERSION, dev, fake, fake_with};

/// What every upstream may have without being declared.
const ALLOWED: [&str; 9] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TZ", "TMPDIR"];

const SECRET: &str = "correct-horse-battery";

fn report(entry: Value) -> Value {
    let mut gateway = Gateway::spawn_with(Lab::new(), dev("proxy", json!({"a": entry})), |command| {
        command
            .env("WB_SECRET", SECRET)
            .env("WB_OTHER", "other")
            .env("WB_EMPTY", "")
            .env("LANG", "C.UTF-8")
            .env("LC_TIME", "C")
            .env("TZ", "UTC");
    });
    gateway.initialize(VERSION);
    gateway.open("dev");
    gateway.use_tool("a", "report", "{}").json()
}

#[test]
fn upstreams_see_the_allowlist_and_what_the_file_declares() {
    let mut entry = fake("--with report");
    entry["env"] = json!({
        "DECLARED": "text", "NUMBER": 8080, "SWITCH": true, "LEFT_OUT": null,
        "EXPANDED": "${WB_SECRET}", "DEFAULT": "${WB_UNSET:-fallback}", "EMPTY": "${WB_EMPTY:-no}", "KEPT": "$HOME ${lower}"
    });
    let report = report(entry);
    let env = report["env"].as_object().expect("variables");
    let declared = ["DECLARED", "NUMBER", "SWITCH", "EXPANDED", "DEFAULT", "EMPTY", "KEPT"];
    for name in env.keys() {
        let allowed =
            ALLOWED.contains(&name.as_str()) || name.starts_with("LC_") || declared.contains(&name.as_str());
        assert!(allowed, "{name} is nobody's business");
    }
    let expected = [
        ("DECLARED", "text"),
        ("NUMBER", "8080"),
        ("SWITCH", "true"),
        ("EXPANDED", SECRET),
        ("DEFAULT", "fallback"),
        ("EMPTY", ""),
        ("KEPT", "$HOME ${lower}"),
        ("LANG", "C.UTF-8"),
        ("LC_TIME", "C"),
        ("TZ", "UTC"),
    ];
    for (name, value) in expected {
        assert_eq!(env[name], value, "{name}");
    }
    assert!(env.contains_key("PATH") && env.contains_key("HOME"));
}

#[test]
fn inherit_env_lists_more_names() {
    let mut entry = fake("--with report");
    entry["inheritEnv"] = json!(["WB_OTHER", "WB_NOT_SET"]);
    let env = report(entry.clone())["env"].clone();
    assert_eq!((&env["WB_OTHER"], env.get("WB_SECRET")), (&json!("other"), None));
    entry["inheritEnv"] = json!(["*"]);
    let env = report(entry)["env"].clone();
    assert_eq!((&env["WB_OTHER"], &env["WB_SECRET"]), (&json!("other"), &json!(SECRET)));
}

#[test]
fn arguments_arrive_as_written_without_a_shell() {
    let odd = ["--instructions", "a b  'c' \"d\" $HOME `x` * ; \\ é", "--stderr", ""];
    let argv = report(fake_with("--with report", &odd))["argv"].clone();
    let argv: Vec<&str> = argv.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(argv[3..7], odd);
}

#[test]
fn cwd_is_relative_to_the_file_and_ours_by_default() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.dir.join("elsewhere")).expect("it is ours");
    std::fs::create_dir_all(lab.dir.join("sub")).expect("it is ours");
    let mut with_cwd = fake("--with report");
    with_cwd["cwd"] = json!("sub");
    let servers = json!({"a": fake("--with report"), "b": with_cwd});
    let elsewhere = lab.dir.join("elsewhere");
    let mut gateway = Gateway::spawn_with(lab, dev("proxy", servers), |command| {
        command.current_dir(elsewhere);
    });
    gateway.initialize(VERSION);
    gateway.open("dev");
    for (server, dir) in [("a", "elsewhere"), ("b", "sub")] {
        let cwd = gateway.use_tool(server, "report", "{}").json()["cwd"].clone();
        assert_eq!(cwd, json!(gateway.lab.dir.join(dir)), "{server}");
    }
}

#[test]
fn secrets_stand_in_no_error_and_no_log() {
    let mut entry =
        fake_with("--exit 1", &["--stderr", "cannot log in with ${WB_SECRET} and declared-secret"]);
    entry["env"] = json!({"TOKEN": "declared-secret"});
    let mut gateway = Gateway::spawn_with(Lab::new(), dev("proxy", json!({"a": entry})), |command| {
        command.env("WB_SECRET", SECRET).env("RUST_LOG", "trace");
    });
    gateway.initialize(VERSION);
    let text = gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).failure();
    assert!(text.contains("cannot log in with ${WB_SECRET} and ${TOKEN}"), "{text}");
    gateway.close();
    gateway.wait();
    let log = gateway.stderr();
    assert!(!log.is_empty(), "there is a log to search");
    for secret in [SECRET, "declared-secret"] {
        assert!(!text.contains(secret) && !log.contains(secret), "{text}\n{log}");
    }
}

#[test]
fn what_a_running_server_says_is_quoted_without_secrets() {
    let entry = fake_with("--with crash", &["--stdout", "noise with ${WB_SECRET}"]);
    let mut gateway = Gateway::spawn_with(Lab::new(), dev("proxy", json!({"a": entry})), |command| {
        command.env("WB_SECRET", SECRET);
    });
    gateway.initialize(VERSION);
    gateway.open("dev");
    let stderr = format!("last words with {SECRET}");
    let text = gateway.use_tool("a", "crash", json!({"stderr": [stderr]})).failure();
    assert!(text.contains("last words with ${WB_SECRET}"), "{text}");
    gateway.close();
    gateway.wait();
    let log = gateway.stderr();
    assert!(log.contains("noise with ${WB_SECRET}"), "{log}");
    assert!(!text.contains(SECRET) && !log.contains(SECRET), "{text}\n{log}");
}

#[test]
fn reasons_of_failed_servers_hold_no_secrets() {
    const LISTED: &str = "listed-in-the-file";
    let refusal = format!(r#"initialize={{"code":-32000,"message":"no entry with {SECRET}"}}"#);
    let mut refusing = fake_with("--era legacy", &["--error", &refusal]);
    refusing["env"] = json!({"TOKEN": "${WB_SECRET}"});
    let mut inheriting = fake_with("--exit 1", &["--stderr", &format!("it has {LISTED}")]);
    inheriting["inheritEnv"] = json!(["WB_LISTED"]);
    let servers = json!({
        "bare": {"command": "${WB_SECRET}"},
        "path": {"command": "/nowhere/${WB_SECRET}"},
        "cwd": {"command": "true", "cwd": "/nowhere/${WB_SECRET}"},
        "host": {"url": "http://${WB_SECRET}.invalid/mcp"},
        "refusing": refusing,
        "inheriting": inheriting,
    });
    let mut gateway = Gateway::spawn_with(Lab::new(), dev("proxy", servers), |command| {
        command.env("WB_SECRET", SECRET).env("WB_LISTED", LISTED).env("RUST_LOG", "info");
    });
    gateway.initialize(VERSION);
    let text = gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).failure();
    for expected in [
        "command '${WB_SECRET}' not found",
        "/nowhere/${WB_SECRET}",
        "working directory '/nowhere/${WB_SECRET}' does not exist",
        "${WB_SECRET}.invalid",
        "no entry with ${",
        "it has ${WB_LISTED}",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    gateway.close();
    gateway.wait();
    let log = gateway.stderr();
    assert!(log.contains("'${WB_SECRET}' is not in"), "{log}");
    for secret in [SECRET, LISTED] {
        assert!(!text.contains(secret) && !log.contains(secret), "{text}\n{log}");
    }
}
