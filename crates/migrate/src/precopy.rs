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

/// Where it stands at some time before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Bytes that are carried until then.
    pub bytes: u64,
    /// Bytes that are not, or were written again: at most what is left of the round and what was written in it, some
    /// of which may be the same.
    pub left: u64,
}

/// After so many rounds.
struct After {
    rounds: u32,
    bytes: u64,
    left: u64,
    before: Duration,
    /// Of the round that follows, before it was looked at.
    begun: Duration,
    throttle: u64,
    /// Rounds since the last step of the throttle that left more than half of what they carried.
    high: u32,
}

impl<F: Fn(Duration) -> u64> Precopy<F> {
    /// Its end.
    #[must_use]
    pub fn end(&self) -> End {
        let fits = u128::from(self.rate).saturating_mul(self.limit.as_micros()) / 1_000_000;
        let mut after = self.begin();
        while u128::from(after.left) > fits && after.rounds < ROUNDS {
            self.round(&mut after);
        }
        End {
            bytes: after.bytes.saturating_add(after.left),
            before: after.before,
            stopped: self.time(after.left),
            throttle: after.throttle,
            fits: u128::from(after.left) <= fits,
        }
    }

    /// Where it stands after this time, if the guest has not stopped for the rest until then.
    #[must_use]
    pub fn standing(&self, time: Duration) -> Standing {
        let mut after = self.begin();
        let ends = |after: &After| after.before + self.time(after.left);
        while after.rounds < ROUNDS && after.left > 0 && ends(&after) <= time {
            self.round(&mut after);
        }
        let rest = time.saturating_sub(after.before);
        let carried = u128::from(self.rate).saturating_mul(rest.as_micros()) / 1_000_000;
        let carried = u64::try_from(carried).unwrap_or(u64::MAX);
        let left = match after.left.checked_sub(carried) {
            Some(left) => left.saturating_add(self.written(rest + after.begun, after.throttle)),
            // More rounds than are computed, which leave what the last one did.
            None => after.left,
        };
        Standing {
            bytes: after.bytes.saturating_add(carried),
            left,
        }
    }

    fn begin(&self) -> After {
        After {
            rounds: 0,
            bytes: 0,
            left: self.left,
            before: Duration::ZERO,
            begun: self.begun,
            throttle: self.throttle[0],
            high: 0,
        }
    }

    fn round(&self, after: &mut After) {
        let time = self.time(after.left);
        after.rounds += 1;
        after.bytes = after.bytes.saturating_add(after.left);
        after.before += time;
        let begun = std::mem::take(&mut after.begun);
        let dirtied = self.written(time + begun, after.throttle);
        after.high += u32::from(dirtied > after.left / 2);
        if after.high >= 2 {
            after.high = 0;
            let next = match after.throttle {
                0 => THROTTLE_FIRST,
                throttle => throttle + THROTTLE_STEP,
            };
            after.throttle = next.min(self.throttle[1]);
        }
        after.left = dirtied;
    }

    /// What the guest writes in this time, in a part of which it stands still.
    fn written(&self, time: Duration, throttle: u64) -> u64 {
        let of_guest = time.as_micros() * u128::from(100_u64.saturating_sub(throttle)) / 100;
        (self.dirtied)(micros(of_guest))
    }

    /// How long it takes to carry so much.
    pub(crate) fn time(&self, bytes: u64) -> Duration {
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
    fn in_the_middle_of_a_round_its_rest_is_left_and_what_was_written_in_it() {
        let precopy = of(1000 * MIB, 20 * MIB, u64::MAX);
        let standing = |millis| {
            let at = precopy.standing(Duration::from_millis(millis));
            (at.bytes / MIB, at.left / MIB)
        };
        assert_eq!(standing(0), (0, 1000));
        assert_eq!(standing(4_000), (400, 600 + 80));
        assert_eq!(standing(10_000), (1000, 200));
        assert_eq!(standing(11_000), (1100, 100 + 20));
        let busy = of(1000 * MIB, 200 * MIB, 80 * MIB);
        let unthrottled = Precopy {
            throttle: [0, 0],
            ..busy
        };
        let day = unthrottled.standing(Duration::from_secs(24 * 3600));
        assert_eq!(
            day.left,
            80 * MIB,
            "its working set, however long it goes on"
        );
        let under_way = Precopy {
            begun: Duration::from_secs(5),
            ..of(500 * MIB, 20 * MIB, u64::MAX)
        };
        let at = under_way.standing(Duration::from_secs(1));
        assert_eq!(at.left, (400 + 120) * MIB);
        let quiet = of(100 * MIB, 0, u64::MAX).standing(Duration::from_secs(9));
        assert_eq!(quiet.left, 0);
    }

    #[test]
    fn nothing_overflows_however_slow_the_line_and_large_the_guest() {
        let slow = Precopy {
            rate: 0,
            left: u64::MAX,
            ..of(0, u64::MAX, u64::MAX)
        };
        assert!(!slow.end().fits);
        assert!(slow.standing(Duration::MAX).left > 0);
    }
}
