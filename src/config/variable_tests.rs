//! Tests of variables that are not set, and of files that set them, in both formats.

use super::*;
use std::path::Path;

fn environment(name: &str) -> Option<String> {
    (name == "SET").then(|| "from-environment".to_owned())
}

/// Reads the files beside the configuration.
fn read(path: &Path) -> io::Result<EnvFile> {
    let (text, others) = match path.to_str().expect("UTF-8").strip_prefix("/etc/mcp/").expect("below it") {
        "a.env" => ("KEY=from-a\nSET=from-file\nTWICE=1\nTWICE=2", Access::None),
        "b.env" => ("KEY=from-b\nOTHER=from-b", Access::None),
        "wrong.env" => ("KEY=s3cr3t\ns3cr3t nonsense\n\n'", Access::None),
        "readable.env" => ("KEY=x", Access::Read),
        "writable.env" => ("KEY=x", Access::Write),
        "latin.env" => {
            return Ok(EnvFile { bytes: b"KEY=\xff".to_vec(), others: Access::None, committable: false });
        }
        "committed.env" => ("", Access::None),
        "closed.env" => return Err(io::ErrorKind::PermissionDenied.into()),
        _ => return Err(io::ErrorKind::NotFound.into()),
    };
    Ok(EnvFile { bytes: text.into(), others, committable: path.ends_with("committed.env") })
}

fn inputs<'a>() -> Inputs<'a> {
    Inputs { environment: &environment, read: &read, skip_missing: false }
}

/// The program of each server, or what it lacks, and all problems as `path: message`, with warnings marked.
fn loaded(text: &str, inputs: &Inputs<'_>) -> (Vec<String>, Vec<String>) {
    let (transports, problems): (Vec<_>, _) = if text.starts_with('{') {
        let loaded = load(Path::new("/etc/mcp/workbench-config.json"), text.as_bytes(), inputs);
        let (config, problems) = loaded.map_or_else(|wrong| (None, wrong), |(config, of)| (Some(config), of));
        let servers = config.iter().flat_map(|config| &config.toolboxes).flat_map(|toolbox| &toolbox.servers);
        (servers.map(|server| server.transport.clone()).collect(), problems)
    } else {
        let loaded = load_toolman(Path::new("/etc/mcp/tools.toml"), text.as_bytes(), inputs);
        let (config, problems) = loaded.map_or_else(|wrong| (None, wrong), |(config, of)| (Some(config), of));
        let servers = config.iter().flat_map(|config| &config.servers);
        (servers.map(|server| server.transport.clone()).collect(), problems)
    };
    let transport = |transport: &Transport| match transport {
        Transport::Stdio(command) => {
            format!("{} {}", command.program, command.args.join(" ")).trim_end().to_owned()
        }
        Transport::Http(http) => http.url.clone(),
        Transport::Unset(unset) => format!("{}: {unset}", unset.transport),
    };
    let problem = |problem: &Problem| {
        assert!(!problem.render(false).contains("s3cr3t"), "{problem:?}");
        let mark = if problem.is_error() { "" } else { "warning " };
        format!("{mark}{}: {}", problem.path, problem.message)
    };
    (transports.iter().map(transport).collect(), problems.iter().map(problem).collect())
}

fn check(text: &str, transports: &[&str], problems: &[&str]) {
    let (found, told) = loaded(text, &inputs());
    assert_eq!((found, told), (owned(transports), owned(problems)), "{text}");
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A workbench with these settings and servers.
fn workbench(settings: &str, servers: &str) -> String {
    format!(r#"{{{settings} "toolboxes": {{"dev": {{"mcpServers": {{{servers}}}}}}}}}"#)
}

const SKIP: &str = r#""onMissingVariable": "skip","#;

#[test]
fn a_server_may_be_skipped_for_want_of_a_variable() {
    let servers = r#""api": {"command": "x", "env": {"K": "${NONE}"}}, "other": {"command": "y"}"#;
    let unset = "toolboxes.dev.mcpServers.api.env.K: the environment variable NONE is not set";
    check(&workbench("", servers), &[], &[unset]);
    check(&workbench(r#""onMissingVariable": "error","#, servers), &[], &[unset]);
    let warning = format!("warning {unset}");
    let skipped = "stdio: the environment variable NONE is not set";
    check(&workbench(SKIP, servers), &[skipped, "y"], &[&warning]);
    let lenient = Inputs { skip_missing: true, ..inputs() };
    let (found, told) = loaded(&workbench("", servers), &lenient);
    assert_eq!((found, told), (owned(&[skipped, "y"]), vec![warning]));
}

#[test]
fn whatever_part_of_a_server_needs_a_variable() {
    for (server, lacking) in [
        (r#"{"command": "${A}"}"#, "stdio: the environment variable A is not set"),
        (
            r#"{"command": "x", "args": ["${A}", "${B}", "${A}"]}"#,
            "stdio: the environment variables A and B are not set",
        ),
        (
            r#"{"command": "x", "cwd": "${C}", "args": ["${A}", "${B}"]}"#,
            "stdio: the environment variables C, A and B are not set",
        ),
        (r#"{"command": "x", "toolFilters": ["${A}"]}"#, "stdio: the environment variable A is not set"),
        (r#"{"command": "x", "isolation": "${A}"}"#, "stdio: the environment variable A is not set"),
        (r#"{"url": "http://${HOST}/"}"#, "http: the environment variable HOST is not set"),
        (r#"{"type": "sse", "url": "${A}"}"#, "sse: the environment variable A is not set"),
        (
            r#"{"url": "http://h/", "headers": {"Authorization": "Bearer ${A}"}}"#,
            "http: the environment variable A is not set",
        ),
    ] {
        let (found, told) = loaded(&workbench(SKIP, &format!(r#""s": {server}"#)), &inputs());
        assert_eq!(found, [lacking], "{server}");
        assert!(!told.is_empty() && told.iter().all(|told| told.starts_with("warning ")), "{told:?}");
    }
}

#[test]
fn outside_of_servers_a_missing_variable_is_always_an_error() {
    let text = format!(
        r#"{{{SKIP} "names": "${{A}}", "toolboxes": {{"dev": {{"description": "${{B}}", "mcpServers": {{}}}}}}}}"#
    );
    check(
        &text,
        &[],
        &[
            "names: the environment variable A is not set",
            "toolboxes.dev.description: the environment variable B is not set",
        ],
    );
    // Other problems of a server stay problems.
    check(
        &workbench(SKIP, r#""s": {"command": "${A}", "connectTimeout": 0}"#),
        &[],
        &[
            "warning toolboxes.dev.mcpServers.s.command: the environment variable A is not set",
            "toolboxes.dev.mcpServers.s.connectTimeout: expected a number of seconds greater than 0, found the number 0",
        ],
    );
    check(
        &workbench(SKIP, r#""s": {"command": "${A"}"#),
        &[],
        &["toolboxes.dev.mcpServers.s.command: `${A` is not closed"],
    );
}

#[test]
fn a_disabled_server_needs_no_variables() {
    let server = r#""s": {"command": "${A}", "disabled": true}, "s2": {"command": "y"}"#;
    check(&workbench("", server), &["y"], &[]);
    check(&workbench(SKIP, server), &["y"], &[]);
    check("[[servers]]\nnamespace = \"a\"\ncommand = \"x ${A}\"\ndisabled = true\n", &[], &[]);
}

#[test]
fn toolman_skips_too() {
    let servers = "[[servers]]\nnamespace = \"a\"\ncommand = \"x ${A} ${B}\"\n[servers.env]\nK = \"${C}\"\n\
                   [[servers]]\nnamespace = \"b\"\nurl = \"http://${H}/\"\n[[servers]]\nnamespace = \"c\"\ncommand = \"y\"\n";
    let problems = [
        "servers[0].command: the environment variable A is not set",
        "servers[0].command: the environment variable B is not set",
        "servers[0].env.K: the environment variable C is not set",
        "servers[1].url: the environment variable H is not set",
    ];
    check(servers, &[], &problems);
    check(
        &format!("on_missing_variable = \"skip\"\n{servers}"),
        &[
            "stdio: the environment variables A, B and C are not set",
            "http: the environment variable H is not set",
            "y",
        ],
        &problems.map(|problem| format!("warning {problem}")).each_ref().map(String::as_str),
    );
}

#[test]
fn files_have_what_the_environment_has_not() {
    let server = r#""s": {"command": "x", "args": ["${KEY}", "${SET}", "${OTHER:-none}", "${TWICE:-none}"]}"#;
    for (files, expected) in [
        (r#""envFile": "a.env","#, "x from-a from-environment none 2"),
        (r#""envFile": ["a.env", "b.env"],"#, "x from-a from-environment from-b 2"),
        (r#""envFile": ["none.env?", "b.env", "a.env"],"#, "x from-b from-environment from-b 2"),
        (r#""envFile": "/etc/mcp/a.env","#, "x from-a from-environment none 2"),
        (r#""envFile": "${NONE:-a}.env","#, "x from-a from-environment none 2"),
    ] {
        check(&workbench(files, server), &[expected], &[]);
    }
    check(
        "env_file = \"a.env\"\n[[servers]]\nnamespace = \"s\"\ncommand = \"x ${KEY}\"\nenv = { K = \"${KEY}\" }\n",
        &["x from-a"],
        &[],
    );
    // The files serve only the configuration that names them.
    check(
        &workbench(r#""envFile": ["b.env", "${KEY}.env"],"#, r#""s": {"command": "x"}"#),
        &[],
        &["envFile[1]: the environment variable KEY is not set"],
    );
}

#[test]
fn what_is_wrong_with_a_file_is_told() {
    for (files, expected) in [
        (r#""none.env""#, &["envFile: the file /etc/mcp/none.env does not exist"][..]),
        (r#"["none.env?", "none.env"]"#, &["envFile[1]: the file /etc/mcp/none.env does not exist"]),
        (r#""closed.env?""#, &["envFile: cannot read /etc/mcp/closed.env: permission denied"]),
        (r#""latin.env""#, &["envFile: /etc/mcp/latin.env is not UTF-8"]),
        (r#""wrong.env""#, &[": line 2 is not `NAME=value`", ": line 4 is not `NAME=value`"]),
        (r#""writable.env""#, &["envFile: other users can change /etc/mcp/writable.env"]),
        (r#""readable.env""#, &["warning envFile: other users can read /etc/mcp/readable.env"]),
        (r#""committed.env""#, &["warning envFile: git does not ignore /etc/mcp/committed.env"]),
        (r#""""#, &["envFile: expected the path of a file, found an empty string"]),
        ("1", &["envFile: expected a string, found the number 1"]),
        ("[1]", &["envFile[0]: expected a string, found the number 1"]),
        ("{}", &["envFile: expected a string, found an object"]),
    ] {
        let (_, told) = loaded(&workbench(&format!("\"envFile\": {files},"), ""), &inputs());
        assert_eq!(told, expected, "{files}");
    }
    let text = workbench(r#""envFile": ["writable.env", "wrong.env"],"#, "");
    let problems = load(Path::new("/etc/mcp/workbench-config.json"), text.as_bytes(), &inputs());
    let problems = problems.expect_err("it is wrong");
    assert_eq!(problems[0].hint, "run `chmod 600 /etc/mcp/writable.env`");
    let Problem { file, line, column, .. } = &problems[1];
    assert_eq!((file.as_path(), *line, *column), (Path::new("/etc/mcp/wrong.env"), 2, 1));
}

#[test]
fn values_of_files_never_print() {
    let text = workbench(r#""envFile": "a.env","#, r#""s": {"command": "x", "args": ["${KEY}"]}"#);
    let (config, _) = load(Path::new("/etc/mcp/x"), text.as_bytes(), &inputs()).expect("it is valid");
    assert_eq!(config.common.secrets.redact("the key from-a is wrong"), "the key ${KEY} is wrong");
}

#[test]
fn programs_that_download_have_more_time_to_start() {
    let timeouts = |server: &str| {
        let text = workbench("", &format!(r#""s": {server}"#));
        let (config, _) = load(Path::new("/etc/mcp/x"), text.as_bytes(), &inputs()).expect("it is valid");
        let Timeouts { connect, start, .. } = config.toolboxes[0].servers[0].timeouts;
        (connect.as_secs(), start.as_secs())
    };
    for (server, expected) in [
        (r#"{"command": "node"}"#, (30, 30)),
        (r#"{"command": "node", "connectTimeout": 5}"#, (5, 5)),
        (r#"{"command": "node", "startTimeout": 60}"#, (30, 60)),
        (r#"{"command": "node", "startTimeout": 5}"#, (30, 5)),
        (r#"{"command": "npx", "args": ["-y", "x"]}"#, (30, 300)),
        (r#"{"command": "npx", "connectTimeout": 5}"#, (5, 300)),
        (r#"{"command": "npx", "connectTimeout": 500}"#, (500, 500)),
        (r#"{"command": "npx", "startTimeout": 7}"#, (30, 7)),
        (r#"{"command": "uv", "args": ["tool", "run", "x"]}"#, (30, 300)),
        (r#"{"url": "http://npx/"}"#, (30, 30)),
    ] {
        assert_eq!(timeouts(server), expected, "{server}");
    }
    check(
        &workbench("", r#""s": {"url": "http://h/", "startTimeout": 9}"#),
        &["http://h/"],
        &["warning toolboxes.dev.mcpServers.s.startTimeout: `startTimeout` has no effect beside `url`"],
    );
}
