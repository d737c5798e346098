//! A session in which the daemon reads and writes the client's own pipes.
//!
//! A relay that passes messages along is woken for each of them, and a wake-up costs more than all else that a relay
//! does. So the relay hands its stdin and stdout to the daemon with the session, and sleeps. What has to be known
//! when the daemon is killed is in three files in memory that the relay has as well:
//!
//! ```text
//! client ──stdin──▶ input file ──▶ daemon        splice moves bytes to the file, where they are read
//! client ◀──stdout── output file ◀── daemon      splice or sendfile moves them on, and the file knows how far it got
//!                    ledger ◀── daemon           which line of the client is settled where in the output
//! ```
//!
//! The system moves bytes in one step as far as a process can tell, so a daemon that is killed takes none with it. The
//! relay finds each byte that the daemon has taken in the input file (or in the carrier before it), and each that the
//! client has not got behind the output file's position. The two processes share the position of each file, so the relay
//! also knows how far the daemon has read, and frees what both have read.
//!
//! Invariant: an entry of the ledger is written before the answer that it tells of, and holds once the whole answer is in
//! the output file. What is in the output file is only sent on, by the daemon or, when that is gone, by the relay.
//!
//! Invariant: bytes of the output file are never overwritten, nor is part of a page freed: pipes may refer to them.

use std::fs::{self, File};
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use rustix::cmsg_space;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::UnixStream;

use super::endpoint::DaemonStream;
use crate::core::aside::{InputPlace, write_question};
use crate::transport::outbox::{Destination, Effect, Gathered, Mark};
use crate::transport::pipe::widen;
use crate::transport::stdio::{WatchedStream, watched_stdin, watched_stdout};

/// The most bytes that are moved at once.
const MOST: usize = 256 * 1024;
/// The most descriptors that go with a session.
const DESCRIPTORS: usize = 7;
/// How much of the output may have reached the client before it is freed.
const MOST_SENT: u64 = 256 * 1024;
/// The memory that is kept for entries of the ledger.
const KEPT: usize = 16 * 1024;
/// How much of a file is read at once.
const PART: usize = 16 * 1024;
/// The length of an entry of the ledger: the number of a line, and where in the output it is settled.
const ENTRY: usize = 16;

/// A pipe to move bytes through: where they come out, and where they go in.
type Carrier = (OwnedFd, OwnedFd);

/// What the relay of such a session has.
pub(super) struct Custody {
    stdin: OwnedFd,
    stdout: OwnedFd,
    /// The system moves bytes only to or from a pipe, so those of a socket go through this one.
    carrier: Option<Carrier>,
    input: File,
    output: File,
    ledger: File,
    /// How much of the input and of the ledger was read.
    input_read: u64,
    ledger_read: u64,
    /// The place in the input that the daemon has told last.
    place: Option<InputPlace>,
}

impl Custody {
    /// Files for a daemon that is to begin with these bytes of the client; `None` where the system cannot do it.
    pub(super) fn new(first: &[u8]) -> Option<Self> {
        Self::of(watched_stdin()?, watched_stdout()?, first)
    }

    fn of(stdin: WatchedStream, stdout: WatchedStream, first: &[u8]) -> Option<Self> {
        let carrier = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        let file = || memfd_create("session", MemfdFlags::CLOEXEC).ok().map(File::from);
        // A sandbox may have no such calls.
        let trial = file()?;
        rustix::io::write(&carrier.1, b"?").ok()?;
        move_bytes(carrier.0.as_fd(), &trial, Some(&mut 0), 1).ok()?;
        sendfile(&carrier.1, &trial, None, 1).ok()?;
        rustix::io::read(&carrier.0, &mut [0; 1]).ok()?;
        let input = file()?;
        input.write_all_at(first, 0).ok()?;
        Some(Self {
            carrier: matches!(stdin, WatchedStream::Socket(_)).then_some(carrier),
            stdin: stdin.into(),
            stdout: stdout.into(),
            input,
            output: file()?,
            ledger: file()?,
            input_read: 0,
            ledger_read: 0,
            place: None,
        })
    }

    /// Sends the first of these bytes, and with them what [`DirectEnds::receive`] receives. Returns how many were sent.
    pub(super) async fn send(&self, stream: &DaemonStream, bytes: &[u8]) -> io::Result<usize> {
        let descriptors = self.descriptors();
        let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
        stream
            .async_io(Interest::WRITABLE, || {
                let mut beside = SendAncillaryBuffer::new(&mut room);
                beside.push(SendAncillaryMessage::ScmRights(&descriptors));
                Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)?)
            })
            .await
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut descriptors = vec![self.stdin.as_fd(), self.stdout.as_fd()];
        descriptors.extend([&self.input, &self.output, &self.ledger].map(AsFd::as_fd));
        descriptors.extend(self.carrier.iter().flat_map(|(out, into)| [out.as_fd(), into.as_fd()]));
        descriptors
    }

    /// Adds the numbers of the lines that were settled since the last time.
    pub(super) fn settled(&mut self, numbers: &mut Vec<u64>) {
        let length = self.output.metadata().map_or(0, |about| about.len());
        let mut part = vec![0; PART];
        while let Ok(count @ 1..) = self.ledger.read_at(&mut part, self.ledger_read) {
            let entries = part[..count].chunks_exact(ENTRY).map(read_entry);
            let before = numbers.len();
            numbers.extend(entries.take_while(|(_, end)| *end <= length).map(|(number, _)| number));
            self.ledger_read += ((numbers.len() - before) * ENTRY) as u64;
            if numbers.len() - before < PART / ENTRY {
                break;
            }
        }
        free(&self.ledger, self.ledger_read);
    }

    /// Takes note of a place in the input, and returns the one before.
    pub(super) fn told(&mut self, place: Option<InputPlace>) -> Option<InputPlace> {
        std::mem::replace(&mut self.place, place)
    }

    /// How much of the input was looked at or left out.
    #[cfg(test)]
    pub(super) fn looked_at(&self) -> u64 {
        self.input_read
    }

    /// Leaves out the input up to a place.
    pub(super) fn skip_to(&mut self, place: InputPlace) {
        self.input_read = place.offset;
        self.free_read();
    }

    /// How much of the input the daemon has read.
    pub(super) fn read_by_daemon(&mut self) -> u64 {
        self.input.stream_position().unwrap_or_default()
    }

    /// Hands on what the daemon has moved since the last time, up to this offset.
    pub(super) fn each_part(&mut self, until: u64, mut take: impl FnMut(&[u8])) {
        let mut part = vec![0; PART];
        while self.input_read < until {
            let most = usize::try_from(until - self.input_read).unwrap_or(PART).min(PART);
            let Ok(count @ 1..) = self.input.read_at(&mut part[..most], self.input_read) else { break };
            take(&part[..count]);
            self.input_read += count as u64;
        }
        self.free_read();
    }

    fn free_read(&mut self) {
        let read = self.read_by_daemon();
        free(&self.input, read.min(self.input_read));
        let sent = self.output.stream_position().unwrap_or_default();
        free(&self.output, sent);
    }

    /// Hands on what a daemon that is gone had not moved to the file.
    pub(super) fn each_carried_part(&mut self, mut take: impl FnMut(&[u8])) {
        let mut part = vec![0; PART];
        while let Some((out, _)) = &self.carrier
            && let Ok(count @ 1..) = rustix::io::read(out, &mut part)
        {
            take(&part[..count]);
        }
    }

    /// The whole lines, or the rest of one, that the client has not got from a daemon that is gone.
    pub(super) fn unsent(&mut self) -> Vec<u8> {
        let mut unsent = Vec::new();
        let Ok(mut at) = self.output.stream_position() else { return unsent };
        let mut part = vec![0; PART];
        while let Ok(count @ 1..) = self.output.read_at(&mut part, at) {
            unsent.extend_from_slice(&part[..count]);
            at += count as u64;
        }
        // The daemon was killed as it wrote the last line, of which nothing was sent.
        unsent.truncate(memchr::memrchr(b'\n', &unsent).map_or(0, |end| end + 1));
        unsent
    }
}

/// The client's own pipes in the daemon.
pub struct DirectEnds {
    /// What the client sends.
    pub input: DirectInput,
    output: Output,
}

impl DirectEnds {
    /// What the relay behind a connection has sent with its first bytes, which stay unread; `None` if it has sent nothing,
    /// or this process cannot use it.
    pub async fn receive(stream: &DaemonStream) -> io::Result<Option<Self>> {
        let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut descriptors = Vec::new();
        stream
            .async_io(Interest::READABLE, || {
                let (mut byte, mut beside) = ([0], RecvAncillaryBuffer::new(&mut room));
                let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
                recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut beside, flags)?;
                for message in beside.drain() {
                    if let RecvAncillaryMessage::ScmRights(received) = message {
                        descriptors.extend(received);
                    }
                }
                Ok(())
            })
            .await?;
        // The files take little room, but their bytes are numbered from the first one on.
        let may_be_long = getrlimit(Resource::Fsize).current.is_none();
        Ok(Self::new(descriptors).filter(|_| may_be_long && has_small_pages()))
    }

    fn new(descriptors: Vec<OwnedFd>) -> Option<Self> {
        // Where there are too many open files, some do not arrive.
        if ![DESCRIPTORS - 2, DESCRIPTORS].contains(&descriptors.len()) {
            return None;
        }
        let mut descriptors = descriptors.into_iter();
        let (stdin, stdout) = (watchable(descriptors.next()?)?, descriptors.next()?);
        let mut file = || descriptors.next().map(File::from);
        let (input, output, ledger) = (file()?, file()?, file()?);
        let carrier = descriptors.next().zip(descriptors.next());
        let moved = input.metadata().ok()?.len();
        let taken = Taken { carrier, file: input, moved, read: 0, last: b'\n', ended: false };
        Some(Self {
            input: DirectInput { stdin: UnixStream::from_std(stdin).ok()?, taken },
            output: Output {
                is_pipe: File::from(stdout.try_clone().ok()?).metadata().ok()?.file_type().is_fifo(),
                stdout: watchable(stdout)?.into(),
                output,
                ledger,
                written: 0,
                sent: 0,
                freed: 0,
                entered: 0,
                entries: Vec::new(),
            },
        })
    }

    /// Both directions; what is for the relay alone goes to `relay`.
    pub fn split<R>(self, relay: R) -> (DirectInput, DirectOutput<R>) {
        (self.input, DirectOutput { relay, output: self.output, full: None })
    }
}

/// Whatever it is, sockets and pipes are the same to the reactor.
fn watchable(descriptor: OwnedFd) -> Option<StdStream> {
    let stream = StdStream::from(descriptor);
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// What the client sends.
pub struct DirectInput {
    stdin: UnixStream,
    taken: Taken,
}

/// What was taken from the client.
struct Taken {
    carrier: Option<Carrier>,
    file: File,
    /// How much is in the file, and how much of that was read.
    moved: u64,
    read: u64,
    /// The last byte that was read.
    last: u8,
    /// Whether the client has closed its end.
    ended: bool,
}

impl Taken {
    /// Reads what is in the file. `false`: everything was read.
    fn read(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<bool> {
        let there = usize::try_from(self.moved - self.read).unwrap_or(usize::MAX);
        if there == 0 {
            return Ok(false);
        }
        let space = buffer.initialize_unfilled_to(there.min(buffer.remaining()));
        let count = self.file.read(space)?;
        self.last = space[..count].last().copied().unwrap_or(self.last);
        self.read += count as u64;
        buffer.advance(count);
        Ok(true)
    }

    /// Moves what the client has sent to the file. Returns how much that was, and whether there may be more.
    fn fill(&mut self, stdin: BorrowedFd<'_>) -> io::Result<(usize, bool)> {
        let Some((out, into)) = &self.carrier else {
            let moved = move_bytes(stdin, &self.file, Some(&mut self.moved), MOST)?;
            widen(stdin, moved);
            return Ok((moved, moved == MOST));
        };
        let carried = move_bytes(stdin, into, None, MOST)?;
        let mut left = carried;
        while left > 0 {
            left -= move_bytes(out.as_fd(), &self.file, Some(&mut self.moved), left)?;
        }
        // The carrier is full after a number of messages, however short they are.
        Ok((carried, carried > 0))
    }

    /// The client has closed its end: what it sent last is a line without a line break, to the relay as well.
    fn end(&mut self) -> io::Result<()> {
        self.ended = true;
        if self.last != b'\n' {
            self.file.write_all_at(b"\n", self.moved)?;
            self.moved += 1;
        }
        Ok(())
    }
}

impl AsyncRead for DirectInput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stdin, taken } = &mut *self;
        while !taken.read(buffer)? && !taken.ended {
            ready!(stdin.poll_read_ready(context))?;
            let filled = stdin.try_io(Interest::READABLE, || match taken.fill(stdin.as_fd())? {
                (0, _) => taken.end(),
                (_, true) => Ok(()),
                // The next look would find nothing, so there is none until more has come.
                (_, false) => Err(io::ErrorKind::WouldBlock.into()),
            });
            match filled {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
                _ => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// What the client is told.
pub struct DirectOutput<R> {
    relay: R,
    output: Output,
    /// Watched while the client's pipe is full.
    full: Option<UnixStream>,
}

/// The client's pipe, and the files before it.
struct Output {
    stdout: OwnedFd,
    is_pipe: bool,
    output: File,
    ledger: File,
    /// How much is in the output file, how much of that was sent, and how much of that was freed.
    written: u64,
    sent: u64,
    freed: u64,
    /// How much is in the ledger.
    entered: u64,
    /// The entries that are being written.
    entries: Vec<u8>,
}

impl Output {
    /// Stores messages. From then on the client gets them, whoever dies.
    fn store(&mut self, Gathered { text, marks, .. }: &Gathered) -> io::Result<()> {
        for Mark { place, effect } in marks {
            if let Effect::Settles(number) = effect {
                write_entry(&mut self.entries, *number, self.written + place.end as u64);
            }
        }
        if !self.entries.is_empty() {
            self.ledger.write_all_at(&self.entries, self.entered)?;
            self.entered += self.entries.len() as u64;
            self.entries.clear();
            self.entries.shrink_to(KEPT);
        }
        self.output.write_all_at(text, self.written)?;
        self.written += text.len() as u64;
        Ok(())
    }

    /// Sends what is in the file.
    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.written {
            let left = usize::try_from(self.written - self.sent).unwrap_or(usize::MAX);
            // Whoever shares a pipe can make it wait, and all sessions with it; this call does not ask.
            let sent = match self.is_pipe {
                true => splice(&self.output, None, &self.stdout, None, left, SpliceFlags::NONBLOCK),
                false => sendfile(&self.stdout, &self.output, None, left),
            };
            match sent {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                sent => self.sent += sent? as u64,
            }
        }
        if self.sent - self.freed > MOST_SENT {
            self.freed = self.sent;
            free(&self.output, self.sent);
        }
        Ok(())
    }
}

impl<R> DirectOutput<R> {
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.output.send() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => {
                    self.full = None;
                    return Poll::Ready(sent);
                }
            }
            if self.full.is_none() {
                self.full = Some(UnixStream::from_std(self.output.stdout.try_clone()?.into())?);
            }
            let Some(stdout) = &self.full else { continue };
            ready!(stdout.poll_write_ready(context))?;
            // It is not, or we would not be here; the next time it has become so.
            let _ =
                stdout.try_io(Interest::WRITABLE, || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into()));
        }
    }
}

impl<R: AsyncWrite + Unpin + Send> Destination for DirectOutput<R> {
    async fn write_gathered(
        &mut self,
        gathered: &Gathered,
        _left: impl Fn(usize) + Send + Sync,
    ) -> io::Result<()> {
        // The relay knows how the session stands before it can find an answer that tells of it.
        let notes = notes_of(gathered);
        if !notes.is_empty() {
            self.relay.write_all(&notes).await?;
        }
        self.output.store(gathered)?;
        poll_fn(|context| self.poll_send(context)).await
    }
}

/// What the relay is to know before the messages are stored.
fn notes_of(Gathered { text, marks, asides }: &Gathered) -> Vec<u8> {
    let mut notes = Vec::new();
    // Who looks at the input for an answer has to know the question.
    for Mark { place, effect } in marks {
        if let Effect::Asks = effect {
            write_question(&mut notes);
            notes.extend_from_slice(&text[place.clone()]);
        }
    }
    notes.extend_from_slice(asides);
    notes
}

/// Moves bytes without waiting for any; `at` is where they go in a file.
fn move_bytes(
    from: BorrowedFd<'_>,
    to: impl AsFd,
    mut at: Option<&mut u64>,
    most: usize,
) -> io::Result<usize> {
    loop {
        match splice(from, None, &to, at.as_deref_mut(), most, SpliceFlags::NONBLOCK) {
            Err(Errno::INTR) => {}
            moved => return Ok(moved?),
        }
    }
}

/// Whether files in memory have pages of the usual size. What is freed of a larger one is cleared, though a pipe may still
/// refer to it.
fn has_small_pages() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let settings = Path::new("/sys/kernel/mm/transparent_hugepage");
        let sizes = fs::read_dir(settings).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut all = sizes.chain([settings.to_owned()]).map(|size| size.join("shmem_enabled"));
        all.all(|file| {
            let Ok(setting) = fs::read_to_string(file) else { return true };
            ["[never]", "[advise]", "[deny]", "[inherit]"].iter().any(|small| setting.contains(small))
        })
    })
}

/// Frees the memory of the beginning of a file, in whole pages. If the system does not do it, it stays until the end.
fn free(file: &File, length: u64) {
    let page = rustix::param::page_size() as u64;
    let length = length / page * page;
    if length > 0 {
        let _ = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, length);
    }
}

fn write_entry(entries: &mut Vec<u8>, number: u64, end: u64) {
    entries.extend_from_slice(&number.to_le_bytes());
    entries.extend_from_slice(&end.to_le_bytes());
}

fn read_entry(entry: &[u8]) -> (u64, u64) {
    let (number, end) = entry.split_at(ENTRY / 2);
    let read = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half of an entry"));
    (read(number), read(end))
}

/// A client whose stdin is of this kind, the relay's custody, and the daemon's ends.
#[cfg(test)]
pub(super) fn session(is_socket: bool, first: &[u8]) -> (OwnedFd, std::io::PipeReader, Custody, DirectEnds) {
    let (from_us, stdout) = io::pipe().expect("a pipe");
    let (stdin, to_us): (_, OwnedFd) = match is_socket {
        true => {
            let (ours, theirs) = StdStream::pair().expect("a pair");
            (WatchedStream::Socket(ours), theirs.into())
        }
        false => {
            let (ours, theirs) = io::pipe().expect("a pipe");
            (WatchedStream::Pipe(ours.into()), theirs.into())
        }
    };
    let custody = Custody::of(stdin, WatchedStream::Pipe(stdout.into()), first).expect("Linux can do it");
    let given = custody.descriptors().into_iter().map(|one| one.try_clone_to_owned().expect("a descriptor"));
    let ends = DirectEnds::new(given.collect()).expect("all are there");
    (to_us, from_us, custody, ends)
}

#[cfg(test)]
mod tests {
    use super::super::session_out::gathered;
    use super::*;
    use std::io::{PipeWriter, Write};
    use std::os::unix::fs::MetadataExt;
    use tokio::io::AsyncReadExt;

    async fn say(output: &mut DirectOutput<impl AsyncWrite + Unpin + Send>, lines: &[u8]) -> io::Result<()> {
        output.write_gathered(&gathered(lines), |_| {}).await
    }

    fn settled(custody: &mut Custody) -> Vec<u64> {
        let mut numbers = Vec::new();
        custody.settled(&mut numbers);
        numbers
    }

    fn collected(custody: &mut Custody) -> String {
        let mut bytes = Vec::new();
        custody.each_part(u64::MAX, |part| bytes.extend_from_slice(part));
        String::from_utf8(bytes).expect("text")
    }

    #[tokio::test]
    async fn what_the_daemon_reads_the_relay_can_read_as_well() {
        for is_socket in [false, true] {
            let (client, _stdout, mut custody, ends) = session(is_socket, b"before\nbeg");
            let mut input = ends.input;
            let mut client = PipeWriter::from(client);
            let mut read = [0; 64];
            assert_eq!(input.read(&mut read).await.expect("it is there"), 10, "first what the relay had");
            client.write_all(b"un\nnext\nlast").expect("there is room");
            assert_eq!(input.read(&mut read).await.expect("it is there"), 12);
            assert_eq!(&read[..12], b"un\nnext\nlast");
            assert_eq!(collected(&mut custody), "before\nbegun\nnext\nlast");
            drop(client);
            assert_eq!(input.read(&mut read).await.expect("it is there"), 1, "the last line ends");
            assert_eq!(input.read(&mut read).await.expect("it has ended"), 0);
            assert_eq!(collected(&mut custody), "\n", "each byte once");
        }
    }

    #[tokio::test]
    async fn what_waits_in_the_carrier_of_a_dead_daemon_is_found() {
        let (client, _stdout, mut custody, ends) = session(true, b"");
        rustix::io::write(&client, b"carried").expect("there is room");
        let (_, into) = ends.input.taken.carrier.as_ref().expect("a socket has one");
        ends.input.stdin.readable().await.expect("something has come");
        assert_eq!(move_bytes(ends.input.stdin.as_fd(), into, None, MOST).expect("there is room"), 7);
        drop(ends);
        assert_eq!(collected(&mut custody), "");
        let mut carried = Vec::new();
        custody.each_carried_part(|part| carried.extend_from_slice(part));
        assert_eq!(carried, b"carried");
    }

    #[tokio::test]
    async fn the_relay_frees_what_both_have_read_and_nothing_else() {
        let (client, _stdout, mut custody, ends) = session(false, b"");
        let mut input = ends.input;
        let (mut sent, mut read) = (Vec::new(), Vec::new());
        let mut part = vec![0; 10_000];
        for round in 0..100_u8 {
            let message = vec![b'a' + round % 26; 50_000];
            rustix::io::write(&client, &message).expect("there is room");
            sent.extend(message);
            // The daemon has taken all of it and read a fifth, when the relay looks.
            let count = input.read(&mut part).await.expect("it is there");
            read.extend_from_slice(&part[..count]);
            collected(&mut custody);
            while read.len() < sent.len() {
                let count = input.read(&mut part).await.expect("it is there");
                read.extend_from_slice(&part[..count]);
            }
        }
        assert!(read == sent, "every byte is as it was sent");
        collected(&mut custody);
        let about = custody.input.metadata().expect("it is open");
        assert!(about.len() == 5_000_000 && about.blocks() * 512 < 100_000, "{} blocks", about.blocks());
    }

    #[tokio::test]
    async fn the_client_gets_messages_and_the_relay_what_it_must_know() {
        let (_stdin, mut client, mut custody, ends) = session(false, b"");
        let (mut relay, notes) = tokio::io::duplex(1000);
        let (_input, mut output) = ends.split(notes);
        let first = b"\x01=1 {1}\n{progress}\n\x01{\"open\":[]}\n\x01=3 \n\x01?{ask}\n";
        say(&mut output, first).await.expect("both read");
        say(&mut output, b"\x01=2 {2}\n\x01bye\n").await.expect("both read");
        let mut told = vec![0; 100];
        let count = io::Read::read(&mut client, &mut told).expect("it is there");
        assert_eq!(&told[..count], b"{1}\n{progress}\n{ask}\n{2}\n");
        let count = relay.read(&mut told).await.expect("it is there");
        assert_eq!(&told[..count], b"\x01?{ask}\n\x01{\"open\":[]}\n\x01bye\n");
        assert_eq!((settled(&mut custody), settled(&mut custody)), (vec![1, 3, 2], vec![]), "each once");
        assert!(custody.unsent().is_empty());
    }

    #[tokio::test]
    async fn nothing_tells_of_a_change_before_the_relay_knows_of_it() {
        let (_stdin, _client, mut custody, ends) = session(false, b"");
        let (mut relay, notes) = tokio::io::duplex(4);
        let (_input, mut output) = ends.split(notes);
        let writing = say(&mut output, b"\x01{\"open\":[\"dev\"]}\n\x01=1 {opened}\n");
        tokio::pin!(writing);
        tokio::select! {
            biased;
            _ = &mut writing => panic!("the relay does not read"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(
            (settled(&mut custody), custody.unsent()),
            (vec![], vec![]),
            "a death now would lose the call"
        );
        let mut told = [0; 17];
        let (written, read) = tokio::join!(writing, relay.read_exact(&mut told));
        written.and(read).expect("both read");
        assert_eq!((settled(&mut custody), &told), (vec![1], b"\x01{\"open\":[\"dev\"]}"));
    }

    #[tokio::test]
    async fn what_the_client_has_not_read_when_the_daemon_dies_is_left_to_the_byte() {
        let (_stdin, mut client, mut custody, ends) = session(false, b"");
        let (_input, mut output) = ends.split(tokio::io::sink());
        let lines: String = (1..5000).map(|number| format!("\x01={number} {{{number:100}}}\n")).collect();
        tokio::select! {
            biased;
            _ = say(&mut output, lines.as_bytes()) => panic!("nobody reads"),
            () = std::future::ready(()) => {}
        }
        drop(output);
        assert_eq!(settled(&mut custody).len(), 4999, "they will be sent");
        let unsent = custody.unsent();
        assert!(!unsent.is_empty());
        drop(custody);
        let mut told = Vec::new();
        io::Read::read_to_end(&mut client, &mut told).expect("it ends");
        assert!(!told.is_empty() && !told.ends_with(b"\n"), "the daemon was in the middle of a line");
        told.extend(unsent);
        let expected: String = (1..5000).map(|number| format!("{{{number:100}}}\n")).collect();
        assert!(told == expected.as_bytes(), "{} bytes", told.len());
    }

    #[tokio::test]
    async fn an_answer_that_is_not_whole_settles_nothing_and_is_not_sent() {
        let (_stdin, _client, mut custody, mut ends) = session(false, b"");
        ends.output.store(&gathered(b"\x01=1 {1}\n")).expect("there is room");
        let mut entry = Vec::new();
        write_entry(&mut entry, 2, 8);
        custody.ledger.write_all_at(&entry, ENTRY as u64).expect("there is room");
        custody.output.write_all_at(b"{2}", 4).expect("there is room");
        assert_eq!(settled(&mut custody), [1]);
        assert_eq!(custody.unsent(), b"{1}\n");
        // The daemon lives, and comes to it.
        custody.output.write_all_at(b"\n", 7).expect("there is room");
        assert_eq!(settled(&mut custody), [2]);
        assert_eq!(custody.unsent(), b"{1}\n{2}\n");
    }

    #[tokio::test]
    async fn a_client_that_reads_late_gets_everything() {
        let (_stdin, client, custody, ends) = session(false, b"");
        let (_input, mut output) = ends.split(tokio::io::sink());
        let line = format!("{}\n", "x".repeat(1000));
        let lines = line.repeat(3000);
        let reading = tokio::task::spawn_blocking(move || {
            let (mut told, mut client) = (Vec::new(), client);
            io::Read::read_to_end(&mut client, &mut told).expect("it ends");
            told
        });
        say(&mut output, lines.as_bytes()).await.expect("it is read");
        say(&mut output, line.as_bytes()).await.expect("it is read");
        assert!(
            custody.output.metadata().expect("it is open").blocks() * 512 < 600_000,
            "what was sent is freed"
        );
        drop((output, custody));
        assert!(reading.await.expect("no panic") == (lines + &line).as_bytes());
    }

    #[tokio::test]
    async fn pipes_and_files_go_with_the_first_bytes_which_stay_unread() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (_stdin, _client, custody, _ends) = session(true, b"first");
        let sent = custody.send(&ours, b"hello").await.expect("it is open");
        ours.write_all(&b"hello"[sent..]).await.expect("it is open");
        let mut input = DirectEnds::receive(&theirs).await.expect("it is open").expect("all are there").input;
        let mut read = [0; 5];
        theirs.read_exact(&mut read).await.expect("it is there");
        assert_eq!(&read, b"hello");
        input.read_exact(&mut read).await.expect("it is there");
        assert_eq!(&read, b"first");
        ours.write_all(b"plain").await.expect("it is open");
        assert!(DirectEnds::receive(&theirs).await.expect("it is open").is_none(), "nothing came with it");
    }
}
