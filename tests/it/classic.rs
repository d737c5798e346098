//! The classic contract.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, TOOLS_CHANGED, classic, fake};

const OPEN: &str = "workbench_open_toolbox";
const CLOSE: &str = "workbench_close_toolbox";
const DEV: &str = r#"{"toolbox_name":"dev"}"#;

fn opened(mode: &str, servers: Value) -> Gateway {
    let mut gateway = Gateway::start(classic(mode, servers));
    gateway.call(OPEN, DEV).text();
    gateway
}

#[test]
fn dynamic_mode_shows_exactly_three_and_proxy_mode_four() {
    let names = [
        "workbench_list_toolboxes",
        "workbench_open_toolbox",
        "workbench_close_toolbox",
        "workbench_use_tool",
    ];
    let mut gateway = Gateway::start(classic("dynamic", json!({})));
    assert_eq!(gateway.tools(), names[..3]);
    let mut gateway = Gateway::start(classic("proxy", json!({})));
    assert_eq!(gateway.tools(), names);
}

#[test]
fn listing_names_toolboxes_servers_and_state() {
    for mode in ["dynamic", "proxy"] {
        let mut gateway =
            Gateway::start(classic(mode, json!({"a": fake("--tools 2"), "b": fake("--tools 1")})));
        let expected = |open: bool, tools: u32| {
            json!({"toolboxes": [{
                "name": "dev", "description": "Development toolbox", "servers": ["a", "b"],
                "is_open": open, "tool_count": tools
            }], "total_count": 1, "open_count": u32::from(open)})
        };
        assert_eq!(gateway.call("workbench_list_toolboxes", "{}").json(), expected(false, 0));
        gateway.call(OPEN, DEV);
        let answer = gateway.call("workbench_list_toolboxes", "{}");
        assert_eq!(answer.json(), expected(true, 3));
        gateway.call(CLOSE, DEV);
        assert_eq!(gateway.call("workbench_list_toolboxes", "{}").json(), expected(false, 0));
    }
}

#[test]
fn a_servers_own_name_will_do_where_no_other_server_has_it() {
    let mut gateway = opened("proxy", json!({"a": fake("--with echo --tools 1"), "b": fake("--with echo")}));
    let call = |tool: &str| json!({"toolbox_name": "dev", "tool_name": tool, "arguments": {"x": 1}});
    assert!(gateway.call("workbench_use_tool", call("dev__b__echo")).text().contains("\"x\""));
    assert!(gateway.call("workbench_use_tool", call("tool-1")).text().contains("\"x\""));
    assert_eq!(
        gateway.call("workbench_use_tool", call("echo")).failure(),
        "Several tools in toolbox 'dev' are called 'echo': dev__a__echo, dev__b__echo. Name one of them"
    );
}

#[test]
fn opening_in_dynamic_mode_registers_with_prefix() {
    let mut gateway = Gateway::start(classic("dynamic", json!({"a": fake("--tools 1")})));
    assert_eq!(
        gateway.call(OPEN, DEV).json(),
        json!({
            "toolbox": "dev", "description": "Development toolbox", "servers_connected": 1, "tools_registered": 1
        })
    );
    gateway.notification(TOOLS_CHANGED);
    let list = gateway.request("tools/list", "{}").result();
    assert_eq!(list["tools"][3]["name"], "dev__a__tool-1");
    assert_eq!(list["tools"][3]["description"], "[dev/a] Does tool-1");
}

#[test]
fn opening_in_proxy_mode_answers_with_concatenated_and_original_names() {
    let mut gateway = Gateway::start(classic("proxy", json!({"a": fake("--tools 1")})));
    let opened = gateway.call(OPEN, DEV).json();
    let tool = &opened["tools"][0];
    assert_eq!(tool["name"], "dev__a__tool-1");
    assert_eq!(tool["original_name"], "tool-1");
    assert_eq!(tool["source_server"], "a");
    assert_eq!(tool["toolbox_name"], "dev");
    assert_eq!(tool["description"], "[dev/a] Does tool-1");
    assert_eq!(tool["inputSchema"], json!({"type": "object"}));
}

#[test]
fn workbench_use_tool_takes_the_concatenated_name() {
    for mode in ["dynamic", "proxy"] {
        let mut gateway = opened(mode, json!({"a": fake("--with echo")}));
        let arguments = json!({"toolbox_name": "dev", "tool_name": "dev__a__echo", "arguments": {"x": 1}});
        let echoed = gateway.call("workbench_use_tool", arguments).text();
        assert!(echoed.contains(r#""name":"echo""#) && echoed.contains(r#"{"x":1}"#), "{echoed}");
        for wrong in [
            json!({"toolbox_name": "dev", "tool_name": "dev__a__nothing"}),
            json!({"toolbox_name": "nothing", "tool_name": "dev__a__echo"}),
            json!({"toolbox_name": "dev"}),
            json!({"toolbox_name": "dev", "tool_name": "dev__a__echo", "more": 1}),
        ] {
            gateway.call("workbench_use_tool", wrong).failure();
        }
    }
}

#[test]
fn workbench_use_tool_names_what_it_could_not_call() {
    let mut config = classic("proxy", json!({"a": fake("--with echo")}));
    config["toolboxes"]["other"] = json!({"mcpServers": {"b": fake("--with echo")}});
    let mut gateway = Gateway::start(config);
    let mut failure = |toolbox: &str, tool: &str| {
        let arguments = json!({"toolbox_name": toolbox, "tool_name": tool});
        gateway.call("workbench_use_tool", arguments).text_block(0)
    };
    assert_eq!(
        failure("nowhere", "dev__a__echo"),
        "Toolbox 'nowhere' not found in configuration, so dev__a__echo cannot be called"
    );
    let closed = failure("dev", "dev__a__echo");
    assert!(closed.starts_with("Toolbox 'dev' is not open, so dev__a__echo cannot be called. "), "{closed}");
    gateway.call(OPEN, DEV).text();
    gateway.call(OPEN, r#"{"toolbox_name":"other"}"#).text();
    let arguments = json!({"toolbox_name": "dev", "tool_name": "other__b__echo"});
    let elsewhere = gateway.call("workbench_use_tool", arguments).failure();
    assert!(elsewhere.contains("other__b__echo") && elsewhere.contains("'dev'"), "{elsewhere}");
}

#[test]
fn classic_meta_tools_refuse_with_the_texts_of_the_current_contract() {
    let mut gateway = Gateway::start(classic("dynamic", json!({})));
    for tool in [OPEN, CLOSE] {
        let text = gateway.call(tool, r#"{"toolbox_name":"production"}"#);
        assert_eq!(text.text_block(0), "Toolbox 'production' not found in configuration");
        assert!(text.is_error());
        let text = gateway.call(tool, r#"{"toolbox_name":"dev","x":1}"#);
        assert_eq!(text.text_block(0), "Invalid parameters: Unrecognized key: 'x'");
    }
}

#[test]
fn closing_answers_as_soon_as_the_tools_are_gone_and_ends_the_upstreams() {
    for mode in ["dynamic", "proxy"] {
        let stubborn = fake("--tools 2 --ignore-term --ignore-eof --stubborn 1");
        let mut gateway = opened(mode, json!({"a": stubborn, "b": fake("--tools 1")}));
        if mode == "dynamic" {
            gateway.notification(TOOLS_CHANGED);
        }
        let began = Instant::now();
        let closed = gateway.call(CLOSE, DEV).json();
        let took = began.elapsed();
        assert_eq!(closed, json!({"toolbox": "dev", "tools_unregistered": 3, "servers_disconnected": 2}));
        assert!(took < Duration::from_secs(1), "it does not wait for stubborn processes: {took:?}");
        if mode == "dynamic" {
            gateway.notification(TOOLS_CHANGED);
            assert_eq!(gateway.tools().len(), 3);
        }
        assert_eq!(gateway.count(TOOLS_CHANGED), 0, "{mode}: one list_changed, in dynamic mode");
        gateway.call("dev__a__tool-1", "{}").failure();
        gateway.until("the upstreams are gone", |gateway| {
            !gateway.lab.processes().iter().any(|(_, line)| line.contains("fake-upstream"))
        });
        assert!(began.elapsed() < Duration::from_secs(5), "{mode}: {:?}", began.elapsed());
    }
}

#[test]
fn closing_fails_the_calls_in_flight() {
    let mut gateway = opened("proxy", json!({"a": fake("--with never,slow,started")}));
    let call = gateway.post_use_tool("a", "slow", "{}");
    gateway.use_tool("a", "started", "{}");
    gateway.call(CLOSE, DEV).text();
    assert!(gateway.answer(&call).failure().contains("[dev/a/slow]"));
}

#[test]
fn closing_what_is_not_open_is_a_clear_error() {
    let mut gateway = Gateway::start(classic("dynamic", json!({"a": fake("--with echo")})));
    for _ in 0..2 {
        let text = gateway.call(CLOSE, DEV).failure();
        assert!(text.contains("'dev'") && text.contains("not open"), "{text}");
        gateway.call(OPEN, DEV).text();
        gateway.call(CLOSE, DEV).text();
    }
}

#[test]
fn a_closed_toolbox_can_be_opened_again() {
    let mut gateway = opened("dynamic", json!({"a": fake("--with echo --count @dir/starts")}));
    gateway.call(CLOSE, DEV).text();
    assert_eq!(gateway.call(OPEN, DEV).json()["tools_registered"], 1);
    gateway.call("dev__a__echo", "{}").text();
    assert_eq!(gateway.lab.starts("starts"), 2);
    assert_eq!(gateway.count(TOOLS_CHANGED), 3);
}

#[test]
fn closing_one_toolbox_leaves_the_others_alone() {
    let toolbox = || json!({"mcpServers": {"a": fake("--with echo,report")}});
    let mut gateway = Gateway::start(json!({
        "metaTools": "classic", "toolMode": "proxy", "toolboxes": {"dev": toolbox(), "ops": toolbox()}
    }));
    gateway.call(OPEN, DEV).text();
    gateway.call(OPEN, r#"{"toolbox_name":"ops"}"#).text();
    let before = gateway.pid_of("a");
    gateway.call(CLOSE, r#"{"toolbox_name":"ops"}"#).text();
    assert_eq!(gateway.pid_of("a"), before);
}
