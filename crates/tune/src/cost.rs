//! What something costs a migration, in numbers.

use std::time::Duration;

use drover_types::{BitRate, Bytes};

/// The guest that costs are told for: what the field's own examples have.
const GUEST: Bytes = Bytes(64 << 30);

/// Of a line's rate, what is left for memory after headers and what was sent twice.
const OF_LINE: f64 = 0.9;

/// What it costs that a line has one rate and not the other.
pub fn of_rate(now: BitRate, could: BitRate) -> Option<String> {
    let (now, could) = (time(now)?, time(could)?);
    Some(format!(
        "a guest of {GUEST} crosses in {} instead of {}",
        shown(now),
        shown(could)
    ))
}

/// How long the guest takes over a line of that rate.
fn time(rate: BitRate) -> Option<Duration> {
    let bytes_a_second = rate.0 as f64 / 8.0 * OF_LINE;
    Duration::try_from_secs_f64(GUEST.0 as f64 / bytes_a_second).ok()
}

fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_line_costs_what_a_guest_takes_longer_and_one_without_a_rate_nothing_that_is_known()
    {
        let gbit = |n: u64| BitRate(n * 1_000_000_000);
        let told = of_rate(gbit(1), gbit(10)).unwrap();
        assert_eq!(told, "a guest of 64 GiB crosses in 11 min instead of 61 s");
        assert_eq!(of_rate(BitRate(0), gbit(10)), None);
    }
}
