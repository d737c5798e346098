//! Tasks: begun at one of several servers that use the same ids, asked for there, and seen by nobody else.

use serde_json::{Value, json};

use crate::client::{Client, Era, Host, Over, Remote};
use crate::harness::{Gateway, Lab, Message, dev, fake, server};

const CAN_WAIT: &str = r#"{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const TOOLS: &str = "--with job,finish,requests,report,notify";

/// Two servers, `a` and `b`, of this era.
fn config(era: Era, remotes: &[Remote]) -> String {
    let flags = flags(era);
    let entry = |(namespace, remote): (&str, Option<&Remote>)| match remote {
        Some(remote) => format!("[[servers]]\nnamespace = \"{namespace}\"\nurl = \"{}\"\n", remote.url()),
        None => server(namespace, &flags, ""),
    };
    let entries: String =
        ["a", "b"].into_iter().enumerate().map(|(n, name)| entry((name, remotes.get(n)))).collect();
    format!("active_toolsets = [\"*\"]\n{entries}")
}

fn flags(era: Era) -> String {
    format!("{TOOLS} --era {}", if era == Era::Modern { "modern" } else { "legacy" })
}

/// `params` that begin a task in the way of the era.
fn begin(client: &Client, tool: &str) -> Value {
    match client.era {
        Era::Legacy => json!({"name": tool, "arguments": {}, "task": {"ttl": 60000}}),
        Era::Modern => json!({"name": tool, "arguments": {}}),
    }
}

/// Begins a task and returns its id.
#[track_caller]
fn begun(client: &mut Client, tool: &str) -> String {
    let params = begin(client, tool);
    let result = client.request("tools/call", params).result();
    let task = if client.era == Era::Modern { &result } else { &result["task"] };
    assert_eq!(task["status"], "working", "{result}");
    assert_eq!(result["resultType"] == "task", client.era == Era::Modern, "{result}");
    task["taskId"].as_str().expect("an id").to_owned()
}

#[track_caller]
fn about(client: &mut Client, method: &str, id: &str) -> Message {
    client.request(method, json!({"taskId": id}))
}

#[track_caller]
fn status(client: &mut Client, id: &str) -> String {
    let task = about(client, "tasks/get", id).result();
    assert_eq!(task["taskId"], id, "{task}");
    task["status"].as_str().expect("a status").to_owned()
}

fn check(era: Era, over: Over, behind: Over) {
    let remotes: Vec<Remote> = match behind {
        Over::Stdio => Vec::new(),
        Over::Http => (0..2).map(|_| Remote::start(&flags(era))).collect(),
    };
    let config = config(era, &remotes);
    let (mut client, _host) = match over {
        Over::Stdio => {
            (Client::pipe(era, Gateway::spawn_toolman(Lab::new(), config, |_| ()), CAN_WAIT), None)
        }
        Over::Http => {
            let host = Host::toolman(config);
            (host.client(era), Some(host))
        }
    };
    if era == Era::Modern {
        client.can(CAN_WAIT);
    }
    // The servers are up when the tools are listed.
    client.tools();
    let [one, two] = ["a_job", "b_job"].map(|tool| begun(&mut client, tool));
    assert_eq!([one.as_str(), two.as_str()], ["task-1", "task-1~2"], "the same id at two servers");
    for id in [&one, &two] {
        assert_eq!(status(&mut client, id), "working");
    }
    match era {
        Era::Legacy => legacy(&mut client, &one, &two),
        Era::Modern => modern(&mut client, &one, &two),
    }
    assert_eq!(about(&mut client, "tasks/get", "task-9").error_code(), -32602);
    let seen = client.call("b_requests", json!({"method": "tasks/get"})).text();
    assert!(seen.contains("task-1") && !seen.contains("~2"), "it knows its own id only: {seen}");
}

fn legacy(client: &mut Client, one: &str, two: &str) {
    let list = client.request("tasks/list", "{}").result();
    let ids: Vec<_> =
        list["tasks"].as_array().expect("a list").iter().map(|task| task["taskId"].clone()).collect();
    assert_eq!(ids, [one, two]);
    let waiting = client.post("tasks/result", json!({"taskId": two}));
    client.call("b_finish", json!({"id": "task-1"})).text();
    let told = client.notification("notifications/tasks/status").value();
    assert_eq!((&told["params"]["taskId"], &told["params"]["status"]), (&json!(two), &json!("completed")));
    let result = client.answer(&waiting).result();
    assert_eq!(result["content"][0]["text"], "task-1 is done with null");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], two);
    assert_eq!(about(client, "tasks/cancel", one).result()["status"], "cancelled");
    assert_eq!((status(client, one), status(client, two)), ("cancelled".into(), "completed".into()));
    let refused = client.request("tasks/list", json!({"cursor": "made up"}));
    assert_eq!(refused.error_code(), -32602);
}

fn modern(client: &mut Client, one: &str, two: &str) {
    let filter = json!({"taskIds": [two, "task-9"]});
    let listen = client.post("subscriptions/listen", json!({"notifications": filter}));
    let granted = client.notification("notifications/subscriptions/acknowledged").value();
    assert_eq!(granted["params"]["notifications"], json!({"taskIds": [two]}), "only what there is");
    client.until("the server knows of the subscription", |client| {
        client.call("b_finish", json!({"id": "task-1", "status": "input_required"})).text();
        client.left().iter().any(|message| message.method() == "notifications/tasks")
    });
    let told = client.notification("notifications/tasks").value()["params"].clone();
    assert_eq!((&told["taskId"], &told["status"]), (&json!(two), &json!("input_required")));
    assert_eq!(told["_meta"]["io.modelcontextprotocol/subscriptionId"].to_string(), listen);
    assert_eq!(told["inputRequests"]["who"]["method"], "elicitation/create");
    let answer = json!({"taskId": two, "inputResponses": {"who": {"action": "decline"}}});
    let updated = client.request("tasks/update", answer).result();
    assert_eq!(updated["resultType"], "complete");
    client.call("b_finish", json!({"id": "task-1"})).text();
    let task = about(client, "tasks/get", two).result();
    assert_eq!(task["resultType"], "complete");
    let done = r#"task-1 is done with {"who":{"action":"decline"}}"#;
    assert_eq!(task["result"]["content"][0]["text"], done);
    assert_eq!(about(client, "tasks/cancel", one).result()["resultType"], "complete");
    assert_eq!(status(client, one), "cancelled");
    for gone in ["tasks/result", "tasks/list"] {
        assert_eq!(about(client, gone, one).error_code(), -32601, "{gone}");
    }
    client.can("{}");
    for refused in [
        about(client, "tasks/get", one),
        client.request("subscriptions/listen", json!({"notifications": filter})),
    ] {
        assert_eq!(refused.error_code(), -32021, "{refused:?}");
        let needed = &refused.value()["error"]["data"]["requiredCapabilities"]["extensions"];
        assert!(needed["io.modelcontextprotocol/tasks"].is_object(), "{refused:?}");
    }
    let params = begin(client, "a_job");
    assert_eq!(client.request("tools/call", params).text(), "job", "nobody who cannot wait is given a task");
    client.can(CAN_WAIT);
}

#[test]
fn legacy_over_stdio() {
    check(Era::Legacy, Over::Stdio, Over::Stdio);
}

#[test]
fn legacy_over_http() {
    check(Era::Legacy, Over::Http, Over::Http);
}

#[test]
fn modern_over_stdio() {
    check(Era::Modern, Over::Stdio, Over::Stdio);
}

#[test]
fn modern_over_http() {
    check(Era::Modern, Over::Http, Over::Http);
}

#[test]
fn a_task_is_seen_by_the_client_that_began_it() {
    let tokens = "[[auth.tokens]]\nname = \"x\"\ntoken = \"token-of-x\"\n[[auth.tokens]]\nname = \"y\"\ntoken = \"token-of-y\"\n";
    for era in [Era::Legacy, Era::Modern] {
        let host = Host::toolman(format!("{}\n{tokens}", config(era, &[])));
        let [mut x, mut y] = ["token-of-x", "token-of-y"].map(|token| {
            let mut client = host.client_with(era, token);
            if era == Era::Modern {
                client.can(CAN_WAIT);
            }
            client.tools();
            client
        });
        let own = begun(&mut x, "a_job");
        assert_eq!(about(&mut y, "tasks/get", &own).error_code(), -32602, "{era:?}");
        assert_eq!(about(&mut y, "tasks/cancel", &own).error_code(), -32602, "{era:?}");
        assert_eq!(status(&mut x, &own), "working");
        if era == Era::Legacy {
            assert_eq!(y.request("tasks/list", "{}").result()["tasks"], json!([]));
            x.call("a_finish", json!({"id": own})).text();
            x.notification("notifications/tasks/status");
            y.call("a_report", "{}").text();
            assert_eq!(format!("{:?}", y.left()), "[]", "nothing of another's task");
        }
    }
}

#[test]
fn a_call_between_the_eras_is_no_task() {
    let [legacy, modern] = [Era::Legacy, Era::Modern].map(|era| config(era, &[]));
    let mut client = Client::pipe(Era::Legacy, Gateway::spawn_toolman(Lab::new(), modern, |_| ()), CAN_WAIT);
    let params = begin(&client, "a_job");
    assert_eq!(client.request("tools/call", params).text(), "job");
    let mut client = Client::pipe(Era::Modern, Gateway::spawn_toolman(Lab::new(), legacy, |_| ()), CAN_WAIT);
    let params = begin(&client, "a_job");
    assert_eq!(client.request("tools/call", params).text(), "job");
}

#[test]
fn tasks_are_advertised_once_a_server_is_known_to_have_them() {
    for era in ["legacy", "modern"] {
        let servers = json!({"a": fake(&format!("--with job --era {era}"))});
        let mut lab = Lab::new();
        for known in [false, true] {
            let mut gateway = Gateway::spawn_with(lab, dev("proxy", servers.clone()), |_| ());
            let said = gateway.initialize("2025-11-25").result()["capabilities"].clone();
            let tasks = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
            let expected = if known && era == "legacy" { tasks } else { Value::Null };
            assert_eq!(said["tasks"], expected, "{era}, {known}");
            let meta = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#;
            let said = gateway.request("server/discover", meta).result()["capabilities"].clone();
            assert_eq!(said["extensions"].is_object(), known && era == "modern", "{era}, {known}: {said}");
            gateway.open("dev");
            lab = gateway.finish();
        }
    }
}

#[test]
fn where_no_server_has_tasks_there_are_no_requests_about_them() {
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake("--with echo")})));
    gateway.open("dev");
    for method in ["tasks/list", "tasks/get", "tasks/result", "tasks/cancel", "tasks/unknown"] {
        assert_eq!(gateway.request(method, r#"{"taskId":"x"}"#).error_code(), -32601, "{method}");
    }
}
