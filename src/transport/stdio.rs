//! Our own stdin and stdout as asynchronous streams, for `gateway/stdio.rs`.
//!
//! Pipes and sockets are made non-blocking and watched by the reactor, because a thread between us and the
//! client would cost more than the rest of a call. Files and shared terminals cannot be watched; they go
//! through tokio's threads.
//!
//! Invariant: stdout carries the protocol only. Nothing else in the program writes there while it serves.

use tokio::io::{AsyncRead, AsyncWrite};

/// The gateway's stdin.
pub fn stdin() -> Box<dyn AsyncRead + Send + Unpin> {
    #[cfg(unix)]
    if let Some(stream) = unix::reader() {
        return stream;
    }
    Box::new(tokio::io::stdin())
}

/// The gateway's stdout.
pub fn stdout() -> Box<dyn AsyncWrite + Send + Unpin> {
    #[cfg(unix)]
    if let Some(stream) = unix::writer() {
        return stream;
    }
    Box::new(tokio::io::stdout())
}

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::os::unix::net::UnixStream;

    use tokio::io::{AsyncRead, AsyncWrite};

    use crate::transport::pipe::{PipeReader, PipeWriter};
    use crate::transport::socket::{self, SocketWriter};

    pub(super) fn reader() -> Option<Box<dyn AsyncRead + Send + Unpin>> {
        match watched(std::io::stdin().as_fd())? {
            WatchedPipe::Pipe(fd) => Some(Box::new(PipeReader::new(fd).ok()?)),
            WatchedPipe::Socket(stream) => Some(Box::new(socket::reader(stream).ok()?)),
        }
    }

    pub(super) fn writer() -> Option<Box<dyn AsyncWrite + Send + Unpin>> {
        match watched(std::io::stdout().as_fd())? {
            WatchedPipe::Pipe(fd) => Some(Box::new(PipeWriter::new(fd).ok()?)),
            WatchedPipe::Socket(stream) => Some(Box::new(SocketWriter::new(stream))),
        }
    }

    enum WatchedPipe {
        Pipe(OwnedFd),
        Socket(UnixStream),
    }

    /// The descriptor in a form that the reactor can watch. All holders of a pipe's end share its blocking
    /// mode, so a pipe that is also our stderr is left alone; otherwise log lines would be lost.
    fn watched(fd: BorrowedFd<'_>) -> Option<WatchedPipe> {
        let identity = |fd: BorrowedFd<'_>| {
            let about = File::from(fd.try_clone_to_owned().ok()?).metadata().ok()?;
            Some((about.dev(), about.ino(), about.file_type()))
        };
        let (dev, ino, kind) = identity(fd)?;
        if identity(std::io::stderr().as_fd()).is_some_and(|(d, i, _)| (d, i) == (dev, ino)) {
            return None;
        }
        let owned: OwnedFd = fd.try_clone_to_owned().ok()?;
        if kind.is_fifo() {
            Some(WatchedPipe::Pipe(owned))
        } else if kind.is_socket() {
            let stream = UnixStream::from(owned);
            stream.local_addr().ok()?;
            stream.set_nonblocking(true).ok()?;
            Some(WatchedPipe::Socket(stream))
        } else {
            None
        }
    }
}
