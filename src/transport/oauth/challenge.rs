//! Parses the header `WWW-Authenticate`, by which a server explains that it refused a request.

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

use super::scope::Scopes;

/// The `Bearer` challenge of an answer; empty if there is none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// The URL of the resource's metadata.
    pub(super) resource_metadata: Option<String>,
    /// The scopes that the request needs.
    pub(super) scope: Option<Scopes>,
    error: Option<String>,
}

impl Challenge {
    /// Reads the first `Bearer` challenge.
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let values = headers.get_all(WWW_AUTHENTICATE).into_iter();
        values.filter_map(|value| Self::parse(value.to_str().ok()?)).next().unwrap_or_default()
    }

    /// Whether the token is valid but lacks a scope for this request.
    pub(super) fn lacks_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut rest = text;
        let mut found: Option<Self> = None;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let length = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(length);
            if word.is_empty() && behind.is_empty() {
                return found;
            }
            match behind.trim_start().strip_prefix('=') {
                Some(behind) if !word.is_empty() => {
                    let (value, behind) = value(behind.trim_start());
                    if let Some(challenge) = &mut found {
                        challenge.set(word, value);
                    }
                    rest = behind;
                }
                // The padding of a `token68`, or something unknown.
                Some(behind) => rest = behind,
                // A word without a value begins the next challenge.
                None if found.is_some() => return found,
                None => {
                    found = word.eq_ignore_ascii_case("bearer").then(Self::default);
                    rest = behind;
                }
            }
        }
    }

    fn set(&mut self, name: &str, value: String) {
        match name.to_ascii_lowercase().as_str() {
            "resource_metadata" => self.resource_metadata = Some(value),
            "scope" => self.scope = Some(Scopes::from(&*value)),
            "error" => self.error = Some(value),
            _ => {}
        }
    }
}

/// A value, quoted or not, and the text after it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, behind) = text.split_at(text.find([' ', '\t', ',']).unwrap_or(text.len()));
        return (value.to_owned(), behind);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[&str], metadata: Option<&str>, scope: Option<&str>, error: Option<&str>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, value.parse().unwrap());
        }
        let expected = Challenge {
            resource_metadata: metadata.map(str::to_owned),
            scope: scope.map(Scopes::from),
            error: error.map(str::to_owned),
        };
        assert_eq!(Challenge::read(&headers), expected, "{values:?}");
    }

    #[test]
    fn bearer_challenges_are_read() {
        let m = "https://h/.well-known/oauth-protected-resource";
        check(&[], None, None, None);
        check(&["Bearer"], None, None, None);
        check(&[&format!("Bearer resource_metadata=\"{m}\", scope=\"a b\"")], Some(m), Some("a b"), None);
        check(&[&format!("bearer Scope = a ,RESOURCE_METADATA={m}")], Some(m), Some("a"), None);
        check(
            &[r#"Bearer realm="a, \"b\" scope=\"no\"", error="insufficient_scope""#],
            None,
            None,
            Some("insufficient_scope"),
        );
        check(&[r#"Basic realm="x", Bearer scope="s", Digest scope="no""#], None, Some("s"), None);
        check(&["Negotiate abc==, Bearer scope=s"], None, Some("s"), None);
        check(&["Basic realm=x", "Bearer error=invalid_token"], None, None, Some("invalid_token"));
        check(&[r#"Bearer scope="open"#], None, Some("open"), None);
        check(&["=,= Bearer"], None, None, None);
    }
}
