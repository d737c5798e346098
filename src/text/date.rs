//! Dates as RFC 3339 writes them, in UTC, from and to the time since 1970.

/// The second of Unix time as a date.
pub fn rfc3339(seconds: u64) -> String {
    let mut out = Vec::with_capacity(20);
    write_seconds(&mut out, seconds);
    out.push(b'Z');
    String::from_utf8(out).expect("digits")
}

/// The millisecond of Unix time as a date.
pub fn rfc3339_millis(millis: u64) -> String {
    let mut out = Vec::with_capacity(24);
    write_millis(&mut out, millis);
    String::from_utf8(out).expect("digits")
}

/// Appends the millisecond of Unix time as a date.
pub fn write_millis(out: &mut Vec<u8>, millis: u64) {
    write_seconds(out, millis / 1000);
    write_rest(out, millis);
}

/// Appends what stands behind the seconds in a date: the milliseconds, and the zone.
pub fn write_rest(out: &mut Vec<u8>, millis: u64) {
    out.extend_from_slice(&[b'.', digit(millis / 100), digit(millis / 10), digit(millis), b'Z']);
}

/// Appends the second of Unix time as a date, without its zone.
pub fn write_seconds(out: &mut Vec<u8>, seconds: u64) {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Counting years from March makes a leap day the last day: H. Hinnant, "chrono-compatible date
    // algorithms".
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    digits(out, year, 4);
    let mut text = *b"-00-00T00:00:00";
    for (at, number) in [(1, month), (4, day), (7, rest / 3_600), (10, rest / 60 % 60), (13, rest % 60)] {
        (text[at], text[at + 1]) = (digit(number / 10), digit(number));
    }
    out.extend_from_slice(&text);
}

/// The last digit of a number.
fn digit(number: u64) -> u8 {
    b'0' + (number % 10) as u8
}

/// Appends a number with this many digits at least.
fn digits(out: &mut Vec<u8>, number: u64, width: u32) {
    if number >= 10_u64.pow(width) {
        digits(out, number / 10, width);
    } else if width > 1 {
        digits(out, number / 10, width - 1);
    }
    out.push(digit(number));
}

/// The milliseconds of Unix time that a date stands for; `None` for any other text, and for dates before 1970.
pub fn millis(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<u64> {
        let part = text.get(from..to)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let is = |at: usize, allowed: &[u8]| bytes.get(at).is_some_and(|byte| allowed.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // A leap second is the first moment of the next minute.
    if day == 0 || day > longest || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction, zone) = match bytes.get(19) {
        Some(b'.') => {
            let length = text[20..].bytes().take_while(u8::is_ascii_digit).count();
            let digits = text.get(20..20 + length.min(3)).filter(|digits| !digits.is_empty())?;
            (format!("{digits:0<3}").parse().ok()?, &text[20 + length..])
        }
        _ => (0, text.get(19..)?),
    };
    let shift = match zone.as_bytes() {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let at = text.len() - 6;
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            let seconds =
                i64::try_from(hours * 3600 + minutes * 60).ok().filter(|_| hours < 24 && minutes < 60)?;
            if *sign == b'+' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let shifted = year - u64::from(month <= 2);
    let days =
        365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + (153 * from_march + 2) / 5 + day - 1;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second;
    Some(seconds.checked_add_signed(shift)? * 1000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_and_read() {
        for (at, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_007, "2000-02-29T00:00:00.007Z"),
            (1_794_823_537_123, "2026-11-16T10:05:37.123Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339_millis(at), text);
            assert_eq!(millis(text), Some(at), "{text}");
        }
        for (seconds, expected) in [
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), expected);
        }
        for (text, expected) in [
            ("2026-11-16T10:05:37Z", Some(1_794_823_537_000)),
            ("2026-11-16 10:05:37.5z", Some(1_794_823_537_500)),
            ("2026-11-16t10:05:37.123456+01:30", Some(1_794_818_137_123)),
            ("2026-11-16T10:05:37-00:30", Some(1_794_825_337_000)),
            ("2024-02-29T00:00:00Z", Some(1_709_164_800_000)),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
        for wrong in [
            "",
            "yesterday",
            "2026-11-16",
            "2026-11-16T10:05Z",
            "2026-11-16T10:05:37",
            "2026-11-16T10:05:37.Z",
            "2026-13-16T10:05:37Z",
            "2025-02-29T00:00:00Z",
            "2026-11-31T00:00:00Z",
            "2026-11-16T24:00:00Z",
            "2026-11-16T10:05:37+1:00",
            "1969-12-31T23:59:59Z",
            "2026-11-16T10:05:37é",
        ] {
            assert_eq!(millis(wrong), None, "{wrong}");
        }
    }
}
