//! Requests about tasks: they go to the server that runs the task, and only for the client that began it.

use std::sync::Arc;
use std::time::Duration;

use super::results::{self, ResultPlace};
use super::{CAPABILITIES, Gateway};
use crate::core::observed;
use crate::core::reply::Reply;
use crate::core::session::ClientSession;
use crate::core::tasks::TaskPlace;
use crate::json::{Node, Raw, quote};
use crate::protocol::era::{APPS, TASKS, TaskSupport, Version};
use crate::protocol::message::code;
use crate::transport::peer::Answer;

/// How long a server may take to report on a task before the task is left out of a list.
const PATIENCE: Duration = Duration::from_secs(10);

/// Our capabilities for a client of this version, as raw JSON. They include tasks if a server is known to
/// have them, now or from an earlier run.
pub(super) fn capabilities(
    gateway: &Gateway,
    session: &ClientSession,
    version: Version,
    renders_apps: bool,
) -> String {
    let mut extensions: Vec<&str> = renders_apps.then_some(APPS).into_iter().collect();
    let tasks = match (support(gateway, session, version), version.is_modern()) {
        (TaskSupport::None, _) => String::new(),
        (_, true) => {
            extensions.push(TASKS);
            String::new()
        }
        (support, false) => {
            let cancel = if support == TaskSupport::WithCancel { "\"cancel\":{}," } else { "" };
            format!(",\"tasks\":{{\"list\":{{}},{cancel}\"requests\":{{\"tools\":{{\"call\":{{}}}}}}}}")
        }
    };
    let extensions = match &extensions[..] {
        [] => String::new(),
        names => {
            let members: Vec<_> = names.iter().map(|name| format!("\"{name}\":{{}}")).collect();
            format!(",\"extensions\":{{{}}}", members.join(","))
        }
    };
    format!("{{{CAPABILITIES}{tasks}{extensions}}}")
}

fn support(gateway: &Gateway, session: &ClientSession, version: Version) -> TaskSupport {
    let face = gateway.face(session);
    let servers = face.servers().into_iter();
    let support = servers.map(|server| gateway.engine.task_support(&server.spec.transport, version));
    support.max().unwrap_or_default()
}

/// Whether this client can make requests about tasks.
pub(super) fn are_there(gateway: &Gateway, reply: &Reply) -> bool {
    support(gateway, reply.session(), reply.version()) != TaskSupport::None
}

/// Sends a request about one task to the server that has the task.
pub(super) fn task(gateway: &Arc<Gateway>, method: &'static str, params: Node<'_>, reply: Reply) {
    if reply.modern().is_some_and(|modern| !modern.client.can_wait()) {
        return refuse_tasks(reply);
    }
    let Ok(Some(Some(id))) = params.unique("taskId").map(|id| id.map(Node::as_str)) else {
        return reply.error(code::INVALID_PARAMS, "Invalid params: \"taskId\" must be a string", None);
    };
    let found = reply.session().workspace.tasks.find(&id);
    let found = found.filter(|place| place.connection.version().is_modern() == reply.modern().is_some());
    let Some(place) = found else {
        let message = format!("Task not found: {id}");
        return reply.error(code::INVALID_PARAMS, &message, None);
    };
    let (own, id, upstream) = (quote(&place.own), place.id, place.connection.upstream.clone());
    let changes = [("taskId", Some(&*own))];
    let face = gateway.face(reply.session());
    let names_pages = reply.renders_apps() || face.keeps_pages();
    let finished = match method {
        _ if place.has_app => None,
        "tasks/result" => Some(ResultPlace::Whole),
        "tasks/get" => Some(ResultPlace::Member("result")),
        _ => None,
    };
    let finish = move |answer: Answer<'_>, reply: Reply| {
        let workspace = reply.session().workspace.clone();
        workspace.tasks.answered(&id, method, &answer);
        match answer {
            Answer::Result(result) => {
                let changed = match method {
                    _ if !names_pages => None,
                    "tasks/result" => workspace.result_for_host(&upstream, result),
                    _ => workspace.task_for_host(&upstream, result),
                };
                let changed = changed.map(Raw::own);
                let result = changed.as_ref().map_or(result, Raw::root);
                match finished {
                    Some(place) => results::relay(&*face, &upstream, place, result, reply),
                    None => reply.relay(result, &[]),
                }
            }
            Answer::Error(error) => reply.raw_error(error),
            Answer::Lost(lost) => reply.error(lost.code, &lost.message, None),
        }
    };
    gateway.engine.forward(&place.connection.upstream, method, params, &changes, reply, finish);
}

/// `tasks/list`: every task of the client, in the state that its server reports now. We ask for each task by
/// itself, because a server's own list holds the tasks of all our clients, or is not offered; every server
/// must answer for a single task.
pub(super) fn list(params: Node<'_>, reply: Reply) {
    let cursor = params.get("cursor").filter(|cursor| cursor.raw() != "null");
    let after = cursor.map_or(Some(0), |cursor| cursor.as_str()?.parse().ok());
    let Some(after) = after else {
        return reply.error(code::INVALID_PARAMS, "Invalid params: unknown cursor", None);
    };
    let (places, next) = reply.session().workspace.tasks.page(after);
    tokio::spawn(async move {
        let ask = |place| tokio::spawn(observed::on_behalf_of(reply.behalf(), state(place)));
        let asked: Vec<_> = places.into_iter().map(ask).collect();
        let mut tasks = Vec::new();
        for task in asked {
            tasks.extend(task.await.ok().flatten());
        }
        let next = next.map(|next| format!(",\"nextCursor\":\"{next}\"")).unwrap_or_default();
        reply.result(&format!("{{\"tasks\":[{}]{next}}}", tasks.join(",")));
    });
}

/// A task's state as its server reports it, under the client's id; `None` if the server no longer knows the
/// task.
async fn state(place: TaskPlace) -> Option<String> {
    let params = format!("{{\"taskId\":{}}}", quote(&place.own));
    let result =
        tokio::time::timeout(PATIENCE, place.connection.ask("tasks/get", &params)).await.ok()?.ok()?;
    Some(Raw::own(result).root().with(&[("taskId", Some(&quote(&place.id)))]))
}

/// Refuses a request about tasks: only clients that declare the extension take a task for an answer.
pub(super) fn refuse_tasks(reply: Reply) {
    let data = format!("{{\"requiredCapabilities\":{{\"extensions\":{{\"{TASKS}\":{{}}}}}}}}");
    reply.error(code::MISSING_CAPABILITY, "the client does not declare the extension for tasks", Some(&data));
}
