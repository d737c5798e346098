//! From a client's file to servers that any face can have.

use super::places::Scope;
use super::template::{Template, is_name};
use super::variables::{Meaning, Syntax, input_variable, translate};
use super::{Client, Deadline, Style, Unit};
use crate::edit::Value;
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
    /// Seconds, as spelled.
    pub connect_timeout: Option<String>,
    /// Seconds, as spelled.
    pub call_timeout: Option<String>,
    /// The only tools it shall offer.
    pub tools: Option<Vec<String>>,
    /// Whether it is switched off.
    pub disabled: bool,
    /// Where it comes from.
    pub origin: Origin,
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
    client: &Client,
    file: &Path,
    scope: Scope,
    value: &Value,
    project: &Path,
    home: &str,
) -> Imported {
    let workspace = (scope == Scope::Project).then_some(project);
    let mut reader =
        Reader { client, file, meaning: Meaning { home, workspace }, imported: Imported::default() };
    match client.root(value) {
        Some(root) => reader.servers(value, &root),
        None => reader.wrong_root(value),
    }
    if client.id == "claude-code" {
        reader.local_servers(value, project);
    }
    reader.whole_file(value);
    reader.imported
}

pub(super) struct Reader<'a> {
    pub(super) client: &'a Client,
    pub(super) file: &'a Path,
    pub(super) meaning: Meaning<'a>,
    pub(super) imported: Imported,
}

/// Keys that only tell a client how to treat a server; there is nothing to translate.
const APPROVAL: [&str; 5] = ["autoApprove", "alwaysAllow", "trust", "alwaysAllowedTools", "autoapprove"];

impl<'a> Reader<'a> {
    fn servers(&mut self, value: &Value, root: &[String]) {
        let Some(Value::Object(entries)) = value.at(root) else {
            return self.note("", &root.join("."), "is no object of servers");
        };
        for (name, entry) in entries {
            let mut path = root.to_vec();
            path.push(name.clone());
            self.server(name, entry, path);
        }
    }

    /// Claude Code keeps what is meant for one project beside what is meant for all.
    fn local_servers(&mut self, value: &Value, project: &'a Path) {
        let Some(projects) = value.get("projects") else { return };
        let mut elsewhere = 0;
        for (directory, settings) in projects.entries() {
            let Some(servers) = settings.get("mcpServers") else { continue };
            if Path::new(directory) == project {
                let root = ["projects", directory, "mcpServers"].map(str::to_owned);
                let workspace = self.meaning.workspace.replace(project);
                self.servers(value, &root);
                self.meaning.workspace = workspace;
            } else {
                elsewhere += servers.entries().len();
            }
        }
        if elsewhere > 0 {
            let message =
                format!("has {elsewhere} of other projects, left out; run this in their directories");
            self.note("", "projects", &message);
        }
    }

    fn wrong_root(&mut self, value: &Value) {
        let theirs = |client: &&Client| client.root(value).is_some_and(|root| value.at(&root).is_some());
        let other = super::CLIENTS.iter().filter(|client| client.style != Style::Opencode).find(theirs);
        if let Some(other) = other {
            let root = other.root(value).unwrap_or_default().join(".");
            let wanted = self.client.roots[0];
            let message =
                format!("looks like that of {}; {} reads `{wanted}`", other.title, self.client.title);
            self.note("", &root, &message);
        }
    }

    /// Settings outside the servers that concern them.
    fn whole_file(&mut self, value: &Value) {
        if self.client.id == "zed"
            && let Some(Value::Number(seconds)) = value.get("context_server_timeout")
            && let Some(seconds) = in_seconds(seconds, Unit::Seconds)
        {
            for server in self.imported.servers.iter_mut().filter(|server| server.call_timeout.is_none()) {
                server.call_timeout = Some(seconds.clone());
            }
        }
        if self.client.id == "gemini" {
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

    /// One server, or the key and the reason why it cannot be one of ours.
    fn translated(
        &mut self,
        name: &str,
        entry: &Value,
        path: Vec<String>,
    ) -> Result<ImportedServer, (&'static str, String)> {
        let whole = |message: &str| Err(("", message.to_owned()));
        let Value::Object(_) = entry else { return whole("is no object") };
        let mut draft = Draft::default();
        self.collect(name, entry, &mut draft, "");
        let kind = draft.kind.as_deref().unwrap_or_default();
        if let "builtin" | "platform" | "frontend" | "inline_python" = kind {
            return Err(("type", format!("is `{kind}`, a part of {}", self.client.title)));
        }
        let launch = match (draft.program, draft.url) {
            (Some(_), Some(_)) => return whole("has both a command and a URL"),
            (Some(program), None) => Launch::Command { program, args: draft.args },
            (None, Some(url)) => {
                let text = url.text().unwrap_or("http:").to_ascii_lowercase();
                if !text.starts_with("http:") && !text.starts_with("https:") {
                    return Err(("url", "is no http or https URL".to_owned()));
                }
                let sse = kind == "sse" || kind.is_empty() && self.client.bare_url_is_sse;
                Launch::Url { url, headers: draft.headers, sse }
            }
            (None, None) if entry.get("settings").is_some() => {
                return Err(("settings", "belongs to an extension, which starts it by itself".to_owned()));
            }
            (None, None) => return whole("has neither a command nor a URL"),
        };
        let ours = self.client.id.is_empty();
        if !ours && (name.trim().is_empty() || name.chars().any(char::is_control)) {
            return whole("has a name that cannot be used");
        }
        Ok(ImportedServer {
            name: name.to_owned(),
            launch,
            env: draft.env,
            inherit_env: draft.inherit_env,
            cwd: draft.cwd,
            connect_timeout: draft.connect_timeout,
            call_timeout: draft.call_timeout,
            tools: draft.tools,
            disabled: draft.disabled,
            origin: Origin { client: self.client.title, file: self.file.to_owned(), path },
        })
    }

    fn collect(&mut self, name: &str, entry: &Value, draft: &mut Draft, within: &str) {
        for (key, value) in entry.entries() {
            let place = format!("{within}{key}");
            if self.timeout(name, &place, value, draft) {
                continue;
            }
            match (key.as_str(), value) {
                (_, Value::Null) => {}
                ("command", Value::Object(_)) => self.collect(name, value, draft, "command."),
                ("path", _) if within == "command." => draft.program = self.text(name, &place, value, true),
                ("command", Value::List(words)) => {
                    let mut words = words.iter().filter_map(|word| self.text(name, &place, word, true));
                    draft.program = words.next();
                    draft.args = words.collect();
                }
                ("command" | "cmd", _) => draft.program = self.text(name, &place, value, true),
                ("args", Value::List(items)) => {
                    draft.args =
                        items.iter().filter_map(|item| self.text(name, &place, item, true)).collect();
                }
                ("env" | "envs" | "environment", Value::Object(_)) => {
                    draft.env.extend(self.pairs(name, &place, value, true));
                }
                ("env_keys", Value::List(names)) => {
                    for variable in names.iter().filter_map(Value::text) {
                        self.named_variable(name, &place, variable, |template| {
                            draft.env.push((variable.to_owned(), template));
                        });
                    }
                }
                ("env_vars" | "inheritEnv" | "inherit_env", Value::List(names)) => {
                    self.inherited(name, &place, names, draft)
                }
                ("cwd", _) => draft.cwd = self.text(name, &place, value, true),
                ("url" | "httpUrl" | "serverUrl" | "uri", _) => match &draft.url {
                    Some(_) if key == "url" => {
                        self.note(name, &place, "is not used there beside the other URL")
                    }
                    _ => draft.url = self.text(name, &place, value, false),
                },
                ("headers" | "http_headers", Value::Object(_)) => {
                    draft.headers.extend(self.pairs(name, &place, value, false));
                }
                ("env_http_headers", Value::Object(headers)) => {
                    for (header, variable) in headers {
                        self.named_variable(name, &place, variable.text().unwrap_or_default(), |template| {
                            draft.headers.push((header.clone(), template));
                        });
                    }
                }
                ("bearer_token_env_var", Value::String(variable)) => {
                    self.named_variable(name, &place, variable, |_| {
                        let mut template = Template::literal("Bearer ");
                        template.push_variable(variable, None);
                        draft.headers.push(("Authorization".to_owned(), template));
                    });
                }
                ("transport", Value::Object(_)) => self.collect(name, value, draft, "transport."),
                ("type" | "transport" | "transportType", Value::String(kind)) => {
                    self.kind(name, &place, kind, draft)
                }
                ("disabled", Value::Boolean(off)) => draft.disabled |= *off,
                ("enabled", Value::Boolean(on)) => draft.disabled |= !*on,
                (
                    "includeTools" | "enabled_tools" | "available_tools" | "toolFilters",
                    Value::List(tools),
                ) => {
                    // An empty list means all tools to Goose, and `*` to us.
                    let all = key == "available_tools" && tools.is_empty()
                        || key == "toolFilters" && tools.contains(&Value::String("*".into()));
                    if !all {
                        draft.tools = Some(tools.iter().filter_map(Value::text).map(str::to_owned).collect());
                    }
                }
                ("excludeTools" | "disabledTools" | "disabled_tools", Value::List(tools))
                    if !tools.is_empty() =>
                {
                    self.note(
                        name,
                        &place,
                        "names tools to leave out; here `toolFilters` names those that pass",
                    );
                }
                ("name" | "description", _) if self.client.style == Style::Goose => {}
                ("envFile", _) => {
                    self.note(name, &place, "is not read here; set its variables, or write them into `env`");
                }
                (approval, _)
                    if APPROVAL.contains(&approval)
                        && value.items().is_empty()
                        && value != &Value::Boolean(true) => {}
                (approval, _) if APPROVAL.contains(&approval) => {
                    self.note(name, &place, "approves tools there; that stays the client's business");
                }
                (_, Value::List(items)) if items.is_empty() => {}
                (_, Value::Object(entries)) if entries.is_empty() => {}
                _ => self.note(name, &place, "has no counterpart here"),
            }
        }
    }

    fn kind(&mut self, name: &str, place: &str, kind: &str, draft: &mut Draft) {
        draft.kind = Some(match kind {
            "http" | "streamable-http" | "streamableHttp" | "streamable_http" | "remote" => "http".to_owned(),
            "stdio" | "local" => "stdio".to_owned(),
            "sse" | "builtin" | "platform" | "frontend" | "inline_python" => kind.to_owned(),
            _ => return self.note(name, place, &format!("is `{kind}`, which is not known here")),
        });
    }

    fn inherited(&mut self, name: &str, place: &str, names: &[Value], draft: &mut Draft) {
        for item in names {
            let variable = item.text().or_else(|| item.get("name").and_then(Value::text));
            match (variable, item.get("source").and_then(Value::text)) {
                (Some(variable), None | Some("local")) => draft.inherit_env.push(variable.to_owned()),
                (Some(variable), Some(source)) => {
                    self.note(
                        name,
                        place,
                        &format!("takes {variable} from `{source}`, which is not known here"),
                    );
                }
                (None, _) => self.note(name, place, "holds something that names no variable"),
            }
        }
    }

    /// Takes a key that is a timeout of this client.
    fn timeout(&mut self, name: &str, place: &str, value: &Value, draft: &mut Draft) -> bool {
        if let Value::Object(parts) = value
            && self.client.timeouts.iter().any(|(key, ..)| key.starts_with(&format!("{place}.")))
        {
            for (key, value) in parts {
                if !self.timeout(name, &format!("{place}.{key}"), value, draft) {
                    self.note(name, &format!("{place}.{key}"), "has no counterpart here");
                }
            }
            return true;
        }
        let Some((_, deadline, unit)) = self.client.timeouts.iter().find(|(key, ..)| *key == place) else {
            return false;
        };
        let slot = match deadline {
            Deadline::Connect => &mut draft.connect_timeout,
            Deadline::Call => &mut draft.call_timeout,
        };
        let seconds = match value {
            Value::Number(number) => in_seconds(number, *unit),
            _ => None,
        };
        match (seconds, &slot) {
            (Some(seconds), None) => *slot = Some(seconds),
            (Some(seconds), Some(first)) if seconds == *first => {}
            (Some(_), Some(_)) => self.note(name, place, "differs from the other timeout, which was taken"),
            (None, _) if *value == Value::Null => {}
            (None, _) => self.note(name, place, "is no time greater than 0"),
        }
        true
    }

    fn named_variable(&mut self, name: &str, place: &str, variable: &str, take: impl FnOnce(Template)) {
        match is_name(variable) {
            true => take(Template::variable(variable)),
            false => {
                self.note(name, place, &format!("names the variable {variable}, which `${{…}}` cannot name"))
            }
        }
    }

    fn pairs(&mut self, name: &str, place: &str, value: &Value, local: bool) -> Vec<(String, Template)> {
        let pair = |(key, value): &(String, Value)| match value {
            Value::Null => None,
            value => Some((key.clone(), self.text(name, &format!("{place}.{key}"), value, local)?)),
        };
        value.entries().iter().filter_map(pair).collect()
    }

    /// A text with the client's variables; `local` where it is not a part of a URL or a header.
    fn text(&mut self, name: &str, place: &str, value: &Value, local: bool) -> Option<Template> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(spelled) => spelled.clone(),
            Value::Boolean(value) => value.to_string(),
            _ => {
                self.note(name, place, "is no text");
                return None;
            }
        };
        let syntax = if local && self.client.only_remote { Syntax::None } else { self.client.syntax };
        let mut lost = Vec::new();
        let template = translate(syntax, &text, &self.meaning, &mut lost);
        for variable in lost {
            // A default may be a secret.
            let variable =
                variable.split_once(":-").map_or(variable.clone(), |(name, _)| format!("{name}:-…}}"));
            self.note(name, place, &format!("has {variable}, which is not replaced here"));
        }
        Some(template)
    }

    fn note(&mut self, server: &str, key: &str, message: &str) {
        self.imported.notes.push(Note {
            client: self.client.title,
            file: self.file.to_owned(),
            server: server.to_owned(),
            key: key.to_owned(),
            message: message.to_owned(),
        });
    }
}

#[derive(Default)]
struct Draft {
    program: Option<Template>,
    args: Vec<Template>,
    env: Vec<(String, Template)>,
    inherit_env: Vec<String>,
    cwd: Option<Template>,
    url: Option<Template>,
    headers: Vec<(String, Template)>,
    kind: Option<String>,
    connect_timeout: Option<String>,
    call_timeout: Option<String>,
    tools: Option<Vec<String>>,
    disabled: bool,
}

/// A time greater than 0, in seconds.
fn in_seconds(number: &str, unit: Unit) -> Option<String> {
    let number: f64 = number.replace('_', "").parse().ok()?;
    let seconds = match unit {
        Unit::Seconds => number,
        Unit::Milliseconds => number / 1000.0,
    };
    (seconds.is_finite() && seconds > 0.0).then(|| seconds.to_string())
}
