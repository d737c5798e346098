//! Between the eras with peers that others wrote: rmcp's client in front of the gateway, and behind it our fake
//! upstream or rmcp's server. One list of scenarios for both eras and both transports on either side.

#![allow(deprecated, reason = "the legacy era is deprecated in rmcp")]
#![allow(clippy::disallowed_methods, reason = "tests start the programs they need")]

use std::process::Command;
use std::time::Instant;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientConfig, ClientRequest, ElicitRequestParams, ElicitResult,
    ElicitationAction, GetPromptRequestParams, Implementation, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ResourceUpdatedNotificationParam, ServerNotification, SubscribeRequestParams,
    SubscriptionFilter,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::client::{CAN_ALL, Era, Host, Over, Remote};
use crate::harness::{DEADLINE, Lab, Serving, command, conformance_path, server, toolman_path};

/// Who wrote the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    We,
    Rmcp,
}

/// What an upstream has for each scenario: a tool with its arguments, and what is to be seen of it.
struct Offer {
    text: (&'static str, Value, &'static str),
    progress: (&'static str, Value, usize),
    question: (&'static str, Value, &'static str),
    /// Adds a tool of this name.
    change: (&'static str, Value, &'static str),
    resource: &'static str,
    prompt: &'static str,
}

impl Offer {
    fn of(author: Author, era: Era) -> Self {
        match author {
            Author::We => Self {
                text: ("echo", json!({"word": "hello"}), "hello"),
                progress: ("progress", json!({"n": 3}), 3),
                question: (
                    "ask",
                    json!({"method": "elicitation/create", "params": QUESTION}),
                    r#""name":"Ann""#,
                ),
                change: (
                    "change",
                    json!({"add": [r#"{"name":"new","inputSchema":{"type":"object"}}"#]}),
                    "new",
                ),
                resource: "fake://resource/1",
                prompt: "prompt-1",
            },
            Author::Rmcp => Self {
                text: ("test_simple_text", json!({}), "simple text"),
                progress: ("test_tool_with_progress", json!({}), 3),
                question: match era {
                    Era::Legacy => ("test_elicitation", json!({"message": "Who?"}), r#""name":"Ann""#),
                    Era::Modern => ("test_input_required_result_elicitation", json!({}), "Ann"),
                },
                change: ("test_trigger_tool_change", json!({}), "test_more"),
                resource: "test://static-text",
                prompt: "test_simple_prompt",
            },
        }
    }
}

pub(crate) const QUESTION: &str =
    r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}"#;

/// What rmcp's client heard without having asked.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    Progress(f64),
    ToolsChanged,
    Updated(String),
}

/// rmcp's client: answers questions, and passes on what it hears.
pub(crate) struct Ears(pub(crate) Sender<Heard>);

impl ClientHandler for Ears {
    fn get_info(&self) -> ClientConfig {
        let capabilities = serde_json::from_str(CAN_ALL).expect("capabilities");
        ClientConfig::new(capabilities, Implementation::new("rmcp-client", "1"))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        assert!(matches!(request, ElicitRequestParams::FormElicitationParams { .. }));
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({"name": "Ann"})))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear(Heard::Progress(params.progress)).await;
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.hear(Heard::ToolsChanged).await;
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.hear(Heard::Updated(params.uri)).await;
    }
}

impl Ears {
    async fn hear(&self, heard: Heard) {
        self.0.send(heard).await.expect("the test listens");
    }
}

/// One cell: rmcp's client, the gateway, an upstream.
struct Cell {
    client: RunningService<RoleClient, Ears>,
    era: Era,
    heard: Receiver<Heard>,
    mouth: Sender<Heard>,
    offer: Offer,
    author: Author,
    _host: Option<Host>,
    _lab: Option<Lab>,
    _upstream: Upstream,
}

enum Upstream {
    Child,
    Fake(#[allow(dead_code, reason = "it runs until it is dropped")] Remote),
    Rmcp(#[allow(dead_code, reason = "it runs until it is dropped")] Serving),
}

impl Cell {
    async fn new(client: (Era, Over), author: Author, upstream: (Era, Over)) -> Self {
        let legacy = upstream.0 == Era::Legacy;
        let flags = format!(
            "--with all --resources 1 --prompts 1 --era {}",
            if legacy { "legacy" } else { "modern" }
        );
        let url = |url: &str| format!("[[servers]]\nnamespace = \"\"\nurl = \"{url}\"\n");
        let mut rmcp = Command::new(conformance_path());
        rmcp.arg("server").args(legacy.then_some("--legacy"));
        let (running, entry) = match (author, upstream.1) {
            (Author::We, Over::Stdio) => (Upstream::Child, server("", &flags, "")),
            (Author::We, Over::Http) => {
                let remote = Remote::start(&flags);
                let entry = url(&remote.url());
                (Upstream::Fake(remote), entry)
            }
            (Author::Rmcp, Over::Stdio) => {
                let flags = if legacy { "--stdio --legacy" } else { "--stdio" };
                let line = format!("'{}' server {flags}", conformance_path().display());
                (Upstream::Child, command("", &line, ""))
            }
            (Author::Rmcp, Over::Http) => {
                let serving = Serving::start(&mut rmcp);
                let entry = url(&serving.url);
                (Upstream::Rmcp(serving), entry)
            }
        };
        let config = format!("active_toolsets = [\"*\"]\nstartup_wait = 20\n{entry}");
        let (mouth, heard) = channel(100);
        let mode = beginning(client.0);
        let ears = Ears(mouth.clone());
        let (service, host, lab) = match client.1 {
            Over::Stdio => {
                let lab = Lab::new();
                lab.write("tools.toml", &lab.fill(&config));
                let transport =
                    TokioChildProcess::new(tokio::process::Command::from(lab.program(&toolman_path())));
                let transport = transport.expect("toolman starts");
                (within(ears.serve_with_lifecycle(transport, mode)).await, None, Some(lab))
            }
            Over::Http => {
                let host = Host::toolman(config);
                let url = format!("http://{}/mcp", host.address);
                let transport = StreamableHttpClientTransport::from_uri(url);
                (within(ears.serve_with_lifecycle(transport, mode)).await, Some(host), None)
            }
        };
        Self {
            client: service.expect("they understand each other"),
            era: client.0,
            heard,
            mouth,
            offer: Offer::of(author, upstream.0),
            author,
            _host: host,
            _lab: lab,
            _upstream: running,
        }
    }

    async fn run(mut self) {
        self.lists_and_calls().await;
        self.resources_and_prompts().await;
        self.progress().await;
        self.changes().await;
        if self.author == Author::We {
            self.cancel().await;
        }
        self.question().await;
        within(self.client.close()).await.expect("no panic");
        if let Some(lab) = &self._lab {
            lab.wait_until_gone(DEADLINE);
        }
    }

    async fn lists_and_calls(&self) {
        let tools = self.tools().await;
        assert_eq!(tools[0], "toolman_activate");
        assert_eq!(tools.contains(&"toolman_call".to_owned()), self.era == Era::Modern);
        let (tool, arguments, expected) = &self.offer.text;
        let text = self.call(tool, arguments).await;
        assert!(text.contains(expected), "{text}");
        let unknown = self.call_once("no_such_tool", &json!({})).await;
        assert_eq!(unknown["isError"], true, "{unknown}");
    }

    async fn resources_and_prompts(&self) {
        let resources = within(self.client.list_all_resources()).await.expect("a list");
        assert!(resources.iter().any(|resource| resource.uri == self.offer.resource), "{resources:?}");
        let read = self.client.read_resource(ReadResourceRequestParams::new(self.offer.resource));
        assert_eq!(within(read).await.expect("its contents").contents.len(), 1);
        let missing = self.client.read_resource(ReadResourceRequestParams::new("nowhere://at/all"));
        let code = match within(missing).await {
            Err(ServiceError::McpError(error)) => error.code.0,
            other => panic!("no error: {other:?}"),
        };
        assert_eq!(code, if self.era == Era::Modern { -32602 } else { -32002 });
        let prompts = within(self.client.list_all_prompts()).await.expect("a list");
        assert!(prompts.iter().any(|prompt| prompt.name == self.offer.prompt), "{prompts:?}");
        let prompt = self.client.get_prompt(GetPromptRequestParams::new(self.offer.prompt));
        assert_eq!(within(prompt).await.expect("a prompt").messages.len(), 1);
    }

    async fn progress(&mut self) {
        let (tool, arguments, times) = self.offer.progress.clone();
        self.call(tool, &arguments).await;
        let mut before = -1.0;
        for _ in 0..times {
            match within(self.heard.recv()).await {
                // rmcp hands them on in any order; that they are ours and come is what counts.
                Some(Heard::Progress(progress)) => before = progress.max(before),
                other => panic!("no progress: {other:?}"),
            }
        }
        assert!(before > 0.0);
    }

    /// A tool more, and for our fake a resource that is written to.
    async fn changes(&mut self) {
        let uri = self.offer.resource;
        match self.era {
            Era::Legacy => {
                within(self.client.subscribe(SubscribeRequestParams::new(uri))).await.expect("subscribed");
            }
            Era::Modern => {
                let filter = SubscriptionFilter::builder().tools_list_changed().resource_subscription(uri);
                let mut subscription = within(self.client.listen(filter.build())).await.expect("subscribed");
                let mouth = self.mouth.clone();
                tokio::spawn(async move {
                    while let Ok(Some(notification)) = subscription.next().await {
                        let heard = match notification {
                            ServerNotification::ToolListChangedNotification(_) => Heard::ToolsChanged,
                            ServerNotification::ResourceUpdatedNotification(updated) => {
                                Heard::Updated(updated.params.uri)
                            }
                            other => panic!("not asked for: {other:?}"),
                        };
                        drop(mouth.send(heard).await);
                    }
                });
            }
        }
        if self.author == Author::We {
            let end = Instant::now() + DEADLINE;
            // The upstream's own subscription is made beside the answer to ours.
            while self.heard.is_empty() {
                assert!(Instant::now() < end, "no update");
                self.call("update", &json!({"uri": uri})).await;
            }
            assert_eq!(self.heard.recv().await, Some(Heard::Updated(uri.to_owned())));
        }
        let (tool, arguments, new) = self.offer.change.clone();
        self.call(tool, &arguments).await;
        loop {
            match within(self.heard.recv()).await {
                Some(Heard::ToolsChanged) => break,
                Some(Heard::Updated(_)) => {}
                other => panic!("no change: {other:?}"),
            }
        }
        assert!(self.tools().await.contains(&new.to_owned()));
    }

    async fn cancel(&self) {
        let slow = ClientRequest::CallToolRequest(CallToolRequest::new(params("slow", &json!({"key": "k"}))));
        let handle = self.client.send_cancellable_request(slow, PeerRequestOptions::no_options());
        let handle = within(handle).await.expect("it was sent");
        self.call("started", &json!({"key": "k"})).await;
        within(handle.cancel(Some("enough".to_owned()))).await.expect("it was told");
        self.call("cancelled", &json!({"count": 1})).await;
    }

    async fn question(&self) {
        let (tool, arguments, expected) = &self.offer.question;
        let answer = self.call(tool, arguments).await;
        assert!(answer.contains(expected), "{answer}");
    }

    async fn tools(&self) -> Vec<String> {
        let tools = within(self.client.list_all_tools()).await.expect("a list");
        tools.into_iter().map(|tool| tool.name.into_owned()).collect()
    }

    /// The text of a result that is no error.
    async fn call(&self, tool: &str, arguments: &Value) -> String {
        let result = self.call_once(tool, arguments).await;
        assert_ne!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().expect("a text").to_owned()
    }

    async fn call_once(&self, tool: &str, arguments: &Value) -> Value {
        let result = within(self.client.call_tool(params(tool, arguments))).await.expect("an answer");
        serde_json::to_value(result).expect("it came as JSON")
    }
}

/// How rmcp's client of an era begins.
pub(crate) fn beginning(era: Era) -> ClientLifecycleMode {
    match era {
        Era::Legacy => ClientLifecycleMode::Initialize,
        Era::Modern => {
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
        }
    }
}

pub(crate) fn params(tool: &str, arguments: &Value) -> CallToolRequestParams {
    let arguments = arguments.as_object().cloned().expect("an object");
    CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments)
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("no hang")
}

macro_rules! cells {
    ($($name:ident: $client:ident $over:ident to $author:ident $upstream:ident;)*) => {
        $(#[tokio::test]
        async fn $name() {
            for behind in [Over::Stdio, Over::Http] {
                let cell = Cell::new((Era::$client, Over::$over), Author::$author, (Era::$upstream, behind));
                cell.await.run().await;
            }
        })*
    };
}

cells! {
    rmcp_legacy_stdio_to_our_legacy: Legacy Stdio to We Legacy;
    rmcp_legacy_stdio_to_our_modern: Legacy Stdio to We Modern;
    rmcp_legacy_stdio_to_rmcp_legacy: Legacy Stdio to Rmcp Legacy;
    rmcp_legacy_stdio_to_rmcp_modern: Legacy Stdio to Rmcp Modern;
    rmcp_legacy_http_to_our_legacy: Legacy Http to We Legacy;
    rmcp_legacy_http_to_our_modern: Legacy Http to We Modern;
    rmcp_legacy_http_to_rmcp_legacy: Legacy Http to Rmcp Legacy;
    rmcp_legacy_http_to_rmcp_modern: Legacy Http to Rmcp Modern;
    rmcp_modern_stdio_to_our_legacy: Modern Stdio to We Legacy;
    rmcp_modern_stdio_to_our_modern: Modern Stdio to We Modern;
    rmcp_modern_stdio_to_rmcp_legacy: Modern Stdio to Rmcp Legacy;
    rmcp_modern_stdio_to_rmcp_modern: Modern Stdio to Rmcp Modern;
    rmcp_modern_http_to_our_legacy: Modern Http to We Legacy;
    rmcp_modern_http_to_our_modern: Modern Http to We Modern;
    rmcp_modern_http_to_rmcp_legacy: Modern Http to Rmcp Legacy;
    rmcp_modern_http_to_rmcp_modern: Modern Http to Rmcp Modern;
}
