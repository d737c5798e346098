//! What only clients of the modern era do: discovery, subscriptions, and retries that bring the input we
//! asked for.

use std::sync::Arc;

use super::tasks::refuse_tasks;
use super::{Gateway, TWICE, items, tasks};
use crate::catalog::Kind;
use crate::core::bridge::seal::State;
use crate::core::modern::{Cache, Listener, Watched};
use crate::core::reply::Reply;
use crate::core::view::View;
use crate::core::workspace::Workspace;
use crate::json::{Node, Raw, quote};
use crate::protocol::era::Version;
use crate::protocol::message::code;

/// How many milliseconds a client may keep our own answers. A client that does not listen for changes sees a
/// new file that much later.
const OWN_TTL: u64 = 60_000;

pub(super) fn request(gateway: &Arc<Gateway>, method: &str, params: Node<'_>, reply: Reply) {
    match method {
        "server/discover" => discover(gateway, params, reply),
        "subscriptions/listen" => listen(gateway, params, reply),
        "tasks/update" => tasks::task(gateway, "tasks/update", params, reply),
        "tools/call" | "prompts/get" | "resources/read"
            if reply.modern().is_some_and(|modern| modern.is_retry) =>
        {
            match params.all_unique(["requestState", "inputResponses"]) {
                Ok(found) if !found.has(0) => gateway.common_request(method, params, reply),
                // The state was opened before the request had to wait; now the request is handled again.
                Ok(_) if reply.opened => gateway.common_request(method, params, reply),
                Ok(_) => retry(gateway, method, params, reply),
                Err(_) => gateway.faces.refuse(reply, code::INVALID_PARAMS, TWICE),
            }
        }
        _ => gateway.common_request(method, params, reply),
    }
}

fn discover(gateway: &Gateway, params: Node<'_>, reply: Reply) {
    let instructions = gateway.instructions(reply.session(), &gateway.viewer(&reply, params));
    let capabilities = tasks::capabilities(gateway, reply.session(), Version::MODERN, reply.renders_apps());
    let version = quote(Version::MODERN.as_str());
    let members = format!("\"supportedVersions\":[{version}],\"capabilities\":{capabilities}{instructions}");
    // Instructions and capabilities depend on the client.
    let hint = Cache { ttl: OWN_TTL, public: false };
    reply.result_kept(hint, |out| out.extend_from_slice(members.as_bytes()));
}

/// Whether callers with different tokens see different things.
pub(super) fn tokens_differ(gateway: &Gateway) -> bool {
    gateway.engine.settings().serving.tokens.iter().any(|token| token.scope.is_some())
}

/// How long a list may be kept, and by whom: no longer than any part of it, and by the client alone where
/// others, or the same one with another token, would be shown something else.
pub(super) fn list_hint(gateway: &Gateway, workspace: &Workspace, view: &View, kind: Kind) -> Cache {
    let exposure = workspace.exposure();
    let own = Cache { ttl: OWN_TTL, public: exposure.lists_alike(kind) && !tokens_differ(gateway) };
    if !exposure.lists_to_modern() {
        return own;
    }
    view.entries().fold(own, |whole, entry| match entry.upstream.connection() {
        Some(connection) if !connection.can(kind.capability()) => whole,
        Some(connection) => whole.and(connection.profile.hint(kind)),
        // The upstream may come back at any time. Nobody has said who may keep what it offers while it rests.
        None => {
            let public = !entry.up || entry.exposed.of(kind).items().is_empty();
            whole.and(Cache { ttl: 0, public })
        }
    })
}

/// Continues a request where it stopped, with the input that it brings, unless somebody has done so before.
fn retry(gateway: &Arc<Gateway>, method: &str, params: Node<'_>, reply: Reply) {
    // This check comes before the state is used up.
    if let ("tools/call", Some(Some(name))) = (method, params.get("name").map(Node::as_str))
        && let Err(refusal) = gateway.check_mirrored(&name, params.get("arguments"), reply.session())
    {
        return reply.refuse(refusal);
    }
    let refuse =
        |reply: Reply, why: &str| reply.error(code::INVALID_PARAMS, &format!("Invalid params: {why}"), None);
    let unsealed = match gateway.engine.bridge.unseal(method, params, reply.session()) {
        Ok(unsealed) => unsealed,
        Err(why) => return refuse(reply, why),
    };
    let Some(shared) = gateway.shared.get().cloned() else {
        return match gateway.engine.bridge.use_up(&unsealed) {
            true => go_on(gateway, method, params, unsealed.state, reply),
            false => refuse(reply, USED),
        };
    };
    let (gateway, method, params) = (gateway.clone(), method.to_owned(), Raw::from(params));
    tokio::spawn(async move {
        match shared.use_up(&unsealed).await {
            Ok(true) => go_on(&gateway, &method, params.root(), unsealed.state, reply),
            Ok(false) => refuse(reply, USED),
            Err(_) => reply.error(
                code::STORE_AWAY,
                "the store is away, which knows whether requestState was used",
                None,
            ),
        }
    });
}

/// Why a state is refused that somebody has used.
const USED: &str = "requestState was used before; call again without it";

/// Continues a request with a state that nobody has used before.
fn go_on(gateway: &Arc<Gateway>, method: &str, params: Node<'_>, state: State, mut reply: Reply) {
    let again = match state {
        State::Parked { call, .. } => {
            if let Err(reply) = gateway.engine.bridge.resume(call, params, reply) {
                let why = "Invalid params: requestState was used before, or its call is over; call again without it";
                reply.error(code::INVALID_PARAMS, why, None);
            }
            return;
        }
        State::Upstream(state) => params.with(&[("requestState", state.as_deref())]),
        State::Refused(error) => {
            let responses = params.get("inputResponses");
            let accepted = responses.is_some_and(|responses| {
                let accepts =
                    |node: Node<'_>| node.get("action").is_some_and(|action| action.raw() == "\"accept\"");
                responses.members().all(|(_, response)| accepts(response))
            });
            if !accepted {
                return reply.raw_error(Raw::own(error).root());
            }
            params.with(&[("requestState", None), ("inputResponses", None)])
        }
    };
    reply.opened = true;
    gateway.common_request(method, Raw::own(again).root(), reply);
}

/// `subscriptions/listen`: acknowledged at once, and answered when it ends.
fn listen(gateway: &Arc<Gateway>, params: Node<'_>, reply: Reply) {
    let session = reply.session().clone();
    let Ok(filter) = params.unique("notifications") else {
        return gateway.faces.refuse(reply, code::INVALID_PARAMS, TWICE);
    };
    let tasks = filter.and_then(|filter| filter.get("taskIds"));
    if tasks.is_some() && reply.modern().is_some_and(|modern| !modern.client.can_wait()) {
        return refuse_tasks(reply);
    }
    let Some(mut listener) = Listener::open(params, reply) else { return };
    for id in listener.tasks() {
        if let Some(place) = session.workspace.tasks.find(&id) {
            let task = (place.connection.upstream.clone(), Watched::Task(place.own));
            gateway.engine.watch(&task.0, &task.1, true);
            listener.watched.insert(id, task);
        }
    }
    session.workspace.listen(listener);
    if gateway.startup.has_lists() {
        session.workspace.begin();
    }
    watch_resources(gateway, &session.workspace);
}

/// Tells upstreams which of their resources are listened for, including resources that have only now
/// appeared.
pub(super) fn watch_resources(gateway: &Gateway, workspace: &Workspace) {
    for uri in workspace.listened() {
        let Some((upstream, own)) = items::resource_of(gateway, workspace, &uri) else { continue };
        let Ok(own) = serde_json::from_str::<String>(&own) else { continue };
        let what = Watched::Resource(own);
        workspace.each_listener(|listener| {
            let before = listener.watched.get(&uri);
            let is_watched = before.is_some_and(|(before, _)| Arc::ptr_eq(before, &upstream));
            if is_watched || !listener.wants(&uri) {
                return;
            }
            // An upstream that replaces another inherited what the other was watched for, and was told
            // already.
            let told = before.is_some_and(|(before, _)| before.is_removed()) && upstream.is_watched(&what);
            if !told {
                gateway.engine.watch(&upstream, &what, true);
            }
            let now = (upstream.clone(), what.clone());
            if let Some((before, what)) = listener.watched.insert(uri.clone(), now) {
                gateway.engine.watch(&before, &what, false);
            }
        });
    }
}

/// A subscription is over: its resources need no longer be watched on its behalf.
pub(super) fn unlisten(gateway: &Gateway, listener: &Listener) {
    for (upstream, what) in listener.watched.values() {
        gateway.engine.watch(upstream, what, false);
    }
}
