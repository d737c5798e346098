//! An MCP server that wants a token, and the authorization server that gives them, in one; and a browser.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// Part of everything that nobody but the two sides may ever see.
pub(crate) const SECRET: &str = "hush-hush";

/// Both servers. `echo` needs no scope, `write` the scope `write`.
pub(crate) struct Guarded {
    /// Of the MCP server.
    pub(crate) url: String,
    shared: Arc<Mutex<Shared>>,
}

/// What the servers know.
#[derive(Default)]
struct Shared {
    origin: String,
    /// Access tokens that are good, with their scopes.
    tokens: BTreeMap<String, String>,
    /// The refresh token that is good.
    refresh: Option<String>,
    /// How long tokens are said to last.
    lifetime: Option<Value>,
    /// What the last login asked for.
    asked: BTreeMap<String, String>,
    given: usize,
    /// What the MCP server names instead of the truth.
    forged: Option<Forged>,
    /// `METHOD PATH`, with the credentials that came along.
    heard: Vec<(String, Option<String>)>,
}

/// A lie of the MCP server: a URL that it wants us to ask.
#[derive(Clone)]
pub(crate) enum Forged {
    /// Its challenge says that its metadata is there.
    Metadata(String),
    /// Its metadata says that this is its authorization server.
    AuthorizationServer(String),
    /// Its metadata has moved there.
    Redirect(String),
}

/// One request.
struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    authorization: Option<String>,
    body: String,
}

impl Guarded {
    /// Starts both on a free port.
    pub(crate) fn start() -> Self {
        Self::start_as("127.0.0.1", None)
    }

    /// Starts both on a free port of this machine, under this name. They may lie.
    pub(crate) fn start_as(host: &str, forged: Option<Forged>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let origin = format!("http://{host}:{}", listener.local_addr().expect("it is bound").port());
        let shared = Arc::new(Mutex::new(Shared { origin: origin.clone(), forged, ..Shared::default() }));
        let url = format!("{origin}/mcp");
        let guarded = Self { url, shared: shared.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || drop(converse(&shared, stream)));
            }
        });
        guarded
    }

    /// Says from now on that tokens last this long.
    pub(crate) fn tokens_last(&self, seconds: impl Into<Value>) {
        self.shared().lifetime = Some(seconds.into());
    }

    /// Takes no token any more that was given so far.
    pub(crate) fn forget_tokens(&self) {
        self.shared().tokens.clear();
    }

    /// How often a path was asked for, by `METHOD PATH`.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.shared().heard.iter().filter(|(heard, _)| heard == what).count()
    }

    /// The credentials that came to a path, each once.
    pub(crate) fn credentials(&self, what: &str) -> Vec<String> {
        let mut all: Vec<String> = self
            .shared()
            .heard
            .iter()
            .filter(|(heard, _)| heard == what)
            .filter_map(|(_, credentials)| credentials.clone())
            .collect();
        all.dedup();
        all
    }

    /// What the last login asked for.
    pub(crate) fn asked(&self, parameter: &str) -> String {
        self.shared().asked.get(parameter).cloned().unwrap_or_default()
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().expect("no panic")
    }
}

fn converse(shared: &Mutex<Shared>, mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read(&mut reader)? {
        let (status, headers, body) = shared.lock().expect("no panic").answer(&request);
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
        stream.write_all(head.as_bytes())?;
    }
    Ok(())
}

fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or(0),
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(Some(Request { method, path: path.to_owned(), query: parameters(query), authorization, body }))
}

/// Status, further headers and body.
type Answer = (&'static str, String, String);

impl Shared {
    fn answer(&mut self, request: &Request) -> Answer {
        let what = format!("{} {}", request.method, request.path);
        self.heard.push((what.clone(), request.authorization.clone()));
        match what.as_str() {
            "GET /.well-known/oauth-protected-resource/mcp" => {
                let resource = format!("{}/mcp", self.origin);
                let server = match &self.forged {
                    Some(Forged::Redirect(to)) => {
                        return ("302 Found", format!("Location: {to}\r\n"), String::new());
                    }
                    Some(Forged::AuthorizationServer(server)) => server,
                    _ => &self.origin,
                };
                json_answer(json!({"resource": resource, "authorization_servers": [server]}))
            }
            "GET /.well-known/oauth-authorization-server" => {
                let at = |path: &str| format!("{}{path}", self.origin);
                json_answer(json!({
                    "issuer": self.origin, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
                    "registration_endpoint": at("/register"), "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                    "authorization_response_iss_parameter_supported": true,
                }))
            }
            "POST /register" => {
                let id = format!("client-{}", self.next());
                json_answer(json!({"client_id": id, "client_secret": format!("{SECRET} of the client")}))
            }
            "GET /authorize" => {
                self.asked = request.query.clone();
                let asked = |key: &str| self.asked.get(key).cloned().unwrap_or_default();
                let (redirect, state) = (asked("redirect_uri"), asked("state"));
                let location = format!("{redirect}?code={SECRET}-code&state={state}&iss={}", self.origin);
                ("302 Found", format!("Location: {location}\r\n"), String::new())
            }
            "POST /token" => self.token(&parameters(&request.body)),
            "POST /mcp" => self.mcp(request),
            _ => ("404 Not Found", String::new(), String::new()),
        }
    }

    fn next(&mut self) -> usize {
        self.given += 1;
        self.given
    }

    /// Gives tokens for what proves that it may have them; a refresh token is good once.
    fn token(&mut self, form: &BTreeMap<String, String>) -> Answer {
        let of = |key: &str| form.get(key).map_or("", String::as_str);
        let good = match of("grant_type") {
            "authorization_code" => {
                let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, of("code_verifier").as_bytes()));
                of("code") == format!("{SECRET}-code")
                    && self.asked.get("code_challenge") == Some(&challenge)
                    && self.asked.get("redirect_uri").map(String::as_str) == Some(of("redirect_uri"))
            }
            "refresh_token" => self.refresh.as_deref() == Some(of("refresh_token")),
            _ => false,
        };
        if !good || of("resource") != format!("{}/mcp", self.origin) {
            let error = json!({"error": "invalid_grant", "error_description": format!("bad: {form:?}")});
            return ("400 Bad Request", String::new(), error.to_string());
        }
        let number = self.next();
        let (access, refresh) = (format!("{SECRET}-access-{number}"), format!("{SECRET}-refresh-{number}"));
        let scope = self.asked.get("scope").cloned().unwrap_or_default();
        self.tokens.insert(access.clone(), scope);
        self.refresh = Some(refresh.clone());
        json_answer(json!({
            "access_token": access, "refresh_token": refresh, "token_type": "bearer",
            "expires_in": self.lifetime.clone().unwrap_or_else(|| 3600.into()),
        }))
    }

    /// A small MCP server of the legacy era.
    fn mcp(&self, request: &Request) -> Answer {
        let metadata = match &self.forged {
            Some(Forged::Metadata(place)) => place.clone(),
            _ => format!("{}/.well-known/oauth-protected-resource/mcp", self.origin),
        };
        let refuse = |status, more: &str| {
            let header = format!("WWW-Authenticate: Bearer resource_metadata=\"{metadata}\"{more}\r\n");
            (status, header, String::new())
        };
        let token = request.authorization.as_deref().and_then(|value| value.strip_prefix("Bearer "));
        let Some(scope) = token.and_then(|token| self.tokens.get(token)) else {
            return refuse("401 Unauthorized", ", scope=\"read\"");
        };
        let message: Value = serde_json::from_str(&request.body).unwrap_or_default();
        let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            }),
            "tools/list" => json!({"tools": [tool("echo"), tool("write")]}),
            "tools/call"
                if message["params"]["name"] == "write" && !scope.split(' ').any(|one| one == "write") =>
            {
                return refuse("403 Forbidden", ", error=\"insufficient_scope\", scope=\"write\"");
            }
            "tools/call" => json!({"content": [{"type": "text", "text": "done"}]}),
            method if method.starts_with("notifications/") => {
                return ("202 Accepted", String::new(), String::new());
            }
            _ => {
                let error = json!({"code": -32601, "message": "Method not found"});
                return json_answer(json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
            }
        };
        json_answer(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
    }
}

fn json_answer(body: Value) -> Answer {
    ("200 OK", "Content-Type: application/json\r\n".to_owned(), body.to_string())
}

/// The parameters of a query or a form.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), percent_decode_str(value).decode_utf8_lossy().into_owned()))
        .collect()
}

/// The login that a text asks for.
pub(crate) fn login(text: &str) -> Option<String> {
    let url =
        text.split_whitespace().find(|word| word.starts_with("http") && word.contains("code_challenge="));
    url.map(str::to_owned)
}

/// Goes where a browser would; the status of the page that it ends on, and the address before that.
pub(crate) fn browse(url: &str) -> (u16, String) {
    let mut url = url.to_owned();
    loop {
        let (status, location) = visit(&url);
        match location {
            Some(next) => url = next,
            None => return (status, url),
        }
    }
}

/// One page: its status, and where it sends the browser. 0: nobody is there.
pub(crate) fn visit(url: &str) -> (u16, Option<String>) {
    let (host, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a URL");
    let Ok(mut stream) = TcpStream::connect(host) else { return (0, None) };
    let sent = write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    if sent.is_err() {
        return (0, None);
    }
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
    let headers = lines.take_while(|line| !line.is_empty());
    let location = headers.filter_map(|line| {
        Some(line.split_once(": ")?.1.to_owned()).filter(|_| line.starts_with("Location"))
    });
    (status, location.last())
}
