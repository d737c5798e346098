//! `@modelcontextprotocol/server-everything` behind toolman, driven by raw bytes and by rmcp's client.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::process::Command;

use rmcp::ServiceExt;
use rmcp::model::{
    CallToolRequestParams, GetPromptRequestParams, PaginatedRequestParams, ReadResourceRequestParams,
};
use rmcp::transport::TokioChildProcess;
use serde_json::{Value, json};

use crate::harness::{DEADLINE, Gateway, Lab, Peer, TOOLS_CHANGED, command, toolman_path};
use crate::npm;

const NEWEST: &str = "2025-11-25";

fn config(top: &str) -> String {
    let script = npm::script("everything");
    let script = script.to_str().expect("a path in UTF-8");
    format!("{top}\nstartup_wait = 25\n{}", command("every", &format!("node '{script}' stdio @marker"), ""))
}

fn start(top: &str, capabilities: &str) -> Gateway {
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config(top), |_| ());
    gateway.initialize_with(NEWEST, capabilities);
    gateway
}

#[test]
fn everything_of_a_real_server_is_there_and_comes_back_byte_for_byte() {
    let mut direct = Peer::spawn(Command::new("node").arg(npm::script("everything")));
    // What it offers depends on what the client can do.
    let capabilities = r#"{"roots":{},"sampling":{},"elicitation":{}}"#;
    direct.initialize_with(NEWEST, capabilities);
    let mut gateway = start("active_toolsets = [\"*\"]", capabilities);
    for (method, list, key) in [
        ("tools/list", "tools", "name"),
        ("resources/list", "resources", "uri"),
        ("resources/templates/list", "resourceTemplates", "uriTemplate"),
        ("prompts/list", "prompts", "name"),
    ] {
        let (expected, seen) =
            (direct.request(method, "{}").at(&["result", list]), gateway.request(method, "{}"));
        let expected: Vec<Value> = serde_json::from_str(&expected).expect("a list");
        let mut seen: Vec<Value> = serde_json::from_str(&seen.at(&["result", list])).expect("a list");
        if list == "tools" {
            assert_eq!(seen.remove(0)["name"], "toolman_activate");
        }
        assert!(!expected.is_empty() && seen.len() == expected.len(), "{method}");
        for (mut seen, expected) in seen.into_iter().zip(expected) {
            let name = format!("every_{}", expected[key].as_str().expect("a name"));
            assert_eq!(seen[key], name);
            seen[key] = expected[key].clone();
            assert_eq!(seen, expected);
        }
    }
    for (tool, arguments) in [
        ("echo", r#"{"message":"héllo \u0041"}"#),
        ("get-sum", r#"{"a":1,"b":2.50}"#),
        ("get-structured-content", r#"{"location":"Chicago"}"#),
        ("get-resource-links", r#"{"count":3}"#),
        ("echo", r#"{"message":5}"#),
    ] {
        let expected = direct.call(tool, arguments).at(&["result"]);
        assert_eq!(gateway.call(&format!("every_{tool}"), arguments).at(&["result"]), expected, "{tool}");
    }
}

#[test]
fn a_session_from_catalog_to_answer() {
    let mut gateway = start("", r#"{"sampling":{},"elicitation":{},"roots":{}}"#);
    assert_eq!(gateway.tools(), ["toolman_activate"]);
    let catalog = gateway.catalog();
    assert!(catalog.contains("\nevery_echo: ") && catalog.contains("\nevery_demo://"), "{catalog}");
    assert!(gateway.call("every_echo", r#"{"message":"x"}"#).failure().contains("not active"));
    gateway.activate([&["every_echo", "every_trigger-*"], &[], &["every_demo://*"], &[]]).text();
    assert_eq!(gateway.changes(), [1, 1, 0]);
    assert!(gateway.call("every_echo", r#"{"message":"x"}"#).text().contains('x'));

    let uris = gateway.uris();
    let read = gateway.request("resources/read", json!({"uri": uris[0]})).result();
    assert!(read["contents"][0]["text"].is_string(), "{read}");
    let read =
        gateway.request("resources/read", json!({"uri": "every_demo://resource/dynamic/text/7"})).result();
    assert_eq!(read["contents"][0]["uri"], "demo://resource/dynamic/text/7");
    let prompt = json!({"name": "every_args-prompt", "arguments": {"city": "Bern"}});
    assert!(gateway.request("prompts/get", prompt).raw.contains("Bern"));
    let reference = json!({"type": "ref/prompt", "name": "every_completable-prompt"});
    let completion = json!({"ref": reference, "argument": {"name": "department", "value": "E"}});
    let values = gateway.request("completion/complete", completion).result()["completion"]["values"].take();
    assert!(values.as_array().is_some_and(|values| !values.is_empty()), "{values}");

    let arguments = json!({"duration": 0.1, "steps": 2});
    let name = "every_trigger-long-running-operation";
    let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": "mine"}});
    let id = gateway.post("tools/call", params);
    for n in 1..=2 {
        let progress = gateway.notification("notifications/progress").value();
        assert_eq!(
            (&progress["params"]["progress"], &progress["params"]["progressToken"]),
            (&json!(n), &json!("mine"))
        );
    }
    gateway.answer(&id).text();

    let arguments = json!({"prompt": "say something", "maxTokens": 5});
    let id = gateway.post_call("every_trigger-sampling-request", arguments);
    let question = gateway.question("sampling/createMessage");
    let answer = r#""result":{"role":"assistant","content":{"type":"text","text":"something"},"model":"m"}"#;
    gateway.reply(&question, answer);
    assert!(gateway.answer(&id).text_block(0).contains("something"));
}

#[test]
fn the_link_of_a_real_server_can_be_read_as_it_stands() {
    let mut gateway = start("active_toolsets = [\"every_get-*\"]", "{}");
    let links = gateway.call("every_get-resource-links", json!({"count": 1})).result();
    let content = links["content"].as_array().cloned().unwrap_or_default();
    let link = content.iter().find(|block| block["type"] == "resource_link").expect("a link");
    let read = gateway.request("resources/read", json!({"uri": link["uri"]})).result();
    assert_eq!(read["contents"][0]["uri"], link["uri"]);
}

#[tokio::test]
async fn rmcp_works_with_toolman() {
    let lab = Lab::new();
    lab.write("tools.toml", &lab.fill(&config("active_toolsets = [\"every_get-sum\"]")));
    let transport = TokioChildProcess::new(tokio::process::Command::from(lab.program(&toolman_path())));
    let client = tokio::time::timeout(DEADLINE, ().serve(transport.expect("toolman starts")));
    let client = client.await.expect("no hang").expect("the handshake succeeds");
    let call = async |tool: &'static str, arguments: Value| {
        let arguments = arguments.as_object().cloned().expect("an object");
        let call = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments));
        let result = tokio::time::timeout(DEADLINE, call).await.expect("no hang").expect("an answer");
        serde_json::to_value(result).expect("it came as JSON")
    };
    let tools = async || -> Vec<String> {
        let tools = client.list_all_tools().await.expect("a list");
        tools.into_iter().map(|tool| tool.name.into_owned()).collect()
    };
    assert_eq!(tools().await, ["toolman_activate", "every_get-sum"]);
    let sum = call("every_get-sum", json!({"a": 2, "b": 3})).await;
    assert!(sum["content"][0]["text"].as_str().is_some_and(|text| text.contains('5')), "{sum}");
    let refused = call("every_echo", json!({"message": "x"})).await;
    assert_eq!(
        (&refused["isError"], &refused["structuredContent"]["success"]),
        (&json!(true), &json!(false))
    );
    let lists = json!({"tools_on": ["every_echo"], "tools_off": ["every_get-sum"], "resources_on": ["*"], "resources_off": []});
    let switched = call("toolman_activate", lists).await;
    assert_eq!(switched["structuredContent"]["success"], true, "{switched}");
    assert_eq!(tools().await, ["toolman_activate", "every_echo"]);
    let echo = call("every_echo", json!({"message": "hello"})).await;
    assert!(echo["content"][0]["text"].as_str().is_some_and(|text| text.contains("hello")), "{echo}");

    let resources = client.list_resources(None::<PaginatedRequestParams>).await.expect("a list").resources;
    let uri = resources[0].uri.clone();
    assert!(uri.starts_with("every_demo://"), "{uri}");
    client.read_resource(ReadResourceRequestParams::new(uri)).await.expect("its contents");
    let prompts = client.list_all_prompts().await.expect("a list");
    let name = prompts.iter().map(|prompt| prompt.name.clone()).find(|name| name == "every_simple-prompt");
    client.get_prompt(GetPromptRequestParams::new(name.expect("it has one"))).await.expect("a prompt");
    client.cancel().await.expect("no panic");
    lab.wait_until_gone(DEADLINE);
}

/// The session that docs/toolman.md shows.
#[test]
fn the_documented_session_works_as_shown() {
    let script = |server: &str| npm::script(server).to_str().expect("a path in UTF-8").to_owned();
    let config = format!(
        "active_toolsets = [\"files_read_text_file\"]\nremember = true\nstartup_wait = 25\n{}{}",
        command("files", &format!("node '{}' @dir", script("filesystem")), ""),
        command(
            "memory",
            &format!("MEMORY_FILE_PATH=@dir/memory.jsonl node '{}' @marker", script("memory")),
            "restart = true"
        ),
    );
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
    gateway.initialize(NEWEST);
    assert_eq!(gateway.tools(), ["toolman_activate", "files_read_text_file"]);
    let catalog = gateway.catalog();
    assert!(catalog.contains("\n* files_read_text_file: "), "{catalog}");
    assert!(catalog.contains("\nmemory_create_entities: Create multiple new entities"), "{catalog}");

    let entity = json!({"name": "Ada", "entityType": "person", "observations": ["likes engines"]});
    let entities = json!({"entities": [entity]});
    let refused = gateway.call("memory_create_entities", &entities).result();
    assert_eq!(
        refused["structuredContent"]["error"],
        "The tool 'memory_create_entities' is not active. Switch it on first: toolman_activate {\"tools_on\": \
         [\"memory_create_entities\"], \"tools_off\": [], \"resources_on\": [], \"resources_off\": []}"
    );
    let switched = gateway.activate([&["memory_*_entities", "memory_search_nodes"], &[], &[], &[]]).json();
    assert_eq!(
        switched["result"].as_str().and_then(|text| text.split(" Active now").next()),
        Some("Switched on: memory_create_entities, memory_delete_entities, memory_search_nodes."),
        "{switched}"
    );
    gateway.notification(TOOLS_CHANGED);
    gateway.call("memory_create_entities", &entities).text();
    let found = gateway.call("memory_search_nodes", json!({"query": "engines"})).result();
    assert_eq!(found["structuredContent"]["entities"][0]["name"], "Ada");
    gateway.activate([&[], &["memory_*"], &[], &[]]).text();
    assert_eq!(gateway.tools(), ["toolman_activate", "files_read_text_file"]);
}
