//! A file as a tree of values that know where they stand, whatever its syntax was.

use std::ops::Range;

/// Bytes of the source text.
pub(super) type Span = Range<usize>;

/// One value.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) span: Span,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Null,
    Boolean(bool),
    /// As spelled.
    Number(String),
    String(Text),
    List(Vec<Node>),
    Object(Vec<Entry>),
    /// What the syntax has and we have no use for, such as dates.
    Other(&'static str),
}

/// A string before and after expansion.
#[derive(Debug)]
pub(super) struct Text {
    /// As written; this is what messages quote.
    pub(super) raw: String,
    /// With variables replaced.
    pub(super) value: String,
    /// A variable could not be replaced; that is reported already.
    pub(super) faulty: bool,
}

impl Text {
    pub(super) fn new(raw: String) -> Self {
        Self { value: raw.clone(), raw, faulty: false }
    }
}

/// A key with its value; keys may repeat here.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Span,
    pub(super) value: Node,
}

impl Node {
    /// Visits every key of the tree.
    pub(super) fn each_key(&self, visit: &mut dyn FnMut(&Span)) {
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
    pub(super) fn each_leaf(&self, visit: &mut dyn FnMut(&Node)) {
        match &self.kind {
            Kind::Object(entries) => entries.iter().for_each(|entry| entry.value.each_leaf(visit)),
            Kind::List(items) => items.iter().for_each(|item| item.each_leaf(visit)),
            _ => visit(self),
        }
    }
}

/// Why a text is not a tree at all.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) span: Span,
    pub(super) message: String,
    pub(super) hint: String,
}
