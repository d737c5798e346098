//! The failure of a verb, and how it is reported.

use super::check;
use super::screen::{homely, wrapped};
use crate::config::Problem;
use crate::config::locate::NotFound;
use serde_json::json;
use std::io::{self, Write};
use std::path::Path;

/// What is wrong, and what to do about it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    pub(super) message: String,
    pub(super) hint: String,
    /// The problems of the configuration, which are printed one by one instead of the message.
    pub(super) problems: Vec<Problem>,
}

/// The kinds of failure, each with an exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// Any other failure.
    Failure,
    /// The command line is wrong.
    Usage,
    /// The configuration is wrong, or not there.
    Configuration,
    /// A server requires a login that we do not have.
    Authorization,
    /// A server cannot be reached.
    Unreachable,
    /// A tool reported an error.
    Tool,
    /// Somebody pressed Ctrl-C.
    Interrupted,
}

/// How failures and warnings are reported.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OutputMode {
    /// Print one JSON value on stdout.
    pub(super) json: bool,
    /// Print results and errors only.
    pub(super) quiet: bool,
    /// Allow colours on stderr.
    pub(super) colour: bool,
    /// The width of stderr in columns, if it is a terminal.
    pub(super) width: Option<usize>,
    /// The user's home directory, which people write as `~`.
    pub(super) home: Option<&'static str>,
}

impl OutputMode {
    /// A message for stderr: it wraps between words, and paths under the home directory are short.
    pub(super) fn message(&self, text: &str) -> String {
        wrapped(&self.paths(text), self.width)
    }

    /// A line that a person should heed.
    pub(super) fn warning(&self, line: &str) -> String {
        let warning = if self.colour { "\x1b[1;33mwarning\x1b[0m" } else { "warning" };
        format!("{warning}: {line}")
    }

    /// The text with paths under the home directory written `~/…`.
    pub(super) fn paths(&self, text: &str) -> String {
        match self.home.filter(|_| !self.json) {
            Some(home) => homely(text, home),
            None => text.to_owned(),
        }
    }
}

impl FailureKind {
    pub(super) fn status(self) -> u8 {
        match self {
            Self::Failure => 1,
            Self::Usage | Self::Configuration => 2,
            Self::Authorization => 3,
            Self::Unreachable => 4,
            Self::Tool => 5,
            Self::Interrupted => 130,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Usage => "usage",
            Self::Configuration => "configuration",
            Self::Authorization => "authorization",
            Self::Unreachable => "unreachable",
            Self::Tool => "tool",
            Self::Interrupted => "interrupted",
        }
    }
}

impl Failure {
    pub(super) fn new(kind: FailureKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: hint.into(), problems: Vec::new() }
    }

    pub(super) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, message, hint)
    }

    pub(super) fn configuration(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(FailureKind::Configuration, message, hint)
    }

    pub(super) fn failed(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(FailureKind::Failure, message, hint)
    }

    /// The failure of a verb that somebody ended with Ctrl-C. `hint` says what became of the work.
    pub(super) fn interrupted(hint: &str) -> Self {
        Self::new(FailureKind::Interrupted, "interrupted", hint)
    }

    pub(super) fn unreadable(file: &Path, error: &io::Error) -> Self {
        let message = format!("cannot read {}: {error}", file.display());
        Self::configuration(message, "name a regular file that you may read, of at most 64 MB")
    }

    /// The failure of a file with these problems, which may include warnings. `hint` says what follows.
    pub(super) fn invalid(file: &Path, problems: Vec<Problem>, hint: impl Into<String>) -> Self {
        let first = problems.iter().find(|problem| problem.is_error());
        let first = first.map_or("", |problem| problem.message.as_str());
        let message = format!("{} is not valid: {first}", file.display());
        Self { problems, ..Self::configuration(message, hint) }
    }

    /// Prints the failure and returns the exit status.
    pub(super) fn tell(
        &self,
        output: OutputMode,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> io::Result<u8> {
        let Self { kind, message, hint, problems } = self;
        if output.json {
            let error = json!({"kind": kind.word(), "message": message, "hint": hint.trim()});
            let mut answer = json!({ "error": error });
            if !problems.is_empty() {
                check::add_problems(&mut answer, problems);
            }
            writeln!(out, "{answer}")?;
        } else if problems.is_empty() {
            let error = if output.colour { "\x1b[1;31merror\x1b[0m" } else { "error" };
            writeln!(err, "{}", output.message(&format!("{error}: {message}")))?;
            if !hint.is_empty() {
                writeln!(err, "{}", output.message(hint.trim_end()))?;
            }
        } else {
            check::list_problems(problems, output, err)?;
            writeln!(err, "{}", output.message(hint))?;
        }
        Ok(kind.status())
    }
}

impl From<NotFound> for Failure {
    fn from(missing: NotFound) -> Self {
        Self::configuration(missing.message(), missing.hint())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::failed(error.to_string(), "")
    }
}
