//! One toolbox as a plain server: opened by the first request that needs it.

use std::sync::Arc;

use super::{Face, Gateway};
use crate::core::catalog::{Kind, nearest};
use crate::core::opening::Opened;
use crate::core::reply::Reply;
use crate::faces::plain::Plain;
use crate::wire::json::{Node, Scanner};
use crate::wire::message::code;
use crate::wire::peer::Answer;
use crate::wire::text::listed;

impl Gateway {
    /// Opens the toolbox, then handles the request.
    pub(super) fn open_plain(
        self: &Arc<Self>,
        plain: &Arc<Plain>,
        method: &str,
        params: Node<'_>,
        reply: Reply,
    ) {
        let (gateway, plain) = (self.clone(), plain.clone());
        let (method, params) = (method.to_owned(), params.raw().to_owned());
        tokio::spawn(async move {
            let window = reply.session().window.clone();
            // The file may have changed since the request came.
            let plain = match &*gateway.face(reply.session()) {
                Face::Plain(now) => now.clone(),
                _ => plain,
            };
            let name = plain.toolbox.name.as_str();
            let servers = plain.toolbox.servers.iter();
            let upstreams: Vec<_> =
                servers.map(|server| gateway.workbench_upstream(&window, name, server)).collect();
            // Nobody has seen a list before, so nobody is told that it changed.
            let Some(Opened { failed, .. }) = gateway.engine.connect(&window, name, &upstreams).await else {
                let message = format!("Toolbox '{name}' was closed while it was being opened");
                return reply.error(code::UPSTREAM_LOST, &message, None);
            };
            for (server, reason) in &failed {
                log::warn!("[{name}/{server}] {reason}");
            }
            if !reply.is_wanted() {
                return;
            }
            if !plain.is_open(&window.view()) {
                let reasons: Vec<_> =
                    failed.iter().map(|(server, reason)| format!("{server}: {reason}")).collect();
                let message =
                    format!("No server of toolbox '{name}' could be reached: {}", reasons.join("; "));
                return reply.error(code::UPSTREAM_LOST, &message, None);
            }
            let mut scanner = Scanner::default();
            let params = scanner.scan_str(&params).expect("a part of valid JSON").root();
            match &*method {
                "subscriptions/listen" | "resources/subscribe" => {
                    gateway.request(&method, Some(params), reply)
                }
                _ => gateway.common_request(&method, params, reply),
            }
        });
    }

    pub(super) fn call_plain(self: &Arc<Self>, name: &str, params: Node<'_>, reply: Reply) {
        let session = reply.session().clone();
        let found = session.view().find(Kind::Tool, name);
        let Some(target) = found else {
            let view = session.view();
            let near = nearest(name, view.items(Kind::Tool).map(|(_, item)| &*item.name), 5);
            let near =
                if near.is_empty() { String::new() } else { format!(" Nearest names: {}", listed(&near)) };
            return reply.error(code::INVALID_PARAMS, &format!("Unknown tool: {name}.{near}"), None);
        };
        let changes = [("name", Some(target.raw_key()))];
        let address = format!("{}/{}", target.upstream, target.own_name());
        self.engine.forward(&target.upstream, "tools/call", params, &changes, reply, move |answer, reply| {
            match answer {
                Answer::Result(result) => reply.result_with(|out| result.write(out)),
                Answer::Error(error) => reply.raw_error(error),
                Answer::Lost(lost) => reply.error(lost.code, &format!("[{address}] {lost}"), None),
            }
        });
    }
}
