//! Routes what upstreams send unasked, which is notifications and questions to the client. A connection
//! passes each such message here.
//!
//! Invariant: a message that belongs to one client reaches no other, and a message whose client is unknown
//! reaches nobody.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::bridge::{Call, Needed};
use super::connection::{Asking, Changes, Connection};
use super::engine::Engine;
use super::modern::ModernCall;
use super::session::{ClientSession, Question, Ticket};
use super::tasks::{related_id, with_related};
use super::upstream::Upstream;
use super::workspace::Workspace;
use crate::apps::{is_page, placed};
use crate::catalog::Kind;
use crate::config::Isolation;
use crate::json::{Node, Raw, Scanner, quote};
use crate::protocol::era::{LOG_LEVELS, declares, meta};
use crate::protocol::message::{Id, code, error_object, write_raw_error, write_result};
use crate::protocol::progress::{Progress, write_params};
use crate::transport::peer::{Answer, Deadline, OnAnswer};

/// The client that a message belongs to, and its request, if there is one.
struct Addressees {
    session: Arc<ClientSession>,
    key: Option<Ticket>,
    modern: Option<Arc<ModernCall>>,
    call: Option<Arc<Call>>,
}

impl Addressees {
    /// Whether the client is legacy. A client without a request is legacy if it sent `initialize`.
    fn is_legacy(&self) -> bool {
        self.modern.is_none() && self.session.hello().is_some()
    }
}

/// An upstream's message on its way to clients.
pub(super) struct Relay<'a> {
    engine: &'a Engine,
    connection: &'a Arc<Connection>,
    on: Option<u64>,
}

impl<'a> Relay<'a> {
    /// A relay for a message of this connection. `on` is our request on whose stream it came, for transports
    /// with streams.
    pub(super) fn new(engine: &'a Engine, connection: &'a Arc<Connection>, on: Option<u64>) -> Self {
        Self { engine, connection, on }
    }

    /// Handles a notification.
    pub(super) fn notification(&self, method: &str, params: Option<Node<'_>>) {
        if params.is_some_and(|params| !params.is_object()) {
            return;
        }
        let changes = &self.connection.changes;
        match method {
            "notifications/progress" => self.progress(params),
            "notifications/cancelled" => cancelled(self.connection, params),
            "notifications/tools/list_changed" => changes.note(Changes::list(Kind::Tool)),
            "notifications/prompts/list_changed" => changes.note(Changes::list(Kind::Prompt)),
            "notifications/resources/list_changed" => {
                changes.note(Changes::list(Kind::Resource) | Changes::list(Kind::Template));
            }
            "notifications/resources/updated" => self.resource_updated(params),
            "notifications/tasks/status" | "notifications/tasks" => self.task_changed(method, params),
            "notifications/subscriptions/acknowledged" => {
                if let Some(id) = subscription_of(params).and_then(|id| id.raw().parse().ok()) {
                    self.connection.listens(id);
                }
            }
            _ => self.other(method, params),
        }
    }

    /// Sends log messages, and notifications that no rule names, to the client that they belong to.
    fn other(&self, method: &str, params: Option<Node<'_>>) {
        let Some(to) = self.addressees(false) else { return };
        // In the modern era every message belongs to a request, and pages to visit have no ids.
        if !to.is_legacy() && (to.modern.is_none() || method == "notifications/elicitation/complete") {
            return;
        }
        if method == "notifications/message" {
            let level = params.and_then(|params| params.get("level")).and_then(Node::as_str);
            let level = level.and_then(|level| LOG_LEVELS.iter().position(|known| *known == level));
            let wanted = match to.modern.as_ref().map(|modern| modern.log_level) {
                Some(None) => return,
                Some(wanted) => wanted,
                // Other clients that share the upstream may have asked it for more messages.
                None if self.engine.only_client(&self.connection.upstream).is_none() => to.session.severity(),
                None => None,
            };
            if wanted.is_some_and(|wanted| level.is_some_and(|level| level < wanted)) {
                return;
            }
        }
        to.session.notify(to.key, method, |out| match params {
            Some(params) if self.connection.version().is_modern() => without_subscription(params, out),
            Some(params) => params.write(out),
            None => {}
        });
    }

    /// The client that a message belongs to: the one whose request's stream it came on; else the only client
    /// with calls in flight there; else the client that hears what belongs to no call. If several clients have
    /// calls in flight, it is nobody.
    fn addressees(&self, asks: bool) -> Option<Addressees> {
        let mut found: Vec<(u64, Addressees)> = Vec::new();
        self.connection.peer.each(|id, caller| {
            if let Some(session) = &caller.session
                && self.on.is_none_or(|on| on == id)
            {
                let (session, modern, call) = (session.clone(), caller.modern.clone(), caller.call.clone());
                found.push((id, Addressees { session, key: caller.key, modern, call }));
            }
        });
        if found.is_empty() {
            let session = client_at_large(self.engine, &self.connection.upstream, asks)?;
            return Some(Addressees { session, key: None, modern: None, call: None });
        }
        let workspaces =
            |workspace: u64| found.iter().all(|(_, other)| other.session.workspace.id == workspace);
        if !workspaces(found[0].1.session.workspace.id) {
            return None;
        }
        // Of several calls of one client, the oldest that is not parked already is chosen.
        found
            .sort_by_key(|(id, audience)| (audience.call.as_ref().is_some_and(|call| call.is_parked()), *id));
        found.into_iter().next().map(|(_, audience)| audience)
    }

    /// Tells clients about an updated resource, under the URI with which they subscribed.
    fn resource_updated(&self, params: Option<Node<'_>>) {
        let Some(params) = params else { return };
        let Some(own) = params.get("uri").and_then(Node::as_str) else { return };
        for workspace in self.engine.audience.workspaces() {
            let (exposure, upstream) = (workspace.exposure(), &self.connection.upstream);
            if !workspace.shows(upstream) {
                continue;
            }
            let exposed = exposure.full_name(upstream, Kind::Resource, &own);
            let other = exposure.other_spelling(upstream, &own);
            let page = is_page(&own).then(|| placed(&own, &exposure.page_place(upstream)));
            let spellings = [Some(&*exposed), other.as_deref(), page.as_deref(), Some(&*own)];
            let spellings: BTreeSet<_> = spellings.into_iter().flatten().collect();
            for uri in spellings {
                for session in workspace.sessions() {
                    if session.subscriptions.has(uri) {
                        session.notify(None, "notifications/resources/updated", |out| {
                            let mut text = Vec::new();
                            without_subscription(params, &mut text);
                            let mut scanner = Scanner::default();
                            let params = scanner.scan(&text).expect("written as valid JSON").root();
                            params.write_with(out, &[("uri", Some(&quote(uri)))]);
                        });
                    }
                }
                workspace.each_listener(|listener| listener.resource_updated(uri));
            }
        }
    }

    /// Sends progress to the client whose call it is, under the client's own token. The progress of a task
    /// may come long after the call was answered.
    fn progress(&self, params: Option<Node<'_>>) {
        let Some(params) = params else { return };
        let Some(id) = params.get("progressToken").and_then(|token| token.raw().parse().ok()) else { return };
        let notify = |session: &ClientSession, key: Option<Ticket>, token: &str| {
            session.notify(key, "notifications/progress", |out| {
                params.write_with(out, &[("progressToken", Some(token))]);
            });
        };
        let caller = self.connection.peer.touch(id, |caller| {
            Some((caller.session.clone()?, caller.key, caller.progress.clone()?, caller.call.clone()))
        });
        match caller {
            // The request that asked for progress has been answered with a question.
            Some(Some((.., Some(call)))) if call.is_parked() => {}
            Some(Some((session, key, token, _))) => notify(&session, key, &token),
            Some(None) => {}
            None => {
                for workspace in self.engine.audience.workspaces() {
                    if let Some(token) = workspace.tasks.progress_token(self.connection, id) {
                        workspace.sessions().iter().for_each(|session| notify(session, None, &token));
                    }
                }
            }
        }
    }

    /// Tells the client whose task it is about a change, in the form of its era.
    fn task_changed(&self, method: &str, params: Option<Node<'_>>) {
        let Some(params) = params else { return };
        let Some(own) = params.get("taskId").and_then(Node::as_str) else { return };
        for workspace in self.engine.audience.workspaces() {
            let Some(id) = workspace.tasks.known(self.connection, &own) else { continue };
            if self.connection.version().is_modern() {
                let for_host = workspace.task_for_host(&self.connection.upstream, params).map(Raw::own);
                let for_host = for_host.as_ref().map_or(params, Raw::root);
                let keeps_pages = workspace.exposure().keeps_pages();
                workspace.each_listener(|listener| match listener.renders_apps() || keeps_pages {
                    true => listener.task_changed(&id, for_host),
                    false => listener.task_changed(&id, params),
                });
                continue;
            }
            for session in workspace.sessions() {
                session.notify(None, method, |out| params.write_with(out, &[("taskId", Some(&quote(&id)))]));
            }
        }
    }

    /// Handles an upstream's request, which is a question for the client whose call it belongs to.
    pub(super) fn request(&self, id: Id, method: &str, params: Option<Node<'_>>) {
        let connection = self.connection;
        if method == "ping" {
            connection.answer(|out| write_result(out, &id, |out| out.extend_from_slice(b"{}")));
            return;
        }
        let is_during_call = connection.peer.any(|caller| caller.session.is_some());
        let crowded = connection.asks_at_large() && connection.gate.asked(method, is_during_call);
        let task = params.and_then(|params| self.task_owner(params));
        let to = match &task {
            Some((workspace, _)) => self.owner(workspace),
            None => self.addressees(true),
        };
        let Some(to) = to else {
            return refuse(
                connection,
                &id,
                code::INVALID_REQUEST,
                "it cannot be told which client this question belongs to",
            );
        };
        let modern = to.modern.as_ref();
        let needed = Needed::of(method, params);
        if let Some(needed) = needed {
            let capabilities = match modern {
                Some(modern) => &modern.client.capabilities,
                None => to.session.hello().map_or("{}", |hello| &hello.capabilities),
            };
            if !needed.is_in(capabilities) {
                // A client with the capability, though not with this part of it, knows the method.
                let (code, problem, what) = match declares(capabilities, needed.capability) {
                    true => (code::INVALID_PARAMS, "Invalid params", needed.to_string()),
                    false => (code::METHOD_NOT_FOUND, "Method not found", needed.capability.to_owned()),
                };
                return refuse(
                    connection,
                    &id,
                    code,
                    &format!("{problem}: the client does not support {what}"),
                );
            }
        }
        match (&to.call, modern) {
            (Some(call), Some(_)) if needed.is_some() => call.park(id, method, params, crowded),
            // Only legacy clients can be sent a request.
            _ if !to.is_legacy() => refuse(connection, &id, code::METHOD_NOT_FOUND, "Method not found"),
            _ => match (params, task) {
                (Some(params), Some((_, task))) => {
                    let mut text = Vec::new();
                    params.write_with(&mut text, &[("_meta", Some(&with_related(params, &task)))]);
                    let mut scanner = Scanner::default();
                    let params = scanner.scan(&text).expect("written as valid JSON").root();
                    self.ask(&to, id, method, Some(params));
                }
                _ => self.ask(&to, id, method, params),
            },
        }
    }

    /// The workspace of the client whose task a question belongs to, and the client's id of the task.
    fn task_owner(&self, params: Node<'_>) -> Option<(Arc<Workspace>, Arc<str>)> {
        let own = related_id(params)?;
        self.engine.audience.workspaces().into_iter().find_map(|workspace| {
            let id = workspace.tasks.known(self.connection, &own)?;
            Some((workspace, id))
        })
    }

    /// A client of this workspace: the one whose request's stream the message came on, if it belongs to the
    /// workspace, else any.
    fn owner(&self, workspace: &Arc<Workspace>) -> Option<Addressees> {
        let by_request = self.addressees(true).filter(|to| to.session.workspace.id == workspace.id);
        by_request.or_else(|| {
            let session = workspace.sessions().into_iter().next()?;
            Some(Addressees { session, key: None, modern: None, call: None })
        })
    }

    /// Sends the question to a client of the same era.
    fn ask(&self, to: &Addressees, id: Id, method: &str, params: Option<Node<'_>>) {
        let (connection, session) = (self.connection, &to.session);
        let progress = params.and_then(Progress::asked);
        let token = progress.map(|progress| progress.token.raw().into());
        let question = Question { connection: Arc::downgrade(connection), progress: token, call: None };
        let write = |out: &mut Vec<u8>, ours: u64| {
            if let Some(params) = params {
                write_params(out, params, progress, &[], ours);
            }
        };
        let (asker, asked, asking) = (connection.clone(), session.clone(), Asking::new(connection, session));
        let own = id.clone();
        let on_answer = OnAnswer::run(move |answer| {
            drop(asking);
            asker.questions.remove(&id);
            asker.answer(|out| match answer {
                Answer::Result(result) => write_result(out, &id, |out| {
                    match related_id(result).and_then(|task| asked.workspace.tasks.find(&task)) {
                        Some(place) => {
                            let own_meta = with_related(result, &place.own);
                            result.write_with(out, &[("_meta", Some(&own_meta))]);
                        }
                        None => result.write(out),
                    }
                }),
                Answer::Error(error) => write_raw_error(out, Some(&id), |out| error.write(out)),
                Answer::Lost(lost) => write_raw_error(out, Some(&id), |out| {
                    let message = format!("the client did not answer: {lost}");
                    out.extend_from_slice(error_object(lost.code, &message, None).as_bytes());
                }),
            });
        });
        let deadline = Deadline::new(None, Some(self.engine.settings().question_timeout), None);
        let route = session.route(to.key);
        let ours = session.peer().reserve();
        let Some(request) = session.peer().open(ours, question, deadline, on_answer) else { return };
        if !connection.questions.add(&own, ours, session) {
            return refuse(connection, &own, code::INVALID_REQUEST, "Invalid request: this id is in use");
        }
        // A stopping connection first closes its peer and then cancels its questions.
        if connection.peer.is_open() {
            request.send_via(&route, method, write);
        } else {
            connection.questions.remove(&own);
        }
    }
}

/// The client that hears what an upstream says, or asks, outside of any call.
fn client_at_large(engine: &Engine, upstream: &Arc<Upstream>, asks: bool) -> Option<Arc<ClientSession>> {
    if !engine.daemon {
        return engine.audience.stdio();
    }
    let lookers = engine.audience.lookers(upstream);
    let is_shared = upstream.spec().isolation_in_daemon() == Isolation::Shared;
    // A question needs one answer; the oldest session is as good as any that is alike.
    let one_is_enough = lookers.len() < 2 || (asks && !is_shared);
    lookers.into_iter().next().filter(|_| one_is_enough)
}

/// Handles an upstream's cancellation of one of its questions.
fn cancelled(connection: &Arc<Connection>, params: Option<Node<'_>>) {
    let Some(params) = params else { return };
    let Some(id) = params.get("requestId").and_then(Id::from_node) else { return };
    let Some((ours, session)) = connection.questions.remove(&id) else { return };
    if session.peer().forget(ours).is_some() {
        session.peer().notify("notifications/cancelled", |out| {
            params.write_with(out, &[("requestId", Some(&ours.to_string()))]);
        });
    }
}

/// The subscription of ours that a modern upstream's notification belongs to.
fn subscription_of(params: Option<Node<'_>>) -> Option<Node<'_>> {
    params?.get("_meta")?.get(meta::SUBSCRIPTION)
}

/// Writes the parameters without the id of our own subscription, which means nothing to the client.
fn without_subscription(params: Node<'_>, out: &mut Vec<u8>) {
    match params.get("_meta").filter(|own| own.is_object()) {
        Some(own) => {
            let mut text = Vec::new();
            own.write_with(&mut text, &[(meta::SUBSCRIPTION, None)]);
            let text = String::from_utf8(text).expect("written from UTF-8 texts");
            params.write_with(out, &[("_meta", (text != "{}").then_some(&text))]);
        }
        None => params.write(out),
    }
}

fn refuse(connection: &Arc<Connection>, id: &Id, code: i64, message: &str) {
    let error = error_object(code, message, None);
    connection.answer(|out| write_raw_error(out, Some(id), |out| out.extend_from_slice(error.as_bytes())));
}
