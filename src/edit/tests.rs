use super::*;

fn path(path: &str) -> Vec<String> {
    path.split('.').filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

fn set(at: &str, value: Value) -> Edit<'static> {
    Edit::Set { path: path(at), value }
}

fn remove(at: &str) -> Edit<'static> {
    Edit::Remove { path: path(at) }
}

fn us() -> Value {
    Value::object([("command", Value::String("/x".into())), ("args", Value::strings(["-a", "b c"]))])
}

#[track_caller]
fn check(format: Format, text: &str, edits: &[Edit<'_>], expected: &str) {
    match apply(format, text, edits) {
        Ok(changed) => assert_eq!(changed, expected),
        Err(refusal) => panic!("{refusal}: {text}"),
    }
}

#[test]
fn json() {
    let text = "{\n  // one\n  \"m\": {\n    \"a\": {\"x\": 1.0}, // a\n    /* b */ \"b\": {},\n  },\n  \"z\": 1e3\n}\n";
    check(
        Format::Json,
        text,
        &[set("m.us", us()), remove("m.a")],
        "{\n  // one\n  \"m\": {\n    /* b */ \"b\": {},\n    \"us\": {\n      \"command\": \"/x\",\n      \"args\": [\"-a\", \"b c\"],\n    },\n  },\n  \"z\": 1e3\n}\n",
    );
    check(Format::Json, "", &[set("m.us", Value::Null)], "{\n  \"m\": {\n    \"us\": null\n  }\n}\n");
    check(
        Format::Json,
        "\u{feff}{\r\n\t\"m\": {}\r\n}\r\n",
        &[set("m.us", Value::Null)],
        "\u{feff}{\r\n\t\"m\": {\r\n\t\t\"us\": null\r\n\t}\r\n}\r\n",
    );
    check(Format::Json, "{\"m\":{\"a\":1}}", &[set("m.a", Value::Boolean(true))], "{\"m\":{\"a\":true}}");
    let push = Edit::Push { path: path("l"), value: Value::String("us".into()), index: usize::MAX };
    check(Format::Json, "{\"l\": [\"a\"]}", &[push], "{\"l\": [\"a\", \"us\"]}");
    check(Format::Json, "{\"l\": [\"a\", 1]}", &[Edit::Pull { path: path("l"), index: 0 }], "{\"l\": [ 1]}");
}

#[test]
fn an_entry_comes_back_as_it_was_spelled() {
    let from = "{\n  \"m\": {\n    \"a\": {\n      // why\n      \"x\" : 1.50,\n    },\n    \"b\": 1\n  }\n}";
    let without = apply(Format::Json, from, &[remove("m.a")]).expect("plain");
    let back = |format, from| Edit::Restore { path: path("m.a"), from, format, index: 0 };
    check(Format::Json, &without, &[back(Format::Json, from)], from);
    let from = "# top\n[m.a] # why\nx = 1_000\n[m.a.env]\nK = 'v'\n[m.b]\ny = 1\n";
    let without = apply(Format::Toml, from, &[remove("m.a")]).expect("plain");
    let again = apply(Format::Toml, &without, &[back(Format::Toml, from)]).expect("plain");
    assert!(again.contains("[m.a] # why\nx = 1_000\n[m.a.env]\nK = 'v'\n"), "{again}");
    let from = "m:\n    a:\n        # why\n        x: [1, 'y']\n    b: 1\n";
    let without = apply(Format::Yaml, from, &[remove("m.a")]).expect("plain");
    check(Format::Yaml, &without, &[back(Format::Yaml, from)], from);
}

fn moved(from: &str, to: &str) -> Edit<'static> {
    Edit::Move { path: path(from), to: path(to) }
}

#[test]
fn a_moved_entry_keeps_its_text_and_its_comments() {
    let text = "{\n  \"m\": { // m\n    // all of m\n\n    // why a\n    /* really */\n    \"a\" : {\n      // inner\n      \"x\": 1.50,\n    }, // beside a\n    // b\n    \"b\": 2\n  },\n  \"n\": {\n    \"c\": 3 // c\n  }\n}\n";
    check(
        Format::Json,
        text,
        &[moved("m.a", "n")],
        "{\n  \"m\": { // m\n    // all of m\n\n    // b\n    \"b\": 2\n  },\n  \"n\": {\n    \"c\": 3, // c\n    // why a\n    /* really */\n    \"a\" : {\n      // inner\n      \"x\": 1.50,\n    } // beside a\n  }\n}\n",
    );
    // The first entry of a new object, and the last one of the old.
    check(
        Format::Json,
        "{\n  \"m\": {\n    \"a\": 1 // one\n  }\n}\n",
        &[moved("m.a", "n")],
        "{\n  \"m\": {},\n  \"n\": {\n    \"a\": 1 // one\n  }\n}\n",
    );
    // On one line.
    check(
        Format::Json,
        "{\"m\": {\"a\": 1, /* b */ \"b\": 2}, \"n\": {\"c\": 3}}",
        &[moved("m.a", "n")],
        "{\"m\": { /* b */ \"b\": 2}, \"n\": {\n    \"c\": 3,\n    \"a\": 1\n  }}",
    );
    // A trailing comma stays one.
    check(
        Format::Json,
        "{\n  \"m\": {\n    \"a\": 1,\n  },\n  \"n\": {\n    \"c\": 3,\n  },\n}\n",
        &[moved("m.a", "n")],
        "{\n  \"m\": {},\n  \"n\": {\n    \"c\": 3,\n    \"a\": 1,\n  },\n}\n",
    );
    for (text, to) in [("{\"m\": {\"a\": 1}, \"n\": {\"a\": 2}}", "n"), ("{\"m\": {\"b\": 1}}", "n")] {
        assert!(apply(Format::Json, text, &[moved("m.a", to)]).is_err(), "{text}");
    }
}

#[test]
fn keys_are_renamed_and_items_respelled_in_their_place() {
    let text = "{\n  \"m\" /* m */: {\"a\": 1},\n  \"l\": [{\"n\": [\"m\", \"z\"]}] // l\n}\n";
    let rename = |to: &str| Edit::Rename { path: path("m"), to: to.to_owned() };
    check(
        Format::Json,
        text,
        &[rename("ü \"x\""), set("l.0.n.0", Value::String("ü".into()))],
        "{\n  \"ü \\\"x\\\"\" /* m */: {\"a\": 1},\n  \"l\": [{\"n\": [\"ü\", \"z\"]}] // l\n}\n",
    );
    for edit in [rename("l"), set("l.1.n.0", Value::String("x".into())), set("l.0.n.2", Value::Null)] {
        assert!(apply(Format::Json, text, &[edit]).is_err());
    }
}

#[test]
fn a_key_of_one_item_is_set_and_removed() {
    for (text, expected) in [
        ("[[s]]\nn = 1 # one\n\n[[s]]\nn = 2\n", "[[s]]\nn = 1 # one\n\n[[s]]\nn = 2\noff = true\n"),
        ("s = [{ n = 1 }, { n = 2 }]\n", "s = [{ n = 1 }, { n = 2 , off = true }]\n"),
    ] {
        check(Format::Toml, text, &[set("s.1.off", Value::Boolean(true))], expected);
    }
    let text = "[[s]]\nn = 1\n\n[[s]]\nn = 2\noff = true # why\n";
    check(Format::Toml, text, &[remove("s.1.off")], "[[s]]\nn = 1\n\n[[s]]\nn = 2\n");
    assert!(apply(Format::Toml, text, &[set("s.2.off", Value::Boolean(true))]).is_err());
}

#[test]
fn toml() {
    check(
        Format::Toml,
        "# top\r\nmodel = \"m\" # x\r\n\r\n[mcp.a]\r\nx = 1\r\n\r\n[tui]\r\ny = 2026-01-01\r\n",
        &[set("mcp.us", us()), remove("mcp.a")],
        "# top\r\nmodel = \"m\" # x\r\n\r\n[mcp.us]\r\ncommand = \"/x\"\r\nargs = [\"-a\", \"b c\"]\r\n\r\n[tui]\r\ny = 2026-01-01\r\n",
    );
    let push = |namespace: &str| Edit::Push {
        path: path("servers"),
        value: Value::object([
            ("namespace", Value::String(namespace.into())),
            ("env", Value::object([("A", Value::String("${A}".into()))])),
        ]),
        index: usize::MAX,
    };
    check(
        Format::Toml,
        "a = 1\n",
        &[push("x"), push("y")],
        "a = 1\n\n[[servers]]\nnamespace = \"x\"\nenv = { A = \"${A}\" }\n\n[[servers]]\nnamespace = \"y\"\nenv = { A = \"${A}\" }\n",
    );
    check(Format::Toml, "# top", &[set("m.us", Value::object([]))], "# top\n\n[m.us]\n");
    let pull = |index| Edit::Pull { path: path("servers"), index };
    check(
        Format::Toml,
        "# top\n\n# mine\n[[servers]]\nn = 1\n\n# two\n[[servers]]\nn = 2\n",
        &[pull(0)],
        "# top\n\n# two\n[[servers]]\nn = 2\n",
    );
    check(Format::Toml, "# top\n\n[[servers]]\nn = 1\n", &[remove("servers")], "# top\n\n");
    // A table without a header of its own disappears with its last key.
    check(Format::Toml, "a = 1\n\n[m.n.us]\nx = 1\n\n[z]\n", &[remove("m.n.us")], "a = 1\n\n[z]\n");
    check(Format::Toml, "m.us.x = 1\nz = 1\n", &[remove("m.us")], "z = 1\n");
    check(Format::Toml, "[m]\n[m.us]\nx = 1\n", &[remove("m.us")], "[m]\n");
    let list = "servers = [ # list\n  { n = 1 }, # one\n  # two\n  { n = 2 }, # two too\n] # all\n";
    check(Format::Toml, list, &[pull(0)], "servers = [ # list\n  # two\n  { n = 2 }, # two too\n] # all\n");
    check(Format::Toml, list, &[pull(1)], "servers = [ # list\n  { n = 1 }, # one\n] # all\n");
    // Without a trailing comma, the text after the last item belongs to that item.
    let list = "servers = [ # list\n  { n = 1 }, # one\n  { n = 2 } # two\n  # end\n]\n";
    check(Format::Toml, list, &[pull(1)], "servers = [ # list\n  { n = 1 } # one\n  # end\n]\n");
    check(Format::Toml, "servers = [\n  1, # one\n  2]\n", &[pull(1)], "servers = [\n  1 # one\n]\n");
    check(Format::Toml, list, &[pull(0)], "servers = [ # list\n  { n = 2 } # two\n  # end\n]\n");
    let list = "servers = [\n  { n = 1 } # one\n  , { n = 2 } # two\n  # end\n]\n";
    check(Format::Toml, list, &[pull(1)], "servers = [\n  { n = 1 } # one\n  # end\n]\n");
    check(
        Format::Toml,
        "servers = [\n  { n = 1 } # one\n  # end\n]\n",
        &[pull(0)],
        "servers = [\n  # end\n]\n",
    );
    check(Format::Toml, "l = [1, 2, 3]\n", &[Edit::Pull { path: path("l"), index: 0 }], "l = [2, 3]\n");
    check(Format::Toml, "l = [1, 2, 3]\n", &[Edit::Pull { path: path("l"), index: 2 }], "l = [1, 2]\n");
    check(
        Format::Toml,
        "m = { a = 1 }\n",
        &[set("m.us", us())],
        "m = { a = 1 , us = { command = \"/x\", args = [\"-a\", \"b c\"] } }\n",
    );
}

#[test]
fn yaml() {
    let ours = "  us:\n    command: /x\n    args:\n    - \"-a\"\n    - \"b c\"\n";
    check(
        Format::Yaml,
        "# top\nm:\n  a:\n    x: 1   # one\n\n  b:\n    args:\n    - y\n    # end\n# after\nz: 'q'\n",
        &[set("m.us", us()), remove("m.a")],
        &format!("# top\nm:\n\n  b:\n    args:\n    - y\n{ours}    # end\n# after\nz: 'q'\n"),
    );
    check(Format::Yaml, "a: 1", &[set("m.us", us())], &format!("a: 1\nm:\n{ours}"));
    check(Format::Yaml, "", &[set("m.us", us())], &format!("m:\n{ours}"));
    check(Format::Yaml, "m: {} # none\n", &[set("m.us", us())], &format!("m: # none\n{ours}"));
    check(Format::Yaml, "m:\n  us: 1\n", &[remove("m.us")], "m: {}\n");
    check(Format::Yaml, "m:\n  a: |\n    x\n\n    y\n  b: 2\n", &[remove("m.a")], "m:\n  b: 2\n");
}

#[test]
fn what_cannot_be_kept_is_refused() {
    for (format, text) in [
        (Format::Yaml, "m: {a: 1}\n"),
        (Format::Yaml, "m: &x\n  a: 1\nn: *x\n"),
        (Format::Yaml, "m: !t\n  a: 1\n"),
        (Format::Yaml, "m: 1\n"),
        (Format::Yaml, "---\nm: {}\n---\nn: 1\n"),
        (Format::Json, "{\"m\": 1}"),
        (Format::Json, "[]"),
        (Format::Json, "{\"m\": {}, \"m\": {}}"),
        (Format::Json, "{\"m\": "),
        (Format::Toml, "m = 1\n"),
        (Format::Toml, "m = \n"),
    ] {
        assert!(apply(format, text, &[set("m.us", us())]).is_err(), "{text}");
    }
    let refusal = parse(Format::Yaml, "a: b\nc: [").expect_err("broken");
    assert!(refusal.to_string().starts_with("line 2, column 5: "), "{refusal}");
}

mod any {
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::Boolean),
            any::<i32>().prop_map(|number| Value::Number(number.to_string())),
            "\\PC{0,8}|[a-z:#'\"{}\\[\\]&*!|>%@,?\\\\ \n\t-]{0,8}".prop_map(Value::String),
        ];
        leaf.prop_recursive(2, 12, 4, |inner| {
            let keys = "[a-zA-Z_-]{1,6}|[ -~]{1,5}";
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
                prop::collection::btree_map(keys, inner, 0..4)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        /// An entry with any contents can be added to each format and removed again.
        #[test]
        fn entries(name in "[a-z]{1,6}|[ -~]{1,6}", value in values()) {
            let value = Value::object([("command", Value::String("x".into())), ("more", value)]);
            for (format, text) in [
                (Format::Json, "{\n  // c\n  \"m\": {\n    \"0\": {}\n  },\n  \"z\": 1\n}\n"),
                (Format::Toml, "# c\n[m.0]\nx = 1\n\n[z]\ny = 1\n"),
                (Format::Yaml, "# c\nm:\n  '0': {}\nz: 1\n"),
            ] {
                prop_assume!(name != "0");
                let path = vec!["m".to_owned(), name.clone()];
                let with = apply(format, text, &[Edit::Set { path: path.clone(), value: value.clone() }]);
                let with = with.map_err(|refusal| TestCaseError::fail(format!("{format:?}: {refusal}")))?;
                let without = apply(format, &with, &[Edit::Remove { path: path.clone() }]);
                let without = without.map_err(|refusal| TestCaseError::fail(format!("{format:?} {with}: {refusal}")))?;
                prop_assert_eq!(&without, text);
                let back = Edit::Restore { path, from: &with, format, index: 9 };
                let again = apply(format, &without, &[back]);
                let again = again.map_err(|refusal| TestCaseError::fail(format!("{format:?} {with}: {refusal}")))?;
                prop_assert_eq!(again, with);
            }
        }
    }
}
