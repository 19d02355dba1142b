//! Two sessions, the QEMUs beside them and the lanes between them.
//!
//! ```text
//!  scripted bytes -> session A -> lanes that delay, die and return -> session B -> written bytes
//!                      <- the return path, the same way <-
//! ```

use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use drover_session::{BufferId, Config, End, Input, LaneId, Output, Piece, Role, Session};
use drover_wire::Frame;

use crate::limits::OUTAGE_LIMIT;
use crate::rng::Rng;

mod lanes;
mod report;
mod shape;

use lanes::LaneState;
pub use report::{Handed, Report};
pub use shape::{Line, Shape};

/// What may go wrong in a run.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// Lanes that die, in order; each takes what is under way on it.
    pub lane_deaths: u32,
    /// Whether a lane that died comes back as a new one.
    pub lanes_return: bool,
    /// Lanes that fall silent, in order: what is under way is lost, and neither end is told.
    pub lanes_silent: u32,
    /// Lanes that become ten times slower, in order.
    pub lanes_slow: u32,
    /// Lanes that one of the ends no longer wants, in order.
    pub lanes_retire: u32,
    /// Percentage of runs' channels whose far QEMU closes its socket early.
    pub local_breaks: bool,
    /// How long the sessions wait for a lane.
    pub outage_limit: Duration,
}

/// Nothing goes wrong.
pub const CALM: Faults = Faults {
    lane_deaths: 0,
    lanes_return: false,
    lanes_silent: 0,
    lanes_slow: 0,
    lanes_retire: 0,
    local_breaks: false,
    outage_limit: OUTAGE_LIMIT,
};

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The opener.
    Source,
    /// The accepter.
    Destination,
}

impl Side {
    /// The other one.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// More events than any run of these sizes needs: a run that reaches it makes no progress.
const EVENTS_MAX: u32 = 2_000_000;

#[derive(Debug)]
enum Event {
    Tick(Side),
    ChannelOpens,
    ReadReady {
        side: Side,
        channel: u16,
        buffer: BufferId,
        most: u32,
    },
    WriteDone {
        side: Side,
        channel: u16,
    },
    SendDone {
        side: Side,
        lane: LaneId,
    },
    Arrives {
        to: Side,
        lane: LaneId,
        frame: Frame,
        payload: Vec<u8>,
    },
    LaneDies,
    LaneFallsSilent,
    LaneSlows,
    LaneRetires,
    LaneDown {
        side: Side,
        lane: LaneId,
    },
    LaneUp,
    LocalBreaks {
        side: Side,
        channel: u16,
    },
}

struct Scheduled {
    at: Duration,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

struct End2 {
    session: Session,
    memory: HashMap<BufferId, Vec<u8>>,
    script: BTreeMap<u16, VecDeque<u8>>,
    writing: BTreeMap<u16, VecDeque<Piece>>,
    ended: Option<End>,
    broken: Vec<u16>,
    /// The deadline that the session has named.
    wakes_at: Option<Duration>,
}

/// A run in progress.
struct World {
    rng: Rng,
    now: Duration,
    number: u64,
    events: BinaryHeap<Scheduled>,
    ends: HashMap<Side, End2>,
    lanes: BTreeMap<LaneId, LaneState>,
    next_lane: LaneId,
    faults: Faults,
    deaths: u32,
    dropped: u32,
    read: BTreeMap<(Side, u16), Vec<u8>>,
    written: BTreeMap<(Side, u16), Vec<u8>>,
    handed: Vec<Handed>,
    slowed: Vec<(Duration, LaneId)>,
    /// When chunks of the source's main channel that have not arrived were read, by their numbers.
    main_reads: BTreeMap<u64, Duration>,
    main_chunks: u64,
    main_delay: Duration,
    shape: Shape,
}

/// Runs one simulated session of random sizes over random lines to its end.
///
/// # Panics
/// As [`run_shaped`].
#[must_use]
pub fn run(seed: u64, faults: Faults) -> Report {
    let mut rng = Rng::new(seed);
    let shape = Shape::drawn(&mut rng);
    simulate(seed, rng, shape, faults)
}

/// Runs one simulated session of these sizes to its end.
///
/// # Panics
/// When a session refuses an input that follows its own outputs, or a run does not end: a bug in
/// the session or in this simulation.
#[must_use]
pub fn run_shaped(seed: u64, shape: Shape, faults: Faults) -> Report {
    simulate(seed, Rng::new(seed), shape, faults)
}

#[allow(clippy::expect_used, clippy::panic)]
fn simulate(seed: u64, rng: Rng, shape: Shape, faults: Faults) -> Report {
    let mut world = World::new(rng, shape, faults);
    let mut count = 0;
    while let Some(Scheduled { at, event, .. }) = world.events.pop() {
        count += 1;
        assert!(count < EVENTS_MAX, "seed {seed}: the run does not end");
        world.now = world.now.max(at);
        world.apply(event);
        if world.ends.values().all(|end| end.ended.is_some()) {
            break;
        }
    }
    world.report()
}

#[allow(clippy::expect_used)]
impl World {
    fn new(mut rng: Rng, shape: Shape, faults: Faults) -> Self {
        let channels = shape.channels;
        let config = |role| Config {
            role,
            chunk_bytes: shape.chunk_bytes,
            window: shape.window,
            channels_max: channels,
            urgent: 1,
            early_bulk: 0,
            outage_limit: faults.outage_limit,
        };
        let mut end = |role, side: Side| {
            let mut script = BTreeMap::new();
            for channel in 0..channels {
                // Only the main channel carries something back.
                let silent = side == Side::Destination && channel > 0;
                let length = if silent {
                    0
                } else {
                    let main = channel == 0;
                    let bytes = if main {
                        &shape.main_bytes
                    } else {
                        &shape.bulk_bytes
                    };
                    rng.between(*bytes.start(), *bytes.end()) as usize
                };
                script.insert(channel, rng.bytes(length).into());
            }
            End2 {
                session: Session::new(config(role)).expect("sizes are within limits"),
                memory: HashMap::new(),
                script,
                writing: BTreeMap::new(),
                ended: None,
                broken: Vec::new(),
                wakes_at: None,
            }
        };
        let source = end(Role::Opener, Side::Source);
        let destination = end(Role::Accepter, Side::Destination);
        let mut world = Self {
            rng,
            now: Duration::ZERO,
            number: 0,
            events: BinaryHeap::new(),
            ends: HashMap::from([(Side::Source, source), (Side::Destination, destination)]),
            lanes: BTreeMap::new(),
            next_lane: 0,
            faults,
            deaths: 0,
            dropped: 0,
            read: BTreeMap::new(),
            written: BTreeMap::new(),
            handed: Vec::new(),
            slowed: Vec::new(),
            main_reads: BTreeMap::new(),
            main_chunks: 0,
            main_delay: Duration::ZERO,
            shape,
        };
        world.schedule_beginning();
        world
    }

    fn schedule_beginning(&mut self) {
        let channels = self.shape.channels;
        for _ in 0..self.shape.lanes {
            self.after(0, 2000, Event::LaneUp);
        }
        for _ in 0..channels {
            self.after(0, 3000, Event::ChannelOpens);
        }
        for _ in 0..self.faults.lane_deaths {
            self.after(0, 40_000, Event::LaneDies);
        }
        for _ in 0..self.faults.lanes_silent {
            self.after(0, 40_000, Event::LaneFallsSilent);
        }
        for _ in 0..self.faults.lanes_slow {
            self.after(0, 40_000, Event::LaneSlows);
        }
        for _ in 0..self.faults.lanes_retire {
            self.after(0, 40_000, Event::LaneRetires);
        }
        if self.faults.local_breaks {
            let side = if self.rng.chance(50) {
                Side::Source
            } else {
                Side::Destination
            };
            let channel = self.rng.between(0, u64::from(channels) - 1) as u16;
            self.after(3000, 20_000, Event::LocalBreaks { side, channel });
        }
    }

    /// Schedules an event `low` to `high` microseconds from now.
    fn after(&mut self, low: u64, high: u64, event: Event) {
        let at = self.now + Duration::from_micros(self.rng.between(low, high));
        self.at(at, event);
    }

    fn at(&mut self, at: Duration, event: Event) {
        self.number += 1;
        self.events.push(Scheduled {
            at,
            number: self.number,
            event,
        });
    }

    fn end(&mut self, side: Side) -> &mut End2 {
        self.ends.get_mut(&side).expect("both ends exist")
    }

    fn input(&mut self, side: Side, input: Input) {
        let now = self.now;
        let refused = self.end(side).session.handle(now, input);
        assert!(refused.is_ok(), "{side:?} refused {input:?}: {refused:?}");
        loop {
            match self.end(side).session.poll(now) {
                Output::Wait(deadline) => return self.wait_until(side, deadline),
                output => self.perform(side, output),
            }
        }
    }

    fn wait_until(&mut self, side: Side, deadline: Option<Duration>) {
        let known = std::mem::replace(&mut self.end(side).wakes_at, deadline);
        if let Some(at) = deadline.filter(|_| deadline != known) {
            self.at(at, Event::Tick(side));
        }
    }

    /// A deadline has come, unless the session has named another one since.
    fn tick(&mut self, side: Side) {
        let now = self.now;
        if self.end(side).wakes_at.is_some_and(|at| at <= now) {
            self.end(side).wakes_at = None;
            self.input(side, Input::Tick);
        }
    }

    fn perform(&mut self, side: Side, output: Output) {
        match output {
            Output::Open { .. } | Output::Wait(_) => {}
            Output::Read {
                channel,
                buffer,
                most,
                ..
            } => {
                self.read_later(side, channel, buffer, most);
            }
            Output::Write { channel, piece } => {
                let queue = self.end(side).writing.entry(channel).or_default();
                queue.push_back(piece);
                if queue.len() == 1 {
                    self.write_next(side, channel);
                }
            }
            Output::Send {
                lane,
                frame,
                buffer,
            } => self.send(side, lane, frame, buffer),
            Output::Receive { lane, buffer } => {
                let state = self.lanes.get_mut(&lane).expect("the lane exists");
                state
                    .receives_into
                    .entry(side)
                    .or_default()
                    .push_back(buffer);
                self.deliver(side, lane);
            }
            Output::CloseLane { lane } => self.retired(lane),
            Output::DropLane { lane, .. } => {
                self.dropped += 1;
                self.kill(lane);
                if self.faults.lanes_return {
                    self.after(0, 5000, Event::LaneUp);
                }
            }
            Output::ForgetLane { .. } | Output::OutageBegan { .. } | Output::OutageEnded { .. } => {
            }
            Output::Ended(end) => {
                assert!(self.end(side).ended.is_none(), "{side:?} ended twice");
                self.end(side).ended = Some(end);
            }
        }
    }

    fn write_next(&mut self, side: Side, channel: u16) {
        // Now and then QEMU does not read for a while, as at its sync points.
        let high = if self.rng.chance(3) { 20_000 } else { 150 };
        self.after(0, high, Event::WriteDone { side, channel });
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Tick(side) => self.tick(side),
            Event::ChannelOpens => self.input(Side::Source, Input::ChannelOpened),
            Event::ReadReady {
                side,
                channel,
                buffer,
                most,
            } => self.read(side, channel, buffer, most),
            Event::WriteDone { side, channel } => self.wrote(side, channel),
            Event::SendDone { side, lane } => {
                if self.lanes[&lane].alive && self.lanes[&lane].up[&side] {
                    self.input(side, Input::Sent { lane });
                }
            }
            Event::Arrives {
                to,
                lane,
                frame,
                payload,
            } => {
                let state = self.lanes.get_mut(&lane).expect("the lane exists");
                if state.alive && state.up[&to] && !state.silent {
                    if to == Side::Destination
                        && let Frame::Chunk {
                            channel: 0,
                            sequence,
                            ..
                        } = frame
                        && let Some(read_at) = self.main_reads.remove(&sequence)
                    {
                        self.main_delay = self.main_delay.max(self.now - read_at);
                    }
                    state
                        .held_back
                        .entry(to)
                        .or_default()
                        .push_back((frame, payload));
                    self.deliver(to, lane);
                }
            }
            Event::LaneDies => self.lane_dies(),
            Event::LaneFallsSilent => self.lane_falls_silent(),
            Event::LaneSlows => self.lane_slows(),
            Event::LaneRetires => self.lane_retires(),
            Event::LaneDown { side, lane } => {
                self.lanes
                    .get_mut(&lane)
                    .expect("the lane exists")
                    .up
                    .insert(side, false);
                self.input(side, Input::LaneDown { lane });
            }
            Event::LaneUp => self.lane_up(),
            Event::LocalBreaks { side, channel } => self.local_breaks(side, channel),
        }
    }

    fn read_later(&mut self, side: Side, channel: u16, buffer: BufferId, most: u32) {
        let ready = Event::ReadReady {
            side,
            channel,
            buffer,
            most,
        };
        self.after(0, 200, ready);
    }

    fn read(&mut self, side: Side, channel: u16, buffer: BufferId, asked: u32) {
        let most = self.rng.between(1, u64::from(asked)) as usize;
        let opens_more = self.opens_more(side, channel);
        let end = self.end(side);
        let broken = end.broken.contains(&channel);
        let script = end.script.entry(channel).or_default();
        let count = if broken { 0 } else { most.min(script.len()) };
        if count == 0 && !broken && opens_more {
            return self.read_later(side, channel, buffer, asked);
        }
        if count == 0 {
            self.input(side, Input::ReadEnded { channel, buffer });
            return;
        }
        let bytes: Vec<u8> = script.drain(..count).collect();
        self.read.entry((side, channel)).or_default().extend(&bytes);
        let reduced = is_reduced(&bytes);
        self.end(side).memory.insert(buffer, bytes);
        if (side, channel) == (Side::Source, 0) {
            self.main_reads.insert(self.main_chunks, self.now);
            self.main_chunks += 1;
        }
        self.input(
            side,
            Input::Read {
                channel,
                buffer,
                length: count as u32,
                reduced,
            },
        );
    }

    /// QEMU's main channel does not end before all others are open: a session that has only ended
    /// channels has finished.
    fn opens_more(&mut self, side: Side, channel: u16) -> bool {
        let (now, wanted) = (self.now, usize::from(self.shape.channels));
        let open = self.end(side).session.stats(now).channels.len();
        side == Side::Source && channel == 0 && open < wanted
    }

    fn wrote(&mut self, side: Side, channel: u16) {
        let end = self.end(side);
        let broken = end.broken.contains(&channel);
        let queue = end.writing.entry(channel).or_default();
        let piece = queue.pop_front().expect("a write was under way");
        let more = !queue.is_empty();
        match piece {
            Piece::Bytes {
                buffer,
                length,
                reduced,
            } if !broken => {
                let bytes = end.memory[&buffer][..length as usize].to_vec();
                assert_eq!(reduced, is_reduced(&bytes), "what was said of the chunk");
                self.written
                    .entry((side, channel))
                    .or_default()
                    .extend(bytes);
            }
            Piece::Reset => end.broken.push(channel),
            Piece::Bytes { .. } | Piece::End | Piece::Begin => {}
        }
        if more {
            self.write_next(side, channel);
        }
        self.input(side, Input::Written { channel });
    }

    fn local_breaks(&mut self, side: Side, channel: u16) {
        let now = self.now;
        let open = self.end(side).session.stats(now).channels.len();
        if usize::from(channel) < open {
            self.end(side).broken.push(channel);
            self.input(side, Input::LocalBroke { channel });
        }
    }
}

/// Whether a chunk of these bytes is said to stand for others: some do, and both ends can tell which.
fn is_reduced(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|byte| byte % 2 == 1)
}
