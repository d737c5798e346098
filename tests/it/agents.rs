//! Replays what real agents wrote to the gateway, as `tests/agents` has recorded it.
//!
//! A recording is one conversation: the agent opens what `everything` stands in, then calls tools; or it reads a long
//! result of `book` to its end. Here fake upstreams of the same names stand behind the gateway.
//! `tests/agents/recorder.mjs` describes the form.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

use crate::harness::{Gateway, Lab, Message, dev, fake, gateway_path, server, toolman_path};

/// Whose recording it is, and where that agent's model finds opened tools.
#[derive(Deserialize)]
struct Head {
    face: String,
    scenario: String,
    opened: String,
    arguments: Vec<String>,
}

/// What happened next.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Event {
    Client(Box<RawValue>),
    Answered(u64),
    Notified(String),
    Ended(IgnoredAny),
}

/// What is looked at in a message of a client.
#[derive(Deserialize)]
struct Request {
    id: Option<u64>,
    method: String,
}

impl Request {
    fn is_call(&self) -> bool {
        self.method == "tools/call"
    }
}

#[test]
fn every_agent_gets_its_answers_and_its_tools() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agents/recordings");
    let mut replayed = 0;
    for entry in folder.read_dir().expect("it is committed") {
        let path = entry.expect("it can be read").path();
        eprintln!("{}", path.display());
        replay(&std::fs::read_to_string(path).expect("it can be read"));
        replayed += 1;
    }
    assert!(replayed > 0, "nothing is recorded");
}

fn replay(recording: &str) {
    let (head, events) = recording.split_once('\n').expect("a head and events");
    let head: Head = serde_json::from_str(head).expect("a head");
    let mut gateway = start(&head);
    let (mut requests, mut answers) = (Vec::<Request>::new(), BTreeMap::new());
    // When tools appear is told by the recordings of opening.
    let is_opening = head.scenario == "tools";
    // The id of the result that was kept.
    let mut result = String::new();
    for event in events.lines() {
        match serde_json::from_str(event).expect("an event") {
            Event::Client(message) => {
                let request = serde_json::from_str::<Request>(message.get()).expect("a request");
                if is_opening && head.opened == "list" && request.method == "tools/list" {
                    // The model must not go on before the agent has the list that it asks for here.
                    let opening = requests.iter().find(|request| request.is_call());
                    let id = opening.and_then(|opening| opening.id).map(|id| id.to_string());
                    let early = gateway.left().into_iter().find(|message| Some(message.id()) == id);
                    assert!(early.is_none(), "opened before the list was asked for: {early:?}");
                }
                gateway.send(message.get().replace("{result}", &result));
                requests.push(request);
            }
            Event::Answered(id) => {
                let answer = gateway.answer(&id.to_string());
                let kept = answer.at(&["result", "_meta", "mcp-workbench/offloaded", "id"]);
                if !kept.is_empty() {
                    result = kept.trim_matches('"').to_owned();
                }
                answers.insert(id, answer);
            }
            // What the agent was told before it called anything came of servers that start more slowly than those here.
            Event::Notified(method) if is_opening && requests.iter().any(Request::is_call) => {
                gateway.notification(&method);
            }
            Event::Notified(_) => {}
            Event::Ended(_) => gateway.close(),
        }
    }
    let unanswered =
        requests.iter().filter(|request| request.id.is_some_and(|id| !answers.contains_key(&id)));
    let unanswered: Vec<_> = unanswered.map(|request| &request.method).collect();
    assert!(unanswered.is_empty(), "not answered: {unanswered:?}");
    match head.scenario.as_str() {
        "result" => check_reading(&requests, &answers),
        _ => check(&head, &requests, &answers),
    }
}

/// The model was shown a notice, and then every line of the result.
fn check_reading(requests: &[Request], answers: &BTreeMap<u64, Message>) {
    let calls = requests.iter().filter(|request| request.is_call());
    let answers: Vec<&Message> = calls.filter_map(|call| answers.get(&call.id?)).collect();
    let at = answers.iter().position(|answer| answer.raw.contains("INCOMPLETE: ")).expect("a notice");
    let read: String = answers[at + 1..].iter().map(|answer| answer.text_block(1)).collect();
    let expected: String = (1..=4000).map(|n| format!("line {n} holds {}\n", n * 7919 % 10007)).collect();
    assert!(read == expected, "{} bytes of {} were read", read.len(), expected.len());
    let end = answers.last().expect("found above").text_block(0);
    assert!(end.ends_with("This is the end."), "{end}");
}

/// Starts the gateway as the agent did.
fn start(head: &Head) -> Gateway {
    let lab = Lab::new();
    let home = lab.dir.to_str().expect("UTF-8").to_owned();
    std::fs::create_dir(lab.dir.join("project")).expect("the directory is ours");
    let (everything, odd, book) = ("--with echo --tools 12", "--with result,error", "--with lines");
    let (program, file, text) = match head.face.as_str() {
        "workbench" => {
            let mut book = fake(book);
            book["offloadOver"] = json!("auto");
            let config = dev("auto", json!({"everything": fake(everything), "odd": fake(odd), "book": book}));
            (gateway_path(), "workbench-config.json", config.to_string())
        }
        _ => {
            let config = [
                server("everything", everything, ""),
                server("odd", odd, ""),
                server("book", book, "offload_over = \"auto\""),
            ]
            .concat();
            (toolman_path(), "tools.toml", config)
        }
    };
    lab.write(&format!("project/{file}"), &lab.fill(&text));
    Gateway::run_in(lab, &program, |command| {
        command.args(head.arguments.iter().map(|argument| argument.replace("{home}", &home)));
    })
}

/// The model was shown the tools before it went on, and what it called was called.
fn check(head: &Head, requests: &[Request], answers: &BTreeMap<u64, Message>) {
    let answer = |request: &Request| request.id.and_then(|id| answers.get(&id));
    let mut calls = requests.iter().enumerate().filter(|(_, request)| request.is_call());
    let (opening, opened) = calls.next().expect("the agent opens");
    let (calling, called) = calls.next().expect("the agent calls");
    assert!(
        answer(called).expect("checked above").text().contains("hello"),
        "what was called did not answer"
    );
    let listed = |range: &[Request]| -> Vec<String> {
        let lists = range.iter().filter(|request| request.method == "tools/list").filter_map(answer);
        lists.flat_map(|list| list.names("tools")).collect()
    };
    let (exposed, named, uses) = match head.face.as_str() {
        "workbench" => ("dev__everything__", "", "use_tool"),
        _ => ("everything_", "everything_", "toolman_call"),
    };
    let names = (1..=12).map(|n| format!("tool-{n}")).chain(["echo".to_owned()]);
    if head.opened == "list" {
        let listed = listed(&requests[opening..calling]);
        for name in names.map(|name| format!("{exposed}{name}")) {
            assert!(listed.contains(&name), "{name} is not in a list that was asked for after opening");
        }
    } else {
        assert!(listed(&requests[..opening]).iter().any(|name| name == uses), "{uses} is not listed");
        let text = answer(opened).expect("checked above").text();
        for name in names.map(|name| format!("\"{named}{name}\"")) {
            assert!(text.contains(&name), "{name} is not named by {text}");
        }
    }
}
