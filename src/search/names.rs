//! Queries that are names: typed in full, from their end, or in part.

use super::index::{Index, Tool};
use super::query::{Query, QueryTerm};
use super::score::rarity;
use crate::hash::HashMap;

/// Queries of more words than this are no parts of names.
pub(super) const NAME_WORDS: usize = 8;

/// How far apart, at most, two words of a sentence belong together: there may be an article between them.
const WITHIN: usize = 2;

/// How a query names a tool, if it does; the surest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    No,
    /// Some words of the name in a row, the last one perhaps not finished.
    Partly,
    /// The last words of the name.
    BySuffix,
    /// The first sentence of its description.
    BySentence,
    /// All words of the name, perhaps mistyped, perhaps with words of the server's name before them.
    ByWords,
    /// Letter by letter, but for case and what parts the words.
    Exactly,
}

impl Query {
    /// How this query names a tool.
    pub(super) fn names(&self, index: &Index, tool: &Tool) -> Named {
        let (words, name) = (self.sequence.as_slice(), &*tool.name_terms);
        if words.is_empty() {
            return Named::No;
        }
        let all = self.are(words, name);
        if (all || words.len() == 1) && self.spells(&tool.name) {
            Named::Exactly
        } else if all || self.is_qualified(index, tool) {
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

    /// Whether the query is a first sentence, or what follows a title in it.
    pub(super) fn is_sentence(&self, sentence: &[u32]) -> bool {
        let words = self.sequence.as_slice();
        let Some(before) = sentence.len().checked_sub(words.len()) else { return false };
        (before == 0 || words.len() > before.max(NAME_WORDS / 2)) && self.are(words, &sentence[before..])
    }

    /// The share of the pairs of words in a query that follow one another in a tool's name or first sentence too.
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

    /// Whether the words are these terms, one by one.
    fn are(&self, words: &[usize], terms: &[u32]) -> bool {
        words.len() == terms.len() && words.iter().zip(terms).all(|(word, term)| self.terms[*word].is(*term))
    }

    /// The same, but the last word need only be a beginning.
    fn begin(&self, index: &Index, words: &[usize], terms: &[u32]) -> bool {
        let (Some((word, words)), Some((term, terms))) = (words.split_last(), terms.split_last()) else {
            return false;
        };
        let word = &self.terms[*word];
        (word.is(*term) || word.begins(&index.terms[*term as usize].text)) && self.are(words, terms)
    }

    /// Whether the query is words of the server's name and then the tool's name.
    fn is_qualified(&self, index: &Index, tool: &Tool) -> bool {
        let Some(before) = self.sequence.len().checked_sub(tool.name_terms.len()) else { return false };
        let (server, name) = self.sequence.split_at(before);
        let titles = &index.server(tool.server).title_terms;
        let of_server = |word: &usize| titles.iter().any(|title| self.terms[*word].is(*title));
        self.are(name, &tool.name_terms) && server.iter().all(of_server)
    }
}

impl QueryTerm {
    /// Whether a term of a name is this word, mistyped or not.
    fn is(&self, term: u32) -> bool {
        self.variants[..self.literal].iter().any(|variant| variant.0 == term)
    }

    /// Whether this word is the beginning of a longer one.
    fn begins(&self, term: &str) -> bool {
        self.stem.chars().nth(1).is_some() && term.starts_with(&self.stem)
    }
}

/// How much of a tool's name is words of a query.
pub(super) struct NameCover<'a> {
    index: &'a Index,
    /// How well some word of the query stands for a term.
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

    /// The share of a name that is words of the query, the rare ones counting more.
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
