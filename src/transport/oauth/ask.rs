//! Requests to authorization servers.
//!
//! Invariant: they carry nothing that belongs to an MCP server, follow no redirect to another origin, and go
//! through a gate.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::discovery::{ServerMetadata, shown};
use super::grant::{Grant, Method, OauthClient, Token};
use super::now;
use crate::protocol::tool_headers::base64;
use crate::text::percent::encode;
use crate::transport::http_client::body::collect;
use crate::transport::http_client::connect::Http;
use crate::transport::http_client::reach::Gate;
use crate::transport::http_client::uri::origin;

/// The limit for one answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// The largest answer in bytes.
const MOST: usize = 256 * 1024;
/// A token is renewed this many seconds before it expires, or a tenth of its lifetime if that is shorter.
const EARLY: u64 = 30;
/// Our name as users of an authorization server see it.
const NAME: &str = "MCP Workbench";

/// The reason for a missing token.
#[derive(Debug)]
pub(super) enum NoToken {
    /// The authorization server refused.
    Refused(String),
    /// The request failed before the authorization server could decide.
    Failed(String),
}

impl NoToken {
    pub(super) fn reason(self) -> String {
        match self {
            Self::Refused(reason) | Self::Failed(reason) => reason,
        }
    }
}

/// Fetches a JSON document; `None` if the server has none there.
pub(super) async fn get<T: DeserializeOwned>(gate: &Gate, uri: &Uri) -> Result<Option<T>, String> {
    let (status, body) = send(gate, HttpMethod::GET, uri, HeaderMap::new(), Bytes::new()).await?;
    match status {
        StatusCode::OK => {
            let document = serde_json::from_slice(&body);
            document.map(Some).map_err(|_| format!("what is at {uri} is not the metadata that it should be"))
        }
        status if status.is_client_error() => Ok(None),
        status => Err(format!("{uri} answered HTTP {}", status.as_u16())),
    }
}

/// Registers us with an authorization server (RFC 7591).
pub(super) async fn register(
    gate: &Gate,
    server: &ServerMetadata,
    endpoint: &str,
    redirect: &str,
    port: u16,
) -> Result<OauthClient, String> {
    let supported = server.token_endpoint_auth_methods_supported.as_deref();
    let takes = |method: &str| supported.is_some_and(|all| all.iter().any(|one| one == method));
    // We run on the user's machine and cannot keep a secret from the user, so a public client is preferred.
    let asked = if takes("none") { Method::None } else { Method::choose(true, supported) };
    let mut grants = vec!["authorization_code"];
    grants.extend(server.refreshes().then_some("refresh_token"));
    let about = json!({
        "client_name": NAME,
        "redirect_uris": [redirect],
        "grant_types": grants,
        "response_types": ["code"],
        "token_endpoint_auth_method": asked,
        "application_type": "native",
    });
    let failed = |reason: &str| {
        format!(
            "the authorization server {} does not register us: {reason}; register a client there for {redirect} and set `oauth`",
            server.issuer
        )
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let endpoint = parse(endpoint)?;
    let (status, body) = send(gate, HttpMethod::POST, &endpoint, headers, about.to_string().into()).await?;
    if !status.is_success() {
        return Err(failed(&complaint(status, &body, &[])));
    }
    #[derive(Deserialize)]
    struct Registered {
        client_id: String,
        client_secret: Option<String>,
        token_endpoint_auth_method: Option<Method>,
    }
    let registered: Registered =
        serde_json::from_slice(&body).map_err(|_| failed("its answer cannot be understood"))?;
    let secret = registered.client_secret.filter(|secret| !secret.is_empty());
    let method = registered.token_endpoint_auth_method.unwrap_or(asked);
    let method = if secret.is_some() { method } else { Method::None };
    Ok(OauthClient { id: registered.client_id, secret, method, registered: Some(port), doubtful: false })
}

/// Exchanges the code of a login for tokens.
pub(super) async fn exchange(
    gate: &Gate,
    grant: &Grant,
    code: &str,
    verifier: &str,
    redirect: &str,
) -> Result<Token, NoToken> {
    let parameters = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect),
        ("code_verifier", verifier),
        ("resource", &grant.resource),
    ];
    token(gate, grant, &parameters, &[code, verifier]).await
}

/// Renews the tokens.
pub(super) async fn refresh(gate: &Gate, grant: &Grant, refresh: &str) -> Result<Token, NoToken> {
    let parameters =
        [("grant_type", "refresh_token"), ("refresh_token", refresh), ("resource", &grant.resource)];
    let mut token = token(gate, grant, &parameters, &[refresh]).await?;
    token.refresh.get_or_insert_with(|| refresh.to_owned());
    Ok(token)
}

async fn token(
    gate: &Gate,
    grant: &Grant,
    parameters: &[(&str, &str)],
    secrets: &[&str],
) -> Result<Token, NoToken> {
    let client = &grant.client;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    let mut parameters = parameters.to_vec();
    let secret = client.secret.as_deref();
    match (client.method, secret) {
        (Method::Basic, Some(secret)) => {
            let credentials = format!("{}:{}", encode(&client.id), encode(secret));
            let value = format!("Basic {}", base64(credentials.as_bytes()));
            let mut value: HeaderValue = value.parse().expect("Base64 is visible ASCII");
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        (Method::Post, Some(secret)) => {
            parameters.extend([("client_id", &*client.id), ("client_secret", secret)])
        }
        _ => parameters.push(("client_id", &client.id)),
    }
    let body: Vec<_> = parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    let endpoint = parse(&grant.token_endpoint).map_err(NoToken::Failed)?;
    let sent = send(gate, HttpMethod::POST, &endpoint, headers, body.join("&").into());
    let (status, body) = sent.await.map_err(NoToken::Failed)?;
    let from = &grant.issuer;
    if !status.is_success() {
        let secrets: Vec<_> = secrets.iter().copied().chain(secret).collect();
        let complaint = complaint(status, &body, &secrets);
        let reason = format!("the authorization server {from} gives no token: {complaint}");
        return Err(match status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
            true => NoToken::Refused(reason),
            false => NoToken::Failed(reason),
        });
    }
    read_token(&body).map_err(|wrong| NoToken::Failed(format!("the authorization server {from} {wrong}")))
}

fn read_token(body: &[u8]) -> Result<Token, &'static str> {
    let answer: Value =
        serde_json::from_slice(body).map_err(|_| "answers with something that is not a token")?;
    let text = |key: &str| answer[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let access = text("access_token").ok_or("answers with something that is not a token")?;
    if !answer["token_type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
        return Err("gives a token that is not a bearer token");
    }
    if access.bytes().any(|byte| !matches!(byte, 0x21..=0x7e)) {
        return Err("gives a token that cannot be sent");
    }
    let seconds = &answer["expires_in"];
    let seconds = seconds.as_f64().or_else(|| seconds.as_str()?.parse().ok()).map(|seconds| seconds as u64);
    let renew_at = seconds.map(|seconds| now().saturating_add(seconds - EARLY.min(seconds / 10)));
    Ok(Token { access, refresh: text("refresh_token"), renew_at, scope: text("scope") })
}

/// The error message of an answer, with our secrets removed in case it quotes the request.
fn complaint(status: StatusCode, body: &[u8], secrets: &[&str]) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let words: Vec<_> =
        ["error", "error_description"].iter().filter_map(|key| answer[*key].as_str()).map(shown).collect();
    match words.is_empty() {
        true => format!("it answered HTTP {}", status.as_u16()),
        false => secrets.iter().fold(words.join(": "), |words, secret| words.replace(secret, "…")),
    }
}

fn parse(endpoint: &str) -> Result<Uri, String> {
    endpoint.parse().map_err(|_| "the authorization server has a malformed endpoint".to_owned())
}

async fn send(
    gate: &Gate,
    method: HttpMethod,
    uri: &Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Bytes), String> {
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let exchange = async {
        let http = Http::new(uri, HeaderMap::new(), gate.clone()).await?;
        let response = http.send(method, uri, &headers, body).await.map_err(|failure| failure.message)?;
        let status = response.status();
        let body =
            collect(response.into_body(), MOST).await.map_err(|_| "its answer broke off or is too long")?;
        Ok((status, body))
    };
    let late = |_| Err("it does not answer in time".to_owned());
    let outcome: Result<_, String> = timeout(PATIENCE, exchange).await.unwrap_or_else(late);
    outcome.map_err(|reason| format!("{} cannot be asked for the login: {reason}", origin(uri)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read() {
        let read = |text: &str| {
            read_token(text.as_bytes())
                .map(|token| (token.access, token.refresh, token.renew_at.is_some(), token.scope))
        };
        assert_eq!(
            read(
                r#"{"access_token":"a","token_type":"bearer","expires_in":"3600","refresh_token":"r","scope":"s"}"#
            ),
            Ok(("a".into(), Some("r".into()), true, Some("s".into())))
        );
        assert_eq!(
            read(r#"{"access_token":"a","token_type":"Bearer"}"#),
            Ok(("a".into(), None, false, None))
        );
        for bad in [
            "<html>",
            r#"{"token_type":"Bearer"}"#,
            r#"{"access_token":"a","token_type":"DPoP"}"#,
            r#"{"access_token":"a\nb","token_type":"Bearer"}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        // A huge lifetime must not overflow the date.
        for (lifetime, expected) in [
            ("18446744073709551615", u64::MAX),
            ("1e300", u64::MAX),
            ("\"inf\"", u64::MAX),
            ("-1e300", now()),
            ("\"NaN\"", now()),
            ("0.9", now()),
        ] {
            let text = format!(r#"{{"access_token":"a","token_type":"Bearer","expires_in":{lifetime}}}"#);
            let renew_at = read_token(text.as_bytes()).ok().unwrap().renew_at.unwrap();
            assert!(renew_at.abs_diff(expected) <= 60, "{lifetime}: {renew_at}");
        }
        let soon = read_token(br#"{"access_token":"a","token_type":"Bearer","expires_in":5}"#).ok().unwrap();
        assert!(soon.renew_at.unwrap() >= now() + 4);
    }

    #[test]
    fn complaints_hold_no_secret() {
        let secrets = ["the-secret"];
        let body = br#"{"error":"invalid_grant","error_description":"the-secret\nis bad"}"#;
        assert_eq!(complaint(StatusCode::BAD_REQUEST, body, &secrets), "invalid_grant: … is bad");
        assert_eq!(complaint(StatusCode::BAD_REQUEST, b"oops", &secrets), "it answered HTTP 400");
    }
}
