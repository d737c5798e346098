//! Start, crash, return, and what is remembered.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::client::{Client, Era};
use crate::harness::{
    DEADLINE, Gateway, Lab, PROMPTS_CHANGED, Peer, RESOURCES_CHANGED, TOOLS_CHANGED, VERSION, server,
    toolman_path,
};
use crate::relay::told_capabilities;

const ALL: &str = "active_toolsets = [\"*\"]\n";

#[test]
fn all_servers_start_at_once_before_anybody_asks() {
    // Each waits for the other.
    let config = ALL.to_owned()
        + &server("a", "--with echo --count @dir/a --wait-for @dir/b", "")
        + &server("b", "--with echo --count @dir/b --wait-for @dir/a", "");
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
    gateway.until("both have started", |gateway| gateway.lab.starts("a") + gateway.lab.starts("b") == 2);
    gateway.initialize(VERSION);
    assert_eq!(gateway.tools(), ["toolman_activate", "a_echo", "b_echo"]);
    assert_eq!(gateway.changes(), [0, 0, 0], "the first lists were complete");
}

#[test]
fn servers_hear_what_the_client_declares_with_its_first_message() {
    for (era, flags, upstream) in [
        (Era::Legacy, "", Era::Legacy),
        (Era::Legacy, "--era modern", Era::Modern),
        (Era::Modern, "", Era::Legacy),
        (Era::Modern, "--era modern", Era::Modern),
    ] {
        let config = ALL.to_owned() + &server("a", &format!("--with report,requests {flags}"), "");
        let gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
        let mut client = Client::pipe(era, gateway, r#"{"roots":{}}"#);
        assert_eq!(told_capabilities(&mut client, upstream, "a_"), json!({"roots": {}}), "{era:?} {flags}");
    }
}

#[test]
fn a_client_that_says_nothing_does_not_keep_servers_waiting() {
    // Its own time to start does not run out meanwhile.
    let config = ALL.to_owned() + &server("a", "--with report", "connect_timeout = 0.45");
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
    let known = gateway.lab.dir.join("xdg-cache/mcp-workbench/definitions");
    gateway.until("its definitions are remembered", |_| {
        std::fs::read_dir(&known).is_ok_and(|mut files| files.next().is_some())
    });
    let mut client = Client::pipe(Era::Legacy, gateway, "{}");
    let told = told_capabilities(&mut client, Era::Legacy, "a_");
    let all = ["roots", "sampling", "elicitation"];
    assert!(all.iter().all(|key| told.get(key).is_some()), "anybody might come: {told}");
    let apps = &told["extensions"]["io.modelcontextprotocol/ui"];
    assert_eq!(*apps, json!({"mimeTypes": ["text/html;profile=mcp-app"]}), "and might render apps");
}

#[test]
fn the_first_lists_wait_for_servers_that_start() {
    let config = format!("startup_wait = 600\n{ALL}")
        + &server("a", "--with echo --resources 1 --templates 1 --prompts 1 --wait-for @dir/go", "");
    let mut gateway = Gateway::toolman(config);
    let lists = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"];
    let ids = lists.map(|method| gateway.post(method, "{}"));
    let catalog = gateway.post("resources/read", json!({"uri": "toolman://catalog"}));
    let call = gateway.post_call("a_echo", "{}");
    let read = gateway.post("resources/read", json!({"uri": "a_fake://resource/1"}));
    let prompt = gateway.post("prompts/get", json!({"name": "a_prompt-1"}));
    let activate = json!({"tools_on": ["a_*"], "tools_off": [], "resources_on": [], "resources_off": []});
    let activate = gateway.post_call("toolman_activate", activate);
    assert!(!gateway.has(|message| !message.id().is_empty()), "nothing is answered yet");
    gateway.lab.write("go", "");
    for (id, part) in ids.iter().zip(["a_echo", "a_fake://resource/1", "a_fake://item/1/{id}", "a_prompt-1"])
    {
        let answer = gateway.answer(id);
        assert!(answer.raw.contains(part), "{part}: {answer:?}");
    }
    assert!(gateway.answer(&catalog).raw.contains("a_echo"), "the catalog waits like the lists");
    gateway.answer(&call).text();
    gateway.answer(&read).result();
    gateway.answer(&prompt).result();
    gateway.answer(&activate).text();
    assert_eq!(gateway.changes(), [0, 0, 0]);
}

/// A place where it is remembered what the servers of this configuration offer, each of which waits for the file `go` or
/// `never`.
fn remembered(config: &str) -> Lab {
    let lab = Lab::new();
    lab.write("tools.toml", &lab.fill(config));
    let files = ["go", "never"].map(|name| lab.write(name, ""));
    let listed = lab.run(lab.program(&toolman_path()).args(["list", "tools"]));
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    files.iter().for_each(|file| std::fs::remove_file(file).expect("it was written"));
    lab
}

#[test]
fn the_first_lists_are_what_is_remembered_of_servers_that_start_slowly() {
    let offers = "--with echo --resources 1 --templates 1 --prompts 1 --wait-for @dir/go";
    // Whether it is waited for or not.
    for wait in ["600", "0.05", "0"] {
        let config = format!("startup_wait = {wait}\n{ALL}") + &server("a", offers, "");
        let mut gateway = Gateway::spawn_toolman(remembered(&config), &config, |_| ());
        gateway.initialize(VERSION);
        assert_eq!(gateway.tools(), ["toolman_activate", "a_echo"], "{wait}");
        assert_eq!(gateway.uris(), ["a_fake://resource/1"]);
        assert_eq!(gateway.templates(), ["a_fake://item/1/{id}"]);
        assert_eq!(gateway.prompts(), ["a_prompt-1"]);
        let call = gateway.post_call("a_echo", "{}");
        let read = gateway.post("resources/read", json!({"uri": "a_fake://resource/1"}));
        assert!(!gateway.has(|message| [&call, &read].contains(&&message.id())), "they wait for the server");
        gateway.lab.write("go", "");
        gateway.answer(&call).text();
        gateway.answer(&read).result();
        assert_eq!(gateway.tools(), ["toolman_activate", "a_echo"]);
        assert_eq!(gateway.changes(), [0, 0, 0], "nothing is another than it was");
    }
}

#[test]
fn what_is_not_as_remembered_is_told_once() {
    let config = format!("startup_wait = 600\n{ALL}")
        + &server("a", "--with echo --wait-for @dir/go", "")
        + &server("b", "--with report --wait-for @dir/never", "connect_timeout = 3");
    let lab = remembered(&config);
    for file in std::fs::read_dir(lab.dir.join("xdg-cache/mcp-workbench/definitions")).expect("it was made") {
        let path = file.expect("it can be read").path();
        let text = std::fs::read_to_string(&path).expect("it is text");
        std::fs::write(path, text.replace("\"echo\"", "\"old\"")).expect("it is ours");
    }
    let mut gateway = Gateway::spawn_toolman(lab, &config, |_| ());
    gateway.initialize(VERSION);
    assert_eq!(gateway.tools(), ["toolman_activate", "a_old", "b_report"]);
    let call = gateway.post_call("b_report", "{}");
    gateway.lab.write("go", "");
    gateway.notification(TOOLS_CHANGED);
    assert!(gateway.answer(&call).is_error(), "its server has failed");
    assert_eq!(gateway.tools(), ["toolman_activate", "a_echo"]);
    assert_eq!(gateway.changes(), [0, 0, 0], "of both at once");
}

#[test]
fn who_listens_is_acknowledged_at_once_and_told_of_nothing_that_it_was_shown() {
    for known in [false, true] {
        let config =
            format!("startup_wait = 600\n{ALL}") + &server("a", "--with echo --wait-for @dir/go", "");
        let lab = if known { remembered(&config) } else { Lab::new() };
        let mut client = Client::pipe(Era::Modern, Gateway::spawn_toolman(lab, &config, |_| ()), "{}");
        client.post("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
        client.notification("notifications/subscriptions/acknowledged");
        let list = client.post("tools/list", "{}");
        if known {
            assert!(client.answer(&list).names("tools").contains(&"a_echo".to_owned()));
        }
        client.gateway().lab.write("go", "");
        if !known {
            assert!(client.answer(&list).names("tools").contains(&"a_echo".to_owned()));
        }
        client.call("a_echo", "{}").text();
        assert_eq!(client.gateway().count(TOOLS_CHANGED), 0, "{known}");
    }
}

#[test]
fn the_first_lists_wait_for_what_a_new_file_starts() {
    let config = |flags: &str| format!("startup_wait = 600\n{ALL}") + &server("a", flags, "");
    let mut gateway = Gateway::toolman(config("--with echo --wait-for @dir/go"));
    let list = gateway.post("tools/list", "{}");
    let call = gateway.post_call("a_report", "{}");
    gateway.fence();
    gateway.replace_file("tools.toml", &config("--with echo,report --count @dir/new --delay 1000"));
    gateway.until("the new one starts", |gateway| gateway.lab.starts("new") == 1);
    gateway.lab.write("go", "");
    assert_eq!(gateway.answer(&list).names("tools"), ["toolman_activate", "a_echo", "a_report"]);
    gateway.answer(&call).text();
    assert_eq!(gateway.changes(), [0, 0, 0]);
}

#[test]
fn requests_that_wait_are_answered_in_their_order() {
    let config = "startup_wait = 600\n".to_owned() + &server("a", "--tools 40 --wait-for @dir/go", "");
    let mut gateway = Gateway::toolman(config);
    let mut ids = Vec::new();
    for n in 1..=40 {
        let on = json!({"tools_on": [format!("a_tool-{n}")], "tools_off": [], "resources_on": [], "resources_off": []});
        gateway.post_call("toolman_activate", on);
        ids.push(gateway.post("tools/list", "{}"));
    }
    gateway.fence();
    gateway.lab.write("go", "");
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(gateway.answer(id).names("tools").len(), n + 2);
    }
}

#[test]
fn a_server_that_is_up_serves_at_once_while_others_start() {
    let config = format!("startup_wait = 600\n{ALL}")
        + &server("a", "--with echo --delay 100 --resources 1 --prompts 1", "")
        + &server("b", "--with echo --wait-for @dir/go", "");
    let mut gateway = Gateway::toolman(config);
    // Not known yet, since it takes its time: the call waits for its server, not for all of them.
    gateway.call("a_echo", "{}").text();
    gateway.request("resources/read", json!({"uri": "a_fake://resource/1"})).result();
    gateway.request("prompts/get", json!({"name": "a_prompt-1"})).result();
    let unknown = gateway.post_call("c_echo", "{}");
    assert!(!gateway.has(|message| message.id() == unknown), "what is not known may still come");
    gateway.lab.write("go", "");
    assert!(gateway.answer(&unknown).failure().contains("There is no tool 'c_echo'"));
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_reaches_nobody() {
    let config =
        format!("startup_wait = 600\n{ALL}") + &server("a", "--with echo,requests --wait-for @dir/go", "");
    let mut gateway = Gateway::toolman(config);
    let id: u64 = gateway.post_call("a_echo", "{}").parse().expect("a number");
    gateway.notify("notifications/cancelled", json!({"requestId": id}));
    gateway.fence();
    gateway.lab.write("go", "");
    let requests = gateway.call("a_requests", json!({"method": "tools/call"})).json();
    assert_eq!(requests.as_array().map(Vec::len), Some(1), "{requests}");
    assert!(!gateway.has(|message| message.id() == id.to_string()));
}

#[test]
fn past_startup_wait_the_lists_are_answered_and_what_comes_later_is_announced() {
    for wait in ["0", "0.05"] {
        let config = format!("startup_wait = {wait}\n{ALL}")
            + &server("a", "--with echo --resources 1 --prompts 1 --wait-for @dir/go", "");
        let mut gateway = Gateway::toolman(config);
        assert_eq!(gateway.tools(), ["toolman_activate"]);
        // A call that may be for a server on its way up waits for it.
        let waiting = gateway.post_call("a_echo", "{}");
        assert!(gateway.call("b_echo", "{}").failure().contains("There is no tool 'b_echo'"));
        gateway.lab.write("go", "");
        gateway.answer(&waiting).text();
        for method in [TOOLS_CHANGED, RESOURCES_CHANGED, PROMPTS_CHANGED] {
            gateway.notification(method);
        }
        assert_eq!(gateway.tools(), ["toolman_activate", "a_echo"]);
        assert!(gateway.catalog().contains("* a_echo"));
        assert_eq!(gateway.changes(), [0, 0, 0], "once each");
    }
}

#[test]
fn a_server_that_fails_is_logged_and_left_out_and_the_rest_serve() {
    let config = format!("startup_wait = 600\n{ALL}")
        + &server("a", "--exit 3 --stderr 'no such database' --count @dir/a", "")
        + &server("b", "--hang initialize", "connect_timeout = 0.2")
        + &server("c", "--with echo", "")
        + "[[servers]]\nnamespace = \"d\"\ncommand = \"no-such-program-anywhere\"\n";
    let mut gateway = Gateway::toolman(config);
    assert_eq!(gateway.tools(), ["toolman_activate", "c_echo"]);
    for part in ["[a]", "no such database", "[b]", "timeout", "[d]", "no-such-program-anywhere"] {
        gateway.stderr_with(part);
    }
    // Once, and once more without the probe for the modern era.
    assert_eq!(gateway.lab.starts("a"), 2);
}

#[test]
fn nothing_is_said_before_the_handshake() {
    let offers = "--with echo --ask-after-initialized roots/list";
    let config = format!("startup_wait = 0\n{ALL}") + &server("a", offers, "") + &server("a", offers, "");
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
    // Logged when the second one comes up, so both have by then.
    gateway.stderr_with("a_echo is taken");
    assert!(!gateway.has(|message| !message.method().is_empty()));
    gateway.initialize(VERSION);
    assert_eq!(gateway.changes(), [0, 0, 0]);
    assert_eq!(gateway.tools(), ["toolman_activate", "a_echo"]);
}

/// Two servers that offer everything; `b` is a witness.
fn two(more: &str) -> Gateway {
    let offers =
        "--with echo,crash,report,slow,started,result --tools 1 --resources 1 --templates 1 --prompts 1";
    let config = "active_toolsets = [\"a_[!t]*\", \"b_*\"]\n".to_owned()
        + &server("a", &format!("{offers} --count @dir/a"), more)
        + &server("b", offers, "");
    let mut gateway = Gateway::toolman(config);
    assert_eq!(gateway.tools().len(), 1 + 6 + 7);
    gateway
}

/// Everything that names something of `a`.
fn of_a(gateway: &mut Gateway) -> Vec<String> {
    let mut names = gateway.tools();
    names.extend(gateway.uris());
    names.extend(gateway.templates());
    names.extend(gateway.prompts());
    let catalog = gateway.catalog();
    names.extend(catalog.lines().map(|line| line.trim_start_matches("* ").to_owned()));
    names.retain(|name| name.starts_with("a_"));
    names
}

#[test]
fn a_server_that_dies_takes_everything_with_it_at_once_and_stays_out() {
    let mut gateway = two("");
    let slow = gateway.post_call("a_slow", "{}");
    let link = r#"{"content":[{"type":"resource_link","uri":"fake://linked","name":"l"}]}"#;
    gateway.call("a_result", json!({"json": link})).result();
    gateway.call("a_started", "{}").text();
    let crash = gateway.post_call("a_crash", json!({"code": 7, "stderr": ["out of luck"]}));
    for (id, tool) in [(slow, "a_slow"), (crash, "a_crash")] {
        let answer = gateway.answer(&id);
        let shape: Value = serde_json::from_str(&answer.text_block(0)).expect("JSON");
        assert_eq!(shape, answer.result()["structuredContent"]);
        let error = shape["error"].as_str().expect("a text");
        assert!(
            error.contains(tool) && error.contains("out of luck"),
            "our own errors give the exposed name: {error}"
        );
    }
    for method in [TOOLS_CHANGED, RESOURCES_CHANGED, PROMPTS_CHANGED] {
        gateway.notification(method);
    }
    assert_eq!(of_a(&mut gateway), [""; 0]);
    assert_eq!(gateway.changes(), [0, 0, 0], "once each");
    gateway.stderr_with("[a]");
    gateway.stderr_with("out of luck");
    assert!(gateway.call("a_echo", "{}").failure().contains("There is no tool 'a_echo'"));
    for uri in ["a_fake://resource/1", "a_fake://item/1/x", "fake://linked"] {
        gateway.request("resources/read", json!({"uri": uri})).error_code();
    }
    gateway.request("prompts/get", json!({"name": "a_prompt-1"})).error_code();
    let error = gateway.activate([&["a_echo"], &[], &[], &[]]).failure();
    assert!(error.contains("'a_echo'"), "{error}");
    gateway.call("b_echo", "{}").text();
    assert_eq!(gateway.lab.starts("a"), 1, "nothing of that started it again");
}

#[test]
fn with_restart_it_comes_back_with_its_items_in_the_state_they_had() {
    let mut gateway = two("restart = true");
    gateway.activate([&["a_tool-1"], &["a_echo"], &[], &["a_fake://resource/1"]]).text();
    let before = of_a(&mut gateway);
    assert!(
        before.contains(&"a_tool-1".to_owned())
            && !gateway.uris().contains(&"a_fake://resource/1".to_owned())
    );
    let pid = gateway.call("a_report", "{}").json()["pid"].clone();
    gateway.changes();
    gateway.call("a_crash", "{}").failure();
    for _ in ["gone", "back"] {
        gateway.notification(TOOLS_CHANGED);
        gateway.notification(RESOURCES_CHANGED);
        gateway.notification(PROMPTS_CHANGED);
    }
    assert_eq!(of_a(&mut gateway), before);
    assert_ne!(gateway.call("a_report", "{}").json()["pid"], pid);
    assert_eq!(gateway.lab.starts("a"), 2);
}

#[test]
fn with_restart_one_that_fails_at_startup_is_tried_again() {
    let lab = Lab::new();
    lab.write("broken", "");
    let config = ALL.to_owned()
        + &server("a", "--with echo --fail-while @dir/broken --count @dir/a", "restart = true");
    let mut gateway = Gateway::spawn_toolman(lab, config, |_| ());
    gateway.initialize(VERSION);
    assert_eq!(gateway.tools(), ["toolman_activate"]);
    gateway.until("it was tried twice", |gateway| gateway.lab.starts("a") >= 2);
    std::fs::remove_file(gateway.lab.dir.join("broken")).expect("it is there");
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["toolman_activate", "a_echo"]);
}

#[test]
fn connections_live_on_whether_anything_of_them_is_active_or_not() {
    let mut gateway = two("");
    let pid = gateway.call("a_report", "{}").json()["pid"].clone();
    gateway.activate([&[], &["a_*"], &[], &["a_*"]]).text();
    gateway.activate([&["a_report"], &[], &[], &[]]).text();
    assert_eq!(gateway.call("a_report", "{}").json()["pid"], pid);
    assert_eq!(gateway.lab.starts("a"), 1);
}

const REMEMBERED: &str = "--with echo,slow --tools 2 --resources 2";

/// What is active in a run with these patterns, after `lists` were switched; the same place each time.
fn run(lab: Lab, top: &str, config: Option<&str>, lists: Option<[&[&str]; 4]>) -> (Lab, Vec<String>) {
    let text = format!("{top}\n{}", server("a", REMEMBERED, ""));
    let mut gateway = Gateway::spawn_toolman(lab, text, |command| {
        command.args(config.map(|file| ["--config", file]).into_iter().flatten());
    });
    gateway.initialize(VERSION);
    if let Some(lists) = lists {
        gateway.activate(lists).text();
    }
    let mut active = gateway.tools()[1..].to_vec();
    active.extend(gateway.uris());
    (gateway.finish(), active)
}

/// The files in which switches are remembered.
fn memories(lab: &Lab) -> Vec<PathBuf> {
    let files = std::fs::read_dir(lab.dir.join("xdg-state/toolman")).expect("it is there");
    let paths = files.map(|file| file.expect("readable").path());
    paths.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect()
}

#[test]
fn what_was_switched_by_hand_is_remembered_if_the_file_says_so() {
    let remember = "remember = true\nactive_toolsets = [\"a_echo\", \"a_tool-1\"]";
    let switched = ["a_slow", "a_tool-1", "a_fake://resource/2"];
    let (lab, active) = run(Lab::new(), remember, None, Some([&["a_slow"], &["a_echo"], &["*/2"], &[]]));
    assert_eq!(active, switched);
    let (lab, active) = run(lab, remember, None, None);
    assert_eq!(active, switched);
    // However the file is named, it is the same.
    let (lab, active) = run(lab, remember, Some("./tools.toml"), None);
    assert_eq!(active, switched);
    // All else follows the patterns.
    let (lab, active) = run(lab, "remember = true\nactive_toolsets = [\"a_echo\", \"a_tool-2\"]", None, None);
    assert_eq!(active, ["a_slow", "a_tool-2", "a_fake://resource/2"]);
    // Another file has another memory, and without the key there is none.
    std::fs::copy(lab.dir.join("tools.toml"), lab.dir.join("other.toml")).expect("the directory is ours");
    let (lab, active) = run(lab, remember, Some("other.toml"), None);
    assert_eq!(active, ["a_echo", "a_tool-2"]);
    let (lab, active) = run(lab, "active_toolsets = [\"a_echo\"]", None, None);
    assert_eq!(active, ["a_echo"]);
    assert_eq!(memories(&lab).len(), 1);
    lab.wait_until_gone(DEADLINE);
}

#[test]
fn what_is_remembered_is_active_from_the_start_for_modern_clients_too() {
    let top = "remember = true\nactive_toolsets = [\"a_echo\", \"a_tool-1\"]";
    let (lab, active) = run(Lab::new(), top, None, Some([&["a_slow"], &["a_echo"], &["*/2"], &[]]));
    let text = format!("{top}\n{}", server("a", REMEMBERED, ""));
    let mut gateway = Gateway::spawn_toolman(lab, text, |_| ());
    let mut request = |method: &str, mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        gateway.request(method, params)
    };
    let list = request("tools/list", json!({}));
    let names = list.names("tools");
    let uris = request("resources/list", json!({})).result()["resources"].take();
    let uris: Vec<_> = uris.as_array().expect("a list").iter().map(|item| item["uri"].clone()).collect();
    assert_eq!(names, ["toolman_activate", "a_slow", "a_tool-1", "toolman_call"]);
    assert_eq!(uris, ["a_fake://resource/2"]);
    let catalog = list.result()["tools"][0]["description"].as_str().expect("a text").to_owned();
    let marked = catalog.lines().filter(|line| line.starts_with("* ")).count();
    assert_eq!(marked, active.len(), "{catalog}");
    // What is switched now changes no list of a modern client.
    let switches =
        json!({"tools_on": ["a_echo"], "tools_off": ["a_slow"], "resources_on": [], "resources_off": []});
    request("tools/call", json!({"name": "toolman_activate", "arguments": switches})).text();
    assert_eq!(request("tools/list", json!({})).at(&["result", "tools"]), list.at(&["result", "tools"]));
    request("tools/call", json!({"name": "a_slow"})).failure();
}

#[test]
fn toolmans_on_one_file_do_not_forget_each_others_switches() {
    let lab = Lab::new();
    let top = "remember = true\nactive_toolsets = [\"a_tool-1\"]";
    lab.write("tools.toml", &lab.fill(&format!("{top}\n{}", server("a", "--tools 6", ""))));
    let mut others: Vec<_> = (0..4).map(|_| Peer::spawn(&mut lab.program(&toolman_path()))).collect();
    others.iter_mut().for_each(|other| drop(other.initialize(VERSION)));
    let switch = |n: usize| {
        let (on, off) = if n == 1 {
            (vec![], vec!["a_tool-1".to_owned()])
        } else {
            (vec![format!("a_tool-{n}")], vec![])
        };
        json!({"tools_on": on, "tools_off": off, "resources_on": [], "resources_off": []})
    };
    let ids: Vec<_> =
        (1..).zip(&mut others).map(|(n, other)| other.post_call("toolman_activate", switch(n))).collect();
    for (other, id) in others.iter_mut().zip(ids) {
        other.answer(&id).text();
        other.close();
        assert!(other.wait().success());
    }
    let mut gateway = Gateway::run_in(lab, &toolman_path(), |_| ());
    gateway.initialize(VERSION);
    assert_eq!(gateway.tools()[1..], ["a_tool-2", "a_tool-3", "a_tool-4"]);
}

#[test]
fn without_remember_nothing_is_written() {
    let (lab, active) = run(Lab::new(), "", None, Some([&["a_echo"], &[], &[], &[]]));
    assert_eq!(active, ["a_echo"]);
    assert!(!lab.dir.join("xdg-state").exists());
    let (_, active) = run(lab, "", None, None);
    assert_eq!(active, [""; 0]);
}

#[test]
fn a_broken_memory_is_reported_and_ignored() {
    let remember = "remember = true";
    let (lab, _) = run(Lab::new(), remember, None, Some([&["a_echo"], &[], &[], &[]]));
    std::fs::write(&memories(&lab)[0], "{").expect("the directory is ours");
    let (lab, active) = run(lab, remember, None, Some([&["a_slow"], &[], &[], &[]]));
    assert_eq!(active, ["a_slow"]);
    let (_, active) = run(lab, remember, None, None);
    assert_eq!(active, ["a_slow"]);
}
