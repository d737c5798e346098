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

/// A place with two servers, one of them with a space in its name, whose tools are remembered.
fn known_servers() -> Place {
    let servers =
        json!({"well": fake("--with echo,crash --count @dir/starts"), "My Server": fake("--exit 3")});
    let place = Place::workbench(dev("proxy", servers));
    place.run(&["list"]);
    place
}

/// A shell that finds the gateway by its name. Nothing if the machine does not have this shell.
fn shell(name: &str, place: &Place) -> Option<std::process::Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory.join(name).exists()) {
        eprintln!("skipped: {name} is not installed");
        return None;
    }
    let gateway = gateway_path().parent().expect("a file is in a directory").to_owned();
    let path = std::env::join_paths(std::iter::once(gateway).chain(std::env::split_paths(&path)));
    let mut shell = std::process::Command::new(name);
    for (name, value) in place.lab.command().get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.env("PATH", path.expect("directories of PATH")).current_dir(&place.lab.dir);
    Some(shell)
}

/// Lines to complete, and the words that may come next.
const COMPLETIONS: [(&str, &[&str]); 8] = [
    ("mcp-workbench conn", &["connect"]),
    ("mcp-workbench connect cl", &["claude-code", "claude-desktop", "cline"]),
    ("mcp-workbench remove ", &["My Server", "well"]),
    ("mcp-workbench add x --toolbox ", &["dev"]),
    ("mcp-workbench call ec", &["echo"]),
    ("mcp-workbench show dev/", &["dev/well/crash", "dev/well/echo"]),
    ("mcp-workbench --tool-mode pr", &["proxy"]),
    ("mcp-workbench --config missing.json call ec", &[]),
];

#[test]
fn bash_completes_names() {
    let place = known_servers();
    let starts = place.lab.starts("starts");
    let script = place.run(&["completions", "bash"]).stdout;
    let complete = |line: &str| -> Option<Vec<String>> {
        // What readline would do: split the line, and call the function that completes.
        let ask = format!(
            "{script}\nCOMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _mcp_workbench\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\" | sort"
        );
        let finished = place.lab.run(shell("bash", &place)?.args(["-c", &ask]));
        assert_eq!(finished.stderr, "", "{line}");
        let words = finished.stdout.lines().filter(|line| !line.is_empty());
        Some(words.map(|word| word.replace("\\ ", " ")).collect())
    };
    let quoted = |line: &str| if line.ends_with(' ') { format!("{line}''") } else { line.to_owned() };
    for (line, expected) in COMPLETIONS {
        let Some(found) = complete(&quoted(line)) else { return };
        assert_eq!(found, expected, "{line}");
    }
    assert_eq!(complete("mcp-workbench --tool-mode = pr").expect("bash is there"), ["proxy"]);
    assert_eq!(place.lab.starts("starts"), starts, "nothing was started");
}

#[test]
fn fish_completes_names() {
    let place = known_servers();
    let script = place.lab.write("completions.fish", &place.run(&["completions", "fish"]).stdout);
    // Where we know no word, fish offers files, the last line's among them.
    for (line, expected) in &COMPLETIONS[..7] {
        let Some(mut fish) = shell("fish", &place) else { return };
        let ask = format!("source {}; complete -C '{line}'", script.display());
        let finished = place.lab.run(fish.args(["--no-config", "-c", &ask]));
        assert_eq!(finished.stderr, "", "{line}");
        let mut found: Vec<_> = finished.stdout.lines().collect();
        found.sort_unstable();
        assert_eq!(found, *expected, "{line}");
    }
}

/// zsh completes at its own prompt, where somebody presses the tabulator: by a script that is sourced, and by a file
/// in its `fpath`, which is loaded when it is first needed.
#[cfg(unix)]
#[test]
fn zsh_completes_names() {
    let place = known_servers();
    std::fs::create_dir(place.lab.dir.join("functions")).expect("the directory is ours");
    place.lab.write("functions/_mcp-workbench", &place.run(&["completions", "zsh"]).stdout);
    let compinit = "autoload -Uz compinit && compinit -u -D";
    for set_up in [
        format!("{compinit}; source functions/_mcp-workbench"),
        format!("fpath=($PWD/functions $fpath); {compinit}"),
    ] {
        let Some(mut zsh) = shell("zsh", &place) else { return };
        zsh.args(["-f", "-i"]).env("TERM", "dumb");
        let mut terminal = crate::pty::Terminal::start(zsh, crate::pty::ALL);
        // Ctrl-X shows the line that is being edited, and empties it. The quotes keep the echo from being the prompt.
        terminal.press(&format!(
            "{set_up}\nshow() {{ print -r -- \"[[$BUFFER]]\"; BUFFER= }}; zle -N show; bindkey '^X' show\n\
             PROMPT='rea''dy> '\n"
        ));
        terminal.wait_for("ready> ");
        for (line, expected) in [
            ("mcp-workbench conn", "mcp-workbench connect "),
            ("mcp-workbench connect claude-c", "mcp-workbench connect claude-code "),
            ("mcp-workbench remove My", "mcp-workbench remove My\\ Server "),
            ("mcp-workbench call ec", "mcp-workbench call echo "),
            ("mcp-workbench show dev/well/ec", "mcp-workbench show dev/well/echo "),
            ("mcp-workbench --tool-mode=pr", "mcp-workbench --tool-mode=proxy "),
            ("mcp-workbench --config missing.json call ec", "mcp-workbench --config missing.json call ec"),
            ("mcp-workbench import ./func", "mcp-workbench import ./functions/"),
        ] {
            terminal.press(&format!("{line}\t\u{18}")).wait_for("[[");
            assert_eq!(terminal.rest_of_line().trim_end_matches(']'), expected, "{set_up}: {line}");
        }
        terminal.press("exit\n");
        assert_eq!(terminal.end().code, Some(0));
    }
}

#[test]
fn every_shell_has_a_script() {
    let place = Place::workbench(dev("proxy", json!({})));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = place.run(&["completions", shell]).stdout;
        assert!(script.contains("mcp-workbench") && script.contains("complete"), "{shell}: {script}");
    }
}
