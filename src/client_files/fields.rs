//! The keys of one entry, whoever wrote it.

use super::read::{ImportedServer, Launch, Origin, Reader};
use super::template::{Piece, Template, is_name};
use super::variables::translate;
use crate::edit::Value;
use crate::known_clients::{Deadline, EntryStyle, TimeUnit, VariableSyntax};

/// Keys that only tell a client how to treat a server; there is nothing to translate.
const APPROVAL: [&str; 5] = ["autoApprove", "alwaysAllow", "trust", "alwaysAllowedTools", "autoapprove"];

/// Keys that mean something to a program that is started, and nothing to a URL.
const LOCAL: [&str; 9] =
    ["args", "env", "envs", "environment", "env_keys", "env_vars", "inheritEnv", "inherit_env", "cwd"];

/// Keys that mean something to a URL, and nothing to a program that is started.
const REMOTE: [&str; 5] = ["headers", "http_headers", "env_http_headers", "oauth", "bearer_token_env_var"];

impl Reader<'_> {
    /// One server, or the key and the reason why it cannot be one of ours.
    pub(super) fn translated(
        &mut self,
        name: &str,
        entry: &Value,
        path: Vec<String>,
    ) -> Result<ImportedServer, (&'static str, String)> {
        let whole = |message: &str| Err(("", message.to_owned()));
        let Value::Object(_) = entry else { return whole("is no object") };
        let mut draft = Draft::default();
        self.collect(name, entry, &mut draft, "");
        let (place, kind) = draft.kind.take().unwrap_or_default();
        let kind = kind.as_str();
        if let "builtin" | "platform" | "frontend" | "inline_python" = kind {
            return Err(("type", format!("is `{kind}`, a part of {}", self.title)));
        }
        self.exclude(name, &mut draft);
        self.drop_useless(name, &mut draft);
        self.drop_unsound(name, &mut draft);
        let nul = |template: &Template| template.text().is_some_and(|text| text.contains('\0'));
        let launch = match (draft.program, draft.url) {
            (Some(_), Some(_)) => return whole("has both a command and a URL"),
            (Some(program), None) if program.text().is_some_and(|text| text.trim().is_empty()) => {
                return Err(("command", "is blank".to_owned()));
            }
            (Some(program), None) if nul(&program) || draft.args.iter().any(nul) => {
                return Err(("args", "hold a NUL character".to_owned()));
            }
            (Some(program), None) => {
                if matches!(kind, "http" | "sse") {
                    self.note(name, &place, "is that of a URL, but there is a command, which was taken");
                }
                draft.words.extend(draft.args);
                Launch::Command { program, args: draft.words }
            }
            (None, Some((_, url))) => {
                if url.text().is_some_and(|text| !sound_url(text)) {
                    return Err(("url", "is no http or https URL".to_owned()));
                }
                if kind == "stdio" {
                    self.note(name, &place, "is that of a command, but there is a URL, which was taken");
                }
                let sse = kind == "sse" || kind.is_empty() && self.dialect.bare_url_is_sse;
                Launch::Url { url, headers: draft.headers, sse, oauth: draft.oauth }
            }
            (None, None) if entry.get("settings").is_some() => {
                return Err(("settings", "belongs to an extension, which starts it by itself".to_owned()));
            }
            (None, None) => return whole("has neither a command nor a URL"),
        };
        let ours = self.dialect.variables == VariableSyntax::Config;
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
            tools_key: draft.tools_key,
            disabled: draft.disabled,
            origin: Origin { client: self.title, file: self.file.to_owned(), path },
        })
    }

    /// Takes the tools that are left out from those that pass.
    fn exclude(&mut self, name: &str, draft: &mut Draft) {
        let excluded = std::mem::take(&mut draft.excluded);
        match &mut draft.tools {
            _ if excluded.is_empty() => {}
            Some(tools) => {
                tools.retain(|tool| !excluded.contains(tool));
                draft.tools_key.push_str(&format!(" minus {}", draft.excluded_key));
            }
            None => {
                let message = "names tools to leave out; here `toolFilters` names those that pass";
                self.note(name, &draft.excluded_key, message);
            }
        }
    }

    /// Takes out what is not used, since a server is either started or called.
    fn drop_useless(&mut self, name: &str, draft: &mut Draft) {
        let (places, beside) = match (&draft.program, &draft.url) {
            (Some(_), None) => (std::mem::take(&mut draft.remote), "a command"),
            (None, Some(_)) => {
                if self.dialect.style == EntryStyle::Goose && draft.put_env_into_headers() {
                    draft.local.retain(|place| place != "envs" && place != "env_keys");
                }
                draft.env.clear();
                draft.inherit_env.clear();
                draft.cwd = None;
                (std::mem::take(&mut draft.local), "a URL")
            }
            _ => return,
        };
        for place in places {
            self.note(name, &place, &format!("is not used here beside {beside}; left out"));
        }
    }

    /// Takes out what no process and no request can be given.
    fn drop_unsound(&mut self, name: &str, draft: &mut Draft) {
        let visible = |template: &Template| {
            template.text().is_none_or(|text| !text.chars().any(|c| c.is_control() && c != '\t'))
        };
        let header = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
        };
        let nul = |template: &Template| template.text().is_some_and(|text| text.contains('\0'));
        let mut unsound = Vec::new();
        draft.env.retain(|(key, value)| {
            let sound = sound_variable(key) && !nul(value);
            if !sound {
                unsound.push(format!("env.{key}"));
            }
            sound
        });
        draft.headers.retain(|(key, value)| {
            let sound = header(key) && visible(value);
            if !sound {
                unsound.push(format!("headers.{key}"));
            }
            sound
        });
        if draft.cwd.as_ref().is_some_and(|cwd| cwd.text() == Some("") || nul(cwd)) {
            draft.cwd = None;
            unsound.push("cwd".to_owned());
        }
        for key in unsound {
            self.note(name, &key, "cannot be used; left out");
        }
    }

    fn collect(&mut self, name: &str, entry: &Value, draft: &mut Draft, within: &str) {
        for (key, value) in entry.entries() {
            let place = format!("{within}{key}");
            if self.timeout(name, &place, value, draft) {
                continue;
            }
            let filled = !value.items().is_empty() || !value.entries().is_empty() || value.text().is_some();
            if filled && LOCAL.contains(&key.as_str()) {
                draft.local.push(place.clone());
            }
            if filled && REMOTE.contains(&key.as_str()) {
                draft.remote.push(place.clone());
            }
            match (key.as_str(), value) {
                (_, Value::Null) => {}
                ("command", Value::Object(_)) => self.collect(name, value, draft, "command."),
                ("path", _) if within == "command." => draft.program = self.text(name, &place, value, true),
                ("command", Value::List(words)) => {
                    let mut words = words.iter().filter_map(|word| self.text(name, &place, word, true));
                    draft.program = words.next();
                    draft.words = words.collect();
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
                ("cwd", _) => draft.cwd = self.text(name, &place, value, true).map(|cwd| self.within(cwd)),
                ("url" | "httpUrl" | "serverUrl" | "uri", _) => {
                    let url = self.text(name, &place, value, false).map(|url| (place, url));
                    let (taken, other) = match draft.url.take() {
                        Some(first) if key == "url" => (Some(first), url),
                        first => (url, first),
                    };
                    if let (Some((_, taken)), Some((place, other))) = (&taken, &other)
                        && taken != other
                    {
                        self.note(name, place, "is not used there beside the other URL");
                    }
                    draft.url = taken.or(other);
                }
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
                ("oauth", Value::Object(entries)) => self.login(name, &place, entries, draft),
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
                        draft.tools_key = place;
                    }
                }
                ("excludeTools" | "disabledTools" | "disabled_tools", Value::List(tools))
                    if !tools.is_empty() =>
                {
                    draft.excluded.extend(tools.iter().filter_map(Value::text).map(str::to_owned));
                    draft.excluded_key = place;
                }
                ("name" | "description", _) if self.dialect.style == EntryStyle::Goose => {}
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
        let kind = match kind {
            "http" | "streamable-http" | "streamableHttp" | "streamable_http" | "remote" => "http".to_owned(),
            "stdio" | "local" => "stdio".to_owned(),
            "sse" | "builtin" | "platform" | "frontend" | "inline_python" => kind.to_owned(),
            _ => return self.note(name, place, &format!("is `{kind}`, which is not known here")),
        };
        draft.kind = Some((place.to_owned(), kind));
    }

    /// A directory as seen from elsewhere: a relative one of a project's file is below the project.
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

    /// What a client knows of logins; we find out the rest by ourselves.
    fn login(&mut self, name: &str, place: &str, entries: &[(String, Value)], draft: &mut Draft) {
        for (key, value) in entries {
            let place = format!("{place}.{key}");
            let ours = match key.as_str() {
                "clientId" | "client_id" => "clientId",
                "clientSecret" | "client_secret" => "clientSecret",
                "clientMetadataUrl" | "client_metadata_url" => "clientMetadataUrl",
                "scope" | "scopes" => "scope",
                "callbackPort" | "callback_port" => "callbackPort",
                _ => {
                    self.note(name, &place, "has no counterpart here");
                    continue;
                }
            };
            let value = match value {
                Value::List(scopes) if ours == "scope" => {
                    let scopes: Vec<_> = scopes.iter().filter_map(Value::text).collect();
                    Value::String(scopes.join(" "))
                }
                value => value.clone(),
            };
            let template = self.text(name, &place, &value, false);
            draft.oauth.extend(template.map(|template| (ours.to_owned(), template)));
        }
    }

    fn inherited(&mut self, name: &str, place: &str, names: &[Value], draft: &mut Draft) {
        for item in names {
            let variable = item.text().or_else(|| item.get("name").and_then(Value::text));
            match (variable, item.get("source").and_then(Value::text)) {
                (Some(variable), None | Some("local")) if sound_variable(variable) => {
                    draft.inherit_env.push(variable.to_owned());
                }
                (Some(_), None | Some("local")) => {
                    self.note(name, place, "holds something that names no variable")
                }
                (Some(_), Some(_)) => self.note(name, place, "takes a variable from where we cannot"),
                (None, _) => self.note(name, place, "holds something that names no variable"),
            }
        }
    }

    /// Takes a key that is a timeout of this client.
    fn timeout(&mut self, name: &str, place: &str, value: &Value, draft: &mut Draft) -> bool {
        if let Value::Object(parts) = value
            && self.dialect.timeouts.iter().any(|(key, ..)| key.starts_with(&format!("{place}.")))
        {
            for (key, value) in parts {
                if !self.timeout(name, &format!("{place}.{key}"), value, draft) {
                    self.note(name, &format!("{place}.{key}"), "has no counterpart here");
                }
            }
            return true;
        }
        let Some((_, deadline, unit)) = self.dialect.timeouts.iter().find(|(key, ..)| *key == place) else {
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
            false => self.note(name, place, "names a variable that `${…}` cannot name"),
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

#[derive(Default)]
struct Draft {
    program: Option<Template>,
    /// Of a command that is a list, past the program.
    words: Vec<Template>,
    args: Vec<Template>,
    env: Vec<(String, Template)>,
    inherit_env: Vec<String>,
    cwd: Option<Template>,
    /// With its key.
    url: Option<(String, Template)>,
    headers: Vec<(String, Template)>,
    oauth: Vec<(String, Template)>,
    /// With its key.
    kind: Option<(String, String)>,
    connect_timeout: Option<String>,
    call_timeout: Option<String>,
    tools: Option<Vec<String>>,
    tools_key: String,
    /// Tools that do not pass, whatever else is said.
    excluded: Vec<String>,
    excluded_key: String,
    disabled: bool,
    /// Keys that only matter to a program.
    local: Vec<String>,
    /// Keys that only matter to a URL.
    remote: Vec<String>,
}

impl Draft {
    /// Puts the values of its own variables where headers use them; answers whether they use all.
    fn put_env_into_headers(&mut self) -> bool {
        let own = |name: &str| self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let mut used = Vec::new();
        for (_, header) in &mut self.headers {
            let mut filled = Template::default();
            for piece in header.pieces() {
                let value = match piece {
                    Piece::Variable { name, .. } => own(name).inspect(|_| used.push(name.clone())),
                    Piece::Text(_) => None,
                };
                match value {
                    Some(value) => filled.extend(value),
                    None => filled.push(piece.clone()),
                }
            }
            *header = filled;
        }
        self.env.iter().all(|(key, _)| used.contains(key))
    }
}

fn sound_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn sound_url(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let rest = lower.strip_prefix("http://").or_else(|| lower.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()?.rsplit('@').next());
    host.is_some_and(|host| !host.is_empty() && !host.starts_with(':'))
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
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
