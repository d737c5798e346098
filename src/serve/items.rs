//! Resources, prompts and completion: by URI or name to the upstream that has them.

use std::sync::Arc;

use super::toolman::Found;
use super::{Face, Gateway};
use crate::core::catalog::{Kind, nearest};
use crate::core::session::{Reply, Session};
use crate::core::upstream::Upstream;
use crate::faces::toolman;
use crate::wire::json::{Node, quote};
use crate::wire::message::code;
use crate::wire::peer::Answer;

impl Gateway {
    /// `resources/read`, `resources/subscribe` and `resources/unsubscribe`: by URI.
    pub(super) fn resource(self: &Arc<Self>, method: &'static str, params: Node<'_>, reply: Reply) {
        let Ok(Some(Some(uri))) = params.unique("uri").map(|uri| uri.map(Node::as_str)) else {
            return self.refuse(reply, code::INVALID_PARAMS, "Invalid params: \"uri\" must be a string");
        };
        let session = reply.session().clone();
        let found = match &self.face {
            Face::Workbench(_) => self.resource_owner(&session, &uri),
            Face::Toolman(bench) => match self.find_resource(bench, &session, &uri) {
                Some(Found::Resource(upstream, own)) => Some((upstream, own)),
                Some(Found::Catalog) if method == "resources/read" => return self.read_catalog(bench, reply),
                Some(Found::Inactive(name)) => {
                    let message = bench.face.inactive(Kind::Resource, &name);
                    return self.refuse(reply, code::INVALID_PARAMS, &message);
                }
                None if !bench.is_ready() => return self.later(bench, method, params, reply),
                _ => None,
            },
        };
        let Some((upstream, own)) = found else {
            let message = match &self.face {
                Face::Workbench(_) => {
                    format!("Resource not found: {uri}. Resources of a toolbox can be read once it is open.")
                }
                Face::Toolman(bench) => bench.face.unknown_resource(&session.view.lock(), &uri),
            };
            return self.refuse(reply, code::RESOURCE_NOT_FOUND, &message);
        };
        let (relay, uri) = (self.relay(), uri.into_owned());
        let finish = move |answer: Answer<'_>, reply: Reply| {
            if let Answer::Result(_) = answer {
                let mut subscriptions = session.subscriptions.lock();
                match method {
                    "resources/subscribe" => drop(subscriptions.insert(uri)),
                    "resources/unsubscribe" => drop(subscriptions.remove(&uri)),
                    _ => {}
                }
            }
            relay(answer, reply);
        };
        self.engine.forward(&upstream, method, params, &[("uri", Some(&own))], reply, finish);
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
            return self.refuse(reply, code::INVALID_PARAMS, "Invalid params: \"name\" must be a string");
        };
        match self.prompt(&name, &reply) {
            Ok((upstream, own)) => {
                let changes = [("name", Some(&*own))];
                self.engine.forward(&upstream, "prompts/get", params, &changes, reply, self.relay());
            }
            Err(message) => match &self.face {
                Face::Toolman(bench) if !bench.is_ready() => self.later(bench, "prompts/get", params, reply),
                _ => self.refuse(reply, code::INVALID_PARAMS, &message),
            },
        }
    }

    fn prompt(&self, name: &str, reply: &Reply) -> Result<(Arc<Upstream>, Arc<str>), String> {
        let view = reply.session().view.lock();
        match view.find(Kind::Prompt, name) {
            Some(target) => Ok((target.upstream, target.raw_key)),
            None => {
                let near = nearest(name, view.items(Kind::Prompt).map(|(_, item)| &*item.name), 5);
                let near = match near.is_empty() {
                    true => String::new(),
                    false => format!(" Nearest names: {}", near.join(", ")),
                };
                Err(format!("There is no prompt '{name}'.{near}"))
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
            (None, Some(uri)) => self.completed(&uri, &reply).map(|(upstream, own)| (upstream, "uri", own)),
            _ => Err("Invalid params: \"ref\" must name a prompt or a resource".to_owned()),
        };
        match (found, reference) {
            (Ok((upstream, key, own)), Some(reference)) => {
                let mut changed = Vec::new();
                reference.write_with(&mut changed, &[(key, Some(&own))]);
                let changed = String::from_utf8(changed).expect("written from UTF-8 texts");
                let changes = [("ref", Some(&*changed))];
                self.engine.forward(&upstream, "completion/complete", params, &changes, reply, self.relay());
            }
            (Err(message), _) => match &self.face {
                Face::Toolman(bench) if !bench.is_ready() => {
                    self.later(bench, "completion/complete", params, reply);
                }
                _ => self.refuse(reply, code::INVALID_PARAMS, &message),
            },
            (Ok(_), None) => unreachable!("only a reference can name something"),
        }
    }

    /// Whose template or resource is to be completed, and its own URI there.
    fn completed(&self, uri: &str, reply: &Reply) -> Result<(Arc<Upstream>, String), String> {
        let session = reply.session();
        if let Some(target) = session.view.lock().find(Kind::Template, uri) {
            return Ok((target.upstream, target.raw_key.to_string()));
        }
        let found = match &self.face {
            Face::Workbench(_) => self.resource_owner(session, uri),
            Face::Toolman(bench) => match self.find_resource(bench, session, uri) {
                Some(Found::Resource(upstream, own)) => Some((upstream, own)),
                _ => None,
            },
        };
        found.ok_or_else(|| format!("There is no resource or template '{uri}'."))
    }

    /// An error of our own where the request was no tool call, in the shape of the face.
    fn refuse(&self, reply: Reply, code: i64, message: &str) {
        refuse(reply, code, message, matches!(self.face, Face::Toolman(_)));
    }

    /// Answers as the upstream did.
    fn relay(&self) -> impl FnOnce(Answer<'_>, Reply) + Send + 'static {
        let shaped = matches!(self.face, Face::Toolman(_));
        move |answer, reply| match answer {
            Answer::Result(result) => reply.result_with(|out| result.write(out)),
            Answer::Error(error) => reply.raw_error(error),
            Answer::Lost(lost) => refuse(reply, lost.code, &lost.message, shaped),
        }
    }
}

fn refuse(reply: Reply, code: i64, message: &str, shaped: bool) {
    let data = shaped.then(|| toolman::answer(Err(message)));
    reply.error(code, message, data.as_deref());
}
