//! Which message of a stream answers which request of ours.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::wire::json::{Node, Scanner};
use crate::wire::message::{Id, Message, write_raw_error};

/// What a text that came from the server turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sorted<'a> {
    /// Answers the request on whose stream it came.
    Answer(Cow<'a, [u8]>),
    /// Another message.
    Other(&'a [u8]),
    /// No message, or an answer to another request, which has no business here.
    Noise,
}

/// Sorts one text; the parts of a batch one by one. `on` is our request on whose stream it came.
pub(super) fn sort(
    scanner: &mut Scanner,
    on: Option<u64>,
    text: &[u8],
    take: &mut (dyn FnMut(Sorted<'_>) + Send),
) {
    let Ok(doc) = scanner.scan(text) else { return take(Sorted::Noise) };
    let root = doc.root();
    if root.raw().starts_with('[') {
        let parts: Vec<&RawValue> = serde_json::from_str(root.raw()).unwrap_or_default();
        let mut scanner = Scanner::default();
        for part in parts.into_iter().filter(|part| !part.get().starts_with('[')) {
            sort(&mut scanner, on, part.get().as_bytes(), take);
        }
        return;
    }
    take(match (Message::read(root), on) {
        (Ok(Message::Response { id: Some(id), .. }), Some(on)) if id.parse() == Ok(on) => {
            Sorted::Answer(Cow::Borrowed(text))
        }
        (Ok(Message::Request { .. } | Message::Notification { .. }), _)
        | (Ok(Message::Response { id: Some(_), .. }), None) => Sorted::Other(text),
        // Servers that could not read the id leave it out, or name their own.
        (Ok(Message::Response { .. }) | Err(_), Some(on)) => match error_without_id(root) {
            Some(error) => {
                let mut out = Vec::with_capacity(text.len() + 24);
                write_raw_error(&mut out, Some(&Id::from_number(on)), |out| error.write(out));
                Sorted::Answer(Cow::Owned(out))
            }
            None => Sorted::Noise,
        },
        (Ok(Message::Response { .. }) | Err(_), None) => Sorted::Noise,
    });
}

/// The error object of a JSON-RPC error whose id is `null`, missing or a text; ours are numbers.
fn error_without_id(root: Node<'_>) -> Option<Node<'_>> {
    let nameless = root.get("id").is_none_or(|id| id.raw() == "null" || id.is_string());
    let error = root.get("error").filter(|error| error.is_object() && nameless)?;
    error.get("code")?.raw().parse::<i64>().ok()?;
    error.get("message")?.is_string().then_some(error)
}

/// The code of the error in an answer, if it is one.
pub(super) fn error_code(answer: &[u8]) -> Option<i64> {
    let mut scanner = Scanner::default();
    scanner.scan(answer).ok()?.root().get("error")?.get("code")?.raw().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(on: Option<u64>, text: &str, expected: &str) {
        let mut shown = Vec::new();
        sort(&mut Scanner::default(), on, text.as_bytes(), &mut |sorted| {
            shown.push(match sorted {
                Sorted::Answer(text) => format!("answer {}", String::from_utf8_lossy(&text)),
                Sorted::Other(text) => format!("other {}", String::from_utf8_lossy(text)),
                Sorted::Noise => "noise".to_owned(),
            });
        });
        assert_eq!(shown.join("; "), expected, "{text}");
    }

    #[test]
    fn answers_belong_to_their_stream() {
        let result = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        check(Some(1), result, &format!("answer {result}"));
        check(Some(2), result, "noise");
        check(None, result, &format!("other {result}"));
        let question = r#"{"jsonrpc":"2.0","id":2,"method":"roots/list"}"#;
        check(Some(1), question, &format!("other {question}"));
        check(Some(1), &format!("[{question}, {result},[]]"), &format!("other {question}; answer {result}"));
        check(Some(1), "<html>", "noise");
        check(Some(1), r#"{"jsonrpc":"2.0","id":"1","result":{}}"#, "noise");
    }

    #[test]
    fn errors_without_an_id_get_that_of_their_request() {
        let expected = r#"answer {"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"m"}}"#;
        check(Some(7), r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m"}}"#, expected);
        check(Some(7), r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"m"}}"#, expected);
        check(
            Some(7),
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32000,"message":"m"}}"#,
            expected,
        );
        check(None, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m"}}"#, "noise");
        check(Some(7), r#"{"error":{"code":"x","message":"m"}}"#, "noise");
        check(Some(7), r#"{"error":"invalid_token"}"#, "noise");
        check(Some(7), r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, "noise");
    }
}
