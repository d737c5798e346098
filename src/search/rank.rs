//! Ranks tools: named tools first, then by score, preferring tools that cover parts of the query not covered
//! yet.
//!
//! [`Index::search`] is the entry. The constants are tuned together; the tests of the search pin their
//! effect.

use std::cmp::Ordering;
use std::ops::Range;

use super::document::DESTROYS;
use super::index::{Index, Tool};
use super::meaning::{self, Deed};
use super::names::{NAME_WORDS, NameCover, Named};
use super::query::{LONGEST, Query, QueryTerm};
use super::score::{Evidence, Share, rarity};
use super::tokens::words;

/// The weight of the best clause of a query, beside the whole query.
const CLAUSE: f32 = 0.6;
/// The largest bonus for a tool whose name consists of words of the query.
const NAME_COVERED: f32 = 0.17;
/// The largest bonus for a tool in whose name or first sentence words of the query follow one another.
const PHRASE: f32 = 0.2;
/// The bonus for a tool that does what was asked for, and the penalty for one that does something else.
const RIGHT_DEED: f32 = 0.1;
const WRONG_DEED: f32 = 0.3;
/// The bonus for a tool that reads and the penalty for one that removes, where a short query names things and says
/// nothing of what to do with them. Such a query asks to see them.
const READ_UNASKED: f32 = 0.05;
const REMOVE_UNASKED: f32 = 0.1;
/// The share that a term loses if better tools already have it and the query has several clauses.
const COVERED: f32 = 0.45;
/// The share of a term that is left for the tools after one that has it.
const LEFT: f32 = 0.2;
/// The factor for a tool that was already listed.
const AGAIN: f32 = 0.8;
/// How far below the last candidate a tool may score and still be considered, as a share of the best score.
const REACH: f32 = 0.25;
/// The least number of tools that are put in order.
const DEPTH: usize = 40;
/// Scores that differ by less than this share of the best score count as equal.
const TIE: f32 = 0.005;
/// The weight of a tool's text that means what the query means.
const MEANING: f32 = 2.0;
/// The share of a short query that the best of few tools must cover, how much more it is among ten times as many, and
/// the most that it is. Among many tools some cover much by chance, and those that are meant cover more.
const FLOOR: f32 = 0.52;
const FEW: f32 = 36.0;
const FLOOR_OF_TOOLS: f32 = 0.2;
const FLOOR_OF_MANY: f32 = 0.83;
/// A query of n words, grammar included, needs no more than this divided by the square of n, because longer queries
/// mention much that no tool covers.
const FLOOR_OF_WORDS: f32 = 18.0;
/// What must speak for one of the best tools in a long query: the share of the most that words can give, this many
/// times, and the likeness of what is meant. A long request mentions words of tools that it is not about.
const LEAST_EVIDENCE: f32 = 0.33;
const EVIDENCE_OF_WORDS: f32 = 3.0;
/// By how much more a short query must be covered whose verb no tool has, nor a like one (`encrypt a file`). The rest is
/// easily covered.
const UNHEARD: f32 = 1.4;
/// The share that a tool's text adds by meaning what the query means.
const COVERED_BY_MEANING: f32 = 0.5;
/// The part of the share that is left to a tool that removes where nothing is to be removed, or the reverse, or that
/// removes other things than the query names.
const COVERED_WRONGLY: f32 = 0.4;
/// The weight of a verb in what a query asks for. Tools often use another verb for the same action.
const ASKED_BY_VERB: f32 = 0.2;
/// How far a word that stands for another shows that the other was meant.
const TRUST_INSTEAD: f32 = 0.7;
/// The share of a one-word query that a server must cover whose tools are unknown. A query of n words needs this
/// share divided by the square root of n.
const UNKNOWN: f32 = 0.22;
/// The share of the query that the best tools must cover for their subject to be known, where none of them fits.
const NEAR: f32 = 0.35;
/// The number of first tools among which that share is looked for.
const LOOKED_AT: usize = 3;

/// A tool that matches the query.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The key of the tool's server.
    pub server: String,
    /// The tool's name.
    pub tool: String,
    /// The tool's position among its server's tools, from 0.
    pub position: usize,
    /// The relative score, never higher than that of the previous hit.
    pub score: f32,
    /// The words of the query that the tool has, as the query spells them.
    pub matched: Vec<String>,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The matching tools, best first. If there are none, the caller should list the servers instead.
    pub hits: Vec<Hit>,
    /// The keys of servers that match by their description and whose tools are unknown, best first.
    pub servers: Vec<String>,
    /// If there are no hits: the key of the server that the query is about, although it has no such tool.
    pub near: Option<String>,
    /// The share of the query, 0 to 1, that the best tools cover. Below a floor there are no hits.
    pub coverage: f32,
}

impl Index {
    /// Returns the tools that match a query best, at most `limit`.
    ///
    /// A tool whose full name was given comes first, then tools whose names end with the query, then tools
    /// whose names contain it, then all others. Among equal scores, read-only tools come before unknown ones
    /// and destructive tools come last; then the order of the servers decides, then that of their tools.
    pub fn search(&self, text: &str, limit: usize) -> Outcome {
        let query = Query::new(self, text);
        let evidence = Evidence::new(self, &query);
        // A number is a value for a tool, not a wish, unless there is nothing else.
        let counts = |term: &QueryTerm| term.content && !term.is_number();
        let only_numbers = !query.terms.iter().any(counts);
        let asks = |term: &QueryTerm| if only_numbers || counts(term) { term.asked(self) } else { 0.0 };
        let asked = query.terms.iter().map(|term| (asks(term), term.trust())).collect();
        let ranking = Ranking { index: self, query: &query, evidence: &evidence, asked };
        let (hits, coverage) = ranking.tools(limit);
        let key = |number| self.server(number).key.to_string();
        let servers: Vec<String> = ranking.unknown_servers().map(key).collect();
        // A server whose tools are unknown may have what is sought, so nothing is missing yet.
        let missing = hits.is_empty() && servers.is_empty() && coverage >= NEAR;
        let near = if missing { ranking.near().map(key) } else { None };
        Outcome { hits, servers, near, coverage }
    }
}

impl Index {
    /// The ranges of a text that match words of a query, directly, after a repair, or by a synonym.
    pub fn marks(&self, query: &str, text: &str) -> Vec<Range<usize>> {
        let query = Query::new(self, query);
        let sought = |term: &&QueryTerm| term.content && term.weight > 0.0;
        let stands = |stem: &str| {
            let id = self.find(stem);
            query.terms.iter().filter(sought).any(|term| {
                term.stem == stem || id.is_some_and(|id| term.variants.iter().any(|variant| variant.0 == id))
            })
        };
        let mut marks: Vec<Range<usize>> = Vec::new();
        words(text, |word| {
            let range = word.start..word.start + word.raw.len();
            match marks.last_mut() {
                _ if !stands(&self.stem(word.raw)) => {}
                // Pairs of characters overlap, and a whole identifier comes after its parts.
                Some(last) if range.start < last.end => {
                    *last = last.start.min(range.start)..last.end.max(range.end);
                }
                _ => marks.push(range),
            }
        });
        marks
    }
}

struct Ranking<'a> {
    index: &'a Index,
    query: &'a Query,
    evidence: &'a Evidence,
    /// For each term of the query, how much it asks for and how far a match shows that the term was meant.
    asked: Vec<(f32, f32)>,
}

/// A tool that is being ranked.
#[derive(Clone, Copy)]
struct Candidate {
    number: u32,
    named: Named,
    score: f32,
    /// The score in steps; scores within one step count as equal.
    step: i32,
}

impl Ranking<'_> {
    /// The best tools and the share of the query that they cover. There are none if that share is too small.
    fn tools(&self, limit: usize) -> (Vec<Hit>, f32) {
        let scores = self.scores();
        let top = scores.iter().copied().fold(0.0, f32::max);
        let names = NameCover::new(self.index, self.query);
        let mut candidates: Vec<Candidate> = Vec::new();
        let depth = DEPTH.max(2 * limit);
        let least = least(&scores, depth, top);
        for (number, score) in (0..).zip(&scores).filter(|(_, score)| **score > 0.0) {
            let may_be_named = self.may_be_named(number);
            if *score < least && !may_be_named {
                continue;
            }
            let tool = self.index.tool(number);
            let named = if may_be_named { self.query.names(self.index, tool) } else { Named::No };
            let score = score + top * self.beside(number, tool, &names);
            candidates.push(Candidate { number, named, score, step: 0 });
        }
        let best = candidates.iter().map(|candidate| candidate.score).fold(f32::MIN_POSITIVE, f32::max);
        for candidate in &mut candidates {
            candidate.step = (candidate.score / best / TIE).round() as i32;
        }
        let order = |a: &Candidate, b: &Candidate| self.order(a, b);
        if depth < candidates.len() {
            candidates.select_nth_unstable_by(depth - 1, order);
            candidates.truncate(depth);
        }
        candidates.sort_unstable_by(order);
        candidates.retain(|candidate| candidate.named > Named::No || self.has_content(candidate.number));
        let coverage = self.coverage(&candidates);
        let fits = coverage >= self.floor() && self.has_evidence(&candidates);
        (if fits { self.hits(self.spread(&candidates, limit)) } else { Vec::new() }, coverage)
    }

    /// The evidence for or against a tool apart from its words. A value of 1 weighs as much as the best
    /// words.
    fn beside(&self, number: u32, tool: &Tool, names: &NameCover<'_>) -> f32 {
        let mut sum = PHRASE * self.query.pairs_in(tool) + MEANING * self.likeness(number);
        if self.evidence.in_name[number as usize] {
            sum += NAME_COVERED * names.share(tool);
        }
        match (self.query.deed, tool.deed) {
            (Some(wanted), Some(done)) if wanted == done => sum += RIGHT_DEED,
            (Some(_), Some(_)) => sum -= WRONG_DEED,
            (None, Some(Deed::Read)) if self.query.is_short => sum += READ_UNASKED,
            (None, Some(Deed::Remove)) if self.query.is_short => sum -= REMOVE_UNASKED,
            _ => {}
        }
        sum
    }

    /// How far the tool's text means what the query means.
    fn likeness(&self, number: u32) -> f32 {
        self.query.sense.likeness(&self.index.tool(number).direction)
    }

    /// Whether the query may name this tool: it is short enough for a part of a name, as long as this name,
    /// or the tool's first sentence.
    fn may_be_named(&self, number: u32) -> bool {
        let words = self.query.sequence.len();
        self.evidence.in_name[number as usize]
            && (words <= NAME_WORDS || words == self.index.name_length(number))
            // Most tools are passed over by the length of their sentences, which is near at hand.
            || self.query.may_end_sentence(self.index.sentence_length(number))
                && self.query.is_sentence(&self.index.tool(number).sentence)
    }

    /// The score of each tool, by its number; 0 for a tool without any word of the query.
    fn scores(&self) -> Vec<f32> {
        let mut whole = vec![0.0; self.index.tools.len()];
        let mut servers = vec![0.0; self.index.servers.len()];
        let mut touched = Vec::new();
        self.sum(u64::MAX, &mut whole, &mut servers, &mut touched);
        if self.query.clauses == 1 {
            return whole;
        }
        let mut best = vec![0.0; whole.len()];
        let mut part = vec![0.0; whole.len()];
        let top = touched.iter().map(|&at| whole[at as usize]).fold(0.0, f32::max);
        for clause in 0..self.query.clauses {
            self.sum(1 << clause, &mut part, &mut servers, &mut touched);
            let most = touched.iter().map(|&at| part[at as usize]).fold(0.0, f32::max);
            for &at in &touched {
                let value = std::mem::take(&mut part[at as usize]) * top / most;
                let best = &mut best[at as usize];
                *best = value.max(*best);
            }
        }
        for (whole, best) in whole.iter_mut().zip(best) {
            *whole += CLAUSE * best;
        }
        whole
    }

    /// Adds up the evidence of the terms in `clauses`.
    fn sum(&self, clauses: u64, scores: &mut [f32], servers: &mut [f32], touched: &mut Vec<u32>) {
        touched.clear();
        servers.fill(0.0);
        let terms = self.query.terms.iter().zip(self.evidence.tools()).zip(self.evidence.servers());
        for ((_, tools), given) in terms.filter(|((term, _), _)| term.clauses & clauses != 0) {
            for &(server, value) in given {
                servers[server as usize] += value;
            }
            for share in tools {
                let score = &mut scores[share.doc as usize];
                if *score == 0.0 {
                    touched.push(share.doc);
                    *score = f32::MIN_POSITIVE;
                }
                *score += share.beyond;
            }
        }
        for &tool in &*touched {
            scores[tool as usize] += servers[self.index.shapes[tool as usize].server as usize];
        }
    }

    /// Orders two candidates by name match, then by score step, then harmless before destructive, then by
    /// exact score, then by position in the file.
    fn order(&self, a: &Candidate, b: &Candidate) -> Ordering {
        let (tool, other) = (self.index.tool(a.number), self.index.tool(b.number));
        let by_score = (b.named, b.step).cmp(&(a.named, a.step));
        by_score
            .then_with(|| (tool.risk == DESTROYS).cmp(&(other.risk == DESTROYS)))
            .then_with(|| b.score.total_cmp(&a.score))
            .then_with(|| tool.risk.cmp(&other.risk))
            .then_with(|| self.index.place(tool.server).cmp(&self.index.place(other.server)))
            .then_with(|| tool.position.cmp(&other.position))
    }

    /// The largest share of the query that one of the first tools covers.
    fn coverage(&self, candidates: &[Candidate]) -> f32 {
        let all: f32 = self.asked.iter().map(|asked| asked.0).sum();
        let had = |candidate: &Candidate| {
            let terms = self.asked.iter().zip(self.evidence.tools());
            let found = terms.filter(|(_, tools)| own(tools, candidate.number) > 0.0);
            let share =
                found.map(|((asked, trust), _)| asked * trust).sum::<f32>() / all.max(f32::MIN_POSITIVE);
            let share = share + COVERED_BY_MEANING * self.likeness(candidate.number).max(0.0);
            // Other deeds go by many names (`add two numbers`), but removing is never meant by chance.
            let removes = |deed: Option<Deed>| deed.map(|deed| deed == Deed::Remove);
            let (wanted, done) = (removes(self.query.deed), removes(self.index.tool(candidate.number).deed));
            let wrong = wanted.zip(done).is_some_and(|(wanted, done)| wanted != done)
                || done == Some(true) && self.has_only_verbs(candidate.number);
            if wrong { COVERED_WRONGLY * share } else { share }
        };
        let first = candidates.iter().take(LOOKED_AT);
        first
            .map(|candidate| if candidate.named > Named::No { 1.0 } else { had(candidate) })
            .fold(0.0, f32::max)
            .min(1.0)
    }

    /// Whether a tool has none of the things that the query names, only what is to be done with them.
    fn has_only_verbs(&self, number: u32) -> bool {
        let terms = self.query.terms.iter().zip(&self.asked).zip(self.evidence.tools());
        let mut things = terms
            .filter(|((term, asked), _)| asked.0 > 0.0 && meaning::deed(&term.stem).is_none())
            .peekable();
        things.peek().is_some() && things.all(|(_, tools)| own(tools, number) <= 0.0)
    }

    /// Whether words and meaning together speak for one of the first tools, if the query is long. Of one in a language
    /// that the table of meanings does not know, nothing can be said.
    fn has_evidence(&self, candidates: &[Candidate]) -> bool {
        if self.query.is_short {
            return true;
        }
        let terms = self.query.terms.iter().filter(|term| !term.is_number());
        let most: f32 = terms.map(|term| term.weight * term.rarity(self.index)).sum();
        candidates.iter().take(LOOKED_AT).any(|candidate| {
            let tool = self.index.tool(candidate.number);
            let Some(likeness) = self.query.sense.likeness_to_whole(&tool.direction) else { return true };
            let words: f32 = self.evidence.tools().map(|tools| own(tools, candidate.number)).sum();
            let evidence = EVIDENCE_OF_WORDS * words / most.max(f32::MIN_POSITIVE) + likeness;
            candidate.named > Named::No || evidence >= LEAST_EVIDENCE
        })
    }

    /// The number of words that say what is sought. An identifier is one word.
    fn words(&self) -> f32 {
        self.query.terms.iter().filter(|term| term.content && term.alone).count().max(1) as f32
    }

    /// The share of the query that the best tools must cover.
    fn floor(&self) -> f32 {
        let floor = floor(self.index.live_tools, self.query.sequence.len());
        if self.begins_unheard() { UNHEARD * floor } else { floor }
    }

    /// Whether a short query begins with a verb that nothing here stands for. Grammar or a number follows a verb, but
    /// hardly a thing.
    fn begins_unheard(&self) -> bool {
        let words: Vec<&QueryTerm> =
            self.query.sequence.iter().take(2).map(|at| &self.query.terms[*at]).collect();
        let [verb, next] = words.as_slice() else { return false };
        self.query.is_short
            && verb.content
            && verb.variants.is_empty()
            && (meaning::is_stop(&next.word.to_lowercase()) || next.is_number())
    }

    /// Repeatedly takes the tool that adds most to what the tools taken so far cover.
    fn spread(&self, candidates: &[Candidate], limit: usize) -> Vec<Candidate> {
        let terms = self.query.terms.len();
        let lost = if self.query.clauses > 1 { COVERED * (1.0 - LEFT) } else { 0.0 };
        let mut shares = vec![0.0; terms * candidates.len()];
        for (row, candidate) in shares.chunks_mut(terms.max(1)).zip(candidates) {
            for (share, tools) in row.iter_mut().zip(self.evidence.tools()) {
                *share = own(tools, candidate.number);
            }
        }
        let named = candidates.partition_point(|candidate| candidate.named > Named::No).min(limit);
        let mut taken = candidates[..named].to_vec();
        let mut rest: Vec<(usize, f32)> = (named..candidates.len()).map(|at| (at, 1.0)).collect();
        let mut covered = vec![0.0; terms];
        while taken.len() < limit && !rest.is_empty() {
            let (mut place, mut score) = (0, f32::MIN);
            for (at, (candidate, again)) in rest.iter().enumerate() {
                let row = &shares[candidate * terms..(candidate + 1) * terms];
                let had: f32 = row.iter().zip(&covered).map(|(share, covered)| share * covered).sum();
                let value = (candidates[*candidate].score - lost * had) * again;
                if value > score {
                    (place, score) = (at, value);
                }
            }
            let (at, _) = rest.remove(place);
            for (covered, share) in covered.iter_mut().zip(&shares[at * terms..(at + 1) * terms]) {
                if *share > 0.0 {
                    *covered = 1.0;
                }
            }
            for (other, again) in &mut rest {
                if self.same_tool(candidates[*other].number, candidates[at].number) {
                    *again *= AGAIN;
                }
            }
            taken.push(Candidate { score, ..candidates[at] });
        }
        taken
    }

    /// Whether two entries are the same tool offered twice, as when a server is in two toolboxes.
    fn same_tool(&self, one: u32, other: u32) -> bool {
        let (one, other) = (self.index.tool(one), self.index.tool(other));
        one.name_terms == other.name_terms && (one.server == other.server || one.text_hash == other.text_hash)
    }

    fn hits(&self, candidates: Vec<Candidate>) -> Vec<Hit> {
        let mut before = f32::MAX;
        let top = candidates.iter().map(|candidate| candidate.score).fold(0.0, f32::max);
        let hit = |candidate: Candidate| {
            let tool = self.index.tool(candidate.number);
            let score = candidate.score + f32::from(candidate.named as u8) * top;
            before = score.min(before);
            Hit {
                server: self.index.server(tool.server).key.to_string(),
                tool: tool.name.to_string(),
                position: tool.position as usize,
                score: before,
                matched: self.matched(candidate.number),
            }
        };
        candidates.into_iter().map(hit).collect()
    }

    /// The words of the query that a tool has. Grammar and talk count only if the query has nothing else.
    fn matched(&self, number: u32) -> Vec<String> {
        let terms = || self.query.terms.iter().zip(self.evidence.tools());
        let plain = !terms().any(|(term, _)| term.content);
        terms()
            .filter(|(term, tools)| (term.content || plain) && own(tools, number) > 0.0)
            .map(|(term, _)| term.word.clone())
            .collect()
    }

    /// Whether a tool has a content word of the query.
    fn has_content(&self, number: u32) -> bool {
        let mut terms = self.query.terms.iter().zip(self.evidence.tools());
        terms.any(|(term, tools)| term.content && own(tools, number) > 0.0)
    }

    /// The matching servers whose tools are unknown, best first, since no tool can represent them.
    fn unknown_servers(&self) -> impl Iterator<Item = u32> {
        let all: f32 = self.asked.iter().map(|asked| asked.0).sum();
        let least = UNKNOWN / self.words().sqrt() * all;
        let fits =
            move |server: &Covering| server.asked >= least && self.index.server(server.number).count == 0;
        self.servers(|_| true).into_iter().filter(fits).map(|server| server.number)
    }

    /// The server that has most of what the query is about, whatever is to be done with it.
    fn near(&self) -> Option<u32> {
        let things = self.servers(|term| meaning::deed(&term.stem).is_none());
        let mut numbers = things.into_iter().map(|server| server.number);
        numbers.find(|number| self.index.server(*number).count > 0)
    }

    /// The servers whose text, or that of their tools, has one of these terms, best first.
    fn servers(&self, counts: impl Fn(&QueryTerm) -> bool) -> Vec<Covering> {
        let mut scores = vec![(0.0, 0.0); self.index.servers.len()];
        let terms = self.query.terms.iter().zip(&self.asked).zip(self.evidence.servers());
        for ((_, (asked, trust)), given) in terms.filter(|((term, _), _)| counts(term)) {
            for &(server, value) in given {
                let score = &mut scores[server as usize];
                *score = (score.0 + value, score.1 + asked * trust);
            }
        }
        let found = (0..).zip(scores).map(|(number, (score, asked))| Covering { number, score, asked });
        let mut found: Vec<_> = found.filter(|server| server.score > 0.0 && server.asked > 0.0).collect();
        let place = |server: &Covering| self.index.place(server.number);
        found.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then_with(|| place(a).cmp(&place(b))));
        found
    }
}

/// A server that has terms of the query.
struct Covering {
    number: u32,
    score: f32,
    /// How much these terms ask for.
    asked: f32,
}

impl QueryTerm {
    /// How much the term asks for: more for a rarer term, most for one that no tool has, little for a verb,
    /// nothing for grammar, talk, keys and sequences.
    fn asked(&self, index: &Index) -> f32 {
        if !self.content || self.word.len() > LONGEST {
            return 0.0;
        }
        match meaning::deed(&self.stem) {
            Some(_) if !self.known => {
                ASKED_BY_VERB * self.weight * rarity(index.live_tools as usize, index.live_tools)
            }
            Some(_) => ASKED_BY_VERB * self.weight * self.rarity(index),
            None => self.weight * self.rarity(index),
        }
    }

    /// How rare the term is among tools; most for one that no tool has.
    fn rarity(&self, index: &Index) -> f32 {
        let own = self.variants.first().filter(|_| self.known);
        rarity(own.map_or(0, |own| index.terms[own.0 as usize].tools.len()), index.live_tools)
    }

    fn is_number(&self) -> bool {
        self.word.bytes().all(|letter| letter.is_ascii_digit())
            || ["one", "two", "three"].contains(&&*self.stem)
    }

    /// How far a match shows that the term was meant: less if the word had to be repaired or replaced.
    fn trust(&self) -> f32 {
        let (repaired, instead) = self.variants.split_at(self.literal);
        let repaired = repaired.iter().map(|variant| variant.1.powi(3));
        repaired.chain(instead.iter().map(|variant| TRUST_INSTEAD * variant.1)).fold(0.0, f32::max)
    }
}

/// The share of a query of so many words that one of so many tools must cover.
fn floor(tools: u32, words: usize) -> f32 {
    let among = FLOOR + FLOOR_OF_TOOLS * (tools as f32 / FEW).max(1.0).log10();
    among.min(FLOOR_OF_MANY).min(FLOOR_OF_WORDS / (words.max(1) as f32).powi(2))
}

/// The score below which the other evidence hardly ever lifts a tool into the first `depth`.
fn least(scores: &[f32], depth: usize, top: f32) -> f32 {
    let mut found = Vec::with_capacity(scores.len());
    found.extend(scores.iter().copied().filter(|score| *score > 0.0));
    if depth >= found.len() {
        return 0.0;
    }
    let (_, last, _) = found.select_nth_unstable_by(depth - 1, |a, b| b.total_cmp(a));
    *last - REACH * top
}

/// The value of a term for a tool from the tool's own text.
fn own(tools: &[Share], number: u32) -> f32 {
    tools.binary_search_by_key(&number, |share| share.doc).map_or(0.0, |at| tools[at].own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_must_be_covered_among_many_tools_and_less_of_a_long_query() {
        assert!(
            floor(10_000, 3) > floor(500, 3) && floor(500, 3) > floor(36, 3),
            "chance covers more of many"
        );
        assert!(floor(10_000, 3) < 0.9, "a query with a word of its own is answered among any number");
        assert!(floor(36, 20) < floor(36, 10) && floor(36, 10) < floor(36, 3), "stories mention much");
        assert_eq!((floor(0, 0), floor(36, 3)), (FLOOR, FLOOR), "few are judged alike");
    }
}
