//! The names by which clients know what upstreams offer. Every exposed name is made here.
//!
//! [`assign`] is the whole rule: from what upstreams claim, and the names that clients know already, it makes
//! a table of names. A [view](super::view) calls it whenever its upstreams change. Where nothing clashes, one
//! server's names do not depend on another's; then [`Names::add`] and [`Names::remove`] change the table by
//! one server, so that the cost depends on what that server offers and not on the thousands of tools beside
//! it.
//!
//! Invariant: a table equals what [`assign`] would make of the same claims, whatever happened before.
//! Invariant: a name leads to one thing; a name that clients know stays with its thing.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

use super::upstream::Upstream;
use super::view::{Clash, Exposure};
use crate::apps::placed;
use crate::catalog::{Exposed, Item, Items, Kind, NameLimits, is_marked};
use crate::hash::HashMap;

/// What names depend on, besides the claims.
pub(super) struct Naming<'a> {
    pub(super) face: &'a dyn Exposure,
    /// What names must look like for the clients of the view.
    pub(super) limits: NameLimits,
    /// Whether the clients of the view are shown the other spelling of URIs, where there is one.
    pub(super) strict_uris: bool,
    /// What was switched by hand before the view began: tools, and resources with templates, by full name.
    pub(super) remembered: &'a [HashMap<Arc<str>, bool>; 2],
}

/// What one upstream wants named.
pub(super) struct Claim<'a> {
    /// The upstream's place in the order of claims; lower places come first.
    pub(super) place: u64,
    pub(super) upstream: &'a Upstream,
    /// What the upstream offers, if anything of it is to be named.
    pub(super) items: Option<&'a Items>,
    /// The names by which clients know the upstream's things already; these names stay.
    pub(super) known: Option<&'a Exposed>,
    /// The names made last time, here and in another view. An unchanged table is used again, with everything that
    /// was rendered from it.
    pub(super) before: [Option<Arc<Exposed>>; 2],
}

/// The names of a view.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    by_name: [HashMap<Arc<str>, Slot>; 4],
    /// Pages of apps that keep their own URIs, where the face allows that, and the claim that each belongs
    /// to.
    kept_pages: HashMap<Arc<str>, u64>,
    /// Whether some thing wants a name that another has. Then one server's names depend on another's.
    contested: bool,
    /// Things that are not exposed.
    left_out: HashSet<LeftOut>,
}

/// Where a name leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    /// The upstream that claims it.
    pub(super) claim: u64,
    /// The index of the thing among those that the claim exposes.
    pub(super) item: usize,
}

/// A thing without a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LeftOut {
    pub(super) claim: u64,
    pub(super) kind: Kind,
    pub(super) name: Arc<str>,
    pub(super) reason: Reason,
}

/// Why a thing has no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    /// A thing of an earlier server has the name.
    Taken,
    /// The same server offers another thing by that name.
    Twice,
}

/// Names everything that is claimed: first the things whose names clients know, then the rest in the order of
/// the claims. A thing whose name had to be altered can also be called by its full name, where no other thing
/// has that name. Returns the names of each claim's things, in the order of the claims.
pub(super) fn assign(naming: &Naming<'_>, claims: &[Claim<'_>]) -> (Names, Vec<Arc<Exposed>>) {
    let mut names = Names::default();
    for claim in claims.iter().filter(|claim| claim.known.is_some()) {
        for kind in Kind::ALL {
            let known = claim.items(naming, kind).filter_map(|item| claim.known_name(kind, &item.key));
            // The index is filled in with the rest of the claim.
            let place = Slot { claim: claim.place, item: usize::MAX };
            names.by_name[kind as usize].extend(known.map(|name| (name.clone(), place)));
        }
        let pages = claim.known.iter().flat_map(|known| known.pages());
        let kept = pages.filter(|(own, exposed)| own == exposed && naming.face.keeps_pages());
        names.kept_pages.extend(kept.map(|(own, _)| (own.clone(), claim.place)));
    }
    let wanted = Wanted::new(naming, claims);
    let exposed: Vec<_> = claims.iter().map(|claim| names.name_all(&wanted, claim)).collect();
    for (claim, exposed) in claims.iter().zip(&exposed) {
        names.add_full_names(claim.place, exposed);
    }
    (names, exposed)
}

impl Names {
    /// Where a name leads.
    pub(super) fn find(&self, kind: Kind, name: &str) -> Option<Slot> {
        self.by_name[kind as usize].get(name).copied()
    }

    /// Whether some upstream has this page under its own URI.
    pub(super) fn is_kept(&self, page: &str) -> bool {
        self.kept_pages.contains_key(page)
    }

    /// The things that are not exposed.
    pub(super) fn left_out(&self) -> &HashSet<LeftOut> {
        &self.left_out
    }

    /// Names the things of one more upstream. `None`: they clash with others, so everything must be
    /// [assigned](assign) anew.
    pub(super) fn add(&mut self, naming: &Naming<'_>, claim: &Claim<'_>) -> Option<Arc<Exposed>> {
        if self.contested {
            return None;
        }
        let before: usize = self.by_name.iter().map(HashMap::len).sum();
        let exposed = self.name_all(&Wanted::new(naming, std::slice::from_ref(claim)), claim);
        self.add_full_names(claim.place, &exposed);
        let items = Kind::ALL.iter().flat_map(|kind| exposed.of(*kind).items());
        let added: usize = items.map(|item| 1 + usize::from(item.full.is_some())).sum();
        let after: usize = self.by_name.iter().map(HashMap::len).sum();
        (!self.contested && after == before + added).then_some(exposed)
    }

    /// Forgets the names of an upstream. `false`: another thing wants one of them, so everything must be
    /// [assigned](assign) anew.
    pub(super) fn remove(&mut self, claim: u64, exposed: &Exposed) -> bool {
        for kind in Kind::ALL {
            for name in exposed.of(kind).items().iter().flat_map(|item| item.names()) {
                if self.find(kind, name).is_some_and(|place| place.claim == claim) {
                    self.by_name[kind as usize].remove(name);
                }
            }
        }
        self.kept_pages.retain(|_, keeper| *keeper != claim);
        self.left_out.retain(|left_out| left_out.claim != claim);
        !self.contested
    }

    /// Moves a claim to another place, behind all others.
    pub(super) fn move_to(&mut self, from: u64, to: u64, exposed: &Exposed) {
        for kind in Kind::ALL {
            for name in exposed.of(kind).items().iter().flat_map(|item| item.names()) {
                if let Some(place) = self.by_name[kind as usize].get_mut(name)
                    && place.claim == from
                {
                    place.claim = to;
                }
            }
        }
        self.kept_pages.values_mut().filter(|keeper| **keeper == from).for_each(|keeper| *keeper = to);
        let moved: Vec<_> = self.left_out.extract_if(|left_out| left_out.claim == from).collect();
        self.left_out.extend(moved.into_iter().map(|left_out| LeftOut { claim: to, ..left_out }));
    }

    /// Gives each thing of a claim a name that clients accept and no other thing has.
    fn name_all(&mut self, wanted: &Wanted<'_>, claim: &Claim<'_>) -> Arc<Exposed> {
        let naming = wanted.naming;
        let mut exposed = Exposed::default();
        self.name_pages(naming, claim, &mut exposed);
        for kind in Kind::ALL {
            let most = claim.items.map_or(0, |items| items.of(kind).len());
            exposed.reserve(kind, most);
            self.by_name[kind as usize].reserve(most);
            for item in claim.items(naming, kind) {
                if exposed.of(kind).by_key(&item.key).is_some() {
                    self.leave_out(claim, kind, item.key.clone(), Reason::Twice);
                    continue;
                }
                let page = exposed.pages().get(&item.key).filter(|_| naming.face.keeps_pages());
                let full = match page {
                    Some(page) => page.to_string(),
                    None => naming.face.full_name(claim.upstream, kind, &item.key),
                };
                let known = claim.known_name(kind, &item.key).cloned();
                let Some(name) = known.or_else(|| self.choose(wanted, claim, kind, &full, item)) else {
                    self.leave_out(claim, kind, full.into(), Reason::Taken);
                    continue;
                };
                let place = Slot { claim: claim.place, item: exposed.of(kind).items().len() };
                let name = claim.kept_text(kind, place.item, name);
                self.by_name[kind as usize].insert(name.clone(), place);
                let active = naming.starts_active(claim, kind, item, [&full, &name]);
                let full = (*full != *name).then(|| Arc::<str>::from(full));
                // The first in the file also has the full name.
                if let (Clash::FirstInFile, Some(full)) = (naming.face.clash(), &full) {
                    self.by_name[kind as usize].entry(full.clone()).or_insert(place);
                }
                exposed.push(kind, item, name, full, active);
            }
        }
        let same = claim.before.iter().flatten().find(|before| before.is_same(&exposed));
        same.cloned().unwrap_or_else(|| Arc::new(exposed))
    }

    /// Gives each page that a claim's things name, or are, the URI by which hosts know it.
    fn name_pages(&mut self, naming: &Naming<'_>, claim: &Claim<'_>, exposed: &mut Exposed) {
        let place = naming.face.page_place(claim.upstream);
        let items = claim.items.into_iter().flat_map(|items| Kind::ALL.map(|kind| items.of(kind)));
        for own in items.flat_map(|items| items.iter()).flat_map(Item::pages) {
            let known = claim.known.and_then(|known| known.pages().get(own)).cloned();
            let page = known.unwrap_or_else(|| {
                let mut is_free =
                    || *self.kept_pages.entry(own.clone()).or_insert(claim.place) == claim.place;
                match naming.face.keeps_pages() && is_free() {
                    true => own.clone(),
                    false => placed(own, &place).into(),
                }
            });
            self.contested |= naming.face.keeps_pages() && page != *own;
            exposed.add_page(own, page);
        }
    }

    /// Lets things whose names were altered be called by their full names too, where these are free.
    fn add_full_names(&mut self, claim: u64, exposed: &Exposed) {
        for kind in Kind::ALL {
            for (item, full) in exposed.of(kind).items().iter().enumerate() {
                let Some(full) = &full.full else { continue };
                let place = Slot { claim, item };
                let holder = *self.by_name[kind as usize].entry(full.clone()).or_insert(place);
                self.contested |= holder != place;
            }
        }
    }

    fn leave_out(&mut self, claim: &Claim<'_>, kind: Kind, name: Arc<str>, reason: Reason) {
        self.contested |= reason == Reason::Taken;
        self.left_out.insert(LeftOut { claim: claim.place, kind, name, reason });
    }

    /// Chooses a name that clients accept and no other thing has.
    fn choose(
        &mut self,
        wanted: &Wanted<'_>,
        claim: &Claim<'_>,
        kind: Kind,
        full: &str,
        item: &Item,
    ) -> Option<Arc<str>> {
        let Naming { face, limits, strict_uris, .. } = wanted.naming;
        let is_ours = |name: &str| kind == Kind::Tool && limits.reserved == Some(name);
        let is_free = |name: &str| !self.by_name[kind as usize].contains_key(name) && !is_ours(name);
        if *strict_uris
            && is_free(full)
            && matches!(kind, Kind::Resource | Kind::Template)
            && let Some(other) = face.other_spelling(claim.upstream, &item.key)
            && is_free(&other)
        {
            return Some(other.into());
        }
        if !is_free(full)
            && let Some(second) = face.second_name(claim.upstream, &item.key)
        {
            return is_free(&second).then(|| second.into());
        }
        if kind != Kind::Tool || (limits.fits(full) && is_free(full)) {
            return is_free(full).then(|| full.into());
        }
        let first_only = face.clash() == Clash::FirstInFile;
        if first_only && !is_free(full) {
            return None;
        }
        let short = if limits.is_too_long(full) { face.short_name(claim.upstream, &item.key) } else { None };
        if let Some(short) = short.filter(|short| limits.fits(short)) {
            if is_free(&short) && !wanted.has(&short) {
                return Some(short.into());
            }
            self.contested = true;
        }
        let origin = origin(*face, claim.upstream, &item.key);
        let mut marked = (0..u32::MAX).map(|attempt| limits.marked(full, &origin, attempt));
        marked.find(|name| is_free(name)).map(Arc::from)
    }
}

/// The full names that tools would have if each fitted. None of them may become another tool's short name.
struct Wanted<'a> {
    naming: &'a Naming<'a>,
    claims: &'a [Claim<'a>],
    /// The names are computed on demand, because only names that are too long need them.
    full: OnceCell<HashSet<String>>,
}

impl<'a> Wanted<'a> {
    fn new(naming: &'a Naming<'a>, claims: &'a [Claim<'a>]) -> Self {
        Self { naming, claims, full: OnceCell::new() }
    }

    fn has(&self, name: &str) -> bool {
        let full = |claim: &Claim<'a>, item: &Item| {
            self.naming.face.full_name(claim.upstream, Kind::Tool, &item.key)
        };
        let all = || {
            self.claims
                .iter()
                .flat_map(|claim| claim.items(self.naming, Kind::Tool).map(move |item| full(claim, item)))
        };
        self.full.get_or_init(|| all().collect()).contains(name)
    }
}

/// What the mark of a name is computed from. Where full names are unique, the server's place in the file is
/// no part of it, because the file may change around the server.
fn origin<'a>(face: &dyn Exposure, upstream: &'a Upstream, key: &'a str) -> [&'a str; 3] {
    let server = if face.clash() == Clash::FirstInFile { "" } else { &*upstream.server };
    [&*upstream.group, server, key]
}

/// Whether some client knows a tool by this shortened name.
pub(super) fn is_shortened(
    face: &dyn Exposure,
    upstream: &Upstream,
    full: &str,
    key: &str,
    name: &str,
) -> bool {
    is_marked(name, full, &origin(face, upstream, key))
        || face.short_name(upstream, key).is_some_and(|short| short == name)
}

impl Naming<'_> {
    /// Whether a thing is active until it is switched by hand.
    fn starts_active(&self, claim: &Claim<'_>, kind: Kind, item: &Item, [full, name]: [&str; 2]) -> bool {
        let other = match kind {
            Kind::Prompt => return true,
            Kind::Tool => None,
            Kind::Resource | Kind::Template => self.face.other_spelling(claim.upstream, &item.key),
        };
        let remembered = self.remembered[class(kind)].get(full).copied();
        let is_shortened =
            |name: &str| kind == Kind::Tool && is_shortened(self.face, claim.upstream, full, &item.key, name);
        remembered.unwrap_or_else(|| {
            self.face.starts_active(&[full, name, other.as_deref().unwrap_or(full)], &is_shortened)
        })
    }
}

impl<'a> Claim<'a> {
    /// The upstream's things that exist for clients.
    fn items(&self, naming: &Naming<'_>, kind: Kind) -> impl Iterator<Item = &'a Item> {
        let items = self.items.into_iter().flat_map(move |items| items.of(kind).iter());
        items.filter(move |item| naming.face.allows(self.upstream, kind, &item.key))
    }

    /// The name by which clients know a thing.
    fn known_name(&self, kind: Kind, key: &str) -> Option<&'a Arc<str>> {
        self.known?.of(kind).by_key(key).map(|item| &item.name)
    }

    /// The name of the thing at this index, in the memory where it stands already if that is so.
    fn kept_text(&self, kind: Kind, at: usize, name: Arc<str>) -> Arc<str> {
        let before = self.before.iter().flatten().filter_map(|before| before.of(kind).items().get(at));
        before.map(|item| &item.name).find(|before| **before == name).cloned().unwrap_or(name)
    }
}

/// Which of the two classes of switches a kind belongs to: tools, or resources with templates.
pub(super) fn class(kind: Kind) -> usize {
    usize::from(kind != Kind::Tool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NameRule;
    use crate::core::view::Renderer;
    use crate::protocol::era::ClientHello;

    /// A face with names of at most twelve characters that hides whatever is secret.
    #[derive(Clone, Copy)]
    struct TestExposure {
        clash: Clash,
        has_second: bool,
        has_short: bool,
    }

    impl Exposure for TestExposure {
        fn full_name(&self, upstream: &Upstream, _: Kind, key: &str) -> String {
            format!("{}_{key}", upstream.group)
        }

        fn second_name(&self, upstream: &Upstream, key: &str) -> Option<String> {
            self.has_second.then(|| format!("{}__{key}", upstream.server))
        }

        fn short_name(&self, _: &Upstream, key: &str) -> Option<String> {
            self.has_short.then(|| key.to_owned())
        }

        fn renderer<'a>(&'a self, _: &'a Upstream, _: Kind) -> Renderer<'a> {
            Box::new(|_, _, _| ())
        }

        fn allows(&self, _: &Upstream, _: Kind, key: &str) -> bool {
            key != "secret"
        }

        fn clash(&self) -> Clash {
            self.clash
        }

        fn limits(&self, _: &str) -> NameLimits {
            NameLimits { rule: NameRule::Safe, length: 12, reserved: None }
        }

        fn lists(&self, _: Option<&ClientHello>, _: Kind) -> bool {
            true
        }
    }

    const RENAME: TestExposure = TestExposure { clash: Clash::Rename, has_second: false, has_short: false };
    const FIRST: TestExposure = TestExposure { clash: Clash::FirstInFile, ..RENAME };
    const SECOND_NAMES: TestExposure = TestExposure { has_second: true, ..RENAME };
    const SHORT_NAMES: TestExposure = TestExposure { has_short: true, ..RENAME };

    #[test]
    fn names_follow_from_what_is_claimed_and_what_is_known() {
        /// A group, what its one server offers, and names that clients know.
        type Claimed<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)]);
        type Case<'a> =
            (&'a str, TestExposure, Kind, &'a [Claimed<'a>], &'a [&'a [&'a str]], &'a [(&'a str, &'a str)]);
        // The last column: other names that lead somewhere, and the name that stands there.
        let cases: [Case<'_>; 17] = [
            ("as they are", RENAME, Kind::Tool, &[("a", &["b", "c"], &[])], &[&["a_b", "a_c"]], &[]),
            (
                "the first has it",
                RENAME,
                Kind::Tool,
                &[("a", &["b_c"], &[]), ("a_b", &["c"], &[])],
                &[&["a_b_c"], &["a_b_7b1e66b1"]],
                &[],
            ),
            (
                "who is known has it",
                RENAME,
                Kind::Tool,
                &[("a", &["b_c"], &[]), ("a_b", &["c"], &[("c", "a_b_c")])],
                &[&["a_b_9e9014ef"], &["a_b_c"]],
                &[],
            ),
            (
                "a known name stays",
                RENAME,
                Kind::Tool,
                &[("a", &["b"], &[("b", "other")])],
                &[&["other"]],
                &[("a_b", "other")],
            ),
            (
                "what is offered no longer leaves its name",
                RENAME,
                Kind::Tool,
                &[("a", &["b_c"], &[]), ("a_b", &[], &[("c", "a_b_c")])],
                &[&["a_b_c"], &[]],
                &[],
            ),
            (
                "so does what is allowed no longer",
                RENAME,
                Kind::Tool,
                &[("a", &["secret"], &[("secret", "a_b")]), ("a", &["b"], &[])],
                &[&[], &["a_b"]],
                &[],
            ),
            (
                "too long, and known in full",
                RENAME,
                Kind::Tool,
                &[("a", &["much_too_long"], &[])],
                &[&["a_m_eb3fda42"]],
                &[("a_much_too_long", "a_m_eb3fda42")],
            ),
            (
                "too long, and short enough",
                SHORT_NAMES,
                Kind::Tool,
                &[("a", &["longer_name", "b"], &[])],
                &[&["longer_name", "a_b"]],
                &[("a_longer_name", "longer_name")],
            ),
            (
                "too long, and too long when shortened",
                SHORT_NAMES,
                Kind::Tool,
                &[("a", &["much_too_long"], &[])],
                &[&["a_m_eb3fda42"]],
                &[("a_much_too_long", "a_m_eb3fda42")],
            ),
            (
                "odd, and not too long",
                SHORT_NAMES,
                Kind::Tool,
                &[("a", &["b.c"], &[])],
                &[&["a_b_ab2abad4"]],
                &[("a_b.c", "a_b_ab2abad4")],
            ),
            (
                "the first has the short one",
                SHORT_NAMES,
                Kind::Tool,
                &[("a", &["longer_name"], &[]), ("b", &["longer_name"], &[])],
                &[&["longer_name"], &["b_l_25195923"]],
                &[("a_longer_name", "longer_name"), ("b_longer_name", "b_l_25195923")],
            ),
            (
                "what is another's in full is nobody's short name",
                SHORT_NAMES,
                Kind::Tool,
                &[("a", &["longer_name"], &[]), ("longer", &["name"], &[])],
                &[&["a_l_23d80a10"], &["longer_name"]],
                &[("a_longer_name", "a_l_23d80a10")],
            ),
            (
                "only tools are altered",
                RENAME,
                Kind::Prompt,
                &[("a", &["b_c!"], &[]), ("a_b", &["c!"], &[])],
                &[&["a_b_c!"], &[]],
                &[],
            ),
            ("twice is once", RENAME, Kind::Tool, &[("a", &["b", "b"], &[])], &[&["a_b"]], &[]),
            (
                "the other is left out",
                FIRST,
                Kind::Tool,
                &[("a", &["b_c"], &[]), ("a_b", &["c", "d"], &[])],
                &[&["a_b_c"], &["a_b_d"]],
                &[],
            ),
            (
                "in full as well",
                FIRST,
                Kind::Tool,
                &[("a", &["b.c"], &[]), ("a_b", &["x"], &[]), ("a", &["b.c"], &[])],
                &[&["a_b_0b8159a2"], &["a_b_x"], &[]],
                &[("a_b.c", "a_b_0b8159a2")],
            ),
            (
                "by another name",
                SECOND_NAMES,
                Kind::Prompt,
                &[("a", &["b"], &[]), ("a", &["b"], &[]), ("a", &["b"], &[])],
                &[&["a_b"], &["1__b"], &["2__b"]],
                &[],
            ),
        ];
        for (what, face, kind, claimed, expected, others) in cases {
            let upstreams: Vec<_> = (0..)
                .zip(claimed)
                .map(|(at, claimed)| Upstream::unreal(claimed.0, &at.to_string()))
                .collect();
            let items: Vec<_> = claimed
                .iter()
                .map(|claimed| Items::default().with(kind, Items::named(kind, claimed.1)))
                .collect();
            let known: Vec<_> = claimed
                .iter()
                .map(|(_, _, names)| {
                    let mut known = Exposed::default();
                    for (key, name) in *names {
                        known.push(kind, &Items::named(kind, &[key])[0], (*name).into(), None, true);
                    }
                    known
                })
                .collect();
            let remembered = Default::default();
            let naming =
                Naming { limits: face.limits(""), strict_uris: false, face: &face, remembered: &remembered };
            let claims: Vec<_> = (0..claimed.len())
                .map(|at| Claim {
                    place: at as u64,
                    upstream: &upstreams[at],
                    items: Some(&items[at]),
                    known: Some(&known[at]),
                    before: [None, None],
                })
                .collect();
            let (names, exposed) = assign(&naming, &claims);
            let given = |exposed: &Arc<Exposed>| -> Vec<_> {
                exposed.of(kind).items().iter().map(|item| item.name.to_string()).collect()
            };
            let given: Vec<_> = exposed.iter().map(given).collect();
            assert_eq!(given, expected, "{what}");
            let leads_to = |name: &str| {
                let place = names.find(kind, name)?;
                exposed[place.claim as usize].of(kind).items().get(place.item).map(|item| item.name.clone())
            };
            let listed = expected.iter().copied().flatten().map(|name| (*name, *name));
            for (name, expected) in listed.chain(others.iter().copied()) {
                assert_eq!(leads_to(name).as_deref(), Some(expected), "{what}: {name}");
            }
            assert_eq!(
                names.by_name[kind as usize].len(),
                exposed.iter().flat_map(|exposed| exposed.of(kind).items()).count() + others.len(),
                "{what}: every name leads to what is there"
            );
        }
    }

    /// A face that names everything by its own name and keeps the URIs of pages.
    struct KeepsPages;

    impl Exposure for KeepsPages {
        fn full_name(&self, _: &Upstream, _: Kind, key: &str) -> String {
            key.to_owned()
        }

        fn renderer<'a>(&'a self, _: &'a Upstream, _: Kind) -> Renderer<'a> {
            Box::new(|_, _, _| ())
        }

        fn page_place<'a>(&self, upstream: &'a Upstream) -> Vec<&'a str> {
            vec![&upstream.group, &upstream.server]
        }

        fn keeps_pages(&self) -> bool {
            true
        }

        fn limits(&self, _: &str) -> NameLimits {
            NameLimits { rule: NameRule::Exact, length: usize::MAX, reserved: None }
        }

        fn lists(&self, _: Option<&ClientHello>, _: Kind) -> bool {
            true
        }
    }

    #[test]
    fn a_page_stays_as_it_is_with_the_first_that_names_it_or_lists_it() {
        let names_it = Items::defined(Kind::Tool, r#"{"name":"t","_meta":{"ui/resourceUri":"ui://p"}}"#);
        let names_it = Items::default().with(Kind::Tool, names_it);
        let lists_it = Items::default().with(Kind::Resource, Items::named(Kind::Resource, &["ui://p"]));
        let nothing = Items::default();
        let (own, placed) = ("ui://p", "ui://box/1/p");
        // What the first and the second server offer, the URI by which clients know the page of each, and the
        // result.
        for (what, items, known, expected) in [
            ("the first has it", [&names_it, &lists_it], [None, None], [Some(own), Some(placed)]),
            ("whatever names it", [&lists_it, &names_it], [None, None], [Some(own), Some(placed)]),
            ("alone", [&nothing, &lists_it], [None, None], [None, Some(own)]),
            (
                "who is known by it",
                [&names_it, &names_it],
                [None, Some(own)],
                [Some("ui://box/0/p"), Some(own)],
            ),
            ("what is known stays", [&nothing, &lists_it], [None, Some(placed)], [None, Some(placed)]),
        ] {
            let upstreams = ["0", "1"].map(|server| Upstream::unreal("box", server));
            let known = known.map(|page| {
                let mut exposed = Exposed::default();
                page.into_iter().for_each(|page| exposed.add_page(&own.into(), page.into()));
                exposed
            });
            let remembered = Default::default();
            let naming = Naming {
                limits: KeepsPages.limits(""),
                strict_uris: false,
                face: &KeepsPages,
                remembered: &remembered,
            };
            let claim = |at: usize| Claim {
                place: at as u64,
                upstream: &upstreams[at],
                items: Some(items[at]),
                known: Some(&known[at]),
                before: [None, None],
            };
            let (names, exposed) = assign(&naming, &[claim(0), claim(1)]);
            let pages: Vec<_> =
                exposed.iter().map(|exposed| exposed.pages().get(own).map(|page| &**page)).collect();
            assert_eq!(pages, expected, "{what}");
            for (exposed, page) in exposed.iter().zip(expected) {
                for resource in exposed.of(Kind::Resource).items() {
                    assert_eq!(Some(&*resource.name), page, "{what}: it is listed so");
                }
            }
            let (mut one_by_one, _) = assign(&naming, &[claim(0)]);
            match one_by_one.add(&naming, &claim(1)) {
                Some(_) => assert_eq!(one_by_one, names, "{what}: the order of arrival makes no difference"),
                None => assert!(names.contested, "{what}: only a clash needs all of them"),
            }
        }
    }
}
