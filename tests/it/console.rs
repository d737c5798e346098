//! The console in a real browser: `tests/console` drives it, and its README tells what is shown.
#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::path::Path;
use std::process::Command;

/// The status by which the run says that there is no browser, and why.
const SKIPPED: i32 = 77;

#[test]
fn the_console_keeps_its_promises_in_a_browser() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_BIN_EXE_mcp-workbench"));
    let built = program.parent().expect("it stands in a directory");
    let run = Command::new("node")
        .arg(root.join("tests/console/run.mjs"))
        .env("GATEWAY_DIR", built)
        .env("FAKE_UPSTREAM", built.join("examples").join("fake-upstream"))
        .output();
    let run = match run {
        Ok(run) => run,
        Err(error) => return eprintln!("skipped: node cannot be run: {error}"),
    };
    let said = String::from_utf8_lossy(&run.stdout);
    eprintln!("{said}");
    if run.status.code() == Some(SKIPPED) {
        return;
    }
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
}
