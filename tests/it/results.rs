//! Results that fit: what is too long for a client is kept, a notice stands in its place, and `read_result` reads it.
//!
//! [`surfaces`] enumerates every way to a tool. It takes the values of settings from the schema, so that a new one is met
//! here before it is forgotten.

use serde_json::{Value, json};

use crate::client::{CAN_ALL, Client, Era, Host, Over, Web};
use crate::harness::{Gateway, Lab, Message, TOOLS_CHANGED, VERSION, dev, fake, fake_with, server};

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// The limit of all files here that do not say otherwise.
const LIMIT: usize = 4000;

/// A tool with an output schema, which answers with what it is told to.
const RESULT: &str = r#"{"name":"result","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}"#;

/// How a client calls the tool `result` of the server `a`.
#[derive(Clone, Copy)]
enum By {
    Name(&'static str),
    UseTool,
    ClassicUseTool,
    ToolmanCall,
}

/// One way to a tool.
struct Surface {
    what: String,
    client: Client,
    _host: Option<Host>,
    by: By,
    /// The tool that reads what was kept.
    reader: &'static str,
    /// The gateway's own tools, in the order of the list.
    own: Vec<&'static str>,
    /// Whether the toolbox has to be opened first, and with which tool.
    opens: Option<&'static str>,
}

/// The values that the schema of `workbench-config.json` allows for a setting.
fn values(setting: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/workbench-config.schema.json");
    let schema = std::fs::read_to_string(path).expect("it is there");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let values = schema["properties"][setting]["enum"].as_array().expect("a list").iter();
    values.map(|value| value.as_str().expect("a word").to_owned()).collect()
}

/// A file with one toolbox, `dev`, and the server `a` in it.
fn file(settings: Value) -> Value {
    let mut file = json!({"offloadOver": LIMIT,
        "toolboxes": {"dev": {"description": "", "mcpServers": {"a": fake_with("--with echo", &["--tool", RESULT])}}}});
    file.as_object_mut().expect("an object").extend(settings.as_object().expect("an object").clone());
    file
}

/// The same for toolman, with everything active.
fn toolman_file(settings: &str) -> String {
    let entry = server("a", &format!("--with echo --tool '{RESULT}'"), "");
    format!("active_toolsets = [\"*\"]\noffload_over = {LIMIT}\n{settings}\n{entry}")
}

fn workbench(era: Era, over: Over, file: &Value) -> (Client, Option<Host>) {
    match over {
        Over::Stdio => (Client::pipe(era, Gateway::spawn(file), CAN_ALL), None),
        Over::Http => {
            let host = Host::workbench(file);
            (host.client(era), Some(host))
        }
    }
}

fn toolman(era: Era, over: Over, file: String) -> (Client, Option<Host>) {
    match over {
        Over::Stdio => (Client::pipe(era, Gateway::spawn_toolman(Lab::new(), file, |_| ()), CAN_ALL), None),
        Over::Http => {
            let host = Host::toolman(file);
            (host.client(era), Some(host))
        }
    }
}

/// Every way to a tool for a client of this era over this transport.
fn surfaces(era: Era, over: Over) -> Vec<Surface> {
    let mut surfaces = Vec::new();
    for mode in values("toolMode") {
        for generation in values("metaTools") {
            let is_classic = match generation.as_str() {
                "current" => false,
                "classic" => true,
                other => panic!("the generation {other} has no way to a tool here"),
            };
            let by_name = match (mode.as_str(), era) {
                ("flat", _) | ("dynamic", Era::Legacy) => true,
                ("dynamic", Era::Modern) | ("proxy" | "auto", _) => false,
                (other, _) => panic!("the mode {other} has no way to a tool here"),
            };
            let (open, using) = match is_classic {
                false => (&["open_toolbox"][..], ("use_tool", By::UseTool)),
                true => (
                    &["workbench_list_toolboxes", "workbench_open_toolbox", "workbench_close_toolbox"][..],
                    ("workbench_use_tool", By::ClassicUseTool),
                ),
            };
            let mut own = if mode == "flat" { Vec::new() } else { open.to_vec() };
            own.extend((!by_name).then_some(using.0));
            own.push("read_result");
            let (client, host) =
                workbench(era, over, &file(json!({"toolMode": mode, "metaTools": generation})));
            surfaces.push(Surface {
                what: format!("{mode} {generation} {era:?} {over:?}"),
                client,
                _host: host,
                by: if by_name { By::Name("dev__a__result") } else { using.1 },
                reader: "read_result",
                own,
                opens: (mode != "flat").then_some(open[open.len() / 2]),
            });
        }
    }
    if over == Over::Http {
        let host = Host::workbench(file(json!({})));
        surfaces.push(Surface {
            what: format!("/mcp/dev {era:?}"),
            client: host.client_at(era, "/mcp/dev"),
            _host: Some(host),
            by: By::Name("result"),
            reader: "read_result",
            own: vec!["read_result"],
            opens: None,
        });
    }
    for by in [By::Name("a_result"), By::ToolmanCall] {
        let (client, host) = toolman(era, over, toolman_file(""));
        let mut own = vec!["toolman_activate"];
        own.extend((era == Era::Modern).then_some("toolman_call"));
        own.push("toolman_read_result");
        let what = format!("toolman {era:?} {over:?}");
        surfaces.push(Surface {
            what,
            client,
            _host: host,
            by,
            reader: "toolman_read_result",
            own,
            opens: None,
        });
    }
    surfaces
}

/// The arguments of a call that `by` makes of a call of `result`.
fn call(client: &mut Client, by: By, result: &str) -> Message {
    let given = json!({"json": result});
    match by {
        By::Name(name) => client.call(name, given),
        By::UseTool => client.call(
            "use_tool",
            json!({"tool": {"toolbox": "dev", "server": "a", "tool": "result"}, "arguments": given}),
        ),
        By::ClassicUseTool => client.call(
            "workbench_use_tool",
            json!({"toolbox_name": "dev", "tool_name": "dev__a__result", "arguments": given}),
        ),
        By::ToolmanCall => client.call("toolman_call", json!({"name": "a_result", "arguments": given})),
    }
}

/// A text that is much too long.
fn long() -> String {
    (1..=2000).map(|line| format!("line {line}: ä\n")).collect()
}

fn result_with(text: &str) -> String {
    json!({"content": [{"type": "text", "text": text}]}).to_string()
}

/// The arguments of the call that an answer names, if it names one.
fn next(text: &str, reader: &str) -> Option<Value> {
    let (_, next) = text.split_once(&format!("Next: {reader} "))?;
    let mut values = serde_json::Deserializer::from_str(next).into_iter::<Value>();
    Some(values.next().expect("arguments").expect("JSON"))
}

/// The id in a notice, which must be the notice of a result with this text.
#[track_caller]
fn noticed(answer: &Message, reader: &str, text: &str) -> String {
    let result = answer.result();
    let notice = answer.text_block(0);
    let kept = &result["_meta"]["mcp-workbench/offloaded"];
    let id = kept["id"].as_str().unwrap_or_else(|| panic!("nothing was kept: {notice:.300}")).to_owned();
    let (bytes, lines) = (text.len(), text.lines().count());
    assert_eq!(*kept, json!({"id": id, "bytes": bytes, "lines": lines}));
    let first = format!(
        "INCOMPLETE: this result has {bytes} bytes in {lines} lines; only its beginning and end are shown. \
         Next: {reader} {{\"id\":\"{id}\",\"bytes\":\""
    );
    assert!(notice.starts_with(&first), "{notice:.300}");
    assert!(
        notice.lines().next().is_some_and(|line| line.ends_with("-\"} (or \"lines\", \"grep\", \"path\")"))
    );
    assert!(notice.len() <= LIMIT && result.get("structuredContent").is_none());
    id
}

/// Reads a kept result from its beginning to its end, as each answer says.
#[track_caller]
fn read_all(client: &mut Client, reader: &str, id: &str) -> String {
    let (mut whole, mut arguments) = (String::new(), json!({"id": id}));
    loop {
        let answer = client.call(reader, &arguments);
        assert!(!answer.is_error() && answer.result().get("structuredContent").is_none(), "{answer:?}");
        let (head, piece) = (answer.text_block(0), answer.text_block(1));
        assert!(head.len() + piece.len() <= LIMIT, "{head}");
        whole.push_str(&piece);
        match next(&head, reader) {
            Some(next) => arguments = next,
            None => {
                assert!(head.ends_with(" This is the end."), "{head}");
                return whole;
            }
        }
    }
}

/// The definition of a listed tool.
#[track_caller]
fn listed(client: &mut Client, tool: &str) -> Value {
    let list = client.request("tools/list", "{}").result();
    let found = list["tools"].as_array().expect("a list").iter().find(|listed| listed["name"] == tool);
    found.unwrap_or_else(|| panic!("{tool} is not in {list:.500}")).clone()
}

fn check(era: Era, over: Over) {
    for Surface { what, mut client, by, reader, own, opens, _host } in surfaces(era, over) {
        if let Some(open) = opens {
            assert!(!client.call(open, json!({"toolbox_name": "dev"})).is_error(), "{what}");
        }
        if let By::Name(name) = by {
            client.until(&what, |client| client.tools().iter().any(|listed| listed == name));
            assert!(listed(&mut client, name).get("outputSchema").is_none(), "{what}");
        }
        // A tool of our own that is not among these is a way to a tool that was forgotten.
        let is_theirs =
            |name: &String| name != reader && (name.ends_with("echo") || name.ends_with("result"));
        let ours: Vec<_> = client.tools().into_iter().filter(|name| !is_theirs(name)).collect();
        assert_eq!(ours, own, "{what}");
        let tool = listed(&mut client, reader);
        assert_eq!(tool["annotations"], json!({"readOnlyHint": true}), "{what}");
        assert_eq!(tool["_meta"]["anthropic/alwaysLoad"], true, "{what}");
        assert!(tool["title"].is_string() && tool.get("outputSchema").is_none(), "{what}");

        let short = result_with(&"a".repeat(LIMIT));
        let answer = call(&mut client, by, &short);
        assert_eq!(answer.text(), "a".repeat(LIMIT), "{what}");
        assert!(answer.result()["_meta"].get("mcp-workbench/offloaded").is_none(), "{what}");
        let text = long();
        let answer = call(&mut client, by, &result_with(&text));
        let id = noticed(&answer, reader, &text);
        assert_eq!(answer.result()["resultType"] == "complete", era == Era::Modern, "{what}");
        assert!(read_all(&mut client, reader, &id) == text, "{what}");
        let found = client.call(reader, json!({"id": id, "grep": "^line 1999:"}));
        assert_eq!(
            (found.text_block(0), found.text_block(1)),
            ("1 match.".into(), "1999:line 1999: ä".into())
        );
    }
}

#[test]
fn every_surface_of_a_legacy_client_over_stdio() {
    check(Era::Legacy, Over::Stdio);
}

#[test]
fn every_surface_of_a_legacy_client_over_http() {
    check(Era::Legacy, Over::Http);
}

#[test]
fn every_surface_of_a_modern_client_over_stdio() {
    check(Era::Modern, Over::Stdio);
}

#[test]
fn every_surface_of_a_modern_client_over_http() {
    check(Era::Modern, Over::Http);
}

/// A client with this name over stdio.
fn called(era: Era, name: &str, gateway: Gateway) -> Client {
    match era {
        Era::Legacy => Client::named(gateway, name),
        Era::Modern => {
            let mut client = Client::pipe(era, gateway, "{}");
            client.name = name.to_owned();
            client
        }
    }
}

#[test]
fn auto_goes_by_the_client_and_nobody_else_notices_anything() {
    for era in ERAS {
        for (name, limit) in [
            ("codex-mcp-client", Some(9_000)),
            ("claude-code", Some(40_000)),
            ("gemini-cli-mcp-client", Some(8_000)),
            ("@cline/core", Some(7_000)),
            ("opencode", Some(40_000)),
            ("Zed", None),
            ("nobody-knows-it", None),
        ] {
            let file = file(json!({"toolMode": "flat", "offloadOver": "auto"}));
            goes_by(limit, "dev__a__result", "read_result", called(era, name, Gateway::spawn(&file)));
            // Toolman, and HTTP, where each session has a client of its own.
            if ["codex-mcp-client", "nobody-knows-it"].contains(&name) {
                let toolman =
                    toolman_file("").replace(&format!("offload_over = {LIMIT}"), "offload_over = \"auto\"");
                let gateway = Gateway::spawn_toolman(Lab::new(), toolman, |_| ());
                goes_by(limit, "a_result", "toolman_read_result", called(era, name, gateway));
                let host = Host::workbench(&file);
                let mut web = Web::new(&host.address);
                web.name = name.to_owned();
                goes_by(limit, "dev__a__result", "read_result", Client::web(era, web, CAN_ALL));
            }
        }
    }
}

/// Checks what a client sees and gets that has this limit.
#[track_caller]
fn goes_by(limit: Option<usize>, tool: &str, reader: &str, mut client: Client) {
    let name = client.name.clone();
    client.until("the server is known", |client| client.tools().len() >= 2);
    let is_on = limit.is_some();
    assert_eq!(client.tools().iter().any(|listed| listed == reader), is_on, "{name}");
    let schema = listed(&mut client, tool).get("outputSchema").is_some();
    assert_eq!(schema, !is_on, "{name}");
    let limit = limit.unwrap_or(100_000);
    for (length, kept) in [(limit, false), (limit + 1, is_on)] {
        let text = "a".repeat(length);
        let answer = client.call(tool, json!({"json": result_with(&text)}));
        assert_eq!(answer.text_block(0) != text, kept, "{name} {length}");
    }
}

#[test]
fn a_server_has_its_own_value_and_its_tools_alone_lose_their_output_schema() {
    let entry = |over: Value| {
        let mut entry = fake_with("", &["--tool", RESULT]);
        entry["offloadOver"] = over;
        entry
    };
    let servers = json!({"on": entry(json!(5000)), "off": entry(json!(0))});
    let mut file = dev("proxy", servers);
    (file["offloadOver"], file["search"], file["openLimit"]) = (json!(LIMIT), json!(true), json!(100_000));
    for era in ERAS {
        let (mut client, _) = workbench(era, Over::Stdio, &file);
        let opened = client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
        let address = |server: &str| json!({"toolbox": "dev", "server": server, "tool": "result"});
        let described =
            client.call("describe_tools", json!({"tools": [address("on"), address("off")]})).json();
        let found = client.call("find_tools", r#"{"query":"result"}"#).json();
        for answer in [opened, described, found] {
            for tool in answer["tools"].as_array().expect("a list") {
                let is_off = tool["source_server"] == "off";
                assert_eq!(tool.get("outputSchema").is_some(), is_off, "{era:?}: {answer}");
            }
            assert_eq!(answer["tools"].as_array().map(Vec::len), Some(2), "{answer}");
        }
        for (server, length, kept) in [("on", 5000, false), ("on", 5001, true), ("off", 5001, false)] {
            let given = json!({"json": result_with(&"a".repeat(length))});
            let answer = client.call("use_tool", json!({"tool": address(server), "arguments": given}));
            assert_eq!(answer.text_block(0).starts_with("INCOMPLETE"), kept, "{server} {length}");
        }
        let own: Vec<_> = client.tools();
        assert_eq!(
            own,
            ["open_toolbox", "use_tool", "find_tools", "describe_tools", "read_result"],
            "it is last"
        );
    }
    // Toolman shows definitions in its answers, too.
    for era in ERAS {
        let file = toolman_file("search = true").replace("[\"*\"]", "[]");
        let (mut client, _) = toolman(era, Over::Stdio, file);
        client.name = "codex-mcp-client".to_owned();
        client.until("the server is there", |client| {
            client.call("toolman_find", r#"{"query":"result"}"#).raw.contains("a_result")
        });
        let found = client.call("toolman_find", r#"{"query":"result"}"#);
        let lists =
            json!({"tools_on": ["a_result"], "tools_off": [], "resources_on": [], "resources_off": []});
        let activated = client.call("toolman_activate", lists);
        for answer in [found, activated] {
            assert!(!answer.raw.contains("outputSchema"), "{answer:?}");
        }
    }
}

#[test]
fn these_are_never_touched() {
    let text = long();
    let app =
        r#"{"name":"answer","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://a/page"}}}"#;
    let flags = ["--tool", RESULT, "--tool", app];
    let mut file = file(json!({"toolMode": "dynamic"}));
    file["toolboxes"]["dev"]["mcpServers"]["a"] =
        fake_with("--with echo,ask --prompts 1 --resources 1", &flags);
    let lab = Lab::new();
    let mut gateway = Gateway::spawn_with(lab, &file, |_| ());
    gateway.initialize(VERSION);
    gateway.open("dev");
    // Errors, texts that are no Unicode, and what is not text.
    for result in [
        json!({"content": [{"type": "text", "text": text}], "isError": true}).to_string(),
        format!(r#"{{"content":[{{"type":"text","text":"\ud800{}"}}]}}"#, "a".repeat(5000)),
        json!({"content": [{"type": "image", "data": text, "mimeType": "image/png"}]}).to_string(),
    ] {
        let answer = gateway.call("dev__a__result", json!({"json": result}));
        assert_eq!(answer.at(&["result"]), result);
    }
    // The tool of an app.
    let written = format!(r#"{{"jsonrpc":"2.0","id":@id,"result":{}}}"#, result_with(&text));
    assert_eq!(gateway.call("dev__a__answer", json!({"text": written})).text(), text);
    // What is no result of a tool.
    let long_argument = json!({"name": "dev__a__prompt-1", "arguments": {"x": text}});
    let got = gateway.request("prompts/get", long_argument);
    assert!(got.raw.len() > 5000 && !got.raw.contains("INCOMPLETE"), "{got:?}");
    // A call in the shell.
    let lab = gateway.finish();
    let mut command = lab.command();
    let config = lab.dir.join("workbench-config.json");
    command.arg("--config").arg(config).args(["call", "dev/a/result", "--json"]);
    command.arg(json!({"json": result_with(&text)}).to_string());
    let called = lab.run(&mut command);
    assert!(
        called.stdout.contains("line 1000: ") && !called.stdout.contains("INCOMPLETE"),
        "{}",
        called.stdout
    );
}

#[test]
fn interim_results_and_our_own_answers_are_never_touched() {
    let tools: Vec<String> =
        (0..60).map(|n| RESULT.replace("\"result\"", &format!("\"tool-{n}\""))).collect();
    let flags: Vec<&str> = tools.iter().flat_map(|tool| ["--tool", tool]).collect();
    let mut file = dev("proxy", json!({"a": fake_with("--with ask --era modern", &flags)}));
    file["offloadOver"] = json!(LIMIT);
    let (mut client, _) = workbench(Era::Modern, Over::Stdio, &file);
    let opened = client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    assert!(opened.text().len() > LIMIT, "{}", opened.text().len());
    assert_eq!(opened.json()["tools"].as_array().map(Vec::len), Some(61));
    let question =
        json!({"message": long(), "requestedSchema": {"type": "object", "properties": {}}}).to_string();
    let given = json!({"method": "elicitation/create", "params": question});
    let address = json!({"toolbox": "dev", "server": "a", "tool": "ask"});
    let asked = client.call("use_tool", json!({"tool": address, "arguments": given})).result();
    assert_eq!(asked["resultType"], "input_required");
    assert_eq!(asked["inputRequests"]["it"]["params"]["message"], long());
}

#[test]
fn what_comes_after_a_question_is_kept_like_any_other() {
    let question =
        json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}}).to_string();
    let given = json!({"method": "elicitation/create", "params": question});
    let address = json!({"toolbox": "dev", "server": "a", "tool": "ask"});
    let asks = json!({"tool": address, "arguments": given}).to_string();
    let response = json!({"action": "accept", "content": {"x": long()}}).to_string();
    for era in ERAS {
        for server in ["legacy", "modern"] {
            let mut file = dev("proxy", json!({"a": fake(&format!("--with ask --era {server}"))}));
            file["offloadOver"] = json!(LIMIT);
            let (mut client, _) = workbench(era, Over::Stdio, &file);
            client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
            let (questions, answer) = client.call_and_answer("use_tool", &asks, &response);
            let kept = &answer.result()["_meta"]["mcp-workbench/offloaded"];
            assert!(questions.len() == 1 && kept["bytes"].as_u64() > Some(LIMIT as u64), "{answer:?}");
            let id = kept["id"].as_str().expect("an id").to_owned();
            assert!(
                read_all(&mut client, "read_result", &id).contains(r"line 2000: ä\n"),
                "{era:?} {server}"
            );
        }
    }
}

#[test]
fn an_id_is_its_owners_and_lasts_as_long() {
    let mut file = file(json!({"toolMode": "proxy"}));
    file["auth"] =
        json!({"tokens": [{"name": "one", "token": "token-one"}, {"name": "two", "token": "token-two"}]});
    let host = Host::workbench(file);
    let at = |era, token: &str, path: &str| {
        let mut web = Web::new(&host.address);
        (web.token, web.path) = (Some(token.to_owned()), path.to_owned());
        Client::web(era, web, CAN_ALL)
    };
    let text = long();
    let reads = |client: &mut Client, id: &str| {
        let answer = client.call("read_result", json!({"id": id, "bytes": "0-5"}));
        if answer.is_error() {
            assert_eq!(answer.text_block(0), format!("No result '{id}' is kept here; call the tool again"));
        }
        !answer.is_error()
    };
    let kept = |client: &mut Client| {
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        noticed(&call(client, By::UseTool, &result_with(&text)), "read_result", &text)
    };
    // A legacy session, and nobody else.
    let [mut one, mut same, mut other] =
        ["token-one", "token-one", "token-two"].map(|token| at(Era::Legacy, token, "/mcp"));
    let id = kept(&mut one);
    let mut modern = at(Era::Modern, "token-one", "/mcp");
    let read = [&mut one, &mut same, &mut other, &mut modern].map(|client| reads(client, &id));
    assert_eq!(read, [true, false, false, false]);
    // Modern callers with the same credentials, whichever path they use.
    let id = kept(&mut modern);
    let mut again = at(Era::Modern, "token-one", "/mcp");
    let mut plain = at(Era::Modern, "token-one", "/mcp/dev");
    let mut stranger = at(Era::Modern, "token-two", "/mcp");
    let read =
        [&mut modern, &mut again, &mut plain, &mut stranger, &mut one].map(|client| reads(client, &id));
    assert_eq!(read, [true, true, true, false, false]);
}

#[test]
fn what_is_kept_outlives_the_upstream_the_toolbox_and_the_setting() {
    let mut config = file(json!({"toolMode": "dynamic", "metaTools": "classic"}));
    config["toolboxes"]["dev"]["mcpServers"]["a"] = fake_with("--with crash", &["--tool", RESULT]);
    let mut gateway = Gateway::start(&config);
    let open = |gateway: &mut Gateway| {
        assert!(!gateway.call("workbench_open_toolbox", r#"{"toolbox_name":"dev"}"#).is_error());
    };
    open(&mut gateway);
    let text = long();
    let answer = gateway.call("dev__a__result", json!({"json": result_with(&text)}));
    let id = noticed(&answer, "read_result", &text);
    let reads = |gateway: &mut Gateway, when: &str| {
        let answer = gateway.call("read_result", json!({"id": id, "lines": "1000-1000"}));
        assert_eq!(answer.text_block(1), "line 1000: ä\n", "{when}");
    };
    gateway.call("dev__a__crash", "{}");
    reads(&mut gateway, "after a crash");
    gateway.call("workbench_close_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    reads(&mut gateway, "after closing");
    assert!(!found_below(&gateway.lab.dir, "line 1000: "), "nothing is written to disk");
    open(&mut gateway);
    gateway.fence();
    let before = gateway.count(TOOLS_CHANGED);
    assert!(before > 0);
    config["offloadOver"] = json!(0);
    gateway.rewrite(&config);
    gateway.notification(TOOLS_CHANGED);
    let tools = gateway.tools();
    assert!(
        !tools.contains(&"read_result".to_owned()) && tools.contains(&"dev__a__result".to_owned()),
        "{tools:?}"
    );
    reads(&mut gateway, "after switching it off");
    config["toolboxes"] = json!({});
    gateway.rewrite(&config);
    gateway.until("the toolbox is gone", |gateway| gateway.tools().len() == 3);
    reads(&mut gateway, "when the toolbox is gone");
}

/// Whether a file in this directory, or below it, holds a text.
fn found_below(directory: &std::path::Path, text: &str) -> bool {
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("an entry").path()).any(|path| match path.is_dir() {
        true => found_below(&path, text),
        false => std::fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text)),
    })
}

#[test]
fn what_is_kept_is_read_under_the_limit_that_it_was_kept_under() {
    let mut config = file(json!({"toolMode": "flat"}));
    let mut gateway = Gateway::start(&config);
    gateway.until("the server is known", |gateway| gateway.tools().len() == 3);
    let given = json!({"json": result_with(&long())});
    let answer = gateway.call("dev__a__result", &given);
    let id = noticed(&answer, "read_result", &long());
    config["offloadOver"] = json!(20_000);
    gateway.rewrite(&config);
    let larger = json!({"json": result_with(&"a".repeat(20_000))});
    gateway.until("the new limit is in force", |gateway| {
        gateway.call("dev__a__result", &larger).text_block(0).starts_with("aaa")
    });
    let length = |gateway: &mut Gateway, id: &str| {
        let part = gateway.call("read_result", json!({"id": id}));
        part.text_block(0).len() + part.text_block(1).len()
    };
    assert!((LIMIT / 2..=LIMIT).contains(&length(&mut gateway, &id)));
    let answer = gateway.call("dev__a__result", &given);
    let id = noticed(&answer, "read_result", &long());
    assert!((10_000..=20_000).contains(&length(&mut gateway, &id)));
}

#[test]
fn finished_tasks_come_to_results_like_any_other() {
    const CAN_WAIT: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    let app =
        r#"{"name":"job","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://a/page"}}}"#;
    let text = long();
    for era in ERAS {
        let name = if era == Era::Modern { "modern" } else { "legacy" };
        for has_app in [false, true] {
            let flags = match has_app {
                true => format!("--with finish --tool '{app}' --era {name}"),
                false => format!("--with job,finish --era {name}"),
            };
            let file =
                format!("active_toolsets = [\"*\"]\noffload_over = {LIMIT}\n{}", server("a", &flags, ""));
            let gateway = Gateway::spawn_toolman(Lab::new(), file, |_| ());
            let mut client = Client::pipe(era, gateway, CAN_WAIT);
            client.tools();
            let params = match era {
                Era::Legacy => json!({"name": "a_job", "arguments": {}, "task": {"ttl": 60000}}),
                Era::Modern => json!({"name": "a_job", "arguments": {}}),
            };
            let begun = client.request("tools/call", params).result();
            let task = if era == Era::Modern { &begun } else { &begun["task"] };
            let task = task["taskId"].as_str().expect("an id").to_owned();
            client.call("a_finish", json!({"id": task, "json": result_with(&text)})).text();
            let method = if era == Era::Modern { "tasks/get" } else { "tasks/result" };
            let answer = client.request(method, json!({"taskId": task})).result();
            let result = if era == Era::Modern { &answer["result"] } else { &answer };
            let shown = result["content"][0]["text"].as_str().expect("a text");
            if has_app {
                assert!(shown == text, "{era:?}: {shown:.100}");
                continue;
            }
            assert!(shown.starts_with("INCOMPLETE: this result has "), "{shown:.100}");
            if era == Era::Modern {
                assert_eq!((&answer["taskId"], &answer["status"]), (&json!(task), &json!("completed")));
            }
            let id = result["_meta"]["mcp-workbench/offloaded"]["id"].as_str().expect("an id").to_owned();
            assert!(read_all(&mut client, "toolman_read_result", &id) == text);
        }
    }
}

#[test]
fn on_a_plain_server_a_tool_of_that_name_gets_another_one() {
    let own = r#"{"name":"read_result","inputSchema":{"type":"object"}}"#;
    let mut config = file(json!({}));
    config["toolboxes"]["dev"]["mcpServers"]["a"] = fake_with("--with result", &["--tool", own]);
    for era in ERAS {
        let host = Host::workbench(&config);
        let mut client = host.client_at(era, "/mcp/dev");
        assert_eq!(client.tools(), ["read_result", "result", "a__read_result"]);
        assert!(client.call("a__read_result", r#"{"x":1}"#).text().contains("\"name\":\"read_result\""));
        assert!(client.call("read_result", r#"{"id":"r1"}"#).text_block(0).starts_with("No result 'r1'"));
        // Where nothing is kept, nothing is in the way of the server's own tool.
        let mut off = config.clone();
        off["offloadOver"] = json!(0);
        let host = Host::workbench(&off);
        let mut client = host.client_at(era, "/mcp/dev");
        assert_eq!(client.tools(), ["result", "read_result"]);
        assert!(client.call("read_result", r#"{"id":"r1"}"#).text().contains("\"id\":\"r1\""));
        // And ours can be called at any time.
        off["toolboxes"]["dev"]["mcpServers"]["a"] = fake("--with result");
        let host = Host::workbench(&off);
        let answer = host.client_at(era, "/mcp/dev").call("read_result", r#"{"id":"r1"}"#);
        assert_eq!(answer.text_block(0), "No result 'r1' is kept here; call the tool again");
    }
}

#[test]
fn in_toolman_a_tool_of_that_name_is_left_out() {
    let own = r#"{"name":"read_result","inputSchema":{"type":"object"}}"#;
    for over in ["0", "4000"] {
        let entry = server("toolman", &format!("--with result --tool '{own}'"), "");
        let mut gateway =
            Gateway::toolman(format!("active_toolsets = [\"*\"]\noffload_over = {over}\n{entry}"));
        let reader = (over != "0").then_some("toolman_read_result");
        let expected: Vec<_> = ["toolman_activate", "toolman_result"].into_iter().chain(reader).collect();
        assert_eq!(gateway.tools(), expected);
        let answer = gateway.call("toolman_read_result", r#"{"id":"r1"}"#);
        assert!(answer.raw.contains("No result 'r1' is kept here; call the tool again"), "{answer:?}");
    }
}

#[test]
fn what_cannot_be_read_is_explained_in_the_shape_of_the_face() {
    let cases = [
        (json!({"id": "r1"}), "No result 'r1' is kept here; call the tool again"),
        (json!({}), "Invalid parameters: id is required and must be a string"),
        (
            json!({"id": "@", "bytes": "999999-"}),
            "Invalid parameters: bytes begins at 999999, but the result has ",
        ),
        (json!({"id": "@", "lines": "0-1"}), "Invalid parameters: lines must be a range such as \"1-99\""),
        (json!({"id": "@", "grep": "("}), "Invalid parameters: grep: regex parse error"),
        (json!({"id": "@", "path": "$."}), "Invalid parameters: path: "),
        (json!({"id": "@", "path": "$"}), "Invalid parameters: path needs a result that is JSON"),
        (json!({"id": "@", "regex": "a"}), "Invalid parameters: Unrecognized key: 'regex'"),
    ];
    let text = long();
    let mut workbench = Gateway::start(file(json!({"toolMode": "dynamic"})));
    workbench.open("dev");
    let answer = workbench.call("dev__a__result", json!({"json": result_with(&text)}));
    let id = noticed(&answer, "read_result", &text);
    let mut toolman = Gateway::toolman(toolman_file(""));
    toolman.tools();
    let answer = toolman.call("a_result", json!({"json": result_with(&text)}));
    let other = noticed(&answer, "toolman_read_result", &text);
    for (arguments, expected) in cases {
        let filled = |id: &str| arguments.to_string().replace('@', id);
        let answer = workbench.call("read_result", filled(&id));
        assert!(answer.is_error() && answer.text_block(0).starts_with(expected), "{arguments}: {answer:?}");
        let answer = toolman.call("toolman_read_result", filled(&other));
        assert!(answer.is_error(), "{arguments}: {answer:?}");
        let shape = answer.result()["structuredContent"].clone();
        let error = shape["error"].as_str().expect("a text");
        assert_eq!((&shape["success"], &shape["result"]), (&json!(false), &Value::Null));
        assert!(error.starts_with(expected), "{arguments}: {error}");
    }
    let through =
        toolman.call("toolman_call", json!({"name": "toolman_read_result", "arguments": {"id": "x"}}));
    assert!(through.raw.contains("is a tool of toolman itself"), "{through:?}");
}

#[test]
fn json_has_an_outline_and_paths_and_odd_wholes_are_read_as_they_are() {
    let mut gateway = Gateway::start(file(json!({"toolMode": "dynamic"})));
    gateway.open("dev");
    let items: Vec<_> = (0..3000).map(|id| format!(r#"{{"id":{id}.50,"name":"item {id}"}}"#)).collect();
    let structured = format!(r#"{{"items":[{}],"total":3000}}"#, items.join(","));
    let result =
        format!(r#"{{"content":[{{"type":"text","text":"3000 items"}}],"structuredContent":{structured}}}"#);
    let answer = gateway.call("dev__a__result", json!({"json": result}));
    let id = noticed(&answer, "read_result", &structured);
    assert_eq!(answer.text_block(1), "3000 items", "what fits stays");
    let outline = "\n--- outline ---\n$: object of 2\n$.items: array of 3000\n$.total: number\n$.items[0]: object of 2\n\
        $.items[0].id: number\n$.items[0].name: string";
    assert!(answer.text_block(0).ends_with(outline), "{}", answer.text_block(0));
    let found = gateway.call("read_result", json!({"id": id, "path": "$.items[1500]['id','name']"}));
    assert_eq!(found.text_block(0), "2 matches.");
    assert_eq!(
        found.text_block(1),
        "$['items'][1500]['id']: 1500.50\n$['items'][1500]['name']: \"item 1500\""
    );
    // What looks like JSON and is none has no outline, and no paths.
    let broken = &structured[..structured.len() - 1];
    let answer = gateway.call("dev__a__result", json!({"json": result_with(broken)}));
    let id = noticed(&answer, "read_result", broken);
    assert!(!answer.text().contains("--- outline ---"));
    assert!(gateway.call("read_result", json!({"id": id, "path": "$.total"})).is_error());
    // A text that is JSON has both, as structured content has.
    let answer = gateway.call("dev__a__result", json!({"json": result_with(&structured)}));
    let id = noticed(&answer, "read_result", &structured);
    assert!(answer.text_block(0).ends_with(outline), "{}", answer.text_block(0));
    let last = gateway.call("read_result", json!({"id": id, "path": "$.items[-1].id"}));
    assert_eq!(last.text_block(1), "$['items'][2999]['id']: 2999.50");
}

#[test]
fn a_line_of_16_megabytes_is_kept_and_read_while_others_are_served() {
    let mut config = dev("dynamic", json!({"a": fake("--with large,echo")}));
    (config["offloadOver"], config["maxMessageBytes"]) = (json!("auto"), json!(20_000_000));
    let mut gateway = Gateway::spawn(config);
    gateway.initialize_as(VERSION, "{}", "codex-mcp-client");
    gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    let answer = gateway.call("dev__a__large", r#"{"bytes":16000000}"#);
    let id = answer.result()["_meta"]["mcp-workbench/offloaded"]["id"].as_str().expect("an id").to_owned();
    assert!(answer.text().starts_with("INCOMPLETE: this result has 16000000 bytes in 1 lines; "));
    let slow = gateway.post_call("read_result", json!({"id": id, "grep": "(.).{40}z$"}));
    let quick = gateway.post_call("dev__a__echo", "{}");
    let first = gateway.take("the first answer", |message| [&slow, &quick].contains(&&message.id()));
    assert_eq!(first.id(), quick, "nobody waits for the search");
    assert_eq!(gateway.answer(&slow).text_block(0), "No matches.");
    let part = gateway.call("read_result", json!({"id": id, "bytes": "8000000-"}));
    let head = part.text_block(0);
    assert!(
        head.starts_with("Bytes 8000000-") && head.contains(" of 16000000, lines 1-1 of 1. Next: "),
        "{head}"
    );
    assert!(head.len() + part.text_block(1).len() <= 9000);
}

/// A copy is what keeping costs: the memory of the gateway grows by little more than what it keeps.
#[cfg(target_os = "linux")]
#[test]
fn keeping_costs_one_copy() {
    const COUNT: u64 = 40;
    const BYTES: u64 = 1_000_000;
    let mut config = dev("dynamic", json!({"a": fake("--with large")}));
    config["offloadOver"] = json!(LIMIT);
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    let kept = |gateway: &mut Gateway| {
        let answer = gateway.call("dev__a__large", json!({"bytes": BYTES}));
        assert!(answer.text().starts_with("INCOMPLETE: this result has 1000000 bytes "));
    };
    // Buffers have grown to their size when the first ones are kept.
    (0..3).for_each(|_| kept(&mut gateway));
    let before = gateway.memory();
    (0..COUNT).for_each(|_| kept(&mut gateway));
    let grown = gateway.memory().saturating_sub(before);
    assert!(grown < COUNT * BYTES * 3 / 2, "{grown} bytes for {}", COUNT * BYTES);
}
