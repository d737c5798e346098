//! Servers with `idleTimeout`: stopped while nobody uses them, and started again by whatever needs them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::client::{Client, Era, Host, Remote};
use crate::harness::{Gateway, Lab, TOOLS_CHANGED, VERSION, dev, fake, fake_path, server};

const FLAGS: &str = "--with echo,change --resources 1 --templates 1 --prompts 1 --count @dir/a \
                     --fail-while @dir/broken";
/// Short, so that tests are quick, but longer than a test needs between two requests that belong together.
const SOON: f64 = 0.3;

fn config(mode: &str, flags: &str) -> Value {
    let mut config = dev(mode, json!({"a": fake(flags)}));
    config["idleTimeout"] = json!(SOON);
    config
}

/// Whether a server of the lab runs that counts its starts under this name.
fn runs(lab: &Lab, name: &str) -> bool {
    let file = lab.dir.join(name).display().to_string();
    lab.processes().iter().any(|(_, line)| line.split(' ').any(|word| word == file))
}

/// Waits until the server is stopped.
fn stopped(gateway: &mut Gateway, name: &str) {
    gateway.until("nobody has used it for long enough", |gateway| !runs(&gateway.lab, name));
}

fn lists(gateway: &mut Gateway) -> [Value; 4] {
    ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
        .map(|method| gateway.request(method, "{}").result())
}

#[test]
fn its_items_stay_nobody_is_told_and_opening_again_does_not_start_it() {
    let mut entry = fake(FLAGS);
    entry["idleTimeout"] = json!(SOON);
    for config in [config("dynamic", FLAGS), dev("dynamic", json!({"a": entry}))] {
        let mut gateway = Gateway::start(&config);
        let opened = gateway.open("dev");
        assert_eq!(gateway.changes(), [1, 1, 1], "by the opening");
        let shown = lists(&mut gateway);
        stopped(&mut gateway, "a");
        assert_eq!(lists(&mut gateway), shown);
        assert_eq!(gateway.open("dev"), opened);
        assert_eq!((gateway.lab.starts("a"), opened["servers_connected"].clone()), (1, json!(1)));
        gateway.call("dev__a__echo", "{}").text();
        assert_eq!(gateway.lab.starts("a"), 2);
        assert_eq!(lists(&mut gateway), shown);
        assert_eq!(gateway.changes(), [0, 0, 0], "since the opening");
    }
}

#[test]
fn whatever_needs_it_starts_it_and_what_comes_together_starts_it_once() {
    let completion = json!({"ref": {"type": "ref/prompt", "name": "dev__a__prompt-1"},
        "argument": {"name": "x", "value": ""}});
    let requests: [(&str, Value); 4] = [
        ("tools/call", json!({"name": "dev__a__echo", "arguments": {}})),
        ("resources/read", json!({"uri": "workbench://dev/a/fake://resource/1"})),
        ("prompts/get", json!({"name": "dev__a__prompt-1"})),
        ("completion/complete", completion),
    ];
    let mut gateway = Gateway::start(config("dynamic", FLAGS));
    gateway.open("dev");
    for (index, (method, params)) in requests.iter().enumerate() {
        stopped(&mut gateway, "a");
        let ids: Vec<String> = (0..10).map(|_| gateway.post(method, params)).collect();
        for id in ids {
            gateway.answer(&id).result();
        }
        assert_eq!(gateway.lab.starts("a"), index + 2, "{method}");
    }
}

#[test]
fn a_server_says_for_itself_how_long_it_may_be_unused() {
    let mut never = fake("--with echo,report --count @dir/a");
    never["idleTimeout"] = json!(0);
    let mut config = dev("dynamic", json!({"a": never, "b": fake("--with echo --count @dir/b")}));
    config["idleTimeout"] = json!(SOON);
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    for _ in 0..2 {
        stopped(&mut gateway, "b");
        gateway.call("dev__b__echo", "{}").text();
    }
    assert_eq!((gateway.lab.starts("a"), gateway.lab.starts("b")), (1, 3));
    assert!(runs(&gateway.lab, "a"), "0 is never");
}

#[test]
fn a_new_file_sets_the_time_of_servers_that_run() {
    let mut config = dev("dynamic", json!({"a": fake(FLAGS)}));
    let mut gateway = Gateway::start(&config);
    gateway.open("dev");
    config["idleTimeout"] = json!(SOON);
    gateway.replace_file("workbench-config.json", &config.to_string());
    stopped(&mut gateway, "a");
    gateway.call("dev__a__echo", "{}").text();
    assert_eq!(gateway.lab.starts("a"), 2);
}

/// Two servers with the same time. `a` is in use in some way while `b` is stopped twice.
fn while_another_is_stopped(gateway: &mut Gateway) {
    for _ in 0..2 {
        stopped(gateway, "b");
        gateway.call("dev__b__echo", "{}").text();
    }
    assert!(runs(&gateway.lab, "a"), "it is in use");
    assert_eq!(gateway.lab.starts("a"), 1);
}

fn two(flags: &str) -> Value {
    let a = fake(&format!("{flags} --count @dir/a"));
    let mut config = dev("dynamic", json!({"a": a, "b": fake("--with echo --count @dir/b")}));
    config["idleTimeout"] = json!(SOON);
    config
}

#[test]
fn a_call_in_flight_a_question_or_a_subscription_keeps_it_running() {
    for era in ["legacy", "modern"] {
        let flags = format!("--with never,ask --resources 1 --era {era}");
        let mut gateway = Gateway::spawn(two(&flags));
        gateway.initialize_with(VERSION, r#"{"elicitation":{}}"#);
        gateway.open("dev");
        let call = gateway.post_call("dev__a__never", "{}");
        while_another_is_stopped(&mut gateway);
        gateway
            .notify("notifications/cancelled", json!({"requestId": call.parse::<u64>().expect("a number")}));
        stopped(&mut gateway, "a");

        let mut gateway = Gateway::spawn(two(&flags));
        gateway.initialize_with(VERSION, r#"{"elicitation":{}}"#);
        gateway.open("dev");
        let call = gateway.post_call("dev__a__ask", json!({"method": "elicitation/create", "params": "{}"}));
        let question = gateway.question("elicitation/create");
        while_another_is_stopped(&mut gateway);
        gateway.reply(&question, r#""result":{"action":"accept","content":{}}"#);
        gateway.answer(&call).text();
        stopped(&mut gateway, "a");

        let mut gateway = Gateway::start(two(&flags));
        gateway.open("dev");
        let resource = json!({"uri": "workbench://dev/a/fake://resource/1"});
        gateway.request("resources/subscribe", &resource).result();
        while_another_is_stopped(&mut gateway);
        gateway.request("resources/unsubscribe", &resource).result();
        stopped(&mut gateway, "a");
    }
}

#[test]
fn a_task_keeps_it_running_until_its_client_knows_how_it_ended() {
    for era in [Era::Legacy, Era::Modern] {
        let name = if era == Era::Modern { "modern" } else { "legacy" };
        let flags = format!("--with job,finish --era {name} --count @dir/a");
        let file = format!(
            "active_toolsets = [\"*\"]\nidle_timeout = {SOON}\n{}{}",
            server("a", &flags, ""),
            server("b", "--with echo --count @dir/b", "")
        );
        let can_wait = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
        let mut client = Client::pipe(era, Gateway::spawn_toolman(Lab::new(), file, |_| ()), can_wait);
        client.tools();
        let task = (era == Era::Legacy).then(|| json!({"ttl": 600_000}));
        let begun =
            client.request("tools/call", json!({"name": "a_job", "arguments": {}, "task": task})).result();
        let id = if era == Era::Modern { &begun["taskId"] } else { &begun["task"]["taskId"] }.clone();
        for _ in 0..2 {
            stopped(client.gateway(), "b");
            client.call("b_echo", "{}").text();
        }
        assert!(runs(&client.gateway().lab, "a"), "{era:?}: a task is not over");
        client.call("a_finish", json!({"id": "task-1"})).text();
        let method = if era == Era::Modern { "tasks/get" } else { "tasks/result" };
        client.request(method, json!({"taskId": id})).result();
        stopped(client.gateway(), "a");
    }
}

#[test]
fn lists_change_if_it_offers_something_else_afterwards() {
    for era in ["legacy", "modern"] {
        let mut gateway = Gateway::start(config("dynamic", &format!("{FLAGS} --era {era}")));
        gateway.open("dev");
        gateway.notification(TOOLS_CHANGED);
        let later = json!({"name": "later", "inputSchema": {"type": "object"}}).to_string();
        gateway.call("dev__a__change", json!({"add": [later]})).text();
        gateway.notification(TOOLS_CHANGED);
        stopped(&mut gateway, "a");
        assert!(gateway.tools().contains(&"dev__a__later".to_owned()), "{era}");
        gateway.call("dev__a__echo", "{}").text();
        gateway.notification(TOOLS_CHANGED);
        assert!(!gateway.tools().contains(&"dev__a__later".to_owned()), "{era}");
    }
}

#[test]
fn a_start_that_fails_afterwards_is_a_crash() {
    let mut gateway = Gateway::start(config("dynamic", FLAGS));
    gateway.open("dev");
    gateway.notification(TOOLS_CHANGED);
    stopped(&mut gateway, "a");
    gateway.lab.write("broken", "");
    let text = gateway.call("dev__a__echo", "{}").failure();
    assert!(text.starts_with("[dev/a/echo] ") && text.contains("could not be started"), "{text}");
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["open_toolbox"]);
}

#[test]
fn no_call_is_lost_between_stopping_and_starting_however_often() {
    // So short that servers are being stopped whenever a call comes.
    let names = ["a", "b", "c", "d"];
    let entry = |name: &str| server(name, &format!("--with echo --count @dir/{name}"), "");
    let entries: String = names.iter().map(|name| entry(name)).collect();
    let file = format!("active_toolsets = [\"*\"]\nidle_timeout = 0.02\n{entries}");
    let mut gateway = Gateway::toolman(file);
    gateway.tools();
    for round in 0..100 {
        let calls = names.map(|name| gateway.post_call(&format!("{name}_echo"), json!({"text": round})));
        for call in calls {
            gateway.answer(&call).text();
        }
    }
    // Far more starts than eight a minute, and no `restart`.
    for name in names {
        for _ in 0..10 {
            stopped(&mut gateway, name);
            gateway.call(&format!("{name}_echo"), "{}").text();
        }
        assert!(gateway.lab.starts(name) > 10);
    }
    assert_eq!(gateway.changes(), [0, 0, 0]);
}

#[test]
fn the_next_process_begins_when_the_one_before_it_is_gone() {
    // It takes its time to end, and cannot start while another instance runs.
    let script =
        "trap '' TERM; mkdir $1/alone || exit 1; $2 --with echo --count $1/a; sleep 0.1; rmdir $1/alone";
    let args = ["-c", script, "sh", "@dir", &fake_path().display().to_string()];
    let mut config = dev("dynamic", json!({"a": {"command": "sh", "args": args}}));
    config["idleTimeout"] = json!(0.01);
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    while gateway.lab.starts("a") < 5 {
        gateway.call("dev__a__echo", "{}").text();
    }
}

#[test]
fn the_session_of_a_server_behind_a_url_is_begun_anew() {
    for (era, handshake) in [("legacy", "initialize"), ("modern", "server/discover")] {
        let remote = Remote::start(&format!("--with requests --era {era}"));
        let mut config =
            dev("dynamic", json!({"a": {"url": remote.url()}, "b": fake("--with echo --count @dir/b")}));
        config["idleTimeout"] = json!(SOON);
        let mut gateway = Gateway::start(config);
        gateway.open("dev");
        let handshakes = |gateway: &mut Gateway| {
            let seen = gateway.call("dev__a__requests", json!({"method": handshake})).json();
            seen.as_array().expect("a list").len()
        };
        let before = handshakes(&mut gateway);
        for _ in 0..2 {
            stopped(&mut gateway, "b");
            gateway.call("dev__b__echo", "{}").text();
        }
        assert_eq!(handshakes(&mut gateway), before + 1, "{era}");
    }
}

#[test]
fn the_session_of_a_server_behind_a_url_is_closed() {
    let remote = Remote::start("--with echo");
    let mut config = dev("dynamic", json!({"a": {"url": remote.url()}}));
    config["idleTimeout"] = json!(SOON);
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    // Whoever knows the session can ask whether the server still does; the gateway hears nothing of it.
    let knows = |session: &str| {
        let body = r#"{"jsonrpc":"2.0","id":"mine","method":"ping"}"#;
        let mut stream = TcpStream::connect(("127.0.0.1", remote.port)).expect("it listens");
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: {session}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut status = String::new();
        // It keeps the connection open for the next request.
        BufReader::new(stream).read_line(&mut status).expect("it answers");
        match status.split(' ').nth(1) {
            Some("200") => true,
            Some("404") => false,
            _ => panic!("{status}"),
        }
    };
    gateway.until("its session is closed", |_| !knows("session-1"));
    gateway.call("dev__a__echo", "{}").text();
    gateway.until("the next one, too", |_| !knows("session-2"));
}

#[test]
fn it_works_for_clients_over_http_of_both_eras() {
    for isolation in ["shared", "session"] {
        let mut entry = fake(FLAGS);
        (entry["isolation"], entry["idleTimeout"]) = (json!(isolation), json!(SOON));
        let host = Host::workbench(dev("dynamic", json!({"a": entry})));
        for era in [Era::Legacy, Era::Modern] {
            let mut client = host.client(era);
            client.call("open_toolbox", json!({"toolbox_name": "dev"})).json();
            client.until("it is stopped", |_| !runs(&host.lab, "a"));
            client.call("dev__a__echo", "{}").text();
        }
    }
}

#[test]
fn toolman_shows_the_same_over_stdio_and_http_and_tells_nobody() {
    let keys = format!("active_toolsets = [\"*\"]\nidle_timeout = {SOON}\nstartup_wait = 600\n");
    let file = keys + &server("a", FLAGS, "");
    for era in [Era::Legacy, Era::Modern] {
        let gateway = Gateway::spawn_toolman(Lab::new(), &file, |_| ());
        stays_as_it_was(Client::pipe(era, gateway, "{}"), None);
        let host = Host::toolman(&file);
        stays_as_it_was(host.client(era), Some(&host));
    }
}

/// A client's lists, toolman's catalog among them, are the same before its server rests, meanwhile and afterwards.
fn stays_as_it_was(mut client: Client, host: Option<&Host>) {
    fn lab<'a>(client: &'a mut Client, host: Option<&'a Host>) -> &'a Lab {
        host.map_or_else(|| &client.gateway().lab, |host| &host.lab)
    }
    let era = client.era;
    let lists = |client: &mut Client| {
        ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
            .map(|method| client.request(method, "{}").result())
    };
    let shown = lists(&mut client);
    if era == Era::Modern {
        let kinds =
            json!({"toolsListChanged": true, "resourcesListChanged": true, "promptsListChanged": true});
        client.post("subscriptions/listen", json!({ "notifications": kinds }));
        client.notification("notifications/subscriptions/acknowledged");
    }
    for round in 1..=2 {
        client.until("nobody has used it for long enough", |client| !runs(lab(client, host), "a"));
        assert_eq!(lists(&mut client), shown, "{era:?}");
        client.call("a_echo", "{}").text();
        assert_eq!(lists(&mut client), shown, "{era:?}");
        assert_eq!(lab(&mut client, host).starts("a"), 1 + round, "{era:?}");
    }
    // The first change that is told is the first that there is.
    let later = json!({"name": "later", "inputSchema": {"type": "object"}}).to_string();
    client.call("a_change", json!({"add": [later]})).text();
    client.notification(TOOLS_CHANGED);
    assert!(client.tools().contains(&"a_later".to_owned()), "{era:?}");
    let told = client.left().into_iter().filter(|message| message.method().ends_with("list_changed"));
    assert_eq!(told.count(), 0, "{era:?}");
}
