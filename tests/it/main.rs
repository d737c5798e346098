//! Integration tests: the real executable, real pipes, real processes.

mod classic;
#[cfg(unix)]
mod clients;
mod commands;
mod config;
mod crash;
mod ending;
mod environment;
mod face;
mod fake;
mod fidelity;
mod handshake;
mod harness;
mod lifecycle;
mod names;
mod npm;
mod offers;
#[cfg(target_os = "linux")]
mod process;
mod real;
mod relay;
mod untrusted;
#[cfg(unix)]
mod verbs;
