//! Upstreams' questions in the form of the other era, and the capabilities that a client needs to be asked.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::json;
use serde_json::value::RawValue;

use crate::core::reply::Reply;
use crate::json::{Node, Scanner, quote};
use crate::protocol::era::{declares, declares_at};
use crate::protocol::message::code;

/// A capability that a client must have declared to be asked something, and the part of it that matters, if
/// any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) struct Needed {
    pub(in crate::core) capability: &'static str,
    part: Option<&'static str>,
}

impl Needed {
    /// The capability to send a person to a page.
    pub(super) const PAGE: Self = Self { capability: "elicitation", part: Some("url") };

    /// The capability that this question needs; `None` if no rule names the method.
    pub(in crate::core) fn of(method: &str, params: Option<Node<'_>>) -> Option<Self> {
        let member = |key| params.and_then(|params| params.get(key));
        let part_of = |capability, part| Some(Self { capability, part });
        match method {
            "elicitation/create" if member("mode").is_some_and(|mode| mode.raw() == "\"url\"") => {
                Some(Self::PAGE)
            }
            "elicitation/create" => part_of("elicitation", Some("form")),
            "sampling/createMessage" if member("tools").or(member("toolChoice")).is_some() => {
                part_of("sampling", Some("tools"))
            }
            "sampling/createMessage" => part_of("sampling", None),
            "roots/list" => part_of("roots", None),
            _ => None,
        }
    }

    /// Whether these raw capabilities include it. A client whose elicitation does not mention pages can do
    /// forms.
    pub(in crate::core) fn is_in(self, capabilities: &str) -> bool {
        let has = |part| declares_at(capabilities, &[self.capability, part]);
        declares(capabilities, self.capability)
            && match self.part {
                None => true,
                Some("form") => has("form") || !has("url"),
                Some(part) => has(part),
            }
    }
}

impl fmt::Display for Needed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Some(part) => write!(out, "{}.{part}", self.capability),
            None => out.write_str(self.capability),
        }
    }
}

/// The capabilities that a modern upstream's result needs and the client's raw capabilities lack.
pub(super) fn missing(result: Node<'_>, capabilities: &str) -> BTreeSet<Needed> {
    let asked = result.get("inputRequests").into_iter().flat_map(Node::members);
    asked
        .filter_map(|(_, request)| Needed::of(&request.get("method")?.as_str()?, request.get("params")))
        .filter(|needed| !needed.is_in(capabilities))
        .collect()
}

/// A legacy upstream's question in the form for a modern client.
pub(super) fn request(method: &str, params: Option<Node<'_>>) -> String {
    let mut request = format!("{{\"method\":{},\"params\":", quote(method)).into_bytes();
    match params {
        // The modern era has no such ids.
        Some(params) => params.write_with(&mut request, &[("elicitationId", None)]),
        None => request.extend_from_slice(b"{}"),
    }
    request.push(b'}');
    String::from_utf8(request).expect("written from UTF-8 texts")
}

/// The pages that a legacy upstream's error names, as questions to a modern client in the form of an object's
/// members.
pub(super) fn visits(error: Node<'_>) -> String {
    let list = error.get("data").and_then(|data| data.get("elicitations")).map_or("[]", Node::raw);
    let list: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    let mut scanner = Scanner::default();
    let visits: Vec<_> = list
        .iter()
        .enumerate()
        .map(|(index, elicitation)| {
            let node = scanner.scan_str(elicitation.get()).expect("a part of valid JSON").root();
            let mut params = Vec::new();
            node.write_with(&mut params, &[("mode", Some("\"url\"")), ("elicitationId", None)]);
            let params = String::from_utf8(params).expect("written from UTF-8 texts");
            format!("\"visit-{}\":{{\"method\":\"elicitation/create\",\"params\":{params}}}", index + 1)
        })
        .collect();
    visits.join(",")
}

/// Tells a modern client which capabilities this call needs.
pub(super) fn refuse_missing(reply: Reply, missing: &BTreeSet<Needed>) {
    let mut required = serde_json::Map::new();
    for needed in missing {
        let parts = required.entry(needed.capability).or_insert_with(|| json!({}));
        if let Some(part) = needed.part {
            parts[part] = json!({});
        }
    }
    let names: Vec<_> = missing.iter().map(Needed::to_string).collect();
    let message = format!("the server asks for what the client does not support: {}", names.join(", "));
    let data = json!({"requiredCapabilities": required}).to_string();
    reply.error(code::MISSING_CAPABILITY, &message, Some(&data));
}

/// The result that asks a modern client these questions (members of an object), with the state to bring back.
pub(super) fn input_required(requests: &str, sealed: &str) -> String {
    format!(
        "{{\"resultType\":\"input_required\",\"inputRequests\":{{{requests}}},\"requestState\":{}}}",
        quote(sealed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on<R>(text: &str, read: impl FnOnce(Node<'_>) -> R) -> R {
        read(Scanner::default().scan_str(text).expect("JSON").root())
    }

    #[test]
    fn a_client_is_asked_what_it_can_answer() {
        let form = r#"{"a":{"method":"elicitation/create","params":{"message":"m"}}}"#;
        let page = r#"{"a":{"method":"elicitation/create","params":{"mode":"url"}}}"#;
        let sample = r#"{"a":{"method":"sampling/createMessage"}}"#;
        let with_tools = r#"{"a":{"method":"sampling/createMessage","params":{"tools":[]}}}"#;
        let both =
            r#"{"a":{"method":"roots/list"},"b":{"method":"elicitation/create","params":{"mode":"url"}}}"#;
        for (requests, capabilities, expected) in [
            (form, "{}", "elicitation.form"),
            (form, r#"{"elicitation":{}}"#, ""),
            (form, r#"{"elicitation":{"url":{}}}"#, "elicitation.form"),
            (page, r#"{"elicitation":{}}"#, "elicitation.url"),
            (page, r#"{"elicitation":{"url":{}}}"#, ""),
            (sample, r#"{"sampling":{}}"#, ""),
            (with_tools, r#"{"sampling":{}}"#, "sampling.tools"),
            (with_tools, r#"{"sampling":{"tools":{}}}"#, ""),
            (both, "{}", "elicitation.url roots"),
            (r#"{"a":{"method":"of/another/kind"},"b":{}}"#, "{}", ""),
        ] {
            let result = format!(r#"{{"inputRequests":{requests}}}"#);
            let missing = on(&result, |result| missing(result, capabilities));
            let names: Vec<_> = missing.iter().map(Needed::to_string).collect();
            assert_eq!(names.join(" "), expected, "{requests} with {capabilities}");
        }
    }

    #[test]
    fn questions_lose_the_ids_that_the_modern_era_does_not_have() {
        let params = r#"{"mode":"url","elicitationId":"7","url":"u"}"#;
        let shown = on(params, |params| request("elicitation/create", Some(params)));
        assert_eq!(shown, r#"{"method":"elicitation/create","params":{"mode":"url","url":"u"}}"#);
        assert_eq!(request("roots/list", None), r#"{"method":"roots/list","params":{}}"#);
        for (error, expected) in [
            (
                r#"{"data":{"elicitations":[{"elicitationId":"7","url":"u"},{"url":"v","mode":"url"}]}}"#,
                concat!(
                    r#""visit-1":{"method":"elicitation/create","params":{"url":"u","mode":"url"}},"#,
                    r#""visit-2":{"method":"elicitation/create","params":{"url":"v","mode":"url"}}"#
                ),
            ),
            (r#"{"data":{"elicitations":7}}"#, ""),
            ("{}", ""),
        ] {
            assert_eq!(on(error, visits), expected, "{error}");
        }
    }
}
