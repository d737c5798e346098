//! Lets calls through one at a time, for an upstream whose questions do not show the call that they belong
//! to. The engine and the bridge send calls through it if the client can be asked something.
//!
//! Invariant: nothing is called, and no turn is dropped, while the gate is locked, because a call that goes
//! through may end at once.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// Runs when it is a call's turn.
type Go = Box<dyn FnOnce(Turn) + Send>;

/// The calls whose client can be asked something. Any number may run until the upstream asks its first
/// question; from then on they run one at a time.
#[derive(Default)]
pub(super) struct CallGate(Mutex<GateState>);

#[derive(Default)]
struct GateState {
    /// Whether the upstream has ever asked something that may belong to a call.
    asks: bool,
    asked_for_roots: bool,
    /// The number of calls that have a turn.
    under_way: usize,
    waiting: VecDeque<Go>,
    /// Whether somebody is letting calls through already.
    passing: bool,
}

impl GateState {
    /// Whether one more call may run now.
    fn has_room(&self) -> bool {
        !self.asks || (self.under_way == 0 && self.waiting.is_empty())
    }
}

impl CallGate {
    /// Records that the upstream asked something. Returns `true` if several calls are in flight, so that the
    /// question may belong to any of them. A question while none is in flight says nothing about calls, and neither does
    /// the first one for roots: many servers ask that once after the handshake, whatever they do meanwhile.
    pub(super) fn asked(&self, method: &str, is_during_call: bool) -> bool {
        let mut state = self.0.lock();
        let is_greeting = method == "roots/list" && !std::mem::replace(&mut state.asked_for_roots, true);
        state.asks |= is_during_call && !is_greeting;
        is_during_call && state.under_way > 1
    }

    /// A turn, if the call need not wait for it.
    pub(super) fn turn(self: &Arc<Self>) -> Option<Turn> {
        let mut state = self.0.lock();
        state.has_room().then(|| {
            state.under_way += 1;
            Turn(Some(self.clone()))
        })
    }

    /// Calls `go` when it is the call's turn, perhaps at once.
    pub(super) fn wait(self: &Arc<Self>, go: impl FnOnce(Turn) + Send + 'static) {
        {
            let mut state = self.0.lock();
            if !state.has_room() {
                state.waiting.push_back(Box::new(go));
                return;
            }
            state.under_way += 1;
        }
        go(Turn(Some(self.clone())));
    }

    /// A turn that does not wait for its place in the queue.
    pub(super) fn at_once(self: &Arc<Self>) -> Turn {
        self.0.lock().under_way += 1;
        Turn(Some(self.clone()))
    }

    /// Lets the next calls through while nobody has a turn. It is a loop instead of a recursion, because
    /// those calls may end at once.
    fn pass(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.0.lock();
                if state.passing || state.under_way > 0 {
                    return;
                }
                let Some(next) = state.waiting.pop_front() else { return };
                state.under_way += 1;
                state.passing = true;
                next
            };
            next(Turn(Some(self.clone())));
            self.0.lock().passing = false;
        }
    }
}

/// The right of a call to run. Dropping it lets the next call through.
pub(super) struct Turn(Option<Arc<CallGate>>);

impl Turn {
    /// The turn of a call that needs none.
    pub(super) fn free() -> Self {
        Self(None)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(gate) = &self.0 {
            gate.0.lock().under_way -= 1;
            gate.pass();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_from_the_first_question_on() {
        let gate = Arc::new(CallGate::default());
        let log = Arc::new(Mutex::new(Vec::<(u32, Option<Turn>)>::new()));
        let wait = |n: u32| {
            let log = log.clone();
            gate.wait(move |turn| log.lock().push((n, Some(turn))));
        };
        let begun = || log.lock().iter().map(|(n, _)| *n).collect::<Vec<_>>();
        let end = |n: u32| {
            let turn = log.lock().iter_mut().find(|(other, _)| *other == n).and_then(|(_, turn)| turn.take());
            drop(turn);
        };
        wait(1);
        wait(2);
        assert!(gate.asked("ping", true), "two are under way");
        wait(3);
        wait(4);
        assert_eq!(begun(), [1, 2]);
        end(1);
        assert_eq!(begun(), [1, 2]);
        end(2);
        assert_eq!(begun(), [1, 2, 3]);
        assert!(!gate.asked("ping", true));
        let out_of_turn = gate.at_once();
        end(3);
        assert_eq!(begun(), [1, 2, 3]);
        drop(out_of_turn);
        assert_eq!(begun(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_question_outside_of_calls_and_the_first_for_roots_say_nothing_about_calls() {
        let gate = Arc::new(CallGate::default());
        let _first = gate.turn().expect("it need not wait");
        assert!(!gate.asked("elicitation/create", false));
        assert!(!gate.asked("roots/list", true));
        let second = gate.turn().expect("it need not wait");
        assert!(gate.asked("roots/list", true), "two are under way");
        drop(second);
        assert!(gate.turn().is_none(), "another is under way");
    }

    #[test]
    fn many_that_end_at_once_do_not_pile_up() {
        let gate = Arc::new(CallGate::default());
        gate.asked("ping", true);
        let first = gate.at_once();
        let count = Arc::new(Mutex::new(0));
        for _ in 0..100_000 {
            let count = count.clone();
            gate.wait(move |turn| {
                *count.lock() += 1;
                drop(turn);
            });
        }
        drop(first);
        assert_eq!(*count.lock(), 100_000);
    }
}
