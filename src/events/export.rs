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
use super::otlp;
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

/// The spans that wait for the thread.
#[derive(Debug)]
pub(super) struct SpanRoom {
    spans: Mutex<SpanQueue>,
    /// How many spans wait: from the moment that they have ended, until they are sent.
    waiting: AtomicUsize,
    dropped: AtomicU64,
    /// What stands before and behind the spans of a document.
    frame: (String, &'static str),
    /// Notified when many wait, and when the end has come.
    wake: Notify,
    /// Notified when the end has come.
    end: Notify,
}

#[derive(Debug, Default)]
struct SpanQueue {
    /// Documents that are ready to be sent, oldest first, and how many spans each brings.
    ready: VecDeque<(Bytes, usize)>,
    /// The next document, without its end.
    next: Vec<u8>,
    in_next: usize,
    ending: bool,
}

impl SpanRoom {
    /// Room for the spans of the gateway that is described so.
    pub(super) fn for_resource(resource: &[(String, String)]) -> Self {
        Self::new(otlp::frame(resource))
    }

    fn new(frame: (String, &'static str)) -> Self {
        let (waiting, dropped) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { spans: Mutex::default(), waiting, dropped, frame, wake: Notify::new(), end: Notify::new() }
    }

    /// Whether so many spans do not fit as things are; then they are dropped.
    pub(super) fn refuses(&self, count: usize) -> bool {
        let refuses = self.waiting.load(Ordering::Relaxed) + count > MOST_SPANS;
        if refuses {
            self.drop(count);
        }
        refuses
    }

    /// Has so many spans wait from now on, if there is room for them; they are [added](Self::add) later. Those of a
    /// request wait together or not at all.
    pub(super) fn reserve(&self, count: usize) -> bool {
        let fits = |waiting: usize| Some(waiting + count).filter(|waiting| *waiting <= MOST_SPANS);
        let reserved = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if !reserved {
            self.drop(count);
        }
        reserved
    }

    fn drop(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Adds so many spans, which wait already, as `write` writes them.
    fn add(&self, count: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let mut spans = self.spans.lock();
        let spans = &mut *spans;
        if spans.in_next == 0 {
            spans.next.extend_from_slice(self.frame.0.as_bytes());
        }
        write(&mut spans.next);
        spans.in_next += count;
        if spans.in_next >= TOGETHER {
            self.finish_next(spans);
            self.wake.notify_one();
        }
    }

    fn finish_next(&self, spans: &mut SpanQueue) {
        // The comma behind the last span.
        spans.next.pop();
        spans.next.extend_from_slice(self.frame.1.as_bytes());
        spans.ready.push_back((std::mem::take(&mut spans.next).into(), std::mem::take(&mut spans.in_next)));
    }

    /// Whether as many spans wait as are sent together.
    fn has_full(&self) -> bool {
        !self.spans.lock().ready.is_empty()
    }

    /// The oldest document. It counts as waiting until it is [settled](Self::settle).
    fn take(&self) -> Option<(Bytes, usize)> {
        let mut spans = self.spans.lock();
        if spans.ready.is_empty() && spans.in_next > 0 {
            self.finish_next(&mut spans);
        }
        spans.ready.pop_front()
    }

    /// Says what became of a document: it was taken, or not. One that may be taken later is the first again.
    fn settle(&self, document: (Bytes, usize), taken: &Result<(), NotTaken>) {
        let mut spans = self.spans.lock();
        match taken {
            Err(not_taken) if not_taken.is_passing => return spans.ready.push_front(document),
            Err(_) => self.drop(document.1),
            Ok(()) => {}
        }
        self.waiting.fetch_sub(document.1, Ordering::Relaxed);
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

    /// Takes the spans that news amount to, for which there is room.
    pub(super) fn take(&self, news: &News) {
        let count = otlp::count(news);
        if count > 0 {
            self.shared.add(count, |out| otlp::write_spans(out, news));
        }
    }

    /// Sends what waits, as far as that can be done in time. Blocks until then.
    pub(super) fn finish(mut self) {
        self.shared.spans.lock().ending = true;
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
        loop {
            let spans_due = match &traces {
                Some(_) if waiting.has_full() => Some(next_full),
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
            if waiting.spans.lock().ending {
                break;
            }
            let now = Instant::now();
            if let Some(post) = traces.as_ref().filter(|_| spans_due.is_some_and(|due| due <= now)) {
                let taken = send_document(post, &waiting).await.unwrap_or(Ok(()));
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
        let spans = async {
            match &traces {
                Some(post) => send_all(post, &waiting).await.err(),
                None => None,
            }
        };
        let numbers = async {
            match &metrics {
                Some(post) => post.send(self.metrics_document()).await.err(),
                None => None,
            }
        };
        tokio::join!(spans, numbers);
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

/// Sends the spans that wait, until none is left or some are not taken.
async fn send_all(post: &Post, waiting: &SpanRoom) -> Result<(), NotTaken> {
    while let Some(taken) = send_document(post, waiting).await {
        taken?;
    }
    Ok(())
}

/// Sends the oldest document, if there is one. If it may be taken later, it goes on waiting.
async fn send_document(post: &Post, waiting: &SpanRoom) -> Option<Result<(), NotTaken>> {
    let document = waiting.take()?;
    let taken = post.send(document.0.clone()).await;
    waiting.settle(document, &taken);
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_2048_spans_wait_and_the_others_are_counted() {
        let room = SpanRoom::new(("<".to_owned(), ">"));
        let add = |from: usize, to: usize| {
            for number in from..to {
                if room.reserve(2) {
                    room.add(2, |out| out.extend(format!("{number}a,{number}b,").into_bytes()));
                }
            }
        };
        let counts = || {
            let [waiting, dropped] =
                [room.waiting.load(Ordering::Relaxed), room.dropped.load(Ordering::Relaxed) as usize];
            (waiting, dropped, room.spans.lock().ready.len())
        };
        add(0, 1000);
        assert_eq!(counts(), (2000, 0, 3));
        assert!(!room.refuses(48) && room.refuses(49));
        add(1000, 1500);
        assert_eq!(counts(), (2048, 1001, 4));
        // Those that are under way need their room: they may come back, and are the first then.
        let first = room.take().expect("there are some");
        assert!(
            first.1 == 512 && first.0.starts_with(b"<0a,0b,1a") && first.0.ends_with(b",255b>"),
            "{first:?}"
        );
        add(1500, 1501);
        assert_eq!(counts(), (2048, 1003, 3));
        let refused = |is_passing| Err(NotTaken { reason: String::new(), is_passing });
        room.settle(first.clone(), &refused(true));
        assert_eq!(room.take().as_ref(), Some(&first));
        assert!(room.refuses(1));
        room.settle(first, &Ok(()));
        assert_eq!(counts(), (1536, 1004, 3));
        assert!(!room.refuses(1));
        let second = room.take().expect("there are more");
        room.settle(second, &refused(false));
        assert_eq!(counts(), (1024, 1516, 2));
        add(1501, 1502);
        let [_, _, last] = [(); 3].map(|()| room.take().expect("the rest"));
        assert_eq!((&*last.0, last.1, room.take()), (&b"<1501a,1501b>"[..], 2, None));
    }
}
