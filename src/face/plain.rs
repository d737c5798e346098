//! One toolbox as a plain server: everything has its own name, and the gateway adds nothing but `read_result`, where long
//! results are kept. The workbench makes this face for clients that ask for a single toolbox.

use std::sync::Arc;

use super::own_tool::error_result;
use super::reach::{page_owner, resource_owner};
use super::reading::{self, READ, is_on};
use super::workbench::decide::{declared, not_found};
use super::{
    CallFailure, Declared, Face, Found, Opening, Part, Remembered, Step, ToolCall, Viewer, WantedUri, Wording,
};
use crate::catalog::{Kind, NameLimits, nearest};
use crate::config::{ByteLimit, Common, NameRule, Toolbox};
use crate::core::upstream::{Listing, Upstream};
use crate::core::view::{Exposure, Renderer, Target, View};
use crate::json::{escaped, quote};
use crate::known_clients::Behaviour;
use crate::protocol::era::ClientHello;
use crate::protocol::message::{Refusal, code};
use crate::text::listed;

/// The face of one toolbox.
pub struct Plain {
    /// The toolbox.
    pub toolbox: Toolbox,
    /// The top-level settings of the toolbox's file.
    pub common: Common,
    /// Whether the file has the toolbox open from the start.
    pub flat: bool,
}

impl Face for Plain {
    fn common(&self) -> &Common {
        &self.common
    }

    fn servers(&self) -> Vec<Declared<'_>> {
        declared(&self.toolbox, &self.common).collect()
    }

    fn groups(&self) -> Vec<&str> {
        vec![self.toolbox.name.as_str()]
    }

    fn part(&self, _part: &Part) -> Option<Arc<dyn Face>> {
        None
    }

    fn emptied(&self) -> Option<Arc<dyn Face>> {
        let toolbox = Toolbox { servers: Vec::new(), ..self.toolbox.clone() };
        Some(Arc::new(Self { toolbox, common: self.common.clone(), flat: self.flat }))
    }

    fn succeed(self: Arc<Self>, _old: &dyn Face) -> Arc<dyn Face> {
        self
    }

    fn opens_first(&self) -> Option<&str> {
        Some(self.toolbox.name.as_str())
    }

    fn instructions(&self, _viewer: &Viewer<'_>) -> Option<String> {
        Some(self.toolbox.description.clone()).filter(|description| !description.is_empty())
    }

    fn own_tools(&self, _view: &View, viewer: &Viewer<'_>) -> [Arc<String>; 2] {
        let read = is_on(self.offloading(), viewer.takes()).then(|| reading::definition(READ));
        [read.unwrap_or_default().into(), Arc::default()]
    }

    fn has_own_tool(&self, name: &str) -> bool {
        name == READ
    }

    fn call<'a>(
        &self,
        view: &View,
        _viewer: &Viewer<'_>,
        call: &ToolCall<'a>,
        _remembered: Option<&Remembered>,
    ) -> Step<'a> {
        match view.find(Kind::Tool, call.name) {
            // A server's tool of that name has another one where it would stand in our way.
            Some(target) if call.name != READ || **target.name() == *READ => {
                return Step::Forward(target, None);
            }
            _ if call.name == READ => {
                let request = reading::request(call.arguments).map(Step::Read);
                return request.unwrap_or_else(|wrong| Step::result(error_result(&wrong)));
            }
            _ => {}
        }
        if let Some(why) = view.why_withheld(self, None, Kind::Tool, call.name) {
            return Step::Say(Wording::Error(Refusal::new(code::INVALID_PARAMS, why)));
        }
        let for_model = view.items(Kind::Tool).filter(|(_, item)| !item.own.is_app_only());
        let near = nearest(call.name, for_model.map(|(_, item)| &*item.name), 5);
        let near = if near.is_empty() { String::new() } else { format!(" Nearest names: {}", listed(&near)) };
        Step::Say(Wording::Error(Refusal::new(
            code::INVALID_PARAMS,
            format!("Unknown tool: {}.{near}", call.name),
        )))
    }

    fn opened(&self, view: &View, _viewer: &Viewer<'_>, opening: &Opening<'_>) -> Step<'static> {
        let name = opening.group;
        let message = match opening.failed {
            None => format!("Toolbox '{name}' was closed while it was being opened"),
            Some(_) if view.is_open(name) => return Step::Again,
            Some(failed) => {
                let reasons: Vec<_> =
                    failed.iter().map(|(server, reason)| format!("{server}: {reason}")).collect();
                format!("No server of toolbox '{name}' could be reached: {}", reasons.join("; "))
            }
        };
        Step::Say(Wording::Error(self.refusal(code::UPSTREAM_LOST, &message)))
    }

    fn resource(&self, view: &View, viewer: &Viewer<'_>, wanted: &WantedUri<'_>) -> Found {
        let linked = || wanted.sender.clone().map(|upstream| (upstream, quote(wanted.uri)));
        let page = page_owner(self, view, viewer, wanted.uri).ok().flatten();
        let page = page.map(|(upstream, own)| (upstream, quote(&own)));
        match page.or_else(|| resource_owner(self, view, wanted.uri)).or_else(linked) {
            Some((upstream, own)) => Found::At(upstream, own),
            None => Found::Refused(not_found(wanted.uri, format!("Resource not found: {}", wanted.uri))),
        }
    }

    fn failed_call(&self, target: &Target, failure: &CallFailure<'_>) -> Wording {
        match failure {
            CallFailure::Refused(_) => Wording::AsItCame,
            CallFailure::Lost(lost) => {
                let message = format!("[{}/{}] {lost}", target.upstream, target.own_name());
                Wording::Error(self.refusal(lost.code, &message))
            }
        }
    }
}

impl Plain {
    /// How long results of each server may be before we keep them.
    fn offloading(&self) -> impl Iterator<Item = ByteLimit> + Clone {
        self.toolbox.servers.iter().map(|server| server.offload_over)
    }
}

impl Exposure for Plain {
    fn full_name(&self, _upstream: &Upstream, _kind: Kind, key: &str) -> String {
        key.to_owned()
    }

    fn second_name(&self, upstream: &Upstream, key: &str) -> Option<String> {
        Some(format!("{}__{key}", upstream.server))
    }

    fn listing(&self) -> Listing {
        if self.flat { Listing::Always } else { Listing::WhileUp }
    }

    fn page_place<'a>(&self, upstream: &'a Upstream) -> Vec<&'a str> {
        vec![&upstream.group, &upstream.server]
    }

    fn keeps_pages(&self) -> bool {
        true
    }

    fn renderer<'a>(&'a self, _: &'a Upstream, _: Kind) -> Renderer<'a> {
        // A name that stays keeps its spelling.
        Box::new(|name, definition, out| match definition.key() == name {
            true => definition.write_named(out, &[definition.raw_key()]),
            false => definition.write_named(out, &["\"", &escaped(name), "\""]),
        })
    }

    /// Several clients may share names that are made for none of them; each may be one that is offered `read_result`.
    fn limits(&self, client: &str) -> NameLimits {
        let takes = if client.is_empty() { Some(0) } else { Behaviour::of(client).longest_result(false) };
        let reserved = is_on(self.offloading(), takes).then_some(READ);
        NameLimits { rule: NameRule::Exact, length: usize::MAX, reserved }
    }

    fn adds(&self, client: Option<&ClientHello>, modern: bool) -> String {
        let viewer = Viewer::new(client, modern);
        reading::adds(self.offloading(), modern, viewer.takes())
    }

    fn lists(&self, _client: Option<&ClientHello>, _kind: Kind) -> bool {
        true
    }

    fn lists_to_modern(&self) -> bool {
        true
    }

    fn lists_alike(&self, _kind: Kind) -> bool {
        true
    }
}
