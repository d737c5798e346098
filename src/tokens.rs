//! How many tokens a model reads. `tokens` and `show` tell people, and the demonstration compares by it.
//!
//! Models do not agree on a tokenizer, and a vocabulary of 200,000 entries would be a third of this program. So
//! this is a model of one: text is cut into segments as o200k_base cuts it before it looks at its vocabulary, and
//! each segment costs what those of its kind and length cost on average in the definitions of real servers. `benches/tokens/run.mjs` compares it with the real tokenizer over such servers.
//!
//! Invariant: over the definitions of real servers the sum is within 5 %, and that of each server within 10 %.

use serde_json::Value;

/// What [`count`] models, for people and for `--json`.
pub const TOKENIZER: &str = "o200k_base, estimated";

/// The tokens of a definition as clients hand it to a model: a compact JSON object of `name`, `description` and
/// `inputSchema`. What is not JSON costs what its text costs.
pub fn of_definition(raw: &str) -> usize {
    let Ok(Value::Object(members)) = serde_json::from_str(raw) else { return count(raw) };
    let of_member = |key: &&str| Some(format!("\"{key}\":{}", members.get(*key)?));
    let members: Vec<String> = ["name", "description", "inputSchema"].iter().filter_map(of_member).collect();
    count(&format!("{{{}}}", members.join(",")))
}

/// The tokens of a text.
pub fn count(text: &str) -> usize {
    let mut rest = text;
    let mut hundredths = 0;
    while let Some(segment) = Segment::first(rest) {
        hundredths += segment.cost();
        rest = &rest[segment.text().len()..];
    }
    (hundredths + 50) / 100
}

/// What no token reaches across.
#[derive(Debug, PartialEq)]
enum Segment<'a> {
    /// Letters, after at most one character of another kind.
    Word(&'a str),
    /// Up to three digits.
    Number(&'a str),
    Space(&'a str),
    /// Everything else, with the space before and the line breaks after it.
    Marks(&'a str),
}

impl<'a> Segment<'a> {
    /// The first segment of a text. The order of the attempts is that of o200k_base.
    fn first(text: &'a str) -> Option<Self> {
        let first = text.chars().next()?;
        let upto = |length: usize| &text[..length];
        let before =
            if is_letter(first) || first.is_numeric() || is_line_break(first) { 0 } else { first.len_utf8() };
        let letters = word(&text[before..]);
        if letters > 0 {
            return Some(Self::Word(upto(before + letters)));
        }
        if first.is_numeric() {
            let digits = text.chars().take(3).take_while(|c| c.is_numeric());
            return Some(Self::Number(upto(digits.map(char::len_utf8).sum())));
        }
        let space = usize::from(first == ' ');
        let is_mark = |c: char| !c.is_whitespace() && !is_letter(c) && !c.is_numeric();
        let marks = leading(&text[space..], is_mark);
        if marks > 0 {
            let breaks = leading(&text[space + marks..], |c| is_line_break(c) || c == '/');
            return Some(Self::Marks(upto(space + marks + breaks)));
        }
        let spaces = upto(leading(text, char::is_whitespace));
        if let Some(at) = spaces.rfind(is_line_break) {
            return Some(Self::Space(upto(at + 1)));
        }
        // The last space before a word belongs to the word.
        let last = spaces.chars().next_back().map_or(0, char::len_utf8);
        let length =
            if spaces.len() < text.len() && spaces.len() > last { spaces.len() - last } else { spaces.len() };
        Some(Self::Space(upto(length)))
    }

    fn text(&self) -> &'a str {
        let (Self::Word(text) | Self::Number(text) | Self::Space(text) | Self::Marks(text)) = self;
        text
    }

    /// What such segments cost on average, in hundredths of a token.
    fn cost(&self) -> usize {
        match self {
            Self::Number(_) | Self::Space(_) => 100,
            Self::Marks(text) if !text.is_ascii() => {
                text.chars().map(|c| if c < '\u{2700}' { 80 } else { 200 }).sum::<usize>().max(100)
            }
            // The most frequent marks between members have tokens of their own.
            Self::Marks("\":{\"" | "\":[\"" | ".\",\"" | "},{\"") => 100,
            Self::Marks(text) => match text.len() {
                ..=3 => 100,
                4 => 190,
                length => length * 43,
            },
            Self::Word(text) => word_cost(text),
        }
    }
}

/// The length of the word that the text begins with: capitals, then small letters, then an English ending.
fn word(text: &str) -> usize {
    let capitals = leading(text, |c| is_letter(c) && !c.is_lowercase());
    let letters = capitals + leading(&text[capitals..], |c| is_letter(c) && !c.is_uppercase());
    let rest = &text.as_bytes()[letters..];
    let ends = |ending: &str| {
        rest.get(..ending.len()).is_some_and(|end| end.eq_ignore_ascii_case(ending.as_bytes()))
    };
    let ending =
        ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"].into_iter().find(|ending| letters > 0 && ends(ending));
    letters + ending.map_or(0, str::len)
}

fn word_cost(text: &str) -> usize {
    let mut chars = text.chars();
    let before = chars.next().filter(|c| !is_letter(*c));
    let letters = if before.is_some() { chars.as_str() } else { text };
    let length = letters.chars().count();
    if !letters.is_ascii() {
        let each = if letters.chars().any(is_ideograph) { 76 } else { 34 };
        return (length * each).max(100);
    }
    if length > 1 && letters.bytes().take(2).all(|byte| byte.is_ascii_uppercase()) {
        return match length {
            2 => 100,
            3 | 4 => 118,
            _ => length * 32,
        };
    }
    match (before, length) {
        (_, 1) => 100,
        (Some('\\'), _) => 200,
        (None | Some(' ' | '.'), _) => match length {
            ..=6 => 101,
            7 | 8 => 104,
            9..=11 => 109,
            12..=14 => 120,
            _ => length * 20,
        },
        (Some('_'), _) => match length {
            ..=6 => 106,
            7..=9 => 124,
            _ => length * 15,
        },
        (Some(_), _) => match length {
            ..=6 => 137,
            _ => length * 22,
        },
    }
}

/// The length of the longest beginning whose characters are all of a kind.
fn leading(text: &str, is_one: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_one(c)).unwrap_or(text.len())
}

fn is_line_break(c: char) -> bool {
    matches!(c, '\r' | '\n')
}

/// Whether this is a letter, or an accent that stands for itself.
fn is_letter(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '\u{300}'..='\u{36f}')
}

/// Whether this belongs to a script that writes a word, or a syllable, with one sign.
fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{Segment, count, of_definition};

    #[test]
    fn text_is_cut_where_the_tokenizer_cuts_it() {
        for (text, expected) in [
            ("Read a file", &["Read", " a", " file"][..]),
            ("{\"name\":\"read_file\"}", &["{\"", "name", "\":\"", "read", "_file", "\"}"]),
            ("maxHTTPResults's 12345", &["max", "HTTPResults's", " ", "123", "45"]),
            ("a  \n\n  b,   c  ", &["a", "  \n\n", " ", " b", ",", "  ", " c", "  "]),
            ("see ./docs\n//x", &["see", " ./", "docs", "\n", "//", "x"]),
            ("don't SHOUT", &["don't", " SHOUT"]),
            ("保存文件。", &["保存文件", "。"]),
        ] {
            let mut rest = text;
            let mut cut = Vec::new();
            while let Some(segment) = Segment::first(rest) {
                cut.push(segment.text());
                rest = &rest[segment.text().len()..];
            }
            assert_eq!(cut, expected, "{text:?}");
        }
    }

    /// The numbers on the right are the real tokenizer's.
    #[test]
    fn texts_of_any_kind_cost_about_what_they_cost() {
        for (text, expected, allowed) in [
            ("", 0, 0),
            ("Read a file", 3, 0),
            ("1234567", 3, 0),
            (r#"{"name":"read_file"}"#, 6, 0),
            ("Ищет файлы в каталоге и возвращает список путей", 14, 1),
            ("获取当前日期，以上海时区为准，返回格式为年月日。通过城市名查询该城市所有车站的名称。", 29, 3),
        ] {
            assert!(count(text).abs_diff(expected) <= allowed, "{text}: {} and not {expected}", count(text));
        }
    }

    /// `benches/tokens/run.mjs` recorded the definitions and what the real tokenizer counts.
    #[test]
    fn real_servers_are_within_ten_percent_and_all_of_them_within_five() {
        let recorded = include_str!("../tests/fixtures/definitions.json");
        let servers: Vec<Value> = serde_json::from_str(recorded).expect("JSON");
        let (mut real, mut ours) = (0.0, 0.0);
        let off = |ours: f64, real: f64| (ours / real - 1.0) * 100.0;
        for server in &servers {
            let tools = server["tools"].as_array().expect("a list");
            let counted = tools.iter().map(|tool| of_definition(&tool.to_string())).sum::<usize>() as f64;
            let expected = server["tokens"].as_f64().expect("a number");
            let off = off(counted, expected);
            assert!(off.abs() <= 10.0, "{}: {counted} and not {expected}, {off:+.1} %", server["package"]);
            (real, ours) = (real + expected, ours + counted);
        }
        assert!(off(ours, real).abs() <= 5.0, "in all {ours} and not {real}, {:+.1} %", off(ours, real));
    }

    #[test]
    fn a_definition_is_three_members_however_it_is_written() {
        let compact = r#"{"name":"a","description":"Do …","inputSchema":{"type":"object"}}"#;
        let spread = r#"{ "title": "A", "inputSchema": { "type": "object" }, "name": "a",
            "description": "Do \u2026", "outputSchema": {"type": "object"}, "annotations": {} }"#;
        assert_eq!(of_definition(spread), count(compact));
        assert_eq!(of_definition(r#"{"name":"a"}"#), count(r#"{"name":"a"}"#));
        assert_eq!(of_definition("not JSON"), count("not JSON"));
    }
}
