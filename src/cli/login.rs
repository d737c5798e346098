//! Logins that somebody at a terminal goes through in a browser.

use std::io::{self, Write};

use super::screen::Screen;
use crate::core::process::browse;
use crate::transport::oauth::Login;

/// Has a person go through these logins, one after the other, each under the name of its server. Whether any came to a
/// good end.
pub(super) async fn go_through(screen: Screen, logins: impl IntoIterator<Item = (String, Login)>) -> bool {
    let mut done = Vec::new();
    for (label, login) in logins {
        // Several servers may wait for the same one.
        if done.contains(&login.url) {
            continue;
        }
        let url = login.url.clone();
        screen.clear();
        let _ = writeln!(
            io::stderr(),
            "{label} wants you to log in. Your browser should open; if not, open\n\n  {url}\n"
        );
        browse(&url);
        match login.done().await {
            Ok(()) => done.push(url),
            Err(reason) => {
                let _ = writeln!(io::stderr(), "warning: {label}: the login failed: {reason}");
            }
        }
    }
    !done.is_empty()
}
