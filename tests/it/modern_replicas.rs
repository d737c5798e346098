//! Modern callers at three replicas, another one with each request: states, views, tasks, results and servers of their own.

use serde_json::{Value, json};

use crate::client::{Client, Exchanged, MODERN, Remote};
use crate::fleet::{Config, Fleet};
use crate::harness::{Message, classic, dev, fake, fake_with, server};

const ASK: &str = r#"{"tool":{"toolbox":"dev","server":"a","tool":"ask"},"arguments":{"method":"elicitation/create","params":"{\"message\":\"Who?\"}"}}"#;
const ACCEPT: &str = r#"{"action":"accept","content":{"name":"Ann"}}"#;
const CAN_WAIT: &str = r#"{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

fn use_tool(tool: &str, arguments: Value) -> Value {
    json!({"tool": {"toolbox": "dev", "server": "a", "tool": tool}, "arguments": arguments})
}

/// Three replicas with a toolbox, `dev`, whose server `a` has these flags, and a client that has it open.
#[track_caller]
fn opened(flags: &str) -> Option<(Fleet, Client)> {
    let fleet = Fleet::start(Config::Workbench(dev("proxy", json!({"a": fake(flags)}))))?;
    let mut client = fleet.modern();
    open(&fleet, &mut client, 0);
    Some((fleet, client))
}

#[track_caller]
fn open(fleet: &Fleet, client: &mut Client, at: usize) {
    fleet.call(client, at, "open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
}

/// Asks the server what it asks the client, at a replica.
#[track_caller]
fn asked(fleet: &Fleet, client: &mut Client, at: usize) -> Message {
    let answer = fleet.call(client, at, "use_tool", ASK);
    assert_eq!(answer.result()["resultType"], "input_required", "{answer:?}");
    answer
}

#[test]
fn a_state_made_at_one_is_good_at_every_other_exactly_once() {
    for era in ["legacy", "modern"] {
        let Some((fleet, mut client)) = opened(&format!("--with ask --era {era}")) else { return };
        for round in 0..3 {
            let questions = asked(&fleet, &mut client, round);
            // Many retries at the same time, at every replica.
            let retries: Vec<String> = (0..12)
                .map(|n| fleet.turn(&mut client, n % 3).post_retry("use_tool", ASK, &questions, ACCEPT))
                .collect();
            let answers: Vec<Message> = retries.iter().map(|id| client.answer(id)).collect();
            let (good, refused): (Vec<_>, Vec<_>) =
                answers.iter().partition(|answer| !answer.at(&["result"]).is_empty());
            assert_eq!(good.len(), 1, "{era}: {answers:?}");
            assert_eq!(good[0].text(), format!(r#"{{"result":{ACCEPT}}}"#), "{era}");
            for answer in refused {
                let message = answer.at(&["error", "message"]);
                assert!(message.contains("requestState was used before"), "{era}: {answer:?}");
            }
        }
    }
}

#[test]
fn a_state_outlives_the_replica_that_made_it_unless_it_names_a_parked_call() {
    for (era, outlives) in [("modern", true), ("legacy", false)] {
        let Some((mut fleet, mut client)) = opened(&format!("--with ask --era {era}")) else { return };
        let questions = asked(&fleet, &mut client, 0);
        fleet.kill(0);
        let id = fleet.turn(&mut client, 1).post_retry("use_tool", ASK, &questions, ACCEPT);
        let answer = client.answer(&id);
        match outlives {
            true => assert_eq!(answer.text(), format!(r#"{{"result":{ACCEPT}}}"#)),
            false => {
                assert!(answer.at(&["error", "message"]).contains("call again without it"), "{answer:?}")
            }
        }
        // The client calls again, and all is well.
        let questions = asked(&fleet, &mut client, 1);
        let id = fleet.turn(&mut client, 2).post_retry("use_tool", ASK, &questions, ACCEPT);
        assert_eq!(client.answer(&id).text(), format!(r#"{{"result":{ACCEPT}}}"#));
    }
}

/// One whole exchange of a modern caller who can be asked and can wait.
#[track_caller]
fn exchange(client: &mut Client, method: &str, name: &str, params: &Value) -> Exchanged {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": serde_json::from_str::<Value>(CAN_WAIT).expect("JSON"),
    });
    let web = client.over_http();
    let version = format!("{}MCP-Protocol-Version: {MODERN}\r\n", web.common());
    let headers = format!("{version}Mcp-Method: {method}\r\nMcp-Name: {name}\r\n");
    let body = json!({"jsonrpc": "2.0", "id": 77, "method": method, "params": params});
    web.exchange("POST", &headers, &body.to_string())
}

fn is_refused(answer: &Exchanged) -> bool {
    answer.status == 503 && answer.headers.get("retry-after").map(String::as_str) == Some("1")
}

#[test]
fn while_the_store_is_away_tasks_and_own_servers_are_served_at_their_home_alone() {
    let mut file = own_servers();
    file["toolboxes"]["dev"]["mcpServers"]["b"] = fake("--with job --era modern");
    let Some(mut fleet) = Fleet::start(Config::Workbench(file)) else { return };
    let mut clients = ["token-of-one", "token-of-two"].map(|token| fleet.modern_with(token));
    let job =
        json!({"name": "use_tool", "arguments": {"tool": {"toolbox": "dev", "server": "b", "tool": "job"}}});
    let echo = json!({"name": "use_tool", "arguments": use_tool("echo", json!({}))});
    let mut tasks = Vec::new();
    for (home, client) in clients.iter_mut().enumerate() {
        open(&fleet, client, home);
        let begun = exchange(fleet.turn(client, home), "tools/call", "use_tool", &job);
        let begun: Value = serde_json::from_str(&begun.body).expect("JSON");
        tasks.push(begun["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned());
    }
    fleet.store.kill();
    for (home, (client, task)) in clients.iter_mut().zip(&tasks).enumerate() {
        for at in 0..3 {
            let get = json!({"taskId": task});
            let answers = [
                exchange(fleet.turn(client, at), "tools/call", "use_tool", &echo),
                exchange(fleet.turn(client, at), "tasks/get", task, &get),
            ];
            for answer in answers {
                match at == home {
                    true => assert!(answer.status == 200 && !answer.body.contains("error"), "{answer:?}"),
                    false => assert!(is_refused(&answer), "home {home}, asked at {at}: {answer:?}"),
                }
            }
        }
    }
}

#[test]
fn while_the_store_is_away_calls_go_on_and_states_are_refused_with_503() {
    let Some((mut fleet, mut client)) = opened("--with ask,echo --era modern") else { return };
    let questions = asked(&fleet, &mut client, 0);
    fleet.store.kill();
    fleet.call(&mut client, 1, "use_tool", use_tool("echo", json!({}))).text();
    // A retry may be the first to notice; whoever does is refused as well.
    let mut retry = json!({"name": "use_tool", "requestState": questions.result()["requestState"]});
    retry["arguments"] = serde_json::from_str(ASK).expect("JSON");
    retry["inputResponses"]["it"] = serde_json::from_str(ACCEPT).expect("JSON");
    for at in 0..3 {
        let refused = exchange(fleet.turn(&mut client, at), "tools/call", "use_tool", &retry);
        assert!(is_refused(&refused), "{at}: {refused:?}");
        fleet.call(&mut client, at, "use_tool", use_tool("echo", json!({}))).text();
    }
    fleet.store.restart();
    client.until("states are accepted again", |client| {
        // The store forgot its key, so the state may have gone with it; a new one is good.
        !is_refused(&exchange(fleet.turn(client, 2), "tools/call", "use_tool", &retry))
    });
    client.until("a new state is good elsewhere", |client| {
        let questions = asked(&fleet, client, 1);
        let id = fleet.turn(client, 2).post_retry("use_tool", ASK, &questions, ACCEPT);
        !client.answer(&id).at(&["result", "content"]).is_empty()
    });
}

#[test]
fn what_is_opened_at_one_is_open_everywhere_and_what_is_closed_is_gone() {
    let file = classic("dynamic", json!({"a": fake("--with echo")}));
    let Some(mut fleet) = Fleet::start(Config::Workbench(file)) else { return };
    let mut client = fleet.modern();
    let is_open = |fleet: &Fleet, client: &mut Client, at: usize| {
        let listed = fleet.call(client, at, "workbench_list_toolboxes", "{}");
        let listed = listed.text();
        assert!(listed.contains("is_open"), "{listed}");
        listed.contains(r#""is_open": true"#) || listed.contains(r#""is_open":true"#)
    };
    // Each replica is met by the caller once before, so that none of them opens only because it is new to it.
    for at in 0..3 {
        assert!(!is_open(&fleet, &mut client, at), "{at}");
    }
    for at in 0..3 {
        fleet.call(&mut client, at, "workbench_open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        for other in 0..3 {
            assert!(is_open(&fleet, &mut client, other), "opened at {at}, asked at {other}");
        }
        fleet.call(&mut client, (at + 1) % 3, "workbench_close_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        for other in 0..3 {
            assert!(!is_open(&fleet, &mut client, other), "closed at {}, asked at {other}", (at + 1) % 3);
        }
    }
    // Whoever starts later finds it open as well.
    fleet.call(&mut client, 2, "workbench_open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    fleet.add();
    assert!(is_open(&fleet, &mut client, 3));
}

#[test]
fn what_toolman_activates_is_active_everywhere() {
    let Some(fleet) = Fleet::start(Config::Toolman(server("p", "--with echo,report", ""))) else { return };
    let mut client = fleet.modern();
    let is_active =
        |fleet: &Fleet, client: &mut Client, at: usize| !fleet.call(client, at, "p_echo", "{}").is_error();
    // Each replica is met by the caller once before, so that none of them looks only because it is new to it.
    for at in 0..3 {
        assert!(!is_active(&fleet, &mut client, at), "{at}");
    }
    let switch = |on: &[&str], off: &[&str]| json!({"tools_on": on, "tools_off": off, "resources_on": [], "resources_off": []});
    fleet.call(&mut client, 0, "toolman_activate", switch(&["p_echo"], &[])).text();
    for at in 0..3 {
        assert!(is_active(&fleet, &mut client, at), "{at}");
    }
    fleet.call(&mut client, 1, "toolman_activate", switch(&[], &["p_echo"])).text();
    for at in 0..3 {
        assert!(!is_active(&fleet, &mut client, at), "{at}");
    }
}

#[test]
fn what_is_opened_while_the_store_is_away_is_open_everywhere_when_it_is_back() {
    let config = dev("proxy", json!({"a": fake("--with echo")}));
    let Some(fleet) = Fleet::start(Config::Workbench(config)) else { return };
    let mut client = fleet.modern();
    for at in 0..3 {
        fleet.turn(&mut client, at).tools();
    }
    fleet.store.pause();
    open(&fleet, &mut client, 0);
    fleet.call(&mut client, 0, "use_tool", use_tool("echo", json!({}))).text();
    assert_eq!(fakes(&fleet, 1), 0, "nobody else can know of it");
    fleet.store.resume();
    client.until("the others have it open", |_| fakes(&fleet, 1) > 0 && fakes(&fleet, 2) > 0);
}

/// How many servers a replica runs.
fn fakes(fleet: &Fleet, at: usize) -> usize {
    let all = fleet.hosts[at].lab.processes();
    all.iter().filter(|(_, line)| line.contains("fake-upstream") && line.contains("--with")).count()
}

/// Begins a task at a replica and returns its id.
#[track_caller]
fn begun(fleet: &Fleet, client: &mut Client, at: usize) -> String {
    let result = fleet.call(client, at, "use_tool", use_tool("job", json!({}))).result();
    assert_eq!(result["status"], "working", "{result}");
    result["taskId"].as_str().expect("an id").to_owned()
}

#[track_caller]
fn status(fleet: &Fleet, client: &mut Client, at: usize, id: &str) -> String {
    let task = fleet.turn(client, at).request("tasks/get", json!({"taskId": id})).result();
    assert_eq!(task["taskId"], id, "{task}");
    task["status"].as_str().expect("a status").to_owned()
}

#[test]
fn tasks_are_known_everywhere_under_ids_of_their_own() {
    let Some((mut fleet, mut client)) = opened("--with job,finish --era modern") else { return };
    client.can(CAN_WAIT);
    // Three processes, which count from one each.
    let ids: Vec<String> = (0..3).map(|at| begun(&fleet, &mut client, at)).collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
    for id in &ids {
        for at in 0..3 {
            assert_eq!(status(&fleet, &mut client, at, id), "working", "{id} at {at}");
        }
    }
    let cancelled = fleet.turn(&mut client, 2).request("tasks/cancel", json!({"taskId": ids[0]}));
    assert!(cancelled.at(&["error"]).is_empty(), "{cancelled:?}");
    assert_eq!(status(&fleet, &mut client, 1, &ids[0]), "cancelled");
    assert_eq!(status(&fleet, &mut client, 1, &ids[1]), "working");
    // The tasks of a process end with its replica.
    fleet.kill(1);
    let lost = fleet.turn(&mut client, 2).request("tasks/get", json!({"taskId": ids[1]}));
    assert!(!lost.at(&["error"]).is_empty(), "{lost:?}");
    assert_eq!(status(&fleet, &mut client, 0, &ids[2]), "working");
}

#[test]
fn a_task_of_a_server_over_http_outlives_the_replica_that_began_it() {
    let remote = Remote::start("--with job,finish --era modern");
    let config = dev("proxy", json!({"a": {"type": "http", "url": remote.url()}}));
    let Some(mut fleet) = Fleet::start(Config::Workbench(config)) else { return };
    let mut client = fleet.modern();
    open(&fleet, &mut client, 0);
    client.can(CAN_WAIT);
    let id = begun(&fleet, &mut client, 0);
    assert_eq!(status(&fleet, &mut client, 1, &id), "working");
    fleet.kill(0);
    for at in [1, 2] {
        assert_eq!(status(&fleet, &mut client, at, &id), "working", "{at}");
    }
}

#[test]
fn long_results_are_read_at_every_replica_and_nobody_reads_them_in_the_store() {
    const RESULT: &str = r#"{"name":"result","inputSchema":{"type":"object"}}"#;
    let mut file = dev("proxy", json!({"a": fake_with("--with echo,large", &["--tool", RESULT])}));
    file["offloadOver"] = json!(4000);
    let Some(mut fleet) = Fleet::start(Config::Workbench(file)) else { return };
    let mut client = fleet.modern();
    open(&fleet, &mut client, 0);
    // Longer than a piece of what is kept.
    let bytes = 2_500_000;
    let answer = fleet.call(&mut client, 0, "use_tool", use_tool("large", json!({"bytes": bytes})));
    let kept = &answer.result()["_meta"]["mcp-workbench/offloaded"];
    assert_eq!(kept["bytes"], bytes, "{answer:?}");
    let id = kept["id"].as_str().expect("an id").to_owned();
    let entries = fleet.store.entries();
    let pieces: Vec<_> = entries.iter().filter(|entry| entry.key.contains(":result:")).collect();
    assert_eq!(pieces.len(), 4, "a head and three pieces");
    for entry in &entries {
        assert!(!entry.content.contains("xxxxxxxx") && !entry.content.contains(&id), "{}", entry.key);
        assert!(!entry.key.contains(&id), "{}", entry.key);
        assert!(entry.expires > 0, "{} stays for ever", entry.key);
    }
    assert!(pieces.iter().all(|piece| piece.expires <= 3_600_000));
    fleet.kill(0);
    for at in [1, 2] {
        let read = fleet.call(&mut client, at, "read_result", json!({"id": id, "bytes": "2499990-"}));
        assert_eq!(read.result()["content"][1]["text"], "x".repeat(10), "{read:?}");
    }
    let unknown = fleet.call(&mut client, 1, "read_result", json!({"id": "r00000000000000000000"}));
    assert!(unknown.failure().contains("No result"), "{unknown:?}");
}

/// A file in which each token has a server of its own.
fn own_servers() -> Value {
    let mut own = fake("--with report,echo,slow,started");
    own["isolation"] = json!("session");
    let mut file = dev("proxy", json!({"a": own}));
    file["auth"] = json!({"tokens": [{"name": "one", "token": "token-of-one"}, {"name": "two", "token": "token-of-two"}]});
    file
}

#[track_caller]
fn pid(fleet: &Fleet, client: &mut Client, at: usize) -> u64 {
    let report = fleet.call(client, at, "use_tool", use_tool("report", json!({})));
    report.json()["pid"].as_u64().expect("a number")
}

#[test]
fn a_tokens_own_server_runs_once_and_moves_when_its_replica_dies() {
    let Some(mut fleet) = Fleet::start(Config::Workbench(own_servers())) else { return };
    let mut clients = ["token-of-one", "token-of-two"].map(|token| fleet.modern_with(token));
    let mut pids = Vec::new();
    for (n, client) in clients.iter_mut().enumerate() {
        open(&fleet, client, n);
        let first = pid(&fleet, client, n);
        assert!((0..6).all(|at| pid(&fleet, client, at % 3) == first), "{n}");
        pids.push(first);
    }
    assert_ne!(pids[0], pids[1], "each has one of its own");
    assert_eq!((0..3).map(|at| fakes(&fleet, at)).collect::<Vec<_>>(), [1, 1, 0]);
    // A call in flight fails once, and the next one finds the server elsewhere.
    let [one, two] = &mut clients;
    let slow = fleet.turn(one, 2).post_call("use_tool", use_tool("slow", json!({"key": "k"})));
    fleet.call(one, 1, "use_tool", use_tool("started", json!({"key": "k"}))).text();
    fleet.kill(0);
    let failed = one.answer(&slow);
    assert!(failed.raw.contains("is gone"), "{failed:?}");
    let moved = pid(&fleet, one, 2);
    assert_ne!(moved, pids[0]);
    assert_eq!(pid(&fleet, one, 1), moved);
    assert_eq!(pid(&fleet, two, 2), pids[1], "the other one stayed");
}

#[test]
fn a_draining_replica_finishes_the_calls_that_others_handed_it() {
    let Some(mut fleet) = Fleet::start(Config::Workbench(own_servers())) else { return };
    let mut client = fleet.modern_with("token-of-one");
    open(&fleet, &mut client, 0);
    let first = pid(&fleet, &mut client, 1);
    // One call comes to the home itself, the others are handed to it; all last longer than it takes to drain the rest.
    let slow: Vec<String> = (0..3)
        .map(|at| {
            let arguments = json!({"key": at.to_string(), "ms": 1500});
            let id = fleet.turn(&mut client, at).post_call("use_tool", use_tool("slow", arguments));
            fleet
                .call(&mut client, 1, "use_tool", use_tool("started", json!({"key": at.to_string()})))
                .text();
            id
        })
        .collect();
    fleet.hosts[0].signal("TERM");
    for (at, id) in slow.iter().enumerate() {
        assert_eq!(client.answer(id).text(), "slow", "the call that came to {at}");
    }
    assert_eq!(fleet.hosts[0].wait().code(), Some(0));
    // The token's server is elsewhere.
    let moved = pid(&fleet, &mut client, 1);
    assert_ne!(moved, first);
    assert_eq!(pid(&fleet, &mut client, 2), moved);
}
