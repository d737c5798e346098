//! The pass over a text: it validates the JSON and finds the outer members.

use super::token::{literal, number, string};
use super::{Doc, INDEXED, Invalid, Member, Node, Raw, Span};

/// Validates texts, and reuses its memory from one text to the next.
#[derive(Clone, Default)]
pub struct Scanner {
    pub(super) members: Vec<Member>,
    /// The open levels around the innermost 64, a word for each 64 of them.
    outer_levels: Vec<u64>,
    pub(super) deepest: usize,
    pub(super) root: Span,
    pub(super) broken_lines: bool,
    /// The `_meta` of an earlier message, which may come again.
    known_meta: Option<Box<Raw>>,
    /// How many more times a `_meta` is kept.
    metas_to_keep: u8,
}

/// How the messages of most senders begin.
const OPENING: &[u8] = b"{\"jsonrpc\":\"2.0\",";
/// What this opening says.
const OPENED: Member = Member {
    escaped_key: false,
    plain_value: true,
    key: Span { start: 1, end: 10 },
    value: Span { start: 11, end: 16 },
    next: 1,
};
/// The number of members whose memory is kept between two texts.
const KEPT_MEMBERS: usize = 1024;
/// The depth of the object with a message's `_meta`: its parameters or its result.
const AROUND_META: usize = 2;
/// The longest `_meta` that is kept.
const LONGEST_META: usize = 2048;
/// How many are kept one after the other, and one more for each that came again. Some senders have something new in each,
/// such as a progress token.
const METAS_TO_KEEP: u8 = 16;

impl Scanner {
    /// A scanner that has validated nothing yet.
    pub(super) const fn new() -> Self {
        Self {
            members: Vec::new(),
            outer_levels: Vec::new(),
            deepest: 0,
            root: Span { start: 0, end: 0 },
            broken_lines: false,
            known_meta: None,
            metas_to_keep: 0,
        }
    }

    /// A scanner for the messages of one sender, or of few, who mostly send the same `_meta` with each.
    pub fn of_stream() -> Self {
        Self { metas_to_keep: METAS_TO_KEEP, ..Self::new() }
    }

    /// Validates `text` as one JSON value and indexes its outer members.
    pub fn scan<'a>(&'a mut self, text: &'a [u8]) -> Result<Doc<'a>, Invalid> {
        let text = std::str::from_utf8(text).map_err(|error| Invalid { offset: error.valid_up_to() })?;
        self.scan_str(text)
    }

    /// Like [`Scanner::scan`], for a text known to be UTF-8.
    pub fn scan_str<'a>(&'a mut self, text: &'a str) -> Result<Doc<'a>, Invalid> {
        if u32::try_from(text.len()).is_err() {
            return Err(Invalid { offset: u32::MAX as usize });
        }
        let start = self.begin(text.as_bytes());
        let end = self.value(text.as_bytes(), start)?;
        let at = self.next(text.as_bytes(), end).0;
        if at < text.len() {
            return Err(Invalid { offset: at });
        }
        Ok(self.doc(text, Span::new(start, end)))
    }

    /// Calls `take` with each element of an array from a validated text, in order.
    pub fn each_element(&mut self, array: Node<'_>, mut take: impl FnMut(Node<'_>)) {
        let text = array.raw();
        let mut at = self.next(text.as_bytes(), 1).0;
        while at < text.len() - 1 {
            let rest = &text[at..];
            let start = self.begin(rest.as_bytes());
            let end = self.value(rest.as_bytes(), start).expect("a part of valid JSON is valid");
            take(self.doc(&rest[..end], Span::new(start, end)).root());
            let comma = self.next(text.as_bytes(), at + end).0;
            at = self.next(text.as_bytes(), comma + 1).0;
        }
    }

    /// Calls `take` with whatever can be read of the outer members of an object that is broken or was cut
    /// off: each key as written, its value if the end of the value is visible, and the first byte of the
    /// value.
    pub fn each_outer<'a>(
        &mut self,
        text: &'a [u8],
        mut take: impl FnMut(&'a str, Option<&'a str>, Option<u8>),
    ) {
        let Some(text) = text.utf8_chunks().next().map(|chunk| chunk.valid()) else { return };
        let _ = self.scan_str(text);
        let mut next = 0;
        while let Some(member) = self.members.get(next as usize) {
            next = member.next;
            let (start, end) = (member.value.start as usize, member.value.end as usize);
            // A number at the very end of the text may have been longer.
            let whole = start < end && end < text.len();
            let first = text.as_bytes().get(start).copied();
            take(&text[member.key.range()], whole.then(|| &text[start..end]), first);
        }
    }

    /// The `_meta` that is kept.
    #[cfg(test)]
    pub(super) fn known_text(&self) -> Option<&str> {
        self.known_meta.as_ref().map(|known| &*known.text)
    }

    /// Forgets the last text and finds where the next value begins.
    fn begin(&mut self, text: &[u8]) -> usize {
        self.members.clear();
        // A call has about as many.
        if self.members.capacity() == 0 {
            self.members.reserve(16);
        }
        self.members.shrink_to(KEPT_MEMBERS);
        self.outer_levels.clear();
        self.deepest = 0;
        self.broken_lines = false;
        self.next(text, 0).0
    }

    fn doc<'a>(&'a mut self, text: &'a str, root: Span) -> Doc<'a> {
        self.root = root;
        Doc { text, found: self }
    }

    /// The end of the value that begins at `at`.
    fn value(&mut self, text: &[u8], at: usize) -> Result<usize, Invalid> {
        match text.get(at) {
            Some(b'{') if text[at..].starts_with(OPENING) => {
                self.members.push(OPENED.moved(at as u32, 0));
                self.deepest = 1;
                let (at, byte) = self.next(text, at + OPENING.len());
                self.members_from(text, at, byte, 1)
            }
            Some(b'{') => self.object(text, at, 1),
            _ => self.skip(text, at, 0),
        }
    }

    /// The end of the object that begins at `at`, at this depth, whose members are indexed. It calls itself, but never
    /// deeper than [`INDEXED`].
    fn object(&mut self, text: &[u8], at: usize, depth: usize) -> Result<usize, Invalid> {
        self.deepest = self.deepest.max(depth);
        let (at, byte) = self.next(text, at + 1);
        if byte == b'}' {
            return Ok(at + 1);
        }
        self.members_from(text, at, byte, depth)
    }

    /// The end of the object of which a member begins at `at`, with this byte.
    fn members_from(
        &mut self,
        text: &[u8],
        mut at: usize,
        mut byte: u8,
        depth: usize,
    ) -> Result<usize, Invalid> {
        loop {
            let (key, escaped_key, value, first) = self.key(text, at, byte)?;
            let index = self.members.len();
            let mut member = Member {
                key,
                value: Span::new(value, value),
                next: u32::MAX,
                escaped_key,
                plain_value: false,
            };
            let end = if first == b'"'
                && let Ok((end, escaped)) = string(text, value)
            {
                (member.value.end, member.next, member.plain_value) =
                    (end as u32, index as u32 + 1, !escaped);
                self.members.push(member);
                end
            } else {
                self.members.push(member);
                let end = match first {
                    b'{' if depth == AROUND_META && text[key.range()] == *b"\"_meta\"" => {
                        self.meta(text, value)?
                    }
                    b'{' if depth < INDEXED => self.object(text, value, depth + 1)?,
                    b'0'..=b'9' => number(text, value)?,
                    _ => self.skip(text, value, depth)?,
                };
                let behind = self.members.len() as u32;
                let member = &mut self.members[index];
                (member.value.end, member.next) = (end as u32, behind);
                end
            };
            (at, byte) = self.next(text, end);
            match byte {
                b',' => (at, byte) = self.next(text, at + 1),
                b'}' => return Ok(at + 1),
                _ => return Err(Invalid { offset: at }),
            }
        }
    }

    /// The end of the `_meta` that begins at `at`. One that is known byte for byte is valid, and its members lie as they did:
    /// an object shows where it ends, so nothing that follows can belong to it.
    #[inline(never)]
    fn meta(&mut self, text: &[u8], at: usize) -> Result<usize, Invalid> {
        let first = self.members.len();
        if let Some(known) = &self.known_meta
            && text[at..].starts_with(known.text.as_bytes())
        {
            let members = known.found.members.iter();
            self.members.extend(members.map(|member| member.moved(at as u32, first as u32)));
            self.deepest = self.deepest.max(AROUND_META + known.found.deepest);
            self.metas_to_keep = METAS_TO_KEEP.min(self.metas_to_keep + 1);
            return Ok(at + known.text.len());
        }
        let around = std::mem::take(&mut self.deepest);
        let end = self.object(text, at, AROUND_META + 1)?;
        let deepest = self.deepest - AROUND_META;
        self.deepest = self.deepest.max(around);
        if self.metas_to_keep > 0
            && end - at <= LONGEST_META
            && !self.broken_lines
            && let Ok(text) = std::str::from_utf8(&text[at..end])
        {
            self.metas_to_keep -= 1;
            let by = ((at as u32).wrapping_neg(), (first as u32).wrapping_neg());
            let members = self.members[first..].iter().map(|member| member.moved(by.0, by.1)).collect();
            let root = Span::new(0, text.len());
            let found = Self { members, deepest, root, ..Self::new() };
            self.known_meta = Some(Box::new(Raw { text: text.into(), found }));
        }
        Ok(end)
    }

    /// The place of the key that begins at `at`, whether it has escapes, and the place and first byte of its value.
    #[inline(always)]
    fn key(&mut self, text: &[u8], at: usize, byte: u8) -> Result<(Span, bool, usize, u8), Invalid> {
        if byte != b'"' {
            return Err(Invalid { offset: at });
        }
        let (end, escaped) = string(text, at)?;
        let colon = if text.get(end) == Some(&b':') { end } else { self.colon(text, end)? };
        let (value, first) = self.next(text, colon + 1);
        Ok((Span::new(at, end), escaped, value, first))
    }

    /// The place of the colon after a key that ends at `at`.
    #[cold]
    fn colon(&mut self, text: &[u8], at: usize) -> Result<usize, Invalid> {
        let (at, byte) = self.next(text, at);
        if byte == b':' { Ok(at) } else { Err(Invalid { offset: at }) }
    }

    /// The end of the value that begins at `at`, whose members, if it has any, are not indexed. `depth` values are open
    /// around it.
    fn skip(&mut self, text: &[u8], at: usize, depth: usize) -> Result<usize, Invalid> {
        let (mut at, mut byte) = self.next(text, at);
        // The innermost levels that are open in this value, a bit each, the innermost last: set for an object, clear
        // for an array.
        let (mut levels, mut open, mut object) = (0_u64, 0, false);
        loop {
            if object {
                (.., at, byte) = self.key(text, at, byte)?;
            }
            if matches!(byte, b'{' | b'[') {
                object = byte == b'{';
                if open > 0 && open % 64 == 0 {
                    self.outer_levels.push(levels);
                }
                levels = levels << 1 | u64::from(object);
                open += 1;
                self.deepest = self.deepest.max(depth + open);
                (at, byte) = self.next(text, at + 1);
                if !matches!(byte, b'}' | b']') {
                    continue;
                }
            } else {
                at = scalar(text, at, byte)?;
                if open == 0 {
                    return Ok(at);
                }
                (at, byte) = self.next(text, at);
            }
            // What follows a value, or ends an empty one.
            loop {
                match (byte, object) {
                    (b',', _) => break (at, byte) = self.next(text, at + 1),
                    (b'}', true) | (b']', false) => {}
                    _ => return Err(Invalid { offset: at }),
                }
                open -= 1;
                if open == 0 {
                    return Ok(at + 1);
                }
                levels =
                    if open % 64 == 0 { self.outer_levels.pop().unwrap_or_default() } else { levels >> 1 };
                object = levels & 1 == 1;
                (at, byte) = self.next(text, at + 1);
            }
        }
    }

    /// The place and the first byte of what begins at `at` or after the white space there, which there mostly
    /// is none of; 0 at the end of the text.
    #[inline(always)]
    fn next(&mut self, text: &[u8], at: usize) -> (usize, u8) {
        match text.get(at) {
            Some(byte) if *byte > b' ' => (at, *byte),
            _ => self.skip_space(text, at),
        }
    }

    #[inline(never)]
    fn skip_space(&mut self, text: &[u8], mut at: usize) -> (usize, u8) {
        while let Some(byte) = text.get(at) {
            match byte {
                b' ' | b'\t' => {}
                b'\n' | b'\r' => self.broken_lines = true,
                byte => return (at, *byte),
            }
            at += 1;
        }
        (at, 0)
    }
}

/// The end of the string, number or literal that begins at `at` with this byte.
#[inline(always)]
fn scalar(text: &[u8], at: usize, byte: u8) -> Result<usize, Invalid> {
    match byte {
        b'"' => string(text, at).map(|(end, _)| end),
        b'-' | b'0'..=b'9' => number(text, at),
        b't' => literal(text, at, b"true"),
        b'f' => literal(text, at, b"false"),
        b'n' => literal(text, at, b"null"),
        _ => Err(Invalid { offset: at }),
    }
}
