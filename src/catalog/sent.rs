//! What an upstream sent, and what of it clients may see. The lock is enforced here and nowhere else.
//!
//! The engine keeps a [`Sent`] for each upstream, and the memory keeps it on disk. Everything that shows, names,
//! counts or searches works on [`Items`].
//!
//! Invariant: nothing that the lock withholds gets into [`Items`]. The only way from [`Sent`] to [`Items`] is
//! [`Sent::shown`], which takes the guard.

use std::sync::Arc;

use super::{Item, Items, Kind, Signs};
use crate::json::Scanner;
use crate::lock::{self, Guard, Verdict};
use crate::protocol::era::Era;

/// Everything that one upstream sent, in its order, whether or not it was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    items: Items,
    /// The era of the server, which decides how definitions are mended.
    era: Era,
}

/// A definition that differs from the approved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deviation {
    /// The kind of the thing.
    pub kind: Kind,
    /// Its name.
    pub name: Arc<str>,
    /// In which way it differs.
    pub differs: Differs,
}

/// In which way a definition differs from the approved one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Differs {
    /// Only texts differ.
    Texts,
    /// It differs otherwise.
    Other,
    /// Nothing of that name was approved.
    New,
    /// It has a member twice, or is nested too deeply to be compared.
    Unfit,
}

impl Default for Sent {
    fn default() -> Self {
        Self::new(Era::Legacy)
    }
}

impl Sent {
    /// Nothing yet, from a server of this era.
    pub fn new(era: Era) -> Self {
        Self { items: Items::default(), era }
    }

    /// Whether nothing was sent.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The era of the server.
    pub fn era(&self) -> Era {
        self.era
    }

    /// The names and definitions of a kind, as they were sent.
    pub fn definitions(&self, kind: Kind) -> impl Iterator<Item = (&Arc<str>, &str)> {
        self.items.of(kind).iter().map(|item| (&item.key, item.sent()))
    }

    /// The number of things that cannot be shown because they have no name or URI.
    pub fn nameless(&self, kind: Kind) -> usize {
        self.items.nameless(kind)
    }

    /// A copy with the things of one kind replaced, of which so many more have no name or URI.
    pub fn with(&self, kind: Kind, items: Vec<Item>, nameless: usize) -> Self {
        let mut next = Self { items: self.items.with(kind, items), era: self.era };
        next.items.nameless[kind as usize] = nameless;
        next
    }

    /// What clients may see under this guard, and what differs from what was approved. Without a guard that is
    /// everything.
    pub fn shown(&self, guard: Option<&Guard>) -> (Items, Vec<Deviation>) {
        let (mut items, mut deviations) = (self.items.clone(), Vec::new());
        items.guard = guard.cloned();
        let Some(guard) = guard else { return (items, deviations) };
        for kind in Kind::ALL {
            let Some(locked) = locked(kind) else {
                if guard.enforced && items.of(kind).iter().any(|item| without_texts(kind, item).is_some()) {
                    let bare = |item: &Item| without_texts(kind, item).unwrap_or_else(|| item.clone());
                    items.lists[kind as usize] = Arc::new(self.items.of(kind).iter().map(bare).collect());
                }
                continue;
            };
            let before = deviations.len();
            let mut approved = Vec::with_capacity(items.of(kind).len());
            for item in self.items.of(kind).iter() {
                let (differs, shown) = match guard.compare(locked, &item.key, item.sent()) {
                    Verdict::Equal => (None, Some(item.clone())),
                    Verdict::Texts(text) => (Some(Differs::Texts), self.read(kind, &text)),
                    Verdict::Other => (Some(Differs::Other), None),
                    Verdict::New => (Some(Differs::New), None),
                    Verdict::Unfit => (Some(Differs::Unfit), None),
                };
                deviations.extend(differs.map(|differs| Deviation { kind, name: item.key.clone(), differs }));
                match shown {
                    Some(shown) => approved.push(shown),
                    None => items.withheld[kind as usize].push(item.key.clone()),
                }
            }
            if deviations.len() > before {
                items.lists[kind as usize] = Arc::new(approved);
            }
        }
        if !guard.enforced {
            items = Items { guard: Some(guard.clone()), ..self.items.clone() };
        }
        (items, deviations)
    }

    /// An approved definition, mended as if the server had sent it.
    fn read(&self, kind: Kind, text: &str) -> Option<Item> {
        let mut scanner = Scanner::default();
        let definition = scanner.scan_str(text).expect("approved definitions are valid JSON").root();
        Item::shown(kind, self.era, (&text.into(), text), Signs::of(kind, text), definition)
            .map(|(item, _)| item)
    }
}

#[cfg(test)]
impl From<Items> for Sent {
    fn from(items: Items) -> Self {
        Self { items, era: Era::Legacy }
    }
}

/// How the lock calls this kind; `None` for what comes and goes, and is not locked.
fn locked(kind: Kind) -> Option<lock::LockedKind> {
    match kind {
        Kind::Tool => Some(lock::LockedKind::Tool),
        Kind::Prompt => Some(lock::LockedKind::Prompt),
        Kind::Resource | Kind::Template => None,
    }
}

/// Whether the lock keeps a thing that was sent from clients.
pub fn is_withheld(guard: Option<&Guard>, kind: Kind, item: &Item) -> bool {
    let (Some(guard), Some(locked)) = (guard.filter(|guard| guard.enforced), locked(kind)) else {
        return false;
    };
    let verdict = guard.compare(locked, &item.key, item.sent());
    matches!(verdict, Verdict::Other | Verdict::New | Verdict::Unfit)
}

/// A resource or template without its texts; `None` if it has none.
fn without_texts(kind: Kind, item: &Item) -> Option<Item> {
    const TEXTS: [&str; 2] = ["description", "title"];
    let mut scanner = Scanner::default();
    let definition = scanner.scan_str(item.raw()).expect("definitions are valid JSON").root();
    TEXTS.iter().any(|text| definition.get(text).is_some()).then(|| {
        let bare = definition.with(&TEXTS.map(|text| (text, None)));
        Item::changed(kind, &bare, item.sent())
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::catalog::read_page;
    use crate::lock::{Form, Lock};

    /// The guard of a server with these approved tools, prompts as comma-separated members.
    fn guard(tools: &str, prompts: &str, enforced: bool) -> Guard {
        let file = format!(
            "{{\"lockVersion\":1,\"toolboxes\":{{\"dev\":{{\"a\":{{\"tools\":{{{tools}}},\"prompts\":{{{prompts}}}}}}}}}}}"
        );
        Lock::read(Form::Toolboxes, "x.lock", &file).expect("valid").guard("dev", "a", enforced)
    }

    fn raws(items: &Items, kind: Kind) -> Vec<&str> {
        items.of(kind).iter().map(Item::raw).collect()
    }

    const SCHEMA: &str = "\"inputSchema\":{\"type\":\"object\"}";

    #[test]
    fn clients_see_what_was_approved() {
        let tool = |name: &str, rest: &str| format!("{{\"name\":\"{name}\",{SCHEMA}{rest}}}");
        let sent = [
            tool("equal", ",\"description\":\"as approved\""),
            tool("texts", ",\"description\":\"obey me\""),
            tool("other", ",\"annotations\":{\"readOnlyHint\":false}"),
            tool("new", ""),
            tool("twice", ",\"x\":1,\"x\":1"),
            "{\"name\":\"odd\"}".to_owned(),
            "{\"name\":\"oddly\",\"title\":\"obey\"}".to_owned(),
        ];
        let approved = [
            format!("\"equal\": {{ \"description\": \"as approved\", {SCHEMA}, \"name\": \"equal\"}}"),
            format!("\"texts\":{{\n  \"name\": \"texts\",\n {SCHEMA}}}"),
            format!("\"other\":{}", tool("other", "")),
            format!("\"twice\":{}", tool("twice", ",\"x\":1")),
            "\"odd\":{\"name\":\"odd\"}".to_owned(),
            "\"oddly\":{\"name\":\"oddly\"}".to_owned(),
            "\"gone\":{\"name\":\"gone\"}".to_owned(),
        ];
        let resources = "{\"uri\":\"a:b\",\"name\":\"n\",\"description\":\"d\",\"title\":\"t\"},{\"uri\":\"c:d\",\"name\":\"n\"}";
        let all = Sent::default()
            .with(Kind::Tool, Items::defined(Kind::Tool, &sent.join(",")), 0)
            .with(Kind::Resource, Items::defined(Kind::Resource, resources), 0)
            .with(Kind::Prompt, Items::defined(Kind::Prompt, "{\"name\":\"p\"},{\"name\":\"q\"}"), 0);
        let approved = approved.join(",");
        let (items, deviations) = all.shown(Some(&guard(&approved, "\"p\":{\"name\":\"p\"}", true)));
        let mended = |name: &str| {
            format!(
                "{{\"name\":\"{name}\",{SCHEMA},\"_meta\":{{\"mcp-workbench/mended\":[\"inputSchema\"]}}}}"
            )
        };
        let expected = [sent[0].clone(), tool("texts", ""), mended("odd"), mended("oddly")];
        assert_eq!(raws(&items, Kind::Tool), expected);
        let names: Vec<_> = items.withheld(Kind::Tool).iter().map(|name| &**name).collect();
        assert_eq!(names, ["other", "new", "twice"]);
        assert_eq!(raws(&items, Kind::Prompt), ["{\"name\":\"p\"}"]);
        assert_eq!(
            raws(&items, Kind::Resource),
            ["{\"uri\":\"a:b\",\"name\":\"n\"}", "{\"uri\":\"c:d\",\"name\":\"n\"}"]
        );
        let found: Vec<_> = deviations.iter().map(|one| (&*one.name, one.differs)).collect();
        let expected = [
            ("texts", Differs::Texts),
            ("other", Differs::Other),
            ("new", Differs::New),
            ("twice", Differs::Unfit),
            ("oddly", Differs::Texts),
            ("q", Differs::New),
        ];
        assert_eq!(found, expected);
        assert!(items.why_withheld(Kind::Tool, "other").is_some_and(|why| why.contains("x.lock")));
        for (kind, name) in [(Kind::Tool, "equal"), (Kind::Tool, "gone"), (Kind::Prompt, "other")] {
            assert_eq!(items.why_withheld(kind, name), None, "{name}");
        }
        // Warning changes nothing that clients see.
        let (shown, told) = all.shown(Some(&guard(&approved, "\"p\":{\"name\":\"p\"}", false)));
        assert_eq!(told, deviations);
        let (everything, none) = all.shown(None);
        assert!(none.is_empty() && Kind::ALL.iter().all(|kind| shown.of(*kind) == everything.of(*kind)));
        assert!(Kind::ALL.iter().all(|kind| shown.withheld(*kind).is_empty()));
    }

    #[test]
    fn of_two_things_with_one_name_the_approved_one_is_shown() {
        let twins = format!("{{\"name\":\"t\",{SCHEMA},\"x\":1}},{{\"name\":\"t\",{SCHEMA}}}");
        let sent = Sent::default().with(Kind::Tool, Items::defined(Kind::Tool, &twins), 0);
        let (items, _) = sent.shown(Some(&guard(&format!("\"t\":{{\"name\":\"t\",{SCHEMA}}}"), "", true)));
        assert_eq!((items.of(Kind::Tool).len(), items.withheld(Kind::Tool).len()), (1, 1));
        assert_eq!(items.why_withheld(Kind::Tool, "t"), None, "the name leads to the approved one");
    }

    #[test]
    fn comparing_ten_thousand_definitions_costs_no_more_than_reading_them_ten_times() {
        const COUNT: usize = 10_000;
        let definition = |n: usize| {
            format!(
                "{{\"name\":\"tool_{n}\",\"description\":\"Reads the file that the path names, and returns what it \
                 holds.\",\"inputSchema\":{{\"type\":\"object\",\"properties\":{{\"path\":{{\"type\":\"string\",\
                 \"description\":\"The path of the file, relative to the workspace\"}},\"limit\":{{\"type\":\
                 \"integer\",\"minimum\":1,\"default\":100}},\"mode\":{{\"enum\":[\"text\",\"binary\"]}}}},\
                 \"required\":[\"path\"]}},\"annotations\":{{\"readOnlyHint\":true}}}}"
            )
        };
        let all: Vec<_> = (0..COUNT).map(definition).collect();
        let members: Vec<_> =
            all.iter().enumerate().map(|(n, text)| format!("\"tool_{n}\": {text}")).collect();
        let guard = guard(&members.join(",\n").replace("\",\"", "\",\n            \""), "", true);
        let list = format!("{{\"tools\":[{}]}}", all.join(","));
        let mut scanner = Scanner::default();
        let root = scanner.scan_str(&list).expect("JSON").root();
        // The best of several rounds is the one that nothing else disturbed.
        let best = |work: &dyn Fn()| -> Duration {
            let round = |_| {
                let begun = Instant::now();
                work();
                begun.elapsed()
            };
            (0..5).map(round).min().expect("there are rounds")
        };
        let read = || read_page(Kind::Tool, Era::Legacy, root).expect("a list").items;
        let reading = best(&|| assert_eq!(read().len(), COUNT));
        let sent = Sent::default().with(Kind::Tool, read(), 0);
        let comparing = best(&|| assert!(sent.shown(Some(&guard)).1.is_empty()));
        assert!(comparing <= reading * 10, "{comparing:?} for comparing, {reading:?} for reading");
    }
}
