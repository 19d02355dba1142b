//! The rate at which QEMU's bytes were carried in the bulk phase.

use std::time::Duration;

use drover_types::{ByteRate, Bytes};

use crate::limits::{SAMPLE_INTERVAL, SAMPLES_MAX};

/// How much had been carried at which time.
#[derive(Debug, Clone)]
pub struct Goodput {
    samples: Vec<(Duration, u64)>,
    interval: Duration,
}

impl Default for Goodput {
    fn default() -> Self {
        Self {
            samples: Vec::new(),
            interval: SAMPLE_INTERVAL,
        }
    }
}

impl Goodput {
    /// When the next sample is to be taken.
    pub(crate) fn next_at(&self) -> Duration {
        self.samples
            .last()
            .map_or(Duration::ZERO, |(at, _)| *at + self.interval)
    }

    /// Notes what had been carried by `now`, unless it is too early for a sample.
    pub(crate) fn note(&mut self, now: Duration, bytes: u64) {
        if now < self.next_at() {
            return;
        }
        if self.samples.len() >= SAMPLES_MAX {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.interval *= 2;
        }
        self.samples.push((now, bytes));
    }

    /// Mean rate between 5 % and 95 % of all bytes: without the beginning, in which channels and
    /// windows open, and without the end, in which the guest stops. `None` while there is too
    /// little to tell.
    #[must_use]
    pub fn bulk(&self) -> Option<ByteRate> {
        let total = self.samples.last()?.1;
        let at = |percent: u64| {
            let reached = |&&(_, bytes): &&(Duration, u64)| bytes >= total / 100 * percent;
            self.samples.iter().find(reached).copied()
        };
        let (begin, end) = (at(5)?, at(95)?);
        let time = end
            .0
            .checked_sub(begin.0)
            .filter(|time| *time > self.interval)?;
        Some(ByteRate::of(Bytes(end.1 - begin.1), time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bulk_rate_leaves_a_slow_beginning_and_end_out() {
        let mut goodput = Goodput::default();
        let mut carried = 0;
        for step in 0..1000u64 {
            carried += if (20..980).contains(&step) {
                1_000_000
            } else {
                1_000
            };
            goodput.note(Duration::from_millis(step * 20), carried);
        }
        assert_eq!(goodput.bulk(), Some(ByteRate(50_000_000)));
    }

    #[test]
    fn samples_are_bounded_however_long_it_takes() {
        let mut goodput = Goodput::default();
        for step in 0..1_000_000u64 {
            goodput.note(Duration::from_millis(step), step);
        }
        assert!(goodput.samples.len() <= SAMPLES_MAX);
    }

    #[test]
    fn nothing_carried_has_no_rate() {
        assert_eq!(Goodput::default().bulk(), None);
    }
}
