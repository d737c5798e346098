//! The arguments of a call: turns words into JSON of the types that the tool's schema names.

use std::collections::HashMap;
use std::io::Read;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::catalog::nearest;
use crate::cli::failure::Failure;
use crate::json::quote;

/// The arguments from the command line, before the schema is known.
#[derive(Debug)]
pub(super) enum Given {
    /// A JSON object as it was written.
    Whole(String),
    /// Keys with their values. Values from files have been read.
    Words(Vec<(String, ArgumentWord)>),
}

/// One value as it was written.
#[derive(Debug)]
pub(super) struct ArgumentWord {
    text: String,
    /// Whether the value came from a file. A file's text is used as it is; for other types the surrounding
    /// white space is ignored.
    file: bool,
}

/// The largest number of references that are followed in a row.
const MOST_REFERENCES: usize = 16;

/// The deepest nesting of arguments that contain a number too large for serde_json.
const MOST_NESTED: usize = 128;

impl Given {
    /// Reads the words after the name, or the value of `--args`; `-` means all of stdin.
    pub(super) fn read(words: &[String], args: Option<&str>, stdin: &mut dyn Read) -> Result<Self, Failure> {
        let whole = match (args, words) {
            (Some(args), _) => Some(args.to_owned()),
            (None, [word]) if word == "-" => {
                let mut text = String::new();
                stdin.read_to_string(&mut text).map_err(|error| {
                    malformed(format!("stdin cannot be read: {error}"), "give a JSON object in UTF-8")
                })?;
                Some(text)
            }
            _ => None,
        };
        if let Some(text) = whole {
            return match parsed(&text) {
                Ok(Value::Object(_)) => Ok(Self::Whole(text)),
                Ok(_) => Err(malformed("the arguments are not a JSON object", "write {\"key\": value}")),
                Err(error) => Err(malformed(
                    format!("the arguments are not valid JSON: {error}"),
                    "write {\"key\": value}",
                )),
            };
        }
        let mut read: Vec<(String, ArgumentWord)> = Vec::new();
        for word in words {
            let Some((key, value)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) else {
                return Err(malformed(
                    format!("`{word}` is not an argument"),
                    "write key=value, or --args with a JSON object",
                ));
            };
            if read.iter().any(|(known, _)| known == key) {
                return Err(malformed(
                    format!("`{key}` is given twice"),
                    "give a list as JSON: key='[1, 2]'",
                ));
            }
            let value = match value.strip_prefix('@') {
                Some(text) if text.starts_with('@') => ArgumentWord { text: text.to_owned(), file: false },
                Some(path) => {
                    let text = std::fs::read_to_string(path).map_err(|error| {
                        malformed(
                            format!("{key}: cannot read {path}: {error}"),
                            "a text that begins with @ is written @@…",
                        )
                    })?;
                    ArgumentWord { text, file: true }
                }
                None => ArgumentWord { text: value.to_owned(), file: false },
            };
            read.push((key.to_owned(), value));
        }
        Ok(Self::Words(read))
    }

    /// The arguments as a JSON object with the types of the schema.
    pub(super) fn typed(&self, schema: &Value) -> Result<String, Failure> {
        let text = match self {
            Self::Whole(text) => text.trim().to_owned(),
            Self::Words(words) => {
                let mut tree = Tree::Object(Vec::new());
                for (key, word) in words {
                    let (path, at) = place(key, schema)?;
                    let raw = word.typed(at, schema).map_err(|wanted| misfit(key, &wanted))?;
                    tree.set(&path, raw).map_err(|part| {
                        malformed(format!("`{part}` is given as a whole and in parts"), "give it in one way")
                    })?;
                }
                tree.text()
            }
        };
        let value = parsed(&text).map_err(|error| malformed(error.to_string(), ""))?;
        fits(&value, schema, schema, "", 0)?;
        Ok(text)
    }
}

fn malformed(message: impl Into<String>, hint: &str) -> Failure {
    Failure::usage(message, hint)
}

fn misfit(key: &str, wanted: &str) -> Failure {
    Failure::usage(format!("`{key}` must be {wanted}"), "the `show` verb prints the tool's schema")
}

/// The value of a JSON text, for its types only. Numbers of any size are accepted; the tool gets them as they
/// are written.
fn parsed(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|error| match serde_json::from_str(text) {
        Ok(raw) => with_any_numbers(raw, MOST_NESTED),
        Err(_) => Err(error),
    })
}

fn with_any_numbers(raw: &RawValue, depth: usize) -> serde_json::Result<Value> {
    let text = raw.get();
    let Some(depth) = depth.checked_sub(1) else { return serde_json::from_str(text) };
    Ok(match text.as_bytes() {
        [b'{', ..] => {
            let members: HashMap<String, &RawValue> = serde_json::from_str(text)?;
            let member = |(key, raw)| Ok((key, with_any_numbers(raw, depth)?));
            Value::Object(members.into_iter().map(member).collect::<serde_json::Result<_>>()?)
        }
        [b'[', ..] => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            Value::Array(items.into_iter().map(|raw| with_any_numbers(raw, depth)).collect::<Result<_, _>>()?)
        }
        [b'-' | b'0'..=b'9', ..] => serde_json::from_str(text).unwrap_or_else(|_| f64::MAX.into()),
        _ => serde_json::from_str(text)?,
    })
}

/// The path that a key stands for, and the schema at that path. A property whose own name contains dots takes
/// precedence.
fn place<'a>(key: &str, root: &'a Value) -> Result<(Vec<String>, Option<&'a Value>), Failure> {
    let mut path = Vec::new();
    let mut rest = key;
    let mut schema = Some(root);
    loop {
        let here = schema.map(|schema| resolved(schema, root));
        let properties = here.and_then(|here| here.get("properties")).and_then(Value::as_object);
        if let Some(own) = properties.and_then(|properties| properties.get(rest)) {
            path.push(rest.to_owned());
            return Ok((path, Some(own)));
        }
        let (first, more) = match rest.split_once('.') {
            Some((first, more)) if !first.is_empty() && !more.is_empty() => (first, Some(more)),
            _ => (rest, None),
        };
        let own = properties.and_then(|properties| properties.get(first));
        if own.is_none()
            && here.and_then(|here| here.get("additionalProperties")) == Some(&Value::Bool(false))
        {
            let names = properties.into_iter().flat_map(|properties| properties.keys().map(String::as_str));
            let near = nearest(first, names.clone(), 1);
            let hint = match near.first() {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it takes {}", names.collect::<Vec<_>>().join(", ")),
            };
            return Err(malformed(format!("the tool has no argument `{key}`"), &hint));
        }
        path.push(first.to_owned());
        match more {
            None => return Ok((path, own)),
            Some(more) => (rest, schema) = (more, own),
        }
    }
}

/// Follows references within the schema.
fn resolved<'a>(mut schema: &'a Value, root: &'a Value) -> &'a Value {
    for _ in 0..MOST_REFERENCES {
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
        match target.and_then(|pointer| root.pointer(pointer)) {
            Some(next) => schema = next,
            None => break,
        }
    }
    schema
}

/// The types that a schema allows; an empty list means any.
fn types(schema: &Value, root: &Value, depth: usize) -> Vec<String> {
    let schema = resolved(schema, root);
    match schema.get("type") {
        Some(Value::String(one)) => return vec![one.clone()],
        Some(Value::Array(several)) => {
            return several.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        }
        _ => {}
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(parts) = schema.get(key).and_then(Value::as_array).filter(|_| depth < MOST_REFERENCES) {
            let parts: Vec<_> = parts.iter().map(|part| types(part, root, depth + 1)).collect();
            return if parts.iter().any(Vec::is_empty) { Vec::new() } else { parts.concat() };
        }
    }
    let values =
        schema.get("enum").and_then(Value::as_array).into_iter().flatten().chain(schema.get("const"));
    values.map(|value| kind(value).to_owned()).collect()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_of(value: &Value, wanted: &str) -> bool {
    match (kind(value), wanted) {
        (own, wanted) if own == wanted => true,
        ("integer", "number") => true,
        // For JSON Schema, 1.0 is an integer.
        ("number", "integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => false,
    }
}

impl ArgumentWord {
    /// The value as raw JSON. The error names the expected types.
    fn typed(&self, schema: Option<&Value>, root: &Value) -> Result<String, String> {
        let wanted = schema.map(|schema| types(schema, root, 0)).unwrap_or_default();
        let trimmed = self.text.trim();
        let parsed = parsed(trimmed).ok().filter(|value| !value.is_string());
        if let Some(value) = parsed
            && (wanted.iter().any(|wanted| is_of(&value, wanted)) || (wanted.is_empty() && !self.file))
        {
            return Ok(trimmed.to_owned());
        }
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == "string") {
            return Ok(quote(&self.text));
        }
        Err(named(&wanted))
    }
}

/// The types in words.
fn named(wanted: &[String]) -> String {
    let word = |wanted: &String| match wanted.as_str() {
        "integer" => "a whole number".to_owned(),
        "number" => "a number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" => "a JSON array".to_owned(),
        "object" => "a JSON object".to_owned(),
        "string" => "a text".to_owned(),
        other => other.to_owned(),
    };
    wanted.iter().map(word).collect::<Vec<_>>().join(" or ")
}

/// Checks that the value and everything in it have the types that the schema names.
fn fits(value: &Value, schema: &Value, root: &Value, path: &str, depth: usize) -> Result<(), Failure> {
    let schema = resolved(schema, root);
    let wanted = types(schema, root, 0);
    if !wanted.is_empty() && !wanted.iter().any(|wanted| is_of(value, wanted)) {
        let path = if path.is_empty() { "the arguments" } else { path };
        return Err(misfit(path, &named(&wanted)));
    }
    if depth >= MOST_REFERENCES {
        return Ok(());
    }
    match value {
        Value::Object(members) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (key, member) in members {
                if let Some(own) = properties.and_then(|properties| properties.get(key)) {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    fits(member, own, root, &path, depth + 1)?;
                }
            }
        }
        Value::Array(elements) => {
            if let Some(own) = schema.get("items").filter(|items| items.is_object()) {
                for (n, element) in elements.iter().enumerate() {
                    fits(element, own, root, &format!("{path}[{n}]"), depth + 1)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// A JSON value under construction, with its leaves as they were written.
enum Tree {
    Leaf(String),
    Object(Vec<(String, Tree)>),
}

impl Tree {
    fn set(&mut self, path: &[String], raw: String) -> Result<(), String> {
        let Self::Object(members) = self else { return Err(path.join(".")) };
        let (first, rest) = path.split_first().expect("a key has a part");
        match (members.iter_mut().find(|(key, _)| key == first), rest) {
            (Some(_), []) => Err(first.clone()),
            (Some((_, member)), rest) => member.set(rest, raw).map_err(|_| first.clone()),
            (None, []) => {
                members.push((first.clone(), Self::Leaf(raw)));
                Ok(())
            }
            (None, rest) => {
                let mut member = Self::Object(Vec::new());
                let set = member.set(rest, raw);
                members.push((first.clone(), member));
                set
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Leaf(raw) => raw.clone(),
            Self::Object(members) => {
                let members: Vec<_> =
                    members.iter().map(|(key, member)| format!("{}:{}", quote(key), member.text())).collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_are_typed_by_the_schema() {
        let schema = json!({
            "type": "object",
            "properties": {
                "s": {"type": "string"}, "n": {"type": "number"}, "i": {"type": "integer"}, "b": {"type": "boolean"},
                "l": {"type": "array", "items": {"type": "integer"}}, "u": {"type": ["string", "null"]},
                "o": {"type": "object", "properties": {"i": {"type": "integer"}, "s": {"type": "string"}}},
                "r": {"$ref": "#/$defs/int"}, "x.y": {"type": "integer"}, "any": {},
                "e": {"enum": [1, "two"]}, "a": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
            },
            "$defs": {"int": {"type": "integer"}},
            "additionalProperties": false,
        });
        let cases: [(&[&str], Result<&str, &str>); 29] = [
            (&[], Ok("{}")),
            (&["s=1"], Ok(r#"{"s":"1"}"#)),
            (&["s=a=b"], Ok(r#"{"s":"a=b"}"#)),
            (&["s=@@x"], Ok(r#"{"s":"@x"}"#)),
            (&["s="], Ok(r#"{"s":""}"#)),
            (&["n=12345678901234567890.10"], Ok(r#"{"n":12345678901234567890.10}"#)),
            (&["n=1e400"], Ok(r#"{"n":1e400}"#)),
            (&["any=[-1e400, \"a\", {}]", "n=1"], Ok(r#"{"any":[-1e400, "a", {}],"n":1}"#)),
            (&["b=1e400"], Err("`b` must be true or false")),
            (&["n=x"], Err("`n` must be a number")),
            (&["i=7", "b=true"], Ok(r#"{"i":7,"b":true}"#)),
            (&["i=1.5"], Err("`i` must be a whole number")),
            (&["b=yes"], Err("`b` must be true or false")),
            (&["l=[1, 2]"], Ok(r#"{"l":[1, 2]}"#)),
            (&["l=[1, \"x\"]"], Err("`l[1]` must be a whole number")),
            (&["l=1"], Err("`l` must be a JSON array")),
            (&["u=null"], Ok(r#"{"u":null}"#)),
            (&["u=x"], Ok(r#"{"u":"x"}"#)),
            (&["o.i=1", "o.s=2"], Ok(r#"{"o":{"i":1,"s":"2"}}"#)),
            (&["o={\"i\":1}"], Ok(r#"{"o":{"i":1}}"#)),
            (&["o.i=1", "o={}"], Err("`o` is given as a whole and in parts")),
            (&["s.x=1"], Err("`s` must be a text")),
            (&["r=1", "x.y=2"], Ok(r#"{"r":1,"x.y":2}"#)),
            (&["any=true", "e=1", "a=2"], Ok(r#"{"any":true,"e":1,"a":2}"#)),
            (&["any=hello", "e=two"], Ok(r#"{"any":"hello","e":"two"}"#)),
            (&["a=x"], Err("`a` must be a whole number or true or false")),
            (&["nn=1"], Err("the tool has no argument `nn`")),
            (&["s"], Err("`s` is not an argument")),
            (&["s=1", "s=2"], Err("`s` is given twice")),
        ];
        for (words, expected) in cases {
            let owned: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let typed = Given::read(&owned, None, &mut &b""[..]).and_then(|given| given.typed(&schema));
            let typed = typed.map_err(|failure| failure.message);
            assert_eq!(typed.as_deref().map_err(String::as_str), expected, "{words:?}");
        }
        for (args, expected) in [
            ("{\"i\": 1}", Ok("{\"i\": 1}")),
            ("{\"i\": \"1\"}", Err("`i` must be a whole number")),
            ("[]", Err("the arguments are not a JSON object")),
        ] {
            let typed = Given::read(&["-".to_owned()], None, &mut args.as_bytes())
                .and_then(|given| given.typed(&schema));
            let typed = typed.map_err(|failure| failure.message);
            assert_eq!(typed.as_deref().map_err(String::as_str), expected, "{args}");
        }
    }
}
