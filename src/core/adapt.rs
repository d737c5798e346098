//! Adapts results to a client of another protocol version. Every answer to a client's call goes through
//! [`deliver`], lists of tools go through [`tools`], and single definitions of tools through [`tool`].
//!
//! Invariant: nothing is changed between equal versions, and whatever no rule names passes unchanged.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use serde_json::value::RawValue;

use super::connection::Connection;
use super::reply::Reply;
use super::session::ClientSession;
use super::tasks;
use super::upstream::Upstream;
use crate::catalog::{KindItems, Rendered};
use crate::json::{MemberChange, Node, Raw, Scanner, quote};
use crate::protocol::era::Version;
use crate::transport::peer::Answer;

/// Finishes a request with its answer in the client's form: with the client's ids of tasks, and in its
/// version. `progress` is the client's own token, raw.
pub(super) fn deliver(
    connection: &Arc<Connection>,
    method: &str,
    progress: Option<Box<str>>,
    answer: Answer<'_>,
    mut reply: Reply,
    finish: impl FnOnce(Answer<'_>, Reply),
) {
    let Answer::Result(result) = answer else { return finish(answer, reply) };
    note_links(reply.session(), &connection.upstream, result);
    let begun_by = progress.and_then(|token| Some((reply.sent_as()?, token)));
    let with_tasks = connection.profile.has_tasks().then(|| reply.session().clone());
    let hand_on = |result: Node<'_>| {
        let (from, to) = (connection.version(), reply.version());
        results(from, to, result, |result, changes| {
            reply.level_by(changes);
            finish(Answer::Result(result), reply);
        });
    };
    match with_tasks {
        Some(session) => {
            tasks::results(&session.workspace.tasks, connection, method, begun_by, result, hand_on);
        }
        None => hand_on(result),
    }
}

/// The members that no legacy version has, and the one that must be an object there.
const MODERN_MEMBERS: [MemberChange<'static>; 4] =
    [("resultType", None), ("ttlMs", None), ("cacheScope", None), ("structuredContent", None)];

/// Passes the result on, with the changes to make if the upstream speaks a newer version than the client.
fn results(
    upstream: Version,
    client: Version,
    result: Node<'_>,
    hand_on: impl FnOnce(Node<'_>, &'static [MemberChange<'static>]),
) {
    if upstream <= client {
        return hand_on(result, &[]);
    }
    let is_odd = result.get("structuredContent").is_some_and(|value| !value.is_object());
    let changes: &[_] = match (upstream.is_modern(), is_odd) {
        (true, true) => &MODERN_MEMBERS,
        (true, false) => &MODERN_MEMBERS[..3],
        (false, true) => &MODERN_MEMBERS[3..],
        (false, false) => &[],
    };
    let unknown = |kind: &str| match kind {
        "audio" => upstream >= Version::V2025March && client < Version::V2025March,
        "resource_link" => upstream >= Version::V2025June && client < Version::V2025June,
        _ => false,
    };
    let content = result.get("content").filter(|_| client < Version::V2025June);
    match content.and_then(|content| adapted(content.raw(), unknown)) {
        Some(content) => {
            hand_on(Raw::own(result.with(&[("content", Some(&content))])).root(), changes);
        }
        None => hand_on(result, changes),
    }
}

/// An upstream's tools as a client sees them that does not accept all output schemas: `shown` makes of a
/// definition what the client sees. `None` if the client sees them as they are.
pub(super) fn tools(
    things: &KindItems,
    rendered: &Rendered,
    shown: fn(&str) -> Cow<'_, str>,
) -> Option<Rendered> {
    if !rendered.text().contains("outputSchema") {
        return None;
    }
    let mut differs = false;
    let adapted = rendered.again(things, |_, definition, out| {
        let adapted = shown(definition.raw());
        differs |= matches!(adapted, Cow::Owned(_));
        out.extend_from_slice(adapted.as_bytes());
    });
    differs.then_some(adapted)
}

/// The definition of a tool as legacy clients accept it: an output schema must be that of an object.
pub fn tool(definition: &str) -> Cow<'_, str> {
    static SCHEMA: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("outputSchema"));
    if SCHEMA.find(definition.as_bytes()).is_none() {
        return definition.into();
    }
    let mut scanner = Scanner::default();
    let node = scanner.scan_str(definition).expect("definitions are valid JSON").root();
    let is_object = |schema: Node<'_>| schema.get("type").is_some_and(|kind| kind.raw() == "\"object\"");
    match node.get("outputSchema") {
        Some(schema) if !is_object(schema) => node.with(&[("outputSchema", None)]).into(),
        _ => definition.into(),
    }
}

/// The blocks with those of an unknown type turned into text; `None` if there are none.
fn adapted(blocks: &str, unknown: impl Fn(&str) -> bool) -> Option<String> {
    let blocks: Vec<&RawValue> = serde_json::from_str(blocks).ok()?;
    let mut scanner = Scanner::default();
    let mut changed = false;
    let mut texts = Vec::with_capacity(blocks.len());
    for block in &blocks {
        let node = scanner.scan_str(block.get()).expect("a part of valid JSON is valid").root();
        let kind = node.get("type").and_then(Node::as_str);
        texts.push(match kind.as_deref() {
            Some(kind) if unknown(kind) => {
                changed = true;
                format!("{{\"type\":\"text\",\"text\":{}}}", quote(&describe(kind, node)))
            }
            _ => block.get().to_owned(),
        });
    }
    changed.then(|| format!("[{}]", texts.join(",")))
}

fn describe(kind: &str, block: Node<'_>) -> String {
    let text = |key| block.get(key).and_then(Node::as_str);
    match kind {
        "resource_link" => {
            let mut line = format!("[resource link] {}", text("uri").unwrap_or_default());
            for key in ["name", "description"] {
                if let Some(more) = text(key) {
                    line.push_str(&format!(" - {more}"));
                }
            }
            line
        }
        _ => {
            let bytes = text("data").map_or(0, |data| data.len() / 4 * 3);
            format!("[{kind}: {}, about {bytes} bytes]", text("mimeType").unwrap_or("unknown type".into()))
        }
    }
}

/// Remembers the URIs of the `resource_link`s in a result, so that the client can read them.
fn note_links(session: &ClientSession, upstream: &Arc<Upstream>, result: Node<'_>) {
    static MENTION: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("resource_link"));
    if MENTION.find(result.raw().as_bytes()).is_none() {
        return;
    }
    let list = |key| serde_json::from_str::<Vec<&RawValue>>(result.get(key).map_or("[]", Node::raw));
    // A tool's result holds blocks; each message of a prompt holds one.
    let blocks = list("content").unwrap_or_default().into_iter().map(|block| (block, false));
    let messages = list("messages").unwrap_or_default().into_iter().map(|message| (message, true));
    let mut scanner = Scanner::default();
    for (block, is_message) in blocks.chain(messages) {
        let node = scanner.scan_str(block.get()).expect("a part of valid JSON is valid").root();
        let node = if is_message { node.get("content").unwrap_or(node) } else { node };
        if node.get("type").is_some_and(|kind| kind.raw() == "\"resource_link\"")
            && let Some(uri) = node.get("uri").and_then(Node::as_str)
        {
            session.workspace.remember_link(&uri, upstream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Exposed, Items, Kind};

    #[test]
    fn legacy_clients_see_output_schemas_of_objects_only() {
        for (definition, shown) in [
            (r#"{"name":"a"}"#, None),
            (r#"{ "name":"outputSchema", "n":1.10 }"#, None),
            (r#"{"name":"a","outputSchema":{"type":"object"},"n":1.10}"#, None),
            (r#"{"name":"a","outputSchema":{"type":"array"},"n":1.10}"#, Some(r#"{"name":"a","n":1.10}"#)),
            (r#"{"outputSchema":{},"name":"a"}"#, Some(r#"{"name":"a"}"#)),
        ] {
            assert_eq!(tool(definition), shown.unwrap_or(definition));
            let mut exposed = Exposed::default();
            for item in Items::named(Kind::Tool, &["a", "b"]) {
                exposed.push(Kind::Tool, &item, item.key.clone(), None, true);
            }
            let things = exposed.of(Kind::Tool);
            let list =
                Rendered::new(things, Kind::Tool, |_, _, out| out.extend_from_slice(definition.as_bytes()));
            let adapted = tools(things, &list, tool);
            let adapted = adapted.as_ref().map(|adapted| adapted.text());
            assert_eq!(adapted, shown.map(|shown| format!("{shown},{shown}")).as_deref());
        }
    }

    #[test]
    fn only_what_the_client_cannot_know_becomes_text() {
        let result = r#"{"content":[{"type":"text","text":"a"},{"type":"audio","data":"AAAA","mimeType":"audio/wav"},{"type":"resource_link","uri":"x://y","name":"Y"},{"type":"new"}],"x":1.0}"#;
        let audio = r#"{"type":"text","text":"[audio: audio/wav, about 3 bytes]"}"#;
        let link = r#"{"type":"text","text":"[resource link] x://y - Y"}"#;
        use Version::*;
        for (upstream, client, changes) in [
            (V2025November, V2025November, &[][..]),
            (V2024, V2025June, &[]),
            (V2025June, V2025March, &[(r#"{"type":"resource_link","uri":"x://y","name":"Y"}"#, link)]),
            (
                V2025November,
                V2024,
                &[
                    (r#"{"type":"resource_link","uri":"x://y","name":"Y"}"#, link),
                    (r#"{"type":"audio","data":"AAAA","mimeType":"audio/wav"}"#, audio),
                ],
            ),
            // The upstream's own version has no links, so this block means something of its own.
            (V2025March, V2024, &[(r#"{"type":"audio","data":"AAAA","mimeType":"audio/wav"}"#, audio)]),
        ] {
            let expected = changes.iter().fold(result.to_owned(), |text, (from, to)| text.replace(from, to));
            let mut scanner = Scanner::default();
            let node = scanner.scan_str(result).unwrap().root();
            let mut shown = String::new();
            results(upstream, client, node, |node, changes| shown = node.with(changes));
            assert_eq!(shown, expected, "{upstream:?} to {client:?}");
        }
    }
}
