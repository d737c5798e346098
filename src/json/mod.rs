//! JSON seen from the outside: one validating pass over a text that builds no tree.
//!
//! The pass remembers where the members of the outer objects stand, down to `INDEXED` levels, which is as
//! deep as a gateway must look to route a message. Everything else stays bytes. Nesting costs one bit a
//! level and no recursion, so depth is no danger.
//!
//! Invariant: a text that was scanned is valid JSON, and every part of it that a [`Node`] shows is, too.

mod raw;
mod scan;
#[cfg(test)]
mod tests;
mod token;

use std::borrow::Cow;
use std::ops::Range;

pub use raw::Raw;
pub use scan::Scanner;

/// Objects nested deeper than this are validated but their members are not indexed:
/// envelope, `params`, `arguments`, and the parts of a tool's address.
const INDEXED: usize = 4;

/// A JSON text that was validated, and where its outer members stand.
#[derive(Clone, Copy)]
pub struct Doc<'a> {
    text: &'a str,
    found: &'a Scanner,
}

/// Where one member of an indexed object stands.
#[derive(Clone, Copy)]
struct Member {
    depth: u8,
    /// Whether the key is spelled with escapes.
    escaped_key: bool,
    /// Whether the value is a string that is spelled without.
    plain_value: bool,
    key: Span,
    value: Span,
    /// Index of the first member behind the value.
    next: u32,
}

#[derive(Clone, Copy, Default)]
struct Span {
    start: u32,
    end: u32,
}

/// One value of a [`Doc`].
#[derive(Clone, Copy)]
pub struct Node<'a> {
    doc: Doc<'a>,
    span: Span,
    /// Index of the first member inside this value.
    inside: u32,
    depth: u8,
    /// Whether it is known to be a string without escapes.
    plain: bool,
}

/// A key that we route by stands twice in one object, perhaps in another case: two parsers could disagree
/// about which one counts.
#[derive(Debug, PartialEq, Eq)]
pub struct Duplicate;

/// Why a text is no JSON, and where.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Invalid {
    /// Offset of the first byte that does not fit.
    pub offset: usize,
}

impl<'a> Doc<'a> {
    /// The outermost value.
    pub fn root(self) -> Node<'a> {
        Node { doc: self, span: self.found.root, inside: 0, depth: 0, plain: false }
    }

    /// How many arrays and objects stand inside each other at the deepest place.
    pub fn deepest(self) -> usize {
        self.found.deepest
    }

    /// Whether line breaks stand between tokens, which would break framing by lines.
    pub fn has_line_breaks(self) -> bool {
        self.found.broken_lines
    }
}

impl<'a> Node<'a> {
    /// `{}`.
    pub fn empty() -> Self {
        static NOTHING: Scanner = Scanner::new();
        let doc = Doc { text: "{}", found: &NOTHING };
        Self { doc, span: Span { start: 0, end: 2 }, inside: 0, depth: 0, plain: false }
    }

    /// The value as it was written.
    pub fn raw(self) -> &'a str {
        &self.doc.text[self.span.start as usize..self.span.end as usize]
    }

    /// Whether the value is an object.
    pub fn is_object(self) -> bool {
        self.raw().starts_with('{')
    }

    /// Whether the value is an array.
    pub fn is_array(self) -> bool {
        self.raw().starts_with('[')
    }

    /// Whether the value is a string.
    pub fn is_string(self) -> bool {
        self.raw().starts_with('"')
    }

    /// The members of an indexed object in their order: decoded key and value.
    pub fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Node<'a>)> {
        self.spans().map(|(key, node)| (key.decoded(), node))
    }

    /// The member with this key, refused if another key is equal but for case.
    pub fn unique(self, key: &str) -> Result<Option<Node<'a>>, Duplicate> {
        self.all_unique([key]).map(|[found]| found)
    }

    /// As [`Node::unique`], for several keys in one pass.
    pub fn all_unique<const N: usize>(self, keys: [&str; N]) -> Result<[Option<Node<'a>>; N], Duplicate> {
        let mut found = [None; N];
        let mut seen = [false; N];
        for (name, node) in self.spans() {
            let decoded = name.decoded();
            let Some(at) = keys.iter().position(|key| alike(key, &decoded)) else { continue };
            if std::mem::replace(&mut seen[at], true) {
                return Err(Duplicate);
            }
            if keys[at] == decoded {
                found[at] = Some(node);
            }
        }
        Ok(found)
    }

    /// The first member with this key; for data in which a duplicate does no harm.
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        self.spans().find(|(name, _)| name.is(key)).map(|(_, node)| node)
    }

    /// The decoded text of a string; `None` for other values and for strings that no Unicode text equals
    /// (lone surrogates).
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        let raw = self.raw();
        if self.plain { Some(Cow::Borrowed(&raw[1..raw.len() - 1])) } else { decode(raw) }
    }

    /// Writes the object with some members set, replaced or taken away, every other one as it was.
    ///
    /// A change is a key and its raw value, `None` takes the member away; new members come last. A node that is
    /// no object counts as an empty one. Line breaks between tokens become spaces, so that the outcome can be
    /// framed by lines.
    pub fn write_with(self, out: &mut Vec<u8>, changes: &[(&str, Option<&str>)]) {
        let start = out.len();
        out.push(b'{');
        let mut first = true;
        let mut member = |key: &str, value: &str| {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            out.extend_from_slice(key.as_bytes());
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        };
        debug_assert!(changes.len() <= 64, "a bit for each");
        let mut done = 0_u64;
        for (key, node) in self.spans() {
            match changes.iter().position(|(name, _)| key.is(name)) {
                None => member(key.raw, node.raw()),
                Some(at) => {
                    done |= 1 << at;
                    if let Some(value) = changes[at].1 {
                        member(key.raw, value);
                    }
                }
            }
        }
        for (at, (name, value)) in changes.iter().enumerate() {
            if let Some(value) = value
                && done >> at & 1 == 0
            {
                member(&quote(name), value);
            }
        }
        out.push(b'}');
        if self.doc.has_line_breaks() {
            unbreak(&mut out[start..]);
        }
    }

    /// The text that [`Node::write_with`] writes.
    pub fn with(self, changes: &[(&str, Option<&str>)]) -> String {
        let mut text = Vec::new();
        self.write_with(&mut text, changes);
        String::from_utf8(text).expect("written from UTF-8 texts")
    }

    /// Writes the value as it was, line breaks between tokens as spaces.
    pub fn write(self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.raw().as_bytes());
        if self.doc.has_line_breaks() {
            unbreak(&mut out[start..]);
        }
    }

    fn spans(self) -> impl Iterator<Item = (Key<'a>, Node<'a>)> {
        let Doc { text, found } = self.doc;
        let depth = self.depth + 1;
        let mut next = if self.is_object() { self.inside } else { u32::MAX };
        std::iter::from_fn(move || {
            let member = found.members.get(next as usize)?;
            if member.depth != depth || member.value.start > self.span.end {
                return None;
            }
            let inside = next + 1;
            next = member.next;
            let key = Key { raw: &text[member.key.range()], escaped: member.escaped_key };
            let plain = member.plain_value;
            Some((key, Node { doc: self.doc, span: member.value, inside, depth, plain }))
        })
    }
}

/// Whether two keys are equal but for case.
#[inline]
fn alike(one: &str, other: &str) -> bool {
    // Most are told apart by their length or their first letter.
    one.len() == other.len()
        && one.bytes().next().map(|first| first | 0x20) == other.bytes().next().map(|first| first | 0x20)
        && (one == other || one.eq_ignore_ascii_case(other))
}

/// The key of a member.
#[derive(Clone, Copy)]
struct Key<'a> {
    /// With its quotes.
    raw: &'a str,
    escaped: bool,
}

impl<'a> Key<'a> {
    /// What stands between the quotes.
    fn plain(self) -> &'a str {
        &self.raw[1..self.raw.len() - 1]
    }

    fn decoded(self) -> Cow<'a, str> {
        if self.escaped { decode_lossy(self.raw) } else { Cow::Borrowed(self.plain()) }
    }

    fn is(self, key: &str) -> bool {
        if self.escaped { self.decoded() == key } else { self.plain() == key }
    }
}

impl Span {
    fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The text as a JSON string literal.
pub fn quote(text: &str) -> String {
    if text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        return serde_json::to_string(text).expect("a string is always JSON");
    }
    ["\"", text, "\""].concat()
}

/// Line breaks stand only between tokens of valid JSON: a string has them escaped.
fn unbreak(bytes: &mut [u8]) {
    for byte in bytes {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

/// Decodes a string literal; `None` if it is none, or holds a lone surrogate.
fn decode(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// Decodes a string literal for comparing; one that cannot be decoded stays as written.
fn decode_lossy(raw: &str) -> Cow<'_, str> {
    decode(raw).unwrap_or(Cow::Borrowed(raw))
}
