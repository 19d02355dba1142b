//! What the guest's heartbeats prove: that it is one guest that never went back, and how long it
//! was silent.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use drover_probe::report::Heartbeat;

use crate::limits;

/// One heartbeat, and when it arrived here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// The host's monotonic clock.
    pub at: Instant,
    /// What it said.
    pub heartbeat: Heartbeat,
}

/// A heartbeat that cannot follow the one before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// Two guests run, or this one was set back.
    #[error("heartbeat {now} came after {before}: the guest was set back, or runs twice")]
    WentBack {
        /// The sequence number before.
        before: u64,
        /// The one that came.
        now: u64,
    },
    /// Its clock went back.
    #[error("the guest's clock went back from {before} to {now} us")]
    ClockWentBack {
        /// Microseconds before.
        before: u64,
        /// Microseconds now.
        now: u64,
    },
    /// Memory is damaged.
    #[error("the guest found {bad} bad pages")]
    BadPages {
        /// How many.
        bad: u64,
    },
}

/// The latest heartbeats of one guest, from whichever host.
#[derive(Debug, Default)]
pub struct Heartbeats {
    beats: VecDeque<Beat>,
    fault: Option<Impossible>,
}

impl Heartbeats {
    /// Takes one that arrived. The first fault stays.
    pub fn push(&mut self, beat: Beat) {
        if let Some(fault) = self.beats.back().and_then(|before| conflict(before, &beat)) {
            self.fault.get_or_insert(fault);
        }
        self.beats.push_back(beat);
        if self.beats.len() > limits::HEARTBEATS {
            self.beats.pop_front();
        }
    }

    /// The latest.
    #[must_use]
    pub fn last(&self) -> Option<Beat> {
        self.beats.back().copied()
    }

    /// What cannot be, if anything was seen.
    #[must_use]
    pub fn fault(&self) -> Option<&Impossible> {
        self.fault.as_ref()
    }

    /// Pages rewritten a second between the first and the last heartbeat of a time, in memory or on disk, as `pages` counts them; `None`
    /// with fewer than two there.
    #[must_use]
    pub fn rewrite_rate(
        &self,
        [from, until]: [Instant; 2],
        pages: fn(&Heartbeat) -> u64,
    ) -> Option<f64> {
        let mut within = self
            .beats
            .iter()
            .filter(|beat| beat.at >= from && beat.at <= until);
        let (first, last) = (within.next()?, within.next_back()?);
        let pages = pages(&last.heartbeat).saturating_sub(pages(&first.heartbeat));
        let seconds = (last.at - first.at).as_secs_f64();
        (seconds > 0.0).then(|| pages as f64 / seconds)
    }

    /// The longest silence that began or ended between two moments; `None` with fewer than two
    /// heartbeats there.
    #[must_use]
    pub fn longest_gap(&self, from: Instant, until: Instant) -> Option<Duration> {
        let pairs = self.beats.iter().zip(self.beats.iter().skip(1));
        let within = pairs.filter(|(a, b)| b.at >= from && a.at <= until);
        within
            .map(|(a, b)| b.at.saturating_duration_since(a.at))
            .max()
    }
}

fn conflict(before: &Beat, now: &Beat) -> Option<Impossible> {
    let (old, new) = (&before.heartbeat, &now.heartbeat);
    if new.sequence <= old.sequence {
        Some(Impossible::WentBack {
            before: old.sequence,
            now: new.sequence,
        })
    } else if new.micros < old.micros {
        Some(Impossible::ClockWentBack {
            before: old.micros,
            now: new.micros,
        })
    } else if new.bad > 0 {
        Some(Impossible::BadPages { bad: new.bad })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beats(millis: &[(u64, u64)]) -> (Instant, Heartbeats) {
        let start = Instant::now();
        let mut beats = Heartbeats::default();
        for &(at, sequence) in millis {
            let heartbeat = Heartbeat {
                sequence,
                micros: sequence * 10_000,
                rewrites: sequence * 100,
                ..Heartbeat::default()
            };
            beats.push(Beat {
                at: start + Duration::from_millis(at),
                heartbeat,
            });
        }
        (start, beats)
    }

    #[test]
    fn the_longest_silence_counts_also_when_it_crosses_a_border() {
        let (start, beats) = beats(&[(0, 1), (10, 2), (260, 3), (270, 4), (900, 5)]);
        let at = |ms| start + Duration::from_millis(ms);
        let gap = |from, until| {
            beats
                .longest_gap(at(from), at(until))
                .map(|gap| gap.as_millis())
        };
        assert_eq!(
            gap(0, 280),
            Some(630),
            "the silence after 270 began before 280"
        );
        assert_eq!(gap(0, 265), Some(250));
        assert_eq!(gap(100, 265), Some(250));
        assert_eq!(gap(0, 5), Some(10));
        assert_eq!(gap(901, 1000), None);
    }

    #[test]
    fn the_rate_of_rewriting_is_that_of_the_time_that_is_asked_for() {
        let (start, beats) = beats(&[(0, 1), (100, 2), (200, 4), (300, 10)]);
        let at = |ms| start + Duration::from_millis(ms);
        let rewrites = |beat: &Heartbeat| beat.rewrites;
        assert_eq!(
            beats.rewrite_rate([at(50), at(250)], rewrites),
            Some(2000.0)
        );
        assert_eq!(beats.rewrite_rate([at(50), at(150)], rewrites), None);
    }

    #[test]
    fn a_guest_that_is_set_back_or_runs_twice_is_a_fault() {
        let (_, good) = beats(&[(0, 1), (10, 2), (20, 9)]);
        assert_eq!(good.fault(), None, "lost lines are none");
        let (_, bad) = beats(&[(0, 1), (10, 2), (20, 2), (30, 3)]);
        assert_eq!(
            bad.fault(),
            Some(&Impossible::WentBack { before: 2, now: 2 })
        );
    }

    #[test]
    fn no_more_heartbeats_are_kept_than_the_bound() {
        let many: Vec<_> = (0..limits::HEARTBEATS as u64 + 50)
            .map(|n| (n * 10, n))
            .collect();
        let (_, beats) = beats(&many);
        assert_eq!(beats.beats.len(), limits::HEARTBEATS);
    }
}
