//! The verb `call`.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::arguments::Given;
use super::catalog::Asking;
use super::{Run, Said};
use crate::catalog::Kind;
use crate::cli::advice::lost;
use crate::cli::failure::{Failure, FailureKind};
use crate::cli::login;
use crate::cli::screen::Screen;
use crate::core::start_error::{Cause, StartError};
use crate::gateway::shell::{Called, Shell};
use crate::protocol::message::code;

impl Run {
    pub(super) async fn call(
        &self,
        shell: &mut Shell,
        name: &str,
        given: &Given,
        asking: Asking,
    ) -> Result<Said, Failure> {
        let mut catalog = self.gather_for(shell, asking, name).await;
        if catalog.find(name, &[Kind::Tool]).is_err() && catalog.failed_before().next().is_some() {
            // The tool may be of a server that has failed, and the server of the tool is always asked.
            catalog = self.gather_for(shell, Asking::Failed, name).await;
        }
        let row = catalog.find(name, &[Kind::Tool])?;
        let (upstream, tool, address) = (catalog.server(row).clone(), row.key.clone(), catalog.address(row));
        let label = upstream.to_string();
        let up = || self.screen.while_waiting("starting", || shell.starting(), upstream.up());
        if let Err(error) = up().await {
            if !login::go_through(self.screen, upstream.login().map(|login| (label.clone(), login))).await {
                return Err(lost(&label, &label, &error));
            }
            up().await.map_err(|error| lost(&label, &label, &error))?;
        }
        // The server counts as it is now, whatever was remembered of it.
        let items = upstream.items();
        let item = items.of(Kind::Tool).iter().find(|item| *item.key == *tool);
        let Some(item) = item else {
            let message = format!("the server no longer offers `{address}`");
            return Err(Failure::usage(message, format!("`{} list tools` shows all", self.face.program())));
        };
        let definition: Value = serde_json::from_str(item.raw()).unwrap_or_default();
        let arguments = given.typed(definition.get("inputSchema").unwrap_or(&Value::Null))?;
        let screen = self.screen;
        let heard = AtomicBool::new(false);
        let called = loop {
            let calling = shell.call(&upstream, &tool, &arguments, |message| {
                heard.store(true, Ordering::Relaxed);
                hear(screen, message)
            });
            let called = self.screen.while_silent(&|| "calling".to_owned(), &heard, calling).await;
            self.screen.clear();
            // A call that was refused for want of a login was not executed.
            let login = upstream.login().filter(|_| !matches!(called, Called::Result(_)));
            if !login::go_through(self.screen, login.map(|login| (label.clone(), login))).await {
                break called;
            }
        };
        match called {
            Called::Lost(reason) => Err(lost(&address, &label, &StartError::new(cause(&reason), reason))),
            Called::Error(error) => Err(refused(&address, &label, &error)),
            Called::Result(raw) => self.result(&address, &tool, &raw),
        }
    }

    fn result(&self, address: &str, tool: &str, raw: &str) -> Result<Said, Failure> {
        let result: Value = serde_json::from_str(raw).unwrap_or_default();
        let failed = result["isError"] == Value::Bool(true);
        let status = if failed { FailureKind::Tool.status() } else { 0 };
        if self.output.json {
            return Ok(Said { text: format!("{raw}\n"), status });
        }
        let mut text = String::new();
        for block in result["content"].as_array().into_iter().flatten() {
            text.push_str(&self.screen.text(&shown(tool, block)?));
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        if text.is_empty() && !result["structuredContent"].is_null() {
            text = self.screen.text(&format!("{:#}\n", result["structuredContent"]));
        }
        if failed {
            let error = if self.output.colour { "\x1b[1;31merror\x1b[0m" } else { "error" };
            let _ = writeln!(io::stderr(), "{error}: {address} reported an error");
        }
        Ok(Said { text, status })
    }
}

/// Why a call was lost. By now only the words are left of an HTTP status.
fn cause(reason: &str) -> Cause {
    let says = |words: &[&str]| words.iter().any(|words| reason.contains(words));
    match () {
        () if says(&["it needs a login", "it needs the scope"]) => Cause::Person,
        () if says(&["HTTP 401", "HTTP 403"]) => Cause::Login,
        () => Cause::Other,
    }
}

/// The failure for a JSON-RPC error. An error that arose on the way to the server is not the tool's.
fn refused(address: &str, server: &str, error: &str) -> Failure {
    let error: Value = serde_json::from_str(error).unwrap_or_default();
    let message = error["message"].as_str().unwrap_or("the server answered with an error");
    if let Some(status) = error["data"]["httpStatus"].as_u64()
        && error["code"] == json!(code::UPSTREAM_LOST)
    {
        let cause = if error["data"]["login"] == true { Cause::Person } else { Cause::of_status(status) };
        return lost(address, server, &StartError::new(cause, message));
    }
    let code = error["code"].as_i64().map_or_else(String::new, |code| format!(" (code {code})"));
    Failure::new(
        FailureKind::Tool,
        format!("{address}: {message}{code}"),
        "the `show` verb prints what the tool takes",
    )
}

/// One block of content as text. Anything else is saved to a file, and the file is named.
fn shown(tool: &str, block: &Value) -> Result<String, Failure> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = &block["resource"];
    Ok(match block["type"].as_str() {
        Some("text") => text(&block["text"]),
        Some(kind @ ("image" | "audio")) => saved(kind, tool, &block["data"], &block["mimeType"])?,
        Some("resource") if resource["text"].is_string() => text(&resource["text"]),
        Some("resource") if resource["blob"].is_string() => {
            saved("resource", tool, &resource["blob"], &resource["mimeType"])?
        }
        Some("resource_link") => format!("{} {}", text(&block["name"]), text(&block["uri"])),
        _ => block.to_string(),
    })
}

/// Writes the data into a new file in the current directory and returns a line that names it.
fn saved(kind: &str, tool: &str, data: &Value, mime: &Value) -> Result<String, Failure> {
    let mime = mime.as_str().unwrap_or("application/octet-stream");
    let Ok(bytes) = STANDARD.decode(data.as_str().unwrap_or_default()) else {
        return Ok(format!("[{kind} {mime} that is not base64]"));
    };
    let stem: String =
        tool.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).take(60).collect();
    for number in 1..=10_000 {
        let name = format!("{stem}-{number}.{}", extension(mime));
        match std::fs::File::create_new(Path::new(&name)) {
            Ok(mut file) => {
                file.write_all(&bytes)?;
                return Ok(format!("[{kind} {mime}, {} bytes, saved as {name}]", bytes.len()));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let message = format!("the {kind} cannot be saved as {name}: {error}");
                return Err(Failure::failed(
                    message,
                    "change to a directory that you may write to, or use --json",
                ));
            }
        }
    }
    Err(Failure::failed(format!("there are too many files like {stem}-1 here"), "remove some"))
}

fn extension(mime: &str) -> String {
    let known = match mime {
        "image/jpeg" => "jpg",
        "image/svg+xml" => "svg",
        "audio/mpeg" => "mp3",
        "text/plain" => "txt",
        "application/octet-stream" => "bin",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let kind = mime.rsplit('/').next().unwrap_or("bin");
    let clean: String = kind.chars().take_while(char::is_ascii_alphanumeric).take(10).collect();
    if clean.is_empty() { "bin".to_owned() } else { clean }
}

/// Handles what a server says during a call; a question gets an answer.
async fn hear(screen: Screen, message: Vec<u8>) -> Option<String> {
    let message: Value = serde_json::from_slice(&message).ok()?;
    let params = &message["params"];
    match (message["method"].as_str()?, message.get("id")) {
        ("notifications/progress", None) => {
            let text = params["message"].as_str().unwrap_or_default();
            screen.progress(params["progress"].as_f64().unwrap_or(0.0), params["total"].as_f64(), text);
            None
        }
        ("elicitation/create", Some(id)) => {
            screen.clear();
            let params = params.clone();
            let answer = match screen.asks {
                true => tokio::task::spawn_blocking(move || ask(screen, &params)).await.ok(),
                false => None,
            };
            let answer = answer.unwrap_or_else(|| json!({"action": "decline"}));
            Some(json!({"jsonrpc": "2.0", "id": id, "result": answer}).to_string())
        }
        (method, Some(id)) => {
            let error =
                json!({"code": code::METHOD_NOT_FOUND, "message": format!("Method not found: {method}")});
            Some(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
        }
        (_, None) => None,
    }
}

/// Asks a person what a server wants to know. An empty line leaves a value out; the end of input cancels.
fn ask(screen: Screen, params: &Value) -> Value {
    let (mut input, mut err) = (io::stdin().lock(), io::stderr());
    let mut line = |prompt: &str| -> Option<String> {
        write!(err, "{prompt}").and_then(|()| err.flush()).ok()?;
        let mut line = String::new();
        match input.read_line(&mut line) {
            Ok(count) if count > 0 => Some(line.trim().to_owned()),
            _ => None,
        }
    };
    let show = Screen { terminal: true, ..screen };
    let message = show.text(params["message"].as_str().unwrap_or("The server has a question."));
    let mut question = format!("{message}\n");
    if let Some(url) = params["url"].as_str() {
        question.push_str(&format!("Open {} in a browser. ", show.text(url)));
    }
    match line(&format!("{question}Answer it? [y/N] ")).as_deref() {
        Some("y" | "Y" | "yes") => {}
        Some(_) => return json!({"action": "decline"}),
        None => return json!({"action": "cancel"}),
    }
    let schema = &params["requestedSchema"];
    let required =
        |key: &str| schema["required"].as_array().is_some_and(|keys| keys.iter().any(|own| own == key));
    let mut content = serde_json::Map::new();
    for (key, own) in schema["properties"].as_object().into_iter().flatten() {
        let options = options(own);
        let prompt = show.text(&prompt(key, own, &options));
        loop {
            let Some(answer) = line(&prompt) else { return json!({"action": "cancel"}) };
            if answer.is_empty() && required(key) && own["default"].is_null() {
                let _ = writeln!(io::stderr(), "the server needs it; Ctrl-D gives up");
                continue;
            }
            if answer.is_empty() {
                break;
            }
            // An answer that begins with @ is taken literally, never as the name of a file.
            let word = format!("{key}={}{answer}", if answer.starts_with('@') { "@" } else { "" });
            let whole = json!({"type": "object", "properties": {key: own}});
            let typed = Given::read(&[word], None, &mut io::empty()).and_then(|given| given.typed(&whole));
            match typed {
                Ok(text) => {
                    let value = serde_json::from_str::<Value>(&text).unwrap_or_default()[key].take();
                    if options.is_empty() || options.contains(&value) {
                        content.insert(key.clone(), value);
                        break;
                    }
                    let _ = writeln!(io::stderr(), "{}", show.text(&format!("choose {}", words(&options))));
                }
                Err(failure) => {
                    let _ = writeln!(io::stderr(), "{}", failure.message);
                }
            }
        }
        if !content.contains_key(key) && !own["default"].is_null() {
            content.insert(key.clone(), own["default"].clone());
        }
    }
    json!({"action": "accept", "content": content})
}

/// The only values that a property may have; empty if it may have any.
fn options(property: &Value) -> Vec<Value> {
    let named = property["oneOf"].as_array().map(|all| all.iter().map(|one| one["const"].clone()).collect());
    property["enum"].as_array().cloned().or(named).unwrap_or_default()
}

/// The prompt for a value, such as `colour (of the door; red or green) [red]: `.
fn prompt(key: &str, property: &Value, options: &[Value]) -> String {
    let about = property["description"].as_str().or(property["title"].as_str()).unwrap_or_default();
    let choice = words(options);
    let about: Vec<&str> = [about, &choice].into_iter().filter(|part| !part.is_empty()).collect();
    let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join("; ")) };
    let default = match &property["default"] {
        Value::Null => String::new(),
        default => format!(" [{}]", word(default)),
    };
    format!("{key}{about}{default}: ")
}

fn words(options: &[Value]) -> String {
    options.iter().map(word).collect::<Vec<_>>().join(" or ")
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
