//! Lanes of a relay: they join, are lost or no longer wanted, and are told of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_lanes::{Lane, TcpFacts};
use drover_session::{Input, LaneId, Session};
use drover_types::PathId;

use super::{Core, LaneNote, LanePort, Shared};
use crate::dialer::Use;
use crate::lane;
use crate::report::{Event, LaneEnd, LaneEnds};

impl Core {
    /// Makes both of a lane's threads end. The first reason is the one that counts.
    pub(super) fn end_lane(&mut self, id: LaneId, end: LaneEnd) {
        if let Some(note) = self.notes.get_mut(&id) {
            note.ended.get_or_insert(end);
        }
        if let Some(port) = self.lanes.remove(&id) {
            port.lane.shut_down();
        }
    }
}

impl Shared {
    /// What the kernel knows of the living lanes; asked without the lock, as each answer may wait for a
    /// write under way.
    pub(super) fn tcp_facts(&self) -> BTreeMap<LaneId, TcpFacts> {
        let living: Vec<(LaneId, Arc<Lane>)> = {
            let core = self.lock();
            let lanes = core.lanes.iter();
            lanes.map(|(id, port)| (*id, port.lane.clone())).collect()
        };
        let facts = |(id, lane): (LaneId, Arc<Lane>)| Some((id, lane.facts().ok()?));
        living.into_iter().filter_map(facts).collect()
    }

    pub(crate) fn add_lane(
        self: &Arc<Self>,
        id: LaneId,
        path: PathId,
        lane: Lane,
    ) -> Result<(), drover_session::Refused> {
        let now = self.now();
        let lane = Arc::new(lane);
        let mut core = self.lock();
        let refused = Err(drover_session::Refused::Lane { lane: id });
        if core.terminated || core.notes.contains_key(&id) {
            lane.shut_down();
            return refused;
        }
        let (send, receive) = match lane::start(self, id, &lane) {
            Ok(ports) => ports,
            Err(error) => {
                tracing::warn!(lane = id, %error, "cannot use a lane");
                lane.shut_down();
                return refused;
            }
        };
        core.lanes.insert(
            id,
            LanePort {
                lane: lane.clone(),
                send,
                receive,
            },
        );
        let ends = LaneEnds {
            local: lane.local(),
            peer: lane.peer(),
        };
        let ended = None;
        core.notes.insert(id, LaneNote { path, ends, ended });
        if let Err(refused) = core.session.handle(now, Input::LaneUp { lane: id, path }) {
            core.lanes.remove(&id);
            core.notes.remove(&id);
            lane.shut_down();
            return Err(refused);
        }
        self.route_and_release(core, now).call();
        Ok(())
    }

    /// One of a lane's threads cannot go on: its other thread is made to end, too.
    pub(crate) fn lane_failed(&self, id: LaneId, end: LaneEnd) {
        let mut core = self.lock();
        // While we close, the peer answers our farewell by closing, too.
        let end = if core.close_at.is_some() || core.session.retires(id) {
            LaneEnd::Closed
        } else {
            end
        };
        core.end_lane(id, end);
    }

    /// Every lane on a path is given up at once.
    pub(crate) fn drop_path(&self, path: PathId, reason: &str) {
        let on_path: Vec<LaneId> = {
            let core = self.lock();
            let lanes = core.lanes.keys().copied();
            let there = |id: &LaneId| core.notes.get(id).is_some_and(|note| note.path == path);
            lanes.filter(there).collect()
        };
        for id in on_path {
            self.lane_failed(id, LaneEnd::Lost(reason.to_owned()));
        }
    }

    /// Both of a lane's threads have ended.
    pub(crate) fn lane_gone(self: &Arc<Self>, id: LaneId) {
        let lost = {
            let core = self.lock();
            let Some(note) = core.notes.get(&id) else {
                return; // it was refused before the session knew of it
            };
            let expected = core.terminated || core.close_at.is_some();
            let used = || how_used(&core.session, id, self.now());
            (!expected).then(|| (note.path, note.ended.clone(), used()))
        };
        if let Some((path, Some(LaneEnd::Lost(reason)), used)) = lost {
            if let Some(dialer) = self.dialer.get() {
                dialer.lost(id, used, &reason);
            }
            self.tell(Event::LaneLost {
                lane: id,
                path,
                reason,
            });
        } else if let Some(dialer) = self.dialer.get() {
            dialer.retired(id);
        }
        self.step_or_end(Input::LaneDown { lane: id });
    }

    /// Payload that each path has carried either way, and whether something is on its way on it.
    pub(crate) fn carried(&self) -> BTreeMap<PathId, (u64, bool)> {
        let now = self.now();
        let core = self.lock();
        let stats = core.session.stats(now);
        let forgotten = stats.forgotten.iter().map(|sum| {
            let bytes = sum.receipted_bytes + sum.received_bytes;
            (sum.path, (bytes, false))
        });
        let mut carried: BTreeMap<PathId, (u64, bool)> = forgotten.collect();
        for lane in stats.lanes {
            if let Some(note) = core.notes.get(&lane.lane) {
                let (bytes, busy) = carried.entry(note.path).or_default();
                *bytes += lane.receipted_bytes + lane.received_bytes;
                *busy |= lane.in_flight_bytes > 0;
            }
        }
        carried
    }

    /// A path can do without this lane.
    pub(crate) fn retire(self: &Arc<Self>, lane: LaneId) {
        // It may be gone by itself.
        match self.try_step(Input::RetireLane { lane }) {
            Ok(errands) => errands.call(),
            Err(refused) => tracing::debug!(%refused, "not retired"),
        }
    }
}

/// What a lane was used for so far.
fn how_used(session: &Session, id: LaneId, now: Duration) -> Use {
    let stats = session.stats(now);
    let found = stats.lanes.iter().find(|lane| lane.lane == id);
    found.map_or_else(Use::default, |lane| Use {
        tried: lane.sent_bytes + lane.resent_bytes > 0,
        carried: lane.receipted_bytes + lane.received_bytes > 0,
        small_only: lane.small_only,
    })
}
