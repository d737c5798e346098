//! The other side: what is said to it, and what it has said.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::modern;
use crate::tasks::Task;

/// The client as this server sees it.
#[derive(Default)]
pub(crate) struct Peer {
    /// How every result is written, and every error, where that is not as usual.
    result_as: Option<String>,
    error_as: Option<String>,
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
    /// Keys of cancelled requests.
    pub(crate) cancelled: HashSet<String>,
    /// Keys of `slow` calls.
    pub(crate) started: HashSet<String>,
    pub(crate) released: HashSet<String>,
    pub(crate) tasks: Vec<Task>,
    /// The headers of the last call of each tool over HTTP.
    pub(crate) headers: BTreeMap<String, BTreeMap<String, String>>,
    /// Streams that were cut and can be gone on with, by the id of their last event.
    pub(crate) cut: HashMap<String, Receiver<Outgoing>>,
    /// The session over HTTP.
    pub(crate) session: Option<String>,
    pub(crate) sessions: usize,
    /// Where messages over HTTP go that belong to no request.
    pub(crate) unrelated: Option<Sender<Outgoing>>,
    /// Ids of the last requests that were answered.
    pub(crate) answered: VecDeque<String>,
    open: HashMap<String, Open>,
    listeners: Vec<Listener>,
    questions: HashMap<u64, Sender<String>>,
    asked: u64,
    entered: u64,
}

/// A request that has no answer yet.
struct Open {
    /// As the client wrote it.
    id: String,
    method: String,
    modern: bool,
    /// Over HTTP, its stream.
    stream: Option<Sender<Outgoing>>,
}

/// Ids that are remembered after the answer.
const MOST_ANSWERED: usize = 16;

/// One message for a stream, and whether it is the last.
pub(crate) struct Outgoing {
    pub(crate) message: String,
    pub(crate) last: bool,
}

/// A `subscriptions/listen`.
struct Listener {
    key: String,
    id: String,
    filter: Filter,
}

/// What a subscription wants to hear of.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Filter {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
    task_ids: Vec<String>,
}

impl Filter {
    fn wants(&self, method: &str, params: Option<&str>) -> bool {
        match method {
            "notifications/tools/list_changed" => self.tools_list_changed,
            "notifications/prompts/list_changed" => self.prompts_list_changed,
            "notifications/resources/list_changed" => self.resources_list_changed,
            "notifications/tasks" => self.task_ids.iter().any(|id| params.is_some_and(|p| p.contains(id))),
            _ => self.resource_subscriptions.iter().any(|uri| params.is_some_and(|p| p.contains(uri))),
        }
    }
}

thread_local! {
    /// The request that this thread works for.
    static CURRENT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Says which request this thread works for.
pub(crate) fn work_for(key: &RawValue) {
    CURRENT.set(Some(key.get().to_owned()));
}

impl Peer {
    /// A client whose answers are written so.
    pub(crate) fn new(result_as: Option<String>, error_as: Option<String>) -> Self {
        Self { result_as, error_as, ..Self::default() }
    }

    /// Writes bytes to stdout in one piece.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let mut stdout = std::io::stdout().lock();
        // A client that has gone away needs no answer.
        let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
    }

    /// Takes a request on and gives it a key of its own, by which it is known from then on.
    pub(crate) fn enter(
        &self,
        id: &RawValue,
        method: &str,
        modern: bool,
        stream: Option<Sender<Outgoing>>,
    ) -> Box<RawValue> {
        self.update(|heard| {
            heard.entered += 1;
            // Over stdio the client's own id will do, so that `cancelled` finds it.
            let key = if stream.is_some() { heard.entered.to_string() } else { id.get().to_owned() };
            let open = Open { id: id.get().to_owned(), method: method.to_owned(), modern, stream };
            heard.open.insert(key.clone(), open);
            RawValue::from_string(key).expect("an id is JSON")
        })
    }

    /// Whether the request is of the modern era.
    pub(crate) fn is_modern(&self, key: &RawValue) -> bool {
        self.update(|heard| heard.open.get(key.get()).is_some_and(|open| open.modern))
    }

    /// The client gives a request up: by its id, or, where its stream was closed, by its key.
    pub(crate) fn cancelled(&self, id: &str, is_key: bool) {
        self.update(|heard| {
            let keys: Vec<String> = heard
                .open
                .iter()
                .filter(|(key, open)| if is_key { *key == id } else { open.id == id })
                .map(|(key, _)| key.clone())
                .collect();
            for key in keys {
                heard.listeners.retain(|listener| listener.key != key);
                heard.cancelled.insert(key);
            }
        });
    }

    pub(crate) fn result(&self, key: &RawValue, result: &str) {
        let shape = self.result_as.as_deref().unwrap_or(r#"{"jsonrpc":"2.0","id":@id,"result":@result}"#);
        self.finish(key, shape, |shape, open| match open {
            Some(open) if open.modern => shape.replace("@result", &modern::completed(&open.method, result)),
            _ => shape.replace("@result", result),
        });
    }

    pub(crate) fn error(&self, key: &RawValue, error: &str) {
        let shape = self.error_as.as_deref().unwrap_or(r#"{"jsonrpc":"2.0","id":@id,"error":@error}"#);
        self.finish(key, shape, |shape, _| shape.replace("@error", error));
    }

    /// Writes this text in place of an answer; the right one may follow.
    pub(crate) fn answer(&self, key: &RawValue, text: &str, last: bool) {
        let id = self.update(|heard| heard.open.get(key.get()).map(|open| open.id.clone()));
        let message = text.replace("@id", id.as_deref().unwrap_or(key.get()));
        send(self, self.stream(key.get()).as_ref(), message, last);
        if last {
            self.close(key);
            // What names no request may have answered none.
            if text.contains("@id") {
                self.remember_answered(id.as_deref().unwrap_or(key.get()));
            }
        }
    }

    fn finish(&self, key: &RawValue, shape: &str, fill: impl FnOnce(String, Option<&Open>) -> String) {
        let open = self.close(key);
        let id = open.as_ref().map_or(key.get(), |open| &open.id);
        let message = fill(shape.replace("@id", id), open.as_ref());
        send(self, open.as_ref().and_then(|open| open.stream.as_ref()), message, true);
        self.remember_answered(id);
    }

    /// Takes a request for answered that was answered in another way, or never will be.
    pub(crate) fn forget(&self, key: &RawValue) {
        if let Some(open) = self.close(key) {
            self.remember_answered(&open.id);
        }
    }

    fn close(&self, key: &RawValue) -> Option<Open> {
        self.update(|heard| heard.open.remove(key.get()))
    }

    /// Only once the answer is written: another thread may answer these again.
    fn remember_answered(&self, id: &str) {
        self.update(|heard| {
            heard.answered.push_back(id.to_owned());
            if heard.answered.len() > MOST_ANSWERED {
                heard.answered.pop_front();
            }
        });
    }

    /// Sends a notification: about lists and resources to whoever wants to hear of them, all others on the stream of
    /// the request that this thread works for.
    pub(crate) fn notify(&self, method: &str, params: Option<&str>) {
        let plain = params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
        let plain = format!(r#"{{"jsonrpc":"2.0","method":"{method}"{plain}}}"#);
        let to_listeners = ["notifications/resources/updated", "notifications/tasks"].contains(&method);
        if !method.ends_with("/list_changed") && !to_listeners {
            let current = CURRENT.take();
            let stream = current.as_ref().and_then(|key| self.stream(key));
            CURRENT.set(current);
            return self.unrelated(stream, plain);
        }
        let tagged = self.update(|heard| {
            let wanting = heard.listeners.iter().filter(|listener| listener.filter.wants(method, params));
            let tagged =
                wanting.map(|listener| (listener.key.clone(), modern::tagged(method, params, &listener.id)));
            tagged.collect::<Vec<_>>()
        });
        for (key, message) in tagged {
            send(self, self.stream(&key).as_ref(), message, false);
        }
        if method != "notifications/tasks" && self.update(|heard| heard.initialize.is_some()) {
            self.unrelated(None, plain);
        }
    }

    /// Takes a subscription on and acknowledges it.
    pub(crate) fn listen(&self, key: &RawValue, filter: &str) {
        let acknowledged = self.update(|heard| {
            let id = heard.open.get(key.get()).map_or_else(String::new, |open| open.id.clone());
            let params = format!(r#"{{"notifications":{filter}}}"#);
            let message = modern::tagged("notifications/subscriptions/acknowledged", Some(&params), &id);
            let filter = serde_json::from_str(filter).unwrap_or_default();
            heard.listeners.push(Listener { key: key.get().to_owned(), id, filter });
            message
        });
        send(self, self.stream(key.get()).as_ref(), acknowledged, false);
    }

    /// Breaks the streams that are open for what belongs to no call: who holds their other ends sees that nothing will
    /// come any more.
    pub(crate) fn cut(&self) {
        self.update(|heard| {
            heard.unrelated = None;
            for listener in std::mem::take(&mut heard.listeners) {
                heard.open.remove(&listener.key);
            }
        });
    }

    /// Whether the client wants to hear of this resource.
    pub(crate) fn is_subscribed(&self, uri: &String) -> bool {
        self.update(|heard| {
            heard.subscriptions.contains(uri)
                || heard.listeners.iter().any(|listener| listener.filter.resource_subscriptions.contains(uri))
        })
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
        let stream = CURRENT.with_borrow(|current| current.as_ref().and_then(|key| self.stream(key)));
        self.unrelated(stream, format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"{params}}}"#));
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

    fn stream(&self, key: &str) -> Option<Sender<Outgoing>> {
        self.update(|heard| heard.open.get(key).and_then(|open| open.stream.clone()))
    }

    /// Sends on this stream, or on the one for messages that belong to no request.
    fn unrelated(&self, stream: Option<Sender<Outgoing>>, message: String) {
        let stream = stream.or_else(|| self.update(|heard| heard.unrelated.clone()));
        send(self, stream.as_ref(), message, false);
    }
}

/// Sends one message on a stream, or to stdout where there is none.
fn send(peer: &Peer, stream: Option<&Sender<Outgoing>>, message: String, last: bool) {
    match stream {
        // A stream that was closed has no reader.
        Some(stream) => drop(stream.send(Outgoing { message, last })),
        None => peer.write(format!("{message}\n").as_bytes()),
    }
}
