//! The other side: what is said to it, and what it has said.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;

/// The client as this server sees it.
#[derive(Default)]
pub(crate) struct Peer {
    heard: Mutex<Heard>,
    changed: Condvar,
}

/// All that was heard and has to be remembered.
#[derive(Default)]
pub(crate) struct Heard {
    /// The `params` of `initialize`.
    pub(crate) initialize: Option<Box<RawValue>>,
    /// The `params` of the last `logging/setLevel`.
    pub(crate) level: Option<Box<RawValue>>,
    pub(crate) subscriptions: Vec<String>,
    /// Whole messages, as they came, with their methods.
    pub(crate) notifications: Vec<(String, String)>,
    pub(crate) requests: Vec<(String, String)>,
    /// Ids of cancelled requests, as JSON.
    pub(crate) cancelled: HashSet<String>,
    /// Keys of `slow` calls.
    pub(crate) started: HashSet<String>,
    pub(crate) released: HashSet<String>,
    questions: HashMap<u64, Sender<String>>,
    asked: u64,
}

impl Peer {
    /// Writes bytes to stdout in one piece.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let mut stdout = std::io::stdout().lock();
        // A client that has gone away needs no answer.
        let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
    }

    pub(crate) fn line(&self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
    }

    pub(crate) fn result(&self, id: &RawValue, result: &str) {
        self.line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }

    pub(crate) fn error(&self, id: &RawValue, error: &str) {
        self.line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
    }

    pub(crate) fn notify(&self, method: &str, params: Option<&str>) {
        let params = params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
        self.line(&format!(r#"{{"jsonrpc":"2.0","method":"{method}"{params}}}"#));
    }

    /// Asks the client; the receiver gets its answer, `{"result": …}` or `{"error": …}`.
    pub(crate) fn ask(&self, method: &str, params: Option<&str>) -> Receiver<String> {
        let (sender, receiver) = channel();
        let id = self.update(|heard| {
            heard.asked += 1;
            heard.questions.insert(heard.asked, sender);
            heard.asked
        });
        let params = params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
        self.line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"{params}}}"#));
        receiver
    }

    /// Hands an answer of the client to whoever asked.
    pub(crate) fn answered(&self, id: &RawValue, answer: String) {
        let question = id.get().parse().ok().and_then(|id| self.update(|heard| heard.questions.remove(&id)));
        match question {
            // The asker may have ended with its call.
            Some(question) => drop(question.send(answer)),
            None => eprintln!("fake-upstream: an answer to no question: {id} {answer}"),
        }
    }

    /// Changes or reads what was heard, and wakes whoever waits for it.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Heard) -> T) -> T {
        let result = change(&mut self.heard.lock().expect("no panic"));
        self.changed.notify_all();
        result
    }

    /// Waits until what was heard gives a value.
    pub(crate) fn wait<T>(&self, mut until: impl FnMut(&mut Heard) -> Option<T>) -> T {
        let mut heard = self.heard.lock().expect("no panic");
        loop {
            if let Some(value) = until(&mut heard) {
                return value;
            }
            heard = self.changed.wait(heard).expect("no panic");
        }
    }

    /// As [`Self::wait`], but gives up.
    pub(crate) fn wait_for<T>(
        &self,
        time: Duration,
        mut until: impl FnMut(&mut Heard) -> Option<T>,
    ) -> Option<T> {
        let heard = self.heard.lock().expect("no panic");
        let mut value = None;
        let waited = self.changed.wait_timeout_while(heard, time, |heard| {
            value = until(heard);
            value.is_none()
        });
        drop(waited.expect("no panic"));
        value
    }
}
