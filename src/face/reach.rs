//! Where names and URIs lead in a view, whatever the face.

use std::cmp::Reverse;
use std::sync::Arc;

use super::uri_template;
use crate::catalog::{ExposedItem, Kind, nearest};
use crate::core::upstream::Upstream;
use crate::core::view::{Entry, Exposure, View};
use crate::json::quote;
use crate::text::listed;

/// The template that a URI belongs to: the one that fits it most closely. Of equals it is one that is active, then the
/// first.
pub(super) fn closest_template<'a>(view: &'a View, uri: &str) -> Option<(&'a Entry, &'a ExposedItem)> {
    let all = view.items(Kind::Template);
    let fitting = all.filter_map(|(entry, item)| Some((uri_template::fit(&item.name, uri)?, entry, item)));
    let closest = fitting.min_by_key(|(fit, _, item)| Reverse((*fit, view.is_active(Kind::Template, item))));
    closest.map(|(_, entry, item)| (entry, item))
}

/// The URI at the upstream that a template of it, or its prefix, stands for, as JSON.
pub(super) fn own_uri(face: &dyn Exposure, upstream: &Arc<Upstream>, uri: &str) -> (Arc<Upstream>, String) {
    let prefix = face.full_name(upstream, Kind::Resource, "");
    (upstream.clone(), quote(uri.strip_prefix(&prefix).unwrap_or(uri)))
}

/// Who has a resource, and its own URI there as JSON. What stands under an upstream's prefix is asked of that upstream,
/// listed or not, since templates stand for more than lists show.
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

/// Who has a prompt, and its own name there as JSON; the error names those that are near.
pub fn prompt(view: &View, name: &str) -> Result<(Arc<Upstream>, String), String> {
    match view.find(Kind::Prompt, name) {
        Some(target) => Ok((target.upstream.clone(), target.raw_key().to_owned())),
        None => {
            let near = nearest(name, view.items(Kind::Prompt).map(|(_, item)| &*item.name), 5);
            let near = match near.is_empty() {
                true => String::new(),
                false => format!(" Nearest names: {}.", listed(&near)),
            };
            Err(format!("There is no prompt '{name}'.{near} `prompts/list` shows all there are."))
        }
    }
}
