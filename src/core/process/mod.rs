//! Starts upstreams so that nothing they spawn outlives them, or us.
//!
//! [`Launcher::prepare`] turns a configured command into a [`Launch`]: the program looked up, the
//! environment built. [`Launcher::spawn`] runs it. From then on the whole tree of processes, however its
//! members detached themselves, ends with [`Control::stop`], with the drop of the [`Control`], with the
//! exit of the program itself, and with the death of the gateway, `kill -9` included.
//!
//! On Linux and macOS each upstream has a small supervisor, the shim, which is this very executable started
//! again: `main` calls [`run_shim_if_asked`] before anything else. On Windows it has a job object, which the
//! system closes with us.
//!
//! Invariant: no child outlives its task. Whoever drops a [`Control`] kills the tree.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::OnceCell;

use crate::config;

mod browser;
mod command;
mod login;
#[cfg(unix)]
mod shim;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

pub use browser::browse;
pub use command::CommandError;
pub use system::Control;

/// The pipe to an upstream's stdin.
#[cfg(unix)]
pub type Stdin = tokio::net::unix::pipe::Sender;
/// The pipe from an upstream's stdout.
#[cfg(unix)]
pub type Stdout = tokio::net::unix::pipe::Receiver;
/// The pipe from an upstream's stderr.
#[cfg(unix)]
pub type Stderr = tokio::net::unix::pipe::Receiver;

/// The pipe to an upstream's stdin.
#[cfg(windows)]
pub type Stdin = tokio::process::ChildStdin;
/// The pipe from an upstream's stdout.
#[cfg(windows)]
pub type Stdout = tokio::process::ChildStdout;
/// The pipe from an upstream's stderr.
#[cfg(windows)]
pub type Stderr = tokio::process::ChildStderr;

/// Starts upstreams. One for the whole process, since it remembers the login shell's `PATH`.
#[derive(Debug)]
pub struct Launcher {
    /// The executable that becomes the shim.
    shim: PathBuf,
    /// What the login shell said; `None` inside when it said nothing usable.
    login_path: OnceCell<Option<OsString>>,
}

impl Launcher {
    /// A launcher whose shims are the running executable itself; on Linux also after its file was replaced.
    pub fn new() -> Self {
        #[cfg(target_os = "linux")]
        let itself = PathBuf::from("/proc/self/exe");
        #[cfg(not(target_os = "linux"))]
        let itself = std::env::current_exe().unwrap_or_default();
        Self::with_shim(itself)
    }

    /// A launcher for executables whose `main` does not call [`run_shim_if_asked`]: tests, benchmarks.
    pub fn with_shim(shim: impl Into<PathBuf>) -> Self {
        Self { shim: shim.into(), login_path: OnceCell::new() }
    }

    /// Looks the program up and builds the environment. `vars` is our own environment, `directory` our
    /// working directory. Asks the login shell for its `PATH`, once, if ours does not have the program.
    pub async fn prepare(
        &self,
        command: &config::Command,
        vars: &[(OsString, OsString)],
        directory: &Path,
    ) -> Result<Launch, CommandError> {
        let login_path = || async { self.login_path.get_or_init(|| login::ask(self, vars)).await.clone() };
        command::prepare(command, vars, directory, login_path).await
    }

    /// Whether the program is found without the login shell.
    pub async fn finds_by_itself(
        &self,
        command: &config::Command,
        vars: &[(OsString, OsString)],
        directory: &Path,
    ) -> bool {
        command::prepare(command, vars, directory, || async { None }).await.is_ok()
    }

    /// Starts the program and returns at once; whether it could be executed is told by
    /// [`Control::started`] and [`Control::exited`]. Must be called inside a tokio runtime.
    pub fn spawn(&self, launch: &Launch) -> io::Result<Child> {
        system::spawn(&self.shim, launch)
    }
}

impl Default for Launcher {
    fn default() -> Self {
        Self::new()
    }
}

/// What to start: nothing is looked up or added any more.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// The file to execute.
    pub program: PathBuf,
    /// Its arguments, without its own name.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory; `None` is ours.
    pub cwd: Option<PathBuf>,
}

impl fmt::Debug for Launch {
    /// Names of variables only, and the number of arguments: the values may be secrets.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Launch")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish()
    }
}

/// A started upstream. The pipes lead straight to it: nothing stands between.
#[derive(Debug)]
pub struct Child {
    /// Closing it is the polite way to ask a server to end.
    pub stdin: Stdin,
    /// Ends when the last process that holds it is gone.
    pub stdout: Stdout,
    /// Must be drained, else the upstream blocks once it is full.
    pub stderr: Stderr,
    /// Holds the tree: dropping it kills everything.
    pub control: Control,
}

/// How an upstream's own process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// It never ran: the system's error number.
    NotStarted(i32),
    /// Its supervisor is gone without a word, and the upstream with it.
    Lost,
}

impl fmt::Display for Exit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(out, "exited with status {code}"),
            Self::Signal(signal) => match signal_name(signal) {
                Some(name) => write!(out, "was killed by {name}"),
                None => write!(out, "was killed by signal {signal}"),
            },
            Self::NotStarted(errno) => {
                write!(out, "could not be started: {}", io::Error::from_raw_os_error(errno))
            }
            Self::Lost => out.write_str("was killed, since its supervisor ended"),
        }
    }
}

/// Becomes the supervisor of an upstream, and does not return, if that is what this process was started
/// for. Call it first thing in `main`: the shim has no use for anything that comes later, and stays small.
pub fn run_shim_if_asked() {
    #[cfg(unix)]
    shim::run_if_asked();
}

#[cfg(unix)]
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL (by hand, or for want of memory)",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        _ => return None,
    })
}

#[cfg(windows)]
fn signal_name(_signal: i32) -> Option<&'static str> {
    None
}
