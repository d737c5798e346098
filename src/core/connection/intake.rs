//! Sorts an upstream's messages: answers go to whoever waits for them, everything else to `relay`.
//!
//! Invariant: an answer ends its request, however broken it is, as long as it shows whose answer it is.

use std::sync::Arc;

use super::Connection;
use crate::core::engine::Engine;
use crate::core::relay::Relay;
use crate::json::Scanner;
use crate::protocol::cut_off::{id_of_broken_response, id_of_response};
use crate::protocol::message::{AnswerTo, Message, NoMessage, Outcome, Request};
use crate::transport::lines::{Line, TooLong};
use crate::transport::peer::Lost;

/// The number of bytes of an oversized message that are logged.
const SHOWN: usize = 80;

impl Connection {
    /// Takes one message. `on` is our request on whose stream it came, for transports with streams.
    pub(in crate::core) fn take(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        scanner: &mut Scanner,
        line: Line<'_>,
        on: Option<u64>,
    ) {
        let text = match line {
            Line::Whole(text) => text,
            Line::TooLong(line) => return self.take_too_long(engine, scanner, &line),
        };
        let Ok(doc) = scanner.scan(text) else { return self.take_broken(scanner, text) };
        if doc.root().raw().starts_with('[') {
            let parts: Vec<&serde_json::value::RawValue> =
                serde_json::from_str(doc.root().raw()).unwrap_or_default();
            let mut scanner = Scanner::default();
            for part in parts {
                match part.get().starts_with('[') {
                    true => self.take_noise(part.get().as_bytes()),
                    false => self.take(engine, &mut scanner, Line::Whole(part.get().as_bytes()), on),
                }
            }
            return;
        }
        match Message::from_server(doc.root()) {
            Ok(Message::Response { to, outcome, says_version }) => {
                if !says_version && self.noise.is_first_odd_version() {
                    tracing::warn!("[{}] answers without a plain \"jsonrpc\": \"2.0\"", self.upstream);
                }
                if !self.take_answer(to, outcome, on) {
                    tracing::debug!("[{}] sent an answer to no request: {to:?}", self.upstream);
                    self.noise.count_answer();
                }
            }
            Ok(Message::Notification { method, params }) => {
                Relay::new(engine, self, on).notification(&method, params)
            }
            Ok(Message::Request(Request { id, method, params, .. })) => {
                Relay::new(engine, self, on).request(id, &method, params)
            }
            Err(NoMessage::Twice(ids)) => {
                for id in ids {
                    self.peer.resolve(id, Outcome::Malformed(NoMessage::TWICE));
                }
            }
            Err(NoMessage::Noise) => self.take_noise(text),
        }
    }

    /// Ends the request that the answer names. An error without an id ends the only request that it can
    /// belong to: the one on whose stream it came, else the only open one. Returns `false` if nobody waits
    /// for the answer.
    fn take_answer(&self, to: AnswerTo, outcome: Outcome<'_>, on: Option<u64>) -> bool {
        let id = match (to, &outcome) {
            (AnswerTo::Ours(id), _) => Some(id),
            (AnswerTo::Nobody, Outcome::Error(_)) => on.or_else(|| self.only_open()),
            (AnswerTo::Foreign, Outcome::Error(_)) => on,
            _ => None,
        };
        id.is_some_and(|id| self.peer.resolve(id, outcome))
    }

    /// The request that waits for an answer, if there is exactly one. Subscriptions do not count.
    fn only_open(&self) -> Option<u64> {
        self.subscription.with_ids(|ids| self.peer.only_open_besides(ids))
    }

    /// Fails only the call that an oversized message answers.
    fn take_too_long(&self, engine: &Engine, scanner: &mut Scanner, line: &TooLong<'_>) {
        let (length, limit) = (line.length, engine.settings().max_message_bytes);
        let reason = format!("the answer has {length} bytes, more than the {limit} of maxMessageBytes");
        // A response that does not show its id can only belong to the one call in flight.
        let response = id_of_response(scanner, line.start, line.end);
        let id = response.and_then(|id| id.or_else(|| self.only_open()));
        if !id.is_some_and(|id| self.peer.fail(id, &Lost::new(reason.as_str()))) {
            self.take_noise(&line.start[..line.start.len().min(SHOWN)]);
        }
    }

    /// Fails the call that a malformed JSON answer belongs to, because it would wait for ever. Any other
    /// malformed text is noise.
    fn take_broken(&self, scanner: &mut Scanner, text: &[u8]) {
        let id = id_of_broken_response(scanner, text);
        if !id.is_some_and(|id| self.peer.resolve(id, Outcome::Malformed("it is not JSON"))) {
            self.take_noise(text);
        }
    }

    fn take_noise(&self, text: &[u8]) {
        self.noise.take(&self.upstream, &self.redactor, text);
    }
}
