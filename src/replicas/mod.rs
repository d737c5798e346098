//! Any number of gateways behind a load balancer that are one server to their clients.

#![allow(dead_code)]
pub mod in_process;
pub mod store;
pub mod valkey;
