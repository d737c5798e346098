//! `"toolMode": "flat"`: every toolbox is open from the start, as far as anything is remembered of its servers.

use serde_json::{Value, json};

use crate::client::{CAN_ALL, Client, Era, Host};
use crate::harness::{Gateway, Lab, TOOLS_CHANGED, VERSION, fake};

/// A file with two toolboxes whose servers count their starts.
fn file() -> Value {
    let flags = "--with echo,crash --resources 1 --templates 1 --prompts 1";
    let server = |name: &str| fake(&format!("{flags} --count @dir/{name} --fail-while @dir/broken-{name}"));
    json!({"toolMode": "flat", "toolboxes": {
        "dev": {"description": "Development", "mcpServers": {"a": server("a"), "b": server("b")}},
        "ops": {"description": "Operations", "mcpServers": {"c": server("c")}},
    }})
}

const TOOLS: [&str; 6] =
    ["dev__a__echo", "dev__a__crash", "dev__b__echo", "dev__b__crash", "ops__c__echo", "ops__c__crash"];

/// A place in which every server of this file has run once.
fn known(file: &Value) -> Lab {
    let mut gateway = Gateway::start(file);
    gateway.until("all are known", |gateway| {
        let tools = gateway.tools();
        TOOLS.iter().all(|tool| tools.iter().any(|other| other == tool))
    });
    gateway.finish()
}

fn start(lab: Lab, file: &Value) -> Gateway {
    let mut gateway = Gateway::spawn_with(lab, file, |_| ());
    gateway.initialize(VERSION);
    gateway
}

fn starts(lab: &Lab) -> [usize; 3] {
    ["a", "b", "c"].map(|name| lab.starts(name))
}

#[test]
fn everything_is_listed_from_the_start_and_the_first_use_starts_a_server() {
    let mut dynamic = file();
    dynamic["toolMode"] = json!("dynamic");
    let mut classic = file();
    classic["metaTools"] = json!("classic");
    for (file, option) in [(file(), false), (classic, false), (dynamic, true)] {
        let mut gateway = Gateway::spawn_with(known(&self::file()), &file, |command| {
            command.args(["--tool-mode", "flat"].iter().filter(|_| option));
        });
        gateway.initialize(VERSION);
        assert_eq!(gateway.tools(), TOOLS, "and no meta-tools");
        assert_eq!(gateway.uris().len(), 3);
        assert_eq!(gateway.templates().len(), 3);
        assert_eq!(gateway.prompts(), ["dev__a__prompt-1", "dev__b__prompt-1", "ops__c__prompt-1"]);
        assert_eq!(starts(&gateway.lab), [1; 3]);
        gateway.call("dev__b__echo", "{}").text();
        assert_eq!(starts(&gateway.lab), [1, 2, 1]);
        gateway.request("prompts/get", json!({"name": "ops__c__prompt-1"})).result();
        assert_eq!(starts(&gateway.lab), [1, 2, 2]);
        assert_eq!(gateway.changes(), [0, 0, 0]);
    }
}

#[test]
fn what_nothing_is_remembered_of_starts_once_in_the_background_and_joins_the_lists() {
    let mut file = file();
    let flags = "--with echo --count @dir/late --wait-for @dir/go";
    let lab = known(&file);
    file["toolboxes"]["ops"]["mcpServers"]["late"] = fake(flags);
    let mut legacy = start(lab, &file);
    assert_eq!(legacy.tools(), TOOLS, "nobody waits for it");
    legacy.until("it starts", |gateway| gateway.lab.starts("late") == 1);
    legacy.lab.write("go", "");
    legacy.notification(TOOLS_CHANGED);
    assert_eq!(legacy.tools(), [&TOOLS[..], &["ops__late__echo"]].concat());
    assert_eq!((starts(&legacy.lab), legacy.lab.starts("late")), ([1; 3], 1));

    let lab = legacy.finish();
    std::fs::remove_file(lab.dir.join("go")).expect("it is there");
    file["toolboxes"]["ops"]["mcpServers"]["late"] = fake(&format!("{flags} --prompts 1"));
    let mut modern = Client::pipe(Era::Modern, Gateway::spawn_with(lab, &file, |_| ()), CAN_ALL);
    assert_eq!(modern.tools(), TOOLS);
    modern.post("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    modern.notification("notifications/subscriptions/acknowledged");
    modern.gateway().lab.write("go", "");
    modern.notification(TOOLS_CHANGED);
    assert_eq!(modern.tools(), [&TOOLS[..], &["ops__late__echo"]].concat());
    modern.call("ops__late__echo", "{}").text();
}

#[test]
fn the_instructions_name_the_toolboxes_and_say_that_all_is_listed() {
    let mut file = file();
    let instructions = |file: &Value| {
        let mut gateway = Gateway::spawn(file);
        gateway.initialize(VERSION).result()["instructions"].as_str().expect("a text").to_owned()
    };
    let expected = "Tools of many MCP servers, grouped in toolboxes.\n\nToolboxes:\n- dev (2 servers): Development\n\
        - ops (1 server): Operations\n\nAll tools are in your tool list already, named toolbox__server__tool; there is \
        nothing to open.";
    assert_eq!(instructions(&file), expected);
    file["metaTools"] = json!("classic");
    assert_eq!(instructions(&file), expected);
    file["search"] = json!(true);
    let searched = format!("{expected} find_tools searches them: name a platform and what it is to do.");
    assert_eq!(instructions(&file), searched);
    file["instructionsLimit"] = json!(200);
    assert!(!instructions(&file).contains("open_toolbox"), "which is not listed");
}

#[test]
fn search_adds_two_tools_that_speak_of_registered_names() {
    for generation in ["current", "classic"] {
        let mut file = file();
        (file["search"], file["metaTools"]) = (json!(true), json!(generation));
        let lab = known(&file);
        let mut gateway = start(lab, &file);
        assert_eq!(gateway.tools(), [&["find_tools", "describe_tools"], &TOOLS[..]].concat());
        let found = gateway.call("find_tools", json!({"query": "ops echo"})).json();
        assert_eq!(found["tools"][0]["name"], "ops__c__echo", "{generation}: {found}");
        let address = json!({"toolbox": "ops", "server": "c", "tool": "echo"});
        let described = gateway.call("describe_tools", json!({"tools": [address]})).json();
        assert_eq!(described["tools"][0]["name"], "ops__c__echo", "{generation}: {described}");
        assert_eq!(starts(&gateway.lab), [1; 3], "{generation}");
        gateway.call("ops__c__echo", "{}").text();
    }
}

#[test]
fn the_meta_tools_can_be_called_though_nobody_lists_them() {
    let mut gateway = start(known(&file()), &file());
    assert_eq!(gateway.open("dev")["tools_registered"], 4);
    assert_eq!(starts(&gateway.lab), [1; 3]);
    gateway.use_tool("a", "echo", "{}").text();
    assert_eq!(starts(&gateway.lab), [2, 1, 1]);
}

#[test]
fn a_server_that_fails_in_the_background_is_logged_and_tried_again_by_a_call() {
    let mut file = file();
    file["toolboxes"]["dev"]["mcpServers"]["a"]["start"] = json!("open");
    let lab = known(&file);
    lab.write("broken-a", "");
    let mut gateway = start(lab, &file);
    gateway.stderr_with("[dev/a] ");
    assert_eq!(gateway.tools(), TOOLS);
    assert!(gateway.call("dev__a__echo", "{}").is_error());
    std::fs::remove_file(gateway.lab.dir.join("broken-a")).expect("it is there");
    gateway.until("it is tried again", |gateway| !gateway.call("dev__a__echo", "{}").is_error());
    assert_eq!(gateway.tools(), TOOLS);
    assert_eq!(gateway.changes(), [0, 0, 0]);
}

#[test]
fn a_server_may_start_with_the_gateway_all_the_same() {
    let mut file = file();
    let lab = known(&file);
    file["toolboxes"]["dev"]["mcpServers"]["a"]["start"] = json!("open");
    let mut gateway = start(lab, &file);
    assert_eq!(gateway.tools(), TOOLS, "remembered while it starts");
    gateway.until("it has started", |gateway| starts(&gateway.lab) == [2, 1, 1]);
}

#[test]
fn a_crash_changes_no_list_and_the_next_call_starts_the_server_again() {
    for era in ["legacy", "modern"] {
        let mut file = file();
        let args = file["toolboxes"]["dev"]["mcpServers"]["a"]["args"].as_array_mut().expect("arguments");
        args.extend([json!("--era"), json!(era)]);
        let mut gateway = start(known(&file), &file);
        let listed = gateway.request("tools/list", "{}").result();
        gateway.call("dev__a__echo", "{}").text();
        gateway.call("dev__a__crash", "{}").failure();
        assert_eq!(gateway.request("tools/list", "{}").result(), listed, "{era}");
        gateway.until("it runs again", |gateway| !gateway.call("dev__a__echo", "{}").is_error());
        assert_eq!(gateway.lab.starts("a"), gateway.lab.starts("b") + 2, "{era}");
        assert_eq!(gateway.changes(), [0, 0, 0], "{era}");
    }
}

#[test]
fn clients_over_http_see_the_same() {
    let host = Host::new(Gateway::spawn_with(known(&file()), file(), |command| {
        command.args(["serve", "--http", "127.0.0.1:0"]);
    }));
    for era in [Era::Legacy, Era::Modern] {
        let mut client = host.client(era);
        assert_eq!(client.tools(), TOOLS);
        assert_eq!(host.client_at(era, "/mcp/ops").tools(), ["echo", "crash"]);
        client.call("dev__a__echo", "{}").text();
    }
    assert_eq!(starts(&host.lab), [2, 1, 1]);
}

#[test]
fn a_new_file_may_turn_to_it() {
    let mut before = file();
    before["toolMode"] = json!("proxy");
    let mut gateway = start(known(&file()), &before);
    assert_eq!(gateway.tools(), ["open_toolbox", "use_tool"]);
    gateway.replace_file("workbench-config.json", &file().to_string());
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), TOOLS);
    assert_eq!(starts(&gateway.lab), [1; 3]);
}

#[test]
fn toolman_names_what_to_write_in_its_place() {
    let lab = Lab::new();
    lab.write("tools.toml", "");
    let mut toolman = lab.program(&crate::harness::toolman_path());
    let mut face = lab.command();
    face.args(["--face", "toolman"]);
    for command in [&mut toolman, &mut face] {
        let finished = lab.run(command.args(["--tool-mode", "flat"]));
        assert_eq!(finished.code, Some(2), "{}", finished.stderr);
        assert!(finished.stderr.contains("active_toolsets = [\"*\"]"), "{}", finished.stderr);
    }
}

#[test]
fn a_tool_that_does_not_exist_is_not_looked_for_in_closed_toolboxes() {
    for generation in ["current", "classic"] {
        let mut file = file();
        file["metaTools"] = json!(generation);
        let mut gateway = start(known(&self::file()), &file);
        let near = gateway.call("dev__a__eco", "{}").failure();
        assert!(near.contains("Nearest names") && near.contains("dev__a__echo"), "{near}");
        for name in ["nothing-like-it", "open_toolboxes", "workbench_open"] {
            let unknown = gateway.call(name, "{}").failure();
            let expected = format!("Tool '{name}' not found. All tools are in your tool list");
            assert_eq!(unknown, expected, "no meta-tool is listed, so none is named");
        }
    }
}
