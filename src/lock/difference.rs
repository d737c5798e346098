//! Where two definitions differ: by path, and in texts word by word.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use super::value::JsonValue;
use super::write::laid_out;

/// How long two texts are compared word by word before the result may be coarse.
const PATIENCE: Duration = Duration::from_millis(500);

/// A place where two definitions differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The path, such as `inputSchema.properties.path.type`.
    pub path: String,
    /// Whether only a text differs there.
    pub is_text: bool,
    /// What stands there in the approved definition, as the file would write it; a text has no quotes.
    pub old: Option<String>,
    /// What stands there in the definition that was sent.
    pub new: Option<String>,
}

/// Whether two definitions that differ do so in texts only.
pub(super) fn only_texts(old: &JsonValue<'_>, new: &JsonValue<'_>) -> bool {
    let mut only = true;
    walk(old, new, &Trail::Root, &mut |_, is_text, _, _| only &= is_text);
    only
}

/// Every place where two definitions differ, sorted by key and index.
pub(super) fn differences(old: &JsonValue<'_>, new: &JsonValue<'_>) -> Vec<Difference> {
    let mut found = Vec::new();
    walk(old, new, &Trail::Root, &mut |way, is_text, old, new| {
        let shown = |value: Option<&JsonValue<'_>>| match value? {
            JsonValue::Text(text) if is_text => Some(text.to_string()),
            value => Some(laid_out(value)),
        };
        found.push(Difference { path: way.path(), is_text, old: shown(old), new: shown(new) });
    });
    found
}

/// The way to a value, linked from the inside out.
enum Trail<'w> {
    Root,
    /// A member, by its key as the file writes it.
    Member(&'w Trail<'w>, &'w str),
    Element(&'w Trail<'w>, usize),
}

impl Trail<'_> {
    fn path(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Element(above, index) => format!("{}[{index}]", above.path()),
            Self::Member(above, key) => {
                let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$');
                let above = above.path();
                match (!key.is_empty() && key.chars().all(plain), above.is_empty()) {
                    (true, true) => (*key).to_owned(),
                    (true, false) => format!("{above}.{key}"),
                    (false, _) => format!("{above}[\"{key}\"]"),
                }
            }
        }
    }
}

/// Takes a place where two values differ: the way to it, whether only a text differs, and both values.
type Visit<'v> = dyn FnMut(&Trail<'_>, bool, Option<&JsonValue<'_>>, Option<&JsonValue<'_>>) + 'v;

fn walk(old: &JsonValue<'_>, new: &JsonValue<'_>, way: &Trail<'_>, visit: &mut Visit<'_>) {
    match (old, new) {
        (JsonValue::Object(old), JsonValue::Object(new)) => {
            let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
            loop {
                let key = match (old.peek(), new.peek()) {
                    (Some(one), Some(other)) => one.key.as_ref().min(other.key.as_ref()),
                    (Some(one), None) | (None, Some(one)) => one.key.as_ref(),
                    (None, None) => break,
                };
                let way = Trail::Member(way, key);
                match (old.next_if(|one| one.key == key), new.next_if(|one| one.key == key)) {
                    (Some(old), Some(new)) if old.is_text() && new.is_text() && old.value != new.value => {
                        visit(&way, true, Some(&old.value), Some(&new.value));
                    }
                    (Some(old), Some(new)) => walk(&old.value, &new.value, &way, visit),
                    (Some(old), None) => visit(&way, old.is_text(), Some(&old.value), None),
                    (None, new) => {
                        visit(&way, new.is_some_and(|new| new.is_text()), None, new.map(|new| &new.value))
                    }
                }
            }
        }
        (JsonValue::List(old), JsonValue::List(new)) => {
            for at in 0..old.len().max(new.len()) {
                let way = Trail::Element(way, at);
                match (old.get(at), new.get(at)) {
                    (Some(old), Some(new)) => walk(old, new, &way, visit),
                    (old, new) => visit(&way, false, old, new),
                }
            }
        }
        (old, new) if old == new => {}
        (old, new) => visit(way, false, Some(old), Some(new)),
    }
}

/// A part of a text that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WordChange {
    /// The part is in both texts.
    Same(String),
    /// The part is in the old text only.
    Old(String),
    /// The part is in the new text only.
    New(String),
}

/// Compares two texts, as the file writes them, word by word.
pub fn words(old: &str, new: &str) -> Vec<WordChange> {
    let (old, new) = (split(old), split(new));
    let until = Some(Instant::now() + PATIENCE);
    let mut words = Vec::new();
    for change in capture_diff_slices_deadline(Algorithm::Myers, &old, &new, until) {
        let (olds, news) = (old[change.old_range()].concat(), new[change.new_range()].concat());
        match change {
            DiffOp::Equal { .. } => words.push(WordChange::Same(olds)),
            _ => {
                words.extend(Some(olds).filter(|part| !part.is_empty()).map(WordChange::Old));
                words.extend(Some(news).filter(|part| !part.is_empty()).map(WordChange::New));
            }
        }
    }
    words
}

/// The words of a text, the runs of spaces between them, and its escapes.
fn split(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '\\' if rest[1..].starts_with('u') => 6,
            '\\' => 2,
            ' ' => rest.find(|c| c != ' ').unwrap_or(rest.len()),
            _ => rest.find([' ', '\\']).unwrap_or(rest.len()),
        };
        let (word, more) = rest.split_at_checked(end).unwrap_or((rest, ""));
        words.push(word);
        rest = more;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both definitions, whether only texts differ, and the differences: the path, what was and what is.
    type Case<'a> = (&'a str, &'a str, bool, &'a [(&'a str, Option<&'a str>, Option<&'a str>)]);

    #[test]
    fn differences_are_found_by_path() {
        let cases: [Case<'_>; 12] = [
            (
                r#"{"description":"a"}"#,
                r#"{"description":"b"}"#,
                true,
                &[("description", Some("a"), Some("b"))],
            ),
            (r#"{"x":{"title":"a"}}"#, r#"{"x":{}}"#, true, &[("x.title", Some("a"), None)]),
            ("{}", r#"{"title":"t"}"#, true, &[("title", None, Some("t"))]),
            (
                r#"{"x":[{"description":"a"}]}"#,
                r#"{"x":[{"description":"b"}]}"#,
                true,
                &[("x[0].description", Some("a"), Some("b"))],
            ),
            (
                r#"{"description":"a"}"#,
                r#"{"description":1}"#,
                false,
                &[("description", Some("\"a\""), Some("1"))],
            ),
            (r#"{"title":{"a":1}}"#, r#"{"title":{"a":2}}"#, false, &[("title.a", Some("1"), Some("2"))]),
            (r#"{"title":{}}"#, "{}", false, &[("title", Some("{}"), None)]),
            (r#"{"a":1}"#, r#"{"a":1.0}"#, false, &[("a", Some("1"), Some("1.0"))]),
            (r#"{"required":["a"]}"#, r#"{"required":[]}"#, false, &[("required[0]", Some("\"a\""), None)]),
            (
                r#"{"descriptions":"a"}"#,
                r#"{"descriptions":"b"}"#,
                false,
                &[("descriptions", Some("\"a\""), Some("\"b\""))],
            ),
            (
                r#"{"a b":1,"c":1}"#,
                r#"{"c":2,"\u200b":1}"#,
                false,
                &[
                    (r#"["\u200b"]"#, None, Some("1")),
                    (r#"["a b"]"#, Some("1"), None),
                    ("c", Some("1"), Some("2")),
                ],
            ),
            ("[1]", "{}", false, &[("", Some("[\n  1\n]"), Some("{}"))]),
        ];
        for (old, new, texts, expected) in cases {
            let [one, other] = [old, new].map(|text| JsonValue::read(text).expect("sound"));
            assert_eq!((only_texts(&one, &other), only_texts(&other, &one)), (texts, texts), "{old} {new}");
            let found = differences(&one, &other);
            let found: Vec<_> =
                found.iter().map(|one| (&*one.path, one.old.as_deref(), one.new.as_deref())).collect();
            assert_eq!(found, expected, "{old} {new}");
            assert!(differences(&one, &one).is_empty());
        }
    }

    #[test]
    fn texts_are_compared_word_by_word() {
        let marked = |old, new| -> String {
            let word = |word: WordChange| match word {
                WordChange::Same(part) => part,
                WordChange::Old(part) => format!("[-{part}-]"),
                WordChange::New(part) => format!("{{+{part}+}}"),
            };
            words(old, new).into_iter().map(word).collect()
        };
        for (old, new, expected) in [
            ("Read a file", "Read any file", "Read [-a-]{+any+} file"),
            ("Read", "Read. Send it", "[-Read-]{+Read. Send it+}"),
            ("a b", "a b", "a b"),
            ("", "new", "{+new+}"),
            (r"one\ntwo", r"one\u200b\ntwo", r"one{+\u200b+}\ntwo"),
            ("ä ö", "ä ü", "ä [-ö-]{+ü+}"),
        ] {
            assert_eq!(marked(old, new), expected);
        }
    }
}
