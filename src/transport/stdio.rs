//! Our own stdin and stdout as asynchronous streams, for `gateway/stdio.rs`.
//!
//! Pipes and sockets are made non-blocking and watched by the reactor, because a thread between us and the
//! client would cost more than the rest of a call. Files and shared terminals cannot be watched; they go
//! through tokio's threads.
//!
//! Invariant: stdout carries the protocol only. Nothing else in the program writes there while it serves.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[cfg(target_os = "linux")]
pub use unix::{WatchedStream, watched_stdin, watched_stdout};

/// The gateway's stdin.
#[derive(Default)]
pub struct ClientInput {
    /// `None` while nobody reads here.
    stream: Option<Box<dyn AsyncRead + Send + Unpin>>,
}

impl ClientInput {
    /// Lets another process read. Until somebody reads here again, we are not woken by what comes.
    pub fn leave_to_others(&mut self) {
        self.stream = None;
    }
}

impl AsyncRead for ClientInput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_or_insert_with(open_stdin)).poll_read(context, buffer)
    }
}

fn open_stdin() -> Box<dyn AsyncRead + Send + Unpin> {
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
        match watched_stdin()? {
            WatchedStream::Pipe(fd) => Some(Box::new(PipeReader::new(fd).ok()?)),
            WatchedStream::Socket(stream) => Some(Box::new(socket::reader(stream).ok()?)),
        }
    }

    pub(super) fn writer() -> Option<Box<dyn AsyncWrite + Send + Unpin>> {
        match watched_stdout()? {
            WatchedStream::Pipe(fd) => Some(Box::new(PipeWriter::new(fd).ok()?)),
            WatchedStream::Socket(stream) => Some(Box::new(SocketWriter::new(stream))),
        }
    }

    /// A stream that the reactor can watch.
    pub enum WatchedStream {
        /// One end of a pipe.
        Pipe(OwnedFd),
        /// One end of a local socket.
        Socket(UnixStream),
    }

    impl From<WatchedStream> for OwnedFd {
        fn from(stream: WatchedStream) -> Self {
            match stream {
                WatchedStream::Pipe(fd) => fd,
                WatchedStream::Socket(stream) => stream.into(),
            }
        }
    }

    /// Our stdin; `None` if it cannot be watched.
    pub fn watched_stdin() -> Option<WatchedStream> {
        watched(std::io::stdin())
    }

    /// Our stdout; `None` if it cannot be watched.
    pub fn watched_stdout() -> Option<WatchedStream> {
        watched(std::io::stdout())
    }

    /// The descriptor in a form that the reactor can watch. All holders of a pipe's end share its blocking
    /// mode, so a pipe that is also our stderr is left alone; otherwise log lines would be lost.
    fn watched(fd: impl AsFd) -> Option<WatchedStream> {
        let identity = |fd: BorrowedFd<'_>| {
            let about = File::from(fd.try_clone_to_owned().ok()?).metadata().ok()?;
            Some((about.dev(), about.ino(), about.file_type()))
        };
        let (dev, ino, kind) = identity(fd.as_fd())?;
        if identity(std::io::stderr().as_fd()).is_some_and(|(d, i, _)| (d, i) == (dev, ino)) {
            return None;
        }
        let owned: OwnedFd = fd.as_fd().try_clone_to_owned().ok()?;
        if kind.is_fifo() {
            Some(WatchedStream::Pipe(owned))
        } else if kind.is_socket() {
            let stream = UnixStream::from(owned);
            stream.local_addr().ok()?;
            stream.set_nonblocking(true).ok()?;
            Some(WatchedStream::Socket(stream))
        } else {
            None
        }
    }
}
