//! The driver of the client role: it starts the gateway with the suite's server as its only upstream, and uses
//! over stdio what the gateway offers, as a client of the era that the suite asks for.

#![allow(clippy::disallowed_methods, reason = "it starts the gateway")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Map, Value, json};

use crate::Failure;

/// The variable that names the executable of the gateway.
const GATEWAY: &str = "CONFORMANCE_GATEWAY";
/// Logins for one call.
const MOST_LOGINS: usize = 5;
/// The document that the suite has its clients name themselves by.
const CLIENT_METADATA: &str = "https://conformance-test.local/client-metadata.json";
/// What this client can be asked.
const CAPABILITIES: &str = r#"{"elicitation": {"form": {}}, "sampling": {}, "roots": {}}"#;

/// Lists everything and uses all of it once; a tool that fails is the suite's to judge, a gateway that does is not.
pub(crate) fn drive(url: &str) -> Result<(), Failure> {
    let place = std::env::temp_dir().join(format!("conformance-{}", std::process::id()));
    std::fs::create_dir_all(&place)?;
    let done = drive_in(&place, url);
    std::fs::remove_dir_all(&place)?;
    done
}

fn drive_in(place: &Path, url: &str) -> Result<(), Failure> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let version = variable("MCP_CONFORMANCE_PROTOCOL_VERSION");
    let context: Value = serde_json::from_str(&variable("MCP_CONFORMANCE_CONTEXT")).unwrap_or_default();
    let mut oauth = json!({"clientMetadataUrl": CLIENT_METADATA});
    for (ours, theirs) in [("clientId", "client_id"), ("clientSecret", "client_secret")] {
        if context[theirs].is_string() {
            oauth[ours] = context[theirs].clone();
        }
    }
    let servers = json!({"server": {"url": url, "oauth": oauth}});
    let config = json!({"toolMode": "proxy", "toolboxes": {"suite": {"mcpServers": servers}}});
    std::fs::write(place.join("workbench-config.json"), config.to_string())?;
    let mut gateway = Gateway::start(place, version)?;
    let opened = gateway.call("open_toolbox", json!({"toolbox_name": "suite"}))?["structuredContent"].take();
    let list = |key: &str| opened[key].as_array().cloned();
    let tools = list("tools").unwrap_or_default();
    let calls = match context["toolCalls"].as_array() {
        Some(calls) => calls.clone(),
        None => tools
            .iter()
            .map(|tool| json!({"name": tool["name"], "arguments": arguments(tool, &tools)}))
            .collect(),
    };
    if calls.is_empty() {
        eprintln!("the gateway has no tools of the server");
    }
    for call in calls {
        let tool = json!({"toolbox": "suite", "server": "server", "tool": call["name"]});
        gateway.call("use_tool", json!({"tool": tool, "arguments": call["arguments"]}))?;
    }
    // Modern clients are told of these when the toolbox is opened.
    let resources = list("resources").map_or_else(|| gateway.list("resources/list", "resources"), Ok)?;
    for resource in resources {
        gateway.request("resources/read", json!({"uri": resource["uri"]}))?;
    }
    let prompts = list("prompts").map_or_else(|| gateway.list("prompts/list", "prompts"), Ok)?;
    for prompt in prompts {
        gateway.request("prompts/get", json!({"name": prompt["name"]}))?;
    }
    gateway.end()
}

/// Arguments that fit what a tool requires; one that wants a schema gets that of the tool with the newest, as it came.
fn arguments(tool: &Value, tools: &[Value]) -> Value {
    let schema = &tool["inputSchema"];
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let value = |name: &str| match schema["properties"][name]["type"].as_str() {
        Some("number" | "integer") => json!(1),
        Some("boolean") => json!(true),
        Some("object") => {
            let newest = tools.iter().find(|tool| tool["name"] == "json_schema_2020_12_tool");
            newest.map_or(json!({}), |tool| tool["inputSchema"].clone())
        }
        _ => json!("test"),
    };
    required
        .iter()
        .filter_map(Value::as_str)
        .map(|name| (name.to_owned(), value(name)))
        .collect::<Map<_, _>>()
        .into()
}

/// The gateway behind pipes, and where we are in the talk with it.
struct Gateway {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    version: String,
    last: u64,
}

impl Gateway {
    fn start(place: &Path, version: String) -> Result<Self, Failure> {
        let program = std::env::var(GATEWAY).map_err(|_| format!("{GATEWAY} must name the gateway"))?;
        let mut child = Command::new(program)
            .current_dir(place)
            .env("XDG_STATE_HOME", place)
            .env("XDG_CACHE_HOME", place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().expect("it is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut gateway = Self { child, stdin, stdout, version, last: 0 };
        if gateway.is_modern() {
            gateway.request("server/discover", json!({}))?;
        } else {
            let params = json!({
                "protocolVersion": gateway.version,
                "capabilities": capabilities(),
                "clientInfo": {"name": "conformance", "version": "0.0.0"},
            });
            gateway.request("initialize", params)?;
            gateway.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        }
        Ok(gateway)
    }

    fn is_modern(&self) -> bool {
        self.version.as_str() >= "2026"
    }

    /// A whole list; one that the gateway does not have is empty.
    fn list(&mut self, method: &str, key: &str) -> Result<Vec<Value>, Failure> {
        let mut answer = self.request(method, json!({}))?;
        Ok(answer["result"][key].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Calls a tool and returns its result. Where a login is what is missing, goes through it and calls again, as a person
    /// and a model would.
    fn call(&mut self, name: &str, arguments: Value) -> Result<Value, Failure> {
        for _ in 0..MOST_LOGINS {
            let params = json!({"name": name, "arguments": arguments});
            let result = self.request("tools/call", params)?["result"].take();
            match login(&result) {
                Some(url) => browse(&url)?,
                None => return Ok(result),
            }
        }
        Err(format!("{name} wants one login after the other").into())
    }

    /// Sends a request and answers what it is asked until it has the response; asked by the result, it tries again.
    fn request(&mut self, method: &str, mut params: Value) -> Result<Value, Failure> {
        loop {
            let response = self.request_once(method, &params)?;
            let result = &response["result"];
            if result["resultType"] != "input_required" {
                return Ok(response);
            }
            let asked = result["inputRequests"].as_object().cloned().unwrap_or_default();
            let answers: Map<String, Value> =
                asked.into_iter().map(|(key, question)| (key, answer(&question))).collect();
            params["inputResponses"] = answers.into();
            if let Some(params) = params.as_object_mut() {
                // A state that the server did not give this time is not that of this round.
                params.remove("requestState");
                params.extend(
                    result.get("requestState").map(|state| ("requestState".to_owned(), state.clone())),
                );
            }
        }
    }

    fn request_once(&mut self, method: &str, params: &Value) -> Result<Value, Failure> {
        self.last += 1;
        let id = self.last;
        let mut params = params.clone();
        if self.is_modern() {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": self.version,
                "io.modelcontextprotocol/clientCapabilities": capabilities(),
                "io.modelcontextprotocol/clientInfo": {"name": "conformance", "version": "0.0.0"},
            });
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line)? == 0 {
                return Err(format!("the gateway ended before it answered {method}").into());
            }
            let message: Value = serde_json::from_str(&line)?;
            if message.get("method").is_none() && message["id"] == id {
                eprintln!("{method}: {}", line.trim_end());
                return Ok(message);
            }
            if message.get("method").is_some() && message.get("id").is_some() {
                self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": answer(&message)}))?;
            }
        }
    }

    fn send(&mut self, message: &Value) -> Result<(), Failure> {
        Ok(writeln!(self.stdin, "{message}")?)
    }

    /// Ends it as a client does that goes away.
    fn end(mut self) -> Result<(), Failure> {
        drop(self.stdin);
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the gateway ended with {status}").into()) }
    }
}

/// Where a result that failed wants somebody to log in.
fn login(result: &Value) -> Option<String> {
    let text = result["content"][0]["text"].as_str().filter(|_| result["isError"] == true)?;
    let url =
        text.split_whitespace().find(|word| word.starts_with("http") && word.contains("code_challenge="))?;
    Some(url.to_owned())
}

/// Goes where a browser would; the page that it ends on must be a good one.
fn browse(url: &str) -> Result<(), Failure> {
    let mut url = url.to_owned();
    loop {
        let (host, path) =
            url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).ok_or("no URL")?;
        let mut stream = TcpStream::connect(host)?;
        write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        eprintln!("browser: {}", page.lines().next().unwrap_or_default());
        let location = page
            .lines()
            .find_map(|line| line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("location")));
        match location {
            Some((_, next)) => url = next.to_owned(),
            None if page.starts_with("HTTP/1.1 200") => return Ok(()),
            None => return Err(page.into()),
        }
    }
}

fn capabilities() -> Value {
    serde_json::from_str(CAPABILITIES).expect("it is JSON")
}

/// The answer to a question: the defaults of a form, a word, no roots.
fn answer(question: &Value) -> Value {
    match question["method"].as_str() {
        Some("elicitation/create") => {
            let fields = question["params"]["requestedSchema"]["properties"].as_object().cloned();
            let content: Map<String, Value> = fields
                .unwrap_or_default()
                .into_iter()
                .filter_map(|(name, field)| Some((name, field.get("default")?.clone())))
                .collect();
            json!({"action": "accept", "content": content})
        }
        Some("sampling/createMessage") => json!({
            "role": "assistant", "model": "none", "stopReason": "endTurn",
            "content": {"type": "text", "text": "Paris"},
        }),
        Some("roots/list") => json!({"roots": []}),
        _ => json!({}),
    }
}
