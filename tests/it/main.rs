//! Integration tests: the real executable, real pipes, real processes.

mod classic;
#[cfg(unix)]
mod clients;
mod commands;
mod config;
mod crash;
mod demo;
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
#[cfg(unix)]
mod readme;
mod real;
mod relay;
mod shell;
mod toolman_activate;
mod toolman_catalog;
mod toolman_config;
mod toolman_life;
mod toolman_proxy;
mod toolman_real;
mod untrusted;
#[cfg(unix)]
mod verbs;
