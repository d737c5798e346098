//! Makes definitions conform to MCP's own schema, because strict clients refuse a whole list over one odd
//! item.
//!
//! [`read_page`](super::read_page) passes every tool, resource, template and prompt to [`mend`] once, when it
//! reads an upstream's list. Everything that shows definitions later shows what was kept then.
//!
//! Invariant: a conforming definition is not copied, and members that MCP does not know stay as they are.
//!
//! Invariant: a mended definition conforms, so mending it again changes nothing.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::Kind;
use super::json_schema;
use crate::json::{Node, Scanner, quote};
use crate::protocol::era::Era;

/// The key in `_meta` under which a mended definition lists its mended members.
pub const MENDED: &str = "mcp-workbench/mended";

/// The outcome for a definition.
#[derive(Debug, PartialEq, Eq)]
pub enum Conformance {
    /// The definition conforms.
    Fits,
    /// The definition is shown in this form; these members were mended.
    Mended(String, Vec<String>),
    /// The definition has no name or URI, so nobody could refer to it.
    Withheld,
}

/// Decides how to show a definition from a server of this era, which may have escaped characters if `escapes` says so.
/// The modern schema is laxer about tool outputs; `core` hides those from legacy clients.
pub fn mend(kind: Kind, era: Era, escapes: bool, definition: Node<'_>) -> Conformance {
    let (needed, members) = match kind {
        Kind::Tool if era == Era::Modern => (&["name"][..], MODERN_TOOL),
        Kind::Tool => (&["name"][..], TOOL),
        Kind::Resource => (&["uri", "name"][..], RESOURCE),
        Kind::Template => (&["uriTemplate", "name"][..], TEMPLATE),
        Kind::Prompt => (&["name"][..], PROMPT),
    };
    let mut paired = Scanner::default();
    let text = if escapes { with_whole_characters(definition.raw()) } else { definition.raw().into() };
    let node = match &text {
        Cow::Borrowed(_) => definition,
        Cow::Owned(text) => paired.scan_str(text).expect("only escapes were replaced").root(),
    };
    let key = definition.get(kind.key()).and_then(Node::as_str);
    if key.is_none_or(|key| key.is_empty())
        || !needed.iter().all(|name| node.get(name).is_some_and(Node::is_string))
    {
        return Conformance::Withheld;
    }
    let mut mended: Vec<String> = match &text {
        Cow::Borrowed(_) => Vec::new(),
        Cow::Owned(_) => {
            let both = node.members().zip(definition.members());
            let differs = both.filter(|((_, now), (_, came))| now.raw() != came.raw());
            differs.map(|((name, _), _)| name.into_owned()).collect()
        }
    };
    let mut changes = odd_members(node, members, None, &mut mended);
    if kind == Kind::Tool && node.get("inputSchema").is_none() {
        mended.push("inputSchema".to_owned());
        changes.push(("inputSchema", Some(ANY_OBJECT.to_owned())));
    }
    if mended.is_empty() {
        return Conformance::Fits;
    }
    let list: Vec<_> = mended.iter().map(|member| quote(member)).collect();
    let list = format!("[{}]", list.join(","));
    let meta = match node.get("_meta").filter(|meta| meta.is_object()) {
        Some(meta) => written(meta, &[(MENDED, Some(list))]),
        None => format!("{{{}:{list}}}", quote(MENDED)),
    };
    changes.retain(|(name, _)| *name != "_meta");
    changes.push(("_meta", Some(meta)));
    Conformance::Mended(written(node, &changes), mended)
}

/// Whether a text has escaped characters, of which some may be halves of one.
pub fn may_have_escapes(text: &str) -> bool {
    static ESCAPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\\u"));
    ESCAPE.find(text.as_bytes()).is_some()
}

/// What MCP's schema requires of a member.
enum Shape {
    /// A string.
    Text,
    /// A boolean.
    Flag,
    /// A whole number.
    Whole,
    /// A number from 0 to 1.
    Share,
    /// A date and time with its offset.
    Moment,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An object with any members.
    Free,
    /// An object with these members; `needs_first` makes the first one required.
    Record { needs_first: bool, members: MemberShapes },
    /// A list of such values. Invalid ones are left out.
    List(&'static Shape),
    /// A tool's input schema.
    Input,
    /// A tool's output schema, which must describe an object.
    Output,
    /// A tool's output schema, which may describe any type.
    AnyOutput,
}

use Shape::{AnyOutput, Flag, Free, Input, List, Moment, Output, Record, Share, Text, Whole, Word};

type MemberShapes = &'static [(&'static str, Shape)];

const fn tool(output: Shape) -> [(&'static str, Shape); 8] {
    [
        ("title", Text),
        ("description", Text),
        ("inputSchema", Input),
        ("outputSchema", output),
        ("annotations", Record { needs_first: false, members: HINTS }),
        ("execution", Record { needs_first: false, members: EXECUTION }),
        ("icons", List(ICON)),
        ("_meta", Free),
    ]
}
const TOOL: MemberShapes = &tool(Output);
const MODERN_TOOL: MemberShapes = &tool(AnyOutput);
const RESOURCE: MemberShapes = &[
    ("title", Text),
    ("description", Text),
    ("mimeType", Text),
    ("size", Whole),
    ("annotations", Record { needs_first: false, members: ANNOTATIONS }),
    ("icons", List(ICON)),
    ("_meta", Free),
];
const TEMPLATE: MemberShapes = &[
    ("title", Text),
    ("description", Text),
    ("mimeType", Text),
    ("annotations", Record { needs_first: false, members: ANNOTATIONS }),
    ("icons", List(ICON)),
    ("_meta", Free),
];
const PROMPT: MemberShapes = &[
    ("title", Text),
    ("description", Text),
    ("arguments", List(ARGUMENT)),
    ("icons", List(ICON)),
    ("_meta", Free),
];
const HINTS: MemberShapes = &[
    ("title", Text),
    ("readOnlyHint", Flag),
    ("destructiveHint", Flag),
    ("idempotentHint", Flag),
    ("openWorldHint", Flag),
];
const EXECUTION: MemberShapes = &[("taskSupport", Word(&["forbidden", "optional", "required"]))];
const ANNOTATIONS: MemberShapes =
    &[("audience", List(&Word(&["user", "assistant"]))), ("priority", Share), ("lastModified", Moment)];
const ICON: &Shape = &Record {
    needs_first: true,
    members: &[
        ("src", Text),
        ("mimeType", Text),
        ("sizes", List(&Text)),
        ("theme", Word(&["light", "dark"])),
    ],
};
const ARGUMENT: &Shape = &Record {
    needs_first: true,
    members: &[("name", Text), ("title", Text), ("description", Text), ("required", Flag)],
};

/// The schema for a tool that does not say what it takes.
const ANY_OBJECT: &str = "{\"type\":\"object\"}";

/// The members to replace or to remove, by name.
type Changes = Vec<(&'static str, Option<String>)>;

/// The outcome for a value.
enum Mending {
    Stays,
    Becomes(String),
    Goes,
}

/// The path to a member, linked from the inside out.
#[derive(Clone, Copy)]
struct MemberPath<'w> {
    above: Option<&'w MemberPath<'w>>,
    step: MemberStep<'w>,
}

#[derive(Clone, Copy)]
enum MemberStep<'w> {
    Member(&'w str),
    Element(usize),
}

impl fmt::Display for MemberPath<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(out)?;
        }
        match self.step {
            MemberStep::Member(name) if self.above.is_none() => out.write_str(name),
            MemberStep::Member(name) => write!(out, ".{name}"),
            MemberStep::Element(at) => write!(out, "[{at}]"),
        }
    }
}

/// The changes that the members of an object need. Records the names of those members.
fn odd_members(
    node: Node<'_>,
    members: MemberShapes,
    above: Option<&MemberPath<'_>>,
    mended: &mut Vec<String>,
) -> Changes {
    let mut changes = Changes::new();
    for (key, value) in node.members() {
        let Some((name, shape)) = members.iter().find(|(name, _)| *name == key) else { continue };
        match mending(shape, value, &MemberPath { above, step: MemberStep::Member(name) }, mended) {
            Mending::Stays => {}
            Mending::Becomes(text) => changes.push((name, Some(text))),
            Mending::Goes => changes.push((name, None)),
        }
    }
    changes
}

/// The outcome for a value that should have this shape. Records what was wrong.
fn mending(shape: &Shape, value: Node<'_>, path: &MemberPath<'_>, mended: &mut Vec<String>) -> Mending {
    let noted = mended.len();
    let mending = match shape {
        Text if value.is_string() => Mending::Stays,
        Flag if matches!(value.raw(), "true" | "false") => Mending::Stays,
        Whole if is_whole(value.raw()) => Mending::Stays,
        Share if value.raw().parse::<f64>().is_ok_and(|share| (0.0..=1.0).contains(&share)) => Mending::Stays,
        Moment if value.as_str().is_some_and(|text| is_moment(text.as_bytes())) => Mending::Stays,
        Word(words) if value.as_str().is_some_and(|text| words.contains(&&*text)) => Mending::Stays,
        Free if value.is_object() => Mending::Stays,
        Record { needs_first, members } if value.is_object() => {
            let changes = odd_members(value, members, Some(path), mended);
            let first = members[0].0;
            if *needs_first && (value.get(first).is_none() || changes.iter().any(|(name, _)| *name == first))
            {
                mended.truncate(noted);
                Mending::Goes
            } else if changes.is_empty() {
                Mending::Stays
            } else {
                Mending::Becomes(written(value, &changes))
            }
        }
        List(of) if value.is_array() => odd_elements(value, of, path, mended),
        Input => match value.is_object() {
            true => odd_schema(value, path, mended),
            false => Mending::Becomes(ANY_OBJECT.to_owned()),
        },
        Output if is_object_schema(value) && json_schema::compiles(value.raw()) => {
            odd_schema(value, path, mended)
        }
        AnyOutput if is_object_schema(value) => return self::mending(&Output, value, path, mended),
        AnyOutput if value.is_object() && json_schema::compiles(value.raw()) => Mending::Stays,
        _ => Mending::Goes,
    };
    if !matches!(mending, Mending::Stays) && mended.len() == noted {
        mended.push(path.to_string());
    }
    mending
}

/// The outcome for a list, of which only the invalid elements are mended or removed.
fn odd_elements(list: Node<'_>, of: &Shape, path: &MemberPath<'_>, mended: &mut Vec<String>) -> Mending {
    let (noted, mut kept, mut at) = (mended.len(), Vec::new(), 0);
    Scanner::default().each_element(list, |element| {
        match mending(of, element, &MemberPath { above: Some(path), step: MemberStep::Element(at) }, mended) {
            Mending::Stays => kept.push(element.raw().to_owned()),
            Mending::Becomes(text) => kept.push(text),
            Mending::Goes => {}
        }
        at += 1;
    });
    match mended.len() == noted {
        true => Mending::Stays,
        false => Mending::Becomes(format!("[{}]", kept.join(","))),
    }
}

/// The outcome for an object that should be an object's schema. Its valid parts are kept.
fn odd_schema(schema: Node<'_>, path: &MemberPath<'_>, mended: &mut Vec<String>) -> Mending {
    let mut changes = Changes::new();
    for (key, value) in schema.members() {
        let (name, fits) = match &*key {
            "$schema" => ("$schema", value.is_string()),
            "properties" => ("properties", value.is_object()),
            "required" => ("required", is_list_of_texts(value)),
            _ => continue,
        };
        if !fits {
            mended.push(MemberPath { above: Some(path), step: MemberStep::Member(name) }.to_string());
            changes.push((name, None));
        }
    }
    if !is_object_schema(schema) {
        mended.push(MemberPath { above: Some(path), step: MemberStep::Member("type") }.to_string());
        changes.push(("type", Some("\"object\"".to_owned())));
    }
    if let Some(properties) = schema.get("properties").filter(|node| node.is_object())
        && properties.members().any(|(_, property)| !property.is_object())
    {
        let path = MemberPath { above: Some(path), step: MemberStep::Member("properties") };
        changes.push(("properties", Some(with_object_schemas(properties, &path, mended))));
    }
    match changes.is_empty() {
        true => Mending::Stays,
        false => Mending::Becomes(written(schema, &changes)),
    }
}

/// The properties, each with an object as its schema: `true` becomes `{}`, and `false` becomes `{"not": {}}`.
fn with_object_schemas(properties: Node<'_>, path: &MemberPath<'_>, mended: &mut Vec<String>) -> String {
    let members: Vec<_> = properties
        .members()
        .map(|(name, property)| {
            if !property.is_object() {
                mended.push(MemberPath { above: Some(path), step: MemberStep::Member(&name) }.to_string());
            }
            let schema = match property.raw() {
                "false" => "{\"not\":{}}",
                raw if property.is_object() => raw,
                _ => "{}",
            };
            format!("{}:{schema}", quote(&name))
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn written(node: Node<'_>, changes: &[(&'static str, Option<String>)]) -> String {
    let changes: Vec<_> = changes.iter().map(|(name, text)| (*name, text.as_deref())).collect();
    let mut out = Vec::new();
    node.write_with(&mut out, &changes);
    String::from_utf8(out).expect("written from UTF-8 texts")
}

fn is_object_schema(value: Node<'_>) -> bool {
    let mut types = value.members().filter(|(key, _)| key == "type").peekable();
    types.peek().is_some() && types.all(|(_, value)| value.raw() == "\"object\"")
}

/// Whether a number has neither a fraction nor an exponent, however long it is.
fn is_whole(raw: &str) -> bool {
    raw.strip_prefix('-').unwrap_or(raw).bytes().all(|byte| byte.is_ascii_digit())
}

fn is_list_of_texts(value: Node<'_>) -> bool {
    let mut all = value.is_array();
    if all {
        Scanner::default().each_element(value, |element| all &= element.is_string());
    }
    all
}

/// Whether a text is a date and time with an offset, as RFC 3339 and the clients that check it define them.
fn is_moment(text: &[u8]) -> bool {
    let number = |at: usize, digits: usize, most: u32| -> Option<u32> {
        let digits = text.get(at..at + digits)?;
        let all = digits.iter().all(u8::is_ascii_digit);
        let number = digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit.wrapping_sub(b'0')));
        Some(number).filter(|number| all && *number <= most)
    };
    let is = |at: usize, byte: u8| text.get(at) == Some(&byte);
    let date = || {
        let (year, month, day) = (number(0, 4, 9999)?, number(5, 2, 12)?, number(8, 2, 31)?);
        let leap = year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
        let last = match month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        (month > 0 && (1..=last).contains(&day)).then_some(())
    };
    let time = || number(11, 2, 23).and(number(14, 2, 59)).and(number(17, 2, 59));
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !marks.iter().all(|(at, byte)| is(*at, *byte)) || date().is_none() || time().is_none() {
        return false;
    }
    let mut at = 19;
    if is(at, b'.') {
        let digits = text[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        at += 1 + digits;
        if digits == 0 {
            return false;
        }
    }
    match text.get(at) {
        Some(b'Z') => at + 1 == text.len(),
        Some(b'+' | b'-') => {
            is(at + 3, b':')
                && number(at + 1, 2, 23).and(number(at + 4, 2, 59)).is_some()
                && at + 6 == text.len()
        }
        _ => false,
    }
}

/// Replaces every lone surrogate by `\ufffd`. A server that cuts an emoji in two sends one, and some clients
/// refuse the message.
fn with_whole_characters(raw: &str) -> Cow<'_, str> {
    let half = |at: usize| -> Option<u32> {
        let digits = raw.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(digits, 16).ok().filter(|unit| (0xd800..=0xdfff).contains(unit))
    };
    let (mut whole, mut kept, mut at) = (String::new(), 0, 0);
    while let Some(next) = memchr::memchr(b'\\', &raw.as_bytes()[at..]) {
        at += next;
        at += match (half(at), half(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(_), _) => {
                whole.push_str(&raw[kept..at]);
                whole.push_str("\\ufffd");
                kept = at + 6;
                6
            }
            (None, _) => 2,
        };
    }
    match kept {
        0 => Cow::Borrowed(raw),
        _ => Cow::Owned(whole + &raw[kept..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn mended(kind: Kind, text: &str) -> Conformance {
        mend(
            kind,
            Era::Legacy,
            may_have_escapes(text),
            Scanner::default().scan_str(text).expect("JSON").root(),
        )
    }

    #[test]
    fn modern_servers_may_answer_with_anything() {
        let tool = |schema: &str| {
            format!(r#"{{"name":"a","inputSchema":{{"type":"object"}},"outputSchema":{schema}}}"#)
        };
        for (schema, fits) in [
            (r#"{"type":"array"}"#, true),
            (r#"{}"#, true),
            (r#"{"type":"object"}"#, true),
            (r#"{"type":"object","required":7}"#, false),
            (r#"{"type":"arr"}"#, false),
            (r#"[]"#, false),
        ] {
            let text = tool(schema);
            let verdict =
                mend(Kind::Tool, Era::Modern, true, Scanner::default().scan_str(&text).expect("JSON").root());
            assert_eq!(verdict == Conformance::Fits, fits, "{schema}: {verdict:?}");
        }
    }

    fn kind(name: &str) -> Kind {
        let named = |kind: &Kind| kind.list_key().strip_suffix('s') == Some(name);
        Kind::ALL.into_iter().find(named).expect("a kind")
    }

    /// One odd definition from the table that the tests with the official SDKs use as well.
    #[derive(serde::Deserialize)]
    struct Odd {
        kind: String,
        /// The raw definition, since it may hold a lone surrogate.
        item: Box<serde_json::value::RawValue>,
        mended: Vec<String>,
        /// The mended definition; `null` if it is withheld.
        shown: Value,
    }

    #[test]
    fn forty_odd_definitions() {
        let table: Vec<Odd> = serde_json::from_str(include_str!("../../tests/sdks/odd.json")).expect("JSON");
        assert_eq!(table.len(), 40);
        for odd in table {
            let text = odd.item.get();
            let (shown, members) = match mended(kind(&odd.kind), text) {
                Conformance::Fits => panic!("{text} was taken as it is"),
                Conformance::Withheld => (Value::Null, Vec::new()),
                Conformance::Mended(shown, members) => {
                    assert_eq!(mended(kind(&odd.kind), &shown), Conformance::Fits, "{shown}");
                    (serde_json::from_str(&shown).expect("JSON"), members)
                }
            };
            let mut expected = odd.shown.clone();
            if let Some(expected) = expected.as_object_mut() {
                let meta = expected.entry("_meta").or_insert(serde_json::json!({}));
                meta[MENDED] = odd.mended.clone().into();
            }
            assert_eq!((members, shown), (odd.mended, expected), "{text}");
        }
    }

    #[test]
    fn what_fits_stays() {
        for (kind, text) in [
            (Kind::Tool, r#"{"name":"a","inputSchema":{"type":"object"}}"#),
            (
                Kind::Tool,
                r##"{ "new":null,"name":"a","title":"\ud83d\ude00 \\ud800","inputSchema":{"type":"object","properties":{"p":{"type":7}},"x":null},
                  "outputSchema":{"type":"object","properties":{"p":{"$ref":"#/$defs/q"}},"$defs":{"q":{}}},
                  "annotations":{"readOnlyHint":true,"new":[]},"execution":{"taskSupport":"optional"},
                  "icons":[{"src":"data:,","sizes":["any"],"theme":"dark","new":1.10}],"_meta":{"k":null}}"##,
            ),
            (
                Kind::Resource,
                r#"{"uri":"a://b","name":"","size":12,"annotations":{"audience":["user"],"priority":0.5,"lastModified":"2024-02-29T23:59:59.123+02:00"}}"#,
            ),
            (Kind::Template, r#"{"uriTemplate":"a://{b}","name":"n","mimeType":"text/plain"}"#),
            (Kind::Prompt, r#"{"name":"p","arguments":[{"name":"a","required":false}]}"#),
        ] {
            assert_eq!(mended(kind, text), Conformance::Fits, "{text}");
        }
    }

    #[test]
    fn moments() {
        for (text, expected) in [
            ("2025-01-12T15:00:58Z", true),
            ("2025-01-12T15:00:58.000000+14:00", true),
            ("2025-01-12", false),
            ("2025-01-12T15:00:58", false),
            ("2025-01-12T15:00Z", false),
            ("2025-01-12T15:00:58.Z", false),
            ("2025-01-12T15:00:58z", false),
            ("2025-01-12T15:00:58+0200", false),
            ("2025-01-12T15:00:58Z ", false),
            ("2025-02-29T15:00:58Z", false),
            ("2000-02-29T15:00:58Z", true),
            ("1900-02-29T15:00:58Z", false),
            ("2025-00-12T15:00:58Z", false),
            ("2025-04-31T15:00:58Z", false),
            ("2025-01-12T24:00:00Z", false),
            ("", false),
        ] {
            assert_eq!(is_moment(text.as_bytes()), expected, "{text}");
        }
    }

    /// Any JSON value, valid in its place or not.
    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i8>().prop_map(Value::from),
            "[a-z{}\"\\\\é😀]{0,6}".prop_map(Value::from),
            Just(Value::from("object")),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            let names = TOOL.iter().chain(RESOURCE).chain(PROMPT).chain(HINTS).chain(ANNOTATIONS);
            let names = names.map(|(name, _)| *name).chain([
                "name",
                "uri",
                "uriTemplate",
                "type",
                "properties",
                "required",
                "src",
                "$ref",
                "other",
            ]);
            let names: Vec<&str> = names.collect();
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(prop::sample::select(names).prop_map(str::to_owned), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_was_mended_fits_and_keeps_what_is_not_ours(mut item in any_value(), kind in prop::sample::select(&Kind::ALL[..])) {
            if let Some(item) = item.as_object_mut() {
                for name in ["name", "uri", "uriTemplate"] {
                    item.insert(name.to_owned(), "n".into());
                }
            }
            match mended(kind, &item.to_string()) {
                Conformance::Withheld => prop_assert!(!item.is_object()),
                Conformance::Fits => {}
                Conformance::Mended(text, members) => {
                    prop_assert!(!members.is_empty());
                    prop_assert_eq!(mended(kind, &text), Conformance::Fits, "{}", text);
                    let shown: Value = serde_json::from_str(&text).expect("JSON");
                    prop_assert_eq!(shown.get("other"), item.get("other"));
                    prop_assert_eq!(shown["name"].as_str(), Some("n"));
                }
            }
        }
    }
}
