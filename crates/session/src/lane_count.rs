//! How many lanes a path should have: more while more carry more.
//!
//! One connection may be held back by its own window, by a core, or by a switch that spreads
//! connections over links. Only trying tells. A trial costs one connection; keeping one that does
//! not help would cost processor time and fairness towards others. Where the processors are the limit, one
//! lane more takes from the other paths what its own gains: that is no help either.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::limits::{LANE_TRIAL, LANE_TRIAL_REST, LANE_TRIAL_REST_MAX};

/// A look at one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSeen {
    /// Lanes that are up.
    pub lanes: u16,
    /// Payload that it has carried since the beginning.
    pub bytes: u64,
    /// What all other paths have carried.
    pub others: u64,
    /// It has something to carry.
    pub busy: bool,
}

/// Bytes per second.
#[derive(Debug, Clone, Copy)]
struct Rates {
    path: u64,
    others: u64,
}

impl Rates {
    /// Whether `lanes` lanes with these rates are worth one more than there were with `before`: it
    /// brings at least half of what each of them brought, and takes no more than half of that from
    /// the other paths.
    fn worth_more_than(self, before: Self, lanes: u16) -> bool {
        let gained = self.path.saturating_sub(before.path);
        let lost = before.others.saturating_sub(self.others);
        let each = before.path / u64::from(lanes.saturating_sub(1).max(1));
        gained >= each.div_ceil(2) && lost <= gained / 2
    }
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Finding out the rates with the lanes as they are.
    Measuring,
    /// Finding out the rates with one lane more; they were these before.
    Trying(Rates),
    /// More did not help: as it is until then.
    Resting(Duration),
}

/// Decides for one path.
#[derive(Debug, Clone)]
pub struct LaneCount {
    bounds: RangeInclusive<u16>,
    wanted: u16,
    phase: Phase,
    rest: Duration,
    /// When the measurement began: with the first look, since a path may join late.
    since: Option<Duration>,
    /// What was carried then.
    bytes: u64,
    others: u64,
}

impl LaneCount {
    /// Begins with the fewest of `bounds`.
    #[must_use]
    pub fn new(bounds: RangeInclusive<u16>) -> Self {
        Self {
            wanted: *bounds.start(),
            bounds,
            phase: Phase::Measuring,
            rest: LANE_TRIAL_REST,
            since: None,
            bytes: 0,
            others: 0,
        }
    }

    /// How many lanes the path should have now.
    #[must_use]
    pub fn wanted(&self) -> u16 {
        self.wanted
    }

    /// Takes a look in; to be called several times within [`LANE_TRIAL`].
    pub fn look(&mut self, now: Duration, seen: PathSeen) -> u16 {
        if let Phase::Resting(until) = self.phase {
            if now < until {
                return self.wanted;
            }
            self.begin(now, seen, Phase::Measuring);
        }
        let since = self
            .since
            .filter(|_| seen.busy && seen.lanes == self.wanted);
        let Some(since) = since else {
            self.begin(now, seen, self.phase);
            return self.wanted;
        };
        let elapsed = now.saturating_sub(since);
        if elapsed >= LANE_TRIAL {
            let rate = |bytes: u64, before: u64| {
                let carried = u128::from(bytes.saturating_sub(before));
                let rate = carried * 1_000_000 / elapsed.as_micros().max(1);
                u64::try_from(rate).unwrap_or(u64::MAX)
            };
            let rates = Rates {
                path: rate(seen.bytes, self.bytes),
                others: rate(seen.others, self.others),
            };
            self.measured(now, seen, rates);
        }
        self.wanted
    }

    fn measured(&mut self, now: Duration, seen: PathSeen, rates: Rates) {
        match self.phase {
            Phase::Trying(before) if !rates.worth_more_than(before, self.wanted) => {
                self.wanted -= 1;
                self.begin(now, seen, Phase::Resting(now + self.rest));
                self.rest = (self.rest * 2).min(LANE_TRIAL_REST_MAX);
            }
            _ if self.wanted < *self.bounds.end() => {
                self.wanted += 1;
                self.begin(now, seen, Phase::Trying(rates));
            }
            _ => self.begin(now, seen, Phase::Measuring),
        }
    }

    fn begin(&mut self, now: Duration, seen: PathSeen, phase: Phase) {
        self.phase = phase;
        self.since = Some(now);
        self.bytes = seen.bytes;
        self.others = seen.others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that carries `rate(lanes)` bytes per second for `seconds`: lanes in the end, and the
    /// most lanes there ever were.
    fn run(seconds: u64, rate: impl Fn(u16) -> u64) -> (u16, u16) {
        let mut count = LaneCount::new(1..=8);
        let (mut lanes, mut bytes, mut most) = (1, 0, 1);
        for step in 0..seconds * 10 {
            bytes += rate(lanes) / 10;
            let seen = PathSeen {
                lanes,
                bytes,
                others: 0,
                busy: true,
            };
            lanes = count.look(Duration::from_millis(step * 100), seen);
            most = most.max(lanes);
        }
        (lanes, most)
    }

    #[test]
    fn lanes_are_added_while_each_carries_its_own() {
        assert_eq!(run(20, |lanes| 300_000_000 * u64::from(lanes.min(4))).0, 4);
    }

    #[test]
    fn a_line_that_one_lane_fills_is_tried_with_two_and_left_with_one() {
        assert_eq!(run(9, |_| 117_000_000), (1, 2));
    }

    #[test]
    fn lanes_that_harm_each_other_are_not_kept() {
        assert_eq!(run(9, |lanes| 1_000_000_000 / u64::from(lanes)), (1, 2));
    }

    #[test]
    fn a_lane_that_brings_less_than_half_of_what_the_others_bring_is_not_kept() {
        assert_eq!(
            run(9, |lanes| 400_000_000 + 100_000_000 * u64::from(lanes)),
            (1, 2)
        );
        assert_eq!(
            run(9, |lanes| 90_000_000 + 100_000_000 * u64::from(lanes)).0,
            8
        );
    }

    #[test]
    fn a_path_that_joins_late_is_measured_from_then_on() {
        let mut count = LaneCount::new(1..=8);
        let mut lanes = 1;
        for step in 0..30 {
            let seen = PathSeen {
                lanes,
                bytes: step * 10_000_000,
                others: 0,
                busy: true,
            };
            lanes = count.look(
                Duration::from_secs(60) + Duration::from_millis(step * 100),
                seen,
            );
            assert!(
                lanes <= 2,
                "what one lane carries is known by the first trial"
            );
        }
        assert_eq!(lanes, 1);
    }

    #[test]
    fn what_a_lane_takes_from_other_paths_is_no_gain() {
        let mut count = LaneCount::new(1..=8);
        let (mut lanes, mut bytes, mut others, mut most) = (1_u16, 0, 0, 1);
        for step in 0..90 {
            // The other path has one lane, and a second shares out what the processors can do.
            let share = 100_000_000 / u64::from(lanes + 1);
            bytes += share * u64::from(lanes);
            others += share;
            let seen = PathSeen {
                lanes,
                bytes,
                others,
                busy: true,
            };
            lanes = count.look(Duration::from_millis(step * 100), seen);
            most = most.max(lanes);
        }
        assert_eq!((lanes, most), (1, 2));
    }

    #[test]
    fn the_bound_is_kept_to() {
        assert_eq!(run(60, |lanes| 100_000_000 * u64::from(lanes)), (8, 8));
    }

    #[test]
    fn an_idle_path_tries_nothing() {
        let mut count = LaneCount::new(2..=8);
        for step in 0..100 {
            let seen = PathSeen {
                lanes: 2,
                bytes: step,
                others: 0,
                busy: false,
            };
            assert_eq!(count.look(Duration::from_secs(step), seen), 2);
        }
    }

    #[test]
    fn a_lane_that_does_not_come_up_is_not_judged() {
        let mut count = LaneCount::new(1..=8);
        for step in 0..1000 {
            let seen = PathSeen {
                lanes: 1,
                bytes: step * 1_000_000,
                others: 0,
                busy: true,
            };
            let wanted = count.look(Duration::from_millis(step * 100), seen);
            assert!(wanted <= 2);
        }
        assert_eq!(count.wanted(), 2);
    }
}
