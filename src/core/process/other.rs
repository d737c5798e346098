//! Systems without the shim: a process group where there are some, else the process alone.
//!
//! What detaches itself from its group survives here; so does everything after `kill -9` of the gateway,
//! except that upstreams see the end of their stdin.
#![cfg_attr(unix, allow(unsafe_code, reason = "kill of a process group"))]

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use super::{Child, Exit, Launch};

/// Starts the program. There is no shim.
pub(super) fn spawn(_shim: &Path, launch: &Launch) -> io::Result<Child> {
    #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
    let mut command = tokio::process::Command::new(&launch.program);
    command
        .args(&launch.args)
        .env_clear()
        .envs(launch.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(cwd) = &launch.cwd {
        command.current_dir(cwd);
    }
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command.spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("a pipe is missing"));
    };
    let pid = child.id().unwrap_or_default();
    let control = Control { child, pid, exit: None };
    #[cfg(unix)]
    return Ok(Child {
        stdin: super::Stdin::from_owned_fd(stdin.into_owned_fd()?)?,
        stdout: super::Stdout::from_owned_fd(stdout.into_owned_fd()?)?,
        stderr: super::Stderr::from_owned_fd(stderr.into_owned_fd()?)?,
        control,
    });
    #[cfg(not(unix))]
    return Ok(Child { stdin, stdout, stderr, control });
}

/// Holds an upstream's processes. Dropping it kills them.
#[derive(Debug)]
pub struct Control {
    child: tokio::process::Child,
    /// Also the id of the group.
    pid: u32,
    exit: Option<Exit>,
}

impl Control {
    /// The process id of the running program.
    pub async fn started(&mut self) -> Result<u32, Exit> {
        Ok(self.pid)
    }

    /// Resolves as soon as the program's own process has ended. May be dropped and asked again.
    pub async fn exited(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let exit = self.child.wait().await.map_or(Exit::Lost, how);
        self.exit = Some(exit);
        self.signal_group(Signal::Kill);
        exit
    }

    /// Asks the group to end, kills what is left of it after the grace, and resolves when the program's own
    /// process is gone.
    pub async fn stop(mut self, grace: Duration) {
        self.signal_group(Signal::Term);
        if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
            self.signal_group(Signal::Kill);
            // Kills and waits, also where there are no groups.
            let _ = self.child.kill().await;
        }
    }

    #[cfg(unix)]
    fn signal_group(&self, signal: Signal) {
        let number = match signal {
            Signal::Term => libc::SIGTERM,
            Signal::Kill => libc::SIGKILL,
        };
        if let Ok(group) = i32::try_from(self.pid)
            && group > 1
        {
            // SAFETY: touches no memory of ours; the group was made for this upstream.
            unsafe { libc::kill(-group, number) };
        }
    }

    #[cfg(not(unix))]
    fn signal_group(&self, _signal: Signal) {}
}

impl Drop for Control {
    fn drop(&mut self) {
        self.signal_group(Signal::Kill);
    }
}

#[derive(Clone, Copy)]
enum Signal {
    Term,
    Kill,
}

fn how(status: ExitStatus) -> Exit {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Exit::Signal(signal);
    }
    status.code().map_or(Exit::Lost, Exit::Code)
}
