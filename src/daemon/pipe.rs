//! The connection between a relay and the daemon on Windows: a named pipe of this user alone. `socket.rs` is
//! its twin elsewhere.
//!
//! A pipe cannot be renamed, and a name can be taken by anybody. So each daemon has a pipe with a name that
//! cannot be guessed, and what is a socket elsewhere is a file with that name in the user's own directory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::windows::named_pipe::{ClientOptions, NamedPipeClient, NamedPipeServer};
use tokio::sync::Mutex;

use super::place::DaemonPlace;
use super::wire::OtherEnd;
use crate::core::process::daemon::PipeEnd;
use crate::core::process::{Launcher, daemon};

/// The error of a pipe all instances of which are taken for the moment.
const PIPE_BUSY: i32 = 231;
/// How long a daemon may take to listen, and the time between two looks.
const LONGEST_START: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A connection.
pub enum DaemonStream {
    /// The end of a relay.
    Client(NamedPipeClient),
    /// The end of the daemon.
    Server(NamedPipeServer),
}

/// Who is at the other end.
pub fn other_end(stream: &DaemonStream) -> io::Result<OtherEnd> {
    let (pid, is_own) = match stream {
        DaemonStream::Client(pipe) => daemon::is_own_process(pipe.as_raw_handle(), PipeEnd::Client)?,
        DaemonStream::Server(pipe) => daemon::is_own_process(pipe.as_raw_handle(), PipeEnd::Server)?,
    };
    Ok(OtherEnd { is_own, pid: Some(pid) })
}

/// The two directions of a connection.
pub fn split(
    stream: DaemonStream,
) -> io::Result<(impl AsyncRead + Unpin + Send, impl AsyncWrite + Unpin + Send + 'static)> {
    Ok(tokio::io::split(stream))
}

/// Connects to the daemon whose pipe a file names.
pub(super) async fn connect(file: &Path) -> io::Result<DaemonStream> {
    open(file).map(DaemonStream::Client)
}

fn open(file: &Path) -> io::Result<NamedPipeClient> {
    let name = fs::read_to_string(file)?;
    ClientOptions::new().open(&*name).map_err(|error| match error.raw_os_error() {
        Some(PIPE_BUSY) => io::ErrorKind::WouldBlock.into(),
        _ => error,
    })
}

/// Whether somebody listens at the pipe that a file names.
pub fn has_listener(file: &Path) -> bool {
    !open(file).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Starts the daemon, and waits until it listens: a lock cannot be handed on, so it is kept until then.
pub(super) fn launch(
    place: &DaemonPlace,
    launcher: &Launcher,
    arguments: &[OsString],
    lock: File,
) -> io::Result<()> {
    let file = place.socket();
    // The process that had the lock before may have started a daemon.
    if !has_listener(&file) {
        put_aside(&file)?;
        let mut child = daemon::start(launcher, arguments)?;
        let end = Instant::now() + LONGEST_START;
        while !has_listener(&file) {
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!("it ended with {status}")));
            }
            if Instant::now() >= end {
                break;
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
    drop(lock);
    Ok(())
}

/// Takes the file of a daemon that is gone out of the way. Relays that look for a daemon read it again and again, which
/// may keep it from being replaced, but not from being renamed.
fn put_aside(file: &Path) -> io::Result<()> {
    let aside = file.with_extension(format!("{}.gone", std::process::id()));
    match fs::rename(file, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed.and_then(|()| fs::remove_file(aside)),
    }
}

/// What the daemon got from its starter: nothing.
pub struct Inheritance;

/// The twin of what has to be done elsewhere before anything else.
pub fn take_over() -> io::Result<Inheritance> {
    Ok(Inheritance)
}

/// Where the daemon listens.
pub struct DaemonListener {
    name: String,
    next: Mutex<NamedPipeServer>,
}

impl DaemonListener {
    /// Begins to take connections. Must be called inside a tokio runtime.
    pub fn open(_: Inheritance, place: &DaemonPlace) -> io::Result<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let number = u128::from_le_bytes(random);
        let name = format!(r"\\.\pipe\mcp-workbench-{}-{number:032x}", std::process::id());
        let next = Mutex::new(daemon::new_pipe(&name, true)?);
        // Whoever finds the file finds the whole name.
        let aside = place.directory().join(format!("{}.new", std::process::id()));
        fs::write(&aside, &name)?;
        fs::rename(&aside, place.socket())?;
        Ok(Self { name, next })
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<DaemonStream> {
        let mut next = self.next.lock().await;
        let connected = next.connect().await;
        // Somebody who has gone again leaves an instance that nobody else can use.
        let taken = std::mem::replace(&mut *next, daemon::new_pipe(&self.name, false)?);
        connected.map(|()| DaemonStream::Server(taken))
    }

    /// Lets another daemon begin, which it may as soon as the file is renamed.
    pub fn retire(&self) {}
}

impl AsyncRead for DaemonStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Client(pipe) => Pin::new(pipe).poll_read(context, buffer),
            Self::Server(pipe) => Pin::new(pipe).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for DaemonStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Client(pipe) => Pin::new(pipe).poll_write(context, bytes),
            Self::Server(pipe) => Pin::new(pipe).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Client(pipe) => Pin::new(pipe).poll_flush(context),
            Self::Server(pipe) => Pin::new(pipe).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Client(pipe) => Pin::new(pipe).poll_shutdown(context),
            Self::Server(pipe) => Pin::new(pipe).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn two_ends_find_each_other_by_a_file_and_know_who_the_other_is() {
        let directory = std::env::temp_dir().join(format!("mcp-workbench-pipe-{}", std::process::id()));
        let place = DaemonPlace::at(directory.clone());
        place.prepare(daemon::user()).expect("the directory can be made");
        let nobody = connect(&place.socket()).await.err().expect("there is no daemon yet");
        assert_eq!(nobody.kind(), io::ErrorKind::NotFound);
        let listener = DaemonListener::open(Inheritance, &place).expect("a pipe can be made");
        for _ in 0..3 {
            let (accepted, connected) = tokio::join!(listener.accept(), connect(&place.socket()));
            let (mut daemon, mut relay) = (accepted.expect("one comes"), connected.expect("it listens"));
            for end in [&daemon, &relay] {
                let peer = other_end(end).expect("the system tells");
                assert_eq!((peer.is_own, peer.pid), (true, Some(std::process::id())));
            }
            daemon.write_all(b"hello").await.expect("it is read");
            let mut heard = [0; 5];
            relay.read_exact(&mut heard).await.expect("it was said");
            assert_eq!(&heard, b"hello");
            drop(relay);
            assert!(!matches!(daemon.read(&mut heard).await, Ok(1..)), "its end is noticed");
        }
        // Somebody may be reading which pipe the last daemon had, just when the next one comes.
        let reader = File::open(place.socket()).expect("it is there");
        drop(listener);
        put_aside(&place.socket()).expect("whoever reads it lets it be renamed");
        let listener = DaemonListener::open(Inheritance, &place).expect("nothing is in the way");
        drop(reader);
        connect(&place.socket()).await.expect("it listens");
        // The pipe of a daemon that is gone is nobody's.
        drop(listener);
        let stale = connect(&place.socket()).await.err().expect("nobody listens");
        assert_eq!(stale.kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(&directory).expect("it is ours");
    }
}
