//! Finds which request a message answers that was cut off or is not valid JSON, so that its caller fails at
//! once instead of waiting for the timeout.

use crate::json::Scanner;
use crate::protocol::message::own_id;

/// The number of bytes at the end of a text in which an `id` is looked for.
const END: usize = 256;

/// The id of our request that a response answers, given only the response's beginning and end. The outer
/// `None` means that the text is not a response, the inner one that its id is not visible.
pub fn id_of_response(scanner: &mut Scanner, start: &[u8], end: &[u8]) -> Option<Option<u64>> {
    let (mut is_request, mut is_answer, mut id) = (false, false, None);
    scanner.each_outer(start, |key, value, first| match key {
        "\"method\"" => is_request |= first.is_none_or(|first| first == b'"'),
        // A server that writes `params` first may write `method` last.
        "\"params\"" => is_request |= first == Some(b'{'),
        "\"jsonrpc\"" | "\"result\"" | "\"error\"" => is_answer = true,
        "\"id\"" => id = id.or(value.and_then(own_id)),
        _ => {}
    });
    (is_answer && !is_request).then(|| id.or_else(|| id_at_end(end)))
}

/// The id of our request that a response answers which is not valid JSON.
pub fn id_of_broken_response(scanner: &mut Scanner, text: &[u8]) -> Option<u64> {
    id_of_response(scanner, text, &text[text.len().saturating_sub(END)..])?
}

/// The raw `id` of a message that was cut off.
pub fn raw_id<'a>(scanner: &mut Scanner, start: &'a [u8]) -> Option<&'a str> {
    let mut id = None;
    scanner.each_outer(start, |key, value, _| {
        if key == "\"id\"" {
            id = id.or(value);
        }
    });
    id
}

/// The number under `id`, if that is the last member of the object or only the version follows it, as in the
/// answers of servers that write the result first.
fn id_at_end(end: &[u8]) -> Option<u64> {
    let text = end.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let version = br#""jsonrpc":"2.0""#;
    let text = match text.strip_suffix(version) {
        Some(before) => before.trim_ascii_end().strip_suffix(b",")?.trim_ascii_end(),
        None => text,
    };
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = text.split_at(text.len() - digits);
    let before = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(b"\"id\"")?;
    matches!(before.trim_ascii_end().last(), Some(b',' | b'{')).then_some(())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_an_id_of_any_kind_in_a_message_that_was_cut_off() {
        for (prefix, expected) in [
            (r#"{"id":"a\"b","method":"m","params":{"x":"aaa"#, Some(r#""a\"b""#)),
            (r#"{"id":-1.5e3,"method":"aaa"#, Some("-1.5e3")),
            (r#"{"params":{"id":"inner","x":"aaa"#, None),
            (r#"{"id":"aaa"#, None),
            (r#"{"id":"aaa""#, None),
            ("garbage", None),
        ] {
            assert_eq!(raw_id(&mut Scanner::default(), prefix.as_bytes()), expected, "{prefix}");
        }
    }

    #[test]
    fn finds_the_id_of_a_response_that_is_known_in_part() {
        for (start, end, expected) in [
            (r#"{"jsonrpc":"2.0","id":17,"result":{"id":3,"text":"aaa"#, r#"aaa","id":4}}"#, Some(Some(17))),
            (r#"{"result":{"id":3,"text":"aaa"#, r#"aaa"},"jsonrpc":"2.0","id":17}"#, Some(Some(17))),
            (r#"{"error":{"code":1,"message":"aaa"#, "aaa\"} , \"id\" : 17 } ", Some(Some(17))),
            (r#"{"result":{"text":"aaa"#, r#"aaa"},"id":17,"jsonrpc":"2.0"}"#, Some(Some(17))),
            (r#"{"result":{"text":"aaa"#, r#"aaa","id":17}}"#, Some(None)),
            (r#"{"result":{"text":"aaa"#, r#"aaa"},"id":"17"}"#, Some(None)),
            (r#"{"result":{"text":"aaa"#, r#"aaa \"id\":17}"#, Some(None)),
            (r#"{"id":"17","result":{"text":"aaa"#, "", Some(Some(17))),
            (r#"{"id":17.0,"error":{"text":"aaa"#, "", Some(Some(17))),
            (r#"{"jsonrpc":"2.0","id":17,"method":"m","params":{"text":"aaa"#, r#"aaa"}}"#, None),
            (r#"{"jsonrpc":"2.0","id":17,"params":{"text":"aaa"#, r#"aaa"}}"#, None),
            (r#"{"jsonrpc":"2.0","id":17,"method":"m"#, "", None),
            (r#"{"jsonrpc":"2.0","id":17,"method":"#, "", None),
            (r#"{"jsonrpc":"2.0","id":17,"method":null,"params":null,"result":{"x":NaN"#, "", Some(Some(17))),
            (r#"{"jsonrpc":"2.0","id":17,"#, "", Some(Some(17))),
            (r#"{"id":17,"level":"info","#, "", None),
            (r#"{"jsonrpc":"2.0","id":17"#, "", Some(None)),
            (r#"{"jsonrpc":"2.0","id":17,"result":{"text":"\"#, "", Some(Some(17))),
            (r#"[{"jsonrpc":"2.0","id":17,"result":{"text":"#, "", None),
            ("garbage", r#","id":17}"#, None),
        ] {
            let found = id_of_response(&mut Scanner::default(), start.as_bytes(), end.as_bytes());
            assert_eq!(found, expected, "{start} … {end}");
        }
        let invalid = b"{\"id\":17,\"result\":\"\xff\"}";
        assert_eq!(id_of_broken_response(&mut Scanner::default(), invalid), Some(17));
    }
}
