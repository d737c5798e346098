//! A connection to the daemon: found, or made by starting the daemon. Relays, `status` and `stop` use it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::direct::Custody;
use super::endpoint::{self, DaemonStream};
use super::place::DaemonPlace;
use super::wire::{DaemonWord, Wish, confirm, read_greeting, read_word, refusal};
use crate::config::locate::FaceKind;
use crate::core::process::{Launcher, daemon};

/// How long the daemon may take to greet.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the daemon may take to read the file of a session, and to take the session.
const LONGEST_WELCOME: Duration = Duration::from_secs(10);
/// The time between two looks at what another process does.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Why there can be no daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoDaemon(String);

impl NoDaemon {
    /// There can be none, for this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for NoDaemon {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The daemons of this user.
pub struct Daemons {
    /// Where they are.
    pub place: DaemonPlace,
    /// Where those of sessions with another environment may be.
    pub elsewhere: Vec<DaemonPlace>,
    /// Where the daemon of this build logs; `None` if it does not.
    pub log: Option<PathBuf>,
    /// Starts the daemon.
    pub launcher: Launcher,
}

/// A connection to a daemon that has greeted.
pub struct Link {
    /// The connection.
    pub stream: DaemonStream,
    /// The daemon's process id.
    pub pid: Option<u32>,
}

/// What came of one attempt to reach a daemon.
enum Reached {
    Link(Link),
    /// Nobody listens.
    Nobody,
    /// Somebody listened and is gone.
    Gone,
    /// Another user listens.
    Stranger(NoDaemon),
}

impl Daemons {
    /// A connection to the daemon of this build, which is started if there is none.
    pub async fn connect(&self) -> Result<Link, NoDaemon> {
        self.place.prepare(daemon::user())?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let reached = match timeout_at(deadline, reach(&self.place.socket())).await {
                Ok(reached) => reached?,
                Err(_) => return Err(late()),
            };
            match reached {
                Reached::Link(link) => return Ok(link),
                Reached::Stranger(reason) => return Err(reason),
                Reached::Gone => sleep(BETWEEN_LOOKS).await,
                // Whoever holds the lock is about to listen, or about to end.
                Reached::Nobody if !self.start()? => sleep(BETWEEN_LOOKS).await,
                Reached::Nobody => {}
            }
            if Instant::now() >= deadline {
                return Err(late());
            }
        }
    }

    /// A connection to the daemon of this build, if there is one.
    pub async fn find(&self) -> Result<Option<Link>, NoDaemon> {
        match find(&self.place.socket()).await {
            // Where there can be no daemon, there is none.
            Err(_) if self.place.inspect(daemon::user()).is_err() => Ok(None),
            found => found,
        }
    }

    /// The process ids of the daemons of other builds.
    pub async fn others(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        for socket in self.place.other_builds() {
            pids.extend(find(&socket).await.ok().flatten().and_then(|link| link.pid));
        }
        pids
    }

    /// The directories in which daemons run for sessions with another environment.
    pub async fn found_elsewhere(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for place in self.elsewhere.iter().filter(|place| place.inspect(daemon::user()).is_ok()) {
            for socket in place.sockets() {
                if let Ok(Some(_)) = find(&socket).await {
                    found.push(place.directory().to_owned());
                    break;
                }
            }
        }
        found
    }

    /// Whether a session could use a daemon: why not, if not, as the session would say it.
    pub async fn check(&self) -> Result<(), NoDaemon> {
        self.place.try_out(daemon::user())?;
        match look(&self.place.socket()).await? {
            Reached::Link(link) => link.status().await.map(drop),
            Reached::Stranger(reason) => Err(reason),
            Reached::Nobody | Reached::Gone => Ok(()),
        }
    }

    /// Ends all daemons, of any build. Returns the number of those that have ended, and for others the socket and why
    /// they have not.
    pub async fn stop(&self) -> (usize, Vec<(PathBuf, NoDaemon)>) {
        let (mut ended, mut problems, mut seen) = (0, Vec::new(), HashSet::new());
        let places = [&self.place].into_iter().chain(&self.elsewhere);
        // Who opens the directory to others while a daemon runs can still end it.
        let own: Vec<_> = places.filter(|place| place.is_own(daemon::user())).collect();
        loop {
            let mut stops = JoinSet::new();
            // A daemon that begins to end meanwhile gets another name, under which we wait for it.
            for socket in own.iter().flat_map(|place| place.sockets()).filter(|one| seen.insert(one.clone()))
            {
                stops.spawn(async move { stop(&socket).await.map_err(|problem| (socket, problem)) });
            }
            if stops.is_empty() {
                return (ended, problems);
            }
            for stopped in stops.join_all().await {
                match stopped {
                    Ok(there) => ended += usize::from(there),
                    Err(problem) => problems.push(problem),
                }
            }
        }
    }

    /// Starts the daemon, unless another process does that or has done it. `false`: the other one has the
    /// lock.
    fn start(&self) -> Result<bool, NoDaemon> {
        let failed = |error: io::Error| NoDaemon::new(format!("the daemon cannot be started: {error}"));
        let lock = self.place.lock().map_err(failed)?;
        match lock.try_lock() {
            Err(std::fs::TryLockError::WouldBlock) => return Ok(false),
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
            Ok(()) => {}
        }
        let mut arguments: Vec<OsString> =
            vec!["daemon-process".into(), "--directory".into(), self.place.directory().into()];
        if let Some(log) = &self.log {
            arguments.extend(["--log".into(), log.into()]);
        }
        endpoint::launch(&self.place, &self.launcher, &arguments, lock).map_err(failed)?;
        Ok(true)
    }
}

fn late() -> NoDaemon {
    NoDaemon::new(format!("the daemon did not greet within {} seconds", PATIENCE.as_secs()))
}

/// A connection to the daemon behind a socket, if there is one.
async fn find(socket: &Path) -> Result<Option<Link>, NoDaemon> {
    match look(socket).await? {
        Reached::Link(link) => Ok(Some(link)),
        Reached::Nobody | Reached::Gone | Reached::Stranger(_) => Ok(None),
    }
}

/// Connects to a socket, again as long as whoever listens goes away.
async fn look(socket: &Path) -> Result<Reached, NoDaemon> {
    let looking = async {
        loop {
            match reach(socket).await? {
                Reached::Gone => sleep(BETWEEN_LOOKS).await,
                reached => return Ok(reached),
            }
        }
    };
    timeout(PATIENCE, looking).await.unwrap_or_else(|_| Err(late()))
}

/// Connects to a socket, checks who listens, and waits for the greeting.
async fn reach(socket: &Path) -> Result<Reached, NoDaemon> {
    let shown = socket.display();
    let mut stream = match endpoint::connect(socket).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(Reached::Nobody);
        }
        // Many connect at once, or the daemon died before it took the connection.
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionReset) => {
            return Ok(Reached::Gone);
        }
        Err(error) => return Err(NoDaemon::new(format!("connecting to {shown} is not possible: {error}"))),
    };
    match endpoint::other_end(&stream) {
        Ok(other) if other.is_own => {}
        Ok(_) => return Ok(Reached::Stranger(NoDaemon::new(format!("another user listens on {shown}")))),
        Err(error) => {
            return Err(NoDaemon::new(format!("the system does not say who listens on {shown}: {error}")));
        }
    }
    match read_greeting(&mut stream).await {
        // The system knows who began to listen, which is whoever started the daemon.
        Ok(DaemonWord::Welcome(pid)) => Ok(Reached::Link(Link { stream, pid })),
        Ok(DaemonWord::Refused(reason)) => Err(NoDaemon::new(reason)),
        Ok(DaemonWord::Gone) => Ok(Reached::Gone),
        Ok(DaemonWord::Accepted(_)) => {
            Err(NoDaemon::new(format!("what listens on {shown} is no daemon of ours")))
        }
        Err(error) => Err(NoDaemon::new(format!("what listens on {shown} is no daemon of ours: {error}"))),
    }
}

impl Link {
    /// Sends a request, with the client's own pipes if there is custody of them, and waits until the daemon accepts it.
    /// Returns whether it takes the pipes.
    pub(super) async fn ask(&mut self, request: &Wish, custody: Option<&Custody>) -> Result<bool, Unheard> {
        let asking = async {
            let request = request.encode();
            let sent = match custody {
                // Without the pipes the daemon has its messages passed.
                Some(custody) => custody.send(&self.stream, &request).await.unwrap_or(0),
                None => 0,
            };
            self.stream.write_all(&request[sent..]).await?;
            read_word(&mut self.stream).await
        };
        match timeout(LONGEST_WELCOME, asking).await {
            Ok(Ok(DaemonWord::Accepted(false))) => Ok(false),
            Ok(Ok(DaemonWord::Accepted(true))) => {
                confirm(&mut self.stream).await.map(|()| true).map_err(|_| Unheard::Gone)
            }
            Ok(Ok(DaemonWord::Refused(reason))) => Err(Unheard::Because(NoDaemon::new(reason))),
            Ok(Ok(DaemonWord::Welcome(_) | DaemonWord::Gone) | Err(_)) => Err(Unheard::Gone),
            Err(_) => {
                let seconds = LONGEST_WELCOME.as_secs();
                let reason = format!("the daemon did not take the session within {seconds} seconds");
                Err(Unheard::Because(NoDaemon::new(reason)))
            }
        }
    }

    /// Has the daemon serve its console on the connection, which is returned; `None` if it does not.
    pub async fn console(mut self, face: FaceKind, state: &Path) -> Option<DaemonStream> {
        self.ask(&Wish::Console(face, state.to_owned()), None).await.ok()?;
        Some(self.stream)
    }

    /// What runs, as the daemon tells it.
    pub async fn status(mut self) -> Result<Value, NoDaemon> {
        let mut text = Vec::new();
        let asking = async {
            self.stream.write_all(&Wish::Status.encode()).await?;
            self.stream.read_to_end(&mut text).await
        };
        // The end of a pipe may be an error; whether the text is whole is seen below.
        let _ = timeout(LONGEST_WELCOME, asking).await;
        match (refusal(&text), serde_json::from_slice(&text)) {
            (Some(reason), _) => Err(NoDaemon::new(reason)),
            (None, Ok(status)) => Ok(status),
            (None, Err(_)) => Err(NoDaemon::new("the daemon ended before it told what runs")),
        }
    }
}

/// Why a request came to nothing.
pub(super) enum Unheard {
    /// The daemon refuses it.
    Because(NoDaemon),
    /// The daemon is gone.
    Gone,
}

/// Ends the daemon behind a socket, and waits until it is gone. `false`: there was none.
async fn stop(socket: &Path) -> Result<bool, NoDaemon> {
    let Some(mut link) = find(socket).await? else { return Ok(false) };
    // The daemon closes the connection by its end, and not before.
    let mut rest = Vec::new();
    if link.stream.write_all(&Wish::Stop.encode()).await.is_ok() {
        let _ = link.stream.read_to_end(&mut rest).await;
    }
    Ok(true)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use tokio::net::UnixListener;

    use super::*;

    /// Two `stop`s at once: when the second one connects, the daemon has begun to end and has another name.
    #[tokio::test]
    async fn stop_waits_for_a_daemon_that_begins_to_end_meanwhile() {
        let directory = std::env::temp_dir().join(format!("mcp-workbench-stop-{}", std::process::id()));
        let place = DaemonPlace::at(directory.clone());
        place.prepare(daemon::user()).expect("the directory can be made");
        let (before, after) = (place.socket(), place.ending_socket(7));
        let listener = UnixListener::bind(&before).expect("it is free");
        let ending = tokio::spawn(async move {
            let (first, _) = listener.accept().await.expect("it is connected to");
            let renamed = UnixListener::bind(&after).expect("it is free");
            fs::remove_file(before).expect("it is ours");
            drop((first, listener));
            let (mut stream, _) = renamed.accept().await.expect("it is connected to");
            super::super::greet(&mut stream, "0123456789abcdef").await.expect("they listen");
            let wish = super::super::read_request(&mut stream).await.expect("they want something");
            assert_eq!(wish, Wish::Stop);
            fs::remove_file(&after).expect("it is ours");
        });
        let daemons = Daemons { place, elsewhere: Vec::new(), log: None, launcher: Launcher::new() };
        assert_eq!(daemons.stop().await, (1, Vec::new()));
        ending.await.expect("no panic");
        fs::remove_dir_all(&directory).expect("it is ours");
    }
}
