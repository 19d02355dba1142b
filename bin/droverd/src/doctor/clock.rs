//! How another host's clock differs from this one's, by the times of a question and its answer. Source: RFC 5905, 8.
//!
//! ```text
//! here   asked ─┐                      ┌─▶ answered
//! there         └─▶ began ...... ended ┘
//! ```

use drover_tune::facts::{Clock, Fact};
use jiff::Timestamp;

/// What a clock shows beside this host's: when it was asked and answered here, and when it began to read and had read there.
pub fn beside(here: [Timestamp; 2], there: Option<(Timestamp, Timestamp)>) -> Fact<Clock> {
    let Some((began, ended)) = there else {
        return Fact::unknown("its agent is older, and tells no time");
    };
    // A time of jiff's fits into an i64 of microseconds, and so do sums of a few: the years -9999 to 9999 have some 6 x 10^17.
    let [asked, answered, began, ended] =
        [here[0], here[1], began, ended].map(|time| time.as_microsecond());
    let ahead = ((began - asked) + (ended - answered)) / 2;
    let on_the_way = (answered - asked) - (ended - began);
    if answered < asked || ended < began || on_the_way < 0 {
        return Fact::unknown("a clock was set while it was asked");
    }
    Fact::Known(Clock {
        ahead_ms: ahead / 1000,
        doubt_ms: on_the_way.unsigned_abs().div_ceil(2000),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + millisecond).unwrap()
    }

    fn known(here: [i64; 2], there: [i64; 2]) -> Option<(i64, u64)> {
        let there = there.map(at);
        let clock = beside(here.map(at), Some((there[0], there[1])));
        clock.known().map(|clock| (clock.ahead_ms, clock.doubt_ms))
    }

    #[test]
    fn a_clock_is_known_but_for_half_of_the_way_however_long_it_took_to_read() {
        // 10 ms each way, and a second to read.
        assert_eq!(known([0, 1020], [10, 1010]), Some((0, 10)));
        assert_eq!(known([0, 1020], [5010, 6010]), Some((5000, 10)));
        assert_eq!(known([0, 1020], [-4990, -3990]), Some((-5000, 10)));
        // All of it one way: it is within the doubt.
        assert_eq!(known([0, 1020], [20, 1020]), Some((10, 10)));
    }

    #[test]
    fn times_that_cannot_be_are_not_believed() {
        assert_eq!(known([0, 10], [0, 11]), None);
        assert_eq!(known([10, 0], [0, 0]), None);
        assert_eq!(known([0, 10], [5, 4]), None);
        assert!(beside([at(0), at(1)], None).get().is_err());
        let ends = (Timestamp::MIN, Timestamp::MAX);
        assert!(beside([at(0), at(1)], Some(ends)).get().is_err());
    }
}
