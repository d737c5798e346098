//! `tools/call`: the gateway's own tools, and those of upstreams.

use std::sync::Arc;

use super::{Face, Gateway};
use crate::config::{Server, Toolbox};
use crate::core::catalog::Kind;
use crate::core::opening::Opened;
use crate::core::reply::Reply;
use crate::core::session::Session;
use crate::core::upstream::{Spec, Upstream};
use crate::core::view::Target;
use crate::core::window::Window;
use crate::faces::workbench::{self as shape, Address, Meta, Mode, Workbench};
use crate::wire::json::{Node, Scanner};
use crate::wire::message::error_object;
use crate::wire::peer::Answer;

impl Gateway {
    pub(super) fn call_workbench(
        self: &Arc<Self>,
        face: &Arc<Workbench>,
        name: &str,
        params: Node<'_>,
        arguments: Option<Node<'_>>,
        reply: Reply,
    ) {
        if let Some(meta) = face.meta(name) {
            return self.call_meta(face, meta, params, arguments, reply);
        }
        let session = reply.session().clone();
        let target = session.view().find(Kind::Tool, name);
        match target {
            Some(target) => self.forward_tool(target, params, None, reply),
            None => match self.closed_toolbox(face, name, &reply) {
                Some((toolbox, servers)) => {
                    self.open_for_call(face, &toolbox, servers, name.to_owned(), params, reply);
                }
                None => {
                    let answer = face.unknown_tool(&session.view(), None, name);
                    reply.result(&answer);
                }
            },
        }
    }

    fn call_meta(
        self: &Arc<Self>,
        face: &Arc<Workbench>,
        meta: Meta,
        params: Node<'_>,
        arguments: Option<Node<'_>>,
        reply: Reply,
    ) {
        let refused = match meta {
            Meta::Open | Meta::ClassicOpen => match shape::toolbox_name(arguments) {
                Ok(name) => match face.toolbox(&name) {
                    Some(_) => return self.open(face, meta, name.into_owned(), reply),
                    None => face.not_configured(&name, None),
                },
                Err(refused) => refused,
            },
            Meta::Use => match shape::use_tool(arguments) {
                Ok((address, inner)) => match self.find(face, &address, &reply) {
                    Ok(target) => {
                        return self.forward_tool(target, params, Some(inner.map(Node::raw)), reply);
                    }
                    Err(_) if self.may_open(face, &address.toolbox, &reply) => {
                        let wanted = address.to_string();
                        let servers = vec![address.server.into_owned()];
                        return self.open_for_call(face, &address.toolbox, servers, wanted, params, reply);
                    }
                    Err(refused) => refused,
                },
                Err(refused) => refused,
            },
            Meta::ClassicUse => match shape::classic_use_tool(arguments) {
                Ok((toolbox, tool, inner)) => match self.find_registered(face, &toolbox, &tool, &reply) {
                    Ok(target) => {
                        return self.forward_tool(target, params, Some(inner.map(Node::raw)), reply);
                    }
                    Err(refused) => match self.closed_toolbox(face, &tool, &reply) {
                        Some((named, servers)) if named == *toolbox => {
                            let wanted = tool.into_owned();
                            return self.open_for_call(face, &named, servers, wanted, params, reply);
                        }
                        _ => refused,
                    },
                },
                Err(refused) => refused,
            },
            Meta::Find => return self.find_tools(face, arguments, reply),
            Meta::ClassicList => match shape::no_arguments(arguments) {
                Ok(()) => face.toolboxes(&reply.session().view()),
                Err(refused) => refused,
            },
            Meta::ClassicClose => match shape::toolbox_name(arguments) {
                Ok(name) => self.close(face, &name, &reply),
                Err(refused) => refused,
            },
        };
        reply.result(&refused);
    }

    fn open(self: &Arc<Self>, face: &Arc<Workbench>, meta: Meta, name: String, reply: Reply) {
        let (gateway, face) = (self.clone(), face.clone());
        tokio::spawn(async move {
            let session = reply.session().clone();
            // The file may have changed since the call came.
            let face = gateway.workbench(&session, face);
            let Some(toolbox) = face.toolbox(&name) else {
                return reply.result(&face.not_configured(&name, None));
            };
            let opened = gateway.open_toolbox(&session.window, toolbox).await;
            // And it may have changed meanwhile.
            let face = gateway.workbench(&session, face);
            let Some(toolbox) = face.toolbox(&name) else {
                return reply.result(&face.not_configured(&name, None));
            };
            let Some(Opened { failed, .. }) = opened else {
                return reply.result(&face.closed_meanwhile(&name, None));
            };
            let modern = reply.modern().is_some();
            let mode = if modern { Mode::Proxy } else { face.mode(session.hello()) };
            let answer = face.opened(meta, mode, modern, toolbox, &session.view(), &failed);
            reply.result(&answer);
        });
    }

    /// What a client of the workbench sees now, which may be another thing than `before`.
    fn workbench(&self, session: &Session, before: Arc<Workbench>) -> Arc<Workbench> {
        match &*self.face(session) {
            Face::Workbench(now) => now.clone(),
            _ => before,
        }
    }

    async fn open_toolbox(self: &Arc<Self>, window: &Arc<Window>, toolbox: &Toolbox) -> Option<Opened> {
        let name = toolbox.name.as_str();
        let servers = toolbox.servers.iter();
        let upstreams: Vec<_> = servers.map(|server| self.workbench_upstream(window, name, server)).collect();
        self.engine.open(window, name, &upstreams).await
    }

    /// Whether a call opens this toolbox by itself.
    fn may_open(&self, face: &Workbench, toolbox: &str, reply: &Reply) -> bool {
        let closed = || !reply.session().view().is_open(toolbox);
        face.config.search && face.toolbox(toolbox).is_some() && closed()
    }

    /// The toolbox that a call of a registered name opens by itself, and the servers there that may have the tool.
    fn closed_toolbox(&self, face: &Workbench, name: &str, reply: &Reply) -> Option<(String, Vec<String>)> {
        if !face.config.search {
            return None;
        }
        let remembered = |server: &Server| self.engine.definitions()?.load(&server.transport);
        let view = reply.session().view();
        let (toolbox, servers) = face.closed_toolbox_of(&view, name, remembered)?;
        Some((toolbox.name.as_str().to_owned(), servers.into_iter().map(str::to_owned).collect()))
    }

    /// Opens the toolbox that a call needs, then handles the call again.
    fn open_for_call(
        self: &Arc<Self>,
        face: &Arc<Workbench>,
        toolbox: &str,
        servers: Vec<String>,
        wanted: String,
        params: Node<'_>,
        reply: Reply,
    ) {
        let (gateway, face) = (self.clone(), face.clone());
        let (toolbox, params) = (toolbox.to_owned(), params.raw().to_owned());
        tokio::spawn(async move {
            let Some(configured) = face.toolbox(&toolbox) else {
                return reply.result(&face.not_configured(&toolbox, Some(&wanted)));
            };
            let opened = gateway.open_toolbox(&reply.session().window, configured).await;
            if !reply.is_wanted() {
                return;
            }
            let Some(Opened { mut failed, .. }) = opened else {
                return reply.result(&face.closed_meanwhile(&toolbox, Some(&wanted)));
            };
            if failed.len() < configured.servers.len() {
                failed.retain(|(failed, _)| servers.iter().any(|server| *server == **failed));
            }
            let is_there = reply.session().view().find(Kind::Tool, &wanted).is_some();
            if !failed.is_empty() && !is_there {
                return reply.result(&face.did_not_open(&toolbox, &wanted, &failed));
            }
            let mut scanner = Scanner::default();
            let params = scanner.scan_str(&params).expect("a part of valid JSON").root();
            gateway.call_tool(params, reply);
        });
    }

    pub(super) fn workbench_upstream(
        self: &Arc<Self>,
        window: &Window,
        toolbox: &str,
        server: &Arc<Server>,
    ) -> Arc<Upstream> {
        let name = server.name.as_str();
        self.engine.upstream(window, toolbox, name, &format!("{toolbox}/{name}"), || spec(server))
    }

    fn close(&self, face: &Workbench, name: &str, reply: &Reply) -> String {
        let session = reply.session();
        if face.toolbox(name).is_none() {
            return face.not_configured(name, None);
        }
        let tools: usize = {
            let view = session.view();
            if !view.is_open(name) {
                return face.not_open(name, None);
            }
            view.group(name)
                .filter(|entry| entry.up)
                .map(|entry| entry.exposed.of(Kind::Tool).items().len())
                .sum()
        };
        let servers = self.engine.close(&session.window, name);
        face.closed(name, tools, servers)
    }

    /// What a call is for: toolbox, server and tool, or as much of it as is known.
    pub(super) fn address(
        &self,
        face: &Workbench,
        name: &str,
        arguments: Option<Node<'_>>,
        reply: &Reply,
    ) -> String {
        let registered = |name: &str| match reply.session().view().find(Kind::Tool, name) {
            Some(target) => format!("{}/{}", target.upstream, target.own_name()),
            None => name.to_owned(),
        };
        match face.meta(name) {
            Some(Meta::Use) => shape::use_tool(arguments).ok().map(|(address, _)| address.to_string()),
            Some(Meta::ClassicUse) => {
                shape::classic_use_tool(arguments).ok().map(|(_, tool, _)| registered(&tool))
            }
            Some(Meta::Open | Meta::ClassicOpen | Meta::ClassicClose) => {
                shape::toolbox_name(arguments).ok().map(|toolbox| toolbox.into_owned())
            }
            Some(_) => None,
            None => Some(registered(name)),
        }
        .unwrap_or_else(|| name.to_owned())
    }

    /// Where `use_tool` leads; the error is a result for the model.
    fn find(&self, face: &Workbench, address: &Address<'_>, reply: &Reply) -> Result<Target, String> {
        let view = reply.session().view();
        if let Some(target) = view.find_own(&address.toolbox, &address.server, &address.tool) {
            return Ok(target);
        }
        Err(match face.toolbox(&address.toolbox) {
            None => face.not_configured(&address.toolbox, Some(address)),
            Some(_) if !view.is_open(&address.toolbox) => face.not_open(&address.toolbox, Some(address)),
            Some(_) => face.no_such_tool(&view, address),
        })
    }

    /// Where `workbench_use_tool` leads.
    fn find_registered(
        &self,
        face: &Workbench,
        toolbox: &str,
        tool: &str,
        reply: &Reply,
    ) -> Result<Target, String> {
        let session = reply.session();
        let view = session.view();
        if face.toolbox(toolbox).is_none() {
            return Err(face.not_configured(toolbox, Some(&tool)));
        }
        if !view.is_open(toolbox) && view.group(toolbox).next().is_none() {
            return Err(face.not_open(toolbox, Some(&tool)));
        }
        match view.find(Kind::Tool, tool) {
            Some(target) if *target.upstream.group == *toolbox => Ok(target),
            _ => Err(face.unknown_tool(&view, Some(toolbox), tool)),
        }
    }

    /// Sends a call on under the upstream's own name for the tool, with other arguments where some are given. Errors of the upstream become results, which a
    /// model can read.
    pub(super) fn forward_tool(
        self: &Arc<Self>,
        target: Target,
        params: Node<'_>,
        arguments: Option<Option<&str>>,
        reply: Reply,
    ) {
        let asked = target.clone();
        let both = [("name", Some(target.raw_key())), ("arguments", arguments.flatten())];
        let changes = if arguments.is_some() { &both[..] } else { &both[..1] };
        self.engine.forward(&target.upstream, "tools/call", params, changes, reply, move |answer, reply| {
            let address = || format!("{}/{}", asked.upstream, asked.own_name());
            match answer {
                Answer::Result(result) => reply.result_with(|out| result.write(out)),
                Answer::Error(error) => reply.result(&shape::refused_call(&address(), error)),
                Answer::Lost(lost) => {
                    let error = error_object(lost.code, &lost.message, None);
                    reply.result(&shape::failed_call(&address(), &lost.message, &error));
                }
            }
        });
    }
}

/// What the engine needs to know of a server.
pub(super) fn spec(server: &Server) -> Spec {
    Spec {
        transport: server.transport.clone(),
        filter: server.filter.clone(),
        timeouts: server.timeouts,
        restart: false,
        lives_on: false,
        isolation: server.isolation,
    }
}
