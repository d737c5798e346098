//! Files of `NAME=value` lines, which hold the secrets that a configuration refers to as `${NAME}`.
//!
//! `config` reads the files that `envFile` names; the verbs that change files write `secrets.env` with
//! [`line`].
//!
//! Invariant: [`parse`] returns exactly what [`line`] was given, whatever the value. No problem quotes the
//! text of a line.

use super::access::{Access, mend};
use super::diagnostic::{Problem, Severity};
use super::node::Kind;
use super::read::{At, Table};
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// The file that verbs write secrets to, beside the configuration.
pub const SECRETS: &str = "secrets.env";

/// A file that `envFile` names.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvFile {
    /// The content of the file.
    pub bytes: Vec<u8>,
    /// What others may do with the file.
    pub others: Access,
    /// Whether git would commit the file; `false` if nobody checked.
    pub committable: bool,
}

/// Reads a file that `envFile` names.
pub type ReadEnvFile<'a> = dyn Fn(&Path) -> io::Result<EnvFile> + 'a;

/// The values of all files that `envFile` names. If several files have a name, the first file's value counts.
pub(super) fn values(root: &Table<'_>, directory: &Path, read: &ReadEnvFile<'_>) -> HashMap<String, String> {
    let mut values = HashMap::new();
    let Some(at) = root.get("envFile") else { return values };
    let files = match at.node.kind {
        Kind::List(_) => at.list().unwrap_or_default(),
        _ => vec![at.clone()],
    };
    for file in &files {
        let mut of_file = HashMap::new();
        for (name, value) in assignments(file, directory, read) {
            file.report.secret(&value, &name);
            // Within a file the last line counts, as in a shell.
            of_file.insert(name, value);
        }
        of_file.extend(values);
        values = of_file;
    }
    values
}

/// The assignments of a file that `envFile` names; problems with the file are reported.
fn assignments(at: &At<'_>, directory: &Path, read: &ReadEnvFile<'_>) -> Vec<(String, String)> {
    let Some((path, optional)) = place(at, directory) else { return Vec::new() };
    let shown = path.display();
    let EnvFile { bytes, others, committable } = match read(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !optional {
                let hint = "create it, or add a `?` to its name if it may be missing";
                at.error(format!("the file {shown} does not exist"), hint);
            }
            return Vec::new();
        }
        Err(error) => {
            let hint = "name a regular file that you may read, of at most 64 MB";
            at.error(format!("cannot read {shown}: {error}"), hint);
            return Vec::new();
        }
    };
    let hint = || format!("run `{}`", mend(&path));
    match others {
        Access::Write => at.error(format!("other users can change {shown}"), hint()),
        Access::Read => at.warning(format!("other users can read {shown}"), hint()),
        Access::None => {}
    }
    if committable {
        at.warning(format!("git does not ignore {shown}"), "add it to the .gitignore beside it");
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(text).unwrap_or_else(|lines| {
            let wrong = |line: &usize| at.report.elsewhere(wrong_line(&path, *line));
            lines.iter().for_each(wrong);
            Vec::new()
        }),
        Err(_) => {
            at.error(format!("{shown} is not UTF-8"), "save it as UTF-8");
            Vec::new()
        }
    }
}

/// The file that a text names, and whether it may be missing.
fn place(at: &At<'_>, directory: &Path) -> Option<(PathBuf, bool)> {
    let name = at.string()?;
    let (name, optional) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
    if name.is_empty() || name.contains('\0') {
        at.expected("the path of a file", format!("such as `{SECRETS}`"));
        return None;
    }
    Some((directory.join(name), optional))
}

fn wrong_line(file: &Path, line: usize) -> Problem {
    Problem {
        file: file.to_owned(),
        line,
        column: 1,
        path: String::new(),
        message: format!("line {line} is not `NAME=value`"),
        hint: "put quotes around values with special characters, and `#` before a comment".to_owned(),
        severity: Severity::Error,
        unset: false,
        excerpt: None,
    }
}

/// Names and values in the order of the text, or the numbers of all lines that are wrong.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, Vec<usize>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut values, mut wrong) = (Vec::new(), Vec::new());
    for (index, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match assignment(line) {
            Some(assignment) => values.push(assignment),
            None => wrong.push(index + 1),
        }
    }
    if wrong.is_empty() { Ok(values) } else { Err(wrong) }
}

fn assignment(line: &str) -> Option<(String, String)> {
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let sound = name.chars().all(plain) && name.starts_with(|c: char| !c.is_ascii_digit());
    let begun = value.trim_start();
    let value = if let Some(quoted) = begun.strip_prefix('\'') {
        let (value, rest) = quoted.split_once('\'')?;
        ends(rest).then(|| value.to_owned())?
    } else if let Some(quoted) = begun.strip_prefix('"') {
        double_quoted(quoted)?
    } else {
        let comment = value.match_indices('#').find(|(at, _)| value[..*at].ends_with([' ', '\t']));
        value[..comment.map_or(value.len(), |(at, _)| at)].trim().to_owned()
    };
    sound.then(|| (name.to_owned(), value))
}

/// The value of a text that begins after its opening quote.
fn double_quoted(text: &str) -> Option<String> {
    let (mut value, mut rest) = (String::new(), text.chars());
    loop {
        match rest.next()? {
            '"' => return ends(rest.as_str()).then_some(value),
            '\\' => match rest.next()? {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                known @ ('"' | '\\' | '$') => value.push(known),
                other => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
}

/// Whether nothing but white space or a comment follows.
fn ends(rest: &str) -> bool {
    let comment = rest.trim_start();
    comment.is_empty() || comment.starts_with('#') && comment.len() < rest.len()
}

/// The line for a value, without a line break. Shells and other readers of such files understand it too.
pub fn line(name: &str, value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,=".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return format!("{name}={value}");
    }
    if !value.contains(|c: char| c == '\'' || c.is_control()) {
        return format!("{name}='{value}'");
    }
    let mut line = format!("{name}=\"");
    for c in value.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '"' | '\\' | '$' => {
                let _ = write!(line, "\\{c}");
            }
            other => line.push(other),
        }
    }
    line.push('"');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(parse(text), Ok(expected), "{text:?}");
    }

    #[test]
    fn lines_give_names_and_values() {
        check("", &[]);
        check("A=b", &[("A", "b")]);
        check("A=b\nC=d\n", &[("A", "b"), ("C", "d")]);
        check("A=b\r\nC=d\r\n", &[("A", "b"), ("C", "d")]);
        check("\u{feff}A=b", &[("A", "b")]);
        check("\n  \n# A=b\n#\nC=d", &[("C", "d")]);
        check("export A=b", &[("A", "b")]);
        check("_a1=b", &[("_a1", "b")]);
        check("A=", &[("A", "")]);
        check("A=  b c \t", &[("A", "b c")]);
        check("A=b=c", &[("A", "b=c")]);
        check("A=b\nA=c", &[("A", "b"), ("A", "c")]);
        // Comments.
        check("A=b # c", &[("A", "b")]);
        check("A=b\t# c", &[("A", "b")]);
        check("A=b#c", &[("A", "b#c")]);
        check("A=b#c # d", &[("A", "b#c")]);
        check("A=#b", &[("A", "#b")]);
        check("A= #b", &[("A", "")]);
        check("A='b' # c", &[("A", "b")]);
        check("A=\"b\" # c", &[("A", "b")]);
        // Quotes.
        check("A='b $C \\n \"d\" # e'", &[("A", "b $C \\n \"d\" # e")]);
        check(r#"A="b\n\r\t\"\\\$c""#, &[("A", "b\n\r\t\"\\$c")]);
        check(r#"A="\d \u0041""#, &[("A", r"\d \u0041")]);
        check("A=''", &[("A", "")]);
        check("A=\"\"", &[("A", "")]);
        check("A= 'b' ", &[("A", "b")]);
        check("A=b'c'", &[("A", "b'c'")]);
        // Nothing is expanded.
        check("A=$B ${C}", &[("A", "$B ${C}")]);
        check("A=\"${C}\"", &[("A", "${C}")]);
    }

    #[test]
    fn every_other_line_is_told_by_its_number() {
        for (text, expected) in [
            ("A", &[1][..]),
            ("=b", &[1]),
            ("1A=b", &[1]),
            ("A-B=c", &[1]),
            ("A B=c", &[1]),
            (" A=b", &[1]),
            ("A =b", &[1]),
            ("export  A=b", &[1]),
            ("Ä=b", &[1]),
            ("A='b", &[1]),
            ("A='b'c", &[1]),
            ("A='b'#c", &[1]),
            ("A=\"b", &[1]),
            ("A=\"b\\\"", &[1]),
            ("A=\"b\" c", &[1]),
            ("A=b\nnonsense\n\nC=d\r\n{}\r\n", &[2, 5]),
        ] {
            assert_eq!(parse(text), Err(expected.to_vec()), "{text:?}");
        }
    }

    #[test]
    fn values_are_written_as_plainly_as_they_can_be() {
        for (value, expected) in [
            ("sk-123_a.b/c:d@e%f+g,h=", "A=sk-123_a.b/c:d@e%f+g,h="),
            ("", "A=''"),
            ("a b", "A='a b'"),
            ("$(rm)", "A='$(rm)'"),
            ("it's $5", "A=\"it's \\$5\""),
            ("a\nb\r\t\"\\", r#"A="a\nb\r\t\"\\""#),
        ] {
            assert_eq!(line("A", value), expected);
        }
    }

    proptest! {
        #[test]
        fn every_value_comes_back_exactly(values in prop::collection::vec("(?s).*", 0..4), end in "\r?\n") {
            let pairs: Vec<_> =
                values.into_iter().enumerate().map(|(n, value)| (format!("NAME_{n}"), value)).collect();
            let text: String =
                pairs.iter().map(|(name, value)| format!("{}{end}", line(name, value))).collect();
            prop_assert_eq!(parse(&text), Ok(pairs));
        }

        #[test]
        fn no_text_is_too_strange_to_read(text in "(?s)([A-Z]='?\"?)?.*") {
            let _ = parse(&text);
        }
    }
}
