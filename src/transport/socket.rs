//! A local socket whose two directions are watched apart.
//!
//! A socket that is watched for room to write wakes its writer whenever the other side has read something, also where
//! there was room all the time. Between two processes that answer each other this is one wake-up a message, for nothing.
//! So the reading half is watched for reading alone, and the writing half only while it waits for room.

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

/// The reading half of a socket that does not block. To `read` and to the reactor it is no other than that of a pipe.
pub fn reader(stream: UnixStream) -> io::Result<impl AsyncRead + Send + Unpin + 'static> {
    pipe::Receiver::from_owned_fd_unchecked(stream.into())
}

/// The writing half of a socket that does not block, with a descriptor of its own.
pub struct SocketWriter(State);

enum State {
    /// Nobody watches it.
    Free(UnixStream),
    /// It is watched until there is room.
    Full(pipe::Sender),
    /// It cannot be watched, or be freed from that.
    Lost,
}

impl SocketWriter {
    /// The writing half of this socket.
    pub fn new(stream: UnixStream) -> Self {
        Self(State::Free(stream))
    }
}

impl AsyncWrite for SocketWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match std::mem::replace(&mut self.0, State::Lost) {
                State::Free(stream) => match (&stream).write(bytes) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.0 = State::Full(pipe::Sender::from_owned_fd_unchecked(stream.into())?);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => self.0 = State::Free(stream),
                    written => {
                        self.0 = State::Free(stream);
                        return Poll::Ready(written);
                    }
                },
                State::Full(mut sender) => match Pin::new(&mut sender).poll_write(context, bytes) {
                    Poll::Pending => {
                        self.0 = State::Full(sender);
                        return Poll::Pending;
                    }
                    Poll::Ready(written) => {
                        self.0 = State::Free(sender.into_nonblocking_fd()?.into());
                        return Poll::Ready(written);
                    }
                },
                State::Lost => return Poll::Ready(Err(ErrorKind::NotConnected.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = match std::mem::replace(&mut self.0, State::Lost) {
            State::Free(stream) => stream,
            State::Full(sender) => sender.into_nonblocking_fd()?.into(),
            State::Lost => return Poll::Ready(Ok(())),
        };
        Poll::Ready(stream.shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn halves() -> (impl AsyncRead + Unpin, SocketWriter, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("it can");
        theirs.set_nonblocking(true).expect("it can");
        (reader(ours.try_clone().expect("a descriptor")).expect("a reactor"), SocketWriter::new(ours), theirs)
    }

    #[tokio::test]
    async fn everything_arrives_also_when_there_was_no_room() {
        let (_reader, mut writer, theirs) = halves();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        let expected = sent.clone();
        let mut from = reader(theirs).expect("a reactor");
        let writing = tokio::spawn(async move {
            writer.write_all(&sent).await.expect("it is read");
            writer.shutdown().await.expect("it is open");
            writer.write_all(b"more").await
        });
        let mut read = Vec::new();
        from.read_to_end(&mut read).await.expect("it ends");
        assert!(read == expected, "{} bytes", read.len());
        assert_eq!(
            writing.await.expect("no panic").map_err(|error| error.kind()),
            Err(ErrorKind::NotConnected)
        );
    }

    #[tokio::test]
    async fn what_the_other_side_sends_arrives_and_so_does_its_end() {
        let (mut reader, mut writer, mut theirs) = halves();
        theirs.write_all(b"hello").expect("there is room");
        let mut read = [0; 8];
        assert_eq!(reader.read(&mut read).await.expect("it reads"), 5);
        drop(theirs);
        assert_eq!(reader.read(&mut read).await.expect("it reads"), 0);
        assert!(writer.write_all(b"who is there").await.is_err());
    }

    /// Whether any of this process's reactors watches this socket for room to write.
    #[cfg(target_os = "linux")]
    fn is_watched_for_room(stream: &UnixStream) -> bool {
        use std::os::fd::AsFd;
        use std::os::unix::fs::MetadataExt;
        const ROOM: u32 = 0x4;
        let file = std::fs::File::from(stream.as_fd().try_clone_to_owned().expect("a descriptor"));
        let own = format!("ino:{:x} ", file.metadata().expect("it is open").ino());
        let watched: Vec<_> = std::fs::read_dir("/proc/self/fdinfo")
            .expect("our own")
            .flatten()
            .filter_map(|info| std::fs::read_to_string(info.path()).ok())
            .collect();
        let lines = watched.iter().flat_map(|text| text.lines()).filter(|line| line.contains(&own));
        let events =
            lines.filter_map(|line| line.split_whitespace().skip_while(|word| *word != "events:").nth(1));
        let events: Vec<_> = events.map(|mask| u32::from_str_radix(mask, 16).expect("hexadecimal")).collect();
        assert!(!events.is_empty(), "its reading half is watched");
        events.into_iter().any(|mask| mask & ROOM != 0)
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn nobody_is_woken_because_the_other_side_reads_unless_there_was_no_room() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("it can");
        theirs.set_nonblocking(true).expect("it can");
        let _reader = reader(ours.try_clone().expect("a descriptor")).expect("a reactor");
        let mut writer = SocketWriter::new(ours.try_clone().expect("a descriptor"));
        writer.write_all(b"short").await.expect("there is room");
        assert!(!is_watched_for_room(&ours));
        let long = vec![b'x'; 3_000_000];
        tokio::select! {
            biased;
            _ = writer.write_all(&long) => panic!("nobody reads"),
            () = std::future::ready(()) => {}
        }
        assert!(is_watched_for_room(&ours));
        let mut from = reader(theirs).expect("a reactor");
        let mut rest = vec![0; 3_000_000];
        let drained = async { while from.read(&mut rest).await.expect("it reads") > 0 {} };
        tokio::select! {
            () = drained => panic!("it is open"),
            written = writer.write_all(b"there is room again") => written.expect("it is read"),
        }
        assert!(!is_watched_for_room(&ours));
    }
}
