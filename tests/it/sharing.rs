//! Clients that share a server: what one does takes nothing from another, and the same credentials are one client.

use serde_json::{Value, json};

use crate::client::{Client, Era, Host, Web};
use crate::harness::{Gateway, dev, fake};

const URI: &str = "workbench://dev/a/fake://resource/1";
const UPDATED: &str = "notifications/resources/updated";

fn use_tool(client: &mut Client, tool: &str, arguments: Value) -> crate::harness::Message {
    let tool = json!({"toolbox": "dev", "server": "a", "tool": tool});
    client.call("use_tool", json!({"tool": tool, "arguments": arguments}))
}

fn opened(host: &Host, era: Era) -> Client {
    let mut client = host.client(era);
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    client
}

fn subscribed(client: &mut Client) -> Value {
    use_tool(client, "report", json!({})).json()["subscriptions"].clone()
}

#[test]
fn a_server_hears_of_the_first_who_subscribes_and_of_the_last_who_leaves() {
    let host =
        Host::workbench(dev("proxy", json!({"a": fake("--with update,report,requests --resources 1")})));
    let [mut first, mut second, mut stranger] = [(); 3].map(|()| opened(&host, Era::Legacy));
    first.subscribe(URI);
    first.subscribe(URI);
    second.subscribe(URI);
    let asked = use_tool(&mut first, "requests", json!({"method": "resources/subscribe"})).json();
    assert_eq!(asked.as_array().map(Vec::len), Some(1), "{asked}");
    for leaving in [&mut stranger, &mut first] {
        leaving.request("resources/unsubscribe", json!({"uri": URI})).result();
        assert_eq!(subscribed(leaving), json!(["fake://resource/1"]));
    }
    use_tool(&mut first, "update", json!({"uri": "fake://resource/1"})).text();
    second.notification(UPDATED);
    second.request("resources/unsubscribe", json!({"uri": URI})).result();
    assert_eq!(subscribed(&mut second), json!([]));
}

#[test]
fn a_question_to_one_client_does_not_hold_up_the_timeouts_of_another() {
    for era in [Era::Legacy, Era::Modern] {
        let mut entry = fake("--with ask,slow");
        entry["callTimeout"] = json!(0.5);
        let host = Host::workbench(dev("proxy", json!({"a": entry})));
        let mut asked = opened(&host, era);
        let ask = json!({"method": "elicitation/create", "params": r#"{"message":"?"}"#});
        let params = json!({"tool": {"toolbox": "dev", "server": "a", "tool": "ask"}, "arguments": ask});
        let call = asked.post_call("use_tool", params);
        asked.take("a question", |message| message.id() == call || !message.method().is_empty());
        let mut other = Client::web(Era::Legacy, Web::new(&host.address), "{}");
        other.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        let text = use_tool(&mut other, "slow", json!({})).failure();
        assert!(text.starts_with("[dev/a/slow] timeout"), "{era:?}: {text}");
    }
}

#[test]
fn a_modern_caller_reads_what_an_earlier_answer_linked_to() {
    let host = Host::workbench(dev("proxy", json!({"a": fake("--with result --resources 1")})));
    let mut client = opened(&host, Era::Modern);
    let result = r#"{"content":[{"type":"resource_link","uri":"fake://linked/1","name":"l"}]}"#;
    use_tool(&mut client, "result", json!({"json": result})).result();
    let read = client.request("resources/read", r#"{"uri":"fake://linked/1"}"#).result();
    assert_eq!(read["contents"][0]["uri"], "fake://linked/1");
    client.request("resources/read", r#"{"uri":"fake://linked/2"}"#).error_code();
}

#[test]
fn what_was_subscribed_to_before_its_toolbox_was_open_is_heard_of_later() {
    for era in ["legacy", "modern"] {
        let flags = format!("--with update --resources 1 --era {era}");
        let host = Host::workbench(dev("proxy", json!({"a": fake(&flags)})));
        let mut client = host.client(Era::Modern);
        client.subscribe(URI);
        for _ in 0..2 {
            client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
            client.until("the server knows of the subscription", |client| {
                use_tool(client, "update", json!({"uri": "fake://resource/1"})).text();
                client.left().iter().any(|message| message.method() == UPDATED)
            });
            client.notification(UPDATED);
        }
    }
}

#[test]
fn a_subscription_that_the_client_cancels_gets_no_answer() {
    let gateway = Gateway::spawn(dev("proxy", json!({"a": fake("--with echo")})));
    let mut client = Client::pipe(Era::Modern, gateway, "{}");
    let id = client.subscribe(URI);
    client.cancel(&id);
    client.request("tools/list", "{}").result();
    assert!(client.left().is_empty(), "{:?}", client.left());
}

#[test]
fn the_same_credentials_have_one_connection_on_every_path() {
    let mut entry = fake("--with report");
    entry["isolation"] = json!("session");
    let host = Host::workbench(dev("proxy", json!({"a": entry})));
    let pid = use_tool(&mut opened(&host, Era::Modern), "report", json!({})).json()["pid"].clone();
    assert_eq!(host.client_at(Era::Modern, "/mcp/dev").call("report", "{}").json()["pid"], pid);
}

#[test]
fn a_modern_message_is_judged_by_its_body_whatever_session_it_names() {
    let host = Host::workbench(dev("proxy", json!({})));
    let mut client = host.client(Era::Modern);
    let meta = |version: &str| {
        json!({"io.modelcontextprotocol/protocolVersion": version,
               "io.modelcontextprotocol/clientCapabilities": {}})
    };
    let now = "2026-07-28";
    for (header, version, status, code) in [
        ("", now, 400, "-32020"),
        ("MCP-Protocol-Version: 2025-11-25\r\n", now, 400, "-32020"),
        ("MCP-Protocol-Version: 2030-01-01\r\n", "2030-01-01", 400, "-32022"),
    ] {
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta(version)}});
        let headers = format!("Mcp-Session-Id: stale\r\nMcp-Method: tools/list\r\n{header}");
        let answer = client.over_http().exchange("POST", &headers, &body.to_string());
        assert_eq!(answer.status, status, "{header}: {}", answer.body);
        assert!(answer.body.contains(code), "{header}: {}", answer.body);
    }
    let stale = "Mcp-Session-Id: stale\r\n";
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": meta(now)}});
    assert_eq!(client.over_http().exchange("POST", stale, &notification.to_string()).status, 202);
    let legacy = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    assert_eq!(client.over_http().exchange("POST", stale, legacy).status, 404);
}

#[test]
fn a_modern_client_is_not_asked_for_what_it_cannot_do() {
    let host = Host::workbench(dev("proxy", json!({"a": fake("--with ask --era modern")})));
    let mut client = opened(&host, Era::Modern);
    client.can("{}");
    let ask = json!({"method": "elicitation/create", "params": "{\"message\":\"Who?\"}"});
    let answer = use_tool(&mut client, "ask", ask);
    assert!(!answer.value()["result"]["resultType"].to_string().contains("input_required"), "{answer:?}");
}

#[test]
fn a_toolbox_that_is_gone_takes_its_subscriptions_and_sessions_along() {
    let mut config = dev("proxy", json!({"a": fake("--with echo --resources 1")}));
    let host = Host::workbench(&config);
    let mut modern = host.client_at(Era::Modern, "/mcp/dev");
    let id = modern.subscribe("fake://resource/1");
    let mut legacy = host.client_at(Era::Legacy, "/mcp/dev");
    legacy.tools();
    config["toolboxes"] = json!({"other": {"mcpServers": {}}});
    host.lab.write("workbench-config.json", &config.to_string());
    assert_eq!(modern.answer(&id).at(&["result", "resultType"]), r#""complete""#);
    let web = legacy.over_http();
    let list = r#"{"jsonrpc":"2.0","id":9,"method":"tools/list"}"#;
    assert_eq!(web.exchange("POST", &web.common(), list).status, 404);
}
