//! Queries that are a tool's name: complete, the end of it, or a part of it. `rank.rs` puts such tools first.

use super::index::{Index, Tool};
use super::query::{Query, QueryTerm};
use super::score::rarity;
use crate::hash::HashMap;

/// A query with more words than this is not taken for part of a name.
pub(super) const NAME_WORDS: usize = 8;

/// The largest distance at which two words of a sentence count as neighbours. An article may stand between
/// them.
const WITHIN: usize = 2;

/// How a query names a tool. Variants that are more certain come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    No,
    /// Consecutive words of the name; the last word may be incomplete.
    Partly,
    /// The last words of the name.
    BySuffix,
    /// The first sentence of the tool's description.
    BySentence,
    /// All words of the name, possibly mistyped, with grammar among them, or preceded by words of the server's name.
    ByWords,
    /// The exact letters, ignoring case and word separators.
    Exactly,
}

impl Query {
    /// How the query names a tool.
    pub(super) fn names(&self, index: &Index, tool: &Tool) -> Named {
        let (words, name) = (self.sequence.as_slice(), &*tool.name_terms);
        if words.is_empty() {
            return Named::No;
        }
        let all = self.are(words, name);
        if (all || words.len() == 1) && self.spells(&tool.name) {
            Named::Exactly
        } else if all || self.are(&self.name, name) || self.is_qualified(index, tool) {
            Named::ByWords
        } else if self.is_sentence(&tool.sentence) {
            Named::BySentence
        } else if words.len() >= name.len().min(NAME_WORDS + 1)
            || !words.iter().any(|word| self.terms[*word].content)
        {
            Named::No
        } else if self.are(words, &name[name.len() - words.len()..]) {
            Named::BySuffix
        } else if name.windows(words.len()).any(|part| self.begin(index, words, part)) {
            Named::Partly
        } else {
            Named::No
        }
    }

    /// Whether the query is a tool's first sentence, or the part of it after a title.
    pub(super) fn is_sentence(&self, sentence: &[u32]) -> bool {
        self.may_end_sentence(sentence.len())
            && self.are(&self.sequence, &sentence[sentence.len() - self.sequence.len()..])
    }

    /// Whether the query has the length of a sentence of so many words, or of the part of it after a title.
    pub(super) fn may_end_sentence(&self, length: usize) -> bool {
        let words = self.sequence.len();
        length.checked_sub(words).is_some_and(|before| before == 0 || words > before.max(NAME_WORDS / 2))
    }

    /// The share of the query's word pairs that also follow one another in the tool's name or first sentence.
    pub(super) fn pairs_in(&self, tool: &Tool) -> f32 {
        let follow = |terms: &[u32], within: usize, (one, other): (usize, usize)| {
            let (one, other) = (&self.terms[one], &self.terms[other]);
            let first = |at: &usize| one.is(terms[*at]);
            let then = |at: usize| terms[at + 1..].iter().take(within).any(|term| other.is(*term));
            (0..terms.len()).filter(first).any(then)
        };
        let found = self
            .pairs
            .iter()
            .filter(|pair| follow(&tool.name_terms, 1, **pair) || follow(&tool.sentence, WITHIN, **pair));
        found.count() as f32 / self.pairs.len().max(1) as f32
    }

    /// Whether the words match these terms one by one.
    fn are(&self, words: &[usize], terms: &[u32]) -> bool {
        words.len() == terms.len() && words.iter().zip(terms).all(|(word, term)| self.terms[*word].is(*term))
    }

    /// Like [`Self::are`], but the last word may be the beginning of its term.
    fn begin(&self, index: &Index, words: &[usize], terms: &[u32]) -> bool {
        let (Some((word, words)), Some((term, terms))) = (words.split_last(), terms.split_last()) else {
            return false;
        };
        let word = &self.terms[*word];
        (word.is(*term) || word.begins(&index.terms[*term as usize].text)) && self.are(words, terms)
    }

    /// Whether the query consists of words of the server's name followed by the tool's name.
    fn is_qualified(&self, index: &Index, tool: &Tool) -> bool {
        let Some(before) = self.sequence.len().checked_sub(tool.name_terms.len()) else { return false };
        let (server, name) = self.sequence.split_at(before);
        let titles = &index.server(tool.server).title_terms;
        let of_server = |word: &usize| titles.iter().any(|title| self.terms[*word].is(*title));
        self.are(name, &tool.name_terms) && server.iter().all(of_server)
    }
}

impl QueryTerm {
    /// Whether this word matches a term of a name, possibly after a repair.
    fn is(&self, term: u32) -> bool {
        self.variants[..self.literal].iter().any(|variant| variant.0 == term)
    }

    /// Whether this word is the beginning of a longer term.
    fn begins(&self, term: &str) -> bool {
        self.stem.chars().nth(1).is_some() && term.starts_with(&self.stem)
    }
}

/// Measures how much of a tool's name the query covers.
pub(super) struct NameCover<'a> {
    index: &'a Index,
    /// For each term, how well the best word of the query stands for it.
    found: HashMap<u32, f32>,
}

impl<'a> NameCover<'a> {
    pub(super) fn new(index: &'a Index, query: &Query) -> Self {
        let mut found = HashMap::default();
        for &(id, factor) in query.terms.iter().flat_map(|term| &term.variants) {
            let best: &mut f32 = found.entry(id).or_default();
            *best = factor.max(*best);
        }
        Self { index, found }
    }

    /// The share of a name that words of the query cover. Rare words count more.
    pub(super) fn share(&self, tool: &Tool) -> f32 {
        let (mut covered, mut all) = (0.0, 0.0);
        for term in &tool.name_terms {
            let weight = rarity(self.index.terms[*term as usize].tools.len(), self.index.live_tools);
            all += weight;
            covered += weight * self.found.get(term).copied().unwrap_or(0.0);
        }
        if covered > 0.0 { covered / all } else { 0.0 }
    }
}
