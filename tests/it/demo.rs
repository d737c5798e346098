//! `demo`: its story fits on one screen, and it leaves nothing behind. `pages.rs` compares what it says.

use std::process::Stdio;

use crate::harness::{DEADLINE, Lab, Peer};

/// Everything in the test's directory.
fn files(lab: &Lab) -> Vec<String> {
    let entries = std::fs::read_dir(&lab.dir).expect("it is ours").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Runs the demo, which must leave nothing behind.
fn told(face: &str, more: &[&str]) -> String {
    let lab = Lab::new();
    let finished = lab.run(lab.command().args(["--face", face, "demo"]).args(more).env("TMPDIR", &lab.dir));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    assert!(!finished.stdout.contains('\u{1b}'), "no colours without a terminal");
    assert_eq!(files(&lab), [""; 0]);
    lab.wait_until_gone(DEADLINE);
    finished.stdout
}

/// The numbers of a text, in its order.
fn numbers(text: &str) -> Vec<usize> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != ',').map(|word| word.replace(',', ""));
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn one_screen_tells_the_story() {
    for (face, program, called) in [
        ("workbench", "mcp-workbench", ["issues__issues__search_issues", "use_tool search_issues"]),
        ("toolman", "toolman", ["issues_search_issues", "toolman_call issues_search_issues"]),
    ] {
        let text = told(face, &[]);
        assert!(text.lines().count() <= 40 && text.lines().all(|line| line.len() <= 100), "{text}");
        let line = |part: &str| {
            let found = text.lines().find(|line| line.trim_start().starts_with(part));
            found.unwrap_or_else(|| panic!("{part}: {text}"))
        };
        assert!(text.starts_with("Eight MCP servers with ") && numbers(&text)[0] > 100, "{text}");
        let rows: Vec<_> =
            text.lines().filter(|line| line.contains(" tools ") && line.contains('#')).collect();
        assert_eq!(rows.len(), 8, "{text}");
        let total = numbers(line("Connected directly"))[0];
        assert_eq!(rows.iter().map(|row| numbers(row)[1]).sum::<usize>(), total, "{text}");
        assert!(numbers(line("Behind "))[0] * 5 < total, "{text}");
        for call in called {
            assert!(line(call).ends_with("#42 Upload timeout on slow networks"), "{text}");
        }
        assert_eq!(text.matches("#42 is assigned to ada\n").count(), 2, "{text}");
        assert_eq!(text.matches(" % saved\n").count(), 2, "{text}");
        let next = text.split("\nNext, ").nth(1).expect("what to do next");
        for part in ["init", "connect claude-code", "cursor, codex, ..."] {
            assert!(next.contains(part), "{part}: {next}");
        }
        assert!(next.contains(&format!("  {program} init ")), "{next}");
    }
}

#[test]
fn the_wire_has_every_message() {
    for (face, called) in [("workbench", "use_tool"), ("toolman", "toolman_call")] {
        let text = told(face, &["--wire"]);
        for part in [
            "-> {\n",
            "\"method\": \"initialize\"",
            "<- {",
            "\"tools/list\"",
            &format!("\"name\": \"{called}\""),
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains(" % saved\n"), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_walk() {
    for signal in ["INT", "TERM"] {
        let lab = Lab::new();
        let mut demo = Peer::spawn(lab.command().arg("demo").env("TMPDIR", &lab.dir));
        demo.next();
        demo.signal(signal);
        let status = demo.wait();
        // It may have been faster.
        assert!(matches!(status.code(), Some(0 | 130)), "{status}");
        assert_eq!(files(&lab), [""; 0]);
        lab.wait_until_gone(DEADLINE);
    }
}

#[test]
fn nobody_reads_it() {
    let lab = Lab::new();
    let mut command = lab.command();
    command.arg("demo").env("TMPDIR", &lab.dir).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it is our child").code(), Some(0));
    assert_eq!(files(&lab), [""; 0]);
    lab.wait_until_gone(DEADLINE);
}

#[test]
fn no_place_for_its_file() {
    let lab = Lab::new();
    let finished = lab.run(lab.command().arg("demo").env("TMPDIR", lab.dir.join("missing")));
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.starts_with("error: cannot create "), "{}", finished.stderr);
}
