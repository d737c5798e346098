//! The toolman face at work: start of all servers, activation, calls, resources.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::items::closest_template;
use super::{Gateway, SHUTTING_DOWN};
use crate::config::{Isolation, NamespacedServer, ToolFilter, Transport};
use crate::core::catalog::Kind;
use crate::core::reload::same_servers;
use crate::core::reply::Reply;
use crate::core::upstream::{Spec, Upstream};
use crate::core::view::{Exposure, Target, View};
use crate::core::window::Window;
use crate::faces::toolman::{self as face, ACTIVATE, CALL, CATALOG, Change, FIND, Switches, Toolman};
use crate::store::Switched;
use crate::wire::json::{Node, Scanner, quote};
use crate::wire::peer::Answer;

/// The face, and how far its servers are.
pub struct Bench {
    /// What it shows.
    pub face: Arc<Toolman>,
    /// Where switches are remembered, if they are.
    memory: Option<Memory>,
    /// Requests that wait for servers; `None` once each of them is up, failed or late.
    waiting: Arc<Mutex<Option<Vec<Waiting>>>>,
    /// What each server of the file is known by, also when the file changes around it: namespaces need not be unique.
    keys: Vec<Arc<str>>,
}

/// A request that may be answered better when more servers are up.
struct Waiting {
    method: &'static str,
    params: String,
    reply: Reply,
}

/// Where switches are remembered.
#[derive(Clone)]
pub struct Memory {
    /// The directory for state.
    pub state: PathBuf,
    /// The file there that holds them.
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
        let keys = face.config.servers.iter().map(|_| new_key()).collect();
        Self { face: Arc::new(face), memory, waiting: Arc::new(Mutex::new(Some(Vec::new()))), keys }
    }

    /// The bench of a new file in the place of an older one: servers that are the same keep what they are known by.
    pub(super) fn renewed(&self, new: &Self) -> Self {
        fn known(bench: &Bench) -> Vec<(&str, &Transport)> {
            let servers = bench.face.config.servers.iter();
            servers.map(|server| (server.namespace.as_str(), &server.transport)).collect()
        }
        let same = same_servers(&known(self), &known(new));
        let keys = same.into_iter().map(|old| old.map_or_else(new_key, |old| self.keys[old].clone()));
        Self {
            face: new.face.clone(),
            memory: new.memory.clone(),
            waiting: self.waiting.clone(),
            keys: keys.collect(),
        }
    }

    /// What the file says of the server that is known by this.
    pub(super) fn spec(&self, key: &str) -> Option<Spec> {
        let at = self.keys.iter().position(|other| **other == *key)?;
        Some(spec(&self.face.config.servers[at]))
    }

    /// The same bench for those who may see only some of its servers.
    pub(super) fn part(&self, admits: &dyn Fn(&str) -> bool) -> Self {
        let mut config = self.face.config.clone();
        let all = config.servers.iter().zip(&self.keys);
        let keys = all.filter(|(server, _)| admits(&server.namespace)).map(|(_, key)| key.clone()).collect();
        config.servers.retain(|server| admits(&server.namespace));
        Self { face: Arc::new(Toolman::new(config)), memory: None, waiting: self.waiting.clone(), keys }
    }

    /// Whether every server is up, failed or late.
    pub(super) fn is_ready(&self) -> bool {
        self.waiting.lock().is_none()
    }

    /// Says so where a client may stumble over the names of resources.
    fn warn_of_schemes(&self, window: &Window) {
        let view = window.view();
        let mut resources = [Kind::Resource, Kind::Template].into_iter().flat_map(|kind| view.items(kind));
        let prefixed = resources.any(|(entry, _)| !entry.upstream.group.is_empty());
        if prefixed && self.face.config.resource_separator.contains('_') {
            log::warn!(
                "clients with a strict URI parser reject the `_` in the schemes of resources; \
                 if yours does, write resource_separator = \"+\""
            );
        }
    }

    /// Remembers what was switched, as it is by the time that it can, and goes on. It may have to wait for another
    /// process, which must not hold up anybody else.
    fn remember(&self, window: &Arc<Window>, change: Change, go_on: impl FnOnce() + Send + 'static) {
        let Some(memory) = self.memory.clone() else { return go_on() };
        let window = window.clone();
        tokio::task::spawn_blocking(move || {
            let saved = Switched::change(&memory.state, &memory.path, |all| {
                all.file = memory.config.display().to_string();
                let view = window.view();
                for (class, known) in [&mut all.tools, &mut all.resources].into_iter().enumerate() {
                    let names = change.on[class].iter().chain(&change.off[class]);
                    let switched = names.filter_map(|name| view.switched[class].get_key_value(name));
                    known.extend(switched.map(|(name, on)| (name.to_string(), *on)));
                }
            });
            if let Err(error) = saved {
                log::warn!("what was switched cannot be remembered in {}: {error}", memory.path.display());
            }
            go_on();
        });
    }
}

impl Gateway {
    /// Puts every server into a window, and what was switched before.
    pub(super) fn furnish(self: &Arc<Self>, bench: &Arc<Bench>, window: &Arc<Window>) {
        if let Some(memory) = &bench.memory {
            let Switched { tools, resources, .. } = Switched::load(&memory.path);
            let known = |names: BTreeMap<String, bool>| {
                names.into_iter().map(|(name, on)| (name.into(), on)).collect()
            };
            window.view().remembered = [known(tools), known(resources)];
        }
        let upstreams = self.bench_upstreams(bench, window, true);
        {
            let mut view = window.view();
            view.add(&*window.exposure(), &upstreams);
            for upstream in &upstreams {
                view.open_in_place(&upstream.group);
            }
        }
        for upstream in upstreams.iter().filter(|upstream| upstream.spec().isolation == Isolation::Session) {
            let _ = upstream.start();
        }
    }

    /// Every server, in the order of the file; `restart` lets those that the file wants restarted be so.
    pub(super) fn bench_upstreams(
        self: &Arc<Self>,
        bench: &Bench,
        window: &Window,
        restart: bool,
    ) -> Vec<Arc<Upstream>> {
        let servers = bench.face.config.servers.iter().enumerate();
        servers
            .map(|(index, server)| {
                let label = match &*server.namespace {
                    "" => format!("server {}", index + 1),
                    namespace => namespace.to_owned(),
                };
                // The same server has the same key, whichever part of the file a caller may see.
                let key = &bench.keys[index];
                self.engine.upstream(window, &server.namespace, key, &label, || {
                    let spec = spec(server);
                    Spec { restart: spec.restart && restart, ..spec }
                })
            })
            .collect()
    }

    /// Starts every server at once; lists wait until each is up or failed, for a while.
    pub(super) fn start_bench(self: &Arc<Self>, bench: &Arc<Bench>, window: &Arc<Window>) {
        let (gateway, bench, window) = (self.clone(), bench.clone(), window.clone());
        tokio::spawn(async move {
            let on_each = || {
                let waiting = bench.waiting.lock().as_mut().map(std::mem::take);
                gateway.resume(waiting);
            };
            // Whoever is late is announced, and nobody waits for it any more.
            gateway.engine.start_all(&window, bench.face.config.startup_wait, on_each).await;
            bench.warn_of_schemes(&window);
            gateway.prepare_search(&window);
            let waiting = bench.waiting.lock().take();
            gateway.resume(waiting);
        });
    }

    /// Handles the request again when another server is up, and at last when all have had their time.
    pub(super) fn later(
        self: &Arc<Self>,
        bench: &Arc<Bench>,
        method: &'static str,
        params: Node<'_>,
        reply: Reply,
    ) {
        let mut waiting = bench.waiting.lock();
        match &mut *waiting {
            Some(requests) => requests.push(Waiting { method, params: params.raw().to_owned(), reply }),
            None => {
                drop(waiting);
                self.request(method, Some(params), reply);
            }
        }
    }

    /// Handles requests that waited, in their order; those that must wait on do so.
    fn resume(self: &Arc<Self>, waiting: Option<Vec<Waiting>>) {
        for Waiting { method, params, reply } in waiting.into_iter().flatten() {
            if reply.is_wanted() {
                let mut scanner = Scanner::default();
                let params = scanner.scan_str(&params).expect("a part of valid JSON").root();
                match self.engine.has_ended() {
                    true => self.turn_away(method, Some(params), reply),
                    false => self.request(method, Some(params), reply),
                }
            }
        }
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
                    Ok(switches) => match self.activate(bench, &reply, &switches) {
                        Ok((result, change)) => {
                            let window = reply.session().window.clone();
                            let answer = move || reply.result(&face::tool_result(Ok(&result)));
                            return bench.remember(&window, change, answer);
                        }
                        Err(error) => error,
                    },
                    Err(error) => error,
                };
                reply.result(&face::tool_result(Err(&refused)));
            }
            FIND if bench.face.config.search => match bench.is_ready() {
                true => self.toolman_find(bench, arguments, reply),
                false => self.later(bench, "tools/call", params, reply),
            },
            CALL => match face::called(arguments) {
                Ok((inner, given)) => {
                    let changes = [("arguments", given.map(Node::raw))];
                    self.call_exposed(bench, &inner, params, &changes, reply);
                }
                Err(error) => reply.result(&face::tool_result(Err(&error))),
            },
            name => self.call_exposed(bench, name, params, &[], reply),
        }
    }

    /// Answers a call that comes too late.
    pub(super) fn turn_away_exposed(&self, name: &str, arguments: Option<Node<'_>>, reply: Reply) {
        let inner = if name == CALL { face::called(arguments).ok() } else { None };
        let name = inner.as_ref().map_or(name, |(inner, _)| inner);
        reply.result(&face::tool_result(Err(&format!("{name}: {SHUTTING_DOWN}"))));
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
        let found = session.view().find(Kind::Tool, name);
        match found {
            Some(target) if target.active => self.forward_exposed(target, params, changes, reply),
            Some(target) => {
                reply.result(&face::tool_result(Err(&bench.face.inactive(Kind::Tool, target.name()))))
            }
            None if !bench.is_ready() => self.later(bench, "tools/call", params, reply),
            None => {
                let view = session.view();
                let error = bench.face.unknown_tool(&view, name) + &waiting(&view);
                drop(view);
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
        let asked = target.clone();
        let mut all = vec![("name", Some(target.raw_key()))];
        all.extend_from_slice(changes);
        self.engine.forward(&target.upstream, "tools/call", params, &all, reply, move |answer, reply| {
            match answer {
                Answer::Result(result) => reply.result_with(|out| result.write(out)),
                Answer::Error(error) => reply.raw_error(error),
                Answer::Lost(lost) => {
                    reply.result(&face::tool_result(Err(&format!("{}: {lost}", asked.name()))))
                }
            }
        });
    }

    /// Switches what the call names, all or nothing, and tells the client of the lists that changed. Returns the result
    /// and the change.
    fn activate(
        &self,
        bench: &Bench,
        reply: &Reply,
        switches: &Switches,
    ) -> Result<(String, Change), String> {
        let session = reply.session();
        let (result, changed, change) = {
            let mut view = session.view();
            let change = bench.face.resolve(&view, switches, reply.modern().is_some());
            let change = change.map_err(|error| error + &waiting(&view))?;
            let mut changed = view.switch(&change.on, &change.off);
            // The catalog stands in the list of tools, so that list changes with every switch.
            if !changed.is_empty() && !changed.contains(&Kind::Tool) {
                changed.push(Kind::Tool);
            }
            let message = bench.face.confirmation(&view, &change);
            let result = match reply.modern() {
                Some(_) => bench.face.activated(&view, &message, &change),
                None => quote(&message),
            };
            (result, changed, change)
        };
        self.engine.tell(&session.window, &changed);
        Ok((result, change))
    }

    /// Where a URI leads: a listed resource's own state decides, else that of the template that fits most closely; what
    /// a result linked to can be read whatever its state, as long as its server runs. With `left`, the state does not
    /// matter.
    pub(super) fn find_resource(
        &self,
        bench: &Bench,
        window: &Window,
        uri: &str,
        left: bool,
    ) -> Option<Found> {
        if uri == CATALOG {
            return Some(Found::Catalog);
        }
        let view = window.view();
        let linked = || {
            let sender = window.link_sender(&view, uri);
            let sender = sender.filter(|upstream| upstream.link().is_some());
            sender.map(|upstream| Found::Resource(upstream, quote(uri)))
        };
        if let Some(target) = view.find(Kind::Resource, uri) {
            return match target.active || left {
                true => Some(Found::Resource(target.upstream.clone(), target.raw_key().to_owned())),
                false => linked().or_else(|| Some(Found::Inactive(target.name().to_string()))),
            };
        }
        let closest = closest_template(&view, uri);
        if let Some((entry, item)) = closest
            && (left || view.is_active(Kind::Template, item))
        {
            let prefix = bench.face.full_name(&entry.upstream, Kind::Template, "");
            let own = uri.strip_prefix(&prefix).unwrap_or(uri);
            return Some(Found::Resource(entry.upstream.clone(), quote(own)));
        }
        linked().or_else(|| closest.map(|(_, item)| Found::Inactive(item.name.to_string())))
    }

    pub(super) fn read_catalog(&self, bench: &Bench, reply: Reply) {
        let view = reply.session().view();
        let catalog = bench.face.catalog(&view, reply.modern().is_some()) + &waiting(&view);
        drop(view);
        reply.result(&format!(
            "{{\"contents\":[{{\"uri\":\"{CATALOG}\",\"mimeType\":\"text/plain\",\"text\":{}}}]}}",
            quote(&catalog)
        ));
    }
}

/// What is said of servers whose things are not there because somebody has to log in first.
fn waiting(view: &View) -> String {
    let upstreams = view.entries().map(|entry| &entry.upstream);
    let logins = upstreams.filter_map(|upstream| Some((upstream.to_string(), upstream.login()?.url)));
    face::waiting(&logins.collect::<Vec<_>>())
}

/// What the engine needs to know of a server.
fn spec(server: &NamespacedServer) -> Spec {
    Spec {
        transport: server.transport.clone(),
        filter: ToolFilter::All,
        timeouts: server.timeouts,
        // What is behind a URL is always reconnected to.
        restart: server.restart || matches!(server.transport, Transport::Http(_)),
        lives_on: server.isolation == Isolation::Shared,
        isolation: server.isolation,
    }
}

/// What a server is known by that was not there before.
fn new_key() -> Arc<str> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string().into()
}
