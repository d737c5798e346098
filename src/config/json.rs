//! Reads JSON with comments and trailing commas into a tree.

use super::node::{KeyValue, Kind, Node, Span, SyntaxError, Text};
use jsonc_parser::ast::{ObjectPropName, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

/// Parses a text; `None` if it has only white space and comments.
pub(crate) fn parse(text: &str) -> Result<Option<Node>, SyntaxError> {
    if let Some(span) = string_over_the_line(text) {
        return Err(SyntaxError {
            span,
            message: "this string is not closed on its line".into(),
            hint: "add the closing `\"`; a line break inside a string is written `\\n`".into(),
        });
    }
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    match parse_to_ast(text, &CollectOptions::default(), &options) {
        Ok(parsed) => Ok(parsed.value.map(node)),
        Err(error) => {
            let range = error.range();
            let (message, hint) = explain(error.kind());
            Err(SyntaxError { span: range.start..range.end, message, hint: hint.into() })
        }
    }
}

fn node(value: Value<'_>) -> Node {
    let range = value.range();
    let kind = match value {
        Value::StringLit(text) => Kind::String(Text::new(text.value.into_owned())),
        Value::NumberLit(number) => Kind::Number(number.value.to_owned()),
        Value::BooleanLit(boolean) => Kind::Boolean(boolean.value),
        Value::NullKeyword(_) => Kind::Null,
        Value::Array(array) => Kind::List(array.elements.into_iter().map(node).collect()),
        Value::Object(object) => Kind::Object(
            object
                .properties
                .into_iter()
                .map(|property| {
                    let range = match &property.name {
                        ObjectPropName::String(name) => name.range,
                        ObjectPropName::Word(name) => name.range,
                    };
                    KeyValue {
                        key: property.name.into_string(),
                        key_span: range.start..range.end,
                        value: node(property.value),
                    }
                })
                .collect(),
        ),
    };
    Node { span: range.start..range.end, kind }
}

/// The first string that is not closed on its line. The parser would take it for a longer string and complain
/// about whatever follows the next quote.
fn string_over_the_line(text: &str) -> Option<Span> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'"', ..] => {
                let start = at;
                at += 1;
                loop {
                    match bytes.get(at) {
                        None | Some(b'\n' | b'\r') => return Some(start..at),
                        Some(b'\\') => {
                            at += if bytes.get(at + 1).is_some_and(|b| *b >= b' ') { 2 } else { 1 }
                        }
                        Some(b'"') => break,
                        Some(_) => at += 1,
                    }
                }
                at += 1;
            }
            [b'/', b'/', ..] => {
                at = bytes[at..]
                    .iter()
                    .position(|b| matches!(b, b'\n' | b'\r'))
                    .map_or(bytes.len(), |n| at + n);
            }
            [b'/', b'*', ..] => at = text[at + 2..].find("*/").map_or(bytes.len(), |n| at + 2 + n + 2),
            _ => at += 1,
        }
    }
    None
}

fn explain(kind: &ParseErrorKind) -> (String, &'static str) {
    use ParseErrorKind as E;
    let (message, hint) = match kind {
        E::ExpectedComma => ("a comma is missing here", "add `,` between the two entries"),
        E::UnterminatedObject => ("this `{` is never closed", "add the matching `}`"),
        E::UnterminatedArray => ("this `[` is never closed", "add the matching `]`"),
        E::UnterminatedCommentBlock => ("this comment is never closed", "add `*/`"),
        E::SingleQuotedStringsNotAllowed => ("strings need double quotes", "write `\"` in place of `'`"),
        E::ExpectedStringObjectProperty => ("a key needs double quotes", "put `\"` around the key"),
        E::ExpectedColonAfterObjectKey => ("a `:` is missing after this key", "write `\"key\": value`"),
        E::ExpectedObjectValue => ("a value is missing after the `:`", "write `\"key\": value`"),
        E::UnexpectedWord | E::UnexpectedToken => ("this is not a JSON value", "put `\"` around text"),
        E::MultipleRootJsonValues => (
            "there is more text after the end of the value",
            "remove what follows, or the `}` that came too early",
        ),
        E::NestingDepthExceeded => {
            ("values are nested too deeply", "no configuration needs more than a few levels")
        }
        E::UnexpectedCloseBrace => ("this `}` closes nothing", "remove it, or add what is missing before it"),
        E::UnexpectedCloseBracket => {
            ("this `]` closes nothing", "remove it, or add what is missing before it")
        }
        other => {
            let mut message = other.to_string();
            if let Some(first) = message.get_mut(..1) {
                first.make_ascii_lowercase();
            }
            return (
                message,
                "see https://www.json.org for what JSON allows; comments and trailing commas may be used",
            );
        }
    };
    (message.into(), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_syntax_is_found_where_it_is() {
        for (text, at, message) in [
            ("{", 0, "this `{` is never closed"),
            ("{\"a\": 1 \"b\": 2}", 7, "a comma is missing here"),
            ("{\"a\": [1 2]}", 8, "a comma is missing here"),
            ("{\"a\": \"x,\n\"b\": 1}", 6, "this string is not closed on its line"),
            ("{\"a\": \"x\\\n\"}", 6, "this string is not closed on its line"),
            ("{'a': 1}", 1, "strings need double quotes"),
            ("{a: 1}", 1, "a key needs double quotes"),
            ("{\"a\" 1}", 5, "a `:` is missing after this key"),
            ("{\"a\":}", 5, "this `}` closes nothing"),
            ("{} {}", 3, "there is more text after the end of the value"),
            ("{\"a\": 0x10}", 6, "hexadecimal numbers are not allowed"),
            ("{\"a\": +1}", 6, "unary plus on numbers is not allowed"),
            ("{\"a\": .5}", 6, "leading or trailing decimal points on numbers are not allowed"),
            ("{\"a\": NaN}", 6, "this is not a JSON value"),
            ("{\"a\": \"\\x41\"}", 7, "invalid escape"),
            ("/* x", 0, "this comment is never closed"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!((error.span.start, error.message.as_str()), (at, message), "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn comments_and_trailing_commas_are_accepted() {
        for text in ["// \"x\n{\"a\": [1, 2,], /* \" */ \"b\": \"\\\\\",}", "{\"a\": \"// no /* comment\"}"] {
            assert!(parse(text).expect(text).is_some());
        }
        for text in ["", " \n", "// only\n/* comments */"] {
            assert!(parse(text).expect(text).is_none());
        }
    }
}
