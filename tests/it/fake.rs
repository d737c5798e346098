//! The fake upstream itself, driven directly: what other tests conclude from it must be true.

use serde_json::{Value, json};

use crate::harness::{DEADLINE, Lab, Peer, TOOLS_CHANGED, VERSION, fake_path, signal};

#[allow(clippy::disallowed_methods, reason = "tests start the programs they test")]
fn start(lab: &Lab, flags: &[&str]) -> Peer {
    let flags = flags.iter().map(|flag| flag.replace("@dir", lab.dir.to_str().expect("UTF-8")));
    let mut command = std::process::Command::new(fake_path());
    command.args(flags).args(["--marker", &lab.marker]);
    Peer::spawn(&mut command)
}

#[test]
fn it_offers_what_its_command_line_says_over_several_pages() {
    let lab = Lab::new();
    let raw = r#"{"name":"odd\u0041","z":12345678901234567890,"a":1.000000000000000000000001}"#;
    let mut fake = start(
        &lab,
        &[
            "--tool",
            raw,
            "--tools",
            "2",
            "--resources",
            "1",
            "--templates",
            "1",
            "--prompts",
            "1",
            "--page",
            "2",
        ],
    );
    let answer = fake.initialize("2024-11-05");
    assert_eq!(answer.result()["protocolVersion"], "2024-11-05");
    let first = fake.request("tools/list", "{}");
    assert_eq!(first.at(&["result", "tools", "0"]), raw);
    assert_eq!(first.names("tools"), ["oddA", "tool-1"]);
    let second = fake.request("tools/list", json!({"cursor": first.result()["nextCursor"]}));
    assert_eq!(second.names("tools"), ["tool-2"]);
    assert!(second.result().get("nextCursor").is_none());
    assert_eq!(fake.request("resources/list", "{}").names("resources"), ["Resource 1"]);
    assert_eq!(fake.request("resources/templates/list", "{}").names("resourceTemplates"), ["Item 1"]);
    assert_eq!(fake.request("prompts/list", "{}").names("prompts"), ["prompt-1"]);
}

#[test]
fn it_answers_with_the_bytes_it_was_given() {
    let lab = Lab::new();
    let mut fake = start(&lab, &["--with", "echo,result,error"]);
    fake.initialize(VERSION);
    let params = r#"{"name":"echo","arguments":{"b":1e400,"a":"\u00e9"}}"#;
    assert_eq!(fake.request("tools/call", params).text(), params);
    let result = r#"{ "content":[], "n":18446744073709551616 }"#;
    assert_eq!(fake.call("result", json!({"json": result})).at(&["result"]), result);
    let error = r#"{"code":-1,"message":"no","data":[1.10]}"#;
    assert_eq!(fake.call("error", json!({"json": error})).at(&["error"]), error);
}

#[test]
fn it_waits_is_released_and_is_cancelled() {
    let lab = Lab::new();
    let mut fake = start(&lab, &["--with", "slow,release,started,received"]);
    fake.initialize(VERSION);
    let slow = fake.post_call("slow", json!({"key": "a"}));
    let cancelled = fake.post_call("slow", json!({"key": "b"}));
    fake.call("started", json!({"key": "b"}));
    let id: u64 = cancelled.parse().expect("a number");
    fake.notify("notifications/cancelled", json!({"requestId": id}));
    let received = fake.call("received", json!({"method": "notifications/cancelled", "count": 1})).json();
    assert_eq!(received[0]["params"]["requestId"], id);
    fake.call("release", json!({"key": "a"}));
    assert_eq!(fake.answer(&slow).text(), "slow");
}

#[test]
fn it_asks_notifies_and_changes() {
    let lab = Lab::new();
    let mut fake = start(&lab, &["--with", "ask,progress,notify,change,raw"]);
    fake.initialize(VERSION);
    let call = fake.post_call("ask", json!({"method": "roots/list"}));
    let question = fake.question("roots/list");
    fake.reply(&question, r#""result":{"roots":[]}"#);
    assert_eq!(fake.answer(&call).text(), r#"{"result":{"roots":[]}}"#);

    fake.request("tools/call", r#"{"name":"progress","arguments":{"n":2},"_meta":{"progressToken":"t"}}"#);
    let progress = fake.notification("notifications/progress");
    assert_eq!(progress.at(&["params"]), r#"{"progressToken":"t","progress":1,"total":2}"#);

    fake.call("notify", json!({"method": "notifications/message", "params": "{\"data\":1}"}));
    assert_eq!(fake.notification("notifications/message").at(&["params"]), r#"{"data":1}"#);

    fake.call("change", json!({"add": [r#"{"name":"new"}"#], "remove": ["raw"], "times": 2}));
    assert_eq!(fake.count(TOOLS_CHANGED), 2);
    assert_eq!(fake.tools(), ["ask", "progress", "notify", "change", "new"]);
}

#[test]
fn it_reports_itself_and_what_it_was_told() {
    let lab = Lab::new();
    let mut fake =
        start(&lab, &["--with", "report,update,requests", "--resources", "1", "--count", "@dir/starts"]);
    fake.initialize(VERSION);
    fake.request("logging/setLevel", json!({"level": "debug"}));
    fake.request("resources/subscribe", json!({"uri": "fake://resource/1"}));
    fake.call("update", json!({"uri": "fake://resource/1"}));
    fake.notification("notifications/resources/updated");
    let report: Value = fake.call("report", "{}").json();
    assert_eq!(report["pid"], fake.pid());
    assert_eq!(report["level"], json!({"level": "debug"}));
    assert_eq!(report["subscriptions"], json!(["fake://resource/1"]));
    assert_eq!(report["initialize"]["clientInfo"]["name"], "test-client");
    assert_eq!(lab.starts("starts"), 1);
}

#[test]
fn it_fails_as_it_is_told() {
    let lab = Lab::new();
    let cases: [(&[&str], i32, &str); 3] = [
        (&["--exit", "7", "--stderr", "no such database"], 7, "no such database"),
        (&["--fail-while", "@dir"], 1, "told to fail"),
        (&["--single", "@dir/workbench"], 1, "another instance"),
    ];
    lab.write("workbench", "");
    for (flags, code, stderr) in cases {
        let mut fake = start(&lab, flags);
        assert_eq!(fake.wait().code(), Some(code));
        fake.stderr_with(stderr);
    }
    let mut fake =
        start(&lab, &["--error", "initialize={\"code\":-5,\"message\":\"no\"}", "--with", "crash"]);
    assert_eq!(fake.initialize(VERSION).error_code(), -5);
    fake.post_call("crash", json!({"code": 3, "stderr": ["boom"]}));
    assert_eq!(fake.wait().code(), Some(3));
    fake.stderr_with("boom");
}

#[cfg(unix)]
#[test]
fn its_stubborn_descendants_survive_it_and_everything_but_a_kill() {
    let lab = Lab::new();
    let mut fake = start(&lab, &["--stubborn", "2"]);
    fake.initialize(VERSION);
    assert_eq!(lab.processes().len(), 5, "itself, two children and their children");
    fake.close();
    fake.wait();
    assert_eq!(lab.processes().len(), 4);
    for name in ["TERM", "KILL"] {
        assert_eq!(lab.processes().len(), 4);
        lab.processes().into_iter().for_each(|(pid, _)| signal(pid, name));
    }
    lab.wait_until_gone(DEADLINE);
}
