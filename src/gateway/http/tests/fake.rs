//! A backend that does what the method says.

use std::pin::Pin;
use std::sync::Arc;

use hyper::header::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock};
use tokio::time::timeout;

use super::PATIENCE;
use crate::core::record::Record;
use crate::core::reply::Batch;
use crate::core::route::{OutgoingKind, Route};
use crate::events::metrics::Exposition;
use crate::gateway::http::{Backend, Caller, Outgoing, Sink};
use crate::protocol::message::{Malformed, Message, Request};

/// The state of that backend.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) held: Mutex<Vec<(String, Arc<dyn Sink>)>>,
    pub(super) sessions: Mutex<Vec<Arc<FakeSession>>>,
    pub(super) log: Mutex<Vec<String>>,
    logged: Notify,
    pub(super) not_ready: Mutex<Option<String>>,
    /// Lets tests hold up sessions that move here.
    pub(super) restoring: RwLock<()>,
}

pub(super) struct FakeSession {
    number: usize,
    unrelated: Arc<dyn Sink>,
    /// What it has opened, by requests with the method `open`.
    pub(super) open: Mutex<Vec<String>>,
}

impl Fake {
    pub(super) fn note(&self, line: impl Into<String>) {
        self.log.lock().push(line.into());
        self.logged.notify_waiters();
    }

    /// Waits until this line is in the log.
    pub(super) async fn noted(&self, line: &str) {
        let found = async {
            loop {
                let logged = self.logged.notified();
                if self.log.lock().iter().any(|noted| noted == line) {
                    return;
                }
                logged.await;
            }
        };
        assert!(timeout(PATIENCE, found).await.is_ok(), "`{line}` never happened: {:?}", self.log.lock());
    }

    /// Takes the stream of the oldest held request with this id.
    pub(super) fn take(&self, id: &str) -> Arc<dyn Sink> {
        let mut held = self.held.lock();
        let at = held.iter().position(|(held, _)| held == id).expect("such a request is held");
        held.remove(at).1
    }

    pub(super) fn unrelated(&self, session: usize) -> Arc<dyn Sink> {
        self.sessions.lock()[session].unrelated.clone()
    }

    pub(super) fn run(&self, who: &str, message: Message<'_>, stream: Arc<dyn Sink>) -> String {
        let Request { id, method, params, .. } = match message {
            Message::Request(request) => request,
            Message::Notification { method, .. } => {
                self.note(format!("{who} {method}"));
                return String::new();
            }
            Message::Response { .. } => {
                self.note(format!("{who} response"));
                return String::new();
            }
        };
        let id = id.raw().into_owned();
        let result = |body: &str| {
            stream.send(whole_answer(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{body}}}"#)));
        };
        let error = |code: i64| {
            stream.send(error(&id, code));
        };
        match &*method {
            "initialize" if params.is_some_and(|params| params.get("fail").is_some()) => error(-32602),
            "initialize" => result("{\"hello\":1}"),
            "hold" | "subscriptions/listen" => {
                self.held.lock().push((id.clone(), stream));
                self.note(format!("{who} holds {id}"));
            }
            "progress" => {
                stream.send(notice(r#"{"p":1}"#));
                stream.send(notice(r#"{"p":2}"#));
                result("{}");
            }
            "drop" => {}
            "unknown" => error(-32601),
            "capability" => error(-32021),
            _ => result(&format!("\"{who}\"")),
        }
        id
    }
}

/// A result.
pub(super) fn whole_answer(bytes: impl Into<Vec<u8>>) -> Outgoing<'static> {
    Outgoing { kind: OutgoingKind::Result, bytes: bytes.into() }
}

/// A notification.
pub(super) fn notice(bytes: impl Into<Vec<u8>>) -> Outgoing<'static> {
    Outgoing { kind: OutgoingKind::Notice("n"), bytes: bytes.into() }
}

fn error(id: &str, code: i64) -> Outgoing<'static> {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"no"}}}}"#);
    Outgoing { kind: OutgoingKind::Error(code), bytes: text.into() }
}

/// One part of a batch. When it is dropped, it adds its answer to the batch.
struct Part {
    stream: Arc<dyn Sink>,
    batch: Arc<Batch>,
    answer: Mutex<Option<Vec<u8>>>,
}

impl Sink for Part {
    fn send(&self, message: Outgoing<'_>) -> bool {
        if !message.kind.is_answer() {
            return self.stream.send(message);
        }
        *self.answer.lock() = Some(message.bytes);
        true
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.batch.add(&Route::Stream(self.stream.clone()), self.answer.get_mut().take());
    }
}

/// Records that a modern request was given up before its answer.
struct Cancel(Arc<Fake>, String);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.note(format!("released {}", self.1));
    }
}

pub(super) struct Shared(pub(super) Arc<Fake>);

/// A backend for tests of the code around a server.
pub(crate) fn backend() -> Arc<impl Backend> {
    Arc::new(Shared(Arc::default()))
}

impl Backend for Shared {
    type Legacy = FakeSession;

    fn toolbox_exists(&self, caller: &Caller) -> bool {
        let name = caller.toolbox.as_deref().unwrap_or_default();
        let allowed = caller.token.as_ref().and_then(|token| token.scope.as_ref());
        ["dev", "my box"].contains(&name)
            && allowed.is_none_or(|names| names.iter().any(|allowed| allowed == name))
    }

    fn ready(&self) -> Result<(), String> {
        self.0.not_ready.lock().clone().map_or(Ok(()), Err)
    }

    fn open(&self, caller: Caller, _id: &str, unrelated: Arc<dyn Sink>) -> Arc<FakeSession> {
        let mut sessions = self.0.sessions.lock();
        let session = Arc::new(FakeSession { number: sessions.len(), unrelated, open: Mutex::default() });
        sessions.push(session.clone());
        self.0.note(format!("open {:?}", caller.toolbox));
        session
    }

    fn legacy(&self, session: &Arc<FakeSession>, message: Message<'_>, stream: Arc<dyn Sink>) {
        if let Message::Request(Request { method, id, .. }) = &message
            && method == "open"
        {
            session.open.lock().push(id.raw().into_owned());
            session.unrelated.changed();
            stream.changed();
            self.0.note(format!("session {} opens {}", session.number, id.raw()));
        }
        self.0.run(&format!("session {}", session.number), message, stream);
    }

    fn legacy_batch(
        &self,
        session: &Arc<FakeSession>,
        parts: Vec<Result<Message<'_>, Malformed>>,
        stream: Arc<dyn Sink>,
    ) {
        let batch = Batch::new(parts.len());
        for part in parts {
            let stream = Part { stream: stream.clone(), batch: batch.clone(), answer: Mutex::default() };
            match part {
                Ok(message) => self.legacy(session, message, Arc::new(stream)),
                Err(Malformed { why, .. }) => drop(stream.send(error("null", why.code))),
            }
        }
    }

    fn record(&self, session: &Arc<FakeSession>) -> Record {
        Record { open: session.open.lock().clone(), ..Record::default() }
    }

    fn restore<'a>(
        &'a self,
        session: &'a Arc<FakeSession>,
        record: Record,
        first_question: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            let _open = self.0.restoring.read().await;
            self.0.note(format!("restore {:?} {}", record.open, first_question >> 32));
            *session.open.lock() = record.open;
        })
    }

    fn fail(&self, _session: &Arc<FakeSession>, message: Message<'_>, reason: &str, stream: Arc<dyn Sink>) {
        let Message::Request(Request { id, .. }) = message else { return };
        self.0.note(format!("failed {}", id.raw()));
        assert!(!reason.is_empty());
        stream.send(error(&id.raw(), -32000));
    }

    fn forget<'a>(&'a self, session: &'a Arc<FakeSession>) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.0.note(format!("forget {}", session.number));
        Box::pin(std::future::ready(()))
    }

    fn close(&self, session: &Arc<FakeSession>) {
        self.0.note(format!("close {}", session.number));
    }

    fn modern(
        &self,
        caller: Caller,
        message: Message<'_>,
        _mirrored: HeaderMap,
        stream: Arc<dyn Sink>,
    ) -> Box<dyn Send> {
        let token = caller.token.map_or_else(|| "anybody".to_owned(), |token| token.name.clone());
        let id = self.0.run(&token, message, stream);
        Box::new(Cancel(self.0.clone(), id))
    }

    fn metrics(&self, sessions: usize) -> Box<dyn FnOnce(Exposition) -> String + Send> {
        Box::new(move |as_text| format!("{sessions} sessions as {as_text:?}"))
    }

    fn sweep(&self, _: std::time::Duration) {}

    fn drain(&self) {
        self.0.note("drain");
    }

    fn abandon(&self) {
        for (id, stream) in std::mem::take(&mut *self.0.held.lock()) {
            stream.send(error(&id, -32000));
        }
        self.0.note("abandon");
    }
}
