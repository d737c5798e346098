//! Messages and how they travel. Knows nothing of toolboxes: payloads stay bytes.

pub mod era;
pub mod json;
pub mod lines;
pub mod message;
pub mod outbox;
pub mod peer;
pub mod stdio;
