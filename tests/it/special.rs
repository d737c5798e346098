//! Files that are none: pipes, devices, directories, and what is too large. Nobody waits for them.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::clients::Home;
use crate::harness::{Gateway, dev, fake};

/// Everything that cannot be read like a file, and what is said of it.
fn special(directory: &Path) -> Vec<(PathBuf, &'static str)> {
    let pipe = directory.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let large = directory.join("large");
    let file = std::fs::File::create(&large).expect("the directory is ours");
    file.set_len(64_000_001).expect("it has holes");
    let socket = directory.join("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("the directory is ours"));
    vec![
        (pipe, "it is a pipe, not a regular file"),
        (large, "it is larger than 64 MB"),
        (socket, "it is a socket, not a regular file"),
        (directory.to_owned(), "it is a directory, not a regular file"),
        ("/dev/zero".into(), "it is a device, not a regular file"),
    ]
}

#[test]
fn a_configuration_that_is_no_file_is_refused_at_once() {
    let home = Home::new();
    home.put("cursor", br#"{"mcpServers": {}}"#);
    for (path, why) in special(&home.path("project")) {
        let name = path.to_str().expect("UTF-8");
        let shown = name.replace(home.path("").to_str().expect("UTF-8"), "~/");
        let expected = format!(
            "error: cannot read {shown}: {why}\nname a regular file that you may read, of at most 64 MB\n"
        );
        for verb in [
            &["check"][..],
            &["serve"],
            &["serve", "--http", "127.0.0.1:0"],
            &["list", "tools"],
            &["doctor"],
            &["init", "--yes"],
            &["import", "cursor", "--yes"],
            &["add", "a", "--url", "http://h/", "--yes"],
            &["connect", "cursor", "--yes"],
        ] {
            let args = [verb, &["--config", name]].concat();
            let finished = home.run(&args);
            assert_eq!(finished.code, Some(2), "{args:?}: {}", finished.stderr);
            assert!(finished.stderr.ends_with(&expected), "{args:?}: {}", finished.stderr);
            // That one begins with what it is itself.
            assert!(finished.stdout.is_empty() || verb == ["doctor"], "{args:?}: {}", finished.stdout);
        }
    }
    // What a shell puts in the place of a command is a pipe.
    let program = home.command("mcp-workbench", &[]).get_program().to_owned();
    let mut shell = Command::new("bash");
    shell.args(["-c", "exec \"$0\" check --config <(echo '{}')"]).arg(program);
    let output = shell.output().expect("bash runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("it is a pipe, not a regular file"), "{said}");
}

#[test]
fn other_files_that_are_none_are_refused_at_once() {
    let home = Home::new();
    home.write(&home.config(), br#"{"toolboxes": {}}"#);
    for (path, why) in special(&home.path("project")) {
        let name = path.to_str().expect("UTF-8");
        let client = home.file_of("cursor");
        std::fs::create_dir_all(client.parent().expect("below the home")).expect("the directory is ours");
        std::os::unix::fs::symlink(&path, &client).expect("the directory is ours");
        for args in [
            &["import", name, "--yes"][..],
            &["import", "cursor", "--yes"],
            &["connect", "cursor", "--yes"],
            &["disconnect", "cursor", "--yes"],
            &["serve", "--http", "127.0.0.1:0", "--auth-token-file", name],
        ] {
            let finished = home.run(args);
            assert_eq!(finished.code, Some(2), "{args:?}: {}", finished.stderr);
            assert!(finished.stderr.contains(why), "{args:?}: {}", finished.stderr);
        }
        // Where many are looked at, the others are still read.
        let finished = home.run(&["init", "--dry-run"]);
        assert_eq!(finished.code, Some(0), "{name}: {}", finished.stderr);
        assert!(finished.stderr.contains(why), "{}", finished.stderr);
        assert_eq!(home.run(&["list", "tools"]).code, Some(0), "{name}");
        std::fs::remove_file(&client).expect("it was made above");
    }
}

#[test]
fn a_configuration_that_becomes_something_else_stays_in_force() {
    let config = dev("dynamic", json!({"a": fake("--with echo")}));
    let mut gateway = Gateway::start(&config);
    let file = gateway.lab.dir.join("workbench-config.json");
    let room = gateway.lab.dir.join("room");
    std::fs::create_dir(&room).expect("the directory is ours");
    gateway.open("dev");
    let mut mark = 0;
    for (path, why) in special(&room).into_iter().filter(|(path, _)| *path != room) {
        std::fs::remove_file(&file).expect("ours");
        std::os::unix::fs::symlink(&path, &file).expect("the directory is ours");
        gateway.stderr_with(&format!("{why}; the old configuration stays in force"));
        assert!(!gateway.call("dev__a__echo", json!({"text": "x"})).is_error());
        std::fs::remove_file(&file).expect("ours");
        mark += 1;
        gateway.reload(config.clone(), &format!("mark{mark}"));
    }
}
