//! Every surface that names a tool, while a server is hostile.

use std::collections::BTreeSet;

use crate::client::{Over, Web};

use super::*;

/// What a client asks for here, and what cannot show a definition: every method of the protocol that we answer.
const ASKED: [&str; 8] = [
    "tools/call",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "resources/read",
];
const WITHOUT_DEFINITIONS: [&str; 12] = [
    "ping",
    // Both greet; the instructions are looked at on their own.
    "initialize",
    "server/discover",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
    "subscriptions/listen",
    "tasks/get",
    "tasks/result",
    "tasks/list",
    "tasks/cancel",
    "tasks/update",
];

/// A method that the gateway answers and that is in neither list above is a surface that was forgotten.
#[test]
fn every_method_is_asked_or_shows_no_definition() {
    let mut methods = arms(include_str!("../../../src/gateway/mod.rs"));
    methods.extend(arms(include_str!("../../../src/gateway/modern.rs")));
    methods.retain(|method| !method.starts_with("notifications/"));
    // This one is answered before the table is looked at.
    methods.extend(["tools/call"]);
    let known: BTreeSet<_> = ASKED.into_iter().chain(WITHOUT_DEFINITIONS).collect();
    assert_eq!(methods, known);
}

/// The texts in the arms of a source's tables.
fn arms(source: &str) -> BTreeSet<&str> {
    let arms = source.lines().filter_map(|line| Some(line.split_once(" => ")?.0.trim()));
    let arms = arms.filter(|arm| arm.starts_with('"'));
    arms.flat_map(|arm| arm.split('"').skip(1).step_by(2)).collect()
}

/// Everything that a client can ask for, in words that find, guess or name what is withheld.
fn surfaces_of_a_client(ask: &mut dyn FnMut(&str, Value) -> Message, toolman: bool) -> Vec<Surface> {
    let asked = std::cell::RefCell::new(Vec::new());
    let ask = &mut |method: &str, params: Value| {
        asked.borrow_mut().push(method.to_owned());
        ask(method, params)
    };
    let mut seen = Vec::new();
    let mut note = |what: &str, message: &Message| seen.push((what.to_owned(), message.raw.clone()));
    if !toolman {
        // A closed toolbox is described as it is remembered.
        let closed = ["read_file", "write_file", "read_poisn", "zzz"]
            .map(|tool| json!({"toolbox": "dev", "server": "files", "tool": tool}));
        let describe = json!({"name": "describe_tools", "arguments": {"tools": closed}});
        note("describing what is closed", &ask("tools/call", describe));
        for call in [
            json!({"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}),
            json!({"name": "workbench_open_toolbox", "arguments": {"toolbox_name": "dev"}}),
        ] {
            note("opening", &ask("tools/call", call));
        }
    }
    let lists = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"];
    let mut tools = Vec::new();
    for method in lists {
        let answer = ask(method, json!({}));
        if method == "tools/list" {
            tools = answer.names("tools");
        }
        note(method, &answer);
    }
    // What is asked of each of our own tools. A tool that is not here is a surface that was forgotten.
    let own = |tool: &str| -> Option<Vec<Value>> {
        let address = |tool: &str| json!({"toolbox": "dev", "server": "files", "tool": tool});
        Some(match tool {
            "open_toolbox" | "workbench_open_toolbox" => vec![json!({"toolbox_name": "nowhere"})],
            "workbench_list_toolboxes" => vec![json!({})],
            "workbench_close_toolbox" => vec![json!({"toolbox_name": "nowhere"})],
            "use_tool" => vec![
                json!({"tool": address("read_poisn"), "arguments": {}}),
                json!({"tool": address("zzz"), "arguments": {}}),
                json!({"tool": address("write_file"), "arguments": {}}),
            ],
            "workbench_use_tool" => vec![
                json!({"toolbox_name": "dev", "tool_name": "dev__files__read_poisn", "arguments": {}}),
                json!({"toolbox_name": "dev", "tool_name": "write_file", "arguments": {}}),
            ],
            "describe_tools" => {
                vec![json!({"tools": [address("write_file"), address("read_file"), address("zzz")]})]
            }
            "find_tools" | "toolman_find" => {
                vec![
                    json!({"query": "poison"}),
                    json!({"query": "write a file"}),
                    json!({"query": "read file"}),
                ]
            }
            "toolman_describe" => {
                vec![json!({"names": ["files_write_file", "files_read_file", "files_read_poisn", "zzz"]})]
            }
            "read_result" | "toolman_read_result" => vec![json!({"id": "r0000000000000000"})],
            "toolman_activate" => {
                let lists = |on: Value| json!({"tools_on": on, "tools_off": [], "resources_on": [], "resources_off": []});
                vec![
                    lists(json!([])),
                    lists(json!(["*"])),
                    lists(json!(["files_write_file"])),
                    lists(json!(["files_read_poisn"])),
                ]
            }
            "toolman_call" => vec![json!({"name": "files_read_poisn"}), json!({"name": "files_write_file"})],
            _ => return None,
        })
    };
    for tool in tools {
        let is_own = !["dev__", "files", "read_file", "list"].iter().any(|prefix| tool.starts_with(prefix));
        match own(&tool) {
            Some(calls) => {
                for arguments in calls {
                    note(&tool, &ask("tools/call", json!({"name": tool, "arguments": arguments})));
                }
            }
            None => assert!(!is_own, "nobody has asked {tool} for what is withheld"),
        }
    }
    for name in ["dev__files__read_poisn", "files_read_poisn", "read_poisn", "write_file", "zzz"] {
        note("a call", &ask("tools/call", json!({"name": name, "arguments": {}})));
    }
    for (method, params) in [
        ("prompts/get", json!({"name": "askk"})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "askk"}, "argument": {"name": "a", "value": ""}}),
        ),
        ("resources/read", json!({"uri": "toolman://catalog"})),
        ("resources/read", json!({"uri": "fake://x"})),
    ] {
        note(method, &ask(method, params));
    }
    for method in lists {
        note(method, &ask(method, json!({})));
    }
    for method in ASKED {
        assert!(asked.borrow().iter().any(|asked| asked == method), "{method} was not asked");
    }
    seen
}

/// Asks a client for everything, and returns it.
#[track_caller]
fn asked_for_everything(what: &str, mut client: Client, toolman: bool) -> (Client, Vec<Surface>) {
    let hello = match client.era {
        Era::Legacy => "ping",
        Era::Modern => "server/discover",
    };
    clean(&format!("{what}: {hello}"), &client.request(hello, "{}").raw);
    let seen = surfaces_of_a_client(&mut |method, params| client.request(method, params), toolman);
    for (surface, text) in &seen {
        clean(&format!("{what}: {surface}"), text);
    }
    (client, seen)
}

#[test]
fn no_surface_of_a_client_shows_what_is_withheld() {
    for mode in ["dynamic", "proxy", "auto", "flat", "classic"] {
        for (start, era) in [("open", Era::Legacy), ("open", Era::Modern), ("call", Era::Legacy)] {
            let config = |prompt: &str| {
                let mut config = dev(mode, json!({"files": files(prompt)}));
                if mode == "classic" {
                    (config["toolMode"], config["metaTools"]) = (json!("proxy"), json!("classic"));
                }
                (config["start"], config["search"]) = (json!(start), json!(true));
                config
            };
            let lab = hostile(&config(PROMPT));
            let gateway = Gateway::spawn_with(lab, config(HOSTILE_PROMPT), |_| ());
            let what = format!("{mode}, {start}, {era:?}");
            let (mut client, seen) = asked_for_everything(&what, Client::pipe(era, gateway, CAN_ALL), false);
            // Only how many there are is told.
            let opened = seen.iter().filter(|(surface, _)| surface == "opening");
            let told =
                opened.filter(|(_, text)| text.replace('\\', "").contains(r#""tools_withheld":4"#)).count();
            assert!(told > 0, "{what}: {seen:?}");
            assert!(client.request("prompts/list", "{}").names("prompts").is_empty());
        }
    }
}

#[test]
fn instructions_do_not_show_what_is_withheld() {
    let mut config = dev("auto", json!({"files": files(PROMPT)}));
    config["search"] = json!(true);
    let mut gateway = Gateway::spawn_with(hostile(&config), &config, |_| ());
    let hello = gateway.initialize(VERSION);
    assert!(hello.result()["instructions"].is_string(), "{hello:?}");
    clean("instructions", &hello.raw);
    let mut gateway = Gateway::spawn_toolman(hostile_toolman(""), tools_toml(PROMPT, ""), |_| ());
    let hello = gateway.initialize(VERSION);
    assert!(hello.result()["instructions"].is_string(), "{hello:?}");
    clean("instructions of toolman", &hello.raw);
}

#[test]
fn no_surface_of_a_client_over_http_shows_what_is_withheld() {
    let mut config = dev("auto", json!({"files": files(PROMPT)}));
    config["search"] = json!(true);
    let host = Host::new(Gateway::spawn_with(hostile(&config), &config, |command| {
        command.args(["serve", "--http", "127.0.0.1:0"]);
    }));
    for era in [Era::Legacy, Era::Modern] {
        asked_for_everything("/mcp", host.client(era), false);
        let (mut plain, _) = asked_for_everything("/mcp/dev", host.client_at(era, "/mcp/dev"), false);
        assert_eq!(plain.tools(), ["read_file", "list"]);
        let refused = plain.call("write_file", "{}");
        assert!(
            refused.raw.contains("dev/files/write_file cannot be used: it is withheld"),
            "{}",
            refused.raw
        );
    }
}

#[test]
fn no_surface_of_toolman_shows_what_is_withheld() {
    for (more, era, over) in [
        ("", Era::Legacy, Over::Stdio),
        ("", Era::Modern, Over::Stdio),
        ("", Era::Legacy, Over::Http),
        ("", Era::Modern, Over::Http),
        ("start = \"call\"", Era::Legacy, Over::Stdio),
    ] {
        let what = format!("{more} {era:?} {over:?}");
        let start = |http: &[&str]| {
            Gateway::spawn_toolman(hostile_toolman(more), tools_toml(PROMPT, more), |command| {
                command.args(http);
            })
        };
        let (client, _host) = match over {
            Over::Stdio => (Client::pipe(era, start(&[]), CAN_ALL), None),
            Over::Http => {
                let host = Host::new(start(&["serve", "--http", "127.0.0.1:0"]));
                (host.client(era), Some(host))
            }
        };
        let (mut client, _) = asked_for_everything(&what, client, true);
        // What is remembered is compared too, and what is remembered is what was approved.
        client.call("files_list", "{}");
        let catalog = |client: &mut Client| {
            let read = client.request("resources/read", json!({"uri": "toolman://catalog"})).result();
            read["contents"][0]["text"].as_str().expect("a text").to_owned()
        };
        client.until("the server has said what it offers now", |client| catalog(client).contains("withheld"));
        let catalog = catalog(&mut client);
        assert_eq!(
            catalog.lines().last(),
            Some("4 tools are withheld, since their definitions were not approved."),
            "{catalog}"
        );
        let refused = client.call("files_write_file", "{}").failure();
        assert!(
            refused.contains("files/write_file cannot be used") && refused.contains("tools.lock"),
            "{refused}"
        );
        assert!(refused.contains("`mcp-workbench lock --face toolman`"), "{refused}");
    }
}

/// The console is a surface, too: whatever its pages ask for.
#[test]
fn the_console_does_not_show_what_is_withheld() {
    let config = dev("dynamic", json!({"files": files(PROMPT)}));
    let host = Host::new(Gateway::spawn_with(hostile(&config), &config, |command| {
        command.args(["serve", "--http", "127.0.0.1:0", "--console"]);
    }));
    let mut client = host.client(Era::Legacy);
    client.call("open_toolbox", json!({"toolbox_name": "dev"})).text();
    let started = host.stderr_with("/console#key=");
    let (_, key) = started.split_once("/console#key=").expect("the address of the console");
    let mut tab = Web::new(&host.address);
    tab.token = key.split_whitespace().next().map(str::to_owned);
    let mut events = Web::new(&host.address);
    (events.token, events.path) = (tab.token.clone(), "/console/api/events".to_owned());
    let mut asked = BTreeSet::from(["/events".to_owned()]);
    let mut ask = |method: &str, path: &str, body: &str| {
        asked.insert(format!("/{}", path.split('?').next().expect("a path")));
        tab.path = format!("/console/api/{path}");
        tab.exchange(method, &tab.common(), body)
    };
    let all = ask("GET", "tools", "").body;
    let found: Value = serde_json::from_str(&all).expect("JSON");
    assert_eq!(found["total"], 2, "{all}");
    clean("tools", &all);
    for query in ["poison", "write"] {
        clean(query, &ask("GET", &format!("tools?query={query}"), "").body);
    }
    let id = found["tools"][0]["id"].as_str().expect("an id");
    for (name, status) in [("read_file", 200), ("write_file", 404), ("read_poison", 404)] {
        let id = id.replace("read_file", name).replace("list", name);
        let encoded: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let shown = ask("GET", &format!("tool?id={encoded}"), "");
        let called = ask("POST", "call", &json!({"id": id, "arguments": {}}).to_string());
        assert_eq!((shown.status, called.status), (status, status), "{name}: {} {}", shown.body, called.body);
        clean(name, &(shown.body + &called.body));
    }
    // The calls come last, and one of them was for the tool that is approved.
    events.listen();
    Client::of_session(events, CAN_ALL).take("the calls", |told| {
        clean("events", &told.raw);
        told.raw.contains("read_file")
    });
    let server = json!([0, "dev", "files", 0]).to_string();
    let encoded: String = server.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let order = json!({"id": server}).to_string();
    for (method, path, body, status) in [
        ("GET", &*format!("server?id={encoded}"), "", 200),
        ("POST", "restart", &order, 200),
        ("GET", "kept?call=0", "", 200),
        ("GET", "tools", "", 200),
        ("POST", "stop", &order, 200),
        ("GET", "tools?query=poison", "", 200),
    ] {
        let told = ask(method, path, body);
        assert_eq!(told.status, status, "{path}: {}", told.body);
        clean(path, &told.body);
    }
    // A path that was not asked for is a surface that was forgotten.
    let asked: BTreeSet<_> = asked.iter().map(String::as_str).collect();
    assert_eq!(arms(include_str!("../../../src/gateway/console/api.rs")), asked);
}

#[test]
fn no_verb_shows_what_is_withheld() {
    let config = dev("dynamic", json!({"files": files(PROMPT)}));
    let place = Place::workbench(config.clone());
    offer(&place.lab, &GOOD);
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    offer(&place.lab, &HOSTILE);
    let shows = [
        &["list", "servers"][..],
        &["list", "toolboxes"],
        &["list", "tools"],
        &["list", "resources"],
        &["list", "prompts"],
        &["show", "dev/files/read_file"],
        &["show", "dev/files/write_file"],
        &["show", "read_poisn"],
        &["call", "dev/files/list"],
        &["call", "dev/files/write_file"],
        &["call", "read_poisn"],
        &["search", POISON],
        &["search", "write", "file"],
        &["tokens"],
        &["check"],
        &["completions", "bash"],
    ];
    for fresh in [true, false] {
        for args in shows {
            let asks = ["list", "show", "call", "search", "tokens"].contains(&args[0]);
            let fresh: &[&str] = if fresh && asks { &["--fresh"] } else { &[] };
            let Finished { stdout, stderr, .. } = place.run(&[args, fresh].concat());
            clean(&format!("{args:?}"), &stdout);
            clean(&format!("{args:?}"), &stderr);
        }
    }
    let called = place.run(&["call", "dev/files/write_file"]);
    assert_eq!(called.code, Some(2), "{}", called.stderr);
    assert!(
        called.stderr.contains("dev/files/write_file cannot be used: it is withheld"),
        "{}",
        called.stderr
    );
    // A verb that is not here was forgotten: those that look at servers are above, these cannot or must not hide it.
    let others = [
        "serve",
        "doctor",
        "login",
        "logout",
        "demo",
        "init",
        "import",
        "add",
        "remove",
        "connect",
        "disconnect",
        "schema",
        "man",
        "lock",
        "move",
        "enable",
        "disable",
        "describe",
        "rename",
        "status",
        "console",
        "stop",
        "log",
        "stats",
        "help",
    ];
    let help = place.run(&["--help"]).stdout;
    let verbs = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.trim().is_empty());
    let verbs: Vec<_> = verbs.filter(|line| line.starts_with("  ") && !line.starts_with("   ")).collect();
    assert!(verbs.len() > 15, "{help}");
    for verb in verbs.iter().filter_map(|line| line.split_whitespace().next()) {
        assert!(others.contains(&verb) || shows.iter().any(|args| args[0] == verb), "{verb} was forgotten");
    }
    // A person is told by name.
    let doctor = place.json(&["doctor"], 0);
    let withheld = &doctor["servers"][0]["withheld"];
    assert_eq!(*withheld, json!(["write_file", "read_poison", "report", "list_poison"]), "{doctor}");
    let doctor = place.run(&["doctor"]).stdout;
    assert!(
        doctor.contains("withheld by the lock: write_file, read_poison, report, list_poison\n"),
        "{doctor}"
    );
}
