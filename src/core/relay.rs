//! What upstreams say of their own accord: notifications, and questions to the client.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::catalog::Kind;
use super::connection::Link;
use super::engine::Engine;
use super::session::{Question, Session};
use crate::wire::json::{Node, quote};
use crate::wire::message::{Id, code, error_object, write_raw_error, write_result};
use crate::wire::peer::{Answer, Deadline};

impl Engine {
    /// Takes a notification of an upstream.
    pub(super) fn upstream_notification(&self, link: &Arc<Link>, method: &str, params: Option<Node<'_>>) {
        if params.is_some_and(|params| !params.is_object()) {
            return;
        }
        match method {
            "notifications/progress" => upstream_progress(link, params),
            "notifications/cancelled" => upstream_cancelled(link, params),
            "notifications/tools/list_changed" => link.list_changed(Kind::Tool),
            "notifications/prompts/list_changed" => link.list_changed(Kind::Prompt),
            "notifications/resources/list_changed" => {
                link.list_changed(Kind::Resource);
                link.list_changed(Kind::Template);
            }
            "notifications/resources/updated" => self.resource_updated(link, params),
            _ => {
                if let Some(session) = self.session() {
                    session.peer.notify(method, |out| {
                        if let Some(params) = params {
                            params.write(out);
                        }
                    });
                }
            }
        }
    }

    /// The client hears of a resource under the URI by which it subscribed.
    fn resource_updated(&self, link: &Arc<Link>, params: Option<Node<'_>>) {
        let Some(params) = params else { return };
        let Some(uri) = params.get("uri").and_then(Node::as_str) else { return };
        let Some(session) = self.session() else { return };
        let exposed = self.exposure().full_name(&link.upstream, Kind::Resource, &uri);
        let known = {
            let subscriptions = session.subscriptions.lock();
            [exposed, uri.into_owned()].into_iter().find(|uri| subscriptions.contains(uri))
        };
        if let Some(uri) = known {
            session.peer.notify("notifications/resources/updated", |out| {
                params.write_with(out, &[("uri", Some(&quote(&uri)))]);
            });
        }
    }

    /// Takes a request of an upstream: a question for the client whose call it belongs to.
    pub(super) fn upstream_request(&self, link: &Arc<Link>, id: Id, method: &str, params: Option<Node<'_>>) {
        if method == "ping" {
            link.peer.out().push(|out| write_result(out, &id, |out| out.extend_from_slice(b"{}")));
            return;
        }
        let Some(session) = self.session() else {
            return refuse(link, &id, code::INTERNAL, "there is no client to ask");
        };
        let needed = match method {
            "sampling/createMessage" => Some("sampling"),
            "elicitation/create" => Some("elicitation"),
            "roots/list" => Some("roots"),
            _ => None,
        };
        if let Some(capability) = needed
            && !session.hello().is_some_and(|hello| hello.can(capability))
        {
            let message = format!("Method not found: the client does not support {capability}");
            return refuse(link, &id, code::METHOD_NOT_FOUND, &message);
        }
        if link.questions.lock().contains_key(&id.key()) {
            return refuse(link, &id, code::INVALID_REQUEST, "Invalid request: this id is in use");
        }
        self.ask(link, &session, id, method, params);
    }

    fn ask(&self, link: &Arc<Link>, session: &Arc<Session>, id: Id, method: &str, params: Option<Node<'_>>) {
        let meta = params.and_then(|params| params.get("_meta"));
        let token = meta.and_then(|meta| meta.get("progressToken"));
        let question =
            Question { link: Arc::downgrade(link), progress: token.map(|token| token.raw().into()) };
        let write = |out: &mut Vec<u8>, ours: u64| match (params, meta, token) {
            (Some(params), Some(meta), Some(_)) => {
                let mut text = Vec::new();
                meta.write_with(&mut text, &[("progressToken", Some(&ours.to_string()))]);
                let text = String::from_utf8(text).expect("written from UTF-8 texts");
                params.write_with(out, &[("_meta", Some(&text))]);
            }
            (Some(params), ..) => params.write(out),
            (None, ..) => {}
        };
        link.asking.fetch_add(1, Ordering::Relaxed);
        let key = id.key();
        let (asker, asked) = (link.clone(), session.clone());
        let on_answer = Box::new(move |answer: Answer<'_>| {
            asker.questions.lock().remove(&id.key());
            asker.asking.fetch_sub(1, Ordering::Relaxed);
            asker.peer.touch_where(|caller| {
                caller.session.as_ref().is_some_and(|session| Arc::ptr_eq(session, &asked))
            });
            asker.peer.out().push(|out| match answer {
                Answer::Result(result) => write_result(out, &id, |out| result.write(out)),
                Answer::Error(error) => write_raw_error(out, Some(&id), |out| error.write(out)),
                Answer::Lost(lost) => write_raw_error(out, Some(&id), |out| {
                    let message = format!("the client did not answer: {lost}");
                    out.extend_from_slice(error_object(lost.code, &message, None).as_bytes());
                }),
            });
        });
        let deadline = Deadline::new(None, Some(self.settings().question_timeout), &link.asking);
        if let Some(ours) = session.peer.request(method, write, question, deadline, on_answer) {
            link.questions.lock().insert(key, (ours, session.clone()));
        }
    }
}

/// Progress goes to the client whose call it is, under the client's own token.
fn upstream_progress(link: &Arc<Link>, params: Option<Node<'_>>) {
    let Some(params) = params else { return };
    let Some(id) = params.get("progressToken").and_then(|token| token.raw().parse().ok()) else { return };
    let caller = link.peer.touch(id, |caller| Some((caller.session.clone()?, caller.progress.clone()?)));
    if let Some(Some((session, token))) = caller {
        session.peer.notify("notifications/progress", |out| {
            params.write_with(out, &[("progressToken", Some(&token))]);
        });
    }
}

/// An upstream gives one of its questions up.
fn upstream_cancelled(link: &Arc<Link>, params: Option<Node<'_>>) {
    let Some(params) = params else { return };
    let Some(id) = params.get("requestId").and_then(Id::from_node) else { return };
    let Some((ours, session)) = link.questions.lock().remove(&id.key()) else { return };
    if session.peer.forget(ours).is_some() {
        link.asking.fetch_sub(1, Ordering::Relaxed);
        session.peer.notify("notifications/cancelled", |out| {
            params.write_with(out, &[("requestId", Some(&ours.to_string()))]);
        });
    }
}

fn refuse(link: &Arc<Link>, id: &Id, code: i64, message: &str) {
    let error = error_object(code, message, None);
    link.peer.out().push(|out| write_raw_error(out, Some(id), |out| out.extend_from_slice(error.as_bytes())));
}
