//! Contestants that do the same work, measured in turn: everybody once a round, so that whatever else the machine does
//! meets all of them alike.

use std::time::Duration;

use crate::Effort;
use crate::client::{Call, Shape};
use crate::scene::{self, Size, Way};
use crate::system;
use crate::table::{median, micros, quantile};

/// Somebody who makes calls through a process in the middle.
pub(crate) trait Caller {
    /// Of the process whose processor time counts.
    fn pid(&self) -> u32;
    /// Makes calls, so many at a time, and says how long each waited if it was one at a time.
    fn calls(&mut self, call: &Call, count: usize, in_flight: usize) -> (Duration, Vec<Duration>);
    /// Makes one call and checks its answer.
    fn check(&mut self, call: &Call, shape: Shape);
}

/// A caller and the way in which it addresses the tool.
pub(crate) struct Contestant {
    pub(crate) name: String,
    caller: Box<dyn Caller>,
    way: Way,
    size: Size,
    /// What a call took when last measured, by the number of calls in flight.
    each: Vec<Duration>,
}

/// What was measured of one contestant in one round.
#[derive(Default)]
pub(crate) struct Sample {
    /// Microseconds of a call, one in flight; 0 where that was not measured.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Calls a second, by the number of calls in flight.
    pub(crate) throughput: Vec<f64>,
    /// Microseconds of processor time a call, by the number of calls in flight.
    pub(crate) cpu: Vec<f64>,
}

impl Contestant {
    pub(crate) fn new(name: impl Into<String>, caller: impl Caller + 'static, way: Way, size: Size) -> Self {
        Self { name: name.into(), caller: Box::new(caller), way, size, each: Vec::new() }
    }

    fn warm_up(&mut self, shape: Shape, flights: &[usize]) {
        let call = Call::new(scene::call(self.way, self.size), shape);
        self.caller.check(&call, shape);
        let warm = if shape.size() > 100_000 { 1 } else { 4 };
        let each = flights.iter().map(|in_flight| {
            let count = warm * in_flight;
            self.caller.calls(&call, count, *in_flight).0 / count as u32
        });
        self.each = each.collect();
    }

    fn sample(&mut self, shape: Shape, flights: &[usize], effort: Effort) -> Sample {
        let call = Call::new(scene::call(self.way, self.size), shape);
        let mut sample = Sample::default();
        for (each, in_flight) in self.each.iter_mut().zip(flights) {
            let count = effort.slice.as_nanos() / each.as_nanos().max(500);
            let count = (count as usize).clamp((*in_flight).max(4), 200_000);
            let before = system::cpu(self.caller.pid());
            let (elapsed, latencies) = self.caller.calls(&call, count, *in_flight);
            let spent = system::cpu(self.caller.pid()) - before;
            *each = elapsed / count as u32;
            sample.throughput.push(count as f64 / elapsed.as_secs_f64());
            sample.cpu.push(micros(spent) / count as f64);
            if *in_flight == 1 {
                let mut latencies: Vec<_> = latencies.into_iter().map(micros).collect();
                sample.p50 = quantile(&mut latencies, 0.5);
                sample.p99 = quantile(&mut latencies, 0.99);
            }
        }
        std::thread::sleep(effort.pause);
        sample
    }
}

/// Measures everybody with calls of this shape, with so many in flight each time.
pub(crate) fn rounds(
    contestants: &mut [Contestant],
    shape: Shape,
    flights: &[usize],
    effort: Effort,
) -> Rounds {
    contestants.iter_mut().for_each(|contestant| contestant.warm_up(shape, flights));
    let round = |_| contestants.iter_mut().map(|one| one.sample(shape, flights, effort)).collect();
    Rounds((0..effort.rounds).map(round).collect())
}

/// What was measured, by round and contestant.
pub(crate) struct Rounds(Vec<Vec<Sample>>);

impl Rounds {
    /// How many took part.
    pub(crate) fn contestants(&self) -> usize {
        self.0.first().map_or(0, Vec::len)
    }

    /// The median of a number of one contestant.
    pub(crate) fn of(&self, one: usize, number: impl Fn(&Sample) -> f64) -> f64 {
        median(self.0.iter().map(|round| number(&round[one])))
    }

    /// The median of a number of one contestant over that of another, round by round.
    pub(crate) fn ratio(&self, one: usize, other: usize, number: impl Fn(&Sample) -> f64) -> f64 {
        median(self.0.iter().map(|round| number(&round[one]) / number(&round[other])))
    }

    /// The median of what a contestant adds to the median call of another.
    pub(crate) fn added(&self, one: usize, nothing: usize) -> f64 {
        median(self.0.iter().map(|round| round[one].p50 - round[nothing].p50))
    }

    /// The median of what one adds to the median call of `nothing` over what another adds, round by round.
    pub(crate) fn added_ratio(&self, one: usize, other: usize, nothing: usize) -> f64 {
        let added = |round: &[Sample], at: usize| round[at].p50 - round[nothing].p50;
        median(self.0.iter().map(|round| added(round, one) / added(round, other)))
    }
}
