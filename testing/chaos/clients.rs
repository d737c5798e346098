//! The clients: over stdio, and over HTTP in both eras.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fault::{Chance, Fault};
use crate::ledger::{Asked, Ledger, Message, Totals};
use crate::scene::Gateway;

/// What all clients of a run share.
pub(crate) struct Plan {
    pub(crate) totals: Totals,
    /// Calls that may still be made.
    pub(crate) left: AtomicU64,
    pub(crate) until: Option<Instant>,
    /// One call in so many goes wrong.
    pub(crate) one_in: u64,
    pub(crate) upstreams: usize,
    /// Between two crashes of one server, so that there is something left to call.
    pub(crate) between_crashes: Duration,
}

/// What the clients of one gateway know of its servers.
pub(crate) struct Servers(Mutex<Vec<Server>>);

#[derive(Clone)]
struct Server {
    /// When it may crash again.
    may_crash: Instant,
    /// It has just failed: others are called meanwhile.
    rests_until: Instant,
}

/// After an error a server is left alone for so long.
const REST: Duration = Duration::from_millis(100);
/// What anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// Calls in flight of one client over stdio.
const IN_FLIGHT: usize = 32;

impl Servers {
    pub(crate) fn new(count: usize) -> Self {
        let now = Instant::now();
        Self(Mutex::new(vec![Server { may_crash: now, rests_until: now }; count]))
    }

    /// A server that can be called, and what is to go wrong.
    fn choose(&self, plan: &Plan, chance: &mut Chance) -> (usize, Option<Fault>) {
        let mut servers = self.0.lock().expect("no panic");
        let now = Instant::now();
        let mut at = chance.below(plan.upstreams as u64) as usize;
        if let Some(awake) =
            (0..plan.upstreams).map(|n| (at + n) % plan.upstreams).find(|n| servers[*n].rests_until <= now)
        {
            at = awake;
        }
        let mut fault = chance.once_in(plan.one_in).then(|| chance.one_of(&Fault::ALL));
        if fault.is_some_and(Fault::is_deadly) {
            match servers[at].may_crash <= now {
                true => servers[at].may_crash = now + plan.between_crashes,
                false => fault = Some(Fault::Garbage),
            }
        }
        (at, fault)
    }

    fn failed(&self, asked: &Asked) {
        let at = asked.label.split('/').nth(1).and_then(|name| name.strip_prefix('u')?.parse::<usize>().ok());
        // An answer that is an error, or too long, says nothing about the server.
        let own_fault = matches!(
            asked.fault,
            Some(
                Fault::Refused
                    | Fault::TooLong
                    | Fault::TooLongIdLast
                    | Fault::Hang
                    | Fault::Late
                    | Fault::Corrupt
            )
        );
        if let Some(at) = at.filter(|_| !own_fault) {
            self.0.lock().expect("no panic")[at].rests_until = Instant::now() + REST;
        }
    }
}

impl Plan {
    /// Whether another call is to be made.
    fn takes_one(&self) -> bool {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return false;
        }
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn call(&self, client: &str, number: u64, servers: &Servers, chance: &mut Chance) -> (Asked, String) {
        let (server, fault) = servers.choose(self, chance);
        let mark = format!("mark-{client}-{number}.");
        let arguments = json!({"mark": mark, "fault": fault.map(Fault::name)});
        let params = match chance.once_in(2) {
            true => json!({"name": format!("box__u{server}__chaos"), "arguments": arguments}),
            false => {
                let tool = json!({"toolbox": "box", "server": format!("u{server}"), "tool": "chaos"});
                json!({"name": "use_tool", "arguments": {"tool": tool, "arguments": arguments}})
            }
        };
        (Asked { mark, label: format!("box/u{server}/chaos"), fault }, params.to_string())
    }
}

/// One client over stdio until the plan is fulfilled.
pub(crate) fn over_stdio(plan: &Plan, gateway: &mut Gateway, mut chance: Chance) {
    let servers = Servers::new(plan.upstreams);
    let ledger = Ledger::new(&plan.totals);
    let mut stdin = gateway.child.stdin.take().expect("piped");
    let mut stdout = BufReader::new(gateway.child.stdout.take().expect("piped"));
    open_over_stdio(plan, &mut stdin, &mut stdout);
    let name = gateway.name.clone();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut line = Vec::new();
            while stdout.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                if let Some(asked) = ledger.take(&line) {
                    servers.failed(&asked);
                }
                line.clear();
            }
            ledger.ended.store(true, Ordering::Relaxed);
            stdout
        });
        let mut cancels: VecDeque<(Instant, String)> = VecDeque::new();
        let mut fences = 0;
        for number in 0.. {
            if !plan.takes_one() {
                break;
            }
            let (asked, params) = plan.call(&name, number, &servers, &mut chance);
            // The same id as a number and as a text are two ids.
            let id = if number % 2 == 0 { format!("{}", number / 2) } else { format!("\"{}\"", number / 2) };
            if matches!(asked.fault, Some(Fault::Late | Fault::Hang)) || chance.once_in(500) {
                cancels.push_back((Instant::now() + Duration::from_millis(chance.below(30)), id.clone()));
            }
            ledger.open(&id, asked, IN_FLIGHT);
            send(
                &mut stdin,
                &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#),
            );
            while cancels.front().is_some_and(|(due, _)| *due <= Instant::now()) {
                cancel(&ledger, &mut stdin, &cancels.pop_front().expect("looked at").1, &mut fences);
            }
        }
        for (_, id) in cancels {
            cancel(&ledger, &mut stdin, &id, &mut fences);
        }
        ledger.settle(PATIENCE);
        drop(stdin);
        drop(reader.join());
    });
}

fn cancel(ledger: &Ledger<'_>, stdin: &mut impl Write, id: &str, fences: &mut u64) {
    *fences += 1;
    if ledger.cancel(id, *fences) {
        let params = format!(r#"{{"requestId":{id}}}"#);
        send(stdin, &format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#));
        let fence = Ledger::fence(*fences);
        send(stdin, &format!(r#"{{"jsonrpc":"2.0","id":{fence},"method":"ping"}}"#));
    }
}

fn open_over_stdio(plan: &Plan, stdin: &mut impl Write, stdout: &mut impl BufRead) {
    let mut ask = |message: &str| {
        send(stdin, message);
        loop {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).is_ok_and(|read| read > 0), "the gateway answers");
            if line.contains(r#""id":"open""#) {
                return line;
            }
        }
    };
    ask(&initialize());
    until_all_are_up(plan, || ask(&open()));
}

fn send(stdin: &mut impl Write, message: &str) {
    // A gateway that has ended is seen by whoever reads.
    let _ = stdin.write_all(format!("{message}\n").as_bytes());
}

fn initialize() -> String {
    let params = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "chaos", "version": "1"}
    });
    json!({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params}).to_string()
}

fn open() -> String {
    let params = json!({"name": "open_toolbox", "arguments": {"toolbox_name": "box"}});
    json!({"jsonrpc": "2.0", "id": "open", "method": "tools/call", "params": params}).to_string()
}

/// Opens the toolbox until every server has been up at once: only then all names are known.
fn until_all_are_up(plan: &Plan, mut open: impl FnMut() -> String) {
    let end = Instant::now() + 2 * PATIENCE;
    let connected = |text: &str| {
        let value: Value = serde_json::from_str(text).ok()?;
        value["result"]["structuredContent"]["servers_connected"].as_u64()
    };
    loop {
        let answer = open();
        if connected(&answer) == Some(plan.upstreams as u64) {
            return;
        }
        assert!(Instant::now() < end, "not every server comes up: {answer:.1000}");
        std::thread::sleep(REST);
    }
}

/// Clients over HTTP, one thread each until the plan is fulfilled; every other one is modern.
pub(crate) fn over_http(plan: &Plan, gateway: &Gateway, clients: usize, chance: &Chance) {
    let address = gateway.address.as_deref().expect("it listens");
    let servers = Servers::new(plan.upstreams);
    std::thread::scope(|scope| {
        for number in 0..clients {
            let (servers, mut chance) = (&servers, Chance(chance.0 ^ (number as u64) << 40));
            scope.spawn(move || {
                let name = format!("http{number}");
                let mut web = Web::new(address, number % 2 == 1);
                web.open(plan);
                for number in 0.. {
                    if !plan.takes_one() {
                        break;
                    }
                    let (asked, params) = plan.call(&name, number, servers, &mut chance);
                    plan.totals.sent(&asked);
                    if web.call(plan, number, &asked, &params, &mut chance) {
                        servers.failed(&asked);
                    }
                }
            });
        }
    });
}

/// A client over HTTP with one call at a time.
struct Web {
    address: String,
    modern: bool,
    session: Option<String>,
    connection: Option<BufReader<TcpStream>>,
}

/// An answer over HTTP.
struct Response {
    status: u16,
    session: Option<String>,
    /// Messages, the last of which is the answer, if there is one.
    messages: Vec<String>,
}

impl Web {
    fn new(address: &str, modern: bool) -> Self {
        Self { address: address.to_owned(), modern, session: None, connection: None }
    }

    fn open(&mut self, plan: &Plan) {
        if !self.modern {
            let response = self.exchange(&initialize(), "initialize", "", None).expect("the gateway answers");
            self.session = response.session;
        }
        until_all_are_up(plan, || {
            let message = self.dressed(&open());
            let response = self.exchange(&message, "tools/call", "open_toolbox", None);
            response.expect("the gateway answers").messages.pop().unwrap_or_default()
        });
    }

    /// Makes one call and judges its answer. `true`: it was an error.
    fn call(&mut self, plan: &Plan, number: u64, asked: &Asked, params: &str, chance: &mut Chance) -> bool {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{params}}}"#);
        let name: Value = serde_json::from_str(params).expect("JSON of ours");
        let name = name["name"].as_str().expect("a name").to_owned();
        let message = self.dressed(&message);
        let cancelled = matches!(asked.fault, Some(Fault::Late | Fault::Hang)) || chance.once_in(500);
        let patience = cancelled.then(|| Duration::from_millis(5 + chance.below(30)));
        let totals = &plan.totals;
        let response = match self.exchange(&message, "tools/call", &name, patience) {
            Ok(response) => response,
            Err(()) if cancelled && self.modern => {
                // A modern client cancels by hanging up.
                self.connection = None;
                totals.cancelled.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            Err(()) if cancelled => match self.cancel(number) {
                Ok(response) => response,
                Err(()) => {
                    totals.count(&totals.lost, &format!("no end after cancellation: {asked:?}"));
                    return false;
                }
            },
            Err(()) => {
                self.connection = None;
                totals.count(&totals.lost, &format!("never answered: {asked:?}"));
                return false;
            }
        };
        let answers: Vec<Message<'_>> = response
            .messages
            .iter()
            .filter_map(|message| serde_json::from_str::<Message>(message).ok())
            .filter(|message| message.method.is_none())
            .collect();
        match answers.as_slice() {
            [] if cancelled => {
                totals.cancelled.fetch_add(1, Ordering::Relaxed);
                false
            }
            [] => {
                let status = response.status;
                totals.count(&totals.lost, &format!("no answer, status {status}: {asked:?}"));
                false
            }
            [answer] if answer.id.is_some_and(|id| id.get() == number.to_string()) => {
                totals.judge(asked, answer)
            }
            [_] => {
                totals.count(&totals.misrouted, &format!("another id: {asked:?}"));
                false
            }
            _ => {
                totals.count(&totals.duplicated, &format!("several answers: {asked:?}"));
                false
            }
        }
    }

    /// Cancels the call that this connection waits for, by another one, and waits for its end.
    fn cancel(&mut self, number: u64) -> Result<Response, ()> {
        let waiting = self.connection.take().ok_or(())?;
        let params = json!({"requestId": number});
        let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        self.exchange(&message.to_string(), "notifications/cancelled", "", None)?;
        self.connection = Some(waiting);
        self.read(Some(PATIENCE))
    }

    /// With what every modern request says of itself.
    fn dressed(&self, message: &str) -> String {
        if !self.modern {
            return message.to_owned();
        }
        let mut message: Value = serde_json::from_str(message).expect("JSON of ours");
        message["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "chaos", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        message.to_string()
    }

    /// Posts a message and reads the answer. `Err`: none came in time, or the connection is gone.
    fn exchange(
        &mut self,
        message: &str,
        method: &str,
        name: &str,
        patience: Option<Duration>,
    ) -> Result<Response, ()> {
        if self.connection.is_none() {
            let stream = TcpStream::connect(&self.address).map_err(drop)?;
            stream.set_nodelay(true).map_err(drop)?;
            self.connection = Some(BufReader::new(stream));
        }
        let mut headers = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
            self.address,
            message.len()
        );
        if self.modern {
            headers +=
                &format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n");
        }
        if let Some(session) = &self.session {
            headers += &format!("Mcp-Session-Id: {session}\r\n");
        }
        let connection = self.connection.as_mut().expect("just made");
        let request = format!("{headers}\r\n{message}");
        connection.get_mut().write_all(request.as_bytes()).map_err(drop)?;
        self.read(patience)
    }

    /// Reads one answer; only its beginning is waited for with patience.
    fn read(&mut self, patience: Option<Duration>) -> Result<Response, ()> {
        let connection = self.connection.as_mut().ok_or(())?;
        connection.get_ref().set_read_timeout(Some(patience.unwrap_or(PATIENCE))).map_err(drop)?;
        if connection.fill_buf().map_err(drop)?.is_empty() {
            return Err(());
        }
        connection.get_ref().set_read_timeout(Some(PATIENCE)).map_err(drop)?;
        let response = read_response(connection);
        if response.is_err()
            && let Some(connection) = self.connection.take()
        {
            let _ = connection.get_ref().shutdown(Shutdown::Both);
        }
        response
    }
}

fn read_response(connection: &mut BufReader<TcpStream>) -> Result<Response, ()> {
    let mut line = String::new();
    let mut next = |connection: &mut BufReader<TcpStream>| {
        line.clear();
        connection.read_line(&mut line).map_err(drop)?;
        Ok::<_, ()>(line.trim_end().to_owned())
    };
    let status = next(connection)?.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(())?;
    let (mut length, mut chunked, mut events, mut session) = (0, false, false, None);
    loop {
        let line = next(connection)?;
        let Some((name, value)) = line.split_once(':') else { break };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().map_err(drop)?,
            "transfer-encoding" => chunked = true,
            "content-type" => events = value.starts_with("text/event-stream"),
            "mcp-session-id" => session = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            let size = usize::from_str_radix(&next(connection)?, 16).map_err(drop)?;
            let start = body.len();
            body.resize(start + size, 0);
            connection.read_exact(&mut body[start..]).map_err(drop)?;
            next(connection)?;
            if size == 0 {
                break;
            }
        }
    } else {
        body.resize(length, 0);
        connection.read_exact(&mut body).map_err(drop)?;
    }
    let body = String::from_utf8(body).map_err(drop)?;
    let messages = match events {
        true => body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|data| !data.is_empty())
            .map(ToOwned::to_owned)
            .collect(),
        false if body.is_empty() => Vec::new(),
        false => vec![body],
    };
    Ok(Response { status, session, messages })
}
