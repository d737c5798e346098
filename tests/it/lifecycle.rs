//! When upstreams start, how often, and what their failing does.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, Lab, TOOLS_CHANGED, VERSION, dev, fake, fake_with};

const OPEN_DEV: &str = r#"{"toolbox_name":"dev"}"#;

#[test]
fn no_upstream_is_started_before_a_toolbox_is_opened() {
    for mode in ["dynamic", "proxy"] {
        let mut gateway = Gateway::start(dev(mode, json!({"a": fake("--with echo --count @dir/starts")})));
        gateway.tools();
        gateway.request("resources/list", "{}");
        gateway.request("prompts/list", "{}");
        gateway.call("dev__a__echo", "{}").failure();
        assert_eq!(gateway.lab.starts("starts"), 0);
        gateway.open("dev");
        assert_eq!(gateway.lab.starts("starts"), 1);
    }
}

#[test]
fn opening_starts_only_its_own_toolbox() {
    let mut gateway = Gateway::start(json!({"toolboxes": {
        "dev": {"mcpServers": {"a": fake("--with echo --count @dir/dev")}},
        "ops": {"mcpServers": {"a": fake("--with echo --count @dir/ops")}}
    }}));
    gateway.open("ops");
    assert_eq!((gateway.lab.starts("dev"), gateway.lab.starts("ops")), (0, 1));
    gateway.open("dev");
    assert_eq!((gateway.lab.starts("dev"), gateway.lab.starts("ops")), (1, 1), "each has its own connection");
}

#[test]
fn opening_connects_to_all_servers_at_the_same_time() {
    // Each comes up only when the others have been started.
    let mut gateway = Gateway::start(dev(
        "dynamic",
        json!({
            "a": fake("--tools 1 --count @dir/a --wait-for @dir/c"),
            "b": fake("--tools 1 --count @dir/b --wait-for @dir/a"),
            "c": fake("--tools 1 --count @dir/c --wait-for @dir/b"),
        }),
    ));
    assert_eq!(gateway.open("dev")["servers_connected"], 3);
}

#[test]
fn opening_again_is_idempotent() {
    for mode in ["dynamic", "proxy"] {
        let entry = fake("--with report --count @dir/starts");
        let mut gateway = Gateway::start(dev(mode, json!({"a": entry})));
        let first = gateway.open("dev");
        let pid = gateway.pid_of("a");
        assert_eq!(gateway.open("dev"), first, "{mode}");
        assert_eq!(gateway.pid_of("a"), pid, "{mode}");
        assert_eq!(gateway.lab.starts("starts"), 1, "{mode}");
        let told = usize::from(mode == "dynamic");
        assert_eq!(gateway.count(TOOLS_CHANGED), told, "{mode}");
    }
}

#[test]
fn twenty_opens_at_once_start_each_server_once() {
    let entry = fake("--tools 3 --count @dir/starts --delay 50");
    let mut gateway = Gateway::start(dev("dynamic", json!({"a": entry})));
    let opens: Vec<String> = (0..20).map(|_| gateway.post_call("open_toolbox", OPEN_DEV)).collect();
    for open in opens {
        assert_eq!(gateway.answer(&open).json()["tools_registered"], 3);
    }
    assert_eq!(gateway.lab.starts("starts"), 1);
    assert_eq!(gateway.count(TOOLS_CHANGED), 1);
}

#[test]
fn a_servers_tools_can_be_called_while_others_still_start() {
    let mut gateway = Gateway::start(dev(
        "proxy",
        json!({"a": fake("--with echo"), "late": fake("--tools 1 --wait-for @dir/go")}),
    ));
    let open = gateway.post_call("open_toolbox", OPEN_DEV);
    gateway.until("the first can be called", |gateway| !gateway.use_tool("a", "echo", "{}").is_error());
    gateway.lab.write("go", "");
    assert_eq!(gateway.answer(&open).json()["servers_connected"], 2);
}

#[test]
fn the_gateway_answers_while_a_toolbox_opens() {
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake("--tools 1 --wait-for @dir/go")})));
    let open = gateway.post_call("open_toolbox", OPEN_DEV);
    gateway.fence();
    assert_eq!(gateway.tools(), ["open_toolbox", "use_tool"]);
    gateway.lab.write("go", "");
    assert_eq!(gateway.answer(&open).json()["servers_connected"], 1);
}

#[test]
fn servers_that_failed_are_tried_again_and_servers_that_run_are_left_alone() {
    let servers = json!({
        "a": fake("--with report --count @dir/a"),
        "b": fake("--with echo --fail-while @dir/broken")
    });
    let lab = Lab::new();
    lab.write("broken", "");
    let mut gateway = Gateway::spawn_with(lab, dev("dynamic", servers), |_| ());
    gateway.initialize(VERSION);
    let opened = gateway.open("dev");
    assert_eq!(opened["servers_connected"], 1);
    assert!(opened["_errors"][0].as_str().expect("a text").contains("told to fail"), "{opened}");
    let pid = gateway.pid_of("a");
    std::fs::remove_file(gateway.lab.dir.join("broken")).expect("it is there");
    let opened = gateway.open("dev");
    assert_eq!(opened["servers_connected"], 2);
    assert!(opened.get("_errors").is_none(), "{opened}");
    assert_eq!(gateway.pid_of("a"), pid);
    assert_eq!(gateway.lab.starts("a"), 1);
    gateway.call("dev__b__echo", "{}").text();
}

#[test]
fn toolboxes_are_independent() {
    let mut gateway = Gateway::start(json!({"toolMode": "proxy", "toolboxes": {
        "dev": {"mcpServers": {"a": fake("--with report")}},
        "bad": {"mcpServers": {"a": fake("--exit 1"), "b": fake("--exit 2")}}
    }}));
    gateway.open("dev");
    let pid = gateway.pid_of("a");
    gateway.call("open_toolbox", r#"{"toolbox_name":"bad"}"#).failure();
    assert_eq!(gateway.pid_of("a"), pid);
}

#[test]
fn after_two_failures_attempts_are_spaced_and_refused_at_once_in_between() {
    let entry = fake_with("--exit 9 --count @dir/starts", &["--stderr", "database is down"]);
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
    let open = |gateway: &mut Gateway| gateway.call("open_toolbox", OPEN_DEV).failure();
    open(&mut gateway);
    let after_first = gateway.lab.starts("starts");
    assert!(after_first >= 1);
    open(&mut gateway);
    let after_second = gateway.lab.starts("starts");
    assert!(after_second > after_first, "the first new attempt is immediate");
    let text = open(&mut gateway);
    assert_eq!(gateway.lab.starts("starts"), after_second, "no attempt in between");
    assert!(text.contains("database is down"), "the last reason: {text}");
    assert!(text.contains(" s") && text.contains(|c: char| c.is_ascii_digit()), "the time left: {text}");
}

#[test]
fn a_server_that_dies_at_once_is_not_started_over_and_over() {
    let entry = fake("--exit 9 --count @dir/starts");
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
    for _ in 0..200 {
        gateway.call("open_toolbox", OPEN_DEV).failure();
    }
    let starts = gateway.lab.starts("starts");
    assert!((2..=8).contains(&starts), "{starts} starts");
}

#[test]
fn a_server_that_ends_after_the_handshake_fails_the_open_and_can_be_tried_again() {
    let entry = fake("--with echo --exit-after-handshake --count @dir/starts");
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
    let text = gateway.call("open_toolbox", OPEN_DEV).failure();
    assert!(text.contains("'a'") && text.contains('7'), "the exit status: {text}");
    gateway.call("open_toolbox", OPEN_DEV).failure();
    assert!(gateway.lab.starts("starts") >= 2);
}

#[test]
fn a_server_that_came_back_is_tried_after_the_pause() {
    let lab = Lab::new();
    lab.write("broken", "");
    let entry = fake("--with echo --fail-while @dir/broken");
    let mut gateway = Gateway::spawn_with(lab, dev("proxy", json!({"a": entry})), |_| ());
    gateway.initialize(VERSION);
    for _ in 0..3 {
        gateway.call("open_toolbox", OPEN_DEV).failure();
    }
    std::fs::remove_file(gateway.lab.dir.join("broken")).expect("it is there");
    gateway.until("it is tried again", |gateway| !gateway.call("open_toolbox", OPEN_DEV).is_error());
}

#[test]
fn a_call_past_its_idle_timeout_fails_and_is_cancelled_upstream() {
    for key in ["callTimeout", "maxCallTime"] {
        let mut entry = fake("--with slow,received,echo");
        entry[key] = json!(0.4);
        let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
        gateway.open("dev");
        let text = gateway.use_tool("a", "slow", "{}").failure();
        assert!(text.starts_with("[dev/a/slow] "), "{key}: {text}");
        let arguments = json!({"method": "notifications/cancelled", "count": 1});
        let received = gateway.use_tool("a", "received", arguments).json();
        assert_eq!(received.as_array().map(Vec::len), Some(1), "{key}");
        gateway.use_tool("a", "echo", "{}").text();
    }
}

/// A call of `progress` with a token, in the toolbox `dev`.
fn progress(server: &str, arguments: Value) -> Value {
    let tool = json!({"toolbox": "dev", "server": server, "tool": "progress"});
    json!({
        "name": "use_tool", "arguments": {"tool": tool, "arguments": arguments}, "_meta": {"progressToken": 1}
    })
}

#[test]
fn progress_extends_the_idle_timeout_and_not_the_absolute_one() {
    let mut idle = fake("--with progress");
    idle["callTimeout"] = json!(1);
    let mut absolute = fake("--with progress");
    absolute["maxCallTime"] = json!(1);
    let mut gateway = Gateway::start(dev("proxy", json!({"absolute": absolute, "idle": idle})));
    gateway.open("dev");
    let steps = json!({"n": 10, "ms": 200});
    let calls =
        ["idle", "absolute"].map(|server| gateway.post("tools/call", progress(server, steps.clone())));
    assert_eq!(gateway.answer(&calls[0]).text(), "progress");
    let text = gateway.answer(&calls[1]).failure();
    assert!(text.starts_with("[dev/absolute/progress] "), "{text}");
}

#[test]
fn a_question_pauses_the_idle_timeout() {
    let mut asking = fake("--with ask");
    asking["callTimeout"] = json!(0.5);
    let mut gateway = Gateway::spawn(dev("proxy", json!({"asking": asking, "clock": fake("--with slow")})));
    gateway.initialize_with(VERSION, r#"{"elicitation":{}}"#);
    gateway.open("dev");
    let call =
        gateway.post_use_tool("asking", "ask", json!({"method": "elicitation/create", "params": "{}"}));
    let question = gateway.question("elicitation/create");
    gateway.use_tool("clock", "slow", json!({"ms": 1500})).text();
    gateway.reply(&question, r#""result":{"action":"accept"}"#);
    assert_eq!(gateway.answer(&call).json()["result"]["action"], "accept");
}

#[test]
fn a_question_that_is_withdrawn_leaves_its_call_the_whole_idle_time() {
    let idle = Duration::from_secs(1);
    let mut asking = fake("--with ask,notify");
    asking["callTimeout"] = json!(idle.as_secs());
    let mut gateway = Gateway::spawn(dev("proxy", json!({"asking": asking, "clock": fake("--with slow")})));
    gateway.initialize_with(VERSION, r#"{"elicitation":{}}"#);
    gateway.open("dev");
    let call =
        gateway.post_use_tool("asking", "ask", json!({"method": "elicitation/create", "params": "{}"}));
    gateway.question("elicitation/create");
    gateway.use_tool("clock", "slow", json!({"ms": 1500})).text();
    let withdrawn = Instant::now();
    // The fake numbers its questions from 1.
    let params = json!({"method": "notifications/cancelled", "params": r#"{"requestId":1}"#});
    gateway.use_tool("asking", "notify", params).text();
    let text = gateway.answer(&call).failure();
    assert!(text.starts_with("[dev/asking/ask] ") && withdrawn.elapsed() >= idle, "{text}");
}

#[test]
fn a_list_without_end_runs_into_the_deadline() {
    let mut entry = fake_with("", &["--result", r#"tools/list={"tools":[],"nextCursor":"again"}"#]);
    entry["connectTimeout"] = json!(0.5);
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
    let text = gateway.call("open_toolbox", OPEN_DEV).failure();
    assert!(text.contains("'a'"), "{text}");
}

#[test]
fn a_list_that_is_not_answered_does_not_keep_later_changes_away() {
    for limit in ["callTimeout", "connectTimeout"] {
        let mut entry = fake("--with change,received --hang tools/list#2");
        entry[limit] = json!(1);
        let mut gateway = Gateway::start(dev("dynamic", json!({"a": entry})));
        gateway.open("dev");
        gateway.notification(TOOLS_CHANGED);
        let add = |name: &str| json!({"add": [format!(r#"{{"name":"{name}","inputSchema":{{}}}}"#)]});
        gateway.call("dev__a__change", add("first")).text();
        let cancelled = json!({"method": "notifications/cancelled", "count": 1});
        // With callTimeout this call may be cancelled as well; it has seen then what it waits for.
        gateway.until("the list is given up", |gateway| {
            !gateway.use_tool("a", "received", &cancelled).is_error()
        });
        gateway.call("dev__a__change", add("second")).text();
        gateway.notification(TOOLS_CHANGED);
        let tools = gateway.tools();
        assert_eq!(tools[3..], ["dev__a__first", "dev__a__second"], "{limit}: {tools:?}");
    }
}

#[test]
fn a_command_that_is_not_found_says_where_it_was_looked_for() {
    let mut gateway = Gateway::start(dev("proxy", json!({"a": {"command": "no-such-program-at-all"}})));
    let text = gateway.call("open_toolbox", OPEN_DEV).failure();
    assert!(text.contains("no-such-program-at-all") && text.contains("PATH"), "{text}");
}

#[cfg(unix)]
#[test]
fn a_bare_command_is_never_a_file_of_the_working_directory() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    let program = lab.write("wb-local-program", "#!/bin/sh\ntouch executed\n");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = format!(".:{}", std::env::var("PATH").unwrap_or_default());
    let mut gateway =
        Gateway::spawn_with(lab, dev("proxy", json!({"a": {"command": "wb-local-program"}})), |command| {
            command.env("PATH", path);
        });
    gateway.initialize(VERSION);
    gateway.call("open_toolbox", OPEN_DEV).failure();
    assert!(!gateway.lab.dir.join("executed").exists());
}

#[test]
fn ten_toolboxes_of_five_servers_open_together_and_answer_correctly() {
    let toolboxes: serde_json::Map<String, Value> = (0..10)
        .map(|t| {
            let servers: serde_json::Map<String, Value> =
                (0..5).map(|s| (format!("s{s}"), fake("--tools 20"))).collect();
            (format!("t{t}"), json!({"mcpServers": servers}))
        })
        .collect();
    let mut gateway = Gateway::start(json!({"toolboxes": toolboxes}));
    let opens: Vec<String> = (0..10)
        .map(|t| gateway.post_call("open_toolbox", json!({"toolbox_name": format!("t{t}")})))
        .collect();
    for open in opens {
        assert_eq!(gateway.answer(&open).json()["tools_registered"], 100);
    }
    let mut names = gateway.tools();
    assert_eq!(names.len(), 1001);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 1001);
    let calls: Vec<(String, String)> = (0..10)
        .flat_map(|t| (0..5).map(move |s| (t, s)))
        .map(|(t, s)| {
            let mark = format!("{t}/{s}");
            (gateway.post_call(&format!("t{t}__s{s}__tool-20"), json!({"mark": mark})), mark)
        })
        .collect();
    for (call, mark) in calls {
        assert_eq!(gateway.answer(&call).json()["arguments"]["mark"], *mark);
    }
}
