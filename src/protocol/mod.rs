//! What MCP specifies: messages, eras, versions, progress, mirrored headers. Both transports, the gateway and
//! the core use it.
//!
//! Invariant: everything here is pure; there are no sockets, no clock and no toolboxes.

pub mod cut_off;
pub mod era;
pub mod message;
pub mod progress;
pub mod tool_headers;
