//! The clients: over stdio, and over HTTP in both eras.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fault::{Chance, Fault};
use crate::ledger::{Ledger, Totals};
use crate::oracle::{self, Call};
use crate::sabotage::{Sabotage, Saboteur};
use crate::scene::{Gateway, tools};

/// What all clients of a run share.
pub(crate) struct Plan {
    pub(crate) totals: Totals,
    /// How often each client over stdio calls, and each over HTTP; and how much time a call has, so that crashes come no
    /// faster than servers recover.
    pub(crate) calls: [u64; 2],
    pub(crate) pace: [Duration; 2],
    pub(crate) until: Option<Instant>,
    /// One call in so many goes wrong.
    pub(crate) one_in: u64,
    /// Faults so far.
    pub(crate) faults: AtomicU64,
    /// The servers of a gateway, of which the last is one over HTTP.
    pub(crate) servers: usize,
    /// After this long without an answer a call is lost.
    pub(crate) lost_after: Duration,
    /// What is done to the messages of clients over stdio, and over HTTP.
    pub(crate) sabotage: [Option<Sabotage>; 2],
}

/// What the clients of one gateway know of its servers.
pub(crate) struct Servers(Mutex<State>);

struct State {
    servers: Vec<Server>,
    /// A server that crashes, and how many further calls go to it, so that some are in flight when it does.
    company: (usize, u32),
}

#[derive(Clone)]
struct Server {
    /// When it may crash again.
    may_crash: Instant,
    /// It has just failed: others are called meanwhile.
    rests_until: Instant,
}

/// A server to call, what is to go wrong, and when it may.
struct Choice {
    server: usize,
    fault: Option<Fault>,
    not_before: Instant,
}

/// After an error a server is left alone for so long.
const REST: Duration = Duration::from_millis(100);
/// What anything but a call may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// One fault in so many is a crash.
pub(crate) const CRASH_ONE_IN: u64 = 7;
/// Between two crashes of one server, so that it counts as healthy again and is started at once.
pub(crate) const BETWEEN_CRASHES: Duration = Duration::from_secs(11);
/// A client is held up for this long at least, if it is.
const BURST: Duration = Duration::from_millis(50);
/// Calls that follow a crash to its server.
const COMPANY: u32 = 4;

impl Servers {
    pub(crate) fn new(count: usize) -> Self {
        let now = Instant::now();
        let servers = vec![Server { may_crash: now, rests_until: now }; count];
        Self(Mutex::new(State { servers, company: (0, 0) }))
    }

    fn choose(&self, plan: &Plan, chance: &mut Chance) -> Choice {
        let mut state = self.0.lock().expect("no panic");
        let State { servers, company } = &mut *state;
        let now = Instant::now();
        let remote = plan.servers - 1;
        // One kind after the other, so that each has its share.
        let number = chance.once_in(plan.one_in).then(|| plan.faults.fetch_add(1, Ordering::Relaxed));
        if let Some(crash) = number.filter(|number| number.is_multiple_of(CRASH_ONE_IN)) {
            let fault = Fault::CRASHES[(crash / CRASH_ONE_IN) as usize % Fault::CRASHES.len()];
            let server = (0..remote).min_by_key(|n| servers[*n].may_crash).expect("there is one");
            let not_before = now.max(servers[server].may_crash);
            servers[server].may_crash = not_before + BETWEEN_CRASHES;
            *company = (server, COMPANY);
            return Choice { server, fault: Some(fault), not_before };
        }
        let any = chance.below(plan.servers as u64) as usize;
        let awake =
            (0..plan.servers).map(|n| (any + n) % plan.servers).find(|n| servers[*n].rests_until <= now);
        let server = match company {
            (server, left @ 1..) => {
                *left -= 1;
                *server
            }
            _ => awake.unwrap_or(any),
        };
        let possible = |fault: &Fault| server < remote || fault.is_possible_over_http();
        let fault = number.and_then(|number| {
            let place = number as usize % Fault::ANSWERS.len();
            Fault::ANSWERS.into_iter().cycle().skip(place).find(possible)
        });
        Choice { server, fault, not_before: now }
    }

    /// A call has failed. If that was not the answer's fault, the server has a rest.
    fn failed(&self, call: &Call) {
        if call.fault.is_none_or(|fault| fault.exit_status().is_some()) {
            self.0.lock().expect("no panic").servers[call.server].rests_until = Instant::now() + REST;
        }
    }
}

impl Plan {
    /// When a client that has made so many calls is to go on. It is not held up for less than [`BURST`], so that it has
    /// many calls in flight then.
    fn next_call(&self, began: Instant, kind: usize, number: u64) -> Instant {
        let due = began + self.pace[kind].mul_f64(number as f64);
        if due > Instant::now() + BURST { due } else { began }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// A call of this tool, and its parameters.
fn call(client: &str, number: u64, tool: String, choice: &Choice, chance: &mut Chance) -> (Call, Value) {
    let Choice { server, fault, .. } = *choice;
    let mark = format!("mark-{client}-{number}.");
    let steps = if chance.once_in(4) { 1 + chance.below(3) as u32 } else { 0 };
    let arguments = json!({"mark": mark, "fault": fault.map(Fault::name), "n": steps});
    let mut params = match chance.once_in(2) {
        true => json!({"name": format!("box__u{server}__{tool}"), "arguments": arguments}),
        false => {
            let tool = json!({"toolbox": "box", "server": format!("u{server}"), "tool": tool});
            json!({"name": "use_tool", "arguments": {"tool": tool, "arguments": arguments}})
        }
    };
    let token = if chance.once_in(2) { json!(mark) } else { json!(number) };
    if steps > 0 {
        params["_meta"] = json!({"progressToken": token});
    }
    let token = token.to_string();
    (Call { mark, server, tool, fault, steps, token, modern: false }, params)
}

/// Whether a client cancels this call, and after how long; one that has others under way lets some hang.
fn cancels(fault: Option<Fault>, has_others: bool, chance: &mut Chance) -> Option<Duration> {
    let cancels = match fault {
        Some(Fault::Hang) => !(has_others && chance.once_in(4)),
        Some(Fault::Late) => true,
        // Its error would be taken for that of the next call.
        Some(Fault::ErrorWithoutId) => false,
        _ => chance.once_in(500),
    };
    cancels.then(|| Duration::from_millis(chance.below(30)))
}

/// One client over stdio until the plan is fulfilled.
pub(crate) fn over_stdio(plan: &Plan, gateway: &mut Gateway, journals: &[PathBuf], mut chance: Chance) {
    let servers = Servers::new(plan.servers);
    let ledger = Ledger::new(&plan.totals, journals, tools());
    let mut stdin = gateway.child.stdin.take().expect("piped");
    let mut stdout = BufReader::new(gateway.child.stdout.take().expect("piped"));
    open_over_stdio(plan, &mut stdin, &mut stdout);
    let name = gateway.name.clone();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut saboteur = Saboteur::new(plan.sabotage[0], false);
            let mut line = String::new();
            while stdout.read_line(&mut line).is_ok_and(|read| read > 0) {
                let message = std::mem::take(&mut line);
                for message in saboteur.pass(message, |id| ledger.label(id)) {
                    ledger.take(message.as_bytes()).iter().for_each(|call| servers.failed(call));
                }
            }
            ledger.ended();
            stdout
        });
        let began = Instant::now();
        let mut canceller =
            Canceller { ledger: &ledger, stdin: &mut stdin, due: BinaryHeap::new(), fences: 0 };
        for number in (0..plan.calls[0]).take_while(|_| !plan.is_over()) {
            canceller.wait_until(plan.next_call(began, 0, number));
            let Some(tool) = canceller.tool() else { break };
            let choice = servers.choose(plan, &mut chance);
            canceller.wait_until(choice.not_before);
            let (call, params) = call(&name, number, tool, &choice, &mut chance);
            // The same id as a number and as a text are two ids.
            let id = if number % 2 == 0 { format!("{}", number / 2) } else { format!("\"{}\"", number / 2) };
            if let Some(after) = cancels(call.fault, true, &mut chance) {
                canceller.due.push(Reverse((Instant::now() + after, id.clone())));
            }
            ledger.sent(&id, call);
            let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
            send(canceller.stdin, &message);
        }
        canceller.wait_until(Instant::now() + REST);
        ledger.settle(plan.lost_after);
        drop(stdin);
        drop(reader.join());
    });
}

/// Cancels calls of a client over stdio when they are due, whatever it waits for.
struct Canceller<'a, W> {
    ledger: &'a Ledger<'a>,
    stdin: &'a mut W,
    due: BinaryHeap<Reverse<(Instant, String)>>,
    fences: u64,
}

impl<W: Write> Canceller<'_, W> {
    /// Waits for a tool that no open call uses. `None`: all calls hang.
    fn tool(&mut self) -> Option<String> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let next = self.cancel_due();
            if let Some(tool) = self.ledger.tool(next.unwrap_or(end).min(end)) {
                return Some(tool);
            }
        }
        None
    }

    fn wait_until(&mut self, end: Instant) {
        while Instant::now() < end {
            let next = self.cancel_due();
            std::thread::sleep(next.unwrap_or(end).min(end).saturating_duration_since(Instant::now()));
        }
    }

    /// Cancels what is due and says when the next one is.
    fn cancel_due(&mut self) -> Option<Instant> {
        loop {
            let Reverse((due, _)) = self.due.peek()?;
            if *due > Instant::now() {
                return Some(*due);
            }
            let Reverse((_, id)) = self.due.pop()?;
            self.fences += 1;
            if self.ledger.cancel(&id, self.fences) {
                let params = format!(r#"{{"requestId":{id}}}"#);
                let method = "notifications/cancelled";
                send(self.stdin, &format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#));
                let fence = oracle::fence(self.fences);
                send(self.stdin, &format!(r#"{{"jsonrpc":"2.0","id":{fence},"method":"ping"}}"#));
            }
        }
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
        if connected(&answer) == Some(plan.servers as u64) {
            return;
        }
        assert!(Instant::now() < end, "not every server comes up: {answer:.1000}");
        std::thread::sleep(REST);
    }
}

/// Clients over HTTP, one thread each until the plan is fulfilled; every other one is modern.
pub(crate) fn over_http(
    plan: &Plan,
    gateway: &Gateway,
    journals: &[PathBuf],
    clients: usize,
    chance: &Chance,
) {
    let address = gateway.address.as_deref().expect("it listens");
    let servers = Servers::new(plan.servers);
    std::thread::scope(|scope| {
        for (number, tool) in tools().into_iter().enumerate().take(clients) {
            let (servers, mut chance) = (&servers, Chance(chance.0 ^ (number as u64) << 40));
            scope.spawn(move || {
                let name = format!("http{number}");
                let ledger = Ledger::new(&plan.totals, journals, vec![tool.clone()]);
                let mut web = Web::new(address, number % 2 == 1);
                let mut saboteur = Saboteur::new(plan.sabotage[1], true);
                web.open(plan);
                let began = Instant::now();
                for number in (0..plan.calls[1]).take_while(|_| !plan.is_over()) {
                    let wait = |until: Instant| {
                        std::thread::sleep(until.saturating_duration_since(Instant::now()));
                    };
                    wait(plan.next_call(began, 1, number));
                    let choice = servers.choose(plan, &mut chance);
                    wait(choice.not_before);
                    let (call, params) = call(&name, number, tool.clone(), &choice, &mut chance);
                    let cancels = cancels(call.fault, false, &mut chance);
                    let id = number.to_string();
                    ledger.sent(&id, Call { modern: web.modern, ..call });
                    for message in web.call(&ledger, &id, params, cancels) {
                        for message in saboteur.pass(message, |id| ledger.label(id)) {
                            ledger.take(message.as_bytes()).iter().for_each(|call| servers.failed(call));
                        }
                    }
                    ledger.over(&id);
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

    /// Makes one call, gives it up after a while if told so, and returns what came.
    fn call(
        &mut self,
        ledger: &Ledger<'_>,
        id: &str,
        params: Value,
        cancels: Option<Duration>,
    ) -> Vec<String> {
        let name = params["name"].as_str().expect("a name").to_owned();
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        let message = self.dressed(&message);
        let patience = cancels.map(|after| after + Duration::from_millis(5));
        let response = match self.exchange(&message, "tools/call", &name, patience) {
            Err(()) if cancels.is_some() => {
                ledger.cancel(id, 0);
                match self.modern {
                    // A modern client cancels by hanging up.
                    true => Err(()),
                    false => self.cancel(id),
                }
            }
            response => response,
        };
        match response {
            Ok(response) => response.messages,
            Err(()) => {
                self.connection = None;
                Vec::new()
            }
        }
    }

    /// Cancels the call that this connection waits for, by another one, and waits for its end.
    fn cancel(&mut self, id: &str) -> Result<Response, ()> {
        let waiting = self.connection.take().ok_or(())?;
        let method = "notifications/cancelled";
        let message = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"requestId":{id}}}}}"#);
        self.exchange(&message, method, "", None)?;
        self.connection = Some(waiting);
        self.read(Some(PATIENCE))
    }

    /// With what every modern request says of itself.
    fn dressed(&self, message: &str) -> String {
        if !self.modern {
            return message.to_owned();
        }
        let mut message: Value = serde_json::from_str(message).expect("JSON of ours");
        let meta = &mut message["params"]["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "chaos", "version": "1"});
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
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
    next(connection)?;
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
    Ok(Response { session, messages })
}
