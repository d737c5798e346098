//! Decides who is there, from what the store says at each beat of the heart; pure.
//!
//! Invariant: nobody is judged by a silence that the store itself may have caused. After a time in which we could not
//! beat, everybody gets as long as a replica has anyway.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::store::Roll;

/// How often a replica tells that it lives.
pub const BEAT: Duration = Duration::from_millis(200);
/// The silence after which it is gone. With the time until somebody looks, a request that it had fails within three
/// seconds of its death.
pub const GONE: Duration = Duration::from_millis(2500);

/// The other replicas, as far as one of them knows.
#[derive(Debug)]
pub(super) struct Fellows {
    others: HashMap<String, bool>,
    /// Since when silences tell something.
    judging_since: Instant,
    /// Whether others may have taken us for gone, and nobody has settled that.
    in_doubt: bool,
}

/// What a beat has told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Judgement {
    /// The replicas that are gone since the last beat.
    pub(super) gone: Vec<String>,
    /// Whether others may have taken us for gone, at this beat or at an earlier one that was not settled.
    pub(super) doubt: bool,
}

impl Fellows {
    pub(super) fn new(now: Instant) -> Self {
        Self { others: HashMap::new(), judging_since: now, in_doubt: false }
    }

    /// Takes note of a time in which the store was away.
    pub(super) fn begin_anew(&mut self, now: Instant) {
        self.judging_since = now;
    }

    /// Takes note that what followed from a doubt was done.
    pub(super) fn settle(&mut self) {
        self.in_doubt = false;
    }

    /// Whether a replica is there; `None` if nobody has heard of it.
    pub(super) fn is_there(&self, id: &str) -> Option<bool> {
        self.others.get(id).copied()
    }

    /// Whether a replica of which nobody had heard is there by this roll. If so, it is known from now on.
    pub(super) fn meet(&mut self, roll: &Roll, id: &str, now: Instant) -> bool {
        let found = roll.others.iter().find(|(other, _)| other == id);
        let there = found.is_some_and(|(_, silence)| *silence < GONE || self.is_patient(now));
        if there {
            self.others.insert(id.to_owned(), true);
        }
        there
    }

    /// Whether silences tell nothing yet.
    fn is_patient(&self, now: Instant) -> bool {
        now - self.judging_since < GONE
    }

    pub(super) fn judge(&mut self, roll: &Roll, now: Instant) -> Judgement {
        if roll.own_silence.is_none_or(|silence| silence >= GONE) {
            self.in_doubt = true;
            self.begin_anew(now);
        }
        let patient = self.is_patient(now);
        let mut gone = Vec::new();
        let mut others = HashMap::new();
        for (id, silence) in &roll.others {
            let was_there = self.others.get(id).copied();
            let there = *silence < GONE || patient && was_there != Some(false);
            if !there && was_there != Some(false) {
                gone.push(id.clone());
            }
            others.insert(id.clone(), there);
        }
        for (id, there) in &self.others {
            if !others.contains_key(id) && *there {
                // Whoever is not on the roll has left, unless the store has forgotten all of it.
                match patient {
                    true => drop(others.insert(id.clone(), true)),
                    false => gone.push(id.clone()),
                }
            }
        }
        self.others = others;
        Judgement { gone, doubt: self.in_doubt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(200);

    fn roll(own: Option<u64>, others: &[(&str, u64)]) -> Roll {
        let others = others.iter().map(|(id, ms)| ((*id).to_owned(), Duration::from_millis(*ms))).collect();
        Roll { own_silence: own.map(Duration::from_millis), others }
    }

    #[test]
    fn a_replica_is_gone_when_it_is_silent_or_has_left_and_never_for_the_sake_of_the_store() {
        let start = Instant::now();
        let mut members = Fellows::new(start);
        let verdict = |gone: &[&str], doubt| Judgement {
            gone: gone.iter().map(|id| (*id).to_owned()).collect(),
            doubt,
        };
        // We are new, so nobody is judged yet.
        assert_eq!(members.judge(&roll(None, &[("a", 0), ("old", 9000)]), start), verdict(&[], true));
        assert_eq!((members.is_there("a"), members.is_there("b")), (Some(true), None));
        assert_eq!(members.judge(&roll(Some(200), &[("a", 0)]), start + SOON), verdict(&[], true));
        members.settle();
        // A second later everybody had its time.
        let now = start + GONE;
        assert_eq!(
            members.judge(&roll(Some(200), &[("a", 100), ("old", 9000)]), now),
            verdict(&["old"], false)
        );
        assert_eq!(
            members.judge(&roll(Some(200), &[("a", 2499), ("old", 9200)]), now + SOON),
            verdict(&[], false)
        );
        assert_eq!((members.is_there("a"), members.is_there("old")), (Some(true), Some(false)));
        assert_eq!(members.judge(&roll(Some(200), &[("a", 2500)]), now + SOON), verdict(&["a"], false));
        assert_eq!(members.is_there("a"), Some(false));
        // It comes back, and leaves.
        assert_eq!(members.judge(&roll(Some(200), &[("a", 1)]), now + SOON), verdict(&[], false));
        assert_eq!(members.is_there("a"), Some(true));
        assert_eq!(members.judge(&roll(Some(200), &[]), now + SOON), verdict(&["a"], false));
        assert_eq!(members.is_there("a"), None);
        // The store was away for a while, and then forgot everything.
        members.judge(&roll(Some(200), &[("a", 1)]), now + SOON);
        let later = now + GONE * 3;
        members.begin_anew(later);
        assert_eq!(members.judge(&roll(Some(2000), &[("a", 9000)]), later), verdict(&[], false));
        assert_eq!(members.judge(&roll(None, &[]), later + SOON), verdict(&[], true));
        members.settle();
        assert_eq!(members.is_there("a"), Some(true));
        assert_eq!(members.judge(&roll(Some(200), &[]), later + SOON + GONE), verdict(&["a"], false));
        // Somebody is known as soon as he is met, and gone when he is not on the roll any more.
        assert!(!members.meet(&roll(None, &[("new", 2500)]), "new", later + SOON + GONE));
        assert!(members.meet(&roll(None, &[("new", 2499)]), "new", later + SOON + GONE));
        assert_eq!(members.judge(&roll(Some(200), &[]), later + SOON + GONE), verdict(&["new"], false));
        // We were paused.
        assert_eq!(members.judge(&roll(Some(2500), &[]), later + GONE * 4), verdict(&[], true));
    }
}
