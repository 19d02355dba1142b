//! A limit on the rate at which bytes are handed out.

use std::time::Duration;

use crate::flight::time_at;
use crate::limits::{
    LIMIT_BURST, LIMIT_FULL_SECOND, LIMIT_HOLDS_OVER, LIMITED_CHUNK_LEAST, LIMITED_CHUNK_TIME,
};

/// Spaces what is sent so that no second holds more than its share: unused time is given back up to
/// [`LIMIT_BURST`] only. What takes longer than [`LIMITED_CHUNK_TIME`] goes so far apart that a second
/// has room for whole chunks only, and is given nothing back.
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
        let Some(rate) = self.rate else { return };
        let time = time_at(rate, bytes);
        let (back, time) = if time <= LIMITED_CHUNK_TIME {
            (LIMIT_BURST, time)
        } else {
            (Duration::ZERO, apart(time))
        };
        self.next_at = self.next_at.max(now.saturating_sub(back)) + time;
    }

    /// How large a chunk should be, in bytes; `None`: as large as it may be.
    pub(crate) fn chunk(&self) -> Option<u32> {
        self.rate.map(|rate| {
            let bytes = bytes_in(rate, LIMITED_CHUNK_TIME);
            u32::try_from(bytes).map_or(u32::MAX, |bytes| bytes.max(LIMITED_CHUNK_LEAST))
        })
    }
}

/// How far apart chunks go that take `time` each, so that no second holds one too many.
fn apart(time: Duration) -> Duration {
    let in_a_second = LIMIT_FULL_SECOND.as_nanos() / time.as_nanos().max(1);
    let in_a_second = u32::try_from(in_a_second).unwrap_or(u32::MAX).max(1);
    time.max(LIMIT_HOLDS_OVER / in_a_second)
}

fn bytes_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::USUAL_CHUNK_BYTES;

    /// The most that any second holds, and the mean over ten, as parts of the limit, for chunks of this
    /// size, where something is always there to be sent after half a second in which nothing was.
    fn sent(rate: u64, chunk: u64) -> (f64, f64) {
        let mut limiter = Limiter::default();
        limiter.set(Duration::ZERO, Some(rate));
        let mut sent: Vec<(Duration, u64)> = Vec::new();
        for tick in 5000..105_000u64 {
            // Looked at every 100 us.
            let now = Duration::from_micros(tick * 100);
            while limiter.allows(now) {
                limiter.sent(now, chunk);
                sent.push((now, chunk));
            }
        }
        let (mut most, mut within, mut from) = (0, 0, 0);
        for (at, bytes) in &sent {
            within += bytes;
            while *at - sent[from].0 >= Duration::from_secs(1) {
                within -= sent[from].1;
                from += 1;
            }
            most = most.max(within);
        }
        let all: u64 = sent.iter().map(|(_, bytes)| bytes).sum();
        (most as f64 / rate as f64, all as f64 / 10.0 / rate as f64)
    }

    #[test]
    fn no_second_holds_more_than_five_percent_over_a_limit_of_one_megabit_or_more() {
        for tenths in (10..100).chain((100..10_000).step_by(97)).chain([100_000]) {
            let rate = tenths * 12_500;
            let mut limiter = Limiter::default();
            limiter.set(Duration::ZERO, Some(rate));
            let chunk = u64::from(limiter.chunk().unwrap().min(USUAL_CHUNK_BYTES));
            let (most, mean) = sent(rate, chunk);
            assert!(most <= 1.05 && mean >= 0.95, "{rate}: {most} {mean}");
        }
    }

    #[test]
    fn chunks_that_were_read_before_the_limit_came_hold_it_too() {
        for tenths in (11..1000).step_by(7) {
            let rate = tenths * 12_500;
            let (most, mean) = sent(rate, u64::from(USUAL_CHUNK_BYTES));
            assert!(most <= 1.05 && mean >= 0.5, "{rate}: {most} {mean}");
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
