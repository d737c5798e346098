//! Values that must never print: [`Secret`] has no readable `Debug` form, and a [`Redactor`] knows them all.
//!
//! Invariant: secrets do not print. Every text that quotes a file, a command line or an upstream's words goes
//! through a [`Redactor`] before a person, a log or a client sees it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A value of `env` or `headers`; its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that hands it to the upstream.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("…")
    }
}

/// The shortest value that is looked for in foreign text. Replacing shorter ones would garble it.
const SHORTEST: usize = 6;

/// Replaces secret values by `${NAME}`. A redactor is cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor(Arc<Values>);

#[derive(Default)]
struct Values {
    /// Values and their names, longer values first.
    pairs: Vec<(String, String)>,
    /// The indices of the pairs whose values begin with these bytes, in the order of `pairs`. With them one
    /// pass over a text is enough, however many values there are.
    starts: HashMap<[u8; SHORTEST], Vec<usize>>,
    /// Whether a value begins with the byte of this number. Most texts are passed over by this alone.
    first_bytes: Vec<bool>,
}

impl Redactor {
    /// Takes pairs of value and name. Longer values are replaced first, so that a value that contains another
    /// is not left half readable. If a value has several names, the first is shown. Values are also known as
    /// JSON spells them, because texts often hold JSON.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut pairs: Vec<_> =
            pairs.into_iter().filter(|(value, _)| value.chars().count() >= SHORTEST).collect();
        let spelled = pairs.iter().filter_map(|(value, name)| Some((spelled(value)?, name.clone())));
        pairs.extend(spelled.collect::<Vec<_>>());
        pairs.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.0.cmp(&b.0)));
        pairs.dedup_by(|a, b| a.0 == b.0);
        let mut starts: HashMap<_, Vec<usize>> = HashMap::new();
        let mut first_bytes = vec![false; 256];
        for (index, (value, _)) in pairs.iter().enumerate() {
            let start = *value.as_bytes().first_chunk().expect("none has fewer characters");
            first_bytes[usize::from(start[0])] = true;
            starts.entry(start).or_default().push(index);
        }
        Self(Arc::new(Values { pairs, starts, first_bytes }))
    }

    /// The same redactor with more pairs of value and name.
    pub fn with(&self, more: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::new(self.0.pairs.iter().cloned().chain(more))
    }

    /// A redactor that knows the values of both.
    pub fn and(&self, other: &Self) -> Self {
        self.with(other.0.pairs.iter().cloned())
    }

    /// Whether both are clones of one redactor.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The text with every known value replaced by its `${NAME}`, in one pass, so that inserted names are
    /// left alone.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.0.pairs.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut redacted = String::new();
        let (mut copied, mut at) = (0, 0);
        let may_begin = |byte: &u8| self.0.first_bytes[usize::from(*byte)];
        while let Some(next) = text.as_bytes()[at..].iter().position(may_begin) {
            at += next;
            let Some(start) = text.as_bytes()[at..].first_chunk() else { break };
            match self.known_at(start, &text.as_bytes()[at..]) {
                Some((value, name)) => {
                    redacted.push_str(&text[copied..at]);
                    redacted.push_str("${");
                    redacted.push_str(name);
                    redacted.push('}');
                    at += value.len();
                    copied = at;
                }
                None => at += 1,
            }
        }
        match copied {
            0 => Cow::Borrowed(text),
            _ => Cow::Owned(redacted + &text[copied..]),
        }
    }

    /// The longest known value that a text begins with. A value never begins inside a character.
    fn known_at(&self, start: &[u8; SHORTEST], text: &[u8]) -> Option<&(String, String)> {
        let pairs = self.0.starts.get(start)?.iter().map(|index| &self.0.pairs[*index]);
        pairs.into_iter().find(|(value, _)| text.starts_with(value.as_bytes()))
    }
}

/// A value as JSON spells it, if that is not the value itself.
fn spelled(value: &str) -> Option<String> {
    let literal = serde_json::to_string(value).ok()?;
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    (inner != value).then(|| inner.to_owned())
}

impl fmt::Debug for Redactor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Redactor({} values)", self.0.pairs.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_longest_value_at_each_place_is_replaced(
            values in prop::collection::vec("[abü]{6,9}", 0..5),
            text in "[abü]{0,40}",
        ) {
            let redactor = Redactor::new(values.iter().map(|value| (value.clone(), "N".to_owned())));
            let mut longest: Vec<_> = values.iter().collect();
            longest.sort_by_key(|value| std::cmp::Reverse(value.len()));
            let (mut expected, mut rest) = (String::new(), &*text);
            while let Some(character) = rest.chars().next() {
                let found = longest.iter().find(|value| rest.starts_with(value.as_str()));
                expected.push_str(&found.map_or(character.to_string(), |_| "${N}".to_owned()));
                rest = &rest[found.map_or(character.len_utf8(), |value| value.len())..];
            }
            prop_assert_eq!(redactor.redact(&text), expected);
        }
    }

    #[test]
    fn values_become_names() {
        let pairs = [
            ("secret", "A"),
            ("secret-longer", "B"),
            ("SECRET_NAME", "secret"),
            ("short", "C"),
            ("sëcrêt", "D"),
            ("quo\"ted", "E"),
            ("secret", "SAME"),
        ];
        let redactor = Redactor::new(pairs.map(|(value, name)| (value.to_owned(), name.to_owned())));
        for (text, expected) in [
            ("nothing here", "nothing here"),
            ("a secret, a secret", "a ${A}, a ${A}"),
            ("secret-longer secret-long", "${B} ${A}-long"),
            ("SECRET_NAME", "${secret}"),
            ("short", "short"),
            ("ü sëcrêt", "ü ${D}"),
            (r#"{"a": "quo\"ted"} quo"ted"#, r#"{"a": "${E}"} ${E}"#),
        ] {
            assert_eq!(redactor.redact(text), expected);
        }
        assert_eq!(format!("{redactor:?} {:?}", Secret::new("secret")), "Redactor(6 values) …");
    }
}
