//! Notices that nobody uses an upstream. [`lifecycle`](super::lifecycle) stops such an upstream, and the next
//! request that needs it starts it again.
//!
//! An upstream is used while a request is open, a client is being asked something, a client waits for it or
//! watches a resource of it, or a task of a client is not over. Short requests are noticed by the number of
//! requests so far, so that a call pays nothing for being noticed.
//!
//! Invariant: this relies on one thread. From the moment that [`unused`] returns until the upstream is at
//! rest no request can be opened, and a request looks up its connection and opens itself in one step: it is
//! either seen here, or finds the upstream at rest and starts it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::connection::Connection;
use super::engine::Engine;

/// How often an upstream is looked at within its `idleTimeout`: it may run longer by this part of it.
const LOOKS: u32 = 16;
/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Returns when nobody has used the upstream for its `idleTimeout`; never, if it has none.
pub(super) async fn unused(engine: &Arc<Engine>, connection: &Arc<Connection>) {
    unused_for(engine, connection, || connection.upstream.spec().idle_timeout).await;
}

/// Returns when nobody has used the upstream for as long as `limit` says; never, while that says nothing.
pub(super) async fn unused_for(
    engine: &Arc<Engine>,
    connection: &Arc<Connection>,
    limit: impl Fn() -> Option<Duration>,
) {
    let upstream = &connection.upstream;
    let (mut requests, mut unused_since) = (connection.requests(), Instant::now());
    loop {
        let renewed = upstream.renewed.notified();
        let Some(limit) = limit() else {
            renewed.await;
            unused_since = Instant::now();
            continue;
        };
        let requests_now = connection.requests();
        if requests_now != requests || is_used(engine, connection) {
            (requests, unused_since) = (requests_now, Instant::now());
        }
        let left = limit.saturating_sub(unused_since.elapsed());
        if left.is_zero() {
            return;
        }
        tokio::select! {
            () = renewed => {}
            () = sleep(left.min(limit / LOOKS).min(LONGEST_PAUSE)) => {}
        }
    }
}

fn is_used(engine: &Engine, connection: &Arc<Connection>) -> bool {
    connection.upstream.is_awaited()
        || connection.has_open_requests()
        || connection.questions.any()
        || engine.audience.workspaces().iter().any(|workspace| workspace.tasks.any_open(connection))
}
