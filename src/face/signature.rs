//! A tool's parameters on one line: `(path: string, head?: integer, mode?: "text"|"binary")`. A model can
//! call most tools from that line alone, and it is a fraction of the schema's size.
//!
//! The brief form of an opening ([`brief`](super::brief)) shows it.
//!
//! Invariant: the work is bounded, whatever a server declares: by [`MOST_STEPS`], since references may
//! multiply what they refer to, and by [`DEEPEST`].

use crate::json::{Node, Scanner, quote};
use crate::text::percent::decode_strictly;

/// How many levels of nested objects are spelled out; deeper ones are written as `object`.
const LEVELS: usize = 3;
/// How many levels of nested schemas, of whatever kind, are looked at.
const DEEPEST: usize = 32;
/// How many schemas are looked at in all.
const MOST_STEPS: usize = 2_000;

/// The signature of a tool with this `inputSchema`.
pub(super) fn signature(schema: &str) -> String {
    let mut writer = Writer { root: schema, steps: 0, following: Vec::new() };
    format!("({})", writer.properties(schema, Depth { objects: 0, schemas: 0 }).unwrap_or_default())
}

struct Writer<'s> {
    root: &'s str,
    /// How many schemas were looked at so far.
    steps: usize,
    /// The references being followed now.
    following: Vec<String>,
}

/// How deeply a schema is nested.
#[derive(Clone, Copy)]
struct Depth {
    /// The number of spelled-out objects around it.
    objects: usize,
    /// The number of schemas around it.
    schemas: usize,
}

impl Writer<'_> {
    /// The properties of an object's schema; `None` if it has none.
    fn properties(&mut self, schema: &str, depth: Depth) -> Option<String> {
        let mut scanner = Scanner::default();
        let node = scanner.scan_str(schema).ok()?.root();
        let required: Vec<String> =
            node.get("required").and_then(|list| serde_json::from_str(list.raw()).ok()).unwrap_or_default();
        let properties = node.get("properties").filter(|node| node.is_object())?;
        let parameters: Vec<_> = properties
            .members()
            .map(|(name, property)| {
                let mark = if required.iter().any(|required| *required == name) { "" } else { "?" };
                let types = self.types(property.raw(), Depth { schemas: depth.schemas + 1, ..depth });
                let name = if is_word(&name) { name.into_owned() } else { quote(&name) };
                format!("{name}{mark}: {}", types.join("|"))
            })
            .collect();
        (!parameters.is_empty()).then(|| parameters.join(", "))
    }

    /// The types of a value, each listed once.
    fn types(&mut self, schema: &str, depth: Depth) -> Vec<String> {
        let mut types = Vec::new();
        for one in self.every_type(schema, depth) {
            if !types.contains(&one) {
                types.push(one);
            }
        }
        types
    }

    fn every_type(&mut self, schema: &str, depth: Depth) -> Vec<String> {
        self.steps += 1;
        let any = || vec!["any".to_owned()];
        if self.steps > MOST_STEPS || depth.schemas > DEEPEST {
            return any();
        }
        let mut scanner = Scanner::default();
        let Ok(doc) = scanner.scan_str(schema) else { return any() };
        let node = doc.root();
        if let Some(reference) = node.get("$ref") {
            return self.referred(reference, depth);
        }
        if let Some(constant) = node.get("const") {
            return vec![constant.raw().to_owned()];
        }
        if let Some(values) = node.get("enum").filter(|values| values.is_array()) {
            return elements(values);
        }
        if let Some(name) = node.get("type") {
            let names = if name.is_array() { elements(name) } else { vec![name.raw().to_owned()] };
            return names.iter().map(|name| self.named(name, node, depth)).collect();
        }
        let alternatives =
            ["anyOf", "oneOf"].into_iter().find_map(|key| node.get(key).filter(|list| list.is_array()));
        if let Some(alternatives) = alternatives {
            let below = Depth { schemas: depth.schemas + 1, ..depth };
            return elements(alternatives).iter().flat_map(|schema| self.types(schema, below)).collect();
        }
        match (node.get("properties"), node.get("items")) {
            (Some(_), _) => vec![self.named("\"object\"", node, depth)],
            (None, Some(_)) => vec![self.named("\"array\"", node, depth)],
            (None, None) => any(),
        }
    }

    /// A type by its name, given as JSON, with the details that the schema adds.
    fn named(&mut self, name: &str, node: Node<'_>, depth: Depth) -> String {
        let below = Depth { schemas: depth.schemas + 1, ..depth };
        match name {
            "\"array\"" => {
                let items = node.get("items").filter(|items| items.is_object());
                let types = items.map_or(vec!["any".to_owned()], |items| self.types(items.raw(), below));
                match &*types {
                    [one] => format!("{one}[]"),
                    several => format!("({})[]", several.join("|")),
                }
            }
            "\"object\"" if depth.objects < LEVELS => {
                let inside = Depth { objects: depth.objects + 1, ..below };
                let members = self.properties(node.raw(), inside);
                members.map_or("object".to_owned(), |members| format!("{{{members}}}"))
            }
            "\"object\"" | "\"string\"" | "\"number\"" | "\"integer\"" | "\"boolean\"" | "\"null\"" => {
                name.trim_matches('"').to_owned()
            }
            _ => "any".to_owned(),
        }
    }

    /// The types of the schema that a reference points to.
    fn referred(&mut self, reference: Node<'_>, depth: Depth) -> Vec<String> {
        let any = vec!["any".to_owned()];
        let Some(reference) = reference.as_str() else { return any };
        let target = reference.strip_prefix("#/").and_then(|pointer| part(self.root, pointer));
        let Some(target) = target.filter(|_| !self.following.iter().any(|other| *other == reference)) else {
            return any;
        };
        self.following.push(reference.into_owned());
        let types = self.types(&target, Depth { schemas: depth.schemas + 1, ..depth });
        self.following.pop();
        types
    }
}

/// The part of a schema that a JSON pointer, without its leading `/`, names.
fn part(schema: &str, pointer: &str) -> Option<String> {
    let mut scanner = Scanner::default();
    let mut found = schema.to_owned();
    for step in pointer.split('/') {
        let step = decode_strictly(step)?.replace("~1", "/").replace("~0", "~");
        found = scanner.scan_str(&found).ok()?.root().get(&step)?.raw().to_owned();
    }
    Some(found)
}

/// The elements of a list, as JSON without line breaks.
fn elements(list: Node<'_>) -> Vec<String> {
    let mut found = Vec::new();
    Scanner::default().each_element(list, |element| {
        let mut text = Vec::new();
        element.write(&mut text);
        found.push(String::from_utf8(text).expect("a part of a text"));
    });
    found
}

fn is_word(name: &str) -> bool {
    let starts = name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn signatures() {
        for (schema, expected) in [
            (r#"{"type":"object"}"#, "()"),
            (r#"{"type":"object","properties":{}}"#, "()"),
            (
                r#"{"type":"object","properties":{"path":{"type":"string"},"head":{"type":"integer"},"mode":{"enum":["text","binary"]}},"required":["path"]}"#,
                r#"(path: string, head?: integer, mode?: "text"|"binary")"#,
            ),
            (r#"{"properties":{"b":{"type":"boolean"},"a":{"type":"number"}}}"#, "(b?: boolean, a?: number)"),
            (
                r#"{"properties":{"a":{"const":7},"b":{"const":"x"},"c":{"enum":[1,null,"\"|"]}}}"#,
                r#"(a?: 7, b?: "x", c?: 1|null|"\"|")"#,
            ),
            (r#"{"properties":{"a":{"type":["string","null"]}}}"#, "(a?: string|null)"),
            (
                r#"{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}},{"type":"string"}]}}}"#,
                "(a?: string|string[])",
            ),
            (
                r#"{"properties":{"a":{"oneOf":[{"type":"null"},{"oneOf":[{"const":1},{"const":2}]}]}}}"#,
                "(a?: null|1|2)",
            ),
            (
                r#"{"properties":{"a":{"type":"array","items":{"enum":["a","b"]}},"b":{"type":"array"},"c":{"items":{}},"d":{"type":["array","null"],"items":{"type":"array","items":{"type":"integer"}}}}}"#,
                r#"(a?: ("a"|"b")[], b?: any[], c?: any[], d?: integer[][]|null)"#,
            ),
            (
                r#"{"properties":{"at":{"type":"object","properties":{"lat":{"type":"number"},"lon":{"type":"number"}},"required":["lat"]},"o":{"type":"object"},"p":{"type":"object","properties":{}}}}"#,
                "(at?: {lat: number, lon?: number}, o?: object, p?: object)",
            ),
            (
                r#"{"properties":{"a":{"properties":{"b":{"properties":{"c":{"properties":{"d":{"properties":{"e":{}}}}}}}}}}}"#,
                "(a?: {b?: {c?: {d?: object}}})",
            ),
            (
                r##"{"properties":{"a":{"$ref":"#/$defs/x~1y","description":"d"},"b":{"type":"array","items":{"$ref":"#/definitions/n%20m"}}},
                  "$defs":{"x/y":{"type":"string"}},"definitions":{"n m":{"properties":{"v":{"type":"null"}}}}}"##,
                "(a?: string, b?: {v?: null}[])",
            ),
            (
                r##"{"properties":{"tree":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object","properties":{"left":{"$ref":"#/$defs/node"}}}}}"##,
                "(tree?: {left?: any})",
            ),
            (
                r##"{"properties":{"a":{"$ref":"https://example.org/x"},"b":{"$ref":"#/none"},"c":{"$ref":7},"d":{},"e":{"allOf":[]},"f":{"type":"strng"},"g":true,"h":{"not":{}}}}"##,
                "(a?: any, b?: any, c?: any, d?: any, e?: any, f?: any, g?: any, h?: any)",
            ),
            (
                r#"{"properties":{"file-path":{"type":"string"},"":{},"1st":{},"größe":{},"a b\"":{}}}"#,
                r#"("file-path"?: string, ""?: any, "1st"?: any, größe?: any, "a b\""?: any)"#,
            ),
            (r#"{"properties":{"a":{"type":"string"}},"required":"a"}"#, "(a?: string)"),
            (r#"{"properties":[]}"#, "()"),
        ] {
            assert_eq!(signature(schema), expected, "{schema}");
        }
    }

    #[test]
    fn what_a_server_declares_costs_no_more_than_so_much() {
        let doubled = |n: usize| {
            let next = format!("{{\"$ref\":\"#/$defs/d{}\"}}", n + 1);
            format!("\"d{n}\":{{\"anyOf\":[{next},{next},{{\"type\":\"array\",\"items\":{next}}}]}}")
        };
        let defs: Vec<_> = (0..40).map(doubled).collect();
        let laughs = format!(
            "{{\"properties\":{{\"a\":{{\"$ref\":\"#/$defs/d0\"}}}},\"$defs\":{{{}}}}}",
            defs.join(",")
        );
        assert!(signature(&laughs).len() < 100_000);
        let nested = format!(
            "{{\"properties\":{{\"a\":{}{}}}}}",
            "{\"items\":".repeat(5_000),
            "{}".to_owned() + &"}".repeat(5_000)
        );
        assert!(signature(&nested).starts_with("(a?: any[][]"));
    }

    proptest! {
        #[test]
        fn any_text_has_a_signature(schema in "[\\[\\]{}\":,a-z$#/0-9 ]{0,80}") {
            prop_assert!(signature(&schema).starts_with('('));
        }
    }
}
