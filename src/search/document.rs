//! Turns one document into index entries: its words counted by field, its summary and its risk. [`Index`]
//! calls this.
//!
//! [`Index`]: super::Index

use super::ToolDoc;
use super::tokens::{fold, words};

/// The risk of a destructive tool.
pub(super) const DESTROYS: u8 = 2;

/// The number of bits that hold a field.
const FIELD: u32 = 3;

/// The words of one document, by term and field.
pub(super) struct Counts<const N: usize> {
    /// For each occurrence the term and, in the last [`FIELD`] bits, the field: one number, which sorts faster than two.
    seen: Vec<u64>,
    pub(super) lengths: [u32; N],
}

impl<const N: usize> Counts<N> {
    pub(super) fn new() -> Self {
        Self { seen: Vec::new(), lengths: [0; N] }
    }

    /// Empties the counts for the next document.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
        self.lengths = [0; N];
    }

    pub(super) fn add(&mut self, term: u32, field: usize, length: u32) {
        self.seen.push(u64::from(term) << FIELD | field as u64);
        self.lengths[field] += length;
    }

    /// Calls `each` with every term in order and its count in each field.
    pub(super) fn each(&mut self, mut each: impl FnMut(u32, [u32; N])) {
        self.seen.sort_unstable();
        for run in self.seen.chunk_by(|a, b| a >> FIELD == b >> FIELD) {
            let mut counts = [0; N];
            for seen in run {
                counts[(seen % (1 << FIELD)) as usize] += 1;
            }
            each((run[0] >> FIELD) as u32, counts);
        }
    }

    /// The terms counted so far, as often as they occur.
    pub(super) fn terms(&self) -> impl Iterator<Item = u32> {
        self.seen.iter().map(|seen| (seen >> FIELD) as u32)
    }
}

/// Packs the counts into one number, `bits` for each. A larger count becomes the largest that fits.
pub(super) fn packed<const N: usize>(counts: [u32; N], bits: u32) -> u32 {
    let most = (1 << bits) - 1;
    counts.iter().rev().fold(0, |packed, count| packed << bits | (*count).min(most))
}

/// Splits a description into its first sentence and the rest, because authors first say what a tool does and
/// then explain.
pub(super) fn split_summary(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let ends = match c {
            '\n' => true,
            '。' | '！' | '？' => true,
            '.' | '!' | '?' => text[at + 1..].starts_with([' ', '\n', '\t']) && !before.is_whitespace(),
            _ => false,
        };
        if ends && at >= 12 {
            return text.split_at(at + c.len_utf8());
        }
        before = c;
    }
    (text, "")
}

/// The risk of calling a tool, from its annotations or else from the verb in its name.
pub(super) fn risk(tool: &ToolDoc) -> u8 {
    if tool.read_only == Some(true) {
        return 0;
    }
    if tool.destructive == Some(true) {
        return DESTROYS;
    }
    let mut verb = String::new();
    words(&tool.name, |word| {
        if verb.is_empty() {
            fold(word.raw, &mut verb);
        }
    });
    match verb.as_str() {
        "get" | "list" | "read" | "find" | "search" | "show" | "describe" | "fetch" | "view" | "query"
        | "count" => 0,
        "delete" | "remove" | "destroy" | "drop" | "purge" | "erase" | "kill" | "wipe" | "clear" => DESTROYS,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, summary: &str) {
        assert_eq!(split_summary(text).0, summary);
    }

    #[test]
    fn the_first_sentence_is_the_summary() {
        check("Reads a file. It must exist.", "Reads a file.");
        check("Reads a file\nand more", "Reads a file\n");
        check("Use v1.2 of the interface", "Use v1.2 of the interface");
        check("天気予報を取得する機能です。次に説明", "天気予報を取得する機能です。");
        check("", "");
    }
}
