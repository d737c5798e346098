//! Names that clients accept.

use serde_json::{Value, json};

use crate::client::{Client, Era, Host};
use crate::harness::{Gateway, Lab, TOOLS_CHANGED, VERSION, fake, fake_with, server};
use crate::shell::Place;

fn config(toolbox: &str, servers: Value) -> Value {
    json!({"toolboxes": {toolbox: {"mcpServers": servers}}})
}

/// The registered names, and the names that their tools have at home.
fn registered(gateway: &mut Gateway) -> Vec<(String, Value)> {
    let result = gateway.request("tools/list", "{}").result();
    let tools = result["tools"].as_array().cloned().unwrap_or_default();
    let tools = tools.into_iter().skip(1);
    tools
        .map(|tool| {
            let name = tool["name"].as_str().expect("a name").to_owned();
            (name, tool["_meta"]["mcp-workbench/origin"].clone())
        })
        .collect()
}

fn is_safe(name: &str, longest: usize) -> bool {
    name.len() <= longest && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn is_hash(text: &str) -> bool {
    text.len() == 9 && text.starts_with('_') && text[1..].bytes().all(|b| b.is_ascii_hexdigit())
}

#[test]
fn a_name_that_fits_stays_as_it_is() {
    let mut gateway = Gateway::start(config("dev", json!({"a_b-C9": fake("--tools 1")})));
    gateway.open("dev");
    assert_eq!(registered(&mut gateway)[0].0, "dev__a_b-C9__tool-1");
}

#[test]
fn a_name_that_does_not_fit_is_replaced_cut_and_hashed() {
    let long = "l".repeat(70);
    let exact = "e".repeat(64 - "dev__a__".len());
    let over = "o".repeat(65 - "dev__a__".len());
    let tools: Vec<String> = ["dotted.name", "späce name", &long, &exact, &over]
        .iter()
        .map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#))
        .collect();
    let flags: Vec<&str> = tools.iter().flat_map(|tool| ["--tool", tool]).collect();
    let start = || {
        let mut gateway = Gateway::start(config("dev", json!({"a": fake_with("", &flags)})));
        gateway.open("dev");
        gateway
    };
    let mut gateway = start();
    let names = registered(&mut gateway);
    let cases = [
        ("dotted.name", "dev__a__dotted_name".to_owned(), true),
        ("späce name", "dev__a__sp_ce_name".to_owned(), true),
        (&long, format!("dev__a__{}", "l".repeat(55 - 8)), true),
        (&exact, format!("dev__a__{exact}"), false),
        (&over, format!("dev__a__{}", "o".repeat(55 - 8)), true),
    ];
    for ((name, origin), (tool, start, hashed)) in names.iter().zip(&cases) {
        assert!(is_safe(name, 64), "{name}");
        let rest = name.strip_prefix(start.as_str()).unwrap_or_else(|| panic!("{name} begins with {start}"));
        assert_eq!(is_hash(rest), *hashed, "{name}");
        assert_eq!(origin, &json!({"toolbox": "dev", "server": "a", "tool": tool}));
        for callable in [name.clone(), format!("dev__a__{tool}")] {
            let echoed: Value = gateway.call(&callable, "{}").json();
            assert_eq!(echoed["name"], *tool, "{callable}");
        }
    }
    assert_eq!(names, registered(&mut start()), "the same in every run");
}

#[test]
fn servers_and_toolboxes_may_have_any_name() {
    let servers = json!({"My Server": fake("--tools 1"), "@org/name": fake("--tools 1"), "github.com/o/r": fake("--tools 1")});
    let mut gateway = Gateway::start(config("Büro 1", servers));
    gateway.open("Büro 1");
    let names = registered(&mut gateway);
    assert_eq!(names.len(), 3);
    for (name, origin) in names {
        assert!(is_safe(&name, 64), "{name}");
        let full = format!("Büro 1__{}__tool-1", origin["server"].as_str().expect("a name"));
        gateway.call(&full, "{}").text();
        gateway.call(&name, "{}").text();
    }
}

#[test]
fn max_name_length_sets_the_limit() {
    let mut config = config("dev", json!({"server": fake("--tools 12")}));
    config["maxNameLength"] = json!(20);
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    let names = registered(&mut gateway);
    for (name, origin) in &names {
        assert!(is_safe(name, 20), "{name}");
        let full = format!("dev__server__{}", origin["tool"].as_str().expect("a name"));
        if full.len() <= 20 {
            assert_eq!(*name, full);
        } else {
            assert_eq!(name[..11], full[..11]);
            assert!(is_hash(&name[11..]), "{name}");
        }
    }
}

#[test]
fn exact_names_switch_the_replacing_off_not_the_cutting() {
    let long = format!(r#"{{"name":"long.{}"}}"#, "x".repeat(80));
    let flags = ["--tool", r#"{"name":"dotted.name"}"#, "--tool", &long];
    let mut config = config("dev", json!({"a": fake_with("", &flags)}));
    config["names"] = json!("exact");
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    let names = registered(&mut gateway);
    assert_eq!(names[0].0, "dev__a__dotted.name");
    assert!(names[1].0.starts_with("dev__a__long.xxx"), "{}", names[1].0);
    assert!(names[1].0.len() == 64 && is_hash(&names[1].0[55..]), "{}", names[1].0);
}

#[test]
fn the_later_of_two_origins_that_would_share_a_name_gets_a_hash() {
    let first = fake_with("", &["--tool", r#"{"name":"b__c"}"#]);
    let second = fake_with("", &["--tool", r#"{"name":"c"}"#]);
    let mut gateway = Gateway::start(config("dev", json!({"a": first, "a__b": second})));
    gateway.open("dev");
    let names = registered(&mut gateway);
    assert_eq!(names[0].0, "dev__a__b__c");
    assert!(names[1].0.starts_with("dev__a__b__c_") && is_hash(&names[1].0[12..]), "{}", names[1].0);
    let echoed = |gateway: &mut Gateway, name: &str| gateway.call(name, "{}").json()["name"].clone();
    assert_eq!(echoed(&mut gateway, "dev__a__b__c"), "b__c");
    assert_eq!(echoed(&mut gateway, &names[1].0), "c", "calls go by look-up, never by splitting");
    assert_eq!(gateway.use_tool("a__b", "c", "{}").json()["name"], "c");
}

#[test]
fn between_toolboxes_the_first_opened_keeps_the_plain_name() {
    let mut gateway = Gateway::start(json!({"toolboxes": {
        "x": {"mcpServers": {"_y": fake_with("", &["--tool", r#"{"name":"z"}"#])}},
        "x_": {"mcpServers": {"y": fake_with("", &["--tool", r#"{"name":"z"}"#])}},
    }}));
    gateway.open("x_");
    gateway.open("x");
    let names = registered(&mut gateway);
    assert_eq!((names[0].0.as_str(), &names[0].1["toolbox"]), ("x___y__z", &json!("x_")));
    assert!(names[1].0.starts_with("x___y__z_") && is_hash(&names[1].0[8..]), "{}", names[1].0);
    assert_eq!(names[1].1["toolbox"], "x");
}

#[test]
fn a_listed_name_never_changes() {
    let tool = r#"{"name":"b__c"}"#;
    let mut gateway = Gateway::start(config(
        "dev",
        json!({"a": fake("--with change"), "a__b": fake_with("", &["--tool", r#"{"name":"c"}"#])}),
    ));
    gateway.open("dev");
    assert_eq!(registered(&mut gateway)[1].0, "dev__a__b__c");
    gateway.call("dev__a__change", json!({"add": [tool]})).text();
    gateway.until("the new tool is listed", |gateway| registered(gateway).len() == 3);
    let names = registered(&mut gateway);
    assert_eq!(names[2].0, "dev__a__b__c");
    assert_eq!(names[2].1["server"], "a__b", "it was there before");
    assert!(names[1].0.starts_with("dev__a__b__c_"), "{}", names[1].0);
}

/// A toolbox with one server of the same name, and tools with names of so many characters.
fn docs(lengths: &[usize]) -> Value {
    let tools: Vec<_> =
        lengths.iter().map(|length| json!({"name": "t".repeat(*length)}).to_string()).collect();
    let flags: Vec<_> = tools.iter().flat_map(|tool| ["--tool", tool]).collect();
    config("docs", json!({"docs": fake_with("", &flags)}))
}

/// What a client that calls itself so sees of the toolbox.
fn seen_by(client: &str, config: &Value, options: &[&str]) -> Vec<(String, Value)> {
    let mut gateway = Gateway::spawn_with(Lab::new(), config, |command| {
        command.args(options);
    });
    gateway.initialize_as(VERSION, "{}", client);
    gateway.open("docs");
    registered(&mut gateway)
}

#[test]
fn names_fit_with_the_prefix_that_the_client_adds() {
    let prefixed = |prefix: &str, longest: usize| longest - prefix.len();
    for (client, options, room) in [
        ("test-client", &[][..], 64),
        ("codex-mcp-client", &[], prefixed("mcp__workbench__", 64)),
        ("Cursor", &[], prefixed("workbench_", 60)),
        ("Visual Studio Code", &["--entry", "a-much-longer-name"], prefixed("mcp_a-much-longer-name_", 64)),
        ("@cline/core", &["--entry", "w"], prefixed("w__", 64)),
    ] {
        let (full, short) = ("docs__docs__".len(), "docs__".len());
        let lengths = [room - full, room - full + 1, room - short, room - short + 1];
        let names = seen_by(client, &docs(&lengths), options);
        let tool = |n: usize| "t".repeat(lengths[n]);
        assert_eq!(names[0].0, format!("docs__docs__{}", tool(0)), "{client}: it fits");
        assert_eq!(names[1].0, format!("docs__{}", tool(1)), "{client}: the toolbox is named once");
        assert_eq!(names[2].0, format!("docs__{}", tool(2)), "{client}: that just fits");
        let cut = &names[3].0;
        assert!(cut.starts_with("docs__docs__t") && cut.len() == room && is_hash(&cut[room - 9..]), "{cut}");
    }
    let mut long = docs(&[52]);
    long["maxNameLength"] = json!(64);
    assert_eq!(seen_by("codex-mcp-client", &long, &[])[0].0, format!("docs__docs__{}", "t".repeat(52)));
}

#[test]
fn a_name_that_somebody_has_shortens_no_other() {
    let tool = "t".repeat(45);
    let long = json!({"name": format!("z__{tool}")}).to_string();
    let other = json!({"name": tool}).to_string();
    let servers = json!({"docs": fake_with("", &["--tool", &long]), "z": fake_with("", &["--tool", &other])});
    let mut short = config("docs", servers);
    short["maxNameLength"] = json!(55);
    let names = seen_by("test-client", &short, &[]);
    assert_eq!((names[1].0.as_str(), &names[1].1["server"]), (&*format!("docs__z__{tool}"), &json!("z")));
    assert!(names[0].0.starts_with("docs__docs__z__t") && is_hash(&names[0].0[46..]), "{}", names[0].0);
}

#[test]
fn every_spelling_of_a_name_can_be_called() {
    let config = docs(&[41, 60]);
    let names = seen_by("codex-mcp-client", &config, &[]);
    let (short, cut) = (&names[0].0, &names[1].0);
    assert_eq!(*short, format!("docs__{}", "t".repeat(41)));
    let place = Place::workbench(config.clone());
    let listed = place.json(&["list", "tools"], 0);
    assert_eq!(listed[0]["registered"], format!("docs__docs__{}", "t".repeat(41)), "it fits 64");
    let for_codex = place.json(&["list", "tools", "--client", "codex"], 0);
    assert_eq!((&for_codex[0]["registered"], &for_codex[1]["registered"]), (&json!(short), &json!(cut)));
    for name in [short, cut] {
        assert_eq!(place.json(&["show", name], 0)["server"], "docs", "{name}");
    }
    let refused = place.run(&["list", "tools", "--client", "nobody"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("codex"), "{}", refused.stderr);
    let told = place.json(&["doctor", "--client", "codex"], 0);
    assert_eq!(
        told["servers"][0]["renamed"][format!("docs__docs__{}", "t".repeat(41))],
        json!(short),
        "{told}"
    );

    let mut gateway = Gateway::spawn_with(place.lab, &config, |_| ());
    gateway.initialize(VERSION);
    gateway.open("docs");
    for (name, tool) in [(short, 41), (cut, 60)] {
        assert_eq!(gateway.call(name, "{}").json()["name"], "t".repeat(tool), "{name}");
        let classic = json!({"toolbox_name": "docs", "tool_name": name});
        assert_eq!(gateway.call("workbench_use_tool", classic).json()["name"], "t".repeat(tool), "{name}");
    }
}

#[test]
fn a_modern_client_says_who_it_is_with_its_first_request() {
    let long = json!({"name": "t".repeat(60)}).to_string();
    let config = format!("active_toolsets = [\"*\"]\n{}", server("a", &format!("--tool '{long}'"), ""));
    let mut gateway = Gateway::spawn_toolman(Lab::new(), &config, |_| ());
    let listed = gateway.request(
        "tools/list",
        json!({"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "2"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }}),
    );
    let names = listed.names("tools");
    let cut = names.iter().find(|name| name.starts_with("a_t")).expect("it is listed");
    assert_eq!(cut.len(), 64 - "mcp__toolman__".len(), "{cut}");
    let mut gateway = Gateway::toolman(&config);
    assert!(gateway.tools().contains(&format!("a_{}", "t".repeat(60))), "it fits where nothing is added");
    let lists: [&[&str]; 4] = [&[], &[cut], &[], &[]];
    assert!(!gateway.activate(lists).is_error(), "another client's name means the same tool");
    assert!(!gateway.tools().contains(&format!("a_{}", "t".repeat(60))));
}

/// Modern callers with the same token share what is open, and so its names.
#[test]
fn modern_clients_over_http_share_names_that_fit_the_strictest_of_them() {
    let long = json!({"name": "t".repeat(60)}).to_string();
    let config = format!(
        "active_toolsets = [\"*\"]\n{}",
        server("a", &format!("--tool '{long}' --resources 1 --tools 1"), "")
    );
    let host = Host::toolman(config);
    let named = |name: &str| {
        let mut client = host.client(Era::Modern);
        client.name = name.to_owned();
        client
    };
    let name_in =
        |names: &[String]| names.iter().find(|name| name.starts_with("a_tt")).expect("listed").clone();
    let mut other = named("nobody-knows-it");
    let full = format!("a_{}", "t".repeat(60));
    assert_eq!(name_in(&other.tools()), full, "nobody else is there");
    other.post("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    other.notification("notifications/subscriptions/acknowledged");
    let mut claude = named("claude-code");
    let cut = name_in(&claude.tools());
    assert_eq!(cut.len(), 64 - "mcp__toolman__".len(), "{cut}");
    other.notification(TOOLS_CHANGED);
    for (client, strictness) in [(&mut other, "less"), (&mut named("opencode"), "less"), (&mut claude, "as")]
    {
        assert_eq!(name_in(&client.tools()), cut, "who is {strictness} strict");
        for name in [&full, &cut] {
            client.call(name, "{}").text();
        }
    }
    let uris =
        |client: &mut Client| client.request("resources/list", "{}").result()["resources"][0]["uri"].clone();
    assert_eq!(uris(&mut other), "a_fake://resource/1");
    assert_eq!(uris(&mut named("mcp")), "a+fake://resource/1");
    assert_eq!(uris(&mut other), "a+fake://resource/1", "which everybody accepts");
    assert_eq!(name_in(&named("mcp").tools()), cut);
}

#[test]
fn the_file_may_name_what_is_active_as_any_client_knows_it() {
    let tools = ["t".repeat(60), "u".repeat(60)].map(|name| json!({"name": name}).to_string());
    let servers = server("a", &format!("--tool '{}' --tool '{}'", tools[0], tools[1]), "");
    let mut claude =
        Gateway::spawn_toolman(Lab::new(), format!("active_toolsets = [\"*\"]\n{servers}"), |_| ());
    claude.initialize_as(VERSION, "{}", "claude-code");
    let cut = claude.tools().into_iter().find(|name| name.starts_with("a_t")).expect("listed");
    assert!(cut.len() < 60, "{cut}");
    for (client, expected) in [("test-client", &*format!("a_{}", "t".repeat(60))), ("claude-code", &*cut)] {
        let config = format!("active_toolsets = [\"{cut}\"]\n{servers}");
        let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
        gateway.initialize_as(VERSION, "{}", client);
        assert_eq!(gateway.tools(), ["toolman_activate", expected], "{client}");
    }
}
