//! From a client's file to servers that any face can have.

use super::fields::in_seconds;
use super::places::FileScope;
use super::template::Template;
use super::variables::{Meaning, input_variable};
use crate::edit::Value;
use crate::known_clients::{CLIENTS, Dialect, KnownClient, TimeUnit};
use std::path::{Path, PathBuf};

/// What a file holds.
#[derive(Debug, Default)]
pub struct Imported {
    /// In the order of the file.
    pub servers: Vec<ImportedServer>,
    /// What could not be translated.
    pub notes: Vec<Note>,
}

/// One server, free of any client's way to write it.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedServer {
    /// As the file calls it.
    pub name: String,
    /// How it is reached.
    pub launch: Launch,
    /// Variables for it.
    pub env: Vec<(String, Template)>,
    /// Names of variables that it inherits.
    pub inherit_env: Vec<String>,
    /// Where it runs.
    pub cwd: Option<Template>,
    /// How long it may take.
    pub timeouts: ImportedTimeouts,
    /// The only tools it shall offer.
    pub tools: Option<Vec<String>>,
    /// What the file calls that list.
    pub tools_key: String,
    /// Whether it is switched off.
    pub disabled: bool,
    /// Where it comes from.
    pub origin: Origin,
}

/// Seconds, as spelled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportedTimeouts {
    /// For starting it.
    pub connect: Option<String>,
    /// For one call.
    pub call: Option<String>,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Launch {
    /// A program to start.
    Command {
        /// A name or a path.
        program: Template,
        /// Its arguments.
        args: Vec<Template>,
    },
    /// A server that runs already.
    Url {
        /// Where.
        url: Template,
        /// What is sent with each request.
        headers: Vec<(String, Template)>,
        /// Whether it speaks the deprecated transport.
        sse: bool,
        /// How to log in to it, by the keys of `workbench-config.json`.
        oauth: Vec<(String, Template)>,
    },
}

/// Where a server comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Whose file it is, as its makers call it.
    pub client: &'static str,
    /// The file.
    pub file: PathBuf,
    /// Where in the file it stands.
    pub path: Vec<String>,
}

/// Something that could not be translated. Holds no value of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Whose file it is.
    pub client: &'static str,
    /// The file.
    pub file: PathBuf,
    /// The server; empty for the file as a whole.
    pub server: String,
    /// The key; empty for the server as a whole.
    pub key: String,
    /// What is the matter.
    pub message: String,
}

/// Reads all servers of a file. `project` is the directory that project-wide settings are for, `home` the
/// variable that holds the user's home.
pub fn read(
    client: &KnownClient,
    file: &Path,
    scope: FileScope,
    value: &Value,
    project: &Path,
    home: &str,
) -> Imported {
    let workspace = (scope == FileScope::Project).then_some(project);
    let mut reader = Reader {
        title: client.title,
        dialect: &client.files.dialect,
        file,
        meaning: Meaning { home, workspace },
        imported: Imported::default(),
    };
    match client.root(value) {
        Some(root) => {
            reader.servers(value, &root);
            reader.beside(client, value, &root);
        }
        None => reader.wrong_root(client, value),
    }
    if client.id == "claude-code" {
        reader.local_servers(value, project);
    }
    reader.whole_file(client, value);
    reader.imported
}

pub(super) struct Reader<'a> {
    /// Whose file it is.
    pub(super) title: &'static str,
    pub(super) dialect: &'a Dialect,
    pub(super) file: &'a Path,
    pub(super) meaning: Meaning<'a>,
    pub(super) imported: Imported,
}

impl<'a> Reader<'a> {
    fn servers(&mut self, value: &Value, root: &[String]) {
        let Some(Value::Object(entries)) = value.at(root) else {
            let nothing = value.at(root) == Some(&Value::Null);
            if !nothing {
                self.note("", &root.join("."), "is no object of servers");
            }
            return;
        };
        for (name, entry) in entries {
            let mut path = root.to_vec();
            path.push(name.clone());
            self.server(name, entry, path);
        }
    }

    /// Names what stands where servers stand in other versions, and is not read beside those that were found.
    fn beside(&mut self, client: &KnownClient, value: &Value, root: &[String]) {
        let chosen = root.join(".");
        for other in client.files.roots.iter().filter(|other| **other != chosen) {
            let message = format!("is not read beside `{chosen}`; left out");
            match (chosen.strip_prefix(&format!("{other}.")), value.at(&[*other])) {
                (Some(inner), Some(outer)) => {
                    let others = outer.entries().iter().filter(|(key, _)| key != inner);
                    others.for_each(|(key, _)| self.note("", &format!("{other}.{key}"), &message));
                }
                (None, Some(servers)) => {
                    servers.entries().iter().for_each(|(name, _)| self.note(name, other, &message));
                }
                _ => {}
            }
        }
    }

    /// Claude Code keeps what is meant for one project beside what is meant for all.
    fn local_servers(&mut self, value: &Value, project: &'a Path) {
        let Some(projects) = value.get("projects") else { return };
        for (directory, settings) in projects.entries() {
            let Some(servers) = settings.get("mcpServers") else { continue };
            if Path::new(directory) == project {
                let root = ["projects", directory, "mcpServers"].map(str::to_owned);
                let workspace = self.meaning.workspace.replace(project);
                self.servers(value, &root);
                self.meaning.workspace = workspace;
            } else {
                let message =
                    format!("belongs to the project {directory}; left out, run this there to take it over");
                servers.entries().iter().for_each(|(name, _)| self.note(name, "", &message));
            }
        }
    }

    /// Names servers that stand where this client does not look.
    fn wrong_root(&mut self, client: &KnownClient, value: &Value) {
        let server = |(_, entry): &(String, Value)| {
            ["command", "cmd", "url", "uri"].iter().any(|key| entry.get(key).is_some())
        };
        // Others have such a key as well, for something else.
        let servers = |client: &KnownClient| {
            let root = client.root(value)?;
            value.at(&root)?.entries().iter().any(server).then(|| root.join("."))
        };
        let wanted = format!("{} reads `{}`", client.title, client.files.roots[0]);
        let other = CLIENTS.iter().find_map(|client| Some((client.title, servers(client)?)));
        match (other, value.entries()) {
            (Some((title, root)), _) => {
                self.note("", &root, &format!("looks like that of {title}; {wanted}"));
            }
            (None, entries @ [(first, _), ..]) if entries.iter().all(server) => {
                self.note("", first, &format!("looks like a server that stands by itself; {wanted}"));
            }
            _ => {}
        }
    }

    /// Settings outside the servers that concern them.
    fn whole_file(&mut self, client: &KnownClient, value: &Value) {
        if client.id == "zed"
            && let Some(Value::Number(seconds)) = value.get("context_server_timeout")
            && let Some(seconds) = in_seconds(seconds, TimeUnit::Seconds)
        {
            for server in self.imported.servers.iter_mut().filter(|server| server.timeouts.call.is_none()) {
                server.timeouts.call = Some(seconds.clone());
            }
        }
        if client.id == "gemini" {
            let names = |key| value.at(&["mcp", key]).map(|list| list.items().to_vec());
            let (allowed, excluded) = (names("allowed"), names("excluded").unwrap_or_default());
            for server in &mut self.imported.servers {
                let name = Value::String(server.name.clone());
                let off =
                    excluded.contains(&name) || allowed.as_ref().is_some_and(|list| !list.contains(&name));
                server.disabled |= off;
            }
        }
        for input in value.get("inputs").map(Value::items).unwrap_or_default() {
            if let Some(id) = input.get("id").and_then(Value::text) {
                let message = format!("is asked for there; set the variable {} instead", input_variable(id));
                self.note("", &format!("inputs.{id}"), &message);
            }
        }
    }

    pub(super) fn server(&mut self, name: &str, entry: &Value, path: Vec<String>) {
        let before = self.imported.notes.len();
        match self.translated(name, entry, path) {
            Ok(server) => self.imported.servers.push(server),
            Err((key, message)) => {
                // What stands in an entry that is left out does not matter.
                self.imported.notes.truncate(before);
                self.note(name, key, &format!("{message}; left out"));
            }
        }
    }

    pub(super) fn note(&mut self, server: &str, key: &str, message: &str) {
        self.imported.notes.push(Note {
            client: self.title,
            file: self.file.to_owned(),
            server: server.to_owned(),
            key: key.to_owned(),
            message: message.to_owned(),
        });
    }
}
