//! Variables in place of secrets, and what may be shown of a file.

use super::read::{ImportedServer, Launch};
use super::template::{Piece, Template, is_name};
use crate::config::Environment;
use crate::config::command_line::words;
use crate::config::detect::{
    SCHEMES, SecretPart, is_secret_value, is_secret_word, secret_of_header, secrets_of_argument,
    secrets_of_url, variable_name,
};
use std::collections::HashMap;
use std::ops::Range;

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
    /// What the file of secrets has already: a name there keeps its value.
    filed: HashMap<String, String>,
    /// All replacements so far.
    pub replaced: Vec<Replaced>,
    /// All values so far, with their names.
    pub values: Vec<(String, String)>,
}

impl<'a> Vault<'a> {
    /// An empty one; `used` are the variables that the configuration names already, `filed` is what the file of secrets
    /// has.
    pub fn new(
        environment: &'a Environment<'a>,
        used: impl IntoIterator<Item = String>,
        filed: HashMap<String, String>,
    ) -> Self {
        let names =
            used.into_iter().map(|name| (environment(&name), name)).map(|(value, name)| (name, value));
        let (replaced, values) = (Vec::new(), Vec::new());
        Self { blind: false, environment, names: names.collect(), filed, replaced, values }
    }

    /// One that puts [`Template::secret`] in place of every secret.
    pub(super) fn blind(environment: &'a Environment<'a>) -> Self {
        Self { blind: true, ..Self::new(environment, [], HashMap::new()) }
    }

    /// Replaces the secrets of a server by variables.
    pub fn take(&mut self, server: &mut ImportedServer) {
        let name = server.name.clone();
        let own = |label: &str| variable_name(&format!("{name}_{label}"));
        for (key, template) in &mut server.env {
            let text = template.without_variables();
            if is_secret_value(key, &text) {
                let variable = if is_name(key) { key.clone() } else { variable_name(key) };
                self.replace(template, 0..text.len(), &variable, &name, format!("env.{key}"));
            }
        }
        match &mut server.launch {
            Launch::Command { args, .. } => {
                let mut previous: Option<String> = None;
                for (index, template) in args.iter_mut().enumerate() {
                    let text = template.without_variables();
                    for (start, end, label) in
                        secrets_of_argument(previous.as_deref(), &text).into_iter().rev()
                    {
                        self.replace(template, start..end, &own(&label), &name, format!("args[{index}]"));
                    }
                    previous = Some(text);
                }
            }
            Launch::Url { url, headers, oauth, .. } => {
                for (start, end, label) in secrets_of_url(&url.without_variables()).into_iter().rev() {
                    self.replace(url, start..end, &own(&label), &name, "url".to_owned());
                }
                for (header, template) in headers {
                    let text = template.without_variables();
                    if let Some(start) = secret_of_header(header, &text) {
                        let part = start..text.len();
                        self.replace(template, part, &own(header), &name, format!("headers.{header}"));
                    }
                }
                for (key, template) in oauth.iter_mut().filter(|(key, _)| key == "clientSecret") {
                    let part = 0..template.without_variables().len();
                    self.replace(template, part, &own("CLIENT_SECRET"), &name, format!("oauth.{key}"));
                }
            }
        }
    }

    /// Puts a variable in place of a part of [`Template::without_variables`]; a default in it goes, since its variable
    /// can be set. What is put together with a variable that has no default is left as it is.
    fn replace(
        &mut self,
        template: &mut Template,
        part: Range<usize>,
        variable: &str,
        server: &str,
        key: String,
    ) {
        let mut at = 0;
        let joined = template.pieces().iter().any(|piece| {
            let start = at;
            at += piece.clear_text().len();
            matches!(piece, Piece::Variable { default: None, .. }) && part.start <= start && at <= part.end
        });
        if joined {
            return;
        }
        let (mut new, mut at) = (Template::default(), 0);
        for piece in template.pieces() {
            let text = piece.clear_text();
            let (start, end) = (part.start.max(at), part.end.min(at + text.len()));
            match piece {
                _ if start >= end => new.push(piece.clone()),
                Piece::Text(_) => {
                    new.push_text(&text[..start - at]);
                    new.extend(&self.put(variable, &text[start - at..end - at], server, key.clone()));
                    new.push_text(&text[end - at..]);
                }
                Piece::Variable { name, .. } => {
                    // A variable that is set stands for its value.
                    let value = (self.environment)(name).unwrap_or_else(|| text.to_owned());
                    new.extend(&self.put(name, &value, server, key.clone()));
                }
            }
            at += text.len();
        }
        *template = new;
    }

    fn put(&mut self, base: &str, value: &str, server: &str, key: String) -> Template {
        if self.blind {
            return Template::secret();
        }
        let numbered = |n: usize| if n == 1 { base.to_owned() } else { format!("{base}_{n}") };
        let fits = |name: &String| {
            let free = match self.names.get(name) {
                Some(known) => known.as_deref() == Some(value),
                None => (self.environment)(name).is_none_or(|set| set == value),
            };
            free && self.filed.get(name).is_none_or(|filed| filed == value)
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
    if own == "command" && text.contains(|c: char| c.is_whitespace() || "'\"\\".contains(c)) {
        return command_shown(text);
    }
    let parts = if text.contains("://") { secrets_of_url(text) } else { Vec::new() };
    parts_hidden(text, if parts.is_empty() { secrets_of_argument(previous, text) } else { parts })
}

/// What may be shown of a command line: all of it is hidden where it cannot be told where a secret stands.
fn command_shown(text: &str) -> Option<String> {
    let whole = || "…".to_owned();
    let Some(words) = words(text) else { return any_secret(text).then(whole) };
    let (mut hidden, mut found, mut at) = (Vec::new(), true, 0);
    let mut previous: Option<&str> = None;
    for word in &words {
        let parts = secrets_of_argument(previous, word);
        if parts.is_empty() && word.contains(char::is_whitespace) && any_secret(word) {
            return Some(whole());
        }
        // Between words stand blanks, quotes and what continues a line.
        let start = text[at..].find(word.as_str()).map(|gap| at + gap);
        let start =
            start.filter(|&start| text[at..start].chars().all(|c| c.is_whitespace() || "'\"\\".contains(c)));
        match start {
            Some(start) => {
                at = start + word.len();
                hidden.extend(parts.into_iter().map(|(from, to, label)| (start + from, start + to, label)));
            }
            None => {
                found = false;
                hidden.extend(parts);
            }
        }
        previous = Some(word);
    }
    match (found, hidden.is_empty()) {
        (_, true) => None,
        (true, false) => parts_hidden(text, hidden),
        (false, false) => Some(whole()),
    }
}

/// Whether there is a secret among the words of a text, such as a script for a shell.
fn any_secret(text: &str) -> bool {
    let words: Vec<_> = text.split_whitespace().map(|word| word.trim_matches(['\'', '"'])).collect();
    let previous = [None].into_iter().chain(words.iter().copied().map(Some));
    words.iter().zip(previous).any(|(word, previous)| !secrets_of_argument(previous, word).is_empty())
}

fn parts_hidden(text: &str, parts: Vec<SecretPart>) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
            (&["a", "args"], None, "--env=API_KEY=x", "--env=API_KEY=…"),
            (&["a", "args"], Some("-e"), "API_KEY=x", "API_KEY=…"),
            (&["a", "args"], None, "--db=postgres://u:p@h/d", "--db=postgres://u:…@h/d"),
            (&["a", "args"], Some("--header"), "Authorization: Bearer x", "Authorization: Bearer …"),
            (&["a", "args"], None, "postgres://u:p@h/d", "postgres://u:…@h/d"),
            (&["a", "url"], None, "https://u:p@h/?token=t&page=2", "https://u:…@h/?token=…&page=2"),
            (&["a", "apiKey"], None, "x", "…"),
            (&["a", "args"], None, "postgres://u:${P}@h/d", "postgres://u:${P}@h/d"),
            (&["a", "args"], None, "--token=${T}", "--token=${T}"),
            (&["a", "args"], None, "--token=${T:-x}", "--token=…"),
            (&["servers", "command"], None, "npx x --key abc -v", "npx x --key … -v"),
            (&["a", "command"], None, "npx", "npx"),
            (&["a", "command"], None, r"C:\Program Files\x --verbose", r"C:\Program Files\x --verbose"),
            (&["a", "command"], None, "x --name 'a b'", "x --name 'a b'"),
            (&["a", "command"], None, "API_KEY=abc x", "API_KEY=… x"),
            (&["a", "command"], None, "x --key ${K} 'a b'", "x --key ${K} 'a b'"),
            (
                &["a", "command"],
                None,
                "x --header 'Authorization: Bearer abc' y",
                "x --header 'Authorization: Bearer …' y",
            ),
            (&["a", "command"], None, "x --password \"abc def\" y", "x --password \"…\" y"),
            (&["a", "command"], None, "x \"--token=abc\"", "x \"--token=…\""),
            (&["a", "command"], None, "x\t--api-key\tabc", "x\t--api-key\t…"),
            (&["a", "command"], None, "x --api-key\\\n abc", "x --api-key\\\n …"),
            // Where it stands in the text cannot be told.
            (&["a", "command"], None, "x --header=\"X-Api-Key: abc\"", "…"),
            (&["a", "command"], None, r"x -H Authorization:Bearer\ abc", "…"),
            (&["a", "command"], None, "sh -c \"export TOKEN=abc; run\"", "…"),
            (&["a", "command"], None, "x --token 'abc", "…"),
        ] {
            assert_eq!(shown(keys, previous, text).as_deref().unwrap_or(text), expected, "{keys:?} {text}");
        }
    }
}
