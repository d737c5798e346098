//! What passes through during calls: progress, cancellation, logging, questions.

use serde_json::{Value, json};

use crate::client::{Client, Era};
use crate::harness::{Gateway, Lab, TOOLS_CHANGED, VERSION, dev, fake, raw_at};

const CAN_ALL: &str = r#"{"sampling":{},"elicitation":{},"roots":{"listChanged":true}}"#;
const CANCELLED: &str = "notifications/cancelled";
const PROGRESS: &str = "notifications/progress";

fn opened(capabilities: &str, flags: &str) -> Gateway {
    let mut gateway = Gateway::spawn(dev("proxy", json!({"a": fake(flags), "b": fake(flags)})));
    gateway.initialize_with(VERSION, capabilities);
    gateway.open("dev");
    gateway
}

/// `params` of a `use_tool` call with a progress token.
fn with_token(server: &str, tool: &str, arguments: Value, token: &str) -> String {
    format!(
        r#"{{"name":"use_tool","arguments":{{"tool":{{"toolbox":"dev","server":"{server}","tool":"{tool}"}},"arguments":{arguments}}},"_meta":{{"progressToken":{token}}}}}"#
    )
}

#[test]
fn progress_comes_in_order_before_the_answer_with_the_clients_token() {
    let mut gateway = opened("{}", "--with progress");
    for token in [r#""tok""#, "7", r#""\u00e9""#, "18446744073709551615"] {
        let arguments = json!({"n": 20, "extra": r#","message":"m","new":1.10"#});
        let id = gateway.post("tools/call", with_token("a", "progress", arguments, token));
        for n in 1..=20 {
            let params = gateway.next().at(&["params"]);
            assert_eq!(raw_at(&params, &["progressToken"]), token);
            assert_eq!(raw_at(&params, &["progress"]), n.to_string());
            assert_eq!(raw_at(&params, &["new"]), "1.10");
        }
        assert_eq!(gateway.next().id(), id);
    }
}

#[test]
fn the_same_token_in_two_calls_is_kept_apart() {
    let mut gateway = opened("{}", "--with progress,report");
    let calls: Vec<String> = ["a", "b"]
        .iter()
        .map(|server| gateway.post("tools/call", with_token(server, "progress", json!({"n": 5}), "1")))
        .collect();
    for call in calls {
        gateway.answer(&call).text();
    }
    assert_eq!(gateway.count(PROGRESS), 10);
}

#[test]
fn progress_without_a_call_or_after_it_goes_nowhere() {
    let mut gateway = opened("{}", "--with notify,progress");
    gateway.use_tool(
        "a",
        "notify",
        json!({"method": PROGRESS, "params": r#"{"progressToken":1,"progress":1}"#}),
    );
    gateway.use_tool("a", "progress", json!({"n": 2}));
    assert_eq!(gateway.count(PROGRESS), 0);
}

#[test]
fn a_cancelled_call_is_cancelled_upstream_under_its_id_there() {
    let mut gateway = opened("{}", "--with slow,started,received,requests,release,echo");
    let id = gateway.post_use_tool("a", "slow", json!({"key": "k", "late": true}));
    gateway.use_tool("a", "started", json!({"key": "k"}));
    let params = format!(r#"{{"requestId":{id},"reason":"changed my mind","new":1.10}}"#);
    gateway.notify(CANCELLED, params);
    let received = gateway.use_tool("a", "received", json!({"method": CANCELLED, "count": 1})).text();
    let requests = gateway.use_tool("a", "requests", json!({"method": "tools/call"})).text();
    assert_eq!(raw_at(&received, &["0", "params", "requestId"]), raw_at(&requests, &["0", "id"]));
    assert_eq!(raw_at(&received, &["0", "params", "reason"]), r#""changed my mind""#);
    assert_eq!(raw_at(&received, &["0", "params", "new"]), "1.10");
    let other = gateway.use_tool("b", "received", json!({"method": CANCELLED})).json();
    assert_eq!(other, json!([]), "only the owner is told");
    gateway.use_tool("a", "release", json!({"key": "k"}));
    gateway.use_tool("a", "echo", "{}");
    assert!(!gateway.has(|message| message.id() == id), "the late answer is dropped");
}

#[test]
fn cancelling_what_is_not_in_flight_is_ignored() {
    let mut gateway = opened("{}", "--with received,echo");
    gateway.use_tool("a", "echo", "{}");
    for params in [r#"{"requestId":2}"#, r#"{"requestId":"none"}"#, "{}", r#"{"requestId":{}}"#] {
        gateway.notify(CANCELLED, params);
    }
    gateway.fence();
    assert_eq!(gateway.use_tool("a", "received", json!({"method": CANCELLED})).json(), json!([]));
}

#[test]
fn a_cancelled_open_leaves_a_gateway_that_works() {
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake("--with echo --wait-for @dir/go")})));
    let id = gateway.post_call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    gateway.notify(CANCELLED, format!(r#"{{"requestId":{id}}}"#));
    gateway.fence();
    gateway.lab.write("go", "");
    assert_eq!(gateway.open("dev")["servers_connected"], 1);
}

#[test]
fn a_cancelled_id_may_be_used_again_and_gets_no_answer_but_its_own() {
    let slow = |go: &str| json!({"mcpServers": {"a": fake(&format!("--with echo --wait-for @dir/{go}"))}});
    let mut gateway = Gateway::start(json!({"toolboxes": {"first": slow("go"), "second": slow("on")}}));
    let open = |toolbox: &str| {
        let params = json!({"name": "open_toolbox", "arguments": {"toolbox_name": toolbox}});
        format!(r#"{{"jsonrpc":"2.0","id":"again","method":"tools/call","params":{params}}}"#)
    };
    gateway.send(open("first"));
    gateway.notify(CANCELLED, r#"{"requestId":"again"}"#);
    gateway.send(open("second"));
    gateway.fence();
    gateway.lab.write("go", "");
    assert_eq!(gateway.open("first")["servers_connected"], 1);
    gateway.lab.write("on", "");
    assert_eq!(gateway.answer(r#""again""#).json()["toolbox"], "second");
}

#[test]
fn a_call_that_is_cancelled_while_its_server_starts_again_reaches_nobody_under_its_id() {
    let flags = "--with crash,echo,requests --wait-for @dir/go";
    let servers = json!({"a": fake(flags), "b": fake("--with slow,release")});
    let lab = Lab::new();
    lab.write("go", "");
    let mut gateway = Gateway::spawn_with(lab, dev("proxy", servers), |_| ());
    gateway.initialize(VERSION);
    gateway.open("dev");
    gateway.use_tool("a", "crash", "{}").failure();
    std::fs::remove_file(gateway.lab.dir.join("go")).expect("it is there");
    let call = |server: &str, tool: &str, arguments: Value| {
        let tool = json!({"toolbox": "dev", "server": server, "tool": tool});
        let params = json!({"name": "use_tool", "arguments": {"tool": tool, "arguments": arguments}});
        format!(r#"{{"jsonrpc":"2.0","id":700,"method":"tools/call","params":{params}}}"#)
    };
    gateway.send(call("a", "echo", json!({"text": "given up"})));
    gateway.notify(CANCELLED, r#"{"requestId":700}"#);
    gateway.send(call("b", "slow", json!({"key": "k"})));
    gateway.fence();
    gateway.lab.write("go", "");
    let calls = gateway.use_tool("a", "requests", json!({"method": "tools/call"})).text();
    assert!(!calls.contains("given up"), "{calls}");
    gateway.use_tool("b", "release", json!({"key": "k"}));
    assert_eq!(gateway.answer("700").text(), "slow");
}

#[test]
fn log_messages_are_relayed_and_the_level_is_passed_on() {
    let mut gateway = opened("{}", "--with notify,report");
    let params = r#"{"level":"info","logger":"x","data":{"n":18446744073709551616,"b":1,"a":1.10}}"#;
    gateway.use_tool("a", "notify", json!({"method": "notifications/message", "params": params}));
    assert_eq!(gateway.notification("notifications/message").at(&["params"]), params);
    assert_eq!(gateway.request("logging/setLevel", r#"{"level":"warning"}"#).at(&["result"]), "{}");
    for server in ["a", "b"] {
        gateway.until("the level has arrived", |gateway| {
            gateway.use_tool(server, "report", "{}").json()["level"] == json!({"level": "warning"})
        });
    }
}

#[test]
fn logging_is_advertised() {
    let mut gateway = Gateway::spawn(dev("proxy", json!({})));
    assert!(gateway.initialize(VERSION).result()["capabilities"]["logging"].is_object());
}

#[test]
fn questions_reach_a_client_that_can_answer_them_and_come_back_byte_for_byte() {
    for method in ["sampling/createMessage", "elicitation/create", "roots/list"] {
        let mut gateway = opened(CAN_ALL, "--with ask");
        let params = r#"{"message":"\u0041","b":18446744073709551616,"a":1.10}"#;
        for answer in [
            r#""result":{"z":18446744073709551616,"a":1.10,"roots":[]}"#,
            r#""error":{"code":-1,"message":"user rejected","data":{"n":1.10}}"#,
        ] {
            let call = gateway.post_use_tool("a", "ask", json!({"method": method, "params": params}));
            let question = gateway.question(method);
            assert_eq!(question.at(&["params"]), params, "{method}");
            gateway.reply(&question, answer);
            assert_eq!(gateway.answer(&call).text(), format!("{{{answer}}}"), "{method}");
        }
    }
}

#[test]
fn questions_are_refused_when_the_client_cannot_answer_them() {
    let mut gateway = opened("{}", "--with ask");
    for method in ["sampling/createMessage", "elicitation/create", "roots/list"] {
        let answer = gateway.use_tool("a", "ask", json!({"method": method, "params": "{}"})).json();
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
        assert!(!gateway.has(|message| message.method() == method), "{method} does not reach the client");
    }
}

#[test]
fn a_question_of_a_kind_that_nobody_knows_yet_reaches_the_client_and_its_answer_comes_back() {
    let mut gateway = opened("{}", "--with ask");
    let call = gateway.post_use_tool("a", "ask", json!({"method": "no/such", "params": r#"{"new":1.50}"#}));
    let question = gateway.question("no/such");
    assert_eq!(question.at(&["params"]), r#"{"new":1.50}"#);
    gateway.reply(&question, r#""result":{"also":"new"}"#);
    assert_eq!(gateway.answer(&call).text(), r#"{"result":{"also":"new"}}"#);
}

#[test]
fn an_upstreams_ping_is_answered_by_the_gateway() {
    let mut gateway = opened("{}", "--with ask");
    assert_eq!(gateway.use_tool("a", "ask", json!({"method": "ping"})).text(), r#"{"result":{}}"#);
}

#[test]
fn questions_of_two_upstreams_at_once_are_kept_apart() {
    let mut gateway = opened(CAN_ALL, "--with ask");
    let ask = |server: &str| json!({"method": "roots/list", "params": json!({"from": server}).to_string()});
    let calls = ["a", "b"].map(|server| (server, gateway.post_use_tool(server, "ask", ask(server))));
    let questions = [gateway.question("roots/list"), gateway.question("roots/list")];
    assert_ne!(questions[0].id(), questions[1].id());
    for question in questions.iter().rev() {
        let from = question.at(&["params", "from"]);
        gateway.reply(question, &format!(r#""result":{{"to":{from}}}"#));
    }
    for (server, call) in calls {
        assert_eq!(gateway.answer(&call).json()["result"]["to"], server);
    }
}

#[test]
fn a_question_that_the_upstream_cancels_is_cancelled_at_the_client() {
    let mut gateway = opened(CAN_ALL, "--with ask,notify");
    let _call =
        gateway.post_use_tool("a", "ask", json!({"method": "sampling/createMessage", "params": "{}"}));
    let question = gateway.question("sampling/createMessage");
    // The fake numbers its questions from 1.
    let params = r#"{"requestId":1,"reason":"too late"}"#;
    gateway.use_tool("a", "notify", json!({"method": CANCELLED, "params": params}));
    let cancelled = gateway.notification(CANCELLED);
    assert_eq!(cancelled.at(&["params", "requestId"]), question.id());
    assert_eq!(cancelled.at(&["params", "reason"]), r#""too late""#);
}

#[test]
fn a_question_that_nobody_answers_ends_after_the_question_timeout() {
    let mut config = dev("proxy", json!({"a": fake("--with ask")}));
    config["questionTimeout"] = json!(0.3);
    let mut gateway = Gateway::spawn(config);
    gateway.initialize_with(VERSION, CAN_ALL);
    gateway.open("dev");
    let answer = gateway.use_tool("a", "ask", json!({"method": "elicitation/create", "params": "{}"})).json();
    assert!(answer["error"]["code"].is_i64(), "{answer}");
}

/// What an upstream of this era, whose tools have this prefix, was told that clients can do.
#[track_caller]
pub(crate) fn told_capabilities(client: &mut Client, era: Era, prefix: &str) -> Value {
    match era {
        Era::Legacy => {
            client.call(&format!("{prefix}report"), "{}").json()["initialize"]["capabilities"].clone()
        }
        Era::Modern => {
            let arguments = r#"{"method":"server/discover"}"#;
            let asked = client.call(&format!("{prefix}requests"), arguments).json();
            asked[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone()
        }
    }
}

#[test]
fn upstreams_are_told_what_the_one_client_declared_and_nothing_more() {
    for (client, upstream) in [Era::Legacy, Era::Modern]
        .into_iter()
        .flat_map(|client| [(client, Era::Legacy), (client, Era::Modern)])
    {
        let era = if upstream == Era::Modern { "modern" } else { "legacy" };
        for capabilities in ["{}", r#"{"sampling":{}}"#, CAN_ALL] {
            let config = dev("dynamic", json!({"a": fake(&format!("--with report,requests --era {era}"))}));
            let mut client = Client::pipe(client, Gateway::spawn(config), capabilities);
            client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
            let told = told_capabilities(&mut client, upstream, "dev__a__");
            let declared: Value = serde_json::from_str(capabilities).expect("JSON");
            assert_eq!(told, declared, "{:?} to {era}", client.era);
        }
    }
}

#[test]
fn a_question_outside_any_call_goes_to_the_client() {
    let mut gateway = opened(CAN_ALL, "--with received --ask-after-initialized roots/list");
    for _ in 0..2 {
        let question = gateway.question("roots/list");
        gateway.reply(&question, r#""result":{"roots":[{"uri":"file:///x"}]}"#);
    }
    let answer = gateway.use_tool("a", "received", json!({"method": "answer", "count": 1})).json();
    assert_eq!(answer[0]["result"]["roots"][0]["uri"], "file:///x");
}

#[test]
fn the_clients_roots_list_changed_reaches_the_upstreams() {
    let mut gateway = opened(CAN_ALL, "--with received");
    gateway.send(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    let arguments = json!({"method": "notifications/roots/list_changed", "count": 1});
    for server in ["a", "b"] {
        gateway.use_tool(server, "received", &arguments).text();
    }
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
}
