//! The process tree on Linux.
//!
//! The shim is a *child subreaper*: whatever an upstream spawns, detached or not, becomes the shim's child
//! once its own parent is gone. To kill a whole tree, it is therefore enough to kill the shim's children
//! again and again until the system reports none. Nothing can escape in between, and no wrong process can be
//! hit, because the id of a child is not reused before the shim has reaped it.

use std::ffi::c_int;
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::Duration;

use super::{HEARD, Woken};

/// Lists the descriptors of the process that reads it.
pub(super) const DESCRIPTORS: &str = "/proc/self/fd";

/// The events that the shim waits for.
pub(super) struct Watch {
    signals: File,
}

impl Watch {
    /// Adopts orphans of the tree from now on, and lets signals wait until they are read.
    pub(super) fn new() -> io::Result<Self> {
        prctl(libc::PR_SET_CHILD_SUBREAPER, 1)?;
        prctl(libc::PR_SET_NAME, c"mcp-shim".as_ptr() as libc::c_ulong)?;
        Ok(Self { signals: take_over_signals()? })
    }

    /// Does nothing, because the kernel knows who belongs to the tree.
    pub(super) fn add(&mut self, _pid: c_int) {}

    /// Does nothing; see [`Watch::add`].
    pub(super) fn remove(&mut self, _pid: c_int) {}

    /// Whether the tree has members that are not below us. On Linux that never happens.
    pub(super) fn others_left(&mut self) -> bool {
        false
    }

    /// Every process of the tree.
    pub(super) fn all(&mut self) -> Vec<c_int> {
        descendants_of(std::process::id().cast_signed())
    }

    /// The processes to kill in the next round: those whose ids cannot have been reused.
    pub(super) fn victims(&mut self) -> Vec<c_int> {
        children_of(std::process::id().cast_signed())
    }

    /// Waits for the lifeline, for a signal, or until `wait` is over.
    pub(super) fn wait(&mut self, lifeline: Option<RawFd>, wait: Option<Duration>) -> io::Result<Woken> {
        let [lifeline, signals] = poll([lifeline, Some(self.signals.as_raw_fd())], wait)?;
        Ok(Woken { lifeline, asked: signals && self.asked_by_signal() })
    }

    /// Empties the signal queue. Returns whether a signal asks us to end.
    fn asked_by_signal(&mut self) -> bool {
        let mut asked = false;
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        while let Ok(count) = self.signals.read(&mut info)
            && count == info.len()
        {
            // The signal's number is the first field.
            asked |= info[..4] != libc::SIGCHLD.to_ne_bytes();
        }
        asked
    }
}

/// Makes the kernel kill this process when the shim is killed, so that at least the upstream's own process
/// dies with it. Runs between fork and exec.
pub(super) fn die_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
}

/// All descendants of a process.
fn descendants_of(pid: c_int) -> Vec<c_int> {
    let mut found = children_of(pid);
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        let children = children_of(*pid);
        found.extend(children);
        next += 1;
    }
    found
}

/// The children of a process. Some may be missed while processes come and go.
fn children_of(pid: c_int) -> Vec<c_int> {
    match fs::exists("/proc/thread-self/children") {
        Ok(true) => children_by_task(pid),
        _ => children_by_scan(pid),
    }
}

/// The children from the kernel's own lists, which not every kernel has.
fn children_by_task(pid: c_int) -> Vec<c_int> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<c_int>().ok()));
    }
    found
}

/// The children from a scan of all processes.
fn children_by_scan(parent: c_int) -> Vec<c_int> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|process| process.file_name().to_str()?.parse::<c_int>().ok())
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect()
}

fn parent_of(pid: c_int) -> Option<c_int> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The format is `pid (name) state parent …`, where the name may contain anything.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Blocks every signal and delivers the ones that matter on a descriptor. Signals that the gateway's parent
/// had ignored are reset to their default, so that this neither disturbs the reaping nor reaches the
/// upstream.
fn take_over_signals() -> io::Result<File> {
    let mut all = MaybeUninit::uninit();
    let mut heard = MaybeUninit::uninit();
    // SAFETY: both sets are initialised before they are used; no handler of ours is replaced; the descriptor
    // is checked, and then owned by nobody else.
    unsafe {
        for number in 1..=libc::SIGRTMAX() {
            libc::signal(number, libc::SIG_DFL);
        }
        libc::sigfillset(all.as_mut_ptr());
        libc::sigemptyset(heard.as_mut_ptr());
        for number in HEARD.into_iter().chain([libc::SIGCHLD]) {
            libc::sigaddset(heard.as_mut_ptr(), number);
        }
        libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
        match libc::signalfd(-1, heard.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

/// Waits until a descriptor is readable, or until `wait` is over. Returns which ones are.
fn poll<const N: usize>(fds: [Option<RawFd>; N], wait: Option<Duration>) -> io::Result<[bool; N]> {
    // `poll` ignores negative descriptors.
    let mut polled = fds.map(|fd| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 });
    let millis = wait.map_or(-1, |wait| wait.as_micros().div_ceil(1000).try_into().unwrap_or(c_int::MAX));
    // SAFETY: the pointer and the length are those of one array, which lives through the call.
    match unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, millis) } {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
            error => Err(error),
        },
        _ => Ok(polled.map(|polled| polled.revents != 0)),
    }
}

fn prctl(option: c_int, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take a number, or a C string that lives for ever.
    match unsafe { libc::prctl(option, value, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_find_children_agree() {
        #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
        let mut parent = std::process::Command::new("/bin/sh")
            .args(["-c", "sleep 1000 & a=$!; sleep 1000 & b=$!; echo up; read _; kill $a $b; wait"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        parent.stdout.take().unwrap().read_exact(&mut [0; 3]).unwrap();
        let pid = parent.id().cast_signed();

        let mut by_scan = children_by_scan(pid);
        by_scan.sort_unstable();
        assert_eq!(by_scan.len(), 2);
        if fs::exists("/proc/thread-self/children").unwrap() {
            let mut by_task = children_by_task(pid);
            by_task.sort_unstable();
            assert_eq!(by_task, by_scan);
        }
        assert_eq!(descendants_of(pid).len(), 2);
        assert!(descendants_of(std::process::id().cast_signed()).contains(&by_scan[0]));

        drop(parent.stdin.take());
        parent.wait().unwrap();
        assert!(children_of(pid).is_empty());
    }
}
