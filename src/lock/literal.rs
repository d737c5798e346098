//! Strings as the lock file spells them: whatever nobody sees is written as an escape, and so that two
//! spellings are equal exactly when the strings are, everything else is written in one way.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

/// The characters of the Unicode categories C and Z except the plain space, as sorted ranges.
static HIDDEN: LazyLock<Vec<(char, char)>> = LazyLock::new(|| {
    let class = regex_syntax::parse(r"[\p{C}\p{Z}--\x20]").expect("a valid class");
    match class.kind() {
        HirKind::Class(Class::Unicode(class)) => {
            class.ranges().iter().map(|range| (range.start(), range.end())).collect()
        }
        _ => unreachable!("the pattern is one class"),
    }
});

/// Whether the lock file writes a character as an escape, so that a reviewer sees it.
pub(super) fn is_hidden(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let at = HIDDEN.partition_point(|(_, last)| *last < c);
    HIDDEN.get(at).is_some_and(|(first, _)| *first <= c)
}

/// A JSON string without its quotes, spelled as the lock file spells it.
pub(super) fn normal(literal: &str) -> Cow<'_, str> {
    if literal.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\') {
        return Cow::Borrowed(literal);
    }
    let mut out = String::with_capacity(literal.len());
    each_character(literal, |character| match character {
        Ok(c) => push(c, &mut out),
        Err(lone) => push_unit(lone, &mut out),
    });
    Cow::Owned(out)
}

/// A text as a JSON string without its quotes.
pub(super) fn written(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| push(c, &mut out));
    out
}

/// The text of a JSON string without its quotes; halves of characters are replaced.
pub(super) fn text(literal: &str) -> Cow<'_, str> {
    if !literal.contains('\\') {
        return Cow::Borrowed(literal);
    }
    let mut out = String::with_capacity(literal.len());
    each_character(literal, |character| out.push(character.unwrap_or(char::REPLACEMENT_CHARACTER)));
    Cow::Owned(out)
}

/// Adds to `found` the code points of a string that the lock file escapes, without tabs and line ends.
pub(super) fn note_hidden(literal: &str, found: &mut BTreeSet<u32>) {
    each_character(literal, |character| match character {
        Ok('\t' | '\n' | '\r') => {}
        Ok(c) if is_hidden(c) => drop(found.insert(c.into())),
        Ok(_) => {}
        Err(lone) => drop(found.insert(lone.into())),
    });
}

/// Visits the characters that a literal stands for; `Err` is half of one.
fn each_character(literal: &str, mut visit: impl FnMut(Result<char, u16>)) {
    let mut units = Vec::new();
    let mut rest = literal;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '\\' {
            flush(&mut units, &mut visit);
            visit(Ok(c));
            continue;
        }
        let Some(escaped) = rest.chars().next() else { break };
        rest = &rest[escaped.len_utf8()..];
        if escaped == 'u' {
            let digits = rest.get(..4).unwrap_or_default();
            rest = &rest[digits.len()..];
            units.push(u16::from_str_radix(digits, 16).unwrap_or_default());
            continue;
        }
        flush(&mut units, &mut visit);
        visit(Ok(match escaped {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            other => other,
        }));
    }
    flush(&mut units, &mut visit);
}

/// Visits what a run of `\u` escapes stands for.
fn flush(units: &mut Vec<u16>, visit: &mut impl FnMut(Result<char, u16>)) {
    for decoded in char::decode_utf16(units.drain(..)) {
        visit(decoded.map_err(|lone| lone.unpaired_surrogate()));
    }
}

fn push(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        c if is_hidden(c) => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| push_unit(*unit, out)),
        c => out.push(c),
    }
}

fn push_unit(unit: u16, out: &mut String) {
    write!(out, "\\u{unit:04x}").expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_that_hides_stays_hidden() {
        for (c, expected) in [
            (' ', false),
            ('a', false),
            ('ü', false),
            ('漢', false),
            ('😀', false),
            ('\u{301}', false),
            ('\n', true),
            ('\u{7f}', true),
            ('\u{a0}', true),
            ('\u{ad}', true),
            ('\u{200b}', true),
            ('\u{2028}', true),
            ('\u{202e}', true),
            ('\u{3000}', true),
            ('\u{e000}', true),
            ('\u{feff}', true),
            ('\u{378}', true),
            ('\u{e0041}', true),
            ('\u{10ffff}', true),
        ] {
            assert_eq!(is_hidden(c), expected, "{c:?}");
        }
        for (literal, expected) in [
            ("plain", "plain"),
            (r"a\/b\u0041\u00FC\b\f", r"a/bAü\u0008\u000c"),
            ("\u{200b}\u{e0041}", r"\u200b\udb40\udc41"),
            (r"\uD83D\uDE00 \uD83D x \uDE00\uD83D", r"😀 \ud83d x \ude00\ud83d"),
            (r#"\"\\n\n"#, r#"\"\\n\n"#),
        ] {
            assert_eq!(normal(literal), expected);
        }
    }

    proptest! {
        #[test]
        fn a_text_has_one_spelling(text in ".*") {
            let ours = written(&text);
            let theirs = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(&*normal(&theirs[1..theirs.len() - 1]), &ours);
            prop_assert_eq!(&*normal(&ours), &ours);
            prop_assert_eq!(serde_json::from_str::<String>(&format!("\"{ours}\"")).unwrap(), text.clone());
            prop_assert_eq!(&*super::text(&ours), &text);
            let shown = ours.chars().all(|c| !is_hidden(c));
            prop_assert!(shown, "{}", ours);
        }
    }
}
