//! Our own two files, read and written like those of clients.

use super::read::{Imported, ImportedServer, Launch, Reader};
use super::template::Template;
use super::variables::Meaning;
use crate::config::command_line::{CommandLine, split};
use crate::config::entry::snake;
use crate::config::locate::FaceKind;
use crate::edit::{Format, Value};
use crate::known_clients::{Deadline, Dialect, TimeUnit, VariableSyntax};
use std::path::Path;

/// A toolbox or, for `tools.toml`, all servers.
#[derive(Debug)]
pub struct Group {
    /// The toolbox's name; empty for `tools.toml`.
    pub name: String,
    /// The servers in the order of the file, including disabled ones.
    pub servers: Vec<ImportedServer>,
}

/// The notation of `workbench-config.json`.
const WORKBENCH: Dialect = Dialect {
    variables: VariableSyntax::Config,
    timeouts: &[
        ("connectTimeout", Deadline::Connect, TimeUnit::Seconds),
        ("callTimeout", Deadline::Call, TimeUnit::Seconds),
    ],
    ..Dialect::PLAIN
};

/// The notation of `tools.toml`. Its strings are expanded in the same way.
const TOOLMAN: Dialect = Dialect {
    format: Format::Toml,
    timeouts: &[
        ("connect_timeout", Deadline::Connect, TimeUnit::Seconds),
        ("call_timeout", Deadline::Call, TimeUnit::Seconds),
    ],
    ..WORKBENCH
};

/// The servers of a configuration, with their variables unexpanded.
pub fn read_config(face: FaceKind, value: &Value) -> Vec<Group> {
    match face {
        FaceKind::Workbench => {
            let toolboxes = value.get("toolboxes").map(Value::entries).unwrap_or_default();
            let group = |(name, toolbox): &(String, Value)| {
                let servers = toolbox.get("mcpServers").map(Value::entries).unwrap_or_default();
                let entries = servers.iter().map(|(name, entry)| (name.as_str(), entry.clone()));
                Group { name: name.clone(), servers: servers_of(&WORKBENCH, entries) }
            };
            toolboxes.iter().map(group).collect()
        }
        FaceKind::Toolman => {
            let servers = value.get("servers").map(Value::items).unwrap_or_default();
            let entries = servers.iter().map(|entry| {
                let name = entry.get("namespace").and_then(Value::text).unwrap_or_default();
                (name, entry.clone())
            });
            let mut read = servers_of(&TOOLMAN, entries);
            for server in &mut read {
                split_command(server);
            }
            vec![Group { name: String::new(), servers: read }]
        }
    }
}

/// An entry of `mcpServers`.
pub fn workbench_value(server: &ImportedServer) -> Value {
    let mut entry = Vec::new();
    launch(server, &mut entry, str::to_owned, |program, args, entry| {
        entry.push(("command".to_owned(), text(program)));
        if !args.is_empty() {
            entry.push(("args".to_owned(), Value::List(args.iter().map(text).collect())));
        }
    });
    common(server, ["inheritEnv", "connectTimeout", "callTimeout"], &mut entry);
    if let Some(tools) = &server.tools {
        entry.push(("toolFilters".to_owned(), Value::strings(tools)));
    }
    off(server, &mut entry);
    Value::Object(entry)
}

/// An item of `[[servers]]`.
pub fn toolman_value(server: &ImportedServer) -> Value {
    let mut entry = vec![("namespace".to_owned(), Value::String(server.name.clone()))];
    launch(server, &mut entry, snake, |program, args, entry| {
        let mut words = vec![program.word()];
        words.extend(args.iter().map(Template::word));
        entry.push(("command".to_owned(), Value::String(words.join(" "))));
    });
    common(server, ["inherit_env", "connect_timeout", "call_timeout"], &mut entry);
    off(server, &mut entry);
    Value::Object(entry)
}

type OurEntry = Vec<(String, Value)>;

fn launch(
    server: &ImportedServer,
    entry: &mut OurEntry,
    spelled: impl Fn(&str) -> String,
    command: impl Fn(&Template, &[Template], &mut OurEntry),
) {
    match &server.launch {
        Launch::Command { program, args } => command(program, args, entry),
        Launch::Url { url, headers, sse, oauth } => {
            if *sse {
                entry.push(("type".to_owned(), Value::String("sse".to_owned())));
            }
            entry.push(("url".to_owned(), text(url)));
            if !headers.is_empty() {
                entry.push(("headers".to_owned(), pairs(headers)));
            }
            if !oauth.is_empty() {
                let member = |(key, template): &(String, Template)| match (key.as_str(), template.text()) {
                    ("callbackPort", Some(port)) => (spelled(key), Value::Number(port.to_owned())),
                    _ => (spelled(key), text(template)),
                };
                entry.push(("oauth".to_owned(), Value::Object(oauth.iter().map(member).collect())));
            }
        }
    }
}

fn common(server: &ImportedServer, [inherit, connect, call]: [&str; 3], entry: &mut OurEntry) {
    if !server.env.is_empty() {
        entry.push(("env".to_owned(), pairs(&server.env)));
    }
    if let Some(cwd) = &server.cwd {
        entry.push(("cwd".to_owned(), text(cwd)));
    }
    if !server.inherit_env.is_empty() {
        entry.push((inherit.to_owned(), Value::strings(&server.inherit_env)));
    }
    for (key, seconds) in [(connect, &server.timeouts.connect), (call, &server.timeouts.call)] {
        entry.extend(seconds.iter().map(|seconds| (key.to_owned(), Value::Number(seconds.clone()))));
    }
}

fn off(server: &ImportedServer, entry: &mut OurEntry) {
    if server.disabled {
        entry.push(("disabled".to_owned(), Value::Boolean(true)));
    }
}

fn text(template: &Template) -> Value {
    Value::String(template.spelled())
}

fn pairs(pairs: &[(String, Template)]) -> Value {
    Value::Object(pairs.iter().map(|(key, template)| (key.clone(), text(template))).collect())
}

fn servers_of<'v>(dialect: &Dialect, entries: impl Iterator<Item = (&'v str, Value)>) -> Vec<ImportedServer> {
    let meaning = Meaning { home: "HOME", workspace: None };
    let mut reader =
        Reader { title: "", dialect, file: Path::new(""), meaning, imported: Imported::default() };
    for (name, entry) in entries {
        reader.server(name, &entry, Vec::new());
    }
    reader.imported.servers
}

/// Splits the command. `tools.toml` has the whole command in one string, in which `$${` has no special
/// meaning.
fn split_command(server: &mut ImportedServer) {
    let Launch::Command { program, args } = &mut server.launch else { return };
    let Ok(CommandLine::Words { assignments, words }) = split(&program.spelled(), None) else { return };
    let template = |word: &crate::config::command_line::Word| {
        let mut template = Template::default();
        for (part, variable) in word.parts() {
            match variable {
                false => template.push_text(part),
                true => template.extend(&Template::ours(part)),
            }
        }
        template
    };
    server.env.extend(assignments.iter().map(|(name, word)| (name.clone(), template(word))));
    let mut words = words.iter().map(template);
    *program = words.next().unwrap_or_default();
    *args = words.collect();
}
