//! Resources, templates and prompts of an opened toolbox.

use serde_json::{Value, json};

use crate::harness::{Gateway, VERSION, dev, fake, fake_with, raw_at};

const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
const UPDATED: &str = "notifications/resources/updated";
const OFFERS: &str =
    "--with echo,crash,update,report,requests --resources 3 --templates 2 --prompts 3 --page 2";

fn opened(mode: &str) -> Gateway {
    let mut gateway = Gateway::start(dev(mode, json!({"My Server": fake(OFFERS), "b": fake(OFFERS)})));
    gateway.open("dev");
    gateway
}

/// One field of every item of a list.
fn field(gateway: &mut Gateway, method: &str, list: &str, field: &str) -> Vec<String> {
    let result = gateway.request(method, "{}").result();
    let items = result[list].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item[field].as_str().unwrap_or("?").to_owned()).collect()
}

fn uris(gateway: &mut Gateway) -> Vec<String> {
    field(gateway, "resources/list", "resources", "uri")
}

fn prompts(gateway: &mut Gateway) -> Vec<String> {
    field(gateway, "prompts/list", "prompts", "name")
}

#[test]
fn resources_and_prompts_are_advertised_and_empty_before_opening() {
    let mut gateway = Gateway::spawn(dev("dynamic", json!({"a": fake(OFFERS)})));
    let capabilities = gateway.initialize(VERSION).result()["capabilities"].clone();
    assert_eq!(capabilities["resources"]["listChanged"], true);
    assert_eq!(capabilities["resources"]["subscribe"], true);
    assert_eq!(capabilities["prompts"]["listChanged"], true);
    assert!(capabilities["completions"].is_object());
    assert!(uris(&mut gateway).is_empty());
    assert!(prompts(&mut gateway).is_empty());
    assert!(field(&mut gateway, "resources/templates/list", "resourceTemplates", "uriTemplate").is_empty());
}

#[test]
fn all_pages_are_exposed_with_prefixes_in_every_mode() {
    for mode in ["dynamic", "proxy"] {
        let mut gateway = opened(mode);
        gateway.notification(RESOURCES_CHANGED);
        gateway.notification(PROMPTS_CHANGED);
        let mut expected = Vec::new();
        for server in ["My%20Server", "b"] {
            expected.extend((1..=3).map(|n| format!("workbench://dev/{server}/fake://resource/{n}")));
        }
        assert_eq!(uris(&mut gateway), expected, "{mode}");
        let names = field(&mut gateway, "resources/list", "resources", "name");
        assert_eq!(names[0], "Resource 1", "only the URI takes the prefix");
        assert_eq!(
            field(&mut gateway, "resources/templates/list", "resourceTemplates", "uriTemplate")[0],
            "workbench://dev/My%20Server/fake://item/1/{id}"
        );
        assert_eq!(prompts(&mut gateway)[..2], ["dev__My Server__prompt-1", "dev__My Server__prompt-2"]);
        assert_eq!(prompts(&mut gateway).len(), 6);
    }
}

#[test]
fn definitions_of_resources_and_prompts_keep_every_field() {
    let resource = r#"{"uri":"x:1","name":"r","size":18446744073709551616,"new":{"b":1.10,"a":1}}"#;
    let prompt = r#"{"name":"p","arguments":[{"name":"a","new":1.10}],"title":"\u0041"}"#;
    let entry = fake_with("", &["--resource", resource, "--prompt", prompt]);
    let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
    gateway.open("dev");
    let listed = gateway.request("resources/list", "{}").at(&["result", "resources", "0"]);
    for field in ["name", "size", "new"] {
        assert_eq!(raw_at(&listed, &[field]), raw_at(resource, &[field]));
    }
    let listed = gateway.request("prompts/list", "{}").at(&["result", "prompts", "0"]);
    assert_eq!(raw_at(&listed, &["arguments"]), raw_at(prompt, &["arguments"]));
    assert_eq!(raw_at(&listed, &["title"]), raw_at(prompt, &["title"]));
    assert_eq!(raw_at(&listed, &["name"]), r#""dev__a__p""#);
}

#[test]
fn filters_and_name_limits_concern_tools_only() {
    let mut entry = fake_with(OFFERS, &["--prompt", &format!(r#"{{"name":"{}"}}"#, "p".repeat(90))]);
    entry["toolFilters"] = json!([]);
    let mut gateway = Gateway::start(dev("dynamic", json!({"a": entry})));
    gateway.open("dev");
    assert_eq!(uris(&mut gateway).len(), 3);
    assert_eq!(prompts(&mut gateway)[3], format!("dev__a__{}", "p".repeat(90)));
}

#[test]
fn reading_relays_by_the_original_uri_and_contents_come_back_as_sent() {
    let mut gateway = opened("dynamic");
    for (exposed, original) in [
        ("workbench://dev/My%20Server/fake://resource/2", "fake://resource/2"),
        ("workbench://dev/b/fake://item/2/x%20y?z=%2F", "fake://item/2/x%20y?z=%2F"),
    ] {
        let params = format!(r#"{{"uri":"{exposed}","new":1.10}}"#);
        let result = gateway.request("resources/read", params).result();
        assert_eq!(result["contents"][0]["uri"], original, "as the upstream sent it");
        let seen = result["contents"][0]["text"].as_str().expect("a text").to_owned();
        assert_eq!(raw_at(&seen, &["uri"]), format!("\"{original}\""));
        assert_eq!(raw_at(&seen, &["new"]), "1.10");
    }
}

#[test]
fn an_unknown_resource_or_prompt_is_an_error() {
    let mut gateway = opened("dynamic");
    for uri in ["workbench://dev/none/fake://resource/1", "workbench://none/b/x", "fake://resource/1"] {
        gateway.request("resources/read", json!({"uri": uri})).error_code();
    }
    gateway.request("prompts/get", json!({"name": "dev__b__none"})).error_code();
    gateway.request("prompts/get", "{}").error_code();
}

#[test]
fn an_upstreams_error_keeps_code_and_data() {
    let error = r#"{"code":-32002,"message":"gone","data":{"n":18446744073709551616}}"#;
    let flags = ["--error", &format!("resources/read={error}"), "--error", &format!("prompts/get={error}")];
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake_with(OFFERS, &flags)})));
    gateway.open("dev");
    for answer in [
        gateway.request("resources/read", r#"{"uri":"workbench://dev/a/fake://resource/1"}"#),
        gateway.request("prompts/get", r#"{"name":"dev__a__prompt-1"}"#),
    ] {
        assert_eq!(answer.error_code(), -32002);
        assert_eq!(answer.at(&["error", "data"]), r#"{"n":18446744073709551616}"#);
    }
}

#[test]
fn prompts_are_got_by_their_original_name() {
    let mut gateway = opened("proxy");
    let params = r#"{"name":"dev__My Server__prompt-3","arguments":{"b":"\u0041","a":"1"}}"#;
    let result = gateway.request("prompts/get", params).result();
    let seen = result["messages"][0]["content"]["text"].as_str().expect("a text").to_owned();
    assert_eq!(raw_at(&seen, &["name"]), r#""prompt-3""#);
    assert_eq!(raw_at(&seen, &["arguments"]), r#"{"b":"\u0041","a":"1"}"#);
}

#[test]
fn completion_follows_its_reference() {
    let mut gateway = opened("proxy");
    let cases = [
        (r#"{"type":"ref/prompt","name":"dev__b__prompt-1"}"#, "name", "prompt-1"),
        (
            r#"{"type":"ref/resource","uri":"workbench://dev/b/fake://item/1/{id}"}"#,
            "uri",
            "fake://item/1/{id}",
        ),
    ];
    for (reference, key, original) in cases {
        let params = format!(r#"{{"ref":{reference},"argument":{{"name":"id","value":"1.10"}}}}"#);
        let result = gateway.request("completion/complete", params).result();
        let seen: Value =
            serde_json::from_str(result["completion"]["values"][0].as_str().expect("a text")).expect("JSON");
        assert_eq!(seen["ref"][key], original);
        assert_eq!(seen["argument"], json!({"name": "id", "value": "1.10"}));
    }
    let params =
        json!({"ref": {"type": "ref/prompt", "name": "none"}, "argument": {"name": "a", "value": ""}});
    gateway.request("completion/complete", params).error_code();
}

#[test]
fn subscriptions_pass_through_with_exposed_uris() {
    let mut gateway = opened("proxy");
    let exposed = json!({"uri": "workbench://dev/b/fake://resource/1"});
    let update = json!({"uri": "fake://resource/1"});
    gateway.request("resources/subscribe", &exposed).result();
    gateway.use_tool("b", "update", &update).text();
    assert_eq!(gateway.notification(UPDATED).value()["params"], exposed);
    gateway.use_tool("My Server", "update", &update).text();
    gateway.request("resources/unsubscribe", &exposed).result();
    gateway.use_tool("b", "update", &update).text();
    assert_eq!(gateway.count(UPDATED), 0);
    assert_eq!(gateway.use_tool("b", "report", "{}").json()["subscriptions"], json!([]));
}

#[test]
fn a_crash_takes_them_out_of_the_lists() {
    let mut gateway = opened("proxy");
    gateway.notification(RESOURCES_CHANGED);
    gateway.notification(PROMPTS_CHANGED);
    gateway.use_tool("b", "crash", "{}").failure();
    gateway.notification(RESOURCES_CHANGED);
    gateway.notification(PROMPTS_CHANGED);
    assert_eq!(uris(&mut gateway).len(), 3);
    assert_eq!(prompts(&mut gateway).len(), 3);
}

#[test]
fn the_uri_of_a_resource_link_can_be_read_as_it_stands() {
    let entry = fake("--with result --resources 1");
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake("--with echo"), "b": entry})));
    gateway.open("dev");
    let result = r#"{"content":[{"type":"resource_link","uri":"fake://linked/1","name":"l"}]}"#;
    let answer = gateway.use_tool("b", "result", json!({"json": result}));
    assert_eq!(answer.at(&["result"]), result);
    let read = gateway.request("resources/read", r#"{"uri":"fake://linked/1"}"#).result();
    assert_eq!(read["contents"][0]["uri"], "fake://linked/1");
}

#[test]
fn of_two_prompts_that_would_share_a_name_the_first_wins_and_the_other_is_logged() {
    let first = fake_with("", &["--prompt", r#"{"name":"b__c"}"#]);
    let second = fake_with("", &["--prompt", r#"{"name":"c"}"#]);
    let mut gateway = Gateway::start(dev("proxy", json!({"a": first, "a__b": second})));
    gateway.open("dev");
    assert_eq!(prompts(&mut gateway), ["dev__a__b__c"]);
    let result = gateway.request("prompts/get", r#"{"name":"dev__a__b__c"}"#).result();
    assert_eq!(result["messages"][0]["content"]["text"], r#"{"name":"b__c"}"#);
    gateway.stderr_with("dev__a__b__c");
}
