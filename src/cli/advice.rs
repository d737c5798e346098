//! Advice about a server that is unavailable.

use super::diagnosis::{Diagnosis, diagnose};
use super::failure::{Failure, FailureKind};
use crate::core::start_error::{Cause, StartError};

/// What is wrong with a server, where that is known more exactly than the error tells, and what to do about
/// it.
pub(super) fn advice(server: &str, error: &StartError) -> Diagnosis {
    if let Some(hint) = &error.hint {
        return Diagnosis::cure(hint.to_string());
    }
    if let Some(found) = diagnose(&error.problem, &error.log) {
        return found;
    }
    let hint = match error.cause {
        Cause::Noise => {
            let line = error.noise.as_ref().map_or(String::new(), |line| format!("it wrote `{line}`, but "));
            return Diagnosis::cure(format!(
                "{line}stdout is for the protocol: check that the command starts an MCP server over stdio, and let it log to stderr"
            ));
        }
        Cause::Person => return Diagnosis::cure(format!("run `login {server}`")),
        Cause::Variable => "set it where the gateway starts, or in a file that `envFile` names",
        Cause::Starting => "wait until it is ready, and try again",
        Cause::Timeout => {
            "if it has to download or build something first, run it once by hand or raise its startTimeout"
        }
        Cause::Network => "start the server, or correct its `url`",
        Cause::Login => "check its `headers`: the server does not accept the credentials",
        Cause::Address => {
            "check the path of its `url`; for a server with the old HTTP+SSE transport write \"type\": \"sse\""
        }
        Cause::Version => "update the server",
        Cause::Command | Cause::Other if error.stderr.is_empty() => {
            "run its command by hand to see more; variables that it needs go into its `env`"
        }
        Cause::Command | Cause::Other => {
            "see what it wrote to stderr; variables that it needs go into its `env`"
        }
    };
    Diagnosis::cure(hint.to_owned())
}

/// The failure of a verb that needs this server for the thing at this address.
pub(super) fn lost(address: &str, server: &str, error: &StartError) -> Failure {
    let kind = match error.cause {
        Cause::Login | Cause::Person => FailureKind::Authorization,
        _ => FailureKind::Unreachable,
    };
    let Diagnosis { problem, hint } = advice(server, error);
    let problem = problem.map_or_else(|| error.problem.clone(), Into::into);
    let message = StartError { problem, hint: None, ..error.clone() };
    Failure::new(kind, format!("{address}: {message}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_way_out_and_a_status() {
        for (cause, status, part) in [
            (Cause::Command, 4, "by hand"),
            (Cause::Timeout, 4, "startTimeout"),
            (Cause::Noise, 4, "stdout is for the protocol"),
            (Cause::Network, 4, "start the server"),
            (Cause::Login, 3, "headers"),
            (Cause::Person, 3, "`login dev/a`"),
            (Cause::Address, 4, "sse"),
            (Cause::Version, 4, "update"),
            (Cause::Other, 4, "by hand"),
        ] {
            let failure = lost("dev/a", "dev/a", &StartError::new(cause, "it is so"));
            assert_eq!((failure.kind.status(), &*failure.message), (status, "dev/a: it is so"), "{cause:?}");
            assert!(failure.hint.contains(part), "{cause:?}: {}", failure.hint);
        }
        let error = StartError {
            stderr: "  no key".into(),
            hint: Some("set KEY".into()),
            ..StartError::from("ended")
        };
        let failure = lost("dev/a", "dev/a", &error);
        assert_eq!(failure.message, "dev/a: ended\nlast lines of its stderr:\n  no key");
        assert_eq!(failure.hint, "set KEY");
    }
}
