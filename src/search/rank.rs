//! Order: the scores of tools, names first, what was not yet covered before more of the same.

use std::cmp::Ordering;
use std::ops::Range;

use super::document::DESTROYS;
use super::index::{Index, Tool};
use super::names::{NAME_WORDS, NameCover, Named};
use super::query::{Query, QueryTerm};
use super::score::{Evidence, Share, rarity};
use super::tokens::words;

/// What the best clause of a query counts beside the whole.
const CLAUSE: f32 = 0.6;
/// What it counts, at most, that a tool's name is made of words of the query.
const NAME_COVERED: f32 = 0.25;
/// What it counts, at most, that words of the query follow one another in a tool's name or first sentence.
const PHRASE: f32 = 0.2;
/// What it counts that a tool does what was asked for, and what it costs that it does something else.
const RIGHT_DEED: f32 = 0.1;
const WRONG_DEED: f32 = 0.3;
/// What a term that better tools already have loses where the query has several clauses.
const COVERED: f32 = 0.35;
/// What is left of a term for the tools after one that has it.
const LEFT: f32 = 0.2;
/// What a tool keeps when the same one stands before it.
const AGAIN: f32 = 0.8;
/// How far below the last of them, as a share of the best, tools are still looked at.
const REACH: f32 = 0.25;
/// How many tools are put in order at least.
const DEPTH: usize = 40;
/// Scores that differ by less than this share of the best are as good as equal.
const TIE: f32 = 0.005;
/// The share of what a query of one word asks for that the best tool must have; a query of n words, which
/// tells of much that is no tool's business, needs this by the root of n.
const FLOOR: f32 = 0.22;
/// The share is looked for in this many of the first tools.
const LOOKED_AT: usize = 3;

/// A tool that fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The key of its server.
    pub server: String,
    /// Its name.
    pub tool: String,
    /// Its place among its server's tools, from 0.
    pub position: usize,
    /// How well it fits, compared with the others; never more than that of the hit before.
    pub score: f32,
    /// The words of the query that it has, as they were written.
    pub matched: Vec<String>,
}

/// What a search gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The tools that fit, best first. Empty when none does: then it is better to say what servers there are.
    pub hits: Vec<Hit>,
    /// The keys of the servers that fit by what they say, and of which no tool is known, best first.
    pub servers: Vec<String>,
    /// The share of what was asked for, 0 to 1, that the best tools have; below a floor there are no hits.
    pub coverage: f32,
}

impl Index {
    /// The tools that fit a query best, at most `limit`.
    ///
    /// A tool whose name was given in full comes first, then those whose names end with the query, then those
    /// whose names contain it, then all others. Equal scores: what only reads before what is not known, what
    /// destroys last; then the order of the servers, then that of their tools.
    pub fn search(&self, text: &str, limit: usize) -> Outcome {
        let query = Query::new(self, text);
        let evidence = Evidence::new(self, &query);
        let asked = query.terms.iter().map(|term| (term.asked(self), term.trust())).collect();
        let ranking = Ranking { index: self, query: &query, evidence: &evidence, asked };
        let (hits, coverage) = ranking.tools(limit);
        Outcome { hits, servers: ranking.servers(), coverage }
    }
}

impl Index {
    /// Where words of a query stand in a text, as they are, repaired, or by words that mean the same.
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
                // Pairs of characters overlap, and a whole comes after its parts.
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
    /// For each term of the query what it asks for, and how far finding it tells that it was meant.
    asked: Vec<(f32, f32)>,
}

/// A tool on its way into the order.
#[derive(Clone, Copy)]
struct Candidate {
    number: u32,
    named: Named,
    score: f32,
    /// The score in steps that are as good as equal.
    step: i32,
}

impl Ranking<'_> {
    /// The best tools, none where they have too little of what was asked for; and how much they have.
    fn tools(&self, limit: usize) -> (Vec<Hit>, f32) {
        let scores = self.scores();
        let top = scores.iter().copied().fold(0.0, f32::max);
        let names = NameCover::new(self.index, self.query);
        let mut candidates: Vec<Candidate> = Vec::new();
        let depth = DEPTH.max(2 * limit);
        let least = least(&scores, depth, top);
        for (number, score) in (0..).zip(&scores).filter(|(_, score)| **score > 0.0) {
            let tool = self.index.tool(number);
            let may_be_named = self.may_be_named(number, tool);
            if *score < least && !may_be_named {
                continue;
            }
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
        let fits = coverage >= self.floor();
        (if fits { self.hits(self.spread(&candidates, limit)) } else { Vec::new() }, coverage)
    }

    /// What speaks for a tool, or against it, beside its words; 1 is as much as the best words.
    fn beside(&self, number: u32, tool: &Tool, names: &NameCover<'_>) -> f32 {
        let mut sum = PHRASE * self.query.pairs_in(tool);
        if self.evidence.in_name[number as usize] {
            sum += NAME_COVERED * names.share(tool);
        }
        match (self.query.deed, tool.deed) {
            (Some(wanted), Some(done)) if wanted == done => sum += RIGHT_DEED,
            (Some(_), Some(_)) => sum -= WRONG_DEED,
            _ => {}
        }
        sum
    }

    /// Whether the query is short enough to be part of a name, as long as the name of this tool, or its sentence.
    fn may_be_named(&self, number: u32, tool: &Tool) -> bool {
        let words = self.query.sequence.len();
        self.evidence.in_name[number as usize]
            && (words <= NAME_WORDS || words == self.index.name_length(number))
            || self.query.is_sentence(&tool.sentence)
    }

    /// The score of each tool by its number; nothing where it has no word of the query.
    fn scores(&self) -> Vec<f32> {
        let mut whole = vec![0.0; self.index.tools.len()];
        let mut best = vec![0.0; whole.len()];
        let mut part = vec![0.0; whole.len()];
        let mut servers = vec![0.0; self.index.servers.len()];
        let mut touched = Vec::new();
        self.sum(u64::MAX, &mut whole, &mut servers, &mut touched);
        if self.query.clauses == 1 {
            return whole;
        }
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

    /// Adds up the evidence of the terms that stand in one of `clauses`.
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

    /// The name decides, then the score as far as it tells, that nothing is destroyed, the score to the last
    /// digit; then the places in the file.
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

    /// The share of what was asked for that the best of the first few tools has.
    fn coverage(&self, candidates: &[Candidate]) -> f32 {
        let all: f32 = self.asked.iter().map(|asked| asked.0).sum();
        let had = |candidate: &Candidate| {
            let terms = self.asked.iter().zip(self.evidence.tools());
            let found = terms.filter(|(_, tools)| own(tools, candidate.number) > 0.0);
            found.map(|((asked, trust), _)| asked * trust).sum::<f32>() / all.max(f32::MIN_POSITIVE)
        };
        let first = candidates.iter().take(LOOKED_AT);
        first
            .map(|candidate| if candidate.named > Named::No { 1.0 } else { had(candidate) })
            .fold(0.0, f32::max)
    }

    fn floor(&self) -> f32 {
        let words = self.query.terms.iter().filter(|term| term.content).count();
        FLOOR / (words.max(1) as f32).sqrt()
    }

    /// Takes the best, then the best of the rest with what the query still lacks, and so on.
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

    /// Whether two tools are one that is offered twice, as when a server stands in two toolboxes.
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

    /// The words of the query that a tool has, without grammar and talk unless there is nothing else.
    fn matched(&self, number: u32) -> Vec<String> {
        let terms = || self.query.terms.iter().zip(self.evidence.tools());
        let plain = !terms().any(|(term, _)| term.content);
        terms()
            .filter(|(term, tools)| (term.content || plain) && own(tools, number) > 0.0)
            .map(|(term, _)| term.word.clone())
            .collect()
    }

    /// Whether a tool has more of a query than grammar and talk.
    fn has_content(&self, number: u32) -> bool {
        let mut terms = self.query.terms.iter().zip(self.evidence.tools());
        terms.any(|(term, tools)| term.content && own(tools, number) > 0.0)
    }

    /// The servers that fit and of which no tool is known: their tools cannot speak for them.
    fn servers(&self) -> Vec<String> {
        let mut scores = vec![(0.0, 0.0); self.index.servers.len()];
        let all: f32 = self.asked.iter().map(|asked| asked.0).sum();
        for ((asked, trust), given) in self.asked.iter().zip(self.evidence.servers()) {
            for &(server, value) in given {
                let score = &mut scores[server as usize];
                *score = (score.0 + value, score.1 + asked * trust);
            }
        }
        let fits = |(number, (score, had)): &(u32, (f32, f32))| {
            *score > 0.0 && *had > 0.0 && *had >= self.floor() * all && self.index.server(*number).count == 0
        };
        let mut found: Vec<(u32, (f32, f32))> = (0..).zip(scores).filter(fits).collect();
        let place = |number| self.index.place(number);
        found.sort_unstable_by(|a, b| b.1.0.total_cmp(&a.1.0).then_with(|| place(a.0).cmp(&place(b.0))));
        found.into_iter().map(|(number, _)| self.index.server(number).key.to_string()).collect()
    }
}

impl QueryTerm {
    /// What it asks for: more the rarer it is, most where no tool has it; nothing where it is grammar or talk.
    fn asked(&self, index: &Index) -> f32 {
        if !self.content {
            return 0.0;
        }
        let own = self.variants.first().filter(|_| self.known);
        self.weight * rarity(own.map_or(0, |own| index.terms[own.0 as usize].tools.len()), index.live_tools)
    }

    /// How far finding it tells that it was meant: less where it had to be repaired or replaced.
    fn trust(&self) -> f32 {
        let (repaired, instead) = self.variants.split_at(self.literal);
        let repaired = repaired.iter().map(|variant| variant.1.powi(3));
        repaired.chain(instead.iter().map(|variant| variant.1)).fold(0.0, f32::max)
    }
}

/// The score below which hardly any evidence beside the words brings a tool among the first `depth`.
fn least(scores: &[f32], depth: usize, top: f32) -> f32 {
    let mut found = Vec::with_capacity(scores.len());
    found.extend(scores.iter().copied().filter(|score| *score > 0.0));
    if depth >= found.len() {
        return 0.0;
    }
    let (_, last, _) = found.select_nth_unstable_by(depth - 1, |a, b| b.total_cmp(a));
    *last - REACH * top
}

/// What a tool itself has of a term.
fn own(tools: &[Share], number: u32) -> f32 {
    tools.binary_search_by_key(&number, |share| share.doc).map_or(0.0, |at| tools[at].own)
}
