//! The server: rmcp's, so that what the gateway relays was not written by the gateway's authors.

#![allow(deprecated, reason = "sampling, roots and logging are alive in both eras")]

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, CompleteRequestParams,
    CompleteResult, CreateMessageRequestParams, ElicitRequestParams, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, Implementation, InputRequiredResult, InputResponses,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, RequestStateCodec, SamplingMessage,
    ServerCapabilities, ServerInfo, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Failure, offers};

type Context = RequestContext<RoleServer>;

/// Serves on a free port until it is killed, or on stdin until that ends; `legacy` knows `initialize` only.
pub(crate) async fn serve(legacy: bool, stdio: bool) -> Result<(), Failure> {
    let server = Server {
        legacy,
        listeners: Arc::default(),
        next: Arc::default(),
        has_more_tools: Arc::default(),
        has_more_prompts: Arc::default(),
        states: RequestStateCodec::new([7_u8; 32]),
    };
    if stdio {
        server.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let service = service.clone();
        let answer = service_fn(move |request| {
            let service = service.clone();
            async move { Ok::<_, Infallible>(service.handle(request).await) }
        });
        let connection =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
        // Whoever goes away has ended the connection, which is no fault of ours.
        tokio::spawn(async move { drop(connection.await) });
    }
}

#[derive(Clone)]
struct Server {
    legacy: bool,
    /// Who listens for changes.
    listeners: Arc<Mutex<HashMap<u64, SubscriptionSink>>>,
    next: Arc<AtomicU64>,
    /// Whether the lists have their last entry, which comes and goes.
    has_more_tools: Arc<AtomicBool>,
    has_more_prompts: Arc<AtomicBool>,
    states: RequestStateCodec,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerInfo {
        let capabilities = json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": true, "listChanged": true},
            "completions": {},
            "logging": {},
        });
        ServerInfo::new(typed::<ServerCapabilities>(capabilities))
            .with_server_info(Implementation::new("conformance-upstream", "0.0.0"))
            .with_instructions("For the conformance suite")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        let known = ProtocolVersion::KNOWN_VERSIONS;
        if self.legacy {
            Cow::Owned(known.iter().filter(|version| version.as_str() < "2026").cloned().collect())
        } else {
            Cow::Borrowed(known)
        }
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(result(offers::tools(self.has_more_tools.load(Ordering::Relaxed))))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == "test_custom_header").then(|| typed(offers::custom_header_tool()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        if let Some(constant) = offers::constant(name) {
            return Ok(result::<CallToolResult>(constant).into());
        }
        if let Some(what) = name.strip_prefix("test_input_required_result_") {
            return self.ask(what, &request, &context);
        }
        let argument = |name: &str| {
            let value = request.arguments.as_ref().and_then(|arguments| arguments.get(name)?.as_str());
            value.unwrap_or_default().to_owned()
        };
        match name {
            "test_tool_with_logging" => {
                for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                    log(&context, LoggingLevel::Info, text).await;
                    pause().await;
                }
                done("Logged")
            }
            "test_logging_tool" => {
                if let Some(level) = context.meta.log_level() {
                    log(&context, level, "This level was asked for").await;
                }
                done("Logged where asked")
            }
            "test_tool_with_progress" => {
                let token = context.meta.get_progress_token();
                for progress in [0.0, 50.0, 100.0] {
                    if let Some(token) = &token {
                        let message = ProgressNotificationParam::new(token.clone(), progress);
                        // The answer tells the suite what was lost.
                        drop(context.peer.notify_progress(message.with_total(100.0)).await);
                    }
                    pause().await;
                }
                done("Progressed")
            }
            "test_sampling" => {
                let messages = vec![SamplingMessage::user_text(argument("prompt"))];
                let answer =
                    context.peer.create_message(CreateMessageRequestParams::new(messages, 100)).await;
                report("LLM response", answer)
            }
            "test_elicitation" | "test_elicitation_sep1034_defaults" | "test_elicitation_sep1330_enums" => {
                let question = json!({
                    "mode": "form", "message": argument("message"), "requestedSchema": offers::form(name),
                });
                report(
                    "User response",
                    context.peer.create_elicitation(typed::<ElicitRequestParams>(question)).await,
                )
            }
            "test_reconnection" => {
                pause().await;
                done("Still here")
            }
            "test_custom_header" => done(&argument("value")),
            "test_trigger_tool_change" | "test_trigger_prompt_change" => {
                let changed = match name {
                    "test_trigger_tool_change" => &self.has_more_tools,
                    _ => &self.has_more_prompts,
                };
                changed.fetch_not(Ordering::Relaxed);
                if self.legacy && name == "test_trigger_tool_change" {
                    drop(context.peer.notify_tool_list_changed().await);
                }
                let listeners: Vec<SubscriptionSink> = self.listeners.lock().values().cloned().collect();
                for listener in listeners {
                    // Who does not listen for it, or is gone, needs no news.
                    drop(match name {
                        "test_trigger_tool_change" => listener.notify_tool_list_changed().await,
                        _ => listener.notify_prompt_list_changed().await,
                    });
                }
                done("Announced")
            }
            "test_missing_capability" => {
                if capabilities(&context).sampling.is_some() {
                    return done("The client samples");
                }
                let needed = ClientCapabilities::builder().enable_sampling().build();
                Err(ErrorData::missing_required_client_capability(needed))
            }
            "test_streaming_elicitation" => Ok(asked(json!({"value": elicitation("value")}), None).into()),
            _ => Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None)),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(result(offers::resources()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(result(offers::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let found = offers::resource(uri)
            .ok_or_else(|| ErrorData::resource_not_found("Resource not found", Some(json!({"uri": uri}))))?;
        Ok(result::<ReadResourceResult>(found).into())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.listeners.lock().insert(key, context.sink().clone());
        context.cancelled().await;
        self.listeners.lock().remove(&key);
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(result(offers::prompts(self.has_more_prompts.load(Ordering::Relaxed))))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == "test_input_required_result_prompt" {
            let Some(answer) = answer(request.input_responses.as_ref(), "user_context") else {
                return Ok(asked(json!({"user_context": elicitation("context")}), None).into());
            };
            let content = json!({"type": "text", "text": format!("About: {}", answer["content"]["context"])});
            return Ok(result::<GetPromptResult>(
                json!({"messages": [{"role": "user", "content": content}]}),
            )
            .into());
        }
        let found = offers::prompt(&request.name, &json!(request.arguments))
            .ok_or_else(|| ErrorData::invalid_params(format!("Unknown prompt: {}", request.name), None))?;
        Ok(result::<GetPromptResult>(found).into())
    }

    async fn complete(&self, _: CompleteRequestParams, _: Context) -> Result<CompleteResult, ErrorData> {
        Ok(result(json!({"completion": {"values": ["paris", "park"], "total": 2, "hasMore": false}})))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }
}

impl Server {
    /// The tools that ask by an input-required result; a call without usable answers is asked again.
    fn ask(
        &self,
        what: &str,
        request: &CallToolRequestParams,
        context: &Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let answers = request.input_responses.as_ref();
        let all = |keys: &[&str]| keys.iter().all(|key| answer(answers, key).is_some());
        let state: Option<Value> = match &request.request_state {
            Some(sealed) => Some(self.states.open_json(sealed).map_err(|_| {
                ErrorData::invalid_params("The request state is not the one that was given out", None)
            })?),
            None => None,
        };
        let (name, sampling, roots) = (
            ("user_name", elicitation("name")),
            ("greeting", sampling("Generate a greeting")),
            ("client_roots", json!({"method": "roots/list"})),
        );
        let asked = match what {
            "elicitation" => match answer(answers, name.0) {
                Some(answer) => return done(&format!("Hello, {}!", answer["content"]["name"])),
                None => asked(json!({name.0: name.1}), None),
            },
            "sampling" if all(&["capital_question"]) => return done("The client sampled"),
            "sampling" => asked(json!({"capital_question": sampling_of_capital()}), None),
            "list_roots" if all(&[roots.0]) => return done("The client has roots"),
            "list_roots" => asked(json!({roots.0: roots.1}), None),
            "request_state" | "tampered_state" if state.is_some() => return done("Confirmed: state-ok"),
            "request_state" | "tampered_state" => {
                asked(json!({"confirm": elicitation("ok")}), Some(self.seal(1)))
            }
            "multiple_inputs" if state.is_some() && all(&[name.0, sampling.0, roots.0]) => {
                return done("All inputs received");
            }
            "multiple_inputs" => {
                asked(json!({name.0: name.1, sampling.0: sampling.1, roots.0: roots.1}), Some(self.seal(1)))
            }
            "multi_round" => match state.and_then(|round| round.as_u64()) {
                None => asked(json!({"step1": elicitation("name")}), Some(self.seal(1))),
                Some(1) => asked(json!({"step2": elicitation("color")}), Some(self.seal(2))),
                Some(_) => return done("Both rounds are done"),
            },
            "capabilities" => {
                let can = capabilities(context);
                let wanted: serde_json::Map<String, Value> = [
                    (can.elicitation.is_some(), name),
                    (can.sampling.is_some(), sampling),
                    (can.roots.is_some(), roots),
                ]
                .into_iter()
                .filter_map(|(can, (key, question))| can.then(|| (key.to_owned(), question)))
                .collect();
                if answers.is_some() || wanted.is_empty() {
                    return done("Nothing more to ask");
                }
                asked(Value::Object(wanted), None)
            }
            _ => return Err(ErrorData::invalid_params(format!("Unknown tool: {}", request.name), None)),
        };
        Ok(asked.into())
    }

    fn seal(&self, round: u64) -> String {
        self.states.seal_json(&round).expect("a number is JSON")
    }
}

fn asked(questions: Value, state: Option<String>) -> InputRequiredResult {
    InputRequiredResult::new(Some(typed(questions)), state)
}

fn elicitation(field: &str) -> Value {
    let kind = if field == "ok" { "boolean" } else { "string" };
    let schema = json!({"type": "object", "properties": {field: {"type": kind}}, "required": [field]});
    json!({"method": "elicitation/create", "params": {
        "mode": "form", "message": format!("What is the {field}?"), "requestedSchema": schema,
    }})
}

fn sampling_of_capital() -> Value {
    sampling("What is the capital of France?")
}

fn sampling(prompt: &str) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}})
}

/// The client's answer to one question, if it is an object as every such answer is.
fn answer<'a>(answers: Option<&'a InputResponses>, key: &str) -> Option<&'a Value> {
    answers?.get(key).filter(|answer| answer.is_object())
}

fn capabilities(context: &Context) -> ClientCapabilities {
    context.meta.client_capabilities().unwrap_or_default()
}

fn done(text: &str) -> Result<CallToolResponse, ErrorData> {
    Ok(result::<CallToolResult>(json!({"content": [{"type": "text", "text": text}]})).into())
}

/// What the client answered to a question, or why it did not, as the result of the tool.
fn report<T: serde::Serialize, E: std::fmt::Display>(
    what: &str,
    answer: Result<T, E>,
) -> Result<CallToolResponse, ErrorData> {
    let (text, failed) = match answer {
        Ok(answer) => (format!("{what}: {}", json!(answer)), false),
        Err(error) => (format!("{what}: {error}"), true),
    };
    Ok(result::<CallToolResult>(json!({"content": [{"type": "text", "text": text}], "isError": failed}))
        .into())
}

async fn log(context: &Context, level: LoggingLevel, text: &str) {
    // The answer tells the suite what was lost.
    drop(context.peer.notify_logging_message(LoggingMessageNotificationParam::new(level, json!(text))).await);
}

/// The suite wants to see messages that are apart in time.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// rmcp's type of a result, complete, that is written down here as JSON.
fn result<T: DeserializeOwned>(mut value: Value) -> T {
    value["resultType"] = json!("complete");
    typed(value)
}

/// rmcp's type of what is written down here as JSON.
fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("it is written down here, and right")
}
