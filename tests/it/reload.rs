//! The file changes while the gateway serves.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{DEADLINE, Gateway, Lab, Peer, TOOLS_CHANGED, VERSION, as_served, dev, fake, server};

impl Gateway {
    /// Writes another `workbench-config.json` beside the old one and renames it, as editors do.
    #[track_caller]
    pub(crate) fn rewrite(&mut self, config: &Value) {
        self.replace_file("workbench-config.json", &config.to_string());
    }

    #[track_caller]
    pub(crate) fn replace_file(&mut self, name: &str, text: &str) {
        replace_file(&self.lab, name, text);
    }

    /// Has the file read, whatever it holds, and waits until nothing of that is left to do: a toolbox is added that
    /// takes effect with the rest.
    #[track_caller]
    pub(crate) fn reload(&mut self, mut config: Value, mark: &str) {
        config["toolboxes"][mark] = json!({"mcpServers": {}});
        self.rewrite(&config);
        self.until("the file is in force", |gateway| {
            let opened = gateway.call("open_toolbox", json!({"toolbox_name": mark}));
            !opened.is_error()
        });
    }
}

fn replace_file(lab: &Lab, name: &str, text: &str) {
    let text = match name {
        "workbench-config.json" | "tools.toml" => as_served(lab.fill(text)),
        _ => lab.fill(text),
    };
    let beside = lab.write("beside", &text);
    std::fs::rename(beside, lab.dir.join(name)).expect("the directory is ours");
}

#[test]
fn only_a_server_whose_entry_changed_restarts() {
    let a = |more: &str| fake(&format!("--with report --count @dir/a {more}"));
    let b = fake("--with report --count @dir/b");
    let mut gateway = Gateway::start(dev("dynamic", json!({"a": a(""), "b": b})));
    gateway.open("dev");
    assert_eq!(gateway.count(TOOLS_CHANGED), 1);
    let (first, other) = (gateway.pid_of("a"), gateway.pid_of("b"));
    gateway.rewrite(&dev("dynamic", json!({"a": a("--with echo"), "b": b})));
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["open_toolbox", "dev__a__report", "dev__a__echo", "dev__b__report"]);
    assert_ne!(gateway.pid_of("a"), first);
    assert_eq!(gateway.pid_of("b"), other);
    assert_eq!((gateway.lab.starts("a"), gateway.lab.starts("b")), (2, 1));
    assert_eq!(gateway.count(TOOLS_CHANGED), 0, "told once");
    // The environment alone changes no list, but it is another entry.
    let mut entry = a("--with echo");
    entry["env"] = json!({"SEEN": "by the server"});
    gateway.rewrite(&dev("dynamic", json!({"a": entry, "b": b})));
    gateway.until("it has the new environment", |gateway| {
        gateway.use_tool("a", "report", "{}").json()["env"]["SEEN"] == "by the server"
    });
    assert_eq!((gateway.lab.starts("a"), gateway.lab.starts("b")), (3, 1));
    assert_eq!(gateway.count(TOOLS_CHANGED), 0, "the list is what it was");
}

#[test]
fn calls_in_flight_finish_on_what_they_started_with() {
    for gone in [false, true] {
        let entry = |more: &str| fake(&format!("--with slow,started,release,report --count @dir/a {more}"));
        let b = fake("--with echo");
        let mut gateway = Gateway::start(dev("proxy", json!({"a": entry(""), "b": b})));
        gateway.open("dev");
        let first = gateway.pid_of("a");
        let call = gateway.post_use_tool("a", "slow", r#"{"key":"k","ms":3000}"#);
        gateway.use_tool("a", "started", r#"{"key":"k"}"#).text();
        let servers = if gone { json!({"b": b}) } else { json!({"a": entry("--tools 1"), "b": b}) };
        gateway.rewrite(&dev("proxy", servers));
        gateway.until("the new entry is in force", |gateway| {
            let answer = gateway.use_tool("a", "report", "{}");
            if gone { answer.is_error() } else { answer.json()["pid"].as_u64() != Some(first) }
        });
        assert!(!gateway.has(|message| message.id() == call), "it has not been answered, nor cut off");
        assert!(gateway.lab.processes().iter().any(|(pid, _)| u64::from(*pid) == first), "it drains");
        gateway.answer(&call).text();
        gateway.until("it ends when nobody needs it", |gateway| {
            !gateway.lab.processes().iter().any(|(pid, _)| u64::from(*pid) == first)
        });
    }
}

#[test]
fn a_server_added_to_an_open_toolbox_starts_at_once_and_a_removed_one_ends() {
    let entry = |name: &str| fake(&format!("--with echo --count @dir/{name}"));
    let with = |names: &[&str]| {
        let servers: serde_json::Map<_, _> = names.iter().map(|n| ((*n).to_owned(), entry(n))).collect();
        let mut config = dev("dynamic", Value::Object(servers));
        config["toolboxes"]["closed"] = json!({"mcpServers": {"z": entry("closed")}});
        config
    };
    let mut gateway = Gateway::start(with(&["a", "c"]));
    gateway.open("dev");
    gateway.notification(TOOLS_CHANGED);
    gateway.rewrite(&with(&["a", "b", "c"]));
    gateway.notification(TOOLS_CHANGED);
    let tools = ["open_toolbox", "dev__a__echo", "dev__b__echo", "dev__c__echo"];
    assert_eq!(gateway.tools(), tools, "in the order of the file");
    gateway.call("dev__b__echo", "{}").text();
    // One goes and one comes: told once all the same.
    gateway.rewrite(&with(&["_d", "b", "c"]));
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["open_toolbox", "dev___d__echo", "dev__b__echo", "dev__c__echo"]);
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
    gateway.call("dev__a__echo", "{}").failure();
    let starts = ["a", "b", "c", "_d", "closed"].map(|name| gateway.lab.starts(name));
    assert_eq!(starts, [1, 1, 1, 1, 0]);
    gateway.until("the removed one has ended", |gateway| {
        !gateway.lab.processes().iter().any(|(_, line)| line.contains("/a "))
    });
}

#[test]
fn settings_take_effect_at_once_and_restart_nothing() {
    let a = || fake("--with report,echo,never --count @dir/a");
    let config = || dev("dynamic", json!({"a": a()}));
    let mut gateway = Gateway::start(config());
    gateway.open("dev");
    gateway.notification(TOOLS_CHANGED);
    let first = gateway.pid_of("a");

    let mut filtered = config();
    filtered["toolboxes"]["dev"]["mcpServers"]["a"]["toolFilters"] = json!(["report", "never"]);
    gateway.rewrite(&filtered);
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["open_toolbox", "dev__a__report", "dev__a__never"]);
    gateway.call("dev__a__echo", "{}").failure();

    filtered["toolboxes"]["dev"]["mcpServers"]["a"]["callTimeout"] = json!(0.1);
    filtered["toolboxes"]["dev"]["description"] = json!("Another description");
    gateway.rewrite(&filtered);
    // The description stands in that of `open_toolbox`.
    gateway.notification(TOOLS_CHANGED);
    let listed = gateway.request("tools/list", "{}");
    assert!(listed.raw.contains("Another description"), "{listed:?}");
    let failure = gateway.call("dev__a__never", "{}").failure();
    assert!(failure.contains("timeout"), "{failure}");
    assert_eq!(gateway.open("dev")["description"], "Another description");

    filtered["maxNameLength"] = json!(12);
    gateway.rewrite(&filtered);
    gateway.notification(TOOLS_CHANGED);
    let names = gateway.tools();
    assert!(names[1..].iter().all(|name| name.len() == 12 && name.starts_with("dev_")), "{names:?}");
    gateway.call(&names[1], "{}").text();

    filtered["toolMode"] = json!("proxy");
    gateway.rewrite(&filtered);
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["open_toolbox", "use_tool"]);
    assert_eq!(gateway.pid_of("a"), first);
    assert_eq!(gateway.lab.starts("a"), 1);
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
}

#[test]
fn an_invalid_file_is_reported_and_the_old_one_stays_in_force() {
    let config = dev("dynamic", json!({"a": fake("--with echo --count @dir/a")}));
    let mut gateway = Gateway::start(&config);
    gateway.open("dev");
    gateway.notification(TOOLS_CHANGED);
    gateway.replace_file("workbench-config.json", r#"{"toolboxes": {"dev": {"mcpServers": {"a": {}}}}}"#);
    let stderr = gateway.stderr_with("1 error; the old configuration stays in force");
    assert!(stderr.contains("the server has neither `command` nor `url`"), "{stderr}");
    assert!(stderr.contains("workbench-config.json:1:"), "{stderr}");
    gateway.call("dev__a__echo", "{}").text();
    std::fs::remove_file(gateway.lab.dir.join("workbench-config.json")).expect("it is there");
    gateway.stderr_with("cannot read");
    gateway.call("dev__a__echo", "{}").text();
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
    gateway.reload(config, "mark");
    assert_eq!(gateway.lab.starts("a"), 1);
}

#[test]
fn the_command_line_overrides_the_new_file_too() {
    let config = |mode: &str| dev(mode, json!({"a": fake("--with echo")}));
    let mut gateway = Gateway::spawn_with(Lab::new(), config("dynamic"), |command| {
        command.args(["--tool-mode", "proxy"]);
    });
    gateway.initialize(VERSION);
    gateway.reload(config("dynamic"), "mark");
    assert_eq!(gateway.tools(), ["open_toolbox", "use_tool"]);
}

#[cfg(unix)]
#[test]
fn sighup_reads_the_file_again() {
    let config = dev("dynamic", json!({"a": fake("--with echo --count @dir/a")}));
    let mut gateway = Gateway::start(&config);
    gateway.open("dev");
    gateway.notification(TOOLS_CHANGED);
    gateway.signal("HUP");
    gateway.replace_file("workbench-config.json", "{");
    gateway.signal("HUP");
    gateway.stderr_with("the old configuration stays in force");
    gateway.call("dev__a__echo", "{}").text();
    assert_eq!(gateway.lab.starts("a"), 1);
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
}

#[test]
fn a_toolbox_that_is_gone_is_closed() {
    let server = || json!({"mcpServers": {"a": fake("--with echo")}});
    let mut gateway = Gateway::start(json!({"toolboxes": {"dev": server(), "ops": server()}}));
    gateway.open("dev");
    gateway.open("ops");
    assert_eq!(gateway.count(TOOLS_CHANGED), 2);
    gateway.rewrite(&json!({"toolboxes": {"ops": server()}}));
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["open_toolbox", "ops__a__echo"]);
    let failure = gateway.call("open_toolbox", json!({"toolbox_name": "dev"})).failure();
    assert!(failure.starts_with("Toolbox 'dev' not found in configuration"), "{failure}");
    gateway.call("ops__a__echo", "{}").text();
}

#[test]
fn toolman_re_evaluates_what_is_active_and_keeps_what_was_switched_by_hand() {
    let servers = server("a", "--with report,echo,slow,large --count @dir/a", "")
        + &server("", "--with raw --count @dir/nameless", "");
    let mut gateway = Gateway::toolman(format!("active_toolsets = [\"a_report\", \"a_slow\"]\n{servers}"));
    gateway.activate([&["a_large"], &["a_slow"], &[], &[]]).text();
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["toolman_activate", "a_report", "a_large"]);
    let text = format!("active_toolsets = [\"a_echo\", \"a_slow\", \"raw\"]\n{servers}");
    gateway.replace_file("tools.toml", &text);
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["toolman_activate", "a_echo", "a_large", "raw"]);
    // One more, before the others; one changed; the one without a namespace is known all the same.
    let servers = server("b", "--with report --count @dir/b", "")
        + &server("a", "--with echo,slow,large,report --count @dir/a", "")
        + &server("", "--with raw --count @dir/nameless", "call_timeout = 7");
    gateway.replace_file("tools.toml", &format!("active_toolsets = [\"*\"]\n{servers}"));
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["toolman_activate", "b_report", "a_echo", "a_large", "a_report", "raw"]);
    assert_eq!(["a", "b", "nameless"].map(|name| gateway.lab.starts(name)), [2, 1, 1]);
    gateway.replace_file("tools.toml", &server("b", "--with report --count @dir/b", ""));
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["toolman_activate"]);
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
    gateway.until("the removed ones have ended", |gateway| {
        !gateway.lab.processes().iter().any(|(_, line)| line.contains("nameless"))
    });
}

#[test]
fn over_http_tokens_that_are_gone_end_their_sessions() {
    let config = |tokens: Value, flags: &str| {
        let mut config = dev("dynamic", json!({"a": fake(flags)}));
        config["auth"] = json!({"tokens": tokens});
        config
    };
    let both = json!([{"name": "one", "token": "token-one"}, {"name": "two", "token": "token-two"}]);
    let lab = Lab::new();
    lab.write("workbench-config.json", &lab.fill(&config(both, "--with echo").to_string()));
    let mut peer = Peer::spawn(lab.command().args(["serve", "--http", "127.0.0.1:0"]));
    let line = peer.next().raw;
    let address = line.strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix("/mcp"));
    let http = Http { address: address.expect("an address").to_owned() };
    let one = http.open("token-one");
    let two = http.open("token-two");
    for (token, session) in [("token-one", &one), ("token-two", &two)] {
        let open = r#"{"name":"open_toolbox","arguments":{"toolbox_name":"dev"}}"#;
        assert_eq!(http.post(token, session, "tools/call", open).0, 200);
    }
    let fewer = json!([{"name": "two", "token": "token-two"}, {"name": "three", "token": "token-three"}]);
    replace_file(&lab, "workbench-config.json", &config(fewer, "--with echo,report").to_string());
    let end = std::time::Instant::now() + DEADLINE;
    while http.post("token-one", &one, "tools/list", "{}").0 != 401 {
        assert!(std::time::Instant::now() < end, "{}", peer.stderr());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(http.post("token-three", &one, "tools/list", "{}").0, 404);
    while !http.post("token-two", &two, "tools/list", "{}").1.contains("dev__a__report") {
        assert!(std::time::Instant::now() < end, "{}", peer.stderr());
        std::thread::sleep(Duration::from_millis(2));
    }
    peer.signal("TERM");
    assert!(peer.wait().success());
    lab.wait_until_gone(DEADLINE);
}

#[test]
fn several_settings_at_once_take_effect_together() {
    let entry = || fake("--with report,large --count @dir/a");
    let mut gateway = Gateway::start(dev("dynamic", json!({"a": entry()})));
    gateway.open("dev");
    gateway.notification(TOOLS_CHANGED);
    let mut config = dev("proxy", json!({"a": entry()}));
    config["maxMessageBytes"] = json!(100_000);
    config["maxNameLength"] = json!(12);
    config["metaTools"] = json!("classic");
    config["questionTimeout"] = json!(1);
    gateway.rewrite(&config);
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(
        gateway.tools(),
        [
            "workbench_list_toolboxes",
            "workbench_open_toolbox",
            "workbench_close_toolbox",
            "workbench_use_tool"
        ]
    );
    let failure = gateway.use_tool("a", "large", json!({"bytes": 200_000})).failure();
    assert!(failure.contains("maxMessageBytes"), "{failure}");
    assert_eq!(gateway.lab.starts("a"), 1);
    assert_eq!(gateway.count(TOOLS_CHANGED), 0, "told once");
}

#[cfg(unix)]
mod over_http {
    use super::*;
    use crate::client::{Client, Era, Host};

    #[test]
    fn toolman_follows_its_file() {
        for era in [Era::Legacy, Era::Modern] {
            let a = server("a", "--with echo,report --count @dir/a", "");
            let host = Host::toolman(format!("active_toolsets = [\"a_echo\"]\n{a}"));
            let mut client = host.client(era);
            client.until("it is ready", |client| client.tools().contains(&"a_echo".to_owned()));
            let b = server("b", "--with large", "");
            replace_file(&host.lab, "tools.toml", &format!("active_toolsets = [\"*\"]\n{a}{b}"));
            if era == Era::Legacy {
                client.notification(TOOLS_CHANGED);
            }
            client.until("what is new is there", |client| {
                let tools = client.tools();
                ["a_echo", "a_report", "b_large"].iter().all(|name| tools.iter().any(|tool| tool == name))
            });
            replace_file(&host.lab, "tools.toml", "active_toolsets = [");
            host.stderr_with("the old configuration stays in force");
            client.call("b_large", json!({"bytes": 3})).text();
            assert_eq!(host.lab.starts("a"), 1);
        }
    }

    #[test]
    fn a_toolbox_as_a_plain_server_follows_the_file() {
        for era in [Era::Legacy, Era::Modern] {
            let config = |flags: &str| dev("dynamic", json!({"a": fake(flags), "b": fake("--with large")}));
            let host = Host::workbench(config("--with echo"));
            let mut client = host.client_at(era, "/mcp/dev");
            assert_eq!(client.tools(), ["echo", "large"]);
            replace_file(&host.lab, "workbench-config.json", &config("--with echo,report").to_string());
            client.until("the new tool is there", |client| client.tools() == ["echo", "report", "large"]);
            client.call("report", "{}").text();
            replace_file(
                &host.lab,
                "workbench-config.json",
                &json!({"toolboxes": {"ops": {"mcpServers": {}}}}).to_string(),
            );
            let web = client.over_http();
            let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
            let end = std::time::Instant::now() + DEADLINE;
            while web.exchange("POST", &web.common(), ping).status != 404 {
                assert!(std::time::Instant::now() < end, "the toolbox is gone");
                std::thread::sleep(Duration::from_millis(2));
            }
            let mut other = host.client(Era::Modern);
            assert!(!other.call("open_toolbox", r#"{"toolbox_name":"ops"}"#).is_error());
        }
    }

    #[test]
    fn a_server_of_each_session_restarts_for_each() {
        let config = |seen: &str| {
            let mut entry = fake("--with report");
            entry["isolation"] = json!("session");
            entry["env"] = json!({"SEEN": seen});
            dev("proxy", json!({"a": entry, "b": fake("--with report")}))
        };
        let host = Host::workbench(config("first"));
        let mut clients = [host.client(Era::Legacy), host.client(Era::Legacy)];
        fn report(client: &mut Client, server: &str) -> Value {
            let tool = json!({"toolbox": "dev", "server": server, "tool": "report"});
            client.call("use_tool", json!({"tool": tool, "arguments": {}})).json()
        }
        for client in &mut clients {
            client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        }
        let before = clients.each_mut().map(|client| report(client, "a")["pid"].clone());
        let shared = clients.each_mut().map(|client| report(client, "b")["pid"].clone());
        assert_ne!(before[0], before[1]);
        assert_eq!(shared[0], shared[1]);
        replace_file(&host.lab, "workbench-config.json", &config("second").to_string());
        for client in &mut clients {
            client.until("it has the new one", |client| report(client, "a")["env"]["SEEN"] == "second");
        }
        let after = clients.each_mut().map(|client| report(client, "a")["pid"].clone());
        assert_ne!(after[0], after[1]);
        assert!(!before.contains(&after[0]) && !before.contains(&after[1]));
        assert_eq!(clients.each_mut().map(|client| report(client, "b")["pid"].clone()), shared);
    }
}

/// A client that knows just enough of HTTP.
struct Http {
    address: String,
}

impl Http {
    /// A session of this token.
    #[track_caller]
    fn open(&self, token: &str) -> String {
        let hello = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let (status, answer) = self.post(token, "", "initialize", &hello.to_string());
        assert_eq!(status, 200, "{answer}");
        let header = answer.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
        });
        header.expect("a session id")
    }

    /// Status and the whole answer, head and body.
    #[track_caller]
    fn post(&self, token: &str, session: &str, method: &str, params: &str) -> (u16, String) {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let session =
            if session.is_empty() { String::new() } else { format!("Mcp-Session-Id: {session}\r\n") };
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a deadline");
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{session}\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), answer)
    }
}

#[test]
fn while_a_server_starts_clients_hear_of_everything_else() {
    let config = |description: &str, late: &str| {
        let servers = json!({"a": fake("--with echo"), "late": fake(&format!("{late} --count @dir/late"))});
        let mut config = dev("dynamic", servers);
        config["toolboxes"]["other"] =
            json!({"description": description, "mcpServers": {"b": fake("--with echo,crash")}});
        config
    };
    let late = "--with echo --wait-for @dir/go";
    let mut gateway = Gateway::start(config("", "--with report"));
    gateway.open("dev");
    gateway.notification(TOOLS_CHANGED);
    gateway.rewrite(&config("", late));
    gateway.until("it starts", |gateway| gateway.lab.starts("late") == 2);
    gateway.open("other");
    assert_eq!(gateway.count(TOOLS_CHANGED), 1, "an open tells at once");
    gateway.call("other__b__crash", "{}").failure();
    gateway.notification(TOOLS_CHANGED);
    gateway.rewrite(&config("Another description", late));
    gateway.notification(TOOLS_CHANGED);
    assert!(gateway.request("tools/list", "{}").raw.contains("Another description"));
    gateway.lab.write("go", "");
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["open_toolbox", "dev__a__echo", "dev__late__echo"]);
}

#[test]
fn what_a_server_linked_to_can_be_read_after_its_entry_changed() {
    let entry = |more: &str| fake(&format!("--with result,report --count @dir/a {more}"));
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry("")})));
    gateway.open("dev");
    let link = r#"{"content":[{"type":"resource_link","uri":"hidden://x","name":"x"}]}"#;
    gateway.use_tool("a", "result", json!({"json": link})).result();
    let read =
        |gateway: &mut Gateway| gateway.request("resources/read", json!({"uri": "hidden://x"})).result();
    read(&mut gateway);
    gateway.reload(dev("proxy", json!({"a": entry("--tools 1")})), "mark");
    gateway.until("the new one runs", |gateway| gateway.lab.starts("a") == 2);
    read(&mut gateway);
}
