//! The few operations on URLs that we need: origins, credentials, and references from servers.

use http::Uri;
use http::uri::{Authority, PathAndQuery};

/// Scheme, host and port, for messages.
pub(in crate::transport) fn origin(uri: &Uri) -> String {
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default())
}

/// Whether credentials for one URL may go to the other.
pub(in crate::transport) fn same_origin(one: &Uri, other: &Uri) -> bool {
    let port = |uri: &Uri| {
        uri.port_u16().or(match uri.scheme_str() {
            Some("https") => Some(443),
            _ => Some(80),
        })
    };
    let host = |uri: &Uri| uri.host().unwrap_or_default().to_ascii_lowercase();
    one.scheme() == other.scheme() && host(one) == host(other) && port(one) == port(other)
}

/// Splits name and password off a URL. The error never quotes the URL.
pub(in crate::transport) fn split_credentials(url: &str) -> Result<(Uri, Option<String>), String> {
    let uri: Uri = url.parse().map_err(|_| "the URL is malformed".to_owned())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("the URL must begin with http:// or https://".into());
    }
    let mut parts = uri.into_parts();
    let authority = parts.authority.take().ok_or("the URL names no host")?;
    let (credentials, host) = match authority.as_str().rsplit_once('@') {
        Some((credentials, host)) => (Some(credentials.to_owned()), host),
        None => (None, authority.as_str()),
    };
    let host: Authority = host.parse().map_err(|_| "the URL's host is malformed".to_owned())?;
    if host.host().is_empty() {
        return Err("the URL names no host".into());
    }
    if !has_good_port(&host) {
        return Err("the URL's port is malformed".into());
    }
    parts.authority = Some(host);
    parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    Ok((Uri::from_parts(parts).map_err(|_| "the URL is malformed".to_owned())?, credentials))
}

/// Whether the port is valid. The parser accepts numbers that are not ports and texts that are not numbers.
fn has_good_port(authority: &Authority) -> bool {
    authority.port_u16().is_some() || authority.as_str() == authority.host()
}

/// Resolves a reference against `base`; `None` if it is malformed or holds credentials.
pub(in crate::transport) fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let reference = reference.trim().split('#').next().unwrap_or_default();
    let (scheme, authority) = (base.scheme_str()?, base.authority()?.as_str());
    let is_absolute = reference.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    });
    let text = if is_absolute {
        reference.to_owned()
    } else if reference.starts_with("//") {
        format!("{scheme}:{reference}")
    } else if reference.starts_with('/') {
        format!("{scheme}://{authority}{reference}")
    } else if reference.is_empty() || reference.starts_with('?') {
        format!("{scheme}://{authority}{}{reference}", base.path())
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{reference}")
    };
    let uri: Uri = text.parse().ok()?;
    if uri.authority()?.as_str().contains('@') || uri.host()?.is_empty() || !has_good_port(uri.authority()?) {
        return None;
    }
    let mut parts = uri.into_parts();
    let path_and_query = parts.path_and_query.as_ref().map_or("/", PathAndQuery::as_str);
    let (path, query) = match path_and_query.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (path_and_query, String::new()),
    };
    parts.path_and_query = Some(format!("{}{query}", without_dots(path)).parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// The path without `.` and `..` segments.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::percent::decode;

    #[test]
    fn references_are_resolved() {
        let base: Uri = "https://Example.com:8443/a/sse?x=1".parse().unwrap();
        for (reference, expected, same) in [
            ("/messages?s=1", "https://Example.com:8443/messages?s=1", true),
            ("messages", "https://Example.com:8443/a/messages", true),
            ("./m/../n?u=http://x/../y", "https://Example.com:8443/a/n?u=http://x/../y", true),
            ("../../..", "https://Example.com:8443/", true),
            ("?s=2", "https://Example.com:8443/a/sse?s=2", true),
            ("/m#f", "https://Example.com:8443/m", true),
            ("https://example.com:8443/m", "https://example.com:8443/m", true),
            ("http://example.com:8443/m", "http://example.com:8443/m", false),
            ("https://example.com/m", "https://example.com/m", false),
            ("//evil.example/m", "https://evil.example/m", false),
            ("https://example.com:8443.evil.example/m", "https://example.com:8443.evil.example/m", false),
        ] {
            let Some(resolved) = resolve(&base, reference) else {
                assert!(!same, "{reference}");
                continue;
            };
            assert_eq!((resolved.to_string().as_str(), same_origin(&base, &resolved)), (expected, same));
        }
        assert_eq!(resolve(&base, "https://u:p@example.com:8443/m"), None);
        assert_eq!(resolve(&base, "/with space"), None);
    }

    #[test]
    fn default_ports_are_ports() {
        let same = |one: &str, other: &str| same_origin(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(same("https://a/", "https://A:443/x"));
        assert!(same("http://a/", "http://a:80/x"));
        assert!(!same("http://a/", "http://a:443/x"));
    }

    #[test]
    fn credentials_leave_the_url() {
        let (uri, credentials) = split_credentials("http://me:p%40ss@host:1/mcp?k=v").unwrap();
        assert_eq!(uri.to_string(), "http://host:1/mcp?k=v");
        assert_eq!(*decode(&credentials.unwrap()), *b"me:p@ss");
        assert_eq!(split_credentials("http://host").unwrap().0.to_string(), "http://host/");
        for bad in ["host/mcp", "ftp://h/", "http://", "http://u:secret@/x", "http://h:99999/"] {
            assert!(!split_credentials(bad).unwrap_err().contains("secret"), "{bad}");
        }
        assert_eq!(*decode("%zz%4"), *b"%zz%4");
    }
}
