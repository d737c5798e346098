//! An MCP gateway: one server towards the client, one client towards all of its servers.

pub mod cli;
pub mod clients;
pub mod config;
pub mod core;
pub mod edit;
pub mod faces;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod search;
pub mod serve;
pub mod store;
pub mod wire;
