//! Who comes into the console: by `Host`, `Origin` and `Sec-Fetch-Site`, and by a token or, where there are none,
//! by the key. [`Console`](super::Console) asks at every request, and a stream asks again while it lasts.
//!
//! Invariant: a page of another origin gets nothing that it could not guess. The port is part of an origin here:
//! whoever runs on another port of this machine is a stranger.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{StatusCode, Uri};
use subtle::ConstantTimeEq;

use super::super::http::{Guard, Rules, authenticate, bearer, single};
use crate::config::Token;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The bytes of a key.
const KEY_BYTES: usize = 16;

/// The key of this user's consoles, which outlives them, so that a restart locks nobody out.
#[derive(Clone)]
pub struct KeyFile(PathBuf);

impl KeyFile {
    /// The key in the directory for what programs remember about a user. It is made if there is none.
    pub fn of(state: &Path) -> io::Result<Self> {
        let path = state.join("mcp-workbench").join("console.key");
        fs::create_dir_all(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&path) {
            Ok(mut file) => {
                let mut bytes = [0; KEY_BYTES];
                getrandom::fill(&mut bytes).map_err(io::Error::other)?;
                file.write_all(hex(&bytes).as_bytes())?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let key = Self(path);
        match key.read() {
            Some(_) => Ok(key),
            None => Err(io::Error::other(format!("{} holds no key; delete it", key.0.display()))),
        }
    }

    /// The key; `None` if somebody has revoked it by deleting the file.
    pub fn read(&self) -> Option<String> {
        let text = fs::read_to_string(&self.0).ok()?;
        let key = text.trim();
        let is_key = key.len() == 2 * KEY_BYTES && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_key.then(|| key.to_owned())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decides who comes in.
pub struct Door {
    guard: Guard,
    rules: Arc<Rules>,
    key: KeyFile,
    /// Whether nobody can connect from another machine.
    loopback: bool,
}

/// What somebody who was let in may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// The groups; `None` means all of them.
    pub groups: Option<Vec<String>>,
    /// The name of the token; empty if it was the key.
    pub principal: String,
}

impl Pass {
    /// Whether something of this group may be seen.
    pub fn admits(&self, group: &str) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.iter().any(|own| own == group))
    }
}

impl Door {
    /// The door of a server that listens there, and that may be called by these further names.
    pub fn new(bound: SocketAddr, allow_host: &[String], rules: Arc<Rules>, key: KeyFile) -> Self {
        Self { guard: Guard::new(bound, allow_host, &[]), rules, key, loopback: bound.ip().is_loopback() }
    }

    /// Whether tokens are asked for, and not the key.
    pub fn asks_for_tokens(&self) -> bool {
        !self.loopback || !self.rules.tokens().is_empty()
    }

    /// The key that lets people in; `None` where tokens do.
    pub fn key(&self) -> Option<String> {
        self.key.read().filter(|_| !self.asks_for_tokens())
    }

    /// Refuses whoever calls us by a name that is not ours.
    pub(super) fn check_host(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), (StatusCode, &'static str)> {
        self.guard.admit_host(uri, headers).map(drop)
    }

    /// Refuses pages of other origins.
    pub(super) fn check_origin(&self, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        let same_site = match single(headers, &FETCH_SITE) {
            Ok(site) => site.is_none_or(|site| site == "same-origin"),
            Err(_) => false,
        };
        let host = single(headers, &header::HOST).ok().flatten().unwrap_or_default();
        let same_origin = match single(headers, &header::ORIGIN) {
            Ok(None) => true,
            Ok(Some(origin)) => {
                let rest = origin.strip_prefix("http://");
                let rest =
                    rest.or_else(|| origin.strip_prefix("https://").filter(|_| self.asks_for_tokens()));
                rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
            }
            Err(_) => false,
        };
        match same_site && same_origin {
            true => Ok(()),
            false => Err((StatusCode::FORBIDDEN, "the console answers its own pages only")),
        }
    }

    /// What the bearer of these headers may see; `None` without a valid key or token.
    pub(super) fn pass(&self, headers: &HeaderMap) -> Option<Pass> {
        if self.asks_for_tokens() {
            let token: Arc<Token> = authenticate(&self.rules.tokens(), headers).ok()?;
            return Some(Pass { groups: token.scope.clone(), principal: token.name.clone() });
        }
        let key = self.key.read()?;
        let given = bearer(headers)?;
        bool::from(key.as_bytes().ct_eq(given.as_bytes()))
            .then(|| Pass { groups: None, principal: String::new() })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Secret, Serving};

    /// A door, and the directory of its key.
    pub(in super::super) fn door(name: &str, tokens: Vec<Token>) -> (Door, PathBuf) {
        let state = std::env::temp_dir().join(format!("mcp-workbench-{name}-{}", std::process::id()));
        let serving = Serving {
            session_idle_timeout: Duration::MAX,
            max_body_bytes: 1,
            state_keys: Vec::new(),
            store: None,
            tokens,
        };
        let bound = "127.0.0.1:8850".parse().expect("an address");
        let key = KeyFile::of(&state).expect("the temporary directory is writable");
        (Door::new(bound, &["gateway.example".to_owned()], Rules::new(&serving, None), key), state)
    }

    pub(in super::super) fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let token = |scope| Token { name: "t".to_owned(), token: Secret::new("secret"), scope };
        let (open, state) = door("door-origins", Vec::new());
        let (guarded, other) = door("door-origins-tokens", vec![token(None)]);
        for (lines, without, with) in [
            (&[][..], true, true),
            (&[("origin", "http://127.0.0.1:8850")], true, true),
            (&[("origin", "https://127.0.0.1:8850")], false, true),
            (&[("origin", "http://127.0.0.1:8851")], false, false),
            (&[("origin", "http://127.0.0.1")], false, false),
            (&[("origin", "http://localhost:8850")], false, false),
            (&[("origin", "null")], false, false),
            (&[("origin", "http://127.0.0.1:8850"), ("origin", "http://127.0.0.1:8850")], false, false),
            (&[("sec-fetch-site", "same-origin")], true, true),
            (&[("sec-fetch-site", "same-site")], false, false),
            (&[("sec-fetch-site", "cross-site")], false, false),
            (&[("sec-fetch-site", "none")], false, false),
        ] {
            let mut headers = headers(lines);
            headers.insert("host", "127.0.0.1:8850".parse().expect("a value"));
            assert_eq!(open.check_origin(&headers).is_ok(), without, "{lines:?}");
            assert_eq!(guarded.check_origin(&headers).is_ok(), with, "{lines:?}");
        }
        for (host, expected) in [
            ("127.0.0.1:8850", true),
            ("localhost:8850", true),
            ("gateway.example", true),
            ("rebound.example:8850", false),
        ] {
            let uri = Uri::from_static("/console");
            assert_eq!(open.check_host(&uri, &headers(&[("host", host)])).is_ok(), expected, "{host}");
        }
        for state in [state, other] {
            fs::remove_dir_all(state).expect("it was made above");
        }
    }

    #[test]
    fn a_key_lasts_until_its_file_is_deleted_and_counts_for_nothing_beside_tokens() {
        let (open, state) = door("door-key", Vec::new());
        let key = open.key().expect("there are no tokens");
        assert_eq!(key.len(), 32);
        let again = KeyFile::of(&state).expect("it is there").read();
        assert_eq!(again.as_ref(), Some(&key), "it is made once");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&open.key.0).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let scoped =
            Token { name: "t".to_owned(), token: Secret::new("secret"), scope: Some(vec!["dev".into()]) };
        let (guarded, other) = door("door-key-tokens", vec![scoped]);
        let bearer = |given: &str| headers(&[("authorization", &format!("Bearer {given}"))]);
        assert_eq!(open.pass(&bearer(&key)), Some(Pass { groups: None, principal: String::new() }));
        for wrong in ["", "x", &key[1..], &format!("{key}0"), "secret"] {
            assert_eq!(open.pass(&bearer(wrong)), None, "{wrong}");
        }
        assert_eq!(open.pass(&HeaderMap::new()), None);
        let others_key = KeyFile::of(&other).expect("it is there").read().expect("it is whole");
        assert_eq!((guarded.key(), guarded.pass(&bearer(&others_key))), (None, None));
        let pass = guarded.pass(&bearer("secret")).expect("a token");
        assert!(pass.admits("dev") && !pass.admits("ops"));
        fs::remove_file(&open.key.0).expect("it is there");
        assert_eq!((open.key(), open.pass(&bearer(&key))), (None, None), "it was revoked");
        for state in [state, other] {
            fs::remove_dir_all(state).expect("it was made above");
        }
    }
}
