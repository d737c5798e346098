//! The supervisor of one upstream: a separate process, so that it survives the death of the gateway.
//!
//! It starts the program, reports its end, and kills the tree when it is told to, when the program has ended,
//! or when the gateway is gone. `linux.rs` and `macos.rs` find and watch the tree. The shim has one thread
//! and no tokio, and takes about a megabyte per upstream.
//!
//! ```text
//! Running ── stop, signal, program ended, gateway gone ──▶ Ending (SIGTERM) ── grace over ──▶ Killing
//!                                                                                  (SIGKILL, repeated)
//! ```
//!
//! Invariant: phases only move forward, and the shim exits only when no process of the tree is left.
#![allow(unsafe_code, reason = "signals and descriptors have no safe interface in std")]

use std::ffi::c_int;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use super::unix::{Report, Stop, decode};
use super::{Exit, Launch};

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(any(target_os = "macos", test))]
mod tree;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "macos")]
use macos as system;

use system::Watch;

/// The shim's name in process lists.
pub(super) const NAME: &str = "mcp-upstream-shim";

/// The first argument that, together with the name, turns this executable into a shim.
pub(super) const ARGUMENT: &str = "--supervise";

/// The signals that ask the shim to end its tree.
const HEARD: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// The time between SIGTERM and SIGKILL if the gateway or the upstream is gone and nobody waits any longer.
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
    // A new session keeps the terminal's SIGINT away from upstreams, and keeps them from prompting on it.
    // SAFETY: concerns this process only, touches no memory; fails only for a leader of a group.
    unsafe { libc::setsid() };
    let watch = Watch::new()?;

    let mut lifeline = UnixStream::from(lifeline);
    let mut bytes = Vec::new();
    File::from(launch).read_to_end(&mut bytes)?;
    let started = decode(&bytes).ok_or(libc::EINVAL).and_then(|launch| start(&launch));
    drop(bytes);
    // From here on only the upstream holds its pipes, so the gateway sees when they close.
    let_go_of_stdio();
    let _ = std::env::set_current_dir("/");

    match started {
        Ok(main) => {
            // If the gateway does not hear this, it is gone, and the poll will report that.
            let _ = lifeline.write_all(&Report::Started(main.cast_unsigned()).encode());
            let mut supervisor =
                Supervisor { lifeline, watch, main, heard: Vec::new(), phase: Phase::Running };
            supervisor.watch.add(main);
            supervisor.run()
        }
        Err(errno) => lifeline.write_all(&Report::Ended(Exit::NotStarted(errno)).encode()),
    }
}

/// Starts the program and returns its process id, or the error number.
fn start(launch: &Launch) -> Result<c_int, i32> {
    let shim = std::process::id();
    #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
    let mut command = std::process::Command::new(&launch.program);
    // The program gets its own process group, so that a server that signals its group does not hit the shim.
    command.args(&launch.args).env_clear().envs(launch.env.iter().map(|(n, v)| (n, v))).process_group(0);
    if let Some(cwd) = &launch.cwd {
        command.current_dir(cwd);
    }
    if let Some(umask) = launch.umask {
        // SAFETY: concerns this process only, which makes no file, and touches no memory.
        unsafe { libc::umask(umask as libc::mode_t) };
    }
    // SAFETY: runs between fork and exec in a process of one thread; system calls only, no allocation.
    unsafe {
        command.pre_exec(move || {
            let mut none = MaybeUninit::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            for number in HEARD {
                libc::signal(number, libc::SIG_DFL);
            }
            system::die_with_parent()?;
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
    watch: Watch,
    /// The upstream's own process.
    main: c_int,
    /// Bytes from the lifeline that are not a whole message yet.
    heard: Vec<u8>,
    phase: Phase,
}

/// The phase of the supervision. Phases only move forward.
enum Phase {
    Running,
    /// SIGTERM was sent, and SIGKILL follows at this time.
    Ending(Instant),
    /// SIGKILL is sent repeatedly. The pause until the next round grows each time that nobody died.
    Killing(Duration),
}

impl Supervisor {
    /// Supervises until no process of the tree is left.
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
                    self.watch.victims().into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
                    *pause = (*pause * 2).min(Duration::from_millis(100));
                    Some(*pause)
                }
            };
            let lifeline = connected.then(|| self.lifeline.as_raw_fd());
            let woken = self.watch.wait(lifeline, wait)?;
            if woken.asked {
                self.end(BLINK);
            }
            if woken.lifeline {
                connected = self.listen();
            }
        }
        Ok(())
    }

    /// Reaps every child that has ended. Returns whether any process of the tree is left.
    fn reap(&mut self) -> bool {
        loop {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the result.
            match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
                0 => return true,
                -1 => return self.watch.others_left(),
                pid => {
                    self.watch.remove(pid);
                    if let Phase::Killing(pause) = &mut self.phase {
                        *pause = Duration::from_millis(1);
                    }
                    if pid == self.main {
                        let exit = match libc::WIFSIGNALED(status) {
                            true => Exit::Signal(libc::WTERMSIG(status)),
                            false => Exit::Code(libc::WEXITSTATUS(status)),
                        };
                        let _ = self.lifeline.write_all(&Report::Ended(exit).encode());
                        // If the tree is ending anyway, its other members keep the grace that they were
                        // given.
                        if matches!(self.phase, Phase::Running) {
                            self.end(BLINK);
                        }
                    }
                }
            }
        }
    }

    /// Asks every process of the tree to end, and records when to insist. Of several such times, the earliest
    /// counts.
    fn end(&mut self, grace: Duration) {
        let until = Instant::now() + grace;
        match &mut self.phase {
            Phase::Running => {
                // An id from deeper in the tree may be stale, but the system reuses it only after a whole
                // round of all ids, which takes far longer than these microseconds.
                for pid in self.watch.all() {
                    signal(pid, libc::SIGTERM);
                    signal(pid, libc::SIGCONT);
                }
                self.phase = Phase::Ending(until);
            }
            Phase::Ending(planned) => *planned = until.min(*planned),
            Phase::Killing(_) => {}
        }
    }

    /// Reads the lifeline. Returns whether it is still connected.
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
}

/// The reason why a wait ended. Neither is set if the time was over or the tree changed.
#[derive(Default)]
struct Woken {
    /// The lifeline has data, or was closed.
    lifeline: bool,
    /// A signal asks us to end.
    asked: bool,
}

fn signal(pid: c_int, signal: c_int) {
    // SAFETY: touches no memory of ours. That the process is gone already is fine.
    unsafe { libc::kill(pid, signal) };
}

/// Takes ownership of an inherited descriptor, and keeps it from being inherited further.
fn take(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: sets a flag, which also shows that the descriptor is open; nothing else in this process owns
    // it.
    unsafe {
        match libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Closes the descriptors that the gateway had inherited and passed on unknowingly, so that they do not reach
/// the upstream.
pub(super) fn close_all_but(keep: &[RawFd]) {
    let Ok(open) = fs::read_dir(system::DESCRIPTORS) else { return };
    let open: Vec<RawFd> =
        open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > libc::STDERR_FILENO && !keep.contains(fd)) {
        // SAFETY: nothing in this process owns a descriptor yet but those to keep; that of the listing is
        // closed already, which is an error that does not matter.
        unsafe { libc::close(fd) };
    }
}

/// Redirects stdin, stdout and stderr to `/dev/null`.
pub(super) fn let_go_of_stdio() {
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
