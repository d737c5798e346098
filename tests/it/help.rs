//! `--help`, manual pages and completions.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use serde_json::json;

use crate::harness::{dev, fake, gateway_path};
use crate::shell::Place;

#[test]
fn connect_names_the_clients() {
    let place = Place::workbench(dev("proxy", json!({})));
    for verb in ["connect", "disconnect", "import"] {
        let help = place.run(&[verb, "--help"]).stdout;
        let words: Vec<_> = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
        for (client, ..) in crate::clients::CLIENTS {
            assert!(words.contains(&client), "{verb}: {client}: {help}");
        }
    }
}

#[test]
fn manual_pages() {
    let place = Place::workbench(dev("proxy", json!({})));
    let main = place.run(&["man"]).stdout;
    assert!(main.contains(".TH mcp-workbench 1"), "{main}");
    let connect = place.run(&["man", "connect"]).stdout;
    assert!(
        connect.contains(".TH mcp-workbench-connect 1") && connect.contains("claude\\-code"),
        "{connect}"
    );
    let finished = place.run(&["man", "conect"]);
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""));
    assert_eq!(finished.stderr, "error: there is no verb `conect`\ndid you mean `connect`?\n");
    assert_eq!(place.run(&["man", "--out", "pages"]).code, Some(0));
    let page = |name: &str| std::fs::read_to_string(place.lab.dir.join("pages").join(name)).expect(name);
    assert_eq!(page("mcp-workbench.1"), main);
    assert_eq!(page("mcp-workbench-connect.1"), connect);
    let help = place.run(&["--help"]).stdout;
    let verbs = help.split("\nCommands:\n").nth(1).expect("verbs").split("\n\n").next().expect("some");
    let names = verbs.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        assert!(page(&format!("mcp-workbench-{name}.1")).contains("Examples:"), "{name}");
    }
    assert!(!place.lab.dir.join("pages/mcp-workbench-demo-server.1").exists());
    let toolman = Place::toolman("");
    assert_eq!(toolman.run(&["man", "--out", "pages", "-q"]).stderr, "");
    assert!(toolman.lab.dir.join("pages/toolman-call.1").exists());
}

/// bash itself completes words, by the script that it is given.
#[test]
fn bash_completes_names() {
    let servers =
        json!({"well": fake("--with echo,crash --count @dir/starts"), "My Server": fake("--exit 3")});
    let place = Place::workbench(dev("proxy", servers));
    place.run(&["list"]);
    let starts = place.lab.starts("starts");
    let script = place.run(&["completions", "bash"]).stdout;
    let complete = |line: &str| -> Vec<String> {
        // What readline would do: split the line, and call the function that completes.
        let ask = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _mcp_workbench\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            line.replacen("mcp-workbench", &gateway_path().to_string_lossy(), 1)
        );
        let mut bash = std::process::Command::new("bash");
        for (name, value) in place.lab.command().get_envs() {
            match value {
                Some(value) => bash.env(name, value),
                None => bash.env_remove(name),
            };
        }
        let finished = place.lab.run(bash.current_dir(&place.lab.dir).args(["-c", &ask]));
        assert_eq!(finished.stderr, "", "{line}");
        finished.stdout.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    for (line, expected) in [
        ("mcp-workbench conn", &["connect"][..]),
        ("mcp-workbench connect cl", &["claude-desktop", "claude-code", "cline"]),
        ("mcp-workbench remove ''", &["My\\ Server", "well"]),
        ("mcp-workbench add x --toolbox ''", &["dev"]),
        ("mcp-workbench call ec", &["echo"]),
        ("mcp-workbench show dev/", &["dev/well/echo", "dev/well/crash"]),
        ("mcp-workbench --tool-mode = pr", &["proxy"]),
        ("mcp-workbench --config missing.json call ec", &[]),
    ] {
        assert_eq!(complete(line), expected, "{line}");
    }
    assert_eq!(place.lab.starts("starts"), starts, "nothing was started");
    for shell in ["zsh", "fish", "powershell", "elvish"] {
        let script = place.run(&["completions", shell]).stdout;
        assert!(script.contains("mcp-workbench") && script.contains("complete"), "{shell}: {script}");
    }
}
