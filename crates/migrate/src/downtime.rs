//! How long a stop the hypervisor is told to aim at: short at first, the configured limit when a
//! shorter one is not to be had.
//!
//! QEMU stops the guest at the end of the first round after which the rest fits the downtime limit.
//! Told the whole limit at once, it stops with a rest that fills it, although one or two more rounds,
//! each shorter than the last, would have left a fraction. So it is told a part of the limit until
//! more rounds bring nothing.

use std::time::Duration;

use drover_types::{ByteRate, Bytes};

use crate::limits::{DOWNTIME_AIM_LEAST, DOWNTIME_AIM_PART, DOWNTIME_EXTRA_ROUNDS};

/// What one look at the hypervisor tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundSeen {
    /// Rounds that were begun.
    pub round: u64,
    /// Still to be carried.
    pub remaining: Bytes,
    /// How fast the guest dirties memory; zero until the first round is done.
    pub dirty_rate: ByteRate,
    /// How fast memory is carried.
    pub rate: ByteRate,
}

/// Aims at a short stop, and then at the limit.
#[derive(Debug, Clone)]
pub struct DowntimeAim {
    limit: Duration,
    aim: Duration,
    last_round: u64,
    extra_rounds: u64,
}

impl DowntimeAim {
    /// For a migration whose guest may stand still for `limit`.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        let aim = (limit / DOWNTIME_AIM_PART).max(DOWNTIME_AIM_LEAST);
        Self {
            limit,
            aim: aim.min(limit),
            last_round: 0,
            extra_rounds: 0,
        }
    }

    /// The same that aims at the limit from the start.
    pub(crate) fn whole(self) -> Self {
        Self {
            aim: self.limit,
            ..self
        }
    }

    /// What the hypervisor is to be told now.
    #[must_use]
    pub fn aim(&self) -> Duration {
        self.aim
    }

    /// Takes a look in; what the hypervisor is to be told instead from now on, if anything.
    pub fn look(&mut self, seen: RoundSeen) -> Option<Duration> {
        let begun = seen.round.saturating_sub(self.last_round);
        self.last_round = self.last_round.max(seen.round);
        // The first round carries everything and says nothing; QEMU counts it as 1.
        if self.aim == self.limit || seen.round < 2 || seen.rate.0 == 0 {
            return None;
        }
        let fits =
            u128::from(seen.remaining.0) * 1000 <= u128::from(seen.rate.0) * self.limit.as_millis();
        if fits {
            // It would have stopped by now with the whole limit.
            self.extra_rounds += begun;
        }
        let shrinks = u128::from(seen.dirty_rate.0) * 2 <= u128::from(seen.rate.0);
        if shrinks && self.extra_rounds <= DOWNTIME_EXTRA_ROUNDS {
            return None;
        }
        self.aim = self.limit;
        Some(self.aim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);

    /// QEMU's rounds over a guest that rewrites `working_set` bytes at `dirty` bytes per second:
    /// the stop and the time until it.
    fn migrate(rate: u64, dirty: u64, working_set: u64, with_aim: bool) -> (Duration, Duration) {
        let mut aim = DowntimeAim::new(LIMIT);
        let mut told = if with_aim { aim.aim() } else { LIMIT };
        let (mut remaining, mut at) = (1u64 << 30, Duration::ZERO);
        for round in 1.. {
            let seen = RoundSeen {
                round,
                remaining: Bytes(remaining),
                dirty_rate: ByteRate(if round > 1 { dirty } else { 0 }),
                rate: ByteRate(rate),
            };
            if let Some(new) = aim.look(seen).filter(|_| with_aim) {
                told = new;
            }
            let stop = Duration::from_secs_f64(remaining as f64 / rate as f64);
            if (round > 1 && stop <= told) || round > 100 {
                return (stop, at);
            }
            at += stop;
            remaining = ((dirty as f64 * stop.as_secs_f64()) as u64).min(working_set);
        }
        unreachable!()
    }

    #[test]
    fn a_guest_that_converges_stands_still_for_a_fraction_of_the_limit() {
        let (with, total) = migrate(236_000_000, 64 << 20, 16 << 20, true);
        let (without, before) = migrate(236_000_000, 64 << 20, 16 << 20, false);
        assert!(with * 3 < without, "{with:?} {without:?}");
        assert!(total < before + LIMIT, "{total:?} {before:?}");
    }

    #[test]
    fn a_guest_that_does_not_converge_further_gets_the_limit_at_once() {
        let (with, total) = migrate(100_000_000, 90_000_000, 20_000_000, true);
        let (without, before) = migrate(100_000_000, 90_000_000, 20_000_000, false);
        assert_eq!((with, total), (without, before));
    }

    #[test]
    fn it_costs_a_few_short_rounds_at_most() {
        for dirty in (0..240).step_by(7) {
            for working_set in [1, 16, 64, 200, 800] {
                let guest = (dirty << 20, working_set << 20);
                let (with, total) = migrate(236_000_000, guest.0, guest.1, true);
                let (without, before) = migrate(236_000_000, guest.0, guest.1, false);
                assert!(with <= without, "{guest:?}");
                assert!(
                    total <= before + LIMIT * 4,
                    "{guest:?} {total:?} {before:?}"
                );
            }
        }
    }
}
