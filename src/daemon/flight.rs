//! What is in flight over a relay: the client's requests that the daemon has, and the daemon's questions that
//! the client has. When the daemon dies, the requests are answered and the questions withdrawn.
//!
//! Invariant: each request that was sent is answered once: by the daemon, or by [`Flight::lost`].

use std::collections::HashMap;

use crate::config::locate::FaceKind;
use crate::core::aside::{FromDaemon, is_aside};
use crate::face::{toolman, workbench};
use crate::json::{Node, Scanner};
use crate::protocol::cut_off::raw_id;
use crate::protocol::message::{
    Id, Message, Refusal, batch_parts, code, own_id, write_notification, write_result,
};

/// Why a request was not answered.
pub(super) const ENDED: &str = "The daemon ended before it answered. The request may or may not have taken \
     effect, so find out before you repeat it";

/// What a line of the client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Upward {
    /// Requests: one, or those of a batch. A batch has one answer.
    Requests(Vec<ClientRequest>, bool),
    /// The client does not want the answer to the request with this key.
    Cancelled(Id),
    /// The answer to a question.
    Answer(u64),
    /// Anything else.
    Other,
}

/// A request of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientRequest {
    id: Id,
    method: Method,
    modern: bool,
}

/// What kind of answer a request expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Initialize,
    CallTool,
    Other,
}

/// What a line of the daemon is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Downward {
    /// A message for the client.
    Message,
    /// Something for the relay; `None` if the relay does not know it.
    Aside(Option<FromDaemon>),
}

/// The requests and questions that are in flight.
#[derive(Default)]
pub(super) struct Flight {
    /// The client's requests by their keys, each with its number.
    asked: HashMap<Id, Sent>,
    /// The ids of the daemon's open questions.
    questions: Vec<u64>,
    /// The number of the last request.
    last: u64,
    /// The number of the last batch.
    last_batch: u64,
    /// No question may have an id below this one.
    pub(super) first_question: u64,
    scanner: Scanner,
}

struct Sent {
    number: u64,
    asked: ClientRequest,
    batch: Option<u64>,
    /// The whole line of an `initialize`, which is sent again.
    line: Option<Vec<u8>>,
}

impl Upward {
    /// Whether the line needs a daemon.
    pub(super) fn is_request(&self) -> bool {
        matches!(self, Self::Requests(..))
    }
}

impl Flight {
    /// What a line of the client is.
    pub(super) fn understand(&mut self, line: &[u8]) -> Upward {
        let Ok(doc) = self.scanner.scan(line) else { return Upward::Other };
        let root = doc.root();
        if root.is_array() {
            let parts = batch_parts(root);
            let read = Message::read_parts(&parts).into_iter().flatten();
            let requests: Vec<_> = read.filter_map(|message| asked(&message)).collect();
            return if requests.is_empty() { Upward::Other } else { Upward::Requests(requests, true) };
        }
        match Message::read(root) {
            Ok(Message::Notification { method, params }) if method == "notifications/cancelled" => {
                let id = params.and_then(|params| params.get("requestId")).and_then(Id::from_node);
                id.map_or(Upward::Other, |id| Upward::Cancelled(id.key()))
            }
            Ok(Message::Response { .. }) => {
                let id = root.get("id").and_then(|id| own_id(id.raw()));
                id.map_or(Upward::Other, Upward::Answer)
            }
            Ok(message) => {
                asked(&message).map_or(Upward::Other, |asked| Upward::Requests(vec![asked], false))
            }
            // The daemon refuses it under its id.
            Err(malformed) => match malformed.id {
                Some(id) => {
                    Upward::Requests(vec![ClientRequest { id, method: Method::Other, modern: false }], false)
                }
                None => Upward::Other,
            },
        }
    }

    /// What a line of the client is that is too long, of which this is the beginning.
    pub(super) fn understand_long(&mut self, start: &[u8]) -> Upward {
        match raw_id(&mut self.scanner, start).and_then(Id::from_raw) {
            Some(id) => {
                Upward::Requests(vec![ClientRequest { id, method: Method::Other, modern: false }], false)
            }
            None => Upward::Other,
        }
    }

    /// Notes that at least the first byte of a line was sent to the daemon.
    pub(super) fn sent(&mut self, what: Upward, line: &[u8]) {
        match what {
            Upward::Requests(requests, is_batch) => {
                self.last_batch += u64::from(is_batch);
                for asked in requests {
                    self.last += 1;
                    let line = (!is_batch && asked.method == Method::Initialize).then(|| line.to_vec());
                    let batch = is_batch.then_some(self.last_batch);
                    // The daemon refuses an id that is in use, and not under that id.
                    let sent = Sent { number: self.last, asked, batch, line };
                    self.asked.entry(sent.asked.id.key()).or_insert(sent);
                }
            }
            // The daemon may answer all the same; then there is nothing to note.
            Upward::Cancelled(key) => drop(self.asked.remove(&key)),
            Upward::Answer(id) => self.questions.retain(|other| *other != id),
            Upward::Other => {}
        }
    }

    /// Whether a line can be left out because it answers a question that was withdrawn.
    pub(super) fn is_stale(&self, what: &Upward) -> bool {
        matches!(what, Upward::Answer(id) if !self.questions.contains(id))
    }

    /// Notes a line of the daemon, and says what it is.
    pub(super) fn received(&mut self, line: &[u8]) -> Downward {
        if is_aside(line) {
            return Downward::Aside(FromDaemon::read(line));
        }
        let Ok(doc) = self.scanner.scan(line) else { return Downward::Message };
        let root = doc.root();
        if root.is_array() {
            let ids = batch_parts(root);
            let ids = ids.iter().filter_map(|part| part.root().get("id").and_then(Id::from_node));
            ids.for_each(|id| drop(self.asked.remove(&id.key())));
            return Downward::Message;
        }
        let (id, method) =
            (root.get("id").and_then(Id::from_node), root.get("method").and_then(Node::as_str));
        match (id, method) {
            (Some(id), None) => drop(self.asked.remove(&id.key())),
            (Some(id), Some(_)) => {
                if let Some(id) = own_id(&id.raw()) {
                    self.questions.push(id);
                    self.first_question = self.first_question.max(id.saturating_add(1));
                }
            }
            (None, Some(method)) if method == "notifications/cancelled" => {
                let withdrawn = root.get("params").and_then(|params| params.get("requestId"));
                let withdrawn = withdrawn.and_then(|id| own_id(id.raw()));
                self.questions.retain(|id| Some(*id) != withdrawn);
            }
            _ => {}
        }
        Downward::Message
    }

    /// The daemon is gone: what the client is told, and the `initialize` that is to be sent again.
    pub(super) fn lost(&mut self, face: FaceKind) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut lines = Vec::new();
        for id in self.questions.drain(..) {
            write_notification(&mut lines, "notifications/cancelled", |out| {
                let reason = "the daemon that asked has ended";
                out.extend_from_slice(format!("{{\"requestId\":{id},\"reason\":\"{reason}\"}}").as_bytes());
            });
            lines.push(b'\n');
        }
        let mut asked: Vec<_> = self.asked.drain().map(|(_, sent)| sent).collect();
        asked.sort_by_key(|sent| sent.number);
        let mut again = None;
        let mut open_batch = None;
        for Sent { asked, batch, line, .. } in asked {
            if let Some(line) = line {
                again = Some(line);
                continue;
            }
            // The requests of a batch have successive numbers, so their answers stand together.
            if open_batch != batch {
                if open_batch.take().is_some() {
                    lines.extend_from_slice(b"]\n");
                }
                if batch.is_some() {
                    lines.push(b'[');
                }
                open_batch = batch;
            } else if batch.is_some() {
                lines.push(b',');
            }
            write_lost(&mut lines, face, &asked);
            if batch.is_none() {
                lines.push(b'\n');
            }
        }
        if open_batch.is_some() {
            lines.extend_from_slice(b"]\n");
        }
        (lines, again)
    }

    /// Whether nothing is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }
}

fn asked(message: &Message<'_>) -> Option<ClientRequest> {
    let Message::Request(request) = message else { return None };
    let method = match &*request.method {
        "initialize" => Method::Initialize,
        "tools/call" => Method::CallTool,
        _ => Method::Other,
    };
    Some(ClientRequest { id: request.id.clone(), method, modern: request.meta.is_some() })
}

/// Answers a request that the daemon took with it.
fn write_lost(out: &mut Vec<u8>, face: FaceKind, asked: &ClientRequest) {
    let kind = if asked.modern { ",\"resultType\":\"complete\"" } else { "" };
    match (asked.method, face) {
        (Method::CallTool, face) => {
            let result = match face {
                FaceKind::Workbench => workbench::failed_result(ENDED),
                FaceKind::Toolman => toolman::failed_result(ENDED),
            };
            let members = result.strip_suffix('}').expect("a result is an object");
            write_result(out, &asked.id, |out| {
                out.extend_from_slice(format!("{members}{kind}}}").as_bytes())
            });
        }
        (_, FaceKind::Workbench) => Refusal::new(code::INTERNAL, ENDED).write(out, Some(&asked.id)),
        (_, FaceKind::Toolman) => toolman::refusal(code::INTERNAL, ENDED).write(out, Some(&asked.id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn send(flight: &mut Flight, line: &str) {
        let what = flight.understand(line.as_bytes());
        flight.sent(what, line.as_bytes());
    }

    fn request(id: &str, method: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
    }

    /// What the client is told when the daemon dies now.
    fn lost(flight: &mut Flight) -> Vec<Value> {
        let (lines, again) = flight.lost(FaceKind::Workbench);
        assert_eq!(again, None);
        let text = String::from_utf8(lines).expect("UTF-8");
        assert!(text.is_empty() || text.ends_with('\n'), "whole lines: {text:?}");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    #[test]
    fn every_request_in_flight_is_answered_once_in_the_order_of_sending() {
        let mut flight = Flight::default();
        for (id, method) in [("1", "tools/call"), ("\"1\"", "tools/list"), ("2", "ping"), ("3", "tools/call")]
        {
            send(&mut flight, &request(id, method));
        }
        // Another request under an id in use, and one that the client does not want any more.
        send(&mut flight, &request("1.0", "tools/list"));
        send(&mut flight, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#);
        assert_eq!(flight.received(br#"{"jsonrpc":"2.0","id":2,"result":{}}"#), Downward::Message);
        let told = lost(&mut flight);
        let ids: Vec<_> = told.iter().map(|answer| answer["id"].to_string()).collect();
        assert_eq!(ids, ["1", "\"1\""]);
        let text = told[0]["result"]["content"][0]["text"].as_str().expect("a text");
        assert!(text.starts_with("The daemon ended before it answered"), "{text}");
        assert_eq!(told[0]["result"]["isError"], true);
        assert_eq!(told[1]["error"]["code"], -32603);
        assert!(
            told[1]["error"]["message"]
                .as_str()
                .expect("a text")
                .starts_with("The daemon ended before it answered")
        );
        assert!(flight.is_empty() && lost(&mut flight).is_empty(), "once is enough");
    }

    #[test]
    fn only_initialize_is_sent_again() {
        let mut flight = Flight::default();
        let line = request("0", "initialize");
        send(&mut flight, &line);
        let (told, again) = flight.lost(FaceKind::Workbench);
        assert_eq!((told, again), (Vec::new(), Some(line.clone().into_bytes())));
        send(&mut flight, &line);
        flight.received(br#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
        assert_eq!(flight.lost(FaceKind::Workbench), (Vec::new(), None));
    }

    #[test]
    fn a_batch_has_one_answer() {
        let mut flight = Flight::default();
        send(&mut flight, &format!("[{},{}]", request("1", "ping"), request("2", "tools/call")));
        send(&mut flight, &format!("[{}]", request("3", "ping")));
        send(&mut flight, &request("4", "ping"));
        flight.received(br#"[{"jsonrpc":"2.0","id":3,"result":{}}]"#);
        let told = lost(&mut flight);
        assert_eq!(told.len(), 2, "{told:?}");
        let ids: Vec<_> = told[0].as_array().expect("a batch").iter().map(|answer| &answer["id"]).collect();
        assert_eq!(ids, [1, 2]);
        assert_eq!(told[1]["id"], 4);
    }

    #[test]
    fn open_questions_are_withdrawn_and_their_ids_not_used_again() {
        let mut flight = Flight::default();
        for id in 1..=4 {
            flight.received(request(&id.to_string(), "roots/list").as_bytes());
        }
        // One is answered, one is withdrawn by the daemon itself.
        send(&mut flight, r#"{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}"#);
        flight.received(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#);
        let told = lost(&mut flight);
        let withdrawn: Vec<_> =
            told.iter().map(|notice| (&notice["method"], &notice["params"]["requestId"])).collect();
        let cancelled = Value::from("notifications/cancelled");
        assert_eq!(withdrawn, [(&cancelled, &Value::from(2)), (&cancelled, &Value::from(4))]);
        assert_eq!(flight.first_question, 5);
        let answer = flight.understand(br#"{"jsonrpc":"2.0","id":4,"result":{}}"#);
        assert!(flight.is_stale(&answer), "a late answer is for nobody");
    }

    #[test]
    fn each_face_and_era_is_answered_in_its_own_shape() {
        let call = |meta: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"x"{meta}}}}}"#)
        };
        let modern = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
        for (face, meta) in [
            (FaceKind::Workbench, ""),
            (FaceKind::Workbench, modern),
            (FaceKind::Toolman, ""),
            (FaceKind::Toolman, modern),
        ] {
            let mut flight = Flight::default();
            send(&mut flight, &call(meta));
            let answer: Value = serde_json::from_slice(&flight.lost(face).0).expect("JSON");
            let result = &answer["result"];
            assert_eq!(result["isError"], true, "{answer}");
            assert_eq!(result["resultType"] == "complete", !meta.is_empty(), "{answer}");
            let words = match face {
                FaceKind::Workbench => result["content"][0]["text"].clone(),
                FaceKind::Toolman => result["structuredContent"]["error"].clone(),
            };
            assert!(
                words.as_str().expect("a text").starts_with("The daemon ended before it answered"),
                "{answer}"
            );
        }
        let mut flight = Flight::default();
        send(&mut flight, &request("1", "tools/list"));
        let answer: Value = serde_json::from_slice(&flight.lost(FaceKind::Toolman).0).expect("JSON");
        assert_eq!(answer["error"]["data"]["success"], false, "{answer}");
    }

    #[test]
    fn lines_are_what_they_look_like() {
        let mut flight = Flight::default();
        for (line, needs_a_daemon) in [
            (&request("1", "ping")[..], true),
            (r#"{"id":1,"method":"ping"}"#, true),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, false),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, false),
            ("no JSON", false),
            ("[]", false),
        ] {
            assert_eq!(flight.understand(line.as_bytes()).is_request(), needs_a_daemon, "{line}");
        }
        assert_eq!(flight.received(b"\x01bye"), Downward::Aside(Some(FromDaemon::Bye)));
        let record = FromDaemon::Record(Box::default());
        assert_eq!(flight.received(b"\x01{\"open\":[]}"), Downward::Aside(Some(record)));
        assert_eq!(flight.received(b"\x01what"), Downward::Aside(None));
        assert!(flight.understand_long(br#"{"jsonrpc":"2.0","id":9,"method":"x","params":{"#).is_request());
    }
}
