//! Streamable HTTP, both eras: a thread for each connection, an event stream where messages precede the answer.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::options::Break;
use crate::peer::Outgoing;
use crate::server::Server;

/// How often a waiting stream looks whether the client is still there.
const LOOK: Duration = Duration::from_millis(20);

/// Serves on this port of the loopback interface for ever; 0 takes a free one. The port is told on stdout.
pub(crate) fn serve(server: &Arc<Server>, port: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    let port = listener.local_addr().expect("it is bound").port();
    server.peer.write(format!("{port}\n").as_bytes());
    for stream in listener.incoming().flatten() {
        let server = Arc::clone(server);
        std::thread::spawn(move || drop(converse(&server, stream)));
    }
}

/// One request, headers in lower case.
struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: String,
}

fn converse(server: &Arc<Server>, stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read(&mut reader)? {
        match request.method.as_str() {
            _ if server.options.sse => old(server, &stream, &request)?,
            "POST" => post(server, &stream, request)?,
            "GET" => get(server, &stream, &request)?,
            _ => {
                server.peer.update(|heard| heard.session = None);
                status(&stream, "200 OK", "")?;
            }
        }
    }
    Ok(())
}

fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(ToOwned::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { method, path, headers, body: String::from_utf8_lossy(&body).into_owned() }))
}

fn post(server: &Arc<Server>, stream: &TcpStream, request: Request) -> std::io::Result<()> {
    #[derive(Deserialize, Default)]
    struct Head {
        id: Option<serde_json::Value>,
        method: Option<String>,
        params: Option<serde_json::Value>,
    }
    let head: Head = serde_json::from_str(&request.body).unwrap_or_default();
    let method = head.method.unwrap_or_default();
    let params = head.params.unwrap_or_default();
    let modern = params["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string();
    if method == "tools/call" {
        let tool = params["name"].as_str().unwrap_or_default().to_owned();
        server.peer.update(|heard| heard.headers.insert(tool, request.headers.clone()));
    }
    let mut more = String::new();
    if modern && server.options.era != crate::modern::Era::Legacy {
        let header = |name: &str| request.headers.get(name).map_or("", String::as_str);
        let name = ["name", "uri", "taskId"].iter().find_map(|key| params[key].as_str()).unwrap_or_default();
        let named = matches!(method.as_str(), "tools/call" | "prompts/get" | "resources/read")
            || method.starts_with("tasks/");
        let agrees = header("mcp-protocol-version") == "2026-07-28"
            && header("mcp-method") == method
            && (!named || header("mcp-name") == name);
        if head.id.is_some() && !agrees {
            let error = json!({"code": -32020, "message": "headers and body disagree"});
            let body = json!({"jsonrpc": "2.0", "id": head.id, "error": error}).to_string();
            return status(stream, "400 Bad Request", &body);
        }
    } else if method == "initialize" {
        let session = server.peer.update(|heard| {
            heard.sessions += 1;
            heard.session = Some(format!("session-{}", heard.sessions));
            heard.session.clone()
        });
        more = format!("Mcp-Session-Id: {}\r\n", session.unwrap_or_default());
    } else if !modern {
        let session = server.peer.update(|heard| heard.session.clone());
        match request.headers.get("mcp-session-id") {
            None => return status(stream, "400 Bad Request", ""),
            Some(id) if Some(id) != session.as_ref() => return status(stream, "404 Not Found", ""),
            Some(_) => {}
        }
    }
    if head.id.is_none() || method.is_empty() {
        server.hear(request.body.as_bytes(), None);
        return status(stream, "202 Accepted", "");
    }
    let (sender, receiver) = channel();
    let key = server.hear(request.body.as_bytes(), Some(sender));
    if let Some(broken) = server.options.broken {
        let id = key.unwrap_or_default();
        return answer_in_pieces(server, stream, broken, &format!("event-{id}"), receiver, &more);
    }
    let whole = answer(stream, &receiver, &more, server.options.stay_open)?;
    if let (false, Some(key)) = (whole, key) {
        if modern {
            server.peer.cancelled(&key, true);
        }
        return Err(std::io::ErrorKind::BrokenPipe.into());
    }
    Ok(())
}

/// Sends the first message, and cuts the stream if more is to come.
fn answer_in_pieces(
    server: &Arc<Server>,
    stream: &TcpStream,
    broken: Break,
    id: &str,
    receiver: Receiver<Outgoing>,
    more: &str,
) -> std::io::Result<()> {
    let Some(first) = next(stream, &receiver) else { return Err(std::io::ErrorKind::BrokenPipe.into()) };
    if first.last {
        return status_with(stream, "200 OK", more, &first.message);
    }
    begin(stream, more)?;
    if broken == Break::WithIds {
        server.peer.update(|heard| heard.cut.insert(id.to_owned(), receiver));
        event(stream, &format!("id: {id}\n"), &first.message)?;
    } else {
        event(stream, "", &first.message)?;
    }
    Err(std::io::ErrorKind::ConnectionReset.into())
}

/// The transport of 2024-11-05: all that is said comes on one stream, which names where to send to.
fn old(server: &Arc<Server>, stream: &TcpStream, request: &Request) -> std::io::Result<()> {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", _) => {
            let (sender, receiver) = channel();
            server.peer.update(|heard| heard.unrelated = Some(sender));
            begin(stream, "")?;
            event(stream, "event: endpoint\n", "/messages?session=1")?;
            while let Some(outgoing) = next(stream, &receiver) {
                event(stream, "event: message\n", &outgoing.message)?;
            }
            Ok(())
        }
        ("POST", "/messages?session=1") => {
            let sender = server.peer.update(|heard| heard.unrelated.clone());
            status(stream, "202 Accepted", "")?;
            server.hear(request.body.as_bytes(), sender);
            Ok(())
        }
        _ => status(stream, "405 Method Not Allowed", ""),
    }
}

/// The stream for messages that belong to no request, or the rest of one that was cut.
fn get(server: &Arc<Server>, stream: &TcpStream, request: &Request) -> std::io::Result<()> {
    let last = request.headers.get("last-event-id");
    if let Some(rest) = last.and_then(|id| server.peer.update(|heard| heard.cut.remove(id))) {
        begin(stream, "")?;
        return events(stream, &rest, None).map(drop);
    }
    if server.options.era == crate::modern::Era::Modern {
        return status(stream, "405 Method Not Allowed", "");
    }
    let (sender, receiver) = channel();
    server.peer.update(|heard| heard.unrelated = Some(sender));
    begin(stream, "")?;
    events(stream, &receiver, None).map(drop)
}

/// Sends what comes for one request. `false`: the client went away before the last message.
fn answer(
    stream: &TcpStream,
    receiver: &Receiver<Outgoing>,
    more: &str,
    stay_open: bool,
) -> std::io::Result<bool> {
    let Some(mut first) = next(stream, receiver) else { return Ok(false) };
    if first.last && !stay_open {
        status_with(stream, "200 OK", more, &first.message)?;
        return Ok(true);
    }
    begin(stream, more)?;
    if !stay_open {
        return events(stream, receiver, Some(first));
    }
    loop {
        event(stream, "", &first.message)?;
        if first.last {
            // Nothing further comes, and nothing ends it but the client.
            let (_silent, nothing) = channel();
            return Ok(next(stream, &nothing).is_some());
        }
        match next(stream, receiver) {
            Some(outgoing) => first = outgoing,
            None => return Ok(false),
        }
    }
}

fn events(
    stream: &TcpStream,
    receiver: &Receiver<Outgoing>,
    mut first: Option<Outgoing>,
) -> std::io::Result<bool> {
    while let Some(outgoing) = first.take().or_else(|| next(stream, receiver)) {
        event(stream, "", &outgoing.message)?;
        if outgoing.last {
            write(stream, "0\r\n\r\n")?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// The next message; `None` when the client is gone.
fn next(stream: &TcpStream, receiver: &Receiver<Outgoing>) -> Option<Outgoing> {
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(outgoing) => return Some(outgoing),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {
                stream.set_read_timeout(Some(Duration::from_millis(1))).ok()?;
                let gone = matches!(stream.peek(&mut [0]), Ok(0))
                    || stream.peek(&mut [0]).is_err_and(|error| {
                        !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
                    });
                stream.set_read_timeout(None).ok()?;
                if gone {
                    return None;
                }
            }
        }
    }
}

/// One event; `fields` are whole lines before its data.
fn event(stream: &TcpStream, fields: &str, data: &str) -> std::io::Result<()> {
    let event = format!("{fields}data: {data}\n\n");
    write(stream, &format!("{:x}\r\n{event}\r\n", event.len()))
}

fn begin(stream: &TcpStream, more: &str) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n";
    write(stream, &format!("{head}{more}\r\n"))
}

fn status(stream: &TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    status_with(stream, status, "", body)
}

/// As [`status`], with further headers, whole lines.
fn status_with(stream: &TcpStream, status: &str, more: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    write(
        stream,
        &format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}Content-Length: {length}\r\n\r\n{body}"
        ),
    )
}

fn write(mut stream: &TcpStream, text: &str) -> std::io::Result<()> {
    stream.write_all(text.as_bytes())
}
