//! The lock: what models see of servers that changed, and the verb that approves it.
//!
//! A server *turns hostile* here by what it offers: the file that it reads its tools from has others at its next
//! start. Everything that was not approved holds the word [`POISON`], so that a surface that leaks it is found.

mod surfaces;
mod verb;

use serde_json::{Value, json};

use crate::client::{CAN_ALL, Client, Era, Host};
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
    r#"{"name":"list_poison"}"#,
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
    for (what, how) in [
        (
            "the texts of the tool read_file",
            "differ from those approved in workbench-config.lock; clients see the approved ones",
        ),
        ("the tool write_file", "differs from the one approved in workbench-config.lock and is withheld"),
        (
            "the tool read_poison",
            "is not in workbench-config.lock and is withheld; a person can approve it with `mcp-workbench lock`",
        ),
        ("the tool report", "cannot be compared and is withheld: its definition has a member twice"),
    ] {
        logged(&mut gateway, &format!("[dev/files] {what} {how}"), 1);
    }
    let stderr = gateway.stderr();
    let equal = stderr.lines().filter(|line| line.contains("the tool list ") && !line.contains("corrected"));
    assert_eq!(equal.count(), 0, "{stderr}");
    assert!(stderr.contains("the tool list is shown corrected"), "{stderr}");
    assert!(!stderr.contains("the tool list_poison is shown"), "what is withheld is not shown: {stderr}");
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

/// The same prompt with an unapproved definition.
const HOSTILE_PROMPT: &str = r#"{"name":"ask","description":"Ask","arguments":[{"name":"poison"}]}"#;

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
fn a_prompt_that_is_withheld_is_neither_got_nor_completed() {
    let entry = |prompt: &str| fake_with("--with requests", &["--prompt", prompt]);
    let config = |prompt: &str| dev("dynamic", json!({"files": entry(prompt)}));
    let toml = |prompt: &str| {
        let entry = server("files", &format!("--with requests --prompt '{prompt}'"), "");
        format!("active_toolsets = [\"*\"]\n{entry}")
    };
    for era in [Era::Legacy, Era::Modern] {
        let place = Place::workbench(config(PROMPT));
        assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
        let gateway = Gateway::spawn_with(place.lab, config(HOSTILE_PROMPT), |_| ());
        let mut client = Client::pipe(era, gateway, CAN_ALL);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        withholds_a_prompt(&mut client, "dev__files__ask", "dev/files/ask", "workbench-config.lock");
        let asked =
            json!({"tool": {"toolbox": "dev", "server": "files", "tool": "requests"}, "arguments": {}});
        let requests = client.call("use_tool", asked).text();
        assert!(!requests.contains("prompts/get") && !requests.contains("completion/"), "{requests}");
        let place = Place::toolman(&toml(PROMPT));
        assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
        let gateway = Gateway::spawn_toolman(place.lab, toml(HOSTILE_PROMPT), |_| ());
        let mut client = Client::pipe(era, gateway, CAN_ALL);
        client.until("the server is up", |client| client.tools().contains(&"files_requests".to_owned()));
        withholds_a_prompt(&mut client, "files_ask", "files/ask", "tools.lock");
        let requests = client.call("files_requests", "{}").text();
        assert!(!requests.contains("prompts/get") && !requests.contains("completion/"), "{requests}");
    }
}

/// A prompt that is withheld under this name is an error that names it and the file.
#[track_caller]
fn withholds_a_prompt(client: &mut Client, name: &str, item: &str, file: &str) {
    assert!(client.request("prompts/list", "{}").names("prompts").is_empty());
    let reference =
        json!({"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "poison", "value": ""}});
    for (method, params) in [("prompts/get", json!({"name": name})), ("completion/complete", reference)] {
        let refused = client.request(method, params).raw;
        for part in [item, "it is withheld", file, "a person can approve it with `mcp-workbench lock"] {
            assert!(refused.contains(part), "{method}: {part}: {refused}");
        }
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
    gateway.stderr_with("the texts of the tool t differ");
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
    change(&mut gateway, &tool(r#","description":"again""#));
    change(&mut gateway, &bad);
    gateway.notification(TOOLS_CHANGED);
    logged(&mut gateway, "the tool t differs", 2);
    logged(&mut gateway, "the texts of the tool t differ", 1);
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
fn a_lock_that_only_warns_stays_when_its_file_goes() {
    let tool = |rest: &str| format!(r#"{{"name":"t","inputSchema":{{"type":"object"}}{rest}}}"#);
    let (good, bad) = (tool(""), tool(r#","_meta":{"x":1}"#));
    let mut config = dev("dynamic", json!({"a": fake_with("--with change", &["--tool", &good])}));
    config["lock"] = json!("warn");
    let place = Place::workbench(config.clone());
    assert_eq!(place.run(&["lock", "--yes"]).code, Some(0));
    let path = place.lab.dir.join("workbench-config.lock");
    let mut gateway = in_place(place.lab, &config);
    gateway.open("dev");
    let change = |gateway: &mut Gateway, now: &str| {
        gateway.call("dev__a__change", json!({"add": [now], "remove": ["t"]})).text();
    };
    // Each time the server differs from what was approved, which is logged, and clients see what it sends.
    let differs = |gateway: &mut Gateway, times: usize| {
        gateway.changes();
        change(gateway, &bad);
        gateway.notification(TOOLS_CHANGED);
        logged(gateway, "the tool t differs from the one approved in workbench-config.lock", times);
        logged(gateway, "it is shown nevertheless, since `lock` is \"warn\"", times);
        assert!(gateway.request("tools/list", "{}").raw.contains(r#""x":1"#));
        assert!(!gateway.call("dev__a__t", "{}").is_error());
        change(gateway, &good);
        gateway.notification(TOOLS_CHANGED);
    };
    differs(&mut gateway, 1);
    std::fs::remove_file(&path).expect("it is there");
    gateway.stderr_with("the lock file does not exist");
    differs(&mut gateway, 2);
    gateway.replace_file("workbench-config.lock", "{");
    gateway.stderr_with("this is not valid JSON");
    differs(&mut gateway, 3);
    logged(&mut gateway, "until then, what was approved before stays in force", 2);
    // A file that is there again counts, and here it approves nothing.
    gateway.replace_file("workbench-config.lock", "{\"lockVersion\": 1, \"toolboxes\": {}}");
    logged(&mut gateway, "the tool t is not in workbench-config.lock", 1);
    assert!(!gateway.call("dev__a__t", "{}").is_error());
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
