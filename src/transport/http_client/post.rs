//! Documents that are posted to one URL, such as a collector's, again and again.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use tokio::time::timeout;

use super::authorities::Authorities;
use super::body::collect;
use super::connect::Http;
use super::reach::Gate;

/// The largest answer that is read.
const MOST: usize = 256 * 1024;

/// One URL that takes documents.
pub struct Post {
    http: Http,
    uri: Uri,
    headers: HeaderMap,
    patience: Duration,
}

/// Why a document was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotTaken {
    /// The reason for a person.
    pub reason: String,
    /// Whether the same document may be taken later.
    pub is_passing: bool,
}

impl Post {
    /// Sets up what the URL needs. `headers` go with each document, which is taken within `patience` or not at all.
    pub async fn new(uri: Uri, headers: HeaderMap, patience: Duration) -> Result<Self, String> {
        let http = Http::new(&uri, HeaderMap::new(), Gate::configured(Authorities::default())).await?;
        Ok(Self { http, uri, headers, patience })
    }

    /// Posts one document and waits until it is taken.
    pub async fn send(&self, document: Bytes) -> Result<(), NotTaken> {
        let passing = |reason: String| NotTaken { reason, is_passing: true };
        let exchange = async {
            let sent = self.http.send(Method::POST, &self.uri, &self.headers, document).await;
            let response = sent.map_err(|failure| passing(failure.message))?;
            let status = response.status();
            // An answer that is read to its end leaves the connection free for the next document.
            let _ = collect(response.into_body(), MOST).await;
            match status.as_u16() {
                200..=299 => Ok(()),
                code => {
                    let is_passing = matches!(code, 429 | 502 | 503 | 504);
                    Err(NotTaken { reason: format!("it answered HTTP {code}"), is_passing })
                }
            }
        };
        timeout(self.patience, exchange)
            .await
            .unwrap_or_else(|_| Err(passing("it does not answer in time".to_owned())))
    }
}
