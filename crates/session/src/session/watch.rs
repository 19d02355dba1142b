//! Silence, receipts and limits: what is known of the lanes.

use std::time::Duration;

use drover_types::{ByteRate, PathId};

use super::{Phase, Session};
use crate::event::{Output, Violation};
use crate::lane::Lane;
use crate::limiter::Limiter;
use crate::limits::HEDGE_CHECK;
use crate::{ChannelId, LaneHealth, LaneId};

impl Session {
    /// Whether silence matters: not when we are leaving. It does after everything was delivered,
    /// since the peer may not know it yet.
    pub(super) fn watches(&self) -> bool {
        self.phase == Phase::Running
    }

    /// The peer has taken `frames` frames from this lane.
    pub(super) fn receipt(
        &mut self,
        now: Duration,
        lane: LaneId,
        frames: u64,
    ) -> Result<(), Violation> {
        let chunk = self.config.usual_chunk();
        let Some(state) = self.lanes.get_mut(&lane) else {
            return Ok(());
        };
        let new = state.flight.receipt(now, frames, chunk);
        let new = new.ok_or(Violation::Receipt { lane, frames })?;
        if new > 0 {
            state.clear(now);
        }
        let landed: Vec<_> = (0..new).filter_map(|_| state.flight.land()).collect();
        let bytes = landed.iter().map(|sent| u64::from(sent.bytes));
        state.stats.receipted_bytes += bytes.sum::<u64>();
        for sent in landed {
            let Some((channel, sequence)) = sent.chunk else {
                continue;
            };
            let outbound = &mut self.channels[usize::from(channel)].outbound;
            if let Some(order) = outbound.mark_received(sequence) {
                self.queue_of(channel).remove(&order);
            }
        }
        Ok(())
    }

    /// Suspects lanes that are silent, and drops those that stay so.
    pub(super) fn judge_lanes(&mut self, now: Duration) {
        if !self.watches() {
            return;
        }
        let judged = |lane: &Lane| (lane.id, lane.judge(now));
        let open = self.lanes.values().filter(|lane| !lane.closing);
        let worse: Vec<_> = open
            .filter(|lane| lane.judge(now) > lane.health)
            .map(judged)
            .collect();
        for (lane, health) in worse {
            self.distrust(now, lane, health);
        }
    }

    fn distrust(&mut self, now: Duration, lane: LaneId, health: LaneHealth) {
        let Some(state) = self.lanes.get_mut(&lane) else {
            return;
        };
        state.stats.suspicions += u32::from(state.health == LaneHealth::Up);
        state.health = health;
        if health == LaneHealth::Lost {
            state.closing = true;
            let since = state.flight.silent_since().unwrap_or(now);
            let silent_for = now.saturating_sub(since);
            self.outputs
                .push_back(Output::DropLane { lane, silent_for });
        }
        self.take_back(now, lane);
    }

    /// What this lane was to carry goes to the others; a checkpoint that it was to carry may be
    /// lost with it.
    pub(super) fn take_back(&mut self, now: Duration, lane: LaneId) {
        for channel in 0..self.channels.len() {
            let state = &mut self.channels[channel];
            state.inbound.announce_again(now);
            let lost = state.outbound.take_back(lane);
            let channel = channel as ChannelId;
            for (sequence, order) in lost {
                self.wait_for_lane(order, super::Waiting { channel, sequence });
            }
        }
    }

    pub(super) fn limit(&mut self, now: Duration, path: Option<PathId>, rate: Option<ByteRate>) {
        let limiter = match path {
            None => &mut self.limit,
            Some(path) => self.path_limits.entry(path).or_default(),
        };
        limiter.set(now, rate.map(|rate| rate.0));
    }

    fn limiters(&self, path: PathId) -> impl Iterator<Item = &Limiter> {
        std::iter::once(&self.limit).chain(self.path_limits.get(&path))
    }

    /// How large limits want chunks: as the path that may carry the most does, since what is too large
    /// for another goes there further apart. `None` where nothing is limited.
    pub(super) fn limited_chunk(&self) -> Option<u32> {
        let of_path = |path: PathId| self.path_limits.get(&path).and_then(Limiter::chunk);
        let trusted = self.lanes.values().filter(|lane| lane.is_trusted());
        let most = trusted.map(|lane| of_path(lane.path).unwrap_or(u32::MAX));
        let known = self.path_limits.values().filter_map(Limiter::chunk).max();
        let paths = known.map(|known| most.max().unwrap_or(known));
        [paths, self.limit.chunk()].into_iter().flatten().min()
    }

    pub(super) fn limits_allow(&self, now: Duration, path: PathId) -> bool {
        self.limiters(path).all(|limiter| limiter.allows(now))
    }

    pub(super) fn count_against_limits(&mut self, now: Duration, path: PathId, bytes: u64) {
        self.limit.sent(now, bytes);
        if let Some(limiter) = self.path_limits.get_mut(&path) {
            limiter.sent(now, bytes);
        }
    }

    /// When a lane wants to be looked at without an input.
    pub(super) fn lane_deadlines(&self, now: Duration) -> impl Iterator<Item = Duration> {
        let watched = self.watches();
        let lanes = self.lanes.values();
        let own = lanes.clone().filter_map(move |l| l.deadline(now, watched));
        let waits = !self.bulk.is_empty();
        let ready = lanes.filter(move |lane| waits && lane.is_free() && lane.is_trusted());
        let held_up =
            ready.filter_map(|lane| self.limiters(lane.path).filter_map(Limiter::next_at).max());
        own.chain(held_up).chain(self.hedge_deadline(now))
    }

    /// When an idle lane looks again whether another one is late.
    fn hedge_deadline(&self, now: Duration) -> Option<Duration> {
        let idle = |lane: &&Lane| lane.is_free() && lane.is_trusted() && lane.flight.is_empty();
        let idle = self.bulk.is_empty() && self.lanes.values().any(|lane| idle(&lane));
        let waiting = self.lanes.values().any(|lane| lane.flight.bytes() > 0);
        (idle && waiting).then_some(now + HEDGE_CHECK)
    }
}
