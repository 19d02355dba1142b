//! What the relay's threads share: the session under its lock, and who performs its outputs.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use drover_lanes::{Lane, TcpFacts};
use drover_session::{BufferId, ChannelId, Input, LaneId, Output, Piece, Session};
use drover_types::PathId;
use drover_wire::ByeCode;

use crate::End;
use crate::channel;
use crate::dialer::{Dialer, Use};
use crate::errands::{Errand, Errands};
use crate::goodput::Goodput;
use crate::lane::{self, Sending};
use crate::limits::FAREWELL_TIME;
use crate::pool::{Pool, lock};
use crate::report::{Event, LaneEnd, LaneEnds, LaneReport, Report, Settings};
use crate::turns::Bringer;

/// Where a relay's QEMU is.
pub(crate) enum Local {
    /// QEMU connects to us.
    Listening(UnixListener, PathBuf),
    /// We connect to QEMU.
    Connects(PathBuf),
}

struct LanePort {
    lane: Arc<Lane>,
    send: Bringer<lane::Tool, Sending>,
    receive: Sender<BufferId>,
}

pub(crate) struct ChannelPort {
    pub(crate) read: Sender<BufferId>,
    pub(crate) write: Bringer<channel::Tool, Piece>,
    pub(crate) stream: Option<Arc<UnixStream>>,
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
    /// When everything is closed, said farewell or not.
    close_at: Option<Duration>,
    terminated: bool,
    goodput: Goodput,
    errands: Errands,
}

impl Core {
    /// Makes both of a lane's threads end. The first reason is the one that counts.
    fn end_lane(&mut self, id: LaneId, end: LaneEnd) {
        if let Some(note) = self.notes.get_mut(&id) {
            note.ended.get_or_insert(end);
        }
        if let Some(port) = self.lanes.remove(&id) {
            port.lane.shut_down();
        }
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
    /// Wakes the timer's thread: an earlier deadline, or the end.
    timer: Condvar,
    pub(crate) pool: Pool,
    pub(crate) chunk_bytes: u32,
    outage_limit: Duration,
    pub(crate) verify: bool,
    local: Local,
    started: Instant,
    listener: Box<Listener>,
    /// Dials lanes again, on the side that dials.
    pub(crate) dialer: OnceLock<Arc<Dialer>>,
}

/// Starts one of the relay's threads. Its name is what an operator sees in `top -H`.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(format!("relay-{name}"))
        .spawn(run)
        .map(drop)
}

impl Shared {
    pub(crate) fn new(
        session: Session,
        pool: Pool,
        settings: &Settings,
        local: Local,
        listener: Box<Listener>,
    ) -> Arc<Self> {
        let core = Core {
            session,
            channels: Vec::new(),
            lanes: BTreeMap::new(),
            notes: BTreeMap::new(),
            deadline: None,
            close_at: None,
            terminated: false,
            goodput: Goodput::default(),
            errands: Errands::default(),
        };
        Arc::new(Self {
            core: Mutex::new(core),
            timer: Condvar::new(),
            pool,
            chunk_bytes: settings.sizes.chunk_bytes,
            outage_limit: settings.outage_limit,
            verify: settings.verify,
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
        let core = self.lock();
        let session = core.session.stats(now);
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
            data_path: self.pool.data_path(),
            bulk: core.goodput.bulk(),
            session,
        }
    }

    /// What the kernel knows of the living lanes; asked without the lock, as each answer may wait for a
    /// write under way.
    fn tcp_facts(&self) -> BTreeMap<LaneId, TcpFacts> {
        let living: Vec<(LaneId, Arc<Lane>)> = {
            let core = self.lock();
            let lanes = core.lanes.iter();
            lanes.map(|(id, port)| (*id, port.lane.clone())).collect()
        };
        let facts = |(id, lane): (LaneId, Arc<Lane>)| Some((id, lane.facts().ok()?));
        living.into_iter().filter_map(facts).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
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
        matches!(self.local, Local::Listening(..))
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
            Output::Read { channel, buffer } => {
                if let Some(port) = core.channels.get(usize::from(channel)) {
                    let _ = port.read.send(buffer);
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
        if let Local::Connects(path) = &self.local {
            let channel = core.channels.len() as ChannelId;
            let port = channel::start_connecting(self, channel, path.clone());
            core.channels.push(port);
        }
    }

    /// A channel that QEMU opened. The session is told under the same lock that numbers it.
    pub(crate) fn channel_accepted(
        self: &Arc<Self>,
        stream: UnixStream,
    ) -> Result<(), drover_session::Refused> {
        let now = self.now();
        let mut core = self.lock();
        if core.terminated {
            return Ok(()); // the stream closes here
        }
        core.session.handle(now, Input::ChannelOpened)?;
        let channel = core.channels.len() as ChannelId;
        let port = channel::start_accepted(self, channel, Arc::new(stream));
        core.channels.push(port);
        self.route_and_release(core, now).call();
        Ok(())
    }

    /// QEMU's next connection; `None` once the relay has ended.
    pub(crate) fn accept_local(&self) -> Option<io::Result<UnixStream>> {
        let Local::Listening(listener, _) = &self.local else {
            return None;
        };
        let accepted = listener.accept();
        let ended = self.lock().terminated;
        (!ended).then(|| accepted.map(|(stream, _)| stream))
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

    fn stop_dialling(&self) {
        if let Some(dialer) = self.dialer.get() {
            dialer.stop();
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
        let mut carried: BTreeMap<PathId, (u64, bool)> = BTreeMap::new();
        for lane in core.session.stats(now).lanes {
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

    fn wait_until(&self, core: &mut Core, deadline: Option<Duration>) {
        let sooner = match (deadline, core.deadline) {
            (Some(new), Some(old)) => new < old,
            (Some(_), None) => true,
            (None, _) => false,
        };
        core.deadline = deadline;
        if sooner {
            self.timer.notify_one();
        }
    }

    pub(crate) fn run_timer(self: &Arc<Self>) {
        let mut core = self.lock();
        while !core.terminated {
            let now = self.now();
            if core.close_at.is_some_and(|at| at <= now) {
                drop(core);
                return self.terminate();
            }
            if core.goodput.next_at() <= now {
                let stats = core.session.stats(now);
                let carried = stats.confirmed_bytes().max(stats.written_bytes());
                core.goodput.note(now, carried);
            }
            if core.deadline.is_some_and(|at| at <= now) {
                core.deadline = None;
                drop(core);
                self.step_or_end(Input::Tick);
                core = self.lock();
                continue;
            }
            let others = [core.close_at, core.deadline].into_iter().flatten();
            let next = others.fold(core.goodput.next_at(), Duration::min);
            let pause = next.saturating_sub(now);
            let waited = self.timer.wait_timeout(core, pause);
            core = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn ended(self: &Arc<Self>, end: End) {
        self.stop_dialling();
        let reason = self.end_in_words(end);
        self.tell(Event::Ended { end, reason });
        if end != End::Finished {
            self.terminate();
        }
    }

    fn end_in_words(&self, end: End) -> String {
        match end {
            End::Finished => "everything was delivered".into(),
            End::LanesLost => {
                let reasons = self.last_losses().join("; ");
                match self.outage_limit.as_secs() {
                    0 => format!("no lane to the other host is left ({reasons})"),
                    limit => format!(
                        "there was no lane to the other host for {limit} s, which is the outage \
                         limit ({reasons})"
                    ),
                }
            }
            End::PeerClosed(code) => match code {
                ByeCode::Finished => "the other agent closed the session as finished".into(),
                ByeCode::Aborted => "the other agent ended the session".into(),
                ByeCode::Violation => "the other agent found a violation of the protocol".into(),
                ByeCode::Unknown(code) => format!("the other agent ended the session, code {code}"),
            },
            End::Closed(_) => "the session was closed".into(),
            End::Violation(violation) => violation.to_string(),
        }
    }

    /// How the last lane of each path was lost.
    fn last_losses(&self) -> Vec<String> {
        let core = self.lock();
        let mut of_path = BTreeMap::new();
        for (id, note) in &core.notes {
            let ended = match &note.ended {
                Some(LaneEnd::Lost(reason)) => reason,
                Some(LaneEnd::Closed) | None => "closed",
            };
            of_path.insert(note.path, (id, ended));
        }
        let reason = |(path, (id, ended))| format!("lane {id} on path {path}: {ended}");
        of_path.into_iter().map(reason).collect()
    }

    pub(crate) fn close(self: &Arc<Self>, code: ByeCode) {
        let now = self.now();
        {
            let mut core = self.lock();
            if core.terminated || core.close_at.is_some() {
                return;
            }
            core.close_at = Some(now + FAREWELL_TIME);
            self.stop_dialling();
            self.timer.notify_one();
        }
        self.step_or_end(Input::Close { code });
    }

    /// Closes every socket; every thread ends by itself. QEMU's sockets are closed only here, so
    /// that what it reads until then is what the other QEMU wrote.
    pub(crate) fn terminate(self: &Arc<Self>) {
        let mut core = self.lock();
        if std::mem::replace(&mut core.terminated, true) {
            return;
        }
        self.stop_dialling();
        for (id, port) in std::mem::take(&mut core.lanes) {
            port.lane.shut_down();
            if let Some(note) = core.notes.get_mut(&id) {
                note.ended.get_or_insert(LaneEnd::Closed);
            }
        }
        for (channel, port) in std::mem::take(&mut core.channels).into_iter().enumerate() {
            if let Some(stream) = port.stream {
                let _ = stream.shutdown(channel::closing(channel as ChannelId));
            }
        }
        if let Local::Listening(listener, path) = &self.local {
            let _ = rustix::net::shutdown(listener.as_fd(), rustix::net::Shutdown::Both);
            let _ = std::fs::remove_file(path);
        }
        self.timer.notify_all();
    }
}

/// What a lane was used for so far.
fn how_used(session: &Session, id: LaneId, now: Duration) -> Use {
    let stats = session.stats(now);
    let found = stats.lanes.iter().find(|lane| lane.lane == id);
    found.map_or_else(Use::default, |lane| Use {
        tried: lane.sent_bytes + lane.resent_bytes > 0,
        carried: lane.receipted_bytes + lane.received_bytes > 0,
    })
}
