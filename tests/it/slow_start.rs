//! Servers that take longer to start than an opening or a call waits.

use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{DEADLINE, Gateway, Lab, TOOLS_CHANGED, VERSION, dev, fake, server};
use crate::shell::Place;

const LATE: &str =
    "connection timeout after 0.3 s; it is still starting, and its tools will appear when it is ready";

/// A server that is ready as soon as a file is there.
fn slow(start_timeout: f64) -> Value {
    let mut entry = fake("--with report --wait-for @dir/ready --count @dir/slow");
    entry["connectTimeout"] = json!(0.3);
    entry["startTimeout"] = json!(start_timeout);
    entry
}

fn error() -> Value {
    json!([format!("Failed to connect to server 'slow' in toolbox 'dev': {LATE}")])
}

#[test]
fn a_slow_server_joins_when_it_is_ready() {
    for mode in ["dynamic", "proxy"] {
        let mut gateway = Gateway::start(dev(mode, json!({"slow": slow(60.0), "a": fake("--with report")})));
        let opened = gateway.open("dev");
        assert_eq!((&opened["servers_connected"], &opened["_errors"]), (&json!(1), &error()), "{mode}");
        gateway.use_tool("a", "report", "{}").json();
        // Opening again waits for the same process.
        assert_eq!(gateway.open("dev")["_errors"], error());
        if mode == "dynamic" {
            assert_eq!(gateway.count(TOOLS_CHANGED), 1);
        }
        gateway.lab.write("ready", "");
        gateway.until("it has joined", |gateway| gateway.open("dev")["_errors"].is_null());
        gateway.use_tool("slow", "report", "{}").json();
        if mode == "dynamic" {
            gateway.notification(TOOLS_CHANGED);
            assert_eq!(gateway.tools(), ["open_toolbox", "dev__a__report", "dev__slow__report"]);
        }
        assert_eq!(gateway.lab.starts("slow"), 1, "{mode}");
    }
}

#[test]
fn a_toolbox_is_open_even_if_its_only_server_is_late() {
    let mut gateway = Gateway::start(dev("dynamic", json!({"slow": slow(60.0)})));
    let opened = gateway.open("dev");
    assert_eq!((&opened["servers_connected"], &opened["_errors"]), (&json!(0), &error()));
    // A call waits as an opening does, and then says the same, by whatever name it goes.
    assert_eq!(gateway.use_tool("slow", "report", "{}").failure(), format!("[dev/slow/report] {LATE}"));
    assert_eq!(gateway.call("dev__slow__report", "{}").failure(), format!("[dev__slow__report] {LATE}"));
    // One that waits is answered as soon as the server is ready.
    let waiting = gateway.post_use_tool("slow", "report", "{}");
    gateway.lab.write("ready", "");
    gateway.answer(&waiting).json();
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.lab.starts("slow"), 1);
}

#[test]
fn past_its_time_to_start_a_server_has_failed() {
    for (timeouts, expected) in [
        (json!({"connectTimeout": 0.2, "startTimeout": 0.6}), "connection timeout after 0.6 s"),
        (json!({"connectTimeout": 0.2, "startTimeout": 0.2}), "connection timeout"),
        (json!({"connectTimeout": 0.2}), "connection timeout"),
        (json!({"connectTimeout": 60, "startTimeout": 0.2}), "connection timeout after 0.2 s"),
    ] {
        let mut entry = slow(1.0);
        entry.as_object_mut().expect("an entry").remove("startTimeout");
        for (key, value) in timeouts.as_object().expect("timeouts") {
            entry[key] = value.clone();
        }
        let mut gateway = Gateway::start(dev("proxy", json!({"slow": entry, "a": fake("--with echo")})));
        let error = format!("Failed to connect to server 'slow' in toolbox 'dev': {expected}");
        gateway.until("it has failed", |gateway| {
            let opened = gateway.open("dev");
            opened["_errors"][0].as_str().is_some_and(|told| !told.contains("still starting"))
                && opened["_errors"][0].to_string().contains(&error)
        });
    }
}

#[test]
fn a_server_that_is_starting_ends_with_the_gateway_at_once() {
    let mut gateway = Gateway::start(dev("proxy", json!({"slow": slow(600.0)})));
    gateway.open("dev");
    let begun = Instant::now();
    let lab = gateway.finish();
    assert!(begun.elapsed() < DEADLINE && lab.processes().is_empty());
}

/// A call starts a server that is at rest, and then waits for it as an opening does.
#[test]
fn a_call_that_starts_a_server_waits_too() {
    let mut entry = slow(60.0);
    entry["start"] = json!("call");
    let config = dev("proxy", json!({"slow": entry}));
    let start = |lab| {
        let mut gateway = Gateway::spawn_with(lab, &config, |_| ());
        gateway.initialize(VERSION);
        assert_eq!(gateway.open("dev")["_errors"], Value::Null);
        gateway
    };
    let lab = Lab::new();
    let ready = lab.write("ready", "");
    let lab = start(lab).finish();
    std::fs::remove_file(&ready).expect("it was written");
    let mut gateway = start(lab);
    assert_eq!(gateway.use_tool("slow", "report", "{}").failure(), format!("[dev/slow/report] {LATE}"));
    let waiting = gateway.post_use_tool("slow", "report", "{}");
    gateway.lab.write("ready", "");
    gateway.answer(&waiting).json();
    assert_eq!(gateway.lab.starts("slow"), 2, "once remembered, once called");
}

#[test]
fn toolmans_calls_wait_too() {
    let slow = server(
        "slow",
        "--with report --wait-for @dir/ready --count @dir/slow",
        "connect_timeout = 0.3\nstart_timeout = 60",
    );
    let mut gateway = Gateway::spawn_toolman(
        Lab::new(),
        format!("startup_wait = 0\nactive_toolsets = [\"*\"]\n{slow}{}", server("a", "--with report", "")),
        |_| (),
    );
    gateway.initialize(VERSION);
    let told = gateway.call("slow_report", "{}").failure();
    assert!(told.contains(&format!("slow_report: {LATE}")), "{told}");
    let waiting = gateway.post_call("slow_report", "{}");
    gateway.lab.write("ready", "");
    gateway.answer(&waiting).json();
    assert_eq!(gateway.lab.starts("slow"), 1);
}

#[test]
fn verbs_wait_until_it_is_ready() {
    let place = Place::workbench(dev("dynamic", json!({"slow": fake("--with report --delay 700")})));
    let path = place.lab.dir.join("workbench-config.json");
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("it is there")).expect("JSON");
    let entry = &mut config["toolboxes"]["dev"]["mcpServers"]["slow"];
    entry["connectTimeout"] = json!(0.1);
    entry["startTimeout"] = json!(60);
    place.lab.write("workbench-config.json", &config.to_string());
    assert_eq!(place.json(&["doctor"], 0)["servers"][0]["tools"], 1);
    assert_eq!(place.run(&["call", "report", "--fresh"]).code, Some(0));
}
