//! The lock: what models see of servers that changed, and the verb that approves it.
//!
//! A server *turns hostile* here by what it offers: the file that it reads its tools from has others at its next
//! start. Everything that was not approved holds the word [`POISON`], so that a surface that leaks it is found.

use serde_json::{Value, json};

use crate::client::{Client, Era, Host};
use crate::harness::{Finished, Gateway, Lab, Message, TOOLS_CHANGED, VERSION, dev, fake_with, server};
use crate::shell::Place;

/// Stands in every definition that nobody approved, and nowhere else.
const POISON: &str = "poison";

/// What the server offers when somebody approves it.
const GOOD: [&str; 4] = [
    r#"{"name":"read_file","description":"Read a file","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}}}"#,
    r#"{"name":"write_file","description":"Write a file","inputSchema":{"type":"object"}}"#,
    r#"{"name":"list","description":"List files"}"#,
    r#"{"name":"report","inputSchema":{"type":"object"}}"#,
];

/// What it offers then: other texts, another schema, one that is unchanged as a value, a new one, a member twice.
const HOSTILE: [&str; 6] = [
    r#"{"name":"read_file","description":"Read a file. poison","inputSchema":{"type":"object","properties":{"path":{"type":"string","title":"poison"}}}}"#,
    r#"{"name":"write_file","description":"Write a file","inputSchema":{"type":"object","required":["poison"]}}"#,
    r#"{ "description":"\u004cist files","name":"list"}"#,
    r#"{"name":"read_poison","description":"poison","inputSchema":{"type":"object"}}"#,
    r#"{"name":"report","inputSchema":{"type":"object"},"inputSchema":{"type":"object","title":"poison"}}"#,
    r#"{"name":"list_poison","inputSchema":{"type":"object"}}"#,
];

const RESOURCE: &str = r#"{"uri":"fake://r","name":"R","title":"poison","description":"poison"}"#;
const TEMPLATE: &str =
    r#"{"uriTemplate":"fake://t/{id}","name":"T","title":"poison","description":"poison"}"#;

/// The entry of the server, which offers what a file says, and a prompt.
fn files(prompt: &str) -> Value {
    fake_with(
        "--tools-of @dir/tools --count @dir/starts",
        &["--prompt", prompt, "--resource", RESOURCE, "--template", TEMPLATE],
    )
}

const PROMPT: &str = r#"{"name":"ask","description":"Ask"}"#;

fn offer(lab: &Lab, tools: &[&str]) {
    lab.write("tools", &tools.join("\n"));
}

fn text_of(lab: &Lab, name: &str) -> String {
    std::fs::read_to_string(lab.dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A configuration whose server was approved and has turned hostile since.
fn hostile(config: &Value) -> Lab {
    let place = Place::workbench(config.clone());
    offer(&place.lab, &GOOD);
    let locked = place.run(&["lock", "--yes"]);
    assert_eq!(locked.code, Some(0), "{}", locked.stderr);
    offer(&place.lab, &HOSTILE);
    place.lab
}

fn in_place(lab: Lab, config: &Value) -> Gateway {
    let mut gateway = Gateway::spawn_with(lab, config, |_| ());
    gateway.initialize(VERSION);
    gateway
}

/// Nothing that was not approved is in a text, apart from what the caller asked for.
#[track_caller]
fn clean(what: &str, text: &str) {
    let asked = [r#""query":"poison""#, r#"\"query\":\"poison\""#, "`poison`", "'poison'"];
    let text = asked.iter().fold(text.to_owned(), |text, asked| text.replace(asked, ""));
    assert!(!text.contains(POISON), "{what}: {text}");
}

#[test]
fn a_server_that_turns_hostile_changes_nothing_that_a_model_sees() {
    let config = dev("dynamic", json!({"files": files(PROMPT)}));
    let mut gateway = in_place(hostile(&config), &config);
    let opened = gateway.open("dev");
    assert_eq!((&opened["tools_registered"], &opened["tools_withheld"]), (&json!(2), &json!(4)));
    assert_eq!(gateway.tools(), ["open_toolbox", "dev__files__read_file", "dev__files__list"]);
    let list = gateway.request("tools/list", "{}");
    clean("the list", &list.raw);
    assert_eq!(list.result()["tools"][1]["description"], "[dev/files] Read a file", "the approved text");
    // As the server sent it, apart from what MCP does not allow.
    assert!(list.raw.contains(r#""description":"[dev/files] \u004cist files""#), "{}", list.raw);
    for name in ["dev__files__write_file", "dev__files__read_poison", "dev__files__report"] {
        let refused = gateway.call(name, "{}").failure();
        let own = name.rsplit("__").next().expect("a name");
        for part in [
            &format!("dev/files/{own}"),
            "workbench-config.lock",
            "a person can approve it with `mcp-workbench lock`",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
    assert!(gateway.use_tool("files", "write_file", "{}").failure().contains("is withheld"));
    assert!(!gateway.call("dev__files__read_file", r#"{"path":"x"}"#).is_error(), "the rest works");
    for (name, how) in [
        ("read_file", "has other texts than workbench-config.lock approves; clients see the approved ones"),
        ("write_file", "differs from what workbench-config.lock approves and is withheld"),
        ("read_poison", "is not in workbench-config.lock and is withheld"),
        ("report", "cannot be compared and is withheld: its definition has a member twice"),
    ] {
        logged(&mut gateway, &format!("[dev/files] the tool {name} {how}"), 1);
    }
    let stderr = gateway.stderr();
    let equal = stderr.lines().filter(|line| line.contains("the tool list ") && !line.contains("corrected"));
    assert_eq!(equal.count(), 0, "{stderr}");
}

/// Waits until the log holds a text so many times, and no more often.
#[track_caller]
fn logged(gateway: &mut Gateway, text: &str, times: usize) {
    let count = |gateway: &Gateway| gateway.stderr().matches(text).count();
    gateway.until(text, |gateway| count(gateway) >= times);
    assert_eq!(count(gateway), times, "{text}: {}", gateway.stderr());
}

/// A surface, and all that came back from it.
type Surface = (String, String);

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

/// The same prompt with an unapproved definition.
const HOSTILE_PROMPT: &str = r#"{"name":"ask","description":"Ask","arguments":[{"name":"poison"}]}"#;

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

fn tools_toml(prompt: &str, more: &str) -> String {
    let flags = format!(
        "--tools-of @dir/tools --count @dir/starts --prompt '{prompt}' --resource '{RESOURCE}' --template '{TEMPLATE}'"
    );
    format!("search = true\nactive_toolsets = [\"*\"]\n{more}\n{}", server("files", &flags, ""))
}

fn hostile_toolman(more: &str) -> Lab {
    let place = Place::toolman(&tools_toml(PROMPT, more));
    offer(&place.lab, &GOOD);
    let locked = place.run(&["lock", "--yes"]);
    assert_eq!(locked.code, Some(0), "{}", locked.stderr);
    assert!(
        text_of(&place.lab, "tools.lock")
            .starts_with("{\n  \"lockVersion\": 1,\n  \"namespaces\": {\n    \"files\": {\n")
    );
    offer(&place.lab, &HOSTILE);
    place.lab
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

#[test]
fn a_server_that_is_started_by_a_call_gets_none_for_what_it_changed() {
    for mode in ["dynamic", "proxy"] {
        let mut config = dev(mode, json!({"files": files(PROMPT)}));
        config["start"] = json!("call");
        let mut gateway = in_place(hostile(&config), &config);
        let opened = gateway.open("dev");
        assert_eq!(opened["tools_withheld"], Value::Null, "what is remembered is what was approved");
        let starts = gateway.lab.starts("starts");
        let refused = gateway.use_tool("files", "write_file", "{}").failure();
        assert!(refused.contains("[dev/files/write_file] it is withheld, since"), "{refused}");
        assert_eq!(gateway.lab.starts("starts"), starts + 1, "the server had to be asked");
        assert!(!gateway.use_tool("files", "read_file", "{}").is_error());
    }
}

#[test]
fn definitions_that_change_while_the_server_runs() {
    let tool = |rest: &str| format!(r#"{{"name":"t","inputSchema":{{"type":"object"}}{rest}}}"#);
    let (good, bad) = (tool(""), tool(r#","_meta":{"x":1}"#));
    let entry = fake_with("--with change,requests", &["--tool", &good]);
    let config = dev("dynamic", json!({"a": entry}));
    let place = Place::workbench(config.clone());
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let mut gateway = in_place(place.lab, &config);
    gateway.open("dev");
    let all = ["open_toolbox", "dev__a__change", "dev__a__requests", "dev__a__t"];
    assert_eq!(gateway.tools(), all);
    gateway.changes();
    let change = |gateway: &mut Gateway, now: &str| {
        gateway.call("dev__a__change", json!({"add": [now], "remove": ["t"]})).text();
    };
    change(&mut gateway, &bad);
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), &all[..3]);
    assert!(gateway.call("dev__a__t", "{}").failure().contains("is withheld"));
    let requests = gateway.call("dev__a__requests", r#"{"method":"tools/call"}"#).text();
    assert!(!requests.contains(r#""name":"t""#), "it did not reach the server: {requests}");
    change(&mut gateway, &good);
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), all, "it was changed back");
    assert!(!gateway.call("dev__a__t", "{}").is_error());
    // Other texts change nothing that clients see, so they are not told.
    change(&mut gateway, &tool(r#","description":"other","title":"other""#));
    gateway.stderr_with("the tool t has other texts");
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
    change(&mut gateway, &tool(r#","description":"again""#));
    change(&mut gateway, &bad);
    gateway.notification(TOOLS_CHANGED);
    logged(&mut gateway, "the tool t differs", 2);
    logged(&mut gateway, "the tool t has other texts", 1);
}

#[test]
fn resources_have_no_texts_while_a_lock_is_enforced() {
    for (rule, texts) in [(None, false), (Some("enforce"), false), (Some("warn"), true), (Some("off"), true)]
    {
        let mut config = dev("dynamic", json!({"files": files(PROMPT)}));
        if let Some(rule) = rule {
            config["lock"] = json!(rule);
        }
        let mut gateway = in_place(hostile(&config), &config);
        let opened = gateway.open("dev");
        for (method, list) in
            [("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")]
        {
            let shown = gateway.request(method, "{}").result()[list][0].clone();
            assert_eq!(
                (shown.get("title").is_some(), shown.get("description").is_some()),
                (texts, texts),
                "{shown}"
            );
            assert!(shown["name"].is_string());
        }
        let tools = gateway.tools().len() - 1;
        assert_eq!(tools, if texts { HOSTILE.len() } else { 2 }, "{rule:?}");
        assert_eq!(opened["tools_withheld"].as_u64(), (!texts).then_some(4), "{rule:?}");
        logged(&mut gateway, "the tool write_file differs", usize::from(rule != Some("off")));
        let nevertheless = "it is shown nevertheless, since `lock` is \"warn\"";
        let times = if rule == Some("warn") { HOSTILE.len() - 1 } else { 0 };
        logged(&mut gateway, nevertheless, times);
    }
}

#[test]
fn the_file_is_followed_while_the_gateway_serves() {
    let config = dev("dynamic", json!({"files": files(PROMPT)}));
    let lab = hostile(&config);
    let approved = text_of(&lab, "workbench-config.lock");
    let mut gateway = in_place(lab, &config);
    gateway.open("dev");
    gateway.changes();
    let few = ["open_toolbox", "dev__files__read_file", "dev__files__list"];
    assert_eq!(gateway.tools(), few);
    // One that vanishes or becomes invalid is reported, and the old one stays.
    let path = gateway.lab.dir.join("workbench-config.lock");
    std::fs::remove_file(&path).expect("it is there");
    gateway.stderr_with("the lock file does not exist");
    assert_eq!(gateway.tools(), few);
    for (text, message) in [
        ("{", "this is not valid JSON"),
        ("<<<<<<< HEAD\n{}\n", "this mark is left over from a merge with conflicts"),
        ("{\"lockVersion\": 2}", "this is version 2 of the format"),
    ] {
        gateway.replace_file("workbench-config.lock", text);
        let stderr = gateway.stderr_with(message);
        assert!(stderr.contains("workbench-config.lock:1:"), "{stderr}");
        assert_eq!(gateway.tools(), few);
    }
    let stderr = gateway.stderr();
    assert!(stderr.contains("until then, what was approved before stays in force"), "{stderr}");
    // A file with less withholds more; clients are told.
    gateway.replace_file("workbench-config.lock", "{\"lockVersion\": 1, \"toolboxes\": {}}");
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["open_toolbox"]);
    assert_eq!(gateway.open("dev")["tools_withheld"], json!(HOSTILE.len()));
    gateway.replace_file("workbench-config.lock", &approved);
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), few);
    // So does the key.
    let mut off = config.clone();
    off["lock"] = json!("off");
    gateway.rewrite(&off);
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools().len(), 1 + HOSTILE.len());
    gateway.rewrite(&config);
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), few);
    assert_eq!(gateway.lab.starts("starts"), 2, "once for the lock, and once since");
}

#[test]
fn a_lock_is_put_in_force_while_the_server_is_down() {
    let crash = r#"{"name":"crash","inputSchema":{"type":"object"}}"#;
    let config =
        dev("proxy", json!({"a": fake_with("--with echo", &["--tool", crash, "--count", "@dir/a"])}));
    let mut gateway = Gateway::start(&config);
    gateway.open("dev");
    gateway.use_tool("a", "crash", "{}").failure();
    let lock = json!({"lockVersion": 1, "toolboxes": {"dev": {"a": {"tools": {"crash": serde_json::from_str::<Value>(crash).expect("JSON")}}}}});
    gateway.replace_file("workbench-config.lock", &lock.to_string());
    gateway.until("the lock is in force", |gateway| {
        gateway.use_tool("a", "echo", "{}").raw.contains("it is withheld")
    });
}

#[test]
fn a_file_that_cannot_be_used_ends_the_program_with_its_place() {
    let config = |rule: Option<&str>| {
        let mut config = dev("dynamic", json!({"files": files(PROMPT)}));
        if let Some(rule) = rule {
            config["lock"] = json!(rule);
        }
        Place::workbench(config)
    };
    let cases = [
        (Some("enforce"), None, "1:1", "the lock file does not exist"),
        (None, Some("{\"lockVersion\": 1,\n"), "2:1", "this is not valid JSON"),
        (None, Some("{\n<<<<<<< HEAD\n"), "2:1", "this mark is left over from a merge with conflicts"),
        (Some("warn"), Some("{\"lockVersion\": 9}"), "1:17", "this is version 9 of the format"),
        (None, Some("{\"lockVersion\": 1, \"namespaces\": {}}"), "1:20", "this is a lock file of toolman"),
        (None, Some("{\"lockVersion\": 1, \"lockVersion\": 1}"), "1:20", "duplicate key `lockVersion`"),
        (None, Some("{\"lockVersion\": 1}"), "1:1", "the file has no `toolboxes`"),
    ];
    for (rule, text, place, message) in cases {
        let lab = config(rule);
        if let Some(text) = text {
            lab.lab.write("workbench-config.lock", text);
        }
        for args in [&["serve"][..], &["check"], &["list", "tools"], &["doctor"]] {
            let Finished { code, stderr, .. } = lab.run(args);
            assert_eq!(code, Some(2), "{args:?} {message}: {stderr}");
            assert!(
                stderr.contains(message) && stderr.contains(&format!("workbench-config.lock:{place}")),
                "{stderr}"
            );
        }
        let problem = lab.json(&["check"], 2)["problems"][0].take();
        let file = problem["file"].as_str().is_some_and(|file| file.ends_with("workbench-config.lock"));
        assert!(file && problem["message"].as_str().is_some_and(|told| told.contains(message)), "{problem}");
        // Only the verb that writes the file can do without it; it does not overwrite one that it cannot read.
        let locked = lab.run(&["lock", "--dry-run"]);
        offer(&lab.lab, &GOOD);
        assert_eq!(locked.code == Some(2), text.is_some(), "{message}: {}", locked.stderr);
    }
    for rule in ["absent", "off", "warn"] {
        let lab = config(Some(rule).filter(|rule| *rule != "absent"));
        if rule == "off" {
            lab.lab.write("workbench-config.lock", "{");
        }
        assert_eq!(lab.run(&["check"]).code, Some(0), "{rule}");
    }
    let other = Place::workbench(json!({"lock": "on", "toolboxes": {}}));
    let stderr = other.run(&["check"]).stderr;
    assert!(
        stderr.contains("`enforce`, `warn` or `off`") || stderr.contains("\"enforce\", \"warn\" or \"off\""),
        "{stderr}"
    );
}

#[test]
fn checking_dry_runs_and_writing() {
    let place = Place::workbench(dev("dynamic", json!({"files": files(PROMPT)})));
    offer(&place.lab, &GOOD);
    let path = place.lab.dir.join("workbench-config.lock");
    assert_eq!(place.run(&["lock", "--check"]).code, Some(1), "nothing is approved yet");
    assert_eq!(place.run(&["lock", "--dry-run"]).code, Some(0));
    let unasked = place.run(&["lock"]);
    assert!(unasked.code == Some(2) && unasked.stderr.contains("--yes"), "{}", unasked.stderr);
    assert!(!path.exists());
    let written = place.run(&["lock", "--yes"]);
    assert_eq!(written.code, Some(0));
    assert!(
        written.stdout.contains("dev/files/read_file: new\n    {\n      \"name\": \"read_file\",\n"),
        "{}",
        written.stdout
    );
    assert!(written.stdout.contains("dev/files/ask (a prompt): new\n"), "{}", written.stdout);
    let first = text_of(&place.lab, "workbench-config.lock");
    for args in [&["lock", "--check"][..], &["lock", "--yes"], &["lock"]] {
        let again = place.run(args);
        assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""), "{}", again.stderr);
        assert_eq!(text_of(&place.lab, "workbench-config.lock"), first, "{args:?}");
    }
    assert_eq!(place.json(&["lock", "--check"], 0), json!({"ok": true, "changes": [], "failed": []}));
    let hidden = r#"{"name":"read_file","description":"Read any\u200b file\t","inputSchema":{"type":"object","properties":{"path":{"type":"number"}}}}"#;
    offer(&place.lab, &[hidden, GOOD[1], GOOD[2], r#"{"name":"new"}"#]);
    let checked = place.run(&["lock", "--check"]);
    assert_eq!(checked.code, Some(1));
    let expected = "dev/files/new: new
    {
      \"name\": \"new\"
    }
dev/files/read_file: changed
    description: Read [-a-]{+any\\u200b+} file{+\\t+}
    inputSchema.properties.path.type: [-\"string\"-]{+\"number\"+}
dev/files/report: gone
";
    assert_eq!(checked.stdout, expected);
    let warning = "warning: dev/files/read_file has invisible characters: U+200B\n";
    assert!(checked.stderr.contains(warning), "{}", checked.stderr);
    let row = |kind: &str, name: &str, change: &str| json!({"toolbox": "dev", "server": "files", "kind": kind, "name": name, "change": change, "characters": []});
    let mut changed = row("tool", "read_file", "other");
    changed["paths"] = json!(["description", "inputSchema.properties.path.type"]);
    changed["characters"] = json!(["U+200B"]);
    let expected = json!({"ok": false, "changes": [row("tool", "new", "new"), changed, row("tool", "report", "gone")], "failed": []});
    assert_eq!(place.json(&["lock", "--check"], 1), expected);
    assert_eq!(place.json(&["lock", "--dry-run"], 0), expected);
    assert_eq!(text_of(&place.lab, "workbench-config.lock"), first);
    // One item alone, by any name that is unique.
    for (item, unknown) in
        [("read_fil", true), ("other/files", true), ("files/nothing", true), ("dev/files/new", false)]
    {
        let run = place.run(&["lock", "--yes", item]);
        assert_eq!(run.code, Some(if unknown { 2 } else { 0 }), "{item}: {}", run.stderr);
        assert_eq!(run.stderr.contains("there is no server or tool"), unknown, "{}", run.stderr);
    }
    let second = text_of(&place.lab, "workbench-config.lock");
    assert!(
        second.contains("\"new\": {") && second.contains("Read a file") && second.contains("\"report\""),
        "{second}"
    );
    for item in ["report", "files/read_file"] {
        assert_eq!(place.run(&["lock", "--yes", item]).code, Some(0), "{item}");
    }
    let third = text_of(&place.lab, "workbench-config.lock");
    assert!(third.contains("Read any\\u200b file\\t") && !third.contains("\"report\""), "{third}");
    assert_eq!(place.run(&["lock", "--check"]).code, Some(0));
}

#[test]
fn servers_that_cannot_be_asked_are_disabled_or_are_gone() {
    let tool =
        |name: &str| fake_with("--fail-while @dir/broken", &["--tool", &format!(r#"{{"name":"{name}"}}"#)]);
    let config = |servers: Value| json!({"toolboxes": {"dev": {"mcpServers": servers}, "ops": {"mcpServers": {"a": tool("x")}}}});
    let place = Place::workbench(config(json!({"a": tool("a"), "b": tool("b"), "c": tool("c")})));
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let first = text_of(&place.lab, "workbench-config.lock");
    let rewrite =
        |value: &Value| drop(place.lab.write("workbench-config.json", &place.lab.fill(&value.to_string())));
    // Ambiguous names are not guessed.
    let run = place.run(&["lock", "--check", "a"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    for name in ["dev/a", "dev/a/a", "ops/a"] {
        assert!(run.stderr.contains(&format!("  {name}\n")), "{}", run.stderr);
    }
    // A server that fails keeps what it has: 4, unless something differs.
    let mut failing = tool("b");
    failing["args"].as_array_mut().expect("a list").extend([json!("--exit"), json!("3")]);
    rewrite(&config(json!({"a": tool("a"), "b": failing, "c": tool("c")})));
    for args in [&["lock", "--check"][..], &["lock", "--yes"]] {
        let run = place.run(args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(4), ""), "{}", run.stderr);
        assert!(
            run.stderr
                .contains("warning: dev/b: the server exited with status 3; its part of the lock stays"),
            "{}",
            run.stderr
        );
    }
    let told = place.json(&["lock", "--check"], 4);
    let failed = json!([{"toolbox": "dev", "server": "b", "error": "the server exited with status 3"}]);
    assert_eq!((&told["ok"], &told["failed"]), (&json!(true), &failed));
    assert_eq!(text_of(&place.lab, "workbench-config.lock"), first);
    rewrite(&config(json!({"a": tool("other"), "b": failing, "c": tool("c")})));
    assert_eq!(place.run(&["lock", "--check"]).code, Some(1), "something differs");
    // A disabled server stays, one that is not configured leaves.
    let mut disabled = tool("b");
    disabled["disabled"] = json!(true);
    rewrite(&config(json!({"a": tool("a"), "b": disabled})));
    let told = place.json(&["lock", "--check"], 1);
    let gone = json!([{"toolbox": "dev", "server": "c", "kind": "tool", "name": "c", "change": "gone", "characters": []}]);
    assert_eq!((&told["changes"], &told["failed"]), (&gone, &json!([])));
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let now: Value = serde_json::from_str(&text_of(&place.lab, "workbench-config.lock")).expect("JSON");
    let servers: Vec<_> = now["toolboxes"]["dev"].as_object().expect("an object").keys().cloned().collect();
    assert_eq!(servers, ["a", "b"]);
}

#[test]
fn what_holds_a_secret_or_a_member_twice_is_not_written() {
    let mut entry = fake_with("--tools-of @dir/tools", &[]);
    entry["env"] = json!({"KEY": "fixture-secret\"x"});
    entry["toolFilters"] = json!(["a", "b", "c"]);
    let place = Place::workbench(dev("dynamic", json!({"a": entry})));
    offer(
        &place.lab,
        &[
            r#"{"name":"a","description":"fine"}"#,
            r#"{"name":"b","description":"it is fixture\u002dsecret\u0022x"}"#,
            r#"{"name":"c","x":{"y":1,"\u0079":2}}"#,
            r#"{"name":"d","description":"left out by the filter"}"#,
        ],
    );
    let run = place.run(&["lock", "--yes"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stderr
            .contains("dev/a/b holds a secret of the configuration; it is not written and stays withheld"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("dev/a/c has the member \"y\" twice; it is not written"), "{}", run.stderr);
    assert!(!format!("{}{}", run.stdout, run.stderr).contains("secret\"x"), "{}", run.stdout);
    let lock: Value = serde_json::from_str(&text_of(&place.lab, "workbench-config.lock")).expect("JSON");
    assert_eq!(lock["toolboxes"]["dev"]["a"]["tools"], json!({"a": {"name": "a", "description": "fine"}}));
    let told = place.json(&["lock", "--check"], 1);
    let failed: Vec<_> = told["failed"].as_array().expect("a list").iter().map(|one| &one["error"]).collect();
    assert_eq!(
        failed,
        ["the tool b holds a secret of the configuration", "the tool c has the member \"y\" twice"]
    );
    let doctor = place.json(&["doctor"], 0);
    assert_eq!(
        doctor["servers"][0]["withheld"],
        json!(["b", "c"]),
        "what the filter leaves out is not withheld"
    );
}

#[test]
fn servers_of_toolman_that_share_a_namespace_share_a_lock() {
    let tool =
        |name: &str, text: &str| format!("--tool '{{\"name\":\"{name}\",\"description\":\"{text}\"}}'");
    let first = server("n", &format!("{} {}", tool("a", "first"), tool("b", "b")), "");
    let second =
        server("n", &format!("{} {} --fail-while @dir/broken", tool("a", "second"), tool("c", "c")), "");
    let bare = server("", &tool("plain", "x"), "");
    let place = Place::toolman(&format!("active_toolsets = [\"*\"]\n{first}{second}{bare}"));
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let lock: Value = serde_json::from_str(&text_of(&place.lab, "tools.lock")).expect("JSON");
    let tools = &lock["namespaces"]["n"]["tools"];
    assert_eq!((&tools["a"]["description"], &tools["c"]["name"]), (&json!("first"), &json!("c")));
    assert_eq!(lock["namespaces"][""]["tools"]["plain"]["name"], "plain");
    place.lab.write("broken", "");
    let told = place.json(&["lock", "--check"], 4);
    assert_eq!((&told["changes"], &told["failed"][0]["namespace"]), (&json!([]), &json!("n")));
    std::fs::remove_file(place.lab.dir.join("broken")).expect("it was written");
    for (item, code) in [("n", 0), ("n/a", 0), ("plain", 0), ("b", 0), ("x", 2)] {
        assert_eq!(place.run(&["lock", "--check", item]).code, Some(code), "{item}");
    }
    let mut gateway = Gateway::run_in(place.lab, &crate::harness::toolman_path(), |_| ());
    gateway.initialize(VERSION);
    let mut tools = gateway.tools();
    tools.sort();
    assert_eq!(tools, ["n_a", "n_b", "n_c", "plain", "toolman_activate"]);
}

#[test]
fn adding_servers_says_that_the_lock_needs_renewing() {
    let place = Place::workbench(dev("dynamic", json!({})));
    let needs = "workbench-config.lock needs renewing: `mcp-workbench lock`";
    let flat = |finished: Finished| finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!flat(place.run(&["add", "one", "--yes", "--", "one"])).contains(needs));
    place.lab.write("workbench-config.lock", "{\"lockVersion\": 1, \"toolboxes\": {}}");
    let said = flat(place.run(&["add", "two", "--yes", "--", "two"]));
    assert!(said.contains(needs), "{said}");
    place.lab.write("other.json", r#"{"mcpServers": {"three": {"command": "three"}}}"#);
    let said = flat(place.run(&["import", "other.json", "--yes"]));
    assert!(said.contains(needs), "{said}");
    let said = flat(place.run(&["import", "other.json", "--yes"]));
    assert!(!said.contains(needs), "nothing is new: {said}");
}

#[test]
fn search_finds_what_was_approved_of_servers_that_do_not_run() {
    let mut config = dev("proxy", json!({"files": files(PROMPT)}));
    config["search"] = json!(true);
    let lab = hostile(&config);
    // The memory holds what the server offers now.
    let mut first = Gateway::spawn_with(lab, &config, |_| ());
    first.initialize(VERSION);
    first.open("dev");
    let mut gateway = in_place(first.finish(), &config);
    let starts = gateway.lab.starts("starts");
    for query in ["read file", POISON, "write file"] {
        let found = gateway.call("find_tools", json!({"query": query})).json();
        let names: Vec<_> =
            found["tools"].as_array().expect("a list").iter().map(|tool| tool["name"].clone()).collect();
        assert!(names.iter().all(|name| name == "read_file" || name == "list"), "{found}");
        clean("search", &found["tools"].to_string());
    }
    let found = gateway.call("find_tools", json!({"query": "read file"})).json();
    assert_eq!(found["tools"][0]["description"], "Read a file");
    assert_eq!(gateway.lab.starts("starts"), starts, "searching starts nothing");
}

/// A person sees the difference and a warning of what nobody sees, and then decides.
#[cfg(target_os = "linux")]
#[test]
fn a_person_is_shown_what_differs_and_asked() {
    use crate::pty::{ALL, Terminal};
    let place = Place::workbench(dev("dynamic", json!({"files": files(PROMPT)})));
    offer(&place.lab, &GOOD);
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let first = text_of(&place.lab, "workbench-config.lock");
    let hidden = GOOD[0].replace("Read a file", "Read a\\u202e file");
    offer(&place.lab, &[&hidden, GOOD[1], GOOD[2], GOOD[3]]);
    for (keys, written) in [("n\n", false), ("y\n", true)] {
        let mut command = place.lab.command();
        command.arg("lock").env("TERM", "xterm").env("NO_COLOR", "1");
        let mut terminal = Terminal::start(command, ALL);
        terminal.wait_for("dev/files/read_file: other texts\r\n    description: Read a{+\\u202e+} file\r\n");
        terminal.wait_for("has invisible characters: U+202E");
        terminal.wait_for("Change ~/workbench-config.lock? [y/N/d] ").press(keys);
        let ended = terminal.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(text_of(&place.lab, "workbench-config.lock") != first, written, "{ended:?}");
    }
    place.lab.wait_until_gone(crate::harness::DEADLINE);
}

#[test]
fn toolman_tells_how_many_tools_are_withheld() {
    let config = format!("active_toolsets = [\"*\"]\n{}", server("n", "--with change", ""));
    let place = Place::toolman(&config);
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let mut gateway = Gateway::run_in(place.lab, &crate::harness::toolman_path(), |_| ());
    gateway.initialize(VERSION);
    assert!(!gateway.catalog().contains("withheld"));
    gateway.changes();
    gateway.call("n_change", json!({"add": [r#"{"name":"new"}"#]})).text();
    gateway.notification(TOOLS_CHANGED);
    let catalog = gateway.catalog();
    let last = "1 tool is withheld, since its definition was not approved.";
    assert_eq!(catalog.lines().last(), Some(last), "{catalog}");
    gateway.call("n_change", json!({"remove": ["new"]})).text();
    gateway.notification(TOOLS_CHANGED);
    assert!(!gateway.catalog().contains("withheld"));
}

#[test]
fn a_server_that_differs_by_client_is_compared_for_each() {
    let mut entry = files(PROMPT);
    entry["isolation"] = json!("session");
    let config = dev("dynamic", json!({"files": entry}));
    let place = Place::workbench(config.clone());
    offer(&place.lab, &GOOD);
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let host = Host::new(Gateway::spawn_with(place.lab, &config, |command| {
        command.args(["serve", "--http", "127.0.0.1:0"]);
    }));
    let open = |client: &mut Client| client.call("open_toolbox", json!({"toolbox_name": "dev"})).json();
    let mut first = host.client(Era::Legacy);
    assert_eq!(open(&mut first)["tools_registered"], json!(GOOD.len()));
    offer(&host.lab, &HOSTILE);
    let mut second = host.client(Era::Legacy);
    assert_eq!(open(&mut second)["tools_withheld"], json!(4));
    assert_eq!((first.tools().len(), second.tools().len()), (1 + GOOD.len(), 3));
    assert!(!first.call("dev__files__write_file", "{}").is_error());
    assert!(second.call("dev__files__write_file", "{}").is_error());
}
