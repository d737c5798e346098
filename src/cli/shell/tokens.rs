//! The verb `tokens`, and the estimate of tokens.

use super::catalog::Catalog;
use super::{Run, Said};
use crate::catalog::Kind;
use crate::config::locate::Face;
use crate::gateway::shell::Shell;
use crate::json::quote;

/// The name of the method that counts the tokens.
pub(super) const TOKENIZER: &str = "estimate by kind of character (no model's own tokenizer)";

impl Run {
    pub(super) fn tokens(&self, shell: &Shell, catalog: &Catalog) -> Said {
        let mut servers: Vec<(usize, usize, usize)> = Vec::new();
        for (n, known) in catalog.servers.iter().enumerate() {
            if !matches!(known.items, Some(Ok(_))) {
                continue;
            }
            let tools: Vec<_> = catalog.of(Kind::Tool).filter(|row| row.server == n).collect();
            servers.push((n, tools.len(), tools.iter().map(|row| estimate(&row.definition)).sum()));
        }
        let group = |n: usize| &*catalog.servers[n].upstream.group;
        let groups: Vec<(&str, usize)> = self
            .groups
            .iter()
            .map(|(name, ..)| {
                let own = servers.iter().filter(|(n, ..)| group(*n) == name);
                (name.as_str(), own.map(|(.., tokens)| tokens).sum())
            })
            .collect();
        let total: usize = servers.iter().map(|(.., tokens)| tokens).sum();
        let gateway = estimate(&shell.surface(&catalog.view));
        let saving = total as i64 - gateway as i64;
        let status = catalog.status();
        if self.manner.json {
            let rows: Vec<_> = servers
                .iter()
                .map(|(n, tools, tokens)| {
                    format!("{{{},\"tools\":{tools},\"tokens\":{tokens}}}", self.origin(catalog, *n))
                })
                .collect();
            let word = self.group_word();
            let groups: Vec<_> = groups
                .iter()
                .map(|(name, tokens)| format!("{{\"{word}\":{},\"tokens\":{tokens}}}", quote(name)))
                .collect();
            let text = format!(
                "{{\"tokenizer\":{},\"servers\":[{}],\"toolboxes\":[{}],\"total\":{total},\"gateway\":{gateway},\
                 \"saving\":{saving}}}\n",
                quote(TOKENIZER),
                rows.join(","),
                groups.join(","),
            );
            return Said { text, status };
        }
        let wide = self.face == Face::Workbench;
        let row = |group: &str, server: &str, tools: String, tokens: String| match wide {
            true => vec![group.to_owned(), server.to_owned(), tools, tokens],
            false => vec![group.to_owned(), tools, tokens],
        };
        let mut rows = Vec::new();
        for (name, tokens) in &groups {
            let own: Vec<_> = servers.iter().filter(|(n, ..)| group(*n) == *name).collect();
            for (n, tools, tokens) in &own {
                let server = &catalog.servers[*n].upstream.server;
                rows.push(row(name, server, tools.to_string(), tokens.to_string()));
            }
            if own.len() > 1 {
                rows.push(row(name, "all", String::new(), tokens.to_string()));
            }
        }
        let heading: &[&str] = match wide {
            true => &["TOOLBOX", "SERVER", "TOOLS", "TOKENS"],
            false => &["NAMESPACE", "TOOLS", "TOKENS"],
        };
        let mut text = self.screen.table(heading, &rows);
        let outcome = match saving {
            0.. if total > 0 => {
                let percent = saving as f64 * 100.0 / total as f64;
                format!("{:<23}  {saving:>7}  ({percent:.0} %)", "saving")
            }
            _ => format!("{:<23}  {:>7}  (it pays with more tools)", "more than without it", -saving),
        };
        text.push_str(&format!(
            "\n{:<23}  {total:>7}\n{:<23}  {gateway:>7}\n{}\n\ntokenizer: {TOKENIZER}\n",
            "all definitions at once",
            "the gateway instead",
            self.screen.bold(&outcome),
        ));
        Said { text, status }
    }
}

/// Estimates the number of tokens in a text.
///
/// The byte pair encoders of current models take a common word and the space before it as one token, cut
/// longer and rarer words into pieces of about four letters, take up to three digits together, and join the
/// punctuation of JSON in pairs. Other alphabets cost about one token per two letters, and scripts without
/// spaces about one per character.
pub(super) fn estimate(text: &str) -> usize {
    let mut tokens = 0;
    let mut run = (Class::Space, 0usize);
    for c in text.chars() {
        let class = Class::of(c);
        if class == run.0 {
            run.1 += 1;
        } else {
            tokens += cost(run);
            run = (class, 1);
        }
    }
    tokens + cost(run)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Letter,
    Digit,
    Mark,
    Alphabet,
    Ideograph,
}

impl Class {
    fn of(c: char) -> Self {
        match c {
            c if c.is_whitespace() => Self::Space,
            c if c.is_ascii_alphabetic() => Self::Letter,
            c if c.is_ascii_digit() => Self::Digit,
            c if c.is_ascii() => Self::Mark,
            '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{1f000}'.. => Self::Ideograph,
            _ => Self::Alphabet,
        }
    }
}

fn cost((class, length): (Class, usize)) -> usize {
    match class {
        // A single space belongs to the word after it.
        Class::Space => usize::from(length > 1),
        Class::Letter if length <= 8 => 1,
        Class::Letter => length.div_ceil(5),
        Class::Digit => length.div_ceil(3),
        Class::Mark | Class::Alphabet => length.div_ceil(2),
        Class::Ideograph => length,
    }
}

#[cfg(test)]
mod tests {
    use super::estimate;

    #[test]
    fn estimates() {
        for (text, expected) in [
            ("", 0),
            ("Read a file", 3),
            ("internationalization", 4),
            ("1234567", 3),
            (r#"{"name":"read_file"}"#, 8),
            ("файл", 2),
            ("读取文件", 4),
            ("a\n    b", 3),
        ] {
            assert_eq!(estimate(text), expected, "{text}");
        }
    }
}
