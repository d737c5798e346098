//! Servers that failed: for a while the shell's verbs do not ask them again, and everybody else does.

use serde_json::{Value, json};

use crate::harness::{Gateway, dev, fake, server};
use crate::shell::Place;

const UNASKED: &str =
    "warning: could not be asked: dev/ill (the server exited with status 1); --fresh asks again\n";

/// A server that works, and one that fails as long as there is a file `broken`.
fn place() -> Place {
    let servers = json!({
        "well": fake("--with echo"),
        "ill": fake("--with crash,echo --fail-while @dir/broken --count @dir/ill"),
    });
    let place = Place::workbench(dev("proxy", servers));
    place.lab.write("broken", "");
    place
}

/// How often `ill` was started by a run, and what the run said.
fn asked(place: &Place, args: &[&str]) -> (usize, Option<i32>, String) {
    let before = place.lab.starts("ill");
    let finished = place.run(args);
    (place.lab.starts("ill") - before, finished.code, finished.stderr)
}

#[test]
fn a_failure_is_told_in_one_line_instead_of_asking_again() {
    let place = place();
    let (starts, status, told) = asked(&place, &["list"]);
    assert!(starts > 0 && status == Some(0), "{told}");
    assert!(told.starts_with("warning: dev/ill: the server exited with status 1\n"), "{told}");
    for args in [
        &["list"][..],
        &["list", "tools", "-q"],
        &["list", "servers", "--json"],
        &["search", "echo"],
        &["tokens"],
        &["show", "echo"],
    ] {
        assert_eq!(asked(&place, args), (0, Some(0), UNASKED.to_owned()), "{args:?}");
    }
    let servers = place.json(&["list", "servers"], 0);
    let error = servers[0]["error"].as_str().expect("a reason");
    assert!(error.starts_with("the server exited with status 1"), "{error}");
    // A name with a server in it concerns that server alone.
    assert_eq!(asked(&place, &["show", "well/echo"]), (0, Some(0), String::new()));
    let (starts, status, told) = asked(&place, &["show", "ill/crash"]);
    assert_eq!((starts, status), (0, Some(4)), "{told}");
    assert!(told.contains("--fresh asks again"), "{told}");
}

#[test]
fn who_asks_all_the_same() {
    let place = place();
    asked(&place, &["list"]);
    for (args, status) in [
        (&["list", "--fresh"][..], 0),
        (&["tokens", "--fresh"], 0),
        (&["doctor"], 4),
        (&["call", "ill/crash"], 4),
        (&["call", "crash"], 2),
    ] {
        let (starts, code, told) = asked(&place, args);
        assert!(starts > 0 && code == Some(status), "{args:?}: {starts} {code:?} {told}");
    }
    // The tool of another server needs nobody but that server.
    assert_eq!(asked(&place, &["call", "well/echo"]).0, 0);
    let config = std::fs::read_to_string(place.lab.dir.join("workbench-config.json")).expect("it is there");
    let mut gateway = Gateway::spawn_with(place.lab, config, |_| ());
    gateway.initialize(crate::harness::VERSION);
    let before = gateway.lab.starts("ill");
    gateway.open("dev");
    assert!(gateway.lab.starts("ill") > before, "the gateway asks");
    gateway.finish();
}

#[test]
fn a_success_replaces_a_failure() {
    let place = place();
    for ask in [&["list", "--fresh"][..], &["doctor"], &["call", "ill/echo"]] {
        place.lab.write("broken", "");
        asked(&place, &["list", "--fresh"]);
        std::fs::remove_file(place.lab.dir.join("broken")).expect("it was there");
        asked(&place, ask);
        assert_eq!(asked(&place, &["list"]), (0, Some(0), String::new()), "{ask:?}");
    }
}

#[test]
fn a_changed_entry_or_value_is_asked_again() {
    let place = place();
    let path = place.lab.dir.join("workbench-config.json");
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("it is there")).expect("JSON");
    let mut change = |key: &str, value: Value| {
        config["toolboxes"]["dev"]["mcpServers"]["ill"][key] = value;
        std::fs::write(&path, config.to_string()).expect("the directory is ours");
    };
    asked(&place, &["list"]);
    change("env", json!({"KEY": "one"}));
    assert!(asked(&place, &["list"]).0 > 0, "another entry");
    assert_eq!(asked(&place, &["list"]).0, 0);
    change("env", json!({"KEY": "two"}));
    assert!(asked(&place, &["list"]).0 > 0, "another value");
    assert_eq!(asked(&place, &["list"]).0, 0);
    change("connectTimeout", json!(20));
    assert!(asked(&place, &["list"]).0 > 0, "another timeout");
    // No file tells the value.
    for entry in
        std::fs::read_dir(place.lab.dir.join("xdg-cache/mcp-workbench/definitions")).expect("it is there")
    {
        let text = std::fs::read_to_string(entry.expect("readable").path()).expect("text");
        assert!(!text.contains("two"), "{text}");
    }
}

#[test]
fn toolman_remembers_too() {
    let config = [server("well", "--with echo", ""), server("ill", "--exit 3 --count @dir/ill", "")].concat();
    let place = Place::toolman(&config);
    assert!(asked(&place, &["list"]).0 > 0);
    let told = "warning: could not be asked: ill (the server exited with status 3); --fresh asks again\n";
    assert_eq!(asked(&place, &["list", "tools"]), (0, Some(0), told.to_owned()));
    assert!(asked(&place, &["doctor"]).0 > 0);
}

/// All servers failed: the exit status is that of having asked them.
#[test]
fn exit_statuses_stay() {
    let place = Place::workbench(dev("proxy", json!({"ill": fake("--exit 3 --count @dir/ill")})));
    for args in [&["list"][..], &["list", "tools"], &["search", "x"], &["tokens"]] {
        assert_eq!(place.run(args).code, Some(4), "{args:?}");
    }
}
