//! Upstreams and clients over HTTP when it gets difficult: headers for parameters, the old transport, TLS, and streams
//! that break.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they need")]

use serde_json::{Value, json};

use crate::client::{Client, Era, Host, MODERN, Remote};
use crate::harness::{Gateway, Lab, Message, TOOLS_CHANGED, dev, fake, server};
use crate::tls::Front;

const LOG: &str = "notifications/message";
const UPDATED: &str = "notifications/resources/updated";
const PROGRESS: &str = "notifications/progress";

/// A `tools.toml` that shows the server behind this URL as it is.
fn config(url: &str) -> String {
    format!("active_toolsets = [\"*\"]\n[[servers]]\nnamespace = \"\"\nurl = \"{url}\"\n")
}

/// A client over stdio of toolman in front of this URL.
fn client(era: Era, url: &str) -> Client {
    Client::pipe(era, Gateway::spawn_toolman(Lab::new(), config(url), |_| ()), r#"{"elicitation":{}}"#)
}

#[test]
fn parameters_in_headers_are_checked_and_made_afresh() {
    let schema =
        json!({"type": "object", "properties": {"where": {"type": "string", "x-mcp-header": "Region"}}});
    let tool = json!({"name": "weather", "inputSchema": schema});
    let bad = json!({"name": "bad", "inputSchema": {"type": "object", "properties": {"x": {"type": "object", "x-mcp-header": "X"}}}});
    let remote = Remote::start(&format!("--with report --tool {tool} --tool {bad} --era modern"));
    let config = config(&remote.url()).replace("namespace = \"\"", "namespace = \"w\"");
    let host = Host::toolman(config);
    let mut client = host.client(Era::Modern);
    let tools = client.tools();
    assert!(tools.contains(&"w_weather".to_owned()), "{tools:?}");
    assert!(!tools.contains(&"w_bad".to_owned()), "what cannot stand in a header: {tools:?}");
    for (header, place, sent) in [
        ("Mcp-Param-Region: us\r\n", "us", Some("us")),
        ("Mcp-Param-Region: =?base64?w7xi?=\r\n", "\u{fc}b", Some("=?base64?w7xi?=")),
        ("", "us", None),
        ("Mcp-Param-Region: eu\r\n", "us", None),
        ("Mcp-Param-Region: us\r\nMcp-Param-Region: us\r\n", "us", None),
    ] {
        client.over_http().headers = header.to_owned();
        let answer = client.call("w_weather", json!({"where": place}));
        match sent {
            None => assert_eq!(answer.error_code(), -32020, "{header:?}: {answer:?}"),
            Some(sent) => {
                assert!(!answer.is_error(), "{answer:?}");
                client.over_http().headers.clear();
                let headers = client.call("w_report", "{}").json()["headers"]["weather"].clone();
                assert_eq!(
                    (&headers["mcp-param-region"], &headers["mcp-name"]),
                    (&json!(sent), &json!("weather"))
                );
            }
        }
    }
}

#[test]
fn parameters_in_headers_are_checked_also_where_the_tool_was_not_known_when_the_call_came() {
    let schema =
        json!({"type": "object", "properties": {"where": {"type": "string", "x-mcp-header": "Region"}}});
    let flags = format!("--with crash,ask --tool {}", json!({"name": "weather", "inputSchema": schema}));
    let check = |client: &mut Client, tool: &str, meanwhile: &dyn Fn()| {
        for (header, arguments) in [
            ("Mcp-Param-Region: eu\r\n", r#"{"where":"us"}"#),
            ("", r#"{"where":"us"}"#),
            ("Mcp-Param-Region: us\r\n", "{}"),
        ] {
            client.over_http().headers = header.to_owned();
            let id = client.post_call(tool, arguments);
            meanwhile();
            let answer = client.answer(&id);
            assert_eq!(answer.error_code(), -32020, "{tool} {header:?}: {answer:?}");
        }
        client.over_http().headers = "Mcp-Param-Region: us\r\n".to_owned();
        client.call(tool, r#"{"where":"us"}"#).text();
    };
    let nothing = || ();
    let workbench = |config: Value| {
        let host = Host::workbench(config);
        let client = host.client(Era::Modern);
        (host, client)
    };

    let host = Host::workbench(dev("proxy", json!({"a": fake(&flags)})));
    let mut cold = host.client_at(Era::Modern, "/mcp/dev");
    let headers = format!(
        "MCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\nMcp-Name: weather\r\nMcp-Param-Region: eu\r\n"
    );
    let meta = json!({"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"name": "weather", "arguments": {"where": "us"}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let refused = cold.over_http().exchange("POST", &headers, &body.to_string());
    assert_eq!(refused.status, 400, "{refused:?}");
    check(&mut cold, "weather", &nothing);

    let mut config = dev("proxy", json!({"a": fake(&flags)}));
    config["search"] = json!(true);
    let (_host, mut closed) = workbench(config);
    check(&mut closed, "dev__a__weather", &nothing);

    let (_host, mut renamed) = workbench(dev("proxy", json!({"my server": fake(&flags)})));
    renamed.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    check(&mut renamed, "dev__my server__weather", &nothing);
    renamed.over_http().headers.clear();
    renamed.call("dev__my server__crash", "{}").failure();
    check(&mut renamed, "dev__my server__weather", &nothing);

    let config = format!(
        "active_toolsets = [\"*\"]\nstartup_wait = 30\n{}",
        server("a", &format!("--wait-for @dir/go {}", flags.replace("--tool ", "--tool '") + "'"), "")
    );
    let host = Host::toolman(config);
    let mut starting = host.client(Era::Modern);
    check(&mut starting, "a_weather", &|| drop(host.lab.write("go", "")));
}

#[test]
fn a_call_that_goes_on_after_a_question_is_checked_against_its_headers_too() {
    let schema =
        json!({"type": "object", "properties": {"method": {"type": "string", "x-mcp-header": "Method"}}});
    let flags = format!("--tool {}", json!({"name": "ask", "inputSchema": schema}));
    let host = Host::workbench(dev("proxy", json!({"a": fake(&flags)})));
    let mut client = host.client_at(Era::Modern, "/mcp/dev");
    let header = "Mcp-Param-Method: roots/list\r\n";
    client.over_http().headers = header.to_owned();
    let arguments = r#"{"method":"roots/list"}"#;
    let asked = client.call("ask", arguments);
    client.over_http().headers = header.replace("roots/list", "elicitation/create");
    let id = client.post_retry("ask", arguments, &asked, r#"{"roots":[]}"#);
    assert_eq!(client.answer(&id).error_code(), -32020);
    client.over_http().headers = header.to_owned();
    let id = client.post_retry("ask", arguments, &asked, r#"{"roots":[]}"#);
    assert_eq!(client.answer(&id).text(), r#"{"result":{"roots":[]}}"#);
}

#[test]
fn a_server_of_the_old_transport_is_found_and_used() {
    for kind in ["http", "sse"] {
        let remote = Remote::start("--with echo,progress,ask --sse");
        let entry = json!({"type": kind, "url": remote.url()});
        let gateway = Gateway::spawn(dev("dynamic", json!({"a": entry})));
        let mut client = Client::pipe(Era::Legacy, gateway, r#"{"elicitation":{}}"#);
        let opened = client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
        assert_eq!(opened["servers_connected"], 1, "{kind}: {opened}");
        assert!(client.call("dev__a__echo", r#"{"word":"hello"}"#).text().contains("hello"));
        let params = json!({"name": "dev__a__progress", "arguments": {"n": 3}});
        let id = client.post_with("tools/call", params, r#""progressToken":"t""#);
        assert_eq!(client.answer(&id).text(), "progress");
        let heard = (0..3)
            .map(|_| client.notification(PROGRESS))
            .filter(|heard| heard.at(&["params", "progressToken"]) == r#""t""#);
        assert_eq!(heard.count(), 3);
        let ask = json!({"method": "elicitation/create", "params": r#"{"message":"?"}"#}).to_string();
        let (questions, answer) = client.call_and_answer("dev__a__ask", &ask, r#"{"action":"decline"}"#);
        assert_eq!((questions.len(), answer.text()), (1, r#"{"result":{"action":"decline"}}"#.to_owned()));
    }
}

#[test]
fn a_question_finds_no_way_to_a_client_that_takes_no_events() {
    for era in ["legacy", "modern"] {
        let host = Host::workbench(dev("proxy", json!({"a": fake(&format!("--with ask --era {era}"))})));
        let mut client = host.client(Era::Legacy);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        let ask = json!({"method": "elicitation/create", "params": r#"{"message":"?"}"#});
        let tool = json!({"toolbox": "dev", "server": "a", "tool": "ask"});
        let params = json!({"name": "use_tool", "arguments": {"tool": tool, "arguments": ask}});
        let web = client.over_http();
        let headers = format!("{}Accept: application/json\r\n", web.common());
        let body = json!({"jsonrpc": "2.0", "id": "q", "method": "tools/call", "params": params});
        let raw = web.exchange("POST", &headers, &body.to_string()).body;
        let answer = Message { raw }.json();
        match era {
            "legacy" => assert_eq!(answer["error"]["code"], -32000, "{answer}"),
            _ => assert_eq!(answer["result"]["action"], "decline", "{answer}"),
        }
    }
}

#[test]
fn a_server_behind_tls_is_reached_if_its_certificate_is_trusted() {
    let remote = Remote::start("--with echo --era modern");
    let lab = Lab::new();
    let front = Front::of(remote.port);
    let (port, certificate) = (front.port, lab.write("certificate.pem", &front.certificate));
    let servers = json!({"a": {"type": "http", "url": format!("https://localhost:{port}/mcp")}});
    let mut gateway = Gateway::spawn_with(lab, dev("proxy", servers.clone()), |command| {
        command.env("SSL_CERT_FILE", &certificate);
    });
    gateway.initialize("2025-11-25");
    assert_eq!(gateway.open("dev")["servers_connected"], 1);
    gateway.use_tool("a", "echo", "{}").text();

    let mut stranger = Gateway::start(dev("proxy", servers));
    let refused = stranger.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).failure();
    assert!(refused.contains("certificate"), "{refused}");
}

#[test]
fn a_clients_broken_stream_goes_on_without_loss_or_repetition() {
    let host =
        Host::workbench(dev("proxy", json!({"a": fake("--with progress,slow,started,release,notify")})));
    let mut client = host.client(Era::Legacy);
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    let progress = |extra: &str, n: u32, ms: u32| json!({"name": "use_tool", "arguments": {"tool": {"toolbox": "dev", "server": "a", "tool": "progress"}, "arguments": {"n": n, "ms": ms, "extra": extra}}});
    let id = client.post_with("tools/call", progress("", 200, 5), r#""progressToken":1"#);
    let mut seen: Vec<u64> = Vec::new();
    let number = |message: &Message| message.value()["params"]["progress"].as_u64().expect("a number");
    seen.push(number(&client.notification(PROGRESS)));
    client.over_http().hang_up(&id);
    // What had come before the end is read; the reader has ended when nothing more comes.
    client.until("the stream has ended", |client| {
        let before = client.left().len();
        std::thread::sleep(std::time::Duration::from_millis(50));
        client.left().len() == before
    });
    let last = client.over_http().last_event();
    assert!(!last.is_empty(), "events have ids");
    client.over_http().listen_after(&last);
    client.answer(&id).result();
    while client.left().iter().any(|message| message.method() == PROGRESS) {
        seen.push(number(&client.notification(PROGRESS)));
    }
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
}

#[test]
fn an_upstreams_broken_stream_goes_on_where_its_events_have_ids() {
    for era in [Era::Legacy, Era::Modern] {
        let remote = Remote::start("--with progress,requests --break ids");
        let mut client = client(era, &remote.url());
        let params = json!({"name": "progress", "arguments": {"n": 20}});
        let id = client.post_with("tools/call", params, r#""progressToken":"t""#);
        assert_eq!(client.answer(&id).text(), "progress", "{era:?}");
        for n in 1..=20 {
            assert_eq!(client.notification(PROGRESS).value()["params"]["progress"], n);
        }
        let calls = client.call("requests", json!({"method": "tools/call"})).json();
        assert_eq!(calls.as_array().map(Vec::len), Some(2), "it was sent once: {calls}");
    }
}

#[test]
fn an_upstreams_stream_that_breaks_for_good_fails_its_call_and_no_other() {
    for era in ["legacy", "modern"] {
        let remote = Remote::start(&format!(
            "--with progress,requests,slow,started,release --break plain --era {era}"
        ));
        let mut client = client(Era::Legacy, &remote.url());
        let slow = client.post_call("slow", r#"{"key":"k"}"#);
        client.call("started", r#"{"key":"k"}"#).text();
        let params = json!({"name": "progress", "arguments": {"n": 2, "ms": 1}});
        let id = client.post_with("tools/call", params, r#""progressToken":"t""#);
        let failed = client.answer(&id).failure();
        assert!(failed.contains("progress: "), "{era}: {failed}");
        let calls = client.call("requests", json!({"method": "tools/call"})).text();
        assert_eq!(calls.matches(r#""name":"progress""#).count(), 1, "never sent again: {calls}");
        client.call("release", r#"{"key":"k"}"#).text();
        assert_eq!(client.answer(&slow).text(), "slow");
    }
}

#[test]
fn what_changes_while_a_subscription_is_broken_is_seen_afterwards() {
    let remote = Remote::start("--with change --break plain --era modern");
    let mut client = client(Era::Legacy, &remote.url());
    assert!(!client.tools().contains(&"new".to_owned()));
    let tool = r#"{"name":"new","inputSchema":{"type":"object"}}"#;
    client.call("change", json!({"add": [tool]})).text();
    client.notification(TOOLS_CHANGED);
    assert!(client.tools().contains(&"new".to_owned()));
}

/// `params` of a `use_tool`.
fn used(tool: &str, arguments: Value) -> Value {
    json!({"name": "use_tool", "arguments": {"tool": {"toolbox": "dev", "server": "a", "tool": tool}, "arguments": arguments}})
}

#[test]
fn what_comes_on_the_stream_of_a_call_is_its_clients_whoever_else_calls() {
    let remote = Remote::start("--with notify,slow,started,release");
    let host = Host::workbench(dev("proxy", json!({"a": {"url": remote.url()}})));
    let mut clients = [Era::Legacy, Era::Legacy].map(|era| host.client(era));
    for client in &mut clients {
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    }
    let [one, two] = &mut clients;
    let slow = one.post_call("use_tool", used("slow", json!({"key": "k"}))["arguments"].to_string());
    two.request("tools/call", used("started", json!({"key": "k"}))).text();
    let said = json!({"method": LOG, "params": r#"{"level":"info","data":2}"#});
    two.request("tools/call", used("notify", said)).text();
    assert_eq!(two.notification(LOG).value()["params"]["data"], 2);
    two.request("tools/call", used("release", json!({"key": "k"}))).text();
    one.answer(&slow).text();
    assert!(!one.left().iter().any(|message| message.method() == LOG), "{:?}", one.left());
}

#[test]
fn logs_and_updates_reach_the_client_whose_they_are() {
    for era in ["legacy", "modern"] {
        let flags = format!("--with notify,update,echo --resources 2 --era {era}");
        let host = Host::workbench(dev("proxy", json!({"a": fake(&flags)})));
        let mut clients = [Era::Legacy, Era::Legacy].map(|era| host.client(era));
        for client in &mut clients {
            client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
            client.request("logging/setLevel", r#"{"level":"info"}"#).result();
        }
        let uri = |n: usize| format!("workbench://dev/a/fake://resource/{}", n + 1);
        for (n, client) in clients.iter_mut().enumerate() {
            client.subscribe(&uri(n));
        }
        for n in 0..2 {
            let [one, two] = &mut clients;
            let (own, other) = if n == 0 { (one, two) } else { (two, one) };
            let said = json!({"method": LOG, "params": format!(r#"{{"level":"info","data":{n}}}"#)});
            own.request("tools/call", used("notify", said)).text();
            assert_eq!(own.notification(LOG).value()["params"]["data"], n, "{era}");
            let update = used("update", json!({"uri": format!("fake://resource/{}", n + 1)}));
            own.until("the subscription has arrived", |own| {
                own.request("tools/call", &update).text();
                own.left().iter().any(|message| message.method() == UPDATED)
            });
            assert_eq!(own.notification(UPDATED).value()["params"]["uri"], uri(n));
            other.request("tools/call", used("echo", json!({}))).text();
            let foreign = |message: &Message| message.method() == LOG || message.raw.contains(&uri(n));
            assert!(!other.left().iter().any(foreign), "{era}: {:?}", other.left());
        }
    }
}
