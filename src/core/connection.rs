//! One life of an upstream: start, handshake, lists, messages, end.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::catalog::{Items, Kind, read_page};
use super::engine::Engine;
use super::process::{Child, Control, Exit};
use super::session::Session;
use super::stderr::Tail;
use super::upstream::{End, Upstream};
use crate::config::{Redactor, Transport};
use crate::wire::era::{ServerHello, Version, initialize_params};
use crate::wire::json::Scanner;
use crate::wire::lines::{Line, Lines};
use crate::wire::message::Message;
use crate::wire::outbox::Outbox;
use crate::wire::peer::{CallError, Deadline, Lost, Peer};

/// A live connection to an upstream.
pub struct Link {
    /// Whose it is.
    pub upstream: Arc<Upstream>,
    /// Our requests to it.
    pub peer: Arc<Peer<Caller>>,
    hello: OnceLock<ServerHello>,
    /// Its questions that wait for a client: its id, ours towards the client, and the client.
    pub(super) questions: Mutex<HashMap<Box<str>, Asked>>,
    /// How many questions are open; calls do not time out meanwhile.
    pub(super) asking: Arc<AtomicUsize>,
    changed_kinds: AtomicU8,
    changed: Notify,
    noise: AtomicU64,
    redactor: Redactor,
}

/// A question's id towards the client, and the client.
pub(super) type Asked = (u64, Arc<Session>);

/// Whose request it was, and under which token it wants progress.
#[derive(Default)]
pub struct Caller {
    /// `None` for our own requests.
    pub session: Option<Arc<Session>>,
    /// The client's own token, raw.
    pub progress: Option<Box<str>>,
}

/// Two readings of an upstream's lists are at least so far apart, however often it says that they changed.
const BETWEEN_LISTS: Duration = Duration::from_millis(200);
/// What an upstream that was asked to end by the end of its stdin may take, before it is told by signal.
const POLITE: Duration = Duration::from_millis(300);
/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_millis(300);
/// How long the exit status of an upstream whose output has ended is waited for, and the reverse.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// Bytes that may wait for an upstream that does not read, before its calls are refused.
const MOST_UNREAD: usize = 64 * 1024 * 1024;
/// Pages of one list that are read; more are taken for a mistake of the upstream.
const MOST_PAGES: usize = 10_000;

/// Runs one life of the upstream, from start to the end of its whole process tree.
pub(super) async fn run(
    engine: Arc<Engine>,
    upstream: Arc<Upstream>,
    generation: u64,
    mut stop: oneshot::Receiver<()>,
) {
    let connect = upstream.spec.timeouts.connect;
    let deadline = tokio::time::Instant::now() + connect;
    let spawned = tokio::select! {
        biased;
        _ = &mut stop => return upstream.ended(generation, End::Stopped),
        spawned = timeout(connect, spawn(&engine, &upstream)) => spawned.unwrap_or_else(|_| Err("connection timeout".into())),
    };
    let Child { stdin, stdout, stderr, control } = match spawned {
        Ok(child) => child,
        Err(reason) => return upstream.ended(generation, End::Failed(reason.into())),
    };

    let out = Outbox::new();
    let link = Link::new(upstream.clone(), Peer::new(out.clone()), engine.settings().secrets.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(out.run(stdin).await) });
    let tail = Arc::new(Tail::default());
    let mut life = Life {
        control,
        reader: Task::spawn(read(engine.clone(), link.clone(), stdout)),
        stderr: Task::spawn(tail.clone().drain(stderr, upstream.to_string(), link.redactor.clone())),
        tail,
        redactor: link.redactor.clone(),
    };

    let greeting = tokio::select! {
        biased;
        _ = &mut stop => None,
        greeted = tokio::time::timeout_at(deadline, greet(&engine, &link)) => Some(match greeted {
            Ok(greeted) => greeted,
            Err(_) => Err("connection timeout".into()),
        }),
        reason = life.over() => Some(Err(reason)),
    };
    let end = match greeting {
        None => End::Stopped,
        Some(Err(reason)) => {
            let reason = life.explain(&reason);
            link.close(&reason);
            End::Failed(reason.into())
        }
        Some(Ok(items)) => {
            let up_since = Instant::now();
            upstream.came_up(generation, link.clone(), items);
            tasks.spawn(refresh(link.clone(), generation));
            tokio::select! {
                biased;
                _ = &mut stop => End::Stopped,
                reason = life.over() => {
                    let reason = life.explain(&reason);
                    // The calls first: their callers wait, the lists can be a moment late.
                    link.close(&reason);
                    End::Down(reason.into(), up_since.elapsed())
                }
            }
        }
    };
    let polite = matches!(end, End::Stopped);
    upstream.ended(generation, end);
    link.close("it was closed");
    link.report_noise();
    if polite {
        let _ = timeout(POLITE, life.control.exited()).await;
    }
    life.control.stop(GRACE).await;
}

/// Looks the program up and starts it.
async fn spawn(engine: &Engine, upstream: &Upstream) -> Result<Child, String> {
    match &upstream.spec.transport {
        Transport::Stdio(command) => {
            let launch = engine.launcher.prepare(command, &engine.vars, &engine.directory).await;
            let launch = launch.map_err(|error| error.to_string())?;
            engine.launcher.spawn(&launch).map_err(|error| format!("could not be started: {error}"))
        }
        Transport::Http(_) => Err("HTTP upstreams are not supported yet".into()),
    }
}

/// The parts of a running process.
struct Life {
    control: Control,
    reader: Task,
    stderr: Task,
    tail: Arc<Tail>,
    redactor: Redactor,
}

impl Life {
    /// Waits until the process has ended or closed its output, and says which.
    async fn over(&mut self) -> String {
        let exit = tokio::select! {
            biased;
            exit = self.control.exited() => {
                // What it wrote before it ended still counts.
                let _ = timeout(LAST_WORDS, self.reader.done()).await;
                Some(exit)
            }
            () = self.reader.done() => timeout(LAST_WORDS, self.control.exited()).await.ok(),
        };
        let _ = timeout(LAST_WORDS, self.stderr.done()).await;
        match exit {
            Some(exit @ Exit::NotStarted(_)) => exit.to_string(),
            Some(exit) => format!("the server {exit}"),
            None => "the server closed its output".to_owned(),
        }
    }

    /// The reason with the last lines of stderr behind it.
    fn explain(&self, reason: &str) -> String {
        match self.tail.last_lines() {
            lines if lines.is_empty() => reason.to_owned(),
            lines => format!("{reason}\nlast lines of its stderr:\n{}", self.redactor.redact(&lines)),
        }
    }
}

/// A task that does not outlive its handle.
struct Task(JoinHandle<()>);

impl Task {
    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }

    /// Waits for its end.
    async fn done(&mut self) {
        if !self.0.is_finished() {
            let _ = (&mut self.0).await;
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The legacy handshake and the first reading of all lists. (The probe for the modern era goes here.)
async fn greet(engine: &Engine, link: &Arc<Link>) -> Result<Items, String> {
    let (version, capabilities) = engine.client_for_upstreams();
    let result = link.ask("initialize", &initialize_params(version, &capabilities)).await?;
    let hello = ServerHello::read(&result)?;
    link.hello.set(hello).expect("one handshake a connection");
    link.peer.notify("notifications/initialized", |_| ());
    engine.greeted(link);
    let mut items = Items::default();
    let (tools, resources, templates, prompts) = tokio::join!(
        list(link, Kind::Tool),
        list(link, Kind::Resource),
        list(link, Kind::Template),
        list(link, Kind::Prompt),
    );
    items = items.with(Kind::Tool, tools?);
    for (kind, list) in [(Kind::Resource, resources), (Kind::Template, templates), (Kind::Prompt, prompts)] {
        match list {
            Ok(list) => items = items.with(kind, list),
            Err(reason) => log::warn!("[{}] {reason}; taken as an empty list", link.upstream),
        }
    }
    Ok(items)
}

/// Every page of one list; empty where the upstream has no such things.
async fn list(link: &Arc<Link>, kind: Kind) -> Result<Vec<super::catalog::Item>, String> {
    let mut items = Vec::new();
    if !link.can(kind.capability()) {
        return Ok(items);
    }
    let mut params = "{}".to_owned();
    for _ in 0..MOST_PAGES {
        let result = link.ask(kind.list_method(), &params).await?;
        let page = read_page(kind, &result)?;
        items.extend(page.items);
        if page.nameless > 0 {
            log::warn!(
                "[{}] {} of its {} have no name and are left out",
                link.upstream,
                page.nameless,
                kind.list_key()
            );
        }
        match page.next.map(|cursor| format!("{{\"cursor\":{cursor}}}")) {
            Some(next) if next == params => {
                return Err(format!("repeats a page of `{}` for ever", kind.list_method()));
            }
            Some(next) => params = next,
            None => return Ok(items),
        }
    }
    Err(format!("has more than {MOST_PAGES} pages of `{}`", kind.list_method()))
}

/// Reads lists again when the upstream says that they changed: once for a burst.
async fn refresh(link: Arc<Link>, generation: u64) {
    loop {
        link.changed.notified().await;
        let kinds = link.changed_kinds.swap(0, Ordering::Relaxed);
        let mut items = (*link.upstream.items()).clone();
        for kind in Kind::ALL.into_iter().filter(|kind| kinds & (1 << *kind as u8) != 0) {
            match list(&link, kind).await {
                Ok(list) => items = items.with(kind, list),
                Err(reason) => log::warn!("[{}] {reason}; its list stays as it was", link.upstream),
            }
        }
        link.upstream.offers(generation, items);
        sleep(BETWEEN_LISTS).await;
    }
}

/// Reads the upstream's messages until it closes its output. Waits for the client to take what it was sent before
/// it reads on.
async fn read(engine: Arc<Engine>, link: Arc<Link>, mut stdout: impl AsyncRead + Unpin) {
    let mut lines = Lines::new(engine.settings().max_message_bytes);
    let mut scanner = Scanner::default();
    loop {
        match stdout.read_buf(lines.space()).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        while let Some(line) = lines.next_line() {
            // A panic costs the message that caused it, not the connection.
            if catch_unwind(AssertUnwindSafe(|| link.take(&engine, &mut scanner, line))).is_err() {
                log::error!("[{}] a message of this server made us panic; please report it", link.upstream);
            }
        }
        engine.client_room().await;
    }
    if let Some(rest) = lines.rest() {
        link.take(&engine, &mut scanner, Line::Whole(rest));
    }
}

impl Link {
    fn new(upstream: Arc<Upstream>, peer: Arc<Peer<Caller>>, redactor: Redactor) -> Arc<Self> {
        Arc::new(Self {
            upstream,
            peer,
            hello: OnceLock::new(),
            questions: Mutex::default(),
            asking: Arc::default(),
            changed_kinds: AtomicU8::new(0),
            changed: Notify::new(),
            noise: AtomicU64::new(0),
            redactor,
        })
    }

    /// Whether the upstream declared this capability.
    pub fn can(&self, capability: &str) -> bool {
        self.hello.get().is_some_and(|hello| hello.can(capability))
    }

    /// The version that the upstream speaks.
    pub fn version(&self) -> Version {
        self.hello.get().map_or(Version::LATEST, |hello| hello.version)
    }

    /// When a call to this upstream is given up.
    pub fn deadline(&self) -> Option<Deadline> {
        let timeouts = &self.upstream.spec.timeouts;
        Deadline::new(timeouts.call, timeouts.max_call, &self.asking)
    }

    /// Whether the upstream still reads what it is sent.
    pub fn takes_calls(&self) -> bool {
        self.peer.out().held() < MOST_UNREAD
    }

    /// Fails what is in flight, withdraws its questions and closes the upstream's stdin.
    pub fn close(&self, reason: &str) {
        self.peer.close(&Lost::new(reason));
        let questions = std::mem::take(&mut *self.questions.lock());
        for (ours, session) in questions.into_values() {
            if session.peer.forget(ours).is_some() {
                session.peer.send_cancelled(ours, "the server that asked is gone");
            }
        }
    }

    /// Notes that the upstream's list of this kind has changed.
    pub(super) fn list_changed(&self, kind: Kind) {
        self.changed_kinds.fetch_or(1 << kind as u8, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// A request of our own.
    async fn ask(self: &Arc<Self>, method: &str, params: &str) -> Result<String, String> {
        self.peer.call(method, params, Caller::default(), None).await.map_err(|error| match error {
            CallError::Lost(lost) => lost.to_string(),
            CallError::Refused(error) => {
                let mut scanner = Scanner::default();
                let root = scanner.scan_str(&error).expect("an answer was validated when it was read").root();
                let message = root.get("message").and_then(|message| Some(message.as_str()?.into_owned()));
                format!("answered `{method}` with an error: {}", message.unwrap_or(error.clone()))
            }
        })
    }

    fn take(self: &Arc<Self>, engine: &Arc<Engine>, scanner: &mut Scanner, line: Line<'_>) {
        let text = match line {
            Line::Whole(text) => text,
            Line::TooLong(prefix, length) => return self.take_too_long(engine, scanner, prefix, length),
        };
        let Ok(doc) = scanner.scan(text) else { return self.take_noise(text) };
        if doc.root().raw().starts_with('[') {
            let parts: Vec<&serde_json::value::RawValue> =
                serde_json::from_str(doc.root().raw()).unwrap_or_default();
            let mut scanner = Scanner::default();
            for part in parts {
                if !part.get().starts_with('[') {
                    self.take(engine, &mut scanner, Line::Whole(part.get().as_bytes()));
                }
            }
            return;
        }
        match Message::read(doc.root()) {
            Ok(Message::Response { id: Some(id), outcome }) => {
                if !self.peer.resolve(&id, outcome) {
                    log::debug!("[{}] an answer that nobody waits for: id {id:?}", self.upstream);
                    self.noise.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(Message::Notification { method, params }) => {
                engine.upstream_notification(self, &method, params)
            }
            Ok(Message::Request { id, method, params }) => engine.upstream_request(self, id, &method, params),
            Ok(Message::Response { id: None, .. }) | Err(_) => self.take_noise(text),
        }
    }

    /// A message over the limit fails the call that it answers, and only that.
    fn take_too_long(&self, engine: &Engine, scanner: &mut Scanner, prefix: &[u8], length: usize) {
        let limit = engine.settings().max_message_bytes;
        let reason = format!("the answer has {length} bytes, more than the {limit} of maxMessageBytes");
        let id = scanner.id_in_prefix(prefix).or_else(|| self.peer.only_open());
        if !id.is_some_and(|id| self.peer.fail(id, &Lost::new(reason.as_str()))) {
            self.take_noise(&prefix[..prefix.len().min(80)]);
        }
    }

    /// What is no message is counted; the first is shown.
    fn take_noise(&self, text: &[u8]) {
        if self.noise.fetch_add(1, Ordering::Relaxed) == 0 {
            let text = String::from_utf8_lossy(&text[..text.len().min(200)]);
            let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            log::warn!(
                "[{}] wrote what is no message to its stdout: {}",
                self.upstream,
                self.redactor.redact(&shown)
            );
        }
    }

    fn report_noise(&self) {
        match self.noise.load(Ordering::Relaxed) {
            0 => {}
            count => {
                log::warn!("[{}] wrote {count} lines that were no message or answered nothing", self.upstream)
            }
        }
    }
}
