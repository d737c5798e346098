//! The text of a file: the positions of its bytes, and which of them may be shown.

use super::node::{Kind, Node, Span};
use super::secrets::Redactor;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};

/// A file as read, without its byte order mark.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) file: PathBuf,
    pub(super) text: String,
    places: OnceCell<Places>,
}

/// The positions of lines and characters, so that a file with many problems is not counted through for each
/// of them.
#[derive(Debug)]
struct Places {
    /// The first byte of each line.
    lines: Vec<usize>,
    /// How many characters begin before each block of [`BLOCK`] bytes.
    characters: Vec<usize>,
}

const BLOCK: usize = 1024;

/// The line that a problem is about, without anything that may be secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub(super) line: String,
    /// The bytes of `line` to point at.
    pub(super) span: Span,
}

/// How many bytes an excerpt shows before and after its target. A whole file may be one line.
const REACH: usize = 160;

/// What is known about the text when an excerpt is made.
pub(super) enum Shown<'a> {
    /// The tree is known. The value that the problem is about is shown if it may be seen.
    Tree { tree: &'a Outline, value: bool, secrets: &'a Redactor },
    /// The syntax is broken, so nobody knows which text is a secret, and only keys are shown.
    Keys,
}

/// The positions of a tree's parts. Each list is in the order of the file, and nothing overlaps.
pub(super) struct Outline {
    /// Keys, and values that hold nothing secret.
    open: Vec<Span>,
    /// All other values.
    hidden: Vec<Span>,
}

impl Outline {
    pub(super) fn of(root: &Node) -> Self {
        let (mut open, mut hidden) = (Vec::new(), Vec::new());
        root.each_key(&mut |key| open.push(key.clone()));
        root.each_leaf(&mut |leaf| match leaf.kind {
            Kind::Boolean(_) | Kind::Null => open.push(leaf.span.clone()),
            _ => hidden.push(leaf.span.clone()),
        });
        // In TOML a table may be far from the table that it belongs to.
        for spans in [&mut open, &mut hidden] {
            spans.sort_unstable_by_key(|span| (span.start, span.end));
        }
        Self { open, hidden }
    }
}

/// The spans that overlap a window; `spans` must be in order.
fn within<'s>(spans: &'s [Span], window: &Span) -> impl Iterator<Item = &'s Span> {
    let first = spans.partition_point(|span| span.end <= window.start);
    spans[first..].iter().take_while(|span| span.start < window.end)
}

impl Source {
    pub(super) fn new(file: &Path, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { file: file.to_owned(), text: text.to_owned(), places: OnceCell::new() }
    }

    /// The line and column of a byte, both from 1; the column counts characters.
    pub(super) fn position(&self, at: usize) -> (usize, usize) {
        let line = self.line_at(at);
        (line + 1, self.characters_before(at) - self.characters_before(self.places().lines[line]) + 1)
    }

    /// The number, from 0, of the line that contains a byte.
    fn line_at(&self, at: usize) -> usize {
        self.places().lines.partition_point(|start| *start <= at) - 1
    }

    /// The span of a line without its line break.
    fn line(&self, number: usize) -> Span {
        let lines = &self.places().lines;
        let next = lines.get(number + 1).copied().unwrap_or(self.text.len());
        let line = self.text[lines[number]..next].trim_end_matches(['\n', '\r']);
        lines[number]..lines[number] + line.len()
    }

    fn characters_before(&self, at: usize) -> usize {
        let block = at / BLOCK;
        self.places().characters[block] + characters(&self.text.as_bytes()[block * BLOCK..at])
    }

    fn places(&self) -> &Places {
        self.places.get_or_init(|| {
            let bytes = self.text.as_bytes();
            let breaks = memchr::memchr2_iter(b'\n', b'\r', bytes);
            let whole = breaks.filter(|at| !bytes[*at..].starts_with(b"\r\n")).map(|at| at + 1);
            let mut before = 0;
            let mut blocks = vec![0];
            blocks.extend(bytes.chunks(BLOCK).map(|block| {
                before += characters(block);
                before
            }));
            Places { lines: std::iter::once(0).chain(whole).collect(), characters: blocks }
        })
    }

    /// The line where a span begins. An excerpt shows keys, punctuation and at most the one value that the
    /// problem is about. Every other value and every comment becomes `…`, since any of them may hold a
    /// secret.
    pub(super) fn excerpt(&self, span: &Span, shown: &Shown<'_>) -> Excerpt {
        let Span { start: line_start, end: line_end } = self.line(self.line_at(span.start));
        // The problem may be the very line break.
        let span = span.start.min(line_end)..span.end;
        let start = self.boundary(span.start.saturating_sub(REACH).max(line_start));
        let end = self.boundary(span.end.min(span.start + REACH).saturating_add(REACH).min(line_end));
        let target = span.start..span.end.clamp(span.start, end.max(span.start));
        let (mut open, mut hidden) = (Vec::new(), Vec::new());
        match shown {
            Shown::Keys => open = keys_of_line(&self.text[line_start..line_end], line_start),
            Shown::Tree { tree, value, secrets } => {
                open.extend(within(&tree.open, &(start..end)).cloned());
                hidden.extend(within(&tree.hidden, &(start..end)).cloned());
                let text = &self.text[target.clone()];
                if *value && secrets.redact(text) == text {
                    hidden = hidden.iter().flat_map(|leaf| around(leaf, &target)).collect();
                    hidden.extend(
                        private_parts(text).map(|part| target.start + part.start..target.start + part.end),
                    );
                    open.push(target.clone());
                }
            }
        }
        let mut excerpt = mask(&self.text, start..end, &target, &open, &hidden);
        if start > line_start {
            excerpt.line.insert(0, '…');
            let shift = '…'.len_utf8();
            excerpt.span = excerpt.span.start + shift..excerpt.span.end + shift;
        }
        if end < line_end {
            excerpt.line.push('…');
        }
        excerpt
    }

    /// The next position at or after a byte where the text can be cut.
    fn boundary(&self, at: usize) -> usize {
        (at..self.text.len()).find(|at| self.text.is_char_boundary(*at)).unwrap_or(self.text.len())
    }
}

/// How many characters begin in these bytes.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| (**byte as i8) >= -0x40).count()
}

/// The text with the passwords and queries of its URLs replaced by `…`, and cut where it is very long.
pub(super) fn presentable(text: &str) -> String {
    let mut shown = String::new();
    let mut at = 0;
    for part in private_parts(text) {
        shown.push_str(&text[at..part.start]);
        shown.push('…');
        at = part.end;
    }
    shown.push_str(&text[at..]);
    match shown.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

/// The parts of a text that may be the user and password of a URL, or its query. Mostly malformed URLs are
/// shown, so this hides too much rather than too little.
pub(super) fn private_parts(text: &str) -> impl Iterator<Item = Span> {
    let start = text.find("://").map_or(usize::from(text.starts_with('"')), |scheme| scheme + 3);
    let end = text.len().max(1) - usize::from(text.len() > 1 && text.ends_with('"'));
    let user = text.rfind('@').filter(|at| *at > start).map(|at| start..at);
    let query = text.find('?').map(|mark| mark + 1..end);
    match (user, query) {
        (Some(user), Some(query)) if query.start <= user.end => [Some(user.start..end), None],
        parts => [parts.0, parts.1],
    }
    .into_iter()
    .flatten()
}

/// The parts of a leaf outside the target.
fn around(leaf: &Span, target: &Span) -> Vec<Span> {
    if leaf.start <= target.start && target.end <= leaf.end {
        vec![leaf.start..target.start, target.end..leaf.end]
    } else {
        vec![leaf.clone()]
    }
}

/// What each byte of a line belongs to.
struct Cover(Vec<ExcerptPart>);

#[derive(Clone, Copy)]
enum ExcerptPart {
    Hidden,
    /// The first or last byte of a hidden part, where a quote may show.
    Edge,
    Open,
    Between,
}

impl Cover {
    fn new(line: &Span, open: &[Span], hidden: &[Span]) -> Self {
        let mut parts = vec![ExcerptPart::Between; line.len()];
        let mut paint = |span: Span, part: ExcerptPart| {
            let (start, end) = (span.start.max(line.start), span.end.min(line.end));
            if start < end {
                parts[start - line.start..end - line.start].fill(part);
            }
        };
        open.iter().for_each(|span| paint(span.clone(), ExcerptPart::Open));
        // The first of the hidden spans wins, so they are painted in reverse.
        for span in hidden.iter().rev().filter(|span| !span.is_empty()) {
            paint(span.clone(), ExcerptPart::Hidden);
            paint(span.start..span.start + 1, ExcerptPart::Edge);
            paint(span.end - 1..span.end, ExcerptPart::Edge);
        }
        Self(parts)
    }
}

/// Copies a line. `hidden` wins over `open`; other bytes are shown if they are mere punctuation.
fn mask(text: &str, line: Span, target: &Span, open: &[Span], hidden: &[Span]) -> Excerpt {
    let cover = Cover::new(&line, open, hidden);
    let mut copy = String::new();
    let mut pointed: Option<Span> = None;
    let mut covered = false;
    for (offset, character) in text[line.clone()].char_indices() {
        let at = line.start + offset;
        let visible = match cover.0[offset] {
            ExcerptPart::Hidden => false,
            ExcerptPart::Edge => character == '"',
            ExcerptPart::Open => true,
            ExcerptPart::Between => character.is_whitespace() || "{}[]:,=\"".contains(character),
        };
        let before = copy.len();
        if visible {
            copy.push(character);
        } else if !covered {
            copy.push('…');
        }
        let start = if !visible && covered { before - '…'.len_utf8() } else { before };
        covered = !visible;
        if target.contains(&at) || (target.is_empty() && at == target.start) {
            let first = pointed.map_or(start, |span| span.start);
            pointed = Some(first..copy.len());
        }
    }
    let span = pointed.unwrap_or(copy.len()..copy.len());
    Excerpt { line: copy, span }
}

/// The keys of a line whose syntax cannot be trusted: they are at its beginning or after `{` or `,`, and
/// before `:` or `=`.
fn keys_of_line(line: &str, start: usize) -> Vec<Span> {
    let mut keys = Vec::new();
    let mut before = ',';
    let mut at = 0;
    while let Some(character) = line[at..].chars().next() {
        let end = match character {
            '"' => line[at + 1..].find('"').map_or(line.len(), |n| at + n + 2),
            _ if is_word(character) => line[at..].find(|c| !is_word(c)).map_or(line.len(), |n| at + n),
            _ => at + character.len_utf8(),
        };
        if (character == '"' || is_word(character))
            && matches!(before, ',' | '{')
            && line[end..].trim_start().starts_with([':', '='])
        {
            keys.push(start + at..start + end);
        }
        if !character.is_whitespace() {
            before = character;
        }
        at = end;
    }
    keys
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::json;

    fn source(text: &str) -> Source {
        Source::new(Path::new("x.json"), text)
    }

    #[test]
    fn positions_count_characters_from_one() {
        for (text, at, expected) in [
            ("abc", 0, (1, 1)),
            ("abc", 3, (1, 4)),
            ("\u{feff}abc", 1, (1, 2)),
            ("ä\nöü", 3, (2, 1)),
            ("ä\nöü", 5, (2, 2)),
            ("a\r\nb\rc\n\nd", 3, (2, 1)),
            ("a\r\nb\rc\n\nd", 5, (3, 1)),
            ("a\r\nb\rc\n\nd", 8, (5, 1)),
        ] {
            assert_eq!(source(text).position(at), expected, "{text:?} {at}");
        }
    }

    #[test]
    fn every_place_of_a_text_can_be_shown() {
        for text in ["a\r\nb\rc\n\nd", "\r\n", "\n\r", "ä: \"ö\r\nü\"\r\n", ""] {
            let source = source(text);
            let places: Vec<_> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
            for (index, start) in places.iter().enumerate() {
                for end in &places[index..] {
                    let Excerpt { line, span } = source.excerpt(&(*start..*end), &Shown::Keys);
                    assert!(line.get(span.clone()).is_some(), "{text:?} {start}..{end}: {line:?} {span:?}");
                }
            }
        }
    }

    #[test]
    fn an_excerpt_shows_keys_and_the_value_in_question() {
        for (text, target, visible, expected, pointed) in [
            (r#"{"a": "x", "b": "y"}"#, r#""y""#, true, r#"{"a": "…", "b": "y"}"#, r#""y""#),
            (r#"{"a": "x", "b": "y"}"#, r#""y""#, false, r#"{"a": "…", "b": "…"}"#, r#""…""#),
            (r#"{"a": "x", "b": "y"}"#, r#""b""#, true, r#"{"a": "…", "b": "…"}"#, r#""b""#),
            (r#"{"a": 123456, "b": true}"#, r#""b""#, true, r#"{"a": …, "b": true}"#, r#""b""#),
            (r#"{"a": "x ${V} y"}"#, "${V}", true, r#"{"a": "…${V}…"}"#, "${V}"),
            (
                r#"{"a": "https://u:p@h/?k=1"}"#,
                r#""https://u:p@h/?k=1""#,
                true,
                r#"{"a": "https://…@h/?…"}"#,
                r#""https://…@h/?…""#,
            ),
            (r#"{"a": 1} // "KEY": "sk, 1""#, r#""a""#, true, r#"{"a": …} … "…": "…, …""#, r#""a""#),
            (r#"{"a": "hunter22"}"#, r#""hunter22""#, true, r#"{"a": "…"}"#, r#""…""#),
        ] {
            let source = source(text);
            let root = json::parse(text).expect(text).expect(text);
            let start = text.find(target).expect(target);
            let secrets = Redactor::new([("hunter22".to_owned(), "PASSWORD".to_owned())]);
            let shown = Shown::Tree { tree: &Outline::of(&root), value: visible, secrets: &secrets };
            let excerpt = source.excerpt(&(start..start + target.len()), &shown);
            assert_eq!(excerpt.line, expected, "{text}");
            assert_eq!(&excerpt.line[excerpt.span], pointed, "{text}");
        }
    }

    #[test]
    fn a_very_long_line_is_cut_around_the_place() {
        let text =
            format!(r#"{{"a": ["ü{}"], "bad": 1, "c": ["{}"]}}"#, "x, ".repeat(9999), "y".repeat(9999));
        let root = json::parse(&text).expect("valid").expect("not empty");
        let shown = Shown::Tree { tree: &Outline::of(&root), value: true, secrets: &Redactor::default() };
        let start = text.find("\"bad\"").expect("it is there");
        let excerpt = source(&text).excerpt(&(start..start + 5), &shown);
        assert_eq!(excerpt.line, r#"……"], "bad": …, "c": ["……"#);
        assert_eq!(&excerpt.line[excerpt.span], "\"bad\"");
        let entries: Vec<_> = (0..500).map(|n| format!("\"unknown{n}\":\"v\"")).collect();
        let text = format!("{{{},\"toolboxes\":{{}},\"names\":5}}", entries.join(","));
        let found =
            crate::config::load(Path::new("x"), text.as_bytes(), &crate::config::Inputs::of(&|_| None));
        assert_eq!(found.expect_err("unknown keys").len(), 501);
    }

    #[test]
    fn broken_text_shows_keys_only() {
        for (text, expected) in [
            (r#"  "KEY": "sk-1 "b"#, r#"  "KEY": "… "…"#),
            (r#"  "KEY: "sk-1", "b": 2"#, r#"  "…: "…", "…": …"#),
            (r#"  KEY": "sk-1", "#, r#"  …": "…", "#),
            (r#"{"a": "x": "sk-1"}"#, r#"{"a": "…": "…"}"#),
            (r#"key = "sk-1"#, r#"key = "…"#),
        ] {
            assert_eq!(source(text).excerpt(&(0..1), &Shown::Keys).line, expected, "{text}");
        }
    }
}
