//! What stands in the place of a result that was taken out.

use super::{Whole, lines, outline};
use crate::json::quote;

/// The bytes that the beginning, the end and the outline have at most, each.
const SHOWN: usize = 1000;

/// The notice: what is missing, how to read it with the tool of this name, its beginning, its end, and its outline where
/// it is JSON.
pub(super) fn notice(tool: &str, id: &str, whole: &Whole) -> String {
    let Whole { text, lines, .. } = whole;
    let beginning = lines::first(text, 0, text.len(), SHOWN);
    let end = lines::last(text, SHOWN);
    let mut notice = format!(
        "INCOMPLETE: this result has {} bytes in {lines} lines; only its beginning and end are shown. \
         Next: {tool} {{\"id\":{},\"bytes\":\"{}-\"}} (or \"lines\", \"grep\", \"path\")\n",
        text.len(),
        quote(id),
        beginning.end,
    );
    let numbers = [lines::touched(text, &beginning), lines::touched_by_end(text, *lines, &end)];
    for ((name, range), (first, last)) in [("beginning", beginning), ("end", end)].into_iter().zip(numbers) {
        let bytes = lines::inclusive(&range);
        notice.push_str(&format!("--- {name}: bytes {bytes}, lines {first}-{last} ---\n{}", &text[range]));
        if !notice.ends_with('\n') {
            notice.push('\n');
        }
    }
    match outline::outline(text, SHOWN) {
        Some(outline) => notice.push_str(&format!("--- outline ---\n{outline}")),
        None => notice.truncate(notice.len() - 1),
    }
    notice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_missing_and_how_to_go_on() {
        let text: String = (1..=2000).map(|line| format!("line {line}\n")).collect();
        let notice = notice("read_result", "r7k2", &Whole::new(text.clone(), 4000));
        let beginning = &text[..text.find("line 124\n").unwrap()];
        let end = &text[text.find("line 1901\n").unwrap()..];
        let expected = format!(
            "INCOMPLETE: this result has {} bytes in 2000 lines; only its beginning and end are shown. Next: read_result \
             {{\"id\":\"r7k2\",\"bytes\":\"{}-\"}} (or \"lines\", \"grep\", \"path\")\n\
             --- beginning: bytes 0-{}, lines 1-123 ---\n{beginning}--- end: bytes {}-{}, lines 1901-2000 ---\n{}",
            text.len(),
            beginning.len(),
            beginning.len() - 1,
            text.len() - end.len(),
            text.len() - 1,
            end.trim_end(),
        );
        assert_eq!(notice, expected);
    }

    #[test]
    fn json_has_an_outline_and_everything_fits_the_least_limit() {
        let items: Vec<_> =
            (0..5000).map(|id| serde_json::json!({"id": id, "né": "x".repeat(id % 7)})).collect();
        let text = serde_json::json!({"items": items, "total": 5000}).to_string();
        let notice = notice("toolman_read_result", "r0123456789abcdefghij", &Whole::new(text, 4000));
        assert!(notice.contains("\n--- outline ---\n$: object of 2\n$.items: array of 5000\n"), "{notice}");
        assert!(notice.len() <= 4000, "{}", notice.len());
        assert!(notice.contains(" bytes in 1 lines; "), "{notice}");
    }
}
