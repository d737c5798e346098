//! Answers to a client's requests: each exactly once, and those of a batch together.
//!
//! Invariant: each request is answered exactly once. A [`Reply`] that is dropped, or whose answer panics,
//! answers with an error. It identifies its request by a ticket, not by the id, because ids are reused.

use std::sync::Arc;

use parking_lot::Mutex;

use super::modern::{Cache, ModernCall};
use super::observed::is_error;
use super::route::{OutgoingKind, Route};
use super::session::{ClientSession, Ticket};
use super::sharing::Using;
use super::upstream::Upstream;
use crate::events::{Behalf, ErrorType, Exchange};
use crate::json::{MemberChange, Node, Raw};
use crate::protocol::era::Version;
use crate::protocol::message::{
    Id, Refusal, code, error_code, write_raw_error, write_result, write_sound_error,
};

/// Room for what is usually added to an upstream's result.
const ADDED: usize = 192;

/// The answers to a batch, which leave together.
pub struct Batch(Mutex<(usize, Vec<Vec<u8>>)>);

impl Batch {
    /// A batch that expects this many answers.
    pub fn new(expected: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new((expected, Vec::new()))))
    }

    /// Adds an answer, or `None` for a request without one, and sends all of them after the last.
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
        route.push(OutgoingKind::Batch, |out| {
            out.push(b'[');
            out.extend_from_slice(&answers.join(&b','));
            out.push(b']');
        });
    }
}

/// The right to answer one request, once. If it is dropped without an answer, it sends an error, so that no
/// client waits for ever, whatever goes wrong.
pub struct Reply {
    session: Arc<ClientSession>,
    /// The request, until it is answered.
    key: Option<Ticket>,
    modern: Option<Arc<ModernCall>>,
    /// The raw parameters of a modern request, if state that the client carries is valid for them only.
    params: Option<Box<str>>,
    /// The changes that make an upstream's result one of the client's era.
    level: &'static [MemberChange<'static>],
    /// Whether the state that a retry brings has been opened. Any other state in its place is the upstream's
    /// own.
    pub opened: bool,
    /// What becomes of the request, where somebody wants to know.
    exchange: Option<Box<Exchange>>,
    /// The upstream that works on the request, where somebody asks how much it is used.
    using: Option<Using>,
}

impl Reply {
    pub(super) fn new(session: Arc<ClientSession>, key: Ticket, modern: Option<Arc<ModernCall>>) -> Self {
        Self {
            session,
            key: Some(key),
            modern,
            params: None,
            level: &[],
            opened: false,
            exchange: None,
            using: None,
        }
    }

    /// Keeps the parameters of a modern request whose upstream may ask for more.
    pub fn keep_params(&mut self, method: &str, params: Node<'_>) {
        if self.modern.is_some() && matches!(method, "tools/call" | "prompts/get" | "resources/read") {
            self.params = Some(params.raw().into());
        }
    }

    /// The parameters that were kept.
    pub(super) fn params(&self) -> &str {
        self.params.as_deref().unwrap_or("{}")
    }

    /// Changes the upstream's result in this way when it is relayed.
    pub(super) fn level_by(&mut self, changes: &'static [MemberChange<'static>]) {
        self.level = changes;
    }

    /// Notes from now on what becomes of the request.
    pub(super) fn follow(&mut self, exchange: Box<Exchange>) {
        self.exchange = Some(exchange);
    }

    /// Where it is noted what becomes of the request, if anybody wants to know.
    #[inline]
    pub fn exchange(&mut self) -> Option<&mut Exchange> {
        self.exchange.as_deref_mut()
    }

    /// What requests of our own are made for, if they are made for this one and tracing is on.
    pub fn behalf(&self) -> Option<Behalf> {
        self.exchange.as_ref().and_then(|exchange| exchange.behalf())
    }

    /// Whether anybody wants to know what becomes of the request.
    #[inline]
    pub(super) fn is_followed(&self) -> bool {
        self.exchange.is_some()
    }

    /// Notes that this upstream works on the request.
    pub(super) fn uses(&mut self, upstream: &Arc<Upstream>) {
        self.using = Some(Using::new(upstream));
    }

    /// The client that sent the request.
    pub fn session(&self) -> &Arc<ClientSession> {
        &self.session
    }

    /// The metadata of a modern request; `None` in the legacy era.
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

    /// Whether the client renders apps.
    pub fn renders_apps(&self) -> bool {
        match (&self.modern, self.session.hello()) {
            (Some(modern), _) => modern.client.renders_apps,
            (None, hello) => hello.is_some_and(|hello| hello.renders_apps),
        }
    }

    /// Takes note that the request has changed how the session stands. Whoever has the answer can rely on that,
    /// whichever process serves the session then.
    pub fn record(&self) {
        self.session.record();
        self.session.route(Some(self.key())).changed();
    }

    /// The request.
    pub fn key(&self) -> Ticket {
        self.key.expect("taken only by an answer, which consumes the reply")
    }

    /// The request's id, as long as the client wants the answer.
    pub fn id(&self) -> Option<Id> {
        self.session.id_of(self.key())
    }

    /// The id of our request to the upstream, as long as the client wants the answer.
    pub(super) fn sent_as(&self) -> Option<u64> {
        self.session.sent_as(self.key())
    }

    /// Whether the client still wants the answer.
    pub fn is_wanted(&self) -> bool {
        self.session.waits_for(self.key())
    }

    /// Answers with a raw result of our own.
    pub fn result(mut self, result: &str) {
        match self.modern {
            None if self.is_followed() => self.relay(Raw::own(result).root(), &[]),
            None => self.send_result(|out| out.extend_from_slice(result.as_bytes())),
            Some(_) => self.relay(Raw::own(result).root(), &[]),
        }
    }

    /// Answers with a result of our own without the members of its era. `write` writes its members, and
    /// `hint` says how long it may be cached.
    pub fn result_kept(mut self, hint: Cache, write: impl FnOnce(&mut Vec<u8>)) {
        let modern = self.modern.take();
        self.send_result(|out| {
            out.push(b'{');
            write(out);
            if let Some(modern) = modern {
                modern.write_own_members(out, hint);
            }
            out.push(b'}');
        });
    }

    /// Answers with a finished result, usually an upstream's, after these changes to its members.
    pub fn relay(mut self, result: Node<'_>, changes: &[(&str, Option<&str>)]) {
        let (modern, level) = (self.modern.take(), self.level);
        if let Some(exchange) = self.exchange() {
            exchange.error = is_error(result).then_some(ErrorType::ToolError);
        }
        self.send_result(|out| {
            // A long result is copied once, and what is added to it finds room behind it.
            out.reserve(result.raw().len() + ADDED);
            match (modern, level, changes) {
                (Some(modern), _, changes) => modern.complete(out, result, changes),
                (None, [], []) => result.write(out),
                (None, [], changes) => result.write_with(out, changes),
                (None, level, []) => result.write_with(out, level),
                (None, level, changes) => result.write_with(out, &[level, changes].concat()),
            }
        });
    }

    /// An upstream's result as the client would see it.
    pub fn shown(&self, result: Node<'_>) -> String {
        if self.level.is_empty() { result.raw().to_owned() } else { result.with(self.level) }
    }

    fn send_result(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.send(OutgoingKind::Result, |out, id| write_result(out, id, write));
    }

    /// Answers with an upstream's raw error object.
    pub fn raw_error(mut self, error: Node<'_>) {
        let own = error_code(error);
        let code = self.code_for_era(own.unwrap_or(code::INTERNAL));
        let renamed = own.is_some_and(|own| own != code);
        self.send(OutgoingKind::Error(code), |out, id| {
            write_raw_error(out, Some(id), |out| match renamed {
                true => error.write_with(out, &[("code", Some(&code.to_string()))]),
                false => write_sound_error(out, error),
            });
        });
    }

    /// Answers with an error of our own; `data` is raw JSON.
    pub fn error(self, code: i64, message: &str, data: Option<&str>) {
        self.refuse(Refusal { code, message: message.to_owned(), data: data.map(str::to_owned) });
    }

    /// Answers with an error of our own.
    pub fn refuse(mut self, why: Refusal) {
        let why = Refusal { code: self.code_for_era(why.code), ..why };
        self.send_refusal(&why);
    }

    /// The code for the client's era. The modern era no longer has the legacy code for a missing resource.
    fn code_for_era(&self, code: i64) -> i64 {
        match code {
            code::RESOURCE_NOT_FOUND if self.modern.is_some() => code::INVALID_PARAMS,
            code => code,
        }
    }

    fn send_refusal(&mut self, why: &Refusal) {
        self.send(OutgoingKind::Error(why.code), |out, id| why.write(out, Some(id)));
    }

    fn send(&mut self, kind: OutgoingKind<'_>, write: impl FnOnce(&mut Vec<u8>, &Id)) {
        let Some(key) = self.key.take() else { return };
        let is_wanted = self.session.answer(key, kind, write);
        if let Some(exchange) = self.exchange.take() {
            let error = match kind {
                _ if !is_wanted => Some(ErrorType::Cancelled),
                OutgoingKind::Error(code) => Some(ErrorType::Code(code)),
                _ => exchange.error,
            };
            exchange.end(error);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.key.is_some() {
            let message = "Internal error: the request was dropped without an answer";
            self.send_refusal(&Refusal::new(code::INTERNAL, message));
        }
    }
}
