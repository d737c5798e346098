//! A person tries a tool: the call, and its result in the parts that a page can show. What the console has started
//! for that ends a minute after its last use.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::super::Gateway;
use super::super::backend::CancelOnDrop;
use crate::config::Redactor;
use crate::core::observed;
use crate::core::session::ClientSession;
use crate::core::upstream::{Upstream, by_hand};
use crate::json::{Raw, quote};
use crate::protocol::message::Id;
use crate::transport::peer::Answer;

/// How long a server that the console has started may be unused.
pub const UNUSED: Duration = Duration::from_secs(60);
/// The longest text that a page is given.
const LONGEST: usize = 256 * 1024;

/// Calls a tool by the server's own name, and returns what the page shows of the result. If the page goes away,
/// the call is cancelled. A server that was started for it ends when it has been unused for this long.
pub(super) async fn call(
    gateway: &Arc<Gateway>,
    session: &Arc<ClientSession>,
    upstream: &Arc<Upstream>,
    (tool, arguments): (&str, &str),
    unused: Duration,
) -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = Id::Number(NEXT.fetch_add(1, Ordering::Relaxed));
    let was_up = upstream.is_up();
    let params = Raw::own(format!("{{\"name\":{},\"arguments\":{arguments}}}", quote(tool)));
    let lost = |why: &str| json!({"outcome": "lost", "blocks": [{"kind": "text", "text": why}]});
    let Some(mut reply) = session.accept(id.clone(), None, None, None) else {
        return lost("the gateway is shutting down");
    };
    observed::begin(&gateway.engine, "tools/call", params.root(), &mut reply);
    let redactor = gateway.engine.secrets_of(upstream);
    let (send, shown) = oneshot::channel();
    gateway.engine.forward(upstream, "tools/call", params.root(), &[], reply, move |answer, reply| {
        let _ = send.send(match answer {
            Answer::Result(result) => show(result.raw(), &redactor),
            Answer::Error(error) => {
                json!({"outcome": "error", "blocks": [{"kind": "json", "text": redactor.redact(error.raw())}]})
            }
            Answer::Lost(lost) => {
                json!({"outcome": "lost", "blocks": [{"kind": "text", "text": redactor.redact(&lost.message)}]})
            }
        });
        reply.result("{}");
    });
    let _cancel = CancelOnDrop { gateway: gateway.clone(), session: session.clone(), id };
    let shown = shown.await.unwrap_or_else(|_| lost("the call was given up"));
    if !was_up {
        let (engine, upstream) = (gateway.engine.clone(), upstream.clone());
        tokio::spawn(async move { by_hand::stop_when_unused(&engine, &upstream, unused).await });
    }
    shown
}

/// A result, and a block of it, as far as the page tells their parts apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownResult<'a> {
    #[serde(borrow, default)]
    content: Vec<&'a RawValue>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<Cow<'a, str>>,
    #[serde(borrow)]
    mime_type: Option<Cow<'a, str>>,
}

/// The parts of a result, with its texts and JSON as they came.
fn show(result: &str, redactor: &Redactor) -> Value {
    let mut is_cut = false;
    let mut cut = |text: &str| {
        let text = redactor.redact(text);
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => {
                is_cut = true;
                text[..end].to_owned()
            }
            None => text.into_owned(),
        }
    };
    let Ok(parts) = serde_json::from_str::<ShownResult<'_>>(result) else {
        return json!({"outcome": "ok", "blocks": [{"kind": "json", "text": cut(result)}]});
    };
    let mut blocks = Vec::new();
    for block in parts.content {
        blocks.push(match serde_json::from_str(block.get()) {
            Ok(ShownBlock { kind, text: Some(text), .. }) if kind == "text" => {
                json!({"kind": "text", "text": cut(&text)})
            }
            Ok(ShownBlock { kind, data: Some(data), mime_type: Some(mime), .. }) if kind == "image" => {
                json!({"kind": "image", "mime": mime, "data": data})
            }
            _ => json!({"kind": "json", "text": cut(block.get())}),
        });
    }
    if let Some(structured) = parts.structured_content {
        blocks.push(json!({"kind": "json", "text": cut(structured.get())}));
    }
    if blocks.is_empty() {
        blocks.push(json!({"kind": "json", "text": cut(result)}));
    }
    let note = is_cut.then_some("Long texts are cut here; the verb `call` prints all of them.");
    json!({"outcome": if parts.is_error { "tool_error" } else { "ok" }, "blocks": blocks, "note": note})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_shown_in_parts_and_numbers_as_they_came() {
        let shown = |result: &str| show(result, &Redactor::default());
        let result = r#"{"content":[{"type":"text","text":"a\nb"},{"type":"image","data":"aGk=","mimeType":"image/png"},
            {"type":"audio","data":"x"}],"structuredContent":{"n":9007199254740993}}"#;
        assert_eq!(
            shown(result),
            json!({"outcome": "ok", "note": null, "blocks": [
                {"kind": "text", "text": "a\nb"},
                {"kind": "image", "mime": "image/png", "data": "aGk="},
                {"kind": "json", "text": r#"{"type":"audio","data":"x"}"#},
                {"kind": "json", "text": r#"{"n":9007199254740993}"#},
            ]})
        );
        assert_eq!(shown(r#"{"content":[],"isError":true}"#)["outcome"], "tool_error");
        for odd in [r#"{"content":7}"#, "[]", r#"{"x":1}"#] {
            assert_eq!(shown(odd)["blocks"], json!([{"kind": "json", "text": odd}]), "{odd}");
        }
        let long = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "é".repeat(LONGEST + 1));
        let cut = shown(&long);
        assert_eq!(cut["blocks"][0]["text"].as_str().map(|text| text.chars().count()), Some(LONGEST));
        assert!(cut["note"].as_str().is_some_and(|note| note.contains("call")));
    }
}
