//! Descendants that do not want to die: they leave the session and ignore every signal that can be ignored.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// The first argument of a descendant; its marker and how many generations follow are the others.
pub(crate) const FLAG: &str = "--stubborn-descendant";

/// Spawns descendants and returns when all of them are as stubborn as they get.
///
/// They keep this process's stdout open, as careless programs do.
pub(crate) fn spawn(count: usize, marker: &str) {
    let children: Vec<_> = (0..count).map(|_| descend(marker, 1)).collect();
    children.into_iter().for_each(await_ready);
}

/// The life of a descendant.
pub(crate) fn live(marker: &str, depth: &str) -> ! {
    leave_session();
    ignore_signals();
    if let Ok(depth @ 1..) = depth.parse::<u32>() {
        await_ready(descend(marker, depth - 1));
    }
    eprintln!("ready");
    loop {
        std::thread::park();
    }
}

#[allow(clippy::disallowed_methods, reason = "a fake has no process module")]
fn descend(marker: &str, depth: u32) -> std::process::Child {
    std::process::Command::new(std::env::current_exe().expect("this program"))
        .args([FLAG, marker, &depth.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program runs")
}

fn await_ready(mut child: std::process::Child) {
    let stderr = child.stderr.take().expect("it is piped");
    BufReader::new(stderr).read_line(&mut String::new()).expect("a line");
}

#[cfg(unix)]
#[allow(unsafe_code, reason = "std cannot leave a session")]
fn leave_session() {
    // SAFETY: takes no arguments and touches no memory.
    unsafe { libc::setsid() };
}

/// Ignores what can be ignored.
#[cfg(unix)]
#[allow(unsafe_code, reason = "std cannot ignore signals")]
pub(crate) fn ignore_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: `SIG_IGN` is no function of ours, so no code runs in a handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

#[cfg(not(unix))]
fn leave_session() {}

/// Nothing to ignore here.
#[cfg(not(unix))]
pub(crate) fn ignore_signals() {}
