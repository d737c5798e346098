//! The interface between the transport and what it serves: who calls, and what the gateway does for them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderMap;

use crate::config::{Secret, Token};
use crate::core::record::Record;
use crate::core::route::Sink;
use crate::events::metrics::Exposition;
use crate::face::Part;
use crate::protocol::message::{Malformed, Message};

/// The caller of a request, and the toolbox that it asks for.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The toolbox of `/mcp/{toolbox}`.
    pub toolbox: Option<Arc<str>>,
    /// The caller's token; `None` if no tokens are configured.
    pub token: Option<Arc<Token>>,
}

impl Caller {
    pub(super) fn secret(&self) -> Option<&Secret> {
        self.token.as_ref().map(|token| &token.token)
    }

    /// The name of its token; empty if it has none.
    pub fn principal(&self) -> String {
        self.token.as_ref().map(|token| token.name.clone()).unwrap_or_default()
    }

    /// Who a modern caller is.
    pub fn key(&self) -> CallerKey {
        (self.principal(), self.toolbox.as_ref().map(|toolbox| toolbox.to_string()))
    }

    /// The part of the file that it may see.
    pub fn part(&self) -> Part {
        let names = self.token.as_ref().and_then(|token| token.scope.clone());
        Part { names, toolbox: self.toolbox.as_ref().map(|toolbox| toolbox.to_string()) }
    }

    /// Whether both are the same caller on the same path.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.toolbox == other.toolbox && self.secret() == other.secret()
    }
}

/// A caller of the modern era: the name of its token, and the toolbox of its path.
pub type CallerKey = (String, Option<String>);

/// What the transport serves; the gateway implements it.
pub trait Backend: Send + Sync + 'static {
    /// A legacy client.
    type Legacy: Send + Sync + 'static;

    /// Whether the caller's toolbox exists for its token.
    fn toolbox_exists(&self, caller: &Caller) -> bool;
    /// Whether requests are served. The error says why not yet.
    fn ready(&self) -> Result<(), String>;
    /// Creates a legacy client, whose session has this id and whose `initialize` follows. `unrelated` takes
    /// messages that belong to no request.
    fn open(&self, caller: Caller, id: &str, unrelated: Arc<dyn Sink>) -> Arc<Self::Legacy>;
    /// Handles a legacy client's message. The answer goes to `stream`, after everything else that belongs to
    /// the request.
    fn legacy(&self, client: &Arc<Self::Legacy>, message: Message<'_>, stream: Arc<dyn Sink>);
    /// Handles a legacy client's batch, including the parts that are not messages. The answers go to `stream`
    /// together.
    fn legacy_batch(
        &self,
        client: &Arc<Self::Legacy>,
        parts: Vec<Result<Message<'_>, Malformed>>,
        stream: Arc<dyn Sink>,
    );
    /// How a legacy client stands, so that it can go on at another replica.
    fn record(&self, client: &Arc<Self::Legacy>) -> Record;
    /// Lets a legacy client that was just created go on as it stood at another replica. No question of it has an id below
    /// `first_question`.
    fn restore<'a>(
        &'a self,
        client: &'a Arc<Self::Legacy>,
        record: Record,
        first_question: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
    /// Answers a request as if its upstream had died, for this reason.
    fn fail(&self, client: &Arc<Self::Legacy>, message: Message<'_>, reason: &str, stream: Arc<dyn Sink>);
    /// Handles the end of a legacy client: its calls are cancelled, and what it opened is released.
    fn close(&self, client: &Arc<Self::Legacy>);
    /// Deletes what other replicas could still read of a legacy client that has ended at all of them.
    fn forget<'a>(&'a self, client: &'a Arc<Self::Legacy>) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
    /// Handles a modern request or notification. Its headers have been checked, except `mirrored`, which
    /// stand for parameters of a tool. Dropping the returned value before the answer cancels the request.
    fn modern(
        &self,
        caller: Caller,
        message: Message<'_>,
        mirrored: HeaderMap,
        stream: Arc<dyn Sink>,
    ) -> Box<dyn Send>;
    /// What was counted, to be written as text beside everything else; there are this many sessions.
    fn metrics(&self, sessions: usize) -> Box<dyn FnOnce(Exposition) -> String + Send>;
    /// Forgets modern clients that nobody has heard of for this long; called every few seconds.
    fn sweep(&self, idle: Duration);
    /// Handles the shutdown of the server: no more requests come, and subscriptions end with their completion
    /// response.
    fn drain(&self);
    /// Handles the end of the time for shutdown: every unanswered request fails with an error at once.
    fn abandon(&self);
}
