//! What an answerer may still say.

use std::time::Instant;

use crate::limits::{ANSWER_AHEAD, ANSWER_BYTES, ANSWER_RATE};
use crate::pace::Pace;

/// Bytes of answers that are left of one order, no faster than their rate.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: u64,
    pace: Pace,
}

impl Allowance {
    /// All of an order, from now on.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            left: ANSWER_BYTES.0,
            pace: Pace::new(ANSWER_RATE, now),
        }
    }

    /// Takes these bytes, unless there are too many or they come too fast: whether they may go.
    pub(crate) fn admits(&mut self, now: Instant, bytes: u64) -> bool {
        let Some(left) = self.left.checked_sub(bytes) else {
            return false;
        };
        let admitted = self.pace.admits(now, bytes, ANSWER_AHEAD);
        if admitted {
            self.left = left;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SIZE: u64 = 9000;

    #[test]
    fn what_comes_at_once_is_answered_as_far_as_two_askers_sizes_and_no_further() {
        let now = Instant::now();
        let mut allowance = Allowance::new(now);
        let admitted = (0..1000).filter(|_| allowance.admits(now, SIZE)).count();
        let sizes = 2 * crate::limits::SIZES;
        assert!((sizes..2 * sizes).contains(&admitted), "{admitted}");
    }

    #[test]
    fn answers_are_no_faster_than_their_rate_and_end_with_the_bytes_of_their_order() {
        let begun = Instant::now();
        let mut allowance = Allowance::new(begun);
        let (mut bytes, mut milliseconds) = (0, 0);
        // Asked all the time, for longer than the bytes last.
        for at in 0..20_000_u64 {
            let now = begun + Duration::from_millis(at);
            while allowance.admits(now, SIZE) {
                bytes += SIZE;
                milliseconds = at;
            }
        }
        assert!(
            (ANSWER_BYTES.0 - SIZE..=ANSWER_BYTES.0).contains(&bytes),
            "{bytes}"
        );
        let ahead = ANSWER_AHEAD.as_millis() as u64 + 1;
        assert!(bytes <= (milliseconds + ahead) * ANSWER_RATE.0 / 1000 + SIZE);
    }
}
