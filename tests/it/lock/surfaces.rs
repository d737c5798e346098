//! Every surface that names a tool, while a server is hostile.

use super::*;

/// Everything that a client can ask for, in words that find, guess or name what is withheld.
fn surfaces_of_a_client(ask: &mut dyn FnMut(&str, Value) -> Message, toolman: bool) -> Vec<Surface> {
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
    seen
}

#[test]
fn no_surface_of_a_client_shows_what_is_withheld() {
    for mode in ["dynamic", "proxy", "auto", "flat", "classic"] {
        for start in ["open", "call"] {
            let config = |prompt: &str| {
                let mut config = dev(mode, json!({"files": files(prompt)}));
                if mode == "classic" {
                    (config["toolMode"], config["metaTools"]) = (json!("proxy"), json!("classic"));
                }
                (config["start"], config["search"]) = (json!(start), json!(true));
                config
            };
            let lab = hostile(&config(PROMPT));
            let hello = |hello: Message| clean(&format!("{mode}: instructions"), &hello.raw);
            let config = config(HOSTILE_PROMPT);
            let mut gateway = Gateway::spawn_with(lab, &config, |_| ());
            hello(gateway.initialize(VERSION));
            for (what, text) in
                surfaces_of_a_client(&mut |method, params| gateway.request(method, params), false)
            {
                clean(&format!("{mode}, {start}: {what}"), &text);
            }
            assert!(gateway.prompts().is_empty());
            let refused = gateway.request("prompts/get", json!({"name": "dev__files__ask"})).raw;
            let refused_again = gateway.request("prompts/get", json!({"name": "ask"})).raw;
            assert!(
                refused.contains("workbench-config.lock") || refused_again.contains("workbench-config.lock"),
                "{refused}"
            );
        }
    }
}

#[test]
fn no_surface_of_a_client_over_http_shows_what_is_withheld() {
    let mut config = dev("auto", json!({"files": files(PROMPT)}));
    config["search"] = json!(true);
    let host = Host::new(Gateway::spawn_with(hostile(&config), &config, |command| {
        command.args(["serve", "--http", "127.0.0.1:0"]);
    }));
    let surfaces = |what: &str, mut client: Client| {
        for (surface, text) in
            surfaces_of_a_client(&mut |method, params| client.request(method, params), false)
        {
            clean(&format!("{what}: {surface}"), &text);
        }
        client
    };
    for era in [Era::Legacy, Era::Modern] {
        surfaces("/mcp", host.client(era));
        let mut plain = surfaces("/mcp/dev", host.client_at(era, "/mcp/dev"));
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
    for more in ["", "start = \"call\""] {
        let mut gateway = Gateway::spawn_toolman(hostile_toolman(more), tools_toml(PROMPT, more), |_| ());
        clean("instructions", &gateway.initialize(VERSION).raw);
        gateway.tools();
        for (what, text) in surfaces_of_a_client(&mut |method, params| gateway.request(method, params), true)
        {
            clean(&format!("{more} {what}"), &text);
        }
        // What is remembered is compared too, and what is remembered is what was approved.
        gateway.call("files_list", "{}");
        gateway.until("the server has said what it offers now", |gateway| {
            gateway.catalog().contains("withheld")
        });
        let catalog = gateway.catalog();
        assert_eq!(
            catalog.lines().last(),
            Some("4 tools are withheld, since their definitions were not approved."),
            "{catalog}"
        );
        let refused = gateway.call("files_write_file", "{}").failure();
        assert!(
            refused.contains("files/write_file cannot be used") && refused.contains("tools.lock"),
            "{refused}"
        );
        assert!(refused.contains("`mcp-workbench lock --face toolman`"), "{refused}");
    }
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
