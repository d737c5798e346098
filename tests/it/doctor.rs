//! `doctor`: every server started once.

use serde_json::{Value, json};

use crate::harness::{Lab, dev, fake, fake_with, server, toolman_path};
use crate::shell::Place;

#[test]
fn says_who_is_well_and_who_is_not() {
    let lab = Lab::new();
    let servers = json!({
        "well": fake("--tools 3 --count @dir/well"),
        "My Server": fake("--with echo"),
        "dies": fake_with("--exit 3", &["--stderr", "the key is missing"]),
        "chatty": {"command": "@fake", "args": ["--stdout", "Welcome!", "--hang", "initialize", "--hang",
                   "server/discover", "--marker", "@marker"], "connectTimeout": 5},
        "nowhere": {"command": "there-is-no-such-program"},
        "refused": {"url": "http://127.0.0.1:1/mcp"},
        "hangs": {"command": "@fake", "args": ["--hang", "initialize", "--hang", "server/discover",
                  "--marker", "@marker"], "connectTimeout": 1},
    });
    lab.write("workbench-config.json", &lab.fill(&dev("dynamic", servers).to_string()));
    let json = lab.run(lab.command().args(["doctor", "--json"]));
    assert_eq!(json.code, Some(4), "{json:?}");
    let told: Value = serde_json::from_str(&json.stdout).expect("one JSON value");
    assert_eq!(told["ok"], false);
    let of = |name: &str| {
        let servers = told["servers"].as_array().expect("a list");
        servers.iter().find(|server| server["server"] == name).unwrap_or_else(|| panic!("no {name}: {told}"))
    };
    let well = of("well");
    assert_eq!((&well["toolbox"], &well["ok"], &well["tools"]), (&json!("dev"), &json!(true), &json!(3)));
    assert!(well["ms"].is_u64() && well["problem"].is_null() && well["stderr"] == json!([]), "{well}");
    assert!(well["program"].as_str().is_some_and(|file| file.contains("fake-upstream")), "{well}");
    assert_eq!((&of("nowhere")["program"], &of("refused")["program"]), (&Value::Null, &Value::Null));
    assert!(told["version"].as_str().is_some_and(|version| version.contains(" (")), "{told}");
    assert!(told["config"].as_str().is_some_and(|file| file.ends_with("workbench-config.json")), "{told}");
    for (name, problem, hint, stderr) in [
        ("dies", "exited with status 3", "stderr", "the key is missing"),
        ("chatty", "not an MCP message", "it wrote `Welcome!`, but stdout is for the protocol", ""),
        ("nowhere", "'there-is-no-such-program' not found", "install it", ""),
        ("refused", "refused", "start the server", ""),
        ("hangs", "connection timeout", "startTimeout", ""),
    ] {
        let found = of(name);
        assert_eq!((&found["ok"], &found["tools"]), (&json!(false), &Value::Null), "{found}");
        let holds = |key: &str, part: &str| found[key].to_string().contains(part);
        assert!(holds("problem", problem) && holds("hint", hint) && holds("stderr", stderr), "{found}");
    }
    assert_eq!(lab.starts("well"), 1, "once");
    assert!(lab.processes().is_empty(), "{:?}", lab.processes());

    let text = lab.run(lab.command().arg("doctor"));
    assert_eq!((text.code, text.stderr.as_str()), (Some(4), ""), "{text:?}");
    let mut lines = text.stdout.lines();
    assert!(lines.next().is_some_and(|line| line.starts_with("mcp-workbench ")), "{}", text.stdout);
    assert!(lines.next().is_some_and(|line| line.ends_with("workbench-config.json")), "{}", text.stdout);
    assert!(lines.next().is_some_and(|line| line.starts_with("PATH ")), "{}", text.stdout);
    for part in [
        "ok      dev/well",
        "3 tools, ",
        "failed  dev/dies",
        "| the key is missing",
        "dev__My Server__echo is shown as dev__My_Server__echo_",
        "5 of 7 servers cannot be used",
    ] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
    assert!(lab.processes().is_empty(), "{:?}", lab.processes());
}

#[test]
fn toolman_has_one_too_and_all_may_be_well() {
    let lab = Lab::new();
    let config = server("a", "--with echo,report", "") + &server("", "--tools 1", "");
    lab.write("tools.toml", &lab.fill(&config));
    let json = lab.run(lab.program(&toolman_path()).args(["doctor", "--json"]));
    assert_eq!(json.code, Some(0), "{json:?}");
    let told: Value = serde_json::from_str(&json.stdout).expect("one JSON value");
    assert_eq!(told["ok"], true);
    let seen: Vec<_> = told["servers"].as_array().expect("a list").iter().collect();
    assert_eq!((&seen[0]["namespace"], &seen[0]["tools"]), (&json!("a"), &json!(2)), "{told}");
    assert_eq!((&seen[1]["namespace"], &seen[1]["tools"]), (&json!(""), &json!(1)), "{told}");
    assert!(seen[0].get("toolbox").is_none(), "{told}");
    let text = lab.run(lab.program(&toolman_path()).arg("doctor"));
    assert_eq!(text.code, Some(0), "{text:?}");
    assert!(text.stdout.ends_with("all is well\n"), "{text:?}");
    assert!(lab.processes().is_empty(), "{:?}", lab.processes());
}

#[test]
fn it_always_asks_anew() {
    let place = Place::workbench(dev("dynamic", json!({"a": fake_with("--with echo --count @dir/a", &[])})));
    for (run, args) in [&["doctor"][..], &["doctor", "--fresh"]].into_iter().enumerate() {
        assert_eq!(place.run(args).code, Some(0), "{args:?}");
        assert_eq!(place.lab.starts("a"), run + 1);
    }
}

#[test]
fn a_file_that_is_wrong_starts_nothing() {
    let lab = Lab::new();
    let mut config = dev("dynamic", json!({"a": fake("--with echo --count @dir/a")}));
    config["toolboxes"]["dev"]["mcpServers"]["a"]["cwd"] = json!(5);
    lab.write("workbench-config.json", &lab.fill(&config.to_string()));
    let text = lab.run(lab.command().arg("doctor"));
    assert_eq!(text.code, Some(2), "{text:?}");
    assert!(text.stderr.contains("expected a string"), "{text:?}");
    let json = lab.run(lab.command().args(["doctor", "--json"]));
    let told: Value = serde_json::from_str(&json.stdout).expect("one JSON value");
    assert_eq!((json.code, &told["ok"]), (Some(2), &json!(false)), "{json:?}");
    let missing = Lab::new();
    let bare = missing.run(missing.command().arg("doctor"));
    assert_eq!(bare.code, Some(2));
    assert!(bare.stdout.starts_with("mcp-workbench ") && bare.stdout.contains("\nPATH "), "{bare:?}");
    assert_eq!(lab.starts("a"), 0);
}
