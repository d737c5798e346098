//! JSON seen from the outside: one validating pass over a text that builds no tree.
//!
//! The pass remembers where the members of the outer objects stand, down to `INDEXED` levels, which is as
//! deep as a gateway must look to route a message. Everything else stays bytes. Nesting costs one bit a
//! level and no recursion, so depth is no danger.

use std::borrow::Cow;
use std::ops::Range;

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
    /// The value as it was written.
    pub fn raw(self) -> &'a str {
        &self.doc.text[self.span.start as usize..self.span.end as usize]
    }

    /// Where the value stands in its document.
    pub fn range(self) -> Range<usize> {
        self.span.start as usize..self.span.end as usize
    }

    /// The document's whole text.
    pub fn text(self) -> &'a str {
        self.doc.text
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
        if self.doc.found.broken_lines {
            unbreak(&mut out[start..]);
        }
    }

    /// Writes the value as it was, line breaks between tokens as spaces.
    pub fn write(self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.raw().as_bytes());
        if self.doc.found.broken_lines {
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

/// Validates texts; keeps its memory from one to the next.
#[derive(Default)]
pub struct Scanner {
    members: Vec<Member>,
    /// One bit a level: set for an object.
    levels: Vec<u64>,
    depth: usize,
    deepest: usize,
    /// The level of the outermost open array; members inside arrays are not indexed.
    array_at: Option<usize>,
    open: [usize; INDEXED],
    root: Span,
    broken_lines: bool,
}

/// Members kept allocated between two texts.
const KEPT_MEMBERS: usize = 1024;

impl Scanner {
    /// Validates `text` as one JSON value and indexes its outer members.
    pub fn scan<'a>(&'a mut self, text: &'a [u8]) -> Result<Doc<'a>, Invalid> {
        let text = std::str::from_utf8(text).map_err(|error| Invalid { offset: error.valid_up_to() })?;
        self.scan_str(text)
    }

    /// As [`Scanner::scan`], for a text known to be UTF-8.
    pub fn scan_str<'a>(&'a mut self, text: &'a str) -> Result<Doc<'a>, Invalid> {
        if u32::try_from(text.len()).is_err() {
            return Err(Invalid { offset: u32::MAX as usize });
        }
        let start = self.begin(text.as_bytes());
        let end = self.value(text.as_bytes(), start)?;
        let at = self.space(text.as_bytes(), end);
        if at < text.len() {
            return Err(Invalid { offset: at });
        }
        Ok(self.doc(text, Span::new(start, end)))
    }

    /// Hands on the elements of an array, a value of a text that was validated, one after the other.
    pub fn each_element(&mut self, array: Node<'_>, mut take: impl FnMut(Node<'_>)) {
        let text = array.raw();
        let mut at = self.space(text.as_bytes(), 1);
        while at < text.len() - 1 {
            let rest = &text[at..];
            let start = self.begin(rest.as_bytes());
            let end = self.value(rest.as_bytes(), start).expect("a part of valid JSON is valid");
            take(self.doc(&rest[..end], Span::new(start, end)).root());
            at += end;
            at = self.space(text.as_bytes(), at);
            at = self.space(text.as_bytes(), at + 1);
        }
    }

    /// Forgets the last text and finds where the value of the next begins.
    fn begin(&mut self, text: &[u8]) -> usize {
        self.members.clear();
        self.members.shrink_to(KEPT_MEMBERS);
        self.levels.clear();
        self.depth = 0;
        self.deepest = 0;
        self.array_at = None;
        self.broken_lines = false;
        self.space(text, 0)
    }

    fn doc<'a>(&'a mut self, text: &'a str, root: Span) -> Doc<'a> {
        self.root = root;
        Doc { text, found: self }
    }

    /// The number under `id`, if it can be seen, in a response that is broken, or of which only the beginning and the
    /// end are known; `None` for what is no response.
    pub fn id_of_response(&mut self, start: &[u8], end: &[u8]) -> Option<Option<u64>> {
        let text = &start[..start.utf8_chunks().next().map_or(0, |chunk| chunk.valid().len())];
        let _ = self.scan(text);
        let has = |key: &[u8]| {
            self.members.iter().any(|member| member.depth == 1 && &text[member.key.range()] == key)
        };
        if has(b"\"method\"") || !has(b"\"result\"") && !has(b"\"error\"") {
            return None;
        }
        Some(self.id_in_prefix(text).or_else(|| id_at_end(end)))
    }

    /// The number under `id` in a message that was cut off.
    pub fn id_in_prefix(&mut self, prefix: &[u8]) -> Option<u64> {
        self.raw_id_in_prefix(prefix)?.parse().ok()
    }

    /// What stands under `id` in a message that was cut off, raw.
    pub fn raw_id_in_prefix<'a>(&mut self, prefix: &'a [u8]) -> Option<&'a str> {
        let text = match std::str::from_utf8(prefix) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&prefix[..error.valid_up_to()]).expect("valid up to there"),
        };
        let _ = self.scan_str(text);
        let outer =
            self.members.iter().filter(|member| member.depth == 1 && member.value.end > member.value.start);
        // What ends with the text may have been longer.
        let outer = outer.filter(|member| (member.value.end as usize) < text.len());
        let mut ids = outer.filter(|member| &text[member.key.range()] == "\"id\"");
        Some(&text[ids.next()?.value.range()])
    }

    /// The end of the value that begins at `at`.
    fn value(&mut self, text: &[u8], mut at: usize) -> Result<usize, Invalid> {
        // Of the innermost value that is open: whether it is an object, and whether its members are indexed.
        let (mut object, mut indexed) = (false, false);
        loop {
            // A value is expected here.
            match text.get(at) {
                Some(b'"') => {
                    let (end, escaped) = string(text, at)?;
                    if indexed {
                        self.members[self.open[self.depth - 1]].plain_value = !escaped;
                    }
                    at = end;
                }
                Some(b'{') => {
                    self.push(true);
                    at = self.space(text, at + 1);
                    if text.get(at) != Some(&b'}') {
                        (object, indexed) = (true, self.is_indexed());
                        at = self.key(text, at, indexed)?;
                        continue;
                    }
                    self.depth -= 1;
                    at += 1;
                }
                Some(b'[') => {
                    self.push(false);
                    at = self.space(text, at + 1);
                    if text.get(at) != Some(&b']') {
                        (object, indexed) = (false, false);
                        continue;
                    }
                    self.pop_array();
                    at += 1;
                }
                Some(b'-' | b'0'..=b'9') => at = number(text, at)?,
                Some(b't') => at = literal(text, at, b"true")?,
                Some(b'f') => at = literal(text, at, b"false")?,
                Some(b'n') => at = literal(text, at, b"null")?,
                _ => return Err(Invalid { offset: at }),
            }
            // A value has ended here.
            loop {
                if self.depth == 0 {
                    return Ok(at);
                }
                if indexed {
                    let behind = self.members.len() as u32;
                    let member = &mut self.members[self.open[self.depth - 1]];
                    (member.value.end, member.next) = (at as u32, behind);
                }
                at = self.space(text, at);
                match (text.get(at), object) {
                    (Some(b','), true) => {
                        at = self.space(text, at + 1);
                        at = self.key(text, at, indexed)?;
                        break;
                    }
                    (Some(b','), false) => {
                        at = self.space(text, at + 1);
                        break;
                    }
                    (Some(b'}'), true) => self.depth -= 1,
                    (Some(b']'), false) => self.pop_array(),
                    _ => return Err(Invalid { offset: at }),
                }
                at += 1;
                object = self.depth > 0 && self.in_object();
                indexed = object && self.is_indexed();
            }
        }
    }

    /// Reads `"key":` and the space behind it.
    fn key(&mut self, text: &[u8], at: usize, indexed: bool) -> Result<usize, Invalid> {
        if text.get(at) != Some(&b'"') {
            return Err(Invalid { offset: at });
        }
        let (end, escaped) = string(text, at)?;
        let colon = self.space(text, end);
        if text.get(colon) != Some(&b':') {
            return Err(Invalid { offset: colon });
        }
        let value = self.space(text, colon + 1);
        if indexed {
            self.open[self.depth - 1] = self.members.len();
            self.members.push(Member {
                depth: self.depth as u8,
                escaped_key: escaped,
                plain_value: false,
                key: Span::new(at, end),
                value: Span::new(value, value),
                next: u32::MAX,
            });
        }
        Ok(value)
    }

    /// Whether the members of the innermost open object are indexed.
    fn is_indexed(&self) -> bool {
        self.array_at.is_none() && self.depth <= INDEXED
    }

    fn push(&mut self, object: bool) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word == self.levels.len() {
            self.levels.push(0);
        }
        if object {
            self.levels[word] |= 1 << bit;
        } else {
            self.levels[word] &= !(1 << bit);
            self.array_at.get_or_insert(self.depth);
        }
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
    }

    fn pop_array(&mut self) {
        self.depth -= 1;
        if self.array_at == Some(self.depth) {
            self.array_at = None;
        }
    }

    fn in_object(&self) -> bool {
        let level = self.depth - 1;
        self.levels[level / 64] >> (level % 64) & 1 == 1
    }

    fn space(&mut self, text: &[u8], mut at: usize) -> usize {
        while let Some(byte) = text.get(at) {
            match byte {
                b' ' | b'\t' => {}
                b'\n' | b'\r' => self.broken_lines = true,
                _ => break,
            }
            at += 1;
        }
        at
    }
}

/// The end of the string that begins at `at`, and whether it has escapes.
#[inline(always)]
fn string(text: &[u8], at: usize) -> Result<(usize, bool), Invalid> {
    let stop = plain(text, at + 1);
    match text.get(stop) {
        Some(b'"') => Ok((stop + 1, false)),
        _ => escaped(text, stop),
    }
}

/// As [`string`], from where its first escape stands.
#[cold]
fn escaped(text: &[u8], mut stop: usize) -> Result<(usize, bool), Invalid> {
    loop {
        stop = match text.get(stop) {
            Some(b'"') => return Ok((stop + 1, true)),
            Some(b'\\') => plain(text, escape(text, stop)?),
            _ => return Err(Invalid { offset: stop }),
        };
    }
}

/// The number under `id` where that is the last member of an object, or has only the version behind it, as in the
/// answers of servers that write the result first.
fn id_at_end(end: &[u8]) -> Option<u64> {
    let text = end.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let version = br#""jsonrpc":"2.0""#;
    let text = match text.strip_suffix(version) {
        Some(before) => before.trim_ascii_end().strip_suffix(b",")?.trim_ascii_end(),
        None => text,
    };
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = text.split_at(text.len() - digits);
    let before = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(b"\"id\"")?;
    matches!(before.trim_ascii_end().last(), Some(b',' | b'{')).then_some(())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Bytes of a string looked at by words before a vectorised search pays.
const SHORT: usize = 32;

/// Where the plain part of a string that begins at `at` ends: before a quote, a backslash or a control character.
#[inline(always)]
fn plain(text: &[u8], mut at: usize) -> usize {
    let near = at + SHORT;
    while at < near
        && let Some(word) = text.get(at..at + 8).and_then(<[u8]>::first_chunk)
    {
        match special(*word) {
            Some(found) => return at + found,
            None => at += word.len(),
        }
    }
    far(text, at)
}

/// As [`plain`], for what is longer.
#[inline(never)]
fn far(text: &[u8], at: usize) -> usize {
    let rest = &text[at..];
    let rest = &rest[..memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len())];
    let end = match rest.iter().fold(false, |bad, byte| bad | (*byte < 0x20)) {
        true => rest.iter().position(|byte| *byte < 0x20).unwrap_or(rest.len()),
        false => rest.len(),
    };
    at + end
}

/// The first byte of a word that a string cannot just pass over: a quote, a backslash or a control character.
fn special(word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let word = u64::from_le_bytes(word);
    // The high bit of each byte that is below `limit`, and perhaps of some that stand behind one.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & (ONES << 7);
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let found = equal(b'"') | equal(b'\\') | below(word, 0x20);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// The end of the escape sequence whose backslash stands at `at`.
fn escape(text: &[u8], at: usize) -> Result<usize, Invalid> {
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') if text.len() >= at + 6 && text[at + 2..at + 6].iter().all(u8::is_ascii_hexdigit) => {
            Ok(at + 6)
        }
        _ => Err(Invalid { offset: at }),
    }
}

/// The end of the number that begins at `at`.
fn number(text: &[u8], start: usize) -> Result<usize, Invalid> {
    let digits = |mut at: usize| {
        let first = at;
        while text.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at == first { Err(Invalid { offset: at }) } else { Ok(at) }
    };
    let mut at = start + usize::from(text[start] == b'-');
    at = if text.get(at) == Some(&b'0') { at + 1 } else { digits(at)? };
    if text.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1;
        at = digits(at + usize::from(matches!(text.get(at), Some(b'+' | b'-'))))?;
    }
    Ok(at)
}

fn literal(text: &[u8], at: usize, word: &[u8]) -> Result<usize, Invalid> {
    if text[at..].starts_with(word) { Ok(at + word.len()) } else { Err(Invalid { offset: at }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn elements_of_an_array_are_handed_on_as_they_stand() {
        for array in ["[]", "[ ]", "[1]", r#"[ 1 , "a\"]" ,{"b":[2, {}]},[ ],null ]"#, "[\n1\n,\r2\n]"] {
            let text = format!("{{\"list\":{array}}}");
            let mut scanner = Scanner::default();
            let list = scanner.scan_str(&text).unwrap().root().get("list").unwrap();
            let mut found = Vec::new();
            Scanner::default().each_element(list, |element| {
                found.push((element.raw().to_owned(), element.get("b").map(|node| node.raw().to_owned())));
            });
            let expected: Vec<Box<serde_json::value::RawValue>> = serde_json::from_str(array).unwrap();
            let inner = |raw: &str| raw.starts_with('{').then(|| "[2, {}]".to_owned());
            let expected: Vec<_> =
                expected.iter().map(|raw| (raw.get().to_owned(), inner(raw.get()))).collect();
            assert_eq!(found, expected, "{array}");
        }
    }

    fn node_text(text: &str, path: &[&str]) -> Option<String> {
        let mut scanner = Scanner::default();
        let mut node = scanner.scan_str(text).expect("valid").root();
        for key in path {
            node = node.unique(key).expect("unique")?;
        }
        Some(node.raw().to_owned())
    }

    #[test]
    fn finds_members_down_to_the_indexed_depth() {
        let text = r#" {"id": 1, "params" : {"name":"x","arguments":{"tool":{"server":"s" , "t":[{"a":1}]},"n":1.50}, "z":[]} , "r":{}} "#;
        for (path, expected) in [
            (&["id"][..], Some("1")),
            (&["params", "name"], Some("\"x\"")),
            (&["params", "arguments", "tool"], Some(r#"{"server":"s" , "t":[{"a":1}]}"#)),
            (&["params", "arguments", "tool", "server"], Some("\"s\"")),
            (&["params", "arguments", "tool", "t"], Some(r#"[{"a":1}]"#)),
            (&["params", "arguments", "n"], Some("1.50")),
            (&["params", "z"], Some("[]")),
            (&["r"], Some("{}")),
            (&["r", "a"], None),
            (&["name"], None),
        ] {
            assert_eq!(node_text(text, path).as_deref(), expected, "{path:?}");
        }
    }

    #[test]
    fn escapes_in_keys_count_and_duplicates_are_refused() {
        assert_eq!(node_text(r#"{"na\u006de":"a"}"#, &["name"]).as_deref(), Some("\"a\""));
        for text in [r#"{"name":1,"name":2}"#, r#"{"name":1,"NAME":2}"#, r#"{"n\u0061me":1,"name":2}"#] {
            let mut scanner = Scanner::default();
            assert_eq!(
                scanner.scan_str(text).unwrap().root().unique("name").err(),
                Some(Duplicate),
                "{text}"
            );
        }
        assert_eq!(node_text(r#"{"a":{"name":1},"name":2}"#, &["name"]).as_deref(), Some("2"));
    }

    #[test]
    fn depth_is_no_danger() {
        let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        assert_eq!(Scanner::default().scan_str(&deep).map(Doc::deepest), Ok(1_000_000));
        assert_eq!(Scanner::default().scan_str("[{},[]]").map(Doc::deepest), Ok(2));
        assert!(Scanner::default().scan_str(&deep[1..]).is_err());
    }

    #[test]
    fn line_breaks_between_tokens_are_noticed() {
        for (text, expected) in
            [("{\"a\":1}", false), ("{\n\"a\":1}", true), ("{\"a\\n\":1}", false), ("[1,\r2]", true)]
        {
            assert_eq!(Scanner::default().scan_str(text).unwrap().has_line_breaks(), expected, "{text:?}");
        }
    }

    #[test]
    fn rewrites_members_and_leaves_the_rest() {
        for (text, changes, expected) in [
            (
                r#"{"name":"a","x":12345678901234567890}"#,
                &[("name", Some("\"b\""))][..],
                r#"{"name":"b","x":12345678901234567890}"#,
            ),
            (r#"{ "x" : [1, 2] , "y":0.10}"#, &[("x", None), ("z", Some("{}"))], r#"{"y":0.10,"z":{}}"#),
            ("{\n\"x\": [1,\n2]}", &[("y", Some("1"))], r#"{"x":[1, 2],"y":1}"#),
            ("7", &[("y", Some("1"))], r#"{"y":1}"#),
            ("{}", &[("y", None)], "{}"),
        ] {
            let mut out = Vec::new();
            Scanner::default().scan_str(text).unwrap().root().write_with(&mut out, changes);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn finds_the_id_of_a_message_that_was_cut_off() {
        for (prefix, expected) in [
            (&br#"{"jsonrpc":"2.0","id":17,"result":{"id":3,"content":"aaaaa"#[..], Some(17)),
            (br#"{"result":{"id":3,"content":"aaaaa"#, None),
            (b"{\"id\":17,\"result\":\"\xc3", Some(17)),
            (b"{\"id\":17", None),
            (b"garbage", None),
        ] {
            assert_eq!(
                Scanner::default().id_in_prefix(prefix),
                expected,
                "{}",
                String::from_utf8_lossy(prefix)
            );
        }
    }

    #[test]
    fn finds_an_id_of_any_kind_in_a_message_that_was_cut_off() {
        for (prefix, expected) in [
            (r#"{"id":"a\"b","method":"m","params":{"x":"aaa"#, Some(r#""a\"b""#)),
            (r#"{"id":-1.5e3,"method":"aaa"#, Some("-1.5e3")),
            (r#"{"params":{"id":"inner","x":"aaa"#, None),
            (r#"{"id":"aaa"#, None),
            (r#"{"id":"aaa""#, None),
        ] {
            assert_eq!(Scanner::default().raw_id_in_prefix(prefix.as_bytes()), expected, "{prefix}");
        }
    }

    #[test]
    fn finds_the_id_of_a_response_that_is_known_in_part() {
        for (start, end, expected) in [
            (r#"{"jsonrpc":"2.0","id":17,"result":{"id":3,"text":"aaa"#, r#"aaa","id":4}}"#, Some(Some(17))),
            (r#"{"result":{"id":3,"text":"aaa"#, r#"aaa"},"jsonrpc":"2.0","id":17}"#, Some(Some(17))),
            (r#"{"error":{"code":1,"message":"aaa"#, "aaa\"} , \"id\" : 17 } ", Some(Some(17))),
            (r#"{"result":{"text":"aaa"#, r#"aaa"},"id":17,"jsonrpc":"2.0"}"#, Some(Some(17))),
            (r#"{"result":{"text":"aaa"#, r#"aaa","id":17}}"#, Some(None)),
            (r#"{"result":{"text":"aaa"#, r#"aaa"},"id":"17"}"#, Some(None)),
            (r#"{"result":{"text":"aaa"#, r#"aaa \"id\":17}"#, Some(None)),
            (r#"{"jsonrpc":"2.0","id":17,"method":"m","params":{"text":"aaa"#, r#"aaa"}}"#, None),
            (r#"{"jsonrpc":"2.0","id":17,"#, "", None),
            (r#"{"jsonrpc":"2.0","id":17,"result":{"text":"\"#, "", Some(Some(17))),
            ("garbage", r#","id":17}"#, None),
        ] {
            let found = Scanner::default().id_of_response(start.as_bytes(), end.as_bytes());
            assert_eq!(found, expected, "{start} … {end}");
        }
        let invalid = b"{\"id\":17,\"result\":\"\xff\"}";
        assert_eq!(Scanner::default().id_of_response(invalid, invalid), Some(Some(17)));
    }

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("-0.10e+5".to_owned()),
            any::<i64>().prop_map(|n| n.to_string()),
            any::<String>().prop_map(|s| serde_json::to_string(&s).unwrap()),
            Just(r#""\ud800\u00e9\/""#.to_owned()),
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|v| format!("[ {} ]", v.join(" ,"))),
                prop::collection::vec(("[a-c]{0,2}", inner), 0..4).prop_map(|m| {
                    let members: Vec<_> = m.iter().map(|(k, v)| format!("\"{k}\" :{v}")).collect();
                    format!("{{{}}}", members.join(", "))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn accepts_what_is_json(text in json()) {
            prop_assert!(Scanner::default().scan_str(&text).is_ok());
        }

        #[test]
        fn agrees_with_an_independent_parser(text in json(), at in any::<prop::sample::Index>(), byte in prop::sample::select(b"{}[]\",:\\0e-.tn \n\x01x".to_vec())) {
            let mut bytes = text.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let ours = Scanner::default().scan(&bytes).is_ok();
            let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok() && std::str::from_utf8(&bytes).is_ok();
            prop_assert_eq!(ours, theirs, "{:?}", String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let ours = Scanner::default().scan(&bytes).is_ok();
            let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok() && std::str::from_utf8(&bytes).is_ok();
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn members_are_those_of_an_independent_parser(text in json()) {
            let mut scanner = Scanner::default();
            let root = scanner.scan_str(&text).unwrap().root();
            let keys: Vec<_> = root.members().map(|(key, _)| key.into_owned()).collect();
            if let Ok(serde_json::Value::Object(map)) = serde_json::from_str(&text) {
                for key in &keys {
                    prop_assert!(map.contains_key(key));
                }
                for key in map.keys() {
                    prop_assert!(keys.contains(key));
                }
            } else if root.is_object() { // lone surrogates: serde_json cannot hold them
                prop_assert!(text.contains("ud800"));
            } else {
                prop_assert!(keys.is_empty());
            }
        }
    }
}
