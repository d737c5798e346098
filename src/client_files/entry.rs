//! Our own entry in a client's file. The verbs `connect` and `disconnect` add and remove it.

use crate::edit::{Edit, Format, Refusal, Value, apply, parse, undone};
use crate::known_clients::{EntryStyle, KnownClient};

/// The gateway as a client starts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ourselves {
    /// The name of the entry.
    pub name: String,
    /// The absolute path of the program.
    pub program: String,
    /// The arguments, with absolute paths.
    pub args: Vec<String>,
    /// The variables for the program, with their values.
    pub env: Vec<(String, String)>,
}

/// The file with our entry and without the servers at `taken`. The text is unchanged if it is like that
/// already.
pub fn connect(
    client: &KnownClient,
    text: &str,
    ourselves: &Ourselves,
    taken: &[Vec<String>],
) -> Result<String, Refusal> {
    let value = parse(client.files.dialect.format, text)?.value;
    let path = entry_path(client, &value, &ourselves.name);
    let entry = entry(client, ourselves);
    let mut edits = Vec::new();
    let root = &path[..path.len() - 1];
    if value.at(root) == Some(&Value::Null) {
        let servers = Value::Object(vec![(ourselves.name.clone(), entry)]);
        edits.push(Edit::Set { path: root.to_vec(), value: servers });
    } else if value.at(&path) != Some(&entry) {
        edits.push(Edit::Set { path: path.clone(), value: entry });
    }
    edits
        .extend(taken.iter().filter(|taken| **taken != path).map(|path| Edit::Remove { path: path.clone() }));
    edits.extend(allow(client, &value, &ourselves.name));
    apply(client.files.dialect.format, text, &edits)
}

/// What `connect` did to a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Past<'a> {
    /// The file before; empty if there was none.
    pub before: &'a str,
    /// The file after.
    pub after: &'a str,
    /// The entries that were taken out.
    pub taken: &'a [Vec<String>],
}

/// The file without our entry and with the servers that `connect` took out, for a file that was edited in
/// between.
pub fn disconnect(client: &KnownClient, text: &str, name: &str, past: &Past<'_>) -> Result<String, Refusal> {
    let edited = taken_back(client, text, name, past)?;
    // Undoing the change as text brings everything back with its comments and in its place. That is preferred
    // if it means the same.
    let meaning = |text: &str| parse(client.files.dialect.format, text).map(|parsed| parsed.value);
    let expected = meaning(&edited)?;
    let undone = undone(past.before, past.after, text);
    let sound = undone.filter(|text| meaning(text).is_ok_and(|found| found.same(&expected)));
    Ok(sound.unwrap_or(edited))
}

fn taken_back(client: &KnownClient, text: &str, name: &str, past: &Past<'_>) -> Result<String, Refusal> {
    let Past { before, taken, .. } = *past;
    let value = parse(client.files.dialect.format, text)?.value;
    let old = parse(client.files.dialect.format, before)?.value;
    let path = entry_path(client, &value, name);
    let mut edits = Vec::new();
    let mut back = |path: &[String]| {
        let siblings = old.at(&path[..path.len() - 1]).map(Value::entries).unwrap_or_default();
        let index = siblings.iter().position(|(key, _)| Some(key) == path.last()).unwrap_or(usize::MAX);
        if old.at(path).is_some() {
            edits.push(Edit::Restore {
                path: path.to_vec(),
                from: before,
                format: client.files.dialect.format,
                index,
            });
        }
    };
    taken.iter().filter(|taken| value.at(taken).is_none() && **taken != path).for_each(|taken| back(taken));
    if value.at(&path).is_some() {
        edits.push(Edit::Remove { path: path.clone() });
        if old.at(&path).is_some() {
            let index = usize::MAX;
            edits.push(Edit::Restore { path, from: before, format: client.files.dialect.format, index });
        }
    }
    edits.extend(disallow(client, &value, &old, name));
    apply(client.files.dialect.format, text, &edits)
}

/// The path of an entry of this name in a file, whether or not it exists.
pub fn entry_path(client: &KnownClient, value: &Value, name: &str) -> Vec<String> {
    let mut path = client.root_or_first(value);
    path.push(name.to_owned());
    path
}

fn entry(client: &KnownClient, ourselves: &Ourselves) -> Value {
    let program = Value::String(ourselves.program.clone());
    let args = Value::strings(&ourselves.args);
    let mut entry = match client.files.dialect.style {
        EntryStyle::Plain => Value::object([("command", program), ("args", args)]),
        EntryStyle::Typed => {
            Value::object([("type", Value::String("stdio".into())), ("command", program), ("args", args)])
        }
        EntryStyle::Opencode => {
            let words = [&ourselves.program].into_iter().chain(&ourselves.args);
            let command = Value::strings(words);
            Value::object([
                ("type", Value::String("local".into())),
                ("command", command),
                ("enabled", Value::Boolean(true)),
            ])
        }
        EntryStyle::Goose => Value::object([
            ("enabled", Value::Boolean(true)),
            ("type", Value::String("stdio".into())),
            ("name", Value::String(ourselves.name.clone())),
            ("description", Value::String("All MCP servers behind one".into())),
            ("cmd", program),
            ("args", args),
            ("timeout", Value::Number("300".into())),
        ]),
    };
    if let (Value::Object(members), false) = (&mut entry, ourselves.env.is_empty()) {
        let key = match client.files.dialect.style {
            EntryStyle::Plain | EntryStyle::Typed => "env",
            EntryStyle::Opencode => "environment",
            EntryStyle::Goose => "envs",
        };
        let values = ourselves.env.iter().map(|(name, value)| (name.clone(), Value::String(value.clone())));
        members.push((key.to_owned(), Value::Object(values.collect())));
    }
    entry
}

/// Adds us to Gemini CLI's list of allowed servers, and removes us from its list of excluded ones.
fn allow(client: &KnownClient, value: &Value, name: &str) -> Vec<Edit<'static>> {
    if client.id != "gemini" || client.files.dialect.format != Format::Json {
        return Vec::new();
    }
    let path = |key: &str| vec!["mcp".to_owned(), key.to_owned()];
    let us = Value::String(name.to_owned());
    let mut edits = Vec::new();
    if let Some(Value::List(allowed)) = value.at(&["mcp", "allowed"])
        && !allowed.contains(&us)
    {
        edits.push(Edit::Push { path: path("allowed"), value: us.clone(), index: usize::MAX });
    }
    if let Some(Value::List(excluded)) = value.at(&["mcp", "excluded"])
        && let Some(index) = excluded.iter().position(|item| *item == us)
    {
        edits.push(Edit::Pull { path: path("excluded"), index });
    }
    edits
}

/// Undoes [`allow`].
fn disallow(client: &KnownClient, value: &Value, before: &Value, name: &str) -> Vec<Edit<'static>> {
    if client.id != "gemini" {
        return Vec::new();
    }
    let us = Value::String(name.to_owned());
    let place = |value: &Value, key| {
        let list = value.at(&["mcp", key]).map(Value::items).unwrap_or_default();
        list.iter().position(|item| *item == us)
    };
    let path = |key: &str| vec!["mcp".to_owned(), key.to_owned()];
    let mut edits = Vec::new();
    if let (Some(index), None) = (place(value, "allowed"), place(before, "allowed")) {
        edits.push(Edit::Pull { path: path("allowed"), index });
    }
    if let (None, Some(index)) = (place(value, "excluded"), place(before, "excluded")) {
        edits.push(Edit::Push { path: path("excluded"), value: us.clone(), index });
    }
    edits
}
