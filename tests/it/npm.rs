//! Installs what the committed lock files name: the official servers, and the official conformance suite.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they need")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::harness::Lab;

/// What the installed tree was made from, inside it: a tree without it is not complete.
const SEAL: &str = ".installed-from";

/// Where the servers are.
static INSTALLED: LazyLock<PathBuf> = LazyLock::new(|| install("tests/npm"));

/// The script of an official server.
pub(crate) fn script(server: &str) -> PathBuf {
    INSTALLED.join("@modelcontextprotocol").join(format!("server-{server}")).join("dist/index.js")
}

/// A server entry that runs an official server with these arguments.
pub(crate) fn entry(server: &str, arguments: &[&str]) -> Value {
    let path = script(server);
    let mut args = vec![path.to_str().expect("a path in UTF-8")];
    args.extend(arguments);
    json!({"command": "node", "args": args})
}

/// Installs what the lock file of this folder names, and gives the place.
///
/// It installs aside and moves into place in one step, so that whoever finds the tree finds all of it, however
/// many tests and test runs want it at once.
pub(crate) fn install(folder: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let lock = std::fs::read_to_string(source.join("package-lock.json")).expect("it is committed");
    let place = source.join("node_modules");
    if is_installed(&place, &lock) {
        return place;
    }
    let aside = Lab::new();
    for file in ["package.json", "package-lock.json"] {
        std::fs::copy(source.join(file), aside.dir.join(file)).expect("it is committed");
    }
    let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
    let output = Command::new(npm)
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(&aside.dir)
        .output()
        .expect("the tests need Node with npm");
    assert!(output.status.success(), "npm ci: {}", String::from_utf8_lossy(&output.stderr));
    let made = aside.dir.join("node_modules");
    std::fs::write(made.join(SEAL), &lock).expect("it was just made");
    // Next to its place first: a move between file systems would be a copy, and not one step.
    let beside = source.join(format!("node_modules.{}", std::process::id()));
    if std::fs::rename(&made, &beside).is_err() {
        copy(&made, &beside);
    }
    if !is_installed(&place, &lock) {
        // Of another lock file, or not there.
        let _ = std::fs::remove_dir_all(&place);
    }
    if std::fs::rename(&beside, &place).is_err() {
        // Somebody else was faster.
        let _ = std::fs::remove_dir_all(&beside);
    }
    assert!(is_installed(&place, &lock), "they are in {}", place.display());
    place
}

fn is_installed(place: &Path, lock: &str) -> bool {
    std::fs::read_to_string(place.join(SEAL)).is_ok_and(|from| from == lock)
}

/// Copies a tree of files and directories.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the source tree can be written");
    for entry in std::fs::read_dir(from).expect("it was just made").flatten() {
        let (kind, target) = (entry.file_type().expect("it was just made"), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target).expect("the source tree can be written");
        }
        // Symbolic links stand in `.bin` only, which nobody uses.
    }
}
