//! Drains an upstream's stderr, and keeps its end for error messages.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::AsyncRead;

use crate::config::Redactor;
use crate::text::plain;
use crate::transport::lines::{Line, Lines, TooLong};

/// The number of bytes that are kept.
const KEPT: usize = 64 * 1024;
/// The number of lines that an error quotes.
const QUOTED: usize = 10;
/// The number of lines in which the reason of a server's end is looked for. It is large, because stack traces
/// follow the reason.
const SEARCHED: usize = 60;
/// The largest part of a line that is kept.
const LONGEST: usize = 2048;

/// The last lines that an upstream wrote to its stderr.
#[derive(Default)]
pub(super) struct Tail(Mutex<(VecDeque<String>, usize)>);

impl Tail {
    /// Reads the stream to its end.
    pub(super) async fn drain(
        self: Arc<Self>,
        mut stream: impl AsyncRead + Unpin,
        label: String,
        redactor: Redactor,
    ) {
        let mut lines = Lines::new(LONGEST);
        while lines.read(&mut stream).await.is_ok_and(|read| read > 0) {
            while let Some(line) = lines.next_line() {
                let (Line::Whole(text) | Line::TooLong(TooLong { start: text, .. })) = line;
                self.push(text, &label, &redactor);
            }
        }
        if let Some(rest) = lines.rest() {
            self.push(rest, &label, &redactor);
        }
    }

    /// The last lines, each indented on its own line.
    pub(super) fn last_lines(&self) -> String {
        let kept = self.0.lock();
        let skipped = kept.0.len().saturating_sub(QUOTED);
        kept.0.iter().skip(skipped).map(|line| format!("  {}", plain(line))).collect::<Vec<_>>().join("\n")
    }

    /// The last [`SEARCHED`] lines, without what a terminal would act on.
    pub(super) fn log(&self) -> String {
        let lines: Vec<_> = self.last(SEARCHED).iter().map(|line| plain(line)).collect();
        lines.join("\n")
    }

    /// So many of the last lines, as they came.
    pub(super) fn last(&self, count: usize) -> Vec<String> {
        let kept = self.0.lock();
        kept.0.iter().skip(kept.0.len().saturating_sub(count)).cloned().collect()
    }

    fn push(&self, text: &[u8], label: &str, redactor: &Redactor) {
        let text = String::from_utf8_lossy(&text[..text.len().min(LONGEST)]);
        let line = text.trim_end().to_owned();
        tracing::debug!("[{label}] {}", redactor.redact(&plain(&line)));
        let mut kept = self.0.lock();
        kept.1 += line.len();
        kept.0.push_back(line);
        while kept.1 > KEPT {
            let Some(oldest) = kept.0.pop_front() else { break };
            kept.1 -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keeps_the_end_of_a_flood() {
        let tail = Arc::new(Tail::default());
        let flood: String = (0..100_000).map(|n| format!("line {n}\x1b[31m\n")).collect();
        tail.clone().drain(flood.as_bytes(), String::new(), Redactor::default()).await;
        assert!(tail.0.lock().1 <= KEPT);
        assert!(tail.last_lines().starts_with("  line 99990 [31m\n"), "{}", tail.last_lines());
        assert!(tail.last_lines().ends_with("\n  line 99999 [31m"));
    }
}
