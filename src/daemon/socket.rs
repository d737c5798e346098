//! The connection between a relay and the daemon: a socket in the daemon's directory. `pipe.rs` is its twin
//! on Windows.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener as StdListener};
use std::path::Path;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};

use super::place::DaemonPlace;
use super::wire::OtherEnd;
use crate::core::process::{Launcher, daemon};
use crate::transport::socket::{self, SocketWriter};

/// A connection.
pub type DaemonStream = UnixStream;

/// Who is at the other end. The daemon's end is that of whoever began to listen.
pub fn other_end(stream: &DaemonStream) -> io::Result<OtherEnd> {
    let peer = stream.peer_cred()?;
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
    Ok(OtherEnd { is_own: peer.uid() == daemon::user(), pid })
}

/// The two directions of a connection.
pub fn split(
    stream: DaemonStream,
) -> io::Result<(impl AsyncRead + Unpin + Send, impl AsyncWrite + Unpin + Send + 'static)> {
    let stream = stream.into_std()?;
    Ok((socket::reader(stream.try_clone()?)?, SocketWriter::new(stream)))
}

/// Connects to the daemon behind a socket.
pub(super) async fn connect(socket: &Path) -> io::Result<DaemonStream> {
    UnixStream::connect(socket).await
}

/// Whether somebody listens at a socket. Nobody is connected to: a socket of another kind is refused, in another way
/// than where nobody is.
pub fn has_listener(socket: &Path) -> bool {
    let refused =
        UnixDatagram::unbound().and_then(|other| other.connect(socket)).err().map(|error| error.kind());
    !matches!(refused, Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused))
}

/// Starts the daemon: begins to listen in the place of a socket that nobody listens on, and hands listener
/// and lock on, so that nobody has to wait for the socket to appear.
pub(super) fn launch(
    place: &DaemonPlace,
    launcher: &Launcher,
    arguments: &[OsString],
    lock: File,
) -> io::Result<()> {
    let socket = place.socket();
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = StdListener::bind(&socket)?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
    daemon::start(launcher, arguments, listener, lock)
}

/// What the daemon got from its starter.
pub struct Inheritance(StdListener, File);

/// Takes over what [`launch`] handed on. To be called once, first in the daemon.
pub fn take_over() -> io::Result<Inheritance> {
    daemon::take_over().map(|(listener, lock)| Inheritance(listener, lock))
}

/// Where the daemon listens.
pub struct DaemonListener {
    listener: UnixListener,
    lock: File,
}

impl DaemonListener {
    /// Begins to take connections. Must be called inside a tokio runtime.
    pub fn open(Inheritance(listener, lock): Inheritance, _place: &DaemonPlace) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, lock })
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<DaemonStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }

    /// Lets another daemon begin.
    pub fn retire(&self) {
        let _ = self.lock.unlock();
    }
}
