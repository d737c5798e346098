//! Secrets in JSON: a value may spell them with escapes, so they are looked for in what its strings mean.

use crate::config::Redactor;
use crate::json::write_string;

/// Appends a valid JSON value, or the beginning of one, on one line and with every secret replaced. A number that is a
/// secret becomes a string.
pub(super) fn write_redacted(out: &mut Vec<u8>, json: &str, secrets: &Redactor) {
    let bytes = json.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let token = match bytes[at] {
            b'"' => string_length(&bytes[at..]),
            b'\n' | b'\r' => {
                out.push(b' ');
                at += 1;
                continue;
            }
            b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => bytes[at..]
                .iter()
                .take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
                .count(),
            byte => {
                out.push(byte);
                at += 1;
                continue;
            }
        };
        write_token(out, &json[at..at + token], secrets);
        at += token;
    }
}

/// The length of the string literal that begins here, or of what is there of it.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn write_token(out: &mut Vec<u8>, token: &str, secrets: &Redactor) {
    // A literal that was cut off or has a lone surrogate is looked at as it is spelled.
    let decoded = serde_json::from_str::<String>(token).ok();
    let text = decoded.as_deref().unwrap_or(token);
    match secrets.redact(text) {
        std::borrow::Cow::Borrowed(_) => out.extend_from_slice(token.as_bytes()),
        std::borrow::Cow::Owned(redacted) if token.starts_with('"') && decoded.is_none() => {
            out.extend_from_slice(redacted.as_bytes());
        }
        std::borrow::Cow::Owned(redacted) => write_string(out, &redacted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_however_they_are_spelled() {
        let pairs = [("hunter-2\"x", "PASSWORD"), ("12345678", "PIN"), ("schlüssel", "KEY")];
        let secrets = Redactor::new(pairs.map(|(value, name)| (value.to_owned(), name.to_owned())));
        for (json, expected) in [
            (r#"{"a":[1,true,null,-2.5e3],"b":"c"}"#, r#"{"a":[1,true,null,-2.5e3],"b":"c"}"#),
            (r#"{"p":"my hunter-2\"x!"}"#, r#"{"p":"my ${PASSWORD}!"}"#),
            (r#"{"p":"h\u0075nter-2\u0022x"}"#, r#"{"p":"${PASSWORD}"}"#),
            (r#"{"pin":12345678}"#, r#"{"pin":"${PIN}"}"#),
            (r#"{"schl\u00fcssel":"schlüssel"}"#, r#"{"${KEY}":"${KEY}"}"#),
            ("{\n  \"a\": 1,\r\n  \"b\": 2}", "{   \"a\": 1,    \"b\": 2}"),
            (r#"{"a":"b 12345678 and so"#, r#"{"a":"b ${PIN} and so"#),
            (r#"{"a":"\ud800"}"#, r#"{"a":"\ud800"}"#),
            (r#""ends in \"#, r#""ends in \"#),
        ] {
            let mut out = Vec::new();
            write_redacted(&mut out, json, &secrets);
            assert_eq!(String::from_utf8(out).expect("UTF-8"), expected, "{json}");
        }
    }
}
