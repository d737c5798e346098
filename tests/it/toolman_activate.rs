//! `toolman_activate`: what it takes, what it changes, what it answers.

use serde_json::{Value, json};

use crate::harness::{Gateway, Lab, Message, TOOLS_CHANGED, VERSION, server};

const OFFERS: &str = "--with echo,slow --tools 2 --resources 2 --templates 1 --prompts 1";

/// Two servers, `a` and `b`; `a_echo` and `a_fake://resource/1` are active.
fn start() -> Gateway {
    let config = "active_toolsets = [\"a_echo\", \"a_fake://resource/1\"]\n".to_owned()
        + &server("a", OFFERS, "")
        + &server("b", OFFERS, "");
    let mut gateway = Gateway::toolman(config);
    assert_eq!(state(&mut gateway), (vec!["a_echo".to_owned()], vec!["a_fake://resource/1".to_owned()]));
    gateway
}

/// Active tools, and active resources with templates.
fn state(gateway: &mut Gateway) -> (Vec<String>, Vec<String>) {
    let (tools, mut resources) = (gateway.tools(), gateway.uris());
    resources.extend(gateway.templates());
    (tools[1..].to_vec(), resources)
}

/// The own-answer shape, in both forms; returns the error.
#[track_caller]
fn refused(answer: &Message) -> String {
    assert!(answer.is_error(), "{answer:?}");
    let shape: Value = serde_json::from_str(&answer.text_block(0)).expect("JSON");
    assert_eq!(shape, answer.result()["structuredContent"]);
    assert_eq!((&shape["success"], &shape["result"]), (&json!(false), &Value::Null));
    assert_eq!(shape.as_object().expect("an object").len(), 3);
    shape["error"].as_str().expect("a text").to_owned()
}

/// The own-answer shape, in both forms; returns the message.
#[track_caller]
fn confirmed(answer: &Message) -> String {
    let shape = answer.json();
    assert_eq!(shape, answer.result()["structuredContent"]);
    assert_eq!((&shape["success"], &shape["error"]), (&json!(true), &Value::Null));
    assert_eq!(shape.as_object().expect("an object").len(), 3);
    shape["result"].as_str().expect("a text").to_owned()
}

#[test]
fn its_schema_asks_for_four_lists_and_nothing_else() {
    let tool = start().request("tools/list", "{}").result()["tools"][0].take();
    let lists = ["tools_on", "tools_off", "resources_on", "resources_off"];
    let schema = &tool["inputSchema"];
    assert_eq!((&schema["type"], &schema["additionalProperties"]), (&json!("object"), &json!(false)));
    assert_eq!(schema["required"], json!(lists));
    assert_eq!(schema["properties"].as_object().expect("an object").len(), 4);
    for list in lists {
        let list = &schema["properties"][list];
        assert_eq!((&list["type"], &list["items"]), (&json!("array"), &json!({"type": "string"})));
    }
}

#[test]
fn what_is_named_is_switched_and_all_else_keeps_its_state() {
    let mut gateway = start();
    for (lists, tools, resources, changes) in [
        (
            [&["b_slow", "a_tool-2"][..], &[][..], &[][..], &[][..]],
            &["a_echo", "a_tool-2", "b_slow"][..],
            &["a_fake://resource/1"][..],
            [1, 0, 0],
        ),
        ([&[], &["a_echo"], &[], &[]], &["a_tool-2", "b_slow"], &["a_fake://resource/1"], [1, 0, 0]),
        // The catalog stands in the list of tools, so that list changes too.
        (
            [&[], &[], &["b_fake://item/1/{id}"], &["a_fake://resource/1"]],
            &["a_tool-2", "b_slow"],
            &["b_fake://item/1/{id}"],
            [1, 1, 0],
        ),
        // Nothing new: nobody is told.
        (
            [&["b_slow"], &["a_echo"], &["b_fake://item/1/{id}"], &["a_fake://resource/1"]],
            &["a_tool-2", "b_slow"],
            &["b_fake://item/1/{id}"],
            [0, 0, 0],
        ),
        // Patterns; a whole server.
        (
            [&["b_*"], &["a_tool-?"], &[], &[]],
            &["b_echo", "b_slow", "b_tool-1", "b_tool-2"],
            &["b_fake://item/1/{id}"],
            [1, 0, 0],
        ),
        (
            [&["a_echo"], &["b_[!e]*"], &["a_*"], &["b_*"]],
            &["a_echo", "b_echo"],
            &["a_fake://resource/1", "a_fake://resource/2", "a_fake://item/1/{id}"],
            [1, 1, 0],
        ),
    ] {
        confirmed(&gateway.activate(lists));
        assert_eq!(gateway.changes(), changes, "{lists:?}");
        let (seen_tools, seen_resources) = state(&mut gateway);
        assert_eq!(
            (seen_tools.as_slice(), seen_resources.as_slice()),
            (&own(tools)[..], &own(resources)[..]),
            "{lists:?}"
        );
        assert_eq!(gateway.prompts(), ["a_prompt-1", "b_prompt-1"], "{lists:?}");
    }
}

fn own(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_confirmation_is_short_and_says_what_is_active_now() {
    let mut gateway = start();
    let message = confirmed(&gateway.activate([&["b_echo"], &["a_echo"], &["b_*"], &[]]));
    for part in ["b_echo", "a_echo", "b_fake://resource/2", "1 of 8 tools", "4 of 6 resources"] {
        assert!(message.contains(part), "{part} is missing: {message}");
    }
    let message = confirmed(&gateway.activate([&["*"], &[], &["*"], &[]]));
    assert!(message.len() < 500 && message.contains("8 of 8 tools"), "{message}");
}

#[test]
fn four_empty_lists_are_an_error_that_shows_the_whole_catalog() {
    let error = refused(&start().activate([&[], &[], &[], &[]]));
    assert!(error.contains("at least one"), "{error}");
    for row in ["\n* a_echo", "\nb_tool-2", "\n* a_fake://resource/1", "\nb_fake://item/1/{id}"] {
        assert!(error.contains(row), "{row} is missing: {error}");
    }
}

#[test]
fn whatever_is_wrong_nothing_changes_and_the_error_says_what_to_do() {
    let mut gateway = start();
    let before = state(&mut gateway);
    for (lists, parts) in [
        (
            [&["b_echo", "a_eco", "zzzz"][..], &["a_echo"][..], &[][..], &[][..]],
            &["'a_eco'", "a_echo", "'zzzz'", "Nothing was changed"][..],
        ),
        (
            [&["b_echo"], &["b_eho"], &["b_fake://resource/3"], &["nope"]],
            &["'b_eho'", "b_echo", "'b_fake://resource/3'", "b_fake://resource/1", "'nope'"],
        ),
        ([&["c_*"], &[], &[], &[]], &["'c_*'"]),
        ([&["*_nothing"], &["a_echo"], &[], &[]], &["'*_nothing'"]),
        ([&["echo"], &[], &[], &[]], &["'echo'", "a_echo", "b_echo"]),
        ([&[""], &[], &[], &[]], &["''"]),
        // A thing in the list of the other kind is told apart.
        ([&["a_fake://resource/1"], &[], &[], &[]], &["'a_fake://resource/1'", "resources_on"]),
        ([&[], &[], &[], &["a_echo"]], &["'a_echo'", "tools_off"]),
        ([&["a_prompt-1"], &[], &[], &[]], &["'a_prompt-1'"]),
        ([&["toolman_activate"], &[], &[], &[]], &["'toolman_activate'"]),
        // Both on and off.
        ([&["b_echo", "a_slow"], &["b_echo"], &[], &[]], &["'b_echo'", "both on and off"]),
        ([&["b_*"], &["b_echo"], &[], &[]], &["'b_echo'", "both on and off"]),
        ([&[], &[], &["*resource/1"], &["b_*"]], &["'b_fake://resource/1'", "both on and off"]),
    ] {
        let error = refused(&gateway.activate(lists));
        for part in parts {
            assert!(error.contains(part), "{lists:?}: {part} is missing: {error}");
        }
        assert_eq!(gateway.changes(), [0, 0, 0], "{lists:?}");
        assert_eq!(state(&mut gateway), before, "{lists:?}");
    }
}

#[test]
fn arguments_are_checked_strictly() {
    let mut gateway = start();
    let before = state(&mut gateway);
    for (arguments, part) in [
        ("{}", "tools_on"),
        (r#"{"tools_on":["b_echo"],"tools_off":[],"resources_on":[]}"#, "resources_off is missing"),
        (
            r#"{"tools_on":"b_echo","tools_off":[],"resources_on":[],"resources_off":[]}"#,
            "tools_on must be a list",
        ),
        (
            r#"{"tools_on":[1],"tools_off":[],"resources_on":[],"resources_off":[]}"#,
            "tools_on must be a list",
        ),
        (
            r#"{"tools_on":[],"tools_off":null,"resources_on":[],"resources_off":[]}"#,
            "tools_off must be a list",
        ),
        (r#"{"tools_on":["b_echo"],"tools_off":[],"resources_on":[],"resources_off":[],"more":1}"#, "'more'"),
        (
            r#"{"tools_on":["b_echo"],"tools_on":["b_echo"],"tools_off":[],"resources_on":[],"resources_off":[]}"#,
            "tools_on",
        ),
        ("[]", "required"),
        ("null", "required"),
    ] {
        let error = refused(&gateway.call("toolman_activate", arguments));
        assert!(error.starts_with("Invalid parameters: ") && error.contains(part), "{arguments}: {error}");
        assert_eq!(state(&mut gateway), before, "{arguments}");
    }
    let error = refused(&gateway.request("tools/call", r#"{"name":"toolman_activate"}"#));
    assert!(error.contains("required"), "{error}");
}

#[test]
fn an_exact_name_is_taken_before_it_is_taken_for_a_pattern() {
    let flags = r#"--tool '{"name":"x?"}' --tool '{"name":"xy"}' --resource '{"uri":"y:[1]","name":"r"}' --resource '{"uri":"y:1","name":"r"}'"#;
    let mut gateway = Gateway::toolman("names = \"exact\"\n".to_owned() + &server("", flags, ""));
    confirmed(&gateway.activate([&["x?"], &[], &["y:[1]"], &[]]));
    assert_eq!(state(&mut gateway), (own(&["x?"]), own(&["y:[1]"])));
}

#[test]
fn inactive_and_unknown_names_come_with_guidance() {
    let mut gateway = start();
    let error = refused(&gateway.call("b_echo", "{}"));
    for part in ["'b_echo'", "not active", r#"toolman_activate {"tools_on": ["b_echo"], "tools_off": []"#] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
    // What the guidance shows is a call that works.
    let arguments = &error[error.find('{').expect("arguments")..];
    confirmed(&gateway.call("toolman_activate", arguments));
    gateway.call("b_echo", "{}").text();

    let error = refused(&gateway.call("b_ecko", "{}"));
    assert!(
        error.contains("'b_ecko'") && error.contains("b_echo") && error.contains("toolman_activate"),
        "{error}"
    );

    for (uri, parts) in [
        (
            "b_fake://resource/1",
            &["'b_fake://resource/1'", "not active", r#""resources_on": ["b_fake://resource/1"]"#][..],
        ),
        ("b_fake://item/1/x", &["not active", r#""resources_on": ["b_fake://item/1/{id}"]"#]),
        ("b_fake://resource/3", &["'b_fake://resource/3'", "b_fake://resource/1"]),
        ("fake://resource/1", &["'fake://resource/1'", "a_fake://resource/1"]),
    ] {
        for method in ["resources/read", "resources/subscribe"] {
            let answer = gateway.request(method, json!({"uri": uri}));
            answer.error_code();
            let error = answer.value()["error"].take();
            let data = &error["data"];
            assert_eq!(
                (&data["success"], &data["result"], &data["error"]),
                (&json!(false), &Value::Null, &error["message"])
            );
            let message = error["message"].as_str().expect("a text");
            for part in parts {
                assert!(message.contains(part), "{uri}: {part} is missing: {message}");
            }
        }
    }
    let answer = gateway.request("prompts/get", json!({"name": "a_promt-1"}));
    assert!(answer.at(&["error", "message"]).contains("a_prompt-1"), "{answer:?}");
    assert_eq!(answer.at(&["error", "data", "success"]), "false");
}

#[test]
fn toolman_call_is_not_listed_but_calls_what_is_active_by_its_name() {
    let mut gateway = start();
    assert!(!gateway.tools().contains(&"toolman_call".to_owned()));
    let params =
        r#"{"name":"toolman_call","arguments":{"name":"a_echo","arguments":{"b":1.10}},"_meta":{"x":1}}"#;
    let seen = gateway.request("tools/call", params).text();
    assert_eq!(seen, r#"{"name":"echo","arguments":{"b":1.10},"_meta":{"x":1}}"#);
    assert_eq!(gateway.call("toolman_call", r#"{"name":"a_echo"}"#).text(), r#"{"name":"echo"}"#);
    for (arguments, part) in [
        (r#"{"name":"b_echo"}"#, "not active"),
        (r#"{"name":"none"}"#, "There is no tool 'none'"),
        (r#"{}"#, "Invalid parameters"),
        (r#"{"name":"a_echo","arguments":[]}"#, "Invalid parameters"),
        (r#"{"name":"a_echo","more":1}"#, "'more'"),
    ] {
        let error = refused(&gateway.call("toolman_call", arguments));
        assert!(error.contains(part), "{arguments}: {error}");
    }
}

#[test]
fn clients_that_ignore_changed_lists_call_through_what_they_have() {
    let config = server("a", OFFERS, "");
    for (name, keeps_its_list) in [
        ("codex-mcp-client", true),
        ("@cline/core", true),
        ("Cline", true),
        ("cursor-vscode", true),
        ("Visual Studio Code", true),
        ("claude-ai", true),
        ("windsurf-client", true),
        ("claude-code", false),
        ("Zed", false),
        ("unknown", false),
    ] {
        let mut gateway = Gateway::spawn_toolman(Lab::new(), &config, |_| ());
        gateway.initialize_as(VERSION, "{}", name);
        let own: &[&str] =
            if keeps_its_list { &["toolman_activate", "toolman_call"] } else { &["toolman_activate"] };
        assert_eq!(gateway.tools(), own, "{name}");
        let id = gateway.post_call(
            "toolman_activate",
            r#"{"tools_on":["a_echo"],"tools_off":[],"resources_on":["a_fake*"],"resources_off":[]}"#,
        );
        gateway.notification(TOOLS_CHANGED);
        assert!(gateway.catalog().contains("* a_echo"), "{name}");
        assert_eq!(gateway.tools().len(), own.len() + 1, "{name}");
        let answer = gateway.answer(&id);
        if !keeps_its_list {
            confirmed(&answer);
            continue;
        }
        let result = answer.json()["result"].take();
        assert!(result["message"].as_str().expect("a text").starts_with("Switched on: "), "{name}: {result}");
        let count = |list: &str| result[list].as_array().expect("a list").len();
        assert_eq!(
            [count("tools"), count("resources"), count("resourceTemplates")],
            [1, 2, 1],
            "{name}: {result}"
        );
        assert_eq!(result["tools"][0]["name"], "a_echo");
        assert!(result["tools"][0]["inputSchema"].is_object());
        assert_eq!(gateway.call("toolman_call", r#"{"name":"a_echo"}"#).text(), r#"{"name":"echo"}"#);
    }
}
