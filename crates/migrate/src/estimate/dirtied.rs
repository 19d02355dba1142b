//! How much a guest dirties in a time.

use std::time::Duration;

use drover_types::{ByteRate, Bytes};

/// Points of it that are kept: those sampled before, and the last rounds.
const POINTS: usize = 6;

/// A line from nothing through what was seen.
#[derive(Debug, Clone)]
pub(super) struct Dirtied {
    /// In the order in which they were seen.
    points: Vec<(Duration, u64)>,
    /// All of them are from before the migration, when the guest may have been busy with something else.
    is_old: bool,
}

impl Dirtied {
    /// From what was sampled before.
    pub(super) fn new(known: Vec<(Duration, Bytes)>) -> Self {
        let mut all = Self {
            points: Vec::new(),
            is_old: false,
        };
        for (time, bytes) in known {
            all.seen(time, bytes);
        }
        all.is_old = true;
        all
    }

    /// Whether nothing was seen since the migration began, but something before.
    pub(super) fn is_old(&self) -> bool {
        self.is_old && !self.points.is_empty()
    }

    /// It dirtied so much in that time. By the first word since the migration began what was known before
    /// becomes as much more or less: how it bends stays.
    pub(super) fn seen(&mut self, time: Duration, bytes: Bytes) {
        if time.is_zero() {
            return;
        }
        if std::mem::take(&mut self.is_old) {
            let then = self.within(time, ByteRate(0)).max(1);
            for (_, known) in &mut self.points {
                let now = u128::from(*known) * u128::from(bytes.0) / u128::from(then);
                *known = u64::try_from(now).unwrap_or(u64::MAX);
            }
        }
        // The newest word on about the same time counts.
        self.points
            .retain(|(known, _)| *known * 4 < time * 3 || *known * 3 > time * 4);
        if self.points.len() >= POINTS {
            self.points.remove(0);
        }
        self.points.push((time, bytes.0));
    }

    /// In so much time; by the hypervisor's rate where nothing was seen. Beyond a point that is the only one it may
    /// write to other pages all the time or to the same ones: half of that.
    pub(super) fn within(&self, time: Duration, rate: ByteRate) -> u64 {
        let mut points = self.points.clone();
        points.sort_unstable();
        let Some(last) = points.last().copied() else {
            let dirtied = u128::from(rate.0).saturating_mul(time.as_micros()) / 1_000_000;
            return u64::try_from(dirtied).unwrap_or(u64::MAX);
        };
        let mut from = (Duration::ZERO, 0);
        let mut slope = last;
        for (to_time, to_bytes) in points {
            // In more time it dirties no less.
            let to = (to_time, to_bytes.max(from.1));
            slope = (to.0 - from.0, to.1 - from.1);
            if time <= to.0 {
                return from.1 + part(slope.1, time - from.0, slope.0);
            }
            from = to;
        }
        if self.points.len() == 1 {
            slope.1 /= 2;
        }
        from.1.saturating_add(part(slope.1, time - from.0, slope.0))
    }
}

/// `bytes` of a time, for another time.
fn part(bytes: u64, time: Duration, of: Duration) -> u64 {
    let part = u128::from(bytes).saturating_mul(time.as_micros()) / of.as_micros().max(1);
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirtied(points: &[(u64, u64)]) -> Dirtied {
        let point = |(millis, bytes): &(u64, u64)| (Duration::from_millis(*millis), Bytes(*bytes));
        Dirtied::new(points.iter().map(point).collect())
    }

    fn within(points: &[(u64, u64)], millis: u64) -> u64 {
        dirtied(points).within(Duration::from_millis(millis), ByteRate(10))
    }

    #[test]
    fn nothing_that_was_seen_leaves_the_hypervisors_rate() {
        assert_eq!(within(&[], 2_000), 20);
    }

    #[test]
    fn one_point_bends_halfway_and_two_as_they_do() {
        assert_eq!(within(&[(1_000, 100)], 500), 50);
        assert_eq!(within(&[(1_000, 100)], 3_000), 200);
        let bent = [(4_000, 130), (1_000, 100)];
        assert_eq!(within(&bent, 500), 50);
        assert_eq!(within(&bent, 2_500), 115);
        assert_eq!(within(&bent, 7_000), 160);
        assert_eq!(
            within(&[(1_000, 100), (4_000, 90)], 9_000),
            100,
            "never less"
        );
    }

    #[test]
    fn what_was_known_before_is_as_much_less_as_the_first_word_since_then_says() {
        let mut all = dirtied(&[(1_000, 400), (4_000, 600)]);
        all.seen(Duration::from_secs(1), Bytes(40));
        let within = |all: &Dirtied, seconds| all.within(Duration::from_secs(seconds), ByteRate(0));
        assert_eq!((within(&all, 1), within(&all, 4)), (40, 60));
        all.seen(Duration::from_secs(4), Bytes(44));
        assert_eq!((within(&all, 1), within(&all, 4)), (40, 44));
    }

    #[test]
    fn the_newest_word_on_about_the_same_time_counts() {
        let mut newest = dirtied(&[(1_000, 100)]);
        newest.seen(Duration::from_millis(1_100), Bytes(55));
        assert_eq!(newest.within(Duration::from_millis(1_100), ByteRate(0)), 55);
        let mut many = dirtied(&[]);
        for round in 1..100_u64 {
            many.seen(Duration::from_millis(round * round * 100), Bytes(round));
            assert!(many.points.len() <= POINTS);
        }
    }
}
