//! Answers of servers that are no perfect envelopes: read as they are meant, or failed at once. Every call ends.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::client::Remote;
use crate::harness::{Gateway, Lab, Message, VERSION, dev, fake_with, server};

/// How answers travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Stdio,
    Bodies,
    /// Event streams that stay open after the answer.
    Streams,
    /// The one stream of HTTP+SSE.
    OldStream,
}

const WAYS: [Way; 4] = [Way::Stdio, Way::Bodies, Way::Streams, Way::OldStream];

impl Way {
    /// A server with these flags, which hold no white space, and what keeps it running.
    fn server(self, flags: &[&str]) -> (Value, Option<Remote>) {
        let more = match self {
            Self::Stdio => return (fake_with("", flags), None),
            Self::Bodies => "",
            Self::Streams => " --stay-open",
            Self::OldStream => " --sse",
        };
        let remote = Remote::start(&(flags.join(" ") + more));
        let mut entry = json!({"url": remote.url()});
        if self == Self::OldStream {
            entry["type"] = json!("sse");
        }
        (entry, Some(remote))
    }

    /// An opened toolbox `dev` with such a server, `a`.
    fn opened(self, flags: &[&str]) -> (Gateway, Option<Remote>) {
        let (entry, remote) = self.server(flags);
        let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
        assert_eq!(gateway.open("dev")["servers_connected"], 1, "{self:?} {flags:?}");
        (gateway, remote)
    }
}

/// How a server may write all its results and all its errors, and be understood.
const SHAPES: [[&str; 2]; 10] = [
    [
        r#"{"jsonrpc":"2.0","id":@id,"result":@result,"error":null}"#,
        r#"{"jsonrpc":"2.0","id":@id,"result":null,"error":@error}"#,
    ],
    [
        r#"{"jsonrpc":"2.0","id":@id,"method":null,"params":null,"result":@result,"error":null}"#,
        r#"{"jsonrpc":"2.0","id":@id,"method":null,"params":null,"result":null,"error":@error}"#,
    ],
    [r#"{"jsonrpc":"2.0","id":"@id","result":@result}"#, r#"{"jsonrpc":"2.0","id":"@id","error":@error}"#],
    [r#"{"jsonrpc":"2.0","id":@id.0,"result":@result}"#, r#"{"jsonrpc":"2.0","id":@id.0,"error":@error}"#],
    [r#"{"id":@id,"result":@result}"#, r#"{"id":@id,"error":@error}"#],
    [
        r#"{"jsonrpc":"2\u002e0","id":@id,"result":@result}"#,
        r#"{"jsonrpc":"2\u002e0","id":@id,"error":@error}"#,
    ],
    [r#"{"jsonrpc":2,"id":@id,"result":@result}"#, r#"{"jsonrpc":2,"id":@id,"error":@error}"#],
    [r#"[{"jsonrpc":"2.0","id":@id,"result":@result}]"#, r#"[{"jsonrpc":"2.0","id":@id,"error":@error}]"#],
    [r#"{"result":@result,"id":@id}"#, r#"{"jsonrpc":"2.0","id":null,"error":@error}"#],
    [r#"{"result":@result,"id":@id,"jsonrpc":null}"#, r#"{"error":@error}"#],
];

#[test]
fn a_server_that_always_answers_oddly_can_be_used() {
    let prompt = r#"{"name":"p"}"#;
    for way in WAYS {
        for [result, error] in SHAPES {
            for era in ["legacy", "modern"] {
                if era == "modern" && way == Way::OldStream {
                    continue;
                }
                let shown = format!("{way:?} {era} {result} {error}");
                let (mut gateway, _remote) = way.opened(&[
                    "--with",
                    "echo,error",
                    "--prompt",
                    prompt,
                    "--era",
                    era,
                    "--result-as",
                    result,
                    "--error-as",
                    error,
                ]);
                assert_eq!(
                    gateway.use_tool("a", "echo", json!({"x": 1})).json()["arguments"]["x"],
                    1,
                    "{shown}"
                );
                let refused =
                    gateway.use_tool("a", "error", json!({"json": r#"{"code":-1,"message":"no"}"#}));
                assert_eq!(refused.failure(), "[dev/a/error] no", "{shown}");
                let got = gateway.request("prompts/get", r#"{"name":"dev__a__p"}"#);
                assert!(got.result()["messages"].is_array(), "{shown}: {got:?}");
                // Dropping it checks that it ends by itself, with status 0 and nothing left behind.
                gateway.close();
                gateway.wait();
            }
        }
    }
}

/// What may stand where an answer should, and what is wrong with it.
const MALFORMED: [(&str, &str); 10] = [
    (r#"{"jsonrpc":"2.0","id":@id}"#, "it has neither a result nor an error"),
    (r#"{"jsonrpc":"2.0","id":@id,"result":{},"error":{}}"#, "it has both a result and an error"),
    (r#"{"jsonrpc":"2.0","id":@id,"result":null}"#, "its result is not an object"),
    (r#"{"jsonrpc":"2.0","id":@id,"result":[]}"#, "its result is not an object"),
    (r#"{"id":"@id","result":"done"}"#, "its result is not an object"),
    (r#"{"jsonrpc":"2.0","id":@id,"error":"no"}"#, "its error is not an object"),
    (r#"{"jsonrpc":"2.0","id":@id,"id":@id,"result":{}}"#, "a member of its envelope appears twice"),
    (r#"{"jsonrpc":"2.0","id":@id,"result":{},"Result":{}}"#, "a member of its envelope appears twice"),
    (r#"{"jsonrpc":"2.0","id":@id,"result":{"x":NaN}}"#, "it is not JSON"),
    (r#"{"id":@id,"result":{"content":["#, "it is not JSON"),
];

#[test]
fn a_malformed_answer_fails_its_call_at_once() {
    for way in WAYS {
        let (mut gateway, _remote) = way.opened(&["--with", "answer,echo"]);
        for (text, what) in MALFORMED {
            let answer = gateway.use_tool("a", "answer", json!({"text": text}));
            let expected = format!("the server's answer is malformed: {what}");
            assert_eq!(answer.failure(), format!("[dev/a/answer] {expected}"), "{way:?} {text}");
            let error = json!({"code": -32603, "message": expected});
            assert_eq!(answer.result()["_meta"]["mcp-workbench/error"], error, "{way:?} {text}");
        }
        gateway.use_tool("a", "echo", "{}").text();
    }
}

#[test]
fn toolman_words_a_malformed_answer_in_its_own_way() {
    let config = format!("active_toolsets = [\"*\"]\n{}", server("a", "--with answer", ""));
    let mut gateway = Gateway::toolman(config);
    let answer = gateway.call("a_answer", json!({"text": r#"{"jsonrpc":"2.0","id":@id,"result":7}"#}));
    let failure = answer.failure();
    assert!(failure.contains("the server's answer is malformed: its result is not an object"), "{failure}");
    assert!(failure.contains("a_answer"), "{failure}");
}

#[test]
fn other_requests_and_connections_say_what_is_malformed_too() {
    let expected = "the server's answer is malformed: its result is not an object";
    for way in WAYS {
        let (mut gateway, _remote) =
            way.opened(&["--resources", "1", "--result", "resources/read=[]", "--result", "prompts/list=7"]);
        let answer = gateway.request("resources/read", r#"{"uri":"workbench://dev/a/fake://resource/1"}"#);
        assert_eq!(answer.error_code(), -32603, "{way:?}: {answer:?}");
        assert!(answer.value()["error"]["message"].as_str().is_some_and(|text| text.ends_with(expected)));

        let (entry, _remote) = way.server(&["--with", "echo", "--result", "initialize=null"]);
        let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
        let answer = gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
        assert!(answer.failure().contains(expected), "{way:?}: {answer:?}");
    }
}

#[test]
fn an_error_without_code_or_message_is_an_error_that_clients_can_read() {
    let (mut gateway, _) =
        Way::Stdio.opened(&["--with", "error", "--error", "prompts/get={}", "--prompts", "1"]);
    let answer = gateway.use_tool("a", "error", json!({"json": r#"{"x":1}"#}));
    assert_eq!(answer.failure(), "[dev/a/error] the server gave no reason");
    let error = json!({"x": 1, "code": -32603, "message": "the server gave no reason"});
    assert_eq!(answer.result()["_meta"]["mcp-workbench/error"], error);
    let answer = gateway.request("prompts/get", r#"{"name":"dev__a__prompt-1"}"#);
    assert_eq!(answer.value()["error"], json!({"code": -32603, "message": "the server gave no reason"}));
}

#[test]
fn a_server_that_cannot_even_refuse_the_probe_is_greeted_in_the_legacy_era() {
    for way in WAYS {
        let error = r#"{"jsonrpc":"2.0","id":@id,"error":"unknown"}"#;
        let (mut gateway, _remote) = way.opened(&["--with", "echo", "--error-as", error]);
        gateway.use_tool("a", "echo", "{}").text();
    }
}

#[test]
fn what_a_server_logs_to_stdout_answers_nothing() {
    for way in [Way::Stdio, Way::Streams, Way::OldStream] {
        let (mut gateway, _remote) = way.opened(&["--with", "answer"]);
        for text in [
            r#"{"id":@id,"level":"info","message":"called"}"#,
            r#"{"id":@id,"method":"GET"}"#,
            r#"info {"jsonrpc":"2.0","id":@id,"result":{}"#,
            r#"{"id":@id,"level":info}"#,
            r#"{"jsonrpc":"2.0","id":[@id],"result":{}}"#,
        ] {
            let answer = gateway.use_tool("a", "answer", json!({"text": text, "then": true}));
            assert_eq!(answer.text(), "answer", "{way:?} {text}");
        }
    }
}

#[test]
fn an_error_that_names_no_request_belongs_to_the_only_one_that_is_open() {
    for way in [Way::Stdio, Way::OldStream] {
        let (mut gateway, _remote) = way.opened(&["--with", "answer,slow,started,release"]);
        let nameless = json!({"text": r#"{"error":{"code":1,"message":"whose?"}}"#, "then": true});
        assert_eq!(gateway.use_tool("a", "answer", &nameless).failure(), "[dev/a/answer] whose?", "{way:?}");
        let slow = gateway.post_use_tool("a", "slow", json!({"key": "k"}));
        gateway.use_tool("a", "started", json!({"key": "k"}));
        assert_eq!(gateway.use_tool("a", "answer", &nameless).text(), "answer", "{way:?}: two are open");
        gateway.use_tool("a", "release", json!({"key": "k"})).text();
        assert_eq!(gateway.answer(&slow).text(), "slow", "{way:?}");
    }
}

#[test]
fn a_subscription_waits_for_no_answer() {
    let (mut gateway, _) = Way::Stdio.opened(&["--with", "answer", "--era", "modern"]);
    let nameless = json!({"text": r#"{"error":{"code":1,"message":"whose?"}}"#});
    assert_eq!(gateway.use_tool("a", "answer", &nameless).failure(), "[dev/a/answer] whose?");
}

#[test]
fn an_odd_version_is_logged_once() {
    let flags = ["--with", "echo", "--result-as", r#"{"id":@id,"result":@result}"#];
    let (mut gateway, _) = Way::Stdio.opened(&flags);
    gateway.use_tool("a", "echo", "{}").text();
    gateway.close();
    gateway.wait();
    let logged = gateway.stderr();
    assert_eq!(logged.matches("[dev/a] answers without a plain \"jsonrpc\": \"2.0\"").count(), 1, "{logged}");
}

#[test]
fn an_answer_of_the_client_ends_a_question_too() {
    let config = dev("proxy", json!({"a": fake_with("--with ask", &[])}));
    let mut gateway = Gateway::spawn_with(Lab::new(), config, |_| ());
    gateway.initialize_with(VERSION, r#"{"elicitation":{}}"#);
    gateway.open("dev");
    let ask = json!({"method": "elicitation/create", "params": r#"{"message":"m","requestedSchema":{"type":"object"}}"#});
    for (answer, expected) in [
        (r#""result":{"action":"decline"},"error":null"#, r#"{"result":{"action":"decline"}}"#),
        (r#""result":{},"error":{}"#, "malformed: it has both a result and an error"),
    ] {
        let id = gateway.post_use_tool("a", "ask", &ask);
        let question = gateway.question("elicitation/create");
        gateway.send(format!(r#"{{"jsonrpc":"2.0","id":{},{answer}}}"#, question.id()));
        let told = gateway.answer(&id).text();
        assert!(told.contains(expected), "{answer}: {told}");
    }
}

/// What becomes of a call whose server writes some text and then the right answer.
#[derive(Debug)]
enum Expected {
    /// The text counts for nothing.
    Ignored,
    Result(String),
    Refused,
    Malformed,
    /// The text is no JSON: it depends on how much of it can be read.
    Any,
}

/// An envelope, member by member, and what was done to its text.
#[derive(Debug, Clone)]
struct Envelope {
    members: Vec<(String, String)>,
    damage: Damage,
}

#[derive(Debug, Clone)]
enum Damage {
    None,
    /// Stands in a list.
    Listed,
    /// Only so much of it is there, in thousandths.
    Cut(usize),
    /// At this place, in thousandths, stands this byte.
    Byte(usize, char),
}

impl Envelope {
    fn text(&self) -> String {
        let members: Vec<String> =
            self.members.iter().map(|(key, value)| format!("{}:{value}", json!(key))).collect();
        let mut text = format!("{{{}}}", members.join(","));
        match self.damage {
            Damage::None => {}
            Damage::Listed => text = format!("[{text}]"),
            Damage::Cut(part) => text.truncate(text.len() * part / 1000),
            Damage::Byte(part, byte) => {
                let at = text.len() * part / 1000;
                text.replace_range(at..=at, &byte.to_string());
            }
        }
        text
    }

    /// The rules once more, over members instead of text.
    fn expected(&self, way: Way) -> Expected {
        if matches!(self.damage, Damage::Cut(_) | Damage::Byte(..)) {
            return Expected::Any;
        }
        let alike = |key: &str| -> Vec<&str> {
            let same = self.members.iter().filter(|(name, _)| name.eq_ignore_ascii_case(key));
            same.map(|(_, value)| value.as_str()).collect()
        };
        let exact =
            |key: &str| self.members.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        let is_ours = |id: &str| ["@id", "\"@id\"", "@id.0"].contains(&id);
        let known = ["jsonrpc", "id", "method", "params", "result", "error"];
        if known.iter().any(|key| alike(key).len() > 1) {
            let answers = ["jsonrpc", "result", "error"].iter().any(|key| !alike(key).is_empty());
            let asks = alike("method").iter().any(|method| method.starts_with('"'));
            let ours = alike("id").into_iter().any(is_ours);
            return if answers && !asks && ours { Expected::Malformed } else { Expected::Ignored };
        }
        let (result, error) = (exact("result"), exact("error"));
        let asks = exact("method").is_some_and(|method| method.starts_with('"'));
        let is_object = |member: Option<&str>| member.is_some_and(|member| member.starts_with('{'));
        let is_absent = |member: Option<&str>| member.is_none_or(|member| member == "null");
        if asks && is_absent(result) && is_absent(error)
            || result.is_none() && error.is_none() && exact("jsonrpc").is_none()
        {
            return Expected::Ignored;
        }
        let refuses = !asks && is_object(error) && is_absent(result);
        match exact("id") {
            Some(id) if is_ours(id) => {}
            // Only one call is open.
            None | Some("null") if refuses => return Expected::Refused,
            Some(_) if refuses && matches!(way, Way::Bodies | Way::Streams) => return Expected::Refused,
            _ => return Expected::Ignored,
        }
        match result {
            _ if refuses => Expected::Refused,
            Some(result) if !asks && result.starts_with('{') && is_absent(error) => {
                Expected::Result(result.to_owned())
            }
            _ => Expected::Malformed,
        }
    }
}

fn envelope() -> impl Strategy<Value = Envelope> {
    let key = prop::sample::select(vec![
        "jsonrpc", "id", "method", "params", "result", "error", "ID", "Result", "x",
    ]);
    let value = prop::sample::select(vec![
        "null",
        "true",
        "7e400",
        "\"2.0\"",
        "\"ping\"",
        "[]",
        "{}",
        "{\"content\":[]}",
        "{\"code\":1,\"message\":\"m\"}",
        "[{}]",
        "@id",
        "\"@id\"",
        "@id.0",
    ]);
    let change = (0..4_u8, any::<prop::sample::Index>(), key, value);
    let damage = prop_oneof![
        6 => Just(Damage::None),
        1 => Just(Damage::Listed),
        2 => (0..1000_usize).prop_map(Damage::Cut),
        2 => (0..1000_usize, prop::sample::select(vec!['x', '"', '{', '}', ',', '\\', '\u{1}'])).prop_map(|(at, byte)| Damage::Byte(at, byte)),
    ];
    (any::<bool>(), prop::collection::vec(change, 0..4), damage).prop_map(|(refuses, changes, damage)| {
        let outcome = if refuses { ("error", r#"{"code":1,"message":"m"}"#) } else { ("result", "{}") };
        let mut members: Vec<(String, String)> = [("jsonrpc", "\"2.0\""), ("id", "@id"), outcome]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        for (what, which, key, value) in changes {
            let at = which.index(members.len() + 1);
            match what {
                0 if at < members.len() => drop(members.remove(at)),
                1 if at < members.len() => members[at].1 = value.to_owned(),
                2 if at < members.len() => members[at].0 = key.to_owned(),
                _ => members.insert(at, (key.to_owned(), value.to_owned())),
            }
        }
        Envelope { members, damage }
    })
}

/// Exactly one answer to every call, whatever stands where its answer should, and the one that the rules give it.
#[test]
fn every_call_ends_once_however_its_answer_is_mutated() {
    for way in WAYS {
        let (gateway, _remote) = way.opened(&["--with", "answer"]);
        let gateway = RefCell::new(gateway);
        let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
        let outcome = TestRunner::new(config).run(&envelope(), |envelope| {
            let mut gateway = gateway.borrow_mut();
            // A body holds one text; elsewhere the right answer follows, and counts if nothing before it did.
            let then = way != Way::Bodies;
            let arguments = json!({"text": envelope.text(), "then": then});
            let id = gateway.post_use_tool("a", "answer", arguments);
            let answer = gateway.answer(&id);
            check(&envelope, way, &answer)?;
            gateway.fence();
            prop_assert!(
                !gateway.has(|message| message.id() == id && message.method().is_empty()),
                "answered twice"
            );
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{way:?}: {failure}"));
    }
}

fn check(envelope: &Envelope, way: Way, answer: &Message) -> Result<(), TestCaseError> {
    let result = answer.result();
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    let is_right = text == "answer" && result["isError"].is_null();
    let fate = envelope.expected(way);
    let holds = match &fate {
        Expected::Ignored if way == Way::Bodies => text.contains("instead of a JSON-RPC message"),
        Expected::Ignored => is_right,
        Expected::Result(expected) => result == serde_json::from_str::<Value>(expected).expect("JSON"),
        Expected::Refused => result["isError"] == true && !text.contains("malformed"),
        Expected::Malformed => text.starts_with("[dev/a/answer] the server's answer is malformed: "),
        Expected::Any => true,
    };
    prop_assert!(holds, "{} should be {fate:?}: {answer:?}", envelope.text());
    Ok(())
}
