//! Collects what is wrong while a tree is read.

use super::Inputs;
use super::detect::secrets_of_argument;
use super::diagnostic::{Problem, Severity};
use super::env_file;
use super::expand::{Environment, FaultKind, expand};
use super::node::{KeyValue, Kind, Node, Span, SyntaxError};
use super::read::At;
use super::secrets::Redactor;
use super::source::{Outline, Shown, Source};
use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// How a format spells keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// `maxNameLength`
    Camel,
    /// `max_name_length`
    Snake,
}

/// The problems and secrets that have been collected so far from one file.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) source: Source,
    pub(super) spelling: Spelling,
    findings: RefCell<Vec<Finding>>,
    /// Variables that are not set, with their names, by the path of the text that needs them.
    unset: RefCell<BTreeMap<String, Vec<(String, Finding)>>>,
    /// Problems of other files that this file names.
    elsewhere: RefCell<Vec<Problem>>,
    /// Pairs of a secret value and its name.
    secrets: RefCell<Vec<(String, String)>>,
}

#[derive(Debug)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) span: Span,
    /// Whether the text of the span may be shown.
    pub(super) visible: bool,
    pub(super) path: String,
    pub(super) message: String,
    pub(super) hint: String,
    /// Whether an unset variable is all that is wrong.
    pub(super) unset: bool,
}

impl Report {
    pub(super) fn new(source: Source, spelling: Spelling) -> Self {
        Self {
            source,
            spelling,
            findings: RefCell::default(),
            unset: RefCell::default(),
            elsewhere: RefCell::default(),
            secrets: RefCell::default(),
        }
    }

    pub(super) fn add(&self, finding: Finding) {
        self.findings.borrow_mut().push(finding);
    }

    /// Reports a problem of another file that this file names.
    pub(super) fn elsewhere(&self, problem: Problem) {
        self.elsewhere.borrow_mut().push(problem);
    }

    /// The unset variables that the entry of a server at this path needs, each once. A disabled server needs
    /// none, and for a server that may be skipped they are only worth a warning.
    pub(super) fn unset_in(&self, entry: &str, disabled: bool, skip: bool) -> Vec<String> {
        let mut unset = self.unset.borrow_mut();
        let mut names = Vec::new();
        let inside = |path: &str| path.strip_prefix(entry).is_some_and(|rest| rest.starts_with(['.', '[']));
        let paths = unset.range_mut(entry.to_owned()..).take_while(|(path, _)| path.starts_with(entry));
        for (_, findings) in paths.filter(|(path, _)| inside(path)) {
            for (name, finding) in findings.iter_mut() {
                names.push((finding.span.start, name.clone()));
                if skip {
                    finding.severity = Severity::Warning;
                    finding.hint.push_str("; the server does not start without it");
                }
            }
            if disabled {
                findings.clear();
            }
        }
        names.sort();
        let mut known = HashSet::new();
        names.into_iter().map(|(_, name)| name).filter(|name| known.insert(name.clone())).collect()
    }

    /// Remembers a value that must never print. Multi-line values are also remembered line by line, since
    /// that is how they appear in logs.
    pub(super) fn secret(&self, value: &str, name: &str) {
        let mut secrets = self.secrets.borrow_mut();
        secrets.push((value.to_owned(), name.to_owned()));
        if value.contains('\n') {
            secrets.extend(value.lines().map(|line| (line.trim().to_owned(), name.to_owned())));
        }
    }

    /// Remembers the secrets among the words of a command: a program may quote them on its stderr.
    pub(super) fn secrets_of_words<'w>(&self, words: impl IntoIterator<Item = &'w str>) {
        let mut previous = None;
        for word in words {
            for (start, end, name) in secrets_of_argument(previous, word) {
                self.secret(&word[start..end], &name);
            }
            previous = Some(word);
        }
    }

    /// Checks keys for repetition and expands every string from the environment and from the files that
    /// `envFile` names, except at the paths for which `keep` returns true.
    pub(super) fn prepare_all(
        &self,
        root: &mut Node,
        directory: &Path,
        inputs: &Inputs<'_>,
        keep: &dyn Fn(&str) -> bool,
    ) -> HashMap<String, String> {
        self.prepare_member(root, "envFile", inputs.environment);
        let table = matches!(root.kind, Kind::Object(_)).then(|| At::root(self, root).table()).flatten();
        let values = table.map(|root| env_file::values(&root, directory, inputs.read)).unwrap_or_default();
        let key = self.spelled("envFile");
        let is_prepared = |path: &str| path.strip_prefix(&*key).is_some_and(|rest| !rest.starts_with('.'));
        let known = |name: &str| (inputs.environment)(name).or_else(|| values.get(name).cloned());
        self.prepare_node(root, &mut String::new(), &known, &|path| keep(path) || is_prepared(path));
        values
    }

    /// Expands the strings of one member of the root before all others.
    fn prepare_member(&self, root: &mut Node, key: &str, env: &Environment<'_>) {
        let key = self.spelled(key);
        let Kind::Object(entries) = &mut root.kind else { return };
        if let Some(entry) = entries.iter_mut().find(|entry| entry.key == key) {
            self.prepare_node(&mut entry.value, &mut child("", &key), env, &|_| false);
        }
    }

    /// Prepares the value at this path, and everything in it. The path is the same afterwards.
    fn prepare_node(
        &self,
        node: &mut Node,
        path: &mut String,
        env: &Environment<'_>,
        keep: &dyn Fn(&str) -> bool,
    ) {
        let length = path.len();
        match &mut node.kind {
            Kind::Object(entries) => {
                let mut first = HashMap::new();
                for KeyValue { key, key_span, value } in entries {
                    enter(path, key);
                    match first.entry(&**key) {
                        Entry::Vacant(place) => drop(place.insert(key_span.start)),
                        Entry::Occupied(earlier) => {
                            let (line, _) = self.source.position(*earlier.get());
                            self.add(Finding {
                                severity: Severity::Error,
                                span: key_span.clone(),
                                visible: true,
                                path: path.clone(),
                                message: format!("duplicate key `{key}`"),
                                hint: format!("remove or rename one of the two; the first is on line {line}"),
                                unset: false,
                            });
                        }
                    }
                    self.prepare_node(value, path, env, keep);
                    path.truncate(length);
                }
            }
            Kind::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    path.push_str(&format!("[{index}]"));
                    self.prepare_node(item, path, env, keep);
                    path.truncate(length);
                }
            }
            Kind::String(text) if text.raw.contains('$') && !keep(path) => {
                let expansion = expand(&text.raw, env);
                for (name, value) in &expansion.variables {
                    self.secret(value, name);
                }
                let whole = match expansion.faults.as_slice() {
                    [] => None,
                    _ => self.inside(&node.span, &text.raw, &(0..text.raw.len())),
                };
                for fault in &expansion.faults {
                    let place = whole
                        .as_ref()
                        .map(|whole| whole.start + fault.range.start..whole.start + fault.range.end);
                    self.unexpanded(
                        &fault.name,
                        fault.kind,
                        place.as_ref().unwrap_or(&node.span),
                        path,
                        place.is_some(),
                    );
                }
                text.faulty = !expansion.faults.is_empty();
                text.value = expansion.text;
            }
            _ => {}
        }
    }

    /// Reports a variable that could not be replaced.
    pub(super) fn unexpanded(&self, name: &str, kind: FaultKind, span: &Span, path: &str, visible: bool) {
        let (message, hint) = match kind {
            FaultKind::Unset => (
                format!("the environment variable {name} is not set"),
                format!("set {name} before starting, or give a default: `${{{name}:-default}}`"),
            ),
            FaultKind::Unclosed => (
                format!("`${{{name}` is not closed"),
                format!("write `${{{name}}}`, or `$${{{name}` for that very text"),
            ),
        };
        let finding = Finding {
            severity: Severity::Error,
            span: span.clone(),
            visible,
            path: path.to_owned(),
            message,
            hint,
            unset: kind == FaultKind::Unset,
        };
        match kind {
            FaultKind::Unset => {
                let mut unset = self.unset.borrow_mut();
                unset.entry(path.to_owned()).or_default().push((name.to_owned(), finding));
            }
            FaultKind::Unclosed => self.add(finding),
        }
    }

    /// The position in the source of a part of a string's value, if the string is written without escapes.
    pub(super) fn inside(&self, string: &Span, value: &str, part: &Span) -> Option<Span> {
        let start = string.start + 1;
        let plain =
            string.len() == value.len() + 2 && self.source.text.get(start..string.end - 1) == Some(value);
        plain.then(|| start + part.start..start + part.end)
    }

    /// The result: the problems in the order of the file, and the redactor.
    pub(super) fn finish(self, root: Option<&Node>) -> (Vec<Problem>, Redactor) {
        let secrets = Redactor::new(self.secrets.take());
        let mut findings = self.findings.take();
        findings.extend(self.unset.take().into_values().flatten().map(|(_, finding)| finding));
        findings.sort_by_key(|finding| finding.span.start);
        let tree = root.filter(|_| !findings.is_empty()).map(Outline::of);
        let tree = tree.as_ref();
        let problems = findings
            .into_iter()
            .map(|finding| {
                let shown = tree.map(|tree| Shown::Tree { tree, value: finding.visible, secrets: &secrets });
                let excerpt = self.source.excerpt(&finding.span, &shown.unwrap_or(Shown::Keys));
                let (line, column) = self.source.position(finding.span.start);
                Problem {
                    file: self.source.file.clone(),
                    line,
                    column,
                    path: finding.path,
                    message: secrets.redact(&finding.message).into_owned(),
                    hint: finding.hint,
                    severity: finding.severity,
                    unset: finding.unset,
                    excerpt: (!excerpt.line.trim().is_empty()).then_some(excerpt),
                }
            })
            .chain(self.elsewhere.take())
            .collect();
        (problems, secrets)
    }

    /// The one problem of a text that cannot be parsed.
    pub(super) fn broken(self, error: SyntaxError) -> Vec<Problem> {
        self.add(Finding {
            severity: Severity::Error,
            span: error.span,
            visible: false,
            path: String::new(),
            message: error.message,
            hint: error.hint,
            unset: false,
        });
        self.finish(None).0
    }
}

/// The path of a key below a path.
pub(super) fn child(path: &str, key: &str) -> String {
    let mut child = String::with_capacity(path.len() + 1 + key.len());
    child.push_str(path);
    enter(&mut child, key);
    child
}

/// Goes from the path of a value to that of a member.
fn enter(path: &mut String, key: &str) {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'));
    if !plain {
        return path.push_str(&format!("[{}]", serde_json::Value::from(key)));
    }
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

/// The text of a file, or the problem that it is not UTF-8.
pub(super) fn decode<'t>(file: &Path, bytes: &'t [u8]) -> Result<&'t str, Vec<Problem>> {
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
        let (message, hint) = if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
            ("the file is UTF-16, not UTF-8", "save the file as UTF-8")
        } else {
            ("this is not UTF-8", "save the file as UTF-8")
        };
        let source = Source::new(file, valid);
        let end = source.text.len();
        let report = Report::new(source, Spelling::Camel);
        report.broken(SyntaxError { span: end..end, message: message.into(), hint: hint.into() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_quote_what_is_no_plain_word() {
        for (path, key, expected) in [
            ("", "toolboxes", "toolboxes"),
            ("toolboxes", "dev", "toolboxes.dev"),
            ("a", "my-server_2", "a.my-server_2"),
            ("a", "My Server", "a[\"My Server\"]"),
            ("", "@org/name", "[\"@org/name\"]"),
            ("a", "git.io", "a[\"git.io\"]"),
            ("a", "say \"x\"", "a[\"say \\\"x\\\"\"]"),
            ("a", "", "a[\"\"]"),
        ] {
            assert_eq!(child(path, key), expected);
        }
    }
}
