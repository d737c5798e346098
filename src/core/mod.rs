//! The engine: upstreams with their processes, clients with their views, and the calls between them.
//!
//! It is one room and not three, because its parts point at each other: a call belongs to a client and to a connection, a
//! connection to an upstream, a view to both. The gateway above asks it to open, close and send; faces tell it names by
//! the trait [`Exposure`](view::Exposure), so that it knows none of them.

pub mod adapt;
mod approval;
pub mod aside;
pub mod audience;
pub mod backoff;
pub mod bridge;
mod carrier;
pub mod connection;
pub mod engine;
mod gate;
mod held;
mod idle;
pub mod known;
mod lifecycle;
pub mod logins;
pub mod modern;
mod names;
pub mod notices;
pub mod observed;
pub mod opening;
mod probes;
pub mod process;
mod recent;
pub mod record;
pub mod registry;
mod relay;
pub mod reload;
pub mod reply;
pub mod route;
#[cfg(test)]
mod routing_tests;

pub mod session;
pub mod sharing;
pub mod start_error;
mod stderr;
pub mod subscriptions;
pub mod tasks;
pub mod upstream;
pub mod view;
pub mod workspace;

/// The target of log lines about clients that come and go and servers that become ready, which some verbs show
/// without being asked for more.
pub const LIFE: &str = "mcp_workbench::life";
