//! What only clients of the modern era do: discovery, subscriptions, and retries that bring what was asked for.

use std::sync::Arc;

use super::{CAPABILITIES, Face, Gateway};
use crate::core::modern::Listener;
use crate::core::seal::State;
use crate::core::session::Reply;
use crate::wire::era::Version;
use crate::wire::json::{Node, Scanner};
use crate::wire::message::code;

impl Gateway {
    pub(super) fn modern_request(self: &Arc<Self>, method: &str, params: Node<'_>, reply: Reply) {
        match method {
            "server/discover" => self.discover(reply),
            "subscriptions/listen" => self.listen(params, reply),
            "tools/call" | "prompts/get" | "resources/read" if params.get("requestState").is_some() => {
                self.retry(method, params, reply);
            }
            _ => self.common_request(method, params, reply),
        }
    }

    fn discover(&self, reply: Reply) {
        let instructions = self.instructions(reply.session(), None);
        reply.result(&format!(
            "{{\"supportedVersions\":[\"{}\"],\"capabilities\":{CAPABILITIES}{instructions}}}",
            Version::MODERN.as_str(),
        ));
    }

    /// A request that brings what it was asked for goes on where it stopped.
    fn retry(self: &Arc<Self>, method: &str, params: Node<'_>, reply: Reply) {
        let state = match self.engine.unseal(method, params, reply.session()) {
            Ok(state) => state,
            Err(why) => return reply.error(code::INVALID_PARAMS, &format!("Invalid params: {why}"), None),
        };
        let again = match state {
            State::Parked(token) => {
                if let Err(reply) = self.engine.resume(token, params, reply) {
                    let why = "Invalid params: requestState was used before, or its call is over; call again without it";
                    reply.error(code::INVALID_PARAMS, why, None);
                }
                return;
            }
            State::Upstream(state) => params_with(params, &[("requestState", state.as_deref())]),
            State::Refused(error) => {
                let responses = params.get("inputResponses");
                let accepted = responses.is_some_and(|responses| {
                    let accepts = |node: Node<'_>| {
                        node.get("action").is_some_and(|action| action.raw() == "\"accept\"")
                    };
                    responses.members().all(|(_, response)| accepts(response))
                });
                if !accepted {
                    let mut scanner = Scanner::default();
                    return reply.raw_error(
                        scanner.scan_str(&error).expect("an error was validated when it came").root(),
                    );
                }
                params_with(params, &[("requestState", None), ("inputResponses", None)])
            }
        };
        let mut scanner = Scanner::default();
        let params = scanner.scan_str(&again).expect("written as valid JSON").root();
        self.common_request(method, params, reply);
    }

    /// `subscriptions/listen`: acknowledged at once, answered when it ends.
    fn listen(self: &Arc<Self>, params: Node<'_>, reply: Reply) {
        let session = reply.session().clone();
        if let Face::Toolman(bench) = &*self.face(&session)
            && !bench.is_ready()
        {
            // Resources can be subscribed to once their servers are known.
            return self.later(bench, "subscriptions/listen", params, reply);
        }
        let Some(mut listener) = Listener::open(params, reply) else { return };
        for uri in listener.resources() {
            if let Some((upstream, own)) = self.resource_of(&session, &uri)
                && let Ok(own) = serde_json::from_str::<String>(&own)
            {
                self.engine.subscribe(&upstream, &own, true);
                listener.watched.push((upstream, own));
            }
        }
        self.engine.listen(&session.window, listener);
    }

    /// A subscription is over: its resources need no longer be watched for it.
    pub(super) fn unlisten(&self, listener: &Listener) {
        for (upstream, own) in &listener.watched {
            self.engine.subscribe(upstream, own, false);
        }
    }
}

fn params_with(params: Node<'_>, changes: &[(&str, Option<&str>)]) -> String {
    let mut text = Vec::new();
    params.write_with(&mut text, changes);
    String::from_utf8(text).expect("written from UTF-8 texts")
}
