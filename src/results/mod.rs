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

/// Access to long results for fuzz targets.
#[cfg(fuzzing)]
pub(crate) mod fuzzing {
    use super::read::ReadRequest;
    use super::{Offloaded, Whole};
    use crate::json::Raw;

    /// Takes what is over some bytes out of a result; what is left is JSON.
    pub fn take_out(result: &str) {
        if let Ok(result) = Raw::read(result)
            && let Some(offloaded) = Offloaded::of(result.root(), 100, usize::MAX)
        {
            offloaded.write("read_result", "r1");
        }
    }

    /// Answers a request about a text. The answer fits, and a range of the text is a part of it.
    pub fn answer(request: &ReadRequest, text: String) {
        let whole = Whole::new(text, 4000);
        let Ok(texts) = request.answer("read_result", &whole) else { return };
        assert!(texts.iter().map(String::len).sum::<usize>() <= whole.limit);
        assert!(!texts[0].starts_with("Bytes ") || whole.text.contains(&texts[1]));
    }
}

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
