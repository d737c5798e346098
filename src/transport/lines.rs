//! Framing by lines: cuts a byte stream, in chunks of any size, into whole lines. Both stdio transports read
//! through it.
//!
//! Invariant: a line over the limit costs no memory beyond its beginning and its end.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// Cuts a byte stream into lines.
pub struct Lines {
    buffer: Vec<u8>,
    /// The offset at which the next line begins.
    start: usize,
    /// The offset up to which a line break was looked for.
    seen: usize,
    limit: usize,
    /// The number of lines since other tasks could run.
    turn: usize,
    /// What was discarded of the line that is too long, while that line lasts.
    overflow: Option<Overflow>,
    /// The end of the last line that was too long.
    ending: Vec<u8>,
}

#[derive(Default)]
struct Overflow {
    lost: usize,
    /// Whether the discarded bytes are more than white space.
    has_text: bool,
    /// The last of the discarded bytes.
    ending: Vec<u8>,
}

/// One line, without its line break.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line within the limit.
    Whole(&'a [u8]),
    /// A line over the limit.
    TooLong(TooLong<'a>),
}

/// What is known of a line that is too long.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong<'a> {
    /// The beginning of the line.
    pub start: &'a [u8],
    /// The end of the line.
    pub end: &'a [u8],
    /// The length of the line in bytes.
    pub length: usize,
}

/// The number of bytes kept from the beginning of a line that is too long, so that its id can be found.
const PREFIX: usize = 4096;
/// The number of bytes kept from its end.
const ENDING: usize = 256;
/// The buffer space for one read.
const ROOM: usize = 16 * 1024;
/// The capacity that is kept at all times. Larger buffers are freed after a pause.
const KEPT: usize = 2 * ROOM;
/// The largest buffer space for one read, used once reads have filled the smaller one.
const MOST_ROOM: usize = 256 * 1024;
/// A stream that is silent for this long frees the memory of long lines. Freeing it at once would be slower,
/// because touching fresh memory for each of many long lines costs more than reading them.
pub const PAUSE: Duration = Duration::from_secs(1);

/// The most buffers that a thread keeps for its streams.
const MOST_SPARE: usize = 4;

thread_local! {
    /// Buffers of streams that are silent, for whichever is read next. To free and allocate them each time would cost a busy
    /// stream more than the reading.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The number of lines handled at a stretch: few enough that the other side works on the first while we
/// handle the next, and many enough that one system call carries several.
const TURN: usize = 32;

impl Lines {
    /// A reader of lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, seen: 0, limit, turn: 0, overflow: None, ending: Vec::new() }
    }

    /// Changes the limit for lines that are not complete yet.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Reads more bytes; 0 at the end of the stream. Nothing is lost if the future is dropped. The stream
    /// holds no memory while there is nothing to read and no line has begun; its thread keeps a few buffers for all.
    pub async fn read(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        let space = self.space();
        if space.is_empty() && space.capacity() > KEPT {
            if let Ok(read) = timeout(PAUSE, stream.read_buf(space)).await {
                return read;
            }
            *space = Vec::new();
        }
        poll_fn(|context| {
            let space = self.space();
            let read = pin!(stream.read_buf(space)).poll(context);
            if read.is_pending() {
                // Others run now, so the lines that come next are the first of a new turn.
                self.turn = 0;
                if self.buffer.is_empty() {
                    lay_aside(std::mem::take(&mut self.buffer));
                }
            }
            read
        })
        .await
    }

    /// Takes bytes that were read already.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.space().extend_from_slice(bytes);
    }

    /// The beginning of the next line, which may be empty; `None` if it is too long to be kept.
    pub fn begun(&self) -> Option<&[u8]> {
        self.overflow.is_none().then(|| &self.buffer[self.start..])
    }

    /// Forgets that beginning, however long it is.
    pub fn forget_begun(&mut self) {
        self.overflow = None;
        (self.start, self.seen) = (self.buffer.len(), self.buffer.len());
    }

    /// Frees the memory of lines that were taken, unless another has begun, and what is kept for others.
    pub fn free(&mut self) {
        SPARE.take();
        if self.start == self.buffer.len() {
            self.buffer = Vec::new();
            (self.start, self.seen) = (0, 0);
        }
    }

    /// The buffer to which the next bytes of the stream are appended.
    fn space(&mut self) -> &mut Vec<u8> {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            (self.start, self.seen) = (0, 0);
        } else if self.start > 0 {
            self.buffer.drain(..self.start);
            self.seen -= self.start;
            self.start = 0;
        }
        if self.buffer.capacity() == 0 {
            self.buffer = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        }
        let room = if self.buffer.capacity() > ROOM { MOST_ROOM } else { ROOM };
        let wanted = room.max(self.buffer.len().min(4 * 1024 * 1024));
        if self.buffer.capacity() - self.buffer.len() < room / 2 {
            self.buffer.reserve(wanted);
        }
        &mut self.buffer
    }

    /// The next whole line, if there is one. Blank lines are skipped.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.seen..]) else {
                self.seen = self.buffer.len();
                self.swallow();
                return None;
            };
            let (start, end) = (self.start, self.seen + found);
            (self.start, self.seen) = (end + 1, end + 1);
            let (from, to) = trim(&self.buffer, start, end);
            if self.overflow.is_some() || end - start > self.limit {
                // A line is blank or not, whatever the limit is: two who read the same lines count the same.
                if from < to || self.overflow.as_ref().is_some_and(|overflow| overflow.has_text) {
                    return Some(Line::TooLong(self.too_long(start, end)));
                }
                self.overflow = None;
            } else if from < to {
                return Some(Line::Whole(&self.buffer[from..to]));
            }
        }
    }

    /// Must be awaited after each line. It regularly lets other tasks run, above all those that write the
    /// answers.
    pub async fn pause(&mut self) {
        self.turn += 1;
        if self.turn == TURN {
            self.turn = 0;
            tokio::task::yield_now().await;
        }
    }

    /// Describes the line that is too long and of which this range is held.
    fn too_long(&mut self, start: usize, end: usize) -> TooLong<'_> {
        let held = &self.buffer[start..end];
        let Overflow { lost, mut ending, .. } = self.overflow.take().unwrap_or_default();
        // The held bytes start with the line's beginning; the discarded bytes followed it.
        let known = if lost > 0 { held.get(PREFIX..).unwrap_or_default() } else { held };
        extend_ending(&mut ending, known);
        self.ending = ending;
        TooLong { start: &held[..PREFIX.min(held.len())], end: &self.ending, length: lost + held.len() }
    }

    /// The text after the last line break, once the stream has ended. It is given once.
    pub fn rest(&mut self) -> Option<&[u8]> {
        let (start, end) = trim(&self.buffer, self.start, self.buffer.len());
        (self.start, self.seen) = (self.buffer.len(), self.buffer.len());
        (start < end && self.overflow.is_none() && end - start <= self.limit)
            .then(|| &self.buffer[start..end])
    }

    /// Discards everything held of a line that is too long, except its beginning.
    fn swallow(&mut self) {
        let held = self.buffer.len() - self.start;
        if self.overflow.is_none() && held <= self.limit {
            return;
        }
        let kept = PREFIX.min(held);
        let overflow = self.overflow.get_or_insert_default();
        overflow.lost += held - kept;
        let discarded = &self.buffer[self.start + kept..];
        overflow.has_text |= !discarded.trim_ascii_start().is_empty();
        extend_ending(&mut overflow.ending, discarded);
        self.buffer.truncate(self.start + kept);
        self.buffer.shrink_to(MOST_ROOM);
        self.seen = self.buffer.len();
    }
}

/// Keeps an empty buffer for the next stream that needs one, unless there are enough, or it has grown.
fn lay_aside(buffer: Vec<u8>) {
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < MOST_SPARE && buffer.capacity() <= ROOM {
            spare.push(buffer);
        }
    });
}

/// Appends bytes and keeps only the last ones.
fn extend_ending(ending: &mut Vec<u8>, bytes: &[u8]) {
    ending.extend_from_slice(&bytes[bytes.len().saturating_sub(ENDING)..]);
    ending.drain(..ending.len().saturating_sub(ENDING));
}

/// The range without a leading byte order mark and surrounding white space.
fn trim(buffer: &[u8], start: usize, end: usize) -> (usize, usize) {
    let line = &buffer[start..end];
    if let [b'{', .., b'}'] = line {
        return (start, end);
    }
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let begin = end - line.trim_ascii_start().len();
    (begin, begin + line.trim_ascii().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::AsyncWriteExt;

    fn frames(limit: usize, chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::new(limit);
        let mut shown = Vec::new();
        for chunk in chunks {
            lines.space().extend_from_slice(chunk);
            while let Some(line) = lines.next_line() {
                shown.push(match line {
                    Line::Whole(text) => String::from_utf8_lossy(text).into_owned(),
                    Line::TooLong(TooLong { start, end, length }) => {
                        let shown = |bytes| String::from_utf8_lossy(bytes).into_owned();
                        format!("<{} {length} {}>", shown(&start[..4]), shown(&end[end.len() - 4..]))
                    }
                });
            }
        }
        if let Some(rest) = lines.rest() {
            shown.push(format!("{}$", String::from_utf8_lossy(rest)));
        }
        shown
    }

    #[test]
    fn cuts_lines() {
        for (stream, expected) in [
            ("a\nb\n", &["a", "b"][..]),
            ("a\r\n\n \r\nb", &["a", "b$"]),
            ("\u{feff}a\n\u{feff}\n  b\t\n", &["a", "b"]),
            ("0123456789\n01234567890\nb\n", &["0123456789", "<0123 11 7890>", "b"]),
            ("01234567890", &[]),
            ("", &[]),
        ] {
            assert_eq!(frames(10, &[stream.as_bytes()]), expected, "{stream:?}");
        }
    }

    #[test]
    fn a_line_may_have_as_many_bytes_as_the_limit_says_however_it_comes() {
        let whole: &[&[u8]] = &[b"0123456789\n"];
        for chunks in [whole, &[b"0123456789", b"\n"], &[b"01234", b"56789", b"\n"]] {
            assert_eq!(frames(10, chunks), ["0123456789"], "{chunks:?}");
        }
        assert_eq!(frames(10, &[b"01234", b"56789"]), ["0123456789$"]);
        assert_eq!(frames(10, &[b"01234", b"567890", b"\n"]), ["<0123 11 7890>"]);
    }

    #[test]
    fn a_blank_line_is_no_line_however_long_it_is() {
        let blank = [b' '; 10_000];
        assert_eq!(frames(10, &[b"           \nb\n"]), ["b"]);
        assert_eq!(frames(10, &[&blank, b"  \r\nb\n"]), ["b"]);
        assert_eq!(frames(10, &[&blank, b"text\n"]), ["<     10004 text>"]);
        assert_eq!(frames(10, &[&blank, &[b'x'; 10], &blank, b"\nb\n"]), ["<     20010     >", "b"]);
    }

    #[test]
    fn a_line_without_end_is_not_held() {
        let mut lines = Lines::new(100_000);
        for _ in 0..100 {
            let space = lines.space();
            let room = space.capacity() - space.len();
            assert!(room > 0);
            space.resize(space.len() + room, b'x');
            assert_eq!(lines.next_line(), None);
            assert!(lines.buffer.capacity() <= 1024 * 1024, "{}", lines.buffer.capacity());
        }
        lines.space().extend_from_slice(b"the end\n{}\n");
        let Some(Line::TooLong(line)) = lines.next_line() else { panic!("it is too long") };
        assert!(line.start.len() == PREFIX && line.length > 1_000_000);
        assert!(line.end.len() == ENDING && line.end.ends_with(b"xthe end"));
        assert_eq!(lines.next_line(), Some(Line::Whole(b"{}")));
    }

    #[test]
    fn the_memory_of_lines_that_were_taken_can_be_freed_and_nothing_is_lost() {
        let mut lines = Lines::new(100);
        lines.space().extend_from_slice(b"a\nb");
        assert_eq!(lines.next_line(), Some(Line::Whole(b"a")));
        lines.free();
        lines.space().extend_from_slice(b"c\n");
        assert_eq!(lines.next_line(), Some(Line::Whole(b"bc")));
        lines.free();
        assert_eq!(lines.buffer.capacity(), 0);
        lines.space().extend_from_slice(b"d\n");
        assert_eq!(lines.next_line(), Some(Line::Whole(b"d")));
    }

    #[tokio::test]
    async fn a_silent_stream_holds_no_memory_but_the_beginning_of_a_line() {
        let (mut theirs, mut ours) = tokio::io::duplex(64);
        let mut lines = Lines::new(100);
        for (sent, line, held) in [
            ("{}\n", Some("{}"), false),
            ("[", None, true),
            ("]\n{}\n", Some("[]"), true),
            ("\n", None, false),
        ] {
            theirs.write_all(sent.as_bytes()).await.unwrap();
            lines.read(&mut ours).await.unwrap();
            let expected = line.map(|line| Line::Whole(line.as_bytes()));
            assert_eq!(lines.next_line(), expected, "{sent}");
            tokio::select! {
                biased;
                _ = lines.read(&mut ours) => panic!("nothing was sent"),
                () = std::future::ready(()) => {}
            }
            assert_eq!(lines.buffer.capacity() > 0, held, "{sent}");
            while held && lines.next_line().is_some() {}
        }
    }

    #[tokio::test]
    async fn others_run_during_a_flood_and_a_turn_begins_anew_after_a_wait() {
        const FLOOD: usize = 10 * TURN;
        let others = Arc::new(AtomicUsize::new(0));
        let counted = others.clone();
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        // Each read is full and has fewer lines than a turn.
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let text = line.repeat(FLOOD);
        let (mut stream, mut lines) = (&text[..], Lines::new(1000));
        while lines.read(&mut stream).await.unwrap() > 0 {
            while lines.next_line().is_some() {
                lines.pause().await;
            }
        }
        assert!(others.load(Ordering::Relaxed) >= FLOOD / TURN, "{others:?}");
        other.abort();
        lines.space().extend_from_slice(b"{}\n");
        assert!(lines.next_line().is_some());
        lines.pause().await;
        assert_eq!(lines.turn, 1);
        let (_theirs, mut silent) = tokio::io::duplex(64);
        tokio::select! {
            biased;
            _ = lines.read(&mut silent) => panic!("nothing was sent"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(lines.turn, 0);
    }

    #[test]
    fn a_buffer_that_is_not_needed_serves_the_next_stream_unless_it_has_grown_or_there_are_enough() {
        let kept = || SPARE.with_borrow(Vec::len);
        let [mut one, mut two] = [(); 2].map(|()| Lines::new(100));
        let place = one.space().as_ptr();
        lay_aside(std::mem::take(&mut one.buffer));
        assert_eq!((two.space().as_ptr(), kept()), (place, 0));
        lay_aside(Vec::with_capacity(KEPT));
        assert_eq!(kept(), 0);
        (0..2 * MOST_SPARE).for_each(|_| lay_aside(Vec::with_capacity(ROOM)));
        assert_eq!(kept(), MOST_SPARE);
        one.free();
        assert_eq!(kept(), 0);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_frames(stream in "[ab\n\r \u{feff}]{0,60}", cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(frames(8, &chunks), frames(8, &[bytes]));
        }

        #[test]
        fn any_chunking_of_long_lines_gives_the_same_frames(lengths in prop::collection::vec(0usize..15_000, 0..5), sizes in prop::collection::vec(1usize..6000, 1..6)) {
            let mut stream = Vec::new();
            for (number, length) in lengths.iter().enumerate() {
                stream.extend((0..*length).map(|at| b'a' + ((at + number) % 26) as u8));
                stream.push(b'\n');
            }
            let (mut chunks, mut rest, mut sizes) = (Vec::new(), &*stream, sizes.iter().cycle());
            while !rest.is_empty() {
                let (chunk, more) = rest.split_at(rest.len().min(*sizes.next().expect("a cycle")));
                chunks.push(chunk);
                rest = more;
            }
            prop_assert_eq!(frames(5000, &chunks), frames(5000, &[&stream]));
        }
    }
}
