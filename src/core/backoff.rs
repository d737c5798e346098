//! Decides when a server that keeps failing may be started again, for `upstream.rs`.
//!
//! Invariant: this is pure; the clock is a parameter.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A server that has been up for this long counts as healthy.
const HEALTHY: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The largest number of starts within one [`WINDOW`].
const MOST_STARTS: usize = 8;
const WINDOW: Duration = Duration::from_secs(60);

/// Spaces the attempts to start one server.
#[derive(Default)]
pub struct Backoff {
    failures: u32,
    not_before: Option<Instant>,
    starts: VecDeque<Instant>,
}

impl Backoff {
    /// Records a start, or returns how long to wait before one is allowed.
    pub fn start(&mut self, now: Instant) -> Result<(), Duration> {
        while self.starts.front().is_some_and(|start| now.duration_since(*start) >= WINDOW) {
            self.starts.pop_front();
        }
        match self.wait(now) {
            Duration::ZERO => {
                self.starts.push_back(now);
                Ok(())
            }
            wait => Err(wait),
        }
    }

    /// How long to wait before a start is allowed.
    pub fn wait(&self, now: Instant) -> Duration {
        let recent = self.starts.iter().filter(|start| now.duration_since(**start) < WINDOW);
        let crowded = (recent.clone().count() >= MOST_STARTS)
            .then(|| *recent.clone().next().expect("counted") + WINDOW);
        [self.not_before, crowded]
            .into_iter()
            .flatten()
            .map(|at| at.saturating_duration_since(now))
            .max()
            .unwrap_or_default()
    }

    /// Records a failed start, or the end of a server that was up for `uptime`. The first retry may follow at
    /// once; from the second consecutive failure on, retries are spaced. `jitter` in 0..1 spreads the retries
    /// of many servers.
    pub fn failed(&mut self, now: Instant, uptime: Duration, jitter: f64) {
        self.failures = if uptime >= HEALTHY { 1 } else { self.failures + 1 };
        self.not_before = self.failures.checked_sub(2).map(|doublings| {
            let wait = FIRST_WAIT.saturating_mul(1 << doublings.min(8)).min(LONGEST_WAIT);
            now + wait.mul_f64(1.0 - 0.1 * jitter)
        });
    }

    /// Records the requested end of a running server. Its start no longer counts against the limit, and if
    /// the server was healthy, earlier failures are forgiven.
    pub fn ended_well(&mut self, now: Instant) {
        let start = self.starts.pop_back();
        if start.is_some_and(|start| now.duration_since(start) >= HEALTHY) {
            (self.failures, self.not_before) = (0, None);
        }
    }

    /// Whether anything recorded can still delay a start.
    pub fn matters(&self, now: Instant) -> bool {
        let recent = |start: &Instant| now.duration_since(*start) < WINDOW;
        self.wait(now) > Duration::ZERO || self.starts.iter().any(recent)
    }

    /// Allows the next start at once, whatever was recorded.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_spaced_after_two_failures_in_a_row() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let mut now = start;
        let mut waits = Vec::new();
        for _ in 0..7 {
            backoff.start(now).unwrap();
            backoff.failed(now, Duration::ZERO, 0.0);
            let wait = backoff.not_before.map_or(Duration::ZERO, |at| at - now);
            waits.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 30]);
        assert_eq!(backoff.start(now - Duration::from_secs(3)), Err(Duration::from_secs(3)));
        backoff.failed(now, Duration::from_secs(10), 0.0);
        assert_eq!(backoff.start(now), Ok(()));
    }

    #[test]
    fn a_server_that_dies_at_once_and_is_always_wanted_starts_at_most_eight_times_a_minute() {
        let begin = Instant::now();
        let mut backoff = Backoff::default();
        let mut starts = Vec::new();
        for tick in 0..60_000 {
            let now = begin + Duration::from_millis(10 * tick);
            if backoff.start(now).is_ok() {
                backoff.failed(now, Duration::ZERO, 1.0);
                starts.push(now);
            }
        }
        assert!(starts.len() >= 20, "it is tried again");
        for window in starts.windows(9) {
            assert!(window[8] - window[0] >= WINDOW, "{:?}", window[8] - window[0]);
        }
    }

    #[test]
    fn at_most_eight_starts_a_minute() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        for second in 0..8 {
            let now = start + Duration::from_secs(second);
            backoff.start(now).unwrap();
            backoff.failed(now, HEALTHY, 0.0);
        }
        assert_eq!(backoff.start(start + Duration::from_secs(8)), Err(Duration::from_secs(52)));
        assert_eq!(backoff.start(start + Duration::from_secs(60)), Ok(()));
        backoff.reset();
        assert_eq!(backoff.start(start + Duration::from_secs(60)), Ok(()));
    }

    #[test]
    fn a_start_that_ended_well_does_not_count_and_failures_do() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            backoff.start(now).unwrap();
            backoff.ended_well(now);
        }
        assert!(!backoff.matters(now));
        for _ in 0..2 {
            backoff.start(now).unwrap();
            backoff.failed(now, Duration::ZERO, 0.0);
        }
        assert!(backoff.matters(now));
        assert_eq!(backoff.start(now), Err(FIRST_WAIT));
        assert!(!backoff.matters(now + WINDOW));
    }

    #[test]
    fn what_came_before_a_start_that_lasted_is_forgiven() {
        let now = Instant::now();
        for (uptime, wait) in [(HEALTHY / 2, FIRST_WAIT * 2), (HEALTHY, Duration::ZERO)] {
            let mut backoff = Backoff::default();
            for _ in 0..2 {
                backoff.start(now).unwrap();
                backoff.failed(now, Duration::ZERO, 0.0);
            }
            let up = now + FIRST_WAIT;
            backoff.start(up).unwrap();
            let end = up + uptime;
            backoff.ended_well(end);
            backoff.start(end).unwrap();
            backoff.failed(end, Duration::ZERO, 0.0);
            assert_eq!(backoff.wait(end), wait, "{uptime:?}");
        }
    }
}
