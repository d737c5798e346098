//! What the server offers, in pages.

use std::sync::Mutex;

use serde::Deserialize;
use serde_json::value::RawValue;

/// One of the lists; tools may change while the server runs.
pub(crate) struct Catalog {
    items: Mutex<Vec<Box<RawValue>>>,
    page: Option<usize>,
}

impl Catalog {
    pub(crate) fn new(items: Vec<Box<RawValue>>, page: Option<usize>) -> Self {
        Self { items: Mutex::new(items), page }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.lock().expect("no panic").is_empty()
    }

    /// The page that the cursor in `params` names, as the list's result. `Err` is an invalid cursor.
    pub(crate) fn list(&self, key: &str, params: Option<&RawValue>) -> Result<String, ()> {
        #[derive(Deserialize)]
        struct Paging {
            cursor: Option<String>,
        }
        let cursor = params
            .and_then(|params| serde_json::from_str::<Paging>(params.get()).ok())
            .and_then(|p| p.cursor);
        let start: usize = match cursor {
            None => 0,
            Some(cursor) => cursor.strip_prefix("from-").and_then(|n| n.parse().ok()).ok_or(())?,
        };
        let items = self.items.lock().expect("no panic");
        let end = self.page.map_or(items.len(), |page| items.len().min(start + page));
        let shown: Vec<&str> = items.get(start..end).ok_or(())?.iter().map(|item| item.get()).collect();
        let next = if end < items.len() { format!(r#","nextCursor":"from-{end}""#) } else { String::new() };
        Ok(format!(r#"{{"{key}":[{}]{next}}}"#, shown.join(",")))
    }

    /// Adds these and removes those with these names.
    pub(crate) fn change(&self, add: Vec<Box<RawValue>>, remove: &[String]) {
        let mut items = self.items.lock().expect("no panic");
        items.retain(|item| !name(item).is_some_and(|name| remove.contains(&name)));
        items.extend(add);
    }

    /// Whether there is an item of this name.
    pub(crate) fn has(&self, wanted: &str) -> bool {
        self.items.lock().expect("no panic").iter().any(|item| name(item).as_deref() == Some(wanted))
    }
}

fn name(item: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    serde_json::from_str::<Named>(item.get()).ok().map(|item| item.name)
}
