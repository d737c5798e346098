//! Percent-encoding for URLs.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All characters that RFC 3986 does not call unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a text so that it can stand anywhere in a URL.
pub fn encode(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, RESERVED).into()
}

/// Decodes a text. A `%` that begins no code stands for itself.
pub fn decode(text: &str) -> Cow<'_, [u8]> {
    percent_decode_str(text).into()
}

/// Like [`decode`], but `None` if a `%` begins no code or the result is not UTF-8.
pub fn decode_strictly(text: &str) -> Option<Cow<'_, str>> {
    let is_code = |behind: &str| behind.len() >= 2 && behind.bytes().take(2).all(|c| c.is_ascii_hexdigit());
    let is_whole = text.split('%').skip(1).all(is_code);
    is_whole.then(|| percent_decode_str(text).decode_utf8().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unreserved_stays() {
        for (text, expected) in [
            ("", ""),
            ("aZ09-._~", "aZ09-._~"),
            ("my box/é", "my%20box%2F%C3%A9"),
            ("100%\u{7f}+", "100%25%7F%2B"),
        ] {
            assert_eq!(encode(text), expected);
            assert_eq!(decode_strictly(expected).unwrap(), text);
        }
    }

    #[test]
    fn broken_codes_stand_for_themselves_or_for_nothing() {
        for (text, decoded, whole) in [
            ("a%2fb%2F", &b"a/b/"[..], Some("a/b/")),
            ("%25%34%31", b"%41", Some("%41")),
            ("a+b", b"a+b", Some("a+b")),
            ("%", b"%", None),
            ("%4", b"%4", None),
            ("%zz", b"%zz", None),
            ("%+4", b"%+4", None),
            ("%%41", b"%A", None),
            ("%é", "%é".as_bytes(), None),
            ("%ff", b"\xff", None),
        ] {
            assert_eq!(decode(text), decoded, "{text}");
            assert_eq!(decode_strictly(text).as_deref(), whole, "{text}");
        }
    }
}
