//! An upstream whose process ends.

use serde_json::json;

use crate::harness::{Gateway, TOOLS_CHANGED, dev, fake};

fn opened(mode: &str) -> Gateway {
    let flags = "--with echo,slow,started,crash,report,requests";
    let servers = json!({"a": fake(&format!("{flags} --count @dir/a")), "b": fake(flags)});
    let mut gateway = Gateway::start(dev(mode, servers));
    gateway.open("dev");
    if mode == "dynamic" {
        gateway.notification(TOOLS_CHANGED);
    }
    gateway
}

#[test]
fn calls_in_flight_fail_at_once_and_once_with_the_last_stderr_lines() {
    for mode in ["dynamic", "proxy"] {
        let mut gateway = opened(mode);
        let waiting: Vec<String> =
            (0..3).map(|n| gateway.post_use_tool("a", "slow", json!({"key": n.to_string()}))).collect();
        for n in 0..3 {
            gateway.use_tool("a", "started", json!({"key": n.to_string()}));
        }
        let text = gateway
            .use_tool("a", "crash", json!({"code": 3, "stderr": ["first line", "out of cheese"]}))
            .failure();
        assert!(text.starts_with("[dev/a/crash] "), "{mode}: {text}");
        assert!(text.contains("out of cheese"), "{mode}: {text}");
        for call in &waiting {
            let text = gateway.answer(call).failure();
            assert!(text.starts_with("[dev/a/slow] "), "{mode}: {text}");
        }
        assert!(!gateway.has(|message| waiting.contains(&message.id())), "{mode}: each fails once");
    }
}

#[test]
fn its_items_leave_the_view_and_nothing_else_notices() {
    let mut gateway = opened("dynamic");
    let other = gateway.pid_of("b");
    gateway.use_tool("a", "crash", "{}").failure();
    gateway.notification(TOOLS_CHANGED);
    let tools = gateway.tools();
    assert!(!tools.iter().any(|name| name.starts_with("dev__a__")), "{tools:?}");
    assert_eq!(tools.len(), 7);
    assert_eq!(gateway.pid_of("b"), other);
}

#[test]
fn the_next_call_to_one_of_its_tools_starts_it_again() {
    for registered in [true, false] {
        let mut gateway = opened("dynamic");
        let before = gateway.pid_of("a");
        gateway.use_tool("a", "crash", "{}").failure();
        gateway.notification(TOOLS_CHANGED);
        let answer = match registered {
            true => gateway.call("dev__a__report", "{}"),
            false => gateway.use_tool("a", "report", "{}"),
        };
        assert_ne!(answer.json()["pid"], before);
        gateway.notification(TOOLS_CHANGED);
        assert_eq!(gateway.tools().len(), 13);
        assert_eq!(gateway.lab.starts("a"), 2);
    }
}

#[test]
fn many_calls_after_the_crash_start_it_once() {
    let mut gateway = opened("proxy");
    gateway.use_tool("a", "crash", "{}").failure();
    let calls: Vec<String> = (0..20).map(|_| gateway.post_use_tool("a", "echo", "{}")).collect();
    for call in calls {
        gateway.answer(&call).text();
    }
    assert_eq!(gateway.lab.starts("a"), 2);
}

#[test]
fn the_next_open_starts_it_again() {
    for mode in ["dynamic", "proxy"] {
        let mut gateway = opened(mode);
        let other = gateway.pid_of("b");
        gateway.use_tool("a", "crash", "{}").failure();
        assert_eq!(gateway.open("dev")["servers_connected"], 2, "{mode}");
        assert_eq!(gateway.lab.starts("a"), 2, "{mode}");
        assert_eq!(gateway.pid_of("b"), other, "{mode}");
        gateway.use_tool("a", "echo", "{}").text();
    }
}

#[test]
fn a_call_that_was_written_is_never_replayed() {
    let mut gateway = opened("proxy");
    gateway.use_tool("a", "crash", "{}").failure();
    let requests = gateway.use_tool("a", "requests", json!({"method": "tools/call"})).json();
    assert_eq!(requests.as_array().map(Vec::len), Some(1), "the new process has seen this call only");
}

#[test]
fn an_answer_that_was_given_before_the_end_is_delivered() {
    let mut gateway = opened("proxy");
    assert_eq!(gateway.use_tool("a", "crash", json!({"answer": true})).text(), "crash");
    gateway.until("it runs again", |gateway| !gateway.use_tool("a", "echo", "{}").is_error());
}

#[test]
fn in_proxy_mode_the_clients_list_stays() {
    let mut gateway = opened("proxy");
    gateway.use_tool("a", "crash", "{}").failure();
    assert_eq!(gateway.tools(), ["open_toolbox", "use_tool"]);
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
}

#[cfg(unix)]
#[test]
fn what_it_spawned_does_not_survive_it() {
    let servers = json!({"a": fake("--with crash --stubborn 3"), "b": fake("--with echo --stubborn 1")});
    let mut gateway = Gateway::start(dev("proxy", servers));
    gateway.open("dev");
    let descendants = |gateway: &mut Gateway| {
        gateway.lab.processes().iter().filter(|(_, line)| line.contains("--stubborn-descendant")).count()
    };
    assert_eq!(descendants(&mut gateway), 8);
    gateway.use_tool("a", "crash", "{}").failure();
    gateway.until("its descendants are gone", |gateway| descendants(gateway) == 2);
    gateway.use_tool("b", "echo", "{}").text();
}
