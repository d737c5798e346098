//! Typed reading of a tree: each accessor returns the value, or reports the problem and returns `None`.

use super::diagnostic::Severity;
use super::entry::snake;
use super::expand::Fault;
use super::node::{Kind, Node, Span, Text};
use super::report::{Finding, Report, Spelling, child};
use super::source::presentable;
use std::borrow::Cow;
use std::time::Duration;

/// Keys whose values are never shown, whatever they hold.
const SECRET_KEYS: [&str; 7] = ["env", "envs", "environment", "headers", "token", "stateKey", "clientSecret"];

/// A value and its position.
#[derive(Clone)]
pub(super) struct At<'d> {
    pub(super) report: &'d Report,
    pub(super) node: &'d Node,
    pub(super) path: String,
    /// The key as the file spells it; empty for the root and in lists.
    pub(super) key: &'d str,
    key_span: Span,
    secret: bool,
}

/// An object whose keys are looked up.
#[derive(Clone)]
pub(super) struct Table<'d> {
    pub(super) at: At<'d>,
    entries: Vec<At<'d>>,
}

impl<'d> At<'d> {
    pub(super) fn root(report: &'d Report, node: &'d Node) -> Self {
        // A problem of the whole root points at its first character.
        let key_span = node.span.start..(node.span.start + 1).min(node.span.end);
        Self { report, node, path: String::new(), key: "", key_span, secret: false }
    }

    pub(super) fn error(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Error, self.pointer(), message.into(), hint.into());
    }

    pub(super) fn warning(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Warning, self.pointer(), message.into(), hint.into());
    }

    /// The same value, which is never shown from now on.
    pub(super) fn hidden(&self) -> Self {
        Self { secret: true, ..self.clone() }
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.node.kind, Kind::List(_))
    }

    /// Reports an error like [`At::error`], pointing at the key.
    pub(super) fn key_error(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Error, self.key_span.clone(), message.into(), hint.into());
    }

    /// Reports a warning, pointing at the key.
    pub(super) fn key_warning(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Warning, self.key_span.clone(), message.into(), hint.into());
    }

    /// Reports an error like [`At::error`], pointing at a part of a string's value, or at the key if that
    /// part cannot be found.
    pub(super) fn part_error(&self, part: Span, message: impl Into<String>, hint: impl Into<String>) {
        let place = self.text().and_then(|text| self.report.inside(&self.node.span, &text.raw, &part));
        let span = place.unwrap_or_else(|| self.key_span.clone());
        self.add(Severity::Error, span, message.into(), hint.into());
    }

    /// Reports a variable of this string that could not be replaced.
    pub(super) fn unexpanded(&self, fault: &Fault) {
        let place = self.text().and_then(|text| self.report.inside(&self.node.span, &text.raw, &fault.range));
        let span = place.clone().unwrap_or_else(|| self.pointer());
        self.report.unexpanded(&fault.name, fault.kind, &span, &self.path, place.is_some());
    }

    /// Reports an unexpected type.
    pub(super) fn expected(&self, expected: &str, hint: impl Into<String>) {
        self.error(format!("expected {expected}, found {}", self.found()), hint);
    }

    pub(super) fn text(&self) -> Option<&'d Text> {
        match &self.node.kind {
            Kind::String(text) => Some(text),
            _ => {
                self.expected("a string", "put the value in double quotes");
                None
            }
        }
    }

    /// A string, expanded.
    pub(super) fn string(&self) -> Option<&'d str> {
        self.text().filter(|text| !text.faulty).map(|text| text.value.as_str())
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match self.node.kind {
            Kind::Boolean(value) => Some(value),
            _ => {
                self.expected("`true` or `false`", "write it without quotes");
                None
            }
        }
    }

    pub(super) fn list(&self) -> Option<Vec<At<'d>>> {
        let Kind::List(items) = &self.node.kind else {
            let hint = match (self.report.spelling, &self.node.kind) {
                (Spelling::Snake, Kind::Object(_)) => format!("write `[[{}]]` for each", self.path),
                _ => "put the values in square brackets: `[\"…\", \"…\"]`".to_owned(),
            };
            self.expected("a list", hint);
            return None;
        };
        let at = |(index, node): (usize, &'d Node)| At {
            report: self.report,
            node,
            path: format!("{}[{index}]", self.path),
            key: "",
            key_span: node.span.start..(node.span.start + 1).min(node.span.end),
            secret: self.secret,
        };
        Some(items.iter().enumerate().map(at).collect())
    }

    /// A list of expanded strings; `None` if any of them is wrong.
    pub(super) fn strings(&self) -> Option<Vec<String>> {
        let items = self.list()?;
        let strings: Vec<_> = items.iter().map(|item| item.string().map(str::to_owned)).collect();
        strings.into_iter().collect()
    }

    pub(super) fn table(&self) -> Option<Table<'d>> {
        let Kind::Object(entries) = &self.node.kind else {
            let (name, hint) = match self.report.spelling {
                Spelling::Camel => ("an object", "put the entries in braces: `{ \"key\": … }`"),
                Spelling::Snake => ("a table", "write `key = { … }` or a `[section]`"),
            };
            self.expected(name, hint);
            return None;
        };
        let at = |entry: &'d super::node::KeyValue| At {
            report: self.report,
            node: &entry.value,
            path: child(&self.path, &entry.key),
            key: &entry.key,
            key_span: entry.key_span.clone(),
            secret: self.secret || SECRET_KEYS.iter().any(|key| self.report.spelled(key) == entry.key),
        };
        Some(Table { at: self.clone(), entries: entries.iter().map(at).collect() })
    }

    /// A whole number of at least `least`.
    pub(super) fn whole(&self, least: u64) -> Option<usize> {
        let wanted = || format!("a whole number of at least {least}");
        let number = self.number(&wanted())?;
        let whole = self.spelled_number().parse::<u64>().ok().or_else(|| {
            let exact = number.fract() == 0.0 && (0.0..9e15).contains(&number);
            exact.then_some(number as u64)
        });
        match whole {
            Some(value) if value >= least => Some(usize::try_from(value).unwrap_or(usize::MAX)),
            _ => {
                self.expected(&wanted(), format!("the smallest possible value is {least}"));
                None
            }
        }
    }

    /// A number of seconds greater than 0; fractions are allowed. More than a human life is cut down, so that
    /// deadlines can be computed without overflow.
    pub(super) fn seconds(&self) -> Option<Duration> {
        const WANTED: &str = "a number of seconds greater than 0";
        let number = self.number(WANTED)?;
        let duration =
            Duration::try_from_secs_f64(number.min(3e9)).ok().filter(|duration| !duration.is_zero());
        if duration.is_none() {
            self.expected(WANTED, "leave the key out for the default");
        }
        duration
    }

    /// A number of seconds like [`At::seconds`], or 0.
    pub(super) fn seconds_or_none(&self) -> Option<Duration> {
        match self.spelled_number().parse() {
            Ok(0.0) => Some(Duration::ZERO),
            _ => self.seconds(),
        }
    }

    /// One of a few words.
    pub(super) fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        self.one_of_many(words, &[])
    }

    /// One of a few words, or of further spellings that are understood but not advertised.
    pub(super) fn one_of_many<T: Copy>(&self, words: &[(&str, T)], further: &[(&str, T)]) -> Option<T> {
        let value = self.string()?;
        let found = words.iter().chain(further).find(|(word, _)| *word == value);
        if found.is_none() {
            let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            let hint = match nearest(value, &all) {
                Some(word) => format!("did you mean `{word}`?"),
                None => "use one of these".to_owned(),
            };
            self.expected(&either(&all), hint);
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// A number or boolean as the file spells it, and `Some(None)` for null; `None` for anything else.
    pub(super) fn spelled(&self) -> Option<Option<&'d str>> {
        match &self.node.kind {
            Kind::Null => Some(None),
            Kind::Boolean(value) => Some(Some(if *value { "true" } else { "false" })),
            Kind::Number(number) => Some(Some(number)),
            _ => None,
        }
    }

    /// The string under a key of this object, if there is one; nothing is reported.
    pub(super) fn member(&self, key: &str) -> Option<&'d str> {
        let Kind::Object(entries) = &self.node.kind else { return None };
        entries.iter().find(|entry| entry.key == key).and_then(|entry| match &entry.value.kind {
            Kind::String(text) => Some(text.value.as_str()),
            _ => None,
        })
    }

    /// Whether this is a list or an object without entries.
    pub(super) fn is_empty(&self) -> bool {
        match &self.node.kind {
            Kind::List(items) => items.is_empty(),
            Kind::Object(entries) => entries.is_empty(),
            _ => false,
        }
    }

    /// The line of the key.
    pub(super) fn line(&self) -> usize {
        self.report.source.position(self.key_span.start).0
    }

    /// Describes the value in words. Text is quoted as written, so that no variable's value shows.
    fn found(&self) -> String {
        match &self.node.kind {
            Kind::Null => "null".into(),
            Kind::Boolean(_) | Kind::Number(_) | Kind::String(_) if self.secret => match &self.node.kind {
                Kind::Boolean(_) => "a boolean".into(),
                Kind::Number(_) => "a number".into(),
                _ => "a string".into(),
            },
            Kind::Boolean(value) => format!("`{value}`"),
            Kind::Number(number) => format!("the number {number}"),
            Kind::String(text) if text.raw.is_empty() => "an empty string".into(),
            Kind::String(text) => format!("the string {}", serde_json::Value::from(presentable(&text.raw))),
            Kind::List(_) => "a list".into(),
            Kind::Object(_) => match self.report.spelling {
                Spelling::Camel => "an object".into(),
                Spelling::Snake => "a table".into(),
            },
            Kind::Other(what) => (*what).into(),
        }
    }

    fn number(&self, wanted: &str) -> Option<f64> {
        let number = match &self.node.kind {
            Kind::Number(_) => self.spelled_number().parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        };
        if number.is_none() {
            self.expected(wanted, "write it without quotes and without a unit");
        }
        number
    }

    fn spelled_number(&self) -> &'d str {
        match &self.node.kind {
            Kind::Number(number) => number,
            _ => "",
        }
    }

    /// The span to point at: for lists and objects the key, so that the excerpt is the line to edit.
    fn pointer(&self) -> Span {
        match self.node.kind {
            Kind::List(_) | Kind::Object(_) => self.key_span.clone(),
            _ => self.node.span.clone(),
        }
    }

    fn add(&self, severity: Severity, span: Span, message: String, hint: String) {
        let visible = span == self.key_span || !self.secret;
        let path = self.path.clone();
        self.report.add(Finding { severity, span, visible, path, message, hint, unset: false });
    }
}

impl<'d> Table<'d> {
    /// The value of a key given in camelCase; if the key repeats, the first value.
    pub(super) fn get(&self, key: &str) -> Option<&At<'d>> {
        let key = self.at.report.spelled(key);
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The value of a key, or of a misspelling of it, so that what is beneath is checked in the same run.
    pub(super) fn get_or_meant(&self, key: &str, known: &[&str]) -> Option<&At<'d>> {
        self.get(key).or_else(|| self.unknown(known).find(|entry| nearest(entry.key, known) == Some(key)))
    }

    /// The values of keys that mean the same, in the order of the file.
    pub(super) fn synonyms<'k>(&self, keys: impl IntoIterator<Item = &'k str>) -> Vec<&At<'d>> {
        let mut found: Vec<_> = keys.into_iter().filter_map(|key| self.get(key)).collect();
        found.sort_by_key(|at| at.key_span.start);
        found
    }

    pub(super) fn entries(&self) -> &[At<'d>] {
        &self.entries
    }

    /// The entries whose keys are none of these.
    pub(super) fn unknown(&self, known: &[&str]) -> impl Iterator<Item = &At<'d>> {
        let known: Vec<_> = known.iter().map(|key| self.at.report.spelled(key)).collect();
        self.entries.iter().filter(move |entry| !known.iter().any(|key| key == entry.key))
    }

    /// Reports every key that is neither known nor explained already, with a suggestion. Returns the
    /// suggested keys.
    pub(super) fn refuse_unknown(&self, known: &[&str], explained: &[&str]) -> Vec<String> {
        let spelled: Vec<_> = known.iter().map(|key| self.at.report.spelled(key)).collect();
        let mut suggested = Vec::new();
        for entry in self.unknown(known).filter(|entry| !explained.contains(&entry.key)) {
            let hint = suggestion(entry.key, &spelled);
            suggested.extend(nearest(entry.key, &spelled).map(str::to_owned));
            entry.key_error(format!("unknown key `{}`", entry.key), hint);
        }
        suggested
    }
}

impl Report {
    /// A key given in camelCase, as this format spells it.
    pub(super) fn spelled<'k>(&self, key: &'k str) -> Cow<'k, str> {
        match self.spelling {
            Spelling::Camel => key.into(),
            Spelling::Snake => snake(key).into(),
        }
    }
}

/// The hint for an unknown word.
pub(super) fn suggestion(word: &str, known: &[impl AsRef<str>]) -> String {
    match nearest(word, known) {
        Some(known) => format!("did you mean `{known}`?"),
        None if known.is_empty() => "remove it".to_owned(),
        None if known.len() > MOST_LISTED => {
            let first: Vec<_> =
                known[..MOST_LISTED].iter().map(|word| format!("`{}`", word.as_ref())).collect();
            let others = known.len() - MOST_LISTED;
            let plural = if others == 1 { "" } else { "s" };
            format!("remove it; known here: {} and {others} other{plural}", first.join(", "))
        }
        None => format!("remove it; known here: {}", listed(known, "and")),
    }
}

/// The most known words that a suggestion lists.
const MOST_LISTED: usize = 30;

/// The known word that a typo most likely meant.
pub(crate) fn nearest<'k>(word: &str, known: &'k [impl AsRef<str>]) -> Option<&'k str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
    let written = plain(word);
    let length = written.chars().count();
    let near = |known: &'k str| {
        let plain = plain(known);
        let length = known.chars().count().min(length);
        let most = (1 + length / 5).min(length.checked_sub(1)?);
        // The cost of a comparison grows with both lengths, so words of very different length are skipped.
        let may_be = plain.chars().count().abs_diff(written.chars().count()) <= most;
        let distance = may_be.then(|| strsim::damerau_levenshtein(&written, &plain))?;
        (distance <= most).then_some((distance, known))
    };
    let near = known.iter().filter_map(|known| near(known.as_ref()));
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

fn either(words: &[&str]) -> String {
    listed(words, "or")
}

pub(crate) fn listed(words: &[impl AsRef<str>], last: &str) -> String {
    let mut text = String::new();
    for (index, word) in words.iter().enumerate() {
        match index {
            0 => {}
            _ if index + 1 == words.len() => text.push_str(&format!(" {last} ")),
            _ => text.push_str(", "),
        }
        text.push_str(&format!("`{}`", word.as_ref()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_find_their_word() {
        let known = ["toolMode", "toolboxes", "names", "env", "url", "mcpServers", "y"];
        for (word, expected) in [
            ("toolMdoe", Some("toolMode")),
            ("tool_mode", Some("toolMode")),
            ("toolbox", Some("toolboxes")),
            ("toolboxs", Some("toolboxes")),
            ("Names", Some("names")),
            ("mcpServer", Some("mcpServers")),
            ("urls", Some("url")),
            ("timeout", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, &known), expected, "{word}");
        }
        assert_eq!(suggestion("x-ray", &["a", "b", "c"]), "remove it; known here: `a`, `b` and `c`");
        let many: Vec<_> = (0..MOST_LISTED + 2).map(|number| format!("n{number}")).collect();
        let (first, last) = (suggestion("x-ray", &many[1..]), suggestion("x-ray", &many));
        assert!(first.ends_with(", `n30` and 1 other"), "{first}");
        assert!(last.ends_with(", `n29` and 2 others"), "{last}");
    }
}
