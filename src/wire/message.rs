//! The JSON-RPC envelope over raw payloads. Only the envelope is read and made anew.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::json::{Duplicate, Node, quote};

/// JSON-RPC error codes that we use ourselves.
pub mod code {
    #![allow(missing_docs)]
    pub const PARSE: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL: i64 = -32603;
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    pub const MISSING_CAPABILITY: i64 = -32021;
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    pub const URL_ELICITATION: i64 = -32042;
    /// An upstream died, hung or was closed under a request.
    pub const UPSTREAM_LOST: i64 = -32000;
}

/// A request's id exactly as its sender wrote it.
#[derive(Clone, PartialEq, Eq)]
pub struct Id(Arc<str>);

impl Id {
    /// The id of one of our own requests.
    pub fn from_number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    /// The id as JSON.
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// What two spellings of the same id have in common; `1` and `1.0` are the same, `1` and `"1"` differ.
    pub fn key(&self) -> Arc<str> {
        if !self.0.starts_with('"') {
            return match self.0.contains(['.', 'e', 'E']) {
                true => plain_number(&self.0).into(),
                false => self.0.clone(),
            };
        }
        match self.0.contains('\\') {
            true => match serde_json::from_str::<String>(&self.0) {
                Ok(text) => format!("\"{text}\"").into(),
                Err(_) => self.0.clone(),
            },
            false => self.0.clone(),
        }
    }

    /// A string or a number; anything else is no id.
    pub fn from_node(node: Node<'_>) -> Option<Self> {
        Self::from_raw(node.raw())
    }

    /// As [`Self::from_node`], of raw JSON.
    pub fn from_raw(raw: &str) -> Option<Self> {
        is_id(raw).then(|| Self(raw.into()))
    }
}

fn is_id(raw: &str) -> bool {
    matches!(raw.as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9'))
}

/// A number with fraction or exponent, spelled as an integer where it is one of reasonable length.
fn plain_number(raw: &str) -> String {
    const LONGEST: i64 = 400;
    let (mantissa, exponent) = raw.split_once(['e', 'E']).unwrap_or((raw, "0"));
    let Ok(exponent) = exponent.parse::<i32>() else { return raw.to_owned() };
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_end_matches('0');
    let exponent = i64::from(exponent) + (all.len() - digits.len()) as i64 - fraction.len() as i64;
    match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits if (0..LONGEST).contains(&exponent) => {
            format!("{sign}{digits}{}", "0".repeat(exponent as usize))
        }
        digits => format!("{sign}{digits}e{exponent}"),
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// One JSON-RPC message.
pub enum Message<'a> {
    /// Wants an answer.
    Request {
        /// As sent.
        id: Id,
        /// Which method.
        method: Cow<'a, str>,
        /// An object, if there is one.
        params: Option<Node<'a>>,
    },
    /// Wants none.
    Notification {
        /// Which method.
        method: Cow<'a, str>,
        /// Any value; what is no object is noise.
        params: Option<Node<'a>>,
    },
    /// Answers a request of ours.
    Response {
        /// Of the request as JSON, if it is readable.
        id: Option<&'a str>,
        /// `Err` holds the error object.
        outcome: Result<Node<'a>, Node<'a>>,
    },
}

/// A text that is JSON but no message, and what to answer.
#[derive(Debug)]
pub struct Malformed {
    /// Of the request, where it could be read.
    pub id: Option<Id>,
    /// A JSON-RPC error code.
    pub code: i64,
    /// For a person.
    pub message: &'static str,
}

impl Malformed {
    /// Two requests of a batch with one id: their answers could not be told apart.
    pub const ID_TWICE: Self = Self {
        id: None,
        code: code::INVALID_REQUEST,
        message: "Invalid request: another request of the batch has the same id",
    };
}

impl From<Duplicate> for Malformed {
    fn from(_: Duplicate) -> Self {
        Self {
            id: None,
            code: code::INVALID_REQUEST,
            message: "Invalid request: a key of the envelope stands twice",
        }
    }
}

impl<'a> Message<'a> {
    /// Reads the envelope.
    pub fn read(root: Node<'a>) -> Result<Self, Malformed> {
        let bad = |id: Option<Node<'_>>, message| Malformed {
            id: id.and_then(Id::from_node),
            code: code::INVALID_REQUEST,
            message,
        };
        if !root.is_object() {
            return Err(bad(None, "Invalid request: a message is a JSON object"));
        }
        let [version, id, method, params, result, error] =
            root.all_unique(["jsonrpc", "id", "method", "params", "result", "error"])?;
        if version.is_none_or(|version| version.raw() != "\"2.0\"") {
            return Err(bad(id, "Invalid request: \"jsonrpc\" must be \"2.0\""));
        }
        match (method, id, result, error) {
            (Some(method), id, None, None) => {
                let Some(method) = method.as_str() else {
                    return Err(bad(id, "Invalid request: \"method\" must be a string"));
                };
                match id.map(Id::from_node) {
                    None => Ok(Self::Notification { method, params }),
                    Some(None) => Err(bad(None, "Invalid request: \"id\" must be a string or a number")),
                    Some(Some(id)) => match params {
                        Some(params) if !params.is_object() => Err(Malformed {
                            id: Some(id),
                            code: code::INVALID_PARAMS,
                            message: "Invalid params: \"params\" must be an object",
                        }),
                        params => Ok(Self::Request { id, method, params }),
                    },
                }
            }
            (None, Some(id), Some(result), None) => {
                Ok(Self::Response { id: Some(id.raw()).filter(|raw| is_id(raw)), outcome: Ok(result) })
            }
            (None, Some(id), None, Some(error)) => {
                Ok(Self::Response { id: Some(id.raw()).filter(|raw| is_id(raw)), outcome: Err(error) })
            }
            _ => Err(bad(id, "Invalid request: neither a request, a notification nor a response")),
        }
    }
}

/// Writes a request; `params` writes the raw object.
pub fn write_request(out: &mut Vec<u8>, id: u64, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    write_number(out, id);
    write_method(out, method, params);
}

/// Writes a notification; `params` writes the raw object.
pub fn write_notification(out: &mut Vec<u8>, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    write_method(out, method, params);
}

fn write_method(out: &mut Vec<u8>, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b",\"method\":");
    write_string(out, method);
    let before = out.len();
    out.extend_from_slice(b",\"params\":");
    let empty = out.len();
    params(out);
    if out.len() == empty {
        out.truncate(before);
    }
    out.push(b'}');
}

/// Writes an answer; `result` writes the raw value.
pub fn write_result(out: &mut Vec<u8>, id: &Id, result: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.raw().as_bytes());
    out.extend_from_slice(b",\"result\":");
    result(out);
    out.push(b'}');
}

/// Writes an error whose object is already raw JSON.
pub fn write_raw_error(out: &mut Vec<u8>, id: Option<&Id>, error: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.map_or("null", Id::raw).as_bytes());
    out.extend_from_slice(b",\"error\":");
    error(out);
    out.push(b'}');
}

/// An error of our own as a raw error object; `data` is raw JSON.
pub fn error_object(code: i64, message: &str, data: Option<&str>) -> String {
    let data = data.map(|data| format!(",\"data\":{data}")).unwrap_or_default();
    format!("{{\"code\":{code},\"message\":{}{data}}}", quote(message))
}

/// Appends a number in decimal.
pub fn write_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] += (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return out.extend_from_slice(&digits[first..]);
        }
    }
}

/// Appends a JSON string literal.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(quote(text).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::Scanner;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        let mut scanner = Scanner::default();
        let shown = match Message::read(scanner.scan_str(text).unwrap().root()) {
            Ok(Message::Request { id, method, params }) => {
                format!("request {id:?} {method} {}", params.map_or("-", Node::raw))
            }
            Ok(Message::Notification { method, params }) => {
                format!("notification {method} {}", params.map_or("-", Node::raw))
            }
            Ok(Message::Response { id, outcome: Ok(result) }) => format!("result {id:?} {}", result.raw()),
            Ok(Message::Response { id, outcome: Err(error) }) => format!("error {id:?} {}", error.raw()),
            Err(bad) => format!("bad {:?} {} {}", bad.id, bad.code, bad.message),
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn reads_envelopes() {
        check(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping -");
        check(
            r#"{"params":{"a":1},"method":"m","id":"1","jsonrpc":"2.0","x":1}"#,
            r#"request "1" m {"a":1}"#,
        );
        check(r#"{"jsonrpc":"2.0","method":"n","params":[]}"#, "notification n []");
        check(r#"{"jsonrpc":"2.0","id":1e400,"method":"m"}"#, "request 1e400 m -");
        check(r#"{"jsonrpc":"2.0","id":5,"result":null}"#, r#"result Some("5") null"#);
        check(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#, r#"error None {"code":1}"#);
    }

    #[test]
    fn refuses_what_is_no_message() {
        check("[]", "bad None -32600 Invalid request: a message is a JSON object");
        check(r#"{"id":1,"method":"m"}"#, "bad Some(1) -32600 Invalid request: \"jsonrpc\" must be \"2.0\"");
        check(
            r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#,
            "bad None -32600 Invalid request: \"id\" must be a string or a number",
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":3}"#,
            "bad Some(1) -32600 Invalid request: \"method\" must be a string",
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
            "bad None -32600 Invalid request: a key of the envelope stands twice",
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#,
            "bad Some(1) -32602 Invalid params: \"params\" must be an object",
        );
        check(
            r#"{"jsonrpc":"2.0","id":1}"#,
            "bad Some(1) -32600 Invalid request: neither a request, a notification nor a response",
        );
    }

    #[test]
    fn spellings_of_one_id_share_a_key() {
        let key = |raw: &str| Id(raw.into()).key();
        assert_eq!(key(r#""\u0061""#), key(r#""a""#));
        assert_ne!(key("1"), key("\"1\""));
        for same in ["50.0", "5e1", "5.0E+1", "500e-1"] {
            assert_eq!(key(same), key("50"), "{same}");
        }
        assert_eq!(key("-0.0"), key("0"));
        assert_ne!(key("50.5"), key("50"));
        assert_ne!(key("5e1"), key("-5e1"));
        assert_ne!(key("1e999999999"), key("1e999999998"));
    }

    /// Raw JSON that might be any payload.
    fn payload() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("{}".to_owned()),
            Just(r#"{"id":7,"method":"m","result":{},"error":{}}"#.to_owned()),
            Just("12345678901234567890.10e+5".to_owned()),
            any::<String>().prop_map(|text| quote(&text)),
            any::<String>().prop_map(|text| format!("{{{}:[{}]}}", quote(&text), quote(&text))),
        ]
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(method in any::<String>(), payload in payload(), number: u64, text in any::<String>()) {
            let object = format!("{{\"x\":{payload}}}");
            let raw = |out: &mut Vec<u8>| out.extend_from_slice(payload.as_bytes());
            let mut messages: [Vec<u8>; 4] = Default::default();
            let id = Id(quote(&text).into());
            write_request(&mut messages[0], number, &method, |out| out.extend_from_slice(object.as_bytes()));
            write_notification(&mut messages[1], &method, raw);
            write_result(&mut messages[2], &id, raw);
            write_raw_error(&mut messages[3], Some(&id), raw);
            let mut scanners: [Scanner; 4] = Default::default();
            for (message, scanner) in messages.iter().zip(&mut scanners) {
                match Message::read(scanner.scan(message).expect("it is JSON").root()).expect("it is a message") {
                    Message::Request { id, method: read, params } => {
                        prop_assert_eq!((id.raw(), &*read), (&*number.to_string(), &*method));
                        prop_assert_eq!(params.map(Node::raw), Some(&*object));
                    }
                    Message::Notification { method: read, params } => {
                        prop_assert_eq!((&*read, params.map(Node::raw)), (&*method, Some(&*payload)));
                    }
                    Message::Response { id: read, outcome: Ok(node) | Err(node) } => {
                        prop_assert_eq!((read, node.raw()), (Some(id.raw()), &*payload));
                    }
                }
            }
        }
    }
}
