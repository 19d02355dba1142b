//! When a migration will end, and whether it will, from what the hypervisor tells of it and what was known
//! of the guest before.
//!
//! ```text
//!   this round     what is left of it, at the rate at which pages are carried; those that are zero
//!                  are only looked at
//!   every further  what the guest dirties in the time of the one before (precopy.rs)
//!   at last        what fits the downtime limit, and the hand-off
//!   by postcopy    where it is allowed: at the deadline the hand-off, and then what is left at the rate
//! ```
//!
//! How much a guest dirties in a time is a line through what was seen of it: samples from before, and each
//! round since. Most guests write to the same pages again, so that it bends.
//!
//! The range is what comes out when it dirties half and twice of that, and pages are carried as much faster or
//! slower as they were in the seconds before.

mod dirtied;

use std::collections::VecDeque;
use std::time::Duration;

use drover_types::{ByteRate, Bytes, Convergence};

use self::dirtied::Dirtied;
use crate::Time;
use crate::limits::{HAND_OFF, SAMPLES, ZERO_PAGES};
use crate::precopy::Precopy;

/// Rates are taken over this time: long enough to level out the bursts of a round's end, short
/// enough to follow a lost path.
const WINDOW: Duration = Duration::from_secs(5);

/// Before this QEMU's channels and the line's queues are still being filled.
const SHORTEST: Duration = Duration::from_millis(200);

/// Longer than this is no prediction.
const FARTHEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// One look at the progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// When it was taken.
    pub at: Time,
    /// Since the hypervisor began (QEMU: `total-time`).
    pub copied_for: Duration,
    /// Carried since the beginning (QEMU: `ram.transferred`).
    pub transferred: Bytes,
    /// Still to be carried in this round (QEMU: `ram.remaining`).
    pub remaining: Bytes,
    /// Pages that were carried whole, again ones included (QEMU: `ram.normal` x `page-size`).
    pub whole: Bytes,
    /// Pages that were found to be zero (QEMU: `ram.duplicate` x `page-size`).
    pub zero: Bytes,
    /// The round, from 1 (QEMU: `dirty-sync-count`).
    pub round: u64,
    /// How fast the guest dirties memory (QEMU: `dirty-pages-rate` x `page-size`); zero until
    /// the end of the first round.
    pub dirty_rate: ByteRate,
    /// The part of its time, in percent, that it stands still (QEMU: `cpu-throttle-percentage`).
    pub throttle: u8,
}

/// What the samples say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// The mean rate of the last seconds.
    pub rate: ByteRate,
    /// The time until the guest runs on the destination.
    pub time_left: TimeLeft,
}

/// The time that is left until the guest runs on the destination with all of its memory, or why there is none to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeLeft {
    /// Too few samples, or nothing moves.
    Unknown,
    /// So long.
    About {
        /// Rather.
        expected: Duration,
        /// At least.
        least: Duration,
        /// At most; none where it may never end.
        most: Option<Duration>,
    },
    /// Never as it goes now: the guest dirties memory as fast as it is carried.
    Never,
}

/// Looks back on the last samples of one migration.
#[derive(Debug, Clone)]
pub struct Estimator {
    limit: Duration,
    postcopy: Postcopy,
    throttle_most: u64,
    /// More than zeros, of the guest's memory.
    whole: Option<Bytes>,
    dirtied: Dirtied,
    samples: VecDeque<Sample>,
    /// When the round of the last sample began, by the hypervisor's time; none where that was not seen.
    round_began: Option<Duration>,
}

/// Whether the guest's memory follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Postcopy {
    /// It does not.
    Not,
    /// From so long after the hypervisor began.
    After(Duration),
    /// It does.
    Begun,
}

/// What is reckoned with, in percent: what the guest dirties, the rate.
const CASES: [[u64; 2]; 3] = [[100, 100], [50, 110], [200, 85]];

impl Estimator {
    /// For a migration that is brought to its end so, of a guest that was seen before to dirty so much in
    /// such times.
    #[must_use]
    pub fn new(wished: &Convergence, dirtied: Vec<(Duration, Bytes)>) -> Self {
        let most = wished.throttle().map_or(0, |(_, most)| most.get().into());
        Self {
            limit: wished.downtime_limit(),
            postcopy: Postcopy::Not,
            throttle_most: most,
            whole: None,
            dirtied: Dirtied::new(dirtied),
            samples: VecDeque::with_capacity(SAMPLES),
            round_began: None,
        }
    }

    /// From now on the guest may stand still for so long.
    pub fn may_stop_for(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// So long after the hypervisor began, the guest will go on at the destination and its memory follow.
    pub fn goes_on_by_postcopy(&mut self, after: Duration) {
        self.postcopy = Postcopy::After(after);
    }

    /// The guest goes on at the destination from now on: what is left is carried once.
    pub fn follows(&mut self) {
        self.postcopy = Postcopy::Begun;
    }

    /// So much of the guest's memory is in pages that are not zero.
    pub fn memory_holds(&mut self, whole: Bytes) {
        self.whole = Some(whole);
    }

    /// In this time, just now, it dirtied so much. Rounds that have ended say that better.
    pub fn sampled(&mut self, within: Duration, dirtied: Bytes) {
        if self.samples.back().is_none_or(|last| last.round <= 1) {
            self.dirtied.seen(within, dirtied);
        }
    }

    /// Takes one more sample in. One that goes back in time or in bytes begins anew; one from before the
    /// first round says nothing.
    pub fn add(&mut self, sample: Sample) {
        if sample.round == 0 {
            return;
        }
        let goes_on = |last: &Sample| last.at < sample.at && last.transferred <= sample.transferred;
        if !self.samples.back().is_none_or(goes_on) {
            self.samples.clear();
        }
        if self.samples.is_empty() {
            self.begin(&sample);
        }
        self.see_round(&sample);
        let too_old = |first: &Sample| sample.at.saturating_sub(first.at) > WINDOW;
        while self.samples.len() >= SAMPLES
            || (self.samples.len() > 1 && self.samples.get(1).is_some_and(too_old))
        {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Before the first look in the first round nothing was carried, which is one more: unless it was carried before
    /// this agent's time began.
    fn begin(&mut self, first: &Sample) {
        self.round_began = (first.round <= 1).then_some(Duration::ZERO);
        let begun = first.at.checked_sub(first.copied_for);
        if let Some(at) = begun.filter(|at| first.round <= 1 && *at < first.at) {
            self.samples.push_back(Sample {
                at,
                round: first.round,
                ..Sample::default()
            });
        }
    }

    /// A round that has begun tells what the guest dirtied in the one before.
    fn see_round(&mut self, sample: &Sample) {
        let Some(last) = self.samples.back() else {
            return;
        };
        let begun = sample.round.saturating_sub(last.round);
        if begun == 0 {
            return;
        }
        let began = self.round_began.replace(sample.copied_for);
        let Some(began) = began else {
            return;
        };
        let took = sample.copied_for.saturating_sub(began);
        // Of several between two looks only their mean is known.
        let took = took / u32::try_from(begun).unwrap_or(u32::MAX);
        let ran = took * u32::from(100 - last.throttle.min(99)) / 100;
        self.dirtied.seen(ran, sample.remaining);
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
        Estimate {
            rate: rate(first.transferred, last.transferred, last.at - first.at),
            time_left: self.time_left(first, last),
        }
    }

    fn time_left(&self, first: &Sample, last: &Sample) -> TimeLeft {
        let pages = pages_rate(first, last);
        if pages.0 == 0 || last.at - first.at < SHORTEST {
            return TimeLeft::Unknown;
        }
        let [expected, least, most] = CASES.map(|case| self.case(last, pages, case));
        let (Some(expected), Some(least)) = (expected, least.or(expected)) else {
            // What it did before is no reason to say that: it may have been filling its memory.
            return if self.dirtied.is_old() {
                TimeLeft::Unknown
            } else {
                TimeLeft::Never
            };
        };
        TimeLeft::About {
            expected,
            least: least.min(expected),
            most: most.map(|most| most.max(expected)),
        }
    }

    /// Until the guest runs at the destination; none for never.
    fn case(&self, last: &Sample, pages: ByteRate, [dirtied, rate]: [u64; 2]) -> Option<Duration> {
        let rate = (pages.0.saturating_mul(rate) / 100).max(1);
        let by_qemu = last.dirty_rate;
        let left = self.left(last, rate);
        let precopy = Precopy {
            left,
            begun: self.round_began.map_or(Duration::ZERO, |began| {
                last.copied_for.saturating_sub(began)
            }),
            rate,
            dirtied: |time: Duration| {
                let amount = self.dirtied.within(time, by_qemu);
                amount.saturating_mul(dirtied) / 100
            },
            limit: self.limit,
            throttle: [last.throttle.into(), self.throttle_most],
        };
        let end = precopy.end();
        let by_itself = end.before.saturating_add(end.stopped) + HAND_OFF;
        let deadline = match self.postcopy {
            Postcopy::Begun => return within(precopy.time(left)),
            Postcopy::Not => None,
            Postcopy::After(after) => Some(after.saturating_sub(last.copied_for)),
        };
        match deadline.filter(|deadline| !end.fits || end.before > *deadline) {
            Some(deadline) => {
                let rest = precopy.time(precopy.standing(deadline).left);
                within(deadline.saturating_add(rest).saturating_add(HAND_OFF))
            }
            None => within(by_itself).filter(|_| end.fits),
        }
    }

    /// What is left of this round, in bytes of pages that are carried whole.
    fn left(&self, last: &Sample, rate: u64) -> u64 {
        let remaining = last.remaining.0;
        let Some(whole) = self.whole.filter(|_| last.round <= 1) else {
            return remaining;
        };
        let whole = whole.0.saturating_sub(last.whole.0).min(remaining);
        let zero = remaining - whole;
        let looked_at = u128::from(zero) * u128::from(rate) / u128::from(ZERO_PAGES.0);
        whole.saturating_add(u64::try_from(looked_at).unwrap_or(zero).min(zero))
    }
}

/// What is still a prediction.
fn within(time: Duration) -> Option<Duration> {
    (time <= FARTHEST).then_some(time)
}

/// How fast whole pages are carried where there are such; looking at zero ones takes its time beside that.
fn pages_rate(first: &Sample, last: &Sample) -> ByteRate {
    let time = last.at - first.at;
    let zero = last.zero.0.saturating_sub(first.zero.0);
    let looked_at = Duration::from_millis(zero.saturating_mul(1000) / ZERO_PAGES.0);
    let carrying = time.saturating_sub(looked_at).max(time / 4);
    rate(first.whole, last.whole, carrying)
}

fn rate(from: Bytes, to: Bytes, time: Duration) -> ByteRate {
    if time.is_zero() {
        return ByteRate(0);
    }
    ByteRate::of(Bytes(to.0.saturating_sub(from.0)), time)
}

#[cfg(test)]
mod tests;
