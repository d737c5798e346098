//! Top-level settings that both faces have.

use super::detect::secrets_of_url;
use super::read::{At, Table, suggestion};
use super::{
    ByteLimit, Common, Daemon, Inputs, Journal, KeptArguments, LockRule, NameRule, Naming, Redactor, Secret,
    Serving, StoreAddress, Token, server,
};
use crate::text::percent::decode;
use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;

const MIB: usize = 1 << 20;
const MEGABYTE: u64 = 1_000_000;

/// The least number of bytes for `offloadOver`: what stands in the place of a result has to fit.
pub const LEAST_OFFLOADED: usize = 4000;

pub(super) const AUTH_KEYS: [&str; 1] = ["tokens"];

/// The keys of a token, besides the one for what it opens.
pub(super) const TOKEN_KEYS: [&str; 2] = ["name", "token"];

/// Reads the settings except `search`, which each face reads for itself. `groups` are the names that a
/// token's `scope` key (`toolboxes` or `namespaces`) may hold.
pub(super) fn common(root: &Table<'_>, scope: &str, groups: &[&str]) -> Common {
    let rule = |at: &At<'_>| at.one_of(&[("safe", NameRule::Safe), ("exact", NameRule::Exact)]);
    let whole = |key, least, default| root.get(key).and_then(|at| at.whole(least)).unwrap_or(default);
    let seconds = |key, default| root.get(key).and_then(At::seconds).unwrap_or(Duration::from_secs(default));
    Common {
        naming: Naming {
            rule: root.get("names").and_then(rule).unwrap_or(NameRule::Safe),
            max_length: root.get("maxNameLength").and_then(|at| at.whole(10)),
            entry: None,
        },
        max_message_bytes: whole("maxMessageBytes", 1, 16 * MIB),
        question_timeout: seconds("questionTimeout", 300),
        running: server::running(root),
        lock: root.get("lock").and_then(lock).unwrap_or(LockRule::IfThere),
        approved: None,
        offload_over: offload_over(root).unwrap_or(ByteLimit::None),
        serving: Serving {
            session_idle_timeout: seconds("sessionIdleTimeout", 30 * 60),
            max_body_bytes: whole("maxBodyBytes", 1, 4 * MIB),
            state_keys: root.get("stateKey").map(state_keys).unwrap_or_default(),
            store: store(root),
            tokens: root.get("auth").map(|auth| tokens(auth, scope, groups)).unwrap_or_default(),
        },
        daemon: daemon(root),
        journal: journal(root),
        // The secrets are known only when the whole file has been read.
        secrets: Redactor::default(),
    }
}

fn journal(root: &Table<'_>) -> Journal {
    let kept = |at: &At<'_>| {
        at.one_of(&[
            ("off", KeptArguments::Off),
            ("keys", KeptArguments::Keys),
            ("full", KeptArguments::Full),
        ])
    };
    let usual = Journal::default();
    Journal {
        on: root.get("journal").and_then(At::boolean).unwrap_or(usual.on),
        arguments: root.get("journalArguments").and_then(kept).unwrap_or(usual.arguments),
        limit: root
            .get("journalLimit")
            .and_then(|at| at.whole(1))
            .map_or(usual.limit, |megabytes| (megabytes as u64).saturating_mul(MEGABYTE)),
    }
}

fn daemon(root: &Table<'_>) -> Daemon {
    let seconds =
        |key, default| root.get(key).and_then(At::seconds_or_none).unwrap_or(Duration::from_secs(default));
    Daemon {
        on: root.get("daemon").and_then(At::boolean).unwrap_or(false),
        linger: seconds("linger", 60),
        daemon_linger: seconds("daemonLinger", 600),
    }
}

/// How long results may be before they are kept, if the file says so here: at its top level or in a server's entry.
pub(super) fn offload_over(table: &Table<'_>) -> Option<ByteLimit> {
    let read = |at: &At<'_>| {
        byte_limit(at, LEAST_OFFLOADED, "0 switches it off; a smaller limit has no room for the notice")
    };
    table.get("offloadOver").and_then(read)
}

/// Reads `"auto"`, 0 for no limit, or a number of bytes that is at least `least`.
pub(super) fn byte_limit(at: &At<'_>, least: usize, hint: &str) -> Option<ByteLimit> {
    if at.spelled().is_none() {
        return at.one_of(&[("auto", ByteLimit::Auto)]);
    }
    match at.whole(0)? {
        0 => Some(ByteLimit::None),
        bytes if bytes >= least => Some(ByteLimit::Bytes(bytes)),
        _ => {
            at.expected(&format!("`\"auto\"`, 0 or a whole number of at least {least}"), hint);
            None
        }
    }
}

/// Whether servers whose variables are not set are skipped.
pub(super) fn skips_missing(root: &Table<'_>, inputs: &Inputs<'_>) -> bool {
    let said = root.get("onMissingVariable").and_then(|at| at.one_of(&[("error", false), ("skip", true)]));
    inputs.skip_missing || said.unwrap_or(false)
}

fn lock(at: &At<'_>) -> Option<LockRule> {
    at.one_of(&[("enforce", LockRule::Enforce), ("warn", LockRule::Warn), ("off", LockRule::Off)])
}

/// One key, or a list of them for a time of rotation.
fn state_keys(at: &At<'_>) -> Vec<Secret> {
    if !at.is_list() {
        return state_key(at).into_iter().collect();
    }
    let keys = at.list().unwrap_or_default();
    if keys.is_empty() {
        at.error("the list of state keys is empty", "write one key into it, or remove it");
    }
    keys.iter().filter_map(state_key).collect()
}

fn state_key(at: &At<'_>) -> Option<Secret> {
    let key = at.string()?;
    at.report.secret(key, "stateKey");
    if key.len() < 32 {
        at.error(
            format!("a state key needs at least 32 bytes; this one has {}", key.len()),
            "generate one, for example with `openssl rand -hex 32`",
        );
        return None;
    }
    Some(Secret::new(key))
}

/// The schemes of a store's URL.
const STORE_SCHEMES: [&str; 5] = ["redis://", "valkey://", "rediss://", "valkeys://", "unix://"];

/// The characters that a prefix may have besides letters and digits.
const PREFIX_MARKS: &[u8] = b"._-";

fn store(root: &Table<'_>) -> Option<StoreAddress> {
    let prefix = root.get("storePrefix").map(store_prefix);
    let at = root.get("store")?.hidden();
    let url = at.string()?;
    for (start, end, name) in secrets_of_url(url) {
        at.report.secret(&url[start..end], &name);
        at.report.secret(&String::from_utf8_lossy(&decode(&url[start..end])), &name);
    }
    let hint =
        "such as `redis://user:${PASSWORD}@host:6379/0`; `rediss://` is with TLS, `unix:///path` a socket";
    if !STORE_SCHEMES.iter().any(|scheme| url.starts_with(scheme)) || url.contains('#') {
        at.error("this is not the URL of a Valkey or Redis server", hint);
        return None;
    }
    let Ok(found) = redis::IntoConnectionInfo::into_connection_info(url) else {
        at.error("the URL of the store cannot be read; user and password are percent-encoded", hint);
        return None;
    };
    let shown = found.addr().to_string();
    let prefix = prefix.unwrap_or_else(|| Some("default".to_owned()))?;
    Some(StoreAddress { url: Secret::new(url), shown, prefix })
}

fn store_prefix(at: &At<'_>) -> Option<String> {
    let prefix = at.string()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || PREFIX_MARKS.contains(&byte);
    if !(1..=64).contains(&prefix.len()) || !prefix.bytes().all(fits) {
        at.error("a prefix has 1 to 64 letters, digits, `.`, `_` and `-`", "choose another name");
        return None;
    }
    Some(prefix.to_owned())
}

fn tokens(auth: &At<'_>, scope: &str, groups: &[&str]) -> Vec<Token> {
    let Some(table) = auth.table() else { return Vec::new() };
    table.refuse_unknown(&AUTH_KEYS, &[]);
    let Some(list) = table.get("tokens") else {
        auth.key_error("`auth` has no `tokens`", "add `tokens`, or remove `auth`");
        return Vec::new();
    };
    let mut tokens: Vec<Token> = Vec::new();
    let groups =
        Groups { names: groups, known: groups.iter().copied().collect(), left: Cell::new(MOST_COMPARED) };
    let (mut names, mut secrets) = (HashSet::new(), HashSet::new());
    for item in list.list().unwrap_or_default() {
        let Some(token) = token(&item, scope, &groups) else { continue };
        if !names.insert(token.name.clone()) {
            item.error(format!("two tokens are named `{}`", token.name), "give each token a name of its own");
        }
        if !secrets.insert(token.token.expose().to_owned()) {
            item.error(
                format!("the token `{}` is the same as an earlier one", token.name),
                "give each name a token of its own",
            );
        }
        tokens.push(token);
    }
    tokens
}

/// The names that the scope of a token may hold.
struct Groups<'g> {
    /// The names in the order of the file.
    names: &'g [&'g str],
    known: HashSet<&'g str>,
    /// How many more names may be compared with wrong ones.
    left: Cell<usize>,
}

/// The most names that are compared with wrong ones in all. If both are many, not every wrong name gets a
/// suggestion.
const MOST_COMPARED: usize = 10_000;

fn token(item: &At<'_>, scope: &str, groups: &Groups<'_>) -> Option<Token> {
    let table = item.table()?;
    table.refuse_unknown(&[&TOKEN_KEYS[..], &[scope]].concat(), &[]);
    for key in TOKEN_KEYS {
        if table.get(key).is_none() {
            item.error(format!("`{key}` is missing"), format!("add `{key}`"));
        }
    }
    let name = table.get("name").and_then(filled);
    let token = table.get("token").and_then(filled);
    if let Some(token) = &token {
        item.report.secret(token, name.as_deref().unwrap_or("token"));
    }
    let scope = table.get(scope).map(|at| {
        let names = at.list().unwrap_or_default();
        names.iter().filter_map(|name| group(name, groups)).collect()
    });
    Some(Token { name: name?, token: Secret::new(token?), scope })
}

/// A string that is not blank, without the white space around it.
fn filled(at: &At<'_>) -> Option<String> {
    let value = at.string()?.trim();
    if value.is_empty() {
        at.error(format!("`{}` is empty", at.key), "give it a value, or remove the entry");
        return None;
    }
    Some(value.to_owned())
}

fn group(at: &At<'_>, groups: &Groups<'_>) -> Option<String> {
    let name = at.string()?;
    if !groups.known.contains(name) {
        let shown = at.text().map(|text| text.raw.as_str()).unwrap_or_default();
        let left = groups.left.get().checked_sub(groups.names.len());
        groups.left.set(left.unwrap_or(0));
        let hint =
            left.map_or_else(|| "correct or remove it".to_owned(), |_| suggestion(shown, groups.names));
        at.error(format!("`{shown}` is not configured in this file"), hint);
        return None;
    }
    Some(name.to_owned())
}
