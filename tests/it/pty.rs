//! A program on a terminal: a person's keyboard and screen, as a pseudo-terminal.

#![allow(unsafe_code, reason = "a terminal has to be made and given to the child")]
#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::harness::DEADLINE;

/// Columns of the terminal.
pub(crate) const WIDTH: u16 = 80;

/// Which streams of a program are the terminal; the others are pipes.
#[derive(Clone, Copy)]
pub(crate) struct Streams {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

/// Somebody who sits at it.
pub(crate) const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true };

/// Its output goes to another program: `list | head`.
pub(crate) const PIPED: Streams = Streams { stdin: true, stdout: false, stderr: true };

/// A program on a terminal of its own.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    /// All that was shown so far, and how much of it has been waited for.
    shown: String,
    seen: usize,
    pipes: [Option<JoinHandle<String>>; 2],
}

/// How a program has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// What the terminal got, escapes included.
    pub(crate) shown: String,
    /// What went into the pipes.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Terminal {
    pub(crate) fn start(mut command: Command, streams: Streams) -> Self {
        let (ours, theirs) = open();
        let stream = |terminal: bool, otherwise: fn() -> Stdio| match terminal {
            true => Stdio::from(theirs.try_clone().expect("a terminal")),
            false => otherwise(),
        };
        command
            .stdin(stream(streams.stdin, Stdio::null))
            .stdout(stream(streams.stdout, Stdio::piped))
            .stderr(stream(streams.stderr, Stdio::piped));
        let number = std::os::fd::AsRawFd::as_raw_fd(&theirs);
        // SAFETY: all calls are allowed between fork and exec; the descriptor is open until the command is dropped.
        unsafe {
            command.pre_exec(move || {
                // A session of its own, so that the terminal's keys send it signals.
                if libc::setsid() < 0 || libc::ioctl(number, libc::TIOCSCTTY as _, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                // Who runs the tests in the background may ignore it, and that is inherited.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut child = command.spawn().expect("the program starts");
        drop((command, theirs));
        let mut reader = ours.try_clone().expect("a terminal");
        let (send, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // It is an error when nobody is left on the other side.
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        let pipes = [child.stdout.take().map(collect), child.stderr.take().map(collect)];
        Self { child, keyboard: ours, screen, shown: String::new(), seen: 0, pipes }
    }

    /// Waits until this is shown, after all that was waited for before.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> &mut Self {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(at) = self.shown[self.seen..].find(text) {
                self.seen += at + text.len();
                return self;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(why) => panic!("{text:?} is not shown ({why}): {:?}", self.shown),
            }
        }
    }

    /// What follows on the line of what was waited for last.
    #[track_caller]
    pub(crate) fn rest_of_line(&mut self) -> String {
        let from = self.seen;
        self.wait_for("\n");
        self.shown[from..self.seen].trim_end().to_owned()
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) -> &mut Self {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal takes keys");
        self
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let end = Instant::now() + DEADLINE;
        loop {
            match self.screen.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    panic!("it does not end: {:?}", self.shown);
                }
            }
        }
        let status = self.child.wait().expect("it is our child");
        let [stdout, stderr] =
            self.pipes.map(|pipe| pipe.map_or_else(String::new, |pipe| pipe.join().expect("no panic")));
        Ended { code: status.code(), signal: status.signal(), shown: self.shown, stdout, stderr }
    }
}

/// Both ends of a new terminal.
fn open() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: WIDTH, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointers are to live values or null; the descriptors are new and ours alone.
    unsafe {
        let made = libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            (&raw const size).cast_mut(),
        );
        assert_eq!(made, 0, "a terminal");
        // Children of other tests must not hold it open.
        for descriptor in [ours, theirs] {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
