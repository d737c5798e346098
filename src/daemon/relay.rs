//! The relay: stands between a client and the daemon, passes whole lines in both directions, and keeps the
//! session alive when the daemon dies. Where it can, it lets the daemon read and write the client's own pipes
//! (`direct.rs`), and looks after what the daemon leaves behind.
//!
//! ```text
//! connect, hand over ──▶ pass lines ── the daemon ends: answer for it ──▶ wait for the next request ─┐
//!   ▲    │ there can be no daemon                                          │                         │
//!   │    └──▶ go on alone ◀── the third death within a minute ─────────────┘                         │
//!   └────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Invariant: a line is sent once. Of a line of which a byte was sent, nothing is sent to the next daemon,
//! unless it is `initialize`; a line of which none was sent goes to the next one whole. A line that a daemon takes
//! from the client itself is sent when it is whole.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use super::direct::Custody;
use super::endpoint::split;
use super::flight::Flight;
use super::link::{Daemons, Link, NoDaemon, Unheard};
use super::wire::{Handover, Wish};
use crate::config::locate::FaceKind;
use crate::core::aside::{FromDaemon, FromRelay, InputPlace, write_line};
use crate::core::process::give_back;
use crate::core::record::Record;
use crate::gateway::stdio::{Resumed, Unsent};
use crate::transport::lines::{Line, Lines, PAUSE};
use crate::transport::outbox::HIGH_WATER;
use crate::transport::stdio::ClientInput;

/// The daemon may die this often within [`WINDOW`] before the session goes on alone.
const MOST_DEATHS: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);
/// How long the end of a session may take once it was asked for.
const LONGEST_END: Duration = Duration::from_secs(4);
/// The capacity that is kept for lines to the client.
const KEPT: usize = 64 * 1024;
/// The most attempts to hand a session to a daemon that ends at that moment.
const MOST_ATTEMPTS: usize = 20;

/// A session that is to be handed to the daemon.
pub struct Relay {
    /// Where the daemon is.
    pub daemons: Daemons,
    /// What it is told of the session.
    pub handover: Handover,
    /// The longest line of the client, and of the daemon.
    pub limit: usize,
}

/// What the system asks of the relay.
pub struct SystemCalls<'a> {
    /// Resolves when the relay is to end.
    pub shutdown: &'a mut Pin<Box<dyn Future<Output = ()>>>,
    /// Hears when the file is to be read again.
    pub hangup: mpsc::Receiver<()>,
}

/// How the relay's work ended.
pub enum RelayEnd {
    /// The session is over.
    Ended,
    /// The session has to go on in this process.
    Alone(Box<Alone>),
}

/// What is left of a session that goes on in the relay's own process.
pub struct Alone {
    /// Why.
    pub reason: NoDaemon,
    /// How the session stood; `None` for one that has not begun.
    pub resumed: Option<Resumed>,
    /// What the client sent and no daemon took.
    pub unsent: Unsent,
}

/// The client's lines on their way up.
struct Upstairs {
    lines: Lines,
    /// Lines that wait for the daemon, and how much of them is written.
    waiting: Vec<u8>,
    written: usize,
    /// Where each of the waiting lines ends.
    ends: VecDeque<usize>,
    /// How many of them were sent, at least in part.
    sent: usize,
    /// Whether the client has closed its end.
    closed: bool,
    /// Whether the daemon no longer takes anything.
    shut: bool,
}

/// A session over its daemons.
struct Session {
    flight: Flight,
    /// What the daemon leaves behind that has the client's own pipes; `None` if lines are passed along.
    custody: Option<Custody>,
    /// The numbers of settled lines that the daemon has taken and nobody has looked at.
    settled: Vec<u64>,
    up: Upstairs,
    /// Lines for the client.
    down: Vec<u8>,
    record: Option<Record>,
    deaths: Deaths,
    /// When the session is over at the latest, once its end was asked for.
    end: Option<Instant>,
    /// Whether the system asked for the end.
    called_off: bool,
    /// Whether the client was told something, so that the start is over.
    begun: bool,
}

/// How a daemon let go of a session.
struct Parting {
    /// Whether the daemon had announced its end.
    orderly: bool,
}

impl Relay {
    /// Passes lines until the session is over, or has to go on alone.
    pub async fn run(
        mut self,
        stdin: &mut ClientInput,
        stdout: &mut (impl AsyncWrite + Unpin),
        calls: &mut SystemCalls<'_>,
    ) -> RelayEnd {
        let mut session = Session::new(self.limit);
        loop {
            let link = match self.hand_over(&mut session).await {
                Ok(link) => link,
                Err(_) if session.called_off => return RelayEnd::Ended,
                Err(reason) => return RelayEnd::Alone(session.alone(reason)),
            };
            if session.custody.is_some() {
                stdin.leave_to_others();
            }
            let parting = session.serve(link, stdin, stdout, calls).await;
            let mut told = std::mem::take(&mut session.down);
            if parting.is_some() {
                told.extend(session.lost(self.handover.face));
            }
            if !session.tell(&told, stdout, calls).await {
                return RelayEnd::Ended;
            }
            let Some(parting) = parting else { return RelayEnd::Ended };
            if session.is_over() {
                return RelayEnd::Ended;
            }
            if !parting.orderly && session.deaths.note(Instant::now()) && !session.called_off {
                let reason = format!("the daemon ended {MOST_DEATHS} times within a minute");
                return RelayEnd::Alone(session.alone(NoDaemon::new(reason)));
            }
            if !session.wait_for_request(stdin, calls).await {
                return RelayEnd::Ended;
            }
        }
    }

    /// A connection to a daemon that has taken the session.
    async fn hand_over(&mut self, session: &mut Session) -> Result<Link, NoDaemon> {
        let record = session.record.as_ref().and_then(|record| serde_json::to_string(record).ok());
        self.handover.record = record;
        self.handover.first_question = session.flight.first_question;
        let request = Wish::Session(Box::new(self.handover.clone()));
        for _ in 0..MOST_ATTEMPTS {
            let mut link = self.daemons.connect().await?;
            let custody = session.up.all().and_then(|unsent| Custody::new(&unsent));
            match link.ask(&request, custody.as_ref()).await {
                Ok(is_direct) => {
                    session.custody = custody.filter(|_| is_direct);
                    if is_direct {
                        session.up.forget();
                    }
                    return Ok(link);
                }
                Err(Unheard::Because(reason)) => return Err(reason),
                Err(Unheard::Gone) => {}
            }
        }
        Err(NoDaemon::new("each daemon ended before it took the session"))
    }
}

impl Session {
    fn new(limit: usize) -> Self {
        let up = Upstairs {
            lines: Lines::new(limit),
            waiting: Vec::new(),
            written: 0,
            ends: VecDeque::new(),
            sent: 0,
            closed: false,
            shut: false,
        };
        Self {
            flight: Flight::default(),
            custody: None,
            settled: Vec::new(),
            up,
            down: Vec::new(),
            record: None,
            deaths: Deaths::default(),
            end: None,
            called_off: false,
            begun: false,
        }
    }

    /// Whether nobody waits for anything any more.
    fn is_over(&mut self) -> bool {
        (self.up.closed || self.end.is_some())
            && self.flight.is_empty()
            && !self.up.has_request(0, &mut self.flight)
    }

    /// The daemon is gone: what the client is told. What is sent again waits before everything else.
    fn lost(&mut self, face: FaceKind) -> Vec<u8> {
        let (told, again) = self.flight.lost(face);
        self.up.forget_sent();
        if let Some(line) = again {
            self.up.send_first(&line);
            // The daemon may have told of the handshake before it answered. It would be restored, and then come twice.
            self.record.iter_mut().for_each(|record| record.hello = None);
        }
        told
    }

    /// What is left to go on with alone.
    fn alone(self, reason: NoDaemon) -> Box<Alone> {
        let first_question = self.flight.first_question;
        let resumed = self.record.map(|record| Resumed { record, first_question });
        let unsent = Unsent { waiting: self.up.waiting, lines: self.up.lines };
        Box::new(Alone { reason, resumed, unsent })
    }

    /// Passes lines until the daemon closes the connection. `None`: the session is over.
    async fn serve(
        &mut self,
        link: Link,
        stdin: &mut ClientInput,
        stdout: &mut (impl AsyncWrite + Unpin),
        calls: &mut SystemCalls<'_>,
    ) -> Option<Parting> {
        let Ok((mut from, mut to)) = split(link.stream) else { return self.part(false) };
        // How long answers may be is the daemon's business.
        let (mut lines, mut orderly) = (Lines::new(usize::MAX), false);
        let mut rest = Rest::new();
        self.up.shut = false;
        if self.end.is_some() {
            self.up.say(&FromRelay::End);
        }
        loop {
            let (can_write, can_read) = (self.up.can_write(), self.up.can_read() && self.custody.is_none());
            let (end, called_off) = (self.end, self.called_off);
            let up = &mut self.up;
            tokio::select! {
                read = lines.read(&mut from) => {
                    rest.put_off();
                    let Ok(1..) = read else { return self.part(orderly) };
                    self.take_down(&mut lines, &mut orderly);
                    self.up.shut |= orderly;
                    if !self.pass_down(stdout, calls).await {
                        return None;
                    }
                }
                written = to.write(&up.waiting[up.written..]), if can_write => match written {
                    Ok(count) => self.up.wrote(count, &mut self.flight),
                    // The daemon is gone; what it said before is still to be read.
                    Err(_) => self.up.shut = true,
                },
                read = up.lines.read(stdin), if can_read => {
                    rest.put_off();
                    self.up.take(read.unwrap_or(0));
                    if self.up.closed {
                        self.begin_end();
                    }
                }
                () = &mut *calls.shutdown, if !called_off => self.call_off(),
                Some(()) = calls.hangup.recv() => self.up.say(&FromRelay::Reload),
                () = until(end) => return None,
                () = rest.reached() => {
                    self.collect(None);
                    lines.free();
                    self.rest();
                }
            }
        }
    }

    /// Writes whole lines to the client. `false`: it does not take them.
    async fn tell(
        &mut self,
        lines: &[u8],
        stdout: &mut (impl AsyncWrite + Unpin),
        calls: &mut SystemCalls<'_>,
    ) -> bool {
        let writing = async { stdout.write_all(lines).await.is_ok() && stdout.flush().await.is_ok() };
        tokio::pin!(writing);
        loop {
            let (end, called_off) = (self.end, self.called_off);
            tokio::select! {
                biased;
                written = &mut writing => return written,
                () = &mut *calls.shutdown, if !called_off => self.call_off(),
                () = until(end) => return false,
            }
        }
    }

    /// The system asks us to end.
    fn call_off(&mut self) {
        self.called_off = true;
        self.begin_end();
    }

    /// Asks the daemon to end the session.
    fn begin_end(&mut self) {
        if self.end.is_none() {
            self.end = Some(Instant::now() + LONGEST_END);
            self.up.say(&FromRelay::End);
        }
    }

    /// Looks at the lines that the daemon has read. Those up to the `place` that it tells now have just been read, so they
    /// are left to the next time, when nearly all of them are settled and need not be looked at.
    fn collect(&mut self, place: Option<InputPlace>) {
        let Some(custody) = &mut self.custody else { return };
        let (up, flight, settled) = (&mut self.up, &mut self.flight, &mut self.settled);
        // What is settled was read before.
        custody.settled(settled);
        settled.sort_unstable();
        let until = match (custody.told(place), place) {
            (_, None) => custody.read_by_daemon(),
            (None, Some(_)) => 0,
            (Some(before), Some(_)) if flight.skip_to(before.lines, settled) => {
                up.lines.forget_begun();
                custody.skip_to(before);
                0
            }
            (Some(before), Some(_)) => before.offset,
        };
        custody.each_part(until, |part| up.taken(part, flight));
        flight.settle(settled);
    }

    /// The daemon has closed the connection.
    fn part(&mut self, orderly: bool) -> Option<Parting> {
        self.collect(None);
        self.settled = Vec::new();
        if let Some(mut custody) = self.custody.take() {
            // The daemon had it moved, and has not seen it.
            let mut give_back = |part: &[u8]| {
                self.up.lines.feed(part);
                self.up.take(part.len());
            };
            custody.each_part(u64::MAX, &mut give_back);
            custody.each_carried_part(give_back);
            self.down = custody.unsent();
        }
        (!self.is_over()).then_some(Parting { orderly })
    }

    /// Takes the whole lines of the daemon, and collects those for the client.
    fn take_down(&mut self, lines: &mut Lines, orderly: &mut bool) {
        while let Some(line) = lines.next_line() {
            let Line::Whole(line) = line else { continue };
            let message = match FromDaemon::read(line) {
                FromDaemon::Message(message) => message,
                FromDaemon::Settled(number, answer) => {
                    self.flight.settled(number);
                    answer
                }
                FromDaemon::Question(message) => {
                    self.flight.asked(message);
                    // Who has the client's own pipes asks it there.
                    if self.custody.is_some() { &[] } else { message }
                }
                FromDaemon::Record(record) => {
                    self.record = Record::read(record).or(self.record.take());
                    continue;
                }
                FromDaemon::Collect(place) => {
                    self.collect(place);
                    continue;
                }
                FromDaemon::Bye => {
                    *orderly = true;
                    continue;
                }
                FromDaemon::Unknown => continue,
            };
            if !message.is_empty() {
                self.down.extend_from_slice(message);
                self.down.push(b'\n');
            }
        }
    }

    /// Writes what is for the client. `false`: it does not take it. A client that does not read is not read from
    /// either, nor is the daemon.
    async fn pass_down(
        &mut self,
        stdout: &mut (impl AsyncWrite + Unpin),
        calls: &mut SystemCalls<'_>,
    ) -> bool {
        if self.down.is_empty() {
            return true;
        }
        let mut down = std::mem::take(&mut self.down);
        let told = self.tell(&down, stdout, calls).await;
        if down.capacity() <= KEPT {
            down.clear();
            self.down = down;
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.rest();
        }
        told
    }

    /// Keeps nothing that is not needed while nothing is to be passed.
    fn rest(&mut self) {
        self.down.shrink_to_fit();
        self.up.waiting.shrink_to_fit();
        // Readers let go of their memory by themselves, but perhaps only when it is too late to give it back.
        self.up.lines.free();
        self.settled.shrink_to_fit();
        self.flight.compact();
        give_back();
    }

    /// Waits, without a daemon, until the client sends a request. `false`: the session is over.
    async fn wait_for_request(&mut self, stdin: &mut ClientInput, calls: &mut SystemCalls<'_>) -> bool {
        let mut seen = 0;
        while !self.up.has_request(seen, &mut self.flight) {
            seen = self.up.ends.len();
            if self.up.closed || self.end.is_some() {
                return false;
            }
            tokio::select! {
                biased;
                () = &mut *calls.shutdown => return false,
                read = self.up.lines.read(stdin) => self.up.take(read.unwrap_or(0)),
                Some(()) = calls.hangup.recv() => {}
            }
        }
        true
    }
}

/// Tells when nothing was passed for a while. To put it off costs no system call and no timer.
struct Rest {
    pause: Pin<Box<Sleep>>,
    /// Whether something was passed since the pause began; `None` while there is no pause to wait for.
    disturbed: Option<bool>,
}

impl Rest {
    fn new() -> Self {
        Self { pause: Box::pin(sleep(PAUSE)), disturbed: Some(false) }
    }

    fn put_off(&mut self) {
        if self.disturbed.is_none() {
            self.pause.as_mut().reset(tokio::time::Instant::now() + PAUSE);
        }
        self.disturbed = Some(true);
    }

    async fn reached(&mut self) {
        while let Some(disturbed) = &mut self.disturbed {
            self.pause.as_mut().await;
            if !std::mem::take(disturbed) {
                self.disturbed = None;
                return;
            }
            self.pause.as_mut().reset(tokio::time::Instant::now() + PAUSE);
        }
        pending().await
    }
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep(end.saturating_duration_since(Instant::now())).await,
        None => pending().await,
    }
}

impl Upstairs {
    fn can_write(&self) -> bool {
        !self.shut && self.written < self.waiting.len()
    }

    fn can_read(&self) -> bool {
        !self.closed && self.waiting.len() - self.written < HIGH_WATER
    }

    /// Whether one of the waiting lines, from this one on, needs a daemon.
    fn has_request(&self, from: usize, flight: &mut Flight) -> bool {
        (from.max(self.sent)..self.ends.len()).any(|at| flight.is_request(self.line(at)))
    }

    /// A waiting line, without its line break.
    fn line(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.waiting[start..self.ends[at] - 1]
    }

    /// Takes the whole lines of what was read; 0 bytes are the client's end.
    fn take(&mut self, read: usize) {
        let Self { lines, waiting, ends, .. } = self;
        while let Some(line) = lines.next_line() {
            match line {
                Line::Whole(line) => write_line(waiting, line),
                Line::TooLong(long) => FromRelay::Long(long).write(waiting),
            }
            ends.push_back(waiting.len());
        }
        if read == 0 {
            self.closed = true;
            if let Some(rest) = lines.rest() {
                write_line(waiting, rest);
                ends.push_back(waiting.len());
            }
        }
    }

    /// All that the client has sent and no daemon has taken; `None` if some of it is not known to the last byte.
    fn all(&self) -> Option<Vec<u8>> {
        let lines = (self.sent..self.ends.len()).map(|at| self.line(at));
        let whole = lines.clone().all(|line| FromRelay::read(line).is_none());
        let begun = self.lines.begun().filter(|_| whole && !self.closed)?;
        Some([&self.waiting[..], begun].concat())
    }

    /// Forgets all that the client has sent.
    fn forget(&mut self) {
        (self.waiting, self.ends, self.sent, self.written) = (Vec::new(), VecDeque::new(), 0, 0);
        self.lines.forget_begun();
    }

    /// Notes what the daemon has taken from the client.
    fn taken(&mut self, part: &[u8], flight: &mut Flight) {
        self.lines.feed(part);
        while let Some(line) = self.lines.next_line() {
            match line {
                // What looks like an aside is one line of nonsense, and settled as such.
                Line::Whole(line) if FromRelay::read(line).is_some() => flight.sent(b"?"),
                Line::Whole(line) => flight.sent(line),
                Line::TooLong(long) => {
                    let mut line = Vec::new();
                    FromRelay::Long(long).write(&mut line);
                    line.pop();
                    flight.sent(&line);
                }
            }
        }
    }

    /// Lets a line of the relay's own wait for the daemon.
    fn say(&mut self, aside: &FromRelay<'_>) {
        aside.write(&mut self.waiting);
        self.ends.push_back(self.waiting.len());
    }

    /// Notes that the daemon was sent this many bytes more.
    fn wrote(&mut self, count: usize, flight: &mut Flight) {
        self.written += count;
        while self.sent < self.ends.len() {
            let start = self.sent.checked_sub(1).map_or(0, |before| self.ends[before]);
            if start >= self.written {
                break;
            }
            let line = self.line(self.sent);
            if FromRelay::read(line).is_none_or(|aside| aside.is_of_client()) {
                flight.sent(line);
            }
            self.sent += 1;
        }
        if self.written == self.waiting.len() {
            self.forget_sent();
        }
    }

    /// Forgets the lines of which a byte was sent.
    fn forget_sent(&mut self) {
        let sent = self.sent.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.waiting.drain(..sent);
        self.waiting.shrink_to(HIGH_WATER);
        self.ends.drain(..self.sent);
        self.ends.iter_mut().for_each(|end| *end -= sent);
        (self.sent, self.written) = (0, 0);
    }

    /// Lets a line wait before all others.
    fn send_first(&mut self, line: &[u8]) {
        let length = line.len() + 1;
        self.waiting.splice(..0, line.iter().copied().chain([b'\n']));
        self.ends.iter_mut().for_each(|end| *end += length);
        self.ends.push_front(length);
    }
}

/// When daemons died.
#[derive(Default)]
struct Deaths(VecDeque<Instant>);

impl Deaths {
    /// Notes a death. Returns whether there were too many.
    fn note(&mut self, now: Instant) -> bool {
        self.0.push_back(now);
        while self.0.front().is_some_and(|death| now.duration_since(*death) >= WINDOW) {
            self.0.pop_front();
        }
        self.0.len() >= MOST_DEATHS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_death_within_a_minute_is_one_too_many() {
        let start = Instant::now();
        let cases: [(&[u64], bool); 5] = [
            (&[0], false),
            (&[0, 1], false),
            (&[0, 1, 59], true),
            (&[0, 1, 60], false),
            (&[0, 60, 61, 119], true),
        ];
        for (seconds, expected) in cases {
            let mut deaths = Deaths::default();
            let noted = seconds.iter().map(|second| deaths.note(start + Duration::from_secs(*second)));
            assert_eq!(noted.last(), Some(expected), "{seconds:?}");
        }
    }

    fn session() -> Session {
        Session::new(100)
    }

    fn request(id: u32, method: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)
    }

    /// The daemon reads lines, tells places in them, and dies before it has read all that it has moved.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_relay_looks_only_at_lines_that_may_not_be_settled_and_gives_back_those_that_were_not_read() {
        use super::super::direct;
        use super::super::session_out::gathered;
        use crate::transport::outbox::Destination;
        use tokio::io::AsyncReadExt;

        let (client, _stdout, custody, ends) = direct::session(false, b"");
        let (mut input, mut output) = ends.split(tokio::io::sink());
        let mut session = session();
        session.custody = Some(custody);
        // All have the same length.
        let line = |number: u32| format!("{}\n", request(10 + number, "ping"));
        let length = line(1).len() as u64;
        let place = |lines| Some(InputPlace { lines, offset: lines * length });
        let looked_at = |session: &Session| session.custody.as_ref().expect("it lives").looked_at() / length;
        let mut read = vec![0; 3 * length as usize];
        for (numbers, settled, told, expected) in [
            (1..=3, "\x01=2 \n", 3, 0),
            (4..=6, "\x01=3 \n\x01=1 \n\x01=6 \n", 6, 3),
            // Neither of the first two is settled.
            (7..=9, "\x01=7 \n\x01=8 \n\x01=9 \n", 9, 6),
            // They are known now, so the next ones can be left out.
            (10..=12, "\x01=4 \n\x01=11 \n", 12, 9),
        ] {
            let lines: String = numbers.map(line).collect();
            rustix::io::write(&client, lines.as_bytes()).expect("there is room");
            input.read_exact(&mut read[..lines.len()]).await.expect("it is there");
            output.write_gathered(&gathered(settled.as_bytes()), |_| {}).await.expect("there is room");
            session.collect(place(told));
            assert_eq!(looked_at(&session), expected);
        }
        let rest = format!("{}{}", line(13), line(14));
        rustix::io::write(&client, rest.as_bytes()).expect("there is room");
        input.read_exact(&mut read[..line(13).len() + 5]).await.expect("it is there");
        drop((input, output));
        assert!(session.part(false).is_some());
        let told = String::from_utf8(session.lost(FaceKind::Workbench)).expect("text");
        let answered = |number| told.contains(&format!("\"id\":{},", 10 + number));
        let numbers: Vec<u32> = (1..=14).filter(|number| answered(*number)).collect();
        assert_eq!((numbers, told.lines().count()), (vec![5, 10, 12, 13], 4), "{told}");
        assert_eq!(session.up.waiting, line(14).as_bytes(), "no daemon has seen it");
    }

    /// Lets the client send these bytes.
    async fn send(session: &mut Session, bytes: &str) {
        let mut stream = bytes.as_bytes();
        let read = session.up.lines.read(&mut stream).await.expect("memory can be read");
        session.up.take(read);
    }

    fn has_request(session: &mut Session) -> bool {
        session.up.has_request(0, &mut session.flight)
    }

    #[tokio::test]
    async fn a_line_of_which_a_byte_was_sent_is_not_sent_again_and_all_others_are() {
        let lines = [request(1, "a"), request(2, "b"), request(3, "c")].map(|line| line + "\n");
        let whole = lines.concat();
        for (written, answered, left) in [
            (0, 0, 3),
            (1, 1, 2),
            (lines[0].len(), 1, 2),
            (lines[0].len() + 1, 2, 1),
            (whole.len() - 1, 3, 0),
            (whole.len(), 3, 0),
        ] {
            let mut session = session();
            send(&mut session, &whole).await;
            if written > 0 {
                session.up.wrote(written, &mut session.flight);
            }
            let told = session.lost(FaceKind::Workbench);
            let told = told.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(told, answered, "{written} bytes");
            assert_eq!(session.up.waiting, lines[3 - left..].concat().as_bytes(), "{written} bytes");
            assert_eq!(session.up.ends.len(), left, "{written} bytes");
        }
    }

    #[tokio::test]
    async fn a_line_that_has_only_begun_stays_whole() {
        let mut session = session();
        send(&mut session, "{\"jsonrpc\":\"2.0\",\"id\":1,").await;
        assert!(session.up.waiting.is_empty() && !has_request(&mut session));
        session.up.forget_sent();
        send(&mut session, "\"method\":\"ping\"}\n").await;
        assert!(has_request(&mut session));
        assert_eq!(session.up.waiting, br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_vec().into_iter().chain([b'\n']).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_daemon_with_the_clients_pipes_begins_with_all_that_the_last_one_did_not_take() {
        let mut session = session();
        send(&mut session, &(request(1, "ping") + "\n" + &request(2, "ping") + "\n{\"json")).await;
        session.up.wrote(5, &mut session.flight);
        session.lost(FaceKind::Workbench);
        let all = session.up.all().expect("every byte is known");
        assert_eq!(String::from_utf8_lossy(&all), request(2, "ping") + "\n{\"json");
        session.up.forget();
        assert_eq!(session.up.all(), Some(Vec::new()));
        // What the relay says to a daemon is for that one, and a line that is too long is not there as it was sent.
        send(&mut session, &format!("{}\n", "x".repeat(101))).await;
        assert_eq!(session.up.all(), None);
        session.up.forget();
        send(&mut session, &"x".repeat(5000)).await;
        assert_eq!(session.up.all(), None);
    }

    #[tokio::test]
    async fn lines_that_the_daemon_takes_itself_are_in_flight() {
        let mut session = session();
        for part in [&request(1, "a")[..], "\n\n", &request(2, "b"), "\n", &"x".repeat(101), "\n{\"id\":"] {
            session.up.taken(part.as_bytes(), &mut session.flight);
        }
        session.flight.settled(1);
        let told = String::from_utf8(session.lost(FaceKind::Workbench)).expect("text");
        assert!(told.contains("\"id\":2") && told.lines().count() == 1, "{told}");
        assert_eq!(
            session.up.all().as_deref(),
            Some(&b"{\"id\":"[..]),
            "what has begun goes to the next one"
        );
    }

    #[tokio::test]
    async fn initialize_goes_before_everything_that_came_later() {
        let mut session = session();
        send(&mut session, &(request(0, "initialize") + "\n")).await;
        session.up.wrote(5, &mut session.flight);
        send(&mut session, &(request(1, "ping") + "\n")).await;
        assert!(session.lost(FaceKind::Workbench).is_empty());
        let expected = format!("{}\n{}\n", request(0, "initialize"), request(1, "ping"));
        assert_eq!(String::from_utf8_lossy(&session.up.waiting), expected);
        session.up.wrote(expected.len(), &mut session.flight);
        assert!(session.up.waiting.is_empty() && !session.flight.is_empty());
    }

    #[tokio::test]
    async fn a_handshake_that_is_sent_again_is_not_restored_as_well() {
        for (answer, is_restored) in [("", false), ("\u{1}=1 {}\n", true)] {
            let mut session = session();
            send(&mut session, &(request(0, "initialize") + "\n")).await;
            session.up.wrote(5, &mut session.flight);
            let mut lines = Lines::new(usize::MAX);
            let told = format!("\u{1}{{\"hello\":\"{{}}\",\"open\":[\"dev\"]}}\n{answer}");
            lines.read(&mut told.as_bytes()).await.expect("memory can be read");
            session.take_down(&mut lines, &mut false);
            assert!(session.lost(FaceKind::Workbench).is_empty());
            let record = session.record.take().expect("it was told");
            assert_eq!((record.hello.is_some(), &*record.open), (is_restored, &["dev".to_owned()][..]));
            assert_eq!(session.up.waiting.is_empty(), is_restored, "it is sent again if it is not answered");
        }
    }

    #[tokio::test]
    async fn what_is_too_long_or_looks_like_our_own_is_told_apart() {
        let mut session = session();
        send(&mut session, "\u{1}end\n").await;
        send(&mut session, &format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"x\":\"{}\"}}\n", "y".repeat(100)))
            .await;
        let text = String::from_utf8_lossy(&session.up.waiting).into_owned();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "?\u{1}end");
        assert!(lines[1].starts_with("\u{1}long 131 {\"jsonrpc\":\"2.0\",\"id\":7,"), "{}", lines[1]);
        assert!(has_request(&mut session), "its id is known, so it is answered");
    }

    #[tokio::test]
    async fn what_the_client_sends_last_needs_no_line_break() {
        let mut session = session();
        send(&mut session, &request(1, "ping")).await;
        session.up.take(0);
        assert!(session.up.closed && has_request(&mut session));
        assert_eq!(session.up.waiting.last(), Some(&b'\n'));
        let mut left = session.alone(NoDaemon::new("none")).unsent;
        assert_eq!((left.waiting.len(), left.lines.rest()), (request(1, "ping").len() + 1, None), "once");
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_and_has_only_begun_stays_too_long_for_who_goes_on_alone() {
        let mut session = Session::new(5000);
        send(&mut session, &"x".repeat(6000)).await;
        let mut left = session.alone(NoDaemon::new("none")).unsent;
        left.lines.read(&mut &b"y\n"[..]).await.expect("memory can be read");
        let Some(Line::TooLong(long)) = left.lines.next_line() else { panic!("it is too long") };
        assert_eq!(long.length, 6001);
    }
}
