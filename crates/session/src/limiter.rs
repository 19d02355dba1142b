//! A limit on the rate at which bytes are handed out.

use std::time::Duration;

use crate::flight::time_at;
use crate::limits::LIMIT_BURST;

/// Spaces what is sent so that no second holds more than its share: unused time is given back up to
/// [`LIMIT_BURST`] only.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    /// Bytes per second.
    rate: Option<u64>,
    /// From when on the next chunk may go.
    next_at: Duration,
}

impl Limiter {
    /// What was sent too early for the old rate is so for the new one, in bytes: a limit that is
    /// changed again and again still holds.
    pub(crate) fn set(&mut self, now: Duration, rate: Option<u64>) {
        let debt = self.next_at.saturating_sub(now);
        let owed = self.rate.map_or(0, |old| bytes_in(old, debt));
        self.rate = rate;
        if owed > 0 {
            self.next_at = now + rate.map_or(Duration::ZERO, |new| time_at(new, owed));
        }
    }

    /// From when on the next chunk may go; `None`: it may at any time.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.rate.map(|_| self.next_at)
    }

    pub(crate) fn allows(&self, now: Duration) -> bool {
        self.next_at().is_none_or(|at| at <= now)
    }

    pub(crate) fn sent(&mut self, now: Duration, bytes: u64) {
        if let Some(rate) = self.rate {
            let from = self.next_at.max(now.saturating_sub(LIMIT_BURST));
            self.next_at = from + time_at(rate, bytes);
        }
    }
}

fn bytes_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_holds_more_than_five_percent_over_the_limit() {
        for rate in [2_000_000, 12_500_000, 1_250_000_000] {
            let mut limiter = Limiter::default();
            limiter.set(Duration::ZERO, Some(rate));
            let mut sent: Vec<(Duration, u64)> = Vec::new();
            for tick in 0..30_000u64 {
                // Nothing to send for a while, then as much as may go, looked at every 100 us.
                let now = Duration::from_micros(tick * 100);
                while tick > 5000 && limiter.allows(now) {
                    limiter.sent(now, 64 << 10);
                    sent.push((now, 64 << 10));
                }
            }
            let from = sent[0].0;
            let second = |(at, _): &&(Duration, u64)| *at < from + Duration::from_secs(1);
            let bytes: u64 = sent.iter().take_while(second).map(|(_, bytes)| bytes).sum();
            let share = bytes as f64 / rate as f64;
            assert!((0.95..=1.05).contains(&share), "{rate}: {share}");
        }
    }

    #[test]
    fn a_limit_that_is_changed_all_the_time_holds_all_the_same() {
        let mut limiter = Limiter::default();
        let mut sent = 0;
        for tick in 0..10_000u64 {
            let now = Duration::from_micros(tick * 100);
            if tick % 20 == 0 {
                limiter.set(now, Some(10_000_000 + tick % 7));
            }
            while limiter.allows(now) {
                limiter.sent(now, 256 << 10);
                sent += 256 << 10;
            }
        }
        assert!((9_500_000..=10_500_000).contains(&sent), "{sent}");
    }

    #[test]
    fn a_limit_that_is_lifted_holds_nothing_up() {
        let mut limiter = Limiter::default();
        limiter.set(Duration::ZERO, Some(1));
        limiter.sent(Duration::ZERO, 1000);
        assert!(!limiter.allows(Duration::from_secs(1)));
        limiter.set(Duration::from_secs(1), None);
        assert!(limiter.allows(Duration::from_secs(1)));
    }
}
