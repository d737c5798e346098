//! The daemon as a process of nobody's, and what the system knows of the two ends of a connection to it.
//! `src/daemon` calls this.
//!
//! Invariant: the daemon is no child of whoever starts it. It is in a session and a process group of its own,
//! in `/`, and has no other descriptor of its starter's. Windows has detached processes instead of sessions.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::{raise_open_files, start, take_over, umask, user};
#[cfg(windows)]
pub use windows::{PipeEnd, is_own_process, new_pipe, raise_open_files, start, umask, user};
