//! Logins in a browser: the verbs `login` and `logout`, and what other verbs do when a server requires a
//! login.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::World;
use super::advice::lost;
use super::failure::{Failure, FailureKind, OutputMode};
use super::load::{Loader, Overrides, runtime, signal};
use super::screen::Screen;
use crate::config::Transport;
use crate::config::locate::{FaceKind, NotFound};
use crate::config::read::{listed, nearest};
use crate::core::logins::Attendance;
use crate::core::process::browse;
use crate::core::start_error::Cause;
use crate::core::upstream::Upstream;
use crate::gateway::Gateway;
use crate::gateway::shell::Shell;
use crate::text::date::rfc3339;
use crate::text::percent::decode;
use crate::transport::oauth::{KnownLogin, Login};

/// The most pasted lines that wait to be read.
const PASTED: usize = 8;

/// The servers of a file, and how the verbs report.
pub(super) struct Servers {
    pub(super) face: FaceKind,
    pub(super) file: Result<PathBuf, NotFound>,
    pub(super) output: OutputMode,
    pub(super) screen: Screen,
    pub(super) world: World,
}

impl Servers {
    /// `login`: lets a person log in to a server, or prints which servers require a login.
    pub(super) fn login(self, server: Option<&str>, no_browser: bool) -> Result<u8, Failure> {
        let attendance = if server.is_some() { Attendance::Anew } else { Attendance::Nobody };
        let (face, output, screen) = (self.face, self.output, self.screen);
        let browser = !no_browser && self.world.has_browser();
        self.with_shell(attendance, async |shell: &Shell| match server {
            Some(name) => {
                let upstream = remote(find(shell, face, name)?)?;
                let up = screen.while_waiting("asking", || shell.starting(), upstream.up()).await;
                let label = upstream.to_string();
                match (up, upstream.login()) {
                    (Ok(_), _) => return tell(output, &label, &format!("{label} needs no login"), None),
                    (Err(_), Some(login)) => {
                        go_through_one(screen, &label, login, browser).await?;
                        shell.forget_failure(upstream).await;
                    }
                    (Err(error), None) => return Err(lost(&label, &label, &error)),
                }
                tell(output, &label, &format!("you are logged in to {label}"), upstream.known_login())
            }
            None => which(shell, face, output, screen).await,
        })
    }

    /// `logout`: forgets the login to a server.
    pub(super) fn logout(self, server: &str) -> Result<u8, Failure> {
        let (face, output) = (self.face, self.output);
        self.with_shell(Attendance::Nobody, async |shell: &Shell| {
            let upstream = remote(find(shell, face, server)?)?;
            let label = upstream.to_string();
            let forgotten = upstream.forget_login().map_err(|error| {
                Failure::failed(format!("the login to {label} cannot be forgotten: {error}"), "try again")
            })?;
            let what = if forgotten { "are logged out of" } else { "were not logged in to" };
            tell(output, &label, &format!("you {what} {label}"), None)
        })
    }

    /// Runs a verb with the servers of the file, none of them started.
    fn with_shell(
        self,
        attendance: Attendance,
        verb: impl AsyncFnOnce(&Shell) -> Result<u8, Failure>,
    ) -> Result<u8, Failure> {
        let (configured, _) = Loader::for_asking(self.face, self.file, &Overrides::default(), &self.world)?
            .load(self.output)?;
        let (runtime, around) = (runtime()?, self.world.engine_surroundings(attendance));
        let done = runtime.block_on(async {
            let interrupted = signal()?;
            let shell = Shell::new(Gateway::new(configured, around), "");
            let done = tokio::select! {
                done = verb(&shell) => done,
                () = interrupted => {
                    self.screen.clear();
                    Err(Failure::interrupted("no login was changed"))
                }
            };
            shell.end().await;
            done
        });
        // A thread may still wait for a line on stdin.
        runtime.shutdown_background();
        done
    }
}

/// Prints the outcome of a server's login.
fn tell(output: OutputMode, label: &str, line: &str, login: Option<KnownLogin>) -> Result<u8, Failure> {
    if output.json {
        writeln!(io::stdout(), "{}", json!({"server": label, "login": as_json(login.as_ref())}))?;
    } else if !output.quiet {
        writeln!(io::stderr(), "{}", output.message(line))?;
    }
    Ok(0)
}

/// Prints which servers require a login.
async fn which(shell: &Shell, face: FaceKind, output: OutputMode, screen: Screen) -> Result<u8, Failure> {
    let all =
        shell.upstreams().iter().filter(|upstream| matches!(upstream.spec().transport, Transport::Http(_)));
    let all: Vec<_> = all.cloned().collect();
    // All servers start at the same time.
    all.iter().for_each(|upstream| drop(upstream.start()));
    let mut wanting = Vec::new();
    for upstream in &all {
        let up = screen.while_waiting("asking the servers", || shell.starting(), upstream.up()).await;
        if up.is_err_and(|error| error.cause == Cause::Person) {
            wanting.push(upstream.to_string());
        }
    }
    if output.json {
        writeln!(io::stdout(), "{}", json!(wanting))?;
    } else if wanting.is_empty() {
        writeln!(io::stdout(), "no server needs a login")?;
    } else {
        for label in wanting {
            writeln!(io::stdout(), "{label} needs a login: run `{} login {label}`", face.program())?;
        }
    }
    Ok(0)
}

/// The server that a person means: by its name, or by toolbox and name.
fn find<'s>(shell: &'s Shell, face: FaceKind, name: &str) -> Result<&'s Arc<Upstream>, Failure> {
    let meant = |upstream: &&Arc<Upstream>| {
        upstream.to_string() == name || face == FaceKind::Workbench && *upstream.server == *name
    };
    let found: Vec<_> = shell.upstreams().iter().filter(meant).collect();
    let labels = |upstreams: &[&Arc<Upstream>]| -> Vec<String> {
        upstreams.iter().map(|upstream| upstream.to_string()).collect()
    };
    match found.as_slice() {
        [one] => Ok(*one),
        [] => {
            let all = labels(&shell.upstreams().iter().collect::<Vec<_>>());
            let hint = match nearest(name, &all) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("`{} list servers` shows all", face.program()),
            };
            Err(Failure::usage(format!("there is no server `{name}`"), hint))
        }
        many => {
            let message = format!("`{name}` may be {}", listed(&labels(many), "or"));
            Err(Failure::usage(message, "name one of these"))
        }
    }
}

fn remote(upstream: &Arc<Upstream>) -> Result<&Arc<Upstream>, Failure> {
    match &upstream.spec().transport {
        Transport::Http(http) if http.oauth.is_some() && !http.has_credentials() => Ok(upstream),
        Transport::Http(_) => {
            let message = format!("{upstream} has no login: its entry says who you are");
            Err(Failure::usage(message, "change its `headers`, or its `url`, or `oauth`"))
        }
        Transport::Stdio(_) | Transport::Unset(_) => {
            let message = format!("{upstream} has no login");
            Err(Failure::usage(message, "only servers behind a URL have one; set its variables in `env`"))
        }
    }
}

/// Lets a person go through these logins one after the other, each under the name of its server. Returns
/// whether any succeeded.
pub(super) async fn go_through(screen: Screen, logins: impl IntoIterator<Item = (String, Login)>) -> bool {
    let mut done = Vec::new();
    for (label, login) in logins {
        // Several servers may wait for the same login.
        if done.contains(&login.url) {
            continue;
        }
        let url = login.url.clone();
        match go_through_one(screen, &label, login, true).await {
            Ok(()) => done.push(url),
            Err(failure) => {
                let _ = writeln!(io::stderr(), "warning: {}", failure.message);
            }
        }
    }
    !done.is_empty()
}

/// Lets a person go through a login, in a browser on this machine or on another one; the last address of that
/// one is pasted.
async fn go_through_one(screen: Screen, label: &str, login: Login, browser: bool) -> Result<(), Failure> {
    let url = login.url.clone();
    screen.clear();
    let mut err = io::stderr();
    let pasted = match browser {
        true => {
            writeln!(err, "{label} asks you to log in. Your browser should open; if not, open\n\n  {url}\n")?;
            browse(&url);
            mpsc::channel(1).1
        }
        false => {
            let redirect = redirect(&url).unwrap_or_default();
            writeln!(err, "{label} asks you to log in. Open this in a browser:\n\n  {url}\n")?;
            writeln!(
                err,
                "If the browser cannot show its last page, paste the address of that page here; it"
            )?;
            writeln!(err, "begins with {redirect}")?;
            lines()
        }
    };
    let done = tokio::select! {
        done = login.done() => done,
        never = take_pasted(pasted, &url) => match never {},
    };
    done.map_err(|reason| {
        let message = format!("{label}: the login failed: {reason}");
        Failure::new(
            FailureKind::Authorization,
            message,
            "try it again; the old login, if any, is still there",
        )
    })
}

/// Lines of stdin, read on a thread of their own.
fn lines() -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(PASTED);
    std::thread::spawn(move || {
        for line in io::stdin().lines() {
            // The receiver is gone or stdin cannot be read: either way there is nothing left to do.
            if line.ok().and_then(|line| send.blocking_send(line).ok()).is_none() {
                return;
            }
        }
    });
    lines
}

/// Passes pasted lines to the listener that waits for the browser, for as long as somebody pastes.
async fn take_pasted(mut lines: mpsc::Receiver<String>, url: &str) -> std::convert::Infallible {
    while let Some(line) = lines.recv().await {
        if line.trim().is_empty() {
            continue;
        }
        if let Err(problem) = deliver(line.trim(), url).await {
            let _ = writeln!(io::stderr(), "{problem}");
        }
    }
    std::future::pending().await
}

/// Does what the browser would have done: asks the listener on this machine for the page at a pasted address.
async fn deliver(pasted: &str, url: &str) -> Result<(), String> {
    let redirect = redirect(url).ok_or("this login has no address to return to")?;
    let query = pasted.strip_prefix(&*redirect).and_then(|rest| rest.strip_prefix('?'));
    let query = query.filter(|query| query.chars().all(|c| c.is_ascii_graphic()));
    let query = query.ok_or_else(|| format!("this is not the address; it begins with {redirect}"))?;
    let place = redirect.trim_start_matches("http://");
    let (host, path) = place.split_once('/').unwrap_or((place, ""));
    let unreachable = |error: io::Error| format!("this login has ended: {error}");
    let mut stream = TcpStream::connect(host).await.map_err(unreachable)?;
    let request = format!("GET /{path}?{query} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(unreachable)?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await.map_err(unreachable)?;
    match page.starts_with("HTTP/1.1 200") {
        true => Ok(()),
        false => Err("this address does not belong to this login, or the login failed".to_owned()),
    }
}

/// The address that the browser returns to, taken from the address where a login begins.
fn redirect(url: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix("redirect_uri="))?;
    String::from_utf8(decode(value).into_owned()).ok().filter(|uri| uri.starts_with("http://127.0.0.1:"))
}

/// Who is logged in and until when, for `--json`.
pub(super) fn as_json(login: Option<&KnownLogin>) -> Value {
    login.map_or(Value::Null, |login| json!({"user": login.user, "expires": login.expires.map(rfc3339)}))
}

/// Who is logged in and until when, for a person.
pub(super) fn as_text(login: &KnownLogin) -> String {
    let user = login.user.as_ref().map_or(String::new(), |user| format!(" as {user}"));
    let until = login.expires.map_or(String::new(), |end| format!(" until {}", rfc3339(end)));
    format!("logged in{user}{until}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_come_back_to() {
        for (url, expected) in [
            (
                "https://as/a?x=y&redirect_uri=http%3A%2F%2F127.0.0.1%3A9%2Fcallback&z=1",
                Some("http://127.0.0.1:9/callback"),
            ),
            ("https://as/a?redirect_uri=https%3A%2F%2Fevil%2Fcallback", None),
            ("https://as/a?x=y", None),
            ("https://as/a", None),
        ] {
            assert_eq!(redirect(url).as_deref(), expected, "{url}");
        }
    }
}
