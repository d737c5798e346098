//! Results that are too long for their client: the whole is kept, the client gets a notice, and the model reads what it
//! needs with `read_result`.
//!
//! [`offload`] takes the whole out of a result, [`notice`] words what stands in its place, [`read`] answers
//! `read_result`, and [`kept`] holds what was taken out. All but [`kept`] is pure. The gateway calls it, and does what may
//! take long beside its event loop, since a whole may have megabytes.
//!
//! Invariant: what is shown is never taken for the whole. Every piece says which bytes it is, of how many, and how to go
//! on.

pub mod kept;
mod lines;
mod notice;
mod offload;
mod outline;
mod path;
pub mod read;
mod search;

use notice::notice;
pub use offload::Offloaded;

/// The `_meta` key under which a result says that its whole is kept.
const META: &str = "mcp-workbench/offloaded";

/// A result that was taken out, as it is kept.
#[derive(Debug)]
pub struct Whole {
    /// The joined texts, or the structured content as the upstream spelled it.
    text: String,
    /// The bytes that the texts of an answer may have: the limit that was in force when it was kept.
    limit: usize,
    /// How many lines it has.
    lines: usize,
}

impl Whole {
    /// A result with the limit that was in force when it was kept.
    pub fn new(text: String, limit: usize) -> Self {
        let lines = lines::count(&text);
        Self { text, limit, lines }
    }

    /// The joined texts, or the structured content as the upstream spelled it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The bytes that the texts of an answer may have.
    pub fn limit(&self) -> usize {
        self.limit
    }
}
