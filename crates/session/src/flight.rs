//! What was sent on one lane and is not known to have arrived, and what that tells of the lane: its
//! round trip, its rate, how long it has been silent.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ChannelId;
use crate::limits::{
    HEDGE_MARGIN, LATE, RATE_CHUNK_PART, RATE_INTERVAL, RATE_KEPT, UNMEASURED_RATE,
};

/// One frame that a receipt is expected for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// The chunk in it, if it is one.
    pub(crate) chunk: Option<(ChannelId, u64)>,
    /// Bytes of payload.
    pub(crate) bytes: u32,
    at: Duration,
    /// When its receipt was expected at the latest.
    due: Duration,
}

impl Sent {
    /// Whether its receipt is later than the lane was expected to take when it got it.
    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        now > self.due + HEDGE_MARGIN
    }
}

/// Smoothed round trip and its variation (RFC 6298), from handing a frame to the lane to its
/// receipt: what waits in the lane's socket is part of it.
#[derive(Debug, Default)]
struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
    shortest: Option<Duration>,
}

impl RoundTrip {
    fn sample(&mut self, sample: Duration) {
        let shortest = self
            .shortest
            .map_or(sample, |shortest| shortest.min(sample));
        self.shortest = Some(shortest);
        match &mut self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                let difference = smoothed.abs_diff(sample);
                self.variation = (self.variation * 3 + difference) / 4;
                *smoothed = (*smoothed * 7 + sample) / 8;
            }
        }
    }
}

/// Bytes that arrived per time in which something was under way.
#[derive(Debug, Default)]
struct Rate {
    bytes: u64,
    busy: Duration,
    smoothed: Option<u64>,
    measured_at: Duration,
}

impl Rate {
    fn arrived(&mut self, now: Duration, bytes: u64, busy: Duration) {
        self.bytes += bytes;
        self.busy += busy;
        if self.busy >= RATE_INTERVAL {
            let sample = per_second(self.bytes, self.busy);
            let smoothed = self.smoothed.map_or(sample, |old| (old + sample) / 2);
            self.smoothed = Some(smoothed.max(1));
            self.measured_at = now;
            self.bytes = 0;
            self.busy = Duration::ZERO;
        }
    }
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Time that `bytes` take at `rate` bytes per second.
pub(crate) fn time_at(rate: u64, bytes: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The frames of one lane on their way.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    sent: VecDeque<Sent>,
    /// Frames that the peer has taken.
    receipted: u64,
    bytes: u64,
    /// The last receipt that told something new.
    progress_at: Duration,
    /// Since when something has been under way.
    busy_since: Duration,
    round_trip: RoundTrip,
    rate: Rate,
}

impl Flight {
    pub(crate) fn launch(&mut self, now: Duration, chunk: Option<(ChannelId, u64)>, bytes: u32) {
        if self.sent.is_empty() {
            self.busy_since = now;
        }
        let due = now + self.due_within(now, u64::from(bytes)).unwrap_or(LATE);
        self.bytes += u64::from(bytes);
        self.sent.push_back(Sent {
            chunk,
            bytes,
            at: now,
            due,
        });
    }

    /// Longest time until the receipt for `extra` bytes that are sent now: that of what is queued, or
    /// what receipts take as a rule. `None` when nothing was measured lately.
    fn due_within(&self, now: Duration, extra: u64) -> Option<Duration> {
        let queued = time_at(self.rate(now)?, self.bytes + extra) + self.shortest();
        Some(queued.max(self.expected_delay()?))
    }

    /// The peer says that it has taken `frames` frames: how many of ours that are new. `None` when
    /// so many were never sent. `chunk`: the bytes of a chunk as a rule.
    pub(crate) fn receipt(&mut self, now: Duration, frames: u64, chunk: u32) -> Option<usize> {
        let new = usize::try_from(frames.saturating_sub(self.receipted)).ok()?;
        if new == 0 {
            return Some(0);
        }
        let last = self.sent.get(new - 1)?;
        self.round_trip.sample(now.saturating_sub(last.at));
        if let Some(busy) = self.busy_with_bulk(now, u64::from(chunk / RATE_CHUNK_PART)) {
            let bytes = self.sent.iter().take(new).map(|s| u64::from(s.bytes)).sum();
            self.rate.arrived(now, bytes, busy);
        }
        self.busy_since = now;
        self.progress_at = now;
        Some(new)
    }

    /// Since the last receipt, for how long the lane had enough to carry that it says something of its
    /// rate: less says how quick it is to answer.
    fn busy_with_bulk(&self, now: Duration, enough: u64) -> Option<Duration> {
        if self.bytes < enough {
            return None;
        }
        let large = self.sent.iter().find(|s| u64::from(s.bytes) >= enough);
        let first = large.or_else(|| self.sent.front())?;
        Some(now.saturating_sub(self.busy_since.max(first.at)))
    }

    /// The oldest frame, which was receipted.
    pub(crate) fn land(&mut self) -> Option<Sent> {
        let sent = self.sent.pop_front()?;
        self.receipted += 1;
        self.bytes -= u64::from(sent.bytes);
        Some(sent)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Payload bytes under way.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is under way, oldest first.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &Sent> {
        self.sent.iter()
    }

    /// When the oldest payload was sent that has no receipt yet.
    pub(crate) fn payload_since(&self) -> Option<Duration> {
        let oldest = self.sent.iter().find(|sent| sent.bytes > 0);
        oldest.map(|sent| sent.at)
    }

    /// Since when a receipt has been waited for without any progress.
    pub(crate) fn silent_since(&self) -> Option<Duration> {
        self.sent
            .front()
            .map(|oldest| oldest.at.max(self.progress_at))
    }

    /// When something was last sent or receipted.
    pub(crate) fn touched_at(&self) -> Duration {
        let sent = self.sent.back().map_or(Duration::ZERO, |newest| newest.at);
        sent.max(self.progress_at)
    }

    /// Longest time that a receipt takes as a rule; `None` before the first.
    pub(crate) fn expected_delay(&self) -> Option<Duration> {
        let smoothed = self.round_trip.smoothed?;
        Some(smoothed + self.round_trip.variation * 4)
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.round_trip.smoothed
    }

    pub(crate) fn shortest(&self) -> Duration {
        self.round_trip.shortest.unwrap_or(Duration::ZERO)
    }

    /// Measured bytes per second; `None` when nothing was measured lately.
    pub(crate) fn rate(&self, now: Duration) -> Option<u64> {
        let recent = now.saturating_sub(self.rate.measured_at) <= RATE_KEPT;
        self.rate.smoothed.filter(|_| recent || !self.is_empty())
    }

    /// When `extra` bytes would arrive if they were sent now, from now.
    pub(crate) fn arrival(&self, now: Duration, extra: u64) -> Duration {
        self.remaining(now, self.bytes + extra) + self.shortest() / 2
    }

    /// How long the first `bytes` of what is under way still take. A lane that stalls is not believed
    /// to go on at its old rate.
    pub(crate) fn remaining(&self, now: Duration, bytes: u64) -> Duration {
        let rate = self.rate(now).unwrap_or(UNMEASURED_RATE);
        let silent = self.silent_since();
        let stalled = silent.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        time_at(rate, bytes).max(stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u32 = 128 << 10;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_receipt_for_what_was_never_sent_is_refused() {
        let mut flight = Flight::default();
        flight.launch(ms(0), None, 0);
        assert_eq!(flight.receipt(ms(1), 2, CHUNK), None);
        assert_eq!(flight.receipt(ms(1), 1, CHUNK), Some(1));
        assert!(flight.land().is_some());
        assert_eq!(flight.receipt(ms(2), 1, CHUNK), Some(0));
    }

    #[test]
    fn the_rate_is_that_of_the_time_in_which_something_was_under_way() {
        let mut flight = Flight::default();
        for step in 0..20u64 {
            // 100 kB in each first 5 ms of 50 ms: 20 MB/s while busy.
            let at = ms(step * 50);
            flight.launch(at, None, 100_000);
            flight.receipt(at + ms(5), step + 1, CHUNK);
            flight.land();
        }
        assert_eq!(flight.rate(ms(1000)), Some(20_000_000));
        assert_eq!(flight.rate(ms(1000) + RATE_KEPT), None);
    }

    #[test]
    fn small_frames_say_nothing_of_the_rate() {
        let mut flight = Flight::default();
        for step in 0..20u64 {
            flight.launch(ms(step * 50), None, 200);
            flight.receipt(ms(step * 50 + 20), step + 1, CHUNK);
            flight.land();
        }
        assert_eq!(flight.rate(ms(1000)), None);
    }

    #[test]
    fn a_ping_ahead_of_a_chunk_does_not_make_the_lane_slower() {
        let mut flight = Flight::default();
        flight.launch(ms(0), None, 0);
        flight.launch(ms(19), None, CHUNK);
        flight.receipt(ms(20), 1, CHUNK);
        flight.land();
        assert_eq!(flight.rate(ms(20)), None);
        flight.receipt(ms(40), 2, CHUNK);
        flight.land();
        assert_eq!(flight.rate(ms(40)), Some(u64::from(CHUNK) * 1000 / 21));
    }

    #[test]
    fn silence_counts_from_the_last_progress_and_not_while_nothing_is_awaited() {
        let mut flight = Flight::default();
        assert_eq!(flight.silent_since(), None);
        flight.launch(ms(10), None, 1);
        flight.launch(ms(11), None, 1);
        assert_eq!(flight.silent_since(), Some(ms(10)));
        flight.receipt(ms(30), 1, CHUNK);
        flight.land();
        assert_eq!(flight.silent_since(), Some(ms(30)));
        flight.receipt(ms(31), 2, CHUNK);
        flight.land();
        assert_eq!(flight.silent_since(), None);
    }
}
