//! The process tree on macOS, which has no child subreaper.
//!
//! A kernel queue reports every fork of a member, and then the new process is looked up and followed as well.
//! Only a process that forks twice and leaves its group before we look can escape, within microseconds.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::tree::{Table, Tree};
use super::{HEARD, Woken};

/// Lists the descriptors of the process that reads it.
pub(super) const DESCRIPTORS: &str = "/dev/fd";

/// The events that the shim waits for, and the members of its tree.
pub(super) struct Watch {
    queue: Queue,
    tree: Tree,
    own_group: c_int,
}

impl Watch {
    /// Delivers signals to the queue, and nowhere else, from now on.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: the result is checked, and then owned by nobody else.
        let queue = unsafe {
            match libc::kqueue() {
                -1 => return Err(io::Error::last_os_error()),
                fd => Queue(OwnedFd::from_raw_fd(fd)),
            }
        };
        for number in HEARD {
            // SAFETY: no handler of ours is replaced. An ignored signal still arrives in the queue.
            unsafe { libc::signal(number, libc::SIG_IGN) };
            queue.change(number as usize, libc::EVFILT_SIGNAL, libc::EV_ADD, 0)?;
        }
        // The gateway's parent may have ignored SIGCHLD, but an ended child must wait until we have reaped
        // it.
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        // SAFETY: touches no memory.
        let own_group = unsafe { libc::getpgrp() };
        Ok(Self { queue, tree: Tree::default(), own_group })
    }

    /// Adds the program, which has just started.
    pub(super) fn add(&mut self, pid: c_int) {
        self.tree.add(pid, &self.queue);
        self.tree.grow(self.own_group, &self.queue);
    }

    /// Removes a process that was reaped.
    pub(super) fn remove(&mut self, pid: c_int) {
        self.tree.remove(pid);
    }

    /// Whether members are left that are not our children.
    pub(super) fn others_left(&mut self) -> bool {
        !self.all().is_empty()
    }

    /// Every process of the tree.
    pub(super) fn all(&mut self) -> Vec<c_int> {
        self.tree.grow(self.own_group, &self.queue);
        self.tree.members().collect()
    }

    /// The processes to kill in the next round. The queue reports when they end, so a reused id can be hit
    /// only within the microseconds in between.
    pub(super) fn victims(&mut self) -> Vec<c_int> {
        self.all()
    }

    /// Waits for the lifeline, for a signal, for a change of the tree, or until `wait` is over.
    pub(super) fn wait(&mut self, lifeline: Option<RawFd>, wait: Option<Duration>) -> io::Result<Woken> {
        if let Some(fd) = lifeline {
            self.queue.change(fd as usize, libc::EVFILT_READ, libc::EV_ADD | libc::EV_ONESHOT, 0)?;
        }
        let mut woken = Woken::default();
        for event in self.queue.wait(wait)? {
            match event.filter {
                libc::EVFILT_READ => woken.lifeline = true,
                libc::EVFILT_SIGNAL => woken.asked = true,
                _ => {
                    if event.fflags & libc::NOTE_FORK != 0 {
                        self.tree.grow(self.own_group, &self.queue);
                    }
                    if event.fflags & libc::NOTE_EXIT != 0 {
                        self.tree.remove(event.ident as c_int);
                    }
                }
            }
        }
        Ok(woken)
    }
}

/// Does nothing, because macOS has no such feature. The gateway kills the process group of an upstream whose
/// shim is lost.
pub(super) fn die_with_parent() -> io::Result<()> {
    Ok(())
}

/// A kernel queue.
struct Queue(OwnedFd);

impl Queue {
    fn change(&self, ident: usize, filter: i16, flags: u16, fflags: u32) -> io::Result<()> {
        let change = libc::kevent { ident, filter, flags, fflags, data: 0, udata: std::ptr::null_mut() };
        // SAFETY: one change, which lives through the call, and no room for events.
        match unsafe {
            libc::kevent(self.0.as_raw_fd(), &change, 1, std::ptr::null_mut(), 0, std::ptr::null())
        } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn wait(&self, wait: Option<Duration>) -> io::Result<Vec<libc::kevent>> {
        const EVENTS: usize = 32;
        let mut events = Vec::with_capacity(EVENTS);
        let time = wait.map(|wait| libc::timespec {
            tv_sec: wait.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the pointer and the number are those of the vector's room, of which the call fills as many
        // as it says; the time lives through the call.
        unsafe {
            match libc::kevent(
                self.0.as_raw_fd(),
                std::ptr::null(),
                0,
                events.as_mut_ptr(),
                EVENTS as c_int,
                time,
            ) {
                -1 => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
                count => events.set_len(count as usize),
            }
        }
        Ok(events)
    }
}

impl Table for Queue {
    fn children(&self, pid: c_int) -> Vec<c_int> {
        // SAFETY: `listed` hands in a buffer and its size.
        listed(|buffer, size| unsafe { libc::proc_listchildpids(pid, buffer, size) })
    }

    fn members(&self, group: c_int) -> Vec<c_int> {
        // SAFETY: as above.
        listed(|buffer, size| unsafe { libc::proc_listpgrppids(group, buffer, size) })
    }

    fn group(&self, pid: c_int) -> Option<c_int> {
        // SAFETY: touches no memory.
        Some(unsafe { libc::getpgid(pid) }).filter(|group| *group > 1)
    }

    fn follow(&self, pid: c_int) -> bool {
        let told = libc::NOTE_FORK | libc::NOTE_EXIT;
        self.change(pid as usize, libc::EVFILT_PROC, libc::EV_ADD | libc::EV_CLEAR, told).is_ok()
    }
}

/// The ids that such a call writes into a buffer. The calls' return values have changed over time, so the
/// remaining zeros mark the end.
fn listed(call: impl Fn(*mut c_void, c_int) -> c_int) -> Vec<c_int> {
    let mut buffer: Vec<c_int> = vec![0; 256];
    loop {
        let size = size_of_val(buffer.as_slice());
        call(buffer.as_mut_ptr().cast(), size as c_int);
        match buffer.iter().position(|pid| *pid == 0) {
            Some(end) => {
                buffer.truncate(end);
                return buffer;
            }
            None => buffer = vec![0; buffer.len() * 2],
        }
    }
}
