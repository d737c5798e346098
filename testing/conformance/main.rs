//! What the official conformance suite needs around the gateway: a server for it to stand in front of, and a
//! driver that starts the gateway before one of the suite's own servers.
//!
//! `conformance server [--legacy] [--stdio]` serves Streamable HTTP on a free port and prints its URL, or speaks on
//! stdin and stdout; `conformance client URL` is the command that the suite's client role runs. Both are built for the
//! names that the suite hard-codes.

#![allow(clippy::print_stdout, reason = "the URL of the server goes there, as that of the gateway does")]

mod client;
mod offers;
mod server;

/// What may end one of the two.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", ref flags @ ..] if flags.iter().all(|flag| ["--legacy", "--stdio"].contains(flag)) => {
            server::serve(flags.contains(&"--legacy"), flags.contains(&"--stdio")).await
        }
        ["client", url] => client::drive(url),
        _ => Err("usage: conformance server [--legacy] [--stdio] | conformance client URL".into()),
    }
}
