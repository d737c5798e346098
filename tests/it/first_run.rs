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
    for (variable, secret) in KEYS {
        assert!(!config.contains(secret) && config.contains(&format!("\"${{{variable}}}\"")), "{config}");
        assert!(connect.stderr.contains(variable), "it is named: {}", connect.stderr);
        for said in [&init.stdout, &init.stderr, &connect.stdout, &connect.stderr] {
            assert!(!said.contains(secret), "{said}");
        }
    }
    let file: Value = serde_json::from_slice(&read(&home.file_of("claude-code"))).expect("JSON");
    assert_eq!(file["numStartups"], 3);
    assert_eq!(
        file["mcpServers"]["workbench"]["env"],
        json!(KEYS.into_iter().collect::<std::collections::BTreeMap<_, _>>())
    );

    let transport = TokioChildProcess::new(registered(&home)).expect("the gateway starts");
    let service =
        tokio::time::timeout(DEADLINE, ().serve(transport)).await.expect("no hang").expect("a handshake");
    let call = async |tool: &str, arguments: Value| {
        let arguments = arguments.as_object().cloned().expect("an object");
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let result = tokio::time::timeout(DEADLINE, service.call_tool(params)).await.expect("no hang");
        serde_json::to_value(result.expect("an answer")).expect("it came as JSON")
    };
    let opened = call("open_toolbox", json!({"toolbox_name": "dev"})).await;
    assert_eq!(opened["structuredContent"]["servers_connected"], 4, "{opened}");
    let echo = call("dev__everything__echo", json!({"message": "it works"})).await;
    assert!(echo["content"][0]["text"].as_str().is_some_and(|text| text.contains("it works")), "{echo}");
    // Each server has the secret that it had, and nothing of the others'.
    for (server, own) in [("everything", KEYS[1]), ("everything-2", KEYS[2])] {
        let env = call(&format!("dev__{server}__get-env"), json!({})).await;
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

/// Whoever is connected second gets the same, though the first one's servers are no longer in its file; so does the
/// shell. What a client would not take literally is not written.
#[test]
fn values_are_found_wherever_they_are() {
    let home = four_clients();
    assert_eq!(home.run(&["init", "--yes"]).code, Some(0));
    let names = |answer: &Value| answer["env"].as_array().expect("a list").len();
    for client in ["cursor", "codex", "claude-code", "goose", "opencode", "zed"] {
        let said = home.json(&["connect", client, "--yes"]);
        assert_eq!((names(&said), &said["unset"]), (3, &json!([])), "{client}: {said}");
        let connected = text(&home.file_of(client));
        assert!(KEYS.iter().all(|(_, secret)| connected.contains(secret)), "{client}: {connected}");
        assert_eq!(home.json(&["connect", client, "--yes"])["changed"], json!(false), "{client}");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = home.file_of("goose").metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "a file that we make for secrets is its owner's");
    }
    let shown = home.run(&["show", "everything-2/echo"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let doctor = home.run(&["doctor"]);
    assert_eq!(doctor.code, Some(0), "{}{}", doctor.stdout, doctor.stderr);
    assert!(doctor.stderr.contains("note: EVERYTHING_TOKEN is not set here"), "{}", doctor.stderr);
    // The gateway itself, and `check`, want what they are told.
    let checked = home.run(&["check"]);
    assert!(checked.code == Some(2) && checked.stderr.contains("OPENAI_API_KEY"), "{}", checked.stderr);
}

#[test]
fn a_value_that_the_client_would_expand_is_left_to_the_user() {
    let home = Home::new();
    let entry = json!({"command": "x", "env": {"API_KEY": "a-secret-with-${HOME}-in-it"}});
    home.put("claude-desktop", json!({"mcpServers": {"a": entry}}).to_string().as_bytes());
    assert_eq!(home.run(&["init", "--yes"]).code, Some(0));
    for (client, env, unset) in
        [("claude-code", json!([]), json!(["API_KEY"])), ("goose", json!(["API_KEY"]), json!([]))]
    {
        let said = home.json(&["connect", client, "--dry-run"]);
        assert_eq!((&said["env"], &said["unset"]), (&env, &unset), "{client}");
    }
}
