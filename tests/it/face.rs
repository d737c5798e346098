//! The workbench face under the current contract.

use serde_json::{Value, json};

use crate::harness::{Gateway, Lab, Message, TOOLS_CHANGED, VERSION, dev, fake, fake_with, server};

const MODES: [&str; 2] = ["dynamic", "proxy"];

fn opened(mode: &str, servers: Value) -> Gateway {
    let mut gateway = Gateway::start(dev(mode, servers));
    gateway.open("dev");
    gateway
}

/// The listed tool of this name.
fn listed(gateway: &mut Gateway, name: &str) -> Value {
    let result = gateway.request("tools/list", "{}").result();
    let tools = result["tools"].as_array().cloned().unwrap_or_default();
    tools.into_iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name} is not listed"))
}

#[test]
fn dynamic_mode_shows_exactly_open_toolbox_and_is_the_default() {
    let mut gateway = Gateway::start(r#"{"toolboxes":{"dev":{"mcpServers":{}}}}"#);
    assert_eq!(gateway.tools(), ["open_toolbox"]);
}

#[test]
fn proxy_mode_shows_exactly_open_toolbox_and_use_tool_always() {
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake("--with echo")})));
    assert_eq!(gateway.tools(), ["open_toolbox", "use_tool"]);
    gateway.open("dev");
    assert_eq!(gateway.tools(), ["open_toolbox", "use_tool"]);
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
}

#[test]
fn the_tool_mode_option_overrides_the_file() {
    let mut gateway = Gateway::spawn_with(Lab::new(), dev("dynamic", json!({})), |command| {
        command.args(["--tool-mode", "proxy"]);
    });
    gateway.initialize(VERSION);
    assert_eq!(gateway.tools(), ["open_toolbox", "use_tool"]);
}

#[test]
fn auto_is_dynamic_for_clients_that_honour_list_changed_and_proxy_for_all_others() {
    let cases = [
        ("claude-code", 1),
        ("Claude-Code", 1),
        ("gemini-cli-mcp-client", 1),
        ("opencode", 1),
        ("Zed", 1),
        ("goose", 1),
        ("goose-desktop", 1),
        ("codex-mcp-client", 2),
        ("@cline/core", 2),
        ("Cline", 2),
        ("claude-ai", 2),
        ("", 2),
        ("not-claude-code", 2),
    ];
    for (client, tools) in cases {
        let mut gateway = Gateway::spawn(dev("auto", json!({})));
        gateway.initialize_as(VERSION, "{}", client);
        let listed = gateway.tools();
        assert_eq!(listed.iter().filter(|name| *name != "describe_tools").count(), tools, "{client}");
    }
}

#[test]
fn the_schema_of_open_toolbox_is_strict() {
    for mode in MODES {
        let mut gateway = Gateway::start(dev(mode, json!({})));
        let tool = listed(&mut gateway, "open_toolbox");
        let schema = &tool["inputSchema"];
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["required"], json!(["toolbox_name"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(
            schema["properties"],
            json!({"toolbox_name": {
                "type": "string", "minLength": 1, "description": "Name of the toolbox to open"
            }})
        );
    }
}

#[test]
fn the_schema_of_use_tool_is_strict() {
    let mut gateway = Gateway::start(dev("proxy", json!({})));
    let schema = &listed(&mut gateway, "use_tool")["inputSchema"];
    assert_eq!(schema["required"], json!(["tool"]));
    assert_eq!(schema["additionalProperties"], false);
    let tool = &schema["properties"]["tool"];
    assert_eq!(tool["additionalProperties"], false);
    let mut required: Vec<&str> =
        tool["required"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    required.sort_unstable();
    assert_eq!(required, ["server", "tool", "toolbox"]);
    for part in required {
        assert_eq!(tool["properties"][part]["type"], "string");
        assert_eq!(tool["properties"][part]["minLength"], 1);
    }
    assert_eq!(schema["properties"]["arguments"]["type"], "object");
}

#[test]
fn descriptions_of_meta_tools_hold_an_example_and_name_the_toolboxes() {
    let mut gateway = Gateway::start(dev("proxy", json!({})));
    let open = listed(&mut gateway, "open_toolbox")["description"].to_string();
    assert!(open.contains("toolbox_name") && open.contains("dev"), "{open}");
    let call = listed(&mut gateway, "use_tool")["description"].to_string();
    assert!(call.contains("toolbox") && call.contains("arguments"), "{call}");
}

#[test]
fn opening_in_proxy_mode_answers_with_original_names_and_descriptions() {
    let tool =
        r#"{"name":"read_file","title":"Read","description":"Read a file","inputSchema":{"type":"object"}}"#;
    let mut gateway = Gateway::start(dev("proxy", json!({"filesystem": fake_with("", &["--tool", tool])})));
    let answer = gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    let expected = json!({
        "toolbox": "dev", "description": "Development toolbox", "servers_connected": 1,
        "tools": [{
            "name": "read_file", "toolbox_name": "dev", "source_server": "filesystem", "title": "Read",
            "description": "Read a file", "inputSchema": {"type": "object"}
        }]
    });
    assert_eq!(answer.json(), expected);
    assert_eq!(answer.result()["structuredContent"], expected);
    assert_eq!(answer.result()["content"].as_array().map(Vec::len), Some(1));
}

#[test]
fn opening_in_dynamic_mode_registers_the_tools_and_says_how_many() {
    let mut gateway = Gateway::start(dev("dynamic", json!({"a": fake("--tools 2"), "b": fake("--tools 1")})));
    let answer = gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    let expected = json!({
        "toolbox": "dev", "description": "Development toolbox", "servers_connected": 2, "tools_registered": 3
    });
    assert_eq!(answer.json(), expected);
    assert_eq!(answer.result()["structuredContent"], expected);
    assert_eq!(answer.result()["content"].as_array().map(Vec::len), Some(1));
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.count(TOOLS_CHANGED), 0, "once per open");
    assert_eq!(gateway.tools(), ["open_toolbox", "dev__a__tool-1", "dev__a__tool-2", "dev__b__tool-1"]);
}

#[test]
fn the_list_has_really_changed_when_the_client_is_told() {
    let mut gateway = Gateway::start(dev("dynamic", json!({"a": fake("--tools 1")})));
    let open = gateway.post_call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["open_toolbox", "dev__a__tool-1"]);
    gateway.answer(&open);
}

#[test]
fn a_registered_tool_has_prefix_and_origin_and_all_else_untouched() {
    let tool = r#"{"name":"t","description":"Does it","inputSchema":{"type":"object","x":1},"_meta":{"k":1},"annotations":{"title":"T"}}"#;
    let bare = r#"{"name":"bare","inputSchema":{"type":"object"}}"#;
    let mut gateway = opened("dynamic", json!({"a": fake_with("", &["--tool", tool, "--tool", bare])}));
    assert_eq!(
        listed(&mut gateway, "dev__a__t"),
        json!({
            "name": "dev__a__t", "description": "[dev/a] Does it", "inputSchema": {"type": "object", "x": 1},
            "_meta": {"k": 1, "mcp-workbench/origin": {"toolbox": "dev", "server": "a", "tool": "t"}},
            "annotations": {"title": "T"}
        })
    );
    assert_eq!(listed(&mut gateway, "dev__a__bare")["description"], "[dev/a]", "the prefix alone");
}

#[test]
fn a_tool_without_a_usable_schema_gets_one_and_one_without_a_name_is_left_out() {
    let tools: Vec<&str> = [
        r#"{"name":"none"}"#,
        r#"{"name":"empty","inputSchema":{}}"#,
        r#"{"name":"null","inputSchema":null}"#,
        r#"{"name":"text","inputSchema":"object"}"#,
        r#"{"name":"list","inputSchema":[]}"#,
        r#"{"description":"nameless","inputSchema":{"type":"object"}}"#,
        r#"{"name":"fine","inputSchema":{"type":"object","a":1}}"#,
    ]
    .into_iter()
    .flat_map(|tool| ["--tool", tool])
    .collect();
    for mode in MODES {
        let mut gateway = Gateway::start(dev(mode, json!({"a": fake_with("", &tools)})));
        let opened = gateway.open("dev");
        let tools = match mode {
            "proxy" => opened["tools"].as_array().cloned().expect("tools"),
            _ => {
                let list = gateway.request("tools/list", "{}").result();
                list["tools"].as_array().expect("tools")[1..].to_vec()
            }
        };
        assert_eq!(tools.len(), 6, "{mode}");
        for tool in &tools[..5] {
            assert_eq!(tool["inputSchema"], json!({"type": "object"}), "{mode} {tool}");
        }
        assert_eq!(tools[5]["inputSchema"], json!({"type": "object", "a": 1}));
        gateway.stderr_with("name");
        gateway.stderr_with("inputSchema");
    }
}

#[test]
fn meta_tools_say_what_they_are() {
    let opens = json!({"readOnlyHint": false, "destructiveHint": false, "idempotentHint": true, "openWorldHint": true});
    let looks = json!({"readOnlyHint": true});
    let always = json!({"anthropic/alwaysLoad": true, "anthropic/maxResultSizeChars": 200_000});
    let mut config = dev("proxy", json!({"a": fake("--tools 1")}));
    (config["search"], config["openLimit"]) = (json!(true), json!(1000));
    let mut current = Gateway::start(&config);
    config["metaTools"] = json!("classic");
    let mut classic = Gateway::start(&config);
    let mut toolman = Gateway::toolman(format!("search = true\n{}", server("a", "--tools 1", "")));
    for (gateway, expected) in [
        (
            &mut current,
            &[
                ("open_toolbox", &opens, &always),
                ("use_tool", &Value::Null, &always),
                ("find_tools", &looks, &always),
                ("describe_tools", &looks, &always),
            ][..],
        ),
        (
            &mut classic,
            &[
                ("workbench_list_toolboxes", &looks, &Value::Null),
                ("workbench_open_toolbox", &opens, &always),
                ("workbench_close_toolbox", &Value::Null, &Value::Null),
                ("workbench_use_tool", &Value::Null, &always),
            ],
        ),
        (
            &mut toolman,
            &[
                ("toolman_activate", &opens, &always),
                ("toolman_find", &looks, &always),
                ("toolman_describe", &looks, &always),
            ],
        ),
    ] {
        let list = gateway.request("tools/list", "{}").result();
        for (tool, (name, annotations, meta)) in
            list["tools"].as_array().expect("a list").iter().zip(expected)
        {
            assert_eq!(
                (&tool["name"], &tool["annotations"], &tool["_meta"]),
                (&json!(name), *annotations, *meta)
            );
            assert!(tool["title"].as_str().is_some_and(|title| !title.is_empty()), "{tool}");
        }
    }
}

#[test]
fn order_is_that_of_the_file_and_of_opening() {
    let server = |name: &str| format!(r#""{name}": {}"#, fake("--tools 2"));
    let toolbox = |name: &str| format!(r#""{name}": {{"mcpServers": {{{}, {}}}}}"#, server("z"), server("b"));
    let config = format!(r#"{{"toolboxes": {{{}, {}}}}}"#, toolbox("second"), toolbox("first"));
    let mut gateway = Gateway::start(config);
    gateway.open("first");
    gateway.open("second");
    let mut expected = vec!["open_toolbox".to_owned()];
    for toolbox in ["first", "second"] {
        for server in ["z", "b"] {
            expected.extend([1, 2].map(|n| format!("{toolbox}__{server}__tool-{n}")));
        }
    }
    assert_eq!(gateway.tools(), expected);
    assert_eq!(gateway.count(TOOLS_CHANGED), 2);
}

#[test]
fn every_page_of_a_servers_tools_is_read() {
    let mut gateway = Gateway::start(dev("dynamic", json!({"a": fake("--tools 25 --page 4")})));
    assert_eq!(gateway.open("dev")["tools_registered"], 25);
    let expected: Vec<String> = (1..=25).map(|n| format!("dev__a__tool-{n}")).collect();
    assert_eq!(gateway.tools()[1..], expected);
}

#[test]
fn a_toolbox_with_no_servers_opens_with_nothing() {
    let config = r#"{"toolMode": "MODE", "toolboxes": {"empty": {"mcpServers": {}}}}"#;
    let mut gateway = Gateway::start(config.replace("MODE", "proxy"));
    let expected = json!({"toolbox": "empty", "description": "", "servers_connected": 0, "tools": []});
    assert_eq!(gateway.open("empty"), expected);
    let mut gateway = Gateway::start(config.replace("MODE", "dynamic"));
    let expected =
        json!({"toolbox": "empty", "description": "", "servers_connected": 0, "tools_registered": 0});
    assert_eq!(gateway.open("empty"), expected);
    assert_eq!(gateway.count(TOOLS_CHANGED), 0, "nothing has changed");
}

#[test]
fn filters_decide_alike_in_both_modes() {
    let cases: [(Value, &[&str]); 6] = [
        (json!(["*"]), &["tool-1", "tool-2", "tool-3"]),
        (json!(["tool-3", "tool-1"]), &["tool-1", "tool-3"]),
        (json!([]), &[]),
        (json!(["tool-2", "*"]), &["tool-1", "tool-2", "tool-3"]),
        (json!(["tool-2", "no-such"]), &["tool-2"]),
        (json!(["tool-*"]), &[]),
    ];
    for (filters, expected) in cases {
        let mut entry = fake("--tools 3");
        entry["toolFilters"] = filters.clone();
        for mode in MODES {
            let mut gateway = Gateway::start(dev(mode, json!({"a": entry})));
            let opened = gateway.open("dev");
            let names: Vec<String> = match mode {
                "proxy" => opened["tools"]
                    .as_array()
                    .expect("tools")
                    .iter()
                    .map(|tool| tool["name"].as_str().expect("a name").to_owned())
                    .collect(),
                _ => gateway.tools()[1..].iter().map(|name| name.replace("dev__a__", "")).collect(),
            };
            assert_eq!(names, expected, "{mode} {filters}");
            for n in 1..=3 {
                let tool = format!("tool-{n}");
                let allowed = expected.contains(&tool.as_str());
                assert_eq!(
                    !gateway.use_tool("a", &tool, "{}").is_error(),
                    allowed,
                    "{mode} {filters} {tool}"
                );
                let registered = format!("dev__a__{tool}");
                assert_eq!(!gateway.call(&registered, "{}").is_error(), allowed, "{mode} {filters} {tool}");
            }
        }
    }
}

#[test]
fn open_toolbox_refuses_with_these_texts() {
    let cases = [
        (r#"{"toolbox_name":"production"}"#, "Toolbox 'production' not found in configuration"),
        (r#"{"toolbox_name":""}"#, "Invalid parameters: toolbox_name cannot be empty"),
        (r#"{"toolbox_name":" \t "}"#, "Invalid parameters: toolbox_name cannot be empty"),
        (r#"{"toolbox_name":"dev","extra_field":1}"#, "Invalid parameters: Unrecognized key: 'extra_field'"),
        (r#"{"toolbox_name":"dev","a":1,"b":2}"#, "Invalid parameters: Unrecognized keys: 'a', 'b'"),
    ];
    for mode in MODES {
        let mut gateway = Gateway::start(dev(mode, json!({})));
        for (arguments, text) in cases {
            let answer = gateway.call("open_toolbox", arguments);
            assert!(answer.is_error(), "{mode} {arguments}");
            assert_eq!(answer.text_block(0), text, "{mode} {arguments}");
        }
        let answer = gateway.call("open_toolbox", r#"{"toolbox_name":"production"}"#);
        assert!(answer.text_block(1).contains("dev"), "the configured names follow in a second block");
    }
}

#[test]
fn open_toolbox_says_what_it_expected() {
    let mut gateway = Gateway::start(dev("dynamic", json!({})));
    for params in [
        r#"{"name":"open_toolbox"}"#,
        r#"{"name":"open_toolbox","arguments":{}}"#,
        r#"{"name":"open_toolbox","arguments":{"toolbox_name":5}}"#,
        r#"{"name":"open_toolbox","arguments":{"toolbox_name":null}}"#,
        r#"{"name":"open_toolbox","arguments":{"toolbox_name":["dev"]}}"#,
    ] {
        let answer = gateway.request("tools/call", params);
        let text = answer.text_block(0);
        assert!(answer.is_error(), "{params}");
        assert!(text.starts_with("Invalid parameters: "), "{params}: {text}");
        assert!(text.contains("toolbox_name"), "{params}: {text}");
    }
}

#[test]
fn use_tool_refuses_what_does_not_fit() {
    for mode in MODES {
        let mut gateway = opened(mode, json!({"a": fake("--with echo,requests")}));
        for arguments in [
            "{}",
            r#"{"tool":"echo"}"#,
            r#"{"tool":{}}"#,
            r#"{"tool":{"toolbox":"dev","server":"a"}}"#,
            r#"{"tool":{"toolbox":"dev","server":"a","tool":""}}"#,
            r#"{"tool":{"toolbox":"","server":"a","tool":"echo"}}"#,
            r#"{"tool":{"toolbox":"dev","server":5,"tool":"echo"}}"#,
            r#"{"tool":{"toolbox":"dev","server":"a","tool":"echo","more":1}}"#,
            r#"{"tool":{"toolbox":"dev","server":"a","tool":"echo"},"more":{}}"#,
            r#"{"tool":{"toolbox":"dev","server":"a","tool":"echo"},"arguments":[]}"#,
            r#"{"tool":{"toolbox":"dev","server":"a","tool":"echo"},"arguments":"{}"}"#,
        ] {
            let answer = gateway.call("use_tool", arguments);
            assert!(answer.is_error(), "{mode} {arguments}");
            assert!(
                answer.text_block(0).starts_with("Invalid parameters: "),
                "{mode} {arguments}: {answer:?}"
            );
        }
        let requests = gateway.use_tool("a", "requests", json!({"method": "tools/call"})).json();
        assert_eq!(requests.as_array().map(Vec::len), Some(1), "nothing of this reached the upstream");
    }
}

#[test]
fn use_tool_names_all_three_parts_and_the_nearest_names_that_exist() {
    let two = json!({
        "toolMode": "proxy",
        "toolboxes": {
            "dev": {"mcpServers": {"database": fake("--with echo,report")}},
            "shut": {"mcpServers": {"other": fake("--with echo --count @dir/starts")}}
        }
    });
    let mut gateway = Gateway::start(two);
    gateway.open("dev");
    // Where the call goes and the names that the answer must hold besides.
    let cases = [
        (["shut", "other", "echo"], "open"),
        (["dve", "database", "echo"], "dev"),
        (["dev", "databse", "echo"], "database"),
        (["dev", "database", "ecko"], "echo"),
    ];
    for (parts, nearest) in cases {
        let [toolbox, server, tool] = parts;
        let arguments = json!({"tool": {"toolbox": toolbox, "server": server, "tool": tool}});
        let text = gateway.call("use_tool", arguments).failure();
        for part in parts.iter().chain([&nearest]) {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
    }
    assert_eq!(gateway.lab.starts("starts"), 0, "a call starts nothing in a closed toolbox");
}

#[test]
fn use_tool_without_arguments_reaches_the_tool() {
    let mut gateway = opened("proxy", json!({"a": fake("--with echo")}));
    let answer = gateway.call("use_tool", r#"{"tool":{"toolbox":"dev","server":"a","tool":"echo"}}"#);
    assert!(answer.text().contains(r#""name":"echo""#));
}

#[test]
fn meta_tools_of_both_modes_and_contracts_and_registered_names_can_always_be_called() {
    for mode in MODES {
        for contract in ["current", "classic"] {
            let mut config = dev(mode, json!({"a": fake("--with echo")}));
            config["metaTools"] = json!(contract);
            let mut gateway = Gateway::start(config);
            let before = gateway.call("dev__a__echo", "{}");
            assert!(before.is_error(), "{mode} {contract}: not open yet");
            assert_eq!(gateway.open("dev")["toolbox"], "dev", "{mode} {contract}");
            assert_eq!(
                gateway.call("workbench_list_toolboxes", "{}").json()["toolboxes"][0]["is_open"],
                true
            );
            gateway.call("workbench_open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
            gateway.call("dev__a__echo", "{}").text();
            gateway.use_tool("a", "echo", "{}").text();
            let arguments = json!({"toolbox_name": "dev", "tool_name": "dev__a__echo"});
            gateway.call("workbench_use_tool", arguments).text();
            gateway.call("workbench_close_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        }
    }
}

#[test]
fn each_meta_tool_answers_in_its_own_contracts_shape() {
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake("--with echo")})));
    assert_eq!(gateway.open("dev")["tools"][0]["name"], "echo");
    let classic = gateway.call("workbench_open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
    assert_eq!(classic["tools"][0]["name"], "dev__a__echo");
    assert_eq!(classic["tools"][0]["original_name"], "echo");
}

#[test]
fn an_unknown_name_is_a_result_with_the_nearest_names() {
    for mode in MODES {
        let mut gateway = opened(mode, json!({"a": fake("--with echo,report")}));
        let cases =
            [("dev__a__ecko", "dev__a__echo"), ("open_tolbox", "open_toolbox"), ("use_tol", "use_tool")];
        for (name, nearest) in cases {
            let text = gateway.call(name, "{}").failure();
            assert!(text.contains(name) && text.contains(nearest), "{mode}: {text}");
        }
    }
}

#[test]
fn some_servers_failed_is_the_same_object_with_errors() {
    for mode in MODES {
        let servers = json!({"a": fake("--with echo"), "database": fake("--exit 3 --stderr refused")});
        let mut gateway = Gateway::start(dev(mode, servers));
        let opened = gateway.open("dev");
        assert_eq!(opened["servers_connected"], 1);
        let errors = opened["_errors"].as_array().expect("errors").clone();
        assert_eq!(errors.len(), 1);
        let text = errors[0].as_str().expect("a text");
        assert!(
            text.starts_with("Failed to connect to server 'database' in toolbox 'dev': "),
            "{mode}: {text}"
        );
        gateway.use_tool("a", "echo", "{}").text();
    }
}

#[test]
fn a_server_past_its_deadline_is_a_connection_timeout() {
    for method in ["initialize", "tools/list"] {
        let mut entry = fake(&format!("--with echo --hang {method}"));
        entry["connectTimeout"] = json!(0.3);
        let mut gateway = Gateway::start(dev("proxy", json!({"a": fake("--with echo"), "b": entry})));
        let expected = "Failed to connect to server 'b' in toolbox 'dev': connection timeout";
        let opened = gateway.open("dev");
        let text = opened["_errors"][0].as_str().expect("a text").to_owned();
        assert!(text.starts_with(expected), "{method}: {text}");
    }
}

#[test]
fn all_servers_failed_is_an_error_with_reasons_and_stderr() {
    for mode in MODES {
        let servers = json!({
            "a": fake_with("--exit 3", &["--stderr", "no such database"]),
            "b": fake_with("", &["--error", r#"initialize={"code":-5,"message":"licence expired"}"#]),
        });
        let mut gateway = Gateway::start(dev(mode, servers));
        let text = gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).failure();
        for part in ["dev", "'a'", "'b'", "no such database", "licence expired"] {
            assert!(text.contains(part), "{mode}: {part} is missing: {text}");
        }
        let text = gateway.use_tool("a", "echo", "{}").failure();
        assert!(text.contains("open"), "a toolbox whose servers all failed is not open: {text}");
        assert_eq!(gateway.count(TOOLS_CHANGED), 0);
    }
}

#[test]
fn an_upstreams_list_changed_refreshes_what_is_held() {
    let tool = |name: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
    for mode in MODES {
        let mut gateway = opened(mode, json!({"a": fake("--with echo,change")}));
        if mode == "dynamic" {
            gateway.notification(TOOLS_CHANGED);
        }
        gateway.use_tool("a", "change", json!({"add": [tool("new")], "remove": ["echo"]}));
        gateway.until("the new tool can be called", |gateway| !gateway.use_tool("a", "new", "{}").is_error());
        assert!(gateway.use_tool("a", "echo", "{}").is_error(), "{mode}: the old one is gone");
        if mode == "dynamic" {
            gateway.notification(TOOLS_CHANGED);
            assert_eq!(gateway.tools(), ["open_toolbox", "dev__a__change", "dev__a__new"]);
        }
        assert_eq!(gateway.count(TOOLS_CHANGED), 0, "{mode}");
    }
}

#[test]
fn the_client_is_told_only_if_its_own_list_changed() {
    let mut gateway = opened("dynamic", json!({"a": fake("--with change,requests")}));
    gateway.notification(TOOLS_CHANGED);
    gateway.use_tool("a", "change", json!({"times": 10_000}));
    gateway.until("the list was read again", |gateway| lists(gateway) >= 2);
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
    let before = lists(&mut gateway);
    gateway.use_tool("a", "change", json!({"add": [r#"{"name":"new","inputSchema":{"type":"object"}}"#]}));
    gateway.notification(TOOLS_CHANGED);
    assert!(lists(&mut gateway) <= 4, "a burst is one or two lists, not ten thousand: {before} and one more");
}

fn lists(gateway: &mut Gateway) -> usize {
    let requests = gateway.use_tool("a", "requests", json!({"method": "tools/list"})).json();
    requests.as_array().map_or(0, Vec::len)
}

fn instructions(config: impl std::fmt::Display) -> String {
    let mut gateway = Gateway::spawn(config);
    let answer: Message = gateway.initialize(VERSION);
    answer.result()["instructions"].as_str().expect("a text").to_owned()
}

#[test]
fn instructions_list_every_toolbox_and_the_meta_tools_of_this_client() {
    for mode in MODES {
        let text = instructions(json!({"toolMode": mode, "toolboxes": {
            "dev": {"description": "Development toolbox", "mcpServers": {"a": fake(""), "b": fake("")}},
            "ops": {"description": "Operations", "mcpServers": {"c": fake("")}}
        }}));
        for part in ["dev", "Development toolbox", "2", "ops", "Operations", "1", "open_toolbox"] {
            assert!(text.contains(part), "{mode}: {part} is missing: {text}");
        }
        assert_eq!(text.contains("use_tool"), mode == "proxy", "{text}");
    }
}

/// A configuration of so many toolboxes with long descriptions.
fn boxes(count: usize) -> Value {
    let toolbox = || json!({"description": "é word ".repeat(70), "mcpServers": {}});
    let toolboxes: serde_json::Map<String, Value> =
        (0..count).map(|n| (format!("box-{n:03}"), toolbox())).collect();
    json!({"toolboxes": toolboxes})
}

#[test]
fn in_instructions_descriptions_are_shortened_before_toolboxes_are_left_out() {
    let text = instructions(boxes(40));
    assert!(text.len() <= 2048, "{} bytes", text.len());
    assert_eq!(text.matches("- box-").count(), 40, "{text}");
    assert!(text.contains("open_toolbox"), "{text}");
}

#[test]
fn what_instructions_leave_out_is_counted() {
    let mut config = boxes(400);
    let text = instructions(&config);
    assert!(text.len() <= 2048, "{} bytes", text.len());
    let shown = (0..400).filter(|n| text.contains(&format!("- box-{n:03}"))).count();
    assert!(shown > 10, "{text}");
    assert!(text.contains(&(400 - shown).to_string()), "{} are left out: {text}", 400 - shown);
    assert!(text.contains("open_toolbox"), "{text}");

    config["instructionsLimit"] = json!(3000);
    let more = instructions(&config);
    assert!(more.len() > text.len() && more.len() <= 3000, "{} bytes", more.len());
    config["instructionsLimit"] = json!(0);
    assert!(instructions(&config).len() > 400 * 500, "0 is no limit");
}

#[test]
fn the_description_of_open_toolbox_is_cut_alike() {
    let mut gateway = Gateway::start(boxes(60));
    let tool = listed(&mut gateway, "open_toolbox");
    let text = tool["description"].as_str().expect("a text");
    assert!(text.len() <= 2048 && text.contains("box-000"), "{} bytes: {text}", text.len());
}

#[test]
fn no_toolboxes_configured_is_said_in_the_instructions() {
    let text = instructions(r#"{"toolboxes": {}}"#);
    assert!(text.to_lowercase().contains("no toolboxes"), "{text}");
}
