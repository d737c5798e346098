//! Lines, and where a text may be cut.
//!
//! A line ends with a line feed; what follows the last one, if anything, is a line too.

use std::ops::Range;

use memchr::{memchr_iter, memrchr};

/// How many lines a text has.
pub(super) fn count(text: &str) -> usize {
    let feeds = memchr_iter(b'\n', text.as_bytes()).count();
    feeds + usize::from(!text.is_empty() && !text.ends_with('\n'))
}

/// The number, from 1, of the line in which the byte at `at` stands.
pub(super) fn number(text: &str, at: usize) -> usize {
    memchr_iter(b'\n', &text.as_bytes()[..at]).count() + 1
}

/// Where the line with this number, from 1, begins; the end of the text if there is none.
pub(super) fn start(text: &str, line: usize) -> usize {
    match line {
        0 | 1 => 0,
        line => memchr_iter(b'\n', text.as_bytes()).nth(line - 2).map_or(text.len(), |feed| feed + 1),
    }
}

/// The beginning of the line in which the byte at `at` stands.
pub(super) fn start_of(text: &str, at: usize) -> usize {
    memrchr(b'\n', &text.as_bytes()[..at]).map_or(0, |feed| feed + 1)
}

/// The first and the last line that a range touches.
pub(super) fn touched(text: &str, range: &Range<usize>) -> (usize, usize) {
    let first = number(text, range.start);
    (first, first + feeds_within(text, range))
}

/// The same for a range that ends with a text of so many lines, without counting those before it.
pub(super) fn touched_by_end(text: &str, lines: usize, range: &Range<usize>) -> (usize, usize) {
    (lines - feeds_within(text, range), lines)
}

/// How many line feeds a range has before its last byte.
fn feeds_within(text: &str, range: &Range<usize>) -> usize {
    let last = range.end.max(range.start + 1) - 1;
    memchr_iter(b'\n', &text.as_bytes()[range.start..last]).count()
}

/// The bytes of a range, as people count them: both ends belong to it.
pub(super) fn inclusive(range: &Range<usize>) -> String {
    format!("{}-{}", range.start, range.end.max(range.start + 1) - 1)
}

/// The start of the character that the byte at `at` belongs to.
pub(super) fn floor(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at)
}

/// As much from `start` on as `most` bytes hold, up to `end`. A cut falls after a line feed if the second half has one,
/// else after white space or one of `,{}[]` there, else between two characters.
pub(super) fn first(text: &str, start: usize, end: usize, most: usize) -> Range<usize> {
    if end - start <= most {
        return start..end;
    }
    let cut = floor(text, start + most);
    let half = floor(text, start + most / 2).max(start);
    let half = &text[half..cut];
    let good = half.rmatch_indices('\n').next().or_else(|| half.rmatch_indices(may_end).next());
    start..good.map_or(cut, |(at, end)| cut - half.len() + at + end.len())
}

/// The last bytes of a text, `most` at most, cut as in [`first`], seen from the other end.
pub(super) fn last(text: &str, most: usize) -> Range<usize> {
    if text.len() <= most {
        return 0..text.len();
    }
    let cut = text.ceil_char_boundary(text.len() - most);
    // The cut may stay where it is if the character before it allows that.
    let start = floor(text, cut - 1);
    let half = &text[start..text.ceil_char_boundary(text.len() - most / 2)];
    let good = half.match_indices('\n').next().or_else(|| half.match_indices(may_end).next());
    good.map_or(cut, |(at, end)| start + at + end.len())..text.len()
}

/// Whether a piece may end with this character where no line does.
fn may_end(character: char) -> bool {
    character.is_whitespace() || ",{}[]".contains(character)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_end_with_a_line_feed() {
        for (text, expected) in [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2), ("a\r\nb\n", 2)] {
            assert_eq!(count(text), expected, "{text:?}");
        }
    }

    #[test]
    fn places_are_found_by_number() {
        let text = "one\ntwo\n\nfour";
        assert_eq!([1, 2, 3, 4, 5].map(|line| start(text, line)), [0, 4, 8, 9, 13]);
        assert_eq!([0, 3, 4, 8, 9, 12].map(|at| number(text, at)), [1, 1, 2, 3, 4, 4]);
        assert_eq!(touched(text, &(0..4)), (1, 1));
        assert_eq!(touched(text, &(3..9)), (1, 3));
        assert_eq!(touched(text, &(4..13)), (2, 4));
        for text in ["one\ntwo\n\nfour", "one\ntwo\n", "\n", "one"] {
            for start in 0..text.len() {
                let end = start..text.len();
                assert_eq!(touched_by_end(text, count(text), &end), touched(text, &end), "{text:?} {start}");
            }
        }
    }

    #[test]
    fn a_cut_falls_where_a_reader_would_make_it() {
        for (text, most, expected_first, expected_last) in [
            ("short", 10, "short", "short"),
            // A line feed in the half next to the cut.
            ("aaaaaa\nbbb\ncccccc", 12, "aaaaaa\nbbb\n", "bbb\ncccccc"),
            // One in the other half does not count.
            ("a\nbbbbbbbbbbbbbbbbbbbbb\nc", 10, "a\nbbbbbbbb", "bbbbbbbb\nc"),
            ("{\"a\":1,\"b\":2,\"c\":3}", 12, "{\"a\":1,", "\"b\":2,\"c\":3}"),
            ("aaa bbb ccc ddd eee", 10, "aaa bbb ", "ccc ddd eee"[4..].trim_start()),
            // White space of any kind, whole.
            ("aaaaaaa\u{3000}bbbbbbbbbbb\u{3000}ccccc", 12, "aaaaaaa\u{3000}", "ccccc"),
            // A piece that begins a line, or a word, begins where it could.
            ("aaaaaa\nbb cc dd ee", 11, "aaaaaa\n", "bb cc dd ee"),
            ("aaaaaaaaa,bb]bbbbbcc", 10, "aaaaaaaaa,", "bb]bbbbbcc"),
            ("ääääääää", 5, "ää", "ää"),
        ] {
            assert_eq!(&text[first(text, 0, text.len(), most)], expected_first, "{text}");
            assert_eq!(&text[last(text, most)], expected_last, "{text}");
        }
    }

    proptest! {
        #[test]
        fn pieces_fit_and_add_up(text in "[a-cä€\\n ,{}]{1,80}", most in 4..30_usize) {
            let (mut at, mut whole) = (0, String::new());
            while at < text.len() {
                let piece = first(&text, at, text.len(), most);
                prop_assert!(!piece.is_empty() && piece.len() <= most);
                whole.push_str(&text[piece.clone()]);
                at = piece.end;
            }
            prop_assert_eq!(&whole, &text);
            prop_assert!(last(&text, most).len() <= most);
        }
    }
}
