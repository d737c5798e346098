//! The daemon as a process on Unix: started by a relay, of which it keeps nothing but a listener and a lock.
#![allow(unsafe_code, reason = "sessions, limits and inherited descriptors have no safe interface in std")]

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use super::super::Launcher;
use super::super::shim::{close_all_but, let_go_of_stdio};

/// The daemon's name in process lists.
const NAME: &str = "mcp-workbench-daemon";

/// Starts this very executable with these arguments as the daemon. It gets the listener and the lock.
pub fn start(
    launcher: &Launcher,
    arguments: &[OsString],
    listener: UnixListener,
    lock: File,
) -> io::Result<()> {
    #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
    let mut command = std::process::Command::new(&launcher.shim);
    command
        .arg0(NAME)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::from(lock))
        .stderr(Stdio::null());
    // SAFETY: runs between fork and exec, where only async-signal-safe calls are allowed; these are, and
    // nothing is allocated. The process between the starter and the daemon ends here, so that the daemon
    // belongs to nobody.
    unsafe {
        command.pre_exec(|| {
            let mut none = MaybeUninit::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            libc::umask(0o077);
            libc::setsid();
            match libc::fork() {
                -1 => Err(io::Error::last_os_error()),
                0 => Ok(()),
                _ => libc::_exit(0),
            }
        });
    }
    command.spawn()?.wait().map(drop)
}

/// Takes over what [`start`] handed on, and lets go of everything else that was inherited. To be called once,
/// first in the daemon.
pub fn take_over() -> io::Result<(UnixListener, File)> {
    // The two are copied before their numbers are given to `/dev/null`.
    let copy = |fd| {
        // SAFETY: makes a new descriptor that nobody else owns; the result is checked.
        match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: it was made just now.
            fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        }
    };
    close_all_but(&[]);
    let (listener, lock) = (copy(libc::STDIN_FILENO)?, copy(libc::STDOUT_FILENO)?);
    let_go_of_stdio();
    Ok((listener.into(), lock.into()))
}

/// Allows this process, and the servers that it starts, as many open files as the system grants.
pub fn raise_open_files() {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the place for the result is valid, and is read only if it was written.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) != 0 {
            return;
        }
        let mut limit = limit.assume_init();
        limit.rlim_cur = limit.rlim_max;
        // macOS accepts no more than this, whatever the limit says.
        #[cfg(target_os = "macos")]
        {
            limit.rlim_cur = limit.rlim_cur.min(10_240);
        }
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

/// The user that this process acts for.
pub fn user() -> u32 {
    // SAFETY: reads a number of this process and cannot fail.
    unsafe { libc::geteuid() }
}

/// This process's umask. To be called while there is one thread, since it can be read only by setting it.
pub fn umask() -> Option<u32> {
    // SAFETY: concerns this process only, and is undone at once.
    unsafe {
        let umask = libc::umask(0o077);
        libc::umask(umask);
        #[allow(clippy::useless_conversion, reason = "macOS has smaller ones")]
        Some(umask.into())
    }
}
