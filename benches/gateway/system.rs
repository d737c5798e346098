//! What the system knows of processes, and waiting for pipes.
#![allow(unsafe_code, reason = "fcntl, poll, limits, cores, sessions and signals")]

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Switches a pipe to non-blocking.
pub(crate) fn do_not_block(fd: BorrowedFd<'_>) {
    // SAFETY: sets a flag of a descriptor that is open, touches no memory.
    let done = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(done, 0, "a pipe can be switched");
}

/// Waits until one can be read, or the other, if any, written to.
pub(crate) fn wait(read: BorrowedFd<'_>, write: Option<BorrowedFd<'_>>) {
    let mut fds = [
        libc::pollfd { fd: read.as_raw_fd(), events: libc::POLLIN, revents: 0 },
        libc::pollfd { fd: write.map_or(-1, |fd| fd.as_raw_fd()), events: libc::POLLOUT, revents: 0 },
    ];
    // SAFETY: the pointer and the length are those of one array, which lives through the call.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, 60_000) };
    assert!(ready > 0, "an answer comes within a minute");
}

/// Waits until some can be read, and says which.
pub(crate) fn wait_any<'a>(read: impl Iterator<Item = BorrowedFd<'a>>) -> Vec<usize> {
    let ready = wait_any_for(read, Duration::from_secs(60));
    assert!(!ready.is_empty(), "an answer comes within a minute");
    ready
}

/// Waits so long until some can be read, and says which.
pub(crate) fn wait_any_for<'a>(read: impl Iterator<Item = BorrowedFd<'a>>, longest: Duration) -> Vec<usize> {
    let mut fds: Vec<_> =
        read.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    let longest = libc::timespec {
        tv_sec: longest.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(longest.subsec_nanos()),
    };
    // SAFETY: the pointer and the length are those of one vector, which lives through the call, as the time does.
    unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &longest, std::ptr::null()) };
    fds.iter().enumerate().filter(|(_, fd)| fd.revents != 0).map(|(at, _)| at).collect()
}

/// Lets this process and those that it starts have so many files open, or as many as they may.
pub(crate) fn raise_file_limit(wanted: usize) -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a value that lives through both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max.min(wanted as libc::rlim_t).max(limit.rlim_cur);
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// This process, and what it starts from now on, on one core; until it is dropped.
pub(crate) struct OneCore(libc::cpu_set_t);

impl OneCore {
    /// On the first core that this process may use.
    pub(crate) fn pin() -> Self {
        // SAFETY: all zeros is the empty set; the calls read and write sets that live through them.
        unsafe {
            let mut before: libc::cpu_set_t = std::mem::zeroed();
            let size = size_of::<libc::cpu_set_t>();
            assert_eq!(libc::sched_getaffinity(0, size, &mut before), 0, "there are cores");
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            let first = (0..libc::CPU_SETSIZE as usize).find(|core| libc::CPU_ISSET(*core, &before));
            libc::CPU_SET(first.expect("there is one"), &mut one);
            assert_eq!(libc::sched_setaffinity(0, size, &one), 0, "a core that we may use");
            Self(before)
        }
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // SAFETY: reads a set that lives through the call.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &self.0) };
    }
}

/// Processor time of a process so far, all threads that live.
pub(crate) fn cpu(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let times = tasks.flatten().map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
    });
    Duration::from_nanos(times.sum())
}

/// Memory of a process in KB.
#[derive(Clone, Copy, Default)]
pub(crate) struct Memory {
    /// Resident, shared pages in full.
    pub(crate) rss: f64,
    /// Resident, shared pages in parts.
    pub(crate) pss: f64,
    /// What no file stands behind.
    pub(crate) anonymous: f64,
    /// What no other process has.
    pub(crate) private: f64,
}

/// Memory of a process.
pub(crate) fn memory(pid: u32) -> Memory {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let field = |name: &str| field(name).unwrap_or(f64::NAN);
    Memory {
        rss: field("Rss:"),
        pss: field("Pss:"),
        anonymous: field("Anonymous:"),
        private: field("Private_Clean:") + field("Private_Dirty:"),
    }
}

/// A process and all that it started, and these.
pub(crate) fn tree(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        all.extend(children(*pid));
        at += 1;
    }
    all
}

/// Memory of a tree in KB, shared pages in parts.
pub(crate) fn memory_of_tree(pid: u32) -> f64 {
    tree(pid).into_iter().map(|pid| memory(pid).pss).filter(|pss| pss.is_finite()).sum()
}

/// How many daemons serve this directory.
pub(crate) fn daemons_in(directory: &Path) -> usize {
    let all = fs::read_dir("/proc").expect("there is one").flatten();
    let lines = all.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    let directory = directory.to_string_lossy();
    lines.filter(|line| line.contains("daemon-process") && line.contains(&*directory)).count()
}

/// Whether a process is there, and is no zombie.
pub(crate) fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Starts a program in a session of its own, as the daemon is: schedulers share the processors out by session.
pub(crate) fn own_session(command: &mut Command) -> &mut Command {
    // SAFETY: a system call between fork and exec that touches no memory.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        })
    }
}

/// Kills a process.
pub(crate) fn kill(pid: u32) {
    // SAFETY: sends a signal, touches no memory.
    let done = unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
    assert_eq!(done, 0, "it is ours");
}

/// The children of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("there is one").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|child| parent(*child) == Some(pid)).collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Kind and number of processors.
pub(crate) fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = std::thread::available_parallelism().map_or(0, |count| count.get());
    format!("{count} × {}", model.map_or("an unknown processor", |(_, model)| model))
}
