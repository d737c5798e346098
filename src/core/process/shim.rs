//! The supervisor of one upstream: a process of its own, so that it outlives a gateway that is killed.
//!
//! It is a *child subreaper*: whatever an upstream spawns, detached or not, becomes the shim's child once its
//! own parent is gone. To kill a whole tree it is therefore enough to kill the shim's children again and again
//! until the system says that there are none. Nothing can slip away in between, and no wrong process can be
//! hit, since the id of a child is not given to another process before the shim has reaped it.
//!
//! One thread, a poll over lifeline and signals, no tokio: about a megabyte for each upstream.
#![allow(unsafe_code, reason = "signals, descriptors and prctl have no safe interface in std")]

use std::ffi::c_int;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use super::linux::{Report, Stop, decode};
use super::{Exit, Launch};

/// What the shim is called in lists of processes.
pub(super) const NAME: &str = "mcp-upstream-shim";

/// The first argument that, together with the name, makes a shim of us.
pub(super) const ARGUMENT: &str = "--supervise";

/// Between SIGTERM and SIGKILL when nobody is there to wait longer: the gateway is gone, or the upstream.
const BLINK: Duration = Duration::from_millis(50);

/// Runs the shim and exits, if the arguments are those of a shim.
pub(super) fn run_if_asked() {
    let mut args = std::env::args_os();
    if args.next().is_none_or(|name| name != NAME) || args.next().is_none_or(|first| first != ARGUMENT) {
        return;
    }
    let mut descriptor = || args.next()?.to_str()?.parse::<RawFd>().ok();
    let status = match (descriptor(), descriptor()) {
        (Some(lifeline), Some(launch)) => run(lifeline, launch).map_or(1, |()| 0),
        _ => 2,
    };
    std::process::exit(status);
}

fn run(lifeline: RawFd, launch: RawFd) -> io::Result<()> {
    let (lifeline, launch) = (take(lifeline)?, take(launch)?);
    close_all_but(&[lifeline.as_raw_fd(), launch.as_raw_fd()]);
    // A terminal's SIGINT is not for upstreams, nor can they prompt on it.
    // SAFETY: concerns this process only, touches no memory; fails only for a leader of a group.
    unsafe { libc::setsid() };
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)?;
    prctl(libc::PR_SET_NAME, c"mcp-shim".as_ptr() as libc::c_ulong)?;
    let signals = take_over_signals()?;

    let mut lifeline = UnixStream::from(lifeline);
    let mut bytes = Vec::new();
    File::from(launch).read_to_end(&mut bytes)?;
    let started = decode(&bytes).ok_or(libc::EINVAL).and_then(|launch| start(&launch));
    drop(bytes);
    // From here on only the upstream holds its pipes: their ends are seen on the other side.
    let_go_of_stdio();
    let _ = std::env::set_current_dir("/");

    match started {
        Ok(main) => {
            // Who does not hear this is gone, and the poll will say so.
            let _ = lifeline.write_all(&Report::Started(main.cast_unsigned()).encode());
            Supervisor { lifeline, signals, main, heard: Vec::new(), phase: Phase::Running }.run()
        }
        Err(errno) => lifeline.write_all(&Report::Ended(Exit::NotStarted(errno)).encode()),
    }
}

/// Starts the program and returns its process id, or the error number.
fn start(launch: &Launch) -> Result<c_int, i32> {
    let shim = std::process::id();
    #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
    let mut command = std::process::Command::new(&launch.program);
    // A group of its own, so that a server that signals its group does not hit the shim.
    command.args(&launch.args).env_clear().envs(launch.env.iter().map(|(n, v)| (n, v))).process_group(0);
    if let Some(cwd) = &launch.cwd {
        command.current_dir(cwd);
    }
    // SAFETY: runs between fork and exec in a process of one thread; system calls only, no allocation.
    unsafe {
        command.pre_exec(move || {
            let mut none = MaybeUninit::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            // Should the shim itself be killed, at least the upstream's own process goes with it.
            prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)?;
            match std::os::unix::process::parent_id() == shim {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        });
    }
    match command.spawn() {
        Ok(child) => Ok(child.id().cast_signed()),
        Err(error) => Err(error.raw_os_error().unwrap_or(libc::EINVAL)),
    }
}

/// A running upstream, as the shim sees it.
struct Supervisor {
    lifeline: UnixStream,
    signals: File,
    /// The upstream's own process.
    main: c_int,
    /// What came over the lifeline and is not a whole message yet.
    heard: Vec<u8>,
    phase: Phase,
}

/// Phases only move forward.
enum Phase {
    Running,
    /// SIGTERM was sent; SIGKILL follows at that time.
    Ending(Instant),
    /// SIGKILL is sent to every child; the pause until the next round, longer each time that nobody died.
    Killing(Duration),
}

impl Supervisor {
    /// Returns when no process of the tree is left.
    fn run(mut self) -> io::Result<()> {
        let mut connected = true;
        while self.reap() {
            let now = Instant::now();
            if let Phase::Ending(until) = self.phase
                && now >= until
            {
                self.phase = Phase::Killing(Duration::from_millis(1));
            }
            let wait = match &mut self.phase {
                Phase::Running => None,
                Phase::Ending(until) => Some(*until - now),
                Phase::Killing(pause) => {
                    children_of(std::process::id().cast_signed())
                        .into_iter()
                        .for_each(|pid| signal(pid, libc::SIGKILL));
                    *pause = (*pause * 2).min(Duration::from_millis(100));
                    Some(*pause)
                }
            };
            let [lifeline, signals] =
                poll([connected.then(|| self.lifeline.as_raw_fd()), Some(self.signals.as_raw_fd())], wait)?;
            if signals && self.asked_by_signal() {
                self.end(BLINK);
            }
            if lifeline {
                connected = self.listen();
            }
        }
        Ok(())
    }

    /// Collects every child that has ended; whether any is left.
    fn reap(&mut self) -> bool {
        loop {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the result.
            match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
                0 => return true,
                -1 => return false,
                pid => {
                    if let Phase::Killing(pause) = &mut self.phase {
                        *pause = Duration::from_millis(1);
                    }
                    if pid == self.main {
                        let exit = match libc::WIFSIGNALED(status) {
                            true => Exit::Signal(libc::WTERMSIG(status)),
                            false => Exit::Code(libc::WEXITSTATUS(status)),
                        };
                        let _ = self.lifeline.write_all(&Report::Ended(exit).encode());
                        // While the tree ends anyway, its other members keep the grace they were given.
                        if matches!(self.phase, Phase::Running) {
                            self.end(BLINK);
                        }
                    }
                }
            }
        }
    }

    /// Asks every process of the tree to end, and notes when to insist. Asked again, the earlier time counts.
    fn end(&mut self, grace: Duration) {
        let until = Instant::now() + grace;
        match &mut self.phase {
            Phase::Running => {
                // An id found deeper in the tree may be stale; that it was given anew within microseconds would
                // take a whole round of all ids.
                for pid in descendants_of(std::process::id().cast_signed()) {
                    signal(pid, libc::SIGTERM);
                    signal(pid, libc::SIGCONT);
                }
                self.phase = Phase::Ending(until);
            }
            Phase::Ending(planned) => *planned = until.min(*planned),
            Phase::Killing(_) => {}
        }
    }

    /// Reads the lifeline; whether it still holds.
    fn listen(&mut self) -> bool {
        let mut buffer = [0; 16];
        match self.lifeline.read(&mut buffer) {
            Ok(0) => {}
            Ok(count) => {
                self.heard.extend_from_slice(&buffer[..count]);
                while let Some((message, rest)) = self.heard.split_first_chunk() {
                    let Stop(grace) = Stop::decode(*message);
                    self.heard = rest.to_vec();
                    self.end(grace);
                }
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(_) => {}
        }
        self.end(BLINK);
        false
    }

    /// Empties the signal queue; whether one of them asks us to end.
    fn asked_by_signal(&mut self) -> bool {
        let mut asked = false;
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        while let Ok(count) = self.signals.read(&mut info)
            && count == info.len()
        {
            // The number is the first field.
            asked |= info[..4] != libc::SIGCHLD.to_ne_bytes();
        }
        asked
    }
}

/// All processes below this one.
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

/// The processes whose parent this is. May miss some while processes come and go.
fn children_of(pid: c_int) -> Vec<c_int> {
    match fs::exists("/proc/thread-self/children") {
        Ok(true) => children_by_task(pid),
        _ => children_by_scan(pid),
    }
}

/// From the lists that the kernel keeps; not every kernel is built with them.
fn children_by_task(pid: c_int) -> Vec<c_int> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<c_int>().ok()));
    }
    found
}

/// From a look at every process there is.
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
    // `pid (name) state parent …`, where the name may hold anything.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn signal(pid: c_int, signal: c_int) {
    // SAFETY: touches no memory of ours. That the process is gone already is fine.
    unsafe { libc::kill(pid, signal) };
}

/// Owns a descriptor that was handed on, and keeps it from being handed on further.
fn take(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: sets a flag, which also shows that the descriptor is open; nothing else in this process owns it.
    unsafe {
        match libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Closes what the gateway had inherited and handed on unknowingly, so that it does not reach the upstream.
fn close_all_but(keep: &[RawFd]) {
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<RawFd> =
        open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > libc::STDERR_FILENO && !keep.contains(fd)) {
        // SAFETY: nothing in this process owns a descriptor yet but those to keep; that of the listing is
        // closed already, which is an error that does not matter.
        unsafe { libc::close(fd) };
    }
}

/// Blocks every signal and has those that matter arrive on a descriptor. Whatever the gateway's parent had
/// ignored is back to its default, so that it neither disturbs the reaping nor reaches the upstream.
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
        for number in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::sigaddset(heard.as_mut_ptr(), number);
        }
        libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
        match libc::signalfd(-1, heard.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

/// Replaces stdin, stdout and stderr by nothing.
fn let_go_of_stdio() {
    let null = File::options().read(true).write(true).open("/dev/null");
    for fd in libc::STDIN_FILENO..=libc::STDERR_FILENO {
        // SAFETY: the three are owned by nobody, and used by nobody but a panic's message.
        unsafe {
            match &null {
                Ok(null) => libc::dup2(null.as_raw_fd(), fd),
                Err(_) => libc::close(fd),
            }
        };
    }
}

/// Waits until a descriptor has something to read, or for that long; which ones have.
fn poll<const N: usize>(fds: [Option<RawFd>; N], wait: Option<Duration>) -> io::Result<[bool; N]> {
    // A negative descriptor is passed over.
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
