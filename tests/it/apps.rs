//! MCP Apps through the gateway: pages under URIs that hosts accept, apps that use the names they know, and tools that are
//! not for the model. `tests/apps` shows the same in a browser.

use serde_json::{Value, json};

use crate::client::{Client, Era, Host};
use crate::harness::{Gateway, Lab, Message, dev, fake_with, server};

/// A client that renders apps.
const RENDERS: &str = r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]},"com.example/other":{"x":1.10}}}"#;
/// One that does not.
const PLAIN: &str = "{}";

/// The page that every server of [`app`] has.
const PAGE: &str = "ui://shared/page.html";

/// What a server with an app offers: a tool that shows it, one for apps alone, the page, and a note that is its own.
fn offers(name: &str) -> [String; 4] {
    let meta = json!({"ui": {"resourceUri": PAGE, "prefersBorder": true}, "ui/resourceUri": PAGE, "x": 1});
    let poll = json!({"ui": {"resourceUri": PAGE, "visibility": ["app"]}});
    [
        json!({"name": format!("show-{name}"), "inputSchema": {"type": "object"}, "_meta": meta}),
        json!({"name": format!("poll-{name}"), "description": "Polls", "inputSchema": {"type": "object"}, "_meta": poll}),
        json!({"uri": PAGE, "name": "Page", "mimeType": "text/html;profile=mcp-app"}),
        json!({"uri": format!("ui://{name}/note"), "name": "Note"}),
    ]
    .map(|definition| definition.to_string())
}

/// An entry of `mcpServers` for a server with an app, and with these behaviours.
fn app(name: &str, flags: &str) -> Value {
    let [show, poll, page, note] = offers(name);
    fake_with(flags, &["--tool", &show, "--tool", &poll, "--resource", &page, "--resource", &note])
}

/// The same for `tools.toml`.
fn toolman_app(namespace: &str, name: &str, flags: &str) -> String {
    let [show, poll, page, note] = offers(name);
    server(
        namespace,
        &format!("{flags} --tool '{show}' --tool '{poll}' --resource '{page}' --resource '{note}'"),
        "",
    )
}

fn two(mode: &str) -> Value {
    dev(mode, json!({"left": app("left", "--with result"), "my right": app("right", "--with result")}))
}

/// A client of the workbench over stdio, with `dev` open.
#[track_caller]
fn opened(capabilities: &str, config: Value) -> Client {
    let mut client = Client::pipe(Era::Legacy, Gateway::spawn(config), capabilities);
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    client
}

#[track_caller]
fn toolman(era: Era, capabilities: &str, config: String) -> Client {
    Client::pipe(era, Gateway::spawn_toolman(Lab::new(), config, |_| ()), capabilities)
}

/// One field of every item of a list.
#[track_caller]
fn field(client: &mut Client, kind: &str, field: &str) -> Vec<String> {
    let result = client.request(&format!("{kind}/list"), "{}").result();
    let items = result[kind].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item[field].as_str().unwrap_or("?").to_owned()).collect()
}

/// The `_meta` of a listed tool.
#[track_caller]
fn meta(client: &mut Client, tool: &str) -> Value {
    let result = client.request("tools/list", "{}").result();
    let tools = result["tools"].as_array().expect("a list");
    let found = tools.iter().find(|listed| listed["name"] == tool);
    found.unwrap_or_else(|| panic!("{tool} is not in {result}"))["_meta"].clone()
}

fn read(client: &mut Client, uri: &str) -> Message {
    client.request("resources/read", json!({"uri": uri}))
}

/// Reads a URI: the answer has it back, and its server was asked for `own`.
#[track_caller]
fn reads(client: &mut Client, uri: &str, own: &str) {
    let answer = read(client, uri);
    let contents = answer.result()["contents"][0].take();
    assert_eq!(contents["uri"], uri, "{answer:?}");
    let asked: Value = serde_json::from_str(contents["text"].as_str().expect("a text")).expect("the params");
    assert_eq!(asked["uri"], own, "{answer:?}");
}

#[track_caller]
fn refuses(client: &mut Client, uri: &str, words: &[&str]) {
    let answer = read(client, uri);
    answer.error_code();
    let message = answer.at(&["error", "message"]);
    assert!(words.iter().all(|word| message.contains(word)), "{uri}: {message}");
}

#[test]
fn what_a_client_says_of_extensions_reaches_servers_as_it_is() {
    for (flags, method) in [("--with requests", "initialize"), ("--era modern --with requests", "tools/call")]
    {
        let mut client = opened(RENDERS, dev("proxy", json!({"a": fake_with(flags, &[])})));
        let heard = client.gateway().use_tool("a", "requests", json!({"method": method})).text();
        let extensions = &RENDERS[1..RENDERS.len() - 1];
        assert!(heard.contains(extensions), "{flags}: {heard}");
    }
}

#[test]
fn what_a_modern_client_says_of_extensions_reaches_legacy_servers_too() {
    for capabilities in [RENDERS, PLAIN] {
        let config = dev("proxy", json!({"a": fake_with("--with requests", &[])}));
        let mut client = Client::pipe(Era::Modern, Gateway::spawn(config), capabilities);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        let address = json!({"toolbox": "dev", "server": "a", "tool": "requests"});
        let call = json!({"tool": address, "arguments": {"method": "initialize"}});
        let heard = client.call("use_tool", call).text();
        let extensions = &RENDERS[1..RENDERS.len() - 1];
        assert_eq!(heard.contains(extensions), capabilities == RENDERS, "{heard}");
        assert_eq!(heard.contains("extensions"), capabilities == RENDERS, "{heard}");
    }
}

#[test]
fn servers_of_many_clients_are_told_that_apps_are_rendered() {
    let told = r#""extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}"#;
    let host = Host::workbench(dev("proxy", json!({"a": fake_with("--with report", &[])})));
    let mut client = host.client(Era::Legacy);
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    let address = json!({"tool": {"toolbox": "dev", "server": "a", "tool": "report"}});
    let heard = client.call("use_tool", address).text();
    assert!(heard.contains(told) && heard.contains(r#""elicitation":{}"#), "{heard}");
}

#[test]
fn the_extension_is_announced_to_who_declares_it() {
    let announced = json!({"io.modelcontextprotocol/ui": {}});
    for (capabilities, expected) in [(RENDERS, announced), (PLAIN, Value::Null)] {
        let mut gateway = Gateway::spawn(two("dynamic"));
        let hello = gateway.initialize_with("2025-11-25", capabilities).result();
        assert_eq!(hello["capabilities"]["extensions"], expected);
        let mut client = Client::pipe(Era::Modern, Gateway::spawn(two("dynamic")), capabilities);
        let discovered = client.request("server/discover", "{}").result();
        assert_eq!(discovered["capabilities"]["extensions"], expected);
    }
}

#[test]
fn the_workbench_lists_pages_under_their_scheme_and_definitions_name_them_so() {
    let mut client = opened(RENDERS, two("dynamic"));
    let uris = [
        "ui://dev/left/shared/page.html",
        "ui://dev/left/left/note",
        "ui://dev/my%20right/shared/page.html",
        "ui://dev/my%20right/right/note",
    ];
    assert_eq!(field(&mut client, "resources", "uri"), uris);
    let left = meta(&mut client, "dev__left__show-left");
    let expected = json!({
        "ui": {"resourceUri": uris[0], "prefersBorder": true}, "ui/resourceUri": uris[0], "x": 1,
        "mcp-workbench/origin": {"toolbox": "dev", "server": "left", "tool": "show-left"},
    });
    assert_eq!(left, expected);
    let names = field(&mut client, "tools", "name");
    let right = names
        .iter()
        .find(|name| name.contains("show-right") || name.contains("right__show"))
        .expect("listed");
    assert_eq!(meta(&mut client, &right.clone())["ui"]["resourceUri"], uris[2]);

    let mut other = opened(PLAIN, two("dynamic"));
    assert_eq!(field(&mut other, "resources", "uri")[0], "workbench://dev/left/ui://shared/page.html");
    assert_eq!(meta(&mut other, "dev__left__show-left")["ui"]["resourceUri"], PAGE);
}

#[test]
fn results_name_pages_as_definitions_do_and_change_in_nothing_else() {
    let result = r#"{"content":[{"type":"text","text":"ui://a resourceUri"}],"structuredContent":{"_meta":{"ui":{"resourceUri":"ui://a"}}},"_meta":{"openai/outputTemplate":"ui://a","ui":{"resourceUri":"ui://a","n":1.10},"b":18446744073709551616}}"#;
    let exposed = result.replace(r#"{"resourceUri":"ui://a","n""#, r#"{"resourceUri":"ui://dev/left/a","n""#);
    let exposed = exposed.replace(r#"Template":"ui://a""#, r#"Template":"ui://dev/left/a""#);
    for (capabilities, expected) in [(RENDERS, &*exposed), (PLAIN, result)] {
        let mut client = opened(capabilities, two("dynamic"));
        for answer in [
            client.call("dev__left__result", json!({"json": result})),
            client.gateway().use_tool("left", "result", json!({"json": result})),
        ] {
            assert_eq!(answer.at(&["result"]), expected);
        }
    }
}

#[test]
fn pages_are_read_from_their_server_listed_or_not() {
    let mut client = opened(RENDERS, two("dynamic"));
    reads(&mut client, "ui://dev/left/shared/page.html", PAGE);
    reads(&mut client, "ui://dev/my%20right/shared/page.html", PAGE);
    reads(&mut client, "ui://dev/left/never/listed?x=1", "ui://never/listed?x=1");
    // As its app knows it, if only one server can be meant.
    reads(&mut client, "ui://right/note", "ui://right/note");
    refuses(&mut client, PAGE, &["ui://dev/left/shared/page.html", "ui://dev/my%20right/shared/page.html"]);
    refuses(&mut client, "ui://nowhere", &["ui://nowhere"]);
    // What a result names is known from then on.
    let result = json!({"content": [], "_meta": {"ui": {"resourceUri": "ui://made/up"}}}).to_string();
    refuses(&mut client, "ui://made/up", &["ui://made/up"]);
    client.call("dev__left__result", json!({"json": result}));
    reads(&mut client, "ui://made/up", "ui://made/up");
}

#[test]
fn everybody_can_read_pages_under_their_scheme_once_the_toolbox_is_open() {
    let mut client = Client::pipe(Era::Legacy, Gateway::spawn(two("proxy")), PLAIN);
    refuses(&mut client, "ui://dev/left/shared/page.html", &["'dev' is not open", "open_toolbox"]);
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    reads(&mut client, "ui://dev/left/shared/page.html", PAGE);
    refuses(&mut client, "ui://right/note", &["ui://right/note"]);
}

#[test]
fn apps_call_tools_by_the_names_they_know() {
    let mut client = opened(RENDERS, two("dynamic"));
    let answer = client.call("poll-left", r#"{"x":1}"#);
    assert_eq!(answer.text(), r#"{"name":"poll-left","arguments":{"x":1}}"#);
    let several = client.call("result", "{}");
    let names = field(&mut client, "tools", "name");
    let both: Vec<_> = names.iter().filter(|name| name.contains("result")).collect();
    assert_eq!(both.len(), 2, "{names:?}");
    assert!(both.iter().all(|name| several.failure().contains(*name)), "{several:?}");
    assert!(client.call("nothing-like-it", "{}").failure().contains("not found"));

    let mut other = opened(PLAIN, two("dynamic"));
    assert!(other.call("poll-left", "{}").failure().contains("'poll-left' not found"));
}

#[test]
fn the_model_does_not_read_of_tools_for_apps_alone() {
    for (capabilities, mentioned) in [(RENDERS, false), (PLAIN, true)] {
        let mut config = two("proxy");
        config["search"] = json!(true);
        let mut client = Client::pipe(Era::Legacy, Gateway::spawn(config), capabilities);
        let opened = client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        assert!(opened.contains("show-left"), "{opened}");
        assert_eq!(opened.contains("poll-left"), mentioned, "{opened}");
        let found = client.call("find_tools", r#"{"query":"poll left","limit":20}"#).text();
        assert_eq!(found.contains("poll-left"), mentioned, "{found}");
        let wanted = json!({"tools": [{"toolbox": "dev", "server": "left", "tool": "poll-left"}]});
        let described = client.call("describe_tools", wanted);
        assert_eq!(described.is_error(), !mentioned, "{described:?}");
        // Its app can call it all the same.
        client.gateway().use_tool("left", "poll-left", "{}").text();

        let mut client = Client::pipe(Era::Legacy, Gateway::spawn(two("dynamic")), capabilities);
        let opened = client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
        assert_eq!(opened["tools_registered"], if mentioned { 6 } else { 4 });
        assert!(field(&mut client, "tools", "name").contains(&"dev__left__poll-left".to_owned()));
    }
}

const SOME: &str = "active_toolsets = [\"l_show*\", \"poll*\"]\n";

#[test]
fn toolman_shows_hosts_what_apps_need_whatever_is_switched_on() {
    let config =
        || SOME.to_owned() + &toolman_app("l", "left", "--with result") + &toolman_app("", "right", "");
    for era in [Era::Legacy, Era::Modern] {
        let mut client = toolman(era, RENDERS, config());
        let mut expected = vec!["toolman_activate", "l_show-left", "l_poll-left", "poll-right"];
        expected.extend((era == Era::Modern).then_some("toolman_call"));
        assert_eq!(field(&mut client, "tools", "name"), expected, "{era:?}");
        let uris = ["ui://l/shared/page.html", "ui://l/left/note", PAGE, "ui://right/note"];
        assert_eq!(field(&mut client, "resources", "uri"), uris, "{era:?}");
        assert_eq!(meta(&mut client, "l_show-left")["ui"]["resourceUri"], uris[0], "{era:?}");
        assert_eq!(meta(&mut client, "poll-right")["ui"]["resourceUri"], PAGE, "{era:?}");
        reads(&mut client, uris[0], PAGE);
        reads(&mut client, "ui://l/never/listed", "ui://never/listed");
        reads(&mut client, "ui://left/note", "ui://left/note");
        // The exposed URI of one server is what another one calls its own.
        reads(&mut client, PAGE, PAGE);

        client.call("l_poll-left", "{}").text();
        client.call("poll-left", "{}").text();
        client.call("show-left", "{}").text();
        client.call("toolman_call", r#"{"name":"l_poll-left"}"#).text();
        let inactive = client.call("result", "{}").failure();
        assert!(inactive.contains("l_result") && inactive.contains("not active"), "{inactive}");
    }
}

#[test]
fn toolmans_catalog_has_nothing_that_is_for_hosts() {
    let config = || SOME.to_owned() + "search = true\n" + &toolman_app("l", "left", "--with result");
    for (capabilities, mentioned) in [(RENDERS, false), (PLAIN, true)] {
        let mut client = toolman(Era::Legacy, capabilities, config());
        let catalog = client.gateway().catalog();
        assert!(catalog.contains("l_show-left"), "{catalog}");
        for hidden in ["l_poll-left", "l_ui://", "resource"] {
            let listed = catalog.split_once("Servers:").expect("the catalog").1;
            assert_eq!(listed.contains(hidden), mentioned, "{hidden}: {listed}");
        }
        let switched = client.gateway().activate([&["l_poll-left"], &[], &[], &[]]);
        assert_eq!(switched.is_error(), !mentioned, "{switched:?}");
        let found = client.call("toolman_find", r#"{"query":"poll left"}"#).text();
        assert_eq!(found.contains("l_poll-left"), mentioned, "{found}");
        if mentioned {
            assert!(client.call("poll-left", "{}").failure().contains("There is no tool"));
            refuses(&mut client, "ui://l/shared/page.html", &["not active"]);
            client.gateway().activate([&[], &[], &["l_ui://*"], &[]]).text();
            reads(&mut client, "ui://l/shared/page.html", PAGE);
        }
    }
}

#[test]
fn a_plain_toolbox_leaves_pages_as_they_are_as_long_as_they_differ() {
    let host = Host::workbench(two("dynamic"));
    for era in [Era::Legacy, Era::Modern] {
        let mut client = host.client_at(era, "/mcp/dev");
        let long = "ui://dev/my%20right/shared/page.html";
        let uris = [PAGE, "ui://left/note", long, "ui://right/note"];
        assert_eq!(field(&mut client, "resources", "uri"), uris, "{era:?}");
        assert_eq!(meta(&mut client, "show-left")["ui"]["resourceUri"], PAGE, "{era:?}");
        assert_eq!(meta(&mut client, "show-right")["ui"]["resourceUri"], long, "{era:?}");
        assert_eq!(meta(&mut client, "show-right")["ui/resourceUri"], long, "{era:?}");
        for (uri, own) in [(PAGE, PAGE), (long, PAGE), ("ui://right/note", "ui://right/note")] {
            reads(&mut client, uri, own);
        }
        client.call("poll-right", "{}").text();
        for (tool, exposed) in [("result", PAGE), ("my right__result", long)] {
            let result = json!({"content": [], "_meta": {"ui": {"resourceUri": PAGE}}}).to_string();
            let answer = client.call(tool, json!({"json": result})).result();
            assert_eq!(answer["_meta"]["ui"]["resourceUri"], exposed, "{era:?} {tool}");
        }
    }
}

#[test]
fn a_plain_toolbox_keeps_pages_apart_that_only_definitions_name() {
    let unlisted = |name: &str| {
        let [show, ..] = offers(name);
        fake_with("", &["--tool", &show])
    };
    let host = Host::workbench(dev("dynamic", json!({"a": unlisted("left"), "b": unlisted("right")})));
    let mut client = host.client_at(Era::Legacy, "/mcp/dev");
    assert_eq!(meta(&mut client, "show-left")["ui"]["resourceUri"], PAGE);
    assert_eq!(meta(&mut client, "show-right")["ui"]["resourceUri"], "ui://dev/b/shared/page.html");
    reads(&mut client, "ui://dev/b/shared/page.html", PAGE);
}

#[test]
fn connect_says_where_apps_would_not_be_shown() {
    let [show, ..] = offers("left");
    let with_app =
        dev("auto", json!({"left": fake_with("", &["--tool", &show]), "other": fake_with("--tools 1", &[])}));
    for (client, mode, says) in [
        ("cursor", None, true),
        ("vscode", None, true),
        ("claude-desktop", Some("proxy"), true),
        ("cursor", Some("dynamic"), false),
        ("goose", None, false),
        ("windsurf", None, false),
    ] {
        let lab = Lab::new();
        lab.write("workbench-config.json", &lab.fill(&with_app.to_string()));
        let listed = lab.run(lab.command().args(["list", "tools"]));
        assert_eq!(listed.code, Some(0), "{}", listed.stderr);
        let mode = mode.map(|mode| ["--tool-mode", mode]);
        // Before anything is written, when it is, and when it was already.
        for how in ["--dry-run", "--yes", "--yes"] {
            let args = ["connect", client, how, "--config", "workbench-config.json"];
            let connected = lab.run(lab.command().args(args).args(mode.iter().flatten()));
            assert_eq!(connected.code, Some(0), "{client}: {}", connected.stderr);
            let said = connected.stderr.contains("apps of left are not shown")
                && connected.stderr.contains("--tool-mode flat");
            assert_eq!(said, says, "{client} {how}: {}", connected.stderr);
        }
    }
}

/// A host subscribes to a page under the URI that it was shown.
#[test]
fn an_updated_page_is_told_under_the_uri_that_was_shown() {
    let flags = "--with result,notify";
    let workbench = dev("dynamic", json!({"left": app("left", flags)}));
    let namespaces = format!("active_toolsets = [\"*\"]\n{}", toolman_app("l", "left", flags));
    for (mut client, page, notify) in [
        (opened(RENDERS, workbench), "ui://dev/left/shared/page.html", "dev__left__notify"),
        (toolman(Era::Legacy, RENDERS, namespaces), "ui://l/shared/page.html", "l_notify"),
    ] {
        client.request("resources/subscribe", json!({"uri": page}).to_string()).result();
        let updated =
            json!({"method": "notifications/resources/updated", "params": json!({"uri": PAGE}).to_string()});
        client.call(notify, updated).text();
        let told = client.notification("notifications/resources/updated");
        assert_eq!(told.value()["params"]["uri"], page, "{page}");
    }
}

/// An app's call must not reach another server's tool of the same name.
#[test]
fn toolman_asks_which_tool_is_meant_even_if_only_one_is_active() {
    let config = format!(
        "active_toolsets = [\"l_*\"]\n{}{}",
        toolman_app("l", "same", "--with result"),
        toolman_app("r", "same", "--with result")
    );
    let mut client = toolman(Era::Legacy, RENDERS, config);
    client.tools();
    let answer = client.call("result", json!({"json": "{}"})).failure();
    assert!(answer.contains("l_result") && answer.contains("r_result"), "{answer}");
}

/// Errors are for the model, too.
#[test]
fn errors_do_not_name_tools_for_apps_alone() {
    for (capabilities, mentioned) in [(RENDERS, false), (PLAIN, true)] {
        let mut client = opened(capabilities, two("dynamic"));
        let wanted = json!({"toolbox": "dev", "server": "left", "tool": "poll-lefd"});
        let registered = client.call("dev__left__poll-lefd", "{}").failure();
        let used = client.call("use_tool", json!({"tool": wanted})).failure();
        let described = client.call("describe_tools", json!({"tools": [wanted]})).text_block(0);
        for error in [registered, used, described] {
            assert_eq!(error.contains("poll-left"), mentioned, "{error}");
        }
        let config = SOME.to_owned() + &toolman_app("l", "left", "");
        let mut client = toolman(Era::Legacy, capabilities, config);
        client.tools();
        for error in [
            client.call("l_poll-lefd", "{}").failure(),
            client.call("toolman_call", r#"{"name":"l_poll-lefd"}"#).failure(),
        ] {
            assert_eq!(error.contains("l_poll-left"), mentioned, "{error}");
        }
        let error = read(&mut client, "l_ui://left/node").at(&["error", "message"]);
        assert_eq!(error.contains("left/note"), mentioned, "{error}");
    }
    let host = Host::workbench(two("dynamic"));
    let mut client = host.client_at(Era::Legacy, "/mcp/dev");
    let error = client.call("poll-lefd", "{}").at(&["error", "message"]);
    assert!(!error.contains("poll-left") && error.contains("Unknown tool"), "{error}");
}

/// The result of a task names pages as that of a call does.
#[test]
fn results_of_tasks_name_pages_as_others_do() {
    let result = json!({"content": [], "_meta": {"ui": {"resourceUri": "ui://a"}}});
    let waits = r#""io.modelcontextprotocol/tasks":{},"#;
    for (capabilities, page) in [(RENDERS, "ui://l/a"), (PLAIN, "ui://a")] {
        for era in [Era::Legacy, Era::Modern] {
            let capabilities = match capabilities {
                PLAIN => format!(r#"{{"extensions":{{{}}}}}"#, waits.trim_end_matches(',')),
                renders => renders.replacen(r#"{"extensions":{"#, &format!(r#"{{"extensions":{{{waits}"#), 1),
            };
            let flags = format!("--with job,finish --era {}", format!("{era:?}").to_lowercase());
            let config = format!("active_toolsets = [\"*\"]\n{}", server("l", &flags, ""));
            let mut client = toolman(era, &capabilities, config);
            client.tools();
            let mut call = json!({"name": "l_job", "arguments": {}});
            if era == Era::Legacy {
                call["task"] = json!({"ttl": 60000});
            }
            client.request("tools/call", call).result();
            if era == Era::Modern {
                let filter = json!({"notifications": {"taskIds": ["task-1"]}});
                client.post("subscriptions/listen", filter);
                client.notification("notifications/subscriptions/acknowledged");
                client.until("the server knows of the subscription", |client| {
                    client.call("l_finish", json!({"id": "task-1", "json": result.to_string()})).text();
                    client.left().iter().any(|message| message.method() == "notifications/tasks")
                });
                let told = client.notification("notifications/tasks").value()["params"]["result"].clone();
                assert_eq!(told["_meta"]["ui"]["resourceUri"], page, "{told}");
            } else {
                client.call("l_finish", json!({"id": "task-1", "json": result.to_string()})).text();
            }
            let asked = if era == Era::Legacy { "tasks/result" } else { "tasks/get" };
            let mut answer = client.request(asked, r#"{"taskId":"task-1"}"#).result();
            if era == Era::Modern {
                answer = answer["result"].clone();
            }
            assert_eq!(answer["_meta"]["ui"]["resourceUri"], page, "{era:?}: {answer}");
        }
    }
}

/// Every toolbox is open from the start, so that apps are rendered, in both eras.
#[test]
fn apps_work_in_flat_mode() {
    for era in [Era::Legacy, Era::Modern] {
        let mut config = two("flat");
        config["search"] = json!(true);
        let mut client = Client::pipe(era, Gateway::spawn(config), RENDERS);
        let uri = "ui://dev/left/shared/page.html";
        client.until("both are up", |client| field(client, "resources", "uri").len() == 4);
        assert_eq!(field(&mut client, "resources", "uri")[0], uri, "{era:?}");
        assert_eq!(meta(&mut client, "dev__left__show-left")["ui"]["resourceUri"], uri, "{era:?}");
        assert_eq!(
            meta(&mut client, "dev__left__poll-left")["ui"]["resourceUri"],
            uri,
            "listed for the host"
        );
        reads(&mut client, uri, PAGE);
        reads(&mut client, "ui://left/note", "ui://left/note");
        client.call("poll-left", "{}").text();
        let result = json!({"content": [], "_meta": {"ui": {"resourceUri": PAGE}}}).to_string();
        let answer = client.call("dev__left__result", json!({"json": result})).result();
        assert_eq!(answer["_meta"]["ui"]["resourceUri"], uri, "{era:?}");
        let found = client.call("find_tools", r#"{"query":"poll left show","limit":20}"#).text();
        assert!(found.contains("show-left") && !found.contains("poll-left"), "{found}");
        assert!(found.contains(uri) && !found.contains(&format!("\"{PAGE}")), "{found}");
        let wanted = json!({"tools": [{"toolbox": "dev", "server": "left", "tool": "poll-left"}]});
        assert!(client.call("describe_tools", wanted).is_error(), "{era:?}");
    }
}

/// The definitions that a modern client finds in the answers of the workbench name pages as the host knows them.
#[test]
fn answers_to_modern_clients_name_pages_as_hosts_know_them() {
    for (capabilities, page) in [(RENDERS, "ui://dev/left/shared/page.html"), (PLAIN, PAGE)] {
        let mut config = dev("proxy", json!({"left": app("left", "--with result")}));
        config["search"] = json!(true);
        let mut client = Client::pipe(Era::Modern, Gateway::spawn(config), capabilities);
        let opened = client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
        let wanted = json!({"tools": [{"toolbox": "dev", "server": "left", "tool": "show-left"}]});
        let described = client.call("describe_tools", wanted).json();
        let found = client.call("find_tools", r#"{"query":"show left","limit":1}"#).json();
        for answer in [&opened, &described, &found] {
            let mut tools = answer["tools"].as_array().expect("a list").iter();
            let meta = &tools.find(|tool| tool["name"] == "show-left").expect("it is shown")["_meta"];
            assert_eq!(
                (&meta["ui"]["resourceUri"], &meta["ui/resourceUri"]),
                (&json!(page), &json!(page)),
                "{answer}"
            );
        }
        let listed =
            if capabilities == RENDERS { page } else { "workbench://dev/left/ui://shared/page.html" };
        assert_eq!(opened["resources"][0]["uri"], listed);
        reads(&mut client, "ui://dev/left/shared/page.html", PAGE);
        let result = json!({"content": [], "_meta": {"ui": {"resourceUri": PAGE}}}).to_string();
        let address = json!({"toolbox": "dev", "server": "left", "tool": "result"});
        let used = client.call("use_tool", json!({"tool": address, "arguments": {"json": result}})).result();
        assert_eq!(used["_meta"]["ui"]["resourceUri"], page, "{used}");
    }
}
