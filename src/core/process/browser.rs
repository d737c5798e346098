//! Opens the user's browser. The browser is not an upstream: it outlives us.

use std::process::Stdio;

/// Tries to show a page. The URL is our own or was checked, and it is passed as one argument without a shell.
pub fn browse(url: &str) {
    let (program, arguments): (_, &[&str]) = match std::env::consts::OS {
        "macos" => ("open", &[]),
        "windows" => ("rundll32", &["url.dll,FileProtocolHandler"]),
        _ => ("xdg-open", &[]),
    };
    #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    #[cfg(unix)]
    // Ctrl-C in the terminal must not reach the browser.
    command.process_group(0);
    if let Err(error) = command.spawn() {
        tracing::debug!("{program} cannot be started: {error}");
    }
}
