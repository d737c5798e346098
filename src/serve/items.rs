//! Resources and prompts of opened toolboxes.

use std::sync::Arc;

use super::Gateway;
use crate::core::catalog::{Kind, nearest};
use crate::core::session::{Reply, Session};
use crate::core::upstream::Upstream;
use crate::wire::json::{Node, quote};
use crate::wire::message::code;
use crate::wire::peer::Answer;

impl Gateway {
    /// `resources/read`, `resources/subscribe` and `resources/unsubscribe`: by URI.
    pub(super) fn resource(self: &Arc<Self>, method: &'static str, params: Node<'_>, reply: Reply) {
        let Ok(Some(Some(uri))) = params.unique("uri").map(|uri| uri.map(Node::as_str)) else {
            return reply.error(code::INVALID_PARAMS, "Invalid params: \"uri\" must be a string", None);
        };
        let session = reply.session().clone();
        let Some((upstream, own)) = self.resource_owner(&session, &uri) else {
            let message =
                format!("Resource not found: {uri}. Resources of a toolbox can be read once it is open.");
            return reply.error(
                code::RESOURCE_NOT_FOUND,
                &message,
                Some(&format!("{{\"uri\":{}}}", quote(&uri))),
            );
        };
        let uri = uri.into_owned();
        self.engine.forward(
            &upstream,
            method,
            params,
            &[("uri", Some(&own))],
            reply,
            move |answer, reply| {
                if let Answer::Result(_) = answer {
                    let mut subscriptions = session.subscriptions.lock();
                    match method {
                        "resources/subscribe" => drop(subscriptions.insert(uri)),
                        "resources/unsubscribe" => drop(subscriptions.remove(&uri)),
                        _ => {}
                    }
                }
                relay(answer, reply);
            },
        );
    }

    /// Who has the resource, and its own URI there as JSON. What stands under an upstream's prefix is asked of that
    /// upstream, listed or not, since templates stand for more than lists show.
    fn resource_owner(&self, session: &Session, uri: &str) -> Option<(Arc<Upstream>, String)> {
        let view = session.view.lock();
        if let Some(target) = view.find(Kind::Resource, uri) {
            return Some((target.upstream, target.raw_key.to_string()));
        }
        for entry in view.entries() {
            let prefix = self.engine.exposure().full_name(&entry.upstream, Kind::Resource, "");
            if let Some(own) = uri.strip_prefix(&prefix) {
                return Some((entry.upstream.clone(), quote(own)));
            }
        }
        drop(view);
        session.link_sender(uri).map(|upstream| (upstream, quote(uri)))
    }

    pub(super) fn get_prompt(self: &Arc<Self>, params: Node<'_>, reply: Reply) {
        let Ok(Some(Some(name))) = params.unique("name").map(|name| name.map(Node::as_str)) else {
            return reply.error(code::INVALID_PARAMS, "Invalid params: \"name\" must be a string", None);
        };
        match self.prompt(&name, &reply) {
            Ok((upstream, own)) => {
                self.engine.forward(&upstream, "prompts/get", params, &[("name", Some(&own))], reply, relay);
            }
            Err(message) => reply.error(code::INVALID_PARAMS, &message, None),
        }
    }

    fn prompt(&self, name: &str, reply: &Reply) -> Result<(Arc<Upstream>, Arc<str>), String> {
        let view = reply.session().view.lock();
        match view.find(Kind::Prompt, name) {
            Some(target) => Ok((target.upstream, target.raw_key)),
            None => {
                let near = nearest(name, view.names(Kind::Prompt), 5);
                let near = if near.is_empty() {
                    String::new()
                } else {
                    format!(". Nearest names: {}", near.join(", "))
                };
                Err(format!("Prompt not found: {name}{near}"))
            }
        }
    }

    pub(super) fn complete(self: &Arc<Self>, params: Node<'_>, reply: Reply) {
        let reference = params.get("ref").filter(|reference| reference.is_object());
        let text = |key| reference.and_then(|reference| reference.get(key)).and_then(Node::as_str);
        let found = match (text("name"), text("uri")) {
            (Some(name), None) => {
                self.prompt(&name, &reply).map(|(upstream, own)| (upstream, "name", own.to_string()))
            }
            (None, Some(uri)) => {
                let target = reply.session().view.lock().find(Kind::Template, &uri);
                target
                    .map(|target| (target.upstream, target.raw_key.to_string()))
                    .or_else(|| self.resource_owner(reply.session(), &uri))
                    .map(|(upstream, own)| (upstream, "uri", own))
                    .ok_or_else(|| format!("Resource not found: {uri}"))
            }
            _ => Err("Invalid params: \"ref\" must name a prompt or a resource".to_owned()),
        };
        match (found, reference) {
            (Ok((upstream, key, own)), Some(reference)) => {
                let mut changed = Vec::new();
                reference.write_with(&mut changed, &[(key, Some(&own))]);
                let changed = String::from_utf8(changed).expect("written from UTF-8 texts");
                self.engine.forward(
                    &upstream,
                    "completion/complete",
                    params,
                    &[("ref", Some(&changed))],
                    reply,
                    relay,
                );
            }
            (Err(message), _) => reply.error(code::INVALID_PARAMS, &message, None),
            (Ok(_), None) => unreachable!("only a reference can name something"),
        }
    }
}

/// Answers as the upstream did.
fn relay(answer: Answer<'_>, reply: Reply) {
    match answer {
        Answer::Result(result) => reply.result_with(|out| result.write(out)),
        Answer::Error(error) => reply.raw_error(error),
        Answer::Lost(lost) => reply.error(lost.code, &lost.message, None),
    }
}
