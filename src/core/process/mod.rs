//! Starts upstreams so that nothing they spawn outlives them, or us.
//!
//! [`Launcher::prepare`] turns a configured command into a [`Launch`]: it finds the program and builds the
//! environment. [`Launcher::spawn`] runs it. From then on the whole tree of processes, however its members
//! detached themselves, ends with [`Control::stop`], with the drop of the [`Control`], with the exit of the
//! program itself, and with the death of the gateway, `kill -9` included.
//!
//! On Linux and macOS each upstream has a small supervisor, the shim. It is this very executable started
//! again: `main` calls [`run_shim_if_asked`] before anything else. On Windows each upstream has a job object,
//! which the system closes with us.
//!
//! Invariant: no child outlives its task. Whoever drops a [`Control`] kills the tree.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::config;

mod browser;
mod command;
pub mod daemon;
mod git;
mod login;
mod memory;
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
pub use git::git_may_commit;
pub use memory::{
    ProcessTable, give_back, give_back_after_start, own_memory, own_use, trim_heap, use_one_heap,
};
pub use system::Control;

/// The variables of an environment. Everybody who needs those of a session holds the same ones.
pub type Variables = Arc<[(OsString, OsString)]>;

/// The pipe to an upstream's stdin.
#[cfg(unix)]
pub type Stdin = crate::transport::pipe::PipeWriter;
/// The pipe from an upstream's stdout.
#[cfg(unix)]
pub type Stdout = crate::transport::pipe::PipeReader;
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

/// Starts upstreams. There is one launcher per process, because it remembers the login shell's `PATH`.
#[derive(Debug)]
pub struct Launcher {
    /// The executable that becomes the shim.
    shim: PathBuf,
    /// The login shell's answer; the inner `None` means that it was not usable.
    login_path: OnceCell<Option<OsString>>,
}

impl Launcher {
    /// A launcher whose shims are the running executable itself. On Linux that works even after its file was
    /// replaced.
    pub fn new() -> Self {
        #[cfg(target_os = "linux")]
        let itself = PathBuf::from("/proc/self/exe");
        #[cfg(not(target_os = "linux"))]
        let itself = std::env::current_exe().unwrap_or_default();
        Self::with_shim(itself)
    }

    /// A launcher for executables whose `main` does not call [`run_shim_if_asked`], such as tests and
    /// benchmarks.
    pub fn with_shim(shim: impl Into<PathBuf>) -> Self {
        Self { shim: shim.into(), login_path: OnceCell::new() }
    }

    /// Finds the program and builds its environment. `vars` is our own environment, `directory` our working
    /// directory. If our `PATH` does not have the program, the login shell is asked for its own, once.
    pub async fn prepare(
        &self,
        command: &config::Command,
        vars: &[(OsString, OsString)],
        directory: &Path,
    ) -> Result<Launch, CommandError> {
        let login_path = || async { self.login_path.get_or_init(|| login::ask(self, vars)).await.clone() };
        command::prepare(command, vars, directory, login_path).await
    }

    /// Whether the program can be found without asking the login shell.
    pub async fn finds_by_itself(
        &self,
        command: &config::Command,
        vars: &[(OsString, OsString)],
        directory: &Path,
    ) -> bool {
        command::prepare(command, vars, directory, || async { None }).await.is_ok()
    }

    /// Starts the program and returns at once. [`Control::started`] and [`Control::exited`] tell whether it
    /// could be executed. Must be called inside a tokio runtime.
    pub fn spawn(&self, launch: &Launch) -> io::Result<Child> {
        system::spawn(&self.shim, launch)
    }
}

impl Default for Launcher {
    fn default() -> Self {
        Self::new()
    }
}

/// A command that is ready to start; nothing is looked up or added any more.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// The file to execute.
    pub program: PathBuf,
    /// The arguments, without the program's name.
    pub args: Vec<String>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory; `None` means ours.
    pub cwd: Option<PathBuf>,
    /// The umask; `None` means ours.
    pub umask: Option<u32>,
}

impl fmt::Debug for Launch {
    /// Shows the names of variables and the number of arguments only, because the values may be secrets.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Launch")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .field("umask", &self.umask)
            .finish()
    }
}

/// A started upstream. Its pipes lead straight to it, with nothing in between.
#[derive(Debug)]
pub struct Child {
    /// Closing it politely asks a server to end.
    pub stdin: Stdin,
    /// It ends when the last process that holds it is gone.
    pub stdout: Stdout,
    /// It must be drained, or else the upstream blocks once the pipe is full.
    pub stderr: Stderr,
    /// The tree of processes. Dropping it kills everything.
    pub control: Control,
}

/// How an upstream's own process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process exited with this status.
    Code(i32),
    /// This signal killed the process.
    Signal(i32),
    /// The process never ran, because of this system error.
    NotStarted(i32),
    /// The supervisor disappeared without a report, and the upstream with it.
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

/// The variables that a server gets from an environment if its entry names these besides the usual ones.
pub fn inherited(vars: &[(OsString, OsString)], names: &[String]) -> Vec<(OsString, OsString)> {
    command::environment(vars, names, &[])
}

/// Turns this process into the supervisor of an upstream, if it was started as one, and does not return then.
/// Call it first in `main`, because the shim must stay small and needs nothing that comes later.
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
        libc::SIGKILL => "SIGKILL (by hand, or because memory ran out)",
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
