//! What something costs a migration, in numbers.

use std::time::Duration;

use drover_types::{BitRate, Bytes};

/// The guest that costs are told for: what the field's own examples have.
const GUEST: Bytes = Bytes(64 << 30);

/// Of a line's rate, what is left for memory after headers and what was sent twice.
const OF_LINE: f64 = 0.9;

/// Round trips that what hangs on one is told for, in microseconds, where none was measured: hosts at one switch, and hosts with queues on
/// the way.
const ROUND_TRIPS: [u64; 2] = [200, 1000];

/// What IP and TCP, with its time stamps, take of a packet.
const HEADERS: u32 = 52;

/// The usual largest packet, in bits.
pub const PACKET_BITS: u64 = 1500 * 8;

/// A page of memory, one that is huge, and what a table has for either (x86-64).
const PAGES: [u64; 2] = [4 << 10, 2 << 20];
const ENTRY: u64 = 8;

/// Constant of the formula for periodic loss, the root of 3/2 (Mathis et al., 1997).
const MATHIS: f64 = 1.22;

/// What it costs that a line has one rate and not the other.
pub fn of_rate(now: BitRate, could: BitRate) -> Option<String> {
    let (now, could) = (time(now)?, time(could)?);
    Some(format!(
        "a guest of {GUEST} crosses in {} instead of {}",
        shown(now),
        shown(could)
    ))
}

/// What it costs that a connection has no more than that on its way; none where it fills the line in any case.
pub fn of_window(in_flight: Bytes, line: Option<BitRate>) -> Option<String> {
    let line = line.unwrap_or(BitRate(u64::MAX));
    let [near, far] = ROUND_TRIPS.map(|micros| {
        let bits = u128::from(in_flight.0) * 8 * 1_000_000 / u128::from(micros);
        BitRate(u64::try_from(bits).unwrap_or(u64::MAX))
    });
    let carries = if near < line {
        format!("{near} at most where a round trip takes 0.2 ms, and {far} where it takes 1 ms")
    } else if far < line {
        format!("{far} at most where a round trip takes 1 ms")
    } else {
        return None;
    };
    Some(format!("a connection carries {carries}"))
}

/// What it costs that packets have so many bytes and could have others; none where they carry nothing.
pub fn of_packets(now: u32, could: u32) -> Option<String> {
    let [now, could] = [now, could].map(packets_of_a_gib);
    Some(format!(
        "a GiB takes {} packets instead of {}",
        now?, could?
    ))
}

/// What it costs that RDMA sends so many bytes at a time and could send others; none where it sends none.
pub fn of_pieces(now: u32, could: u32) -> Option<String> {
    let [now, could] = [now, could].map(|bytes| (1_u64 << 30).checked_div(bytes.into()));
    Some(format!("a GiB takes {} pieces instead of {}", now?, could?))
}

/// What it costs that so many packets of a full line find a place and could others, in a word for how long they do.
pub fn of_places(now: u32, could: u32, line: BitRate) -> Option<String> {
    let [now, could] = [now, could].map(|places| {
        let micros = u64::from(places).saturating_mul(PACKET_BITS * 1_000_000);
        micros.checked_div(line.0)
    });
    Some(format!(
        "{line} fill all places in {} µs instead of {}",
        now?, could?
    ))
}

/// What it costs that so much memory is had by small pages.
pub fn of_small_pages(memory: Bytes) -> String {
    let [small, huge] = PAGES.map(|page| Bytes(memory.0.div_ceil(page) * ENTRY));
    format!("whoever reads it goes through {small} of tables instead of {huge}")
}

/// What it costs that one interrupt comes for so many packets of so many bytes; none where they carry nothing.
pub fn of_interrupts(packet: u32, for_each: u64) -> Option<String> {
    let interrupts = packets_of_a_gib(packet)?.div_ceil(for_each.max(1));
    Some(format!(
        "a GiB takes {interrupts} interrupts at a full line"
    ))
}

fn packets_of_a_gib(packet: u32) -> Option<u64> {
    let payload = u64::from(packet.checked_sub(HEADERS)?);
    (payload > 0).then(|| (1_u64 << 30).div_ceil(payload))
}

/// What one connection carries at most where that share of its packets is lost, in Mbit/s.
pub fn under_loss(micros: u64, packet: u32, share: f64) -> f64 {
    let seconds = micros.max(1) as f64 / 1e6;
    let segment = f64::from(packet.saturating_sub(HEADERS));
    segment * 8.0 * MATHIS / (seconds * share.sqrt()) / 1e6
}

/// What it costs that so many of all packets are lost, were they lost one by one; none where a connection fills the line in any case.
pub fn of_loss(packet: u32, lost: u64, all: u64, line: Option<BitRate>) -> Option<String> {
    if lost == 0 || all == 0 {
        return None;
    }
    let share = (lost as f64 / all as f64).min(1.0);
    let line = line.map_or(f64::INFINITY, |line| line.0 as f64 / 1e6);
    let [near, far] = ROUND_TRIPS.map(|micros| under_loss(micros, packet, share));
    let held = if near < line {
        format!(
            "some {near:.0} Mbit/s where a round trip takes 0.2 ms, and {far:.0} where it takes 1 ms"
        )
    } else if far < line {
        format!("some {far:.0} Mbit/s where a round trip takes 1 ms")
    } else {
        return None;
    };
    Some(format!("one by one, they hold a connection to {held}"))
}

/// What it costs that processors run at one rate, in kHz, and could at the other.
pub fn of_frequency(now: u64, could: u64) -> Option<String> {
    let ghz = |khz: u64| khz as f64 / 1e6;
    (now > 0 && could > now).then(|| {
        format!(
            "{:.1} GHz instead of {:.1}: what processors do takes up to {:.1} times as long",
            ghz(now),
            ghz(could),
            could as f64 / now as f64
        )
    })
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

    #[test]
    fn what_hangs_on_a_round_trip_is_told_for_a_short_and_a_long_one() {
        // 64 KiB: 2.6 Gbit/s and 524 Mbit/s.
        let told = of_window(Bytes(65_536), None).unwrap();
        assert_eq!(
            told,
            "a connection carries 2.6 Gbit/s at most where a round trip takes 0.2 ms, and 524.3 Mbit/s where it takes 1 ms"
        );
        // 1448 bytes x 8 x 1.22 / (200 us x the root of 10^-4).
        let told = of_loss(1500, 1, 10_000, None).unwrap();
        assert!(
            told.contains("some 7066 Mbit/s") && told.contains("and 1413 where"),
            "{told}"
        );
        assert_eq!(of_loss(1500, 0, 10, None), None);
    }

    #[test]
    fn a_window_costs_nothing_where_the_line_carries_no_more_with_a_larger_one() {
        let told = |gbit: u64| of_window(Bytes(65_536), Some(BitRate(gbit * 1_000_000_000)));
        assert_eq!(told(10), of_window(Bytes(65_536), None));
        let far = "a connection carries 524.3 Mbit/s at most where a round trip takes 1 ms";
        assert_eq!(told(1).as_deref(), Some(far));
        let slow = BitRate(100_000_000);
        assert_eq!(of_window(Bytes(65_536), Some(slow)), None);
    }

    #[test]
    fn loss_costs_nothing_where_the_line_carries_no_more_without_it() {
        let line = |gbit: u64| Some(BitRate(gbit * 1_000_000_000));
        let told = |gbit: u64| of_loss(1500, 1, 10_000, line(gbit));
        assert_eq!(told(10), of_loss(1500, 1, 10_000, None));
        let far = told(5).unwrap();
        assert!(far.ends_with("some 1413 Mbit/s where a round trip takes 1 ms"));
        assert_eq!(told(1), None);
    }

    #[test]
    fn what_is_smaller_than_it_could_be_is_told_by_how_much_more_of_it_there_is() {
        let told = of_pieces(1024, 4096);
        assert_eq!(
            told.as_deref(),
            Some("a GiB takes 1048576 pieces instead of 262144")
        );
        assert_eq!(of_pieces(0, 4096), None);
        // 512 x 12,000 bits.
        let told = of_places(512, 1024, BitRate(25_000_000_000));
        assert_eq!(
            told.as_deref(),
            Some("25 Gbit/s fill all places in 245 µs instead of 491")
        );
        assert_eq!(of_places(512, 1024, BitRate(0)), None);
        let told = of_interrupts(1500, 8);
        assert_eq!(
            told.as_deref(),
            Some("a GiB takes 92692 interrupts at a full line")
        );
        assert_eq!(of_interrupts(52, 8), None);
        assert_eq!(
            of_small_pages(Bytes(8 << 30)),
            "whoever reads it goes through 16 MiB of tables instead of 32 KiB"
        );
    }

    #[test]
    fn smaller_packets_and_slower_processors_are_told_by_how_much_more_they_take() {
        let told = of_packets(1500, 9000);
        assert_eq!(
            told.as_deref(),
            Some("a GiB takes 741535 packets instead of 119998")
        );
        assert_eq!((of_packets(52, 9000), of_packets(0, 9000)), (None, None));
        let told = of_frequency(1_200_000, 3_600_000).unwrap();
        assert_eq!(
            told,
            "1.2 GHz instead of 3.6: what processors do takes up to 3.0 times as long"
        );
        assert_eq!(of_frequency(3_600_000, 3_600_000), None);
    }
}
