//! `tools/call`: the gateway's own tools, and those of upstreams.

use std::sync::Arc;

use super::Gateway;
use crate::config::Toolbox;
use crate::core::catalog::Kind;
use crate::core::session::Reply;
use crate::core::view::Target;
use crate::faces::workbench::{self as face, Address, Meta};
use crate::wire::json::Node;
use crate::wire::message::{code, error_object};
use crate::wire::peer::Answer;

impl Gateway {
    pub(super) fn call_tool(self: &Arc<Self>, params: Node<'_>, reply: Reply) {
        let (name, arguments) =
            match (params.unique("name"), params.unique("arguments"), params.unique("_meta")) {
                (Ok(Some(name)), Ok(arguments), Ok(_)) => (name, arguments),
                (Ok(None), Ok(_), Ok(_)) => {
                    return reply.error(code::INVALID_PARAMS, "Invalid params: \"name\" is missing", None);
                }
                _ => return reply.error(code::INVALID_PARAMS, "Invalid params: a key stands twice", None),
            };
        let Some(name) = name.as_str() else {
            return reply.error(code::INVALID_PARAMS, "Invalid params: \"name\" must be a string", None);
        };
        if let Some(meta) = Meta::from_name(&name) {
            return self.call_meta(meta, params, arguments, reply);
        }
        let session = reply.session().clone();
        let target = session.view.lock().find(Kind::Tool, &name);
        match target {
            Some(target) => self.forward_tool(target, params, &[], reply),
            None => {
                let answer = self.face.unknown_tool(&session.view.lock(), &name);
                reply.result(&answer);
            }
        }
    }

    fn call_meta(self: &Arc<Self>, meta: Meta, params: Node<'_>, arguments: Option<Node<'_>>, reply: Reply) {
        let refused = match meta {
            Meta::Open | Meta::ClassicOpen => match face::toolbox_name(arguments) {
                Ok(name) => match self.face.toolbox(&name) {
                    Some(_) => return self.open(meta, name.into_owned(), reply),
                    None => self.face.not_configured(&name, None),
                },
                Err(refused) => refused,
            },
            Meta::Use => match face::use_tool(arguments) {
                Ok((address, inner)) => match self.find(&address, &reply) {
                    Ok(target) => {
                        return self.forward_tool(
                            target,
                            params,
                            &[("arguments", inner.map(Node::raw))],
                            reply,
                        );
                    }
                    Err(refused) => refused,
                },
                Err(refused) => refused,
            },
            Meta::ClassicUse => match face::classic_use_tool(arguments) {
                Ok((toolbox, tool, inner)) => match self.find_registered(&toolbox, &tool, &reply) {
                    Ok(target) => {
                        return self.forward_tool(
                            target,
                            params,
                            &[("arguments", inner.map(Node::raw))],
                            reply,
                        );
                    }
                    Err(refused) => refused,
                },
                Err(refused) => refused,
            },
            Meta::ClassicList => match face::no_arguments(arguments) {
                Ok(()) => self.face.toolboxes(&reply.session().view.lock()),
                Err(refused) => refused,
            },
            Meta::ClassicClose => match face::toolbox_name(arguments) {
                Ok(name) => self.close(&name, &reply),
                Err(refused) => refused,
            },
        };
        reply.result(&refused);
    }

    fn open(self: &Arc<Self>, meta: Meta, name: String, reply: Reply) {
        let gateway = self.clone();
        tokio::spawn(async move {
            let session = reply.session().clone();
            let toolbox: &Toolbox = gateway.face.toolbox(&name).expect("looked up before");
            let failed = gateway.engine.open(&session, toolbox).await;
            let mode = gateway.face.mode(session.hello());
            let answer = gateway.face.opened(meta, mode, toolbox, &session.view.lock(), &failed);
            reply.result(&answer);
        });
    }

    fn close(&self, name: &str, reply: &Reply) -> String {
        let session = reply.session();
        if self.face.toolbox(name).is_none() {
            return self.face.not_configured(name, None);
        }
        let tools: usize = {
            let view = session.view.lock();
            if !view.is_open(name) {
                return self.face.not_open(name, None);
            }
            view.group(name)
                .filter(|entry| entry.up)
                .map(|entry| entry.exposed.of(Kind::Tool).items().len())
                .sum()
        };
        let servers = self.engine.close(session, name);
        self.face.closed(name, tools, servers)
    }

    /// Where `use_tool` leads; the error is a result for the model.
    fn find(&self, address: &Address<'_>, reply: &Reply) -> Result<Target, String> {
        let view = reply.session().view.lock();
        let entry = view.group(&address.toolbox).find(|entry| *entry.upstream.server == *address.server);
        if let Some(entry) = entry
            && (view.is_open(&address.toolbox) || entry.up)
            && let Some(item) =
                entry.exposed.of(Kind::Tool).items().iter().find(|item| *item.key == *address.tool)
        {
            return Ok(Target {
                upstream: entry.upstream.clone(),
                raw_key: item.raw_key.clone(),
                up: entry.up,
            });
        }
        Err(match self.face.toolbox(&address.toolbox) {
            None => self.face.not_configured(&address.toolbox, Some(address)),
            Some(_) if !view.is_open(&address.toolbox) => self.face.not_open(&address.toolbox, Some(address)),
            Some(_) => self.face.no_such_tool(&view, address),
        })
    }

    /// Where `workbench_use_tool` leads.
    fn find_registered(&self, toolbox: &str, tool: &str, reply: &Reply) -> Result<Target, String> {
        let session = reply.session();
        let view = session.view.lock();
        if self.face.toolbox(toolbox).is_none() {
            return Err(self.face.not_configured(toolbox, None));
        }
        if !view.is_open(toolbox) && view.group(toolbox).next().is_none() {
            return Err(self.face.not_open(toolbox, None));
        }
        match view.find(Kind::Tool, tool) {
            Some(target) if *target.upstream.group == *toolbox => Ok(target),
            _ => Err(self.face.unknown_tool(&view, tool)),
        }
    }

    /// Sends a call on under the upstream's own name for the tool. Errors of the upstream become results, which a
    /// model can read.
    fn forward_tool(
        self: &Arc<Self>,
        target: Target,
        params: Node<'_>,
        changes: &[(&str, Option<&str>)],
        reply: Reply,
    ) {
        let raw_key = target.raw_key.clone();
        let mut all = vec![("name", Some(&*raw_key))];
        all.extend_from_slice(changes);
        let upstream = target.upstream.clone();
        self.engine.forward(&target.upstream, "tools/call", params, &all, reply, move |answer, reply| {
            let address = || {
                let tool = serde_json::from_str::<String>(&target.raw_key)
                    .unwrap_or_else(|_| target.raw_key.to_string());
                format!("{upstream}/{tool}")
            };
            match answer {
                Answer::Result(result) => reply.result_with(|out| result.write(out)),
                Answer::Error(error) => {
                    let message = error.get("message").and_then(Node::as_str);
                    let message = message.unwrap_or_else(|| "the server answered with an error".into());
                    reply.result(&face::failed_call(&address(), &message, error.raw()));
                }
                Answer::Lost(lost) => {
                    let error = error_object(lost.code, &lost.message, None);
                    reply.result(&face::failed_call(&address(), &lost.message, &error));
                }
            }
        });
    }
}
