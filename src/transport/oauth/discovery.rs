//! Finds the authorization server that a resource names, and reads that server's metadata.

use http::Uri;
use serde::Deserialize;

use super::ask;
use super::challenge::Challenge;
use crate::text::plain;
use crate::transport::http_client::reach::{Gate, Reach};
use crate::transport::http_client::uri::{origin, same_origin};

/// What a login needs to know: the authorization server and the target of the token.
pub(super) struct Discovered {
    pub(super) server: ServerMetadata,
    /// The identifier of the resource.
    pub(super) resource: String,
    /// All scopes that the resource names.
    pub(super) scopes: Vec<String>,
}

/// The part of a protected resource's metadata (RFC 9728) that we read.
#[derive(Deserialize)]
struct ResourceMetadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Option<Vec<String>>,
}

/// The part of an authorization server's metadata (RFC 8414, OpenID Connect Discovery) that we read.
///
/// Invariant: the metadata in a [`Discovered`] was checked. The issuer is the one that was asked, the
/// endpoints are safe, and PKCE is supported.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServerMetadata {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    pub(super) scopes_supported: Option<Vec<String>>,
    pub(super) grant_types_supported: Option<Vec<String>>,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(super) code_challenge_methods_supported: Option<Vec<String>>,
    pub(super) authorization_response_iss_parameter_supported: bool,
    pub(super) client_id_metadata_document_supported: bool,
}

/// Finds the authorization server of an MCP server that refused a request. If there are several, the `known`
/// one is preferred. The MCP server itself is asked through its `own` gate, everything that it names through
/// the other. `None` means that nothing points to an authorization server.
pub(super) async fn discover(
    server: &Uri,
    challenge: &Challenge,
    known: Option<&str>,
    own: &Gate,
    named: &Gate,
) -> Result<Option<Discovered>, String> {
    let (resource, mut issuers, scopes) = match resource_metadata(server, challenge, own, named).await? {
        Some(metadata) => {
            if !covers(&metadata.resource, server) {
                return Err(format!(
                    "its metadata is that of another resource, {}, so no login is begun",
                    shown(&metadata.resource)
                ));
            }
            let scopes = metadata.scopes_supported.unwrap_or_default();
            (metadata.resource, metadata.authorization_servers, scopes)
        }
        // Up to 2025-03-26 an MCP server was its own authorization server.
        None => (canonical(server), vec![origin(server)], Vec::new()),
    };
    issuers.sort_by_key(|issuer| known != Some(issuer));
    let mut problem = None;
    for issuer in &issuers {
        match server_metadata(issuer, named).await {
            Ok(Some(server)) => return Ok(Some(Discovered { server, resource, scopes })),
            Ok(None) => {}
            Err(reason) => problem = problem.or(Some(reason)),
        }
    }
    match problem {
        Some(problem) => Err(problem),
        None => Ok(None),
    }
}

/// The resource's metadata, from the URL in the challenge or else from the well-known places.
async fn resource_metadata(
    server: &Uri,
    challenge: &Challenge,
    own: &Gate,
    named: &Gate,
) -> Result<Option<ResourceMetadata>, String> {
    if let Some(place) = &challenge.resource_metadata {
        let is_own = place.parse().is_ok_and(|place| same_origin(&place, server));
        let gate = if is_own { own } else { named };
        let refused =
            |why| format!("its metadata is said to be at {}, where it is not read: {why}", shown(place));
        let uri = safe(place, gate.reach).map_err(refused)?;
        let metadata = ask::get(gate, &uri).await?;
        return metadata.map(Some).ok_or_else(|| format!("its metadata is not at {uri}, as it says"));
    }
    for uri in resource_places(server) {
        if let Some(metadata) = ask::get(own, &uri).await? {
            return Ok(Some(metadata));
        }
    }
    Ok(None)
}

/// The metadata of an authorization server; `None` if it publishes none.
async fn server_metadata(issuer: &str, gate: &Gate) -> Result<Option<ServerMetadata>, String> {
    let uri = safe(issuer, gate.reach)
        .map_err(|why| format!("its authorization server {} is not asked: {why}", shown(issuer)))?;
    let mut problem = None;
    for place in server_places(&uri) {
        let Some(metadata) = ask::get::<ServerMetadata>(gate, &place).await? else { continue };
        match metadata.check(issuer, gate.reach) {
            Ok(metadata) => return Ok(Some(metadata)),
            Err(reason) => problem = Some(reason),
        }
    }
    match problem {
        Some(problem) => Err(problem),
        None => Ok(None),
    }
}

impl ServerMetadata {
    /// Returns the metadata if it belongs to this issuer and can be used.
    fn check(self, issuer: &str, reach: Reach) -> Result<Self, String> {
        if self.issuer != issuer {
            return Err(format!(
                "the metadata of its authorization server {} says that it is {}, so it is not used",
                shown(issuer),
                shown(&self.issuer)
            ));
        }
        let endpoints = [
            Some(&self.authorization_endpoint),
            Some(&self.token_endpoint),
            self.registration_endpoint.as_ref(),
        ];
        for endpoint in endpoints.into_iter().flatten() {
            safe(endpoint, reach).map_err(|why| {
                format!("its authorization server {issuer} has the endpoint `{}`: {why}", shown(endpoint))
            })?;
        }
        let methods = self.code_challenge_methods_supported.as_deref().unwrap_or_default();
        if !methods.iter().any(|method| method == "S256") {
            return Err(format!("its authorization server {issuer} does not say that it knows PKCE (S256)"));
        }
        Ok(self)
    }

    /// Whether the server renews tokens. A server without a list of grant types is assumed to.
    pub(super) fn refreshes(&self) -> bool {
        self.grant_types_supported.as_ref().is_none_or(|types| types.iter().any(|one| one == "refresh_token"))
    }
}

/// The possible URLs of a resource's metadata: for its path, then for the whole host.
fn resource_places(server: &Uri) -> Vec<Uri> {
    const PLACE: &str = "/.well-known/oauth-protected-resource";
    let path = server.path().trim_end_matches('/');
    let mut places = vec![place(server, &format!("{PLACE}{path}"))];
    if !path.is_empty() {
        places.push(place(server, PLACE));
    }
    places.into_iter().flatten().collect()
}

/// The possible URLs of an authorization server's metadata, in the order in which they are tried.
fn server_places(issuer: &Uri) -> Vec<Uri> {
    const OAUTH: &str = "/.well-known/oauth-authorization-server";
    const OPENID: &str = "/.well-known/openid-configuration";
    let path = issuer.path().trim_end_matches('/');
    let mut places =
        vec![place(issuer, &format!("{OAUTH}{path}")), place(issuer, &format!("{OPENID}{path}"))];
    if !path.is_empty() {
        places.push(place(issuer, &format!("{path}{OPENID}")));
    }
    places.into_iter().flatten().collect()
}

fn place(base: &Uri, path: &str) -> Option<Uri> {
    format!("{}{path}", origin(base)).parse().ok()
}

/// Parses a URL that the server named, if we may contact it.
fn safe(url: &str, reach: Reach) -> Result<Uri, String> {
    let uri: Uri = url.parse().map_err(|_| "that is not a URL".to_owned())?;
    reach.check(&uri).map_err(|refused| refused.to_string())?;
    Ok(uri)
}

/// Whether a token for the resource is valid for this MCP server: the hosts are equal, and the resource's
/// path is the server's or one above it.
fn covers(resource: &str, server: &Uri) -> bool {
    let Ok(resource) = resource.parse::<Uri>() else { return false };
    let path = resource.path().trim_end_matches('/');
    let below = server.path().strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    resource.authority().is_some() && same_origin(&resource, server) && below
}

/// The identifier of an MCP server that does not name its own.
pub(super) fn canonical(server: &Uri) -> String {
    format!("{}{}", origin(server), server.path().trim_end_matches('/'))
}

/// Foreign text, shortened and on one line.
pub(super) fn shown(text: &str) -> String {
    plain(&text.chars().take(200).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn metadata_is_looked_for_in_order() {
        for (server, expected) in [
            ("https://h/", &["https://h/.well-known/oauth-protected-resource"][..]),
            (
                "https://h:8443/a/mcp?x=1",
                &[
                    "https://h:8443/.well-known/oauth-protected-resource/a/mcp",
                    "https://h:8443/.well-known/oauth-protected-resource",
                ],
            ),
        ] {
            assert_eq!(resource_places(&uri(server)), expected);
        }
        for (issuer, expected) in [
            (
                "https://h",
                &[
                    "https://h/.well-known/oauth-authorization-server",
                    "https://h/.well-known/openid-configuration",
                ][..],
            ),
            (
                "https://h/tenant1",
                &[
                    "https://h/.well-known/oauth-authorization-server/tenant1",
                    "https://h/.well-known/openid-configuration/tenant1",
                    "https://h/tenant1/.well-known/openid-configuration",
                ],
            ),
        ] {
            assert_eq!(server_places(&uri(issuer)), expected);
        }
    }

    #[test]
    fn a_resource_covers_what_is_below_it() {
        for (resource, server, expected) in [
            ("https://h/mcp", "https://h/mcp", true),
            ("https://H:443/mcp/", "https://h/mcp", true),
            ("https://h", "https://h/mcp", true),
            ("https://h/mcp", "https://h/mcp/x?y", true),
            ("https://h/mc", "https://h/mcp", false),
            ("https://h/mcp/x", "https://h/mcp", false),
            ("https://evil/mcp", "https://h/mcp", false),
            ("http://h/mcp", "https://h/mcp", false),
            ("/mcp", "https://h/mcp", false),
        ] {
            assert_eq!(covers(resource, &uri(server)), expected, "{resource} {server}");
        }
        assert_eq!(canonical(&uri("https://h/")), "https://h");
        assert_eq!(canonical(&uri("https://h/mcp/?key=1")), "https://h/mcp");
    }

    #[test]
    fn only_safe_endpoints_of_the_right_server_are_used() {
        let good = ServerMetadata {
            issuer: "https://as".into(),
            authorization_endpoint: "https://as/authorize".into(),
            token_endpoint: "https://tokens.as:1/token".into(),
            code_challenge_methods_supported: Some(vec!["plain".into(), "S256".into()]),
            ..ServerMetadata::default()
        };
        for reach in [Reach::NamedHere, Reach::NamedElsewhere] {
            assert!(good.clone().check("https://as", reach).is_ok());
        }
        let check = |change: &dyn Fn(&mut ServerMetadata), reach| {
            let mut metadata = good.clone();
            change(&mut metadata);
            metadata.check("https://as", reach).err().unwrap_or_default()
        };
        for (wrong, change) in [
            ("says that it is https://as/", (|m| m.issuer.push('/')) as fn(&mut ServerMetadata)),
            ("PKCE", |m| m.code_challenge_methods_supported = None),
            ("PKCE", |m| m.code_challenge_methods_supported = Some(vec!["plain".into()])),
        ] {
            let reason = check(&change, Reach::NamedHere);
            assert!(reason.contains(wrong), "{reason}");
        }
        let endpoints = [
            (|m, url| m.authorization_endpoint = url) as fn(&mut ServerMetadata, String),
            |m, url| m.token_endpoint = url,
            |m, url| m.registration_endpoint = Some(url),
        ];
        for (url, here, elsewhere) in [
            ("http://as/x", "as is neither", "as is neither"),
            ("http://127.evil.example/x", "127.evil.example is neither", "127.evil.example is neither"),
            ("javascript:alert(1)", "not begin with https://", "not begin with https://"),
            ("javascript://as/%0aalert(1)", "does not begin with https://", "does not begin with https://"),
            ("file:///x", "not a URL", "not a URL"),
            ("https://u:p@as/", "credentials", "credentials"),
            ("", "not a URL", "not a URL"),
            ("http://localhost:1/x", "", "localhost is a loopback name"),
            ("https://127.0.0.1/x", "", "127.0.0.1 is a loopback address"),
            ("https://192.168.0.1/x", "", "192.168.0.1 is a private address"),
            ("https://0x7f.1/x", "", "0x7f.1 is not a host name"),
        ] {
            for set in endpoints {
                for (expected, reach) in [(here, Reach::NamedHere), (elsewhere, Reach::NamedElsewhere)] {
                    let reason = check(&|metadata| set(metadata, url.into()), reach);
                    let named = reason.contains(&format!("the endpoint `{url}`")) || expected.is_empty();
                    assert!(named && reason.contains(expected), "{url} {reach:?}: {reason}");
                    assert_eq!(reason.is_empty(), expected.is_empty(), "{url} {reach:?}: {reason}");
                }
            }
        }
    }
}
