//! What is in flight over a relay: the client's lines that the daemon has, and the daemon's questions that the
//! client has. When the daemon dies, the requests among the lines are answered and the questions withdrawn.
//!
//! The daemon says which lines are settled, so a line is read only if that does not happen. The others cost the
//! relay a copy.
//!
//! Invariant: each request that was sent is answered once: by the daemon, or by [`Flight::lost`].

use std::collections::hash_map::Entry as HashEntry;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use crate::config::locate::FaceKind;
use crate::core::aside::FromRelay;
use crate::face::{toolman, workbench};
use crate::json::Scanner;
use crate::protocol::cut_off::raw_id;
use crate::protocol::message::{
    Id, Message, Refusal, batch_parts, code, own_id, write_notification, write_result,
};

/// Why a request was not answered.
pub(super) const ENDED: &str = "The daemon ended before it answered. The request may or may not have taken \
     effect, so find out before you repeat it";
/// A line that is longer than this is read at once, so that it need not be kept.
const LONGEST_KEPT: usize = 4096;
/// How many bytes of settled lines may stand between others before they are taken out.
const MOST_SETTLED: usize = 64 * 1024;

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

/// The lines and questions that are in flight.
#[derive(Default)]
pub(super) struct Flight {
    /// The lines that are not settled, by their numbers, in the order of sending.
    lines: VecDeque<(u64, Unsettled)>,
    /// The text of lines, one after the other: memory for each of them would cost more than all else here.
    text: Vec<u8>,
    /// How many bytes of the text are those of settled lines.
    settled: usize,
    /// The number of the last line.
    last: u64,
    /// The ids of the daemon's open questions.
    questions: Vec<u64>,
    /// No question may have an id below this one.
    pub(super) first_question: u64,
    scanner: Scanner,
}

/// A line that the daemon has.
enum Unsettled {
    /// Where it stands in the text.
    Unread(Range<usize>),
    Read(Upward),
}

/// A request that the daemon has.
struct Sent {
    asked: ClientRequest,
    /// The number of its batch.
    batch: Option<usize>,
    /// The whole line of an `initialize`, which is sent again.
    line: Option<Vec<u8>>,
}

impl Upward {
    /// Whether the line needs a daemon.
    pub(super) fn is_request(&self) -> bool {
        matches!(self, Self::Requests(..))
    }

    /// Whether the line has to be sent again if the daemon dies.
    fn is_sent_again(&self) -> bool {
        matches!(self, Self::Requests(requests, false) if requests.iter().any(|asked| asked.method == Method::Initialize))
    }
}

/// What a line to the daemon is.
pub(super) fn understand(scanner: &mut Scanner, line: &[u8]) -> Upward {
    let unreadable =
        |id| Upward::Requests(vec![ClientRequest { id, method: Method::Other, modern: false }], false);
    let Ok(doc) = scanner.scan(line) else {
        let Some(FromRelay::Long(long)) = FromRelay::read(line) else { return Upward::Other };
        return raw_id(scanner, long.start).and_then(Id::from_raw).map_or(Upward::Other, unreadable);
    };
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
        Ok(message) => asked(&message).map_or(Upward::Other, |asked| Upward::Requests(vec![asked], false)),
        // The daemon refuses it under its id.
        Err(malformed) => malformed.id.map_or(Upward::Other, unreadable),
    }
}

impl Flight {
    /// Whether a line that waits for a daemon needs one.
    pub(super) fn is_request(&mut self, line: &[u8]) -> bool {
        understand(&mut self.scanner, line).is_request()
    }

    /// Notes that at least the first byte of a line was sent to the daemon, or that the daemon has taken it.
    pub(super) fn sent(&mut self, line: &[u8]) {
        self.last += 1;
        // Only an answer to a question tells that the question is no longer open.
        if line.len() <= LONGEST_KEPT && self.questions.is_empty() {
            return self.keep(line);
        }
        match understand(&mut self.scanner, line) {
            Upward::Other => {}
            Upward::Answer(id) => self.questions.retain(|other| *other != id),
            read if read.is_sent_again() => self.keep(line),
            read => self.lines.push_back((self.last, Unsettled::Read(read))),
        }
    }

    /// Leaves out the lines up to this number, if all of them are among the settled ones, whose numbers are sorted. Returns
    /// whether it does.
    pub(super) fn skip_to(&mut self, number: u64, settled: &mut Vec<u64>) -> bool {
        let place = |number| settled.partition_point(|other| *other <= number);
        let skipped = place(self.last)..place(number);
        // Only an answer to a question tells that the question is no longer open.
        let all =
            number > self.last && skipped.len() as u64 == number - self.last && self.questions.is_empty();
        if all {
            settled.drain(skipped);
            self.last = number;
        }
        all
    }

    fn keep(&mut self, line: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(line);
        self.lines.push_back((self.last, Unsettled::Unread(start..self.text.len())));
    }

    /// Notes which lines the daemon is done with, and keeps the numbers of those that are not known yet. They are sorted: few
    /// are settled out of order, and the first one is the cheapest to find.
    pub(super) fn settle(&mut self, settled: &mut Vec<u64>) {
        let known = settled.partition_point(|number| *number <= self.last);
        settled.drain(..known).for_each(|number| self.settled(number));
    }

    /// Notes that the daemon is done with a line.
    pub(super) fn settled(&mut self, number: u64) {
        let is_first = self.lines.front().is_some_and(|(first, _)| *first == number);
        let line = match is_first {
            true => self.lines.pop_front(),
            false => {
                let found = self.lines.binary_search_by_key(&number, |(number, _)| *number);
                found.ok().and_then(|at| self.lines.remove(at))
            }
        };
        if let Some((_, Unsettled::Unread(range))) = line {
            self.settled += range.len();
            if self.settled == self.text.len() {
                self.text.clear();
                self.settled = 0;
            } else if self.settled > MOST_SETTLED.max(self.text.len() / 2) {
                self.compact();
            }
        }
    }

    /// Keeps nothing of settled lines, and no memory that is not needed.
    pub(super) fn compact(&mut self) {
        let mut text = Vec::with_capacity(self.text.len() - self.settled);
        for (_, line) in &mut self.lines {
            if let Unsettled::Unread(range) = line {
                let start = text.len();
                text.extend_from_slice(&self.text[range.clone()]);
                *range = start..text.len();
            }
        }
        (self.text, self.settled) = (text, 0);
    }

    /// Notes a question of the daemon, or the withdrawal of one.
    pub(super) fn asked(&mut self, message: &[u8]) {
        let Ok(doc) = self.scanner.scan(message) else { return };
        let root = doc.root();
        if let Some(id) = root.get("id").and_then(|id| own_id(id.raw())) {
            self.questions.push(id);
            self.first_question = self.first_question.max(id.saturating_add(1));
        } else {
            let withdrawn = root.get("params").and_then(|params| params.get("requestId"));
            let withdrawn = withdrawn.and_then(|id| own_id(id.raw()));
            self.questions.retain(|id| Some(*id) != withdrawn);
        }
    }

    /// Whether nobody waits for an answer.
    pub(super) fn is_empty(&mut self) -> bool {
        self.waiting().is_empty()
    }

    /// The requests that wait for an answer, in the order of sending.
    fn waiting(&mut self) -> Vec<Sent> {
        let Self { lines, text, scanner, questions, .. } = self;
        let (mut waiting, mut places) = (Vec::new(), HashMap::new());
        for (batch, (_, line)) in lines.iter().enumerate() {
            let (read, line) = match line {
                Unsettled::Unread(range) => (understand(scanner, &text[range.clone()]), &text[range.clone()]),
                Unsettled::Read(read) => (read.clone(), &[][..]),
            };
            match read {
                Upward::Requests(requests, is_batch) => {
                    for asked in requests {
                        // The daemon refuses an id that is in use, and not under that id.
                        let HashEntry::Vacant(place) = places.entry(asked.id.key()) else { continue };
                        place.insert(waiting.len());
                        let again = !is_batch && asked.method == Method::Initialize;
                        let (line, batch) = (again.then(|| line.to_vec()), is_batch.then_some(batch));
                        waiting.push(Some(Sent { asked, batch, line }));
                    }
                }
                Upward::Cancelled(key) => {
                    if let Some(place) = places.remove(&key) {
                        waiting[place] = None;
                    }
                }
                Upward::Answer(id) => questions.retain(|other| *other != id),
                Upward::Other => {}
            }
        }
        waiting.into_iter().flatten().collect()
    }

    /// The daemon is gone: what the client is told, and the `initialize` that is to be sent again.
    pub(super) fn lost(&mut self, face: FaceKind) -> (Vec<u8>, Option<Vec<u8>>) {
        let waiting = self.waiting();
        (self.lines, self.text, self.settled, self.last) = (VecDeque::new(), Vec::new(), 0, 0);
        let mut lines = Vec::new();
        for id in self.questions.drain(..) {
            write_notification(&mut lines, "notifications/cancelled", |out| {
                let reason = "the daemon that asked has ended";
                out.extend_from_slice(format!("{{\"requestId\":{id},\"reason\":\"{reason}\"}}").as_bytes());
            });
            lines.push(b'\n');
        }
        let mut again = None;
        let mut open_batch = None;
        for Sent { asked, batch, line } in waiting {
            if let Some(line) = line {
                again = Some(line);
                continue;
            }
            // The requests of a batch are successive, so their answers stand together.
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
        flight.sent(line.as_bytes());
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
    fn lines_are_left_out_only_if_all_of_them_are_settled() {
        let mut flight = Flight::default();
        send(&mut flight, &request("1", "tools/call"));
        // The second line is not settled yet.
        let mut settled = vec![1, 3, 4];
        assert!(!flight.skip_to(3, &mut settled));
        flight.settle(&mut settled);
        assert_eq!(settled, [3, 4], "of these nothing is known yet");
        settled.insert(0, 2);
        assert!(flight.skip_to(3, &mut settled));
        assert_eq!(settled, [4]);
        assert!(!flight.skip_to(3, &mut settled), "there is nothing to leave out");
        send(&mut flight, &request("4", "tools/call"));
        send(&mut flight, &request("5", "tools/call"));
        flight.settle(&mut settled);
        // An answer to a question is settled without an answer, but closes the question.
        flight.asked(br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#);
        assert!(!flight.skip_to(6, &mut vec![6]));
        send(&mut flight, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert!(flight.skip_to(7, &mut vec![7]));
        let ids: Vec<_> = lost(&mut flight).iter().map(|answer| answer["id"].to_string()).collect();
        assert_eq!(ids, ["5"]);
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
        flight.settled(3);
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
        flight.settled(1);
        assert_eq!(flight.lost(FaceKind::Workbench), (Vec::new(), None));
        let long = line.replace("{}", &format!("{{\"x\":\"{}\"}}", "y".repeat(LONGEST_KEPT)));
        send(&mut flight, &long);
        assert_eq!(flight.lost(FaceKind::Workbench), (Vec::new(), Some(long.into_bytes())));
    }

    #[test]
    fn a_batch_has_one_answer() {
        let mut flight = Flight::default();
        send(&mut flight, &format!("[{},{}]", request("1", "ping"), request("2", "tools/call")));
        send(&mut flight, &format!("[{}]", request("3", "ping")));
        send(&mut flight, &request("4", "ping"));
        flight.settled(2);
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
            flight.asked(request(&id.to_string(), "roots/list").as_bytes());
        }
        // One is answered, and the daemon has taken the answer; one is withdrawn by the daemon itself.
        send(&mut flight, r#"{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}"#);
        flight.settled(1);
        flight.asked(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#);
        let told = lost(&mut flight);
        let withdrawn: Vec<_> =
            told.iter().map(|notice| (&notice["method"], &notice["params"]["requestId"])).collect();
        let cancelled = Value::from("notifications/cancelled");
        assert_eq!(withdrawn, [(&cancelled, &Value::from(2)), (&cancelled, &Value::from(4))]);
        assert_eq!(flight.first_question, 5);
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
            ("\u{1}long 9999 {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"x\",\"params\":{", true),
            ("\u{1}long 9999 {\"jsonrpc\":\"2.0\",", false),
            ("\u{1}end", false),
        ] {
            assert_eq!(flight.is_request(line.as_bytes()), needs_a_daemon, "{line}");
        }
    }

    #[test]
    fn lines_are_settled_in_any_order_and_long_ones_take_no_room() {
        let mut flight = Flight::default();
        let long = "y".repeat(2 * LONGEST_KEPT);
        for id in 1..=5 {
            let line = request(&id.to_string(), "ping");
            send(
                &mut flight,
                &if id == 4 { line.replace("{}", &format!("{{\"x\":\"{long}\"}}")) } else { line },
            );
        }
        for number in [5, 2, 2, 9, 0] {
            flight.settled(number);
        }
        assert!(flight.text.len() < LONGEST_KEPT, "{}", flight.text.len());
        let ids: Vec<_> = lost(&mut flight).iter().map(|answer| answer["id"].to_string()).collect();
        assert_eq!(ids, ["1", "3", "4"]);
        assert!(flight.text.is_empty());
        // The next daemon counts from one.
        send(&mut flight, &request("6", "ping"));
        flight.settled(1);
        assert!(flight.is_empty());
    }
    #[test]
    fn a_line_that_is_never_settled_keeps_nothing_of_the_others() {
        let mut flight = Flight::default();
        for id in 1..=5000 {
            send(&mut flight, &request(&id.to_string(), "tools/call"));
            if id > 2 {
                flight.settled(id);
            }
            assert!(flight.text.len() <= 2 * MOST_SETTLED, "{}", flight.text.len());
        }
        flight.compact();
        assert_eq!(flight.text.len(), 2 * request("1", "tools/call").len());
        let ids: Vec<_> = lost(&mut flight).iter().map(|answer| answer["id"].to_string()).collect();
        assert_eq!(ids, ["1", "2"]);
        // Nothing is kept of lines that are all settled.
        for id in 1..=3 {
            send(&mut flight, &request(&id.to_string(), "ping"));
        }
        for number in [2, 1, 3] {
            flight.settled(number);
        }
        assert_eq!((flight.text.len(), flight.settled), (0, 0));
    }
}
