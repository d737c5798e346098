//! The lock at work: which deviations are logged, and which calls do not reach a server.
//!
//! [`Sent::shown`](crate::catalog::Sent::shown) decides what clients see. An upstream reports here what deviates,
//! and a request that had to wait for its server is looked at once more.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::upstream::{Spec, Upstream};
use super::view::Origin;
use crate::catalog::{Deviation, Differs, Kind};
use crate::json::Node;
use crate::lock::Guard;
use crate::text::one_line;

/// The deviations that are known of each server.
#[derive(Default)]
pub(super) struct Deviations(Mutex<HashMap<Origin, Vec<Deviation>>>);

impl Deviations {
    /// Logs the deviations of an upstream that were not known before.
    pub(super) fn note(&self, upstream: &Upstream, spec: &Spec, found: Vec<Deviation>) {
        let Some(guard) = &spec.guard else { return };
        let place = (upstream.group.clone(), upstream.server.clone());
        let known = self.0.lock().insert(place, found.clone()).unwrap_or_default();
        let exists = |one: &&Deviation| one.kind != Kind::Tool || spec.filter.allows(&one.name);
        for one in found.iter().filter(exists).filter(|one| !known.contains(one)) {
            tracing::warn!("[{upstream}] {}", told(guard, one));
        }
    }
}

/// A deviation in words.
fn told(guard: &Guard, deviation: &Deviation) -> String {
    let what = format!("the {} {}", deviation.kind.noun(), one_line(&deviation.name));
    let (file, command) = (guard.file(), guard.command());
    let how = match deviation.differs {
        Differs::Texts => format!("the texts of {what} differ from those approved in {file}"),
        Differs::Other => format!("{what} differs from the one approved in {file}"),
        Differs::New => format!("{what} is not in {file}"),
        Differs::Unfit => format!("{what} cannot be compared"),
    };
    match (guard.enforced, deviation.differs) {
        (false, _) => format!("{how}; it is shown nevertheless, since `lock` is \"warn\""),
        (true, Differs::Texts) => format!("{how}; clients see the approved ones"),
        (true, Differs::Unfit) => {
            format!("{how} and is withheld: its definition has a member twice or is nested too deeply")
        }
        (true, _) => format!("{how} and is withheld; a person can approve it with `{command}`"),
    }
}

/// Why a request for a tool or prompt of this upstream must not reach it, if the lock keeps that from clients.
pub(super) fn refused(upstream: &Upstream, method: &str, params: Node<'_>) -> Option<String> {
    let (kind, name) = match method {
        "tools/call" => (Kind::Tool, params.get("name")),
        "prompts/get" => (Kind::Prompt, params.get("name")),
        "completion/complete" => {
            (Kind::Prompt, params.get("ref").and_then(|reference| reference.get("name")))
        }
        _ => return None,
    };
    upstream.items().why_withheld(kind, &name.and_then(Node::as_str)?)
}
