//! One login in a browser: the URL that begins it and the answer that ends it.
//!
//! Invariant: everything here is pure; `callback.rs` and `mod.rs` do the network's part.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

use super::grant::Grant;
use crate::text::percent::{decode, encode};

/// The path of the redirect URI.
pub(super) const CALLBACK: &str = "/callback";

/// The state of one login.
pub(super) struct Flow {
    /// The grant that the login is for; it has no token yet.
    pub(super) grant: Grant,
    /// The redirect URI.
    pub(super) redirect: String,
    /// The PKCE code verifier.
    pub(super) verifier: String,
    state: String,
    /// Whether the authorization server declares that its answers name the issuer.
    names_itself: bool,
}

/// The browser's answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallbackAnswer {
    /// The answer does not belong to this login.
    Foreign,
    /// The login failed for this reason.
    Refused(String),
    /// The code to exchange for tokens.
    Code(String),
}

impl Flow {
    /// A login with fresh secrets.
    pub(super) fn new(grant: Grant, redirect: String, names_itself: bool) -> Result<Self, String> {
        Ok(Self { grant, redirect, verifier: random()?, state: random()?, names_itself })
    }

    /// The URL at which a person logs in.
    pub(super) fn url(&self, endpoint: &str) -> String {
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier.as_bytes()));
        let grant = &self.grant;
        let mut url = endpoint.split('#').next().unwrap_or_default().to_owned();
        url.push(if url.contains('?') { '&' } else { '?' });
        let parameters = [
            ("response_type", "code"),
            ("client_id", &grant.client.id),
            ("redirect_uri", &self.redirect),
            ("state", &self.state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("resource", &grant.resource),
            ("scope", &grant.scope),
        ];
        let given = parameters.iter().filter(|(_, value)| !value.is_empty());
        let given: Vec<_> = given.map(|(name, value)| format!("{name}={}", encode(value))).collect();
        url + &given.join("&")
    }

    /// Reads the query of the redirect. It counts only if it answers this login and comes from the
    /// authorization server that was asked (RFC 9207, compared without normalisation).
    pub(super) fn read(&self, query: &str) -> CallbackAnswer {
        let parameter = |name: &str| {
            let found =
                query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
            found.map(|(_, value)| String::from_utf8_lossy(&decode(&value.replace('+', " "))).into_owned())
        };
        let state = parameter("state").unwrap_or_default();
        if !bool::from(state.as_bytes().ct_eq(self.state.as_bytes())) {
            return CallbackAnswer::Foreign;
        }
        let asked = &self.grant.issuer;
        match parameter("iss") {
            Some(iss) if iss != *asked => {
                return CallbackAnswer::Refused(format!("the answer is not from {asked}, which was asked"));
            }
            None if self.names_itself => {
                return CallbackAnswer::Refused(format!(
                    "the answer does not say that it is from {asked}, as it should"
                ));
            }
            _ => {}
        }
        match (parameter("error"), parameter("code")) {
            (Some(error), _) => {
                let words: Vec<_> =
                    [Some(error), parameter("error_description")].into_iter().flatten().collect();
                CallbackAnswer::Refused(format!(
                    "{asked} says: {}",
                    super::discovery::shown(&words.join(": "))
                ))
            }
            (None, Some(code)) => CallbackAnswer::Code(code),
            (None, None) => CallbackAnswer::Refused("the answer holds no code".to_owned()),
        }
    }
}

/// A text of 256 random bits.
fn random() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers can be had: {error}"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::grant::{Method, OauthClient};
    use super::*;

    fn flow(scope: &str, names_itself: bool) -> Flow {
        let client = OauthClient {
            id: "https://c/x".into(),
            secret: None,
            method: Method::None,
            registered: None,
            doubtful: false,
        };
        let grant = Grant {
            issuer: "https://as".into(),
            token_endpoint: "https://as/token".into(),
            resource: "https://h/mcp".into(),
            client,
            scope: scope.into(),
            token: None,
        };
        Flow::new(grant, "http://127.0.0.1:9/callback".into(), names_itself).unwrap()
    }

    #[test]
    fn the_url_holds_all_that_the_login_needs() {
        // The example of RFC 7636.
        let mut flow = flow("a b", false);
        flow.verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into();
        let state = flow.state.clone();
        let rest = format!(
            "response_type=code&client_id=https%3A%2F%2Fc%2Fx&redirect_uri=http%3A%2F%2F127.0.0.1%3A9%2Fcallback\
             &state={state}&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256\
             &resource=https%3A%2F%2Fh%2Fmcp&scope=a%20b"
        );
        assert_eq!(flow.url("https://as/authorize"), format!("https://as/authorize?{rest}"));
        assert_eq!(flow.url("https://as/authorize?t=1#f"), format!("https://as/authorize?t=1&{rest}"));
        flow.grant.scope.clear();
        assert!(!flow.url("https://as/authorize").contains("scope"));
        assert_ne!(flow.state, self::flow("", false).state);
        assert!(state.len() == 43 && flow.verifier.len() == 43);
    }

    #[test]
    fn only_the_answer_of_who_was_asked_counts() {
        let (silent, named) = (flow("", false), flow("", true));
        let refused = |text: &str| CallbackAnswer::Refused(text.to_owned());
        for (flow, query, expected) in [
            (&silent, "code=c%2Bd+e", CallbackAnswer::Code("c+d e".into())),
            (&silent, "code=c&iss=https%3A%2F%2Fas", CallbackAnswer::Code("c".into())),
            (&named, "code=c&iss=https://as", CallbackAnswer::Code("c".into())),
            (&named, "code=c", refused("the answer does not say that it is from https://as, as it should")),
            (&named, "code=c&iss=https://as/", refused("the answer is not from https://as, which was asked")),
            (
                &silent,
                "code=c&iss=https://evil",
                refused("the answer is not from https://as, which was asked"),
            ),
            (
                &silent,
                "error=x&iss=https://evil",
                refused("the answer is not from https://as, which was asked"),
            ),
            (
                &silent,
                "error=access_denied&error_description=no+way%0A",
                refused("https://as says: access_denied: no way "),
            ),
            (&silent, "x=y", refused("the answer holds no code")),
        ] {
            assert_eq!(flow.read(&format!("{query}&state={}", flow.state)), expected, "{query}");
            for state in ["", "&state=", "&state=guess", &format!("&state={}x", flow.state)] {
                assert_eq!(flow.read(&format!("{query}{state}")), CallbackAnswer::Foreign, "{query}{state}");
            }
        }
    }
}
