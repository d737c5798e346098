//! We are a courier: what we do not address arrives byte for byte.

use serde_json::json;

use crate::harness::{Gateway, classic, dev, fake, fake_with, raw_at};

/// Values that any decoding and encoding again would change.
const VALUES: [&str; 10] = [
    r#"{"z":1,"a":2,"m":{"y":0,"b":0}}"#,
    r#"{"integer":9223372036854775807,"unsigned":18446744073709551615,"negative":-9223372036854775808}"#,
    r#"{"huge":123456789012345678901234567890123456789012345678901234567890}"#,
    r#"{"decimal":0.1000000000000000055511151231257827,"zeros":1.10,"exponent":1E+2,"over":1e400,"minus":-0}"#,
    r#"{"escapes":"\u0041\u00e9\u2028\/\ud83d\ude00\b","lone":"\ud800","plain":"é😀"}"#,
    r#"{ "space" : [ 1 , 2 ] }"#,
    r#"{"twice":1,"twice":2}"#,
    r#"{"":null,"\u0000":[],"__proto__":{},"jsonrpc":"1.0","id":5,"method":"x"}"#,
    r#"{"name":"other","name":"another","arguments":{"arguments":[]}}"#,
    r#"{}"#,
];

/// A tool definition with everything that a tool may have, and more.
const TOOL: &str = r#"{"title":"T\u00e9","name":"echo","futureField":[18446744073709551616,1e400,{"b":0,"a":0}],"description":"Says \u0041","inputSchema":{"type":"object","properties":{"z":{"maximum":9223372036854775807},"a":{"const":0.1000000000000000055511151231257827}},"$comment":"\u2028"},"outputSchema":{"type":"object","b":1.0,"a":2},"annotations":{"readOnlyHint":true,"new":1.50},"icons":[{"src":"x"}],"_meta":{"k":1.10}}"#;

fn nested(depth: usize) -> String {
    format!(r#"{{"deep":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
}

fn gateways() -> impl Iterator<Item = (&'static str, Gateway)> {
    ["dynamic", "proxy"].into_iter().map(|mode| {
        let entry = fake_with("--with result,error,requests,notify,received", &["--tool", TOOL]);
        let mut gateway = Gateway::start(dev(mode, json!({"a": entry})));
        gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        (mode, gateway)
    })
}

#[test]
fn a_definition_keeps_every_field_of_the_upstream() {
    for (mode, mut gateway) in gateways() {
        let (json, path) = match mode {
            "proxy" => {
                let answer = gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
                for field in ["inputSchema", "futureField"] {
                    assert_eq!(
                        answer.at(&["result", "structuredContent", "tools", "5", field]),
                        raw_at(TOOL, &[field])
                    );
                }
                (answer.text(), ["tools", "5"])
            }
            _ => (gateway.request("tools/list", "{}").at(&["result"]), ["tools", "6"]),
        };
        let tool = raw_at(&json, &path);
        for field in ["title", "futureField", "inputSchema", "outputSchema", "annotations", "icons"] {
            assert_eq!(raw_at(&tool, &[field]), raw_at(TOOL, &[field]), "{mode} {field}");
        }
        assert_eq!(raw_at(&tool, &["_meta", "k"]), "1.10", "{mode}");
    }
}

#[test]
fn arguments_reach_the_upstream_byte_for_byte() {
    let mut cases: Vec<String> = VALUES.map(str::to_owned).to_vec();
    cases.push(nested(1_000));
    cases.push(format!(r#"{{"text":"{}"}}"#, "é0123456\\n".repeat(500_000)));
    for (mode, mut gateway) in gateways() {
        for arguments in &cases {
            let through_meta_tool = gateway.use_tool("a", "echo", arguments).text();
            assert!(raw_at(&through_meta_tool, &["arguments"]) == *arguments, "{mode} use_tool");
            assert_eq!(raw_at(&through_meta_tool, &["name"]), r#""echo""#);
            let registered = gateway.call("dev__a__echo", arguments).text();
            assert!(raw_at(&registered, &["arguments"]) == *arguments, "{mode} registered");
            let classic = gateway.call(
                "workbench_use_tool",
                format!(r#"{{"toolbox_name":"dev","tool_name":"dev__a__echo","arguments":{arguments}}}"#),
            );
            assert!(raw_at(&classic.text(), &["arguments"]) == *arguments, "{mode} classic");
        }
    }
}

#[test]
fn unknown_parameters_and_meta_reach_the_upstream() {
    for (mode, mut gateway) in gateways() {
        let more = r#""task":{"ttl":1.10},"_meta":{"vendor/x":18446744073709551616,"b":1,"a":2}"#;
        let registered = gateway
            .request("tools/call", format!(r#"{{"name":"dev__a__echo","arguments":{{}},{more}}}"#))
            .text();
        let through_meta_tool = gateway
            .request(
                "tools/call",
                format!(
                    r#"{{"name":"use_tool","arguments":{{"tool":{{"toolbox":"dev","server":"a","tool":"echo"}},"arguments":{{}}}},{more}}}"#
                ),
            )
            .text();
        for echoed in [registered, through_meta_tool] {
            assert_eq!(raw_at(&echoed, &["task"]), r#"{"ttl":1.10}"#, "{mode}");
            assert_eq!(raw_at(&echoed, &["_meta", "vendor/x"]), "18446744073709551616", "{mode}");
        }
    }
}

#[test]
fn results_come_back_byte_for_byte() {
    let mut cases: Vec<String> = VALUES
        .iter()
        .map(|value| format!(r#"{{"new":{value},"content":[],"structuredContent":{value},"_meta":{value}}}"#))
        .collect();
    cases.push(r#"{"content":[{"type":"text","text":"\u0041","x":1.0},{"type":"image","data":"","mimeType":"a/b"},{"type":"novel","z":1}]}"#.to_owned());
    cases.push(r#"{"isError":true,"content":[{"type":"text","text":"its own"}]}"#.to_owned());
    cases.push(format!(r#"{{"content":[],"structuredContent":{}}}"#, nested(1_000)));
    cases.push(format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(5_000_000)));
    for (mode, mut gateway) in gateways() {
        for case in &cases {
            let arguments = json!({"json": case});
            for answer in
                [gateway.use_tool("a", "result", &arguments), gateway.call("dev__a__result", &arguments)]
            {
                assert!(answer.at(&["result"]) == *case, "{mode}: {answer:?}");
            }
        }
    }
}

#[test]
fn an_upstreams_error_becomes_a_result_that_keeps_code_and_data() {
    for (mode, mut gateway) in gateways() {
        for data in VALUES {
            let error = format!(r#"{{"code":-32123,"message":"no \u0041ccess","data":{data}}}"#);
            let arguments = json!({"json": error});
            for answer in
                [gateway.use_tool("a", "error", &arguments), gateway.call("dev__a__error", &arguments)]
            {
                assert_eq!(answer.text_block(0), "[dev/a/error] no Access", "{mode}");
                assert!(answer.is_error());
                let kept = ["result", "_meta", "mcp-workbench/error"];
                assert_eq!(answer.at(&[&kept[..], &["code"]].concat()), "-32123", "{mode}");
                assert_eq!(answer.at(&[&kept[..], &["data"]].concat()), data, "{mode}");
                assert_eq!(raw_at(&answer.at(&kept), &["message"]), r#""no \u0041ccess""#, "{mode}");
            }
        }
        let answer = gateway.use_tool("a", "error", json!({"json": r#"{"code":-1,"message":"m"}"#}));
        assert_eq!(answer.result()["_meta"]["mcp-workbench/error"], json!({"code": -1, "message": "m"}));
    }
}

#[test]
fn of_an_upstreams_odd_error_code_and_data_are_kept_as_far_as_there_are_any() {
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake("--with error")})));
    gateway.open("dev");
    for (error, text, kept) in [
        (r#"{"message":"m","data":{"a":1}}"#, "m", r#"{"message":"m","data":{"a":1},"code":-32603}"#),
        (
            r#"{"code":-32000.0,"message":"m","data":1.10}"#,
            "m",
            r#"{"code":-32000.0,"message":"m","data":1.10}"#,
        ),
        (
            r#"{"code":5,"data":[1]}"#,
            "the server gave no reason",
            r#"{"code":5,"data":[1],"message":"the server gave no reason"}"#,
        ),
        (r#"{"code":"E1","message":"m","x":1}"#, "m", r#"{"code":-32603,"message":"m","x":1}"#),
    ] {
        let answer = gateway.use_tool("a", "error", json!({"json": error}));
        assert_eq!(answer.failure(), format!("[dev/a/error] {text}"), "{error}");
        assert_eq!(answer.at(&["result", "_meta", "mcp-workbench/error"]), kept, "{error}");
    }
}

#[test]
fn notifications_that_no_rule_names_are_relayed_as_they_came() {
    for (mode, mut gateway) in gateways() {
        for params in VALUES {
            gateway.use_tool("a", "notify", json!({"method": "notifications/vendor", "params": params}));
            assert_eq!(gateway.notification("notifications/vendor").at(&["params"]), params, "{mode}");
        }
        gateway.use_tool("a", "notify", json!({"method": "notifications/bare"}));
        assert_eq!(gateway.notification("notifications/bare").at(&["params"]), "", "{mode}");
        gateway.use_tool("a", "notify", json!({"method": "notifications/noise", "params": "[1]"}));
        assert_eq!(gateway.count("notifications/noise"), 0, "{mode}: params that are no object are noise");
    }
}

#[test]
fn a_clients_notifications_go_to_every_running_upstream() {
    let entry = fake("--with received");
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry, "b": entry})));
    gateway.open("dev");
    for params in VALUES {
        gateway.notify("notifications/vendor", params);
    }
    for server in ["a", "b"] {
        let arguments = json!({"method": "notifications/vendor", "count": VALUES.len()});
        let received = gateway.use_tool(server, "received", arguments).text();
        for (n, params) in VALUES.iter().enumerate() {
            assert_eq!(raw_at(&received, &[&n.to_string(), "params"]), *params);
        }
    }
}

#[test]
fn duplicates_of_keys_that_we_route_by_are_refused() {
    for (mode, mut gateway) in gateways() {
        for params in [
            r#"{"name":"dev__a__echo","name":"dev__a__result"}"#,
            r#"{"name":"dev__a__echo","n\u0061me":"dev__a__result"}"#,
            r#"{"name":"use_tool","arguments":{"tool":{"toolbox":"dev","server":"a","tool":"echo","tool":"result"}}}"#,
            r#"{"name":"use_tool","arguments":{"tool":{"toolbox":"dev","server":"a","tool":"echo"},"tool":{}}}"#,
            r#"{"name":"use_tool","arguments":{},"arguments":{"tool":{"toolbox":"dev","server":"a","tool":"echo"}}}"#,
            r#"{"name":"workbench_use_tool","arguments":{"toolbox_name":"dev","tool_name":"dev__a__echo","tool_name":"x"}}"#,
            r#"{"name":"open_toolbox","arguments":{"toolbox_name":"dev","toolbox_name":"dev"}}"#,
        ] {
            let answer = gateway.request("tools/call", params).value();
            let refused = answer["error"].is_object() || answer["result"]["isError"] == true;
            assert!(refused, "{mode}: {params}: {answer}");
        }
        let requests = gateway.use_tool("a", "requests", json!({"method": "tools/call"})).json();
        assert_eq!(requests.as_array().map(Vec::len), Some(1), "{mode}: no other call went upstream");
    }
}

#[test]
fn references_and_subscriptions_with_a_key_twice_are_refused() {
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake("--with requests --prompts 2")})));
    gateway.open("dev");
    let prompt = |n: u32| json!({"type": "ref/prompt", "name": format!("dev__a__prompt-{n}")}).to_string();
    let argument = r#""argument":{"name":"a","value":""}"#;
    for params in [
        format!(r#"{{"ref":{},"ref":{},{argument}}}"#, prompt(1), prompt(2)),
        format!(r#"{{"ref":{},{argument}}}"#, prompt(1).replacen('{', r#"{"name":"dev__a__prompt-2","#, 1)),
        format!(r#"{{"ref":{},{argument}}}"#, prompt(1).replacen('{', r#"{"type":"ref/resource","#, 1)),
    ] {
        assert_eq!(gateway.request("completion/complete", &params).error_code(), -32602, "{params}");
    }
    let requests = gateway.use_tool("a", "requests", json!({"method": "completion/complete"})).json();
    assert_eq!(requests, json!([]), "nothing went upstream");
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let (twice, state) =
        (r#""notifications":{},"notifications":{"toolsListChanged":true}"#, r#""requestState":"x""#);
    for (method, params) in [
        ("subscriptions/listen", format!("{{{meta},{twice}}}")),
        ("tools/call", format!(r#"{{{meta},"name":"dev__a__requests",{state},{state}}}"#)),
        ("prompts/get", format!(r#"{{{meta},"name":"dev__a__prompt-1",{state},{state}}}"#)),
    ] {
        let answer = gateway.request(method, &params);
        assert_eq!(answer.error_code(), -32602, "{params}");
        assert!(answer.at(&["error", "message"]).contains("twice"), "{answer:?}");
    }
}

#[test]
fn both_contracts_return_the_same_results() {
    let result = r#"{"content":[{"type":"text","text":"\u0041"}],"structuredContent":{"n":1.10}}"#;
    for mode in ["dynamic", "proxy"] {
        let mut gateway = Gateway::start(classic(mode, json!({"a": fake("--with result")})));
        gateway.call("workbench_open_toolbox", r#"{"toolbox_name":"dev"}"#);
        let arguments = json!({"json": result});
        let answers = [
            gateway.call("dev__a__result", &arguments),
            gateway.use_tool("a", "result", &arguments),
            gateway.call(
                "workbench_use_tool",
                json!({"toolbox_name": "dev", "tool_name": "dev__a__result", "arguments": arguments}),
            ),
        ];
        for answer in answers {
            assert_eq!(answer.at(&["result"]), result, "{mode}");
        }
    }
}

#[test]
fn blocks_that_an_old_client_does_not_know_become_text() {
    let link = r#"{"type":"resource_link","uri":"x:1","name":"l"}"#;
    let audio = r#"{"type":"audio","data":"AA==","mimeType":"audio/wav"}"#;
    let image = r#"{"type":"image","data":"AA==","mimeType":"image/png","new":1.10}"#;
    let result = json!({"json": format!(r#"{{"content":[{link},{audio},{image}],"new":1.10}}"#)});
    // The client's version, and which of link and audio it knows.
    for (version, knows_link, knows_audio) in
        [("2024-11-05", false, false), ("2025-03-26", false, true), ("2025-06-18", true, true)]
    {
        let entry = fake("--with result --protocol 2025-11-25");
        let mut gateway = Gateway::spawn(dev("proxy", json!({"a": entry})));
        gateway.initialize(version);
        gateway.open("dev");
        let answer = gateway.use_tool("a", "result", &result);
        for (n, block, known) in [("0", link, knows_link), ("1", audio, knows_audio), ("2", image, true)] {
            let relayed = answer.at(&["result", "content", n]);
            if known {
                assert_eq!(relayed, block, "{version}");
            } else {
                assert_eq!(raw_at(&relayed, &["type"]), r#""text""#, "{version}: {relayed}");
            }
        }
        assert_eq!(answer.at(&["result", "new"]), "1.10", "{version}");
    }
}

#[test]
fn between_equals_everything_is_relayed_as_it_came() {
    let result = r#"{"content":[{"type":"resource_link","uri":"x:1","name":"l"},{"type":"audio"}],"structuredContent":[1.10]}"#;
    let entry = fake("--with result --protocol 2024-11-05");
    let mut gateway = Gateway::spawn(dev("proxy", json!({"a": entry})));
    gateway.initialize("2024-11-05");
    gateway.open("dev");
    let answer = gateway.use_tool("a", "result", json!({"json": result}));
    assert_eq!(answer.at(&["result"]), result);
}
