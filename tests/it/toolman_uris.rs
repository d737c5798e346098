//! The two spellings of toolman's URIs, `ev_demo://…` and `ev+demo://…`: which a client is shown, and that it may use both.

use serde_json::{Value, json};

use crate::harness::{Gateway, Lab, RESOURCES_CHANGED, VERSION, raw_at, server};

const UPDATED: &str = "notifications/resources/updated";
/// The name of programs that refuse all resources over one URI whose scheme has `_`.
const STRICT: &str = "mcp";
const OFFERS: &str = "--with update,report --resources 2 --templates 1";

/// Toolman with one server, `ev`, and a client of this name.
fn toolman(name: &str, more: &str) -> Gateway {
    let config = format!("{more}\n{}", server("ev", OFFERS, ""));
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
    gateway.initialize_as(VERSION, "{}", name);
    gateway.tools();
    gateway
}

impl Gateway {
    #[track_caller]
    fn listed_uris(&mut self) -> [Vec<String>; 2] {
        [self.uris(), self.templates()]
    }
}

#[test]
fn strict_clients_are_shown_schemes_that_they_take_unless_the_file_says_otherwise() {
    let all = "active_toolsets = [\"*\"]\n";
    for (name, more, separator) in [
        (STRICT, "", "+"),
        ("MCP", "", "+"),
        ("test-client", "", "_"),
        ("claude-code", "", "_"),
        (STRICT, "resource_separator = \"_\"", "_"),
        (STRICT, "resource_separator = \"-\"", "-"),
        ("test-client", "resource_separator = \"+\"", "+"),
    ] {
        let mut gateway = toolman(name, &format!("{all}{more}"));
        let [one, two] = [1, 2].map(|n| format!("ev{separator}fake://resource/{n}"));
        let template = format!("ev{separator}fake://item/1/{{id}}");
        assert_eq!(gateway.listed_uris(), [vec![one.clone(), two], vec![template]], "{name} {more}");
        let catalog = gateway.catalog();
        assert!(catalog.contains(&format!("\n* {one}")) && catalog.contains("\n* ev_update"), "{catalog}");
        assert_eq!(gateway.tools()[1..], ["ev_update", "ev_report"], "{name}");
    }
}

#[test]
fn both_spellings_are_read_completed_and_subscribed_to_whichever_is_shown() {
    for name in [STRICT, "test-client"] {
        let mut gateway = toolman(name, "active_toolsets = [\"*\"]");
        for separator in ["_", "+"] {
            for own in ["fake://resource/1", "fake://item/1/x"] {
                let uri = json!({"uri": format!("ev{separator}{own}")});
                gateway.request("resources/read", &uri).result();
                gateway.request("resources/subscribe", &uri).result();
                gateway.call("ev_update", json!({"uri": own})).text();
                assert_eq!(gateway.notification(UPDATED).value()["params"], uri, "{name}");
                assert_eq!(gateway.count(UPDATED), 0, "it is told once: {name} {uri}");
                gateway.request("resources/unsubscribe", &uri).result();
                assert_eq!(gateway.call("ev_report", "{}").json()["subscriptions"], json!([]), "{name}");
            }
            let reference =
                json!({"type": "ref/resource", "uri": format!("ev{separator}fake://item/1/{{id}}")});
            let params = json!({"ref": reference, "argument": {"name": "id", "value": "1"}});
            let completed = gateway.request("completion/complete", params).result();
            let seen = completed["completion"]["values"][0].as_str().expect("a text").to_owned();
            assert_eq!(raw_at(&seen, &["ref", "uri"]), "\"fake://item/1/{id}\"", "{name}");
        }
        for unknown in ["ev-fake://resource/1", "+fake://resource/1", "ev+none://1", "ev++fake://resource/1"]
        {
            let code = gateway.request("resources/read", json!({"uri": unknown})).error_code();
            assert_eq!(code, -32002, "{name} {unknown}");
        }
    }
}

#[test]
fn both_spellings_are_matched_and_named_whichever_is_shown() {
    for (name, shown) in [(STRICT, "+"), ("test-client", "_")] {
        let uris = |numbers: &[usize]| -> Vec<String> {
            numbers.iter().map(|n| format!("ev{shown}fake://resource/{n}")).collect()
        };
        for pattern in ["ev_fake://*/1", "ev+fake://*/1", "ev+fake://resource/1"] {
            let mut gateway = toolman(name, &format!("active_toolsets = [\"{pattern}\"]"));
            assert_eq!(gateway.uris(), uris(&[1]), "{name} {pattern}");
        }
        let mut gateway = toolman(name, "");
        for separator in ["_", "+"] {
            let (one, all) = (format!("ev{separator}fake://resource/1"), format!("ev{separator}fake*"));
            let on = gateway.activate([&[], &[], &[&one], &[]]).json()["result"].clone();
            assert!(on.to_string().contains(&uris(&[1])[0]), "it is named as it is shown: {on}");
            gateway.notification(RESOURCES_CHANGED);
            assert_eq!(gateway.uris(), uris(&[1]), "{name}");
            gateway.activate([&[], &[], &[&all], &[]]).text();
            assert_eq!((gateway.uris(), gateway.templates().len()), (uris(&[1, 2]), 1), "{name}");
            gateway.activate([&[], &[], &[], &[&all]]).text();
            assert_eq!(gateway.listed_uris().concat(), Vec::<String>::new(), "{name}");
        }
        let refused = gateway.request("resources/read", json!({"uri": "ev+fake://resource/1"}));
        assert_eq!(refused.error_code(), -32602, "what is off cannot be read in any spelling: {refused:?}");
    }
}

#[test]
fn what_a_strict_client_switches_is_remembered_for_all() {
    let mut lab = Lab::new();
    let config = format!("remember = true\n{}", server("ev", OFFERS, ""));
    for (name, on, shown) in
        [(STRICT, Some("ev+fake://resource/1"), "+"), ("test-client", None, "_"), (STRICT, None, "+")]
    {
        let mut gateway = Gateway::spawn_toolman(lab, &config, |_| ());
        gateway.initialize_as(VERSION, "{}", name);
        gateway.tools();
        if let Some(uri) = on {
            let _: Value = gateway.activate([&[], &[], &[uri], &[]]).json();
        }
        assert_eq!(gateway.uris(), [format!("ev{shown}fake://resource/1")], "{name}");
        lab = gateway.finish();
    }
}
