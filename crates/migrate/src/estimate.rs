//! When a migration will end, and whether it will, from what the hypervisor tells of it.
//!
//! While memory is carried the guest dirties some of it again. What is left shrinks by the
//! difference of the two rates, and the switchover comes when the rest fits the downtime limit.

use std::collections::VecDeque;
use std::time::Duration;

use drover_types::{ByteRate, Bytes};

use crate::Time;
use crate::limits::SAMPLES;

/// Rates are taken over this time: long enough to level out the bursts of a round's end, short
/// enough to follow a lost path.
const WINDOW: Duration = Duration::from_secs(5);

/// Longer than this is no prediction.
const FARTHEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// One look at the progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When it was taken.
    pub at: Time,
    /// Carried since the beginning (QEMU: `ram.transferred`).
    pub transferred: Bytes,
    /// Still to be carried (QEMU: `ram.remaining`).
    pub remaining: Bytes,
    /// How fast the guest dirties memory (QEMU: `dirty-pages-rate` x `page-size`); zero until
    /// the end of the first round.
    pub dirty_rate: ByteRate,
}

/// What the samples say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// The mean rate of the last seconds.
    pub rate: ByteRate,
    /// The time until the guest runs on the destination.
    pub time_left: TimeLeft,
}

/// The time that is left, or why there is none to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeLeft {
    /// Too few samples, or nothing moves.
    Unknown,
    /// About this long.
    About(Duration),
    /// Never at these rates: the guest dirties memory as fast as it is carried.
    Never,
}

impl TimeLeft {
    /// In milliseconds, as the API gives it.
    #[must_use]
    pub fn millis(self) -> Option<u64> {
        match self {
            Self::About(left) => u64::try_from(left.as_millis()).ok(),
            Self::Unknown | Self::Never => None,
        }
    }
}

/// Looks back on the last samples of one migration.
#[derive(Debug, Clone)]
pub struct Estimator {
    downtime_limit: Duration,
    samples: VecDeque<Sample>,
}

impl Estimator {
    /// For a migration whose switchover may take `downtime_limit`.
    #[must_use]
    pub fn new(downtime_limit: Duration) -> Self {
        Self {
            downtime_limit,
            samples: VecDeque::with_capacity(SAMPLES),
        }
    }

    /// Takes one more sample in. One that goes back in time or in bytes begins anew.
    pub fn add(&mut self, sample: Sample) {
        let goes_on = |last: &Sample| last.at < sample.at && last.transferred <= sample.transferred;
        if !self.samples.back().is_none_or(goes_on) {
            self.samples.clear();
        }
        let too_old = |first: &Sample| sample.at.saturating_sub(first.at) > WINDOW;
        while self.samples.len() >= SAMPLES
            || (self.samples.len() > 1 && self.samples.get(1).is_some_and(too_old))
        {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// What the samples so far say.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return Estimate {
                rate: ByteRate(0),
                time_left: TimeLeft::Unknown,
            };
        };
        let carried = Bytes(last.transferred.0.saturating_sub(first.transferred.0));
        let rate = if last.at > first.at {
            ByteRate::of(carried, last.at - first.at)
        } else {
            ByteRate(0)
        };
        Estimate {
            rate,
            time_left: self.time_left(rate, last),
        }
    }

    fn time_left(&self, rate: ByteRate, last: &Sample) -> TimeLeft {
        if rate.0 == 0 {
            return TimeLeft::Unknown;
        }
        let switchover = u128::from(rate.0) * self.downtime_limit.as_millis() / 1000;
        let remaining = u128::from(last.remaining.0);
        let before = remaining.saturating_sub(switchover);
        if before == 0 {
            return about(remaining, u128::from(rate.0));
        }
        let Some(shrinks @ 1..) = rate.0.checked_sub(last.dirty_rate.0) else {
            return TimeLeft::Never;
        };
        match about(before, u128::from(shrinks)) {
            TimeLeft::About(until) => TimeLeft::About(until + self.downtime_limit),
            other => other,
        }
    }
}

fn about(bytes: u128, rate: u128) -> TimeLeft {
    let millis = u64::try_from(bytes * 1000 / rate).unwrap_or(u64::MAX);
    let left = Duration::from_millis(millis);
    if left > FARTHEST {
        TimeLeft::Never
    } else {
        TimeLeft::About(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn sample(millis: u64, transferred: u64, remaining: u64, dirty: u64) -> Sample {
        Sample {
            at: Duration::from_millis(millis),
            transferred: Bytes(transferred * MIB),
            remaining: Bytes(remaining * MIB),
            dirty_rate: ByteRate(dirty * MIB),
        }
    }

    fn after(samples: &[Sample]) -> Estimate {
        let mut estimator = Estimator::new(Duration::from_millis(300));
        samples.iter().for_each(|sample| estimator.add(*sample));
        estimator.estimate()
    }

    #[test]
    fn a_quiet_guest_ends_when_the_rest_is_carried() {
        let seen = after(&[sample(0, 0, 1000, 0), sample(1000, 100, 900, 0)]);
        assert_eq!(seen.rate, ByteRate(100 * MIB));
        assert_eq!(seen.time_left, TimeLeft::About(Duration::from_secs(9)));
    }

    #[test]
    fn a_busy_guest_takes_longer_and_one_that_is_too_busy_never_ends() {
        let seen = after(&[sample(0, 0, 1000, 0), sample(1000, 100, 930, 50)]);
        assert_eq!(
            seen.time_left,
            TimeLeft::About(Duration::from_millis(18_300))
        );
        let seen = after(&[sample(0, 0, 1000, 0), sample(1000, 100, 930, 100)]);
        assert_eq!(seen.time_left, TimeLeft::Never);
    }

    #[test]
    fn a_rest_that_fits_the_downtime_limit_ends_however_busy_the_guest_is() {
        let seen = after(&[sample(0, 0, 100, 0), sample(1000, 100, 20, 900)]);
        assert_eq!(seen.time_left, TimeLeft::About(Duration::from_millis(200)));
    }

    #[test]
    fn nothing_is_predicted_from_one_look_or_from_standstill() {
        assert_eq!(after(&[sample(0, 0, 1000, 0)]).time_left, TimeLeft::Unknown);
        let stalled = [sample(0, 5, 1000, 0), sample(9000, 5, 1000, 0)];
        assert_eq!(after(&stalled).time_left, TimeLeft::Unknown);
    }

    #[test]
    fn the_rate_follows_a_lost_path_within_the_window() {
        let mut estimator = Estimator::new(Duration::from_millis(300));
        for second in 0..20 {
            estimator.add(sample(second * 1000, second * 200, 9000, 0));
        }
        for second in 20..26 {
            estimator.add(sample(second * 1000, 3800 + (second - 19) * 100, 9000, 0));
        }
        assert_eq!(estimator.estimate().rate, ByteRate(100 * MIB));
    }

    proptest! {
        #[test]
        fn any_samples_are_estimated_without_panic_and_within_bounds(
            samples in prop::collection::vec(any::<(u32, u64, u64, u64)>(), 0..60),
        ) {
            let mut estimator = Estimator::new(Duration::from_millis(300));
            for (at, transferred, remaining, dirty) in samples {
                estimator.add(Sample {
                    at: Duration::from_millis(u64::from(at)),
                    transferred: Bytes(transferred),
                    remaining: Bytes(remaining),
                    dirty_rate: ByteRate(dirty),
                });
                prop_assert!(estimator.samples.len() <= SAMPLES);
                if let TimeLeft::About(left) = estimator.estimate().time_left {
                    prop_assert!(left <= FARTHEST + Duration::from_secs(1));
                }
            }
        }
    }
}
