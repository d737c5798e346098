//! A tree of processes on macOS, which has no child subreaper.
//!
//! A kernel queue tells of every fork of a member, whereupon the new process is looked up and followed too. Left
//! behind is only what forks twice and leaves its group before we have looked, a matter of microseconds.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::tree::{Table, Tree};
use super::{HEARD, Woken};

/// Lists the descriptors of the process that reads it.
pub(super) const DESCRIPTORS: &str = "/dev/fd";

/// What the shim waits for, and the members of its tree.
pub(super) struct Watch {
    queue: Queue,
    tree: Tree,
    own_group: c_int,
}

impl Watch {
    /// From here on signals arrive in the queue and nowhere else.
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
        // Whatever the gateway's parent did with it: an ended child must wait until we have reaped it.
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        // SAFETY: touches no memory.
        let own_group = unsafe { libc::getpgrp() };
        Ok(Self { queue, tree: Tree::default(), own_group })
    }

    /// The program runs.
    pub(super) fn add(&mut self, pid: c_int) {
        self.tree.add(pid, &self.queue);
        self.tree.grow(self.own_group, &self.queue);
    }

    /// The process is reaped.
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

    /// The processes to kill in the next round. The queue tells of their ends, so that an id that was given anew
    /// is hit only within the microseconds between.
    pub(super) fn victims(&mut self) -> Vec<c_int> {
        self.all()
    }

    /// Waits for the lifeline, for a signal, for a change of the tree or for that long.
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

/// There is no such thing here; the gateway kills the group of an upstream whose shim is lost.
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
        // SAFETY: the pointer and the number are those of the vector's room, of which the call fills as many as it
        // says; the time lives through the call.
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

/// The ids that such a call writes into a buffer. What the calls return has changed over time, so the end is told
/// by the zeros that are left.
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
