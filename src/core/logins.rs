//! Who has tokens for servers behind URLs.
//!
//! The engine asks it for the authorizer of each HTTP upstream; servers with the same URL and settings share one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::Http;
use crate::memory::credentials::{Afresh, Credentials};
use crate::transport::oauth::{self, Authorizer};

/// Who is there to log in to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attendance {
    /// Nobody.
    Nobody,
    /// Somebody, where no login is remembered.
    Somebody,
    /// Somebody who wants to log in, whatever is remembered; that stays until the new login has succeeded.
    Anew,
}

/// The authorizers of a gateway.
pub(super) struct Logins {
    /// Where logins are remembered, if they are.
    state: Option<PathBuf>,
    attendance: Attendance,
    /// By URL and what the file says of logins; servers that agree in both share one.
    authorizers: Mutex<HashMap<(String, oauth::Settings), Arc<Authorizer>>>,
}

impl Logins {
    pub(super) fn new(state: Option<PathBuf>, attendance: Attendance) -> Self {
        Self { state, attendance, authorizers: Mutex::default() }
    }

    /// Who has tokens for a server; `None` where the file says who we are, or that we do not log in. `on_login` is called
    /// with the URL when somebody has logged in.
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
        let memory = self.credentials(http).map(|credentials| match self.attendance {
            Attendance::Anew => Box::new(Afresh(credentials)) as Box<dyn oauth::Memory>,
            Attendance::Nobody | Attendance::Somebody => Box::new(credentials),
        });
        let url = http.url.clone();
        let on_login = move || on_login(&url);
        let attended = self.attendance != Attendance::Nobody;
        let authorizer = Authorizer::new(&http.url, key.1.clone(), memory, attended, on_login)?;
        authorizers.insert(key, authorizer.clone());
        Some(authorizer)
    }

    /// Where the login to a server is remembered; `None` where there is none to remember.
    pub(super) fn credentials(&self, http: &Http) -> Option<Credentials> {
        let wanted = http.oauth.as_ref().filter(|_| !http.has_credentials())?;
        Some(Credentials::new(self.state.as_ref()?, &http.url, wanted.client_id.as_deref()))
    }
}
