//! What the lines carry, as far as it is known.

use std::time::Duration;

use crate::decide::{Slowest, Way};
use crate::limits::{ANOTHER_LINE, LINE_GROWS_AFTER, LINE_GROWS_AFTER_MOST, LINE_GROWTH};

/// It is seen where the lines are what everybody waits for. Where they are not they may carry more than they do: that
/// is believed at once if they were waited for in the same way a moment ago, and else some time after; more with each
/// moment in which nobody waits.
#[derive(Debug)]
pub(super) struct Line {
    /// What they are believed to carry in a second, once they were waited for.
    rate: Option<f64>,
    /// What they were seen to carry.
    proven: f64,
    /// When they were last waited for, what they carried, and in which way.
    waited: Option<Waited>,
    /// More is believed than was seen.
    grows: bool,
    grows_after: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Waited {
    at: Duration,
    carried: f64,
    /// What one way makes fewer, another one does not, so that only with the same way it is the lines that are others, and
    /// not who is behind them.
    way: Way,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            rate: None,
            proven: 0.0,
            waited: None,
            grows: false,
            grows_after: LINE_GROWS_AFTER,
        }
    }
}

impl Line {
    /// Bytes in a second.
    pub(super) fn rate(&self) -> f64 {
        self.rate.unwrap_or(f64::INFINITY)
    }

    /// Whether it is known at all.
    pub(super) const fn was_waited_for(&self) -> bool {
        self.waited.is_some()
    }

    /// The same without what is only believed: what they carried when they were last waited for, or the most since, or without that
    /// the most of all.
    pub(super) const fn proven(&self) -> f64 {
        self.proven
    }

    /// Takes in what was carried in a second; whether the lines are others than before.
    pub(super) fn seen(&mut self, now: Duration, carried: f64, slowest: Slowest, way: Way) -> bool {
        if slowest != Slowest::Lines {
            return self.free(now, carried, way);
        }
        let at = now;
        let before = self.waited.replace(Waited { at, carried, way });
        let grew = std::mem::take(&mut self.grows);
        let differs = |before: Waited| {
            before.way == way
                && (carried > before.carried * ANOTHER_LINE
                    || carried * ANOTHER_LINE < before.carried)
        };
        let another = before.is_some_and(differs);
        let believed = self.rate.filter(|_| !another && !grew);
        let rate = believed.map_or(carried, |rate| f64::midpoint(rate, carried));
        self.rate = Some(rate);
        self.proven = rate;
        if another {
            self.grows_after = LINE_GROWS_AFTER;
        } else if grew {
            // For nothing.
            self.grows_after = (self.grows_after * 2).min(LINE_GROWS_AFTER_MOST);
        }
        another
    }

    /// They are not waited for. Where they carry more, in the same way, than when they were, they are others.
    fn free(&mut self, now: Duration, carried: f64, way: Way) -> bool {
        self.proven = self.proven.max(carried);
        let (Some(rate), Some(waited)) = (&mut self.rate, &mut self.waited) else {
            return false;
        };
        *rate = rate.max(carried);
        let another = waited.way == way && carried > waited.carried * ANOTHER_LINE;
        if another {
            waited.carried = carried;
            self.grows_after = LINE_GROWS_AFTER;
        }
        let free_for = now.saturating_sub(waited.at);
        let at_once = waited.way == way && self.grows_after == LINE_GROWS_AFTER;
        self.grows |= at_once || free_for > self.grows_after;
        if self.grows {
            *rate *= LINE_GROWTH;
        }
        another
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    const LZ4: Way = Way::with(crate::Codec::Lz4);

    #[test]
    fn a_line_is_known_while_it_is_waited_for_and_believed_to_carry_more_some_time_after() {
        let mut line = Line::default();
        assert!(line.rate().is_infinite() && line.proven() == 0.0);
        line.seen(at(50), 20.0, Slowest::Qemu, Way::Off);
        assert!(line.rate().is_infinite() && (line.proven() - 20.0).abs() < 1.0);
        for moment in 1..=3 {
            assert!(!line.seen(at(moment * 100), 100.0, Slowest::Lines, Way::Off));
            assert!((line.rate() - 100.0).abs() < 1.0);
        }
        line.seen(at(350), 20.0, Slowest::Processors, LZ4);
        assert!((line.rate() - 100.0).abs() < 1.0);
        let later = at(301) + LINE_GROWS_AFTER;
        for moment in 0..5 {
            line.seen(later + at(moment * 50), 20.0, Slowest::Qemu, LZ4);
        }
        assert!(line.rate() >= 1000.0);
        assert!((line.proven() - 100.0).abs() < 1.0);
        line.seen(later + at(300), 150.0, Slowest::Qemu, LZ4);
        assert!((line.proven() - 150.0).abs() < 1.0);
    }

    #[test]
    fn a_line_that_is_no_longer_waited_for_in_the_same_way_carries_more_at_once() {
        let mut line = Line::default();
        line.seen(at(100), 100.0, Slowest::Lines, Way::Off);
        assert!(!line.seen(at(150), 120.0, Slowest::Qemu, Way::Off));
        assert!(line.rate() > 150.0);
        // What was tried to no avail before may be of use then.
        assert!(!line.seen(at(200), 500.0, Slowest::Qemu, LZ4));
        assert!(line.seen(at(250), 130.0, Slowest::Processors, Way::Off));
        assert!(!line.seen(at(300), 130.0, Slowest::Processors, Way::Off));
    }

    #[test]
    fn what_was_believed_for_nothing_is_believed_later_until_the_line_is_another() {
        let mut line = Line::default();
        let mut now = Duration::ZERO;
        for _ in 0..2 {
            line.seen(now, 100.0, Slowest::Lines, Way::Off);
            now += line.grows_after + at(1);
            line.seen(now, 50.0, Slowest::Processors, LZ4);
            assert!(line.rate() > 150.0);
        }
        line.seen(now, 100.0, Slowest::Lines, Way::Off);
        assert_eq!(line.grows_after, LINE_GROWS_AFTER * 4);
        assert!(!line.seen(now, 300.0, Slowest::Lines, LZ4));
        line.seen(now, 100.0, Slowest::Lines, Way::Off);
        assert!(line.seen(now, 300.0, Slowest::Lines, Way::Off));
        assert_eq!(line.grows_after, LINE_GROWS_AFTER);
    }
}
