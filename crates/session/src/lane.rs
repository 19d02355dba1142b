//! One lane as the session sees it: free or busy, and what it carried.

use crate::{BufferId, LaneId, LaneStats};

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    /// The shell is sending something on it.
    pub(crate) busy: bool,
    /// The buffer that it receives into.
    pub(crate) receives_into: BufferId,
    /// Payload bytes given to it that the peer has not confirmed.
    pub(crate) unconfirmed_bytes: u64,
    /// A farewell was sent; nothing may follow.
    pub(crate) closing: bool,
    pub(crate) stats: LaneStats,
}

impl Lane {
    pub(crate) fn new(id: LaneId, receives_into: BufferId) -> Self {
        let stats = LaneStats {
            lane: id,
            up: true,
            ..LaneStats::default()
        };
        Self {
            id,
            busy: false,
            receives_into,
            unconfirmed_bytes: 0,
            closing: false,
            stats,
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        !self.busy && !self.closing
    }

    /// The smaller, the sooner this lane delivers: what it still has on the way comes first, then
    /// what it has carried so far, as an estimate of its speed.
    pub(crate) fn preference(&self) -> (u64, u64, LaneId) {
        (
            self.unconfirmed_bytes,
            u64::MAX - self.stats.confirmed_bytes,
            self.id,
        )
    }
}
