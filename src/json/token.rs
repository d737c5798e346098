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

/// Whether the text needs no escapes in a string.
pub(super) fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first_chunk(), bytes.last_chunk()) {
        // Most names are short; these words overlap.
        (Some(first), Some(last)) if bytes.len() <= 16 => (special(*first) | special(*last)) == 0,
        (None, _) => !bytes.iter().any(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\')),
        _ => plain(bytes, 0) == bytes.len(),
    }
}

/// The number of bytes of a string to check chunk by chunk before a vectorised search pays off.
const SHORT: usize = 128;

/// The end of the plain part of a string that begins at `at`, which stops at a quote, a backslash or a
/// control character.
#[inline(always)]
pub(super) fn plain(text: &[u8], at: usize) -> usize {
    // Most keys end within the first word.
    match text[at..].first_chunk().map(|word| special(*word)) {
        Some(0) => beyond(text, at + 8),
        Some(found) => at + found.trailing_zeros() as usize / 8,
        None => far(text, at),
    }
}

/// Like [`plain`], for strings of more than one word.
fn beyond(text: &[u8], mut at: usize) -> usize {
    let near = at + SHORT;
    while at < near
        && let Some(chunk) = text[at..].first_chunk()
    {
        match specials(chunk) {
            0 => at += chunk.len(),
            found => return at + found.trailing_zeros() as usize / 8,
        }
    }
    match text.last_chunk() {
        // The bytes that were checked already are shifted out.
        Some(chunk) if text.len() - at < chunk.len() => {
            let seen = 8 * (at + chunk.len() - text.len()) as u32;
            let found = specials(chunk).checked_shr(seen).unwrap_or(0);
            text.len().min(at + found.trailing_zeros() as usize / 8)
        }
        _ => far(text, at),
    }
}

/// A number of 16 bytes, of which those are set that end the plain part of a string in this chunk.
#[inline(always)]
fn specials(chunk: &[u8; 16]) -> u128 {
    let mut found = [0; 16];
    // In this form the compiler makes one vector operation of each comparison.
    for (found, byte) in found.iter_mut().zip(chunk) {
        *found = if (*byte ^ 0x02 < 0x21) | (*byte == b'\\') { u8::MAX } else { 0 };
    }
    u128::from_le_bytes(found)
}

/// Like [`plain`], for long strings and at the end of a text.
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

/// A word whose lowest set bit is in the first byte that ends the plain part of a string: a quote, a backslash
/// or a control character. It is 0 if there is none.
#[inline(always)]
fn special(word: [u8; 8]) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let word = u64::from_le_bytes(word);
    // Sets the high bit of each byte that is below `limit` once `flipped`, and perhaps of bytes after it.
    let below = |flipped: u8, limit: u64| (word ^ (ONES * u64::from(flipped))).wrapping_sub(ONES * limit);
    // With this bit flipped, a quote is the byte after the control characters.
    (below(0x02, 0x21) | below(b'\\', 1)) & !word & (ONES << 7)
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

/// The end of the number that begins at `start`.
pub(super) fn number(text: &[u8], start: usize) -> Result<usize, Invalid> {
    let whole = start + usize::from(text[start] == b'-');
    let mut at = digits(text, whole)?;
    if text[whole] == b'0' {
        at = whole + 1;
    }
    if text.get(at) == Some(&b'.') {
        at = digits(text, at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1;
        at = digits(text, at + usize::from(matches!(text.get(at), Some(b'+' | b'-'))))?;
    }
    Ok(at)
}

/// The end of the digits that begin at `at`, of which there must be one.
fn digits(text: &[u8], at: usize) -> Result<usize, Invalid> {
    let mut end = at;
    while text.get(end).is_some_and(u8::is_ascii_digit) {
        end += 1;
    }
    if end == at { Err(Invalid { offset: at }) } else { Ok(end) }
}

pub(super) fn literal(text: &[u8], at: usize, word: &[u8]) -> Result<usize, Invalid> {
    if text[at..].starts_with(word) { Ok(at + word.len()) } else { Err(Invalid { offset: at }) }
}
