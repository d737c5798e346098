//! Results that are too long for their client: kept on their way to it, and read by its model afterwards.
//!
//! `steps.rs` hands every result of a called tool to [`relay_of`], `tasks.rs` those of finished tasks to [`relay`]; a
//! [`Step::Read`](crate::face::Step::Read) comes to [`read`].
//!
//! Invariant: whatever reads or writes a whole result runs beside the messages, so that no other call waits for it. What
//! is done here at once is one copy, as relaying the result would be.

use std::sync::Arc;

use crate::config::LEAST_OFFLOADED;
use crate::core::reply::Reply;
use crate::core::upstream::Upstream;
use crate::core::view::Target;
use crate::face::Face;
use crate::face::own_tool::text_result;
use crate::face::reading::{not_kept, unfit};
use crate::json::{Node, Raw};
use crate::known_clients::Behaviour;
use crate::results::Offloaded;
use crate::results::read::ReadRequest;

/// Where the result of a tool stands in what an upstream answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultPlace {
    /// It is the whole answer.
    Whole,
    /// It is this member, if that is there.
    Member(&'static str),
}

/// Answers with the result of a call. A tool with an app gets it as it came, now or when the task ends that it began.
pub(super) fn relay_of(face: &dyn Face, asked: &Target, result: Node<'_>, reply: Reply) {
    if !asked.has_app() {
        return relay(face, &asked.upstream, ResultPlace::Whole, result, reply);
    }
    let task = result.get("task").unwrap_or(result).get("taskId").and_then(Node::as_str);
    if let Some(id) = task {
        reply.session().workspace.tasks.note_app(&id);
    }
    reply.relay(result, &[]);
}

/// Answers with a result of one of the upstream's tools, or with a notice in its place if it is too long for the client.
pub(super) fn relay(
    face: &dyn Face,
    upstream: &Upstream,
    place: ResultPlace,
    answer: Node<'_>,
    reply: Reply,
) {
    // Nothing shorter is ever too long: this comparison is all that an ordinary result costs.
    if answer.raw().len() <= LEAST_OFFLOADED {
        return reply.relay(answer, &[]);
    }
    let Some((offloaded, around)) = offload(upstream, place, answer, &reply) else {
        return reply.relay(answer, &[]);
    };
    let (tool, workspace) = (face.reader(), reply.session().workspace.clone());
    tokio::spawn(async move {
        let id = workspace.results.keep_for_all(offloaded.whole.clone()).await;
        let writing = tokio::task::spawn_blocking(move || {
            let result = offloaded.write(tool, &id);
            match (place, around) {
                (ResultPlace::Member(key), Some(around)) => {
                    Raw::own(around.root().with(&[(key, Some(result.root().raw()))]))
                }
                _ => result,
            }
        });
        // A reply that is dropped answers with an error.
        if let Ok(result) = writing.await {
            reply.relay(result.root(), &[]);
        }
    });
}

/// What is too long in an answer, if anything is, and what stands around the result that it was taken from.
fn offload(
    upstream: &Upstream,
    place: ResultPlace,
    answer: Node<'_>,
    reply: &Reply,
) -> Option<(Offloaded, Option<Raw>)> {
    let session = reply.session();
    let takes = match (reply.modern(), session.hello()) {
        (Some(modern), _) => Behaviour::of(&modern.client.name).longest_result(true),
        (None, hello) => Behaviour::of(hello.map_or("", |hello| &hello.name)).longest_result(false),
    };
    let limit = upstream.spec().offload_over.bytes(takes)?;
    let most = session.workspace.results.most();
    match place {
        ResultPlace::Whole => Some((Offloaded::of(answer, limit, most)?, None)),
        ResultPlace::Member(key) => {
            let offloaded = Offloaded::of(answer.get(key)?, limit, most)?;
            Some((offloaded, Some(Raw::own(answer.with(&[(key, Some("null"))])))))
        }
    }
}

/// Answers a call that reads a kept result.
pub(super) fn read(face: Arc<dyn Face>, request: ReadRequest, reply: Reply) {
    let tool = face.reader();
    tokio::spawn(async move {
        let Some(whole) = reply.session().workspace.results.find(&request.id).await else {
            return reply.result(&face.unreadable(&not_kept(&request.id)));
        };
        match tokio::task::spawn_blocking(move || request.answer(tool, &whole)).await {
            Ok(Ok(texts)) => reply.result(&text_result(&texts)),
            Ok(Err(wrong)) => reply.result(&face.unreadable(&unfit(&wrong))),
            // A reply that is dropped answers with an error.
            Err(_) => drop(reply),
        }
    });
}
