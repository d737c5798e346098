//! A client's messages: which method does what. Transports are in the modules below.

mod backend;
pub mod doctor;
pub mod find;
pub mod http;
mod items;
mod modern;
mod plain;
mod reload;
pub mod shell;
pub mod stdio;
mod tasks;
pub mod toolman;
mod workbench;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use self::backend::Guests;
use self::find::Finders;
use self::toolman::Bench;
use crate::config::{Common, Serving};
use crate::core::catalog::Kind;
use crate::core::engine::{Engine, Surroundings};
use crate::core::link::Link;
use crate::core::modern::ModernCall;
use crate::core::reply::{Batch, Reply};
use crate::core::route::Route;
use crate::core::session::Session;
use crate::core::view::{Exposure, View};
use crate::core::window::Window;
use crate::faces::plain::Plain;
use crate::faces::workbench::{Mode, Workbench, failed_call};
use crate::wire::era::{ClientHello, LOG_LEVELS, OUR_NAME, our_info};
use crate::wire::json::{Node, Scanner, quote};
use crate::wire::message::{AnswerTo, Id, Malformed, Message, code, error_object};

/// The face and the engine under it.
pub struct Gateway {
    engine: Arc<Engine>,
    /// What the file stands for: the first is for those who may see everything, the others are made when somebody
    /// comes who may see a part, or asks for one toolbox alone.
    faces: RwLock<Vec<(Part, Arc<Face>)>>,
    /// Those who share a view by their credentials, and sessions over HTTP.
    guests: Mutex<Guests>,
    /// What is searched, where it is.
    finders: Finders,
}

/// A part of what the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Part {
    /// The toolboxes or namespaces that exist; `None` is all.
    names: Option<Vec<String>>,
    /// The one toolbox that is served as a plain server.
    toolbox: Option<String>,
}

impl Part {
    fn admits(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|other| other == name))
    }
}

/// A product surface at work.
pub enum Face {
    /// Toolboxes.
    Workbench(Arc<Workbench>),
    /// One catalog.
    Toolman(Arc<Bench>),
    /// One toolbox as a plain server.
    Plain(Arc<Plain>),
}

impl Face {
    /// What clients are told that they talk to.
    fn name(&self) -> &'static str {
        match self {
            Self::Workbench(_) | Self::Plain(_) => OUR_NAME,
            Self::Toolman(_) => "toolman",
        }
    }

    fn exposure(&self) -> Arc<dyn Exposure + Send + Sync> {
        match self {
            Self::Workbench(face) => face.clone(),
            Self::Toolman(bench) => bench.face.clone(),
            Self::Plain(plain) => plain.clone(),
        }
    }

    /// This part of the whole; `None` if there is no such toolbox in it.
    fn part(&self, part: &Part) -> Option<Self> {
        match (self, &part.toolbox) {
            (Self::Workbench(whole), Some(toolbox)) => {
                let toolbox = whole.toolbox(toolbox).filter(|toolbox| part.admits(toolbox.name.as_str()))?;
                let common = whole.config.common.clone();
                Some(Self::Plain(Arc::new(Plain { toolbox: toolbox.clone(), common })))
            }
            (Self::Workbench(whole), None) => {
                let mut config = whole.config.clone();
                config.toolboxes.retain(|toolbox| part.admits(toolbox.name.as_str()));
                Some(Self::Workbench(Arc::new(Workbench { config })))
            }
            (Self::Toolman(whole), None) => {
                Some(Self::Toolman(Arc::new(whole.part(&|name| part.admits(name)))))
            }
            _ => None,
        }
    }

    /// Top-level settings of its configuration.
    fn common(&self) -> &Common {
        match self {
            Self::Plain(plain) => &plain.common,
            Self::Workbench(workbench) => &workbench.config.common,
            Self::Toolman(bench) => &bench.face.config.common,
        }
    }

    /// How its configuration wants to be served over HTTP.
    pub fn serving(&self) -> &Serving {
        &self.common().serving
    }
}

/// Why calls are cut off, or not taken on, at the end.
const SHUTTING_DOWN: &str = "the gateway is shutting down";

/// Why a request is refused that has two values for a key by which we route.
const TWICE: &str = "Invalid params: a key stands twice";

/// What we can always do, as members of a raw object.
const CAPABILITIES: &str = "\"tools\":{\"listChanged\":true},\"resources\":{\"subscribe\":true,\"listChanged\":true},\
     \"prompts\":{\"listChanged\":true},\"completions\":{},\"logging\":{}";

impl Gateway {
    /// A gateway that has started nothing yet.
    pub fn new(face: Face, around: Surroundings) -> Arc<Self> {
        let settings = face.common().clone();
        let faces = RwLock::new(vec![(Part::default(), Arc::new(face))]);
        let gateway = Arc::new(Self {
            engine: Engine::new(settings, around),
            faces,
            guests: Mutex::default(),
            finders: Finders::default(),
        });
        let weak = Arc::downgrade(&gateway);
        gateway.engine.on_arrival(move |window| {
            if let Some(gateway) = weak.upgrade() {
                gateway.watch_resources(window);
            }
        });
        gateway
    }

    /// A window of a face for a client, or for all callers with the same credentials.
    fn window(self: &Arc<Self>, face: usize, principal: &str, client: Option<u64>) -> Arc<Window> {
        let at_work = self.faces.read()[face].1.clone();
        let window = self.engine.window(principal, face, at_work.exposure(), client);
        if let Face::Toolman(bench) = &*at_work {
            self.furnish(bench, &window);
        }
        window
    }

    /// Lets what must run from the start begin.
    fn begin(self: &Arc<Self>, window: &Arc<Window>) {
        let face = self.faces.read()[0].1.clone();
        match &*face {
            Face::Toolman(bench) => self.start_bench(bench, window),
            Face::Workbench(_) | Face::Plain(_) => self.prepare_search(window),
        }
    }

    fn face(&self, session: &Session) -> Arc<Face> {
        self.face_in(&session.window)
    }

    fn face_in(&self, window: &Window) -> Arc<Face> {
        self.faces.read()[window.face()].1.clone()
    }

    /// The face of a part of the file; `None` if there is no such toolbox in it.
    fn face_of(&self, part: &Part) -> Option<usize> {
        let mut faces = self.faces.write();
        if let (Face::Workbench(whole), Some(toolbox)) = (&*faces[0].1, &part.toolbox)
            && !(part.admits(toolbox) && whole.toolbox(toolbox).is_some())
        {
            return None;
        }
        if let Some(found) = faces.iter().position(|(other, _)| other == part) {
            return Some(found);
        }
        let face = faces[0].1.part(part)?;
        faces.push((part.clone(), Arc::new(face)));
        Some(faces.len() - 1)
    }

    /// Takes one message of a client. Its answer, and what belongs to it, goes by `route`, or by the session's own way.
    /// A panic costs the message that caused it: the reply to a request answers when it is dropped.
    fn take(
        self: &Arc<Self>,
        session: &Arc<Session>,
        message: Result<Message<'_>, Malformed>,
        route: Option<Route>,
        batch: Option<&Arc<Batch>>,
    ) {
        let take = AssertUnwindSafe(|| self.take_message(session, message, route, batch));
        if catch_unwind(take).is_err() {
            log::error!("a message of the client made us panic; please report it");
        }
    }

    fn take_message(
        self: &Arc<Self>,
        session: &Arc<Session>,
        message: Result<Message<'_>, Malformed>,
        route: Option<Route>,
        batch: Option<&Arc<Batch>>,
    ) {
        match message {
            Ok(Message::Request { id, method, params }) => {
                let modern = match ModernCall::read(&method, params, self.face(session).name()) {
                    Ok(modern) => modern.map(Arc::new),
                    Err(bad) => {
                        let error = error_object(bad.code, &bad.message, bad.data.as_deref());
                        return session.refuse(Some(&id), &error, route, batch);
                    }
                };
                let Some(reply) = session.accept(id, route, batch.cloned(), modern) else { return };
                match session.is_ending() {
                    true => self.turn_away(&method, params, reply),
                    false => self.request(&method, params, reply),
                }
            }
            Ok(Message::Notification { method, params }) => self.notification(session, &method, params),
            Ok(Message::Response { to, outcome, .. }) => {
                if !matches!(to, AnswerTo::Ours(id) if session.peer.resolve(id, outcome)) {
                    log::debug!("an answer of the client that nobody waits for");
                }
            }
            Err(bad) => {
                let error = error_object(bad.code, bad.message, None);
                session.refuse(bad.id.as_ref(), &error, route, batch);
            }
        }
    }

    /// Answers a request that comes too late: in the shape of its face, and naming what was asked for.
    fn turn_away(&self, method: &str, params: Option<Node<'_>>, reply: Reply) {
        let member = |key| params.and_then(|params| params.get(key));
        let text = |key| member(key).and_then(Node::as_str);
        let named = text("name").or_else(|| text("uri"));
        let Some(name) = named else {
            return self.refuse(reply, code::UPSTREAM_LOST, &format!("{method}: {SHUTTING_DOWN}"));
        };
        let face = self.face(reply.session());
        match &*face {
            Face::Workbench(face) if method == "tools/call" => {
                let address = self.address(face, &name, member("arguments"), &reply);
                let error = error_object(code::UPSTREAM_LOST, SHUTTING_DOWN, None);
                reply.result(&failed_call(&address, SHUTTING_DOWN, &error));
            }
            Face::Toolman(_) if method == "tools/call" => {
                self.turn_away_exposed(&name, member("arguments"), reply)
            }
            _ => self.refuse(reply, code::UPSTREAM_LOST, &format!("{name}: {SHUTTING_DOWN}")),
        }
    }

    fn request(self: &Arc<Self>, method: &str, params: Option<Node<'_>>, reply: Reply) {
        let mut empty = Scanner::default();
        let params = params.unwrap_or_else(|| empty.scan_str("{}").expect("an empty object is JSON").root());
        if matches!(method, "subscriptions/listen" | "resources/subscribe")
            && let Face::Plain(plain) = &*self.face(reply.session())
            && !plain.is_open(&reply.session().view())
        {
            // What is to be watched must be known.
            return self.open_plain(plain, method, params, reply);
        }
        if reply.modern().is_some() {
            return self.modern_request(method, params, reply);
        }
        if reply.session().hello().is_none() && !matches!(method, "initialize" | "ping" | "server/discover") {
            return reply.error(code::INVALID_REQUEST, "Invalid request: `initialize` must come first", None);
        }
        match method {
            "ping" => reply.result("{}"),
            "initialize" => self.initialize(params, reply),
            "resources/subscribe" => self.resource("resources/subscribe", params, reply),
            "resources/unsubscribe" => self.resource("resources/unsubscribe", params, reply),
            "logging/setLevel" => self.set_log_level(params, reply),
            "tasks/result" => self.task("tasks/result", params, reply),
            "tasks/list" => self.list_tasks(params, reply),
            _ => self.common_request(method, params, reply),
        }
    }

    /// What both eras have.
    fn common_request(self: &Arc<Self>, method: &str, params: Node<'_>, reply: Reply) {
        let session = reply.session().clone();
        if let Face::Plain(plain) = &*self.face(&session)
            && !plain.is_open(&session.view())
        {
            return self.open_plain(plain, method, params, reply);
        }
        match method {
            "tools/call" => self.call_tool(params, reply),
            "tools/list" => self.list(Kind::Tool, params, reply),
            "resources/list" => self.list(Kind::Resource, params, reply),
            "resources/templates/list" => self.list(Kind::Template, params, reply),
            "prompts/list" => self.list(Kind::Prompt, params, reply),
            "resources/read" => self.resource("resources/read", params, reply),
            "prompts/get" => self.get_prompt(params, reply),
            "completion/complete" => self.complete(params, reply),
            "tasks/get" => self.task("tasks/get", params, reply),
            "tasks/cancel" => self.task("tasks/cancel", params, reply),
            _ => reply.error(code::METHOD_NOT_FOUND, &format!("Method not found: {method}"), None),
        }
    }

    fn initialize(&self, params: Node<'_>, reply: Reply) {
        let hello = match ClientHello::read(params) {
            Ok(hello) => hello,
            Err(message) => {
                return reply.error(code::INVALID_PARAMS, &format!("Invalid params: {message}"), None);
            }
        };
        let version = hello.version;
        let session = reply.session().clone();
        let instructions = self.instructions(&session, Some(&hello));
        if !reply.session().greet(hello) {
            return reply.error(code::INVALID_REQUEST, "Invalid request: `initialize` came twice", None);
        }
        let info = our_info(self.face(reply.session()).name());
        reply.result(&format!(
            "{{\"protocolVersion\":\"{}\",\"capabilities\":{},\"serverInfo\":{}{instructions}}}",
            version.as_str(),
            self.capabilities(&session, version),
            info,
        ));
    }

    /// The `instructions` for a client, as a member with a comma before it; modern clients say hello to nobody.
    fn instructions(&self, session: &Session, hello: Option<&ClientHello>) -> String {
        let text = match &*self.face(session) {
            Face::Workbench(face) => {
                face.instructions(hello.map_or(Mode::Proxy, |hello| face.mode(Some(hello))))
            }
            Face::Toolman(bench) => bench.face.instructions(),
            Face::Plain(plain) if plain.toolbox.description.is_empty() => return String::new(),
            Face::Plain(plain) => plain.toolbox.description.clone(),
        };
        format!(",\"instructions\":{}", quote(&text))
    }

    fn call_tool(self: &Arc<Self>, params: Node<'_>, reply: Reply) {
        let (name, arguments) = match params.all_unique(["name", "arguments", "_meta"]) {
            Ok([Some(name), arguments, _]) => (name, arguments),
            Ok([None, ..]) => {
                return self.refuse(reply, code::INVALID_PARAMS, "Invalid params: \"name\" is missing");
            }
            Err(_) => return self.refuse(reply, code::INVALID_PARAMS, TWICE),
        };
        let Some(name) = name.as_str() else {
            return self.refuse(reply, code::INVALID_PARAMS, "Invalid params: \"name\" must be a string");
        };
        if let Err(refusal) = self.check_mirrored(&name, arguments, reply.session()) {
            return reply.error(refusal.code, &refusal.message, None);
        }
        match &*self.face(reply.session()) {
            Face::Workbench(face) => self.call_workbench(face, &name, params, arguments, reply),
            Face::Toolman(bench) => self.call_toolman(bench, &name, params, arguments, reply),
            Face::Plain(_) => self.call_plain(&name, params, reply),
        }
    }

    fn list(self: &Arc<Self>, kind: Kind, params: Node<'_>, reply: Reply) {
        let session = reply.session().clone();
        if let Face::Toolman(bench) = &*self.face(&session)
            && !bench.is_ready()
        {
            return self.later(bench, kind.list_method(), params, reply);
        }
        if params.get("cursor").is_some_and(|cursor| cursor.raw() != "null") {
            let message = "Invalid params: unknown cursor; every list is one page";
            return self.refuse(reply, code::INVALID_PARAMS, message);
        }
        let modern = reply.modern().is_some();
        let view = session.view();
        let hint =
            if modern { self.list_hint(&session.window, &view, kind).members() } else { String::new() };
        reply.result_with(|out| {
            out.extend_from_slice(format!("{{\"{}\":[", kind.list_key()).as_bytes());
            self.write_list(&session.window, &view, session.hello(), modern, kind, out);
            out.extend_from_slice(format!("]{hint}}}").as_bytes());
        });
    }

    /// Appends everything of a kind that a client is shown, separated by commas.
    fn write_list(
        &self,
        window: &Window,
        view: &View,
        client: Option<&ClientHello>,
        modern: bool,
        kind: Kind,
        out: &mut Vec<u8>,
    ) {
        let face = self.faces.read()[window.face()].1.clone();
        let own = match (kind, &*face) {
            (Kind::Tool, Face::Workbench(face)) if modern => face.meta_tools(Mode::Proxy),
            (Kind::Tool, Face::Workbench(face)) => face.meta_tools(face.mode(client)),
            (Kind::Tool, Face::Toolman(bench)) => bench.face.own_tools(view, modern),
            _ => String::new(),
        };
        out.extend_from_slice(own.as_bytes());
        let exposure = window.exposure();
        let listed = if modern { exposure.lists_to_modern() } else { exposure.lists(client, kind) };
        if listed {
            view.write_list(&*exposure, kind, out, own.is_empty(), modern);
        }
        if let (Kind::Tool, Face::Toolman(bench), true) = (kind, &*face, modern) {
            out.extend_from_slice(format!(",{}", bench.face.call_tool()).as_bytes());
        }
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
            "notifications/cancelled" => self.cancelled(session, params),
            "notifications/progress" => progress(session, params),
            _ => self.engine.broadcast(session, method, params),
        }
    }

    /// The client gives a request up: the upstream is told under our id, and no answer will be sent.
    fn cancelled(&self, session: &Session, params: Option<Node<'_>>) {
        let Some(params) = params else { return };
        let Some(id) = params.get("requestId").and_then(Id::from_node) else { return };
        if let Some((link, ours)) = self.give_up(session, &id) {
            link.peer.notify("notifications/cancelled", |out| {
                params.write_with(out, &[("requestId", Some(&ours.to_string()))]);
            });
        }
    }

    /// Forgets a request, and says which one of ours the upstream is to be told of.
    fn give_up(&self, session: &Session, id: &Id) -> Option<(Arc<Link>, u64)> {
        let listener = session.window.take_listener(session, id);
        // Before the subscription is dropped, which would answer it.
        let sent = session.cancel(id);
        if let Some(listener) = listener {
            self.unlisten(&listener);
        }
        sent.filter(|(link, ours)| link.peer.forget(*ours).is_some())
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::NameRule;
    use crate::core::catalog::NameLimits;
    use crate::core::process::Launcher;
    use crate::core::route::Heard;
    use crate::core::upstream::Upstream;

    #[test]
    fn a_part_admits_whole_names() {
        let part = Part { names: Some(vec!["dev".to_owned()]), toolbox: None };
        for (name, expected) in
            [("dev", true), ("develop", false), ("de", false), ("Dev", false), ("", false)]
        {
            assert_eq!(part.admits(name), expected, "{name}");
        }
        assert!(Part::default().admits("dev"));
        assert!(!Part { names: Some(Vec::new()), toolbox: None }.admits("dev"));
    }

    /// A face whose lists make us panic.
    struct Panics;

    impl Exposure for Panics {
        fn full_name(&self, _: &Upstream, _: Kind, key: &str) -> String {
            key.to_owned()
        }

        fn render(&self, _: &Upstream, _: Kind, _: &str, definition: Node<'_>, out: &mut Vec<u8>) {
            out.extend_from_slice(definition.raw().as_bytes());
        }

        fn limits(&self) -> NameLimits {
            NameLimits { rule: NameRule::Safe, length: 64 }
        }

        fn lists(&self, _: Option<&ClientHello>, _: Kind) -> bool {
            panic!("injected")
        }
    }

    #[tokio::test]
    async fn a_panic_fails_the_request_that_caused_it_and_nothing_else() {
        let file = br#"{"toolboxes":{}}"#;
        let (config, _) = crate::config::load(Path::new("x"), file, &|_| None).expect("it is valid");
        let around = Surroundings {
            launcher: Launcher::new(),
            vars: Vec::new(),
            directory: "/".into(),
            cache: None,
            state: None,
            attended: false,
        };
        let gateway = Gateway::new(Face::Workbench(Arc::new(Workbench { config })), around);
        let heard = Arc::new(Heard::default());
        let window = Window::new("", 0, Arc::new(Panics), None);
        let session = Session::new(window, Route::Stream(heard.clone()));
        let hello =
            r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#;
        for (id, method, params) in [(1, "initialize", hello), (2, "tools/list", "{}"), (3, "ping", "{}")] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
            let mut scanner = Scanner::default();
            gateway.take(&session, Message::read(scanner.scan_str(&text).expect("JSON").root()), None, None);
        }
        let heard = heard.0.lock();
        assert_eq!(heard.len(), 3, "{heard:?}");
        assert!(heard[1].starts_with(r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"#), "{}", heard[1]);
        assert_eq!(heard[2], r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
    }
}
