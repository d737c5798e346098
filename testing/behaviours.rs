//! What tools do when they are called. [`crate`] documents every one.

use std::collections::BTreeMap;
use std::process::exit;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::fault::Fault;
use crate::faults;
use crate::modern;
use crate::peer::work_for;
use crate::server::{Server, quoted};
use crate::{stubborn, tasks};

/// Every behaviour, in the order of `--with all`.
pub(crate) const NAMES: &[&str] = &[
    "echo",
    "result",
    "error",
    "slow",
    "release",
    "started",
    "progress",
    "never",
    "crash",
    "answer",
    "notify",
    "ask",
    "change",
    "raw",
    "report",
    "received",
    "requests",
    "large",
    "lines",
    "flood",
    "spawn",
    "update",
    "forget",
    "cut",
    "job",
    "finish",
    "cancelled",
    "chaos",
    "endless",
];

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Option<Box<RawValue>>,
    #[serde(rename = "_meta", default)]
    meta: Meta,
    #[serde(rename = "inputResponses", default)]
    responses: BTreeMap<String, Box<RawValue>>,
    #[serde(rename = "requestState")]
    state: Option<String>,
    task: Option<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(rename = "progressToken")]
    progress_token: Option<Box<RawValue>>,
}

/// The arguments of all behaviours together.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Arguments {
    json: String,
    key: String,
    ms: Option<u64>,
    late: bool,
    n: usize,
    extra: String,
    code: i32,
    stderr: Vec<String>,
    answer: bool,
    method: Option<String>,
    params: Option<String>,
    add: Vec<String>,
    remove: Vec<String>,
    list: Option<String>,
    times: Option<usize>,
    text: String,
    then: bool,
    bytes: Option<Bytes>,
    count: usize,
    progress: usize,
    uri: String,
    mark: String,
    fault: Option<String>,
    id: String,
    status: Option<String>,
}

/// So many, or these.
#[derive(Deserialize)]
#[serde(untagged)]
enum Bytes {
    Count(usize),
    These(Vec<u8>),
}

/// Does what the called tool's name says and answers.
pub(crate) fn call(server: &Arc<Server>, id: &RawValue, params: Option<&RawValue>) {
    let Some(Ok(call)) = params.map(|params| serde_json::from_str::<Call>(params.get())) else {
        return server.peer.error(id, r#"{"code":-32602,"message":"Invalid params"}"#);
    };
    if !server.tools.has(&call.name) {
        return server.peer.error(id, r#"{"code":-32602,"message":"Unknown tool"}"#);
    }
    // The driver has many tools of this kind, so that errors that name the tool tell its calls apart.
    let behaviour = if call.name.starts_with("chaos-") { "chaos" } else { &call.name };
    if !NAMES.contains(&behaviour) || behaviour == "echo" {
        return text(server, id, &quoted(params));
    }
    let arguments: Arguments = match call.arguments.map(|arguments| serde_json::from_str(arguments.get())) {
        None => Arguments::default(),
        Some(Ok(arguments)) => arguments,
        Some(Err(error)) => {
            let error = json!({"code": -32602, "message": format!("Invalid arguments: {error}")});
            return server.peer.error(id, &error.to_string());
        }
    };
    match behaviour {
        "chaos" => match arguments.fault.map(|fault| fault.parse::<Fault>()).transpose() {
            Ok(fault) => {
                let (steps, token) = (arguments.n as u32, call.meta.progress_token.as_deref());
                faults::call(server, id, &faults::Call { mark: &arguments.mark, fault, steps, token });
            }
            Err(problem) => {
                server.peer.error(id, &json!({"code": -32602, "message": problem}).to_string());
            }
        },
        "ask" if server.peer.is_modern(id) => {
            let method = arguments.method.unwrap_or_default();
            if !modern::can(params, &method) {
                let capability = method.split('/').next().unwrap_or_default();
                let data = json!({"requiredCapabilities": {capability: {}}});
                let error = json!({"code": -32021, "message": "Missing capability", "data": data});
                return server.peer.error(id, &error.to_string());
            }
            let round = call.state.as_deref().and_then(|state| state.strip_prefix("round-")?.parse().ok());
            let round: usize = round.unwrap_or(0);
            if round < arguments.n.max(1) {
                let params = arguments.params.as_deref().unwrap_or("{}");
                let question = format!(r#"{{"method":"{method}","params":{params}}}"#);
                let asked = format!(
                    r#"{{"resultType":"input_required","inputRequests":{{"it":{question}}},"requestState":"round-{}"}}"#,
                    round + 1
                );
                return server.peer.result(id, &asked);
            }
            let response = call.responses.get("it").map_or("null", |response| response.get());
            let answer = format!(r#"{{"result":{response}}}"#);
            text(server, id, &serde_json::to_string(&answer).expect("a string"));
        }
        "job" if call.task.is_some() || modern::can_wait(params) => {
            let begun = tasks::begin(&server.peer, server.peer.is_modern(id));
            server.peer.result(id, &begun.to_string());
        }
        "slow" | "started" | "ask" | "received" | "progress" | "cancelled" => {
            let (server, id, token) = (Arc::clone(server), id.to_owned(), call.meta.progress_token);
            std::thread::spawn(move || {
                work_for(&id);
                wait(&server, &id, &call.name, arguments, token.as_deref());
            });
        }
        name => act(server, id, name, arguments),
    }
}

/// The behaviours that take their time.
fn wait(server: &Server, id: &RawValue, name: &str, arguments: Arguments, progress_token: Option<&RawValue>) {
    let peer = &server.peer;
    let tell_progress = |n: usize, total: usize, extra: &str| {
        let token = progress_token.map_or("null", RawValue::get);
        let params = format!(r#"{{"progressToken":{token},"progress":{n},"total":{total}{extra}}}"#);
        peer.notify("notifications/progress", Some(&params));
    };
    match name {
        "slow" => {
            let key = arguments.key;
            peer.update(|heard| heard.started.insert(key.clone()));
            let time = arguments.ms.map_or(Duration::MAX, Duration::from_millis);
            // The value says whether the call was cancelled.
            let cancelled = peer.wait_for(time.min(Duration::from_secs(3600)), |heard| {
                if !arguments.late && heard.cancelled.contains(id.get()) {
                    return Some(true);
                }
                heard.released.contains(&key).then_some(false)
            });
            if cancelled != Some(true) {
                text(server, id, r#""slow""#);
            }
        }
        "progress" => {
            for n in 1..=arguments.n {
                std::thread::sleep(Duration::from_millis(arguments.ms.unwrap_or(0)));
                tell_progress(n, arguments.n, &arguments.extra);
            }
            text(server, id, r#""progress""#);
        }
        "cancelled" => {
            peer.wait(|heard| (heard.cancelled.len() >= arguments.count).then_some(()));
            text(server, id, r#""cancelled""#);
        }
        "started" => {
            peer.wait(|heard| heard.started.contains(&arguments.key).then_some(()));
            text(server, id, r#""started""#);
        }
        "ask" => {
            let answer = peer.ask(&arguments.method.unwrap_or_default(), arguments.params.as_deref());
            let (each, total) = (arguments.progress, 2 * arguments.progress);
            (1..=each).for_each(|n| tell_progress(n, total, ""));
            if let Ok(answer) = answer.recv() {
                (each + 1..=total).for_each(|n| tell_progress(n, total, ""));
                text(server, id, &serde_json::to_string(&answer).expect("a string"));
            }
        }
        _ => {
            let received = peer.wait(|heard| {
                let messages = matching(&heard.notifications, arguments.method.as_deref());
                (messages.len() >= arguments.count).then_some(messages)
            });
            text(server, id, &list(&received));
        }
    }
}

/// The behaviours that need not wait.
fn act(server: &Server, id: &RawValue, name: &str, arguments: Arguments) {
    let peer = &server.peer;
    match name {
        "result" => return peer.result(id, &arguments.json),
        "error" => return peer.error(id, &arguments.json),
        "never" => return,
        "release" => {
            peer.update(|heard| heard.released.insert(arguments.key));
        }
        "crash" => {
            for line in arguments.stderr {
                eprintln!("{line}");
            }
            if arguments.answer {
                text(server, id, r#""crash""#);
            }
            exit(arguments.code);
        }
        "notify" => peer.notify(&arguments.method.unwrap_or_default(), arguments.params.as_deref()),
        "change" => {
            let add = arguments.add.into_iter().map(|tool| RawValue::from_string(tool).expect("JSON"));
            let (catalog, changed) = match arguments.list.as_deref().unwrap_or("tools") {
                "resources" => (&server.resources, "resources"),
                "templates" => (&server.templates, "resources"),
                "prompts" => (&server.prompts, "prompts"),
                _ => (&server.tools, "tools"),
            };
            catalog.change(add.collect(), &arguments.remove);
            for _ in 0..arguments.times.unwrap_or(1) {
                peer.notify(&format!("notifications/{changed}/list_changed"), None);
            }
        }
        "answer" => {
            peer.answer(id, &arguments.text, !arguments.then);
            if !arguments.then {
                return;
            }
        }
        "raw" => {
            peer.write(arguments.text.replace("@pad", &"x".repeat(arguments.n)).as_bytes());
            if let Some(Bytes::These(bytes)) = arguments.bytes {
                peer.write(&bytes);
            }
        }
        "report" => return text(server, id, &report(server)),
        "requests" => {
            let requests = peer.update(|heard| matching(&heard.requests, arguments.method.as_deref()));
            return text(server, id, &list(&requests));
        }
        "large" => {
            if let Some(Bytes::Count(count)) = arguments.bytes {
                return text(server, id, &format!(r#""{}""#, "x".repeat(count)));
            }
        }
        "lines" => {
            let lines = (1..=arguments.n).map(|line| format!("line {line} holds {}\n", line * 7919 % 10007));
            let lines = serde_json::to_string(&lines.collect::<String>()).expect("a string");
            return text(server, id, &lines);
        }
        "flood" => {
            if let Some(Bytes::Count(count)) = arguments.bytes {
                for _ in 0..count / 80 {
                    eprintln!("{}", "flood ".repeat(13));
                }
            }
        }
        "endless" => {
            let piece = vec![b'x'; 64 * 1024];
            for _ in 0..arguments.n / piece.len() {
                peer.write(&piece);
            }
            peer.write(b"\n");
        }
        "spawn" => stubborn::spawn(arguments.n, &server.options.marker),
        "update" => {
            if peer.is_subscribed(&arguments.uri) {
                let params = json!({"uri": arguments.uri}).to_string();
                peer.notify("notifications/resources/updated", Some(&params));
            }
        }
        "job" => {}
        "finish" => {
            let result = serde_json::from_str(&arguments.json).ok();
            tasks::set_status(
                peer,
                &arguments.id,
                arguments.status.as_deref().unwrap_or("completed"),
                result,
            );
        }
        "forget" => peer.update(|heard| heard.session = None),
        "cut" => peer.cut(),
        _ => unreachable!("every behaviour is here or in `wait`"),
    }
    text(server, id, &format!(r#""{name}""#));
}

/// What the server knows of itself, as a JSON string that holds JSON.
fn report(server: &Server) -> String {
    let env: std::collections::BTreeMap<String, String> = std::env::vars().collect();
    let cwd = std::env::current_dir().expect("a working directory");
    let report = server.peer.update(|heard| {
        json!({
            "env": env,
            "cwd": cwd,
            "argv": std::env::args().collect::<Vec<_>>(),
            "pid": std::process::id(),
            "initialize": heard.initialize,
            "level": heard.level,
            "subscriptions": heard.subscriptions,
            "headers": heard.headers,
            "sessions": heard.sessions,
        })
    });
    serde_json::to_string(&report.to_string()).expect("a string")
}

fn matching(messages: &[(String, String)], method: Option<&str>) -> Vec<String> {
    let wanted = |(name, _): &&(String, String)| method.is_none_or(|method| method == name);
    messages.iter().filter(wanted).map(|(_, message)| message.clone()).collect()
}

/// Messages as a JSON string that holds a JSON array of them.
fn list(messages: &[String]) -> String {
    serde_json::to_string(&format!("[{}]", messages.join(","))).expect("a string")
}

/// Answers with one text block; `text` is a JSON string.
fn text(server: &Server, id: &RawValue, text: &str) {
    server.peer.result(id, &format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#));
}
