//! `tools.toml`: where it is, what is wrong with it, and what becomes of its command strings.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::{Finished, Gateway, Lab, VERSION, command, gateway_path, server, toolman_path};

/// Both ways to this face.
fn ways() -> [(PathBuf, &'static [&'static str]); 2] {
    [(toolman_path(), &[]), (gateway_path(), &["--face", "toolman"])]
}

#[test]
fn no_file_is_exit_2_with_a_minimal_file_that_works() {
    for (program, arguments) in ways() {
        let lab = Lab::new();
        let finished = lab.run(lab.program(&program).args(arguments));
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{finished:?}");
        for part in ["tools.toml", "toolman init", "[[servers]]", "namespace = ", "command = "] {
            assert!(finished.stderr.contains(part), "{part} is missing: {}", finished.stderr);
        }
        let example = finished.stderr.split_once("active_toolsets").expect("an example").1;
        lab.write("tools.toml", &format!("active_toolsets{example}"));
        let checked = lab.run(lab.program(&program).args(arguments).arg("check"));
        assert_eq!(checked.code, Some(0), "{checked:?}");
    }
}

#[test]
fn a_file_named_and_not_there_is_exit_2() {
    let lab = Lab::new();
    let finished = lab.run(lab.program(&toolman_path()).args(["--config", "none.toml"]));
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("none.toml"), "{}", finished.stderr);
}

#[test]
fn the_file_is_the_named_one_or_that_of_the_directory_or_the_users_own() {
    let of = |lab: &Lab, namespace: &str| lab.fill(&server(namespace, "--with echo", ""));
    for (files, arguments, expected) in [
        (
            &["named.toml", "tools.toml", "xdg-config/toolman/tools.toml"][..],
            &["--config", "named.toml"][..],
            "named",
        ),
        (&["tools.toml", "xdg-config/toolman/tools.toml"], &[], "tools"),
        (&["xdg-config/toolman/tools.toml"], &[], "xdg-config"),
    ] {
        for (program, face) in ways() {
            let lab = Lab::new();
            std::fs::create_dir_all(lab.dir.join("xdg-config/toolman")).expect("the directory is ours");
            for file in files {
                let namespace = file.split(['.', '/']).next().expect("a name");
                lab.write(file, &of(&lab, namespace));
            }
            let mut gateway = Gateway::run_in(lab, &program, |command| {
                command.args(face).args(arguments);
            });
            gateway.initialize(VERSION);
            let catalog = gateway.catalog();
            assert!(catalog.contains(&format!("\n{expected}_echo")), "{catalog}");
        }
    }
}

#[test]
fn what_is_wrong_with_a_file_is_told_in_one_run_and_nothing_starts() {
    let text = "active_toolset = [\"*\"]\nstartup_wait = -1\n".to_owned()
        + &server("a", "--count @dir/starts ${MISSING}", "restart = 1")
        + "[[servers]]\nnamespace = \"b\"\n";
    for verb in [None, Some("check")] {
        let lab = Lab::new();
        lab.write("tools.toml", &lab.fill(&text));
        let finished = lab.run(lab.program(&toolman_path()).args(verb));
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{finished:?}");
        for part in [
            "~/tools.toml:1:1",
            "did you mean `active_toolsets`?",
            "at: startup_wait",
            "MISSING",
            "at: servers[0].command",
            "at: servers[0].restart",
            "neither `command` nor `url`",
            "5 errors",
        ] {
            assert!(finished.stderr.contains(part), "{part} is missing: {}", finished.stderr);
        }
        assert_eq!(lab.starts("starts"), 0);
    }
}

fn check(text: &str, arguments: &[&str]) -> Finished {
    let lab = Lab::new();
    lab.write("tools.toml", &lab.fill(text));
    lab.run(lab.program(&toolman_path()).arg("check").args(arguments))
}

#[test]
fn check_is_offline_and_has_a_form_for_programs() {
    let sound = server("a", "--exit 1", "");
    let finished = check(&sound, &[]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    assert!(finished.stdout.contains("ok, 1 server"), "{}", finished.stdout);
    let finished = check("namespace = 1", &["--json"]);
    let answer: Value = serde_json::from_str(&finished.stdout).expect("one JSON value");
    assert_eq!((finished.code, &answer["ok"]), (Some(2), &json!(false)));
    assert_eq!(
        (&answer["problems"][0]["line"], &answer["problems"][0]["path"]),
        (&json!(1), &json!("namespace"))
    );
}

/// What the only server, started by this command with these lines in its entry, says of itself.
fn report(text: &str, more: &str) -> Value {
    let config = format!("active_toolsets = [\"*\"]\n{}", command("a", text, more));
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |command| {
        command.env("EVIL", "a  b; touch @dir/evil $(touch evil) `x` 'q\" *").env("PLAIN", "plain");
    });
    gateway.initialize(VERSION);
    let report = gateway.call("a_report", "{}").json();
    assert!(!gateway.lab.dir.join("evil").exists(), "a value became syntax");
    report
}

const EVIL: &str = "a  b; touch @dir/evil $(touch evil) `x` 'q\" *";

#[test]
fn plain_words_are_run_without_a_shell() {
    let run = |words: &str| format!("@fake --with report --marker @marker --instructions {words}");
    for (words, expected) in [
        ("word", "word"),
        ("'one word'", "one word"),
        (r#"one\ "word"' too'"#, "one word too"),
        ("''", ""),
        ("';|&<>~*?[$HOME`'", ";|&<>~*?[$HOME`"),
        ("${EVIL}", EVIL),
        ("\"${EVIL}\"", EVIL),
        ("x${PLAIN}y", "xplainy"),
        ("${NOT_SET:-a b;c}", "a b;c"),
    ] {
        let argv = report(&run(words), "")["argv"].clone();
        let argv = argv.as_array().expect("a list");
        assert_eq!(argv.last().expect("the last word"), expected, "{words}");
        assert_eq!(argv.len(), 7, "{words}");
    }
}

#[cfg(unix)]
#[test]
fn shell_syntax_is_run_by_a_shell_and_values_do_not_become_syntax_there_either() {
    for (text, expected) in [
        ("true && exec @fake --with report --marker @marker --instructions \"${EVIL}\"", EVIL),
        ("exec @fake --with report --marker @marker --instructions \"$PLAIN\" 2>/dev/null", "plain"),
        ("exec @fake --with report --marker @marker --instructions $(echo inner)", "inner"),
        ("exec @fake --with report --marker @marker --instructions \"${NOT_SET:-a b}\" 2>&1", "a b"),
        ("cd /; exec @fake --with report --marker @marker --instructions ~", "HOME"),
    ] {
        let report = report(text, "");
        let expected = if expected == "HOME" { report["env"]["HOME"].clone() } else { json!(expected) };
        assert_eq!(*report["argv"].as_array().expect("a list").last().expect("a word"), expected, "{text}");
    }
}

#[cfg(unix)]
#[test]
fn shell_true_and_false_force_one_or_the_other() {
    let fake = "@fake --with report --marker @marker --instructions";
    let argv = |text: &str, more: &str| report(text, more)["argv"].clone();
    assert_eq!(argv(&format!("{fake} *"), "shell = false")[6], "*");
    assert_eq!(argv(&format!("{fake} $PLAIN"), "shell = false")[6], "$PLAIN");
    let forced = argv(&format!("exec {fake} ${{EVIL}}x"), "shell = true\nenv = { EVIL = 'one' }");
    assert_eq!(forced[6], "onex", "the server's own environment comes first");
}

#[test]
fn assignments_become_environment_and_win_over_env() {
    let text = "ONE=1 TWO='a b' THREE=${PLAIN} @fake --with report --marker @marker";
    let env = report(text, "env = { ONE = 'old', FOUR = 4 }\ninherit_env = ['EVIL']")["env"].clone();
    for (name, expected) in [
        ("ONE", json!("1")),
        ("TWO", json!("a b")),
        ("THREE", json!("plain")),
        ("FOUR", json!("4")),
        ("EVIL", json!(EVIL)),
        ("PLAIN", Value::Null),
    ] {
        assert_eq!(env[name], expected, "{name}");
    }
}

#[test]
fn cwd_is_relative_to_the_file() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.dir.join("project/sub")).expect("the directory is ours");
    let config = format!("active_toolsets = [\"*\"]\n{}", server("a", "--with report", "cwd = \"sub\""));
    lab.write("project/tools.toml", &lab.fill(&config));
    let expected = lab.dir.join("project/sub");
    let mut gateway = Gateway::run_in(lab, &toolman_path(), |command| {
        command.args(["--config", "project/tools.toml"]);
    });
    gateway.initialize(VERSION);
    assert_eq!(gateway.call("a_report", "{}").json()["cwd"], json!(expected));
}

#[test]
fn variables_of_the_environment_are_not_shown_when_a_server_fails() {
    let config = server("a", "--exit 3 --stderr ${PASSWORD}", "");
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |command| {
        command.env("PASSWORD", "hushhush");
    });
    gateway.initialize(VERSION);
    assert_eq!(gateway.tools(), ["toolman_activate"]);
    let stderr = gateway.stderr_with("${PASSWORD}");
    assert!(!stderr.contains("hushhush"), "{stderr}");
}
