//! Tests of the contract over real sockets, with a scripted backend behind the transport.

mod checks;
mod client;
mod ending;
mod fake;
mod replicas;
mod sessions;
mod streams;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::client::{Client, Reply};
pub(crate) use self::fake::backend;
use self::fake::{Fake, Shared};
use super::{Rules, Settings, serve};
use crate::config::{Secret, Serving, Token};

/// A wait that is far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn token(name: &str, scope: Option<&[&str]>) -> Token {
    let scope = scope.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    Token { name: name.to_owned(), token: Secret::new(format!("{name}-secret")), scope }
}

fn serving(tokens: Vec<Token>) -> Serving {
    Serving {
        session_idle_timeout: Duration::from_secs(1800),
        max_body_bytes: 4096,
        state_keys: Vec::new(),
        store: None,
        tokens,
    }
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

    /// Opens a session with this version, and returns the header line that names it.
    async fn session(&self, version: &str) -> String {
        let reply = self.ask(&post("/mcp", "", &initialize(version))).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        format!("Mcp-Session-Id: {}\r\n", reply.header("mcp-session-id").expect("a session id"))
    }

    fn end(&mut self) {
        let _ = self.shutdown.take().expect("ended once").send(());
    }
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
