//! Counts what an upstream writes that is not a message or answers nothing, and logs the first of it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::config::Redactor;
use crate::core::start_error::{Cause, StartError};
use crate::core::upstream::Upstream;
use crate::text::plain;

/// The number of bytes of the first noise that are logged.
const SHOWN: usize = 200;

#[derive(Default)]
pub(in crate::core) struct Noise {
    count: AtomicU64,
    /// The first line of the noise.
    first: OnceLock<String>,
    /// Whether an answer has omitted or misspelled its version.
    odd_version: AtomicBool,
}

impl Noise {
    /// Counts text that is not a message, and logs the first.
    pub(super) fn take(&self, upstream: &Upstream, redactor: &Redactor, text: &[u8]) {
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
            let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN)]);
            let text = plain(&text);
            let shown = redactor.redact(&text);
            tracing::warn!("[{upstream}] wrote a line to stdout that is not an MCP message: {shown}");
            let _ = self.first.set(shown.into_owned());
        }
    }

    /// Counts an answer that nobody waits for.
    pub(super) fn count_answer(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes an answer with a missing or wrong version. Returns `true` for the first one.
    pub(super) fn is_first_odd_version(&self) -> bool {
        !self.odd_version.swap(true, Ordering::Relaxed)
    }

    /// Adds to the reason why an upstream did not start that it wrote noise, which may be the cause.
    pub(in crate::core) fn explain(&self, error: StartError) -> StartError {
        let noise = match self.count.load(Ordering::Relaxed) {
            0 => return error,
            1 => "a line to stdout that is not an MCP message".to_owned(),
            count => format!("{count} lines to stdout that are not MCP messages"),
        };
        let problem = format!("{}; it wrote {noise}", error.problem);
        let noise = self.first.get().map(|line| line.as_str().into());
        StartError { cause: Cause::Noise, noise, ..error.reworded(problem) }
    }

    /// Logs the count.
    pub(in crate::core) fn report(&self, upstream: &Upstream) {
        match self.count.load(Ordering::Relaxed) {
            0 => {}
            count => {
                tracing::warn!(
                    "[{upstream}] wrote {count} lines that were not messages, or answers to no request"
                )
            }
        }
    }
}
