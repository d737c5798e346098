//! What a person at a terminal sees and is asked.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{DEADLINE, Lab, dev, fake, fake_with};
use crate::pty::{ALL, Ended, PIPED, Streams, Terminal, WIDTH};

/// A directory with a configuration, and a terminal to run verbs on.
struct Place {
    lab: Lab,
}

const CONFIG: &str = "{\"toolboxes\": {\"dev\": {\"mcpServers\": {\"one\": {\"command\": \"one\"}}}}}\n";

impl Place {
    fn with(config: &Value) -> Self {
        let lab = Lab::new();
        lab.write("workbench-config.json", &lab.fill(&config.to_string()));
        Self { lab }
    }

    fn plain() -> Self {
        let lab = Lab::new();
        lab.write("workbench-config.json", CONFIG);
        Self { lab }
    }

    fn command(&self, args: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = self.lab.command();
        for name in ["NO_COLOR", "LC_ALL", "LC_CTYPE"] {
            command.env_remove(name);
        }
        command.env("TERM", "xterm").env("LANG", "en_GB.UTF-8").envs(variables.iter().copied()).args(args);
        command
    }

    fn start(&self, args: &[&str]) -> Terminal {
        Terminal::start(self.command(args, &[]), ALL)
    }

    fn run(&self, args: &[&str], variables: &[(&str, &str)], streams: Streams) -> Ended {
        let ended = Terminal::start(self.command(args, variables), streams).end();
        self.lab.wait_until_gone(DEADLINE);
        ended
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.lab.dir.join("workbench-config.json")).expect("it is there")
    }
}

#[test]
fn a_change_is_asked_for() {
    let add = ["add", "two", "--", "npx", "two"];
    for (keys, status, written, last) in [
        ("y\n", 0, true, "Wrote ~/workbench-config.json\r\n"),
        ("Yes\n", 0, true, "Wrote ~/workbench-config.json\r\n"),
        ("n\n", 0, false, "Nothing changed.\r\n"),
        ("\n", 0, false, "Nothing changed.\r\n"),
        // Ctrl-D at the beginning of a line is the end of input.
        ("\u{4}", 0, false, "[y/N/d] \r\nNothing changed.\r\n"),
        // Ctrl-C
        ("\u{3}", 130, false, "\r\n"),
    ] {
        let place = Place::plain();
        let mut terminal = place.start(&add);
        terminal.wait_for("Adds two to toolbox `two`\r\n");
        terminal.wait_for("Change ~/workbench-config.json? [y/N/d] ").press(keys);
        let ended = terminal.end();
        assert_eq!((ended.code, ended.signal), (Some(status), None), "{keys:?}: {ended:?}");
        assert_eq!(place.file().contains("\"two\""), written, "{keys:?}");
        assert_eq!(place.file() == CONFIG, !written, "{keys:?}");
        assert!(ended.shown.ends_with(last), "{keys:?}: {ended:?}");
        assert!(!ended.shown.contains("+++"), "the diff only comes if it is wanted: {ended:?}");
    }
}

#[test]
fn a_diff_is_shown_before_the_answer_if_somebody_wants_it() {
    let place = Place::plain();
    let mut terminal = place.start(&["add", "two", "--", "npx", "two"]);
    terminal.wait_for("[y/N/d] ").press("d\n").wait_for("+++ ~/workbench-config.json");
    terminal.wait_for("\u{1b}[32m+").wait_for("[y/N/d] ").press("y\n");
    let ended = terminal.end();
    assert_eq!((ended.code, place.file().contains("\"two\"")), (Some(0), true), "{ended:?}");
}

/// With `--json`, or with stdout in a pipe, the person sees the change all the same, and data stays data.
#[test]
fn what_is_asked_about_is_shown() {
    let place = Place::plain();
    let mut terminal = Terminal::start(place.command(&["add", "two", "--json", "--", "npx"], &[]), PIPED);
    terminal.wait_for("Adds two").wait_for("[y/N/d] ").press("y\n");
    let ended = terminal.end();
    let answer: Value = serde_json::from_str(&ended.stdout).expect("one JSON value");
    assert_eq!((ended.code, &answer["written"]), (Some(0), &json!(true)), "{ended:?}");
    let ended = place.run(&["add", "three", "--yes", "--", "npx"], &[], PIPED);
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.stdout, "");
    assert!(ended.shown.starts_with("Adds three"), "{ended:?}");
    let ended = place.run(&["add", "three", "--yes", "--dry-run", "--", "npx"], &[], PIPED);
    assert!(ended.code == Some(2), "it is there already: {ended:?}");
    let ended = place.run(&["add", "four", "--dry-run", "--", "npx"], &[], PIPED);
    assert!(ended.stdout.contains("+        \"four\"") || ended.stdout.contains("four"), "{ended:?}");
    assert!(!ended.stdout.contains('\u{1b}'), "{ended:?}");
    // A keyboard alone is no terminal to ask on.
    let ended =
        place.run(&["add", "four", "--", "npx"], &[], Streams { stdin: true, stdout: false, stderr: false });
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("add --yes"), "{ended:?}");
}

#[test]
fn colours_and_unicode_only_where_they_can_be_shown() {
    let place = Place::with(&dev(
        "dynamic",
        json!({"well": fake("--with echo"), "ill": fake("--exit 3 --stderr no")}),
    ));
    let utf8 = place.run(&["doctor"], &[], ALL);
    assert_eq!(utf8.code, Some(4), "{utf8:?}");
    for part in ["\u{1b}[32mok    \u{1b}[0m", "\u{1b}[1;31mfailed\u{1b}[0m", "→ see what it wrote"] {
        assert!(utf8.shown.contains(part), "{part}: {utf8:?}");
    }
    let plain = place.run(&["doctor"], &[("NO_COLOR", "1"), ("LANG", "C")], ALL);
    assert!(plain.shown.contains("-> see what it wrote") && plain.shown.is_ascii(), "{plain:?}");
    assert!(!without_spinner(&plain.shown).contains('\u{1b}'), "{plain:?}");
    let dumb = place.run(&["doctor"], &[("TERM", "dumb")], ALL);
    assert!(!dumb.shown.contains('\u{1b}'), "{dumb:?}");
    let piped = place.run(&["doctor"], &[], PIPED);
    assert!(piped.stdout.is_ascii() && !piped.stdout.contains('\u{1b}'), "{piped:?}");
    assert!(piped.stdout.contains("failed  dev/ill"), "{piped:?}");
    let json = place.run(&["list", "tools", "--json"], &[], Streams { stderr: false, ..ALL });
    serde_json::from_str::<Value>(json.shown.trim()).expect("one JSON value");
    // Errors have a colour on a terminal.
    for (variable, word) in [("", "\u{1b}[1;31merror\u{1b}[0m: there is no"), ("1", "error: there is no")] {
        let wrong = place.run(&["call", "ecoh"], &[("NO_COLOR", variable)], ALL);
        assert!(wrong.shown.contains(word), "{wrong:?}");
    }
}

/// What moves is taken away again with these; it may come where a machine is slow.
fn without_spinner(shown: &str) -> String {
    let rest = shown.rsplit("\r\u{1b}[K").next().unwrap_or(shown);
    rest.to_owned()
}

#[test]
fn a_server_that_takes_its_time_is_waited_for_in_sight() {
    for (variables, frame) in
        [(&[][..], "⣾ asking the servers: a 0 s …"), (&[("LC_ALL", "C")], "| asking the servers: a 0 s ...")]
    {
        let place = Place::with(&dev("dynamic", json!({"a": fake("--with echo --wait-for @dir/now")})));
        let mut terminal = Terminal::start(place.command(&["list", "tools"], variables), PIPED);
        terminal.wait_for(frame);
        place.lab.write("now", "");
        let ended = terminal.end();
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(0), "TOOL        DESCRIPTION\ndev/a/echo  Does echo\n")
        );
        assert!(ended.shown.ends_with("\r\u{1b}[K"), "nothing is left of it: {ended:?}");
        place.lab.wait_until_gone(DEADLINE);
    }
    // Not where nobody looks, where somebody wants quiet, nor where nothing is waited for.
    let place = Place::with(&dev("dynamic", json!({"a": fake("--with echo --delay 700")})));
    let nobody = Streams { stdin: true, stdout: true, stderr: false };
    for (args, streams) in [
        (&["list", "tools", "--fresh"][..], nobody),
        (&["list", "tools", "--fresh", "-q"], PIPED),
        (&["list", "toolboxes"], PIPED),
    ] {
        let ended = place.run(args, &[], streams);
        let on_stderr = if streams.stderr { &ended.shown } else { &ended.stderr };
        assert_eq!((ended.code, on_stderr.as_str()), (Some(0), ""), "{args:?}");
    }
    let mut terminal = Terminal::start(place.command(&["doctor"], &[]), PIPED);
    terminal.wait_for("starting the servers: a 0 s …");
    assert_eq!(terminal.end().code, Some(0));
}

#[test]
fn progress_is_a_bar() {
    let place = Place::with(&dev("dynamic", json!({"a": fake("--with progress")})));
    for (variables, parts) in [
        (
            &[][..],
            [format!("[{}{}]  33 %", "█".repeat(10), "░".repeat(20)), format!("[{}] 100 %", "█".repeat(30))],
        ),
        (
            &[("LANG", "C")],
            [format!("[{}{}]  33 %", "#".repeat(10), "-".repeat(20)), format!("[{}] 100 %", "#".repeat(30))],
        ),
    ] {
        let mut terminal = Terminal::start(place.command(&["call", "progress", "n=3"], variables), PIPED);
        for part in &parts {
            terminal.wait_for(part);
        }
        let ended = terminal.end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "progress\n"), "{ended:?}");
        assert!(ended.shown.ends_with("\r\u{1b}[K"), "{ended:?}");
    }
}

#[test]
fn questions_of_a_server_are_asked_here() {
    let place = Place::with(&dev("dynamic", json!({"a": fake("--with ask")})));
    let schema = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "description": "Your name"},
        "size": {"type": "integer", "title": "How large"},
        "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
    }});
    let question = json!({"message": "Who is \u{1b}[31mthere?", "requestedSchema": schema}).to_string();
    let args = json!({"method": "elicitation/create", "params": question}).to_string();
    let start = || Terminal::start(place.command(&["call", "ask", "--args", &args], &[]), PIPED);
    let answered = |terminal: Terminal| -> Value {
        let ended = terminal.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.shown.contains("\u{1b}[31m"), "a server does not command the terminal: {ended:?}");
        serde_json::from_str(ended.stdout.trim()).expect("what it was answered")
    };

    let mut terminal = start();
    terminal.wait_for("Who is").wait_for("Answer it? [y/N] ").press("y\n");
    // In the order of the alphabet: JSON objects have none of their own.
    terminal.wait_for("colour (red or green) [red]: ").press("blue\n").wait_for("choose red or green");
    terminal.wait_for("colour (red or green) [red]: ").press("\n");
    terminal.wait_for("name (Your name): ").press("\n").wait_for("the server needs it");
    terminal.wait_for("name (Your name): ").press("@Ada\n");
    terminal.wait_for("size (How large): ").press("x\n").wait_for("must be a whole number");
    terminal.wait_for("size (How large): ").press("7\n");
    let content = json!({"colour": "red", "name": "@Ada", "size": 7});
    assert_eq!(answered(terminal)["result"], json!({"action": "accept", "content": content}));

    for (keys, action) in [("n\n", "decline"), ("\n", "decline"), ("\u{4}", "cancel")] {
        let mut terminal = start();
        terminal.wait_for("Answer it? [y/N] ").press(keys);
        assert_eq!(answered(terminal)["result"], json!({"action": action}), "{keys:?}");
    }
    let mut terminal = start();
    terminal.wait_for("Answer it? [y/N] ").press("\u{3}");
    let ended = terminal.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.shown.contains("interrupted"), "{ended:?}");
    place.lab.wait_until_gone(DEADLINE);
}

#[test]
fn tables_end_where_the_terminal_does() {
    let long = format!(
        r#"{{"name":"long","description":"{}","inputSchema":{{"type":"object"}}}}"#,
        "word ".repeat(40)
    );
    let place = Place::with(&dev("dynamic", json!({"a": fake_with("", &["--tool", &long])})));
    let ended = place.run(&["list", "tools"], &[], Streams { stderr: false, ..ALL });
    let lines: Vec<&str> = ended.shown.lines().collect();
    assert_eq!(lines[0], "\u{1b}[1mTOOL        DESCRIPTION\u{1b}[0m");
    assert!(lines[1].ends_with('…') && lines[1].chars().count() == usize::from(WIDTH), "{ended:?}");
    let piped = place.run(&["list", "tools"], &[], PIPED);
    assert!(piped.stdout.lines().nth(1).is_some_and(|line| line.len() > 200), "{piped:?}");
}

/// Messages wrap between words where the terminal ends; a pipe gets them whole.
#[test]
fn messages_wrap_at_words() {
    let place = Place::plain();
    let ended = place.run(&["connect", "emacs"], &[("NO_COLOR", "1")], ALL);
    let lines: Vec<&str> = ended.shown.lines().collect();
    assert!(lines.len() > 2 && lines.iter().all(|line| line.len() <= usize::from(WIDTH)), "{ended:?}");
    let piped = place.run(&["connect", "emacs"], &[], Streams { stderr: false, ..ALL });
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&ended.shown), words(&piped.stderr));
    assert_eq!(piped.stderr.lines().count(), 2, "{piped:?}");
}

/// Ctrl-C ends whatever waits, with the status that shells expect.
#[test]
fn ctrl_c_exits_with_130() {
    let place = Place::with(&dev("dynamic", json!({"a": fake("--with echo --wait-for @dir/never")})));
    for args in [&["list"][..], &["doctor"], &["search", "x"], &["tokens"], &["show", "x"], &["call", "x"]] {
        let mut terminal = place.start(args);
        terminal.wait_for(": a 0 s").press("\u{3}");
        let ended = terminal.end();
        assert_eq!((ended.code, ended.signal), (Some(130), None), "{args:?}: {ended:?}");
        assert!(ended.shown.contains("interrupted"), "{args:?}: {ended:?}");
        place.lab.wait_until_gone(DEADLINE);
    }
}

#[test]
fn without_a_verb_it_says_what_it_is() {
    let place = Place::plain();
    let mut terminal = place.start(&[]);
    terminal.wait_for("This is an MCP server").press("\u{4}");
    assert_eq!(terminal.end().code, Some(0));
    let mut quiet = place.start(&["-q"]);
    quiet.press("\u{4}");
    let ended = quiet.end();
    assert!(ended.code == Some(0) && !ended.shown.contains("MCP server"), "{ended:?}");
    let empty = Lab::new();
    let place = Place { lab: empty };
    let ended = place.run(&[], &[], ALL);
    assert_eq!(ended.code, Some(2));
    for part in ["`mcp-workbench init`", "mcp-workbench demo", "mcp-workbench --help"] {
        assert!(ended.shown.contains(part), "{part}: {ended:?}");
    }
}
