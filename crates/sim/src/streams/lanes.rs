//! The lanes between the two sessions: they take their time, die, fall silent, slow down and return.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use drover_session::{BufferId, Input, LaneId};
use drover_types::PathId;
use drover_wire::Frame;

use super::{Event, Handed, Line, Side, World};

/// Frames in a hundred that find the receiving host busy.
const STALL_PERCENT: u64 = 3;

/// One direction of a lane: bytes take their time, order is kept.
pub(super) struct Direction {
    line: Line,
    /// When the line will have earned what it was given.
    free_at: Duration,
    /// When the peer has all that it was given.
    arrived_at: Duration,
}

impl Direction {
    fn new(line: Line) -> Self {
        Self {
            line,
            free_at: Duration::ZERO,
            arrived_at: Duration::ZERO,
        }
    }

    /// Takes a frame of `length` bytes; the peer's host takes `stall` longer than the line. When the
    /// socket has taken it, and when the peer has it.
    fn carry(&mut self, now: Duration, length: u64, stall: Duration) -> (Duration, Duration) {
        let time = |bytes: u64| Duration::from_nanos(self.line.nanos_per_byte * bytes);
        let rested = now.saturating_sub(time(self.line.burst_bytes));
        self.free_at = self.free_at.max(rested) + time(16 + length);
        let left = self.free_at.max(now);
        let taken = left.saturating_sub(time(self.line.socket_bytes)).max(now);
        self.arrived_at = self.arrived_at.max(left + self.line.latency + stall);
        (taken, self.arrived_at)
    }
}

pub(super) struct LaneState {
    pub(super) alive: bool,
    /// Bytes vanish, and nobody is told.
    pub(super) silent: bool,
    pub(super) directions: HashMap<Side, Direction>,
    pub(super) up: HashMap<Side, bool>,
    pub(super) receives_into: HashMap<Side, VecDeque<BufferId>>,
    pub(super) held_back: HashMap<Side, VecDeque<(Frame, Vec<u8>)>>,
}

#[allow(clippy::expect_used)]
impl World {
    pub(super) fn send(
        &mut self,
        side: Side,
        lane: LaneId,
        frame: Frame,
        buffer: Option<BufferId>,
    ) {
        let length = frame.payload_length() as usize;
        let payload = buffer.map_or_else(Vec::new, |b| self.end(side).memory[&b][..length].into());
        let (now, stall) = (self.now, self.stall());
        let Some(state) = self.lanes.get_mut(&lane).filter(|state| state.alive) else {
            return; // the lane's death is on its way to this end
        };
        if let (
            Side::Source,
            Frame::Chunk {
                channel, length, ..
            },
        ) = (side, &frame)
        {
            self.handed.push(Handed {
                at: now,
                lane,
                channel: *channel,
                bytes: *length,
            });
        }
        let direction = state
            .directions
            .get_mut(&side)
            .expect("both directions exist");
        let (sent, arrives) = direction.carry(now, length as u64, stall);
        let silent = state.silent;
        // A silent lane's socket takes what fits, and then blocks.
        if !silent || self.rng.chance(50) {
            self.at(sent, Event::SendDone { side, lane });
        }
        if silent {
            return;
        }
        self.at(
            arrives,
            Event::Arrives {
                to: side.peer(),
                lane,
                frame,
                payload,
            },
        );
    }

    /// What the receiving host's threads take before they run.
    fn stall(&mut self) -> Duration {
        let most = self.shape.stall.as_micros() as u64;
        // Nothing is drawn where there is none, so that seeds stay what they are.
        if most == 0 || !self.rng.chance(STALL_PERCENT) {
            return Duration::ZERO;
        }
        Duration::from_micros(self.rng.between(0, most))
    }

    /// Hands over what arrived, as far as there are buffers to receive into.
    pub(super) fn deliver(&mut self, side: Side, lane: LaneId) {
        loop {
            let state = self.lanes.get_mut(&lane).expect("the lane exists");
            let arrived = state.held_back.entry(side).or_default();
            let buffers = state.receives_into.entry(side).or_default();
            if arrived.is_empty() || buffers.is_empty() || !state.up[&side] {
                return;
            }
            let (frame, payload) = arrived.pop_front().expect("not empty");
            let buffer = buffers.pop_front().expect("not empty");
            self.end(side).memory.insert(buffer, payload);
            self.input(side, Input::Received { lane, frame });
        }
    }

    /// One of the lanes that carry.
    pub(super) fn victim(&mut self) -> Option<LaneId> {
        let alive = self.lanes.iter().filter(|(_, l)| l.alive && !l.silent);
        let alive: Vec<LaneId> = alive.map(|(id, _)| *id).collect();
        let last = (alive.len() as u64).checked_sub(1)?;
        Some(alive[self.rng.between(0, last) as usize])
    }

    pub(super) fn lane_falls_silent(&mut self) {
        if let Some(victim) = self.victim() {
            self.deaths += 1;
            self.lanes.get_mut(&victim).expect("it exists").silent = true;
        }
    }

    pub(super) fn lane_slows(&mut self) {
        if let Some(victim) = self.victim() {
            let lane = self.lanes.get_mut(&victim).expect("it exists");
            for direction in lane.directions.values_mut() {
                direction.line.nanos_per_byte *= 10;
            }
            self.slowed.push((self.now, victim));
        }
    }

    pub(super) fn lane_retires(&mut self) {
        let side = match self.rng.chance(50) {
            true => Side::Source,
            false => Side::Destination,
        };
        if let Some(lane) = self.victim().filter(|lane| self.lanes[lane].up[&side]) {
            self.input(side, Input::RetireLane { lane });
        }
    }

    pub(super) fn lane_dies(&mut self) {
        let Some(victim) = self.victim() else {
            return;
        };
        self.deaths += 1;
        self.kill(victim);
        if self.faults.lanes_return {
            self.after(0, 5000, Event::LaneUp);
        }
    }

    pub(super) fn kill(&mut self, lane: LaneId) {
        let state = self.lanes.get_mut(&lane).expect("the lane exists");
        if std::mem::replace(&mut state.alive, false) {
            for side in [Side::Source, Side::Destination] {
                self.after(0, 3000, Event::LaneDown { side, lane });
            }
        }
    }

    /// Both ends are done with a lane. Each may have retired another's last one: a path without a
    /// lane is dialled anew.
    pub(super) fn retired(&mut self, lane: LaneId) {
        self.kill(lane);
        if self.faults.lanes_return && !self.lanes.values().any(|lane| lane.alive) {
            self.after(0, 5000, Event::LaneUp);
        }
    }

    pub(super) fn lane_up(&mut self) {
        let lane = self.next_lane;
        self.next_lane += 1;
        let line = self.shape.line(&mut self.rng, lane);
        let both = [Side::Source, Side::Destination];
        let state = LaneState {
            alive: true,
            silent: false,
            directions: both
                .into_iter()
                .map(|side| (side, Direction::new(line)))
                .collect(),
            up: HashMap::from([(Side::Source, true), (Side::Destination, true)]),
            receives_into: HashMap::new(),
            held_back: HashMap::new(),
        };
        self.lanes.insert(lane, state);
        // Two paths, so that one can be limited.
        let path = PathId((lane % 2) as u16);
        self.input(Side::Destination, Input::LaneUp { lane, path });
        self.input(Side::Source, Input::LaneUp { lane, path });
    }
}
