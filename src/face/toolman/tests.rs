use super::*;
use crate::catalog::Items;
use crate::core::notices::{Lists, notices};
use proptest::prelude::*;

const LOOK: Look = Look { from_start: false, as_host: false, takes: None };

fn toolman(text: &str) -> Toolman {
    let loaded = config::load_toolman(
        std::path::Path::new("tools.toml"),
        text.as_bytes(),
        &config::Inputs::of(&|_| None),
    );
    Toolman::new(loaded.expect("a valid file").0)
}

/// Two servers, `a` and one without a prefix.
fn view(face: &Toolman) -> View {
    let mut view = View::default();
    let servers = [
        ("a", &["read", "write", "odd.name"][..], &["x://1", "x://2"][..], &["x://{id}"][..]),
        ("", &["plain"], &["y://[1]"], &[]),
    ];
    for (namespace, tools, resources, templates) in servers {
        let items = [(Kind::Tool, tools), (Kind::Resource, resources), (Kind::Template, templates)];
        let items = items
            .into_iter()
            .fold(Items::default(), |items, (kind, names)| items.with(kind, Items::named(kind, names)));
        let upstream = Upstream::unreal(namespace, "0");
        upstream.pretend(Some(items));
        view.add(face, &[upstream]);
        view.open(namespace);
    }
    view
}

/// The full names of what is active: tools, resources.
fn active(view: &View) -> [Vec<String>; 2] {
    [&[Kind::Tool][..], &[Kind::Resource, Kind::Template]].map(|kinds| {
        let items = kinds.iter().flat_map(|kind| view.items(*kind).map(|(_, item)| (*kind, item)));
        let mut names: Vec<_> = items
            .filter(|(kind, item)| view.is_active(*kind, item))
            .map(|(_, item)| item.full_name().to_string())
            .collect();
        names.sort();
        names
    })
}

const TOOLS: [&str; 4] = ["a_read", "a_write", "a_odd.name", "plain"];
const RESOURCES: [&str; 4] = ["a_x://1", "a_x://2", "a_x://{id}", "y://[1]"];
/// Every entry that a list may have, and which of the four tools or four resources it stands for.
const ENTRIES: [[(&str, &[usize]); 8]; 2] = [
    [
        ("a_read", &[0]),
        ("a_write", &[1]),
        ("a_odd.name", &[2]),
        ("plain", &[3]),
        ("a_*", &[0, 1, 2]),
        ("*", &[0, 1, 2, 3]),
        ("?[!_]*", &[3]),
        ("none", &[]),
    ],
    [
        ("a_x://1", &[0]),
        ("a_x://2", &[1]),
        ("a_x://{id}", &[2]),
        ("y://[1]", &[3]),
        ("a_x://?", &[0, 1]),
        ("*", &[0, 1, 2, 3]),
        ("[!a]*", &[3]),
        ("a_x://3", &[]),
    ],
];

proptest! {
    /// Any sequence of calls has the effect of a set of switches that changes as a whole or not at all.
    #[test]
    fn activation_equals_a_simple_model(
        calls in prop::collection::vec([(); 4].map(|()| prop::collection::vec(0..8usize, 0..3)), 1..12)
    ) {
        let face = toolman("active_toolsets = ['a_[rw]*', '*1*']");
        let mut view = view(&face);
        let mut model = [[true, true, false, false], [true, false, false, true]];
        for lists in calls {
            // The lists: tools on, tools off, resources on, resources off.
            let named = |list: usize| lists[list].iter().map(move |entry| &ENTRIES[list / 2][*entry]);
            let texts = |list| named(list).map(|(text, _)| (*text).to_owned()).collect();
            let switches = Switches {
                tools_on: texts(0), tools_off: texts(1), resources_on: texts(2), resources_off: texts(3),
            };
            let meant = |list| named(list).flat_map(|(_, which)| which.iter().copied()).collect::<HashSet<_>>();
            let sound = lists.iter().any(|list| !list.is_empty())
                && (0..4).all(|list| named(list).all(|(_, which)| !which.is_empty()))
                && meant(0).is_disjoint(&meant(1))
                && meant(2).is_disjoint(&meant(3));
            let before = model;
            let change = face.resolve(&view, &switches, LOOK);
            prop_assert_eq!(change.is_ok(), sound, "{:?}", switches);
            if let Ok(change) = change {
                for (class, states) in model.iter_mut().enumerate() {
                    meant(2 * class).into_iter().for_each(|which| states[which] = true);
                    meant(2 * class + 1).into_iter().for_each(|which| states[which] = false);
                }
                let shown = Lists::of_legacy(&face, &view, None);
                view.switch(&change.on, &change.off);
                let changed = notices(&shown, &Lists::of_legacy(&face, &view, None));
                prop_assert_eq!(changed.contains(&Kind::Tool), before != model, "the catalog marks what is active");
                let resources = [Kind::Resource, Kind::Template].iter().any(|kind| changed.contains(kind));
                prop_assert_eq!(resources, before[1] != model[1]);
            }
            let expected = [TOOLS, RESOURCES].into_iter().zip(model).map(|(names, states)| {
                let on = names.iter().zip(states).filter(|(_, on)| *on);
                let mut on: Vec<_> = on.map(|(name, _)| (*name).to_owned()).collect();
                on.sort();
                on
            });
            prop_assert_eq!(active(&view).to_vec(), expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_description_begins_with_what_matters_if_it_is_cut_off() {
    let face = toolman("active_toolsets = ['a_read']");
    let tool: serde_json::Value =
        serde_json::from_str(&face.activate_tool(&view(&face), LOOK)).expect("JSON");
    let expected = r#"Switches tools and resources on and off; only active ones (marked * below) can be used. If the catalog below is cut off, call this with four empty lists to see all of it.
A name may be a pattern: "a_*" is all of a. Example: {"tools_on": ["a_read"], "tools_off": [], "resources_on": [], "resources_off": []}

Servers: a_* (3 tools, 3 resources), without prefix (1 tool, 1 resource)

Tools:
* a_read
a_write
a_odd_name_b5355ee6
plain

Resources:
a_x://1
a_x://2
y://[1]
a_x://{id}"#;
    assert_eq!(tool["description"], expected);
}

#[test]
fn four_empty_lists_show_the_catalog_as_the_client_knows_it() {
    let face = toolman("active_toolsets = ['a_read']");
    let mut view = view(&face);
    view.switch(&[vec!["a_write".into()], Vec::new()], &[vec!["a_read".into()], Vec::new()]);
    let [tools_on, tools_off, resources_on, resources_off] = [const { Vec::new() }; 4];
    let nothing = Switches { tools_on, tools_off, resources_on, resources_off };
    for (modern, marked) in [(false, "* a_write"), (true, "* a_read")] {
        let error =
            face.resolve(&view, &nothing, Look { from_start: modern, ..LOOK }).err().unwrap_or_default();
        let rows: Vec<_> = error.lines().filter(|line| line.starts_with('*')).collect();
        assert_eq!(rows, [marked], "modern: {modern}");
    }
}

#[test]
fn the_servers_are_shown_as_patterns_that_match() {
    for (text, expected) in [
        ("", "Servers: a_* (3 tools, 3 resources), without prefix (1 tool, 1 resource)"),
        (
            "resource_separator = '+'",
            "Servers: a_* (3 tools), a+* (3 resources), without prefix (1 tool, 1 resource)",
        ),
    ] {
        let face = toolman(text);
        assert_eq!(face.catalog(&view(&face), LOOK).lines().next(), Some(expected));
    }
}
