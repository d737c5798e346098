//! The JSON-RPC envelope around raw payloads. Only the envelope is read and rewritten.
//!
//! [`Message::read`] is strict with clients. [`Message::from_server`] reads an answer as it was meant, or
//! says what is wrong with it. Both transports and all connections read messages here and nowhere else.
//!
//! Invariant: a message is scanned once; whatever is found in it travels on as values.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::json::{Duplicate, Invalid, Node, Raw, Scanner, Sorted, quote, write_string};
use crate::protocol::era::ModernMeta;

/// The JSON-RPC error codes that we use ourselves.
pub mod code {
    #![allow(missing_docs)]
    pub const PARSE: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL: i64 = -32603;
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    pub const HEADER_MISMATCH: i64 = -32020;
    pub const MISSING_CAPABILITY: i64 = -32021;
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    pub const URL_ELICITATION: i64 = -32042;
    /// An upstream died, hung or was closed during a request.
    pub const UPSTREAM_LOST: i64 = -32000;
    /// Ours: what the request needs is in a store that is away.
    pub const STORE_AWAY: i64 = -32053;
}

/// Whether this code exists only in the modern era.
pub fn is_modern_code(code: i64) -> bool {
    matches!(code, code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION)
}

/// The reason for refusing a request, as a JSON-RPC error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The error code.
    pub code: i64,
    /// The message, for a person or a model.
    pub message: String,
    /// Additional data as raw JSON.
    pub data: Option<String>,
}

impl Refusal {
    /// A refusal with this code and message.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The refusal of invalid parameters.
    pub fn invalid_params(what: impl fmt::Display) -> Self {
        Self::new(code::INVALID_PARAMS, format!("Invalid params: {what}"))
    }

    /// The refusal of an object in which a key that we route by occurs twice.
    pub fn twice(place: &str) -> Self {
        Self::new(code::INVALID_REQUEST, format!("Invalid request: a key of `{place}` appears twice"))
    }

    /// Writes the error response; `id` is `None` if the request's id could not be read.
    pub fn write(&self, out: &mut Vec<u8>, id: Option<&Id>) {
        let error = error_object(self.code, &self.message, self.data.as_deref());
        write_raw_error(out, id, |out| out.extend_from_slice(error.as_bytes()));
    }
}

/// A request's id exactly as its sender wrote it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Id {
    /// A whole number without a sign, which is what most senders count with.
    Number(u64),
    /// Any other id, as JSON.
    Text(Arc<str>),
}

impl Id {
    /// The id as JSON.
    pub fn raw(&self) -> Cow<'_, str> {
        match self {
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }

    /// The same for all spellings of one id. `1` and `1.0` are the same id; `1` and `"1"` are not.
    pub fn key(&self) -> Self {
        let Self::Text(text) = self else { return self.clone() };
        match text.starts_with('"') {
            false => Self::read(&plain_number(text)),
            true if !text.contains('\\') => self.clone(),
            true => match serde_json::from_str::<String>(text) {
                Ok(text) => Self::Text(format!("\"{text}\"").into()),
                Err(_) => self.clone(),
            },
        }
    }

    /// The id in a node; `None` unless the value is a string or a number.
    pub fn from_node(node: Node<'_>) -> Option<Self> {
        Self::from_raw(node.raw())
    }

    /// Like [`Self::from_node`], for raw JSON.
    pub fn from_raw(raw: &str) -> Option<Self> {
        is_id(raw).then(|| Self::read(raw))
    }

    fn read(raw: &str) -> Self {
        whole_number(raw).map_or_else(|| Self::Text(raw.into()), Self::Number)
    }

    /// Appends the id as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number(number) => write_number(out, *number),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

/// The number that a text of digits spells, if it is not too large.
fn whole_number(raw: &str) -> Option<u64> {
    // So many digits are never too large.
    const FEW: usize = 19;
    match raw.len() {
        1..=FEW => raw
            .bytes()
            .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0'))),
        _ => raw.parse().ok(),
    }
}

fn is_id(raw: &str) -> bool {
    matches!(raw.as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9'))
}

/// Spells a number with a fraction or exponent as an integer, if it is one of reasonable length.
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
        out.write_str(&self.raw())
    }
}

/// One JSON-RPC message.
pub enum Message<'a> {
    /// A message that expects an answer.
    Request(Request<'a>),
    /// A message that expects no answer.
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// The parameters. Any value is possible, but everything other than an object is ignored.
        params: Option<Node<'a>>,
    },
    /// The answer to one of our requests.
    Response {
        /// The request that it answers.
        to: AnswerTo,
        /// The result or the error.
        outcome: Outcome<'a>,
        /// Whether the message has `"jsonrpc": "2.0"`, spelled without escapes.
        says_version: bool,
    },
}

/// A request, read once. Every handler gets this, whatever the transport.
pub struct Request<'a> {
    /// The id as the client wrote it.
    pub id: Id,
    /// The method.
    pub method: Cow<'a, str>,
    /// The parameters, always an object if present.
    pub params: Option<Node<'a>>,
    /// The metadata that makes a client's request modern; `None` for a legacy request and for a server's.
    pub meta: Option<ModernMeta<'a>>,
}

/// The request of ours that a response names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerTo {
    /// The request with this number, which is the id that we gave it.
    Ours(u64),
    /// No request: the `id` is `null` or missing.
    Nobody,
    /// A request that cannot be ours.
    Foreign,
}

impl AnswerTo {
    fn read(id: Option<Node<'_>>) -> Self {
        match id.map(Node::raw) {
            None | Some("null") => Self::Nobody,
            Some(raw) => own_id(raw).map_or(Self::Foreign, Self::Ours),
        }
    }
}

/// The number of our request in any of the spellings that servers use: `7`, `"7"`, `7.0`.
pub fn own_id(raw: &str) -> Option<u64> {
    if let Some(number) = whole_number(raw) {
        return Some(number);
    }
    if !raw.starts_with('"') {
        return plain_number(raw).parse().ok();
    }
    let text = serde_json::from_str::<String>(raw).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The content of a response.
pub enum Outcome<'a> {
    /// The result object.
    Result(Node<'a>),
    /// The error object.
    Error(Node<'a>),
    /// A response with neither a usable result nor a usable error, and what is wrong with it.
    Malformed(&'static str),
}

impl<'a> Outcome<'a> {
    /// Reads both members as they were meant: a `null` beside a valid member of the other kind is ignored.
    fn read(result: Option<Node<'a>>, error: Option<Node<'a>>) -> Self {
        let absent = |member: Option<Node<'_>>| member.is_none_or(|member| member.raw() == "null");
        match (result, error) {
            (Some(result), error) if result.is_object() && absent(error) => Self::Result(result),
            (result, Some(error)) if error.is_object() && absent(result) => Self::Error(error),
            (Some(_), error) if absent(error) => Self::Malformed("its result is not an object"),
            (result, Some(_)) if absent(result) => Self::Malformed("its error is not an object"),
            (None, None) => Self::Malformed("it has neither a result nor an error"),
            _ => Self::Malformed("it has both a result and an error"),
        }
    }
}

/// A text that is not a message, and the refusal to answer it with.
#[derive(Debug)]
pub struct Malformed {
    /// The request's id, if it could be read.
    pub id: Option<Id>,
    /// The reason.
    pub why: Refusal,
}

impl Malformed {
    /// The error for a text that is not a request.
    #[cold]
    pub fn new(id: Option<Id>, message: &str) -> Self {
        Self { id, why: Refusal::new(code::INVALID_REQUEST, format!("Invalid request: {message}")) }
    }

    /// The error for a text that is not JSON.
    pub fn no_json(invalid: Invalid) -> Self {
        let message = format!("Parse error: not valid JSON (at byte {})", invalid.offset);
        Self { id: None, why: Refusal::new(code::PARSE, message) }
    }
}

impl From<Duplicate> for Malformed {
    fn from(_: Duplicate) -> Self {
        Self::new(None, "a key of the envelope appears twice")
    }
}

/// The members of an envelope.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// The places of the keys in [`MEMBERS`].
mod place {
    pub(super) const VERSION: usize = 0;
    pub(super) const ID: usize = 1;
    pub(super) const METHOD: usize = 2;
    pub(super) const PARAMS: usize = 3;
    pub(super) const RESULT: usize = 4;
    pub(super) const ERROR: usize = 5;
}

/// The members of an envelope, by their places.
#[inline(always)]
fn sorted(envelope: Node<'_>) -> Result<Sorted<'_, 6>, Duplicate> {
    envelope.sorted(&MEMBERS, |key| match key {
        b"jsonrpc" => Some(place::VERSION),
        b"id" => Some(place::ID),
        b"method" => Some(place::METHOD),
        b"params" => Some(place::PARAMS),
        b"result" => Some(place::RESULT),
        b"error" => Some(place::ERROR),
        _ => None,
    })
}

impl<'a> Message<'a> {
    /// Reads a client's message. Requests must be valid; answers are read as they were meant.
    pub fn read(root: Node<'a>) -> Result<Self, Malformed> {
        let bad = |id: Option<Node<'_>>, message| Malformed::new(id.and_then(Id::from_node), message);
        if !root.is_object() {
            return Err(bad(None, "a message is a JSON object"));
        }
        let members = sorted(root)?;
        let (version, id) = (members.get(place::VERSION), members.get(place::ID));
        let answers = members.has(place::RESULT) || members.has(place::ERROR);
        let says_version = says_version(version);
        if answers && id.is_some() && !members.has(place::METHOD) {
            let outcome = Outcome::read(members.get(place::RESULT), members.get(place::ERROR));
            return Ok(Self::Response { to: AnswerTo::read(id), outcome, says_version });
        }
        if !says_version && version.and_then(Node::as_str).as_deref() != Some("2.0") {
            return Err(bad(id, "\"jsonrpc\" must be \"2.0\""));
        }
        let Some(method) = members.get(place::METHOD).filter(|_| !answers) else {
            return Err(bad(id, "neither a request, a notification nor a response"));
        };
        let params = members.get(place::PARAMS);
        let Some(method) = method.as_str() else {
            return Err(bad(id, "\"method\" must be a string"));
        };
        match id.map(Id::from_node) {
            None => Ok(Self::Notification { method, params }),
            Some(None) => Err(bad(None, "\"id\" must be a string or a number")),
            Some(Some(id)) if params.is_some_and(|params| !params.is_object()) => {
                Err(Malformed { id: Some(id), why: Refusal::invalid_params("\"params\" must be an object") })
            }
            Some(Some(id)) => match ModernMeta::read(params) {
                Ok(meta) => Ok(Self::Request(Request { id, method, params, meta })),
                Err(why) => Err(Malformed { id: Some(id), why }),
            },
        }
    }

    /// Reads the parts of a client's batch. The second of two requests with the same id is refused, because
    /// their answers could not be told apart.
    pub fn read_parts(parts: &'a [Raw]) -> Vec<Result<Self, Malformed>> {
        let mut ids = HashSet::new();
        let mut read = |part: &'a Raw| match Self::read(part.root())? {
            Self::Request(Request { id, .. }) if !ids.insert(id.key()) => {
                Err(Malformed::new(None, "another request of the batch has the same id"))
            }
            message => Ok(message),
        };
        parts.iter().map(&mut read).collect()
    }

    /// Reads a server's message as it was meant.
    pub fn from_server(root: Node<'a>) -> Result<Self, NoMessage> {
        let Ok(members) = sorted(root) else { return Err(NoMessage::with_duplicates(root)) };
        let (version, id) = (members.get(place::VERSION), members.get(place::ID));
        let (result, error) = (members.get(place::RESULT), members.get(place::ERROR));
        let answers = result.is_some() || error.is_some();
        let is_said = |member: Option<Node<'_>>| member.is_some_and(|member| member.raw() != "null");
        let outcome = match members.get(place::METHOD).filter(|method| method.is_string()) {
            Some(_) if is_said(result) || is_said(error) => {
                Outcome::Malformed("it has a method besides its result or error")
            }
            // A line of a log may have a `method`, too.
            Some(_) if version.is_none() => return Err(NoMessage::Noise),
            Some(method) => {
                let method = method.as_str().ok_or(NoMessage::Noise)?;
                let params = members.get(place::PARAMS);
                return match id.map(Id::from_node) {
                    None => Ok(Self::Notification { method, params }),
                    Some(Some(id)) if params.is_none_or(Node::is_object) => {
                        Ok(Self::Request(Request { id, method, params, meta: None }))
                    }
                    Some(_) => Err(NoMessage::Noise),
                };
            }
            None if answers || version.is_some() => Outcome::read(result, error),
            None => return Err(NoMessage::Noise),
        };
        Ok(Self::Response { to: AnswerTo::read(id), outcome, says_version: says_version(version) })
    }
}

/// The parts of a batch, which must be an array.
pub fn batch_parts(array: Node<'_>) -> Vec<Raw> {
    let mut parts = Vec::new();
    Scanner::default().each_element(array, |part| parts.push(part.into()));
    parts
}

#[inline]
fn says_version(version: Option<Node<'_>>) -> bool {
    version.is_some_and(|version| version.is(b"\"2.0\""))
}

/// Text from a server that is not a message.
#[derive(Debug, PartialEq, Eq)]
pub enum NoMessage {
    /// Text without any meaning for us.
    Noise,
    /// An answer in which a member that we route by occurs twice. It cannot be read, but it ends these
    /// requests.
    Twice(Vec<u64>),
}

impl NoMessage {
    /// The description of an answer that is [`NoMessage::Twice`].
    pub const TWICE: &'static str = "a member of its envelope appears twice";

    #[cold]
    fn with_duplicates(root: Node<'_>) -> Self {
        let all = |key: &'static str| root.members().filter(move |(name, _)| name.eq_ignore_ascii_case(key));
        let is_answer = ["jsonrpc", "result", "error"].iter().any(|key| all(key).next().is_some());
        if !is_answer || all("method").any(|(_, method)| method.is_string()) {
            return Self::Noise;
        }
        Self::Twice(all("id").filter_map(|(_, id)| own_id(id.raw())).collect())
    }
}

/// Writes a request; `params` writes the raw parameters object.
pub fn write_request(out: &mut Vec<u8>, id: u64, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    write_number(out, id);
    write_method(out, method, params);
}

/// Writes a notification; `params` writes the raw parameters object.
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

/// Writes a response; `result` writes the raw result.
pub fn write_result(out: &mut Vec<u8>, id: &Id, result: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    id.write(out);
    out.extend_from_slice(b",\"result\":");
    result(out);
    out.push(b'}');
}

/// Writes an error response; `error` writes the raw error object.
pub fn write_raw_error(out: &mut Vec<u8>, id: Option<&Id>, error: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    match id {
        Some(id) => id.write(out),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"error\":");
    error(out);
    out.push(b'}');
}

/// An error of ours as a raw error object; `data` is raw JSON.
pub fn error_object(code: i64, message: &str, data: Option<&str>) -> String {
    let data = data.map(|data| format!(",\"data\":{data}")).unwrap_or_default();
    format!("{{\"code\":{code},\"message\":{}{data}}}", quote(message))
}

/// The code of an error object, if it has a usable one.
pub fn error_code(error: Node<'_>) -> Option<i64> {
    error.get("code").and_then(|code| plain_number(code.raw()).parse().ok())
}

/// Writes a server's error object in a form that every client can read: a missing or unusable code or message
/// is replaced.
pub fn write_sound_error(out: &mut Vec<u8>, error: Node<'_>) {
    let internal = code::INTERNAL.to_string();
    let has_code = error_code(error).is_some();
    let has_message = error.get("message").is_some_and(|message| message.is_string());
    match (has_code, has_message) {
        (true, true) => error.write(out),
        (true, false) => error.write_with(out, &[("message", Some(NO_MESSAGE))]),
        (false, true) => error.write_with(out, &[("code", Some(&internal))]),
        (false, false) => error.write_with(out, &[("code", Some(&internal)), ("message", Some(NO_MESSAGE))]),
    }
}

/// The message for an error without one, as JSON.
const NO_MESSAGE: &str = "\"the server gave no reason\"";

/// Appends a number in decimal.
pub fn write_number(out: &mut Vec<u8>, mut number: u64) {
    /// The digits of each number below 100.
    const PAIRS: [[u8; 2]; 100] = {
        let (mut pairs, mut number) = ([[0; 2]; 100], 0);
        while number < 100 {
            pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
            number += 1;
        }
        pairs
    };
    let mut digits = [[0; 2]; 10];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = PAIRS[(number % 100) as usize];
        number /= 100;
        if number == 0 {
            let digits = digits[first..].as_flattened();
            return out.extend_from_slice(&digits[usize::from(digits[0] == b'0')..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(message: Message<'_>) -> String {
        match message {
            Message::Request(Request { id, method, params, .. }) => {
                format!("request {id:?} {method} {}", params.map_or("-", Node::raw))
            }
            Message::Notification { method, params } => {
                format!("notification {method} {}", params.map_or("-", Node::raw))
            }
            Message::Response { to, outcome, .. } => match outcome {
                Outcome::Result(result) => format!("{to:?} result {}", result.raw()),
                Outcome::Error(error) => format!("{to:?} error {}", error.raw()),
                Outcome::Malformed(what) => format!("{to:?} malformed: {what}"),
            },
        }
    }

    /// Checks how a client's message is read.
    fn check(text: &str, expected: &str) {
        let mut scanner = Scanner::default();
        let read = match Message::read(scanner.scan_str(text).unwrap().root()) {
            Ok(message) => shown(message),
            Err(Malformed { id, why }) => format!("bad {id:?} {} {}", why.code, why.message),
        };
        assert_eq!(read, expected, "{text}");
    }

    /// Checks how a server's message is read.
    fn check_server(text: &str, expected: &str) {
        let mut scanner = Scanner::default();
        let read = match Message::from_server(scanner.scan_str(text).unwrap().root()) {
            Ok(message) => shown(message),
            Err(other) => format!("{other:?}"),
        };
        assert_eq!(read, expected, "{text}");
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
        check(r#"{"jsonrpc":"2\u002e0","id":1,"method":"m"}"#, "request 1 m -");
        check(r#"{"jsonrpc":"2.0","id":5,"result":{"a":1}}"#, r#"Ours(5) result {"a":1}"#);
        check(r#"{"id":"5","result":{},"error":null}"#, "Ours(5) result {}");
        check(r#"{"jsonrpc":"2.0","id":5,"result":null}"#, "Ours(5) malformed: its result is not an object");
        check(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#, r#"Nobody error {"code":1}"#);
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
            "bad None -32600 Invalid request: a key of the envelope appears twice",
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#,
            "bad Some(1) -32602 Invalid params: \"params\" must be an object",
        );
        check(
            r#"{"jsonrpc":"2.0","id":1}"#,
            "bad Some(1) -32600 Invalid request: neither a request, a notification nor a response",
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":"m","result":{}}"#,
            "bad Some(1) -32600 Invalid request: neither a request, a notification nor a response",
        );
    }

    #[test]
    fn answers_of_servers_are_read_as_they_are_meant() {
        for id in ["7", r#""7""#, "7.0", "70e-1", r#""\u0037""#] {
            check_server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), "Ours(7) result {}");
        }
        for version in
            ["", r#""jsonrpc":"2\u002e0","#, r#""jsonrpc":2.0,"#, r#""jsonrpc":null,"#, r#""JSONRPC":1,"#]
        {
            check_server(&format!(r#"{{{version}"id":7,"result":{{}}}}"#), "Ours(7) result {}");
        }
        for (members, expected) in [
            (r#""result":{},"error":null"#, "Ours(7) result {}"),
            (r#""result":null,"error":{}"#, "Ours(7) error {}"),
            (r#""method":null,"params":null,"result":{},"error":null"#, "Ours(7) result {}"),
            (r#""result":{"method":"m","error":{}}"#, r#"Ours(7) result {"method":"m","error":{}}"#),
        ] {
            check_server(&format!(r#"{{"jsonrpc":"2.0","id":7,{members}}}"#), expected);
        }
    }

    #[test]
    fn answers_of_servers_that_cannot_be_read_say_why() {
        for (members, what) in [
            (r#""x":1"#, "it has neither a result nor an error"),
            (r#""method":7"#, "it has neither a result nor an error"),
            (r#""result":{},"error":{}"#, "it has both a result and an error"),
            (r#""result":{},"error":"x""#, "it has both a result and an error"),
            (r#""result":[],"error":{}"#, "it has both a result and an error"),
            (r#""result":null"#, "its result is not an object"),
            (r#""result":"x","error":null"#, "its result is not an object"),
            (r#""result":null,"error":null"#, "its result is not an object"),
            (r#""error":null"#, "its error is not an object"),
            (r#""error":[{}],"result":null"#, "its error is not an object"),
            (r#""method":"m","result":{}"#, "it has a method besides its result or error"),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":7,{members}}}"#);
            check_server(&text, &format!("Ours(7) malformed: {what}"));
        }
        check_server(r#"{"jsonrpc":"2.0","id":7,"id":"8","result":{}}"#, "Twice([7, 8])");
        check_server(r#"{"id":7,"result":{},"Result":{}}"#, "Twice([7])");
        check_server(r#"{"id":7,"result":{},"result":{},"method":"m"}"#, "Noise");
        check_server(r#"{"id":7,"ID":7,"level":"info"}"#, "Noise");
    }

    #[test]
    fn what_a_server_logs_is_no_message() {
        for text in
            ["7", "null", "{}", r#"{"id":7}"#, r#"{"id":7,"level":"info"}"#, r#"{"id":7,"method":"GET"}"#]
        {
            check_server(text, "Noise");
        }
        check_server(r#"{"jsonrpc":"2.0","id":[],"method":"m"}"#, "Noise");
        check_server(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[]}"#, "Noise");
        check_server(r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#, "request 7 m -");
        check_server(r#"{"jsonrpc":"2.0","method":"n"}"#, "notification n -");
        // Some servers write every member, with `null` for those that do not apply.
        let unsaid = r#""result":null,"error":null"#;
        check_server(&format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m",{unsaid}}}"#), "request 7 m -");
        check_server(&format!(r#"{{"jsonrpc":"2.0","method":"n",{unsaid}}}"#), "notification n -");
        check_server(r#"{"jsonrpc":"2.0","id":"server-error","error":{}}"#, "Foreign error {}");
        check_server(r#"{"jsonrpc":"2.0","id":-7,"result":{}}"#, "Foreign result {}");
        check_server(r#"{"error":{}}"#, "Nobody error {}");
    }

    #[test]
    fn errors_that_are_passed_on_can_be_read() {
        for (error, expected) in [
            (r#"{"code":-1,"message":"m","x":1}"#, r#"{"code":-1,"message":"m","x":1}"#),
            (r#"{"code":-1.0,"message":"m"}"#, r#"{"code":-1.0,"message":"m"}"#),
            (r#"{"code":"E","message":"m","x":1}"#, r#"{"code":-32603,"message":"m","x":1}"#),
            (r#"{"code":1.5,"message":""}"#, r#"{"code":-32603,"message":""}"#),
            (r#"{"code":1,"message":null}"#, r#"{"code":1,"message":"the server gave no reason"}"#),
            ("{}", r#"{"code":-32603,"message":"the server gave no reason"}"#),
        ] {
            let mut out = Vec::new();
            write_sound_error(&mut out, Scanner::default().scan_str(error).unwrap().root());
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn spellings_of_one_id_share_a_key() {
        let key = |raw: &str| Id::from_raw(raw).expect("an id").key();
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

    #[test]
    fn whole_numbers_are_read_as_the_library_reads_them() {
        for raw in ["", "0", "7", "-1", "1.5", "1e3", "\"7\"", "9999999999999999999", "18446744073709551615"]
        {
            assert_eq!(whole_number(raw), raw.parse().ok(), "{raw}");
        }
        assert_eq!(whole_number("18446744073709551616"), None);
    }

    #[test]
    fn numbers_are_written_as_the_library_writes_them() {
        let powers = std::iter::successors(Some(1_u64), |power| power.checked_mul(10));
        let numbers = powers.flat_map(|power| [power - 1, power, power + 1, power / 2 * 3]);
        for number in numbers.chain([u64::MAX]) {
            let mut written = Vec::new();
            write_number(&mut written, number);
            assert_eq!(String::from_utf8(written).expect("digits"), number.to_string());
        }
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
            let raw = |out: &mut Vec<u8>| out.extend_from_slice(payload.as_bytes());
            let mut messages: [Vec<u8>; 4] = Default::default();
            let id = Id::Number(number);
            let key = quote(&text);
            let object = format!("{{{key}:{payload}}}");
            write_request(&mut messages[0], number, &method, |out| out.extend_from_slice(object.as_bytes()));
            write_notification(&mut messages[1], &method, raw);
            write_result(&mut messages[2], &id, |out| out.extend_from_slice(object.as_bytes()));
            write_raw_error(&mut messages[3], Some(&id), |out| out.extend_from_slice(object.as_bytes()));
            let mut scanners: [Scanner; 4] = Default::default();
            for (message, scanner) in messages.iter().zip(&mut scanners) {
                match Message::read(scanner.scan(message).expect("it is JSON").root()).expect("it is a message") {
                    Message::Request(Request { id, method: read, params, .. }) => {
                        prop_assert_eq!((&*id.raw(), &*read), (&*number.to_string(), &*method));
                        prop_assert_eq!(params.map(Node::raw), Some(&*object));
                    }
                    Message::Notification { method: read, params } => {
                        prop_assert_eq!((&*read, params.map(Node::raw)), (&*method, Some(&*payload)));
                    }
                    Message::Response { to, outcome: Outcome::Result(node) | Outcome::Error(node), says_version } => {
                        prop_assert_eq!((to, node.raw()), (AnswerTo::Ours(number), &*object));
                        prop_assert!(says_version);
                    }
                    Message::Response { outcome: Outcome::Malformed(what), .. } => prop_assert!(false, "{}", what),
                }
            }
        }
    }
}
