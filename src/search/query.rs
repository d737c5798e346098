//! From the words of a query to weighted terms, each with the terms that may stand for it.

use std::collections::HashMap;

use super::index::Index;
use super::meaning::{self, Deed};
use super::tokens::{Word, fold, grams, words};

/// What a word of grammar counts in a short query, where it may tell tools apart; in longer ones, nothing.
const STOP: f32 = 0.25;
/// How many words of content a short query has at most.
const SHORT: usize = 5;
/// What a verb counts in a short query, since tools have other verbs for the same.
const VERB: f32 = 0.7;
/// Among how many words, from the first, the verb of a short query is looked for.
const VERB_WITHIN: usize = 4;
/// Queries of more pairs of words than this tell a story, in which what follows what says little.
const PAIRS: usize = 6;
/// What a word of talk counts.
const TALK: f32 = 0.3;
/// What each part of an identifier counts, beside the whole.
const PART: f32 = 0.5;
/// A term that stands twice counts 2^REPEATED.
const REPEATED: f32 = 0.35;
/// How well other words stand for one that some tool has: one that means the same, one that is near.
const SAME: f32 = 0.3;
const NEAR: f32 = 0.3;
/// The same where no tool has the word.
const INSTEAD: f32 = 0.9;
/// How well a longer word stands for one that it begins or ends with.
const LONGER: f32 = 0.3;
/// From how much likeness on (Dice, of three-letter runs) a word is taken for a mistyped one.
const LIKENESS: f32 = 0.6;
/// From how much likeness on the slips of the fingers are counted.
const CANDIDATE: f32 = 0.3;
/// Longer than this, in bytes, a word is no mistyped one: a key, a sequence.
const LONGEST: usize = 64;
/// At most this many clauses are told apart.
const CLAUSES: usize = 64;

/// A query, understood as far as words go.
pub(super) struct Query {
    pub(super) terms: Vec<QueryTerm>,
    pub(super) clauses: usize,
    /// The words in order, as places in `terms`.
    pub(super) sequence: Vec<usize>,
    /// Words that follow one another, grammar left out, as places in `terms`.
    pub(super) pairs: Vec<(usize, usize)>,
    /// What a short query wants to be done, if it says so.
    pub(super) deed: Option<Deed>,
    /// Letters and digits alone, folded.
    plain: String,
}

/// One term of a query.
pub(super) struct QueryTerm {
    pub(super) stem: String,
    /// As it was first written.
    pub(super) word: String,
    pub(super) weight: f32,
    /// The clauses that it stands in, one bit each.
    pub(super) clauses: u64,
    /// Says what is sought, unlike grammar and talk.
    pub(super) content: bool,
    /// Terms of the index that stand for it and how well they do; the term itself first.
    pub(super) variants: Vec<(u32, f32)>,
    /// Some tool or server has the term itself.
    pub(super) known: bool,
    /// How many of `variants`, from the first, are the word itself or its repair.
    pub(super) literal: usize,
}

impl Query {
    /// Reads a query.
    pub(super) fn new(index: &Index, text: &str) -> Self {
        let breaks = clause_breaks(text);
        let mut seen: Vec<(Word<'_>, bool, bool)> = Vec::new();
        words(text, |word| {
            let lower = word.raw.to_lowercase();
            seen.push((word, meaning::is_stop(&lower), meaning::is_talk(&lower)));
        });
        let content = seen.iter().filter(|(word, stop, talk)| !stop && !talk && !word.whole).count();
        if content == 0 {
            // Talk is all there is, so it is what was meant.
            seen.iter_mut().for_each(|(_, _, talk)| *talk = false);
        }
        // So it is with grammar, as in `who am i` or `to be or not`. It is never mistyped, nor said in other words.
        let grammar = seen.iter().all(|(word, stop, _)| *stop || word.whole);
        if grammar {
            seen.iter_mut().for_each(|(_, stop, _)| *stop = false);
        }
        let mut query = Self {
            terms: Vec::new(),
            clauses: breaks.len() + 1,
            sequence: Vec::new(),
            pairs: Vec::new(),
            deed: None,
            plain: plain(text),
        };
        let mut before = None;
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut counts: Vec<f32> = Vec::new();
        for (word, stop, talk) in &seen {
            let stem = index.stem(word.raw);
            let place = *places.entry(stem).or_insert_with_key(|stem| {
                query.terms.push(QueryTerm::new(stem, word.raw, !stop && !talk));
                counts.push(0.0);
                query.terms.len() - 1
            });
            let weight = match (stop, talk) {
                (true, _) if content > SHORT => 0.0,
                (true, _) => STOP,
                (_, true) => TALK,
                _ if content <= SHORT && meaning::deed(&query.terms[place].stem).is_some() => VERB,
                _ => 1.0,
            };
            let term = &mut query.terms[place];
            term.weight = term.weight.max(if word.part { PART * weight } else { weight });
            term.clauses |= 1 << breaks.partition_point(|at| *at <= word.start).min(CLAUSES - 1);
            counts[place] += 1.0;
            if word.whole {
                continue;
            }
            if content <= SHORT && query.sequence.len() < VERB_WITHIN {
                query.deed = query.deed.or_else(|| meaning::deed(&term.stem));
            }
            query.sequence.push(place);
            if !stop {
                query.pairs.extend(before.replace(place).map(|before| (before, place)));
            }
        }
        for (term, count) in query.terms.iter_mut().zip(counts) {
            term.weight *= count.powf(REPEATED);
            term.find_variants(index, grammar);
        }
        let stands = |place: usize| query.terms[place].literal > 0;
        query.pairs.retain(|(one, other)| stands(*one) && stands(*other));
        if query.pairs.len() > PAIRS {
            query.pairs.clear();
        }
        query
    }
}

impl QueryTerm {
    fn new(stem: &str, word: &str, content: bool) -> Self {
        Self {
            stem: stem.to_owned(),
            word: word.to_owned(),
            weight: 0.0,
            clauses: 0,
            content,
            variants: Vec::new(),
            known: false,
            literal: 0,
        }
    }

    /// Finds the terms that may stand for it; `literally` none but itself.
    fn find_variants(&mut self, index: &Index, literally: bool) {
        let own = index.find(&self.stem);
        self.known = own.is_some();
        self.variants.extend(own.map(|id| (id, 1.0)));
        if literally {
            self.literal = self.variants.len();
            return;
        }
        let is_long = |text: &str| text.chars().count() >= 4 && !text.chars().any(char::is_numeric);
        if own.is_none() && is_long(&self.word) && self.word.len() <= LONGEST {
            self.variants = repairs(index, &self.stem, &self.word);
        }
        self.literal = self.variants.len();
        if self.weight <= 0.0 {
            return;
        }
        let (same, near) = if own.is_some() { (SAME, NEAR) } else { (INSTEAD, INSTEAD) };
        for (other, is_same) in meaning::of(&self.stem) {
            if let Some(id) = index.find(other) {
                self.add(id, if *is_same { same } else { near });
            }
        }
        if is_long(&self.stem) {
            for id in longer(index, &self.stem) {
                self.add(id, LONGER);
            }
        }
    }

    fn add(&mut self, id: u32, factor: f32) {
        match self.variants.iter_mut().find(|known| known.0 == id) {
            Some(known) => known.1 = known.1.max(factor),
            None => self.variants.push((id, factor)),
        }
    }
}

/// Terms of names that begin or end with the stem: `weather` finds `weathergpt`.
fn longer(index: &Index, stem: &str) -> Vec<u32> {
    let mut inner: Vec<u32> = Vec::new();
    grams(stem, |gram| inner.push(gram));
    let mut rarest: &[u32] = &[];
    for (at, gram) in inner[1..inner.len() - 1].iter().enumerate() {
        let list = index.terms_with(*gram);
        if at == 0 || list.len() < rarest.len() {
            rarest = list;
        }
    }
    let fits = |id: &&u32| {
        let term = &index.terms[**id as usize];
        let text = &*term.text;
        term.names > 0 && text.len() > stem.len() && (text.starts_with(stem) || text.ends_with(stem))
    };
    rarest.iter().filter(fits).copied().collect()
}

/// The terms most like a stem that no text has: a slip or two of the fingers away, or made of the same runs.
fn repairs(index: &Index, stem: &str, word: &str) -> Vec<(u32, f32)> {
    let mut runs: Vec<u32> = Vec::new();
    grams(stem, |gram| runs.push(gram));
    runs.sort_unstable();
    runs.dedup();
    let mut shared: Vec<u32> = runs.iter().flat_map(|gram| index.terms_with(*gram)).copied().collect();
    shared.sort_unstable();
    let letters = stem.chars().count();
    let slips = if letters >= 8 { 2 } else { 1 };
    let mut near: Vec<(u32, f32)> = Vec::new();
    for run in shared.chunk_by(|a, b| a == b) {
        if ((2 * run.len()) as f32) < CANDIDATE * (runs.len() + run.len()) as f32 {
            continue;
        }
        let term = &index.terms[run[0] as usize];
        let length = term.text.chars().count();
        let dice = 2.0 * run.len() as f32 / (runs.len() + length) as f32;
        if dice < CANDIDATE || term.tools.is_empty() || length < 3 {
            continue;
        }
        let distance = strsim::osa_distance(stem, &term.text);
        if distance <= slips {
            near.push((run[0], dice.max(1.0 - distance as f32 / letters.max(length) as f32)));
        } else if dice >= LIKENESS {
            near.push((run[0], dice));
        }
    }
    // Two letters that changed places leave no run of a short word as it was, and may make another ending of its end.
    let mut swapped: Vec<char> = word.chars().collect();
    for at in 1..swapped.len() {
        swapped.swap(at - 1, at);
        let found = index.find(&index.stem(&swapped.iter().collect::<String>()));
        swapped.swap(at - 1, at);
        if let Some(id) = found.filter(|id| near.iter().all(|known| known.0 != *id)) {
            near.push((id, 1.0 - 1.0 / swapped.len() as f32));
        }
    }
    let text = |id: u32| &index.terms[id as usize].text;
    near.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| text(a.0).cmp(text(b.0))));
    let best = near.first().map_or(0.0, |first| first.1);
    near.retain(|one| one.1 >= best);
    near.truncate(3);
    near
}

/// Where new clauses begin: a query of several sentences often asks for several things.
fn clause_breaks(text: &str) -> Vec<usize> {
    let mut breaks = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let ends = match c {
            '.' | '!' | '?' | ';' | ',' => chars.peek().is_some_and(|next| next.1.is_whitespace()),
            '\n' | '。' | '！' | '？' | '；' | '，' | '、' => true,
            _ => false,
        };
        if ends && chars.peek().is_some() && breaks.len() + 1 < CLAUSES {
            breaks.push(at + c.len_utf8());
        }
    }
    breaks
}

/// Letters and digits alone, folded: the same for `find_symbol`, `findSymbol` and `Find symbol`.
fn plain(text: &str) -> String {
    let mut folded = String::new();
    fold(text, &mut folded);
    folded.retain(char::is_alphanumeric);
    folded
}

impl Query {
    /// Whether a name is the query, but for case, accents and what parts the words.
    pub(super) fn spells(&self, name: &str) -> bool {
        if !name.is_ascii() {
            return plain(name) == self.plain;
        }
        let letters =
            name.bytes().filter(u8::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase());
        letters.eq(self.plain.bytes())
    }
}
