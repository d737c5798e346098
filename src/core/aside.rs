//! What the two ends of a daemon's session say to each other between its messages. The relay
//! (`daemon/relay.rs`) writes [`FromRelay`] and reads [`FromDaemon`], the session (`gateway/stdio.rs`) does the
//! reverse.
//!
//! Invariant: an aside is a line that begins with a byte with which no JSON begins, so it is never taken for a
//! message.

use super::record::Record;
use crate::transport::lines::TooLong;

/// The byte with which every aside begins.
const MARK: u8 = 1;

/// Whether a line is an aside.
pub fn is_aside(line: &[u8]) -> bool {
    line.first() == Some(&MARK)
}

/// What the relay tells the daemon.
#[derive(Debug, PartialEq, Eq)]
pub enum FromRelay<'a> {
    /// The session ends; what is in flight may finish.
    End,
    /// The file is to be read again.
    Reload,
    /// The client sent a line that is too long. Its length and its beginning are told in its place.
    LongLine(TooLong<'a>),
}

impl<'a> FromRelay<'a> {
    /// Writes the line, without its line break.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(MARK);
        match self {
            Self::End => out.extend_from_slice(b"end"),
            Self::Reload => out.extend_from_slice(b"reload"),
            Self::LongLine(TooLong { start, length, .. }) => {
                out.extend_from_slice(format!("long {length} ").as_bytes());
                out.extend_from_slice(start);
            }
        }
    }

    /// Reads a line; `None` if it is none of these.
    pub fn read(line: &'a [u8]) -> Option<Self> {
        match line.strip_prefix(&[MARK])? {
            b"end" => Some(Self::End),
            b"reload" => Some(Self::Reload),
            other => {
                let told = other.strip_prefix(b"long ")?;
                let (length, start) = told.split_at(told.iter().position(|byte| *byte == b' ')?);
                let length = str::from_utf8(length).ok()?.parse().ok()?;
                Some(Self::LongLine(TooLong { start: &start[1..], end: &[], length }))
            }
        }
    }
}

/// What the daemon tells the relay.
#[derive(Debug, PartialEq, Eq)]
pub enum FromDaemon {
    /// The session stands like this now.
    Record(Box<Record>),
    /// The daemon ends in good order, and takes nothing new.
    Bye,
}

impl FromDaemon {
    /// The line, without its line break.
    pub fn line(&self) -> Vec<u8> {
        let mut line = vec![MARK];
        match self {
            Self::Record(record) => record.write(&mut line),
            Self::Bye => line.extend_from_slice(b"bye"),
        }
        line
    }

    /// Reads a line; `None` if it is neither.
    pub fn read(line: &[u8]) -> Option<Self> {
        match line.strip_prefix(&[MARK])? {
            b"bye" => Some(Self::Bye),
            text => {
                str::from_utf8(text).ok().and_then(Record::read).map(|record| Self::Record(record.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scanner;

    #[test]
    fn asides_are_read_as_they_are_written_and_no_json_is_one() {
        let long = TooLong { start: b"{\"id\": 1", end: &[], length: 12 };
        for aside in [FromRelay::End, FromRelay::Reload, FromRelay::LongLine(long)] {
            let mut line = Vec::new();
            aside.write(&mut line);
            assert!(is_aside(&line) && Scanner::default().scan(&line).is_err(), "{line:?}");
            assert_eq!(FromRelay::read(&line), Some(aside));
        }
        for other in
            [&b""[..], b"end", b"\x01", b"\x01ended", b"\x01bye", b"{}", b"\x01long", b"\x01long x y"]
        {
            assert_eq!(FromRelay::read(other), None, "{other:?}");
        }
        let record = Record { open: vec!["with \"quotes\"\n".into()], ..Record::default() };
        for aside in [FromDaemon::Bye, FromDaemon::Record(record.into())] {
            let line = aside.line();
            assert!(is_aside(&line) && !line.contains(&b'\n'), "it is one line that is no JSON: {line:?}");
            assert_eq!(FromDaemon::read(&line), Some(aside));
        }
        for other in [&b"bye"[..], b"\x01", b"\x01end", b"{}"] {
            assert_eq!(FromDaemon::read(other), None, "{other:?}");
        }
    }
}
