//! Headers of a message: the media types, and the modern headers that must agree with the body.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{self, HeaderMap, HeaderName};

use super::guard::{Repeated, single};
use crate::json::{Node, Scanner};
use crate::protocol::era::{ModernMeta, Version, meta, unsupported};
use crate::protocol::message::{Refusal, Request, code};
use crate::protocol::tool_headers;

pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// `Accept` as nearly all clients spell it, which takes a tenth of the time of reading it.
const USUAL: &str = "application/json, text/event-stream";

/// The kinds of answer that a client accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Accepted {
    pub(super) json: bool,
    pub(super) events: bool,
}

impl Accepted {
    /// Reads `Accept`. A request without it accepts everything.
    pub(super) fn read(headers: &HeaderMap) -> Self {
        if let Ok(Some(USUAL)) = single(headers, &header::ACCEPT) {
            return Self { json: true, events: true };
        }
        // Whether each kind of range is accepted, by the first of its name.
        let [mut json, mut events, mut application, mut text, mut all] = [None; 5];
        let mut is_silent = true;
        for range in ranges(headers) {
            is_silent = false;
            let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
            let slot = match name.trim() {
                name if name.eq_ignore_ascii_case("application/json") => &mut json,
                name if name.eq_ignore_ascii_case("text/event-stream") => &mut events,
                name if name.eq_ignore_ascii_case("application/*") => &mut application,
                name if name.eq_ignore_ascii_case("text/*") => &mut text,
                "*/*" => &mut all,
                _ => continue,
            };
            slot.get_or_insert_with(|| !parameters.split(';').any(is_zero_quality));
        }
        // The most specific range decides.
        Self {
            json: json.or(application).or(all).unwrap_or(is_silent),
            events: events.or(text).or(all).unwrap_or(is_silent),
        }
    }
}

/// Whether `Accept` names pages, as browsers do.
pub(super) fn names_html(headers: &HeaderMap) -> bool {
    is_accepted(headers, "text/html") == Some(true)
}

/// Whether the range of this name is accepted; `None` where `Accept` does not name it.
fn is_accepted(headers: &HeaderMap, name: &str) -> Option<bool> {
    ranges(headers).find_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        parts.next()?.eq_ignore_ascii_case(name).then(|| !parts.any(is_zero_quality))
    })
}

/// The media ranges of `Accept`.
fn ranges(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::ACCEPT).iter();
    let ranges = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    ranges.map(|range| str::from_utf8(range).unwrap_or("?").trim()).filter(|range| !range.is_empty())
}

fn is_zero_quality(parameter: &str) -> bool {
    parameter
        .split_once('=')
        .is_some_and(|(name, value)| name.trim().eq_ignore_ascii_case("q") && value.trim().parse() == Ok(0.0))
}

/// Whether the body is declared as plain JSON.
pub(in crate::gateway) fn is_json(headers: &HeaderMap) -> bool {
    let encoded = headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
    let Ok(Some(kind)) = single(headers, &header::CONTENT_TYPE) else { return false };
    let essence = kind.split(';').next().unwrap_or_default().trim();
    !encoded && essence.eq_ignore_ascii_case("application/json")
}

/// Whether the version header says that the request is modern.
pub(super) fn says_modern(headers: &HeaderMap) -> bool {
    headers.get(PROTOCOL_VERSION).is_some_and(|version| version == Version::MODERN.as_str())
}

fn mismatch(message: String) -> Refusal {
    Refusal::new(code::HEADER_MISMATCH, format!("Header mismatch: {message}"))
}

/// Checks the version header of a legacy request, which must be absent or a version that we speak.
pub(super) fn legacy_version(headers: &HeaderMap) -> Result<(), Refusal> {
    match single(headers, &PROTOCOL_VERSION) {
        Ok(None) => Ok(()),
        Ok(Some(version)) if Version::legacy(version).is_some() => Ok(()),
        Ok(Some(version)) => Err(unsupported(version, false)),
        Err(Repeated) => Err(unsupported("", false)),
    }
}

/// Checks a modern request: its `_meta` must be complete, no key that we route by may occur twice, and
/// headers and body must agree. [`mirror`] checks the headers for a tool's parameters.
pub(super) fn agree(headers: &HeaderMap, request: &Request<'_>) -> Result<(), Refusal> {
    let meta = request.meta.ok_or_else(|| ModernMeta::lacks(meta::VERSION))?;
    let (method, params) = (&*request.method, request.params.unwrap_or_else(Node::empty));
    must_equal(headers, &PROTOCOL_VERSION, "MCP-Protocol-Version", &meta.version()?)?;
    meta.checked()?;
    must_equal(headers, &METHOD, "Mcp-Method", method)?;
    let (keys, inner) = routed_by(method);
    stand_once(params, keys, "params")?;
    let Some(first) = keys.first() else { return Ok(()) };
    let named = params.get(first);
    if let Some(object) = named {
        stand_once(object, inner, first)?;
    }
    let must_be_named = matches!(method, "tools/call" | "prompts/get" | "resources/read");
    match must_be_named || *first == "taskId" && headers.contains_key(NAME) {
        true => must_hold(headers, &NAME, "Mcp-Name", named.and_then(Node::as_str).as_deref(), false),
        false => Ok(()),
    }
}

/// The keys of `params` that we route by, and those inside the first of them.
fn routed_by(method: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match method {
        "tools/call" => (&["name", "arguments", "requestState", "inputResponses"], &[]),
        "prompts/get" => (&["name", "requestState", "inputResponses"], &[]),
        "resources/read" => (&["uri", "requestState", "inputResponses"], &[]),
        "completion/complete" => (&["ref"], &["type", "name", "uri"]),
        "subscriptions/listen" => (
            &["notifications"],
            &[
                "toolsListChanged",
                "promptsListChanged",
                "resourcesListChanged",
                "resourceSubscriptions",
                "taskIds",
            ],
        ),
        _ if method.starts_with("tasks/") => (&["taskId"], &[]),
        _ => (&[], &[]),
    }
}

fn stand_once(object: Node<'_>, keys: &[&str], place: &str) -> Result<(), Refusal> {
    if object.repeats(keys) { Err(Refusal::twice(place)) } else { Ok(()) }
}

/// The headers that mirror parameters of a tool.
pub(super) fn mirrored(headers: &HeaderMap) -> HeaderMap {
    let mut own = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| name.as_str().starts_with("mcp-param-")) {
        own.append(name, value.clone());
    }
    own
}

/// Checks that the headers mirror the arguments of a call: each parameter that the tool's raw input schema
/// marks must appear once, if the call has it.
pub(in crate::gateway) fn mirror(
    headers: &HeaderMap,
    schema: &str,
    arguments: Option<Node<'_>>,
) -> Result<(), Refusal> {
    for marked in tool_headers::read_schema(schema).unwrap_or_default() {
        let title = format!("Mcp-Param-{}", marked.suffix);
        let Ok(header) = HeaderName::from_bytes(title.as_bytes()) else { continue };
        match arguments.and_then(|arguments| value_at(arguments.raw(), &marked.path)) {
            Some((value, is_text)) => must_hold(headers, &header, &title, Some(&value), !is_text)?,
            None if headers.contains_key(&header) => {
                let words = format!("{title} names a parameter that the body does not have");
                return Err(mismatch(words));
            }
            None => {}
        }
    }
    Ok(())
}

/// Checks that the header occurs once and equals this text.
fn must_equal(headers: &HeaderMap, header: &HeaderName, title: &str, body: &str) -> Result<(), Refusal> {
    let value = once(headers, header, title)?;
    if value == body { Ok(()) } else { Err(differs(title, value, Some(body))) }
}

/// Checks that the header occurs once and equals this value after decoding.
fn must_hold(
    headers: &HeaderMap,
    header: &HeaderName,
    title: &str,
    body: Option<&str>,
    is_number: bool,
) -> Result<(), Refusal> {
    let raw = once(headers, header, title)?;
    let value = decoded(raw).ok_or_else(|| mismatch(format!("{title} is not encoded as it should be")))?;
    if body.is_some_and(|body| *value == *body || is_number && same_integer(&value, body)) {
        Ok(())
    } else {
        Err(differs(title, &value, body))
    }
}

fn once<'a>(headers: &'a HeaderMap, header: &HeaderName, title: &str) -> Result<&'a str, Refusal> {
    match single(headers, header) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(mismatch(format!("{title} is missing"))),
        Err(Repeated) => Err(mismatch(format!("{title} must be sent once, in plain ASCII"))),
    }
}

fn differs(title: &str, header: &str, body: Option<&str>) -> Refusal {
    mismatch(match body {
        Some(body) => format!("{title} header value '{header}' does not match body value '{body}'"),
        None => format!("{title} header value '{header}' has no equivalent in the body"),
    })
}

/// The value of a header that may be written `=?base64?…?=`.
fn decoded(raw: &str) -> Option<Cow<'_, str>> {
    match raw.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(Cow::Borrowed(raw)),
        Some(encoded) => String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned),
    }
}

/// The value at a path of object keys in the form of a header value, and whether it is text; `None` for
/// `null` and for a missing value.
fn value_at(object: &str, path: &[String]) -> Option<(String, bool)> {
    let mut scanner = Scanner::default();
    let Some((key, rest)) = path.split_first() else {
        let node = scanner.scan_str(object).ok()?.root();
        return match node.as_str() {
            Some(text) => Some((text.into_owned(), true)),
            None if node.raw() == "null" => None,
            None => Some((node.raw().to_owned(), false)),
        };
    };
    value_at(scanner.scan_str(object).ok()?.root().get(key)?.raw(), rest)
}

/// Whether both are the same whole number, as `42` and `42.0` are.
fn same_integer(one: &str, other: &str) -> bool {
    let whole = |text: &str| {
        let (digits, fraction) = text.split_once('.').unwrap_or((text, "0"));
        (!fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0'))
            .then(|| digits.parse::<i64>().ok())?
    };
    whole(one).is_some_and(|number| whole(other) == Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODERN: &str = Version::MODERN.as_str();
    use crate::json::Raw;
    use crate::protocol::message::Message;
    use crate::protocol::tool_headers::encode_value;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn accept() {
        for (accept, json, events) in [
            (&[][..], true, true),
            (&["application/json, text/event-stream"], true, true),
            (&["application/json", "text/event-stream;q=0.5"], true, true),
            (&["*/*"], true, true),
            (&["text/*"], false, true),
            (&["application/*;q=0.1"], true, false),
            (&["*/*, text/event-stream; q=0"], true, false),
            (&["TEXT/EVENT-STREAM"], false, true),
            (&["text/html"], false, false),
            (&[""], true, true),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            assert_eq!(Accepted::read(&headers), Accepted { json, events }, "{accept:?}");
        }
    }

    #[test]
    fn whole_numbers_and_encoded_values() {
        assert!(same_integer("42.0", "42") && same_integer("-7", "-7.00"));
        assert!(!same_integer("42.5", "42") && !same_integer("", "") && !same_integer("42.", "42"));
        assert_eq!(decoded("=?base64?SGVsbG8sIOS4lueVjA==?=").as_deref(), Some("Hello, 世界"));
        assert_eq!(decoded("=?base64?%?="), None);
        assert_eq!(decoded("=?BASE64?eA==?=").as_deref(), Some("=?BASE64?eA==?="));
    }

    /// A schema with parameters that belong in headers.
    const MARKED: &str = r#"{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},
        "a":{"properties":{"b":{"properties":{"c":{"type":"integer","x-mcp-header":"Deep"}}}}}}}"#;

    #[test]
    fn headers_mirror_the_parameters_that_a_tool_marks() {
        for (headers, arguments, agrees) in [
            (&[("mcp-param-region", "eu")][..], r#"{"region":"eu"}"#, true),
            (&[("mcp-param-region", "=?base64?ZcO8?=")], r#"{"region":"eü"}"#, true),
            (&[("mcp-param-deep", "42.0")], r#"{"a":{"b":{"c":42}}}"#, true),
            (&[], r#"{"region":null}"#, true),
            (&[("mcp-param-other", "eu")], "{}", true),
            (&[], r#"{"region":"eu"}"#, false),
            (&[("mcp-param-region", "us")], r#"{"region":"eu"}"#, false),
            (&[("mcp-param-region", "eu")], "{}", false),
            (&[("mcp-param-region", "eu"), ("mcp-param-region", "eu")], r#"{"region":"eu"}"#, false),
        ] {
            let mut all = HeaderMap::new();
            all.insert(METHOD, header::HeaderValue::from_static("tools/call"));
            for (name, value) in headers {
                all.append(HeaderName::from_static(name), header::HeaderValue::from_static(value));
            }
            let arguments = Raw::own(arguments);
            let arguments = arguments.root();
            let outcome = mirror(&mirrored(&all), MARKED, Some(arguments));
            let expected = if agrees { Ok(()) } else { Err(code::HEADER_MISMATCH) };
            assert_eq!(outcome.map_err(|refusal| refusal.code), expected, "{headers:?} {}", arguments.raw());
        }
    }

    /// Whether the headers agree with a call of this tool whose argument belongs in a header.
    fn agrees(headers: &HeaderMap, tool: &str, argument: &str) -> Result<(), i64> {
        let params = json!({
            "name": tool, "arguments": {"region": argument},
            "_meta": {meta::VERSION: MODERN, meta::CAPABILITIES: {}},
        });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let body = Raw::own(body.to_string());
        let Ok(Message::Request(request)) = Message::read(body.root()) else { panic!("it is a request") };
        let arguments = request.params.and_then(|params| params.get("arguments"));
        let agreed = agree(headers, &request).and_then(|()| mirror(headers, MARKED, arguments));
        agreed.map_err(|refusal| refusal.code)
    }

    proptest! {
        #[test]
        fn headers_agree_with_the_body_they_were_made_from_and_with_no_other(
            tool in any::<String>(), argument in any::<String>(), other in any::<String>(), which in 0..4usize
        ) {
            let mut headers = HeaderMap::new();
            for (name, value) in [
                ("mcp-protocol-version", MODERN.into()),
                ("mcp-method", "tools/call".into()),
                ("mcp-name", encode_value(&tool)),
                ("mcp-param-region", encode_value(&argument)),
            ] {
                headers.insert(HeaderName::from_static(name), value.parse().expect("encoded so that it fits"));
            }
            prop_assert_eq!(agrees(&headers, &tool, &argument), Ok(()));
            let (name, value) = [
                (PROTOCOL_VERSION, MODERN),
                (METHOD, "tools/call"),
                (NAME, &tool),
                (HeaderName::from_static("mcp-param-region"), &argument),
            ][which].clone();
            prop_assume!(value != other);
            headers.insert(name.clone(), encode_value(&other).parse().expect("encoded so that it fits"));
            prop_assert_eq!(agrees(&headers, &tool, &argument), Err(code::HEADER_MISMATCH), "another value");
            headers.remove(&name);
            prop_assert_eq!(agrees(&headers, &tool, &argument), Err(code::HEADER_MISMATCH), "no value");
        }
    }
}
