//! What travels between a session's home and the replica that a client came to: requests as they came, and heads of answers.

use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::Caller;
use super::headers::{LAST_EVENT_ID, SESSION_ID};
use super::home::token_digest;
use crate::json::Scanner;
use crate::protocol::message::Message;

/// The headers of a request that its session's home needs.
const HEADERS: [&str; 5] =
    ["accept", "content-type", "mcp-protocol-version", "mcp-session-id", "last-event-id"];

/// A request on its way to the home of its session.
#[derive(Clone)]
pub(super) struct Errand {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) caller: Caller,
    pub(super) body: Bytes,
    /// Whether a home that died had it, so that it must fail.
    pub(super) lost: bool,
}

/// The head of an errand, in the letter that carries it; the body follows.
#[derive(Serialize, Deserialize)]
pub(super) struct ErrandHead {
    pub(super) method: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) toolbox: Option<String>,
    pub(super) token: Option<String>,
    pub(super) lost: bool,
}

/// The head of an answer, in the same way.
#[derive(Serialize, Deserialize)]
pub(super) struct AnswerHead {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
}

/// A head and what follows it, as one text.
pub(super) fn framed(head: &impl Serialize, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    serde_json::to_writer(&mut out, head).expect("texts and numbers can be written");
    let length = u32::try_from(out.len() - 4).expect("a head is short");
    out[..4].copy_from_slice(&length.to_le_bytes());
    out.extend_from_slice(body);
    out
}

pub(super) fn unframed<H: for<'h> Deserialize<'h>>(text: &[u8]) -> Option<(H, &[u8])> {
    let (length, rest) = text.split_first_chunk::<4>()?;
    let (head, body) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((serde_json::from_slice(head).ok()?, body))
}

pub(super) fn header_texts<'h>(
    headers: &'h HeaderMap,
    wanted: impl Fn(&HeaderName) -> bool + 'h,
) -> Vec<(String, String)> {
    let known = headers.iter().filter(|(name, _)| wanted(name));
    known.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned()))).collect()
}

pub(super) fn header_map(texts: &[(String, String)]) -> HeaderMap {
    let parsed = |(name, value): &(String, String)| Some((name.parse().ok()?, value.parse().ok()?));
    texts.iter().filter_map(parsed).collect::<Vec<(HeaderName, HeaderValue)>>().into_iter().fold(
        HeaderMap::new(),
        |mut headers, (name, value)| {
            headers.append(name, value);
            headers
        },
    )
}

impl Errand {
    pub(super) fn write(&self) -> Vec<u8> {
        let head = ErrandHead {
            method: self.method.to_string(),
            headers: header_texts(&self.headers, |name| HEADERS.contains(&name.as_str())),
            toolbox: self.caller.toolbox.as_ref().map(|toolbox| toolbox.to_string()),
            token: token_digest(&self.caller),
            lost: self.lost,
        };
        framed(&head, &self.body)
    }

    pub(super) fn session_id(&self) -> Option<&str> {
        self.headers.get(SESSION_ID)?.to_str().ok()
    }

    /// Whether it brings no request: a notification, or the answer to a question.
    pub(super) fn is_one_way(&self) -> bool {
        let mut scanner = Scanner::default();
        let Ok(doc) = scanner.scan(&self.body) else { return false };
        let message = Message::read(doc.root());
        self.method == Method::POST
            && matches!(message, Ok(Message::Notification { .. } | Message::Response { .. }))
    }

    /// The request that goes on with a broken stream after an event.
    pub(super) fn resuming(&self, after: &str) -> Option<Self> {
        let mut headers = self.headers.clone();
        headers.insert(LAST_EVENT_ID, HeaderValue::from_str(after).ok()?);
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        Some(Self {
            method: Method::GET,
            headers,
            caller: self.caller.clone(),
            body: Bytes::new(),
            lost: false,
        })
    }
}
