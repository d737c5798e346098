//! A client over HTTP that costs little: one thread, connections that are kept, requests prepared as bytes.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use memchr::memmem;

use crate::client::{Call, Shape, assert_text};
use crate::contest::Caller;
use crate::roles::Era;
use crate::scene;
use crate::system;

/// A server process that listens on a port of its own.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts it; its first line says where it listens.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the server starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.and_then(|address| address.parse().ok());
        Self { child, address: address.unwrap_or_else(|| panic!("no address: {line}")) }
    }

    /// Starts one that listens where it was told to, and waits until it does.
    pub(crate) fn at(mut command: Command, address: SocketAddr) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the server starts");
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(matches!(child.try_wait(), Ok(None)), "it has ended: {command:?}");
            assert!(began.elapsed() < Duration::from_secs(60), "it does not listen: {command:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, address }
    }

    /// A tab of the console: its event stream is open, and nobody reads it after its first bytes.
    pub(crate) fn open_tab(&self, key: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        let address = self.address;
        let request = format!(
            "GET /console/api/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it is open");
        let mut head = vec![0; 1024];
        let read = stream.read(&mut head).expect("an answer");
        assert!(head[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head[..read]));
        stream
    }

    /// Of the process that was started.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends with its input.
    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A session with a server, over as many connections as calls are in flight.
pub(crate) struct Session {
    address: SocketAddr,
    /// The headers of every request.
    headers: String,
    connections: Vec<Connection>,
    /// The session's event stream.
    events: Option<TcpStream>,
    next: u64,
    era: Era,
}

/// A session with a server that others may use as well.
pub(crate) struct Visit {
    pub(crate) server: Rc<Server>,
    pub(crate) session: Session,
}

impl Caller for Visit {
    fn pid(&self) -> u32 {
        self.server.pid()
    }

    fn calls(&mut self, call: &Call, count: usize, in_flight: usize) -> (Duration, Vec<Duration>) {
        self.session.calls(call, count, in_flight)
    }

    fn check(&mut self, call: &Call, shape: Shape) {
        assert_text(&self.session.request("tools/call", call.params()), shape);
    }
}

struct Connection {
    stream: TcpStream,
    /// Read and not yet used.
    held: Vec<u8>,
    sent: Instant,
}

impl Session {
    /// With a server that knows no sessions, which is every server in the modern era.
    pub(crate) fn stateless(address: SocketAddr, era: Era) -> Self {
        let mut headers = format!(
            "Host: {address}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        );
        if era == Era::Modern {
            headers += "MCP-Protocol-Version: 2026-07-28\r\n";
        }
        // Ids of one length make requests of one length.
        Self { address, headers, connections: Vec::new(), events: None, next: 1_000_000_000, era }
    }

    /// A legacy session, its handshake done.
    pub(crate) fn begin(address: SocketAddr) -> Self {
        let mut session = Self::stateless(address, Era::Legacy);
        let params = "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}";
        let answer = session.request("initialize", params);
        let head = answer.to_ascii_lowercase();
        let id = head.split("mcp-session-id: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let at = id.map(|id| id.as_ptr().addr() - head.as_ptr().addr()..).expect("a session").start;
        let id = answer[at..].split("\r\n").next().expect("a line");
        session.headers += &format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-06-18\r\n");
        session.exchange("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
        session
    }

    /// A legacy session, or its modern equivalent, with toolboxes open.
    pub(crate) fn open(address: SocketAddr, era: Era, toolboxes: usize) -> Self {
        let mut session = match era {
            Era::Legacy => Self::begin(address),
            Era::Modern => Self::stateless(address, era),
        };
        for toolbox in 0..toolboxes {
            session.request("tools/call", &scene::open(toolbox));
        }
        session
    }

    /// A connection that has sent half a request.
    pub(crate) fn half_open(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: ").expect("it is open");
        stream
    }

    /// Opens the session's event stream.
    pub(crate) fn listen(&mut self) {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        let request = format!("GET /mcp HTTP/1.1\r\n{}\r\n", self.headers);
        stream.write_all(request.as_bytes()).expect("it is open");
        let mut head = vec![0; 1024];
        let read = stream.read(&mut head).expect("an answer");
        assert!(head[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head[..read]));
        self.events = Some(stream);
    }

    /// Closes the connections for requests, as servers do with those that are not used.
    pub(crate) fn rest(&mut self) {
        self.connections.clear();
    }

    /// Makes calls, so many at a time, and says how long each waited if it was one at a time.
    pub(crate) fn calls(&mut self, call: &Call, count: usize, in_flight: usize) -> (Duration, Vec<Duration>) {
        while self.connections.len() < in_flight {
            self.connections.push(Connection::new(self.address));
        }
        let mut connections = std::mem::take(&mut self.connections);
        let mut latencies = Vec::with_capacity(if in_flight == 1 { count } else { 0 });
        let (mut sent, mut answered) = (0, 0);
        let began = Instant::now();
        for connection in connections.iter_mut().take(in_flight.min(count)) {
            connection.send(&self.post("tools/call", call.params()));
            sent += 1;
        }
        while answered < count {
            let ready = system::wait_any(connections[..in_flight].iter().map(|one| one.stream.as_fd()));
            for at in ready {
                let connection = &mut connections[at];
                if !connection.receive() {
                    continue;
                }
                answered += 1;
                if in_flight == 1 {
                    latencies.push(connection.sent.elapsed());
                }
                if sent < count {
                    connection.send(&self.post("tools/call", call.params()));
                    sent += 1;
                }
            }
        }
        let elapsed = began.elapsed();
        self.connections = connections;
        (elapsed, latencies)
    }

    /// Makes calls at a steady rate, however long answers take, and says how long each waited.
    pub(crate) fn paced(&mut self, call: &Call, count: usize, between: Duration) -> Vec<Duration> {
        const CONNECTIONS: usize = 64;
        while self.connections.len() < CONNECTIONS {
            self.connections.push(Connection::new(self.address));
        }
        let mut connections = std::mem::take(&mut self.connections);
        let (mut idle, mut latencies) = ((0..CONNECTIONS).collect::<Vec<_>>(), Vec::with_capacity(count));
        let (began, mut sent) = (Instant::now(), 0);
        while latencies.len() < count {
            let until_next = (between * sent).saturating_sub(began.elapsed());
            if until_next.is_zero()
                && (sent as usize) < count
                && let Some(at) = idle.pop()
            {
                connections[at].send(&self.post("tools/call", call.params()));
                sent += 1;
                continue;
            }
            let longest = if until_next.is_zero() { Duration::from_secs(60) } else { until_next };
            for at in system::wait_any_for(connections.iter().map(|one| one.stream.as_fd()), longest) {
                if connections[at].receive() {
                    latencies.push(connections[at].sent.elapsed());
                    idle.push(at);
                }
            }
        }
        self.connections = connections;
        latencies
    }

    fn post(&mut self, method: &str, params: &str) -> Vec<u8> {
        let id = self.next;
        self.next += 1;
        let params = self.era.params(params);
        let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}");
        // A modern client says in its headers, too, what it asks for.
        let routed = match self.era {
            Era::Legacy => String::new(),
            Era::Modern => {
                let name = params.strip_prefix("{\"name\":\"").and_then(|rest| rest.split('"').next());
                let name = name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
                format!("Mcp-Method: {method}\r\n{name}")
            }
        };
        self.wrapped(&routed, &body)
    }

    fn wrapped(&self, routed: &str, body: &str) -> Vec<u8> {
        let (headers, length) = (&self.headers, body.len());
        format!("POST /mcp HTTP/1.1\r\n{headers}{routed}Content-Length: {length}\r\n\r\n{body}").into_bytes()
    }

    /// One request, and its answer with the head before it.
    pub(crate) fn request(&mut self, method: &str, params: &str) -> String {
        let request = self.post(method, params);
        self.send(&request)
    }

    fn exchange(&mut self, body: &str) -> String {
        let request = self.wrapped("", body);
        self.send(&request)
    }

    fn send(&mut self, request: &[u8]) -> String {
        if self.connections.is_empty() {
            self.connections.push(Connection::new(self.address));
        }
        let connection = &mut self.connections[0];
        connection.send(request);
        loop {
            system::wait_any([connection.stream.as_fd()].into_iter());
            if let Some(answer) = connection.take() {
                let text = String::from_utf8(answer).expect("UTF-8");
                let good = text.starts_with("HTTP/1.1 20") && !text.contains("\"isError\":true");
                assert!(good, "{text}");
                return text;
            }
        }
    }
}

impl Connection {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_nonblocking(true).expect("an option");
        Self { stream, held: Vec::new(), sent: Instant::now() }
    }

    fn send(&mut self, mut request: &[u8]) {
        self.sent = Instant::now();
        while !request.is_empty() {
            match self.stream.write(request) {
                Ok(count) => request = &request[count..],
                // The last answer was read and the next comes after the whole request, so there is nothing to read.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    system::wait(self.stream.as_fd(), Some(self.stream.as_fd()));
                }
                Err(error) => panic!("the server does not read: {error}"),
            }
        }
    }

    /// Reads what has come; `true` if that completes an answer.
    fn receive(&mut self) -> bool {
        self.take().is_some()
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => panic!("the server hung up: {}", String::from_utf8_lossy(&self.held)),
            Ok(read) => self.held.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("cannot read: {error}"),
        }
        is_whole(&self.held).then(|| std::mem::take(&mut self.held))
    }
}

/// Whether a response is all there.
fn is_whole(response: &[u8]) -> bool {
    let Some(end) = memmem::find(response, b"\r\n\r\n") else { return false };
    let (head, body) = (&response[..end], &response[end + 4..]);
    let length = memmem::find(head, b"content-length: ").map(|at| &head[at + 16..]);
    match length.and_then(|digits| std::str::from_utf8(digits).ok()?.split("\r\n").next()?.parse().ok()) {
        Some(length) => body.len() >= length,
        None => body.ends_with(b"0\r\n\r\n") || !head.starts_with(b"HTTP/1.1 200"),
    }
}
