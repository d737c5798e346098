//! JSON that outlives the text it came in: its own copy of the text, with the index of the outer members.
//!
//! Requests that wait are kept as [`Raw`], and so is JSON of our own that we look into.
//!
//! Invariant: the text is valid JSON, so whoever holds a [`Raw`] never scans it again and handles no error.

use super::{Doc, Invalid, Node, Scanner};

/// One JSON value that owns its text.
#[derive(Clone)]
pub struct Raw {
    pub(super) text: Box<str>,
    pub(super) found: Scanner,
}

impl Raw {
    /// Validates a text.
    pub fn read(text: impl Into<Box<str>>) -> Result<Self, Invalid> {
        let (text, mut found) = (text.into(), Scanner::new());
        found.scan_str(&text)?;
        Ok(Self { text, found })
    }

    /// Wraps a text that we wrote ourselves, which must be JSON.
    pub fn own(text: impl Into<Box<str>>) -> Self {
        Self::read(text).expect("what we write is JSON")
    }

    /// The value.
    pub fn root(&self) -> Node<'_> {
        Doc { text: &self.text, found: &self.found }.root()
    }
}

impl From<Node<'_>> for Raw {
    /// Copies the value without the surrounding text. Its index is copied as well, so nothing is scanned
    /// again.
    fn from(node: Node<'_>) -> Self {
        let (back, before) = (node.span.start.wrapping_neg(), node.inside.wrapping_neg());
        let inside = &node.doc.found.members[node.inside as usize..node.behind as usize];
        let mut found = Scanner::new();
        found.members = inside.iter().map(|member| member.moved(back, before)).collect();
        found.root = node.span.moved(back);
        found.broken_lines = node.doc.has_line_breaks();
        Self { text: node.raw().into(), found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_what_it_was_without_the_text_around_it() {
        let text = r#" {"a":{"x":1,"y":{"z":[{"q":2}],"\u0077":"\n"}},"b":{},"c":[{"d":1}],"d":"e","f":{"g":{"h":{"i":{"j":1}}}}} "#;
        let mut scanner = Scanner::default();
        let root = scanner.scan_str(text).expect("JSON").root();
        fn same(one: Node<'_>, other: Node<'_>) {
            assert_eq!(one.raw(), other.raw());
            assert_eq!(one.as_str(), other.as_str());
            let [ours, theirs] = [one, other].map(|node| node.members().collect::<Vec<_>>());
            assert_eq!(ours.len(), theirs.len(), "{}", one.raw());
            for ((key, value), (other_key, other_value)) in ours.into_iter().zip(theirs) {
                assert_eq!(key, other_key);
                same(value, other_value);
            }
        }
        fn each(node: Node<'_>) {
            same(Raw::from(node).root(), node);
            node.members().for_each(|(_, value)| each(value));
        }
        each(root);
        each(Node::empty());
        assert_eq!(Raw::from(Node::empty()).root().raw(), "{}");
    }

    #[test]
    fn what_was_written_can_be_looked_into() {
        let raw = Raw::own(Node::empty().with(&[("a", Some("1"))]));
        assert_eq!(raw.root().get("a").map(Node::raw), Some("1"));
        assert!(Raw::read("{").is_err());
    }
}
