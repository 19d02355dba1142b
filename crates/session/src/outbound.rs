//! One direction of a channel, at the end that reads it from QEMU.

use std::collections::VecDeque;
use std::time::Duration;

use drover_wire::ChunkFlags;

use crate::pace::Pace;
use crate::{BufferId, LaneId};

/// A chunk that the peer has not yet confirmed.
#[derive(Debug)]
pub(crate) struct Retained {
    /// When it was read, counted over all channels: the smaller, the older.
    pub(crate) order: u64,
    pub(crate) flags: ChunkFlags,
    pub(crate) length: u32,
    pub(crate) buffer: Option<BufferId>,
    /// The lane that it was last given to; `None` while it waits in the queue.
    pub(crate) lane: Option<LaneId>,
    /// When that lane got it.
    pub(crate) given_at: Duration,
    /// It was given to another lane before.
    pub(crate) resent: bool,
    /// It was given to a second lane because the first was late.
    pub(crate) hedged: bool,
    /// The peer's relay has it.
    pub(crate) received: bool,
}

#[derive(Debug)]
pub(crate) struct Outbound {
    window: u16,
    pace: Pace,
    /// Number of the oldest chunk in `retained`.
    confirmed: u64,
    retained: VecDeque<Retained>,
    /// Retained chunks that hold a buffer.
    with_buffer: u16,
    /// Bytes of retained chunks that the peer's relay has.
    received_bytes: u64,
    /// How many of the oldest retained chunks the peer's relay has without a gap, ...
    unbroken: usize,
    /// ... and their bytes.
    unbroken_bytes: u64,
    /// The shell was asked to read and has not answered.
    reading: bool,
    /// An end or reset was numbered; no bytes may follow.
    ended: bool,
    /// A reset was numbered; nothing may follow.
    was_reset: bool,
    /// Bytes read from the local socket.
    pub(crate) read_bytes: u64,
    /// Of these, bytes that the peer has confirmed.
    pub(crate) confirmed_bytes: u64,
    /// Bytes that were given to a lane again.
    pub(crate) resent_bytes: u64,
}

impl Outbound {
    /// Of chunks of at most `chunk_bytes`, as a rule `usual_bytes`, at most `window` may be on their
    /// way.
    pub(crate) fn new(usual_bytes: u32, chunk_bytes: u32, window: u16) -> Self {
        Self {
            window,
            pace: Pace::new(usual_bytes, u64::from(chunk_bytes) * u64::from(window)),
            confirmed: 0,
            retained: VecDeque::new(),
            with_buffer: 0,
            received_bytes: 0,
            unbroken: 0,
            unbroken_bytes: 0,
            reading: false,
            ended: false,
            was_reset: false,
            read_bytes: 0,
            confirmed_bytes: 0,
            resent_bytes: 0,
        }
    }

    /// The number that the next chunk gets.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.confirmed + self.retained.len() as u64
    }

    /// Whether the shell should be asked to read more.
    ///
    /// What the peer holds behind a gap does not count against the pace: it would make the fast
    /// lanes wait for a chunk on a slow one. The window bounds it.
    pub(crate) fn wants_read(&mut self) -> bool {
        let behind_a_gap = self.received_bytes - self.unbroken_bytes;
        let under_way = self.read_bytes - self.confirmed_bytes - behind_a_gap;
        !self.reading
            && !self.ended
            && self.pace.allows(under_way)
            && self.with_buffer < self.window
    }

    /// Whether the peer has most of what is on its way. Of what its QEMU has, it confirms a quarter of the window at once.
    pub(crate) fn most_arrived(&self) -> bool {
        self.received_bytes * 2 > self.read_bytes - self.confirmed_bytes
    }

    pub(crate) fn read_asked(&mut self) {
        self.reading = true;
    }

    /// The shell answered, with bytes or without. `false` when it had not been asked.
    pub(crate) fn read_answered(&mut self) -> bool {
        std::mem::replace(&mut self.reading, false)
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn was_reset(&self) -> bool {
        self.was_reset
    }

    /// Everything was read and confirmed.
    pub(crate) fn finished(&self) -> bool {
        self.ended && self.retained.is_empty()
    }

    /// Numbers a chunk and keeps it.
    pub(crate) fn retain(&mut self, chunk: Retained) -> u64 {
        let sequence = self.next_sequence();
        self.with_buffer += u16::from(chunk.buffer.is_some());
        self.read_bytes += u64::from(chunk.length);
        self.was_reset |= chunk.flags == ChunkFlags::RESET;
        self.ended |= self.was_reset || chunk.flags == ChunkFlags::END;
        self.retained.push_back(chunk);
        sequence
    }

    pub(crate) fn get(&self, sequence: u64) -> Option<&Retained> {
        let index = usize::try_from(sequence.checked_sub(self.confirmed)?).ok()?;
        self.retained.get(index)
    }

    pub(crate) fn get_mut(&mut self, sequence: u64) -> Option<&mut Retained> {
        let index = usize::try_from(sequence.checked_sub(self.confirmed)?).ok()?;
        self.retained.get_mut(index)
    }

    /// The peer has written everything before `sequence`: the chunks that are done with, oldest
    /// first. `None` when it confirms what was never sent.
    pub(crate) fn confirm(&mut self, now: Duration, sequence: u64) -> Option<Vec<Retained>> {
        if sequence > self.next_sequence() {
            return None;
        }
        let count = usize::try_from(sequence.saturating_sub(self.confirmed)).ok()?;
        let done: Vec<Retained> = self.retained.drain(..count).collect();
        self.confirmed += count as u64;
        for chunk in &done {
            let length = u64::from(chunk.length);
            self.with_buffer -= u16::from(chunk.buffer.is_some());
            self.confirmed_bytes += length;
            if chunk.received {
                self.received_bytes -= length;
            }
            if self.unbroken > 0 {
                self.unbroken -= 1;
                self.unbroken_bytes -= length;
            }
            let delay = now.saturating_sub(chunk.given_at);
            self.pace.confirmed(now, length, delay);
        }
        self.extend_unbroken();
        Some(done)
    }

    fn extend_unbroken(&mut self) {
        while let Some(chunk) = self.retained.get(self.unbroken).filter(|c| c.received) {
            self.unbroken_bytes += u64::from(chunk.length);
            self.unbroken += 1;
        }
    }

    /// The peer's relay has this chunk. Its place in the queue, if it waits there to be sent again.
    pub(crate) fn mark_received(&mut self, sequence: u64) -> Option<u64> {
        let chunk = self.get_mut(sequence).filter(|chunk| !chunk.received)?;
        chunk.received = true;
        let waits = chunk.lane.is_none().then_some(chunk.order);
        self.received_bytes += u64::from(chunk.length);
        self.extend_unbroken();
        waits
    }

    /// The chunks that `lane` was to carry and that have not arrived, oldest first, put back to
    /// waiting: their numbers and places in the order.
    pub(crate) fn take_back(&mut self, lane: LaneId) -> Vec<(u64, u64)> {
        let base = self.confirmed;
        let lost = self
            .retained
            .iter_mut()
            .zip(base..)
            .filter(|(c, _)| c.lane == Some(lane) && !c.received);
        lost.map(|(chunk, sequence)| {
            chunk.lane = None;
            chunk.resent = true;
            (sequence, chunk.order)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_has_arrived_when_the_peer_has_more_than_half_of_what_it_has_not_confirmed() {
        let mut outbound = Outbound::new(1000, 1000, 8);
        for order in 0..4 {
            outbound.retain(Retained {
                order,
                flags: ChunkFlags::NONE,
                length: 1000,
                buffer: None,
                lane: None,
                given_at: Duration::ZERO,
                resent: false,
                hedged: false,
                received: false,
            });
        }
        assert!(!outbound.most_arrived());
        for sequence in 0..3 {
            outbound.mark_received(sequence);
        }
        assert!(outbound.most_arrived());
        assert_eq!(
            outbound.confirm(Duration::ZERO, 3).map(|done| done.len()),
            Some(3)
        );
        assert!(!outbound.most_arrived());
    }
}
