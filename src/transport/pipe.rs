//! Pipes that grow once long messages pass through them.
//!
//! Through a pipe of the usual 64 KB, a message of 1 MB takes a switch between two processes for each of its sixteen
//! parts; on two cores it passes twice as fast through a larger one. But all pipes of a user share one limit, beyond
//! which new ones shrink to two pages, so a pipe keeps its size until it carries a message that is too long for it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

/// What fits into a pipe that nobody has enlarged.
#[cfg(target_os = "linux")]
const USUAL: usize = 64 * 1024;
/// The size of one that carries long messages.
#[cfg(target_os = "linux")]
const WIDE: usize = 256 * 1024;

/// The reading end of a pipe.
#[derive(Debug)]
pub struct PipeReader(End<pipe::Receiver>);

/// The writing end of a pipe.
#[derive(Debug)]
pub struct PipeWriter(End<pipe::Sender>);

#[derive(Debug)]
struct End<P> {
    pipe: P,
    #[cfg(target_os = "linux")]
    widened: bool,
}

impl PipeReader {
    /// The reading end behind this descriptor, which no longer blocks.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        pipe::Receiver::from_owned_fd(fd).map(End::new).map(Self)
    }
}

impl PipeWriter {
    /// The writing end behind this descriptor, which no longer blocks.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        pipe::Sender::from_owned_fd(fd).map(End::new).map(Self)
    }
}

/// Enlarges a pipe if so many bytes fill it, and says whether they do. If the system refuses, it keeps its size.
#[cfg(target_os = "linux")]
pub fn widen(pipe: impl AsFd, bytes: usize) -> bool {
    use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
    if bytes < USUAL {
        return false;
    }
    if fcntl_getpipe_size(&pipe).is_ok_and(|size| size < WIDE) {
        let _ = fcntl_setpipe_size(&pipe, WIDE);
    }
    true
}

impl<P: AsFd> End<P> {
    fn new(pipe: P) -> Self {
        Self {
            pipe,
            #[cfg(target_os = "linux")]
            widened: false,
        }
    }

    #[cfg(target_os = "linux")]
    fn carries(&mut self, bytes: usize) {
        if !self.widened {
            self.widened = widen(&self.pipe, bytes);
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn carries(&mut self, _bytes: usize) {}
}

impl AsyncRead for PipeReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.0.pipe).poll_read(context, buffer))?;
        self.0.carries(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PipeWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.carries(bytes.len());
        Pin::new(&mut self.0.pipe).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.pipe).poll_shutdown(context)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::pipe::fcntl_getpipe_size;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_pipe_grows_with_the_first_long_message_and_not_before() {
        let (reader, writer) = io::pipe().unwrap();
        let watched = reader.try_clone().unwrap();
        let (mut reader, mut writer) =
            (PipeReader::new(reader.into()).unwrap(), PipeWriter::new(writer.into()).unwrap());
        let size = || fcntl_getpipe_size(&watched).unwrap();
        let usual = size();
        for (length, grows) in [(100, false), (USUAL - 1, false), (1_000_000, true)] {
            let (message, mut read) = (vec![b'x'; length], vec![0; length]);
            let (written, _) = tokio::join!(writer.write_all(&message), reader.read_exact(&mut read));
            written.unwrap();
            assert_eq!(read, message);
            assert_eq!(size(), if grows { WIDE.max(usual) } else { usual }, "{length} bytes");
        }
    }

    #[tokio::test]
    async fn a_pipe_that_somebody_else_fills_grows_as_well() {
        let (reader, mut writer) = io::pipe().unwrap();
        let watched = reader.try_clone().unwrap();
        let mut reader = PipeReader::new(reader.into()).unwrap();
        // As much as fits, so that the reader finds the pipe full.
        io::Write::write_all(&mut writer, &[b'x'; USUAL]).unwrap();
        let mut read = vec![0; USUAL];
        reader.read_exact(&mut read).await.unwrap();
        assert!(fcntl_getpipe_size(&watched).unwrap() >= WIDE);
    }
}
