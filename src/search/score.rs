//! How well the terms of a query stand in tools and servers: BM25F over their fields.

use super::index::{Index, Posting, SERVER_FIELDS, TOOL_FIELDS};
use super::query::{Query, QueryTerm};

/// Name, first sentence, rest of the description, parameter names, parameter texts, server's name.
const TOOL: Fields<TOOL_FIELDS> = Fields {
    weights: [1.0, 1.0, 0.75, 0.3, 0.4, 0.5],
    lengths: [0.75, 0.9, 0.9, 0.0, 0.5, 0.75],
    saturation: 0.4,
    bits: 4,
};

/// Names, description, names of the tools, first sentences of their descriptions.
const SERVER: Fields<SERVER_FIELDS> =
    Fields { weights: [1.0, 1.0, 1.0, 0.1], lengths: [0.75, 0.75, 0.75, 0.75], saturation: 1.0, bits: 8 };

/// What a server's evidence counts beside that of its tools.
const SERVER_SHARE: f32 = 1.0;

/// One document's share in a term.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub(super) doc: u32,
    /// What the document itself gives.
    pub(super) own: f32,
    /// The same without what its server gives anyway.
    pub(super) beyond: f32,
}

/// The evidence for a query, term by term.
pub(super) struct Evidence {
    /// For each term in turn what tools have of it, ascending by tool.
    tools: Runs<Share>,
    servers: Runs<(u32, f32)>,
    /// By tool, whether its name has a term of the query, or one that stands for it.
    pub(super) in_name: Vec<bool>,
}

impl Evidence {
    /// Gathers what tools and servers have of a query.
    ///
    /// A term counts once for a tool: by its own text or by its server's, whichever is more. So a server's
    /// name in a query lifts all of its tools and still does not drown what else was asked for. Tools that
    /// share a server without a name share nothing.
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

    /// What tools have of each term of the query, in the order of its terms.
    pub(super) fn tools(&self) -> impl Iterator<Item = &[Share]> {
        self.tools.iter()
    }

    /// What servers have of each term of the query, in the order of its terms.
    pub(super) fn servers(&self) -> impl Iterator<Item = &[(u32, f32)]> {
        self.servers.iter()
    }
}

/// Runs of values, one after the other in one piece of memory.
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

/// How much a term tells, by how few documents have it.
pub(super) fn rarity(having: usize, all: u32) -> f32 {
    let (having, all) = (having as f32, all as f32);
    (1.0 + (all - having + 0.5).max(0.0) / (having + 0.5)).ln()
}

/// How the fields of a kind of document count.
struct Fields<const N: usize> {
    weights: [f32; N],
    /// How much a field's length takes from what stands in it.
    lengths: [f32; N],
    saturation: f32,
    /// Bits of a count in a posting.
    bits: usize,
}

impl<const N: usize> Fields<N> {
    /// For each field what the norm is made of: a constant, and a factor of the length.
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

/// A value for each document, most of them nothing.
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

    /// What was raised, ascending; all is nothing again once it was taken.
    fn take(&mut self) -> impl Iterator<Item = (u32, f32)> {
        // Runs in ascending order, one for each variant: the stable sort takes them as they are.
        self.touched.sort();
        let values = &mut self.values;
        self.touched.drain(..).map(|doc| (doc, std::mem::take(&mut values[doc as usize])))
    }
}
