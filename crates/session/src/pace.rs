//! How many bytes of a channel may be on their way: enough to keep the lanes busy, no more.
//!
//! What is on its way when QEMU stops the guest adds to the downtime, and line rates that drivers
//! report are not what a path carries. So the window follows what was confirmed: the bytes of
//! [`limits::QUEUE_TIME`] at the measured rate, beside two of the shortest delays seen. It grows
//! only while it is what holds the channel back.

use std::time::Duration;

use crate::limits::{PACE_INTERVAL, PACE_SHRINK, PACE_START_CHUNKS, QUEUE_TIME};

#[derive(Debug)]
pub(crate) struct Pace {
    chunk_bytes: u64,
    most: u64,
    limit: u64,
    since: Duration,
    confirmed: u64,
    held_back: bool,
    shortest_delay: Option<Duration>,
}

impl Pace {
    /// Beginning with chunks of `chunk_bytes`; never more than `most` bytes.
    pub(crate) fn new(chunk_bytes: u32, most: u64) -> Self {
        let chunk_bytes = u64::from(chunk_bytes);
        Self {
            chunk_bytes,
            most,
            limit: (PACE_START_CHUNKS * chunk_bytes).min(most),
            since: Duration::ZERO,
            confirmed: 0,
            held_back: false,
            shortest_delay: None,
        }
    }

    /// Whether more may be read while `unconfirmed` bytes are on their way.
    pub(crate) fn allows(&mut self, unconfirmed: u64) -> bool {
        let allowed = unconfirmed < self.limit;
        self.held_back |= !allowed;
        allowed
    }

    /// `bytes` were confirmed `delay` after a lane got them.
    pub(crate) fn confirmed(&mut self, now: Duration, bytes: u64, delay: Duration) {
        self.confirmed += bytes;
        let shortest = self
            .shortest_delay
            .map_or(delay, |shortest| shortest.min(delay));
        self.shortest_delay = Some(shortest);
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= PACE_INTERVAL.max(shortest) {
            self.adjust(elapsed, shortest);
            self.since = now;
            self.confirmed = 0;
            self.held_back = false;
        }
    }

    fn adjust(&mut self, elapsed: Duration, shortest: Duration) {
        if !self.held_back {
            return; // QEMU had no more to give: this tells nothing of the lanes
        }
        let time = QUEUE_TIME + shortest * 2;
        let wanted = u128::from(self.confirmed) * time.as_micros() / elapsed.as_micros().max(1);
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        let floor = PACE_SHRINK.0 * self.limit / PACE_SHRINK.1;
        let least = (PACE_START_CHUNKS * self.chunk_bytes).min(self.most);
        self.limit = wanted.max(floor).clamp(least, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u32 = 256 << 10;

    /// A line of this rate that queues what it is given, for two seconds: the limit at the end.
    fn settle(bytes_per_ms: u64, round_trip: Duration) -> (u64, u64) {
        let mut pace = Pace::new(CHUNK, 256 * u64::from(CHUNK));
        let mut carried = 0;
        for ms in 0..2000 {
            let now = Duration::from_millis(ms);
            pace.allows(u64::MAX);
            // What fits the window crosses once in a round trip, at most at the line's rate.
            let by_window = pace.limit * 1000 / round_trip.as_micros() as u64;
            let rate = bytes_per_ms.min(by_window);
            let delay = round_trip.max(Duration::from_micros(pace.limit * 1000 / rate.max(1)));
            pace.confirmed(now, rate, delay);
            carried += rate;
        }
        (pace.limit, carried)
    }

    #[test]
    fn the_window_holds_the_queue_time_of_the_line_whatever_the_driver_said() {
        let (limit, _) = settle(125_000, Duration::from_micros(200));
        let queue = 125_000 * QUEUE_TIME.as_millis() as u64;
        assert!((queue..queue * 3).contains(&limit), "{limit} for {queue}");
    }

    #[test]
    fn a_long_path_is_filled_too() {
        let (_, carried) = settle(125_000, Duration::from_millis(40));
        assert!(carried > 125_000 * 2000 * 8 / 10, "{carried}");
    }

    #[test]
    fn a_channel_that_qemu_does_not_fill_keeps_its_window() {
        let mut pace = Pace::new(CHUNK, 64 * u64::from(CHUNK));
        let before = pace.limit;
        for ms in 0..500 {
            assert!(pace.allows(0));
            pace.confirmed(Duration::from_millis(ms), 10, Duration::from_millis(1));
        }
        assert_eq!(pace.limit, before);
    }
}
