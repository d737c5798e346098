//! Calls between the eras, row by row: questions, states, levels, errors, subscriptions.

use serde_json::{Value, json};

use crate::client::{CAN_ALL, Client, Era, Host, Remote, Web, subscription};
use crate::harness::{Gateway, Lab, Message, dev, fake, fake_with, server};

const ASK: &str = r#"{"method":"elicitation/create","params":"{\"message\":\"Who?\"}"}"#;
const ACCEPT: &str = r#"{"action":"accept","content":{"name":"Ann"}}"#;
const LOG: &str = "notifications/message";

/// A `tools.toml` that shows one fake as it is.
fn config(flags: &str) -> String {
    format!("active_toolsets = [\"*\"]\n{}", server("", flags, ""))
}

/// A client over stdio of toolman in front of one fake.
fn client(era: Era, flags: &str) -> Client {
    Client::pipe(era, Gateway::spawn_toolman(Lab::new(), config(flags), |_| ()), CAN_ALL)
}

/// A modern client of a legacy fake.
fn modern(flags: &str) -> Client {
    client(Era::Modern, flags)
}

fn is_question(message: &Message) -> bool {
    message.at(&["result", "resultType"]) == r#""input_required""#
}

/// Calls `ask` and returns the questions.
#[track_caller]
fn asked(client: &mut Client, arguments: &str) -> Message {
    let answer = client.call("ask", arguments);
    assert!(is_question(&answer), "{answer:?}");
    answer
}

/// Asks the upstream without being one that can be asked, so that the call waits for no other.
#[track_caller]
fn aside(client: &mut Client, tool: &str, arguments: Value) -> Message {
    client.can("{}");
    let answer = client.call(tool, arguments);
    client.can(CAN_ALL);
    answer
}

#[track_caller]
fn retry(client: &mut Client, asked: &Message, response: &str) -> Message {
    let id = client.post_retry("ask", ASK, asked, response);
    client.answer(&id)
}

#[test]
fn a_question_in_mid_call_parks_the_call_and_a_retry_goes_on_with_it() {
    let mut client = modern("--with ask,requests");
    let questions = asked(&mut client, ASK);
    let result = questions.result();
    let requests = result["inputRequests"].as_object().expect("a map");
    let question = requests.values().next().expect("a question");
    assert_eq!(*question, json!({"method": "elicitation/create", "params": {"message": "Who?"}}));
    assert!(result["ttlMs"].is_null(), "what asks is not kept: {result}");
    assert_eq!(retry(&mut client, &questions, ACCEPT).text(), format!(r#"{{"result":{ACCEPT}}}"#));
    let calls = client.call("requests", json!({"method": "tools/call"})).json();
    assert_eq!(calls.as_array().map(Vec::len), Some(2), "the upstream was called once: {calls}");
}

#[test]
fn progress_goes_out_under_the_token_of_the_retry_or_not_at_all() {
    let arguments = r#"{"method":"elicitation/create","params":"{}","progress":2}"#;
    let call = format!(r#"{{"name":"ask","arguments":{arguments}}}"#);
    let host = Host::toolman(config("--with ask"));
    for (first, retry) in
        [("\"first\"", "\"retry\""), ("\"first\"", "7"), ("\"first\"", ""), ("", "\"retry\"")]
    {
        let token = |token: &str| match token {
            "" => String::new(),
            token => format!(r#""progressToken":{token}"#),
        };
        for mut client in [modern("--with ask"), host.client(Era::Modern)] {
            let id = client.post_with("tools/call", &call, &token(first));
            let questions = client.answer(&id);
            let id = client.post_retry_with("ask", arguments, &questions, ACCEPT, &token(retry));
            client.answer(&id).text();
            let left = client.left();
            let heard = left.iter().filter(|message| message.method() == "notifications/progress");
            let mut heard: Vec<_> = heard
                .map(|heard| (heard.at(&["params", "progressToken"]), heard.at(&["params", "progress"])))
                .collect();
            // What came before the answer may have been late, and then belongs to the retry as well.
            heard.retain(|(token, n)| token != retry || ["3", "4"].contains(&n.as_str()));
            let expected: &[&str] = if first.is_empty() || retry.is_empty() { &[] } else { &["3", "4"] };
            let expected: Vec<_> = expected.iter().map(|n| (retry.to_owned(), n.to_string())).collect();
            assert_eq!(heard, expected, "{first} {retry}");
        }
    }
}

#[test]
fn a_question_to_a_modern_client_pauses_the_idle_timeout() {
    let asking = server("", "--with ask", "call_timeout = 0.5");
    let config = format!("active_toolsets = [\"*\"]\n{asking}{}", server("clock", "--with slow", ""));
    let gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
    let mut client = Client::pipe(Era::Modern, gateway, CAN_ALL);
    let questions = asked(&mut client, ASK);
    client.call("clock_slow", json!({"ms": 1500})).text();
    assert_eq!(retry(&mut client, &questions, ACCEPT).text(), format!(r#"{{"result":{ACCEPT}}}"#));
}

#[test]
fn what_the_client_cannot_be_asked_is_refused_at_once() {
    let mut client = modern("--with ask");
    for (capabilities, method) in [
        ("{}", "elicitation/create"),
        (r#"{"elicitation":{}}"#, "sampling/createMessage"),
        (r#"{"sampling":{}}"#, "roots/list"),
    ] {
        client.can(capabilities);
        let answer = client.call("ask", json!({"method": method, "params": "{}"})).json();
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
}

#[test]
fn a_state_is_good_for_its_own_request_and_once() {
    for era in ["legacy", "modern"] {
        let mut client = modern(&format!("--with ask,echo --era {era}"));
        let questions = asked(&mut client, ASK);
        let state = questions.result()["requestState"].clone();
        let mut refused = |params: Value| {
            let answer = client.request("tools/call", params);
            assert_eq!(answer.error_code(), -32602, "{era}: {answer:?}");
        };
        let arguments: Value = serde_json::from_str(ASK).expect("JSON");
        let with = |name: &str, arguments: &Value, state: Value| json!({"name": name, "arguments": arguments, "inputResponses": {}, "requestState": state});
        refused(with("ask", &arguments, json!("made-up")));
        refused(with("ask", &arguments, json!("")));
        refused(with("ask", &arguments, json!(7)));
        refused(with("ask", &json!({"method": "roots/list"}), state.clone()));
        refused(with("echo", &arguments, state.clone()));
        assert_eq!(retry(&mut client, &questions, ACCEPT).text(), format!(r#"{{"result":{ACCEPT}}}"#));
        assert_eq!(retry(&mut client, &questions, ACCEPT).error_code(), -32602, "{era}: used");
    }
}

#[test]
fn a_state_of_another_principal_is_refused() {
    let tokens = "[[auth.tokens]]\nname = \"a\"\ntoken = \"token-of-a\"\n[[auth.tokens]]\nname = \"b\"\ntoken = \"token-of-b\"\n";
    for era in ["legacy", "modern"] {
        let host = Host::toolman(format!("{}\n{tokens}", config(&format!("--with ask --era {era}"))));
        let [mut a, mut b] = ["token-of-a", "token-of-b"].map(|token| host.client_with(Era::Modern, token));
        let questions = asked(&mut a, ASK);
        assert_eq!(retry(&mut b, &questions, ACCEPT).error_code(), -32602);
        assert_eq!(retry(&mut a, &questions, ACCEPT).text(), format!(r#"{{"result":{ACCEPT}}}"#));
    }
}

#[test]
fn a_question_that_expires_cancels_the_call_and_its_state_is_refused() {
    let config = format!("question_timeout = 1\n{}", config("--with ask,cancelled"));
    let gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
    let mut client = Client::pipe(Era::Modern, gateway, CAN_ALL);
    let questions = asked(&mut client, ASK);
    client.call("cancelled", json!({"count": 1})).text();
    assert_eq!(retry(&mut client, &questions, ACCEPT).error_code(), -32602);
}

#[test]
fn an_open_question_blocks_no_other_call_and_two_are_kept_apart() {
    let mut client = modern("--with ask,echo");
    let first = asked(&mut client, ASK);
    client.call("echo", "{}").text();
    let second = asked(&mut client, ASK);
    let other = r#"{"action":"decline"}"#;
    assert_eq!(retry(&mut client, &second, other).text(), format!(r#"{{"result":{other}}}"#));
    assert_eq!(retry(&mut client, &first, ACCEPT).text(), format!(r#"{{"result":{ACCEPT}}}"#));
}

#[test]
fn from_the_first_question_on_calls_that_can_be_asked_go_one_at_a_time() {
    let mut client = modern("--with ask,slow,started,release,echo,requests");
    assert_eq!(client.call_and_answer("ask", ASK, ACCEPT).0.len(), 1);
    let slow = client.post_call("slow", json!({"key": "k"}));
    aside(&mut client, "started", json!({"key": "k"})).text();
    let echo = client.post_call("echo", r#"{"text":"held"}"#);
    let requests = aside(&mut client, "requests", json!({"method": "tools/call"})).text();
    assert!(!requests.contains("held"), "it waits for its turn: {requests}");
    aside(&mut client, "release", json!({"key": "k"})).text();
    assert_eq!(client.answer(&slow).text(), "slow");
    assert!(client.answer(&echo).text().contains("held"));
}

#[test]
fn a_call_that_waits_for_its_turn_can_be_cancelled_and_one_that_has_it_gives_it_up() {
    let mut client = modern("--with ask,slow,started,echo,requests");
    client.call_and_answer("ask", ASK, ACCEPT);
    let slow = client.post_call("slow", json!({"key": "k"}));
    aside(&mut client, "started", json!({"key": "k"})).text();
    let waiting = client.post_call("echo", r#"{"text":"never sent"}"#);
    let next = client.post_call("echo", r#"{"text":"next"}"#);
    client.cancel(&waiting);
    client.cancel(&slow);
    assert!(client.answer(&next).text().contains("next"));
    assert!(!client.call("requests", "{}").text().contains("never sent"));
}

#[test]
fn answers_to_a_question_among_several_calls_are_handed_over_at_once() {
    let mut client = modern("--with ask,slow,started,release");
    let slow = client.post_call("slow", json!({"key": "k"}));
    client.call("started", json!({"key": "k"})).text();
    // Nothing on the wire says whose question it is: the oldest call's, then.
    let ask = client.post_call("ask", ASK);
    let questions = client.answer(&slow);
    assert!(is_question(&questions), "{questions:?}");
    let slow = client.post_retry("slow", r#"{"key":"k"}"#, &questions, ACCEPT);
    assert_eq!(client.answer(&ask).text(), format!(r#"{{"result":{ACCEPT}}}"#));
    aside(&mut client, "release", json!({"key": "k"})).text();
    assert_eq!(client.answer(&slow).text(), "slow");
}

#[test]
fn a_page_to_visit_becomes_a_question_or_an_error_that_says_what_is_missing() {
    let mut client = modern("--with error,requests");
    let page =
        json!({"mode": "url", "elicitationId": "e1", "url": "https://example.com/", "message": "Sign in"});
    let error = json!({"code": -32042, "message": "first sign in", "data": {"elicitations": [page]}});
    let arguments = json!({"json": error.to_string()}).to_string();
    let questions = client.call("error", &arguments);
    assert!(is_question(&questions), "{questions:?}");
    let question = questions.result()["inputRequests"]["visit-1"].clone();
    let params = json!({"mode": "url", "url": "https://example.com/", "message": "Sign in"});
    assert_eq!(question, json!({"method": "elicitation/create", "params": params}));
    let id = client.post_retry("error", &arguments, &questions, r#"{"action":"accept"}"#);
    let again = client.answer(&id);
    assert!(is_question(&again), "the upstream was called again: {again:?}");
    let id = client.post_retry("error", &arguments, &again, r#"{"action":"decline"}"#);
    let declined = client.answer(&id);
    assert_eq!(declined.value()["error"]["message"], "first sign in", "{declined:?}");
    let calls = client.call("requests", json!({"method": "tools/call"})).text();
    assert_eq!(calls.matches(r#""name":"error""#).count(), 2, "{calls}");
    for capabilities in ["{}", r#"{"elicitation":{}}"#, r#"{"elicitation":{"form":{}}}"#] {
        client.can(capabilities);
        let answer = client.call("error", &arguments);
        assert_eq!(answer.error_code(), -32021, "{answer:?}");
        assert!(answer.value()["error"]["data"]["requiredCapabilities"]["elicitation"]["url"].is_object());
    }
}

#[test]
fn clients_are_asked_only_in_the_ways_that_they_declared() {
    let [elicit, sample] = ["elicitation/create", "sampling/createMessage"];
    let page = r#"{"mode":"url","elicitationId":"e1","url":"https://example.com/","message":"?"}"#;
    let form = r#"{"message":"?","requestedSchema":{"type":"object"}}"#;
    for (capabilities, method, params, missing) in [
        (r#"{"elicitation":{}}"#, elicit, form, ""),
        (r#"{"elicitation":{"form":{}}}"#, elicit, form, ""),
        (r#"{"elicitation":{"form":{},"url":{}}}"#, elicit, page, ""),
        (r#"{"elicitation":{}}"#, elicit, page, "url"),
        (r#"{"elicitation":{"form":{}}}"#, elicit, page, "url"),
        (r#"{"elicitation":{"url":{}}}"#, elicit, form, "form"),
        (r#"{"sampling":{"tools":{}}}"#, sample, r#"{"messages":[],"tools":[]}"#, ""),
        (r#"{"sampling":{}}"#, sample, r#"{"messages":[]}"#, ""),
        (r#"{"sampling":{}}"#, sample, r#"{"messages":[],"tools":[]}"#, "tools"),
        (r#"{"sampling":{}}"#, sample, r#"{"messages":[],"toolChoice":{}}"#, "tools"),
    ] {
        for (era, upstream) in [
            (Era::Legacy, "legacy"),
            (Era::Legacy, "modern"),
            (Era::Modern, "legacy"),
            (Era::Modern, "modern"),
        ] {
            let config = config(&format!("--with ask --era {upstream}"));
            let gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
            let mut client = Client::pipe(era, gateway, capabilities);
            let arguments = json!({"method": method, "params": params}).to_string();
            let (questions, answer) = client.call_and_answer("ask", &arguments, ACCEPT);
            let case = format!("{era:?} {upstream} {capabilities} {params}: {answer:?}");
            assert_eq!(questions.len(), usize::from(missing.is_empty()), "{case}");
            match (era, upstream) {
                _ if missing.is_empty() => {
                    assert_eq!(answer.text(), format!(r#"{{"result":{ACCEPT}}}"#), "{case}");
                }
                (_, "legacy") => assert_eq!(answer.json()["error"]["code"], -32602, "{case}"),
                (Era::Modern, _) => {
                    assert_eq!(answer.error_code(), -32021, "{case}");
                    let required = &answer.value()["error"]["data"]["requiredCapabilities"];
                    let capability = method.split('/').next().expect("a word");
                    assert_eq!(*required, json!({capability: {missing: {}}}), "{case}");
                }
                (Era::Legacy, _) if method == elicit => {
                    assert_eq!(answer.json()["result"]["action"], "decline", "{case}");
                }
                (Era::Legacy, _) => assert!(answer.raw.contains("sampling.tools"), "{case}"),
            }
        }
    }
}

#[test]
fn the_id_of_a_page_to_visit_is_known_in_the_legacy_era_only() {
    let params = json!({"mode": "url", "url": "https://example.com/", "message": "Sign in"});
    let with_id = |id: &str| {
        let mut params = params.clone();
        params["elicitationId"] = json!(id);
        params
    };
    let ask =
        |params: &Value| json!({"method": "elicitation/create", "params": params.to_string()}).to_string();
    let mut modern = modern("--with ask,notify,echo");
    let (questions, _) = modern.call_and_answer("ask", &ask(&with_id("e1")), ACCEPT);
    assert_eq!(questions, [json!({"method": "elicitation/create", "params": params})]);
    let complete = "notifications/elicitation/complete";
    let done = json!({"method": complete, "params": r#"{"elicitationId":"e1"}"#});
    modern.call("notify", &done).text();
    modern.call("echo", "{}").text();
    assert!(!modern.left().iter().any(|message| message.method() == complete), "{:?}", modern.left());

    let mut legacy = client(Era::Legacy, "--with ask,notify");
    let (questions, _) = legacy.call_and_answer("ask", &ask(&with_id("e1")), ACCEPT);
    assert_eq!(questions[0]["params"], with_id("e1"));
    legacy.call("notify", &done).text();
    assert_eq!(legacy.notification(complete).at(&["params"]), r#"{"elicitationId":"e1"}"#);

    let mut legacy = client(Era::Legacy, "--with ask --era modern");
    let ids = [0, 1].map(|_| {
        let (questions, _) = legacy.call_and_answer("ask", &ask(&params), ACCEPT);
        let id = questions[0]["params"]["elicitationId"].as_str().expect("an id").to_owned();
        assert_eq!(questions[0]["params"], with_id(&id));
        id
    });
    assert_ne!(ids[0], ids[1]);
    let (questions, _) = legacy.call_and_answer("ask", ASK, ACCEPT);
    assert_eq!(questions[0]["params"], json!({"message": "Who?"}), "a form has none");
}

#[test]
fn a_legacy_client_is_asked_for_real_and_no_more_than_ten_times() {
    let mut client = client(Era::Legacy, "--with ask --era modern");
    let rounds =
        |n: u32| json!({"method": "elicitation/create", "params": "{\"message\":\"?\"}", "n": n}).to_string();
    let (questions, answer) = client.call_and_answer("ask", &rounds(3), ACCEPT);
    assert_eq!(questions.len(), 3);
    assert_eq!(answer.text(), format!(r#"{{"result":{ACCEPT}}}"#));
    let (questions, answer) = client.call_and_answer("ask", &rounds(10), ACCEPT);
    assert_eq!((questions.len(), answer.is_error()), (10, false), "{answer:?}");
    let (questions, answer) = client.call_and_answer("ask", &rounds(11), ACCEPT);
    assert_eq!(questions.len(), 10);
    assert!(!answer.at(&["error"]).is_empty() || answer.is_error(), "{answer:?}");
}

#[test]
fn a_call_that_is_cancelled_while_its_legacy_client_is_asked_does_not_go_out_again() {
    let mut client = client(Era::Legacy, "--with ask,requests --era modern");
    let call = client.post_call("ask", ASK);
    let question = client.take("a question", |message| message.method() == "elicitation/create");
    client.cancel(&call);
    let withdrawn = client.notification("notifications/cancelled");
    assert_eq!(withdrawn.at(&["params", "requestId"]), question.id());
    client.reply(&question, &format!(r#""result":{ACCEPT}"#));
    client.gateway().fence();
    let calls = client.call("requests", json!({"method": "tools/call"})).text();
    assert_eq!(calls.matches(r#""name":"ask""#).count(), 1, "{calls}");
    assert!(!client.left().iter().any(|message| message.id() == call), "{:?}", client.left());
}

#[test]
fn a_modern_client_hears_of_log_messages_that_its_request_asked_for() {
    for era in ["legacy", "modern"] {
        let mut client = modern(&format!("--with notify,report,echo --era {era}"));
        let call = |client: &mut Client, level: &str| {
            let params = json!({"method": LOG, "params": r#"{"level":"info","data":"x"}"#});
            let meta = match level {
                "" => String::new(),
                level => format!(r#""io.modelcontextprotocol/logLevel":"{level}""#),
            };
            let id = client.post_with("tools/call", json!({"name": "notify", "arguments": params}), &meta);
            client.answer(&id).text();
            let heard = client.left().iter().filter(|message| message.method() == LOG).count();
            (0..heard).for_each(|_| drop(client.notification(LOG)));
            heard
        };
        assert_eq!(call(&mut client, ""), 0, "{era}");
        assert_eq!(call(&mut client, "info"), 1, "{era}");
        assert_eq!(call(&mut client, "debug"), 1, "{era}");
        assert_eq!(call(&mut client, "error"), 0, "{era}");
        if era == "legacy" {
            assert_eq!(client.call("report", "{}").json()["level"]["level"], "debug", "the lowest asked for");
        }
    }
}

#[test]
fn what_belongs_to_no_request_is_not_for_a_modern_client() {
    let log = format!(r#"{{"jsonrpc":"2.0","method":"{LOG}","params":{{"level":"error","data":"x"}}}}"#);
    let question = r#"{"jsonrpc":"2.0","id":"q","method":"no/such"}"#;
    let early = ["--stdout", log.as_str(), "--stdout", question];
    for era in [Era::Legacy, Era::Modern] {
        let gateway = Gateway::spawn(dev("proxy", json!({"a": fake_with("--with received", &early)})));
        let mut client = Client::pipe(era, gateway, CAN_ALL);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        match era {
            Era::Legacy => {
                client.notification(LOG);
                client.take("the question", |message| message.method() == "no/such");
            }
            Era::Modern => assert_eq!(format!("{:?}", client.left()), "[]"),
        }
    }
}

#[test]
fn the_level_of_a_legacy_client_stands_in_every_request_to_a_modern_upstream() {
    let mut client = client(Era::Legacy, "--with echo --era modern");
    let level = |client: &mut Client| {
        client.call("echo", "{}").json()["_meta"]["io.modelcontextprotocol/logLevel"].clone()
    };
    assert_eq!(level(&mut client), Value::Null);
    client.request("logging/setLevel", r#"{"level":"warning"}"#).result();
    assert_eq!(level(&mut client), "warning");
}

#[test]
fn results_that_are_no_objects_and_their_schemas_are_for_modern_clients() {
    let tool = |name: &str, kind: &str| {
        let schema = json!({"type": "object"});
        json!({"name": name, "inputSchema": schema, "outputSchema": {"type": kind}})
    };
    let flags =
        format!("--era modern --tool '{}' --tool '{}'", tool("result", "array"), tool("echo", "object"));
    let result = json!({"json": r#"{"content":[],"structuredContent":[1.10]}"#});
    for (era, kept) in [(Era::Legacy, false), (Era::Modern, true)] {
        let mut client = client(era, &flags);
        let tools = client.request("tools/list", "{}").result()["tools"].clone();
        let schema = |name: &str| {
            let tool = tools.as_array().expect("a list").iter().find(|tool| tool["name"] == name);
            tool.expect("it is listed")["outputSchema"].clone()
        };
        assert_eq!(schema("result"), if kept { json!({"type": "array"}) } else { Value::Null }, "{era:?}");
        assert_eq!(schema("echo"), json!({"type": "object"}));
        let answer = client.call("result", &result);
        assert_eq!(answer.at(&["result", "structuredContent"]), if kept { "[1.10]" } else { "" });
    }
}

#[test]
fn a_legacy_client_without_a_capability_is_not_asked_on_behalf_of_a_modern_server() {
    let gateway = Gateway::spawn_toolman(Lab::new(), config("--with ask --era modern"), |_| ());
    let answer = Client::pipe(Era::Legacy, gateway, "{}").call("ask", ASK);
    assert_eq!(answer.error_code(), -32021, "the server is told what the client can: {answer:?}");
}

#[test]
fn sampling_and_roots_park_the_call_like_elicitation() {
    let mut client = modern("--with ask");
    for (method, params, response) in [
        (
            "sampling/createMessage",
            r#"{"messages":[],"maxTokens":5,"new":1.10}"#,
            r#"{"role":"assistant","model":"m","content":{"type":"text","text":"hi"}}"#,
        ),
        ("roots/list", "{}", r#"{"roots":[{"uri":"file:///a"}]}"#),
    ] {
        let arguments = json!({"method": method, "params": params}).to_string();
        let (questions, answer) = client.call_and_answer("ask", &arguments, response);
        let params: Value = serde_json::from_str(params).expect("JSON");
        assert_eq!(questions, [json!({"method": method, "params": params})]);
        assert_eq!(answer.text(), format!(r#"{{"result":{response}}}"#));
    }
}

/// How long a result may be kept, and by whom.
#[track_caller]
fn hint(client: &mut Client, method: &str, params: Value) -> (u64, String) {
    let result = client.request(method, params).result();
    let scope = result["cacheScope"].as_str().unwrap_or_default().to_owned();
    (result["ttlMs"].as_u64().expect("a number"), scope)
}

#[test]
fn what_is_made_of_many_parts_is_kept_no_longer_than_any_of_them() {
    let tools = |ttl: u64, scope: &str| {
        let result = json!({"tools": [], "ttlMs": ttl, "cacheScope": scope});
        format!("--era modern --resources 1 --result tools/list={result}")
    };
    let public = |ttl: u64| (ttl, "public".to_owned());
    let nothing = (0, "private".to_owned());
    for (flags, expected) in [
        (vec![tools(600_000, "public"), tools(5000, "public")], public(5000)),
        (vec![tools(600_000, "public")], public(60_000)),
        (vec![tools(7000, "private"), tools(8000, "public")], (7000, "private".to_owned())),
        (vec![tools(7000, "public"), "--with echo".to_owned()], nothing.clone()),
    ] {
        let servers = flags.iter().enumerate().map(|(n, flags)| (format!("s{n}"), fake(flags)));
        let host = Host::workbench(dev("dynamic", servers.collect()));
        let mut client = host.client_at(Era::Modern, "/mcp/dev");
        assert_eq!(hint(&mut client, "tools/list", json!({})), expected, "{flags:?}");
        assert_eq!(hint(&mut client, "prompts/list", json!({})), public(60_000), "nobody has any");
        let uri = "fake://resource/1";
        assert_eq!(
            hint(&mut client, "resources/read", json!({"uri": uri})),
            public(60_000),
            "as it was sent"
        );
    }
    let mut client = modern("--resources 1");
    let uri = "fake://resource/1";
    assert_eq!(hint(&mut client, "resources/read", json!({"uri": uri})), nothing, "of the legacy era");
    assert_eq!(hint(&mut client, "resources/list", json!({})), nothing);
}

#[test]
fn what_tokens_see_differently_is_private() {
    let flags = "--with echo --resources 1 --prompts 1 --era modern";
    for (scope, expected) in [("namespaces = [\"p\"]", "private"), ("", "public")] {
        let token = format!("[[auth.tokens]]\nname = \"a\"\ntoken = \"token-of-a\"\n{scope}\n");
        let config = format!("active_toolsets = [\"*\"]\n{}{token}", server("p", flags, ""));
        let host = Host::toolman(config);
        let mut client = host.client_with(Era::Modern, "token-of-a");
        let read = json!({"uri": "p_fake://resource/1"});
        for (method, params) in [("prompts/list", json!({})), ("resources/read", read)] {
            assert_eq!(hint(&mut client, method, params), (60_000, expected.to_owned()), "{method}");
        }
    }
}

/// Instructions, meta-tools, names and what apps need depend on the client; a plain toolbox and prompts do not.
#[test]
fn what_clients_see_differently_is_private() {
    let flags = "--with echo --resources 1 --prompts 1 --era modern";
    let private = (60_000, "private".to_owned());
    let toolman = Host::toolman(format!("active_toolsets = [\"*\"]\n{}", server("p", flags, "")));
    let workbench = Host::workbench(dev("proxy", json!({"a": fake(flags)})));
    for host in [&toolman, &workbench] {
        let mut client = host.client(Era::Modern);
        for method in ["server/discover", "tools/list", "resources/list", "resources/templates/list"] {
            assert_eq!(hint(&mut client, method, json!({})), private, "{method}");
        }
        assert_eq!(hint(&mut client, "prompts/list", json!({})), (60_000, "public".to_owned()));
    }
    let mut plain = workbench.client_at(Era::Modern, "/mcp/dev");
    assert_eq!(hint(&mut plain, "server/discover", json!({})), private);
    for method in ["tools/list", "resources/list", "resources/templates/list", "prompts/list"] {
        assert_eq!(hint(&mut plain, method, json!({})), (60_000, "public".to_owned()), "{method}");
    }
}

/// What a fake that offers `requests` in the open toolbox `dev` was asked in its handshake.
fn handshake(gateway: &mut Gateway, server: &str) -> Vec<String> {
    let requests = gateway.use_tool(server, "requests", "{}").json();
    let methods = requests.as_array().expect("a list").iter().map(|request| request["method"].clone());
    let methods = methods.map(|method| method.as_str().unwrap_or_default().to_owned());
    methods.filter(|method| matches!(method.as_str(), "initialize" | "server/discover")).collect()
}

/// A script that starts a fake that offers `requests`, so that the command stays the same whatever it does.
fn write_script(lab: &Lab, flags: &str) {
    lab.write("run.sh", &lab.fill(&format!("exec @fake --with requests {flags} --marker @marker\n")));
}

#[test]
fn a_servers_era_is_remembered_and_asked_for_again_when_it_has_changed() {
    let config = dev("proxy", json!({"a": {"command": "sh", "args": ["@dir/run.sh"]}}));
    let mut lab = Lab::new();
    for (era, expected) in [
        ("legacy", &["server/discover", "initialize"][..]),
        ("legacy", &["initialize"]),
        ("modern", &["initialize", "server/discover"]),
        ("modern", &["server/discover"]),
        ("legacy", &["server/discover", "initialize"]),
    ] {
        write_script(&lab, &format!("--era {era}"));
        let mut gateway = Gateway::spawn_with(lab, &config, |_| ());
        gateway.initialize("2025-11-25");
        gateway.open("dev");
        assert_eq!(handshake(&mut gateway, "a"), expected, "{era}");
        lab = gateway.finish();
    }
}

#[test]
fn a_servers_era_is_remembered_as_soon_as_it_is_known() {
    let entry = json!({"command": "sh", "args": ["@dir/run.sh"], "connectTimeout": 1});
    let config = dev("proxy", json!({"a": entry}));
    // It ends, or falls silent, when it has said what it speaks.
    for flags in ["--exit-after-handshake", "--hang tools/list"] {
        for same_process in [true, false] {
            let lab = Lab::new();
            write_script(&lab, flags);
            let mut gateway = Gateway::spawn_with(lab, &config, |_| ());
            gateway.initialize("2025-11-25");
            gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).failure();
            write_script(&gateway.lab, "");
            if !same_process {
                gateway = Gateway::spawn_with(gateway.finish(), &config, |_| ());
                gateway.initialize("2025-11-25");
            }
            gateway.open("dev");
            assert_eq!(handshake(&mut gateway, "a"), ["initialize"], "{flags} {same_process}");
        }
    }
}

#[test]
fn of_servers_with_the_same_command_that_start_together_one_is_asked_for_its_era() {
    let names = ["a", "b", "c"];
    for flags in ["", "--delay 300", "--hang server/discover"] {
        let servers = names.map(|name| (name, fake(&format!("--with requests {flags}"))));
        let mut gateway = Gateway::start(dev("proxy", servers.into_iter().collect()));
        gateway.open("dev");
        let asked = names.map(|name| handshake(&mut gateway, name));
        let count = |method: &str| asked.iter().flatten().filter(|asked| *asked == method).count();
        assert_eq!((count("server/discover"), count("initialize")), (1, 3), "{flags}: {asked:?}");
    }
    // One that ends over the question does so once.
    let script = r#"echo start >> @dir/starts
read -r line
case "$line" in *server/discover*) exit 1;; esac
{ echo "$line"; cat; } | @fake --with echo --marker @marker
"#;
    let lab = Lab::new();
    lab.write("run.sh", &lab.fill(script));
    let servers = names.map(|name| (name, json!({"command": "sh", "args": ["@dir/run.sh"]})));
    let mut gateway = Gateway::spawn_with(lab, dev("proxy", servers.into_iter().collect()), |_| ());
    gateway.initialize("2025-11-25");
    assert_eq!(gateway.open("dev")["servers_connected"], 3);
    assert_eq!(gateway.lab.starts("starts"), 4);
}

#[test]
fn a_server_that_keeps_its_era_to_itself_holds_up_no_other_of_its_command() {
    // The first to come takes the file, and says nothing.
    let script = "if mkdir @dir/first; then exec @fake --hang server/discover --hang initialize --marker @marker; fi\nexec @fake --with echo --marker @marker\n";
    let entry = json!({"command": "sh", "args": ["@dir/run.sh"], "connectTimeout": 4});
    let lab = Lab::new();
    lab.write("run.sh", &lab.fill(script));
    let mut gateway = Gateway::spawn_with(lab, dev("proxy", json!({"a": entry, "b": entry})), |_| ());
    gateway.initialize("2025-11-25");
    assert_eq!(gateway.open("dev")["servers_connected"], 1);
}

#[test]
fn a_resource_that_is_not_there_has_the_code_of_the_clients_era() {
    let error = r#"resources/read={"code":-32002,"message":"not there","data":{"uri":"x"}}"#;
    let flags = format!("--resources 1 --error '{error}'");
    for (era, code) in [(Era::Legacy, -32002), (Era::Modern, -32602)] {
        let answer = client(era, &flags).request("resources/read", json!({"uri": "fake://resource/1"}));
        assert_eq!(answer.error_code(), code);
        assert_eq!(answer.value()["error"]["data"]["uri"], "x");
        let gateway = Gateway::spawn(dev("proxy", json!({})));
        let answer = Client::pipe(era, gateway, CAN_ALL).request("resources/read", r#"{"uri":"no://where"}"#);
        assert_eq!(answer.error_code(), code, "our own");
        assert_eq!(answer.value()["error"]["data"], json!({"uri": "no://where"}));
    }
}

#[test]
fn a_subscription_ends_with_its_completion_response() {
    let mut pipe = modern("--with echo --resources 1");
    let id = pipe.subscribe("fake://resource/1");
    pipe.gateway().close();
    let end = pipe.answer(&id);
    let tag = end.at(&["result", "_meta", "io.modelcontextprotocol/subscriptionId"]);
    assert_eq!((tag, end.at(&["result", "resultType"])), (id, r#""complete""#.to_owned()));

    let host = Host::toolman(config("--with echo --resources 1"));
    let mut web = host.client(Era::Modern);
    let id = web.subscribe("fake://resource/1");
    host.signal("TERM");
    let end = web.answer(&id);
    assert_eq!(end.at(&["result", "_meta", "io.modelcontextprotocol/subscriptionId"]), id);
}

#[test]
fn a_state_key_lets_replicas_go_on_with_what_another_began() {
    let remote = Remote::start("--with ask --era modern");
    let config = |key: &str| {
        let url = remote.url();
        format!("active_toolsets = [\"*\"]\n{key}\n[[servers]]\nnamespace = \"\"\nurl = \"{url}\"\n")
    };
    let keyed = config(r#"state_key = "0123456789abcdef0123456789abcdef""#);
    let [one, two, stranger] = [&keyed, &keyed, &config("")].map(Host::toolman);
    let questions = asked(&mut one.client(Era::Modern), ASK);
    assert_eq!(retry(&mut stranger.client(Era::Modern), &questions, ACCEPT).error_code(), -32602);
    let answer = retry(&mut two.client(Era::Modern), &questions, ACCEPT);
    assert_eq!(answer.text(), format!(r#"{{"result":{ACCEPT}}}"#));
}

#[test]
fn a_replica_that_has_to_start_its_servers_first_goes_on_all_the_same() {
    let key = "0123456789abcdef0123456789abcdef";
    let flags = "--with ask --era modern";
    let toolman = |flags: &str| Host::toolman(format!("state_key = \"{key}\"\n{}", config(flags)));
    let [one, two] = [flags, &format!("{flags} --wait-for @dir/go")].map(toolman);
    let questions = asked(&mut one.client(Era::Modern), ASK);
    let mut client = two.client(Era::Modern);
    let id = client.post_retry("ask", ASK, &questions, ACCEPT);
    client.request("server/discover", "{}").result();
    two.lab.write("go", "");
    assert_eq!(client.answer(&id).text(), format!(r#"{{"result":{ACCEPT}}}"#));

    let mut file = dev("proxy", json!({"a": fake(flags)}));
    file["stateKey"] = json!(key);
    let [one, two] = [&file, &file].map(Host::workbench);
    let questions = asked(&mut one.client_at(Era::Modern, "/mcp/dev"), ASK);
    let answer = retry(&mut two.client_at(Era::Modern, "/mcp/dev"), &questions, ACCEPT);
    assert_eq!(answer.text(), format!(r#"{{"result":{ACCEPT}}}"#));
}

/// `params` of a `use_tool` of the toolbox `dev`.
fn used(server: &str, tool: &str, arguments: Value) -> Value {
    json!({"name": "use_tool", "arguments": {"tool": {"toolbox": "dev", "server": server, "tool": tool}, "arguments": arguments}})
}

#[track_caller]
fn use_tool(client: &mut Client, tool: &str, arguments: Value) -> Message {
    client.request("tools/call", used("a", tool, arguments))
}

#[test]
fn isolation_gives_each_session_its_own_upstream() {
    for (isolation, alike) in [("session", false), ("shared", true)] {
        let mut server = fake("--with report");
        server["isolation"] = json!(isolation);
        let host = Host::workbench(dev("proxy", json!({"a": server})));
        let pids: Vec<_> = [Era::Legacy, Era::Legacy, Era::Modern, Era::Modern]
            .map(|era| {
                let mut client = host.client(era);
                client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
                use_tool(&mut client, "report", json!({})).json()["pid"].clone()
            })
            .into_iter()
            .collect();
        assert_eq!(pids[0] == pids[1], alike, "{isolation}: {pids:?}");
        assert_eq!(pids[0] == pids[2], alike, "{isolation}: {pids:?}");
        assert_eq!(pids[2], pids[3], "the same credentials: {pids:?}");
    }
}

#[test]
fn clients_that_share_an_upstream_get_only_what_is_theirs() {
    for era in ["legacy", "modern"] {
        let host = Host::workbench(dev(
            "proxy",
            json!({"a": fake(&format!("--with progress,ask,echo --era {era}"))}),
        ));
        let mut clients = [Era::Legacy, Era::Legacy, Era::Modern].map(|era| host.client(era));
        for client in &mut clients {
            client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        }
        // The same ids and the same tokens, all at once.
        let ids: Vec<_> = clients
            .iter_mut()
            .enumerate()
            .map(|(n, client)| {
                let arguments = json!({"n": 20, "ms": 1, "extra": format!(r#","whose":{n}"#)});
                client.post_with("tools/call", used("a", "progress", arguments), r#""progressToken":1"#)
            })
            .collect();
        for (n, (client, id)) in clients.iter_mut().zip(ids).enumerate() {
            client.answer(&id).text();
            for _ in 0..20 {
                let progress = client.notification("notifications/progress");
                assert_eq!(progress.value()["params"]["whose"], n);
            }
        }
        for (n, client) in clients.iter_mut().enumerate() {
            let arguments = json!({"method": "elicitation/create", "params": json!({"message": n.to_string()}).to_string()});
            let params = used("a", "ask", arguments)["arguments"].to_string();
            let response = json!({"action": "accept", "content": {"n": n}}).to_string();
            let (questions, answer) = client.call_and_answer("use_tool", &params, &response);
            assert_eq!(questions.len(), 1);
            assert_eq!(questions[0]["params"]["message"], n.to_string());
            assert_eq!(answer.json()["result"]["content"]["n"], n);
        }
        for client in &mut clients {
            use_tool(client, "echo", json!({})).text();
            assert_eq!(format!("{:?}", client.left()), "[]", "{era}: nothing of others");
        }
    }
}

#[test]
fn a_question_while_several_clients_have_calls_in_flight_is_refused() {
    let host = Host::workbench(dev("proxy", json!({"a": fake("--with ask,slow,started,release")})));
    let [mut a, mut b] = [Era::Legacy, Era::Modern].map(|era| host.client(era));
    for client in [&mut a, &mut b] {
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    }
    let slow = a.post("tools/call", used("a", "slow", json!({"key": "k"})));
    use_tool(&mut b, "started", json!({"key": "k"})).text();
    let arguments: Value = serde_json::from_str(ASK).expect("JSON");
    let answer = use_tool(&mut b, "ask", arguments.clone()).json();
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    // From now on they go one at a time, so that a question has an owner.
    let ask = b.post("tools/call", used("a", "ask", arguments));
    b.can("{}");
    use_tool(&mut b, "release", json!({"key": "k"})).text();
    assert_eq!(a.answer(&slow).text(), "slow");
    let questions = b.answer(&ask);
    assert!(is_question(&questions), "{questions:?}");
}

#[test]
fn a_modern_client_of_the_workbench_has_lists_that_stay_and_finds_the_rest_in_the_answer_to_opening() {
    let flags = "--with echo --resources 1 --templates 1 --prompts 1";
    for mode in ["dynamic", "proxy"] {
        let gateway = Gateway::spawn(dev(mode, json!({"a": fake(flags)})));
        let mut client = Client::pipe(Era::Modern, gateway, CAN_ALL);
        let lists = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"];
        let seen = |client: &mut Client| lists.map(|list| client.request(list, "{}").at(&["result"]));
        let before = seen(&mut client);
        assert_eq!(client.tools(), ["open_toolbox", "use_tool"]);
        let opened = client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
        assert_eq!(opened["tools"][0]["name"], "echo", "{opened}");
        assert_eq!(seen(&mut client), before, "byte for byte");
        let uri = opened["resources"][0]["uri"].as_str().expect("a URI");
        let read = client.request("resources/read", json!({"uri": uri}));
        assert_eq!(read.result()["contents"][0]["uri"], "fake://resource/1");
        assert!(opened["resourceTemplates"][0]["uriTemplate"].is_string(), "{opened}");
        let prompt = &opened["prompts"][0]["name"];
        client.request("prompts/get", json!({"name": prompt})).result();
        use_tool(&mut client, "echo", json!({})).text();
        client.call("dev__a__echo", "{}").text();
    }
}

#[test]
fn a_modern_client_of_toolman_activates_calls_and_reads_while_its_lists_stay() {
    let config = format!(
        "active_toolsets = [\"p_echo\"]\n{}",
        server("p", "--with echo,report --resources 1 --templates 1", "")
    );
    let mut client = Client::pipe(Era::Modern, Gateway::spawn_toolman(Lab::new(), config, |_| ()), CAN_ALL);
    let lists = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"];
    let seen = |client: &mut Client| lists.map(|list| client.request(list, "{}").at(&["result"]));
    let before = seen(&mut client);
    assert_eq!(client.tools(), ["toolman_activate", "p_echo", "toolman_call"]);
    let call = json!({"name": "p_report", "arguments": {}});
    assert!(client.call("toolman_call", &call).is_error(), "inactive");
    assert!(client.call("p_report", "{}").is_error(), "inactive");
    let uri = "p_fake://resource/1";
    assert!(client.request("resources/read", json!({"uri": uri})).error_code() < 0, "inactive");
    let lists = json!({"tools_on": ["p_report"], "tools_off": [], "resources_on": ["p_fake://*"], "resources_off": []});
    let result = client.call("toolman_activate", lists).json()["result"].clone();
    assert!(result["message"].is_string(), "{result}");
    assert_eq!(result["tools"][0]["name"], "p_report");
    assert!(result["tools"][0]["inputSchema"].is_object());
    assert_eq!(result["resources"][0]["uri"], uri);
    assert!(result["resourceTemplates"][0]["uriTemplate"].is_string());
    assert_eq!(seen(&mut client), before, "byte for byte");
    assert!(client.call("toolman_call", &call).json()["pid"].is_u64());
    assert!(client.call("p_report", "{}").json()["pid"].is_u64());
    client.request("resources/read", json!({"uri": uri})).result();
}

#[test]
fn a_request_that_is_cancelled_while_its_plain_server_opens_reaches_nobody() {
    let flags = "--with echo,requests --count @dir/starts --wait-for @dir/go";
    let host = Host::workbench(dev("dynamic", json!({"a": fake(flags)})));
    let mut web = Web::new(&host.address);
    web.path = "/mcp/dev".to_owned();
    let mut client = Client::web(Era::Legacy, web, "{}");
    let call = client.post_call("echo", "{}");
    client.until("the toolbox opens", |_| host.lab.starts("starts") == 1);
    client.cancel(&call);
    host.lab.write("go", "");
    client.tools();
    let calls = client.call("requests", json!({"method": "tools/call"})).json();
    assert_eq!(calls.as_array().map(Vec::len), Some(1), "{calls}");
}

#[test]
fn one_toolbox_is_a_plain_server_in_both_eras() {
    let servers = json!({"a": fake("--with echo,change,update --resources 1"), "b": fake("--with echo")});
    let host = Host::workbench(dev("dynamic", servers));
    for era in [Era::Legacy, Era::Modern] {
        let mut client = host.client_at(era, "/mcp/dev");
        let id = client.subscribe("fake://resource/1");
        client.until("the subscription has arrived, though nothing was open", |client| {
            client.call("update", r#"{"uri":"fake://resource/1"}"#).text();
            client.left().iter().any(|message| message.method() == "notifications/resources/updated")
        });
        assert_eq!(client.tools(), ["echo", "change", "update", "b__echo"]);
        client.call("echo", "{}").text();
        client.call("b__echo", "{}").text();
        client.request("resources/read", r#"{"uri":"fake://resource/1"}"#).result();
        let name = if era == Era::Legacy { "first" } else { "second" };
        let tool = json!({"name": name, "inputSchema": {"type": "object"}}).to_string();
        client.call("change", json!({"add": [tool]})).text();
        assert_eq!(subscription(&client.notification("notifications/tools/list_changed")), id);
        assert!(client.tools().contains(&name.to_owned()));
        client.call("change", json!({"remove": [name]})).text();
        client.notification("notifications/tools/list_changed");
    }
}
