//! How messages travel: bytes in, bytes out. Knows nothing of toolboxes; payloads stay bytes.

pub mod http_client;
pub mod lines;
pub mod oauth;
pub mod outbox;
pub mod peer;
pub mod sse;
pub mod stdio;
