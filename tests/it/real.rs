//! The official servers behind the gateway, driven by raw bytes and by rmcp's client.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::path::Path;
use std::process::Command;

use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::TokioChildProcess;
use serde_json::{Value, json};

use crate::harness::{DEADLINE, Gateway, Lab, Peer, VERSION, dev, raw_at};
use crate::npm;

const MODES: [&str; 2] = ["dynamic", "proxy"];

/// The newest version that both sides speak.
const NEWEST: &str = "2025-11-25";

fn everything(mode: &str, capabilities: &str) -> Gateway {
    let entry = npm::entry("everything", &["stdio", "@marker"]);
    let mut gateway = Gateway::spawn(dev(mode, json!({"everything": entry})));
    gateway.initialize_with(NEWEST, capabilities);
    assert_eq!(gateway.open("dev")["servers_connected"], 1);
    gateway
}

fn everything_directly() -> Peer {
    let mut peer = Peer::spawn(Command::new("node").arg(npm::script("everything")));
    peer.initialize(NEWEST);
    peer
}

#[test]
fn definitions_of_a_real_server_are_the_same_bytes_through_the_gateway() {
    let direct = everything_directly().request("tools/list", "{}");
    let count = direct.names("tools").len();
    assert!(count > 5);
    let proxied = {
        let mut gateway = everything("proxy", "{}");
        gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text()
    };
    let registered = everything("dynamic", "{}").request("tools/list", "{}").at(&["result"]);
    for n in 0..count {
        let original = direct.at(&["result", "tools", &n.to_string()]);
        let keys: Vec<String> = serde_json::from_str::<serde_json::Map<String, Value>>(&original)
            .map(|tool| tool.keys().cloned().collect())
            .expect("an object");
        for key in keys {
            let expected = raw_at(&original, &[&key]);
            let proxied = raw_at(&proxied, &["tools", &n.to_string(), &key]);
            let registered = raw_at(&registered, &["tools", &(n + 1).to_string(), &key]);
            assert_eq!(proxied, expected, "{key}");
            if !["name", "description", "_meta"].contains(&key.as_str()) {
                assert_eq!(registered, expected, "{key}");
            }
        }
    }
}

#[test]
fn results_of_a_real_server_are_the_same_bytes_through_the_gateway() {
    let calls = [
        ("echo", r#"{"message":"héllo \u0041"}"#),
        ("get-sum", r#"{"a":1,"b":2.50}"#),
        ("get-tiny-image", "{}"),
        ("get-structured-content", r#"{"location":"Chicago"}"#),
        ("get-annotated-message", r#"{"messageType":"error","includeImage":true}"#),
        ("get-resource-links", r#"{"count":3}"#),
        ("echo", r#"{"message":5}"#),
    ];
    let mut direct = everything_directly();
    let expected: Vec<String> =
        calls.iter().map(|(tool, arguments)| direct.call(tool, arguments).at(&["result"])).collect();
    for mode in MODES {
        let mut gateway = everything(mode, "{}");
        for ((tool, arguments), expected) in calls.iter().zip(&expected) {
            assert!(!expected.is_empty(), "{tool}");
            let answer = gateway.use_tool("everything", tool, arguments);
            assert_eq!(answer.at(&["result"]), *expected, "{mode} {tool}");
            let answer = gateway.call(&format!("dev__everything__{tool}"), arguments);
            assert_eq!(answer.at(&["result"]), *expected, "{mode} {tool}");
        }
    }
}

#[test]
fn progress_of_a_real_server_arrives() {
    let mut gateway = everything("dynamic", "{}");
    let params = json!({
        "name": "dev__everything__trigger-long-running-operation",
        "arguments": {"duration": 0.2, "steps": 4},
        "_meta": {"progressToken": "mine"}
    });
    let id = gateway.post("tools/call", params);
    for n in 1..=4 {
        let progress = gateway.notification("notifications/progress").value();
        assert_eq!(
            (&progress["params"]["progress"], &progress["params"]["progressToken"]),
            (&json!(n), &json!("mine"))
        );
    }
    gateway.answer(&id).text();
}

#[test]
fn questions_of_a_real_server_are_answered_by_the_client() {
    let mut gateway = everything("proxy", r#"{"sampling":{},"elicitation":{}}"#);
    let arguments = json!({"prompt": "say something", "maxTokens": 5});
    let id = gateway.post_use_tool("everything", "trigger-sampling-request", arguments);
    let question = gateway.question("sampling/createMessage");
    assert!(question.raw.contains("say something"));
    let answer = r#""result":{"role":"assistant","content":{"type":"text","text":"something"},"model":"m"}"#;
    gateway.reply(&question, answer);
    assert!(gateway.answer(&id).text_block(0).contains("something"));

    let id = gateway.post_use_tool("everything", "trigger-elicitation-request", "{}");
    let question = gateway.question("elicitation/create");
    gateway.reply(&question, r#""result":{"action":"decline"}"#);
    assert!(gateway.answer(&id).raw.contains("declined"));
}

#[test]
fn a_real_server_asks_for_roots_outside_any_call() {
    let mut gateway = everything("proxy", r#"{"roots":{"listChanged":true}}"#);
    let question = gateway.question("roots/list");
    gateway.reply(&question, r#""result":{"roots":[{"uri":"file:///a-root","name":"r"}]}"#);
    gateway.until("the server knows the roots", |gateway| {
        gateway.use_tool("everything", "get-roots-list", "{}").raw.contains("file:///a-root")
    });
}

#[test]
fn resources_prompts_and_completion_of_a_real_server_work() {
    let mut gateway = everything("proxy", "{}");
    let resources = gateway.request("resources/list", "{}").result();
    let uri = resources["resources"][0]["uri"].as_str().expect("a URI").to_owned();
    assert!(uri.starts_with("workbench://dev/everything/demo://"), "{uri}");
    let read = gateway.request("resources/read", json!({"uri": uri})).result();
    assert!(read["contents"][0]["text"].is_string(), "{read}");
    let dynamic = "workbench://dev/everything/demo://resource/dynamic/text/7";
    let read = gateway.request("resources/read", json!({"uri": dynamic})).result();
    assert_eq!(read["contents"][0]["uri"], "demo://resource/dynamic/text/7");
    let params = json!({"name": "dev__everything__args-prompt", "arguments": {"city": "Bern"}});
    let prompt = gateway.request("prompts/get", params);
    assert!(prompt.raw.contains("Bern"));
    let params = json!({
        "ref": {"type": "ref/prompt", "name": "dev__everything__completable-prompt"},
        "argument": {"name": "department", "value": "E"}
    });
    let completion = gateway.request("completion/complete", params).result();
    assert!(
        completion["completion"]["values"].as_array().is_some_and(|values| !values.is_empty()),
        "{completion}"
    );
}

#[test]
fn the_link_of_a_real_server_can_be_read_as_it_stands() {
    let mut gateway = everything("proxy", "{}");
    let links = gateway.use_tool("everything", "get-resource-links", json!({"count": 1})).result();
    let content = links["content"].as_array().cloned().unwrap_or_default();
    let link = content.iter().find(|block| block["type"] == "resource_link").expect("a link");
    let read = gateway.request("resources/read", json!({"uri": link["uri"]})).result();
    assert_eq!(read["contents"][0]["uri"], link["uri"]);
}

/// A client of rmcp in front of a gateway of its own.
struct Client {
    service: RunningService<RoleClient, ()>,
    lab: Lab,
}

impl Client {
    async fn start(config: &Path, lab: Lab) -> Self {
        let mut command = tokio::process::Command::from(lab.command());
        command
            .arg("--config")
            .arg(config)
            .env("WORKBENCH_TEST_DIRECTORY", &lab.dir)
            .env("WORKBENCH_TEST_MEMORY", lab.dir.join("memory.jsonl"));
        let transport = TokioChildProcess::new(command).expect("the gateway starts");
        let service = tokio::time::timeout(DEADLINE, ().serve(transport)).await;
        Self { service: service.expect("no hang").expect("the handshake succeeds"), lab }
    }

    /// The result of a call, as JSON.
    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let arguments = arguments.as_object().cloned().expect("an object");
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let call = tokio::time::timeout(DEADLINE, self.service.call_tool(params));
        let result = call.await.expect("no hang").expect("an answer");
        serde_json::to_value(result).expect("it came as JSON")
    }

    /// Calls a server's tool in the way of the mode.
    async fn call_in(&self, mode: &str, server: &str, tool: &str, arguments: Value) -> Value {
        match mode {
            "proxy" => {
                let tool = json!({"toolbox": "dev", "server": server, "tool": tool});
                self.call("use_tool", json!({"tool": tool, "arguments": arguments})).await
            }
            _ => self.call(&format!("dev__{server}__{tool}"), arguments).await,
        }
    }

    async fn tools(&self) -> Vec<String> {
        let tools = self.service.list_all_tools().await.expect("a list");
        tools.into_iter().map(|tool| tool.name.into_owned()).collect()
    }

    async fn end(self) {
        self.service.cancel().await.expect("no panic");
        self.lab.wait_until_gone(DEADLINE);
    }
}

/// Writes and reads a file, creates and finds an entity.
async fn work(client: &Client, mode: &str) {
    let path = client.lab.dir.join("note.txt");
    let arguments = json!({"path": path, "content": "a note\n"});
    let written = client.call_in(mode, "filesystem", "write_file", arguments).await;
    assert_ne!(written["isError"], true, "{written}");
    assert_eq!(std::fs::read_to_string(&path).expect("it was written"), "a note\n");
    let read = client.call_in(mode, "filesystem", "read_text_file", json!({"path": path})).await;
    assert_eq!(read["content"][0]["text"], "a note\n");

    let entity = json!({"name": "Ada", "entityType": "person", "observations": ["likes engines"]});
    client.call_in(mode, "memory", "create_entities", json!({"entities": [entity]})).await;
    let found = client.call_in(mode, "memory", "search_nodes", json!({"query": "engines"})).await;
    assert_eq!(found["structuredContent"]["entities"][0]["name"], "Ada", "{found}");
}

#[tokio::test]
async fn rmcp_works_with_memory_and_filesystem_in_both_modes() {
    for mode in MODES {
        let lab = Lab::new();
        let mut memory = npm::entry("memory", &["@marker"]);
        memory["env"] = json!({"MEMORY_FILE_PATH": "@dir/memory.jsonl"});
        let servers = json!({"filesystem": npm::entry("filesystem", &["@dir"]), "memory": memory});
        let config = lab.write("config.json", &lab.fill(&dev(mode, servers).to_string()));
        let client = Client::start(&config, lab).await;
        let before = client.tools().await;
        assert_eq!(before[0], "open_toolbox");
        let opened = client.call("open_toolbox", json!({"toolbox_name": "dev"})).await;
        assert_eq!(opened["structuredContent"]["servers_connected"], 2, "{opened}");
        let after = client.tools().await;
        match mode {
            "proxy" => assert_eq!(after, ["open_toolbox", "use_tool"]),
            _ => assert!(after.contains(&"dev__memory__read_graph".to_owned()), "{after:?}"),
        }
        work(&client, mode).await;
        client.end().await;
    }
}

#[tokio::test]
async fn the_documented_test_configuration_works_as_shown() {
    npm::script("memory");
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("workbench-config.test.json");
    let client = Client::start(&config, Lab::new()).await;
    let opened = client.call("open_toolbox", json!({"toolbox_name": "dev"})).await;
    assert_eq!(opened["structuredContent"]["servers_connected"], 2, "{opened}");
    work(&client, "dynamic").await;
    client.end().await;
}

#[test]
fn real_servers_of_two_toolboxes_share_nothing() {
    let memory = |file: &str| {
        let mut entry = npm::entry("memory", &["@marker"]);
        entry["env"] = json!({"MEMORY_FILE_PATH": format!("@dir/{file}")});
        json!({"mcpServers": {"memory": entry}})
    };
    let mut gateway =
        Gateway::spawn(json!({"toolboxes": {"one": memory("1.jsonl"), "two": memory("2.jsonl")}}));
    gateway.initialize(VERSION);
    gateway.open("one");
    gateway.open("two");
    let entity = json!({"name": "Ada", "entityType": "person", "observations": []});
    gateway.call("one__memory__create_entities", json!({"entities": [entity]})).text();
    assert!(gateway.call("one__memory__read_graph", "{}").text().contains("Ada"));
    assert!(!gateway.call("two__memory__read_graph", "{}").text().contains("Ada"));
}
