//! Sends spans and metrics to a collector, on a thread of its own.
//!
//! Invariant: spans wait in a bounded queue; a collector that is down, slow or answers with an error costs spans and
//! nothing else, and is reported once.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::environment::{Collector, Telemetry};
use super::hub::News;
use super::metrics::Metrics;
use super::otlp::{self, SpanDocuments};
use crate::transport::http_client::post::{NotTaken, Post};

/// The most spans that wait.
const MOST_SPANS: usize = 2048;
/// The most spans that are sent together.
const TOGETHER: usize = 512;
/// The least time between two documents with spans: 20,000 spans a second, which is ten thousand calls. What is sent
/// beyond that would take the processor from the calls themselves.
const BETWEEN_DOCUMENTS: Duration = Duration::from_millis(25);
/// How long an orderly end may take.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// A collector that gets spans and metrics.
pub(super) struct Exporter {
    shared: Arc<SpanRoom>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The spans that wait for the thread. They wait as the news that they are made of: nothing is written before it is sent.
#[derive(Debug, Default)]
pub(super) struct SpanRoom {
    queue: Mutex<SpanQueue>,
    /// How many spans wait: from the moment that they have ended, until they are sent.
    waiting: AtomicUsize,
    dropped: AtomicU64,
    /// Notified when many wait, and when the end has come.
    wake: Notify,
    /// Notified when the end has come.
    end: Notify,
}

#[derive(Debug, Default)]
struct SpanQueue {
    /// What is sent together, oldest first.
    ready: VecDeque<Batch>,
    /// What is added to.
    next: Batch,
    /// Memory that is used again.
    spare: Vec<News>,
    ending: bool,
}

/// News, and how many spans they amount to.
#[derive(Debug, Default)]
struct Batch {
    news: Vec<News>,
    spans: usize,
}

impl SpanRoom {
    /// Whether so many spans do not fit as things are; then they are dropped.
    pub(super) fn refuses(&self, count: usize) -> bool {
        let refuses = self.waiting.load(Ordering::Relaxed) + count > MOST_SPANS;
        if refuses {
            self.count_dropped(count);
        }
        refuses
    }

    /// Has so many spans wait from now on, if there is room for them; they are [added](Self::add) later. Those of a
    /// request wait together or not at all.
    pub(super) fn reserve(&self, count: usize) -> bool {
        let fits = |waiting: usize| Some(waiting + count).filter(|waiting| *waiting <= MOST_SPANS);
        let reserved = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if !reserved {
            self.count_dropped(count);
        }
        reserved
    }

    fn count_dropped(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Adds so many spans, which wait already: what the news amount to.
    pub(super) fn add(&self, news: News, count: usize) {
        let mut queue = self.queue.lock();
        let queue = &mut *queue;
        queue.next.news.push(news);
        queue.next.spans += count;
        if queue.next.spans >= TOGETHER {
            let next = Batch { news: std::mem::take(&mut queue.spare), spans: 0 };
            queue.ready.push_back(std::mem::replace(&mut queue.next, next));
            self.wake.notify_one();
        }
    }

    /// Whether as many spans wait as are sent together.
    fn has_full(&self) -> bool {
        !self.queue.lock().ready.is_empty()
    }

    /// The oldest news, as many as are sent together.
    fn take(&self) -> Option<Batch> {
        let mut queue = self.queue.lock();
        let next =
            |queue: &mut SpanQueue| Some(std::mem::take(&mut queue.next)).filter(|next| next.spans > 0);
        queue.ready.pop_front().or_else(|| next(&mut queue))
    }
}

impl Exporter {
    /// Begins to send what the variables say; `None` if they name no collector.
    pub(super) fn start(telemetry: &Telemetry, metrics: &Arc<Metrics>, room: &Arc<SpanRoom>) -> Option<Self> {
        if telemetry.traces.is_none() && telemetry.metrics.is_none() {
            return None;
        }
        let shared = room.clone();
        let sender = Sender {
            waiting: shared.clone(),
            telemetry: telemetry.clone(),
            metrics: metrics.clone(),
            reported: false,
        };
        let thread = std::thread::Builder::new().name("telemetry".to_owned());
        let started = thread.spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    runtime.block_on(sender.run());
                    // A look-up of a name may still be under way, and must not hold us up.
                    runtime.shutdown_background();
                }
                Err(error) => tracing::warn!("nothing is exported: {error}"),
            }
        });
        match started {
            Ok(thread) => Some(Self { shared, thread: Some(thread) }),
            Err(error) => {
                tracing::warn!("nothing is exported: {error}");
                None
            }
        }
    }

    /// Sends what waits, as far as that can be done in time. Blocks until then.
    pub(super) fn finish(mut self) {
        self.shared.queue.lock().ending = true;
        self.shared.wake.notify_one();
        self.shared.end.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let lost =
            self.shared.dropped.load(Ordering::Relaxed) + self.shared.waiting.load(Ordering::Relaxed) as u64;
        if lost > 0 {
            tracing::warn!("{lost} spans were dropped, because they could not be sent in time");
        }
    }
}

/// What runs on the thread.
struct Sender {
    waiting: Arc<SpanRoom>,
    telemetry: Telemetry,
    metrics: Arc<Metrics>,
    /// Whether a failure was reported.
    reported: bool,
}

impl Sender {
    /// Sends until the end has come, and then whatever can be sent in time, that which is under way included.
    async fn run(self) {
        let waiting = self.waiting.clone();
        let mut sent = pin!(self.send());
        tokio::select! {
            () = &mut sent => return,
            () = waiting.end.notified() => {}
        }
        // What cannot be sent now is lost, and the number of spans says so.
        let _ = timeout(LAST_FLUSH, sent).await;
    }

    async fn send(mut self) {
        let targets = [self.telemetry.traces.take(), self.telemetry.metrics.take()];
        let mut posts = [None, None];
        for (post, target) in posts.iter_mut().zip(targets) {
            if let Some(target) = target {
                *post = self.post(target).await;
            }
        }
        let [traces, metrics] = posts;
        let (span_delay, interval) = (self.telemetry.span_delay, self.telemetry.metric_interval);
        let (mut next_spans, mut next_metrics) = (Instant::now() + span_delay, Instant::now() + interval);
        // A document that is full need not wait for the others.
        let mut next_full = Instant::now();
        let waiting = self.waiting.clone();
        let mut spans = SpanSender::new(&self.waiting, &self.telemetry.resource);
        loop {
            let spans_due = match &traces {
                Some(_) if spans.has_document() => Some(next_full),
                Some(_) => Some(next_spans),
                None => None,
            };
            let metrics_due = metrics.as_ref().map(|_| next_metrics);
            let due =
                spans_due.into_iter().chain(metrics_due).min().unwrap_or_else(|| Instant::now() + interval);
            tokio::select! {
                () = sleep_until(due) => {}
                () = waiting.wake.notified() => {}
            }
            if waiting.queue.lock().ending {
                break;
            }
            let now = Instant::now();
            if let Some(post) = traces.as_ref().filter(|_| spans_due.is_some_and(|due| due <= now)) {
                let taken = spans.send(post).await.unwrap_or(Ok(()));
                // A collector that takes nothing is not pressed.
                let pause = if taken.is_ok() { BETWEEN_DOCUMENTS } else { span_delay };
                (next_spans, next_full) = (now + span_delay, now + pause);
                self.note(taken);
            }
            if let Some(post) = metrics.as_ref().filter(|_| metrics_due.is_some_and(|due| due <= now)) {
                let document = self.metrics_document();
                self.note(post.send(document).await);
                next_metrics = now + interval;
            }
        }
        let rest = async {
            match &traces {
                Some(post) => spans.send_all(post).await.err(),
                None => None,
            }
        };
        let numbers = async {
            match &metrics {
                Some(post) => post.send(self.metrics_document()).await.err(),
                None => None,
            }
        };
        tokio::join!(rest, numbers);
    }

    async fn post(&mut self, target: Collector) -> Option<Post> {
        let mut headers: HeaderMap = target.headers.into_iter().collect();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match Post::new(target.uri, headers, target.timeout).await {
            Ok(post) => Some(post),
            Err(reason) => {
                self.report(&reason);
                None
            }
        }
    }

    fn metrics_document(&self) -> bytes::Bytes {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        otlp::metrics(&self.telemetry.resource, &self.metrics, now).to_string().into()
    }

    fn note(&mut self, taken: Result<(), NotTaken>) {
        if let Err(not_taken) = taken {
            self.report(&not_taken.reason);
        }
    }

    fn report(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.reported, true) {
            tracing::warn!(
                "the collector of OpenTelemetry cannot be reached: {reason}; calls go on without it"
            );
        }
    }
}

/// Sends spans, document by document.
struct SpanSender {
    room: Arc<SpanRoom>,
    documents: SpanDocuments,
    /// A document that was not taken and may be taken later, and how many spans it brings.
    refused: Option<(Bytes, usize)>,
}

impl SpanSender {
    fn new(room: &Arc<SpanRoom>, resource: &[(String, String)]) -> Self {
        Self { room: room.clone(), documents: SpanDocuments::new(resource), refused: None }
    }

    /// Whether a whole document waits.
    fn has_document(&self) -> bool {
        self.refused.is_some() || self.room.has_full()
    }

    /// Sends the oldest document, if there is one. If it may be taken later, it goes on waiting.
    async fn send(&mut self, post: &Post) -> Option<Result<(), NotTaken>> {
        let document = self.next()?;
        let taken = post.send(document.0.clone()).await;
        self.settle(document, &taken);
        Some(taken)
    }

    /// The oldest document, and how many spans it brings. They count as waiting until it is settled.
    fn next(&mut self) -> Option<(Bytes, usize)> {
        self.refused.take().or_else(|| {
            let Batch { mut news, spans } = self.room.take()?;
            let document = self.documents.write(&news);
            news.clear();
            self.room.queue.lock().spare = news;
            Some((document, spans))
        })
    }

    /// Says what became of a document: it was taken, or not. One that may be taken later is the first again.
    fn settle(&mut self, document: (Bytes, usize), taken: &Result<(), NotTaken>) {
        match taken {
            Err(not_taken) if not_taken.is_passing => return self.refused = Some(document),
            Err(_) => self.room.count_dropped(document.1),
            Ok(()) => {}
        }
        self.room.waiting.fetch_sub(document.1, Ordering::Relaxed);
    }

    /// Sends the spans that wait, until none is left or some are not taken.
    async fn send_all(&mut self, post: &Post) -> Result<(), NotTaken> {
        while let Some(taken) = self.send(post).await {
            taken?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::exchange::{Errand, Moment};
    use super::super::happening::ServerPath;
    use super::super::trace::Trail;
    use super::*;

    /// A request to an upstream whose span has this number.
    fn errand(span: u64) -> News {
        let server = ServerPath { group: "dev".into(), server: "fs".into() };
        let trail = Some(Trail { trace: 1, span, parent: 0, sampled: true, state: None });
        let (begun, took) = (Moment::now(), Some(Duration::ZERO));
        let (method, bytes, kept) = ("tools/call", (0, 0), [None, None]);
        let errand =
            Errand { begun, server, method, name: None, trail, by: None, bytes, kept, took, error: None };
        News::Errand(Box::new(errand), Some("0123456789abcdef".into()))
    }

    #[test]
    fn at_most_2048_spans_wait_and_the_others_are_counted() {
        let room = Arc::<SpanRoom>::default();
        let mut sender = SpanSender::new(&room, &[]);
        let add = |from: u64, to: u64| {
            for request in from..to {
                if room.reserve(2) {
                    (1..=2).for_each(|span| room.add(errand(2 * request + span), 1));
                }
            }
        };
        let counts = || {
            let [waiting, dropped] =
                [room.waiting.load(Ordering::Relaxed), room.dropped.load(Ordering::Relaxed) as usize];
            let queue = room.queue.lock();
            (waiting, dropped, queue.ready.iter().map(|batch| batch.spans).sum::<usize>() + queue.next.spans)
        };
        let spans = |document: &(Bytes, usize)| -> Vec<u64> {
            let document: serde_json::Value = serde_json::from_slice(&document.0).expect("JSON");
            let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans");
            let id = |span: &serde_json::Value| {
                u64::from_str_radix(span["spanId"].as_str().expect("it has one"), 16).expect("digits")
            };
            spans.iter().map(id).collect()
        };
        add(0, 255);
        assert!(!sender.has_document());
        add(255, 1000);
        assert!(sender.has_document());
        assert_eq!(counts(), (2000, 0, 2000));
        assert!(!room.refuses(48) && room.refuses(49));
        add(1000, 1500);
        assert_eq!(counts(), (2048, 1001, 2048));
        // Those that are under way need their room: they may come back, and are the first then.
        let first = sender.next().expect("there are some");
        assert_eq!((first.1, spans(&first)), (512, (1..=512).collect()));
        add(1500, 1501);
        assert_eq!(counts(), (2048, 1003, 1536));
        let refused = |is_passing| Err(NotTaken { reason: String::new(), is_passing });
        sender.settle(first.clone(), &refused(true));
        assert_eq!(sender.next().as_ref(), Some(&first));
        assert!(room.refuses(1));
        sender.settle(first, &Ok(()));
        assert_eq!(counts(), (1536, 1004, 1536));
        assert!(!room.refuses(1));
        let second = sender.next().expect("there are more");
        sender.settle(second, &refused(false));
        assert_eq!(counts(), (1024, 1516, 1024));
        add(1501, 1502);
        let [_, _, last] = [(); 3].map(|()| sender.next().expect("the rest"));
        assert_eq!((last.1, spans(&last), sender.next()), (2, vec![3003, 3004], None));
    }
}
