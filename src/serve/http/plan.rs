//! What a POST asks for: its message read, and found good or not.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde_json::value::RawValue;

use super::answer::{HttpAnswer, refuse, refused};
use super::headers::{Accepted, SESSION_ID, agree, legacy_version, says_modern};
use super::sessions::HttpSession;
use super::{Backend, HttpServer, Scope};
use crate::wire::era::{ModernMeta, Version};
use crate::wire::json::{Doc, Node, Scanner};
use crate::wire::message::{Id, Message, Refusal, code};

/// JSON nested deeper than this is refused.
const DEEPEST: usize = 512;

/// What a POST asks for, once its message is read and found good.
pub(super) enum Plan<S> {
    /// Nothing but the response.
    Done(HttpAnswer),
    /// A modern request.
    Modern,
    /// A modern notification.
    ModernNotification,
    /// The first request of a session that speaks this version.
    Initialize(Version),
    /// A request in a session.
    Legacy(Arc<HttpSession<S>>),
    /// A notification or response in a session.
    LegacyOneWay(Arc<HttpSession<S>>),
    /// Several of these.
    Batch(Arc<HttpSession<S>>),
}

impl<B: Backend> HttpServer<B> {
    /// Reads the message and decides what is to be done.
    pub(super) fn plan(&self, headers: &HeaderMap, scope: &Scope, message: &[u8]) -> Plan<B::Session> {
        let mut scanner = Scanner::default();
        let refusal =
            |id: Option<&Id>, code, words: &str| Plan::Done(refused(id, &Refusal::new(code, words)));
        let doc = match scanner.scan(message) {
            Ok(doc) if doc.deepest() <= DEEPEST => doc,
            Ok(_) => return refusal(None, code::PARSE, "Parse error: nested more than 512 levels deep"),
            Err(invalid) => {
                let words = format!("Parse error: this is no JSON from byte {} on", invalid.offset);
                return refusal(None, code::PARSE, &words);
            }
        };
        if doc.root().raw().starts_with('[') {
            return self.plan_batch(headers, scope, doc);
        }
        let (id, method, params) = match Message::read(doc.root()) {
            Err(bad) => return refusal(bad.id.as_ref(), bad.code, bad.message),
            Ok(Message::Request { id, method, params }) => (Some(id), method, params),
            Ok(Message::Notification { method, params }) => (None, method, params),
            Ok(Message::Response { .. }) if says_modern(headers) => {
                let words = "Invalid request: in this version clients send no responses";
                return refusal(None, code::INVALID_REQUEST, words);
            }
            Ok(Message::Response { .. }) => {
                return match self.live_session(headers, scope) {
                    Ok(session) => Plan::LegacyOneWay(session),
                    Err(denied) => Plan::Done(denied.answer(None)),
                };
            }
        };
        let modern = match ModernMeta::read(params) {
            Ok(meta) => meta.is_some() || says_modern(headers),
            Err(refusal) => return Plan::Done(refused(id.as_ref(), &refusal)),
        };
        match id {
            None if modern => Plan::ModernNotification,
            None => match self.live_session(headers, scope) {
                Ok(session) => Plan::LegacyOneWay(session),
                Err(denied) => Plan::Done(denied.answer(None)),
            },
            Some(id) if modern => {
                if !is_string_or_integer(&id) {
                    let words = "Invalid request: \"id\" must be a string or an integer";
                    return refusal(None, code::INVALID_REQUEST, words);
                }
                match agree(headers, &method, params) {
                    Ok(()) if method == "subscriptions/listen" && !Accepted::read(headers).events => {
                        let words = "a subscription is answered with text/event-stream";
                        Plan::Done(refuse(StatusCode::NOT_ACCEPTABLE, words))
                    }
                    Ok(()) => Plan::Modern,
                    Err(refusal) => Plan::Done(refused(Some(&id), &refusal)),
                }
            }
            Some(id) if method == "initialize" && !headers.contains_key(SESSION_ID) => {
                if let Err(refusal) = legacy_version(headers) {
                    return Plan::Done(refused(Some(&id), &refusal));
                }
                let requested =
                    params.and_then(|params| params.get("protocolVersion")).and_then(Node::as_str);
                Plan::Initialize(
                    requested.and_then(|version| Version::legacy(&version)).unwrap_or(Version::LATEST_LEGACY),
                )
            }
            Some(id) => match self.live_session(headers, scope) {
                Ok(session) => Plan::Legacy(session),
                Err(denied) => Plan::Done(denied.answer(Some(&id))),
            },
        }
    }

    fn plan_batch(&self, headers: &HeaderMap, scope: &Scope, doc: Doc<'_>) -> Plan<B::Session> {
        let refusal = |words: &str| Plan::Done(refused(None, &Refusal::new(code::INVALID_REQUEST, words)));
        if says_modern(headers) {
            return refusal("Invalid request: this version has no batches");
        }
        let session = match self.live_session(headers, scope) {
            Ok(session) => session,
            Err(denied) => return Plan::Done(denied.answer(None)),
        };
        if session.version != Version::V2025March {
            return refusal("Invalid request: batches are part of 2025-03-26 only");
        }
        match serde_json::from_str::<Vec<&RawValue>>(doc.root().raw()) {
            Ok(parts) if parts.iter().any(|part| is_modern(part.get().as_bytes())) => {
                refusal("Invalid request: the version of a modern message has no batches")
            }
            Ok(parts) if !parts.is_empty() => Plan::Batch(session),
            _ => refusal("Invalid request: the batch is empty"),
        }
    }
}

/// Whether the message says by its `_meta` that it is modern.
pub(super) fn is_modern(message: &[u8]) -> bool {
    let mut scanner = Scanner::default();
    match scanner.scan(message).map(|doc| Message::read(doc.root())) {
        Ok(Ok(Message::Request { params, .. } | Message::Notification { params, .. })) => {
            !matches!(ModernMeta::read(params), Ok(None))
        }
        _ => false,
    }
}

fn is_string_or_integer(id: &Id) -> bool {
    let raw = id.raw();
    raw.starts_with('"') || raw.strip_prefix('-').unwrap_or(raw).bytes().all(|byte| byte.is_ascii_digit())
}
