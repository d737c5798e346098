//! JSON seen from the outside: one validating pass over a text that builds no tree.
//!
//! Both transports, the protocol and the catalog read JSON here. The pass remembers where the members of the
//! outer objects are, down to `INDEXED` levels, which is as deep as a gateway must look to route a message.
//! Everything else stays bytes. Below the indexed levels nesting costs one bit per level and no recursion, so
//! deep texts are no danger.
//!
//! Invariant: a scanned text is valid JSON, and so is every part of it that a [`Node`] shows.

mod raw;
mod scan;
#[cfg(test)]
mod tests;
mod token;

use std::borrow::Cow;
use std::ops::{Deref, Range};

pub use raw::Raw;
pub use scan::Scanner;

/// The members of objects nested deeper than this are validated but not indexed. The levels are the envelope,
/// `params`, `arguments` and the parts of a tool's address.
const INDEXED: usize = 4;

/// A validated JSON text with the positions of its outer members.
#[derive(Clone, Copy)]
pub struct Doc<'a> {
    text: &'a str,
    found: &'a Scanner,
}

/// The position of one member of an indexed object.
#[derive(Clone, Copy)]
struct Member {
    /// Whether the key contains escapes.
    escaped_key: bool,
    /// Whether the value is a string without escapes.
    plain_value: bool,
    key: Span,
    value: Span,
    /// The index of the first member after the value; of no member if the text ends in the value.
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
    /// The indices of the members inside this value, at any depth: the first, and the one behind the last.
    inside: u32,
    behind: u32,
    /// Whether the value is known to be a string without escapes.
    plain: bool,
}

/// A change to an object: a key with its raw value, or with `None` to remove the member.
pub type MemberChange<'a> = (&'a str, Option<&'a str>);

/// A few changes to one object, gathered without allocating: eight at most.
pub struct Changes<'a> {
    all: [MemberChange<'a>; 8],
    count: usize,
}

impl<'a> Changes<'a> {
    /// These changes, to be followed by others.
    pub fn new(first: &[MemberChange<'a>]) -> Self {
        let mut changes = Self { all: [("", None); 8], count: first.len() };
        changes.all[..first.len()].copy_from_slice(first);
        changes
    }

    /// Adds a change, unless its key has one already.
    pub fn add(&mut self, key: &'a str, value: Option<&'a str>) {
        if !self.iter().any(|(changed, _)| *changed == key) {
            self.all[self.count] = (key, value);
            self.count += 1;
        }
    }
}

impl<'a> Deref for Changes<'a> {
    type Target = [MemberChange<'a>];

    fn deref(&self) -> &Self::Target {
        &self.all[..self.count]
    }
}

/// An object has a key that we route by twice, perhaps in another case. Two parsers could disagree about
/// which one counts.
#[derive(Debug, PartialEq, Eq)]
pub struct Duplicate;

/// The error for a text that is not JSON.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Invalid {
    /// The offset of the first invalid byte.
    pub offset: usize,
}

impl<'a> Doc<'a> {
    /// The outermost value.
    pub fn root(self) -> Node<'a> {
        let behind = self.found.members.len() as u32;
        Node { doc: self, span: self.found.root, inside: 0, behind, plain: false }
    }

    /// The largest number of arrays and objects that are nested in one another.
    pub fn deepest(self) -> usize {
        self.found.deepest
    }

    /// Whether there are line breaks between tokens, which would break framing by lines.
    pub fn has_line_breaks(self) -> bool {
        self.found.broken_lines
    }
}

impl<'a> Node<'a> {
    /// An empty object, `{}`.
    pub fn empty() -> Self {
        static NOTHING: Scanner = Scanner::new();
        let doc = Doc { text: "{}", found: &NOTHING };
        Self { doc, span: Span { start: 0, end: 2 }, inside: 0, behind: 0, plain: false }
    }

    /// The value as it was written.
    pub fn raw(self) -> &'a str {
        &self.doc.text[self.span.start as usize..self.span.end as usize]
    }

    /// Whether the value was written like this.
    #[inline(always)]
    pub fn is(self, raw: &[u8]) -> bool {
        self.doc.text.as_bytes().get(self.span.range()) == Some(raw)
    }

    /// Whether the value is an object.
    pub fn is_object(self) -> bool {
        self.begins_with(b'{')
    }

    /// Whether the value is an array.
    pub fn is_array(self) -> bool {
        self.begins_with(b'[')
    }

    /// Whether the value is a string.
    pub fn is_string(self) -> bool {
        self.begins_with(b'"')
    }

    #[inline]
    fn begins_with(self, byte: u8) -> bool {
        self.doc.text.as_bytes().get(self.span.start as usize) == Some(&byte)
    }

    /// The members of an indexed object in order, as decoded keys and values.
    pub fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Node<'a>)> {
        self.inside().map(move |(at, member)| (member.decoded(self.doc.text), self.node(at)))
    }

    /// The member with this key. It is refused if another key is equal apart from case.
    #[inline]
    pub fn unique(self, key: &str) -> Result<Option<Node<'a>>, Duplicate> {
        self.all_unique([key]).map(|found| found.get(0))
    }

    /// Like [`Node::unique`], for several keys in one pass.
    #[inline]
    pub fn all_unique<const N: usize>(self, keys: [&str; N]) -> Result<Sorted<'a, N>, Duplicate> {
        self.sorted(&keys, |own| keys.iter().position(|key| key.as_bytes() == own))
    }

    /// Like [`Node::all_unique`]. `place` finds the place of a key, as it is written; a `match` of literals is much faster
    /// than a comparison with each of the keys.
    #[inline(always)]
    pub fn sorted<const N: usize>(
        self,
        keys: &[&str; N],
        place: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Sorted<'a, N>, Duplicate> {
        let mut sorted = Sorted { of: self, places: [NOWHERE; N] };
        for (at, member) in self.inside() {
            let (place, found) = match place(member.written(self.doc.text)).filter(|_| !member.escaped_key) {
                Some(place) => (place, at),
                None => match self.compare(at, member, keys) {
                    Some(compared) => compared,
                    None => continue,
                },
            };
            if sorted.places[place] != NOWHERE {
                return Err(Duplicate);
            }
            sorted.places[place] = found;
        }
        Ok(sorted)
    }

    /// Whether one of these keys, of which there are few, stands in the object twice, perhaps in another case.
    pub fn repeats(self, keys: &[&str]) -> bool {
        let mut found = 0_u64;
        self.inside().any(|(at, member)| {
            let place = self.compare(at, member, keys).map_or(0, |(place, _)| 1 << place);
            let again = found & place;
            found |= place;
            again != 0
        })
    }

    /// The values of these keys; `None` if the object has another key, or one of these twice.
    #[inline(always)]
    pub fn only<const N: usize>(self, keys: &[&str; N]) -> Option<Sorted<'a, N>> {
        let mut sorted = Sorted { of: self, places: [NOWHERE; N] };
        for (at, member) in self.inside() {
            // With an iterator, the compiler would not see that the keys are constants of the caller.
            let mut place = 0;
            while place < N && !member.is(self.doc.text, keys[place]) {
                place += 1;
            }
            if place == N || std::mem::replace(&mut sorted.places[place], at) != NOWHERE {
                return None;
            }
        }
        Some(sorted)
    }

    /// The place of a key that has escapes or differs from all, and the index that stands for the member.
    #[inline]
    fn compare(self, at: u32, member: &Member, keys: &[&str]) -> Option<(usize, u32)> {
        keys.iter().any(|key| member.may_be(key)).then(|| self.compare_alike(at, member, keys)).flatten()
    }

    #[cold]
    fn compare_alike(self, at: u32, member: &Member, keys: &[&str]) -> Option<(usize, u32)> {
        let own = member.decoded(self.doc.text);
        let same = keys.iter().position(|key| *key == own).map(|place| (place, at));
        same.or_else(|| Some((keys.iter().position(|key| own.eq_ignore_ascii_case(key))?, ALIKE)))
    }

    /// The first member with this key, for data in which a duplicate does no harm.
    #[inline]
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        let (at, _) = self.inside().find(|(_, member)| member.is(self.doc.text, key))?;
        Some(self.node(at))
    }

    /// Whether the object has a member with one of these keys.
    #[inline]
    pub fn has_any(self, keys: &[&str]) -> bool {
        self.inside().any(|(_, member)| keys.iter().any(|key| member.is(self.doc.text, key)))
    }

    /// Whether the object has a member with none of these keys.
    pub fn has_other(self, keys: &[&str]) -> bool {
        self.inside().any(|(_, member)| !keys.iter().any(|key| member.is(self.doc.text, key)))
    }

    /// The decoded text of a string; `None` for other values and for strings that are not Unicode text (lone
    /// surrogates).
    #[inline(always)]
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        match self.plain {
            true => {
                Some(Cow::Borrowed(&self.doc.text[self.span.start as usize + 1..self.span.end as usize - 1]))
            }
            false => decode(self.raw()),
        }
    }

    /// Writes the object with some members set, replaced or removed and all others unchanged.
    ///
    /// New members come last. A node that is not an object counts as an empty one. Line breaks between tokens
    /// become spaces, so that the result can be framed by lines.
    pub fn write_with(self, out: &mut Vec<u8>, changes: &[MemberChange<'_>]) {
        debug_assert!(changes.len() <= 64, "a bit for each");
        let (text, start) = (self.doc.text.as_bytes(), out.len());
        out.push(b'{');
        // Neighbours that stay are copied together: from `begin` to `end`, once that is known.
        let (mut begin, mut end, mut first, mut done) = (None, 0, true, 0_u64);
        for (_, member) in self.inside() {
            let change = changes.iter().position(|(name, _)| member.is(self.doc.text, name));
            done |= change.map_or(0, |at| 1 << at);
            let change = change.map(|at| changes[at].1);
            if let Some(None) = change {
                out.extend_from_slice(&text[begin.take().unwrap_or(end)..end]);
                continue;
            }
            let from = *begin.get_or_insert_with(|| {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                member.key.start as usize
            });
            end = member.value.end as usize;
            if let Some(Some(value)) = change {
                out.extend_from_slice(&text[from..member.value.start as usize]);
                out.extend_from_slice(value.as_bytes());
                begin = Some(end);
            }
        }
        out.extend_from_slice(&text[begin.unwrap_or(end)..end]);
        for (at, (name, value)) in changes.iter().enumerate() {
            if let Some(value) = value
                && done >> at & 1 == 0
            {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                write_string(out, name);
                out.push(b':');
                out.extend_from_slice(value.as_bytes());
            }
        }
        out.push(b'}');
        if self.doc.has_line_breaks() {
            unbreak(&mut out[start..]);
        }
    }

    /// The text that [`Node::write_with`] writes.
    pub fn with(self, changes: &[MemberChange<'_>]) -> String {
        let added: usize = changes.iter().map(|(key, value)| key.len() + 4 + value.map_or(0, str::len)).sum();
        let mut text = Vec::with_capacity(self.raw().len() + added);
        self.write_with(&mut text, changes);
        String::from_utf8(text).expect("written from UTF-8 texts")
    }

    /// Writes the value unchanged, with line breaks between tokens as spaces.
    pub fn write(self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.raw().as_bytes());
        if self.doc.has_line_breaks() {
            unbreak(&mut out[start..]);
        }
    }

    /// The members of the object, each with its index.
    #[inline(always)]
    fn inside(self) -> impl Iterator<Item = (u32, &'a Member)> {
        let members = &self.doc.found.members[..self.behind as usize];
        let mut next = self.inside;
        std::iter::from_fn(move || {
            let (at, member) = (next, members.get(next as usize)?);
            next = member.next;
            Some((at, member))
        })
    }

    /// The value of the member with this index.
    #[inline(always)]
    fn node(self, at: u32) -> Node<'a> {
        let member = &self.doc.found.members[at as usize];
        let (span, plain) = (member.value, member.plain_value);
        Node { doc: self.doc, span, inside: at + 1, behind: member.next, plain }
    }
}

/// The values of the keys that were looked for, by the places of the keys.
#[derive(Clone, Copy)]
pub struct Sorted<'a, const N: usize> {
    of: Node<'a>,
    /// The index of each member.
    places: [u32; N],
}

/// Stands for the index of a member that is not there.
const NOWHERE: u32 = u32::MAX;
/// Stands for the index of a member whose key is equal apart from case.
const ALIKE: u32 = NOWHERE - 1;

impl<'a, const N: usize> Sorted<'a, N> {
    /// The value of the key at this place.
    #[inline(always)]
    pub fn get(&self, place: usize) -> Option<Node<'a>> {
        let at = self.places[place];
        (at < ALIKE).then(|| self.of.node(at))
    }

    /// Whether the key at this place is there.
    #[inline(always)]
    pub fn has(&self, place: usize) -> bool {
        self.places[place] < ALIKE
    }
}

impl Member {
    /// The same member in a text that has it so many bytes further on, and so many members later. Both may wrap, to go
    /// back.
    #[inline(always)]
    fn moved(self, bytes: u32, members: u32) -> Self {
        Self {
            key: self.key.moved(bytes),
            value: self.value.moved(bytes),
            next: self.next.wrapping_add(members),
            ..self
        }
    }

    /// What stands between the quotes of the key.
    #[inline(always)]
    fn written(self, text: &str) -> &[u8] {
        &text.as_bytes()[self.key.start as usize + 1..self.key.end as usize - 1]
    }

    fn decoded(self, text: &str) -> Cow<'_, str> {
        match self.escaped_key {
            true => decode_lossy(&text[self.key.range()]),
            false => Cow::Borrowed(&text[self.key.start as usize + 1..self.key.end as usize - 1]),
        }
    }

    /// Whether the length admits that this is the key.
    #[inline(always)]
    fn may_be(self, key: &str) -> bool {
        self.escaped_key || (self.key.end - self.key.start) as usize == key.len() + 2
    }

    #[inline(always)]
    fn is(&self, text: &str, key: &str) -> bool {
        self.may_be(key)
            && match self.escaped_key {
                false => self.written(text) == key.as_bytes(),
                true => self.decoded(text) == key,
            }
    }
}

impl Span {
    fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    fn moved(self, bytes: u32) -> Self {
        Self { start: self.start.wrapping_add(bytes), end: self.end.wrapping_add(bytes) }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The text as a JSON string literal.
pub fn quote(text: &str) -> String {
    match token::is_plain(text) {
        true => ["\"", text, "\""].concat(),
        false => serde_json::to_string(text).expect("a string is always JSON"),
    }
}

/// The text as it stands between the quotes of a JSON string literal.
pub fn escaped(text: &str) -> Cow<'_, str> {
    match token::is_plain(text) {
        true => text.into(),
        false => {
            let literal = quote(text);
            literal[1..literal.len() - 1].to_owned().into()
        }
    }
}

/// Appends the text as a JSON string literal.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    match token::is_plain(text) {
        true => {
            out.push(b'"');
            out.extend_from_slice(text.as_bytes());
            out.push(b'"');
        }
        false => serde_json::to_writer(out, text).expect("a string is always JSON"),
    }
}

/// Replaces line breaks by spaces. In valid JSON they occur only between tokens, because strings escape them.
pub fn unbreak(mut bytes: &mut [u8]) {
    while let Some(at) = memchr::memchr2(b'\n', b'\r', bytes) {
        bytes[at] = b' ';
        bytes = &mut bytes[at + 1..];
    }
}

/// The end of the string that begins at `at` in valid JSON.
pub fn string_end(text: &[u8], at: usize) -> usize {
    token::string(text, at).expect("valid JSON has valid strings").0
}

/// Appends the decoded text of a valid string literal, in one copy. `false`: it is no Unicode text (lone
/// surrogates); then a part of it may have been appended.
pub fn append_decoded(literal: &str, out: &mut String) -> bool {
    let inner = &literal[1..literal.len() - 1];
    out.reserve(inner.len());
    let mut copied = 0;
    loop {
        let escape = token::plain(inner.as_bytes(), copied);
        out.push_str(&inner[copied..escape]);
        let Some(kind) = inner.as_bytes().get(escape + 1) else { return true };
        copied = escape + 2;
        out.push(match kind {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => match unicode(&inner[copied..]) {
                Some((character, rest)) => {
                    copied = inner.len() - rest.len();
                    character
                }
                None => return false,
            },
            itself => char::from(*itself),
        });
    }
}

/// The character that four hexadecimal digits stand for, or eight with `\u` between them, and what follows.
fn unicode(digits: &str) -> Option<(char, &str)> {
    let unit = |digits: &str| u16::from_str_radix(digits, 16).ok();
    let (first, rest) = digits.split_at_checked(4)?;
    let first = unit(first)?;
    if let Some(character) = char::from_u32(first.into()) {
        return Some((character, rest));
    }
    let (second, rest) = rest.strip_prefix("\\u")?.split_at_checked(4)?;
    let character = char::decode_utf16([first, unit(second)?]).next()?.ok()?;
    Some((character, rest))
}

/// Decodes a string literal; `None` if the text is not one, or has a lone surrogate.
fn decode(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// Decodes a string literal for comparison. A literal that cannot be decoded is compared as written.
fn decode_lossy(raw: &str) -> Cow<'_, str> {
    decode(raw).unwrap_or(Cow::Borrowed(raw))
}
