//! Names that clients accept.

use serde_json::{Value, json};

use crate::harness::{Gateway, fake, fake_with};

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
