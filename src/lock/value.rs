//! A definition as a JSON value that can be compared: the order of members, white space and escapes make no
//! difference, while numbers count as they are spelled.
//!
//! Strings are held as the lock file writes them (see [`literal`](super::literal)), so that two strings are
//! equal exactly when their spellings here are.

use std::borrow::Cow;

use super::literal;

/// How deep values may be nested in a definition that can be approved. Deeper ones would exhaust the stack.
const DEEPEST: usize = 128;

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonValue<'a> {
    /// A number, `true`, `false` or `null`, as spelled.
    Plain(&'a str),
    /// A string, as the lock file writes it, without its quotes.
    Text(Cow<'a, str>),
    /// A list.
    List(Vec<JsonValue<'a>>),
    /// An object. Its members are sorted by key, and no key stands twice.
    Object(Vec<ObjectMember<'a>>),
}

/// A member of an object.
#[derive(Debug, Clone)]
pub(super) struct ObjectMember<'a> {
    /// The key, as the lock file writes it, without its quotes.
    pub(super) key: Cow<'a, str>,
    /// Where the key begins in the text that was read.
    pub(super) at: usize,
    pub(super) value: JsonValue<'a>,
}

impl PartialEq for ObjectMember<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.value == other.value
    }
}

impl Eq for ObjectMember<'_> {}

impl ObjectMember<'_> {
    /// Whether the member is a text: one of those that a model reads and that change nothing else.
    pub(super) fn is_text(&self) -> bool {
        matches!(&*self.key, "description" | "title") && matches!(self.value, JsonValue::Text(_))
    }
}

/// Why a definition cannot be approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit {
    /// An object has this key twice; the offset is that of the second one.
    Twice(String, usize),
    /// Values are nested too deep.
    Deep(usize),
}

impl<'a> JsonValue<'a> {
    /// Reads a text, which must be valid JSON.
    pub(super) fn read(json: &'a str) -> Result<Self, Unfit> {
        let mut reader = ValueReader { text: json, at: 0 };
        reader.space();
        reader.value(0)
    }

    /// The members of an object, sorted by key; none for other values.
    pub(super) fn members(&self) -> &[ObjectMember<'a>] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    /// The member of an object with this key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.members().iter().find(|member| member.key == key).map(|member| &member.value)
    }

    /// Visits every string of the value, and every key, as the lock file writes them.
    pub(super) fn each_text(&self, visit: &mut dyn FnMut(&str)) {
        match self {
            Self::Plain(_) => {}
            Self::Text(text) => visit(text),
            Self::List(items) => items.iter().for_each(|item| item.each_text(visit)),
            Self::Object(members) => {
                for member in members {
                    visit(&member.key);
                    member.value.each_text(visit);
                }
            }
        }
    }
}

/// Whether two texts, both valid JSON, are the same but for white space and escapes. Then their values are equal; values
/// whose members stand in another order are equal, too, and not found so here.
///
/// Nearly all definitions are what was approved, as it was approved, and this finds it out without memory for either.
pub(super) fn are_alike(one: &str, other: &str) -> bool {
    let [mut one, mut other] = [one, other].map(|text| ValueReader { text, at: 0 });
    loop {
        match (one.token(), other.token()) {
            (None, None) => return true,
            (Some(one), Some(other)) if one == other => {}
            (Some(one), Some(other)) if one.starts_with('"') && other.starts_with('"') => {
                let [one, other] = [one, other].map(|text| literal::normal(&text[1..text.len() - 1]));
                if one != other {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

/// The members of an object in the order of the text, each with the ranges of its key, quotes included, and of
/// its value. The text must be valid JSON; one that is not an object has no members.
pub(super) fn outer_members(json: &str) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let mut reader = ValueReader { text: json, at: 0 };
    let mut members = Vec::new();
    reader.space();
    if reader.byte() == Some(b'{') {
        reader
            .each(b'}', |reader| {
                let key = reader.at;
                reader.skip_string();
                let key = key..reader.at;
                reader.colon();
                let value = reader.at;
                reader.skip_value();
                members.push((key, value..reader.at));
                Ok::<_, Unfit>(())
            })
            .expect("nothing above fails");
    }
    members
}

/// A place in a text that is valid JSON.
struct ValueReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> ValueReader<'a> {
    fn value(&mut self, depth: usize) -> Result<JsonValue<'a>, Unfit> {
        if depth > DEEPEST {
            return Err(Unfit::Deep(self.at));
        }
        let start = self.at;
        match self.byte() {
            Some(b'"') => {
                self.skip_string();
                Ok(JsonValue::Text(literal::normal(&self.text[start + 1..self.at - 1])))
            }
            Some(b'[') => {
                let mut items = Vec::new();
                self.each(b']', |reader| {
                    items.push(reader.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(JsonValue::List(items))
            }
            Some(b'{') => {
                let mut members = Vec::new();
                self.each(b'}', |reader| {
                    members.push(reader.member(depth)?);
                    Ok(())
                })?;
                members.sort_by(|one, other| one.key.cmp(&other.key));
                match members.windows(2).find(|pair| pair[0].key == pair[1].key) {
                    Some(pair) => Err(Unfit::Twice(pair[1].key.to_string(), pair[1].at)),
                    None => Ok(JsonValue::Object(members)),
                }
            }
            _ => {
                self.skip_value();
                Ok(JsonValue::Plain(&self.text[start..self.at]))
            }
        }
    }

    fn member(&mut self, depth: usize) -> Result<ObjectMember<'a>, Unfit> {
        let at = self.at;
        self.skip_string();
        let key = literal::normal(&self.text[at + 1..self.at - 1]);
        self.colon();
        Ok(ObjectMember { key, at, value: self.value(depth + 1)? })
    }

    /// Goes through the elements or members of what begins here, up to behind its end.
    fn each<E>(&mut self, end: u8, mut take: impl FnMut(&mut Self) -> Result<(), E>) -> Result<(), E> {
        self.at += 1;
        self.space();
        while self.byte().is_some_and(|byte| byte != end) {
            take(self)?;
            self.space();
            if self.byte() == Some(b',') {
                self.at += 1;
                self.space();
            }
        }
        self.at += 1;
        Ok(())
    }

    fn colon(&mut self) {
        self.space();
        self.at += 1;
        self.space();
    }

    /// The next bracket, comma, colon, string or other scalar.
    fn token(&mut self) -> Option<&'a str> {
        self.space();
        let start = self.at;
        match self.byte()? {
            b'"' => self.skip_string(),
            b'[' | b']' | b'{' | b'}' | b',' | b':' => self.at += 1,
            _ => self.skip_value(),
        }
        Some(&self.text[start..self.at])
    }

    /// Goes behind the value that begins here.
    fn skip_value(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.byte() {
                Some(b'"') => self.skip_string(),
                Some(b'[' | b'{') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b']' | b'}') => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                Some(b',' | b':' | b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(_) => {
                    let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r');
                    let rest = &self.text.as_bytes()[self.at..];
                    self.at += rest.iter().position(ends).unwrap_or(rest.len());
                }
                None => return,
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Goes behind the string that begins here.
    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(found) = memchr::memchr2(b'"', b'\\', &self.text.as_bytes()[self.at..]) {
            self.at += found;
            if self.byte() == Some(b'"') {
                self.at += 1;
                return;
            }
            self.at += 2;
        }
    }

    fn space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_whatever_their_layout() {
        for (one, other, expected) in [
            (r#"{"a":1,"b":[true,null]}"#, "{ \"b\" : [ true ,\n null ] , \"a\" : 1 }", true),
            (r#""\u0041\/\n""#, r#""A/\u000a""#, true),
            (r#""\ud83d\ude00""#, "\"😀\"", true),
            (r#""\ud83d""#, r#""\uD83D""#, true),
            (r#""\ud83d""#, r#""\ud83e""#, false),
            (r#""\\ud83d""#, r#""\ud83d""#, false),
            (r#"{"\u0061":1}"#, r#"{"a":1}"#, true),
            ("1", "1.0", false),
            ("1e3", "1E3", false),
            ("[1,2]", "[2,1]", false),
            ("[]", "{}", false),
            (r#""null""#, "null", false),
            (r#"{"a":{}}"#, r#"{"a":{},"b":{}}"#, false),
        ] {
            let is_alike = expected && !one.starts_with("{\"a\":1,");
            assert_eq!((are_alike(one, other), are_alike(other, one)), (is_alike, is_alike), "{one} {other}");
            let [one, other] = [one, other].map(|text| JsonValue::read(text).expect("sound"));
            assert_eq!(one == other, expected, "{one:?} {other:?}");
            assert_eq!(other == one, expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        assert_eq!(JsonValue::read(r#"{"a":1,"b":{"c":1,"\u0063":2}}"#), Err(Unfit::Twice("c".into(), 18)));
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(JsonValue::read(&deep(DEEPEST)).is_ok());
        assert!(matches!(JsonValue::read(&deep(100_000)), Err(Unfit::Deep(_))));
    }

    #[test]
    fn outer_members_are_found_where_they_are() {
        let text = r#" { "a" : {"x":[1,"}"]} , "b\"":-1.5e3, "c":"\\" }"#;
        let found: Vec<_> =
            outer_members(text).into_iter().map(|(key, value)| (&text[key], &text[value])).collect();
        assert_eq!(found, [(r#""a""#, r#"{"x":[1,"}"]}"#), (r#""b\"""#, "-1.5e3"), (r#""c""#, r#""\\""#)]);
        assert!(outer_members("[1]").is_empty() && outer_members("{ }").is_empty());
    }
}
