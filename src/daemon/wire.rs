//! What a relay and the daemon say to each other before the session's own messages: a greeting, and what is
//! wanted. The daemon speaks first, so that whoever connects learns at once whether it is there.
//!
//! ```text
//! daemon: mcp-workbench-daemon BUILD PID⏎
//! other:  length, then texts that each end with a zero byte: session …, console …, status, or stop
//! daemon: ok⏎ or direct⏎ and the session's messages, or HTTP for the console, or JSON for a status, or no REASON⏎
//! relay:  ⏎ if it was direct
//! ```
//!
//! A relay that has waited too long goes on alone, so a daemon touches the client's own pipes only when the relay has
//! heard that it is to.
//!
//! Invariant: the greeting and `stop` stay as they are, since builds end each other's daemons.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::config::ToolMode;
use crate::config::locate::FaceKind;
use crate::core::process::Variables;

/// The first word of the daemon.
const GREETING: &str = "mcp-workbench-daemon";
/// The first word of a refusal.
const REFUSAL: &str = "no ";
/// The longest line of the daemon before a session begins.
const LONGEST_LINE: usize = 4096;
/// The longest request. An environment is the largest part of it.
const LONGEST_REQUEST: usize = 64 * 1024 * 1024;
/// A request up to this length is read at once.
const USUAL_REQUEST: usize = 64 * 1024;

/// Who is at the other end of a connection, as the system says.
pub struct OtherEnd {
    /// Whether it is a process of this user.
    pub is_own: bool,
    /// Its process id.
    pub pid: Option<u32>,
}

/// What is wanted of the daemon.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish {
    /// Serve a session on this connection.
    Session(Box<Handover>),
    /// Serve the console on this connection: that of a face, with the key in this directory for state.
    Console(FaceKind, PathBuf),
    /// Say what runs.
    Status,
    /// End, and close this connection when everything is gone.
    Stop,
}

/// All that the daemon needs to know of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover {
    /// The face.
    pub face: FaceKind,
    /// The configuration file.
    pub file: PathBuf,
    /// The working directory.
    pub directory: PathBuf,
    /// The umask; `None` where there is none.
    pub umask: Option<u32>,
    /// How opened tools reach the client, whatever the file says.
    pub tool_mode: Option<ToolMode>,
    /// The client's name for us.
    pub entry: Option<String>,
    /// No question may have an id below this one.
    pub first_question: u64,
    /// How the session stood before, as the last daemon told it.
    pub record: Option<String>,
    /// The environment.
    pub vars: Variables,
}

/// Names of tool modes between the two ends.
const MODES: [(&str, ToolMode); 4] = [
    ("dynamic", ToolMode::Dynamic),
    ("proxy", ToolMode::Proxy),
    ("auto", ToolMode::Auto),
    ("flat", ToolMode::Flat),
];

impl Wish {
    /// The request as it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let mut texts: Vec<OsString> = Vec::new();
        match self {
            Self::Status => texts.push("status".into()),
            Self::Stop => texts.push("stop".into()),
            Self::Console(face, state) => {
                texts.extend(["console".into(), face.program().into(), state.clone().into()]);
            }
            Self::Session(handover) => {
                let mode = handover.tool_mode.and_then(|mode| MODES.iter().find(|(_, other)| *other == mode));
                texts.extend([
                    "session".into(),
                    handover.face.program().into(),
                    handover.file.clone().into(),
                    handover.directory.clone().into(),
                    handover.umask.map_or(String::new(), |umask| umask.to_string()).into(),
                    mode.map_or("", |(name, _)| name).into(),
                    handover.first_question.to_string().into(),
                ]);
                for optional in [&handover.entry, &handover.record] {
                    texts.push(if optional.is_some() { "+" } else { "" }.into());
                    texts.push(optional.as_deref().unwrap_or_default().into());
                }
                texts.extend(handover.vars.iter().flat_map(|(name, value)| [name.clone(), value.clone()]));
            }
        }
        let mut bytes = vec![0; 4];
        for text in texts {
            bytes.extend_from_slice(text.as_encoded_bytes());
            bytes.push(0);
        }
        let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// The inverse of [`Self::encode`], without the length; `None` if the bytes do not come from it.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut texts = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let is_console = match texts.next()? {
            b"status" => return Some(Self::Status),
            b"stop" => return Some(Self::Stop),
            b"session" => false,
            b"console" => true,
            _ => return None,
        };
        let face = match texts.next()? {
            name if name == FaceKind::Workbench.program().as_bytes() => FaceKind::Workbench,
            name if name == FaceKind::Toolman.program().as_bytes() => FaceKind::Toolman,
            _ => return None,
        };
        if is_console {
            return Some(Self::Console(face, os_string(texts.next()?).into()));
        }
        let (file, directory) = (os_string(texts.next()?).into(), os_string(texts.next()?).into());
        let umask = match texts.next()? {
            b"" => None,
            umask => Some(str::from_utf8(umask).ok()?.parse().ok()?),
        };
        let mode = texts.next()?;
        let tool_mode = MODES.iter().find(|(name, _)| name.as_bytes() == mode).map(|(_, mode)| *mode);
        let first_question = str::from_utf8(texts.next()?).ok()?.parse().ok()?;
        let mut optional = || {
            let is_there = texts.next()? == b"+";
            let text = String::from_utf8(texts.next()?.to_vec()).ok()?;
            Some(is_there.then_some(text))
        };
        let (entry, record) = (optional()?, optional()?);
        let mut vars = Vec::new();
        while let Some(name) = texts.next() {
            vars.push((os_string(name), os_string(texts.next()?)));
        }
        let handover = Handover {
            face,
            file,
            directory,
            umask,
            tool_mode,
            entry,
            first_question,
            record,
            vars: vars.into(),
        };
        Some(Self::Session(Box::new(handover)))
    }
}

#[cfg(unix)]
fn os_string(bytes: &[u8]) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec())
}

/// What is no Unicode is replaced, as everywhere on Windows.
#[cfg(windows)]
fn os_string(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Greets whoever connected.
pub async fn greet(stream: &mut (impl AsyncWrite + Unpin), build: &str) -> io::Result<()> {
    stream.write_all(format!("{GREETING} {build} {}\n", std::process::id()).as_bytes()).await
}

/// Refuses whoever connected, or what was wanted.
pub async fn refuse(stream: &mut (impl AsyncWrite + Unpin), reason: &str) -> io::Result<()> {
    let line: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    stream.write_all(format!("{REFUSAL}{line}\n").as_bytes()).await
}

/// Reads what is wanted.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Wish> {
    let length = stream.read_u32_le().await? as usize;
    if length > LONGEST_REQUEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::with_capacity(length.min(USUAL_REQUEST));
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    Wish::decode(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What the daemon answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DaemonWord {
    /// It greets, as the process with this id.
    Welcome(Option<u32>),
    /// It accepts what was wanted, and says whether it reads and writes the client's own pipes.
    Accepted(bool),
    /// It refuses, for this reason.
    Refused(String),
    /// It is gone.
    Gone,
}

/// Reads the daemon's first line. The daemon says nothing more until it is told what is wanted, so whatever comes belongs
/// to the greeting, and a start need not fetch it byte by byte.
pub(super) async fn read_greeting(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<DaemonWord> {
    let (mut line, mut part) = (Vec::new(), [0; 128]);
    while line.len() < LONGEST_LINE {
        match stream.read(&mut part).await {
            Ok(0) => return Ok(DaemonWord::Gone),
            Ok(count) => line.extend_from_slice(&part[..count]),
            Err(error) if is_end(error.kind()) => return Ok(DaemonWord::Gone),
            Err(error) => return Err(error),
        }
        if let Some(at) = line.iter().position(|byte| *byte == b'\n') {
            let word = understand(&line[..at]).filter(|_| at + 1 == line.len());
            return word.ok_or_else(|| io::ErrorKind::InvalidData.into());
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Reads a later line of the daemon before a session begins, and nothing behind it.
pub(super) async fn read_word(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<DaemonWord> {
    let mut line = Vec::new();
    while line.len() < LONGEST_LINE {
        match stream.read_u8().await {
            Ok(b'\n') => return understand(&line).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Ok(byte) => line.push(byte),
            Err(error) if is_end(error.kind()) => return Ok(DaemonWord::Gone),
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Whether a connection is at its end; pipes and sockets have their own ways to say so.
fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// The daemon's word that it accepts what was wanted.
const ACCEPTED: &str = "ok";
/// The same, if it reads and writes the client's own pipes.
const ACCEPTED_DIRECT: &str = "direct";
/// What a relay says to that.
const HEARD: u8 = b'\n';

/// Accepts what was wanted.
pub async fn accept(stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(format!("{ACCEPTED}\n").as_bytes()).await
}

/// Accepts a session whose client's own pipes the daemon reads and writes, and waits until the relay has heard it.
pub async fn accept_direct(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(format!("{ACCEPTED_DIRECT}\n").as_bytes()).await?;
    match stream.read_u8().await? {
        HEARD => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Tells the daemon that the client's own pipes are its now.
pub(super) async fn confirm(stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(&[HEARD]).await
}

/// Why the daemon refuses, if this is a refusal.
pub(super) fn refusal(line: &[u8]) -> Option<String> {
    let reason = str::from_utf8(line).ok()?.strip_prefix(REFUSAL)?;
    Some(reason.trim_end().to_owned())
}

fn understand(line: &[u8]) -> Option<DaemonWord> {
    match refusal(line) {
        Some(reason) => Some(DaemonWord::Refused(reason)),
        None if line == ACCEPTED.as_bytes() => Some(DaemonWord::Accepted(false)),
        None if line == ACCEPTED_DIRECT.as_bytes() => Some(DaemonWord::Accepted(true)),
        None => {
            let line = str::from_utf8(line).ok()?;
            let mut words = line.strip_prefix(GREETING)?.strip_prefix(' ')?.split(' ');
            Some(DaemonWord::Welcome(words.nth(1).and_then(|pid| pid.parse().ok())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_survive_the_journey() {
        let odd: OsString = os_string(if cfg!(unix) { b"/\xff" } else { "/ä".as_bytes() });
        let handover = Handover {
            face: FaceKind::Toolman,
            file: odd.clone().into(),
            directory: "/work".into(),
            umask: Some(0o27),
            tool_mode: Some(ToolMode::Auto),
            entry: Some(String::new()),
            first_question: 7,
            record: Some("{\"open\":[\"dev\"]}".into()),
            vars: [("A".into(), "".into()), ("B".into(), odd)].into(),
        };
        let plain = Handover {
            face: FaceKind::Workbench,
            umask: None,
            tool_mode: None,
            entry: None,
            record: None,
            vars: Variables::default(),
            ..handover.clone()
        };
        let sessions = [handover, plain].map(|handover| Wish::Session(Box::new(handover)));
        let console = Wish::Console(FaceKind::Toolman, "/state".into());
        for request in sessions.into_iter().chain([console, Wish::Status, Wish::Stop]) {
            assert_eq!(read_request(&mut &*request.encode()).await.expect("it is whole"), request);
        }
        for broken in [
            &b""[..],
            b"\0",
            b"other\0",
            b"session\0",
            b"session\0mcp-workbench\0f\0d\0x\0\0",
            b"console\0toolman\0",
            b"stop",
        ] {
            assert_eq!(Wish::decode(broken), None, "{broken:?}");
        }
        let too_long = [0xff; 8];
        assert!(read_request(&mut &too_long[..]).await.is_err());
    }

    #[tokio::test]
    async fn a_greeting_is_all_that_comes() {
        let long = [b'x'; 2 * LONGEST_LINE];
        let cases: [(&[u8], Option<DaemonWord>); 7] = [
            (b"mcp-workbench-daemon 12 34\n", Some(DaemonWord::Welcome(Some(34)))),
            (b"no way\n", Some(DaemonWord::Refused("way".into()))),
            (b"", Some(DaemonWord::Gone)),
            (b"mcp-work", Some(DaemonWord::Gone)),
            (b"mcp-workbench-daemon 12 34\nand more", None),
            (b"hello there\n", None),
            (&long, None),
        ];
        for (said, expected) in cases {
            assert_eq!(read_greeting(&mut &*said).await.ok(), expected, "{} bytes", said.len());
        }
        // It may come in parts.
        let (mut theirs, mut ours) = tokio::io::duplex(7);
        let saying = async move { theirs.write_all(b"mcp-workbench-daemon 12 34\n").await };
        let (heard, said) = tokio::join!(read_greeting(&mut ours), saying);
        said.expect("it is read");
        assert_eq!(heard.expect("a greeting"), DaemonWord::Welcome(Some(34)));
    }

    #[tokio::test]
    async fn the_clients_pipes_are_the_daemons_once_the_relay_has_heard_it() {
        for said in [Some(HEARD), Some(b'x'), None] {
            let (mut theirs, mut ours) = tokio::io::duplex(64);
            let accepting = accept_direct(&mut ours);
            tokio::pin!(accepting);
            tokio::select! {
                biased;
                _ = &mut accepting => panic!("the relay may have gone on alone"),
                word = read_word(&mut theirs) => assert_eq!(word.expect("a word"), DaemonWord::Accepted(true)),
            }
            match said {
                Some(HEARD) => confirm(&mut theirs).await.expect("it is read"),
                Some(other) => theirs.write_u8(other).await.expect("it is read"),
                None => drop(theirs),
            }
            assert_eq!(accepting.await.is_ok(), said == Some(HEARD), "{said:?}");
        }
    }

    #[tokio::test]
    async fn words_are_read_to_their_end_and_no_further() {
        let mut stream = &b"no, really\nno way\nok\ndirect\nrest"[..];
        assert!(read_word(&mut stream).await.is_err(), "this is no word of ours");
        assert_eq!(read_word(&mut stream).await.expect("a refusal"), DaemonWord::Refused("way".into()));
        assert_eq!(read_word(&mut stream).await.expect("an answer"), DaemonWord::Accepted(false));
        assert_eq!(read_word(&mut stream).await.expect("an answer"), DaemonWord::Accepted(true));
        assert_eq!(stream, b"rest");
        assert_eq!(read_word(&mut &b"o"[..]).await.expect("an end"), DaemonWord::Gone);
        assert!(
            read_word(&mut &[b'x'; LONGEST_LINE][..]).await.is_err(),
            "a stranger that never ends its line"
        );
        let mut written = Vec::new();
        refuse(&mut written, "two\nlines").await.expect("memory is writable");
        assert_eq!(written, b"no two lines\n");
    }
}
