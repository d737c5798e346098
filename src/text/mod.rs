//! Makes foreign text safe to show among our own words.

pub mod date;
pub mod digest;
pub mod percent;
pub mod short;

/// Removes everything that a terminal acts on or that nobody sees: control characters become spaces,
/// invisible characters are dropped.
pub fn plain(text: &str) -> String {
    let visible = text.chars().filter(|c| !is_invisible(*c));
    visible.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Plain text on one line, with runs of white space replaced by one space.
pub fn one_line(text: &str) -> String {
    if is_one_line(text.as_bytes()) {
        return text.to_owned();
    }
    plain(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether this is one line of plain ASCII already, with single spaces between words.
fn is_one_line(text: &[u8]) -> bool {
    let mut after_space = true;
    let fits = text.iter().all(|byte| {
        let is_space = *byte == b' ';
        let fits = byte.is_ascii_graphic() || is_space && !after_space;
        after_space = is_space;
        fits
    });
    fits && (text.is_empty() || !after_space)
}

/// The names on one line, separated by commas.
pub fn listed(names: &[impl AsRef<str>]) -> String {
    names.iter().map(|name| one_line(name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// The text with every character that a terminal acts on, or that changes the direction of what follows, spelled out as
/// JSON spells it: `\u001b`.
pub fn spelled_out(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            c if c.is_control() || is_invisible(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    shown.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => shown.push(c),
        }
    }
    shown
}

/// Characters that are invisible or change the direction of the text after them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_rows_are_flattened() {
        assert_eq!(one_line("a\n* fake_tool\u{202e}\u{1b}[31m  b "), "a * fake_tool [31m b");
        for (text, line) in [("", ""), (" ", ""), ("a", "a"), ("a b", "a b"), ("a  b", "a b"), (" a", "a")] {
            assert_eq!((one_line(text), one_line(&format!("{text} "))), (line.to_owned(), line.to_owned()));
        }
        assert_eq!(one_line("a\u{7f}ä\tb"), "a ä b");
        assert_eq!(plain("  at \u{7}line\u{200b} 1\t"), "  at  line 1 ");
        assert_eq!(
            spelled_out("a\u{1b}[31m\u{202e}\u{7f}\n\u{e0001}ü"),
            r"a\u001b[31m\u202e\u007f\u000a\udb40\udc01ü"
        );
        assert_eq!(listed(&["a\u{2028}b", "\u{feff}c"]), "a b, c");
    }
}
