//! A client of either era over either transport, by raw messages, with one interface for all four.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{DEADLINE, Gateway, Lab, Message, Peer, VERSION, fake_path};

/// The version of the modern era.
pub(crate) const MODERN: &str = "2026-07-28";

/// A client that can be asked everything.
pub(crate) const CAN_ALL: &str = r#"{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}"#;

/// Which era somebody speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// How two of them are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Stdio,
    Http,
}

/// A gateway that serves over HTTP. Ends by SIGTERM, with status 0.
pub(crate) struct Host {
    gateway: Gateway,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
}

impl Host {
    /// Takes a gateway that was started with `serve --http 127.0.0.1:0`.
    #[track_caller]
    pub(crate) fn new(mut gateway: Gateway) -> Self {
        let line = gateway.next().raw;
        let address = line.strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix("/mcp"));
        let address = address.unwrap_or_else(|| panic!("not the line that is promised: {line}")).to_owned();
        gateway.ends_by_hand();
        Self { gateway, address }
    }

    /// The workbench face with this configuration.
    #[track_caller]
    pub(crate) fn workbench(config: impl fmt::Display) -> Self {
        Self::new(Gateway::spawn_with(Lab::new(), config, |command| {
            command.args(["serve", "--http", "127.0.0.1:0"]);
        }))
    }

    /// The toolman face with this configuration.
    #[track_caller]
    pub(crate) fn toolman(config: impl fmt::Display) -> Self {
        Self::new(Gateway::spawn_toolman(Lab::new(), config, |command| {
            command.args(["serve", "--http", "127.0.0.1:0"]);
        }))
    }

    /// A client of it that can be asked everything.
    #[track_caller]
    pub(crate) fn client(&self, era: Era) -> Client {
        Client::web(era, Web::new(&self.address), CAN_ALL)
    }

    /// As [`Self::client`], with a token.
    #[track_caller]
    pub(crate) fn client_with(&self, era: Era, token: &str) -> Client {
        let mut web = Web::new(&self.address);
        web.token = Some(token.to_owned());
        Client::web(era, web, CAN_ALL)
    }

    /// As [`Self::client`], of another path.
    #[track_caller]
    pub(crate) fn client_at(&self, era: Era, path: &str) -> Client {
        let mut web = Web::new(&self.address);
        web.path = path.to_owned();
        Client::web(era, web, CAN_ALL)
    }
}

impl Deref for Host {
    type Target = Gateway;
    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

impl DerefMut for Host {
    fn deref_mut(&mut self) -> &mut Gateway {
        &mut self.gateway
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.gateway.has_ended() {
            self.gateway.signal("TERM");
            let status = self.gateway.wait();
            assert!(status.success(), "{status}; stderr:\n{}", self.gateway.stderr());
        }
    }
}

/// The fake upstream over HTTP.
pub(crate) struct Remote {
    peer: Option<Peer>,
    flags: Vec<String>,
    /// Where it listens.
    pub(crate) port: u16,
}

impl Remote {
    /// Starts it with these flags on a free port.
    #[track_caller]
    pub(crate) fn start(flags: &str) -> Self {
        let flags: Vec<String> = flags.split_whitespace().map(ToOwned::to_owned).collect();
        let mut remote = Self { peer: None, flags, port: 0 };
        remote.again();
        remote
    }

    /// Starts it again on its port, after it has ended.
    #[track_caller]
    pub(crate) fn again(&mut self) {
        if let Some(mut peer) = self.peer.take() {
            peer.wait();
        }
        let mut command = std::process::Command::new(fake_path());
        command.args(&self.flags).args(["--http", &self.port.to_string()]);
        let mut peer = Peer::spawn(&mut command);
        self.port = peer.next().raw.parse().expect("the port");
        self.peer = Some(peer);
    }

    /// Puts another one in its place.
    #[track_caller]
    pub(crate) fn redeploy(&mut self, flags: &str) {
        self.kill();
        self.again_as(flags);
    }

    /// Starts another one on its port, after it has ended.
    #[track_caller]
    pub(crate) fn again_as(&mut self, flags: &str) {
        self.flags = flags.split_whitespace().map(ToOwned::to_owned).collect();
        self.again();
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.peer.as_ref().expect("it runs").signal("KILL");
    }

    /// What its URL is.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

/// A client.
pub(crate) struct Client {
    pub(crate) era: Era,
    /// What it calls itself in the modern era; `test-client` unless changed.
    pub(crate) name: String,
    capabilities: String,
    way: Way,
}

enum Way {
    Pipe(Box<Gateway>),
    Web(Box<Web>),
}

impl Client {
    /// Takes a gateway over stdio that nobody has spoken to yet.
    #[track_caller]
    pub(crate) fn pipe(era: Era, mut gateway: Gateway, capabilities: &str) -> Self {
        if era == Era::Legacy {
            gateway.initialize_with(VERSION, capabilities);
        }
        Self::new(era, "test-client", capabilities, Way::Pipe(Box::new(gateway)))
    }

    /// A legacy client over stdio that calls itself so.
    #[track_caller]
    pub(crate) fn named(mut gateway: Gateway, name: &str) -> Self {
        gateway.initialize_as(VERSION, "{}", name);
        Self::new(Era::Legacy, name, "{}", Way::Pipe(Box::new(gateway)))
    }

    fn new(era: Era, name: &str, capabilities: &str, way: Way) -> Self {
        Self { era, name: name.to_owned(), capabilities: capabilities.to_owned(), way }
    }

    /// A client over HTTP; in the legacy era it opens a session and its stream.
    #[track_caller]
    pub(crate) fn web(era: Era, mut web: Web, capabilities: &str) -> Self {
        if era == Era::Legacy {
            web.open_session(capabilities);
            web.listen();
        }
        let name = web.name.clone();
        Self::new(era, &name, capabilities, Way::Web(Box::new(web)))
    }

    /// A legacy client whose session was opened before.
    pub(crate) fn of_session(web: Web, capabilities: &str) -> Self {
        let name = web.name.clone();
        Self::new(Era::Legacy, &name, capabilities, Way::Web(Box::new(web)))
    }

    /// The same client with other capabilities, which only a modern one can change.
    pub(crate) fn can(&mut self, capabilities: &str) {
        assert_eq!(self.era, Era::Modern);
        self.capabilities = capabilities.to_owned();
    }

    /// The client over HTTP.
    #[track_caller]
    pub(crate) fn over_http(&mut self) -> &mut Web {
        match &mut self.way {
            Way::Web(web) => web,
            Way::Pipe(_) => panic!("a client over stdio"),
        }
    }

    /// The gateway of a client over stdio.
    #[track_caller]
    pub(crate) fn gateway(&mut self) -> &mut Gateway {
        match &mut self.way {
            Way::Pipe(gateway) => gateway,
            Way::Web(_) => panic!("a client over HTTP"),
        }
    }

    /// Sends a request, with further members of `_meta`, and returns its id.
    #[track_caller]
    pub(crate) fn post_with(&mut self, method: &str, params: impl fmt::Display, meta: &str) -> String {
        let mut members: Vec<String> = Vec::new();
        if self.era == Era::Modern {
            members.push(format!(
                r#""io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientInfo":{{"name":"{}","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{}"#,
                self.name, self.capabilities
            ));
        }
        members.extend((!meta.is_empty()).then(|| meta.to_owned()));
        let params = params.to_string();
        let params = match (members.is_empty(), params.as_str()) {
            (true, _) => params,
            (false, "{}") => format!(r#"{{"_meta":{{{}}}}}"#, members.join(",")),
            (false, _) => params.replacen('{', &format!(r#"{{"_meta":{{{}}},"#, members.join(",")), 1),
        };
        match &mut self.way {
            Way::Pipe(gateway) => gateway.post(method, params),
            Way::Web(web) => web.post(self.era, method, &params),
        }
    }

    /// Sends a request and returns its id.
    #[track_caller]
    pub(crate) fn post(&mut self, method: &str, params: impl fmt::Display) -> String {
        self.post_with(method, params, "")
    }

    /// Sends a request and waits for its answer.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: impl fmt::Display) -> Message {
        let id = self.post(method, params);
        self.answer(&id)
    }

    /// Posts a `tools/call`.
    #[track_caller]
    pub(crate) fn post_call(&mut self, tool: &str, arguments: impl fmt::Display) -> String {
        self.post("tools/call", format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#))
    }

    /// Calls a tool.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: impl fmt::Display) -> Message {
        let id = self.post_call(tool, arguments);
        self.answer(&id)
    }

    /// Waits for the answer to the request with this id.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: &str) -> Message {
        self.take(&format!("an answer to {id}"), |message| message.id() == id && message.method().is_empty())
    }

    /// Waits for a notification.
    #[track_caller]
    pub(crate) fn notification(&mut self, method: &str) -> Message {
        self.take(method, |message| message.id().is_empty() && message.method() == method)
    }

    /// Answers a question of the legacy era; `answer` is `"result":…` or `"error":…`.
    #[track_caller]
    pub(crate) fn reply(&mut self, question: &Message, answer: &str) {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},{answer}}}"#, question.id());
        match &mut self.way {
            Way::Pipe(gateway) => gateway.send(message),
            Way::Web(web) => web.say(&message),
        }
    }

    /// Calls again with what an `input_required` result asked for; every question gets this response.
    #[track_caller]
    pub(crate) fn post_retry(
        &mut self,
        tool: &str,
        arguments: &str,
        asked: &Message,
        response: &str,
    ) -> String {
        self.post_retry_with(tool, arguments, asked, response, "")
    }

    /// As [`Self::post_retry`], with further members of `_meta`.
    #[track_caller]
    pub(crate) fn post_retry_with(
        &mut self,
        tool: &str,
        arguments: &str,
        asked: &Message,
        response: &str,
        meta: &str,
    ) -> String {
        let result = asked.result();
        assert_eq!(result["resultType"], "input_required", "{asked:?}");
        let keys = result["inputRequests"].as_object().expect("questions").keys();
        let responses: Vec<_> = keys.map(|key| format!("{}:{response}", json!(key))).collect();
        let params = format!(
            r#"{{"name":"{tool}","arguments":{arguments},"inputResponses":{{{}}},"requestState":{}}}"#,
            responses.join(","),
            result["requestState"]
        );
        self.post_with("tools/call", params, meta)
    }

    /// Calls a tool that asks, as its era has it, and answers each question of it with this result. Returns the
    /// questions, `{"method", "params"}`, and the answer.
    #[track_caller]
    pub(crate) fn call_and_answer(
        &mut self,
        tool: &str,
        arguments: &str,
        response: &str,
    ) -> (Vec<Value>, Message) {
        let mut questions = Vec::new();
        let mut id = self.post_call(tool, arguments);
        loop {
            let message = self.take("a question or an answer", |message| {
                !message.id().is_empty() && (!message.method().is_empty() || message.id() == id)
            });
            if !message.method().is_empty() {
                questions.push(json!({"method": message.method(), "params": message.value()["params"]}));
                self.reply(&message, &format!(r#""result":{response}"#));
            } else if message.at(&["result", "resultType"]) == r#""input_required""# {
                let asked = message.result();
                questions.extend(asked["inputRequests"].as_object().expect("a map").values().cloned());
                id = self.post_retry(tool, arguments, &message, response);
            } else {
                return (questions, message);
            }
        }
    }

    /// Gives a request up.
    #[track_caller]
    pub(crate) fn cancel(&mut self, id: &str) {
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        match &mut self.way {
            Way::Pipe(gateway) => gateway.send(message),
            Way::Web(web) if self.era == Era::Modern => web.hang_up(id),
            Way::Web(web) => web.say(&message),
        }
    }

    /// Lets the client hear of changes of the tools, and of this resource. Returns the id of a modern subscription.
    #[track_caller]
    pub(crate) fn subscribe(&mut self, uri: &str) -> String {
        if self.era == Era::Legacy {
            assert_eq!(self.request("resources/subscribe", json!({"uri": uri})).at(&["result"]), "{}");
            return String::new();
        }
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": [uri]});
        let id = self.post("subscriptions/listen", json!({"notifications": filter}));
        let acknowledged = self.notification("notifications/subscriptions/acknowledged");
        assert_eq!(acknowledged.value()["params"]["notifications"], filter);
        assert_eq!(subscription(&acknowledged), id);
        id
    }

    /// The listed tools' names.
    #[track_caller]
    pub(crate) fn tools(&mut self) -> Vec<String> {
        self.request("tools/list", "{}").names("tools")
    }

    /// Tries until something holds, for conditions that no message announces.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !holds(self) {
            assert!(Instant::now() < end, "it never came true: {what}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Waits for a message and takes it out of the queue; all others stay there.
    #[track_caller]
    pub(crate) fn take(&mut self, what: &str, wanted: impl Fn(&Message) -> bool) -> Message {
        match &mut self.way {
            Way::Pipe(gateway) => gateway.take(what, wanted),
            Way::Web(web) => web.take(what, wanted),
        }
    }

    /// The messages that have come and were not taken.
    pub(crate) fn left(&mut self) -> Vec<Message> {
        match &mut self.way {
            Way::Pipe(gateway) => gateway.left(),
            Way::Web(web) => {
                web.queue.extend(web.receiver.try_iter());
                web.queue.iter().cloned().collect()
            }
        }
    }
}

/// The id of the subscription that a notification belongs to; `""` where it has none.
pub(crate) fn subscription(message: &Message) -> String {
    message.at(&["params", "_meta", "io.modelcontextprotocol/subscriptionId"])
}

/// The HTTP side of a client: one connection for each request.
pub(crate) struct Web {
    /// Where requests go, one after the other.
    addresses: Vec<String>,
    turn: AtomicUsize,
    /// `/mcp` unless changed.
    pub(crate) path: String,
    /// Sent as `Authorization: Bearer`.
    pub(crate) token: Option<String>,
    /// What it calls itself; `test-client` unless changed.
    pub(crate) name: String,
    /// Further headers, whole lines.
    pub(crate) headers: String,
    pub(crate) session: Option<String>,
    last_id: u64,
    sender: Sender<Message>,
    receiver: Receiver<Message>,
    queue: VecDeque<Message>,
    streams: HashMap<String, TcpStream>,
    last_event: Arc<Mutex<String>>,
}

impl Web {
    pub(crate) fn new(address: &str) -> Self {
        Self::among([address.to_owned()])
    }

    /// A client behind a balancer that sends each request to the next of these addresses.
    pub(crate) fn among(addresses: impl Into<Vec<String>>) -> Self {
        let (sender, receiver) = channel();
        Self {
            addresses: addresses.into(),
            turn: AtomicUsize::new(0),
            path: "/mcp".to_owned(),
            token: None,
            name: "test-client".to_owned(),
            headers: String::new(),
            session: None,
            last_id: 0,
            sender,
            receiver,
            queue: VecDeque::new(),
            streams: HashMap::new(),
            last_event: Arc::default(),
        }
    }

    /// Sends all that follows to these addresses.
    pub(crate) fn turn_to(&mut self, addresses: impl Into<Vec<String>>) {
        self.addresses = addresses.into();
    }

    fn next_address(&self) -> &str {
        &self.addresses[self.turn.fetch_add(1, Ordering::Relaxed) % self.addresses.len()]
    }

    /// Opens a session, not its stream.
    #[track_caller]
    pub(crate) fn open_session(&mut self, capabilities: &str) {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{VERSION}","capabilities":{capabilities},"clientInfo":{{"name":"{}","version":"1"}}}}}}"#,
            self.name
        );
        let answer = self.exchange("POST", &self.common(), &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        self.session = answer.headers.get("mcp-session-id").cloned();
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    /// Opens the stream of the session.
    #[track_caller]
    pub(crate) fn listen(&mut self) {
        self.listen_after("");
    }

    /// Goes on with a stream after the event with this id, or opens that of the session for `""`.
    #[track_caller]
    pub(crate) fn listen_after(&mut self, event: &str) {
        let last = if event.is_empty() { String::new() } else { format!("Last-Event-ID: {event}\r\n") };
        let stream = self.send("GET", &format!("{}{last}", self.common()), "");
        let response = Response::begin(&stream);
        assert_eq!(response.status, 200);
        let (sender, last) = (self.sender.clone(), self.last_event.clone());
        std::thread::spawn(move || response.messages(&sender, &last));
    }

    #[track_caller]
    fn post(&mut self, era: Era, method: &str, params: &str) -> String {
        self.last_id += 1;
        let id = self.last_id.to_string();
        let mut headers = self.common();
        if era == Era::Modern {
            let value: Value = serde_json::from_str(params).expect("JSON");
            headers.push_str(&format!("MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n"));
            if matches!(method, "tools/call" | "prompts/get" | "resources/read")
                || method.starts_with("tasks/")
            {
                let name =
                    ["name", "uri", "taskId"].iter().find_map(|key| value[key].as_str()).unwrap_or_default();
                headers.push_str(&format!("Mcp-Name: {name}\r\n"));
            }
        }
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let stream = self.send("POST", &headers, &body);
        self.streams.insert(id.clone(), stream.try_clone().expect("a socket"));
        let (sender, last) = (self.sender.clone(), self.last_event.clone());
        std::thread::spawn(move || Response::begin(&stream).messages(&sender, &last));
        id
    }

    /// Sends a notification or an answer.
    #[track_caller]
    pub(crate) fn say(&self, message: &str) {
        let answer = self.exchange("POST", &self.common(), message);
        assert_eq!(answer.status, 202, "{}", answer.body);
    }

    /// The id of the last event that has come on a stream.
    pub(crate) fn last_event(&self) -> String {
        self.last_event.lock().expect("no panic").clone()
    }

    /// Waits until every stream has ended and all that came on it is here.
    #[track_caller]
    pub(crate) fn wait_for_ends(&self) {
        let end = Instant::now() + DEADLINE;
        // Whoever reads a stream notes its last event.
        while Arc::strong_count(&self.last_event) > 1 {
            assert!(Instant::now() < end, "a stream goes on");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Closes the stream of a request.
    pub(crate) fn hang_up(&mut self, id: &str) {
        let stream = self.streams.remove(id).expect("it was sent");
        stream.shutdown(Shutdown::Both).expect("it is open");
    }

    /// The headers that every request has.
    pub(crate) fn common(&self) -> String {
        let mut headers = self.headers.clone();
        if let Some(token) = &self.token {
            headers.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        if let Some(session) = &self.session {
            headers.push_str(&format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {VERSION}\r\n"));
        }
        headers
    }

    /// One whole exchange.
    #[track_caller]
    pub(crate) fn exchange(&self, method: &str, headers: &str, body: &str) -> Exchanged {
        let stream = self.send(method, headers, body);
        Response::begin(&stream).whole()
    }

    /// Posts a message whose answer is not read; the connection is open as long as what is returned.
    #[track_caller]
    pub(crate) fn leave_unread(&self, body: &str) -> TcpStream {
        self.send("POST", &self.common(), body)
    }

    #[track_caller]
    fn send(&self, method: &str, headers: &str, body: &str) -> TcpStream {
        let address = self.next_address();
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time");
        let accept = match method {
            _ if headers.contains("Accept: ") => "",
            "GET" => "Accept: text/event-stream\r\n",
            _ => "Accept: application/json, text/event-stream\r\n",
        };
        let request = format!(
            "{method} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n{accept}{headers}Content-Length: {}\r\n\r\n{body}",
            self.path,
            address,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        stream
    }

    #[track_caller]
    fn take(&mut self, what: &str, wanted: impl Fn(&Message) -> bool) -> Message {
        if let Some(at) = self.queue.iter().position(&wanted) {
            return self.queue.remove(at).expect("it was just found");
        }
        let end = Instant::now() + DEADLINE;
        loop {
            match self.receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(message) if wanted(&message) => return message,
                Ok(message) => self.queue.push_back(message),
                Err(reason) => panic!("no {what}: {reason}; queue: {:#?}", self.queue),
            }
        }
    }
}

/// A whole answer of HTTP; names of headers in lower case.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// An answer whose body is still to come.
struct Response {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Body,
}

impl Response {
    /// Reads the head; a connection that was closed has the status 0.
    fn begin(stream: &TcpStream) -> Self {
        let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
        let mut line = String::new();
        let _ = reader.read_line(&mut line);
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let mut headers = BTreeMap::new();
        loop {
            line.clear();
            let _ = reader.read_line(&mut line);
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let left = match headers.get("content-length").and_then(|length| length.parse().ok()) {
            Some(length) => Left::Bytes(length),
            None if headers.contains_key("transfer-encoding") => Left::Chunk(0),
            None => Left::Bytes(usize::MAX),
        };
        Self { status, headers, body: Body { reader, left } }
    }

    fn whole(mut self) -> Exchanged {
        let mut body = Vec::new();
        let _ = self.body.read_to_end(&mut body);
        let body = String::from_utf8_lossy(&body).into_owned();
        Exchanged { status: self.status, headers: self.headers, body }
    }

    /// Hands on every message as it comes, until the stream ends, and notes the ids of events.
    fn messages(self, sender: &Sender<Message>, last: &Mutex<String>) {
        let events =
            self.headers.get("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        if !events {
            let raw = self.whole().body;
            if !raw.is_empty() {
                let _ = sender.send(Message { raw });
            }
            return;
        }
        let mut lines = BufReader::new(self.body);
        let (mut line, mut id, mut data) = (String::new(), String::new(), String::new());
        while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
            let text = line.trim_end_matches(['\r', '\n']);
            if let Some(value) = text.strip_prefix("id:") {
                value.trim().clone_into(&mut id);
            } else if let Some(value) = text.strip_prefix("data:") {
                value.trim().clone_into(&mut data);
            } else if text.is_empty() && line.ends_with('\n') {
                // Only now it is an event: a connection may break anywhere.
                let raw = std::mem::take(&mut data);
                if !raw.is_empty() && sender.send(Message { raw }).is_err() {
                    return;
                }
                if !id.is_empty() {
                    *last.lock().expect("no panic") = std::mem::take(&mut id);
                }
            }
            line.clear();
        }
    }
}

/// A body, in chunks or of a known length.
struct Body {
    reader: BufReader<TcpStream>,
    left: Left,
}

enum Left {
    Bytes(usize),
    Chunk(usize),
}

impl Read for Body {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if let Left::Chunk(0) = self.left {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                line.clear();
                self.reader.read_line(&mut line)?;
            }
            let size = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
            self.left = if size == 0 { Left::Bytes(0) } else { Left::Chunk(size) };
        }
        let (Left::Bytes(left) | Left::Chunk(left)) = &mut self.left;
        let most = out.len().min(*left);
        if most == 0 {
            // To read nothing may wait for more.
            return Ok(0);
        }
        let read = self.reader.read(&mut out[..most])?;
        *left -= read;
        Ok(read)
    }
}
