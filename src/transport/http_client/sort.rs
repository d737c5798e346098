//! Decides which message of a stream answers which of our requests.

use serde_json::value::RawValue;

use crate::json::Scanner;
use crate::protocol::cut_off::id_of_broken_response;
use crate::protocol::message::{AnswerTo, Message, NoMessage, Outcome};

/// The kind of a text from the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sorted<'a> {
    /// The answer to the request on whose stream it came.
    Answer(&'a [u8]),
    /// Like [`Sorted::Answer`], but its content is unusable.
    Malformed(&'a [u8]),
    /// Another message, or the answer to another request.
    Other(&'a [u8]),
    /// Text that is not a message.
    Noise,
}

/// The stream on which a text came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// The answer to this request of ours.
    Of(u64),
    /// The stream for messages that belong to no request.
    Unrelated,
    /// The only stream of the old transport.
    Only,
}

/// Sorts one text; the parts of a batch are sorted one by one.
pub(super) fn sort(
    scanner: &mut Scanner,
    came: Stream,
    text: &[u8],
    take: &mut (dyn FnMut(Sorted<'_>) + Send),
) {
    let Ok(doc) = scanner.scan(text) else {
        return take(match id_of_broken_response(scanner, text) {
            Some(id) if came == Stream::Of(id) => Sorted::Malformed(text),
            Some(_) => Sorted::Other(text),
            None => Sorted::Noise,
        });
    };
    let root = doc.root();
    if root.is_array() {
        let parts: Vec<&RawValue> = serde_json::from_str(root.raw()).unwrap_or_default();
        let mut scanner = Scanner::default();
        for part in parts.into_iter().filter(|part| !part.get().starts_with('[')) {
            sort(&mut scanner, came, part.get().as_bytes(), take);
        }
        return;
    }
    take(match Message::from_server(root) {
        Ok(Message::Request(_) | Message::Notification { .. }) => Sorted::Other(text),
        Ok(Message::Response { to: AnswerTo::Ours(id), outcome, .. }) => match outcome {
            _ if came != Stream::Of(id) => Sorted::Other(text),
            Outcome::Malformed(_) => Sorted::Malformed(text),
            Outcome::Result(_) | Outcome::Error(_) => Sorted::Answer(text),
        },
        // A server that could not read the id omits it or invents one.
        Ok(Message::Response { to, outcome: Outcome::Error(_), .. }) => match (came, to) {
            (Stream::Of(_), _) => Sorted::Answer(text),
            (Stream::Only, AnswerTo::Nobody) => Sorted::Other(text),
            _ => Sorted::Noise,
        },
        Ok(Message::Response { .. }) | Err(NoMessage::Noise) => Sorted::Noise,
        Err(NoMessage::Twice(ids)) if ids.iter().any(|id| came == Stream::Of(*id)) => Sorted::Malformed(text),
        Err(NoMessage::Twice(_)) => Sorted::Other(text),
    });
}

/// The error code of an answer, if the answer is an error.
pub(super) fn error_code(answer: &[u8]) -> Option<i64> {
    let mut scanner = Scanner::default();
    scanner.scan(answer).ok()?.root().get("error")?.get("code")?.raw().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(came: Stream, text: &str, expected: &str) {
        let mut shown = Vec::new();
        sort(&mut Scanner::default(), came, text.as_bytes(), &mut |sorted| {
            let (kind, text) = match sorted {
                Sorted::Answer(text) => ("answer ", text),
                Sorted::Malformed(text) => ("malformed ", text),
                Sorted::Other(text) => ("other ", text),
                Sorted::Noise => ("noise", &[][..]),
            };
            shown.push(format!("{kind}{}", String::from_utf8_lossy(text)));
        });
        assert_eq!(shown.join("; "), expected, "{text}");
    }

    #[test]
    fn answers_belong_to_their_stream() {
        let result = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        check(Stream::Of(1), result, &format!("answer {result}"));
        check(Stream::Of(2), result, &format!("other {result}"));
        check(Stream::Unrelated, result, &format!("other {result}"));
        check(Stream::Only, result, &format!("other {result}"));
        let question = r#"{"jsonrpc":"2.0","id":2,"method":"roots/list"}"#;
        check(Stream::Of(1), question, &format!("other {question}"));
        check(
            Stream::Of(1),
            &format!("[{question}, {result},[]]"),
            &format!("other {question}; answer {result}"),
        );
        check(Stream::Of(1), "<html>", "noise");
        let text = r#"{"jsonrpc":"2.0","id":"1","result":{}}"#;
        check(Stream::Of(1), text, &format!("answer {text}"));
    }

    #[test]
    fn an_answer_that_cannot_be_read_still_answers() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":[]}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"x":NaN}}"#,
        ] {
            check(Stream::Of(1), text, &format!("malformed {text}"));
            check(Stream::Of(2), text, &format!("other {text}"));
            check(Stream::Unrelated, text, &format!("other {text}"));
        }
    }

    #[test]
    fn errors_without_an_id_belong_to_the_request_of_their_stream() {
        for id in [r#""id":null,"#, "", r#""id":"server-error","#] {
            let text = format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32000,"message":"m"}}}}"#);
            check(Stream::Of(7), &text, &format!("answer {text}"));
            check(Stream::Unrelated, &text, "noise");
        }
        let text = r#"{"error":{}}"#;
        check(Stream::Of(7), text, &format!("answer {text}"));
        check(Stream::Only, text, &format!("other {text}"));
        check(Stream::Of(7), r#"{"error":"invalid_token"}"#, "noise");
        check(Stream::Of(7), r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, "noise");
    }
}
