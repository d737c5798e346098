//! Reads and checks the message of a POST and passes it to the backend, without waiting.
//!
//! Invariant: the body is scanned once. Its contents travel on as values, and headers are compared with
//! those.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderMap;

use super::answer::{Denied, HttpAnswer, draining, empty, store_away};
use super::headers::{Accepted, SESSION_ID, agree, legacy_version, mirrored, says_modern};
use super::homes::fail;
use super::sessions::{Full, HttpSession};
use super::stream::{Reader, Stream, Writer};
use super::{Backend, Caller, HttpServer, Outgoing, Sink};
use crate::json::{Node, Scanner};
use crate::protocol::era::{ModernMeta, Version};
use crate::protocol::message::{Id, Malformed, Message, Refusal, Request, batch_parts, code};

/// JSON nested deeper than this is refused.
const DEEPEST: usize = 512;

/// A POST whose message was passed on.
pub(super) enum Begun<S> {
    /// Only the response is left to send.
    Done(HttpAnswer),
    /// A modern request. Dropping the second value cancels it.
    Modern(Reader, Box<dyn Send>),
    /// The first request of a session.
    Initialize(LegacyCall<S>),
    /// One or more requests in a session.
    Legacy(LegacyCall<S>),
    /// A message for a session at another replica, which has yet to be passed on.
    Elsewhere,
}

/// Where the session is that a request names.
pub(super) enum Whereabouts {
    /// Here, or the request says which.
    Here,
    /// It is unknown, and this is the refusal.
    Nowhere(Denied),
    /// At another replica.
    Elsewhere,
    /// Here, but another replica had the request and died.
    Died,
}

/// Requests of a legacy client, and the stream for their answers.
pub(super) struct LegacyCall<S> {
    pub(super) session: Arc<HttpSession<S>>,
    pub(super) stream: Arc<Stream>,
    pub(super) reader: Reader,
}

/// The contents of a body.
enum Posted<'a> {
    Message(Message<'a>),
    /// Several messages in an array.
    Batch(Node<'a>),
}

impl<'a> Posted<'a> {
    fn read(scanner: &'a mut Scanner, body: &'a [u8]) -> Result<Self, Malformed> {
        let doc = scanner.scan(body).map_err(Malformed::no_json)?;
        if doc.deepest() > DEEPEST {
            let words = format!("Parse error: nested more than {DEEPEST} levels deep");
            return Err(Malformed { id: None, why: Refusal::new(code::PARSE, words) });
        }
        match doc.root().is_array() {
            true => Ok(Self::Batch(doc.root())),
            false => Message::read(doc.root()).map(Self::Message),
        }
    }
}

/// Whether the message's `_meta` makes it modern.
fn is_modern(message: &Message<'_>) -> Result<bool, Refusal> {
    match message {
        Message::Request(request) => Ok(request.meta.is_some()),
        Message::Notification { params, .. } => Ok(ModernMeta::read(*params)?.is_some()),
        Message::Response { .. } => Ok(false),
    }
}

/// A POST that has been let in and whose body has come.
pub(super) struct Post<'a, B: Backend> {
    pub(super) server: &'a HttpServer<B>,
    pub(super) headers: &'a HeaderMap,
    pub(super) accepted: Accepted,
    pub(super) caller: &'a Caller,
    pub(super) body: &'a [u8],
}

impl<B: Backend> Post<'_, B> {
    /// Reads the body and passes its message on. `place` says where the session is that the request names. That does
    /// not matter for modern messages.
    pub(super) fn begin(&self, place: Whereabouts) -> Result<Begun<B::Legacy>, Denied> {
        let mut scanner = self.server.scanner.lock();
        let posted = Posted::read(&mut scanner, self.body);
        let modern = match &posted {
            Ok(Posted::Message(message)) => is_modern(message),
            _ => Ok(false),
        };
        let has_died = matches!(place, Whereabouts::Died);
        match (place, &modern) {
            (Whereabouts::Nowhere(denied), Ok(false)) => return Err(denied),
            (Whereabouts::Elsewhere, Ok(false)) => return Ok(Begun::Elsewhere),
            _ => {}
        }
        let modern = modern? || says_modern(self.headers);
        match posted? {
            Posted::Batch(_) if modern => Err(invalid("this version has no batches")),
            Posted::Message(message) if modern => self.begin_modern(message),
            _ if has_died => self.begin_failed(),
            Posted::Batch(array) => self.begin_batch(array),
            Posted::Message(Message::Request(request)) => self.begin_legacy(request),
            Posted::Message(one_way) => {
                let session = self.session()?;
                let _busy = session.busy();
                self.server.tell_previous(&session, self.headers, self.caller, self.body);
                self.server.backend.legacy(&session.backend, one_way, Arc::new(Nobody));
                Ok(Begun::Done(empty(StatusCode::ACCEPTED)))
            }
        }
    }

    /// The session of a legacy message.
    fn session(&self) -> Result<Arc<HttpSession<B::Legacy>>, Denied> {
        self.server.sessions.live(self.headers, self.caller)
    }

    fn begin_modern(&self, message: Message<'_>) -> Result<Begun<B::Legacy>, Denied> {
        let server = self.server;
        match &message {
            Message::Response { .. } => return Err(invalid("in this version clients send no responses")),
            Message::Notification { .. } => {
                drop(server.backend.modern(self.caller.clone(), message, HeaderMap::new(), Arc::new(Nobody)));
                return Ok(Begun::Done(empty(StatusCode::ACCEPTED)));
            }
            Message::Request(request) => {
                if !is_string_or_integer(&request.id) {
                    return Err(invalid("\"id\" must be a string or an integer"));
                }
                agree(self.headers, request).map_err(|why| Denied::from(why).to(request.id.clone()))?;
                if request.method == "subscriptions/listen" && !self.accepted.events {
                    let words = "a subscription is answered with text/event-stream";
                    return Err(Denied::new(StatusCode::NOT_ACCEPTABLE, words));
                }
            }
        }
        if server.is_draining() {
            return Ok(Begun::Done(draining()));
        }
        // A single answer is inspected before it becomes an event, because it may have an HTTP status of its
        // own.
        let looked_at = Accepted { json: true, ..self.accepted };
        let stream = Stream::answer(0, looked_at, None, Box::new(server.calls.begin()));
        let reader = stream.read_after(0).expect("there is always a place before the first event");
        let writer = Arc::new(Writer(stream));
        let cancel = server.backend.modern(self.caller.clone(), message, mirrored(self.headers), writer);
        Ok(Begun::Modern(reader, cancel))
    }

    fn begin_legacy(&self, request: Request<'_>) -> Result<Begun<B::Legacy>, Denied> {
        let denied = |denied: Denied| denied.to(request.id.clone());
        let opens = request.method == "initialize" && !self.headers.contains_key(SESSION_ID);
        let session = match opens {
            true => legacy_version(self.headers).map_err(|why| denied(why.into())).map(|()| None)?,
            false => Some(self.session().map_err(denied)?),
        };
        if self.server.is_draining() {
            return Ok(Begun::Done(draining()));
        }
        if opens && self.server.is_degraded() {
            return Ok(Begun::Done(store_away()));
        }
        let begin = |session: Arc<HttpSession<B::Legacy>>, request| {
            let call = self.open_stream(session);
            let writer = Arc::new(Writer(call.stream.clone()));
            self.server.backend.legacy(&call.session.backend, Message::Request(request), writer);
            call
        };
        match session {
            Some(session) => Ok(Begun::Legacy(begin(session, request))),
            None => Ok(Begun::Initialize(begin(self.open_session(&request)?, request))),
        }
    }

    fn begin_batch(&self, array: Node<'_>) -> Result<Begun<B::Legacy>, Denied> {
        let session = self.session()?;
        if session.version != Version::V2025March {
            return Err(invalid("batches are part of 2025-03-26 only"));
        }
        let parts = batch_parts(array);
        let messages = Message::read_parts(&parts);
        if messages.iter().flatten().any(|message| !matches!(is_modern(message), Ok(false))) {
            return Err(invalid("the version of a modern message has no batches"));
        }
        if messages.is_empty() {
            return Err(invalid("the batch is empty"));
        }
        if self.server.is_draining() {
            return Ok(Begun::Done(draining()));
        }
        let call = self.open_stream(session);
        let writer = Arc::new(Writer(call.stream.clone()));
        self.server.backend.legacy_batch(&call.session.backend, messages, writer);
        Ok(Begun::Legacy(call))
    }

    /// Fails the requests of a session that were at a home which died.
    fn begin_failed(&self) -> Result<Begun<B::Legacy>, Denied> {
        let call = self.open_stream(self.session()?);
        fail(&*self.server.backend, &call.session.backend, self.body, Writer(call.stream.clone()));
        Ok(Begun::Legacy(call))
    }

    /// Opens the session that an `initialize` asks for.
    fn open_session(&self, request: &Request<'_>) -> Result<Arc<HttpSession<B::Legacy>>, Denied> {
        let (server, caller) = (self.server, self.caller);
        let requested =
            request.params.and_then(|params| params.get("protocolVersion")).and_then(Node::as_str);
        let version = requested.and_then(|version| Version::legacy(&version));
        let open = |id: &str, unrelated: Arc<dyn Sink>| server.backend.open(caller.clone(), id, unrelated);
        let version = version.unwrap_or(Version::LATEST_LEGACY);
        let place = |id: &str| server.new_home(id, caller, version);
        let Ok(session) = HttpSession::new(caller.clone(), version, &server.budget, place, open) else {
            let words = "the system has no random numbers";
            return Err(Denied::new(StatusCode::INTERNAL_SERVER_ERROR, words));
        };
        server.bind(&session);
        match server.sessions.insert(&session) {
            Ok(None) => {}
            Ok(Some(unused)) => server.end_later(&unused),
            Err(Full) => {
                server.backend.close(&session.backend);
                return Err(Denied::new(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open"));
            }
        }
        Ok(session)
    }

    fn open_stream(&self, session: Arc<HttpSession<B::Legacy>>) -> LegacyCall<B::Legacy> {
        let (server, accepted) = (self.server, self.accepted);
        let (number, work) = (session.next_stream(), (session.busy(), server.calls.begin()));
        let stream = match &session.home {
            None => Stream::answer(number, accepted, Some(server.budget.clone()), Box::new(work)),
            Some(home) => {
                let work = Box::new((home.begin(number, self.body), work));
                Stream::kept_answer(number, accepted, server.budget.clone(), home.clone(), work)
            }
        };
        let reader = stream.read_after(0).expect("there is always a place before the first event");
        LegacyCall { session, stream, reader }
    }
}

fn invalid(words: &str) -> Denied {
    Malformed::new(None, words).into()
}

fn is_string_or_integer(id: &Id) -> bool {
    let Id::Text(raw) = id else { return true };
    raw.starts_with('"') || raw.strip_prefix('-').unwrap_or(raw).bytes().all(|byte| byte.is_ascii_digit())
}

/// A sink for messages that nobody waits for.
struct Nobody;

impl Sink for Nobody {
    fn send(&self, _message: Outgoing<'_>) -> bool {
        false
    }
}
