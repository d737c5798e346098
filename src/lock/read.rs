//! Reads a lock file, or says what is wrong with it and where.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::value::{JsonValue, Unfit, outer_members};
use super::{Approved, Definition, Form, LockPlace, LockedKind, Servers, VERSION, literal};
use crate::json::Scanner;

/// What is wrong with a lock file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The bytes of the text that it is about.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// Lines that begin like this stand where a merge was not finished.
const CONFLICT_MARKS: [&str; 4] = ["<<<<<<<", "|||||||", "=======", ">>>>>>>"];

pub(super) fn read(form: Form, text: &str) -> Result<Servers, Fault> {
    if let Some(at) = conflict(text) {
        let message = "this mark is left over from a merge with conflicts".to_owned();
        let hint = format!("take one side, or restore the file and run `{}`", form.command());
        return Err(Fault { span: at..at + 7, message, hint });
    }
    if let Err(invalid) = Scanner::default().scan_str(text) {
        let at = invalid.offset.min(text.len());
        let message = if text.trim().is_empty() { "the file is empty" } else { "this is not valid JSON" };
        let hint = format!("restore the file, or delete it and write a new one with `{}`", form.command());
        return Err(Fault { span: at..at, message: message.to_owned(), hint });
    }
    LockReader { form, text }.root()
}

/// Where the first mark of an unfinished merge stands.
fn conflict(text: &str) -> Option<usize> {
    let mut at = 0;
    text.split_inclusive('\n').find_map(|line| {
        let start = at;
        at += line.len();
        CONFLICT_MARKS.iter().any(|mark| line.starts_with(mark)).then_some(start)
    })
}

/// Reads a text that is valid JSON.
struct LockReader<'a> {
    form: Form,
    text: &'a str,
}

/// A member of an object of the file.
struct FileMember {
    key: String,
    key_span: Range<usize>,
    value: Range<usize>,
}

impl LockReader<'_> {
    fn root(&self) -> Result<Servers, Fault> {
        let start = self.text.len() - self.text.trim_start().len();
        let members = self.members(start..self.text.trim_end().len(), "the file")?;
        let member = |key: &str| members.iter().find(|member| member.key == key);
        let whole = 0..0;
        let Some(version) = member("lockVersion") else {
            return Err(self.fault(whole, "the file has no `lockVersion`".to_owned()));
        };
        if &self.text[version.value.clone()] != VERSION {
            let found = literal::text(&self.text[version.value.clone()]).into_owned();
            let message =
                format!("this is version {found} of the format; this program knows version {VERSION}");
            let hint = format!("update this program, or delete the file and run `{}`", self.form.command());
            return Err(Fault { span: version.value.clone(), message, hint });
        }
        let other = match self.form {
            Form::Toolboxes => (Form::Namespaces, "this is a lock file of toolman"),
            Form::Namespaces => (Form::Toolboxes, "this is a lock file of mcp-workbench"),
        };
        for found in &members {
            if found.key == other.0.key() {
                let message = format!("{}: it has `{}`, not `{}`", other.1, found.key, self.form.key());
                return Err(self.fault(found.key_span.clone(), message));
            }
            if found.key != "lockVersion" && found.key != self.form.key() {
                return Err(self.unknown(found, "a lock file"));
            }
        }
        let Some(groups) = member(self.form.key()) else {
            return Err(self.fault(whole, format!("the file has no `{}`", self.form.key())));
        };
        let mut servers = Servers::new();
        for group in self.members(groups.value.clone(), &format!("`{}`", groups.key))? {
            match self.form {
                Form::Namespaces => {
                    let approved = self.server(group.value, &group.key)?;
                    servers.insert(LockPlace::new(&group.key, ""), Arc::new(approved));
                }
                Form::Toolboxes => {
                    for server in self.members(group.value, &format!("the toolbox `{}`", group.key))? {
                        let approved = self.server(server.value, &server.key)?;
                        servers.insert(LockPlace::new(&group.key, &server.key), Arc::new(approved));
                    }
                }
            }
        }
        Ok(servers)
    }

    fn server(&self, span: Range<usize>, name: &str) -> Result<Approved, Fault> {
        let mut approved = Approved::default();
        for list in self.members(span, &format!("`{name}`"))? {
            let Some(kind) = LockedKind::ALL.into_iter().find(|kind| kind.key() == list.key) else {
                return Err(self.unknown(&list, "a server"));
            };
            for item in self.members(list.value, &format!("`{}`", list.key))? {
                let definition = self.definition(&item)?;
                approved.of_mut(kind).insert(item.key, definition);
            }
        }
        Ok(approved)
    }

    fn definition(&self, item: &FileMember) -> Result<Definition, Fault> {
        let text = &self.text[item.value.clone()];
        let value = JsonValue::read(text).map_err(|unfit| match unfit {
            Unfit::Twice(key, at) => {
                let at = item.value.start + at;
                self.fault(at..at + key.len() + 2, format!("duplicate key `{key}`"))
            }
            Unfit::Deep(at) => {
                let at = item.value.start + at;
                self.fault(at..at + 1, "values are nested too deeply".to_owned())
            }
        })?;
        match value.get("name") {
            Some(JsonValue::Text(name)) if literal::text(name) == item.key => {
                Ok(Definition { text: text.into(), laid_out: true })
            }
            _ => {
                let message = format!("the definition of `{}` has another `name`, or none", item.key);
                Err(self.fault(item.key_span.clone(), message))
            }
        }
    }

    /// The members of an object, which has no key twice.
    fn members(&self, span: Range<usize>, what: &str) -> Result<Vec<FileMember>, Fault> {
        let text = &self.text[span.clone()];
        if !text.starts_with('{') {
            let end = span.start + text.chars().next().map_or(0, char::len_utf8);
            return Err(self.fault(span.start..end, format!("{what} must be an object")));
        }
        let moved = |part: Range<usize>| span.start + part.start..span.start + part.end;
        let mut seen = HashSet::new();
        let mut members = Vec::new();
        for (key, value) in outer_members(text) {
            let decoded = literal::text(&text[key.start + 1..key.end - 1]).into_owned();
            if !seen.insert(decoded.clone()) {
                return Err(self.fault(moved(key), format!("duplicate key `{decoded}`")));
            }
            members.push(FileMember { key: decoded, key_span: moved(key), value: moved(value) });
        }
        Ok(members)
    }

    fn unknown(&self, member: &FileMember, owner: &str) -> Fault {
        self.fault(member.key_span.clone(), format!("{owner} has no key `{}`", member.key))
    }

    fn fault(&self, span: Range<usize>, message: String) -> Fault {
        let hint =
            format!("correct it, or delete the file and write a new one with `{}`", self.form.command());
        Fault { span, message, hint }
    }
}
