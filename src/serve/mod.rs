//! A client's messages: which method does what. Transports are in the modules below.

mod items;
pub mod stdio;
mod tools;

use std::sync::Arc;

use crate::core::catalog::Kind;
use crate::core::engine::{Engine, Surroundings};
use crate::core::session::{Reply, Session};
use crate::faces::workbench::Workbench;
use crate::wire::era::ClientHello;
use crate::wire::json::{Node, Scanner};
use crate::wire::message::{Id, code};

/// The face and the engine under it.
pub struct Gateway {
    engine: Arc<Engine>,
    face: Arc<Workbench>,
}

const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

impl Gateway {
    /// A gateway that has started nothing yet.
    pub fn new(face: Workbench, around: Surroundings) -> Arc<Self> {
        let face = Arc::new(face);
        let engine = Engine::new(face.config.common.clone(), face.clone(), around);
        Arc::new(Self { engine, face })
    }

    fn request(self: &Arc<Self>, method: &str, params: Option<Node<'_>>, reply: Reply) {
        let mut empty = Scanner::default();
        let params = params.unwrap_or_else(|| empty.scan_str("{}").expect("an empty object is JSON").root());
        if reply.session().hello().is_none() && !matches!(method, "initialize" | "ping" | "server/discover") {
            return reply.error(code::INVALID_REQUEST, "Invalid request: `initialize` must come first", None);
        }
        match method {
            "tools/call" => self.call_tool(params, reply),
            "ping" => reply.result("{}"),
            "initialize" => self.initialize(params, reply),
            "tools/list" => self.list(Kind::Tool, params, reply),
            "resources/list" => self.list(Kind::Resource, params, reply),
            "resources/templates/list" => self.list(Kind::Template, params, reply),
            "prompts/list" => self.list(Kind::Prompt, params, reply),
            "resources/read" => self.resource("resources/read", params, reply),
            "resources/subscribe" => self.resource("resources/subscribe", params, reply),
            "resources/unsubscribe" => self.resource("resources/unsubscribe", params, reply),
            "prompts/get" => self.get_prompt(params, reply),
            "completion/complete" => self.complete(params, reply),
            "logging/setLevel" => self.set_log_level(params, reply),
            _ => reply.error(code::METHOD_NOT_FOUND, &format!("Method not found: {method}"), None),
        }
    }

    fn initialize(&self, params: Node<'_>, reply: Reply) {
        let hello = match ClientHello::read(Some(params)) {
            Ok(hello) => hello,
            Err(message) => {
                return reply.error(code::INVALID_PARAMS, &format!("Invalid params: {message}"), None);
            }
        };
        let (version, mode) = (hello.version, self.face.mode(Some(&hello)));
        if !reply.session().greet(hello) {
            return reply.error(code::INVALID_REQUEST, "Invalid request: `initialize` came twice", None);
        }
        reply.result(&format!(
            "{{\"protocolVersion\":\"{}\",\"capabilities\":{{\"tools\":{{\"listChanged\":true}},\
             \"resources\":{{\"subscribe\":true,\"listChanged\":true}},\"prompts\":{{\"listChanged\":true}},\
             \"completions\":{{}},\"logging\":{{}}}},\
             \"serverInfo\":{{\"name\":\"mcp-workbench\",\"version\":\"{}\"}},\"instructions\":{}}}",
            version.as_str(),
            env!("CARGO_PKG_VERSION"),
            crate::wire::json::quote(&self.face.instructions(mode)),
        ));
    }

    fn list(&self, kind: Kind, params: Node<'_>, reply: Reply) {
        if params.get("cursor").is_some_and(|cursor| cursor.raw() != "null") {
            return reply.error(
                code::INVALID_PARAMS,
                "Invalid params: unknown cursor; every list is one page",
                None,
            );
        }
        let session = reply.session().clone();
        let view = session.view.lock();
        reply.result_with(|out| {
            out.extend_from_slice(format!("{{\"{}\":[", kind.list_key()).as_bytes());
            let meta = match kind {
                Kind::Tool => self.face.meta_tools(self.face.mode(session.hello())),
                _ => String::new(),
            };
            out.extend_from_slice(meta.as_bytes());
            if self.engine.exposure().lists(session.hello(), kind) {
                view.write_list(kind, out, meta.is_empty());
            }
            out.extend_from_slice(b"]}");
        });
    }

    fn set_log_level(&self, params: Node<'_>, reply: Reply) {
        if !params.get("level").and_then(Node::as_str).is_some_and(|level| LOG_LEVELS.contains(&&*level)) {
            let message = format!("Invalid params: level must be one of {}", LOG_LEVELS.join(", "));
            return reply.error(code::INVALID_PARAMS, &message, None);
        }
        self.engine.set_log_level(reply.session(), params);
        reply.result("{}");
    }

    fn notification(&self, session: &Arc<Session>, method: &str, params: Option<Node<'_>>) {
        if params.is_some_and(|params| !params.is_object()) {
            return;
        }
        match method {
            "notifications/initialized" => {}
            "notifications/cancelled" => cancelled(session, params),
            "notifications/progress" => progress(session, params),
            _ => self.engine.broadcast(session, method, params),
        }
    }
}

/// The client gives a request up: the upstream is told under our id, and no answer will be sent.
fn cancelled(session: &Session, params: Option<Node<'_>>) {
    let Some(params) = params else { return };
    let Some(id) = params.get("requestId").and_then(Id::from_node) else { return };
    if let Some((link, ours)) = session.cancel(&id)
        && link.peer.forget(ours).is_some()
    {
        link.peer.notify("notifications/cancelled", |out| {
            params.write_with(out, &[("requestId", Some(&ours.to_string()))]);
        });
    }
}

/// The client reports on a question: the upstream hears it under its own token.
fn progress(session: &Session, params: Option<Node<'_>>) {
    let Some(params) = params else { return };
    let Some(id) = params.get("progressToken").and_then(|token| token.raw().parse().ok()) else { return };
    let asker =
        session.peer.touch(id, |question| Some((question.link.upgrade()?, question.progress.clone()?)));
    if let Some(Some((link, token))) = asker {
        link.peer.notify("notifications/progress", |out| {
            params.write_with(out, &[("progressToken", Some(&token))]);
        });
    }
}
