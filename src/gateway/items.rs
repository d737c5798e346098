//! Requests for resources, prompts and completions: finds the upstream by URI or name, and forwards them.

use std::sync::Arc;

use super::steps::{finish, say};
use super::{Gateway, TWICE, modern, startup};
use crate::apps::{contents_as_asked, is_page};
use crate::catalog::Kind;
use crate::core::modern::Watched;
use crate::core::reply::Reply;
use crate::core::session::ClientSession;
use crate::core::upstream::Upstream;
use crate::core::workspace::Workspace;
use crate::face::reach::{prompt, spellings};
use crate::face::{Found, Viewer, WantedUri, Wording};
use crate::json::{Node, Raw};
use crate::protocol::message::code;
use crate::transport::peer::Answer;

/// `resources/read`, `resources/subscribe` and `resources/unsubscribe`, by URI.
pub(super) fn resource(gateway: &Arc<Gateway>, method: &'static str, params: Node<'_>, reply: Reply) {
    let Ok(Some(Some(uri))) = params.unique("uri").map(|uri| uri.map(Node::as_str)) else {
        return gateway.faces.refuse(reply, code::INVALID_PARAMS, "Invalid params: \"uri\" must be a string");
    };
    let session = reply.session().clone();
    // A client can still unsubscribe from a resource that was switched off after it subscribed.
    let leaves = method == "resources/unsubscribe" && session.subscriptions.has(&uri);
    let reads = method == "resources/read";
    let (upstream, own) = match find_resource(gateway, &session, &uri, leaves, reads, &reply) {
        Found::At(upstream, own) => (upstream, own),
        Found::Own(result) => return reply.result(&result),
        Found::Refused(refusal) => return say(reply, Wording::Error(refusal), None),
        Found::Wait => return startup::later(gateway, method, params, reply),
    };
    match method {
        "resources/read" => {
            let relay = relay_contents(gateway, &session, uri.into_owned(), &own);
            gateway.engine.forward(&upstream, method, params, &[("uri", Some(&own))], reply, relay);
        }
        _ => subscribe(gateway, method, &uri, &upstream, &own, params, reply),
    }
}

/// Subscribes or unsubscribes a legacy client. A legacy upstream answers the requests that matter to it
/// itself: those of the first client to subscribe and of the last to leave.
fn subscribe(
    gateway: &Arc<Gateway>,
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
    if upstream.is_modern() {
        let is_new = match more {
            true => session.subscriptions.add(uri, upstream, &own_uri),
            false => session.subscriptions.remove(uri),
        };
        if is_new {
            gateway.engine.watch(upstream, &what, more);
            reply.record();
        }
        return reply.result("{}");
    }
    let relay = relay(gateway, &session, uri);
    let changes = [("uri", Some(own))];
    if !more {
        // The count drops before the upstream has answered: if another client subscribes meanwhile, the
        // upstream must be told again.
        if session.subscriptions.remove(uri) {
            upstream.count_watcher(&what, false);
            reply.record();
        }
        return match upstream.is_watched(&what) {
            true => reply.result("{}"),
            false => gateway.engine.forward(upstream, method, params, &changes, reply, relay),
        };
    }
    if upstream.connection().is_some() && upstream.is_watched(&what) {
        if session.subscriptions.add(uri, upstream, &own_uri) {
            upstream.count_watcher(&what, true);
            reply.record();
        }
        return reply.result("{}");
    }
    let (owner, exposed) = (upstream.clone(), uri.to_owned());
    let finish = move |answer: Answer<'_>, reply: Reply| {
        if let Answer::Result(_) = answer
            && session.subscriptions.add(&exposed, &owner, &own_uri)
        {
            owner.count_watcher(&what, true);
            reply.record();
        }
        relay(answer, reply);
    };
    gateway.engine.forward(upstream, method, params, &changes, reply, finish);
}

/// The upstream that a URI leads to, for this client.
fn find_resource(
    gateway: &Gateway,
    session: &ClientSession,
    uri: &str,
    leaves: bool,
    reads: bool,
    reply: &Reply,
) -> Found {
    session.workspace.read(|view| {
        let sender = session.workspace.link_sender(view, uri);
        let wanted = WantedUri { uri, sender, leaves, reads };
        gateway.face(session).resource(view, &gateway.viewer(reply, Node::empty()), &wanted)
    })
}

/// The upstream that has the resource, if the resource can be watched.
pub(super) fn resource_of(
    gateway: &Gateway,
    workspace: &Workspace,
    uri: &str,
) -> Option<(Arc<Upstream>, String)> {
    let viewer = Viewer {
        client: None,
        params: Node::empty(),
        modern: true,
        renders_apps: true,
        settled: gateway.startup.is_settled(),
        known: None,
    };
    let found = workspace.read(|view| {
        let sender = workspace.link_sender(view, uri);
        let wanted = WantedUri { uri, sender, leaves: false, reads: false };
        gateway.faces.of(workspace).resource(view, &viewer, &wanted)
    });
    match found {
        Found::At(upstream, own) => Some((upstream, own)),
        Found::Own(_) | Found::Refused(_) | Found::Wait => None,
    }
}

pub(super) fn get_prompt(gateway: &Arc<Gateway>, params: Node<'_>, reply: Reply) {
    let Ok(Some(Some(name))) = params.unique("name").map(|name| name.map(Node::as_str)) else {
        return gateway.faces.refuse(
            reply,
            code::INVALID_PARAMS,
            "Invalid params: \"name\" must be a string",
        );
    };
    let session = reply.session().clone();
    let face = gateway.face(&session);
    let found = session.workspace.read(|view| prompt(&*face, view, &name));
    match found {
        Ok((upstream, own)) => {
            let changes = [("name", Some(&*own))];
            let relay = relay(gateway, &session, &name);
            gateway.engine.forward(&upstream, "prompts/get", params, &changes, reply, relay);
        }
        Err(_) if !gateway.startup.is_settled() => startup::later(gateway, "prompts/get", params, reply),
        Err(message) => gateway.faces.refuse(reply, code::INVALID_PARAMS, &message),
    }
}

pub(super) fn complete(gateway: &Arc<Gateway>, params: Node<'_>, reply: Reply) {
    let session = reply.session().clone();
    let Ok(reference) = params.unique("ref") else {
        return gateway.faces.refuse(reply, code::INVALID_PARAMS, TWICE);
    };
    let reference = reference.filter(|reference| reference.is_object());
    if reference.is_some_and(|reference| reference.all_unique(["type", "name", "uri"]).is_err()) {
        return gateway.faces.refuse(reply, code::INVALID_PARAMS, TWICE);
    }
    let text = |key| reference.and_then(|reference| reference.get(key)).and_then(Node::as_str);
    let named = text("name").or_else(|| text("uri")).unwrap_or_default();
    let found = match (text("name"), text("uri")) {
        (Some(name), None) => {
            let found = session.workspace.read(|view| prompt(&*gateway.face(&session), view, &name));
            found.map(|(upstream, own)| (upstream, "name", own))
        }
        (None, Some(uri)) => completed(gateway, &uri, &session).map(|(upstream, own)| (upstream, "uri", own)),
        _ => Err("Invalid params: \"ref\" must name a prompt or a resource".to_owned()),
    };
    match (found, reference) {
        (Ok((upstream, key, own)), Some(reference)) => {
            let changed = reference.with(&[(key, Some(&own))]);
            let changes = [("ref", Some(&*changed))];
            let relay = relay(gateway, &session, &named);
            gateway.engine.forward(&upstream, "completion/complete", params, &changes, reply, relay);
        }
        (Err(_), _) if !gateway.startup.is_settled() => {
            startup::later(gateway, "completion/complete", params, reply)
        }
        (Err(message), _) => gateway.faces.refuse(reply, code::INVALID_PARAMS, &message),
        (Ok(_), None) => unreachable!("only a reference can name something"),
    }
}

/// The upstream whose template or resource is to be completed, and its own URI there.
fn completed(
    gateway: &Gateway,
    uri: &str,
    session: &ClientSession,
) -> Result<(Arc<Upstream>, String), String> {
    let face = gateway.face(session);
    let template = session
        .workspace
        .read(|view| spellings(&*face, view, uri).find_map(|uri| view.find(Kind::Template, &uri)));
    if let Some(target) = template {
        return Ok((target.upstream.clone(), target.raw_key().to_owned()));
    }
    resource_of(gateway, &session.workspace, uri)
        .ok_or_else(|| format!("There is no resource or template '{uri}'."))
}

/// Answers with the contents that were read; a page keeps the URI that the client asked for.
fn relay_contents(
    gateway: &Gateway,
    session: &ClientSession,
    asked: String,
    own: &str,
) -> impl FnOnce(Answer<'_>, Reply) + Send + use<> {
    let relay = relay(gateway, session, &asked);
    let own = is_page(&asked).then(|| serde_json::from_str::<String>(own).unwrap_or_default());
    move |answer, reply| {
        let changed = match (&answer, &own) {
            (Answer::Result(result), Some(own)) => {
                let contents = contents_as_asked(*result, own, &asked);
                contents.map(|contents| Raw::own(result.with(&[("contents", Some(&contents))])))
            }
            _ => None,
        };
        relay(changed.as_ref().map_or(answer, |changed| Answer::Result(changed.root())), reply);
    }
}

/// Answers as the upstream did; if it did not answer with a result, the error names what was asked for.
fn relay(
    gateway: &Gateway,
    session: &ClientSession,
    name: &str,
) -> impl FnOnce(Answer<'_>, Reply) + Send + use<> {
    let (face, name) = (gateway.face(session), name.to_owned());
    let private = modern::tokens_differ(gateway);
    move |answer, reply| match answer {
        // A client with one token may read this and a client with another may not.
        Answer::Result(result) if private && result.get("cacheScope").is_some() => {
            reply.relay(result, &[("cacheScope", Some("\"private\""))]);
        }
        answer => finish(answer, reply, |failure| face.failed(&name, failure)),
    }
}
