//! What was mentioned lately: a map that forgets its oldest entries. Results mention URIs that clients may ask
//! for later, and there is no end to them.
//!
//! Invariant: a map has at most [`MOST`] entries, and its queue holds each key once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The most entries of a map.
const MOST: usize = 10_000;

/// A map from URIs to what is remembered of them.
#[derive(Default)]
pub(super) struct Recent<V> {
    entries: HashMap<Arc<str>, V>,
    /// The keys in the order in which they were first mentioned.
    order: VecDeque<Arc<str>>,
}

impl<V: Default> Recent<V> {
    /// What is remembered of a URI.
    pub(super) fn get(&self, uri: &str) -> Option<&V> {
        self.entries.get(uri)
    }

    /// What is remembered of a URI, to be changed. A new URI takes the place of the oldest if there is no room.
    pub(super) fn entry(&mut self, uri: &str) -> &mut V {
        if !self.entries.contains_key(uri) {
            if self.order.len() >= MOST
                && let Some(oldest) = self.order.pop_front()
            {
                self.entries.remove(&oldest);
            }
            self.order.push_back(uri.into());
        }
        self.entries.entry(uri.into()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_gives_way_and_nothing_else() {
        let mut recent = Recent::default();
        for n in 0..MOST {
            *recent.entry(&n.to_string()) = n;
        }
        *recent.entry("0") = 7;
        assert_eq!(
            (recent.get("0"), recent.get("1")),
            (Some(&7), Some(&1)),
            "there was room for all of them"
        );
        *recent.entry("new") = 8;
        assert_eq!((recent.get("0"), recent.get("1"), recent.get("new")), (None, Some(&1), Some(&8)));
        *recent.entry("0") = 9;
        assert_eq!((recent.get("0"), recent.get("1"), recent.get("2")), (Some(&9), None, Some(&2)));
        assert_eq!((recent.entries.len(), recent.order.len()), (MOST, MOST));
    }
}
