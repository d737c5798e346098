//! Ids in messages of which only a part is known, or that are broken.

use super::Scanner;

impl Scanner {
    /// The number under `id`, if it can be seen, in a response that is broken, or of which only the beginning and the
    /// end are known; `None` for what is no response.
    pub fn id_of_response(&mut self, start: &[u8], end: &[u8]) -> Option<Option<u64>> {
        let text = &start[..start.utf8_chunks().next().map_or(0, |chunk| chunk.valid().len())];
        let _ = self.scan(text);
        let has = |key: &[u8]| {
            self.members.iter().any(|member| member.depth == 1 && &text[member.key.range()] == key)
        };
        if has(b"\"method\"") || !has(b"\"result\"") && !has(b"\"error\"") {
            return None;
        }
        Some(self.id_in_prefix(text).or_else(|| id_at_end(end)))
    }

    /// The number under `id` in a message that was cut off.
    pub fn id_in_prefix(&mut self, prefix: &[u8]) -> Option<u64> {
        self.raw_id_in_prefix(prefix)?.parse().ok()
    }

    /// What stands under `id` in a message that was cut off, raw.
    pub fn raw_id_in_prefix<'a>(&mut self, prefix: &'a [u8]) -> Option<&'a str> {
        let text = match std::str::from_utf8(prefix) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&prefix[..error.valid_up_to()]).expect("valid up to there"),
        };
        let _ = self.scan_str(text);
        let outer =
            self.members.iter().filter(|member| member.depth == 1 && member.value.end > member.value.start);
        // What ends with the text may have been longer.
        let outer = outer.filter(|member| (member.value.end as usize) < text.len());
        let mut ids = outer.filter(|member| &text[member.key.range()] == "\"id\"");
        Some(&text[ids.next()?.value.range()])
    }
}

/// The number under `id` where that is the last member of an object, or has only the version behind it, as in the
/// answers of servers that write the result first.
fn id_at_end(end: &[u8]) -> Option<u64> {
    let text = end.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let version = br#""jsonrpc":"2.0""#;
    let text = match text.strip_suffix(version) {
        Some(before) => before.trim_ascii_end().strip_suffix(b",")?.trim_ascii_end(),
        None => text,
    };
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = text.split_at(text.len() - digits);
    let before = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(b"\"id\"")?;
    matches!(before.trim_ascii_end().last(), Some(b',' | b'{')).then_some(())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}
