//! Search for the right tool: a query in, ranked names out.
//!
//! `gateway/find.rs` keeps an [`Index`] for `find_tools` and the verb `search`. A query takes this path:
//!
//! ```text
//! text → tokens (words, stems) → query (weighted terms, variants, meaning) → score (BM25F) → rank (order, hits)
//! ```

mod document;
mod index;
mod meaning;
mod names;
mod query;
mod rank;
mod score;
mod tokens;
mod vectors;

#[cfg(test)]
mod tests;

pub use index::Index;
pub use rank::Hit;

/// A server's text, as the index wants it.
#[derive(Clone, Debug, Default)]
pub struct ServerDoc {
    /// The server's position in the file, which decides between equal scores.
    pub order: u32,
    /// All names by which people call the server.
    pub title: String,
    /// The server's description of itself.
    pub description: String,
    /// The tools in the server's own order.
    pub tools: Vec<ToolDoc>,
}

/// A tool's text, as the index wants it.
#[derive(Clone, Debug, Default)]
pub struct ToolDoc {
    /// The name as the server spells it.
    pub name: String,
    /// The description.
    pub description: String,
    /// The parameters.
    pub params: Vec<ParamDoc>,
    /// The annotation `readOnlyHint`.
    pub read_only: Option<bool>,
    /// The annotation `destructiveHint`.
    pub destructive: Option<bool>,
}

/// A parameter's text, as the index wants it.
#[derive(Clone, Debug, Default)]
pub struct ParamDoc {
    /// The name.
    pub name: String,
    /// The description.
    pub description: String,
    /// The allowed values, if the schema lists them.
    pub enum_values: Vec<String>,
}
