//! Line diffs between two texts, for the summaries of the verbs that change files.

use similar::{ChangeTag, TextDiff};

/// A unified diff, empty if the texts are equal. `before` and `after` are the names shown in its header.
pub fn unified(before: &str, after: &str, old: &str, new: &str) -> String {
    TextDiff::from_lines(old, new).unified_diff().context_radius(3).header(before, after).to_string()
}

/// The diff with ANSI colours.
pub fn paint(diff: &str) -> String {
    let line = |line: &str| {
        let code = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => "1",
            [b'+', ..] => "32",
            [b'-', ..] => "31",
            [b'@', ..] => "36",
            _ => return format!("{line}\n"),
        };
        format!("\u{1b}[{code}m{line}\u{1b}[0m\n")
    };
    diff.lines().map(line).collect()
}

/// Returns `changed` with the line endings of `original`. `plain` is `original` with every `\r\n` replaced by
/// `\n`, and `changed` was made from `plain`. New lines get the ending that most lines have.
pub(super) fn with_line_endings_of(original: &str, plain: &str, changed: &str) -> String {
    let carriages = original.matches("\r\n").count();
    if carriages == 0 {
        return changed.to_owned();
    }
    let ending = if carriages * 2 >= original.matches('\n').count() { "\r\n" } else { "\n" };
    let lines: Vec<&str> = original.split_inclusive('\n').collect();
    let mut text = String::with_capacity(changed.len() + carriages);
    for change in TextDiff::from_lines(plain, changed).iter_all_changes() {
        match (change.tag(), change.old_index()) {
            (ChangeTag::Equal, Some(index)) => text.push_str(lines.get(index).copied().unwrap_or_default()),
            (ChangeTag::Insert, _) => match change.value().strip_suffix('\n') {
                Some(line) => {
                    text.push_str(line);
                    text.push_str(ending);
                }
                None => text.push_str(change.value()),
            },
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_endings_of_untouched_lines_stay() {
        for (original, changed, expected) in [
            ("a\nb\n", "a\nc\nb\n", "a\nc\nb\n"),
            ("a\r\nb\r\n", "a\nc\nb\n", "a\r\nc\r\nb\r\n"),
            ("a\r\nb\nc\r\n", "a\nb\nx\nc\n", "a\r\nb\nx\r\nc\r\n"),
            ("a\nb\nc\r\n", "x\na\nb\nc\n", "x\na\nb\nc\r\n"),
            ("a\r\nb", "a\nb\nc", "a\r\nb\r\nc"),
        ] {
            let plain = original.replace("\r\n", "\n");
            assert_eq!(with_line_endings_of(original, &plain, changed), expected, "{original:?}");
        }
    }

    #[test]
    fn a_diff_names_both_sides() {
        let diff = unified("old", "new", "a\nb\n", "a\nc\n");
        assert_eq!(diff, "--- old\n+++ new\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
        assert_eq!(unified("old", "new", "a\n", "a\n"), "");
        assert!(paint(&diff).contains("\u{1b}[32m+c\u{1b}[0m\n"));
    }
}
