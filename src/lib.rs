//! An MCP gateway: one server towards the client, one client towards all of its servers.

pub mod cli;
pub mod config;
pub mod core;
pub mod faces;
pub mod search;
pub mod serve;
pub mod wire;
