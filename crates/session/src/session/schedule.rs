//! Which lane sends what next.

use std::time::Duration;

use drover_wire::{Frame, HEADER_BYTES};

use super::{Session, Waiting};
use crate::flight::time_at;
use crate::limits::{CHUNK_TIME, FLOWLET_CHUNKS, HEDGE_MARGIN, HEDGE_SCAN, LATE, URGENT_SLACK};
use crate::{BufferId, ChannelId, LaneId};

/// The times from now in which the quickest lanes deliver.
#[derive(Debug, Clone, Copy)]
struct Best {
    /// A frame without payload.
    frame: Duration,
    /// A whole chunk.
    chunk: Duration,
}

impl Session {
    /// Gives each free lane its next frame, the quickest lane first.
    pub(super) fn fill_lanes(&mut self, now: Duration) {
        let mut free: Vec<(Duration, LaneId)> = self
            .lanes
            .values()
            .filter(|lane| lane.is_free())
            .map(|lane| (lane.flight.arrival(now, 0), lane.id))
            .collect();
        if free.is_empty() {
            return;
        }
        free.sort_unstable();
        let best = self.best(now);
        for (_, lane) in free {
            if let Some((frame, buffer)) = self.next_frame(now, lane, best) {
                self.send(now, lane, frame, buffer);
            } else {
                self.close_if_retired(lane);
            }
        }
    }

    /// How much a chunk of this channel may hold now. Those of urgent ones are not to be waited for,
    /// and of a limit a large one would take too much at once.
    pub(super) fn chunk_for(&self, now: Duration, channel: ChannelId) -> u32 {
        let largest = self.config.chunk_bytes;
        let quick = |rate| time_at(rate, u64::from(largest)) <= CHUNK_TIME;
        let trusted = self.lanes.values().filter(|lane| lane.is_trusted());
        let mut rates = trusted.map(|lane| lane.flight.rate(now)).peekable();
        // What a lane does that was not measured yet is not known.
        let all_quick = rates.peek().is_some() && rates.all(|rate| rate.is_some_and(quick));
        if let Some(limited) = self.limited_chunk() {
            limited.min(self.config.usual_chunk())
        } else if !self.config.is_urgent(channel) && all_quick {
            largest
        } else {
            self.config.usual_chunk()
        }
    }

    fn close_if_retired(&mut self, lane: LaneId) {
        if let Some(state) = self.lanes.get_mut(&lane).filter(|l| l.has_retired()) {
            state.closing = true;
            self.outputs.push_back(crate::Output::CloseLane { lane });
        }
    }

    /// The times in which the quickest lanes deliver; `None` when no lane is trusted.
    fn best(&self, now: Duration) -> Option<Best> {
        let trusted = self.lanes.values().filter(|lane| lane.is_trusted());
        let chunk = u64::from(self.config.usual_chunk());
        let times = trusted.map(|l| (l.flight.arrival(now, 0), l.flight.arrival(now, chunk)));
        times
            .reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)))
            .map(|(frame, chunk)| Best { frame, chunk })
    }

    /// What this lane sends next.
    fn next_frame(
        &mut self,
        now: Duration,
        lane: LaneId,
        best: Option<Best>,
    ) -> Option<(Frame, Option<BufferId>)> {
        let watched = self.watches();
        let state = self.lanes.get_mut(&lane)?;
        if let Some(frame) = state.next_receipt(now).or_else(|| state.next_retire()) {
            return Some((frame, None));
        }
        if let Some(best) = best.filter(|_| state.is_trusted()) {
            let quick = state.flight.arrival(now, 0) <= best.frame * 2 + URGENT_SLACK;
            if quick && let Some(checkpoint) = self.next_checkpoint(now) {
                return Some((checkpoint, None));
            }
            let next = quick.then(|| self.urgent.pop_first()).flatten();
            let next = next.map(|(_, waiting)| waiting);
            let next = next.or_else(|| self.next_bulk(now, lane, best.chunk));
            if let Some(waiting) = next.or_else(|| self.next_hedge(now, lane)) {
                return self.give(now, lane, waiting);
            }
        }
        let ping = watched && self.lanes.get(&lane)?.wants_ping(now);
        ping.then_some((Frame::Ping, None))
    }

    fn next_checkpoint(&mut self, now: Duration) -> Option<Frame> {
        let mut channels = self.channels.iter_mut().enumerate();
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        let (channel, state) = channels.find(|(_, state)| due(state.inbound.announce_at))?;
        let sequence = state.inbound.announce();
        Some(Frame::Checkpoint {
            channel: channel as ChannelId,
            sequence,
        })
    }

    /// The next bulk chunk for this lane, if it has credit, is not too late with it, and no limit
    /// holds it back. `best` is when the quickest lane would deliver it.
    fn next_bulk(&mut self, now: Duration, lane: LaneId, best: Duration) -> Option<Waiting> {
        let state = self.lanes.get(&lane)?;
        let (order, bytes) = self.candidate(state.last_channel)?;
        let flight = &state.flight;
        // Whatever its size, a lane may have one.
        let credit = state.credit(now, self.config.usual_chunk());
        let over = flight.bytes() > 0 && flight.bytes() + bytes > credit;
        let late = flight.arrival(now, bytes) > LATE.max(best * 4);
        // A lane that is idle and unmeasured is tried: an old rate says nothing of it.
        let untried = flight.is_empty() && flight.rate(now).is_none();
        if over || (late && !untried) || !self.limits_allow(now, state.path) {
            return None;
        }
        self.bulk.remove(&order)
    }

    /// The chunk that a lane which carried `channel` last would take: its place in the queue, and
    /// its size.
    fn candidate(&self, channel: ChannelId) -> Option<(u64, u64)> {
        let mut first = self.bulk.iter().take(FLOWLET_CHUNKS);
        let own = first.find(|(_, waiting)| waiting.channel == channel);
        let (order, waiting) = own.or_else(|| self.bulk.first_key_value())?;
        let outbound = &self.channels[usize::from(waiting.channel)].outbound;
        let chunk = outbound.get(waiting.sequence)?;
        Some((*order, u64::from(chunk.length)))
    }

    /// A chunk that is late on another lane, and that this idle one would deliver much sooner.
    fn next_hedge(&mut self, now: Duration, lane: LaneId) -> Option<Waiting> {
        let own = self.lanes.get(&lane)?;
        if !own.flight.is_empty() || !self.bulk.is_empty() || !self.limits_allow(now, own.path) {
            return None;
        }
        let found = self.late_chunk(now, lane)?;
        let state = self.channels.get_mut(usize::from(found.channel))?;
        state.outbound.get_mut(found.sequence)?.hedged = true;
        self.hedged_chunks += 1;
        Some(found)
    }

    fn late_chunk(&self, now: Duration, lane: LaneId) -> Option<Waiting> {
        let own = self.lanes.get(&lane)?;
        let others = self.lanes.values().filter(|other| other.id != lane);
        for other in others {
            let mut ahead = 0;
            for sent in other.flight.frames().take(HEDGE_SCAN) {
                ahead += u64::from(sent.bytes);
                let Some((channel, sequence)) = sent.chunk else {
                    continue;
                };
                let here = own.flight.arrival(now, u64::from(sent.bytes));
                let there = other.flight.remaining(now, ahead);
                let given = self.channels[usize::from(channel)].outbound.get(sequence);
                let sooner = there > here * 2 + HEDGE_MARGIN;
                // What only waits its turn is no more late than whatever would go there instead.
                let late = sent.is_overdue(now) || there > LATE;
                if sooner
                    && late
                    && given.is_some_and(|c| c.lane == Some(other.id) && !c.received && !c.hedged)
                {
                    return Some(Waiting { channel, sequence });
                }
            }
        }
        None
    }

    /// Marks a chunk as being on this lane and frames it.
    fn give(
        &mut self,
        now: Duration,
        lane: LaneId,
        waiting: Waiting,
    ) -> Option<(Frame, Option<BufferId>)> {
        let Waiting { channel, sequence } = waiting;
        let state = self.lanes.get_mut(&lane)?;
        let outbound = &mut self.channels[usize::from(channel)].outbound;
        let chunk = outbound.get_mut(sequence)?;
        let again = chunk.lane.is_some() || chunk.resent;
        chunk.resent = again;
        chunk.lane = Some(lane);
        chunk.given_at = now;
        let length = u64::from(chunk.length);
        state.last_channel = channel;
        let counter = if again {
            &mut state.stats.resent_bytes
        } else {
            &mut state.stats.sent_bytes
        };
        *counter += length;
        let path = state.path;
        let frame = Frame::Chunk {
            channel,
            sequence,
            flags: chunk.flags,
            length: chunk.length,
        };
        let buffer = chunk.buffer;
        outbound.resent_bytes += if again { length } else { 0 };
        self.count_against_limits(now, path, length);
        Some((frame, buffer))
    }

    /// Hands a frame to the lane.
    pub(super) fn send(
        &mut self,
        now: Duration,
        lane: LaneId,
        frame: Frame,
        buffer: Option<BufferId>,
    ) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.busy = true;
            state.stats.protocol_bytes += HEADER_BYTES as u64;
            if frame.is_receipted() {
                let chunk = match frame {
                    Frame::Chunk {
                        channel, sequence, ..
                    } => Some((channel, sequence)),
                    _ => None,
                };
                state.flight.launch(now, chunk, frame.payload_length());
            }
            let output = crate::Output::Send {
                lane,
                frame,
                buffer,
            };
            self.outputs.push_back(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_types::{ByteRate, PathId};

    use super::*;
    use crate::event::{Config, Input, Role};

    const NOW: Duration = Duration::from_millis(20);
    const QUICK: u64 = 300_000_000;
    const GIGABIT: u64 = 125_000_000;

    /// With two channels, and a lane that was measured at each of these rates.
    fn session(rates: &[u64]) -> Session {
        let config = Config {
            role: Role::Opener,
            chunk_bytes: 256 << 10,
            window: 16,
            channels_max: 2,
            urgent: 1,
            early_bulk: 0,
            outage_limit: Duration::ZERO,
        };
        let mut session = Session::new(config).unwrap();
        for (rate, lane) in rates.iter().zip(0..) {
            let path = PathId(0);
            session
                .handle(Duration::ZERO, Input::LaneUp { lane, path })
                .unwrap();
            let flight = &mut session.lanes.get_mut(&lane).unwrap().flight;
            *flight = crate::flight::Flight::default();
            flight.launch(Duration::ZERO, None, (rate / 50) as u32);
            assert_eq!(flight.receipt(NOW, 1, 128 << 10), Some(1));
            flight.land();
        }
        session
    }

    #[test]
    fn chunks_are_large_only_where_every_lane_is_measured_and_quick() {
        assert_eq!(session(&[QUICK, QUICK]).chunk_for(NOW, 1), 256 << 10);
        assert_eq!(session(&[QUICK, GIGABIT]).chunk_for(NOW, 1), 128 << 10);
        let mut joined = session(&[QUICK, QUICK]);
        let flight = &mut joined.lanes.get_mut(&1).unwrap().flight;
        *flight = crate::flight::Flight::default();
        flight.launch(Duration::ZERO, None, 16);
        assert_eq!(flight.receipt(NOW, 1, 16), Some(1));
        assert_eq!(
            joined.chunk_for(NOW, 1),
            128 << 10,
            "answered, not measured"
        );
        assert_eq!(session(&[]).chunk_for(NOW, 1), 128 << 10);
    }

    #[test]
    fn chunks_of_the_main_channel_and_of_limited_sessions_stay_small() {
        let mut session = session(&[QUICK]);
        assert_eq!(session.chunk_for(NOW, 0), 128 << 10);
        for (path, rate, chunk) in [
            (Some(PathId(0)), Some(QUICK), 128 << 10),
            (Some(PathId(0)), Some(187_500), 4 << 10),
            (Some(PathId(0)), Some(1_250_000), 25_000),
            (None, Some(500_000), 10_000),
            (Some(PathId(0)), None, 10_000),
            (None, None, 256 << 10),
        ] {
            let rate = rate.map(ByteRate);
            session.handle(NOW, Input::Limit { path, rate }).unwrap();
            assert_eq!(session.chunk_for(NOW, 1), chunk, "{path:?} {rate:?}");
        }
    }

    #[test]
    fn a_path_with_a_small_limit_does_not_make_the_chunks_of_quicker_ones_small() {
        let mut session = session(&[QUICK]);
        let (lane, path) = (1, PathId(1));
        session.handle(NOW, Input::LaneUp { lane, path }).unwrap();
        let flight = &mut session.lanes.get_mut(&lane).unwrap().flight;
        flight.launch(NOW, None, 16);
        assert_eq!(flight.receipt(NOW, 1, 16), Some(1));
        for (path, rate) in [(0, 50_000_000), (1, 125_000)] {
            let (path, rate) = (Some(PathId(path)), Some(ByteRate(rate)));
            session.handle(NOW, Input::Limit { path, rate }).unwrap();
        }
        assert_eq!(session.chunk_for(NOW, 1), 128 << 10);
    }
}
