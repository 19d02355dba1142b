//! What goes into a session and what comes out of it.

use std::time::Duration;

use drover_types::{ByteRate, PathId};
use drover_wire::{ByeCode, Frame};
use serde::{Deserialize, Serialize};

use crate::limits::USUAL_CHUNK_BYTES;
use crate::{BufferId, ChannelId, LaneId};

/// Who opens channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The source: QEMU connects to us, we number the channels.
    Opener,
    /// The destination: the peer's first chunk of a channel makes us connect to QEMU.
    Accepter,
}

/// What both ends agreed on, and who we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Who opens channels.
    pub role: Role,
    /// Size of a buffer and of the largest chunk, in bytes. Chunks are no larger than
    /// [`crate::limits::USUAL_CHUNK_BYTES`] unless every lane is quick.
    pub chunk_bytes: u32,
    /// Chunks of one direction of one channel that may be on their way.
    pub window: u16,
    /// Most channels that may be opened.
    pub channels_max: u16,
    /// So many of them, those that are opened first, go before the others: QEMU's main channel, and what comes before it.
    pub urgent: u16,
    /// Of these, so many before the last go with the others all the same: disks, which QEMU opens before its main channel.
    pub early_bulk: u16,
    /// How long to wait for a lane when the last one was lost. Zero: not at all.
    pub outage_limit: Duration,
}

impl Config {
    /// Whether a channel goes before the others.
    pub(crate) fn is_urgent(&self, channel: ChannelId) -> bool {
        let last = self.urgent.saturating_sub(1);
        let first_bulk = last.saturating_sub(self.early_bulk);
        channel < self.urgent && !(first_bulk..last).contains(&channel)
    }

    /// The most that is read for a chunk where lanes are not known to be quick.
    pub(crate) fn usual_chunk(&self) -> u32 {
        self.chunk_bytes.min(USUAL_CHUNK_BYTES)
    }
}

/// What happened outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// QEMU opened its next channel (opener only).
    ChannelOpened,
    /// The answer to [`Output::Read`]: `length` bytes are in `buffer`, at least 1.
    Read {
        /// The channel.
        channel: ChannelId,
        /// The buffer that was handed out.
        buffer: BufferId,
        /// Bytes in it.
        length: u32,
        /// They stand for what was read.
        reduced: bool,
    },
    /// The answer to [`Output::Read`]: QEMU will send nothing more on this channel.
    ReadEnded {
        /// The channel.
        channel: ChannelId,
        /// The buffer that was handed out.
        buffer: BufferId,
    },
    /// The local socket broke. Later [`Output::Write`]s of the channel are to be answered all the
    /// same, their bytes thrown away; a read that is asked for ends with [`Input::ReadEnded`].
    LocalBroke {
        /// The channel.
        channel: ChannelId,
    },
    /// The channel's oldest [`Output::Write`] is done.
    Written {
        /// The channel.
        channel: ChannelId,
    },
    /// A lane is connected.
    LaneUp {
        /// Its number, never used before in this session.
        lane: LaneId,
        /// The path that it runs over.
        path: PathId,
    },
    /// A lane is gone, and nothing touches its buffers any more.
    LaneDown {
        /// Its number.
        lane: LaneId,
    },
    /// This lane is no longer wanted: it carries what it has, and both ends close it
    /// ([`Output::CloseLane`]).
    RetireLane {
        /// Its number.
        lane: LaneId,
    },
    /// The lane's [`Output::Send`] is done.
    Sent {
        /// The lane.
        lane: LaneId,
    },
    /// A frame arrived; its payload is in the buffer that the lane received into.
    Received {
        /// The lane.
        lane: LaneId,
        /// The frame.
        frame: Frame,
    },
    /// Limits the payload that may be sent, or lifts the limit. The main channel is counted and
    /// never held up.
    Limit {
        /// On this path; `None`: on all together.
        path: Option<PathId>,
        /// The most; `None`: as much as goes.
        rate: Option<ByteRate>,
    },
    /// The deadline of [`Output::Wait`] has come.
    Tick,
    /// The agent ends the session: say so to the peer, then end.
    Close {
        /// What to tell the peer.
        code: ByeCode,
    },
}

/// What a writer is to do to a local socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// Write these bytes.
    Bytes {
        /// Where they are.
        buffer: BufferId,
        /// How many.
        length: u32,
        /// They stand for what is to be written.
        reduced: bool,
    },
    /// Write nothing more: half-close.
    End,
    /// Close both directions.
    Reset,
    /// Nothing: the channel begins.
    Begin,
}

/// What the shell is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Connect the next channel to QEMU (accepter only). Reads and writes that follow wait for it.
    Open {
        /// The channel.
        channel: ChannelId,
    },
    /// Read from the channel's local socket into this buffer; one at a time per channel.
    Read {
        /// The channel.
        channel: ChannelId,
        /// Where to.
        buffer: BufferId,
        /// The most to read, in bytes.
        most: u32,
        /// The number that the chunk will have.
        sequence: u64,
        /// Most of what the channel has on its way is at the peer and not yet with its QEMU: if there was no room before, it
        /// was not for want of lines.
        arrived: bool,
    },
    /// Write to the channel's local socket, in the order of these outputs; each is answered with
    /// [`Input::Written`].
    Write {
        /// The channel.
        channel: ChannelId,
        /// What.
        piece: Piece,
    },
    /// Send a frame, with the first `frame.payload_length()` bytes of the buffer; one at a time
    /// per lane, answered with [`Input::Sent`].
    Send {
        /// The lane.
        lane: LaneId,
        /// The frame.
        frame: Frame,
        /// Its payload.
        buffer: Option<BufferId>,
    },
    /// Receive the lane's next frame with its payload into this buffer.
    Receive {
        /// The lane.
        lane: LaneId,
        /// Where to.
        buffer: BufferId,
    },
    /// Close this lane: its last frame is sent, or the session's farewell.
    CloseLane {
        /// The lane.
        lane: LaneId,
    },
    /// Close this lane at once: its peer has been silent for so long. [`Input::LaneDown`] follows.
    DropLane {
        /// The lane.
        lane: LaneId,
        /// How long it has been silent.
        silent_for: Duration,
    },
    /// A lane is gone for so long that nothing is known of it any more, nor needs to be.
    ForgetLane {
        /// The lane.
        lane: LaneId,
    },
    /// No lane is left; the session waits for one.
    OutageBegan {
        /// When it ends the session.
        until: Duration,
    },
    /// There is a lane again.
    OutageEnded {
        /// How long there was none.
        lasted: Duration,
    },
    /// The session is over, once.
    Ended(End),
    /// Nothing to do until the next input, or [`Input::Tick`] at this time.
    Wait(Option<Duration>),
}

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum End {
    /// Every channel was closed by both QEMUs and everything delivered.
    Finished,
    /// No lane is left, and none came within the outage limit.
    LanesLost,
    /// The peer's agent ended it.
    PeerClosed(ByeCode),
    /// Our agent ended it.
    Closed(ByeCode),
    /// The peer broke the protocol.
    Violation(Violation),
}

/// How a peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum Violation {
    /// A channel that we did not open, or more than agreed.
    #[error("the peer sent on channel {channel}, which may not be open")]
    Channel {
        /// The channel.
        channel: ChannelId,
    },
    /// More than the window allows.
    #[error("the peer sent chunk {sequence} of channel {channel}, beyond the window")]
    BeyondWindow {
        /// The channel.
        channel: ChannelId,
        /// The chunk.
        sequence: u64,
    },
    /// A confirmation of what was never sent.
    #[error("the peer confirmed chunk {sequence} of channel {channel}, which was never sent")]
    Checkpoint {
        /// The channel.
        channel: ChannelId,
        /// The chunk.
        sequence: u64,
    },
    /// A receipt for what was never sent.
    #[error("the peer has receipted {frames} frames on lane {lane}, more than were sent")]
    Receipt {
        /// The lane.
        lane: LaneId,
        /// Frames that it claims.
        frames: u64,
    },
    /// A chunk larger than agreed.
    #[error("the peer sent a chunk of {length} bytes, more than agreed")]
    ChunkLength {
        /// Its length in bytes.
        length: u32,
    },
}

/// An input or a configuration that makes no sense here: the shell's mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A setting beyond its limit.
    #[error("a session cannot have {what} = {value}, 1 to {limit} are possible")]
    Config {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// More channels than agreed.
    #[error("QEMU opened more than the {limit} channels agreed on")]
    TooManyChannels {
        /// What was agreed.
        limit: u16,
    },
    /// An answer to nothing.
    #[error("channel {channel} answered what was not asked")]
    Channel {
        /// The channel.
        channel: ChannelId,
    },
    /// A lane that does not exist, or does already.
    #[error("lane {lane} is not in the state that the input says")]
    Lane {
        /// The lane.
        lane: LaneId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_wait_with_other_bulk_between_what_drives_qemu_and_its_main_channel() {
        let urgent = |urgent, early_bulk| {
            let config = Config {
                role: Role::Opener,
                chunk_bytes: 1,
                window: 1,
                channels_max: 8,
                urgent,
                early_bulk,
                outage_limit: Duration::ZERO,
            };
            let all = (0..6).filter(|channel| config.is_urgent(*channel));
            all.collect::<Vec<_>>()
        };
        assert_eq!(urgent(1, 0), [0]);
        assert_eq!(urgent(2, 0), [0, 1]);
        assert_eq!(urgent(4, 2), [0, 3]);
        assert_eq!(urgent(2, 1), [1]);
    }
}
