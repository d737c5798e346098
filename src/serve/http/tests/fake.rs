//! A backend that does what the method says.

use std::sync::Arc;

use hyper::header::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::PATIENCE;
use crate::serve::http::{Backend, Scope, Sink};
use crate::wire::json::{Node, Scanner};

/// A backend that does what the method says.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) held: Mutex<Vec<(String, Arc<dyn Sink>)>>,
    pub(super) sessions: Mutex<Vec<Arc<FakeSession>>>,
    pub(super) log: Mutex<Vec<String>>,
    logged: Notify,
    pub(super) not_ready: Mutex<Option<String>>,
}

pub(super) struct FakeSession {
    number: usize,
    unrelated: Arc<dyn Sink>,
}

impl Fake {
    pub(super) fn note(&self, line: impl Into<String>) {
        self.log.lock().push(line.into());
        self.logged.notify_waiters();
    }

    /// Waits until something was noted.
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

    pub(super) fn run(&self, who: &str, message: &[u8], stream: Arc<dyn Sink>) -> String {
        let mut scanner = Scanner::default();
        let root = scanner.scan(message).unwrap().root();
        let Some(method) = root.get("method").and_then(Node::as_str) else {
            self.note(format!("{who} response"));
            return String::new();
        };
        let Some(id) = root.get("id").map(|id| id.raw().to_owned()) else {
            self.note(format!("{who} {method}"));
            return String::new();
        };
        let result = |body: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{body}}}"#);
        let error =
            |code: i64| format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"no"}}}}"#);
        match &*method {
            "initialize" if root.get("params").and_then(|params| params.get("fail")).is_some() => {
                stream.send(error(-32602).as_bytes(), true);
            }
            "initialize" => {
                stream.send(result("{\"hello\":1}").as_bytes(), true);
            }
            "hold" | "subscriptions/listen" => {
                self.held.lock().push((id.clone(), stream));
                self.note(format!("{who} holds {id}"));
            }
            "progress" => {
                stream.send(br#"{"p":1}"#, false);
                stream.send(br#"{"p":2}"#, false);
                stream.send(result("{}").as_bytes(), true);
            }
            "drop" => {}
            "unknown" => drop(stream.send(error(-32601).as_bytes(), true)),
            "capability" => drop(stream.send(error(-32021).as_bytes(), true)),
            _ => drop(stream.send(result(&format!("\"{who}\"")).as_bytes(), true)),
        }
        id
    }
}

/// Notes when a modern request is given up before its answer.
struct Cancel(Arc<Fake>, String);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.note(format!("released {}", self.1));
    }
}

pub(super) struct Shared(pub(super) Arc<Fake>);

/// A backend for tests of what stands around a server.
pub(crate) fn backend() -> Arc<impl Backend> {
    Arc::new(Shared(Arc::default()))
}

impl Backend for Shared {
    type Session = FakeSession;

    fn toolbox_exists(&self, scope: &Scope) -> bool {
        let name = scope.toolbox.as_deref().unwrap_or_default();
        let allowed = scope.token.as_ref().and_then(|token| token.scope.as_ref());
        ["dev", "my box"].contains(&name)
            && allowed.is_none_or(|names| names.iter().any(|allowed| allowed == name))
    }

    fn ready(&self) -> Result<(), String> {
        self.0.not_ready.lock().clone().map_or(Ok(()), Err)
    }

    fn open(&self, scope: Scope, unrelated: Arc<dyn Sink>) -> Arc<FakeSession> {
        let mut sessions = self.0.sessions.lock();
        let session = Arc::new(FakeSession { number: sessions.len(), unrelated });
        sessions.push(session.clone());
        self.0.note(format!("open {:?}", scope.toolbox));
        session
    }

    fn legacy(&self, session: &Arc<FakeSession>, message: &[u8], stream: Arc<dyn Sink>) {
        self.0.run(&format!("session {}", session.number), message, stream);
    }

    fn close(&self, session: &Arc<FakeSession>) {
        self.0.note(format!("close {}", session.number));
    }

    fn modern(
        &self,
        scope: Scope,
        message: &[u8],
        _mirrored: HeaderMap,
        stream: Arc<dyn Sink>,
    ) -> Box<dyn Send> {
        let token = scope.token.map_or_else(|| "anybody".to_owned(), |token| token.name.clone());
        let id = self.0.run(&token, message, stream);
        Box::new(Cancel(self.0.clone(), id))
    }

    fn drain(&self) {
        self.0.note("drain");
    }

    fn abandon(&self) {
        for (id, stream) in std::mem::take(&mut *self.0.held.lock()) {
            stream.send(
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"ending"}}}}"#)
                    .as_bytes(),
                true,
            );
        }
        self.0.note("abandon");
    }
}
