//! Sentences of the contract, over real sockets, with a scripted backend behind the transport.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::config::Secret;
use crate::wire::json::{Node, Scanner};

/// Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A backend that does what the method says.
#[derive(Default)]
struct Fake {
    held: Mutex<Vec<(String, Arc<dyn Sink>)>>,
    sessions: Mutex<Vec<Arc<FakeSession>>>,
    log: Mutex<Vec<String>>,
    logged: Notify,
    not_ready: Mutex<Option<String>>,
}

struct FakeSession {
    number: usize,
    unrelated: Arc<dyn Sink>,
}

impl Fake {
    fn note(&self, line: impl Into<String>) {
        self.log.lock().push(line.into());
        self.logged.notify_waiters();
    }

    /// Waits until something was noted.
    async fn noted(&self, line: &str) {
        let found = async {
            loop {
                let logged = self.logged.notified();
                if self.log.lock().iter().any(|noted| noted == line) {
                    return;
                }
                logged.await;
            }
        };
        assert!(timeout(PATIENCE, found).await.is_ok(), "`{line}` never happened: {:?}", self.log.lock());
    }

    /// Takes the stream of the oldest held request with this id.
    fn take(&self, id: &str) -> Arc<dyn Sink> {
        let mut held = self.held.lock();
        let at = held.iter().position(|(held, _)| held == id).expect("such a request is held");
        held.remove(at).1
    }

    fn unrelated(&self, session: usize) -> Arc<dyn Sink> {
        self.sessions.lock()[session].unrelated.clone()
    }

    fn run(&self, who: &str, message: &[u8], stream: Arc<dyn Sink>) -> String {
        let mut scanner = Scanner::default();
        let root = scanner.scan(message).unwrap().root();
        let Some(method) = root.get("method").and_then(Node::as_str) else {
            self.note(format!("{who} response"));
            return String::new();
        };
        let Some(id) = root.get("id").map(|id| id.raw().to_owned()) else {
            self.note(format!("{who} {method}"));
            return String::new();
        };
        let result = |body: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{body}}}"#);
        let error =
            |code: i64| format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"no"}}}}"#);
        match &*method {
            "initialize" if root.get("params").and_then(|params| params.get("fail")).is_some() => {
                stream.send(error(-32602).as_bytes(), true);
            }
            "initialize" => {
                stream.send(result("{\"hello\":1}").as_bytes(), true);
            }
            "hold" | "subscriptions/listen" => {
                self.held.lock().push((id.clone(), stream));
                self.note(format!("{who} holds {id}"));
            }
            "progress" => {
                stream.send(br#"{"p":1}"#, false);
                stream.send(br#"{"p":2}"#, false);
                stream.send(result("{}").as_bytes(), true);
            }
            "drop" => {}
            "unknown" => drop(stream.send(error(-32601).as_bytes(), true)),
            "capability" => drop(stream.send(error(-32021).as_bytes(), true)),
            _ => drop(stream.send(result(&format!("\"{who}\"")).as_bytes(), true)),
        }
        id
    }
}

/// Notes when a modern request is given up before its answer.
struct Cancel(Arc<Fake>, String);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.note(format!("released {}", self.1));
    }
}

struct Shared(Arc<Fake>);

/// A backend for tests of what stands around a server.
pub(crate) fn backend() -> Arc<impl Backend> {
    Arc::new(Shared(Arc::default()))
}

impl Backend for Shared {
    type Session = FakeSession;

    fn toolbox_exists(&self, scope: &Scope) -> bool {
        let name = scope.toolbox.as_deref().unwrap_or_default();
        let allowed = scope.token.as_ref().and_then(|token| token.scope.as_ref());
        ["dev", "my box"].contains(&name)
            && allowed.is_none_or(|names| names.iter().any(|allowed| allowed == name))
    }

    fn ready(&self) -> Result<(), String> {
        self.0.not_ready.lock().clone().map_or(Ok(()), Err)
    }

    fn open(&self, scope: Scope, unrelated: Arc<dyn Sink>) -> Arc<FakeSession> {
        let mut sessions = self.0.sessions.lock();
        let session = Arc::new(FakeSession { number: sessions.len(), unrelated });
        sessions.push(session.clone());
        self.0.note(format!("open {:?}", scope.toolbox));
        session
    }

    fn legacy(&self, session: &Arc<FakeSession>, message: &[u8], stream: Arc<dyn Sink>) {
        self.0.run(&format!("session {}", session.number), message, stream);
    }

    fn close(&self, session: &Arc<FakeSession>) {
        self.0.note(format!("close {}", session.number));
    }

    fn modern(&self, scope: Scope, message: &[u8], stream: Arc<dyn Sink>) -> Box<dyn Send> {
        let token = scope.token.map_or_else(|| "anybody".to_owned(), |token| token.name.clone());
        let id = self.0.run(&token, message, stream);
        Box::new(Cancel(self.0.clone(), id))
    }

    fn param_headers(&self, _scope: &Scope, tool: &str) -> ParamHeaders {
        match tool {
            "marked" => vec![
                ("Region".to_owned(), vec!["region".to_owned()]),
                ("Deep".to_owned(), ["a", "b", "c"].map(str::to_owned).to_vec()),
            ],
            _ => Vec::new(),
        }
    }

    fn drain(&self) {
        self.0.note("drain");
    }

    fn abandon(&self) {
        for (id, stream) in std::mem::take(&mut *self.0.held.lock()) {
            stream.send(
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"ending"}}}}"#)
                    .as_bytes(),
                true,
            );
        }
        self.0.note("abandon");
    }
}

fn token(name: &str, scope: Option<&[&str]>) -> Token {
    let scope = scope.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    Token { name: name.to_owned(), token: Secret::new(format!("{name}-secret")), scope }
}

fn serving(tokens: Vec<Token>) -> Serving {
    Serving { session_idle_timeout: Duration::from_secs(1800), max_body_bytes: 4096, state_key: None, tokens }
}

struct Running {
    address: SocketAddr,
    fake: Arc<Fake>,
    rules: Arc<Rules>,
    shutdown: Option<oneshot::Sender<()>>,
    task: JoinHandle<io::Result<()>>,
}

impl Running {
    async fn start(serving: Serving, adjust: impl FnOnce(&mut Settings)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let rules = Rules::new(&serving, None);
        let mut settings = Settings::new(rules.clone());
        adjust(&mut settings);
        let (address, fake) = (listener.local_addr().unwrap(), Arc::<Fake>::default());
        let (shutdown, told) = oneshot::channel();
        let backend = Arc::new(Shared(fake.clone()));
        let task = tokio::spawn(serve(backend, listener, settings, async move {
            let _ = told.await;
        }));
        Self { address, fake, rules, shutdown: Some(shutdown), task }
    }

    async fn open() -> Self {
        Self::start(serving(Vec::new()), |_| ()).await
    }

    async fn connect(&self) -> Client {
        Client(BufReader::new(TcpStream::connect(self.address).await.unwrap()))
    }

    async fn ask(&self, request: &str) -> Reply {
        self.connect().await.ask(request).await
    }

    /// Opens a session that speaks this version; the header line that names it.
    async fn session(&self, version: &str) -> String {
        let reply = self.ask(&post("/mcp", "", &initialize(version))).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        format!("Mcp-Session-Id: {}\r\n", reply.header("mcp-session-id").expect("a session id"))
    }

    fn end(&mut self) {
        let _ = self.shutdown.take().expect("ended once").send(());
    }
}

struct Client(BufReader<TcpStream>);

#[derive(Debug)]
struct Reply {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The code of the JSON-RPC error in the body.
    fn code(&self) -> Option<i64> {
        let body: serde_json::Value = serde_json::from_str(&self.body).ok()?;
        body["error"]["code"].as_i64()
    }

    fn is_event_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }
}

impl Client {
    async fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, request: &str) -> Reply {
        self.send(request).await;
        self.reply().await
    }

    /// Reads a whole response.
    async fn reply(&mut self) -> Reply {
        let mut reply = self.head().await;
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk().await {
                reply.body.push_str(&chunk);
            }
        } else if let Some(length) = reply.header("content-length") {
            let mut body = vec![0; length.parse().unwrap()];
            timeout(PATIENCE, self.0.read_exact(&mut body)).await.unwrap().unwrap();
            reply.body = String::from_utf8(body).unwrap();
        }
        reply
    }

    async fn head(&mut self) -> Reply {
        let status = self.line().await;
        let status =
            status.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {status:?}")).parse().unwrap();
        let mut headers = HashMap::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        Reply { status, headers, body: String::new() }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        timeout(PATIENCE, self.0.read_line(&mut line)).await.expect("a line comes").unwrap();
        line.trim_end().to_owned()
    }

    /// One chunk of a stream; `None` at its proper end.
    async fn chunk(&mut self) -> Option<String> {
        let length = self.line().await;
        let length =
            usize::from_str_radix(&length, 16).unwrap_or_else(|_| panic!("the stream broke: {length:?}"));
        let mut chunk = vec![0; length + 2];
        timeout(PATIENCE, self.0.read_exact(&mut chunk)).await.expect("the chunk comes").unwrap();
        chunk.truncate(length);
        (length > 0).then(|| String::from_utf8(chunk).unwrap())
    }

    /// The data of further events, until there are so many.
    async fn events(&mut self, count: usize) -> Vec<String> {
        let mut text = String::new();
        while events_in(&text).len() < count {
            text.push_str(&self.chunk().await.expect("more events come"));
        }
        events_in(&text)
    }

    /// Whether the server closed the connection.
    async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        matches!(timeout(PATIENCE, self.0.read_to_end(&mut rest)).await, Ok(Ok(_) | Err(_)))
    }
}

/// `id data` of each whole event.
fn events_in(text: &str) -> Vec<String> {
    let event = |block: &str| {
        let field = |name| block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        block.contains("data: ").then(|| format!("{} {}", field("id: "), field("data: ")))
    };
    text.split_inclusive("\n\n").filter(|block| block.ends_with("\n\n")).filter_map(event).collect()
}

fn post(path: &str, headers: &str, body: &str) -> String {
    let accept =
        if headers.contains("Accept:") { "" } else { "Accept: application/json, text/event-stream\r\n" };
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{accept}{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
}

fn call(id: u32, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)
}

fn initialize(version: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}"}}}}"#)
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// A modern request with proper headers.
fn modern(id: u32, method: &str, headers: &str) -> String {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{META}}}}}"#);
    post("/mcp", &format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{headers}"), &body)
}

const ECHO: &str = r#"{"jsonrpc":"2.0","id":1,"result":"session 0"}"#;

#[tokio::test]
async fn checks_come_in_their_order() {
    let tokens = vec![token("ci", Some(&["my box"])), token("all", None)];
    let server = Running::start(serving(tokens), |_| ()).await;
    let huge = "Content-Length: 9999999\r\n";
    let auth = "Authorization: Bearer all-secret\r\n";
    let json = "Content-Type: application/json\r\n";
    for (request, host, headers, expected) in [
        // Who may come in, on every path and before anything else.
        ("POST /mcp", "Host: evil.com\r\n", "", 403),
        ("POST /mcp", "Host: localhost.evil.com\r\n", "", 403),
        ("GET /healthz", "Host: evil.com\r\n", "", 403),
        ("GET /nowhere", "Host: evil.com\r\n", "", 403),
        ("GET http://evil.com/healthz", "Host: localhost\r\n", "", 403),
        ("POST /mcp", "", "", 400),
        ("GET /healthz", "", "", 400),
        ("POST /mcp", "Host: localhost\r\nHost: localhost\r\n", auth, 400),
        ("POST /mcp", "Host: localhost\r\n", "Origin: null\r\n", 403),
        ("POST /mcp", "Host: localhost\r\n", "Origin: http://localhost.evil.com\r\n", 403),
        ("POST /mcp", "Host: localhost\r\n", "Origin: http://localhost\r\nOrigin: http://localhost\r\n", 403),
        ("GET /readyz", "Host: localhost\r\n", "Origin: null\r\n", 403),
        (
            "OPTIONS /mcp",
            "Host: localhost\r\n",
            "Origin: http://evil.com\r\nAccess-Control-Request-Method: POST\r\n",
            403,
        ),
        // Tokens, before it is told what exists.
        ("POST /mcp", "Host: localhost:1\r\n", "", 401),
        ("GET /nowhere", "Host: localhost\r\n", "", 401),
        ("PUT /mcp", "Host: 127.0.0.1\r\n", huge, 401),
        ("POST /mcp", "Host: localhost\r\n", "Authorization: Bearer wrong-secret\r\n", 401),
        ("POST /mcp", "Host: localhost\r\n", "Authorization: Bearer all-secret2\r\n", 401),
        ("POST /mcp", "Host: localhost\r\n", "Authorization: Bearer\r\n", 401),
        ("POST /mcp", "Host: localhost\r\n", "Authorization: Basic all-secret\r\n", 401),
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{auth}"), 401),
        // Paths and methods.
        ("GET /healthz", "Host: [::1]:9\r\n", "", 200),
        ("HEAD /readyz", "Host: localhost\r\n", "", 200),
        ("POST /healthz", "Host: localhost\r\n", "", 405),
        ("POST /nowhere", "Host: localhost\r\n", &format!("{auth}{huge}"), 404),
        ("POST /mcp/", "Host: localhost\r\n", auth, 404),
        ("POST /mcpx", "Host: localhost\r\n", auth, 404),
        ("POST /mcp/unknown", "Host: localhost\r\n", auth, 404),
        ("POST /mcp/my%20box/x", "Host: localhost\r\n", auth, 404),
        ("POST /mcp/my%2", "Host: localhost\r\n", auth, 404),
        ("POST /mcp/dev", "Host: localhost\r\n", "Authorization: bearer ci-secret\r\n", 404),
        ("POST /mcp/my%20box", "Host: localhost\r\n", "Authorization: bearer ci-secret\r\n", 415),
        ("PUT /mcp", "Host: localhost\r\n", &format!("{auth}{huge}"), 405),
        ("OPTIONS /mcp", "Host: localhost\r\n", auth, 405),
        ("GET /mcp", "Host: localhost\r\n", &format!("{auth}MCP-Protocol-Version: 2026-07-28\r\n"), 405),
        ("DELETE /mcp", "Host: localhost\r\n", &format!("{auth}MCP-Protocol-Version: 2026-07-28\r\n"), 405),
        // Media types, before the size.
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{huge}Content-Type: text/plain\r\n"), 415),
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{huge}"), 415),
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{huge}{json}Content-Encoding: gzip\r\n"), 415),
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{huge}{json}Accept: text/html\r\n"), 406),
        ("GET /mcp", "Host: localhost\r\n", &format!("{auth}Accept: application/json\r\n"), 406),
        // The size, before the content.
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{huge}{json}"), 413),
        (
            "POST /mcp",
            "Host: localhost\r\n",
            &format!("{auth}Content-Type: Application/JSON; charset=utf-8\r\n"),
            400,
        ),
        ("GET /mcp", "Host: localhost\r\n", auth, 400),
        ("DELETE /mcp", "Host: localhost\r\n", auth, 400),
    ] {
        let reply = {
            let mut client = server.connect().await;
            client.send(&format!("{request} HTTP/1.1\r\n{host}{headers}\r\n")).await;
            client.head().await
        };
        assert_eq!(reply.status, expected, "{request} {host} {headers}");
        assert_eq!(reply.header("www-authenticate"), (expected == 401).then_some("Bearer"));
        assert_eq!(reply.header("allow").is_some(), expected == 405);
    }
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused_before_they_are_held() {
    let server = Running::open().await;
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    // Nothing of the body is sent, and no `100 Continue` asks for it.
    let request = format!("{head}Expect: 100-continue\r\nContent-Length: 4097\r\n\r\n");
    assert_eq!(server.ask(&request).await.status, 413);
    // A body that does not say its length.
    let mut client = server.connect().await;
    client.send(&format!("{head}Transfer-Encoding: chunked\r\n\r\n")).await;
    for _ in 0..5 {
        client.send(&format!("400\r\n{}\r\n", "x".repeat(1024))).await;
    }
    assert_eq!(client.reply().await.status, 413);
    client.send("0\r\n\r\n").await;
    assert!(client.is_closed().await);
    // Who sends it all the same still learns why it was refused.
    let body = "x".repeat(30_000_000);
    for (path, headers, expected) in
        [("/mcp", "", 413), ("/nowhere", "", 404), ("/mcp", "Content-Encoding: gzip\r\n", 415)]
    {
        assert_eq!(server.ask(&post(path, headers, &body)).await.status, expected);
    }
    // One that fits, in pieces.
    let body = modern(1, "echo", "");
    let (start, body) = body.split_once("\r\n\r\n").unwrap();
    let start: String = start
        .lines()
        .filter(|line| !line.starts_with("Content-Length"))
        .map(|line| format!("{line}\r\n"))
        .collect();
    let (one, two) = body.split_at(10);
    let request = format!(
        "{start}Transfer-Encoding: chunked\r\n\r\na\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
        two.len()
    );
    assert_eq!(server.ask(&request).await.status, 200);
}

#[tokio::test]
async fn who_sends_a_refused_body_slowly_still_learns_why() {
    let server = Running::open().await;
    let mut client = server.connect().await;
    let (pieces, piece) = (60, "x".repeat(100_000));
    let head = post("/mcp", "", "").replace("Length: 0", &format!("Length: {}", pieces * piece.len()));
    client.send(&head).await;
    // Longer than anybody would wait for a client that is silent; this one never is.
    for _ in 0..pieces {
        sleep(Duration::from_millis(100)).await;
        client.send(&piece).await;
    }
    assert_eq!(client.reply().await.status, 413);
}

#[tokio::test]
async fn allowed_origins_get_cors_headers() {
    let tokens = vec![token("all", None)];
    let server = Running::start(serving(tokens), |settings| {
        settings.allow_origin = vec!["https://app.example".to_owned()]
    })
    .await;
    let preflight = "OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.example\r\n\
                     Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,mcp-param-x\r\n\r\n";
    let reply = server.ask(preflight).await;
    assert_eq!(reply.status, 204);
    for (name, expected) in [
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-headers", "authorization,mcp-param-x"),
        ("access-control-allow-methods", "GET, POST, DELETE"),
    ] {
        assert_eq!(reply.header(name), Some(expected));
    }
    let reply = server.ask(&get("/mcp", "Origin: http://localhost:3000\r\n")).await;
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (401, Some("http://localhost:3000"))
    );
    assert!(reply.header("access-control-expose-headers").unwrap().contains("Mcp-Session-Id"));
    let reply = server.ask(&get("/mcp", "")).await;
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn modern_messages_are_checked_against_their_headers() {
    let server = Running::open().await;
    let version = "MCP-Protocol-Version: 2026-07-28\r\n";
    let caps = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let request = |id: &str, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
    };
    let echo = request("1", "echo", META);
    let tool = |name: &str, arguments: &str| {
        request("1", "tools/call", &format!(r#""name":"{name}","arguments":{arguments},{META}"#))
    };
    let tool_headers =
        |name: &str, more: &str| format!("{version}Mcp-Method: tools/call\r\nMcp-Name: {name}\r\n{more}");
    let other = META.replace("2026-07-28", "2031-01-01");
    let deep = |levels: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"echo","params":{{"x":{}{},{META}}}}}"#,
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    let with_method = format!("{version}Mcp-Method: echo\r\n");
    for (headers, body, status, code) in [
        (with_method.clone(), echo.clone(), 200, None),
        (format!("{with_method}Mcp-Session-Id: whatever\r\n"), echo.clone(), 200, None),
        // Headers.
        ("Mcp-Method: echo\r\n".to_owned(), echo.clone(), 400, Some(-32020)),
        (version.to_owned(), echo.clone(), 400, Some(-32020)),
        (format!("{with_method}{version}"), echo.clone(), 400, Some(-32020)),
        (format!("{with_method}Mcp-Method: echo\r\n"), echo.clone(), 400, Some(-32020)),
        (format!("{version}Mcp-Method: Echo\r\n"), echo.clone(), 400, Some(-32020)),
        (
            "MCP-Protocol-Version: 2025-11-25\r\nMcp-Method: echo\r\n".to_owned(),
            echo.clone(),
            400,
            Some(-32020),
        ),
        (tool_headers("a", ""), tool("a", "{}"), 200, None),
        (tool_headers("=?base64?YQ==?=", ""), tool("a", "{}"), 200, None),
        (tool_headers("b", ""), tool("a", "{}"), 400, Some(-32020)),
        (tool_headers("a\r\nMcp-Name: a", ""), tool("a", "{}"), 400, Some(-32020)),
        (tool_headers("42.0", ""), tool("42", "{}"), 400, Some(-32020)),
        (format!("{version}Mcp-Method: tools/call\r\n"), tool("a", "{}"), 400, Some(-32020)),
        (
            format!("{version}Mcp-Method: resources/read\r\nMcp-Name: x://y\r\n"),
            request("1", "resources/read", &format!(r#""uri":"x://y",{META}"#)),
            200,
            None,
        ),
        (
            format!("{version}Mcp-Method: prompts/get\r\nMcp-Name: x\r\n"),
            request("1", "prompts/get", &format!(r#""name":"y",{META}"#)),
            400,
            Some(-32020),
        ),
        (tool_headers("marked", "Mcp-Param-Region: eu\r\n"), tool("marked", r#"{"region":"eu"}"#), 200, None),
        (
            tool_headers("marked", "mcp-param-region: =?base64?ZcO8?=\r\n"),
            tool("marked", r#"{"region":"eü"}"#),
            200,
            None,
        ),
        (
            tool_headers("marked", "Mcp-Param-Deep: 42.0\r\n"),
            tool("marked", r#"{"a":{"b":{"c":42}}}"#),
            200,
            None,
        ),
        (tool_headers("marked", ""), tool("marked", r#"{"region":null}"#), 200, None),
        (tool_headers("marked", "Mcp-Param-Other: eu\r\n"), tool("marked", "{}"), 200, None),
        (tool_headers("marked", ""), tool("marked", r#"{"region":"eu"}"#), 400, Some(-32020)),
        (
            tool_headers("marked", "Mcp-Param-Region: us\r\n"),
            tool("marked", r#"{"region":"eu"}"#),
            400,
            Some(-32020),
        ),
        (tool_headers("marked", "Mcp-Param-Region: eu\r\n"), tool("marked", "{}"), 400, Some(-32020)),
        (
            tool_headers("marked", "Mcp-Param-Region: eu\r\nMcp-Param-Region: eu\r\n"),
            tool("marked", r#"{"region":"eu"}"#),
            400,
            Some(-32020),
        ),
        // Versions and `_meta`.
        (
            "MCP-Protocol-Version: 2031-01-01\r\nMcp-Method: echo\r\n".to_owned(),
            request("1", "echo", &other),
            400,
            Some(-32022),
        ),
        (with_method.clone(), request("1", "echo", ""), 400, Some(-32602)),
        (with_method.clone(), call(1, "echo"), 400, Some(-32602)),
        (with_method.clone(), request("1", "echo", &format!("\"_meta\":{{{caps}}}")), 400, Some(-32602)),
        (
            with_method.clone(),
            request("1", "echo", r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#),
            400,
            Some(-32602),
        ),
        (
            with_method.clone(),
            request(
                "1",
                "echo",
                &format!(r#""_meta":{{"io.modelcontextprotocol/protocolVersion":7,{caps}}}"#),
            ),
            400,
            Some(-32602),
        ),
        // Messages.
        (with_method.clone(), format!("[{echo}]"), 400, Some(-32600)),
        (with_method.clone(), request("1.5", "echo", META), 400, Some(-32600)),
        (with_method.clone(), request("null", "echo", META), 400, Some(-32600)),
        (with_method.clone(), request("1,\"id\":2", "echo", META), 400, Some(-32600)),
        (with_method.clone(), request("1", "echo", &format!("{META},{META}")), 400, Some(-32600)),
        (tool_headers("a", ""), tool("a\",\"name\":\"a", "{}"), 400, Some(-32600)),
        (with_method.clone(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(), 400, Some(-32600)),
        (with_method.clone(), "{".to_owned(), 400, Some(-32700)),
        (with_method.clone(), String::new(), 400, Some(-32700)),
        (with_method.clone(), deep(510), 200, None),
        (with_method.clone(), deep(511), 400, Some(-32700)),
        // What the backend finds.
        (format!("{version}Mcp-Method: unknown\r\n"), request("1", "unknown", META), 404, Some(-32601)),
        (
            format!("{version}Mcp-Method: capability\r\n"),
            request("\"a\\\"\"", "capability", META),
            400,
            Some(-32021),
        ),
        // Notifications need no headers.
        (
            String::new(),
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{{META}}}}}"#),
            202,
            None,
        ),
        (version.to_owned(), r#"{"jsonrpc":"2.0","method":"notifications/x"}"#.to_owned(), 202, None),
    ] {
        let reply = server.ask(&post("/mcp", &headers, &body)).await;
        assert_eq!((reply.status, reply.code()), (status, code), "{headers}{body}\n{}", reply.body);
        assert_eq!(reply.header("mcp-session-id"), None);
    }
    let request = post(
        "/mcp",
        "MCP-Protocol-Version: 2031-01-01\r\nMcp-Method: echo\r\n",
        &request("7", "echo", &other),
    );
    let body: serde_json::Value = serde_json::from_str(&server.ask(&request).await.body).unwrap();
    assert_eq!(body["id"], 7);
    assert_eq!(body["error"]["data"]["requested"], "2031-01-01");
    assert_eq!(body["error"]["data"]["supported"], serde_json::json!(["2026-07-28"]));
}

#[tokio::test]
async fn an_answer_is_json_or_events_as_the_client_takes_them() {
    let server = Running::open().await;
    let session = server.session("2025-11-25").await;
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    for (modern_era, accept, method, expected) in [
        (true, "*/*", "progress", &[" {\"p\":1}", " {\"p\":2}", " A"][..]),
        (true, "application/json", "progress", &[]),
        (true, "text/event-stream", "echo", &[" E"]),
        (true, "*/*", "echo", &[]),
        (false, "*/*", "progress", &["0-1 {\"p\":1}", "0-2 {\"p\":2}", "0-3 A"]),
        (false, "application/json", "progress", &[]),
        (false, "text/event-stream", "echo", &["0-1 E"]),
        (false, "*/*", "echo", &[]),
    ] {
        let accept = format!("Accept: {accept}\r\n");
        let request = match modern_era {
            true => modern(1, method, &accept),
            false => post("/mcp", &format!("{session}{accept}"), &call(1, method)),
        };
        let reply = server.ask(&request).await;
        let echo = ECHO.replace("session 0", if modern_era { "anybody" } else { "session 0" });
        if expected.is_empty() {
            assert_eq!(reply.header("content-type"), Some("application/json"), "{request}");
            assert_eq!(reply.body, if method == "echo" { echo } else { answer.to_owned() });
        } else {
            assert!(reply.is_event_stream(), "{request}");
            assert_eq!(reply.header("x-accel-buffering"), Some("no"));
            let expected: Vec<_> =
                expected.iter().map(|event| event.replace('A', answer).replace('E', &echo)).collect();
            // Numbers of streams go on within a session.
            let events: Vec<_> = events_in(&reply.body)
                .iter()
                .map(|event| match event.split_once('-') {
                    Some((number, rest)) if number.parse::<u64>().is_ok() => format!("0-{rest}"),
                    _ => event.clone(),
                })
                .collect();
            assert_eq!(events, expected);
        }
    }
    // A request that never gets an answer leaves nobody waiting.
    assert_eq!(server.ask(&modern(1, "drop", "")).await.status, 202);
}

#[tokio::test]
async fn closing_the_stream_cancels_a_modern_request_and_no_other() {
    let server = Running::open().await;
    // Before anything was answered.
    let mut client = server.connect().await;
    client.send(&modern(5, "hold", "")).await;
    server.fake.noted("anybody holds 5").await;
    drop(client);
    server.fake.noted("released 5").await;
    assert!(!server.fake.take("5").send(b"{}", true));
    // In the middle of the events; another request with the same id goes on.
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    one.send(&modern(6, "hold", "")).await;
    server.fake.noted("anybody holds 6").await;
    let first = server.fake.take("6");
    two.send(&modern(6, "hold", "")).await;
    first.send(br#"{"p":1}"#, false);
    assert!(one.head().await.is_event_stream());
    assert_eq!(one.events(1).await, [r#" {"p":1}"#]);
    drop(one);
    server.fake.noted("released 6").await;
    let answer = r#"{"jsonrpc":"2.0","id":6,"result":2}"#;
    while server.fake.held.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(server.fake.take("6").send(answer.as_bytes(), true));
    assert_eq!(two.reply().await.body, answer);
    // A legacy request goes on although its client hung up.
    let session = server.session("2025-11-25").await;
    let mut client = server.connect().await;
    client.send(&post("/mcp", &session, &call(7, "hold"))).await;
    server.fake.noted("session 0 holds 7").await;
    let stream = server.fake.take("7");
    stream.send(br#"{"p":1}"#, false);
    assert!(client.head().await.is_event_stream());
    drop(client);
    assert!(stream.send(br#"{"jsonrpc":"2.0","id":7,"result":2}"#, true));
}

#[tokio::test]
async fn sessions_are_named_bound_and_ended() {
    let server = Running::start(serving(vec![token("a", None), token("b", None)]), |_| ()).await;
    let (a, b) = ("Authorization: Bearer a-secret\r\n", "Authorization: Bearer b-secret\r\n");
    let reply = server.ask(&post("/mcp", a, &initialize("2025-06-18"))).await;
    let id = reply.header("mcp-session-id").unwrap().to_owned();
    assert!(id.len() >= 32, "{id}");
    let session = format!("Mcp-Session-Id: {id}\r\n");
    let ping = call(1, "ping");
    for (path, headers, expected) in [
        ("/mcp", format!("{a}{session}"), 200),
        ("/mcp", format!("{a}{session}MCP-Protocol-Version: 2025-03-26\r\n"), 200),
        ("/mcp", format!("{a}{session}MCP-Protocol-Version: 1999-01-01\r\n"), 400),
        ("/mcp", a.to_owned(), 400),
        ("/mcp", format!("{a}{session}{session}"), 400),
        ("/mcp", format!("{a}Mcp-Session-Id: {}\r\n", "0".repeat(id.len())), 404),
        ("/mcp", format!("{a}Mcp-Session-Id: 0\r\nMCP-Protocol-Version: 1999-01-01\r\n"), 404),
        ("/mcp", format!("{a}Mcp-Session-Id: 0\r\nAccept: text/html\r\nContent-Type: text/plain\r\n"), 404),
        ("/mcp", format!("{b}{session}"), 404),
        ("/mcp/dev", format!("{a}{session}"), 404),
    ] {
        assert_eq!(server.ask(&post(path, &headers, &ping)).await.status, expected, "{path} {headers}");
        if expected != 200 {
            let reply = server.ask(&get(path, &headers)).await;
            assert_eq!(reply.status, expected, "GET {path} {headers}");
            let reply = server.ask(&get(path, &headers).replacen("GET", "DELETE", 1)).await;
            assert_eq!(reply.status, expected, "DELETE {path} {headers}");
        }
    }
    for (body, expected) in [
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "session 0 notifications/initialized"),
        (r#"{"jsonrpc":"2.0","id":9,"result":{}}"#, "session 0 response"),
    ] {
        assert_eq!(server.ask(&post("/mcp", &format!("{a}{session}"), body)).await.status, 202);
        server.fake.noted(expected).await;
    }
    let reply = server.ask(&get("/mcp", &format!("{a}{session}")).replacen("GET", "DELETE", 1)).await;
    assert_eq!(reply.status, 204);
    server.fake.noted("close 0").await;
    assert_eq!(server.ask(&post("/mcp", &format!("{a}{session}"), &ping)).await.status, 404);
    // A toolbox's sessions are its own.
    let reply = server.ask(&post("/mcp/my%20box", a, &initialize("2025-06-18"))).await;
    let session = format!("{a}Mcp-Session-Id: {}\r\n", reply.header("mcp-session-id").unwrap());
    server.fake.noted("open Some(\"my box\")").await;
    assert_eq!(server.ask(&post("/mcp/my%20box", &session, &ping)).await.status, 200);
    assert_eq!(server.ask(&post("/mcp", &session, &ping)).await.status, 404);
    // One that does not come about.
    let failing = initialize("2025-06-18").replace("{\"prot", "{\"fail\":1,\"prot");
    let reply = server.ask(&post("/mcp", a, &failing)).await;
    assert_eq!((reply.code(), reply.header("mcp-session-id")), (Some(-32602), None));
    server.fake.noted("close 2").await;
}

#[tokio::test]
async fn a_token_that_a_reload_removes_ends_its_sessions() {
    let server = Running::start(serving(vec![token("a", None), token("b", None)]), |_| ()).await;
    for name in ["a", "b"] {
        let auth = format!("Authorization: Bearer {name}-secret\r\n");
        assert_eq!(server.ask(&post("/mcp", &auth, &initialize("2025-06-18"))).await.status, 200);
    }
    server.rules.replace(&serving(vec![token("b", None)]));
    server.fake.noted("close 0").await;
    assert!(!server.fake.log.lock().contains(&"close 1".to_owned()));
    let auth = "Authorization: Bearer a-secret\r\n";
    assert_eq!(server.ask(&post("/mcp", auth, &initialize("2025-06-18"))).await.status, 401);
}

#[tokio::test]
async fn idle_sessions_end_and_those_with_a_stream_or_a_request_stay() {
    let idle = Serving { session_idle_timeout: Duration::from_millis(300), ..serving(Vec::new()) };
    let server = Running::start(idle, |_| ()).await;
    let with_stream = server.session("2025-11-25").await;
    let with_request = server.session("2025-11-25").await;
    let mut stream = server.connect().await;
    stream.send(&get("/mcp", &with_stream)).await;
    assert!(stream.head().await.is_event_stream());
    let mut request = server.connect().await;
    request.send(&post("/mcp", &with_request, &call(1, "hold"))).await;
    server.fake.noted("session 1 holds 1").await;
    drop(request);
    server.session("2025-11-25").await;
    server.fake.noted("close 2").await;
    for session in [&with_stream, &with_request] {
        assert_eq!(server.ask(&post("/mcp", session, &call(2, "ping"))).await.status, 200);
    }
    drop(server.fake.take("1"));
    drop(stream);
    server.fake.noted("close 0").await;
    server.fake.noted("close 1").await;
}

#[tokio::test]
async fn one_stream_carries_what_belongs_to_no_request() {
    let server = Running::open().await;
    let session = server.session("2025-11-25").await;
    let unrelated = server.fake.unrelated(0);
    let changed = |kind: &str| format!(r#"{{"jsonrpc":"2.0","method":"notifications/{kind}/list_changed"}}"#);
    // Nobody listens yet: `list_changed` waits, once per kind, and nothing else does.
    for message in
        [changed("tools"), changed("tools"), changed("prompts"), r#"{"method":"other"}"#.to_owned()]
    {
        unrelated.send(message.as_bytes(), false);
    }
    let mut one = server.connect().await;
    one.send(&get("/mcp", &session)).await;
    assert!(one.head().await.is_event_stream());
    let data = |events: Vec<String>| -> Vec<_> {
        events.iter().map(|event| event.split_once(' ').unwrap().1.to_owned()).collect()
    };
    assert_eq!(data(one.events(2).await), [changed("tools"), changed("prompts")]);
    unrelated.send(b"1", false);
    assert_eq!(data(one.events(1).await), ["1"]);
    // A second one takes the place of the first.
    let mut two = server.connect().await;
    two.send(&get("/mcp", &session)).await;
    assert!(two.head().await.is_event_stream());
    assert_eq!(one.chunk().await, None);
    unrelated.send(b"2", false);
    assert_eq!(data(two.events(1).await), ["2"]);
    // The session's end is the stream's end.
    server.ask(&get("/mcp", &session).replacen("GET", "DELETE", 1)).await;
    assert_eq!(two.chunk().await, None);
    assert!(!unrelated.send(b"3", false));
}

#[tokio::test]
async fn broken_streams_are_resumed_without_loss_or_repetition() {
    let server = Running::open().await;
    let session = server.session("2025-11-25").await;
    let mut listener = server.connect().await;
    listener.send(&get("/mcp", &session)).await;
    listener.head().await;
    let mut caller = server.connect().await;
    caller.send(&post("/mcp", &session, &call(1, "hold"))).await;
    server.fake.noted("session 0 holds 1").await;
    let stream = server.fake.take("1");
    stream.send(b"1", false);
    stream.send(b"2", false);
    assert!(caller.head().await.is_event_stream());
    let events = caller.events(2).await;
    let id = |event: &str| event.split_once(' ').unwrap().0.to_owned();
    drop(caller);
    stream.send(b"3", false);
    stream.send(b"4", true);
    for (last, expected) in [(0, &["2", "3", "4"][..]), (1, &["3", "4"])] {
        let last = id(&events[last]);
        let reply = server.ask(&get("/mcp", &format!("{session}Last-Event-ID: {last}\r\n"))).await;
        let data: Vec<_> =
            events_in(&reply.body).iter().map(|event| event.split_once(' ').unwrap().1.to_owned()).collect();
        assert_eq!(data, expected);
    }
    // The session's own stream was left alone, and can be resumed as well.
    server.fake.unrelated(0).send(b"5", false);
    let events = listener.events(1).await;
    drop(listener);
    server.fake.unrelated(0).send(b"6", false);
    for last in [id(&events[0]), "unknown".to_owned(), "99-1".to_owned(), "0-99".to_owned()] {
        let mut listener = server.connect().await;
        listener.send(&get("/mcp", &format!("{session}Last-Event-ID: {last}\r\n"))).await;
        assert!(listener.head().await.is_event_stream(), "{last}");
        if last == id(&events[0]) {
            assert!(listener.events(1).await[0].ends_with(" 6"));
        } else {
            // An unknown id is ignored: a plain stream.
            let mut start = listener.chunk().await.unwrap();
            server.fake.unrelated(0).send(b"7", false);
            start.push_str(&listener.chunk().await.unwrap());
            assert!(start.ends_with("-1\ndata: 7\n\n"), "{start}");
        }
    }
}

#[tokio::test]
async fn streams_are_forgotten_after_their_time() {
    let server = Running::start(serving(Vec::new()), |settings| settings.kept_for = Duration::ZERO).await;
    let session = server.session("2025-11-25").await;
    let reply = server.ask(&post("/mcp", &session, &call(1, "progress"))).await;
    let first = events_in(&reply.body)[0].split_once(' ').unwrap().0.to_owned();
    let mut client = server.connect().await;
    client.send(&get("/mcp", &format!("{session}Last-Event-ID: {first}\r\n"))).await;
    assert!(client.head().await.is_event_stream());
    server.fake.unrelated(0).send(b"new", false);
    assert!(client.events(1).await[0].ends_with(" new"));
}

#[tokio::test]
async fn batches_belong_to_one_version() {
    let server = Running::open().await;
    let march = server.session("2025-03-26").await;
    let june = server.session("2025-06-18").await;
    let note = r#"{"jsonrpc":"2.0","method":"n"}"#;
    let answer = |id: u32, body: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{body}}}"#);
    let two = format!("[{},{note},{}]", call(1, "echo"), call(2, "echo"));
    let reply = server.ask(&post("/mcp", &march, &two)).await;
    assert_eq!(reply.body, format!("[{},{}]", answer(1, "\"session 0\""), answer(2, "\"session 0\"")));
    server.fake.noted("session 0 n").await;
    // What precedes the answers goes ahead; what gets no answer is left out, what is no message is answered.
    let mixed = format!("[{},{},7]", call(1, "progress"), call(2, "drop"));
    let reply = server.ask(&post("/mcp", &march, &mixed)).await;
    let events = events_in(&reply.body);
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(events[2].contains(&answer(1, "{}")) && events[2].contains("-32600"), "{events:?}");
    for (session, body, status, code) in [
        (&march, format!("[{note}]"), 202, None),
        (&march, "[]".to_owned(), 400, Some(-32600)),
        (&june, two.clone(), 400, Some(-32600)),
        (&String::new(), two, 400, Some(-32600)),
    ] {
        let reply = server.ask(&post("/mcp", session, &body)).await;
        assert_eq!((reply.status, reply.code()), (status, code), "{session}{body}");
    }
}

#[tokio::test]
async fn readiness_has_a_reason() {
    let server = Running::open().await;
    assert_eq!(server.ask(&get("/readyz", "")).await.status, 200);
    *server.fake.not_ready.lock() = Some("2 servers still start".to_owned());
    let reply = server.ask(&get("/readyz", "")).await;
    assert_eq!((reply.status, &*reply.body), (503, "2 servers still start\n"));
    assert_eq!(server.ask(&get("/healthz", "")).await.status, 200);
}

#[tokio::test]
async fn ending_lets_calls_finish_and_takes_no_new_ones() {
    let mut server = Running::start(serving(Vec::new()), |settings| settings.drain = PATIENCE).await;
    let session = server.session("2025-11-25").await;
    let mut listener = server.connect().await;
    listener.send(&get("/mcp", &session)).await;
    listener.head().await;
    listener.chunk().await;
    let mut caller = server.connect().await;
    caller.send(&post("/mcp", &session, &call(1, "hold"))).await;
    server.fake.noted("session 0 holds 1").await;
    server.end();
    server.fake.noted("drain").await;
    for request in [
        modern(1, "echo", ""),
        post("/mcp", "", &initialize("2025-11-25")),
        post("/mcp", &session, &call(2, "echo")),
        get("/mcp", &session),
    ] {
        let mut client = server.connect().await;
        let reply = client.ask(&request).await;
        assert_eq!((reply.status, reply.header("connection")), (503, Some("close")), "{request}");
        assert!(client.is_closed().await);
    }
    assert_eq!(server.ask(&get("/healthz", "")).await.status, 200);
    assert_eq!(server.ask(&get("/readyz", "")).await.status, 503);
    // The answer to a question of the call in flight is no new request.
    let answer = post("/mcp", &session, r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    assert_eq!(server.ask(&answer).await.status, 202);
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":2}"#;
    server.fake.take("1").send(answer.as_bytes(), true);
    assert_eq!(caller.reply().await.body, answer);
    assert_eq!(listener.chunk().await, None);
    timeout(PATIENCE, server.task).await.expect("it ends").unwrap().unwrap();
    server.fake.noted("close 0").await;
    assert!(!server.fake.log.lock().contains(&"abandon".to_owned()));
}

#[tokio::test]
async fn calls_that_take_too_long_fail_at_the_end() {
    let mut server =
        Running::start(serving(Vec::new()), |settings| settings.drain = Duration::from_millis(50)).await;
    let mut plain = server.connect().await;
    plain.send(&modern(1, "hold", "")).await;
    server.fake.noted("anybody holds 1").await;
    let mut events = server.connect().await;
    events.send(&modern(2, "hold", "")).await;
    server.fake.noted("anybody holds 2").await;
    server.fake.held.lock()[1].1.send(b"{}", false);
    server.end();
    assert_eq!(plain.reply().await.code(), Some(-32000));
    let reply = events.reply().await;
    assert!(events_in(&reply.body)[1].contains("-32000"), "{reply:?}");
    timeout(PATIENCE, server.task).await.expect("it ends").unwrap().unwrap();
}

#[tokio::test]
async fn who_only_knocks_keeps_nobody_out() {
    let server = Running::start(serving(Vec::new()), |settings| {
        settings.max_connections = 8;
        settings.head_timeout = PATIENCE * 10;
    })
    .await;
    let mut busy = server.connect().await;
    assert_eq!(busy.ask(&modern(1, "echo", "")).await.status, 200);
    let mut knocking = Vec::new();
    for number in 0..50 {
        let mut client = server.connect().await;
        if number % 2 == 0 {
            client.send("POST /mcp HTTP/1.1\r\nHost: loc").await;
        }
        knocking.push(client);
    }
    assert_eq!(server.ask(&modern(2, "echo", "")).await.status, 200);
    assert_eq!(busy.ask(&modern(3, "echo", "")).await.status, 200);
    assert!(knocking[0].is_closed().await && knocking[1].is_closed().await);
}

#[tokio::test]
async fn slow_heads_are_cut() {
    let server =
        Running::start(serving(Vec::new()), |settings| settings.head_timeout = Duration::from_millis(100))
            .await;
    for start in ["", "POST /mcp HTTP/1.1\r\nHost: localhost\r\n"] {
        let mut client = server.connect().await;
        client.send(start).await;
        assert!(client.is_closed().await);
    }
    // So is a body that does not come.
    let request = post("/mcp", "", "{}{}").replace("{}{}", "{}");
    assert_eq!(server.ask(&request).await.status, 408);
    // A call may take its time.
    let mut caller = server.connect().await;
    caller.send(&modern(1, "hold", "")).await;
    server.fake.noted("anybody holds 1").await;
    assert!(server.connect().await.is_closed().await);
    assert!(server.connect().await.is_closed().await);
    server.fake.take("1").send(b"{}", true);
    assert_eq!(caller.reply().await.body, "{}");
    // A head without end is no better.
    let mut client = server.connect().await;
    client.send("GET /healthz HTTP/1.1\r\n").await;
    let long = format!("X: {}\r\n", "x".repeat(8 * 1024));
    while client.0.get_mut().write_all(long.as_bytes()).await.is_ok() {}
}

#[tokio::test]
async fn quiet_streams_show_that_they_are_alive() {
    let server =
        Running::start(serving(Vec::new()), |settings| settings.keep_alive = Duration::from_millis(20)).await;
    let session = server.session("2025-11-25").await;
    let mut client = server.connect().await;
    client.send(&get("/mcp", &session)).await;
    client.head().await;
    assert!(client.chunk().await.unwrap().starts_with("id: "));
    assert_eq!(client.chunk().await.unwrap(), ":\n\n");
    assert_eq!(client.chunk().await.unwrap(), ":\n\n");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let server = Running::open().await;
    let mut client = server.connect().await;
    client.send(&modern(1, "hold", "")).await;
    server.fake.noted("anybody holds 1").await;
    let stream = server.fake.take("1");
    let message = format!("\"{}\"", "x".repeat(500_000));
    let flood = async {
        while stream.send(message.as_bytes(), false) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, flood).await.expect("it is cut off");
    server.fake.noted("released 1").await;
}
