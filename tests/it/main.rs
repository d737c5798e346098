//! Integration tests: the real executable, real pipes, real processes.

mod agents;
mod apps;
mod bridge;
mod brief;
#[cfg(target_os = "linux")]
mod chaos;
mod classic;
#[cfg(unix)]
mod client;
mod clients;
mod commands;
mod compatibility;
mod config;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod conformance;
mod console;
mod crash;
#[cfg(target_os = "linux")]
mod daemon;
mod daemon_basics;
mod demo;
#[cfg(target_os = "linux")]
mod deployment;
mod doctor;
mod ending;
mod environment;
mod face;
mod fake;
mod fidelity;
#[cfg(unix)]
mod first_run;
#[cfg(unix)]
mod flat;
#[cfg(unix)]
mod fleet;
mod guarded;
mod handshake;
mod harness;
#[cfg(unix)]
mod held;
#[cfg(target_os = "linux")]
mod help;
#[cfg(unix)]
mod http;
mod idle;
#[cfg(unix)]
mod independent;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod install;
#[cfg(target_os = "linux")]
mod journal;
#[cfg(target_os = "linux")]
mod life;
mod lifecycle;
#[cfg(unix)]
mod lock;
#[cfg(unix)]
mod malformed;
mod map;
mod matrix;
#[cfg(unix)]
mod modern_replicas;
mod mutations;
mod names;
mod npm;
mod oauth;
mod odd;
mod offers;
#[cfg(unix)]
mod on_call;
mod opening;
#[cfg(target_os = "linux")]
mod pages;
mod picture;
#[cfg(target_os = "linux")]
mod process;
#[cfg(unix)]
mod projects;
#[cfg(target_os = "linux")]
mod pty;
#[cfg(unix)]
mod real;
#[cfg(unix)]
mod redeploy;
mod relay;
mod reload;
mod remembered;
#[cfg(target_os = "linux")]
mod replicas;
mod results;
#[cfg(unix)]
mod search;
#[cfg(target_os = "linux")]
mod shape;
#[cfg(unix)]
mod sharing;
mod shell;
mod slow_start;
#[cfg(target_os = "linux")]
mod snapshots;
#[cfg(unix)]
mod special;
#[path = "../../testing/store/mod.rs"]
mod store;
#[cfg(unix)]
mod store_server;
#[cfg(unix)]
mod streams;
#[cfg(unix)]
mod tasks;
mod telemetry;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(unix)]
mod tls;
mod toolman_activate;
mod toolman_catalog;
mod toolman_config;
mod toolman_life;
mod toolman_proxy;
mod toolman_real;
mod toolman_uris;
mod turns;
mod untrusted;
mod variables;
#[cfg(unix)]
mod verbs;
