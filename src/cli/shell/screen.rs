//! The terminal: tables, a sign of life, a bar of progress.

use std::io::{self, Write};
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{interval_at, sleep};

/// From when on a person wants to see that something happens.
const PATIENCE: Duration = Duration::from_millis(500);
const FRAME: Duration = Duration::from_millis(100);
const FRAMES: [char; 8] = ['⣾', '⣽', '⣻', '⢿', '⡿', '⣟', '⣯', '⣷'];
const BAR: usize = 30;

/// What may be shown where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    /// stderr is a terminal, and things that move may be shown there.
    pub(super) terminal: bool,
    /// There is somebody to answer questions.
    pub(super) asks: bool,
    /// stdout is a terminal: what servers say must not command it.
    pub(super) escapes: bool,
    /// stdout may be coloured.
    pub(super) colour: bool,
}

impl Screen {
    /// Waits for the work, and shows that it goes on where that takes long.
    pub(super) async fn while_waiting<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        self.while_silent(what, &AtomicBool::new(false), work).await
    }

    /// The same until something else is `shown`.
    pub(super) async fn while_silent<T>(
        &self,
        what: &str,
        shown: &AtomicBool,
        work: impl Future<Output = T>,
    ) -> T {
        if !self.terminal {
            return work.await;
        }
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(PATIENCE) => {}
        }
        let mut frames = FRAMES.iter().cycle();
        let mut beat = interval_at(tokio::time::Instant::now(), FRAME);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.clear();
                    return done;
                }
                _ = beat.tick(), if !shown.load(Ordering::Relaxed) => {
                    let frame = frames.next().expect("it goes round");
                    let _ = write!(io::stderr(), "\r{frame} {what} …");
                }
            }
        }
    }

    /// Shows how far a call is.
    pub(super) fn progress(&self, done: f64, total: Option<f64>, message: &str) {
        if self.terminal {
            let message = safe(message, false);
            let _ =
                write!(io::stderr(), "\r\x1b[K{}", bar(done, total, message.lines().next().unwrap_or("")));
        }
    }

    /// Takes away what moved.
    pub(super) fn clear(&self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// The text as it can be shown: on a terminal, nothing of it is a command.
    pub(super) fn text(&self, text: &str) -> String {
        if self.escapes { safe(text, true) } else { text.to_owned() }
    }

    /// Rows below a heading, in columns; the last column is not padded. Numbers stand at the right.
    pub(super) fn table(&self, heading: &[&str], rows: &[Vec<String>]) -> String {
        self.marked_table(heading, rows, &|_| Vec::new())
    }

    /// The same; where colours may be, the parts of each cell that `marks` gives stand out.
    pub(super) fn marked_table(
        &self,
        heading: &[&str],
        rows: &[Vec<String>],
        marks: &dyn Fn(&str) -> Vec<Range<usize>>,
    ) -> String {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([heading[column].chars().count()]).max().unwrap_or(0)
        };
        let numeric = |column: usize| {
            !rows.is_empty()
                && rows
                    .iter()
                    .all(|row| row[column].trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit()))
        };
        let line = |cells: &[&str], marks: &dyn Fn(&str) -> Vec<Range<usize>>| {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let pad = " ".repeat(width(column) - cell.chars().count());
                let cell = if self.colour { emphasized(cell, &marks(cell)) } else { (*cell).to_owned() };
                if column > 0 {
                    line.push_str("  ");
                }
                match numeric(column) {
                    true => line.push_str(&format!("{pad}{cell}")),
                    false => line.push_str(&format!("{cell}{pad}")),
                }
            }
            line.trim_end().to_owned()
        };
        let head = line(heading, &|_| Vec::new());
        let mut text = if self.colour { format!("\x1b[1m{head}\x1b[0m\n") } else { format!("{head}\n") };
        for row in &rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            text.push_str(&line(&cells, marks));
            text.push('\n');
        }
        text
    }
}

/// The text with parts of it, in ascending order, in bold and underlined.
fn emphasized(text: &str, parts: &[Range<usize>]) -> String {
    let mut emphasized = String::new();
    let mut from = 0;
    for part in parts {
        emphasized.push_str(&text[from..part.start]);
        emphasized.push_str(&format!("\x1b[1;4m{}\x1b[0m", &text[part.clone()]));
        from = part.end;
    }
    emphasized.push_str(&text[from..]);
    emphasized
}

fn bar(done: f64, total: Option<f64>, message: &str) -> String {
    match total.filter(|total| *total > 0.0) {
        Some(total) => {
            let part = (done / total).clamp(0.0, 1.0);
            let full = (part * BAR as f64).round() as usize;
            let percent = (part * 100.0).round();
            format!("[{}{}] {percent:3} % {message}", "█".repeat(full), "░".repeat(BAR - full))
        }
        None => format!("{done} … {message}"),
    }
}

/// Most characters of a text in a table.
const CELL: usize = 100;

/// The first line of a text, without characters that move the cursor, and not too long.
pub(super) fn one_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or("").trim_end();
    let line = safe(line, false);
    match line.chars().count() > CELL {
        true => line.chars().take(CELL - 1).chain(['…']).collect(),
        false => line,
    }
}

fn safe(text: &str, lines: bool) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' if lines => c,
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Screen = Screen { terminal: false, asks: false, escapes: false, colour: false };

    #[test]
    fn tables_are_aligned_and_hold_no_commands() {
        let rows = [
            vec!["ä".to_owned(), "7".to_owned(), "one\ntwo".to_owned()],
            vec!["long".to_owned(), "-12".to_owned(), "\x1b[2J".to_owned()],
        ];
        let expected = "NAME    N  TEXT\nä       7  one\nlong  -12  \u{fffd}[2J\n";
        assert_eq!(PIPE.table(&["NAME", "N", "TEXT"], &rows), expected);
    }

    #[test]
    fn marks_stand_out_where_colours_may_be() {
        let rows = [vec!["read_file".to_owned(), "Reads".to_owned()]];
        let marks = |cell: &str| if cell == "read_file" { vec![0..4, 5..9] } else { Vec::new() };
        let plain = "TOOL       TEXT\nread_file  Reads\n";
        assert_eq!(PIPE.marked_table(&["TOOL", "TEXT"], &rows, &marks), plain);
        let terminal = Screen { colour: true, escapes: true, ..PIPE };
        let marked = "\x1b[1mTOOL       TEXT\x1b[0m\n\x1b[1;4mread\x1b[0m_\x1b[1;4mfile\x1b[0m  Reads\n";
        assert_eq!(terminal.marked_table(&["TOOL", "TEXT"], &rows, &marks), marked);
    }

    #[test]
    fn bars_fill() {
        for (done, total, expected) in [
            (0.0, Some(4.0), format!("[{}]   0 % m", "░".repeat(30))),
            (2.0, Some(4.0), format!("[{}{}]  50 % m", "█".repeat(15), "░".repeat(15))),
            (9.0, Some(4.0), format!("[{}] 100 % m", "█".repeat(30))),
            (9.0, None, "9 … m".to_owned()),
        ] {
            assert_eq!(bar(done, total, "m"), expected);
        }
    }
}
