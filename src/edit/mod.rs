//! Edits users' configuration files and keeps everything else in them.
//!
//! The verbs that change files call [`apply`]. It proves every edit: it parses the result again, and the
//! result must mean exactly what the edit should have made of the old meaning. If that cannot be shown,
//! nothing is changed.
//!
//! Invariant: whatever an edit does not name survives it, including comments, order and unknown keys.

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

/// One change. A path is the list of keys from the top of the file; in a list, a key is the position of an
/// item.
#[derive(Debug)]
pub enum Edit<'a> {
    /// Sets a key to a value. An existing key keeps its place; a new key goes last.
    Set {
        /// The path of the key. Missing objects on the way are created.
        path: Vec<String>,
        /// The new value.
        value: Value,
    },
    /// Removes a key.
    Remove {
        /// The path of the key.
        path: Vec<String>,
    },
    /// Puts a key back as another text spells it.
    Restore {
        /// The path of the key, the same in both texts.
        path: Vec<String>,
        /// The text that has the key.
        from: &'a str,
        /// The syntax of that text.
        format: Format,
        /// The position among the keys; an index past the last key means the end.
        index: usize,
    },
    /// Moves an entry, with its text and its comments, to the end of another object. JSON only.
    Move {
        /// The path of the entry.
        path: Vec<String>,
        /// The path of the object that gets it. Missing objects on the way are created.
        to: Vec<String>,
    },
    /// Gives a key another name, in its place. JSON only.
    Rename {
        /// The path of the key.
        path: Vec<String>,
        /// The new name.
        to: String,
    },
    /// Inserts an item into a list. A missing list is created.
    Push {
        /// The path of the list.
        path: Vec<String>,
        /// The new item.
        value: Value,
        /// The position in the list; an index past the last item means the end.
        index: usize,
    },
    /// Removes an item from a list.
    Pull {
        /// The path of the list.
        path: Vec<String>,
        /// The position of the item.
        index: usize,
    },
}

/// A parsed text.
#[derive(Debug)]
pub struct Parsed {
    /// The meaning of the text.
    pub value: Value,
    pub(crate) node: Node,
}

/// Why a text cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The text is not valid.
    Broken {
        /// The line of the error, from 1.
        line: usize,
        /// The column of the error in characters, from 1.
        column: usize,
        /// The parser's message.
        message: String,
    },
    /// The edit cannot be made without changing something else.
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

/// Parses a text. An empty text is an empty object, and a byte order mark is skipped.
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

/// Applies the edits one after the other and proves that they changed nothing else. Line endings and the byte
/// order mark are kept.
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
        // In TOML the order of tables follows their headers, so the order of keys is not compared.
        let as_meant = if format == Format::Toml { found.same(&expected) } else { found == expected };
        if !as_meant {
            return Err(Refusal::Unsafe);
        }
    }
    Ok(format!("{mark}{}", diff::with_line_endings_of(body, &plain, &changed)))
}

/// Removes the TOML tables that vanished with their last key, because they had no header of their own.
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
