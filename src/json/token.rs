//! Finds the ends of the strings, numbers and literals of a JSON text, for `scan.rs`.

use super::Invalid;

/// The end of the string that begins at `at`, and whether it has escapes.
#[inline(always)]
pub(super) fn string(text: &[u8], at: usize) -> Result<(usize, bool), Invalid> {
    let stop = plain(text, at + 1);
    match text.get(stop) {
        Some(b'"') => Ok((stop + 1, false)),
        _ => escaped(text, stop),
    }
}

/// Like [`string`], starting at the first escape.
#[cold]
fn escaped(text: &[u8], mut stop: usize) -> Result<(usize, bool), Invalid> {
    loop {
        stop = match text.get(stop) {
            Some(b'"') => return Ok((stop + 1, true)),
            Some(b'\\') => plain(text, escape(text, stop)?),
            _ => return Err(Invalid { offset: stop }),
        };
    }
}

/// The number of bytes of a string to check word by word before a vectorised search pays off.
const SHORT: usize = 32;

/// The end of the plain part of a string that begins at `at`, which stops at a quote, a backslash or a
/// control character.
#[inline(always)]
fn plain(text: &[u8], mut at: usize) -> usize {
    let near = at + SHORT;
    while at < near
        && let Some(word) = text.get(at..at + 8).and_then(<[u8]>::first_chunk)
    {
        match special(*word) {
            Some(found) => return at + found,
            None => at += word.len(),
        }
    }
    far(text, at)
}

/// Like [`plain`], for longer strings.
#[inline(never)]
fn far(text: &[u8], at: usize) -> usize {
    let rest = &text[at..];
    let rest = &rest[..memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len())];
    let end = match rest.iter().fold(false, |bad, byte| bad | (*byte < 0x20)) {
        true => rest.iter().position(|byte| *byte < 0x20).unwrap_or(rest.len()),
        false => rest.len(),
    };
    at + end
}

/// The index of the first byte in a word that ends the plain part of a string: a quote, a backslash or a
/// control character.
fn special(word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let word = u64::from_le_bytes(word);
    // Sets the high bit of each byte below `limit`, and perhaps of some bytes after such a byte.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & (ONES << 7);
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let found = equal(b'"') | equal(b'\\') | below(word, 0x20);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// The end of the escape sequence whose backslash is at `at`.
fn escape(text: &[u8], at: usize) -> Result<usize, Invalid> {
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') if text.len() >= at + 6 && text[at + 2..at + 6].iter().all(u8::is_ascii_hexdigit) => {
            Ok(at + 6)
        }
        _ => Err(Invalid { offset: at }),
    }
}

/// The end of the number that begins at `at`.
pub(super) fn number(text: &[u8], start: usize) -> Result<usize, Invalid> {
    let digits = |mut at: usize| {
        let first = at;
        while text.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at == first { Err(Invalid { offset: at }) } else { Ok(at) }
    };
    let mut at = start + usize::from(text[start] == b'-');
    at = if text.get(at) == Some(&b'0') { at + 1 } else { digits(at)? };
    if text.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1;
        at = digits(at + usize::from(matches!(text.get(at), Some(b'+' | b'-'))))?;
    }
    Ok(at)
}

pub(super) fn literal(text: &[u8], at: usize, word: &[u8]) -> Result<usize, Invalid> {
    if text[at..].starts_with(word) { Ok(at + word.len()) } else { Err(Invalid { offset: at }) }
}
