//! Places in a JSON text: its values with their spelling, and where a normalized path leads.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json_path::JsonPath;

use crate::json::string_end;

/// How often a path may go down to all descendants: each time, what it finds is multiplied by the depth of the value.
const MOST_DESCENTS: usize = 2;

/// A value, one level deep.
pub(super) enum Value<'a> {
    /// Its members in order: decoded key and raw value.
    Object(Members<'a>),
    /// Its elements in order, raw.
    Array(Elements<'a>),
    /// What its type is called.
    Scalar(&'static str),
}

/// The outermost value; `None` where the text is not JSON that a path can be looked for in.
pub(super) fn root(text: &str) -> Option<Value<'_>> {
    serde_json::from_str::<Readable>(text).is_ok().then(|| value(text))
}

/// JSON that [`find`] can read, read the same way and forgotten at once. The reader is stricter than the grammar: it
/// refuses lone surrogates, numbers that no double can hold, and values that are nested too deeply.
struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        text.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Readable {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self, A::Error> {
        while elements.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        while members.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

/// A value that is known to be valid JSON.
pub(super) fn value(raw: &str) -> Value<'_> {
    let raw = raw.trim_ascii_start();
    match raw.as_bytes()[0] {
        b'{' => Value::Object(Members(Elements { rest: &raw[1..] })),
        b'[' => Value::Array(Elements { rest: &raw[1..] }),
        b'"' => Value::Scalar("string"),
        b't' | b'f' => Value::Scalar("boolean"),
        b'n' => Value::Scalar("null"),
        _ => Value::Scalar("number"),
    }
}

/// The values behind an opening bracket, one after the other, with what stands between them skipped.
pub(super) struct Elements<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let between = |byte: u8| byte.is_ascii_whitespace() || byte == b',' || byte == b':';
        let start = self.rest.bytes().position(|byte| !between(byte))?;
        let rest = &self.rest[start..];
        if rest.starts_with([']', '}']) {
            self.rest = "";
            return None;
        }
        let (raw, rest) = rest.split_at(end_of_value(rest.as_bytes()));
        self.rest = rest;
        Some(raw)
    }
}

/// The members behind an opening brace.
pub(super) struct Members<'a>(Elements<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.0.next()?;
        Some((decode(key), self.0.next()?))
    }
}

/// The length of the valid value at the beginning of a text.
fn end_of_value(text: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match text[at] {
            b'"' => {
                at = string_end(text, at);
            }
            b'{' | b'[' => {
                depth += 1;
                at += 1;
                continue;
            }
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            _ => {
                let ends = |byte: &u8| byte.is_ascii_whitespace() || b",:]}".contains(byte);
                at += text[at..].iter().position(ends).unwrap_or(text.len() - at);
            }
        }
        if depth == 0 {
            return at;
        }
    }
}

fn decode(key: &str) -> Cow<'_, str> {
    let plain = &key[1..key.len() - 1];
    match plain.contains('\\') {
        true => serde_json::from_str(key).map_or(Cow::Borrowed(plain), Cow::Owned),
        false => Cow::Borrowed(plain),
    }
}

/// A key as a step of a path: `.name` where that is allowed, else `['any name']`.
pub(super) fn step(key: &str) -> String {
    let starts = |first: char| first.is_ascii_alphabetic() || first == '_' || !first.is_ascii();
    let goes_on = |other: char| starts(other) || other.is_ascii_digit();
    match key.starts_with(starts) && key.chars().all(goes_on) {
        true => format!(".{key}"),
        false => {
            let quoted = serde_json::to_string(key).expect("a string is always JSON");
            let inner = quoted[1..quoted.len() - 1].replace("\\\"", "\"").replace('\'', "\\'");
            format!("['{inner}']")
        }
    }
}

/// A value that a path leads to: its normalized path and where it stands in the text.
#[derive(Debug, PartialEq)]
pub(super) struct Match {
    pub(super) path: String,
    pub(super) span: Range<usize>,
}

/// All values that a path leads to, in the order of the text; the error is in the parser's words.
pub(super) fn find(text: &str, path: &str) -> Result<Vec<Match>, String> {
    let parsed = JsonPath::parse(path).map_err(|error| format!("path: {error}"))?;
    if descents(path) > MOST_DESCENTS {
        return Err(format!("path may have `..` at most {MOST_DESCENTS} times"));
    }
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("path needs a result that is JSON: {error}"))?;
    let mut wanted = Wanted::default();
    for located in parsed.query_located(&value).locations() {
        wanted.insert(
            &located.to_string(),
            located.iter().map(|element| match element {
                serde_json_path::PathElement::Name(name) => PathStep::Name((*name).to_owned()),
                serde_json_path::PathElement::Index(index) => PathStep::Index(*index),
            }),
        );
    }
    let mut found = Vec::new();
    wanted.locate(text, text, &mut found);
    found.sort_by_key(|found| (found.span.start, std::cmp::Reverse(found.span.end)));
    Ok(found)
}

/// How often a valid path goes down to all descendants. Dots in what is quoted do not count: names may be paths of files.
fn descents(path: &str) -> usize {
    let (mut outside, mut quote, mut characters) = (String::new(), None, path.chars());
    while let Some(character) = characters.next() {
        match quote {
            Some(_) if character == '\\' => drop(characters.next()),
            Some(open) => quote = Some(open).filter(|open| *open != character),
            None if matches!(character, '\'' | '"') => quote = Some(character),
            None => outside.push(character),
        }
    }
    outside.matches("..").count()
}

/// The places that are looked for, by the way to them.
#[derive(Default)]
struct Wanted {
    path: Option<String>,
    below: HashMap<PathStep, Wanted>,
}

#[derive(PartialEq, Eq, Hash)]
enum PathStep {
    Name(String),
    Index(usize),
}

impl Wanted {
    fn insert(&mut self, path: &str, steps: impl Iterator<Item = PathStep>) {
        let mut place = self;
        for step in steps {
            place = place.below.entry(step).or_default();
        }
        place.path = Some(path.to_owned());
    }

    /// Notes where the wanted places below a value stand. Of keys that stand twice the last counts, as for the query.
    fn locate(&self, text: &str, raw: &str, found: &mut Vec<Match>) {
        let raw = raw.trim_ascii();
        if let Some(path) = &self.path {
            let start = raw.as_ptr() as usize - text.as_ptr() as usize;
            found.push(Match { path: path.clone(), span: start..start + raw.len() });
        }
        if self.below.is_empty() {
            return;
        }
        match value(raw) {
            Value::Object(members) => {
                let members: HashMap<_, _> = members.collect();
                for (step, below) in &self.below {
                    if let PathStep::Name(name) = step
                        && let Some(member) = members.get(name.as_str())
                    {
                        below.locate(text, member, found);
                    }
                }
            }
            Value::Array(elements) => {
                for (index, element) in elements.enumerate() {
                    if let Some(below) = self.below.get(&PathStep::Index(index)) {
                        below.locate(text, element, found);
                    }
                }
            }
            Value::Scalar(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_spelling() {
        let text = r#" {"a" : [1.10, {"b":1e2}, "x\u0041", 18446744073709551616], "a b": {"b": null}} "#;
        let found = |path: &str| -> Vec<String> {
            find(text, path)
                .unwrap()
                .iter()
                .map(|found| format!("{}: {}", found.path, &text[found.span.clone()]))
                .collect()
        };
        assert_eq!(found("$.a[0]"), ["$['a'][0]: 1.10"]);
        assert_eq!(found("$..b"), ["$['a'][1]['b']: 1e2", "$['a b']['b']: null"]);
        assert_eq!(found("$.a[2:]"), ["$['a'][2]: \"x\\u0041\"", "$['a'][3]: 18446744073709551616"]);
        assert_eq!(
            found("$['a b','a'][0,'b']"),
            ["$['a'][0]: 1.10", "$['a b']['b']: null"],
            "as in the text"
        );
        assert_eq!(found("$.none"), [""; 0]);
        assert_eq!(found("$.a[?@.b > 99]"), ["$['a'][1]: {\"b\":1e2}"]);
        assert_eq!(found("$['a b']"), ["$['a b']: {\"b\": null}"]);
        assert_eq!(found("$.a[?length(@) == 2]"), ["$['a'][2]: \"x\\u0041\""]);
        // These would compile their expression anew for each value.
        for path in ["$.a[?match(@, 'x.')]", "$.a[?search(@, 'x')]", "$.["] {
            assert!(find(text, path).unwrap_err().starts_with("path: "), "{path}");
        }
        assert_eq!(find(text, "$..*..*..*"), Err("path may have `..` at most 2 times".to_owned()));
        assert!(find("no JSON", "$").unwrap_err().starts_with("path needs a result that is JSON"));
    }

    #[test]
    fn only_real_descents_count() {
        for (path, count) in [
            ("$..a..b", 2),
            ("$['../../../a']..['b\\'..']", 1),
            (r#"$["..'..\"..\\"]..a"#, 1),
            ("$..[?@.a == '....']..*..b", 3),
        ] {
            assert!(JsonPath::parse(path).is_ok(), "{path}");
            assert_eq!(descents(path), count, "{path}");
        }
    }
}
