//! Splits text into terms: takes identifiers apart, tells scripts apart and reduces words to their stems.

use rust_stemmers::{Algorithm, Stemmer};

/// The kind of a character for splitting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Digit,
    /// A character of a script without spaces between words. Runs of them are cut into pairs.
    Dense,
    Break,
}

/// One word of a text in its written form, before stemming.
pub(super) struct Word<'a> {
    /// The characters as they stand in the text.
    pub(super) raw: &'a str,
    /// The byte offset of the word.
    pub(super) start: usize,
    /// Whether the word is one of several parts of an identifier (`git` and `hub` of `GitHub`).
    pub(super) part: bool,
    /// Whether the word is a whole identifier (`GitHub`), which follows its parts.
    pub(super) whole: bool,
}

fn class(c: char) -> Class {
    if c.is_ascii() {
        return match c {
            'a'..='z' => Class::Lower,
            'A'..='Z' => Class::Upper,
            '0'..='9' => Class::Digit,
            _ => Class::Break,
        };
    }
    if dense(c) {
        Class::Dense
    } else if c.is_uppercase() {
        Class::Upper
    } else if c.is_alphabetic() || mark(c) {
        Class::Lower
    } else if c.is_numeric() {
        Class::Digit
    } else {
        Class::Break
    }
}

/// Han, kana, Hangul, Thai, Lao, Khmer and Burmese, which have no spaces, or spaces that do not separate
/// words from endings.
fn dense(c: char) -> bool {
    matches!(u32::from(c),
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1100..=0x11FF | 0x1780..=0x17FF | 0x3005..=0x3007
        | 0x3040..=0x30FF | 0x3130..=0x318F | 0x31F0..=0x31FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF
        | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0xFF66..=0xFF9F | 0x20000..=0x323AF)
}

/// Marks that belong to the preceding letter: combining accents and the vowel signs of Indic scripts.
fn mark(c: char) -> bool {
    matches!(u32::from(c), 0x0300..=0x036F | 0x0591..=0x05C7 | 0x064B..=0x065F | 0x0900..=0x0DFF | 0x200C..=0x200D)
}

/// Calls `each` with the words of `text` in order.
///
/// An identifier yields its parts. If it has two or three parts (`GitHub`, `mp4`), the whole identifier
/// follows, because people write such names in both ways.
pub(super) fn words<'a>(text: &'a str, mut each: impl FnMut(Word<'a>)) {
    let mut chars = text.char_indices().peekable();
    let mut parts: Vec<(usize, usize)> = Vec::new();
    while let Some(&(start, first)) = chars.peek() {
        match class(first) {
            Class::Break => {
                chars.next();
            }
            Class::Dense => pairs(text, &mut chars, &mut each),
            _ => {
                parts.clear();
                run(&mut chars, &mut parts);
                let end = parts.last().map_or(start, |part| part.1);
                let several = parts.len() > 1;
                for &(from, to) in &parts {
                    each(Word { raw: &text[from..to], start: from, part: several, whole: false });
                }
                if several && parts.len() <= 3 {
                    each(Word { raw: &text[start..end], start, part: false, whole: true });
                }
            }
        }
    }
}

type Chars<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

/// Reads a run of dense script and yields each pair of neighbours, or a single character alone.
fn pairs<'a>(text: &'a str, chars: &mut Chars<'a>, each: &mut impl FnMut(Word<'a>)) {
    let mut before: Option<usize> = None;
    let mut count = 0;
    while let Some(&(at, c)) = chars.peek() {
        if class(c) != Class::Dense {
            break;
        }
        chars.next();
        let end = at + c.len_utf8();
        if let Some(from) = before {
            each(Word { raw: &text[from..end], start: from, part: false, whole: false });
        }
        before = Some(at);
        count += 1;
    }
    if let (1, Some(from)) = (count, before) {
        let end = chars.peek().map_or(text.len(), |next| next.0);
        each(Word { raw: &text[from..end], start: from, part: false, whole: false });
    }
}

/// Reads a run of letters and digits and records where its parts begin and end.
fn run(chars: &mut Chars<'_>, parts: &mut Vec<(usize, usize)>) {
    let mut from = None;
    let mut last = (Class::Break, 0);
    let mut end = 0;
    while let Some(&(at, c)) = chars.peek() {
        let mut now = class(c);
        if mark(c) && last.0 != Class::Break {
            now = last.0;
        }
        if matches!(now, Class::Break | Class::Dense) {
            break;
        }
        chars.next();
        match (last.0, now) {
            (Class::Break, _) => from = Some(at),
            (Class::Lower, Class::Upper)
            | (Class::Digit, Class::Lower | Class::Upper)
            | (Class::Lower | Class::Upper, Class::Digit) => {
                parts.push((from.unwrap_or(at), at));
                from = Some(at);
            }
            // In `HTTPServer` the last capital belongs to the next part, unless a plural follows (`URLs`,
            // `IDs`).
            (Class::Upper, Class::Lower) if from.is_some_and(|from| from < last.1) => {
                let plural = c == 's' && chars.peek().is_none_or(|next| class(next.1) != Class::Lower);
                if !plural {
                    parts.push((from.unwrap_or(at), last.1));
                    from = Some(last.1);
                }
            }
            _ => {}
        }
        last = (now, at);
        end = at + c.len_utf8();
        // Most letters are small and follow small ones, where nothing can end.
        while now == Class::Lower
            && let Some((at, _)) = chars.next_if(|next| next.1.is_ascii_lowercase())
        {
            last.1 = at;
            end = at + 1;
        }
    }
    if let Some(from) = from {
        parts.push((from, end));
    }
}

/// Reduces words to terms.
pub(super) struct Stems {
    english: Stemmer,
    russian: Stemmer,
    greek: Stemmer,
    arabic: Stemmer,
}

impl Stems {
    pub(super) fn new() -> Self {
        Self {
            english: Stemmer::create(Algorithm::English),
            russian: Stemmer::create(Algorithm::Russian),
            greek: Stemmer::create(Algorithm::Greek),
            arabic: Stemmer::create(Algorithm::Arabic),
        }
    }

    /// The term of a folded word.
    pub(super) fn stem(&self, folded: &str) -> String {
        let stemmer = match folded.chars().next().map(u32::from) {
            Some(0x61..=0x7A) if folded.is_ascii() => &self.english,
            Some(0x0400..=0x04FF) => &self.russian,
            Some(0x0370..=0x03FF) => &self.greek,
            Some(0x0600..=0x06FF) => &self.arabic,
            _ => return folded.to_owned(),
        };
        stemmer.stem(folded).into_owned()
    }
}

/// Lower-cases a word, removes the accents of Latin letters and replaces full-width forms.
pub(super) fn fold(raw: &str, into: &mut String) {
    into.clear();
    for c in raw.chars() {
        if c.is_ascii() {
            into.push(c.to_ascii_lowercase());
            continue;
        }
        let code = u32::from(c);
        if matches!(code, 0x0300..=0x036F | 0x200C..=0x200D) {
            continue;
        }
        if let 0xFF01..=0xFF5E = code {
            into.extend(char::from_u32(code - 0xFEE0).map(|c| c.to_ascii_lowercase()));
            continue;
        }
        for lower in c.to_lowercase() {
            match plain(lower) {
                "" => into.push(lower),
                letters => into.push_str(letters),
            }
        }
    }
}

/// A Latin letter without its accent; empty if it has none.
fn plain(c: char) -> &'static str {
    match c {
        'à'..='å' | 'ā' | 'ă' | 'ą' | 'ǎ' | 'ạ'..='ặ' => "a",
        'æ' => "ae",
        'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' => "c",
        'ď' | 'đ' | 'ð' => "d",
        'è'..='ë' | 'ē' | 'ĕ' | 'ė' | 'ę' | 'ě' | 'ẹ'..='ệ' => "e",
        'ĝ' | 'ğ' | 'ġ' | 'ģ' => "g",
        'ĥ' | 'ħ' => "h",
        'ì'..='ï' | 'ĩ' | 'ī' | 'ĭ' | 'į' | 'ı' | 'ỉ' | 'ị' => "i",
        'ĵ' => "j",
        'ķ' => "k",
        'ĺ' | 'ļ' | 'ľ' | 'ł' => "l",
        'ñ' | 'ń' | 'ņ' | 'ň' => "n",
        'ò'..='ö' | 'ø' | 'ō' | 'ŏ' | 'ő' | 'ơ' | 'ọ'..='ợ' => "o",
        'œ' => "oe",
        'ŕ' | 'ř' => "r",
        'ś' | 'ŝ' | 'ş' | 'š' | 'ș' => "s",
        'ß' => "ss",
        'ţ' | 'ť' | 'ț' => "t",
        'ù'..='ü' | 'ũ' | 'ū' | 'ŭ' | 'ů' | 'ű' | 'ų' | 'ư' | 'ụ'..='ự' => "u",
        'ŵ' => "w",
        'ý' | 'ÿ' | 'ŷ' | 'ỳ'..='ỹ' => "y",
        'ź' | 'ż' | 'ž' => "z",
        _ => "",
    }
}

/// Calls `each` with every run of three characters, with markers for both ends of the word.
pub(super) fn grams(word: &str, mut each: impl FnMut(u32)) {
    let (mut first, mut second) = (None, 2);
    for c in word.chars().map(u32::from).chain([3]) {
        if let Some(first) = first {
            each([first, second, c].iter().fold(0, |hash: u32, c| hash.wrapping_mul(0x0100_4935) ^ c));
        }
        (first, second) = (Some(second), c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let stems = Stems::new();
        let mut folded = String::new();
        let mut found = Vec::new();
        words(text, |word| {
            fold(word.raw, &mut folded);
            found.push(stems.stem(&folded));
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn identifiers_are_taken_apart() {
        check("find_symbol", &["find", "symbol"]);
        check("find-symbol/now", &["find", "symbol", "now"]);
        check("findSymbol", &["find", "symbol", "findsymbol"]);
        check("parseHTTPHeaders", &["pars", "http", "header", "parsehttphead"]);
        check("listURLs", &["list", "url", "listurl"]);
        check("GitHub", &["git", "hub", "github"]);
        check("mp4", &["mp", "4", "mp4"]);
        check("aBcDeF", &["a", "bc", "de", "f"]);
    }

    #[test]
    fn every_script_gives_terms() {
        check("天気予報", &["天気", "気予", "予報"]);
        check("Windowsの設定", &["window", "の設", "設定"]);
        check("雨", &["雨"]);
        check("поиск файлов", &["поиск", "файл"]);
        check("Überprüfung café", &["uberprufung", "cafe"]);
        check("cafe\u{301}", &["cafe"]);
        check("ＡＰＩ", &["api"]);
        check("मौसम", &["मौसम"]);
        check("…—!", &[]);
    }
}
