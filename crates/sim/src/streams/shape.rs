//! How large a run is, and the lines that it has.

use std::ops::RangeInclusive;
use std::time::Duration;

use drover_session::LaneId;

use crate::limits::LINE_LATENCY;
use crate::rng::Rng;

/// The sizes of a run.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Channels that the source opens.
    pub channels: u16,
    /// Bytes of the main channel, in each direction.
    pub main_bytes: RangeInclusive<u64>,
    /// Bytes of each other channel.
    pub bulk_bytes: RangeInclusive<u64>,
    /// Largest chunk.
    pub chunk_bytes: u32,
    /// Chunks of one direction of one channel that may be on their way.
    pub window: u16,
    /// Lanes at the beginning.
    pub lanes: u64,
    /// The lines that they run over, from the first again when there are fewer; drawn when there
    /// are none.
    pub lines: Vec<Line>,
    /// Longest time for which a busy host does not take what arrived.
    pub stall: Duration,
}

/// The line of a lane, alike in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Time that a byte takes.
    pub nanos_per_byte: u64,
    /// Time until it is there.
    pub latency: Duration,
    /// Bytes that pass at once after a rest, as a shaper's bucket lets them.
    pub burst_bytes: u64,
    /// Bytes that the sender's socket takes before they have left.
    pub socket_bytes: u64,
}

impl Shape {
    /// A small one, with lines of any speed.
    pub(super) fn drawn(rng: &mut Rng) -> Self {
        Self {
            channels: rng.between(1, 5) as u16,
            main_bytes: 0..=3000,
            bulk_bytes: 0..=3000,
            chunk_bytes: rng.between(1, 64) as u32,
            window: rng.between(1, 12) as u16,
            lanes: rng.between(1, 6),
            lines: Vec::new(),
            stall: Duration::ZERO,
        }
    }

    pub(super) fn line(&self, rng: &mut Rng, lane: LaneId) -> Line {
        let number = (lane as usize).checked_rem(self.lines.len());
        number.map_or_else(|| Line::drawn(rng), |number| self.lines[number])
    }
}

impl Line {
    /// A line of this many megabits a second.
    #[must_use]
    pub fn megabits(rate: u64) -> Self {
        Self {
            nanos_per_byte: 8000 / rate,
            latency: LINE_LATENCY,
            burst_bytes: 0,
            socket_bytes: 256 << 10,
        }
    }

    fn drawn(rng: &mut Rng) -> Self {
        Self {
            nanos_per_byte: rng.between(10, 4000),
            latency: Duration::from_micros(rng.between(1, 3000)),
            burst_bytes: 0,
            socket_bytes: 0,
        }
    }
}
