//! Which texts of a file are secrets, and the variables that take their place.

use super::read::{ImportedServer, Launch};
use super::template::{Piece, Template, is_name};
use super::variables::variable_name;
use crate::config::Environment;
use std::collections::HashMap;

/// A secret that stood in clear text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// The variable that stands there now.
    pub variable: String,
    /// Whose it is.
    pub server: String,
    /// Where it stood, such as `env.API_KEY`.
    pub key: String,
}

/// Gives each secret a variable of its own.
pub struct Vault<'a> {
    /// All secrets are one and the same.
    blind: bool,
    environment: &'a Environment<'a>,
    /// Names that are in use, with what they stand for where we know it.
    names: HashMap<String, Option<String>>,
    /// All replacements so far.
    pub replaced: Vec<Replaced>,
    /// All values so far, with their names.
    pub values: Vec<(String, String)>,
}

impl<'a> Vault<'a> {
    /// An empty one; `used` are the variables that the configuration names already.
    pub fn new(environment: &'a Environment<'a>, used: impl IntoIterator<Item = String>) -> Self {
        let names =
            used.into_iter().map(|name| (environment(&name), name)).map(|(value, name)| (name, value));
        Self { blind: false, environment, names: names.collect(), replaced: Vec::new(), values: Vec::new() }
    }

    /// One that puts [`Template::secret`] in place of every secret.
    pub(super) fn blind(environment: &'a Environment<'a>) -> Self {
        Self { blind: true, ..Self::new(environment, []) }
    }

    /// Replaces the secrets of a server by variables.
    pub fn take(&mut self, server: &mut ImportedServer) {
        let name = server.name.clone();
        for (key, template) in &mut server.env {
            if let Some(text) = template.text()
                && is_secret_value(key, text)
            {
                let variable = if is_name(key) { key.clone() } else { variable_name(key) };
                *template = self.put(&variable, text, &name, format!("env.{key}"));
            }
        }
        match &mut server.launch {
            Launch::Command { args, .. } => {
                let mut previous: Option<String> = None;
                for (index, template) in args.iter_mut().enumerate() {
                    let Some(text) = template.text().map(str::to_owned) else {
                        previous = None;
                        continue;
                    };
                    for (start, end, label) in
                        secrets_of_argument(previous.as_deref(), &text).into_iter().rev()
                    {
                        self.replace(template, start..end, &name, &label, format!("args[{index}]"));
                    }
                    previous = Some(text);
                }
            }
            Launch::Url { url, headers, .. } => {
                let text = url.text().unwrap_or_default().to_owned();
                for (start, end, label) in secrets_of_url(&text).into_iter().rev() {
                    self.replace(url, start..end, &name, &label, "url".to_owned());
                }
                for (header, template) in headers {
                    let text = template.text().unwrap_or_default().to_owned();
                    if let Some(start) = secret_of_header(header, &text) {
                        self.replace(template, start..text.len(), &name, header, format!("headers.{header}"));
                    }
                }
            }
        }
    }

    /// Puts a variable `SERVER_LABEL` in place of a part of a template whose text before that part is untouched.
    fn replace(
        &mut self,
        template: &mut Template,
        part: std::ops::Range<usize>,
        server: &str,
        label: &str,
        key: String,
    ) {
        let Some(Piece::Text(text)) = template.pieces().first().cloned() else { return };
        let variable = variable_name(&format!("{server}_{label}"));
        let secret = self.put(&variable, &text[part.clone()], server, key);
        let mut new = Template::literal(&text[..part.start]);
        for piece in secret
            .pieces()
            .iter()
            .chain([&Piece::Text(text[part.end..].to_owned())])
            .chain(&template.pieces()[1..])
        {
            match piece {
                Piece::Text(text) => new.push_text(text),
                Piece::Variable { name, default } => new.push_variable(name, default.as_deref()),
            }
        }
        *template = new;
    }

    fn put(&mut self, base: &str, value: &str, server: &str, key: String) -> Template {
        if self.blind {
            return Template::secret();
        }
        let numbered = |n: usize| if n == 1 { base.to_owned() } else { format!("{base}_{n}") };
        let fits = |name: &String| match self.names.get(name) {
            Some(known) => known.as_deref() == Some(value),
            None => (self.environment)(name).is_none_or(|set| set == value),
        };
        let variable = (1..).map(numbered).find(fits).unwrap_or_else(|| base.to_owned());
        self.names.insert(variable.clone(), Some(value.to_owned()));
        self.values.push((value.to_owned(), variable.clone()));
        let replaced = Replaced { variable: variable.clone(), server: server.to_owned(), key };
        if !self.replaced.contains(&replaced) {
            self.replaced.push(replaced);
        }
        Template::variable(variable)
    }
}

/// What may be shown of a value of any file: values of `env` and `headers` never, nor passwords in URLs, nor
/// what [`Vault::take`] would replace. `None` is all of it.
pub fn shown(keys: &[&str], previous: Option<&str>, text: &str) -> Option<String> {
    const PRIVATE: [&str; 7] = ["env", "envs", "environment", "headers", "http_headers", "auth", "oauth"];
    let own = keys.last().copied().unwrap_or_default();
    let template = Template::ours(text);
    let bare =
        |text: &str| text.trim().is_empty() || SCHEMES.contains(&text.trim().to_ascii_lowercase().as_str());
    let only_names = template.pieces().iter().all(|piece| match piece {
        Piece::Text(text) => bare(text),
        Piece::Variable { default, .. } => default.is_none(),
    });
    let private = keys[..keys.len().saturating_sub(1)].iter().any(|key| PRIVATE.contains(key));
    if only_names && template.variables().next().is_some() {
        return None;
    }
    if private || is_secret_word(own, text) && template.variables().next().is_none() {
        return Some("…".to_owned());
    }
    // A whole command line, as `tools.toml` has it.
    if own == "command" && text.contains(' ') {
        let mut previous: Option<&str> = None;
        let words: Vec<_> = text
            .split(' ')
            .map(|word| {
                let bare = word.trim_matches(['\'', '"']);
                let shown = parts_hidden(word, secrets_of_argument(previous, word));
                previous = Some(bare);
                shown.unwrap_or_else(|| word.to_owned())
            })
            .collect();
        let shown = words.join(" ");
        return (shown != text).then_some(shown);
    }
    let parts = if text.contains("://") { secrets_of_url(text) } else { Vec::new() };
    parts_hidden(text, if parts.is_empty() { secrets_of_argument(previous, text) } else { parts })
}

fn parts_hidden(text: &str, parts: Vec<(usize, usize, String)>) -> Option<String> {
    let (mut shown, mut at) = (String::new(), 0);
    // A variable is no secret.
    let only_a_name =
        |part: &str| matches!(Template::ours(part).pieces(), [Piece::Variable { default: None, .. }]);
    let parts: Vec<_> =
        parts.into_iter().filter(|(start, end, _)| !only_a_name(&text[*start..*end])).collect();
    for (start, end, _) in &parts {
        shown.push_str(&text[at..*start]);
        shown.push('…');
        at = *end;
    }
    shown.push_str(&text[at..]);
    (!parts.is_empty()).then_some(shown)
}

/// Words of a name that say: this is a secret.
const SECRET_WORDS: [&str; 15] = [
    "KEY",
    "APIKEY",
    "TOKEN",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASS",
    "PWD",
    "PAT",
    "CREDENTIAL",
    "CREDENTIALS",
    "AUTH",
    "AUTHORIZATION",
    "COOKIE",
];

/// Words that make another meaning of it.
const HARMLESS_WORDS: [&str; 13] =
    ["VAR", "PATH", "FILE", "DIR", "NAME", "ID", "URL", "TYPE", "MODE", "LIMIT", "TIMEOUT", "ENABLED", "MAX"];

/// Authentication schemes of headers.
const SCHEMES: [&str; 4] = ["bearer", "basic", "token", "apikey"];

/// How well-known tokens begin.
const PREFIXES: [&str; 24] = [
    "sk-",
    "sk_",
    "pk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "hf_",
    "npm_",
    "lin_api_",
    "ntn_",
    "secret_",
];

/// Whether a value under this name is a secret.
fn is_secret_value(name: &str, value: &str) -> bool {
    is_secret_word(name, value) || !value.is_empty() && !secrets_of_url(value).is_empty()
}

/// Whether a value is a secret as a whole, by its name or its look.
fn is_secret_word(name: &str, value: &str) -> bool {
    if value.is_empty() || ["true", "false", "0", "1"].contains(&value.to_ascii_lowercase().as_str()) {
        return false;
    }
    let words = variable_name(name);
    let words: Vec<&str> = words.split('_').collect();
    let named = words.iter().any(|word| SECRET_WORDS.contains(word))
        && !words.last().is_some_and(|last| HARMLESS_WORDS.contains(last));
    named || looks_secret(value)
}

/// Whether a text looks like a token whatever it is called.
fn looks_secret(text: &str) -> bool {
    let known = PREFIXES.iter().any(|prefix| text.starts_with(prefix) && text.len() >= prefix.len() + 8);
    let word = |c: char| c.is_ascii_alphanumeric() || "_-+=".contains(c);
    let random = text.len() >= 32
        && text.chars().all(word)
        && text.chars().filter(char::is_ascii_digit).count() >= 4
        && text.chars().filter(char::is_ascii_alphabetic).count() >= 4
        && !is_uuid(text);
    known && !text.contains([' ', '/']) || random
}

/// Ids are long and random, and no secret.
fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

/// Parts of an argument that are secret, with what they are called.
fn secrets_of_argument(previous: Option<&str>, text: &str) -> Vec<(usize, usize, String)> {
    if let Some(option) = previous.filter(|option| option.starts_with('-') && !option.contains('='))
        && !text.starts_with('-')
        && is_secret_name(option)
        && !text.is_empty()
    {
        return vec![(0, text.len(), label(option))];
    }
    if let Some((name, value)) = text.split_once('=')
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
        && !value.is_empty()
        && is_secret_word(name, value)
    {
        return vec![(text.len() - value.len(), text.len(), label(name))];
    }
    // `--header "Authorization: Bearer …"`
    if let Some((name, value)) = text.split_once(':')
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !value.starts_with("//")
        && let Some(start) = secret_of_header(name, value)
        && !value[start..].trim().is_empty()
    {
        let start = text.len() - value[start..].trim_start().len();
        return vec![(start, text.len(), label(name))];
    }
    if looks_secret(text) {
        return vec![(0, text.len(), "SECRET".to_owned())];
    }
    secrets_of_url(text)
}

fn is_secret_name(name: &str) -> bool {
    is_secret_value(name, "x")
}

fn label(name: &str) -> String {
    variable_name(name)
}

/// Where the secret of a header begins, past its scheme.
fn secret_of_header(name: &str, value: &str) -> Option<usize> {
    let start = match value.trim_start().split_once(' ') {
        Some((scheme, _)) if SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) => {
            value.len() - value.trim_start().len() + scheme.len() + 1
        }
        _ => 0,
    };
    let secret = &value[start..];
    (!secret.trim().is_empty() && (start > 0 || is_secret_value(name, secret.trim()))).then_some(start)
}

/// The password of a URL, and those values of its query that are secrets.
fn secrets_of_url(text: &str) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let Some(start) = text.find("://").map(|scheme| scheme + 3) else { return found };
    let authority = text[start..].find(['/', '?', '#']).map_or(text.len(), |end| start + end);
    if let Some(end) = text[start..authority].rfind('@').map(|at| start + at) {
        match text[start..end].find(':').map(|colon| start + colon + 1) {
            Some(password) if password < end => found.push((password, end, "PASSWORD".to_owned())),
            None if looks_secret(&text[start..end]) => found.push((start, end, "TOKEN".to_owned())),
            _ => {}
        }
    }
    if let Some(mut at) = text[authority..].find('?').map(|mark| authority + mark + 1) {
        let end = text[at..].find('#').map_or(text.len(), |end| at + end);
        for pair in text[at..end].split('&') {
            if let Some((name, value)) = pair.split_once('=')
                && is_secret_value(name, value)
            {
                found.push((at + name.len() + 1, at + pair.len(), label(name)));
            }
            at += pair.len() + 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_secret() {
        for (name, value) in [
            ("GITHUB_TOKEN", "abc"),
            ("apiKey", "abc"),
            ("DB_PASSWORD", "x"),
            ("ANY", "ghp_0123456789abcdef"),
            ("ANY", "0123456789abcdef0123456789abcdef"),
            ("DATABASE_URL", "postgres://u:pw@host/db"),
        ] {
            assert!(is_secret_value(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("LOG_LEVEL", "info"),
            ("KEY_FILE", "/etc/key.pem"),
            ("TOKEN_LIMIT", "5000"),
            ("AUTH", "true"),
            ("GITHUB_TOKEN", ""),
            ("PROJECT_ID", "123e4567-e89b-12d3-a456-426614174000"),
            ("URL", "https://host/path?page=2"),
            ("KEYBOARD", "us"),
            ("PACKAGE", "@modelcontextprotocol/server-filesystem"),
        ] {
            assert!(!is_secret_value(name, value), "{name}={value}");
        }
    }

    #[test]
    fn what_is_shown() {
        for (keys, previous, text, expected) in [
            (&["mcpServers", "a", "env", "X"][..], None, "plain", "…"),
            (&["mcpServers", "a", "env", "X"], None, "${X}", "${X}"),
            (&["mcpServers", "a", "headers", "Authorization"], None, "Bearer ${X}", "Bearer ${X}"),
            (&["mcpServers", "a", "headers", "Authorization"], None, "Bearer x", "…"),
            (&["mcpServers", "a", "env", "X"], None, "${X:-secret}", "…"),
            (&["a", "args"], Some("--api-key"), "x", "…"),
            (&["a", "args"], Some("--verbose"), "x", "x"),
            (&["a", "args"], None, "--token=x", "--token=…"),
            (&["a", "args"], Some("--header"), "Authorization: Bearer x", "Authorization: Bearer …"),
            (&["a", "args"], None, "postgres://u:p@h/d", "postgres://u:…@h/d"),
            (&["a", "url"], None, "https://u:p@h/?token=t&page=2", "https://u:…@h/?token=…&page=2"),
            (&["a", "apiKey"], None, "x", "…"),
            (&["a", "args"], None, "postgres://u:${P}@h/d", "postgres://u:${P}@h/d"),
            (&["a", "args"], None, "--token=${T}", "--token=${T}"),
            (&["a", "args"], None, "--token=${T:-x}", "--token=…"),
            (&["servers", "command"], None, "npx x --key abc -v", "npx x --key … -v"),
            (&["a", "command"], None, "npx", "npx"),
        ] {
            assert_eq!(shown(keys, previous, text).as_deref().unwrap_or(text), expected, "{keys:?} {text}");
        }
    }
}
