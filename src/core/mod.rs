//! The engine: upstreams and their processes, the catalog, clients and their views.

mod adapt;
pub mod audience;
pub mod backoff;
pub mod bridge;
mod carrier;
pub mod connection;
pub mod engine;
mod eras;
mod gate;
pub mod known;
mod lifecycle;
mod logins;
pub mod modern;
mod names;
pub mod notices;
pub mod opening;
pub mod process;
pub mod registry;
mod relay;
pub mod reload;
pub mod reply;
pub mod route;
#[cfg(test)]
mod routing_tests;

pub mod session;
pub mod start_error;
mod stderr;
pub mod tasks;
pub mod upstream;
pub mod view;
pub mod workspace;
