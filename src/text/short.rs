//! A text that is usually short: then it needs no memory of its own.

use std::fmt;
use std::ops::Deref;

/// The longest text that stands in place.
const IN_PLACE: usize = 62;

/// A text that does not change.
#[derive(Clone)]
pub struct ShortText(Held);

#[derive(Clone)]
enum Held {
    InPlace(u8, [u8; IN_PLACE]),
    Apart(Box<str>),
}

impl From<&str> for ShortText {
    fn from(text: &str) -> Self {
        if text.len() > IN_PLACE {
            return Self(Held::Apart(text.into()));
        }
        let mut bytes = [0; IN_PLACE];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Self(Held::InPlace(text.len() as u8, bytes))
    }
}

impl Deref for ShortText {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Held::InPlace(..) => std::str::from_utf8(self.as_bytes()).expect("it was a text before"),
            Held::Apart(text) => text,
        }
    }
}

impl ShortText {
    /// Its bytes, which need no second look.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Held::InPlace(length, bytes) => &bytes[..usize::from(*length)],
            Held::Apart(text) => text.as_bytes(),
        }
    }
}

impl PartialEq for ShortText {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_any_length_stay_what_they_are() {
        for length in [0, 1, 61, 62, 63, 1000] {
            for text in ["x".repeat(length), "é".repeat(length / 2)] {
                assert_eq!(&*ShortText::from(&*text), text);
            }
        }
    }
}
