//! What reaches the model through the daemon: a long result is kept for its session, and what nobody approved is
//! withheld from every session.

use serde_json::json;

use super::{Den, dev, leave_all, open};
use crate::harness::{fake, fake_with};

#[test]
fn a_long_result_is_read_by_the_session_that_got_it_alone() {
    let tool = r#"{"name":"result","inputSchema":{"type":"object"}}"#;
    let mut config = dev(json!({"a": fake_with("", &["--tool", tool])}));
    config["offloadOver"] = json!(4000);
    let den = Den::new(&config);
    let (mut one, mut other) = (den.session(), den.session());
    open(&mut one, "dev");
    open(&mut other, "dev");
    let text: String = (1..=1000).map(|line| format!("line {line}\n")).collect();
    let result = json!({"content": [{"type": "text", "text": text}]}).to_string();
    let answer = one.call("dev__a__result", json!({ "json": result }));
    let first = format!("INCOMPLETE: this result has {} bytes in 1000 lines; ", text.len());
    assert!(answer.text_block(0).starts_with(&first), "{answer:?}");
    let id = answer.result()["_meta"]["mcp-workbench/offloaded"]["id"].as_str().expect("an id").to_owned();
    let part = one.call("read_result", json!({"id": id, "lines": "500-500"}));
    assert_eq!(part.text_block(1), "line 500\n");
    let refused = other.call("read_result", json!({ "id": id }));
    assert!(refused.is_error(), "{refused:?}");
    assert_eq!(refused.text_block(0), format!("No result '{id}' is kept here; call the tool again"));
    leave_all(vec![one, other]);
}

#[test]
fn what_nobody_approved_is_withheld_from_every_session() {
    let [known, new] =
        ["known", "new"].map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#));
    let den = Den::new(&dev(json!({"a": fake_with("", &["--tool", &known])})));
    let written = den.run(&["lock", "--yes"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    den.configure(&dev(json!({"a": fake_with("", &["--tool", &known, "--tool", &new])})));
    let (mut one, mut other) = (den.session(), den.session());
    for peer in [&mut one, &mut other] {
        let opened = open(peer, "dev");
        assert_eq!((&opened["tools_registered"], &opened["tools_withheld"]), (&json!(1), &json!(1)));
        assert_eq!(peer.tools(), ["open_toolbox", "dev__a__known"]);
        let refused = peer.call("dev__a__new", "{}");
        assert!(refused.failure().contains("workbench-config.lock"), "{refused:?}");
    }
    leave_all(vec![one, other]);
}

#[test]
fn what_is_secret_in_one_session_is_hidden_in_what_the_journal_says_of_all() {
    let mut keeps_token = fake("--with echo");
    keeps_token["env"] = json!({"TOKEN": "${TOKEN}"});
    let mut config = dev(json!({"a": fake("--with echo"), "b": keeps_token}));
    (config["journal"], config["journalArguments"]) = (json!(true), json!("full"));
    let den = Den::new(&config);
    let session = |token: &str| {
        let mut peer = den.session_with(|command| {
            command.env("TOKEN", token);
        });
        open(&mut peer, "dev");
        peer
    };
    let (one, mut other, third) =
        (session("token-of-one"), session("token-of-other"), session("token-of-third"));
    other.call("dev__a__echo", json!({"text": "my token-of-other"})).text();
    leave_all(vec![one, other, third]);
    den.run(&["stop"]);
    let told = den.run(&["log", "--json"]).stdout;
    assert!(told.contains("my ${TOKEN}") && !told.contains("token-of-other"), "{told}");
}
