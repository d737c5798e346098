//! Sets of scopes.

use std::fmt;

/// Scopes in the order in which they were named, without duplicates. An empty set requests nothing in
/// particular, and the server decides.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Scopes(Vec<String>);

/// The scope that some authorization servers require before they issue a refresh token.
const OFFLINE: &str = "offline_access";

impl Scopes {
    /// The scopes to ask for first: the configured ones, else those of the challenge, else all that the
    /// resource names.
    pub(super) fn first(configured: Option<&str>, challenged: Option<&Self>, supported: &[String]) -> Self {
        match (configured, challenged) {
            (Some(scope), _) => Self::from(scope),
            (None, Some(scope)) if !scope.is_empty() => scope.clone(),
            _ => supported.iter().fold(Self::default(), |all, scope| all.and(&Self::from(&**scope))),
        }
    }

    /// The union of both sets.
    pub(super) fn and(mut self, more: &Self) -> Self {
        for scope in &more.0 {
            if !self.0.contains(scope) {
                self.0.push(scope.clone());
            }
        }
        self
    }

    /// Adds the scope for renewable tokens, if the authorization server knows it. It is not added to an empty
    /// set, because it would then replace the scopes that the server grants by default.
    pub(super) fn and_offline(self, supported: &[String]) -> Self {
        let known = supported.iter().any(|scope| scope == OFFLINE);
        if known && !self.is_empty() { self.and(&Self::from(OFFLINE)) } else { self }
    }

    /// Whether this set contains all of `all`.
    pub(super) fn has(&self, all: &Self) -> bool {
        all.0.iter().all(|scope| self.0.contains(scope))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Scopes {
    fn from(text: &str) -> Self {
        let mut scopes = Vec::new();
        for scope in text.split_ascii_whitespace() {
            if !scopes.iter().any(|known| known == scope) {
                scopes.push(scope.to_owned());
            }
        }
        Self(scopes)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_scope_is_asked_for() {
        let supported = ["a".to_owned(), "b".to_owned()];
        for (configured, challenged, supported, expected) in [
            (Some("mine"), Some("theirs"), &supported[..], "mine"),
            (Some(""), Some("theirs"), &supported, ""),
            (None, Some("x  y x"), &supported, "x y"),
            (None, Some(""), &supported, "a b"),
            (None, None, &supported, "a b"),
            (None, None, &[], ""),
        ] {
            let challenged = challenged.map(Scopes::from);
            assert_eq!(Scopes::first(configured, challenged.as_ref(), supported).to_string(), expected);
        }
    }

    #[test]
    fn scopes_are_added_and_compared() {
        let (one, two) = (Scopes::from("a b"), Scopes::from("b c"));
        let both = one.clone().and(&two);
        assert_eq!(both.to_string(), "a b c");
        assert!(both.has(&two) && !one.has(&two) && one.has(&Scopes::default()));
        let offline = ["offline_access".to_owned()];
        assert_eq!(one.clone().and_offline(&offline).to_string(), "a b offline_access");
        assert_eq!(one.and_offline(&[]).to_string(), "a b");
        assert_eq!(Scopes::default().and_offline(&offline).to_string(), "");
    }
}
