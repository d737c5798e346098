//! Guesses which texts are secrets. The guess is on the safe side, because a variable in place of a harmless
//! text costs little.

/// The start and end of a secret in a text, and its name.
pub(crate) type SecretPart = (usize, usize, String);

/// Words in a name that suggest a secret.
const SECRET_WORDS: [&str; 16] = [
    "DSN",
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

/// Words that give such a name another meaning.
const HARMLESS_WORDS: [&str; 13] =
    ["VAR", "PATH", "FILE", "DIR", "NAME", "ID", "URL", "TYPE", "MODE", "LIMIT", "TIMEOUT", "ENABLED", "MAX"];

/// Authentication schemes of headers.
pub(crate) const SCHEMES: [&str; 4] = ["bearer", "basic", "token", "apikey"];

/// The prefixes of well-known tokens.
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
pub(crate) fn is_secret_value(name: &str, value: &str) -> bool {
    is_secret_word(name, value) || !value.is_empty() && !secrets_of_url(value).is_empty()
}

/// Whether a whole value is a secret, by its name or its appearance.
pub(crate) fn is_secret_word(name: &str, value: &str) -> bool {
    if value.is_empty()
        || is_path(value)
        || ["true", "false", "0", "1"].contains(&value.to_ascii_lowercase().as_str())
    {
        return false;
    }
    let words = variable_name(name);
    let words: Vec<&str> = words.split('_').collect();
    let named = name.contains(|c: char| c.is_ascii_alphanumeric())
        && words.iter().any(|word| SECRET_WORDS.contains(word))
        && !words.last().is_some_and(|last| HARMLESS_WORDS.contains(last));
    named || looks_secret(value)
}

/// Whether a text looks like a token, whatever its name.
fn looks_secret(text: &str) -> bool {
    let known = PREFIXES.iter().any(|prefix| text.starts_with(prefix) && text.len() >= prefix.len() + 8);
    let word = |c: char| c.is_ascii_alphanumeric() || "_-+=".contains(c);
    let random = text.len() >= 32
        && text.chars().all(word)
        && text.chars().filter(char::is_ascii_digit).count() >= 4
        && text.chars().filter(char::is_ascii_alphabetic).count() >= 4
        && !is_uuid(text);
    known && !text.contains([' ', '/']) || random || spells_out_secret(text)
}

/// Whether a text says of a part of it that it is secret.
fn spells_out_secret(text: &str) -> bool {
    // Most texts need no closer look.
    let is_marked = || text.contains('-') && text.as_bytes().windows(5).any(|part| part == b"-----");
    if !text.contains('=') && !is_marked() {
        return false;
    }
    let lower = text.to_ascii_lowercase();
    ["password=", "pwd=", "accountkey=", "-----begin"].iter().any(|part| lower.contains(part))
}

/// Whether a text is a path. The path of a secret is not a secret.
fn is_path(text: &str) -> bool {
    let start = ["/", "~/", "./", "../"].iter().any(|start| text.starts_with(start));
    let path = |c: char| c.is_alphanumeric() || "/._- ~@".contains(c);
    let drive = text.get(1..3) == Some(":\\");
    start && text.matches('/').count() > 1 && text.chars().all(path) || drive
}

/// Whether a text is a UUID, which is long and random but not a secret.
fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

/// The secret parts of an argument, with their names.
pub(crate) fn secrets_of_argument(previous: Option<&str>, text: &str) -> Vec<SecretPart> {
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
    {
        let start = text.len() - value.len();
        if is_secret_word(name, value) {
            return vec![(start, text.len(), label(name))];
        }
        // `--env=NAME=value`
        let inner = secrets_of_argument(None, value);
        return inner.into_iter().map(|(from, to, label)| (start + from, start + to, label)).collect();
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

/// The offset of a header's secret, after its scheme.
pub(crate) fn secret_of_header(name: &str, value: &str) -> Option<usize> {
    let start = match value.trim_start().split_once(' ') {
        Some((scheme, _)) if SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) => {
            value.len() - value.trim_start().len() + scheme.len() + 1
        }
        _ => 0,
    };
    let secret = &value[start..];
    (!secret.trim().is_empty() && (start > 0 || is_secret_value(name, secret.trim()))).then_some(start)
}

/// The password of a URL, and the values of its query that are secrets.
pub(crate) fn secrets_of_url(text: &str) -> Vec<SecretPart> {
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

/// Turns a text into the name of a variable.
pub(crate) fn variable_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    let mut before = '_';
    for character in text.chars() {
        // `apiKey` consists of two words.
        if character.is_ascii_uppercase() && before.is_ascii_lowercase() {
            name.push('_');
        }
        before = character;
        name.push(if character.is_ascii_alphanumeric() { character.to_ascii_uppercase() } else { '_' });
    }
    let name = name.trim_matches('_');
    match name.chars().next() {
        None => "SECRET".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("_{name}"),
        Some(_) => name.to_owned(),
    }
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
            ("CONNECTION", "Server=h;User=u;Password=pw"),
            ("SENTRY_DSN", "https://abc@sentry.example.com/1"),
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
            ("GOOGLE_APPLICATION_CREDENTIALS", "/home/u/key.json"),
            ("SSH_AUTH_SOCK", "/run/user/1000/ssh"),
            ("PACKAGE", "@modelcontextprotocol/server-filesystem"),
        ] {
            assert!(!is_secret_value(name, value), "{name}={value}");
        }
    }

    #[test]
    fn known_tokens_have_a_length() {
        for (text, expected) in [("ghp_01234567", true), ("ghp_0123456", false), ("sk-", false)] {
            assert_eq!(looks_secret(text), expected, "{text}");
        }
    }

    #[test]
    fn secrets_in_urls() {
        for (url, expected) in [
            ("postgres://u:p4ss@host/db", &["p4ss"][..]),
            ("postgres://u:p@ss:w@host/db", &["p@ss:w"]),
            ("https://u@host/a:b@c", &[]),
            ("https://h/?a=1&token=abc&page=2&key=def#token=x", &["abc", "def"]),
            ("https://h/", &[]),
        ] {
            let found: Vec<_> = secrets_of_url(url).iter().map(|(from, to, _)| &url[*from..*to]).collect();
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn secrets_in_headers() {
        for (name, value, expected) in [
            ("Authorization", "Bearer abc", Some("abc")),
            ("X-Other", "Basic abc", Some("abc")),
            ("X-API-Key", "abc", Some("abc")),
            ("Accept", "text/html", None),
            ("Authorization", "Bearer ", None),
        ] {
            let secret = secret_of_header(name, value).map(|start| &value[start..]);
            assert_eq!(secret, expected, "{name}: {value}");
        }
    }

    #[test]
    fn names_of_variables() {
        for (text, expected) in [
            ("api_key", "API_KEY"),
            ("apiKey", "API_KEY"),
            ("My Server", "MY_SERVER"),
            ("1x", "_1X"),
            ("@", "SECRET"),
            ("X-API-Key", "X_API_KEY"),
        ] {
            assert_eq!(variable_name(text), expected);
        }
    }
}
