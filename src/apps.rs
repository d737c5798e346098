//! MCP Apps on the wire: what definitions and results say about apps, and the URIs under which hosts find
//! their pages here.
//!
//! A tool names the page of its app, a resource with the scheme `ui`, in `_meta`. Hosts insist on the scheme
//! and compare URIs, so a page keeps its scheme, and the names of its toolbox and server go into its path.
//! The catalog reads the marks of definitions here, views and faces make URIs, and the gateway's table of
//! methods changes results and contents.
//!
//! Invariant: only the three keys of `_meta` and the URIs of contents are ever changed, and a text without
//! them costs a search for two or three words.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;

use crate::json::{Node, Scanner, quote};
use crate::text::percent::encode;

/// The scheme of an app's page.
pub const SCHEME: &str = "ui://";

/// The keys of `_meta` that hold the URI of a page, besides `resourceUri` in `ui`.
const FLAT_KEYS: [&str; 2] = ["ui/resourceUri", "openai/outputTemplate"];

/// Whether a URI has the scheme of apps' pages.
pub fn is_page(uri: &str) -> bool {
    uri.starts_with(SCHEME)
}

/// A `ui` URI with the names of its place in its path. Without names, or with another scheme, the URI stays
/// as it is.
pub fn placed(uri: &str, place: &[&str]) -> String {
    match uri.strip_prefix(SCHEME) {
        Some(rest) => prefix(place) + rest,
        None => uri.to_owned(),
    }
}

/// The URI from which [`placed`] made this one.
pub fn unplaced(uri: &str, place: &[&str]) -> Option<String> {
    uri.strip_prefix(&prefix(place)).map(|rest| format!("{SCHEME}{rest}"))
}

fn prefix(place: &[&str]) -> String {
    place.iter().fold(SCHEME.to_owned(), |prefix, name| prefix + &encode(name) + "/")
}

/// What a tool's definition says about apps.
#[derive(Debug, PartialEq, Eq)]
pub struct Marks {
    /// The pages that the definition names, without duplicates.
    pub pages: Vec<Arc<str>>,
    /// Whether the tool is for apps and not for the model.
    pub is_app_only: bool,
}

impl Marks {
    /// Reads a definition; `None` if it says nothing about apps.
    pub fn read(definition: Node<'_>) -> Option<Self> {
        if !may_have_marks(definition.raw()) {
            return None;
        }
        let meta = definition.get("_meta")?;
        let mut pages: Vec<Arc<str>> = Vec::new();
        for (_, uri) in pages_in(meta) {
            if !pages.contains(&uri) {
                pages.push(uri);
            }
        }
        let is_app_only = is_app_only(meta);
        (is_app_only || !pages.is_empty()).then_some(Self { pages, is_app_only })
    }
}

/// Whether `_meta` lists who may call the tool, and the model is not among them.
fn is_app_only(meta: Node<'_>) -> bool {
    let visibility = meta.get("ui").and_then(|ui| ui.get("visibility")).filter(|list| list.is_array());
    visibility.is_some_and(|list| {
        let mut for_model = false;
        Scanner::default()
            .each_element(list, |who| for_model |= who.as_str().is_some_and(|who| who == "model"));
        !for_model
    })
}

/// The pages in `_meta`, each with its key. `None` stands for the one inside `ui`.
fn pages_in<'a>(meta: Node<'a>) -> impl Iterator<Item = (Option<&'static str>, Arc<str>)> + 'a {
    let nested = std::iter::once((None, meta.get("ui").and_then(|ui| ui.get("resourceUri"))));
    let flat = FLAT_KEYS.into_iter().map(move |key| (Some(key), meta.get(key)));
    nested.chain(flat).filter_map(|(key, uri)| {
        let uri = uri?.as_str().filter(|uri| is_page(uri))?;
        Some((key, uri.into()))
    })
}

/// The definition of a tool with its pages under the URIs that the client sees; `known` returns them.
pub fn exposed<'a>(definition: Cow<'a, str>, known: &mut dyn FnMut(&str) -> Arc<str>) -> Cow<'a, str> {
    if !may_name_page(&definition) {
        return definition;
    }
    let changed = {
        let mut scanner = Scanner::default();
        let node = scanner.scan_str(&definition).expect("definitions are valid JSON").root();
        exposed_meta(node, known).map(|meta| node.with(&[("_meta", Some(&meta))]))
    };
    changed.map_or(definition, Cow::Owned)
}

/// The `_meta` of a definition or result with its pages under the URIs that the client sees; `None` if it
/// names none.
pub fn exposed_meta(object: Node<'_>, known: &mut dyn FnMut(&str) -> Arc<str>) -> Option<String> {
    if !may_name_page(object.raw()) {
        return None;
    }
    let meta = object.get("_meta")?;
    let mut ui = None;
    let mut flat = Vec::new();
    for (key, uri) in pages_in(meta) {
        let uri = quote(&known(&uri));
        match key {
            Some(key) => flat.push((key, uri)),
            None => ui = Some(meta.get("ui")?.with(&[("resourceUri", Some(&uri))])),
        }
    }
    let nested = ui.as_ref().map(|ui| ("ui", Some(&**ui)));
    let changes: Vec<_> = flat.iter().map(|(key, uri)| (*key, Some(&**uri))).chain(nested).collect();
    (!changes.is_empty()).then(|| meta.with(&changes))
}

/// The contents read at `own`, with the URI that the client asked for in its place; `None` if nothing
/// changes.
///
/// Hosts compare the two URIs. Contents with another URI are something else, unless there is only one.
pub fn contents_as_asked(result: Node<'_>, own: &str, asked: &str) -> Option<String> {
    let contents = result.get("contents").filter(|contents| contents.is_array() && own != asked)?;
    let (mut texts, asked) = (Vec::new(), quote(asked));
    let count = {
        let mut count = 0;
        Scanner::default().each_element(contents, |_| count += 1);
        count
    };
    Scanner::default().each_element(contents, |content| {
        let uri = content.get("uri").and_then(Node::as_str);
        texts.push(match uri.is_some_and(|uri| count == 1 || uri == own) {
            true => content.with(&[("uri", Some(&asked))]),
            false => content.raw().to_owned(),
        });
    });
    Some(format!("[{}]", texts.join(",")))
}

/// Every definition or result that matters here has one of these words, and others seldom do. Servers may
/// escape slashes, so no word contains one.
static WORDS: LazyLock<[Finder<'static>; 3]> =
    LazyLock::new(|| ["resourceUri", "outputTemplate", "visibility"].map(Finder::new));

/// Whether a text may name a page.
fn may_name_page(text: &str) -> bool {
    WORDS[..2].iter().any(|word| word.find(text.as_bytes()).is_some())
}

/// Whether a definition may say anything about apps.
pub fn may_have_marks(text: &str) -> bool {
    WORDS.iter().any(|word| word.find(text.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_their_scheme_and_take_the_names_of_their_place() {
        for (uri, place, expected) in [
            ("ui://clock/page.html", &["dev", "fs"][..], "ui://dev/fs/clock/page.html"),
            ("ui://clock/page.html", &["my box/é", "a"], "ui://my%20box%2F%C3%A9/a/clock/page.html"),
            ("ui://clock/{id}", &["ev"], "ui://ev/clock/{id}"),
            ("ui://", &["ev"], "ui://ev/"),
            ("ui://clock", &[], "ui://clock"),
        ] {
            assert_eq!(placed(uri, place), expected);
            assert_eq!(unplaced(expected, place).as_deref(), Some(uri));
        }
        assert_eq!(placed("https://example.com/x", &["dev"]), "https://example.com/x");
        for uri in ["ui://dev/fs", "ui://dev/fsx/clock", "ui://Dev/fs/clock", "workbench://dev/fs/clock", ""]
        {
            assert_eq!(unplaced(uri, &["dev", "fs"]), None, "{uri}");
        }
    }

    #[test]
    fn definitions_say_which_pages_they_have_and_whom_they_are_for() {
        for (meta, pages, is_app_only) in [
            (r#"{"ui":{"resourceUri":"ui://a"}}"#, &["ui://a"][..], false),
            (r#"{"ui":{"resourceUri":"ui:\/\/a"},"ui\/resourceUri":"ui:\/\/a"}"#, &["ui://a"], false),
            (r#"{"ui/resourceUri":"ui://a","openai/outputTemplate":"ui://b"}"#, &["ui://a", "ui://b"], false),
            (r#"{"ui":{"resourceUri":"ui://a","visibility":["app"]}}"#, &["ui://a"], true),
            (r#"{"ui":{"visibility":[]}}"#, &[], true),
            (r#"{"ui":{"visibility":["other",{"a":["model"]},7]}}"#, &[], true),
        ] {
            let text = format!(r#"{{"name":"t","_meta":{meta}}}"#);
            let marks = Marks::read(Scanner::default().scan_str(&text).unwrap().root()).expect("it has some");
            assert_eq!(marks.pages.iter().map(|uri| &**uri).collect::<Vec<_>>(), pages, "{meta}");
            assert_eq!(marks.is_app_only, is_app_only, "{meta}");
        }
        for text in [
            r#"{"name":"t","_meta":{"ui":{"visibility":["model","app"]}}}"#,
            r#"{"name":"t","_meta":{"ui":{"visibility":"app"}}}"#,
            r#"{"name":"t","_meta":{"ui":{"resourceUri":"https://a"}}}"#,
            r#"{"name":"t","_meta":{"ui":{"resourceUri":7}}}"#,
            r#"{"name":"t","_meta":{"ui":[{"resourceUri":"ui://a"}]}}"#,
            r#"{"name":"t","_meta":7,"ui":{"resourceUri":"ui://a"}}"#,
            r#"{"name":"t","description":"resourceUri, visibility"}"#,
            r#"{"name":"t"}"#,
        ] {
            assert_eq!(Marks::read(Scanner::default().scan_str(text).unwrap().root()), None, "{text}");
        }
    }

    #[test]
    fn three_keys_are_changed_and_nothing_else() {
        for (given, expected) in [
            (
                r#"{ "x":1.10,"_meta":{"ui":{"b":1e400,"resourceUri":"ui://a/b","csp":{"resourceUri":"ui://no"}},"z":[]} }"#,
                r#"{"x":1.10,"_meta":{"ui":{"b":1e400,"resourceUri":"ui://p/a/b","csp":{"resourceUri":"ui://no"}},"z":[]}}"#,
            ),
            (
                r#"{"_meta":{"openai/outputTemplate":"ui://a","ui/resourceUri":"ui:\/\/b","resourceUri":"ui://no"}}"#,
                r#"{"_meta":{"openai/outputTemplate":"ui://p/a","ui/resourceUri":"ui://p/b","resourceUri":"ui://no"}}"#,
            ),
            // A text without a page stays as it is, white space included.
            (
                r#"{ "_meta":{"ui":{"resourceUri":"https://a"}} }"#,
                r#"{ "_meta":{"ui":{"resourceUri":"https://a"}} }"#,
            ),
            (r#"{ "text":"resourceUri ui://a" }"#, r#"{ "text":"resourceUri ui://a" }"#),
            (
                r#"{ "structuredContent":{"_meta":{"ui":{"resourceUri":"ui://a"}}} }"#,
                r#"{ "structuredContent":{"_meta":{"ui":{"resourceUri":"ui://a"}}} }"#,
            ),
            (r#"[{"_meta":{"ui/resourceUri":"ui://a"}}]"#, r#"[{"_meta":{"ui/resourceUri":"ui://a"}}]"#),
        ] {
            assert_eq!(exposed(given.into(), &mut |uri| placed(uri, &["p"]).into()), expected);
        }
    }

    #[test]
    fn what_was_read_has_the_uri_that_was_asked_for() {
        for (contents, expected) in [
            (
                r#"[{"uri":"ui://a","text":"ui://a","n":1.10}]"#,
                Some(r#"[{"uri":"ui://p/a","text":"ui://a","n":1.10}]"#),
            ),
            // A single content whose URI the server spells differently is what was asked for; among several
            // it is something else.
            (r#"[{"uri":"ui://a/"}]"#, Some(r#"[{"uri":"ui://p/a"}]"#)),
            (
                r#"[{"uri":"ui://a"},{"uri":"ui://a/"}, 7]"#,
                Some(r#"[{"uri":"ui://p/a"},{"uri":"ui://a/"},7]"#),
            ),
            (r#"[{"text":"x"}]"#, Some(r#"[{"text":"x"}]"#)),
            ("[]", Some("[]")),
            (r#"{"uri":"ui://a"}"#, None),
        ] {
            let text = format!(r#"{{"contents":{contents}}}"#);
            let mut scanner = Scanner::default();
            let node = scanner.scan_str(&text).unwrap().root();
            assert_eq!(contents_as_asked(node, "ui://a", "ui://p/a").as_deref(), expected);
            assert_eq!(contents_as_asked(node, "ui://a", "ui://a"), None, "{contents}");
        }
    }
}
