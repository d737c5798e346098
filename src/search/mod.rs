//! Finding the right tool: text in, ranked names out.

mod document;
mod index;
mod meaning;
mod names;
mod query;
mod rank;
mod score;
mod tokens;

#[cfg(test)]
mod tests;

pub use index::Index;
pub use rank::Hit;

/// What is known of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerDoc {
    /// Its place in the file: the last rule between equals.
    pub order: u32,
    /// Its names: all that people call it by.
    pub title: String,
    /// What it says of itself.
    pub description: String,
    /// Its tools in its own order.
    pub tools: Vec<ToolDoc>,
}

/// What is known of a tool.
#[derive(Clone, Debug, Default)]
pub struct ToolDoc {
    /// Its name, as its server calls it.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its parameters.
    pub params: Vec<ParamDoc>,
    /// The annotation `readOnlyHint`.
    pub read_only: Option<bool>,
    /// The annotation `destructiveHint`.
    pub destructive: Option<bool>,
}

/// What is known of a parameter of a tool.
#[derive(Clone, Debug, Default)]
pub struct ParamDoc {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The values it may take, where the schema lists them.
    pub enum_values: Vec<String>,
}
