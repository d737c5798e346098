//! An MCP gateway: one server towards the client, one client towards all of its servers.
//!
//! The executables are all there is to use. Nothing else is public, so that the compiler sees what nobody needs.
#![cfg_attr(counting, allow(dead_code, unused_imports, reason = "the verbs, which use it, are left out"))]

mod apps;
mod catalog;
#[cfg(not(counting))]
mod cli;
#[cfg(not(counting))]
mod client_files;
mod config;
mod core;
#[cfg(not(counting))]
mod daemon;
#[cfg(not(counting))]
mod edit;
mod events;
mod face;
mod gateway;
mod hash;
#[doc(hidden)]
pub mod inside;
mod json;
mod known_clients;
mod lock;
mod memory;
mod protocol;
mod replicas;
mod results;
mod search;
mod text;
mod tokens;
mod transport;

#[cfg(not(counting))]
pub use crate::cli::main;
pub use crate::config::locate::FaceKind;
pub use crate::core::process::run_shim_if_asked;
#[cfg(counting)]
pub use crate::inside::main;
