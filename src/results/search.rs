//! Searching a kept result by a regular expression, line by line.

use std::fmt::Write as _;
use std::ops::Range;

use memchr::memchr;
use regex::{Regex, RegexBuilder};

use super::lines;

/// Bytes that a compiled expression may take: with the linear time of the engine, the bound on what a search costs.
const PROGRAM_SIZE: usize = 1 << 20;
/// A line over so many bytes is shown match by match.
const LONG_LINE: usize = 500;
/// Bytes that are shown on either side of a match in a long line.
const AROUND: usize = 200;

/// A line that matches, or one match in a long line.
struct Hit {
    /// The line's number, from 1.
    number: usize,
    line: Range<usize>,
    /// The match itself, where the line is long.
    place: Option<Range<usize>>,
}

impl Hit {
    /// Where a search goes on that is to find this one first.
    fn start(&self) -> usize {
        self.place.as_ref().map_or(self.line.start, |place| place.start)
    }
}

/// The matches of a search, as far as there is room for them.
pub(super) struct Matches {
    /// As `grep -n` prints them.
    pub(super) text: String,
    pub(super) matches: usize,
    pub(super) shown: usize,
    /// Where the first match begins that is not shown.
    pub(super) next: Option<usize>,
}

/// Compiles an expression; the error is in the parser's words.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern).size_limit(PROGRAM_SIZE).build().map_err(|error| format!("grep: {error}"))
}

/// Tries an expression on each line of a part of a text, and shows what matches with `context` lines around it, in `room`
/// bytes at most.
pub(super) fn search(
    text: &str,
    within: &Range<usize>,
    pattern: &Regex,
    context: usize,
    room: usize,
) -> Matches {
    let mut hits = hits(text, within, pattern).peekable();
    let mut found = Matches { text: String::new(), matches: 0, shown: 0, next: None };
    // The first line that was not printed yet.
    let mut unprinted = 0;
    while let Some(hit) = hits.next() {
        found.matches += 1;
        let ends = hits.peek().map(|next| next.line.start);
        let mut entry = entry(text, &hit, context, unprinted, ends);
        if entry.len() > room && found.shown == 0 {
            entry = own_line(text, &hit);
        }
        if found.text.len() + entry.len() > room {
            found.next = Some(hit.start());
            break;
        }
        found.text.push_str(&entry);
        found.shown += 1;
        unprinted = after(text, hit.line.end, context, ends);
    }
    // The rest is counted, and not held: there may be a match at every byte.
    found.matches += hits.count();
    found.text.truncate(found.text.trim_end_matches('\n').len());
    found
}

/// Every match, in order: of a short line the first, of a long line each. An expression sees whole lines without their
/// ends; what counts lies within the part.
fn hits<'a>(text: &'a str, within: &'a Range<usize>, pattern: &'a Regex) -> impl Iterator<Item = Hit> + 'a {
    let mut at = lines::start_of(text, within.start);
    let mut next_number = lines::number(text, at);
    let lines = std::iter::from_fn(move || {
        (at < within.end).then(|| {
            let end = memchr(b'\n', &text.as_bytes()[at..]).map_or(text.len(), |feed| at + feed);
            let (line, number) = (at..end, next_number);
            (at, next_number) = (end + 1, number + 1);
            (number, line)
        })
    });
    lines.flat_map(move |(number, line)| {
        let is_long = line.len() > LONG_LINE;
        let places = pattern.find_iter(&text[line.clone()]).map({
            let start = line.start;
            move |found| start + found.start()..start + found.end()
        });
        let within = places.filter(|place| place.start >= within.start && place.end <= within.end);
        let hit = move |place| Hit { number, line: line.clone(), place: is_long.then_some(place) };
        within.take(if is_long { usize::MAX } else { 1 }).map(hit)
    })
}

/// A match with its context; lines before `unprinted` were printed already, and what is from `ends` on is the next one's.
fn entry(text: &str, hit: &Hit, context: usize, unprinted: usize, ends: Option<usize>) -> String {
    let mut entry = String::new();
    let mut start = hit.line.start;
    let mut before = 0;
    while before < context && start > unprinted {
        start = lines::start_of(text, start - 1);
        before += 1;
    }
    if context > 0 && unprinted > 0 && start > unprinted {
        entry.push_str("--\n");
    }
    let mut number = hit.number - before;
    while start < hit.line.start {
        start = context_line(text, start, number, &mut entry);
        number += 1;
    }
    entry.push_str(&own_line(text, hit));
    // Of a line with several matches, the last one brings what follows it.
    let is_last = ends != Some(hit.line.start);
    let end = after(text, hit.line.end, context, ends);
    let (mut at, mut number) = (hit.line.end + 1, hit.number + 1);
    while is_last && at < end {
        at = context_line(text, at, number, &mut entry);
        number += 1;
    }
    entry
}

/// Where the lines of context behind a line end.
fn after(text: &str, line_end: usize, context: usize, ends: Option<usize>) -> usize {
    let mut at = line_end + 1;
    for _ in 0..context {
        if at >= text.len() || ends.is_some_and(|ends| at >= ends) {
            break;
        }
        at = memchr(b'\n', &text.as_bytes()[at..]).map_or(text.len(), |feed| at + feed + 1);
    }
    at
}

/// Prints a line of context and returns where the next one begins.
fn context_line(text: &str, start: usize, number: usize, out: &mut String) -> usize {
    let end = memchr(b'\n', &text.as_bytes()[start..]).map_or(text.len(), |feed| start + feed);
    let shown = start..lines::floor(text, end.min(start + LONG_LINE));
    let _ = writeln!(out, "{number}-{}", &text[shown]);
    end + 1
}

/// The line of a match or, where that is long, the match and what is around it.
fn own_line(text: &str, hit: &Hit) -> String {
    let Hit { number, line, place } = hit;
    match place {
        None => format!("{number}:{}\n", &text[line.clone()]),
        Some(place) => {
            let start = text.ceil_char_boundary(place.start.saturating_sub(AROUND).max(line.start));
            // A match may be as long as its line.
            let match_end = place.end.min(place.start + LONG_LINE);
            let end = lines::floor(text, (match_end + AROUND).min(line.end));
            format!("{number}@{}:{}\n", place.start, &text[start..end])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, pattern: &str, context: usize, expected: &str) {
        let found = search(text, &(0..text.len()), &compile(pattern).unwrap(), context, 4000);
        assert_eq!(found.text, expected, "{pattern}");
        assert_eq!(found.next, None);
        assert_eq!(found.shown, found.matches);
    }

    #[test]
    fn it_prints_as_grep_does() {
        let text = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";
        check(text, "o", 0, "1:one\n2:two\n4:four");
        check(text, "^t", 0, "2:two\n3:three");
        check(text, "four$", 1, "3-three\n4:four\n5-five");
        check(text, "(?i)ONE|TWO|SEVEN", 1, "1:one\n2:two\n3-three\n--\n6-six\n7:seven");
        check(text, "one|four", 1, "1:one\n2-two\n3-three\n4:four\n5-five");
        check(text, "one|five", 1, "1:one\n2-two\n--\n4-four\n5:five\n6-six");
        check(text, "nothing", 3, "");
        check("a\n\nb", "^$", 0, "2:");
    }

    #[test]
    fn a_long_line_is_shown_match_by_match() {
        let text = format!("short hit\n{}hit{}hit\nend", "a".repeat(600), "b".repeat(300));
        let found = search(&text, &(0..text.len()), &compile("hit").unwrap(), 0, 4000);
        let expected = format!(
            "1:short hit\n2@610:{}hit{}\n2@913:{}hit",
            "a".repeat(200),
            "b".repeat(200),
            "b".repeat(200)
        );
        assert_eq!((found.text.as_str(), found.matches), (expected.as_str(), 3));
        // A line of just 500 bytes is a short one.
        let line = format!("{}hit", "a".repeat(497));
        check(&line, "hit", 0, &format!("1:{line}"));
        // A part of the text, as the next search names it, goes on in the middle of the line.
        let rest = search(&text, &(911..text.len()), &compile("hit").unwrap(), 0, 4000);
        assert_eq!((rest.matches, rest.text.starts_with("2@913:")), (1, true));
    }

    #[test]
    fn what_is_cut_of_a_long_line_is_cut_between_characters() {
        let text = format!("{}hit{}", "ä".repeat(300), "€".repeat(300));
        let around = format!("1@600:{}hit{}", "ä".repeat(100), "€".repeat(66));
        check(&text, "hit", 0, &around);
        // A line of context has the first 500 bytes of it, and a match the first 500 of its own.
        check(&format!("{text}\nnext"), "next", 1, &format!("1-{}\n2:next", "ä".repeat(250)));
        let match_itself = format!("1@0:{}", "x".repeat(700));
        check(&"x".repeat(1000), "x+", 0, &match_itself);
    }

    #[test]
    fn what_does_not_fit_is_counted_and_can_be_gone_on_with() {
        let text: String = (0..100).map(|line| format!("line {line} of many\n")).collect();
        let pattern = compile("line").unwrap();
        let (mut at, mut seen) = (0, 0);
        loop {
            let found = search(&text, &(at..text.len()), &pattern, 0, 300);
            assert!(found.text.len() <= 300);
            assert!(found.shown > 0);
            seen += found.shown;
            match found.next {
                Some(next) => at = next,
                None => break,
            }
        }
        assert_eq!(seen, 100);
    }

    #[test]
    fn an_expression_that_is_too_large_is_refused_in_the_parsers_words() {
        for pattern in ["(", "(?=a)", "(a{1000}){1000}", r"\w{40}"] {
            assert!(compile(pattern).unwrap_err().starts_with("grep: "), "{pattern}");
        }
        assert!(compile(r"\w{10}").is_ok());
    }
}
