//! Tool parameters that are mirrored into HTTP headers (`x-mcp-header`), and the encoding of header values.
//! The HTTP client writes such headers, and the HTTP server checks them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use parking_lot::RwLock;
use serde_json::Value;
use serde_json::value::RawValue;

/// One parameter that is also sent as the header `Mcp-Param-{suffix}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolHeader {
    /// The keys that lead from the arguments to the parameter.
    pub path: Vec<String>,
    /// The part of the header's name after `Mcp-Param-`.
    pub suffix: String,
}

/// The mirrored parameters of an upstream's tools, by the upstream's own tool names. Whoever lists the tools
/// fills this.
#[derive(Default)]
pub struct ToolHeaders(RwLock<HashMap<String, Vec<ToolHeader>>>);

impl ToolHeaders {
    /// Replaces all entries.
    pub fn set(&self, tools: HashMap<String, Vec<ToolHeader>>) {
        *self.0.write() = tools;
    }

    /// The headers of one call as pairs of suffix and plain value; `arguments` is the raw object.
    pub fn of_call(&self, tool: &str, arguments: &str) -> Vec<(String, String)> {
        match self.0.read().get(tool) {
            Some(headers) => values(headers, arguments),
            None => Vec::new(),
        }
    }
}

/// The values of these parameters in the raw arguments of a call. Absent, `null` and non-primitive parameters
/// are left out.
pub fn values(headers: &[ToolHeader], arguments: &str) -> Vec<(String, String)> {
    let value = |header: &ToolHeader| {
        let mut raw = arguments;
        for key in &header.path {
            let object: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(raw).ok()?;
            raw = object.get(key.as_str())?.get();
        }
        match raw.as_bytes().first()? {
            b'"' => serde_json::from_str(raw).ok(),
            b'n' | b'{' | b'[' => None,
            _ => Some(raw.to_owned()),
        }
    };
    headers.iter().filter_map(|header| Some((header.suffix.clone(), value(header)?))).collect()
}

/// Whether JSON may mark a parameter: it has the key, or an escape that may be a character of it.
pub fn may_mark(text: &str) -> bool {
    static SIGNS: LazyLock<[Finder<'_>; 2]> = LazyLock::new(|| ["x-mcp-header", "\\u"].map(Finder::new));
    SIGNS.iter().any(|sign| sign.find(text.as_bytes()).is_some())
}

/// Reads the `x-mcp-header` marks in a tool's raw input schema. The error names the rule that a mark breaks;
/// such a tool must not be offered.
pub fn read_schema(schema: &str) -> Result<Vec<ToolHeader>, String> {
    if !may_mark(schema) {
        return Ok(Vec::new());
    }
    let schema: Value =
        serde_json::from_str(schema).map_err(|_| "its input schema cannot be read".to_owned())?;
    let mut found = Vec::new();
    walk(&schema, Some(&mut Vec::new()), &mut found)?;
    Ok(found)
}

/// Collects the marks of a schema and its parts. `path` is `None` outside a chain of `properties`.
fn walk(schema: &Value, path: Option<&mut Vec<String>>, found: &mut Vec<ToolHeader>) -> Result<(), String> {
    let object = match schema {
        Value::Object(object) => object,
        Value::Array(parts) => return parts.iter().try_for_each(|part| walk(part, None, found)),
        _ => return Ok(()),
    };
    let mut path = path;
    if let Some(mark) = object.get("x-mcp-header") {
        let path = path.as_deref().filter(|path| !path.is_empty());
        let path = path.ok_or("x-mcp-header is where no chain of properties leads")?;
        found.push(check(mark, object.get("type"), path, found)?);
    }
    for (key, part) in object {
        match (key.as_str(), part) {
            ("default" | "const" | "enum" | "examples" | "x-mcp-header", _) => {}
            ("properties", Value::Object(properties)) => {
                for (name, part) in properties {
                    match path.as_deref_mut() {
                        Some(path) => {
                            path.push(name.clone());
                            walk(part, Some(path), found)?;
                            path.pop();
                        }
                        None => walk(part, None, found)?,
                    }
                }
            }
            ("$defs" | "definitions" | "patternProperties" | "dependentSchemas", Value::Object(parts)) => {
                parts.values().try_for_each(|part| walk(part, None, found))?;
            }
            (_, part) => walk(part, None, found)?,
        }
    }
    Ok(())
}

fn check(
    mark: &Value,
    kind: Option<&Value>,
    path: &[String],
    found: &[ToolHeader],
) -> Result<ToolHeader, String> {
    let suffix = mark.as_str().ok_or("x-mcp-header is not a string")?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if suffix.is_empty() || !suffix.bytes().all(is_token) {
        return Err("an x-mcp-header is not a valid header name".into());
    }
    if found.iter().any(|other| other.suffix.eq_ignore_ascii_case(suffix)) {
        return Err(format!("x-mcp-header {suffix} appears twice"));
    }
    let primitive = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    let allowed = match kind {
        Some(Value::Array(kinds)) => {
            kinds.iter().any(primitive) && kinds.iter().all(|kind| primitive(kind) || kind == "null")
        }
        Some(kind) => primitive(kind),
        None => false,
    };
    if !allowed {
        return Err(format!(
            "x-mcp-header {suffix} is on something other than a string, an integer or a boolean"
        ));
    }
    Ok(ToolHeader { path: path.to_vec(), suffix: suffix.to_owned() })
}

/// Encodes a text as a header value: unchanged if that is safe, else as `=?base64?…?=`.
pub fn encode_value(text: &str) -> Cow<'_, str> {
    let safe = text.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e))
        && text.trim_matches([' ', '\t']).len() == text.len()
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    if safe { Cow::Borrowed(text) } else { Cow::Owned(format!("=?base64?{}?=", base64(text.as_bytes()))) }
}

/// Base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let group =
            part.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for place in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * place) & 63) as usize] as char;
            out.push(if place <= part.len() { digit } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_as_the_specification_shows() {
        for (text, expected) in [
            ("us-west1", "us-west1"),
            ("", ""),
            ("a b\tc", "a b\tc"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode_value(text), expected);
        }
    }

    #[test]
    fn schemas_are_read_and_checked() {
        let check = |schema: &str, expected: &str| {
            let shown = match read_schema(schema) {
                Ok(found) => found
                    .iter()
                    .map(|h| format!("{}={}", h.suffix, h.path.join("/")))
                    .collect::<Vec<_>>()
                    .join(" "),
                Err(reason) => format!("! {reason}"),
            };
            assert_eq!(shown, expected, "{schema}");
        };
        check(r#"{"type":"object"}"#, "");
        check(r#"{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}"#, "Region=r");
        check(
            r#"{"properties":{"o":{"properties":{"n":{"type":["integer","null"],"x-mcp-header":"N"}}}}}"#,
            "N=o/n",
        );
        check(r#"{"properties":{"r":{"type":"string","x-mcp\u002dheader":"Region"}}}"#, "Region=r");
        check(r#"{"properties":{"x-mcp-header":{"type":"string"}}}"#, "");
        check(r#"{"properties":{"a":{"default":{"x-mcp-header":"A"}}}}"#, "");
        check(
            r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#,
            "! x-mcp-header A is on something other than a string, an integer or a boolean",
        );
        check(
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
            "! x-mcp-header a appears twice",
        );
        for name in ["", "a b", "a\\r\\nb", "ä"] {
            check(
                &format!(r#"{{"properties":{{"a":{{"type":"string","x-mcp-header":"{name}"}}}}}}"#),
                "! an x-mcp-header is not a valid header name",
            );
        }
        for schema in [
            r#"{"type":"string","x-mcp-header":"A"}"#,
            r#"{"properties":{"l":{"items":{"type":"string","x-mcp-header":"A"}}}}"#,
            r#"{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#,
            r#"{"$defs":{"a":{"type":"string","x-mcp-header":"A"}}}"#,
        ] {
            check(schema, "! x-mcp-header is where no chain of properties leads");
        }
    }

    #[test]
    fn values_are_found_by_their_path() {
        let header = |path: &[&str]| ToolHeader {
            path: path.iter().map(|p| p.to_string()).collect(),
            suffix: path.concat(),
        };
        let headers = ToolHeaders::default();
        let all = [&["s"][..], &["i"], &["b"], &["n"], &["o"], &["o", "d", "e"], &["gone"], &["s", "x"]];
        headers.set(HashMap::from([("t".to_owned(), all.map(header).to_vec())]));
        let arguments = r#"{"s":"\u00e4","i":-7,"b":true,"n":null,"o":{"d":{"e":"deep"}}}"#;
        let found = headers.of_call("t", arguments);
        let shown: Vec<_> = found.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(shown, ["s=ä", "i=-7", "b=true", "ode=deep"]);
        assert!(headers.of_call("other", arguments).is_empty());
        assert!(headers.of_call("t", "").is_empty());
    }
}
