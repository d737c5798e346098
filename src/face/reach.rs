//! Where names and URIs lead in a view. All faces resolve resources, pages and prompts through these
//! functions.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use super::{Viewer, uri_template};
use crate::apps::{is_page, placed, unplaced};
use crate::catalog::{ExposedItem, Kind, nearest};
use crate::core::upstream::Upstream;
use crate::core::view::{Entry, Exposure, Target, View};
use crate::json::quote;
use crate::text::listed;

/// The template that fits a URI most closely. Among equally close ones an active template wins, then the
/// first.
pub(super) fn closest_template<'a>(view: &'a View, uri: &str) -> Option<(&'a Entry, &'a ExposedItem)> {
    let all = view.items(Kind::Template);
    let fitting = all.filter_map(|(entry, item)| Some((uri_template::fit(&item.name, uri)?, entry, item)));
    let closest = fitting.min_by_key(|(fit, _, item)| Reverse((*fit, view.is_active(Kind::Template, item))));
    closest.map(|(_, entry, item)| (entry, item))
}

/// The upstream, and its own URI as JSON: the exposed `uri` without the upstream's prefix, in whichever
/// spelling.
pub(super) fn own_uri(face: &dyn Exposure, upstream: &Arc<Upstream>, uri: &str) -> (Arc<Upstream>, String) {
    let prefixes = prefixes(face, upstream);
    let own = prefixes.iter().find_map(|prefix| uri.strip_prefix(prefix));
    (upstream.clone(), quote(own.unwrap_or(uri)))
}

/// The prefixes of an upstream's URIs, one for each spelling.
fn prefixes(face: &dyn Exposure, upstream: &Upstream) -> Vec<String> {
    let other = face.other_spelling(upstream, "");
    std::iter::once(face.full_name(upstream, Kind::Resource, "")).chain(other).collect()
}

/// A URI as it is, followed by the other spellings that the upstreams' prefixes give it.
pub fn spellings<'a>(
    face: &'a dyn Exposure,
    view: &'a View,
    uri: &'a str,
) -> impl Iterator<Item = Cow<'a, str>> {
    let others = view.entries().flat_map(move |entry| {
        let prefixes = prefixes(face, &entry.upstream);
        let own = prefixes.iter().find_map(|prefix| uri.strip_prefix(prefix));
        let others =
            own.map(|own| prefixes.iter().map(|prefix| format!("{prefix}{own}")).collect::<Vec<_>>());
        others.unwrap_or_default().into_iter().filter(move |other| other != uri)
    });
    std::iter::once(Cow::Borrowed(uri)).chain(others.map(Cow::Owned))
}

/// The upstream that has a resource, and its own URI there as JSON. A URI under an upstream's prefix goes to
/// that upstream whether or not it is listed, since templates stand for more than lists show.
pub(super) fn resource_owner(face: &dyn Exposure, view: &View, uri: &str) -> Option<(Arc<Upstream>, String)> {
    if let Some(target) = view.find(Kind::Resource, uri) {
        return Some((target.upstream.clone(), target.raw_key().to_owned()));
    }
    if let Some((entry, _)) = closest_template(view, uri) {
        return Some(own_uri(face, &entry.upstream, uri));
    }
    let under = |entry: &&Entry| {
        let prefix = face.full_name(&entry.upstream, Kind::Resource, "");
        !prefix.is_empty() && uri.starts_with(&prefix)
    };
    view.entries().find(under).map(|entry| own_uri(face, &entry.upstream, uri))
}

/// The upstream that has an app's page, or a resource next to that page, and its own URI there. A URI under
/// an upstream's names goes to that upstream, listed or not. Apps know only their own spelling, and hosts
/// send that unchanged.
///
/// The error holds the URIs under which hosts know the pages that may be meant.
pub(super) fn page_owner(
    face: &dyn Exposure,
    view: &View,
    viewer: &Viewer<'_>,
    uri: &str,
) -> Result<Option<(Arc<Upstream>, String)>, Vec<String>> {
    if !is_page(uri) {
        return Ok(None);
    }
    let is_kept = |entry: &&Entry| entry.exposed.pages().get(uri).is_some_and(|page| **page == *uri);
    let kept = view.entries().find(is_kept).map(|entry| (entry, uri.to_owned()));
    let found = match kept.or_else(|| placed_page(face, view, uri)) {
        None if viewer.renders_apps || face.keeps_pages() => {
            own_page(face, view, uri)?.map(|entry| (entry, uri.to_owned()))
        }
        found => found,
    };
    Ok(found.map(|(entry, own)| (entry.upstream.clone(), own)))
}

/// The upstream under whose names a page stands. Of several upstreams, one that has the page wins, otherwise
/// the first.
fn placed_page<'a>(face: &dyn Exposure, view: &'a View, uri: &str) -> Option<(&'a Entry, String)> {
    let under = view.entries().filter_map(|entry| {
        let place = face.page_place(&entry.upstream);
        Some((entry, unplaced(uri, &place).filter(|_| !place.is_empty())?))
    });
    under.min_by_key(|(entry, own)| !entry.exposed.pages().contains_key(&**own))
}

/// The upstream that spells a page like this. Where pages keep their URIs, a lone upstream may have more
/// pages than it lists.
fn own_page<'a>(face: &dyn Exposure, view: &'a View, uri: &str) -> Result<Option<&'a Entry>, Vec<String>> {
    let owners: Vec<_> = view.entries().filter(|entry| has_page(view, entry, uri)).collect();
    let keeps = |entry: &&Entry| face.keeps_pages() || face.page_place(&entry.upstream).is_empty();
    match owners[..] {
        [] => {
            let mut keepers = view.entries().filter(keeps);
            Ok(keepers.next().filter(|_| keepers.next().is_none()))
        }
        [first, ..] if owners.len() == 1 || face.keeps_pages() => Ok(Some(first)),
        [..] => Err(owners.iter().map(|owner| placed(uri, &face.page_place(&owner.upstream))).collect()),
    }
}

/// Whether an upstream lists a page, defines a tool that names it, or named it in a result.
fn has_page(view: &View, entry: &Entry, uri: &str) -> bool {
    let fits = |item: &ExposedItem| is_page(&item.own.key) && uri_template::fit(&item.own.key, uri).is_some();
    entry.exposed.pages().contains_key(uri)
        || view.has_named(&entry.upstream, uri)
        || entry.exposed.of(Kind::Template).items().iter().any(fits)
}

/// The upstream that has a prompt, and its own name there as JSON; the error suggests similar names.
pub fn prompt(face: &dyn Exposure, view: &View, name: &str) -> Result<(Arc<Upstream>, String), String> {
    match view.find(Kind::Prompt, name) {
        Some(target) => Ok((target.upstream.clone(), target.raw_key().to_owned())),
        None => {
            if let Some(why) = view.why_withheld(face, None, Kind::Prompt, name) {
                return Err(why);
            }
            let near = nearest(name, view.items(Kind::Prompt).map(|(_, item)| &*item.name), 5);
            let near = match near.is_empty() {
                true => String::new(),
                false => format!(" Nearest names: {}.", listed(&near)),
            };
            Err(format!("There is no prompt '{name}'.{near} `prompts/list` shows all there are."))
        }
    }
}

/// The error when several servers have the page that an app asks for.
pub(super) fn several_pages(uri: &str, pages: &[String]) -> String {
    format!("Several servers have {uri}; ask for one of {}", listed(pages))
}

/// The error when several servers have the tool that an app calls.
pub(super) fn several_called(name: &str, tools: &[Target]) -> String {
    let names: Vec<_> = tools.iter().map(Target::name).collect();
    format!("Several servers have a tool '{name}'; call one of {}", listed(&names))
}
