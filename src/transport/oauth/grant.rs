//! A login's stored data, and the interface to where it is stored.

use std::any::Any;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// A login: the authorization server, our identity as its client, and the tokens from it. It holds secrets,
/// so it has no `Debug` form.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The authorization server that issued everything here. Nobody else may see it.
    pub issuer: String,
    /// The token endpoint.
    pub token_endpoint: String,
    /// The resource that the tokens are for, as the authorization server was told.
    pub resource: String,
    /// Our identity at the authorization server.
    pub client: OauthClient,
    /// The requested scopes.
    #[serde(default)]
    pub scope: String,
    /// The tokens, as long as they are worth keeping.
    pub token: Option<Token>,
}

/// A client as the authorization server knows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OauthClient {
    /// `client_id`
    pub id: String,
    /// `client_secret`
    pub secret: Option<String>,
    /// How the client authenticates at the token endpoint.
    pub method: Method,
    /// The port of the registered redirect URI, if we registered the client ourselves.
    pub registered: Option<u16>,
    /// Whether a login with this client was begun and never finished. The authorization server may have
    /// forgotten the client, and only the browser would show that.
    #[serde(default)]
    pub doubtful: bool,
}

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// The client sends its id only.
    #[serde(rename = "none")]
    None,
    /// The client uses HTTP Basic authentication.
    #[serde(rename = "client_secret_basic")]
    Basic,
    /// The client sends its secret in the body.
    #[serde(rename = "client_secret_post")]
    Post,
}

/// The tokens, and when to renew them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// `access_token`
    pub access: String,
    /// `refresh_token`
    pub refresh: Option<String>,
    /// The Unix time in seconds at which to renew: shortly before the access token expires, if that is known.
    pub renew_at: Option<u64>,
    /// The granted scopes, if the server named them.
    pub scope: Option<String>,
}

/// The part of a login that may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownLogin {
    /// The user who is logged in, if the token names one.
    pub user: Option<String>,
    /// The expiry of the token as Unix time in seconds, if that is known. The token may be renewed
    /// automatically.
    pub expires: Option<u64>,
}

impl Grant {
    /// The part that may be shown; `None` without a token.
    pub fn known(&self) -> Option<KnownLogin> {
        let token = self.token.as_ref()?;
        Some(KnownLogin { user: user(&token.access), expires: token.renew_at })
    }
}

/// The user of a token, if it is a JWT that names one. The name is only shown; no decision depends on it.
fn user(token: &str) -> Option<String> {
    let payload = token.split('.').nth(1).filter(|_| token.split('.').count() == 3)?;
    let claims: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    let names = ["email", "preferred_username", "username", "name"];
    let name = names.iter().find_map(|name| claims[name].as_str())?;
    let shown: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
    (!shown.is_empty()).then_some(shown)
}

/// The store of one login, shared with other processes.
pub trait Memory: Send + Sync {
    /// The stored login, if there is one.
    fn load(&self) -> Option<Grant>;
    /// Replaces the stored login.
    fn save(&self, grant: &Grant) -> io::Result<()>;
    /// Keeps other processes from renewing the tokens until the guard is dropped; `None` while another
    /// process holds it.
    fn lock(&self) -> Option<Box<dyn Any + Send>>;
}

impl Method {
    /// Chooses the method for a client with or without a secret, given the methods that the server supports.
    pub(super) fn choose(has_secret: bool, supported: Option<&[String]>) -> Self {
        let takes = |method: &str| supported.is_some_and(|all| all.iter().any(|one| one == method));
        match (has_secret, supported) {
            (false, _) => Self::None,
            // RFC 8414 defines this default for a server that lists no methods.
            (true, None) => Self::Basic,
            (true, Some(_)) if takes("client_secret_basic") => Self::Basic,
            (true, Some(_)) if takes("client_secret_post") => Self::Post,
            (true, Some(_)) if takes("none") => Self::None,
            (true, Some(_)) => Self::Basic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_may_name_its_user() {
        let jwt = |claims: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        for (token, expected) in [
            (jwt(r#"{"sub":"1","email":"a@b.c","name":"A"}"#), Some("a@b.c")),
            (jwt(r#"{"name":"A\u001b[31m"}"#), Some("A[31m")),
            (jwt(r#"{"sub":"1"}"#), None),
            (jwt("nothing"), None),
            ("e30.!.c2ln".to_owned(), None),
            ("opaque".to_owned(), None),
        ] {
            assert_eq!(user(&token).as_deref(), expected, "{token}");
        }
    }

    #[test]
    fn clients_show_themselves_as_the_server_takes_it() {
        for (has_secret, supported, expected) in [
            (false, Some(&["client_secret_basic"][..]), Method::None),
            (true, None, Method::Basic),
            (true, Some(&["client_secret_post", "client_secret_basic"]), Method::Basic),
            (true, Some(&["none", "client_secret_post"]), Method::Post),
            (true, Some(&["none"]), Method::None),
            (true, Some(&["private_key_jwt"]), Method::Basic),
        ] {
            let supported = supported.map(|all| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
            assert_eq!(Method::choose(has_secret, supported.as_deref()), expected);
        }
    }
}
