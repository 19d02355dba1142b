//! What is known of a run when it has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_session::{End, LaneHealth, LaneId, Stats};

use super::{Side, World};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How the source's session ended, if it did.
    pub source: Option<End>,
    /// How the destination's session ended, if it did.
    pub destination: Option<End>,
    /// Bytes that QEMU gave to a session, by end and channel.
    pub read: BTreeMap<(Side, u16), Vec<u8>>,
    /// Bytes that a session gave to QEMU, by end and channel.
    pub written: BTreeMap<(Side, u16), Vec<u8>>,
    /// Local sockets that broke.
    pub broken: Vec<(Side, u16)>,
    /// Simulated time at the end.
    pub elapsed: Duration,
    /// Chunks that arrived more than once, both ends.
    pub duplicates: u64,
    /// Payload bytes sent again, both ends.
    pub resent: u64,
    /// Most buffers that either end used.
    pub buffers: u32,
    /// Buffers that windows and lanes allow at one end.
    pub buffers_allowed: u32,
    /// Buffers that were not given back by either end.
    pub buffers_held: usize,
    /// Lanes that died or fell silent.
    pub deaths: u32,
    /// Lanes that an end dropped for their silence.
    pub dropped: u32,
    /// Lanes that both ends closed because one no longer wanted them.
    pub retired: usize,
    /// Chunks sent on a second lane because the first was late, both ends.
    pub hedged: u64,
    /// Chunks that the source gave to a lane, in order.
    pub handed: Vec<Handed>,
    /// Lanes that slowed down, and when.
    pub slowed: Vec<(Duration, LaneId)>,
    /// Longest time from QEMU's write to the main channel at the source to the arrival of its chunk.
    pub main_delay: Duration,
}

/// A chunk that was given to a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handed {
    /// When.
    pub at: Duration,
    /// To which.
    pub lane: LaneId,
    /// Of which channel.
    pub channel: u16,
    /// Its payload.
    pub bytes: u32,
}

impl World {
    pub(super) fn report(self) -> Report {
        let now = self.now;
        let ends = self.ends.values();
        let stats: Vec<_> = ends.map(|end| end.session.stats(now)).collect();
        let resent = |s: &Stats| s.lanes.iter().map(|l| l.resent_bytes).sum::<u64>();
        let retired = |s: &Stats| {
            let lanes = s.lanes.iter();
            lanes.filter(|l| l.health == LaneHealth::Retired).count()
        };
        let broken = |side: Side| {
            let channels = self.ends[&side].broken.iter();
            channels
                .map(move |channel| (side, *channel))
                .collect::<Vec<_>>()
        };
        Report {
            source: self.ends[&Side::Source].ended,
            destination: self.ends[&Side::Destination].ended,
            broken: [broken(Side::Source), broken(Side::Destination)].concat(),
            read: self.read,
            written: self.written,
            elapsed: self.now,
            duplicates: stats.iter().map(|s| s.duplicate_chunks).sum(),
            resent: stats.iter().map(resent).sum(),
            // A window in each direction, a read under way; a buffer for each lane.
            buffers_allowed: u32::from(self.shape.channels)
                * (2 * u32::from(self.shape.window) + 1)
                + self.next_lane,
            buffers: stats.iter().map(|s| s.buffers).max().unwrap_or(0),
            buffers_held: self
                .ends
                .values()
                .map(|end| end.session.buffers_held())
                .sum(),
            deaths: self.deaths,
            dropped: self.dropped,
            retired: stats.iter().map(retired).sum::<usize>() / 2,
            hedged: stats.iter().map(|s| s.hedged_chunks).sum(),
            handed: self.handed,
            slowed: self.slowed,
            main_delay: self.main_delay,
        }
    }
}
