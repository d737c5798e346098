//! What the relay and the daemon say to each other in the middle of a session, beside the client's messages. One
//! line is one message, an aside, or a message with an aside before it.
//!
//! ```text
//! relay:   ␁end               the session ends; what is in flight may finish
//!          ␁reload            the file is to be read again
//!          ␁long LENGTH START a line of the client that is too long to be passed on
//! daemon:  ␁=N ANSWER         the N-th line of the relay is settled: by this answer, or without one if none follows
//!          ␁?MESSAGE          a question to the client, or the withdrawal of one
//!          ␁{…}               how the session stands
//!          ␁collect L N       the relay should look at what the daemon has taken from the client, of which the first N bytes
//!                             are L lines; the numbers are left out where a line is too long to be counted
//!          ␁bye               the daemon ends in order, and takes nothing new
//! ```
//!
//! So the relay knows what is in flight without reading a message.
//!
//! Invariant: an aside is never taken for a message, nor a message for an aside.
//!
//! Invariant: both ends count the same lines of the client, `␁long` among them and no other aside. No line that a relay
//! passes is empty or begins with a byte order mark.

use crate::transport::lines::TooLong;

/// The byte before every aside. No JSON begins with it.
const ASIDE: u8 = 1;

/// The line by which the daemon announces its orderly end, without its line break.
pub const BYE: &[u8] = b"\x01bye";

/// How a line begins by which the daemon asks its relay to look at what it has taken.
const COLLECT: &[u8] = b"\x01collect";

/// A place between two lines of what a client has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputPlace {
    /// How many lines are before it.
    pub lines: u64,
    /// How many bytes are before it.
    pub offset: u64,
}

/// How a line begins that stands for a line of the client that was too long.
const LONG_LINE: &[u8] = b"\x01long ";

/// What the relay says.
#[derive(Debug, PartialEq, Eq)]
pub enum FromRelay<'a> {
    /// The session ends; what is in flight may finish.
    End,
    /// The file is to be read again.
    Reload,
    /// The client sent a line that is too long.
    Long(TooLong<'a>),
}

impl<'a> FromRelay<'a> {
    /// Whether it stands for a line of the client.
    pub fn is_of_client(&self) -> bool {
        matches!(self, Self::Long(_))
    }

    /// The line for it, with its line break.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::End => out.extend_from_slice(b"\x01end\n"),
            Self::Reload => out.extend_from_slice(b"\x01reload\n"),
            Self::Long(TooLong { start, length, .. }) => {
                out.extend_from_slice(LONG_LINE);
                out.extend_from_slice(format!("{length} ").as_bytes());
                out.extend_from_slice(start);
                out.push(b'\n');
            }
        }
    }

    /// Reads a line without its line break; `None` if it is a message of the client.
    pub fn read(line: &'a [u8]) -> Option<Self> {
        match line {
            b"\x01end" => Some(Self::End),
            b"\x01reload" => Some(Self::Reload),
            _ => {
                let told = line.strip_prefix(LONG_LINE)?;
                let (length, start) = told.split_at(told.iter().position(|byte| *byte == b' ')?);
                let length = str::from_utf8(length).ok()?.parse().ok()?;
                Some(Self::Long(TooLong { start: &start[1..], end: &[], length }))
            }
        }
    }
}

/// Writes a line of the client, with its line break, so that it cannot be taken for an aside and both ends count it.
pub fn write_line(out: &mut Vec<u8>, line: &[u8]) {
    // Neither byte begins a message, so the daemon refuses the line with or without the sign.
    if let Some(&(ASIDE | 0xef)) = line.first() {
        out.push(b'?');
    }
    out.extend_from_slice(line);
    out.push(b'\n');
}

/// What the daemon says.
#[derive(Debug, PartialEq, Eq)]
pub enum FromDaemon<'a> {
    /// A message for the client that settles nothing.
    Message(&'a [u8]),
    /// The line with this number is settled, by this answer if it is not empty.
    Settled(u64, &'a [u8]),
    /// A question to the client, or the withdrawal of one.
    Question(&'a [u8]),
    /// How the session stands.
    Record(&'a str),
    /// Much of what the daemon has taken from the client has not been looked at. It may tell a place in it.
    Collect(Option<InputPlace>),
    /// The daemon takes nothing new.
    Bye,
    /// An aside that we do not know.
    Unknown,
}

impl<'a> FromDaemon<'a> {
    /// Reads a line without its line break.
    pub fn read(line: &'a [u8]) -> Self {
        match line {
            [ASIDE, b'=', rest @ ..] => {
                let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let number = rest[..digits]
                    .iter()
                    .fold(0_u64, |sum, digit| sum.wrapping_mul(10) + u64::from(digit - b'0'));
                Self::Settled(number, rest.get(digits + 1..).unwrap_or_default())
            }
            [ASIDE, b'?', message @ ..] => Self::Question(message),
            BYE => Self::Bye,
            [ASIDE, rest @ ..] => match (line.strip_prefix(COLLECT), str::from_utf8(rest)) {
                (Some(place), _) => Self::Collect(read_place(place)),
                (None, Ok(record)) if record.starts_with('{') => Self::Record(record),
                _ => Self::Unknown,
            },
            message => Self::Message(message),
        }
    }
}

/// The line by which the daemon asks its relay to look at what it has taken, without its line break.
pub fn collect_line(place: Option<InputPlace>) -> Vec<u8> {
    let place = place.map_or(String::new(), |InputPlace { lines, offset }| format!(" {lines} {offset}"));
    [COLLECT, place.as_bytes()].concat()
}

fn read_place(text: &[u8]) -> Option<InputPlace> {
    let (lines, offset) = str::from_utf8(text).ok()?.strip_prefix(' ')?.split_once(' ')?;
    Some(InputPlace { lines: lines.parse().ok()?, offset: offset.parse().ok()? })
}

/// Writes what stands before the answer that settles a line.
pub fn write_settled(out: &mut Vec<u8>, number: u64) {
    let (mut digits, mut at, mut rest) = ([0; 20], 20, number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&[ASIDE, b'=']);
    out.extend_from_slice(&digits[at..]);
    out.push(b' ');
}

/// Writes what stands before a question to the client.
pub fn write_question(out: &mut Vec<u8>) {
    out.extend_from_slice(&[ASIDE, b'?']);
}

/// The line that tells how a session stands, without its line break; `record` is an object.
pub fn record_line(record: &str) -> Vec<u8> {
    [&[ASIDE], record.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scanner;

    #[test]
    fn what_the_relay_says_is_read_as_it_is_written_and_no_json_is_an_aside() {
        let long = TooLong { start: b"{\"id\": 1", end: &[], length: 12 };
        for aside in [FromRelay::End, FromRelay::Reload, FromRelay::Long(long)] {
            let mut line = Vec::new();
            aside.write(&mut line);
            assert_eq!(line.pop(), Some(b'\n'));
            assert!(Scanner::default().scan(&line).is_err());
            assert_eq!(FromRelay::read(&line), Some(aside));
        }
        for other in [&b""[..], b"end", b"\x01", b"\x01ended", BYE, b"{}", b"\x01long", b"\x01long x y"] {
            assert_eq!(FromRelay::read(other), None);
        }
    }

    #[test]
    fn what_the_daemon_says_is_read_as_it_is_written() {
        for number in [0, 1, 9, 10, 1_234_567_890, u64::MAX] {
            let mut line = Vec::new();
            write_settled(&mut line, number);
            assert_eq!(FromDaemon::read(&line), FromDaemon::Settled(number, b""));
            line.extend_from_slice(b"{}");
            assert_eq!(FromDaemon::read(&line), FromDaemon::Settled(number, b"{}"));
        }
        let mut question = Vec::new();
        write_question(&mut question);
        question.extend_from_slice(b"{}");
        assert_eq!(FromDaemon::read(&question), FromDaemon::Question(b"{}"));
        assert_eq!(FromDaemon::read(&record_line("{\"open\":[]}")), FromDaemon::Record("{\"open\":[]}"));
        for (line, meaning) in [
            (BYE, FromDaemon::Bye),
            (COLLECT, FromDaemon::Collect(None)),
            (b"\x01collect 2 30", FromDaemon::Collect(Some(InputPlace { lines: 2, offset: 30 }))),
            (b"{}", FromDaemon::Message(b"{}")),
            (b"\x01what", FromDaemon::Unknown),
            (b"\x01{\xff", FromDaemon::Unknown),
        ] {
            assert_eq!(FromDaemon::read(line), meaning);
        }
    }

    #[test]
    fn no_line_of_the_client_looks_like_an_aside_or_is_counted_by_one_end_alone() {
        let lines: [(&[u8], &[u8]); 3] =
            [(b"{}", b"{}\n"), (b"\x01end", b"?\x01end\n"), (b"\xef\xbb\xbf", b"?\xef\xbb\xbf\n")];
        for (line, expected) in lines {
            let mut out = Vec::new();
            write_line(&mut out, line);
            assert_eq!(out, expected);
        }
    }
}
