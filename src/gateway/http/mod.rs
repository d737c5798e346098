//! Streamable HTTP for both eras: connections, limits, and the shutdown of a server. `guard` decides who may
//! come in, `exchange` and `plan` what a request means; the gateway is the [`Backend`].
//!
//! ```text
//! connection ─▶ guard (Host, Origin, token) ─▶ exchange (method, media, size) ─▶ plan (message) ─▶ Backend
//!                                                                                                   │
//!                                  answer (JSON or events) ◀── stream ◀── Sink ◀────────────────────┘
//! ```

mod annex;
mod answer;
mod backend;
mod body;
mod budget;
mod errand;
mod exchange;
mod guard;
mod headers;
mod home;
mod homes;
mod plan;
mod sessions;
mod stream;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::{Mutex, RwLock};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub use self::annex::{Annex, AnnexAnswer, AnnexBody};
pub use self::backend::{Backend, Caller, CallerKey};
pub(super) use self::body::read as read_body;
use self::budget::Budget;
pub(super) use self::guard::{Guard, authenticate, bearer, single};
pub use self::guard::{is_host, is_origin};
pub(super) use self::headers::{is_json, mirror};
use self::homes::Homes;
use self::sessions::Sessions;
use crate::config::{Serving, Token};
use crate::core::process::give_back;
pub use crate::core::route::{Outgoing, Sink};
use crate::json::Scanner;
use crate::replicas::Replicas;

/// The settings of a server.
///
/// It has many fields because each is a limit or a door of its own, which tests and the command line set one by one.
#[derive(Clone)]
pub struct Settings {
    /// What else is served.
    pub annex: Option<Arc<dyn Annex>>,
    /// Further host names by which we may be addressed.
    pub allow_host: Vec<String>,
    /// Further origins from which browsers may call us.
    pub allow_origin: Vec<String>,
    /// The time that calls in flight have to finish on shutdown.
    pub drain: Duration,
    /// The largest number of connections.
    pub max_connections: usize,
    /// The largest number of legacy sessions.
    pub max_sessions: usize,
    /// The time for the head of a request, the longest pause inside a body, and how long an unused connection
    /// stays open.
    pub head_timeout: Duration,
    /// What is kept of streams, so that a broken one can be resumed.
    pub keeping: Keeping,
    /// The silence after which an event stream shows that it is alive.
    pub keep_alive: Duration,
    /// Whether `/metrics` is served.
    pub metrics: bool,
    /// The other replicas of the gateway; `None` if it is alone.
    pub replicas: Option<Arc<Replicas>>,
    /// The settings that may change while we serve.
    pub rules: Arc<Rules>,
}

/// What is kept of streams.
#[derive(Debug, Clone, Copy)]
pub struct Keeping {
    /// How long a broken stream can be resumed.
    pub time: Duration,
    /// The largest number of bytes that all streams together keep.
    pub bytes: usize,
}

impl Settings {
    /// Settings with the usual limits.
    pub fn new(rules: Arc<Rules>) -> Self {
        Self {
            annex: None,
            allow_host: Vec::new(),
            allow_origin: Vec::new(),
            drain: Duration::from_secs(3),
            max_connections: 16 * 1024,
            max_sessions: 10_000,
            head_timeout: Duration::from_secs(30),
            keeping: Keeping { time: Duration::from_secs(5 * 60), bytes: 64 * 1024 * 1024 },
            keep_alive: Duration::from_secs(30),
            metrics: false,
            replicas: None,
            rules,
        }
    }
}

/// Settings that a reload of the configuration may change.
pub struct Rules {
    /// A token that is not in the configuration.
    further: Option<Token>,
    current: RwLock<Arc<Rule>>,
    changed: Notify,
}

/// The rules in force at one time.
struct Rule {
    tokens: Vec<Arc<Token>>,
    session_idle_timeout: Duration,
    max_body_bytes: usize,
}

impl Rules {
    /// The rules of a configuration. The token `further` counts whatever the configuration says.
    pub fn new(serving: &Serving, further: Option<Token>) -> Arc<Self> {
        let current = RwLock::new(Rule::new(serving, further.as_ref()));
        Arc::new(Self { further, current, changed: Notify::new() })
    }

    /// Rules by which everybody on this machine may come in.
    pub fn without_tokens() -> Arc<Self> {
        let serving = Serving {
            session_idle_timeout: Duration::MAX,
            max_body_bytes: 0,
            state_keys: Vec::new(),
            store: None,
            tokens: Vec::new(),
        };
        Self::new(&serving, None)
    }

    /// Applies the rules of a new configuration. Sessions whose token is gone end.
    pub fn replace(&self, serving: &Serving) {
        *self.current.write() = Rule::new(serving, self.further.as_ref());
        self.changed.notify_one();
    }

    /// Ends the sessions whose toolbox is gone.
    pub fn enforce(&self) {
        self.changed.notify_one();
    }

    /// The tokens in force.
    pub fn tokens(&self) -> Vec<Arc<Token>> {
        self.get().tokens.clone()
    }

    fn get(&self) -> Arc<Rule> {
        self.current.read().clone()
    }
}

impl Rule {
    fn new(serving: &Serving, further: Option<&Token>) -> Arc<Self> {
        Arc::new(Self {
            tokens: serving.tokens.iter().chain(further).cloned().map(Arc::new).collect(),
            session_idle_timeout: serving.session_idle_timeout,
            max_body_bytes: serving.max_body_bytes,
        })
    }

    /// The caller under the current rules; `None` if its token is gone.
    fn renewed(&self, caller: &Caller) -> Option<Caller> {
        let token = match &caller.token {
            None => None,
            Some(held) => Some(self.tokens.iter().find(|token| token.token == held.token)?.clone()),
        };
        Some(Caller { toolbox: caller.toolbox.clone(), token })
    }
}

/// The time without a new call after which calls are over.
const QUIET: Duration = Duration::from_secs(3);
/// The time that clients have to read the last of their answers.
const LAST_WRITE: Duration = Duration::from_millis(500);
/// The largest head of a request, and the largest buffer of a connection.
const BUFFER: usize = 64 * 1024;

/// Serves until `shutdown` resolves and the calls in flight have had their time.
pub async fn serve<B: Backend>(
    backend: Arc<B>,
    listener: TcpListener,
    settings: Settings,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let bound = listener.local_addr()?;
    let server = HttpServer::new(backend, bound, settings);
    server.join();
    let mut connections = JoinSet::new();
    let sweeping = {
        let server = server.clone();
        async move { server.sweep().await }
    };
    let mut ending = pin!(async {
        shutdown.await;
        server.drain().await;
    });
    let mut sweeping = pin!(sweeping);
    // Long messages leave much memory free, and the allocator would keep it.
    let mut giving_back = pin!(server.calls.each_rest(|| sleep(QUIET), give_back));
    loop {
        tokio::select! {
            () = &mut ending => break,
            () = &mut sweeping => {}
            () = &mut giving_back => {}
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    if connections.len() >= server.settings.max_connections && !server.lobby.make_room() {
                        tracing::warn!("{} connections are open; one more is refused", connections.len());
                        continue;
                    }
                    let _ = stream.set_nodelay(true);
                    connections.spawn(server.clone().connection(stream, server.lobby.enter()));
                }
                // We are most likely out of file descriptors, so a connection that has not sent anything yet
                // gives way.
                Err(error) => {
                    tracing::warn!("a connection cannot be accepted: {error}");
                    server.lobby.make_room();
                    sleep(Duration::from_millis(10)).await;
                }
            },
        }
    }
    drop(listener);
    server.closing.send_replace(true);
    let _ = timeout(LAST_WRITE, async { while connections.join_next().await.is_some() {} }).await;
    connections.shutdown().await;
    Ok(())
}

/// What all connections share.
struct HttpServer<B: Backend> {
    backend: Arc<B>,
    guard: guard::Guard,
    settings: Settings,
    sessions: Sessions<B::Legacy>,
    budget: Arc<Budget>,
    calls: Arc<Calls>,
    draining: AtomicBool,
    closing: watch::Sender<bool>,
    lobby: Lobby,
    /// Reads the messages of all clients, one at a time and without waiting.
    scanner: Mutex<Scanner>,
    /// Where sessions live, if there are other replicas.
    homes: Option<Homes>,
    own: Weak<Self>,
}

impl<B: Backend> HttpServer<B> {
    fn new(backend: Arc<B>, bound: SocketAddr, settings: Settings) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            homes: settings.replicas.clone().map(Homes::new),
            own: own.clone(),
            backend,
            guard: guard::Guard::new(bound, &settings.allow_host, &settings.allow_origin),
            budget: Arc::new(Budget::new(settings.keeping.bytes)),
            sessions: Sessions::new(settings.max_sessions),
            settings,
            calls: Arc::default(),
            draining: AtomicBool::new(false),
            closing: watch::Sender::new(false),
            lobby: Lobby::default(),
            scanner: Mutex::new(Scanner::of_stream()),
        })
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, seat: Seat) {
        let mut closing = self.closing.subscribe();
        // A connection takes no buffer until data comes.
        let waited = tokio::select! {
            ready = timeout(self.settings.head_timeout, stream.readable()) => ready.is_ok(),
            () = seat.evicted.notified() => false,
            _ = closing.changed() => false,
        };
        if !waited {
            return self.lobby.leave(seat.number);
        }
        let service = service_fn(|request| {
            self.lobby.leave(seat.number);
            async { Ok::<_, std::convert::Infallible>(self.respond(request, &seat.evicted).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.settings.head_timeout).max_buf_size(BUFFER);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            biased;
            _ = connection.as_mut() => {}
            () = seat.evicted.notified() => {}
            _ = closing.changed() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
        self.lobby.leave(seat.number);
    }

    /// Ends expired sessions, for as long as the server runs.
    async fn sweep(&self) {
        loop {
            let rule = self.settings.rules.get();
            let pause = (rule.session_idle_timeout.min(self.settings.keeping.time) / 4)
                .clamp(Duration::from_millis(20), Duration::from_secs(10));
            let _ = timeout(pause, self.settings.rules.changed.notified()).await;
            let rule = self.settings.rules.get();
            let exists = |caller: Caller| caller.toolbox.is_none() || self.backend.toolbox_exists(&caller);
            let allowed = |caller: &Caller| rule.renewed(caller).is_some_and(exists);
            let ended = self.sessions.sweep(rule.session_idle_timeout, self.settings.keeping.time, allowed);
            ended.iter().for_each(|session| self.end_later(session));
            if self.homes.is_some() {
                for session in self.sessions.all() {
                    let home = session.home.as_ref();
                    home.inspect(|home| home.care(rule.session_idle_timeout, session.inbox.is_read()));
                }
            }
            self.backend.sweep(rule.session_idle_timeout);
        }
    }

    /// Lets calls in flight finish, then fails the rest, then ends all streams.
    async fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        if let Some(annex) = &self.settings.annex {
            annex.end();
        }
        self.release_all().await;
        self.backend.drain();
        let finished = async {
            self.calls.finished().await;
            if let Some(homes) = &self.homes {
                homes.replicas.all_served().await;
            }
        };
        if timeout(self.settings.drain, finished).await.is_err() {
            self.backend.abandon();
            let _ = timeout(LAST_WRITE, self.calls.finished()).await;
        }
        for session in self.sessions.drain() {
            self.backend.close(&session.backend);
        }
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

/// Counts requests.
#[derive(Default)]
struct Calls {
    begun: AtomicUsize,
    unanswered: AtomicUsize,
    answered: Notify,
}

/// One unanswered request.
struct OpenCall(Arc<Calls>);

impl Calls {
    fn begin(self: &Arc<Self>) -> OpenCall {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        OpenCall(self.clone())
    }

    /// How many have begun so far.
    fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Calls `rest` once after each time that calls were answered and no other began during a `pause`. Never returns.
    async fn each_rest<P: Future<Output = ()>>(&self, pause: impl Fn() -> P, rest: impl Fn()) {
        loop {
            self.answered.notified().await;
            loop {
                let begun = self.begun();
                pause().await;
                if self.begun() == begun {
                    break rest();
                }
            }
        }
    }

    async fn finished(&self) {
        loop {
            let answered = self.answered.notified();
            if self.unanswered.load(Ordering::Relaxed) == 0 {
                return;
            }
            answered.await;
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.unanswered.fetch_sub(1, Ordering::Relaxed);
        self.0.answered.notify_waiters();
    }
}

/// Connections that have not sent a whole request head yet. If room is needed, the oldest gives way, so that
/// idle connections cannot keep others out.
#[derive(Default)]
struct Lobby(Mutex<Seats>);

#[derive(Default)]
struct Seats {
    next: u64,
    seats: BTreeMap<u64, Arc<Notify>>,
}

struct Seat {
    number: u64,
    evicted: Arc<Notify>,
}

impl Lobby {
    fn enter(&self) -> Seat {
        let mut waiting = self.0.lock();
        let seat = Seat { number: waiting.next, evicted: Arc::default() };
        waiting.next += 1;
        waiting.seats.insert(seat.number, seat.evicted.clone());
        seat
    }

    fn leave(&self, number: u64) {
        self.0.lock().seats.remove(&number);
    }

    fn make_room(&self) -> bool {
        let oldest = self.0.lock().seats.pop_first();
        oldest.map(|(_, evicted)| evicted.notify_one()).is_some()
    }
}
