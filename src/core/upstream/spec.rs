//! What a file says about an upstream, whatever the face.

use std::time::Duration;

use crate::config::{ByteLimit, Isolation, Start, Timeouts, ToolFilter, Transport};
use crate::lock::Guard;

/// What the file says about an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// How to reach the upstream.
    pub transport: Transport,
    /// Which of its tools exist for clients.
    pub filter: ToolFilter,
    /// Which of its definitions were approved, if a lock is in force.
    pub guard: Option<Guard>,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Whether the upstream is restarted automatically when it ends.
    pub restart: bool,
    /// Whether the upstream keeps running when nobody has it open.
    pub lives_on: bool,
    /// Who shares the upstream, if the file says so.
    pub isolation: Option<Isolation>,
    /// Whether the program is [known](crate::config::keeps_state) to keep a state for one client.
    pub keeps_state: bool,
    /// When the upstream starts, if the file says so.
    pub start: Option<Start>,
    /// How long the upstream may be unused before it is stopped; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long results of its tools may be before we keep them.
    pub offload_over: ByteLimit,
}

/// When a face lists what an upstream offers. Clients with different faces may share an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// While the upstream is up or at rest.
    WhileUp,
    /// As soon as it is known, whatever becomes of the upstream.
    Always,
}

impl Spec {
    /// Whether a call starts the upstream, and no opening.
    pub(super) fn starts_on_call(&self, listing: Listing) -> bool {
        self.start.map_or(listing == Listing::Always, |start| start == Start::Call)
    }

    /// Whether what is remembered of the upstream is on offer before it runs.
    pub fn recalls(&self, listing: Listing) -> bool {
        listing == Listing::Always || self.starts_on_call(listing)
    }

    /// Who shares the upstream in the daemon.
    pub fn isolation_in_daemon(&self) -> Isolation {
        self.isolation.unwrap_or(match self.keeps_state {
            true => Isolation::Session,
            false => Isolation::Directory,
        })
    }
}

#[cfg(test)]
impl Spec {
    /// A server that is reached like this, with nothing else said.
    pub(crate) fn plain(transport: Transport) -> Self {
        Self {
            keeps_state: crate::config::keeps_state(&transport),
            transport,
            filter: ToolFilter::All,
            guard: None,
            timeouts: Timeouts::default(),
            restart: false,
            lives_on: false,
            isolation: None,
            start: None,
            idle_timeout: None,
            offload_over: ByteLimit::None,
        }
    }
}
