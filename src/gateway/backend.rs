//! The gateway behind HTTP: which face and which view a caller gets. The HTTP transport calls it through
//! `Backend`.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hyper::header::HeaderMap;
use parking_lot::Mutex;

use super::http::{Backend, Caller, CallerKey, mirror};
use super::restore::{reopen, restore};
use super::{Gateway, SHUTTING_DOWN, shared, turn_away};
use crate::config::{Serving, Token};
use crate::core::LIFE;
use crate::core::observed::ServerState;
use crate::core::process::own_use;
use crate::core::record::Record;
use crate::core::route::{Route, Sink};
use crate::core::session::ClientSession;
use crate::core::view::Target;
use crate::core::workspace::Workspace;
use crate::events::metrics::{Exposition, Gauges};
use crate::hash::HashMap;
use crate::json::{Node, Scanner};
use crate::protocol::era::modern_name;
use crate::protocol::message::{Id, Malformed, Message, Refusal, Request};
use crate::text::plain;

/// The callers over HTTP.
#[derive(Default)]
pub(super) struct HttpClients(Mutex<Callers>);

#[derive(Default)]
struct Callers {
    /// The views that modern callers with the same credentials share, by principal and path.
    workspaces: HashMap<CallerKey, Arc<Workspace>>,
    sessions: Vec<Weak<ClientSession>>,
    /// When each modern client was last heard of, by name. Such a client has no session that could end.
    visitors: HashMap<String, Instant>,
}

impl HttpClients {
    fn add(&self, session: &Arc<ClientSession>) {
        let sessions = &mut self.0.lock().sessions;
        if sessions.len() == sessions.capacity() {
            sessions.retain(|session| session.strong_count() > 0);
        }
        sessions.push(Arc::downgrade(session));
    }

    fn sessions(&self) -> Vec<Arc<ClientSession>> {
        self.0.lock().sessions.iter().filter_map(Weak::upgrade).collect()
    }

    /// Notes a request of a modern client, and logs if the client is new.
    fn note_visitor(&self, name: &str, now: Instant) {
        if self.0.lock().visitors.insert(name.to_owned(), now).is_none() {
            tracing::info!(target: LIFE, "client {name} has come");
        }
    }

    /// Logs and forgets the modern clients that nobody has heard of for this long.
    fn forget_visitors(&self, idle: Duration, now: Instant) {
        self.0.lock().visitors.retain(|name, last| {
            let stays = now.duration_since(*last) < idle;
            if !stays {
                tracing::info!(target: LIFE, "client {name} has gone");
            }
            stays
        });
    }

    /// The view that modern callers with this key share, if there is one.
    fn workspace(&self, key: &CallerKey) -> Option<Arc<Workspace>> {
        self.0.lock().workspaces.get(key).cloned()
    }

    /// The number of the client that has this principal. A caller is the same client whichever path it uses.
    fn client_of(&self, principal: &str) -> Option<u64> {
        let callers = self.0.lock();
        let mut others = callers.workspaces.iter();
        others.find(|((other, _), _)| other == principal).map(|(_, workspace)| workspace.client)
    }

    /// Shares a view from now on, unless there is one by now. Returns the one that is shared.
    fn share(&self, key: CallerKey, workspace: Arc<Workspace>) -> Arc<Workspace> {
        self.0.lock().workspaces.entry(key).or_insert(workspace).clone()
    }

    /// Shares these views no longer, and returns them.
    pub(super) fn take_out(
        &self,
        which: impl Fn(&CallerKey, &Arc<Workspace>) -> bool,
    ) -> Vec<Arc<Workspace>> {
        let mut callers = self.0.lock();
        callers
            .workspaces
            .extract_if(|key, workspace| which(key, workspace))
            .map(|(_, taken)| taken)
            .collect()
    }

    /// Whether callers share this view.
    pub(super) fn has(&self, workspace: &Arc<Workspace>) -> bool {
        self.0.lock().workspaces.values().any(|other| Arc::ptr_eq(other, workspace))
    }
}

impl Gateway {
    /// Starts the servers that must run from the start, before any client has come.
    pub fn begin_http(self: &Arc<Self>) {
        let workspace = self.begin("");
        if let Some(shared) = self.shared.get() {
            shared.furnish(&(String::new(), None), &workspace);
        }
        self.http_clients.share((String::new(), None), workspace);
    }

    /// Ends the shared views of callers whose token is no longer valid.
    pub(super) fn dismiss(&self, old: &Serving, new: &Serving) {
        let lost: Vec<_> = old.tokens.iter().filter(|token| !is_known(new, token)).collect();
        self.let_go(|(principal, _)| lost.iter().any(|token| token.name == *principal));
    }

    /// Ends the shared views of these callers.
    pub(super) fn let_go(&self, whose: impl Fn(&CallerKey) -> bool) {
        for workspace in self.http_clients.take_out(|key, _| whose(key)) {
            workspace.end_listeners();
            self.engine.discard(&workspace);
        }
    }

    /// Ends every upstream.
    pub async fn end(&self) {
        self.engine.stop().await;
    }

    /// The view that modern callers with these credentials share.
    pub(super) fn shared_workspace(self: &Arc<Self>, caller: &Caller) -> Option<Arc<Workspace>> {
        let key = caller.key();
        if let Some(workspace) = self.http_clients.workspace(&key) {
            return Some(workspace);
        }
        let client = self.http_clients.client_of(&key.0);
        let workspace = self.workspace(self.faces.place_of(&caller.part())?, &key.0, client);
        if let Some(shared) = self.shared.get() {
            shared.furnish(&key, &workspace);
        }
        Some(self.http_clients.share(key, workspace))
    }

    /// Serves a modern request or notification at this replica.
    pub(super) fn modern_here(
        self: &Arc<Self>,
        caller: Caller,
        message: Message<'_>,
        mirrored: HeaderMap,
        stream: Arc<dyn Sink>,
    ) -> Box<dyn Send> {
        let Some(workspace) = self.shared_workspace(&caller) else { return Box::new(()) };
        let session = ClientSession::new(workspace, Route::Nowhere);
        session.mirrored.set(mirrored).expect("the session is new");
        self.http_clients.add(&session);
        let id = match &message {
            Message::Request(request) => {
                if tracing::enabled!(target: LIFE, tracing::Level::INFO) {
                    let name = plain(&request.params.map(modern_name).unwrap_or_default());
                    self.http_clients.note_visitor(&name, Instant::now());
                }
                Some(request.id.clone())
            }
            _ => None,
        };
        self.take(&session, Ok(message), Some(Route::Stream(stream)), None);
        match id {
            Some(id) => Box::new(CancelOnDrop { gateway: self.clone(), session, id }),
            None => Box::new(()),
        }
    }

    /// Checks that the headers of a call over HTTP agree with its body, if the call's tool is known. A call of an
    /// unknown tool passes: nothing is sent on yet, and it is handled again when the tool is known.
    pub(super) fn check_mirrored(
        &self,
        name: &str,
        arguments: Option<Node<'_>>,
        session: &ClientSession,
    ) -> Result<(), Refusal> {
        let face = self.face(session);
        let target = session.workspace.read(|view| view.find_tool(&*face, name));
        target.map_or(Ok(()), |target| mirrors(&target, arguments, session))
    }
}

/// Checks that the headers of a call of this tool over HTTP agree with the body.
pub(super) fn mirrors(
    target: &Target,
    arguments: Option<Node<'_>>,
    session: &ClientSession,
) -> Result<(), Refusal> {
    let Some(headers) = session.mirrored.get().filter(|_| target.mirrors()) else { return Ok(()) };
    let mut scanner = Scanner::default();
    let definition = scanner.scan_str(target.definition()).expect("definitions are valid JSON").root();
    mirror(headers, definition.get("inputSchema").map_or("{}", Node::raw), arguments)
}

impl Backend for Arc<Gateway> {
    type Legacy = ClientSession;

    fn toolbox_exists(&self, caller: &Caller) -> bool {
        self.faces.place_of(&caller.part()).is_some()
    }

    fn ready(&self) -> Result<(), String> {
        match self.startup.is_settled() {
            true => Ok(()),
            false => Err("servers are still starting".to_owned()),
        }
    }

    fn open(&self, caller: Caller, id: &str, unrelated: Arc<dyn Sink>) -> Arc<ClientSession> {
        let face = self.faces.place_of(&caller.part()).unwrap_or(0);
        let workspace = self.workspace(face, &caller.principal(), None);
        workspace.owner.note_session(id);
        if self.shared.get().is_some() {
            workspace.results.is_shared_as(&format!("session {id}"));
        }
        let session = ClientSession::new(workspace, Route::Stream(unrelated));
        self.http_clients.add(&session);
        session
    }

    fn legacy(&self, session: &Arc<ClientSession>, message: Message<'_>, stream: Arc<dyn Sink>) {
        self.take(session, Ok(message), Some(Route::Stream(stream)), None);
    }

    fn legacy_batch(
        &self,
        session: &Arc<ClientSession>,
        parts: Vec<Result<Message<'_>, Malformed>>,
        stream: Arc<dyn Sink>,
    ) {
        self.take_batch(session, parts, Some(Route::Stream(stream)));
    }

    fn record(&self, session: &Arc<ClientSession>) -> Record {
        session.standing()
    }

    fn restore<'a>(
        &'a self,
        session: &'a Arc<ClientSession>,
        record: Record,
        first_question: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            session.peer().skip_to(first_question);
            // The client has not introduced itself again yet, so it is not told of each change.
            reopen(self, &session.workspace, &record).await;
            restore(self, session, &record).await;
        })
    }

    fn forget<'a>(
        &'a self,
        session: &'a Arc<ClientSession>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(session.workspace.results.forget_elsewhere())
    }

    fn fail(&self, session: &Arc<ClientSession>, message: Message<'_>, reason: &str, stream: Arc<dyn Sink>) {
        let Message::Request(Request { id, method, params, .. }) = message else { return };
        if let Some(reply) = session.accept(id, Some(Route::Stream(stream)), None, None) {
            turn_away(self, &method, params.unwrap_or_else(Node::empty), reason, reply);
        }
    }

    fn close(&self, session: &Arc<ClientSession>) {
        if let Some(hello) = session.hello() {
            tracing::info!(target: LIFE, "client {} has gone", plain(&hello.name));
        }
        session.end();
        session.abandon("the session has ended");
        self.engine.discard(&session.workspace);
    }

    fn modern(
        &self,
        caller: Caller,
        message: Message<'_>,
        mirrored: HeaderMap,
        stream: Arc<dyn Sink>,
    ) -> Box<dyn Send> {
        match self.shared.get() {
            None => self.modern_here(caller, message, mirrored, stream),
            Some(shared) => shared::modern(self, shared, caller, message, mirrored, stream),
        }
    }

    fn metrics(&self, sessions: usize) -> Box<dyn FnOnce(Exposition) -> String + Send> {
        let (metrics, servers) = (self.engine.events.metrics().clone(), servers_by_state(self));
        Box::new(move |as_text| {
            let (memory, processor) = own_use();
            metrics.render(&Gauges { servers, sessions, memory, processor }, as_text)
        })
    }

    fn sweep(&self, idle: Duration) {
        self.http_clients.forget_visitors(idle, Instant::now());
    }

    fn drain(&self) {
        if let Some(shared) = self.shared.get() {
            shared.leave_homes();
        }
        for session in self.http_clients.sessions() {
            session.end();
        }
    }

    fn abandon(&self) {
        for session in self.http_clients.sessions() {
            session.abandon(SHUTTING_DOWN);
        }
    }
}

/// How many servers are in each state. One that several clients have for themselves counts several times, one that
/// nobody has asked for yet is idle.
fn servers_by_state(gateway: &Gateway) -> Vec<(&'static str, usize)> {
    let upstreams = gateway.engine.registry.all();
    let mut counts = ServerState::ALL.map(|state| (state.as_str(), 0));
    for upstream in &upstreams {
        counts[ServerState::of(upstream) as usize].1 += 1;
    }
    let face = gateway.faces.whole();
    let is_known = |group: &str, key: &str| {
        upstreams.iter().any(|upstream| *upstream.group == *group && *upstream.server == *key)
    };
    let unknown = face.servers().iter().filter(|server| !is_known(server.group, server.key)).count();
    counts[ServerState::Idle as usize].1 += unknown;
    counts.to_vec()
}

/// Whether the new settings have the same name with the same token.
fn is_known(serving: &Serving, token: &Token) -> bool {
    serving.tokens.iter().any(|other| other.name == token.name && other.token == token.token)
}

/// Cancels a modern request whose client closed the stream.
pub(super) struct CancelOnDrop {
    pub(super) gateway: Arc<Gateway>,
    pub(super) session: Arc<ClientSession>,
    pub(super) id: Id,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some((connection, ours)) = self.gateway.give_up(&self.session, &self.id) {
            connection.peer.send_cancelled(ours, "the client closed the stream");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Secret;

    #[test]
    fn a_token_is_known_by_its_name_and_its_secret() {
        let token = |name: &str, secret: &str| Token {
            name: name.to_owned(),
            token: Secret::new(secret),
            scope: None,
        };
        let tokens = vec![token("a", "one"), token("b", "two")];
        let serving = Serving {
            session_idle_timeout: Duration::MAX,
            max_body_bytes: 1,
            state_keys: Vec::new(),
            store: None,
            tokens,
        };
        for (name, secret, expected) in [("a", "one", true), ("a", "two", false), ("c", "one", false)] {
            assert_eq!(is_known(&serving, &token(name, secret)), expected, "{name} {secret}");
        }
    }
}
