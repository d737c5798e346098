//! Servers with `"start": "call"`: shown as they are remembered, started when something of theirs is used.

use serde_json::{Value, json};

use crate::client::{Era, Host, Remote};
use crate::harness::{Gateway, Lab, Message, TOOLS_CHANGED, VERSION, dev, fake, server};

const FLAGS: &str = "--with echo,report,change,requests --resources 1 --templates 1 --prompts 1 --count @dir/a \
                     --fail-while @dir/broken --delay 50";

/// Its toolbox, with the key at top level.
fn config(mode: &str, flags: &str) -> Value {
    let mut config = dev(mode, json!({"a": fake(flags)}));
    config["start"] = json!("call");
    config
}

/// The same, with the key in the server's entry.
fn config_of_entry(mode: &str, flags: &str) -> Value {
    let mut entry = fake(flags);
    entry["start"] = json!("call");
    dev(mode, json!({"a": entry}))
}

/// A gateway with this file in a place where its servers have run before.
fn again(config: &Value) -> Gateway {
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    in_place(gateway.finish(), config)
}

fn in_place(lab: Lab, config: &Value) -> Gateway {
    let mut gateway = Gateway::spawn_with(lab, config, |_| ());
    gateway.initialize(VERSION);
    gateway
}

#[test]
fn a_server_of_which_nothing_is_remembered_starts_with_its_toolbox() {
    for config in [config("dynamic", FLAGS), config_of_entry("proxy", FLAGS)] {
        let mut gateway = Gateway::start(&config);
        assert_eq!(gateway.open("dev")["servers_connected"], 1);
        assert_eq!(gateway.lab.starts("a"), 1);
    }
}

#[test]
fn opening_shows_what_is_remembered_and_starts_nothing() {
    for config in [config("dynamic", FLAGS), config_of_entry("dynamic", FLAGS)] {
        let mut first = Gateway::start(&config);
        let opened = first.open("dev");
        let lists = |gateway: &mut Gateway| {
            ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
                .map(|method| gateway.request(method, "{}").result())
        };
        let shown = lists(&mut first);
        let mut gateway = in_place(first.finish(), &config);
        assert_eq!(gateway.open("dev"), opened);
        assert_eq!(lists(&mut gateway), shown);
        assert_eq!(gateway.open("dev"), opened, "and again");
        assert_eq!(gateway.changes(), [1, 1, 1], "by the opening");
        assert_eq!(gateway.lab.starts("a"), 1, "the start before");
    }
    let config = config("proxy", FLAGS);
    let mut first = Gateway::start(&config);
    let opened = first.open("dev");
    let mut gateway = in_place(first.finish(), &config);
    assert_eq!(gateway.open("dev"), opened, "definitions included");
    assert_eq!(gateway.lab.starts("a"), 1);
}

#[test]
fn an_entry_overrides_the_top_level() {
    let mut entry = fake(FLAGS);
    entry["start"] = json!("open");
    let mut config = dev("dynamic", json!({"a": entry}));
    config["start"] = json!("call");
    let mut gateway = again(&config);
    gateway.open("dev");
    assert_eq!(gateway.lab.starts("a"), 2);
}

#[test]
fn whatever_uses_it_starts_it_and_what_comes_together_starts_it_once() {
    let completion = json!({"ref": {"type": "ref/prompt", "name": "dev__a__prompt-1"},
        "argument": {"name": "x", "value": ""}});
    let requests: [(&str, Value); 4] = [
        ("tools/call", json!({"name": "dev__a__echo", "arguments": {}})),
        ("resources/read", json!({"uri": "workbench://dev/a/fake://resource/1"})),
        ("prompts/get", json!({"name": "dev__a__prompt-1"})),
        ("completion/complete", completion),
    ];
    for (method, params) in &requests {
        let mut gateway = again(&config("dynamic", FLAGS));
        gateway.open("dev");
        assert_eq!(gateway.lab.starts("a"), 1, "{method}");
        let ids: Vec<String> = (0..20).map(|_| gateway.post(method, params)).collect();
        for id in ids {
            gateway.answer(&id).result();
        }
        assert_eq!(gateway.lab.starts("a"), 2, "{method}");
        assert_eq!(gateway.changes(), [1, 1, 1], "{method}: what it offers is what was shown");
    }
}

#[test]
fn what_it_offers_once_it_runs_replaces_what_was_remembered() {
    for era in ["legacy", "modern"] {
        let config = config("dynamic", &format!("{FLAGS} --era {era}"));
        let mut first = Gateway::start(&config);
        first.open("dev");
        first.notification(TOOLS_CHANGED);
        let later = json!({"name": "later", "inputSchema": {"type": "object"}}).to_string();
        first.call("dev__a__change", json!({"add": [later]})).text();
        first.notification(TOOLS_CHANGED);
        let mut gateway = in_place(first.finish(), &config);
        gateway.open("dev");
        gateway.notification(TOOLS_CHANGED);
        assert!(gateway.tools().contains(&"dev__a__later".to_owned()), "{era}");
        gateway.call("dev__a__echo", "{}").text();
        gateway.notification(TOOLS_CHANGED);
        let tools = gateway.tools();
        assert!(!tools.contains(&"dev__a__later".to_owned()), "{era}: {tools:?}");
        assert_eq!(gateway.count(TOOLS_CHANGED), 0, "{era}");
    }
}

#[test]
fn a_start_that_fails_fails_the_call_with_the_reason_and_is_a_crash() {
    let mut gateway = again(&config("dynamic", FLAGS));
    gateway.open("dev");
    gateway.notification(TOOLS_CHANGED);
    gateway.lab.write("broken", "");
    let text = gateway.call("dev__a__echo", "{}").failure();
    assert!(text.starts_with("[dev/a/echo] ") && text.contains("could not be started"), "{text}");
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["open_toolbox"]);
    std::fs::remove_file(gateway.lab.dir.join("broken")).expect("it is there");
    gateway.until("the next call starts it", |gateway| !gateway.call("dev__a__echo", "{}").is_error());
    assert!(gateway.tools().contains(&"dev__a__echo".to_owned()));
}

#[test]
fn a_toolbox_that_is_closed_and_opened_again_rests() {
    let mut config = config("dynamic", FLAGS);
    config["metaTools"] = json!("classic");
    let mut gateway = Gateway::start(&config);
    let open = |gateway: &mut Gateway| gateway.call("workbench_open_toolbox", json!({"toolbox_name": "dev"}));
    let opened = open(&mut gateway).json();
    for _ in 0..2 {
        let closed = gateway.call("workbench_close_toolbox", json!({"toolbox_name": "dev"})).json();
        assert_eq!((&closed["servers_disconnected"], &closed["tools_unregistered"]), (&json!(1), &json!(4)));
        assert_eq!(open(&mut gateway).json(), opened);
    }
    assert_eq!(gateway.lab.starts("a"), 1);
    gateway.call("dev__a__echo", "{}").text();
    assert_eq!(gateway.lab.starts("a"), 2);
}

#[test]
fn a_server_that_a_new_file_brings_rests_as_well() {
    let mut with = dev("dynamic", json!({"a": fake(FLAGS), "b": fake("--with echo")}));
    with["start"] = json!("call");
    let mut without = with.clone();
    without["toolboxes"]["dev"]["mcpServers"].as_object_mut().expect("servers").remove("a");
    let mut first = Gateway::start(&with);
    first.open("dev");
    let mut gateway = in_place(first.finish(), &without);
    gateway.open("dev");
    gateway.notification(TOOLS_CHANGED);
    gateway.replace_file("workbench-config.json", &with.to_string());
    gateway.notification(TOOLS_CHANGED);
    assert!(gateway.tools().contains(&"dev__a__echo".to_owned()));
    assert_eq!(gateway.lab.starts("a"), 1);
    gateway.call("dev__a__echo", "{}").text();
    assert_eq!(gateway.lab.starts("a"), 2);
}

#[test]
fn toolman_shows_what_is_remembered_and_starts_nothing() {
    let top = "active_toolsets = [\"*\"]\nstart = \"call\"\nstartup_wait = 600\n".to_owned();
    let entry = "active_toolsets = [\"*\"]\nstartup_wait = 600\n".to_owned();
    for config in [top + &server("a", FLAGS, ""), entry + &server("a", FLAGS, "start = \"call\"")] {
        let start = |lab: Lab| {
            let mut gateway = Gateway::spawn_toolman(lab, &config, |_| ());
            gateway.initialize(VERSION);
            gateway
        };
        let mut first = start(Lab::new());
        let shown = (first.tools(), first.uris(), first.templates(), first.prompts(), first.catalog());
        assert_eq!(first.lab.starts("a"), 1, "nothing was remembered");
        let mut gateway = start(first.finish());
        let now =
            (gateway.tools(), gateway.uris(), gateway.templates(), gateway.prompts(), gateway.catalog());
        assert_eq!(now, shown);
        assert_eq!(gateway.lab.starts("a"), 1);
        let calls: Vec<String> = (0..20).map(|_| gateway.post_call("a_echo", "{}")).collect();
        calls.iter().for_each(|id| drop(gateway.answer(id).text()));
        assert_eq!(gateway.lab.starts("a"), 2);
        assert_eq!(gateway.changes(), [0, 0, 0]);

        let mut gateway = start(gateway.finish());
        gateway.lab.write("broken", "");
        assert!(gateway.call("a_echo", "{}").failure().contains("could not be started"));
        gateway.notification(TOOLS_CHANGED);
        assert_eq!(gateway.tools(), ["toolman_activate"], "as after a crash");
    }
}

#[test]
fn a_server_behind_a_url_is_not_asked_before_it_is_used() {
    let mut remote = Remote::start("--with echo --resources 1");
    let mut config = dev("dynamic", json!({"a": {"url": remote.url()}}));
    config["start"] = json!("call");
    let mut gateway = again(&config);
    remote.kill();
    assert_eq!(gateway.open("dev")["servers_connected"], 1, "as it was");
    let text = gateway.call("dev__a__echo", "{}").failure();
    assert!(text.starts_with("[dev/a/echo] "), "{text}");
    remote.again();
    gateway.until("it is reached", |gateway| !gateway.call("dev__a__echo", "{}").is_error());
}

#[test]
fn it_works_for_clients_over_http_of_both_eras() {
    for isolation in ["shared", "session"] {
        let mut entry = fake(FLAGS);
        entry["isolation"] = json!(isolation);
        let mut config = dev("dynamic", json!({"a": entry}));
        config["start"] = json!("call");
        let mut first = Gateway::start(&config);
        first.open("dev");
        let host = Host::new(Gateway::spawn_with(first.finish(), &config, |command| {
            command.args(["serve", "--http", "127.0.0.1:0"]);
        }));
        let mut plain = host.client_at(Era::Modern, "/mcp/dev");
        assert!(plain.tools().contains(&"echo".to_owned()), "{isolation}");
        let mut clients = [host.client(Era::Legacy), host.client(Era::Modern)];
        let opened = |answer: Message| answer.json()["servers_connected"].clone();
        for client in &mut clients {
            assert_eq!(opened(client.call("open_toolbox", json!({"toolbox_name": "dev"}))), 1, "{isolation}");
        }
        assert_eq!(host.lab.starts("a"), 1, "{isolation}");
        for client in &mut clients {
            client.call("dev__a__echo", "{}").text();
        }
        plain.call("echo", "{}").text();
        // Modern callers are one client, whatever the path.
        let lives = if isolation == "session" { 2 } else { 1 };
        assert_eq!(host.lab.starts("a"), 1 + lives, "{isolation}");
    }
}

#[test]
fn a_subscription_starts_it() {
    for era in ["legacy", "modern"] {
        let mut gateway = again(&config("dynamic", &format!("{FLAGS} --era {era}")));
        gateway.open("dev");
        assert_eq!(gateway.lab.starts("a"), 1, "the start before");
        gateway
            .request("resources/subscribe", json!({"uri": "workbench://dev/a/fake://resource/1"}))
            .result();
        gateway.until("it runs", |gateway| gateway.lab.starts("a") == 2);
    }
}

#[test]
fn toolman_starts_nothing_over_http_until_it_is_used() {
    let config = "active_toolsets = [\"*\"]\nstart = \"call\"\nstartup_wait = 600\n".to_owned()
        + &server("a", FLAGS, "");
    let start = |lab: Lab| {
        let host = Host::new(Gateway::spawn_toolman(lab, &config, |command| {
            command.args(["serve", "--http", "127.0.0.1:0"]);
        }));
        let mut clients = [host.client(Era::Legacy), host.client(Era::Modern)];
        let lists = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"];
        let shown =
            clients.each_mut().map(|client| lists.map(|method| client.request(method, "{}").result()));
        (host, clients, shown)
    };
    let (mut first, _, shown) = start(Lab::new());
    assert_eq!(first.lab.starts("a"), 1, "nothing was remembered");
    first.signal("TERM");
    assert!(first.wait().success());
    let lab = std::mem::replace(&mut first.lab, Lab::new());
    let (host, mut clients, now) = start(lab);
    assert_eq!(now, shown);
    assert_eq!(host.lab.starts("a"), 1, "the start before");
    let calls = clients.each_mut().map(|client| [(); 10].map(|()| client.post_call("a_echo", "{}")));
    for (client, calls) in clients.iter_mut().zip(calls) {
        calls.iter().for_each(|call| drop(client.answer(call).text()));
        let told = client.left().into_iter().filter(|message| message.method().ends_with("list_changed"));
        assert_eq!(told.count(), 0, "what it offers is what was shown");
    }
    assert_eq!(host.lab.starts("a"), 2);
}
