//! Sends spans and metrics to a collector, on a thread of its own.
//!
//! Invariant: spans wait in a bounded queue; a collector that is down, slow or answers with an error costs spans and
//! nothing else, and is reported once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::environment::{Collector, Telemetry};
use super::hub::News;
use super::metrics::Metrics;
use super::otlp::{self, SpanJson};
use crate::transport::http_client::post::{NotTaken, Post};

/// The most spans that wait.
const MOST_SPANS: usize = 2048;
/// The most spans that are sent together.
const TOGETHER: usize = 512;
/// How long an orderly end may take.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// A collector that gets spans and metrics.
pub(super) struct Exporter {
    shared: Arc<SpanRoom>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The spans that wait for the thread.
#[derive(Default)]
struct SpanRoom {
    spans: Mutex<SpanQueue>,
    /// Notified when many wait, and when the end has come.
    wake: Notify,
}

#[derive(Default)]
struct SpanQueue {
    ready: VecDeque<SpanJson>,
    dropped: u64,
    ending: bool,
}

impl SpanRoom {
    /// Whether anything fits. If not, so many are counted as dropped.
    fn has_room(&self, count: usize) -> bool {
        let mut waiting = self.spans.lock();
        let has_room = waiting.ready.len() < MOST_SPANS;
        if !has_room {
            waiting.dropped += count as u64;
        }
        has_room
    }

    /// Adds spans, as far as there is room; returns how many wait.
    fn add(&self, spans: Vec<SpanJson>) -> usize {
        let mut waiting = self.spans.lock();
        for span in spans {
            match waiting.ready.len() < MOST_SPANS {
                true => waiting.ready.push_back(span),
                false => waiting.dropped += 1,
            }
        }
        waiting.ready.len()
    }
}

impl Exporter {
    /// Begins to send what the variables say; `None` if they name no collector.
    pub(super) fn start(telemetry: &Telemetry, metrics: &Arc<Metrics>) -> Option<Self> {
        if telemetry.traces.is_none() && telemetry.metrics.is_none() {
            return None;
        }
        let shared = Arc::<SpanRoom>::default();
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

    /// Takes the spans that news amount to. Those that do not fit are dropped, and not even written.
    pub(super) fn take(&self, news: &News) {
        let count = otlp::count(news);
        if count > 0 && self.shared.has_room(count) && self.shared.add(otlp::spans(news)) >= TOGETHER {
            self.shared.wake.notify_one();
        }
    }

    /// Sends what waits, as far as that can be done in time. Blocks until then.
    pub(super) fn finish(mut self) {
        self.shared.spans.lock().ending = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let waiting = self.shared.spans.lock();
        let lost = waiting.dropped + waiting.ready.len() as u64;
        if lost > 0 {
            tracing::warn!("{lost} spans were dropped, because the collector did not take them");
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
    async fn run(mut self) {
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
        loop {
            let due = if metrics.is_some() { next_spans.min(next_metrics) } else { next_spans };
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.waiting.wake.notified() => {}
            }
            if self.waiting.spans.lock().ending {
                break;
            }
            let waiting = self.waiting.clone();
            let is_full = || waiting.spans.lock().ready.len() >= TOGETHER;
            if let Some(post) = &traces
                && (Instant::now() >= next_spans || is_full())
            {
                self.send_spans(post, &waiting).await;
                next_spans = Instant::now() + span_delay;
            } else if traces.is_none() {
                next_spans = Instant::now() + interval;
            }
            if let Some(post) = &metrics
                && Instant::now() >= next_metrics
            {
                self.send_metrics(post).await;
                next_metrics = Instant::now() + interval;
            }
        }
        let waiting = self.waiting.clone();
        let rest = async {
            let spans = async {
                match &traces {
                    Some(post) => send_all(&self.telemetry, post, &waiting).await.err(),
                    None => None,
                }
            };
            let numbers = async {
                match &metrics {
                    Some(post) => post.send(self.metrics_document()).await.err(),
                    None => None,
                }
            };
            tokio::join!(spans, numbers)
        };
        // What cannot be sent now is lost, and the number of spans says so.
        let _ = timeout(LAST_FLUSH, rest).await;
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

    /// Sends the spans that wait. If they may be taken later, they go on waiting.
    async fn send_spans(&mut self, post: &Post, waiting: &SpanRoom) {
        if let Err(not_taken) = send_all(&self.telemetry, post, waiting).await {
            self.report(&not_taken.reason);
        }
    }

    async fn send_metrics(&mut self, post: &Post) {
        if let Err(not_taken) = post.send(self.metrics_document()).await {
            self.report(&not_taken.reason);
        }
    }

    fn metrics_document(&self) -> bytes::Bytes {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        otlp::metrics(&self.telemetry.resource, &self.metrics, now).to_string().into()
    }

    fn report(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.reported, true) {
            tracing::warn!(
                "the collector of OpenTelemetry cannot be reached: {reason}; calls go on without it"
            );
        }
    }
}

/// Sends the spans that wait, until none is left or some are not taken. Those that may be taken later go on waiting.
async fn send_all(telemetry: &Telemetry, post: &Post, waiting: &SpanRoom) -> Result<(), NotTaken> {
    loop {
        let spans: Vec<_> = {
            let mut waiting = waiting.spans.lock();
            let count = waiting.ready.len().min(TOGETHER);
            waiting.ready.drain(..count).collect()
        };
        if spans.is_empty() {
            return Ok(());
        }
        let mut batch = Batch { waiting, spans };
        let document = otlp::traces(&telemetry.resource, &batch.spans);
        match post.send(document.into()).await {
            Ok(()) => batch.spans.clear(),
            Err(not_taken) => {
                if !not_taken.is_passing {
                    waiting.spans.lock().dropped += batch.spans.len() as u64;
                    batch.spans.clear();
                }
                return Err(not_taken);
            }
        }
    }
}

/// Spans that are being sent. Those that are left when it is dropped wait again, as far as there is room.
struct Batch<'a> {
    waiting: &'a SpanRoom,
    spans: Vec<SpanJson>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiting.spans.lock();
        for span in self.spans.drain(..).rev() {
            match waiting.ready.len() < MOST_SPANS {
                true => waiting.ready.push_front(span),
                false => waiting.dropped += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_2048_spans_wait_and_the_others_are_counted() {
        let room = SpanRoom::default();
        let spans = |from: usize, to: usize| (from..to).map(|number| number.to_string()).collect::<Vec<_>>();
        let counts = |room: &SpanRoom| {
            let waiting = room.spans.lock();
            (waiting.ready.len(), waiting.dropped)
        };
        assert_eq!((room.add(spans(0, 2000)), counts(&room)), (2000, (2000, 0)));
        assert!(room.has_room(1000));
        assert_eq!((room.add(spans(2000, 3000)), counts(&room)), (2048, (2048, 952)));
        assert_eq!((room.has_room(2), counts(&room)), (false, (2048, 954)));
        // Those that are under way leave room; if they come back, they are the first again, as far as they fit.
        let sent: Vec<_> = room.spans.lock().ready.drain(..512).collect();
        room.add(spans(3000, 3010));
        drop(Batch { waiting: &room, spans: sent });
        assert_eq!(counts(&room), (2048, 964));
        let waiting = room.spans.lock();
        assert_eq!((&*waiting.ready[0], &*waiting.ready[2047]), ("10", "3009"));
    }
}
