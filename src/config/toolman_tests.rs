use super::load_toolman;
use crate::config::*;
use std::path::Path;

fn environment(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("s3cr3t; token".into()),
        "HOME" => Some("/home/u".into()),
        _ => None,
    }
}

fn load(text: &str) -> Result<(Toolman, Vec<Problem>), Vec<Problem>> {
    load_toolman(Path::new("/etc/toolman/tools.toml"), text.as_bytes(), &Inputs::of(&environment))
}

fn valid(text: &str) -> Toolman {
    match load(text) {
        Ok((toolman, warnings)) => {
            assert_eq!(warnings, [], "{text}");
            toolman
        }
        Err(problems) => panic!("{text}\n{problems:#?}"),
    }
}

/// Problems as `line:column path: message (hint)`, with warnings marked.
fn problems(text: &str) -> Vec<String> {
    let problems = load(text).map_or_else(|problems| problems, |(_, warnings)| warnings);
    let line = |problem: &Problem| {
        let Problem { line, column, path, message, hint, .. } = problem;
        let mark = if problem.is_error() { "" } else { "warning " };
        let shown = problem.render(false);
        assert!(!shown.contains("s3cr3t") && !shown.contains("hushhush"), "{shown}");
        format!("{mark}{line}:{column} {path}: {message} ({hint})")
    };
    problems.iter().map(line).collect()
}

/// The program, arguments and environment of the only server.
fn command(rest: &str) -> (String, Vec<String>, Vec<(String, String)>) {
    let toolman = valid(&format!("[[servers]]\nnamespace = \"a\"\n{rest}"));
    let Transport::Stdio(command) = &toolman.servers[0].transport else { panic!("{rest}") };
    let env = command.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
    (command.program.clone(), command.args.clone(), env)
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn secrets_of_a_command_are_known_to_the_redactor() {
    for command in [
        "npx x --api-key literal-key 'postgres://u:p4ssw0rd@h/db'",
        "API_KEY=literal-key npx x --db \\\"postgres://u:p4ssw0rd@h/db\\\"",
        "cd /srv && npx x --api-key=literal-key --db 'postgres://u:p4ssw0rd@h/db' | tee log",
        "API_KEY=literal-key; npx postgres://u:p4ssw0rd@h/db;",
    ] {
        let toolman = valid(&format!("[[servers]]\nnamespace = \"a\"\ncommand = \"{command}\"\n"));
        let redacted = toolman.common.secrets.redact("literal-key p4ssw0rd").into_owned();
        assert_eq!(redacted, "${API_KEY} ${PASSWORD}", "{command}");
    }
}

#[test]
fn a_file_of_another_client_is_recognised() {
    for (text, whose) in [
        ("[mcp_servers.a]\ncommand = \"x\"\n", "Codex's `mcp_servers`"),
        ("[mcpServers.a]\ncommand = \"x\"\n", "`mcpServers`"),
    ] {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(whose) && found[0].contains("toolman has `[[servers]]`"), "{found:?}");
    }
}

#[test]
fn the_documented_file() {
    let toolman = valid(
        r#"active_toolsets = ["pjpd_*", "files_read*", "pjpd_projects://*"]
resource_separator = "+"
remember = true
startup_wait = 0
offload_over = "auto"
search = true
names = "exact"
max_name_length = 128
max_message_bytes = 1_000
question_timeout = 1.5
session_idle_timeout = 60
max_body_bytes = 10
state_key = "0123456789abcdef0123456789abcdef"

[[servers]]
namespace = "zz"
command = "uvx pjpd-server --data ."
env = { A = "b", N = 5, B = true }
cwd = "sub"
restart = true
connect_timeout = 5
call_timeout = 0.5
max_call_time = 7
inherit_env = ["X"]
isolation = "session"
start = "call"
idle_timeout = 2.5
offload_over = 0

[[servers]]
namespace = ""
url = "http://127.0.0.1:9000/mcp"
transport = "sse"
[servers.headers]
Authorization = "Bearer ${TOKEN}"

[[servers]]
namespace = "off"
command = "x"
disabled = true

[[auth.tokens]]
name = "ci"
token = "${TOKEN}"
namespaces = ["zz", ""]
"#,
    );
    assert_eq!(toolman.active_toolsets.len(), 3);
    assert_eq!(
        (toolman.resource_separator.as_deref(), toolman.remember, toolman.search),
        (Some("+"), true, true)
    );
    assert_eq!((toolman.startup_wait, toolman.common.naming.max_length), (Duration::ZERO, Some(128)));
    assert_eq!((toolman.common.naming.rule, toolman.common.max_message_bytes), (NameRule::Exact, 1000));
    assert_eq!(toolman.common.question_timeout, Duration::from_millis(1500));
    let serving = &toolman.common.serving;
    assert_eq!((serving.max_body_bytes, serving.session_idle_timeout), (10, Duration::from_secs(60)));
    assert_eq!(serving.tokens[0].scope, Some(vec!["zz".to_owned(), String::new()]));
    assert_eq!(toolman.servers.len(), 2);
    let [first, second] = [&toolman.servers[0], &toolman.servers[1]];
    assert_eq!(
        (first.namespace.as_str(), first.restart, first.isolation),
        ("zz", true, Some(Isolation::Session))
    );
    assert_eq!((first.running.start, second.running.start), (Some(Start::Call), None));
    let idle = [first, second].map(|server| server.running.longest_idle());
    assert_eq!(idle, [Some(Duration::from_millis(2500)), None]);
    assert_eq!((toolman.common.offload_over, second.offload_over), (ByteLimit::Auto, ByteLimit::Auto));
    assert_eq!(first.offload_over, ByteLimit::None);
    assert_eq!(first.timeouts.connect, Duration::from_secs(5));
    assert_eq!(first.timeouts.call, Some(Duration::from_millis(500)));
    assert_eq!(first.timeouts.max_call, Some(Duration::from_secs(7)));
    let Transport::Stdio(command) = &first.transport else { panic!() };
    assert_eq!((command.program.as_str(), command.args.len()), ("uvx", 3));
    assert_eq!(command.cwd.as_deref(), Some(Path::new("/etc/toolman/sub")));
    assert_eq!(command.inherit_env, ["X"]);
    let env: Vec<_> = command.env.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(env, [("A", "b"), ("N", "5"), ("B", "true")]);
    let Transport::Http(http) = &second.transport else { panic!() };
    assert_eq!((http.sse, http.headers[0].1.expose()), (true, "Bearer s3cr3t; token"));
    assert_eq!(toolman.common.secrets.redact("s3cr3t; token"), "${TOKEN}");
}

#[test]
fn defaults_are_those_of_the_contract() {
    let toolman = valid("");
    assert_eq!((toolman.active_toolsets.len(), toolman.servers.len()), (0, 0));
    assert_eq!(
        (toolman.resource_separator.as_deref(), toolman.remember, toolman.search),
        (None, false, false)
    );
    assert_eq!(toolman.startup_wait, Duration::from_secs(5));
    let toolman = valid(locate::FaceKind::Toolman.minimal_file());
    assert!(!toolman.servers[0].restart);
    assert_eq!(toolman.servers[0].running.longest_idle(), None);
}

#[test]
fn commands() {
    for (text, program, args, env) in [
        ("command = 'npx -y \"a b\"'", "npx", &["-y", "a b"][..], &[][..]),
        ("command = 'x ${TOKEN} ${NONE:-d e}'", "x", &["s3cr3t; token", "d e"], &[]),
        (
            "command = 'A=1 B=${TOKEN} x'\nenv = { A = 'old', C = 'c' }",
            "x",
            &[],
            &[("C", "c"), ("A", "1"), ("B", "s3cr3t; token")],
        ),
        ("command = 'x *'\nshell = false", "x", &["*"], &[]),
    ] {
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        assert_eq!(command(text), (program.to_owned(), args, pairs(env)), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn commands_for_a_shell() {
    for (text, line, env) in [
        ("command = '~/x | y'", "~/x | y", &[][..]),
        ("command = 'x'\nshell = true", "x", &[]),
        // The shell expands variables, from the server's own and those of ours that the command mentions.
        (
            "command = 'A=1 x; $HOME ${TOKEN} $NONE'",
            "A=1 x; $HOME ${TOKEN} $NONE",
            &[("HOME", "/home/u"), ("TOKEN", "s3cr3t; token")],
        ),
        ("command = 'x; ${TOKEN}'\nenv = { TOKEN = 'mine' }", "x; ${TOKEN}", &[("TOKEN", "mine")]),
    ] {
        let args = vec!["-c".to_owned(), line.to_owned()];
        assert_eq!(command(text), ("sh".to_owned(), args, pairs(env)), "{text}");
    }
}

#[test]
fn everything_wrong_is_told_at_once() {
    let cases: &[(&str, &[&str])] = &[
        (
            "a = ",
            &[
                "1:5 : string values must be quoted, expected literal string (see https://toml.io for what TOML allows)",
            ],
        ),
        ("a = 1\na = 2", &["2:1 : duplicate key (see https://toml.io for what TOML allows)"]),
        (
            "servers = 5",
            &[
                r#"1:11 servers: expected a list, found the number 5 (put the values in square brackets: `["…", "…"]`)"#,
            ],
        ),
        (
            "[servers]\nnamespace = 'x'",
            &["1:2 servers: expected a list, found a table (write `[[servers]]` for each)"],
        ),
        (
            "[[servers]]\n",
            &[
                r#"1:1 servers[0]: the server has no `namespace` (add `namespace = "…"`; it may be empty)"#,
                "1:1 servers[0]: the server has neither `command` nor `url` (add `command` for a program to start, or `url` for a server that runs already)",
            ],
        ),
        (
            "[[server]]\nnamespace = 'x'\ncommand = 'y'",
            &["1:3 server: unknown key `server` (did you mean `servers`?)"],
        ),
        (
            "maxNameLength = 5",
            &["1:1 maxNameLength: unknown key `maxNameLength` (did you mean `max_name_length`?)"],
        ),
        (
            "max_name_length = 5\nnames = 'x'",
            &[
                "1:19 max_name_length: expected a whole number of at least 10, found the number 5 (the smallest possible value is 10)",
                r#"2:9 names: expected `safe` or `exact`, found the string "x" (use one of these)"#,
            ],
        ),
        (
            "active_toolsets = 'x'",
            &[
                r#"1:19 active_toolsets: expected a list, found the string "x" (put the values in square brackets: `["…", "…"]`)"#,
            ],
        ),
        (
            "active_toolsets = ['a', 1979-05-27]",
            &["1:25 active_toolsets[1]: expected a string, found a date (put the value in double quotes)"],
        ),
        (
            "resource_separator = ''",
            &[
                "1:22 resource_separator: expected `_`, `+` or other characters that a URI scheme may have, found an empty string (use `+` for strict clients)",
            ],
        ),
        (
            "resource_separator = '/'",
            &[
                r#"1:22 resource_separator: expected `_`, `+` or other characters that a URI scheme may have, found the string "/" (use `+` for strict clients)"#,
            ],
        ),
        (
            "startup_wait = -1",
            &[
                "1:16 startup_wait: expected a number of seconds greater than 0, found the number -1 (leave the key out for the default)",
            ],
        ),
        (
            "startup_wait = 'x'",
            &[
                r#"1:16 startup_wait: expected a number of seconds greater than 0, found the string "x" (write it without quotes and without a unit)"#,
            ],
        ),
        (
            "remember = 1",
            &["1:12 remember: expected `true` or `false`, found the number 1 (write it without quotes)"],
        ),
        (
            "[[servers]]\nnamespace = 'a'\ncommand = 'x'\nurl = 'http://h'",
            &[
                "4:1 servers[0].url: the server has both `command` and `url` (keep `command` for a program to start, or `url` for a server that runs already)",
            ],
        ),
        (
            "[[servers]]\nnamespace = 'a'\ncommand = 'x'\ntransport = 'http'",
            &[
                "4:13 servers[0].transport: a server with `command` speaks `stdio` (remove `transport`, or give `url` in place of `command`)",
            ],
        ),
        (
            "[[servers]]\nnamespace = 'a'\nurl = 'http://h'\nenv = { A = 'hushhush' }\nshell = true",
            &[
                "warning 4:1 servers[0].env: `env` has no effect beside `url` (remove it)",
                "warning 5:1 servers[0].shell: `shell` has no effect beside `url` (remove it)",
            ],
        ),
        (
            "[[servers]]\nnamespace = 'a'\ncommand = 'x ${NONE} ${TOKEN} ${ALSO}'",
            &[
                "3:14 servers[0].command: the environment variable NONE is not set (set NONE before starting, or give a default: `${NONE:-default}`)",
                "3:31 servers[0].command: the environment variable ALSO is not set (set ALSO before starting, or give a default: `${ALSO:-default}`)",
            ],
        ),
        (
            "[[servers]]\nnamespace = 'a'\ncommand = \"x \\t ${NONE} hushhush\"",
            &[
                "3:11 servers[0].command: the environment variable NONE is not set (set NONE before starting, or give a default: `${NONE:-default}`)",
            ],
        ),
        (
            "[[servers]]\nnamespace = 'a'\ncommand = 'x ${NONE'",
            &[
                "3:14 servers[0].command: `${NONE` is not closed (write `${NONE}`, or `$${NONE` for that very text)",
            ],
        ),
        (
            "[[servers]]\nnamespace = 'a'\ncommand = 'x \"y'",
            &["3:14 servers[0].command: this quote is not closed (close it, or write a backslash before it)"],
        ),
        (
            "[[servers]]\nnamespace = 'a'\ncommand = ''\ncwd = 5\ntimeout = 5\nenv = { A = '${NONE} hushhush' } # hushhush",
            &[
                "3:1 servers[0].command: `command` names no program (name the program to start, such as `npx`)",
                "4:7 servers[0].cwd: expected a string, found the number 5 (put the value in double quotes)",
                "5:1 servers[0].timeout: unknown key `timeout` (remove it; known here: `namespace`, `command`, `url`, `env`, `cwd`, `restart`, `shell`, `headers`, `oauth`, `transport`, `type`, `disabled`, `connect_timeout`, `start_timeout`, `call_timeout`, `max_call_time`, `inherit_env`, `isolation`, `start`, `idle_timeout` and `offload_over`)",
                "6:14 servers[0].env.A: the environment variable NONE is not set (set NONE before starting, or give a default: `${NONE:-default}`)",
            ],
        ),
        (
            "[[servers]]\nnamespace = 'a'\ncommand = 'A=1'",
            &[
                "3:1 servers[0].command: `command` names no program (name the program to start, such as `npx`)",
            ],
        ),
        (
            "[[servers]]\nnamespace = 'a'\ncommand = 'x'\nrestart = 'yes'\nconnect_timeout = 0\n[servers.env]\nA = ['hushhush']",
            &[
                r#"4:11 servers[0].restart: expected `true` or `false`, found the string "yes" (write it without quotes)"#,
                "5:19 servers[0].connect_timeout: expected a number of seconds greater than 0, found the number 0 (leave the key out for the default)",
                "7:1 servers[0].env.A: expected a string, found a list (put the value in double quotes)",
            ],
        ),
        (
            "[[servers]]\nnamespace = \"a\\u0007\"\ncommand = ['x']",
            &[
                "2:13 servers[0].namespace: a namespace may not contain control characters (give it a readable name)",
                "3:1 servers[0].command: expected a string, found a list (put the value in double quotes)",
            ],
        ),
        (
            "[[servers]]\nnamespace = 'a'\ncommand = 'x'\n[[auth.tokens]]\nname = 'n'\ntoken = 'hushhush'\nnamespaces = ['b']\n[[auth.tokens]]\nname = 'm'\ntoken = ''",
            &[
                "7:15 auth.tokens[0].namespaces[0]: `b` is not configured in this file (remove it; known here: `a`)",
                "10:9 auth.tokens[1].token: `token` is empty (give it a value, or remove the entry)",
            ],
        ),
        (
            "[[servers]]\nnamespace = 'a'\nenv = { KEY = \"hushhush }",
            &["3:26 : unclosed inline table, expected `}` (see https://toml.io for what TOML allows)"],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(problems(text), *expected, "{text}");
    }
    let bytes = load_toolman(Path::new("x.toml"), b"a = \"\xff\"", &Inputs::of(&environment));
    assert_eq!(bytes.expect_err("not UTF-8")[0].message, "this is not UTF-8");
}

/// No secret is ever printed, whatever is wrong beside it; `problems` checks for them.
#[test]
fn never_show_secrets() {
    let sound = r#"state_key = "hushhush-hushhush-hushhush-hushhush" # hushhush
[[servers]]
namespace = "a"
command = "KEY=hushhush x ${TOKEN}"
env = { A = "hushhush", B = 'hushhush' }
[[servers]]
namespace = "b"
url = "http://u:hushhush@h/?k=hushhush"
headers = { X = "hushhush" }
[[auth.tokens]]
name = "n"
token = "hushhush-token"
"#;
    assert_eq!(problems(sound), [""; 0]);
    for (at, _) in sound.match_indices(['"', '\'', ',', ':', '{', '}', '[', ']', '$', '=', '\n']) {
        for replacement in ["", "5", "[", "\"", ",", "x = ", "${NONE}", "\n"] {
            problems(&format!("{}{replacement}{}", &sound[..at], &sound[at + 1..]));
        }
    }
}
