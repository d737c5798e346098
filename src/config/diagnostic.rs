//! A problem of a file, and its rendering for a person.

use super::source::Excerpt;
use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};
use std::path::PathBuf;

/// Something wrong at one place of a file, with a hint. It holds nothing secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file as the caller named it.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The path of the value, such as `toolboxes.dev.mcpServers["My Server"].args[1]`; empty for the whole
    /// file.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// Whether the file can still be used.
    pub severity: Severity,
    /// Whether setting a variable is all that is needed.
    pub unset: bool,
    pub(super) excerpt: Option<Excerpt>,
}

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used.
    Warning,
}

impl Problem {
    /// Whether the problem makes the file unusable.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Text for a terminal, with a line of the source and without a trailing line break.
    pub fn render(&self, colour: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(self.message.as_str());
        let file = self.file.to_string_lossy();
        let mut group = match &self.excerpt {
            Some(excerpt) => {
                let annotation = AnnotationKind::Primary.span(excerpt.span.clone());
                title.element(
                    Snippet::source(excerpt.line.as_str()).line_start(self.line).annotation(annotation),
                )
            }
            None => title.element(Origin::path(file.as_ref()).line(self.line).char_column(self.column)),
        };
        if !self.path.is_empty() {
            group = group.element(Level::NOTE.with_name("at").message(self.path.as_str()));
        }
        if !self.hint.is_empty() {
            group = group.element(Level::HELP.message(self.hint.as_str()));
        }
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let text = renderer.render(&[group]);
        match text.split_once('\n') {
            // The renderer would count columns in the excerpt, where hidden parts have another length.
            Some((title, rest)) if self.excerpt.is_some() => {
                let indent = self.line.to_string().len();
                format!("{title}\n{:indent$}--> {file}:{}:{}\n{rest}", "", self.line, self.column)
            }
            _ => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_place_path_excerpt_and_hint() {
        let problem = Problem {
            file: "dir/workbench-config.json".into(),
            line: 12,
            column: 7,
            path: "toolboxes.dev".into(),
            message: "unknown key `mcpServer`".into(),
            hint: "did you mean `mcpServers`?".into(),
            severity: Severity::Error,
            unset: false,
            excerpt: Some(Excerpt { line: "{ \"a\": …, \"mcpServer\": {}".into(), span: 12..23 }),
        };
        let expected = "\
error: unknown key `mcpServer`
  --> dir/workbench-config.json:12:7
   |
12 | { \"a\": …, \"mcpServer\": {}
   |           ^^^^^^^^^^^
   |
   = at: toolboxes.dev
   = help: did you mean `mcpServers`?";
        assert_eq!(problem.render(false), expected);
        assert!(problem.render(true).contains("\u{1b}["));
        let plain = Problem { excerpt: None, path: String::new(), severity: Severity::Warning, ..problem };
        assert_eq!(
            plain.render(false),
            "warning: unknown key `mcpServer`\n--> dir/workbench-config.json:12:7\n = help: did you mean `mcpServers`?"
        );
    }
}
