//! What becomes of sessions when the daemon dies.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{
    Den, daemon, dev, ended, leave, leave_all, modern_call, open, recover, report, servers, sessions,
    wait_until_dead,
};
use crate::client::Remote;
use crate::harness::{
    DEADLINE, PROMPTS_CHANGED, Peer, RESOURCES_CHANGED, TOOLS_CHANGED, VERSION, fake, gateway_path, server,
    signal,
};

#[test]
fn a_killed_daemon_costs_the_calls_in_flight_and_nothing_else() {
    let den = Den::new(&daemon(json!({
        "dev": {"mcpServers": {"a": fake("--with echo,never,report,slow,started --resources 1")}},
        "more": {"mcpServers": {"b": fake("--tools 1 --stubborn 1")}},
    })));
    let mut peer = den.session();
    open(&mut peer, "dev");
    open(&mut peer, "more");
    let uri = "workbench://dev/a/fake://resource/1";
    peer.request("resources/subscribe", json!({ "uri": uri })).result();
    peer.request("logging/setLevel", r#"{"level":"error"}"#).result();
    let tools = peer.tools();
    peer.count(TOOLS_CHANGED);
    peer.count(RESOURCES_CHANGED);
    peer.count(PROMPTS_CHANGED);
    let call = peer.post_call("dev__a__never", "{}");
    let read = peer.post("resources/list", "{}");
    peer.answer(&read);
    let cancelled = peer.post_call("dev__a__never", "{}");
    peer.notify("notifications/cancelled", json!({"requestId": cancelled.parse::<u64>().expect("a number")}));
    peer.fence();
    let daemon = den.daemon_pid();
    let killed = Instant::now();
    signal(daemon, "KILL");
    let answer = peer.answer(&call);
    assert!(killed.elapsed() < Duration::from_secs(1) && ended(&answer) && answer.is_error(), "{answer:?}");
    assert!(answer.text_block(0).contains("may or may not have taken effect"), "{answer:?}");
    // The next request starts a new daemon, in which all is as it was.
    assert_eq!(peer.tools(), tools);
    assert_ne!(den.daemon_pid(), daemon);
    assert!(!peer.has(|message| message.id() == cancelled), "nobody wants that answer");
    let told = report(&mut peer, "a");
    assert_eq!(
        (&told["subscriptions"], &told["level"]),
        (&json!(["fake://resource/1"]), &json!({"level": "error"})),
        "{told}"
    );
    assert!(!peer.call("more__b__tool-1", r#"{"x":1}"#).is_error());
    for method in [TOOLS_CHANGED, RESOURCES_CHANGED, PROMPTS_CHANGED] {
        assert!(peer.count(method) <= 1, "{method}");
    }
    leave(peer);
}

#[test]
fn a_death_before_and_during_the_handshake_is_not_seen() {
    let den = Den::new(&dev(json!({"a": fake("--tools 1")})));
    let mut peer = den.spawn();
    den.until("its session", |now| sessions(now) == 1);
    den.kill_daemon();
    let hello = format!(
        r#"{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}"#
    );
    // The relay may not have noticed the death yet: then `initialize` is sent again.
    let answer = peer.request("initialize", &hello);
    assert_eq!(answer.result()["protocolVersion"], VERSION);
    // Half of a line is read with the line before it, the daemon dies, and the other half follows.
    peer.send_bytes(
        br#"{"jsonrpc":"2.0","id":"before","method":"ping"}
{"jsonrpc":"2.0","id":"whole","method":"tools/call","params":{"name":"open_toolbox",""#,
    );
    peer.answer("\"before\"");
    den.kill_daemon();
    peer.send_bytes(b"arguments\":{\"toolbox_name\":\"dev\"}}}\n");
    assert_eq!(peer.answer("\"whole\"").json()["tools_registered"], 1, "the next daemon has the whole line");
    leave(peer);
}

/// A relay that is held up finds, all at once, a dead daemon and requests that came before and after the death.
#[test]
fn what_was_sent_before_the_death_was_noticed_is_answered_once() {
    let den = Den::new(&dev(json!({"a": fake("--with echo,never")})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    let before = peer.post_call("dev__a__never", "{}");
    peer.fence();
    peer.signal("STOP");
    let between: Vec<_> = (0..20).map(|_| peer.post_call("dev__a__echo", "{}")).collect();
    let pid = den.kill_daemon();
    let after: Vec<_> = (0..20).map(|_| peer.post_call("dev__a__echo", "{}")).collect();
    peer.signal("CONT");
    assert!(ended(&peer.answer(&before)));
    for call in between.iter().chain(&after) {
        let answer = peer.answer(call);
        assert!(ended(&answer) || !answer.is_error(), "{answer:?}");
    }
    peer.fence();
    assert!(
        peer.left().iter().all(|message| message.id().is_empty()),
        "each has one answer: {:?}",
        peer.left()
    );
    assert_ne!(den.daemon_pid(), pid);
    leave(peer);
}

#[test]
fn open_questions_are_withdrawn_and_their_ids_stay_unused() {
    let den = Den::new(&dev(json!({"a": fake("--with ask")})));
    let mut peer = Peer::spawn(&mut den.command());
    peer.initialize_with(VERSION, r#"{"roots":{}}"#);
    open(&mut peer, "dev");
    let call = peer.post_call("dev__a__ask", r#"{"method":"roots/list"}"#);
    let question = peer.question("roots/list");
    den.kill_daemon();
    let withdrawn = peer.notification("notifications/cancelled");
    assert_eq!(withdrawn.at(&["params", "requestId"]), question.id());
    assert!(ended(&peer.answer(&call)));
    // A late answer is for nobody; the next question has another id.
    peer.reply(&question, r#""result":{"roots":[]}"#);
    let call = peer.post_call("dev__a__ask", r#"{"method":"roots/list"}"#);
    let next = peer.question("roots/list");
    assert!(next.id().parse::<u64>().expect("a number") > question.id().parse().expect("a number"));
    peer.reply(&next, r#""result":{"roots":[]}"#);
    assert!(peer.answer(&call).text().contains("roots"));
    leave(peer);
}

#[test]
fn after_the_third_death_within_a_minute_a_session_goes_on_alone() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    for _ in 0..3 {
        assert!(report(&mut peer, "a")["pid"].is_u64());
        den.kill_daemon();
        recover(&mut peer);
    }
    assert!(report(&mut peer, "a")["pid"].is_u64(), "the toolbox is open as before");
    assert!(peer.stderr_with("no daemon: ").contains("3 times within a minute"));
    assert!(den.status()["daemon"].is_null(), "it needs none");
    leave(peer);
    assert_eq!(den.servers_of(), 0);
}

#[test]
fn toolman_answers_in_its_own_shape_and_goes_on_as_it_was() {
    let flags = "--with report,never,echo --resources 2 --prompts 1 --hang resources/read";
    let den = Den::toolman(&server("a", flags, ""));
    let mut peer = den.toolman_session();
    let switch =
        r#"{"tools_on":[],"tools_off":["a_echo"],"resources_on":[],"resources_off":["a_fake://resource/2"]}"#;
    peer.call("toolman_activate", switch).text();
    let resource = r#"{"uri":"a_fake://resource/1"}"#;
    peer.request("resources/subscribe", resource).result();
    peer.request("logging/setLevel", r#"{"level":"error"}"#).result();
    let lists = |peer: &mut Peer| {
        ["tools/list", "resources/list", "prompts/list"].map(|method| peer.request(method, "{}").result())
    };
    let shown = lists(&mut peer);
    let names = peer.tools();
    assert_eq!(names, ["toolman_activate", "a_report", "a_never"]);
    assert_eq!(shown[1]["resources"].as_array().map(Vec::len), Some(1), "{}", shown[1]);
    let kinds = [TOOLS_CHANGED, RESOURCES_CHANGED, PROMPTS_CHANGED];
    for method in kinds {
        peer.count(method);
    }
    let call = peer.post_call("a_never", "{}");
    let read = peer.post("resources/read", resource);
    peer.fence();
    den.kill_daemon();
    let call = peer.answer(&call).result();
    let read = peer.answer(&read);
    assert_eq!(read.error_code(), -32603, "{read:?}");
    let read = read.value()["error"].take();
    assert_eq!(read["data"]["error"], read["message"], "{read}");
    assert_eq!(call["isError"], true, "{call}");
    for shape in [&call["structuredContent"], &read["data"]] {
        let words = shape["error"].as_str().unwrap_or_default();
        assert!(words.starts_with("The daemon ended before it answered"), "{shape}");
        assert!(words.contains("may or may not have taken effect"), "{shape}");
        assert_eq!((&shape["success"], &shape["result"]), (&json!(false), &json!(null)), "{shape}");
    }
    assert_eq!(lists(&mut peer), shown);
    let told = peer.call("a_report", "{}").json();
    assert_eq!(
        (&told["subscriptions"], &told["level"]),
        (&json!(["fake://resource/1"]), &json!({"level": "error"})),
        "{told}"
    );
    assert_eq!(lists(&mut peer), shown);
    for method in kinds {
        assert!(peer.count(method) <= 1, "{method}");
    }
    leave(peer);
}

/// Its server lives elsewhere, so that it remembers what the dead daemon sent.
#[test]
fn nothing_is_sent_twice() {
    let remote = Remote::start("--with never,echo,requests --resources 1 --hang resources/read");
    let den = Den::new(&dev(json!({"a": {"url": remote.url()}})));
    let mut peers = [den.session(), den.session()];
    let (mut marks, mut posted) = (0, Vec::new());
    let mut post = |peer: &mut Peer, tool: &str| {
        marks += 1;
        peer.post_call(&format!("dev__a__{tool}"), json!({"mark": format!("mark {marks}")}))
    };
    for peer in &mut peers {
        open(peer, "dev");
        let mut ids: Vec<_> = (0..10).map(|_| post(peer, "never")).collect();
        ids.push(peer.post("resources/read", r#"{"uri":"workbench://dev/a/fake://resource/1"}"#));
        posted.push(ids);
    }
    let mut watcher = den.session();
    open(&mut watcher, "dev");
    // How often the server was sent what holds each of these words.
    let mut times = |words: &[String]| -> Vec<usize> {
        recover(&mut watcher);
        let seen = watcher.call("dev__a__requests", "{}").text();
        words.iter().map(|word| seen.matches(&format!("\"{word}\"")).count()).collect()
    };
    let mut words: Vec<_> = (1..=20).map(|mark| format!("mark {mark}")).collect();
    words.push("resources/read".to_owned());
    let mut all = vec![1; 20];
    all.push(2);
    let end = Instant::now() + DEADLINE;
    while times(&words) != all {
        assert!(Instant::now() < end, "not all were sent once: {:?}", times(&words));
    }
    // One relay notices the death late, and finds requests from before and after it.
    peers[1].signal("STOP");
    posted[1].extend((0..10).map(|_| post(&mut peers[1], "echo")));
    den.kill_daemon();
    posted[1].extend((0..10).map(|_| post(&mut peers[1], "echo")));
    peers[1].signal("CONT");
    for (peer, ids) in peers.iter_mut().zip(&posted) {
        ids.iter().for_each(|id| drop(peer.answer(id)));
        recover(peer);
        assert!(!peer.call("dev__a__echo", "{}").is_error());
    }
    assert_eq!(times(&words), all);
    let words: Vec<_> = (21..=40).map(|mark| format!("mark {mark}")).collect();
    assert!(times(&words).iter().all(|times| *times <= 1), "{:?}", times(&words));
    leave(watcher);
    leave_all(peers.into());
}

#[test]
fn a_killed_daemon_with_many_calls_in_flight_leaves_nothing_and_nobody_behind() {
    let den = Den::new(&dev(json!({"a": fake("--with never,echo --stubborn 1")})));
    let mut peers: Vec<_> = (0..20).map(|_| den.session()).collect();
    let mut posted = Vec::new();
    for peer in &mut peers {
        open(peer, "dev");
        posted.push((0..5).map(|_| peer.post_call("dev__a__never", "{}")).collect::<Vec<_>>());
        peer.fence();
    }
    let pid = den.kill_daemon();
    let killed = Instant::now();
    for (peer, calls) in peers.iter_mut().zip(&posted) {
        for call in calls {
            assert!(ended(&peer.answer(call)));
        }
    }
    let answered = killed.elapsed();
    for peer in &mut peers {
        assert!(!peer.call("dev__a__echo", "{}").is_error());
    }
    let worked = killed.elapsed();
    assert!(answered < Duration::from_secs(4) && worked < Duration::from_secs(15), "{answered:?} {worked:?}");
    assert_ne!(den.daemon_pid(), pid);
    let daemons = den.lab.processes().into_iter().filter(|(_, line)| line.contains("daemon-process")).count();
    assert_eq!(daemons, 1);
    leave_all(peers);
}

#[test]
fn a_program_that_was_removed_or_replaced_still_finds_its_next_daemon_and_goes_on_alone() {
    for replaced in [false, true] {
        let den = Den::new(&dev(json!({"a": fake("--with report")})));
        let copy = den.lab.dir.join("mcp-workbench-copy");
        fs::copy(gateway_path(), &copy).expect("the directory is ours");
        let mut peer = Peer::spawn(&mut den.program(&copy));
        peer.initialize(VERSION);
        open(&mut peer, "dev");
        fs::remove_file(&copy).expect("it is ours");
        if replaced {
            fs::write(&copy, "#!/bin/sh\nexit 1\n").expect("the directory is ours");
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        den.kill_daemon();
        recover(&mut peer);
        assert!(report(&mut peer, "a")["pid"].is_u64(), "replaced: {replaced}");
        assert_eq!(peer.stderr(), "", "replaced: {replaced}");
        // The third death leaves it alone, and its servers are started by the program that is gone.
        for _ in 0..2 {
            den.kill_daemon();
            recover(&mut peer);
        }
        assert!(report(&mut peer, "a")["pid"].is_u64(), "replaced: {replaced}");
        assert!(peer.stderr().contains("no daemon: "), "replaced: {replaced}");
        leave(peer);
    }
}

#[test]
fn whatever_is_no_call_of_a_tool_gets_an_error_of_the_protocol() {
    let flags = "--tools 1 --resources 1 --prompts 1 --hang resources/read --hang prompts/get";
    let den = Den::new(&dev(json!({"a": fake(flags)})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    let name = peer.request("prompts/list", "{}").names("prompts").remove(0);
    let read = peer.post("resources/read", r#"{"uri":"workbench://dev/a/fake://resource/1"}"#);
    let get = peer.post("prompts/get", json!({ "name": name }));
    peer.fence();
    den.kill_daemon();
    for id in [read, get] {
        let answer = peer.answer(&id);
        assert_eq!(answer.error_code(), -32603, "{answer:?}");
        let text = answer.value()["error"]["message"].as_str().expect("a text").to_owned();
        assert!(text.starts_with("The daemon ended before it answered"), "{text}");
        assert!(text.contains("may or may not have taken effect"), "{text}");
    }
    leave(peer);
}

#[test]
fn no_part_of_a_line_reaches_the_client_and_each_call_is_answered_once() {
    let den = Den::new(&dev(json!({"a": fake("--with large,never")})));
    for round in 0..2 {
        let mut peer = den.session();
        open(&mut peer, "dev");
        let pid = den.daemon_pid();
        let calls: Vec<_> = (0..8).map(|_| peer.post_call("dev__a__large", r#"{"bytes":3000000}"#)).collect();
        if round > 0 {
            // The first answer is on its way, the others follow.
            peer.answer(&calls[0]);
        }
        signal(pid, "KILL");
        wait_until_dead(pid);
        let own: Vec<_> = calls.iter().skip(round).collect();
        for call in &own {
            let answer = peer.answer(call).value();
            assert!(answer["result"].is_object(), "a whole line: {answer}");
        }
        recover(&mut peer);
        for message in peer.left() {
            assert!(!calls.contains(&message.id()), "answered twice: {}", message.id());
        }
        leave(peer);
    }
}

#[test]
fn what_the_dead_daemon_had_promised_is_unknown_to_the_next() {
    let den = Den::new(&dev(json!({"a": fake("--with ask,job,report")})));
    let mut peer = den.spawn();
    peer.request("tools/call", modern_call("open_toolbox", r#""arguments":{"toolbox_name":"dev"}"#)).result();
    let ask = r#""arguments":{"method":"elicitation/create","params":"{\"message\":\"?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{}}}"}"#;
    let asked = peer.request("tools/call", modern_call("dev__a__ask", ask)).result();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    den.kill_daemon();
    let retry = format!(r#"{ask},"inputResponses":{{}},"requestState":{}"#, asked["requestState"]);
    let refused = loop {
        let answer = peer.request("tools/call", modern_call("dev__a__ask", &retry));
        if !ended(&answer) {
            break answer;
        }
    };
    assert_eq!(refused.error_code(), -32602, "{refused:?}");
    leave(peer);

    let mut peer = den.session();
    open(&mut peer, "dev");
    let job = json!({"name": "dev__a__job", "arguments": {}, "task": {"ttl": 600_000}});
    let task = peer.request("tools/call", job).result()["task"]["taskId"].clone();
    peer.request("tasks/get", json!({ "taskId": task })).result();
    den.kill_daemon();
    recover(&mut peer);
    assert_eq!(peer.request("tasks/get", json!({ "taskId": task })).error_code(), -32602);
    leave(peer);
}

#[test]
fn where_no_new_daemon_can_be_started_a_session_goes_on_alone() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    den.kill_daemon();
    let directory = fs::Permissions::from_mode(0o755);
    fs::set_permissions(den.directory(), directory).expect("it is ours");
    recover(&mut peer);
    assert!(report(&mut peer, "a")["pid"].is_u64(), "the toolbox is open as before");
    assert!(peer.stderr_with("no daemon: ").contains("has the mode 0755"));
    leave(peer);
    fs::set_permissions(den.directory(), fs::Permissions::from_mode(0o700)).expect("it is ours");
    assert_eq!(sessions(&den.status()), 0);
}

#[test]
fn a_toolbox_stays_open_whose_servers_do_not_start_in_the_next_daemon() {
    let den = Den::new(&dev(json!({"a": fake("--with report --fail-while @dir/broken")})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    fs::write(den.lab.dir.join("broken"), "").expect("the directory is ours");
    den.kill_daemon();
    recover(&mut peer);
    assert_eq!(peer.tools(), ["open_toolbox"]);
    fs::remove_file(den.lab.dir.join("broken")).expect("it is there");
    den.kill_daemon();
    recover(&mut peer);
    assert_eq!(peer.tools(), ["open_toolbox", "dev__a__report"]);
    leave(peer);
}

#[test]
fn a_server_that_comes_late_in_the_next_daemon_is_told_of_once() {
    let mut late = fake("--with report --resources 1 --prompts 1 --wait-for @dir/go");
    late["connectTimeout"] = json!(0.2);
    late["startTimeout"] = json!(60);
    let den = Den::new(&dev(json!({"a": fake("--with echo"), "late": late})));
    let go = den.lab.write("go", "");
    let mut peer = den.session();
    open(&mut peer, "dev");
    let tools = peer.tools();
    assert_eq!(tools, ["open_toolbox", "dev__a__echo", "dev__late__report"]);
    let told = |peer: &mut Peer| {
        [TOOLS_CHANGED, RESOURCES_CHANGED, PROMPTS_CHANGED].map(|method| peer.count(method))
    };
    told(&mut peer);
    fs::remove_file(&go).expect("it is there");
    den.kill_daemon();
    recover(&mut peer);
    // It has begun to start, and nobody waits for it.
    den.until("the late one starts", |now| servers(now) == 2);
    assert_eq!(peer.tools(), tools, "the client need not see them go and come back");
    fs::write(&go, "").expect("the directory is ours");
    den.until("both run", |now| {
        now["servers"].as_array().is_some_and(|all| all.iter().all(|one| one["state"] == "running"))
    });
    let counts = told(&mut peer);
    assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
    leave(peer);
}

#[test]
fn a_server_of_one_session_is_told_the_same_of_its_client_in_the_next_daemon() {
    let mut own = fake("--with requests");
    own["isolation"] = json!("session");
    let den = Den::new(&dev(json!({"a": own})));
    let mut peer = den.spawn();
    peer.initialize_with(VERSION, r#"{"roots":{}}"#);
    open(&mut peer, "dev");
    let told = |peer: &mut Peer| {
        let requests = peer.call("dev__a__requests", json!({"method": "initialize"})).json();
        requests[0]["params"].clone()
    };
    let before = told(&mut peer);
    assert_eq!(before["capabilities"], json!({"roots": {}}), "{before}");
    den.kill_daemon();
    recover(&mut peer);
    assert_eq!(told(&mut peer), before);
    leave(peer);
}
