//! One side of one migration's data path.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path as FilePath, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use drover_lanes::Lane;
use drover_session::{BufferId, ChannelId, Config, Input, LaneId, Output, Piece, Session};
use drover_types::{ByteRate, PathId};
use drover_wire::ByeCode;
use drover_wire::limits::LANES_MAX;

use crate::channel;
use crate::goodput::Goodput;
use crate::lane::{self, Sending};
use crate::limits::{BUFFER_BYTES_MAX, FAREWELL_TIME};
use crate::pool::{Pool, lock};
use crate::{End, Sizes, Stats};

/// What both ends agreed on for one migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Sizes of chunks and windows.
    pub sizes: Sizes,
    /// Most channels that QEMU may open.
    pub channels_max: u16,
}

/// What the agent should know at once.
#[derive(Debug)]
pub enum Event {
    /// The session is over; why, for the operator.
    Ended {
        /// How it ended.
        end: End,
        /// The same in words, with causes.
        reason: String,
    },
    /// A lane is gone.
    LaneLost {
        /// The lane.
        lane: LaneId,
        /// Its path.
        path: PathId,
        /// Why, as far as it is known.
        reason: String,
    },
    /// A local socket broke or could not be opened.
    ChannelBroke {
        /// The channel.
        channel: ChannelId,
        /// Why.
        reason: String,
    },
}

/// A relay that could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The sizes are beyond the protocol's limits.
    #[error("the session's settings cannot be used")]
    Settings(#[from] drover_session::Refused),
    /// The windows would take more memory than is allowed.
    #[error(
        "{channels} channels with windows of {window} chunks of {chunk_bytes} bytes need {bytes} \
         bytes, {BUFFER_BYTES_MAX} are allowed"
    )]
    Memory {
        /// Channels.
        channels: u16,
        /// Chunks in each window.
        window: u16,
        /// Size of a chunk.
        chunk_bytes: u32,
        /// What they need together.
        bytes: u64,
    },
    /// No socket for QEMU to connect to.
    #[error("cannot listen on {}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// No thread could be started.
    #[error("cannot start a thread of the relay")]
    Thread(#[source] io::Error),
}

/// How a lane ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneEnd {
    /// One of the two agents closed it.
    Closed,
    /// It was lost; why, as far as it is known.
    Lost(String),
}

/// What one lane carried, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneReport {
    /// Its path.
    pub path: PathId,
    /// Its counters.
    pub stats: drover_session::LaneStats,
    /// How it ended, if it did.
    pub ended: Option<LaneEnd>,
}

/// A relay's counters.
#[derive(Debug, Clone)]
pub struct Report {
    /// Per lane.
    pub lanes: Vec<LaneReport>,
    /// Per channel, and in all.
    pub session: Stats,
    /// Rate of QEMU's bytes in the bulk phase, if there was one.
    pub bulk: Option<ByteRate>,
}

/// Where a relay's QEMU is.
enum Local {
    /// QEMU connects to us.
    Listening(UnixListener, PathBuf),
    /// We connect to QEMU.
    Connects(PathBuf),
}

struct LanePort {
    lane: Arc<Lane>,
    send: Sender<Sending>,
    receive: Sender<BufferId>,
}

pub(crate) struct ChannelPort {
    pub(crate) read: Sender<BufferId>,
    pub(crate) write: Sender<Piece>,
    pub(crate) stream: Option<Arc<UnixStream>>,
}

struct LaneNote {
    path: PathId,
    ended: Option<LaneEnd>,
}

pub(crate) struct Core {
    session: Session,
    pub(crate) channels: Vec<ChannelPort>,
    lanes: BTreeMap<LaneId, LanePort>,
    notes: BTreeMap<LaneId, LaneNote>,
    /// When the session wants to be called again.
    deadline: Option<Duration>,
    /// When everything is closed, said farewell or not.
    close_at: Option<Duration>,
    terminated: bool,
    goodput: Goodput,
}

type Listener = dyn Fn(Event) + Send + Sync;

pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Wakes the timer's thread: an earlier deadline, or the end.
    timer: Condvar,
    pub(crate) pool: Pool,
    pub(crate) chunk_bytes: u32,
    local: Local,
    started: Instant,
    listener: Box<Listener>,
}

/// One side of one migration's data path. Dropping the last handle closes everything.
pub struct Relay {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").finish_non_exhaustive()
    }
}

impl Relay {
    /// The source's side: QEMU connects its channels to a UNIX socket that is made at `socket`.
    ///
    /// # Errors
    /// [`NotStarted`], for one when the socket's directory does not exist.
    pub fn source(
        settings: Settings,
        socket: &FilePath,
        listener: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Self, NotStarted> {
        let failed = |source| NotStarted::Socket {
            path: socket.to_owned(),
            source,
        };
        let unix = UnixListener::bind(socket).map_err(failed)?;
        let local = Local::Listening(unix, socket.to_owned());
        let relay = Self::new(
            settings,
            local,
            drover_session::Role::Opener,
            Box::new(listener),
        )?;
        let shared = relay.shared.clone();
        spawn("accept", move || channel::accept(&shared)).map_err(NotStarted::Thread)?;
        Ok(relay)
    }

    /// The destination's side: channels are connected to the UNIX socket `socket`, on which QEMU
    /// listens by the time the first chunk arrives.
    ///
    /// # Errors
    /// [`NotStarted`].
    pub fn destination(
        settings: Settings,
        socket: &FilePath,
        listener: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Self, NotStarted> {
        let local = Local::Connects(socket.to_owned());
        Self::new(
            settings,
            local,
            drover_session::Role::Accepter,
            Box::new(listener),
        )
    }

    fn new(
        settings: Settings,
        local: Local,
        role: drover_session::Role,
        listener: Box<Listener>,
    ) -> Result<Self, NotStarted> {
        let Sizes {
            chunk_bytes,
            window,
        } = settings.sizes;
        let channels_max = settings.channels_max;
        let bytes = u64::from(chunk_bytes) * u64::from(window) * u64::from(channels_max);
        if bytes > BUFFER_BYTES_MAX {
            let channels = channels_max;
            return Err(NotStarted::Memory {
                channels,
                window,
                chunk_bytes,
                bytes,
            });
        }
        // In this version a session does not wait for new lanes.
        let outage_limit = Duration::ZERO;
        let config = Config {
            role,
            chunk_bytes,
            window,
            channels_max,
            outage_limit,
        };
        let session = Session::new(config)?;
        let per_channel = 2 * usize::from(window) + 1;
        let buffers = usize::from(channels_max) * per_channel + usize::from(LANES_MAX);
        let core = Core {
            session,
            channels: Vec::new(),
            lanes: BTreeMap::new(),
            notes: BTreeMap::new(),
            deadline: None,
            close_at: None,
            terminated: false,
            goodput: Goodput::default(),
        };
        let shared = Arc::new(Shared {
            core: Mutex::new(core),
            timer: Condvar::new(),
            pool: Pool::new(chunk_bytes as usize, buffers),
            chunk_bytes,
            local,
            started: Instant::now(),
            listener,
        });
        let timed = shared.clone();
        spawn("timer", move || timed.run_timer()).map_err(NotStarted::Thread)?;
        Ok(Self { shared })
    }

    /// Adds a lane that is connected and past its handshake.
    ///
    /// # Errors
    /// The session's refusal when the number is taken or the session over; the lane is closed.
    pub fn add_lane(
        &self,
        id: LaneId,
        path: PathId,
        lane: Lane,
    ) -> Result<(), drover_session::Refused> {
        self.shared.add_lane(id, path, lane)
    }

    /// The counters as they are now.
    #[must_use]
    pub fn report(&self) -> Report {
        let core = self.shared.lock();
        let session = core.session.stats();
        let lanes = session.lanes.iter().filter_map(|stats| {
            let note = core.notes.get(&stats.lane)?;
            Some(LaneReport {
                path: note.path,
                stats: *stats,
                ended: note.ended.clone(),
            })
        });
        Report {
            lanes: lanes.collect(),
            bulk: core.goodput.bulk(),
            session,
        }
    }

    /// Ends the session, whatever it is doing: the peer is told, and everything is closed within
    /// [`FAREWELL_TIME`]. QEMU sees its sockets close.
    pub fn close(&self, code: ByeCode) {
        self.shared.close(code);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.close(ByeCode::Aborted);
    }
}

/// Starts one of the relay's threads. Its name is what an operator sees in `top -H`.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(format!("relay-{name}"))
        .spawn(run)
        .map(drop)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn tell(&self, event: Event) {
        (self.listener)(event);
    }

    /// Gives the session an input and hands out what it wants done.
    pub(crate) fn step(self: &Arc<Self>, input: Input) -> Result<(), drover_session::Refused> {
        let now = self.now();
        let mut core = self.lock();
        if core.terminated {
            return Ok(());
        }
        core.session.handle(now, input)?;
        let ended = self.route(&mut core, now);
        drop(core);
        if let Some(end) = ended {
            self.ended(end);
        }
        Ok(())
    }

    /// As [`Shared::step`], for inputs that only a bug could make the session refuse: the
    /// migration is then ended rather than left hanging.
    pub(crate) fn step_or_end(self: &Arc<Self>, input: Input) {
        if let Err(refused) = self.step(input) {
            tracing::error!(%refused, ?input, "the session refused what it asked for: ending it");
            let reason = format!("internal error: {refused}");
            self.tell(Event::Ended {
                end: End::Closed(ByeCode::Violation),
                reason,
            });
            self.terminate();
        }
    }

    fn route(self: &Arc<Self>, core: &mut Core, now: Duration) -> Option<End> {
        let mut ended = None;
        loop {
            match core.session.poll(now) {
                Output::Wait(deadline) => {
                    self.wait_until(core, deadline);
                    return ended;
                }
                Output::Ended(end) => ended = Some(end),
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
                    let _ = port.write.send(piece);
                }
            }
            Output::Send {
                lane,
                frame,
                buffer,
            } => {
                if let Some(port) = core.lanes.get(&lane) {
                    let _ = port.send.send(Sending { frame, buffer });
                }
            }
            Output::Receive { lane, buffer } => {
                if let Some(port) = core.lanes.get(&lane) {
                    let _ = port.receive.send(buffer);
                }
            }
            Output::CloseLane { lane } => {
                if let Some(port) = core.lanes.get(&lane) {
                    port.lane.finish_sending();
                }
            }
            Output::Ended(_) | Output::Wait(_) => {}
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
        core.session.handle(now, Input::ChannelOpened)?;
        let channel = core.channels.len() as ChannelId;
        let port = channel::start_accepted(self, channel, Arc::new(stream));
        core.channels.push(port);
        self.route(&mut core, now);
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

    fn add_lane(
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
        let Ok((send, receive)) = lane::start(self, id, &lane) else {
            lane.shut_down();
            return refused;
        };
        core.lanes.insert(
            id,
            LanePort {
                lane: lane.clone(),
                send,
                receive,
            },
        );
        core.notes.insert(id, LaneNote { path, ended: None });
        if let Err(refused) = core.session.handle(now, Input::LaneUp { lane: id }) {
            core.lanes.remove(&id);
            core.notes.remove(&id);
            lane.shut_down();
            return Err(refused);
        }
        self.route(&mut core, now);
        Ok(())
    }

    /// One of a lane's threads cannot go on: its other thread is made to end, too. The first
    /// reason is the one that counts.
    pub(crate) fn lane_failed(&self, id: LaneId, end: LaneEnd) {
        let mut core = self.lock();
        // While we close, the peer answers our farewell by closing, too.
        let end = if core.close_at.is_some() {
            LaneEnd::Closed
        } else {
            end
        };
        if let Some(note) = core.notes.get_mut(&id) {
            note.ended.get_or_insert(end);
        }
        if let Some(port) = core.lanes.remove(&id) {
            port.lane.shut_down();
        }
    }

    /// Both of a lane's threads have ended.
    pub(crate) fn lane_gone(self: &Arc<Self>, id: LaneId) {
        let lost = {
            let core = self.lock();
            let note = core
                .notes
                .get(&id)
                .filter(|_| !core.terminated && core.close_at.is_none());
            note.map(|note| (note.path, note.ended.clone()))
        };
        if let Some((path, Some(LaneEnd::Lost(reason)))) = lost {
            self.tell(Event::LaneLost {
                lane: id,
                path,
                reason,
            });
        }
        self.step_or_end(Input::LaneDown { lane: id });
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

    fn run_timer(self: &Arc<Self>) {
        let mut core = self.lock();
        while !core.terminated {
            let now = self.now();
            if core.close_at.is_some_and(|at| at <= now) {
                drop(core);
                return self.terminate();
            }
            if core.goodput.next_at() <= now {
                let stats = core.session.stats();
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
                let core = self.lock();
                let reason = |(id, note): (&LaneId, &LaneNote)| {
                    let ended = match &note.ended {
                        Some(LaneEnd::Lost(reason)) => reason,
                        Some(LaneEnd::Closed) | None => "closed",
                    };
                    format!("lane {id} on path {}: {ended}", note.path)
                };
                let reasons: Vec<String> = core.notes.iter().map(reason).collect();
                format!("no lane to the other host is left ({})", reasons.join("; "))
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

    fn close(self: &Arc<Self>, code: ByeCode) {
        let now = self.now();
        {
            let mut core = self.lock();
            if core.terminated || core.close_at.is_some() {
                return;
            }
            core.close_at = Some(now + FAREWELL_TIME);
            self.timer.notify_one();
        }
        self.step_or_end(Input::Close { code });
    }

    /// Closes every socket; every thread ends by itself. QEMU's sockets are closed only here, so
    /// that what it reads until then is what the other QEMU wrote.
    fn terminate(self: &Arc<Self>) {
        let mut core = self.lock();
        if std::mem::replace(&mut core.terminated, true) {
            return;
        }
        for (id, port) in std::mem::take(&mut core.lanes) {
            port.lane.shut_down();
            if let Some(note) = core.notes.get_mut(&id) {
                note.ended.get_or_insert(LaneEnd::Closed);
            }
        }
        for port in std::mem::take(&mut core.channels) {
            if let Some(stream) = port.stream {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        if let Local::Listening(listener, path) = &self.local {
            let _ = rustix::net::shutdown(listener.as_fd(), rustix::net::Shutdown::Both);
            let _ = std::fs::remove_file(path);
        }
        self.timer.notify_all();
    }
}
