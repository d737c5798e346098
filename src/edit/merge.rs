//! Undoes a change in a text that somebody has changed further.

use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::ops::Range;

/// Returns `current`, which somebody made from `after`, with the change from `before` to `after` undone line
/// by line; `None` if both changed the same lines.
pub fn undone(before: &str, after: &str, current: &str) -> Option<String> {
    let [before, after, current] = [before, after, current].map(lines);
    let (ours, theirs) = (changes(&after, &before), changes(&after, &current));
    let mut all: Vec<_> = ours.iter().map(|change| (change, &before)).collect();
    all.extend(theirs.iter().map(|change| (change, &current)));
    all.sort_by_key(|((old, _), _)| (old.start, old.end));
    let (mut text, mut at, mut last) = (String::new(), 0, None);
    for ((old, new), source) in all {
        if old.start < at || last == Some(old.start) {
            return None;
        }
        text.extend(after[at..old.start].iter().chain(&source[new.clone()]).copied());
        (at, last) = (old.end, Some(old.start));
    }
    text.extend(after[at..].iter().copied());
    Some(text)
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// The ranges of lines in `old` that became ranges of lines in `new`. Adjacent changes are merged into one.
fn changes(old: &[&str], new: &[&str]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut changes: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, old, new) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        match changes.last_mut() {
            Some((before, after)) if before.end == op.old_range().start => {
                (before.end, after.end) = (op.old_range().end, op.new_range().end);
            }
            _ => changes.push((op.old_range(), op.new_range())),
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::undone;

    #[test]
    fn what_others_changed_stays() {
        for (before, after, current, expected) in [
            ("a\nb\nc\n", "a\nc\nus\n", "a\nc\nus\n", Some("a\nb\nc\n")),
            ("a\nb\nc\n", "a\nc\nus\n", "x\na\nc\nus\n", Some("x\na\nb\nc\n")),
            ("a\nb\nc\n", "a\nc\nus\n", "a\nc\nus\nz\n", Some("a\nb\nc\nz\n")),
            ("a\nb\nc\n", "a\nc\nus\n", "A\nc\nus\n", Some("A\nb\nc\n")),
            ("a\nb\nc\n", "a\nc\nus\n", "a\nc\nthem\n", None),
            ("a\nb\nc\n", "a\nc\nus\n", "a\nx\nc\nus\n", None),
            ("{}", "{us}", "{us, them}", None),
        ] {
            assert_eq!(undone(before, after, current).as_deref(), expected, "{current:?}");
        }
    }
}
