//! What a session carried, counted apart: effective, resent and protocol bytes.

use std::time::Duration;

use drover_types::PathId;
use serde::{Deserialize, Serialize};

use crate::{ChannelId, LaneId};

/// What a session thinks of a lane.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum LaneHealth {
    /// It carries.
    #[default]
    Up,
    /// Its peer has been silent for longer than usual: it gets nothing more for now.
    Suspect,
    /// It is gone.
    Lost,
    /// It was no longer wanted.
    Retired,
}

/// What one lane carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneStats {
    /// The lane.
    pub lane: LaneId,
    /// What is thought of it.
    pub health: LaneHealth,
    /// Payload bytes sent on it for the first time.
    pub sent_bytes: u64,
    /// Payload bytes sent on it that another lane had been given before.
    pub resent_bytes: u64,
    /// Bytes of frame headers sent on it.
    pub protocol_bytes: u64,
    /// Payload bytes received on it, duplicates included.
    pub received_bytes: u64,
    /// Payload bytes sent on it that the peer's relay has taken from it.
    pub receipted_bytes: u64,
    /// Smoothed time from handing a frame to it to the receipt; `None` before the first.
    pub round_trip: Option<Duration>,
    /// Payload bytes per second while it had something to carry; `None` when not known.
    pub rate: Option<u64>,
    /// Payload bytes on their way on it.
    pub in_flight_bytes: u64,
    /// Payload bytes that may be on their way on it.
    pub credit_bytes: u64,
    /// How often it was suspected.
    pub suspicions: u32,
    /// Small frames of the peer went on coming while none of the payload got through.
    pub small_only: bool,
}

/// What the lanes of one path carried that are gone for so long that they are no longer told one by
/// one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenStats {
    /// The path.
    pub path: PathId,
    /// How many of them were lost, and not retired.
    pub lost_lanes: u64,
    /// As [`LaneStats::sent_bytes`].
    pub sent_bytes: u64,
    /// As [`LaneStats::resent_bytes`].
    pub resent_bytes: u64,
    /// As [`LaneStats::protocol_bytes`].
    pub protocol_bytes: u64,
    /// As [`LaneStats::received_bytes`].
    pub received_bytes: u64,
    /// As [`LaneStats::receipted_bytes`].
    pub receipted_bytes: u64,
    /// As [`LaneStats::suspicions`].
    pub suspicions: u64,
}

/// What one channel carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelStats {
    /// The channel.
    pub channel: ChannelId,
    /// Bytes read from the local QEMU.
    pub read_bytes: u64,
    /// Of these, bytes that the far QEMU's socket took.
    pub confirmed_bytes: u64,
    /// Bytes written to the local QEMU.
    pub written_bytes: u64,
    /// Bytes given to a lane again because the one before was lost or late.
    pub resent_bytes: u64,
}

/// A snapshot of a session's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Every lane that there is, and the last ones that are gone.
    pub lanes: Vec<LaneStats>,
    /// Those before them, by path.
    pub forgotten: Vec<ForgottenStats>,
    /// Every channel.
    pub channels: Vec<ChannelStats>,
    /// Chunks received more than once.
    pub duplicate_chunks: u64,
    /// Chunks sent on a second lane because the first was late.
    pub hedged_chunks: u64,
    /// Times without any lane.
    pub outages: u32,
    /// Most buffers in use at one time.
    pub buffers: u32,
}

impl Stats {
    /// Bytes of all channels that the far QEMU's sockets took.
    #[must_use]
    pub fn confirmed_bytes(&self) -> u64 {
        self.channels
            .iter()
            .map(|channel| channel.confirmed_bytes)
            .sum()
    }

    /// Bytes of all channels written to the local QEMU.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.channels
            .iter()
            .map(|channel| channel.written_bytes)
            .sum()
    }
}
