//! The questions of an upstream that wait for clients: by which ids each side knows them, and whose calls stand still
//! meanwhile. `relay` asks the clients of the same era, `bridge` the others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Connection;
use crate::core::session::ClientSession;
use crate::transport::peer::Paused;

/// The open questions of an upstream.
///
/// Invariant: a question is noted before its client hears of it, so that an answer and a withdrawal find it.
#[derive(Default)]
pub(in crate::core) struct Questions {
    /// By the upstream's id: ours towards the client, and the client.
    open: Mutex<HashMap<Arc<str>, Asked>>,
    /// The clients that are asked something just now.
    pub(super) asked: Arc<Paused>,
}

impl Questions {
    /// Notes a question that a client is about to be asked; `false`: another that is open has its id.
    pub(in crate::core) fn add(&self, id: Arc<str>, ours: u64, session: &Arc<ClientSession>) -> bool {
        let mut open = self.open.lock();
        let is_new = !open.contains_key(&id);
        if is_new {
            open.insert(id, (ours, session.clone()));
        }
        is_new
    }

    /// Takes a question out that is answered or cancelled: our id, and the client.
    pub(in crate::core) fn remove(&self, id: &str) -> Option<(u64, Arc<ClientSession>)> {
        self.open.lock().remove(id)
    }

    /// Tells clients that none of them needs an answer any more.
    pub(in crate::core) fn cancel(&self) {
        let open = std::mem::take(&mut *self.open.lock());
        for (ours, session) in open.into_values() {
            if session.peer.forget(ours).is_some() {
                session.peer.send_cancelled(ours, "the server that asked is gone");
            }
        }
    }
}

/// Our id of a question, and the client that it went to.
type Asked = (u64, Arc<ClientSession>);

/// An open question of an upstream. No call to it of the client that is asked runs out of time meanwhile, and each has
/// all of its time afterwards.
pub(in crate::core) struct Asking {
    connection: Arc<Connection>,
    client: u64,
}

impl Asking {
    /// The upstream asks this client something, for as long as what is returned lasts.
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
