//! One lane as the session sees it: free or busy, well or silent, and what it carried.

use std::time::Duration;

use drover_types::PathId;
use drover_wire::Frame;

use crate::flight::Flight;
use crate::limits::{
    HEARTBEAT, LANE_QUEUE_TIME, LOST_AFTER_MAX, LOST_AFTER_MIN, LOST_AFTER_UNMEASURED, LOST_DELAYS,
    PATIENCE_KEPT, PATIENCE_MAX, RECEIPT_INTERVAL, START_CREDIT_CHUNKS, SUSPECT_AFTER_MAX,
    SUSPECT_AFTER_MIN, SUSPECT_AFTER_UNMEASURED,
};
use crate::{BufferId, ChannelId, LaneHealth, LaneId, LaneStats};

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    pub(crate) path: PathId,
    /// The shell is sending something on it.
    pub(crate) busy: bool,
    /// The buffer that it receives into.
    pub(crate) receives_into: BufferId,
    /// A farewell was sent, or the shell was told to drop it; nothing may follow.
    pub(crate) closing: bool,
    pub(crate) health: LaneHealth,
    /// It is no longer wanted, by us or by the peer.
    pub(crate) retiring: bool,
    retire_sent: bool,
    retire_received: bool,
    /// What is on its way on it.
    pub(crate) flight: Flight,
    /// Channel of the chunk that it carried last.
    pub(crate) last_channel: ChannelId,
    /// Frames that arrived on it and count.
    received_frames: u64,
    receipt_due: Option<Duration>,
    receipt_sent_at: Duration,
    /// Factor on the time after which it is suspected: it was suspected wrongly before.
    patience: u32,
    /// When that was found out last.
    wronged_at: Duration,
    pub(crate) stats: LaneStats,
}

impl Lane {
    pub(crate) fn new(id: LaneId, path: PathId, receives_into: BufferId) -> Self {
        let stats = LaneStats {
            lane: id,
            ..LaneStats::default()
        };
        Self {
            id,
            path,
            busy: false,
            receives_into,
            closing: false,
            health: LaneHealth::Up,
            retiring: false,
            retire_sent: false,
            retire_received: false,
            flight: Flight::default(),
            last_channel: 0,
            received_frames: 0,
            receipt_due: None,
            receipt_sent_at: Duration::ZERO,
            patience: 1,
            wronged_at: Duration::ZERO,
            stats,
        }
    }

    /// Whether it can take a frame of any kind now.
    pub(crate) fn is_free(&self) -> bool {
        !self.busy && !self.closing
    }

    /// Whether chunks and checkpoints are given to it: the peer has answered on it, and lately.
    pub(crate) fn is_trusted(&self) -> bool {
        self.health == LaneHealth::Up
            && !self.closing
            && !self.retiring
            && self.flight.smoothed().is_some()
    }

    /// Payload bytes that may be on their way on it.
    pub(crate) fn credit(&self, now: Duration, chunk_bytes: u32) -> u64 {
        let chunk = u64::from(chunk_bytes);
        match self.flight.rate(now) {
            None => START_CREDIT_CHUNKS * chunk,
            Some(rate) => {
                let time = LANE_QUEUE_TIME + self.flight.shortest() * 2;
                let bytes = u128::from(rate) * time.as_micros() / 1_000_000;
                u64::try_from(bytes).unwrap_or(u64::MAX).max(2 * chunk)
            }
        }
    }

    /// Counts a frame that arrived.
    pub(crate) fn received(&mut self, now: Duration, frame: &Frame) {
        self.stats.received_bytes += u64::from(frame.payload_length());
        self.stats.small_only |= self.is_overtaken(now);
        if *frame == Frame::Retire {
            self.retiring = true;
            self.retire_received = true;
        }
        if frame.is_receipted() {
            self.received_frames += 1;
            let due = match frame {
                Frame::Ping | Frame::Retire => now,
                _ => now.max(self.receipt_sent_at + RECEIPT_INTERVAL),
            };
            self.receipt_due = Some(self.receipt_due.map_or(due, |at| at.min(due)));
        }
    }

    /// Whether something comes from the peer while nothing that is large got through: not what was on
    /// its way already when the payload was sent.
    fn is_overtaken(&self, now: Duration) -> bool {
        let nothing = self.stats.receipted_bytes + self.stats.received_bytes == 0;
        let since = self.flight.payload_since().filter(|_| nothing);
        let settled = self.flight.shortest().min(HEARTBEAT / 2);
        since.is_some_and(|since| now > since + settled)
    }

    /// The receipt to send now, if one is due; it counts as sent.
    pub(crate) fn next_receipt(&mut self, now: Duration) -> Option<Frame> {
        self.receipt_due.filter(|at| *at <= now)?;
        self.receipt_due = None;
        self.receipt_sent_at = now;
        Some(Frame::Receipt {
            frames: self.received_frames,
        })
    }

    /// The last frame, once everything else on it has arrived; it counts as sent.
    pub(crate) fn next_retire(&mut self) -> Option<Frame> {
        let due = self.retiring && !self.retire_sent && self.flight.is_empty();
        self.retire_sent |= due;
        due.then_some(Frame::Retire)
    }

    /// Both ends have given it their last frame, and each knows that the other has it.
    pub(crate) fn has_retired(&self) -> bool {
        let agreed = self.retire_sent && self.retire_received;
        agreed && self.is_free() && self.flight.is_empty() && self.receipt_due.is_none()
    }

    pub(crate) fn wants_ping(&self, now: Duration) -> bool {
        self.flight.is_empty() && now >= self.ping_due()
    }

    /// At once on a new lane, which is given nothing else before the peer answered.
    fn ping_due(&self) -> Duration {
        match self.flight.smoothed() {
            None => Duration::ZERO,
            Some(_) => self.flight.touched_at() + HEARTBEAT,
        }
    }

    fn suspect_after(&self, now: Duration) -> Duration {
        let expected = self.flight.expected_delay();
        let base = expected.map_or(SUSPECT_AFTER_UNMEASURED, |delay| {
            delay.clamp(SUSPECT_AFTER_MIN, SUSPECT_AFTER_MAX)
        });
        let patient = now.saturating_sub(self.wronged_at) < PATIENCE_KEPT;
        let patience = if patient { self.patience } else { 1 };
        (base * patience).min(SUSPECT_AFTER_MAX)
    }

    fn lost_after(&self) -> Duration {
        let expected = self.flight.expected_delay();
        expected.map_or(LOST_AFTER_UNMEASURED, |delay| {
            (delay * LOST_DELAYS).clamp(LOST_AFTER_MIN, LOST_AFTER_MAX)
        })
    }

    /// What its silence until `now` says of it.
    pub(crate) fn judge(&self, now: Duration) -> LaneHealth {
        match self.flight.silent_since() {
            Some(since) if now >= since + self.lost_after() => LaneHealth::Lost,
            Some(since) if now >= since + self.suspect_after(now) => LaneHealth::Suspect,
            _ => LaneHealth::Up,
        }
    }

    /// The lane made progress: if it was suspected, it was wrongly so, and gets more time.
    pub(crate) fn clear(&mut self, now: Duration) {
        if self.health == LaneHealth::Suspect {
            self.health = LaneHealth::Up;
            let again = now.saturating_sub(self.wronged_at) < PATIENCE_KEPT;
            self.patience = if again { self.patience * 2 } else { 2 }.min(PATIENCE_MAX);
            self.wronged_at = now;
        }
    }

    /// When it wants to be looked at again without an input: a receipt or ping to send, silence to
    /// judge. `watched`: whether silence matters.
    pub(crate) fn deadline(&self, now: Duration, watched: bool) -> Option<Duration> {
        if self.closing {
            return None;
        }
        let free = self.is_free();
        let receipt = self.receipt_due.filter(|_| free);
        let ping = (watched && free && self.flight.is_empty()).then(|| self.ping_due());
        let silence = self.flight.silent_since().filter(|_| watched).map(|since| {
            since
                + match self.health {
                    LaneHealth::Up => self.suspect_after(now),
                    _ => self.lost_after(),
                }
        });
        [receipt, ping, silence].into_iter().flatten().min()
    }

    /// The counters, with what the lane is like now.
    pub(crate) fn snapshot(&self, now: Duration, chunk_bytes: u32) -> LaneStats {
        LaneStats {
            health: self.health,
            round_trip: self.flight.smoothed(),
            rate: self.flight.rate(now),
            in_flight_bytes: self.flight.bytes(),
            credit_bytes: self.credit(now, chunk_bytes),
            ..self.stats
        }
    }
}
