use std::collections::{BTreeSet, HashSet};

use super::*;
use crate::config::NameRule;
use crate::core::notices::{Lists, notices};
use proptest::prelude::*;

/// Names as both faces make them, as far as clashes are concerned; short, so that many have to be altered.
struct Plain(Clash);

impl Exposure for Plain {
    fn lists_to_modern(&self) -> bool {
        true
    }

    fn full_name(&self, upstream: &Upstream, _kind: Kind, key: &str) -> String {
        if upstream.group.is_empty() { key.to_owned() } else { format!("{}_{key}", upstream.group) }
    }

    fn short_name(&self, upstream: &Upstream, key: &str) -> Option<String> {
        (self.0 == Clash::Rename && &*upstream.group == "a").then(|| key.to_owned())
    }

    fn renderer<'a>(&'a self, _: &'a Upstream, _: Kind) -> Renderer<'a> {
        Box::new(|name, _, out| out.extend_from_slice(crate::json::quote(name).as_bytes()))
    }

    fn allows(&self, _upstream: &Upstream, _kind: Kind, _key: &str) -> bool {
        true
    }

    fn starts_active(&self, _: &[&str], _: &dyn Fn(&str) -> bool) -> bool {
        true
    }

    fn clash(&self) -> Clash {
        self.0
    }

    fn limits(&self, _: &str) -> NameLimits {
        NameLimits { rule: NameRule::Safe, length: 12, reserved: None }
    }

    fn lists(&self, _client: Option<&ClientHello>, _kind: Kind) -> bool {
        true
    }

    fn tells(&self, _kind: Kind, _definition: Definition<'_>) -> Option<String> {
        None
    }
}

/// Every server's own names that stand in the view, each under a name that leads back to it and to nobody else.
fn exposed(view: &View, face: &Plain, kind: Kind) -> BTreeSet<(Arc<str>, String)> {
    let mut names = HashSet::new();
    let mut origins = BTreeSet::new();
    for (entry, item) in view.items(kind) {
        assert!(names.insert(item.name.clone()), "{} stands for two things", item.name);
        let full = face.full_name(&entry.upstream, kind, &item.own.key);
        let mut spellings = vec![&*item.name];
        // In full it can be called unless that is another's name as well, which only `Rename` allows.
        assert!(view.find(kind, &full).is_some(), "{full} leads nowhere");
        if face.0 == Clash::FirstInFile {
            spellings.push(&full);
        }
        for name in spellings {
            let target = view.find(kind, name).unwrap_or_else(|| panic!("{name} leads nowhere"));
            assert!(
                Arc::ptr_eq(&target.upstream, &entry.upstream) && target.raw_key() == item.own.raw_key(),
                "{name}"
            );
        }
        assert!(kind != Kind::Tool || face.limits("").fits(&item.name), "{}", item.name);
        origins.insert((entry.upstream.server.clone(), item.own.key.to_string()));
    }
    origins
}

/// Which server does what next: offers these, or (`None`) goes down.
type ServerChange = (usize, Option<Vec<String>>);

const GROUPS: [&str; 4] = ["a", "a_b", "", "a"];

fn steps() -> impl Strategy<Value = Vec<ServerChange>> {
    let name = prop_oneof![
        prop::sample::select(vec!["b_c", "c", "b", "a_b_c", "a_c", "b.c", "b:c", "a_b.c"])
            .prop_map(String::from),
        "[abc_.]{1,14}",
        "(a_)?[ab_]{10,12}",
    ];
    let names = prop::option::weighted(0.75, prop::collection::vec(name, 0..5));
    prop::collection::vec((0..GROUPS.len(), names), 1..12)
}

/// Lets four servers come, change and go, and looks at the view after each step.
fn follow(
    clash: Clash,
    kind: Kind,
    steps: &[ServerChange],
    look: impl Fn(&View, &Plain, &[Option<Vec<String>>]),
) {
    let face = Plain(clash);
    let servers: Vec<_> =
        GROUPS.iter().enumerate().map(|(n, group)| Upstream::unreal(group, &n.to_string())).collect();
    let mut view = View::default();
    view.add(&face, &servers);
    GROUPS.iter().for_each(|group| view.open_in_place(group));
    let mut offers: Vec<Option<Vec<String>>> = vec![None; servers.len()];
    for (server, names) in steps {
        let items = names.as_ref().map(|names| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Items::default().with(kind, Items::named(kind, &names))
        });
        servers[*server].pretend(items);
        let before: Vec<_> = Kind::ALL.map(|kind| listed(&view, &face, kind)).into();
        let prints = Lists::of_legacy(&face, &view, None);
        view.refresh(&face, &servers[*server]);
        let changed = notices(&prints, &Lists::of_legacy(&face, &view, None));
        let really =
            Kind::ALL.into_iter().filter(|kind| before[*kind as usize] != listed(&view, &face, *kind));
        assert_eq!(changed, really.collect::<Vec<_>>(), "told of the lists that changed, and no others");
        assert_names(&view, &face);
        offers[*server] = names.clone();
        look(&view, &face, &offers);
    }
}

/// Names are what they would be if all had been named at once, whatever happened before.
fn assert_names(view: &View, face: &Plain) {
    let naming = Naming { face, limits: face.limits(""), strict_uris: false, remembered: &view.remembered };
    let claims: Vec<_> = view.entries.iter().map(|(seq, entry)| entry.claim(face, *seq, false)).collect();
    assert_eq!(assign(&naming, &claims).0, view.names);
}

fn listed(view: &View, face: &Plain, kind: Kind) -> Vec<u8> {
    let mut out = Vec::new();
    view.write_list(face, kind, Look { from_start: false, as_host: false, takes: None }, true, &mut out);
    out
}

/// Sessions of the daemon that are shown the same keep one copy of it; other clients keep their own.
#[test]
fn what_sessions_of_the_daemon_are_shown_alike_is_kept_once() {
    let face = Plain(Clash::Rename);
    let items = || Items::default().with(Kind::Tool, Items::named(Kind::Tool, &["b", "c"]));
    for in_daemon in [true, false] {
        let server =
            if in_daemon { Upstream::unreal_in_daemon("b", "0") } else { Upstream::unreal("b", "0") };
        let shown = |before: &[&str]| {
            let mut view = View::default();
            let others: Vec<_> = before.iter().map(|group| Upstream::unreal(group, "1")).collect();
            view.add(&face, &others);
            for other in &others {
                other.pretend(Some(Items::default().with(Kind::Tool, Items::named(Kind::Tool, &["b_b"]))));
                view.refresh(&face, other);
            }
            view.add(&face, std::slice::from_ref(&server));
            view.refresh(&face, &server);
            assert_names(&view, &face);
            view
        };
        let exposed = |view: &View| view.server("b", "0").expect("it was added").exposed.clone();
        server.pretend(Some(items()));
        let (one, alike, otherwise) = (shown(&[]), shown(&[]), shown(&[""]));
        assert_eq!(Arc::ptr_eq(&exposed(&one), &exposed(&alike)), in_daemon);
        assert!(!Arc::ptr_eq(&exposed(&one), &exposed(&otherwise)), "b_b is another's there");
        let names =
            [&one, &alike, &otherwise].map(|view| exposed(view).of(Kind::Tool).items()[0].name.clone());
        assert_eq!((&*names[0], &*names[1]), ("b_b", "b_b"));
        assert_ne!(names[0], names[2]);
        let is_once = Arc::ptr_eq(&names[0], &names[1]);
        assert_eq!(is_once, in_daemon);
        // What the server offers next is kept once as well.
        server.pretend(None);
        server.pretend(Some(items()));
        let [one, alike] = [one, alike].map(|mut view| {
            view.refresh(&face, &server);
            assert_names(&view, &face);
            view
        });
        assert_eq!(Arc::ptr_eq(&exposed(&one), &exposed(&alike)), in_daemon);
    }
}

proptest! {
    /// The first in the file has a name, whoever came first; the others are left out, never mixed up.
    #[test]
    fn where_the_first_in_the_file_wins_no_two_origins_share_a_name(steps in steps(), tools: bool) {
        let kind = if tools { Kind::Tool } else { Kind::Resource };
        follow(Clash::FirstInFile, kind, &steps, |view, face, offers| {
            let (mut expected, mut taken) = (BTreeSet::new(), HashSet::new());
            for (server, names) in offers.iter().enumerate() {
                for name in names.iter().flatten() {
                    let full = face.full_name(&Upstream::unreal(GROUPS[server], ""), kind, name);
                    if taken.insert(full) {
                        expected.insert((server.to_string().into(), name.clone()));
                    }
                }
            }
            assert_eq!(exposed(view, face, kind), expected);
        });
    }

    /// Every tool of every server that is up has a name of its own.
    #[test]
    fn where_the_later_one_is_renamed_no_two_tools_share_a_name(steps in steps()) {
        follow(Clash::Rename, Kind::Tool, &steps, |view, face, offers| {
            let all = offers.iter().enumerate().flat_map(|(server, names)| {
                names.iter().flatten().map(move |name| (server.to_string().into(), name.clone()))
            });
            assert_eq!(exposed(view, face, Kind::Tool), all.collect());
        });
    }
}

/// Two servers whose things would share a name: the first has it.
fn rivals(view: &mut View) -> [Arc<Upstream>; 2] {
    let face = Plain(Clash::Rename);
    [("a_b", "c"), ("a", "b_c")].map(|(group, name)| {
        let upstream = Upstream::unreal(group, "s");
        view.add(&face, std::slice::from_ref(&upstream));
        let named = |items: Items, kind| items.with(kind, Items::named(kind, &[name]));
        upstream.pretend(Some(named(named(Items::default(), Kind::Tool), Kind::Prompt)));
        view.refresh(&face, &upstream);
        view.open(group);
        upstream
    })
}

#[test]
fn a_name_that_is_free_again_goes_to_whoever_missed_it() {
    let face = Plain(Clash::Rename);
    for closed in [true, false] {
        let mut view = View::default();
        let [first, second] = rivals(&mut view);
        let leads_to = |view: &View, kind: Kind, name: &str| {
            view.find(kind, name).map(|target| target.upstream.group.to_string())
        };
        let listed_as = |view: &View| {
            let mut items = view.items(Kind::Tool);
            items.find(|(entry, _)| *entry.upstream.group == *"a").map(|(_, item)| item.name.clone())
        };
        let name = listed_as(&view).expect("it is listed");
        assert_ne!(&*name, "a_b_c");
        assert_eq!(leads_to(&view, Kind::Tool, "a_b_c").as_deref(), Some("a_b"));
        assert_eq!(view.items(Kind::Prompt).count(), 1);
        let before = Lists::of_legacy(&face, &view, None);
        match closed {
            true => view.remove(&face, "a_b"),
            false => {
                first.pretend(Some(Items::default()));
                view.refresh(&face, &first);
            }
        }
        let changed = notices(&before, &Lists::of_legacy(&face, &view, None));
        assert_names(&view, &face);
        for kind in [Kind::Tool, Kind::Prompt] {
            assert_eq!(leads_to(&view, kind, "a_b_c").as_deref(), Some("a"), "{kind:?}, closed: {closed}");
        }
        assert_eq!(listed_as(&view), Some(name), "a listed name stays");
        assert_eq!(view.items(Kind::Prompt).count(), 1);
        assert!(changed.contains(&Kind::Tool), "{changed:?}");
        // The first comes back: what is listed stays listed, and its tool has the plain name again.
        first.pretend(Some(Items::default().with(Kind::Tool, Items::named(Kind::Tool, &["c"]))));
        view.add(&face, std::slice::from_ref(&first));
        view.refresh(&face, &first);
        view.open("a_b");
        assert_eq!(leads_to(&view, Kind::Tool, "a_b_c").as_deref(), Some("a_b"));
        view.remove(&face, "a_b");
        assert_eq!(leads_to(&view, Kind::Tool, "a_b_c").as_deref(), Some("a"), "once more");
        drop(second);
    }
}

#[test]
fn groups_stand_in_the_order_of_opening_under_the_names_that_they_have() {
    let (face, mut view) = (Plain(Clash::Rename), View::default());
    let servers: Vec<_> = [("x", "1"), ("x", "2"), ("y", "1")]
        .map(|(group, server)| {
            let upstream = Upstream::unreal(group, server);
            let names = Items::named(Kind::Tool, &[&format!("t{server}"), "name.that.is.odd"]);
            upstream.pretend(Some(Items::default().with(Kind::Tool, names)));
            upstream
        })
        .into();
    view.add(&face, &servers);
    for (group, expected) in [("y", &["y1"][..]), ("x", &["y1", "x1", "x2"])] {
        view.open(group);
        let order: Vec<_> = view
            .entries()
            .filter(|entry| entry.is_listed())
            .map(|entry| format!("{}{}", entry.upstream.group, entry.upstream.server))
            .collect();
        assert_eq!(order, expected);
        exposed(&view, &face, Kind::Tool);
    }
    assert!(view.find_own("x", "2", "t2").is_some());
    servers[0].pretend(None);
    let before = Lists::of_legacy(&face, &view, None);
    assert!(view.refresh(&face, &servers[0]));
    assert_eq!(notices(&before, &Lists::of_legacy(&face, &view, None)), [Kind::Tool]);
}

#[test]
fn an_altered_name_does_not_depend_on_the_place_in_the_file() {
    let name = |server: &str| {
        let (face, upstream, mut view) =
            (Plain(Clash::FirstInFile), Upstream::unreal("a", server), View::default());
        upstream.pretend(Some(Items::default().with(Kind::Tool, Items::named(Kind::Tool, &["odd.name"]))));
        view.add(&face, &[upstream]);
        view.open("a");
        view.find(Kind::Tool, "a_odd.name").expect("it is exposed").name().clone()
    };
    assert_eq!(name("0"), name("1"));
}
