//! A client that costs little: one thread, pipes that do not block, requests prepared as bytes.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use memchr::{memchr, memchr_iter, memmem};

use crate::contest::Caller;
use crate::roles::Era;
use crate::system;

/// A server process and our ends of its pipes.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    /// Read and not yet used.
    held: Vec<u8>,
    next: u64,
    era: Era,
}

/// Which call is made: its parameters in full.
pub(crate) struct Call(String);

impl Call {
    /// As raw JSON.
    pub(crate) fn params(&self) -> &str {
        &self.0
    }

    /// A call whose arguments ask for a text of this size, or bring it along.
    pub(crate) fn new((head, tail): (String, &str), shape: Shape) -> Self {
        Self(match shape {
            Shape::Answer(size) => format!("{head}{{\"size\":{size}}}{tail}"),
            Shape::Echo(size) => format!("{head}{{\"text\":\"{}\"}}{tail}", "x".repeat(size)),
        })
    }
}

/// Where the payload is.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// In the answer.
    Answer(usize),
    /// In the request and in the answer.
    Echo(usize),
}

impl Shape {
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Answer(size) | Self::Echo(size) => size,
        }
    }
}

impl Client {
    /// Starts the server; what it writes to stderr is not shown.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the server starts");
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        system::do_not_block(stdin.as_fd());
        system::do_not_block(stdout.as_fd());
        Self { child, stdin: Some(stdin), stdout, held: Vec::new(), next: 1, era: Era::Legacy }
    }

    /// Speaks this era from now on.
    pub(crate) fn speaking(mut self, era: Era) -> Self {
        self.era = era;
        self
    }

    /// The handshake.
    pub(crate) fn initialize(&mut self) {
        if self.era == Era::Modern {
            self.request("server/discover", "{}");
            return;
        }
        self.request(
            "initialize",
            r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}"#,
        );
        self.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    }

    /// One request and its answer; panics if that is an error.
    pub(crate) fn request(&mut self, method: &str, params: &str) -> String {
        self.requests(method, std::slice::from_ref(&params)).remove(0)
    }

    /// Requests all at once, and their answers as they came.
    pub(crate) fn requests(&mut self, method: &str, params: &[impl AsRef<str>]) -> Vec<String> {
        let mut out = Vec::new();
        for params in params {
            self.write(&mut out, method, params.as_ref());
        }
        self.send(&out);
        let mut answers = Vec::new();
        while answers.len() < params.len() {
            let line = self.line();
            if line.contains("\"id\":") {
                let head = &line[..line.len().min(400)];
                assert!(!head.contains("\"error\":") && !line.contains("\"isError\":true"), "{head}");
                answers.push(line);
            }
        }
        answers
    }

    /// The next line, whatever it is.
    pub(crate) fn line(&mut self) -> String {
        let mut seen = 0;
        loop {
            if let Some(end) = memchr(b'\n', &self.held[seen..]) {
                let line: Vec<u8> = self.held.drain(..=seen + end).collect();
                return String::from_utf8(line).expect("UTF-8");
            }
            seen = self.held.len();
            // Fresh memory takes the client a while, which is not to count as the server's.
            self.held.resize(seen + 256 * 1024, 0);
            system::wait(self.stdout.as_fd(), None);
            let read = match self.stdout.read(&mut self.held[seen..]) {
                Ok(0) => panic!("the server has ended"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => panic!("cannot read: {error}"),
            };
            self.held.truncate(seen + read);
        }
    }

    /// Takes what has come unasked, so that the next measurement begins clean.
    pub(crate) fn settle(&mut self) {
        let method = if self.era == Era::Modern { "server/discover" } else { "ping" };
        self.request(method, "{}");
        self.held.clear();
    }

    fn write(&mut self, out: &mut Vec<u8>, method: &str, params: &str) {
        let id = self.next;
        self.next += 1;
        let params = self.era.params(params);
        writeln!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}")
            .expect("memory");
    }

    /// Writes bytes as they are.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.stdin().write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    system::wait(
                        self.stdin.as_ref().expect("open").as_fd(),
                        self.stdin.as_ref().map(AsFd::as_fd),
                    );
                }
                Err(error) => panic!("the server does not read: {error}"),
            }
        }
    }

    fn stdin(&mut self) -> &mut ChildStdin {
        self.stdin.as_mut().expect("open until the drop")
    }
}

impl Caller for Client {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn check(&mut self, call: &Call, shape: Shape) {
        self.settle();
        assert_text(&self.request("tools/call", &call.0), shape);
    }

    fn calls(&mut self, call: &Call, count: usize, in_flight: usize) -> (Duration, Vec<Duration>) {
        assert!(self.held.is_empty(), "nothing is expected");
        let mut pending = Vec::new();
        let (mut written, mut sent, mut answered) = (0, 0, 0);
        let mut latencies = Vec::with_capacity(if in_flight == 1 { count } else { 0 });
        let mut buffer = vec![0; 256 * 1024];
        let began = Instant::now();
        let mut one_began = began;
        while answered < count {
            if written == pending.len() {
                pending.clear();
                written = 0;
                while sent < count && sent - answered < in_flight && pending.len() < 256 * 1024 {
                    self.write(&mut pending, "tools/call", &call.0);
                    sent += 1;
                }
            }
            if written < pending.len() {
                match self.stdin().write(&pending[written..]) {
                    Ok(count) => written += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => panic!("the server does not read: {error}"),
                }
            }
            let more_to_send = written < pending.len();
            system::wait(
                self.stdout.as_fd(),
                more_to_send.then(|| self.stdin.as_ref().expect("open").as_fd()),
            );
            match self.stdout.read(&mut buffer) {
                Ok(0) => panic!("the server has ended"),
                Ok(read) => {
                    let done = memchr_iter(b'\n', &buffer[..read]).count();
                    answered += done;
                    if in_flight == 1 && done == 1 {
                        let now = Instant::now();
                        latencies.push(now - one_began);
                        one_began = now;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("cannot read: {error}"),
            }
        }
        (began.elapsed(), latencies)
    }
}

/// Checks that a call's answer has the whole payload.
pub(crate) fn assert_text(answer: &str, shape: Shape) {
    let text = memmem::find(answer.as_bytes(), b"\"text\":\"").expect("a text") + 8;
    let length = memchr(b'"', &answer.as_bytes()[text..]).expect("its end");
    assert_eq!(length, shape.size(), "the whole payload comes back");
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
