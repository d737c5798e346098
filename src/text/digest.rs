//! Short texts and numbers that stand for long ones.
//!
//! Invariant: they are the same on every machine and in every version, because files and names outlive a
//! process.

use ring::digest::{Context, SHA256};

/// The bytes in hexadecimal.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    let mut digits = Vec::with_capacity(2 * bytes.as_ref().len());
    write_hex(&mut digits, bytes.as_ref());
    String::from_utf8(digits).expect("digits")
}

/// Appends the bytes in hexadecimal.
pub fn write_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    /// The digits of each byte.
    const BOTH: [[u8; 2]; 256] = {
        let digits = b"0123456789abcdef";
        let (mut all, mut byte) = ([[0; 2]; 256], 0);
        while byte < 256 {
            all[byte] = [digits[byte >> 4], digits[byte & 15]];
            byte += 1;
        }
        all
    };
    // Eight at a time: each request of a trace has several.
    for some in bytes.chunks(8) {
        let mut text = [[0; 2]; 8];
        text.iter_mut().zip(some).for_each(|(both, byte)| *both = BOTH[usize::from(*byte)]);
        out.extend_from_slice(text[..some.len()].as_flattened());
    }
}

/// The bytes that hexadecimal digits stand for; `None` for any other text.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

/// A number that tells texts apart if nobody forges them (FNV-1a).
pub fn number(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A digest of several texts for which nobody can find a collision: the first half of a SHA-256.
pub struct Digest(Context);

impl Default for Digest {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Digest {
    /// Adds a text. Two texts give another digest than their concatenation.
    pub fn eat(&mut self, part: &str) {
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part.as_bytes());
    }

    /// The digest as a file name.
    pub fn name(self) -> String {
        hex(&self.0.finish().as_ref()[..16])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_a_text_never_changes() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(number(text.bytes()), expected, "{text}");
        }
        for (parts, expected) in [
            (["https://h/mcp", ""], "7c1fa926181eb32cfb082f0fca1c6dc4"),
            (["https://h/mcp", "me"], "28b700ad95b4f1431689f0875fdc5f09"),
        ] {
            let mut digest = Digest::default();
            parts.iter().for_each(|part| digest.eat(part));
            assert_eq!(digest.name(), expected, "{parts:?}");
        }
    }

    #[test]
    fn digits_become_bytes_and_back() {
        assert_eq!(hex([0x00, 0x0f, 0xa0, 0xff]), "000fa0ff");
        for (text, expected) in [
            ("", Some(&b""[..])),
            ("000fA0ff", Some(b"\x00\x0f\xa0\xff")),
            ("0", None),
            ("+f", None),
            ("zz", None),
            ("ä", None),
        ] {
            assert_eq!(from_hex(text).as_deref(), expected, "{text}");
        }
    }
}
