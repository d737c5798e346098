//! Finding tools: `search` in the shell, `find_tools` and `toolman_find` for models.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::TokioChildProcess;
use serde_json::{Value, json};

use crate::client::{CAN_ALL, Client, Era, Host};
use crate::harness::{
    DEADLINE, Gateway, Lab, Message, TOOLS_CHANGED, VERSION, dev, fake, fake_path, fake_with, server,
};
use crate::npm;
use crate::shell::Place;

/// A fake upstream with these tools, which counts its starts in a file.
fn offering(count: &str, tools: &[(&str, &str)]) -> Value {
    let definitions: Vec<String> = tools.iter().map(|(name, about)| definition(name, about)).collect();
    let mut more = Vec::new();
    for definition in &definitions {
        more.extend(["--tool", definition.as_str()]);
    }
    fake_with(&format!("--count @dir/{count}"), &more)
}

fn definition(name: &str, description: &str) -> String {
    json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}})
        .to_string()
}

/// Two toolboxes as people have them.
fn office(mode: &str) -> Value {
    let github = offering(
        "github",
        &[
            ("create_issue", "Open a new issue in a repository."),
            ("list_issues", "List the issues of a repository."),
            ("merge_pull_request", "Merge a pull request."),
        ],
    );
    let serena = offering(
        "serena",
        &[
            ("replace_symbol_body", "Replace the body of a symbol."),
            ("find_symbol", "Find a class, function or method by its name."),
        ],
    );
    let files = offering(
        "files",
        &[("delete_entry", "An entry."), ("get_entry", "An entry."), ("read_file", "Read a file.")],
    );
    let weather = offering(
        "weather",
        &[
            ("get_forecast", "指定した都市の天気予報を取得する。"),
            ("поиск_города", "Найти город по названию."),
        ],
    );
    json!({
        "search": true,
        "toolMode": mode,
        "toolboxes": {
            "code": {"description": "Repositories and symbols", "mcpServers": {"github": github, "serena": serena}},
            "home": {"description": "Everyday things", "mcpServers": {"files": files, "weather": weather}},
        }
    })
}

const SERVERS: [&str; 4] = ["github", "serena", "files", "weather"];

fn starts(lab: &Lab) -> [usize; 4] {
    SERVERS.map(|server| lab.starts(server))
}

/// A place where everything is remembered of every server.
fn known(config: Value) -> Place {
    let place = Place::workbench(config);
    assert_eq!(place.run(&["list", "tools"]).code, Some(0));
    place
}

fn found(answer: &Message) -> Vec<String> {
    let answer = answer.json();
    let tools = answer["tools"].as_array().unwrap_or_else(|| panic!("no tools: {answer}"));
    let name = |tool: &Value| {
        ["toolbox_name", "source_server", "name"]
            .map(|key| tool[key].as_str().unwrap_or("?").to_owned())
            .join("/")
    };
    tools.iter().map(name).collect()
}

/// What users of other searches complain about, and names.
const COMPLAINTS: [(&str, &str); 14] = [
    ("find symbol", "code/serena/find_symbol"),
    ("findSymbol", "code/serena/find_symbol"),
    ("code__serena__find_symbol", "code/serena/find_symbol"),
    ("serena/find_symbol", "code/serena/find_symbol"),
    ("find smybol", "code/serena/find_symbol"),
    ("github merge", "code/github/merge_pull_request"),
    ("github list issues", "code/github/list_issues"),
    ("read a file from github", "home/files/read_file"),
    ("天気", "home/weather/get_forecast"),
    ("東京の天気予報を教えて", "home/weather/get_forecast"),
    ("найти города", "home/weather/поиск_города"),
    ("entry", "home/files/get_entry"),
    ("merge_pu", "code/github/merge_pull_request"),
    ("please open a bug in our repo", "code/github/create_issue"),
];

#[test]
fn the_shell_finds_what_is_meant() {
    let place = known(office("dynamic"));
    for (query, first) in COMPLAINTS {
        let rows = place.json(&["search", query], 0);
        let row = &rows[0];
        let address = ["toolbox", "server", "tool"].map(|key| row[key].as_str().unwrap_or("?")).join("/");
        assert_eq!(address, first, "{query}: {rows}");
    }
    assert_eq!(starts(&place.lab), [1; 4], "asked once, by `list`");
}

#[test]
fn the_shell_shows_rows_and_why() {
    let place = known(office("dynamic"));
    place.check(
        &["search", "merge", "a", "pull", "request"],
        0,
        "TOOL                            MATCHED             DESCRIPTION
code/github/merge_pull_request  merge pull request  Merge a pull request.
",
        "",
    );
    let rows = place.json(&["search", "github issues", "--limit", "1"], 0);
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
    let score = rows[0]["score"].as_f64().expect("a number");
    assert!(score > 0.0);
    assert_eq!(
        rows[0],
        json!({"toolbox": "code", "server": "github", "tool": "list_issues", "registered": "code__github__list_issues",
               "description": "List the issues of a repository.", "score": score, "matched": ["github", "issues"]})
    );
    let nothing = "nothing fits `saxophone recital`; the servers are code/github, code/serena, home/files, home/weather\n";
    place.check(&["search", "saxophone", "recital"], 0, "", nothing);
    place.check(&["search", "saxophone", "recital", "-q"], 0, "", "");
    place.check(&["search", "saxophone", "recital", "--json"], 0, "[]\n", "");
    assert_eq!(place.json(&["search"], 2)["error"]["kind"], "usage");
    assert_eq!(place.json(&["search", "x", "--limit", "0"], 2)["error"]["kind"], "usage");
    assert_eq!(starts(&place.lab), [1; 4]);
    place.run(&["search", "issues", "--fresh"]);
    assert_eq!(starts(&place.lab), [2; 4], "--fresh asks again");
}

#[test]
fn the_shell_names_servers_that_fail_and_heeds_filters() {
    let mut filtered = offering("a", &[("read_file", "Read a file."), ("read_secret", "Read a secret.")]);
    filtered["toolFilters"] = json!(["read_file"]);
    let place = Place::workbench(dev(
        "dynamic",
        json!({"a": filtered, "wrong": {"command": "there-is-no-such-program-here"}}),
    ));
    let finished = place.run(&["search", "read"]);
    assert_eq!(finished.code, Some(0));
    assert!(finished.stderr.starts_with("warning: dev/wrong: "), "{}", finished.stderr);
    assert!(finished.stdout.contains("dev/a/read_file"), "{}", finished.stdout);
    assert!(!finished.stdout.contains("secret"), "{}", finished.stdout);
}

#[test]
fn models_do_not_find_what_a_filter_holds_back() {
    let mut filtered = offering("a", &[("read_file", "Read a file."), ("read_secret", "Read a secret.")]);
    filtered["toolFilters"] = json!(["read_file"]);
    let mut config = dev("proxy", json!({"a": filtered}));
    config["search"] = json!(true);
    let (mut client, _) = client(Era::Legacy, false, known(config.clone()).lab, &config);
    // Remembered first, then from the server itself.
    for _ in 0..2 {
        let answer = client.call("find_tools", json!({"query": "read"}));
        assert_eq!(found(&answer), ["dev/a/read_file"]);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    }
}

#[test]
fn toolmans_shell_has_namespaces() {
    let tool = definition("read_file", "Read a file.").replace('"', "\\\"");
    let place = Place::toolman(&server("files", &format!("--with echo --tool \"{tool}\""), ""));
    let rows = place.json(&["search", "read a file"], 0);
    let score = rows[0]["score"].clone();
    assert_eq!(
        rows[0],
        json!({"namespace": "files", "tool": "read_file", "registered": "files_read_file",
               "description": "Read a file.", "score": score, "matched": ["read", "file"]})
    );
    assert!(place.run(&["search", "read"]).stdout.contains("\nfiles_read_file  read     Read a file.\n"));
}

/// A client of a gateway in this place.
fn client(era: Era, over_http: bool, lab: Lab, config: &Value) -> (Client, Option<Host>) {
    if over_http {
        let host = Host::new(Gateway::spawn_with(lab, config, |command| {
            command.args(["serve", "--http", "127.0.0.1:0"]);
        }));
        (host.client(era), Some(host))
    } else {
        (Client::pipe(era, Gateway::spawn_with(lab, config, |_| ()), CAN_ALL), None)
    }
}

#[test]
fn models_find_and_use_without_opening() {
    let config = office("proxy");
    for (era, over_http) in
        [(Era::Legacy, false), (Era::Modern, false), (Era::Legacy, true), (Era::Modern, true)]
    {
        let place = known(config.clone());
        let (mut client, host) = client(era, over_http, place.lab, &config);
        let before = client.request("tools/list", "{}");
        assert_eq!(before.names("tools"), ["open_toolbox", "use_tool", "find_tools", "describe_tools"]);
        for (query, first) in COMPLAINTS {
            let answer = client.call("find_tools", json!({"query": query}));
            let names = found(&answer);
            assert_eq!(names.first().map(String::as_str), Some(first), "{query}: {names:?}");
            assert!(names.len() <= 5, "{names:?}");
        }
        let answer = client.call("find_tools", json!({"query": "github merge pull request", "limit": 1}));
        let value = answer.json();
        assert_eq!(
            value,
            json!({"query": "github merge pull request", "toolboxes": [], "tools": [
                {"name": "merge_pull_request", "toolbox_name": "code", "source_server": "github",
                 "description": "Merge a pull request.",
                 "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}}]})
        );
        assert_eq!(answer.result()["structuredContent"], value);
        let nothing = client.call("find_tools", json!({"query": "saxophone recital in Antarctica"})).json();
        assert_eq!(
            nothing,
            json!({"query": "saxophone recital in Antarctica", "tools": [], "toolboxes": [], "servers": [
                {"toolbox_name": "code", "servers": ["github", "serena"]},
                {"toolbox_name": "home", "servers": ["files", "weather"]}]})
        );
        let lab = host.as_ref().map_or_else(|| starts_of(&mut client), |host| starts(&host.lab));
        assert_eq!(lab, [1; 4], "nothing is started by searching");
        let tool = json!({"toolbox": "code", "server": "github", "tool": "merge_pull_request"});
        let used = client.call("use_tool", json!({"tool": tool, "arguments": {"q": "x"}}));
        assert_eq!(used.json()["arguments"], json!({"q": "x"}));
        let lab = host.as_ref().map_or_else(|| starts_of(&mut client), |host| starts(&host.lab));
        assert_eq!(lab, [2, 2, 1, 1], "the toolbox is open, the other is not");
        let after = client.request("tools/list", "{}");
        assert_eq!(after.at(&["result", "tools"]), before.at(&["result", "tools"]));
        assert_eq!(
            found(&client.call("find_tools", json!({"query": "find symbol"})))[0],
            "code/serena/find_symbol"
        );
    }
}

fn starts_of(client: &mut Client) -> [usize; 4] {
    starts(&client.gateway().lab)
}

/// Tools that a query for `report` finds, the first of them first; the second is longer than an entry may be.
fn reports() -> Vec<String> {
    let report = |name: &str, about: &str| {
        json!({"name": name, "description": about, "inputSchema": {
            "type": "object", "properties": {"month": {"type": "integer"}, "of": {"enum": ["sales", "stock"]}},
            "required": ["month"]}})
    };
    let mut tools = vec![report("report", "Report. All of it.")];
    tools.push(report("report_long", &format!("Report at length. {}", "Very long. ".repeat(800))));
    tools.extend((3..8).map(|n| report(&format!("report_{n}"), &format!("Report number {n}. And more."))));
    tools.iter().map(Value::to_string).collect()
}

fn reporting(mode: &str) -> Value {
    let tools = reports();
    let flags: Vec<&str> = tools.iter().flat_map(|tool| ["--tool", tool.as_str()]).collect();
    let mut config = dev(mode, json!({"a": fake_with("--count @dir/a", &flags)}));
    config["search"] = json!(true);
    config
}

const SIGNATURE: &str = "(month: integer, of?: \"sales\"|\"stock\")";

#[test]
fn the_first_three_tools_are_whole_and_describe_tools_gives_the_rest_without_opening() {
    for mode in ["dynamic", "proxy"] {
        for (era, over_http) in
            [(Era::Legacy, false), (Era::Modern, false), (Era::Legacy, true), (Era::Modern, true)]
        {
            let config = reporting(mode);
            let (mut client, host) = client(era, over_http, known(config.clone()).lab, &config);
            let answer = client.call("find_tools", json!({"query": "report", "limit": 7})).json();
            let tools = answer["tools"].as_array().expect("a list").clone();
            let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect();
            assert_eq!((names.len(), names[0]), (7, "report"), "{names:?}");
            for (place, tool) in tools.iter().enumerate() {
                let whole = place < 3 && tool["name"] != "report_long";
                assert_eq!(tool["inputSchema"].is_object(), whole, "{mode} {era:?}: {tool}");
                let about = tool["description"].as_str().expect("a text");
                let place = [&tool["toolbox_name"], &tool["source_server"]];
                assert_eq!(place, ["dev", "a"], "{tool}");
                if !whole {
                    assert_eq!(
                        (&tool["signature"], about.matches('.').count()),
                        (&json!(SIGNATURE), 1),
                        "{tool}"
                    );
                    assert_eq!(tool.as_object().map(serde_json::Map::len), Some(5), "{tool}");
                }
            }
            let wanted = |tool: &str| json!({"toolbox": "dev", "server": "a", "tool": tool});
            let described = client
                .call(
                    "describe_tools",
                    json!({"tools": [wanted("report_7"), wanted("report_long"), wanted("report")]}),
                )
                .json();
            assert_eq!(described["_errors"], Value::Null);
            assert_eq!(described["tools"][2], tools[0], "as in proxy mode");
            let sizes = [0, 1].map(|at| described["tools"][at]["description"].as_str().map_or(0, str::len));
            assert_eq!(sizes, ["Report number 7. And more.".len(), "Report at length. ".len() + 11 * 800]);
            assert_eq!(described["tools"][0]["inputSchema"]["required"], json!(["month"]));
            let lab =
                host.as_ref().map_or_else(|| client.gateway().lab.starts("a"), |host| host.lab.starts("a"));
            assert_eq!(lab, 1, "nothing was started");
            if !over_http {
                client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
                let open = client.call("describe_tools", json!({"tools": [wanted("report_7")]})).json();
                assert_eq!(open["tools"][0], described["tools"][0], "open or not");
            }
        }
    }
}

#[test]
fn what_is_found_fits_what_the_client_takes() {
    let mut config = reporting("proxy");
    config["openLimit"] = json!(1200);
    let (mut client, _) = client(Era::Legacy, false, known(config.clone()).lab, &config);
    let text = client.call("find_tools", json!({"query": "report", "limit": 7})).text();
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert!(text.len() <= 1200, "{}", text.len());
    assert_eq!(
        (&answer["brief"], answer["tools"].as_array().map(Vec::len)),
        (&json!(true), Some(7)),
        "{text}"
    );
    assert_eq!(answer["hint"], "describe_tools gives the whole definitions of the tools that you name.");
}

#[test]
fn what_cannot_be_described_of_a_closed_toolbox_is_said_in_the_same_words() {
    let mut config = reporting("proxy");
    config["toolboxes"]["dev"]["mcpServers"]["a"]["toolFilters"] = json!(["report", "report_3"]);
    config["toolboxes"]["other"] = json!({"mcpServers": {"new": fake("--tools 1 --count @dir/new")}});
    let place = known(config.clone());
    let store = place.lab.dir.join("xdg-cache/mcp-workbench/definitions");
    let is_of_new =
        |path: &std::path::Path| std::fs::read_to_string(path).is_ok_and(|text| text.contains("Does tool-1"));
    for file in
        std::fs::read_dir(store).expect("it was made").flatten().filter(|file| is_of_new(&file.path()))
    {
        std::fs::remove_file(file.path()).expect("it is ours");
    }
    let (mut client, _) = client(Era::Legacy, false, place.lab, &config);
    let address =
        |[toolbox, server, tool]: [&str; 3]| json!({"toolbox": toolbox, "server": server, "tool": tool});
    let wanted = [
        ["dev", "a", "report_3"],
        ["dev", "a", "report_4"],
        ["dev", "b", "report"],
        ["other", "new", "tool-1"],
        ["none", "a", "report"],
    ];
    let described = client.call("describe_tools", json!({"tools": wanted.map(address)})).json();
    assert_eq!(described["tools"].as_array().map(Vec::len), Some(1), "{described}");
    assert_eq!(described["tools"][0]["name"], "report_3");
    assert_eq!(
        described["_errors"],
        json!([
            "dev/a/report_4 does not exist: server 'a' in toolbox 'dev' has no tool 'report_4'. Nearest names: report, report_3",
            "dev/b/report does not exist: toolbox 'dev' has no server 'b'. Its servers: a",
            "Toolbox 'other' is not open, so other/new/tool-1 cannot be called. Open it first: open_toolbox {\"toolbox_name\": \"other\"}",
            "Toolbox 'none' not found in configuration, so none/a/report cannot be called\nConfigured toolboxes: dev, other",
        ])
    );
    assert_eq!([client.gateway().lab.starts("a"), client.gateway().lab.starts("new")], [1, 1]);
    // Once the toolbox is open, the words are the same.
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    let again = client.call("describe_tools", json!({"tools": wanted.map(address)})).json();
    assert_eq!(again, described);
}

#[test]
fn a_near_miss_names_the_server() {
    let config = office("proxy");
    let place = known(config.clone());
    let nothing =
        "nothing fits `encrypt a file`; the server home/files comes nearest, but it has no such tool\n";
    place.check(&["search", "encrypt a file"], 0, "", nothing);
    let (mut client, _) = client(Era::Legacy, false, place.lab, &config);
    let answer = client.call("find_tools", json!({"query": "encrypt a file"})).json();
    assert_eq!((&answer["tools"], &answer["toolboxes"]), (&json!([]), &json!([])), "{answer}");
    assert_eq!(
        answer["hint"],
        "No tool does this. Server 'files' in toolbox 'home' comes nearest, but it has no such tool."
    );
    assert_eq!(answer["servers"][1]["servers"], json!(["files", "weather"]));
    let answer = Gateway::toolman(toolman()).call("toolman_find", json!({"query": "encrypt a file"})).json();
    assert_eq!(
        answer["result"]["message"],
        "Nothing fits. Server 'files' comes nearest, but it has no such tool; `servers` lists the servers there are."
    );
}

#[test]
fn toolman_shows_three_whole_and_describes_by_exposed_names() {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let tools: Vec<_> = reports().iter().map(|tool| format!("--tool \"{}\"", quoted(tool))).collect();
    let config = format!(
        "search = true\n{}",
        server("a", &format!("{} --resources 1 --templates 1", tools.join(" ")), "")
    );
    for era in [Era::Legacy, Era::Modern] {
        let gateway = Gateway::spawn_toolman(Lab::new(), config.clone(), |_| ());
        let mut client = Client::pipe(era, gateway, CAN_ALL);
        let found = client.call("toolman_find", json!({"query": "report", "limit": 7})).json();
        let tools = found["result"]["tools"].as_array().expect("a list").clone();
        assert_eq!((tools.len(), &tools[0]["name"]), (7, &json!("a_report")), "{found}");
        for (place, tool) in tools.iter().enumerate() {
            let whole = place < 3 && tool["name"] != "a_report_long";
            assert_eq!(tool["inputSchema"].is_object(), whole, "{era:?}: {tool}");
            if !whole {
                assert_eq!(tool["signature"], SIGNATURE, "{tool}");
                assert_eq!(tool.as_object().map(serde_json::Map::len), Some(3), "{tool}");
            }
        }
        let names = json!([
            "a_report_7",
            "a_fake://resource/1",
            "a_report",
            "a_fake://item/1/{id}",
            "a_reprot",
            "a_x://"
        ]);
        let answer = client.call("toolman_describe", json!({"names": names}));
        let described = answer.json();
        assert_eq!(answer.result()["structuredContent"], described);
        assert_eq!((&described["success"], &described["error"]), (&json!(true), &Value::Null), "{described}");
        let result = &described["result"];
        assert_eq!(result["tools"][0]["name"], "a_report_7", "in the order asked: {result}");
        assert_eq!(result["tools"][0]["inputSchema"]["required"], json!(["month"]));
        assert_eq!(result["tools"][1], tools[0]);
        assert_eq!(result["resources"][0]["uri"], "a_fake://resource/1");
        assert_eq!(result["resourceTemplates"][0]["uriTemplate"], "a_fake://item/1/{id}");
        let errors = result["_errors"].as_array().expect("a list");
        assert!(
            errors[0]
                .as_str()
                .is_some_and(|text| text.starts_with("There is no tool 'a_reprot'. Did you mean"))
        );
        assert!(errors[1].as_str().is_some_and(|text| text.starts_with("There is no resource 'a_x://'.")));
        let wrong = "Invalid parameters: names must be a list of 1 to 20 strings";
        for (arguments, expected) in [
            (json!({"names": []}), wrong),
            (json!({"names": vec!["a_report"; 21]}), wrong),
            (json!({"names": "a_report"}), wrong),
            (json!({"names": [1]}), wrong),
            (json!({}), wrong),
            (json!({"tools": []}), "Invalid parameters: Unrecognized key: 'tools' Did you mean `names`?"),
        ] {
            let refused = client.call("toolman_describe", arguments);
            assert!(refused.is_error());
            let refused: Value = serde_json::from_str(&refused.text_block(0)).expect("JSON");
            assert_eq!(refused["error"], expected);
        }
        let all_wrong = client.call("toolman_describe", json!({"names": ["a_reprot"]}));
        assert!(all_wrong.is_error(), "that is all");
        let twenty = client.call("toolman_describe", json!({"names": vec!["a_report"; 20]})).json();
        assert_eq!(twenty["result"]["tools"].as_array().map(Vec::len), Some(20));
    }
}

#[test]
fn toolboxes_that_nothing_is_known_of_are_found_by_name_and_description() {
    let config = office("proxy");
    let mut gateway = Gateway::start(&config);
    let find =
        |gateway: &mut Gateway, query: &str| gateway.call("find_tools", json!({"query": query})).json();
    for query in ["github create issue", "look up symbols", "code"] {
        let answer = find(&mut gateway, query);
        let code = json!([{"name": "code", "description": "Repositories and symbols"}]);
        assert_eq!((&answer["tools"], &answer["toolboxes"]), (&json!([]), &code), "{query}");
    }
    assert_eq!(find(&mut gateway, "saxophone")["toolboxes"], json!([]));
    assert_eq!(starts(&gateway.lab), [0; 4]);
    gateway.open("code");
    let answer = find(&mut gateway, "github create issue");
    assert_eq!(answer["tools"][0]["name"], "create_issue", "{answer}");
    assert_eq!(answer["toolboxes"], json!([]), "its tools are known now");
    // What was read is remembered for the next time; what is broken is as good as unknown.
    let lab = gateway.finish();
    let mut gateway = Gateway::spawn_with(lab, &config, |_| ());
    gateway.initialize(VERSION);
    assert_eq!(find(&mut gateway, "github create issue")["tools"][0]["name"], "create_issue");
    assert_eq!(starts(&gateway.lab), [1, 1, 0, 0]);
    let store = gateway.lab.dir.join("xdg-cache/mcp-workbench/definitions");
    for file in std::fs::read_dir(store).expect("it was made").flatten() {
        std::fs::write(file.path(), "{\"tools\": [").expect("it is ours");
    }
    let answer = find(&mut gateway, "github create issue");
    assert_eq!(answer["toolboxes"][0]["name"], "code", "{answer}");
}

#[test]
fn what_another_process_learns_is_found_at_once() {
    let config = office("proxy");
    let place = Place::workbench(config.clone());
    let mut gateway = Gateway::spawn_with(place.lab, &config, |_| ());
    gateway.initialize(VERSION);
    let answer = gateway.call("find_tools", json!({"query": "find symbol"}));
    assert!(found(&answer).is_empty(), "{answer:?}");
    let listed = gateway.lab.run(gateway.lab.command().args(["list", "tools"]));
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let answer = gateway.call("find_tools", json!({"query": "find symbol"}));
    assert_eq!(found(&answer)[0], "code/serena/find_symbol");
}

#[test]
fn registered_names_open_their_toolbox() {
    let mut config = office("dynamic");
    config["maxNameLength"] = json!(24);
    let place = known(config.clone());
    let registered = place.json(&["search", "merge_pull_request"], 0)[0]["registered"].clone();
    let altered = registered.as_str().expect("a name").to_owned();
    assert_eq!(altered.len(), 24, "{altered}");
    let mut gateway = Gateway::spawn_with(place.lab, &config, |_| ());
    gateway.initialize(VERSION);
    assert_eq!(gateway.tools(), ["open_toolbox", "find_tools", "describe_tools"]);
    assert_eq!(gateway.call(&altered, r#"{"q":"x"}"#).json()["arguments"], json!({"q": "x"}));
    assert_eq!(gateway.count(TOOLS_CHANGED), 1);
    assert!(gateway.tools().contains(&altered));
    assert_eq!(starts(&gateway.lab), [2, 2, 1, 1]);
    gateway.call("home__files__read_file", "{}").text();
    assert_eq!(starts(&gateway.lab), [2; 4]);
    let unknown = gateway.call("home__files__raed_file", "{}").failure();
    assert!(unknown.starts_with("Tool 'home__files__raed_file' not found."), "{unknown}");
    let unknown = gateway.call("elsewhere__files__read_file", "{}").failure();
    assert!(unknown.starts_with("Tool 'elsewhere__files__read_file' not found."), "{unknown}");
}

#[test]
fn many_calls_at_once_open_a_toolbox_once() {
    let config = office("proxy");
    let mut gateway = Gateway::start(&config);
    let tool = json!({"tool": {"toolbox": "home", "server": "files", "tool": "read_file"}});
    let ids: Vec<String> = (0..8).map(|_| gateway.post_call("use_tool", &tool)).collect();
    for id in ids {
        gateway.answer(&id).text();
    }
    assert_eq!(starts(&gateway.lab), [0, 0, 1, 1]);
}

#[test]
fn a_call_that_is_cancelled_while_its_toolbox_opens_reaches_nobody() {
    let mut config = dev("proxy", json!({"a": fake("--with echo,requests --wait-for @dir/go")}));
    config["search"] = json!(true);
    let mut gateway = Gateway::start(config);
    let address = json!({"toolbox": "dev", "server": "a", "tool": "echo"});
    let calls = [
        ("dev__a__echo", json!({})),
        ("use_tool", json!({"tool": address})),
        ("workbench_use_tool", json!({"toolbox_name": "dev", "tool_name": "dev__a__echo"})),
    ];
    let ids = calls.map(|(tool, arguments)| gateway.post_call(tool, arguments));
    for id in &ids {
        gateway.notify("notifications/cancelled", format!(r#"{{"requestId":{id}}}"#));
    }
    gateway.fence();
    gateway.lab.write("go", "");
    gateway.open("dev");
    let calls = gateway.use_tool("a", "requests", json!({"method": "tools/call"})).json();
    assert_eq!(calls.as_array().map(Vec::len), Some(1), "{calls}");
    assert!(!gateway.has(|message| ids.contains(&message.id())));
}

#[test]
fn the_classic_contract_has_it_too() {
    let mut config = office("proxy");
    config["metaTools"] = json!("classic");
    let place = known(config.clone());
    let mut gateway = Gateway::spawn_with(place.lab, &config, |_| ());
    gateway.initialize(VERSION);
    assert!(gateway.tools().ends_with(&["find_tools".to_owned(), "describe_tools".to_owned()]));
    assert_eq!(
        found(&gateway.call("find_tools", json!({"query": "find symbol"})))[0],
        "code/serena/find_symbol"
    );
    let arguments =
        json!({"toolbox_name": "code", "tool_name": "code__serena__find_symbol", "arguments": {"q": "x"}});
    assert_eq!(gateway.call("workbench_use_tool", &arguments).json()["arguments"], json!({"q": "x"}));
    gateway.call("workbench_close_toolbox", json!({"toolbox_name": "code"})).text();
    assert_eq!(
        found(&gateway.call("find_tools", json!({"query": "find symbol"})))[0],
        "code/serena/find_symbol"
    );
    gateway.call("workbench_use_tool", &arguments).text();
}

#[test]
fn a_toolbox_that_does_not_open_says_why() {
    let servers = json!({
        "good": fake("--with echo"),
        "wrong": fake_with("--exit 3", &["--stderr", "cannot read db.sqlite"]),
    });
    let mut config = dev("proxy", servers);
    config["search"] = json!(true);
    config["toolboxes"]["broken"] =
        json!({"mcpServers": {"wrong": {"command": "there-is-no-such-program-here"}}});
    let mut gateway = Gateway::start(config);
    let failure = gateway.use_tool("wrong", "anything", "{}").failure();
    let expected =
        "dev/wrong/anything cannot be called: Failed to connect to server 'wrong' in toolbox 'dev': ";
    assert!(failure.starts_with(expected), "{failure}");
    assert!(failure.contains("cannot read db.sqlite"), "{failure}");
    gateway.use_tool("good", "echo", "{}").text();
    for (name, arguments) in [
        ("use_tool", json!({"tool": {"toolbox": "broken", "server": "wrong", "tool": "x"}})),
        ("broken__wrong__x", json!({})),
    ] {
        let failure = gateway.call(name, arguments).failure();
        assert!(failure.contains("Failed to connect to server 'wrong' in toolbox 'broken': "), "{failure}");
    }
    let nowhere = json!({"tool": {"toolbox": "nowhere", "server": "a", "tool": "x"}});
    assert!(
        gateway
            .call("use_tool", nowhere)
            .failure()
            .starts_with("Toolbox 'nowhere' not found in configuration")
    );
}

#[test]
fn a_server_that_failed_does_not_stand_for_another_whose_name_begins_alike() {
    for (first, second, failed) in [
        (fake("--exit 3"), fake("--with echo"), None),
        (fake("--with never"), fake("--exit 3"), Some("b__c")),
    ] {
        for tool in ["registered", "classic"] {
            let mut config = dev("proxy", json!({"b": first, "b__c": second}));
            config["search"] = json!(true);
            let mut gateway = Gateway::start(config);
            let classic = json!({"toolbox_name": "dev", "tool_name": "dev__b__c__echo"});
            let answer = match tool {
                "registered" => gateway.call("dev__b__c__echo", "{}"),
                _ => gateway.call("workbench_use_tool", classic),
            };
            match failed {
                None => drop(answer.text()),
                Some(server) => {
                    let reason = format!("Failed to connect to server '{server}' in toolbox 'dev': ");
                    assert!(answer.failure().contains(&reason), "{tool}: {answer:?}");
                }
            }
        }
    }
}

#[test]
fn it_is_off_unless_the_file_says_so() {
    let mut config = office("proxy");
    config["search"] = json!(false);
    let place = known(config.clone());
    let mut gateway = Gateway::spawn_with(place.lab, &config, |_| ());
    let greeted = gateway.initialize(VERSION);
    assert!(!greeted.raw.contains("find_tools"), "{greeted:?}");
    assert_eq!(gateway.tools(), ["open_toolbox", "use_tool"]);
    assert!(
        gateway
            .call("find_tools", json!({"query": "x"}))
            .failure()
            .starts_with("Tool 'find_tools' not found.")
    );
    let tool = json!({"tool": {"toolbox": "code", "server": "github", "tool": "list_issues"}});
    assert!(gateway.call("use_tool", tool).failure().starts_with("Toolbox 'code' is not open"));
    assert!(gateway.call("code__github__list_issues", "{}").is_error());
    assert_eq!(starts(&gateway.lab), [1; 4]);
    // A file that switches it on is in force at once.
    config["search"] = json!(true);
    let beside = gateway.lab.write("beside", &gateway.lab.fill(&config.to_string()));
    std::fs::rename(beside, gateway.lab.dir.join("workbench-config.json")).expect("the directory is ours");
    gateway.until("it is listed", |gateway| gateway.tools().contains(&"find_tools".to_owned()));
    assert_eq!(
        found(&gateway.call("find_tools", json!({"query": "find symbol"})))[0],
        "code/serena/find_symbol"
    );
}

#[test]
fn its_description_tells_what_is_behind_it_and_fits() {
    let mut gateway = Gateway::spawn(office("proxy"));
    let greeted = gateway.initialize(VERSION);
    assert!(greeted.result()["instructions"].as_str().is_some_and(|text| text.contains("find_tools")));
    let described = |gateway: &mut Gateway| {
        let tools = gateway.request("tools/list", "{}").result();
        tools["tools"][2]["description"].as_str().expect("a text").to_owned()
    };
    let description = described(&mut gateway);
    for part in ["platform + capability", "\n- code: github, serena (Repositories and symbols)\n", "use_tool"]
    {
        assert!(description.contains(part), "{part}: {description}");
    }
    let toolboxes: serde_json::Map<String, Value> = (0..40)
        .map(|n| {
            let servers: serde_json::Map<String, Value> =
                (0..5).map(|m| (format!("server-{n}-{m}"), json!({"command": "none"}))).collect();
            (
                format!("toolbox-{n}"),
                json!({"description": "Something quite long ".repeat(9), "mcpServers": servers}),
            )
        })
        .collect();
    let mut gateway = Gateway::start(json!({"search": true, "toolMode": "proxy", "toolboxes": toolboxes}));
    let description = described(&mut gateway);
    assert!(description.len() <= 2048, "{}", description.len());
    assert!(description.contains("\n- toolbox-39: server-39-0"), "{description}");
}

#[test]
fn arguments_are_checked() {
    let mut gateway = Gateway::start(office("proxy"));
    for (arguments, expected) in [
        (r#"{"query":" "}"#, "Invalid parameters: query cannot be empty"),
        (r#"{}"#, "Invalid parameters: query is required and must be a string"),
        (r#"{"query":"a","limit":21}"#, "Invalid parameters: limit must be a whole number from 1 to 20"),
        (r#"{"query":"a","extra_field":1}"#, "Invalid parameters: Unrecognized key: 'extra_field'"),
    ] {
        assert_eq!(gateway.call("find_tools", arguments).failure(), expected, "{arguments}");
    }
}

#[test]
fn a_token_finds_in_its_own_toolboxes_only() {
    let mut config = office("proxy");
    config["auth"] = json!({"tokens": [
        {"name": "ci", "token": "token-of-ci", "toolboxes": ["home"]},
        {"name": "all", "token": "token-of-all"},
    ]});
    let place = known(config.clone());
    let host = Host::new(Gateway::spawn_with(place.lab, &config, |command| {
        command.args(["serve", "--http", "127.0.0.1:0"]);
    }));
    for era in [Era::Legacy, Era::Modern] {
        let mut ci = host.client_with(era, "token-of-ci");
        let mut all = host.client_with(era, "token-of-all");
        assert_eq!(
            found(&all.call("find_tools", json!({"query": "find symbol"})))[0],
            "code/serena/find_symbol"
        );
        for query in
            ["find symbol", "github create issue", "code", "code__github__list_issues", "read a file"]
        {
            let answer = ci.call("find_tools", json!({"query": query, "limit": 20}));
            assert!(!answer.raw.contains("github\\\"") && !answer.raw.contains("serena"), "{answer:?}");
            assert!(found(&answer).iter().all(|name| name.starts_with("home/")), "{answer:?}");
        }
        assert_eq!(found(&ci.call("find_tools", json!({"query": "read a file"})))[0], "home/files/read_file");
        let list = ci.request("tools/list", "{}");
        assert!(!list.raw.contains("serena"), "{list:?}");
        let tool = json!({"tool": {"toolbox": "code", "server": "serena", "tool": "find_symbol"}});
        assert!(ci.call("use_tool", tool).failure().starts_with("Toolbox 'code' not found in configuration"));
        assert!(ci.call("code__serena__find_symbol", "{}").is_error());
    }
    assert_eq!(starts(&host.lab)[..2], [1, 1], "nothing of it was opened");
}

fn toolman() -> String {
    let entry = |tools: &[(&str, &str)]| {
        let quoted = |text: String| text.replace('\\', "\\\\").replace('"', "\\\"");
        let tools: Vec<_> = tools
            .iter()
            .map(|(name, about)| format!("--tool \"{}\"", quoted(definition(name, about))))
            .collect();
        tools.join(" ")
    };
    let github =
        entry(&[("create_issue", "Open a new issue in a repository."), ("list_issues", "List the issues.")]);
    let files = entry(&[("read_file", "Read a file.")]);
    format!(
        "search = true\nactive_toolsets = [\"github_list*\"]\n{}{}",
        server("github", &github, ""),
        server("files", &format!("{files} --resources 1 --templates 1"), ""),
    )
}

#[test]
fn toolman_finds_what_is_active_and_what_is_not() {
    for era in [Era::Legacy, Era::Modern] {
        let gateway = Gateway::spawn_toolman(Lab::new(), toolman(), |_| ());
        let mut client = Client::pipe(era, gateway, CAN_ALL);
        let list = client.request("tools/list", "{}");
        assert_eq!(
            list.names("tools")[..4],
            ["toolman_activate", "toolman_find", "toolman_describe", "github_list_issues"]
        );
        let description = list.result()["tools"][1]["description"].as_str().expect("a text").to_owned();
        assert!(description.contains("platform + capability"), "{description}");
        assert!(description.contains("\n- github\n- files\n"), "{description}");
        let answer = client.call("toolman_find", json!({"query": "github create issue"}));
        let value = answer.json();
        assert_eq!((&value["success"], &value["error"]), (&json!(true), &Value::Null), "{value}");
        assert_eq!(answer.result()["structuredContent"], value);
        let result = &value["result"];
        assert_eq!(
            result["tools"][0],
            json!({"name": "github_create_issue", "description": "Open a new issue in a repository.",
                   "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}})
        );
        assert!(result["message"].as_str().is_some_and(|text| text.contains("toolman_activate")), "{result}");
        let active = client.call("toolman_find", json!({"query": "list issues", "limit": 1})).json();
        assert_eq!(active["result"]["tools"][0]["name"], "github_list_issues");
        assert_eq!(active["result"]["message"], "All of it is active.");
        let resource = client.call("toolman_find", json!({"query": "Resource 1", "limit": 1})).json();
        assert_eq!(resource["result"]["resources"][0]["uri"], "files_fake://resource/1", "{resource}");
        let template = client.call("toolman_find", json!({"query": "files item", "limit": 1})).json();
        assert_eq!(
            template["result"]["resourceTemplates"][0]["uriTemplate"], "files_fake://item/1/{id}",
            "{template}"
        );
        let nothing = client.call("toolman_find", json!({"query": "saxophone recital"})).json();
        assert_eq!(
            (&nothing["success"], &nothing["result"]["tools"]),
            (&json!(true), &json!([])),
            "{nothing}"
        );
        assert_eq!(nothing["result"]["servers"], json!(["github", "files"]));
        let wrong = client.call("toolman_find", json!({"query": ""}));
        assert!(wrong.is_error());
        let wrong: Value = serde_json::from_str(&wrong.text_block(0)).expect("JSON");
        assert_eq!(
            wrong,
            json!({"success": false, "result": null, "error": "Invalid parameters: query cannot be empty"})
        );
    }
}

#[test]
fn toolman_finds_nothing_unless_it_is_told() {
    let config = toolman().replace("search = true", "search = false");
    let mut gateway = Gateway::toolman(config);
    for (own, arguments) in
        [("toolman_find", json!({"query": "x"})), ("toolman_describe", json!({"names": ["x"]}))]
    {
        assert!(!gateway.tools().contains(&own.to_owned()));
        let failure = gateway.call(own, arguments).failure();
        assert!(failure.contains(&format!("There is no tool '{own}'")), "{failure}");
    }
    let host = Host::toolman(toolman());
    for era in [Era::Legacy, Era::Modern] {
        let found = host.client(era).call("toolman_find", json!({"query": "create issue"})).json();
        assert_eq!(found["result"]["tools"][0]["name"], "github_create_issue", "{found}");
    }
}

/// The official Rust client and official servers: nothing is opened, a tool is found and used.
#[tokio::test]
async fn a_real_client_finds_and_uses_tools_of_real_servers() {
    let mut config = dev(
        "proxy",
        json!({"filesystem": npm::entry("filesystem", &["@dir"]), "everything": npm::entry("everything", &["stdio", "@marker"])}),
    );
    config["search"] = json!(true);
    let place = known(config);
    let note = place.lab.write("note.txt", "a note\n");
    let file = place.lab.dir.join("workbench-config.json");
    let mut command = tokio::process::Command::from(place.lab.command());
    command.arg("--config").arg(file);
    let transport = TokioChildProcess::new(command).expect("the gateway starts");
    let service = tokio::time::timeout(DEADLINE, ().serve(transport)).await;
    let service = service.expect("no hang").expect("the handshake succeeds");
    let call = async |tool: &'static str, arguments: Value| {
        let arguments = arguments.as_object().cloned().expect("an object");
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = tokio::time::timeout(DEADLINE, service.call_tool(params)).await;
        serde_json::to_value(result.expect("no hang").expect("an answer")).expect("it came as JSON")
    };
    for (query, tool) in [
        ("filesystem read text file", "read_text_file"),
        ("list what is in a directory", "list_directory"),
        ("add two numbers", "get-sum"),
    ] {
        let found = call("find_tools", json!({"query": query})).await;
        assert_eq!(found["structuredContent"]["tools"][0]["name"], tool, "{found}");
    }
    let found = call("find_tools", json!({"query": "filesystem read text file", "limit": 1})).await;
    let first = &found["structuredContent"]["tools"][0];
    assert!(first["inputSchema"]["properties"]["path"].is_object(), "{first}");
    let tool =
        json!({"toolbox": first["toolbox_name"], "server": first["source_server"], "tool": first["name"]});
    let read = call("use_tool", json!({"tool": tool, "arguments": {"path": note}})).await;
    assert_eq!(read["content"][0]["text"], "a note\n", "{read}");
    service.cancel().await.expect("no panic");
    place.lab.wait_until_gone(DEADLINE);
}

/// The tool that measures the search, whose figures `docs/search.md` has.
#[test]
fn an_id_that_stands_twice_counts_by_its_first_place() {
    let lab = Lab::new();
    let tool = |id: &str, server: &str, about: &str| {
        let line = json!({"id": id, "server": server, "name": "paint_wall", "description": about});
        format!("{line}\n")
    };
    let tools = [
        tool("same", "one", "Paint a wall green."),
        tool("same", "two", "Paint a green wall."),
        tool("right", "three", "Paint a wall."),
    ];
    let tools = lab.write("tools.jsonl", &tools.concat());
    let queries = json!({"id": 1, "text": "paint a wall green", "gold": [["right"]]});
    let queries = lab.write("queries.jsonl", &queries.to_string());
    let program = format!("search_eval{}", std::env::consts::EXE_SUFFIX);
    let run = |flags: &[&str]| {
        let mut command = std::process::Command::new(fake_path().with_file_name(&program));
        let output = command.arg(&tools).arg(&queries).args(flags).output().expect("it is built");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).expect("a line of JSON")
    };
    assert_eq!(run(&[])["ranked"], json!(["same", "right"]));
    let means = run(&["--summary"]);
    assert_eq!((&means["hit@1"], &means["ndcg@10"]), (&json!(0.0), &json!(0.6309)), "second of two: {means}");
}

/// The queries of a file in `tests/search`, each with what stands behind its `>`.
fn queries(file: &str) -> Vec<(String, Vec<String>)> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/search").join(file);
    let text = std::fs::read_to_string(path).expect("it is committed");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let (query, behind) = line.split_once(" > ").unwrap_or((line, ""));
        let behind = behind.split(" | ").filter(|name| !name.is_empty()).map(|name| format!("dev/{name}"));
        (query.to_owned(), behind.collect())
    };
    lines.map(read).collect()
}

#[test]
fn short_queries_find_the_tools_of_the_official_servers() {
    let lab = Lab::new();
    let directory = lab.dir.to_str().expect("a path in UTF-8").to_owned();
    let mut config = dev(
        "proxy",
        json!({
            "filesystem": npm::entry("filesystem", &[&directory]),
            "memory": npm::entry("memory", &[]),
            "everything": npm::entry("everything", &[]),
        }),
    );
    config["search"] = json!(true);
    let mut gateway = Gateway::spawn_with(lab, &config, |_| ());
    gateway.initialize(VERSION);
    gateway.open("dev");
    let mut find = |query: &str| gateway.call("find_tools", json!({"query": query}));

    let good = queries("queries.txt");
    let (mut first, mut among, mut lost) = (0, 0, 0);
    for (query, wanted) in &good {
        let names = found(&find(query));
        let place = names.iter().position(|name| wanted.contains(name));
        first += usize::from(place == Some(0));
        among += usize::from(place.is_some());
        lost += usize::from(names.is_empty());
    }
    let none = queries("nothing.txt");
    let (near, far): (Vec<_>, Vec<_>) = none.into_iter().partition(|(_, servers)| !servers.is_empty());
    let mut silent = |queries: &[(String, Vec<String>)]| {
        let answers = queries.iter().map(|(query, servers)| (find(query), servers));
        let silent: Vec<_> = answers.filter(|(answer, _)| found(answer).is_empty()).collect();
        for (hint, servers) in silent.iter().map(|(answer, servers)| (answer.json()["hint"].clone(), servers))
        {
            let names = |server: &String| hint.as_str().is_some_and(|hint| hint.contains(&server[4..]));
            assert!(hint.is_null() || servers.is_empty() || servers.iter().any(names), "{hint} {servers:?}");
        }
        silent.len()
    };
    let share = |part: usize, whole: usize| 100 * part / whole.max(1);
    // Percents: first, among five, lost, silent where no server has the like, silent at near misses.
    let figures = [
        share(first, good.len()),
        share(among, good.len()),
        share(lost, good.len()),
        share(silent(&far), far.len()),
        share(silent(&near), near.len()),
    ];
    let [first, among, lost, far, near] = figures;
    assert!(first >= 83 && among >= 93 && lost <= 4 && far >= 90 && near >= 40, "{figures:?}");
}
