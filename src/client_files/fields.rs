//! Translates one entry of a client's file into a server that any face can use.
//!
//! `config::entry` says what a key is about, whoever wrote it; the reader's [`Dialect`] says what only one
//! client means by it. A key without a counterpart here becomes a note.
//!
//! [`Dialect`]: crate::known_clients::Dialect

use super::draft::{Declared, Draft};
use super::read::{ImportedServer, ImportedTimeouts, Launch, Origin, Reader};
use super::template::{Piece, Template, is_name};
use super::variables::translate;
use crate::config::entry::{
    Field, HTTP_ELSEWHERE, LOGIN_KEYS, Side, TRANSPORTS, TransportName, field, is_url, is_variable_name,
    snake,
};
use crate::edit::Value;
use crate::known_clients::{Deadline, EntryStyle, TimeUnit, VariableSyntax};

/// The types of servers that are built into their client.
const BUILT_IN: [&str; 4] = ["builtin", "platform", "frontend", "inline_python"];

/// A key of an entry and its value.
struct Member<'v> {
    /// The name of the server.
    server: &'v str,
    key: &'v str,
    /// The key with the keys around it, such as `transport.type`.
    place: String,
    value: &'v Value,
}

impl Reader<'_> {
    /// One server, or the key and the reason why we cannot use it.
    pub(super) fn translated(
        &mut self,
        name: &str,
        entry: &Value,
        path: Vec<String>,
    ) -> Result<ImportedServer, (&'static str, String)> {
        let whole = |message: &str| Err(("", message.to_owned()));
        let Value::Object(_) = entry else { return whole("is not an object") };
        let mut draft = Draft::default();
        self.collect(name, entry, "", &mut draft);
        if let Some((_, Declared::BuiltIn(kind))) = &draft.transport {
            return Err(("type", format!("is `{kind}`, a part of {}", self.title)));
        }
        for (key, message) in draft.settle(self.dialect.style == EntryStyle::Goose) {
            self.note(name, &key, &message);
        }
        let launch = match self.launch(name, &mut draft)? {
            Some(launch) => launch,
            None if entry.get("settings").is_some() => {
                return Err(("settings", "belongs to an extension, which starts it by itself".to_owned()));
            }
            None => return whole("has neither a command nor a URL"),
        };
        let ours = self.dialect.variables == VariableSyntax::Config;
        if !ours && (name.trim().is_empty() || name.chars().any(char::is_control)) {
            return whole("has a name that cannot be used");
        }
        Ok(ImportedServer {
            name: name.to_owned(),
            launch,
            env: draft.program.env,
            inherit_env: draft.program.inherit_env,
            cwd: draft.program.cwd,
            timeouts: draft.timeouts,
            tools: draft.tools.only,
            tools_key: draft.tools.only_key,
            disabled: draft.disabled,
            description: draft.description,
            origin: Origin { client: self.title, file: self.file.to_owned(), path },
        })
    }

    /// How the server is reached; `None` if nothing says so.
    fn launch(&mut self, name: &str, draft: &mut Draft) -> Result<Option<Launch>, (&'static str, String)> {
        let nul = |template: &Template| template.text().is_some_and(|text| text.contains('\0'));
        let (place, declared) = match draft.transport.take() {
            Some((place, Declared::As(name))) => (place, Some(name)),
            _ => (String::new(), None),
        };
        match (draft.program.name.take(), draft.remote.url.take()) {
            (Some(_), Some(_)) => Err(("", "has both a command and a URL".to_owned())),
            (Some(program), None) if program.text().is_some_and(|text| text.trim().is_empty()) => {
                Err(("command", "is blank".to_owned()))
            }
            (Some(program), None) if nul(&program) || draft.program.args.iter().any(nul) => {
                Err(("args", "hold a NUL character".to_owned()))
            }
            (Some(program), None) => {
                if matches!(declared, Some(TransportName::Http | TransportName::Sse)) {
                    self.note(name, &place, "is for a URL, but the entry has a command, which was used");
                }
                let mut args = std::mem::take(&mut draft.program.words);
                args.append(&mut draft.program.args);
                Ok(Some(Launch::Command { program, args }))
            }
            (None, Some((_, url))) => {
                if url.text().is_some_and(|text| !is_url(text)) {
                    return Err(("url", "is not an http or https URL".to_owned()));
                }
                if declared == Some(TransportName::Stdio) {
                    self.note(name, &place, "is for a command, but the entry has a URL, which was used");
                }
                let sse = match declared {
                    Some(declared) => declared == TransportName::Sse,
                    None => self.dialect.bare_url_is_sse,
                };
                let headers = std::mem::take(&mut draft.remote.headers);
                Ok(Some(Launch::Url { url, headers, sse, oauth: std::mem::take(&mut draft.remote.oauth) }))
            }
            (None, None) => Ok(None),
        }
    }

    /// Sorts the keys of an entry, or of a part of it, into the draft.
    fn collect(&mut self, server: &str, entry: &Value, within: &str, draft: &mut Draft) {
        for (key, value) in entry.entries() {
            let member = Member { server, key, place: format!("{within}{key}"), value };
            if *value == Value::Null || self.timeout(server, &member.place, value, &mut draft.timeouts) {
                continue;
            }
            let field = if member.place == "command.path" { Some(Field::Command) } else { field(key) };
            let empty = value.items().is_empty() && value.entries().is_empty();
            if !empty || value.text().is_some() {
                match field.and_then(Field::side) {
                    Some(Side::Local) => draft.program.places.push(member.place.clone()),
                    Some(Side::Remote) => draft.remote.places.push(member.place.clone()),
                    None => {}
                }
            }
            let taken = match field {
                Some(field) => {
                    self.of_program(field, &member, draft)
                        || self.of_url(field, &member, draft)
                        || self.of_either(field, &member, draft)
                }
                None => match (member.place.as_str(), value) {
                    ("description", Value::String(text)) => {
                        text.trim().clone_into(&mut draft.description);
                        true
                    }
                    ("name", _) => self.dialect.style == EntryStyle::Goose,
                    _ => false,
                },
            };
            let nothing = empty && matches!(value, Value::List(_) | Value::Object(_));
            if !taken && !nothing {
                self.note(server, &member.place, "has no equivalent here");
            }
        }
    }

    /// Takes a key that describes a program.
    fn of_program(&mut self, field: Field, member: &Member<'_>, draft: &mut Draft) -> bool {
        let Member { server, key, place, value } = member;
        match (field, *value) {
            (Field::Command, Value::Object(_)) if *key == "command" => {
                self.collect(server, value, "command.", draft);
            }
            (Field::Command, Value::List(words)) if *key == "command" => {
                let mut words = self.texts(member, words).into_iter();
                draft.program.name = words.next();
                draft.program.words = words.collect();
            }
            (Field::Command, _) => draft.program.name = self.text(server, place, value, true),
            (Field::Args, Value::List(items)) => draft.program.args = self.texts(member, items),
            (Field::Env, Value::Object(_)) => {
                draft.program.env.extend(self.pairs(server, place, value, true));
            }
            (Field::EnvNames, Value::List(names)) => {
                for variable in names.iter().filter_map(Value::text) {
                    let template = self.named_variable(member, variable);
                    draft.program.env.extend(template.map(|template| (variable.to_owned(), template)));
                }
            }
            (Field::Inherited, Value::List(names)) => {
                draft.program.inherit_env.extend(self.inherited(member, names));
            }
            (Field::Cwd, _) => {
                draft.program.cwd = self.text(server, place, value, true).map(|cwd| self.within(cwd));
            }
            (Field::EnvFile, _) => {
                self.note(server, place, "is not read here; set its variables, or write them into `env`");
            }
            _ => return false,
        }
        true
    }

    /// Takes a key that describes a remote server.
    fn of_url(&mut self, field: Field, member: &Member<'_>, draft: &mut Draft) -> bool {
        let Member { server, place, value, .. } = member;
        match (field, *value) {
            (Field::Url, _) => {
                let url = self.text(server, place, value, false).map(|url| (place.clone(), url));
                let (taken, other) = match draft.remote.url.take() {
                    Some(first) if member.key == "url" => (Some(first), url),
                    first => (url, first),
                };
                if let (Some((_, taken)), Some((place, other))) = (&taken, &other)
                    && taken != other
                {
                    self.note(server, place, "is ignored by the client, which uses the other URL");
                }
                draft.remote.url = taken.or(other);
            }
            (Field::Headers, Value::Object(_)) => {
                draft.remote.headers.extend(self.pairs(server, place, value, false));
            }
            (Field::HeaderVariables, Value::Object(headers)) => {
                for (header, variable) in headers {
                    let template = self.named_variable(member, variable.text().unwrap_or_default());
                    draft.remote.headers.extend(template.map(|template| (header.clone(), template)));
                }
            }
            (Field::BearerVariable, Value::String(variable)) => {
                if let Some(token) = self.named_variable(member, variable) {
                    let mut bearer = Template::literal("Bearer ");
                    bearer.extend(&token);
                    draft.remote.headers.push(("Authorization".to_owned(), bearer));
                }
            }
            (Field::Login, Value::Object(entries)) => {
                let login = self.login(server, place, entries);
                draft.remote.oauth.extend(login);
            }
            _ => return false,
        }
        true
    }

    /// Takes a key that any server may have.
    fn of_either(&mut self, field: Field, member: &Member<'_>, draft: &mut Draft) -> bool {
        let Member { server, key, place, value } = member;
        match (field, *value) {
            (Field::Transport, Value::Object(_)) if *key == "transport" => {
                self.collect(server, value, "transport.", draft);
            }
            (Field::Transport, Value::String(word)) => match declared(word) {
                Some(declared) => draft.transport = Some((place.clone(), declared)),
                None => self.note(server, place, &format!("is `{word}`, which is not known here")),
            },
            (Field::Disabled, Value::Boolean(off)) => draft.disabled |= *off,
            (Field::Enabled, Value::Boolean(on)) => draft.disabled |= !*on,
            (Field::Tools, Value::List(tools)) => {
                // To Goose an empty list means all tools; to us `*` does.
                let all = *key == "available_tools" && tools.is_empty()
                    || *key == "toolFilters" && tools.contains(&Value::String("*".into()));
                if !all {
                    draft.tools.only = Some(names(tools));
                    draft.tools.only_key = place.clone();
                }
            }
            (Field::ExcludedTools, Value::List(tools)) if !tools.is_empty() => {
                draft.tools.excluded.extend(names(tools));
                draft.tools.excluded_key = place.clone();
            }
            (Field::Approval, _) => {
                if !value.items().is_empty() || **value == Value::Boolean(true) {
                    self.note(
                        server,
                        place,
                        "approves tools in the client; the gateway leaves that to the client",
                    );
                }
            }
            _ => return false,
        }
        true
    }

    /// A directory as seen from elsewhere. A relative directory in a project's file is below the project.
    fn within(&self, directory: Template) -> Template {
        let relative =
            |text: &str| !text.is_empty() && !text.starts_with(['~', '/', '\\']) && !text.contains(':');
        match (self.meaning.workspace, directory.pieces()) {
            (Some(project), [Piece::Text(start), rest @ ..]) if relative(start) => {
                let mut joined = Template::literal(project.join(start).to_string_lossy());
                rest.iter().for_each(|piece| joined.push(piece.clone()));
                joined
            }
            _ => directory,
        }
    }

    /// The client's settings for logins under our keys. We find out the rest ourselves.
    fn login(&mut self, name: &str, place: &str, entries: &[(String, Value)]) -> Vec<(String, Template)> {
        let mut login = Vec::new();
        for (key, value) in entries {
            let place = format!("{place}.{key}");
            let ours = match LOGIN_KEYS.iter().find(|ours| *ours == key || snake(ours) == *key) {
                Some(&"scopes") => "scope",
                Some(ours) => ours,
                None => {
                    self.note(name, &place, "has no equivalent here");
                    continue;
                }
            };
            let value = match value {
                Value::List(scopes) if ours == "scope" => Value::String(names(scopes).join(" ")),
                value => value.clone(),
            };
            let template = self.text(name, &place, &value, false);
            login.extend(template.map(|template| (ours.to_owned(), template)));
        }
        login
    }

    fn inherited(&mut self, member: &Member<'_>, names: &[Value]) -> Vec<String> {
        let mut inherited = Vec::new();
        for item in names {
            let variable = item.text().or_else(|| item.get("name").and_then(Value::text));
            match (variable, item.get("source").and_then(Value::text)) {
                (Some(variable), None | Some("local")) if is_variable_name(variable) => {
                    inherited.push(variable.to_owned());
                }
                (Some(_), Some(source)) if source != "local" => {
                    self.note(
                        member.server,
                        &member.place,
                        "takes a variable from a source that the gateway cannot read",
                    );
                }
                _ => {
                    self.note(member.server, &member.place, "has an entry that is not the name of a variable")
                }
            }
        }
        inherited
    }

    /// Takes a key that is one of this client's timeouts.
    fn timeout(&mut self, name: &str, place: &str, value: &Value, timeouts: &mut ImportedTimeouts) -> bool {
        if let Value::Object(parts) = value
            && self.dialect.timeouts.iter().any(|(key, ..)| key.starts_with(&format!("{place}.")))
        {
            for (key, value) in parts {
                if !self.timeout(name, &format!("{place}.{key}"), value, timeouts) {
                    self.note(name, &format!("{place}.{key}"), "has no equivalent here");
                }
            }
            return true;
        }
        let Some((_, deadline, unit)) = self.dialect.timeouts.iter().find(|(key, ..)| *key == place) else {
            return false;
        };
        let slot = match deadline {
            Deadline::Connect => &mut timeouts.connect,
            Deadline::Call => &mut timeouts.call,
        };
        let seconds = match value {
            Value::Number(number) => in_seconds(number, *unit),
            _ => None,
        };
        match (seconds, &slot) {
            (Some(seconds), None) => *slot = Some(seconds),
            (Some(seconds), Some(first)) if seconds == *first => {}
            (Some(_), Some(_)) => self.note(name, place, "differs from the other timeout, which was used"),
            (None, _) if *value == Value::Null => {}
            (None, _) => self.note(name, place, "is not a time greater than 0"),
        }
        true
    }

    /// A variable that is given by its name only.
    fn named_variable(&mut self, member: &Member<'_>, variable: &str) -> Option<Template> {
        let named = is_name(variable).then(|| Template::variable(variable));
        if named.is_none() {
            self.note(member.server, &member.place, "names a variable that `${…}` cannot name");
        }
        named
    }

    fn pairs(&mut self, name: &str, place: &str, value: &Value, local: bool) -> Vec<(String, Template)> {
        let pair = |(key, value): &(String, Value)| match value {
            Value::Null => None,
            value => Some((key.clone(), self.text(name, &format!("{place}.{key}"), value, local)?)),
        };
        value.entries().iter().filter_map(pair).collect()
    }

    fn texts(&mut self, member: &Member<'_>, items: &[Value]) -> Vec<Template> {
        items.iter().filter_map(|item| self.text(member.server, &member.place, item, true)).collect()
    }

    /// A text with the client's variables. `local` means that it is not part of a URL or a header.
    fn text(&mut self, name: &str, place: &str, value: &Value, local: bool) -> Option<Template> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(spelled) => spelled.clone(),
            Value::Boolean(value) => value.to_string(),
            _ => {
                self.note(name, place, "is not text");
                return None;
            }
        };
        let syntax =
            if local && self.dialect.only_remote { VariableSyntax::None } else { self.dialect.variables };
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
}

/// The transport for a client's word.
fn declared(word: &str) -> Option<Declared> {
    let mut words = TRANSPORTS.iter().chain(&HTTP_ELSEWHERE).chain(&[("local", TransportName::Stdio)]);
    match words.find(|(known, _)| *known == word) {
        Some((_, name)) => Some(Declared::As(*name)),
        None => BUILT_IN.contains(&word).then(|| Declared::BuiltIn(word.to_owned())),
    }
}

/// The strings in a list.
fn names(items: &[Value]) -> Vec<String> {
    items.iter().filter_map(Value::text).map(str::to_owned).collect()
}

/// A time greater than 0, in seconds.
pub(super) fn in_seconds(number: &str, unit: TimeUnit) -> Option<String> {
    let number: f64 = number.replace('_', "").parse().ok()?;
    let seconds = match unit {
        TimeUnit::Seconds => number,
        TimeUnit::Milliseconds => number / 1000.0,
    };
    (seconds.is_finite() && seconds > 0.0).then(|| seconds.to_string())
}
