//! Who was told what: why a `list_changed` was sent or not.
//!
//! Everyone who can be told has a [`Ledger`]: a fingerprint of each list as that client was last told of it
//! or shown it. [`notices`] is the one rule: a client is told of the lists that differ from its ledger. So a
//! change that is undone tells nobody, and a client is not told of what it has been shown.
//!
//! A [`Workspace`](super::workspace::Workspace) applies the rule to everyone who shares it, whenever
//! something may have changed:
//!
//! | what happens | who calls | when the rule is applied |
//! |---|---|---|
//! | a group is opened or closed, things are switched: a client asked for it | `Workspace::tell` | at once |
//! | an upstream comes up, goes down or offers other things | `Workspace::tell_unless_held` | at once, or when the last hold ends |
//! | an open group is opened again; a new file is put in force; servers start with us | `Workspace::hold` | once, when the hold ends |
//! | a list is answered | `ClientSession::show` | never: what it shows is what the client knows now |
//!
//! Nobody is told before there are lists to ask for ([`Ledger::begin`]). For servers that start with us, that
//! is when each is up or has failed, or when what is remembered stands in for them; for one toolbox served as
//! a plain server, it is when the toolbox is open.
//!
//! Invariant: a tool call never runs any of this code.

use std::hash::{BuildHasher, Hasher};

use super::view::{Exposure, Look, View};
use crate::catalog::Kind;
use crate::hash::Seeded;
use crate::protocol::era::ClientHello;

/// A fingerprint of each list that a client sees. Equal lists have equal fingerprints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lists([u64; 4]);

impl Lists {
    /// What a legacy client sees that introduced itself like this.
    pub fn of_legacy(exposure: &dyn Exposure, view: &View, client: Option<&ClientHello>) -> Self {
        let (name, as_host) = client.map_or(("", false), |client| (&*client.name, client.renders_apps));
        let look = Look::of(name, false, as_host);
        Self::of(exposure, view, &exposure.adds(client, false), look, |kind| exposure.lists(client, kind))
    }

    /// What a modern client sees. Its name is not known here, so it may be one that is known to take little.
    pub(super) fn of_modern(exposure: &dyn Exposure, view: &View, renders_apps: bool) -> Self {
        let look = Look { takes: Some(0), ..Look::of("", true, renders_apps) };
        Self::of(exposure, view, &exposure.adds(None, true), look, |_| exposure.lists_to_modern())
    }

    fn of(
        exposure: &dyn Exposure,
        view: &View,
        added: &str,
        look: Look,
        lists: impl Fn(Kind) -> bool,
    ) -> Self {
        Self(Kind::ALL.map(|kind| {
            let mut hasher = Seeded::default().build_hasher();
            if kind == Kind::Tool {
                hasher.write(added.as_bytes());
            }
            if lists(kind) {
                view.fingerprint(exposure, kind, look, &mut hasher);
            }
            hasher.finish()
        }))
    }
}

/// The rule: the kinds whose lists have changed.
pub fn notices(before: &Lists, now: &Lists) -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| before.0[*kind as usize] != now.0[*kind as usize]).collect()
}

/// What one client was told of and shown.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The lists that the client knows; `None` while there are no lists to ask for.
    known: Option<Lists>,
    /// How often the client was told of each list.
    told: [u64; 4],
    /// How often the client had been told of each list when it was last shown that list.
    shown: [u64; 4],
    /// Whether the client failed to ask in time for what it was told of. Nothing waits for it any more.
    pub(super) given_up: bool,
}

impl Ledger {
    /// Whether there are lists to ask for.
    pub(super) fn has_begun(&self) -> bool {
        self.known.is_some()
    }

    /// Notes that there are lists from now on, and that the client knows these.
    pub(super) fn begin(&mut self, now: Lists) {
        self.known.get_or_insert(now);
    }

    /// The kinds that the client must be told of, now that its lists are these. From now on it knows them.
    pub(super) fn tell(&mut self, now: Lists) -> Vec<Kind> {
        let Some(known) = &mut self.known else { return Vec::new() };
        let kinds = notices(known, &now);
        *known = now;
        kinds.iter().for_each(|kind| self.told[*kind as usize] += 1);
        kinds
    }

    /// Notes that the client is shown one of these lists. Returns how often it has been told of that list.
    pub(super) fn show(&mut self, kind: Kind, now: &Lists) -> u64 {
        let at = kind as usize;
        if let Some(known) = &mut self.known {
            known.0[at] = now.0[at];
        }
        self.told[at]
    }

    /// Notes that the client has the list that it was shown when it had been told this often.
    pub(super) fn has(&mut self, kind: Kind, told: u64) {
        let shown = &mut self.shown[kind as usize];
        *shown = told.max(*shown);
    }

    /// How often the client was told of a list.
    pub(super) fn told(&self, kind: Kind) -> u64 {
        self.told[kind as usize]
    }

    /// How often the client had been told of a list when it was shown the one that it has.
    pub(super) fn shown(&self, kind: Kind) -> u64 {
        self.shown[kind as usize]
    }

    /// Whether the client has been told of a list and has not asked for it since.
    pub(super) fn is_behind(&self, kind: Kind) -> bool {
        self.shown[kind as usize] < self.told[kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::array;

    use super::*;
    use Event::*;

    /// What happens to a client whose list of tools is a number.
    enum Event {
        Begins(u64),
        /// The rule is applied; the flag says whether the client is told.
        Is(u64, bool),
        Shown(u64),
    }

    fn lists(tools: u64) -> Lists {
        Lists(array::from_fn(|kind| if kind == Kind::Tool as usize { tools } else { 0 }))
    }

    #[test]
    fn a_client_is_told_of_what_it_does_not_know() {
        let cases: [(&str, &[Event], bool); 9] = [
            ("nobody is told before there are lists", &[Is(1, false), Is(2, false)], false),
            ("the lists at the beginning are known", &[Begins(1), Is(1, false)], false),
            ("a change is told once", &[Begins(1), Is(2, true), Is(2, false)], true),
            ("what it begins with is what it knows first", &[Begins(1), Begins(2), Is(2, true)], true),
            ("what changed back while nobody looked is no news", &[Begins(1), Is(1, false)], false),
            ("a list that changed back after it was told is", &[Begins(1), Is(2, true), Is(1, true)], true),
            ("what it was shown it is not told of", &[Begins(1), Shown(2), Is(2, false)], false),
            ("what it was shown may change again", &[Begins(1), Shown(2), Is(1, true)], true),
            ("who has asked since is not behind", &[Begins(1), Is(2, true), Shown(2), Is(2, false)], false),
        ];
        for (what, events, behind) in cases {
            let mut ledger = Ledger::default();
            for event in events {
                match event {
                    Begins(tools) => ledger.begin(lists(*tools)),
                    Shown(tools) => {
                        let told = ledger.show(Kind::Tool, &lists(*tools));
                        ledger.has(Kind::Tool, told);
                    }
                    Is(tools, told) => {
                        let expected: &[Kind] = if *told { &[Kind::Tool] } else { &[] };
                        assert_eq!(ledger.tell(lists(*tools)), expected, "{what}");
                    }
                }
            }
            assert_eq!(ledger.is_behind(Kind::Tool), behind, "{what}");
            assert!(!ledger.is_behind(Kind::Prompt), "{what}");
        }
    }

    #[test]
    fn each_list_is_compared_with_itself() {
        let before = Lists([1, 2, 3, 4]);
        for (now, expected) in [
            ([1, 2, 3, 4], &[][..]),
            ([0, 2, 3, 4], &[Kind::Tool]),
            ([1, 2, 0, 0], &[Kind::Template, Kind::Prompt]),
            ([4, 3, 2, 1], &Kind::ALL),
        ] {
            assert_eq!(notices(&before, &Lists(now)), expected, "{now:?}");
        }
    }
}
