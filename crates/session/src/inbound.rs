//! One direction of a channel, at the end that writes it to QEMU.

use std::collections::VecDeque;
use std::time::Duration;

use drover_wire::ChunkFlags;

use crate::BufferId;
use crate::event::Piece;
use crate::limits::{CHECKPOINT_DELAY, CHECKPOINT_WINDOW_PART, CONTROL_CHUNKS};

/// A chunk that arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub(crate) flags: ChunkFlags,
    pub(crate) length: u32,
    pub(crate) buffer: Option<BufferId>,
}

impl Arrived {
    /// What the local socket's writer is to do with it.
    pub(crate) fn piece(self) -> Piece {
        match (self.flags, self.buffer) {
            (ChunkFlags::END, _) => Piece::End,
            (ChunkFlags::RESET, _) => Piece::Reset,
            (flags, Some(buffer)) => Piece::Bytes {
                buffer,
                length: self.length,
                reduced: flags == ChunkFlags::REDUCED,
            },
            (_, None) => Piece::Begin,
        }
    }
}

/// What became of a chunk that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It is kept; [`Inbound::next_in_order`] tells what can be written now.
    Kept,
    /// It was here before.
    Duplicate,
    /// The peer sent more than the window allows.
    BeyondWindow,
}

#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Number of the first chunk that was not handed to the local socket's writer.
    next: u64,
    /// What arrived from `next` on; `None` is a gap.
    waiting: VecDeque<Option<Arrived>>,
    /// Handed to the writer and not yet written, oldest first.
    writing: VecDeque<Arrived>,
    /// Number of the first chunk that the peer was not told to be written.
    announced: u64,
    /// When the peer must be told of what was written since.
    pub(crate) announce_at: Option<Duration>,
    ended: bool,
    /// Bytes written to the local socket.
    pub(crate) written_bytes: u64,
}

impl Inbound {
    /// Number of the first chunk that was not written.
    pub(crate) fn written(&self) -> u64 {
        self.next - self.writing.len() as u64
    }

    pub(crate) fn place(&mut self, sequence: u64, chunk: Arrived, window: u16) -> Placed {
        let Some(ahead) = sequence.checked_sub(self.next) else {
            return Placed::Duplicate;
        };
        if sequence - self.written() >= u64::from(window) + CONTROL_CHUNKS {
            return Placed::BeyondWindow;
        }
        let index = ahead as usize;
        if index >= self.waiting.len() {
            self.waiting.resize(index + 1, None);
        }
        if self.waiting[index].is_some() {
            return Placed::Duplicate;
        }
        self.waiting[index] = Some(chunk);
        Placed::Kept
    }

    /// The next chunk whose turn it is, if it is here; it counts as being written from now on.
    pub(crate) fn next_in_order(&mut self) -> Option<Arrived> {
        let chunk = (*self.waiting.front()?)?;
        self.waiting.pop_front();
        self.next += 1;
        self.writing.push_back(chunk);
        Some(chunk)
    }

    /// The writer is done with its oldest chunk, which is returned.
    pub(crate) fn wrote(&mut self, now: Duration, window: u16) -> Option<Arrived> {
        let chunk = self.writing.pop_front()?;
        self.written_bytes += u64::from(chunk.length);
        let last = chunk.flags == ChunkFlags::END || chunk.flags == ChunkFlags::RESET;
        self.ended |= last;
        let unannounced = self.written() - self.announced;
        let many = unannounced >= (u64::from(window) / CHECKPOINT_WINDOW_PART).max(1);
        let due = if many || last {
            now
        } else {
            now + CHECKPOINT_DELAY
        };
        self.announce_at = Some(self.announce_at.map_or(due, |at| at.min(due)));
        Some(chunk)
    }

    /// The peer must hear (again) how far writing got.
    pub(crate) fn announce_again(&mut self, now: Duration) {
        if self.written() > 0 {
            self.announce_at = Some(now);
        }
    }

    /// The checkpoint to send now; it counts as sent.
    pub(crate) fn announce(&mut self) -> u64 {
        self.announce_at = None;
        self.announced = self.written();
        self.announced
    }

    /// Everything arrived, was written, and the peer was told.
    pub(crate) fn finished(&self) -> bool {
        self.ended && self.announce_at.is_none()
    }
}
