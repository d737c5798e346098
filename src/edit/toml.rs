//! Edits of TOML, for `edit::apply`.

use super::{Edit, Value};
use toml_edit::{
    Array, ArrayOfTables, DocumentMut, InlineTable, Item, RawString, Table, TableLike, Value as TomlValue,
};

/// Applies one edit; `None` if the text has something else in its place.
///
/// The function is long because it has one arm per kind of edit over one parsed document; split up, its parts
/// would hand the same five things around.
pub(super) fn apply(text: &str, edit: &Edit<'_>) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    if document.is_empty() && text.contains('#') {
        // In a document that holds only comments, `toml_edit` would put them after the new key.
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        return apply("", edit).map(|added| format!("{text}{newline}{added}"));
    }
    match edit {
        Edit::Set { path, value } => {
            let (key, parents) = path.split_last()?;
            let (parent, inline) = table(document.as_table_mut(), parents, true)?;
            set(parent, inline, key, value)?;
        }
        Edit::Remove { path } => {
            let (key, parents) = path.split_last()?;
            let removed = table(document.as_table_mut(), parents, false)?.0.remove(key)?;
            match removed {
                Item::Table(table) => keep_comments(&mut document, &table),
                Item::ArrayOfTables(tables) => {
                    tables.iter().for_each(|table| keep_comments(&mut document, table));
                }
                _ => {}
            }
        }
        Edit::Restore { path, from, .. } => {
            let (key, parents) = path.split_last()?;
            let from = from.strip_prefix('\u{feff}').unwrap_or(from).replace("\r\n", "\n");
            let other: DocumentMut = from.parse().ok()?;
            let item = path.iter().try_fold(other.as_item(), |item, key| item.get(key))?.clone();
            table(document.as_table_mut(), parents, true)?.0.insert(key, item);
        }
        Edit::Move { .. } | Edit::Rename { .. } => return None,
        Edit::Push { path, value, index } => {
            let (key, parents) = path.split_last()?;
            let (parent, inline) = table(document.as_table_mut(), parents, true)?;
            push(parent, inline, key, value, *index)?;
        }
        Edit::Pull { path, index } => {
            let (key, parents) = path.split_last()?;
            let parent = table(document.as_table_mut(), parents, false)?.0;
            match parent.get_mut(key)? {
                // An array of tables cannot be empty, so the last table is removed together with its key.
                Item::ArrayOfTables(tables) if tables.len() > 1 => {
                    let removed = tables.get(*index)?.clone();
                    tables.remove(*index);
                    keep_comments(&mut document, &removed);
                }
                Item::Value(TomlValue::Array(items)) if *index < items.len() => pull(items, *index),
                _ => return None,
            }
        }
    }
    Some(document.to_string())
}

/// Sets a member of a table, which keeps its place and the comments around it if it is there already.
fn set(parent: &mut dyn TableLike, inline: bool, key: &str, value: &Value) -> Option<()> {
    match (parent.get_mut(key), value) {
        (Some(old), _) if old.is_value() || inline => *old = Item::Value(inline_value(value)?),
        (Some(Item::Table(old)), Value::Object(_)) => {
            let mut new = section(value)?;
            *new.decor_mut() = old.decor().clone();
            new.set_position(old.position());
            *old = new;
        }
        (Some(_), _) => return None,
        (None, Value::Object(_)) if !inline => drop(parent.insert(key, Item::Table(section(value)?))),
        (None, _) => drop(parent.insert(key, Item::Value(inline_value(value)?))),
    }
    Some(())
}

/// Adds an element at the end of a list, which is made if there is none. `index` is where it is expected to stand.
fn push(parent: &mut dyn TableLike, inline: bool, key: &str, value: &Value, index: usize) -> Option<()> {
    match parent.get_mut(key) {
        Some(Item::ArrayOfTables(tables)) if index >= tables.len() => tables.push(section(value)?),
        Some(Item::Value(TomlValue::Array(items))) if index >= items.len() => {
            items.push(inline_value(value)?);
        }
        Some(_) => return None,
        None if matches!(value, Value::Object(_)) && !inline => {
            let mut tables = ArrayOfTables::new();
            tables.push(section(value)?);
            parent.insert(key, Item::ArrayOfTables(tables));
        }
        None => {
            let mut items = Array::new();
            items.push(inline_value(value)?);
            parent.insert(key, Item::Value(TomlValue::Array(items)));
        }
    }
    Some(())
}

/// The table at a path, which may lead through lists, and whether it is an inline table.
fn table<'t>(root: &'t mut Table, path: &[String], create: bool) -> Option<(&'t mut dyn TableLike, bool)> {
    let mut current: (&mut dyn TableLike, bool) = (root, false);
    let mut keys = path.iter();
    while let Some(key) = keys.next() {
        let (parent, inline) = current;
        if create && !parent.contains_key(key) {
            let new = if inline {
                Item::Value(TomlValue::InlineTable(InlineTable::new()))
            } else {
                let mut table = Table::new();
                table.set_implicit(true);
                Item::Table(table)
            };
            parent.insert(key, new);
        }
        let item = parent.get_mut(key)?;
        let inline = item.is_inline_table();
        let mut position = || keys.next()?.parse::<usize>().ok();
        current = match item {
            Item::ArrayOfTables(tables) => (tables.get_mut(position()?)?, false),
            Item::Value(TomlValue::Array(items)) => {
                (items.get_mut(position()?)?.as_inline_table_mut()?, true)
            }
            item => (item.as_table_like_mut()?, inline),
        };
    }
    Some(current)
}

/// Removes an item from a list. A comment after the item on the same line is removed as well; `toml_edit`
/// keeps it as the prefix of the next item. Without a trailing comma, the text after the last item belongs to
/// that item.
fn pull(items: &mut Array, index: usize) {
    let text = |raw: Option<&RawString>| raw.and_then(RawString::as_str).unwrap_or_default().to_owned();
    let removed = items.remove(index);
    let (mut before, last) = (text(removed.decor().prefix()), index == items.len());
    let after = match items.get(index) {
        Some(next) => text(next.decor().prefix()),
        None => text(removed.decor().suffix()) + &text(Some(items.trailing())),
    };
    if let Some(previous) = index.checked_sub(1).and_then(|at| items.get_mut(at)).filter(|_| last) {
        before = text(previous.decor().suffix()) + &before;
        previous.decor_mut().set_suffix("");
    }
    let joined = match (before.find('\n'), after.find('\n')) {
        (Some(end), Some(start)) => format!("{}{}", &before[..end], &after[start..]),
        (Some(end), None) if last && before[..end].contains('#') => format!("{}{after}", &before[..=end]),
        _ if last => after,
        _ => before,
    };
    match items.get_mut(index) {
        Some(next) => next.decor_mut().set_prefix(joined),
        None => items.set_trailing(joined),
    }
}

/// Keeps comments that an empty line separates from a removed table's header: they move to what follows the
/// table.
fn keep_comments(document: &mut DocumentMut, removed: &Table) {
    let prefix = removed.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    let Some(end) = prefix.rfind("\n\n").filter(|end| prefix[..*end].contains('#')) else { return };
    let kept = format!("{}\n", &prefix[..=end]);
    let after = removed.position().unwrap_or(isize::MAX);
    let mut next: Option<(isize, &mut Table)> = None;
    for_each_table(document.as_table_mut(), &mut |position, table| {
        if position > after && next.as_ref().is_none_or(|(best, _)| position < *best) {
            next = Some((position, table));
        }
    });
    match next {
        Some((_, table)) => {
            let old = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
            let joined = format!("{kept}{}", old.trim_start_matches('\n'));
            table.decor_mut().set_prefix(joined);
        }
        None => {
            let old = document.trailing().as_str().unwrap_or_default();
            let joined = format!("{kept}{}", old.trim_start_matches('\n'));
            document.set_trailing(joined);
        }
    }
}

fn for_each_table<'t>(table: &'t mut Table, visit: &mut dyn FnMut(isize, &'t mut Table)) {
    // A table is visited or descended into, never both, because its own header comes before those below it.
    for (_, item) in table.iter_mut() {
        match item {
            Item::Table(table) => match (table.is_implicit(), table.position()) {
                (false, Some(position)) => visit(position, table),
                _ => for_each_table(table, visit),
            },
            Item::ArrayOfTables(tables) => {
                for table in tables.iter_mut() {
                    if let Some(position) = table.position() {
                        visit(position, table);
                    }
                }
            }
            _ => {}
        }
    }
}

/// A table with a header. Nested values are written inline.
fn section(value: &Value) -> Option<Table> {
    let mut table = Table::new();
    for (key, value) in value.entries() {
        table.insert(key, Item::Value(inline_value(value)?));
    }
    table.decor_mut().set_prefix("\n");
    Some(table)
}

fn inline_value(value: &Value) -> Option<TomlValue> {
    Some(match value {
        Value::Null => return None,
        Value::Boolean(value) => TomlValue::from(*value),
        Value::Number(spelled) | Value::Other(spelled) => spelled.parse().ok()?,
        Value::String(text) => TomlValue::from(text.as_str()),
        Value::List(items) => TomlValue::Array(
            items.iter().map(inline_value).collect::<Option<Vec<_>>>()?.into_iter().collect(),
        ),
        Value::Object(entries) => {
            let mut table = InlineTable::new();
            for (key, value) in entries {
                table.insert(key, inline_value(value)?);
            }
            TomlValue::InlineTable(table)
        }
    })
}
