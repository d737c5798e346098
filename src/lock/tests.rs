//! The lock as a whole: files that are read, written and renewed.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::json::quote;

const FILE: &str = r#"{
  "lockVersion": 1,
  "toolboxes": {
    "dev": {
      "filesystem": {
        "tools": {
          "read_file": {
            "name": "read_file",
            "description": "Read a file\u200b",
            "inputSchema": {
              "type": "object",
              "required": [
                "path",
                1.50
              ],
              "properties": {},
              "enum": []
            }
          }
        },
        "prompts": {
          "ask": {
            "name": "ask"
          }
        }
      }
    }
  }
}
"#;

fn offered(tools: &[(&str, &str)], prompts: &[(&str, &str)]) -> Offered {
    let all = |list: &[(&str, &str)]| {
        list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    };
    Offered { definitions: [all(tools), all(prompts)], is_partial: false }
}

/// The servers of a file after everything that is offered was approved.
fn renewed(before: &Servers, offered: &[(LockPlace, Offered)]) -> Renewal {
    let offered: BTreeMap<_, _> = offered.iter().cloned().collect();
    let configured: BTreeSet<_> = offered.keys().cloned().collect();
    renew(before, &offered, &configured, &|_, _| true, &|_| false)
}

const SENT: &str = "{\"name\":\"read_file\",\"description\":\"Read a file\u{200b}\",\"inputSchema\":\
    {\"type\":\"object\",\"required\":[\"path\",1.50],\"properties\":{},\"enum\":[]}}";

#[test]
fn a_file_is_written_for_a_reviewer() {
    let place = LockPlace::new("dev", "filesystem");
    let offer = offered(&[("read_file", SENT)], &[("ask", r#"{"name":"ask"}"#)]);
    let renewal = renewed(&Servers::new(), &[(place.clone(), offer.clone())]);
    let text = write(Form::Toolboxes, &renewal.servers);
    assert_eq!(text, FILE);
    let lock = Lock::read(Form::Toolboxes, "x.lock", &text).expect("we read what we write");
    let again = renewed(lock.servers(), &[(place, offer)]);
    assert_eq!((again.changes, write(Form::Toolboxes, &again.servers)), (vec![], text));
    let mut servers = lock.servers().clone();
    servers.extend(["empty", "zero"].map(|server| (LockPlace::new("dev", server), Default::default())));
    assert_eq!(write(Form::Toolboxes, &servers), FILE, "a server without tools and prompts is left out");
    let empty = write(Form::Namespaces, &Servers::new());
    assert_eq!(empty, "{\n  \"lockVersion\": 1,\n  \"namespaces\": {}\n}\n");
    let nobody = LockPlace::new("", "");
    let tools = offered(&[("b", r#"{"name":"b"}"#), ("a", r#"{"name":"a"}"#)], &[]);
    let other = (LockPlace::new("é", ""), offered(&[("c", r#"{"name":"c"}"#)], &[]));
    let text = write(Form::Namespaces, &renewed(&Servers::new(), &[other, (nobody, tools)]).servers);
    let order: Vec<_> =
        ["\"\": {", "\"a\": {", "\"b\": {", "\"é\": {", "\"c\": {"].map(|key| text.find(key)).into();
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{text}");
    assert!(Lock::read(Form::Namespaces, "x.lock", &text).is_ok());
}

#[test]
fn what_is_unchanged_as_a_value_keeps_its_bytes() {
    let odd = FILE
        .replace("\"description\": \"Read", "\"description\" :\t\"\\u0052ead")
        .replace("1.50\n", "1.50 \n");
    assert_ne!(odd, FILE);
    let lock = Lock::read(Form::Toolboxes, "x.lock", &odd).expect("edited by hand");
    let offer =
        offered(&[("read_file", SENT), ("new", r#"{"name":"new"}"#)], &[("ask", "{ \"name\":\"ask\"}")]);
    let renewal = renewed(lock.servers(), &[(LockPlace::new("dev", "filesystem"), offer)]);
    assert_eq!(renewal.changes.len(), 1);
    let text = write(Form::Toolboxes, &renewal.servers);
    assert!(text.contains("\"description\" :\t\"\\u0052ead") && text.contains("1.50 \n"), "{text}");
    assert!(text.contains("\"new\": {\n            \"name\": \"new\"\n          },"), "{text}");
}

#[test]
fn a_definition_is_compared_as_a_value() {
    let lock = Lock::read(Form::Toolboxes, "x.lock", FILE).expect("valid");
    let guard = lock.guard("dev", "filesystem", true);
    let with = |old: &str, new: &str| SENT.replace(old, new);
    for (sent, expected) in [
        (SENT.to_owned(), "Equal"),
        (with("\u{200b}", "\\u200B"), "Equal"),
        (with("\"name\":\"read_file\",", "").replace("[]}}", "[]},\"name\":\"read_file\"}"), "Equal"),
        (with("Read a", "Write a"), "Texts"),
        (with("\"properties\":{}", "\"properties\":{},\"title\":\"x\""), "Texts"),
        (with("1.50", "1.5"), "Other"),
        (with("{}", "{\"x\":{}}"), "Other"),
        (with("\"enum\":[]", "\"enum\":[],\"enum\":[]"), "Unfit"),
    ] {
        let verdict = guard.compare(LockedKind::Tool, "read_file", &sent);
        let verdict = match verdict {
            Verdict::Texts(text) => {
                assert!(text.contains("Read a file"), "the approved one: {text}");
                "Texts"
            }
            Verdict::Equal => "Equal",
            Verdict::Other => "Other",
            Verdict::New => "New",
            Verdict::Unfit => "Unfit",
        };
        assert_eq!(verdict, expected, "{sent}");
    }
    assert_eq!(guard.compare(LockedKind::Prompt, "read_file", SENT), Verdict::New);
    assert_eq!(lock.guard("dev", "other", true).compare(LockedKind::Tool, "read_file", SENT), Verdict::New);
    assert_eq!(guard.compare(LockedKind::Tool, "x", "{\"a\":1,\"a\":1}"), Verdict::Unfit);
    let reason = "it is withheld, since its definition is not the one approved in x.lock; a person can approve it with \
        `mcp-workbench lock`";
    assert_eq!(guard.reason(), reason);
}

#[test]
fn a_broken_file_is_refused_where_it_is_broken() {
    let cases = [
        ("", "", "the file is empty"),
        ("{\"lockVersion\": 1,", "", "this is not valid JSON"),
        ("[]", "[", "the file must be an object"),
        ("{}", "", "the file has no `lockVersion`"),
        ("{\"lockVersion\": 1}", "", "the file has no `toolboxes`"),
        (
            "{\"lockVersion\": 2, \"x\": 1}",
            "2",
            "this is version 2 of the format; this program knows version 1",
        ),
        (
            "{\"lockVersion\": \"1\"}",
            "\"1\"",
            "this is version \"1\" of the format; this program knows version 1",
        ),
        (
            "{\"lockVersion\": 1, \"namespaces\": {}}",
            "\"namespaces\"",
            "this is a lock file of toolman: it has `namespaces`, not `toolboxes`",
        ),
        ("{\"lockVersion\": 1, \"toolboxes\": {}, \"more\": 1}", "\"more\"", "a lock file has no key `more`"),
        ("{\"lockVersion\": 1, \"toolboxes\": 7}", "7", "`toolboxes` must be an object"),
        ("{\"lockVersion\": 1, \"toolboxes\": {\"dev\": []}}", "[", "the toolbox `dev` must be an object"),
        ("{\"lockVersion\": 1, \"toolboxes\": {\"dev\": {\"a\": 1}}}", "1", "`a` must be an object"),
        (
            "{\"lockVersion\": 1, \"toolboxes\": {\"dev\": {\"a\": {\"resources\": {}}}}}",
            "\"resources\"",
            "a server has no key `resources`",
        ),
        (
            "{\"lockVersion\": 1, \"toolboxes\": {\"dev\": {\"a\": {\"tools\": {\"t\": {\"name\": \"u\"}}}}}}",
            "\"t\"",
            "the definition of `t` has another `name`, or none",
        ),
        (
            "{\"lockVersion\": 1, \"toolboxes\": {\"dev\": {}, \"d\\u0065v\": {}}}",
            "\"d\\u0065v\"",
            "duplicate key `dev`",
        ),
        (
            "{\"lockVersion\": 1, \"toolboxes\": {\"dev\": {\"a\": {\"tools\": {\"t\": {\"name\": \"t\", \"x\": [{\"y\": 1, \"y\": 2}]}}}}}}",
            "\"y\"",
            "duplicate key `y`",
        ),
        (
            "{\"lockVersion\": 1,\n<<<<<<< HEAD\n\"toolboxes\": {}\n=======\n\"toolboxes\": {}\n>>>>>>> other\n}",
            "<<<<<<<",
            "this mark is left over from a merge with conflicts",
        ),
    ];
    for (text, place, message) in cases {
        let fault = Lock::read(Form::Toolboxes, "x.lock", text).expect_err(text);
        assert_eq!((&text[fault.span.clone()], fault.message.as_str()), (place, message), "{text}");
        assert!(fault.hint.contains("mcp-workbench lock"), "{}", fault.hint);
    }
    for version in ["10", "1.0", "0"] {
        let text = format!("{{\"lockVersion\": {version}, \"toolboxes\": {{}}}}");
        let fault = Lock::read(Form::Toolboxes, "x.lock", &text).expect_err(&text);
        assert_eq!(&text[fault.span], version);
    }
    for mark in ["<<<<<<< HEAD", "||||||| base", "=======", ">>>>>>> other"] {
        let text = format!("{{\"lockVersion\": 1,\n{mark}\n\"toolboxes\": {{}}}}");
        let fault = Lock::read(Form::Toolboxes, "x.lock", &text).expect_err(mark);
        assert_eq!(fault.message, "this mark is left over from a merge with conflicts", "{mark}");
    }
    let text = cases[15].0;
    let second = text.rfind("\"y\"");
    assert_eq!(
        Lock::read(Form::Toolboxes, "x.lock", text).expect_err(text).span.start,
        second.expect("there")
    );
    let fault = Lock::read(Form::Namespaces, "x.lock", FILE).expect_err("the other face's");
    assert_eq!(fault.message, "this is a lock file of mcp-workbench: it has `toolboxes`, not `namespaces`");
}

#[test]
fn a_renewal_follows_the_servers_that_were_asked() {
    let tool = |name: &str, text: &str| (name.to_owned(), format!("{{\"name\":\"{name}\",{text}}}"));
    let offer = |tools: &[(String, String)]| Offered {
        definitions: [tools.iter().cloned().collect(), BTreeMap::new()],
        is_partial: false,
    };
    let place = |server: &str| LockPlace::new("dev", server);
    let first =
        [("asked", "\"x\":1"), ("failed", "\"x\":1"), ("disabled", "\"x\":1"), ("removed", "\"x\":1")]
            .map(|(server, text)| (place(server), offer(&[tool("t", text), tool("u", text)])));
    let before = renewed(&Servers::new(), &first).servers;
    let now = [(
        place("asked"),
        offer(&[
            tool("t", "\"x\":2"),
            tool("v", "\"description\":\"a\u{200b}\\n\\ud800\""),
            tool("w", "\"s\":\"hidden\""),
        ]),
    )];
    let now: BTreeMap<_, _> = now.into();
    let configured = ["asked", "failed", "disabled"].map(place).into();
    let is_secret = |text: &str| text.contains("hidden");
    let renewal = renew(&before, &now, &configured, &|_, _| true, &is_secret);
    let told: Vec<_> =
        renewal.changes.iter().map(|one| (one.place.server.as_str(), one.name.as_str(), one.what)).collect();
    let expected = [
        ("asked", "t", HowChanged::Other),
        ("asked", "u", HowChanged::Gone),
        ("asked", "v", HowChanged::New),
        ("asked", "w", HowChanged::New),
        ("removed", "t", HowChanged::Gone),
        ("removed", "u", HowChanged::Gone),
    ];
    assert_eq!(told, expected);
    assert_eq!(renewal.changes[0].differences[0].path, "x");
    assert_eq!(renewal.changes[2].characters, BTreeSet::from([0x200b, 0xd800]));
    assert_eq!(renewal.changes[3].added, None, "secrets are not shown");
    assert_eq!(renewal.refused.len(), 1);
    assert_eq!((renewal.refused[0].name.as_str(), &renewal.refused[0].why), ("w", &Unwritable::Secret));
    let tools = |server: &str| -> Vec<String> {
        renewal
            .servers
            .get(&place(server))
            .map(|one| one.of(LockedKind::Tool).keys().cloned().collect())
            .unwrap_or_default()
    };
    assert_eq!(
        ["asked", "failed", "disabled", "removed"].map(tools),
        [vec!["t", "v"], vec!["t", "u"], vec!["t", "u"], vec![]]
    );
    // Only what is wanted is compared and written.
    let renewal = renew(&before, &now, &configured, &|_, name| name == "v", &is_secret);
    assert_eq!(renewal.changes.len(), 1);
    let asked = renewal.servers[&place("asked")].of(LockedKind::Tool).keys().cloned().collect::<Vec<_>>();
    assert_eq!(asked, ["t", "u", "v"]);
    // Servers that share a namespace with one that could not be asked may still have what is missing.
    let partial =
        now.into_iter().map(|(place, offer)| (place, Offered { is_partial: true, ..offer })).collect();
    let renewal = renew(&before, &partial, &configured, &|place, _| place.server == "asked", &is_secret);
    assert!(renewal.changes.iter().all(|one| one.what != HowChanged::Gone));
    // A definition that cannot be approved leaves the approved one as it is.
    let twice = [(place("asked"), offer(&[tool("t", "\"x\":1,\"x\":1"), tool("u", "\"x\":1")]))].into();
    let renewal = renew(&before, &twice, &configured, &|place, _| place.server == "asked", &is_secret);
    assert_eq!((renewal.changes.len(), renewal.changes[0].what), (1, HowChanged::Other));
    assert_eq!(renewal.refused[0].why, Unwritable::Twice("x".to_owned()));
    assert_eq!(renewal.servers, before);
}

/// Any JSON value, as text, whose objects have no key twice.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
        ".{0,8}".prop_map(|text| quote(&text)),
        Just(r#""\ud800x""#.to_owned()),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let key = prop_oneof![Just("description".to_owned()), Just("title".to_owned()), ".{0,4}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::btree_map(key, inner, 0..5).prop_map(|members| {
                let member = |(key, value): (String, String)| format!("{}: {value}", quote(&key));
                format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(" ,"))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_it_was(group in ".{0,6}", name in ".{1,6}", rest in json()) {
        let sent = format!("{{\"name\":{},\"inputSchema\":{rest}}}", quote(&name));
        let place = LockPlace::new(&group, "s");
        let offer = offered(&[(&name, &sent)], &[]);
        let renewal = renewed(&Servers::new(), &[(place.clone(), offer.clone())]);
        let text = write(Form::Toolboxes, &renewal.servers);
        prop_assert!(text.lines().all(|line| line.chars().all(|c| !literal::is_hidden(c))), "{}", text);
        let lock = Lock::read(Form::Toolboxes, "x.lock", &text).expect("we read what we write");
        prop_assert_eq!(lock.guard(&group, "s", true).compare(LockedKind::Tool, &name, &sent), Verdict::Equal);
        let written = &lock.servers()[&place].of(LockedKind::Tool)[&*name];
        prop_assert!(value::are_alike(&written.text, &sent), "{}", written.text);
        let again = renewed(lock.servers(), &[(place, offer)]);
        prop_assert!(again.changes.is_empty());
        prop_assert_eq!(write(Form::Toolboxes, &again.servers), text);
    }

    #[test]
    fn comparing_is_symmetric(one in json(), other in json()) {
        let [first, second] = [&one, &other].map(|text| JsonValue::read(text).expect("no key stands twice"));
        prop_assert_eq!(first == second, second == first);
        prop_assert!(!value::are_alike(&one, &other) || first == second);
        prop_assert_eq!(first == second, difference::differences(&first, &second).is_empty());
        prop_assert_eq!(
            difference::only_texts(&first, &second),
            difference::only_texts(&second, &first)
        );
        prop_assert_eq!(&JsonValue::read(&one).expect("as above"), &first);
    }
}
