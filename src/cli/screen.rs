//! The terminal: tables, a sign of life and a progress bar.

use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::time::{interval_at, sleep};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::World;
use super::failure::OutputMode;
use crate::json::Scanner;

/// How long a person waits before wanting to see that something happens.
const PATIENCE: Duration = Duration::from_millis(500);
const FRAME: Duration = Duration::from_millis(100);
const FRAMES: [char; 8] = ['⣾', '⣽', '⣻', '⢿', '⡿', '⣟', '⣯', '⣷'];
const PLAIN_FRAMES: [char; 4] = ['|', '/', '-', '\\'];
const BAR: usize = 30;
/// The width in columns that JSON is kept to where possible.
const LINE: usize = 96;

/// What may be shown, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    /// Whether stderr is a terminal where moving things may be shown.
    pub(super) moves: bool,
    /// Whether somebody can answer questions.
    pub(super) asks: bool,
    /// Whether stdout is a terminal, which servers' text must not control.
    pub(super) terminal: bool,
    /// Whether stdout may be coloured.
    pub(super) colour: bool,
    /// Whether terminals show more than ASCII.
    pub(super) unicode: bool,
    /// The width of the terminal in columns, if stdout is one.
    pub(super) width: Option<usize>,
}

impl Screen {
    /// What may be shown in these surroundings.
    pub(super) fn new(output: OutputMode, world: &World) -> Self {
        let dumb = world.variable("TERM").as_deref() == Some("dumb");
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let terminal = out && !output.json;
        let width = terminal.then(|| terminal_size::terminal_size_of(io::stdout())).flatten();
        Self {
            moves: err && !output.quiet && !dumb,
            asks: io::stdin().is_terminal() && err,
            terminal,
            colour: terminal && world.colours(),
            unicode: world.speaks_unicode(),
            width: width.map(|(width, _)| width.0.into()),
        }
    }

    /// Waits for the work. If it takes long, shows whom it waits for and for how long.
    pub(super) async fn while_waiting<T>(
        &self,
        what: &str,
        waits_for: impl Fn() -> Vec<String>,
        work: impl Future<Output = T>,
    ) -> T {
        let begun = Instant::now();
        let whole = || format!("{what}{}", waiting(&waits_for(), begun.elapsed()));
        self.while_silent(&whole, &AtomicBool::new(false), work).await
    }

    /// Waits for the work, and shows that it goes on until something else is `shown`.
    pub(super) async fn while_silent<T>(
        &self,
        what: &dyn Fn() -> String,
        shown: &AtomicBool,
        work: impl Future<Output = T>,
    ) -> T {
        if !self.moves {
            return work.await;
        }
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(PATIENCE) => {}
        }
        let frames: &[char] = if self.unicode { &FRAMES } else { &PLAIN_FRAMES };
        let mut frames = frames.iter().cycle();
        let dots = self.dots(true);
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
                    let _ = write!(io::stderr(), "\r\x1b[K{frame} {} {dots}", what());
                }
            }
        }
    }

    /// Shows the progress of a call.
    pub(super) fn progress(&self, done: f64, total: Option<f64>, message: &str) {
        if self.moves {
            let message = safe(message.lines().next().unwrap_or_default(), false);
            let _ = write!(io::stderr(), "\r\x1b[K{}", bar(done, total, &message, self.unicode));
        }
    }

    /// Removes whatever moving thing is shown.
    pub(super) fn clear(&self) {
        if self.moves {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// The text as it can be shown: a terminal gets no control characters from it.
    pub(super) fn text(&self, text: &str) -> String {
        if self.terminal { safe(text, true) } else { text.to_owned() }
    }

    /// The mark for an omitted rest, on stderr or on stdout.
    pub(super) fn dots(&self, on_stderr: bool) -> &'static str {
        if self.unicode && (on_stderr || self.terminal) { "…" } else { "..." }
    }

    /// Text on stdout in bold.
    pub(super) fn bold(&self, text: &str) -> String {
        self.painted("1", text)
    }

    /// Text on stdout in a colour of the terminal.
    pub(super) fn painted(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Rows below a heading, in columns. The last column is not padded; on a terminal it ends at the
    /// terminal's edge. Numbers are aligned to the right.
    pub(super) fn table(&self, heading: &[&str], rows: &[Vec<String>]) -> String {
        self.marked_table(heading, rows, &|_| Vec::new())
    }

    /// A table like [`Self::table`]; if colours are allowed, the parts of each row that `marks` gives stand
    /// out.
    pub(super) fn marked_table(
        &self,
        heading: &[&str],
        rows: &[Vec<String>],
        marks: &dyn Fn(&str) -> Vec<Range<usize>>,
    ) -> String {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| columns(&row[column]));
            cells.chain([columns(heading[column])]).max().unwrap_or(0)
        };
        let numeric = |column: usize| {
            !rows.is_empty()
                && rows.iter().all(|row| {
                    row[column]
                        .trim_start_matches('-')
                        .bytes()
                        .all(|byte| byte.is_ascii_digit() || byte == b'.')
                })
        };
        let line = |cells: &[&str]| {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate() {
                if column > 0 {
                    line.push_str("  ");
                }
                match numeric(column) {
                    // Digits take one column each, and the headings are ours.
                    true => line.push_str(&format!("{cell:>0$}", width(column))),
                    false => line.push_str(&padded(cell, width(column))),
                }
            }
            self.fitted(line.trim_end())
        };
        let mut text = format!("{}\n", self.bold(&line(heading)));
        for row in &rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            let line = line(&cells);
            text.push_str(&if self.colour { emphasized(&line, &marks(&line)) } else { line });
            text.push('\n');
        }
        text
    }

    /// A line cut to the width of the terminal, so that it does not wrap.
    fn fitted(&self, line: &str) -> String {
        match self.width {
            Some(width) => cut(line, width, self.dots(false)),
            None => line.to_owned(),
        }
    }
}

/// The text with its lines broken between words, so that none is wider than `width` columns unless a single
/// word is. The rest of a broken line is indented like its beginning.
pub(super) fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let lines: Vec<_> = text.split('\n').map(|line| wrapped_line(line, width)).collect();
    lines.join("\n")
}

fn wrapped_line(line: &str, width: usize) -> String {
    if visible_columns(line) <= width {
        return line.to_owned();
    }
    let indent = &line[..line.len() - line.trim_start().len()];
    let (mut whole, mut used) = (indent.to_owned(), columns(indent));
    let mut fresh = true;
    for word in line[indent.len()..].split(' ') {
        let length = visible_columns(word);
        if fresh {
            fresh = false;
        } else if used + 1 + length > width {
            whole.truncate(whole.trim_end_matches(' ').len());
            whole.push('\n');
            whole.push_str(indent);
            used = columns(indent);
        } else {
            whole.push(' ');
            used += 1;
        }
        whole.push_str(word);
        used += length;
    }
    whole
}

/// How many columns a text of our own takes on a terminal: its colours take none.
fn visible_columns(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let plain = parts.next().map_or(0, columns);
    let coloured = parts.map(|part| part.split_once('m').map_or(0, |(_, shown)| columns(shown)));
    plain + coloured.sum::<usize>()
}

/// The text with paths under the home directory written `~/…`. A quoted path stays, because a shell would not
/// expand it.
pub(super) fn homely(text: &str, home: &str) -> String {
    let home = home.trim_end_matches(['/', '\\']);
    if home.is_empty() {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(home) {
        let (before, after) = (&rest[..at], &rest[at + home.len()..]);
        let begins = match before.chars().next_back().or(short.chars().next_back()) {
            None => true,
            Some(c) => c.is_whitespace() || matches!(c, '(' | ':' | ',' | ';' | '`'),
        };
        let ends = after
            .chars()
            .next()
            .is_none_or(|c| c.is_whitespace() || matches!(c, '/' | '\\' | ':' | ')' | ','));
        short.push_str(before);
        short.push_str(if begins && ends { "~" } else { home });
        rest = after;
    }
    short.push_str(rest);
    short
}

/// How many columns a text takes on a terminal: characters of some scripts take two, combining marks none.
pub(super) fn columns(text: &str) -> usize {
    text.width()
}

/// The text padded with spaces to at least this many columns.
pub(super) fn padded(text: &str, least: usize) -> String {
    format!("{text}{}", " ".repeat(least.saturating_sub(columns(text))))
}

/// The text in at most this many columns, ending with dots if it was cut.
pub(super) fn cut(text: &str, most: usize, dots: &str) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    format!("{}{dots}", beginning(text, most.saturating_sub(columns(dots))))
}

/// As much of the text as fits into this many columns; no displayed character is cut in two.
fn beginning(text: &str, most: usize) -> &str {
    let (mut rest, mut left) = (text, most);
    while !rest.is_empty() {
        let stands_alone =
            |(at, c): &(usize, char)| c.width() != Some(0) && !rest[..*at].ends_with('\u{200d}');
        let end = rest.char_indices().skip(1).find(stands_alone).map_or(rest.len(), |(at, _)| at);
        match left.checked_sub(columns(&rest[..end])) {
            Some(less) => left = less,
            None => break,
        }
        rest = &rest[end..];
    }
    &text[..text.len() - rest.len()]
}

/// The text with parts of it, given in ascending order, in bold and underlined.
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

fn bar(done: f64, total: Option<f64>, message: &str, unicode: bool) -> String {
    let [full_part, empty_part, dots] = if unicode { ["█", "░", "…"] } else { ["#", "-", "..."] };
    match total.filter(|total| *total > 0.0) {
        Some(total) => {
            let part = (done / total).clamp(0.0, 1.0);
            let full = (part * BAR as f64).round() as usize;
            let percent = (part * 100.0).round();
            format!("[{}{}] {percent:3} % {message}", full_part.repeat(full), empty_part.repeat(BAR - full))
        }
        None => format!("{done} {dots} {message}"),
    }
}

/// The first line of a text, without characters that move the cursor.
fn one_line(text: &str) -> String {
    safe(text.trim().lines().next().unwrap_or("").trim_end(), false)
}

/// JSON for a person: what fits on a line stays on one line, and keys keep their order.
pub(super) fn laid_out(json: &str, indent: usize) -> String {
    let mut scanner = Scanner::default();
    let Ok(doc) = scanner.scan_str(json) else { return json.to_owned() };
    let value = doc.root();
    let parts: Vec<String> = if value.is_object() {
        let members = value.members();
        members.map(|(key, value)| format!("\"{key}\": {}", laid_out(value.raw(), indent + 2))).collect()
    } else {
        let items = serde_json::from_str::<Vec<&serde_json::value::RawValue>>(json).unwrap_or_default();
        items.iter().map(|item| laid_out(item.get(), indent + 2)).collect()
    };
    let (open, close) = match value.raw().as_bytes() {
        _ if parts.is_empty() => return value.raw().to_owned(),
        [first, .., last] => (char::from(*first), char::from(*last)),
        _ => return value.raw().to_owned(),
    };
    let line = format!("{open}{}{close}", parts.join(", "));
    if !line.contains('\n') && indent + columns(&line) <= LINE {
        return line;
    }
    let (inner, outer) = (" ".repeat(indent + 2), " ".repeat(indent));
    format!("{open}\n{inner}{}\n{outer}{close}", parts.join(&format!(",\n{inner}")))
}

fn safe(text: &str, lines: bool) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' if lines => c,
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// The servers that we wait for, as many as fit on the line, and for how long.
fn waiting(servers: &[String], time: Duration) -> String {
    const SHOWN: usize = 3;
    let seconds = time.as_secs();
    let mut shown: Vec<_> =
        servers.iter().take(SHOWN).map(|server| format!("{} {seconds} s", safe(server, false))).collect();
    match servers.len().checked_sub(SHOWN) {
        None | Some(0) => {}
        Some(more) => shown.push(format!("{more} more")),
    }
    if shown.is_empty() { String::new() } else { format!(": {}", shown.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Screen =
        Screen { moves: false, asks: false, terminal: false, colour: false, unicode: true, width: None };

    #[test]
    fn tables_are_aligned_and_hold_no_commands() {
        let rows = [
            vec!["ä".to_owned(), "7".to_owned(), "one\ntwo".to_owned()],
            vec!["long".to_owned(), "-12".to_owned(), "\x1b[2J".to_owned()],
        ];
        let expected = "NAME    N  TEXT\nä       7  one\nlong  -12  \u{fffd}[2J\n";
        assert_eq!(PIPE.table(&["NAME", "N", "TEXT"], &rows), expected);
        let narrow = Screen { terminal: true, width: Some(13), ..PIPE };
        assert_eq!(
            narrow.table(&["NAME", "N", "TEXT"], &rows),
            "NAME    N  T…\nä       7  o…\nlong  -12  \u{fffd}…\n"
        );
        let plain = Screen { unicode: false, colour: true, ..narrow };
        assert_eq!(
            plain.table(&["NAME", "TEXT"], &[vec!["a".into(), "1234567".into()]]),
            "\x1b[1mNAME     TEXT\x1b[0m\na     1234567\n"
        );
    }

    #[test]
    fn columns_are_those_of_the_terminal() {
        for (text, expected) in [
            ("", 0),
            ("naïve", 5),
            ("nai\u{308}ve", 5),
            ("文件系统", 8),
            ("ﾌｧｲﾙ", 4),
            ("한글", 4),
            ("👍", 2),
            ("👩\u{200d}💻", 2),
            ("❤\u{fe0f}", 2),
            ("a\u{fffd}", 2),
        ] {
            assert_eq!(columns(text), expected, "{text}");
        }
        assert_eq!([padded("文件", 5), padded("文件", 3)], ["文件 ", "文件"]);
        let rows = ["文件", "é", "e\u{301}", "👩\u{200d}💻", "long"];
        let rows = rows.map(|name| vec![name.to_owned(), "7".to_owned(), "x".to_owned()]);
        let expected =
            "NAME  N  TEXT\n文件  7  x\né     7  x\ne\u{301}     7  x\n👩\u{200d}💻    7  x\nlong  7  x\n";
        assert_eq!(PIPE.table(&["NAME", "N", "TEXT"], &rows), expected);
    }

    #[test]
    fn messages_wrap_between_words() {
        for (text, width, expected) in [
            ("one two three", None, "one two three"),
            ("one two three", Some(13), "one two three"),
            ("one two three", Some(12), "one two\nthree"),
            ("  one two three", Some(9), "  one two\n  three"),
            ("one\ntwo three", Some(5), "one\ntwo\nthree"),
            ("unbreakable one", Some(5), "unbreakable\none"),
            ("文件 系统", Some(8), "文件\n系统"),
            ("\x1b[1;31merror\x1b[0m: one", Some(10), "\x1b[1;31merror\x1b[0m: one"),
            ("\x1b[1;31merror\x1b[0m: one", Some(9), "\x1b[1;31merror\x1b[0m:\none"),
        ] {
            assert_eq!(wrapped(text, width), expected, "{text} in {width:?}");
        }
    }

    #[test]
    fn paths_at_home_are_short() {
        for (text, expected) in [
            ("/home/ada/x.json: ok", "~/x.json: ok"),
            ("cannot read /home/ada/x.json", "cannot read ~/x.json"),
            ("PATH /home/ada/bin:/usr/bin:/home/ada/.local/bin", "PATH ~/bin:/usr/bin:~/.local/bin"),
            ("run `chmod 600 /home/ada/secrets.env`", "run `chmod 600 ~/secrets.env`"),
            ("(/home/ada)", "(~)"),
            ("/home/adam/x", "/home/adam/x"),
            ("/srv/home/ada/x", "/srv/home/ada/x"),
            ("chmod 600 '/home/ada/my file'", "chmod 600 '/home/ada/my file'"),
            ("--config=/home/ada/x", "--config=/home/ada/x"),
        ] {
            assert_eq!(homely(text, "/home/ada"), expected);
        }
        assert_eq!(homely("/a /", "/"), "/a /");
    }

    #[test]
    fn texts_are_cut_at_columns() {
        for (text, most, expected) in [
            ("abcd", 4, "abcd"),
            ("abcde", 4, "abc…"),
            ("文件系统", 8, "文件系统"),
            ("文件系统", 7, "文件系…"),
            ("文件系统", 6, "文件…"),
            ("文件", 1, "…"),
            ("e\u{301}e\u{301}e\u{301}", 3, "e\u{301}e\u{301}e\u{301}"),
            ("e\u{301}e\u{301}e\u{301}e", 3, "e\u{301}e\u{301}…"),
            ("👩\u{200d}💻👩\u{200d}💻", 4, "👩\u{200d}💻👩\u{200d}💻"),
            ("👩\u{200d}💻👩\u{200d}💻", 3, "👩\u{200d}💻…"),
            ("❤\u{fe0f}ab", 3, "❤\u{fe0f}…"),
            ("❤\u{fe0f}ab", 2, "…"),
        ] {
            assert_eq!(cut(text, most, "…"), expected, "{text} in {most}");
            assert!(columns(&cut(text, most, "…")) <= most, "{text} in {most}");
        }
    }

    #[test]
    fn marks_stand_out_where_colours_may_be() {
        let rows = [vec!["read_file".to_owned(), "Reads".to_owned()]];
        let marks = |row: &str| if row.starts_with("read_file") { vec![0..4, 5..9] } else { Vec::new() };
        let plain = "TOOL       TEXT\nread_file  Reads\n";
        assert_eq!(PIPE.marked_table(&["TOOL", "TEXT"], &rows, &marks), plain);
        let terminal = Screen { colour: true, ..PIPE };
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
            assert_eq!(bar(done, total, "m", true), expected);
        }
        assert_eq!(
            bar(1.0, Some(2.0), "m", false),
            format!("[{}{}]  50 % m", "#".repeat(15), "-".repeat(15))
        );
    }

    #[test]
    fn json_is_laid_out_in_its_own_order() {
        let long = "x".repeat(80);
        for (json, expected) in [
            ("{}", "{}".to_owned()),
            ("[ ]", "[ ]".to_owned()),
            (r#"{"b":1,"a":[true,null]}"#, r#"{"b": 1, "a": [true, null]}"#.to_owned()),
            (
                &format!(r#"{{"b":"{long}","a":[1,{{"c":2}}]}}"#),
                format!("{{\n  \"b\": \"{long}\",\n  \"a\": [1, {{\"c\": 2}}]\n}}"),
            ),
        ] {
            assert_eq!(laid_out(json, 0), expected);
        }
    }

    #[test]
    fn servers_that_are_waited_for_are_named_with_the_time() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (servers, expected) in [
            (&[][..], ""),
            (&["memory"], ": memory 12 s"),
            (&["a", "b", "c"], ": a 12 s, b 12 s, c 12 s"),
            (&["a", "b", "c", "d", "e"], ": a 12 s, b 12 s, c 12 s, 2 more"),
        ] {
            assert_eq!(waiting(&names(servers), Duration::from_millis(12_900)), expected);
        }
    }
}
