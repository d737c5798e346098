//! The gateway's side of the shim: starts it, hears its reports, and tells it to stop.
//!
//! The two are connected by a socket, the lifeline. Only the shim holds the other end, so the closing of our
//! end, by a drop or by the death of the gateway, always reaches the shim.
#![allow(unsafe_code, reason = "memfd_create, kill, and fcntl between fork and exec")]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
#[cfg(target_os = "linux")]
use std::os::fd::FromRawFd;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{Child, Exit, Launch, Stderr, Stdin, Stdout, shim};

/// Starts a shim, which starts the program. The launch is passed in an unnamed file instead of arguments, so
/// that the shim's own command line and environment reveal nothing about the upstream.
pub(super) fn spawn(shim: &Path, launch: &Launch) -> io::Result<Child> {
    let (lifeline, shims_end) = Socket::pair()?;
    let launch = nameless_file(&encode(launch)?)?;
    let (its_stdin, stdin) = io::pipe()?;
    let (stdout, its_stdout) = io::pipe()?;
    let (stderr, its_stderr) = io::pipe()?;

    #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
    let mut command = std::process::Command::new(shim);
    let handed_on = [shims_end.as_raw_fd(), launch.as_raw_fd()];
    command
        .arg0(shim::NAME)
        .arg(shim::ARGUMENT)
        .args(handed_on.map(|fd| fd.to_string()))
        .env_clear()
        .stdin(Stdio::from(its_stdin))
        .stdout(Stdio::from(its_stdout))
        .stderr(Stdio::from(its_stderr));
    // SAFETY: runs between fork and exec, where only async-signal-safe calls are allowed; fcntl is one, and
    // nothing is allocated.
    unsafe { command.pre_exec(move || handed_on.iter().try_for_each(|fd| survive_exec(*fd))) };

    let shim = tokio::process::Command::from(command).spawn()?;
    lifeline.set_nonblocking(true)?;
    Ok(Child {
        stdin: Stdin::new(stdin.into())?,
        stdout: Stdout::new(stdout.into())?,
        stderr: Stderr::from_owned_fd(stderr.into())?,
        control: Control {
            lifeline: UnixStream::from_std(lifeline)?,
            shim: Some(shim),
            report: [0; REPORT],
            filled: 0,
            pid: None,
            shown_pid: Arc::default(),
            exit: None,
        },
    })
}

/// Holds a process tree. Dropping it ends the tree: SIGTERM, a short pause, SIGKILL.
#[derive(Debug)]
pub struct Control {
    lifeline: UnixStream,
    /// The shim; `None` once another task waits for it.
    shim: Option<tokio::process::Child>,
    /// The part of a report that has arrived. It is kept here so that a dropped wait loses nothing.
    report: [u8; REPORT],
    filled: usize,
    pid: Option<u32>,
    /// The process id for whoever else wants it; 0 until it is known.
    shown_pid: Arc<AtomicU32>,
    exit: Option<Exit>,
}

impl Control {
    /// Where the process id stands as soon as it is known, and 0 before that.
    pub fn pid_cell(&self) -> Arc<AtomicU32> {
        self.shown_pid.clone()
    }

    /// Resolves to the process id as soon as the program runs, or to an error if it could not be executed.
    pub async fn started(&mut self) -> Result<u32, Exit> {
        loop {
            match (self.pid, self.exit) {
                (Some(pid), _) => return Ok(pid),
                (None, Some(exit)) => return Err(exit),
                (None, None) => self.hear().await,
            }
        }
    }

    /// Resolves as soon as the program's own process has ended; the shim kills the rest of the tree by
    /// itself. The future may be dropped and requested again.
    pub async fn exited(&mut self) -> Exit {
        loop {
            match self.exit {
                Some(exit) => return exit,
                None => self.hear().await,
            }
        }
    }

    /// Sends SIGTERM to the whole tree, SIGKILL to whatever is left after the grace, and resolves when
    /// nothing is left. Dropping the future cuts the grace short.
    pub async fn stop(mut self, grace: Duration) {
        // The socket's buffer is empty, so this does not wait; it fails only if the shim is gone.
        let _ = self.lifeline.write_all(&Stop(grace).encode()).await;
        if let Some(shim) = &mut self.shim
            && let Err(error) = shim.wait().await
        {
            tracing::warn!("waiting for the supervisor of an upstream: {error}");
        }
    }

    async fn hear(&mut self) {
        match self.lifeline.read(&mut self.report[self.filled..]).await {
            Ok(0) | Err(_) => self.lose(),
            Ok(count) => self.filled += count,
        }
        if self.filled == REPORT {
            self.filled = 0;
            match Report::decode(self.report) {
                Some(Report::Started(pid)) => {
                    self.pid = Some(pid);
                    self.shown_pid.store(pid, Ordering::Relaxed);
                }
                Some(Report::Ended(exit)) => self.exit = Some(exit),
                None => self.lose(),
            }
        }
    }

    /// Handles a shim that disappeared without a report. On Linux the kernel ends the upstream with it;
    /// elsewhere we end at least the upstream's process group.
    fn lose(&mut self) {
        self.exit = Some(Exit::Lost);
        #[cfg(not(target_os = "linux"))]
        if let Some(group) = self.pid.and_then(|pid| i32::try_from(pid).ok()).filter(|group| *group > 1) {
            // SAFETY: touches no memory of ours; the group was made for this upstream.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
    }
}

impl Drop for Control {
    /// The lifeline closes with its field. The shim ends a moment later and is awaited in the background, so
    /// that it does not remain as a zombie.
    fn drop(&mut self) {
        if let Some(mut shim) = self.shim.take()
            && !matches!(shim.try_wait(), Ok(Some(_)))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { shim.wait().await });
        }
    }
}

/// The size of a [`Report`] in bytes.
pub(super) const REPORT: usize = 5;

/// A message from the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The program is running with this process id.
    Started(u32),
    /// The program's process ended, or never started.
    Ended(Exit),
}

impl Report {
    pub(super) fn encode(self) -> [u8; REPORT] {
        let (kind, value) = match self {
            Self::Started(pid) => (b'S', pid.cast_signed()),
            Self::Ended(Exit::Code(code)) => (b'C', code),
            Self::Ended(Exit::Signal(signal)) => (b'K', signal),
            Self::Ended(Exit::NotStarted(errno)) => (b'F', errno),
            Self::Ended(Exit::Lost) => (b'L', 0),
        };
        let [a, b, c, d] = value.to_le_bytes();
        [kind, a, b, c, d]
    }

    fn decode([kind, a, b, c, d]: [u8; REPORT]) -> Option<Self> {
        let value = i32::from_le_bytes([a, b, c, d]);
        Some(match kind {
            b'S' => Self::Started(value.cast_unsigned()),
            b'C' => Self::Ended(Exit::Code(value)),
            b'K' => Self::Ended(Exit::Signal(value)),
            b'F' => Self::Ended(Exit::NotStarted(value)),
            b'L' => Self::Ended(Exit::Lost),
            _ => return None,
        })
    }
}

/// The only message from the gateway: end the tree, with this grace between SIGTERM and SIGKILL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stop(pub(super) Duration);

impl Stop {
    /// The size of a `Stop` in bytes.
    pub(super) const SIZE: usize = 4;

    pub(super) fn encode(&self) -> [u8; Self::SIZE] {
        u32::try_from(self.0.as_millis()).unwrap_or(u32::MAX).to_le_bytes()
    }

    pub(super) fn decode(bytes: [u8; Self::SIZE]) -> Self {
        Self(Duration::from_millis(u32::from_le_bytes(bytes).into()))
    }
}

/// Encodes the launch as strings that each end with a zero byte: umask and working directory (empty for none),
/// program, number of arguments, the arguments, then names and values of the environment in turn.
fn encode(launch: &Launch) -> io::Result<Vec<u8>> {
    let count = launch.args.len().to_string();
    let umask = launch.umask.map(|umask| umask.to_string()).unwrap_or_default();
    let head = [
        umask.as_bytes(),
        launch.cwd.as_deref().map_or(&b""[..], |cwd| cwd.as_os_str().as_bytes()),
        launch.program.as_os_str().as_bytes(),
        count.as_bytes(),
    ];
    let env = launch.env.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    let mut bytes = Vec::new();
    for field in head.into_iter().chain(launch.args.iter().map(String::as_bytes)).chain(env) {
        if field.contains(&0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the command, its arguments or its environment contain a zero byte",
            ));
        }
        bytes.extend_from_slice(field);
        bytes.push(0);
    }
    Ok(bytes)
}

/// The inverse of [`encode`]; `None` if the bytes do not come from it.
pub(super) fn decode(bytes: &[u8]) -> Option<Launch> {
    let mut fields = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
    let umask = str::from_utf8(fields.next()?).ok().filter(|umask| !umask.is_empty());
    let umask = umask.map_or(Some(None), |umask| umask.parse().ok().map(Some))?;
    let cwd = Some(fields.next()?).filter(|cwd| !cwd.is_empty()).map(|cwd| PathBuf::from(os_string(cwd)));
    let program = PathBuf::from(os_string(fields.next()?));
    let count: usize = str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let args: Vec<_> =
        fields.by_ref().take(count).map_while(|arg| String::from_utf8(arg.to_vec()).ok()).collect();
    let mut env = Vec::new();
    while let Some(name) = fields.next() {
        env.push((os_string(name), os_string(fields.next()?)));
    }
    (args.len() == count).then_some(Launch { program, args, env, cwd, umask })
}

fn os_string(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// A file that only processes which inherit it can read.
fn nameless_file(content: &[u8]) -> io::Result<File> {
    let mut file = empty_file()?;
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(target_os = "linux")]
fn empty_file() -> io::Result<File> {
    // SAFETY: the name is a valid C string; the result is checked, and then owned by nobody else.
    unsafe {
        match libc::memfd_create(c"launch".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

/// A file that has a name only for a moment, in a directory where nobody else can remove it, and that nobody
/// else can open.
#[cfg(not(target_os = "linux"))]
fn empty_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let path = format!("/tmp/mcp-workbench-{:032x}", u128::from_ne_bytes(random));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Clears close-on-exec. This is done in the forked child only: the flag belongs to a process, so no child
/// that another thread forks at the same moment inherits the descriptor.
fn survive_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: sets a flag of a descriptor, touches no memory.
    match unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_and_launches_survive_the_journey() {
        for exit in [Exit::Code(-1), Exit::Code(255), Exit::Signal(9), Exit::NotStarted(2), Exit::Lost] {
            let report = Report::Ended(exit);
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        let report = Report::Started(4_194_304);
        assert_eq!(Report::decode(report.encode()), Some(report));
        assert_eq!(Report::decode(*b"?1234"), None);

        let stop = Stop(Duration::from_millis(1500));
        assert_eq!(Stop::decode(stop.encode()), stop);

        let env = |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| (n.into(), v.into())).collect();
        let odd = OsString::from_vec(b"/\xff".to_vec());
        let launches = [
            Launch { program: "/bin/true".into(), args: vec![], env: vec![], cwd: None, umask: None },
            Launch {
                program: odd.clone().into(),
                args: vec!["".into(), "ä\n".into(), "".into()],
                env: env(&[("A", ""), ("", "B"), ("C", "")]),
                cwd: Some(odd.into()),
                umask: Some(0o27),
            },
        ];
        for launch in launches {
            assert_eq!(decode(&encode(&launch).unwrap()), Some(launch));
        }
        for broken in [
            &b""[..],
            b"\0",
            b"\0\0/bin/true\0",
            b"\0\0/bin/true\x002\0one\0",
            b"\0\0/p\x000\0NAME\0",
            b"x\0\0/p\x000\0",
        ] {
            assert_eq!(decode(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn a_zero_byte_is_refused() {
        let launch = Launch {
            program: "/bin/true".into(),
            args: vec!["a\0b".into()],
            env: vec![],
            cwd: None,
            umask: None,
        };
        assert_eq!(encode(&launch).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
