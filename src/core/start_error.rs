//! Why an upstream is not to be had, with its cause as a type: whoever acts on it, the command line above all, need not
//! read the words.
//!
//! Invariant: past the lifecycle it holds no secrets.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::process::CommandError;
use crate::config::{Redactor, Timeouts};
use crate::transport::http_client::Failure;
use crate::transport::peer::Lost;

/// The reason in words, and of which kind it is, so that whoever has to act on it need not read the words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError {
    /// Of which kind it is.
    pub cause: Cause,
    /// What is wrong.
    pub problem: Arc<str>,
    /// What to do about it, where it is known better than by the kind.
    pub hint: Option<Arc<str>>,
    /// The last lines that the server wrote to stderr, without secrets; often none.
    pub stderr: Arc<str>,
    /// More of these lines, for whoever looks for the cause.
    pub log: Arc<str>,
    /// The first line that the server wrote to stdout and that is no message.
    pub noise: Option<Arc<str>>,
}

/// Kinds of error, as far as different things are to be done about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Its program cannot be found, or not run where it should.
    Command,
    /// Its entry needs a variable that is not set.
    Variable,
    /// It was not ready in time.
    Timeout,
    /// It is still on its way up, longer than whoever asks can wait.
    Starting,
    /// It writes to stdout what is no MCP.
    Noise,
    /// No connection to it can be made.
    Network,
    /// It does not accept our credentials, or wants some.
    Login,
    /// Somebody has to log in to it first.
    Person,
    /// There is no MCP server at its URL.
    Address,
    /// It speaks other versions of the protocol.
    Version,
    /// Anything else, most often that it ended.
    Other,
}

impl StartError {
    /// One of a kind.
    pub fn new(cause: Cause, problem: impl Into<Arc<str>>) -> Self {
        Self { cause, problem: problem.into(), hint: None, stderr: "".into(), log: "".into(), noise: None }
    }

    /// It was not ready in time.
    pub(super) fn timeout() -> Self {
        Self::new(Cause::Timeout, "connection timeout")
    }

    /// It was not ready when its time to start was over.
    pub(super) fn never_ready(timeouts: &Timeouts) -> Self {
        match timeouts.start == timeouts.connect {
            true => Self::timeout(),
            false => Self::timeout().reworded(after(timeouts.start)),
        }
    }

    /// It is not ready yet, and goes on starting.
    pub(super) fn not_yet(timeouts: &Timeouts) -> Self {
        let waited = after(timeouts.connect);
        let problem = format!("{waited}; it is still starting, and its tools will appear when it is ready");
        Self::new(Cause::Starting, problem)
    }

    /// The same with more to say about it.
    pub(super) fn reworded(self, problem: impl Into<Arc<str>>) -> Self {
        Self { problem: problem.into(), ..self }
    }

    /// The same without secrets: paths, host names and what a server says of itself may hold some.
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
    /// What an HTTP status stands for.
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

/// All of it, for a model or a log.
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
