//! A person at a shell: one client in this process, which asks upstreams for one thing and ends. The commands
//! in `cli` drive it.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use super::{Gateway, finish_events, name_for, recall_introductions};
use crate::catalog::{Items, Kind};
use crate::core::observed;
use crate::core::route::{Outgoing, Route, Sink};
use crate::core::session::ClientSession;
use crate::core::start_error::StartError;
use crate::core::upstream::Upstream;
use crate::core::view::{Exposure, View};
use crate::core::workspace::Workspace;
use crate::face::{Face, Viewer};
use crate::json::{Node, Scanner, quote};
use crate::protocol::era::{ClientHello, Version};
use crate::protocol::message::{AnswerTo, Id, Message};
use crate::transport::peer::Answer;

/// How many messages of an upstream may wait for the person; those that arrive when the queue is full are
/// lost.
const WAITING: usize = 1024;
/// The progress token of the shell's only call.
const TOKEN: &str = "1";

/// A client in this process.
pub struct Shell {
    gateway: Arc<Gateway>,
    workspace: Arc<Workspace>,
    session: Arc<ClientSession>,
    messages: mpsc::Receiver<Vec<u8>>,
    upstreams: Vec<Arc<Upstream>>,
    /// The name of the client whose tool names are shown.
    client: &'static str,
}

/// How a call ended. All texts but that of [`Called::Lost`] are raw JSON.
#[derive(Debug)]
pub enum Called {
    /// The result as it came.
    Result(String),
    /// The error object as it came.
    Error(String),
    /// No answer will come; the text says why.
    Lost(String),
}

struct Mailbox(mpsc::Sender<Vec<u8>>);

impl Sink for Mailbox {
    fn send(&self, message: Outgoing<'_>) -> bool {
        self.0.try_send(message.bytes).is_ok()
    }
}

impl Shell {
    /// The names of servers that are still starting.
    pub fn starting(&self) -> Vec<String> {
        self.gateway.starting()
    }

    /// A client of this gateway that has started nothing yet and that can answer questions from upstreams.
    /// Names are made for a client called `client`.
    pub fn new(gateway: Arc<Gateway>, client: &'static str) -> Self {
        let face = gateway.faces.whole();
        recall_introductions(&gateway, &*face, true);
        // Nobody has given a person at a shell a token.
        let workspace = gateway.engine.workspace("", 0, face.clone(), None, None);
        let (send, messages) = mpsc::channel(WAITING);
        let session = ClientSession::new(workspace.clone(), Route::Stream(Arc::new(Mailbox(send))));
        let capabilities = "{\"elicitation\":{\"form\":{},\"url\":{}}}";
        session.greet(ClientHello::new(Version::LATEST_LEGACY, "mcp-workbench", capabilities));
        gateway.engine.audience.attach_stdio(&session);
        let upstreams = gateway.upstreams_by_hand(&*face, &workspace).into_iter();
        let upstreams = upstreams.map(|(_, upstream)| upstream).collect();
        Self { gateway, workspace, session, messages, upstreams, client }
    }

    /// Every server of the file, in the file's order.
    pub fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// How tools, resources and prompts are named.
    pub fn exposure(&self) -> Arc<dyn Exposure + Send + Sync> {
        self.workspace.exposure()
    }

    /// What an upstream offered when it was last asked, by this process or another.
    pub fn remembered(&self, upstream: &Upstream) -> Option<Items> {
        let spec = upstream.spec();
        let sent = self.gateway.engine.known.definitions()?.load(&spec.transport)?;
        Some(sent.shown(spec.guard.as_ref()).0)
    }

    /// Why an upstream failed when it was last asked, if that is remembered.
    pub fn remembered_failure(&self, upstream: &Upstream) -> Option<StartError> {
        self.gateway.engine.known.failure(upstream)
    }

    /// Makes the next verb ask an upstream again that has failed.
    pub async fn forget_failure(&self, upstream: &Arc<Upstream>) {
        self.gateway.engine.known.forget_failure(upstream).await;
    }

    /// The view that a client would have if the upstreams offered these items.
    pub fn view(&self, known: &[(Arc<Upstream>, Arc<Items>)]) -> View {
        view_of(&*self.exposure(), self.client, known)
    }

    /// What a model is given before it calls anything, or once it has opened a group in dynamic mode.
    pub fn surface(&self, view: &View, opened: Option<&str>) -> (Vec<String>, String) {
        surface(&self.gateway, &*self.gateway.face(&self.session), view, opened)
    }

    /// Calls a tool by the upstream's own name. Every message that arrives meanwhile goes to `hear`; if
    /// `hear` returns an answer, that is a whole JSON-RPC response.
    pub async fn call<F>(
        &mut self,
        upstream: &Arc<Upstream>,
        tool: &str,
        arguments: &str,
        mut hear: impl FnMut(Vec<u8>) -> F,
    ) -> Called
    where
        F: Future<Output = Option<String>>,
    {
        let params = format!(
            "{{\"name\":{},\"arguments\":{arguments},\"_meta\":{{\"progressToken\":{TOKEN}}}}}",
            quote(tool)
        );
        let mut scanner = Scanner::default();
        let Ok(doc) = scanner.scan_str(&params) else {
            return Called::Lost("the arguments are not valid JSON".to_owned());
        };
        let Some(mut reply) = self.session.accept(Id::Number(1), None, None, None) else {
            return Called::Lost("the gateway is shutting down".to_owned());
        };
        observed::begin(&self.gateway.engine, "tools/call", doc.root(), &mut reply);
        let (send, mut answer) = oneshot::channel();
        self.gateway.engine.forward(upstream, "tools/call", doc.root(), &[], reply, move |answer, reply| {
            let called = match answer {
                Answer::Result(result) => Called::Result(reply.shown(result)),
                Answer::Error(error) => Called::Error(error.raw().to_owned()),
                Answer::Lost(lost) => Called::Lost(lost.message.to_string()),
            };
            let _ = send.send(called);
            reply.result("{}");
        });
        loop {
            let message = tokio::select! {
                biased;
                Some(message) = self.messages.recv() => message,
                called = &mut answer => {
                    return called.unwrap_or_else(|_| Called::Lost("the call was given up".to_owned()));
                }
            };
            if let Some(response) = hear(message).await {
                self.respond(&response);
            }
        }
    }

    fn respond(&self, response: &str) {
        let mut scanner = Scanner::default();
        if let Ok(doc) = scanner.scan_str(response)
            && let Ok(Message::Response { to: AnswerTo::Ours(id), outcome, .. }) = Message::read(doc.root())
        {
            self.session.peer().resolve(id, outcome);
        }
    }

    /// Ends every upstream and waits until they are gone.
    pub async fn end(self) {
        self.session.end();
        self.gateway.engine.stop().await;
        finish_events(&self.gateway);
    }
}

/// The view that a client of this name would have if the upstreams offered these items.
pub(super) fn view_of(exposure: &dyn Exposure, client: &str, known: &[(Arc<Upstream>, Arc<Items>)]) -> View {
    let mut view = View::default();
    let upstreams: Vec<_> = known.iter().map(|(upstream, _)| upstream.clone()).collect();
    name_for(&mut view, exposure, client);
    view.add(exposure, &upstreams);
    for (upstream, items) in known {
        view.recall(exposure, upstream, items.clone());
    }
    for upstream in &upstreams {
        view.open_in_place(&upstream.group);
    }
    view
}

/// What a model is given before it calls anything, or once it has opened a group in dynamic mode: the raw
/// definitions of tools in their order, then the instructions.
pub(super) fn surface(
    gateway: &Gateway,
    face: &dyn Face,
    view: &View,
    opened: Option<&str>,
) -> (Vec<String>, String) {
    let viewer = Viewer {
        client: None,
        params: Node::empty(),
        modern: false,
        renders_apps: false,
        settled: true,
        known: Some(&gateway.engine.known),
    };
    let [first, last] = face.own_tools(view, &viewer).map(|own| elements(&own));
    let shown = view.items(Kind::Tool).filter(|(entry, item)| {
        let from_start = face.starts_all().is_some() && view.is_active(Kind::Tool, item);
        from_start || opened == Some(&*entry.upstream.group)
    });
    let shown = shown.map(|(entry, item)| entry.rendered(face, Kind::Tool).definition(item).to_owned());
    let tools = first.into_iter().chain(shown).chain(last).collect();
    (tools, face.instructions(&viewer).unwrap_or_default())
}

/// The definitions in a text that separates them by commas.
fn elements(text: &str) -> Vec<String> {
    let elements: Vec<Box<RawValue>> =
        serde_json::from_str(&format!("[{text}]")).expect("our own definitions are JSON");
    elements.iter().map(|element| element.get().to_owned()).collect()
}
