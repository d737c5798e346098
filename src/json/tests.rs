use super::*;
use proptest::prelude::*;

#[test]
fn elements_of_an_array_are_handed_on_as_they_stand() {
    for array in ["[]", "[ ]", "[1]", r#"[ 1 , "a\"]" ,{"b":[2, {}]},[ ],null ]"#, "[\n1\n,\r2\n]"] {
        let text = format!("{{\"list\":{array}}}");
        let mut scanner = Scanner::default();
        let list = scanner.scan_str(&text).unwrap().root().get("list").unwrap();
        let mut found = Vec::new();
        Scanner::default().each_element(list, |element| {
            found.push((element.raw().to_owned(), element.get("b").map(|node| node.raw().to_owned())));
        });
        let expected: Vec<Box<serde_json::value::RawValue>> = serde_json::from_str(array).unwrap();
        let inner = |raw: &str| raw.starts_with('{').then(|| "[2, {}]".to_owned());
        let expected: Vec<_> = expected.iter().map(|raw| (raw.get().to_owned(), inner(raw.get()))).collect();
        assert_eq!(found, expected, "{array}");
    }
}

fn node_text(text: &str, path: &[&str]) -> Option<String> {
    let mut scanner = Scanner::default();
    let mut node = scanner.scan_str(text).expect("valid").root();
    for key in path {
        node = node.unique(key).expect("unique")?;
    }
    Some(node.raw().to_owned())
}

#[test]
fn finds_members_down_to_the_indexed_depth() {
    let text = r#" {"id": 1, "params" : {"name":"x","arguments":{"tool":{"server":"s" , "t":[{"a":1}]},"n":1.50}, "z":[]} , "r":{}} "#;
    for (path, expected) in [
        (&["id"][..], Some("1")),
        (&["params", "name"], Some("\"x\"")),
        (&["params", "arguments", "tool"], Some(r#"{"server":"s" , "t":[{"a":1}]}"#)),
        (&["params", "arguments", "tool", "server"], Some("\"s\"")),
        (&["params", "arguments", "tool", "t"], Some(r#"[{"a":1}]"#)),
        (&["params", "arguments", "n"], Some("1.50")),
        (&["params", "z"], Some("[]")),
        (&["r"], Some("{}")),
        (&["r", "a"], None),
        (&["name"], None),
    ] {
        assert_eq!(node_text(text, path).as_deref(), expected, "{path:?}");
    }
}

#[test]
fn escapes_in_keys_count_and_duplicates_are_refused() {
    assert_eq!(node_text(r#"{"na\u006de":"a"}"#, &["name"]).as_deref(), Some("\"a\""));
    for text in [r#"{"name":1,"name":2}"#, r#"{"name":1,"NAME":2}"#, r#"{"n\u0061me":1,"name":2}"#] {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.scan_str(text).unwrap().root().unique("name").err(), Some(Duplicate), "{text}");
    }
    assert_eq!(node_text(r#"{"a":{"name":1},"name":2}"#, &["name"]).as_deref(), Some("2"));
}

#[test]
fn depth_is_no_danger() {
    let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    assert_eq!(Scanner::default().scan_str(&deep).map(Doc::deepest), Ok(1_000_000));
    assert_eq!(Scanner::default().scan_str("[{},[]]").map(Doc::deepest), Ok(2));
    assert!(Scanner::default().scan_str(&deep[1..]).is_err());
}

#[test]
fn line_breaks_between_tokens_are_noticed() {
    for (text, expected) in
        [("{\"a\":1}", false), ("{\n\"a\":1}", true), ("{\"a\\n\":1}", false), ("[1,\r2]", true)]
    {
        assert_eq!(Scanner::default().scan_str(text).unwrap().has_line_breaks(), expected, "{text:?}");
    }
}

#[test]
fn rewrites_members_and_leaves_the_rest() {
    for (text, changes, expected) in [
        (
            r#"{"name":"a","x":12345678901234567890}"#,
            &[("name", Some("\"b\""))][..],
            r#"{"name":"b","x":12345678901234567890}"#,
        ),
        (r#"{ "x" : [1, 2] , "y":0.10}"#, &[("x", None), ("z", Some("{}"))], r#"{"y":0.10,"z":{}}"#),
        ("{\n\"x\": [1,\n2]}", &[("y", Some("1"))], r#"{"x": [1, 2],"y":1}"#),
        (
            "{\"x\":1,\n\"y\" : 2, \"z\":3}",
            &[("y", Some("0")), ("w", Some("4"))],
            r#"{"x":1, "y" : 0, "z":3,"w":4}"#,
        ),
        (r#"{"x":1, "y":2, "z":3}"#, &[("y", None)], r#"{"x":1,"z":3}"#),
        (r#"{"x":1, "y":2, "z":3}"#, &[("x", None), ("z", None)], r#"{"y":2}"#),
        (r#"{"x":1,"y":2}"#, &[("x", None), ("y", None), ("z", Some("3"))], r#"{"z":3}"#),
        (r#"{"x":1,"y":2}"#, &[("x", Some("{}")), ("y", None)], r#"{"x":{}}"#),
        ("7", &[("y", Some("1"))], r#"{"y":1}"#),
        ("{}", &[("y", None)], "{}"),
    ] {
        let mut out = Vec::new();
        Scanner::default().scan_str(text).unwrap().root().write_with(&mut out, changes);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("-0.10e+5".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<String>().prop_map(|s| serde_json::to_string(&s).unwrap()),
        Just(r#""\ud800\u00e9\/""#.to_owned()),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|v| format!("[ {} ]", v.join(" ,"))),
            prop::collection::vec(("[a-c]{0,2}", inner), 0..4).prop_map(|m| {
                let members: Vec<_> = m.iter().map(|(k, v)| format!("\"{k}\" :{v}")).collect();
                format!("{{{}}}", members.join(", "))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn strings_are_decoded_as_others_do(
        inner in r#"([ -!#-\[\]-~\u00e4\u20ac]|\\["\\/bfnrt]|\\u00(4|a)[0-9a-fA-F]|\\ud83d\\ude00){0,40}"#,
        surrogates in r#"(\\u[dD][89abcdef][0-9a-f][0-9A-F]){0,2}"#,
    ) {
        let literal = format!("\"{inner}{surrogates}{inner}\"");
        prop_assert_eq!(string_end(literal.as_bytes(), 0), literal.len());
        let mut text = "before".to_owned();
        let sound = append_decoded(&literal, &mut text);
        match serde_json::from_str::<String>(&literal) {
            Ok(expected) => prop_assert_eq!((text, sound), (format!("before{expected}"), true)),
            Err(_) => prop_assert!(!sound),
        }
    }

    #[test]
    fn accepts_what_is_json(text in json()) {
        prop_assert!(Scanner::default().scan_str(&text).is_ok());
    }

    #[test]
    fn agrees_with_an_independent_parser(text in json(), at in any::<prop::sample::Index>(), byte in prop::sample::select(b"{}[]\",:\\0e-.tn \n\x01x".to_vec())) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let ours = Scanner::default().scan(&bytes).is_ok();
        let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok() && std::str::from_utf8(&bytes).is_ok();
        prop_assert_eq!(ours, theirs, "{:?}", String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let ours = Scanner::default().scan(&bytes).is_ok();
        let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok() && std::str::from_utf8(&bytes).is_ok();
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn members_are_those_of_an_independent_parser(text in json()) {
        let mut scanner = Scanner::default();
        let root = scanner.scan_str(&text).unwrap().root();
        let keys: Vec<_> = root.members().map(|(key, _)| key.into_owned()).collect();
        if let Ok(serde_json::Value::Object(map)) = serde_json::from_str(&text) {
            for key in &keys {
                prop_assert!(map.contains_key(key));
            }
            for key in map.keys() {
                prop_assert!(keys.contains(key));
            }
        } else if root.is_object() { // serde_json cannot represent lone surrogates.
            prop_assert!(text.contains("ud800"));
        } else {
            prop_assert!(keys.is_empty());
        }
    }
}

#[test]
fn what_is_known_of_a_meta_changes_nothing() {
    /// The whole index, or the place of the error.
    fn index(scanner: &mut Scanner, text: &str) -> String {
        match scanner.scan_str(text) {
            Err(Invalid { offset }) => format!("invalid at {offset}"),
            Ok(doc) => {
                let member = |member: &Member| {
                    let (key, value) = (member.key.range(), member.value.range());
                    let flags = (member.escaped_key, member.plain_value);
                    format!("{key:?} {value:?} {} {flags:?}", member.next)
                };
                let members: Vec<_> = doc.found.members.iter().map(member).collect();
                format!("{members:?} {} {}", doc.deepest(), doc.has_line_breaks())
            }
        }
    }
    let metas = [
        r#"{"a":1}"#,
        r#"{"a":{"b":{"c":[[[1]]]}},"d":"e"}"#,
        r#"{"a":"\n","\u0061":2}"#,
        "{\"a\":\n1}",
        r#"{"a":1"#,
        r#"{}"#,
        "7",
    ];
    let around = [
        |meta: &str| format!(r#"{{"params":{{"_meta":{meta}}}}}"#),
        |meta: &str| {
            format!(r#"{{"id":1,"params":{{"name":"t","_meta":{meta},"_meta":{meta},"x":1}},"y":{{}}}}"#)
        },
        |meta: &str| format!("{{\n\"params\":{{\"_meta\":{meta}}}}}"),
        |meta: &str| format!(r#"{{"params":{{"_meta":{meta}x}}}}"#),
        |meta: &str| format!(r#"{{"_meta":{meta},"params":{{"x":{{"_meta":{meta}}}}}}}"#),
    ];
    let texts: Vec<_> = metas.iter().flat_map(|meta| around.map(|around| around(meta))).collect();
    for first in &texts {
        for second in &texts {
            let mut scanner = Scanner::of_stream();
            for text in [first, second, first, second] {
                assert_eq!(
                    index(&mut scanner, text),
                    index(&mut Scanner::default(), text),
                    "{first} {second}"
                );
            }
        }
    }
}

#[test]
fn a_meta_is_kept_until_too_many_differ() {
    let mut scanner = Scanner::of_stream();
    let text = |number: usize| format!(r#"{{"params":{{"_meta":{{"progressToken":{number}}}}}}}"#);
    let mut kept = |number: usize| {
        scanner.scan_str(&text(number)).expect("JSON");
        scanner.known_text() == Some(&format!("{{\"progressToken\":{number}}}"))
    };
    assert!((0..16).all(&mut kept));
    assert!(!kept(16));
    assert!(kept(15) && kept(17), "one that came again makes room for another");
    assert!(!kept(18));
    let long = format!(r#"{{"params":{{"_meta":{{"a":"{}"}}}}}}"#, "x".repeat(3000));
    let mut scanner = Scanner::of_stream();
    scanner.scan_str(&long).expect("JSON");
    assert_eq!(scanner.known_text(), None);
}

#[test]
fn the_usual_opening_of_messages_is_read_as_any_other() {
    for rest in [
        r#""id":1,"method":"m","params":{"a":{"b":1}}}"#,
        r#""jsonrpc":"2.0"}"#,
        "\n\"id\":[{}] } ",
        "}",
        r#""id":1"#,
        "",
        r#"{"jsonrpc":"2.0",}}"#,
    ] {
        let read = |text: &str| {
            let mut scanner = Scanner::default();
            let doc = scanner.scan_str(text).ok()?;
            let members = doc.root().members().map(|(key, value)| (key.into_owned(), value.raw().to_owned()));
            Some((doc.deepest(), members.collect::<Vec<_>>()))
        };
        for before in ["", " "] {
            let usual = format!("{before}{{\"jsonrpc\":\"2.0\",{rest}");
            assert_eq!(read(&usual), read(&usual.replacen(':', " :", 1)), "{usual}");
        }
    }
}

#[test]
fn keys_that_repeat_are_found_whatever_their_case() {
    for (text, expected) in [
        ("{}", false),
        (r#"{"a":1,"b":2,"c":3,"c":4}"#, false),
        (r#"{"A":1,"b":{"a":1}}"#, false),
        (r#"{"a":1,"x":2,"a":3}"#, true),
        (r#"{"b":1,"B":2}"#, true),
        (r#"{"a":1,"\u0061":2}"#, true),
    ] {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.scan_str(text).expect("JSON").root().repeats(&["a", "b"]), expected, "{text}");
    }
}

#[test]
fn only_what_needs_escapes_is_escaped_at_any_length() {
    for length in 1..40 {
        let plain = "x".repeat(length);
        assert_eq!(quote(&plain), format!("\"{plain}\""));
        for (at, odd) in (0..length).flat_map(|at| ["\"", "\\", "\n", "\u{1f}"].map(|odd| (at, odd))) {
            let text = [&plain[..at], odd, &plain[at + 1..]].concat();
            assert_eq!(quote(&text), serde_json::to_string(&text).expect("a string"), "{text:?}");
        }
    }
}
