//! The meaning of words, as far as a table knows it: each piece of a word has a direction, a text has the sum of
//! its words' directions, and texts that mean similar things point in similar directions.
//!
//! The index keeps a [`Direction`] for each tool, the query its [`QuerySense`]; `rank.rs` compares them.
//! `packaging/vectors/make.py` makes the table and says where it comes from.
//!
//! Invariant: everything is computed in whole numbers, so that the order of tools is the same on every machine.

use std::sync::OnceLock;

use super::tokens::fold;
use crate::hash::HashMap;

/// The number of dimensions.
const SIZE: usize = 128;
/// The length of a direction: the largest at which hardly any number leaves the range of a byte.
const UNIT: i32 = 256;
/// The most pieces of a word that count. A word of many pieces is a name, whose pieces say little.
const PIECES: usize = 2;
/// Stands for no piece.
const NONE: u16 = u16::MAX;
/// How much the nearest clause of a query counts, however many clauses there are.
const NEAREST: f32 = 0.1;
/// A longer word is a key or a sequence and has no pieces.
const LONGEST: usize = 40;

/// The pieces of a word.
pub(super) type Pieces = [u16; PIECES];

/// Where a text points.
pub(super) struct Direction([i8; SIZE]);

/// The sum of what words mean.
#[derive(Clone)]
pub(super) struct Sum {
    values: [i32; SIZE],
    words: usize,
    known: usize,
}

/// What a query means, as a whole and clause by clause. It means nothing if its language is not known.
#[derive(Default)]
pub(super) struct QuerySense {
    whole: Option<Direction>,
    clauses: Vec<Direction>,
}

impl QuerySense {
    /// The meaning of a query with these clauses.
    pub(super) fn new(clauses: &[Sum]) -> Self {
        let mut whole = Sum::default();
        for clause in clauses {
            whole.merge(clause);
        }
        if !whole.is_understood() {
            return Self::default();
        }
        let several = clauses.iter().filter(|_| clauses.len() > 1);
        Self { whole: Some(whole.direction()), clauses: several.map(Sum::direction).collect() }
    }

    /// How close a text is to the whole query: 1 if they mean the same. Nothing if the query is not understood.
    pub(super) fn likeness_to_whole(&self, text: &Direction) -> Option<f32> {
        Some(self.whole.as_ref()?.likeness(text) as f32 / (UNIT * UNIT) as f32)
    }

    /// How close a text is to the whole query and to the nearest clause: 1 if they mean the same. The more clauses
    /// a query has, the less this tells.
    pub(super) fn likeness(&self, text: &Direction) -> f32 {
        let Some(whole) = &self.whole else { return 0.0 };
        let whole = whole.likeness(text);
        let nearest = self.clauses.iter().map(|clause| clause.likeness(text)).max().unwrap_or(whole);
        let both = (whole + nearest) as f32 / 2.0 / self.clauses.len().max(1) as f32;
        ((1.0 - NEAREST) * both + NEAREST * nearest as f32) / (UNIT * UNIT) as f32
    }
}

/// The table, as it stands in the executable.
struct PieceTable {
    pieces: HashMap<&'static str, u16>,
    /// For each piece, by how much its numbers are multiplied.
    scales: &'static [u8],
    /// For each piece, one byte for each number of the first half and the number as far into the second half, in
    /// its lower and its upper four bits, each increased by 8.
    numbers: &'static [u8],
}

fn table() -> &'static PieceTable {
    static TABLE: OnceLock<PieceTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        let bytes: &'static [u8] = include_bytes!("vectors.bin");
        let number =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
        let (count, length) = (number(0), number(4));
        let (text, rest) = bytes[8..].split_at(length);
        let (scales, numbers) = rest.split_at(count);
        let text = std::str::from_utf8(text).expect("the table is ours");
        PieceTable { pieces: text.split('\n').zip(0..).collect(), scales, numbers }
    })
}

/// Splits a word into the longest pieces that are known. A word with an unknown part has none.
pub(super) fn pieces(raw: &str) -> Pieces {
    let mut found = [NONE; PIECES];
    let mut rest = String::new();
    fold(raw, &mut rest);
    if !rest.is_ascii() || rest.len() > LONGEST {
        return found;
    }
    let table = table();
    for slot in &mut found {
        let longest =
            (1..=rest.len()).rev().find_map(|length| Some((length, *table.pieces.get(&rest[..length])?)));
        let Some((length, piece)) = longest else { return [NONE; PIECES] };
        *slot = piece;
        if length == rest.len() {
            break;
        }
        // The table marks pieces that do not begin a word.
        rest.replace_range(..length, "##");
    }
    found
}

impl Default for Sum {
    fn default() -> Self {
        Self { values: [0; SIZE], words: 0, known: 0 }
    }
}

impl Sum {
    /// Adds a word with this weight: 0, 1 or 2.
    pub(super) fn add(&mut self, pieces: Pieces, weight: i16) {
        let table = table();
        self.words += 1;
        self.known += usize::from(pieces[0] != NONE && pieces[1] == NONE);
        let (first, second) = self.values.split_at_mut(SIZE / 2);
        for piece in pieces.into_iter().filter(|piece| *piece != NONE).map(usize::from) {
            // Weights are at most 2, so the products fit 16 bits, which every processor multiplies eight at a time.
            let scale = i16::from(table.scales[piece]) * weight;
            let numbers = &table.numbers[piece * SIZE / 2..(piece + 1) * SIZE / 2];
            for ((first, second), byte) in first.iter_mut().zip(&mut *second).zip(numbers) {
                *first += i32::from(scale * (i16::from(byte & 15) - 8));
                *second += i32::from(scale * (i16::from(byte >> 4) - 8));
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        for (value, other) in self.values.iter_mut().zip(&other.values) {
            *value += other;
        }
        self.words += other.words;
        self.known += other.known;
    }

    /// Whether most words are in the table as they are. Otherwise the text is in another language.
    fn is_understood(&self) -> bool {
        self.known > 0 && 2 * self.known >= self.words
    }

    /// Where the sum points.
    pub(super) fn direction(&self) -> Direction {
        let square: i64 = self.values.iter().map(|value| i64::from(*value).pow(2)).sum();
        // One division for all numbers; 32 bits after the point are more than enough.
        let share = (i64::from(UNIT) << 32) / square.isqrt().max(1);
        Direction(self.values.map(|value| ((i64::from(value) * share) >> 32).clamp(-127, 127) as i8))
    }
}

impl Direction {
    fn likeness(&self, other: &Self) -> i32 {
        self.0.iter().zip(&other.0).map(|(one, other)| i32::from(*one) * i32::from(*other)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direction(text: &str) -> Option<Direction> {
        let mut sum = Sum::default();
        text.split(' ').for_each(|word| sum.add(pieces(word), 2));
        sum.is_understood().then(|| sum.direction())
    }

    #[test]
    fn words_that_mean_similar_things_point_in_similar_directions() {
        let likeness = |one, other| match (direction(one), direction(other)) {
            (Some(one), Some(other)) => one.likeness(&other),
            _ => panic!("{one} and {other} are understood"),
        };
        for (word, near, far) in [
            ("picture", "image", "money"),
            ("fix", "repair", "weather"),
            ("buy shoes", "purchase clothes", "forecast rain"),
        ] {
            assert!(likeness(word, near) > likeness(word, far) + UNIT * UNIT / 5, "{word}, {near}, {far}");
        }
        let itself = likeness("picture", "picture") as f32 / (UNIT * UNIT) as f32;
        assert!((itself - 1.0).abs() < 0.05, "{itself}");
    }

    #[test]
    fn other_scripts_and_languages_mean_nothing() {
        for text in ["天気予報", "поиск файлов", "wettervorhersage überprüfung", "qzxv"] {
            assert!(direction(text).is_none(), "{text}");
        }
        assert!(direction("weather forecast").is_some());
    }

    #[test]
    fn words_are_split_into_known_pieces() {
        let known = |word: &str| pieces(word).map(|piece| piece != NONE);
        assert_eq!(known("weather"), [true, false]);
        assert_eq!(known("Weather"), [true, false]);
        assert_eq!(known("weathergpt"), [true, true]);
        assert_eq!(known("café"), [true, false], "accents are folded");
        assert_eq!(known("雨"), [false, false]);
        assert_eq!(known(&"ab".repeat(40)), [false, false]);
    }

    #[test]
    fn the_table_is_whole() {
        let table = table();
        assert_eq!(table.pieces.len(), table.scales.len());
        assert_eq!(table.scales.len() * SIZE / 2, table.numbers.len());
        assert!(table.scales.len() < usize::from(NONE));
    }
}
