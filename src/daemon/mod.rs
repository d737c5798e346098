//! The way of a session to the daemon: where the daemon is, whom it trusts, how it is started, and how a
//! relay hands a session over and outlives the daemon's death. What the daemon does with a session is the
//! command line's business (`cli/daemon.rs`); here are places, sockets and bytes.
//!
//! ```text
//! client ──stdio──▶ relay ──socket──▶ daemon ──▶ servers
//!    │                │ no daemon, or too many deaths
//!    │                └──▶ the session goes on in the relay's own process
//!    └──stdio itself, where the system can do that──▶ daemon
//! ```
//!
//! Invariant: neither end sends a byte before it has checked whose process the other is.

mod confinement;
#[cfg(target_os = "linux")]
mod direct;
#[cfg(not(target_os = "linux"))]
#[path = "no_direct.rs"]
mod direct;
mod flight;
mod link;
#[cfg(windows)]
mod pipe;
mod place;
mod relay;
mod session_out;
#[cfg(unix)]
mod socket;
mod wire;

#[cfg(windows)]
use pipe as endpoint;
#[cfg(unix)]
use socket as endpoint;

pub use confinement::Confinement;
pub use direct::DirectEnds;
pub use endpoint::{DaemonListener, DaemonStream, has_listener, other_end, split, take_over};
pub use link::{Daemons, NoDaemon};
pub use place::DaemonPlace;
pub use relay::{Alone, Relay, RelayEnd, SystemCalls};
pub use session_out::SessionOut;
pub use wire::{Handover, OtherEnd, Wish, accept, accept_direct, greet, read_request, refuse};
