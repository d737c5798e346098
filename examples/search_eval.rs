//! Measures the search on data of one's own: `search_eval TOOLS QUERIES [--summary]`.
//!
//! Both files are JSON lines, gzipped or not; `docs/search.md` tells their fields. One line is printed for
//! each query, or with `--summary` the means over all of them: what was found for queries that have a tool, how
//! often silence was kept for those that have none.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use flate2::read::MultiGzDecoder;
use mcp_workbench::inside::{Hit, Index, ParamDoc, ServerDoc, ToolDoc};
use serde::Deserialize;
use serde_json::{Value, json};

/// How many places of a ranking are looked at.
const DEPTH: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut summary = false;
    let mut files = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--summary" => summary = true,
            _ => files.push(argument),
        }
    }
    let [tools, queries] = files.as_slice() else {
        return Err("usage: search_eval TOOLS QUERIES [--summary]".into());
    };
    let corpus = Corpus::read(&text_of(tools)?)?;
    let queries = lines::<QueryLine>(&text_of(queries)?)?;

    let start = Instant::now();
    let mut index = Index::new();
    for (key, doc) in &corpus.servers {
        index.set_server(key, doc);
    }
    let built = start.elapsed();

    let mut means = Means::default();
    let mut out = std::io::stdout().lock();
    for query in &queries {
        let start = Instant::now();
        let outcome = index.search(&query.text, 2 * DEPTH);
        means.times.push(start.elapsed());
        let ranked = corpus.ids_of(&outcome.hits);
        if summary {
            means.add(&ranked, &query.gold);
        } else {
            writeln!(
                out,
                "{}",
                json!({ "id": query.id, "ranked": ranked, "coverage": outcome.coverage, "near": outcome.near })
            )?;
        }
    }
    if summary {
        writeln!(out, "{}", means.report(&corpus, built, index.size()))?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct ToolLine {
    id: String,
    #[serde(default)]
    server: String,
    #[serde(default)]
    server_title: String,
    #[serde(default)]
    server_desc: String,
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    params: Vec<ParamLine>,
}

#[derive(Deserialize)]
struct ParamLine {
    name: String,
    #[serde(default)]
    desc: String,
    #[serde(default, rename = "enum")]
    values: Vec<Value>,
}

#[derive(Deserialize)]
struct QueryLine {
    id: Value,
    text: String,
    #[serde(default)]
    gold: Vec<Vec<String>>,
}

/// The tools by server, and their ids.
struct Corpus {
    servers: Vec<(String, ServerDoc)>,
    /// For each server the ids of its tools, in order.
    ids: HashMap<String, Vec<String>>,
}

impl Corpus {
    fn read(text: &str) -> Result<Self, Box<dyn Error>> {
        let mut servers: Vec<(String, ServerDoc)> = Vec::new();
        let mut at: HashMap<String, usize> = HashMap::new();
        let mut ids: HashMap<String, Vec<String>> = HashMap::new();
        for line in lines::<ToolLine>(text)? {
            let place = *at.entry(line.server.clone()).or_insert_with(|| {
                let order = u32::try_from(servers.len()).unwrap_or(u32::MAX);
                let title = match line.server_title == line.server {
                    true => line.server.clone(),
                    false => format!("{} {}", line.server, line.server_title),
                };
                let description = line.server_desc.clone();
                servers
                    .push((line.server.clone(), ServerDoc { order, title, description, tools: Vec::new() }));
                servers.len() - 1
            });
            ids.entry(line.server.clone()).or_default().push(line.id.clone());
            servers[place].1.tools.push(line.into());
        }
        Ok(Self { servers, ids })
    }

    /// The ids of the first tools; one that stands twice counts by its first place.
    fn ids_of(&self, hits: &[Hit]) -> Vec<&str> {
        let mut ids: Vec<&str> = Vec::new();
        for id in hits.iter().map(|hit| self.ids[&hit.server][hit.position].as_str()) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids.truncate(DEPTH);
        ids
    }
}

impl From<ToolLine> for ToolDoc {
    fn from(line: ToolLine) -> Self {
        let params = line.params.into_iter().map(|param| ParamDoc {
            name: param.name,
            description: param.desc,
            enum_values: param
                .values
                .iter()
                .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
                .collect(),
        });
        Self { name: line.name, description: line.description, params: params.collect(), ..Self::default() }
    }
}

/// Sums over all queries.
#[derive(Default)]
struct Means {
    queries: f64,
    hit_at_1: f64,
    recall_at_5: f64,
    recall_at_10: f64,
    ndcg_at_10: f64,
    /// Of the queries in even and in odd places: how many, and the sum of their nDCG@10.
    halves: [(f64, f64); 2],
    /// Queries with a tool that were answered with silence.
    lost: usize,
    /// Queries without a tool, and how many of them were answered with silence.
    without: usize,
    silent: usize,
    times: Vec<Duration>,
}

impl Means {
    /// Counts one ranking. The alternatives of an inner list are one tool: the first of them that is ranked
    /// counts at its place, further ones count as nothing found.
    fn add(&mut self, ranked: &[&str], gold: &[Vec<String>]) {
        if gold.is_empty() {
            self.without += 1;
            self.silent += usize::from(ranked.is_empty());
            return;
        }
        let mut found = vec![false; gold.len()];
        let mut gain = 0.0;
        let half = &mut self.halves[self.queries as usize % 2];
        self.queries += 1.0;
        self.lost += usize::from(ranked.is_empty());
        for (place, id) in ranked.iter().enumerate() {
            let next = (0..gold.len()).find(|&at| !found[at] && gold[at].iter().any(|one| one == id));
            if let Some(at) = next {
                found[at] = true;
                gain += discount(place);
                self.hit_at_1 += if place == 0 { 1.0 } else { 0.0 };
            }
            if place == 4 {
                self.recall_at_5 += share(&found);
            }
        }
        if ranked.len() < 5 {
            self.recall_at_5 += share(&found);
        }
        self.recall_at_10 += share(&found);
        let ideal: f64 = (0..gold.len().min(DEPTH)).map(discount).sum();
        self.ndcg_at_10 += gain / ideal;
        *half = (half.0 + 1.0, half.1 + gain / ideal);
    }

    fn report(&mut self, corpus: &Corpus, built: Duration, size: usize) -> Value {
        self.times.sort_unstable();
        let quantile = |share: f64| {
            let at = ((self.times.len() as f64 - 1.0) * share).round().max(0.0);
            self.times.get(at as usize).map_or(0.0, |time| rounded(time.as_secs_f64() * 1e3))
        };
        let mean = |sum: f64| rounded(sum / self.queries.max(1.0));
        json!({
            "tools": corpus.ids.values().map(Vec::len).sum::<usize>(),
            "servers": corpus.servers.len(),
            "queries": self.times.len(),
            "hit@1": mean(self.hit_at_1),
            "recall@5": mean(self.recall_at_5),
            "recall@10": mean(self.recall_at_10),
            "ndcg@10": mean(self.ndcg_at_10),
            "halves": self.halves.map(|(count, sum)| rounded(sum / count.max(1.0))),
            "lost": self.lost,
            "silent": [self.silent, self.without],
            "ms": { "p50": quantile(0.5), "p95": quantile(0.95) },
            "index": { "ms": rounded(built.as_secs_f64() * 1e3), "bytes": size },
        })
    }
}

fn discount(place: usize) -> f64 {
    1.0 / (place as f64 + 2.0).log2()
}

fn share(found: &[bool]) -> f64 {
    found.iter().filter(|found| **found).count() as f64 / found.len().max(1) as f64
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn text_of(path: &str) -> Result<String, Box<dyn Error>> {
    let bytes = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let mut text = String::new();
    if bytes.starts_with(&[0x1F, 0x8B]) {
        MultiGzDecoder::new(bytes.as_slice()).read_to_string(&mut text)?;
    } else {
        text = String::from_utf8(bytes)?;
    }
    Ok(text)
}

fn lines<'a, T: Deserialize<'a>>(text: &'a str) -> Result<Vec<T>, serde_json::Error> {
    text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect()
}
