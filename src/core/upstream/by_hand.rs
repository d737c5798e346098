//! What a person orders from the console: a server is stopped, or started whatever failed before.
//!
//! Invariant: neither counts as a failure. Nobody is told of a stop: what the server offers stays on offer, and the
//! next request that needs it starts it, as after its `idleTimeout`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{OfferWhileDown, Phase, StartError, Upstream};
use crate::core::engine::Engine;
use crate::core::idle;

/// Why calls in flight fail.
const STOPPED: &str = "somebody has stopped it";

/// Why a server is failed, if it is.
pub fn failure(upstream: &Upstream) -> Option<StartError> {
    match &*upstream.phase.borrow() {
        Phase::Failed(error) => Some(error.clone()),
        _ => None,
    }
}

/// Stops a server that runs or starts. Calls in flight fail as after a crash.
pub fn stop(upstream: &Arc<Upstream>) {
    let (stop, connection) = {
        let mut state = upstream.state.lock();
        let before = upstream.phase.borrow().clone();
        match before {
            Phase::Up => {
                state.while_down = OfferWhileDown::Unused;
                state.backoff.ended_well(Instant::now());
            }
            Phase::Starting => {}
            Phase::Idle | Phase::Failed(_) => return,
        }
        state.generation += 1;
        upstream.phase.send_replace(Phase::Idle);
        (state.stop.take(), state.connection.take())
    };
    if let Some(connection) = connection {
        connection.stop(STOPPED);
    }
    if let Some(stop) = stop {
        let _ = stop.send(());
    }
}

/// Stops a server if it runs, and starts it at once, whatever the back-off says.
pub fn restart(upstream: &Arc<Upstream>) -> Result<(), StartError> {
    stop(upstream);
    upstream.forgive();
    upstream.start().map(drop)
}

/// Stops a server when nobody has used it for this long, unless somebody has it open by then.
pub async fn stop_when_unused(engine: &Arc<Engine>, upstream: &Arc<Upstream>, limit: Duration) {
    let Some(connection) = upstream.connection() else { return };
    idle::unused_for(engine, &connection, || Some(limit)).await;
    let is_same = upstream.connection().is_some_and(|now| Arc::ptr_eq(&now, &connection));
    if is_same && engine.audience.lookers(upstream).is_empty() {
        stop(upstream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Items, Kind};
    use crate::core::upstream::Listing;

    #[test]
    fn what_is_stopped_stays_on_offer_and_has_not_failed() {
        let upstream = Upstream::unreal("box", "a");
        let items = Items::default().with(Kind::Tool, Items::named(Kind::Tool, &["t"]));
        stop(&upstream);
        assert!(!upstream.is_at_rest(Listing::WhileUp), "it never ran");
        upstream.pretend(Some(items.clone()));
        stop(&upstream);
        assert!(
            !upstream.is_up()
                && upstream.is_at_rest(Listing::WhileUp)
                && upstream.is_on_offer(Listing::WhileUp)
        );
        assert_eq!(*upstream.items(), items);
        assert_eq!((upstream.wait(), failure(&upstream)), (Duration::ZERO, None));
        let upstream = Upstream::unreal("box", "b");
        upstream.pretend(Some(items));
        upstream.pretend(None);
        assert_eq!(failure(&upstream).map(|error| error.to_string()).as_deref(), Some("pretended"));
        stop(&upstream);
        assert!(upstream.has_failed(), "a failure is not hidden by stopping what does not run");
    }
}
