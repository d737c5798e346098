//! Turns the words of a query into weighted terms, each with the terms that may stand for it.

use std::collections::HashMap;

use super::index::Index;
use super::meaning::{self, Deed};
use super::tokens::{Word, fold, grams, words};
use super::vectors::{QuerySense, Sum, pieces};

/// The weight of a grammar word in a short query, where it may tell tools apart. In a longer query the weight
/// is 0.
const STOP: f32 = 0.25;
/// The largest number of content words in a short query.
const SHORT: usize = 5;
/// The weight of a verb in a short query. Tools often use another verb for the same action.
const VERB: f32 = 0.85;
/// The verb of a short query is looked for among this many first words.
const VERB_WITHIN: usize = 4;
/// A query with more word pairs than this is a story, in which the order of words says little.
const PAIRS: usize = 6;
/// The weight of a word that only wraps the request.
const TALK: f32 = 0.4;
/// The weight of each part of an identifier, beside the whole.
const PART: f32 = 0.5;
/// A term that occurs twice has 2^REPEATED times the weight.
const REPEATED: f32 = 0.35;
/// How well another word stands for a word that some tool has: a synonym, and a related word.
const SAME: f32 = 0.3;
const NEAR: f32 = 0.3;
/// How well another word stands for a word that no tool has.
const INSTEAD: f32 = 0.9;
/// How well a longer word stands for a word that it begins or ends with.
const LONGER: f32 = 0.3;
/// The least similarity (Dice coefficient of three-letter runs) at which a word counts as mistyped.
const LIKENESS: f32 = 0.6;
/// The least similarity at which the typing slips are counted.
const CANDIDATE: f32 = 0.3;
/// A word of more bytes than this is a key or a sequence, and is never taken for a mistyped one.
pub(super) const LONGEST: usize = 64;
/// The largest number of clauses that are told apart.
const CLAUSES: usize = 64;

/// A parsed query.
pub(super) struct Query {
    pub(super) terms: Vec<QueryTerm>,
    pub(super) clauses: usize,
    /// The words in order, as indexes into `terms`.
    pub(super) sequence: Vec<usize>,
    /// The words that may be a name's: those in order that are neither grammar nor too long for a word.
    pub(super) name: Vec<usize>,
    /// Words that follow one another, ignoring grammar, as indexes into `terms`.
    pub(super) pairs: Vec<(usize, usize)>,
    /// Whether the query has few words of content.
    pub(super) is_short: bool,
    /// The deed that a short query asks for, if it names one.
    pub(super) deed: Option<Deed>,
    /// What the query means, as far as its words are known.
    pub(super) sense: QuerySense,
    /// The query's letters and digits, folded.
    plain: String,
}

/// One term of a query.
pub(super) struct QueryTerm {
    pub(super) stem: String,
    /// The word as the query first spells it.
    pub(super) word: String,
    pub(super) weight: f32,
    /// A bit for each clause that has the term.
    pub(super) clauses: u64,
    /// Whether the word says what is sought; grammar and talk do not.
    pub(super) content: bool,
    /// Whether the word is written by itself somewhere, not only as a part of an identifier.
    pub(super) alone: bool,
    /// Terms of the index that stand for this one, each with how well it does. The term itself comes first.
    pub(super) variants: Vec<(u32, f32)>,
    /// Whether some tool or server has the term itself.
    pub(super) known: bool,
    /// The number of leading `variants` that are the word itself or a repair of it.
    pub(super) literal: usize,
}

impl Query {
    /// Parses a query.
    pub(super) fn new(index: &Index, text: &str) -> Self {
        let breaks = clause_breaks(text);
        let mut seen: Vec<(Word<'_>, bool, bool)> = Vec::new();
        words(text, |word| {
            let lower = word.raw.to_lowercase();
            seen.push((word, meaning::is_stop(&lower), meaning::is_talk(&lower)));
        });
        let content = seen.iter().filter(|(word, stop, talk)| !stop && !talk && !word.whole).count();
        if content == 0 {
            // The query has no other words, so its talk is what was meant.
            seen.iter_mut().for_each(|(_, _, talk)| *talk = false);
        }
        // Likewise for a query of grammar only, such as `who am i` or `to be or not`. Grammar words are never
        // repaired and have no synonyms.
        let grammar = seen.iter().all(|(word, stop, _)| *stop || word.whole);
        if grammar {
            seen.iter_mut().for_each(|(_, stop, _)| *stop = false);
        }
        let mut query = Self {
            terms: Vec::new(),
            clauses: breaks.len() + 1,
            sequence: Vec::new(),
            name: Vec::new(),
            pairs: Vec::new(),
            is_short: content <= SHORT,
            deed: None,
            sense: QuerySense::default(),
            plain: plain(text),
        };
        let mut sums = vec![Sum::default(); query.clauses];
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
                (true, _) if !query.is_short => 0.0,
                (true, _) => STOP,
                (_, true) => TALK,
                _ if query.is_short && meaning::deed(&query.terms[place].stem).is_some() => VERB,
                _ => 1.0,
            };
            let term = &mut query.terms[place];
            term.weight = term.weight.max(if word.part { PART * weight } else { weight });
            let clause = breaks.partition_point(|at| *at <= word.start).min(CLAUSES - 1);
            term.clauses |= 1 << clause;
            term.alone |= !word.part;
            counts[place] += 1.0;
            if word.whole {
                continue;
            }
            if query.is_short && query.sequence.len() < VERB_WITHIN {
                query.deed = query.deed.or_else(|| meaning::deed(&term.stem));
            }
            query.sequence.push(place);
            if !stop && word.raw.len() <= LONGEST {
                query.name.push(place);
            }
            sums[clause].add(pieces(word.raw), if *stop || *talk { 1 } else { 2 });
            if !stop {
                query.pairs.extend(before.replace(place).map(|before| (before, place)));
            }
        }
        query.sense = QuerySense::new(&sums);
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
            alone: false,
            variants: Vec::new(),
            known: false,
            literal: 0,
        }
    }

    /// Finds the terms that may stand for this one. With `literally`, only the term itself counts.
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

/// Terms of names that begin or end with the stem, as `weathergpt` does for `weather`.
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

/// The terms most similar to a stem that no text has: those one or two typing slips away, or made of the same
/// runs.
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
    // Two swapped letters leave no run of a short word intact, and may change the ending that the stemmer
    // removes.
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

/// The offsets at which new clauses begin. A query of several sentences often asks for several things.
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

/// The folded letters and digits of a text, which are equal for `find_symbol`, `findSymbol` and `Find
/// symbol`.
fn plain(text: &str) -> String {
    let mut folded = String::new();
    fold(text, &mut folded);
    folded.retain(char::is_alphanumeric);
    folded
}

impl Query {
    /// Whether a name equals the query, ignoring case, accents and word separators.
    pub(super) fn spells(&self, name: &str) -> bool {
        if !name.is_ascii() {
            return plain(name) == self.plain;
        }
        let letters =
            name.bytes().filter(u8::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase());
        letters.eq(self.plain.bytes())
    }
}
