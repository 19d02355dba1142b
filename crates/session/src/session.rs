//! The state machine.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use drover_types::PathId;
use drover_wire::limits::{CHANNELS_MAX, CHUNK_BYTES_MAX, LANES_MAX, WINDOW_CHUNKS_MAX};
use drover_wire::{ByeCode, ChunkFlags, Frame};

use crate::buffers::Buffers;
use crate::event::{Config, End, Input, Output, Refused, Role, Violation};
use crate::gone::Gone;
use crate::inbound::{Arrived, Inbound, Placed};
use crate::lane::Lane;
use crate::limiter::Limiter;
use crate::outbound::{Outbound, Retained};
use crate::{BufferId, ChannelId, ChannelStats, LaneHealth, LaneId, LaneStats, Stats};

mod schedule;
mod watch;

#[derive(Debug)]
struct Channel {
    outbound: Outbound,
    inbound: Inbound,
}

/// A chunk that waits for a lane.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    channel: ChannelId,
    sequence: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// No lane is left.
    Outage {
        since: Duration,
        /// When that ends the session.
        until: Duration,
    },
    /// Farewells are being sent.
    Closing(ByeCode),
    Ended,
}

/// One side of a session. See the crate's documentation.
#[derive(Debug)]
pub struct Session {
    config: Config,
    phase: Phase,
    channels: Vec<Channel>,
    lanes: BTreeMap<LaneId, Lane>,
    gone: Gone,
    /// Chunks of urgent channels that wait for a lane, by age.
    urgent: BTreeMap<u64, Waiting>,
    /// All other chunks that wait for a lane, by age.
    bulk: BTreeMap<u64, Waiting>,
    next_order: u64,
    buffers: Buffers,
    limit: Limiter,
    path_limits: BTreeMap<PathId, Limiter>,
    duplicate_chunks: u64,
    hedged_chunks: u64,
    outages: u32,
    finished: bool,
    outputs: VecDeque<Output>,
}

impl Session {
    /// A session without channels and lanes.
    ///
    /// # Errors
    /// [`Refused::Config`] for a setting of zero or beyond the protocol's limits.
    pub fn new(config: Config) -> Result<Self, Refused> {
        for (what, value, limit) in [
            (
                "chunk_bytes",
                u64::from(config.chunk_bytes),
                u64::from(CHUNK_BYTES_MAX),
            ),
            (
                "window",
                u64::from(config.window),
                u64::from(WINDOW_CHUNKS_MAX),
            ),
            (
                "channels_max",
                u64::from(config.channels_max),
                u64::from(CHANNELS_MAX),
            ),
        ] {
            if !(1..=limit).contains(&value) {
                return Err(Refused::Config { what, value, limit });
            }
        }
        Ok(Self {
            config,
            phase: Phase::Running,
            channels: Vec::new(),
            lanes: BTreeMap::new(),
            gone: Gone::default(),
            urgent: BTreeMap::new(),
            bulk: BTreeMap::new(),
            next_order: 0,
            buffers: Buffers::default(),
            limit: Limiter::default(),
            path_limits: BTreeMap::new(),
            duplicate_chunks: 0,
            hedged_chunks: 0,
            outages: 0,
            finished: false,
            outputs: VecDeque::new(),
        })
    }

    /// Takes one input in.
    ///
    /// # Errors
    /// [`Refused`] when the input contradicts what the session asked for; nothing has changed.
    pub fn handle(&mut self, now: Duration, input: Input) -> Result<(), Refused> {
        match input {
            Input::ChannelOpened => self.channel_opened()?,
            Input::Read {
                channel,
                buffer,
                length,
                reduced,
            } => self.read(channel, buffer, length, reduced)?,
            Input::ReadEnded { channel, buffer } => self.read_ended(channel, buffer)?,
            Input::LocalBroke { channel } => self.local_broke(channel)?,
            Input::Written { channel } => self.written(now, channel)?,
            Input::LaneUp { lane, path } => self.lane_up(now, lane, path)?,
            Input::LaneDown { lane } => self.lane_down(now, lane)?,
            Input::RetireLane { lane } => self.retire(lane)?,
            Input::Sent { lane } => self.sent(lane)?,
            Input::Received { lane, frame } => self.received(now, lane, frame)?,
            Input::Limit { path, rate } => self.limit(now, path, rate),
            Input::Tick => {}
            Input::Close { code } => self.close(code),
        }
        self.settle(now);
        Ok(())
    }

    /// The next thing to do; to be called until it is [`Output::Wait`].
    pub fn poll(&mut self, now: Duration) -> Output {
        self.outputs
            .pop_front()
            .unwrap_or_else(|| Output::Wait(self.deadline(now)))
    }

    /// The counters as they are now.
    #[must_use]
    pub fn stats(&self, now: Duration) -> Stats {
        let usual = self.config.usual_chunk();
        let live = self.lanes.values().map(|l| l.snapshot(now, usual));
        let mut lanes: Vec<LaneStats> = self.gone.lanes().chain(live).collect();
        lanes.sort_by_key(|lane| lane.lane);
        let channel_stats = |(channel, state): (usize, &Channel)| ChannelStats {
            channel: channel as ChannelId,
            read_bytes: state.outbound.read_bytes,
            confirmed_bytes: state.outbound.confirmed_bytes,
            written_bytes: state.inbound.written_bytes,
            resent_bytes: state.outbound.resent_bytes,
        };
        Stats {
            lanes,
            forgotten: self.gone.forgotten(),
            channels: self
                .channels
                .iter()
                .enumerate()
                .map(channel_stats)
                .collect(),
            duplicate_chunks: self.duplicate_chunks,
            hedged_chunks: self.hedged_chunks,
            outages: self.outages,
            buffers: self.buffers.made(),
        }
    }

    /// Buffers that are neither free nor a lane's to receive into: zero when all is delivered.
    #[must_use]
    pub fn buffers_held(&self) -> usize {
        self.buffers.made() as usize - self.buffers.free() - self.lanes.len()
    }

    /// Whether this lane is being closed because it is no longer wanted.
    #[must_use]
    pub fn retires(&self, lane: LaneId) -> bool {
        self.lanes.get(&lane).is_some_and(|lane| lane.retiring)
    }

    fn channel(&mut self, channel: ChannelId) -> Result<&mut Channel, Refused> {
        self.channels
            .get_mut(usize::from(channel))
            .ok_or(Refused::Channel { channel })
    }

    fn channel_opened(&mut self) -> Result<(), Refused> {
        let limit = self.config.channels_max;
        if self.config.role != Role::Opener || self.channels.len() >= usize::from(limit) {
            return Err(Refused::TooManyChannels { limit });
        }
        self.add_channel();
        Ok(())
    }

    fn add_channel(&mut self) -> ChannelId {
        let channel = self.channels.len() as ChannelId;
        let Config {
            chunk_bytes,
            window,
            ..
        } = self.config;
        let outbound = Outbound::new(self.config.usual_chunk(), chunk_bytes, window);
        self.channels.push(Channel {
            outbound,
            inbound: Inbound::default(),
        });
        self.enqueue(channel, ChunkFlags::OPEN, None, 0);
        channel
    }

    fn read(
        &mut self,
        channel: ChannelId,
        buffer: BufferId,
        length: u32,
        reduced: bool,
    ) -> Result<(), Refused> {
        let within = (1..=self.config.chunk_bytes).contains(&length);
        if !within || !self.channel(channel)?.outbound.read_answered() {
            return Err(Refused::Channel { channel });
        }
        if self.channel(channel)?.outbound.ended() {
            self.buffers.give(buffer);
        } else {
            let flags = if reduced {
                ChunkFlags::REDUCED
            } else {
                ChunkFlags::NONE
            };
            self.enqueue(channel, flags, Some(buffer), length);
        }
        Ok(())
    }

    fn read_ended(&mut self, channel: ChannelId, buffer: BufferId) -> Result<(), Refused> {
        if !self.channel(channel)?.outbound.read_answered() {
            return Err(Refused::Channel { channel });
        }
        self.buffers.give(buffer);
        if !self.channel(channel)?.outbound.ended() {
            self.enqueue(channel, ChunkFlags::END, None, 0);
        }
        Ok(())
    }

    /// A reset may follow an end: a QEMU that exits is first seen to send nothing more, and only
    /// then to take nothing more.
    fn local_broke(&mut self, channel: ChannelId) -> Result<(), Refused> {
        if !self.channel(channel)?.outbound.was_reset() {
            self.enqueue(channel, ChunkFlags::RESET, None, 0);
        }
        Ok(())
    }

    /// Numbers a chunk and puts it at the end of its queue.
    fn enqueue(
        &mut self,
        channel: ChannelId,
        flags: ChunkFlags,
        buffer: Option<BufferId>,
        length: u32,
    ) {
        let order = self.next_order;
        self.next_order += 1;
        let chunk = Retained {
            order,
            flags,
            length,
            buffer,
            lane: None,
            given_at: Duration::ZERO,
            resent: false,
            hedged: false,
            received: false,
        };
        let sequence = self.channels[usize::from(channel)].outbound.retain(chunk);
        self.wait_for_lane(order, Waiting { channel, sequence });
    }

    fn queue_of(&mut self, channel: ChannelId) -> &mut BTreeMap<u64, Waiting> {
        if self.config.is_urgent(channel) {
            &mut self.urgent
        } else {
            &mut self.bulk
        }
    }

    fn wait_for_lane(&mut self, order: u64, waiting: Waiting) {
        self.queue_of(waiting.channel).insert(order, waiting);
    }

    fn written(&mut self, now: Duration, channel: ChannelId) -> Result<(), Refused> {
        let window = self.config.window;
        let done = self.channel(channel)?.inbound.wrote(now, window);
        let done = done.ok_or(Refused::Channel { channel })?;
        if let Some(buffer) = done.buffer {
            self.buffers.give(buffer);
        }
        Ok(())
    }

    fn lane_up(&mut self, now: Duration, lane: LaneId, path: PathId) -> Result<(), Refused> {
        let known = self.lanes.contains_key(&lane) || self.gone.knows(lane);
        if known || self.lanes.len() >= usize::from(LANES_MAX) {
            return Err(Refused::Lane { lane });
        }
        let buffer = self.buffers.take();
        self.lanes.insert(lane, Lane::new(lane, path, buffer));
        self.outputs.push_back(Output::Receive { lane, buffer });
        if let Phase::Outage { since, .. } = self.phase {
            self.phase = Phase::Running;
            let lasted = now.saturating_sub(since);
            self.outputs.push_back(Output::OutageEnded { lasted });
        }
        Ok(())
    }

    fn lane_down(&mut self, now: Duration, lane: LaneId) -> Result<(), Refused> {
        let gone = self.lanes.remove(&lane).ok_or(Refused::Lane { lane })?;
        self.buffers.give(gone.receives_into);
        let last = LaneStats {
            health: if gone.retiring {
                LaneHealth::Retired
            } else {
                LaneHealth::Lost
            },
            round_trip: gone.flight.smoothed(),
            ..gone.stats
        };
        if let Some(lane) = self.gone.add(gone.path, last) {
            self.outputs.push_back(Output::ForgetLane { lane });
        }
        self.take_back(now, lane);
        if self.lanes.is_empty() && self.phase == Phase::Running {
            self.begin_outage(now);
        }
        Ok(())
    }

    fn begin_outage(&mut self, now: Duration) {
        let until = now + self.config.outage_limit;
        self.phase = Phase::Outage { since: now, until };
        if !self.finished && !self.config.outage_limit.is_zero() {
            self.outages += 1;
            self.outputs.push_back(Output::OutageBegan { until });
        }
    }

    fn retire(&mut self, lane: LaneId) -> Result<(), Refused> {
        let mut others = self.lanes.values().filter(|other| other.id != lane);
        let spare = others.any(Lane::is_trusted);
        let state = self.lanes.get_mut(&lane).ok_or(Refused::Lane { lane })?;
        // The last lane that carries stays.
        state.retiring |= spare;
        Ok(())
    }

    fn sent(&mut self, lane: LaneId) -> Result<(), Refused> {
        let state = self.lanes.get_mut(&lane).ok_or(Refused::Lane { lane })?;
        if !std::mem::replace(&mut state.busy, false) {
            return Err(Refused::Lane { lane });
        }
        if state.closing {
            self.outputs.push_back(Output::CloseLane { lane });
        }
        Ok(())
    }

    fn received(&mut self, now: Duration, lane: LaneId, frame: Frame) -> Result<(), Refused> {
        let state = self.lanes.get_mut(&lane).ok_or(Refused::Lane { lane })?;
        state.received(now, &frame);
        let taken = match frame {
            Frame::Chunk {
                channel,
                sequence,
                flags,
                length,
            } => self.chunk(now, lane, channel, sequence, flags, length),
            Frame::Checkpoint { channel, sequence } => {
                self.checkpoint(now, channel, sequence).map(|()| false)
            }
            Frame::Bye { code } => {
                self.end(End::PeerClosed(code));
                Ok(false)
            }
            Frame::Receipt { frames } => self.receipt(now, lane, frames).map(|()| false),
            Frame::Ping | Frame::Retire => Ok(false),
        };
        let buffer_taken = taken.unwrap_or_else(|violation| {
            self.end(End::Violation(violation));
            false
        });
        self.receive_next(lane, buffer_taken);
        Ok(())
    }

    /// Lets the lane receive its next frame, into a new buffer if the last one is kept.
    fn receive_next(&mut self, lane: LaneId, buffer_taken: bool) {
        let Some(state) = self.lanes.get_mut(&lane) else {
            return;
        };
        if buffer_taken {
            state.receives_into = self.buffers.take();
        }
        let buffer = state.receives_into;
        self.outputs.push_back(Output::Receive { lane, buffer });
    }

    /// Takes a chunk in; whether it keeps the lane's buffer.
    fn chunk(
        &mut self,
        now: Duration,
        lane: LaneId,
        channel: ChannelId,
        sequence: u64,
        flags: ChunkFlags,
        length: u32,
    ) -> Result<bool, Violation> {
        if length > self.config.chunk_bytes {
            return Err(Violation::ChunkLength { length });
        }
        self.open_up_to(channel)?;
        let lane_buffer = self.lanes.get(&lane).map(|state| state.receives_into);
        let buffer = lane_buffer.filter(|_| length > 0);
        let inbound = &mut self.channels[usize::from(channel)].inbound;
        match inbound.place(
            sequence,
            Arrived {
                flags,
                length,
                buffer,
            },
            self.config.window,
        ) {
            Placed::Kept => {}
            Placed::BeyondWindow => return Err(Violation::BeyondWindow { channel, sequence }),
            Placed::Duplicate => {
                // The peer sent it again, so our checkpoint did not reach it.
                inbound.announce_again(now);
                self.duplicate_chunks += 1;
                return Ok(false);
            }
        }
        while let Some(next) = inbound.next_in_order() {
            let piece = next.piece();
            self.outputs.push_back(Output::Write { channel, piece });
        }
        Ok(buffer.is_some())
    }

    /// Opens the channels up to and including `channel`, in QEMU's order.
    fn open_up_to(&mut self, channel: ChannelId) -> Result<(), Violation> {
        while self.channels.len() <= usize::from(channel) {
            if self.config.role != Role::Accepter || channel >= self.config.channels_max {
                return Err(Violation::Channel { channel });
            }
            let channel = self.add_channel();
            self.outputs.push_back(Output::Open { channel });
        }
        Ok(())
    }

    fn checkpoint(
        &mut self,
        now: Duration,
        channel: ChannelId,
        sequence: u64,
    ) -> Result<(), Violation> {
        let state = self.channels.get_mut(usize::from(channel));
        let state = state.ok_or(Violation::Channel { channel })?;
        let done = state.outbound.confirm(now, sequence);
        for chunk in done.ok_or(Violation::Checkpoint { channel, sequence })? {
            if chunk.lane.is_none() {
                self.queue_of(channel).remove(&chunk.order);
            }
            if let Some(buffer) = chunk.buffer {
                self.buffers.give(buffer);
            }
        }
        Ok(())
    }

    fn close(&mut self, code: ByeCode) {
        if matches!(self.phase, Phase::Running | Phase::Outage { .. }) {
            self.phase = Phase::Closing(code);
        }
    }

    fn end(&mut self, end: End) {
        if self.phase != Phase::Ended {
            self.phase = Phase::Ended;
            if !self.finished {
                self.outputs.push_back(Output::Ended(end));
            }
        }
    }

    /// Does what the new state allows: read, send, end.
    fn settle(&mut self, now: Duration) {
        match self.phase {
            Phase::Running => {
                self.ask_for_reads(now);
                self.judge_lanes(now);
                self.fill_lanes(now);
                self.check_finished();
            }
            Phase::Outage { until, .. } if now >= until => self.end(End::LanesLost),
            Phase::Outage { .. } => self.ask_for_reads(now),
            Phase::Closing(code) => self.say_bye(now, code),
            Phase::Ended => {}
        }
    }

    fn ask_for_reads(&mut self, now: Duration) {
        for channel in 0..self.channels.len() {
            let outbound = &mut self.channels[channel].outbound;
            if outbound.wants_read() {
                outbound.read_asked();
                let sequence = outbound.next_sequence();
                let arrived = outbound.most_arrived();
                let buffer = self.buffers.take();
                let channel = channel as ChannelId;
                let most = self.chunk_for(now, channel);
                self.outputs.push_back(Output::Read {
                    channel,
                    buffer,
                    most,
                    sequence,
                    arrived,
                });
            }
        }
    }

    fn check_finished(&mut self) {
        let closed = |c: &Channel| c.outbound.finished() && c.inbound.finished();
        if !self.finished && !self.channels.is_empty() && self.channels.iter().all(closed) {
            self.finished = true;
            self.outputs.push_back(Output::Ended(End::Finished));
        }
    }

    fn say_bye(&mut self, now: Duration, code: ByeCode) {
        let free: Vec<LaneId> = self
            .lanes
            .values()
            .filter(|lane| lane.is_free())
            .map(|lane| lane.id)
            .collect();
        for lane in free {
            if let Some(state) = self.lanes.get_mut(&lane) {
                state.closing = true;
            }
            self.send(now, lane, Frame::Bye { code }, None);
        }
        if self.lanes.is_empty() {
            self.end(End::Closed(code));
        }
    }

    fn deadline(&self, now: Duration) -> Option<Duration> {
        match self.phase {
            Phase::Running => {
                // Only a free lane can be woken for: a busy one looks by itself when it is done.
                let mut lanes = self.lanes.values();
                let free = lanes.any(|lane| lane.is_free() && lane.is_trusted());
                let channels = self.channels.iter();
                let due = channels.filter_map(|c| c.inbound.announce_at).min();
                let due = due.filter(|_| free);
                let deadlines = due.into_iter().chain(self.lane_deadlines(now));
                // What is due and was not done waits for a busy lane, not for the clock.
                deadlines.filter(|at| *at > now).min()
            }
            Phase::Outage { until, .. } => Some(until),
            Phase::Closing(_) | Phase::Ended => None,
        }
    }
}
