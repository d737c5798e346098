//! One upstream over its generations: whether it runs, what it offers, and how to reach it.
//!
//! ```text
//! idle ──start──> starting ──ready──> up ──crash──> failed ──start, after the back-off──> starting
//!   ^                 └──────error────│──────────────^
//!   ├──unused for `idleTimeout`, or by hand
//!   └──stop, from wherever it is
//! ```
//!
//! While an upstream is not connected, what it offered when it last ran, in this process or another, may stay
//! on offer. An upstream is "at rest" when no opening starts it, only a request that needs it.
//!
//! Openings, calls and the reload of a file start and stop upstreams; [`lifecycle`](super::lifecycle) runs
//! each of their lives.
//!
//! Invariant: a stale generation changes nothing. Every life has a number, and reports of an older life are
//! ignored.

pub mod by_hand;
mod spec;
mod waiting;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, oneshot, watch};

use super::backoff::Backoff;
use super::connection::Connection;
use super::engine::Engine;
use super::lifecycle;
use super::modern::Watched;
use super::observed;
use super::sharing::{DaemonSession, Usage};
use super::start_error::{Cause, StartError};
use super::workspace::Workspace;
use crate::catalog::{Exposed, Items, Sent};
use crate::config::Transport;
use crate::events::Moment;
use crate::memory::credentials::Credentials;
use crate::transport::oauth::{KnownLogin, Login, Memory};
pub use spec::{Listing, Spec};

/// A configured server and its life so far. Each start begins a new generation; reports of an older
/// generation change nothing.
pub struct Upstream {
    /// The group that the upstream belongs to: a toolbox or a namespace.
    pub group: Arc<str>,
    /// The server's name in the group.
    pub server: Arc<str>,
    /// What the file says about the upstream now.
    spec: RwLock<Arc<Spec>>,
    /// The name that people know the upstream by.
    label: Arc<str>,
    pub(super) engine: Weak<Engine>,
    /// The session of the daemon that the upstream was started for last, and whose surroundings it gets.
    origin: RwLock<Option<Arc<DaemonSession>>>,
    /// How much the upstream is used.
    pub usage: Usage,
    phase: watch::Sender<Phase>,
    /// Lock order: whoever holds `state` may lock `phase` and `spec`, never the other way round.
    state: Mutex<UpstreamState>,
    /// How many of the upstream's lives are not over yet, processes included.
    lives: watch::Sender<usize>,
    /// Notified whenever a request stops waiting for the upstream to come up.
    less_waiting: Notify,
    /// Notified whenever other settings are in force.
    pub(super) renewed: Notify,
}

#[derive(Default)]
struct UpstreamState {
    generation: u64,
    backoff: Backoff,
    connection: Option<Arc<Connection>>,
    /// What the upstream sent when it was last asked.
    sent: Sent,
    /// What clients may see of `sent`.
    items: Arc<Items>,
    /// Whether the upstream spoke the modern era when it last ran.
    modern: bool,
    /// What becomes of `items` while there is no connection.
    while_down: OfferWhileDown,
    last_failure: Option<StartError>,
    /// What clients watch, and how many clients watch it.
    watched: BTreeMap<Watched, usize>,
    stop: Option<oneshot::Sender<()>>,
    /// How many requests of clients wait for the upstream to come up.
    waiting: usize,
    /// Why the upstream is never started again.
    over: Option<Over>,
}

/// What becomes of what an upstream offers while it is not connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum OfferWhileDown {
    /// Its things are not on offer.
    #[default]
    Gone,
    /// The upstream has not run yet. Whether its things are on offer depends on who looks, and so does what starts it.
    Remembered,
    /// The upstream was stopped, and only a request that needs it starts it. Its things stay on offer.
    Unused,
    /// The upstream has failed. Whoever lists its things always keeps them.
    Failed,
}

/// Why an upstream is never started again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// The file no longer has the upstream, or has another in its place.
    Removed,
    /// Nobody has the upstream open any more; whoever opens it next gets a new one.
    Closed,
}

/// What the successor of a closed upstream has to know about it.
pub(super) struct FailureHistory {
    /// How the closed upstream was reached.
    pub(super) transport: Transport,
    backoff: Backoff,
    last_failure: Option<StartError>,
}

impl FailureHistory {
    /// Whether the history can still delay a start.
    pub(super) fn matters(&self, now: Instant) -> bool {
        self.backoff.matters(now)
    }
}

/// Where an upstream is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Nobody has asked for the upstream, or it was closed.
    Idle,
    /// The upstream is on its way up.
    Starting,
    /// The upstream is connected, and its lists have been read.
    Up,
    /// The upstream is unavailable, for this reason.
    Failed(StartError),
}

/// How a connection ended.
#[derive(Clone)]
pub enum End {
    /// We stopped it.
    Stopped,
    /// We stopped it because nobody used it. Its things stay on offer, and whoever uses one starts it.
    Unused,
    /// The upstream did not come up.
    Failed(StartError),
    /// The upstream went down after it had been up for this long.
    Down(StartError, Duration),
}

impl Upstream {
    /// An upstream that does not run yet, perhaps the successor of one that was closed.
    pub(super) fn new(
        group: &str,
        server: &str,
        label: &str,
        spec: Spec,
        history: Option<FailureHistory>,
        origin: Option<Arc<DaemonSession>>,
        engine: Weak<Engine>,
    ) -> Arc<Self> {
        let (backoff, last_failure) =
            history.map_or_else(Default::default, |history| (history.backoff, history.last_failure));
        Arc::new(Self {
            group: group.into(),
            server: server.into(),
            label: label.into(),
            spec: RwLock::new(Arc::new(spec)),
            engine,
            origin: RwLock::new(origin),
            usage: Usage::default(),
            phase: watch::Sender::new(Phase::Idle),
            state: Mutex::new(UpstreamState { backoff, last_failure, ..UpstreamState::default() }),
            lives: watch::Sender::new(0),
            less_waiting: Notify::new(),
            renewed: Notify::new(),
        })
    }

    /// Takes over what is remembered of the upstream, unless it has run: its era and, if it is on offer before it
    /// runs, what it offers.
    pub(super) fn recall(&self, offered: Option<Sent>, modern: bool) {
        let offered = offered.map(|sent| {
            let items = self.shown(&sent);
            (sent, items)
        });
        let mut state = self.state.lock();
        if state.generation > 0 {
            return;
        }
        state.modern = modern;
        if let Some((sent, items)) = offered {
            (state.sent, state.items) = (sent, items);
            state.while_down = OfferWhileDown::Remembered;
        }
    }

    /// What another session of the daemon is shown of the upstream. Sessions of one upstream have the same face, so
    /// what is made from the same names is the same.
    pub(super) fn shown_to_others(&self) -> Option<Arc<Exposed>> {
        self.origin.read().as_ref().and_then(|_| self.usage.shown())
    }

    /// The session of the daemon whose surroundings the upstream gets.
    pub(super) fn origin(&self) -> Option<Arc<DaemonSession>> {
        self.origin.read().clone()
    }

    /// Gives the next process the surroundings of this workspace's session; one that runs keeps those that it has.
    pub fn take_surroundings_of(&self, workspace: &Workspace) {
        if let Some(session) = workspace.daemon_session_handle()
            && !matches!(*self.phase.borrow(), Phase::Up | Phase::Starting)
        {
            *self.origin.write() = Some(session);
        }
    }

    /// What the file says about the upstream now.
    pub fn spec(&self) -> Arc<Spec> {
        self.spec.read().clone()
    }

    /// Puts other settings in force. They cannot change how the upstream is reached: that takes a new
    /// upstream.
    pub(super) fn set_spec(&self, spec: Spec) {
        let before = std::mem::replace(&mut *self.spec.write(), Arc::new(spec));
        let now = self.spec();
        if (&before.guard, &before.filter) != (&now.guard, &now.filter) {
            let sent = self.sent();
            self.state.lock().items = self.shown(&sent);
        }
        self.renewed.notify_waiters();
    }

    /// What clients may see of what the upstream sent. What deviates from the lock is logged.
    fn shown(&self, sent: &Sent) -> Arc<Items> {
        let spec = self.spec();
        let (items, deviations) = sent.shown(spec.guard.as_ref());
        if let Some(engine) = self.engine.upgrade() {
            engine.deviations.note(self, &spec, deviations);
        }
        Arc::new(items)
    }

    /// The connection, while there is one.
    pub fn connection(&self) -> Option<Arc<Connection>> {
        self.state.lock().connection.clone()
    }

    /// What clients may see of what the upstream offered when it was last asked.
    pub fn items(&self) -> Arc<Items> {
        self.state.lock().items.clone()
    }

    /// What the upstream sent when it was last asked, whether or not it was approved.
    pub fn sent(&self) -> Sent {
        self.state.lock().sent.clone()
    }

    /// Whether what the upstream offers can be used: it is connected, or whoever uses it starts it.
    pub fn is_on_offer(&self, listing: Listing) -> bool {
        let state = self.state.lock();
        state.connection.is_some()
            || match state.while_down {
                OfferWhileDown::Gone => false,
                OfferWhileDown::Remembered => self.spec().recalls(listing),
                OfferWhileDown::Unused => true,
                OfferWhileDown::Failed => listing == Listing::Always,
            }
    }

    /// Whether only a request that needs the upstream may start it.
    pub fn is_at_rest(&self, listing: Listing) -> bool {
        let state = self.state.lock();
        let rests = match state.while_down {
            OfferWhileDown::Gone => false,
            OfferWhileDown::Remembered => self.spec().starts_on_call(listing),
            OfferWhileDown::Unused => true,
            OfferWhileDown::Failed => listing == Listing::Always,
        };
        rests && !matches!(*self.phase.borrow(), Phase::Up | Phase::Starting)
    }

    /// Whether the upstream speaks the modern era, or did when it last ran.
    pub fn is_modern(&self) -> bool {
        let state = self.state.lock();
        state.connection.as_ref().map_or(state.modern, |connection| connection.version().is_modern())
    }

    /// Whether the upstream ended by itself or did not come up.
    pub fn has_failed(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Failed(_))
    }

    /// Whether it is connected.
    pub fn is_up(&self) -> bool {
        *self.phase.borrow() == Phase::Up
    }

    /// Whether it is on its way up.
    pub fn is_starting(&self) -> bool {
        *self.phase.borrow() == Phase::Starting
    }

    /// Starts the upstream unless it runs or is about to. `Err`: it failed too often to be started again just
    /// now.
    pub fn start(self: &Arc<Self>) -> Result<watch::Receiver<Phase>, StartError> {
        let mut state = self.state.lock();
        if !matches!(*self.phase.borrow(), Phase::Up | Phase::Starting) {
            match state.over {
                Some(Over::Removed) => {
                    return Err(
                        "the configuration has changed, and this server is no longer part of it".into()
                    );
                }
                Some(Over::Closed) => return Err("it was closed".into()),
                None => {}
            }
            let Some(engine) = self.engine.upgrade() else { return Err("the gateway is ending".into()) };
            // A server with unset variables cannot start, however often it is tried.
            if let Transport::Unset(unset) = &self.spec().transport {
                let error = StartError::new(Cause::Variable, unset.to_string());
                state.last_failure = Some(error.clone());
                let before = self.phase.send_replace(Phase::Failed(error.clone()));
                if !matches!(before, Phase::Failed(_)) {
                    let end = End::Failed(error.clone());
                    observed::has_ended(&engine, self, Moment::now(), &end, None);
                    // A task tells the engine later, since the caller may hold a view.
                    let upstream = self.clone();
                    engine.spawn(async move { upstream.tell_engine() });
                }
                return Err(error);
            }
            if let Err(wait) = state.backoff.start(Instant::now()) {
                let last = state.last_failure.clone().unwrap_or_else(|| "it was started too often".into());
                let seconds = wait.as_secs_f64().ceil();
                let problem = format!("{} (next attempt possible in {seconds} s)", last.problem);
                return Err(last.reworded(problem));
            }
            state.generation += 1;
            let (stop, stopped) = oneshot::channel();
            state.stop = Some(stop);
            self.phase.send_replace(Phase::Starting);
            let life = CountedLife::new(self);
            let run = lifecycle::run(engine.clone(), self.clone(), state.generation, stopped);
            // What waits for it would hold it twice otherwise.
            let run = Box::pin(observed::on_behalf_of(observed::behalf(), run));
            let (upstream, was_stopped) = (self.clone(), state.while_down == OfferWhileDown::Unused);
            let whole = async move {
                if was_stopped {
                    // The process that was stopped for want of use may still hold what the next one needs.
                    let _ = upstream.lives.subscribe().wait_for(|lives| *lives == 1).await;
                }
                run.await;
                drop(life);
            };
            if !engine.spawn(whole) {
                self.phase.send_replace(Phase::Idle);
                return Err("the gateway is ending".into());
            }
        }
        Ok(self.phase.subscribe())
    }

    /// Notes another start of the process within one attempt; `false`: there were too many.
    pub(super) fn may_start_again(&self) -> bool {
        self.state.lock().backoff.start(Instant::now()).is_ok()
    }

    /// Takes over what clients expect of the upstream that this one replaces.
    pub fn inherit(&self, before: &Self) {
        let watched = before.state.lock().watched.clone();
        self.state.lock().watched = watched;
    }

    /// What clients watch: URIs of resources, and ids of tasks.
    pub(super) fn watched(&self) -> (Vec<String>, Vec<String>) {
        let (mut resources, mut tasks) = (Vec::new(), Vec::new());
        for what in self.state.lock().watched.keys() {
            match what {
                Watched::Resource(uri) => resources.push(uri.clone()),
                Watched::Task(id) => tasks.push(id.clone()),
            }
        }
        (resources, tasks)
    }

    /// Whether the file no longer has the upstream, or has another in its place.
    pub fn is_removed(&self) -> bool {
        self.state.lock().over == Some(Over::Removed)
    }

    /// Whether any client watches this.
    pub fn is_watched(&self, what: &Watched) -> bool {
        self.state.lock().watched.contains_key(what)
    }

    /// Counts one watcher more or fewer. `true`: the upstream must be told.
    pub fn count_watcher(&self, what: &Watched, more: bool) -> bool {
        let mut state = self.state.lock();
        let count = state.watched.entry(what.clone()).or_insert(0);
        let told = if more { *count == 0 } else { *count == 1 };
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            state.watched.remove(what);
        }
        told
    }

    /// Why the upstream is not up, if it is not.
    pub(super) fn last_error(&self) -> StartError {
        self.state.lock().last_failure.clone().unwrap_or_else(|| "it was closed".into())
    }

    /// How long the upstream must not be started again.
    pub fn wait(&self) -> Duration {
        self.state.lock().backoff.wait(Instant::now())
    }

    /// Lets the upstream be started at once, whatever failed before.
    pub(super) fn forgive(&self) {
        self.state.lock().backoff.reset();
    }

    /// The login that the upstream waits for, if any.
    pub fn login(&self) -> Option<Login> {
        match &self.spec().transport {
            Transport::Http(http) => self.engine.upgrade()?.authorizer(self, http)?.login(),
            Transport::Stdio(_) | Transport::Unset(_) => None,
        }
    }

    /// The login to the upstream that is remembered, if any.
    pub fn known_login(&self) -> Option<KnownLogin> {
        self.credentials()?.load()?.known()
    }

    /// Forgets the login; returns whether there was one.
    pub fn forget_login(&self) -> io::Result<bool> {
        self.credentials().map_or(Ok(false), |credentials| credentials.forget())
    }

    fn credentials(&self) -> Option<Credentials> {
        match &self.spec().transport {
            Transport::Http(http) => self.engine.upgrade()?.logins.credentials(http),
            Transport::Stdio(_) | Transport::Unset(_) => None,
        }
    }

    /// Ends the upstream for good and returns what its successor has to know. A call that came earlier and
    /// has not started the upstream yet does not start it any more.
    pub(super) fn stop_for_good(self: &Arc<Self>) -> FailureHistory {
        self.state.lock().over = Some(Over::Closed);
        self.stop();
        let mut state = self.state.lock();
        let (backoff, last_failure) = (std::mem::take(&mut state.backoff), state.last_failure.clone());
        FailureHistory { transport: self.spec().transport.clone(), backoff, last_failure }
    }

    /// Ends the upstream: calls in flight fail at once, and the process ends in the background.
    pub fn stop(self: &Arc<Self>) {
        let (stop, connection) = {
            let mut state = self.state.lock();
            state.generation += 1;
            state.while_down = OfferWhileDown::Gone;
            if self.phase.send_replace(Phase::Idle) == Phase::Up {
                state.backoff.ended_well(Instant::now());
            }
            (state.stop.take(), state.connection.take())
        };
        if let Some(connection) = connection {
            connection.stop("it was closed");
        }
        if let Some(stop) = stop {
            let _ = stop.send(());
        }
    }

    /// Called by the connection of `generation` when it is up.
    pub(super) fn came_up(self: &Arc<Self>, generation: u64, connection: Arc<Connection>, sent: Sent) {
        let items = self.shown(&sent);
        {
            let mut state = self.state.lock();
            if state.generation != generation {
                return;
            }
            state.modern = connection.version().is_modern();
            state.connection = Some(connection);
            (state.sent, state.items) = (sent, items);
        }
        // The views are updated first: whoever waits for the phase must find the tools in them.
        self.tell_engine();
        let state = self.state.lock();
        if state.generation == generation {
            self.phase.send_replace(Phase::Up);
        }
    }

    /// Called by the connection of `generation` when lists were read anew.
    pub(super) fn offers(self: &Arc<Self>, generation: u64, sent: Sent) {
        let is_news = |state: &UpstreamState| state.generation == generation && state.sent != sent;
        if !is_news(&self.state.lock()) {
            return;
        }
        let items = self.shown(&sent);
        {
            let mut state = self.state.lock();
            (state.sent, state.items) = (sent, items);
        }
        self.tell_engine();
    }

    /// Called by the connection of `generation` when it has ended.
    pub(super) fn ended(self: &Arc<Self>, generation: u64, end: End) {
        {
            let mut state = self.state.lock();
            if state.generation != generation {
                return;
            }
            state.connection = None;
            state.stop = None;
            let (reason, uptime) = match end {
                End::Stopped => {
                    self.phase.send_replace(Phase::Idle);
                    return;
                }
                End::Unused => {
                    state.while_down = OfferWhileDown::Unused;
                    state.backoff.ended_well(Instant::now());
                    self.phase.send_replace(Phase::Idle);
                    return;
                }
                End::Failed(reason) => {
                    if let Some(engine) = self.engine.upgrade() {
                        engine.remember_failure(self, reason.clone());
                    }
                    (reason, Duration::ZERO)
                }
                End::Down(reason, uptime) => (reason, uptime),
            };
            tracing::warn!("[{self}] {reason}");
            state.backoff.failed(Instant::now(), uptime, jitter());
            state.last_failure = Some(reason.clone());
            state.while_down = match state.sent.is_empty() {
                true => OfferWhileDown::Gone,
                false => OfferWhileDown::Failed,
            };
            self.phase.send_replace(Phase::Failed(reason));
        }
        self.tell_engine();
    }

    fn tell_engine(self: &Arc<Self>) {
        if let Some(engine) = self.engine.upgrade() {
            engine.upstream_changed(self);
        }
    }
}

/// One life of an upstream, from start to the end of its whole process tree.
struct CountedLife(Arc<Upstream>);

impl CountedLife {
    fn new(upstream: &Arc<Upstream>) -> Self {
        upstream.lives.send_modify(|lives| *lives += 1);
        Self(upstream.clone())
    }
}

impl Drop for CountedLife {
    fn drop(&mut self) {
        self.0.lives.send_modify(|lives| *lives -= 1);
    }
}

#[cfg(test)]
impl Upstream {
    /// An upstream without a process; [`Self::pretend`] gives it a life.
    pub(crate) fn unreal(group: &str, server: &str) -> Arc<Self> {
        Self::unreal_of(group, server, None)
    }

    /// As [`Self::unreal`], made for a session of the daemon.
    pub(crate) fn unreal_in_daemon(group: &str, server: &str) -> Arc<Self> {
        let session = DaemonSession::new(Vec::new().into(), "/".into(), "/".into(), None);
        Self::unreal_of(group, server, Some(Arc::new(session)))
    }

    fn unreal_of(group: &str, server: &str, origin: Option<Arc<DaemonSession>>) -> Arc<Self> {
        let (program, args, env) = (String::new(), Vec::new(), Vec::new());
        let command = crate::config::Command { program, args, env, cwd: None, inherit_env: Vec::new() };
        Self::new(group, server, group, Spec::plain(Transport::Stdio(command)), None, origin, Weak::new())
    }

    /// Pretends that the upstream is up and offers these items, or that it is down.
    pub(crate) fn pretend(self: &Arc<Self>, items: Option<Items>) {
        match items {
            Some(items) => {
                self.came_up(0, Connection::new(self.clone(), Default::default()), items.into());
            }
            None => self.ended(0, End::Down("pretended".into(), Duration::ZERO)),
        }
    }
}

impl std::fmt::Display for Upstream {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.label)
    }
}

/// A number in 0..1 that differs between processes and moments.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0u8) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Kind;
    use crate::config::Start;

    #[test]
    fn what_is_remembered_is_on_offer_until_a_failure_and_in_some_lists_beyond() {
        // Whether it is on offer, and at rest: before it runs, while it runs, after a crash, when it was
        // stopped.
        let (open, call, up, always) =
            (Some(Start::Open), Some(Start::Call), Listing::WhileUp, Listing::Always);
        let cases = [
            (None, up, [(false, false), (true, false), (false, false), (false, false)]),
            (open, up, [(false, false), (true, false), (false, false), (false, false)]),
            (call, up, [(true, true), (true, false), (false, false), (false, false)]),
            (None, always, [(true, true), (true, false), (true, true), (false, false)]),
            (open, always, [(true, false), (true, false), (true, true), (false, false)]),
            (call, always, [(true, true), (true, false), (true, true), (false, false)]),
        ];
        let items = || Items::default().with(Kind::Tool, Items::named(Kind::Tool, &["t"]));
        for (start, listing, expected) in cases {
            let upstream = Upstream::unreal("box", "a");
            upstream.set_spec(Spec { start, ..(*upstream.spec()).clone() });
            let now = || (upstream.is_on_offer(listing), upstream.is_at_rest(listing));
            upstream.recall(Some(items().into()), true);
            assert!(upstream.is_modern());
            let before = now();
            upstream.pretend(Some(items()));
            assert!(!upstream.is_modern(), "as it is, not as it was");
            let running = now();
            upstream.pretend(None);
            let crashed = now();
            upstream.stop();
            assert_eq!([before, running, crashed, now()], expected, "{start:?} {listing:?}");
        }
        let upstream = Upstream::unreal("box", "a");
        upstream.pretend(None);
        assert!(!upstream.is_on_offer(Listing::Always), "nothing is known of it");
    }

    #[test]
    fn what_an_older_life_reports_changes_nothing() {
        let upstream = Upstream::unreal("box", "a");
        let items = |name: &str| Items::default().with(Kind::Tool, Items::named(Kind::Tool, &[name]));
        let connection = || Connection::new(upstream.clone(), Default::default());
        upstream.state.lock().generation = 2;
        let (old, now) = (connection(), connection());
        upstream.came_up(2, now.clone(), items("now").into());
        upstream.offers(1, items("old").into());
        upstream.came_up(1, old, items("old").into());
        upstream.ended(1, End::Down("old".into(), Duration::ZERO));
        assert!(
            upstream.is_up()
                && upstream.connection().is_some_and(|connection| Arc::ptr_eq(&connection, &now))
        );
        assert_eq!(*upstream.items(), items("now"));
        upstream.offers(2, items("new").into());
        assert_eq!(*upstream.items(), items("new"));
    }
}
