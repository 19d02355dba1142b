//! One side of one migration's data path.

use std::io;
use std::sync::Arc;

use drover_lanes::Lane;
use drover_session::{Config, Input, LaneId, Role, Session};
use drover_types::{ByteRate, NicPlacement, Path, PathEnd, PathId};
use drover_wire::ByeCode;
use drover_wire::limits::LANES_MAX;

use crate::Sizes;
use crate::channel;
use crate::dialer::{Dialer, Use};
use crate::handshake::{Opened, Order};
use crate::limits::{BUFFER_BYTES_MAX, SPARE_BYTES_MAX};
use crate::local::{Local, Sockets};
use crate::pool::Pool;
use crate::reduction::{BaselineFile, Behind, NotAdded, StoredFile};
use crate::report::{Event, NotStarted, Report, Settings};
use crate::shared::{Listener, Shared, spawn};

/// One side of one migration's data path. Dropping the last handle closes everything; pages that wait to be kept for the guest's return
/// are still written.
pub struct Relay {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").finish_non_exhaustive()
    }
}

impl Relay {
    /// The source's side: QEMU connects its channels to a UNIX socket that is made.
    ///
    /// # Errors
    /// [`NotStarted`], for one when the socket's directory does not exist.
    pub fn source<'a>(
        settings: Settings,
        sockets: impl Into<Sockets<'a>>,
        listener: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Self, NotStarted> {
        let made = Local::listening(sockets.into());
        let local = made.map_err(|(path, source)| NotStarted::Socket { path, source })?;
        let local = Arc::new(local);
        let relay = Self::new(settings, &local, Role::Opener, Arc::new(listener));
        let started = relay.and_then(|relay| {
            let shared = relay.shared.clone();
            spawn("accept", move || channel::accept(&shared)).map_err(NotStarted::Thread)?;
            Ok(relay)
        });
        started.inspect_err(|_| local.close())
    }

    /// The destination's side: channels are connected to a UNIX socket, on which QEMU listens by the time its first chunk
    /// arrives.
    ///
    /// # Errors
    /// [`NotStarted`].
    pub fn destination<'a>(
        settings: Settings,
        sockets: impl Into<Sockets<'a>>,
        listener: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Self, NotStarted> {
        let local = Arc::new(Local::connecting(sockets.into()));
        Self::new(settings, &local, Role::Accepter, Arc::new(listener))
    }

    fn new(
        settings: Settings,
        local: &Arc<Local>,
        role: Role,
        listener: Arc<Listener>,
    ) -> Result<Self, NotStarted> {
        let main = local.main();
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
        let spare = u64::from(chunk_bytes) * u64::from(channels_max.saturating_add(LANES_MAX));
        if spare > SPARE_BYTES_MAX {
            return Err(NotStarted::Spare {
                channels: channels_max,
                chunk_bytes,
                bytes: spare,
            });
        }
        let outage_limit = settings.outage_limit;
        let config = Config {
            role,
            chunk_bytes,
            window,
            channels_max,
            urgent: main + 1,
            early_bulk: local.disks(),
            outage_limit,
        };
        let session = Session::new(config)?;
        let per_channel = 2 * usize::from(window) + 1;
        let buffers = usize::from(channels_max) * per_channel + usize::from(LANES_MAX);
        let in_pipes = if settings.verify {
            Err("verify is on")
        } else if !settings.pass_through {
            Err("lanes are encrypted")
        } else {
            Ok(chunk_bytes)
        };
        let pool = Pool::new(buffers, in_pipes);
        let shared = Shared::new(session, pool, &settings, Arc::clone(local), listener);
        let timed = shared.clone();
        spawn("timer", move || timed.run_timer()).map_err(NotStarted::Thread)?;
        Ok(Self { shared })
    }

    /// Has the threads of lanes with these addresses of ours run there. Lanes that there are already
    /// stay where they run; of an address that is known the first word counts.
    pub fn place(&self, nics: Vec<NicPlacement>) {
        self.shared.places.add(nics);
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

    /// Adds the lanes that were opened, and dials from now on those that are lost or could not be
    /// opened, for as long as the session runs. To be called once, by the side that dials.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn keep_lanes(&self, order: Order, opened: Opened) -> io::Result<()> {
        let dialer = Dialer::start(&self.shared, order, &opened)?;
        let kept = self.shared.dialer.get_or_init(|| dialer.clone());
        if !Arc::ptr_eq(kept, &dialer) {
            dialer.stop();
        }
        for (plan, lane) in opened.lanes {
            if let Err(refused) = self.add_lane(plan.lane, plan.path, lane) {
                kept.lost(plan.lane, Use::default(), &refused.to_string());
            }
        }
        Ok(())
    }

    /// Lanes are wanted on this path, too.
    pub fn add_path(&self, path: Path) {
        if let Some(dialer) = self.shared.dialer.get() {
            dialer.add_path(path);
        }
    }

    /// This end of a path carries nothing any more, for one because a cable was pulled: its lanes
    /// are given up at once, and not dialled again until [`Relay::link_back`].
    pub fn link_lost(&self, path: PathId, reason: &str) {
        if let Some(dialer) = self.shared.dialer.get() {
            dialer.link_lost(path, reason);
        }
        self.shared.drop_path(path, reason);
    }

    /// This end of a path can be used, by this interface and address: it is dialled at once.
    pub fn link_back(&self, path: PathId, source: PathEnd) {
        if let Some(dialer) = self.shared.dialer.get() {
            dialer.link_back(path, source);
        }
    }

    /// Pages that this host has stored: as the destination, the source is told of them; at either end, those that cross are added
    /// where that is wanted.
    ///
    /// # Errors
    /// [`NotAdded`]; the session goes on without.
    pub fn add_stored(&self, file: StoredFile) -> Result<(), NotAdded> {
        let reduction = self.shared.reduction.as_ref();
        let reduction = reduction.ok_or(NotAdded::NotAgreed)?;
        reduction.add_stored(file, self.shared.alive())
    }

    /// The guest's baseline: as the destination, pages are recorded there as they arrive; as the source, they are compared with it.
    /// To be given before the first byte of QEMU.
    ///
    /// # Errors
    /// [`NotAdded`]; the session goes on without.
    pub fn add_baseline(&self, file: BaselineFile) -> Result<(), NotAdded> {
        let reduction = self.shared.reduction.as_ref();
        let reduction = reduction.ok_or(NotAdded::NotAgreed)?;
        reduction.add_baseline(file, self.shared.alive())
    }

    /// Limits the payload that is sent on a path, or on all together; `None` lifts the limit.
    pub fn limit(&self, path: Option<PathId>, rate: Option<ByteRate>) {
        self.shared.step_or_end(Input::Limit { path, rate });
    }

    /// The counters as they are now.
    #[must_use]
    pub fn report(&self) -> Report {
        self.shared.report()
    }

    /// What becomes of pages that are stored or recorded, also when nothing else of the relay is left; where bytes are reduced.
    #[must_use]
    pub fn behind(&self) -> Option<Behind> {
        Some(self.shared.reduction.as_ref()?.behind())
    }

    /// Ends the session, whatever it is doing: the peer is told, and everything is closed within
    /// [`FAREWELL_TIME`]. QEMU sees its sockets close. Pages that wait to be kept are, where the session has finished.
    pub fn close(&self, code: ByeCode) {
        if let Some(reduction) = &self.shared.reduction
            && code != ByeCode::Finished
        {
            reduction.give_up();
        }
        self.shared.close(code);
    }
}

impl Relay {
    /// Ends the session at once, without a farewell: when this returns, QEMU's sockets are closed
    /// and no further byte reaches it.
    pub fn cut(&self) {
        self.shared.terminate();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.close(ByeCode::Aborted);
    }
}
