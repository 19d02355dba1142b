//! How long a move with a fault would have taken had nothing been lost but lines: the measure of
//! what losing them cost beyond that.
//!
//! ```text
//!   rate ^ all lines          a move without a fault: bytes B in the time C, at the rate R
//!        |‾‾‾‾‾‾‾‾|             up to the fault, b of them have been sent
//!        |        |______      the others go at the rate that the lines left have together
//!        |________|______|__▶
//! ```
//! `ideal = C - (B - b) / R + (time for B - b at the rates from the fault on)`. What does not
//! depend on lines (starting, stopping the guest, its device state) is in `C` and stays.

use serde::{Deserialize, Serialize};

/// A change of one NIC, as it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// When it had been made, after QEMU began; negative before.
    pub at_ms: f64,
    /// The number of the fault.
    pub fault: usize,
    /// The NIC.
    pub nic: usize,
    /// The part of its rate that this fault leaves it, from now on.
    pub part: f64,
    /// In words.
    pub what: String,
    /// Bytes that the source had sent by then, over all NICs.
    pub sent: u64,
    /// How long making it took.
    pub took_ms: f64,
}

/// Moves of the same guest in the same way without a fault: their medians.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Clean {
    /// Total time.
    pub total_ms: f64,
    /// The guest's longest silence.
    pub gap_ms: f64,
    /// Bytes that the source sent, over all NICs.
    pub bytes: f64,
    /// Bytes a second in the bulk.
    pub rate: f64,
}

/// The ideal total time; `lines` are the rates of the NICs that the method uses, 0 for the others.
/// `None` when no line is left that could ever end it.
#[must_use]
pub fn ideal_ms(clean: Clean, lines: &[f64], changes: &[Change]) -> Option<f64> {
    let all: f64 = lines.iter().sum();
    let Some(first) = changes.iter().position(|change| change.part < 1.0) else {
        return Some(clean.total_ms);
    };
    let changes = &changes[first..];
    if all <= 0.0 || clean.rate <= 0.0 {
        return None;
    }
    let per_ms = clean.rate / 1e3;
    let left = (clean.bytes - changes[0].sent as f64).max(0.0);
    let needed = carry(left, per_ms, lines, changes)?;
    Some(clean.total_ms - left / per_ms + needed)
}

/// Milliseconds from the first change on until so many bytes were carried.
fn carry(bytes: f64, per_ms: f64, lines: &[f64], changes: &[Change]) -> Option<f64> {
    let all: f64 = lines.iter().sum();
    let begin = changes.first().map_or(0.0, |change| change.at_ms.max(0.0));
    let (mut left, mut now) = (bytes, begin);
    for made in 0..changes.len() {
        let rate = per_ms * rate_left(lines, &changes[..=made]) / all;
        match changes.get(made + 1) {
            Some(next) if rate * (next.at_ms - now) < left => {
                let until = next.at_ms.max(now);
                left -= rate * (until - now);
                now = until;
            }
            _ if left <= 0.0 => break,
            _ if rate > 0.0 => return Some(now + left / rate - begin),
            _ => return None,
        }
    }
    Some(now - begin)
}

/// The rate of all lines together after these changes.
pub(crate) fn rate_left(lines: &[f64], changes: &[Change]) -> f64 {
    let part = |nic: usize| -> f64 {
        let mut parts = std::collections::BTreeMap::new();
        for change in changes.iter().filter(|change| change.nic == nic) {
            parts.insert(change.fault, change.part);
        }
        parts.values().product()
    };
    lines
        .iter()
        .enumerate()
        .map(|(nic, line)| line * part(nic))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: Clean = Clean {
        total_ms: 3000.0,
        gap_ms: 200.0,
        bytes: 500e6,
        rate: 250e6,
    };
    const TWO: [f64; 2] = [1e9, 1e9];

    fn change(at_ms: f64, nic: usize, part: f64, sent: f64) -> Change {
        Change {
            at_ms,
            fault: nic,
            nic,
            part,
            what: String::new(),
            sent: sent as u64,
            took_ms: 5.0,
        }
    }

    fn ideal(changes: &[Change]) -> Option<f64> {
        ideal_ms(CLEAN, &TWO, changes).map(f64::round)
    }

    #[test]
    fn a_line_lost_half_way_doubles_what_the_rest_takes() {
        // 250 MB are left: 1 s at 250 MB/s, 2 s at half of that.
        assert_eq!(ideal(&[change(1200.0, 1, 0.0, 250e6)]), Some(4000.0));
        assert_eq!(ideal(&[change(1200.0, 1, 0.0, 500e6)]), Some(3000.0));
        assert_eq!(ideal(&[change(-50.0, 1, 0.0, 0.0)]), Some(5000.0));
    }

    #[test]
    fn a_line_that_returns_carries_again() {
        // All lines gone for 5 s.
        let outage = [
            change(1000.0, 0, 0.0, 200e6),
            change(1000.0, 1, 0.0, 200e6),
            change(6000.0, 0, 1.0, 200e6),
            change(6000.0, 1, 1.0, 200e6),
        ];
        assert_eq!(ideal(&outage), Some(8000.0));
        // One gone for 1 s: 125 MB in it instead of 250.
        let one = [change(1000.0, 1, 0.0, 200e6), change(2000.0, 1, 1.0, 0.0)];
        assert_eq!(ideal(&one), Some(3500.0));
    }

    #[test]
    fn a_slower_line_carries_its_part() {
        // 250 MB at 1.1 of 2 lines.
        let slow = [change(1200.0, 0, 0.1, 250e6)];
        assert_eq!(ideal(&slow), Some((2000.0f64 + 1000.0 * 2.0 / 1.1).round()));
    }

    #[test]
    fn two_faults_of_one_nic_do_not_heal_each_other() {
        let mut cut = change(1000.0, 1, 0.0, 250e6);
        cut.fault = 7;
        let changes = [
            change(900.0, 1, 0.1, 225e6),
            cut.clone(),
            change(1100.0, 1, 1.0, 0.0),
        ];
        assert_eq!(rate_left(&TWO, &changes), 1e9);
    }

    #[test]
    fn without_any_line_there_is_no_ideal_and_without_harm_it_is_the_clean_time() {
        let both = [change(10.0, 0, 0.0, 1e6), change(10.0, 1, 0.0, 1e6)];
        assert_eq!(ideal(&both), None);
        assert_eq!(ideal_ms(CLEAN, &[1e9, 0.0], &both[..1]), None);
        assert_eq!(ideal_ms(CLEAN, &[1e9, 0.0], &both[1..]), Some(3000.0));
        assert_eq!(ideal(&[]), Some(3000.0));
        let kills = [change(10.0, 0, 1.0, 1e6)];
        assert_eq!(ideal(&kills), Some(3000.0));
    }
}
