//! Patterns over exposed names: `*`, `?`, `[…]`, `[!…]`. Toolman switches things on and off by them.

/// A pattern. Everything but its special characters stands for itself. A pattern always matches its own text
/// too, because the names of templates are full of braces and brackets.
#[derive(Debug, Clone)]
pub struct Glob {
    text: String,
    parts: Vec<GlobPart>,
}

#[derive(Debug, Clone)]
enum GlobPart {
    Char(char),
    /// `?`: any one character.
    One,
    /// `*`: any characters, `/` included.
    Any,
    /// `[…]`: the ranges, and whether they are excluded.
    Class(Vec<(char, char)>, bool),
}

impl Glob {
    /// Compiles a text; every text is a valid pattern.
    pub fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(&c) = chars.get(at) {
            at += 1;
            parts.push(match c {
                '?' => GlobPart::One,
                '*' => GlobPart::Any,
                '[' => match class(&chars[at..]) {
                    Some((part, length)) => {
                        at += length;
                        part
                    }
                    None => GlobPart::Char('['),
                },
                c => GlobPart::Char(c),
            });
        }
        Self { text: text.to_owned(), parts }
    }

    /// Whether a text has any special character.
    pub fn is_pattern(text: &str) -> bool {
        text.contains(['*', '?', '['])
    }

    /// The pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the whole name matches.
    pub fn matches(&self, name: &str) -> bool {
        if name == self.text {
            return true;
        }
        let name: Vec<char> = name.chars().collect();
        let (mut part, mut at) = (0, 0);
        // Where to continue if what follows the last `*` does not fit: the star then takes one more
        // character.
        let mut retry = None;
        loop {
            let fits = match (self.parts.get(part), name.get(at)) {
                (Some(GlobPart::Any), _) => {
                    retry = Some((part, at));
                    part += 1;
                    continue;
                }
                (None, None) => return true,
                (Some(GlobPart::One), Some(_)) => true,
                (Some(GlobPart::Char(expected)), Some(c)) => expected == c,
                (Some(GlobPart::Class(ranges, excluded)), Some(c)) => {
                    ranges.iter().any(|(low, high)| (low..=high).contains(&c)) != *excluded
                }
                _ => false,
            };
            if fits {
                (part, at) = (part + 1, at + 1);
            } else {
                match retry {
                    Some((star, from)) if from < name.len() => {
                        retry = Some((star, from + 1));
                        (part, at) = (star + 1, from + 1);
                    }
                    _ => return false,
                }
            }
        }
    }
}

/// A class and its length including the closing bracket; `None` if nothing closes it. A `]` at the very
/// beginning stands for itself.
fn class(chars: &[char]) -> Option<(GlobPart, usize)> {
    let excluded = chars.first() == Some(&'!');
    let start = usize::from(excluded);
    let end = start + 1 + chars.get(start + 1..)?.iter().position(|c| *c == ']')?;
    let (mut ranges, mut at) = (Vec::new(), start);
    while at < end {
        if at + 2 < end && chars[at + 1] == '-' {
            ranges.push((chars[at], chars[at + 2]));
            at += 3;
        } else {
            ranges.push((chars[at], chars[at]));
            at += 1;
        }
    }
    Some((GlobPart::Class(ranges, excluded), end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("pjpd_*", "pjpd_list", true),
            ("pjpd_*", "pjpd_", true),
            ("pjpd_*", "xpjpd_list", false),
            ("*", "", true),
            ("files_read*", "files_read_text/a/b", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[ab]x", "bx", true),
            ("[!ab]x", "bx", false),
            ("[!ab]x", "cx", true),
            ("[a-c]*[0-9]", "b_tool7", true),
            ("[b-d]x", "bx", true),
            ("[b-d]x", "dx", true),
            ("[b-d]x", "ax", false),
            ("[b-d]x", "ex", false),
            ("[]]x", "]x", true),
            ("[a", "[a", true),
            ("*a*b", "xxaxxbxxb", true),
            ("*a*b", "xxaxxbxxc", false),
            ("x://{id}[1]", "x://{id}[1]", true),
            ("x://{id}[1]", "x://{id}1", true),
            ("日*語", "日本語", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(name), expected, "{pattern} on {name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_matches_itself(name in ".{0,20}") {
            prop_assert!(Glob::new(&name).matches(&name));
        }

        #[test]
        fn agrees_with_a_simple_model(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            fn model(pattern: &[u8], name: &[u8]) -> bool {
                match (pattern.split_first(), name.split_first()) {
                    (None, None) => true,
                    (Some((b'*', rest)), _) => (0..=name.len()).any(|taken| model(rest, &name[taken..])),
                    (Some((b'?', rest)), Some((_, tail))) => model(rest, tail),
                    (Some((c, rest)), Some((d, tail))) => c == d && model(rest, tail),
                    _ => false,
                }
            }
            prop_assert_eq!(Glob::new(&pattern).matches(&name), model(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
