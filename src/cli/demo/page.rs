//! What the demo shows: headings, what was sent, what came back, what it means.

use std::io::{self, Write};

use crate::cli::screen::{columns, cut, laid_out};

/// The width in columns that lines are kept to where possible.
const WIDTH: usize = 100;
/// The most lines of one answer that are shown.
const MOST_LINES: usize = 14;

/// Where the demo writes.
pub(super) struct Page<'a> {
    pub(super) out: &'a mut dyn Write,
    /// Whether colours may be used, on a terminal.
    pub(super) colour: bool,
    /// Whether arrows can be shown.
    pub(super) unicode: bool,
}

impl Page<'_> {
    /// A heading, with an empty line before and after.
    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.painted("1", &format!("== {text}"));
        writeln!(self.out, "\n{text}\n")
    }

    /// Prints an explanation.
    pub(super) fn say(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Prints what the client sends.
    pub(super) fn sent(&mut self, text: &str) -> io::Result<()> {
        let arrow = if self.unicode { "→" } else { "->" };
        let arrow = self.painted("36", arrow);
        writeln!(self.out, "{arrow} {text}")
    }

    /// Prints what comes back, indented, and cut if it is long.
    pub(super) fn received(&mut self, text: &str) -> io::Result<()> {
        self.received_lines(text, MOST_LINES)
    }

    /// Prints what comes back, with all of its lines.
    pub(super) fn received_whole(&mut self, text: &str) -> io::Result<()> {
        self.received_lines(text, usize::MAX)
    }

    fn received_lines(&mut self, text: &str, most: usize) -> io::Result<()> {
        let arrow = if self.unicode { "←" } else { "<-" };
        let indent = " ".repeat(columns(arrow) + 1);
        let mut lead = format!("{} ", self.painted("32", arrow));
        let lines: Vec<_> = text.lines().collect();
        let shown = if lines.len() > most { most - 1 } else { lines.len() };
        for line in &lines[..shown] {
            if line.is_empty() {
                writeln!(self.out)?;
            } else {
                writeln!(self.out, "{lead}{}", cut(line, WIDTH - indent.len(), "..."))?;
            }
            lead.clone_from(&indent);
        }
        if shown < lines.len() {
            writeln!(self.out, "{indent}... and {} more lines", lines.len() - shown)?;
        }
        Ok(())
    }

    /// Prints JSON that came back.
    pub(super) fn received_json(&mut self, json: &str) -> io::Result<()> {
        self.received(&laid_out(json, 0))
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answers_are_cut() {
        let text: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let mut out = Vec::new();
        let mut page = Page { out: &mut out, colour: false, unicode: false };
        page.received(&text).expect("memory can be written");
        page.received(&"y".repeat(200)).expect("memory can be written");
        let text = String::from_utf8(out).expect("we write UTF-8");
        assert!(text.starts_with("<- 1\n   2\n"), "{text}");
        assert!(text.contains("   13\n   ... and 7 more lines\n<- yyy"), "{text}");
        assert!(text.ends_with("yyy...\n") && text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }
}
