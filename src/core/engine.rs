//! The engine: which upstreams there are, which clients, and how requests travel between them. The gateway
//! drives it; upstreams report their changes to it.
//!
//! Invariant: each part of the engine takes its own locks, briefly, and holds none across an await.
//! Invariant: when [`Engine::stop`] returns, every task that the engine spawned has ended or been cut off.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::adapt;
use super::approval::{self, Deviations};
use super::audience::Audience;
use super::bridge::{self, Bridge, Finish};
use super::connection::{Caller, Changes, Connection};
use super::gate::TurnOf;
use super::known::{Known, spoken};
use super::logins::{Attendance, Logins};
use super::modern::Watched;
use super::observed::{self, Context, OwnRequest};
use super::process::{Child, CommandError, Launch, Launcher, Variables};
use super::registry::{Registry, Renewed};
use super::reply::Reply;
use super::session::ClientSession;
use super::sharing::{DaemonSession, Share};
use super::start_error::{Cause, StartError};
use super::upstream::{Listing, Spec, Upstream};
use super::view::Exposure;
use super::workspace::Workspace;
use crate::catalog::Sent;
use crate::config::{Command, Common, Http, Isolation, Redactor, Transport};
use crate::events::Hub;
use crate::json::{self, MemberChange, Node, Raw, quote};
use crate::protocol::era::{ALL_CAPABILITIES, ServerHello, TaskSupport, Version, log_level};
use crate::protocol::progress::{Progress, write_params};
use crate::results::kept::Kept;
use crate::transport::http_client::Authorities;
use crate::transport::oauth::Authorizer;
use crate::transport::peer::{Answer, Lost, OnAnswer};

/// Owns the upstreams and knows the clients.
///
/// It has many fields because it is where the parts of the gateway meet; each part has its own methods.
pub struct Engine {
    pub(super) programs: Programs,
    /// Calls whose clients were asked something and will come back with an answer.
    pub bridge: Bridge,
    /// What earlier runs learnt about servers.
    pub known: Known,
    /// Who has tokens for servers behind URLs.
    pub(super) logins: Logins,
    /// The long results that were kept for clients.
    pub kept: Arc<Kept>,
    /// The top-level settings of the file.
    pub in_force: InForce,
    /// Where everything that happens is told.
    pub events: Hub,
    /// The upstreams.
    pub registry: Registry,
    /// Who is looking, and who is told of changes.
    pub audience: Audience,
    /// What differs from the lock, as far as it was logged.
    pub(super) deviations: Deviations,
    /// One task per connection; `None` once the gateway is ending.
    tasks: Mutex<Option<JoinSet<()>>>,
    /// Told when the lists of a server were read, which leaves free memory behind that the allocator would keep.
    pub lists_read: Notify,
    /// Whether this is the daemon.
    pub(super) daemon: bool,
}

/// The top-level settings of the file that is in force.
pub struct InForce {
    settings: RwLock<Arc<Common>>,
    /// The largest message that readers accept.
    limit: Arc<AtomicUsize>,
}

impl InForce {
    fn new(settings: Common) -> Self {
        let limit = Arc::new(AtomicUsize::new(settings.max_message_bytes));
        Self { settings: RwLock::new(Arc::new(settings)), limit }
    }

    /// The largest message that readers accept; the number follows the file.
    pub fn limit(&self) -> Arc<AtomicUsize> {
        self.limit.clone()
    }
}

/// Starts the programs of upstreams.
pub(super) struct Programs {
    launcher: Launcher,
    /// Our environment, from which upstreams may inherit.
    vars: Variables,
    /// Our working directory.
    directory: PathBuf,
}

impl Programs {
    /// Looks a program up and prepares its environment, as the upstream needs it.
    pub(super) async fn prepare(
        &self,
        upstream: &Upstream,
        command: &Command,
    ) -> Result<Launch, CommandError> {
        let Some(origin) = upstream.origin() else {
            return self.launcher.prepare(command, &self.vars, &self.directory).await;
        };
        let directory = origin.directory_for(&upstream.spec()).to_owned();
        let launch = self.launcher.prepare(command, &origin.vars, &directory).await?;
        Ok(Launch { cwd: launch.cwd.or(Some(directory)), umask: origin.umask, ..launch })
    }

    /// Starts a program.
    pub(super) fn spawn(&self, launch: &Launch) -> io::Result<Child> {
        self.launcher.spawn(launch)
    }
}

/// What the engine needs from the world around it.
pub struct Surroundings {
    /// Starts processes.
    pub launcher: Launcher,
    /// The environment.
    pub vars: Variables,
    /// The working directory.
    pub directory: PathBuf,
    /// The directory for files that programs can do without.
    pub cache: Option<PathBuf>,
    /// The directory for what programs remember about a user.
    pub state: Option<PathBuf>,
    /// Who can be asked to log in to a server, provided that this process lives long enough for a login.
    pub attendance: Attendance,
    /// Whether this is the daemon, in which sessions from several places share upstreams.
    pub daemon: bool,
    /// Where everything that happens is told.
    pub events: Hub,
}

#[cfg(test)]
impl Surroundings {
    /// The surroundings of unit tests: no variables, nothing remembered, nobody to ask.
    pub fn of_tests() -> Self {
        Self {
            launcher: Launcher::new(),
            vars: Variables::default(),
            directory: "/".into(),
            cache: None,
            state: None,
            attendance: Attendance::Nobody,
            daemon: false,
            events: Hub::off(),
        }
    }
}

/// The longest that upstreams may take to end when the gateway ends.
const LONGEST_END: Duration = Duration::from_secs(3);

impl Engine {
    /// An engine without upstreams.
    pub fn new(settings: Common, around: Surroundings) -> Arc<Self> {
        around.events.apply(&settings.journal, &settings.secrets);
        Arc::new(Self {
            known: Known::new(around.cache.as_deref(), &around.directory),
            programs: Programs { launcher: around.launcher, vars: around.vars, directory: around.directory },
            bridge: Bridge::new(&settings.serving.state_keys),
            logins: Logins::new(around.state, around.attendance),
            kept: Arc::default(),
            events: around.events,
            in_force: InForce::new(settings),
            registry: Registry::default(),
            audience: Audience::default(),
            deviations: Deviations::default(),
            lists_read: Notify::new(),
            tasks: Mutex::new(Some(JoinSet::new())),
            daemon: around.daemon,
        })
    }

    /// A workspace for a client, or for all callers with the same credentials.
    pub fn workspace(
        &self,
        principal: &str,
        face: usize,
        exposure: Arc<dyn Exposure + Send + Sync>,
        client: Option<u64>,
        daemon_session: Option<Arc<DaemonSession>>,
    ) -> Arc<Workspace> {
        let workspace = Workspace::of(principal, face, exposure, client, (&self.kept, daemon_session));
        self.audience.add(&workspace);
        workspace
    }

    /// Top-level settings of the file.
    pub fn settings(&self) -> Arc<Common> {
        self.in_force.settings.read().clone()
    }

    /// Puts other top-level settings in force. In the daemon the values that are secret in one session are not readable
    /// in what is said of another, nor after its end.
    pub fn set_settings(&self, mut settings: Common) {
        if self.daemon {
            settings.secrets = settings.secrets.and(&self.settings().secrets);
        }
        if self.settings().serving.state_keys != settings.serving.state_keys {
            self.bridge.seal.renew(&settings.serving.state_keys);
        }
        self.events.apply(&settings.journal, &settings.secrets);
        self.in_force.limit.store(settings.max_message_bytes, Ordering::Relaxed);
        *self.in_force.settings.write() = Arc::new(settings);
    }

    /// The upstream for a server of a group, as this workspace reaches it. Every call returns the same one.
    pub fn upstream(
        self: &Arc<Self>,
        workspace: &Workspace,
        group: &str,
        server: &str,
        label: &str,
        spec: Spec,
    ) -> Arc<Upstream> {
        let recalls = spec.recalls(workspace.listing());
        let make = |spec: Spec, history| {
            let (origin, engine) = (workspace.daemon_session_handle(), Arc::downgrade(self));
            Upstream::new(group, server, label, spec, history, origin, engine)
        };
        let upstream = self.registry.get(workspace, (group, server), spec, make);
        let transport = &upstream.spec().transport;
        let offered = recalls.then(|| self.known.offered(transport)).flatten();
        upstream.recall(offered, self.known.is_modern(transport));
        upstream
    }

    /// The certificate authorities that are trusted for an upstream behind a URL.
    pub(super) fn authorities_of(&self, upstream: &Upstream) -> Authorities {
        match upstream.origin() {
            Some(origin) => Authorities::named_in(&origin.vars, &origin.directory),
            None => Authorities::named_in(&self.programs.vars, &self.programs.directory),
        }
    }

    /// Every value that must not be readable in anything said about an upstream. Of the inherited variables
    /// only those that the file names are included: hiding all of them would leave nothing readable.
    pub fn secrets_of(&self, upstream: &Upstream) -> Redactor {
        let secrets = self.settings().secrets.clone();
        let vars = upstream.origin().map_or_else(|| self.programs.vars.clone(), |origin| origin.vars.clone());
        let Transport::Stdio(command) = &upstream.spec().transport else { return secrets };
        secrets.with(vars.iter().filter_map(|(name, value)| {
            let name = name.to_str().filter(|name| command.inherit_env.iter().any(|other| other == name))?;
            Some((value.to_str()?.to_owned(), name.to_owned()))
        }))
    }

    /// Whether an upstream's command is found only on the `PATH` of the login shell.
    pub async fn needs_login_shell(&self, upstream: &Upstream) -> bool {
        match &upstream.spec().transport {
            Transport::Stdio(command) => {
                !self
                    .programs
                    .launcher
                    .finds_by_itself(command, &self.programs.vars, &self.programs.directory)
                    .await
            }
            Transport::Http(_) | Transport::Unset(_) => false,
        }
    }

    /// The file that an upstream's command resolves to, if there is one.
    pub async fn program(&self, upstream: &Upstream) -> Option<PathBuf> {
        match &upstream.spec().transport {
            Transport::Stdio(command) => {
                self.programs.prepare(upstream, command).await.ok().map(|launch| launch.program)
            }
            Transport::Http(_) | Transport::Unset(_) => None,
        }
    }

    /// Sends a client's request to an upstream, which is started first if necessary. `changes` are members of
    /// `params` to set or remove; the progress token is mapped. `finish` turns the answer into the reply.
    #[inline]
    pub fn forward(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        method: &'static str,
        params: Node<'_>,
        changes: &[MemberChange<'_>],
        mut reply: Reply,
        finish: impl FnOnce(Answer<'_>, Reply) + Send + 'static,
    ) {
        // The daemon is asked how much its servers are used.
        if let Some(daemon_session) = reply.session().workspace.daemon_session() {
            daemon_session.count_call();
            reply.uses(upstream);
        }
        // Where nobody wants to know what becomes of a call, nothing is carried along for it.
        match reply.is_followed() {
            true => self.forward_noted(upstream, method, params, changes, reply, Box::new(finish)),
            false => self.dispatch(upstream, method, params, changes, reply, finish),
        }
    }

    /// As [`Self::forward`], and notes how the call goes for those who follow it.
    fn forward_noted(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        method: &'static str,
        params: Node<'_>,
        changes: &[MemberChange<'_>],
        mut reply: Reply,
        finish: Finish,
    ) {
        let context = observed::sets_out(&mut reply, upstream, method, params, changes);
        let mut changes = json::Changes::new(changes);
        let params = match &context {
            None => params,
            Some(Context::Params(traced)) => traced.root(),
            Some(Context::Meta(meta)) => {
                changes.add("_meta", Some(meta));
                params
            }
        };
        let finish = move |answer: Answer<'_>, mut reply: Reply| {
            observed::came_back(&mut reply, &answer);
            finish(answer, reply);
        };
        self.dispatch(upstream, method, params, &changes, reply, finish);
    }

    /// Sends a request to an upstream, which is started first if necessary.
    fn dispatch(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        method: &'static str,
        params: Node<'_>,
        changes: &[MemberChange<'_>],
        reply: Reply,
        finish: impl FnOnce(Answer<'_>, Reply) + Send + 'static,
    ) {
        if let Some(connection) = upstream.connection() {
            return self.send(&connection, method, params, changes, reply, finish);
        }
        let (engine, upstream, params) = (self.clone(), upstream.clone(), Raw::own(params.with(changes)));
        tokio::spawn(async move {
            let up = upstream.up_in_time(&reply.session().workspace);
            match observed::on_behalf_of(reply.behalf(), up).await {
                Ok(connection) if reply.is_wanted() => {
                    // The server may offer something else than it did when the client asked.
                    match approval::refused(&upstream, method, params.root()) {
                        None => engine.send(&connection, method, params.root(), &[], reply, finish),
                        Some(reason) => finish(Answer::Lost(&Lost::unavailable(reason)), reply),
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    let reason = match error.cause {
                        Cause::Starting => error.to_string(),
                        _ => format!(
                            "the server '{upstream}' is not running and could not be started: {error}"
                        ),
                    };
                    finish(Answer::Lost(&Lost::unavailable(reason)), reply);
                }
            }
        });
    }

    fn send(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        method: &'static str,
        params: Node<'_>,
        changes: &[MemberChange<'_>],
        mut reply: Reply,
        finish: impl FnOnce(Answer<'_>, Reply) + Send + 'static,
    ) {
        observed::takes(&mut reply, connection);
        if !connection.takes_calls() {
            let lost = Lost::unavailable("the server does not read its input; too much waits for it already");
            return finish(Answer::Lost(&lost), reply);
        }
        if reply.modern().is_some() || connection.version().is_modern() {
            return bridge::launch(connection, method, params, changes, reply, finish);
        }
        if !self.must_wait_for_turn(connection, &reply) {
            return self.send_plainly(connection, method, params, changes, reply, finish);
        }
        let in_turn = |turn| {
            move |answer: Answer<'_>, reply: Reply| {
                finish(answer, reply);
                drop(turn);
            }
        };
        let whose = TurnOf::Client(reply.session().workspace.id);
        if let Some(turn) = connection.gate.turn(whose) {
            return self.send_plainly(connection, method, params, changes, reply, in_turn(turn));
        }
        let (engine, way, params) = (self.clone(), connection.clone(), Raw::own(params.with(changes)));
        connection.gate.wait(whose, move |turn| {
            if reply.is_wanted() {
                engine.send_plainly(&way, method, params.root(), &[], reply, in_turn(turn));
            }
        });
    }

    /// Whether calls of a legacy client must not reach this upstream together with those of others, once the upstream asks
    /// questions. They must not where several clients share the upstream and this client can be asked.
    fn must_wait_for_turn(&self, connection: &Arc<Connection>, reply: &Reply) -> bool {
        reply.session().hello().is_some_and(|hello| hello.can_be_asked)
            && self.only_client(&connection.upstream).is_none()
            && connection.asks_at_large()
    }

    /// The one client that an upstream serves: the client on stdin or, in the daemon, the session that has
    /// the upstream for itself. `None` where there may be several, or none yet.
    pub(super) fn only_client(&self, upstream: &Arc<Upstream>) -> Option<Arc<ClientSession>> {
        match self.daemon {
            false => self.audience.stdio(),
            true if upstream.spec().isolation_in_daemon() == Isolation::Session => {
                self.audience.lookers(upstream).into_iter().next()
            }
            true => None,
        }
    }

    /// Sends a call that needs no state beyond its answer, because both sides speak the legacy era.
    fn send_plainly(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        method: &'static str,
        params: Node<'_>,
        changes: &[MemberChange<'_>],
        reply: Reply,
        finish: impl FnOnce(Answer<'_>, Reply) + Send + 'static,
    ) {
        let session = reply.session().clone();
        let key = reply.key();
        let progress = Progress::asked(params);
        let caller = Caller {
            session: Some(session.clone()),
            key: Some(key),
            progress: progress.map(|progress| progress.token.raw().into()),
            ..Caller::default()
        };
        let (way, token) = (connection.clone(), caller.progress.clone());
        let on_answer = OnAnswer::run(move |answer| {
            adapt::deliver(&way, method, token, answer, reply, finish);
        });
        let write = |out: &mut Vec<u8>, id| write_params(out, params, progress, changes, id);
        let id = connection.peer.reserve();
        let request = connection.peer.open(id, caller, connection.deadline(&session), on_answer);
        if let Some(request) = request
            && session.goes_to(key, connection, id)
        {
            connection.log_request(method);
            request.send(method, write);
        }
    }

    /// Sends a client's notification to every running upstream of its view.
    pub fn broadcast(&self, session: &ClientSession, method: &str, params: Option<Node<'_>>) {
        for connection in self.connections(session) {
            connection.peer.notify(method, |out| {
                if let Some(params) = params {
                    params.write(out);
                }
            });
        }
    }

    /// Sets the level of log messages for running upstreams and for those that start later.
    pub fn set_log_level(&self, session: &ClientSession, params: Node<'_>) {
        session.set_log_level(params.raw());
        for connection in
            self.connections(session).into_iter().filter(|connection| !connection.version().is_modern())
        {
            match log_level(params.raw()) {
                // Other clients share this upstream and may want more.
                Some(level) if self.only_client(&connection.upstream).is_none() => {
                    connection.want_level(level);
                }
                _ if connection.can("logging") => send_quietly(&connection, "logging/setLevel", params.raw()),
                _ => {}
            }
        }
    }

    /// Starts (`more`) or stops watching something of an upstream on behalf of one client.
    pub fn watch(&self, upstream: &Arc<Upstream>, what: &Watched, more: bool) {
        if !upstream.count_watcher(what, more) {
            return;
        }
        let Some(connection) = upstream.connection() else {
            // An upstream at rest has nothing to report until it runs.
            if more && upstream.is_at_rest(Listing::Always) {
                let _ = upstream.start();
            }
            return;
        };
        match what {
            _ if connection.version().is_modern() => connection.listen(),
            Watched::Resource(uri) => {
                let method = if more { "resources/subscribe" } else { "resources/unsubscribe" };
                send_quietly(&connection, method, &format!("{{\"uri\":{}}}", quote(uri)));
            }
            // An upstream reports its tasks without being asked.
            Watched::Task(_) => {}
        }
    }

    /// Ends every upstream and waits until nothing is left of any of them.
    pub async fn stop(&self) {
        let tasks = self.tasks.lock().take();
        for upstream in self.registry.all_and_draining() {
            upstream.stop();
        }
        if let Some(mut tasks) = tasks {
            // Cutting a task off drops its process's control, which kills the tree.
            let _ =
                tokio::time::timeout(LONGEST_END, async { while tasks.join_next().await.is_some() {} }).await;
        }
    }

    /// Puts a new file in force: the settings at once, and for each upstream what `spec` says about it.
    /// Upstreams that the new file reaches in another way, or no longer has, are taken out
    /// and returned; the caller [replaces](Self::replace) them.
    pub fn renew(
        self: &Arc<Self>,
        settings: Common,
        spec: impl Fn(&Arc<Upstream>, &Share) -> Option<Spec>,
    ) -> Vec<Arc<Upstream>> {
        self.set_settings(settings);
        let Renewed { gone, wanted_again } = self.registry.renew(spec);
        for upstream in wanted_again {
            self.upstream_changed(&upstream);
        }
        gone
    }

    /// Whether an upstream lives, or something else is still to be finished.
    pub fn is_at_work(&self) -> bool {
        self.tasks.lock().as_mut().is_some_and(|tasks| {
            while tasks.try_join_next().is_some() {}
            !tasks.is_empty()
        })
    }

    /// Whether the gateway is ending, so that no further task can be spawned.
    pub fn has_ended(&self) -> bool {
        self.tasks.lock().is_none()
    }

    /// Runs a task that [`Engine::stop`] waits for. `false`: the gateway is ending, so the task does not run.
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

    /// Remembers what an upstream offers, in a task of its own.
    pub(super) fn remember(&self, connection: &Arc<Connection>, sent: Sent) {
        self.lists_read.notify_one();
        let (upstream, workspaces) = (&connection.upstream, self.audience.workspaces());
        let spec = upstream.spec();
        let recalled = workspaces.iter().any(|workspace| spec.recalls(workspace.listing()));
        self.spawn(self.known.offers(upstream, sent, recalled));
    }

    /// Remembers why an upstream failed, in a task of its own.
    pub(super) fn remember_failure(&self, upstream: &Arc<Upstream>, reason: StartError) {
        self.spawn(self.known.failed(upstream, reason));
    }

    /// Remembers how an upstream speaks.
    pub(super) fn remember_manner(&self, connection: &Arc<Connection>) {
        self.spawn(self.known.speaks(connection));
    }

    /// What a server can do with tasks in the era of this version, as far as that is known.
    pub fn task_support(&self, transport: &Transport, version: Version) -> TaskSupport {
        let running =
            self.registry.all().iter().find_map(|upstream| {
                upstream.connection().filter(|_| upstream.spec().transport == *transport)
            });
        let known = match running {
            Some(connection) => Some(spoken(&connection)),
            None => self.known.protocol(transport),
        };
        known.filter(|known| known.era == version.era()).map_or(TaskSupport::None, |known| known.tasks)
    }

    /// Who has tokens for a server behind a URL; `None` where the file gives the credentials itself or
    /// forbids logins.
    pub(super) fn authorizer(self: &Arc<Self>, upstream: &Upstream, http: &Http) -> Option<Arc<Authorizer>> {
        let engine = Arc::downgrade(self);
        self.logins.authorizer(http, self.authorities_of(upstream), move |url| {
            if let Some(engine) = engine.upgrade() {
                engine.logged_in(url);
            }
        })
    }

    /// Called when somebody has logged in to the server at this URL. Upstreams that failed for want of that
    /// login are started again if they restart by themselves or some workspace shows them.
    fn logged_in(&self, url: &str) {
        let is_there = |transport: &Transport| matches!(transport, Transport::Http(http) if http.url == url);
        self.registry.forgive(is_there);
        let workspaces = self.audience.workspaces();
        for upstream in self.registry.all().into_iter().filter(|upstream| upstream.has_failed()) {
            let spec = upstream.spec();
            if !is_there(&spec.transport) {
                continue;
            }
            upstream.forgive();
            if spec.restart || workspaces.iter().any(|workspace| workspace.shows(&upstream)) {
                let _ = upstream.start();
            }
        }
    }

    /// Called by an upstream when it came up, went down or changed what it offers.
    pub(super) fn upstream_changed(&self, upstream: &Arc<Upstream>) {
        for workspace in self.audience.workspaces() {
            if workspace.change(|view| view.refresh(&*workspace.exposure(), upstream)) {
                workspace.tell_unless_held();
            }
            if upstream.connection().is_some() {
                self.audience.arrived(&workspace);
            }
        }
        if upstream.spec().restart && upstream.has_failed() {
            let upstream = upstream.clone();
            self.spawn(async move {
                tokio::time::sleep(upstream.wait()).await;
                let _ = upstream.start();
            });
        }
    }

    /// The version that we offer to an upstream, and the capabilities that we declare: those of its only
    /// client, or all of them where no client is known or there may be several. A modern client's are those
    /// that its first request declared.
    pub(super) fn client_for(&self, upstream: &Arc<Upstream>) -> (Version, String) {
        let client = self.only_client(upstream);
        if let Some((version, capabilities)) = client.as_ref().and_then(|session| session.declared()) {
            return (version, capabilities.to_owned());
        }
        // The servers of a session that goes on in the next daemon start before the session has its client again.
        let is_own = upstream.spec().isolation_in_daemon() == Isolation::Session;
        let before = upstream.origin().filter(|_| is_own).and_then(|origin| origin.hello());
        before.map_or((Version::LATEST_LEGACY, ALL_CAPABILITIES.to_owned()), |hello| {
            (hello.version, hello.capabilities)
        })
    }

    /// Tells an upstream whose session has just begun what clients expect of it. A modern upstream learns
    /// that from every request and from its subscription.
    pub(super) fn greeted(&self, connection: &Arc<Connection>) {
        if connection.version().is_modern() {
            return;
        }
        for uri in connection.upstream.watched().0 {
            send_quietly(connection, "resources/subscribe", &format!("{{\"uri\":{}}}", quote(&uri)));
        }
        match self.only_client(&connection.upstream) {
            Some(session) => {
                if let Some(level) = session.log_level().filter(|_| connection.can("logging")) {
                    send_quietly(connection, "logging/setLevel", &level);
                }
            }
            None => {
                let sees = |workspace: &Arc<Workspace>| workspace.shows(&connection.upstream);
                let sessions = self
                    .audience
                    .workspaces()
                    .into_iter()
                    .filter(sees)
                    .flat_map(|workspace| workspace.sessions());
                let levels = sessions.filter_map(|session| session.severity());
                levels.for_each(|level| connection.want_level(level));
            }
        }
    }

    /// Called when a session with an upstream was lost and begun anew, perhaps with another server. The new
    /// one knows nothing of what the last one was told, and nobody knows yet what it offers.
    pub(super) fn renewed(&self, connection: &Arc<Connection>, hello: ServerHello) {
        connection.profile.greeted(hello);
        self.remember_manner(connection);
        connection.questions.cancel();
        connection.tell_level_again();
        self.greeted(connection);
        connection.changes.note(Changes::LISTS);
    }

    /// Waits until the only client of an upstream has taken most of what it was sent.
    pub(super) async fn client_room(&self, upstream: &Arc<Upstream>) {
        if let Some(session) = self.only_client(upstream) {
            session.room().await;
        }
    }

    fn connections(&self, session: &ClientSession) -> Vec<Arc<Connection>> {
        session
            .workspace
            .read(|view| view.entries().filter_map(|entry| entry.upstream.connection()).collect())
    }
}

/// Sends a request whose answer nobody needs.
pub(super) fn send_quietly(connection: &Arc<Connection>, method: &str, params: &str) {
    let (id, mut params) = (connection.peer.reserve(), params.to_owned());
    let request = OwnRequest::begin(connection, method, &mut params);
    let on_answer = OnAnswer::run(move |answer| request.end(id, observed::of_answer(&answer).0));
    let deadline = connection.own_deadline();
    connection.peer.request(id, method, &params, Caller::default(), deadline, on_answer);
}
