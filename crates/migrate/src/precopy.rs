//! The rounds of a precopy, computed ahead.
//!
//! ```text
//!   a round carries what was left:             time of the round = left / rate
//!   the next carries what the guest wrote:     left = dirtied(time of the round)
//!   until that fits the downtime limit:        left <= rate x limit; then the guest stops
//! ```
//!
//! Where more than half of what a round carried is dirty after it, twice, the guest is throttled as QEMU
//! does (`migration/ram.c`, `throttle-trigger-threshold` 50, `cpu-throttle-initial` 20, `-increment` 10): it
//! writes in the rest of its time only.

use std::time::Duration;

/// Rounds that are computed: QEMU's throttle reaches its end after 9 steps, so what has not ended by then ends
/// by the working set or not at all.
const ROUNDS: u32 = 64;

/// The longest round, in microseconds: some 500 years, which can be added up.
const LONGEST: u64 = 1 << 54;

const THROTTLE_FIRST: u64 = 20;
const THROTTLE_STEP: u64 = 10;

/// Where a precopy stands, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Precopy<F> {
    /// Bytes of this round that are not carried yet.
    pub left: u64,
    /// For how long this round has been under way.
    pub begun: Duration,
    /// Bytes per second that are carried, at least 1.
    pub rate: u64,
    /// How many bytes the guest dirties in so much of its time.
    pub dirtied: F,
    /// How long it may stand still at the end.
    pub limit: Duration,
    /// The part of its time, in percent, that it stands still by now so that it ends, and the most.
    pub throttle: [u64; 2],
}

/// How it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Bytes that are carried until then.
    pub bytes: u64,
    /// Until the guest stops.
    pub before: Duration,
    /// For what is carried while it stands still.
    pub stopped: Duration,
    /// The part of its time, in percent, that the guest stood still at last.
    pub throttle: u64,
    /// What is left fits the limit.
    pub fits: bool,
}

impl<F: Fn(Duration) -> u64> Precopy<F> {
    /// Its end.
    #[must_use]
    pub fn end(&self) -> End {
        let [mut throttle, most] = self.throttle;
        let fits = u128::from(self.rate).saturating_mul(self.limit.as_micros()) / 1_000_000;
        let (mut left, mut bytes, mut before) = (self.left, 0_u64, Duration::ZERO);
        let (mut begun, mut high, mut round) = (self.begun, 0, 0);
        while u128::from(left) > fits && round < ROUNDS {
            round += 1;
            let time = self.time(left);
            bytes = bytes.saturating_add(left);
            before += time;
            let of_guest = (time + std::mem::take(&mut begun)).as_micros();
            let of_guest = of_guest * u128::from(100_u64.saturating_sub(throttle)) / 100;
            let dirtied = (self.dirtied)(micros(of_guest));
            high += u32::from(dirtied > left / 2);
            if high >= 2 {
                high = 0;
                let next = match throttle {
                    0 => THROTTLE_FIRST,
                    _ => throttle + THROTTLE_STEP,
                };
                throttle = next.min(most);
            }
            left = dirtied;
        }
        End {
            bytes: bytes.saturating_add(left),
            before,
            stopped: self.time(left),
            throttle,
            fits: u128::from(left) <= fits,
        }
    }

    fn time(&self, bytes: u64) -> Duration {
        micros(u128::from(bytes) * 1_000_000 / u128::from(self.rate.max(1)))
    }
}

fn micros(micros: u128) -> Duration {
    Duration::from_micros(u64::try_from(micros).map_or(LONGEST, |micros| micros.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn of(left: u64, dirty_rate: u64, working_set: u64) -> Precopy<impl Fn(Duration) -> u64> {
        Precopy {
            left,
            begun: Duration::ZERO,
            rate: 100 * MIB,
            dirtied: move |time: Duration| {
                let dirtied = u128::from(dirty_rate) * time.as_micros() / 1_000_000;
                u64::try_from(dirtied).unwrap_or(u64::MAX).min(working_set)
            },
            limit: Duration::from_millis(300),
            throttle: [0, 99],
        }
    }

    #[test]
    fn a_quiet_guest_is_carried_once() {
        let end = of(1000 * MIB, 0, u64::MAX).end();
        assert_eq!(
            (end.bytes, end.before),
            (1000 * MIB, Duration::from_secs(10))
        );
        assert_eq!((end.stopped, end.throttle), (Duration::ZERO, 0));
    }

    #[test]
    fn rounds_shrink_by_what_is_written_meanwhile() {
        let end = of(1000 * MIB, 20 * MIB, u64::MAX).end();
        // 1000, 200, 40 MiB; then 8, which fit.
        assert_eq!(end.bytes, 1248 * MIB);
        assert_eq!(end.before, Duration::from_millis(12_400));
        let of_a_round_under_way = Precopy {
            left: 500 * MIB,
            begun: Duration::from_secs(5),
            ..of(0, 20 * MIB, u64::MAX)
        };
        let end = of_a_round_under_way.end();
        assert_eq!(end.before, Duration::from_millis(7_400));
    }

    #[test]
    fn a_guest_that_writes_too_fast_is_slowed_down_as_far_as_it_may_be() {
        let end = of(1000 * MIB, 200 * MIB, 80 * MIB).end();
        assert!(end.fits && end.throttle > 20, "{end:?}");
        let little = Precopy {
            throttle: [0, 20],
            ..of(1000 * MIB, 200 * MIB, 80 * MIB)
        };
        let end = little.end();
        assert_eq!((end.fits, end.throttle), (false, 20));
    }

    #[test]
    fn nothing_overflows_however_slow_the_line_and_large_the_guest() {
        let slow = Precopy {
            rate: 0,
            left: u64::MAX,
            ..of(0, u64::MAX, u64::MAX)
        };
        assert!(!slow.end().fits);
    }
}
