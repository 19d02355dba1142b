//! Rewriting and verifying at a rate.

use std::time::{Duration, Instant};

use crate::settings::{PAGE, Rate};

/// Pages done before the clock is looked at again: some 0.3 ms of an emulated CPU.
pub const BATCH: u64 = 64;

/// Sleep when nothing is due. At 64 MiB/s 16 pages come due in this time.
pub const IDLE: Duration = Duration::from_millis(1);

/// Pages that come due with time.
pub struct Pace {
    rate: Rate,
    since: Instant,
    done: u64,
}

impl Pace {
    /// Nothing is due yet.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self {
            rate,
            since: now,
            done: 0,
        }
    }

    /// Pages due now, a batch at most; they count as done.
    pub fn due(&mut self, now: Instant) -> u64 {
        let Rate::Bytes(rate) = self.rate else {
            return BATCH;
        };
        let elapsed = micros(now.saturating_duration_since(self.since));
        let total = u128::from(rate) * u128::from(elapsed) / 1_000_000 / PAGE as u128;
        let total = u64::try_from(total).unwrap_or(u64::MAX);
        let due = total.saturating_sub(self.done);
        if due > 1024 * BATCH {
            // Far behind: it cannot keep this rate. What was missed stays missed.
            self.done = total - BATCH;
            return BATCH;
        }
        let batch = due.min(BATCH);
        self.done += batch;
        batch
    }
}

/// Whole microseconds; 580,000 years fit.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
