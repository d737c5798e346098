//! Values that must never print.

use std::borrow::Cow;
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

/// Shortest value that is looked for in foreign text: shorter ones would garble it.
const SHORTEST: usize = 6;

/// Replaces secret values by `${NAME}`. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor(Arc<[(String, String)]>);

impl Redactor {
    /// Takes pairs of value and name; longer values are replaced first, so that one which contains
    /// another is not left half readable. Where a value has several names, the first is shown.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut pairs: Vec<_> =
            pairs.into_iter().filter(|(value, _)| value.chars().count() >= SHORTEST).collect();
        pairs.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.0.cmp(&b.0)));
        pairs.dedup_by(|a, b| a.0 == b.0);
        Self(pairs.into())
    }

    /// The same with more pairs of value and name.
    pub fn with(&self, more: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::new(self.0.iter().cloned().chain(more))
    }

    /// The text with every known value replaced by its `${NAME}`, in one pass, so that names put in are left
    /// alone.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.0.iter().any(|(value, _)| text.contains(value.as_str())) {
            return Cow::Borrowed(text);
        }
        let mut redacted = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            match self.0.iter().find(|(value, _)| rest.starts_with(value.as_str())) {
                Some((value, name)) => {
                    redacted.push_str("${");
                    redacted.push_str(name);
                    redacted.push('}');
                    rest = &rest[value.len()..];
                }
                None => {
                    redacted.push(character);
                    rest = &rest[character.len_utf8()..];
                }
            }
        }
        Cow::Owned(redacted)
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Redactor({} values)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_names() {
        let pairs = [
            ("secret", "A"),
            ("secret-longer", "B"),
            ("SECRET_NAME", "secret"),
            ("short", "C"),
            ("sëcrêt", "D"),
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
        ] {
            assert_eq!(redactor.redact(text), expected);
        }
        assert_eq!(format!("{redactor:?} {:?}", Secret::new("secret")), "Redactor(4 values) …");
    }
}
