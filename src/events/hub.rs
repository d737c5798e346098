//! The hub: takes what happens off the path of a call, and has its thread tell everybody who wants to know.
//!
//! Invariant: nobody who tells the hub something waits for the thread, whatever the disk or a collector does.
//! Invariant: an orderly end ([`Hub::close`]) writes everything that was told before it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::environment::Telemetry;
use super::exchange::{Asker, Behalf, Errand, Exchange, Inquiry, Moment, OwnErrand};
use super::export::{Exporter, SpanRoom};
use super::happening::{Fact, Happening, ServerPath};
use super::journal::JournalWriter;
use super::metrics::Metrics;
use super::otlp;
use super::repeats::Repeats;
use super::trace::{Parent, Trail};
use super::words;
use crate::config::locate::FaceKind;
use crate::config::{Journal, KeptArguments, Redactor};

/// How long the thread lets news gather. Nothing is older than twice this before it is written and counted.
const GATHER: Duration = Duration::from_millis(50);
/// The most news that wait for the thread.
const MOST_WAITING: usize = 64 * 1024;
/// So many news are worth the thread's while: it does not let more gather, so that the memory that they pass through
/// stays small, and is used again.
const ENOUGH: usize = 256;
/// The most bytes of arguments and results that wait for the thread.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// How long an orderly end may take.
const LONGEST_END: Duration = Duration::from_secs(2);

const JOURNAL: u8 = 1;
const METRICS: u8 = 2;
const TRACES: u8 = 4;
const LIVE: u8 = 8;

/// Where everything that happens is told. Dropping it ends its thread.
pub struct Hub {
    core: Arc<HubCore>,
}

/// What those who tell and the thread share.
#[derive(Debug)]
pub(super) struct HubCore {
    /// Who wants to know.
    wanted: AtomicU8,
    /// What is kept of arguments.
    kept: AtomicU8,
    /// The last random number that was given.
    random: AtomicU64,
    face: FaceKind,
    /// The name of a server that has none.
    nothing: Arc<str>,
    /// The directory of the journal; `None` if this process keeps none.
    directory: Option<PathBuf>,
    telemetry: Telemetry,
    queue: Mutex<Queue>,
    /// Notified when the first news come, when the thread is to end, and when it has ended.
    changed: Condvar,
    settings: Mutex<HubSettings>,
    audience: Mutex<Audience>,
    gathered: Gathered,
}

/// What is gathered, for whoever asks and for a collector.
#[derive(Debug)]
struct Gathered {
    metrics: Arc<Metrics>,
    spans: Arc<SpanRoom>,
}

/// What waits for the thread.
#[derive(Debug, Default)]
struct Queue {
    news: Vec<News>,
    bytes: usize,
    dropped: u64,
    thread: ThreadState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    #[default]
    None,
    Running,
    Ending,
    Ended,
}

/// Something that was told.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all news are exchanges, and a box would be freed by another thread"
)]
pub(super) enum News {
    /// A request of a client was answered.
    Exchange(Exchange),
    /// A request of our own to an upstream was answered; with what stands for the id of the session that it was made
    /// for.
    Errand(Box<Errand>, Option<Arc<str>>),
    /// Something else happened.
    Fact(Moment, Fact),
}

impl News {
    /// The requests to upstreams.
    fn errands(&mut self) -> impl Iterator<Item = &mut Errand> {
        let (exchange, own) = match self {
            Self::Exchange(exchange) => (Some(exchange.errands.iter_mut()), None),
            Self::Errand(errand, _) => (None, Some(&mut **errand)),
            Self::Fact(..) => (None, None),
        };
        exchange.into_iter().flatten().chain(own)
    }

    /// How many bytes are kept of arguments and results.
    fn kept_bytes(&mut self) -> usize {
        self.errands().flat_map(|errand| errand.kept.iter().flatten()).map(|kept| kept.text.len()).sum()
    }

    /// Keeps nothing of arguments and results any more.
    fn let_go(&mut self) {
        self.errands().for_each(|errand| errand.kept = [None, None]);
    }

    /// Makes no spans of them any more.
    fn leave_trace(&mut self) {
        self.errands().for_each(|errand| errand.trail = None);
        if let Self::Exchange(exchange) = self {
            exchange.trail = None;
        }
    }
}

#[derive(Debug, Clone, Default)]
struct HubSettings {
    journal: Journal,
    secrets: Redactor,
}

/// Somebody who is told what happens, and says whether to be told more.
type Listener = Box<dyn FnMut(&Arc<Happening>) -> bool + Send>;

/// Those who listen.
#[derive(Default)]
struct Audience(Vec<Listener>);

impl fmt::Debug for Audience {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} listeners", self.0.len())
    }
}

impl Hub {
    /// A hub for a gateway with this face. `directory` is where its journal stands; `telemetry` says which collector
    /// there is.
    pub fn new(face: FaceKind, directory: Option<PathBuf>, telemetry: Telemetry) -> Self {
        let mut seed = [0; 8];
        // Without randomness ids may repeat, which spoils a trace and nothing else.
        let _ = getrandom::fill(&mut seed);
        let core = Arc::new(HubCore {
            wanted: AtomicU8::new(0),
            kept: AtomicU8::new(KeptArguments::Off as u8),
            random: AtomicU64::new(u64::from_le_bytes(seed)),
            face,
            nothing: "".into(),
            directory,
            queue: Mutex::default(),
            changed: Condvar::new(),
            settings: Mutex::default(),
            audience: Mutex::default(),
            gathered: Gathered { metrics: Arc::new(Metrics::new()), spans: Arc::default() },
            telemetry,
        });
        if core.telemetry.traces.is_some() {
            core.switch_on(TRACES);
        }
        if core.telemetry.metrics.is_some() {
            core.switch_on(METRICS);
        }
        Self { core }
    }

    /// A hub that tells nobody, for verbs that serve no client.
    pub fn off() -> Self {
        Self::new(FaceKind::Workbench, None, Telemetry::default())
    }

    /// Whether anybody wants to know what happens.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.core.wanted.load(Ordering::Relaxed) != 0
    }

    /// Whether spans are made.
    pub fn traces(&self) -> bool {
        self.core.wants(TRACES)
    }

    /// Whether nobody wants to know of a request but a collector, for whom too many spans wait already.
    pub fn is_too_busy_for(&self, spans: usize) -> bool {
        self.core.wanted.load(Ordering::Relaxed) == TRACES && self.core.gathered.spans.refuses(spans)
    }

    /// Puts the settings of a configuration in force.
    pub fn apply(&self, journal: &Journal, secrets: &Redactor) {
        *self.core.settings.lock() = HubSettings { journal: *journal, secrets: secrets.clone() };
        self.core.kept.store(journal.arguments as u8, Ordering::Relaxed);
        match journal.on && self.core.directory.is_some() {
            true => self.core.switch_on(JOURNAL),
            false => drop(self.core.wanted.fetch_and(!JOURNAL, Ordering::Relaxed)),
        }
    }

    /// Begins to count; the metrics are [rendered](Metrics::render) whenever somebody asks.
    pub fn count(&self) {
        self.core.switch_on(METRICS);
    }

    /// What was counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.core.gathered.metrics
    }

    /// Has everything that happens from now on told to a listener, on the hub's thread, until it returns `false`.
    pub fn listen(&self, listener: impl FnMut(&Arc<Happening>) -> bool + Send + 'static) {
        self.core.audience.lock().0.push(Box::new(listener));
        self.core.switch_on(LIVE);
    }

    /// Where an upstream of this group and name stands in the configuration.
    pub fn path(&self, group: &Arc<str>, server: &Arc<str>) -> ServerPath {
        self.core.path((group, server))
    }

    /// Begins to follow a client's request. `parent` is the trace context that it brings, raw, with the vendors' part.
    /// Where there is no room for its spans it is not traced, so that its `_meta` names no span that nobody will see.
    pub fn begin(&self, asked: Inquiry, asker: Asker, parent: (Option<&str>, Option<&str>)) -> Box<Exchange> {
        // What a request names is asked of an upstream, which is another span.
        let spans = 1 + usize::from(asked.name.is_some());
        let is_traced = self.traces() && !self.core.gathered.spans.refuses(spans);
        let trail = is_traced.then(|| self.core.trail(parent));
        Box::new(Exchange::new(self.core.clone(), Moment::now(), asked, asker, trail))
    }

    /// Tells what happened now, or began at that moment.
    pub fn tell(&self, began: Moment, fact: impl FnOnce() -> Fact) {
        if self.is_on() {
            self.core.tell(News::Fact(began, fact()));
        }
    }

    /// Begins to follow a request of our own to an upstream, if anybody wants to know.
    pub fn follow(
        &self,
        server: (&Arc<str>, &Arc<str>),
        method: &str,
        behalf: Option<Behalf>,
    ) -> Option<OwnErrand> {
        self.is_on().then(|| OwnErrand::new(self.core.clone(), server, method, behalf))
    }

    /// Ends the hub: everything that was told is written, and the collector gets the rest, as far as both can be done
    /// in time. Blocks until then.
    pub fn close(&self) {
        let until = Instant::now() + LONGEST_END;
        let mut queue = self.core.queue.lock();
        if queue.thread == ThreadState::Running {
            queue.thread = ThreadState::Ending;
            self.core.changed.notify_all();
        }
        while queue.thread == ThreadState::Ending {
            if self.core.changed.wait_until(&mut queue, until).timed_out() {
                return tracing::warn!("the journal could not be finished in time");
            }
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let mut queue = self.core.queue.lock();
        if queue.thread == ThreadState::Running {
            queue.thread = ThreadState::Ending;
            self.core.changed.notify_all();
        }
    }
}

impl HubCore {
    fn wants(&self, bit: u8) -> bool {
        self.wanted.load(Ordering::Relaxed) & bit != 0
    }

    /// What is kept of arguments.
    pub(super) fn kept_arguments(&self) -> KeptArguments {
        KeptArguments::ALL[usize::from(self.kept.load(Ordering::Relaxed))]
    }

    /// Where an upstream stands in the configuration. Those of toolman are known by their namespace alone.
    pub(super) fn path(&self, (group, server): (&Arc<str>, &Arc<str>)) -> ServerPath {
        let server = if self.face == FaceKind::Toolman { &self.nothing } else { server };
        ServerPath { group: group.clone(), server: server.clone() }
    }

    /// Numbers that nobody else has.
    pub(super) fn random<const COUNT: usize>(&self) -> [u64; COUNT] {
        // SplitMix64.
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut next = self.random.fetch_add(STEP.wrapping_mul(COUNT as u64), Ordering::Relaxed);
        [(); COUNT].map(|()| {
            next = next.wrapping_add(STEP);
            let mixed = (next ^ (next >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (mixed ^ (mixed >> 31)).max(1)
        })
    }

    fn trail(&self, (parent, state): (Option<&str>, Option<&str>)) -> Trail {
        let parent = parent.and_then(Parent::read);
        let [high, low, span] = self.random();
        let fresh = u128::from(high) << 64 | u128::from(low);
        let trace = parent.map_or(fresh, |parent| parent.trace);
        let sampler = self.telemetry.sampler;
        Trail {
            trace,
            span,
            parent: parent.map_or(0, |parent| parent.span),
            sampled: sampler.samples(trace, parent),
            state: parent.and(state).map(Into::into),
        }
    }

    fn switch_on(self: &Arc<Self>, bit: u8) {
        self.wanted.fetch_or(bit, Ordering::Relaxed);
        let mut queue = self.queue.lock();
        if queue.thread == ThreadState::None {
            let core = self.clone();
            let thread = std::thread::Builder::new().name("events".to_owned());
            match thread.spawn(move || core.run()) {
                Ok(_) => queue.thread = ThreadState::Running,
                Err(error) => {
                    self.wanted.store(0, Ordering::Relaxed);
                    tracing::warn!("what happens cannot be followed: {error}");
                }
            }
        }
    }

    /// Takes news for whoever wants to know. What does not fit is dropped, since whoever tells must not wait.
    pub(super) fn tell(&self, mut news: News) {
        let (spans, room) = (otlp::count(&news), &self.gathered.spans);
        // For spans alone the thread has nothing to do.
        if self.wanted.load(Ordering::Relaxed) == TRACES {
            if spans > 0 && room.reserve(spans) {
                news.let_go();
                room.add(news, spans);
            }
            return;
        }
        let bytes = news.kept_bytes();
        let mut queue = self.queue.lock();
        if queue.news.len() >= MOST_WAITING || queue.bytes + bytes > MOST_BYTES {
            queue.dropped += 1;
            return;
        }
        if spans > 0 && !room.reserve(spans) {
            news.leave_trace();
        }
        queue.bytes += bytes;
        queue.news.push(news);
        if [1, ENOUGH].contains(&queue.news.len()) {
            self.changed.notify_all();
        }
    }

    /// The thread.
    fn run(self: Arc<Self>) {
        let mut outlets = Outlets {
            journal: self.directory.clone().map(JournalWriter::new),
            exporter: Exporter::start(&self.telemetry, &self.gathered.metrics, &self.gathered.spans),
            repeats: Repeats::default(),
        };
        let (mut dropped, mut news) = (0, Vec::new());
        loop {
            let ending = {
                let mut queue = self.queue.lock();
                while queue.news.is_empty() && queue.thread == ThreadState::Running {
                    self.changed.wait(&mut queue);
                }
                if queue.thread == ThreadState::Running && queue.news.len() < ENOUGH {
                    self.changed.wait_for(&mut queue, GATHER);
                }
                if queue.dropped > 0 && dropped == 0 {
                    tracing::warn!("more happens than can be written: some of it is missing in the journal");
                }
                dropped += std::mem::take(&mut queue.dropped);
                queue.bytes = 0;
                std::mem::swap(&mut queue.news, &mut news);
                queue.thread == ThreadState::Ending
            };
            self.spread(news.drain(..), &mut outlets);
            // The memory is used again, unless a burst has made it large.
            news.shrink_to(2 * ENOUGH);
            if ending && self.queue.lock().news.is_empty() {
                break;
            }
        }
        if let Some(exporter) = outlets.exporter {
            exporter.finish();
        }
        self.wanted.store(0, Ordering::Relaxed);
        self.queue.lock().thread = ThreadState::Ended;
        self.changed.notify_all();
    }

    /// Tells everybody who wants to know.
    fn spread(&self, news: impl Iterator<Item = News>, outlets: &mut Outlets) {
        let settings = self.settings.lock().clone();
        let mut lines = Vec::new();
        let by = (self.face, std::process::id());
        let wanted = self.wanted.load(Ordering::Relaxed);
        let [journal, metrics, live] = [JOURNAL, METRICS, LIVE].map(|bit| wanted & bit != 0);
        outlets.repeats.under(wanted & (JOURNAL | METRICS), &settings.secrets);
        for mut news in news {
            let repeated = outlets.repeats.tell(&news, &mut lines);
            let (writes, length) = (journal && repeated.is_none(), lines.len());
            if writes || live {
                words::happenings(&news, by, &settings.secrets, |happening| {
                    if writes {
                        happening.write(&mut lines);
                        lines.push(b'\n');
                    }
                    if live {
                        self.announce(happening);
                    }
                });
            }
            match repeated {
                Some((Some(places), times)) => self.gathered.metrics.note_again(places, times),
                Some((None, _)) => {}
                None => {
                    let places = if metrics { self.gathered.metrics.note(&news) } else { None };
                    outlets.repeats.remember(&news, places, &lines[length..]);
                }
            }
            let spans = otlp::count(&news);
            if spans > 0 {
                news.let_go();
                self.gathered.spans.add(news, spans);
            }
        }
        if let Some(writer) = outlets.journal.as_mut().filter(|_| !lines.is_empty()) {
            writer.append(&lines, settings.journal.limit);
        }
    }

    fn announce(&self, happening: Happening) {
        let happening = Arc::new(happening);
        let mut audience = self.audience.lock();
        audience.0.retain_mut(|listener| listener(&happening));
        if audience.0.is_empty() {
            self.wanted.fetch_and(!LIVE, Ordering::Relaxed);
        }
    }
}

/// Where the thread puts what it is told, besides memory.
struct Outlets {
    journal: Option<JournalWriter>,
    exporter: Option<Exporter>,
    repeats: Repeats,
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::super::happening::Reread;
    use super::*;

    #[test]
    fn listeners_hear_everything_until_they_have_enough() {
        let (send, heard) = channel();
        let hub = Hub::off();
        assert!(!hub.is_on());
        hub.listen(move |happening| {
            let Fact::Reload(Reread { problems, .. }) = happening.fact else { return true };
            send.send(problems).is_ok() && problems < 2
        });
        let tell = |problems| hub.tell(Moment::now(), || Fact::Reload(Reread { ok: true, problems }));
        (0..4).for_each(tell);
        assert_eq!(heard.iter().collect::<Vec<_>>(), [0, 1, 2]);
        let until = Instant::now() + Duration::from_secs(30);
        while hub.is_on() {
            assert!(Instant::now() < until, "nobody listens, and yet requests are followed");
            std::thread::yield_now();
        }
    }
}
