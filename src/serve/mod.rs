//! A client's messages: which method does what. Transports are in the modules below.

mod items;
pub mod stdio;
pub mod toolman;
mod workbench;

use std::sync::Arc;

use self::toolman::Bench;

use crate::core::catalog::Kind;
use crate::core::engine::{Engine, Surroundings};
use crate::core::session::{Reply, Session};
use crate::core::view::Exposure;
use crate::faces::workbench::Workbench;
use crate::wire::era::ClientHello;
use crate::wire::json::{Node, Scanner};
use crate::wire::message::{Id, code};

/// The face and the engine under it.
pub struct Gateway {
    engine: Arc<Engine>,
    face: Face,
}

/// A product surface at work.
pub enum Face {
    /// Toolboxes.
    Workbench(Arc<Workbench>),
    /// One catalog.
    Toolman(Arc<Bench>),
}

const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

impl Gateway {
    /// A gateway that has started nothing yet.
    pub fn new(face: Face, around: Surroundings) -> Arc<Self> {
        let (settings, exposure): (_, Arc<dyn Exposure + Send + Sync>) = match &face {
            Face::Workbench(workbench) => (workbench.config.common.clone(), workbench.clone()),
            Face::Toolman(bench) => (bench.face.config.common.clone(), bench.face.clone()),
        };
        Arc::new(Self { engine: Engine::new(settings, exposure, around), face })
    }

    /// Takes the client in.
    fn attach(self: &Arc<Self>, session: &Arc<Session>) {
        self.engine.attach(session);
        if let Face::Toolman(bench) = &self.face {
            self.start_bench(bench, session);
        }
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
        let (version, instructions) = match &self.face {
            Face::Workbench(face) => (hello.version, face.instructions(face.mode(Some(&hello)))),
            Face::Toolman(bench) => (hello.version, bench.face.instructions()),
        };
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
            crate::wire::json::quote(&instructions),
        ));
    }

    fn call_tool(self: &Arc<Self>, params: Node<'_>, reply: Reply) {
        let (name, arguments) =
            match (params.unique("name"), params.unique("arguments"), params.unique("_meta")) {
                (Ok(Some(name)), Ok(arguments), Ok(_)) => (name, arguments),
                (Ok(None), Ok(_), Ok(_)) => {
                    return reply.error(code::INVALID_PARAMS, "Invalid params: \"name\" is missing", None);
                }
                _ => return reply.error(code::INVALID_PARAMS, "Invalid params: a key stands twice", None),
            };
        let Some(name) = name.as_str() else {
            return reply.error(code::INVALID_PARAMS, "Invalid params: \"name\" must be a string", None);
        };
        match &self.face {
            Face::Workbench(face) => self.call_workbench(face, &name, params, arguments, reply),
            Face::Toolman(bench) => self.call_toolman(bench, &name, params, arguments, reply),
        }
    }

    fn list(self: &Arc<Self>, kind: Kind, params: Node<'_>, reply: Reply) {
        if let Face::Toolman(bench) = &self.face
            && !bench.is_ready()
        {
            return self.later(bench, kind.list_method(), params, reply);
        }
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
            let meta = match (kind, &self.face) {
                (Kind::Tool, Face::Workbench(face)) => face.meta_tools(face.mode(session.hello())),
                (Kind::Tool, Face::Toolman(bench)) => bench.face.activate_tool(&view),
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
