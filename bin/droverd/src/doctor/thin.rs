//! Which of the reports that are kept have to go.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::limits::{KEPT_AGE, KEPT_ALL_BYTES, KEPT_NEWEST, KEPT_REPORTS};

/// A report that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// When it was made.
    pub at: Timestamp,
    /// What it takes of the disk.
    pub bytes: u64,
}

/// Those that have to go: the newest stay, and of each day before the newest one, for a quarter, as long as there is room for them.
/// Reports of times that are still to come were made, or are looked at, with a clock that is wrong: they stay while there is room beside
/// the others.
pub fn beyond(mut all: Vec<Entry>, now: Timestamp) -> Vec<Entry> {
    all.sort_by_key(|entry| std::cmp::Reverse(entry.at));
    let (to_come, past): (Vec<Entry>, Vec<Entry>) =
        all.into_iter().partition(|entry| entry.at > now);
    let oldest = SignedDuration::try_from(KEPT_AGE).ok();
    let oldest = oldest.and_then(|age| now.checked_sub(age).ok());
    let mut days = BTreeSet::new();
    let mut number = 0;
    let (stay, mut go): (Vec<Entry>, Vec<Entry>) = past.into_iter().partition(|entry| {
        number += 1;
        let is_first_of_day = days.insert(entry.at.to_zoned(TimeZone::UTC).date());
        let is_young = oldest.is_none_or(|oldest| entry.at >= oldest);
        number <= KEPT_NEWEST || (is_first_of_day && is_young)
    });
    let (mut count, mut bytes) = (0, 0_u64);
    go.extend(stay.into_iter().chain(to_come).filter(|entry| {
        count += 1;
        bytes = bytes.saturating_add(entry.bytes);
        count > KEPT_REPORTS || bytes > KEPT_ALL_BYTES
    }));
    go
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;
    /// Some midnight.
    const NOW: i64 = 20_000 * DAY;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).unwrap()
    }

    /// So many seconds ago.
    fn entries(ago: impl IntoIterator<Item = i64>, bytes: u64) -> Vec<Entry> {
        let at = |ago| Timestamp::from_second(NOW - ago).unwrap();
        ago.into_iter()
            .map(|ago| Entry { at: at(ago), bytes })
            .collect()
    }

    /// What stays, in seconds ago, the newest first.
    fn stay(all: Vec<Entry>) -> Vec<i64> {
        let go: BTreeSet<Entry> = beyond(all.clone(), now()).into_iter().collect();
        let mut stay: Vec<i64> = all
            .into_iter()
            .filter(|entry| !go.contains(entry))
            .map(|entry| NOW - entry.at.as_second())
            .collect();
        stay.sort_unstable();
        stay
    }

    #[test]
    fn the_newest_stay_and_one_of_each_day_for_a_quarter() {
        // One each hour for 200 days, the last at midnight.
        let stay = stay(entries((0..200 * 24).map(|hours| hours * HOUR), 1));
        assert!(stay.len() <= KEPT_REPORTS);
        let newest: Vec<i64> = (0..24).map(|hours| hours * HOUR).collect();
        assert_eq!(stay[..24], newest);
        // That of 23 h before midnight of each day is its first hour's; the newest of a day is that of 1 h before the next one.
        let of_days: Vec<i64> = (1..90).map(|days| days * DAY + HOUR).collect();
        assert_eq!(stay[24..], of_days);
    }

    #[test]
    fn a_few_stay_however_old_they_are() {
        let ago = [DAY, 100 * DAY, 400 * DAY];
        assert_eq!(stay(entries(ago, 1)), ago);
    }

    #[test]
    fn the_oldest_go_where_all_together_are_too_large() {
        let bytes = KEPT_ALL_BYTES / 3;
        let ago = [0, DAY, 2 * DAY, 3 * DAY];
        assert_eq!(stay(entries(ago, bytes)), ago[..3]);
    }

    #[test]
    fn a_clock_that_is_set_back_takes_nothing_as_long_as_there_is_room() {
        let all = entries((0..KEPT_REPORTS as i64).map(|days| -days * DAY - 1), 1);
        let mut with_new = all.clone();
        with_new.extend(entries([0], 1));
        let stay = stay(with_new);
        assert_eq!(stay.len(), KEPT_REPORTS);
        assert!(stay.contains(&0), "the one that was just made");
    }
}
