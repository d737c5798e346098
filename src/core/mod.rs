//! The engine: upstreams and their processes, the catalog, clients and their views.

pub mod backoff;
pub mod catalog;
pub mod connection;
pub mod engine;
mod level;
pub mod process;
mod relay;
pub mod session;
mod stderr;
pub mod upstream;
pub mod view;
