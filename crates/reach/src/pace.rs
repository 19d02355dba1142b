//! Bytes no faster than a rate.

use std::time::{Duration, Instant};

use drover_types::ByteRate;

/// When the next bytes may go.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    rate: ByteRate,
    free_at: Instant,
}

impl Pace {
    /// So many bytes a second, from now on; one at least.
    pub(crate) fn new(rate: ByteRate, now: Instant) -> Self {
        let rate = ByteRate(rate.0.max(1));
        Self { rate, free_at: now }
    }

    /// Takes the time of these bytes: how long until the next ones may go.
    pub(crate) fn take(&mut self, now: Instant, bytes: u64) -> Duration {
        let lasts = Duration::from_secs(bytes / self.rate.0)
            + Duration::from_nanos(
                (bytes % self.rate.0).saturating_mul(1_000_000_000) / self.rate.0,
            );
        self.free_at = self.free_at.max(now) + lasts;
        self.free_at - now
    }

    /// Takes the time of these bytes unless those before them are that far ahead: whether they may go.
    pub(crate) fn admits(&mut self, now: Instant, bytes: u64, ahead: Duration) -> bool {
        let admitted = self.free_at <= now + ahead;
        if admitted {
            self.take(now, bytes);
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn bytes_take_the_time_of_their_rate_and_a_rest_saves_none_up() {
        let start = Instant::now();
        let mut pace = Pace::new(ByteRate(1_000_000), start);
        assert_eq!(pace.take(start, 1000), MILLISECOND);
        assert_eq!(pace.take(start, 1000), 2 * MILLISECOND);
        let later = start + 1000 * MILLISECOND;
        assert_eq!(pace.take(later, 1000), MILLISECOND);
    }

    #[test]
    fn what_is_too_far_ahead_is_not_admitted_and_takes_no_time() {
        let start = Instant::now();
        let mut pace = Pace::new(ByteRate(1_000_000), start);
        assert!(pace.admits(start, 3000, MILLISECOND));
        assert!(!pace.admits(start, 1, MILLISECOND));
        assert!(pace.admits(start + 2 * MILLISECOND, 1, MILLISECOND));
    }

    #[test]
    fn a_rate_of_nothing_is_one_byte_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new(ByteRate(0), start);
        assert_eq!(pace.take(start, 2), 2000 * MILLISECOND);
    }
}
