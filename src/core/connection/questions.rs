//! The upstream's open questions to clients: the ids on both sides, and the clients whose calls are paused
//! meanwhile. `relay` asks clients of the same era, `bridge` the others.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Connection;
use crate::core::session::ClientSession;
use crate::hash::HashMap;
use crate::protocol::message::Id;
use crate::transport::peer::Paused;

/// The open questions of an upstream.
///
/// Invariant: a question is recorded before its client is asked, so that an answer and a withdrawal find it.
#[derive(Default)]
pub(in crate::core) struct Questions {
    /// For each id of the upstream, our id towards the client and the client.
    open: Mutex<HashMap<Id, OpenQuestion>>,
    /// The clients that are being asked something.
    pub(super) asked: Arc<Paused>,
}

impl Questions {
    /// Records a question before its client is asked. Returns `false` if another open question has the same
    /// id.
    pub(in crate::core) fn add(&self, id: &Id, ours: u64, session: &Arc<ClientSession>) -> bool {
        match self.open.lock().entry(id.key()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert((ours, session.clone()));
                true
            }
        }
    }

    /// Removes a question that was answered or cancelled, and returns our id and the client.
    pub(in crate::core) fn remove(&self, id: &Id) -> Option<(u64, Arc<ClientSession>)> {
        self.open.lock().remove(&id.key())
    }

    /// Whether any client is being asked something.
    pub(in crate::core) fn any(&self) -> bool {
        !self.open.lock().is_empty() || self.asked.any()
    }

    /// Tells the clients that their answers are no longer needed.
    pub(in crate::core) fn cancel(&self) {
        let open = std::mem::take(&mut *self.open.lock());
        for (ours, session) in open.into_values() {
            if session.peer().forget(ours).is_some() {
                session.peer().send_cancelled(ours, "the server that asked is gone");
            }
        }
    }
}

/// Our id of a question, and the client that was asked.
type OpenQuestion = (u64, Arc<ClientSession>);

/// An open question of an upstream. While it exists, no call from the asked client to this upstream times
/// out; afterwards each call has its full time again.
pub(in crate::core) struct Asking {
    connection: Arc<Connection>,
    client: u64,
}

impl Asking {
    /// Marks the client as asked until the returned value is dropped.
    pub(in crate::core) fn new(connection: &Arc<Connection>, session: &ClientSession) -> Self {
        let client = session.workspace.client;
        connection.questions.asked.add(client);
        Self { connection: connection.clone(), client }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.connection.questions.asked.remove(self.client);
        let is_asked = |session: &Arc<ClientSession>| session.workspace.client == self.client;
        self.connection.peer.touch_where(|caller| caller.session.as_ref().is_some_and(is_asked));
    }
}
