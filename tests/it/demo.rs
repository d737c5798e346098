//! `demo`: what it says is compared by `pages.rs`; here is what it leaves behind, which is nothing.

use std::process::Stdio;

use crate::harness::{DEADLINE, Lab, Peer};

/// Everything in the test's directory.
fn files(lab: &Lab) -> Vec<String> {
    let entries = std::fs::read_dir(&lab.dir).expect("it is ours").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_walk_to_the_end() {
    for (face, called) in [("workbench", "tools/call use_tool"), ("toolman", "tools/call text_count")] {
        let lab = Lab::new();
        let finished = lab.run(lab.command().args(["--face", face, "demo"]).env("TMPDIR", &lab.dir));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
        assert!(finished.stdout.contains(called), "{}", finished.stdout);
        assert!(finished.stdout.contains("words: 3"), "{}", finished.stdout);
        assert!(!finished.stdout.contains('\u{1b}'), "no colours without a terminal");
        assert_eq!(files(&lab), [""; 0]);
        lab.wait_until_gone(DEADLINE);
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
