//! What the lock file would hold after `lock`, and what of that is a change.

use std::collections::{BTreeMap, BTreeSet};

use super::difference::{Difference, differences};
use super::value::{JsonValue, Unfit};
use super::write::laid_out;
use super::{Definition, LockPlace, LockedKind, Servers, literal};

/// What a server, or all servers of a namespace, offer now.
#[derive(Debug, Clone, Default)]
pub struct Offered {
    /// The definitions as they were sent, by kind and name.
    pub definitions: [BTreeMap<String, String>; 2],
    /// Whether something of the same place could not be asked, so that what is missing here may be there.
    pub is_partial: bool,
}

/// A definition that differs from the approved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionChange {
    /// The server.
    pub place: LockPlace,
    /// The kind.
    pub kind: LockedKind,
    /// The name of the tool or prompt.
    pub name: String,
    /// In what it differs.
    pub what: HowChanged,
    /// Where it differs, for those that are approved in another form. Nothing is told of a definition that holds
    /// a secret.
    pub differences: Vec<Difference>,
    /// The new definition as the file will have it, if there was none.
    pub added: Option<String>,
    /// The characters of the new definition that the file escapes, without tabs and line ends.
    pub characters: BTreeSet<u32>,
}

/// In what a definition differs from the approved one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowChanged {
    /// Only texts differ.
    Text,
    /// It differs otherwise.
    Other,
    /// Nothing of that name was approved.
    New,
    /// The server no longer offers it.
    Gone,
}

/// A definition that is not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The server.
    pub place: LockPlace,
    /// The kind.
    pub kind: LockedKind,
    /// The name of the tool or prompt.
    pub name: String,
    /// Why.
    pub why: Unwritable,
}

/// Why a definition is not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unwritable {
    /// It holds a secret of the configuration.
    Secret,
    /// It has this member twice.
    Twice(String),
    /// It is nested too deeply.
    Deep,
}

/// What the file would hold.
#[derive(Debug, Default)]
pub struct Renewal {
    /// All that is approved from now on.
    pub servers: Servers,
    /// How that differs from before, in the order of the file.
    pub changes: Vec<DefinitionChange>,
    /// What is not written.
    pub refused: Vec<Refused>,
}

/// Compares what is approved with what servers offer now. Servers that were not asked keep what they have if they
/// are `configured`, and leave otherwise. What is not `wanted` stays as it is. `is_secret` says whether a text may
/// not be written.
pub fn renew(
    approved: &Servers,
    offered: &BTreeMap<LockPlace, Offered>,
    configured: &BTreeSet<LockPlace>,
    wanted: &dyn Fn(&LockPlace, &str) -> bool,
    is_secret: &dyn Fn(&str) -> bool,
) -> Renewal {
    let mut renewal = Renewal { servers: approved.clone(), ..Renewal::default() };
    let gone = Offered::default();
    let places: BTreeSet<&LockPlace> = approved.keys().chain(offered.keys()).collect();
    for place in places {
        let offer = match offered.get(place) {
            Some(offer) => offer,
            None if configured.contains(place) => continue,
            None => &gone,
        };
        let known = approved.get(place).cloned().unwrap_or_default();
        let mut next = known.as_ref().clone();
        for kind in LockedKind::ALL {
            let now = &offer.definitions[kind as usize];
            let names: BTreeSet<&String> = known.of(kind).keys().chain(now.keys()).collect();
            for name in names.into_iter().filter(|name| wanted(place, name)) {
                let compared = match (known.of(kind).get(name), now.get(name)) {
                    (_, None) if offer.is_partial => continue,
                    (known, now) => compare(known, now.map(String::as_str), is_secret),
                };
                let Some((change, why)) = compared else { continue };
                let named = || (place.clone(), kind, name.clone());
                match (why, now.get(name)) {
                    (Some(why), _) => {
                        let (place, kind, name) = named();
                        renewal.refused.push(Refused { place, kind, name, why });
                    }
                    (None, Some(text)) => {
                        let definition = Definition { text: text.as_str().into(), laid_out: false };
                        next.of_mut(kind).insert(name.clone(), definition);
                    }
                    (None, None) => drop(next.of_mut(kind).remove(name)),
                }
                let (place, kind, name) = named();
                renewal.changes.push(DefinitionChange { place, kind, name, ..change });
            }
        }
        match next.is_empty() {
            true => drop(renewal.servers.remove(place)),
            false => drop(renewal.servers.insert(place.clone(), next.into())),
        }
    }
    renewal
}

/// How a definition differs from the approved one, and why it is not written if it is not; `None` if they are
/// equal. The caller fills in whose definition it is.
fn compare(
    known: Option<&Definition>,
    now: Option<&str>,
    is_secret: &dyn Fn(&str) -> bool,
) -> Option<(DefinitionChange, Option<Unwritable>)> {
    let mut change = DefinitionChange {
        place: LockPlace::new("", ""),
        kind: LockedKind::Tool,
        name: String::new(),
        what: if known.is_some() { HowChanged::Other } else { HowChanged::New },
        differences: Vec::new(),
        added: None,
        characters: BTreeSet::new(),
    };
    let Some(now) = now else {
        change.what = HowChanged::Gone;
        return Some((change, None));
    };
    let value = match JsonValue::read(now) {
        Ok(value) => value,
        Err(Unfit::Twice(key, _)) => return Some((change, Some(Unwritable::Twice(key)))),
        Err(Unfit::Deep(_)) => return Some((change, Some(Unwritable::Deep))),
    };
    let known = known.map(Definition::value);
    if known.as_ref() == Some(&value) {
        return None;
    }
    let mut has_secret = is_secret(now);
    value.each_text(&mut |text| {
        has_secret = has_secret || is_secret(&literal::text(text));
        literal::note_hidden(text, &mut change.characters);
    });
    let differences = known.map(|known| differences(&known, &value));
    if differences.as_ref().is_some_and(|found| found.iter().all(|one| one.is_text)) {
        change.what = HowChanged::Text;
    }
    if has_secret {
        return Some((change, Some(Unwritable::Secret)));
    }
    change.added = differences.is_none().then(|| laid_out(&value));
    change.differences = differences.unwrap_or_default();
    Some((change, None))
}
