//! What the gateway is compared with: two limits that nothing can beat by much, and what one would write by default.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
};
use rmcp::service::{RequestContext, RoleClient, RoleServer, RunningService};
use rmcp::transport::TokioChildProcess;
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::roles::{Era, each_line};
use crate::{scene, system};

/// Copies bytes: one thread a direction.
pub(crate) fn bytes() {
    copy_between(upstream(Era::Legacy));
}

/// The same before the gateway.
pub(crate) fn before(file: &str) {
    copy_between(piped(system::own_session(&mut scene::gateway_at(Path::new(file), "dynamic"))));
}

fn copy_between((to, from): (ChildStdin, ChildStdout)) {
    let upward = std::thread::spawn(move || copy(std::io::stdin().lock(), to));
    copy(from, std::io::stdout().lock());
    let _ = upward.join();
}

/// By hand: `std::io::copy` would leave it to the kernel, which is a limit of another kind.
fn copy(mut from: impl Read, mut to: impl Write) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// A request with all that a gateway must read of it.
#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: Option<&'a str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Response<'a> {
    id: u64,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// The least that any gateway must do: reads a line, swaps id and name, writes it on. One thread a direction; lines
/// that were read together leave together.
pub(crate) fn envelope(era: Era) {
    let (mut to, from) = upstream(era);
    let waiting: Arc<Mutex<HashMap<u64, Box<RawValue>>>> = Arc::default();
    let upward = std::thread::spawn({
        let waiting = waiting.clone();
        move || {
            let (mut out, mut next) = (Vec::new(), 1);
            each_line(std::io::stdin().lock(), |line, more| {
                let request: Request<'_> = serde_json::from_slice(line).expect("a request");
                write!(out, "{{\"jsonrpc\":\"2.0\",").expect("memory");
                if let Some(id) = request.id {
                    waiting.lock().expect("no panic").insert(next, id.to_owned());
                    write!(out, "\"id\":{next},").expect("memory");
                    next += 1;
                }
                write!(out, "\"method\":\"{}\",\"params\":{{", request.method).expect("memory");
                if let Some(Params { name: Some(name), arguments: Some(arguments) }) = request.params {
                    let name = name.strip_prefix(scene::PREFIX).unwrap_or(name);
                    write!(out, "\"name\":\"{name}\",\"arguments\":").expect("memory");
                    out.extend_from_slice(arguments.get().as_bytes());
                }
                out.extend_from_slice(b"}}\n");
                flush(&mut out, more, &mut to)
            });
        }
    });
    let (mut out, mut stdout) = (Vec::new(), std::io::stdout().lock());
    each_line(from, |line, more| {
        let response: Response<'_> = serde_json::from_slice(line).expect("a response");
        let id = waiting.lock().expect("no panic").remove(&response.id).expect("we asked");
        write!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":").expect("memory");
        out.extend_from_slice(response.result.get().as_bytes());
        out.extend_from_slice(b"}\n");
        flush(&mut out, more, &mut stdout)
    });
    let _ = upward.join();
}

fn flush(out: &mut Vec<u8>, more: bool, to: &mut impl Write) -> bool {
    if more && out.len() < 1 << 20 {
        return true;
    }
    let written = to.write_all(out).and_then(|()| to.flush());
    out.clear();
    written.is_ok()
}

fn upstream(era: Era) -> (ChildStdin, ChildStdout) {
    piped(&mut scene::upstream_of(era, 1))
}

#[allow(clippy::zombie_processes, reason = "it ends with its input, and we with it")]
fn piped(command: &mut Command) -> (ChildStdin, ChildStdout) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the executable starts");
    (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"))
}

/// A relay on rmcp's typed API, over its fastest stdio.
pub(crate) fn rmcp() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let upstream = TokioChildProcess::new(tokio::process::Command::from(scene::upstream(1)));
        let upstream = ().serve(upstream.expect("this executable starts")).await.expect("a handshake");
        let served = Relay(upstream).serve(rmcp::transport::stdio_pipes()).await.expect("a handshake");
        let _ = served.waiting().await;
    });
}

struct Relay(RunningService<RoleClient, ()>);

impl ServerHandler for Relay {
    fn get_info(&self) -> rmcp::model::ServerConfig {
        rmcp::model::ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.list_tools(request).await.map_err(lost)
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(name) = request.name.strip_prefix(scene::PREFIX) {
            request.name = name.to_owned().into();
        }
        self.0.call_tool_once(request).await.map_err(lost)
    }
}

fn lost(error: rmcp::ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

/// Reads the configuration into a tree, answers one line, and ends with its input.
pub(crate) fn hello(file: &str) {
    let text = std::fs::read(file).expect("the file is there");
    let tree: serde_json::Value = serde_json::from_slice(&text).expect("plain JSON");
    let size = tree["toolboxes"].as_object().map_or(0, |toolboxes| toolboxes.len());
    each_line(std::io::stdin().lock(), |_, _| {
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"toolboxes\":{size}}}}}\n");
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(answer.as_bytes()).and_then(|()| stdout.flush()).is_ok()
    });
}
