//! Checks whether a JSON Schema can be used. Clients compile the `outputSchema` of every tool when they list
//! the tools, and refuse the whole list if one of them fails.
//!
//! [`mend`](super::mend) calls this. It checks what compilers stumble over: keywords with values of the wrong
//! type, invalid patterns, and references that lead nowhere. Unknown keywords are ignored.

use serde_json::Value;

use crate::text::percent::decode_strictly;

/// Whether every part of a schema, given as JSON, can be compiled and every reference in it resolves within
/// it.
pub(super) fn compiles(schema: &str) -> bool {
    serde_json::from_str::<Value>(schema).is_ok_and(|root| is_sound(&root, &root))
}

fn is_sound(schema: &Value, root: &Value) -> bool {
    let sound = |schema: &Value| is_sound(schema, root);
    let keyword = |name: &str, value: &Value| match name {
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
            value.as_object().is_some_and(|schemas| schemas.values().all(sound))
        }
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
            value.as_array().is_some_and(|schemas| schemas.iter().all(sound))
        }
        "items" if value.is_array() => value.as_array().into_iter().flatten().all(sound),
        "items"
        | "additionalProperties"
        | "additionalItems"
        | "contains"
        | "propertyNames"
        | "not"
        | "if"
        | "then"
        | "else"
        | "unevaluatedItems"
        | "unevaluatedProperties" => sound(value),
        "type" => match value {
            Value::Array(types) => types.iter().all(is_type),
            one => is_type(one),
        },
        "enum" => value.as_array().is_some_and(|values| !values.is_empty()),
        "required" => value.as_array().is_some_and(|names| names.iter().all(Value::is_string)),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => value.is_number(),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => value.is_u64(),
        "uniqueItems" => value.is_boolean(),
        "pattern" => value.as_str().is_some_and(is_pattern),
        "$ref" => value.as_str().is_some_and(|reference| leads_somewhere(reference, root)),
        _ => true,
    };
    match schema {
        Value::Bool(_) => true,
        Value::Object(members) => {
            members.iter().all(|(name, value)| keyword(name, value))
                && (!members.contains_key("nullable") || members.contains_key("type"))
        }
        _ => false,
    }
}

fn is_type(name: &Value) -> bool {
    let types = ["array", "boolean", "integer", "null", "number", "object", "string"];
    name.as_str().is_some_and(|name| types.contains(&name))
}

/// Whether a reference resolves within the schema: by pointer, by anchor, or by `$id`.
fn leads_somewhere(reference: &str, root: &Value) -> bool {
    let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    if !document.is_empty() {
        return is_named(root, &["$id"], document);
    }
    match fragment {
        "" => true,
        pointer if pointer.starts_with('/') => {
            decode_strictly(pointer).is_some_and(|pointer| root.pointer(&pointer).is_some())
        }
        anchor => {
            is_named(root, &["$anchor", "$dynamicAnchor"], anchor) || is_named(root, &["$id"], reference)
        }
    }
}

/// Whether some part of a schema has this name under one of these keys.
fn is_named(schema: &Value, keys: &[&str], name: &str) -> bool {
    match schema {
        Value::Object(members) => members
            .iter()
            .any(|(key, value)| keys.contains(&key.as_str()) && value == name || is_named(value, keys, name)),
        Value::Array(parts) => parts.iter().any(|part| is_named(part, keys, name)),
        _ => false,
    }
}

/// Whether a text is a regular expression in JavaScript's strict (`u`) form. Groups, classes, escapes and
/// quantifiers are checked; names of properties and groups are not.
fn is_pattern(text: &str) -> bool {
    let mut rest = text.chars().peekable();
    let (mut groups, mut in_class, mut repeatable) = (0_usize, false, false);
    while let Some(c) = rest.next() {
        match (in_class, c) {
            (_, '\\') => {
                let sound = rest.next().is_some_and(|c| is_escape(c, in_class));
                if !sound {
                    return false;
                }
                repeatable = true;
            }
            (true, ']') => (in_class, repeatable) = (false, true),
            (true, _) => {}
            (false, '[') => in_class = true,
            (false, '(') => {
                groups += 1;
                repeatable = false;
                if rest.next_if_eq(&'?').is_some() && !matches!(rest.next(), Some(':' | '=' | '!' | '<')) {
                    return false;
                }
            }
            (false, ')') if groups > 0 => (groups, repeatable) = (groups - 1, true),
            (false, '*' | '+' | '?' | '{') if repeatable => {
                if c == '{' {
                    let mut count = String::new();
                    while let Some(c) = rest.next_if(|c| *c != '}') {
                        count.push(c);
                    }
                    if rest.next().is_none() || !is_count(&count) {
                        return false;
                    }
                }
                rest.next_if_eq(&'?');
                repeatable = false;
            }
            (false, ')' | '*' | '+' | '?' | '{' | '}' | ']') => return false,
            (false, '|' | '^') => repeatable = false,
            (false, _) => repeatable = true,
        }
    }
    groups == 0 && !in_class
}

/// Whether `{…}` is a valid quantifier.
fn is_count(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once(',') {
        Some((least, most)) => number(least) && (most.is_empty() || number(most)),
        None => number(text),
    }
}

/// Whether a backslash may precede this character.
fn is_escape(c: char, in_class: bool) -> bool {
    "dDwWsSbBtnvfrcxukpP0123456789^$\\.*+?()[]{}|/".contains(c) || in_class && c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compilers_stumble_over_is_seen() {
        for (schema, expected) in [
            (r#"{}"#, true),
            (r#"{"properties":{"$ref":{"type":"string"},"required":true},"new":{"type":7}}"#, true),
            (r##"{"$ref":"#"}"##, true),
            (r##"{"$ref":"#/$defs/a~1b%20c","$defs":{"a/b c":{}}}"##, true),
            (r##"{"items":{"$ref":"#here"},"$defs":{"x":{"$anchor":"here"}}}"##, true),
            (r##"{"items":{"$ref":"#here"},"$defs":{"x":{"$id":"#here"}}}"##, true),
            (r##"{"items":{"$ref":"x.json#/a"},"$defs":{"x":{"$id":"x.json"}}}"##, true),
            (r#"{"default":{"$ref":"nowhere"},"enum":[{"type":"no type"}]}"#, true),
            (r##"{"items":{"$ref":"#/$defs/none"}}"##, false),
            (r##"{"anyOf":[{"not":{"$ref":"#none"}}]}"##, false),
            (r#"{"properties":{"a":{"$ref":"https://example.org/other.json"}}}"#, false),
            (r#"{"$ref":7}"#, false),
            (r#"{"properties":{"a":{"type":"strng"}}}"#, false),
            (r#"{"properties":{"a":7}}"#, false),
            (r#"{"items":[{"type":["string",7]}]}"#, false),
            (r#"{"enum":[]}"#, false),
            (r#"{"minimum":"3"}"#, false),
            (r#"{"minLength":-1}"#, false),
            (r#"{"pattern":"("}"#, false),
            (r#"{"required":"a"}"#, false),
            (r#"{"uniqueItems":"yes"}"#, false),
            (r#"{"nullable":true}"#, false),
            (r#"{"nullable":true,"type":"string"}"#, true),
            (r#"7"#, false),
        ] {
            assert_eq!(compiles(schema), expected, "{schema}");
        }
        let deep = format!("{}{}", "{\"not\":".repeat(1000), "{}".to_owned() + &"}".repeat(1000));
        assert!(!compiles(&deep), "too deep for anybody");
    }

    #[test]
    fn patterns() {
        for (pattern, expected) in [
            (r"^[\w\-.]+@[a-z]{2,}(?:\.[a-z]+)*?$", true),
            (r"(?<year>\d{4})-\k<year>|(?=a)(?!b)", true),
            (r"[(*+]", true),
            ("", true),
            (r"(", false),
            (r")", false),
            (r"[a", false),
            (r"\-", false),
            (r"\_", false),
            (r"a**", false),
            (r"*a", false),
            (r"a{2", false),
            (r"a{x}", false),
            (r"}", false),
            (r"(?P<name>a)", false),
            ("a\\", false),
        ] {
            assert_eq!(is_pattern(pattern), expected, "{pattern}");
        }
    }
}
