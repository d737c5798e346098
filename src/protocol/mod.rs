//! What MCP says: messages, eras, versions, progress. Pure: no sockets, no clock, nothing of toolboxes.

pub mod cut_off;
pub mod era;
pub mod message;
pub mod progress;
pub mod tool_headers;
