//! A file as a tree of values that know their position, whatever the syntax.

use std::ops::Range;

/// A range of bytes in the source text.
pub(crate) type Span = Range<usize>;

/// The syntax of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON with comments and trailing commas.
    Json,
    /// TOML 1.0 and 1.1.
    Toml,
    /// One YAML document.
    Yaml,
}

/// One value.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Null,
    Boolean(bool),
    /// The number as the file spells it.
    Number(String),
    String(Text),
    List(Vec<Node>),
    Object(Vec<KeyValue>),
    /// A value that only the syntax knows and that we cannot use, such as a date.
    Other(&'static str),
}

/// A string before and after expansion.
#[derive(Debug)]
pub(crate) struct Text {
    /// The string as written, which messages quote.
    pub(crate) raw: String,
    /// The string with variables replaced.
    pub(crate) value: String,
    /// Whether a variable could not be replaced, which has already been reported.
    pub(crate) faulty: bool,
}

impl Text {
    pub(crate) fn new(raw: String) -> Self {
        Self { value: raw.clone(), raw, faulty: false }
    }
}

/// A key with its value. Keys may repeat here.
#[derive(Debug)]
pub(crate) struct KeyValue {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: Node,
}

impl Node {
    /// The value under a key of this object.
    pub(crate) fn member(&self, key: &str) -> Option<&Node> {
        let Kind::Object(entries) = &self.kind else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The text as written, if this is a string.
    pub(crate) fn string(&self) -> Option<&str> {
        match &self.kind {
            Kind::String(text) => Some(&text.raw),
            _ => None,
        }
    }

    /// Visits every key of the tree.
    pub(crate) fn each_key(&self, visit: &mut dyn FnMut(&Span)) {
        match &self.kind {
            Kind::Object(entries) => {
                for entry in entries {
                    visit(&entry.key_span);
                    entry.value.each_key(visit);
                }
            }
            Kind::List(items) => items.iter().for_each(|item| item.each_key(visit)),
            _ => {}
        }
    }

    /// Visits every value of the tree that is neither list nor object.
    pub(crate) fn each_leaf(&self, visit: &mut dyn FnMut(&Node)) {
        match &self.kind {
            Kind::Object(entries) => entries.iter().for_each(|entry| entry.value.each_leaf(visit)),
            Kind::List(items) => items.iter().for_each(|item| item.each_leaf(visit)),
            _ => visit(self),
        }
    }
}

/// The error for a text that cannot be parsed.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) span: Span,
    pub(crate) message: String,
    pub(crate) hint: String,
}
