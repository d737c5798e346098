//! Text with variables in it, free of anybody's syntax.

use crate::config::Environment;
use crate::config::expand::{Place, place};

/// Text and variables, in order. Text is what it is: nothing in it is expanded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template(Vec<Piece>);

/// A part of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal.
    Text(String),
    /// A variable of the environment.
    Variable {
        /// `[A-Z_][A-Z0-9_]*`
        name: String,
        /// What stands in for it where it is not set; has no `}`.
        default: Option<String>,
    },
}

impl Piece {
    /// What stands there in clear text: a default too, and nothing for a variable without one.
    pub(super) fn clear_text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Variable { default: Some(text), .. } => text,
            Self::Variable { default: None, .. } => "",
        }
    }
}

impl Template {
    /// Text without variables.
    pub fn literal(text: impl Into<String>) -> Self {
        let mut template = Self::default();
        template.push_text(&text.into());
        template
    }

    /// One variable without a default.
    pub fn variable(name: impl Into<String>) -> Self {
        Self(vec![Piece::Variable { name: name.into(), default: None }])
    }

    /// Text as our own files spell it.
    pub fn ours(text: &str) -> Self {
        let mut template = Self::default();
        let mut at = 0;
        while let Some(found) = text[at..].find('$') {
            let dollar = at + found;
            template.push_text(&text[at..dollar]);
            at = match place(&text[dollar..]) {
                Place::Variable { name, default, length } => {
                    template.push_variable(name, default);
                    dollar + length
                }
                Place::Escape => {
                    template.push_text("${");
                    dollar + "$${".len()
                }
                Place::Plain | Place::Unclosed { .. } => {
                    template.push_text("$");
                    dollar + 1
                }
            };
        }
        template.push_text(&text[at..]);
        template
    }

    /// Appends text.
    pub fn push_text(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.0.push(Piece::Text(text.to_owned())),
        }
    }

    /// Appends a part.
    pub fn push(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => self.push_text(&text),
            variable => self.0.push(variable),
        }
    }

    /// Appends another one.
    pub fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|piece| self.push(piece.clone()));
    }

    /// Appends a variable.
    pub fn push_variable(&mut self, name: &str, default: Option<&str>) {
        self.0.push(Piece::Variable { name: name.to_owned(), default: default.map(str::to_owned) });
    }

    /// Its parts.
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Names of its variables.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Variable { name, .. } => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// The text, if there is no variable in it.
    pub fn text(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// What it becomes; `None` where a variable is neither set nor has a default.
    pub(super) fn known(&self, environment: &Environment<'_>) -> Option<String> {
        let known = |piece: &Piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::Variable { name, default } => environment(name).or_else(|| default.clone()),
        };
        self.0.iter().map(known).collect()
    }

    /// All that stands in it in clear text.
    pub(super) fn without_variables(&self) -> String {
        self.0.iter().map(Piece::clear_text).collect()
    }

    /// As our files spell it: `${` before a name is written `$${` where it is mere text.
    pub fn spelled(&self) -> String {
        let spell = |piece: &Piece| match piece {
            Piece::Variable { .. } => reference(piece),
            Piece::Text(text) => {
                let mut spelled = String::with_capacity(text.len());
                for (at, character) in text.char_indices() {
                    if character == '$' && text[at..].starts_with("${") && named(&text[at + 2..]) {
                        spelled.push('$');
                    }
                    spelled.push(character);
                }
                spelled
            }
        };
        self.0.iter().map(spell).collect()
    }

    /// As one word of a command line in `tools.toml`, which is split before variables are replaced.
    pub fn word(&self) -> String {
        if self.0.is_empty() {
            return "''".to_owned();
        }
        let spell = |piece: &Piece| match piece {
            Piece::Variable { .. } => reference(piece),
            Piece::Text(text) => {
                let plain = text.chars().all(|c| c.is_alphanumeric() || "_-./:@%+,=".contains(c));
                if plain { text.clone() } else { format!("'{}'", text.replace('\'', r"'\''")) }
            }
        };
        self.0.iter().map(spell).collect()
    }

    /// Some secret, for comparing.
    pub(super) fn secret() -> Self {
        Self::variable(SECRET)
    }

    /// Whether both are the same, where a secret is the same as any variable.
    pub(super) fn matches(&self, other: &Self) -> bool {
        let fits = |pair: (&Piece, &Piece)| match pair {
            (Piece::Variable { name: one, .. }, Piece::Variable { name: two, .. }) => {
                one == two || one == SECRET || two == SECRET
            }
            (one, two) => one == two,
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(fits)
    }
}

/// No variable has this name.
const SECRET: &str = "secret";

fn reference(piece: &Piece) -> String {
    match piece {
        Piece::Variable { name, default: Some(default) } => format!("${{{name}:-{default}}}"),
        Piece::Variable { name, default: None } => format!("${{{name}}}"),
        Piece::Text(text) => text.clone(),
    }
}

fn named(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
}

/// Whether our files can name this variable.
pub(super) fn is_name(text: &str) -> bool {
    named(text) && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::expand::expand;

    #[test]
    fn text_survives_being_spelled() {
        for text in
            ["", "a", "${A}", "$${A}", "$$${A}", "${A", "${A-x}", "${lower}", "$A", "$", "a ${_B:-c} $${"]
        {
            let spelled = Template::literal(text).spelled();
            let expansion = expand(&spelled, &|_| Some("wrong".into()));
            assert_eq!((expansion.text.as_str(), expansion.faults.len()), (text, 0), "{spelled}");
        }
        assert_eq!(Template::literal("${A} ${b}").spelled(), "$${A} ${b}");
        for text in ["${A}", "x${A:-y}z", "$${A}", "${lower} $"] {
            assert_eq!(Template::ours(text).spelled(), text);
        }
    }

    #[test]
    fn words_survive_being_split() {
        use crate::config::command_line::{CommandLine, split};
        for text in ["", "a", "a b", "it's", "${A}", "$HOME", "*;|", "C:\\x", "\"q\"", "ü"] {
            let word = Template::literal(text).word();
            let Ok(CommandLine::Words { words, .. }) = split(&format!("x {word}"), None) else {
                panic!("{word} is not plain");
            };
            assert_eq!(words[1].fill(&|_| None, &mut Vec::new()).expect("no variables"), text, "{word}");
        }
        assert_eq!(Template::ours("--key=${KEY} x").word(), "--key=${KEY}' x'");
    }

    #[test]
    fn a_secret_is_any_variable() {
        let mut secret = Template::literal("Bearer ");
        secret.push(Template::secret().pieces()[0].clone());
        for (text, expected) in
            [("Bearer ${A}", true), ("Bearer ${B_2}", true), ("Bearer abc", false), ("${A}", false)]
        {
            assert_eq!(secret.matches(&Template::ours(text)), expected, "{text}");
        }
        assert!(!Template::ours("${A}").matches(&Template::ours("${B}")));
    }
}
