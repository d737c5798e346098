//! Lets calls through one client at a time, for an upstream whose questions do not show the call that they belong
//! to. The engine and the bridge send calls through it if the client can be asked something.
//!
//! Invariant: nothing is called, and no turn is dropped, while the gate is locked, because a call that goes
//! through may end at once.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// Runs when it is a call's turn.
type Go = Box<dyn FnOnce(Turn) + Send>;

/// Whose call it is. A question can be sent to a legacy client whichever of its calls it belongs to, so that the client's
/// calls may run together; each modern call is asked by its own answer, and keeps all others out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnOf {
    /// The legacy client with this workspace.
    Client(u64),
    ModernCall,
}

impl TurnOf {
    fn may_join(self, other: Option<Self>) -> bool {
        self != Self::ModernCall && other == Some(self)
    }
}

/// The calls whose client can be asked something. Any number may run until the upstream asks its first
/// question; from then on those of one client run at a time.
#[derive(Default)]
pub(super) struct CallGate(Mutex<GateState>);

#[derive(Default)]
struct GateState {
    /// Whether the upstream has ever asked something that may belong to a call.
    asks: bool,
    asked_for_roots: bool,
    /// The number of calls that have a turn.
    under_way: usize,
    /// Whose calls these are, if they are all of one client.
    holder: Option<TurnOf>,
    waiting: VecDeque<(TurnOf, Go)>,
    /// Whether somebody is letting calls through already.
    passing: bool,
}

impl GateState {
    /// Whether one more call may run now. Nobody overtakes those who wait, or a busy client would keep the others out.
    fn has_room(&self, whose: TurnOf) -> bool {
        !self.asks || self.waiting.is_empty() && self.is_open_to(whose)
    }

    fn is_open_to(&self, whose: TurnOf) -> bool {
        self.under_way == 0 || whose.may_join(self.holder)
    }

    fn begin(&mut self, whose: TurnOf) {
        self.holder = (self.under_way == 0 || whose.may_join(self.holder)).then_some(whose);
        self.under_way += 1;
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
    pub(super) fn turn(self: &Arc<Self>, whose: TurnOf) -> Option<Turn> {
        let mut state = self.0.lock();
        state.has_room(whose).then(|| {
            state.begin(whose);
            Turn(Some(self.clone()))
        })
    }

    /// Calls `go` when it is the call's turn, perhaps at once.
    pub(super) fn wait(self: &Arc<Self>, whose: TurnOf, go: impl FnOnce(Turn) + Send + 'static) {
        {
            let mut state = self.0.lock();
            if !state.has_room(whose) {
                state.waiting.push_back((whose, Box::new(go)));
                return;
            }
            state.begin(whose);
        }
        go(Turn(Some(self.clone())));
    }

    /// A turn of a modern call that does not wait for its place in the queue.
    pub(super) fn at_once(self: &Arc<Self>) -> Turn {
        self.0.lock().begin(TurnOf::ModernCall);
        Turn(Some(self.clone()))
    }

    /// Lets the next calls through: one while nobody has a turn, and those of the same client behind it. It is a loop instead
    /// of a recursion, because those calls may end at once.
    fn pass(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.0.lock();
                if state.passing {
                    return;
                }
                let Some(&(whose, _)) = state.waiting.front().filter(|(whose, _)| state.is_open_to(*whose))
                else {
                    return;
                };
                state.begin(whose);
                state.passing = true;
                state.waiting.pop_front().map(|(_, go)| go)
            };
            if let Some(go) = next {
                go(Turn(Some(self.clone())));
            }
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
        let wait_as = |whose: TurnOf, n: u32| {
            let log = log.clone();
            gate.wait(whose, move |turn| log.lock().push((n, Some(turn))));
        };
        let wait = |n: u32| wait_as(TurnOf::ModernCall, n);
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
        // Those of one client run together, and nobody overtakes others who wait.
        let [one, other] = [1, 2].map(TurnOf::Client);
        [(one, 5), (one, 6), (other, 7), (one, 8)].into_iter().for_each(|(whose, n)| wait_as(whose, n));
        end(4);
        assert_eq!(begun(), [1, 2, 3, 4, 5, 6]);
        wait_as(one, 9);
        end(5);
        end(6);
        assert_eq!(begun(), [1, 2, 3, 4, 5, 6, 7]);
        end(7);
        assert_eq!(begun(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        wait_as(one, 10);
        assert_eq!(begun().last(), Some(&10), "nobody else waits");
        wait_as(other, 11);
        assert_eq!(begun().last(), Some(&10));
    }

    #[test]
    fn a_client_joins_nobody_but_itself() {
        let gate = Arc::new(CallGate::default());
        let [one, other] = [1, 2].map(TurnOf::Client);
        let [first, second] = [one, other].map(|whose| gate.turn(whose).expect("nobody has asked"));
        assert!(gate.asked("elicitation/create", true));
        assert!(gate.turn(one).is_none() && gate.turn(other).is_none(), "both are under way");
        drop((first, second));
        let _modern = gate.turn(TurnOf::ModernCall).expect("nobody is under way");
        assert!(gate.turn(TurnOf::ModernCall).is_none(), "each has its own turn");
    }

    #[test]
    fn a_question_outside_of_calls_and_the_first_for_roots_say_nothing_about_calls() {
        let gate = Arc::new(CallGate::default());
        let turn = || gate.turn(TurnOf::ModernCall);
        let _first = turn().expect("it need not wait");
        assert!(!gate.asked("elicitation/create", false));
        assert!(!gate.asked("roots/list", true));
        let second = turn().expect("it need not wait");
        assert!(gate.asked("roots/list", true), "two are under way");
        drop(second);
        assert!(turn().is_none(), "another is under way");
    }

    #[test]
    fn many_that_end_at_once_do_not_pile_up() {
        let gate = Arc::new(CallGate::default());
        gate.asked("ping", true);
        let first = gate.at_once();
        let count = Arc::new(Mutex::new(0));
        for _ in 0..100_000 {
            let count = count.clone();
            gate.wait(TurnOf::ModernCall, move |turn| {
                *count.lock() += 1;
                drop(turn);
            });
        }
        drop(first);
        assert_eq!(*count.lock(), 100_000);
    }
}
