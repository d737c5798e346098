//! The picture of docs/getting-started.md: a terminal in which the first commands of a newcomer are really run.
//! `UPDATE_EXPECTED=1 cargo test --test it picture::` makes `docs/terminal.svg` anew.

use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::clients::Home;
use crate::harness::gateway_path;
use crate::npm;
use crate::pty::{ALL, Terminal};

const COMMANDS: [&[&str]; 3] = [
    &["init", "--yes"],
    &["connect", "claude-code", "--yes"],
    &["call", "everything/get-sum", "a=20", "b=22"],
];

/// Lines of one change that are shown.
const MOST_LINES: usize = 17;
/// Characters of a line that fit.
const WIDTH: usize = 105;

#[test]
fn the_page_shows_a_real_terminal() {
    let home = Home::new();
    let bin = npx(&home);
    let files = [
        (
            "claude-code",
            r#"{
  "mcpServers": {
    "memory": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-memory"],
      "env": { "MEMORY_KEY": "fixture-edited" }
    }
  }
}
"#,
        ),
        (
            "cursor",
            r#"{
  "mcpServers": {
    "everything": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"] }
  }
}
"#,
        ),
    ];
    for (client, text) in files {
        home.put(client, text.as_bytes());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut lines = Vec::new();
    for args in COMMANDS {
        let mut command = home.command("mcp-workbench", args);
        for name in ["NO_COLOR", "LC_ALL", "LC_CTYPE"] {
            command.env_remove(name);
        }
        command
            .env("TERM", "xterm")
            .env("XDG_CONFIG_HOME", home.path(".config"))
            .env("LANG", "en_GB.UTF-8")
            .env("PATH", format!("{}:{path}", bin.display()));
        let ended = Terminal::start(command, ALL).end();
        assert_eq!(ended.code, Some(0), "{args:?}: {}", ended.shown);
        lines.push(format!("\u{1b}[2m$\u{1b}[0m \u{1b}[1mmcp-workbench {}\u{1b}[0m", args.join(" ")));
        let mut own = shown(&named(&home, &ended.shown));
        // The program of the tests lies in a build directory, that of a newcomer does not.
        own.retain(|line| !line.contains("is in a build directory") && !line.contains("and connect again"));
        lines.extend(shortened(own));
        lines.push(String::new());
    }
    lines.pop();
    let picture = svg(&lines);
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/terminal.svg");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&place, &picture).expect("the picture is ours");
    }
    let expected = std::fs::read_to_string(&place).unwrap_or_default();
    assert!(
        expected == picture,
        "docs/terminal.svg is out of date; UPDATE_EXPECTED=1 makes it anew:\n{picture}"
    );
}

/// An `npx` that runs what is installed already.
fn npx(home: &Home) -> std::path::PathBuf {
    let bin = home.path("bin");
    let script = npm::script("NAME").display().to_string().replace("server-NAME", "server-${2##*/server-}");
    home.write(&bin.join("npx"), format!("#!/bin/sh\nexec node \"{script}\"\n").as_bytes());
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(bin.join("npx"), executable).expect("it is ours");
    bin
}

/// The text as it would be on anybody's machine.
fn named(home: &Home, text: &str) -> String {
    let own = home.path("").display().to_string();
    let programs = gateway_path().parent().expect("it is a file").display().to_string();
    text.replace(&programs, "/usr/local/bin").replace(own.trim_end_matches('/'), "/home/you")
}

/// The lines that are left on a terminal when all is over.
fn shown(text: &str) -> Vec<String> {
    let line =
        |line: &str| line.rsplit("\r\u{1b}[K").next().unwrap_or(line).trim_end_matches('\r').to_owned();
    text.trim_end().split('\n').map(line).collect()
}

/// The same with long changes cut.
fn shortened(lines: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut change = Vec::new();
    let end = |change: &mut Vec<String>, kept: &mut Vec<String>| {
        let more = change.len().saturating_sub(MOST_LINES);
        kept.extend(change.drain(..).take(MOST_LINES));
        if more > 0 {
            kept.push(format!("\u{1b}[2m  … {more} more lines\u{1b}[0m"));
        }
    };
    for line in lines {
        let plain = runs(&line).into_iter().map(|(_, text)| text).collect::<String>();
        let goes_on = !change.is_empty() && plain.starts_with(['+', '-', '@', ' ']);
        if goes_on || plain.starts_with("--- ") {
            change.push(line);
        } else {
            end(&mut change, &mut kept);
            kept.push(line);
        }
    }
    end(&mut change, &mut kept);
    kept
}

/// Parts of a line, each with the codes that hold for it.
fn runs(line: &str) -> Vec<(String, String)> {
    let (mut runs, mut style) = (Vec::new(), String::new());
    for (number, part) in line.split("\u{1b}[").enumerate() {
        let text = match part.split_once('m').filter(|_| number > 0) {
            Some((codes, text)) => {
                style = if codes == "0" { String::new() } else { codes.to_owned() };
                text
            }
            None => part,
        };
        if !text.is_empty() {
            runs.push((style.clone(), text.to_owned()));
        }
    }
    runs
}

fn svg(lines: &[String]) -> String {
    let (line, top, left) = (19, 44, 18);
    let height = top + line * lines.len() + 8;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 {height}\" width=\"860\" height=\"{height}\" \
         role=\"img\" aria-label=\"mcp-workbench init, connect and call in a terminal\">\n\
         <rect width=\"860\" height=\"{height}\" rx=\"8\" fill=\"#1b1f27\"/>\n"
    );
    for (number, colour) in ["#ff5f57", "#febc2e", "#28c840"].into_iter().enumerate() {
        let _ = writeln!(svg, "<circle cx=\"{}\" cy=\"18\" r=\"6\" fill=\"{colour}\"/>", 20 + number * 20);
    }
    svg.push_str(
        "<g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" font-size=\"13\" \
         fill=\"#d5dae3\" xml:space=\"preserve\">\n",
    );
    for (number, text) in lines.iter().enumerate() {
        let (mut spans, mut left_over) = (String::new(), WIDTH);
        for (codes, text) in runs(text) {
            let count = text.chars().count();
            let fits = count <= left_over;
            let text = if fits {
                text
            } else {
                text.chars().take(left_over.saturating_sub(1)).chain(['…']).collect()
            };
            spans.push_str(&span(&codes, &text));
            left_over = left_over.saturating_sub(count);
        }
        let _ = writeln!(svg, "<text x=\"{left}\" y=\"{}\">{spans}</text>", top + line * number + 12);
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

fn span(codes: &str, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let attributes: String = codes
        .split(';')
        .map(|code| match code {
            "1" => " font-weight=\"bold\"",
            "2" => " fill=\"#7d8696\"",
            "31" => " fill=\"#ff7b72\"",
            "32" => " fill=\"#7ee787\"",
            "33" => " fill=\"#e3b341\"",
            "36" => " fill=\"#76d9e6\"",
            _ => "",
        })
        .collect();
    if attributes.is_empty() { text } else { format!("<tspan{attributes}>{text}</tspan>") }
}
