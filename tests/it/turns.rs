//! Several processes that change one file take turns, and nobody's change is lost.

use std::process::Stdio;

use serde_json::Value;

use crate::clients::{Home, read, text};

/// Runs all of these at once; each must work.
fn at_once(home: &Home, program: &str, verbs: &[impl AsRef<str>]) {
    let start = |verb: &dyn AsRef<str>| {
        let verb = verb.as_ref().to_owned();
        let mut command = home.command(program, &verb.split(' ').collect::<Vec<_>>());
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        (verb, child.expect("the program starts"))
    };
    let children: Vec<_> = verbs.iter().map(|verb| start(verb)).collect();
    for (verb, child) in children {
        let output = child.wait_with_output().expect("it is our child");
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn servers(home: &Home) -> Vec<String> {
    let config: Value = serde_json::from_slice(&read(&home.config())).expect("JSON");
    let servers = crate::clients::servers(&config);
    let mut names: Vec<_> = servers.as_object().expect("servers").keys().cloned().collect();
    names.sort();
    names
}

#[test]
fn twelve_additions_at_once_leave_twelve_servers() {
    let names: Vec<_> = (10..22).map(|number| format!("s{number}")).collect();
    let verbs: Vec<_> = names.iter().map(|name| format!("add {name} --yes -- x")).collect();
    let home = Home::new();
    home.write(&home.config(), br#"{"toolboxes": {"dev": {"mcpServers": {}}}}"#);
    at_once(&home, "mcp-workbench", &verbs);
    assert_eq!(servers(&home), names);
    let file = home.path("xdg-config/toolman/tools.toml");
    home.write(&file, b"");
    at_once(&home, "toolman", &verbs);
    let tools = text(&file);
    names.iter().for_each(|name| assert!(tools.contains(&format!("namespace = \"{name}\"")), "{tools}"));
    for file in [home.config(), file] {
        let directory = file.parent().expect("it has one");
        let left: Vec<_> = std::fs::read_dir(directory).expect("there").collect();
        assert_eq!(left.len(), 1, "nothing stands beside the file: {left:?}");
    }
}

#[test]
fn additions_removals_and_imports_at_once() {
    let home = Home::new();
    let entries: Vec<_> =
        (0..5).map(|number| format!(r#""r{number}": {{"command": "r{number}"}}"#)).collect();
    home.write(
        &home.config(),
        format!(r#"{{"toolboxes": {{"dev": {{"mcpServers": {{{}}}}}}}}}"#, entries.join(", ")).as_bytes(),
    );
    home.put("cursor", br#"{"mcpServers": {"c": {"command": "c"}}}"#);
    home.put("gemini", br#"{"mcpServers": {"g": {"command": "g"}}}"#);
    let verbs = [
        "add a0 --yes -- a0",
        "remove r0 --yes",
        "import cursor --yes",
        "add a1 --yes -- a1",
        "remove r1 --yes",
        "import gemini --yes",
        "add a2 --yes -- a2",
        "remove r2 --yes",
    ];
    at_once(&home, "mcp-workbench", &verbs);
    assert_eq!(servers(&home), ["a0", "a1", "a2", "c", "g", "r3", "r4"]);
}

/// Whoever was last, what the client's file was comes back.
#[test]
fn connecting_and_disconnecting_at_once() {
    let home = Home::new();
    let before = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}, "theme": 1}"#;
    home.put("cursor", before.as_bytes());
    home.write(&home.config(), br#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "x"}}}}}"#);
    home.write(
        &home.path("xdg-config/toolman/tools.toml"),
        b"[[servers]]\nnamespace = \"b\"\ncommand = \"y\"\n",
    );
    let connect = "connect cursor --yes";
    let toolman = "--face toolman connect cursor --yes";
    at_once(&home, "mcp-workbench", &[connect, toolman].repeat(4));
    let connected: Value = serde_json::from_slice(&read(&home.file_of("cursor"))).expect("JSON");
    let entries: Vec<_> = connected["mcpServers"].as_object().expect("servers").keys().collect();
    assert_eq!(entries, ["toolman", "workbench"], "{connected}");
    let disconnect = "disconnect cursor --yes";
    at_once(&home, "mcp-workbench", &[disconnect, connect, toolman].repeat(4));
    let without_toolman = "--face toolman disconnect cursor --yes";
    at_once(&home, "mcp-workbench", &[disconnect, without_toolman].repeat(3));
    let after: Value = serde_json::from_slice(&read(&home.file_of("cursor"))).expect("JSON");
    assert_eq!(after, serde_json::from_str::<Value>(before).expect("JSON"));
}

/// Configurations beside each other share a file of secrets, and the same secret is written once.
#[test]
fn secrets_of_several_configurations_at_once() {
    let home = Home::new();
    home.put("cursor", br#"{"mcpServers": {"a": {"command": "x", "env": {"API_KEY": "fixture-edited"}}}}"#);
    let files: Vec<_> = (0..8).map(|number| home.path(&format!("project/{number}.json"))).collect();
    files.iter().for_each(|file| home.write(file, br#"{"toolboxes": {}}"#));
    let names: Vec<_> = files.iter().map(|file| file.to_str().expect("UTF-8")).collect();
    let verbs: Vec<_> = names.iter().map(|name| format!("import cursor --yes --config {name}")).collect();
    at_once(&home, "mcp-workbench", &verbs);
    assert_eq!(text(&home.path("project/secrets.env")), "API_KEY=fixture-edited\n");
    for name in names {
        assert_eq!(home.run(&["check", "--config", name]).code, Some(0), "{name}");
    }
}

/// A verb that was killed in its turn keeps nobody waiting; one that lives does.
#[cfg(unix)]
#[test]
fn a_turn_ends_with_its_process() {
    use std::io::Read;
    let home = Home::new();
    home.write(&home.config(), br#"{"toolboxes": {"dev": {"mcpServers": {}}}}"#);
    // Its summary is more than a pipe holds, and nobody reads it.
    let variables: Vec<_> = (0..6000).map(|number| format!("--env=API_TOKEN_{number}=fixture")).collect();
    let mut args = vec!["add", "stuck", "--yes"];
    args.extend(variables.iter().map(String::as_str));
    args.extend(["--", "x"]);
    let mut stuck = home.command("mcp-workbench", &args).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut begun = [0; 3];
    stuck.stderr.as_mut().expect("piped").read_exact(&mut begun).expect("it shows its change");
    let mut next = home.command("mcp-workbench", &["add", "next", "--yes", "-v", "--", "x"]);
    let mut next = next.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = [0; 64];
    let length = next.stderr.as_mut().expect("piped").read(&mut said).expect("it says that it waits");
    let said = String::from_utf8_lossy(&said[..length]).into_owned();
    assert!(said.starts_with("info: another process changes "), "{said}");
    stuck.kill().expect("it runs");
    stuck.wait().expect("it is our child");
    assert!(next.wait().expect("it is our child").success());
    assert_eq!(servers(&home), ["next"]);
}

/// Nobody waits for a person's answer, and the person decides about what is there then.
#[cfg(target_os = "linux")]
#[test]
fn a_question_keeps_nobody_waiting() {
    use crate::pty::{ALL, Terminal};
    let home = Home::new();
    home.write(&home.config(), br#"{"toolboxes": {"dev": {"mcpServers": {}}}}"#);
    let mut terminal =
        Terminal::start(home.command("mcp-workbench", &["add", "mine", "--toolbox", "dev", "--", "x"]), ALL);
    terminal.wait_for("[y/N/d] ");
    assert_eq!(home.run(&["add", "theirs", "--toolbox", "dev", "--yes", "--", "y"]).code, Some(0));
    terminal
        .press("y\n")
        .wait_for("was changed in the meantime")
        .wait_for("[y/N/d] ")
        .press("d\n")
        .wait_for("theirs")
        .wait_for("[y/N/d] ")
        .press("y\n");
    let ended = terminal.end();
    assert_eq!(ended.code, Some(0), "{}", ended.shown);
    assert_eq!(servers(&home), ["mine", "theirs"]);
    // What cannot be done any more is said, and nothing is written.
    let mut terminal = Terminal::start(home.command("mcp-workbench", &["remove", "mine"]), ALL);
    terminal.wait_for("[y/N/d] ");
    assert_eq!(home.run(&["remove", "mine", "--yes"]).code, Some(0));
    terminal.press("y\n").wait_for("was changed in the meantime").wait_for("there is no server `mine`");
    assert_eq!(terminal.end().code, Some(2));
    assert_eq!(servers(&home), ["theirs"]);
}
