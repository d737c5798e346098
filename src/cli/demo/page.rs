//! What the demo shows: sentences, a table with bars, steps with their outcome, and on demand the JSON behind
//! them.
//!
//! Invariant: without the JSON the whole page fits on one screen of 40 lines and 100 columns.

use std::io::{self, Write};

use super::client::ShownMessage;
use crate::cli::screen::{columns, cut, laid_out, padded, wrapped};

/// The width of a screen in columns.
const WIDTH: usize = 100;
/// The width of a step's left part, which says what the model does.
const STEP: usize = 60;
/// The width of the longest bar.
const BAR: usize = 40;
/// The most lines of one message that are shown.
const MOST_LINES: usize = 30;

/// Where the demo writes.
pub(super) struct Page<'a> {
    pub(super) out: &'a mut dyn Write,
    /// Whether colours may be used, on a terminal.
    pub(super) colour: bool,
    /// Whether more than ASCII can be shown.
    pub(super) unicode: bool,
    /// Whether the JSON of messages is shown.
    pub(super) wire: bool,
}

impl Page<'_> {
    /// Prints a sentence, wrapped between words.
    pub(super) fn say(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", wrapped(text, Some(WIDTH)))
    }

    /// Prints a line that stands out, with an empty line before it.
    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.painted("1", text);
        writeln!(self.out, "\n{text}")
    }

    /// Prints a row of the table: who has how many tools that cost how much, and a bar for that.
    pub(super) fn row(&mut self, who: &str, tools: usize, tokens: usize, most: usize) -> io::Result<()> {
        let length = (tokens * BAR).div_ceil(most.max(1));
        let bar = if self.unicode { "█" } else { "#" }.repeat(length);
        let bar = self.painted("36", &bar);
        writeln!(self.out, "  {} {tools:>4} tools {:>7} tokens  {bar}", padded(who, 10), grouped(tokens))
    }

    /// Prints what the model does, and what comes of it.
    pub(super) fn step(&mut self, does: &str, outcome: &str) -> io::Result<()> {
        let does = padded(&cut(does, STEP, "..."), STEP);
        let outcome = cut(outcome, WIDTH - STEP - 4, "...");
        writeln!(self.out, "  {}  {}", self.painted("36", &does), outcome)
    }

    /// Prints messages as JSON, if that is wanted.
    pub(super) fn messages(&mut self, lines: &[ShownMessage]) -> io::Result<()> {
        for line in lines.iter().filter(|_| self.wire) {
            let (arrow, plain, code, text) = match line {
                ShownMessage::Sent(text) => ("→", "->", "36", text),
                ShownMessage::Received(text) => ("←", "<-", "32", text),
            };
            let arrow = if self.unicode { arrow } else { plain };
            let indent = columns(arrow) + 1;
            let mut lead = format!("{} ", self.painted(code, arrow));
            let laid = laid_out(text, 0);
            let all: Vec<_> = laid.lines().collect();
            let shown = if all.len() > MOST_LINES { MOST_LINES - 1 } else { all.len() };
            for line in &all[..shown] {
                writeln!(self.out, "{lead}{}", cut(line, WIDTH - indent, "..."))?;
                lead = " ".repeat(indent);
            }
            if shown < all.len() {
                writeln!(self.out, "{lead}... and {} more lines", all.len() - shown)?;
            }
        }
        Ok(())
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// A number with commas between its thousands.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), expected);
        }
    }

    #[test]
    fn long_messages_are_cut() {
        let long: Vec<String> = (1..=40).map(|n| format!("\"{n}{}\"", "x".repeat(99))).collect();
        let lines = [
            ShownMessage::Sent("{\"id\":1}".to_owned()),
            ShownMessage::Received(format!("[{}]", long.join(","))),
        ];
        let mut out = Vec::new();
        Page { out: &mut out, colour: false, unicode: false, wire: true }
            .messages(&lines)
            .expect("memory can be written");
        let text = String::from_utf8(out).expect("we write UTF-8");
        assert!(text.starts_with("-> {\"id\": 1}\n<- [\n     \"1xx"), "{text}");
        assert!(text.ends_with("\n   ... and 13 more lines\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }
}
