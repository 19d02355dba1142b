//! How the lanes that a session takes are divided among its paths.

use drover_session::LaneId;
use drover_wire::limits::LANES_MAX;

use super::{Plan, Time};
use crate::limits::ROOM_AGAIN;

impl Plan {
    /// The session takes no further lane.
    pub(super) fn is_full(&self) -> bool {
        let all: u16 = self.paths.values().map(|p| p.up + p.under_way).sum();
        all >= LANES_MAX
    }

    /// Most lanes on a path, so that all paths together stay within the session's bound. A dead one
    /// needs a single lane, to be dialled with.
    pub(super) fn most(&self) -> u16 {
        let (dead, living): (Vec<_>, Vec<_>) = self.paths.values().partition(|p| p.is_dead());
        let count = |paths: Vec<_>| u16::try_from(paths.len()).unwrap_or(LANES_MAX);
        (LANES_MAX.saturating_sub(count(dead)) / count(living).max(1)).max(1)
    }

    pub(super) fn waits_for_room(&self) -> bool {
        let most = self.most();
        self.is_full() && self.paths.values().any(|path| path.wants(most))
    }

    /// Lanes to retire: what paths have beyond their part of a full session while another waits for its
    /// own. They are named again after [`ROOM_AGAIN`], as the session keeps its last trusted lane.
    pub(crate) fn make_room(&mut self, now: Time) -> Vec<LaneId> {
        if now < self.room_due || !self.waits_for_room() {
            return Vec::new();
        }
        self.room_due = now + ROOM_AGAIN;
        let most = usize::from(self.most());
        let mut spare = Vec::new();
        for path in self.paths.keys() {
            let own = self.open.iter().filter(|(_, open)| open.path == *path);
            spare.extend(own.skip(most).map(|(lane, _)| *lane));
        }
        self.retiring.extend(&spare);
        spare
    }
}
