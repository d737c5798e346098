//! The engine: upstreams, their processes, and what they offer.

pub mod process;
