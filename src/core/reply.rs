//! Answers to a client's requests: each once, those of a batch together.

use std::collections::hash_map::OccupiedEntry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

use super::modern::ModernCall;
use super::route::Route;
use super::session::{Session, Waiting, own};
use crate::wire::era::Version;
use crate::wire::json::Node;
use crate::wire::message::{Id, code, error_object, write_raw_error, write_result, write_sound_error};

/// The answers to a batch, which leave together.
pub struct Batch(Mutex<(usize, Vec<Vec<u8>>)>);

impl Batch {
    /// A batch that expects so many answers.
    pub fn new(expected: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new((expected, Vec::new()))))
    }

    /// Adds an answer, or `None` for a request that gets none, and sends all of them after the last.
    pub fn add(&self, route: &Route, answer: Option<Vec<u8>>) {
        let answers = {
            let mut state = self.0.lock();
            state.1.extend(answer);
            state.0 -= 1;
            if state.0 > 0 || state.1.is_empty() {
                return;
            }
            std::mem::take(&mut state.1)
        };
        route.push(true, |out| {
            out.push(b'[');
            out.extend_from_slice(&answers.join(&b','));
            out.push(b']');
        });
    }
}

/// The right to answer one request, once. Dropped without an answer it sends an error, so that whatever goes wrong
/// no client waits for ever.
pub struct Reply {
    session: Arc<Session>,
    key: Option<Arc<str>>,
    modern: Option<Arc<ModernCall>>,
    /// Whether the state that a retry brings has been opened; what may stand in its place is the upstream's own.
    pub opened: bool,
}

impl Reply {
    pub(super) fn new(session: Arc<Session>, key: Arc<str>, modern: Option<Arc<ModernCall>>) -> Self {
        Self { session, key: Some(key), modern, opened: false }
    }

    /// Whose request it is.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// What a modern request said of itself; `None` in the legacy era.
    pub fn modern(&self) -> Option<&Arc<ModernCall>> {
        self.modern.as_ref()
    }

    /// The version that the client speaks.
    pub fn version(&self) -> Version {
        match (&self.modern, self.session.hello()) {
            (Some(_), _) => Version::V2026July,
            (None, hello) => hello.map_or(Version::LATEST_LEGACY, |hello| hello.version),
        }
    }

    /// What the session knows the request by, as long as the client wants the answer.
    pub fn key(&self) -> &Arc<str> {
        self.key.as_ref().expect("taken only by an answer, which consumes the reply")
    }

    /// The request's id, while the client wants the answer.
    pub fn id(&self) -> Option<Id> {
        own(&mut self.session.waiting.lock(), self.key()).map(|waiting| waiting.get().id.clone())
    }

    /// The request of ours that it went on as, while the client wants the answer.
    pub(super) fn sent_as(&self) -> Option<u64> {
        let mut waiting = self.session.waiting.lock();
        own(&mut waiting, self.key())?.get().target.as_ref().map(|(_, id)| *id)
    }

    /// Whether the client still wants the answer.
    pub fn is_wanted(&self) -> bool {
        own(&mut self.session.waiting.lock(), self.key()).is_some()
    }

    /// Answers with a result that `write` writes as raw JSON.
    pub fn result_with(mut self, write: impl FnOnce(&mut Vec<u8>)) {
        match self.modern.take() {
            None => self.send(|out, id| write_result(out, id, write)),
            Some(modern) => {
                let mut result = Vec::new();
                write(&mut result);
                self.send(|out, id| write_result(out, id, |out| modern.complete(out, &result)));
            }
        }
    }

    /// Answers with a raw result.
    pub fn result(self, result: &str) {
        self.result_with(|out| out.extend_from_slice(result.as_bytes()));
    }

    /// Answers with an upstream's raw error object.
    pub fn raw_error(mut self, error: Node<'_>) {
        let modern = self.modern.is_some();
        self.send(|out, id| {
            write_raw_error(out, Some(id), |out| match error.get("code").map(Node::raw) {
                // The code of the legacy era for a resource that is not there is gone.
                Some("-32002") if modern => error.write_with(out, &[("code", Some("-32602"))]),
                _ => write_sound_error(out, error),
            });
        });
    }

    /// Answers with an error of our own; `data` is raw JSON.
    pub fn error(mut self, code: i64, message: &str, data: Option<&str>) {
        let code = match code {
            code::RESOURCE_NOT_FOUND if self.modern.is_some() => code::INVALID_PARAMS,
            code => code,
        };
        self.send_error(code, message, data);
    }

    fn send_error(&mut self, code: i64, message: &str, data: Option<&str>) {
        let error = error_object(code, message, data);
        self.send(|out, id| write_raw_error(out, Some(id), |out| out.extend_from_slice(error.as_bytes())));
    }

    fn send(&mut self, write: impl FnOnce(&mut Vec<u8>, &Id)) {
        let Some(key) = self.key.take() else { return };
        let (found, last) = {
            let mut waiting = self.session.waiting.lock();
            (own(&mut waiting, &key).map(OccupiedEntry::remove), waiting.is_empty())
        };
        if let Some(Waiting { id, batch, route, .. }) = found {
            let written =
                AssertUnwindSafe(|| self.session.send(&route, batch.as_ref(), |out| write(out, &id)));
            if catch_unwind(written).is_err() {
                tracing::error!("writing an answer made us panic; please report it");
                let error =
                    error_object(code::INTERNAL, "Internal error: the answer could not be written", None);
                self.session.send(&route, batch.as_ref(), |out| {
                    write_raw_error(out, Some(&id), |out| out.extend_from_slice(error.as_bytes()));
                });
            }
            if last {
                self.session.all_answered.notify_waiters();
            }
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.key.is_some() {
            self.send_error(
                code::INTERNAL,
                "Internal error: the request was dropped without an answer",
                None,
            );
        }
    }
}
