//! The key `oauth`, which says how we log in to a server behind a URL if it requires that.

use super::entry::LOGIN_KEYS;
use super::node::Kind;
use super::read::{At, nearest};
use super::report::Spelling;
use super::{OAuth, Secret};

/// Reads the key; `Some(None)` stands for `false`, which disables logins. Files that other clients read as
/// well may have further keys.
pub(super) fn oauth(at: &At<'_>) -> Option<Option<OAuth>> {
    if let Kind::Boolean(wanted) = at.node.kind {
        return Some(wanted.then(OAuth::default));
    }
    let table = at.table()?;
    match at.report.spelling {
        Spelling::Snake => drop(table.refuse_unknown(&LOGIN_KEYS, &[])),
        Spelling::Camel => {
            for entry in table.unknown(&LOGIN_KEYS) {
                let hint = match nearest(entry.key, &LOGIN_KEYS) {
                    Some(key) => format!("did you mean `{key}`?"),
                    None => "it has no effect here; the gateway finds out what the server needs".to_owned(),
                };
                entry.key_warning(format!("unknown key `{}` is ignored", entry.key), hint);
            }
        }
    }
    let scopes = table.synonyms(["scope", "scopes"]);
    if let [_, second, ..] = scopes[..] {
        second.key_error("`scope` and `scopes` mean the same", "keep one of the two");
    }
    let read = OAuth {
        client_id: table.get("clientId").and_then(filled),
        client_secret: table.get("clientSecret").and_then(filled).map(Secret::new),
        client_metadata_url: table.get("clientMetadataUrl").and_then(document),
        scope: scopes.first().and_then(|at| scope(at)),
        callback_port: table.get("callbackPort").and_then(port),
    };
    if let Some(secret) = &read.client_secret {
        at.report.secret(secret.expose(), "clientSecret");
    }
    if let Some(secret) = table.get("clientSecret").filter(|_| table.get("clientId").is_none()) {
        secret.key_error(
            format!("`{}` needs the `{}` that it belongs to", secret.key, at.report.spelled("clientId")),
            "add it, or remove the secret",
        );
    }
    Some(Some(read))
}

fn filled(at: &At<'_>) -> Option<String> {
    let text = at.string()?.trim();
    if text.is_empty() {
        at.error("the value is blank", "fill it in, or remove the key");
        return None;
    }
    Some(text.to_owned())
}

/// The URL of a client metadata document, which is also the client's id.
fn document(at: &At<'_>) -> Option<String> {
    let url = at.string()?;
    let path = url.strip_prefix("https://").and_then(|rest| rest.split_once('/'));
    if !path.is_some_and(|(host, path)| !host.is_empty() && !path.is_empty())
        || url.contains(char::is_whitespace)
    {
        at.expected("a URL with `https://`, a host and a path", "such as `https://example.org/client.json`");
        return None;
    }
    Some(url.to_owned())
}

/// The scopes, as one text with spaces or as a list.
fn scope(at: &At<'_>) -> Option<String> {
    match at.node.kind {
        Kind::List(_) => at.strings().map(|scopes| scopes.join(" ")),
        _ => at.string().map(str::to_owned),
    }
}

fn port(at: &At<'_>) -> Option<u16> {
    let port = at.whole(1)?;
    let fits = u16::try_from(port).ok();
    if fits.is_none() {
        at.expected("a port", "the largest possible value is 65535");
    }
    fits
}
