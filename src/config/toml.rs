//! Reads TOML into a tree.

use super::node::{KeyValue, Kind, Node, SyntaxError, Text};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Parses a text. An empty text is an empty table.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    match DeTable::parse(text) {
        Ok(table) => {
            let span = table.span();
            Ok(Node { span, kind: entries(table.into_inner()) })
        }
        Err(error) => Err(SyntaxError {
            span: error.span().unwrap_or_default(),
            message: error.message().to_owned(),
            hint: "see https://toml.io for what TOML allows".into(),
        }),
    }
}

fn node(value: Spanned<DeValue<'_>>) -> Node {
    let span = value.span();
    let kind = match value.into_inner() {
        DeValue::String(text) => Kind::String(Text::new(text.into_owned())),
        DeValue::Integer(number) => Kind::Number(number.to_string()),
        DeValue::Float(number) => Kind::Number(number.to_string()),
        DeValue::Boolean(value) => Kind::Boolean(value),
        DeValue::Datetime(_) => Kind::Other("a date"),
        DeValue::Array(items) => Kind::List(items.into_iter().map(node).collect()),
        DeValue::Table(table) => entries(table),
    };
    Node { span, kind }
}

/// The entries in the order of the file, which the parser's map does not keep.
fn entries(table: DeTable<'_>) -> Kind {
    let mut entries: Vec<_> = table
        .into_iter()
        .map(|(key, value)| KeyValue {
            key_span: key.span(),
            key: key.into_inner().into_owned(),
            value: node(value),
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_span.start);
    Kind::Object(entries)
}
