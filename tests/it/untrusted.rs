//! Output of upstreams is untrusted.

use serde_json::json;

use crate::harness::{Gateway, Lab, VERSION, dev, fake, fake_with, server};

const FLAGS: &str = "--with echo,raw,received,requests,large,flood,slow,started,release";

fn opened() -> Gateway {
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake(FLAGS), "b": fake(FLAGS)})));
    gateway.open("dev");
    gateway
}

#[test]
fn garbage_is_survived_and_nothing_unsolicited_is_written_upstream() {
    let mut gateway = opened();
    let before = gateway.use_tool("a", "requests", "{}").json().as_array().map_or(0, Vec::len);
    for text in [
        "not json\n",
        "{\"jsonrpc\":\"2.0\"\n",
        "\n\n\r\n",
        "\u{feff}\n",
        "[]\n",
        "null\n",
        "{}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":999999,\"result\":{}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":[],\"result\":{}}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":5}\n",
        "INFO starting\r\n",
    ] {
        assert_eq!(gateway.use_tool("a", "raw", json!({"text": text})).text(), "raw", "{text:?}");
    }
    gateway.use_tool("a", "raw", json!({"bytes": [0xff, 0xfe, 0x00, 0x0a]})).text();
    let requests = gateway.use_tool("a", "requests", "{}").json();
    assert_eq!(requests.as_array().map(Vec::len), Some(before + 15), "only our calls arrived");
    assert!(!gateway.has(|_| true), "nothing of this reached the client");
}

#[test]
fn messages_that_end_in_a_carriage_return_are_understood() {
    let mut gateway = opened();
    let text = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/vendor\",\"params\":{\"n\":1}}\r\n";
    gateway.use_tool("a", "raw", json!({"text": text})).text();
    assert_eq!(gateway.notification("notifications/vendor").at(&["params"]), r#"{"n":1}"#);
}

#[test]
fn batches_of_an_upstream_of_2025_03_26_are_understood() {
    let entry = fake("--with raw --protocol 2025-03-26");
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
    gateway.open("dev");
    let note = |n: u32| json!({"jsonrpc": "2.0", "method": "notifications/vendor", "params": {"n": n}});
    let batch = json!([note(1), note(2)]);
    gateway.use_tool("a", "raw", json!({"text": format!("{batch}\n")})).text();
    for n in 1..=2 {
        assert_eq!(gateway.notification("notifications/vendor").value()["params"]["n"], n);
    }
}

#[test]
fn stdout_carries_protocol_only_however_much_is_logged() {
    let config =
        dev("dynamic", json!({"a": fake(FLAGS), "b": fake_with("--exit 1", &["--stderr", "words"])}));
    let mut gateway = Gateway::spawn_with(Lab::new(), config, |command| {
        command.arg("-v").env("RUST_LOG", "trace");
    });
    gateway.initialize(VERSION);
    gateway.open("dev");
    gateway.use_tool("a", "raw", json!({"text": "noise\n"})).text();
    gateway.request("no/such", "{}");
    gateway.close();
    gateway.wait();
    while let Some(message) = gateway.rest() {
        assert_eq!(message.value()["jsonrpc"], "2.0", "{message:?}");
    }
}

#[test]
fn noise_before_the_handshake_is_survived() {
    let entry = fake_with("--with echo", &["--stdout", "npm warn something", "--stdout", "{\"x\":1}"]);
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
    assert_eq!(gateway.open("dev")["servers_connected"], 1);
    gateway.use_tool("a", "echo", "{}").text();
}

#[test]
fn an_answer_given_twice_is_delivered_once() {
    let mut gateway = opened();
    let id = gateway.post_use_tool("a", "slow", json!({"key": "k", "late": true}));
    gateway.use_tool("a", "started", json!({"key": "k"}));
    let requests = gateway.use_tool("a", "requests", json!({"method": "tools/call"})).json();
    let upstream_id = requests[0]["id"].clone();
    let forged = json!({"jsonrpc": "2.0", "id": upstream_id, "result": {"content": []}});
    gateway.use_tool("a", "raw", json!({"text": format!("{forged}\n{forged}\n")})).text();
    assert_eq!(gateway.answer(&id).at(&["result"]), r#"{"content":[]}"#);
    gateway.use_tool("a", "release", json!({"key": "k"})).text();
    gateway.use_tool("a", "echo", "{}").text();
    assert!(!gateway.has(|message| message.id() == id));
}

#[test]
fn an_upstream_cannot_answer_for_another() {
    let mut gateway = opened();
    let id = gateway.post_use_tool("a", "slow", json!({"key": "k"}));
    gateway.use_tool("a", "started", json!({"key": "k"}));
    let lines: String = (0..200)
        .map(|n| format!("{{\"jsonrpc\":\"2.0\",\"id\":{n},\"result\":{{\"forged\":true}}}}\n"))
        .collect();
    let forgery = gateway.post_use_tool("b", "raw", json!({"text": lines}));
    // The forger may well answer its own call so, and no other.
    gateway.answer(&forgery);
    gateway.use_tool("a", "release", json!({"key": "k"})).text();
    assert_eq!(gateway.answer(&id).text(), "slow");
}

#[test]
fn a_message_over_the_limit_fails_the_call_that_it_answers_and_only_that() {
    let mut config = dev("proxy", json!({"a": fake(FLAGS)}));
    config["maxMessageBytes"] = json!(100_000);
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    let waiting = gateway.post_use_tool("a", "slow", json!({"key": "k"}));
    for bytes in [200_000, 5_000_000] {
        let text = gateway.use_tool("a", "large", json!({"bytes": bytes})).failure();
        assert!(text.starts_with("[dev/a/large] "), "{text}");
    }
    assert_eq!(gateway.use_tool("a", "large", json!({"bytes": 50_000})).text().len(), 50_000);
    gateway.use_tool("a", "started", json!({"key": "k"})).text();
    gateway.use_tool("a", "release", json!({"key": "k"})).text();
    assert_eq!(gateway.answer(&waiting).text(), "slow");
}

#[test]
fn a_message_over_the_limit_is_known_by_its_end_too() {
    let mut config = dev("proxy", json!({"a": fake(FLAGS)}));
    config["maxMessageBytes"] = json!(100_000);
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    let calls = ["j", "k"].map(|key| {
        let id = gateway.post_use_tool("a", "slow", json!({"key": key}));
        gateway.use_tool("a", "started", json!({"key": key})).text();
        id
    });
    let requests = gateway.use_tool("a", "requests", json!({"method": "tools/call"})).json();
    let ids = [&requests[0]["id"], &requests[2]["id"]];
    let raw = |gateway: &mut Gateway, line: String| {
        gateway.use_tool("a", "raw", json!({"text": format!("{line}\n"), "n": 200_000})).text();
    };
    // As servers of the official TypeScript SDK write it.
    raw(&mut gateway, format!(r#"{{"result":{{"text":"@pad"}},"jsonrpc":"2.0","id":{}}}"#, ids[1]));
    let text = gateway.answer(&calls[1]).failure();
    assert!(text.contains("maxMessageBytes"), "{text}");
    // A question that is too long has an id as well, and it is not ours.
    let question =
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"ask","params":{{"text":"@pad"}}}}"#, ids[0]);
    raw(&mut gateway, question);
    gateway.use_tool("a", "release", json!({"key": "j"})).text();
    assert_eq!(gateway.answer(&calls[0]).text(), "slow");
}

#[test]
fn a_message_over_the_limit_that_answers_nothing_fails_no_call() {
    let mut config = dev("proxy", json!({"a": fake(FLAGS)}));
    config["maxMessageBytes"] = json!(100_000);
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    for line in [
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"@pad"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"text":"@pad"}}"#,
        "@pad",
    ] {
        gateway.use_tool("a", "raw", json!({"text": format!("{line}\n"), "n": 200_000})).text();
    }
}

#[test]
fn a_broken_answer_fails_its_call_at_once_and_no_other() {
    let mut gateway = opened();
    let calls = ["j", "k"].map(|key| {
        let id = gateway.post_use_tool("a", "slow", json!({"key": key}));
        gateway.use_tool("a", "started", json!({"key": key})).text();
        id
    });
    let requests = gateway.use_tool("a", "requests", json!({"method": "tools/call"})).json();
    let text = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":["#, requests[0]["id"]);
    gateway.use_tool("a", "raw", json!({"text": format!("{text}\n")})).text();
    let text = gateway.answer(&calls[0]).failure();
    assert_eq!(text, "[dev/a/slow] the server's answer is malformed: it is not JSON");
    gateway.use_tool("a", "release", json!({"key": "k"})).text();
    assert_eq!(gateway.answer(&calls[1]).text(), "slow");
}

#[test]
fn the_default_limit_is_sixteen_mebibytes() {
    let mut gateway = opened();
    let just_fits = 16 * 1024 * 1024 - 1024;
    assert_eq!(gateway.use_tool("a", "large", json!({"bytes": just_fits})).text().len(), just_fits);
    gateway.use_tool("a", "large", json!({"bytes": 16 * 1024 * 1024 + 1024})).failure();
    gateway.use_tool("a", "echo", "{}").text();
}

/// Whether a text of ours holds something that no reader sees, or that turns what follows.
fn is_clean(text: &str) -> bool {
    !text.contains(|c: char| c != '\n' && c.is_control() || "\u{200b}\u{202e}".contains(c))
}

#[test]
fn names_and_last_words_of_a_server_bring_nothing_invisible_into_our_texts() {
    let odd = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}}).to_string();
    let (name, prompt) = ("\u{1b}[31mev\u{202e}il\n\u{200b}tool", "pro\u{202e}mpt\n-1");
    let flags = ["--tool", &odd(name), "--prompt", &json!({"name": prompt}).to_string()];
    let mut config = dev(
        "proxy",
        json!({
            "a": fake_with("", &flags),
            "b": fake_with("--exit 3", &["--stderr", "\u{1b}[31mred \u{202e}evil\u{200b} \u{7}bell"]),
        }),
    );
    config["names"] = json!("exact");
    let mut gateway = Gateway::start(config);
    let opened = gateway.open("dev");
    let reason = opened["_errors"][0].as_str().expect("b failed");
    assert!(reason.contains("[31mred evil  bell") && is_clean(reason), "{reason:?}");
    for (tool, near) in [("[31mevil tool!", "Nearest names: "), ("nothing like it", "Its tools: ")] {
        let text = gateway.use_tool("a", tool, "{}").failure();
        assert!(text.contains(&format!("{near}[31mevil tool")) && is_clean(&text), "{text:?}");
    }
    let text = gateway.call("dev__a__[31mevil tool", "{}").failure();
    assert!(text.contains("[31mevil tool") && is_clean(&text), "{text:?}");
    let refused = gateway.request("prompts/get", r#"{"name":"dev__a__prompt-1"}"#).value();
    let text = refused["error"]["message"].as_str().expect("a message");
    assert!(text.contains("Nearest names: dev__a__prompt -1") && is_clean(text), "{text:?}");

    let config = format!("names = \"exact\"\n{}", server("a", &format!("--tool '{}'", odd(name)), ""));
    let mut gateway = Gateway::toolman(config);
    let unknown = gateway.activate([&["a_[31mevil tol"], &[], &[], &[]]).failure();
    assert!(unknown.contains("did you mean a_ [31mevil tool?") && is_clean(&unknown), "{unknown:?}");
    let unknown = gateway.call("a_[31mevil tol", "{}").failure();
    assert!(unknown.contains("Did you mean a_ [31mevil tool?") && is_clean(&unknown), "{unknown:?}");
    let switched = gateway.activate([&["a_*"], &[], &[], &[]]).text();
    assert!(switched.contains("Switched on: a_ [31mevil tool.") && is_clean(&switched), "{switched:?}");
}

#[test]
fn a_flood_on_stderr_blocks_nothing() {
    let mut gateway = opened();
    gateway.use_tool("a", "flood", json!({"bytes": 5_000_000})).text();
    assert!(gateway.stderr().len() < 1_000_000, "it does not flood our own stderr");
}

/// A line says whose request it is about, whatever the client calls itself and its methods.
#[test]
fn requests_are_logged_for_those_who_ask_for_everything() {
    for (flags, logged) in [("-v", false), ("-vv", true)] {
        let mut gateway =
            Gateway::spawn_with(Lab::new(), dev("dynamic", json!({"a": fake(FLAGS)})), |command| {
                command.arg(flags);
            });
        gateway.initialize_as(VERSION, "{}", "cli\\u001bent");
        gateway.request("odd\\n/method", "{}");
        gateway.close();
        gateway.wait();
        let stderr = gateway.stderr();
        let line = stderr.lines().find(|line| line.contains("method"));
        assert_eq!(line.is_some(), logged, "{flags}: {stderr}");
        if let Some(line) = line {
            assert!(line.starts_with("debug: [cli") && line.ends_with("/method] received"), "{line:?}");
            assert!(!line.contains('\u{1b}'), "{line:?}");
        }
    }
}
