//! Edits of JSON with comments, for `edit::apply`.

use super::{Edit, Value};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};

/// Applies one edit; `None` if the text has something else in its place.
pub(super) fn apply(text: &str, edit: &Edit<'_>) -> Option<String> {
    let root = CstRootNode::parse(text, &ParseOptions::default()).ok()?;
    let mut raw = None;
    match edit {
        Edit::Set { path, value } => {
            let (key, parents) = path.split_last()?;
            let parent = object(&root, parents, true)?;
            match parent.get(key) {
                Some(property) => property.set_value(input(value)),
                None => drop(parent.append(key, input(value))),
            }
        }
        Edit::Remove { path } => {
            let (key, parents) = path.split_last()?;
            object(&root, parents, false)?.get(key)?.remove();
        }
        Edit::Restore { path, from, index, .. } => {
            let (key, parents) = path.split_last()?;
            let from = from.strip_prefix('\u{feff}').unwrap_or(from).replace("\r\n", "\n");
            let parsed = super::parse(super::Format::Json, &from).ok()?;
            let node = path.iter().try_fold(&parsed.node, |node, key| node.member(key))?;
            let placeholder = placeholder(text)?;
            let value = CstInputValue::String(placeholder.clone());
            let parent = object(&root, parents, true)?;
            parent.insert((*index).min(parent.properties().len()), key, value);
            raw = Some((format!("\"{placeholder}\""), from[node.span.clone()].to_owned()));
        }
        Edit::Push { path, value, index } => {
            let (key, parents) = path.split_last()?;
            let list = object(&root, parents, true)?.array_value_or_create(key)?;
            list.insert((*index).min(list.elements().len()), input(value));
        }
        Edit::Pull { path, index } => {
            let (key, parents) = path.split_last()?;
            let list = object(&root, parents, false)?.array_value(key)?;
            list.elements().into_iter().nth(*index)?.remove();
        }
    }
    let text = root.to_string();
    Some(match raw {
        Some((placeholder, raw)) => text.replacen(&placeholder, &raw, 1),
        None => text,
    })
}

fn object(root: &CstRootNode, path: &[String], create: bool) -> Option<CstObject> {
    let top = root.object_value_or_create()?;
    path.iter().try_fold(top, |object, key| match create {
        true => object.object_value_or_create(key),
        false => object.object_value(key),
    })
}

/// A word that does not occur in the text.
fn placeholder(text: &str) -> Option<String> {
    (0..100).map(|n| format!("restored-{n}")).find(|word| !text.contains(word.as_str()))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Boolean(value) => CstInputValue::Bool(*value),
        Value::Number(number) | Value::Other(number) => CstInputValue::Number(number.clone()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::List(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(entries) => {
            CstInputValue::Object(entries.iter().map(|(key, value)| (key.clone(), input(value))).collect())
        }
    }
}
