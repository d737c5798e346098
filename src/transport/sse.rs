//! Server-sent events: an incremental parser for chunks of any size. The HTTP client reads streams through
//! it.

use std::time::Duration;

/// The longest pause before reconnecting that a server can ask for, since somebody waits for the stream.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Longer event ids are not remembered, because they are sent back to the server in a header.
const MOST_ID: usize = 4 * 1024;

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event` field; empty for an ordinary message.
    pub name: &'a str,
    /// The `data` lines joined by line feeds; only their beginning if the event is over the limit.
    pub data: &'a [u8],
    /// The full length of the data, if it is over the limit.
    pub too_long: Option<usize>,
}

/// Parses the chunks of a stream into events, and remembers the server's event ids and `retry`.
pub struct Parser {
    limit: usize,
    /// The beginning of a line whose end has not arrived yet.
    line: Vec<u8>,
    /// The number of bytes of that line that were not kept.
    cut: usize,
    after_cr: bool,
    first_line: bool,
    name: String,
    data: Vec<u8>,
    has_data: bool,
    /// The length of the data, including bytes that were not kept.
    length: usize,
    id: String,
    last_id: String,
    retry: Option<Duration>,
}

impl Parser {
    /// A parser for events with up to `limit` bytes of data.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            cut: 0,
            after_cr: false,
            first_line: true,
            name: String::new(),
            data: Vec::new(),
            has_data: false,
            length: 0,
            id: String::new(),
            last_id: String::new(),
            retry: None,
        }
    }

    /// Takes the next bytes of the stream and passes on the events that they complete.
    pub fn feed(&mut self, mut chunk: &[u8], mut on_event: impl FnMut(Event<'_>)) {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_cr) && chunk[0] == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) else {
                self.keep(chunk);
                return;
            };
            self.after_cr = chunk[end] == b'\r';
            if self.line.is_empty() && self.cut == 0 {
                let kept = end.min(self.line_limit());
                self.take_line(&chunk[..kept], end - kept, &mut on_event);
            } else {
                self.keep(&chunk[..end]);
                let mut line = std::mem::take(&mut self.line);
                let cut = std::mem::take(&mut self.cut);
                self.take_line(&line, cut, &mut on_event);
                line.clear();
                line.shrink_to(64 * 1024);
                self.line = line;
            }
            chunk = &chunk[end + 1..];
        }
    }

    /// Prepares for another connection: an incomplete event is lost; the ids and `retry` are kept.
    pub fn reconnect(&mut self) {
        let (limit, last_id, retry) = (self.limit, std::mem::take(&mut self.last_id), self.retry);
        *self = Self { id: last_id.clone(), last_id, retry, ..Self::new(limit) };
    }

    /// The id of the last complete event, if the server assigns ids.
    pub fn last_id(&self) -> Option<&str> {
        Some(self.last_id.as_str()).filter(|id| !id.is_empty())
    }

    /// The pause before reconnecting, if the server named one.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The limit of a line, with room for a byte order mark, the field name, the colon and the space, which
    /// are not data.
    fn line_limit(&self) -> usize {
        self.limit.saturating_add(16)
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.line_limit().saturating_sub(self.line.len()).min(bytes.len());
        self.line.extend_from_slice(&bytes[..room]);
        self.cut += bytes.len() - room;
    }

    fn take_line(&mut self, mut line: &[u8], cut: usize, on_event: &mut impl FnMut(Event<'_>)) {
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(on_event);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.add_data(b"\n");
                }
                self.add_data(value);
                self.length += cut;
            }
            b"event" if cut == 0 => self.name = String::from_utf8_lossy(value).into_owned(),
            b"id" if cut == 0 && !value.contains(&0) => {
                let id = if value.len() <= MOST_ID { value } else { b"" };
                self.id = String::from_utf8_lossy(id).into_owned();
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let text = std::str::from_utf8(value).expect("digits are text");
                let wait = text.parse().map_or(LONGEST_RETRY, Duration::from_millis);
                self.retry = Some(wait.min(LONGEST_RETRY));
            }
            _ => {}
        }
    }

    fn add_data(&mut self, bytes: &[u8]) {
        let room = self.limit.saturating_sub(self.data.len()).min(bytes.len());
        self.data.extend_from_slice(&bytes[..room]);
        self.length += bytes.len();
    }

    fn dispatch(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        self.last_id.clone_from(&self.id);
        if std::mem::take(&mut self.has_data) {
            let too_long = (self.length > self.data.len()).then_some(self.length);
            on_event(Event { name: &self.name, data: &self.data, too_long });
        }
        self.name.clear();
        self.data.clear();
        self.data.shrink_to(64 * 1024);
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the events as `name|data|too long` and the remembered fields, with the stream cut into pieces
    /// of these sizes.
    fn read(stream: &[u8], limit: usize, sizes: &[usize]) -> (Vec<String>, String) {
        let mut parser = Parser::new(limit);
        let mut events = Vec::new();
        let mut sizes = sizes.iter().copied().cycle();
        let mut rest = stream;
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(sizes.next().unwrap_or(rest.len()).clamp(1, rest.len()));
            parser.feed(chunk, |event| {
                let long = event.too_long.map(|length| format!("|{length}")).unwrap_or_default();
                events.push(format!("{}|{}{long}", event.name, String::from_utf8_lossy(event.data)));
            });
            rest = behind;
        }
        (events, format!("{:?} {:?}", parser.last_id(), parser.retry()))
    }

    fn check(stream: &str, expected: &[&str], remembered: &str) {
        for sizes in [&[][..], &[1], &[2, 3]] {
            let (events, state) = read(stream.as_bytes(), 16, sizes);
            assert_eq!(
                (events, state.as_str()),
                (expected.iter().map(|e| e.to_string()).collect(), remembered),
                "{stream:?} {sizes:?}"
            );
        }
    }

    #[test]
    fn reads_events() {
        check("data: a\n\n", &["|a"], "None None");
        check("data:a\r\rdata: b\r\n\r\n", &["|a", "|b"], "None None");
        check("\u{feff}data: a\ndata:  b\n\n", &["|a\n b"], "None None");
        check("event: endpoint\ndata: /m\n\ndata: x\n\n", &["endpoint|/m", "|x"], "None None");
        check(": hello\n\n:\n\ndata\n\n", &["|"], "None None");
        check("id: 7\nretry: 250\ndata:\n\n", &["|"], "Some(\"7\") Some(250ms)");
        // No server can make a call wait for longer.
        check("retry: 60001\ndata:\n\n", &["|"], "None Some(60s)");
        check("retry: 99999999999999999999999\ndata:\n\n", &["|"], "None Some(60s)");
        check("id: 7\n\nid\ndata: a\n\n", &["|a"], "None None");
        check("id: 1\ndata: a\n\nid: 2\ndata: lost", &["|a"], "Some(\"1\") None");
        check("id: a\0b\nretry: 1x\nunknown: 1\ndata: a\n\n", &["|a"], "None None");
        check("event: x\n\ndata: a\n\n", &["|a"], "None None");
    }

    #[test]
    fn long_data_is_cut_and_the_next_event_is_whole() {
        let long = "y".repeat(100);
        check(&format!("data: {long}\n\ndata: a\n\n"), &["|yyyyyyyyyyyyyyyy|100", "|a"], "None None");
        check(&format!("data: {}\n\n", "z".repeat(16)), &["|zzzzzzzzzzzzzzzz"], "None None");
        check("data: 0123456789\ndata: abcdef\n\n", &["|0123456789\nabcde|17"], "None None");
        check(&format!(": {long}\nid: {long}\ndata: a\n\n"), &["|a"], "None None");
    }

    #[test]
    fn a_new_connection_forgets_what_was_incomplete() {
        let mut parser = Parser::new(99);
        parser.feed(b"id: 1\nretry: 5\ndata: a\n\nid: 2\ndata: half", |_| ());
        parser.reconnect();
        let mut events = 0;
        parser.feed(b"data: b\n\n", |event| {
            assert_eq!(event.data, b"b");
            events += 1;
        });
        assert_eq!(
            (events, parser.last_id(), parser.retry()),
            (1, Some("1"), Some(Duration::from_millis(5)))
        );
    }

    #[test]
    fn data_of_several_lines_is_joined() {
        let text = "retry: 1500\n\nid: 4-2\ndata: {\"a\":\ndata: 1,\ndata: \ndata: 2}\n\n:\n\ndata: \n\n";
        check(text, &["|{\"a\":\n1,\n\n2}", "|"], "Some(\"4-2\") Some(1.5s)");
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("data: "), Just("data:"), Just("id: 1"), Just("id"), Just("event: e"), Just("retry: 9"), Just(":"),
                    Just("\n"), Just("\r"), Just("\r\n"), Just("\n\n"), Just("\u{feff}"), Just("x"), Just("ü"), Just("0123456789abcdefgh"),
                ],
                0..60,
            ),
            sizes in proptest::collection::vec(1usize..9, 1..9),
        ) {
            let stream = parts.concat();
            prop_assert_eq!(read(stream.as_bytes(), 16, &sizes), read(stream.as_bytes(), 16, &[]));
        }
    }
}
