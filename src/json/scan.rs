//! The pass over a text: it validates the JSON and finds the outer members.

use super::token::{literal, number, string};
use super::{Doc, INDEXED, Invalid, Member, Node, Span};

/// Validates texts, and reuses its memory from one text to the next.
#[derive(Clone, Default)]
pub struct Scanner {
    pub(super) members: Vec<Member>,
    /// The innermost levels that are open, a bit each, the innermost last: set for an object, clear for an
    /// array.
    levels: u64,
    /// The levels around these, 64 at a time.
    outer_levels: Vec<u64>,
    depth: usize,
    pub(super) deepest: usize,
    /// The number of open objects, from the outermost on, whose members are indexed. Members inside arrays are
    /// not.
    indexed: usize,
    /// The index of the last member of each of these objects.
    open: [usize; INDEXED],
    pub(super) root: Span,
    pub(super) broken_lines: bool,
}

/// The number of members whose memory is kept between two texts.
const KEPT_MEMBERS: usize = 1024;

impl Scanner {
    /// A scanner that has validated nothing yet.
    pub(super) const fn new() -> Self {
        Self {
            members: Vec::new(),
            levels: 0,
            outer_levels: Vec::new(),
            depth: 0,
            deepest: 0,
            indexed: 0,
            open: [0; INDEXED],
            root: Span { start: 0, end: 0 },
            broken_lines: false,
        }
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
        let at = self.space(text.as_bytes(), end);
        if at < text.len() {
            return Err(Invalid { offset: at });
        }
        Ok(self.doc(text, Span::new(start, end)))
    }

    /// Calls `take` with each element of an array from a validated text, in order.
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
        for member in self.members.iter().filter(|member| member.depth == 1) {
            let (start, end) = (member.value.start as usize, member.value.end as usize);
            // A number at the very end of the text may have been longer.
            let whole = start < end && end < text.len();
            let first = text.as_bytes().get(start).copied();
            take(&text[member.key.range()], whole.then(|| &text[start..end]), first);
        }
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
        self.depth = 0;
        self.deepest = 0;
        self.indexed = 0;
        self.broken_lines = false;
        self.space(text, 0)
    }

    fn doc<'a>(&'a mut self, text: &'a str, root: Span) -> Doc<'a> {
        self.root = root;
        Doc { text, found: self }
    }

    /// The end of the value that begins at `at`.
    fn value(&mut self, text: &[u8], mut at: usize) -> Result<usize, Invalid> {
        // Whether the innermost open value is an object.
        let mut object = false;
        loop {
            if object {
                at = self.key(text, at)?;
            }
            let mut plain = false;
            match text.get(at) {
                Some(b'"') => {
                    let (end, escaped) = string(text, at)?;
                    plain = !escaped;
                    at = end;
                }
                Some(open @ (b'{' | b'[')) => {
                    object = *open == b'{';
                    self.push(object);
                    at = self.space(text, at + 1);
                    if text.get(at) != Some(if object { &b'}' } else { &b']' }) {
                        continue;
                    }
                    object = self.pop();
                    at += 1;
                }
                Some(b'-' | b'0'..=b'9') => at = number(text, at)?,
                Some(b't') => at = literal(text, at, b"true")?,
                Some(b'f') => at = literal(text, at, b"false")?,
                Some(b'n') => at = literal(text, at, b"null")?,
                _ => return Err(Invalid { offset: at }),
            }
            // A value has just ended here.
            loop {
                if self.depth == 0 {
                    return Ok(at);
                }
                if self.is_indexed() {
                    let behind = self.members.len() as u32;
                    let member = &mut self.members[self.open[self.depth - 1]];
                    (member.value.end, member.next, member.plain_value) = (at as u32, behind, plain);
                }
                at = self.space(text, at);
                match (text.get(at), object) {
                    (Some(b','), _) => {
                        at = self.space(text, at + 1);
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => object = self.pop(),
                    _ => return Err(Invalid { offset: at }),
                }
                at += 1;
                plain = false;
            }
        }
    }

    /// Reads `"key":` and the white space after it.
    #[inline(always)]
    fn key(&mut self, text: &[u8], at: usize) -> Result<usize, Invalid> {
        if text.get(at) != Some(&b'"') {
            return Err(Invalid { offset: at });
        }
        let (end, escaped) = string(text, at)?;
        let colon = self.space(text, end);
        if text.get(colon) != Some(&b':') {
            return Err(Invalid { offset: colon });
        }
        let value = self.space(text, colon + 1);
        if self.is_indexed() {
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

    /// Whether the innermost open value is an object whose members are indexed.
    #[inline(always)]
    fn is_indexed(&self) -> bool {
        self.indexed == self.depth
    }

    /// Opens an object or an array.
    #[inline(always)]
    fn push(&mut self, object: bool) {
        if object && self.is_indexed() && self.depth < INDEXED {
            self.indexed += 1;
        }
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer_levels.push(self.levels);
        }
        self.levels = self.levels << 1 | u64::from(object);
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
    }

    /// Closes the innermost open value. Returns whether the one around it is an object.
    #[inline(always)]
    fn pop(&mut self) -> bool {
        self.depth -= 1;
        self.indexed = self.indexed.min(self.depth);
        self.levels = match self.depth % 64 {
            0 => self.outer_levels.pop().unwrap_or_default(),
            _ => self.levels >> 1,
        };
        self.levels & 1 == 1
    }

    /// The end of the white space that begins at `at`, which there mostly is none of.
    #[inline(always)]
    fn space(&mut self, text: &[u8], at: usize) -> usize {
        match text.get(at) {
            Some(0..=b' ') => self.skip_space(text, at),
            _ => at,
        }
    }

    #[inline(never)]
    fn skip_space(&mut self, text: &[u8], mut at: usize) -> usize {
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
