//! Reads a client's file into servers that any face can use.

use super::fields::in_seconds;
use super::places::FileScope;
use super::template::Template;
use super::variables::{Meaning, input_variable};
use crate::edit::Value;
use crate::known_clients::{CLIENTS, Dialect, KnownClient, TimeUnit};
use std::path::{Path, PathBuf};

/// The contents of a file.
#[derive(Debug, Default)]
pub struct Imported {
    /// The servers in the order of the file.
    pub servers: Vec<ImportedServer>,
    /// Notes on what could not be translated.
    pub notes: Vec<Note>,
}

/// One server, independent of any client's notation.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedServer {
    /// The name in the file.
    pub name: String,
    /// How it is reached.
    pub launch: Launch,
    /// The variables for the server.
    pub env: Vec<(String, Template)>,
    /// The names of the variables that it inherits.
    pub inherit_env: Vec<String>,
    /// The working directory.
    pub cwd: Option<Template>,
    /// The timeouts.
    pub timeouts: ImportedTimeouts,
    /// The only tools that it may offer.
    pub tools: Option<Vec<String>>,
    /// The file's key for that list.
    pub tools_key: String,
    /// Whether the server is disabled.
    pub disabled: bool,
    /// What the file says about the server; empty if it says nothing.
    pub description: String,
    /// Where the server comes from.
    pub origin: Origin,
}

/// Timeouts in seconds, as they are spelled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportedTimeouts {
    /// The timeout for starting.
    pub connect: Option<String>,
    /// The timeout for one call.
    pub call: Option<String>,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Launch {
    /// A program to start.
    Command {
        /// The name or path of the program.
        program: Template,
        /// The arguments.
        args: Vec<Template>,
    },
    /// A server that is already running.
    Url {
        /// The URL.
        url: Template,
        /// The headers of each request.
        headers: Vec<(String, Template)>,
        /// Whether the server speaks the deprecated transport.
        sse: bool,
        /// The login settings, by the keys of `workbench-config.json`.
        oauth: Vec<(String, Template)>,
    },
}

/// The origin of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The client that the file belongs to, as its makers call it.
    pub client: &'static str,
    /// The file.
    pub file: PathBuf,
    /// The path of the entry in the file.
    pub path: Vec<String>,
}

/// Something that could not be translated. It holds no value of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The client that the file belongs to.
    pub client: &'static str,
    /// The file.
    pub file: PathBuf,
    /// The server; empty for the file as a whole.
    pub server: String,
    /// The key; empty for the server as a whole.
    pub key: String,
    /// The reason.
    pub message: String,
}

/// Reads all servers of a file. `project` is the directory for project-wide settings, and `home` the variable
/// that holds the user's home.
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
    /// The client that the file belongs to.
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
                self.note("", &root.join("."), "is not an object of servers");
            }
            return;
        };
        for (name, entry) in entries {
            let mut path = root.to_vec();
            path.push(name.clone());
            self.server(name, entry, path);
        }
    }

    /// Notes servers under the keys of other versions, which are not read in addition to those that were
    /// found.
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

    /// Reads the servers of one project, which Claude Code keeps beside those of all projects.
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
                let message = format!(
                    "belongs to the project {directory}; left out, `init --project` there takes it over"
                );
                servers.entries().iter().for_each(|(name, _)| self.note(name, "", &message));
            }
        }
    }

    /// Notes servers under a key that this client does not read.
    fn wrong_root(&mut self, client: &KnownClient, value: &Value) {
        let server = |(_, entry): &(String, Value)| {
            ["command", "cmd", "url", "uri"].iter().any(|key| entry.get(key).is_some())
        };
        // Other clients use such a key for something else.
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
                self.note("", first, &format!("looks like a single server; {wanted}"));
            }
            _ => {}
        }
    }

    /// Reads settings outside the servers that affect them.
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
                let message = format!(
                    "is a value that the client asks for; set the variable {} instead",
                    input_variable(id)
                );
                self.note("", &format!("inputs.{id}"), &message);
            }
        }
    }

    pub(super) fn server(&mut self, name: &str, entry: &Value, path: Vec<String>) {
        let before = self.imported.notes.len();
        match self.translated(name, entry, path) {
            Ok(server) => self.imported.servers.push(server),
            Err((key, message)) => {
                // Notes on an entry that is left out do not matter.
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
