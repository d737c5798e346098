//! The legacy handshake and the JSON-RPC envelope.

use serde_json::{Value, json};

use crate::harness::{Gateway, VERSION, dev, fake};

fn idle() -> Gateway {
    Gateway::start(dev("proxy", json!({"a": fake("--with echo,slow,release,started")})))
}

#[test]
fn initialize_answers_with_the_version_asked_for() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut gateway = Gateway::spawn(dev("dynamic", json!({})));
        let result = gateway.initialize(version).result();
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["capabilities"]["tools"]["listChanged"], true);
        assert!(result["serverInfo"]["name"].is_string());
        assert!(result["serverInfo"]["version"].is_string());
        assert!(result["instructions"].is_string());
        assert_eq!(gateway.tools(), ["open_toolbox"]);
    }
}

#[test]
fn an_unknown_version_gets_the_latest_legacy_one() {
    for version in ["1999-01-01", "2026-07-28", "latest"] {
        let mut gateway = Gateway::spawn(dev("dynamic", json!({})));
        assert_eq!(gateway.initialize(version).result()["protocolVersion"], "2025-11-25", "{version}");
    }
}

#[test]
fn a_modern_upstream_that_starts_slowly_is_understood() {
    let entry = fake("--with echo --era modern --delay 700");
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
    assert_eq!(gateway.open("dev")["servers_connected"], 1);
}

#[test]
fn a_modern_upstream_is_told_what_the_client_can_do() {
    let entry = fake("--with echo,requests --era modern");
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
    gateway.open("dev");
    for method in ["server/discover", "tools/list", "subscriptions/listen"] {
        let heard = gateway.use_tool("a", "requests", json!({"method": method})).json();
        let told = &heard[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(told, &json!({}), "{method}: {heard}");
    }
}

#[test]
fn upstreams_of_every_legacy_version_are_understood() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let entry = fake(&format!("--with echo --protocol {version}"));
        let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
        assert_eq!(gateway.open("dev")["servers_connected"], 1, "{version}");
        assert!(!gateway.use_tool("a", "echo", "{}").is_error(), "{version}");
    }
}

#[test]
fn ping_is_answered_before_and_after_initialize() {
    let mut gateway = Gateway::spawn(dev("dynamic", json!({})));
    gateway.fence();
    gateway.initialize(VERSION);
    gateway.fence();
}

#[test]
fn a_request_before_initialize_is_refused_and_the_connection_lives_on() {
    let mut gateway = Gateway::spawn(dev("dynamic", json!({})));
    gateway.request("tools/list", "{}").error_code();
    gateway.initialize(VERSION);
    assert_eq!(gateway.tools(), ["open_toolbox"]);
}

#[test]
fn batches_are_answered_in_2025_03_26() {
    let mut gateway = Gateway::spawn(dev("dynamic", json!({})));
    gateway.initialize("2025-03-26");
    gateway.send(
        r#"[{"jsonrpc":"2.0","id":50,"method":"ping"},{"jsonrpc":"2.0","id":5e1,"method":"ping"},{"jsonrpc":"2.0","id":"50","method":"ping"}]"#,
    );
    let twice = gateway.next();
    let ids: Vec<_> =
        twice.value().as_array().expect("a batch").iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!(50), json!(null), json!("50")], "an id stands for one request");
    gateway.send(
        r#"[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":7,"method":"no/such"},3]"#,
    );
    let Value::Array(answers) = gateway.next().value() else { panic!("a batch is answered by a batch") };
    let find =
        |id: Value| answers.iter().find(|answer| answer["id"] == id).expect("every request is answered");
    assert_eq!(answers.len(), 3);
    assert_eq!(find(json!("a"))["result"], json!({}));
    assert_eq!(find(json!(7))["error"]["code"], -32601);
    assert_eq!(find(Value::Null)["error"]["code"], -32600);
    gateway.send(r#"[{"jsonrpc":"2.0","method":"notifications/x"}]"#);
    gateway.send("[]");
    let answer = gateway.next();
    assert_eq!((answer.id().as_str(), answer.error_code()), ("null", -32600), "an empty batch is no request");
}

#[test]
fn batches_are_refused_in_every_other_version() {
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let mut gateway = Gateway::spawn(dev("dynamic", json!({})));
        gateway.initialize(version);
        gateway.send(r#"[{"jsonrpc":"2.0","id":"a","method":"ping"}]"#);
        let answer = gateway.next();
        assert_eq!((answer.id().as_str(), answer.error_code()), ("null", -32600), "{version}");
        gateway.fence();
    }
}

#[test]
fn malformed_json_gets_a_parse_error_and_the_connection_lives_on() {
    let mut gateway = idle();
    let cases: [&[u8]; 7] = [
        b"{",
        b"nonsense",
        br#"{"jsonrpc":"2.0","id":1,"method":"ping""#,
        br#"{"jsonrpc":"2.0","id":1,"method":"ping"} trailing"#,
        br#"{"jsonrpc":"2.0","id":01,"method":"ping"}"#,
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"\xff\xfe\"}}",
        b"{'jsonrpc':'2.0'}",
    ];
    for case in cases {
        gateway.send(case);
        let answer = gateway.next();
        let shown = String::from_utf8_lossy(case);
        assert_eq!((answer.id().as_str(), answer.error_code()), ("null", -32700), "{shown}");
        gateway.fence();
    }
}

#[test]
fn an_invalid_request_is_refused_with_id_null() {
    let mut gateway = idle();
    for case in [
        "1",
        r#""text""#,
        "null",
        "{}",
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"ping"}"#,
    ] {
        gateway.send(case);
        let answer = gateway.next();
        assert_eq!((answer.id().as_str(), answer.error_code()), ("null", -32600), "{case}");
        gateway.fence();
    }
}

#[test]
fn an_invalid_request_whose_id_can_be_read_is_refused() {
    let mut gateway = idle();
    for case in [
        r#"{"jsonrpc":"2.0","id":77,"method":5}"#,
        r#"{"jsonrpc":"2.0","id":77,"method":"ping","method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":77,"method":"ping","params":{},"params":{}}"#,
    ] {
        gateway.send(case);
        let answer = gateway.next();
        assert_eq!(answer.error_code(), -32600, "{case}");
        assert!(["77", "null"].contains(&answer.id().as_str()), "{case}");
        gateway.fence();
    }
}

#[test]
fn blank_lines_and_carriage_returns_harm_nothing() {
    let mut gateway = idle();
    gateway.send_bytes(b"\n\r\n  \n{\"jsonrpc\":\"2.0\",\"id\":\"crlf\",\"method\":\"ping\"}\r\n");
    assert_eq!(gateway.next().id(), r#""crlf""#);
}

#[test]
fn a_message_may_come_in_pieces_and_several_at_once() {
    let mut gateway = idle();
    gateway.send_bytes(br#"{"jsonrpc":"2.0","id":"one","#);
    gateway.send_bytes(b"\"method\":\"ping\"}\n{\"jsonrpc\":\"2.0\",\"id\":\"two\",\"method\":\"ping\"}\n");
    gateway.answer(r#""one""#);
    gateway.answer(r#""two""#);
}

#[test]
fn an_unknown_method_is_not_found_and_unknown_notifications_and_answers_are_ignored() {
    let mut gateway = idle();
    assert_eq!(gateway.request("no/such/method", "{}").error_code(), -32601);
    gateway.notify("notifications/unknown", "{}");
    gateway.notify("notifications/unknown", "3");
    gateway.send(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#);
    gateway.send(r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}"#);
    assert!(!gateway.has(|_| true), "nothing is answered");
}

#[test]
fn ids_come_back_exactly_as_sent() {
    let mut gateway = idle();
    for id in [
        r#""a""#,
        r#""""#,
        r#""1""#,
        "0",
        "1",
        "-1",
        "9007199254740993",
        "18446744073709551615",
        "123456789012345678901234567890",
        r#""\u00e9\ud83d\ude00\/""#,
        r#""é""#,
    ] {
        gateway.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
        assert_eq!(gateway.next().id(), id);
        gateway.send(format!(r#"{{"method":"tools/list","id":{id},"jsonrpc":"2.0"}}"#));
        assert_eq!(gateway.next().id(), id, "params may be absent, keys stand in any order");
    }
}

#[test]
fn an_id_still_in_flight_is_refused_with_id_null() {
    let mut gateway = idle();
    gateway.open("dev");
    let call = |id: &str, key: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"use_tool","arguments":{{"tool":{{"toolbox":"dev","server":"a","tool":"slow"}},"arguments":{{"key":"{key}"}}}}}}}}"#
        )
    };
    gateway.send(call("100", "k"));
    gateway.send(call(r#""100""#, "k"));
    gateway.use_tool("a", "started", json!({"key": "k"}));
    gateway.send(r#"{"jsonrpc":"2.0","id":100,"method":"ping"}"#);
    let refused = gateway.answer("null");
    assert_eq!(refused.error_code(), -32600);
    gateway.use_tool("a", "release", json!({"key": "k"}));
    assert_eq!(gateway.answer("100").text(), "slow");
    assert_eq!(gateway.answer(r#""100""#).text(), "slow", "a text and a number are different ids");
    gateway.send(r#"{"jsonrpc":"2.0","id":100,"method":"ping"}"#);
    assert_eq!(gateway.answer("100").at(&["result"]), "{}", "an answered id may be used again");
}

#[test]
fn a_refusal_bears_no_id_that_is_still_in_flight() {
    let mut config = dev("proxy", json!({"a": fake("--with slow,release")}));
    config["maxMessageBytes"] = json!(10_000);
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    let slow = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"use_tool","arguments":{{"tool":{{"toolbox":"dev","server":"a","tool":"slow"}},"arguments":{{"key":"k"}}}}}}}}"#
        )
    };
    let ids = ["100", r#""text""#];
    ids.iter().for_each(|id| gateway.send(slow(id)));
    let modern =
        |version: &str| format!(r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}"}}}}"#);
    for (code, rest) in [
        (-32602, format!(r#""jsonrpc":"2.0","method":"tools/list","params":{}"#, modern("2026-07-28"))),
        (-32022, format!(r#""jsonrpc":"2.0","method":"tools/list","params":{}"#, modern("2099-01-01"))),
        (-32600, r#""jsonrpc":"1.0","method":"ping""#.to_owned()),
        (-32600, r#""jsonrpc":"2.0","method":7"#.to_owned()),
        (-32602, r#""jsonrpc":"2.0","method":"ping","params":[]"#.to_owned()),
        (-32600, format!(r#""jsonrpc":"2.0","method":"ping","params":{{"x":"{}"}}"#, "x".repeat(20_000))),
    ] {
        for (id, answered) in [(ids[0], "null"), (ids[1], "null"), ("101", "101"), (r#""free""#, r#""free""#)]
        {
            gateway.send(format!(r#"{{"id":{id},{rest}}}"#));
            let refused = gateway.next();
            assert_eq!((refused.id().as_str(), refused.error_code()), (answered, code), "{rest:.80}");
        }
    }
    gateway.use_tool("a", "release", json!({"key": "k"}));
    ids.iter().for_each(|id| assert_eq!(gateway.answer(id).text(), "slow"));
}

#[test]
fn requests_run_concurrently_and_answers_go_out_as_they_come() {
    let mut gateway = idle();
    gateway.open("dev");
    let slow = gateway.post_use_tool("a", "slow", json!({"key": "k"}));
    let quick = gateway.post_use_tool("a", "echo", "{}");
    gateway.answer(&quick);
    gateway.use_tool("a", "release", json!({"key": "k"}));
    gateway.answer(&slow);
}
