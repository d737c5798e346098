//! What the engine tells the hub of events: whose request it is, where it goes, what becomes of upstreams. The gateway,
//! the engine and the lifecycle call these functions; where nothing is switched on, each costs a branch.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use super::connection::Connection;
use super::engine::Engine;
use super::process::Exit;
use super::reply::Reply;
use super::route::Route;
use super::start_error::StartError;
use super::upstream::{End, Upstream};
use crate::config::Transport;
use crate::events::{
    Asker, Behalf, Carriage, ErrorType, Fact, Inquiry, Moment, Network, OwnErrand, ServerEnd, ServerFailure,
    ServerStart, Who, known_method,
};
use crate::json::{MemberChange, Node, Raw};
use crate::text::digest::hex;
use crate::transport::peer::{Answer, CallError, Loss, Lost};

/// Who has a workspace, as configuration and journal name them.
#[derive(Default)]
pub struct Owner {
    /// The name in the configuration.
    pub principal: String,
    /// What stands for the id of the session, made when it is first asked for.
    session: OnceLock<Arc<str>>,
    /// The client that spoke last. Most requests come from one that has spoken before.
    last: Mutex<Option<Arc<Who>>>,
}

impl Owner {
    /// An owner of this name.
    pub(super) fn named(principal: &str) -> Self {
        Self { principal: principal.to_owned(), ..Self::default() }
    }

    /// Notes the id of the session that the workspace is for, of which only the beginning of a digest is kept: whoever
    /// knows the id can use the session.
    pub fn note_session(&self, id: &str) {
        let _ = self.session.set(label(id.as_bytes()));
    }

    /// What stands for the id of the session.
    pub fn session(&self) -> &Arc<str> {
        self.session.get_or_init(|| {
            let mut id = [0; 16];
            // Without randomness sessions of one process cannot be told apart in the journal.
            let _ = getrandom::fill(&mut id);
            label(&id)
        })
    }

    /// The client of this name.
    fn who(&self, client: &str, is_token: bool) -> Arc<Who> {
        let mut last = self.last.lock();
        if let Some(who) = last.as_ref().filter(|who| *who.client == *client) {
            return who.clone();
        }
        let session = self.session();
        let token = (is_token && !self.principal.is_empty()).then(|| self.principal.as_str().into());
        last.insert(Arc::new(Who { client: client.into(), session: session.clone(), token })).clone()
    }
}

/// The first 16 hexadecimal digits of the id's SHA-256.
fn label(id: &[u8]) -> Arc<str> {
    hex(&digest(&SHA256, id).as_ref()[..8]).into()
}

/// What an upstream is doing, as people and metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// It was not started yet, or ended because we wanted it to.
    Idle,
    /// It is on its way up.
    Starting,
    /// It is connected.
    Running,
    /// It did not start, or ended by itself.
    Failed,
}

impl ServerState {
    /// All of them, in this order.
    pub const ALL: [Self; 4] = [Self::Idle, Self::Starting, Self::Running, Self::Failed];

    /// What an upstream is doing.
    pub fn of(upstream: &Upstream) -> Self {
        match upstream {
            _ if upstream.is_starting() => Self::Starting,
            _ if upstream.is_up() => Self::Running,
            _ if upstream.has_failed() => Self::Failed,
            _ => Self::Idle,
        }
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Failed => "failed",
        }
    }
}

/// Begins to follow a request, if anybody wants to know.
#[inline]
pub fn begin(engine: &Engine, method: &str, params: Node<'_>, reply: &mut Reply) {
    if engine.events.is_on() {
        follow(engine, method, params, reply);
    }
}

#[cold]
fn follow(engine: &Engine, method: &str, params: Node<'_>, reply: &mut Reply) {
    let method = known_method(method);
    let key = match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => Some("uri"),
        _ => None,
    };
    // What a request names is asked of an upstream, which is another span.
    if engine.events.is_too_busy_for(1 + usize::from(key.is_some())) {
        return;
    }
    let named = key.and_then(|key| params.get(key));
    let traces = engine.events.traces();
    let id = if traces { reply.id() } else { None };
    let name = named.and_then(Node::as_str).map(|name| (&*name).into());
    let asked = Inquiry { method, name, exists: false, id };
    let session = reply.session();
    let network = match session.route(None) {
        Route::Pipe(_) | Route::Relay(_) => Network::Pipe,
        Route::Stream(_) | Route::Nowhere => Network::Tcp,
    };
    let client = match (reply.modern(), session.hello()) {
        (Some(modern), _) => &*modern.client.name,
        (None, Some(hello)) => &hello.name,
        (None, None) => "",
    };
    let who = session.workspace.owner.who(client, network == Network::Tcp);
    let asker = Asker { who, version: reply.version().as_str(), network };
    let meta = if traces { params.get("_meta") } else { None };
    let text = |key| meta.and_then(|meta| meta.get(key)).and_then(Node::as_str);
    let (parent, state) = (text("traceparent"), text("tracestate"));
    let exchange = engine.events.begin(asked, asker, (parent.as_deref(), state.as_deref()));
    reply.follow(exchange);
}

/// How a request to an upstream brings our place in the trace.
pub(super) enum Context {
    /// By one more change to its parameters: this `_meta`.
    Meta(String),
    /// By parameters that have it already, since their `_meta` will be changed for other reasons as well.
    Params(Raw),
}

/// Notes that a request sets out to an upstream. Returns our place in the trace, where there is one.
pub(super) fn sets_out(
    reply: &mut Reply,
    upstream: &Upstream,
    method: &'static str,
    params: Node<'_>,
    changes: &[MemberChange<'_>],
) -> Option<Context> {
    let exchange = reply.exchange()?;
    let changed = |key: &str| changes.iter().find(|(changed, _)| *changed == key);
    let named = |key| changed(key).map_or_else(|| params.get(key).map(Node::raw), |(_, name)| *name);
    let name = named("name").or_else(|| named("uri"));
    let given;
    let arguments = match changed("arguments") {
        _ if !exchange.keeps_arguments() => None,
        Some((_, Some(text))) => {
            given = Raw::own(*text);
            Some(given.root())
        }
        Some((_, None)) => None,
        None => params.get("arguments"),
    };
    let server = (&upstream.group, &upstream.server);
    let told = exchange.set_out(server, method, name, (params.raw().len(), arguments))?;
    let is_legacy = |connection: Arc<Connection>| !connection.version().is_modern();
    let stays = reply.modern().is_none() && upstream.connection().is_none_or(is_legacy);
    let own = own_meta(params);
    let asks = own.is_some_and(|own| own.get("progressToken").is_some());
    let meta = with_own(own, told);
    Some(match stays && !asks {
        true => Context::Meta(meta),
        false => Context::Params(Raw::own(params.with(&[("_meta", Some(&meta))]))),
    })
}

/// Notes the connection that a request takes.
#[inline]
pub(super) fn takes(reply: &mut Reply, connection: &Connection) {
    if let Some(exchange) = reply.exchange() {
        exchange.takes(carriage(connection));
    }
}

/// Notes the answer of an upstream.
pub(super) fn came_back(reply: &mut Reply, answer: &Answer<'_>) {
    let Some(exchange) = reply.exchange() else { return };
    // Only spans tell the id.
    let id = if exchange.trail.is_some() { reply.sent_as() } else { None };
    let Some(exchange) = reply.exchange() else { return };
    let (error, text) = of_answer(answer);
    exchange.came_back(error, text, id);
}

tokio::task_local! {
    /// The request of a client that the task works for, where tracing is on.
    static BEHALF: Option<Behalf>;
}

/// Does something for a client's request: the requests of our own that come of it belong to it.
pub fn on_behalf_of<T>(behalf: Option<Behalf>, work: impl Future<Output = T>) -> impl Future<Output = T> {
    BEHALF.scope(behalf, work)
}

/// The same for what is done at once.
pub fn at_once_for<T>(reply: &Reply, work: impl FnOnce() -> T) -> T {
    BEHALF.sync_scope(reply.behalf(), work)
}

/// What this task works for.
pub(super) fn behalf() -> Option<Behalf> {
    BEHALF.try_with(Clone::clone).ok().flatten()
}

/// A request of our own to an upstream, while it is under way; `None` inside where nobody wants to know.
pub(super) struct OwnRequest(Option<(OwnErrand, Arc<Connection>)>);

impl OwnRequest {
    /// Begins to follow a request. Adds our place in the trace to its parameters, where there is one.
    pub(super) fn begin(connection: &Arc<Connection>, method: &str, params: &mut String) -> Self {
        let Upstream { group, server, engine, .. } = &*connection.upstream;
        let followed =
            engine.upgrade().and_then(|engine| engine.events.follow((group, server), method, behalf()));
        let Some(errand) = followed else { return Self(None) };
        if let Some(told) = errand.context() {
            let raw = Raw::own(params.as_str());
            let meta = with_own(own_meta(raw.root()), told);
            *params = raw.root().with(&[("_meta", Some(&meta))]);
        }
        Self(Some((errand, connection.clone())))
    }

    /// Notes the answer to the request of this id.
    pub(super) fn end(self, id: u64, error: Option<ErrorType>) {
        if let Some((errand, connection)) = self.0 {
            errand.end(Carriage { id: Some(id), ..carriage(&connection) }, error);
        }
    }
}

/// Why a request of our own failed.
pub(super) fn of_call_error(error: &CallError) -> ErrorType {
    match error {
        CallError::Refused(error) => ErrorType::Code(code_of(Raw::own(error.as_str()).root())),
        CallError::Lost(lost) => of_loss(lost),
    }
}

/// The `_meta` of parameters, if they have one.
fn own_meta(params: Node<'_>) -> Option<Node<'_>> {
    params.get("_meta").filter(|meta| meta.is_object())
}

/// A `_meta` with our place in the trace, which `told` has and nothing else.
fn with_own(own: Option<Node<'_>>, told: String) -> String {
    let Some(own) = own else { return told };
    let (key, value) = told[1..told.len() - 1].split_once(':').expect("a member");
    own.with(&[(key.trim_matches('"'), Some(value))])
}

/// Why a request failed, if it did, and what came back.
pub(super) fn of_answer<'a>(answer: &Answer<'a>) -> (Option<ErrorType>, Option<Node<'a>>) {
    match answer {
        Answer::Result(result) => (is_error(*result).then_some(ErrorType::ToolError), Some(*result)),
        Answer::Error(error) => (Some(ErrorType::Code(code_of(*error))), Some(*error)),
        Answer::Lost(lost) => (Some(of_loss(lost)), None),
    }
}

fn of_loss(lost: &Lost) -> ErrorType {
    match lost.loss {
        Loss::Connection => ErrorType::ConnectionLost,
        Loss::Timeout => ErrorType::Timeout,
        Loss::Unavailable => ErrorType::Unavailable,
        Loss::Malformed => ErrorType::Code(lost.code),
    }
}

/// What is known of a connection that a request takes.
fn carriage(connection: &Connection) -> Carriage {
    let network = match connection.upstream.spec().transport {
        Transport::Http(_) => Network::Tcp,
        Transport::Stdio(_) | Transport::Unset(_) => Network::Pipe,
    };
    let (version, secrets) = (connection.version().as_str(), connection.redactor.clone());
    Carriage { version, network, id: None, secrets }
}

/// Whether a result says that the tool failed.
pub(super) fn is_error(result: Node<'_>) -> bool {
    result.get("isError").is_some_and(|value| value.raw() == "true")
}

fn code_of(error: Node<'_>) -> i64 {
    error.get("code").and_then(|code| code.raw().parse().ok()).unwrap_or_default()
}

/// Tells that an upstream is ready.
pub(super) fn is_ready(engine: &Engine, upstream: &Upstream, began: Moment, tools: usize) {
    engine.events.tell(began, || {
        let server = engine.events.path(&upstream.group, &upstream.server);
        let ms = ms(began);
        Fact::Start(ServerStart { server, pid: upstream.usage.pid(), ms, tools: tools as u64 })
    });
}

/// Tells how a life of an upstream ended, and which status its process had.
pub(super) fn has_ended(engine: &Engine, upstream: &Upstream, began: Moment, end: &End, exit: Option<Exit>) {
    let events = &engine.events;
    if !events.is_on() {
        return;
    }
    let server = events.path(&upstream.group, &upstream.server);
    let pid = upstream.usage.pid();
    let status = match exit {
        Some(Exit::Code(code)) => Some(code.into()),
        _ => None,
    };
    let ended = |reason: &str| ServerEnd { server: server.clone(), pid, status, reason: reason.into() };
    match end {
        End::Failed(error) => events.tell(began, || {
            Fact::Fail(ServerFailure {
                server: server.clone(),
                pid,
                ms: ms(began),
                reason: words(engine, error),
            })
        }),
        End::Down(error, _) => events.tell(Moment::now(), || Fact::Crash(ended(&words(engine, error)))),
        End::Stopped => events.tell(Moment::now(), || Fact::End(ended("it was closed"))),
        End::Unused => events.tell(Moment::now(), || Fact::End(ended("nobody has used it for a while"))),
    }
}

/// The reason of a failure. An upstream's own words are part of it only where the journal keeps those of calls.
fn words(engine: &Engine, error: &StartError) -> Box<str> {
    match engine.settings().journal.arguments {
        crate::config::KeptArguments::Full => (*error.problem).into(),
        _ => error.own_words().into(),
    }
}

fn ms(began: Moment) -> f64 {
    began.instant.elapsed().as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_known_by_the_beginning_of_a_digest() {
        let owner = Owner::named("ci");
        owner.note_session("abc");
        let who = owner.who("client", true);
        assert_eq!((&*who.session, who.token.as_deref()), ("ba7816bf8f01cfea", Some("ci")));
        assert!(Arc::ptr_eq(&who, &owner.who("client", true)));
        assert_eq!(owner.who("another", true).session, who.session);
        let [one, other] = [Owner::named("stdio"), Owner::named("stdio")].map(|owner| owner.who("c", false));
        assert_ne!(one.session, other.session);
        assert_eq!((one.session.len(), one.token.as_deref()), (16, None));
    }
}
