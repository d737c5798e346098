//! The resources that one legacy client watches. Modern clients listen instead, which [`modern`](super::modern)
//! keeps.

use parking_lot::Mutex;

use super::upstream::Upstream;
use super::view::{Origin, View};
use crate::hash::HashMap;

/// The exposed URIs that a client subscribed to, each with the server it leads to and the URI there.
#[derive(Default)]
pub struct Subscriptions(Mutex<HashMap<String, (Origin, String)>>);

impl Subscriptions {
    /// Whether the client is subscribed to an exposed URI.
    pub fn has(&self, uri: &str) -> bool {
        self.0.lock().contains_key(uri)
    }

    /// Notes that the client is subscribed to an exposed URI, which is `own` at the upstream; `false`: it was
    /// already.
    pub fn add(&self, uri: &str, upstream: &Upstream, own: &str) -> bool {
        let origin = (upstream.group.clone(), upstream.server.clone());
        self.0.lock().insert(uri.to_owned(), (origin, own.to_owned())).is_none()
    }

    /// Notes that the client is no longer subscribed to an exposed URI; `false`: it was not.
    pub fn remove(&self, uri: &str) -> bool {
        self.0.lock().remove(uri).is_some()
    }

    /// The exposed URIs that the client is subscribed to, in order.
    pub(super) fn uris(&self) -> Vec<String> {
        let mut uris: Vec<_> = self.0.lock().keys().cloned().collect();
        uris.sort_unstable();
        uris
    }

    /// Ends the subscriptions that lead to a server. Returns their URIs at that server.
    pub(super) fn end_at(&self, group: &str, server: &str) -> Vec<String> {
        let mut subscriptions = self.0.lock();
        let ended = subscriptions.extract_if(|_, ((to, at), _)| **to == *group && **at == *server);
        ended.map(|(_, (_, own))| own).collect()
    }

    /// Ends the subscriptions that lead to servers which are no longer in the view.
    pub fn end_lost(&self, view: &View) {
        self.0.lock().retain(|_, ((group, server), _)| view.server(group, server).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_end_with_their_own_server() {
        let subscriptions = Subscriptions::default();
        for (group, server) in [("box", "a"), ("box", "b"), ("other", "a")] {
            subscriptions.add(&format!("{group}/{server}"), &Upstream::unreal(group, server), server);
        }
        assert_eq!(subscriptions.end_at("box", "a"), ["a"]);
        for (uri, expected) in [("box/a", false), ("box/b", true), ("other/a", true)] {
            assert_eq!(subscriptions.has(uri), expected, "{uri}");
        }
    }
}
