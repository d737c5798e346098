//! Decides who may come in, by `Host`, `Origin` and bearer tokens.
//!
//! Invariant: these are checked before anything else in a request.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{StatusCode, Uri};
use subtle::ConstantTimeEq;

use crate::config::Token;

/// The host names by which we may be addressed, and the origins that may do so.
pub(in crate::gateway) struct Guard {
    bound: IpAddr,
    /// How most callers spell our address; empty if we are bound to all addresses.
    usual: String,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Guard {
    pub(in crate::gateway) fn new(bound: SocketAddr, hosts: &[String], origins: &[String]) -> Self {
        let hosts = hosts.iter().filter_map(|host| host_name(host)).collect();
        let origins =
            origins.iter().map(|origin| origin.trim_end_matches('/').to_ascii_lowercase()).collect();
        let usual = if bound.ip().is_unspecified() { String::new() } else { bound.to_string() };
        Self { bound: bound.ip(), usual, hosts, origins }
    }

    /// Admits a request by its `Host` and `Origin`, or returns the status and message that refuse it.
    pub(super) fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        self.admit_host(uri, headers)?;
        match single(headers, &header::ORIGIN) {
            Ok(None) => Ok(()),
            Ok(Some(origin)) if self.is_allowed_origin(origin) => Ok(()),
            _ => Err((StatusCode::FORBIDDEN, "this Origin is not allowed; --allow-origin adds one")),
        }
    }

    /// Admits a request by its `Host` alone.
    pub(in crate::gateway) fn admit_host(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), (StatusCode, &'static str)> {
        let host = match single(headers, &header::HOST) {
            Ok(Some(host)) => host,
            Ok(None) => return Err((StatusCode::BAD_REQUEST, "a request has a Host header")),
            Err(Repeated) => return Err((StatusCode::BAD_REQUEST, "a request has one Host header")),
        };
        // Other parsers prefer a host in the request target over the header, so both are checked.
        let target = uri.authority().map(|authority| authority.as_str());
        if ![Some(host), target].into_iter().flatten().all(|host| self.is_our_name(host)) {
            return Err((StatusCode::FORBIDDEN, "this Host is not served here; --allow-host adds one"));
        }
        Ok(())
    }

    /// The token by which a request comes in; `None` where none is needed.
    pub(super) fn identify(
        &self,
        tokens: &[Arc<Token>],
        headers: &HeaderMap,
    ) -> Result<Option<Arc<Token>>, ()> {
        match self.needs_no_token(tokens) {
            true => Ok(None),
            false => authenticate(tokens, headers).map(Some),
        }
    }

    /// Whether everybody may come in: no token is configured, and nobody can connect from another machine.
    pub(super) fn needs_no_token(&self, tokens: &[Arc<Token>]) -> bool {
        tokens.is_empty() && self.bound.is_loopback()
    }

    fn is_our_name(&self, host: &str) -> bool {
        if host == self.usual {
            return !host.is_empty();
        }
        let Some(name) = host_name(host) else { return false };
        if self.hosts.contains(&name) {
            return true;
        }
        let address: Option<IpAddr> = name.parse().ok();
        !self.bound.is_unspecified() && (is_loopback(&name) || address == Some(self.bound))
    }

    fn is_allowed_origin(&self, origin: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        if self.origins.contains(&origin) {
            return true;
        }
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        rest.and_then(host_name).is_some_and(|name| is_loopback(&name))
    }
}

/// Whether this is an origin as browsers send it. Anything else would never match.
pub fn is_origin(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && scheme.bytes().all(is_scheme_byte) && !rest.is_empty() && is_plain(rest)
    })
}

/// Whether this is a host name or address, with or without a port.
pub fn is_host(text: &str) -> bool {
    host_name(text).is_some()
}

/// The token that the request carries; `Err` if it carries none of the configured ones.
///
/// Every configured token is compared, each in a time that does not depend on where the texts differ.
pub(in crate::gateway) fn authenticate(tokens: &[Arc<Token>], headers: &HeaderMap) -> Result<Arc<Token>, ()> {
    let given = bearer(headers).ok_or(())?.as_bytes();
    let mut found = None;
    for token in tokens {
        if bool::from(token.token.expose().as_bytes().ct_eq(given)) {
            found = Some(token);
        }
    }
    found.cloned().ok_or(())
}

/// What the request carries as a bearer token, whoever knows it.
pub(in crate::gateway) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, given) = single(headers, &header::AUTHORIZATION).ok()??.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| given.trim())
}

/// A header that may occur only once is repeated, or is not text.
pub(in crate::gateway) struct Repeated;

/// The value of a header that may occur only once.
pub(in crate::gateway) fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, Repeated> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| Repeated),
        (Some(_), Some(_)) => Err(Repeated),
    }
}

/// The name in `name:port` or `[address]:port`, in lower case and without brackets.
fn host_name(text: &str) -> Option<String> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']')?;
            name.parse::<std::net::Ipv6Addr>().ok()?;
            (name, port)
        }
        None => match text.find(':') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        },
    };
    let port_fits = port.is_empty() || port.strip_prefix(':')?.bytes().all(|byte| byte.is_ascii_digit());
    (port_fits && !name.is_empty() && is_plain(name)).then(|| name.to_ascii_lowercase())
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@\\ ,".contains(&byte))
}

fn is_scheme_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(bound: &str, host: &str, origin: Option<&str>) -> bool {
        let allowed = (&["gateway.example:443".to_owned()], &["https://App.example/".to_owned()]);
        let guard = Guard::new(bound.parse().unwrap(), allowed.0, allowed.1);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        guard.admit(&Uri::from_static("/mcp"), &headers).is_ok()
    }

    #[test]
    fn hosts() {
        for (bound, host, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "localhost", true),
            ("127.0.0.1:1", "LocalHost:99", true),
            ("127.0.0.1:1", "127.8.7.6:1", true),
            ("127.0.0.1:1", "[::1]:1", true),
            ("127.0.0.1:1", "gateway.EXAMPLE", true),
            ("127.0.0.1:1", "gateway.example.evil.com", false),
            ("127.0.0.1:1", "evil-gateway.example", false),
            ("127.0.0.1:1", "localhost.evil.com", false),
            ("127.0.0.1:1", "localhost:80@evil.com", false),
            ("127.0.0.1:1", "user@localhost", false),
            ("127.0.0.1:1", "localhost:x", false),
            ("127.0.0.1:1", "localhost/evil", false),
            ("127.0.0.1:1", "localhost.", false),
            ("127.0.0.1:1", "[localhost]", false),
            ("127.0.0.1:1", "::1", false),
            ("127.0.0.1:1", "192.0.2.1", false),
            ("127.0.0.1:1", "", false),
            ("192.0.2.1:1", "192.0.2.1:5", true),
            ("192.0.2.1:1", "localhost", true),
            ("[2001:db8::1]:1", "[2001:DB8:0::1]", true),
            ("0.0.0.0:1", "gateway.example", true),
            ("0.0.0.0:1", "localhost", false),
            ("0.0.0.0:1", "0.0.0.0", false),
            ("0.0.0.0:1", "0.0.0.0:1", false),
            ("0.0.0.0:1", "", false),
            ("[::]:1", "[::1]", false),
        ] {
            assert_eq!(admits(bound, host, None), expected, "{host} at {bound}");
        }
    }

    #[test]
    fn origins() {
        for (origin, expected) in [
            ("http://localhost", true),
            ("https://127.0.0.1:3000", true),
            ("http://[::1]:3000", true),
            ("https://app.example", true),
            ("HTTPS://APP.EXAMPLE", true),
            ("https://app.example:8443", false),
            ("http://app.example", false),
            ("null", false),
            ("", false),
            ("http://localhost.evil.com", false),
            ("http://localhost:1@evil.com", false),
            ("http://evil.com#localhost", false),
            ("ftp://localhost", false),
            ("file://", false),
            ("localhost", false),
        ] {
            assert_eq!(admits("127.0.0.1:1", "localhost", Some(origin)), expected, "{origin}");
        }
        for (text, expected) in [
            ("https://a.example", true),
            ("vscode-webview://x", true),
            ("*", false),
            ("null", false),
            ("a.example", false),
        ] {
            assert_eq!(is_origin(text), expected, "{text}");
        }
    }

    #[test]
    fn tokens_count_as_a_whole() {
        let known = ["all-secret", "ci-secret"].map(|secret| {
            let token = crate::config::Secret::new(secret);
            Arc::new(Token { name: secret.to_owned(), token, scope: None })
        });
        for (given, expected) in [
            ("Bearer all-secret", Some("all-secret")),
            ("bearer  ci-secret ", Some("ci-secret")),
            ("Bearer all-secre", None),
            ("Bearer all-secret2", None),
            ("Bearer ll-secret", None),
            ("Bearer ALL-SECRET", None),
            ("Bearer all-secret ci-secret", None),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic all-secret", None),
            ("all-secret", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, given.parse().unwrap());
            let found = authenticate(&known, &headers).ok();
            assert_eq!(found.as_ref().map(|token| &*token.name), expected, "{given}");
        }
        assert!(authenticate(&known, &HeaderMap::new()).is_err());
    }
}
