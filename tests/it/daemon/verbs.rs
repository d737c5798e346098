//! What people see of the daemon, and how they switch it on.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{Den, dev, leave, open, sessions};
use crate::harness::{fake, gateway_path, server, toolman_path};
use crate::pty::{ALL, Terminal};

#[test]
fn what_runs_can_be_seen() {
    let none = Den::new(&dev(json!({})));
    assert_eq!(none.status(), json!({"daemon": null, "others": [], "sessions": [], "servers": []}));
    let said = none.run(&["status"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "No daemon runs.\n"));
    let said = none.run(&["stop"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "No daemon runs.\n"));

    let den = Den::new(&dev(
        json!({"a": fake("--with echo,slow,release,started"), "b": fake("--exit 1"), "c": fake("--tools 1 --stubborn 1")}),
    ));
    let mut silent = den.spawn();
    let mut peer = den.session();
    open(&mut peer, "dev");
    peer.call("dev__a__echo", "{}").text();
    let slow = peer.post_call("dev__a__slow", r#"{"key":"k"}"#);
    peer.call("dev__a__started", r#"{"key":"k"}"#).text();
    let status = den.until("both sessions", |now| sessions(now) == 2);
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&status), ["daemon", "others", "servers", "sessions"]);
    assert_eq!(keys(&status["daemon"]), ["pid", "rss", "uptime", "version"]);
    assert!(status["daemon"]["rss"].as_u64().is_some_and(|rss| rss > 1_000_000), "{status:#}");
    let of = |pid: u32| {
        let sessions = status["sessions"].as_array().expect("a list");
        sessions
            .iter()
            .find(|session| session["pid"] == pid)
            .unwrap_or_else(|| panic!("no {pid}: {status:#}"))
    };
    assert_eq!(of(silent.pid())["client"], Value::Null);
    let own = of(peer.pid());
    assert_eq!(keys(own), ["calls", "client", "directory", "file", "pid", "since"]);
    assert_eq!((&own["client"], &own["calls"]), (&json!("test-client"), &json!(3)));
    assert_eq!(own["directory"], den.lab.dir.to_string_lossy().into_owned());
    assert!(own["file"].as_str().is_some_and(|file| file.ends_with("/workbench-config.json")));
    let since = own["since"].as_str().expect("a text");
    assert!(since.len() == 20 && since.ends_with('Z') && since.as_bytes()[10] == b'T', "{since}");
    let servers = status["servers"].as_array().expect("a list");
    let states: Vec<_> =
        servers.iter().map(|server| (server["server"].clone(), server["state"].clone())).collect();
    assert_eq!(
        states,
        [(json!("a"), json!("running")), (json!("b"), json!("failed")), (json!("c"), json!("running"))]
    );
    assert_eq!(keys(&servers[0]), ["calls", "idle", "pid", "rss", "server", "sessions", "state", "toolbox"]);
    assert_eq!(
        (&servers[0]["calls"], &servers[0]["sessions"], &servers[0]["idle"]),
        (&json!(3), &json!(1), &json!(0))
    );
    assert_eq!((&servers[1]["pid"], &servers[1]["rss"]), (&Value::Null, &json!(0)));
    // The tree of the last is a server, and a descendant with a child.
    assert!(servers[2]["rss"].as_u64() > servers[0]["rss"].as_u64(), "{status:#}");
    let text = den.run(&["status"]).stdout;
    assert!(text.contains("test-client") && text.contains("dev/a") && text.contains("SERVER"), "{text}");
    peer.call("dev__a__release", r#"{"key":"k"}"#);
    assert_eq!(peer.answer(&slow).text(), "slow");
    silent.close();
    silent.wait();
    leave(peer);
}

/// The second server is the clock: it was used after the first.
#[test]
fn idle_grows_while_nobody_uses_a_server_and_is_nought_while_somebody_does() {
    let den = Den::new(&dev(json!({"a": fake("--with slow,release,started"), "b": fake("--with echo")})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    let slow = peer.post_call("dev__a__slow", r#"{"key":"k"}"#);
    peer.call("dev__a__started", r#"{"key":"k"}"#).text();
    peer.call("dev__b__echo", "{}").text();
    let idle = |now: &Value, at: usize| now["servers"][at]["idle"].as_u64().expect("seconds");
    let now = den.until("idle", |now| idle(now, 1) >= 2);
    assert_eq!(idle(&now, 0), 0, "a call is in flight: {now:#}");
    assert!(now["daemon"]["uptime"].as_u64() >= Some(2), "it runs for longer than that: {now:#}");
    assert_eq!(now["daemon"]["version"], env!("CARGO_PKG_VERSION"));
    peer.call("dev__a__release", r#"{"key":"k"}"#).text();
    peer.answer(&slow).text();
    den.until("idle as well", |now| (1..idle(now, 1)).contains(&idle(now, 0)));
    peer.call("dev__b__echo", "{}").text();
    let now = den.status();
    assert!(idle(&now, 1) < idle(&now, 0), "it was used just now: {now:#}");
    leave(peer);
}

#[test]
fn toolman_shows_what_runs_and_ends_it() {
    let den = Den::toolman(&server("a", "--tools 1", ""));
    let toolman = |arguments: &[&str]| den.lab.run(den.program(&toolman_path()).args(arguments));
    let mut peer = den.toolman_session();
    assert_eq!(peer.tools(), ["toolman_activate", "a_tool-1"]);
    let told = toolman(&["status", "--json"]);
    let status: Value = serde_json::from_str(&told.stdout).expect("one JSON value");
    let server = &status["servers"][0];
    let keys: Vec<_> = server.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["calls", "idle", "namespace", "pid", "rss", "sessions", "state"], "{status:#}");
    assert_eq!((&server["namespace"], &server["state"]), (&json!("a"), &json!("running")));
    assert_eq!(status["sessions"][0]["pid"], peer.pid(), "{status:#}");
    assert!(status["sessions"][0]["file"].as_str().is_some_and(|file| file.ends_with("/tools.toml")));
    let told = toolman(&["status"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let rows: Vec<Vec<_>> = told.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [["CLIENT", "PID"], ["SERVER", "STATE"], ["a", "running"]] {
        assert!(rows.iter().any(|cells| cells.starts_with(&row)), "{row:?}: {}", told.stdout);
    }
    assert!(rows.iter().any(|cells| cells.starts_with(&["test-client", &peer.pid().to_string()])));
    assert!(told.stdout.starts_with(&format!("Daemon {}: process ", env!("CARGO_PKG_VERSION"))));
    let stopped = toolman(&["stop"]);
    assert_eq!((stopped.code, &*stopped.stdout), (Some(0), "The daemon and its servers have ended.\n"));
    assert_eq!(den.servers_of(), 0);
    for verb in ["status", "stop"] {
        let told = toolman(&[verb]);
        assert_eq!((told.code, &*told.stdout), (Some(0), "No daemon runs.\n"), "{verb}");
    }
    leave(peer);
}

#[test]
fn an_invalid_file_starts_no_daemon_and_other_verbs_ignore_the_key() {
    let den = Den::new(&json!({"daemon": true, "toolboxes": {"dev": {}}}));
    let refused = den.run(&[]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(!den.directory().exists());
    den.lab.write("tools.toml", "daemon = true\n[[servers]]\nnamespace = \"a\"\n");
    let refused = den.lab.run(&mut den.program(&toolman_path()));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(!den.directory().exists());
    den.configure(&dev(json!({"a": fake("--tools 1")})));
    let listed = den.run(&["list", "tools", "--json"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(!den.directory().exists());
    let served = den.lab.run(den.command().args(["serve"]));
    assert_eq!(served.code, Some(0), "`serve` without --http is the stdio server: {served:?}");
    assert!(den.directory().exists());
    for (key, problem) in [("daemon", json!("yes")), ("linger", json!(-1)), ("daemonLinger", json!("1"))] {
        let mut config = dev(json!({}));
        config[key] = problem;
        den.configure(&config);
        let checked = den.run(&["check"]);
        assert_eq!(checked.code, Some(2), "{key}: {checked:?}");
        assert!(checked.stderr.contains(key), "{checked:?}");
    }
    den.configure(&dev(json!({})));
}

#[test]
fn connect_writes_the_key_into_our_file() {
    let before = "{\n  // mine\n  \"toolboxes\": {}\n}\n";
    let after = "{\n  // mine\n  \"toolboxes\": {},\n  \"daemon\": true\n}\n";
    connects(&gateway_path(), "mcp-workbench/workbench-config.json", before, after);
    let servers = "[[servers]] # mine\nnamespace = \"n\"\ncommand = \"x\"\n";
    let before = format!("search = true\n\n{servers}");
    let after = format!("search = true\ndaemon = true\n\n{servers}");
    connects(&toolman_path(), "toolman/tools.toml", &before, &after);
    // The key stands before the first table.
    connects(&toolman_path(), "toolman/tools.toml", servers, &format!("daemon = true\n{servers}"));
}

/// `connect --daemon` shows and writes a change of our file, together with that of the client's.
#[track_caller]
fn connects(program: &Path, name: &str, before: &str, after: &str) {
    let den = Den::new(&json!({"toolboxes": {}}));
    let file = den.lab.dir.join("xdg-config").join(name);
    fs::create_dir_all(file.parent().expect("a directory")).expect("ours");
    fs::write(&file, before).expect("ours");
    let now = || fs::read_to_string(&file).expect("ours");
    let connect =
        |more: &[&str]| den.lab.run(den.program(program).args(["connect", "gemini", "--daemon"]).args(more));
    let shown = connect(&["--dry-run"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let added = after.lines().find(|line| line.contains("daemon")).expect("it is there");
    assert!(shown.stdout.contains(&format!("+{added}\n")), "{shown:?}");
    assert!(shown.stdout.contains("settings.json"), "the client's file is shown as well: {shown:?}");
    assert_eq!(now(), before);
    let written = connect(&["--yes", "--json"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let told: Value = serde_json::from_str(&written.stdout).expect("one JSON value");
    assert_eq!((&told["written"], &told["config"]["written"]), (&json!(true), &json!(true)), "{told}");
    assert_eq!(now(), after);
    let again = connect(&["--yes", "--json"]);
    let told: Value = serde_json::from_str(&again.stdout).expect("one JSON value");
    assert_eq!((&told["changed"], &told["config"]["changed"]), (&json!(false), &json!(false)), "{told}");
    // Without a terminal and without --yes nothing is written.
    fs::write(&file, before).expect("ours");
    assert_eq!(connect(&[]).code, Some(2));
    assert_eq!(now(), before);
}

#[test]
fn whoever_does_not_want_the_client_connected_is_not_asked_for_the_key() {
    let den = Den::new(&json!({"toolboxes": {}}));
    let own = den.lab.dir.join("xdg-config/mcp-workbench/workbench-config.json");
    fs::create_dir_all(own.parent().expect("a directory")).expect("ours");
    fs::write(&own, "{\"toolboxes\": {}}").expect("ours");
    let clients = den.lab.dir.join(".gemini/settings.json");
    for (keys, connected, shared) in
        [(&["n"][..], false, false), (&["y", "n"], true, false), (&["y"], true, true)]
    {
        let mut command = den.command();
        command.args(["connect", "gemini", "--daemon"]);
        let mut terminal = Terminal::start(command, ALL);
        for key in keys {
            terminal.wait_for("[y/N/d] ").press(&format!("{key}\n"));
        }
        let ended = terminal.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let has_key = fs::read_to_string(&own).expect("ours").contains("daemon");
        assert_eq!((clients.exists(), has_key), (connected, shared), "{keys:?}: {ended:?}");
    }
}

#[test]
fn doctor_names_servers_that_keep_a_state_for_one_client() {
    let entry = json!({"command": "@fake", "args": ["--tools", "1", "--marker", "@marker", "--instructions", "@playwright/mcp"]});
    let mut own = entry.clone();
    own["isolation"] = json!("session");
    let den = Den::new(&dev(json!({"kept": entry, "own": own})));
    let told = den.run(&["doctor", "--json"]);
    let told: Value = serde_json::from_str(&told.stdout).expect("one JSON value");
    let hint = |name: &str| {
        let servers = told["servers"].as_array().expect("a list").iter();
        servers.clone().find(|server| server["server"] == name).expect("it is there")["hint"].to_string()
    };
    assert!(hint("kept").contains("isolation") && !hint("own").contains("isolation"), "{told}");
    // In the daemon such a server is each session's own.
    let (mut one, mut other) = (den.session(), den.session());
    open(&mut one, "dev");
    open(&mut other, "dev");
    assert_eq!(den.servers_of(), 4);
    leave(one);
    leave(other);
}

#[test]
fn servers_that_start_rest_or_run_can_be_told_apart() {
    let mut config = dev(json!({"a": fake("--tools 1 --wait-for @dir/go"), "b": fake("--tools 1")}));
    config["toolboxes"]["dev"]["mcpServers"]["b"]["idleTimeout"] = json!(0.1);
    let den = Den::new(&config);
    let mut peer = den.session();
    let opening = peer.post_call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    let state = |now: &Value, at: usize, state: &str| now["servers"][at]["state"] == state;
    let status = den.until("a start", |now| state(now, 0, "starting") && state(now, 1, "stopped"));
    assert!(status["servers"][1]["pid"].is_null() && status["servers"][1]["rss"] == 0, "{status:#}");
    den.lab.write("go", "");
    peer.answer(&opening).json();
    let status = den.until("both", |now| state(now, 0, "running") && state(now, 1, "stopped"));
    assert!(status["servers"][0]["pid"].is_u64(), "{status:#}");
    leave(peer);
}
