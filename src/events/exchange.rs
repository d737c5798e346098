//! A client's request on its way through the gateway, and the requests to upstreams that it causes.
//!
//! The gateway begins an [`Exchange`] if the hub is on; it rides in the request's `Reply`, notes what becomes of the
//! request, and goes to the hub with the answer. Nothing here waits, and nothing is worded: that is the hub's work, on
//! its own thread.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::happening::{ErrorType, ServerPath, Who};
use super::hub::HubCore;
use super::trace::Trail;
use crate::config::{KeptArguments, Redactor};
use crate::json::{Node, quote};
use crate::protocol::message::Id;
use crate::text::short::ShortText;

/// The most bytes of arguments or of a result that are kept.
pub const MOST_KEPT: usize = 64 * 1024;
/// How much more is copied, so that a secret that stands across the end is found.
const MARGIN: usize = 4 * 1024;

/// How messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Network {
    /// Over pipes.
    Pipe,
    /// Over HTTP.
    Tcp,
}

impl Network {
    /// The conventions' word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Tcp => "tcp",
        }
    }
}

/// A moment, by the calendar and by the clock that never jumps.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Since 1970.
    pub since_epoch: Duration,
    /// The same on the clock that never jumps.
    pub instant: Instant,
}

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { since_epoch, instant: Instant::now() }
    }

    /// The moment of this instant.
    fn at(self, instant: Instant) -> Self {
        Self { since_epoch: self.since_epoch + instant.duration_since(self.instant), instant }
    }

    /// The milliseconds since 1970.
    pub fn millis(self) -> u64 {
        self.since_epoch.as_millis() as u64
    }
}

/// What a client asked for.
#[derive(Debug, Clone, Default)]
pub struct Inquiry {
    /// The method, or [`OTHER`] for one that MCP does not define.
    pub method: &'static str,
    /// The tool, the prompt or the URI that it names.
    pub name: Option<ShortText>,
    /// Whether the tool or the prompt exists.
    pub exists: bool,
    /// The request's id, where spans are made.
    pub id: Option<Id>,
}

/// What stands for everything that would make too many labels.
pub const OTHER: &str = "_other";

/// Who asked, and how.
#[derive(Debug, Clone)]
pub struct Asker {
    /// The client.
    pub who: Arc<Who>,
    /// The protocol version; empty before it is agreed on.
    pub version: &'static str,
    /// How its messages travel.
    pub network: Network,
}

/// One request of a client, from its arrival to its answer.
#[derive(Debug, Clone)]
pub struct Exchange {
    hub: Arc<HubCore>,
    /// When the request came.
    pub begun: Moment,
    /// What it asks for.
    pub asked: Inquiry,
    /// Who asks.
    pub asker: Asker,
    /// Its place in a trace, where tracing is on.
    pub trail: Option<Trail>,
    /// The toolbox that it opens, if it is an `open_toolbox`.
    pub opens: Option<Arc<str>>,
    /// The requests to upstreams that it caused.
    pub errands: Errands,
    /// How long it took.
    pub took: Duration,
    /// Why it failed.
    pub error: Option<ErrorType>,
}

/// One request to an upstream, for a request of a client.
#[derive(Debug, Clone)]
pub struct Errand {
    /// When it set out.
    pub begun: Moment,
    /// The upstream.
    pub server: ServerPath,
    /// The method.
    pub method: &'static str,
    /// The upstream's own name for what is asked for, as JSON.
    pub name: Option<ShortText>,
    /// Its place in a trace, where tracing is on.
    pub trail: Option<Trail>,
    /// The connection that it takes, once there is one.
    pub by: Option<Carriage>,
    /// The length of the request's parameters, and of the answer.
    pub bytes: (u64, u64),
    /// What is kept of arguments and result.
    pub kept: [Option<Kept>; 2],
    /// How long it took; `None` while it is under way.
    pub took: Option<Duration>,
    /// Why it failed.
    pub error: Option<ErrorType>,
}

/// Requests to upstreams, in their order. Nearly always there is one, which stands in place, so that nothing has to be
/// allocated here and freed by the hub's thread.
#[derive(Debug, Clone, Default)]
pub struct Errands {
    first: Option<Errand>,
    more: Vec<Errand>,
}

impl Errands {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Errand> {
        self.first.iter().chain(&self.more)
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Errand> {
        self.first.iter_mut().chain(&mut self.more)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    /// The one that there is; `None` if there are none or several.
    pub fn only(&self) -> Option<&Errand> {
        self.first.as_ref().filter(|_| self.more.is_empty())
    }

    fn push(&mut self, errand: Errand) {
        match self.first {
            None => self.first = Some(errand),
            Some(_) => self.more.push(errand),
        }
    }

    fn last_mut(&mut self) -> Option<&mut Errand> {
        self.more.last_mut().or(self.first.as_mut())
    }

    /// Takes the last one out, if it is under way.
    fn take_open(&mut self) -> Option<Errand> {
        let is_open = |errand: &mut Errand| errand.took.is_none();
        match self.more.is_empty() {
            true => self.first.take_if(is_open),
            false => self.more.pop_if(is_open),
        }
    }
}

/// The connection that a request to an upstream takes.
#[derive(Debug, Clone)]
pub struct Carriage {
    /// The protocol version.
    pub version: &'static str,
    /// How messages travel.
    pub network: Network,
    /// The id of the request.
    pub id: Option<u64>,
    /// Replaces the secrets that the upstream knows.
    pub secrets: Redactor,
}

/// The request of a client that further requests to upstreams are made for, where tracing is on.
#[derive(Debug, Clone)]
pub struct Behalf {
    /// Its place in the trace.
    trail: Trail,
    /// What stands for the id of the client's session.
    session: Arc<str>,
}

/// What is kept of a JSON value.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The value, or its beginning.
    pub text: Box<str>,
    /// The length of the whole value.
    pub whole: usize,
}

/// A request of our own to an upstream, while it is under way.
#[derive(Debug)]
pub struct OwnErrand {
    hub: Arc<HubCore>,
    errand: Errand,
    /// What stands for the id of the session that it is made for, if it is made for any.
    session: Option<Arc<str>>,
}

impl OwnErrand {
    pub(super) fn new(
        hub: Arc<HubCore>,
        server: (&Arc<str>, &Arc<str>),
        method: &str,
        behalf: Option<Behalf>,
    ) -> Self {
        let (trail, session) = match behalf {
            Some(behalf) => (Some(behalf.trail.child(hub.random())), Some(behalf.session)),
            None => (None, None),
        };
        let errand = Errand {
            begun: Moment::now(),
            server: hub.path(server),
            method: known_method(method),
            name: None,
            trail,
            by: None,
            bytes: (0, 0),
            kept: [None, None],
            took: None,
            error: None,
        };
        Self { hub, errand, session }
    }

    /// The `_meta` that tells the upstream its place in the trace, if there is one.
    pub fn context(&self) -> Option<String> {
        self.errand.trail.as_ref().map(Trail::meta)
    }

    /// Notes the answer: which connection it came by, and its error.
    pub fn end(mut self, by: Carriage, error: Option<ErrorType>) {
        let took = self.errand.begun.instant.elapsed();
        self.errand = Errand { by: Some(by), took: Some(took), error, ..self.errand };
        self.hub.tell(super::hub::News::Errand(Box::new(self.errand), self.session));
    }
}

impl Kept {
    fn of(node: Node<'_>) -> Self {
        let text = node.raw();
        let end = text.floor_char_boundary(MOST_KEPT + MARGIN);
        Self { text: text[..end].into(), whole: text.len() }
    }

    /// The names of an object's members.
    fn names_of(node: Node<'_>) -> Self {
        let names: Vec<_> = node.members().map(|(name, _)| quote(&name)).collect();
        let text = format!("[{}]", names.join(","));
        Self { whole: text.len(), text: text.into() }
    }
}

impl Exchange {
    pub(super) fn new(
        hub: Arc<HubCore>,
        begun: Moment,
        asked: Inquiry,
        asker: Asker,
        trail: Option<Trail>,
    ) -> Self {
        let (errands, took) = (Errands::default(), Duration::ZERO);
        Self { hub, begun, asked, asker, trail, opens: None, errands, took, error: None }
    }

    /// Whether anything is kept of arguments.
    pub fn keeps_arguments(&self) -> bool {
        self.hub.kept_arguments() != KeptArguments::Off
    }

    /// Sends a request to an upstream. Returns the `_meta` that tells the upstream its place in the trace, if there is
    /// one.
    pub fn set_out(
        &mut self,
        server: (&Arc<str>, &Arc<str>),
        method: &'static str,
        name: Option<&str>,
        (params, arguments): (usize, Option<Node<'_>>),
    ) -> Option<String> {
        let kept = match self.hub.kept_arguments() {
            KeptArguments::Off => None,
            KeptArguments::Keys => arguments.map(Kept::names_of),
            KeptArguments::Full => arguments.map(Kept::of),
        };
        let trail = self.trail.as_ref().map(|trail| trail.child(self.hub.random()));
        let told = trail.as_ref().map(Trail::meta);
        self.asked.exists = true;
        self.errands.push(Errand {
            begun: self.begun.at(Instant::now()),
            server: self.hub.path(server),
            method,
            name: name.map(Into::into),
            trail,
            by: None,
            bytes: (params as u64, 0),
            kept: [kept, None],
            took: None,
            error: None,
        });
        told
    }

    /// Notes the connection that the last request to an upstream takes.
    pub fn takes(&mut self, by: Carriage) {
        if let Some(errand) = self.errands.last_mut() {
            errand.by = Some(by);
        }
    }

    /// Notes the answer to the last request to an upstream: its error, and what it consists of.
    pub fn came_back(&mut self, error: Option<ErrorType>, answer: Option<Node<'_>>, id: Option<u64>) {
        let keeps = self.hub.kept_arguments() == KeptArguments::Full;
        let Some(errand) = self.errands.last_mut().filter(|errand| errand.took.is_none()) else { return };
        errand.took = Some(errand.begun.instant.elapsed());
        errand.error = error;
        if let Some(by) = &mut errand.by {
            by.id = id;
        }
        if let Some(answer) = answer {
            errand.bytes.1 = answer.raw().len() as u64;
            errand.kept[1] = keeps.then(|| Kept::of(answer));
        }
    }

    /// What further requests to upstreams are made for, where tracing is on.
    pub fn behalf(&self) -> Option<Behalf> {
        let trail = self.trail.clone()?;
        Some(Behalf { trail, session: self.asker.who.session.clone() })
    }

    /// Takes the last request to an upstream out, if it has no answer yet: another exchange will get that.
    pub fn hand_over(&mut self) -> Option<Errand> {
        self.errands.take_open()
    }

    /// Takes a request to an upstream on that another exchange began.
    pub fn take_over(&mut self, errand: Errand) {
        self.asked.exists = true;
        self.errands.push(errand);
    }

    /// Ends the exchange, and what is left of its requests to upstreams with it.
    pub fn end(mut self: Box<Self>, error: Option<ErrorType>) {
        self.took = self.begun.instant.elapsed();
        self.error = error;
        for errand in self.errands.iter_mut().filter(|errand| errand.took.is_none()) {
            errand.took = Some(errand.begun.instant.elapsed());
            errand.error = error.filter(|error| *error == ErrorType::Cancelled);
        }
        let hub = self.hub.clone();
        // Whoever made the box frees it: that is far cheaper than leaving it to another thread.
        hub.tell(super::hub::News::Exchange(*self));
    }
}

/// The method as a label: one that MCP does not define is [`OTHER`].
pub fn known_method(method: &str) -> &'static str {
    const METHODS: [&str; 20] = [
        "tools/call",
        "tools/list",
        "resources/read",
        "prompts/get",
        "ping",
        "initialize",
        "server/discover",
        "resources/list",
        "resources/templates/list",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "completion/complete",
        "logging/setLevel",
        "subscriptions/listen",
        "tasks/get",
        "tasks/result",
        "tasks/list",
        "tasks/cancel",
        "tasks/update",
    ];
    METHODS.into_iter().find(|known| *known == method).unwrap_or(OTHER)
}
