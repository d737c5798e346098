//! Reads messages and answers them.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::catalog::Catalog;
use crate::modern::{self, Era};
use crate::options::{Options, Scripted};
use crate::peer::{Outgoing, Peer, work_for};
use crate::{behaviours, http, mark, tasks};

/// A message of any kind, its payloads unopened.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The running server.
pub(crate) struct Server {
    pub(crate) options: Options,
    pub(crate) peer: Peer,
    pub(crate) tools: Catalog,
    pub(crate) resources: Catalog,
    pub(crate) templates: Catalog,
    pub(crate) prompts: Catalog,
}

/// Serves until the end of stdin.
pub(crate) fn serve(mut options: Options) {
    let page = options.page;
    let take = |items: &mut Vec<_>| Catalog::new(std::mem::take(items), page);
    let server = Arc::new(Server {
        tools: take(&mut options.tools),
        resources: take(&mut options.resources),
        templates: take(&mut options.templates),
        prompts: take(&mut options.prompts),
        peer: Peer::new(options.result_as.take(), options.error_as.take()),
        options,
    });
    if let Some(port) = server.options.http {
        return http::serve(&server, port);
    }
    let mut stdin = std::io::stdin().lock();
    let mut line = Vec::new();
    while stdin.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        server.hear(&line, None);
        line.clear();
    }
    if server.options.ignore_eof {
        loop {
            std::thread::park();
        }
    }
}

impl Server {
    /// Takes one message; the answer to a request goes to `stream`, or to stdout. Returns the key of a request.
    pub(crate) fn hear(self: &Arc<Self>, line: &[u8], stream: Option<Sender<Outgoing>>) -> Option<String> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        let message: Message = match serde_json::from_str(text) {
            Ok(message) => message,
            Err(error) => {
                eprintln!("fake-upstream: not a message: {error}: {text}");
                return None;
            }
        };
        match (message.id, message.method) {
            (Some(id), Some(method)) => {
                if self.options.chaos.is_none() {
                    self.peer.update(|heard| heard.requests.push((method.clone(), text.to_owned())));
                }
                let modern = modern::is_modern(self.options.era, message.params);
                let key = self.peer.enter(id, &method, modern == Ok(true), stream);
                work_for(&key);
                match modern {
                    Ok(false) if self.options.era == Era::Modern => unreachable!("refused before"),
                    Ok(_) => self.request(&key, &method, message.params),
                    Err(error) => self.peer.error(&key, &error),
                }
                return Some(key.get().to_owned());
            }
            (None, Some(method)) => {
                self.notified(&method, message.params);
                self.peer.update(|heard| heard.notifications.push((method, text.to_owned())));
            }
            (Some(id), None) => {
                let answer = match (message.result, message.error) {
                    (Some(result), _) => format!(r#"{{"result":{result}}}"#),
                    (None, Some(error)) => format!(r#"{{"error":{error}}}"#),
                    (None, None) => "{}".to_owned(),
                };
                self.peer.answered(id, answer);
            }
            (None, None) => eprintln!("fake-upstream: not a message: {text}"),
        }
        None
    }

    fn notified(self: &Arc<Self>, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/cancelled" => {
                #[derive(Deserialize)]
                struct Cancelled {
                    #[serde(rename = "requestId")]
                    request_id: Box<RawValue>,
                }
                if let Some(Ok(cancelled)) = params.map(|p| serde_json::from_str::<Cancelled>(p.get())) {
                    self.peer.cancelled(cancelled.request_id.get(), false);
                }
            }
            "notifications/initialized" if self.options.exit_after_handshake => {
                std::process::exit(mark::EXIT_STATUS)
            }
            "notifications/initialized" => {
                if let Some(method) = &self.options.ask_after_initialized {
                    let answer = self.peer.ask(method, None);
                    let server = Arc::clone(self);
                    std::thread::spawn(move || {
                        if let Ok(answer) = answer.recv() {
                            server
                                .peer
                                .update(|heard| heard.notifications.push(("answer".to_owned(), answer)));
                        }
                    });
                }
            }
            _ => {}
        }
    }

    fn request(self: &Arc<Self>, id: &RawValue, method: &str, params: Option<&RawValue>) {
        match self.options.scripted.get(method) {
            Some(Scripted::Result(result)) => return self.peer.result(id, result.get()),
            Some(Scripted::Error(error)) => return self.peer.error(id, error.get()),
            Some(Scripted::Hang(None)) => return,
            Some(Scripted::Hang(Some(nth))) if self.times(method) == *nth => return,
            Some(Scripted::Hang(_)) | None => {}
        }
        let peer = &self.peer;
        let modern = peer.is_modern(id);
        match method {
            "server/discover" if modern => peer.result(
                id,
                &format!(
                    r#"{{"supportedVersions":["2026-07-28"],"capabilities":{}}}"#,
                    self.options
                        .capabilities
                        .as_ref()
                        .map_or_else(|| self.capabilities(true), |own| own.get().to_owned())
                ),
            ),
            "subscriptions/listen" if modern => peer.listen(id, &filter(params)),
            "initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
                if modern =>
            {
                peer.error(id, r#"{"code":-32601,"message":"Method not found"}"#);
            }
            "initialize" => peer.result(id, &self.initialize(params)),
            "ping" => peer.result(id, "{}"),
            "tools/list" => self.list(id, &self.tools, "tools", params),
            "resources/list" => self.list(id, &self.resources, "resources", params),
            "resources/templates/list" => self.list(id, &self.templates, "resourceTemplates", params),
            "prompts/list" => self.list(id, &self.prompts, "prompts", params),
            "tools/call" => behaviours::call(self, id, params),
            "resources/read" => {
                let uri = serde_json::to_string(&uri(params)).expect("a string");
                peer.result(id, &format!(r#"{{"contents":[{{"uri":{uri},"text":{}}}]}}"#, quoted(params)));
            }
            "prompts/get" => peer.result(
                id,
                &format!(
                    r#"{{"messages":[{{"role":"user","content":{{"type":"text","text":{}}}}}]}}"#,
                    quoted(params)
                ),
            ),
            "completion/complete" => {
                peer.result(id, &format!(r#"{{"completion":{{"values":[{}]}}}}"#, quoted(params)));
            }
            "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update" => {
                let (server, key) = (Arc::clone(self), id.to_owned());
                let (method, params) = (method.to_owned(), params.map(ToOwned::to_owned));
                // A result may be long in coming.
                std::thread::spawn(move || {
                    work_for(&key);
                    tasks::request(&server.peer, &key, &method, params.as_deref());
                });
            }
            "logging/setLevel" => {
                peer.update(|heard| heard.level = params.map(ToOwned::to_owned));
                peer.result(id, "{}");
            }
            "resources/subscribe" => {
                peer.update(|heard| heard.subscriptions.push(uri(params)));
                peer.result(id, "{}");
            }
            "resources/unsubscribe" => {
                let uri = uri(params);
                peer.update(|heard| heard.subscriptions.retain(|subscribed| *subscribed != uri));
                peer.result(id, "{}");
            }
            _ => peer.error(id, r#"{"code":-32601,"message":"Method not found"}"#),
        }
    }

    /// How many requests of this method have come.
    fn times(&self, method: &str) -> usize {
        self.peer.update(|heard| heard.requests.iter().filter(|(name, _)| name == method).count())
    }

    fn list(&self, id: &RawValue, catalog: &Catalog, key: &str, params: Option<&RawValue>) {
        match catalog.list(key, params) {
            Ok(page) => self.peer.result(id, &page),
            Err(()) => self.peer.error(id, r#"{"code":-32602,"message":"Invalid cursor"}"#),
        }
    }

    fn initialize(&self, params: Option<&RawValue>) -> String {
        #[derive(Deserialize)]
        struct Asked {
            #[serde(rename = "protocolVersion")]
            protocol_version: String,
        }
        self.peer.update(|heard| heard.initialize = params.map(ToOwned::to_owned));
        let asked = params.and_then(|params| serde_json::from_str::<Asked>(params.get()).ok());
        let version = self.options.protocol.clone().or(asked.map(|asked| asked.protocol_version));
        let version = version.unwrap_or_else(|| "2025-06-18".to_owned());
        let capabilities = match &self.options.capabilities {
            Some(capabilities) => capabilities.get().to_owned(),
            None => self.capabilities(false),
        };
        let instructions = match &self.options.instructions {
            Some(text) => format!(r#","instructions":{}"#, serde_json::to_string(text).expect("a string")),
            None => String::new(),
        };
        format!(
            r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{{"name":"fake-upstream","version":"1.0.0"}}{instructions}}}"#
        )
    }

    fn capabilities(&self, modern: bool) -> String {
        let mut capabilities = r#"{"tools":{"listChanged":true},"logging":{},"completions":{}"#.to_owned();
        if !self.resources.is_empty() || !self.templates.is_empty() {
            capabilities.push_str(r#","resources":{"subscribe":true,"listChanged":true}"#);
        }
        if !self.prompts.is_empty() {
            capabilities.push_str(r#","prompts":{"listChanged":true}"#);
        }
        if self.tools.has("job") {
            capabilities.push_str(match modern {
                true => r#","extensions":{"io.modelcontextprotocol/tasks":{}}"#,
                false => r#","tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}"#,
            });
        }
        capabilities + "}"
    }
}

/// The bytes of `params` as a JSON string.
pub(crate) fn quoted(params: Option<&RawValue>) -> String {
    serde_json::to_string(params.map_or("", RawValue::get)).expect("a string")
}

fn uri(params: Option<&RawValue>) -> String {
    #[derive(Deserialize)]
    struct Addressed {
        uri: String,
    }
    let addressed = params.and_then(|params| serde_json::from_str::<Addressed>(params.get()).ok());
    addressed.map(|addressed| addressed.uri).unwrap_or_default()
}

/// The filter of a subscription, as it came.
fn filter(params: Option<&RawValue>) -> String {
    #[derive(Deserialize)]
    struct Listen {
        notifications: Box<RawValue>,
    }
    let listen = params.and_then(|params| serde_json::from_str::<Listen>(params.get()).ok());
    listen.map_or_else(|| "{}".to_owned(), |listen| listen.notifications.get().to_owned())
}
