//! Changes of users' files that keep everything else in them.
//!
//! Every edit is proven: the result is read again and must mean exactly what the edit should have made of the
//! old meaning. Where that cannot be shown, nothing is changed.
//!
//! Invariant: what an edit does not name survives it, comments, order and unknown keys included.

pub mod backup;
mod diff;
pub mod file;
mod json;
mod mask;
mod merge;
mod toml;
mod value;
mod yaml;

pub use diff::{paint, unified};
pub use mask::mask;
pub use merge::undone;
pub use value::Value;

pub use crate::config::node::Format;

use crate::config::node::{Kind, Node, SyntaxError};
use std::fmt;

/// One change. Paths are keys from the top of the file.
#[derive(Debug)]
pub enum Edit<'a> {
    /// Gives a key a value: in its place if it is there, as the last one otherwise.
    Set {
        /// Where; objects on the way are created.
        path: Vec<String>,
        /// What.
        value: Value,
    },
    /// Takes a key out.
    Remove {
        /// Which one.
        path: Vec<String>,
    },
    /// Puts a key of another text in again, as it is spelled there.
    Restore {
        /// Where it stood and will stand.
        path: Vec<String>,
        /// The other text.
        from: &'a str,
        /// Its syntax.
        format: Format,
        /// Its place among the keys; beyond the last one is the end.
        index: usize,
    },
    /// Puts an item into a list, which is created if need be.
    Push {
        /// The list.
        path: Vec<String>,
        /// The new item.
        value: Value,
        /// Its place; beyond the last one is the end.
        index: usize,
    },
    /// Takes an item out of a list.
    Pull {
        /// The list.
        path: Vec<String>,
        /// Which item.
        index: usize,
    },
}

/// A text and what it means.
#[derive(Debug)]
pub struct Parsed {
    /// What it means.
    pub value: Value,
    pub(crate) node: Node,
}

/// Why a text cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is broken, at a line and column from 1.
    Broken {
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// It cannot be changed without harm.
    Unsafe,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken { line, column, message } => write!(out, "line {line}, column {column}: {message}"),
            Self::Unsafe => out.write_str("it is written in a way that we cannot change without harm"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Reads a text; an empty one is an empty object. A byte order mark is skipped.
pub fn parse(format: Format, text: &str) -> Result<Parsed, Refusal> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let node = match format {
        Format::Json => crate::config::json::parse(text).map(Option::unwrap_or_default),
        Format::Toml => crate::config::toml::parse(text),
        Format::Yaml => yaml::parse(text),
    };
    let node = node.and_then(|node| match repeated(&node) {
        Some(error) => Err(error),
        None => Ok(node),
    });
    match node {
        Ok(node) => Ok(Parsed { value: Value::of(&node, text), node }),
        Err(error) => {
            let before = &text[..error.span.start.min(text.len())];
            let start = before.rfind('\n').map_or(0, |at| at + 1);
            let line = before.matches('\n').count() + 1;
            Err(Refusal::Broken { line, column: before[start..].chars().count() + 1, message: error.message })
        }
    }
}

/// Makes all edits, one after the other, and proves that they did no more than they should. Line endings and
/// byte order mark stay.
pub fn apply(format: Format, text: &str, edits: &[Edit<'_>]) -> Result<String, Refusal> {
    let (mark, body) = match text.strip_prefix('\u{feff}') {
        Some(body) => ("\u{feff}", body),
        None => ("", text),
    };
    let plain = body.replace("\r\n", "\n");
    let mut changed = plain.clone();
    for edit in edits {
        let old = parse(format, &changed)?;
        let mut expected = old.value.edited(edit).ok_or(Refusal::Unsafe)?;
        changed = match format {
            Format::Json => json::apply(&changed, edit),
            Format::Toml => toml::apply(&changed, edit),
            Format::Yaml => yaml::apply(&changed, &old.node, edit),
        }
        .ok_or(Refusal::Unsafe)?;
        let found = parse(format, &changed).map_err(|_| Refusal::Unsafe)?.value;
        if let (Format::Toml, Edit::Remove { path }) = (format, edit) {
            expected = without_vanished(expected, path, &found).ok_or(Refusal::Unsafe)?;
        }
        // Tables of TOML stand where their headers are.
        let as_meant = if format == Format::Toml { found.same(&expected) } else { found == expected };
        if !as_meant {
            return Err(Refusal::Unsafe);
        }
    }
    Ok(format!("{mark}{}", diff::with_line_endings_of(body, &plain, &changed)))
}

/// A table of TOML that has no header of its own goes with the last that it holds.
fn without_vanished(mut expected: Value, removed: &[String], found: &Value) -> Option<Value> {
    for end in (1..removed.len()).rev() {
        let path = &removed[..end];
        if found.at(path).is_none() && expected.at(path)?.entries().is_empty() {
            expected = expected.edited(&Edit::Remove { path: path.to_vec() })?;
        }
    }
    Some(expected)
}

impl Default for Node {
    fn default() -> Self {
        Self { span: 0..0, kind: Kind::Object(Vec::new()) }
    }
}

fn repeated(node: &Node) -> Option<SyntaxError> {
    match &node.kind {
        Kind::List(items) => items.iter().find_map(repeated),
        Kind::Object(entries) => {
            let mut seen = std::collections::HashSet::new();
            entries.iter().find_map(|entry| match seen.insert(entry.key.as_str()) {
                true => repeated(&entry.value),
                false => Some(SyntaxError {
                    span: entry.key_span.clone(),
                    message: format!("duplicate key `{}`", entry.key),
                    hint: String::new(),
                }),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
