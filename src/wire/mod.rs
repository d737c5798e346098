//! Messages and how they travel. Knows nothing of toolboxes: payloads stay bytes.

pub mod cut_off;
pub mod digest;
pub mod era;
pub mod http_client;
pub mod json;
pub mod lines;
pub mod message;
pub mod oauth;
pub mod outbox;
pub mod peer;
pub mod percent;
pub mod sse;
pub mod stdio;
pub mod text;
pub mod tool_headers;
