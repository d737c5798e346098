//! Edits of JSON with comments, for `edit::apply`.

use super::{Edit, Format, Value, parse};
use crate::config::node::{Kind, Node, Span};
use crate::json::quote;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstNode, CstObject, CstObjectProp, CstRootNode};

/// Applies one edit; `None` if the text has something else in its place.
pub(super) fn apply(text: &str, edit: &Edit<'_>) -> Option<String> {
    let root = CstRootNode::parse(text, &ParseOptions::default()).ok()?;
    let mut raw = None;
    match edit {
        Edit::Set { path, value } => {
            let (key, parents) = path.split_last()?;
            if let Some(list) = node(&root, parents).and_then(|node| node.as_array()) {
                let item = list.elements().into_iter().nth(key.parse().ok()?)?;
                item.as_string_lit()?.set_raw_value(quote(value.text()?));
                return Some(root.to_string());
            }
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
            let parsed = parse(Format::Json, &from).ok()?;
            let node = path.iter().try_fold(&parsed.node, |node, key| node.member(key))?;
            let placeholder = placeholder(text)?;
            let value = CstInputValue::String(placeholder.clone());
            let parent = object(&root, parents, true)?;
            parent.insert((*index).min(parent.properties().len()), key, value);
            raw = Some((format!("\"{placeholder}\""), from[node.span.clone()].to_owned()));
        }
        Edit::Move { path, to } => return moved(text, &root, path, to),
        Edit::Rename { path, to } => {
            let span = key_span(&parse(Format::Json, text).ok()?.node, path)?;
            return Some(format!("{}{}{}", &text[..span.start], quote(to), &text[span.end..]));
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

/// The value at the end of a path, which may lead through lists.
fn node(root: &CstRootNode, path: &[String]) -> Option<CstNode> {
    path.iter().try_fold(root.value()?, |node, key| match node.as_array() {
        Some(list) => list.elements().into_iter().nth(key.parse().ok()?),
        None => node.as_object()?.get(key)?.value(),
    })
}

fn key_span(root: &Node, path: &[String]) -> Option<Span> {
    let (key, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(root, |node, key| node.member(key))?;
    let Kind::Object(entries) = &parent.kind else { return None };
    entries.iter().find(|entry| entry.key == *key).map(|entry| entry.key_span.clone())
}

/// Moves an entry with its text: the comments above it and beside it go along.
fn moved(text: &str, root: &CstRootNode, path: &[String], to: &[String]) -> Option<String> {
    let (name, parents) = path.split_last()?;
    let entry = object(root, parents, false)?.get(name)?;
    let (above, beside, own) = (comments_above(&entry), comments_beside(&entry), entry.to_string());
    let start = key_span(&parse(Format::Json, text).ok()?.node, path)?.start;
    let left = format!("{}{}", text[..start].strip_suffix(&above)?, &text[start..]);
    let left = apply(&left, &Edit::Remove { path: path.to_vec() })?;
    let placeholder = placeholder(text)?;
    let target = [to, std::slice::from_ref(&placeholder)].concat();
    let with = apply(&left, &Edit::Set { path: target, value: Value::String(placeholder.clone()) })?;
    let (before, after) = with.split_once(&format!("\"{placeholder}\": \"{placeholder}\""))?;
    let (comma, after) = after.strip_prefix(',').map_or(("", after), |after| (",", after));
    // An added entry stands on a line of its own, so a comment may end the line.
    Some(format!("{before}{above}{own}{comma}{beside}{after}"))
}

/// The comments above an entry, up to the entry itself. A comment beside the entry before belongs to that
/// one, and an empty line separates comments that belong to no entry alone.
fn comments_above(entry: &CstObjectProp) -> String {
    let mut trivia: Vec<_> = entry.previous_siblings().take_while(CstNode::is_trivia).collect();
    trivia.reverse();
    let first_line = trivia.iter().position(CstNode::is_newline).map_or(0, |at| at + 1);
    let mut start = first_line;
    let mut blank = true;
    for (at, node) in trivia.iter().enumerate().skip(first_line) {
        if node.is_newline() && std::mem::replace(&mut blank, true) {
            start = at + 1;
        }
        blank &= !node.is_comment();
    }
    let own = trivia[start..].iter().skip_while(|node| !node.is_comment());
    own.map(CstNode::to_string).collect()
}

/// The comments after an entry on its line, each with a space before it.
fn comments_beside(entry: &CstObjectProp) -> String {
    let (mut comments, mut before_comma) = (String::new(), None);
    for node in entry.next_siblings() {
        if node.is_comment() {
            comments.push_str(&format!(" {node}"));
        } else if node.is_comma() {
            before_comma.get_or_insert(comments.len());
        } else if node.is_newline() || node.is_token() {
            return comments;
        } else if !node.is_trivia() {
            // Another entry on the same line has the comments after the comma.
            break;
        }
    }
    comments.truncate(before_comma.unwrap_or(comments.len()));
    comments
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
