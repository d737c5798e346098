//! Decides what a client's requests mean under the workbench face.

use std::sync::Arc;
use std::time::Duration;

use super::answers::{failed_call, refused_call};
use super::arguments::{
    classic_use_tool, describe_tools, no_arguments, open_toolbox, toolbox_name, use_tool,
};
use super::{Address, Meta, Mode, Workbench, short_name};
use crate::apps::unplaced;
use crate::catalog::{Kind, is_marked};
use crate::config::{Common, Server, Toolbox, keeps_state};
use crate::core::start_error::StartError;
use crate::core::upstream::{Spec, Upstream};
use crate::core::view::{Target, View};
use crate::face::arguments::Blocks;
use crate::face::find::Query;
use crate::face::own_tool::error_result;
use crate::face::plain::Plain;
use crate::face::reach::{page_owner, resource_owner, several_called, several_pages};
use crate::face::reading;
use crate::face::{
    CallFailure, Declared, Face, Found, Opening, Part, Remembered, SearchResult, Searched, Step, Then,
    ToolCall, Viewer, WantedUri, Wording,
};
use crate::json::quote;
use crate::protocol::message::{Refusal, code, error_object};

impl Face for Workbench {
    fn common(&self) -> &Common {
        &self.config.common
    }

    fn servers(&self) -> Vec<Declared<'_>> {
        self.config.toolboxes.iter().flat_map(|toolbox| declared(toolbox, &self.config.common)).collect()
    }

    fn groups(&self) -> Vec<&str> {
        self.config.toolboxes.iter().map(|toolbox| toolbox.name.as_str()).collect()
    }

    fn about(&self, group: &str) -> &str {
        self.toolbox(group).map_or("", |toolbox| &toolbox.description)
    }

    fn is_introduced_by_tools(&self, group: &str) -> bool {
        self.about(group).is_empty()
    }

    fn part(&self, part: &Part) -> Option<Arc<dyn Face>> {
        let Some(toolbox) = &part.toolbox else {
            let mut config = self.config.clone();
            config.toolboxes.retain(|toolbox| part.admits(toolbox.name.as_str()));
            return Some(Arc::new(Self { config }));
        };
        let toolbox = self.toolbox(toolbox).filter(|toolbox| part.admits(toolbox.name.as_str()))?;
        let (toolbox, common) = (toolbox.clone(), self.config.common.clone());
        Some(Arc::new(Plain { toolbox, common, flat: self.is_flat() }))
    }

    fn succeed(self: Arc<Self>, _old: &dyn Face) -> Arc<dyn Face> {
        self
    }

    fn starts_all(&self) -> Option<Duration> {
        self.is_flat().then_some(Duration::ZERO)
    }

    fn searches(&self) -> Option<Searched> {
        self.config.search.then_some(Searched::File)
    }

    fn instructions(&self, viewer: &Viewer<'_>) -> Option<String> {
        Some(self.introduction(viewer))
    }

    fn own_tools(&self, _view: &View, viewer: &Viewer<'_>) -> [Arc<String>; 2] {
        [self.meta_tools(viewer).into(), Arc::default()]
    }

    fn has_own_tool(&self, name: &str) -> bool {
        self.meta(name).is_some()
    }

    fn call<'a>(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        call: &ToolCall<'a>,
        remembered: Option<&Remembered>,
    ) -> Step<'a> {
        let Some(meta) = self.meta(call.name) else {
            if let Some(target) = view.find_tool(self, call.name) {
                return Step::Forward(target, None);
            }
            // Apps know their servers' own names for tools.
            let called = if viewer.renders_apps { view.find_called(call.name) } else { Vec::new() };
            return match &called[..] {
                [target] => Step::Forward(target.clone(), None),
                [] => starting_with(view, call.name)
                    .map(Step::WaitFor)
                    .or_else(|| self.closed_toolbox(view, call.name, remembered, None))
                    .unwrap_or_else(|| refusal(&self.unknown_tool(view, viewer, None, call.name))),
                several => refusal(&vec![several_called(call.name, several)]),
            };
        };
        self.call_meta(view, viewer, meta, call, remembered).unwrap_or_else(|blocks| refusal(&blocks))
    }

    fn opened(&self, view: &View, viewer: &Viewer<'_>, opening: &Opening<'_>) -> Step<'static> {
        let wanted = match opening.then {
            Then::Call { wanted, .. } => Some(wanted.as_str()),
            Then::Answer { .. } | Then::Request => None,
        };
        let Some(toolbox) = self.toolbox(opening.group) else {
            let wanted = wanted.as_ref().map(|wanted| wanted as _);
            return refusal(&self.not_configured(opening.group, wanted));
        };
        let Some(failed) = opening.failed else {
            return Step::result(self.closed_meanwhile(opening.group, wanted));
        };
        match opening.then {
            Then::Answer { meta, as_ancestor } => {
                Step::result(self.opened_toolbox(view, viewer, (*meta, *as_ancestor), toolbox, failed))
            }
            Then::Call { wanted, servers } => {
                let meant = |server: &str| {
                    failed.len() == toolbox.servers.len() || servers.iter().any(|other| other == server)
                };
                let failed: Vec<_> = failed.iter().filter(|(server, _)| meant(server)).cloned().collect();
                match failed.is_empty() || view.find_tool(self, wanted).is_some() {
                    true => Step::Again,
                    false => Step::result(self.did_not_open(opening.group, wanted, &failed)),
                }
            }
            Then::Request => Step::Again,
        }
    }

    fn closed(&self, toolbox: &str, tools: usize, servers: usize) -> String {
        self.closed_toolbox_answer(toolbox, tools, servers)
    }

    fn found(&self, view: &View, viewer: &Viewer<'_>, search: &SearchResult<'_>) -> String {
        self.found_tools(view, viewer, search)
    }

    fn resource(&self, view: &View, viewer: &Viewer<'_>, wanted: &WantedUri<'_>) -> Found {
        let linked = || wanted.sender.clone().map(|upstream| (upstream, quote(wanted.uri)));
        let page = match page_owner(self, view, viewer, wanted.uri) {
            Ok(page) => page.map(|(upstream, own)| (upstream, quote(&own))),
            Err(several) => {
                return Found::Refused(not_found(wanted.uri, several_pages(wanted.uri, &several)));
            }
        };
        match page.or_else(|| resource_owner(self, view, wanted.uri)).or_else(linked) {
            Some((upstream, own)) => Found::At(upstream, own),
            None => {
                let hint = match self.closed_page(view, wanted.uri) {
                    Some(toolbox) => {
                        format!("Toolbox '{toolbox}' is not open. {}", self.how_to_open(toolbox))
                    }
                    None => "Resources of a toolbox can be read once it is open.".to_owned(),
                };
                Found::Refused(not_found(wanted.uri, format!("Resource not found: {}. {hint}", wanted.uri)))
            }
        }
    }

    fn failed_call(&self, target: &Target, failure: &CallFailure<'_>) -> Wording {
        let address = format!("{}/{}", target.upstream, target.own_name());
        Wording::Result(match failure {
            CallFailure::Refused(error) => refused_call(&address, *error),
            CallFailure::Lost(lost) => {
                failed_call(&address, &lost.message, &error_object(lost.code, &lost.message, None))
            }
        })
    }

    fn failed_wait(&self, call: &ToolCall<'_>, upstream: &Upstream, error: &StartError) -> Wording {
        let address = match self.meta(call.name) {
            Some(Meta::Use) => use_tool(call.arguments).ok().map(|(address, _)| address.to_string()),
            Some(_) => classic_use_tool(call.arguments).ok().map(|(_, tool, _)| tool.into_owned()),
            None => Some(call.name.to_owned()),
        };
        let (address, reason) = (address.unwrap_or_else(|| upstream.to_string()), error.to_string());
        Wording::Result(failed_call(&address, &reason, &error_object(code::UPSTREAM_LOST, &reason, None)))
    }

    fn too_late(&self, view: &View, call: &ToolCall<'_>, reason: &str) -> Wording {
        let error = error_object(code::UPSTREAM_LOST, reason, None);
        Wording::Result(failed_call(&self.address(view, call), reason, &error))
    }
}

impl Workbench {
    /// The mode for this viewer. Modern clients get proxy mode instead of dynamic mode, since their lists
    /// cannot grow.
    pub(super) fn mode_for(&self, viewer: &Viewer<'_>) -> Mode {
        match self.mode(viewer.client) {
            Mode::Dynamic if viewer.modern => Mode::Proxy,
            mode => mode,
        }
    }

    /// What a call of a meta-tool means; the error is for the model.
    fn call_meta<'a>(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        meta: Meta,
        call: &ToolCall<'a>,
        remembered: Option<&Remembered>,
    ) -> Result<Step<'a>, Blocks> {
        match meta {
            Meta::Open | Meta::ClassicOpen => {
                let (name, as_ancestor) = match meta {
                    Meta::Open => open_toolbox(call.arguments)?,
                    _ => (toolbox_name(call.arguments)?, false),
                };
                self.toolbox(&name).ok_or_else(|| self.not_configured(&name, None))?;
                Ok(Step::Open(name.into_owned(), Then::Answer { meta, as_ancestor }))
            }
            Meta::Use => {
                let (address, inner) = use_tool(call.arguments)?;
                let found = self.find(view, viewer, &address);
                let starting = || starting(view, &address.toolbox, &address.server);
                if let Some(upstream) = found.is_err().then(starting).flatten() {
                    return Ok(Step::WaitFor(upstream));
                }
                match found {
                    Ok(target) => Ok(Step::Forward(target, Some(inner))),
                    Err(_) if self.opens_by_itself(view, &address.toolbox) => {
                        let then = Then::Call {
                            wanted: address.to_string(),
                            servers: vec![address.server.into_owned()],
                        };
                        Ok(Step::Open(address.toolbox.into_owned(), then))
                    }
                    Err(refused) => Err(refused),
                }
            }
            Meta::ClassicUse => {
                let (toolbox, tool, inner) = classic_use_tool(call.arguments)?;
                match self.find_registered(view, viewer, &toolbox, &tool) {
                    Ok(target) => Ok(Step::Forward(target, Some(inner))),
                    Err(refused) => starting_with(view, &tool)
                        .map(Step::WaitFor)
                        .or_else(|| self.closed_toolbox(view, &tool, remembered, Some(&toolbox)))
                        .ok_or(refused),
                }
            }
            Meta::Find => {
                let query = Query::read(call.arguments)?;
                Ok(Step::Find(query))
            }
            Meta::Describe => {
                let tools = describe_tools(call.arguments)?;
                let closed = |address: &Address<'_>| self.opens_by_itself(view, &address.toolbox);
                match remembered {
                    None if tools.iter().any(closed) => Ok(Step::Recall),
                    _ => Ok(Step::result(self.described_tools(view, viewer, &tools, remembered))),
                }
            }
            Meta::Read => Ok(Step::Read(reading::request(call.arguments)?)),
            Meta::ClassicList => {
                no_arguments(call.arguments)?;
                Ok(Step::result(self.toolboxes(view)))
            }
            Meta::ClassicClose => {
                let name = toolbox_name(call.arguments)?;
                self.toolbox(&name).ok_or_else(|| self.not_configured(&name, None))?;
                match view.is_open(&name) {
                    true => Ok(Step::Close(name.into_owned())),
                    false => Err(self.not_open(&name, None)),
                }
            }
        }
    }

    /// Whether a call of one of its tools opens this toolbox.
    pub(super) fn opens_by_itself(&self, view: &View, toolbox: &str) -> bool {
        self.config.search && self.toolbox(toolbox).is_some() && !view.is_open(toolbox)
    }

    /// Opens the closed toolbox whose tool would be registered under this name, if search is on and calls may
    /// therefore open toolboxes. With `only`, no other toolbox is opened. One server's name may begin with
    /// another's, so the name may mean several servers.
    fn closed_toolbox(
        &self,
        view: &View,
        name: &str,
        remembered: Option<&Remembered>,
        only: Option<&str>,
    ) -> Option<Step<'static>> {
        if !self.config.search {
            return None;
        }
        let closed = self.config.toolboxes.iter().filter(|toolbox| !view.is_open(toolbox.name.as_str()));
        let servers: Vec<_> =
            closed.flat_map(|toolbox| toolbox.servers.iter().map(move |server| (toolbox, server))).collect();
        let opening = |meant: &dyn Fn(&Toolbox, &Server) -> bool| {
            let (toolbox, _) = servers.iter().find(|(toolbox, server)| meant(toolbox, server))?;
            let of_it =
                servers.iter().filter(|(other, server)| other.name == toolbox.name && meant(other, server));
            let servers = of_it.map(|(_, server)| server.name.as_str().to_owned()).collect();
            let group = toolbox.name.as_str();
            let then = Then::Call { wanted: name.to_owned(), servers };
            only.is_none_or(|only| only == group).then(|| Step::Open(group.to_owned(), then))
        };
        let prefix = |toolbox: &Toolbox, server: &Server| format!("{}__{}__", toolbox.name, server.name);
        let plain = |toolbox: &Toolbox, server: &Server| name.starts_with(&prefix(toolbox, server));
        if servers.iter().any(|(toolbox, server)| plain(toolbox, server)) {
            return opening(&plain);
        }
        let Some(remembered) = remembered else { return Some(Step::Recall) };
        opening(&|toolbox, server| {
            let guard = self.config.common.guard(toolbox.name.as_str(), server.name.as_str());
            let Some(items) = remembered.of(&server.transport, guard.as_ref()) else { return false };
            items.of(Kind::Tool).iter().any(|item| {
                let full = format!("{}{}", prefix(toolbox, server), item.key);
                let origin = [toolbox.name.as_str(), server.name.as_str(), &item.key];
                is_marked(name, &full, &origin)
                    || short_name(origin[0], origin[1], origin[2]).is_some_and(|short| short == name)
            })
        })
    }

    /// The closed toolbox that has a page.
    fn closed_page(&self, view: &View, uri: &str) -> Option<&str> {
        let has = |toolbox: &&Toolbox| {
            let place = |server: &Server| unplaced(uri, &[toolbox.name.as_str(), server.name.as_str()]);
            toolbox.servers.iter().any(|server| place(server).is_some())
        };
        let name = self.config.toolboxes.iter().find(has)?.name.as_str();
        (!view.is_open(name)).then_some(name)
    }

    /// The tool that a call of `use_tool` means; the error is for the model.
    pub(super) fn find(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        address: &Address<'_>,
    ) -> Result<Target, Blocks> {
        if let Some(target) = view.find_own(&address.toolbox, &address.server, &address.tool) {
            return Ok(target);
        }
        Err(match self.toolbox(&address.toolbox) {
            None => self.not_configured(&address.toolbox, Some(address)),
            Some(_) if !view.is_open(&address.toolbox) => self.not_open(&address.toolbox, Some(address)),
            Some(_) => self.no_such_tool(view, viewer, address),
        })
    }

    /// The tool that a call of `workbench_use_tool` means: by its registered name, or by the server's own
    /// name if no other server of the toolbox has it too.
    fn find_registered(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        toolbox: &str,
        tool: &str,
    ) -> Result<Target, Blocks> {
        if self.toolbox(toolbox).is_none() {
            return Err(self.not_configured(toolbox, Some(&tool)));
        }
        if !view.is_open(toolbox) && view.group(toolbox).next().is_none() {
            return Err(self.not_open(toolbox, Some(&tool)));
        }
        if let Some(target) = view.find_tool(self, tool).filter(|target| *target.upstream.group == *toolbox) {
            return Ok(target);
        }
        let servers = view.group(toolbox).map(|entry| &*entry.upstream.server);
        let own: Vec<_> = servers.filter_map(|server| view.find_own(toolbox, server, tool)).collect();
        match &*own {
            [] => Err(self.unknown_tool(view, viewer, Some(toolbox), tool)),
            [one] => Ok(one.clone()),
            several => {
                let names: Vec<&str> = several.iter().map(|target| &**target.name()).collect();
                Err(self.ambiguous_tool(toolbox, tool, &names))
            }
        }
    }

    /// The address of a call's tool: toolbox, server and tool, or as much of these as is known.
    fn address(&self, view: &View, call: &ToolCall<'_>) -> String {
        let registered = |name: &str| match view.find_tool(self, name) {
            Some(target) => format!("{}/{}", target.upstream, target.own_name()),
            None => name.to_owned(),
        };
        let named = match self.meta(call.name) {
            Some(Meta::Use) => use_tool(call.arguments).ok().map(|(address, _)| address.to_string()),
            Some(Meta::ClassicUse) => {
                classic_use_tool(call.arguments).ok().map(|(_, tool, _)| registered(&tool))
            }
            Some(Meta::Open | Meta::ClassicOpen | Meta::ClassicClose) => {
                toolbox_name(call.arguments).ok().map(|toolbox| toolbox.into_owned())
            }
            Some(Meta::Find | Meta::Describe | Meta::Read | Meta::ClassicList) => None,
            None => Some(registered(call.name)),
        };
        named.unwrap_or_else(|| call.name.to_owned())
    }
}

/// The server, if it is still starting, so that its tools are not known yet.
fn starting(view: &View, toolbox: &str, server: &str) -> Option<Arc<Upstream>> {
    let entry = view.server(toolbox, server).filter(|entry| entry.upstream.is_starting())?;
    Some(entry.upstream.clone())
}

/// A server that is still starting and may have the tool that is registered under this name.
fn starting_with(view: &View, name: &str) -> Option<Arc<Upstream>> {
    let is_meant = |upstream: &&Arc<Upstream>| {
        let rest = name.strip_prefix(&*upstream.group).and_then(|rest| rest.strip_prefix("__"));
        let rest = rest.and_then(|rest| rest.strip_prefix(&*upstream.server));
        rest.is_some_and(|rest| rest.starts_with("__")) && upstream.is_starting()
    };
    view.entries().map(|entry| &entry.upstream).find(is_meant).cloned()
}

/// A result that tells the model what is wrong.
fn refusal<'a>(blocks: &Blocks) -> Step<'a> {
    Step::result(error_result(blocks))
}

/// A toolbox's servers.
pub(in crate::face) fn declared<'a>(
    toolbox: &'a Toolbox,
    common: &'a Common,
) -> impl Iterator<Item = Declared<'a>> {
    toolbox.servers.iter().map(move |server| {
        let (name, running) = (server.name.as_str(), server.running);
        Declared {
            group: toolbox.name.as_str(),
            key: name,
            name,
            label: format!("{}/{name}", toolbox.name),
            spec: Spec {
                transport: server.transport.clone(),
                filter: server.filter.clone(),
                guard: common.guard(toolbox.name.as_str(), name),
                timeouts: server.timeouts,
                restart: false,
                lives_on: false,
                isolation: server.isolation,
                keeps_state: keeps_state(&server.transport),
                start: running.start,
                idle_timeout: running.longest_idle(),
                offload_over: server.offload_over,
            },
        }
    })
}

/// The error that no resource has this URI.
pub(in crate::face) fn not_found(uri: &str, message: String) -> Refusal {
    let data = Some(format!("{{\"uri\":{}}}", quote(uri)));
    Refusal { code: code::RESOURCE_NOT_FOUND, message, data }
}
