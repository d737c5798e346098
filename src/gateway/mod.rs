//! The gateway: takes clients' messages and decides which method does what.
//!
//! Transports ([`stdio`], [`http`]) hand messages to [`Gateway::take`]; [`Gateway::request`] is the table of
//! methods. The face decides what a tool call means, and `steps.rs` carries the decision out.
//!
//! Invariant: nothing on a request's path waits for another request; work that must wait has a task of its
//! own.

mod backend;
pub mod console;
pub mod doctor;
mod faces;
pub mod find;
pub mod http;
mod items;
pub mod lock;
mod modern;
mod reload;
mod restore;
mod results;
mod shared;
pub mod shell;
mod startup;
pub mod stdio;
mod steps;
mod tasks;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use self::backend::{HttpClients, mirrors};
use self::faces::Faces;
use self::find::Finders;
use self::shared::Shared;
use self::startup::Startup;
pub use self::startup::SwitchFile;
use self::steps::say;
use crate::catalog::Kind;
use crate::core::LIFE;
use crate::core::connection::Connection;
use crate::core::engine::{Engine, Surroundings};
use crate::core::modern::{Cache, ModernCall};
use crate::core::observed;
use crate::core::process::give_back_after_start;
use crate::core::reply::{Batch, Reply};
use crate::core::route::Route;
use crate::core::session::ClientSession;
use crate::core::sharing::DaemonSession;
use crate::core::view::{Exposure, View};
use crate::core::workspace::Workspace;
use crate::events::{Fact, Moment, Reread};
use crate::face::{Face, Remembered, Step, Then, ToolCall, Viewer, Wording};
use crate::json::{Node, quote};
use crate::known_clients::Behaviour;
use crate::protocol::era::{ClientHello, LOG_LEVELS, modern_name, our_info};
use crate::protocol::message::{AnswerTo, Id, Malformed, Message, Request, code};
use crate::text::plain;

/// The faces and the engine under them.
pub struct Gateway {
    engine: Arc<Engine>,
    faces: Faces,
    /// The views that callers with the same credentials share, and the sessions over HTTP.
    http_clients: HttpClients,
    /// The search indexes.
    finders: Finders,
    /// How far the servers that start with us have got.
    startup: Startup,
    /// Where switches are remembered; `None` if they are not.
    switch_file: RwLock<Option<SwitchFile>>,
    /// The session that the gateway is for, in the daemon; `None` where it is for all clients.
    daemon_session: Option<Arc<DaemonSession>>,
    /// What it shares with other replicas; unset where it is alone.
    shared: OnceLock<Arc<Shared>>,
}

/// What a configuration file amounts to.
pub struct Configured {
    /// What clients see.
    pub face: Arc<dyn Face>,
    /// Where switches are remembered; `None` if they are not.
    pub switch_file: Option<SwitchFile>,
}

/// Reads the names of tools by which clients are told of groups. This may wait for the disk.
fn recall_introductions(gateway: &Gateway, face: &dyn Face, anew: bool) {
    let servers = face.servers().into_iter();
    let introduced = servers.filter(|server| face.is_introduced_by_tools(server.group));
    gateway.engine.known.recall_introductions(
        introduced.map(|server| ((server.group.into(), server.key.into()), server.spec)),
        anew,
    );
}

/// A request's span: its client, id and method. It is made only where debug messages are wanted.
fn request_span(session: &ClientSession, request: &Request<'_>) -> tracing::Span {
    let client = || match session.hello() {
        Some(hello) => plain(&hello.name),
        None => plain(&request.params.map(modern_name).unwrap_or_default()),
    };
    tracing::debug_span!("request", client = %client(), id = %request.id.raw(), method = %plain(&request.method))
}

/// Answers a request that arrives too late. The answer has the shape of the face, and names what was
/// asked for.
fn turn_away(gateway: &Gateway, method: &str, params: Node<'_>, reason: &str, reply: Reply) {
    let text = |key| params.get(key).and_then(Node::as_str);
    let named = text("name").or_else(|| text("uri"));
    let Some(name) = named else {
        return gateway.faces.refuse(reply, code::UPSTREAM_LOST, &format!("{method}: {reason}"));
    };
    let face = gateway.face(reply.session());
    let wording = match method {
        "tools/call" => {
            let call = ToolCall { name: &name, arguments: params.get("arguments") };
            reply.session().workspace.read(|view| face.too_late(view, &call, reason))
        }
        _ => Wording::Error(face.refusal(code::UPSTREAM_LOST, &format!("{name}: {reason}"))),
    };
    say(reply, wording, None);
}

/// Whether a client may ask this before it has said who it is.
fn is_handshake(method: &str) -> bool {
    matches!(method, "initialize" | "ping" | "server/discover")
}

/// Why calls are cut off, or refused, when the gateway ends.
const SHUTTING_DOWN: &str = "the gateway is shutting down";

/// Why a request with two values for a key that we route by is refused.
const TWICE: &str = "Invalid params: a key appears twice";

/// The capabilities that we always have, as members of a raw object.
const CAPABILITIES: &str = "\"tools\":{\"listChanged\":true},\"resources\":{\"subscribe\":true,\"listChanged\":true},\
     \"prompts\":{\"listChanged\":true},\"completions\":{},\"logging\":{}";

impl Gateway {
    /// A gateway that has started nothing yet.
    pub fn new(configured: Configured, around: Surroundings) -> Arc<Self> {
        let engine = Engine::new(configured.face.common().clone(), around);
        over(engine, configured, None)
    }

    /// Gives memory back to the system after the start, and whenever servers have started. Never returns.
    pub async fn give_back_memory(&self) {
        give_back_after_start(&self.engine.lists_read).await;
    }

    /// Puts a new file in force. The servers that have to start or end because of it do so in the background.
    pub fn reload(self: &Arc<Self>, configured: Configured) {
        reload::reload(vec![(self.clone(), configured)], &[]);
    }

    /// A workspace of a face, for one client or for all callers with the same credentials.
    fn workspace(self: &Arc<Self>, face: usize, principal: &str, client: Option<u64>) -> Arc<Workspace> {
        let at_work = self.faces.at(face);
        let daemon_session = self.daemon_session.clone();
        let workspace = self.engine.workspace(principal, face, at_work.clone(), client, daemon_session);
        let weak = Arc::downgrade(self);
        self.engine.audience.on_arrival(&workspace, move |workspace| {
            if let Some(gateway) = weak.upgrade() {
                modern::watch_resources(&gateway, workspace);
            }
        });
        if at_work.starts_all().is_some() {
            startup::furnish(self, &*at_work, &workspace);
        }
        workspace
    }

    /// Makes the first workspace, for this principal, and starts the servers that must run from the start.
    fn begin(self: &Arc<Self>, principal: &str) -> Arc<Workspace> {
        let face = self.faces.whole();
        self.recall(&*face, false);
        let workspace = self.workspace(0, principal, None);
        match face.starts_all() {
            Some(_) => startup::start_all(self, &face, &workspace),
            None => self.finders.prepare(self, &workspace),
        }
        workspace
    }

    /// Reads what is remembered about a face's servers, before requests ask for it; `anew`: of a new file, so that what
    /// other sessions were told does not count. This may wait for the disk.
    pub fn recall(&self, face: &dyn Face, anew: bool) {
        recall_introductions(self, face, anew);
        let specs: Vec<_> = face.servers().into_iter().map(|server| server.spec).collect();
        self.engine.known.recall(&specs, face.listing());
    }

    fn face(&self, session: &ClientSession) -> Arc<dyn Face> {
        self.faces.of(&session.workspace)
    }

    /// Who is asking, as faces see it.
    fn viewer<'a>(&'a self, reply: &'a Reply, params: Node<'a>) -> Viewer<'a> {
        self.viewer_of(reply.session(), params, reply.modern().is_some(), reply.renders_apps())
    }

    fn viewer_of<'a>(
        &'a self,
        session: &'a ClientSession,
        params: Node<'a>,
        modern: bool,
        renders_apps: bool,
    ) -> Viewer<'a> {
        let (client, settled) = (session.hello(), self.startup.is_settled());
        Viewer { client, params, modern, renders_apps, settled, known: Some(&self.engine.known) }
    }

    /// Takes one message from a client. The answer, and every message that belongs to it, goes by `route`, or
    /// by the session's own route if none is given. A panic costs only the message that caused it: a dropped
    /// reply still answers its request.
    fn take(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
        message: Result<Message<'_>, Malformed>,
        route: Option<Route>,
        batch: Option<&Arc<Batch>>,
    ) {
        let take = AssertUnwindSafe(|| self.take_message(session, message, route, batch));
        if catch_unwind(take).is_err() {
            tracing::error!("a message of the client caused a panic; please report it");
        }
    }

    /// Takes the parts of a batch, whose answers leave together.
    fn take_batch(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
        parts: Vec<Result<Message<'_>, Malformed>>,
        route: Option<Route>,
    ) {
        let is_answered = |part: &&Result<_, _>| matches!(part, Ok(Message::Request(_)) | Err(_));
        let batch = Batch::new(parts.iter().filter(is_answered).count());
        for part in parts {
            self.take(session, part, route.clone(), Some(&batch));
        }
    }

    fn take_message(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
        message: Result<Message<'_>, Malformed>,
        route: Option<Route>,
        batch: Option<&Arc<Batch>>,
    ) {
        match message {
            Ok(Message::Request(request)) => {
                let _span = request_span(session, &request).entered();
                tracing::debug!("received");
                let modern = match ModernCall::read(&request, &session.workspace.last_modern, || {
                    self.face(session).name()
                }) {
                    Ok(modern) => modern,
                    Err(why) => return session.refuse(Some(&request.id), &why, route, batch),
                };
                let Request { id, method, params, .. } = request;
                let is_first = modern.is_some() && session.is_new();
                let Some(mut reply) = session.accept(id, route, batch.cloned(), modern) else { return };
                let params = params.unwrap_or_else(Node::empty);
                reply.keep_params(&method, params);
                observed::begin(&self.engine, &method, params, &mut reply);
                if is_first {
                    self.meet(session, &modern_name(params));
                }
                // A session of the daemon goes on in the next one, so it is not too late for a handshake.
                let goes_on = session.workspace.daemon_session().is_some() && is_handshake(&method);
                match session.is_ending() && !goes_on {
                    true => turn_away(self, &method, params, SHUTTING_DOWN, reply),
                    false => self.request(&method, params, reply),
                }
            }
            Ok(Message::Notification { method, params }) => self.notification(session, &method, params),
            Ok(Message::Response { to, outcome, .. }) => {
                if !matches!(to, AnswerTo::Ours(id) if session.peer().resolve(id, outcome)) {
                    tracing::debug!("the client sent an answer to no request");
                }
            }
            Err(Malformed { id, why }) => session.refuse(id.as_ref(), &why, route, batch),
        }
    }

    fn request(self: &Arc<Self>, method: &str, params: Node<'_>, reply: Reply) {
        // A resource must be known before it can be watched, so its group opens first.
        if matches!(method, "subscriptions/listen" | "resources/subscribe")
            && let Some(group) = self.faces.opens_first(&reply.session().workspace)
        {
            return self.open(group, Then::Request, method, params, reply);
        }
        if reply.modern().is_some() {
            return modern::request(self, method, params, reply);
        }
        if reply.session().hello().is_none() && !is_handshake(method) {
            return reply.error(code::INVALID_REQUEST, "Invalid request: `initialize` must come first", None);
        }
        if method.starts_with("tasks/") && !tasks::are_there(self, &reply) {
            return method_not_found(method, reply);
        }
        match method {
            "ping" => reply.result("{}"),
            "initialize" => self.initialize(params, reply),
            "resources/subscribe" => items::resource(self, "resources/subscribe", params, reply),
            "resources/unsubscribe" => items::resource(self, "resources/unsubscribe", params, reply),
            "logging/setLevel" => self.set_log_level(params, reply),
            "tasks/result" => tasks::task(self, "tasks/result", params, reply),
            "tasks/list" => tasks::list(params, reply),
            _ => self.common_request(method, params, reply),
        }
    }

    /// The methods that both eras have.
    fn common_request(self: &Arc<Self>, method: &str, params: Node<'_>, reply: Reply) {
        if method == "tools/call" {
            return self.call_tool(params, None, reply);
        }
        if let Some(group) = self.faces.opens_first(&reply.session().workspace) {
            return self.open(group, Then::Request, method, params, reply);
        }
        match method {
            "tools/list" => self.list(Kind::Tool, params, reply),
            "resources/list" => self.list(Kind::Resource, params, reply),
            "resources/templates/list" => self.list(Kind::Template, params, reply),
            "prompts/list" => self.list(Kind::Prompt, params, reply),
            "resources/read" => items::resource(self, "resources/read", params, reply),
            "prompts/get" => items::get_prompt(self, params, reply),
            "completion/complete" => items::complete(self, params, reply),
            "tasks/get" => tasks::task(self, "tasks/get", params, reply),
            "tasks/cancel" => tasks::task(self, "tasks/cancel", params, reply),
            _ => method_not_found(method, reply),
        }
    }

    fn initialize(&self, params: Node<'_>, reply: Reply) {
        let hello = match ClientHello::read(params) {
            Ok(hello) => hello,
            Err(message) => {
                return reply.error(code::INVALID_PARAMS, &format!("Invalid params: {message}"), None);
            }
        };
        let (version, renders_apps) = (hello.version, hello.renders_apps);
        let session = reply.session().clone();
        let viewer =
            Viewer { client: Some(&hello), renders_apps: hello.renders_apps, ..self.viewer(&reply, params) };
        let instructions = self.instructions(&session, &viewer);
        let name = hello.name.clone();
        if !reply.session().greet(hello) {
            return reply.error(code::INVALID_REQUEST, "Invalid request: `initialize` came twice", None);
        }
        self.meet(&session, &name);
        tracing::info!(target: LIFE, "client {} has come", plain(&name));
        if self.startup.has_lists() && self.faces.opens_first(&session.workspace).is_none() {
            session.begin();
        }
        reply.record();
        let info = our_info(self.face(reply.session()).name());
        reply.result(&format!(
            "{{\"protocolVersion\":\"{}\",\"capabilities\":{},\"serverInfo\":{}{instructions}}}",
            version.as_str(),
            tasks::capabilities(self, &session, version, renders_apps),
            info,
        ));
    }

    /// The client has said who it is. From now on names are made for it, and upstreams are told what it can
    /// do.
    fn meet(&self, session: &ClientSession, name: &str) {
        self.engine.audience.introduce();
        session.workspace.change(|view| name_for(view, &*session.workspace.exposure(), name));
    }

    /// The `instructions` for a client, as a member with a comma before it.
    fn instructions(&self, session: &ClientSession, viewer: &Viewer<'_>) -> String {
        let text = self.face(session).instructions(viewer);
        text.map(|text| format!(",\"instructions\":{}", quote(&text))).unwrap_or_default()
    }

    fn call_tool(self: &Arc<Self>, params: Node<'_>, remembered: Option<&Remembered>, mut reply: Reply) {
        let members = params.sorted(&["name", "arguments"], |key| match key {
            b"name" => Some(0),
            b"arguments" => Some(1),
            _ => None,
        });
        let Ok(members) = members else { return self.faces.refuse(reply, code::INVALID_PARAMS, TWICE) };
        let Some(name) = members.get(0) else {
            return self.faces.refuse(reply, code::INVALID_PARAMS, "Invalid params: \"name\" is missing");
        };
        let arguments = members.get(1);
        let Some(name) = name.as_str() else {
            return self.faces.refuse(
                reply,
                code::INVALID_PARAMS,
                "Invalid params: \"name\" must be a string",
            );
        };
        let face = self.face(reply.session());
        let call = ToolCall { name: &name, arguments };
        let step = reply.session().workspace.read(|view| {
            match face.opens_first().filter(|group| !view.is_open(group)) {
                Some(group) => Step::Open(group.to_owned(), Then::Request),
                None => face.call(view, &self.viewer(&reply, params), &call, remembered),
            }
        });
        if let Step::Forward(target, None) = &step
            && let Err(refusal) = mirrors(target, arguments, reply.session())
        {
            return reply.refuse(refusal);
        }
        note_tool(&step, &*face, &name, &mut reply);
        self.carry_out(step, face, params, reply);
    }

    fn list(self: &Arc<Self>, kind: Kind, params: Node<'_>, reply: Reply) {
        let session = reply.session().clone();
        if !self.startup.has_lists() {
            return startup::later(self, kind.list_method(), params, reply);
        }
        if params.get("cursor").is_some_and(|cursor| cursor.raw() != "null") {
            let message = "Invalid params: unknown cursor; every list is one page";
            return self.faces.refuse(reply, code::INVALID_PARAMS, message);
        }
        let viewer = self.viewer_of(&session, params, reply.modern().is_some(), reply.renders_apps());
        if viewer.modern {
            share_names(&session.workspace, &viewer.name());
        }
        let answer = || {
            session.workspace.read(|view| {
                let hint = match viewer.modern {
                    true => modern::list_hint(self, &session.workspace, view, kind),
                    false => Cache::default(),
                };
                reply.result_kept(hint, |out| {
                    out.extend_from_slice(format!("\"{}\":[", kind.list_key()).as_bytes());
                    self.faces.write_list(&session.workspace, view, &viewer, kind, out);
                    out.push(b']');
                });
            });
        };
        match viewer.modern {
            true => answer(),
            false => session.show(kind, answer),
        }
    }

    fn set_log_level(&self, params: Node<'_>, reply: Reply) {
        if !params.get("level").and_then(Node::as_str).is_some_and(|level| LOG_LEVELS.contains(&&*level)) {
            let message = format!("Invalid params: level must be one of {}", LOG_LEVELS.join(", "));
            return reply.error(code::INVALID_PARAMS, &message, None);
        }
        observed::at_once_for(&reply, || self.engine.set_log_level(reply.session(), params));
        reply.record();
        reply.result("{}");
    }

    fn notification(&self, session: &Arc<ClientSession>, method: &str, params: Option<Node<'_>>) {
        if params.is_some_and(|params| !params.is_object()) {
            return;
        }
        match method {
            "notifications/initialized" => {}
            "notifications/cancelled" => self.cancelled(session, params),
            "notifications/progress" => progress(session, params),
            _ => self.engine.broadcast(session, method, params),
        }
    }

    /// The client cancels a request: the upstream is told under our id, and no answer is sent.
    fn cancelled(&self, session: &ClientSession, params: Option<Node<'_>>) {
        let Some(params) = params else { return };
        let Some(id) = params.get("requestId").and_then(Id::from_node) else { return };
        if let Some((connection, ours)) = self.give_up(session, &id) {
            connection.peer.notify("notifications/cancelled", |out| {
                params.write_with(out, &[("requestId", Some(&ours.to_string()))]);
            });
        }
    }

    /// Forgets a request. Returns the connection that must be told, and the id of our request there.
    fn give_up(&self, session: &ClientSession, id: &Id) -> Option<(Arc<Connection>, u64)> {
        let listener = session.workspace.take_listener(session, id);
        // This comes before the subscription is dropped, because dropping it would answer the request.
        let sent = session.cancel(id);
        if let Some(listener) = listener {
            modern::unlisten(self, &listener);
        }
        sent.filter(|(connection, ours)| connection.peer.forget(*ours).is_some())
    }
}

/// A gateway over an engine, for all of its clients or for one session of the daemon. Such a session goes on
/// where another of the same file is, so that both know each server by the same key.
fn over(
    engine: Arc<Engine>,
    configured: Configured,
    daemon_session: Option<Arc<DaemonSession>>,
) -> Arc<Gateway> {
    let Configured { face, switch_file } = configured;
    Arc::new(Gateway {
        engine,
        startup: Startup::new(face.starts_all().is_some()),
        faces: Faces::new(face),
        http_clients: HttpClients::default(),
        finders: Finders::default(),
        switch_file: RwLock::new(switch_file),
        daemon_session,
        shared: OnceLock::new(),
    })
}

/// The gateway of one session of the daemon, over an engine that it shares with other sessions of the same
/// file. `beside` is one of them: both must know each server by the same key.
pub fn of_daemon_session(
    engine: &Arc<Engine>,
    configured: Configured,
    daemon_session: Arc<DaemonSession>,
    beside: Option<&Gateway>,
) -> Arc<Gateway> {
    let face = match beside {
        Some(beside) => configured.face.succeed(&*beside.faces.whole()),
        None => configured.face,
    };
    over(engine.clone(), Configured { face, ..configured }, Some(daemon_session))
}

/// Puts a new file in force for gateways that share an engine with each other, and with `others` for which it is not
/// valid.
pub fn reload_all(gateways: Vec<(Arc<Gateway>, Configured)>, others: &[Arc<Gateway>]) {
    reload::reload(gateways, others);
}

/// Tells that the file was read again: whether it is in force now, and how many problems and warnings it has.
pub fn note_reload(gateway: &Gateway, ok: bool, problems: usize) {
    let problems = problems as u64;
    gateway.engine.events.tell(Moment::now(), || Fact::Reload(Reread { ok, problems }));
}

/// Counts what happens from now on, for whoever asks for metrics.
pub fn count_events(gateway: &Gateway) {
    gateway.engine.events.count();
}

/// Writes everything that happened, after the end of a gateway. Blocks until then.
pub fn finish_events(gateway: &Gateway) {
    gateway.engine.events.close();
}

/// The workspaces of a gateway's own clients, oldest first.
fn workspaces(gateway: &Gateway) -> Vec<Arc<Workspace>> {
    let mut all = gateway.engine.audience.workspaces();
    if let Some(own) = &gateway.daemon_session {
        all.retain(|workspace| workspace.daemon_session().is_some_and(|other| std::ptr::eq(other, &**own)));
    }
    all
}

/// Notes whether a tool exists: what is not answered at once leads somewhere, and so do the face's own tools.
fn note_tool(step: &Step<'_>, face: &dyn Face, name: &str, reply: &mut Reply) {
    if let Some(exchange) = reply.exchange() {
        exchange.asked.exists |= !matches!(step, Step::Say(_)) || face.has_own_tool(name);
    }
}

fn method_not_found(method: &str, reply: Reply) {
    reply.error(code::METHOD_NOT_FOUND, &format!("Method not found: {method}"), None);
}

/// The client reports progress on a question: the upstream hears of it under its own token.
fn progress(session: &ClientSession, params: Option<Node<'_>>) {
    let Some(params) = params else { return };
    let Some(id) = params.get("progressToken").and_then(|token| token.raw().parse().ok()) else { return };
    let asker = session
        .peer()
        .touch(id, |question| Some((question.connection.upgrade()?, question.progress.clone()?)));
    if let Some(Some((connection, token))) = asker {
        connection.peer.notify("notifications/progress", |out| {
            params.write_with(out, &[("progressToken", Some(&token))]);
        });
    }
}

/// Lets names fit a modern client too, which shares them with all callers that have the same credentials.
fn share_names(workspace: &Workspace, client: &str) {
    let (exposure, strict_uris) = (workspace.exposure(), Behaviour::of(client).strict_uri_schemes);
    // What was made of the view is lost when it may have changed.
    if workspace.read(|view| view.suits(&*exposure, client, strict_uris)) {
        return;
    }
    if workspace.change(|view| view.admit(&*exposure, client, strict_uris)) {
        workspace.tell();
    }
}

/// Names everything in a view for a client with this name.
fn name_for(view: &mut View, face: &dyn Exposure, client: &str) {
    view.name_for(face, client, Behaviour::of(client).strict_uri_schemes);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::catalog::NameLimits;
    use crate::config::NameRule;
    use crate::core::route::Heard;
    use crate::core::upstream::Upstream;
    use crate::core::view::{Exposure, Look, Renderer};
    use crate::face::workbench::Workbench;
    use crate::json::Raw;

    /// A face whose lists make us panic.
    struct Panics;

    impl Exposure for Panics {
        fn full_name(&self, _: &Upstream, _: Kind, key: &str) -> String {
            key.to_owned()
        }

        fn renderer<'a>(&'a self, _: &'a Upstream, _: Kind) -> Renderer<'a> {
            Box::new(|_, definition, out| out.extend_from_slice(definition.raw().as_bytes()))
        }

        fn limits(&self, _: &str) -> NameLimits {
            NameLimits { rule: NameRule::Safe, length: 64, reserved: None }
        }

        fn lists(&self, _: Option<&ClientHello>, _: Kind) -> bool {
            panic!("injected")
        }
    }

    #[test]
    fn what_was_made_of_a_view_stays_while_its_names_suit_those_who_share_it() {
        let workspace = Workspace::new("", 0, Arc::new(Panics), None, &Arc::default());
        let made = || {
            let (look, mut made) = (Look::of("", true, false), false);
            let make = || {
                made = true;
                String::new()
            };
            workspace.read(|view| drop(view.prepared(look, make)));
            made
        };
        share_names(&workspace, "one");
        assert!(made());
        share_names(&workspace, "another");
        assert!(!made(), "a client that needs no other names");
        share_names(&workspace, "mcp");
        assert!(made(), "a client that accepts fewer URIs");
    }

    #[tokio::test]
    async fn a_panic_fails_the_request_that_caused_it_and_nothing_else() {
        let file = br#"{"toolboxes":{}}"#;
        let (config, _) = crate::config::load(Path::new("x"), file, &crate::config::Inputs::of(&|_| None))
            .expect("it is valid");
        let around = Surroundings::of_tests();
        let gateway =
            Gateway::new(Configured { face: Arc::new(Workbench { config }), switch_file: None }, around);
        let heard = Arc::new(Heard::default());
        let workspace = Workspace::new("", 0, Arc::new(Panics), None, &Arc::default());
        let session = ClientSession::new(workspace, Route::Stream(heard.clone()));
        let hello =
            r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#;
        for (id, method, params) in [(1, "initialize", hello), (2, "tools/list", "{}"), (3, "ping", "{}")] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
            gateway.take(&session, Message::read(Raw::own(text).root()), None, None);
        }
        let heard = heard.0.lock();
        assert_eq!(heard.len(), 3, "{heard:?}");
        assert!(heard[1].starts_with(r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"#), "{}", heard[1]);
        assert_eq!(heard[2], r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
    }
}
