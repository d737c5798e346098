//! Scores how well tools and servers match the terms of a query, by BM25F over their fields.

use super::index::{Index, Posting, SERVER_FIELDS, TOOL_FIELDS};
use super::query::{Query, QueryTerm};

/// The fields in order: name, first sentence, rest of the description, parameter names, parameter texts,
/// server's name.
const TOOL: Fields<TOOL_FIELDS> = Fields {
    weights: [1.0, 1.0, 0.75, 0.45, 0.4, 0.5],
    lengths: [0.75, 0.9, 0.9, 0.0, 0.5, 0.75],
    saturation: 0.35,
    bits: 4,
};

/// The fields in order: names, description, names of the tools, first sentences of their descriptions.
const SERVER: Fields<SERVER_FIELDS> =
    Fields { weights: [1.0, 1.0, 1.0, 0.1], lengths: [0.75, 0.75, 0.75, 0.75], saturation: 1.0, bits: 8 };

/// The weight of a server's evidence relative to that of its tools.
const SERVER_SHARE: f32 = 1.0;

/// The value of a term for one document.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub(super) doc: u32,
    /// The value from the document's own text.
    pub(super) own: f32,
    /// The value beyond what the document's server contributes anyway.
    pub(super) beyond: f32,
}

/// The evidence for a query, term by term.
pub(super) struct Evidence {
    /// For each term, the tools that have it, in ascending order.
    tools: Runs<Share>,
    servers: Runs<(u32, f32)>,
    /// For each tool, whether its name has a term of the query or a variant of one.
    pub(super) in_name: Vec<bool>,
}

impl Evidence {
    /// Gathers the evidence of tools and servers for a query.
    ///
    /// A term counts once for a tool, by its own text or by its server's, whichever is more. So a server's
    /// name in a query lifts all of its tools without drowning the rest of the query. Tools that share a
    /// server without a name share nothing.
    pub(super) fn new(index: &Index, query: &Query) -> Self {
        let tool_norms = TOOL.norms(&index.tool_lengths, index.live_tools);
        let server_norms = SERVER.norms(&index.server_lengths, index.live_servers);
        let mut tools = Lanes::new(index.tools.len());
        let mut servers = Lanes::new(index.servers.len());
        let sought = |term: &&QueryTerm| term.weight > 0.0;
        let variants = query.terms.iter().filter(sought).flat_map(|term| &term.variants);
        let most = variants.map(|variant| index.terms[variant.0 as usize].tools.len()).sum();
        let mut evidence = Self {
            tools: Runs::with_capacity(most),
            servers: Runs::with_capacity(0),
            in_name: vec![false; index.tools.len()],
        };
        for term in &query.terms {
            for &(id, factor) in Some(term).filter(sought).into_iter().flat_map(|term| &term.variants) {
                let found = &index.terms[id as usize];
                let scale = factor * term.weight * rarity(found.tools.len(), index.live_tools);
                for posting in &found.tools {
                    let lengths = &index.shapes[posting.doc as usize].lengths;
                    let value = TOOL.value(posting, &tool_norms, |field| f32::from(lengths[field]));
                    tools.raise(posting.doc, scale * value);
                    evidence.in_name[posting.doc as usize] |= posting.is_in_name();
                }
                let scale = factor * term.weight * rarity(found.servers.len(), index.live_servers);
                for posting in &found.servers {
                    let server = index.server(posting.doc);
                    if server.title_terms.is_empty() {
                        continue;
                    }
                    let value = SERVER.value(posting, &server_norms, |field| server.lengths[field] as f32);
                    servers.raise(posting.doc, SERVER_SHARE * scale * value);
                }
            }
            evidence.tools.push(tools.take().map(|(doc, own)| {
                let given = servers.values[index.shapes[doc as usize].server as usize];
                Share { doc, own, beyond: (own - given).max(0.0) }
            }));
            evidence.servers.push(servers.take());
        }
        evidence
    }

    /// For each term of the query, in order, the tools that have it.
    pub(super) fn tools(&self) -> impl Iterator<Item = &[Share]> {
        self.tools.iter()
    }

    /// For each term of the query, in order, the servers that have it.
    pub(super) fn servers(&self) -> impl Iterator<Item = &[(u32, f32)]> {
        self.servers.iter()
    }
}

/// Runs of values stored one after the other in one allocation.
struct Runs<T> {
    values: Vec<T>,
    ends: Vec<usize>,
}

impl<T> Runs<T> {
    fn with_capacity(most: usize) -> Self {
        Self { values: Vec::with_capacity(most), ends: Vec::new() }
    }

    fn push(&mut self, run: impl Iterator<Item = T>) {
        self.values.extend(run);
        self.ends.push(self.values.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[T]> {
        let mut from = 0;
        self.ends.iter().map(move |&end| &self.values[std::mem::replace(&mut from, end)..end])
    }
}

/// The weight of a term: the fewer documents have it, the higher.
pub(super) fn rarity(having: usize, all: u32) -> f32 {
    let (having, all) = (having as f32, all as f32);
    (1.0 + (all - having + 0.5).max(0.0) / (having + 0.5)).ln()
}

/// The parameters of BM25F for one kind of document.
struct Fields<const N: usize> {
    weights: [f32; N],
    /// For each field, how strongly its length reduces the value of a match.
    lengths: [f32; N],
    saturation: f32,
    /// The number of bits per count in a posting.
    bits: usize,
}

impl<const N: usize> Fields<N> {
    /// The two parts of each field's norm: a constant and a factor of the length.
    fn norms(&self, totals: &[u64; N], all: u32) -> [(f32, f32); N] {
        std::array::from_fn(|field| {
            let mean = (totals[field] as f32 / all.max(1) as f32).max(0.01);
            (1.0 - self.lengths[field], self.lengths[field] / mean)
        })
    }

    fn value(&self, posting: &Posting, norms: &[(f32, f32); N], length: impl Fn(usize) -> f32) -> f32 {
        let mut sum = 0.0;
        let mut counts = posting.counts;
        while counts != 0 {
            let field = counts.trailing_zeros() as usize / self.bits;
            let mask = ((1 << self.bits) - 1) << (field * self.bits);
            let count = (counts & mask) >> (field * self.bits);
            sum += self.weights[field] * count as f32 / (norms[field].0 + norms[field].1 * length(field));
            counts &= !mask;
        }
        sum / (self.saturation + sum)
    }
}

/// One value per document, most of them 0.
struct Lanes {
    values: Vec<f32>,
    touched: Vec<u32>,
}

impl Lanes {
    fn new(length: usize) -> Self {
        Self { values: vec![0.0; length], touched: Vec::new() }
    }

    fn raise(&mut self, doc: u32, value: f32) {
        let held = &mut self.values[doc as usize];
        if *held == 0.0 {
            self.touched.push(doc);
        }
        *held = held.max(value);
    }

    /// Returns the documents with a value, in ascending order, and resets all values to 0.
    fn take(&mut self) -> impl Iterator<Item = (u32, f32)> {
        // Each variant added an ascending run, and the stable sort merges such runs quickly.
        self.touched.sort();
        let values = &mut self.values;
        self.touched.drain(..).map(|doc| (doc, std::mem::take(&mut values[doc as usize])))
    }
}
