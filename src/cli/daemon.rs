//! The daemon at work: takes sessions from relays, gives each what it shares with others, and ends by itself
//! when nobody needs it. `cli/relay.rs` is the other side.
//!
//! Sessions of the same file, face and home directories are in one [`Pool`], which has an engine: only there
//! can they share servers. Each session has a gateway of its own over it, since variables, options and views
//! differ between sessions.
//!
//! Invariant: nobody is sent a byte before the system has said that he is the same user.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::failure::Failure;
use super::load::{Loader, Overrides, Read, runtime, signal};
use super::reload::{FileWatch, shown_problems};
use super::{World, check, logging};
use crate::config::locate::FaceKind;
use crate::core::aside::BYE;
use crate::core::engine::Engine;
use crate::core::process::{daemon, use_one_heap};
use crate::core::record::Record;
use crate::core::session::ClientSession;
use crate::core::sharing::DaemonSession;
use crate::daemon::{
    Confinement, DaemonListener, DaemonPlace, DaemonStream, DirectEnds, Handover, OtherEnd, SessionOut, Wish,
    accept, accept_direct, greet, has_listener, other_end, read_request, refuse, split, take_over,
};
use crate::edit::file::contents;
use crate::gateway::console::{Console, Door, FileProblem, House, KeyFile};
use crate::gateway::http::Rules;
use crate::gateway::stdio::{DaemonEnds, Resumed, run_in_daemon};
use crate::gateway::{Configured, Gateway, note_reload, of_daemon_session, reload_all};

/// How long a daemon waits for its first session.
const FIRST_SESSION: Duration = Duration::from_secs(10);
/// How long somebody who has connected may take to say what is wanted.
const LONGEST_REQUEST: Duration = Duration::from_secs(10);
/// How long sessions may take to end when the daemon does.
const LONGEST_END: Duration = Duration::from_secs(3);

/// Runs the daemon, which a relay has started, to its end.
pub(super) fn run(directory: PathBuf, log: Option<&Path>) -> Result<u8, Failure> {
    let inherited = take_over()?;
    logging::start_in(log);
    daemon::raise_open_files();
    use_one_heap();
    let runtime = runtime()?;
    let daemon = Arc::new(RunningDaemon::new(DaemonPlace::at(directory))?);
    runtime.block_on(async {
        let listener = DaemonListener::open(inherited, &daemon.place)?;
        daemon.serve(&listener, signal()?).await;
        daemon.end(&listener).await;
        io::Result::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(0)
}

/// The daemon.
pub(super) struct RunningDaemon {
    pub(super) place: DaemonPlace,
    confinement: Confinement,
    pub(super) begun: Instant,
    pools: Mutex<HashMap<PoolKey, Arc<Pool>>>,
    /// Notified when a session has come or gone.
    changed: Notify,
    /// Notified when somebody wants the daemon to end.
    stop: Notify,
    /// Whether the daemon takes nothing new.
    ending: watch::Sender<bool>,
    /// When the daemon ends if no session comes before that.
    idle_end: Mutex<Option<Instant>>,
    /// The sockets of other builds' daemons that were there before this one. Names tell older daemons from
    /// newer ones where clocks may be set back.
    older: Vec<PathBuf>,
    /// The consoles that somebody has looked at, by face and by where their key is.
    consoles: Mutex<HashMap<(&'static str, PathBuf), Arc<Console>>>,
}

/// The variables that name a user's home directories, the home itself first.
const HOMES: [&str; 5] = match cfg!(windows) {
    true => ["USERPROFILE", "APPDATA", "LOCALAPPDATA", "HOMEDRIVE", "HOMEPATH"],
    false => ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"],
};

/// What sessions have in common that may share servers: the face, the file, and the home directories.
type PoolKey = (&'static str, PathBuf, Vec<Option<OsString>>);

/// The sessions that may share servers.
pub(super) struct Pool {
    pub(super) face: FaceKind,
    pub(super) engine: Arc<Engine>,
    pub(super) members: Members,
    /// Notified when the file is to be read again.
    reload: Arc<Notify>,
    /// What is wrong with the file as it was read last.
    refused: Mutex<Vec<FileProblem>>,
    watching: Mutex<Option<AbortHandle>>,
}

/// The sessions of a pool, the oldest first.
#[derive(Default)]
pub(super) struct Members(Mutex<Vec<Arc<PoolMember>>>);

impl Members {
    pub(super) fn all(&self) -> Vec<Arc<PoolMember>> {
        self.0.lock().clone()
    }

    fn first(&self) -> Option<Arc<PoolMember>> {
        self.0.lock().first().cloned()
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    fn add(&self, member: Arc<PoolMember>) {
        self.0.lock().push(member);
    }

    /// Whether nobody is left without it.
    fn remove(&self, member: &PoolMember) -> bool {
        let mut members = self.0.lock();
        members.retain(|other| other.number != member.number);
        members.is_empty()
    }
}

/// One session.
pub(super) struct PoolMember {
    number: u64,
    gateway: Arc<Gateway>,
    loader: Loader,
    pub(super) daemon_session: Arc<DaemonSession>,
    /// The relay's process id.
    pub(super) pid: Option<u32>,
    pub(super) file: PathBuf,
    session: Mutex<Weak<ClientSession>>,
}

/// What a new file means for the sessions that were there when it was read.
struct Reading {
    /// Those for which it is valid.
    renewals: Vec<(Arc<Gateway>, Configured)>,
    /// How many warnings it has.
    warnings: usize,
    /// The numbers of all of them.
    readers: Vec<u64>,
}

/// A file that was read for a session.
struct Loaded {
    loader: Loader,
    umask: Option<u32>,
    configured: Configured,
    read: Read,
}

impl RunningDaemon {
    fn new(place: DaemonPlace) -> io::Result<Self> {
        Ok(Self {
            older: place.other_builds(),
            place,
            confinement: Confinement::of(None)?,
            begun: Instant::now(),
            pools: Mutex::default(),
            changed: Notify::new(),
            stop: Notify::new(),
            ending: watch::Sender::new(false),
            idle_end: Mutex::new(Some(Instant::now() + FIRST_SESSION)),
            consoles: Mutex::default(),
        })
    }

    /// Whether a daemon of another build has come since this one.
    fn is_outdated(&self) -> bool {
        let mut others = self.place.other_builds().into_iter();
        // A socket with another ending belongs to a daemon that ends.
        let stays = |socket: &Path| socket.extension().is_some_and(|ending| ending == "sock");
        others.any(|socket| stays(&socket) && !self.older.contains(&socket) && has_listener(&socket))
    }

    /// The pools that have a session or a server.
    pub(super) fn pools(&self) -> Vec<Arc<Pool>> {
        self.pools.lock().values().cloned().collect()
    }

    /// Serves until the daemon is to end.
    async fn serve(self: &Arc<Self>, listener: &DaemonListener, shutdown: impl Future<Output = ()>) {
        tracing::info!("the daemon begins, as process {}", std::process::id());
        tokio::pin!(shutdown);
        loop {
            let idle_end = *self.idle_end.lock();
            let idle = async {
                match idle_end {
                    Some(end) => sleep(end.saturating_duration_since(Instant::now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                accepted = listener.accept() => self.welcome(accepted).await,
                () = &mut shutdown => return tracing::info!("the daemon is asked to end"),
                () = self.stop.notified() => return tracing::info!("the daemon is asked to end"),
                () = self.changed.notified() => {}
                () = idle => return tracing::info!("no session is left"),
            }
        }
    }

    /// Ends all sessions and servers. Whoever connects meanwhile finds a new daemon, or waits for the end.
    async fn end(self: &Arc<Self>, listener: &DaemonListener) {
        let ending = self.place.ending_socket(std::process::id());
        let renamed = fs::rename(self.place.socket(), &ending);
        listener.retire();
        self.ending.send_replace(true);
        let ended = async {
            let gone = async {
                while self.pools().iter().any(|pool| !pool.members.is_empty()) {
                    self.changed.notified().await;
                }
            };
            let _ = timeout(LONGEST_END, gone).await;
            let mut stops = JoinSet::new();
            for pool in self.pools() {
                stops.spawn(async move {
                    pool.engine.stop().await;
                    pool.engine.events.close();
                });
            }
            while stops.join_next().await.is_some() {}
        };
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => break,
                accepted = listener.accept() => self.welcome(accepted).await,
            }
        }
        if renamed.is_ok() {
            let _ = fs::remove_file(&ending);
        }
        tracing::info!("the daemon ends");
    }

    /// Takes somebody who has connected.
    async fn welcome(self: &Arc<Self>, accepted: io::Result<DaemonStream>) {
        match accepted {
            Ok(stream) => {
                let daemon = self.clone();
                tokio::spawn(async move {
                    if let Err(error) = daemon.meet(stream).await {
                        tracing::debug!("somebody who connected has gone: {error}");
                    }
                });
            }
            Err(error) => {
                // Without descriptors nothing can be accepted until somebody has gone.
                tracing::warn!("a session cannot be accepted: {error}");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Checks who has connected, and does what is wanted.
    async fn meet(self: &Arc<Self>, mut stream: DaemonStream) -> io::Result<()> {
        let OtherEnd { is_own, pid } = other_end(&stream)?;
        if !is_own {
            tracing::warn!("process {pid:?} of another user was turned away");
            return Ok(());
        }
        greet(&mut stream, self.place.build()).await?;
        let asked = async {
            let direct = DirectEnds::receive(&stream).await?;
            io::Result::Ok((read_request(&mut stream).await?, direct))
        };
        let (request, direct) =
            timeout(LONGEST_REQUEST, asked).await.map_err(|_| io::ErrorKind::TimedOut)??;
        // Whoever is this user may end the daemon, and nothing else from another confinement.
        let objection = self.confinement.objection(Confinement::of(Some(pid.unwrap_or(0))));
        if let Some(reason) = objection.filter(|_| request != Wish::Stop) {
            return refuse(&mut stream, &reason).await;
        }
        match request {
            Wish::Status => stream.write_all(super::status::told(self).to_string().as_bytes()).await,
            Wish::Stop => {
                self.stop.notify_one();
                // Nobody but the system closes it, with the process: whoever waits for that knows that we are gone.
                std::mem::forget(stream);
                Ok(())
            }
            Wish::Console(face, state) => match self.console(face, state) {
                Ok(console) => {
                    accept(&mut stream).await?;
                    console.serve(stream).await;
                    Ok(())
                }
                Err(error) => refuse(&mut stream, &format!("the console has no key: {error}")).await,
            },
            // A relay whose session is not taken finds the next daemon.
            Wish::Session(_) if *self.ending.borrow() => Ok(()),
            Wish::Session(handover) => self.take(stream, *handover, direct, pid).await,
        }
    }

    /// The console of a face's sessions.
    fn console(self: &Arc<Self>, face: FaceKind, state: PathBuf) -> io::Result<Arc<Console>> {
        let mut consoles = self.consoles.lock();
        if let Some(console) = consoles.get(&(face.program(), state.clone())) {
            return Ok(console.clone());
        }
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let door = Door::new(loopback, &[], Rules::without_tokens(), KeyFile::of(&state)?);
        let daemon = Arc::downgrade(self);
        let console = Console::live(door, face, move || {
            let pools = daemon.upgrade().map(|daemon| daemon.pools()).unwrap_or_default();
            let own = pools.into_iter().filter(|pool| pool.face == face);
            let house = |pool: Arc<Pool>| House {
                gateway: pool.members.first().map(|member| member.gateway.clone()),
                refused: pool.refused.lock().clone(),
                engine: pool.engine.clone(),
            };
            own.map(house).collect()
        });
        consoles.insert((face.program(), state), console.clone());
        Ok(console)
    }

    /// Serves a session to its end.
    async fn take(
        self: &Arc<Self>,
        mut stream: DaemonStream,
        handover: Handover,
        direct: Option<DirectEnds>,
        pid: Option<u32>,
    ) -> io::Result<()> {
        let resumed = handover.record.as_deref().and_then(Record::read);
        let resumed = resumed.map(|record| Resumed { record, first_question: handover.first_question });
        let loaded = spawn_blocking(move || load(handover)).await;
        let loaded = match loaded.unwrap_or_else(|_| Err("the file could not be read".to_owned())) {
            Ok(loaded) => loaded,
            Err(reason) => return refuse(&mut stream, &reason).await,
        };
        if *self.ending.borrow() {
            return Ok(());
        }
        let (pool, member) = self.seat(loaded, pid);
        let seat = Seat { daemon: self.clone(), pool: pool.clone(), member: member.clone() };
        let (reload, mut ending) = (pool.reload.clone(), self.ending.subscribe());
        match direct {
            Some(_) => tokio::select! {
                accepted = accept_direct(&mut stream) => accepted?,
                // The relay may have heard it, and is to know that this is no death.
                () = async { drop(ending.wait_for(|ending| *ending).await) } => {
                    return stream.write_all(&[BYE, b"\n"].concat()).await;
                }
            },
            None => accept(&mut stream).await?,
        }
        let on_session = |session: &Arc<ClientSession>| *member.session.lock() = Arc::downgrade(session);
        let shutdown = async move {
            let _ = ending.wait_for(|ending| *ending).await;
        };
        let (relay, out) = split(stream)?;
        let (client, out) = match direct {
            Some(direct) => {
                let (client, out) = direct.split(out);
                (Some(client), SessionOut::Direct(out))
            }
            None => (None, SessionOut::Relayed(out)),
        };
        let ends = DaemonEnds { relay, out, client };
        let on_reload = move || reload.notify_one();
        tokio::select! {
            () = run_in_daemon(member.gateway.clone(), resumed, ends, on_reload, on_session, shutdown) => {}
            () = member.gateway.give_back_memory() => {}
        }
        drop(seat);
        Ok(())
    }

    /// Gives a session its place among those that it may share servers with.
    fn seat(self: &Arc<Self>, loaded: Loaded, pid: Option<u32>) -> (Arc<Pool>, Arc<PoolMember>) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Loaded { mut loader, umask, configured, read } = loaded;
        let world = &loader.world;
        let homes = HOMES.map(|name| world.variable(name).map(OsString::from)).to_vec();
        let key = (loader.face.program(), loader.file.clone(), homes);
        let files = loader.file.parent().map(PathBuf::from).unwrap_or_default();
        let mut pools = self.pools.lock();
        let pool = pools.entry(key).or_insert_with(|| {
            let mut around = world.serving_surroundings(loader.face);
            (around.daemon, around.directory) = (true, files.clone());
            Arc::new(Pool {
                face: loader.face,
                engine: Engine::new(configured.face.common().clone(), around),
                members: Members::default(),
                reload: Arc::default(),
                refused: Mutex::default(),
                watching: Mutex::default(),
            })
        });
        let pool = pool.clone();
        drop(pools);
        // Nobody has followed the file while there was no session.
        pool.engine.set_settings(configured.face.common().clone());
        let beside = pool.members.first();
        // Most sessions have the environment of the one beside them. Who has another keeps it.
        if let Some(member) = &beside
            && member.loader.world.vars == loader.world.vars
        {
            loader.world.vars = member.loader.world.vars.clone();
        }
        let (vars, directory) = (loader.world.vars.clone(), loader.world.directory.clone());
        let daemon_session = Arc::new(DaemonSession::new(vars, directory, files, umask));
        let beside = beside.as_ref().map(|member| &*member.gateway);
        let gateway = of_daemon_session(&pool.engine, configured, daemon_session.clone(), beside);
        let member = Arc::new(PoolMember {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            gateway,
            daemon_session,
            pid,
            file: loader.file.clone(),
            loader,
            session: Mutex::default(),
        });
        pool.members.add(member.clone());
        pool.follow(read);
        *self.idle_end.lock() = None;
        self.changed.notify_one();
        tracing::info!("a session begins, of process {pid:?}");
        (pool, member)
    }
}

/// A session's place in the daemon. Dropping it gives the place up.
struct Seat {
    daemon: Arc<RunningDaemon>,
    pool: Arc<Pool>,
    member: Arc<PoolMember>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let was_last = self.pool.members.remove(&self.member);
        if was_last && let Some(watching) = self.pool.watching.lock().take() {
            watching.abort();
        }
        let mut pools = self.daemon.pools.lock();
        pools.retain(|_, pool| !pool.members.is_empty() || pool.engine.is_at_work());
        if pools.values().all(|pool| pool.members.is_empty()) {
            // Nobody comes back to a build that has been replaced.
            let linger = match self.daemon.is_outdated() {
                true => Duration::ZERO,
                false => self.pool.engine.settings().daemon.daemon_linger,
            };
            *self.daemon.idle_end.lock() = Some(Instant::now() + linger);
        }
        drop(pools);
        self.daemon.changed.notify_one();
        tracing::info!("a session ends, of process {:?}", self.member.pid);
    }
}

impl PoolMember {
    /// What the client calls itself; `None` before the handshake.
    pub(super) fn client(&self) -> Option<String> {
        self.session.lock().upgrade()?.client_name()
    }
}

impl Pool {
    /// Follows the file as long as there are sessions, unless that is done already.
    fn follow(self: &Arc<Self>, read: Read) {
        let mut watching = self.watching.lock();
        let Some(file) = self.members.first().map(|member| member.file.clone()) else { return };
        if watching.is_some() {
            return;
        }
        let (pool, reload) = (Arc::downgrade(self), self.reload.clone());
        let putting = pool.clone();
        let watch = FileWatch {
            file,
            read: Arc::new(read),
            reload: Arc::new(move |bytes| {
                pool.upgrade().map_or((None, Read::default()), |pool| pool.read(bytes))
            }),
            put: move |reading| {
                if let Some(pool) = putting.upgrade() {
                    pool.put_in_force(reading);
                }
            },
        };
        let following = watch.follow(async move || reload.notified().await);
        *watching = Some(tokio::spawn(following).abort_handle());
    }

    /// Puts a new file in force for the sessions for which it is valid; the others keep what they have.
    fn put_in_force(&self, Reading { renewals, warnings, readers }: Reading) {
        let Some(first) = renewals.first().map(|(gateway, _)| gateway.clone()) else { return };
        let members = self.members.all();
        let is_renewed =
            |member: &PoolMember| renewals.iter().any(|(gateway, _)| Arc::ptr_eq(gateway, &member.gateway));
        let others = members.iter().filter(|member| !is_renewed(member));
        let others: Vec<_> = others.map(|member| member.gateway.clone()).collect();
        reload_all(renewals, &others);
        note_reload(&first, true, warnings);
        // Whoever came while the file was read may have read the one before it.
        if members.iter().any(|member| !readers.contains(&member.number)) {
            self.reload.notify_one();
        }
    }

    /// Reads the file with this content for every session.
    fn read(&self, bytes: Vec<u8>) -> (Option<Reading>, Read) {
        let members = self.members.all();
        let readers = members.iter().map(|member| member.number).collect();
        let (mut renewals, mut whole) = (Vec::new(), Read { bytes: bytes.clone(), ..Read::default() });
        let in_force = self.engine.settings().approved.clone();
        let (mut warnings, mut refused, mut shown) = (0, None, Vec::new());
        let mut told = HashSet::new();
        for member in members {
            let (meaning, read) = member.loader.read(bytes.clone(), in_force.clone());
            whole.lock = read.lock;
            for named in read.named {
                if !whole.named.contains(&named) {
                    whole.named.push(named);
                }
            }
            let (Ok((_, problems)) | Err(problems)) = &meaning;
            // What is wrong for one session is mostly wrong for all, and is told once.
            for problem in problems {
                let text = problem.render(false);
                if told.insert(text.clone()) {
                    match problem.is_error() {
                        true => tracing::error!("{text}"),
                        false => tracing::warn!("{text}"),
                    }
                }
            }
            match meaning {
                Ok((configured, problems)) => {
                    warnings = problems.len();
                    member.gateway.recall(&*configured.face, true);
                    renewals.push((member.gateway.clone(), configured));
                }
                Err(problems) => {
                    let count = check::errors(&problems);
                    if told.insert(count.clone()) {
                        tracing::error!("{count}; the old configuration stays in force");
                    }
                    shown = shown_problems(&problems);
                    refused = Some((member.gateway.clone(), problems.len()));
                }
            }
        }
        *self.refused.lock() = shown;
        if let (Some((gateway, problems)), true) = (refused, renewals.is_empty()) {
            note_reload(&gateway, false, problems);
        }
        ((!renewals.is_empty()).then_some(Reading { renewals, warnings, readers }), whole)
    }
}

/// Reads the file of a session as the session would.
fn load(handover: Handover) -> Result<Loaded, String> {
    let Handover { face, file, directory, umask, tool_mode, entry, vars, .. } = handover;
    let mut world = World { vars, directory, home: None };
    world.home = world.variable(HOMES[0]).map(PathBuf::from).or_else(std::env::home_dir);
    let loader = Loader::for_serving(face, file, Overrides { tool_mode, entry }, world);
    let loader = Loader { in_daemon: true, ..loader };
    let shown = loader.file.display();
    let bytes = contents(&loader.file).map_err(|error| format!("the daemon cannot read {shown}: {error}"))?;
    match loader.read(bytes, None) {
        (Ok((configured, _)), read) => Ok(Loaded { loader, umask, configured, read }),
        (Err(_), _) => {
            Err(format!("{shown} is no longer valid; the session goes on with the file as it was"))
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const PLAIN: &str = r#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "a"}}}}}"#;
    const WITH_TOKEN: &str =
        r#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "a", "env": {"TOKEN": "${TOKEN}"}}}}}}"#;

    /// A daemon that serves nobody yet, and the directory with its file.
    struct Den {
        daemon: Arc<RunningDaemon>,
        directory: PathBuf,
    }

    impl Den {
        fn new() -> Self {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let directory =
                std::env::temp_dir().join(format!("mcp-workbench-pool-{}-{number}", std::process::id()));
            fs::create_dir_all(&directory).expect("a temporary directory");
            fs::write(directory.join("file.json"), PLAIN).expect("it is ours");
            let daemon = RunningDaemon::new(DaemonPlace::at(directory.clone())).expect("it can be asked for");
            Self { daemon: Arc::new(daemon), directory }
        }

        /// A session with this token joins.
        fn join(&self, token: &str) -> Arc<Pool> {
            let vars = [("HOME", self.directory.as_os_str()), ("TOKEN", token.as_ref())];
            let loaded = load(Handover {
                face: FaceKind::Workbench,
                file: self.directory.join("file.json"),
                directory: self.directory.clone(),
                umask: None,
                tool_mode: None,
                entry: None,
                first_question: 0,
                record: None,
                vars: vars.map(|(name, value)| (name.into(), value.into())).into(),
            });
            self.daemon.seat(loaded.unwrap_or_else(|reason| panic!("{reason}")), None).0
        }
    }

    impl Drop for Den {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    fn reading(pool: &Pool, text: &str) -> Reading {
        pool.read(text.into()).0.expect("it is valid for somebody")
    }

    #[tokio::test]
    async fn the_file_is_read_again_for_whoever_came_while_it_was_read() {
        let den = Den::new();
        let pool = den.join("");
        // Nobody else hears what is wanted.
        pool.watching.lock().as_ref().expect("the file is followed").abort();
        let is_wanted = async |pool: &Pool| timeout(Duration::ZERO, pool.reload.notified()).await.is_ok();
        pool.put_in_force(reading(&pool, WITH_TOKEN));
        assert!(!is_wanted(&pool).await, "everybody has it");
        let read = reading(&pool, PLAIN);
        den.join("");
        pool.put_in_force(read);
        assert!(is_wanted(&pool).await);
    }

    #[tokio::test]
    async fn what_a_new_file_makes_secret_is_secret_in_all_sessions() {
        let den = Den::new();
        let pool = den.join("token-of-one");
        den.join("token-of-two");
        pool.put_in_force(reading(&pool, WITH_TOKEN));
        let secrets = pool.engine.settings().secrets.clone();
        assert_eq!(secrets.redact("token-of-one, token-of-two"), "${TOKEN}, ${TOKEN}");
    }
}
