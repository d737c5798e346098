//! Decides what a client's requests mean under the Toolman face.

use std::sync::Arc;
use std::time::Duration;

use super::{
    ACTIVATE, CALL, CATALOG, DESCRIBE, FIND, READ, SwitchChange, Switches, Toolman, called, described_names,
    new_key, tool_result,
};
use crate::catalog::Kind;
use crate::config::{Common, Isolation, ToolFilter, Transport, keeps_state};
use crate::core::reload::same_servers;
use crate::core::start_error::StartError;
use crate::core::upstream::{Spec, Upstream};
use crate::core::view::{Exposure, Target, View};
use crate::face::find::Query;
use crate::face::reach::{closest_template, own_uri, page_owner, several_called, several_pages, spellings};
use crate::face::reading::{self, is_on};
use crate::face::{
    CallFailure, Declared, Face, Found, Opening, Part, Remembered, SearchResult, Searched, Step, ToolCall,
    Viewer, WantedUri, Wording,
};
use crate::json::{Node, quote};
use crate::known_clients::Behaviour;
use crate::protocol::message::{Refusal, code};

impl Face for Toolman {
    fn name(&self) -> &'static str {
        "toolman"
    }

    fn common(&self) -> &Common {
        &self.config.common
    }

    fn servers(&self) -> Vec<Declared<'_>> {
        let servers = self.config.servers.iter().zip(&self.keys).enumerate();
        let declared = servers.map(|(index, (server, key))| Declared {
            group: &server.namespace,
            key,
            name: "",
            label: match &*server.namespace {
                "" => format!("server {}", index + 1),
                namespace => namespace.to_owned(),
            },
            spec: Spec {
                transport: server.transport.clone(),
                filter: ToolFilter::All,
                guard: self.config.common.guard(&server.namespace, ""),
                timeouts: server.timeouts,
                // A server behind a URL is always reconnected to.
                restart: server.restart || matches!(server.transport, Transport::Http(_)),
                lives_on: server.isolation != Some(Isolation::Session),
                isolation: server.isolation,
                keeps_state: keeps_state(&server.transport),
                start: server.running.start,
                idle_timeout: server.running.longest_idle(),
                offload_over: server.offload_over,
            },
        });
        declared.collect()
    }

    fn groups(&self) -> Vec<&str> {
        self.config.servers.iter().map(|server| server.namespace.as_str()).collect()
    }

    fn part(&self, part: &Part) -> Option<Arc<dyn Face>> {
        if part.toolbox.is_some() {
            return None;
        }
        let mut config = self.config.clone();
        let all = config.servers.iter().zip(&self.keys);
        let admitted = all.filter(|(server, _)| part.admits(&server.namespace));
        let keys = admitted.map(|(_, key)| key.clone()).collect();
        config.servers.retain(|server| part.admits(&server.namespace));
        Some(Arc::new(Self::with_keys(config, keys)))
    }

    /// A server that is the same in both files keeps its key.
    fn succeed(self: Arc<Self>, old: &dyn Face) -> Arc<dyn Face> {
        let before = old.servers();
        let known: Vec<_> = before.iter().map(|server| (server.group, &server.spec.transport)).collect();
        let servers = self.config.servers.iter();
        let now: Vec<_> = servers.map(|server| (&*server.namespace, &server.transport)).collect();
        let same = same_servers(&known, &now).into_iter();
        let keys = same.map(|old| old.map_or_else(new_key, |old| before[old].key.into())).collect();
        Arc::new(Self::with_keys(self.config.clone(), keys))
    }

    fn starts_all(&self) -> Option<Duration> {
        Some(self.config.startup_wait)
    }

    fn searches(&self) -> Option<Searched> {
        self.config.search.then_some(Searched::View)
    }

    fn instructions(&self, _viewer: &Viewer<'_>) -> Option<String> {
        Some(self.introduction())
    }

    fn own_tools(&self, view: &View, viewer: &Viewer<'_>) -> [Arc<String>; 2] {
        let look = viewer.look();
        let first = view.prepared(look, || self.first_tools(view, look));
        let call = keeps_its_list(viewer).then(|| self.call_tool());
        let read = is_on(self.offloading(), viewer.takes()).then(|| reading::definition(READ));
        [first, call.into_iter().chain(read).collect::<Vec<_>>().join(",").into()]
    }

    fn has_own_tool(&self, name: &str) -> bool {
        [ACTIVATE, READ, CALL].contains(&name) || (name == FIND && self.config.search)
    }

    fn call<'a>(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        call: &ToolCall<'a>,
        _remembered: Option<&Remembered>,
    ) -> Step<'a> {
        let step = match call.name {
            ACTIVATE => Switches::read(call.arguments).and_then(|switches| match viewer.settled {
                true => {
                    let change = self.resolve(view, &switches, viewer.look());
                    change.map(Step::Switch).map_err(|error| error + &waiting(view))
                }
                false => Ok(Step::Wait),
            }),
            FIND if self.config.search => match viewer.settled {
                true => Query::read(call.arguments).map(Step::Find).map_err(|wrong| wrong.join(" ")),
                false => Ok(Step::Wait),
            },
            DESCRIBE if self.config.search => match viewer.settled {
                true => described_names(call.arguments).map_err(|wrong| wrong.join(" ")).and_then(|names| {
                    let described = self.described(view, viewer.look(), &names);
                    described.map(|result| Step::result(tool_result(Ok(&result))))
                }),
                false => Ok(Step::Wait),
            },
            READ => reading::request(call.arguments).map(Step::Read).map_err(|wrong| wrong.join(" ")),
            CALL => called(call.arguments)
                .and_then(|(inner, given)| self.call_exposed(view, viewer, &inner, Some(given))),
            name => self.call_exposed(view, viewer, name, None),
        };
        step.unwrap_or_else(|error| Step::result(tool_result(Err(&error))))
    }

    fn opened(&self, _view: &View, _viewer: &Viewer<'_>, _opening: &Opening<'_>) -> Step<'static> {
        Step::Again
    }

    fn switched(&self, view: &View, viewer: &Viewer<'_>, change: &SwitchChange) -> String {
        let message = self.confirmation(view, viewer.look(), change);
        let result = match keeps_its_list(viewer) {
            true => self.activated(view, viewer.look(), &message, change),
            false => quote(&message),
        };
        tool_result(Ok(&result))
    }

    fn found(&self, view: &View, viewer: &Viewer<'_>, search: &SearchResult<'_>) -> String {
        tool_result(Ok(&self.found_things(view, viewer, search)))
    }

    fn reader(&self) -> &'static str {
        READ
    }

    fn unreadable(&self, why: &[String]) -> String {
        tool_result(Err(&why.join(" ")))
    }

    /// The state of a listed resource decides, otherwise that of the template that fits most closely. A
    /// resource that a result linked to can be read whatever its state, as long as its server is on offer.
    /// The same holds for an app's page that a host reads; any other client asks for a page as for any other
    /// resource.
    fn resource(&self, view: &View, viewer: &Viewer<'_>, wanted: &WantedUri<'_>) -> Found {
        let exposed = match page_owner(self, view, viewer, wanted.uri) {
            Ok(Some((upstream, own))) if viewer.renders_apps => return Found::At(upstream, quote(&own)),
            Ok(Some((upstream, own))) => Some(self.full_name(&upstream, Kind::Resource, &own)),
            Ok(None) => None,
            Err(several) => {
                let message = several_pages(wanted.uri, &several);
                return Found::Refused(self.refusal(code::RESOURCE_NOT_FOUND, &message));
            }
        };
        let uri = exposed.as_deref().unwrap_or(wanted.uri);
        let spellings = || spellings(self, view, uri);
        let unknown = || {
            let message = self.unknown_resource(view, viewer.look(), uri);
            Found::Refused(self.refusal(code::RESOURCE_NOT_FOUND, &message))
        };
        if uri == CATALOG {
            return match (viewer.settled, wanted.reads) {
                (false, _) => Found::Wait,
                (true, true) => Found::Own(self.catalog_resource(view, viewer)),
                (true, false) => unknown(),
            };
        }
        let linked = || {
            let sender = wanted.sender.clone().filter(|upstream| upstream.is_on_offer(self.listing()));
            sender.map(|upstream| Found::At(upstream, quote(uri)))
        };
        let inactive = |name: &str| {
            let message = self.inactive(Kind::Resource, name);
            linked().unwrap_or_else(|| Found::Refused(self.refusal(code::INVALID_PARAMS, &message)))
        };
        if let Some(target) = spellings().find_map(|uri| view.find(Kind::Resource, &uri)) {
            return match target.active || wanted.leaves {
                true => Found::At(target.upstream.clone(), target.raw_key().to_owned()),
                false => inactive(target.name()),
            };
        }
        let fitting = spellings().find_map(|uri| Some((closest_template(view, &uri)?, uri)));
        if let Some(((entry, item), uri)) = fitting {
            if wanted.leaves || view.is_active(Kind::Template, item) {
                let (upstream, own) = own_uri(self, &entry.upstream, &uri);
                return Found::At(upstream, own);
            }
            return inactive(&item.name);
        }
        linked().unwrap_or_else(|| if viewer.settled { unknown() } else { Found::Wait })
    }

    /// The error's data has Toolman's own shape.
    fn refusal(&self, code: i64, message: &str) -> Refusal {
        super::refusal(code, message)
    }

    fn failed_call(&self, target: &Target, failure: &CallFailure<'_>) -> Wording {
        match failure {
            CallFailure::Refused(_) => Wording::AsItCame,
            CallFailure::Lost(lost) => {
                Wording::Result(tool_result(Err(&format!("{}: {lost}", target.name()))))
            }
        }
    }

    fn failed_wait(&self, call: &ToolCall<'_>, _upstream: &Upstream, error: &StartError) -> Wording {
        let inner = if call.name == CALL { called(call.arguments).ok() } else { None };
        let name = inner.as_ref().map_or(call.name, |(inner, _)| inner);
        Wording::Result(tool_result(Err(&format!("{name}: {error}"))))
    }

    fn too_late(&self, _view: &View, call: &ToolCall<'_>, reason: &str) -> Wording {
        let inner = if call.name == CALL { called(call.arguments).ok() } else { None };
        let name = inner.as_ref().map_or(call.name, |(inner, _)| inner);
        Wording::Result(tool_result(Err(&format!("{name}: {reason}"))))
    }
}

impl Toolman {
    /// What a call of a server's tool, by its exposed name, means; the error is for the model.
    fn call_exposed<'a>(
        &self,
        view: &View,
        viewer: &Viewer<'_>,
        name: &str,
        arguments: Option<Option<Node<'a>>>,
    ) -> Result<Step<'a>, String> {
        let can_be_called = |target: &Target| target.active || (viewer.renders_apps && target.is_app_only());
        // Apps know their servers' own names for tools.
        let called = || if viewer.renders_apps { view.find_called(name) } else { Vec::new() };
        let found = view.find_tool(self, name).map_or_else(called, |target| vec![target]);
        match &found[..] {
            [target] if can_be_called(target) => Ok(Step::Forward(target.clone(), arguments)),
            [target] => Err(self.inactive(Kind::Tool, target.name())),
            [_, ..] => Err(several_called(name, &found)),
            [] if !viewer.settled => Ok(Step::Wait),
            [] => match starting_with(view, name) {
                Some(upstream) => Ok(Step::WaitFor(upstream)),
                None => Err(self.unknown_tool(view, viewer.look(), name) + &waiting(view)),
            },
        }
    }

    /// The result of reading the catalog.
    fn catalog_resource(&self, view: &View, viewer: &Viewer<'_>) -> String {
        let catalog = self.catalog(view, viewer.look()) + &waiting(view);
        format!(
            "{{\"contents\":[{{\"uri\":\"{CATALOG}\",\"mimeType\":\"text/plain\",\"text\":{}}}]}}",
            quote(&catalog)
        )
    }
}

/// Whether a client keeps the list of tools that it has. It must call what is switched on through
/// `toolman_call`, so the answer to the switch holds the definitions.
fn keeps_its_list(viewer: &Viewer<'_>) -> bool {
    viewer.modern || viewer.client.is_some_and(|client| Behaviour::of(&client.name).keeps_its_list())
}

/// A server that is still starting and may have the tool of this name.
fn starting_with(view: &View, name: &str) -> Option<Arc<Upstream>> {
    let is_meant = |upstream: &&Arc<Upstream>| {
        let rest = name.strip_prefix(&*upstream.group);
        !upstream.group.is_empty() && rest.is_some_and(|rest| rest.starts_with('_')) && upstream.is_starting()
    };
    view.entries().map(|entry| &entry.upstream).find(is_meant).cloned()
}

/// The text about servers whose tools and resources are missing because somebody has to log in first.
fn waiting(view: &View) -> String {
    let upstreams = view.entries().map(|entry| &entry.upstream);
    let logins = upstreams.filter_map(|upstream| Some((upstream.to_string(), upstream.login()?.url)));
    super::waiting(&logins.collect::<Vec<_>>())
}
