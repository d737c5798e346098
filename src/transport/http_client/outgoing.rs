//! An outgoing message: its kind, and the headers that the modern era requires.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::json::{Node, Scanner};
use crate::protocol::era::meta;
use crate::protocol::message::{Message, Request};
use crate::protocol::tool_headers::{ToolHeaders, encode_value};

/// The header `MCP-Protocol-Version`.
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// One message with everything that sending it needs.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) kind: OutgoingKind,
    /// The method; empty for a response.
    pub(super) method: String,
    /// The headers of a modern message; empty for a legacy one.
    pub(super) headers: HeaderMap,
    /// Whether the message's own `_meta` makes it modern.
    pub(super) modern: bool,
    pub(super) body: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutgoingKind {
    /// A request with our id.
    Request(u64),
    /// A notification, and the request of ours that it cancels, if it does.
    Notification {
        cancels: Option<u64>,
    },
    Response,
}

impl Outgoing {
    /// Reads the envelope; `None` if the text is not a message that we could have written.
    pub(super) fn read(message: Vec<u8>, tools: &ToolHeaders) -> Option<Self> {
        let mut scanner = Scanner::default();
        let body = Bytes::from(message);
        let (kind, method, params) = match Message::read(scanner.scan(&body).ok()?.root()).ok()? {
            Message::Request(Request { id, method, params, .. }) => {
                (OutgoingKind::Request(id.raw().parse().ok()?), method, params)
            }
            Message::Notification { method, params } => {
                let cancels = match &*method {
                    "notifications/cancelled" => params.and_then(|params| params.get("requestId")),
                    _ => None,
                };
                let cancels = cancels.and_then(|id| id.raw().parse().ok());
                (OutgoingKind::Notification { cancels }, method, params)
            }
            Message::Response { .. } => {
                let body = body.clone();
                return Some(Self {
                    kind: OutgoingKind::Response,
                    method: String::new(),
                    headers: HeaderMap::new(),
                    modern: false,
                    body,
                });
            }
        };
        let version = params.and_then(|params| params.get("_meta")).and_then(|meta| meta.get(meta::VERSION));
        let version = version.and_then(Node::as_str);
        let mut headers = HeaderMap::new();
        if let Some(version) = &version {
            modern_headers(&mut headers, version, &method, params, tools);
        }
        Some(Self {
            kind,
            method: method.into_owned(),
            headers,
            modern: version.is_some(),
            body: body.clone(),
        })
    }

    /// Whether the message calls something that a list offers.
    pub(super) fn is_call(&self) -> bool {
        matches!(self.method.as_str(), "tools/call" | "prompts/get" | "resources/read")
    }

    /// Whether the message begins a legacy session.
    pub(super) fn is_initialize(&self) -> bool {
        self.method == "initialize" && !self.modern
    }
}

fn modern_headers(
    headers: &mut HeaderMap,
    version: &str,
    method: &str,
    params: Option<Node<'_>>,
    tools: &ToolHeaders,
) {
    let mut insert = |name: HeaderName, value: &str| {
        let value = HeaderValue::from_str(&encode_value(value)).expect("an encoded value is visible ASCII");
        headers.insert(name, value);
    };
    let param = |key: &str| params.and_then(|params| params.get(key)).and_then(Node::as_str);
    insert(PROTOCOL_VERSION, version);
    insert(HeaderName::from_static("mcp-method"), method);
    let name = match method {
        "tools/call" | "prompts/get" => param("name"),
        "resources/read" => param("uri"),
        method if method.starts_with("tasks/") => param("taskId"),
        _ => None,
    };
    let Some(name) = name else { return };
    insert(HeaderName::from_static("mcp-name"), &name);
    if method == "tools/call" {
        let arguments = params.and_then(|params| params.get("arguments")).map_or("{}", Node::raw);
        for (suffix, value) in tools.of_call(&name, arguments) {
            match HeaderName::try_from(format!("mcp-param-{suffix}")) {
                Ok(header) => insert(header, &value),
                Err(_) => {
                    tracing::debug!("the x-mcp-header of a parameter is not a header name and is not sent")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::protocol::tool_headers::ToolHeader;

    fn check(message: &str, expected: &str) {
        let tools = ToolHeaders::default();
        let header = ToolHeader { path: vec!["where".into()], suffix: "Region".into() };
        tools.set(HashMap::from([("weather".to_owned(), vec![header])]));
        let shown = match Outgoing::read(message.as_bytes().to_vec(), &tools) {
            None => "nothing".to_owned(),
            Some(out) => {
                let mut shown = format!("{:?} {}", out.kind, out.method);
                for (name, value) in &out.headers {
                    shown += &format!(" {name}: {}", value.to_str().unwrap());
                }
                shown
            }
        };
        assert_eq!(shown, expected, "{message}");
    }

    #[test]
    fn messages_are_read() {
        check(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#, "Request(1) initialize");
        check("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n", "Request(1) ping");
        check(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
            "Notification { cancels: Some(7) } notifications/cancelled",
        );
        check(r#"{"jsonrpc":"2.0","id":"theirs","result":{}}"#, "Response ");
        check(r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#, "nothing");
        check("[]", "nothing");
    }

    #[test]
    fn modern_messages_are_mirrored_into_headers() {
        let modern = |method: &str, params: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}"_meta":{{"{}":"2026-07-28"}}}}}}"#,
                meta::VERSION
            )
        };
        for (method, params, headers) in [
            ("server/discover", "", ""),
            ("tools/list", r#""name":"no","#, ""),
            ("tools/call", r#""name":"t","#, " mcp-name: t"),
            ("tools/call", r#""name":"\u00e4","#, " mcp-name: =?base64?w6Q=?="),
            (
                "tools/call",
                r#""name":"weather","arguments":{"where":"us"},"#,
                " mcp-name: weather mcp-param-region: us",
            ),
            ("tools/call", r#""name":"weather","arguments":{"where":null},"#, " mcp-name: weather"),
            ("prompts/get", r#""name":"p","#, " mcp-name: p"),
            ("resources/read", r#""name":"no","uri":"file:///a b","#, " mcp-name: file:///a b"),
            ("tasks/get", r#""taskId":"7","#, " mcp-name: 7"),
        ] {
            check(
                &modern(method, params),
                &format!(
                    "Request(1) {method} mcp-protocol-version: 2026-07-28 mcp-method: {method}{headers}"
                ),
            );
        }
    }
}
