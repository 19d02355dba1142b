//! The limits that the relay of a guest that leaves holds, and the paths that they count for.

use drover_api::{EventKind, PathLimit};
use drover_carrier::HeldLimit;
use drover_types::Path;

use super::Outgoing;
use crate::sharing::Limits;

impl Outgoing {
    /// Has the relay hold these. What comes before there is one is told again at the next division.
    pub(super) fn hold(&mut self, limits: Limits) {
        if let Some(carrier) = &self.carrier {
            for (path, rate) in limits {
                carrier.limit(path, rate);
                self.lanes.limited(path, rate);
            }
        }
    }

    /// These are shown, and count when limits are divided, before a lane is opened on them.
    pub(super) fn joining(&mut self, paths: &[Path]) {
        if let Some(carrier) = &self.carrier {
            carrier.change_paths(|all| all.extend_from_slice(paths));
        }
        for path in paths {
            self.record(EventKind::PathJoined {
                path: path.id,
                source: path.source.interface.clone(),
                destination: path.destination.interface.clone(),
            });
        }
        self.show();
    }

    /// What the relay of an earlier agent holds, and goes on to hold.
    pub(super) fn held(&mut self, held: &[HeldLimit]) {
        for HeldLimit { path, rate } in held {
            self.lanes.limited(*path, Some(*rate));
        }
        let of_path = |held: &HeldLimit| {
            let rate = Some(held.rate);
            held.path.map(|path| PathLimit { path, rate })
        };
        let sharing = &self.link.context.sharing;
        let paths = held.iter().filter_map(of_path).collect();
        sharing.take_up(self.source.migration().id, paths);
        self.snapshot
            .send_modify(|snapshot| snapshot.is_whole = true);
    }
}
