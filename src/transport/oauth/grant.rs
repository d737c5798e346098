//! What is known of a login, and where it is remembered.

use std::any::Any;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// A login: which authorization server, as which client, and the tokens that it gave. Holds secrets, so it has no
/// `Debug` form.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The authorization server that all of this belongs to and that alone may see it.
    pub issuer: String,
    /// Its endpoint for tokens.
    pub token_endpoint: String,
    /// What the tokens are good for, as the authorization server was told.
    pub resource: String,
    /// Who we are there.
    pub client: OauthClient,
    /// The scopes that were asked for.
    #[serde(default)]
    pub scope: String,
    /// The tokens, while they are worth keeping.
    pub token: Option<Token>,
}

/// A client as the authorization server knows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OauthClient {
    /// `client_id`
    pub id: String,
    /// `client_secret`
    pub secret: Option<String>,
    /// How it shows itself at the endpoint for tokens.
    pub method: Method,
    /// The port of the redirect URI that it was registered with, where we registered it.
    pub registered: Option<u16>,
    /// Whether a login with it was begun and has not come to an end: the authorization server may have forgotten it,
    /// which only the browser would show.
    #[serde(default)]
    pub doubtful: bool,
}

/// How a client shows itself at the endpoint for tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// By its id alone.
    #[serde(rename = "none")]
    None,
    /// By HTTP's own means.
    #[serde(rename = "client_secret_basic")]
    Basic,
    /// In the body.
    #[serde(rename = "client_secret_post")]
    Post,
}

/// Tokens, and when they are to be renewed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// `access_token`
    pub access: String,
    /// `refresh_token`
    pub refresh: Option<String>,
    /// In seconds of Unix time: a little before the end of the access token, where that is known.
    pub renew_at: Option<u64>,
    /// What was granted, where the server says so.
    pub scope: Option<String>,
}

/// What may be told of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownLogin {
    /// Who is logged in, where the token tells.
    pub user: Option<String>,
    /// In seconds of Unix time: when the token ends, where that is known. It may be renewed by itself.
    pub expires: Option<u64>,
}

impl Grant {
    /// What may be told of it; `None` without a token.
    pub fn known(&self) -> Option<KnownLogin> {
        let token = self.token.as_ref()?;
        Some(KnownLogin { user: user(&token.access), expires: token.renew_at })
    }
}

/// Whom a token is for, if it is a JWT that names somebody. It is only shown: nothing is decided by it.
fn user(token: &str) -> Option<String> {
    let payload = token.split('.').nth(1).filter(|_| token.split('.').count() == 3)?;
    let claims: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    let names = ["email", "preferred_username", "username", "name"];
    let name = names.iter().find_map(|name| claims[name].as_str())?;
    let shown: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
    (!shown.is_empty()).then_some(shown)
}

/// Where one login is remembered, for this process and others.
pub trait Memory: Send + Sync {
    /// What is remembered.
    fn load(&self) -> Option<Grant>;
    /// Remembers this instead.
    fn save(&self, grant: &Grant) -> io::Result<()>;
    /// Keeps other processes from renewing the tokens until it is dropped; `None` while another one does.
    fn lock(&self) -> Option<Box<dyn Any + Send>>;
}

impl Method {
    /// How a client with or without a secret shows itself to a server that takes these.
    pub(super) fn choose(has_secret: bool, supported: Option<&[String]>) -> Self {
        let takes = |method: &str| supported.is_some_and(|all| all.iter().any(|one| one == method));
        match (has_secret, supported) {
            (false, _) => Self::None,
            // What RFC 8414 says of a server that does not say.
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
