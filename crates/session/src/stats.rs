//! What a session carried, counted apart: effective, resent and protocol bytes.

use crate::{ChannelId, LaneId};

/// What one lane carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// The lane.
    pub lane: LaneId,
    /// It has not been lost.
    pub up: bool,
    /// Payload bytes sent on it for the first time.
    pub sent_bytes: u64,
    /// Payload bytes sent on it that an earlier lane had lost.
    pub resent_bytes: u64,
    /// Bytes of frame headers and checkpoints sent on it.
    pub protocol_bytes: u64,
    /// Payload bytes received on it, duplicates included.
    pub received_bytes: u64,
    /// Payload bytes sent on it that the peer has confirmed.
    pub confirmed_bytes: u64,
}

/// What one channel carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// The channel.
    pub channel: ChannelId,
    /// Bytes read from the local QEMU.
    pub read_bytes: u64,
    /// Of these, bytes that the far QEMU's socket took.
    pub confirmed_bytes: u64,
    /// Bytes written to the local QEMU.
    pub written_bytes: u64,
}

/// A snapshot of a session's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Every lane that the session ever had, lost ones included.
    pub lanes: Vec<LaneStats>,
    /// Every channel.
    pub channels: Vec<ChannelStats>,
    /// Chunks received more than once.
    pub duplicate_chunks: u64,
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
