//! Carries out what faces decide: one function for each [`Step`]. `Gateway::request` gets here with every
//! tool call.

use std::sync::Arc;

use super::shared::{self, ViewChange};
use super::{Gateway, results, startup};
use crate::catalog::Kind;
use crate::core::observed;
use crate::core::opening::Failures;
use crate::core::reply::Reply;
use crate::core::upstream::{Spec, Upstream};
use crate::core::view::Target;
use crate::core::workspace::Workspace;
use crate::face::toolman::SwitchChange;
use crate::face::{CallFailure, Declared, Face, Opening, Remembered, Step, Then, ToolCall, Wording};
use crate::json::{Node, Raw};
use crate::transport::peer::Answer;

impl Gateway {
    /// Carries out the face's decision about a tool call.
    pub(super) fn carry_out(
        self: &Arc<Self>,
        step: Step<'_>,
        face: Arc<dyn Face>,
        params: Node<'_>,
        reply: Reply,
    ) {
        match step {
            Step::Forward(target, arguments) => self.forward_tool(face, target, params, arguments, reply),
            Step::Say(wording) => say(reply, wording, None),
            Step::Open(group, then) => self.open(group, then, "tools/call", params, reply),
            Step::Close(group) => self.close(&face, &group, reply),
            Step::Switch(change) => self.switch(&face, change, params, reply),
            Step::Find(query) => self.finders.find(self, &face, query, params, reply),
            Step::Read(request) => results::read(face, request, reply),
            Step::Wait => startup::later(self, "tools/call", params, reply),
            Step::WaitFor(upstream) => self.wait_for(face, upstream, params, reply),
            Step::Recall => self.call_recalling(&face, params, reply),
            Step::Again => self.call_tool(params, None, reply),
        }
    }

    /// Forwards a call under the upstream's own name for the tool, with other arguments if any are given.
    fn forward_tool(
        self: &Arc<Self>,
        face: Arc<dyn Face>,
        target: Target,
        params: Node<'_>,
        arguments: Option<Option<Node<'_>>>,
        reply: Reply,
    ) {
        let asked = target.clone();
        let names_pages = reply.renders_apps() || face.keeps_pages();
        let both =
            [("name", Some(target.raw_key())), ("arguments", arguments.flatten().map(|given| given.raw()))];
        let changes = if arguments.is_some() { &both[..] } else { &both[..1] };
        self.engine.forward(&target.upstream, "tools/call", params, changes, reply, move |answer, reply| {
            match answer {
                Answer::Result(result) => {
                    let for_host = || reply.session().workspace.result_for_host(&asked.upstream, result);
                    let changed = if names_pages { for_host() } else { None }.map(Raw::own);
                    let result = changed.as_ref().map_or(result, Raw::root);
                    results::relay_of(&*face, &asked, result, reply);
                }
                answer => finish(answer, reply, |failure| face.failed_call(&asked, failure)),
            }
        });
    }

    /// Handles a call again when a server that may have its tool is up.
    fn wait_for(
        self: &Arc<Self>,
        face: Arc<dyn Face>,
        upstream: Arc<Upstream>,
        params: Node<'_>,
        reply: Reply,
    ) {
        let (gateway, params) = (self.clone(), Raw::from(params));
        tokio::spawn(async move {
            let up = upstream.up_in_time(&reply.session().workspace);
            let up = observed::on_behalf_of(reply.behalf(), up).await;
            if !reply.is_wanted() {
                return;
            }
            let params = params.root();
            match up {
                Ok(_) => gateway.request("tools/call", params, reply),
                Err(error) => {
                    let name = params.get("name").and_then(Node::as_str).unwrap_or_default();
                    let call = ToolCall { name: &name, arguments: params.get("arguments") };
                    say(reply, face.failed_wait(&call, &upstream, &error), None);
                }
            }
        });
    }

    /// Opens a group of servers and continues with the request.
    pub(super) fn open(
        self: &Arc<Self>,
        group: String,
        then: Then,
        method: &str,
        params: Node<'_>,
        mut reply: Reply,
    ) {
        if let (Then::Answer { .. }, Some(exchange)) = (&then, reply.exchange()) {
            exchange.opens = Some(group.as_str().into());
        }
        let gateway = self.clone();
        let (method, params) = (method.to_owned(), Raw::from(params));
        tokio::spawn(async move {
            let session = reply.session().clone();
            let told = session.told_of_tools();
            let opening = gateway.open_everywhere(&session.workspace, &group, &then);
            let failed = observed::on_behalf_of(reply.behalf(), opening).await;
            reply.record();
            if !reply.is_wanted() {
                return;
            }
            // The file may have changed while the group opened.
            let face = gateway.face(&session);
            let opening = Opening { group: &group, then: &then, failed: failed.as_deref() };
            let viewer = gateway.viewer(&reply, params.root());
            let (step, is_open) = session.workspace.read(|view| {
                (face.opened(view, &viewer, &opening), failed.is_some() && view.is_open(&group))
            });
            if let Then::Answer { .. } = then
                && is_open
            {
                reply.caught_up(told).await;
            }
            match step {
                Step::Again => gateway.request(&method, params.root(), reply),
                step => gateway.carry_out(step, face, params.root(), reply),
            }
        });
    }

    /// Opens a group, at every replica if the workspace is one that all of them have.
    async fn open_everywhere(
        self: &Arc<Self>,
        workspace: &Arc<Workspace>,
        group: &str,
        then: &Then,
    ) -> Option<Failures> {
        let shared = shared::view_of(self, workspace);
        // A face that opens a group by itself does so everywhere.
        let Some(shared) = shared.filter(|_| self.faces.of(workspace).opens_first().is_none()) else {
            return self.open_group(workspace, group, then).await;
        };
        let announced = shared.announce(self, ViewChange::Open(group.to_owned())).await;
        let failed = self.open_group(workspace, group, then).await;
        match workspace.read(|view| view.is_open(group)) {
            true => announced.holds_everywhere().await,
            false => drop(shared.announce(self, ViewChange::Close(group.to_owned())).await),
        }
        failed
    }

    /// Opens a group. `None` means that the group does not exist, or was closed before it was open.
    pub(super) async fn open_group(
        self: &Arc<Self>,
        workspace: &Arc<Workspace>,
        group: &str,
        then: &Then,
    ) -> Option<Failures> {
        // The file may have changed since the request arrived.
        let face = self.faces.of(workspace);
        if !face.groups().contains(&group) {
            return None;
        }
        let servers = face.servers().into_iter().filter(|server| server.group == group);
        let upstreams: Vec<_> = servers.map(|server| self.upstream(workspace, &server)).collect();
        let failed = self.engine.open(workspace, group, &upstreams).await;
        // If the client did not ask for the opening, the answer does not say what failed, so the log does.
        if let Then::Request = then {
            for (server, reason) in failed.iter().flatten() {
                tracing::warn!("[{group}/{server}] {reason}");
            }
        }
        failed
    }

    /// A server's upstream, as this workspace reaches it.
    pub(super) fn upstream(self: &Arc<Self>, workspace: &Workspace, server: &Declared<'_>) -> Arc<Upstream> {
        self.engine.upstream(workspace, server.group, server.key, &server.label, server.spec.clone())
    }

    /// Every server of a face, in the file's order, for a caller that starts them by hand: none restarts by
    /// itself.
    pub(super) fn upstreams_by_hand(
        self: &Arc<Self>,
        face: &dyn Face,
        workspace: &Workspace,
    ) -> Vec<(String, Arc<Upstream>)> {
        let servers = face.servers().into_iter();
        let by_hand = servers.map(|server| {
            let spec = Spec { restart: false, ..server.spec.clone() };
            (server.name.to_owned(), self.upstream(workspace, &Declared { spec, ..server }))
        });
        by_hand.collect()
    }

    fn close(self: &Arc<Self>, face: &Arc<dyn Face>, group: &str, reply: Reply) {
        let workspace = &reply.session().workspace;
        let tools: usize = workspace.read(|view| {
            let up = view.group(group).filter(|entry| entry.up);
            up.map(|entry| entry.exposed.of(Kind::Tool).items().len()).sum()
        });
        let servers = self.engine.close(workspace, group);
        reply.record();
        let answer = face.closed(group, tools, servers);
        let Some(shared) = shared::view_of(self, workspace) else { return reply.result(&answer) };
        let (gateway, change) = (self.clone(), ViewChange::Close(group.to_owned()));
        tokio::spawn(async move {
            shared.announce_and_look(&gateway, change).await;
            reply.result(&answer);
        });
    }

    /// Switches things on and off, tells the client which lists changed, and remembers the switches.
    fn switch(self: &Arc<Self>, face: &Arc<dyn Face>, change: SwitchChange, params: Node<'_>, reply: Reply) {
        let (workspace, told) = (reply.session().workspace.clone(), reply.session().told_of_tools());
        let answer = workspace.change(|view| {
            view.switch(&change.on, &change.off);
            face.switched(view, &self.viewer(&reply, params), &change)
        });
        reply.record();
        workspace.tell();
        let shared = shared::view_of(self, &workspace).map(|shared| (self.clone(), shared, change.clone()));
        let answer = async move {
            if let Some((gateway, shared, change)) = shared {
                shared.announce(&gateway, ViewChange::Switch(change)).await.holds_everywhere().await;
            }
            reply.caught_up(told).await;
            reply.result(&answer);
        };
        startup::remember_switches(self, &workspace, change, move || drop(tokio::spawn(answer)));
    }

    /// Reads in the background what a face's servers are known to offer.
    pub(super) fn recall_definitions(
        &self,
        face: &dyn Face,
    ) -> impl Future<Output = Remembered> + Send + use<> {
        let transports: Vec<_> = face.servers().into_iter().map(|server| server.spec.transport).collect();
        let definitions = self.engine.known.definitions().cloned();
        let recalled = tokio::task::spawn_blocking(move || {
            let load = |transport| Some((definitions.as_ref()?.load(&transport)?, transport));
            let known = transports.into_iter().filter_map(load);
            Remembered(known.map(|(sent, transport)| (transport, sent)).collect())
        });
        async move { recalled.await.unwrap_or_else(|_| Remembered(Vec::new())) }
    }

    /// Handles a call again with what servers are known to offer, which is read in the background.
    fn call_recalling(self: &Arc<Self>, face: &Arc<dyn Face>, params: Node<'_>, reply: Reply) {
        let (gateway, params) = (self.clone(), Raw::from(params));
        let recalled = self.recall_definitions(&**face);
        tokio::spawn(async move {
            let remembered = recalled.await;
            if reply.is_wanted() {
                gateway.call_tool(params.root(), Some(&remembered), reply);
            }
        });
    }
}

/// Answers as the upstream did; if the upstream did not answer with a result, the face words the answer.
pub(super) fn finish(answer: Answer<'_>, reply: Reply, word: impl FnOnce(&CallFailure<'_>) -> Wording) {
    match answer {
        Answer::Result(result) => reply.relay(result, &[]),
        Answer::Error(error) => say(reply, word(&CallFailure::Refused(error)), Some(error)),
        Answer::Lost(lost) => say(reply, word(&CallFailure::Lost(lost)), None),
    }
}

/// Answers with this wording; `error` is the error with which the server refused the request.
pub(super) fn say(reply: Reply, wording: Wording, error: Option<Node<'_>>) {
    match (wording, error) {
        (Wording::Result(result), _) => reply.result(&result),
        (Wording::Error(refusal), _) => reply.refuse(refusal),
        (Wording::AsItCame, Some(error)) => reply.raw_error(error),
        // A reply that is dropped answers with an error.
        (Wording::AsItCame, None) => drop(reply),
    }
}
