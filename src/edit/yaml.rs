//! YAML, read by a real parser and edited by whole lines. `edit::apply` calls it.

use super::{Edit, Value};
use crate::config::node::{KeyValue, Kind, Node, Span, SyntaxError, Text};
use saphyr_parser::{Event, Parser, ScalarStyle, Span as Marks};

/// Parses one document; an empty one is an empty object. Aliases and tags are refused, because an edit could
/// not preserve them.
pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut offsets: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    offsets.push(text.len());
    let mut reader = YamlReader { parser: Parser::new_from_str(text), offsets, text };
    let mut root = None;
    loop {
        let (event, marks) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(root.unwrap_or_default()),
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ if root.is_some() => {
                return Err(reader.wrong(marks, "the file has more than one document"));
            }
            event => {
                let node = reader.node(event, marks)?;
                root = Some(if matches!(node.kind, Kind::Null) { Node::default() } else { node });
            }
        }
    }
}

struct YamlReader<'t> {
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    /// The byte offset of each character.
    offsets: Vec<usize>,
    text: &'t str,
}

impl<'t> YamlReader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Marks), SyntaxError> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let at = self.offset(error.marker().index());
                Err(SyntaxError { span: at..at, message: error.info().to_owned(), hint: String::new() })
            }
            None => Ok((Event::StreamEnd, Marks::default())),
        }
    }

    fn node(&mut self, event: Event<'t>, marks: Marks) -> Result<Node, SyntaxError> {
        let span = self.span(marks);
        let kind = match event {
            Event::Alias(_) => return Err(self.wrong(marks, "aliases are not supported")),
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return Err(self.wrong(marks, "tags are not supported"));
            }
            Event::Scalar(value, ScalarStyle::Plain, ..) => plain(&value),
            Event::Scalar(value, ..) => Kind::String(Text::new(value.into_owned())),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break Kind::List(items),
                        (event, marks) => items.push(self.node(event, marks)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut entries = Vec::new();
                loop {
                    let (event, marks) = self.next()?;
                    let key = match event {
                        Event::MappingEnd => break Kind::Object(entries),
                        Event::Scalar(key, _, _, None) => key.into_owned(),
                        _ => return Err(self.wrong(marks, "keys must be plain text")),
                    };
                    let (event, value) = self.next()?;
                    let value = self.node(event, value)?;
                    entries.push(KeyValue { key, key_span: self.span(marks), value });
                }
            }
            _ => return Err(self.wrong(marks, "a value is missing")),
        };
        let end = match &kind {
            Kind::Object(entries) => entries.last().map(|entry| entry.value.span.end),
            Kind::List(items) => items.last().map(|item| item.span.end),
            _ => None,
        };
        let first = match &kind {
            Kind::Object(entries) => entries.first().map(|entry| entry.key_span.start),
            Kind::List(items) => items.first().map(|item| item.span.start),
            _ => None,
        };
        // The parser ends a block where the next node begins, and starts it where its first item does.
        let collection = matches!(kind, Kind::Object(_) | Kind::List(_));
        let flow = collection && first != Some(span.start) && self.text[span.start..].starts_with(['{', '[']);
        let end = match (end, flow) {
            (Some(end), false) => end,
            (_, true) => self.text[end.unwrap_or(span.start)..]
                .find(['}', ']'])
                .map_or(span.end, |close| end.unwrap_or(span.start) + close + 1),
            (None, false) => span.start + self.text[span.clone()].trim_end().len(),
        };
        Ok(Node { span: span.start..end.max(span.start), kind })
    }

    fn wrong(&self, marks: Marks, message: &str) -> SyntaxError {
        SyntaxError { span: self.span(marks), message: message.to_owned(), hint: String::new() }
    }

    fn span(&self, marks: Marks) -> Span {
        let start = self.offset(marks.start.index());
        start..self.offset(marks.end.index()).max(start)
    }

    fn offset(&self, character: usize) -> usize {
        self.offsets.get(character).copied().unwrap_or(self.text.len())
    }
}

/// The value of an unquoted scalar by YAML's core schema.
fn plain(value: &str) -> Kind {
    match value {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "true" | "True" | "TRUE" => Kind::Boolean(true),
        "false" | "False" | "FALSE" => Kind::Boolean(false),
        _ if value.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
            && value.bytes().any(|b| b.is_ascii_digit())
            && value.parse::<f64>().is_ok() =>
        {
            Kind::Number(value.to_owned())
        }
        _ => Kind::String(Text::new(value.to_owned())),
    }
}

/// Edits one entry of a block mapping; `None` if the file uses another style there.
pub(super) fn apply(text: &str, root: &Node, edit: &Edit<'_>) -> Option<String> {
    match edit {
        Edit::Set { path, value } => {
            let (key, parents) = path.split_last()?;
            let present = path.iter().try_fold(root, |node, key| node.member(key)).is_some();
            if present {
                let lines = entry_lines(text, root, path)?;
                let indent = indent_of(&text[lines.clone()]);
                return Some(splice(text, lines, &rendered(key, value, indent)));
            }
            insert(text, root, parents, usize::MAX, &|indent| rendered(key, value, indent))
        }
        Edit::Remove { path } => {
            let (_, parents) = path.split_last()?;
            let lines = entry_lines(text, root, path)?;
            let parent = parents.iter().try_fold(root, |node, key| node.member(key))?;
            let Kind::Object(entries) = &parent.kind else { return None };
            let left = splice(text, lines, "");
            if entries.len() > 1 || parents.is_empty() {
                return Some(left);
            }
            // An empty object is written as `{}` on the line of its key.
            let colon = after_colon(text, key_span(root, parents)?)?;
            Some(format!("{} {{}}{}", &left[..colon], &left[colon..]))
        }
        Edit::Restore { path, from, index, .. } => {
            let (_, parents) = path.split_last()?;
            let from = from.strip_prefix('\u{feff}').unwrap_or(from).replace("\r\n", "\n");
            let other = parse(&from).ok()?;
            let block = &from[entry_lines(&from, &other, path)?];
            let old = indent_of(block);
            let shifted = |indent: usize| {
                let line = |line: &str| match line.len() >= old && line.trim() != "" {
                    true => format!("{}{}", " ".repeat(indent), &line[old..]),
                    false => line.to_owned(),
                };
                let mut block: String = block.split_inclusive('\n').map(line).collect();
                if !block.ends_with('\n') {
                    block.push('\n');
                }
                block
            };
            insert(text, root, parents, *index, &shifted)
        }
        Edit::Move { .. } | Edit::Rename { .. } | Edit::Push { .. } | Edit::Pull { .. } => None,
    }
}

/// Inserts an entry into the object at `parents`. The lines of the entry are made for a given indentation.
fn insert(
    text: &str,
    root: &Node,
    parents: &[String],
    index: usize,
    lines: &dyn Fn(usize) -> String,
) -> Option<String> {
    let Some((name, above)) = parents.split_last() else {
        return Some(append(text, &lines(0)));
    };
    match parents.iter().try_fold(root, |node, key| node.member(key)) {
        None => insert(text, root, above, usize::MAX, &|indent| {
            format!("{}{}:\n{}", " ".repeat(indent), scalar(name), lines(indent + 2))
        }),
        Some(Node { kind: Kind::Object(entries), span }) => {
            let Some(first) = entries.first() else {
                // The object is `key: {}`, or a key with no value.
                let line = line_of(text, &key_span(root, parents)?);
                let indent = indent_of(&text[line.clone()]);
                let colon = after_colon(text, key_span(root, parents)?)?;
                let rest = text[colon..line.end].trim();
                let comment = rest.trim_start_matches("{}").trim();
                if !rest.starts_with("{}") || !(comment.is_empty() || comment.starts_with('#')) {
                    return None;
                }
                let space = if comment.is_empty() { "" } else { " " };
                let head = format!("{}{space}{comment}\n{}", &text[..colon], lines(indent + 2));
                return Some(format!("{head}{}", &text[line.end..]));
            };
            if text[span.start..].starts_with('{') {
                return None;
            }
            let indent = indent_of(&text[line_of(text, &first.key_span)]);
            let at = match entries.get(index) {
                Some(entry) => line_of(text, &entry.key_span).start,
                None => line_of(text, &(span.end..span.end)).end,
            };
            let (before, after) = text.split_at(at);
            Some(format!("{}{after}", append(before, &lines(indent))))
        }
        Some(_) => None,
    }
}

/// All lines of an entry, without the comments after it.
fn entry_lines(text: &str, root: &Node, path: &[String]) -> Option<Span> {
    let key = key_span(root, path)?;
    let value = path.iter().try_fold(root, |node, key| node.member(key))?;
    let end = value.span.end.max(key.end);
    let end = if end > key.end && text[..end].ends_with('\n') { end - 1 } else { end };
    Some(line_of(text, &key).start..line_of(text, &(end..end)).end)
}

fn key_span(root: &Node, path: &[String]) -> Option<Span> {
    let (key, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(root, |node, key| node.member(key))?;
    let Kind::Object(entries) = &parent.kind else { return None };
    entries.iter().find(|entry| entry.key == *key).map(|entry| entry.key_span.clone())
}

fn after_colon(text: &str, key: Span) -> Option<usize> {
    text[key.end..].starts_with(':').then_some(key.end + 1)
}

fn line_of(text: &str, span: &Span) -> Span {
    let start = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
    start..text[span.end..].find('\n').map_or(text.len(), |at| span.end + at + 1)
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn splice(text: &str, span: Span, new: &str) -> String {
    format!("{}{new}{}", &text[..span.start], &text[span.end..])
}

fn append(text: &str, lines: &str) -> String {
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{newline}{lines}")
}

/// Renders an entry in block style.
fn rendered(key: &str, value: &Value, indent: usize) -> String {
    let space = " ".repeat(indent);
    let key = scalar(key);
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            let inner: String = entries.iter().map(|(key, value)| rendered(key, value, indent + 2)).collect();
            format!("{space}{key}:\n{inner}")
        }
        Value::List(items) if !items.is_empty() => {
            let items: String = items.iter().map(|item| format!("{space}- {}\n", flow(item))).collect();
            format!("{space}{key}:\n{items}")
        }
        other => format!("{space}{key}: {}\n", flow(other)),
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Boolean(value) => value.to_string(),
        Value::Number(text) | Value::Other(text) => text.clone(),
        Value::String(text) => scalar(text),
        Value::List(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(key, value)| format!("{}: {}", scalar(key), flow(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// Renders text without quotes only if every YAML reader takes it for a string.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_/.@-".contains(c))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}
