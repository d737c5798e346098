//! Openings that fit what a client hands to its model: `openLimit`, the brief form, `describe_tools`.

use serde_json::{Value, json};

use crate::client::{Client, Era, MODERN};
use crate::harness::{Gateway, Message, TOOLS_CHANGED, VERSION, dev, fake, fake_with};

/// Flags of a server with so many tools of ordinary size.
fn tools(count: usize) -> Vec<String> {
    let verbs = ["create", "get", "list", "update", "delete", "search", "merge", "close"];
    let things = [
        "issue",
        "pull_request",
        "commit",
        "branch",
        "release",
        "workflow_run",
        "review",
        "gist",
        "file",
        "tag",
    ];
    let tool = |n: usize| {
        let (verb, thing) = (verbs[n % verbs.len()], things[n / verbs.len() % things.len()]);
        let round = n / (verbs.len() * things.len());
        let version = if round == 0 { String::new() } else { format!("_v{round}") };
        json!({
            "name": format!("{verb}_{thing}{version}"),
            "description": format!("{verb} a {thing} of a repository. {}", "The token needs access to it. ".repeat(12)),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "owner": {"type": "string", "description": "Account that owns the repository; its name is not case sensitive."},
                    "repo": {"type": "string", "description": "Name of the repository, without the extension .git."},
                    "page": {"type": "integer", "minimum": 1, "description": "Page of the results, for those that have several."},
                    "sort": {"enum": ["created", "updated"], "description": "What the results are sorted by."}
                },
                "required": ["owner", "repo"]
            }
        })
        .to_string()
    };
    (0..count).flat_map(|n| ["--tool".to_owned(), tool(n)]).collect()
}

fn github(settings: Value, count: usize) -> String {
    let flags = tools(count);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut config = json!({"toolboxes": {"github": {"description": "Repositories and issues", "mcpServers": {"github": fake_with("", &flags)}}}});
    for (key, value) in settings.as_object().expect("an object") {
        config[key] = value.clone();
    }
    config.to_string()
}

fn open(gateway: &mut Gateway) -> Message {
    gateway.call("open_toolbox", r#"{"toolbox_name": "github"}"#)
}

fn names(tools: &Value) -> Vec<&str> {
    tools.as_array().expect("a list").iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

#[test]
fn every_client_of_the_table_sees_every_name() {
    for (client, limit, structured) in [
        ("claude-code", 60_000, true),
        ("gemini-cli-mcp-client", 8_000, true),
        ("opencode", 40_000, true),
        ("codex-mcp-client", 9_000, true),
        ("@cline/core", 7_000, false),
        ("Cline", 7_000, false),
        ("cursor", usize::MAX, true),
        ("nobody-knows-it", usize::MAX, true),
    ] {
        let mut gateway = Gateway::spawn(github(json!({"toolMode": "proxy"}), 80));
        gateway.initialize_as(VERSION, "{}", client);
        let limited = limit < usize::MAX;
        let listed: &[&str] = if limited {
            &["open_toolbox", "use_tool", "describe_tools"]
        } else {
            &["open_toolbox", "use_tool"]
        };
        assert_eq!(gateway.tools(), listed, "{client}");
        let answer = open(&mut gateway);
        assert!(answer.text().len() <= limit, "{client}: {}", answer.text().len());
        assert_eq!(answer.result()["structuredContent"].is_object(), structured, "{client}");
        let opened: Value = serde_json::from_str(&answer.text()).expect("JSON");
        assert_eq!(
            (opened["tools"].as_array().map(Vec::len), &opened["more"]),
            (Some(80), &Value::Null),
            "{client}"
        );
        assert_eq!(opened["brief"], if limited { json!(true) } else { Value::Null }, "{client}");
    }
}

/// Some clients cut what an answer holds twice.
#[test]
fn what_is_found_and_described_is_structured_for_those_who_can_take_it() {
    for (name, structured) in [("@cline/core", false), ("codex-mcp-client", true)] {
        for era in [Era::Legacy, Era::Modern] {
            let gateway = Gateway::spawn(github(json!({"toolMode": "proxy", "search": true}), 8));
            let mut client = match era {
                Era::Legacy => Client::named(gateway, name),
                Era::Modern => Client::pipe(era, gateway, "{}"),
            };
            client.name = name.to_owned();
            client.call("open_toolbox", r#"{"toolbox_name": "github"}"#).text();
            let wanted =
                json!({"tools": [{"toolbox": "github", "server": "github", "tool": "create_issue"}]});
            for answer in [
                client.call("find_tools", r#"{"query": "create issue"}"#),
                client.call("describe_tools", wanted),
            ] {
                assert!(answer.text().contains("create_issue"), "{name}: {}", answer.text());
                assert_eq!(answer.result()["structuredContent"].is_object(), structured, "{name} {era:?}");
            }
        }
    }
}

/// A modern Claude Code takes three times as much as a legacy one.
#[test]
fn claude_code_takes_longer_answers_in_the_modern_era() {
    for (count, era, brief) in [(80, Era::Legacy, true), (80, Era::Modern, false), (200, Era::Modern, true)] {
        let gateway = Gateway::spawn(github(json!({"toolMode": "proxy"}), count));
        let mut client = match era {
            Era::Legacy => Client::named(gateway, "claude-code"),
            Era::Modern => Client::pipe(era, gateway, "{}"),
        };
        client.name = "claude-code".to_owned();
        let text = client.call("open_toolbox", r#"{"toolbox_name": "github"}"#).text();
        let opened: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(opened["brief"] == true, brief, "{count} {era:?}: {}", text.len());
        assert!(text.len() <= 180_000, "{}", text.len());
    }
}

/// Our ancestor's members say a thing twice; where nothing but names fits, each is said once.
#[test]
fn every_name_stands_in_the_answer_to_our_ancestors_call_as_well() {
    for (client, limit) in
        [("gemini-cli-mcp-client", 8_000), ("codex-mcp-client", 9_000), ("@cline/core", 7_000)]
    {
        let mut gateway = Gateway::spawn(github(json!({"toolMode": "auto"}), 80));
        gateway.initialize_as(VERSION, "{}", client);
        let id = gateway.post_call("open_toolbox", r#"{"toolbox": "github"}"#);
        if client.starts_with("gemini") {
            gateway.notification(TOOLS_CHANGED);
            gateway.tools();
        }
        let text = gateway.answer(&id).text();
        let opened: Value = serde_json::from_str(&text).expect("JSON");
        assert!(text.len() <= limit, "{client}: {}", text.len());
        assert_eq!((names(&opened["tools"]).len(), &opened["more"]), (80, &Value::Null), "{client}");
        let expected = json!({"name": "create_issue", "toolbox_name": "github", "source_server": "github"});
        assert_eq!(opened["tools"][0], expected, "{client}");
    }
    let mut gateway = Gateway::start(github(json!({"toolMode": "proxy", "openLimit": 3000}), 8));
    let opened = gateway.call("open_toolbox", r#"{"toolbox": "github"}"#).json();
    assert_eq!(opened["brief"], true);
    assert_eq!(
        (&opened["tools"][0]["toolbox"], &opened["tools"][0]["server"]),
        (&json!("github"), &json!("github"))
    );
}

#[test]
fn the_brief_form_holds_what_a_call_needs() {
    let mut gateway = Gateway::start(github(json!({"toolMode": "proxy", "openLimit": 2000}), 4));
    let opened = open(&mut gateway).json();
    let entry = |name: &str, about: &str| {
        json!({"name": name, "toolbox_name": "github", "source_server": "github", "description": about,
            "signature": "(owner: string, page?: integer, repo: string, sort?: \"created\"|\"updated\")"})
    };
    let expected = json!({"toolbox": "github", "description": "Repositories and issues", "servers_connected": 1, "brief": true,
        "hint": "describe_tools gives the whole definitions of the tools that you name.",
        "tools": [entry("create_issue", "create a issue of a repository."), entry("get_issue", "get a issue of a repository."),
            entry("list_issue", "list a issue of a repository."), entry("update_issue", "update a issue of a repository.")]});
    assert_eq!(opened, expected);

    let whole = Gateway::start(github(json!({"toolMode": "proxy"}), 4)).open("github");
    let wanted = |name: &str| json!({"toolbox": "github", "server": "github", "tool": name});
    let described = gateway
        .call("describe_tools", json!({"tools": [wanted("get_issue"), wanted("create_issue")]}))
        .json();
    assert_eq!(described, json!({"tools": [whole["tools"][1], whole["tools"][0]]}), "in the order asked");
}

#[test]
fn what_cannot_be_described_is_said_as_use_tool_says_it() {
    let mut gateway = Gateway::start(github(json!({"toolMode": "proxy", "openLimit": 1000}), 3));
    let address =
        |toolbox: &str, server: &str, tool: &str| json!({"toolbox": toolbox, "server": server, "tool": tool});
    let closed = gateway.call("describe_tools", json!({"tools": [address("github", "github", "get_issue")]}));
    assert!(closed.is_error(), "that is all");
    open(&mut gateway);
    let wrong = [
        address("github", "github", "no"),
        address("github", "no", "get_issue"),
        address("no", "github", "get_issue"),
    ];
    let mut wanted = wrong.to_vec();
    wanted.insert(1, address("github", "github", "get_issue"));
    let described = gateway.call("describe_tools", json!({"tools": wanted}));
    assert!(!described.is_error());
    let errors: Vec<Value> = wrong
        .iter()
        .map(|tool| {
            let blocks = gateway.call("use_tool", json!({"tool": tool})).result()["content"].clone();
            let texts: Vec<_> = blocks
                .as_array()
                .expect("a list")
                .iter()
                .map(|block| block["text"].as_str().expect("a text"))
                .collect();
            texts.join("\n").into()
        })
        .collect();
    assert_eq!(described.json()["_errors"], json!(errors));
    assert_eq!(names(&described.json()["tools"]), ["get_issue"]);
    let wrong = gateway.call("describe_tools", r#"{"tools": []}"#).failure();
    assert_eq!(
        wrong,
        "Invalid parameters: tools must be a list of 1 to 20 objects with toolbox, server and tool"
    );
}

#[test]
fn who_has_no_limit_or_gets_no_definitions_sees_nothing_new() {
    let config = |settings| github(settings, 30);
    for (settings, client, listed) in [
        (json!({"toolMode": "auto"}), "claude-code", &["open_toolbox"][..]),
        (json!({"toolMode": "auto"}), "codex-mcp-client", &["open_toolbox", "use_tool", "describe_tools"]),
        (json!({"toolMode": "proxy", "openLimit": 0}), "codex-mcp-client", &["open_toolbox", "use_tool"]),
        (json!({"toolMode": "dynamic", "openLimit": 1000}), "x", &["open_toolbox"]),
        (
            json!({"toolMode": "proxy", "openLimit": 1000, "search": true}),
            "x",
            &["open_toolbox", "use_tool", "find_tools", "describe_tools"],
        ),
    ] {
        let mut gateway = Gateway::spawn(config(settings.clone()));
        let hello = gateway.initialize_as(VERSION, "{}", client).result();
        assert_eq!(gateway.tools(), listed, "{settings}");
        let told = hello["instructions"].as_str().expect("a text").contains("describe_tools");
        assert_eq!(told, listed.contains(&"describe_tools"), "{settings}");
    }
}

#[test]
fn a_modern_client_is_known_by_each_of_its_requests() {
    let config = github(json!({}), 80);
    let name = r#""io.modelcontextprotocol/clientInfo":{"name":"codex-mcp-client","version":"1"}"#;
    let own = format!(
        r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}",{name},"io.modelcontextprotocol/clientCapabilities":{{}}}}"#
    );
    let mut gateway = Gateway::spawn(config);
    let listed = gateway.request("tools/list", format!("{own}}}")).names("tools");
    assert_eq!(listed, ["open_toolbox", "use_tool", "describe_tools"]);
    let call = format!(r#"{own},"name":"open_toolbox","arguments":{{"toolbox_name":"github"}}}}"#);
    let text = gateway.request("tools/call", call).text();
    let opened: Value = serde_json::from_str(&text).expect("JSON");
    assert!(text.len() <= 9_000 && opened["brief"] == true, "{}", text.len());
    assert_eq!(names(&opened["tools"]).len(), 80);
}

#[test]
fn classic_openings_fit_as_well() {
    let settings = json!({"toolMode": "proxy", "metaTools": "classic", "openLimit": 3000});
    let mut gateway = Gateway::start(github(settings, 80));
    let listed = gateway.tools();
    assert_eq!(listed.last().map(String::as_str), Some("describe_tools"), "{listed:?}");
    let text = gateway.call("workbench_open_toolbox", r#"{"toolbox_name": "github"}"#).text();
    let opened: Value = serde_json::from_str(&text).expect("JSON");
    assert!(text.len() <= 3000, "{}", text.len());
    let expected = json!({"name": "github__github__create_issue", "original_name": "create_issue", "toolbox_name": "github", "source_server": "github"});
    assert_eq!(opened["tools"][0], expected);
    assert_eq!(names(&opened["tools"]).len() + opened["more"].as_u64().expect("a count") as usize, 80);
    let wanted = json!({"tools": [{"toolbox": "github", "server": "github", "tool": "get_issue"}]});
    let described = gateway.call("describe_tools", wanted).json();
    assert_eq!(described["tools"][0]["original_name"], "get_issue");
    assert!(described["tools"][0]["inputSchema"].is_object());
}

#[test]
fn our_ancestors_calls_are_understood() {
    for mode in ["dynamic", "proxy"] {
        let mut gateway = Gateway::start(dev(mode, json!({"a": fake("--tools 1 --with echo")})));
        let opened = gateway.call("open_toolbox", r#"{"toolbox": "dev"}"#).json();
        let expected = json!({"name": "tool-1", "toolbox_name": "dev", "source_server": "a", "toolbox": "dev", "server": "a",
            "description": "Does tool-1", "inputSchema": {"type": "object"}});
        assert_eq!(opened["tools"][0], expected, "{mode}");
        let call = json!({"tool": {"toolbox": "dev", "server": "a", "name": "echo"}, "arguments": {"x": 1}});
        assert!(gateway.call("use_tool", call).text().contains("\"x\""));
        let both = gateway.call("open_toolbox", r#"{"toolbox": "dev", "toolbox_name": "dev"}"#);
        assert_eq!(both.failure(), "Invalid parameters: Unrecognized key: 'toolbox'");
        let wrong = gateway.call("open_toolbox", r#"{"toolboxName": "dev"}"#);
        assert_eq!(wrong.text_block(0), "Invalid parameters: Unrecognized key: 'toolboxName'");
        assert_eq!(wrong.text_block(1), "Did you mean `toolbox_name`?");
    }
}
