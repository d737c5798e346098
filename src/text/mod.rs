//! Foreign text, made fit to stand among our own words.

pub mod digest;
pub mod percent;

/// Text without anything that a terminal acts upon or that nobody sees: control characters become spaces, invisible ones
/// go.
pub fn plain(text: &str) -> String {
    let visible = text.chars().filter(|c| !is_invisible(*c));
    visible.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Plain text on one line, white space folded.
pub fn one_line(text: &str) -> String {
    plain(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Names on one line, one after the other.
pub fn listed(names: &[impl AsRef<str>]) -> String {
    names.iter().map(|name| one_line(name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Characters that show nothing, or turn the direction of what follows.
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
        assert_eq!(plain("  at \u{7}line\u{200b} 1\t"), "  at  line 1 ");
        assert_eq!(listed(&["a\u{2028}b", "\u{feff}c"]), "a b, c");
    }
}
