//! Whatever the README and the pages of `docs` show is done here: files are checked, commands are run, sessions are
//! replayed, links are followed. Each page has a home of its own, and everything runs in `~/project`.
//!
//! The word after a fence's language is the name of the file that the block is, or that its session uses:
//!
//! - `jsonc FILE`, `toml FILE`: written before the next block. `check` must find nothing wrong with it, unless the
//!   name begins with `broken`.
//! - `json FILE`, `yaml FILE`: a file of another program, such as `~/.cursor/mcp.json`, or one that we wrote, written
//!   as it is.
//! - `console`: after `$ ` a command for the shell, then its output, stderr included. A line `...` stands for
//!   any lines. `UPDATE_EXPECTED=1` writes outputs anew, except those with such a line. `npx -y @modelcontextprotocol/server-NAME` is an official server that the tests have installed.
//! - `jsonl FILE ARGUMENTS`: a session with the executable whose file it is. `→` is sent, `←` must come next; lines
//!   without an arrow belong to the message before. `…` in a string stands for any text, as the last element
//!   of an array for any further ones, and as a key for any further members. In a short session, which begins
//!   without a handshake, `→ METHOD PARAMS` is a request, `← RESULT` its result and `← METHOD` a notification.
//!   In what is sent, `"r…"` is the id of the result that was kept last, and `«TEXT»×N` is the text, N times.
//! - `sh`: commands for a checkout, which take too long to be run here; what they name must exist.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Lab, Peer, gateway_path};
use crate::npm;

struct Block {
    line: usize,
    language: String,
    file: String,
    arguments: Vec<String>,
    text: String,
}

#[test]
fn everything_is_as_shown() {
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let pages: Vec<_> = pages().into_iter().map(|page| scope.spawn(move || check_page(&page))).collect();
        pages.into_iter().flat_map(|page| page.join().expect("a page is checked")).collect()
    });
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

#[test]
fn the_readme_is_short() {
    let lines = std::fs::read_to_string(root().join("README.md")).expect("it is there").lines().count();
    assert!(
        lines <= 250,
        "the README has {lines} lines: what a newcomer does not need in a minute belongs to docs"
    );
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The README and every page of `docs`.
fn pages() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root().join("docs")).expect("it is there");
    let docs = docs.map(|entry| entry.expect("it can be read").path());
    let mut pages: Vec<_> = docs.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    pages.sort();
    pages.insert(0, root().join("README.md"));
    pages
}

/// Everything that is not as the page says, with its line.
fn check_page(page: &Path) -> Vec<String> {
    let lab = Lab::new();
    std::fs::create_dir_all(project(&lab)).expect("the directory is ours");
    provide_npx(&lab);
    let name = page.strip_prefix(root()).expect("it is in the repository").display();
    let mut text = std::fs::read_to_string(page).expect("it was listed");
    let mut wrong = Vec::new();
    for block in blocks(&text.clone()) {
        let complaint = match block.language.as_str() {
            "jsonc" | "toml" => check_file(&lab, &block),
            "json" | "yaml" => write_file(&lab, &block),
            "console" => match run_commands(&lab, &block) {
                Err(now) if std::env::var_os("UPDATE_EXPECTED").is_some() => {
                    text = text.replacen(&block.text, &now, 1);
                    std::fs::write(page, &text).map_err(|error| error.to_string())
                }
                outcome => outcome.map_err(|now| format!("this is the output now:\n{now}")),
            },
            "jsonl" => replay(&lab, &block),
            "sh" => commands_for_a_checkout(&block),
            other => Err(format!("nobody knows what to do with a block of {other:?}")),
        };
        if let Err(complaint) = complaint {
            wrong.push(format!("{name}:{}: {complaint}", block.line));
        }
    }
    wrong
}

fn project(lab: &Lab) -> PathBuf {
    lab.dir.join("project")
}

/// Puts an `npx` before the real one that starts official servers from where the tests have installed them.
fn provide_npx(lab: &Lab) {
    let script = npm::script("NAME").to_string_lossy().replace("NAME", "$name");
    let text = format!(
        "#!/bin/sh\nname=${{2#@modelcontextprotocol/server-}}\nshift 2\nexec node \"{script}\" \"$@\"\n"
    );
    std::fs::create_dir_all(lab.dir.join("bin")).expect("the directory is ours");
    let path = lab.write("bin/npx", &text);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("the file is ours");
    }
    #[cfg(not(unix))]
    drop(path);
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), open) {
            (Some(info), false) => {
                let mut words = info.split_whitespace().map(str::to_owned);
                let (language, file) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let arguments = words.collect();
                blocks.push(Block { line: number + 1, language, file, arguments, text: String::new() });
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
    let paths = [programs(), lab.dir.join("bin")].into_iter().chain(std::env::split_paths(&path));
    let mut command = Command::new(program.as_ref());
    for (name, value) in lab.command().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .current_dir(project(lab))
        .env("XDG_CONFIG_HOME", lab.dir.join(".config"))
        .env("XDG_STATE_HOME", lab.dir.join(".local/state"))
        .env("XDG_CACHE_HOME", lab.dir.join(".cache"))
        .env("PATH", std::env::join_paths(paths).expect("no separators in our paths"))
        .env("API_TOKEN", "a-token")
        .env("STORE_PASSWORD", "a-password")
        .env("STATE_KEY", "0123456789abcdef0123456789abcdef")
        .env_remove("API_KEY");
    command
}

/// The executable whose configuration this file is.
fn program_for(file: &str) -> std::path::PathBuf {
    let name = if file.ends_with(".toml") { "toolman" } else { "mcp-workbench" };
    programs().join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// Writes the file that a block is; `~/` leads to the home.
fn write_file(lab: &Lab, block: &Block) -> Result<(), String> {
    let path = match (block.file.strip_prefix("~/"), &*block.file) {
        (_, "") => return Err("the block has no file name".to_owned()),
        (Some(path), _) => lab.dir.join(path),
        (None, path) => project(lab).join(path),
    };
    std::fs::create_dir_all(path.parent().expect("it is a file")).map_err(|error| error.to_string())?;
    std::fs::write(path, &block.text).map_err(|error| error.to_string())
}

fn check_file(lab: &Lab, block: &Block) -> Result<(), String> {
    write_file(lab, block)?;
    let finished = lab.run(command(lab, program_for(&block.file)).args(["check", "--config", &block.file]));
    let sound = finished.code == Some(0) && finished.stderr.is_empty();
    match sound != block.file.starts_with("broken") {
        true => Ok(()),
        false => Err(format!("check says\n{}{}", finished.stdout, finished.stderr)),
    }
}

/// Runs the commands of a block; an error is the block as it should be.
fn run_commands(lab: &Lab, block: &Block) -> Result<(), String> {
    let mut now = String::new();
    let mut as_shown = true;
    for part in format!("\n{}", block.text).split("\n$ ").skip(1) {
        let (line, expected) = part.split_once('\n').unwrap_or((part, ""));
        let finished = lab.run(command(lab, "sh").args(["-c", &format!("{{ {line}\n}} 2>&1")]));
        let output = finished
            .stdout
            .replace(&*lab.dir.to_string_lossy(), "/home/you")
            .replace(&*programs().to_string_lossy(), "/usr/local/bin");
        // The programs of the tests lie in a build directory, those of readers do not.
        let output: Vec<_> =
            output.lines().filter(|line| !line.contains("is in a build directory")).collect();
        let output = output.join("\n");
        let (expected, output) = (expected.trim_end(), output.trim_end());
        let fits = lines_fit(expected, output);
        as_shown &= fits;
        let shown = if fits || expected.lines().any(|line| line == "...") { expected } else { output };
        now.push_str(&format!("$ {line}\n{shown}"));
        now.push_str(if shown.is_empty() { "" } else { "\n" });
        if !fits && shown == expected {
            now.push_str(&format!("which is really\n{output}\n"));
        }
    }
    if as_shown { Ok(()) } else { Err(now) }
}

/// Whether every file that the commands name is in the repository, and every target in the manifest.
fn commands_for_a_checkout(block: &Block) -> Result<(), String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("it is there");
    for line in block.text.lines() {
        let command = line.split(" # ").next().unwrap_or_default();
        let words: Vec<&str> = command.split_whitespace().collect();
        for (n, word) in words.iter().enumerate() {
            let before = n.checked_sub(1).map_or("", |before| words[before]);
            let is_file = word.contains('/') && !word.contains("://") && before != "cd";
            if is_file && !root().join(word).exists() {
                return Err(format!("there is no {word}: {line}"));
            }
            if ["--example", "--bench", "--bin"].contains(&before)
                && !manifest.contains(&format!("name = \"{word}\""))
            {
                return Err(format!("the manifest has no {word}: {line}"));
            }
        }
    }
    Ok(())
}

fn replay(lab: &Lab, block: &Block) -> Result<(), String> {
    let mut messages: Vec<(char, String)> = Vec::new();
    for line in block.text.lines() {
        match line.chars().next() {
            Some(arrow @ ('→' | '←')) => {
                messages.push((arrow, line[arrow.len_utf8()..].trim_start().to_owned()))
            }
            _ => messages.last_mut().ok_or("a session begins with an arrow")?.1.push_str(line.trim_start()),
        }
    }
    let mut peer = Peer::spawn(
        command(lab, program_for(&block.file)).args(["--config", &block.file]).args(&block.arguments),
    );
    let short = messages.first().is_some_and(|(_, text)| !text.starts_with('{'));
    if short {
        peer.initialize_as("2025-11-25", "{}", "example");
    }
    let (mut id, mut kept) = (100, String::new());
    for (arrow, text) in messages {
        let value = if short { whole(arrow, &text, &mut id)? } else { parsed(&text)? };
        if arrow == '→' {
            peer.send(written_out(&value.to_string()).replace("\"r…\"", &kept));
        } else {
            let answer = peer.next();
            let id = answer.at(&["result", "_meta", "mcp-workbench/offloaded", "id"]);
            kept = if id.is_empty() { kept } else { id };
            let actual = answer.value();
            if !fits(&value, &actual) {
                return Err(format!("this was to come:\n{text}\nthis came:\n{actual}"));
            }
        }
    }
    peer.close();
    let status = peer.wait();
    if status.success() { Ok(()) } else { Err(format!("{status}: {}", peer.stderr())) }
}

/// A message with `«TEXT»×N` as the text, N times.
fn written_out(message: &str) -> String {
    let Some((before, rest)) = message.split_once('«') else { return message.to_owned() };
    let (text, rest) = rest.split_once("»×").expect("what is repeated has an end and a number");
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let times = rest[..digits].parse().expect("a number");
    format!("{before}{}{}", text.repeat(times), written_out(&rest[digits..]))
}

fn parsed(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))
}

/// The message that a line of a short session stands for. The id is that of the last request.
fn whole(arrow: char, text: &str, id: &mut u64) -> Result<Value, String> {
    match (arrow, text.split_once(' ')) {
        ('→', Some((method, params))) => {
            *id += 1;
            Ok(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parsed(params)?}))
        }
        ('→', None) => {
            *id += 1;
            Ok(json!({"jsonrpc": "2.0", "id": id, "method": text}))
        }
        _ if text.starts_with('{') => Ok(json!({"jsonrpc": "2.0", "id": id, "result": parsed(text)?})),
        _ => Ok(json!({"jsonrpc": "2.0", "method": text})),
    }
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

/// The schema has every key; the page has each of them once, in the order of the alphabet.
#[test]
fn the_table_of_keys_is_that_of_the_schema() {
    const SPELLINGS: [&str; 6] = ["$schema", "envs", "environment", "httpUrl", "serverUrl", "uri"];
    let schema =
        std::fs::read_to_string(root().join("schema/workbench-config.schema.json")).expect("it is there");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let keys = |object: &Value| -> Vec<String> {
        let keys = object["properties"].as_object().expect("an object").keys();
        keys.filter(|key| !SPELLINGS.contains(&key.as_str())).cloned().collect()
    };
    let (top, server) = (keys(&schema), keys(&schema["definitions"]["server"]));
    let place = |key: &String| match (top.contains(key), server.contains(key)) {
        (true, true) => "both",
        (true, false) => "top",
        (false, _) => "server",
    };
    let mut expected: Vec<(String, &str)> =
        top.iter().chain(&server).map(|key| (key.clone(), place(key))).collect();
    expected.extend(keys(&schema["definitions"]["toolbox"]).into_iter().map(|key| (key, "toolbox")));
    expected.sort_by_key(|(key, _)| key.to_lowercase());
    expected.dedup();
    let expected: Vec<(&str, &str)> = expected.iter().map(|(key, place)| (key.as_str(), *place)).collect();
    let page = std::fs::read_to_string(root().join("docs/configuration.md")).expect("it is there");
    assert_eq!(table_of_keys(&page), expected);
}

/// Toolman's page has the keys that are not those of the workbench in snake case.
#[test]
fn every_key_of_toolman_stands_on_a_page() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("it is there");
    let schema: Value = serde_json::from_str(&read("schema/tools.schema.json")).expect("JSON");
    let (workbench, toolman) = (read("docs/configuration.md"), read("docs/toolman.md"));
    let known = |key: &str| {
        let mut shared = table_of_keys(&workbench).into_iter().map(|(key, _)| snake_case(key));
        table_of_keys(&toolman).iter().any(|(own, _)| *own == key) || shared.any(|shared| shared == key)
    };
    for object in [&schema, &schema["properties"]["servers"]["items"]] {
        for key in object["properties"].as_object().expect("an object").keys() {
            assert!(known(key), "no page has {key}");
        }
    }
}

/// The keys of a page and where they may stand.
fn table_of_keys(page: &str) -> Vec<(&str, &str)> {
    let section = page.split("\n## ").find(|section| section.starts_with("Keys\n")).expect("it has one");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    rows.map(|(key, rest)| (key, rest.split(" | ").next().unwrap_or_default())).collect()
}

fn snake_case(key: &str) -> String {
    let parts = key
        .chars()
        .map(|c| if c.is_ascii_uppercase() { format!("_{}", c.to_ascii_lowercase()) } else { c.into() });
    parts.collect()
}

/// `node benches/tokens/run.mjs --update` measures, and draws the picture and the table.
#[test]
fn the_figures_are_those_that_were_measured() {
    let text = std::fs::read_to_string(root().join("benches/tokens/results.json")).expect("it is committed");
    let measured: Value = serde_json::from_str(&text).expect("the script wrote it");
    let number = |key: &str| {
        let number = measured[key].as_u64().expect("a number");
        if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
    };
    let readme = std::fs::read_to_string(root().join("README.md")).expect("it is there");
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        format!("have {} tools: **{} tokens**", number("tools"), number("total")),
        format!("reads **{} tokens**", number("gateway")),
        format!("Measured on {} with the tokenizer {}", measured["date"], measured["tokenizer"])
            .replace('"', ""),
    ] {
        assert!(readme.contains(&said), "the README does not say: {said}");
    }
    let drawn = Command::new("node").args(["benches/tokens/run.mjs", "--check"]).current_dir(root()).output();
    let drawn = drawn.expect("the tests need Node");
    assert!(drawn.status.success(), "{}", String::from_utf8_lossy(&drawn.stderr));
}

#[test]
fn links_lead_somewhere() {
    let papers = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    let papers = papers.map(|name| root().join(name));
    let mut dead = Vec::new();
    for page in pages().into_iter().chain(papers) {
        let text = std::fs::read_to_string(&page).expect("it was listed");
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.with_file_name("").join(path) };
            let is_there =
                target.exists() && (anchor.is_empty() || anchors(&target).iter().any(|it| it == anchor));
            if !is_there {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "\n{}", dead.join("\n"));
}

/// The links and pictures of a page that lead into the repository.
fn links(text: &str) -> Vec<&str> {
    let places = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    places.filter(|link| !link.contains("://") && !link.contains(' ')).collect()
}

/// The anchors of a page's headings.
fn anchors(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap_or_default();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}
