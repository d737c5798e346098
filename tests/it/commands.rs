//! The command line beside the server.

use crate::harness::{Lab, toolman_path};

#[test]
fn help_and_version_go_to_stdout_and_usage_errors_are_exit_2() {
    let lab = Lab::new();
    for option in ["--help", "--version"] {
        let finished = lab.run(lab.command().arg(option));
        assert_eq!(finished.code, Some(0), "{option}");
        assert!(finished.stdout.contains("mcp-workbench"), "{option}: {}", finished.stdout);
    }
    let version = lab.run(lab.command().arg("--version")).stdout;
    let expected = format!("mcp-workbench {} (", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(&expected) && version.ends_with(", own build)\n"), "{version}");
    let toolman = lab.run(lab.program(&toolman_path()).arg("--version")).stdout;
    assert_eq!(toolman, version.replace("mcp-workbench", "toolman"));
    for wrong in [&["--no-such-option"][..], &["no-such-verb"], &["--tool-mode", "wrong"]] {
        let finished = lab.run(lab.command().args(wrong));
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{wrong:?}");
        assert!(!finished.stderr.is_empty());
    }
}
