//! The index of tools by term: two small inverted indexes, one over tools and one over servers. `rank.rs`
//! searches it.
//!
//! Invariant: postings name live tools and servers only, in ascending order.

use std::hash::BuildHasher;

use super::document::{Counts, packed, risk, split_summary};
use super::meaning::{self, Deed};
use super::tokens::{Stems, fold, grams, words};
use super::vectors::{Direction, Pieces, Sum, pieces};
use super::{ServerDoc, ToolDoc};
use crate::hash::{HashMap, Seeded};

/// The fields of a tool, each with its own weight in `score.rs`.
pub(super) const TOOL_FIELDS: usize = 6;
const NAME: usize = 0;
const SUMMARY: usize = 1;
const DETAILS: usize = 2;
const PARAM_NAMES: usize = 3;
const PARAM_TEXT: usize = 4;
const SERVER: usize = 5;

/// The number of words of a first sentence that are kept in order.
const SENTENCE: usize = 16;

/// The verb of a description is looked for among this many first words, because a title may precede it.
const VERB_WITHIN: usize = 6;

/// The number of words after the first sentence that say what a tool means. What follows is explanation.
const DETAILS_MEANT: usize = 40;

/// The fields of a server.
pub(super) const SERVER_FIELDS: usize = 4;
const TITLE: usize = 0;
const ABOUT: usize = 1;
const TOOL_NAMES: usize = 2;
const TOOL_TEXT: usize = 3;

/// One document that has a term, with the counts by field.
#[derive(Clone, Copy)]
pub(super) struct Posting {
    pub(super) doc: u32,
    /// Four bits per field for tools, eight for servers. Larger counts are stored as the largest that fits.
    pub(super) counts: u32,
}

impl Posting {
    /// Whether the term occurs in the tool's name.
    pub(super) fn is_in_name(&self) -> bool {
        self.counts & 15 > 0
    }
}

/// A term and the documents that have it. Postings are in ascending order of documents.
#[derive(Default)]
pub(super) struct Term {
    pub(super) text: Box<str>,
    pub(super) tools: Vec<Posting>,
    pub(super) servers: Vec<Posting>,
    /// The number of tools whose names have the term.
    pub(super) names: u32,
    /// The deed that the term stands for, if it is a verb.
    deed: Option<Deed>,
}

/// A tool as the ranker needs it.
pub(super) struct Tool {
    pub(super) name: Box<str>,
    pub(super) server: u32,
    /// The tool's position among its server's tools.
    pub(super) position: u32,
    /// The terms of the name, in order.
    pub(super) name_terms: Box<[u32]>,
    /// The first terms of the first sentence, in order.
    pub(super) sentence: Box<[u32]>,
    /// The tool's deed, if it is known.
    pub(super) deed: Option<Deed>,
    /// 0 for a read-only tool, 1 for an unknown one, 2 for a destructive one.
    pub(super) risk: u8,
    /// Equal for tools whose descriptions have the same letters.
    pub(super) text_hash: u64,
    /// What the tool's text means.
    pub(super) direction: Direction,
}

/// The part of a tool that every posting needs, kept close together in memory.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) lengths: [u16; TOOL_FIELDS],
    pub(super) server: u32,
}

/// A server as the ranker needs it.
pub(super) struct Server {
    pub(super) key: Box<str>,
    pub(super) order: u32,
    /// The server's tools have the numbers `first..first + count`.
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) lengths: [u32; SERVER_FIELDS],
    /// All terms of the server and its tools.
    terms: Box<[u32]>,
    /// The terms of the server's names.
    pub(super) title_terms: Box<[u32]>,
}

/// Everything known about servers and their tools. Replacing one server costs only the work for that server.
///
/// It has many fields because it is two small inverted indexes whose parts are updated together.
pub struct Index {
    stems: Stems,
    pub(super) terms: Vec<Term>,
    ids: HashMap<Box<str>, u32>,
    /// Words in their written form, each with its term and its pieces, which saves the stemming of known words.
    surface: HashMap<Box<str>, (u32, Pieces)>,
    grams: HashMap<u32, Vec<u32>>,
    pub(super) tools: Vec<Option<Tool>>,
    pub(super) shapes: Vec<Shape>,
    pub(super) servers: Vec<Option<Server>>,
    by_key: HashMap<Box<str>, u32>,
    pub(super) live_tools: u32,
    pub(super) live_servers: u32,
    pub(super) tool_lengths: [u64; TOOL_FIELDS],
    pub(super) server_lengths: [u64; SERVER_FIELDS],
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl Index {
    /// An empty index.
    pub fn new() -> Self {
        Self {
            stems: Stems::new(),
            terms: Vec::new(),
            ids: HashMap::default(),
            surface: HashMap::default(),
            grams: HashMap::default(),
            tools: Vec::new(),
            shapes: Vec::new(),
            servers: Vec::new(),
            by_key: HashMap::default(),
            live_tools: 0,
            live_servers: 0,
            tool_lengths: [0; TOOL_FIELDS],
            server_lengths: [0; SERVER_FIELDS],
        }
    }

    /// Adds a server, or replaces its earlier entry. The key identifies the server and is not searched.
    pub fn set_server(&mut self, key: &str, doc: &ServerDoc) {
        self.remove_server(key);
        let server = count(self.servers.len());
        let first = count(self.tools.len());
        let mut about = Counts::new();
        self.count(&doc.title, TITLE, &mut about);
        let mut titles: Vec<u32> = about.terms().collect();
        titles.sort_unstable();
        titles.dedup();
        self.count(&doc.description, ABOUT, &mut about);
        let mut meant = Sum::default();
        words(&doc.title, |word| meant.add(pieces(word.raw), i16::from(!word.whole)));
        let titles = (titles, meant);
        let mut terms = Vec::new();
        let mut counts = Counts::new();
        for (position, tool) in (0..).zip(&doc.tools) {
            counts.clear();
            self.add_tool(tool, (server, position), &titles, &mut counts, &mut about, &mut terms);
        }
        about.each(|term, counts| {
            self.terms[term as usize].servers.push(Posting { doc: server, counts: packed(counts, 8) });
            terms.push(term);
        });
        terms.sort_unstable();
        terms.dedup();
        for (total, length) in self.server_lengths.iter_mut().zip(about.lengths) {
            *total += u64::from(length);
        }
        self.live_tools += count(doc.tools.len());
        self.live_servers += 1;
        self.by_key.insert(key.into(), server);
        self.servers.push(Some(Server {
            key: key.into(),
            order: doc.order,
            first,
            count: count(doc.tools.len()),
            lengths: about.lengths,
            terms: terms.into(),
            title_terms: titles.0.into(),
        }));
    }

    fn add_tool(
        &mut self,
        tool: &ToolDoc,
        (server, position): (u32, u32),
        titles: &(Vec<u32>, Sum),
        counts: &mut Counts<TOOL_FIELDS>,
        about: &mut Counts<SERVER_FIELDS>,
        terms: &mut Vec<u32>,
    ) {
        let number = count(self.tools.len());
        let mut sum = titles.1.clone();
        let (name_terms, sentence) = self.read_tool(tool, &titles.0, counts, &mut sum);
        let deed = self.deed(tool, &name_terms, &sentence);
        counts.each(|term, found| {
            let entry = &mut self.terms[term as usize];
            entry.tools.push(Posting { doc: number, counts: packed(found, 4) });
            terms.push(term);
            if found[NAME] > 0 {
                entry.names += 1;
                about.add(term, TOOL_NAMES, 1);
            }
            if found[SUMMARY] > 0 {
                about.add(term, TOOL_TEXT, 1);
            }
        });
        let lengths = counts.lengths.map(|length| u16::try_from(length).unwrap_or(u16::MAX));
        for (total, length) in self.tool_lengths.iter_mut().zip(lengths) {
            *total += u64::from(length);
        }
        self.shapes.push(Shape { lengths, server });
        if self.tools.len() == self.tools.capacity() {
            // Tools are large, so twice as many places as are needed would be a waste.
            self.tools.reserve_exact(64 + self.tools.len() / 8);
        }
        self.tools.push(Some(Tool {
            name: tool.name.as_str().into(),
            server,
            position,
            name_terms,
            sentence,
            deed,
            risk: risk(tool),
            text_hash: Seeded::default().hash_one(&tool.description),
            direction: sum.direction(),
        }));
    }

    /// Removes a server. Returns whether it was known.
    pub fn remove_server(&mut self, key: &str) -> bool {
        let Some(number) = self.by_key.remove(key) else { return false };
        let Some(server) = self.servers[number as usize].take() else { return false };
        let gone = server.first..server.first + server.count;
        for &term in &server.terms {
            let term = &mut self.terms[term as usize];
            let from = term.tools.partition_point(|posting| posting.doc < gone.start);
            let to = term.tools.partition_point(|posting| posting.doc < gone.end);
            term.names -= count(term.tools[from..to].iter().filter(|posting| posting.is_in_name()).count());
            term.tools.drain(from..to);
            if let Ok(at) = term.servers.binary_search_by_key(&number, |posting| posting.doc) {
                term.servers.remove(at);
            }
        }
        for number in gone {
            self.tools[number as usize] = None;
            for (total, length) in self.tool_lengths.iter_mut().zip(self.shapes[number as usize].lengths) {
                *total -= u64::from(length);
            }
        }
        for (total, length) in self.server_lengths.iter_mut().zip(server.lengths) {
            *total -= u64::from(length);
        }
        self.live_tools -= server.count;
        self.live_servers -= 1;
        if self.tools.len() > 1024 + 2 * self.live_tools as usize
            || self.servers.len() > 1024 + 2 * self.live_servers as usize
        {
            self.compact();
        }
        true
    }

    /// Renumbers tools and servers to close the gaps that removed ones left.
    fn compact(&mut self) {
        let mut tools = vec![0; self.tools.len()];
        let mut servers = vec![0; self.servers.len()];
        number(&self.tools, &mut tools);
        number(&self.servers, &mut servers);
        let mut live = self.tools.iter().map(Option::is_some);
        self.shapes.retain(|_| live.next() == Some(true));
        self.tools.retain(Option::is_some);
        self.servers.retain(Option::is_some);
        for (tool, shape) in self.tools.iter_mut().flatten().zip(&mut self.shapes) {
            tool.server = servers[tool.server as usize];
            shape.server = tool.server;
        }
        for server in self.servers.iter_mut().flatten() {
            server.first = tools.get(server.first as usize).copied().unwrap_or(0);
        }
        for at in self.by_key.values_mut() {
            *at = servers[*at as usize];
        }
        for term in &mut self.terms {
            for posting in &mut term.tools {
                posting.doc = tools[posting.doc as usize];
            }
            for posting in &mut term.servers {
                posting.doc = servers[posting.doc as usize];
            }
        }
    }

    /// Counts the words of one tool and adds up what they mean. Returns the terms of its name and of its first sentence, in order.
    fn read_tool(
        &mut self,
        tool: &ToolDoc,
        titles: &[u32],
        counts: &mut Counts<TOOL_FIELDS>,
        sum: &mut Sum,
    ) -> (Box<[u32]>, Box<[u32]>) {
        let mut sequence = Vec::new();
        words(&tool.name, |word| {
            let (term, pieces) = self.word(word.raw);
            counts.add(term, NAME, u32::from(!word.whole));
            if !word.whole {
                sum.add(pieces, 2);
                sequence.push(term);
            }
        });
        let (summary, details) = split_summary(&tool.description);
        let mut sentence = Vec::new();
        words(summary, |word| {
            let (term, pieces) = self.word(word.raw);
            counts.add(term, SUMMARY, u32::from(!word.whole));
            if word.whole {
                return;
            }
            sum.add(pieces, 2);
            if sentence.len() < SENTENCE {
                sentence.push(term);
            }
        });
        let mut left = DETAILS_MEANT;
        words(details, |word| {
            let (term, pieces) = self.word(word.raw);
            counts.add(term, DETAILS, u32::from(!word.whole));
            if !word.whole && left > 0 {
                sum.add(pieces, 1);
                left -= 1;
            }
        });
        for param in &tool.params {
            self.count(&param.name, PARAM_NAMES, counts);
            self.count(&param.description, PARAM_TEXT, counts);
            for value in &param.enum_values {
                self.count(value, PARAM_TEXT, counts);
            }
        }
        for term in titles {
            counts.add(*term, SERVER, 1);
        }
        (sequence.into(), sentence.into())
    }

    /// What a tool does, from its annotations or else from the first verb in its name or description.
    fn deed(&self, tool: &ToolDoc, name: &[u32], sentence: &[u32]) -> Option<Deed> {
        if tool.read_only == Some(true) {
            return Some(Deed::Read);
        }
        name.iter().chain(sentence.iter().take(VERB_WITHIN)).find_map(|term| self.terms[*term as usize].deed)
    }

    fn count<const N: usize>(&mut self, text: &str, field: usize, counts: &mut Counts<N>) {
        words(text, |word| {
            let (term, _) = self.word(word.raw);
            counts.add(term, field, u32::from(!word.whole));
        });
    }

    /// The term of a word, created if it is new, and the word's pieces.
    fn word(&mut self, raw: &str) -> (u32, Pieces) {
        if let Some(&known) = self.surface.get(raw) {
            return known;
        }
        let mut folded = String::new();
        fold(raw, &mut folded);
        let stem = self.stems.stem(&folded);
        let id = match self.ids.get(stem.as_str()) {
            Some(&id) => id,
            None => {
                let id = count(self.terms.len());
                grams(&stem, |gram| {
                    let list = self.grams.entry(gram).or_default();
                    if list.last() != Some(&id) {
                        list.push(id);
                    }
                });
                self.terms.push(Term {
                    text: stem.as_str().into(),
                    deed: meaning::deed(&stem),
                    ..Term::default()
                });
                self.ids.insert(stem.into(), id);
                id
            }
        };
        let known = (id, pieces(raw));
        self.surface.insert(raw.into(), known);
        known
    }

    /// The stem of a query word, whether or not any text has it.
    pub(super) fn stem(&self, raw: &str) -> String {
        let mut folded = String::new();
        fold(raw, &mut folded);
        self.stems.stem(&folded)
    }

    /// The terms that contain a run of three characters.
    pub(super) fn terms_with(&self, gram: u32) -> &[u32] {
        self.grams.get(&gram).map_or(&[], Vec::as_slice)
    }

    /// The tool with this number, which must be live.
    pub(super) fn tool(&self, number: u32) -> &Tool {
        self.tools[number as usize].as_ref().expect("postings name live tools only")
    }

    /// The number of words in a tool's name.
    pub(super) fn name_length(&self, number: u32) -> usize {
        usize::from(self.shapes[number as usize].lengths[NAME])
    }

    /// The number of words of a tool's first sentence that are kept in order.
    pub(super) fn sentence_length(&self, number: u32) -> usize {
        usize::from(self.shapes[number as usize].lengths[SUMMARY]).min(SENTENCE)
    }

    /// The server with this number, which must be live.
    pub(super) fn server(&self, number: u32) -> &Server {
        self.servers[number as usize].as_ref().expect("postings name live servers only")
    }

    /// The number of a term that occurs in some text.
    pub(super) fn find(&self, stem: &str) -> Option<u32> {
        let id = *self.ids.get(stem)?;
        let term = &self.terms[id as usize];
        (!term.tools.is_empty() || !term.servers.is_empty()).then_some(id)
    }

    /// The sort key of a server: its position in the file, then its key.
    pub(super) fn place(&self, server: u32) -> (u32, &str) {
        let server = self.server(server);
        (server.order, &server.key)
    }

    /// An estimate of the memory in use, in bytes.
    pub fn size(&self) -> usize {
        let mut bytes = 0;
        for term in &self.terms {
            bytes += size_of::<Term>() + 2 * term.text.len();
            bytes += 8 * (term.tools.capacity() + term.servers.capacity());
        }
        bytes += self.ids.capacity() * 25 + self.surface.capacity() * 25;
        bytes += self.surface.keys().map(|word| word.len()).sum::<usize>();
        bytes +=
            self.grams.capacity() * 33 + self.grams.values().map(|list| 4 * list.capacity()).sum::<usize>();
        bytes += self.tools.capacity() * size_of::<Option<Tool>>();
        bytes += self.shapes.capacity() * size_of::<Shape>();
        bytes += self
            .tools
            .iter()
            .flatten()
            .map(|tool| tool.name.len() + 4 * (tool.name_terms.len() + tool.sentence.len()))
            .sum::<usize>();
        bytes += self.servers.capacity() * size_of::<Option<Server>>();
        bytes += self.servers.iter().flatten().map(|s| 2 * s.key.len() + 4 * s.terms.len()).sum::<usize>();
        bytes + self.by_key.capacity() * 25
    }
}

/// Converts a count of tools, servers or terms. There are thousands of them, never billions.
fn count(length: usize) -> u32 {
    u32::try_from(length).expect("fewer than 2^32 documents and terms")
}

fn number<T>(slots: &[Option<T>], numbers: &mut [u32]) {
    let mut next = 0;
    for (slot, number) in slots.iter().zip(numbers) {
        *number = next;
        next += u32::from(slot.is_some());
    }
}
