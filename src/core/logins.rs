//! The authorizers that hold the tokens for servers behind URLs. The carrier of an HTTP upstream asks for
//! one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::Http;
use crate::memory::credentials::Credentials;
use crate::transport::oauth::{self, Authorizer};

/// The authorizers of a gateway.
pub(super) struct Logins {
    /// The state directory in which logins are stored, if they are.
    state: Option<PathBuf>,
    /// Whether there is a person who could log in.
    attended: bool,
    /// The authorizers by URL and login settings. Servers with the same URL and settings share one.
    authorizers: Mutex<HashMap<(String, oauth::Settings), Arc<Authorizer>>>,
}

impl Logins {
    pub(super) fn new(state: Option<PathBuf>, attended: bool) -> Self {
        Self { state, attended, authorizers: Mutex::default() }
    }

    /// The authorizer for a server; `None` if the file configures credentials or disables logins. `on_login`
    /// is called with the URL after every successful login.
    pub(super) fn authorizer(
        &self,
        http: &Http,
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
        let key = (http.url.clone(), settings);
        let mut authorizers = self.authorizers.lock();
        if let Some(authorizer) = authorizers.get(&key) {
            return Some(authorizer.clone());
        }
        let memory = self.state.as_ref().map(|state| {
            Box::new(Credentials::new(state, &http.url, key.1.client_id.as_deref())) as Box<dyn oauth::Memory>
        });
        let url = http.url.clone();
        let on_login = move || on_login(&url);
        let authorizer = Authorizer::new(&http.url, key.1.clone(), memory, self.attended, on_login)?;
        authorizers.insert(key, authorizer.clone());
        Some(authorizer)
    }
}
