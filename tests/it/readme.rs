//! Whatever the README and the pages beside it show is done here: files are checked, commands are run, sessions are replayed.
//!
//! The word after a fence's language is the name of the file that the block is, or that its session uses:
//!
//! - `jsonc FILE`, `toml FILE`: written to the directory in which everything runs. `check` must find nothing
//!   wrong with it, unless the name begins with `broken`.
//! - `console`: after `$ ` a command for the shell, then its output, stderr included. A line `...` stands for
//!   any lines. `cargo run --` is the built executable.
//! - `jsonl FILE`: a session with the executable whose file it is. `→` is sent, `←` must come next; lines
//!   without an arrow belong to the message before. `…` in a string stands for any text, as the last element
//!   of an array for any further ones, and as a key for any further members.
//! - `sh`: commands that are not run here; [`RUN_ELSEWHERE`] says where they are.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Lab, Peer, gateway_path};

const README: &str = include_str!("../../README.md");

/// The pages, each of which has a directory of its own.
const PAGES: [(&str, &str); 2] =
    [("README.md", README), ("docs/lock.md", include_str!("../../docs/lock.md"))];

/// Commands in `sh` blocks, and the file that runs them.
const RUN_ELSEWHERE: [(&str, &str); 2] = [
    // As a console block of this very file.
    ("cargo run -- demo", README),
    ("cargo test", include_str!("../../.ci/run")),
];

struct Block {
    line: usize,
    language: String,
    file: String,
    text: String,
}

#[test]
fn everything_is_as_shown() {
    let wrong: Vec<_> = PAGES.iter().flat_map(|(name, page)| mistakes(name, page)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

/// What a page shows and is not so.
fn mistakes(name: &str, page: &str) -> Vec<String> {
    let lab = Lab::new();
    let mut wrong = Vec::new();
    for block in blocks(page) {
        let complaint = match block.language.as_str() {
            "jsonc" | "toml" => check_file(&lab, &block),
            "console" => run_commands(&lab, &block),
            "jsonl" => replay(&lab, &block),
            "sh" => known_commands(&block),
            other => Err(format!("nobody knows what to do with a block of {other:?}")),
        };
        if let Err(complaint) = complaint {
            wrong.push(format!("{name}:{}: {complaint}", block.line));
        }
    }
    wrong
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), open) {
            (Some(info), false) => {
                let mut words = info.split_whitespace().map(str::to_owned);
                let (language, file) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                blocks.push(Block { line: number + 1, language, file, text: String::new() });
                open = true;
            }
            (Some(_), true) => open = false,
            (None, true) => {
                let block = blocks.last_mut().expect("one is open");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    blocks
}

/// Both executables' directory.
fn programs() -> std::path::PathBuf {
    gateway_path().parent().expect("it is a file").to_owned()
}

/// A command in the test's directory that finds our executables first.
fn command(lab: &Lab, program: impl AsRef<Path>) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(programs()).chain(std::env::split_paths(&path));
    let mut command = Command::new(program.as_ref());
    for (name, value) in lab.command().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .current_dir(&lab.dir)
        .env("PATH", std::env::join_paths(paths).expect("no separators in our paths"))
        .env("API_TOKEN", "a-token")
        .env_remove("API_KEY");
    command
}

/// The executable whose configuration this file is.
fn program_for(file: &str) -> std::path::PathBuf {
    let name = if file.ends_with(".toml") { "toolman" } else { "mcp-workbench" };
    programs().join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

fn check_file(lab: &Lab, block: &Block) -> Result<(), String> {
    if block.file.is_empty() {
        return Err("the block has no file name".to_owned());
    }
    lab.write(&block.file, &block.text);
    let finished = lab.run(command(lab, program_for(&block.file)).args(["check", "--config", &block.file]));
    let sound = finished.code == Some(0) && finished.stderr.is_empty();
    match sound != block.file.starts_with("broken") {
        true => Ok(()),
        false => Err(format!("check says\n{}{}", finished.stdout, finished.stderr)),
    }
}

fn run_commands(lab: &Lab, block: &Block) -> Result<(), String> {
    let mut wrong = Vec::new();
    for part in format!("\n{}", block.text).split("\n$ ").skip(1) {
        let (line, expected) = part.split_once('\n').unwrap_or((part, ""));
        let run = line.replace("cargo run --", "mcp-workbench");
        let finished = lab.run(command(lab, "sh").args(["-c", &format!("{{ {run}\n}} 2>&1")]));
        let output = finished
            .stdout
            .replace(&*lab.dir.to_string_lossy(), "/home/you/project")
            .replace(&*programs().to_string_lossy(), "/usr/local/bin");
        if !lines_fit(expected.trim_end(), output.trim_end()) {
            wrong.push(format!("$ {line}\nanswers\n{output}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn known_commands(block: &Block) -> Result<(), String> {
    let known = |line: &str| {
        let runs = |file: &str| file.lines().any(|other| other.trim_start_matches("$ ") == line);
        RUN_ELSEWHERE.iter().any(|(command, file)| *command == line && runs(file))
    };
    match block.text.lines().find(|line| !known(line)) {
        Some(line) => Err(format!("nothing runs this command: {line}")),
        None => Ok(()),
    }
}

fn replay(lab: &Lab, block: &Block) -> Result<(), String> {
    let mut messages: Vec<(char, String)> = Vec::new();
    for line in block.text.lines() {
        match line.chars().next() {
            Some(arrow @ ('→' | '←')) => messages.push((arrow, line[arrow.len_utf8()..].to_owned())),
            _ => messages.last_mut().ok_or("a session begins with an arrow")?.1.push_str(line.trim_start()),
        }
    }
    let mut peer = Peer::spawn(command(lab, program_for(&block.file)).args(["--config", &block.file]));
    for (arrow, text) in messages {
        let value: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        if arrow == '→' {
            peer.send(value.to_string());
        } else {
            let actual = peer.next().value();
            if !fits(&value, &actual) {
                return Err(format!("this was to come:\n{text}\nthis came:\n{actual}"));
            }
        }
    }
    peer.close();
    let status = peer.wait();
    if status.success() { Ok(()) } else { Err(format!("{status}: {}", peer.stderr())) }
}

/// Whether an output is as shown, with `...` for lines that are left out.
fn lines_fit(shown: &str, actual: &str) -> bool {
    fn fit(shown: &[&str], actual: &[&str]) -> bool {
        match shown {
            [] => actual.is_empty(),
            ["...", rest @ ..] => (0..=actual.len()).any(|from| fit(rest, &actual[from..])),
            [line, rest @ ..] => actual.first() == Some(line) && fit(rest, &actual[1..]),
        }
    }
    fit(&shown.lines().collect::<Vec<_>>(), &actual.lines().collect::<Vec<_>>())
}

/// Whether a message is as shown, with `…` for what is left out.
fn fits(shown: &Value, actual: &Value) -> bool {
    match (shown, actual) {
        (Value::String(shown), Value::String(actual)) => text_fits(shown, actual),
        (Value::Array(shown), Value::Array(actual)) => {
            let (shown, open) = match shown.split_last() {
                Some((Value::String(last), rest)) if last == "…" => (rest, true),
                _ => (&shown[..], false),
            };
            (if open { shown.len() < actual.len() } else { shown.len() == actual.len() })
                && shown.iter().zip(actual).all(|(shown, actual)| fits(shown, actual))
        }
        (Value::Object(shown), Value::Object(actual)) => {
            let named = shown.iter().filter(|(key, _)| *key != "…");
            (shown.contains_key("…") || actual.keys().all(|key| shown.contains_key(key)))
                && named.clone().all(|(key, value)| actual.get(key).is_some_and(|actual| fits(value, actual)))
        }
        _ => shown == actual,
    }
}

fn text_fits(shown: &str, actual: &str) -> bool {
    let mut parts = shown.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = actual.strip_prefix(first) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn what_is_left_out_and_what_is_not() {
    use serde_json::json;
    for (shown, actual, expected) in [
        (json!("a…c"), json!("abc"), true),
        (json!("a…c"), json!("abd"), false),
        (json!("…b…"), json!("abc"), true),
        (json!("ab"), json!("abc"), false),
        (json!([1, "…"]), json!([1, 2, 3]), true),
        (json!([1, "…"]), json!([1]), false),
        (json!([1]), json!([1, 2]), false),
        (json!({"a": 1}), json!({"a": 1, "b": 2}), false),
        (json!({"a": 1, "…": 0}), json!({"a": 1, "b": 2}), true),
        (json!({"a": 1, "…": 0}), json!({"b": 2}), false),
    ] {
        assert_eq!(fits(&shown, &actual), expected, "{shown} {actual}");
    }
    for (shown, actual, expected) in
        [("a\n...\nd", "a\nb\nc\nd", true), ("a\n...", "b", false), ("a", "a\nb", false), ("", "", true)]
    {
        assert_eq!(lines_fit(shown, actual), expected, "{shown:?} {actual:?}");
    }
}
