//! The journal: what is written for what happens, by whom, and the verbs that read it.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};

use crate::client::{Era, Host};
use crate::harness::{
    DEADLINE, Finished, Gateway, Lab, VERSION, dev, fake, gateway_path, server, signal, toolman_path,
};

/// The configuration with a journal.
fn journalled(mut config: Value) -> Value {
    config["journal"] = json!(true);
    config
}

fn files(lab: &Lab) -> Vec<PathBuf> {
    let entries = fs::read_dir(lab.dir.join("xdg-state/mcp-workbench/journal"));
    let mut files: Vec<_> = entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// Every line of the journal.
fn lines(lab: &Lab) -> Vec<Value> {
    let texts = files(lab).into_iter().map(|file| fs::read_to_string(file).expect("it can be read"));
    let texts: Vec<_> = texts.collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

fn of_kind(lab: &Lab, kind: &str) -> Vec<Value> {
    lines(lab).into_iter().filter(|line| line["kind"] == kind).collect()
}

/// Waits until the journal is so.
#[track_caller]
fn until(lab: &Lab, what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let end = Instant::now() + DEADLINE;
    loop {
        let lines = lines(lab);
        if holds(&lines) {
            return lines;
        }
        assert!(Instant::now() < end, "not {what}: {lines:#?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The members of a line that do not depend on chance.
fn known(line: &Value, keys: &[&str]) -> Value {
    keys.iter().map(|key| ((*key).to_owned(), line[*key].clone())).collect::<serde_json::Map<_, _>>().into()
}

fn verb(lab: &Lab, arguments: &[&str]) -> Finished {
    lab.run(lab.program(&gateway_path()).args(arguments))
}

#[test]
fn every_event_has_its_line() {
    let flags = "--with echo,error,result,crash,slow,started --resources 1 --prompts 1";
    let mut gateway = Gateway::start(journalled(dev("dynamic", json!({"a": fake(flags)}))));
    gateway.open("dev");
    gateway.call("dev__a__echo", json!({"x": 1})).text();
    gateway.use_tool("a", "echo", json!({"x": 1})).text();
    gateway.call("dev__a__result", json!({"json": r#"{"content":[],"isError":true}"#}));
    gateway.call("dev__a__error", json!({"json": r#"{"code":-32602,"message":"no such thing"}"#}));
    let uri = gateway.uris().remove(0);
    gateway.request("resources/read", json!({"uri": uri}));
    let prompt = gateway.prompts().remove(0);
    gateway.request("prompts/get", json!({"name": prompt}));
    gateway.call("dev__a__ghost", "{}").failure();
    gateway.request("tools/call", json!({"name": 7}));
    let slow = gateway.post_call("dev__a__slow", json!({"key": "k"}));
    gateway.call("dev__a__started", json!({"key": "k"})).text();
    let id: u64 = slow.parse().expect("a number");
    gateway.notify("notifications/cancelled", json!({"requestId": id}));
    gateway.call("dev__a__crash", json!({"code": 3, "stderr": ["out of cheese"]})).failure();
    let pid = gateway.pid();
    let lab = gateway.finish();
    let all = lines(&lab);
    for line in &all {
        assert_eq!((&line["face"], &line["pid"]), (&json!("workbench"), &json!(pid)), "{line}");
        let time = line["time"].as_str().expect("a time");
        assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[19] == b'.', "{time}");
    }
    let is_call = |line: &&Value| ["call", "read", "get"].contains(&line["kind"].as_str().expect("a kind"));
    let word =
        |line: &Value, key: &str| line[key].as_str().map(|word| format!(" {word}")).unwrap_or_default();
    let calls: Vec<String> = all
        .iter()
        .filter(is_call)
        .map(|line| {
            let keys =
                ["client", "toolbox", "server", "tool", "uri", "prompt", "outcome", "error", "arguments"];
            line["kind"].as_str().expect("a kind").to_owned() + &keys.map(|key| word(line, key)).concat()
        })
        .collect();
    assert_eq!(
        calls,
        [
            "call test-client dev a echo ok",
            "call test-client dev a echo ok",
            "call test-client dev a result tool_error tool_error",
            "call test-client dev a error error -32602",
            "read test-client dev a fake://resource/1 ok",
            "get test-client dev a prompt-1 ok",
            "call test-client dev a started ok",
            "call test-client dev a slow cancelled cancelled",
            "call test-client dev a crash lost connection_lost",
        ]
    );
    // The time is that of the beginning: `slow` began before `started`, and ended after it.
    let time = |tool: &str| {
        let line = all.iter().find(|line| line["tool"] == tool).expect("it was called");
        line["time"].as_str().expect("a time").to_owned()
    };
    assert!(time("slow") <= time("started") && time("started") <= time("crash"), "{all:#?}");
    let echo = all.iter().find(|line| line["tool"] == "echo").expect("it was called");
    let session = echo["session"].as_str().expect("a text");
    assert!(session.len() == 16 && session.bytes().all(|byte| byte.is_ascii_hexdigit()), "{session}");
    assert!(
        echo["ms"].is_number() && echo["bytesIn"].as_u64() > Some(10) && echo["bytesOut"].as_u64() > Some(10)
    );
    assert!(echo.get("token").is_none() && echo.get("result").is_none());
    let of = |kind: &str| {
        all.iter().find(|line| line["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {all:#?}"))
    };
    assert_eq!(
        known(of("open"), &["client", "session", "toolbox", "outcome"]),
        json!({"client": "test-client", "session": session, "toolbox": "dev", "outcome": "ok"})
    );
    let start = of("start");
    assert_eq!(
        known(start, &["toolbox", "server", "tools"]),
        json!({"toolbox": "dev", "server": "a", "tools": 6})
    );
    assert!(start["serverPid"].is_number() && start["ms"].is_number());
    let crash = of("crash");
    assert_eq!(
        known(crash, &["toolbox", "server", "status", "serverPid"]),
        json!({"toolbox": "dev", "server": "a", "status": 3, "serverPid": start["serverPid"]})
    );
    assert_eq!(crash["reason"], "the server exited with status 3");
    let whole: String = all.iter().map(Value::to_string).collect();
    assert!(
        !whole.contains("no such thing") && !whole.contains("out of cheese"),
        "an upstream's words: {whole}"
    );
}

#[test]
fn starts_that_fail_ends_and_reloads_have_lines_too() {
    let refuses = json!({"command": "@fake", "args": ["--error", "initialize={\"code\":-5,\"message\":\"hush hush\"}"]});
    let mut config =
        journalled(dev("proxy", json!({"a": fake("--with echo"), "b": fake("--exit 7"), "c": refuses})));
    config["onMissingVariable"] = json!("skip");
    let unset = json!({"command": "@fake", "env": {"A": "${WORKBENCH_TEST_UNSET}"}});
    config["toolboxes"]["dev"]["mcpServers"]["d"] = unset;
    let mut gateway = Gateway::start(&config);
    gateway.open("dev");
    gateway.use_tool("b", "echo", "{}").failure();
    let mut changed = config.clone();
    changed["questionTimeout"] = json!(7);
    let fill = |config: &Value| gateway.lab.fill(&config.to_string());
    gateway.lab.write("workbench-config.json", &fill(&changed));
    until(&gateway.lab, "read again", |lines| lines.iter().any(|line| line["kind"] == "reload"));
    changed["questionTimeout"] = json!("soon");
    changed["toolMode"] = json!("none");
    gateway.lab.write("workbench-config.json", &fill(&changed));
    until(&gateway.lab, "refused", |lines| lines.iter().any(|line| line["ok"] == false));
    let lab = gateway.finish();
    let fails = of_kind(&lab, "fail");
    let reasons: Vec<_> =
        fails.iter().map(|line| (line["server"].as_str(), line["reason"].as_str())).collect();
    assert!(reasons.contains(&(Some("b"), Some("the server exited with status 7"))), "{fails:#?}");
    assert!(reasons.contains(&(Some("c"), Some("answered `initialize` with an error"))), "{fails:#?}");
    let unset = "the environment variable WORKBENCH_TEST_UNSET is not set";
    assert!(reasons.contains(&(Some("d"), Some(unset))), "{fails:#?}");
    assert!(fails.iter().all(|line| line["ms"].is_number() && line["toolbox"] == "dev"), "{fails:#?}");
    let ends = of_kind(&lab, "end");
    assert_eq!(ends.len(), 1, "{ends:#?}");
    assert_eq!(known(&ends[0], &["server", "reason"]), json!({"server": "a", "reason": "it was closed"}));
    let reloads: Vec<_> =
        of_kind(&lab, "reload").iter().map(|line| known(line, &["ok", "problems"])).collect();
    // A variable that is not set is a warning each time.
    assert_eq!(reloads[0], json!({"ok": true, "problems": 1}));
    assert_eq!(reloads[1]["ok"], false);
    assert!(reloads[1]["problems"].as_u64() >= Some(2), "{reloads:?}");
}

#[test]
fn a_reload_switches_it_on_and_off() {
    let config = dev("proxy", json!({"a": fake("--with echo")}));
    let mut gateway = Gateway::start(&config);
    gateway.open("dev");
    assert!(files(&gateway.lab).is_empty());
    let write = |gateway: &Gateway, config: &Value| {
        gateway.lab.write("workbench-config.json", &gateway.lab.fill(&config.to_string()));
    };
    write(&gateway, &journalled(config.clone()));
    until(&gateway.lab, "on", |lines| lines.iter().any(|line| line["kind"] == "reload"));
    gateway.use_tool("a", "echo", "{}").text();
    until(&gateway.lab, "written", |lines| lines.iter().any(|line| line["kind"] == "call"));
    // A toolbox that only the new file has tells that it is in force.
    let mut off = config;
    off["toolboxes"]["more"] = json!({"description": "More", "mcpServers": {}});
    write(&gateway, &off);
    gateway.until("off", |gateway| !gateway.call("open_toolbox", json!({"toolbox_name": "more"})).is_error());
    gateway.use_tool("a", "echo", "{}").text();
    // An orderly end writes everything that there is to write.
    gateway.close();
    assert!(gateway.wait().success());
    assert_eq!(of_kind(&gateway.lab, "call").len(), 1);
}

#[test]
fn arguments_are_kept_as_the_file_says_and_secrets_never() {
    let secret = "hunter22-\"quoted\"";
    for (kept, arguments) in [
        ("off", Value::Null),
        ("keys", json!(["header", "more", "text"])),
        (
            "full",
            json!({"text": "my ${PASSWORD}", "more": [1, 2], "header": "${OTEL_EXPORTER_OTLP_HEADERS}"}),
        ),
    ] {
        let mut entry = fake("--with echo,result");
        entry["env"] = json!({"PASSWORD": "${PASSWORD}"});
        let mut config = journalled(dev("proxy", json!({"a": entry})));
        config["journalArguments"] = json!(kept);
        let mut gateway = Gateway::spawn_with(Lab::new(), &config, |command| {
            command.env("PASSWORD", secret).env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hunter22-header");
        });
        gateway.initialize_as(VERSION, "{}", "agent hunter22-header");
        gateway.open("dev");
        let given = json!({"text": format!("my {secret}"), "more": [1, 2], "header": "hunter22-header"});
        gateway.use_tool("a", "echo", &given).text();
        let long = json!({"json": format!("{{\"content\":[],\"x\":\"{}\"}}", "é".repeat(50_000))});
        gateway.use_tool("a", "result", &long);
        let lab = gateway.finish();
        let calls = of_kind(&lab, "call");
        let call = &calls[0];
        assert_eq!(call["arguments"], arguments, "{kept}");
        assert_eq!(call["client"], "agent ${OTEL_EXPORTER_OTLP_HEADERS}", "{kept}");
        assert_eq!(call.get("result").is_some(), kept == "full", "{call}");
        let whole: String = lines(&lab).iter().map(Value::to_string).collect();
        assert!(!whole.contains("hunter22"), "{kept}: {whole}");
        if kept == "full" {
            let cut = &calls[1]["result"];
            assert!(cut["truncated"].as_u64() > Some(100_000), "{}", cut["truncated"]);
            let text = cut["text"].as_str().expect("a text");
            assert!(
                (65_530..=65_536).contains(&text.len()) && text.starts_with("{\"content\""),
                "{}",
                text.len()
            );
        }
    }
}

#[test]
fn over_http_lines_name_token_and_digest_of_the_session() {
    let mut config = journalled(dev("proxy", json!({"a": fake("--with echo")})));
    config["auth"] = json!({"tokens": [{"name": "ci", "token": "token-of-ci"}]});
    let host = Host::workbench(config);
    let call = json!({"tool": {"toolbox": "dev", "server": "a", "tool": "echo"}, "arguments": {}});
    let mut ids = Vec::new();
    for era in [Era::Legacy, Era::Modern] {
        let mut client = host.client_with(era, "token-of-ci");
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        client.call("use_tool", &call).text();
        ids.extend(client.over_http().session.clone());
    }
    let lines = until(&host.lab, "both are there", |lines| {
        lines.iter().filter(|line| line["kind"] == "call").count() == 2
    });
    for line in lines.iter().filter(|line| ["call", "open"].contains(&line["kind"].as_str().expect("a kind")))
    {
        assert_eq!(line["token"], "ci", "{line}");
        assert_eq!(line["session"].as_str().map(str::len), Some(16), "{line}");
    }
    let whole: String = lines.iter().map(Value::to_string).collect();
    assert!(ids.len() == 1 && !whole.contains(&ids[0]) && !whole.contains("token-of-ci"), "{whole}");
    let digest = sha256(&ids[0]);
    assert_eq!(
        lines.iter().find(|line| line["kind"] == "open").expect("it was opened")["session"],
        digest[..16]
    );
}

/// The SHA-256 of a text in hexadecimal, by the system's own program.
fn sha256(text: &str) -> String {
    let mut child = std::process::Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it is part of the system");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    String::from_utf8(child.wait_with_output().expect("it ends").stdout).expect("digits")
}

#[test]
fn toolman_has_namespaces_and_both_faces_write_to_one_place() {
    let mut toolman = Gateway::toolman(format!(
        "journal = true\nactive_toolsets = [\"*\"]\n{}",
        server("files", "--with echo", "")
    ));
    toolman.call("files_echo", "{}").text();
    toolman.call("toolman_call", r#"{"name":"files_echo"}"#).text();
    let lab = toolman.finish();
    let mut gateway =
        Gateway::spawn_with(lab, journalled(dev("proxy", json!({"a": fake("--with echo")}))), |_| ());
    gateway.initialize(VERSION);
    gateway.open("dev");
    gateway.use_tool("a", "echo", "{}").text();
    let lab = gateway.finish();
    let calls = of_kind(&lab, "call");
    for call in &calls[..2] {
        assert_eq!(
            known(call, &["face", "namespace", "toolbox", "server", "tool"]),
            json!({"face": "toolman", "namespace": "files", "toolbox": null, "server": null, "tool": "echo"})
        );
    }
    assert_eq!(
        known(&calls[2], &["face", "toolbox", "server"]),
        json!({"face": "workbench", "toolbox": "dev", "server": "a"})
    );
    let log = lab.run(lab.program(&toolman_path()).args(["log", "--kind", "call", "--json"]));
    assert_eq!(log.stdout.lines().count(), 3, "{log:?}");
    for (filter, count) in [("files", 2), ("a", 1), ("dev/a", 1), ("dev", 0)] {
        let log = verb(&lab, &["log", "--json", "--kind", "call", "--server", filter]);
        assert_eq!(log.stdout.lines().count(), count, "{filter}: {log:?}");
    }
}

#[test]
fn the_directory_stays_within_its_limit() {
    let mut config = journalled(dev("proxy", json!({"a": fake("--with echo")})));
    (config["journalLimit"], config["journalArguments"]) = (json!(1), json!("full"));
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    // Each line has more than 40 kB, so that many files begin.
    for number in 0..60 {
        gateway.use_tool("a", "echo", json!({"number": number, "text": "x".repeat(20_000)})).text();
    }
    let lab = gateway.finish();
    let lengths: Vec<_> =
        files(&lab).iter().map(|file| fs::metadata(file).expect("it is there").len()).collect();
    assert!(lengths.len() > 4 && lengths.iter().all(|length| *length <= 125_000), "{lengths:?}");
    assert!((750_000..=1_000_000).contains(&lengths.iter().sum::<u64>()), "{lengths:?}");
    let numbers: Vec<_> = of_kind(&lab, "call")
        .iter()
        .map(|call| call["arguments"]["number"].as_u64().expect("a number"))
        .collect();
    assert!(numbers.is_sorted() && numbers.last() == Some(&59), "the oldest are gone: {numbers:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn without_a_state_directory_of_its_own_it_stands_in_the_users() {
    let mut lab = Lab::new();
    let config = journalled(dev("proxy", json!({"a": fake("--with echo")})));
    lab.write("workbench-config.json", &lab.fill(&config.to_string()));
    // The specification has an empty variable count as none.
    for (state, calls) in [(None, 1), (Some(""), 2)] {
        let mut gateway = Gateway::run_in(lab, &gateway_path(), |command| {
            match state {
                None => command.env_remove("XDG_STATE_HOME"),
                Some(state) => command.env("XDG_STATE_HOME", state),
            };
        });
        gateway.initialize(VERSION);
        gateway.open("dev");
        gateway.use_tool("a", "echo", "{}").text();
        lab = gateway.finish();
        assert!(lab.dir.join(".local/state/mcp-workbench/journal").is_dir());
        assert!(!lab.dir.join("xdg-state/mcp-workbench/journal").exists());
        let mut log = lab.command();
        log.args(["log", "--kind", "call"]).env_remove("XDG_STATE_HOME");
        let shown = String::from_utf8(log.output().expect("it is built").stdout).expect("UTF-8");
        assert_eq!(shown.lines().count(), calls, "{shown}");
    }
}

#[cfg(unix)]
#[test]
fn files_are_private_and_a_killed_gateway_loses_little() {
    use std::os::unix::fs::PermissionsExt;
    let mut gateway = Gateway::start(journalled(dev("proxy", json!({"a": fake("--with echo")}))));
    gateway.open("dev");
    for _ in 0..20 {
        gateway.use_tool("a", "echo", "{}").text();
    }
    // What is older than this is on the disk.
    std::thread::sleep(std::time::Duration::from_millis(200));
    gateway.ends_by_hand();
    signal(gateway.pid(), "KILL");
    gateway.wait();
    assert_eq!(of_kind(&gateway.lab, "call").len(), 20);
    let mode = |path: PathBuf| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(gateway.lab.dir.join("xdg-state/mcp-workbench/journal")), 0o700);
    assert!(files(&gateway.lab).into_iter().all(|file| mode(file) == 0o600));
}

#[cfg(unix)]
#[test]
fn several_gateways_write_at_the_same_time() {
    let lab = Lab::new();
    let config = journalled(dev("proxy", json!({"a": fake("--with echo")})));
    lab.write("workbench-config.json", &lab.fill(&config.to_string()));
    let mut peers: Vec<_> = (0..3).map(|_| crate::harness::Peer::spawn(&mut lab.command())).collect();
    for peer in &mut peers {
        peer.initialize(VERSION);
        peer.call("open_toolbox", json!({"toolbox_name": "dev"})).text();
    }
    let call = json!({"tool": {"toolbox": "dev", "server": "a", "tool": "echo"}, "arguments": {}});
    for _ in 0..100 {
        let ids: Vec<_> = peers.iter_mut().map(|peer| peer.post_call("use_tool", &call)).collect();
        for (peer, id) in peers.iter_mut().zip(ids) {
            peer.answer(&id).text();
        }
    }
    for peer in &mut peers {
        peer.close();
        assert!(peer.wait().success());
    }
    assert_eq!(of_kind(&lab, "call").len(), 300);
}

#[test]
fn a_disk_that_fails_is_reported_once_and_calls_go_on() {
    let lab = Lab::new();
    fs::create_dir_all(lab.dir.join("xdg-state/mcp-workbench")).expect("the directory is ours");
    let journal = lab.dir.join("xdg-state/mcp-workbench/journal");
    fs::write(&journal, "in the way").expect("the directory is ours");
    let mut gateway =
        Gateway::spawn_with(lab, journalled(dev("proxy", json!({"a": fake("--with echo")}))), |_| ());
    gateway.initialize(VERSION);
    gateway.open("dev");
    gateway.use_tool("a", "echo", "{}").text();
    gateway.stderr_with("the journal in");
    gateway.use_tool("a", "echo", "{}").text();
    fs::remove_file(&journal).expect("it is ours");
    gateway.until("it is written again", |gateway| {
        gateway.use_tool("a", "echo", "{}").text();
        !of_kind(&gateway.lab, "call").is_empty()
    });
    assert_eq!(gateway.stderr().matches("the journal in").count(), 1, "{}", gateway.stderr());
}

/// A place whose journal has these lines.
fn kept(lines: &str) -> Lab {
    let lab = Lab::new();
    let directory = lab.dir.join("xdg-state/mcp-workbench/journal");
    fs::create_dir_all(&directory).expect("the directory is ours");
    fs::write(directory.join("1.jsonl"), lines).expect("the directory is ours");
    lab
}

fn line(second: u32, tool: &str, ms: f64, outcome: &str) -> String {
    format!(
        r#"{{"time":"2026-11-16T10:05:{second:02}.000Z","kind":"call","face":"workbench","pid":1,"client":"c","session":"0123456789abcdef","toolbox":"dev","server":"fs","tool":"{tool}","ms":{ms},"outcome":"{outcome}","bytesIn":2,"bytesOut":10}}"#
    )
}

#[test]
fn log_shows_what_was_asked_for() {
    let later = r#"{"time":"2026-11-16T10:05:05.000Z","kind":"dream","face":"workbench","pid":1}"#;
    let lab = kept(&format!(
        "{}\n{}\n{{\"time\":\"2026-11\n{later}\n{}\n",
        line(3, "write", 7.0, "tool_error"),
        line(1, "read\\u001b[31m", 1.0, "ok"),
        line(9, "read", 2.0, "lost"),
    ));
    let log = verb(&lab, &["log"]);
    assert_eq!(
        log.stdout,
        "2026-11-16T10:05:01.000Z  call    dev/fs  read\\u001b[31m  ok  1.0 ms  10 B  c\n\
         2026-11-16T10:05:03.000Z  call    dev/fs  write  tool_error  7.0 ms  10 B  c\n\
         2026-11-16T10:05:09.000Z  call    dev/fs  read  lost  2.0 ms  10 B  c\n"
    );
    assert_eq!(log.stderr, "warning: 1 line is no line of the journal and was skipped\n");
    for (arguments, seconds) in [
        (&[][..], &[1, 3, 5, 9][..]),
        (&["--last", "2"], &[5, 9]),
        (&["--since", "2026-11-16T10:05:03Z"], &[3, 5, 9]),
        (&["--since", "1s"], &[]),
        (&["--outcome", "lost"], &[9]),
        (&["--tool", "read"], &[9]),
        (&["--tool", "read", "--last", "5", "--outcome", "ok"], &[]),
        (&["--kind", "start"], &[]),
        (&["--server", "fs"], &[1, 3, 9]),
        (&["--server", "dev/fs", "--outcome", "ok"], &[1]),
    ] {
        let log = verb(&lab, &[&["log", "--json"], arguments].concat());
        let times: Vec<u64> = log
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("the journal's own line"))
            .map(|line| line["time"].as_str().expect("a time")[17..19].parse().expect("a number"))
            .collect();
        assert_eq!((times.as_slice(), log.code), (seconds, Some(0)), "{arguments:?}");
    }
    let cut = kept(&format!("{}\n{}", line(1, "read", 1.0, "ok"), &line(2, "read", 1.0, "ok")[..40]));
    for verb_name in ["log", "stats"] {
        let shown = verb(&cut, &[verb_name]);
        assert!(shown.code == Some(0) && shown.stdout.contains("read"), "{shown:?}");
        assert_eq!(
            shown.stderr, "warning: 1 line is no line of the journal and was skipped\n",
            "{verb_name}"
        );
    }
    let same = verb(&lab, &["log", "--json", "--last", "1"]).stdout;
    assert_eq!(same, format!("{}\n", line(9, "read", 2.0, "lost")));
    for wrong in [&["--since", "yesterday"][..], &["--outcome", "good"], &["--kind", "dream"]] {
        let log = verb(&lab, &[&["log"], wrong].concat());
        assert_eq!(log.code, Some(2), "{log:?}");
    }
    let none = Lab::new();
    for arguments in [&["log"][..], &["log", "--json"], &["stats"]] {
        let log = verb(&none, arguments);
        assert_eq!((log.code, log.stdout.as_str()), (Some(0), ""), "{log:?}");
        assert!(
            log.stderr.starts_with("There is no journal") && log.stderr.contains(r#"`"journal": true`"#),
            "{log:?}"
        );
    }
    // The file has it on, and nobody has written anything yet.
    none.write("workbench-config.json", &journalled(dev("dynamic", json!({}))).to_string());
    for verb_name in ["log", "stats"] {
        let log = verb(&none, &[verb_name]);
        assert_eq!((log.code, log.stdout.as_str()), (Some(0), ""), "{log:?}");
        assert!(
            log.stderr.starts_with("The journal is empty") && log.stderr.contains(r#"`"journal": true`"#),
            "{log:?}"
        );
    }
}

/// The verb `call` is one of those who call tools.
#[test]
fn a_call_from_the_shell_stands_in_the_journal() {
    for on in [true, false] {
        let lab = Lab::new();
        let mut config = dev("dynamic", json!({"a": fake("--with echo,error")}));
        config["journal"] = json!(on);
        lab.write("workbench-config.json", &lab.fill(&config.to_string()));
        assert_eq!(verb(&lab, &["list", "tools"]).code, Some(0));
        assert_eq!(lines(&lab), Vec::<Value>::new(), "looking is not calling");
        assert_eq!(verb(&lab, &["call", "dev/a/echo"]).code, Some(0));
        let calls = of_kind(&lab, "call");
        let told: Vec<_> = calls
            .iter()
            .map(|line| known(line, &["client", "toolbox", "server", "tool", "outcome", "token"]))
            .collect();
        let expected = json!({"client": "mcp-workbench", "toolbox": "dev", "server": "a", "tool": "echo", "outcome": "ok", "token": null});
        assert_eq!(told, if on { vec![expected] } else { Vec::new() });
    }
}

#[test]
fn stats_count_by_server_and_by_tool() {
    let lines: String = (1..=20).map(|n| line(n, "read", f64::from(n), "ok") + "\n").collect();
    let lab = kept(&format!("{lines}{}\n", line(30, "write", 100.0, "error")));
    let stats: Value = serde_json::from_str(&verb(&lab, &["stats", "--json"]).stdout).expect("one value");
    let row = |tool: Option<&str>, calls: u32, errors: u32, p: [f64; 3], bytes: u32| {
        let mut row = json!({"toolbox": "dev", "server": "fs", "calls": calls, "errors": errors, "p50": p[0], "p95": p[1], "p99": p[2], "bytesOut": bytes});
        if let Some(tool) = tool {
            row["tool"] = tool.into();
        }
        row
    };
    assert_eq!(
        stats,
        json!({
            "calls": 21, "errors": 1,
            "servers": [row(None, 21, 1, [11.0, 20.0, 100.0], 210)],
            "tools": [row(Some("read"), 20, 0, [10.0, 19.0, 20.0], 200), row(Some("write"), 1, 1, [100.0; 3], 10)],
        })
    );
    let since: Value =
        serde_json::from_str(&verb(&lab, &["stats", "--json", "--since", "1h"]).stdout).expect("one value");
    assert_eq!(since["calls"], 0, "{since}");
    let text = verb(&lab, &["stats"]).stdout;
    assert!(text.starts_with("21 calls, 1 error\n"), "{text}");
    assert!(text.contains("dev/fs/read"), "{text}");
}

#[test]
fn log_follows_what_happens() {
    let mut gateway = Gateway::start(journalled(dev("proxy", json!({"a": fake("--with echo")}))));
    gateway.open("dev");
    let mut follow = gateway.lab.command();
    follow.args(["log", "--follow", "--json", "--kind", "call"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut follow = follow.stderr(Stdio::null()).spawn().expect("it is built");
    let mut out = BufReader::new(follow.stdout.take().expect("piped"));
    for n in 0..3 {
        gateway.use_tool("a", "echo", "{}").text();
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let line: Value = serde_json::from_str(&line).expect("the journal's own line");
        assert_eq!(line["tool"], "echo", "{n}: {line}");
    }
    follow.kill().expect("it runs");
    follow.wait().expect("it is ours");
}

#[cfg(unix)]
#[test]
fn the_daemon_writes_it_too() {
    let mut config = journalled(dev("dynamic", json!({"a": fake("--with echo")})));
    config["daemon"] = json!(true);
    let lab = Lab::new();
    lab.write("workbench-config.json", &lab.fill(&config.to_string()));
    let mut command = lab.command();
    let mut peer = crate::harness::Peer::spawn(command.env("XDG_RUNTIME_DIR", &lab.dir));
    peer.initialize(VERSION);
    peer.call("open_toolbox", json!({"toolbox_name": "dev"})).text();
    peer.call("dev__a__echo", "{}").text();
    let calls = until(&lab, "written", |lines| lines.iter().any(|line| line["kind"] == "call"));
    let call = calls.iter().find(|line| line["kind"] == "call").expect("it is there");
    assert_ne!(call["pid"], peer.pid(), "the daemon's");
    peer.close();
    peer.wait();
    let stopped = lab.run(lab.command().env("XDG_RUNTIME_DIR", &lab.dir).arg("stop"));
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    lab.wait_until_gone(DEADLINE);
    assert_eq!(of_kind(&lab, "end").len(), 1);
}
