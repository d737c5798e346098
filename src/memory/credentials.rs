//! Logins to HTTP upstreams, one file per server and client. [`crate::transport::oauth`] loads and saves
//! them.
//!
//! Files are readable by the user only. A file that others can change is ignored, because we send our secrets
//! to whatever it names. File names are digests, so that a directory listing reveals nothing.
//!
//! Invariant: files are replaced whole, and processes that want to renew the same token take turns by a lock
//! file beside it, since many servers accept a refresh token only once.

use std::any::Any;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Once;

use super::replace;
use crate::config::{Access, mend};
use crate::text::digest::Digest;
use crate::transport::oauth::{Grant, Memory};

/// The login to one server.
pub struct Credentials {
    path: PathBuf,
    /// Makes sure that the warning about others' access is logged only once.
    told: Once,
}

impl Credentials {
    /// The login below the state directory for the server at this URL, with this client id if the
    /// configuration names one.
    pub fn new(state: &Path, server: &str, client_id: Option<&str>) -> Self {
        let mut digest = Digest::default();
        digest.eat(server);
        digest.eat(client_id.unwrap_or_default());
        let path = state.join("mcp-workbench").join("credentials").join(format!("{}.json", digest.name()));
        Self { path, told: Once::new() }
    }

    /// The contents of the file, unless others can change it.
    fn read(&self) -> Option<Vec<u8>> {
        let mut file = File::open(&self.path).ok()?;
        let access = Access::of_others(&file.metadata().ok()?);
        let consequence = match access {
            Access::None => "",
            Access::Read => "can be read by other users",
            Access::Write => "can be changed by other users, so the login in it is not used",
        };
        if access != Access::None {
            let path = self.path.display();
            self.told.call_once(|| tracing::warn!("{path} {consequence}; run `{}`", mend(&self.path)));
        }
        let mut bytes = Vec::new();
        (access != Access::Write && file.read_to_end(&mut bytes).is_ok()).then_some(bytes)
    }
}

impl Credentials {
    /// Deletes the login. Returns whether there was one.
    pub fn forget(&self) -> io::Result<bool> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The store for a login that somebody repeats: the stored tokens are ignored, and kept until there are new
/// ones.
pub struct Afresh(pub Credentials);

impl Memory for Afresh {
    fn load(&self) -> Option<Grant> {
        self.0.load().map(|grant| Grant { token: None, ..grant })
    }

    fn save(&self, grant: &Grant) -> io::Result<()> {
        if grant.token.is_none() { Ok(()) } else { self.0.save(grant) }
    }

    fn lock(&self) -> Option<Box<dyn Any + Send>> {
        self.0.lock()
    }
}

impl Memory for Credentials {
    fn load(&self) -> Option<Grant> {
        let grant = serde_json::from_slice(&self.read()?);
        // The error is not logged, because it may quote a token.
        grant.inspect_err(|_| tracing::warn!("{} cannot be used and is ignored", self.path.display())).ok()
    }

    fn save(&self, grant: &Grant) -> io::Result<()> {
        let mut directory = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut directory, 0o700);
        directory.recursive(true).create(self.path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        replace(&self.path, &serde_json::to_vec_pretty(grant).map_err(io::Error::other)?)
    }

    fn lock(&self) -> Option<Box<dyn Any + Send>> {
        let file = File::options().create(true).append(true).open(self.path.with_extension("lock"));
        // If the lock file cannot be created, going on without a lock is better than failing.
        let Ok(file) = file else { return Some(Box::new(())) };
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => None,
            _ => Some(Box::new(file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::oauth::{Method, OauthClient, Token};

    #[test]
    fn what_is_saved_is_loaded_by_the_user_alone() {
        let state = std::env::temp_dir().join(format!("mcp-workbench-credentials-{}", std::process::id()));
        let own = Credentials::new(&state, "https://h/mcp", None);
        assert!(own.load().is_none());
        assert!(own.path.ends_with("credentials/7c1fa926181eb32cfb082f0fca1c6dc4.json"), "{:?}", own.path);
        let client = OauthClient {
            id: "c".into(),
            secret: Some("s".into()),
            method: Method::Basic,
            registered: Some(7),
            doubtful: false,
        };
        let token = Token {
            access: "a".into(),
            refresh: Some("r".into()),
            renew_at: Some(1),
            scope: Some("x".into()),
        };
        let grant = Grant {
            issuer: "https://as".into(),
            token_endpoint: "https://as/token".into(),
            resource: "https://h/mcp".into(),
            client,
            scope: "x".into(),
            token: Some(token),
        };
        own.save(&grant).unwrap();
        assert!(own.load() == Some(grant));
        for other in [("https://h/mcp", Some("c")), ("https://h/", None)] {
            assert!(Credentials::new(&state, other.0, other.1).load().is_none());
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&own.path), mode(own.path.parent().unwrap())), (0o600, 0o700));
        }
        let lock = own.lock();
        assert!(lock.is_some() && own.lock().is_none());
        drop(lock);
        assert!(own.lock().is_some());
        fs::write(&own.path, "{\"issuer\":").unwrap();
        assert!(own.load().is_none());
        fs::remove_dir_all(&state).unwrap();
    }
}
