//! What passes through toolman: calls, resources, prompts, and all that belongs to them.

use serde_json::{Value, json};

use crate::harness::{Gateway, Lab, VERSION, raw_at, server};

const ALL: &str = "active_toolsets = [\"*\"]\n";
const CAN_ALL: &str = r#"{"sampling":{},"elicitation":{},"roots":{"listChanged":true}}"#;
const UPDATED: &str = "notifications/resources/updated";

/// Two servers, `a` and `b`, with everything switched on.
fn start(flags: &str) -> Gateway {
    start_as("{}", flags)
}

fn start_as(capabilities: &str, flags: &str) -> Gateway {
    let config = ALL.to_owned() + &server("a", flags, "") + &server("b", flags, "");
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
    gateway.initialize_with(VERSION, capabilities);
    gateway.tools();
    gateway
}

#[test]
fn calls_go_by_the_original_name_and_results_come_back_byte_for_byte() {
    let mut gateway = start("--with echo,result");
    let params = r#"{"name":"a_echo","arguments":{"b":1e400,"a":"\u00e9"},"new":[1.10],"_meta":{"x":18446744073709551616}}"#;
    assert_eq!(gateway.request("tools/call", params).text(), params.replace("a_echo", "echo"));
    for result in [
        r#"{ "content":[{"type":"text","text":"\u0041","new":1.10}],"structuredContent":{"n":18446744073709551616},"_meta":{"b":1,"a":2} }"#,
        r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#,
        r#"{"content":[]}"#,
    ] {
        let answer = gateway.call("b_result", json!({"json": result}));
        let compact = |text: &str| text.replace("{ ", "{").replace(" }", "}");
        assert_eq!(compact(&answer.at(&["result"])), compact(result));
    }
}

#[test]
fn errors_of_upstreams_come_back_unwrapped_with_code_and_data() {
    let error = r#"{"code":-32042,"message":"no","data":{"n":18446744073709551616,"b":[1.10]}}"#;
    let scripted = ["resources/read", "prompts/get", "completion/complete", "resources/subscribe"]
        .map(|method| format!("--error '{method}={error}'"));
    let mut gateway = start(&format!("--with error --resources 1 --prompts 1 {}", scripted.join(" ")));
    let reference =
        json!({"ref": {"type": "ref/prompt", "name": "a_prompt-1"}, "argument": {"name": "a", "value": ""}});
    for (method, params) in [
        ("tools/call", json!({"name": "b_error", "arguments": {"json": error}})),
        ("resources/read", json!({"uri": "b_fake://resource/1"})),
        ("resources/subscribe", json!({"uri": "b_fake://resource/1"})),
        ("prompts/get", json!({"name": "b_prompt-1"})),
        ("completion/complete", reference),
    ] {
        assert_eq!(gateway.request(method, params).at(&["error"]), error, "{method}");
    }
}

#[test]
fn our_own_errors_give_the_exposed_name_and_have_our_shape() {
    let config = ALL.to_owned()
        + &server(
            "a",
            "--with never --resources 1 --templates 1 --prompts 1 --hang resources/read --hang prompts/get --hang completion/complete",
            "call_timeout = 0.05",
        );
    let mut gateway = Gateway::toolman(config);
    let answer = gateway.call("a_never", "{}");
    assert!(answer.failure().contains("a_never"), "{answer:?}");
    assert_eq!(answer.at(&["result", "structuredContent", "success"]), "false");
    let argument = json!({"name": "id", "value": ""});
    for (method, params, name) in [
        ("resources/read", json!({"uri": "a_fake://resource/1"}), "a_fake://resource/1"),
        ("resources/read", json!({"uri": "a_fake://item/1/x"}), "a_fake://item/1/x"),
        ("prompts/get", json!({"name": "a_prompt-1"}), "a_prompt-1"),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/resource", "uri": "a_fake://item/1/{id}"}, "argument": argument}),
            "a_fake://item/1/{id}",
        ),
    ] {
        let answer = gateway.request(method, params);
        answer.error_code();
        assert!(answer.at(&["error", "message"]).contains(name), "{answer:?}");
        assert_eq!(answer.at(&["error", "data", "success"]), "false");
        assert_eq!(answer.at(&["error", "data", "error"]), answer.at(&["error", "message"]));
    }
}

#[test]
fn a_call_by_way_of_toolman_call_names_one_tool_and_one_set_of_arguments() {
    let mut gateway = start("--with echo,requests");
    for arguments in [
        r#"{"name":"a_echo","name":"a_requests"}"#,
        r#"{"name":"a_echo","n\u0061me":"a_echo"}"#,
        r#"{"name":"a_echo","arguments":{"k":1},"arguments":{"k":2}}"#,
    ] {
        let answer = gateway.call("toolman_call", arguments);
        assert!(answer.failure().contains("twice"), "{arguments}: {answer:?}");
    }
    let requests = gateway.call("a_requests", json!({"method": "tools/call"})).json();
    assert_eq!(requests.as_array().map(Vec::len), Some(1), "no other call went upstream");
}

#[test]
fn malformed_requests_are_refused() {
    let mut gateway = start("--with echo");
    for (method, params) in [
        ("tools/call", "{}"),
        ("tools/call", r#"{"name":1}"#),
        ("resources/read", "{}"),
        ("resources/read", r#"{"uri":1}"#),
        ("resources/subscribe", "{}"),
        ("prompts/get", "{}"),
        ("completion/complete", "{}"),
        ("completion/complete", r#"{"ref":{"type":"ref/prompt"}}"#),
        ("tools/list", r#"{"cursor":"x"}"#),
        ("resources/list", r#"{"cursor":"x"}"#),
        ("resources/templates/list", r#"{"cursor":"x"}"#),
        ("prompts/list", r#"{"cursor":"x"}"#),
    ] {
        let answer = gateway.request(method, params);
        assert_eq!(answer.error_code(), -32602, "{method} {params}");
        assert_eq!(answer.at(&["error", "data", "success"]), "false", "{method} {params}");
        assert_eq!(answer.at(&["error", "data", "error"]), answer.at(&["error", "message"]));
    }
    assert_eq!(gateway.request("logging/setLevel", r#"{"level":"loud"}"#).error_code(), -32602);
}

#[test]
fn reading_goes_by_the_original_uri_and_contents_come_back_as_sent() {
    let mut gateway = start("--resources 2 --templates 2");
    for (exposed, original) in [
        ("a_fake://resource/2", "fake://resource/2"),
        ("b_fake://item/2/x%20y", "fake://item/2/x%20y"),
        // Many servers take more for a plain variable than the standard says.
        ("b_fake://item/1/x/y?z=1", "fake://item/1/x/y?z=1"),
    ] {
        let params = format!(r#"{{"uri":"{exposed}","new":1.10}}"#);
        let result = gateway.request("resources/read", params).result();
        assert_eq!(result["contents"][0]["uri"], original, "as the upstream sent it");
        assert_eq!(result["contents"][0]["text"], format!(r#"{{"uri":"{original}","new":1.10}}"#));
    }
}

#[test]
fn a_listed_resources_own_state_wins_over_that_of_a_template_that_fits() {
    let flags = r#"--resource '{"uri":"x:on","name":"r"}' --resource '{"uri":"x:off","name":"r"}' --template '{"uriTemplate":"x:{id}","name":"t"}'"#;
    for (active, readable) in [
        (r#"["a_x:{id}"]"#, ["inactive", "inactive", "read"]),
        (r#"["a_x:on"]"#, ["read", "inactive", "inactive"]),
        (r#"["a_x:on", "a_x:{id}"]"#, ["read", "inactive", "read"]),
        ("[]", ["inactive", "inactive", "inactive"]),
    ] {
        let mut gateway = Gateway::toolman(format!("active_toolsets = {active}\n{}", server("a", flags, "")));
        for (uri, expected) in ["a_x:on", "a_x:off", "a_x:other"].into_iter().zip(readable) {
            let answer = gateway.request("resources/read", json!({"uri": uri}));
            let seen = if answer.raw.contains("is not active") { "inactive" } else { "read" };
            assert_eq!(
                (seen, answer.at(&["result"]).is_empty()),
                (expected, expected != "read"),
                "{active} {uri}"
            );
        }
    }
}

#[test]
fn a_uri_belongs_to_the_template_that_fits_it_most_closely_and_has_its_state() {
    let template = |uri: &str| format!(" --template '{}'", json!({"uriTemplate": uri, "name": "t"}));
    for (closer, laxer, uri) in
        [("x:docs/{name}", "x:{path}", "a_x:docs/1"), ("x:{+path}", "x:docs/{name}", "a_x:docs/1/2")]
    {
        for flags in [template(closer) + &template(laxer), template(laxer) + &template(closer)] {
            for (active, expected) in [(closer, true), (laxer, false)] {
                let config = format!("active_toolsets = [\"a_{active}\"]\n{}", server("a", &flags, ""));
                let mut gateway = Gateway::toolman(config);
                let answer = gateway.request("resources/read", json!({"uri": uri}));
                let inactive = answer.raw.contains(&format!("'a_{closer}' is not active"));
                assert_eq!(
                    (answer.at(&["result"]).is_empty(), inactive),
                    (!expected, !expected),
                    "{active} {flags}: {answer:?}"
                );
            }
        }
    }
}

#[test]
fn a_resource_link_is_left_as_it_came_and_can_be_read_whatever_its_state() {
    let config = "active_toolsets = [\"*_result\"]\n".to_owned()
        + &server("a", "--with result --resources 1", "")
        + &server("b", "--with result --resources 1 --templates 1", "")
        + &server(
            "",
            "--resource '{\"uri\":\"off:1\",\"name\":\"off\"}' --tool '{\"name\":\"c_result\"}'",
            "",
        );
    let mut gateway = Gateway::toolman(config);
    gateway.tools();
    for uri in ["fake://resource/1", "fake://linked", "fake://item/1/x"] {
        gateway.request("resources/read", json!({"uri": uri})).error_code();
        let result =
            format!(r#"{{"content":[{{"type":"resource_link","uri":"{uri}","name":"l","new":1.10}}]}}"#);
        let answer = gateway.call("b_result", json!({"json": result}));
        assert_eq!(answer.at(&["result"]), result);
        let read = gateway.request("resources/read", json!({"uri": uri})).result();
        assert_eq!(read["contents"][0]["uri"], uri);
    }
    for uri in ["b_fake://resource/1", "b_fake://item/1/x", "a_fake://resource/1", "off:1"] {
        let answer = gateway.request("resources/read", json!({"uri": uri}));
        assert!(answer.raw.contains("is not active"), "its own name still needs switching on: {answer:?}");
    }
}

#[test]
fn links_in_prompts_can_be_read_too() {
    let messages = r#"{"messages":[{"role":"user","content":{"type":"resource_link","uri":"fake://linked","name":"l"}}]}"#;
    let mut gateway = start(&format!("--prompts 1 --resources 1 --result 'prompts/get={messages}'"));
    assert_eq!(gateway.request("prompts/get", json!({"name": "b_prompt-1"})).at(&["result"]), messages);
    let read = gateway.request("resources/read", json!({"uri": "fake://linked"})).result();
    assert_eq!(read["contents"][0]["uri"], "fake://linked");
}

#[test]
fn prompts_are_got_by_their_original_name() {
    let mut gateway = start("--prompts 2");
    assert_eq!(gateway.prompts(), ["a_prompt-1", "a_prompt-2", "b_prompt-1", "b_prompt-2"]);
    let params = r#"{"name":"b_prompt-2","arguments":{"b":"\u0041","a":"1"}}"#;
    let result = gateway.request("prompts/get", params).result();
    assert_eq!(result["messages"][0]["content"]["text"], params.replace("b_prompt", "prompt"));
}

#[test]
fn completion_follows_its_reference() {
    let mut gateway = start("--prompts 1 --resources 1 --templates 1");
    for (reference, key, original) in [
        (r#"{"type":"ref/prompt","name":"b_prompt-1"}"#, "name", "prompt-1"),
        (r#"{"type":"ref/resource","uri":"b_fake://item/1/{id}"}"#, "uri", "fake://item/1/{id}"),
        (r#"{"type":"ref/resource","uri":"b_fake://resource/1"}"#, "uri", "fake://resource/1"),
    ] {
        let params = format!(
            r#"{{"ref":{reference},"argument":{{"name":"id","value":"1.10"}},"context":{{"x":1.10}}}}"#
        );
        let result = gateway.request("completion/complete", params).result();
        let seen = result["completion"]["values"][0].as_str().expect("a text").to_owned();
        assert_eq!(raw_at(&seen, &["ref", key]), format!("\"{original}\""));
        assert_eq!(raw_at(&seen, &["context"]), r#"{"x":1.10}"#);
    }
    for reference in
        [json!({"type": "ref/prompt", "name": "none"}), json!({"type": "ref/resource", "uri": "none:"})]
    {
        let params = json!({"ref": reference, "argument": {"name": "a", "value": ""}});
        gateway.request("completion/complete", params).error_code();
    }
}

#[test]
fn subscriptions_pass_through_with_exposed_uris() {
    let mut gateway = start("--with update,report --resources 1 --templates 1");
    for (exposed, original) in
        [("b_fake://resource/1", "fake://resource/1"), ("b_fake://item/1/x", "fake://item/1/x")]
    {
        let (exposed, update) = (json!({"uri": exposed}), json!({"uri": original}));
        gateway.request("resources/subscribe", &exposed).result();
        gateway.call("b_update", &update).text();
        assert_eq!(gateway.notification(UPDATED).value()["params"], exposed);
        gateway.call("a_update", &update).text();
        assert_eq!(gateway.count(UPDATED), 0, "nobody subscribed to that of a");
        // What is switched off meanwhile can still be left.
        gateway.activate([&[], &[], &[], &["b_*"]]).text();
        gateway.request("resources/unsubscribe", &exposed).result();
        assert_eq!(gateway.call("b_report", "{}").json()["subscriptions"], json!([]));
        gateway.activate([&[], &[], &["b_*"], &[]]).text();
    }
}

#[test]
fn progress_comes_before_the_answer_with_the_clients_token() {
    let mut gateway = start("--with progress");
    gateway.changes();
    for name in ["a_progress", "toolman_call"] {
        let arguments = match name {
            "toolman_call" => json!({"name": "b_progress", "arguments": {"n": 3}}),
            _ => json!({"n": 3}),
        };
        let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": "mine"}});
        let id = gateway.post("tools/call", params);
        for n in 1..=3 {
            let progress = gateway.next().value();
            assert_eq!(progress["params"], json!({"progressToken": "mine", "progress": n, "total": 3}));
        }
        assert_eq!(gateway.next().id(), id);
    }
}

#[test]
fn a_cancelled_call_is_cancelled_upstream() {
    let mut gateway = start("--with slow,started,received");
    let id: u64 = gateway.post_call("a_slow", json!({"key": "k"})).parse().expect("a number");
    gateway.call("a_started", json!({"key": "k"})).text();
    gateway.notify("notifications/cancelled", json!({"requestId": id, "reason": "enough"}));
    let seen = gateway.call("a_received", json!({"method": "notifications/cancelled", "count": 1})).json();
    assert_eq!(seen[0]["params"]["reason"], "enough");
    assert!(!gateway.has(|message| message.id() == id.to_string()));
}

#[test]
fn logging_passes_through_also_to_a_server_that_comes_later() {
    let config = format!("startup_wait = 0\n{ALL}")
        + &server("a", "--with notify,report", "")
        + &server("b", "--with report --wait-for @dir/go", "");
    let mut gateway = Gateway::toolman(config);
    gateway.until("a is up", |gateway| gateway.tools().contains(&"a_report".to_owned()));
    gateway.request("logging/setLevel", r#"{"level":"warning"}"#).result();
    gateway.lab.write("go", "");
    gateway.until("b is up", |gateway| gateway.tools().contains(&"b_report".to_owned()));
    for tool in ["a_report", "b_report"] {
        gateway.until("the level has arrived", |gateway| {
            gateway.call(tool, "{}").json()["level"] == json!({"level": "warning"})
        });
    }
    let params = r#"{"level":"info","logger":"x","data":{"n":18446744073709551616}}"#;
    gateway.call("a_notify", json!({"method": "notifications/message", "params": params})).text();
    assert_eq!(gateway.notification("notifications/message").at(&["params"]), params);
}

#[test]
fn questions_of_upstreams_reach_the_client_and_come_back() {
    let mut gateway = start_as(CAN_ALL, "--with ask");
    for (method, params, answer) in [
        (
            "sampling/createMessage",
            r#"{"messages":[],"maxTokens":18446744073709551616}"#,
            r#""result":{"new":1.10}"#,
        ),
        ("elicitation/create", r#"{"message":"?"}"#, r#""error":{"code":-5,"message":"no","data":[1.10]}"#),
        ("roots/list", "{}", r#""result":{"roots":[]}"#),
    ] {
        let id = gateway.post_call("b_ask", json!({"method": method, "params": params}));
        let question = gateway.question(method);
        assert_eq!(question.at(&["params"]), params);
        gateway.reply(&question, answer);
        assert_eq!(gateway.answer(&id).text(), format!("{{{answer}}}"));
    }
}

#[test]
fn a_server_that_starts_before_the_client_is_known_is_told_of_everything_and_refused_on_use() {
    let config = ALL.to_owned() + &server("a", "--with report,ask --count @dir/a", "");
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
    gateway.until("it has started", |gateway| gateway.lab.starts("a") == 1);
    gateway.initialize_with(VERSION, "{}");
    let answer: Value = gateway.call("a_ask", json!({"method": "roots/list"})).json();
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}

#[test]
fn a_question_outside_any_call_goes_to_the_client() {
    let flags = "--with received --ask-after-initialized roots/list --wait-for @dir/go";
    let config = format!("startup_wait = 600\n{ALL}{}", server("a", flags, ""));
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
    gateway.initialize_with(VERSION, r#"{"roots":{}}"#);
    gateway.fence();
    gateway.lab.write("go", "");
    let question = gateway.question("roots/list");
    gateway.reply(&question, r#""result":{"roots":[]}"#);
    let answer = gateway.call("a_received", json!({"method": "answer", "count": 1})).json();
    assert_eq!(answer, json!([{"result": {"roots": []}}]));
}

#[test]
fn a_clients_notifications_go_to_every_server() {
    let mut gateway = start("--with received");
    gateway.notify("notifications/roots/list_changed", "{}");
    gateway.notify("notifications/new", r#"{"n":1.10}"#);
    for tool in ["a_received", "b_received"] {
        let seen = gateway.call(tool, json!({"method": "notifications/new", "count": 1})).text();
        assert!(seen.contains(r#"{"n":1.10}"#), "{seen}");
        gateway.call(tool, json!({"method": "notifications/roots/list_changed", "count": 1})).text();
    }
}
