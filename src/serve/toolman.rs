//! The toolman face at work: start of all servers, activation, calls, resources.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use super::Gateway;
use crate::config::ToolFilter;
use crate::core::catalog::Kind;
use crate::core::session::{Reply, Session};
use crate::core::upstream::{Spec, Upstream};
use crate::core::view::{Exposure, Target};
use crate::faces::toolman::{self as face, ACTIVATE, CALL, CATALOG, Change, Switches, Toolman};
use crate::faces::uri_template;
use crate::store::Switched;
use crate::wire::json::{Node, Scanner, quote};
use crate::wire::peer::Answer;

/// The face, and how far its servers are.
pub struct Bench {
    pub(super) face: Arc<Toolman>,
    /// Where switches are remembered, if they are.
    memory: Option<Memory>,
    ready: watch::Sender<bool>,
}

/// Where switches are remembered.
pub struct Memory {
    /// The file that holds them.
    pub path: PathBuf,
    /// The `tools.toml` that they belong to.
    pub config: PathBuf,
}

/// Where a URI leads.
pub(super) enum Found {
    /// To an upstream, under this URI there, as JSON.
    Resource(Arc<Upstream>, String),
    /// To the catalog.
    Catalog,
    /// To something that is switched off: its name.
    Inactive(String),
}

impl Bench {
    /// A bench whose servers are still to be started.
    pub fn new(face: Toolman, memory: Option<Memory>) -> Self {
        Self { face: Arc::new(face), memory, ready: watch::Sender::new(false) }
    }

    pub(super) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    fn save(&self, session: &Session) {
        let Some(memory) = &self.memory else { return };
        let view = session.view.lock();
        let saved =
            |class: usize| view.switched[class].iter().map(|(name, on)| (name.to_string(), *on)).collect();
        let file = memory.config.display().to_string();
        let switched = Switched { file, tools: saved(0), resources: saved(1) };
        drop(view);
        if let Err(error) = switched.save(&memory.path) {
            log::warn!("what was switched cannot be remembered in {}: {error}", memory.path.display());
        }
    }
}

impl Gateway {
    /// Starts every server at once; lists wait until each is up or failed, for a while.
    pub(super) fn start_bench(self: &Arc<Self>, bench: &Arc<Bench>, session: &Arc<Session>) {
        if let Some(memory) = &bench.memory {
            let Switched { tools, resources, .. } = Switched::load(&memory.path);
            let known = |names: std::collections::BTreeMap<String, bool>| {
                names.into_iter().map(|(name, on)| (name.into(), on)).collect()
            };
            session.view.lock().switched = [known(tools), known(resources)];
        }
        let servers = bench.face.config.servers.iter().enumerate();
        let upstreams: Vec<_> = servers
            .map(|(index, server)| {
                let label = match &*server.namespace {
                    "" => format!("server {}", index + 1),
                    namespace => namespace.to_owned(),
                };
                self.engine.upstream(&server.namespace, &index.to_string(), &label, || Spec {
                    transport: server.transport.clone(),
                    filter: ToolFilter::All,
                    timeouts: server.timeouts,
                    restart: server.restart,
                })
            })
            .collect();
        let (gateway, bench, session) = (self.clone(), bench.clone(), session.clone());
        tokio::spawn(async move {
            gateway.engine.start_all(&session, &upstreams, bench.face.config.startup_wait).await;
            let strict = bench.face.config.resource_separator == "_"
                && session
                    .view
                    .lock()
                    .items(Kind::Resource)
                    .any(|(entry, _)| !entry.upstream.group.is_empty());
            if strict {
                log::info!(
                    "clients with a strict URI parser reject the `_` in exposed URIs; resource_separator = \"+\" helps"
                );
            }
            bench.ready.send_replace(true);
        });
    }

    /// Handles the request once the servers have had their time.
    pub(super) fn later(
        self: &Arc<Self>,
        bench: &Arc<Bench>,
        method: &'static str,
        params: Node<'_>,
        reply: Reply,
    ) {
        let (gateway, bench, params) = (self.clone(), bench.clone(), params.raw().to_owned());
        tokio::spawn(async move {
            let _ = bench.ready.subscribe().wait_for(|ready| *ready).await;
            let mut scanner = Scanner::default();
            let params = scanner.scan_str(&params).expect("a part of valid JSON").root();
            gateway.request(method, Some(params), reply);
        });
    }

    pub(super) fn call_toolman(
        self: &Arc<Self>,
        bench: &Arc<Bench>,
        name: &str,
        params: Node<'_>,
        arguments: Option<Node<'_>>,
        reply: Reply,
    ) {
        match name {
            ACTIVATE => {
                let refused = match Switches::read(arguments) {
                    Ok(_) if !bench.is_ready() => return self.later(bench, "tools/call", params, reply),
                    Ok(switches) => match self.activate(bench, reply.session(), &switches) {
                        Ok(message) => return reply.result(&face::tool_result(Ok(&quote(&message)))),
                        Err(error) => error,
                    },
                    Err(error) => error,
                };
                reply.result(&face::tool_result(Err(&refused)));
            }
            CALL => {
                let inner = arguments.and_then(|arguments| arguments.get("name")).and_then(Node::as_str);
                let given = arguments.and_then(|arguments| arguments.get("arguments"));
                match (inner, given) {
                    (Some(inner), given) if given.is_none_or(Node::is_object) => {
                        let changes = [("arguments", given.map(Node::raw))];
                        self.call_exposed(bench, &inner, params, &changes, reply);
                    }
                    _ => {
                        let expected =
                            "Invalid parameters: name must be a string, arguments an object if there are any";
                        reply.result(&face::tool_result(Err(expected)));
                    }
                }
            }
            name => self.call_exposed(bench, name, params, &[], reply),
        }
    }

    fn call_exposed(
        self: &Arc<Self>,
        bench: &Arc<Bench>,
        name: &str,
        params: Node<'_>,
        changes: &[(&str, Option<&str>)],
        reply: Reply,
    ) {
        let session = reply.session().clone();
        let found = session.view.lock().find(Kind::Tool, name);
        match found {
            Some(target) if target.active => self.forward_exposed(target, params, changes, reply),
            Some(target) => {
                reply.result(&face::tool_result(Err(&bench.face.inactive(Kind::Tool, &target.name))))
            }
            None if !bench.is_ready() => self.later(bench, "tools/call", params, reply),
            None => {
                let error = bench.face.unknown_tool(&session.view.lock(), name);
                reply.result(&face::tool_result(Err(&error)));
            }
        }
    }

    /// Sends a call on under the upstream's own name; what the upstream answers comes back as it is.
    fn forward_exposed(
        self: &Arc<Self>,
        target: Target,
        params: Node<'_>,
        changes: &[(&str, Option<&str>)],
        reply: Reply,
    ) {
        let raw_key = target.raw_key.clone();
        let mut all = vec![("name", Some(&*raw_key))];
        all.extend_from_slice(changes);
        self.engine.forward(&target.upstream, "tools/call", params, &all, reply, move |answer, reply| {
            match answer {
                Answer::Result(result) => reply.result_with(|out| result.write(out)),
                Answer::Error(error) => reply.raw_error(error),
                Answer::Lost(lost) => {
                    reply.result(&face::tool_result(Err(&format!("{}: {lost}", target.name))))
                }
            }
        });
    }

    /// Switches what the call names, all or nothing, and tells the client of the lists that changed.
    fn activate(&self, bench: &Bench, session: &Arc<Session>, switches: &Switches) -> Result<String, String> {
        let (message, changed) = {
            let mut view = session.view.lock();
            let change = bench.face.resolve(&view, switches)?;
            let states = |view: &crate::core::view::View, kind| {
                view.items(kind).map(|(_, item)| view.is_active(kind, item)).collect::<Vec<_>>()
            };
            let before = Kind::ALL.map(|kind| states(&view, kind));
            let Change { on, off } = &change;
            for (names, active) in [(on, true), (off, false)] {
                for (class, names) in names.iter().enumerate() {
                    view.switched[class].extend(names.iter().map(|name| (name.clone(), active)));
                }
            }
            let mut changed: Vec<Kind> =
                Kind::ALL.into_iter().filter(|kind| before[*kind as usize] != states(&view, *kind)).collect();
            // The catalog stands in the list of tools, so that list changes with every switch.
            if !changed.is_empty() && !changed.contains(&Kind::Tool) {
                changed.push(Kind::Tool);
            }
            (bench.face.confirmation(&view, &change), changed)
        };
        self.engine.tell(session, changed);
        bench.save(session);
        Ok(message)
    }

    /// Where a URI leads: a listed resource's own state decides before that of a template that fits; what a result
    /// linked to can be read whatever its state.
    pub(super) fn find_resource(&self, bench: &Bench, session: &Session, uri: &str) -> Option<Found> {
        if uri == CATALOG {
            return Some(Found::Catalog);
        }
        let linked = || session.link_sender(uri).map(|upstream| Found::Resource(upstream, quote(uri)));
        let view = session.view.lock();
        if let Some(target) = view.find(Kind::Resource, uri) {
            return match target.active {
                true => Some(Found::Resource(target.upstream, target.raw_key.to_string())),
                false => linked().or_else(|| Some(Found::Inactive(target.name.to_string()))),
            };
        }
        let mut inactive = None;
        for strict in [true, false] {
            for (entry, item) in view.items(Kind::Template) {
                if !uri_template::fits(&item.name, uri, strict) {
                    continue;
                }
                if view.is_active(Kind::Template, item) {
                    let prefix = bench.face.full_name(&entry.upstream, Kind::Template, "");
                    let own = uri.strip_prefix(&prefix).unwrap_or(uri);
                    return Some(Found::Resource(entry.upstream.clone(), quote(own)));
                }
                inactive.get_or_insert_with(|| item.name.to_string());
            }
        }
        linked().or_else(|| inactive.map(Found::Inactive))
    }

    pub(super) fn read_catalog(&self, bench: &Bench, reply: Reply) {
        let catalog = bench.face.catalog(&reply.session().view.lock());
        reply.result(&format!(
            "{{\"contents\":[{{\"uri\":\"{CATALOG}\",\"mimeType\":\"text/plain\",\"text\":{}}}]}}",
            quote(&catalog)
        ));
    }
}
