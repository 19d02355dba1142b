//! How many lanes a path should have: more while more carry more.
//!
//! One connection may be held back by its own window, by a core, or by a switch that spreads
//! connections over links. Only trying tells. A trial costs one connection; keeping one that does
//! not help would cost processor time and fairness towards others.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::limits::{LANE_TRIAL, LANE_TRIAL_GAIN, LANE_TRIAL_REST, LANE_TRIAL_REST_MAX};

/// A look at one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSeen {
    /// Lanes that are up.
    pub lanes: u16,
    /// Payload that it has carried since the beginning.
    pub bytes: u64,
    /// It has something to carry.
    pub busy: bool,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Finding out the rate of the lanes as they are.
    Measuring,
    /// Finding out the rate with one lane more; it was this before.
    Trying(u64),
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
    since: Duration,
    bytes: u64,
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
            since: Duration::ZERO,
            bytes: 0,
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
        let elapsed = now.saturating_sub(self.since);
        if !seen.busy || seen.lanes != self.wanted {
            self.begin(now, seen, self.phase);
        } else if elapsed >= LANE_TRIAL {
            let carried = u128::from(seen.bytes.saturating_sub(self.bytes));
            let rate = carried * 1_000_000 / elapsed.as_micros().max(1);
            self.measured(now, seen, u64::try_from(rate).unwrap_or(u64::MAX));
        }
        self.wanted
    }

    fn measured(&mut self, now: Duration, seen: PathSeen, rate: u64) {
        let helped = |before: u64| {
            let (gained, whole) = LANE_TRIAL_GAIN;
            u128::from(rate) * u128::from(whole) >= u128::from(before) * u128::from(gained)
        };
        match self.phase {
            Phase::Trying(before) if !helped(before) => {
                self.wanted -= 1;
                self.begin(now, seen, Phase::Resting(now + self.rest));
                self.rest = (self.rest * 2).min(LANE_TRIAL_REST_MAX);
            }
            _ if self.wanted < *self.bounds.end() => {
                self.wanted += 1;
                self.begin(now, seen, Phase::Trying(rate));
            }
            _ => self.begin(now, seen, Phase::Measuring),
        }
    }

    fn begin(&mut self, now: Duration, seen: PathSeen, phase: Phase) {
        self.phase = phase;
        self.since = now;
        self.bytes = seen.bytes;
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
                busy: true,
            };
            let wanted = count.look(Duration::from_millis(step * 100), seen);
            assert!(wanted <= 2);
        }
        assert_eq!(count.wanted(), 2);
    }
}
