//! What upstreams offer (tools, resources, templates, prompts), and how it is shown to clients.
//!
//! `core` reads an upstream's lists into [`Sent`], once. Only [`Sent::shown`] makes [`Items`] of it, under the
//! lock; `core/names.rs` gives these names and makes an [`Exposed`], which views and faces render.

mod exposed;
mod json_schema;
pub mod mend;
mod names;
mod sent;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub use self::exposed::{Exposed, ExposedItem, KindItems, Prints, Rendered, without_output_schema};
use self::mend::{Conformance, MENDED, may_have_escapes, mend};
pub use self::names::{NameLimits, is_marked, nearest};
pub use self::sent::{Deviation, Differs, Sent, is_withheld};
use crate::apps::{Marks, is_page, may_have_marks};
use crate::json::{Duplicate, Node, Scanner};
use crate::lock::Guard;
use crate::protocol::era::Era;
use crate::protocol::tool_headers::may_mark;

/// A kind of thing that a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `tools/list`
    Tool,
    /// `resources/list`
    Resource,
    /// `resources/templates/list`
    Template,
    /// `prompts/list`
    Prompt,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Resource, Self::Template, Self::Prompt];

    /// The method that lists this kind.
    pub fn list_method(self) -> &'static str {
        match self {
            Self::Tool => "tools/list",
            Self::Resource => "resources/list",
            Self::Template => "resources/templates/list",
            Self::Prompt => "prompts/list",
        }
    }

    /// The member of a list's result that holds the things.
    pub fn list_key(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Resource => "resources",
            Self::Template => "resourceTemplates",
            Self::Prompt => "prompts",
        }
    }

    /// The noun for one thing of this kind.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Template => "resource template",
            Self::Prompt => "prompt",
        }
    }

    /// The member by which a client addresses a thing.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt => "name",
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
        }
    }

    /// The capability that a server with such things declares.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Resource | Self::Template => "resources",
            Self::Prompt => "prompts",
        }
    }

    /// The notification that the list has changed.
    pub fn changed_method(self) -> &'static str {
        match self {
            Self::Tool => "notifications/tools/list_changed",
            Self::Resource | Self::Template => "notifications/resources/list_changed",
            Self::Prompt => "notifications/prompts/list_changed",
        }
    }
}

/// One thing as its upstream defined it, or its mended definition. It is a slice of the page that it came in,
/// which is kept once.
#[derive(Clone)]
pub struct Item {
    page: Arc<str>,
    raw: PageSpan,
    raw_key: PageSpan,
    /// The definition as the upstream sent it, before it was mended.
    sent: PageSpan,
    /// The raw values of `description` and `_meta`, empty where there is none.
    description: PageSpan,
    meta: PageSpan,
    /// Whether a member that faces change stands there twice, perhaps in another case.
    repeats: bool,
    /// Whether a tool's parameters may be mirrored into headers.
    mirrors: bool,
    /// The decoded name or URI.
    pub key: Arc<str>,
    /// What a tool's definition says about apps, if it says anything.
    marks: Option<Arc<Marks>>,
}

/// What a page of definitions may say at all. It is looked for once in the whole page: in each of many short
/// definitions that would take longer than to read them.
#[derive(Clone, Copy)]
struct Signs {
    of_apps: bool,
    of_mirrored: bool,
    of_escapes: bool,
}

impl Signs {
    fn of(kind: Kind, page: &str) -> Self {
        let is_tool = kind == Kind::Tool;
        Self {
            of_apps: is_tool && may_have_marks(page),
            of_mirrored: is_tool && may_mark(page),
            of_escapes: may_have_escapes(page),
        }
    }
}

const DESCRIPTION: &str = "description";
const META: &str = "_meta";

/// A range of a page. Pages are messages, which are never longer than 32 bits can count.
type PageSpan = Range<u32>;

impl Item {
    /// A definition that can be shown, which is a part of `text`; `page` is a copy of `text`, and has these signs.
    fn new(kind: Kind, page: &Arc<str>, text: &str, signs: Signs, definition: Node<'_>) -> Self {
        let place = |part: &str| {
            let start = part.as_ptr().addr() - text.as_ptr().addr();
            start as u32..(start + part.len()) as u32
        };
        let keys = [kind.key(), DESCRIPTION, META];
        let (members, repeats) = match definition.all_unique(keys) {
            Ok(members) => ([0, 1, 2].map(|place| members.get(place)), false),
            Err(Duplicate) => (keys.map(|key| definition.get(key)), true),
        };
        let [key, description, meta] = members;
        let [description, meta] =
            [description, meta].map(|member| member.map_or(0..0, |own| place(own.raw())));
        let key = key.expect("what has no key is withheld");
        let (raw, raw_key) = (place(definition.raw()), place(key.raw()));
        let key = key.as_str().expect("as is what has an odd one").into();
        let marks = if signs.of_apps { Marks::read(definition).map(Arc::new) } else { None };
        let mirrors = signs.of_mirrored && may_mark(definition.raw());
        let (page, sent) = (page.clone(), raw.clone());
        Self { page, raw, raw_key, sent, description, meta, repeats, mirrors, key, marks }
    }

    /// What is shown of a definition, which is a part of `text`, and whether it had to be mended; `page` is a copy
    /// of `text`, and has these signs. `None`: it has no name or URI.
    fn shown(
        kind: Kind,
        era: Era,
        (page, text): (&Arc<str>, &str),
        signs: Signs,
        definition: Node<'_>,
    ) -> Option<(Self, bool)> {
        match mend(kind, era, signs.of_escapes, definition) {
            Conformance::Fits => Some((Self::new(kind, page, text, signs, definition), false)),
            Conformance::Withheld => None,
            Conformance::Mended(mended, _) => Some((Self::changed(kind, &mended, definition.raw()), true)),
        }
    }

    /// A definition that is shown in another form than it was sent in.
    fn changed(kind: Kind, shown: &str, sent: &str) -> Self {
        let mut scanner = Scanner::default();
        let definition = scanner.scan_str(shown).expect("written as JSON").root();
        let page = [shown, sent].concat();
        let sent = shown.len() as u32..page.len() as u32;
        Self { sent, ..Self::new(kind, &page.into(), shown, Signs::of(kind, shown), definition) }
    }

    /// The names of the mended members.
    pub fn mended(&self) -> Vec<String> {
        let mut scanner = Scanner::default();
        let definition = scanner.scan_str(self.raw()).expect("definitions are valid JSON").root();
        let list = definition.get("_meta").and_then(|meta| meta.get(MENDED));
        list.and_then(|list| serde_json::from_str(list.raw()).ok()).unwrap_or_default()
    }

    /// The whole definition.
    pub fn raw(&self) -> &str {
        &self.page[self.raw.start as usize..self.raw.end as usize]
    }

    /// The whole definition as the upstream sent it, before it was mended.
    pub fn sent(&self) -> &str {
        &self.page[self.sent.start as usize..self.sent.end as usize]
    }

    /// The parts of the definition before and after its name or URI, which clients see replaced.
    fn around_key(&self) -> [&str; 2] {
        [self.raw.start..self.raw_key.start, self.raw_key.end..self.raw.end]
            .map(|part| &self.page[part.start as usize..part.end as usize])
    }

    /// Whether both are the same slice of the same page.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.page, &other.page) && self.raw == other.raw
    }

    /// The name or URI as the upstream spelled it in JSON.
    pub fn raw_key(&self) -> &str {
        &self.page[self.raw_key.start as usize..self.raw_key.end as usize]
    }

    /// Whether parameters of this tool may be mirrored into headers.
    pub fn mirrors(&self) -> bool {
        self.mirrors
    }

    /// Whether this is a tool with an app.
    pub fn has_app(&self) -> bool {
        self.marks.is_some()
    }

    /// Whether this is a tool for apps only, which models do not see.
    pub fn is_app_only(&self) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.is_app_only)
    }

    /// Whether hosts of apps need this item, active or not, while models do not.
    pub fn is_for_hosts(&self) -> bool {
        self.is_app_only() || is_page(&self.key)
    }

    /// The pages of apps that this item names, or the page that it is itself.
    pub fn pages(&self) -> impl Iterator<Item = &Arc<str>> {
        let named = self.marks.iter().flat_map(|marks| &marks.pages);
        named.chain(is_page(&self.key).then_some(&self.key))
    }
}

/// A definition that a face renders. The places of the members that faces change are known, so that it is not read again.
#[derive(Clone, Copy)]
pub struct Definition<'a> {
    kind: Kind,
    item: &'a Item,
}

impl<'a> Definition<'a> {
    /// The whole definition.
    pub fn raw(self) -> &'a str {
        self.item.raw()
    }

    /// The decoded name or URI.
    pub fn key(self) -> &'a str {
        &self.item.key
    }

    /// The raw name or URI.
    pub fn raw_key(self) -> &'a str {
        self.item.raw_key()
    }

    /// The raw description.
    pub fn description(self) -> Option<&'a str> {
        self.part(&self.item.description)
    }

    /// The raw `_meta`.
    pub fn meta(self) -> Option<&'a str> {
        self.part(&self.item.meta)
    }

    fn part(self, place: &PageSpan) -> Option<&'a str> {
        let part = &self.item.page[place.start as usize..place.end as usize];
        Some(part).filter(|part| !part.is_empty())
    }

    /// Appends the definition with another name or URI, a raw value that is the sum of its parts.
    pub fn write_named(self, out: &mut Vec<u8>, key: &[&str]) {
        self.write_with(out, [Change { key: self.kind.key(), place: &self.item.raw_key, parts: key }]);
    }

    /// Appends a tool's definition with another name, description and `_meta`. Each raw value is the sum of its parts.
    pub fn write_tool(self, out: &mut Vec<u8>, name: &[&str], description: &[&str], meta: &[&str]) {
        let changes = [
            Change { key: self.kind.key(), place: &self.item.raw_key, parts: name },
            Change { key: DESCRIPTION, place: &self.item.description, parts: description },
            Change { key: META, place: &self.item.meta, parts: meta },
        ];
        self.write_with(out, changes);
    }

    /// Appends the definition with members set, as [`Node::write_with`] does, but with its line breaks.
    fn write_with<const MEMBERS: usize>(self, out: &mut Vec<u8>, mut changes: [Change<'_>; MEMBERS]) {
        let Item { page, raw, repeats, .. } = self.item;
        if *repeats {
            let values = changes.map(|change| (change.key, change.parts.concat()));
            let mut scanner = Scanner::default();
            let definition = scanner.scan_str(self.item.raw()).expect("definitions are valid JSON").root();
            return definition.write_with(out, &values.each_ref().map(|(key, value)| (*key, Some(&**value))));
        }
        let (page, mut at) = (page.as_bytes(), raw.start as usize);
        changes.sort_by_key(|change| change.place.start);
        for Change { place, parts, .. } in changes.iter().filter(|change| !change.place.is_empty()) {
            out.extend_from_slice(&page[at..place.start as usize]);
            parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
            at = place.end as usize;
        }
        // Before the brace that ends it come the members that it did not have.
        out.extend_from_slice(&page[at..raw.end as usize - 1]);
        for Change { key, parts, .. } in changes.iter().filter(|change| change.place.is_empty()) {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(b"\":");
            parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        }
        out.push(b'}');
    }
}

/// A member of a definition that is written otherwise than it stands there.
#[derive(Clone, Copy)]
struct Change<'a> {
    key: &'static str,
    /// Its value's place, empty if the definition has no such member.
    place: &'a PageSpan,
    /// The new raw value is the sum of these.
    parts: &'a [&'a str],
}

/// Items are equal if their definitions are.
impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        let as_sent = |item: &Self| item.sent == item.raw;
        self.raw() == other.raw() && (as_sent(self) && as_sent(other) || self.sent() == other.sent())
    }
}

impl Eq for Item {}

impl fmt::Debug for Item {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.raw())
    }
}

/// Everything of one upstream that clients may see, in its order.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub struct Items {
    lists: [Arc<Vec<Item>>; 4],
    nameless: [usize; 4],
    /// The names of the things that the lock keeps from clients.
    withheld: [Vec<Arc<str>>; 4],
    /// What decided which things clients may see.
    guard: Option<Guard>,
}

impl Items {
    /// The things of this kind.
    pub fn of(&self, kind: Kind) -> &Arc<Vec<Item>> {
        &self.lists[kind as usize]
    }

    /// Whether there is nothing that clients may see.
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(|list| list.is_empty())
    }

    /// The number of things that cannot be shown because they have no name or URI.
    pub fn nameless(&self, kind: Kind) -> usize {
        self.nameless[kind as usize]
    }

    /// The names of the things that the lock keeps from clients.
    pub fn withheld(&self, kind: Kind) -> &[Arc<str>] {
        &self.withheld[kind as usize]
    }

    /// What decided which things clients may see.
    pub fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// Why the lock keeps the thing of this name from clients, if it does.
    pub fn why_withheld(&self, kind: Kind, name: &str) -> Option<String> {
        let is_shown = self.of(kind).iter().any(|item| &*item.key == name);
        let is_withheld = !is_shown && self.withheld(kind).iter().any(|withheld| &**withheld == name);
        self.guard.as_ref().filter(|_| is_withheld).map(Guard::reason)
    }

    /// Minimal things with these names or URIs.
    #[cfg(test)]
    pub(crate) fn named(kind: Kind, names: &[&str]) -> Vec<Item> {
        let needed = match kind {
            Kind::Tool => ",\"inputSchema\":{\"type\":\"object\"}",
            Kind::Resource | Kind::Template => ",\"name\":\"\"",
            Kind::Prompt => "",
        };
        let item = |name: &&str| format!("{{\"{}\":{}{needed}}}", kind.key(), crate::json::quote(name));
        Self::defined(kind, &names.iter().map(item).collect::<Vec<_>>().join(","))
    }

    /// Things with these comma-separated definitions.
    #[cfg(test)]
    pub(crate) fn defined(kind: Kind, definitions: &str) -> Vec<Item> {
        let text = format!("{{\"{}\":[{definitions}]}}", kind.list_key());
        read_page(kind, Era::Legacy, Scanner::default().scan_str(&text).unwrap().root()).unwrap().items
    }

    /// A copy with the things of one kind replaced.
    pub fn with(&self, kind: Kind, items: Vec<Item>) -> Self {
        let mut next = self.clone();
        next.lists[kind as usize] = Arc::new(items);
        next.nameless[kind as usize] = 0;
        next
    }
}

/// One page of a list.
#[derive(Debug)]
pub struct Page {
    /// The things in order, each fit to be shown.
    pub items: Vec<Item>,
    /// The number of things that were left out because they have no name or URI.
    pub nameless: usize,
    /// The indexes in `items` of the mended ones.
    pub mended: Vec<usize>,
    /// The raw cursor of the next page.
    pub next: Option<String>,
}

/// Reads the result of a list request to a server of this era.
pub fn read_page(kind: Kind, era: Era, result: Node<'_>) -> Result<Page, String> {
    let list = result.get(kind.list_key()).filter(|list| list.is_array());
    let list = list
        .ok_or_else(|| format!("answered `{}` without a list of {}", kind.list_method(), kind.list_key()))?;
    let next = result.get("nextCursor").filter(|node| node.is_string()).map(|node| node.raw().to_owned());
    let text: Arc<str> = list.raw().into();
    let signs = Signs::of(kind, &text);
    let mut page = Page { items: Vec::new(), nameless: 0, mended: Vec::new(), next };
    Scanner::default().each_element(list, |definition| {
        match Item::shown(kind, era, (&text, list.raw()), signs, definition) {
            None => page.nameless += 1,
            Some((item, mended)) => {
                page.mended.extend(mended.then_some(page.items.len()));
                page.items.push(item);
            }
        }
    });
    page.items.shrink_to_fit();
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::unbreak;

    #[test]
    fn pages_keep_definitions_as_they_came() {
        let read =
            |kind, text| read_page(kind, Era::Legacy, Scanner::default().scan_str(text).unwrap().root());
        let page = read(
            Kind::Tool,
            r#"{"tools":[ {"x":12345678901234567890.10,"name":"a\u0062","inputSchema":{"type":"object"}} , {"description":"no name"},{"name":7},8,
                {"new":1.10,"name":"odd"} ],"nextCursor":"c\"1"}"#,
        )
        .unwrap();
        assert_eq!(page.items.len(), 2);
        assert_eq!(&*page.items[0].key, "ab");
        let came = r#"{"x":12345678901234567890.10,"name":"a\u0062","inputSchema":{"type":"object"}}"#;
        assert_eq!(page.items[0].raw(), came);
        assert_eq!((page.nameless, page.next.as_deref()), (3, Some(r#""c\"1""#)));
        assert_eq!((page.mended, page.items[0].mended()), (vec![1], vec![]));
        let (odd, mended) = (&page.items[1], r#"{"mcp-workbench/mended":["inputSchema"]}"#);
        let shown =
            format!(r#"{{"new":1.10,"name":"odd","inputSchema":{{"type":"object"}},"_meta":{mended}}}"#);
        assert_eq!((odd.raw(), odd.raw_key(), &*odd.key), (&*shown, "\"odd\"", "odd"));
        assert_eq!(odd.mended(), ["inputSchema"]);
        assert_eq!((odd.sent(), page.items[0].sent()), (r#"{"new":1.10,"name":"odd"}"#, came));
        assert_eq!(page.items[0].raw_key(), r#""a\u0062""#);
        assert_eq!(read(Kind::Tool, r#"{"tools":[ ]}"#).unwrap().items, []);
        assert_eq!(
            read(Kind::Prompt, "{}").unwrap_err(),
            "answered `prompts/list` without a list of prompts"
        );
    }

    #[test]
    fn what_is_rendered_from_places_is_what_would_be_rendered_from_a_reading() {
        // White space inside the braces stays, where a reading would leave it out.
        let bare = |mut out: Vec<u8>| {
            unbreak(&mut out);
            String::from_utf8(out).unwrap().replace(' ', "")
        };
        for definition in [
            r#"{"name":"a","inputSchema":{}}"#,
            r#"{"_meta":{"x":1},"description":"d","name":"a"}"#,
            r#"{"description":"d","name":"a","_meta":{}}"#,
            r#"{ "inputSchema" : { "description" : "not this one" } , "name" : "a" }"#,
            "{\n  \"name\": \"a\",\r\n  \"description\": \"d\"\n}",
            r#"{"n\u0061me":"a","description":"d"}"#,
            r#"{"name":"a","x":1,"name":"b"}"#,
            r#"{"name":"a","Description":"c","description":"d"}"#,
            r#"{"name":"a","_meta":{},"_meta":{"x":1}}"#,
        ] {
            let mut scanner = Scanner::default();
            let node = scanner.scan_str(definition).unwrap().root();
            let signs = Signs::of(Kind::Tool, definition);
            let item = Item::new(Kind::Tool, &definition.into(), definition, signs, node);
            let place = Definition { kind: Kind::Tool, item: &item };
            let (mut out, mut expected) = (Vec::new(), Vec::new());
            place.write_tool(&mut out, &["\"", "n\""], &["\"e\""], &["{", "}"]);
            node.write_with(
                &mut expected,
                &[("name", Some("\"n\"")), ("description", Some("\"e\"")), ("_meta", Some("{}"))],
            );
            assert_eq!(bare(out), bare(expected), "{definition}");
            let raw = |key| node.get(key).map(Node::raw);
            assert_eq!((place.description(), place.meta()), (raw("description"), raw("_meta")));
            let (mut out, mut expected) = (Vec::new(), Vec::new());
            place.write_named(&mut out, &["\"n\""]);
            node.write_with(&mut expected, &[("name", Some("\"n\""))]);
            assert_eq!(bare(out), bare(expected), "{definition}");
        }
    }

    #[test]
    fn what_one_tool_of_a_page_says_is_said_of_that_tool_alone() {
        let schema = r#""inputSchema":{"type":"object""#;
        let tools = Items::defined(
            Kind::Tool,
            &format!(
                r#"{{"name":"plain",{schema}}}}},{{"name":"app",{schema}}},"_meta":{{"ui":{{"visibility":["app"]}}}}}},
                {{"name":"mirror",{schema},"properties":{{"a":{{"type":"string","x-mcp-header":"A"}}}}}}}}"#
            ),
        );
        let said: Vec<_> = tools.iter().map(|tool| (tool.is_app_only(), tool.mirrors())).collect();
        assert_eq!(said, [(false, false), (true, false), (false, true)]);
    }

    #[test]
    fn a_rendered_list_is_one_line() {
        let mut exposed = Exposed::default();
        for item in Items::defined(Kind::Prompt, "{\n\"name\":\"a\"},{\"name\":\"b\",\r\n\"title\":\"\"}") {
            exposed.push(Kind::Prompt, &item, "n".into(), None, true);
        }
        let things = exposed.of(Kind::Prompt);
        let rendered = Rendered::new(things, Kind::Prompt, |_, definition, out| {
            definition.write_named(out, &["\"n\""]);
        });
        assert_eq!(rendered.text(), r#"{ "name":"n"},{"name":"n",  "title":""}"#);
    }
}
