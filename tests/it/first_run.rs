//! From a home full of clients to a working gateway: `init`, `connect`, and then whatever the client's own file says is
//! started by a real client.

use std::path::Path;

use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::TokioChildProcess;
use serde_json::{Value, json};

use crate::clients::{Home, read, text};
use crate::harness::DEADLINE;
use crate::npm;

/// What stands in the clients' files in clear text, and the variables that `init` puts in place of it.
const KEYS: [(&str, &str); 3] = [
    ("OPENAI_API_KEY", "sk-fixture-first-0000000000000001"),
    ("EVERYTHING_TOKEN", "fixture-second-secret"),
    ("EVERYTHING_TOKEN_2", "fixture-third-secret"),
];

/// A home with four clients, whose servers are official ones; three of them have secrets.
fn four_clients() -> Home {
    let home = Home::new();
    let with_env = |server: &str, args: &[&str], name: &str, value: &str| {
        let mut entry = npm::entry(server, args);
        entry["env"] = json!({name: value, "PLAIN": "as it is"});
        entry
    };
    let notes = home.path("notes");
    std::fs::create_dir(&notes).expect("the directory is ours");
    let notes = notes.to_str().expect("UTF-8");
    let mut memory = with_env("memory", &[], KEYS[0].0, KEYS[0].1);
    // What the client itself has from the environment is no value to hand on.
    memory["env"]["LEVEL"] = json!("${LEVEL:-info}");
    let claude = json!({
        "numStartups": 3,
        "mcpServers": {
            "memory": memory,
            "notes": npm::entry("filesystem", &[notes]),
        },
    });
    home.put("claude-code", format!("{claude:#}").as_bytes());
    let everything = |value: &str| with_env("everything", &["stdio"], "EVERYTHING_TOKEN", value);
    home.put("cursor", json!({"mcpServers": {"everything": everything(KEYS[1].1)}}).to_string().as_bytes());
    home.put("vscode", json!({"servers": {"everything": everything(KEYS[2].1)}}).to_string().as_bytes());
    let script = npm::script("filesystem").display().to_string();
    home.put(
        "codex",
        format!("model = \"gpt-5\"\n\n[mcp_servers.files]\ncommand = \"node\"\nargs = [\"{script}\", \"{notes}\"]\n")
            .as_bytes(),
    );
    home
}

/// What a client starts, from its own file: the entry `workbench`.
fn registered(home: &Home) -> tokio::process::Command {
    let file: Value = serde_json::from_slice(&read(&home.file_of("claude-code"))).expect("JSON");
    let entry = &file["mcpServers"]["workbench"];
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let program = text(&entry["command"]);
    assert!(Path::new(&program).is_absolute(), "{program}");
    let mut command = tokio::process::Command::from(home.command("mcp-workbench", &[]));
    assert_eq!(Path::new(&program), Path::new(command.as_std().get_program()));
    command.args(entry["args"].as_array().expect("a list").iter().map(text));
    command.envs(entry["env"].as_object().into_iter().flatten().map(|(name, value)| (name, text(value))));
    // A client may start us anywhere.
    command.current_dir("/");
    command
}

#[tokio::test]
async fn init_and_connect_make_a_set_up_that_works() {
    let home = four_clients();
    let before = text(&home.file_of("claude-code"));
    let init = home.run(&["init", "--yes"]);
    assert_eq!(init.code, Some(0), "{}", init.stderr);
    let connect = home.run(&["connect", "claude-code", "--yes"]);
    assert_eq!(connect.code, Some(0), "{}", connect.stderr);
    let config = text(&home.config());
    let secrets = home.secrets();
    for (variable, secret) in KEYS {
        assert!(!config.contains(secret) && config.contains(&format!("\"${{{variable}}}\"")), "{config}");
        assert!(init.stderr.contains(variable), "it is named: {}", init.stderr);
        assert!(secrets.contains(&format!("{variable}={secret}\n")), "{secrets}");
        for said in [&init.stdout, &init.stderr, &connect.stdout, &connect.stderr] {
            assert!(!said.contains(secret), "{said}");
        }
    }
    let file: Value = serde_json::from_slice(&read(&home.file_of("claude-code"))).expect("JSON");
    assert_eq!(file["numStartups"], 3);
    assert_eq!(file["mcpServers"]["workbench"]["env"], Value::Null);

    let transport = TokioChildProcess::new(registered(&home)).expect("the gateway starts");
    let service =
        tokio::time::timeout(DEADLINE, ().serve(transport)).await.expect("no hang").expect("a handshake");
    let call = async |tool: &str, arguments: Value| {
        let arguments = arguments.as_object().cloned().expect("an object");
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let result = tokio::time::timeout(DEADLINE, service.call_tool(params)).await.expect("no hang");
        serde_json::to_value(result.expect("an answer")).expect("it came as JSON")
    };
    for toolbox in ["memory", "notes", "everything", "everything-2"] {
        let opened = call("open_toolbox", json!({"toolbox_name": toolbox})).await;
        assert_eq!(opened["structuredContent"]["servers_connected"], 1, "{opened}");
    }
    let echo = call("everything__everything__echo", json!({"message": "it works"})).await;
    assert!(echo["content"][0]["text"].as_str().is_some_and(|text| text.contains("it works")), "{echo}");
    // Each server has the secret that it had, and nothing of the others'.
    for (server, own) in [("everything", KEYS[1]), ("everything-2", KEYS[2])] {
        let env = call(&format!("{server}__{server}__get-env"), json!({})).await;
        let env: Value =
            serde_json::from_str(env["content"][0]["text"].as_str().expect("text")).expect("JSON");
        assert_eq!(
            (&env["EVERYTHING_TOKEN"], &env["PLAIN"]),
            (&json!(own.1), &json!("as it is")),
            "{server}"
        );
        assert_eq!(env.get("OPENAI_API_KEY"), None, "{server}");
    }
    service.cancel().await.expect("no panic");

    assert_eq!(home.run(&["disconnect", "claude-code", "--yes"]).code, Some(0));
    assert_eq!(text(&home.file_of("claude-code")), before, "byte for byte");
}

/// No client's file gets a secret; the gateway has them wherever it starts, and so have the verbs.
#[test]
fn secrets_are_in_one_place() {
    let home = four_clients();
    assert_eq!(home.run(&["init", "--yes"]).code, Some(0));
    for client in ["cursor", "codex", "claude-code", "goose", "opencode", "zed", "vscode"] {
        let said = home.json(&["connect", client, "--yes"]);
        assert_eq!((&said["env"], &said["unset"]), (&json!([]), &json!([])), "{client}: {said}");
        let connected = text(&home.file_of(client));
        assert!(KEYS.iter().all(|(_, secret)| !connected.contains(secret)), "{client}: {connected}");
        assert_eq!(home.json(&["connect", client, "--yes"])["changed"], json!(false), "{client}");
    }
    use std::os::unix::fs::PermissionsExt;
    let mode = home.config().with_file_name("secrets.env").metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let shown = home.run(&["show", "everything-2/echo"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let doctor = home.run(&["doctor"]);
    assert_eq!((doctor.code, doctor.stderr.as_str()), (Some(0), ""), "{}", doctor.stdout);
    let checked = home.run(&["check"]);
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""));
}

/// Whatever value a client's file had is what the server gets.
#[test]
fn values_come_back_exactly() {
    let values =
        ["a-secret-with-${HOME}-in-it", "two\nlines\t'and' \"quotes\"", " spaces # and $5 \\ ", "ünïcödé"];
    let home = Home::new();
    let fake = crate::harness::fake("--with report");
    let entry = |(n, value): (usize, &&str)| {
        let mut entry: Value = serde_json::from_str(&home.lab.fill(&fake.to_string())).expect("JSON");
        entry["env"] = json!({"API_KEY": value});
        (format!("s{n}"), entry)
    };
    let servers: serde_json::Map<_, _> = values.iter().enumerate().map(entry).collect();
    home.put("claude-desktop", json!({"mcpServers": servers}).to_string().as_bytes());
    assert_eq!(home.run(&["init", "--yes"]).code, Some(0));
    assert!(values.iter().all(|value| !text(&home.config()).contains(value)));
    for (n, value) in values.iter().enumerate() {
        let called =
            home.lab.run(&mut home.command("mcp-workbench", &["call", &format!("s{n}/report"), "--json"]));
        let result: Value = serde_json::from_str(&called.stdout).expect("JSON");
        let told: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().expect("text")).expect("JSON");
        assert_eq!(told["env"]["API_KEY"], *value, "{called:?}");
    }
}

/// VS Code goes on asking for what it asked for; what the gateway would lack stays where it was.
#[test]
fn a_server_that_would_lack_a_variable_stays() {
    let home = Home::new();
    let servers = json!({
        "weather": {"command": "weather", "env": {"APIKEY": "${input:apikey}"}},
        "maps": {"command": "maps", "env": {"KEY": "${env:MAPS_KEY}"}},
        "plain": {"command": "plain"},
    });
    let inputs = json!([{"id": "apikey", "type": "promptString", "password": true}]);
    home.put("vscode", json!({"servers": servers, "inputs": inputs}).to_string().as_bytes());
    assert_eq!(home.run(&["init", "--yes"]).code, Some(0));
    let said = home.run(&["connect", "vscode", "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("Moved behind the gateway: plain, weather\n"), "{}", said.stderr);
    assert!(said.stderr.contains("Left in VS Code: maps (MAPS_KEY is not set)\n"), "{}", said.stderr);
    let file: Value = serde_json::from_slice(&read(&home.file_of("vscode"))).expect("JSON");
    assert_eq!(file["servers"]["workbench"]["env"], json!({"APIKEY": "${input:apikey}"}));
    assert!(file["servers"]["maps"].is_object() && file["servers"]["weather"].is_null(), "{file}");
    // A client that does not ask keeps nothing of it, and is told so.
    let said = home.run(&["connect", "cursor", "--yes"]);
    let told = "APIKEY is not set; the server 'weather' will not start without it\n";
    assert!(said.code == Some(0) && said.stderr.contains(told), "{}", said.stderr);
}

/// A gateway that would not start is not registered.
#[test]
fn connect_checks_before_it_writes() {
    for config in [
        json!({"toolboxes": {"dev": {"mcpServers": {"a": {"command": "x", "env": {"K": "${NOT_SET}"}}}}}}),
        json!({"onMissingVariable": "skip", "names": "${NOT_SET}", "toolboxes": {}}),
        json!({"envFile": "none.env", "toolboxes": {}}),
    ] {
        let home = Home::new();
        home.write(&home.config(), config.to_string().as_bytes());
        let before = r#"{"mcpServers": {"a": {"command": "x", "env": {"K": "v"}}}}"#;
        home.put("cursor", before.as_bytes());
        let said = home.run(&["connect", "cursor", "--yes"]);
        assert_eq!(said.code, Some(2), "{config}: {}", said.stderr);
        assert_eq!(text(&home.file_of("cursor")), before, "{config}");
        if config.get("envFile").is_none() {
            let mut command = home.command("mcp-workbench", &["connect", "cursor", "--yes"]);
            assert_eq!(home.lab.run(command.env("NOT_SET", "safe")).code, Some(0), "{config}");
        }
    }
}

/// In a git work tree, the file of secrets is never one that git would take up.
#[test]
fn git_ignores_the_file_of_secrets() {
    let git = |home: &Home, args: &[&str]| {
        #[allow(clippy::disallowed_methods, reason = "tests start the programs they test")]
        let mut command = std::process::Command::new("git");
        command.args(args).current_dir(home.path("project")).env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert_eq!(home.lab.run(&mut command).code, Some(0), "{args:?}");
    };
    let add = ["add", "a", "--env", "API_KEY=fixture-edited", "--yes", "--", "x"];
    for (before, after) in
        [(None, "/secrets.env\n"), (Some("target"), "target\n/secrets.env\n"), (Some("*.env\n"), "*.env\n")]
    {
        let home = Home::new();
        home.write(&home.path("project/workbench-config.json"), br#"{"toolboxes": {}}"#);
        git(&home, &["init", "-q"]);
        let ignore = home.path("project/.gitignore");
        if let Some(before) = before {
            home.write(&ignore, before.as_bytes());
        }
        assert_eq!(home.run(&add).code, Some(0));
        assert_eq!(text(&ignore), after);
        assert_eq!(home.run(&["check"]).stderr, "");
        // Whoever takes it out is told.
        home.write(&ignore, b"");
        let told = "warning: git does not ignore ~/project/secrets.env";
        let checked = home.run(&["check"]);
        assert!(checked.code == Some(0) && checked.stderr.contains(told), "{}", checked.stderr);
        assert!(home.run(&["doctor"]).stderr.contains(told));
    }
    // Elsewhere there is nothing to ignore.
    let home = Home::new();
    home.write(&home.path("project/workbench-config.json"), br#"{"toolboxes": {}}"#);
    assert_eq!(home.run(&add).code, Some(0));
    assert!(!home.path("project/.gitignore").exists());
}

/// Processes that add at once lose nothing.
#[test]
fn secrets_that_are_added_at_once_are_all_there() {
    let home = Home::new();
    home.write(&home.path("project/workbench-config.json"), br#"{"toolboxes": {"dev": {"mcpServers": {}}}}"#);
    home.write(&home.path("project/tools.toml"), b"active_toolsets = []\n");
    let adding: Vec<_> = (0..8)
        .map(|n| {
            let (name, secret) = (format!("s{n}"), format!("API_KEY=fixture-secret-{n}"));
            let program = if n % 2 == 0 { "mcp-workbench" } else { "toolman" };
            let mut command = home.command(program, &["add", &name, "--env", &secret, "--yes", "--", "x"]);
            command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
            command.stderr(std::process::Stdio::null()).spawn().expect("the program starts")
        })
        .collect();
    for mut process in adding {
        assert!(process.wait().expect("it ends").success());
    }
    let secrets = text(&home.path("project/secrets.env"));
    assert_eq!(secrets.lines().count(), 8, "{secrets}");
    for n in 0..8 {
        assert!(secrets.contains(&format!("=fixture-secret-{n}\n")), "{secrets}");
    }
    assert_eq!(home.run(&["check"]).code, Some(0));
    assert_eq!(home.run_with("toolman", &["check"]).code, Some(0));
}
