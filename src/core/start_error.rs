//! Why an upstream is unavailable, with its cause as a type, so that code which acts on it, the command line
//! above all, need not parse the words.
//!
//! Invariant: a start error that has left the lifecycle holds no secrets.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::process::CommandError;
use crate::config::{Redactor, Timeouts};
use crate::transport::http_client::Failure;
use crate::transport::peer::Lost;

/// The reason in words, and its kind, so that code which acts on it need not parse the words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartError {
    /// The kind of error.
    pub cause: Cause,
    /// What is wrong.
    pub problem: Arc<str>,
    /// What to do about it, where that is known more exactly than the kind tells.
    pub hint: Option<Arc<str>>,
    /// The last lines that the server wrote to stderr, without secrets; often none.
    pub stderr: Arc<str>,
    /// More lines of stderr, for a person who looks for the cause.
    pub log: Arc<str>,
    /// The first line on stdout that is not a message.
    pub noise: Option<Arc<str>>,
}

/// The kinds of error, as far as they call for different remedies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The server's program cannot be found, or cannot be run where it should.
    Command,
    /// The server's entry needs a variable that is not set.
    Variable,
    /// The server was not ready in time.
    Timeout,
    /// The server is still starting, for longer than the caller can wait.
    Starting,
    /// The server writes something other than MCP to stdout.
    Noise,
    /// No connection to the server can be made.
    Network,
    /// The server rejects our credentials, or requires some.
    Login,
    /// Somebody has to log in to the server first.
    Person,
    /// There is no MCP server at the URL.
    Address,
    /// The server speaks other versions of the protocol.
    Version,
    /// Anything else, most often that the server ended.
    Other,
}

impl StartError {
    /// An error of this kind.
    pub fn new(cause: Cause, problem: impl Into<Arc<str>>) -> Self {
        Self { cause, problem: problem.into(), hint: None, stderr: "".into(), log: "".into(), noise: None }
    }

    /// The server was not ready in time.
    pub(super) fn timeout() -> Self {
        Self::new(Cause::Timeout, "connection timeout")
    }

    /// The server was not ready when its time to start was over.
    pub(super) fn never_ready(timeouts: &Timeouts) -> Self {
        match timeouts.start == timeouts.connect {
            true => Self::timeout(),
            false => Self::timeout().reworded(after(timeouts.start)),
        }
    }

    /// The server is not ready yet, and goes on starting.
    pub(super) fn not_yet(timeouts: &Timeouts) -> Self {
        let waited = after(timeouts.connect);
        let problem = format!("{waited}; it is still starting, and its tools will appear when it is ready");
        Self::new(Cause::Starting, problem)
    }

    /// What is wrong, without words of the server.
    pub fn own_words(&self) -> &str {
        const REFUSED: &str = " with an error";
        let end = match self.cause {
            Cause::Version => self.problem.find(": "),
            _ => self.problem.find(&format!("{REFUSED}: ")).map(|at| at + REFUSED.len()),
        };
        &self.problem[..end.unwrap_or(self.problem.len())]
    }

    /// The same error with another problem text.
    pub(super) fn reworded(self, problem: impl Into<Arc<str>>) -> Self {
        Self { problem: problem.into(), ..self }
    }

    /// The same error without secrets: paths, host names and a server's own words may hold some.
    pub(super) fn redacted(self, secrets: &Redactor) -> Self {
        let redact = |text: Arc<str>| Arc::from(secrets.redact(&text));
        Self {
            cause: self.cause,
            problem: redact(self.problem),
            hint: self.hint.map(redact),
            stderr: redact(self.stderr),
            log: redact(self.log),
            noise: self.noise.map(redact),
        }
    }
}

impl Cause {
    /// The error that an HTTP status stands for.
    pub fn of_status(status: u64) -> Self {
        match status {
            401 | 403 => Self::Login,
            404 | 405 => Self::Address,
            _ => Self::Other,
        }
    }
}

fn after(time: Duration) -> String {
    format!("connection timeout after {} s", time.as_secs_f64())
}

/// The whole error, for a model or a log.
impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.problem)?;
        if let Some(hint) = &self.hint {
            write!(out, "; {hint}")?;
        }
        match &*self.stderr {
            "" => Ok(()),
            lines => write!(out, "\nlast lines of its stderr:\n{lines}"),
        }
    }
}

impl From<&str> for StartError {
    fn from(problem: &str) -> Self {
        Self::new(Cause::Other, problem)
    }
}

impl From<String> for StartError {
    fn from(problem: String) -> Self {
        Self::new(Cause::Other, problem)
    }
}

impl From<CommandError> for StartError {
    fn from(error: CommandError) -> Self {
        Self { hint: Some(error.hint().into()), ..Self::new(Cause::Command, error.to_string()) }
    }
}

impl From<Lost> for StartError {
    fn from(lost: Lost) -> Self {
        let cause = if lost.needs_login { Cause::Person } else { Cause::Other };
        Self::new(cause, lost.message)
    }
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> Self {
        let cause = match failure.status {
            _ if failure.unauthorized => Cause::Person,
            Some(status) => Cause::of_status(status.into()),
            None if failure.unreachable => Cause::Network,
            None => Cause::Other,
        };
        Self::new(cause, failure.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_own_words_can_be_left_out() {
        for (cause, problem, ours) in [
            (Cause::Other, "the server exited with status 7", "the server exited with status 7"),
            (
                Cause::Login,
                "answered `initialize` with an error: hush",
                "answered `initialize` with an error",
            ),
            (
                Cause::Noise,
                "answered `initialize` with an error: hush; it wrote",
                "answered `initialize` with an error",
            ),
            (Cause::Version, "speaks other versions than we do: hush", "speaks other versions than we do"),
            (Cause::Network, "cannot be reached: no route", "cannot be reached: no route"),
        ] {
            assert_eq!(StartError::new(cause, problem).own_words(), ours);
        }
    }
}
