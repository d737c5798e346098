//! What to do about a server that is not to be had.

use super::failure::{Failure, FailureKind};
use crate::core::start_error::{Cause, StartError};

/// What to do about it.
pub(super) fn advice(error: &StartError) -> &str {
    if let Some(hint) = &error.hint {
        return hint;
    }
    match error.cause {
        Cause::Noise => {
            "stdout is for MCP messages only: check that the command starts an MCP server over stdio, and let it log to stderr"
        }
        Cause::Timeout => {
            "if it has to download or build something first, run it once by hand or raise its connectTimeout"
        }
        Cause::Network => "start the server, or correct its `url`",
        Cause::Login => "check its `headers`: the server does not accept the credentials",
        Cause::Person => "run `doctor` in a terminal, where you can log in",
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
    }
}

/// The failure of a verb that needs this server.
pub(super) fn lost(label: &str, error: &StartError) -> Failure {
    let kind = match error.cause {
        Cause::Login | Cause::Person => FailureKind::Authorization,
        _ => FailureKind::Unreachable,
    };
    let message = StartError { hint: None, ..error.clone() };
    Failure::new(kind, format!("{label}: {message}"), advice(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_way_out_and_a_status() {
        for (cause, status, part) in [
            (Cause::Command, 4, "by hand"),
            (Cause::Timeout, 4, "connectTimeout"),
            (Cause::Noise, 4, "stdout is for MCP messages"),
            (Cause::Network, 4, "start the server"),
            (Cause::Login, 3, "headers"),
            (Cause::Person, 3, "terminal"),
            (Cause::Address, 4, "sse"),
            (Cause::Version, 4, "update"),
            (Cause::Other, 4, "by hand"),
        ] {
            let failure = lost("dev/a", &StartError::new(cause, "it is so"));
            assert_eq!((failure.kind.status(), &*failure.message), (status, "dev/a: it is so"), "{cause:?}");
            assert!(failure.hint.contains(part), "{cause:?}: {}", failure.hint);
        }
        let error = StartError {
            stderr: "  no key".into(),
            hint: Some("set KEY".into()),
            ..StartError::from("ended")
        };
        let failure = lost("dev/a", &error);
        assert_eq!(failure.message, "dev/a: ended\nlast lines of its stderr:\n  no key");
        assert_eq!(failure.hint, "set KEY");
    }
}
