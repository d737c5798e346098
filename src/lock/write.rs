//! Writes a lock file: two spaces of indentation, one member or element a line, everything sorted, so that a
//! reviewer sees each change as a line.

use super::value::{JsonValue, ObjectMember};
use super::{Definition, Form, LockedKind, Servers, VERSION, literal};

/// The text of a lock file with these definitions. Definitions that came from a file keep their bytes.
pub fn write(form: Form, servers: &Servers) -> String {
    let mut writer = LockWriter { out: String::new(), depth: 0 };
    writer.begin();
    writer.key("lockVersion", true);
    writer.out.push_str(VERSION);
    writer.key(form.key(), false);
    writer.begin();
    let mut group = None;
    for (place, approved) in servers.iter().filter(|(_, approved)| !approved.is_empty()) {
        let first = group.is_none();
        if group != Some(&place.group) {
            if form == Form::Toolboxes && !first {
                writer.end();
            }
            writer.key(&place.group, first);
            writer.begin();
        }
        if form == Form::Toolboxes {
            writer.key(&place.server, group != Some(&place.group));
            writer.begin();
        }
        group = Some(&place.group);
        let mut first = true;
        for kind in LockedKind::ALL.into_iter().filter(|kind| !approved.of(*kind).is_empty()) {
            writer.key(kind.key(), std::mem::take(&mut first));
            writer.begin();
            for (at, (name, definition)) in approved.of(kind).iter().enumerate() {
                writer.key(name, at == 0);
                writer.definition(definition);
            }
            writer.end();
        }
        writer.end();
    }
    if form == Form::Toolboxes && group.is_some() {
        writer.end();
    }
    writer.end();
    writer.end();
    writer.out.push('\n');
    writer.out
}

/// A definition as the file would write it, for a person.
pub(super) fn laid_out(value: &JsonValue<'_>) -> String {
    let mut writer = LockWriter { out: String::new(), depth: 0 };
    writer.value(value);
    writer.out
}

/// A definition on one line, without white space between its parts.
pub(super) fn compact(value: &JsonValue<'_>) -> String {
    let list = |items: Vec<String>| items.join(",");
    match value {
        JsonValue::Plain(plain) => (*plain).to_owned(),
        JsonValue::Text(text) => format!("\"{text}\""),
        JsonValue::List(items) => format!("[{}]", list(items.iter().map(compact).collect())),
        JsonValue::Object(members) => {
            let member = |member: &ObjectMember<'_>| format!("\"{}\":{}", member.key, compact(&member.value));
            format!("{{{}}}", list(in_order(members).map(member).collect()))
        }
    }
}

/// The members of an object in the order of the text.
fn in_order<'v, 'a>(members: &'v [ObjectMember<'a>]) -> impl Iterator<Item = &'v ObjectMember<'a>> {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|member| member.at);
    members.into_iter()
}

struct LockWriter {
    out: String,
    depth: usize,
}

impl LockWriter {
    fn begin(&mut self) {
        self.out.push('{');
        self.depth += 1;
    }

    fn end(&mut self) {
        self.depth -= 1;
        if self.out.ends_with('{') {
            return self.out.push('}');
        }
        self.line();
        self.out.push('}');
    }

    fn line(&mut self) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n("  ", self.depth));
    }

    /// A key that is not spelled as JSON yet.
    fn key(&mut self, key: &str, first: bool) {
        self.spelled_key(&literal::written(key), first);
    }

    fn spelled_key(&mut self, key: &str, first: bool) {
        if !first {
            self.out.push(',');
        }
        self.line();
        self.out.extend(["\"", key, "\": "]);
    }

    fn definition(&mut self, definition: &Definition) {
        match definition.laid_out {
            true => self.out.push_str(&definition.text),
            false => self.value(&definition.value()),
        }
    }

    fn value(&mut self, value: &JsonValue<'_>) {
        match value {
            JsonValue::Plain(plain) => self.out.push_str(plain),
            JsonValue::Text(text) => self.out.extend(["\"", text, "\""]),
            JsonValue::List(items) if items.is_empty() => self.out.push_str("[]"),
            JsonValue::List(items) => {
                self.out.push('[');
                self.depth += 1;
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.out.push(',');
                    }
                    self.line();
                    self.value(item);
                }
                self.depth -= 1;
                self.line();
                self.out.push(']');
            }
            JsonValue::Object(members) => {
                self.begin();
                for (at, member) in in_order(members).enumerate() {
                    self.spelled_key(&member.key, at == 0);
                    self.value(&member.value);
                }
                self.end();
            }
        }
    }
}
