//! The authorizers that hold the tokens for servers behind URLs. The engine asks for the authorizer of each
//! HTTP upstream; servers with the same URL and settings share one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::Http;
use crate::memory::credentials::{Afresh, Credentials};
use crate::transport::http_client::Authorities;
use crate::transport::oauth::{self, Authorizer};

/// Whether there is a person who could log in to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attendance {
    /// Nobody could log in.
    Nobody,
    /// Somebody could log in if no login is stored.
    Somebody,
    /// Somebody wants to log in again. The stored login is kept until the new one has succeeded.
    Anew,
}

/// The authorizers of a gateway.
pub(super) struct Logins {
    /// The state directory in which logins are stored, if they are.
    state: Option<PathBuf>,
    attendance: Attendance,
    /// The authorizers by URL, login settings and whose certificates are accepted.
    authorizers: Mutex<HashMap<(String, oauth::Settings, Authorities), Arc<Authorizer>>>,
}

impl Logins {
    pub(super) fn new(state: Option<PathBuf>, attendance: Attendance) -> Self {
        Self { state, attendance, authorizers: Mutex::default() }
    }

    /// The authorizer for a server; `None` if the file configures credentials or disables logins. `on_login`
    /// is called with the URL after every successful login.
    pub(super) fn authorizer(
        &self,
        http: &Http,
        authorities: Authorities,
        on_login: impl Fn(&str) + Send + Sync + 'static,
    ) -> Option<Arc<Authorizer>> {
        let wanted = http.oauth.as_ref().filter(|_| !http.has_credentials())?;
        let settings = oauth::Settings {
            client_id: wanted.client_id.clone(),
            client_secret: wanted.client_secret.as_ref().map(|secret| secret.expose().to_owned()),
            client_metadata_url: wanted.client_metadata_url.clone(),
            scope: wanted.scope.clone(),
            callback_port: wanted.callback_port,
        };
        let key = (http.url.clone(), settings, authorities);
        let mut authorizers = self.authorizers.lock();
        if let Some(authorizer) = authorizers.get(&key) {
            return Some(authorizer.clone());
        }
        let memory = self.credentials(http).map(|credentials| match self.attendance {
            Attendance::Anew => Box::new(Afresh(credentials)) as Box<dyn oauth::Memory>,
            Attendance::Nobody | Attendance::Somebody => Box::new(credentials),
        });
        let url = http.url.clone();
        let on_login = move || on_login(&url);
        let attended = self.attendance != Attendance::Nobody;
        let authorizer =
            Authorizer::new(&http.url, key.1.clone(), memory, attended, key.2.clone(), on_login)?;
        authorizers.insert(key, authorizer.clone());
        Some(authorizer)
    }

    /// The store for the login to a server; `None` if the server needs no login or logins are not stored.
    pub(super) fn credentials(&self, http: &Http) -> Option<Credentials> {
        let wanted = http.oauth.as_ref().filter(|_| !http.has_credentials())?;
        Some(Credentials::new(self.state.as_ref()?, &http.url, wanted.client_id.as_deref()))
    }
}
