//! The middle: which upstreams there are, which clients, and how requests go from one to the other.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::catalog::Kind;
use super::connection::{Caller, Link};
use super::level;
use super::process::Launcher;
use super::session::{Reply, Session};
use super::upstream::{Spec, Upstream};
use super::view::Exposure;
use crate::config::Common;
use crate::wire::era::Version;
use crate::wire::json::{Node, Scanner};
use crate::wire::message::write_number;
use crate::wire::peer::{Answer, Lost};

/// Owns the upstreams and knows the clients. Its parts lock briefly and never across an await.
pub struct Engine {
    pub(super) launcher: Launcher,
    /// Our environment, as upstreams may inherit it.
    pub(super) vars: Vec<(OsString, OsString)>,
    /// Our working directory.
    pub(super) directory: PathBuf,
    settings: Common,
    exposure: Arc<dyn Exposure + Send + Sync>,
    /// By group and server.
    upstreams: Mutex<Upstreams>,
    session: Mutex<Weak<Session>>,
    /// While the first lists wait for upstreams, nobody need be told that they change.
    starting: AtomicBool,
    /// One task a connection; `None` when the gateway ends.
    tasks: Mutex<Option<JoinSet<()>>>,
}

type Upstreams = HashMap<(Arc<str>, Arc<str>), Arc<Upstream>>;

/// What the engine needs of the world around it.
pub struct Surroundings {
    /// Starts processes.
    pub launcher: Launcher,
    /// The environment.
    pub vars: Vec<(OsString, OsString)>,
    /// The working directory.
    pub directory: PathBuf,
}

/// How long the upstreams of a gateway that ends may take.
const LONGEST_END: Duration = Duration::from_secs(3);

impl Engine {
    /// An engine without upstreams.
    pub fn new(
        settings: Common,
        exposure: Arc<dyn Exposure + Send + Sync>,
        around: Surroundings,
    ) -> Arc<Self> {
        Arc::new(Self {
            launcher: around.launcher,
            vars: around.vars,
            directory: around.directory,
            settings,
            exposure,
            upstreams: Mutex::default(),
            session: Mutex::default(),
            starting: AtomicBool::new(false),
            tasks: Mutex::new(Some(JoinSet::new())),
        })
    }

    /// Makes the client known to upstreams.
    pub fn attach(&self, session: &Arc<Session>) {
        *self.session.lock() = Arc::downgrade(session);
    }

    /// Top-level settings of the file.
    pub fn settings(&self) -> &Common {
        &self.settings
    }

    /// How the face names things.
    pub fn exposure(&self) -> &dyn Exposure {
        &*self.exposure
    }

    /// The upstream for a server of a group; the same one each time.
    pub fn upstream(
        self: &Arc<Self>,
        group: &str,
        server: &str,
        label: &str,
        spec: impl FnOnce() -> Spec,
    ) -> Arc<Upstream> {
        let mut upstreams = self.upstreams.lock();
        let key = (group.into(), server.into());
        upstreams
            .entry(key)
            .or_insert_with(|| Upstream::new(group, server, label, spec(), Arc::downgrade(self)))
            .clone()
    }

    /// Connects to all upstreams of a group at once and waits until each is up or failed; those that run are left
    /// alone. Their things stand in the client's lists afterwards, unless every one failed. Returns the reasons of
    /// those that failed.
    pub async fn open(
        self: &Arc<Self>,
        session: &Arc<Session>,
        group: &str,
        upstreams: &[Arc<Upstream>],
    ) -> Vec<(Arc<str>, Arc<str>)> {
        session.view.lock().add(&*self.exposure, upstreams);
        let starts: Vec<_> = upstreams.iter().map(Upstream::start).collect();
        let mut failed = Vec::new();
        for (upstream, start) in upstreams.iter().zip(starts) {
            let outcome = match start {
                Ok(phase) => upstream.settled(phase).await.map(drop),
                Err(refused) => Err(refused),
            };
            if let Err(reason) = outcome {
                failed.push((upstream.server.clone(), reason));
            }
        }
        let changed = {
            let mut view = session.view.lock();
            if !failed.is_empty() && failed.len() == upstreams.len() && !view.is_open(group) {
                view.remove(group);
                Vec::new()
            } else {
                view.open(group)
            }
        };
        self.tell(session, changed);
        failed
    }

    /// Starts upstreams that stand in the client's lists as soon as each is up, and waits until every one is up or
    /// failed, but no longer than `patience`. The client hears of changes only afterwards.
    pub async fn start_all(
        self: &Arc<Self>,
        session: &Session,
        upstreams: &[Arc<Upstream>],
        patience: Duration,
    ) {
        self.starting.store(true, Ordering::Relaxed);
        {
            let mut view = session.view.lock();
            view.add(&*self.exposure, upstreams);
            for upstream in upstreams {
                view.open(&upstream.group);
            }
        }
        let starts: Vec<_> = upstreams.iter().map(Upstream::start).collect();
        let settled = async {
            for (upstream, start) in upstreams.iter().zip(starts) {
                if let Ok(phase) = start {
                    let _ = upstream.settled(phase).await;
                }
            }
        };
        let _ = tokio::time::timeout(patience, settled).await;
        self.starting.store(false, Ordering::Relaxed);
    }

    /// Takes a toolbox out of the client's view and ends its servers. Returns how many ran.
    pub fn close(&self, session: &Arc<Session>, group: &str) -> usize {
        let (changed, upstreams) = {
            let mut view = session.view.lock();
            let upstreams: Vec<_> = view.group(group).map(|entry| entry.upstream.clone()).collect();
            (view.remove(group), upstreams)
        };
        let running = upstreams.iter().filter(|upstream| upstream.is_up()).count();
        for upstream in &upstreams {
            upstream.stop();
        }
        self.tell(session, changed);
        running
    }

    /// Sends a client's request to an upstream, starting it first if need be. `changes` are members of `params` to
    /// set or take away; the progress token is mapped. `finish` turns the answer into the reply.
    pub fn forward(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        method: &'static str,
        params: Node<'_>,
        changes: &[(&str, Option<&str>)],
        reply: Reply,
        finish: impl FnOnce(Answer<'_>, Reply) + Send + 'static,
    ) {
        if let Some(link) = upstream.link() {
            return send(&link, method, params, changes, reply, finish);
        }
        let mut changed = Vec::new();
        params.write_with(&mut changed, changes);
        let (upstream, text) =
            (upstream.clone(), String::from_utf8(changed).expect("written from UTF-8 texts"));
        tokio::spawn(async move {
            match upstream.up().await {
                Ok(link) if reply.is_wanted() => {
                    let mut scanner = Scanner::default();
                    let params = scanner.scan_str(&text).expect("written as valid JSON").root();
                    send(&link, method, params, &[], reply, finish);
                }
                Ok(_) => {}
                Err(reason) => {
                    let server = &upstream.server;
                    let reason =
                        format!("the server '{server}' is not running and could not be started: {reason}");
                    finish(Answer::Lost(&Lost::new(reason)), reply);
                }
            }
        });
    }

    /// Sends a client's notification to every running upstream of its view.
    pub fn broadcast(&self, session: &Session, method: &str, params: Option<Node<'_>>) {
        for entry in session.view.lock().entries() {
            if let Some(link) = entry.upstream.link() {
                link.peer.notify(method, |out| {
                    if let Some(params) = params {
                        params.write(out);
                    }
                });
            }
        }
    }

    /// Sets the level of log messages, for running upstreams and for those to come.
    pub fn set_log_level(&self, session: &Session, params: Node<'_>) {
        session.set_log_level(params.raw());
        for entry in session.view.lock().entries() {
            if let Some(link) = entry.upstream.link()
                && link.can("logging")
            {
                send_quietly(&link, "logging/setLevel", params.raw());
            }
        }
    }

    /// Ends every upstream and waits until nothing of them is left.
    pub async fn shut_down(&self) {
        let tasks = self.tasks.lock().take();
        let upstreams: Vec<_> = self.upstreams.lock().values().cloned().collect();
        for upstream in upstreams {
            upstream.stop();
        }
        if let Some(mut tasks) = tasks {
            // A task that is cut off drops its process's control, which kills the tree.
            let _ =
                tokio::time::timeout(LONGEST_END, async { while tasks.join_next().await.is_some() {} }).await;
        }
    }

    /// Runs a task that is waited for at the end. `false`: the end has come.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        match &mut *self.tasks.lock() {
            Some(tasks) => {
                while tasks.try_join_next().is_some() {}
                tasks.spawn(task);
                true
            }
            None => false,
        }
    }

    /// Called by an upstream when it came up, went down or offers other things.
    pub(super) fn upstream_changed(&self, upstream: &Arc<Upstream>) {
        if let Some(session) = self.session() {
            let changed = session.view.lock().refresh(&*self.exposure, upstream);
            self.tell(&session, changed);
        }
        if upstream.spec.restart && upstream.has_failed() {
            let upstream = upstream.clone();
            self.spawn(async move {
                tokio::time::sleep(upstream.wait()).await;
                let _ = upstream.start();
            });
        }
    }

    /// Tells the client of changed lists, those that it sees.
    pub fn tell(&self, session: &Session, mut changed: Vec<Kind>) {
        if self.starting.load(Ordering::Relaxed) {
            return;
        }
        changed.retain(|kind| self.exposure.lists(session.hello(), *kind));
        session.lists_changed(&changed);
    }

    /// The client, while there is one.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        self.session.lock().upgrade()
    }

    /// Which version we offer upstreams and which capabilities we tell them: those of the client.
    pub(super) fn client_for_upstreams(&self) -> (Version, String) {
        match self.session().as_ref().and_then(|session| session.hello()) {
            Some(hello) => (hello.version, hello.capabilities.clone()),
            None => (Version::LATEST, "{\"roots\":{},\"sampling\":{},\"elicitation\":{}}".to_owned()),
        }
    }

    /// Tells a fresh upstream what the client has set before.
    pub(super) fn greeted(&self, link: &Arc<Link>) {
        if let Some(session) = self.session()
            && let Some(level) = session.log_level()
            && link.can("logging")
        {
            send_quietly(link, "logging/setLevel", &level);
        }
    }

    /// Waits until the client has taken most of what it was sent.
    pub(super) async fn client_room(&self) {
        if let Some(session) = self.session() {
            session.out().room().await;
        }
    }
}

/// Sends a request whose answer nobody needs.
pub(super) fn send_quietly(link: &Arc<Link>, method: &str, params: &str) {
    let write = |out: &mut Vec<u8>, _| out.extend_from_slice(params.as_bytes());
    link.peer.request(method, write, Caller::default(), None, Box::new(|_| ()));
}

fn send(
    link: &Arc<Link>,
    method: &'static str,
    params: Node<'_>,
    changes: &[(&str, Option<&str>)],
    reply: Reply,
    finish: impl FnOnce(Answer<'_>, Reply) + Send + 'static,
) {
    if !link.takes_calls() {
        let lost = Lost::new("the server does not read its input; too much waits for it already");
        return finish(Answer::Lost(&lost), reply);
    }
    let session = reply.session().clone();
    let key: Box<str> = reply.key().into();
    let meta = params.get("_meta").filter(|meta| meta.is_object());
    let token = meta.and_then(|meta| meta.get("progressToken"));
    let caller = Caller { session: Some(session.clone()), progress: token.map(|token| token.raw().into()) };
    let (upstream, version) = (link.upstream.clone(), link.version());
    let on_answer = Box::new(move |answer: Answer<'_>| match answer {
        Answer::Result(result) => {
            level::note_links(reply.session(), &upstream, result);
            level::results(version, reply.session().version(), result, |result| {
                finish(Answer::Result(result), reply)
            });
        }
        other => finish(other, reply),
    });
    let write = |out: &mut Vec<u8>, id: u64| match (meta, token) {
        (Some(meta), Some(_)) => {
            let mut number = Vec::new();
            write_number(&mut number, id);
            let mut meta_text = Vec::new();
            let number = std::str::from_utf8(&number).expect("digits");
            meta.write_with(&mut meta_text, &[("progressToken", Some(number))]);
            let meta_text = String::from_utf8(meta_text).expect("written from UTF-8 texts");
            let mut changes = changes.to_vec();
            changes.push(("_meta", Some(&meta_text)));
            params.write_with(out, &changes);
        }
        _ => params.write_with(out, changes),
    };
    if let Some(id) = link.peer.request(method, write, caller, link.deadline(), on_answer) {
        session.sent(&key, link, id);
    }
}
