//! The engine: upstreams and their processes, the catalog, clients and their views.

pub mod audience;
pub mod backoff;
mod bridge;
mod connection;
pub mod engine;
mod eras;
pub mod known;
mod level;
mod life;
pub mod link;
mod logins;
pub mod modern;
mod names;
pub mod notices;
pub mod opening;
pub mod process;
mod progress;
pub mod registry;
mod relay;
pub mod reload;
pub mod reply;
pub mod route;
#[cfg(test)]
mod routing_tests;
pub mod seal;
pub mod session;
mod stderr;
pub mod tasks;
pub mod trouble;
mod turns;
pub mod upstream;
pub mod view;
pub mod window;
