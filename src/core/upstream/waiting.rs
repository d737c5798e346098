//! Who waits for an upstream: requests until it is up, whoever ends it until it is no longer needed or gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Over, Phase, Upstream};
use crate::core::connection::Connection;
use crate::core::start_error::StartError;
use crate::core::workspace::Workspace;

impl Upstream {
    /// As [`Self::up`], for a client, which waits no longer than `connectTimeout`. The upstream goes on starting
    /// after that.
    pub async fn up_in_time(self: &Arc<Self>, client: &Workspace) -> Result<Arc<Connection>, StartError> {
        self.take_surroundings_of(client);
        let phase = self.start()?;
        let _waiting = StartWaiter::new(self);
        self.settled_in_time(phase).await
    }

    /// Starts the upstream if necessary and waits until it is connected or has failed.
    pub async fn up(self: &Arc<Self>) -> Result<Arc<Connection>, StartError> {
        let phase = self.start()?;
        let _waiting = StartWaiter::new(self);
        self.settled(phase).await
    }

    /// Ends the upstream once it is not needed any more: calls in flight may finish within `patience`. It is
    /// not started again. Returns when nothing is left of it.
    pub(in crate::core) async fn drain(self: &Arc<Self>, patience: Duration) {
        self.state.lock().over = Some(Over::Removed);
        let _ = tokio::time::timeout(patience, self.rest()).await;
        self.stop();
        self.gone().await;
    }

    /// Waits until nothing is left of the upstream.
    pub(in crate::core) async fn gone(&self) {
        let _ = self.lives.subscribe().wait_for(|lives| *lives == 0).await;
    }

    /// Waits until no client waits for the upstream.
    async fn rest(&self) {
        loop {
            let less = self.less_waiting.notified();
            let (waiting, connection) = {
                let state = self.state.lock();
                (state.waiting, state.connection.clone())
            };
            match connection {
                _ if waiting > 0 => less.await,
                Some(connection) => {
                    connection.peer.none_open(|caller| caller.session.is_some()).await;
                    if self.state.lock().waiting == 0 {
                        return;
                    }
                }
                None => return,
            }
        }
    }

    /// Whether a client waits for the upstream to come up, or watches something of it.
    pub(in crate::core) fn is_awaited(&self) -> bool {
        let state = self.state.lock();
        state.waiting > 0 || !state.watched.is_empty()
    }

    /// Whether a client waits for the upstream.
    pub fn is_busy(&self) -> bool {
        let (waiting, connection) = {
            let state = self.state.lock();
            (state.waiting, state.connection.clone())
        };
        waiting > 0
            || connection.is_some_and(|connection| connection.peer.any(|caller| caller.session.is_some()))
    }

    /// Waits until a start is over, but no longer than `connectTimeout`.
    pub(in crate::core) async fn settled_in_time(
        &self,
        phase: watch::Receiver<Phase>,
    ) -> Result<Arc<Connection>, StartError> {
        let timeouts = self.spec().timeouts;
        if timeouts.start <= timeouts.connect {
            // The start is over before `connectTimeout` is.
            return self.settled(phase).await;
        }
        let settled = tokio::time::timeout(timeouts.connect, self.settled(phase)).await;
        settled.unwrap_or_else(|_| Err(StartError::not_yet(&timeouts)))
    }

    /// Waits until a start is over.
    pub async fn settled(&self, mut phase: watch::Receiver<Phase>) -> Result<Arc<Connection>, StartError> {
        let settled = phase.wait_for(|phase| *phase != Phase::Starting).await;
        match settled.as_deref() {
            Ok(Phase::Failed(reason)) => Err(reason.clone()),
            _ => self.connection().ok_or_else(|| "it was closed".into()),
        }
    }
}

/// A request that waits for an upstream to come up.
struct StartWaiter<'a>(&'a Upstream);

impl<'a> StartWaiter<'a> {
    fn new(upstream: &'a Upstream) -> Self {
        upstream.state.lock().waiting += 1;
        Self(upstream)
    }
}

impl Drop for StartWaiter<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
        self.0.less_waiting.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::catalog::Items;
    use crate::core::connection::Caller;
    use crate::core::route::Route;
    use crate::core::session::ClientSession;
    use crate::transport::peer::{Answer, Lost, OnAnswer};

    /// A call of a client to an upstream that is up, and a receiver that shows what becomes of the call.
    fn in_flight() -> (Arc<Upstream>, Arc<Connection>, u64, oneshot::Receiver<bool>) {
        let upstream = Upstream::unreal("box", "a");
        upstream.pretend(Some(Items::default()));
        let connection = upstream.connection().expect("it is up");
        let workspace =
            Workspace::new("", 0, Arc::new(crate::core::routing_tests::Unseen), None, &Arc::default());
        let caller =
            Caller { session: Some(ClientSession::new(workspace, Route::Nowhere)), ..Caller::default() };
        let (send, fate) = oneshot::channel();
        let on_answer = OnAnswer::run(move |answer| {
            let _ = send.send(!matches!(answer, Answer::Lost(_)));
        });
        let id = connection.peer.reserve();
        assert!(connection.peer.request(id, "tools/call", "{}", caller, None, on_answer), "it is open");
        (upstream, connection, id, fate)
    }

    #[tokio::test]
    async fn what_is_to_end_waits_for_its_calls_in_flight_and_no_longer() {
        let (upstream, connection, id, fate) = in_flight();
        let drain = upstream.drain(Duration::from_secs(3600));
        let finish = async {
            tokio::task::yield_now().await;
            assert!(upstream.is_up(), "it is waited for");
            connection.peer.fail(id, &Lost::new("as good as an answer"));
        };
        tokio::join!(drain, finish);
        assert!(!upstream.is_up());
        assert_eq!(fate.await, Ok(false));
        assert!(upstream.start().is_err(), "it is not started again");
    }

    #[tokio::test]
    async fn what_is_to_end_does_not_wait_for_ever() {
        let (upstream, _, _, fate) = in_flight();
        upstream.drain(Duration::from_millis(20)).await;
        assert!(!upstream.is_up());
        assert_eq!(fate.await, Ok(false), "the call has failed");
    }
}
