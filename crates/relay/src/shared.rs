//! What the relay's threads share: the session under its lock, and who performs its outputs.

mod ending;
mod lanes;
mod timer;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use drover_lanes::Lane;
use drover_session::{BufferId, ChannelId, ChannelStats, Input, LaneId, Output, Piece, Session};
use drover_types::PathId;
use drover_wire::ByeCode;

use crate::End;
use crate::channel;
use crate::dialer::Dialer;
use crate::errands::{Errand, Errands};
use crate::goodput::Goodput;
use crate::lane::{self, Sending};
use crate::local::{Listening, Local};
use crate::places::{self, Places};
use crate::pool::{Pool, lock};
use crate::reduction::{self, Expanded};
use crate::report::{Event, LaneEnd, LaneEnds, LaneReport, Reduced, Report, Settings};
use crate::turns::Bringer;

struct LanePort {
    lane: Arc<Lane>,
    send: Bringer<lane::Tool, Sending>,
    receive: Sender<BufferId>,
}

/// What a channel's thread is to read next.
pub(crate) struct Reading {
    pub(crate) buffer: BufferId,
    /// The most, in bytes.
    pub(crate) most: u32,
    /// The number that the chunk will have.
    pub(crate) sequence: u64,
    /// Most of what is on its way waits for the peer's QEMU.
    pub(crate) arrived: bool,
}

pub(crate) struct ChannelPort {
    pub(crate) read: Sender<Reading>,
    pub(crate) write: Bringer<channel::Tool, Piece>,
    pub(crate) stream: Option<Arc<UnixStream>>,
    /// It was closed here, for what another channel lost.
    pub(crate) shut_down: bool,
}

struct LaneNote {
    path: PathId,
    ends: LaneEnds,
    ended: Option<LaneEnd>,
}

struct Core {
    session: Session,
    channels: Vec<ChannelPort>,
    lanes: BTreeMap<LaneId, LanePort>,
    notes: BTreeMap<LaneId, LaneNote>,
    /// When the session wants to be called again.
    deadline: Option<Duration>,
    /// Until when the timer's thread sleeps, while it does: only a deadline before that wakes it.
    timer_sleeps: Option<Duration>,
    /// When everything is closed, said farewell or not.
    close_at: Option<Duration>,
    terminated: bool,
    goodput: Goodput,
    errands: Errands,
}

impl Core {
    /// The next channel, as the session numbers it.
    fn open(
        &mut self,
        now: Duration,
        start: impl FnOnce(ChannelId) -> ChannelPort,
    ) -> io::Result<()> {
        let opened = self.session.handle(now, Input::ChannelOpened);
        opened.map_err(io::Error::other)?;
        let port = start(self.channels.len() as ChannelId);
        self.channels.push(port);
        Ok(())
    }
}

/// What is told once the lock is released.
#[derive(Default)]
struct News {
    events: Vec<Event>,
    ended: Option<End>,
}

pub(crate) type Listener = dyn Fn(Event) + Send + Sync;

pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Wakes the timer's thread: it would oversleep, or this is the end.
    timer: Condvar,
    pub(crate) pool: Pool,
    pub(crate) chunk_bytes: u32,
    outage_limit: Duration,
    pub(crate) verify: bool,
    pub(crate) reduction: Option<reduction::Shared>,
    pub(crate) places: Places,
    pub(crate) local: Arc<Local>,
    started: Instant,
    listener: Arc<Listener>,
    /// Dials lanes again, on the side that dials.
    pub(crate) dialer: OnceLock<Arc<Dialer>>,
}

/// Starts one of the relay's threads. Its name is what an operator sees in `top -H`.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let leave = places::leave();
    thread::Builder::new()
        .name(format!("relay-{name}"))
        .spawn(move || {
            leave();
            run();
        })
        .map(drop)
}

impl Shared {
    pub(crate) fn new(
        session: Session,
        pool: Pool,
        settings: &Settings,
        local: Arc<Local>,
        listener: Arc<Listener>,
    ) -> Arc<Self> {
        let core = Core {
            session,
            channels: Vec::new(),
            lanes: BTreeMap::new(),
            notes: BTreeMap::new(),
            deadline: None,
            timer_sleeps: None,
            close_at: None,
            terminated: false,
            goodput: Goodput::default(),
            errands: Errands::default(),
        };
        let is_source = local.is_source();
        Arc::new(Self {
            core: Mutex::new(core),
            timer: Condvar::new(),
            pool,
            chunk_bytes: settings.sizes.chunk_bytes,
            outage_limit: settings.outage_limit,
            verify: settings.verify,
            reduction: settings
                .reduction
                .map(|agreed| reduction::Shared::new(agreed, is_source)),
            places: Places::default(),
            local,
            started: Instant::now(),
            listener,
            dialer: OnceLock::new(),
        })
    }

    pub(crate) fn report(&self) -> Report {
        let paths = self
            .dialer
            .get()
            .map_or_else(Vec::new, |dialer| dialer.report());
        let now = self.now();
        let tcp = self.tcp_facts();
        // Before the session is locked: whoever describes pages with less priority may hold what these wait for.
        let reduced = self.reduced();
        let expanded = self.expanded();
        let reduction = self.reduction.as_ref();
        let stored = reduction.and_then(reduction::Shared::report_stored);
        let core = self.lock();
        let mut session = core.session.stats(now);
        // QEMU's alone.
        let is_qemus = |stats: &ChannelStats| {
            !self.is_telling(stats.channel) && !self.local.is_control(stats.channel)
        };
        session.channels.retain(is_qemus);
        let lanes = session.lanes.iter().filter_map(|stats| {
            let note = core.notes.get(&stats.lane)?;
            Some(LaneReport {
                path: note.path,
                stats: *stats,
                ends: note.ends,
                tcp: tcp.get(&stats.lane).copied(),
                ended: note.ended.clone(),
            })
        });
        Report {
            lanes: lanes.collect(),
            paths,
            nics: self.places.report(),
            data_path: self.pool.data_path(self.reduction.is_some()),
            reduced,
            expanded,
            stored,
            bulk: core.goodput.bulk(),
            session,
        }
    }

    fn reduced(&self) -> Option<Reduced> {
        let reduction = self.reduction.as_ref().filter(|_| self.is_source())?;
        Some(reduction.report())
    }

    fn expanded(&self) -> Option<Expanded> {
        let reduction = self.reduction.as_ref().filter(|_| !self.is_source())?;
        Some(reduction.report_expanded())
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// As long as there is one of these, whoever is told of events knows that something of this is left.
    pub(crate) fn alive(&self) -> impl Send + use<> {
        self.listener.clone()
    }

    pub(crate) fn tell(&self, event: Event) {
        (self.listener)(event);
    }

    /// Gives the session an input and hands out what it wants done. The errands are for the caller
    /// to run, or to call somebody for.
    fn try_step(self: &Arc<Self>, input: Input) -> Result<Errands, drover_session::Refused> {
        let now = self.now();
        let mut core = self.lock();
        if core.terminated {
            return Ok(Errands::default());
        }
        core.session.handle(now, input)?;
        Ok(self.route_and_release(core, now))
    }

    /// As [`Shared::try_step`], for inputs that only a bug could make the session refuse: the
    /// migration is then ended rather than left hanging.
    pub(crate) fn step(self: &Arc<Self>, input: Input) -> Errands {
        self.try_step(input).unwrap_or_else(|refused| {
            tracing::error!(%refused, ?input, "the session refused what it asked for: ending it");
            let reason = format!("internal error: {refused}");
            self.tell(Event::Ended {
                end: End::Closed(ByeCode::Violation),
                reason,
            });
            self.terminate();
            Errands::default()
        })
    }

    pub(crate) fn is_source(&self) -> bool {
        self.local.is_source()
    }

    /// Hands out what the session wants done; if that was its end, says so without the lock.
    fn route_and_release(
        self: &Arc<Self>,
        mut core: MutexGuard<'_, Core>,
        now: Duration,
    ) -> Errands {
        let News { events, ended } = self.route(&mut core, now);
        let errands = std::mem::take(&mut core.errands);
        drop(core);
        for event in events {
            self.tell(event);
        }
        if let Some(end) = ended {
            self.ended(end);
        }
        errands
    }

    fn route(self: &Arc<Self>, core: &mut Core, now: Duration) -> News {
        let mut news = News::default();
        loop {
            match core.session.poll(now) {
                Output::Wait(deadline) => {
                    self.wait_until(core, deadline);
                    return news;
                }
                Output::Ended(end) => news.ended = Some(end),
                Output::OutageBegan { until } => news.events.push(Event::OutageBegan {
                    limit: until.saturating_sub(now),
                }),
                Output::OutageEnded { lasted } => {
                    news.events.push(Event::OutageEnded { lasted });
                }
                output => self.perform(core, output),
            }
        }
    }

    /// Hands an output to the thread that performs it. A thread that is gone has reported why, so
    /// that nobody waits for its answer.
    fn perform(self: &Arc<Self>, core: &mut Core, output: Output) {
        match output {
            Output::Open { .. } => self.open_channel(core),
            Output::Read {
                channel,
                buffer,
                most,
                sequence,
                arrived,
            } => {
                if let Some(port) = core.channels.get(usize::from(channel)) {
                    let _ = port.read.send(Reading {
                        buffer,
                        most,
                        sequence,
                        arrived,
                    });
                }
            }
            Output::Write { channel, piece } => {
                if let Some(port) = core.channels.get(usize::from(channel)) {
                    let errand = port.write.bring(piece).map(Errand::Write);
                    core.errands.extend(errand);
                }
            }
            Output::Send {
                lane,
                frame,
                buffer,
            } => {
                if let Some(port) = core.lanes.get(&lane) {
                    // Whatever becomes of the buffer, the lane sends what is in it now.
                    let chunk = buffer.and_then(|buffer| self.pool.share(buffer));
                    let errand = port.send.bring(Sending::new(frame, chunk));
                    core.errands.extend(errand.map(Errand::Send));
                }
            }
            Output::Receive { lane, buffer } => {
                if let Some(port) = core.lanes.get(&lane) {
                    let _ = port.receive.send(buffer);
                }
            }
            Output::CloseLane { lane } => {
                if let Some(note) = core.notes.get_mut(&lane) {
                    note.ended.get_or_insert(LaneEnd::Closed);
                }
                if let Some(port) = core.lanes.get(&lane) {
                    port.lane.finish_sending();
                }
            }
            Output::ForgetLane { lane } => {
                core.notes.remove(&lane);
            }
            Output::DropLane { lane, silent_for } => {
                let reason = format!("nothing came back for {} ms", silent_for.as_millis());
                core.end_lane(lane, LaneEnd::Lost(reason));
            }
            Output::OutageBegan { .. }
            | Output::OutageEnded { .. }
            | Output::Ended(_)
            | Output::Wait(_) => {}
        }
    }

    fn open_channel(self: &Arc<Self>, core: &mut Core) {
        let channel = core.channels.len() as ChannelId;
        if let Some(target) = self.local.target(channel) {
            let port = if self.is_telling(channel) {
                channel::start_telling(self, channel, channel::make_telling(self))
            } else {
                channel::start_connecting(self, channel, target.clone())
            };
            core.channels.push(port);
        }
    }

    /// A channel that QEMU opened. The session is told under the same lock that numbers it.
    pub(crate) fn channel_accepted(self: &Arc<Self>, stream: UnixStream) -> io::Result<()> {
        let now = self.now();
        let mut core = self.lock();
        if core.terminated {
            return Ok(()); // the stream closes here
        }
        core.open(now, |channel| {
            channel::start_accepted(self, channel, Arc::new(stream))
        })?;
        if self.is_telling(core.channels.len() as ChannelId) {
            // Before QEMU's next one, whatever comes of it: both ends go by its number.
            let telling = channel::make_telling(self);
            core.open(now, |channel| {
                channel::start_telling(self, channel, telling)
            })?;
        }
        self.route_and_release(core, now).call();
        Ok(())
    }

    /// Closes QEMU's end of a channel; false where there is none.
    pub(crate) fn shut_down(&self, channel: ChannelId) -> bool {
        let mut core = self.lock();
        let Some(port) = core.channels.get_mut(usize::from(channel)) else {
            return false;
        };
        port.shut_down = true;
        if let Some(stream) = &port.stream {
            // QEMU may have closed it already.
            let _ = stream.shutdown(channel::closing(self, channel));
        }
        true
    }

    /// Whether a channel was closed here, so that its failing is no news.
    pub(crate) fn was_shut_down(&self, channel: ChannelId) -> bool {
        let core = self.lock();
        let port = core.channels.get(usize::from(channel));
        port.is_some_and(|port| port.shut_down)
    }

    /// Whether a channel is the one on which the destination tells of stored pages: right behind QEMU's main one.
    pub(crate) fn is_telling(&self, channel: ChannelId) -> bool {
        let reduction = self.reduction.as_ref();
        channel == self.local.main() + 1 && reduction.is_some_and(reduction::Shared::tells)
    }

    /// What makes fewer bytes of a channel, where that was agreed on: of those of QEMU's memory, and of none before them.
    pub(crate) fn reduction_of(&self, channel: ChannelId) -> Option<&reduction::Shared> {
        let is_memory = channel >= self.local.main() && !self.is_telling(channel);
        self.reduction.as_ref().filter(|_| is_memory)
    }

    /// The next connection there; `None` once the relay has ended.
    pub(crate) fn accept_at(&self, socket: &Listening) -> Option<io::Result<UnixStream>> {
        let accepted = socket.accept();
        let ended = self.lock().terminated;
        (!ended).then_some(accepted)
    }
}
