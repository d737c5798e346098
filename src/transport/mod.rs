//! How messages travel: bytes in, bytes out. The gateway and the core use these transports.
//!
//! Invariant: nothing here knows about toolboxes, and payloads stay bytes.

pub mod http_client;
pub mod lines;
pub mod oauth;
pub mod outbox;
pub mod peer;
#[cfg(unix)]
pub mod pipe;
#[cfg(unix)]
pub mod socket;
pub mod sse;
pub mod stdio;
