//! Resources, prompts and completion: by URI or name to the upstream that has them.

use std::cmp::Reverse;
use std::sync::Arc;

use super::toolman::Found;
use super::{Face, Gateway, TWICE};
use crate::core::catalog::{ExposedItem, Kind, nearest};
use crate::core::modern::Watched;
use crate::core::reply::Reply;
use crate::core::session::Session;
use crate::core::upstream::Upstream;
use crate::core::view::{Entry, View};
use crate::core::window::Window;
use crate::faces::{toolman, uri_template};
use crate::wire::json::{Node, quote};
use crate::wire::message::code;
use crate::wire::peer::Answer;
use crate::wire::text::listed;

impl Gateway {
    /// `resources/read`, `resources/subscribe` and `resources/unsubscribe`: by URI.
    pub(super) fn resource(self: &Arc<Self>, method: &'static str, params: Node<'_>, reply: Reply) {
        let Ok(Some(Some(uri))) = params.unique("uri").map(|uri| uri.map(Node::as_str)) else {
            return self.refuse(reply, code::INVALID_PARAMS, "Invalid params: \"uri\" must be a string");
        };
        let session = reply.session().clone();
        // What was switched off since it was subscribed to can still be left.
        let left = method == "resources/unsubscribe" && session.is_subscribed(&uri);
        let found = match &*self.face(&session) {
            Face::Workbench(_) | Face::Plain(_) => self.resource_owner(&session.window, &uri),
            Face::Toolman(bench) => match self.find_resource(bench, &session.window, &uri, left) {
                Some(Found::Resource(upstream, own)) => Some((upstream, own)),
                Some(Found::Catalog) if !bench.is_ready() => return self.later(bench, method, params, reply),
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
            let message = match &*self.face(&session) {
                Face::Workbench(_) => {
                    format!("Resource not found: {uri}. Resources of a toolbox can be read once it is open.")
                }
                Face::Plain(_) => format!("Resource not found: {uri}"),
                Face::Toolman(bench) => {
                    let message = bench.face.unknown_resource(&session.view(), &uri);
                    return self.refuse(reply, code::RESOURCE_NOT_FOUND, &message);
                }
            };
            let data = format!("{{\"uri\":{}}}", quote(&uri));
            return reply.error(code::RESOURCE_NOT_FOUND, &message, Some(&data));
        };
        match method {
            "resources/read" => {
                let relay = self.relay(&session, &uri);
                self.engine.forward(&upstream, method, params, &[("uri", Some(&own))], reply, relay);
            }
            _ => self.subscribe(method, &uri, &upstream, &own, params, reply),
        }
    }

    /// Subscribes a legacy client, or no longer. A legacy upstream answers for itself where it matters to it: it hears
    /// of the first who subscribes and of the last who leaves.
    fn subscribe(
        self: &Arc<Self>,
        method: &'static str,
        uri: &str,
        upstream: &Arc<Upstream>,
        own: &str,
        params: Node<'_>,
        reply: Reply,
    ) {
        let (session, more) = (reply.session().clone(), method == "resources/subscribe");
        let own_uri = serde_json::from_str::<String>(own).unwrap_or_default();
        let what = Watched::Resource(own_uri.clone());
        let link = upstream.link();
        if link.as_ref().is_some_and(|link| link.version().is_modern()) {
            let is_new = match more {
                true => session.subscribe(uri, upstream, &own_uri),
                false => session.unsubscribe(uri),
            };
            if is_new {
                self.engine.watch(upstream, &what, more);
            }
            return reply.result("{}");
        }
        let relay = self.relay(&session, uri);
        let changes = [("uri", Some(own))];
        if !more {
            // Counted at once: whoever subscribes while the upstream forgets must be told of to it again.
            if session.unsubscribe(uri) {
                upstream.count_watcher(&what, false);
            }
            return match upstream.is_watched(&what) {
                true => reply.result("{}"),
                false => self.engine.forward(upstream, method, params, &changes, reply, relay),
            };
        }
        if link.is_some() && upstream.is_watched(&what) {
            if session.subscribe(uri, upstream, &own_uri) {
                upstream.count_watcher(&what, true);
            }
            return reply.result("{}");
        }
        let (owner, exposed) = (upstream.clone(), uri.to_owned());
        let finish = move |answer: Answer<'_>, reply: Reply| {
            if let Answer::Result(_) = answer
                && session.subscribe(&exposed, &owner, &own_uri)
            {
                owner.count_watcher(&what, true);
            }
            relay(answer, reply);
        };
        self.engine.forward(upstream, method, params, &changes, reply, finish);
    }

    /// Who has the resource, whatever the face, if it can be read.
    pub(super) fn resource_of(&self, window: &Window, uri: &str) -> Option<(Arc<Upstream>, String)> {
        match &*self.face_in(window) {
            Face::Workbench(_) | Face::Plain(_) => self.resource_owner(window, uri),
            Face::Toolman(bench) => match self.find_resource(bench, window, uri, false) {
                Some(Found::Resource(upstream, own)) => Some((upstream, own)),
                _ => None,
            },
        }
    }

    /// Who has the resource, and its own URI there as JSON. What stands under an upstream's prefix is asked of that
    /// upstream, listed or not, since templates stand for more than lists show.
    fn resource_owner(&self, window: &Window, uri: &str) -> Option<(Arc<Upstream>, String)> {
        let view = window.view();
        if let Some(target) = view.find(Kind::Resource, uri) {
            return Some((target.upstream.clone(), target.raw_key().to_owned()));
        }
        if let Some((entry, _)) = closest_template(&view, uri) {
            let prefix = window.exposure().full_name(&entry.upstream, Kind::Resource, "");
            return Some((entry.upstream.clone(), quote(uri.strip_prefix(&prefix).unwrap_or(uri))));
        }
        for entry in view.entries() {
            let prefix = window.exposure().full_name(&entry.upstream, Kind::Resource, "");
            if !prefix.is_empty()
                && let Some(own) = uri.strip_prefix(&prefix)
            {
                return Some((entry.upstream.clone(), quote(own)));
            }
        }
        window.link_sender(&view, uri).map(|upstream| (upstream, quote(uri)))
    }

    pub(super) fn get_prompt(self: &Arc<Self>, params: Node<'_>, reply: Reply) {
        let Ok(Some(Some(name))) = params.unique("name").map(|name| name.map(Node::as_str)) else {
            return self.refuse(reply, code::INVALID_PARAMS, "Invalid params: \"name\" must be a string");
        };
        let session = reply.session().clone();
        match prompt(&name, &session) {
            Ok((upstream, own)) => {
                let changes = [("name", Some(&*own))];
                let relay = self.relay(&session, &name);
                self.engine.forward(&upstream, "prompts/get", params, &changes, reply, relay);
            }
            Err(message) => match &*self.face(&session) {
                Face::Toolman(bench) if !bench.is_ready() => self.later(bench, "prompts/get", params, reply),
                _ => self.refuse(reply, code::INVALID_PARAMS, &message),
            },
        }
    }

    pub(super) fn complete(self: &Arc<Self>, params: Node<'_>, reply: Reply) {
        let session = reply.session().clone();
        let Ok(reference) = params.unique("ref") else {
            return self.refuse(reply, code::INVALID_PARAMS, TWICE);
        };
        let reference = reference.filter(|reference| reference.is_object());
        if reference.is_some_and(|reference| reference.all_unique(["type", "name", "uri"]).is_err()) {
            return self.refuse(reply, code::INVALID_PARAMS, TWICE);
        }
        let text = |key| reference.and_then(|reference| reference.get(key)).and_then(Node::as_str);
        let named = text("name").or_else(|| text("uri")).unwrap_or_default();
        let found = match (text("name"), text("uri")) {
            (Some(name), None) => {
                prompt(&name, &session).map(|(upstream, own)| (upstream, "name", own.to_string()))
            }
            (None, Some(uri)) => self.completed(&uri, &session).map(|(upstream, own)| (upstream, "uri", own)),
            _ => Err("Invalid params: \"ref\" must name a prompt or a resource".to_owned()),
        };
        match (found, reference) {
            (Ok((upstream, key, own)), Some(reference)) => {
                let mut changed = Vec::new();
                reference.write_with(&mut changed, &[(key, Some(&own))]);
                let changed = String::from_utf8(changed).expect("written from UTF-8 texts");
                let changes = [("ref", Some(&*changed))];
                let relay = self.relay(&session, &named);
                self.engine.forward(&upstream, "completion/complete", params, &changes, reply, relay);
            }
            (Err(message), _) => match &*self.face(&session) {
                Face::Toolman(bench) if !bench.is_ready() => {
                    self.later(bench, "completion/complete", params, reply);
                }
                _ => self.refuse(reply, code::INVALID_PARAMS, &message),
            },
            (Ok(_), None) => unreachable!("only a reference can name something"),
        }
    }

    /// Whose template or resource is to be completed, and its own URI there.
    fn completed(&self, uri: &str, session: &Session) -> Result<(Arc<Upstream>, String), String> {
        if let Some(target) = session.view().find(Kind::Template, uri) {
            return Ok((target.upstream.clone(), target.raw_key().to_owned()));
        }
        self.resource_of(&session.window, uri)
            .ok_or_else(|| format!("There is no resource or template '{uri}'."))
    }

    /// An error of our own where the request was no tool call, in the shape of the face.
    pub(super) fn refuse(&self, reply: Reply, code: i64, message: &str) {
        let shaped = matches!(*self.face(reply.session()), Face::Toolman(_));
        refuse(reply, code, message, shaped);
    }

    /// Answers as the upstream did; where it did not, the error names what was asked for.
    fn relay(&self, session: &Session, name: &str) -> impl FnOnce(Answer<'_>, Reply) + Send + 'static {
        let (shaped, name) = (matches!(*self.face(session), Face::Toolman(_)), name.to_owned());
        let private = self.tokens_differ();
        move |answer, reply| match answer {
            // What one token may read, another may not.
            Answer::Result(result) if private && result.get("cacheScope").is_some() => {
                reply.result_with(|out| result.write_with(out, &[("cacheScope", Some("\"private\""))]));
            }
            Answer::Result(result) => reply.result_with(|out| result.write(out)),
            Answer::Error(error) => reply.raw_error(error),
            Answer::Lost(lost) => refuse(reply, lost.code, &format!("{name}: {lost}"), shaped),
        }
    }
}

/// The template that a URI belongs to: the one that fits it most closely. Of equals it is one that is active, then the
/// first.
pub(super) fn closest_template<'a>(view: &'a View, uri: &str) -> Option<(&'a Entry, &'a ExposedItem)> {
    let all = view.items(Kind::Template);
    let fitting = all.filter_map(|(entry, item)| Some((uri_template::fit(&item.name, uri)?, entry, item)));
    let closest = fitting.min_by_key(|(fit, _, item)| Reverse((*fit, view.is_active(Kind::Template, item))));
    closest.map(|(_, entry, item)| (entry, item))
}

fn prompt(name: &str, session: &Session) -> Result<(Arc<Upstream>, String), String> {
    let view = session.view();
    match view.find(Kind::Prompt, name) {
        Some(target) => Ok((target.upstream.clone(), target.raw_key().to_owned())),
        None => {
            let near = nearest(name, view.items(Kind::Prompt).map(|(_, item)| &*item.name), 5);
            let near = match near.is_empty() {
                true => String::new(),
                false => format!(" Nearest names: {}.", listed(&near)),
            };
            Err(format!("There is no prompt '{name}'.{near} `prompts/list` shows all there are."))
        }
    }
}

fn refuse(reply: Reply, code: i64, message: &str, shaped: bool) {
    let data = shaped.then(|| toolman::answer(Err(message)));
    reply.error(code, message, data.as_deref());
}
