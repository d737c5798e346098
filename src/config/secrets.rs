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

    /// The text with every known value replaced by its `${NAME}`.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for (value, name) in self.0.iter() {
            if text.contains(value.as_str()) {
                text = Cow::Owned(text.replace(value.as_str(), &format!("${{{name}}}")));
            }
        }
        text
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Redactor({} values)", self.0.len())
    }
}
